//! A domain: all that its endpoints share, under one lock, and the threads that work for it.
//!
//! One lock for all is what makes the rest simple: an operation takes it once, then touches endpoint, queue and counter as it
//! likes. It costs two atomic instructions when nobody else wants it, none with `FI_THREAD_DOMAIN`, and applications that use
//! several threads at full speed open a domain for each.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use polyrail_rails::worker::{is_asleep_elsewhere, is_looked_in};
use polyrail_rails::{Config, Idle, Worker};

use crate::address::Format;
use crate::lock::{Guard, Lock, Private};
use crate::log::log;
use crate::state::State;
use crate::state::eq::Eq;
use crate::state::slab::Key;
use crate::threads::auto::{Auto, Moving, Need, Settled};
use crate::threads::pusher::{Holding, Pusher};

/// Rounds in which something moves before others get the lock.
const ROUNDS: usize = 64;

/// What a domain is to be like.
pub struct Wanted {
    /// The API version that the application asked for.
    pub api_version: u32,
    /// How addresses are written.
    pub format: Format,
    /// Settings of its endpoints.
    pub config: Config,
    /// Regions are addressed by virtual address, not by offset.
    pub by_address: bool,
    /// We choose the keys of regions.
    pub own_keys: bool,
    /// Who makes progress.
    pub progress: Progress,
}

/// When a thread of ours makes progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Never: the application does.
    Application,
    /// While the application computes and something is to go on: see [`State::is_owed_progress`].
    Owed,
    /// Always, when the application does not.
    Automatic,
}

/// One open domain.
pub struct Domain {
    /// What was asked for.
    pub is: Wanted,
    state: Lock<State>,
    auto: OnceLock<Auto>,
    /// There is no thread to be had.
    alone: AtomicBool,
    /// The application has one thread at a time in its calls.
    serialised: bool,
    pusher: Pusher,
    eq: OnceLock<(Arc<Eq>, bool)>,
    /// Rounds of progress that applications have asked for.
    polls: AtomicU64,
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain").field("format", &self.is.format).finish_non_exhaustive()
    }
}

impl Domain {
    /// Opens one. `serialised` says that the application has only one thread at a time in its calls.
    ///
    /// # Errors
    /// When there is no descriptor, or no thread, to be had.
    ///
    /// # Safety
    /// If `serialised`, it does.
    pub unsafe fn open(wanted: Wanted, serialised: bool) -> io::Result<Arc<Self>> {
        let state =
            State { idle: Idle::new(wanted.config.yielding, wanted.config.sleep_after), ..State::default() };
        let automatic = wanted.progress == Progress::Automatic;
        let serialised = serialised && !automatic;
        let state = match serialised {
            // SAFETY: by the caller's promise, and a thread of ours has the lock shared before it begins.
            true => unsafe { Lock::private(state) },
            false => Lock::new(state),
        };
        let new = Arc::new(Self {
            auto: OnceLock::new(),
            alone: AtomicBool::new(false),
            serialised,
            is: wanted,
            state,
            pusher: Pusher::default(),
            eq: OnceLock::new(),
            polls: AtomicU64::new(0),
        });
        if automatic {
            new.start(&mut new.lock())?;
        }
        Ok(new)
    }

