//! Exchanges of more than is worth one message: all ranks tell first which pages they may have changed, then send these in rounds.
//!
//! Pages that one rank alone has go as fast as this rank can send. Of pages that several have, all send the same in the same round, in order of addresses, as many as surely
//! fit. So what a round brings can be applied at once, nothing is sent twice, and no rank waits with what it has for what another has at lower addresses.

use core::ops::Range;

use polyrail_omp::blob::{Encoder, RECORD, Reader};
use polyrail_omp::layout::PAGE;
use polyrail_omp::merge::{Conflict, Refused};

use super::apply::refused;
use super::watch::Pages;
use super::{Encoded, State, with};

/// What this rank has to send, and how far it is.
pub struct Bulk {
    own: usize,
    /// Pages that no other rank has; from where on they are to be sent.
    alone: Pages,
    next: usize,
    /// Pages that others have as well.
    shared: Pages,
    /// Where each round's part of what several ranks have begins, the next one's last.
    windows: Vec<usize>,
}

/// What a round says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Bytes of what several ranks have, which come first.
    pub shared: usize,
    /// All bytes.
    pub bytes: usize,
    /// Whether this is not the last.
    pub more: bool,
}

impl Bulk {
    /// Begins; what is pending is done. `lists[rank]`: what each rank listed, or told at once; rounds have `room` bytes.
    pub fn new(lists: &[&[u8]], own: usize, room: usize) -> Self {
        let pending = with(|state| {
            let pending = state.pending.clone();
            state.done(u64::MAX);
            pending
        });
        Self::of(&pending.unwrap_or_default(), lists, own, room)
    }
    pub(super) fn of(pending: &Pages, lists: &[&[u8]], own: usize, room: usize) -> Self {
        let listed: Vec<Pages> = (0..lists.len()).map(|rank| read(rank, lists[rank])).collect();
        let several = Pages::of_several(&listed);
        let alone = several.not_in(pending);
        let shared = alone.not_in(pending);
        let (mut windows, mut count) = (Vec::new(), 0);
        for &(from, to) in several.runs() {
            let most = room / RECORD * PAGE;
            let mut at = from;
            while at < to {
                if count == 0 {
                    windows.push(at);
                }
                let part = (to - at).min(most - count);
                (at, count) = (at + part, (count + part) % most);
            }
        }
        windows.reverse();
        Self { own, alone, next: 0, shared, windows }
    }
    /// Encodes the next round. Of the last round but one, everything is applied.
    pub fn encode(&mut self, out: &mut [u8]) -> Round {
        with(|state| self.encode_by(out, |pages, range, out| state.encode(pages, range, out)))
            .unwrap_or(Round { shared: 0, bytes: 0, more: false })
    }
    pub(super) fn encode_by(
        &mut self,
        out: &mut [u8],
        mut encode: impl FnMut(&Pages, Range<usize>, &mut [u8]) -> Encoded,
    ) -> Round {
        let window = self.windows.pop().map(|from| from..self.windows.last().copied().unwrap_or(usize::MAX));
        let shared = window.map_or(0, |window| encode(&self.shared, window, out).bytes);
        let alone = encode(&self.alone, self.next..usize::MAX, &mut out[shared..]);
        self.next = usize::try_from(alone.frontier).unwrap_or(usize::MAX);
        let more = alone.frontier != u64::MAX || !self.windows.is_empty();
        Round { shared, bytes: shared + alone.bytes, more }
    }
    /// As [`merge`](super::merge()), of a round: what several ranks have, or what one rank alone has.
    ///
    /// # Safety
    /// No thread of the team runs program code.
    pub unsafe fn merge(&self, blobs: &[&[u8]]) -> Result<(), Conflict> {
        // SAFETY: the caller's.
        with(|state| unsafe { state.merge(blobs, self.own) }).unwrap_or(Ok(()))
    }
}

/// The pages that a blob names.
fn read(rank: usize, list: &[u8]) -> Pages {
    let mut pages = Pages::default();
    for record in Reader::new(list) {
        match record {
            Ok(record) => {
                pages.push(record.address as usize, record.address as usize + record.pages as usize * PAGE);
            }
            Err(error) => drop(refused(Refused::Malformed { rank: rank as u32, at: error.at })),
        }
    }
    pages
}

impl State {
    /// See [`super::list`].
    pub(super) fn list(&self, out: &mut [u8], runs: usize) -> usize {
        let runs = runs.min(out.len() / 16);
        let mut encoder = Encoder::new(out);
        for &(from, to) in self.pending.roughly(runs).runs() {
            if encoder.list(from as u64, ((to - from) / PAGE) as u64).is_err() {
                break;
            }
        }
        encoder.bytes()
    }
}
