//! Copies of what rank 0 has: on ranks above 0, what atomic operations leave in this rank's memory.
//!
//! Rank 0 alone tells of it. What others are told of a page has what all agreed upon last in place of copies (`Held::mask`); at barriers memory itself gets that
//! back (`Rank::without_copies`). What this rank has stored over a copy (`atomic write` is a plain store, and so is the release of many a spin lock) rank 0 gets, too, if it
//! still has what was copied (`Telling::tell`): behind all that was stored before.
//!
//! What an operation is ordered by ([`Between`]): rank 0's memory is where all such operations happen, and its own threads have theirs, and plain stores, there at any time. So it
//! takes over what is told of *before* it changes the place, and tells what it has changed *behind* what it found there: whatever one of its threads stored before it stored
//! that. Neither needs to know of it.

use core::ops::{ControlFlow, Range};
use core::sync::atomic::Ordering;

use crate::area::Count;
use crate::diff::Page;
use crate::layout::PAGE;
use crate::pages::Pages;

use super::apply::{bytes_of, is_in};
use super::copies::{Copies, Stamp, Stored, When};
use super::host::{Clock, Host, Mutex, RwLock, Trouble, Value};
use super::log::Log;
use super::operation::{Done, Effect, Operation, Own, Width};
use super::rank::Rank;
use super::{Memory, Tracked};

/// What is ordered by an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    /// What the log has up to there comes before the operation.
    pub behind: u64,
    /// What rank 0 knew is to be told.
    pub asks: bool,
    /// It is a store that others may rely on already, who know what was published with it.
    pub tells: bool,
}

impl Between {
    /// As bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.behind.to_ne_bytes());
        bytes[8] = self.asks.into();
        bytes[9] = self.tells.into();
        bytes
    }

    /// The reverse, and what follows.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (own, rest) = bytes.split_first_chunk::<16>()?;
        let behind = u64::from_ne_bytes(*own.first_chunk()?);
        Some((Self { behind, asks: own[8] != 0, tells: own[9] != 0 }, rest))
    }
}

/// What rank 0 answers to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// What was there, up to where the log then has what rank 0 knew, and what it knew when it did it.
    Done(Vec<u8>),
    /// It is too early: ask again.
    NotYet(Early),
    /// What the asking rank stored there is in conflict with what another did; or the place is not shared, or the question malformed.
    Refused,
}

/// Why it is too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Early {
    /// Rank 0, or another rank, is about to be through with something.
    Soon,
    /// Rank 0 has yet to come to a `single`, and waits for what others store.
    HeldUp,
}

impl Early {
    /// As it travels.
    pub fn to_bytes(self) -> [u8; 1] {
        [self as u8]
    }

    /// The reverse. What is done has more bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0] => Some(Self::Soon),
            [1] => Some(Self::HeldUp),
            _ => None,
        }
    }
}

/// Longest pause between two questions, in microseconds.
const PAUSE: u32 = 1000;

type CopiesOf<'a, H> = <<H as Host>::Mutex<Copies> as Mutex<Copies>>::Guard<'a>;
type AloneOf<'a, H> = <<H as Host>::RwLock as RwLock>::Alone<'a>;

impl<H: Host> Rank<H> {
    /// Ranks above 0: has rank 0 do it.
    pub fn carry_out(&self, operation: &Operation, place: usize, effect: Effect) -> Done {
        let bytes = operation.width.bytes();
        let mut clock = Clock::start(&self.host);
        let when = self.here();
        let (mut tries, mut held_up) = (0, None);
        let (answer, now, held, telling) = loop {
            let behind = match effect {
                // what this rank has told of the place comes before
                Effect::None => self.log.lock().known(),
                Effect::Release | Effect::Full => self.publish_all(),
            };
            let between = Between { behind, asks: effect == Effect::Full, tells: false };
            let telling = self.telling.shared();
            let mut held = self.copies.lock();
            // what others tell of it meanwhile is to be told from what this leaves
            held.begin(place, bytes, self.agreed(place, bytes).unwrap_or_default());
            let (known, now) = (held.known(place, bytes, Value::default()), self.host.load(place, bytes));
            let own = (known != now).then_some([known, now]);
            if own.is_some() && effect != Effect::None {
                // another thread has stored it meanwhile, behind what was not published
                continue;
            }
            // what this rank stored before must be at rank 0 before anything else is done to it for this rank
            let held = own.is_some().then_some(held);
            let early = match self.ask_operation(&when, &between, operation, place, own) {
                Ok(answer) => break (answer, now, held, telling),
                Err(early) => early,
            };
            drop((held, telling));
            if early == Early::Soon {
                held_up = None;
            } else if self.host.now() - *held_up.get_or_insert_with(|| self.host.now()) > self.host.patience()
            {
                self.host.fail(&Trouble::HeldUp);
            }
            if effect == Effect::None {
                // rank 0 may be short of it because it waits for what was stored here
                self.tell_first();
            }
            self.host.pause(tries, PAUSE);
            tries += 1;
        };
        self.host.add(Count::Atomics, 1);
        if effect != Effect::Full {
            self.untold.store(place, Ordering::Relaxed);
        }
        let (after, when) = (value(operation.after(&answer.done)), When::Done(answer.stamp));
        // what was told with it is a copy, and what other threads' operations left meanwhile; what they stored stays, to be told, even if it is what was there before
        let (mut held, copy) = match held {
            Some(held) => (held, now),
            None => {
                let held = self.copies.lock();
                let known = held.known(place, bytes, Value::default());
                (held, known)
            }
        };
        let with = held.with(place, bytes, &after, when, |_| true);
        held.learn(place, bytes, &after, when, |_| true);
        self.host.replace(place, bytes, &copy, &with);
        // until here, or what is stored over the copy and told would seem to be before this
        drop((held, telling));
        self.see(answer.told);
        clock.lap(&self.host, Count::AtomicTime);
        answer.done
    }

