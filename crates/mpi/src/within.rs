//! The operations, by the memory of a host; what goes between hosts, [`between`](crate::between) does.
//!
//! What is longer than a slot goes piece by piece. Where only one rank writes or only one reads, the others are up to four pieces, or operations,
//! ahead; where all read of all, nobody is more than one ahead.

use std::ptr;

use crate::area::PAYLOAD;
use crate::combine::Combine;
use crate::data::Data;
use crate::library::Failed;
use crate::reach::{places, spread};
use crate::team::{Call, Team};

/// Bytes up to which each rank combines all contributions by itself; longer ones are combined in parts, each by one.
const BY_EACH: usize = 1024;
/// The same for the ranks of a host.
const BY_EACH_OF: usize = 8;
/// Bytes up to which the root of a reduction combines all contributions.
const BY_ONE: usize = 64 << 10;

/// The numbers of operations in slots' tags.
pub mod what {
    /// `MPI_Barrier`.
    pub const BARRIER: u8 = 1;
    /// `MPI_Bcast`.
    pub const BCAST: u8 = 2;
    /// `MPI_Reduce`.
    pub const REDUCE: u8 = 3;
    /// `MPI_Allreduce`.
    pub const ALLREDUCE: u8 = 4;
    /// `MPI_Gather`.
    pub const GATHER: u8 = 5;
    /// `MPI_Scatter`.
    pub const SCATTER: u8 = 6;
    /// `MPI_Allgather`.
    pub const ALLGATHER: u8 = 7;
    /// `MPI_Alltoall`.
    pub const ALLTOALL: u8 = 8;
    /// `MPI_Reduce_scatter_block`.
    pub const REDUCE_SCATTER_BLOCK: u8 = 9;
    /// `MPI_Scan`.
    pub const SCAN: u8 = 10;
    /// `MPI_Exscan`.
    pub const EXSCAN: u8 = 11;
    /// `MPI_Gatherv`.
    pub const GATHERV: u8 = 12;
    /// `MPI_Scatterv`.
    pub const SCATTERV: u8 = 13;
    /// `MPI_Allgatherv`.
    pub const ALLGATHERV: u8 = 14;
    /// `MPI_Alltoallv`.
    pub const ALLTOALLV: u8 = 15;
    /// `MPI_Alltoallw`.
    pub const ALLTOALLW: u8 = 16;
    /// `MPI_Reduce_scatter`.
    pub const REDUCE_SCATTER: u8 = 17;

    /// Their names, for people.
    pub fn name(what: u8) -> &'static str {
        const NAMES: [&str; 17] = [
            "MPI_Barrier",
            "MPI_Bcast",
            "MPI_Reduce",
            "MPI_Allreduce",
            "MPI_Gather",
            "MPI_Scatter",
            "MPI_Allgather",
            "MPI_Alltoall",
            "MPI_Reduce_scatter_block",
            "MPI_Scan",
            "MPI_Exscan",
            "MPI_Gatherv",
            "MPI_Scatterv",
            "MPI_Allgatherv",
            "MPI_Alltoallv",
            "MPI_Alltoallw",
            "MPI_Reduce_scatter",
        ];
        usize::from(what).checked_sub(1).and_then(|at| NAMES.get(at)).copied().unwrap_or("something else")
    }
}

/// Elements of a reduction, one behind the other, with nothing between.
#[derive(Clone, Copy)]
pub struct Terms {
    /// How many.
    pub count: usize,
    /// Bytes from one to the next.
    pub extent: usize,
    /// What is done with them.
    pub combine: Combine,
}

impl Terms {
    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        self.count * self.extent
    }
}

/// Copies between memory of the program's or ours and slots; they never overlap.
///
/// # Safety
/// As of `copy_nonoverlapping`.
unsafe fn copy(from: *const u8, into: *mut u8, bytes: usize) {
    // SAFETY: as the caller says
    unsafe { ptr::copy_nonoverlapping(from, into, bytes) }
}

/// The pieces of so many bytes, each as long as `most` allows: where each begins, and its length.
pub fn pieces(bytes: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..bytes).step_by(most.max(1)).map(move |at| (at, most.min(bytes - at)))
}

/// One of `parts` parts of so many elements: at which byte it begins, and its bytes.
fn part_of(count: usize, extent: usize, part: usize, parts: usize) -> (usize, usize) {
    let (first, end) = (count * part / parts, count * (part + 1) / parts);
    (first * extent, (end - first) * extent)
}

impl Team {
    fn is_alone(&self) -> bool {
        self.mates() == 1
    }

