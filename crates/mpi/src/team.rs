//! A communicator whose operations are carried out here.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};

use polyrail_core::coll::layout::Layout;
use polyrail_core::coll::sites::Sites;
use polyrail_pmpi::abi;

use crate::area::{self, Area};
use crate::group::Casts;
use crate::library::{
    Failed, allgather, comm_free, comm_group, comm_rank, comm_size, comm_test_inter, group_free,
    group_translate_ranks, private,
};
use crate::room::{Room, room};
use crate::wait;
use crate::ways::Way;

/// Communicators of ours for messages between hosts, of which MPIs have a limited number.
static BETWEEN: AtomicUsize = AtomicUsize::new(0);
const MOST_BETWEEN: usize = 64;

/// The ranks of a communicator, its memory on this host, and how far it has come.
pub struct Team {
    /// The program's communicator.
    pub comm: usize,
    /// This process's rank.
    pub rank: usize,
    /// Who shares hosts.
    pub layout: Layout,
    /// Its hosts by sites, where there are several.
    pub sites: Option<Sites>,
    /// This process's host, and its place among the ranks there.
    pub host: usize,
    /// See `host`.
    pub place: usize,
    /// Of the ranks of this host. None if there is one only.
    areas: Vec<Area>,
    piece: Option<u32>,
    /// Their processes, where all ranks reach the memory of those on their host.
    processes: Option<Vec<i32>>,
    /// A communicator of ours with the same ranks, where there are several hosts.
    pub between: Option<usize>,
    /// Its hosts as a group that hears what is sent once.
    pub casts: Casts,
    /// Operations begun, all by the same numbers on all ranks of the host.
    begun: u64,
    /// All ranks of the host have read what they read of operations up to this one.
    read_by_all: u64,
    /// Room for data that are packed, for what is combined or still to be unpacked, and for what comes from another host.
    pub rooms: [Vec<u8>; 3],
    /// Which way the operation goes, and how many bytes of this rank it is of.
    way: Cell<Way>,
    moved: Cell<usize>,
}

/// A call, as slots name it: what is called, the root, and the bytes that it is of.
#[derive(Clone, Copy)]
pub struct Call {
    /// Which operation; not 0.
    what: u8,
    root: usize,
    bytes: Option<usize>,
}

impl Call {
    /// By the number of the operation, and the rank of the root, or 0. As long as each slot says.
    pub fn new(what: u8, root: usize) -> Self {
        Self { what, root, bytes: None }
    }

    /// The same of so many bytes, whatever slots have.
    pub fn of(self, bytes: usize) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// The same of as many bytes as each rank likes.
    pub fn of_any(self) -> Self {
        self.of(usize::MAX)
    }

    /// Which operation.
    pub fn what(&self) -> u8 {
        self.what
    }

    /// The rank of the root, or 0.
    pub fn root(&self) -> usize {
        self.root
    }

    fn tag(self, slot: usize) -> u64 {
        let bytes = self.bytes.unwrap_or(slot).min(u32::MAX as usize);
        u64::from(self.what) << 56 | (self.root as u64 & 0xff_ffff) << 32 | bytes as u64
    }
}

/// What a slot's tag says, for people: the function's name is the caller's business.
pub fn told(tag: u64) -> (u8, usize, usize) {
    ((tag >> 56) as u8, (tag >> 32 & 0xff_ffff) as usize, (tag & 0xffff_ffff) as usize)
}

/// A slot that is this rank's to fill.
pub struct Turn {
    number: u64,
    bytes: usize,
    /// Where its bytes go.
    pub payload: *mut u8,
}

