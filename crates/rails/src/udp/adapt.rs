//! Links change their composition when the path turns out to be another than the one it suits, or a side chooses another scheme.
//!
//! A composition is of both directions, a scheme of one: it is asynchronous while either side's scheme is. A side that has changed it speaks for
//! itself; what the other's scheme is is known by what that proposed last.

use super::link::Link;
use crate::config::{Config, Faults};
use crate::rail::control::{Cause, Change};
use polyrail_core::connection::News;
use polyrail_core::control::Refusal;
use polyrail_core::control::rules::{Context, InForce, Reason, propose_composition};
use polyrail_core::micro::{Composition, Time};
use polyrail_core::values::Scheme;
use std::collections::VecDeque;

/// Between two changes of a restless link, in nanoseconds; and what they lead to.
const RESTLESS: Time = 100_000_000;
const ALL: [Composition; 6] = [
    Composition::SyncBbr,
    Composition::AsyncPaced,
    Composition::SyncCubic,
    Composition::SyncIllinois,
    Composition::SyncReno,
    Composition::SyncHtcp,
];

/// Who says what links are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// The rules, by what a path turns out to be like.
    Rules,
    /// The user: it stays.
    Pinned,
    /// A test: another all the time, or the same anew.
    Restless {
        /// The same.
        same: bool,
    },
}

impl Choice {
    pub(super) fn of(config: &Config) -> Self {
        match config.faults {
            Some(Faults { change: true, .. }) => Self::Restless { same: false },
            Some(Faults { renew: true, .. }) => Self::Restless { same: true },
            _ if config.composition.is_some() => Self::Pinned,
            _ => Self::Rules,
        }
    }
}

/// What has changed is remembered for who asks, so many times.
const REMEMBERED: usize = 8;

/// What a link has become, and why.
#[derive(Debug)]
pub(super) struct Changes {
    /// What is in force, and why.
    in_force: (Composition, Cause),
    /// Why this side has proposed what it has.
    proposed: Option<Cause>,
    /// When a restless link changed last, and how often it has.
    restless: (Time, usize),
    /// What came to nothing last: a refusal is told once, however often the same is proposed.
    refused: Option<(Composition, Refusal)>,
    /// What nobody has been told of.
    news: VecDeque<Change>,
}

impl Changes {
    /// Of a link that begins with this.
    pub(super) fn new(first: Composition, cause: Cause) -> Self {
        Self {
            in_force: (first, cause),
            proposed: None,
            restless: (0, 0),
            refused: None,
            news: VecDeque::new(),
        }
    }

    /// What is in force, and why.
    pub(super) fn in_force(&self) -> (Composition, Cause) {
        self.in_force
    }

    /// The next change that nobody has been told of.
    pub(super) fn poll(&mut self) -> Option<Change> {
        self.news.pop_front()
    }

    fn handle_changed(&mut self, to: Composition) {
        let cause = self.proposed.take().unwrap_or(Cause::Peer);
        if to == self.in_force.0 {
            // it has begun anew, which is nobody's business
            return;
        }
        let (from, _) = std::mem::replace(&mut self.in_force, (to, cause));
        self.refused = None;
        self.keep(Change { from, to, cause, refused: None });
    }

    fn handle_refused(&mut self, to: Composition, cause: Cause, why: Refusal) {
        if self.refused.replace((to, why)) != Some((to, why)) {
            let (from, _) = self.in_force;
            self.keep(Change { from, to, cause, refused: Some(why) });
        }
    }

    fn keep(&mut self, change: Change) {
        if self.news.len() == REMEMBERED {
            self.news.pop_front();
        }
        self.news.push_back(change);
    }
}

/// Looks at a link's figures, and proposes another composition where the rules say so and the user did not pin one. True: there is
/// something to tell.
pub(super) fn adapt(link: &mut Link, now: Time, choice: Choice) -> bool {
    while let Some(news) = link.connection.poll_news() {
        match news {
            News::Changed(to) => {
                link.watcher.handle_change(now);
                if link.changes.proposed.is_none() {
                    link.their_scheme = to.scheme();
                }
                link.changes.handle_changed(to);
            }
            News::Refused(to, why) => {
                if let Some(cause) = link.changes.proposed.take() {
                    link.changes.handle_refused(to, cause, why);
                }
            }
        }
    }
    match choice {
        Choice::Restless { same } => change_anyway(link, now, same),
        Choice::Rules => follow_rules(link, now),
        // its figures are of no use
        Choice::Pinned => {}
    }
    !link.changes.news.is_empty()
}

