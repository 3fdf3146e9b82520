//! What is long, between hosts: in pieces, which are under way while others are combined, or given to the ranks of a host.

use std::ptr;

use polyrail_core::coll::between::{Node, Order};

use crate::combine::Terms;
use crate::here::{copy, part_of, pieces};
use crate::library::Failed;
use crate::messages::Messages;
use crate::team::{Call, Team};

/// Bytes of a piece that goes along a line of hosts: whole slots, and long enough for several rails.
pub const PIECE: usize = 256 << 10;
/// Pieces that may come before they are waited for, and that may still be under way to the next host before another goes.
const AHEAD: usize = 4;
/// Pieces that there is room for, where they are combined: one of them, one that is under way to the next host, and others that come.
const RING: usize = 4;
/// Bytes that all hosts combine together, each a part: of what is shorter than two of the first a half, so that some travels while a host's ranks
/// combine, but no less than the second.
const TOGETHER: (usize, usize) = (1 << 20, 512 << 10);
/// Those that are under way at the same time.
const STAGES: usize = 3;

/// Some of what is combined by all hosts: how far it has come.
struct Stage {
    start: usize,
    length: usize,
    /// Parts of the others, of what is this host's to combine; its own, combined; theirs.
    contributions: Messages,
    results: Messages,
    sent: Messages,
}

impl Team {
    /// `MPI_Bcast` along a line of hosts.
    ///
    /// # Errors
    /// As all operations here: see [`Failed`].
    pub fn bcast_in_line(&mut self, call: Call, at: *mut u8, bytes: usize) -> Result<(), Failed> {
        let speaker = self.layout.speaker(self.host, Some(call.root()));
        let from = self.layout.place_of(speaker);
        let (Some(mut comes), Some(mut goes)) = (self.messages(call.what()), self.messages(call.what()))
        else {
            return Ok(());
        };
        if self.rank != speaker {
            return self.spread(from, call, at, bytes);
        }
        let passage = self.broadcast_passage(call.root());
        let mut expected = pieces(bytes, PIECE);
        let mut receive = |comes: &mut Messages| match (passage.from, expected.next()) {
            (Some(from), Some((start, length))) => comes.receive(from, at.wrapping_add(start), length),
            _ => Ok(()),
        };
        if let Some(from) = passage.from {
            comes.hear_length(from, bytes)?;
        }
        for next in &passage.to {
            goes.tell_length(*next, bytes)?;
        }
        (0..AHEAD).try_for_each(|_| receive(&mut comes))?;
        comes.wait_for_one()?;
        for (start, length) in pieces(bytes, PIECE) {
            comes.wait_for_one()?;
            receive(&mut comes)?;
            let piece = at.wrapping_add(start);
            goes.wait_to(AHEAD * passage.to.len())?;
            for next in &passage.to {
                goes.send(*next, piece, length)?;
            }
            self.spread(from, call, piece, length)?;
        }
        goes.wait_for_all()
    }

