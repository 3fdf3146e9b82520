//! Storage of threads of the team (`threadprivate`, `thread_local`), of all ranks. Rank 0's first thread is not one of them: it is as memory is.

use core::sync::atomic::Ordering::Relaxed;
use std::sync::Mutex;

use polyrail_omp::area::flag;
use polyrail_omp::coherence::Said as _;

use crate::{coherence, exchange, modules, output, pthread, run, team, thread};

/// The pieces of it that are the program's and its libraries': so many bytes below the pointer, and how many.
static PIECES: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// What this is called when all ranks tell each other.
const GATHER: u64 = u64::MAX - 1;
const SPREAD: u64 = u64::MAX - 2;

/// A thread's storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    pub rank: usize,
    /// Its number there.
    pub local: usize,
    /// The pieces, one after the other.
    pub bytes: Vec<u8>,
}

/// What was gathered at the end of the last region, or why it cannot be kept.
pub static GATHERED: Mutex<Option<Result<Vec<Storage>, String>>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// The first thread, before there are others.
pub fn begin() {
    let here = thread::pointer();
    let pieces = modules::shared().filter_map(|module| module.local).filter(|local| !local.is_empty());
    *locked(&PIECES) = pieces.map(|local| (here - local.start, local.len())).collect();
}

/// Threads that there are, by number.
fn present() -> impl Iterator<Item = (usize, usize)> {
    thread::POINTERS
        .iter()
        .map(|pointer| pointer.load(Relaxed))
        .enumerate()
        .filter(|(_, pointer)| *pointer != 0)
}

/// This rank's. No thread runs program code.
pub fn here() -> Vec<Storage> {
    let pieces = locked(&PIECES);
    let of = |(local, pointer): (usize, usize)| {
        let mut bytes = Vec::new();
        for &(below, length) in pieces.iter() {
            // SAFETY: a thread of the pool, which stays; what is loaded at the start has its storage at the same distance from each thread's pointer
            bytes.extend(unsafe { core::slice::from_raw_parts((pointer - below) as *const u8, length) });
        }
        Storage { rank: run::rank(), local, bytes }
    };
    if pieces.is_empty() { Vec::new() } else { present().map(of).collect() }
}

/// Puts storage back into a thread of this rank. Whether it has the length that it should.
fn put(local: usize, bytes: &[u8]) -> bool {
    let pieces = locked(&PIECES);
    let pointer = thread::POINTERS.get(local).map_or(0, |pointer| pointer.load(Relaxed));
    if pointer == 0 || bytes.len() != pieces.iter().map(|(_, length)| length).sum::<usize>() {
        return false;
    }
    let mut rest = bytes;
    for &(below, length) in pieces.iter() {
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        // SAFETY: as above; the thread runs no program code
        unsafe { ((pointer - below) as *mut u8).copy_from_nonoverlapping(piece.as_ptr(), length) };
    }
    true
}

/// What a rank says: an error's text, or its threads' storage.
fn say(out: &mut [u8]) -> (usize, usize) {
    let put = |bytes: &[u8], out: &mut [u8]| -> (usize, usize) {
        let length = bytes.len().min(out.len());
        out[..length].copy_from_slice(&bytes[..length]);
        (length, 1)
    };
    if let Some(why) = output::open_in_regions() {
        return put(why.as_bytes(), out);
    }
    if pthread::have_values() {
        return put(b"threads have values by pthread_setspecific", out);
    }
    let all = told(&here());
    if all.len() > out.len() {
        let why = format!(
            "its threads have {} bytes of threadprivate and thread_local data, and {} at most can be told",
            all.len(),
            out.len()
        );
        return put(why.as_bytes(), out);
    }
    (put(&all, out).0, 0)
}

/// Storage as it travels; [`said`] is the inverse.
fn told(storage: &[Storage]) -> Vec<u8> {
    let one = |thread: &Storage| {
        let numbers = [thread.local as u64, thread.bytes.len() as u64].map(u64::to_le_bytes).concat();
        [&numbers[..], &thread.bytes].concat()
    };
    storage.iter().flat_map(one).collect()
}

/// What a rank has said.
fn said(rank: usize, mut bytes: &[u8]) -> Option<Vec<Storage>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (numbers, rest) = bytes.split_first_chunk::<16>()?;
        let number = |at: usize| usize::from_le_bytes(numbers[at..at + 8].try_into().unwrap_or_default());
        let (piece, rest) = rest.split_at_checked(number(8))?;
        all.push(Storage { rank, local: number(0), bytes: piece.to_vec() });
        bytes = rest;
    }
    Some(all)
}

/// All ranks, at the end of a region, by one thread of each while none runs program code, with the flags that all have said: rank 0 gets all threads' storage, if it is time.
pub fn gather(flags: u32) {
    if flags & flag::KEEP == 0 {
        return;
    }
    let (bytes, is_error) = say(exchange::out());
    let told = coherence::tell(GATHER, bytes, is_error);
    if run::rank() > 0 {
        return;
    }
    let of = |rank: usize| match told.header(rank).words[0] {
        0 => said(rank, told.blob(rank)).ok_or_else(|| format!("rank {rank} says nothing that makes sense")),
        _ => Err(format!("on rank {rank}, {}", String::from_utf8_lossy(told.blob(rank)))),
    };
    let all: Result<Vec<Vec<Storage>>, String> = (0..run::size()).map(of).collect();
    *locked(&GATHERED) = Some(all.map(|all| all.concat()));
}

/// Rank 0, which goes on from a checkpoint: gives all threads what is theirs. Whether it fits.
pub fn spread(all: &[Storage]) -> bool {
    let mut good = true;
    for rank in 0..run::size() {
        let own: Vec<Storage> = all.iter().filter(|one| one.rank == rank).cloned().collect();
        if rank == 0 {
            good &= take(&own);
            continue;
        }
        let bytes = told(&own);
        let out = exchange::out();
        good &= bytes.len() <= out.len();
        let length = if good { bytes.len() } else { 0 };
        out[..length].copy_from_slice(&bytes[..length]);
        coherence::tell(SPREAD, length, 0);
    }
    good
}

fn take(own: &[Storage]) -> bool {
    // rank 0's first thread is none of them
    let first = usize::from(run::rank() == 0);
    if own.iter().any(|one| !(first..team::most()).contains(&one.local)) {
        return false;
    }
    if let Some(last) = own.iter().map(|one| one.local).max() {
        team::have(last + 1);
    }
    // each has begun when it says where it has its storage
    for one in own {
        while thread::POINTERS[one.local].load(Relaxed) == 0 {
            crate::sys::pause(50);
        }
    }
    own.iter().all(|one| put(one.local, &one.bytes))
}

/// Ranks above 0, in the thread that leads, before the first region: what threads had, if the run goes on from a checkpoint.
pub fn receive() {
    if !run::is_resumed() {
        return;
    }
    for rank in 1..run::size() {
        let told = coherence::tell(SPREAD, 0, 0);
        if rank != run::rank() {
            continue;
        }
        let own = said(rank, told.blob(0)).unwrap_or_default();
        if !take(&own) {
            crate::sys::fail(format_args!(
                "rank {rank}: the checkpoint has other storage of threads than this program: is it another one than was run?"
            ));
        }
    }
}
