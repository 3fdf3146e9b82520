//! Locks of a window's ranks, one for each: in memory that all ranks share, or each in its rank's own. Either way the rank whose
//! lock it is has nothing to do for it.

use std::ffi::c_int;

use polyrail_core::ticket::{Kind, TAKE, Ticket};

use crate::area::{Area, Lock};
use crate::far::Far;
use crate::library::Failed;
use crate::wait;

/// The locks of a window's ranks.
pub enum Locks {
    /// Of one host.
    Here {
        /// Where they are.
        area: Area,
        /// Where that is in the host's memory.
        piece: u32,
    },
    /// Of several.
    There(Far),
}

impl Locks {
    /// Waits for a rank's lock.
    ///
    /// # Errors
    /// The MPI does not reach it, or a rank of this host is gone.
    pub fn take(&self, rank: c_int, kind: Kind) -> Result<Ticket, Failed> {
        match self {
            Self::Here { area, .. } => {
                let lock = area.lock(rank as usize);
                let word = lock.add(TAKE);
                have(lock, Ticket::new(word, kind), word)
            }
            Self::There(far) => far.take(rank, kind),
        }
    }

    /// The same of all so many ranks, as a reader. Whichever is free this rank has at once, whatever others it waits for.
    ///
    /// # Errors
    /// See [`take`](Self::take).
    pub fn take_all(&self, ranks: usize) -> Result<Vec<Ticket>, Failed> {
        match self {
            Self::Here { area, .. } => {
                let words: Vec<u64> = (0..ranks).map(|rank| area.lock(rank).add(TAKE)).collect();
                let tickets: Vec<_> = words.iter().map(|word| Ticket::new(*word, Kind::Reader)).collect();
                let mut left: Vec<usize> = (0..ranks).collect();
                for (rank, adds) in tickets.iter().enumerate().filter_map(|(n, one)| Some((n, one.taken()?)))
                {
                    area.lock(rank).add(*adds);
                }
                let waited = enter_all(*area, &tickets, &mut left);
                if let Err(why) = waited {
                    let inside = (0..ranks).filter(|rank| !left.contains(rank));
                    inside.for_each(|rank| area.lock(rank).tell(*tickets[rank].left()));
                    return Err(why);
                }
                Ok(tickets)
            }
            Self::There(far) => far.take_all(),
        }
    }

    /// Gives a rank's lock back. What this rank has done under it has come to its end.
    ///
    /// # Errors
    /// The MPI does not reach it.
    pub fn leave(&self, rank: c_int, ticket: Ticket) -> Result<(), Failed> {
        match self {
            Self::Here { area, .. } => {
                area.lock(rank as usize).tell(*ticket.left());
                Ok(())
            }
            Self::There(far) => far.leave(rank, ticket),
        }
    }
}

fn have(lock: &Lock, ticket: Ticket, word: u64) -> Result<Ticket, Failed> {
    if let Some(adds) = ticket.taken() {
        lock.add(*adds);
    }
    if ticket.ahead(word) > 0 {
        wait::until(lock.waited(), |_| ticket.ahead(lock.word()) == 0)?;
    }
    if let Some(adds) = ticket.entered() {
        lock.tell(*adds);
    }
    Ok(ticket)
}

/// Enters those that are `left`, each as soon as it is its turn.
fn enter_all(area: Area, tickets: &[Ticket], left: &mut Vec<usize>) -> Result<(), Failed> {
    let is_free = |rank: usize| tickets[rank].ahead(area.lock(rank).word()) == 0;
    loop {
        left.retain(|rank| {
            let free = is_free(*rank);
            if let (true, Some(adds)) = (free, tickets[*rank].entered()) {
                area.lock(*rank).tell(*adds);
            }
            !free
        });
        let Some(first) = left.first() else { return Ok(()) };
        wait::until(area.lock(*first).waited(), |_| left.iter().any(|rank| is_free(*rank)))?;
    }
}
