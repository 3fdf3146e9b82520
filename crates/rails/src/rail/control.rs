//! How links are reliable and fair: as the kernel has it, or by a composition of micro-protocols, which may change while they are in use.

use polyrail_core::control::Refusal;
use polyrail_core::control::rules::Reason;
use polyrail_core::micro::Composition;
use std::fmt;

/// How a link is reliable and fair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control {
    /// As the kernel has it: the name of its congestion control.
    Kernel(String),
    /// By this composition, and why by that one.
    Composition(Composition, Cause),
}

/// Why a link has the composition that it has, or was to have another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Nothing was known of the path.
    First,
    /// This side wanted it.
    Ours(Reason),
    /// The peer wanted it.
    Peer,
    /// A test has the link change all the time ([`fault`](super::fault)).
    Restless,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("links begin with it"),
            Self::Ours(reason) => reason.fmt(f),
            Self::Peer => f.write_str("the peer wanted it"),
            Self::Restless => f.write_str("POLYRAIL_FAULTS has links change"),
        }
    }
}

/// A link's composition was changed, or was to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// What was in force.
    pub from: Composition,
    /// What takes its place, or was to.
    pub to: Composition,
    /// Why it was wanted.
    pub cause: Cause,
    /// Why nothing came of it.
    pub refused: Option<Refusal>,
}
