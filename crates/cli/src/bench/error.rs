//! Why nothing could be measured.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use polyrail_rails::PeerIdx;
use polyrail_rails::mailbox::Mailbox;

/// Why nothing could be measured, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Rails(#[from] polyrail_rails::Error),
    #[error("'{text}': {why}")]
    Peer { text: String, why: String },
    #[error(
        "{0}\nIs polyrail info --listen or polyrail bench --serve running there, at this port, by the same user with the \
         same secret file (POLYRAIL_SECRET_FILE)?"
    )]
    Unreachable(String),
    #[error("{0}")]
    Lost(String),
    #[error("the partner says nothing for {} s; is it overloaded, or stopped?", .0.as_secs())]
    Silent(Duration),
    #[error(
        "the peer takes connections but no measurements: start polyrail info --listen PORT or \
         polyrail bench --serve PORT there, and measure against HOST:PORT"
    )]
    NoPartner,
    #[error("the partner refuses: {0}")]
    Refused(String),
    #[error("cannot start a second process: {0}")]
    Second(io::Error),
    #[error("the second process ended before it could be reached")]
    SecondEnded,
    #[error("port {port} is in use by another program; choose another")]
    PortInUse { port: u16 },
    #[error("cannot write {}: {source}", file.display())]
    Write { file: PathBuf, source: io::Error },
    #[error("cannot draw {}: {why}", file.display())]
    Draw { file: PathBuf, why: String },
}

impl Error {
    /// A peer that cannot be reached, or not any more.
    pub fn lost(mailbox: &Mailbox, peer: PeerIdx) -> Self {
        Self::Lost(mailbox.worker().why(peer).unwrap_or("the peer was lost").to_owned())
    }
}
