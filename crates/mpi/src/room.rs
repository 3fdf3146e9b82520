//! The memory that this process's ranks' host shares: made once, as MPI starts, by the lowest rank of the host, and handed to the others over a
//! Unix socket. Communicators get pieces of it, and give them back.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use polyrail_core::wire::{Key, PeerId};
use polyrail_pmpi::{Function, abi};
use polyrail_rails::Config;
use polyrail_rails::host::host_id;
use polyrail_rails::shm::cma;
use polyrail_rails::shm::sealed::Sealed;
use polyrail_rails::sockets::unix;

use crate::area::{AREA, Area};
use crate::library::{Failed, allgather, begin_progress, comm_rank, comm_size};
use crate::sites;
use crate::ways;

/// What ranks must agree on besides: how memory looks, and what operations do with it. Another number is another companion, which
/// does not take part.
const LAYOUT: u64 = 5;
/// What `polyrail run` sets for ranks that are to have the companion: its file.
const VARIABLE: &str = "POLYRAIL_COMPANION";
/// Communicators' worth of areas that there are for each rank of a host, and most areas.
const COMMUNICATORS: usize = 16;
const MOST: usize = 4096;
/// For how long a rank waits for those of its host while MPI starts.
const PATIENCE: Duration = Duration::from_secs(30);

/// The front of the memory.
#[repr(C, align(4096))]
struct Front {
    /// Who looks for areas, or gives them back.
    lock: AtomicU32,
    /// Which areas are taken.
    taken: [AtomicU64; MOST / 64],
    /// How many of a piece's users have given it back, by its first area.
    back: [AtomicU32; MOST],
    /// The processes of the host's ranks, by place, and in which PID namespaces those numbers are; 0 before and after.
    processes: [AtomicU32; MOST],
    spaces: [AtomicU32; MOST],
}

/// What the ranks of a host share.
pub struct Room {
    /// The hosts of the world's ranks, by what they call themselves.
    pub hosts: Vec<u64>,
    /// The sites of the world's ranks.
    pub sites: Vec<u64>,
    /// The processes of the world's ranks, if this one reaches the memory of all on its host.
    pub reached: Option<Vec<i32>>,
    memory: Option<Memory>,
    crowded: bool,
}

struct Memory {
    sealed: Sealed,
    areas: usize,
    /// This rank's place among those of the host, and its PID namespace.
    place: usize,
    space: u32,
}

/// What others look for in the memory of this process.
static SIGN: AtomicU64 = AtomicU64::new(0);

static ROOM: OnceLock<Option<Room>> = OnceLock::new();

/// It, once MPI has started, where the ranks of the world agree to have one.
pub fn room() -> Option<&'static Room> {
    ROOM.get()?.as_ref()
}

/// Whether ranks of this host outnumber its processors.
pub fn crowded() -> bool {
    room().is_some_and(|room| room.crowded)
}

/// Whether no rank of this host is gone.
pub fn all_live() -> bool {
    room().and_then(|room| room.memory.as_ref()).is_none_or(Memory::all_live)
}

/// Finds the others of the host. Called by all ranks of the world, as MPI has started.
pub fn open() {
    ROOM.get_or_init(|| {
        find().unwrap_or_else(|why| {
            if !why.is_empty() {
                eprintln!("polyrail: collective operations are left to the MPI: {why}");
            }
            None
        })
    });
    if room().is_some() {
        ways::offer();
    }
}

/// This process leaves in good order.
pub fn leave() {
    if let Some(memory) = room().and_then(|room| room.memory.as_ref()) {
        memory.say_process(0);
    }
}

/// What each rank tells all others, in words.
type Told = [u64; 4];

fn tell(own: Told, ranks: usize) -> Result<Vec<Told>, Failed> {
    let mut all = vec![Told::default(); ranks];
    let (bytes, byte) = (size_of::<Told>() as i32, abi().byte);
    // SAFETY: buffers of as many bytes for each rank of the world
    unsafe {
        allgather(own.as_ptr().cast(), bytes, byte, all.as_mut_ptr().cast(), bytes, byte, abi().world)?
    };
    Ok(all)
}

