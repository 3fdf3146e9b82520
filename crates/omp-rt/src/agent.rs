//! Requests to the agent through the shared mapping, and exchanges: by the agent, or with other ranks of the same host directly. See `polyrail_omp::area` for how all
//! sides use it.

use core::cell::Cell;
use core::hint::spin_loop;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use polyrail_omp::area::{
    Area, Count, DONE, Exchange, FD, FREE, HEADER, Header, Kind, LOCALS, MAGIC, Places, REQUEST, SERVER,
    SLOT_DATA, Slot, VERSION, flag, setting,
};
use polyrail_omp::coherence::Answer;
use polyrail_omp::layout::{AREA, peer};

use crate::{stats, sys};

/// How long who waits for others looks whether they have come, giving way to whoever can run, before it sleeps.
pub const SPIN: Duration = Duration::from_micros(1000);

/// How often who asks looks for the answer between giving way: some 200 microseconds in all. (What time it is may be what is asked.)
const LOOKS: usize = 100;

static MAPPED: AtomicPtr<Area> = AtomicPtr::new(null_mut());

thread_local! {
    /// The slot that this thread asks by.
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

/// Whether there is an agent.
pub fn attached() -> bool {
    !MAPPED.load(Ordering::Relaxed).is_null()
}

/// A child of the program's has no agent: it is alone, with threads of its own.
pub fn detach() {
    MAPPED.store(null_mut(), Ordering::Release);
}

/// Maps what the agent handed over, if it did.
pub fn attach() {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a place for the answer; a descriptor that may not be one; an address that nobody else uses, by our layout
    unsafe {
        if sys::raw(libc::SYS_fstat, FD as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0) != 0 {
            return;
        }
        let length = stat.assume_init().st_size as usize;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = sys::raw(libc::SYS_mmap, AREA, length, protection as usize, flags as usize, FD as usize, 0);
        if at != AREA as isize || length < size_of::<Area>() {
            sys::fail(format_args!("the mapping of the agent cannot be had at {AREA:#x} ({at})"));
        }
        sys::raw(libc::SYS_close, FD as usize, 0, 0, 0, 0, 0);
        let area = AREA as *mut Area;
        if (*area).magic != MAGIC || (*area).version != VERSION {
            sys::fail(format_args!("the runtime and the agent are not of one build"));
        }
        MAPPED.store(area, Ordering::Release);
    }
    if shares() {
        (0..area().size as usize).filter(|rank| *rank != area().rank as usize).for_each(attach_peer);
    }
}

/// Maps the file of another rank of this host, as both agents have found that it can be.
fn attach_peer(rank: usize) {
    let path = area().files[rank].path();
    let bytes = places().shared();
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: a path that ends with zero; an address that nobody else uses, by our layout; a descriptor of our own
    let it = unsafe {
        let file = sys::raw(
            libc::SYS_open,
            path.as_ptr() as usize,
            (libc::O_RDWR | libc::O_CLOEXEC) as usize,
            0,
            0,
            0,
            0,
        );
        let at = sys::raw(
            libc::SYS_mmap,
            peer(rank),
            bytes,
            protection as usize,
            flags as usize,
            file as usize,
            0,
        );
        if file < 0 || at != peer(rank) as isize {
            sys::fail(format_args!(
                "what rank {rank} shares on this host cannot be had: error {} of {} (POLYRAIL_OMP_SHM=0 does without)",
                -file.min(at),
                path.trim_end_matches('\0')
            ));
        }
        sys::raw(libc::SYS_close, file as usize, 0, 0, 0, 0, 0);
        area_of(rank)
    };
    if (it.magic, it.rank as usize, it.nonce) != (MAGIC, rank, area().nonces[rank]) {
        sys::fail(format_args!("{} is not what rank {rank} shares", path.trim_end_matches('\0')));
    }
}

/// Whether each thread of all ranks of this host has a processor; nothing without an agent.
pub fn may_spin() -> Option<bool> {
    attached().then(|| area().settings & setting::SPIN != 0)
}

/// Whether all ranks are on this host and see each other's mappings.
fn shares() -> bool {
    area().settings & setting::SHARED != 0
}

/// A rank's mapping, where files are shared.
fn area_of(rank: usize) -> &'static Area {
    if rank == area().rank as usize {
        return area();
    }
    // SAFETY: mapped for good by `attach_peer`; what is not atomic in it is read when it does not change
    unsafe { &*(peer(rank) as *const Area) }
}

/// What is shared with the agent; there must be one.
pub fn area() -> &'static Area {
    // SAFETY: mapped for good by `attach`; what is not atomic in it was written before the program began, or is in cells
    unsafe { &*MAPPED.load(Ordering::Relaxed) }
}

fn places() -> Places {
    let area = area();
    Places::new(area.size as usize, area.blob as usize)
}

