//! The operations, by the memory of a host; what goes between hosts, [`between`](crate::between) does.
//!
//! What is longer than a slot goes piece by piece: see [`here`](crate::here).

use std::ptr;

use polyrail_core::coll::sites::Sites;

use crate::area::PAYLOAD;
use crate::combine::Terms;
use crate::data::Data;
use crate::here::{begins, copy, longest, part_of, pieces};
use crate::library::Failed;
use crate::reach::{places, spread};
use crate::team::{Call, Team};
use crate::ways::Way;
use crate::what;

/// Bytes up to which each rank combines all contributions by itself; longer ones are combined in parts, each by one.
const BY_EACH: usize = 1024;
/// The same for the ranks of a host.
const BY_EACH_OF: usize = 8;
/// Bytes up to which the root of a reduction combines all contributions.
const BY_ONE: usize = 64 << 10;

/// Bytes up to which data go whole from host to host; longer ones go in pieces.
pub const SHORT: usize = 8 << 10;
/// Bytes up to which hosts exchange all that is to be reduced, in place of a part each.
pub const DOUBLED: usize = 32 << 10;

impl Team {
    /// The way of what is short: this one among hosts of one site.
    pub fn short(&self, between: Way) -> Way {
        match (self.between, &self.sites) {
            (None, _) => Way::Slots,
            (_, None) => between,
            _ => Way::Sites,
        }
    }

    /// `MPI_Barrier`.
    ///
    /// # Errors
    /// As all operations here: see [`Failed`].
    pub fn barrier(&mut self) -> Result<(), Failed> {
        let call = Call::new(what::BARRIER, 0);
        let mates = self.mates();
        self.goes(self.short(Way::Rounds));
        if self.between.is_none() && mates <= BY_EACH_OF {
            return self.exchange(call, 0, |_| (), |_, _| Ok(()), 0..mates);
        }
        if !self.is_alone() {
            self.collect(0, call, ptr::null(), |_| 0, |_, _| Ok(()), 0..mates)?;
        }
        if self.place == 0 {
            self.meet()?;
        }
        if !self.is_alone() {
            self.release(call)?;
        }
        Ok(())
    }

    /// The first place tells the others to go on.
    fn release(&mut self, call: Call) -> Result<(), Failed> {
        let number = if self.place == 0 {
            let turn = self.turn(0)?;
            self.fill(&turn, call);
            turn.number()
        } else {
            let number = self.next();
            self.read(0, number, call, 0)?;
            number
        };
        self.over(number);
        Ok(())
    }

    /// `MPI_Bcast`.
    pub fn bcast(&mut self, data: Data, root: usize) -> Result<(), Failed> {
        let call = Call::new(what::BCAST, root);
        self.with_rooms(|team, room, _| team.bcast_plain(call, &data, room))
    }

    fn bcast_plain(&mut self, call: Call, data: &Data, room: &mut Vec<u8>) -> Result<(), Failed> {
        let at_root = self.rank == call.root();
        let at = if at_root { data.gather(room, self.comm)?.cast_mut() } else { data.place(room) };
        self.bcast_bytes(call, at, data.bytes())?;
        if at_root { Ok(()) } else { data.spread(room, self.comm) }
    }

    fn bcast_bytes(&mut self, call: Call, at: *mut u8, bytes: usize) -> Result<(), Failed> {
        self.goes(self.short(Way::Tree));
        if bytes > SHORT && self.between.is_some() {
            return self.bcast_long(call, at, bytes);
        }
        let speaker = self.layout.speaker(self.host, Some(call.root()));
        let steps = if speaker == self.rank { self.broadcast_steps(call.root()) } else { Vec::new() };
        let (receives, sends) = steps.split_at(steps.iter().take_while(|step| step.from.is_some()).count());
        self.take(receives, call.what(), at, bytes, None)?;
        self.spread(self.layout.place_of(speaker), call, at, bytes)?;
        self.take(sends, call.what(), at, bytes, None)
    }

