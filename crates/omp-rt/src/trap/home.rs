//! Copies of what rank 0 has: on ranks above 0, what atomic operations leave in this rank's memory.
//!
//! Rank 0 alone tells of it. What others are told of a page has what all agreed upon last in place of copies ([`Held::mask`]); at barriers memory itself gets that
//! back ([`without_copies`]). What this rank has stored over a copy (`atomic write` is a plain store, and so is the release of many a spin lock) rank 0 gets, too, if it
//! still has what was copied ([`tell`]): behind all that was stored before.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use polyrail_omp::area::{Count, Kind};
use polyrail_omp::diff::Page;
use polyrail_omp::layout::PAGE;

use super::copies::{Copies, Stored, Value};
use super::operation::{Done, Operation, Own, Width};
use super::order::Order;
use crate::calls::{self, NOT_YET, REMOTE_ATOMIC};
use crate::stats::{self, Clock};
use crate::{agent, alloc, remote, sys, track};

/// Locks are taken in this order: the log's, this one, that of copies, that of what is tracked. Had alone from when a store over a copy counts as a copy until rank 0 has
/// it, shared by operations. It and that of copies are held across questions that are answered at once.
static TELLING: RwLock<()> = RwLock::new(());
static COPIES: Mutex<Copies> = Mutex::new(Copies::new());

fn copies() -> MutexGuard<'static, Copies> {
    COPIES.lock().unwrap_or_else(|broken| broken.into_inner())
}

fn nobody_tells() -> RwLockReadGuard<'static, ()> {
    TELLING.read().unwrap_or_else(|broken| broken.into_inner())
}

/// Longest pause between two questions, in microseconds.
const PAUSE: u32 = 1000;

/// Has rank 0 do it.
pub fn carry_out(operation: &Operation, place: usize, order: Order) -> Done {
    let bytes = operation.width.bytes();
    let mut clock = Clock::start();
    let when = remote::Point::here();
    let mut tries = 0;
    let ((done, told), now, held) = loop {
        let behind = if order == Order::None { 0 } else { remote::publish_all() };
        let between = remote::Between { behind, asks: order == Order::Full, tells: false };
        let telling = nobody_tells();
        let held = copies();
        let (known, now) = (known(&held, place, bytes), load(place, bytes));
        let own = (known != now).then_some([known, now]);
        if own.is_some() && order != Order::None {
            // another thread has stored it meanwhile, behind what was not published
            continue;
        }
        // what this rank stored before must be at rank 0 before anything else is done to it for this rank
        let held = own.is_some().then_some(held);
        if let Some(answer) = ask(&when, &between, operation, place, own) {
            break (answer, now, held);
        }
        drop((held, telling));
        calls::pause(tries, PAUSE);
        tries += 1;
    };
    stats::add(Count::Atomics, 1);
    let after = operation.after(&done);
    // what was told with it is a copy, and what other threads' operations left meanwhile; what they stored stays, to be told, even if it is what was there before
    let (mut held, copy) = match held {
        Some(held) => (held, now),
        None => {
            let held = copies();
            let known = known(&held, place, bytes);
            (held, known)
        }
    };
    held.learn(place, bytes, value(after));
    // SAFETY: a shared place, where the program has such an operation
    unsafe { Width::replace(place, bytes, pair(&copy), after) };
    drop(held);
    remote::see(told);
    clock.lap(Count::AtomicTime);
    done
}

/// Has rank 0 tell what it has changed, behind all that this rank has told; takes it over.
pub fn see_rank_0() {
    let between = remote::Between { behind: remote::publish_all(), asks: true, tells: false };
    let operation = Operation::none(Width::Byte);
    // any place will do
    let place = alloc::shared_page() as usize;
    let told = (0..).find_map(|tries| {
        let answer = ask(&remote::Point::any(), &between, &operation, place, None);
        if answer.is_none() {
            calls::pause(tries, PAUSE);
        }
        answer
    });
    remote::see(told.map_or(0, |(_, told)| told));
}

