//! Locks of a window whose ranks are on several hosts: each is in its rank's own memory, which others reach by one-sided operations.
//! Nothing is asked of that rank.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polyrail_core::ticket::{self, Home, Kind, NOTHING, TAKE, Ticket};
use polyrail_pmpi::abi;

use crate::area::Word;
use crate::library::{
    Asleep, Failed, accumulate, fetch_and_op, info_create, info_free, info_set, progress, win_allocate,
    win_flush, win_flush_all, win_flush_local_all, win_free, win_lock_all, win_set_errhandler,
    win_unlock_all,
};
use crate::team::tell;

/// How long is waited for a word until the lock is looked at: at first, as many times as long as a look takes for each that is before, and at most.
const LOOKS: u32 = 4;
const LONGEST: Duration = Duration::from_millis(20);
/// For how long who is next stays awake, and how long it sleeps at a time if the provider's thread does not wake it.
const AWAKE: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_millis(1);
/// Who writes such a word looks for no sleepers.
static NOBODY: AtomicU32 = AtomicU32::new(0);
/// Words to others that may be under way.
const WORDS: usize = 256;

/// The locks of a window's ranks: a window of ours.
///
/// Of each rank, in words: its lock; where those wait who want it, one slot for each rank; and what was told this rank of each rank's lock.
pub struct Far {
    window: usize,
    rank: u32,
    ranks: usize,
    /// This rank's part.
    own: *const AtomicU64,
    /// What others are told stays until it has left.
    words: Mutex<(Box<[u64; WORDS]>, usize)>,
    /// What was asked of each rank whose lock this one has or wants, and where the answer comes to.
    asked: Box<[Mutex<Option<Box<u64>>>]>,
}

// SAFETY: what `own` points at are atomics of the window's, which lives as long
unsafe impl Send for Far {}
// SAFETY: the same
unsafe impl Sync for Far {}

impl Far {
    /// Called by all ranks of a communicator at once; all get some, or none.
    ///
    /// # Errors
    /// What the MPI says of its messages.
    pub fn new(comm: usize, rank: usize, ranks: usize) -> Result<Option<Self>, Failed> {
        let made = window(comm, 1 + 2 * ranks);
        // after this all words are zero
        if tell([made.is_ok().into(), 0, 0], ranks, comm)?.iter().any(|told| told[0] == 0) {
            return Ok(None);
        }
        let (window, own) = made?;
        let asked = (0..ranks).map(|_| Mutex::new(None)).collect();
        let words = Mutex::new((Box::new([0; WORDS]), 0));
        Ok(Some(Self { window, rank: rank as u32, ranks, own, words, asked }))
    }

    /// The end of these: by all ranks at once, and nobody has one.
    ///
    /// # Errors
    /// What the MPI says.
    pub fn end(&self) -> Result<(), Failed> {
        // SAFETY: a window of ours, which is used no more
        unsafe {
            win_unlock_all(self.window)?;
            win_free(&mut { self.window })
        }
    }

    /// Waits for a rank's lock.
    ///
    /// # Errors
    /// The MPI does not reach it.
    pub fn take(&self, rank: c_int, kind: Kind) -> Result<Ticket, Failed> {
        ticket::take(&mut self.way(rank), self.rank, self.ranks, kind)
    }

    /// The same of all ranks, as a reader. All are asked at once.
    ///
    /// # Errors
    /// See [`take`](Self::take).
    pub fn take_all(&self) -> Result<Vec<Ticket>, Failed> {
        let mut words = vec![0; self.ranks];
        let ask = |(word, rank)| self.fetch(rank, 0, &TAKE, abi().sum, word);
        let asked = words.iter_mut().zip(0..).try_for_each(ask);
        // SAFETY: a window of ours
        let done = asked.and(unsafe { win_flush_all(self.window) }.map_err(Failed::of_ours));
        let mut ways: Vec<_> = (0..self.ranks).map(|rank| self.way(rank as c_int)).collect();
        ticket::have_all(&mut ways, settled(words, done)?, self.rank)
    }