fn at(offset: usize) -> *mut u8 {
    (AREA + offset) as *mut u8
}

/// The calling thread asks by slot `index` from now on.
pub fn use_slot(index: usize) {
    assert!(index < LOCALS);
    SLOT.set(index);
}

/// Asks, and waits for the answer. At most [`SLOT_DATA`] bytes of data.
/// The data of the answer are there until the thread asks again.
pub fn ask(kind: Kind, args: [u64; 6], data: &[&[u8]]) -> Answer<&'static [u8]> {
    let index = SLOT.get();
    let slot = &area().slots[index];
    let place = at(places().data(index));
    // SAFETY: the slot is this thread's, and free between its requests: the agent looks at it only between REQUEST and DONE
    unsafe {
        let mut bytes = 0;
        for part in data {
            assert!(bytes + part.len() <= SLOT_DATA);
            place.add(bytes).copy_from_nonoverlapping(part.as_ptr(), part.len());
            bytes += part.len();
        }
        *slot.kind.get() = kind as u32;
        *slot.args.get() = args;
        *slot.bytes.get() = bytes as u64;
    }
    slot.state.store(REQUEST, Ordering::SeqCst);
    area().requests.fetch_add(1, Ordering::Relaxed);
    area().asking.fetch_or(1 << index, Ordering::SeqCst);
    ring();
    wait_for_answer(&slot.state);
    slot.state.store(FREE, Ordering::Relaxed);
    // SAFETY: as above; the agent wrote no more than fits
    unsafe {
        let bytes = (*slot.bytes.get() as usize).min(SLOT_DATA);
        Answer { result: *slot.result.get(), data: slice::from_raw_parts(place, bytes) }
    }
}

/// Waits for an answer. A processor that sleeps takes longer to wake than the agent to answer.
fn wait_for_answer(state: &AtomicU32) {
    for _ in 0..if may_spin() == Some(true) { LOOKS } else { 0 } {
        for _ in 0..64 {
            if state.load(Ordering::Acquire) == DONE {
                return;
            }
            spin_loop();
        }
        // the agent may be on this processor
        sys::pause(0);
    }
    while state.load(Ordering::Acquire) != DONE {
        sys::wait(state, REQUEST);
    }
}

/// Whether threads are to offer the tasks that they meet.
pub fn wants_tasks() -> bool {
    let area = if shares() { area_of(0) } else { area() };
    area.wanted.load(Ordering::Relaxed) != 0
}

fn ring() {
    let area = if shares() { area_of(0) } else { area() };
    area.doorbell.fetch_add(1, Ordering::SeqCst);
    if area.asleep.load(Ordering::SeqCst) != 0 {
        sys::wake(&area.doorbell, 1);
    }
}

/// Tells why the run cannot go on; the agent ends this process.
pub fn fail(text: &str) {
    let text = &text.as_bytes()[..text.len().min(SLOT_DATA)];
    ask(Kind::Fail, [0; 6], &[text]);
}

/// What must be the same on all ranks.
pub fn same(what: u64, text: &[u8]) -> Result<(), String> {
    let answer = ask(Kind::Same, [what, 0, 0, 0, 0, 0], &[&text[..text.len().min(SLOT_DATA)]]);
    if answer.result[0] == 1 { Ok(()) } else { Err(String::from_utf8_lossy(answer.data).into_owned()) }
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The out buffer of the next exchange. One thread at a time may exchange.
#[allow(clippy::mut_from_ref, reason = "the buffer is in the mapping, and belongs to who exchanges")]
pub fn out() -> &'static mut [u8] {
    let next = NUMBER.load(Ordering::Relaxed) + 1;
    let b = (next & 1) as usize;
    wait_for_readers(next.saturating_sub(2));
    // SAFETY: the buffer is the exchanging thread's until it submits, and after the exchange again
    unsafe { slice::from_raw_parts_mut(at(places().out(b)), area().blob as usize) }
}

/// Bytes that a blob may have.
pub fn blob() -> usize {
    area().blob as usize
}

/// What all ranks said in one exchange. Its bytes stay where they are until it is dropped.
pub struct Said {
    b: usize,
    number: u32,
}

impl Drop for Said {
    fn drop(&mut self) {
        if shares() {
            let Area { read, read_sleepers, .. } = area();
            tell(read, read_sleepers, self.number);
        }
    }
}

/// Sets a number that other ranks may sleep on.
fn tell(word: &AtomicU32, sleepers: &AtomicU32, number: u32) {
    word.store(number, Ordering::SeqCst);
    if sleepers.load(Ordering::SeqCst) > 0 {
        sys::wake(word, u32::MAX);
    }
}

