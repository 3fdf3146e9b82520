//! Where lanes may be, and how they are opened.

use super::numbers::Fate;
use super::path::{Over, Path, Way};
use super::{Action, IMPOSSIBLE, Session, Time, Traffic, What, Which};
use crate::frame::Frame;
use crate::lanes::{End, pairs};
use crate::wire::Transport;
use crate::wire::offer::Interface;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Most paths that are tried for one peer.
pub(super) const MAX_PATHS: usize = 64;

/// What the side that opens lanes has to know.
#[derive(Clone, Debug)]
pub struct Planner {
    /// This side's interfaces.
    pub near: Arc<[Interface]>,
    /// The other side's.
    pub far: Arc<[Interface]>,
    /// How many lanes there may be.
    pub most: usize,
    /// The transports that both sides have and that go between interfaces, the best first.
    pub between: Vec<Transport>,
    /// The others that both have: how many places each knows, and their speed in Mb/s (0: unknown).
    pub places: Vec<(Transport, u16, u32)>,
}

fn end(interface: &Interface) -> End<'_> {
    let Interface { index, speed, flags, nets, .. } = interface;
    End { index: *index, speed: *speed, flags: *flags, nets }
}

impl Planner {
    /// Where there may be lanes, best first; `vain` are the ways that were tried in vain.
    pub fn ways(&self, vain: &[Way]) -> Vec<Way> {
        let mut ways: Vec<Way> = self.between.iter().flat_map(|one| self.pairs_of(*one, vain)).collect();
        for (transport, count, speed) in &self.places {
            let way = |n| Way { transport: *transport, over: Over::Place(n, *speed) };
            // one that fails is tried again: there is no other to take its place
            ways.extend((0..*count).map(way));
        }
        ways.truncate(self.most);
        ways
    }

    /// The pairs of interfaces for one transport.
    fn pairs_of(&self, transport: Transport, vain: &[Way]) -> impl Iterator<Item = Way> + use<> {
        let near: Vec<_> = self.near.iter().map(end).collect();
        let far: Vec<_> = self.far.iter().map(end).collect();
        let its = vain.iter().filter(|way| way.transport == transport).filter_map(Way::pair);
        let vain: Vec<_> = its.map(|pair| (pair.near.0, pair.far.0)).collect();
        let found = pairs(&near, &far, &vain, self.most);
        found.into_iter().map(move |pair| Way { transport, over: Over::Pair(pair) })
    }
}

impl<L: Copy + Eq + core::fmt::Debug> Session<L> {
    /// Finds out by which paths there may be lanes, once there is use for more than one.
    pub fn plan(&mut self, now: Time) {
        let Some(planner) = &self.planner else { return };
        if core::mem::replace(&mut self.planned, true) {
            return;
        }
        self.paths = planner.ways(&[]).into_iter().map(|way| Path::new(way, now)).collect();
        // the lane that there is takes one of them
        for lane in &mut self.lanes {
            let ends = lane.ends.map(|(near, far)| (near.ip(), far.ip()));
            let its = |path: &Path| {
                let over = path.way().pair().map(|pair| (pair.near.1, pair.far.1));
                path.is_idle() && path.way().transport == lane.transport && over == ends
            };
            lane.path = self.paths.iter().position(its);
            if let Some(path) = lane.path.and_then(|at| self.paths.get_mut(at)) {
                path.opened(lane.number);
            }
        }
    }

    /// Finds other paths for interfaces that do not reach those they were to go with.
    fn plan_others(&mut self, now: Time) {
        let Some(planner) = &self.planner else { return };
        let vain: Vec<_> = self.paths.iter().filter(|path| path.is_vain()).map(|path| *path.way()).collect();
        for way in planner.ways(&vain) {
            let known = self.paths.iter().any(|path| path.way().is(&way));
            if !known && self.paths.len() < MAX_PATHS {
                self.paths.push(Path::new(way, now));
            }
        }
    }

    /// Opens the lanes that are missing and worth an attempt now.
    pub(super) fn open_paths(&mut self, now: Time) {
        self.plan(now);
        if self.planner.is_none() || self.parting {
            return;
        }
        self.call_stand_ins(now);
        for at in 0..self.paths.len() {
            if self.paths[at].retry().is_some_and(|retry| retry <= now) {
                self.open_path(at);
            }
        }
    }

    fn open_path(&mut self, path: usize) {
        let number = self.numbers.next(|number| self.is_free(number));
        self.numbers.spend(number, false);
        self.paths[path].begin(number);
        let way = *self.paths[path].way();
        self.actions.push_back(Action::Open { path, number, way });
    }

    /// Opens one more lane between interfaces that have one.
    pub(super) fn open_further(&mut self, now: Time, way: Way) {
        let free = |path: &Path| path.is_further() && path.is_idle() && path.way().is(&way);
        let path = self.paths.iter().position(free).unwrap_or(self.paths.len());
        if path == MAX_PATHS {
            return;
        }
        if path == self.paths.len() {
            self.paths.push(Path::further(way, now));
        }
        self.open_path(path);
    }

    /// Of all paths that go the same way, this one is the way's own from now on.
    pub(super) fn make_own(&mut self, path: usize) {
        let way = *self.paths[path].way();
        for (at, other) in self.paths.iter_mut().enumerate() {
            if other.way().is(&way) {
                other.set_further(at != path);
            }
        }
    }

    /// The lane of a path has ended. Its interfaces are without one only if it was the last between them.
    pub(super) fn path_ended(&mut self, now: Time, path: usize) {
        let Some(one) = self.paths.get(path) else { return };
        let (way, further) = (*one.way(), one.is_further());
        let its = |(at, other): (usize, &Path)| at != path && other.is_up() && other.way().is(&way);
        if let Some(other) = self.paths.iter().enumerate().position(its).filter(|_| !further) {
            self.make_own(other);
        }
        self.paths[path].ended(now);
    }

    /// An attempt to open a lane has come to nothing; `reached`: somebody was there.
    pub fn open_failed(&mut self, now: Time, path: usize, why: String, reached: bool) {
        let Some(one) = self.paths.get_mut(path) else { return };
        let (number, which) = (one.opening(), Which::Path(*one.way()));
        let news = one.failed(now, why.clone(), reached);
        if let Some(number) = number.filter(|_| !reached) {
            // nobody has heard of it
            self.numbers.give_back(number);
        }
        if self.paths[path].is_vain() {
            self.plan_others(now);
        }
        if news {
            self.event(which, What::Refused(why));
        }
    }

    /// The peer answered to a lane whose opening came to nothing here. If it agreed (`has_it`), it hears of that.
    ///
    /// # Errors
    /// It was never asked for such a lane.
    pub fn decline(
        &mut self,
        number: u16,
        has_it: bool,
        traffic: &mut impl Traffic,
    ) -> Result<(), &'static str> {
        match self.numbers.fate(number).filter(|_| self.planner.is_some()) {
            Some(Fate::Tried) if has_it => {
                self.numbers.settle(number);
                traffic.say(Frame::Retire { lane: number, received: 0 });
            }
            // or it has heard so
            Some(Fate::Tried | Fate::Settled) => {}
            Some(Fate::Came) | None => return Err(IMPOSSIBLE),
        }
        Ok(())
    }

    /// A lane that is being opened is not to come about.
    pub(super) fn abandon(&mut self, now: Time, number: u16) {
        let Some(path) = self.paths.iter().position(|path| path.opening() == Some(number)) else { return };
        self.actions.push_back(Action::Abandon { path });
        self.open_failed(now, path, "the peer gave it up".into(), true);
    }
}
