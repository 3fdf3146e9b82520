//! Operations of which each rank has a part of its own: gather and scatter, and, where there are several hosts, allgather and alltoall, whose
//! parts travel together, one block from host to host.

use std::ptr;

use polyrail_core::coll::between::{self, Passage};
use polyrail_core::coll::sites::{Gathering, Ring};

use crate::data::Data;
use crate::here::copy;
use crate::library::Failed;
use crate::reach::{Part, places, spread};
use crate::team::{Call, Team};
use crate::ways::Way;
use crate::what;
use crate::within::SHORT;

/// A block of ranks' parts in a room: of which host, and where it begins and ends.
struct Block {
    host: usize,
    begin: usize,
    end: usize,
}

impl Team {
    /// The way of what has parts.
    pub fn by_blocks(&self) -> Way {
        if self.between.is_some() { Way::Blocks } else { Way::Slots }
    }

    /// The same where all get all parts.
    pub fn by_all_blocks(&self) -> Way {
        if self.sites.is_some() { Way::SiteBlocks } else { self.by_blocks() }
    }

    /// The blocks of all hosts, one behind the other, from a host on, counted round, each as long as its ranks' parts.
    fn blocks(&self, first: usize, length: impl Fn(usize) -> usize) -> Vec<Block> {
        let hosts = self.layout.hosts();
        let mut end = 0;
        let block = |step: usize| {
            let (host, begin) = ((first + step) % hosts, end);
            end += self.layout.members(host).iter().map(|rank| length(*rank as usize)).sum::<usize>();
            Block { host, begin, end }
        };
        (0..hosts).map(block).collect()
    }

    fn members(&self, host: usize) -> impl Iterator<Item = usize> {
        self.layout.members(host).iter().map(|rank| *rank as usize)
    }

    /// All ranks, in the order of hosts.
    fn by_hosts(&self) -> impl Iterator<Item = usize> {
        (0..self.layout.hosts()).flat_map(|host| self.members(host))
    }

    /// `MPI_Gather`: `own` of each rank to `into` of the root, by ranks. A root whose own is there already has it in both.
    ///
    /// # Errors
    /// As all operations here: see [`Failed`].
    pub fn gather(&mut self, own: Data, into: Option<Data>, root: usize) -> Result<(), Failed> {
        self.goes(self.by_blocks());
        let call = Call::new(what::GATHER, root);
        let (ranks, bytes) = (self.layout.ranks(), own.bytes());
        self.with_rooms(|team, sent, received| {
            let from = own.gather(sent, team.comm)?;
            let at = into.map_or(ptr::null_mut(), |into| into.place(received));
            if !team.layout.in_order() && into.is_some() {
                // blocks are in another order than ranks
                team.with_room(|team, room| {
                    room.resize(ranks * bytes, 0);
                    team.gather_by_hosts(call, from, bytes, room.as_mut_ptr())?;
                    for (place, rank) in team.by_hosts().enumerate() {
                        // SAFETY: a part in the room, and where it belongs
                        unsafe { copy(room.as_ptr().add(place * bytes), at.add(rank * bytes), bytes) };
                    }
                    Ok(())
                })?;
            } else {
                team.gather_by_hosts(call, from, bytes, at)?;
            }
            into.map_or(Ok(()), |into| into.spread(received, team.comm))
        })
    }

    /// To `into` of the root, in the order of hosts.
    fn gather_by_hosts(
        &mut self,
        call: Call,
        from: *const u8,
        bytes: usize,
        into: *mut u8,
    ) -> Result<(), Failed> {
        let speaker = self.layout.speaker(self.host, Some(call.root()));
        let (at, mates) = (self.layout.place_of(speaker), self.mates());
        let lengths = vec![bytes; mates];
        let Some(mut messages) = self.messages(call.what()).filter(|_| self.rank == speaker) else {
            return self.gather_here(at, call, from, &lengths, into);
        };
        if self.rank != call.root() {
            return self.with_room(|team, room| {
                room.resize(mates * bytes, 0);
                team.gather_here(at, call, from, &lengths, room.as_mut_ptr())?;
                messages.send(call.root(), room.as_ptr(), mates * bytes)?;
                messages.wait_for_all()
            });
        }
        let blocks = self.blocks(0, |_| bytes);
        for block in blocks.iter().filter(|block| block.host != self.host) {
            let from = self.layout.speaker(block.host, Some(call.root()));
            messages.receive(from, into.wrapping_add(block.begin), block.end - block.begin)?;
        }
        self.gather_here(at, call, from, &lengths, into.wrapping_add(blocks[self.host].begin))?;
        messages.wait_for_all()
    }

