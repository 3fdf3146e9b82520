//! What is long, or of another length at each rank: what a rank contributes stays where it is, in its slot is the address, and others
//! copy out of its memory or into it (cross-memory attach), once. What is short enough is in the slot itself.
//!
//! Nobody leaves before all have read what is in its memory, or written there.

use std::ptr;

use polyrail_rails::rail::RawIov;
use polyrail_rails::shm::cma::{self, CmaError, RemoteIov};

use crate::area::PAYLOAD;
use crate::data::Data;
use crate::library::Failed;
use crate::team::{Call, Team};
use crate::within::{Terms, pieces};

/// Ranks of a host up to which a slot has a line for each.
pub const MOST_RANKS: usize = PAYLOAD / 2 / size_of::<Entry>();
/// Bytes that are combined at once: they stay in a processor's cache.
const CHUNK: usize = 32 << 10;
/// Bytes of room that are kept for the next operation.
const KEPT: usize = 1 << 20;

/// Bytes one behind the other, somewhere in this process.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where.
    pub at: *mut u8,
    /// How many.
    pub bytes: usize,
}

/// A part of another's, as its slot says: an address there, or, below [`PAYLOAD`], a place in the slot.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    at: u64,
    bytes: u64,
}

/// What this rank has offered.
struct Offer {
    number: u64,
    payload: *const u8,
    /// Others look for it in this rank's memory.
    stays: bool,
}

/// Which of the parts of a rank's offer are for whom.
#[derive(Clone, Copy)]
enum For {
    All,
    Each,
}

impl Team {
    /// Copies out of another's memory.
    fn fetch(&self, place: usize, from: u64, into: Part) -> Result<(), Failed> {
        let iov = [RawIov { base: into.at, len: into.bytes }];
        // SAFETY: a place of the program's, or ours, that nobody else writes
        let done = unsafe { cma::read(self.pid(place), &iov, &[RemoteIov { base: from, len: into.bytes }]) };
        done.map_err(|why| self.unreached(place, why))
    }

    /// Copies into another's memory.
    fn put(&self, place: usize, into: u64, from: Part) -> Result<(), Failed> {
        let iov = [RawIov { base: from.at, len: from.bytes }];
        // SAFETY: data of the program's, or ours
        let done = unsafe { cma::write(self.pid(place), &iov, &[RemoteIov { base: into, len: from.bytes }]) };
        done.map_err(|why| self.unreached(place, why))
    }

    /// No process has the number 0.
    fn pid(&self, place: usize) -> i32 {
        self.process(place).unwrap_or(0)
    }

    fn unreached(&self, place: usize, why: CmaError) -> Failed {
        match why {
            CmaError::Gone => Failed::Gone,
            why => Failed::Memory { rank: self.rank_at(place), why },
        }
    }

    /// Says where this rank's parts are, or, if they are short enough and `short`, what they are.
    fn offer(&mut self, call: Call, parts: &[Part], short: bool) -> Result<Offer, Failed> {
        let turn = self.turn(PAYLOAD)?;
        let table = size_of_val(parts).min(parts.len() * size_of::<Entry>());
        let all = parts.iter().fold(0usize, |all, part| all.saturating_add(part.bytes));
        let within = short && all <= PAYLOAD - table;
        let mut at = table;
        for (n, part) in parts.iter().enumerate() {
            let entry =
                Entry { at: if within { at as u64 } else { part.at as u64 }, bytes: part.bytes as u64 };
            // SAFETY: within the slot, which is aligned for it; the program's data
            unsafe {
                turn.payload.cast::<Entry>().add(n).write(entry);
                if within && part.bytes > 0 {
                    ptr::copy_nonoverlapping(part.at, turn.payload.add(at), part.bytes);
                    at += part.bytes;
                }
            }
        }
        self.fill(&turn, call);
        Ok(Offer { number: turn.number(), payload: turn.payload, stays: !within && all > 0 })
    }

    /// A slot's entry, as it is.
    fn entry(&self, place: usize, number: u64, call: Call, n: usize) -> Result<(*const u8, Entry), Failed> {
        let payload = self.read(place, number, call, PAYLOAD)?;
        // SAFETY: no more than MOST_RANKS entries, within the slot; any bits are an entry
        Ok((payload, unsafe { payload.cast::<Entry>().add(n).read() }))
    }

