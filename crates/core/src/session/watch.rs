//! How the lanes are doing: estimates, lanes that do not answer, lanes to be opened again, sessions that have none left.

use super::{Action, Lane, Links, Path, Reason, SILENT, Session, Time, Traffic, What};
use crate::lanes::{MS, is_late};
use alloc::format;

/// A lane that holds so much, in bytes, has more to do than it can.
const MANY: u64 = 64 << 10;
/// Lanes that hold so much, in bytes, are at work.
const HELD: u64 = 16 << 10;
/// A lane that has not moved for so long is not slow: it repairs a loss, or is silent.
const HICCUP: Time = 50 * MS;
/// Between two tellings of which lane small messages take; it may change with each message.
const CHOICES: Time = 100 * MS;

impl<L: Copy + Eq + core::fmt::Debug> Session<L> {
    /// Brings the estimates up to date.
    pub(super) fn sample(&mut self, now: Time, links: &impl Links<L>) {
        self.sampled = now;
        for lane in &mut self.lanes {
            if let Some(seen) = links.look(lane.link) {
                let fared = lane.observe(now, &seen);
                if self.config.stand_in.is_some() {
                    self.rivals.note(lane, &fared, &seen, now);
                }
            }
        }
        self.fill.note(&self.lanes);
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let moves = !lane.is_shut() && lane.stalls_less(now, HICCUP);
            lane.late = (moves && is_late(self.fill.noted(), at)).then(|| lane.late.unwrap_or(now));
        }
    }

    /// A look at all lanes, which is due every few milliseconds: estimates are brought up to date, lanes that fail are retired,
    /// missing ones are opened. `much`: the peer is sent, or sends, long messages or many.
    pub fn tick(&mut self, now: Time, much: bool, traffic: &mut impl Traffic, links: &mut impl Links<L>) {
        // more lanes are of use to who sends or receives long messages or many, or has a lane in doubt
        self.brisk.tick(now);
        let brisk = self.is_brisk(traffic);
        let wanted = self.planned
            || self.wants_stand_in(now)
            || much
            || brisk
            || self.lanes.iter().any(|lane| lane.queued >= MANY);
        let moves = self.lanes.iter().any(|lane| lane.moves(links.given(lane.link)));
        if moves {
            self.sample(now, links);
        }
        if self.judge_rivals(now, links) {
            self.choose(traffic, links);
        }
        self.weigh(now, traffic);
        self.hold_ahead(traffic);
        self.tell_changes(now);
        if let Some((_, why)) = self.lost.as_ref().filter(|(until, _)| *until <= now) {
            let why = format!("no rail to it is left ({why})");
            self.actions.push_back(Action::Gone { why, orderly: false });
            return;
        }
        let heard = self.lanes.iter().map(|lane| lane.heard).max().unwrap_or(0);
        let failing =
            self.lanes.iter().enumerate().find_map(|(at, lane)| Some((at, lane.fails(now, heard)?)));
        let opens = self.planner.is_some() && (wanted || failing.is_some() || self.lost.is_some());
        if let Some((at, why)) = failing {
            let answers = |(i, lane): (usize, &Lane<L>)| i != at && lane.stalls_less(now, SILENT.0 / 2);
            if self.lanes.iter().enumerate().any(answers) {
                self.retire(now, at, why.into(), traffic, links);
            } else if opens && let Some(path) = self.lanes[at].path.take() {
                // a fresh connection goes on earlier than one that backs off
                self.make_own(path);
                self.paths[path].ended(now);
            }
        }
        if opens {
            self.open_paths(now);
        }
        // of a thousand peers that say little now and then, each look counts
        if wanted || moves {
            self.spread_out(now, traffic, links);
        }
    }

    /// Whether it costs too much that lanes hold little.
    fn weigh(&mut self, now: Time, traffic: &impl Traffic) {
        let waits = traffic.bulk_left() > 0;
        let (delivered, held) = self.lanes.iter().fold((0, 0), |(delivered, held), lane| {
            (delivered + lane.estimate.delivered(), held + lane.queued)
        });
        let long = self.sent_long.take().or(waits.then_some(now));
        if self.brisk.weigh(now, delivered, waits || held >= HELD, long) {
            self.lanes.iter_mut().for_each(|lane| lane.estimate.recover());
        }
    }

    /// When a look is due even if nothing happens; none while there is nothing to see.
    pub fn due(&self, links: &impl Links<L>) -> Option<Time> {
        let busy = |lane: &Lane<L>| lane.stalled.is_some() || lane.moves(links.given(lane.link));
        if self.lost.is_some() || self.is_trying() || self.lanes.iter().any(busy) {
            return Some(0);
        }
        self.planner.as_ref()?;
        self.paths.iter().filter_map(Path::retry).min()
    }

    /// Tells what has changed since that was told last.
    fn tell_changes(&mut self, now: Time) {
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            let (from, to) = (lane.told, lane.estimate.rate());
            // of a lane that stands still it is said soon enough whether it has ended
            let runs = lane.estimate.is_measured() && lane.stalled.is_none();
            if runs && (to / 2 >= from || from / 2 >= to) {
                lane.told = to;
                let which = lane.which();
                self.event(which, What::Rate { from, to });
            }
        }
        self.tell_choice(now);
    }

    fn tell_choice(&mut self, now: Time) {
        let Some(at) = self.current.and_then(|link| self.index(link)) else { return };
        let (number, which) = (self.lanes[at].number, self.lanes[at].which());
        let from = match self.told {
            None => {
                self.told = Some((number, now));
                return;
            }
            Some((from, when)) if from != number && now.saturating_sub(when) >= CHOICES => from,
            Some(_) => return,
        };
        self.told = Some((number, now));
        let there = self.lanes.iter().any(|lane| lane.number == from);
        let why = if there { self.reason } else { Reason::Ended };
        self.event(which, What::Chosen { from, why });
    }
}