/// GPUs' memory is for their MPI to move.
fn moves_device_memory() -> bool {
    static QUERIES: [Function; 3] = [
        Function::new(c"MPIX_Query_cuda_support"),
        Function::new(c"MPIX_Query_hip_support"),
        Function::new(c"MPIX_Query_ze_support"),
    ];
    QUERIES.iter().map(Function::address).any(|query| {
        // SAFETY: null, which is none, or a function of this name, which takes nothing and says yes or no
        let query = unsafe { std::mem::transmute::<*mut c_void, Option<extern "C" fn() -> c_int>>(query) };
        query.is_some_and(|query| query() == 1)
    })
}

fn find() -> Result<Option<Room>, String> {
    let world = abi().world;
    let (mut size, mut rank) = (0, 0);
    // SAFETY: places for the answers
    unsafe {
        comm_size(world, &mut size).map_err(text)?;
        comm_rank(world, &mut rank).map_err(text)?;
    }
    let (size, rank) = (size as usize, rank as usize);
    if size < 2 {
        return Ok(None);
    }
    let mut key = [0; 16];
    // empty: the user does without, whatever is loaded
    let is_off = std::env::var_os(VARIABLE).is_some_and(|set| set.is_empty());
    let ready = if is_off || moves_device_memory() { Err(String::new()) } else { Ok(()) };
    let ready =
        ready.and_then(|()| getrandom::fill(&mut key).map_err(|error| error.to_string())).and_then(|()| {
            let host = host_id().map_err(|error| error.to_string())?;
            let door =
                unix::listen(&name(&key)).map_err(|error| format!("listening on a Unix socket: {error}"))?;
            Ok((host.0, door))
        });
    let [front, back] = [0, 8].map(|at| u64::from_le_bytes(key[at..at + 8].try_into().expect("eight bytes")));
    let own = ready.as_ref().map_or(Told::default(), |(host, _)| [*host, LAYOUT, front, back]);
    let all = tell(own, size).map_err(text)?;
    let (_, door) = ready?;
    if let Some(other) = all.iter().position(|told| told[1] != LAYOUT) {
        return Err(match all[other][1] {
            0 => format!("rank {other} cannot"),
            _ => format!("rank {other} has another version of Polyrail"),
        });
    }
    let mates: Vec<usize> = (0..size).filter(|other| all[*other][0] == own[0]).collect();
    begin_progress(rank).map_err(text)?;
    let hosts: Vec<u64> = all.iter().map(|told| told[0]).collect();
    let most = hosts.iter().map(|one| hosts.iter().filter(|other| *other == one).count()).max();
    if most < Some(2) {
        let sites = find_sites(rank, &hosts)?;
        return Ok(Some(Room { hosts, sites, reached: None, memory: None, crowded: false }));
    }
    let areas = (mates.len() * COMMUNICATORS).min(MOST);
    let made = if mates.len() < 2 {
        drop(door);
        Ok(None)
    } else if mates[0] == rank {
        hand_out(door, &key, areas, mates.len() - 1).map(|sealed| Some(Memory::new(sealed, areas, 0)))
    } else {
        drop(door);
        let [_, _, front, back] = all[mates[0]];
        let (front, back) = (front.to_le_bytes(), back.to_le_bytes());
        let key = std::array::from_fn(|at| if at < 8 { front[at] } else { back[at - 8] });
        let place = mates.iter().position(|mate| *mate == rank).expect("a rank is on its host");
        take(&key, areas).map(|sealed| Some(Memory::new(sealed, areas, place)))
    };
    let mut sign = [0; 8];
    let signed = getrandom::fill(&mut sign).is_ok();
    SIGN.store(u64::from_le_bytes(sign), Ordering::Relaxed);
    let own = [
        u64::from(made.is_ok()),
        u64::from(std::process::id()),
        SIGN.as_ptr() as u64,
        u64::from_le_bytes(sign),
    ];
    let fine = tell(own, size).map_err(text)?;
    let memory = made?;
    if let Some(other) = fine.iter().position(|told| told[0] == 0) {
        return Err(format!("rank {other} does not reach those of its host"));
    }
    let reaches = |mate: &usize| {
        let [_, process, address, sign] = fine[*mate];
        cma::probe(process as i32, address, sign).is_ok()
    };
    let reached = (signed && mates.iter().all(reaches))
        .then(|| fine.iter().map(|[_, process, ..]| *process as i32).collect());
    let online = std::thread::available_parallelism().map_or(1, usize::from);
    // a rank that is bound to one processor says nothing of how many there are for all
    // SAFETY: a plain call
    let installed = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    let crowded = mates.len() > if online == 1 { installed } else { online };
    let sites = find_sites(rank, &hosts)?;
    Ok(Some(Room { hosts, sites, reached, memory, crowded }))
}

