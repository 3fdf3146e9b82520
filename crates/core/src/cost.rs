//! Which protocol for which length: a pure function of what a rail costs.
//!
//! A message's time is counted from the send to the moment when the receiver has all of it, both sides waiting for nothing
//! else, on an idle rail:
//!
//! | protocol | its time for `n` bytes |
//! |---|---|
//! | eager | one way, the wire, and three copies: into the rail, out of it, and out of the stash |
//! | get | one way (RTS), then a direct access |
//! | put | one way (RTS), back (RTR), a direct access, one way (ATP) |
//! | fragments | one way (RTS), back (RTR), then a pipeline of copy, wire and copy, fragment by fragment |
//!
//! *One way* is what a frame without payload takes. The third copy of an eager message is made only when its receive is
//! late, but is counted always: it is what eager stands to lose. So a long way raises the eager limit, and a slow copy
//! lowers it.
//!
//! The figures are estimates, good to a factor rather than to a digit; limits are therefore powers of two.

use crate::control::rules::FAR;
use crate::proto::{CREDIT_UNIT, Route, Scheme};
use core::fmt;

/// What a rail costs towards one peer. Times in nanoseconds, rates in bytes per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RailCosts {
    /// From the sender's call to the receiver's notice, apart from the two overheads and the bytes.
    pub latency: u64,
    /// Sender's processor time for each frame.
    pub send: u64,
    /// Receiver's processor time for each frame.
    pub recv: u64,
    /// How fast either side copies between its memory and the rail.
    pub copy: u64,
    /// How fast the wire is; [`RailCosts::NO_WIRE`] where the two copies are all there is.
    pub wire: u64,
    /// Access to the peer's memory, where there is one.
    pub direct: Option<DirectCosts>,
    /// Whether what the rail took is at the peer ([`Route::immediate`]).
    pub immediate: bool,
}

/// What it costs to read or write the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectCosts {
    /// For each access: the system call and finding the pages, or posting and completing a request. Nanoseconds.
    pub call: u64,
    /// Bytes per second.
    pub rate: u64,
    /// Whether the receiver can read the sender's memory.
    pub read: bool,
    /// Whether the sender can write the receiver's memory.
    pub write: bool,
}

impl RailCosts {
    /// A wire that takes no time.
    pub const NO_WIRE: u64 = u64::MAX;
    /// TCP between hosts of one network at 10 Gb/s, before anything was measured.
    pub const TCP: Self = Self {
        latency: 3000,
        send: 2500,
        recv: 2500,
        copy: 4_000_000_000,
        wire: 1_250_000_000,
        direct: None,
        immediate: false,
    };
    /// A ring in shared memory, before anything was measured.
    pub const SHM: Self = Self {
        latency: 100,
        send: 200,
        recv: 200,
        copy: 8_000_000_000,
        wire: Self::NO_WIRE,
        direct: None,
        immediate: true,
    };

    /// The same rail with direct access.
    #[must_use]
    pub const fn with(self, direct: DirectCosts) -> Self {
        Self { direct: Some(direct), ..self }
    }

    fn one_way(&self) -> u64 {
        self.send.saturating_add(self.latency).saturating_add(self.recv)
    }

    fn direct_time(&self, len: u64, allowed: impl Fn(&DirectCosts) -> bool) -> Option<u64> {
        let direct = self.direct.as_ref().filter(|direct| allowed(direct))?;
        Some(direct.call.saturating_add(per(len, direct.rate)))
    }
}

impl DirectCosts {
    /// Cross-memory attach: another process's memory, page by page, in a system call.
    pub const CMA: Self = Self { call: 2000, rate: 8_000_000_000, read: true, write: true };
}

/// How a message travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// At once, header and bytes.
    Eager,
    /// Announced first, then by this scheme.
    Rendezvous(Scheme),
}

/// What a route must keep to, and what somebody has decided already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest payload of a frame that the peer takes, in bytes.
    pub max_frame: usize,
    /// Eager credit that the peer grants, in units.
    pub window: u32,
    /// Longest eager message, if it was set.
    pub eager_max: Option<usize>,
    /// Longest fragment, if it was set.
    pub fragment: Option<usize>,
    /// How large messages travel, if it was set and is possible.
    pub scheme: Option<Scheme>,
}

impl Limits {
    /// Nothing decided.
    pub const fn new(max_frame: usize, window: u32) -> Self {
        Self { max_frame, window, eager_max: None, fragment: None, scheme: None }
    }

    /// A window holds a few of the longest eager messages, or credit would run out at the first.
    fn eager_cap(&self) -> u64 {
        (u64::from(self.window) * CREDIT_UNIT / 4).min(self.max_frame as u64)
    }
}

