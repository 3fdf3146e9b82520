//! The tables of [`core::coll::between`](polyrail_core::coll::between), carried out by the MPI's own messages.

use std::ffi::c_int;

use polyrail_core::coll::between::{self, Link, Step, Then};
use polyrail_pmpi::abi;

use crate::combine::Terms;
use crate::library::{Failed, get_count, recv, send, sendrecv};
use crate::messages::Messages;
use crate::team::Team;
use crate::what;

impl Team {
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

    /// This rank's link of a line of hosts along which a broadcast goes, with ranks in place of hosts.
    pub fn broadcast_link(&self, root: usize) -> Link {
        let link = between::broadcast_line(self.layout.hosts(), self.host, self.layout.host_of(root));
        self.link_by_ranks(link, root)
    }

    /// The same of a reduction.
    pub fn reduce_link(&self, root: usize) -> Link {
        let link = between::reduce_line(self.layout.hosts(), self.host, self.layout.host_of(root));
        self.link_by_ranks(link, root)
    }

    fn link_by_ranks(&self, link: Link, root: usize) -> Link {
        let rank = |host| self.layout.speaker(host, Some(root));
        Link {
            from: link.from.into_iter().map(|(host, then)| (rank(host), then)).collect(),
            to: link.to.map(rank),
            result: link.result.map(rank),
        }
    }

    /// Messages of one operation, where there are several hosts.
    pub fn messages(&self, what: u8) -> Option<Messages> {
        Some(Messages::new(self.between?, c_int::from(what)))
    }

    fn by_ranks(&self, steps: Vec<Step>, root: Option<usize>) -> Vec<Step> {
        let rank = |host| self.layout.speaker(host, root);
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
        self.take(&steps, what::BARRIER, std::ptr::null_mut(), 0, None)
    }

    /// Takes steps with `bytes` at `at`. What is combined is said by `terms`.
    pub fn take(
        &mut self,
        steps: &[Step],
        what: u8,
        at: *mut u8,
        bytes: usize,
        terms: Option<&Terms>,
    ) -> Result<(), Failed> {
        let (Some(comm), false) = (self.between, steps.is_empty()) else { return Ok(()) };
        let combines = steps.iter().any(|step| step.from.is_some_and(|(_, then)| then != Then::Replace));
        let line = Line { comm, tag: c_int::from(what), bytes };
        self.with_room(|_, room| {
            room.resize(if combines { bytes } else { 0 }, 0);
            steps
                .iter()
                .try_for_each(|step| line.take(step, at, room.as_mut_ptr(), terms))
                .map_err(Failed::of_ours)
        })
    }
}

/// An operation between hosts: all messages have as many bytes.
struct Line {
    comm: usize,
    tag: c_int,
    bytes: usize,
}

impl Line {
    fn take(&self, step: &Step, at: *mut u8, room: *mut u8, terms: Option<&Terms>) -> Result<(), Failed> {
        let into = match step.from {
            // nobody wants what a message without bytes is: it does not matter where it goes
            Some((_, Then::Replace)) if self.bytes > 0 => at,
            _ => room,
        };
        self.exchange(step, at, into)?;
        let (Some((_, then)), Some(terms)) = (step.from, terms) else { return Ok(()) };
        // SAFETY: elements of the reduction at both places
        unsafe {
            match then {
                Then::Replace => Ok(()),
                Then::TheirsFirst => terms.combine.apply(into, at, terms.count),
                Then::OursFirst => {
                    terms.combine.apply(at, into, terms.count)?;
                    std::ptr::copy_nonoverlapping(into, at, self.bytes);
                    Ok(())
                }
            }
        }
    }

    fn exchange(&self, step: &Step, at: *const u8, into: *mut u8) -> Result<(), Failed> {
        let (comm, tag, byte, length) = (self.comm, self.tag, abi().byte, self.bytes as c_int);
        // no ABI's is larger
        let mut status = [0u64; 8];
        let told = status.as_mut_ptr() as usize;
        let (at, into) = (at.cast(), into.cast());
        // SAFETY: as many bytes at both places, and room for a status
        unsafe {
            match (step.to, step.from.map(|(from, _)| from as c_int)) {
                (Some(to), Some(from)) => {
                    let to = to as c_int;
                    sendrecv(at, length, byte, to, tag, into, length, byte, from, tag, comm, told)?;
                }
                (Some(to), None) => return send(at, length, byte, to as c_int, tag, comm),
                (None, Some(from)) => recv(into, length, byte, from, tag, comm, told)?,
                (None, None) => return Ok(()),
            }
            let mut came: c_int = 0;
            get_count(told, byte, &mut came)?;
            match came == length {
                true => Ok(()),
                false => Err(Failed::Length { expected: self.bytes, came: came.max(0) as usize }),
            }
        }
    }
}