    /// Copies the `n`th part of what another offers to where it belongs; its bytes.
    fn accept(&self, place: usize, number: u64, call: Call, n: usize, into: Part) -> Result<usize, Failed> {
        let (payload, entry) = self.entry(place, number, call, n)?;
        self.copy(place, payload, entry, into)
    }

    fn copy(&self, place: usize, payload: *const u8, entry: Entry, into: Part) -> Result<usize, Failed> {
        let bytes = usize::try_from(entry.bytes).unwrap_or(usize::MAX);
        if bytes > into.bytes {
            return Err(Failed::Longer { rank: self.rank_at(place), came: bytes, expected: into.bytes });
        }
        if bytes == 0 {
            return Ok(0);
        }
        let into = Part { bytes, ..into };
        match usize::try_from(entry.at).ok().filter(|at| *at < PAYLOAD) {
            // SAFETY: within the slot
            Some(at) if at + bytes <= PAYLOAD => unsafe {
                ptr::copy_nonoverlapping(payload.add(at), into.at, bytes);
            },
            Some(_) => return Err(Failed::Memory { rank: self.rank_at(place), why: CmaError::Fault }),
            None if place == self.place => {
                if entry.at != into.at as u64 {
                    // SAFETY: the program's own data, and a place of its own for them
                    unsafe { ptr::copy(entry.at as usize as *const u8, into.at, bytes) };
                }
            }
            None => self.fetch(place, entry.at, into)?,
        }
        Ok(bytes)
    }

    /// Carries out a rank's part, whose failure the others are told.
    fn finished<T>(&mut self, offer: &Offer, done: Result<T, Failed>) -> Result<T, Failed> {
        match done {
            Ok(done) => self.end_offer(offer, true).map(|()| done),
            Err(failed) => {
                self.give_up();
                Err(failed)
            }
        }
    }

    /// What this rank offered may be changed when this is over. `of_all`: it has read what all others offered.
    fn end_offer(&mut self, offer: &Offer, of_all: bool) -> Result<(), Failed> {
        self.over(offer.number);
        if of_all {
            self.over_for_all(offer.number);
        }
        if offer.stays { self.wait_for_all(offer.number) } else { Ok(()) }
    }

    /// All offer parts, to all the same or one to each, and get from each what is for them.
    fn exchange_parts(
        &mut self,
        call: Call,
        parts: &[Part],
        which: For,
        into: &[Part],
    ) -> Result<Vec<usize>, Failed> {
        let offer = self.offer(call, parts, true)?;
        let mates = self.mates();
        let mut came = vec![0; mates];
        let mut done = Ok(());
        // not all out of the same memory at the same time
        for place in (0..mates).map(|step| (self.place + step) % mates) {
            let n = if matches!(which, For::Each) { self.place } else { 0 };
            match self.accept(place, offer.number, call, n, into[place]) {
                Ok(bytes) => came[place] = bytes,
                Err(failed @ Failed::Longer { .. }) => done = Err(failed),
                Err(failed) => return Err(failed),
            }
        }
        self.end_offer(&offer, true)?;
        done.map(|()| came)
    }

    /// The root offers parts, to all the same or one to each, and each gets its own; the root into `into`, too.
    fn spread_parts(
        &mut self,
        call: Call,
        parts: Option<&[Part]>,
        which: For,
        into: Option<Part>,
    ) -> Result<usize, Failed> {
        let n = if matches!(which, For::Each) { self.place } else { 0 };
        let root = self.layout.place_of(call.root());
        if let Some(parts) = parts {
            let offer = self.offer(call, parts, true)?;
            // SAFETY: this rank's own entry, written above
            let own = unsafe { offer.payload.cast::<Entry>().add(n).read() };
            let done = into.map_or(Ok(0), |into| self.copy(root, offer.payload, own, into));
            self.end_offer(&offer, false)?;
            return done;
        }
        let number = self.next();
        let done = self.accept(root, number, call, n, into.unwrap_or(Part { at: ptr::null_mut(), bytes: 0 }));
        self.over(number);
        done
    }

