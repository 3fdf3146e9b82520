//! Why a proposal comes to nothing, and for how long it is not made again.

use super::{Time, word::NackReason};
use alloc::collections::VecDeque;
use core::fmt;

/// Why a proposal comes to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A change is under way, here or at the peer.
    Busy,
    /// It is in force.
    InForce,
    /// This side, or the peer, could not build it.
    Cannot,
    /// It was refused a short time ago.
    HoldDown,
    /// The peer did not answer in time.
    TimedOut,
    /// The peer proposed something at the same time, and its proposal wins.
    Crossed,
    /// The control channel has failed.
    NoControl,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "another change is under way",
            Self::InForce => "it is in force",
            Self::Cannot => "it could not be built",
            Self::HoldDown => "it was refused a short time ago",
            Self::TimedOut => "the peer did not answer in time",
            Self::Crossed => "the peer proposed another change at the same time",
            Self::NoControl => "the control channel has failed",
        })
    }
}

impl core::error::Error for Refusal {}

impl From<NackReason> for Refusal {
    fn from(reason: NackReason) -> Self {
        match reason {
            NackReason::Busy => Self::Busy,
            NackReason::Cannot => Self::Cannot,
            NackReason::HoldDown => Self::HoldDown,
        }
    }
}

/// So many compositions are remembered as refused.
const REMEMBERED: usize = 8;

/// Which compositions were refused lately, and until when they are not asked for again.
#[derive(Debug)]
pub struct HoldDown<S> {
    refused: VecDeque<(S, Time)>,
}

impl<S: PartialEq> HoldDown<S> {
    /// None was.
    pub const fn new() -> Self {
        Self { refused: VecDeque::new() }
    }

    /// This one was, and is not asked for before `until`.
    pub fn add(&mut self, spec: S, until: Time) {
        self.refused.retain(|(other, _)| *other != spec);
        if self.refused.len() >= REMEMBERED {
            self.refused.pop_front();
        }
        self.refused.push_back((spec, until));
    }

    /// Whether it is too early to ask for this one.
    pub fn holds(&self, now: Time, spec: &S) -> bool {
        self.refused.iter().any(|(other, until)| other == spec && now < *until)
    }
}