/// Schemes are compared at this length, in bytes.
pub const REFERENCE: u64 = 1 << 20;
/// Of the processor's time for a fragment, at most one part in so many is overhead.
const EFFICIENCY: u64 = 16;
/// Shortest fragment that is chosen.
const LEAST_FRAGMENT: u64 = 4096;

/// Nanoseconds for `len` bytes at `rate` bytes per second.
fn per(len: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(len) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

/// Nanoseconds until a message of `len` bytes is received in full; None when that is not possible.
pub fn time(costs: &RailCosts, protocol: Protocol, len: u64, fragment: u64) -> Option<u64> {
    let way = costs.one_way();
    let after = |ways: u64, rest: u64| way.saturating_mul(ways).saturating_add(rest);
    match protocol {
        Protocol::Eager => {
            let copies = per(len, costs.copy).saturating_mul(3);
            Some(after(1, copies.saturating_add(per(len, costs.wire))))
        }
        Protocol::Rendezvous(Scheme::Get) => Some(after(1, costs.direct_time(len, |d| d.read)?)),
        Protocol::Rendezvous(Scheme::Put) => Some(after(3, costs.direct_time(len, |d| d.write)?)),
        Protocol::Rendezvous(Scheme::Fragments) => Some(after(2, pipeline(costs, len, fragment.max(1)))),
    }
}

/// The first fragment passes all stages; each further one comes when the slowest stage is done with it.
fn pipeline(costs: &RailCosts, len: u64, fragment: u64) -> u64 {
    let stages = |len: u64| {
        let copy = per(len, costs.copy);
        [costs.send.saturating_add(copy), per(len, costs.wire), costs.recv.saturating_add(copy)]
    };
    let first = stages(len.min(fragment)).into_iter().fold(costs.latency, u64::saturating_add);
    let slowest = stages(fragment).into_iter().max().unwrap_or(0);
    let rest = u128::from(len.saturating_sub(fragment)) * u128::from(slowest) / u128::from(fragment);
    first.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX))
}

/// The nearest power of two, by ratio.
fn round(len: u64) -> u64 {
    let below = 1u64 << len.max(1).ilog2();
    // len / below against the square root of two
    if u128::from(len).pow(2) > 2 * u128::from(below).pow(2) { 2 * below } else { below }
}

/// The greatest length below `end` at which eager is not slower.
fn crossover(costs: &RailCosts, scheme: Scheme, fragment: u64, end: u64) -> u64 {
    let eager_wins = |len| {
        let eager = time(costs, Protocol::Eager, len, fragment);
        time(costs, Protocol::Rendezvous(scheme), len, fragment).is_none_or(|other| eager <= Some(other))
    };
    let (mut wins, mut loses) = (0, end);
    while wins + 1 < loses {
        let middle = wins + (loses - wins) / 2;
        if eager_wins(middle) { wins = middle } else { loses = middle }
    }
    wins
}

fn fragment_for(costs: &RailCosts) -> u64 {
    let overhead = u128::from(costs.send.max(costs.recv)) * u128::from(EFFICIENCY);
    let bytes = overhead.saturating_mul(u128::from(costs.copy)) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX >> 1).clamp(LEAST_FRAGMENT, 1 << 40).next_power_of_two()
}

/// How messages reach a peer over a rail, and why so.
pub fn route(costs: &RailCosts, limits: &Limits) -> (Route, Explanation) {
    let fragment = limits.fragment.map_or_else(|| fragment_for(costs), |set| set as u64);
    let fragment = fragment.clamp(1, (limits.max_frame as u64).max(1));
    let large = |scheme| time(costs, Protocol::Rendezvous(scheme), REFERENCE, fragment);
    // of equals the first: the fewer processors are busy, the better
    let fastest = [Scheme::Get, Scheme::Put, Scheme::Fragments].into_iter().filter(|s| large(*s).is_some());
    let fastest = fastest.min_by_key(|scheme| large(*scheme)).unwrap_or(Scheme::Fragments);
    let scheme = limits.scheme.filter(|scheme| large(*scheme).is_some()).unwrap_or(fastest);
    let cap = limits.eager_cap();
    let equal = crossover(costs, scheme, fragment, 2 * cap + 2);
    let eager_max = limits.eager_max.map_or_else(
        || if equal > 2 * cap { cap } else { round(equal).min(cap) },
        |set| set.min(limits.max_frame) as u64,
    );
    let route = Route {
        eager_max: eager_max as usize,
        fragment: fragment as usize,
        scheme,
        window: limits.window,
        immediate: costs.immediate,
    };
    (route, Explanation { costs: *costs, limits: *limits, route, equal, fastest })
}

/// How far a path leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Far {
    /// A round trip, in nanoseconds.
    pub rtt: u64,
    /// What one lane does, in bytes per second.
    pub rate: u64,
    /// Whether there is but that lane.
    pub alone: bool,
}

