//! Critical sections and locks.
//!
//! The variables that programs keep for locks are shared memory, which is not to change by locking. What is known of a lock stands here, by its address:
//! the threads of this process exclude each other, then the one that got through asks for the token that all ranks share.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};

use super::here;
use super::sync::Mutex;
use crate::thread::is_main;
use crate::{coherence, output, remote, sys, thread};

/// Of `GOMP_atomic_start`: no address.
pub const ATOMIC: u64 = 1;
/// Of a critical section without a name.
pub const UNNAMED: u64 = 2;

struct Lock {
    key: AtomicU64,
    mutex: Mutex,
    /// Serial code has it.
    serial: AtomicBool,
    /// Of a nested lock: who has it, plus 1, and how often.
    owner: AtomicU64,
    depth: AtomicUsize,
    /// Of a mutex: the last regions in which the team, and threads of the program's own, used it.
    used: [AtomicU64; 2],
}

const BITS: u32 = 18;
static LOCKS: [Lock; 1 << BITS] = [const {
    Lock {
        key: AtomicU64::new(0),
        mutex: Mutex::new(),
        serial: AtomicBool::new(false),
        owner: AtomicU64::new(0),
        depth: AtomicUsize::new(0),
        used: [const { AtomicU64::new(0) }; 2],
    }
}; 1 << BITS];
/// Locks that serial code has set and not given back.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Whether serial code has any.
pub fn are_held() -> bool {
    HELD.load(Relaxed) > 0
}

fn find(key: u64) -> &'static Lock {
    let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as usize;
    for _ in 0..LOCKS.len() {
        let lock = &LOCKS[at];
        match lock.key.load(Acquire) {
            0 => match lock.key.compare_exchange(0, key, AcqRel, Acquire) {
                Ok(_) => return lock,
                Err(other) if other == key => return lock,
                Err(_) => {}
            },
            other if other == key => return lock,
            _ => {}
        }
        at = (at + 1) % LOCKS.len();
    }
    sys::stop("locks", "more than 262144 different ones were used")
}

/// A region of several ranks begins.
pub fn begin() {
    if HELD.load(Relaxed) > 0 {
        sys::stop(
            "a lock that serial code holds while a region begins",
            "unset it before the region, or run with -n 1",
        );
    }
}

/// Waits for the lock at `key`.
pub fn lock(key: u64) {
    let lock = find(key);
    wait(&lock.mutex);
    granted(lock, key);
}

fn wait(mutex: &Mutex) {
    if !mutex.try_lock() {
        remote::waiting(|| mutex.lock());
    }
}

fn granted(lock: &Lock, key: u64) {
    if here().spread() {
        remote::lock(key, None);
    } else {
        note(lock);
    }
}

/// Serial code is the main thread's; threads of the program's own may have locks while it begins regions.
fn note(lock: &Lock) {
    if here().within.get().is_none() && is_main() {
        lock.serial.store(true, Relaxed);
        HELD.fetch_add(1, Relaxed);
    }
}

/// Whether the lock at `key` was got.
pub fn try_lock(key: u64) -> bool {
    let lock = find(key);
    if !lock.mutex.try_lock() {
        return false;
    }
    if here().spread() {
        if !remote::try_lock(key) {
            lock.mutex.unlock();
            return false;
        }
    } else {
        note(lock);
    }
    true
}

/// Gives the lock at `key` back.
pub fn unlock(key: u64) {
    let lock = find(key);
    if here().spread() {
        if !lock.mutex.is_held() {
            sys::stop(
                "a lock that is unset",
                "in a parallel region, by a thread of another rank than set it, or that nobody has set: whoever sets a lock must unset it",
            );
        }
        remote::unlock(key, None);
    } else if lock.serial.swap(false, Relaxed) {
        HELD.fetch_sub(1, Relaxed);
    }
    lock.mutex.unlock();
}

/// The calling thread, among those of this process.
fn caller() -> u64 {
    // each thread's own frames tell it from others, those of the program's own making included
    core::ptr::from_ref(thread::current()) as u64
}

/// Waits for the nested lock at `key`; how often this thread has it now.
pub fn lock_nested(key: u64) -> usize {
    let lock = find(key);
    if lock.owner.load(Acquire) != caller() {
        wait(&lock.mutex);
        granted(lock, key);
        lock.owner.store(caller(), Release);
    }
    lock.depth.fetch_add(1, Relaxed) + 1
}

/// As [`lock_nested`] without waiting: 0 if it is another's.
pub fn try_lock_nested(key: u64) -> usize {
    let lock = find(key);
    if lock.owner.load(Acquire) != caller() {
        if !try_lock(key) {
            return 0;
        }
        lock.owner.store(caller(), Release);
    }
    lock.depth.fetch_add(1, Relaxed) + 1
}

/// Gives the nested lock at `key` back once.
pub fn unlock_nested(key: u64) {
    release_nested(key);
}

/// As [`unlock_nested`]; whether that was the last time.
pub fn release_nested(key: u64) -> bool {
    let lock = find(key);
    let last = lock.depth.fetch_sub(1, Relaxed) == 1;
    if last {
        lock.owner.store(0, Release);
        unlock(key);
    }
    last
}

/// Mutexes that threads of the team have in this region.
static MUTEXES: AtomicUsize = AtomicUsize::new(0);

/// The calling thread, of the team, has so many more mutexes.
pub fn holds_mutex(count: usize) {
    MUTEXES.fetch_add(count, Relaxed);
}

/// So many fewer.
pub fn gave_mutex(count: usize) {
    MUTEXES.fetch_sub(count, Relaxed);
}

/// A region of several ranks ends.
pub fn end() {
    if MUTEXES.load(Relaxed) > 0 {
        sys::stop(
            "a mutex that a thread holds while a parallel region ends",
            "unlock it in the region, or run with -n 1",
        );
    }
}

/// The calling thread uses the lock at `key` in a region, as one of the team or (`own`) as a thread of the program's own. Whether no other kind of thread has done so there: they
/// would not exclude each other.
pub fn is_one_kinds(key: u64, own: bool) -> bool {
    let lock = find(key);
    let region = coherence::numbered(1);
    lock.used[usize::from(own)].store(region, SeqCst);
    lock.used[usize::from(!own)].load(SeqCst) != region
}

/// The calling thread uses the lock at `key` while a region begins: if it is one of the program's own, that is as if in the region.
pub fn used_as_it_begins(key: u64) {
    if !is_main() {
        let next = coherence::numbered(1) + (1 << 32);
        find(key).used[1].store(next, SeqCst);
    }
}

/// Ranks above 0, as one of the team: whether no other thread of this rank's has used the lock at `key` in this region yet.
pub fn is_first_use(key: u64) -> bool {
    let region = coherence::numbered(1);
    find(key).used[0].swap(region, SeqCst) != region
}

/// Whether the calling thread has the nested lock at `key`.
pub fn is_mine(key: u64) -> bool {
    find(key).owner.load(Acquire) == caller()
}

/// Whether a thread of this process has the lock at `key`.
pub fn is_held(key: u64) -> bool {
    find(key).mutex.is_held()
}

/// What `flush` is.
pub fn flush() {
    core::sync::atomic::fence(SeqCst);
    if here().spread() {
        output::flush();
        coherence::flush();
    }
}