    /// All contribute `bytes` from `own`, and `at` reads all of them: by place, in order. Where that is not this rank, it only contributes.
    fn collect(
        &mut self,
        at: usize,
        call: Call,
        own: *const u8,
        bytes: usize,
        mut each: impl FnMut(usize, *const u8) -> Result<(), Failed>,
        order: impl Iterator<Item = usize>,
    ) -> Result<(), Failed> {
        let number = if self.place == at {
            let number = self.next();
            for place in order {
                let from = if place == at { own } else { self.read(place, number, call, bytes)? };
                each(place, from)?;
            }
            number
        } else {
            let turn = self.turn(bytes)?;
            // SAFETY: the caller's bytes, no more than a slot takes
            unsafe { copy(own, turn.payload, bytes) };
            self.fill(&turn, call);
            turn.number()
        };
        self.over(number);
        Ok(())
    }

    /// `at` contributes `bytes` from `data`, and all others get them there.
    fn spread(&mut self, at: usize, call: Call, data: *mut u8, bytes: usize) -> Result<(), Failed> {
        let number = if self.place == at {
            let turn = self.turn(bytes)?;
            // SAFETY: the caller's bytes, no more than a slot takes
            unsafe { copy(data, turn.payload, bytes) };
            self.fill(&turn, call);
            turn.number()
        } else {
            let number = self.next();
            let from = self.read(at, number, call, bytes)?;
            // SAFETY: the caller's place for as many bytes
            unsafe { copy(from, data, bytes) };
            number
        };
        self.over(number);
        Ok(())
    }

    /// All contribute what `put` writes, of `bytes`, and all read of all.
    fn exchange(
        &mut self,
        call: Call,
        bytes: usize,
        put: impl FnOnce(*mut u8),
        mut each: impl FnMut(usize, *const u8) -> Result<(), Failed>,
        order: impl Iterator<Item = usize>,
    ) -> Result<(), Failed> {
        let turn = self.turn(bytes)?;
        put(turn.payload);
        self.fill(&turn, call);
        for place in order {
            let from = if place == self.place {
                turn.payload.cast_const()
            } else {
                self.read(place, turn.number(), call, bytes)?
            };
            each(place, from)?;
        }
        self.over_for_all(turn.number());
        Ok(())
    }

    /// `MPI_Barrier`.
    ///
    /// # Errors
    /// As all operations here: see [`Failed`].
    pub fn barrier(&mut self) -> Result<(), Failed> {
        let call = Call::new(what::BARRIER, 0);
        let mates = self.mates();
        if self.between.is_none() && mates <= BY_EACH_OF {
            return self.exchange(call, 0, |_| (), |_, _| Ok(()), 0..mates);
        }
        if !self.is_alone() {
            self.collect(0, call, ptr::null(), 0, |_, _| Ok(()), 0..mates)?;
        }
        if self.place == 0 {
            self.meet()?;
        }
        if !self.is_alone() {
            self.spread(0, call, ptr::null_mut(), 0)?;
        }
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
        let bytes = data.bytes();
        let speaker = self.layout.speaker(self.host, Some(call.root()));
        let speaks = speaker == self.rank;
        let steps = if speaks { self.broadcast_steps(call.root()) } else { Vec::new() };
        let (receives, sends) = steps.split_at(steps.iter().take_while(|step| step.from.is_some()).count());
        self.take(receives, call.what(), at, bytes, None)?;
        if !self.is_alone() {
            let from = self.layout.place_of(speaker);
            for (start, length) in pieces(bytes, PAYLOAD) {
                // SAFETY: within the data
                self.spread(from, call, unsafe { at.add(start) }, length)?;
            }
        }
        self.take(sends, call.what(), at, bytes, None)?;
        if at_root { Ok(()) } else { data.spread(room, self.comm) }
    }

    /// Combines all contributions of this host at one place into `into`, in the order of places.
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
            self.collect(at, call, own, length, each, (0..=last).rev())?;
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
        if self.between.is_none() && self.mates() > 2 && terms.bytes() > BY_ONE {
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
        let steps = self.reduce_steps(call.root());
        self.take(&steps, call.what(), at, terms.bytes(), Some(terms))?;
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
            let steps = self.allreduce_steps();
            self.take(&steps, call.what(), at, terms.bytes(), Some(terms))?;
        }
        if !self.is_alone() {
            for (start, length) in pieces(terms.bytes(), PAYLOAD) {
                // SAFETY: within the room
                self.spread(0, call, unsafe { at.add(start) }, length)?;
            }
        }
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

