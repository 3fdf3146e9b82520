//! Which composition suits a pair of peers, and when it is worth a change.
//!
//! For a synchronous scheme, the first that holds:
//!
//! | when | then |
//! |---|---|
//! | packets are lost, over a distance, or very many | [`Composition::SyncBbr`]: it does not take loss for congestion |
//! | both are at one site | [`Composition::SyncCubic`] |
//! | much is under way at a time, and hardly any is lost | [`Composition::SyncIllinois`]: it fills long fat paths sooner |
//! | else | [`Composition::SyncCubic`] |
//!
//! For an asynchronous one [`Composition::AsyncPaced`]: what waits in a queue is stale. Compositions of the first P2PSAP (table of El Baz
//! and Nguyen, PDP 2013) are taken only where the user pins one.
//!
//! Nothing flutters: each limit has two values, one to enter by and a lower one to leave by, and what is in force stays for
//! [`DWELL`] at least, unless the user wants another scheme or pins something.

use super::Time;
use crate::micro::{Composition, Scheme};
use core::fmt;

/// Loss from which on a path counts as lossy, in packets of a million, and below which it does not any more.
pub const LOSS: Limit = Limit { enter: 20, leave: 10 };
/// Round trip from which on that matters, in nanoseconds.
pub const FAR: Limit = Limit { enter: 1_000_000, leave: 800_000 };
/// Loss that matters over any path: each of a packet that travels alone costs the kernel's TCP 200 ms or more (Linux' least retransmission time-out), however near the other
/// is.
pub const HEAVY: Limit = Limit { enter: 20_000, leave: 10_000 };
/// What is under way at a time (round trip times rate) on a long fat path, in bytes.
pub const LONG_FAT: Limit = Limit { enter: 1_000_000, leave: 700_000 };
/// A composition stays in force so long at least, in nanoseconds: 10 s.
pub const DWELL: Time = 10_000_000_000;

/// A limit with hysteresis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// What begins from this value on ...
    pub enter: u64,
    /// ... ends below this one.
    pub leave: u64,
}

impl Limit {
    /// The value that counts, where what it limits is in force (`inside`), or is not.
    pub const fn value(self, inside: bool) -> u64 {
        if inside { self.leave } else { self.enter }
    }
}

/// The limit of losses for a path with such a round trip, in packets of a million, where what it limits is in force, or is not.
pub const fn loss_limit(rtt: Time, inside: bool) -> u64 {
    if rtt >= FAR.value(inside) { LOSS.value(inside) } else { HEAVY.value(inside) }
}

/// What is known of a pair of peers and what lies between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// What they compute by.
    pub scheme: Scheme,
    /// They are at one site.
    pub same_site: bool,
    /// InfiniBand joins them.
    pub infiniband: bool,
    /// What the path between them can carry, in bytes per second. Not what is sent: that depends on the composition.
    pub rate: u64,
    /// Packets that are lost, of a million.
    pub loss: u32,
    /// How far packets overtake each other, in packets. No rule depends on it yet.
    pub reordering: u32,
    /// Round trip without queues, in nanoseconds.
    pub rtt: Time,
    /// The longest datagram, in bytes. No rule depends on it yet.
    pub mtu: u32,
}

impl Context {
    /// What is under way at a time, in bytes.
    fn in_flight(&self) -> u64 {
        let bytes = u128::from(self.rate) * u128::from(self.rtt) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Why a composition is proposed, with the figures that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The user wants it.
    Pinned,
    /// It is paced, and the scheme is asynchronous.
    Asynchronous,
    /// Packets are lost, over a distance, or very many.
    Lossy {
        /// So many of a million.
        loss: u32,
        /// The limit, in packets of a million.
        limit: u64,
        /// The round trip, in nanoseconds.
        rtt: Time,
    },
    /// Both are at one site.
    Near {
        /// Packets lost of a million.
        loss: u32,
        /// The round trip, in nanoseconds.
        rtt: Time,
    },
    /// Much is under way at a time, and hardly any is lost.
    LongFat {
        /// So many bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
        /// Packets lost of a million.
        loss: u32,
    },
    /// Nothing of that.
    Plain {
        /// Bytes under way at a time.
        bytes: u64,
        /// Packets lost of a million.
        loss: u32,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: &Time| ns / 1000;
        match self {
            Self::Pinned => f.write_str("the user wants it"),
            Self::Asynchronous => f.write_str("the scheme is asynchronous"),
            Self::Lossy { loss, limit, rtt } => {
                write!(f, "{loss} of a million packets are lost (limit {limit}), round trip {} us", us(rtt))
            }
            Self::Near { loss, rtt } => {
                write!(f, "one site: round trip {} us, {loss} of a million packets are lost", us(rtt))
            }
            Self::LongFat { bytes, limit, loss } => {
                write!(
                    f,
                    "{bytes} bytes under way at a time (limit {limit}), {loss} of a million packets are lost"
                )
            }
            // loss hides what could be
            Self::Plain { bytes: 0, loss } => {
                write!(
                    f,
                    "{loss} of a million packets are lost, what could be under way at a time is not known"
                )
            }
            Self::Plain { bytes, loss } => {
                write!(f, "{bytes} bytes under way at a time, {loss} of a million packets are lost")
            }
        }
    }
}

/// Another composition would suit better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal {
    /// Which.
    pub composition: Composition,
    /// Why.
    pub reason: Reason,
}

/// What is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InForce {
    /// Which.
    pub composition: Composition,
    /// For how long, in nanoseconds.
    pub age: Time,
}

/// What to change to, if anything. `pin`: what the user wants; it counts where it fits the scheme and the network.
pub fn propose_composition(context: &Context, now: InForce, pin: Option<Composition>) -> Option<Proposal> {
    let fits = |one: &Composition| {
        one.scheme() == context.scheme && (context.infiniband || !one.needs_reliable_network())
    };
    let pin = pin.filter(fits);
    let proposal = match pin {
        Some(composition) => Proposal { composition, reason: Reason::Pinned },
        None => best_composition(context, now.composition),
    };
    let at_once = pin.is_some() || now.composition.scheme() != context.scheme;
    (proposal.composition != now.composition && (at_once || now.age >= DWELL)).then_some(proposal)
}

/// What suits best, given what is in force: that has the lower limits.
fn best_composition(context: &Context, now: Composition) -> Proposal {
    let Context { loss, rtt, .. } = *context;
    if context.scheme == Scheme::Asynchronous {
        return Proposal { composition: Composition::AsyncPaced, reason: Reason::Asynchronous };
    }
    let (lossy, fat) = (now == Composition::SyncBbr, now == Composition::SyncIllinois);
    let limit = loss_limit(rtt, lossy);
    if u64::from(loss) >= limit {
        return Proposal { composition: Composition::SyncBbr, reason: Reason::Lossy { loss, limit, rtt } };
    }
    if context.same_site {
        return Proposal { composition: Composition::SyncCubic, reason: Reason::Near { loss, rtt } };
    }
    let (bytes, limit) = (context.in_flight(), LONG_FAT.value(fat));
    if bytes >= limit {
        return Proposal {
            composition: Composition::SyncIllinois,
            reason: Reason::LongFat { bytes, limit, loss },
        };
    }
    Proposal { composition: Composition::SyncCubic, reason: Reason::Plain { bytes, loss } }
}