/// Where files are shared: waits until all others have read exchange `number`, so that its buffer and header can be used again.
fn wait_for_readers(number: u64) {
    if number == 0 || !shares() {
        return;
    }
    let begun = Instant::now();
    for rank in (0..area().size as usize).filter(|rank| *rank != area().rank as usize) {
        let Area { read, read_sleepers, .. } = area_of(rank);
        wait_for(read, read_sleepers, begun, |read| read.wrapping_sub(number as u32).cast_signed() >= 0);
    }
}

impl Said {
    /// Of one rank.
    pub fn header(&self, rank: usize) -> &'static Header {
        // SAFETY: the agent, or the rank, has written it, and does not before the next but one exchange
        unsafe {
            match shares() {
                true => &*area_of(rank).exchange[self.b].header.get(),
                false => &*at(places().header(self.b, rank)).cast::<Header>(),
            }
        }
    }

    /// Of one rank; of this rank what it submitted.
    pub fn blob(&self, rank: usize) -> &'static [u8] {
        let places = places();
        let bytes = (self.header(rank).bytes.min(area().blob)) as usize;
        let place = match rank == area().rank as usize {
            true => at(places.out(self.b)),
            false if shares() => (peer(rank) + places.out(self.b)) as *mut u8,
            false => at(places.blob(self.b, rank)),
        };
        // SAFETY: as above, and inside the mapping
        unsafe { slice::from_raw_parts(place, bytes) }
    }
}

/// An exchange that is under way.
pub struct Submitted {
    b: usize,
    number: u32,
    is_round: bool,
}

/// Submits what is in [`out`], and waits for all ranks.
pub fn exchange(header: Header) -> Said {
    submit(header).wait()
}

/// Submits what is in [`out`]. What was said in the last exchange but one has been dropped.
pub fn submit(mut header: Header) -> Submitted {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    let b = (number & 1) as usize;
    let area = area();
    header.number = number;
    header.rank = area.rank;
    let Exchange { state, sleepers, header: place } = &area.exchange[b];
    wait_for_readers(number.saturating_sub(2));
    // SAFETY: free: the last exchange by this buffer is over
    unsafe { *place.get() = header };
    if shares() {
        tell(state, sleepers, number as u32);
    } else {
        state.store(REQUEST, Ordering::SeqCst);
        ring();
    }
    Submitted { b, number: number as u32, is_round: header.flags & flag::ROUND != 0 }
}

impl Submitted {
    /// Waits for all ranks.
    pub fn wait(self) -> Said {
        let Self { b, number, is_round } = self;
        if shares() {
            let begun = Instant::now();
            for rank in (0..area().size as usize).filter(|rank| *rank != area().rank as usize) {
                let Exchange { state, sleepers, .. } = &area_of(rank).exchange[b];
                wait_for(state, sleepers, begun, |submitted| submitted == number);
            }
            if !is_round {
                stats::add(Count::Waiting, begun.elapsed().as_nanos() as u64);
            }
        } else {
            let state = &area().exchange[b].state;
            while state.load(Ordering::Acquire) != DONE {
                sys::wait(state, REQUEST);
            }
            state.store(FREE, Ordering::Relaxed);
        }
        Said { b, number }
    }
}

/// Waits for another rank to set a number that is `good`; `begun`: since when.
fn wait_for(word: &AtomicU32, sleepers: &AtomicU32, begun: Instant, good: impl Fn(u32) -> bool) {
    let spins = may_spin() == Some(true);
    let mut rounds = 0_u32;
    while !good(word.load(Ordering::Acquire)) {
        rounds += 1;
        if spins && !rounds.is_multiple_of(64) {
            spin_loop();
        } else if spins && begun.elapsed() < SPIN {
            // an agent may be what the other rank waits for
            sys::pause(0);
        } else {
            sleepers.fetch_add(1, Ordering::SeqCst);
            let now = word.load(Ordering::SeqCst);
            if !good(now) {
                sys::wait(word, now);
            }
            sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Rank 0's server thread: waits for the agent's next request and answers it by `f`, which takes the question and writes the answer over it.
pub fn serve(mut f: impl FnMut(&mut [u8], usize) -> usize) -> ! {
    let slot: &Slot = &area().slots[SERVER];
    let place = at(places().data(SERVER));
    loop {
        let state = slot.state.load(Ordering::Acquire);
        if state != REQUEST {
            sys::wait(&slot.state, state);
            continue;
        }
        // SAFETY: between REQUEST and DONE it is ours
        unsafe {
            let bytes = (*slot.bytes.get() as usize).min(SLOT_DATA);
            let data = slice::from_raw_parts_mut(place, SLOT_DATA);
            *slot.bytes.get() = f(data, bytes) as u64;
        }
        slot.state.store(DONE, Ordering::SeqCst);
        ring();
    }
}

const _: () = assert!(HEADER == size_of::<Header>());
