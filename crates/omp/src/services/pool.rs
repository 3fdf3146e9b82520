//! Tasks that threads have offered to whoever has nothing to do. State and decisions only.
//!
//! A task is *offered* by the thread that met it, *taken* by one that waits, and *done* when its body is through. Who waits says what for:
//! - a task's children (`taskwait`), a *family* of tasks that one task has offered;
//! - all of a *group* (the end of a `taskgroup`), descendants included;
//! - all tasks, and all threads of the team (a barrier).
//!
//! A thread that waits in a task gets descendants only of what it waits for (OpenMP 5.2, 12.9, task scheduling constraints), so that whoever has a lock across a `taskwait` does not come to others who
//! want it; at a barrier it gets any.
use std::collections::{HashMap, VecDeque};

use super::Asker;

/// Tasks inside each other, each offered by the one around it, at most. Beyond that, who meets a task carries it out.
const DEEP: usize = 256;
/// So many tasks are offered for each thread of the team that works, so that it finds one when it is through.
const AHEAD: usize = 2;
/// Tasks that are offered and not taken, at most.
const MOST: usize = 4096;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// All that one task has offered, by the family's number.
    Family(u64),
    /// The same, or any of it, if that was not told before.
    Any(u64),
    /// All tasks of a group.
    Group(u64),
    /// All tasks, and so many threads at a barrier.
    Team(usize),
}

impl Awaited {
    /// As [`Kind::Work`](crate::area::Kind::Work) has it.
    pub fn to_words(self) -> [u64; 2] {
        match self {
            Self::Family(family) => [0, family],
            Self::Any(family) => [1, family],
            Self::Group(group) => [2, group],
            Self::Team(threads) => [3, threads as u64],
        }
    }

    /// The reverse.
    pub fn from_words([how, number]: [u64; 2]) -> Self {
        match how {
            0 => Self::Family(number),
            1 => Self::Any(number),
            2 => Self::Group(number),
            _ => Self::Team(number as usize),
        }
    }
}

/// A task, as it is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The family that it belongs to.
    pub family: u64,
    /// The innermost group; 0: none, but the region.
    pub group: u64,
    /// The task around it, of those that were offered; 0: none.
    pub around: u64,
    /// Up to where the log has what it relies on.
    pub position: u64,
    /// Threads of the team.
    pub team: usize,
}

/// What is answered to who waits.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is over.
    Over,
    /// Carry this one out.
    Task {
        /// Its number.
        task: u64,
        /// Its group.
        group: u64,
        /// What it is.
        data: Vec<u8>,
    },
    /// These of the family are done.
    Done(Vec<u64>),
}

struct Task {
    number: u64,
    by: Asker,
    position: u64,
    /// Itself and all around it, outermost first.
    families: Vec<u64>,
    groups: Vec<u64>,
    /// While it is not taken.
    data: Vec<u8>,
}

#[derive(Default)]
struct Children {
    left: usize,
    /// Done and not told.
    done: Vec<u64>,
}

/// Them.
#[derive(Default)]
pub struct Pool {
    last: u64,
    queue: VecDeque<Task>,
    taken: HashMap<u64, Task>,
    families: HashMap<u64, Children>,
    groups: HashMap<u64, usize>,
    waiting: VecDeque<(Asker, Awaited)>,
    /// Up to where the log has what tasks that are done have changed.
    position: u64,
    /// Threads of the team.
    team: usize,
    /// Nanoseconds that others have worked on tasks of a rank.
    helped: HashMap<usize, u64>,
}

impl Pool {
    /// A thread offers a task. Its number, or nothing: then it is for the thread to carry out.
    pub fn offer(&mut self, by: Asker, offer: Offer, data: Vec<u8>) -> Option<u64> {
        self.team = offer.team;
        let (mut families, mut groups) = match self.taken.get(&offer.around) {
            Some(around) => (around.families.clone(), around.groups.clone()),
            None => Default::default(),
        };
        if families.len() >= DEEP || self.queue.len() >= MOST {
            return None;
        }
        families.push(offer.family);
        groups.extend(Some(offer.group).filter(|group| *group > 0 && groups.last() != Some(group)));
        self.families.entry(offer.family).or_default().left += 1;
        *self.groups.entry(offer.group).or_default() += 1;
        self.last += 1;
        self.queue.push_back(Task {
            number: self.last,
            by,
            position: offer.position,
            families,
            groups,
            data,
        });
        Some(self.last)
    }

    /// What others have saved threads of `rank`, in nanoseconds.
    pub fn helped(&self, rank: usize) -> u64 {
        self.helped.get(&rank).copied().unwrap_or(0)
    }

