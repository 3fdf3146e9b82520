//! Serial code on every rank (`--serial replicated`), so that what it writes need not travel.
//!
//! Rank 0 is the program here, too: its serial code alone counts and has effects. The others' serial code foretells what it writes. When a region begins all ranks
//! compare what changed, by a digest; where that differs, rank 0's contents are taken. So what differs between ranks costs time, and nothing else, as long as all come
//! to the same regions by the same system calls; if they do not, the run ends and says so.
//!
//! | module | does |
//! |---|---|
//! | `record` | system calls: carried out by rank 0, whose results the others get |
//! | `time` | functions of the C library that tell the time without a system call |
//!
//! What differs between ranks in here leaves no trace on the main stack: this works on stacks of its own.

mod record;
mod time;

use core::sync::atomic::{AtomicUsize, Ordering::*};
use std::collections::BTreeSet;

use polyrail_omp::area::{Count, setting};

use polyrail_omp::coherence::{Said as _, Tracked};

use crate::coherence::Said;
use crate::region::Region;
use crate::{coherence, exchange, library, mapping, modules, output, remote, run, stats, sys, track};

pub use record::{call, serve, to_write};
pub use time::find as find_time;

/// What to do about what is not possible.
const HINT: &str = "run it with --serial master";
/// The point of the program that the begin of a region is, for exchanges: none that a barrier can be.
const BEGIN: u64 = u64::MAX - 1;
/// Bytes of a stack.
const STACK: usize = 8 << 20;

/// Where the stack ends that the runtime works on for serial code; 0 while it does.
static TOP: AtomicUsize = AtomicUsize::new(0);

/// Functions of which a program that uses them cannot be run on every rank: they start processes, threads and timers, wait for signals, load code, or share memory.
const MASTER: [&str; 43] = [
    "fork",
    "vfork",
    "clone",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "popen",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "pthread_create",
    "thrd_create",
    "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
    "_gfortran_system",
    "_gfortran_system_sub",
    "_gfortran_execute_command_line_i4",
    "_gfortran_execute_command_line_i8",
    "sigaltstack",
    "dlopen",
    "dlmopen",
    "socket",
    "socketpair",
    "shm_open",
    "shmget",
    "shmat",
    "memfd_create",
    "select",
    "pselect",
    "epoll_create",
    "epoll_create1",
    "alarm",
    "setitimer",
    "timer_create",
    "pause",
    "sigsuspend",
    "sigwait",
    "sigwaitinfo",
    "sigtimedwait",
    "sigfillset",
];

/// Decides whether serial code runs on every rank, alike on all: as the user asks, and the program allows.
pub fn choose() {
    if mapping::area().settings & setting::REPLICATED == 0 {
        return;
    }
    // reads ahead what a region's threads elsewhere would then read, too
    let reads_apart = ["_ZNSt8ios_base15sync_with_stdioEb", "_ZSt3cin"];
    let apart = reads_apart.iter().all(|name| modules::shared().any(|module| module.names(name)));
    let first = reads_apart.first().filter(|_| apart).copied();
    match first.or(modules::shared().find_map(|module| MASTER.into_iter().find(|name| module.names(name)))) {
        None => run::replicate(),
        Some(name) if run::rank() == 0 => {
            sys::say(&format!(
                "serial code runs on rank 0 alone (--serial master), as the program uses {name}"
            ));
        }
        Some(_) => {}
    }
}

/// Gives the main thread the stacks that the runtime, and its handlers of signals, work on for serial code.
pub fn prepare() {
    let alternate = libc::stack_t { ss_sp: sys::map(STACK).cast(), ss_flags: 0, ss_size: STACK };
    // SAFETY: a stack of this thread's own, for good
    unsafe { libc::sigaltstack(&raw const alternate, core::ptr::null_mut()) };
    TOP.store(sys::map(STACK) as usize + STACK, Relaxed);
}

/// Before `main`, whose words are at `words` on the main stack: makes equal what constructors left.
pub fn start(words: usize) {
    track::stack_floor(words);
    equalize(&[0; 4], &[]);
}

/// Runs `f` on a stack other than the main one.
pub fn aside<T>(f: impl FnOnce() -> T) -> T {
    extern "C" fn run<T, F: FnOnce() -> T>(job: usize) {
        // SAFETY: the caller's, which waits
        let job = unsafe { &mut *(job as *mut (Option<F>, Option<T>)) };
        job.1 = job.0.take().map(|f| f());
    }
    fn entry<T, F: FnOnce() -> T>(_: &(Option<F>, Option<T>)) -> extern "C" fn(usize) {
        run::<T, F>
    }
    let top = TOP.swap(0, Relaxed);
    if top == 0 {
        return f();
    }
    let mut job = (Some(f), None);
    let entry = entry(&job);
    // SAFETY: the stack is nobody's at this time; what unwinds ends the process
    unsafe { sys::on_stack(top, entry, &raw mut job as usize) };
    TOP.store(top, Relaxed);
    job.1.unwrap_or_else(|| sys::fail(format_args!("serial code was left in between")))
}