    /// Tells others what this rank changed, and has rank 0 tell what it changed for this rank; up to where the log then has both.
    pub(super) fn release(&self, log: &mut Log) -> u64 {
        self.publish(log);
        // before rank 0 is asked: what it changes then is still to be told
        let place = self.untold.swap(0, Ordering::Relaxed);
        if place != 0 {
            log.told = self.have_rank_0_tell(place, log.known()).max(log.told);
        }
        log.known().max(log.told)
    }

    /// Ranks above 0: has rank 0 tell what it has changed, behind all that this rank has told; takes it over. `place`: any that is shared.
    pub fn see_rank_0(&self, place: usize) {
        let behind = self.publish_all();
        self.untold.store(0, Ordering::Relaxed);
        self.see(self.have_rank_0_tell(place, behind));
    }

    /// Up to where the log then has it.
    fn have_rank_0_tell(&self, place: usize, behind: u64) -> u64 {
        let between = Between { behind, asks: true, tells: false };
        let operation = Operation::none(Width::Byte);
        let told = (0..).find_map(|tries| {
            let answer = self.ask_operation(&self.anywhere(), &between, &operation, place, None).ok();
            if answer.is_none() {
                self.host.pause(tries, PAUSE);
            }
            answer
        });
        told.map_or(0, |answer| answer.told)
    }

    /// Asks rank 0, for which it may be too early.
    fn ask_operation(
        &self,
        when: &super::order::Point,
        between: &Between,
        operation: &Operation,
        place: usize,
        own: Option<Own>,
    ) -> Result<Answered, Early> {
        let answer = self.host.ask_operation(&[
            &when.to_bytes(),
            &between.to_bytes(),
            &operation.to_bytes(place, own),
        ]);
        if let Some(early) = Early::from_bytes(&answer) {
            return Err(early);
        }
        self.changed_rank_0();
        let Some(answered) = Answered::from_bytes(&answer) else {
            self.host.fail(&Trouble::Mixed { rank: self.host.rank(), place })
        };
        Ok(answered)
    }

    /// Rank 0's server thread: carries out what another rank asks for.
    pub fn serve_operation(&self, question: &[u8]) -> Served {
        self.serve_in(question).unwrap_or(Served::Refused)
    }

    fn serve_in(&self, question: &[u8]) -> Option<Served> {
        let (when, question) = super::order::Point::from_bytes(question)?;
        let (between, question) = Between::from_bytes(question)?;
        let (operation, place, own) = Operation::from_bytes(question)?;
        if !self.has_come_to(&when) || !between.tells && self.is_awaited() {
            let early = if self.is_held_up(&when) { Early::HeldUp } else { Early::Soon };
            return Some(Served::NotYet(early));
        }
        // rank 0 tells nothing meanwhile: what it has told comes before, and what it tells comes behind
        let mut log = self.log.lock();
        if log.applied < between.behind {
            self.catch_up(&mut log);
        }
        // who only has rank 0 tell names a place that may be shared no longer
        let is_told_only = own.is_none() && operation.is_none();
        let end = place.checked_add(operation.width.bytes() - 1)?;
        let is_shared = || self.host.tracked(|tracked| tracked.is_shared(place) && tracked.is_shared(end));
        if !is_told_only && !is_shared()? {
            return None;
        }
        if let Some([known, stored]) = own
            && !self.host.replace(place, operation.width.bytes(), &known, &stored)
        {
            return None;
        }
        let done = if is_told_only { Done::default() } else { self.run(&operation, place) };
        if !is_told_only {
            log.served.insert((place, place + operation.width.bytes()));
        }
        let count = self.operations.fetch_add(1, Ordering::Relaxed);
        let stamp = Stamp { known: log.known(), applied: log.applied, count };
        // what rank 0 stored before it stored what was found there
        let told = if between.asks && self.is_inside() {
            self.publish(&mut log);
            log.known()
        } else {
            0
        };
        Some(Served::Done(Answered { done, told, stamp }.to_bytes()))
    }

