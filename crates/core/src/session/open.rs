//! Where lanes may be, and how they are opened.

use super::path::Path;
use super::{Action, Session, Time, What, Which};
use crate::lanes::{End, Pair, pairs};
use crate::wire::offer::Interface;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Most paths that are tried for one peer.
const MAX_PATHS: usize = 64;

/// What the side that opens lanes has to know.
#[derive(Clone, Debug)]
pub struct Planner {
    /// This side's interfaces.
    pub near: Arc<[Interface]>,
    /// The other side's.
    pub far: Arc<[Interface]>,
    /// How many lanes there may be.
    pub most: usize,
}

fn end(interface: &Interface) -> End<'_> {
    let Interface { index, speed, flags, nets, .. } = interface;
    End { index: *index, speed: *speed, flags: *flags, nets }
}

impl Planner {
    /// The pairs of interfaces between which there may be lanes, best first; `vain` are those that were tried in vain.
    pub fn pairs(&self, vain: &[(u32, u32)]) -> Vec<Pair> {
        let near: Vec<_> = self.near.iter().map(end).collect();
        let far: Vec<_> = self.far.iter().map(end).collect();
        pairs(&near, &far, vain, self.most)
    }
}

fn key(pair: &Pair) -> (u32, u32) {
    (pair.near.0, pair.far.0)
}

impl<L: Copy + Eq + core::fmt::Debug> Session<L> {
    /// Finds out by which paths there may be lanes, once there is use for more than one.
    pub fn plan(&mut self, now: Time) {
        let Some(planner) = &self.planner else { return };
        if core::mem::replace(&mut self.planned, true) {
            return;
        }
        self.paths = planner.pairs(&[]).into_iter().map(|pair| Path::new(pair, now)).collect();
        // the lane that there is takes one of them
        for lane in &mut self.lanes {
            let its = |path: &Path| {
                let ends = (path.pair().near.1, path.pair().far.1);
                path.is_idle() && lane.ends.map(|(near, far)| (near.ip(), far.ip())) == Some(ends)
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
        let vain: Vec<_> =
            self.paths.iter().filter(|path| path.is_vain()).map(|path| key(path.pair())).collect();
        for pair in planner.pairs(&vain) {
            let known = self.paths.iter().any(|path| key(path.pair()) == key(&pair));
            if !known && self.paths.len() < MAX_PATHS {
                self.paths.push(Path::new(pair, now));
            }
        }
    }

    /// Opens the lanes that are missing and worth an attempt now.
    pub(super) fn open_paths(&mut self, now: Time) {
        self.plan(now);
        if self.planner.is_none() || self.parting {
            return;
        }
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
        let pair = *self.paths[path].pair();
        self.actions.push_back(Action::Open { path, number, pair });
    }

    /// Opens one more lane between interfaces that have one.
    pub(super) fn open_further(&mut self, now: Time, pair: Pair) {
        let free = |path: &Path| path.is_further() && path.is_idle() && path.is_of(&pair);
        let path = self.paths.iter().position(free).unwrap_or(self.paths.len());
        if path == MAX_PATHS {
            return;
        }
        if path == self.paths.len() {
            self.paths.push(Path::further(pair, now));
        }
        self.open_path(path);
    }

    /// The lane of a path has ended. Its interfaces are without one only if it was the last between them.
    pub(super) fn path_ended(&mut self, now: Time, path: usize) {
        let Some(one) = self.paths.get(path) else { return };
        let (pair, further) = (*one.pair(), one.is_further());
        let other =
            self.paths.iter().position(|other| other.is_further() && other.is_up() && other.is_of(&pair));
        if let Some(other) = other.filter(|_| !further) {
            self.paths[other].set_further(false);
            self.paths[path].set_further(true);
        }
        self.paths[path].ended(now);
    }

    /// An attempt to open a lane has come to nothing; `reached`: somebody was there.
    pub fn open_failed(&mut self, now: Time, path: usize, why: String, reached: bool) {
        let Some(one) = self.paths.get_mut(path) else { return };
        let (number, which) = (one.opening(), Which::Path(*one.pair()));
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

    /// A lane that is being opened is not to come about.
    pub(super) fn abandon(&mut self, now: Time, number: u16) {
        let Some(path) = self.paths.iter().position(|path| path.opening() == Some(number)) else { return };
        self.actions.push_back(Action::Abandon { path });
        self.open_failed(now, path, "the peer gave it up".into(), true);
    }
}