    /// Combines all contributions of this host at one place into `into`.
    pub fn combine_here(
        &mut self,
        at: usize,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        if self.is_alone() {
            // SAFETY: the caller's places for as many bytes
            unsafe { ptr::copy(from, into, terms.bytes()) };
            Ok(())
        } else if self.mates() > 2 && terms.bytes() > BY_ONE {
            self.reduce_in_parts(at, call, from, into, terms, scratch)
        } else {
            self.reduce_here(at, call, from, into, terms)
        }
    }

    /// The same by that place alone, in the order of places.
    fn reduce_here(
        &mut self,
        at: usize,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
    ) -> Result<(), Failed> {
        let last = self.mates() - 1;
        let step = PAYLOAD / terms.extent * terms.extent;
        for (start, length) in pieces(terms.bytes(), step) {
            let each = |place, theirs: *const u8| {
                // SAFETY: the caller's places, and a contribution of as many bytes
                unsafe {
                    let into = into.add(start);
                    if place == last {
                        if !ptr::eq(theirs, into) {
                            copy(theirs, into, length);
                        }
                        return Ok(());
                    }
                    terms.combine.apply(theirs, into, length / terms.extent)
                }
            };
            // SAFETY: within the contribution
            let own = unsafe { from.add(start) };
            self.collect(at, call, own, |_| length, each, (0..=last).rev())?;
        }
        Ok(())
    }

    /// `MPI_Reduce`: from `from`, and into `into` at the root. Where they are the same, the root's own is there.
    pub fn reduce(
        &mut self,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        root: usize,
    ) -> Result<(), Failed> {
        let call = Call::new(what::REDUCE, root);
        let speaker = self.layout.speaker(self.host, Some(root));
        let at = self.layout.place_of(speaker);
        self.goes(self.short(Way::Tree));
        if self.between.is_some() && terms.bytes() > SHORT {
            self.goes(Way::Line);
            return self.reduce_in_line(at, call, from, into, terms);
        }
        if self.between.is_none() && self.mates() > 2 && terms.bytes() > BY_ONE {
            self.goes(Way::Parts);
            return self.with_rooms(|team, _, room| team.reduce_in_parts(at, call, from, into, terms, room));
        }
        if speaker != self.rank {
            return self.reduce_here(at, call, from, ptr::null_mut(), terms);
        }
        self.with_rooms(|team, _, room| {
            room.resize(terms.bytes(), 0);
            team.reduce_speaking(call, from, into, terms, room)
        })
    }

    /// Each rank combines a part of all contributions, and one gets all parts.
    fn reduce_in_parts(
        &mut self,
        at: usize,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        room: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        let (mates, extent) = (self.mates(), terms.extent);
        room.resize(PAYLOAD, 0);
        let combined = room.as_mut_ptr();
        for (start, length) in pieces(terms.bytes(), PAYLOAD / extent * extent) {
            let part = |place: usize| part_of(length / extent, extent, place, mates);
            // SAFETY: within the contribution
            let own = unsafe { from.add(start) };
            self.combine_part(call, own, combined, length, part(self.place), terms)?;
            let turn = self.turn(part(self.place).1)?;
            if self.place != at {
                // SAFETY: this rank's part, which is not longer than the slot
                unsafe { copy(combined, turn.payload, part(self.place).1) };
            }
            self.fill(&turn, call);
            for place in (0..mates).filter(|_| self.place == at) {
                let (first, bytes) = part(place);
                let theirs = match place == at {
                    true => combined.cast_const(),
                    false => self.read(place, turn.number(), call, bytes)?,
                };
                // SAFETY: a part, and where it belongs
                unsafe { copy(theirs, into.add(start + first), bytes) };
            }
            self.over(turn.number());
        }
        Ok(())
    }

    /// Gets from all contributions of `length` bytes, of which this rank's is at `from`, the combination of a part: where it begins, and its bytes.
    fn combine_part(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        length: usize,
        (start, bytes): (usize, usize),
        terms: &Terms,
    ) -> Result<(), Failed> {
        let mates = self.mates();
        let put = |slot: *mut u8| {
            // SAFETY: the program's data, no more than a slot takes
            unsafe { copy(from, slot, length) };
        };
        let each = |place, theirs: *const u8| {
            // SAFETY: this rank's part of a contribution, and its place, which the own contribution left when its slot was filled
            unsafe {
                let theirs = theirs.add(start);
                if place == mates - 1 {
                    copy(theirs, into, bytes);
                    return Ok(());
                }
                terms.combine.apply(theirs, into, bytes / terms.extent)
            }
        };
        self.exchange(call, length, put, each, (0..mates).rev())
    }