    /// A thread has carried out a task, in so many nanoseconds; up to `position` the log has what that changed.
    ///
    /// # Errors
    /// Nobody has taken such a task.
    pub fn done(&mut self, by: Asker, task: u64, position: u64, nanoseconds: u64) -> Result<(), String> {
        let Some(task) = self.taken.remove(&task) else {
            return Err(format!("task {task} is done, which nobody has taken"));
        };
        self.position = self.position.max(position);
        if task.by != by {
            let helped = self.helped.entry(task.by.rank).or_default();
            *helped = helped.saturating_add(nanoseconds);
        }
        let family = task.families.last().copied().unwrap_or_default();
        if let Some(children) = self.families.get_mut(&family) {
            children.left -= 1;
            children.done.push(task.number);
            if children.left == 0 {
                self.families.remove(&family);
            }
        }
        let group = task.groups.last().copied().unwrap_or_default();
        if let Some(left) = self.groups.get_mut(&group) {
            *left -= 1;
            if *left == 0 {
                self.groups.remove(&group);
            }
        }
        Ok(())
    }

    /// A thread waits.
    pub fn wait(&mut self, who: Asker, awaited: Awaited) {
        if let Awaited::Team(team) = awaited {
            self.team = team;
        }
        self.waiting.push_back((who, awaited));
    }

    /// The next thread that need not wait any longer: what it is told, and up to where the log has what that relies on.
    pub fn poll(&mut self) -> Option<(Asker, Answer, u64)> {
        if self.is_over() {
            // one after the other: all wait for the same
            let at = self.waiting.iter().position(|(_, awaited)| matches!(awaited, Awaited::Team(_)))?;
            let (who, _) = self.waiting.remove(at)?;
            self.team = self.team.saturating_sub(1);
            return Some((who, Answer::Over, self.position));
        }
        for at in 0..self.waiting.len() {
            let (who, awaited) = self.waiting[at];
            if let Some((answer, position)) = self.answer(awaited) {
                self.waiting.remove(at);
                return Some((who, answer, position));
            }
        }
        None
    }

    fn answer(&mut self, awaited: Awaited) -> Option<(Answer, u64)> {
        let is_over = match awaited {
            Awaited::Family(family) | Awaited::Any(family) => match self.families.get_mut(&family) {
                Some(children) if awaited == Awaited::Any(family) && !children.done.is_empty() => {
                    return Some((Answer::Done(std::mem::take(&mut children.done)), self.position));
                }
                children => children.is_none(),
            },
            Awaited::Group(group) => !self.groups.contains_key(&group),
            Awaited::Team(_) => false,
        };
        if is_over {
            return Some((Answer::Over, self.position));
        }
        let may = |task: &Task| match awaited {
            Awaited::Family(family) | Awaited::Any(family) => task.families.contains(&family),
            Awaited::Group(group) => task.groups.contains(&group),
            Awaited::Team(_) => true,
        };
        let at = self.queue.iter().position(may)?;
        let mut task = self.queue.remove(at)?;
        let (number, position) = (task.number, task.position);
        let (group, data) = (task.groups.last().copied().unwrap_or_default(), std::mem::take(&mut task.data));
        self.taken.insert(number, task);
        Some((Answer::Task { task: number, group, data }, position))
    }

    /// Whether all threads of the team wait, and nothing is left to do; while they are being told, those who are not yet.
    fn is_over(&self) -> bool {
        let waiting = self.waiting.iter().filter(|(_, awaited)| matches!(awaited, Awaited::Team(_))).count();
        waiting > 0 && waiting >= self.team && self.queue.is_empty() && self.taken.is_empty()
    }