/// The sites of all ranks, whose hosts these are: as they are called, else as they are measured.
fn find_sites(rank: usize, hosts: &[u64]) -> Result<Vec<u64>, String> {
    let size = hosts.len();
    if hosts.iter().all(|host| *host == hosts[0]) {
        return Ok(vec![0; size]);
    }
    // a wrong setting the provider has told already
    let called = Config::from_env().ok().and_then(|config| config.site_number()).unwrap_or(0);
    let called: Vec<u64> = tell([called, 0, 0, 0], size).map_err(text)?.iter().map(|told| told[0]).collect();
    if called.iter().all(|name| *name != 0) {
        ways::tell_sites(&called, "as hosts call them");
        return Ok(called);
    }
    let measured = sites::measure(rank, hosts);
    // who failed tells it: others would wait
    let told = tell([measured.unwrap_or(0), u64::from(measured.is_ok()), 0, 0], size).map_err(text)?;
    measured.map_err(text)?;
    if let Some(other) = told.iter().position(|told| told[1] == 0) {
        return Err(format!("rank {other} does not reach those of other hosts"));
    }
    let measured: Vec<u64> = told.iter().map(|told| told[0]).collect();
    let found = sites::of_all(&measured, hosts);
    ways::tell_sites(&found, "a round trip between them takes a millisecond or more");
    Ok(found)
}

fn text(failed: Failed) -> String {
    format!("the MPI's own messages fail ({failed:?})")
}

/// Where who has drawn this key listens. The name can be seen by anybody; the key cannot be told from it.
fn name(key: &[u8; 16]) -> Vec<u8> {
    let hex = |id: PeerId| id.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let hex = Key::new(*key).map(|key| hex(key.id())).unwrap_or_default();
    format!("polyrail-mpi-{hex}").into_bytes()
}

fn size_of_all(areas: usize) -> usize {
    size_of::<Front>() + areas * AREA
}

fn hand_out(door: OwnedFd, key: &[u8; 16], areas: usize, others: usize) -> Result<Sealed, String> {
    let (sealed, descriptor) = Sealed::create(size_of_all(areas)).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + PATIENCE;
    let mut served = 0;
    let late = |error: io::Error| format!("a rank of this host does not come for the memory: {error}");
    while served < others {
        ready(door.as_fd(), libc::POLLIN, deadline).map_err(late)?;
        if Instant::now() >= deadline {
            return Err(late(io::ErrorKind::TimedOut.into()));
        }
        let one = match unix::accept(door.as_fd()) {
            Ok(one) => one,
            // another user's, or one that has gone again: turned away, and that is all
            Err(error)
                if !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) =>
            {
                continue;
            }
            Err(error) => return Err(late(error)),
        };
        let mut theirs = [0; 16];
        let said = ready(one.as_fd(), libc::POLLIN, deadline)
            .and_then(|()| unix::recv(one.as_fd(), &mut theirs, &mut Vec::new()));
        if said.is_ok_and(|bytes| bytes == theirs.len()) && theirs == *key {
            unix::send(one.as_fd(), &[0], &[descriptor.as_fd()]).map_err(late)?;
            served += 1;
        }
    }
    Ok(sealed)
}

fn take(key: &[u8; 16], areas: usize) -> Result<Sealed, String> {
    let deadline = Instant::now() + PATIENCE;
    let failed = |error: io::Error| format!("the host's memory does not come: {error}");
    let maker = loop {
        match unix::connect_to_own(&name(key)) {
            // its queue is full
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            answer => break answer.map_err(failed)?,
        }
    };
    unix::send(maker.as_fd(), key, &[]).map_err(failed)?;
    let mut descriptors = Vec::new();
    ready(maker.as_fd(), libc::POLLIN, deadline).map_err(failed)?;
    unix::recv(maker.as_fd(), &mut [0], &mut descriptors).map_err(failed)?;
    let descriptor = descriptors.pop().ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))?;
    Sealed::open(descriptor.as_fd(), size_of_all(areas)).map_err(|error| error.to_string())
}