    /// Starts the thread that makes progress, under the lock.
    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let auto = Auto::new()?;
        for worker in state.endpoints.values_mut().filter_map(|endpoint| endpoint.wait_fd()) {
            auto.attach(worker)?;
        }
        if self.auto.set(auto).is_ok()
            && let Some(auto) = self.auto.get()
        {
            auto.start(self)?;
        }
        Ok(())
    }

    /// Something begins that is to go on while the application computes.
    #[inline]
    pub fn note_owed(self: &Arc<Self>, state: &mut Guard<'_, State>) {
        match self.auto.get() {
            Some(auto) if auto.is_resting() => {
                state.share();
                auto.rouse();
            }
            Some(auto) => auto.call(),
            None => self.start_once(state),
        }
    }

    #[cold]
    fn start_once(self: &Arc<Self>, state: &mut Guard<'_, State>) {
        if self.is.progress == Progress::Application || self.alone.load(Ordering::Relaxed) {
            return;
        }
        state.share();
        if let Err(why) = self.start(state) {
            self.alone.store(true, Ordering::Relaxed);
            log!(FI_LOG_INFO, FI_LOG_DOMAIN, "what is long waits for the application: {why}");
        }
    }

    /// All that is in it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// The same, cheaper, where calls are serialised and no thread of ours is there.
    #[inline(always)]
    pub fn at_once(&self) -> Option<Private<'_, State>> {
        self.state.at_once()
    }

    /// The same, if it is certain that nobody else is at it.
    pub fn try_lock(&self) -> Option<Guard<'_, State>> {
        self.state.try_lock()
    }

    /// An application asks for progress: it needs no help at the moment. Called under the lock.
    #[inline]
    pub fn polled(&self) {
        if let Some(auto) = self.auto.get() {
            // who only looks in between two sleeps does not see soon what comes
            if !(is_asleep_elsewhere() && is_looked_in()) {
                self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            }
            auto.relieve();
        }
    }

    /// The thread that makes progress by itself, if there is one.
    pub fn auto(&self) -> Option<&Auto> {
        self.auto.get()
    }

    /// Something is held back in this domain, whose lock is held.
    #[inline]
    pub fn note_held(self: &Arc<Self>, state: &mut Guard<'_, State>) {
        self.pusher.note(self, state);
    }

    /// Ends both threads.
    pub fn stop(&self) {
        self.pusher.stop();
        if let Some(auto) = self.auto.get() {
            auto.stop();
        }
    }

    /// Reports to this event queue, perhaps registrations too; false if there is one already.
    pub fn report_to(&self, eq: Arc<Eq>, registrations: bool) -> bool {
        self.eq.set((eq, registrations)).is_ok()
    }

    /// The event queue to which registrations are reported, if that was asked for.
    pub fn registrations(&self) -> Option<&Eq> {
        self.eq.get().filter(|(_, registrations)| *registrations).map(|(eq, _)| &**eq)
    }
}

impl Moving for Domain {
    fn auto(&self) -> Option<&Auto> {
        self.auto.get()
    }

    fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    fn need(&self, rests: &mut dyn FnMut()) -> Need {
        if self.is.progress != Progress::Owed {
            return Need::Progress;
        }
        // who has it is at it
        let Some(mut state) = self.try_lock() else { return Need::Nothing };
        if state.is_owed_progress() {
            if !state.awaited.any() {
                return Need::Progress;
            }
            // it may have armed a descriptor, and compute
            state.move_for_sleepers();
            return Need::Nothing;
        }
        rests();
        if self.serialised && !self.pusher.is_started() {
            // SAFETY: the application's calls are serialised, the other thread is not there, and this one takes it when it is roused: the lock is shared then.
            unsafe { state.unshare() };
        }
        Need::Rest
    }

    fn settle(&self, settled: &mut dyn FnMut()) -> Settled {
        let mut state = self.lock();
        for _ in 0..ROUNDS {
            if !state.move_for_sleepers() {
                if !state.endpoints.values_mut().all(|endpoint| endpoint.arm()) {
                    return Settled::No;
                }
                settled();
                return Settled::Yes;
            }
            // a round may have copied much
            if state.is_wanted() {
                return Settled::Wanted;
            }
        }
        Settled::No
    }
}

impl Holding for Domain {
    fn pusher(&self) -> &Pusher {
        &self.pusher
    }

    fn push(&self) -> bool {
        // whoever holds the lock sends it all at the end of a round of progress
        let Some(mut state) = self.try_lock() else { return false };
        let mut pushed = false;
        for endpoint in state.endpoints.values_mut() {
            if let Some(worker) = endpoint.worker.as_mut().filter(|worker| worker.holds_back()) {
                worker.push();
                pushed = true;
            }
        }
        pushed
    }

    fn look(&self, looked: &mut dyn FnMut(bool)) {
        let mut state = self.lock();
        looked(state.endpoints.values_mut().any(|endpoint| endpoint.holds_back()));
    }

    fn is_owed_answers(&self) -> bool {
        // who is at it answers
        let Some(mut state) = self.try_lock() else { return true };
        state
            .endpoints
            .values_mut()
            .any(|endpoint| endpoint.worker.as_ref().is_some_and(Worker::is_owed_answers))
    }

    fn answer(&self) {
        let Some(mut state) = self.try_lock() else { return };
        state.move_for_sleepers();
    }
}

/// An object of a domain, and which it is there.
#[derive(Debug)]
pub struct Member<T> {
    pub domain: Arc<Domain>,
    pub key: Key<T>,
}

impl<T> Member<T> {
    pub fn new(domain: &Arc<Domain>, key: Key<T>) -> Self {
        Self { domain: domain.clone(), key }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, State> {
        self.domain.lock()
    }
}
