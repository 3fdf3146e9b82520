//! By the agents: this rank's has a copy of what all say.

use core::sync::atomic::Ordering;

use polyrail_omp::area::{DONE, FREE, Header, REQUEST};

use super::Link;
use crate::mapping::{area, at, places};
use crate::{agent, sys};

pub struct Agents;

impl Link for Agents {
    fn wait_for_readers(&self, _: u64) {}

    fn submit(&self, b: usize, _: u32) {
        area().exchange[b].state.store(REQUEST, Ordering::SeqCst);
        agent::ring();
    }

    fn wait(&self, b: usize, _: u32, _: bool) {
        let state = &area().exchange[b].state;
        while state.load(Ordering::Acquire) != DONE {
            sys::wait(state, REQUEST);
        }
        state.store(FREE, Ordering::Relaxed);
    }

    fn header(&self, b: usize, rank: usize) -> *const Header {
        at(places().header(b, rank)).cast()
    }

    fn blob(&self, b: usize, rank: usize) -> *const u8 {
        at(places().blob(b, rank))
    }

    fn has_read(&self, _: u32) {}
}
