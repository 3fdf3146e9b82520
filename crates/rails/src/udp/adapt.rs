//! Links change their composition when the path turns out to be another than the one it suits.

use super::link::Link;
use polyrail_core::connection::News;
use polyrail_core::control::rules::{InForce, Reason, propose_composition};
use polyrail_core::micro::{Composition, Time};
use std::collections::VecDeque;

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
    pub(super) news: VecDeque<Change>,
}

/// Looks at a link's figures, and proposes another composition where the rules say so and the user did not pin one.
pub(super) fn adapt(link: &mut Link, now: Time, pinned: bool) {
    while let Some(news) = link.connection.poll_news() {
        let why = link.changes.proposed.take();
        let change = match news {
            News::Changed(to) => {
                link.watcher.handle_change(now);
                Change { to, why, refused: None }
            }
            News::Refused(to, reason) => Change { to, why, refused: Some(reason.to_string()) },
        };
        if link.changes.news.len() == REMEMBERED {
            link.changes.news.pop_front();
        }
        link.changes.news.push_back(change);
    }
    let Some(context) = link.watcher.look(now, link.connection.shared(), false) else { return };
    if pinned || link.connection.is_changing() {
        return;
    }
    let in_force = InForce { composition: link.connection.composition(), age: link.watcher.age(now) };
    let Some(proposal) = propose_composition(&context, in_force, None) else { return };
    if link.connection.propose(now, proposal.composition).is_ok() {
        link.changes.proposed = Some(proposal.reason);
    }
}