    fn reduce_speaking(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        room: &mut [u8],
    ) -> Result<(), Failed> {
        let is_root = self.rank == call.root();
        let last = self.place == self.mates() - 1;
        // what is combined may go where it belongs at once, unless the root's own contribution is there and is not the first to be taken
        let straight = is_root && (last || !ptr::eq(from, into));
        let at = if straight { into } else { room.as_mut_ptr() };
        if self.is_alone() {
            if !ptr::eq(from, at) {
                // SAFETY: the program's data, and room for them
                unsafe { copy(from, at, terms.bytes()) };
            }
        } else {
            self.reduce_here(self.place, call, from, at, terms)?;
        }
        self.reduce_between(call.root(), call.what(), at, terms)?;
        if is_root && !straight {
            // SAFETY: the program's place
            unsafe { copy(at, into, terms.bytes()) };
        }
        Ok(())
    }

    /// `MPI_Allreduce`. Where `from` is `into`, this rank's contribution is there.
    pub fn allreduce(&mut self, from: *const u8, into: *mut u8, terms: &Terms) -> Result<(), Failed> {
        let call = Call::new(what::ALLREDUCE, 0);
        if self.between.is_none() {
            let by_each = self.mates() <= BY_EACH_OF && terms.bytes() <= BY_EACH;
            self.goes(if by_each { Way::Slots } else { Way::Parts });
            let step = PAYLOAD / terms.extent * terms.extent;
            for (start, length) in pieces(terms.bytes(), step) {
                let piece = Terms { count: length / terms.extent, ..*terms };
                // SAFETY: within the data
                let (from, into) = unsafe { (from.add(start), into.add(start)) };
                if by_each {
                    self.allreduce_by_each(call, from, into, &piece)?;
                } else {
                    self.allreduce_in_parts(call, from, into, &piece)?;
                }
            }
            return Ok(());
        }
        let crosses = self.sites.as_ref().is_some_and(Sites::are_worth_it);
        self.goes(match (terms.bytes() > DOUBLED, crosses) {
            (true, false) => Way::HostParts,
            (true, true) => Way::SiteParts,
            _ => self.short(Way::Doubling),
        });
        if terms.bytes() > DOUBLED {
            return match self.sites.clone().filter(|_| crosses) {
                Some(sites) => self.allreduce_by_sites(&sites, call, from, into, terms),
                None => self.allreduce_by_parts(call, from, into, terms),
            };
        }
        // one rank of each host speaks for it; only it has use for more room
        self.with_rooms(|team, _, room| {
            room.resize(terms.bytes(), 0);
            team.allreduce_by_hosts(call, from, into, terms, room)
        })
    }

    fn allreduce_by_hosts(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        room: &mut [u8],
    ) -> Result<(), Failed> {
        let at = room.as_mut_ptr();
        if self.is_alone() {
            // SAFETY: the program's data, and room for them
            unsafe { copy(from, at, terms.bytes()) };
        } else {
            self.reduce_here(0, call, from, at, terms)?;
        }
        if self.place == 0 {
            self.allreduce_between(call.what(), at, terms)?;
        }
        self.spread(0, call, at, terms.bytes())?;
        // SAFETY: the program's place
        unsafe { copy(at, into, terms.bytes()) };
        Ok(())
    }

    fn allreduce_by_each(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
    ) -> Result<(), Failed> {
        let (last, bytes) = (self.mates() - 1, terms.bytes());
        let put = |slot: *mut u8| {
            // SAFETY: the program's data, no more than a slot takes
            unsafe { copy(from, slot, bytes) };
        };
        let each = |place, theirs: *const u8| {
            // SAFETY: contributions of as many bytes, and the program's place; its own contribution is in its slot already
            unsafe {
                if place == last {
                    copy(theirs, into, bytes);
                    return Ok(());
                }
                terms.combine.apply(theirs, into, terms.count)
            }
        };
        self.exchange(call, bytes, put, each, (0..=last).rev())
    }