    /// Each offers a part, which the root gets, all into places of their own.
    fn collect_parts(
        &mut self,
        call: Call,
        own: Option<Part>,
        into: Option<&[Part]>,
    ) -> Result<Vec<usize>, Failed> {
        let root = self.layout.place_of(call.root());
        let Some(into) = into else {
            let offer = self.offer(call, own.as_slice(), true)?;
            self.over(offer.number);
            if offer.stays {
                self.wait_for(root, offer.number)?;
            }
            return Ok(Vec::new());
        };
        let number = self.next();
        let mut came: Vec<usize> = into.iter().map(|part| part.bytes).collect();
        let mut done = Ok(());
        for (place, into) in into.iter().enumerate() {
            let one = if place == self.place {
                let Some(own) = own else { continue };
                let entry = Entry { at: own.at as u64, bytes: own.bytes as u64 };
                self.copy(place, ptr::null(), entry, *into)
            } else {
                self.accept(place, number, call, 0, *into)
            };
            match one {
                Ok(bytes) => came[place] = bytes,
                Err(failed @ Failed::Longer { .. }) => done = Err(failed),
                Err(failed) => return Err(failed),
            }
        }
        self.over(number);
        done.map(|()| came)
    }

    /// Where all contributions are, by place: data to be combined, and where the result goes.
    fn places(&self, offer: &Offer, call: Call) -> Result<Vec<[u64; 2]>, Failed> {
        let of = |place| {
            if place == self.place {
                return Ok([0; 2]);
            }
            let [from, into] = [0, 1].map(|n| self.entry(place, offer.number, call, n));
            Ok([from?.1.at, into?.1.at])
        };
        (0..self.mates()).map(of).collect()
    }

    /// Combines all contributions from a place on, in the order of ranks, at `at`. `spare`: room for as many bytes.
    fn combine_all(
        &self,
        own: *const u8,
        all: &[[u64; 2]],
        start: usize,
        at: Part,
        spare: *mut u8,
        terms: &Terms,
    ) -> Result<(), Failed> {
        let last = all.len() - 1;
        for place in (0..=last).rev() {
            let theirs = if place == self.place {
                // SAFETY: within this rank's contribution
                unsafe { own.add(start) }
            } else {
                let into = if place == last { at.at } else { spare };
                self.fetch(place, all[place][0] + start as u64, Part { at: into, ..at })?;
                into.cast_const()
            };
            // SAFETY: as many bytes at each
            unsafe {
                if place < last {
                    terms.combine.apply(theirs, at.at, at.bytes / terms.extent)?;
                } else if !ptr::eq(theirs, at.at) {
                    ptr::copy(theirs, at.at, at.bytes);
                }
            }
        }
        Ok(())
    }

    /// Each rank combines a part of all contributions and writes it to all, or to the root.
    fn combine_for(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        root: Option<usize>,
    ) -> Result<(), Failed> {
        let (mates, own, extent) = (self.mates(), self.place, terms.extent);
        let bytes = terms.bytes();
        let call = call.of(bytes);
        let offer = self.offer(call, &[from.cast_mut(), into].map(|at| Part { at, bytes }), false)?;
        let all = self.places(&offer, call)?;
        let gets = |place: usize| root.is_none_or(|root| root == place);
        let [first, end] = [own, own + 1].map(|place| terms.count * place / mates * extent);
        let mut rooms = std::mem::take(&mut self.rooms[2]);
        rooms.resize(2 * CHUNK, 0);
        let (room, spare) = rooms.split_at_mut(CHUNK);
        // in place, the own contribution is there until its turn comes
        let straight = gets(own) && (own == mates - 1 || !ptr::eq(from, into));
        let mut done = Ok(());
        for (at, length) in pieces(end - first, CHUNK / extent * extent) {
            let start = first + at;
            // SAFETY: within this rank's place, where it has one
            let result = if gets(own) { unsafe { into.add(start) } } else { room.as_mut_ptr() };
            let part = Part { at: if straight { result } else { room.as_mut_ptr() }, bytes: length };
            done = self.combine_all(from, &all, start, part, spare.as_mut_ptr(), terms).and_then(|()| {
                if !ptr::eq(part.at, result) {
                    // SAFETY: as many bytes, and where they belong
                    unsafe { ptr::copy(part.at, result, length) };
                }
                let mut others = (1..mates).map(|step| (own + step) % mates).filter(|place| gets(*place));
                others.try_for_each(|place| self.put(place, all[place][1] + start as u64, part))
            });
            if done.is_err() {
                break;
            }
        }
        self.rooms[2] = rooms;
        self.finished(&offer, done)
    }

