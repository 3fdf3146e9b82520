//! What threads exclude each other and wait by, other than OpenMP's own: the C library's mutexes and their like, which know of one process.
//!
//! In a region of several ranks a mutex in shared memory is a lock of ours, by its address (`team::locks`), and its memory stays as it is. What makes threads wait for each other
//! otherwise is refused there (`refused`); what is done once is in `once`, what the C library locks in the program's memory by itself in `regexec`. All else is the C library's: serial code, threads of the program's own, what libraries of the
//! system have for themselves.

mod once;
mod refused;
mod regexec;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

pub use once::register as register_exit;

use crate::alloc::exports::knowing_the_caller;
use crate::symbols::real;
use crate::team::locks;
use crate::{alloc, ask, run, sys, thread, track};
pub use refused::are_unjoined;

/// Whether the calling thread is one of several ranks', and `object` in memory that they share.
fn concerns(object: usize) -> bool {
    run::is_inside() && thread::current().spread.get() && track::is_shared(object)
}

/// As [`concerns`], asked by the function at `caller`.
fn is_shared(object: usize, caller: usize) -> bool {
    // its library locks what other ranks' know nothing of
    if !run::is_inside() {
        if run::is_beginning() && track::is_shared(object) {
            locks::used_as_it_begins(object as u64);
        }
        return false;
    }
    if alloc::is_fortran(caller) || !track::is_shared(object) {
        return false;
    }
    let spread = thread::current().spread.get();
    let key = object as u64;
    let is_right = match spread && run::rank() > 0 {
        true => !has_own_threads().load(Relaxed) || !locks::is_first_use(key) || is_teams(key),
        false => locks::is_one_kinds(key, !spread),
    };
    if !is_right {
        sys::stop(
            "a mutex",
            "that threads of a parallel region and a thread of the program's own use in the same region: only OpenMP's threads are on several ranks; run with -n 1",
        );
    }
    spread
}

/// Whether the program has started threads of its own, which are rank 0's; in the runtime's shared memory.
fn has_own_threads() -> &'static AtomicBool {
    const PLACE: usize = 60 << 10;
    // SAFETY: inside the shared page, which begins as zeros
    unsafe { &*alloc::shared_page().add(PLACE).cast() }
}

/// Ranks above 0: whether none of those threads has used the mutex in this region; from here on none may.
fn is_teams(key: u64) -> bool {
    ask::rank_0(ask::MUTEX, &key.to_ne_bytes()) == IS_RIGHT
}
const IS_RIGHT: &[u8] = &[1];

/// Rank 0's server thread: a thread of the team, on another rank, uses a mutex.
pub fn serve(question: &[u8]) -> Option<Vec<u8>> {
    let key = u64::from_ne_bytes(*question.first_chunk()?);
    Some(if locks::is_one_kinds(key, false) { IS_RIGHT.to_vec() } else { Vec::new() })
}

/// What a mutex is, as `pthread_mutexattr_settype` says (glibc's numbers, its header's place).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Recursive,
    Checking,
}

fn kind(mutex: usize) -> Kind {
    const KIND: usize = 16;
    // SAFETY: the caller's mutex
    match unsafe { *((mutex + KIND) as *const c_int) } & 3 {
        libc::PTHREAD_MUTEX_RECURSIVE => Kind::Recursive,
        libc::PTHREAD_MUTEX_ERRORCHECK => Kind::Checking,
        _ => Kind::Normal,
    }
}

/// What the C library keeps in it while it is locked: serial code's, or that of a thread of the program's own, as no region writes there.
fn check(name: &str, mutex: usize) {
    // SAFETY: the caller's mutex begins with that
    if unsafe { *(mutex as *const c_int) } != 0 {
        sys::stop(
            name,
            "in a parallel region, of a mutex that serial code, or a thread of the program's own, has locked: unlock it before the region, or run with -n 1",
        );
    }
}

/// Counts what was just locked.
fn got(depth: usize) {
    locks::holds_mutex(usize::from(depth == 1));
}

fn lock(name: &str, mutex: usize, kind: Kind) -> c_int {
    let key = mutex as u64;
    if kind != Kind::Recursive && locks::is_mine(key) {
        if kind == Kind::Checking {
            return libc::EDEADLK;
        }
        sys::stop(
            name,
            "in a parallel region, by a thread that has locked it already: it would wait for ever",
        );
    }
    got(locks::lock_nested(key));
    0
}

fn try_lock(mutex: usize, kind: Kind) -> c_int {
    let key = mutex as u64;
    if kind != Kind::Recursive && locks::is_mine(key) {
        return libc::EBUSY;
    }
    let depth = locks::try_lock_nested(key);
    got(depth);
    if depth > 0 { 0 } else { libc::EBUSY }
}