    /// Gives a rank's lock back. What this rank has done under it has come to its end.
    ///
    /// # Errors
    /// See [`take`](Self::take).
    pub fn leave(&self, rank: c_int, ticket: Ticket) -> Result<(), Failed> {
        ticket::leave(&mut self.way(rank), ticket, self.ranks)
    }

    fn asked(&self, home: c_int) -> MutexGuard<'_, Option<Box<u64>>> {
        self.asked[home as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this rank was told of a home.
    fn told(&self, home: c_int) -> &AtomicU64 {
        // SAFETY: of this rank's part of the window
        unsafe { &*self.own.add(1 + self.ranks + home as usize) }
    }

    fn way(&self, home: c_int) -> Way<'_> {
        Way { far: self, home, took: Duration::ZERO, pace: Duration::ZERO }
    }

    /// Asks for a word, and for a change of it; the word before that is there after the next flush.
    fn fetch(
        &self,
        rank: c_int,
        at: usize,
        with: &'static u64,
        op: usize,
        before: &mut u64,
    ) -> Result<(), Failed> {
        let (uint64, from, into) = (abi().uint64, ptr::from_ref(with).cast(), ptr::from_mut(before).cast());
        // SAFETY: a word that stays, a place for the answer that the caller flushes for, and a window of ours
        unsafe { fetch_and_op(from, into, uint64, rank, at as isize, op, self.window) }
            .map_err(Failed::of_ours)
    }

    /// Changes a word some time later, but before what is asked of that rank later.
    ///
    /// # Safety
    /// `with` stays until it is flushed.
    unsafe fn change(&self, rank: c_int, at: usize, with: *const u64, op: usize) -> Result<(), Failed> {
        let uint64 = abi().uint64;
        // SAFETY: as the caller says, and a window of ours
        unsafe { accumulate(with.cast(), 1, uint64, rank, at as isize, 1, uint64, op, self.window) }
            .map_err(Failed::of_ours)
    }

    fn flush(&self, rank: c_int) -> Result<(), Failed> {
        // SAFETY: a window of ours
        unsafe { win_flush(rank, self.window) }.map_err(Failed::of_ours)
    }
}

/// A window of ours with so many words of each rank, all zero; and where this rank's are.
fn window(comm: usize, words: usize) -> Result<(usize, *const AtomicU64), Failed> {
    let abi = abi();
    let (mut info, mut window, mut at) = (abi.info_null, 0, ptr::null_mut());
    // So MPICH carries out what follows by the provider's atomic operations, in place of asking the target. It decides that for each operation by itself: the
    // provider has all that are used here, so they see each other although they are not the same.
    let keys = [(c"disable_shm_accumulate", c"true"), (c"accumulate_ops", c"same_op")];
    // SAFETY: strings, a communicator of the program's, and places for the answers; the memory is the window's
    unsafe {
        info_create(&mut info)?;
        let set = |(key, value): &(&CStr, &CStr)| info_set(info, key.as_ptr(), value.as_ptr());
        let made = keys
            .iter()
            .try_for_each(set)
            .and_then(|()| win_allocate(words as isize * 8, 8, info, comm, &mut at, &mut window));
        info_free(&mut info)?;
        made?;
        at.cast::<u64>().write_bytes(0, words);
        let window = abi.handle(window);
        win_set_errhandler(window, abi.errors_return)?;
        win_lock_all(abi.no_check, window)?;
        Ok((window, at.cast()))
    }
}

/// How this rank reaches one of the locks.
struct Way<'a> {
    far: &'a Far,
    home: c_int,
    /// How long a look took the last time, and for how long it was waited for a word.
    took: Duration,
    pace: Duration,
}