    /// Whether threads are to offer what they meet: some may have nothing to do soon.
    pub fn is_wanted(&self) -> bool {
        let soon = self.team.saturating_sub(1).max(1).saturating_mul(AHEAD);
        self.queue.len() < self.waiting.len().saturating_add(soon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(rank: usize) -> Asker {
        Asker { rank, slot: 0 }
    }
    fn offer(family: u64, group: u64, around: u64) -> Offer {
        Offer { family, group, around, position: 0, team: 3 }
    }
    fn family(family: u64) -> Awaited {
        Awaited::Family(family)
    }
    fn number(answer: Option<(Asker, Answer, u64)>, who: usize) -> u64 {
        match answer {
            Some((to, Answer::Task { task, .. }, _)) if to.rank == who => task,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_awaited_comes_back() {
        for awaited in [Awaited::Family(7), Awaited::Any(7), Awaited::Group(7), Awaited::Team(7)] {
            assert_eq!(Awaited::from_words(awaited.to_words()), awaited);
        }
    }

    #[test]
    fn a_barrier_is_over_when_all_have_come_and_nothing_is_left() {
        let mut pool = Pool::default();
        let first = pool.offer(asker(0), offer(1, 0, 0), vec![1]).unwrap();
        pool.wait(asker(1), Awaited::Team(3));
        assert_eq!(number(pool.poll(), 1), first);
        pool.wait(asker(0), Awaited::Team(3));
        pool.wait(asker(2), Awaited::Team(3));
        assert_eq!(pool.poll(), None, "a task is being carried out");
        pool.done(asker(1), first, 7, 100).unwrap();
        assert_eq!(pool.poll(), None, "and who does has not come");
        pool.wait(asker(1), Awaited::Team(3));
        let told: Vec<_> = std::iter::from_fn(|| pool.poll()).collect();
        assert_eq!(told, [0, 2, 1].map(|rank| (asker(rank), Answer::Over, 7)));
        assert_eq!(pool.helped(0), 100);
        // and the next one
        pool.wait(asker(2), Awaited::Team(3));
        assert_eq!(pool.poll(), None);
    }

    #[test]
    fn who_waits_in_a_task_gets_its_descendants_only() {
        let mut pool = Pool::default();
        let a = pool.offer(asker(0), offer(1, 0, 0), Vec::new()).unwrap();
        let b = pool.offer(asker(0), offer(1, 0, 0), Vec::new()).unwrap();
        pool.wait(asker(1), Awaited::Team(3));
        assert_eq!(number(pool.poll(), 1), a);
        // rank 1, in a, offers two, and waits for its own
        let c = pool.offer(asker(1), offer(2, 0, a), Vec::new()).unwrap();
        pool.wait(asker(2), Awaited::Team(3));
        assert_eq!(number(pool.poll(), 2), b, "the oldest");
        pool.wait(asker(1), family(2));
        assert_eq!(number(pool.poll(), 1), c);
        // rank 2, in b, offers one: it is none of a's
        let d = pool.offer(asker(2), offer(3, 0, b), Vec::new()).unwrap();
        let e = pool.offer(asker(1), offer(4, 0, c), Vec::new()).unwrap();
        pool.wait(asker(1), family(4));
        assert_eq!(number(pool.poll(), 1), e);
        pool.done(asker(1), e, 1, 1).unwrap();
        pool.wait(asker(1), family(4));
        assert_eq!(pool.poll(), Some((asker(1), Answer::Over, 1)));
        // rank 0 waits for a and b: d is one of its own
        pool.wait(asker(0), family(1));
        assert_eq!(number(pool.poll(), 0), d);
    }

    #[test]
    fn a_group_is_over_when_all_below_it_is() {
        let mut pool = Pool::default();
        let a = pool.offer(asker(0), offer(1, 9, 0), Vec::new()).unwrap();
        pool.wait(asker(1), Awaited::Team(3));
        assert_eq!(number(pool.poll(), 1), a);
        let b = pool.offer(asker(1), offer(2, 9, a), Vec::new()).unwrap();
        pool.done(asker(1), a, 0, 0).unwrap();
        pool.wait(asker(0), family(1));
        assert_eq!(pool.poll(), Some((asker(0), Answer::Over, 0)), "children only");
        pool.wait(asker(0), Awaited::Group(9));
        assert_eq!(number(pool.poll(), 0), b);
        pool.done(asker(0), b, 0, 0).unwrap();
        pool.wait(asker(0), Awaited::Group(9));
        assert_eq!(pool.poll(), Some((asker(0), Answer::Over, 0)));
        assert!(pool.done(asker(0), b, 0, 0).is_err());
    }

    #[test]
    fn what_is_done_is_told_once_and_depth_is_bounded() {
        let mut pool = Pool::default();
        let a = pool.offer(asker(0), offer(1, 0, 0), Vec::new()).unwrap();
        let b = pool.offer(asker(0), offer(1, 0, 0), Vec::new()).unwrap();
        let mut around = 0;
        for (rank, task) in [(1, a), (2, b)] {
            pool.wait(asker(rank), Awaited::Team(3));
            assert_eq!(number(pool.poll(), rank), task);
            around = task;
        }
        pool.done(asker(1), a, 0, 0).unwrap();
        let told = Awaited::Any(1);
        pool.wait(asker(0), told);
        assert_eq!(pool.poll(), Some((asker(0), Answer::Done(vec![a]), 0)));
        pool.wait(asker(0), told);
        assert_eq!(pool.poll(), None);
        // nobody is to have these but who offers them
        pool.waiting.clear();
        for family in 2..=DEEP as u64 {
            around = pool.offer(asker(2), offer(family, 0, around), Vec::new()).unwrap();
            pool.wait(asker(2), self::family(family));
            assert_eq!(number(pool.poll(), 2), around);
        }
        assert_eq!(pool.offer(asker(2), offer(1000, 0, around), Vec::new()), None);
    }
}