    /// `MPI_Allreduce` of what is long.
    ///
    /// # Errors
    /// As all operations here: see [`Failed`].
    pub fn allreduce_long(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
    ) -> Result<(), Failed> {
        self.combine_for(call, from, into, terms, None)
    }

    /// `MPI_Reduce` of what is long.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn reduce_long(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
    ) -> Result<(), Failed> {
        let root = self.layout.place_of(call.root());
        self.combine_for(
            call,
            from,
            if root == self.place { into } else { ptr::null_mut() },
            terms,
            Some(root),
        )
    }

    /// `MPI_Reduce_scatter`: of `terms` of each rank, all together in `from`, `counts` for each; this rank's into `into`, which may be the same.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn reduce_scatter_long(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        counts: impl Fn(usize) -> usize,
    ) -> Result<(), Failed> {
        let extent = terms.extent;
        let call = call.of(terms.bytes());
        let contribution = Part { at: from.cast_mut(), bytes: terms.bytes() };
        let offer = self.offer(call, &[contribution; 2], false)?;
        let all = self.places(&offer, call)?;
        let first = (0..self.place).map(&counts).sum::<usize>() * extent;
        let own = counts(self.place) * extent;
        let [mut rooms, mut result] = [2, 1].map(|room| std::mem::take(&mut self.rooms[room]));
        rooms.resize(CHUNK, 0);
        // in place, the result would be where others still read
        let in_place = ptr::eq(from, into);
        if in_place {
            result.resize(own, 0);
        }
        let at = if in_place { result.as_mut_ptr() } else { into };
        let done = pieces(own, CHUNK / extent * extent).try_for_each(|(start, bytes)| {
            // SAFETY: within the program's place, or as much room
            let part = Part { at: unsafe { at.add(start) }, bytes };
            self.combine_all(from, &all, first + start, part, rooms.as_mut_ptr(), terms)
        });
        let done = self.finished(&offer, done);
        if in_place && done.is_ok() {
            // SAFETY: the program's place
            unsafe { ptr::copy_nonoverlapping(at, into, own) };
        }
        self.rooms[2] = rooms;
        self.keep(1, result);
        done
    }

    /// `MPI_Bcast` of what is long.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn bcast_long(&mut self, call: Call, data: Data) -> Result<(), Failed> {
        let call = call.of(data.bytes());
        self.scatter_parts(
            call,
            (self.rank == call.root()).then_some(&[data]),
            For::All,
            (self.rank != call.root()).then_some(data),
        )
    }

    /// `MPI_Scatter` and `MPI_Scatterv`: a part of the root's to each, unless it is there already.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn scatter_each(
        &mut self,
        call: Call,
        from: Option<&[Data]>,
        own: Option<Data>,
    ) -> Result<(), Failed> {
        self.scatter_parts(call, from, For::Each, own)
    }

    fn scatter_parts(
        &mut self,
        call: Call,
        from: Option<&[Data]>,
        which: For,
        own: Option<Data>,
    ) -> Result<(), Failed> {
        let [mut sent, mut received] = [0, 1].map(|room| std::mem::take(&mut self.rooms[room]));
        let done = (|| {
            let parts = from.map(|from| packed(from, false, &mut sent, self.comm)).transpose()?;
            let own = own.as_slice();
            let into = places(own, &mut received);
            let came = self.spread_parts(call, parts.as_deref(), which, into.first().copied())?;
            spread(own, &into, &[came], self.comm)
        })();
        self.keep(0, sent);
        self.keep(1, received);
        done
    }

    /// `MPI_Gather` and `MPI_Gatherv`: a part of each to the root, which has its own there already if it offers none.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn gather_each(
        &mut self,
        call: Call,
        own: Option<Data>,
        into: Option<&[Data]>,
    ) -> Result<(), Failed> {
        let [mut sent, mut received] = [0, 1].map(|room| std::mem::take(&mut self.rooms[room]));
        let done = (|| {
            let own = packed(own.as_slice(), false, &mut sent, self.comm)?.first().copied();
            let all = into.map(|into| places(into, &mut received));
            // what is there already need not be unpacked
            let mut came = self.collect_parts(call, own, all.as_deref())?;
            if let (None, Some(came)) = (own, came.get_mut(self.place)) {
                *came = 0;
            }
            into.zip(all).map_or(Ok(()), |(into, all)| spread(into, &all, &came, self.comm))
        })();
        self.keep(0, sent);
        self.keep(1, received);
        done
    }

    /// `MPI_Allgather` and `MPI_Allgatherv`: a part of each to all.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn allgather_each(&mut self, call: Call, own: Data, into: &[Data]) -> Result<(), Failed> {
        self.all_to_each(call, &[own], For::All, into, false)
    }

    /// `MPI_Alltoall`, `MPI_Alltoallv` and `MPI_Alltoallw`. Where `from` is `into`, parts are exchanged.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn alltoall_each(
        &mut self,
        call: Call,
        from: &[Data],
        into: &[Data],
        in_place: bool,
    ) -> Result<(), Failed> {
        self.all_to_each(call, from, For::Each, into, in_place)
    }

    fn all_to_each(
        &mut self,
        call: Call,
        from: &[Data],
        which: For,
        into: &[Data],
        in_place: bool,
    ) -> Result<(), Failed> {
        let [mut sent, mut received] = [0, 1].map(|room| std::mem::take(&mut self.rooms[room]));
        let done = (|| {
            let parts = packed(from, in_place, &mut sent, self.comm)?;
            let places = places(into, &mut received);
            let came = self.exchange_parts(call, &parts, which, &places)?;
            spread(into, &places, &came, self.comm)
        })();
        self.keep(0, sent);
        self.keep(1, received);
        done
    }

    /// Keeps room for the next operation, unless it is much.
    fn keep(&mut self, room: usize, mut used: Vec<u8>) {
        if used.capacity() > KEPT {
            used = Vec::new();
        }
        self.rooms[room] = used;
    }
}

