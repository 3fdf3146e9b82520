//! A peer that sends, as the driver of `polyrail-rails` does: estimates every few milliseconds, fragments that lanes pull, small
//! messages by the best lane, silent lanes given up and opened again. What it decides with is `polyrail_core::lanes`.

use super::path::Path;
use super::tcp::Tcp;
use polyrail_core::lanes::{Estimate, Load, Sample, fastest, is_late, next_part, preferred};
use polyrail_core::sim::{MS, S, Time};
use std::collections::VecDeque;

/// As in the driver: how often it looks, and what it makes of silence.
const TICK: Time = 5 * MS;
const SILENT: Time = 120 * MS;
/// A lane that has not moved for so long is not slow, it repairs a loss, or is silent.
const HICCUP: Time = 50 * MS;
/// How long connecting may take, and the pauses between attempts.
const CONNECT: Time = S;
const AGAIN: (Time, Time) = (100 * MS, 500 * MS);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Up,
    Opening { since: Time, answered: bool },
    Down { retry: Time },
}

/// A part of a message, or a small one.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    pub message: usize,
    pub len: u64,
    /// Where it ends in its connection's stream.
    end: u64,
}

/// What was sent, and when it arrived, by each path.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub len: u64,
    pub small: bool,
    pub began: Time,
    given: u64,
    got: u64,
    /// When it was complete.
    pub done: Option<Time>,
    /// When the last of it came by each path, and how much.
    pub by: Vec<(Time, u64)>,
}

impl Message {
    pub fn took(&self) -> Time {
        self.done.map_or(Time::MAX, |done| done - self.began)
    }

    /// Between the end of the lane that ended first and of the one that ended last.
    pub fn tail(&self) -> Time {
        let ends = || self.by.iter().filter(|(_, len)| *len > 0).map(|(at, _)| *at);
        ends().max().unwrap_or(0) - ends().min().unwrap_or(0)
    }
}

#[derive(Debug)]
pub struct Lane {
    pub path: usize,
    pub state: State,
    pub tcp: Tcp,
    /// Distinguishes this connection's packets from those of an earlier one.
    pub flow: usize,
    pub estimate: Estimate,
    fragments: VecDeque<Fragment>,
    delivered: u64,
    stalled: Option<Time>,
    late: Option<Time>,
    pause: Time,
}

