//! Exchanges of more than is worth one message: all ranks tell first which pages they may have changed, then send these in rounds.
//!
//! Pages that one rank alone has go as fast as this rank can send. Of pages that several have, all send the same in the same round, in order of addresses, as many as surely
//! fit. So what a round brings can be applied at once, nothing is sent twice, and no rank waits with what it has for what another has at lower addresses.

use core::ops::Range;

use crate::blob::{RECORD, Reader};
use crate::layout::PAGE;
use crate::merge::Refused;
use crate::pages::Pages;

use super::Memory;
use super::tracked::{Encoded, Tracked};

/// What this rank has to send, and how far it is.
#[derive(Debug)]
pub struct Bulk {
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
    /// Of this rank's `pending` pages. `lists[rank]`: what each rank listed, or told at once; rounds have `room` bytes.
    ///
    /// # Errors
    /// A list is malformed.
    pub fn new(pending: &Pages, lists: &[&[u8]], room: usize) -> Result<Self, Refused> {
        let listed = (0..lists.len()).map(|rank| read(rank, lists[rank])).collect::<Result<Vec<_>, _>>()?;
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
        Ok(Self { alone, next: 0, shared, windows })
    }
    /// Encodes the next round. Of the last round but one, everything is applied.
    pub fn encode<M: Memory>(&mut self, tracked: &Tracked<M>, out: &mut [u8]) -> Round {
        self.encode_by(out, |pages, range, out| tracked.encode(pages, range, out))
    }
    /// As [`encode`](Self::encode), by any other way to encode.
    pub fn encode_by(
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
}

/// The pages that a blob names.
fn read(rank: usize, list: &[u8]) -> Result<Pages, Refused> {
    let mut pages = Pages::default();
    for record in Reader::new(list) {
        let record = record.map_err(|error| Refused::Malformed { rank: rank as u32, at: error.at })?;
        pages.push(record.address as usize, record.address as usize + record.pages as usize * PAGE);
    }
    Ok(pages)
}
