//! A member's endpoint on the simulated network, and all members together.

use crate::model::Model;
use crate::world::{Time, World};
use generator::{Generator, Gn};
use polyrail_p2p::view::ADDRESS;
use polyrail_p2p::wire::{Done, PeerIdx, PutError, Refused, Taken, Wire};
use polyrail_p2p::{Error, Job, Member, Peers, View};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A coroutine's stack, in words: members compute in vectors of their own.
const STACK: usize = 1 << 15;
/// Active messages are words of at most so many bytes.
const ACTIVE: usize = 4096;

/// A member's endpoint.
pub struct Simulated {
    // only one member runs at a time: it is locked for nobody
    world: Arc<Mutex<World>>,
    me: usize,
    /// The value that was taken last.
    taken: Vec<u8>,
}

/// Nothing would ever happen again, and some have not ended.
#[derive(Debug, thiserror::Error)]
#[error("after {seconds} simulated seconds nothing is under way that would end it, and {left} members wait")]
pub struct Stuck {
    /// When.
    pub seconds: f64,
    /// How many.
    pub left: usize,
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(member: usize) -> [u8; ADDRESS] {
    let mut address = [0; ADDRESS];
    address[..8].copy_from_slice(&(member as u64).to_le_bytes());
    address
}

/// Runs so many members as the model has, with as many parts each of the job as their shares of them, and gives what each has in the end that is not killed before, in their order, and when that
/// was.
///
/// # Errors
/// They wait for each other for ever.
pub fn run<T, F>(model: &Model, job: &Job, body: F) -> Result<Vec<(Duration, T)>, Stuck>
where
    T: Send,
    F: Fn(Result<Peers<Simulated>, Error>) -> T + Copy + Send,
{
    let count = model.sites.len();
    let world = Arc::new(Mutex::new(World::new(model.clone())));
    let none: Vec<Option<(Duration, T)>> = (0..count).map(|_| None).collect();
    let results = Arc::new(Mutex::new(none));
    let members: Vec<Member> = (0..count)
        .map(|member| Member {
            address: address(member),
            site: model.sites[member],
            weight: u16::from(member > 0 || !model.looks_on),
        })
        .collect();
    let mut coroutines: Vec<Generator<'_, (), ()>> = (0..count)
        .map(|me| {
            let (world, results, members) = (world.clone(), results.clone(), members.clone());
            let job = job.clone();
            Gn::<()>::new_opt(STACK, move || {
                let wire = Simulated { world: world.clone(), me, taken: Vec::new() };
                let peers = View::first(job, members).and_then(|view| Peers::over(wire, view));
                let result = body(peers);
                let now = Duration::from_nanos(locked(&world).now);
                locked(&results)[me] = Some((now, result));
            })
        })
        .collect();
    for member in 0..count {
        locked(&world).wake(member, 0, false);
    }
    let left = |coroutines: &[Generator<'_, (), ()>]| {
        let goes_on =
            |member: &usize| !coroutines[*member].is_done() && !locked(&world).is_dead(*member, false);
        (0..count).filter(goes_on).count()
    };
    let mut waits = count;
    while waits > 0 {
        let next = locked(&world).next();
        let late = u128::from(locked(&world).now) > model.most.as_nanos();
        let Some(member) = next.filter(|_| !late) else {
            let seconds = locked(&world).now as f64 * 1e-9;
            let left = left(&coroutines);
            // who waited last was killed
            if left == 0 {
                break;
            }
            // coroutines that are not at their ends are unwound
            return Err(Stuck { seconds, left });
        };
        coroutines[member].resume();
        if coroutines[member].is_done() || !model.killed.is_empty() {
            waits = left(&coroutines);
        }
    }
    drop(coroutines);
    let results = std::mem::take(&mut *locked(&results));
    Ok(results.into_iter().flatten().collect())
}

/// Lets the others run, until this one is woken.
#[expect(deprecated, reason = "a scope cannot be handed through a member's own code")]
fn turn() {
    generator::yield_with(());
}

impl Simulated {
    /// Lets this time pass.
    fn pass(&self, time: Time) {
        {
            let mut world = locked(&self.world);
            let at = world.now + time;
            world.wake(self.me, at, false);
        }
        turn();
    }

