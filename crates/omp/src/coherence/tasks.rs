//! Tasks that another thread than the one that met them carries out (`services::pool`): what was written before a task is there when it begins, and what it wrote when who waits for it goes on.

use crate::area::Kind;

use super::host::{Answer, Host, Mutex};
use super::rank::Rank;
pub use crate::services::pool::Awaited;

/// Where an offered task belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The task that has met it.
    pub family: u64,
    /// The innermost task group; 0: none.
    pub group: u64,
    /// The offered task that it was met in; 0: none.
    pub around: u64,
    /// Threads of the team.
    pub team: usize,
}

/// A task that this thread has carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number.
    pub task: u64,
    /// How long that took.
    pub nanoseconds: u64,
}

/// What the thread that waits is to do.
#[derive(Debug)]
pub enum Next {
    /// Go on.
    Over,
    /// Carry this task out.
    Task {
        /// Its number.
        task: u64,
        /// Its group.
        group: u64,
        /// What was offered.
        data: Vec<u8>,
    },
    /// These are done.
    Done(Vec<u64>),
}

impl<H: Host> Rank<H> {
    /// Offers a task to threads that wait. Its number, 0 if none can have it; and the nanoseconds that others have worked for this rank so far.
    pub fn offer(&self, place: Place, task: &[&[u8]]) -> (u64, u64) {
        let position = self.release_all();
        let args = [place.family, place.group, place.around, position, place.team as u64, 0];
        let answer = self.host.ask(Kind::Offer, args, task);
        (answer.result[0], answer.result[1])
    }

    /// Tells what a task that was carried out has changed, so that [`work`](Self::work) has little left to tell.
    pub fn tell_of_task(&self) {
        self.release_all();
    }

    /// Waits, or gives a task to be carried out meanwhile; and up to where the log has what comes before, which the caller is to [`see`](Self::see) then. `done`: what the thread was given
    /// before.
    pub fn work(&self, awaited: Awaited, done: Option<Done>) -> (Next, u64) {
        let position = if done.is_some() { self.release_all() } else { 0 };
        self.publish_if_awaited();
        let [how, number] = awaited.to_words();
        let (task, nanoseconds) = done.map_or((0, 0), |done| (done.task, done.nanoseconds));
        let args = [how, number, task, position, nanoseconds, 0];
        let Answer { result, data } = self.waiting(|| self.host.ask(Kind::Work, args, &[]));
        let next = match result[0] {
            1 => Next::Task { task: result[1], group: result[3], data: data.to_vec() },
            2 => Next::Done(data.as_chunks().0.iter().map(|number| u64::from_ne_bytes(*number)).collect()),
            _ => Next::Over,
        };
        (next, result[2])
    }

    /// Tells what this rank changed, as a lock's release does; up to where the log then has it.
    fn release_all(&self) -> u64 {
        if !self.is_inside() {
            return 0;
        }
        let mut log = self.log.lock();
        let known = self.release(&mut log);
        // who only offers never looks, and each of its entries would be held against each of all others'
        if log.is_behind() {
            self.catch_up(&mut log);
        }
        known
    }
}