impl Lane {
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    fn load(&self) -> Load {
        self.estimate.load(self.tcp.queued())
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// There is always more.
    Stream,
    /// One message of so many bytes after the other.
    Messages(u64),
}

#[derive(Debug)]
pub struct Sender {
    pub lanes: Vec<Lane>,
    pub messages: Vec<Message>,
    pub work: Work,
    /// A small message, so often and so long.
    pub small: Option<(Time, u64)>,
    /// How often estimates are brought up to date.
    pub sampling: Time,
    /// How long its program does something else in between.
    pub away: Time,
    acted: Time,
    sampled: Time,
    looked: Time,
    last_small: Time,
    begins: Time,
    current: Option<usize>,
    waiting: VecDeque<usize>,
    parcels: VecDeque<(Time, Fragment)>,
    /// Lanes given up, and lanes opened again: when, and which.
    pub retired: Vec<(Time, usize)>,
    pub opened: Vec<(Time, usize)>,
}

impl Sender {
    /// `claims` are what the interfaces of each path claim, in bytes per second.
    pub fn new(work: Work, claims: &[u64], paths: &[Path], flow: usize) -> Self {
        let lane = |(path, claim): (usize, &u64)| Lane {
            path,
            state: State::Up,
            tcp: Tcp::new(0, 2 * paths[path].spec.delay),
            flow: flow + path,
            estimate: Estimate::new(*claim, 2 * paths[path].spec.delay),
            fragments: VecDeque::new(),
            delivered: 0,
            stalled: None,
            late: None,
            pause: AGAIN.0,
        };
        Self {
            lanes: claims.iter().enumerate().map(lane).collect(),
            messages: Vec::new(),
            work,
            small: None,
            sampling: 2 * MS,
            away: 0,
            acted: 0,
            sampled: 0,
            looked: 0,
            last_small: 0,
            begins: 0,
            current: None,
            waiting: VecDeque::new(),
            parcels: VecDeque::new(),
            retired: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// Bytes that a lane's connection has put in order at the receiver since the last call complete fragments.
    pub fn arrived(&mut self, now: Time, lane: usize, all: usize) {
        // the receiver says that it has all, and the next one is agreed upon
        let answer = self.lanes.iter().map(|lane| lane.estimate.rtt()).min().unwrap_or(0);
        let Lane { path, fragments, tcp, .. } = &mut self.lanes[lane];
        while let Some(one) = fragments.front().copied().filter(|one| one.end <= tcp.came) {
            fragments.pop_front();
            let message = &mut self.messages[one.message];
            message.by.resize(all, (0, 0));
            message.by[*path] = (now, message.by[*path].1 + one.len);
            message.got += one.len;
            if message.got >= message.len {
                message.done = Some(now);
                if !message.small {
                    self.begins = now + answer;
                }
            }
        }
    }

    pub fn act(&mut self, now: Time, paths: &[Path], flows: &mut usize) {
        if now < self.acted + self.away {
            return;
        }
        self.acted = now;
        self.create(now);
        if now >= self.looked + TICK {
            self.looked = now;
            self.watch(now, paths, flows);
        }
        if now >= self.sampled + self.sampling {
            self.sample(now);
        }
        self.carry(now);
    }

    fn create(&mut self, now: Time) {
        let idle = self.messages.iter().rev().find(|one| !one.small).is_none_or(|one| one.done.is_some());
        if let Work::Messages(len) = self.work
            && idle
            && now >= self.begins
        {
            self.messages.push(Message { len, began: now, ..Message::default() });
        }
        if let Work::Stream = self.work
            && self.messages.is_empty()
        {
            self.messages.push(Message { len: u64::MAX, began: now, ..Message::default() });
        }
        if let Some((pause, len)) = self.small
            && now >= self.last_small + pause
        {
            self.last_small = now;
            self.waiting.push_back(self.messages.len());
            self.messages.push(Message { len, small: true, began: now, ..Message::default() });
        }
    }

    fn sample(&mut self, now: Time) {
        self.sampled = now;
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_up()) {
            let Tcp { acked, rtt, min_rtt, .. } = lane.tcp;
            lane.estimate.sample(Sample { now, delivered: acked, queued: lane.tcp.queued(), rtt, min_rtt });
        }
        let up: Vec<usize> = (0..self.lanes.len()).filter(|at| self.lanes[*at].is_up()).collect();
        let loads: Vec<Load> = up.iter().map(|at| self.lanes[*at].load()).collect();
        for (i, at) in up.into_iter().enumerate() {
            let lane = &mut self.lanes[at];
            let owed = !lane.tcp.sent.is_empty() && lane.tcp.acked == lane.delivered;
            lane.stalled = owed.then(|| lane.stalled.unwrap_or(now));
            let moves = lane.stalled.is_none_or(|since| now - since < HICCUP);
            lane.late = (moves && is_late(&loads, i)).then(|| lane.late.unwrap_or(now));
            lane.delivered = lane.tcp.acked;
        }
    }

    fn give(&mut self, lane: usize, fragment: Fragment) {
        let lane = &mut self.lanes[lane];
        lane.tcp.given += fragment.len;
        lane.fragments.push_back(Fragment { end: lane.tcp.given, ..fragment });
    }

    fn carry(&mut self, now: Time) {
        let up: Vec<usize> = (0..self.lanes.len()).filter(|at| self.lanes[*at].is_up()).collect();
        let mut loads: Vec<Load> = up.iter().map(|at| self.lanes[*at].load()).collect();
        let index = |current: Option<usize>| up.iter().position(|at| Some(*at) == current);
        while let Some((_, parcel)) = self.parcels.front().copied().filter(|(ready, _)| *ready <= now) {
            let Some(at) = index(self.current).or_else(|| fastest(&loads, 0)) else { return };
            self.parcels.pop_front();
            self.current = Some(up[at]);
            self.give(up[at], parcel);
            loads[at].queued += parcel.len;
        }
        while let Some(&message) = self.waiting.front() {
            let len = self.messages[message].len;
            let Some(at) = preferred(&loads, index(self.current), true, len) else { return };
            if loads[at].queued > self.lanes[up[at]].estimate.window() {
                return;
            }
            self.waiting.pop_front();
            self.current = Some(up[at]);
            self.give(up[at], Fragment { message, len, end: 0 });
            loads[at].queued += len;
        }
        let Some(message) = self.messages.iter().rposition(|one| !one.small) else { return };
        loop {
            let Message { len, given, .. } = self.messages[message];
            let left = (len - given).min(1 << 30);
            if left == 0 {
                return;
            }
            let room = |at: usize| self.lanes[up[at]].estimate.room(loads[at].queued);
            let Some((at, part)) = next_part(&loads, left, room) else { return };
            let part = part.min(left);
            self.give(up[at], Fragment { message, len: part, end: 0 });
            loads[at].queued += part;
            self.messages[message].given += part;
        }
    }

    fn watch(&mut self, now: Time, paths: &[Path], flows: &mut usize) {
        self.sample(now);
        let answers = |lane: &Lane| lane.is_up() && lane.stalled.is_none_or(|since| now - since < SILENT / 2);
        let silent = |lane: &Lane| {
            let silent = lane.stalled.is_some_and(|since| now - since > SILENT + 3 * lane.estimate.rtt());
            lane.is_up()
                && (silent
                    || lane.late.is_some_and(|since| now - since > SILENT + 3 * lane.estimate.min_rtt()))
        };
        if let Some(at) = self.lanes.iter().position(silent)
            && let Some(other) = (0..self.lanes.len())
                .filter(|i| *i != at && answers(&self.lanes[*i]))
                .min_by_key(|i| self.lanes[*i].estimate.rtt())
        {
            // what the other side had from it is known once the other side has said so
            let ready = now + self.lanes[other].estimate.rtt();
            let lane = &mut self.lanes[at];
            lane.state = State::Down { retry: now };
            self.parcels.extend(lane.fragments.drain(..).map(|one| (ready, one)));
            self.retired.push((now, at));
        }
        for at in 0..self.lanes.len() {
            self.open(now, at, paths, flows);
        }
    }

    fn open(&mut self, now: Time, at: usize, paths: &[Path], flows: &mut usize) {
        let lane = &mut self.lanes[at];
        let spec = paths[lane.path].spec;
        let rtt = 2 * spec.delay;
        match lane.state {
            State::Down { retry } if retry <= now => {
                lane.state = State::Opening { since: now, answered: spec.up };
            }
            // a request, an answer, a challenge: else the kernel asks again after a second
            State::Opening { since, answered } if now >= since + 3 * rtt && answered && spec.up => {
                lane.state = State::Up;
                lane.tcp = Tcp::new(now, rtt);
                lane.flow = *flows;
                *flows += 1;
                lane.estimate = lane.estimate.again(rtt);
                (lane.delivered, lane.stalled, lane.late, lane.pause) = (0, None, None, AGAIN.0);
                self.opened.push((now, at));
            }
            State::Opening { since, .. } if now >= since + CONNECT => {
                lane.state = State::Down { retry: now + lane.pause };
                lane.pause = (2 * lane.pause).min(AGAIN.1);
            }
            _ => {}
        }
    }
}
