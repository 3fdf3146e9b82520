//! Messages on their way between the lanes of the time line: from the call that sent them to the call that took them (`arrows`), the
//! slowest of them.

use super::arrows::{Arrows, Point};
use crate::model::{Event, Run};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Messages that are kept.
const KEPT: usize = 20_000;

/// A message between two calls; ordered by how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flight {
    /// From the sending call's start to the receiving call's end, in ns.
    pub took: u64,
    /// When it began.
    pub start: u64,
    /// Lanes ([`super::timeline::Timeline::lanes`]) of both calls.
    pub lanes: (u32, u32),
}

/// All of them.
#[derive(Debug)]
pub struct Flights {
    arrows: Arrows,
    /// How many there were.
    pub seen: u64,
    /// The slowest.
    pub longest: BinaryHeap<Reverse<Flight>>,
}

fn lane(process: u32, mpi: bool) -> u64 {
    u64::from(process) * 2 + u64::from(mpi)
}

impl Flights {
    /// Knows the run, and none of its events.
    pub fn new(run: &Run) -> Flights {
        Flights { arrows: Arrows::new(run), seen: 0, longest: BinaryHeap::new() }
    }

    /// Takes an event.
    pub fn event(&mut self, run: &Run, event: &Event) {
        let Flights { arrows, seen, longest } = self;
        let mut each = |(from, to): (Point, Point)| {
            *seen += 1;
            let took = to.at.saturating_sub(from.at);
            let flight = Flight { took, start: from.at, lanes: (from.track as u32, to.track as u32) };
            if longest.len() < KEPT {
                longest.push(Reverse(flight));
            } else if let Some(mut least) = longest.peek_mut()
                && least.0.took < took
            {
                *least = Reverse(flight);
            }
        };
        let ends =
            |track, start: u64, took| [start, start.saturating_add(took)].map(|at| Point { track, at });
        match event {
            Event::Call(call) => {
                let process = run.threads[call.thread as usize].process;
                let [start, end] = ends(lane(process, false), call.start, call.took);
                arrows.call(run, call, start, end, &mut each);
            }
            Event::Mpi(call) => {
                let process = run.threads[call.thread as usize].process;
                let Some(mpi) = &run.processes[process as usize].mpi else { return };
                let [start, end] = ends(lane(process, true), call.start, call.took);
                arrows.mpi(mpi.rank as i32, call, start, end, &mut each);
            }
            _ => {}
        }
    }
}
