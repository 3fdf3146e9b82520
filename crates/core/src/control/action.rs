//! What a change asks of its driver, and what it is told of compositions.

use super::Time;
#[cfg(doc)]
use super::changeover::Changeover;
use super::epoch::Epoch;
use super::phase::{Event, State};
use super::refusal::Refusal;
use super::word::{SpecBytes, Word};
use crate::state::Unexpected;
use core::fmt;

/// What a change is about: a composition, as the two ends tell each other of it.
pub trait Proposable: Clone + PartialEq + fmt::Debug {
    /// Its bytes.
    fn to_spec(&self) -> SpecBytes;
    /// What the bytes of a peer stand for; None for what this side does not know.
    fn from_spec(spec: &SpecBytes) -> Option<Self>;
    /// Whether all that is sent must arrive (it is synchronous). Else nothing waits for its data.
    fn delivers_all(&self) -> bool;
}

/// How patient a side is.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// How long a proposal may take until it is withdrawn: building it, and the peer's answer. In nanoseconds.
    pub prepare: Time,
    /// How long it may take the peer to go on once this side cannot go back by itself, from PREPARED or SWITCH on, in nanoseconds:
    /// deciding, and delivering what is under way by the old composition. Then its control channel counts as failed.
    pub finish: Time,
    /// How long a composition that was refused is not proposed again, in nanoseconds.
    pub hold_down: Time,
}

impl Default for Config {
    fn default() -> Self {
        Self { prepare: 5_000_000_000, finish: 30_000_000_000, hold_down: 10_000_000_000 }
    }
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<S> {
    /// Say this to the peer, by the [`Courier`](super::Courier).
    Say(Word),
    /// Make this composition, so that it can receive; [`Changeover::handle_built`] or [`Changeover::handle_unable`] follows.
    Build {
        /// Its number.
        epoch: Epoch,
        /// What it is.
        spec: S,
    },
    /// Send by this one from now on; [`Changeover::handle_flipped`] follows and says where the old one ended.
    Flip {
        /// The new one's number.
        epoch: Epoch,
    },
    /// All that came by the old one is delivered: deliver what came by this one, and tell [`Changeover::handle_received`] of it;
    /// what still comes by the old one is dropped.
    Resume {
        /// The new one's number.
        epoch: Epoch,
    },
    /// Send what the peer lacks of the old one within the new one, marked with the old one's number.
    Rescue {
        /// The old one's number.
        old: Epoch,
    },
    /// Nobody needs this composition any more, or what has been built of it.
    Destroy {
        /// Its number.
        epoch: Epoch,
    },
    /// The change is complete.
    Changed {
        /// The number before.
        from: Epoch,
        /// The number now.
        to: Epoch,
    },
    /// This side's proposal came to nothing.
    Refused {
        /// What it was.
        spec: S,
        /// Why.
        reason: Refusal,
    },
    /// The control channel counts as failed: [`Courier::close`](super::Courier::close), so that the peer does not take for heard what it says.
    CloseControl,
    /// Make the link anew. This machine does nothing more.
    Remake {
        /// Why.
        why: Lost,
    },
}

/// Why a link has to be made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lost {
    /// The control channel failed when the peer may have heard SWITCH, or not.
    Control,
    /// Both compositions are dead, and the peer lacks something of the old one.
    Paths,
}

/// What to do with data that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Admit {
    /// Deliver it, in its channel's order.
    Deliver,
    /// Keep it, as far as there is room, until [`Action::Resume`].
    Hold,
    /// It is of a composition that is over, or of none.
    Drop,
}

/// How a peer breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breach {
    /// It says what cannot be said now.
    Unexpected(Unexpected<State, Event>),
    /// It speaks of a number that is not the one in question.
    Number(Epoch),
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected(what) => what.fmt(f),
            Self::Number(epoch) => write!(f, "the peer speaks of composition {}, which is none", epoch.0),
        }
    }
}

impl core::error::Error for Breach {}

impl From<Unexpected<State, Event>> for Breach {
    fn from(what: Unexpected<State, Event>) -> Self {
        Self::Unexpected(what)
    }
}
