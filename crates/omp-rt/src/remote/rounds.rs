//! Large exchanges: while a round is under way, the one before it is applied and the next one encoded.

use std::borrow::Cow;
use std::sync::Mutex;
use std::time::Instant;

use polyrail_omp::area::{Count, flag, setting};
use polyrail_omp::merge::Conflict;

use super::pack::Packer;
use super::{check, count_in, header, rank, size};
use crate::agent::{self, Said, Submitted};
use crate::stats::{self, Clock};
use crate::sys;
use crate::track::Bulk;

/// Bytes of a round, two huge pages and their records: its messages cost little beside it, and the first and last, which nothing overlaps with, are soon encoded and
/// applied.
const ROUND: usize = (4 << 20) + (64 << 10);

/// Runs of pages that each of `size` ranks lists at most: all ranks read all lists.
pub fn listed(size: usize) -> usize {
    (1_usize << 18).div_ceil(size).clamp(64, 1 << 14)
}

static PACKER: Mutex<Option<Packer>> = Mutex::new(None);

/// A round that is under way; what this rank said, if it was packed.
struct Sent {
    submitted: Submitted,
    bytes: usize,
    /// Begins with them.
    unpacked: Option<Vec<u8>>,
}

struct Rounds<'a> {
    place: u64,
    bulk: Bulk,
    packer: &'a mut Packer,
    clock: &'a mut Clock,
}

/// All that ranks have listed, to all ranks; what they said is not needed after that.
pub fn exchange(place: u64, said: Said, lists: &[&[u8]], clock: &mut Clock) -> Result<(), Conflict> {
    let mut packer = PACKER.lock().unwrap_or_else(|broken| broken.into_inner());
    let room = ROUND.min(agent::blob());
    let bulk = Bulk::new(lists, rank(), room);
    drop(said);
    let mut rounds = Rounds { place, bulk, packer: packer.get_or_insert_default(), clock };
    let mut before = rounds.send(room);
    loop {
        let next = rounds.send(room);
        let more = rounds.finish(core::mem::replace(&mut before, next))?;
        if !more {
            // nobody had more to say, so this one is empty
            return rounds.finish(before).map(drop);
        }
    }
}

impl Rounds<'_> {
    /// Encodes and submits the next round.
    fn send(&mut self, room: usize) -> Sent {
        let out = &mut agent::out()[..room];
        let plain = agent::area().settings & setting::PLAIN != 0;
        let (round, unpacked, bytes) = if !plain && self.packer.is_willing() {
            let mut whole = self.packer.buffer(room);
            let round = self.bulk.encode(&mut whole);
            match self.packer.pack(&whole[..round.bytes], out) {
                Some(bytes) => (round, Some(whole), bytes),
                None => {
                    out[..round.bytes].copy_from_slice(&whole[..round.bytes]);
                    self.packer.keep(whole);
                    (round, None, round.bytes)
                }
            }
        } else {
            let round = self.bulk.encode(out);
            (round, None, round.bytes)
        };
        let flags = if round.more { flag::ROUND | flag::MORE } else { flag::ROUND };
        let mut header = header(self.place, bytes, round.shared, flags);
        if unpacked.is_some() {
            header.words[1] = round.bytes as u64;
        }
        stats::add(Count::BytesOut, round.bytes as u64);
        stats::add(Count::BytesSaved, (round.bytes - bytes) as u64);
        self.clock.lap(Count::Encoding);
        Sent { submitted: agent::submit(header), bytes: round.bytes, unpacked }
    }

    /// Waits for a round and applies it; whether there are more.
    fn finish(&mut self, sent: Sent) -> Result<bool, Conflict> {
        let begun = Instant::now();
        let said = sent.submitted.wait();
        self.packer.waited(sent.bytes, begun.elapsed().as_secs_f64());
        self.clock.lap(Count::Exchanging);
        check(&said, self.place);
        count_in(&said);
        let blobs: Vec<Cow<'_, [u8]>> = (0..size())
            .map(|other| match (said.header(other).words[1] as usize, &sent.unpacked) {
                (0, _) => said.blob(other).into(),
                (_, Some(own)) if other == rank() => own[..sent.bytes].into(),
                (bytes, _) => self.packer.unpack(said.blob(other), bytes.min(ROUND)).into(),
            })
            .collect();
        let parts = |rank: usize| {
            blobs[rank].split_at_checked(said.header(rank).words[0] as usize).unwrap_or_else(|| {
                sys::fail(format_args!("rank {rank} sends a round whose parts are longer than it"))
            })
        };
        let (shared, alone): (Vec<_>, Vec<_>) = (0..size()).map(parts).unzip();
        // SAFETY: all threads of the team wait
        unsafe {
            self.bulk.merge(&shared)?;
            self.bulk.merge(&alone)?;
        }
        let buffers: Vec<Vec<u8>> = blobs
            .into_iter()
            .filter_map(|blob| if let Cow::Owned(buffer) = blob { Some(buffer) } else { None })
            .collect();
        buffers.into_iter().chain(sent.unpacked).for_each(|buffer| self.packer.keep(buffer));
        self.clock.lap(Count::Applying);
        Ok((0..size()).any(|rank| said.header(rank).flags & flag::MORE != 0))
    }
}
