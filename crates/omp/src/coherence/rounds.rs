//! Large exchanges: while a round is under way, the one before it is applied and the next one encoded.

use crate::area::{Count, flag};
use crate::merge::Refused;

use super::bulk::{Bulk, Round};
use super::host::{Clock, Host, Said, Trouble};
use super::rank::{Rank, header};

/// Bytes of a round, two huge pages and their records: its messages cost little beside it, and the first and last, which nothing overlaps with, are soon encoded and
/// applied.
pub const ROUND: usize = (4 << 20) + (64 << 10);

/// Runs of pages that each of `size` ranks lists at most: all ranks read all lists.
pub fn listed(size: usize) -> usize {
    (1_usize << 18).div_ceil(size).clamp(64, 1 << 14)
}

/// A large exchange that is under way.
struct Rounds<'a, H: Host> {
    rank: &'a Rank<H>,
    place: u64,
    bulk: Bulk,
    clock: &'a mut Clock,
}

impl<H: Host> Rank<H> {
    /// What this rank is to send, after all ranks' `lists`; what is pending is done.
    pub(super) fn bulk(&self, lists: &[&[u8]]) -> Result<Bulk, Refused> {
        let pending = self.host.tracked(|tracked| {
            let pending = tracked.pending.clone();
            tracked.done(u64::MAX);
            pending
        });
        Bulk::new(&pending.unwrap_or_default(), lists, self.round())
    }

    /// Bytes of a round.
    fn round(&self) -> usize {
        ROUND.min(self.host.room())
    }
}

/// All that ranks have listed, to all ranks.
pub fn exchange<H: Host>(rank: &Rank<H>, place: u64, bulk: Bulk, clock: &mut Clock) -> Result<(), Refused> {
    let mut rounds = Rounds { rank, place, bulk, clock };
    let mut before = rounds.send();
    loop {
        let next = rounds.send();
        let more = rounds.finish(core::mem::replace(&mut before, next))?;
        if !more {
            // nobody had more to say, so this one is empty
            return rounds.finish(before).map(drop);
        }
    }
}

impl<H: Host> Rounds<'_, H> {
    /// Encodes and submits the next round.
    fn send(&mut self) -> H::Submitted {
        let (host, bulk, place, room) = (&self.rank.host, &mut self.bulk, self.place, self.rank.round());
        let submitted = host.submit(true, &mut |out| {
            let room = room.min(out.len());
            let round = host.tracked(|tracked| bulk.encode(tracked, &mut out[..room]));
            let round = round.unwrap_or(Round { shared: 0, bytes: 0, more: false });
            host.add(Count::BytesOut, round.bytes as u64);
            let more = if round.more { flag::MORE } else { 0 };
            header(place, round.bytes, round.shared, flag::ROUND | more)
        });
        self.clock.lap(host, Count::Encoding);
        submitted
    }

    /// Waits for a round and applies it; whether there are more.
    fn finish(&mut self, submitted: H::Submitted) -> Result<bool, Refused> {
        let (rank, own, size) = (self.rank, self.rank.host.rank(), self.rank.host.size());
        let said = rank.host.wait(submitted);
        self.clock.lap(&rank.host, Count::Exchanging);
        rank.check(&said, self.place);
        rank.count_in(&said);
        let parts = |of: usize| {
            said.blob(of).split_at_checked(said.header(of).words[0] as usize).unwrap_or_else(|| {
                let why = format!("rank {of} sends a round whose parts are longer than it");
                rank.host.fail(&Trouble::Broken(why))
            })
        };
        let (shared, alone): (Vec<_>, Vec<_>) = (0..size).map(parts).unzip();
        // all threads of the team wait
        let merged = rank.host.tracked(|tracked| {
            tracked.merge(&shared, own)?;
            tracked.merge(&alone, own)
        });
        merged.unwrap_or(Ok(()))?;
        self.clock.lap(&rank.host, Count::Applying);
        Ok((0..size).any(|rank| said.header(rank).flags & flag::MORE != 0))
    }
}
