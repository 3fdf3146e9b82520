//! This process, as the coherence of its memory needs it.

use std::sync::{self, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use polyrail_omp::area::{Count, Header, Kind};
use polyrail_omp::coherence::operation::Done;
use polyrail_omp::coherence::{Answer, Host, Mutex, RwLock, Tracked, Trouble, Value};

use super::link::{self, Said, Submitted};
use crate::instruction;
use crate::{agent, ask, exchange, run, stats, sys, thread, track};

/// This process.
pub struct Here;

/// The C library's, as the standard library has it.
pub struct Locked<T>(sync::Mutex<T>);

impl<T> Mutex<T> for Locked<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        Self: 'a;
    fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }
    fn lock(&self) -> Self::Guard<'_> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

/// The same.
pub struct Shared(sync::RwLock<()>);

impl RwLock for Shared {
    type Shared<'a>
        = RwLockReadGuard<'a, ()>
    where
        Self: 'a;
    type Alone<'a>
        = RwLockWriteGuard<'a, ()>
    where
        Self: 'a;
    fn new() -> Self {
        Self(sync::RwLock::new(()))
    }
    fn shared(&self) -> Self::Shared<'_> {
        self.0.read().unwrap_or_else(|broken| broken.into_inner())
    }
    fn alone(&self) -> Self::Alone<'_> {
        self.0.write().unwrap_or_else(|broken| broken.into_inner())
    }
}

fn pair(value: &Value) -> (u64, u64) {
    Done::from_bytes(value).map_or((0, 0), |done| done.before)
}

impl Host for Here {
    type Memory = track::Process;
    type Mutex<T> = Locked<T>;
    type RwLock = Shared;
    type Data = &'static [u8];
    type Submitted = Submitted;
    type Said = Said;

    fn rank(&self) -> usize {
        run::rank()
    }

    fn size(&self) -> usize {
        run::size()
    }

    fn tracked<R>(&self, f: impl FnOnce(&mut Tracked<track::Process>) -> R) -> Option<R> {
        track::with(f)
    }

    fn ask(&self, kind: Kind, args: [u64; 6], data: &[&[u8]]) -> Answer<&'static [u8]> {
        agent::ask(kind, args, data)
    }

    fn ask_operation(&self, question: &[&[u8]]) -> &'static [u8] {
        let kind = u64::from(ask::ATOMIC).to_ne_bytes();
        let parts: Vec<&[u8]> = [&kind[..]].into_iter().chain(question.iter().copied()).collect();
        agent::ask(Kind::Serve, [0; 6], &parts).data
    }

    fn ask_awaits(&self, about: bool) {
        ask::rank_0(ask::TELLS, &[about.into()]);
    }

    fn ask_back(&self, question: &[u8]) -> &'static [u8] {
        ask::rank_0(ask::BACK, question)
    }

    fn room(&self) -> usize {
        exchange::blob()
    }

    fn submit(&self, round: bool, fill: &mut dyn FnMut(&mut [u8]) -> Header) -> Submitted {
        link::submit(round, fill)
    }

    fn wait(&self, submitted: Submitted) -> Said {
        submitted.wait()
    }

    fn load(&self, place: usize, bytes: usize) -> Value {
        // SAFETY: a shared place
        Done { before: unsafe { instruction::load(place, bytes) } }.to_bytes()
    }

    fn replace(&self, place: usize, bytes: usize, before: &Value, after: &Value) -> bool {
        // SAFETY: a shared place, where the program has such an operation
        unsafe { instruction::replace(place, bytes, pair(before), pair(after)) }
    }

    fn local(&self) -> usize {
        thread::current().local.get()
    }

    fn singles(&self) -> u64 {
        thread::current().singles.get()
    }

    fn tokens(&self) -> usize {
        thread::current().tokens.get()
    }

    fn set_tokens(&self, tokens: usize) {
        thread::current().tokens.set(tokens);
    }

    fn is_first(&self) -> bool {
        let thread = thread::current();
        run::rank() == 0 && thread.local.get() == 0 && thread.spread.get()
    }

    fn pause(&self, tries: u32, most: u32) {
        ask::pause(tries, most);
    }

    fn now(&self) -> u64 {
        thread_local! {
            static BEGAN: Instant = Instant::now();
        }
        BEGAN.with(|began| began.elapsed().as_nanos() as u64)
    }

    fn add(&self, count: Count, value: u64) {
        stats::add(count, value);
    }

    fn fail(&self, trouble: &Trouble) -> ! {
        let hint = match trouble {
            Trouble::Conflict(..) if run::offers_tasks() => {
                ". Tasks without dependences on each other run at the same time; with POLYRAIL_OMP_TASKS=off each is carried out by the thread that meets it"
            }
            _ => "",
        };
        sys::fail(format_args!("{trouble}{hint}"))
    }
}