    /// `MPI_Reduce` along a line of hosts, `at` one place of each. Where `from` is `into`, the root's own is there.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn reduce_in_line(
        &mut self,
        at: usize,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
    ) -> Result<(), Failed> {
        self.with_rooms(|team, scratch, room| {
            if team.place == at {
                return team.reduce_and_pass_on(call, from, into, terms, scratch, room);
            }
            for (start, length) in pieces(terms.bytes(), PIECE / terms.extent * terms.extent) {
                let own = from.wrapping_add(start);
                team.combine_here(at, call, own, ptr::null_mut(), &terms.of(length), scratch)?;
            }
            Ok(())
        })
    }

    fn reduce_and_pass_on(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        scratch: &mut Vec<u8>,
        room: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        let link = self.reduce_link(call.root());
        let lane = || self.messages(call.what());
        let (Some(mut goes), Some(mut result)) = (lane(), lane()) else { return Ok(()) };
        // those that others have, each with its place among all
        let me = self.rank;
        let others = || link.of.iter().enumerate().filter(move |(_, of)| **of != me);
        let mut comes: Vec<Messages> = others().filter_map(|_| lane()).collect();
        let piece = PIECE / terms.extent * terms.extent;
        room.resize(link.of.len() * RING * piece, 0);
        let room = room.as_mut_ptr();
        let own = link.of.iter().position(|of| *of == me).unwrap_or(0);
        // what this host has and what comes from others, in their order, all of one piece
        let place = |n: usize, lane: usize| room.wrapping_add((lane * RING + n % RING) * piece);
        let mut expected = pieces(terms.bytes(), piece).enumerate();
        let mut receive = |comes: &mut Vec<Messages>| {
            let Some((n, (_, length))) = expected.next() else { return Ok(()) };
            let mut lanes = comes.iter_mut().zip(others());
            lanes.try_for_each(|(comes, (lane, from))| comes.receive(*from, place(n, lane), length))
        };
        for (comes, (_, from)) in comes.iter_mut().zip(others()) {
            comes.hear_length(*from, terms.bytes())?;
        }
        if let Some(next) = link.to {
            goes.tell_length(next, terms.bytes())?;
        }
        if let Some(from) = link.result {
            result.hear_length(from, terms.bytes())?;
        }
        // two pieces may come while one is combined, and one that has been is under way
        (0..RING - 2).try_for_each(|_| receive(&mut comes))?;
        for (n, (start, length)) in pieces(terms.bytes(), piece).enumerate() {
            let terms = terms.of(length);
            self.combine_here(self.place, call, from.wrapping_add(start), place(n, own), &terms, scratch)?;
            if let Some(from) = link.result {
                result.wait_to(AHEAD)?;
                result.receive(from, into.wrapping_add(start), length)?;
            }
            for comes in &mut comes {
                if n == 0 {
                    // the length
                    comes.wait_for_one()?;
                }
                comes.wait_for_one()?;
            }
            let all = place(n, link.of.len() - 1);
            for lane in (0..link.of.len() - 1).rev() {
                // SAFETY: as many elements at both places
                unsafe { terms.combine.apply(place(n, lane), all, terms.count)? };
            }
            match link.to {
                Some(next) => goes.send(next, all, length)?,
                // SAFETY: the program's place for as many bytes
                None => unsafe { copy(all, into.wrapping_add(start), length) },
            }
            // the piece before is not under way any more: there is room for the next but one
            goes.wait_to(1)?;
            receive(&mut comes)?;
        }
        goes.wait_for_all()?;
        result.wait_for_all()
    }

    /// `MPI_Allreduce` of which each host combines a part. Where `from` is `into`, this rank's contribution is there.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn allreduce_by_parts(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
    ) -> Result<(), Failed> {
        let together = (terms.bytes() / 2).clamp(TOGETHER.1, TOGETHER.0);
        let chunk = together / terms.extent * terms.extent;
        let all: Vec<(usize, usize)> = pieces(terms.bytes(), chunk).collect();
        let hosts = self.layout.hosts();
        // what this host has; and of its own part what each other has
        let length = chunk.min(terms.bytes());
        let part = length.div_ceil(hosts).next_multiple_of(terms.extent) + terms.extent;
        let stage = length + hosts * part;
        self.with_rooms(|team, scratch, room| {
            room.resize(if team.place == 0 { STAGES.min(all.len()) * stage } else { 0 }, 0);
            let room = room.as_mut_ptr();
            let rooms = |n: usize| {
                let ours = room.wrapping_add(n % STAGES * stage);
                [ours, ours.wrapping_add(length)]
            };
            let mut stages: Vec<Option<Stage>> = Vec::new();
            for n in 0..all.len() + STAGES - 1 {
                if let Some((start, length)) = all.get(n).copied() {
                    let own = from.wrapping_add(start);
                    team.combine_here(0, call, own, rooms(n)[0], &terms.of(length), scratch)?;
                    stages.push(team.give_parts(call, terms, start, length, rooms(n), part)?);
                }
                if let Some(Some(stage)) = n.checked_sub(1).and_then(|n| stages.get_mut(n)) {
                    team.combine_own_part(terms, stage, rooms(n - 1), part, into)?;
                }
                let Some((start, length)) = n.checked_sub(2).and_then(|n| all.get(n)).copied() else {
                    continue;
                };
                if let Some(stage) = &mut stages[n - 2] {
                    stage.results.wait_for_all()?;
                    stage.sent.wait_for_all()?;
                }
                team.spread(0, call, into.wrapping_add(start), length)?;
            }
            Ok(())
        })
    }

    /// The hosts other than this, from the next on: not all of them begin with the same.
    pub fn others(&self) -> impl Iterator<Item = usize> {
        let (hosts, me) = (self.layout.hosts(), self.host);
        (1..hosts).map(move |step| (me + step) % hosts)
    }

    /// Each other host gets what this one has of its part, and this one what they have of its own.
    fn give_parts(
        &mut self,
        call: Call,
        terms: &Terms,
        start: usize,
        length: usize,
        [ours, theirs]: [*mut u8; 2],
        part: usize,
    ) -> Result<Option<Stage>, Failed> {
        let lane = || self.messages(call.what());
        let (0, Some(contributions), Some(results), Some(sent)) = (self.place, lane(), lane(), lane()) else {
            return Ok(None);
        };
        let mut stage = Stage { start, length, contributions, results, sent };
        for host in self.others() {
            let rank = self.layout.speaker(host, None);
            let (begin, bytes) = self.part(terms, length, host);
            let own = self.part(terms, length, self.host).1;
            if start == 0 {
                stage.contributions.hear_length(rank, terms.bytes())?;
                stage.sent.tell_length(rank, terms.bytes())?;
            }
            stage.contributions.receive(rank, theirs.wrapping_add(host * part), own)?;
            stage.sent.send(rank, ours.wrapping_add(begin), bytes)?;
        }
        Ok(Some(stage))
    }

    fn part(&self, terms: &Terms, length: usize, host: usize) -> (usize, usize) {
        part_of(length / terms.extent, terms.extent, host, self.layout.hosts())
    }

    /// Combines all contributions to this host's part, in the order of what is short, and exchanges the results.
    fn combine_own_part(
        &mut self,
        terms: &Terms,
        stage: &mut Stage,
        [ours, theirs]: [*mut u8; 2],
        part: usize,
        into: *mut u8,
    ) -> Result<(), Failed> {
        stage.contributions.wait_for_all()?;
        let (begin, bytes) = self.part(terms, stage.length, self.host);
        // where what a node has is, once combined: at its last host's place
        let of = |node: &Node| match node.end - 1 {
            host if host == self.host => ours.wrapping_add(begin),
            host => theirs.wrapping_add(host * part),
        };
        let hosts = self.layout.hosts();
        for [first, second] in Order::Doubled.of_all(hosts) {
            // SAFETY: as many elements at both places
            unsafe { terms.combine.apply(of(&first), of(&second), bytes / terms.extent)? };
        }
        let all = of(&(0..hosts));
        let into = into.wrapping_add(stage.start);
        // SAFETY: the program's place for them
        unsafe { copy(all, into.wrapping_add(begin), bytes) };
        for host in self.others() {
            let rank = self.layout.speaker(host, None);
            let (begin, theirs) = self.part(terms, stage.length, host);
            stage.results.receive(rank, into.wrapping_add(begin), theirs)?;
            stage.sent.send(rank, all, bytes)?;
        }
        Ok(())
    }
}
