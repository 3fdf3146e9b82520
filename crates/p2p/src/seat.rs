//! What a member's place in a view means for it.

use crate::Scheme;
use crate::kept::Stay;
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
    /// How many states of a part are kept.
    pub(crate) keeps: Stay,
}

/// States of a part that are kept where members are in step, at most.
const STATES: u64 = 8;

/// How many states of a part are kept.
///
/// Out of step any of a stage will do. In step all go back to one iteration, of which all states have to be there: those of who is lost where they were kept besides. Of a member's newest
/// state it may not have been said yet that it is, but of the one before it has, as it is waited for; and who is ahead of it, by an iteration for each member between them at most, may have kept
/// more meanwhile. Where not all are in step, they have a stage in common: of the newest of which there are states somebody may not have kept any yet, of the one before all have.
/// While a view is being agreed on twice as many stay: lists of what there is come at different times.
fn keeps(view: &View, workers: usize) -> Stay {
    let ahead = (workers as u64).saturating_sub(1).div_ceil(view.job.keep.max(1));
    let in_step = (2 + ahead).min(STATES) as usize;
    match view.job.scheme {
        Scheme::Synchronous => Stay { newest: in_step, of_stages: [0; 2] },
        Scheme::Hybrid => Stay { newest: 0, of_stages: [in_step, 2] },
        Scheme::Asynchronous | Scheme::Bounded(_) => Stay { newest: 0, of_stages: [1; 2] },
    }
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
            mine: (0..view.job.parts).filter(owned).collect(),
            backup: others.into_iter().find(|other| view.members[*other].weight > 0),
            keeps: keeps(view, workers.len()),
            workers,
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
            keep: view.job.keep,
        };
        Some(Rounds::new(setting, iteration))
    }
}