/// Waits until a descriptor is ready, or the time has come.
fn ready(descriptor: BorrowedFd<'_>, events: i16, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events, revents: 0 };
        // SAFETY: one descriptor to look at
        match unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as i32) } {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            1 => return Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

impl Room {
    /// Areas for `n` ranks of this host; where the first of them is.
    pub fn piece(&self, n: usize) -> Option<u32> {
        self.memory.as_ref()?.piece(n)
    }

    /// A rank's area in a piece.
    pub fn area(&self, first: u32, place: usize) -> Option<Area> {
        let memory = self.memory.as_ref()?;
        let at = first as usize + place;
        (at < memory.areas).then(|| memory.area(at))
    }

    /// One of the `n` users of a piece has no more use for it.
    pub fn give_back(&self, first: u32, n: usize) {
        let Some(memory) = &self.memory else { return };
        let back = &memory.front().back[first as usize];
        if back.fetch_add(1, Ordering::AcqRel) + 1 == n as u32 && memory.lock() {
            back.store(0, Ordering::Relaxed);
            memory.mark(first as usize, n, false);
            memory.front().lock.store(0, Ordering::Release);
        }
    }
}

impl Memory {
    fn new(sealed: Sealed, areas: usize, place: usize) -> Self {
        use std::os::unix::fs::MetadataExt;
        // 0 is nobody's: without /proc nothing is known of others
        let space = std::fs::metadata("/proc/self/ns/pid").map_or(0, |space| space.ino() as u32);
        let memory = Self { sealed, areas, place, space };
        memory.say_process(if space == 0 { 0 } else { std::process::id() });
        memory
    }

    fn front(&self) -> &Front {
        // SAFETY: zeros when it was made, and of atomics; mapped while `self` lives
        unsafe { self.sealed.at().cast::<Front>().as_ref() }
    }

    fn area(&self, at: usize) -> Area {
        let address: NonNull<u8> = self.sealed.at();
        // SAFETY: within the memory, which is mapped for as long as the process runs
        unsafe { Area::at(address.add(size_of::<Front>() + at * AREA)) }
    }

    /// False if whoever has it does not give it back: it was killed, and with it the job.
    fn lock(&self) -> bool {
        let start = Instant::now();
        while self.front().lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            if start.elapsed() > PATIENCE {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn is_taken(&self, at: usize) -> bool {
        self.front().taken[at / 64].load(Ordering::Relaxed) >> (at % 64) & 1 == 1
    }

    fn mark(&self, first: usize, n: usize, taken: bool) {
        for at in first..(first + n).min(self.areas) {
            let bit = 1 << (at % 64);
            let word = &self.front().taken[at / 64];
            let before = word.load(Ordering::Relaxed);
            word.store(if taken { before | bit } else { before & !bit }, Ordering::Relaxed);
        }
    }

    fn piece(&self, n: usize) -> Option<u32> {
        if n > self.areas || !self.lock() {
            return None;
        }
        let free = |first: &usize| (*first..first + n).all(|at| !self.is_taken(at));
        let first = (0..=self.areas - n).find(free);
        if let Some(first) = first {
            self.mark(first, n, true);
            for at in first..first + n {
                self.area(at).clear();
            }
        }
        self.front().lock.store(0, Ordering::Release);
        first.map(|first| first as u32)
    }

    fn say_process(&self, process: u32) {
        let front = self.front();
        if let (Some(space), Some(place)) = (front.spaces.get(self.place), front.processes.get(self.place)) {
            space.store(self.space, Ordering::Relaxed);
            place.store(process, Ordering::Release);
        }
    }

    /// Whether no rank of this host has ended without leaving. Of those in other PID namespaces nothing is known.
    fn all_live(&self) -> bool {
        let front = self.front();
        front.processes.iter().zip(&front.spaces).all(|(process, space)| {
            let process = process.load(Ordering::Acquire);
            let is_known = process != 0 && space.load(Ordering::Relaxed) == self.space;
            // SAFETY: no signal is sent
            !is_known
                || unsafe { libc::kill(process as i32, 0) } == 0
                || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
        })
    }
}
