//! The tables of [`core::coll::between`](polyrail_core::coll::between), carried out by the MPI's own messages.

use std::ffi::c_int;

use polyrail_core::coll::between::{self, Link, Node, Passage, Step, Then};
use polyrail_core::coll::layout::Layout;
use polyrail_core::coll::sites::Round;
use polyrail_pmpi::abi;

use crate::combine::Terms;
use crate::library::{Failed, get_count, recv, send, sendrecv};
use crate::messages::Messages;
use crate::team::Team;
use crate::what;

impl Team {
    /// The steps of a broadcast from a root's host, with ranks in place of hosts.
    pub fn broadcast_steps(&self, root: usize) -> Vec<Step> {
        let (n, from) = (self.layout.hosts(), self.layout.host_of(root));
        let steps = match &self.sites {
            Some(sites) => sites.broadcast(self.host, from),
            None => between::broadcast(n, self.host, from),
        };
        self.by_ranks(steps, Some(root))
    }

    /// Combines what hosts have at `at` of each, there at the root's.
    ///
    /// # Errors
    /// What the MPI says, here and below.
    pub fn reduce_between(
        &mut self,
        root: usize,
        what: u8,
        at: *mut u8,
        terms: &Terms,
    ) -> Result<(), Failed> {
        let (n, to) = (self.layout.hosts(), self.layout.host_of(root));
        if let Some(rounds) = self.sites.as_ref().map(|sites| sites.reduce(self.host, to)) {
            return self.take_rounds(&rounds, Some(root), what, at, terms.bytes(), Some(terms));
        }
        let steps = self.by_ranks(between::reduce(n, self.host, to), Some(root));
        self.take(&steps, what, at, terms.bytes(), Some(terms))
    }

    /// The same for all.
    ///
    /// # Errors
    /// As above.
    pub fn allreduce_between(&mut self, what: u8, at: *mut u8, terms: &Terms) -> Result<(), Failed> {
        if let Some(rounds) = self.sites.as_ref().map(|sites| sites.allreduce(self.host)) {
            return self.take_rounds(&rounds, None, what, at, terms.bytes(), Some(terms));
        }
        let steps = self.by_ranks(between::allreduce(self.layout.hosts(), self.host), None);
        self.take(&steps, what, at, terms.bytes(), Some(terms))
    }

    /// This rank's place in a line of hosts along which a broadcast goes, with ranks in place of hosts.
    pub fn broadcast_passage(&self, root: usize) -> Passage {
        let (n, from) = (self.layout.hosts(), self.layout.host_of(root));
        let passage = match &self.sites {
            Some(sites) => sites.broadcast_line(self.host, from),
            None => between::broadcast_line(n, self.host, from),
        };
        let rank = |host| self.layout.speaker(host, Some(root));
        Passage { from: passage.from.map(rank), to: passage.to.into_iter().map(rank).collect() }
    }

    /// The same of a reduction.
    pub fn reduce_link(&self, root: usize) -> Link {
        let (n, to) = (self.layout.hosts(), self.layout.host_of(root));
        let link = match &self.sites {
            Some(sites) => sites.reduce_line(self.host, to),
            None => between::reduce_line(n, self.host, to),
        };
        let rank = |host| self.layout.speaker(host, Some(root));
        Link {
            of: link.of.into_iter().map(rank).collect(),
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
        if let Some(rounds) = self.sites.as_ref().map(|sites| sites.barrier(self.host)) {
            return self.take_rounds(&rounds, None, what::BARRIER, std::ptr::null_mut(), 0, None);
        }
        let steps = self.by_ranks(between::barrier(self.layout.hosts(), self.host), None);
        self.take(&steps, what::BARRIER, std::ptr::null_mut(), 0, None)
    }

    /// Takes rounds with `bytes` at `at`, where the result is in the end, if this host gets it. What is combined is said by `terms`.
    fn take_rounds(
        &mut self,
        rounds: &[Round],
        root: Option<usize>,
        what: u8,
        at: *mut u8,
        bytes: usize,
        terms: Option<&Terms>,
    ) -> Result<(), Failed> {
        let (all, own) = (0..self.layout.hosts(), self.host..self.host + 1);
        let rank = |layout: &Layout, host: usize| layout.speaker(host, root);
        self.with_room(|team, room| {
            let comes = rounds.iter().map(|round| round.receive.len()).sum::<usize>();
            // nothing has a place, too: the last
            room.resize((comes + 1) * Places::step(bytes), 0);
            let mut places = Places {
                at,
                room: room.as_mut_ptr(),
                bytes,
                held: Vec::from([(own, 0)]),
                used: 0,
                all: comes + 1,
            };
            let length = bytes.max(1);
            for round in rounds {
                let Some(mut messages) = team.messages(what) else { return Ok(()) };
                for (from, node) in &round.receive {
                    messages.receive(rank(&team.layout, *from), places.take_in(node, &all), length)?;
                }
                for (to, node) in &round.send {
                    messages.send(rank(&team.layout, *to), places.of(node), length)?;
                }
                messages.wait_for_all()?;
                for pair in &round.combine {
                    terms.map_or(Ok(()), |terms| places.combine(pair, terms))?;
                }
            }
            let result = places.held.iter().find(|(held, _)| *held == all).map(|(_, number)| *number);
            if let Some(number) = result.filter(|number| *number > 0) {
                // SAFETY: as many bytes at both places, which are apart
                unsafe { std::ptr::copy_nonoverlapping(places.place(number), at, bytes) };
            }
            Ok(())
        })
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

/// What this host has of a table's nodes, and where: the first place is the caller's, the others are in a room.
struct Places {
    at: *mut u8,
    room: *mut u8,
    bytes: usize,
    held: Vec<(Node, usize)>,
    used: usize,
    /// How many places the room has.
    all: usize,
}

impl Places {
    /// Bytes from one place of a room to the next: whatever is combined is as aligned as there.
    fn step(bytes: usize) -> usize {
        bytes.max(1).next_multiple_of(64)
    }

    fn place(&self, number: usize) -> *mut u8 {
        match number {
            0 => self.at,
            _ => self.room.wrapping_add((number - 1) * Self::step(self.bytes)),
        }
    }

    /// Room for what comes of a node. All of it has its place where the caller's own is, which was sent before that.
    fn take_in(&mut self, node: &Node, all: &Node) -> *mut u8 {
        if node == all {
            self.held.push((node.clone(), 0));
            return self.at;
        }
        self.used += 1;
        self.held.push((node.clone(), self.used));
        self.place(self.used)
    }

    /// Where what it has of a node is. Of nothing, anywhere.
    fn of(&self, node: &Node) -> *mut u8 {
        let found = self.held.iter().rev().find(|(held, _)| held == node && !node.is_empty());
        debug_assert!(found.is_some() || node.is_empty(), "tables send what is there");
        // the last one is of nothing, and nothing comes there
        found.map_or_else(|| self.place(self.all), |(_, number)| self.place(*number))
    }

    /// Two become one, where the second was.
    fn combine(&mut self, [first, second]: &[Node; 2], terms: &Terms) -> Result<(), Failed> {
        // SAFETY: elements of the reduction at both places
        unsafe { terms.combine.apply(self.of(first), self.of(second), terms.count)? };
        if let Some((held, _)) = self.held.iter_mut().rev().find(|(held, _)| held == second) {
            held.start = first.start;
        }
        Ok(())
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