    /// Does it in this process, as one step.
    fn run(&self, operation: &Operation, place: usize) -> Done {
        let bytes = operation.width.bytes();
        loop {
            let before = self.host.load(place, bytes);
            let done = Done { before: pair(&before) };
            if self.host.replace(place, bytes, &before, &value(operation.after(&done))) {
                return done;
            }
        }
    }

    /// What all agreed upon last.
    fn agreed(&self, place: usize, bytes: usize) -> Option<Value> {
        self.host.tracked(|tracked| tracked.agreed(place, bytes)).flatten()
    }

    fn is_stored_over(&self, ((place, bytes), left): ((usize, usize), Value)) -> bool {
        self.host.load(place, bytes) != left
    }

    /// Whether this rank has stored over copies.
    pub(super) fn is_to_tell(&self) -> bool {
        self.copies.lock().iter().any(|copy| self.is_stored_over(copy))
    }

    /// As [`is_to_tell`](Self::is_to_tell), of some pages.
    pub(super) fn is_to_tell_of(&self, pages: &[Range<usize>]) -> bool {
        let copies = self.copies.lock();
        pages.iter().any(|pages| copies.within(pages).any(|copy| self.is_stored_over(copy)))
    }

    /// No atomic operation of this rank is under way from here on.
    pub(super) fn hold(&self) -> Held<'_, H> {
        let alone = self.telling.alone();
        let told = Telling { rank: self, stored: Vec::new(), announced: false, _alone: alone };
        Held { copies: self.copies.lock(), told, again: Pages::default() }
    }

    /// Rank 0: whether some ranks are about to tell of stores. Who knows what they published may rely on those stores, too.
    fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::SeqCst) > 0
    }

    /// Rank 0: waits until none is.
    pub fn all_is_told(&self) {
        for tries in 0.. {
            if !self.is_awaited() {
                return;
            }
            self.host.pause(tries, PAUSE);
        }
    }

    /// Rank 0's server thread: another rank is `about` to tell, or is through.
    pub fn serve_awaits(&self, about: bool) {
        match about {
            false => self.awaited.fetch_sub(1, Ordering::SeqCst),
            true => self.awaited.fetch_add(1, Ordering::SeqCst),
        };
    }

    /// Looks for changes at a barrier: memory has what all agreed upon last in place of copies, and there are none any more. What is no longer as it was copied stays, as this
    /// rank's change.
    pub(super) fn without_copies<T>(&self, look: impl FnOnce() -> T) -> T {
        let mut copies = self.copies.lock();
        let all: Vec<_> = copies.iter().map(|(place, _)| place).collect();
        for (place, bytes) in all {
            if let Some(agreed) = self.agreed(place, bytes) {
                self.put_back(&mut copies, place, bytes, agreed);
            }
        }
        look()
    }

    /// Nobody refers to these places any more, wherever they are told of: their memory is used for other things.
    pub fn forget_places(&self, range: &Range<usize>) {
        self.log.lock().served.retain(|(place, _)| !range.contains(place));
        self.copies.lock().drop_within(range);
    }

    /// Whether there was a copy, and nothing stored over it.
    fn put_back(&self, copies: &mut Copies, place: usize, bytes: usize, agreed: Value) -> bool {
        let left = copies.known(place, bytes, agreed);
        let is_copy = self.host.replace(place, bytes, &left, &agreed);
        if is_copy {
            copies.forget(place, bytes, agreed);
        }
        is_copy
    }

    /// Applies, by `apply`, what others told of some pages at that time: to the twins alone where there are copies, and then to these, if nothing newer is known of rank 0's
    /// memory. Threads may store over a copy at any time, so it is replaced in one step; what is stored over stays, and is still to be told.
    pub(super) fn with_copies_of<T>(
        &self,
        pages: &[Range<usize>],
        entry: &[u8],
        when: When,
        apply: impl FnOnce(&[Range<usize>]) -> T,
    ) -> T {
        let mut copies = self.copies.lock();
        let found = pages.iter().flat_map(|pages| copies.within(pages).map(|(place, _)| place));
        let mut places: Vec<_> = found.collect();
        places.sort_unstable();
        places.dedup();
        let kept: Vec<_> = places.iter().map(|(place, bytes)| *place..place + bytes).collect();
        let applied = apply(&kept);
        let told = if places.is_empty() { Vec::new() } else { bytes_of(entry) };
        for (place, bytes) in places {
            let now = self.agreed(place, bytes).unwrap_or_default();
            let is_told = |byte: usize| is_in(&told, place + byte);
            let known = copies.known(place, bytes, now);
            let with = copies.with(place, bytes, &now, when, is_told);
            if with == known || self.host.replace(place, bytes, &known, &with) {
                copies.learn(place, bytes, &now, when, is_told);
            }
        }
        applied
    }
}