    /// Lets the processor time pass that messages took.
    fn pay(&self) {
        let debt = std::mem::take(&mut locked(&self.world).nodes[self.me].debt);
        if debt > 0 {
            self.pass(debt);
        }
    }
}

impl Wire for Simulated {
    const SPINS: u32 = 0;

    fn address(&self) -> [u8; ADDRESS] {
        address(self.me)
    }

    fn peer(&mut self, address: &[u8]) -> Result<PeerIdx, Error> {
        let number = address.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        match number.filter(|number| (*number as usize) < locked(&self.world).nodes.len()) {
            Some(number) => Ok(PeerIdx(number as u32)),
            None => Err(Error::Use("it is no address of the simulation".into())),
        }
    }

    fn why(&self, peer: PeerIdx) -> Option<&str> {
        locked(&self.world).is_dead(peer.0 as usize, true).then_some("it was killed")
    }

    fn active_max(&self, _: PeerIdx) -> usize {
        ACTIVE
    }

    fn newest_counts(&mut self, _: PeerIdx) {}

    fn send(&mut self, to: PeerIdx, tag: u64, bytes: &Arc<[u8]>) -> Result<(), Refused> {
        let mut world = locked(&self.world);
        if world.is_dead(to.0 as usize, true) {
            return Err(Refused::Gone);
        }
        world.send(self.me, to.0 as usize, tag, bytes.clone());
        Ok(())
    }

    fn send_active(&mut self, to: PeerIdx, _: u16, bytes: &[u8]) -> Result<(), Refused> {
        let mut world = locked(&self.world);
        if world.is_dead(to.0 as usize, true) {
            return Err(Refused::Gone);
        }
        world.send_active(self.me, to.0 as usize, bytes.to_vec());
        Ok(())
    }

    fn recv(&mut self, from: Option<PeerIdx>, tag: u64, buffer: Vec<u8>) {
        locked(&self.world).nodes[self.me].recv(from, tag, buffer);
    }

    fn put(&mut self, to: PeerIdx, tag: u64, number: u64, bytes: &[u8]) -> Result<(), PutError> {
        let mut world = locked(&self.world);
        if world.is_dead(to.0 as usize, true) {
            return Err(PutError::Gone);
        }
        world.put(self.me, to.0 as usize, tag, number, bytes);
        Ok(())
    }

    fn take(&mut self, from: PeerIdx, tag: u64) -> Taken<'_> {
        let mut world = locked(&self.world);
        let now = world.now;
        let Some(value) = world.nodes[self.me].values.get_mut(&(from.0 as usize, tag)) else {
            return Taken::Nothing;
        };
        let (iteration, age) = (value.number, now - value.came.min(now));
        if !std::mem::take(&mut value.is_new) {
            return Taken::Unchanged { iteration, age };
        }
        self.taken.clone_from(&value.bytes);
        Taken::New { iteration, age, bytes: &self.taken }
    }

    fn has_value(&self, from: PeerIdx, tag: u64) -> bool {
        let world = locked(&self.world);
        world.nodes[self.me].values.get(&(from.0 as usize, tag)).is_some_and(|value| value.is_new)
    }

    fn progress(&mut self) -> usize {
        self.pay();
        std::mem::take(&mut locked(&self.world).nodes[self.me].moved)
    }

    fn next_done(&mut self) -> Option<Done> {
        locked(&self.world).next_done(self.me)
    }

    fn heard(&mut self) -> Option<(PeerIdx, Vec<u8>)> {
        locked(&self.world).nodes[self.me].heard.pop_front()
    }

    fn sleep(&mut self, most: Duration) {
        {
            let mut world = locked(&self.world);
            if world.nodes[self.me].moved > 0 {
                return;
            }
            let at = world.now + most.as_nanos() as Time;
            world.wake(self.me, at, true);
        }
        turn();
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(locked(&self.world).now)
    }

    fn worked(&mut self, amount: f64) {
        let time = locked(&self.world).takes(self.me, amount);
        self.pass(time);
    }

    fn close(&mut self, _: Duration) {}
}