    /// Each rank combines a part of all contributions, and all get all parts.
    fn allreduce_in_parts(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
    ) -> Result<(), Failed> {
        let (mates, own) = (self.mates(), self.place);
        let part = |place: usize| part_of(terms.count, terms.extent, place, mates);
        let (start, length) = part(own);
        // SAFETY: within the program's place
        let ours = unsafe { into.add(start) };
        self.combine_part(call, from, ours, terms.bytes(), (start, length), terms)?;
        let put = |slot: *mut u8| {
            // SAFETY: this rank's part
            unsafe { copy(ours, slot, length) };
        };
        let each = |place, theirs: *const u8| {
            let (start, length) = part(place);
            if place != own {
                // SAFETY: another's part, and where it belongs
                unsafe { copy(theirs, into.add(start), length) };
            }
            Ok(())
        };
        self.exchange(call, terms.bytes(), put, each, 0..mates)
    }

    /// `MPI_Allgather`: `own` of each rank to `into` of all, by ranks.
    pub fn allgather(&mut self, own: Data, into: Data) -> Result<(), Failed> {
        let call = Call::new(what::ALLGATHER, 0);
        self.goes(self.by_all_blocks());
        if self.between.is_some() {
            let ranks = self.layout.ranks();
            let first = Data { count: into.count / ranks, ..into };
            let parts: Vec<Data> = (0..ranks).map(|rank| first.part(rank)).collect();
            return self.allgather_by_hosts(call, own, &parts);
        }
        self.with_rooms(|team, sent, received| {
            let from = own.gather(sent, team.comm)?;
            let at = into.place(received);
            let bytes = own.bytes();
            for (start, length) in pieces(bytes, PAYLOAD) {
                let put = |slot: *mut u8| {
                    // SAFETY: a piece of this rank's contribution
                    unsafe { copy(from.add(start), slot, length) };
                };
                let each = |place, theirs: *const u8| {
                    // SAFETY: a piece of a rank's contribution, and where it belongs
                    unsafe { copy(theirs, at.add(place * bytes + start), length) };
                    Ok(())
                };
                let mates = team.mates();
                team.exchange(call, length, put, each, 0..mates)?;
            }
            into.spread(received, team.comm)
        })
    }

    /// `MPI_Alltoall`: a part of `from` to each rank, by ranks. Where `from` is `into`, parts are exchanged.
    pub fn alltoall(&mut self, from: Data, into: Data) -> Result<(), Failed> {
        let call = Call::new(what::ALLTOALL, 0);
        self.goes(self.by_blocks());
        if self.between.is_some() {
            return self.alltoall_by_hosts(call, from, into);
        }
        self.with_rooms(|team, sent, received| {
            let from = from.gather(sent, team.comm)?;
            let at = into.place(received);
            let (mates, own) = (team.mates(), team.place);
            let bytes = into.bytes() / mates;
            for (start, length) in pieces(bytes, PAYLOAD / mates) {
                let put = |slot: *mut u8| {
                    for other in 0..mates {
                        // SAFETY: a piece of each part, and its place in the slot
                        unsafe { copy(from.add(other * bytes + start), slot.add(other * length), length) };
                    }
                };
                let each = |place: usize, theirs: *const u8| {
                    // SAFETY: what is for this rank, and where it belongs; what was there for others is in this rank's slot already
                    unsafe { copy(theirs.add(own * length), at.add(place * bytes + start), length) };
                    Ok(())
                };
                team.exchange(call, mates * length, put, each, 0..mates)?;
            }
            into.spread(received, team.comm)
        })
    }