impl Team {
    /// Called by all ranks of a communicator at once; all get one, or none.
    ///
    /// # Errors
    /// The MPI's own messages fail.
    pub fn new(comm: usize) -> Result<Option<Self>, Failed> {
        let Some(room) = room() else { return Ok(None) };
        let Some(Members { rank, size, in_world, hosts }) = members(comm, room)? else { return Ok(None) };
        let layout = Layout::new(&hosts);
        let site_of = |host| room.sites[in_world[layout.speaker(host, None)]];
        let sites = Sites::new(&(0..layout.hosts()).map(site_of).collect::<Vec<_>>());
        let (host, place) = (layout.host_of(rank), layout.place_of(rank));
        let mates = layout.members(host).len();
        let several = layout.hosts() > 1;
        let own = if place == 0 && mates > 1 { room.piece(mates) } else { None };
        let may = !several || BETWEEN.load(Ordering::Relaxed) < MOST_BETWEEN;
        let told = [own.map_or(u64::MAX, u64::from), u64::from(may), u64::from(room.reached.is_some())];
        let told = tell(told, size, comm)?;
        let piece_of = |host: usize| told[layout.members(host)[0] as usize][0];
        let has_piece = |host| layout.members(host).len() < 2 || piece_of(host) != u64::MAX;
        let piece = u32::try_from(piece_of(host)).ok();
        if !(0..layout.hosts()).all(has_piece) || told.iter().any(|told| told[1] == 0) {
            if let Some(piece) = own {
                (0..mates).for_each(|_| room.give_back(piece, mates));
            }
            return Ok(None);
        }
        let areas = piece.map(|piece| (0..mates).filter_map(|place| room.area(piece, place)).collect());
        let reached = room.reached.as_ref().filter(|_| told.iter().all(|told| told[2] == 1));
        let processes = reached.map(|all| {
            let of = |rank: &u32| all[in_world[*rank as usize]];
            layout.members(host).iter().map(of).collect()
        });
        let between = if several {
            let made = private(comm, rank);
            // one that has none would leave the others waiting
            if tell([u64::from(made.is_ok()), 0, 0], size, comm)?.iter().any(|told| told[0] == 0) {
                return Ok(None);
            }
            BETWEEN.fetch_add(1, Ordering::Relaxed);
            Some(made?)
        } else {
            None
        };
        Ok(Some(Self {
            comm,
            rank,
            layout,
            sites,
            host,
            place,
            areas: areas.unwrap_or_default(),
            piece,
            processes,
            between,
            casts: Casts::Unasked,
            begun: 0,
            read_by_all: 0,
            rooms: [const { Vec::new() }; 3],
            way: Cell::new(Way::Kind),
            moved: Cell::new(0),
        }))
    }

    /// An operation begins: if nobody says more, it is the MPI's for what it is of.
    pub fn began(&self) {
        self.way.set(Way::Kind);
        self.moved.set(0);
    }

    /// It goes this way.
    pub fn goes(&self, way: Way) {
        self.way.set(way);
    }

    /// It is of so many bytes of this rank.
    pub fn moves(&self, bytes: usize) {
        self.moved.set(bytes);
    }

    /// Which way it went.
    pub fn way(&self) -> Way {
        self.way.get()
    }

    /// The bytes.
    pub fn moved(&self) -> usize {
        self.moved.get()
    }

    /// Ranks of this host.
    pub fn mates(&self) -> usize {
        self.layout.members(self.host).len()
    }

    /// The rank of one of this host's places.
    pub fn rank_at(&self, place: usize) -> usize {
        self.layout.members(self.host)[place] as usize
    }