impl Way<'_> {
    fn fetched(&mut self, at: usize, with: &'static u64, op: usize) -> Result<u64, Failed> {
        let start = Instant::now();
        let mut before = Box::new(0);
        let asked = self.far.fetch(self.home, at, with, op, &mut before);
        let done = asked.and_then(|()| self.far.flush(self.home));
        self.took = start.elapsed();
        if done.is_ok() {
            // all that was on its way to this home has arrived, where this rank waits as well
            *self.far.asked(self.home) = None;
        }
        settled(before, done).map(|before| *before)
    }
}

impl Home for Way<'_> {
    type Error = Failed;

    fn fetch(&mut self, adds: &'static u64) -> Result<u64, Failed> {
        self.fetched(0, adds, abi().sum)
    }

    fn add(&mut self, adds: &'static u64) -> Result<(), Failed> {
        // SAFETY: it stays
        unsafe { self.far.change(self.home, 0, adds, abi().sum) }
    }

    fn register(&mut self, slot: usize, waiting: u64) -> Result<(), Failed> {
        self.far.told(self.home).store(0, Ordering::Release);
        let mut asked = self.far.asked(self.home);
        // what a failure has left may still be on its way
        std::mem::forget(asked.take());
        let waiting = asked.insert(Box::new(waiting));
        // SAFETY: it stays until what this rank asks next has come, or for ever if that fails
        unsafe { self.far.change(self.home, 1 + slot, &raw const **waiting, abi().replace) }
    }

    fn ask(&mut self, slot: usize) -> Result<(), Failed> {
        let mut asked = self.far.asked(self.home);
        debug_assert!(asked.is_none(), "it was said where this rank waits, and looked since");
        self.far.fetch(self.home, 1 + slot, &NOTHING, abi().no_op, asked.insert(Box::new(0)))
    }

    fn answer(&mut self) -> Result<u64, Failed> {
        // it came with what the program has waited for since, most likely
        let done = self.far.flush(self.home);
        match self.far.asked(self.home).take() {
            Some(answer) => settled(answer, done).map(|answer| *answer),
            None => done.map(|()| 0),
        }
    }

    fn peek(&mut self, slot: usize, adds: Option<&'static u64>) -> Result<u64, Failed> {
        adds.map_or(Ok(()), |adds| self.add(adds))?;
        self.fetched(1 + slot, &NOTHING, abi().no_op)
    }

    fn wait(&mut self, told: u64, ahead: u64) -> Result<Option<u64>, Failed> {
        let (far, home) = (self.far, self.home);
        let word = far.told(home);
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        self.pace = (self.pace * 2).max(self.took.saturating_mul(LOOKS.saturating_mul(ahead))).min(LONGEST);
        let (start, mut asleep) = (Instant::now(), None);
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen == told {
                return Ok(None);
            }
            let waited = start.elapsed();
            if waited > self.pace {
                return self.fetched(0, &NOTHING, abi().sum).map(Some);
            }
            if waited < AWAKE && ahead == 1 {
                std::thread::yield_now();
            } else {
                asleep.get_or_insert_with(|| Asleep::begin(word, true));
                Word { number: word, sleepers: &NOBODY }.sleep(seen, NAP);
            }
            progress()?;
        }
    }

    fn tell(&mut self, rank: u32, what: u64) -> Result<(), Failed> {
        let mut words = self.far.words.lock().unwrap_or_else(PoisonError::into_inner);
        let (words, next) = &mut *words;
        if *next == WORDS {
            // SAFETY: a window of ours
            unsafe { win_flush_local_all(self.far.window) }.map_err(Failed::of_ours)?;
            *next = 0;
        }
        words[*next] = what;
        let at = 1 + self.far.ranks + self.home as usize;
        // SAFETY: it stays until all have left
        unsafe { self.far.change(rank as c_int, at, &raw const words[*next], abi().replace)? };
        *next += 1;
        Ok(())
    }
}

/// Where answers come to, or what is on its way. What failed may still use it.
fn settled<T>(answers: T, done: Result<(), Failed>) -> Result<T, Failed> {
    match done {
        Ok(()) => Ok(answers),
        Err(failed) => {
            std::mem::forget(answers);
            Err(failed)
        }
    }
}
