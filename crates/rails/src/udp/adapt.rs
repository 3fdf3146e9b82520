//! Links change their composition when the path turns out to be another than the one it suits.

use super::link::Link;
use crate::config::{Config, Faults};
use polyrail_core::connection::News;
use polyrail_core::control::rules::{InForce, Reason, propose_composition};
use polyrail_core::micro::{Composition, Time};
use std::collections::VecDeque;

/// Between two changes of a restless link, in nanoseconds; and what they lead to.
const RESTLESS: Time = 100_000_000;
const ALL: [Composition; 5] = [
    Composition::SyncBbr,
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

/// A change that was made, or was not.
#[derive(Clone, Debug)]
pub struct Change {
    /// To which composition.
    pub to: Composition,
    /// Why this side wanted it; none: the peer did.
    pub why: Option<Reason>,
    /// Why nothing came of it.
    pub refused: Option<String>,
}

/// What a link has become, and why.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Why this side has proposed what it has.
    proposed: Option<Reason>,
    /// The peer has proposed what is in force: it knows when the reason for it is gone.
    peers: bool,
    /// When a restless link changed last, and how often it has.
    restless: (Time, usize),
    pub(super) news: VecDeque<Change>,
}

/// Looks at a link's figures, and proposes another composition where the rules say so and the user did not pin one.
pub(super) fn adapt(link: &mut Link, now: Time, choice: Choice) {
    while let Some(news) = link.connection.poll_news() {
        let why = link.changes.proposed.take();
        let change = match news {
            News::Changed(to) => {
                link.watcher.handle_change(now);
                link.changes.peers = why.is_none();
                Change { to, why, refused: None }
            }
            News::Refused(to, reason) => Change { to, why, refused: Some(reason.to_string()) },
        };
        if link.changes.news.len() == REMEMBERED {
            link.changes.news.pop_front();
        }
        link.changes.news.push_back(change);
    }
    if let Choice::Restless { same } = choice {
        return change_anyway(link, now, same);
    }
    let Some(context) = link.watcher.look(now, link.connection.shared(), false) else { return };
    if choice == Choice::Pinned || link.connection.is_changing() {
        return;
    }
    let in_force = InForce { composition: link.connection.composition(), age: link.watcher.age(now) };
    let Some(proposal) = propose_composition(&context, in_force, None) else { return };
    let gone = matches!(proposal.reason, Reason::Plain { .. } | Reason::Near { .. });
    if gone && link.changes.peers {
        return;
    }
    if link.connection.propose(now, proposal.composition).is_ok() {
        link.changes.proposed = Some(proposal.reason);
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
    let _ = match same {
        true => link.connection.renew(now),
        false => link.connection.propose(now, ALL[count % ALL.len()]),
    };
}
