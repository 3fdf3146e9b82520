//! The tables of [`core::coll::between`](polyrail_core::coll::between), carried out by the MPI's own messages.

use std::ffi::c_int;

use polyrail_core::coll::between::{self, Step, Then};
use polyrail_pmpi::abi;

use crate::library::{Failed, recv, send, sendrecv};
use crate::team::Team;
use crate::within::Terms;

/// The tag of all messages: each pair's arrive in the order in which they were sent.
const TAG: c_int = 1;

impl Team {
    fn speaker_of(&self, host: usize, root: Option<usize>) -> c_int {
        self.layout.speaker(host, root) as c_int
    }

    /// The steps of a broadcast from a root's host, with ranks in place of hosts.
    pub fn broadcast_steps(&self, root: usize) -> Vec<Step> {
        let steps = between::broadcast(self.layout.hosts(), self.host, self.layout.host_of(root));
        self.by_ranks(steps, Some(root))
    }

    /// The same of a reduction.
    pub fn reduce_steps(&self, root: usize) -> Vec<Step> {
        let steps = between::reduce(self.layout.hosts(), self.host, self.layout.host_of(root));
        self.by_ranks(steps, Some(root))
    }

    /// The same of an allreduce.
    pub fn allreduce_steps(&self) -> Vec<Step> {
        self.by_ranks(between::allreduce(self.layout.hosts(), self.host), None)
    }

    fn by_ranks(&self, steps: Vec<Step>, root: Option<usize>) -> Vec<Step> {
        let rank = |host| self.speaker_of(host, root) as usize;
        let by_rank = |step: Step| Step {
            to: step.to.map(rank),
            from: step.from.map(|(from, then)| (rank(from), then)),
        };
        steps.into_iter().map(by_rank).collect()
    }

    /// Waits until all hosts have come.
    ///
    /// # Errors
    /// What the MPI says, here and below.
    pub fn meet(&mut self) -> Result<(), Failed> {
        let steps = self.by_ranks(between::barrier(self.layout.hosts(), self.host), None);
        self.take(&steps, std::ptr::null_mut(), 0, None)
    }

    /// Takes steps with `bytes` at `at`. What is combined is said by `terms`.
    pub fn take(
        &mut self,
        steps: &[Step],
        at: *mut u8,
        bytes: usize,
        terms: Option<&Terms>,
    ) -> Result<(), Failed> {
        let (Some(comm), false) = (self.between, steps.is_empty()) else { return Ok(()) };
        let combines = steps.iter().any(|step| step.from.is_some_and(|(_, then)| then != Then::Replace));
        let mut room = std::mem::take(&mut self.rooms[2]);
        room.resize(if combines { bytes } else { 0 }, 0);
        let mut done = Ok(());
        for step in steps {
            done = one(comm, step, at, bytes, &mut room, terms);
            if done.is_err() {
                break;
            }
        }
        self.rooms[2] = room;
        done
    }
}

fn one(
    comm: usize,
    step: &Step,
    at: *mut u8,
    bytes: usize,
    room: &mut [u8],
    terms: Option<&Terms>,
) -> Result<(), Failed> {
    let (length, byte, ignore) = (bytes as c_int, abi().byte, abi().status_ignore);
    let into = match step.from {
        Some((_, Then::Replace)) => at,
        _ => room.as_mut_ptr(),
    };
    // SAFETY: `bytes` at each of both places, unless there are none
    unsafe {
        match (step.to, step.from) {
            // nobody wants what it is: it does not matter that both are at one place
            (Some(to), Some((from, _))) if bytes == 0 => {
                let (none, mut void) = (0u8, 0u8);
                let (none, void) = ((&raw const none).cast(), (&raw mut void).cast());
                sendrecv(none, 0, byte, to as c_int, TAG, void, 0, byte, from as c_int, TAG, comm, ignore)?;
            }
            (Some(to), Some((from, _))) => {
                let (from, to) = (from as c_int, to as c_int);
                sendrecv(
                    at.cast(),
                    length,
                    byte,
                    to,
                    TAG,
                    into.cast(),
                    length,
                    byte,
                    from,
                    TAG,
                    comm,
                    ignore,
                )?;
            }
            (Some(to), None) => send(at.cast(), length, byte, to as c_int, TAG, comm)?,
            (None, Some((from, _))) => recv(into.cast(), length, byte, from as c_int, TAG, comm, ignore)?,
            (None, None) => {}
        }
    }
    let (Some((_, then)), Some(terms)) = (step.from, terms) else { return Ok(()) };
    // SAFETY: elements of the reduction at both places
    unsafe {
        match then {
            Then::Replace => Ok(()),
            Then::TheirsFirst => terms.combine.apply(into, at, terms.count),
            Then::OursFirst => {
                terms.combine.apply(at, into, terms.count)?;
                std::ptr::copy_nonoverlapping(into, at, bytes);
                Ok(())
            }
        }
    }
}