/// Makes all memories equal and has all ranks begin the same region: rank 0's team, place and arguments.
pub fn begin(region: &Region<'_>, sp: usize) -> Vec<usize> {
    library::check();
    output::flush_all();
    run::open(false);
    track::stack_floor(sp);
    let first = output::first();
    stats::region(region.function, region.place);
    let mut clock = stats::Clock::start();
    let key = [sp, region.function, usize::from(region.gomp), record::close()];
    let mut words = vec![region.team, region.place];
    words.extend(region.args);
    let words = equalize(&key, &words);
    clock.lap(Count::Beginning);
    remote::inside(first);
    words
}

/// Makes all memories equal, which serial code of all ranks changed alike, or nearly so. `key` must be the same on all ranks; gives rank 0's `words`.
fn equalize(key: &[usize; 4], words: &[usize]) -> Vec<usize> {
    let mut clock = stats::Clock::start();
    let digest = track::with(|state| {
        state.collect();
        state.digest()
    });
    let digest = digest.unwrap_or(0);
    let mut text: Vec<u8> = key.iter().chain(words).flat_map(|word| word.to_ne_bytes()).collect();
    text.extend(digest.to_ne_bytes());
    exchange::out()[..text.len()].copy_from_slice(&text);
    let said = exchange(text.len(), 0, &mut clock);
    let parts = |rank: usize| {
        let (key, rest) = said.blob(rank).split_at_checked(size_of_val(key))?;
        let (words, digest) = rest.split_last_chunk::<16>()?;
        Some((key, words, *digest))
    };
    let parts = |rank: usize| {
        parts(rank)
            .unwrap_or_else(|| sys::fail(format_args!("rank {rank} begins a region without saying which")))
    };
    let (theirs, words, zeros) = parts(0);
    let words = words.as_chunks().0.iter().map(|word| usize::from_ne_bytes(*word)).collect();
    if theirs != parts(run::rank()).0 {
        elsewhere(key, theirs);
    }
    if (1..run::size()).any(|rank| parts(rank).0 != theirs) {
        // who is elsewhere says so, and the agent ends this process
        wait_for_the_end();
    }
    let equal = (1..run::size()).all(|rank| parts(rank).2 == zeros);
    drop(said);
    if equal {
        track::with(Tracked::agree);
        clock.lap(Count::Applying);
    } else {
        repair();
    }
    words
}

/// Says the first `bytes` of what is to go out. What `clock` has measured before was finding changes.
fn exchange(bytes: usize, word: usize, clock: &mut stats::Clock) -> Said {
    clock.lap(Count::Finding);
    stats::add(Count::Exchanges, 1);
    stats::add(Count::BytesOut, bytes as u64);
    let said = coherence::tell(BEGIN, bytes, word);
    clock.lap(Count::Exchanging);
    said
}

/// Serial code of this rank begins another region than rank 0's.
fn elsewhere(key: &[usize; 4], theirs: &[u8]) -> ! {
    let theirs: Vec<usize> = theirs.as_chunks().0.iter().map(|word| usize::from_ne_bytes(*word)).collect();
    if key[3] != theirs[3] {
        record::missed();
    }
    let same = key[1] == theirs[1];
    let of = |key: &[usize]| match same {
        true => format!("{:#x} with the stack at {:#x}", key[1], key[0]),
        false => format!("{:#x}", key[1]),
    };
    sys::fail(format_args!(
        "serial code of rank {} has come to another parallel region than rank 0's: {} instead of {}. It depends on what differs between ranks; {HINT}",
        run::rank(),
        of(key),
        of(&theirs)
    ))
}

/// Finds which pages differ from rank 0's, and takes these from there.
fn repair() {
    let first = run::rank() == 0;
    let mut from = 0;
    let mut clock = stats::Clock::start();
    loop {
        let hashes = || track::with(|state| state.hashes(from, exchange::out())).unwrap_or((0, usize::MAX));
        let (bytes, next) = if first { hashes() } else { (0, from) };
        let said = exchange(bytes, next, &mut clock);
        let to = said.header(0).words[0] as usize;
        let wanted = match first {
            true => Vec::new(),
            // the main thread is here, and others wait
            false => track::with(|state| state.compare(from..to, said.blob(0))).unwrap_or_default(),
        };
        drop(said);
        let text: Vec<u8> = wanted.iter().flat_map(|at| at.to_ne_bytes()).collect();
        exchange::out()[..text.len()].copy_from_slice(&text);
        let said = exchange(text.len(), 0, &mut clock);
        if first {
            let wanted: BTreeSet<usize> = (1..run::size())
                .flat_map(|rank| said.blob(rank).as_chunks().0.iter().map(|at| usize::from_ne_bytes(*at)))
                .collect();
            let wanted = Vec::from_iter(wanted);
            track::with(|state| state.agree_except(from..to, &wanted));
        }
        if to == usize::MAX {
            break;
        }
        from = to;
    }
    clock.lap(Count::Finding);
    coherence::synchronize(BEGIN, 0, &[], &mut |_, _| {});
}

/// The run ends, by rank 0 or by who has said why.
fn wait_for_the_end() -> ! {
    loop {
        sys::pause(100_000);
    }
}
