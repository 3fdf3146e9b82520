//! How a run ends on a rank, so that nobody is left behind and launchers have nothing to say.
use std::time::{Duration, Instant};

use super::{Agent, tell};
use crate::exchange::Exchange;
use crate::message::{Message, What};
use crate::mpi::Stray;
use crate::net::{Net, Tag};
use crate::stats::{self, Region};
use crate::symbols::Symbols;
use crate::sys;

/// How long ranks wait in the end for the others to have ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Seconds that the disk may take for the last checkpoint; without that, the one before is there.
const DISK: u32 = 300;
/// How long nothing must have come for nothing to come any more.
const QUIET: Duration = Duration::from_millis(2);
/// How long other ranks' processes may take to be gone after MPI has ended in all.
const LEAVE: Duration = Duration::from_millis(200);

/// What may be on its way when a run ends.
const EXCHANGES: [Tag; 4] = [Tag::Headers0, Tag::Headers1, Tag::Blobs0, Tag::Blobs1];

/// A run that is over.
pub struct Ended {
    /// Whether this is rank 0.
    pub is_first: bool,
    /// For this process to end with.
    pub status: u8,
    /// On rank 0 what all ranks counted.
    pub counted: Vec<(usize, Vec<Region>)>,
    /// Names of the program.
    pub symbols: Option<Symbols>,
}

impl Agent {
    pub(super) fn end_program(&mut self) {
        if let Some(mut program) = self.program.take() {
            sys::forget_program();
            // it may have ended already
            let _ = program.kill();
            let _ = program.wait();
        }
    }

    /// All ranks end alike: rank 0 with the program's status, which is mpiexec's then.
    pub(super) fn finish(mut self, status: u8) -> Ended {
        sys::end_after(2 * PATIENCE.as_secs() as u32, status);
        if let Some(program) = &mut self.program {
            // a large one takes long to be gone, for which nobody waits yet
            let _ = program.kill();
        }
        let (first, size) = (self.is_first(), self.mpi.size());
        let counted = self.mapping.counted();
        if size > 1 && !self.part(&counted) {
            if first {
                let has_ended = |rank: &usize| self.others.iter().any(|(other, _)| other == rank);
                let missing = (1..size).filter(|rank| !has_ended(rank)).map(|rank| self.server.name(rank));
                let missing = missing.collect::<Vec<_>>().join(", ");
                tell(&format!("not ended after {} s: {missing}", PATIENCE.as_secs()));
            }
            // in MPI_Finalize it would wait for who is stuck
            self.mpi.abort(status);
        }
        if size > 1 {
            self.drain();
        }
        self.end_program();
        self.mpi.finalize();
        if first && size > 1 && status != 0 {
            // launchers take a status that is not zero for a failure, and kill whoever is still there, and take that for the reason
            std::thread::sleep(LEAVE);
        }
        sys::end_after(0, status);
        if let Some(keeper) = self.keeper.take() {
            // what is being brought to the disk counts, and nobody waits for this rank any more; but a disk may hang
            sys::end_after(DISK, status);
            if let Some(told) = keeper.end() {
                tell(&told);
            }
            sys::end_after(0, status);
        }
        let mut all = vec![(0, counted)];
        all.append(&mut self.others);
        Ended { is_first: first, status: if first { status } else { 0 }, counted: all, symbols: self.symbols }
    }

    /// Waits until all ranks have ended. Each tells rank 0 that it has, with what it counted, once it has nothing under way with anybody; when all have, rank 0 tells
    /// them to leave. Nobody leaves before: MPICH ends a job when a rank leaves that a message under way names.
    fn part(&mut self, counted: &[Region]) -> bool {
        let (first, size) = (self.is_first(), self.mpi.size());
        let mut under_way: Vec<_> = self.exchanges.iter_mut().flat_map(Exchange::requests).collect();
        under_way.iter_mut().for_each(|request| self.mpi.cancel(request));
        let mut strays: Vec<Stray> = Vec::new();
        let (mut ended, mut told) = (false, false);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            // what others have begun to send ends by being received
            strays.extend(EXCHANGES.into_iter().filter_map(|tag| self.mpi.take_stray(Some(tag))));
            strays.retain_mut(|stray| !self.mpi.done(&mut stray.request).unwrap_or(true));
            under_way.retain_mut(|request| !self.mpi.done(request).unwrap_or(true));
            if !ended && under_way.is_empty() && strays.is_empty() {
                ended = true;
                if !first {
                    let mut message = Message::new(What::Ended, self.mpi.rank());
                    message.data = stats::to_bytes(counted);
                    let _ = self.control.send(&mut self.mpi, 0, &message);
                }
            }
            if first && ended && !told && self.others.len() + 1 == size {
                told = true;
                for rank in 1..size {
                    let _ = self.control.send(&mut self.mpi, rank, &Message::new(What::Leave, 0));
                }
            }
            if told && strays.is_empty() && !self.control.is_sending() {
                return true;
            }
            match self.control.poll(&mut self.mpi) {
                Ok(Some(Some(message))) if message.what == What::Ended => {
                    self.others.push((message.rank as usize, stats::from_bytes(&message.data)));
                }
                Ok(Some(Some(message))) => told |= message.what == What::Leave,
                Ok(Some(None)) => {}
                Ok(None) => sys::give_way(),
                Err(_) => break,
            }
        }
        false
    }

    /// Takes what still comes, until nothing has for a while: MPICH does not end while messages are left over.
    fn drain(&mut self) {
        let mut strays: Vec<Stray> = Vec::new();
        let mut last = Instant::now();
        while last.elapsed() < QUIET || !strays.is_empty() {
            strays.retain_mut(|stray| !self.mpi.done(&mut stray.request).unwrap_or(true));
            match self.mpi.take_stray(None) {
                Some(stray) => {
                    strays.push(stray);
                    last = Instant::now();
                }
                None => sys::give_way(),
            }
        }
    }
}
