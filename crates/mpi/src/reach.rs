//! What has another length at each rank, and what all exchange with all that is long: a slot says for each rank where its part is in its owner's
//! memory, out of which it is copied once (cross-memory attach). What is short enough is in the slot itself.
//!
//! Nobody leaves before all have read what is in its memory.

use std::ptr;

use polyrail_rails::rail::RawIov;
use polyrail_rails::shm::cma::{self, CmaError, RemoteIov};

use crate::area::PAYLOAD;
use crate::data::Data;
use crate::library::Failed;
use crate::team::{Call, Team};
use crate::ways::Way;

/// Ranks of a host up to which a slot has a line for each.
pub const MOST_RANKS: usize = PAYLOAD / size_of::<Entry>();

/// Bytes one behind the other, somewhere in this process.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where.
    pub at: *mut u8,
    /// How many.
    pub bytes: usize,
}

impl Part {
    fn entry(&self) -> Entry {
        Entry { at: self.at as u64, bytes: self.bytes as u64 }
    }
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
    /// Others look for it in this rank's memory.
    stays: bool,
}

impl Team {
    /// Copies out of another's memory.
    fn fetch(&self, place: usize, from: u64, into: Part) -> Result<(), Failed> {
        let iov = [RawIov { base: into.at, len: into.bytes }];
        // SAFETY: a place of the program's, or ours, that nobody else writes
        let done = unsafe { cma::read(self.pid(place), &iov, &[RemoteIov { base: from, len: into.bytes }]) };
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

    /// Says where this rank's parts are, or, if they are short enough, what they are.
    fn offer(&mut self, call: Call, parts: &[Part]) -> Result<Offer, Failed> {
        self.moves(parts.iter().fold(0, |all, part| all.saturating_add(part.bytes)));
        let turn = self.turn(PAYLOAD)?;
        let table = parts.len() * size_of::<Entry>();
        let all = parts.iter().fold(0usize, |all, part| all.saturating_add(part.bytes));
        let within = all <= PAYLOAD - table;
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
        Ok(Offer { number: turn.number(), stays: !within })
    }

    /// A slot's entry, as it is.
    fn entry(&self, place: usize, number: u64, call: Call, n: usize) -> Result<(*const u8, Entry), Failed> {
        let payload = self.read(place, number, call, PAYLOAD)?;
        // SAFETY: no more than MOST_RANKS entries, within the slot; any bits are an entry
        Ok((payload, unsafe { payload.cast::<Entry>().add(n).read() }))
    }

    /// Copies what an entry says to where it belongs; its bytes.
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

    /// What this rank offered to all may be changed when this is over.
    fn end_offer(&mut self, offer: &Offer) -> Result<(), Failed> {
        if offer.stays { self.wait_for_all(offer.number) } else { Ok(()) }
    }

    /// All offer a part to each, and get from each what is for them.
    fn exchange_parts(&mut self, call: Call, parts: &[Part], into: &[Part]) -> Result<Vec<usize>, Failed> {
        let offer = self.offer(call, parts)?;
        let mates = self.mates();
        let mut came = vec![0; mates];
        let mut done = Ok(());
        // not all out of the same memory at the same time
        for place in (0..mates).map(|step| (self.place + step) % mates) {
            let (payload, entry) = self.entry(place, offer.number, call, self.place)?;
            match self.copy(place, payload, entry, into[place]) {
                Ok(bytes) => came[place] = bytes,
                Err(failed) => done = Err(failed),
            }
        }
        self.over(offer.number);
        self.over_for_all(offer.number);
        self.end_offer(&offer)?;
        done.map(|()| came)
    }

    /// The root offers a part to each, and each gets its own; the root, too, unless it is there already.
    fn spread_parts(
        &mut self,
        call: Call,
        parts: Option<&[Part]>,
        into: Option<Part>,
    ) -> Result<usize, Failed> {
        let root = self.layout.place_of(call.root());
        let Some(parts) = parts else {
            let number = self.next();
            let (payload, entry) = self.entry(root, number, call, self.place)?;
            let done = into.map_or(Ok(0), |into| self.copy(root, payload, entry, into));
            self.over(number);
            return done;
        };
        let offer = self.offer(call, parts)?;
        self.over(offer.number);
        let done = into.map_or(Ok(0), |into| self.copy(root, ptr::null(), parts[root].entry(), into));
        self.end_offer(&offer)?;
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
            let offer = self.offer(call, own.as_slice())?;
            self.over(offer.number);
            if offer.stays {
                self.wait_for(root, offer.number)?;
            }
            return Ok(Vec::new());
        };
        let number = self.next();
        let mut came = vec![0; into.len()];
        let mut done = Ok(());
        for (place, into) in into.iter().enumerate() {
            let (payload, entry) = match own {
                // it is there already
                None if place == self.place => continue,
                Some(own) if place == self.place => (ptr::null(), own.entry()),
                _ => self.entry(place, number, call, 0)?,
            };
            match self.copy(place, payload, entry, *into) {
                Ok(bytes) => came[place] = bytes,
                Err(failed) => done = Err(failed),
            }
        }
        self.over(number);
        done.map(|()| came)
    }

    /// `MPI_Scatterv`: a part of the root's to each, unless it is there already.
    ///
    /// # Errors
    /// As all operations here: see [`Failed`].
    pub fn scatterv(&mut self, call: Call, from: Option<&[Data]>, own: Option<Data>) -> Result<(), Failed> {
        self.with_rooms(|team, sent, received| {
            let parts = from.map(|from| packed(from, false, sent, team.comm)).transpose()?;
            let own = own.as_slice();
            let into = places(own, received);
            team.goes(Way::Copies);
            let came = team.spread_parts(call, parts.as_deref(), into.first().copied())?;
            spread(own, &into, &[came], team.comm)
        })
    }

    /// `MPI_Gatherv`: a part of each to the root, which has its own there already if it offers none.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn gatherv(&mut self, call: Call, own: Option<Data>, into: Option<&[Data]>) -> Result<(), Failed> {
        self.with_rooms(|team, sent, received| {
            let own = packed(own.as_slice(), false, sent, team.comm)?.first().copied();
            let all = into.map(|into| places(into, received));
            team.goes(Way::Copies);
            let came = team.collect_parts(call, own, all.as_deref())?;
            into.zip(all).map_or(Ok(()), |(into, all)| spread(into, &all, &came, team.comm))
        })
    }

    /// `MPI_Alltoall`, `MPI_Alltoallv` and `MPI_Alltoallw`. Where `from` is `into`, parts are exchanged.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn alltoallv(
        &mut self,
        call: Call,
        from: &[Data],
        into: &[Data],
        in_place: bool,
    ) -> Result<(), Failed> {
        self.with_rooms(|team, sent, received| {
            let parts = packed(from, in_place, sent, team.comm)?;
            let places = places(into, received);
            team.goes(Way::Copies);
            let came = team.exchange_parts(call, &parts, &places)?;
            spread(into, &places, &came, team.comm)
        })
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
pub fn places(all: &[Data], room: &mut Vec<u8>) -> Vec<Part> {
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
pub fn spread(all: &[Data], places: &[Part], came: &[usize], comm: usize) -> Result<(), Failed> {
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