/// Bytes of what is not one behind the other, and has to be in a room.
fn apart(all: &[Data], copied: bool) -> usize {
    all.iter().filter(|data| copied || !data.kind.is_plain()).map(Data::bytes).sum()
}

/// Parts one behind the other: where they are, or packed into `room`; there in any case, if `copied`.
fn packed(all: &[Data], copied: bool, room: &mut Vec<u8>, comm: usize) -> Result<Vec<Part>, Failed> {
    room.resize(apart(all, copied), 0);
    let mut left = &mut room[..];
    let mut parts = Vec::with_capacity(all.len());
    for data in all {
        let bytes = data.bytes();
        if data.kind.is_plain() && !copied {
            parts.push(Part { at: data.at, bytes });
            continue;
        }
        let (here, rest) = left.split_at_mut(bytes);
        left = rest;
        if data.kind.is_plain() {
            // SAFETY: the program's own data
            unsafe { ptr::copy_nonoverlapping(data.at, here.as_mut_ptr(), bytes) };
        } else {
            data.pack(here, comm)?;
        }
        parts.push(Part { at: here.as_mut_ptr(), bytes });
    }
    Ok(parts)
}

/// Where parts may be put, one behind the other each: where they belong, or in `room`.
fn places(all: &[Data], room: &mut Vec<u8>) -> Vec<Part> {
    room.resize(apart(all, false), 0);
    let mut left = room.as_mut_ptr();
    let place = |data: &Data| {
        let bytes = data.bytes();
        let at = if data.kind.is_plain() { data.at } else { left };
        if !data.kind.is_plain() {
            left = left.wrapping_add(bytes);
        }
        Part { at, bytes }
    };
    all.iter().map(place).collect()
}

/// Puts what came to [`places`] where it belongs.
fn spread(all: &[Data], places: &[Part], came: &[usize], comm: usize) -> Result<(), Failed> {
    for ((data, place), came) in all.iter().zip(places).zip(came) {
        if data.kind.is_plain() || *came == 0 {
            continue;
        }
        // whole elements only: a message may be shorter than what it was expected to be
        let data = Data { count: came / data.kind.size, ..*data };
        // SAFETY: as many bytes of the room
        data.unpack(unsafe { std::slice::from_raw_parts(place.at, data.bytes()) }, comm)?;
    }
    Ok(())
}