/// Proposes what the rules say.
fn follow_rules(link: &mut Link, now: Time) {
    let shared = link.connection.shared();
    let figures = link.watcher.look(now, shared, false);
    if link.connection.is_changing() {
        return;
    }
    let scheme = match (link.scheme, link.their_scheme) {
        (Scheme::Synchronous, Scheme::Synchronous) => Scheme::Synchronous,
        _ => Scheme::Asynchronous,
    };
    // another scheme takes no figures
    let other = scheme != link.connection.scheme();
    let so_far = || other.then(|| link.watcher.context_so_far(shared, false));
    let Some(context) = figures.or_else(so_far) else { return };
    let context = Context { scheme, ..context };
    let in_force = InForce { composition: link.connection.composition(), age: link.watcher.age(now) };
    let Some(proposal) = propose_composition(&context, in_force, None) else { return };
    let gone = matches!(proposal.reason, Reason::Plain { .. } | Reason::Near { .. });
    // the peer that proposed it knows when its reason is gone
    if gone && !other && matches!(link.changes.in_force.1, Cause::Peer) {
        return;
    }
    let cause = Cause::Ours(proposal.reason);
    match link.connection.propose(now, proposal.composition) {
        Ok(()) => link.changes.proposed = Some(cause),
        // it may be had another time
        Err(Refusal::Busy | Refusal::HoldDown | Refusal::InForce) => {}
        Err(why) => link.changes.handle_refused(proposal.composition, cause, why),
    }
}

/// Changes a link that has been as it is for long enough.
fn change_anyway(link: &mut Link, now: Time, same: bool) {
    let (last, count) = link.changes.restless;
    if now < last + RESTLESS || link.pipe.is_some() || link.connection.is_changing() {
        return;
    }
    link.changes.restless = (now, count + 1);
    // what is refused is tried again at the next time
    let proposed = match same {
        true => link.connection.renew(now),
        false => link.connection.propose(now, ALL[count % ALL.len()]),
    };
    if proposed.is_ok() {
        link.changes.proposed = Some(Cause::Restless);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use polyrail_core::control::rules::Reason;

    const LOSSY: Reason = Reason::Lossy { loss: 1000, limit: 100, rtt: 20_000_000 };

    fn told(changes: &mut Changes) -> Vec<(&'static str, &'static str, String, Option<Refusal>)> {
        std::iter::from_fn(|| changes.poll())
            .map(|one| (one.from.name(), one.to.name(), one.cause.to_string(), one.refused))
            .collect()
    }

    #[test]
    fn who_wanted_a_change_is_told() {
        let mut changes = Changes::new(Composition::SyncCubic, Cause::First);
        changes.proposed = Some(Cause::Ours(LOSSY));
        changes.handle_changed(Composition::SyncBbr);
        assert_eq!(changes.in_force(), (Composition::SyncBbr, Cause::Ours(LOSSY)));
        changes.handle_changed(Composition::SyncIllinois);
        assert_eq!(changes.in_force(), (Composition::SyncIllinois, Cause::Peer));
        // the same anew
        changes.handle_changed(Composition::SyncIllinois);
        let ours = "1000 of a million packets are lost (limit 100), round trip 20000 us".to_owned();
        assert_eq!(
            told(&mut changes),
            [
                ("sync-cubic", "sync-bbr", ours, None),
                ("sync-bbr", "sync-illinois", "the peer wanted it".into(), None)
            ]
        );
    }

    #[test]
    fn a_refusal_is_told_once_and_again_after_a_change() {
        let mut changes = Changes::new(Composition::SyncCubic, Cause::First);
        let refuse = |changes: &mut Changes, why| {
            changes.handle_refused(Composition::SyncBbr, Cause::Ours(LOSSY), why);
            told(changes).iter().map(|one| one.3).collect::<Vec<_>>()
        };
        assert_eq!(refuse(&mut changes, Refusal::Busy), [Some(Refusal::Busy)]);
        assert_eq!(refuse(&mut changes, Refusal::Busy), []);
        assert_eq!(refuse(&mut changes, Refusal::TimedOut), [Some(Refusal::TimedOut)]);
        changes.handle_changed(Composition::SyncIllinois);
        assert_eq!(told(&mut changes).len(), 1);
        assert_eq!(refuse(&mut changes, Refusal::TimedOut), [Some(Refusal::TimedOut)]);
        assert_eq!(changes.in_force().0, Composition::SyncIllinois);
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let mut changes = Changes::new(Composition::SyncCubic, Cause::First);
        for _ in 0..50 {
            changes.handle_changed(Composition::SyncBbr);
            changes.handle_changed(Composition::SyncCubic);
        }
        assert_eq!(told(&mut changes).len(), REMEMBERED);
    }
}