impl Far {
    /// Whether a round trip is so long that it counts.
    pub fn is_long(&self) -> bool {
        is_far(self.rtt)
    }
}

/// Whether a round trip of so many nanoseconds is so long that it counts.
pub fn is_far(round_trip: u64) -> bool {
    round_trip >= FAR.enter
}

/// Round trips' worth of bytes that go eagerly by the only lane: to announce them would take a fifth of the time.
const ALONE: u128 = 4;

/// Why a route is what it is; printing it says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explanation {
    costs: RailCosts,
    limits: Limits,
    route: Route,
    /// Up to this length eager is not slower.
    equal: u64,
    fastest: Scheme,
}

impl Explanation {
    /// Longest message that is to go eagerly over a far path, in bytes: who announces it waits a round trip before the first byte of it
    /// leaves. What takes many round trips to leave gains little, and would keep what follows it from being matched for longer than that;
    /// and where there are several lanes, what is announced has all of them. 0: none but what goes eagerly anyway.
    pub fn far_eager(&self, far: Far) -> u64 {
        if !far.is_long() {
            return 0;
        }
        let most = (u64::from(self.limits.window) * CREDIT_UNIT / 2).min(self.limits.max_frame as u64);
        let rounds = if far.alone { ALONE } else { 1 };
        let fits = u128::from(far.rtt) * u128::from(far.rate) * rounds / 1_000_000_000;
        round(u64::try_from(fits).unwrap_or(u64::MAX).min(most)).min(most)
    }

    /// How a message of `len` bytes travels while there is credit.
    pub fn choice(&self, len: u64) -> Protocol {
        if len <= self.route.eager_max as u64 {
            Protocol::Eager
        } else {
            Protocol::Rendezvous(self.route.scheme)
        }
    }

    /// Nanoseconds that a message of `len` bytes is expected to take by a protocol; None when that is not possible.
    pub fn time(&self, protocol: Protocol, len: u64) -> Option<u64> {
        time(&self.costs, protocol, len, self.route.fragment as u64)
    }

    fn eager(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { route, limits, .. } = self;
        write!(f, "eager up to {} bytes: ", route.eager_max)?;
        let capped = self.equal > route.eager_max as u64 && route.eager_max as u64 == limits.eager_cap();
        match limits.eager_max {
            Some(_) => write!(f, "that was set; the model says {}", self.equal),
            None if capped => {
                write!(f, "as much as frames and credit allow; it would be faster for longer ones too")
            }
            None => write!(f, "it is faster up to about {}, {} after that", self.equal, name(route.scheme)),
        }
    }

    fn large(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.route.scheme;
        write!(f, "longer ones by {}: ", name(scheme))?;
        match self.limits.scheme {
            Some(set) if set == scheme => write!(f, "that was set"),
            Some(set) => write!(f, "{} was set, but there is no such access to the peer's memory", name(set)),
            None if self.costs.direct.is_none() => {
                write!(f, "there is no direct access to the peer's memory")
            }
            None => write!(f, "the fastest at {REFERENCE} bytes"),
        }
    }

    fn fragment(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fragment = self.route.fragment as u64;
        let overhead = self.costs.send.max(self.costs.recv);
        let share =
            100.0 * overhead as f64 / overhead.saturating_add(per(fragment, self.costs.copy)).max(1) as f64;
        write!(f, "fragments of {fragment} bytes: ")?;
        match self.limits.fragment {
            Some(_) => write!(f, "that was set; "),
            None if fragment == self.limits.max_frame as u64 => write!(f, "as much as a frame holds; "),
            None => write!(f, "enough to keep overhead small; "),
        }?;
        write!(f, "of the processor's time {share:.1} % is overhead")
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, len: u64) -> fmt::Result {
        write!(f, "{len:>10} B ")?;
        let rendezvous = [Scheme::Get, Scheme::Put, Scheme::Fragments].map(Protocol::Rendezvous);
        for protocol in core::iter::once(Protocol::Eager).chain(rendezvous) {
            let mark = if self.choice(len) == protocol { '*' } else { ' ' };
            match self.time(protocol, len) {
                Some(ns) => write!(f, " {:>10.2} us{mark}", ns as f64 / 1000.0)?,
                None => write!(f, " {:>14}", "- ")?,
            }
        }
        Ok(())
    }
}

fn name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Get => "get",
        Scheme::Put => "put",
        Scheme::Fragments => "fragments",
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.eager(f)?;
        f.write_str("\n")?;
        self.large(f)?;
        f.write_str("\n")?;
        self.fragment(f)?;
        write!(
            f,
            "\n{:>12}  {:>13}  {:>13}  {:>13}  {:>13}",
            "expected", "eager", "get", "put", "fragments"
        )?;
        for len in [8, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20] {
            f.write_str("\n")?;
            self.row(f, len)?;
        }
        Ok(())
    }
}