    /// `MPI_Gather`: `own` of each rank to `into` of the root, by ranks. A root whose own is there already has it in both.
    pub fn gather(&mut self, own: Data, into: Option<Data>, root: usize) -> Result<(), Failed> {
        let call = Call::new(what::GATHER, root);
        self.with_rooms(|team, sent, received| {
            let from = own.gather(sent, team.comm)?;
            let at = into.map(|into| into.place(received)).unwrap_or(ptr::null_mut());
            let bytes = own.bytes();
            for (start, length) in pieces(bytes, PAYLOAD) {
                let each = |place, theirs: *const u8| {
                    // SAFETY: a piece of a rank's contribution, and where it belongs
                    unsafe {
                        let into = at.add(place * bytes + start);
                        if !ptr::eq(theirs, into) {
                            copy(theirs, into, length);
                        }
                    }
                    Ok(())
                };
                let mates = team.mates();
                // SAFETY: within the contribution
                let piece = unsafe { from.add(start) };
                team.collect(root, call, piece, length, each, 0..mates)?;
            }
            into.map_or(Ok(()), |into| into.spread(received, team.comm))
        })
    }

    /// `MPI_Scatter`: to each rank its part of `from` of the root, by ranks, into `own`, unless it is there already.
    pub fn scatter(
        &mut self,
        from: Option<Data>,
        own: Option<Data>,
        each: usize,
        root: usize,
    ) -> Result<(), Failed> {
        let call = Call::new(what::SCATTER, root);
        self.with_rooms(|team, sent, received| {
            let from = from.map(|from| from.gather(sent, team.comm)).transpose()?;
            let into = own.map(|own| own.place(received));
            let (mates, place) = (team.mates(), team.place);
            // as many bytes of each rank's part as a slot takes of all
            for (start, length) in pieces(each, PAYLOAD / mates) {
                if let Some(from) = from {
                    let turn = team.turn(mates * length)?;
                    for other in (0..mates).filter(|other| *other != place) {
                        // SAFETY: within the root's data, and the slot
                        unsafe {
                            copy(from.add(other * each + start), turn.payload.add(other * length), length)
                        };
                    }
                    team.fill(&turn, call);
                    if let Some(into) = into {
                        // SAFETY: within the root's data, and its place, which Open MPI takes where it is the same, too
                        unsafe { ptr::copy(from.add(place * each + start), into.add(start), length) };
                    }
                    team.over(turn.number());
                } else {
                    let number = team.next();
                    let theirs = team.read(root, number, call, mates * length)?;
                    if let Some(into) = into {
                        // SAFETY: this rank's piece, and its place
                        unsafe { copy(theirs.add(place * length), into.add(start), length) };
                    }
                    team.over(number);
                }
            }
            own.map_or(Ok(()), |own| own.spread(received, team.comm))
        })
    }

    /// `MPI_Allgather`: `own` of each rank to `into` of all, by ranks.
    pub fn allgather(&mut self, own: Data, into: Data) -> Result<(), Failed> {
        let call = Call::new(what::ALLGATHER, 0);
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
        let (mates, own, extent) = (self.mates(), self.place, terms.extent);
        let begin = |next: &mut usize, count: &usize| {
            let begin = *next;
            *next += count * extent;
            Some(begin)
        };
        let first: Vec<usize> = counts.iter().scan(0, begin).collect();
        let longest = counts.iter().max().map_or(0, |count| count * extent);
        let step = (PAYLOAD / mates / extent).max(1) * extent;
        self.with_rooms(|team, _, room| {
            // in place the result is put over contributions that are still to be sent
            room.resize(counts[own] * extent, 0);
            let at = room.as_mut_ptr();
            for (start, _) in pieces(longest, step) {
                let piece = |place: usize| (counts[place] * extent).saturating_sub(start).min(step);
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
            unsafe { copy(at, into, counts[own] * extent) };
            Ok(())
        })
    }

    /// `MPI_Allgatherv`: `own` of each rank to its place in `into` of all, by ranks. All know how long each is.
    pub fn allgatherv(&mut self, own: Data, into: &[Data]) -> Result<(), Failed> {
        let call = Call::new(what::ALLGATHERV, 0).of(into.iter().map(Data::bytes).sum());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all() {
        let of = |bytes, most| pieces(bytes, most).collect::<Vec<_>>();
        assert_eq!(of(0, 8), []);
        assert_eq!(of(8, 8), [(0, 8)]);
        assert_eq!(of(17, 8), [(0, 8), (8, 8), (16, 1)]);
    }

    #[test]
    fn operations_have_names() {
        assert_eq!(what::name(what::BARRIER), "MPI_Barrier");
        assert_eq!(what::name(what::REDUCE_SCATTER), "MPI_Reduce_scatter");
        assert_eq!([0, 18, 255].map(what::name), ["something else"; 3]);
    }
}
