//! Large exchanges: while a round is under way, the one before it is applied and the next one encoded.

use polyrail_omp::area::{Count, flag};
use polyrail_omp::merge::Conflict;

use super::{check, count_in, header, rank, size};
use crate::agent::{self, Said, Submitted};
use crate::stats::{self, Clock};
use crate::track::Bulk;

/// Bytes of a round: its messages cost little beside it, and the first and last, which nothing overlaps with, are soon encoded and applied.
const ROUND: usize = 4 << 20;

/// Runs of pages that each of `size` ranks lists at most: all ranks read all lists.
pub fn listed(size: usize) -> usize {
    (1_usize << 18).div_ceil(size).clamp(64, 1 << 14)
}

/// All that ranks have listed, to all ranks; what they said is not needed after that.
pub fn exchange(place: u64, said: Said, lists: &[&[u8]], clock: &mut Clock) -> Result<(), Conflict> {
    let room = ROUND.min(agent::blob());
    let mut bulk = Bulk::new(lists, rank(), room);
    drop(said);
    let mut before: Option<Submitted> = None;
    loop {
        let out = agent::out();
        let round = bulk.encode(&mut out[..room]);
        let flags = if round.more { flag::ROUND | flag::MORE } else { flag::ROUND };
        stats::add(Count::BytesOut, round.bytes as u64);
        clock.lap(Count::Encoding);
        let under_way = before.replace(agent::submit(header(place, round.bytes, round.shared, flags)));
        let Some(under_way) = under_way else { continue };
        if !finish(&bulk, place, under_way, clock)? {
            break;
        }
    }
    // nobody had more to say, so this one is empty
    before.map_or(Ok(()), |last| finish(&bulk, place, last, clock).map(drop))
}

/// Waits for a round and applies it; whether there are more.
fn finish(bulk: &Bulk, place: u64, round: Submitted, clock: &mut Clock) -> Result<bool, Conflict> {
    let said: Said = round.wait();
    clock.lap(Count::Exchanging);
    check(&said, place);
    count_in(&said);
    let parts =
        || (0..size()).map(|rank| said.blob(rank).split_at_checked(said.header(rank).words[0] as usize));
    let (shared, alone): (Vec<_>, Vec<_>) = parts().map(Option::unwrap_or_default).unzip();
    // SAFETY: all threads of the team wait
    unsafe {
        bulk.merge(&shared)?;
        bulk.merge(&alone)?;
    }
    clock.lap(Count::Applying);
    Ok((0..size()).any(|rank| said.header(rank).flags & flag::MORE != 0))
}
