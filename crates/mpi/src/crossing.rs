//! A long allreduce among hosts of several sites: each part of it is combined at each site by one host, crosses as the site's, and is combined again, by one
//! host of each site. Where hosts stand by sites, as much crosses a line between two as there is to be reduced, once, and by as many connections as a site has hosts.

use polyrail_core::coll::between::Node;
use polyrail_core::coll::sites::{Shares, Sites};

use crate::combine::Terms;
use crate::here::{copy, part_of, pieces};
use crate::library::Failed;
use crate::messages::Messages;
use crate::team::{Call, Team};

/// Bytes that are combined together, each host a part.
const TOGETHER: usize = 512 << 10;
/// How many of them may be on their way between sites: enough for a line that is long and fast (4 MiB: 1 Gb/s over 33 ms).
const FAR: usize = 8;
/// Those that are under way in all: one comes in, one goes out.
const STAGES: usize = FAR + 3;

/// Some of it: how far it has come.
struct Stage {
    start: usize,
    length: usize,
    /// What this host has, and what it gets of its parts: of each so many places.
    ours: *mut u8,
    theirs: *mut u8,
    /// What mates have of them; what sites have; results.
    near: Messages,
    far: Messages,
    results: Messages,
}

/// What is the same for all stages.
struct Parts<'a> {
    shares: &'a Shares,
    terms: &'a Terms,
    /// Those that this host combines.
    own: Vec<usize>,
    hosts: usize,
    host: usize,
    /// Which place of a part is that of a host's contribution, or of the node whose last it is; how many there are, and bytes of one.
    places: Vec<usize>,
    count: usize,
    place: usize,
    into: *mut u8,
}

impl Parts<'_> {
    /// Where a part of a stage of so many bytes begins, and its bytes.
    fn of(&self, length: usize, part: usize) -> (usize, usize) {
        part_of(length / self.terms.extent, self.terms.extent, part, self.hosts)
    }

    /// Where what a node has of the `nth` of this host's parts is: at its last host's place.
    fn at(&self, stage: &Stage, nth: usize, node: &Node) -> *mut u8 {
        match node.end - 1 {
            host if host == self.host => stage.ours.wrapping_add(self.of(stage.length, self.own[nth]).0),
            host => stage.theirs.wrapping_add((nth * self.count + self.places[host]) * self.place),
        }
    }

    fn combine(&self, stage: &Stage, pairs: &[[Node; 2]]) -> Result<(), Failed> {
        for (nth, part) in self.own.iter().enumerate() {
            let elements = self.of(stage.length, *part).1 / self.terms.extent;
            for [first, second] in pairs {
                let [first, second] = [first, second].map(|node| self.at(stage, nth, node));
                // SAFETY: as many elements at both places
                unsafe { self.terms.combine.apply(first, second, elements)? };
            }
        }
        Ok(())
    }
}

