//! What a member's place in a view means for it.

use crate::Scheme;
use crate::rounds::{Rounds, Setting};
use crate::view::View;

/// How what is sent to a member goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Within this process.
    Here,
    /// Each iteration's, in order.
    InStep,
    /// The newest; for who receives it, at most so many iterations old.
    Newest(Option<u64>),
}

/// A member's place.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) me: usize,
    /// By member.
    pub(crate) ways: Vec<Way>,
    /// The members that hold parts: what rounds number.
    pub(crate) workers: Vec<usize>,
    /// Parts that are held here.
    pub(crate) mine: Vec<u32>,
    /// Who keeps this one's states.
    pub(crate) backup: Option<usize>,
}

impl Seat {
    /// The place of this member.
    pub(crate) fn new(view: &View, me: usize) -> Self {
        let site = |number: usize| view.members[number].site;
        let way = |number: usize| match view.job.scheme {
            _ if number == me => Way::Here,
            Scheme::Synchronous => Way::InStep,
            Scheme::Asynchronous => Way::Newest(None),
            Scheme::Bounded(most) => Way::Newest(Some(most)),
            Scheme::Hybrid if site(number) == site(me) => Way::InStep,
            Scheme::Hybrid => Way::Newest(None),
        };
        let count = view.members.len();
        let mut workers: Vec<usize> = view.owners.iter().map(|owner| usize::from(*owner)).collect();
        workers.sort_unstable();
        workers.dedup();
        let owned = |part: &u32| usize::from(view.owners[*part as usize]) == me;
        let others = (1..count).map(|after| (me + after) % count);
        Self {
            me,
            ways: (0..count).map(way).collect(),
            workers,
            mine: (0..view.job.parts).filter(owned).collect(),
            backup: others.into_iter().find(|other| view.members[*other].weight > 0),
        }
    }

    /// The machine of rounds that begins with this iteration; none where no part is held.
    pub(crate) fn rounds(&self, view: &View, iteration: u64) -> Option<Rounds> {
        let me = self.workers.iter().position(|worker| *worker == self.me)?;
        let in_step = |number: &usize| matches!(self.ways[self.workers[*number]], Way::InStep | Way::Here);
        let setting = Setting {
            me,
            members: self.workers.len(),
            tolerance: view.job.tolerance,
            in_step: (0..self.workers.len()).filter(in_step).collect(),
            every: view.job.every,
        };
        Some(Rounds::new(setting, iteration))
    }
}