fn unlock(name: &str, mutex: usize, kind: Kind) -> c_int {
    let key = mutex as u64;
    if kind != Kind::Normal && !locks::is_mine(key) {
        return libc::EPERM;
    }
    if !locks::is_held(key) {
        sys::stop(
            name,
            "in a parallel region, of what a thread of another rank, or serial code, has locked: whoever locks it must unlock it",
        );
    }
    locks::gave_mutex(usize::from(locks::release_nested(key)));
    0
}

/// Tries until `clock` says `until`.
fn timed(mutex: usize, clock: c_int, until: *const libc::timespec) -> c_int {
    /// Microseconds between two tries.
    const PAUSE: u32 = 200;
    // SAFETY: the caller's time; one to be filled
    let is_over = || unsafe {
        let mut now = core::mem::zeroed::<libc::timespec>();
        libc::clock_gettime(clock, &raw mut now);
        (now.tv_sec, now.tv_nsec) >= ((*until).tv_sec, (*until).tv_nsec)
    };
    loop {
        match try_lock(mutex, kind(mutex)) {
            0 => return 0,
            _ if is_over() => return libc::ETIMEDOUT,
            _ => sys::pause(PAUSE),
        }
    }
}

/// Whether the calling thread unlocks what it has locked here. Not who asks: a function's last call looks like its caller's.
fn is_ours(object: usize) -> bool {
    if !concerns(object) {
        return false;
    }
    /// Where the C library says whose a mutex is.
    const OWNER: usize = 8;
    let key = object as u64;
    // SAFETY: the caller's mutex
    locks::is_held(key) || unsafe { *((object + OWNER) as *const c_int) != sys::thread() }
}

/// Mutexes that know whose they are by a thread's number, and that serial code's first thread has, as far as checkpoints are wanted.
static OWNED: AtomicUsize = AtomicUsize::new(0);

/// Whether serial code has any.
pub fn are_owned() -> bool {
    OWNED.load(Relaxed) > 0
}

/// The C library's function of that name has come back.
fn note(name: &str, object: usize, result: c_int) {
    let is_mutex = name.contains("mutex") || name.starts_with("mtx");
    if result != 0 || !is_mutex || !run::is_to_be_kept() || thread::current().pooled.get() {
        return;
    }
    if kind(object) == Kind::Normal {
        return;
    }
    if name.ends_with("unlock") {
        // one that was locked before is none of those that were counted
        let _ = OWNED.fetch_update(Relaxed, Relaxed, |owned| owned.checked_sub(1));
    } else {
        OWNED.fetch_add(1, Relaxed);
    }
}

