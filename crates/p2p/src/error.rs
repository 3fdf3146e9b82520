//! Why a call could not do what it was asked for.

use crate::link::Link;
use std::time::Duration;

/// Why a call could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An endpoint cannot be opened, or reached.
    #[error(transparent)]
    Rails(#[from] polyrail_rails::Error),
    /// What the launcher says of the others cannot be used.
    #[error(transparent)]
    Launcher(#[from] polyrail_rendezvous::Error),
    /// The processes that were started together do not meet.
    #[error("{0}")]
    Meeting(String),
    /// A member is gone.
    #[error("member {member} is gone: {why}")]
    Gone {
        /// Its number.
        member: usize,
        /// What is known of it.
        why: String,
    },
    /// A member said what it had no reason to.
    #[error("member {member} breaks the rules of the run: {why}")]
    Breach {
        /// Its number.
        member: usize,
        /// What was wrong.
        why: String,
    },
    /// Who takes part is not who it was: [`Peers::change`](crate::Peers::change) says what that means for this one.
    #[error("who takes part has changed")]
    Changed,
    /// The others have gone on without this one.
    #[error("the others have gone on without this peer; it can join again")]
    Out,
    /// Whom one wanted to join does not want it.
    #[error("the run does not take this peer: {0}")]
    Refused(String),
    /// Nothing came for as long as was to be waited.
    #[error("nothing came of {0} for {1:?}; is it stopped, or does it wait for something else?")]
    Silent(String, Duration),
    /// A [`Pause`](crate::Pause) ended the wait.
    #[error("the wait was interrupted")]
    Interrupted,
    /// A call was made that cannot be carried out.
    #[error("{0}")]
    Use(String),
}

pub(crate) fn gone(why: Option<&str>, member: usize) -> Error {
    let why = why.unwrap_or("its connection has ended").to_owned();
    Error::Gone { member, why }
}

pub(crate) fn breach(member: usize, why: impl ToString) -> Error {
    Error::Breach { member, why: why.to_string() }
}

pub(crate) fn other_length(link: Link, sent: usize, wanted: usize) -> String {
    let Link { from, to, .. } = link;
    format!("part {from} sends {sent} bytes or more to part {to}, which wants {wanted}")
}
