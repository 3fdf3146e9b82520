//! How a run ends on a rank, so that nobody is left behind and launchers have nothing to say.
use std::time::{Duration, Instant};

use super::Agent;
use crate::exchange::Exchange;
use crate::message::{Message, What};
use crate::net::Net;
use crate::stats::{self, Region};
use crate::symbols::Symbols;
use crate::sys;

/// How long rank 0 waits in the end for the others to have ended.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing must have come for nothing to come any more.
const QUIET: Duration = Duration::from_millis(2);
/// How long other ranks' processes may take to be gone after MPI has ended in all.
const LEAVE: Duration = Duration::from_millis(200);

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
        self.end_program();
        let counted = self.mapping.counted();
        let (first, size) = (self.is_first(), self.mpi.size());
        if !first {
            let mut message = Message::new(What::Ended, self.mpi.rank());
            message.data = stats::to_bytes(&counted);
            let _ = self.control.send(&mut self.mpi, 0, &message);
        }
        let all_have_ended = self.part(first, size);
        let mut counted = vec![(self.mpi.rank(), counted)];
        counted.append(&mut self.others);
        let under_way = self.exchanges.into_iter().flat_map(Exchange::abandon).chain(self.control.abandon());
        for mut request in under_way {
            self.mpi.cancel(&mut request);
        }
        if !all_have_ended && first {
            // somebody is stuck: do not wait for it in MPI_Finalize
            self.mpi.abort(status);
        }
        if size > 1 {
            self.mpi.drain(QUIET);
        }
        self.mpi.finalize();
        if first && size > 1 && status != 0 {
            // launchers take a status that is not zero for a failure, and kill whoever is still there, and take that for the reason
            std::thread::sleep(LEAVE);
        }
        Ended { is_first: first, status: if first { status } else { 0 }, counted, symbols: self.symbols }
    }

    /// Waits until all ranks have ended: rank 0 hears it of all, and tells all.
    fn part(&mut self, first: bool, size: usize) -> bool {
        let begun = Instant::now();
        let (mut told, mut heard) = (false, false);
        while begun.elapsed() < PATIENCE && size > 1 {
            if first && !told && self.others.len() + 1 == size {
                told = true;
                for rank in 1..size {
                    let _ = self.control.send(&mut self.mpi, rank, &Message::new(What::Leave, 0));
                }
            }
            if (told || heard) && !self.control.is_sending() {
                return true;
            }
            match self.control.poll(&mut self.mpi) {
                Ok(Some(Some(message))) if message.what == What::Ended => {
                    self.others.push((message.rank as usize, stats::from_bytes(&message.data)));
                }
                Ok(Some(Some(message))) => heard |= message.what == What::Leave,
                Ok(Some(None)) => {}
                Ok(None) => sys::give_way(),
                Err(_) => break,
            }
        }
        size == 1
    }
}