/// What rank 0 says of an operation that it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answered {
    done: Done,
    /// Up to where the log has what rank 0 knew, if that was asked.
    told: u64,
    stamp: Stamp,
}

impl Answered {
    fn to_bytes(self) -> Vec<u8> {
        [&self.done.to_bytes()[..], &self.told.to_ne_bytes(), &self.stamp.to_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (done, rest) = bytes.split_at_checked(size_of::<Value>())?;
        let (told, stamp) = rest.split_first_chunk()?;
        Some(Self {
            done: Done::from_bytes(done)?,
            told: u64::from_ne_bytes(*told),
            stamp: Stamp::from_bytes(stamp)?,
        })
    }
}

fn value(pair: (u64, u64)) -> Value {
    Done { before: pair }.to_bytes()
}

fn pair(value: &Value) -> (u64, u64) {
    Done::from_bytes(value).map_or((0, 0), |done| done.before)
}

/// This rank's changes are being told: who has this may look at pages.
pub(super) struct Held<'a, H: Host + 'a> {
    copies: CopiesOf<'a, H>,
    told: Telling<'a, H>,
    /// Pages with copies that were stored over since.
    again: Pages,
}

impl<'a, H: Host> Held<'a, H> {
    /// Whether copies in pages that are pending are stored over: these stores are told behind what is published from now on, in which all is that was stored before.
    pub fn look<M: Memory>(&mut self, tracked: &mut Tracked<M>) -> bool {
        if !self.copies.is_empty() {
            let _ = tracked.pending.each(0..usize::MAX, |at| {
                self.told.stored.extend(self.copies.stored_over(at, tracked.memory.page(at).0));
                ControlFlow::<()>::Continue(())
            });
        }
        !self.told.stored.is_empty()
    }

    /// What was stored over copies since [`look`](Self::look) is still to be told.
    pub fn look_again<M: Memory>(&mut self, tracked: &mut Tracked<M>) {
        tracked.pending.add(&self.again);
    }

    /// Makes of the `contents` of the page at `at` what others are to be told, of which all agreed upon `twin` last.
    pub fn mask(&mut self, at: usize, contents: &mut Page, twin: &Page) {
        // before anything is put in: places may overlap
        if self.copies.is_stored_over(at, contents) {
            self.again.push(at, at + PAGE);
        }
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
    pub fn looked(self) -> Telling<'a, H> {
        self.told
    }

    /// Before what was looked at is published, where others may wait for flags in it: they are to find the stores over copies, too.
    pub fn announce(&mut self) {
        if self.told.rank.host.rank() > 0 && !self.told.stored.is_empty() {
            self.told.rank.host.ask_awaits(true);
            self.told.announced = true;
        }
    }
}

/// Stores over copies that count as copies already, and are to be told before another operation.
pub(super) struct Telling<'a, H: Host + 'a> {
    rank: &'a Rank<H>,
    stored: Vec<Stored>,
    announced: bool,
    _alone: AloneOf<'a, H>,
}

impl<H: Host> Telling<'_, H> {
    /// Has rank 0 know them, behind what the log has up to there. No answer of the agent's may be in use.
    pub fn tell(self, behind: u64) {
        let (rank, between) = (self.rank, Between { behind, asks: false, tells: true });
        for Stored { place, bytes, known, now } in self.stored {
            let Some(width) = Width::of(bytes) else { continue };
            let (operation, own) = (Operation::none(width), Some([known, now]));
            let answered = (0..).find_map(|tries| {
                let answered = rank.ask_operation(&rank.anywhere(), &between, &operation, place, own).ok();
                if answered.is_none() {
                    rank.host.pause(tries, PAUSE);
                }
                answered
            });
            if let Some(answered) = answered {
                let when = When::Done(answered.stamp);
                rank.untold.store(place, Ordering::Relaxed);
                rank.copies.lock().learn(place, bytes, &now, when, |byte| known[byte] != now[byte]);
            }
        }
        if self.announced {
            rank.host.ask_awaits(false);
        }
    }
}