impl Team {
    /// `MPI_Allreduce` of hosts of these sites. Where `from` is `into`, this rank's contribution is there.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn allreduce_by_sites(
        &mut self,
        sites: &Sites,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
    ) -> Result<(), Failed> {
        let chunk = TOGETHER / terms.extent * terms.extent;
        let all: Vec<(usize, usize)> = pieces(terms.bytes(), chunk).collect();
        let (shares, hosts, host) = (sites.shares(self.host), self.layout.hosts(), self.host);
        let own = (0..hosts).filter(|part| shares.parts[*part].owner == host).collect();
        let length = chunk.min(terms.bytes());
        let place = length.div_ceil(hosts).next_multiple_of(terms.extent) + terms.extent;
        let (mut places, mut count) = (vec![0; hosts], 0);
        let far = shares.parts[0].far.iter().map(|(_, node)| node.end - 1);
        for host in shares.mates.iter().copied().chain(far) {
            places[host] = count;
            count += 1;
        }
        let parts = Parts { shares: &shares, terms, own, hosts, host, places, count, place, into };
        let room_of_one = length + parts.own.len() * count * place;
        self.with_rooms(|team, scratch, room| {
            room.resize(if team.place == 0 { STAGES.min(all.len()) * room_of_one } else { 0 }, 0);
            let room = room.as_mut_ptr();
            let mut stages: Vec<Option<Stage>> = Vec::new();
            let before = |n: usize, steps: usize| n.checked_sub(steps).filter(|n| *n < all.len());
            for n in 0..all.len() + STAGES - 1 {
                if let Some((start, length)) = all.get(n).copied() {
                    let ours = room.wrapping_add(n % STAGES * room_of_one);
                    let own = from.wrapping_add(start);
                    team.combine_here(0, call, own, ours, &terms.of(length), scratch)?;
                    let theirs = ours.wrapping_add(chunk.min(terms.bytes()));
                    stages.push(team.begin_stage(call, &parts, (start, length), [ours, theirs])?);
                }
                if let Some(Some(stage)) = before(n, 1).and_then(|n| stages.get_mut(n)) {
                    team.cross(&parts, stage)?;
                }
                if let Some(Some(stage)) = before(n, 1 + FAR).and_then(|n| stages.get_mut(n)) {
                    team.tell_result(&parts, stage)?;
                }
                let Some(last) = before(n, 2 + FAR) else { continue };
                if let Some(stage) = &mut stages[last] {
                    stage.results.wait_for_all()?;
                }
                let (start, length) = all[last];
                team.spread(0, call, into.wrapping_add(start), length)?;
            }
            Ok(())
        })
    }

    /// Mates get what this host has of their parts, and it what they have of its own.
    fn begin_stage(
        &self,
        call: Call,
        parts: &Parts<'_>,
        (start, length): (usize, usize),
        [ours, theirs]: [*mut u8; 2],
    ) -> Result<Option<Stage>, Failed> {
        let lane = || self.messages(call.what());
        let (0, Some(near), Some(far), Some(results)) = (self.place, lane(), lane(), lane()) else {
            return Ok(None);
        };
        let mut stage = Stage { start, length, ours, theirs, near, far, results };
        for mate in &parts.shares.mates {
            let rank = self.layout.speaker(*mate, None);
            if start == 0 {
                stage.near.hear_length(rank, parts.terms.bytes())?;
                stage.near.tell_length(rank, parts.terms.bytes())?;
            }
            for (nth, part) in parts.own.iter().enumerate() {
                let place = parts.at(&stage, nth, &(*mate..mate + 1));
                stage.near.receive(rank, place, parts.of(length, *part).1)?;
            }
            let theirs = (0..parts.hosts).filter(|part| parts.shares.parts[*part].owner == *mate);
            for (begin, bytes) in theirs.map(|part| parts.of(length, part)) {
                stage.near.send(rank, ours.wrapping_add(begin), bytes)?;
            }
        }
        Ok(Some(stage))
    }

    /// Combines what this site has of this host's parts, and exchanges that with the others.
    fn cross(&self, parts: &Parts<'_>, stage: &mut Stage) -> Result<(), Failed> {
        stage.near.wait_for_all()?;
        parts.combine(stage, &parts.shares.here)?;
        if stage.start == 0 {
            let mut peers: Vec<usize> =
                parts.own.iter().flat_map(|part| parts.shares.parts[*part].peers.iter().copied()).collect();
            peers.sort_unstable();
            peers.dedup();
            for rank in peers.iter().map(|peer| self.layout.speaker(*peer, None)) {
                stage.far.hear_length(rank, parts.terms.bytes())?;
                stage.far.tell_length(rank, parts.terms.bytes())?;
            }
        }
        for (nth, part) in parts.own.iter().enumerate() {
            let (share, bytes) = (&parts.shares.parts[*part], parts.of(stage.length, *part).1);
            for (from, node) in &share.far {
                stage.far.receive(self.layout.speaker(*from, None), parts.at(stage, nth, node), bytes)?;
            }
            for (peer, node) in
                share.peers.iter().flat_map(|peer| parts.shares.own.iter().map(move |node| (peer, node)))
            {
                stage.far.send(self.layout.speaker(*peer, None), parts.at(stage, nth, node), bytes)?;
            }
        }
        Ok(())
    }

    /// Combines what all sites have of this host's parts, and exchanges the results with its mates.
    fn tell_result(&self, parts: &Parts<'_>, stage: &mut Stage) -> Result<(), Failed> {
        stage.far.wait_for_all()?;
        parts.combine(stage, &parts.shares.between)?;
        let into = parts.into.wrapping_add(stage.start);
        for (nth, part) in parts.own.iter().enumerate() {
            let ((begin, bytes), all) =
                (parts.of(stage.length, *part), parts.at(stage, nth, &(0..parts.hosts)));
            // SAFETY: the program's place for them
            unsafe { copy(all, into.wrapping_add(begin), bytes) };
            for mate in &parts.shares.mates {
                stage.results.send(self.layout.speaker(*mate, None), all, bytes)?;
            }
        }
        for (part, share) in
            parts.shares.parts.iter().enumerate().filter(|(_, share)| share.owner != parts.host)
        {
            let (begin, bytes) = parts.of(stage.length, part);
            let rank = self.layout.speaker(share.owner, None);
            stage.results.receive(rank, into.wrapping_add(begin), bytes)?;
        }
        Ok(())
    }
}