/// Asks rank 0: what was done, and up to where the log then has what rank 0 knew. None if that is too early.
fn ask(
    when: &remote::Point,
    between: &remote::Between,
    operation: &Operation,
    place: usize,
    own: Option<Own>,
) -> Option<(Done, u64)> {
    let kind = u64::from(REMOTE_ATOMIC).to_ne_bytes();
    let head = [kind.as_slice(), &when.to_bytes(), &between.to_bytes()].concat();
    let answer = agent::ask(Kind::Serve, [0; 6], &[&head, &operation.to_bytes(place, own)]);
    if answer.data == NOT_YET {
        return None;
    }
    remote::changed_rank_0();
    let (done, told) = answer.data.split_at(answer.data.len().min(size_of::<Value>()));
    let told = told.first_chunk().map_or(0, |told| u64::from_ne_bytes(*told));
    let Some(done) = Done::from_bytes(done) else {
        sys::fail(format_args!(
            "rank {} changed {place:#x} by a plain store and by an atomic operation, and so did another rank: which comes first is not defined",
            remote::rank()
        ))
    };
    Some((done, told))
}

fn load(place: usize, bytes: usize) -> Value {
    // SAFETY: a shared place
    value(unsafe { Width::load(place, bytes) })
}

fn value(pair: (u64, u64)) -> Value {
    Done { before: pair }.to_bytes()
}

pub fn pair(value: &Value) -> (u64, u64) {
    // SAFETY: as long as that
    unsafe { Width::load(value.as_ptr() as usize, value.len()) }
}

/// What all agreed upon last.
fn agreed(place: usize, bytes: usize) -> Option<Value> {
    track::twin(place).map(|twin| load(twin as usize, bytes))
}

/// What rank 0 has there, for all that this rank knows.
fn known(copies: &Copies, place: usize, bytes: usize) -> Value {
    copies.known(place, bytes, agreed(place, bytes).unwrap_or_default())
}

fn is_stored_over(((place, bytes), left): ((usize, usize), Value)) -> bool {
    load(place, bytes) != left
}

/// Whether this rank has stored over copies.
pub fn is_to_tell() -> bool {
    copies().iter().any(is_stored_over)
}

/// As [`is_to_tell`], of some pages.
pub fn is_to_tell_of(pages: &[Range<usize>]) -> bool {
    let copies = copies();
    pages.iter().any(|pages| copies.within(pages).any(is_stored_over))
}

/// This rank's changes are being told: who has this may look at pages.
pub struct Held {
    copies: MutexGuard<'static, Copies>,
    told: Telling,
}

/// No atomic operation of this rank is under way from here on.
pub fn hold() -> Held {
    let telling = TELLING.write().unwrap_or_else(|broken| broken.into_inner());
    Held { copies: copies(), told: Telling { stored: Vec::new(), announced: false, _alone: telling } }
}

impl Held {
    /// Makes of the `contents` of the page at `at` what others are to be told, of which all agreed upon `twin` last.
    pub fn mask(&mut self, at: usize, contents: &mut Page, twin: &Page) {
        // before anything is put in: places may overlap
        self.told.stored.extend(self.copies.stored_over(at, contents));
        for ((place, bytes), _) in self.copies.within(&(at..at + PAGE)) {
            let page = place.max(at) - at..(place + bytes).min(at + PAGE) - at;
            contents[page.clone()].copy_from_slice(&twin[page]);
        }
    }

    /// Pages of `range` with copies.
    pub fn pages(&self, range: &Range<usize>) -> Vec<usize> {
        let mut pages = Vec::new();
        let mut rest = range.clone();
        let next = |rest: &Range<usize>| self.copies.within(rest).next().map(|((place, _), _)| place);
        while let Some(place) = next(&rest) {
            let page = place.max(rest.start) & !(PAGE - 1);
            pages.push(page);
            rest.start = page + PAGE;
        }
        pages
    }

    /// All pages have been looked at.
    pub fn looked(self) -> Telling {
        self.told
    }
}

/// On rank 0: how many ranks have published what stores over copies belong to that they are about to tell.
static AWAITED: AtomicUsize = AtomicUsize::new(0);

/// Rank 0: whether some have. Who knows what they published may rely on those stores, too.
pub fn is_awaited() -> bool {
    AWAITED.load(Ordering::SeqCst) > 0
}

