//! Within a host: each rank reads the others' mappings, and says by numbers that others may sleep on how far it is.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use polyrail_omp::area::{Area, Count, Exchange, Header};
use polyrail_omp::layout::peer;

use super::Link;
use crate::mapping::{SPIN, area, area_of, may_spin, places};
use crate::{stats, sys};

pub struct Host;

fn others() -> impl Iterator<Item = usize> {
    (0..area().size as usize).filter(|rank| *rank != area().rank as usize)
}

impl Link for Host {
    fn wait_for_readers(&self, number: u64) {
        if number == 0 {
            return;
        }
        let begun = Instant::now();
        for rank in others() {
            let Area { read, read_sleepers, .. } = area_of(rank);
            wait_for(read, read_sleepers, begun, |read| read.wrapping_sub(number as u32).cast_signed() >= 0);
        }
    }

    fn submit(&self, b: usize, number: u32) {
        let Exchange { state, sleepers, .. } = &area().exchange[b];
        tell(state, sleepers, number);
    }

    fn wait(&self, b: usize, number: u32, is_round: bool) {
        let begun = Instant::now();
        for rank in others() {
            let Exchange { state, sleepers, .. } = &area_of(rank).exchange[b];
            wait_for(state, sleepers, begun, |submitted| submitted == number);
        }
        if !is_round {
            stats::add(Count::Waiting, begun.elapsed().as_nanos() as u64);
        }
    }

    fn header(&self, b: usize, rank: usize) -> *const Header {
        area_of(rank).exchange[b].header.get()
    }

    fn blob(&self, b: usize, rank: usize) -> *const u8 {
        (peer(rank) + places().out(b)) as *const u8
    }

    fn has_read(&self, number: u32) {
        let Area { read, read_sleepers, .. } = area();
        tell(read, read_sleepers, number);
    }
}

/// Sets a number that other ranks may sleep on.
fn tell(word: &AtomicU32, sleepers: &AtomicU32, number: u32) {
    word.store(number, Ordering::SeqCst);
    if sleepers.load(Ordering::SeqCst) > 0 {
        sys::wake(word, u32::MAX);
    }
}

/// Waits for another rank to set a number that is `good`; `begun`: since when.
fn wait_for(word: &AtomicU32, sleepers: &AtomicU32, begun: Instant, good: impl Fn(u32) -> bool) {
    let spins = may_spin() == Some(true);
    let mut rounds = 0_u32;
    while !good(word.load(Ordering::Acquire)) {
        rounds += 1;
        if spins && !rounds.is_multiple_of(64) {
            spin_loop();
        } else if spins && begun.elapsed() < SPIN {
            // an agent may be what the other rank waits for
            sys::pause(0);
        } else {
            sleepers.fetch_add(1, Ordering::SeqCst);
            let now = word.load(Ordering::SeqCst);
            if !good(now) {
                sys::wait(word, now);
            }
            sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