/// `$name`, by `$ours` where ranks share the object, or by the C library.
macro_rules! shared {
    ($($name:ident $($how:ident)? = $body:ident, $text:literal, $register:literal, ($object:ident $(, $more:ident)*) $ours:expr;)*) => {
        $(unsafe extern "C" fn $body($object: usize, $($more: usize,)* caller: usize) -> c_int {
            if shared!(@is $($how)? $object, caller) {
                return $ours;
            }
            static REAL: AtomicUsize = AtomicUsize::new(0);
            type Real = unsafe extern "C" fn(usize $(, shared!(@word $more))*) -> c_int;
            // SAFETY: the caller's arguments, to the function of that name
            let result = unsafe { real::<Real>($text, &REAL)($object $(, $more)*) };
            note(stringify!($name), $object, result);
            result
        })*
        knowing_the_caller! {
            $($name($object: usize $(, $more: usize)*) -> c_int = $body, $register;)*
        }
    };
    (@word $more:ident) => { usize };
    (@is unlocks $object:ident, $caller:ident) => {{ let _ = $caller; is_ours($object) }};
    (@is $object:ident, $caller:ident) => { is_shared($object, $caller) };
}
shared! {
    pthread_mutex_lock = mutex_lock, c"pthread_mutex_lock", "rsi", (mutex) {
        let result = lock("pthread_mutex_lock", mutex, kind(mutex));
        check("pthread_mutex_lock", mutex);
        result
    };
    pthread_mutex_trylock = mutex_trylock, c"pthread_mutex_trylock", "rsi", (mutex) {
        check("pthread_mutex_trylock", mutex);
        try_lock(mutex, kind(mutex))
    };
    pthread_mutex_timedlock = mutex_timedlock, c"pthread_mutex_timedlock", "rdx", (mutex, until) {
        check("pthread_mutex_timedlock", mutex);
        timed(mutex, libc::CLOCK_REALTIME, until as *const libc::timespec)
    };
    pthread_mutex_clocklock = mutex_clocklock, c"pthread_mutex_clocklock", "rcx", (mutex, clock, until) {
        check("pthread_mutex_clocklock", mutex);
        timed(mutex, clock as c_int, until as *const libc::timespec)
    };
    pthread_mutex_unlock unlocks = mutex_unlock, c"pthread_mutex_unlock", "rsi", (mutex)
        unlock("pthread_mutex_unlock", mutex, kind(mutex));
    pthread_spin_lock = spin_lock, c"pthread_spin_lock", "rsi", (lock_)
        lock("pthread_spin_lock", lock_, Kind::Normal);
    pthread_spin_trylock = spin_trylock, c"pthread_spin_trylock", "rsi", (lock_) try_lock(lock_, Kind::Normal);
    pthread_spin_unlock = spin_unlock, c"pthread_spin_unlock", "rsi", (lock_)
        unlock("pthread_spin_unlock", lock_, Kind::Normal);
    // readers exclude each other, too: what they read must come to them
    pthread_rwlock_rdlock = rwlock_rdlock, c"pthread_rwlock_rdlock", "rsi", (lock_)
        lock("pthread_rwlock_rdlock", lock_, Kind::Recursive);
    pthread_rwlock_wrlock = rwlock_wrlock, c"pthread_rwlock_wrlock", "rsi", (lock_)
        lock("pthread_rwlock_wrlock", lock_, Kind::Recursive);
    pthread_rwlock_tryrdlock = rwlock_tryrdlock, c"pthread_rwlock_tryrdlock", "rsi", (lock_)
        try_lock(lock_, Kind::Recursive);
    pthread_rwlock_trywrlock = rwlock_trywrlock, c"pthread_rwlock_trywrlock", "rsi", (lock_)
        try_lock(lock_, Kind::Normal);
    pthread_rwlock_unlock = rwlock_unlock, c"pthread_rwlock_unlock", "rsi", (lock_)
        unlock("pthread_rwlock_unlock", lock_, Kind::Normal);
    mtx_lock = c11_lock, c"mtx_lock", "rsi", (mutex)
        c11(lock("mtx_lock", mutex, kind(mutex)));
    mtx_trylock = c11_trylock, c"mtx_trylock", "rsi", (mutex) c11(try_lock(mutex, kind(mutex)));
    mtx_timedlock = c11_timedlock, c"mtx_timedlock", "rdx", (mutex, until)
        c11(timed(mutex, libc::CLOCK_REALTIME, until as *const libc::timespec));
    mtx_unlock unlocks = c11_unlock, c"mtx_unlock", "rsi", (mutex) c11(unlock("mtx_unlock", mutex, kind(mutex)));
}

/// An error as C11's functions tell it (`threads.h`).
fn c11(error: c_int) -> c_int {
    match error {
        0 => 0,
        libc::EBUSY => 1,
        libc::ETIMEDOUT => 4,
        _ => 2,
    }
}

/// `pthread_setspecific`: a key that serial code has made is rank 0's alone, and the others make it when they come to use it.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_setspecific(key: libc::pthread_key_t, value: *const c_void) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    type Real = unsafe extern "C" fn(libc::pthread_key_t, *const c_void) -> c_int;
    let real: Real = real(c"pthread_setspecific", &REAL);
    if run::is_to_be_kept() && !value.is_null() && thread::current().pooled.get() {
        note_value(key);
    }
    // SAFETY: the caller's arguments; the C library gives the lowest key that is free
    unsafe {
        let mut result = real(key, value);
        while result == libc::EINVAL && run::is_inside() && run::rank() > 0 && thread::current().spread.get()
        {
            let mut made = 0;
            if alloc::privately(|| libc::pthread_key_create(&raw mut made, None)) != 0 || made > key {
                break;
            }
            result = real(key, value);
        }
        result
    }
}

/// The first of the C library's keys that was free before `main`.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// A thread of the pool has got a value for one that the program has made.
static HAVE_VALUES: AtomicBool = AtomicBool::new(false);

/// A thread of the pool gets a value for one of the C library's keys. What libraries have made their own before `main`, they make again.
fn note_value(key: u32) {
    if key >= KEY.load(Relaxed) {
        HAVE_VALUES.store(true, Relaxed);
    }
}

/// Whether threads of the pool have what is not kept.
pub fn have_values() -> bool {
    HAVE_VALUES.load(Relaxed)
}

/// The first thread, before `main`, if checkpoints are to be kept.
pub fn begin() {
    alloc::privately(|| {
        let mut key = 0;
        // SAFETY: makes a key, to see its number, and gives it back
        unsafe {
            if libc::pthread_key_create(&raw mut key, None) == 0 {
                KEY.store(key, Relaxed);
                libc::pthread_key_delete(key);
            }
        }
    });
}