/// Rank 0: waits until none has.
pub fn all_is_told() {
    for tries in 0.. {
        if !is_awaited() {
            return;
        }
        calls::pause(tries, PAUSE);
    }
}

/// Rank 0's server thread: another rank begins to tell, or is through.
pub fn awaits(question: &[u8]) -> Option<Vec<u8>> {
    match question.first()? {
        0 => AWAITED.fetch_sub(1, Ordering::SeqCst),
        _ => AWAITED.fetch_add(1, Ordering::SeqCst),
    };
    Some(Vec::new())
}

impl Held {
    /// Before what was looked at is published, where others may wait for flags in it: they are to find the stores over copies, too.
    pub fn announce(&mut self) {
        if remote::rank() > 0 && !self.told.stored.is_empty() {
            calls::ask_rank_0(calls::REMOTE_TELLS, &[1]);
            self.told.announced = true;
        }
    }
}

/// Stores over copies that count as copies already, and are to be told before another operation.
pub struct Telling {
    stored: Vec<Stored>,
    announced: bool,
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Telling {
    /// Has rank 0 know them, behind what the log has up to there. No answer of the agent's may be in use.
    pub fn tell(self, behind: u64) {
        let between = remote::Between { behind, asks: false, tells: true };
        for Stored { place, bytes, known, now } in self.stored {
            let Some(width) = Width::of(bytes) else { continue };
            let operation = Operation::none(width);
            let mut tries = 0;
            while ask(&remote::Point::any(), &between, &operation, place, Some([known, now])).is_none() {
                calls::pause(tries, PAUSE);
                tries += 1;
            }
        }
        if self.announced {
            calls::ask_rank_0(calls::REMOTE_TELLS, &[0]);
        }
    }
}

/// Looks for changes at a barrier: memory has what all agreed upon last in place of copies, and there are none any more. What is no longer as it was copied stays, as this rank's change.
pub fn without_copies<T>(look: impl FnOnce() -> T) -> T {
    let mut copies = copies();
    let all: Vec<_> = copies.iter().map(|(place, _)| place).collect();
    for (place, bytes) in all {
        if let Some(agreed) = agreed(place, bytes) {
            put_back(&mut copies, place, bytes, agreed);
        }
    }
    look()
}

/// Whether there was a copy, and nothing stored over it.
fn put_back(copies: &mut Copies, place: usize, bytes: usize, agreed: Value) -> bool {
    let left = copies.known(place, bytes, agreed);
    // SAFETY: a shared place, where the program has such an operation
    let is_copy = unsafe { Width::replace(place, bytes, pair(&left), pair(&agreed)) };
    if is_copy {
        copies.forget(place, bytes, agreed);
    }
    is_copy
}

/// Applies what others told of some pages: copies there are no changes of this rank's. What is told of them is a copy, too.
pub fn without_copies_of<T>(pages: &[Range<usize>], apply: impl FnOnce() -> T) -> T {
    let mut copies = copies();
    let found: Vec<_> = pages.iter().flat_map(|pages| copies.within(pages).collect::<Vec<_>>()).collect();
    let mut gone = Vec::new();
    for ((place, bytes), left) in found {
        if let Some(agreed) = agreed(place, bytes)
            && put_back(&mut copies, place, bytes, agreed)
        {
            gone.push((place, bytes, left, agreed));
        }
    }
    let applied = apply();
    let mut told = Copies::new();
    for &(place, bytes, _, before) in &gone {
        if let Some(now) = agreed(place, bytes).filter(|now| *now != before) {
            told.learn(place, bytes, now);
        }
    }
    for (place, bytes, left, before) in gone {
        let now = agreed(place, bytes).unwrap_or(before);
        // who told one of places that overlap told all of them
        if told.within(&(place..place + bytes)).next().is_some() {
            copies.learn(place, bytes, now);
            continue;
        }
        // a part of it may be there already, with another place
        let here = copies.known(place, bytes, now);
        copies.learn(place, bytes, left);
        // SAFETY: as in `put_back`
        unsafe { Width::replace(place, bytes, pair(&here), pair(&left)) };
    }
    applied
}
