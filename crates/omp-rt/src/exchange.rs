//! Exchanges: each rank says something, and hears what all say. Over one of two links: the agents of all ranks (`agents`), or, where all are on this host, each other's mappings (`host`).

mod agents;
mod host;

use core::slice;
use core::sync::atomic::{AtomicU64, Ordering};

use polyrail_omp::area::{HEADER, Header, flag};

use crate::mapping::{area, at, places, shares};

/// What joins the ranks. Exchanges are numbered from 1 on; they use two buffers by turns, `b` being which.
trait Link {
    /// Waits until nobody reads what this rank said in exchange `number` any more; 0: there was none.
    fn wait_for_readers(&self, number: u64);
    /// Lets what stands in this rank's buffer and header go out.
    fn submit(&self, b: usize, number: u32);
    /// Waits until all have submitted; `is_round`: for more of something long.
    fn wait(&self, b: usize, number: u32, is_round: bool);
    /// Where a rank's header is, when all have.
    fn header(&self, b: usize, rank: usize) -> *const Header;
    /// Where what another rank said is.
    fn blob(&self, b: usize, rank: usize) -> *const u8;
    /// This rank has read all of it.
    fn has_read(&self, number: u32);
}

fn link() -> &'static dyn Link {
    if shares() { &host::Host } else { &agents::Agents }
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The out buffer of the next exchange. One thread at a time may exchange.
#[allow(clippy::mut_from_ref, reason = "the buffer is in the mapping, and belongs to who exchanges")]
pub fn out() -> &'static mut [u8] {
    let next = NUMBER.load(Ordering::Relaxed) + 1;
    let b = (next & 1) as usize;
    link().wait_for_readers(next.saturating_sub(2));
    // SAFETY: the buffer is the exchanging thread's until it submits, and after the exchange again
    unsafe { slice::from_raw_parts_mut(at(places().out(b)), area().blob as usize) }
}

/// Bytes that a blob may have.
pub fn blob() -> usize {
    area().blob as usize
}

/// What all ranks said in one exchange. Its bytes stay where they are until it is dropped.
pub struct Said {
    b: usize,
    number: u32,
}

impl Drop for Said {
    fn drop(&mut self) {
        link().has_read(self.number);
    }
}

impl Said {
    /// Of one rank.
    pub fn header(&self, rank: usize) -> &'static Header {
        // SAFETY: the agent, or the rank, has written it, and does not before the next but one exchange
        unsafe { &*link().header(self.b, rank) }
    }

    /// Of one rank; of this rank what it submitted.
    pub fn blob(&self, rank: usize) -> &'static [u8] {
        let bytes = (self.header(rank).bytes.min(area().blob)) as usize;
        let place = match rank == area().rank as usize {
            true => at(places().out(self.b)),
            false => link().blob(self.b, rank),
        };
        // SAFETY: as above, and inside the mapping
        unsafe { slice::from_raw_parts(place, bytes) }
    }
}

/// An exchange that is under way.
pub struct Submitted {
    b: usize,
    number: u32,
    is_round: bool,
}

/// Submits what is in [`out`], and waits for all ranks.
pub fn exchange(header: Header) -> Said {
    submit(header).wait()
}

/// Submits what is in [`out`]. What was said in the last exchange but one has been dropped.
pub fn submit(mut header: Header) -> Submitted {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    let b = (number & 1) as usize;
    header.number = number;
    header.rank = area().rank;
    link().wait_for_readers(number.saturating_sub(2));
    // SAFETY: free: the last exchange by this buffer is over
    unsafe { *area().exchange[b].header.get() = header };
    link().submit(b, number as u32);
    Submitted { b, number: number as u32, is_round: header.flags & flag::ROUND != 0 }
}

impl Submitted {
    /// Waits for all ranks.
    pub fn wait(self) -> Said {
        let Self { b, number, is_round } = self;
        link().wait(b, number, is_round);
        Said { b, number }
    }
}

const _: () = assert!(HEADER == size_of::<Header>());