    /// `MPI_Reduce_scatter` and `MPI_Reduce_scatter_block`: of `terms`, all parts together in `from`, so many elements for each rank; this rank's
    /// into `into`, which may be the same.
    pub fn reduce_scatter(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        counts: &[usize],
    ) -> Result<(), Failed> {
        self.goes(Way::Slots);
        let (mates, own, extent) = (self.mates(), self.place, terms.extent);
        let lengths: Vec<usize> = counts.iter().map(|count| count * extent).collect();
        let (first, longest) = (begins(&lengths), longest(&lengths));
        let step = (PAYLOAD / mates / extent).max(1) * extent;
        self.with_rooms(|team, _, room| {
            // in place the result is put over contributions that are still to be sent
            room.resize(lengths[own], 0);
            let at = room.as_mut_ptr();
            for (start, _) in pieces(longest, step) {
                let piece = |place: usize| lengths[place].saturating_sub(start).min(step);
                let all = (0..mates).map(piece).sum();
                let before: usize = (0..own).map(piece).sum();
                let put = |slot: *mut u8| {
                    let mut filled = 0;
                    for (other, first) in first.iter().enumerate() {
                        // SAFETY: a piece of each part, and its place in the slot
                        unsafe { copy(from.wrapping_add(first + start), slot.add(filled), piece(other)) };
                        filled += piece(other);
                    }
                };
                let each = |place, theirs: *const u8| {
                    // SAFETY: what is for this rank, and room for it
                    unsafe {
                        let (theirs, into) = (theirs.add(before), at.wrapping_add(start));
                        if place == mates - 1 {
                            copy(theirs, into, piece(own));
                            return Ok(());
                        }
                        terms.combine.apply(theirs, into, piece(own) / extent)
                    }
                };
                team.exchange(call, all, put, each, (0..mates).rev())?;
            }
            // SAFETY: the program's place
            unsafe { copy(at, into, lengths[own]) };
            Ok(())
        })
    }

    /// `MPI_Allgatherv`: `own` of each rank to its place in `into` of all, by ranks. All know how long each is.
    pub fn allgatherv(&mut self, own: Data, into: &[Data]) -> Result<(), Failed> {
        let call = Call::new(what::ALLGATHERV, 0).of(into.iter().map(Data::bytes).sum());
        self.goes(self.by_all_blocks());
        if self.between.is_some() {
            return self.allgather_by_hosts(call, own, into);
        }
        let longest = into.iter().map(Data::bytes).max().unwrap_or(0);
        self.with_rooms(|team, sent, received| {
            let from = own.gather(sent, team.comm)?;
            let at = places(into, received);
            for (start, _) in pieces(longest, PAYLOAD) {
                let piece = |place: usize| at[place].bytes.saturating_sub(start).min(PAYLOAD);
                let turn = team.turn(piece(team.place))?;
                // SAFETY: a piece of this rank's contribution
                unsafe { copy(from.wrapping_add(start), turn.payload, piece(team.place)) };
                team.fill(&turn, call);
                for (place, into) in at.iter().enumerate() {
                    let theirs = match place == team.place {
                        true => turn.payload.cast_const(),
                        false => team.read(place, turn.number(), call, piece(place))?,
                    };
                    // SAFETY: a piece of a rank's contribution, and where it belongs
                    unsafe { copy(theirs, into.at.wrapping_add(start), piece(place)) };
                }
                team.over_for_all(turn.number());
            }
            let came: Vec<usize> = into.iter().map(Data::bytes).collect();
            spread(into, &at, &came, team.comm)
        })
    }

    /// `MPI_Scan` and `MPI_Exscan`: of the contributions of ranks up to this one, or before it, into `into`. Where `from` is `into`, this
    /// rank's contribution is there. The first rank of an exclusive scan gets nothing.
    pub fn scan(
        &mut self,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        inclusive: bool,
    ) -> Result<(), Failed> {
        self.goes(Way::Slots);
        let call = Call::new(if inclusive { what::SCAN } else { what::EXSCAN }, 0);
        let step = PAYLOAD / terms.extent * terms.extent;
        let end = self.place + usize::from(inclusive);
        for (start, length) in pieces(terms.bytes(), step) {
            let turn = self.turn(length)?;
            // SAFETY: within the contribution, no more than a slot takes
            unsafe { copy(from.add(start), turn.payload, length) };
            self.fill(&turn, call);
            for place in (0..end).rev() {
                let theirs = if place == self.place {
                    turn.payload.cast_const()
                } else {
                    self.read(place, turn.number(), call, length)?
                };
                // SAFETY: contributions of as many bytes, and the program's place
                unsafe {
                    let into = into.add(start);
                    if place == end - 1 {
                        copy(theirs, into, length);
                    } else {
                        terms.combine.apply(theirs, into, length / terms.extent)?;
                    }
                }
            }
            self.over(turn.number());
        }
        Ok(())
    }
}