    /// `MPI_Scatter`: to each rank its part of `from` of the root, by ranks, into `own`, unless it is there already.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn scatter(
        &mut self,
        from: Option<Data>,
        own: Option<Data>,
        each: usize,
        root: usize,
    ) -> Result<(), Failed> {
        self.goes(self.by_blocks());
        let call = Call::new(what::SCATTER, root);
        let ranks = self.layout.ranks();
        self.with_rooms(|team, sent, received| {
            let from = from.map(|from| from.gather(sent, team.comm)).transpose()?;
            let into = own.map(|own| own.place(received));
            match from.filter(|_| !team.layout.in_order()) {
                Some(from) => team.with_room(|team, room| {
                    room.resize(ranks * each, 0);
                    for (place, rank) in team.by_hosts().enumerate() {
                        // SAFETY: a part of the root's, and a place in the room
                        unsafe { copy(from.add(rank * each), room.as_mut_ptr().add(place * each), each) };
                    }
                    team.scatter_by_hosts(call, room.as_ptr(), each, into)
                })?,
                None => team.scatter_by_hosts(call, from.unwrap_or(ptr::null()), each, into)?,
            }
            own.map_or(Ok(()), |own| own.spread(received, team.comm))
        })
    }

    /// From `from` of the root, in the order of hosts.
    fn scatter_by_hosts(
        &mut self,
        call: Call,
        from: *const u8,
        each: usize,
        into: Option<*mut u8>,
    ) -> Result<(), Failed> {
        let speaker = self.layout.speaker(self.host, Some(call.root()));
        let (at, mates) = (self.layout.place_of(speaker), self.mates());
        let lengths = vec![each; mates];
        let Some(mut messages) = self.messages(call.what()).filter(|_| self.rank == speaker) else {
            return self.scatter_here(at, call, from, &lengths, into);
        };
        if self.rank != call.root() {
            return self.with_room(|team, room| {
                room.resize(mates * each, 0);
                messages.receive(call.root(), room.as_mut_ptr(), mates * each)?;
                messages.wait_for_all()?;
                team.scatter_here(at, call, room.as_ptr(), &lengths, into)
            });
        }
        let blocks = self.blocks(0, |_| each);
        for block in blocks.iter().filter(|block| block.host != self.host) {
            let to = self.layout.speaker(block.host, Some(call.root()));
            messages.send(to, from.wrapping_add(block.begin), block.end - block.begin)?;
        }
        self.scatter_here(at, call, from.wrapping_add(blocks[self.host].begin), &lengths, into)?;
        messages.wait_for_all()
    }

    /// `MPI_Allgather` and `MPI_Allgatherv` among several hosts: `own` of each rank to its place in `into` of all.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn allgather_by_hosts(&mut self, call: Call, own: Data, into: &[Data]) -> Result<(), Failed> {
        self.with_rooms(|team, sent, received| {
            let from = own.gather(sent, team.comm)?;
            let at = places(into, received);
            let blocks = team.blocks(team.host, |rank| at[rank].bytes);
            let lengths: Vec<usize> = team.members(team.host).map(|rank| at[rank].bytes).collect();
            // the parts in the order in which they stand in the speaker's room
            let parts: Vec<Part> =
                blocks.iter().flat_map(|block| team.members(block.host)).map(|rank| at[rank]).collect();
            team.with_room(|team, room| {
                let speaks = team.place == 0;
                room.resize(if speaks { blocks.last().map_or(0, |block| block.end) } else { 0 }, 0);
                let all = room.as_mut_ptr();
                team.gather_here(0, call, from, &lengths, all)?;
                if speaks {
                    team.pass_on(call, &blocks, all)?;
                    let mut begin = 0;
                    for part in &parts {
                        // SAFETY: a part in the room, and where it belongs
                        unsafe { copy(all.wrapping_add(begin), part.at, part.bytes) };
                        begin += part.bytes;
                    }
                }
                team.spread_to(0, call, all, &parts)
            })?;
            let came: Vec<usize> = into.iter().map(Data::bytes).collect();
            spread(into, &at, &came, team.comm)
        })
    }

    /// All hosts get the blocks of all.
    fn pass_on(&self, call: Call, blocks: &[Block], all: *mut u8) -> Result<(), Failed> {
        let length = blocks.last().map_or(0, |block| block.end);
        if let Some(sites) = &self.sites {
            // who is of another length may go the other way, and be waited for for ever
            let ring = sites.ring(self.host);
            if let (Some(mut told), Some(next), Some(before)) =
                (self.messages(call.what()), ring.next, ring.before)
            {
                told.hear_length(self.layout.speaker(before, None), length)?;
                told.tell_length(self.layout.speaker(next, None), length)?;
                told.wait_for_all()?;
            }
            return match length > SHORT {
                true => self.pass_round(call, &ring, blocks, all),
                false => self.pass_on_by_sites(call, &sites.gathering(self.host), blocks, all),
            };
        }
        let Some(mut messages) = self.messages(call.what()) else { return Ok(()) };
        let mut have = 1;
        for step in between::allgather(self.layout.hosts(), self.host) {
            let [to, from] = [step.to, step.from].map(|host| self.layout.speaker(host, None));
            let (begin, end) = (blocks[have].begin, blocks[have + step.count - 1].end);
            messages.receive(from, all.wrapping_add(begin), end - begin)?;
            messages.send(to, all, blocks[step.count - 1].end)?;
            messages.wait_for_all()?;
            have += step.count;
        }
        Ok(())
    }

    /// The same where blocks cross from site to site once.
    fn pass_on_by_sites(
        &self,
        call: Call,
        gathering: &Gathering,
        blocks: &[Block],
        all: *mut u8,
    ) -> Result<(), Failed> {
        let rank = |host: usize| self.layout.speaker(host, None);
        let of = |host: usize| self.block_of(blocks, all, host);
        let lane = || self.messages(call.what());
        let (Some(mut near), Some(mut far), Some(mut goes)) = (lane(), lane(), lane()) else { return Ok(()) };
        for (from, theirs) in &gathering.far {
            for (at, bytes) in theirs.iter().copied().map(of) {
                far.receive(rank(*from), at, bytes)?;
            }
        }
        for from in &gathering.from {
            let (at, bytes) = of(*from);
            near.receive(rank(*from), at, bytes)?;
        }
        if let Some(to) = gathering.to {
            let (at, bytes) = of(self.host);
            near.send(rank(to), at, bytes)?;
        }
        near.wait_for_all()?;
        for (to, _) in &gathering.far {
            for (at, bytes) in gathering.near.iter().copied().map(of) {
                far.send(rank(*to), at, bytes)?;
            }
        }
        let Passage { from, to } = &gathering.passage;
        if let Some(from) = from.map(rank) {
            gathering
                .order
                .iter()
                .copied()
                .map(of)
                .try_for_each(|(at, bytes)| near.receive(from, at, bytes))?;
        }
        for host in &gathering.order {
            let (at, bytes) = of(*host);
            if bytes == 0 {
                continue;
            }
            if from.is_some() {
                near.wait_for_one()?;
            } else if !gathering.near.contains(host) {
                far.wait_for_one()?;
            }
            to.iter().try_for_each(|to| goes.send(rank(*to), at, bytes))?;
        }
        far.wait_for_all()?;
        goes.wait_for_all()
    }

    /// The same of what is long.
    fn pass_round(&self, call: Call, ring: &Ring, blocks: &[Block], all: *mut u8) -> Result<(), Failed> {
        let rank = |host: usize| self.layout.speaker(host, None);
        let of = |host: usize| self.block_of(blocks, all, host);
        let there =
            |hosts: &[usize]| hosts.iter().copied().filter(|host| of(*host).1 > 0).collect::<Vec<_>>();
        let [far_from, comes, passes] = [&ring.far_from, &ring.comes, &ring.passes].map(|hosts| there(hosts));
        let lane = || self.messages(call.what());
        let (Some(mut far), Some(mut near), Some(mut goes)) = (lane(), lane(), lane()) else { return Ok(()) };
        for from in &far_from {
            let (at, bytes) = of(*from);
            far.receive(rank(*from), at, bytes)?;
        }
        let (own, length) = of(self.host);
        for to in &ring.far_to {
            far.send(rank(*to), own, length)?;
        }
        if let Some(before) = ring.before.map(rank) {
            comes.iter().map(|host| of(*host)).try_for_each(|(at, bytes)| near.receive(before, at, bytes))?;
        }
        for host in &passes {
            if let Some(nth) = comes.iter().position(|one| one == host) {
                near.wait_to(comes.len() - nth - 1)?;
            } else if far_from.contains(host) {
                far.wait_for_one()?;
            }
            let (at, bytes) = of(*host);
            ring.next.map_or(Ok(()), |next| goes.send(rank(next), at, bytes))?;
        }
        far.wait_for_all()?;
        near.wait_for_all()?;
        goes.wait_for_all()
    }

    /// Where a host's block is, and its bytes.
    fn block_of(&self, blocks: &[Block], all: *mut u8, host: usize) -> (*mut u8, usize) {
        let hosts = self.layout.hosts();
        let Block { begin, end, .. } = blocks[(host + hosts - self.host) % hosts];
        (all.wrapping_add(begin), end - begin)
    }

    /// `MPI_Alltoall` among several hosts. Where `from` is `into`, parts are exchanged.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn alltoall_by_hosts(&mut self, call: Call, from: Data, into: Data) -> Result<(), Failed> {
        let (ranks, mates) = (self.layout.ranks(), self.mates());
        let all = into.bytes();
        let each = all / ranks;
        self.with_rooms(|team, sent, received| {
            let from = from.gather(sent, team.comm)?;
            let at = into.place(received);
            team.with_room(|team, room| {
                room.resize(if team.place == 0 { 3 * mates * all } else { 0 }, 0);
                let rooms = [0, 1, 2].map(|n| room.as_mut_ptr().wrapping_add(n * mates * all));
                team.gather_here(0, call, from, &vec![all; mates], rooms[0])?;
                if team.place == 0 {
                    team.exchange_blocks(call, each, rooms)?;
                }
                team.scatter_here(0, call, rooms[0], &vec![all; mates], Some(at))
            })?;
            into.spread(received, team.comm)
        })
    }

    /// From what all ranks of this host send, by ranks, at the first of three rooms, comes what they get, there. In the second it stands by the
    /// hosts that it goes to, and in the third by those that it comes from.
    fn exchange_blocks(
        &mut self,
        call: Call,
        each: usize,
        [sends, out, comes]: [*mut u8; 3],
    ) -> Result<(), Failed> {
        let Some(mut messages) = self.messages(call.what()) else { return Ok(()) };
        let (ranks, mates) = (self.layout.ranks(), self.mates());
        let blocks = self.blocks(0, |_| mates * each);
        let others = |block: &&Block| block.host != self.host;
        for block in blocks.iter().filter(others) {
            let from = self.layout.speaker(block.host, None);
            messages.receive(from, comes.wrapping_add(block.begin), block.end - block.begin)?;
        }
        for block in &blocks {
            // to each rank there, in order, of each rank here
            let mut filled = block.begin;
            for to in self.members(block.host) {
                for place in 0..mates {
                    let from = sends.wrapping_add((place * ranks + to) * each);
                    let into = if block.host == self.host { comes } else { out };
                    // SAFETY: a part of what is sent, and its place in a block
                    unsafe { copy(from, into.wrapping_add(filled), each) };
                    filled += each;
                }
            }
            if block.host != self.host {
                let to = self.layout.speaker(block.host, None);
                messages.send(to, out.wrapping_add(block.begin), block.end - block.begin)?;
            }
        }
        messages.wait_for_all()?;
        for block in &blocks {
            let theirs = self.layout.members(block.host).len();
            for place in 0..mates {
                for (n, rank) in self.members(block.host).enumerate() {
                    // a block that came is by ranks here, then by those there; the own one, by both as well
                    let from = comes.wrapping_add(block.begin + (place * theirs + n) * each);
                    // SAFETY: a part of what came, and where it belongs
                    unsafe { copy(from, sends.wrapping_add((place * ranks + rank) * each), each) };
                }
            }
        }
        Ok(())
    }
}
