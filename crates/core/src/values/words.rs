//! What is said of values to who gives and takes them.

use super::Time;
use core::fmt;

/// What a pair of peers computes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Scheme {
    /// All arrives, in order.
    #[default]
    Synchronous,
    /// The newest arrives.
    Asynchronous,
}

/// Why a value is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutError {
    /// One of the same iteration, or a later one, was given before.
    Old,
    /// It is longer than [`VALUE_MOST`](crate::wire::datagram::VALUE_MOST).
    TooLong,
    /// There are [`TAGS`](super::TAGS) others.
    TooManyTags,
    /// All together are more than [`BYTES`](super::BYTES).
    TooManyBytes,
    /// The scheme is synchronous, which has messages and no values.
    Synchronous,
    /// The peer cannot be reached.
    Gone,
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Old => "a value of that iteration, or a later one, was given before",
            Self::TooLong => "the value is too long",
            Self::TooManyTags => "there are too many tags",
            Self::TooManyBytes => "values have too many bytes, all together",
            Self::Synchronous => "values are of the asynchronous scheme, which was not set for this peer",
            Self::Gone => "the peer cannot be reached",
        })
    }
}

impl core::error::Error for PutError {}

/// The newest value of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken<'a> {
    /// One that was not taken before.
    New {
        /// Which.
        iteration: u64,
        /// How long ago it came, in nanoseconds.
        age: Time,
        /// The value.
        bytes: &'a [u8],
    },
    /// The same as the last time.
    Unchanged {
        /// Which.
        iteration: u64,
        /// How long ago it came, in nanoseconds.
        age: Time,
    },
    /// None has come yet.
    Nothing,
}