    /// The next operation, to which this rank contributes nothing.
    pub fn next(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// The next operation, to which this rank contributes so many bytes: its slot, once nobody reads any more what was in it.
    ///
    /// # Errors
    /// See [`wait::until`].
    pub fn turn(&mut self, bytes: usize) -> Result<Turn, Failed> {
        debug_assert!(bytes <= area::PAYLOAD, "it goes in pieces");
        let number = self.next();
        let before = number.saturating_sub(area::round(bytes));
        if self.read_by_all < before {
            let mut least = number;
            for (_, area) in self.areas.iter().enumerate().filter(|(place, _)| *place != self.place) {
                least = least.min(wait::until(area.done(), |done| done >= before)?);
            }
            self.read_by_all = least;
        }
        Ok(Turn { number, bytes, payload: self.areas[self.place].slot(number, bytes).payload() })
    }

    /// All of a contribution is in its slot.
    pub fn fill(&self, turn: &Turn, call: Call) {
        let slot = self.areas[self.place].slot(turn.number, turn.bytes);
        slot.fill(turn.number, call.tag(turn.bytes));
    }

    /// Waits for another's contribution to an operation.
    ///
    /// # Errors
    /// See [`wait::until`]; or the other calls something else.
    pub fn read(&self, place: usize, number: u64, call: Call, bytes: usize) -> Result<*const u8, Failed> {
        let slot = self.areas[place].slot(number, bytes);
        let (expected, mut found) = (call.tag(bytes), None);
        // who has contributed more or less has done so elsewhere
        let elsewhere = self.areas[place].other_slot(number, bytes);
        let is_elsewhere = || elsewhere.word().number.load(Ordering::Acquire) == number;
        wait::until(slot.word(), |there| {
            if there == number {
                found = Some(slot.tag());
            } else if is_elsewhere() {
                found = Some(elsewhere.tag());
            }
            found.is_some()
        })?;
        match found {
            Some(found) if found != expected => {
                Err(Failed::Differs { rank: self.rank_at(place), expected, found })
            }
            _ => Ok(slot.payload()),
        }
    }

    /// The process of one of this host's places, where ranks reach each other's memory.
    pub fn process(&self, place: usize) -> Option<i32> {
        self.processes.as_ref()?.get(place).copied()
    }

    /// Whether the ranks of each host reach each other's memory: the same on all ranks.
    pub fn reaches(&self) -> bool {
        self.processes.is_some()
    }

    /// Waits until another has read what it reads of an operation.
    ///
    /// # Errors
    /// See [`wait::until`].
    pub fn wait_for(&self, place: usize, number: u64) -> Result<(), Failed> {
        wait::until(self.areas[place].done(), |done| done >= number).map(drop)
    }

    /// The same of all others.
    ///
    /// # Errors
    /// See [`wait::until`].
    pub fn wait_for_all(&mut self, number: u64) -> Result<(), Failed> {
        for place in (0..self.mates()).filter(|place| *place != self.place) {
            self.wait_for(place, number)?;
        }
        self.read_by_all = self.read_by_all.max(number);
        Ok(())
    }

    /// This rank has read what it reads of an operation.
    pub fn over(&self, number: u64) {
        if let Some(area) = self.areas.get(self.place) {
            area.done().write(number);
        }
    }

    /// The same where it has heard of all others: each has begun this operation, and read what it reads of those before.
    pub fn over_for_all(&mut self, number: u64) {
        self.read_by_all = self.read_by_all.max(number - 1);
    }

    /// Carries something out with the first two rooms, of which little is kept for the next time. What failed may have left messages under way,
    /// which the MPI still takes out of them, or puts there: then they are never given back.
    ///
    /// # Errors
    /// What it says.
    pub fn with_rooms(
        &mut self,
        run: impl FnOnce(&mut Self, &mut Vec<u8>, &mut Vec<u8>) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        // an operation of the program's own may leave by an exception
        let mut rooms = [0, 1].map(|room| ManuallyDrop::new(std::mem::take(&mut self.rooms[room])));
        let [first, second] = &mut rooms;
        let done = run(self, first, second);
        for (which, room) in rooms.into_iter().enumerate() {
            self.keep(which, room, &done);
        }
        done
    }

    /// The same with the third.
    ///
    /// # Errors
    /// See [`with_rooms`](Self::with_rooms).
    pub fn with_room(
        &mut self,
        run: impl FnOnce(&mut Self, &mut Vec<u8>) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let mut room = ManuallyDrop::new(std::mem::take(&mut self.rooms[2]));
        let done = run(self, &mut room);
        self.keep(2, room, &done);
        done
    }

    fn keep(&mut self, which: usize, room: ManuallyDrop<Vec<u8>>, done: &Result<(), Failed>) {
        // what a long allreduce takes, between sites, too
        const KEPT: usize = 16 << 20;
        if done.is_err() {
            return;
        }
        let room = ManuallyDrop::into_inner(room);
        if room.capacity() <= KEPT {
            self.rooms[which] = room;
        }
    }

    /// The communicator ends.
    pub fn end(&mut self, finalizing: bool) {
        if let (Some(room), Some(piece)) = (room(), self.piece) {
            room.give_back(piece, self.mates());
        }
        if self.between.is_some() {
            BETWEEN.fetch_sub(1, Ordering::Relaxed);
        }
        if let (Some(mut comm), false) = (self.between.take(), finalizing) {
            // SAFETY: made by `private`, and used by nobody else; that it cannot be given back changes nothing
            let _ = unsafe { comm_free(&mut comm) };
        }
    }
}

impl Turn {
    /// The operation's number.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The ranks of a communicator that may have something of ours.
pub struct Members {
    /// This process's rank.
    pub rank: usize,
    /// How many there are: at least two.
    pub size: usize,
    /// Which ranks of the world they are.
    pub in_world: Vec<usize>,
    /// Their hosts.
    pub hosts: Vec<u64>,
}

/// Who they are; nobody if there are two groups, one rank, or one that is not of the world.
///
/// # Errors
/// What the MPI says.
pub fn members(comm: usize, room: &Room) -> Result<Option<Members>, Failed> {
    let (mut inter, mut size, mut rank): (c_int, c_int, c_int) = (0, 0, 0);
    // SAFETY: the program's communicator, and places for the answers
    unsafe {
        comm_test_inter(comm, &mut inter)?;
        comm_size(comm, &mut size)?;
        comm_rank(comm, &mut rank)?;
    }
    if inter != 0 || size < 2 {
        return Ok(None);
    }
    let (size, rank) = (size as usize, rank as usize);
    let Some(in_world) = in_world(comm, size)? else { return Ok(None) };
    let hosts: Option<Vec<u64>> = in_world.iter().map(|rank| room.hosts.get(*rank).copied()).collect();
    Ok(hosts.map(|hosts| Members { rank, size, in_world, hosts }))
}

/// The world's ranks of a communicator's ranks; nothing if one of them is not of the world, whose ranks alone are known to take part.
fn in_world(comm: usize, size: usize) -> Result<Option<Vec<usize>>, Failed> {
    let (mut ours, mut worlds) = (0, 0);
    let ranks: Vec<c_int> = (0..size as c_int).collect();
    let mut in_world = vec![-1; size];
    // SAFETY: the program's communicator, and places for as many answers
    unsafe {
        comm_group(comm, &mut ours)?;
        comm_group(abi().world, &mut worlds)?;
        group_translate_ranks(ours, size as c_int, ranks.as_ptr(), worlds, in_world.as_mut_ptr())?;
        group_free(&mut ours)?;
        group_free(&mut worlds)?;
    }
    Ok(in_world.iter().map(|rank| usize::try_from(*rank).ok()).collect())
}

/// What each rank of a communicator says to all.
///
/// # Errors
/// What the MPI says.
pub fn tell(own: [u64; 3], size: usize, comm: usize) -> Result<Vec<[u64; 3]>, Failed> {
    let mut all = vec![[0u64; 3]; size];
    let byte = abi().byte;
    // SAFETY: three words, and room for as many of each rank
    unsafe { allgather((&raw const own).cast(), 24, byte, all.as_mut_ptr().cast(), 24, byte, comm)? };
    Ok(all)
}
