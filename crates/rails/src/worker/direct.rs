//! Transfers between this process's memory and peers': begun when the engine asks for them, moved a little in each round.

use super::Worker;
use crate::rail::direct::{DirectError, Transfer};

/// So much is moved in a round of progress at most, and a slice more: about half a millisecond.
pub(super) const ROUND: usize = 2 << 20;

impl Worker {
    /// Begins what the engine asked for, and moves what the round has left for it: a short transfer is over at once.
    pub(super) fn start_transfers(&mut self) {
        for (rail, transfer) in std::mem::take(&mut self.core.starting) {
            if let Err(transfer) = self.rails.start(rail, transfer) {
                let why = DirectError::Refused("the rail reaches no memory".into());
                self.transfer_ended(&transfer, Err(why));
            }
        }
        self.move_transfers();
    }

    /// Moves transfers on; how many slices' worth of bytes, or ends, that was.
    pub(super) fn move_transfers(&mut self) -> usize {
        let (before, mut ended) = (self.direct_budget, false);
        while let Some((transfer, result)) =
            self.rails.poll_direct(&self.core.memory(), &mut self.direct_budget)
        {
            ended = true;
            self.transfer_ended(&transfer, result);
        }
        self.core.transfers = self.rails.transfers();
        usize::from(ended || self.direct_budget < before)
    }

    fn transfer_ended(&mut self, transfer: &Transfer, result: Result<(), DirectError>) {
        let info = &mut self.core.peers[transfer.peer.0 as usize];
        let (read, written) = &mut info.direct;
        match &result {
            Ok(()) => *(if transfer.write { written } else { read }) += transfer.ours.len as u64,
            Err(DirectError::Refused(why)) => info.direct_refused = Some(why.clone()),
            Err(DirectError::Ended) => {}
        }
        self.core.engine.job_done(transfer.peer, transfer.job, result.is_ok());
    }
}
