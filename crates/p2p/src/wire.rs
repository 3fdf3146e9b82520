//! What members reach each other by: an endpoint of this process, or one of a simulated network, where time is that of the simulation.

use crate::error::Error;
use crate::view::ADDRESS;
use crate::words::Heard;
use polyrail_rails::mailbox::{Mailbox, Scheme};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use crate::link::{segment_of_message, segment_of_value};
pub use polyrail_rails::PeerIdx;
pub use polyrail_rails::mailbox::{Done, PutError, Taken};
pub use polyrail_rails::worker::Refused;

/// What members reach each other by.
///
/// What its functions do is what those of a [`Mailbox`] do with the same names.
pub trait Wire {
    /// Rounds of progress in vain before who waits sleeps.
    const SPINS: u32;

    /// Where others reach this one.
    fn address(&self) -> [u8; ADDRESS];

    /// The peer at an address.
    ///
    /// # Errors
    /// It is no address.
    fn peer(&mut self, address: &[u8]) -> Result<PeerIdx, Error>;

    /// Why a peer is gone, if it is.
    fn why(&self, peer: PeerIdx) -> Option<&str>;

    /// Bytes of an active message, at most.
    fn active_max(&self, to: PeerIdx) -> usize;

    /// Values to and from this peer may be lost, but for the newest.
    fn newest_counts(&mut self, peer: PeerIdx);

    /// Sends a message.
    ///
    /// # Errors
    /// There is no room now, or the peer is gone.
    fn send(&mut self, to: PeerIdx, tag: u64, bytes: &Arc<[u8]>) -> Result<(), Refused>;

    /// Sends an active message.
    ///
    /// # Errors
    /// As [`Wire::send`].
    fn send_active(&mut self, to: PeerIdx, id: u16, bytes: &[u8]) -> Result<(), Refused>;

    /// Posts a receive.
    fn recv(&mut self, from: Option<PeerIdx>, tag: u64, buffer: Vec<u8>);

    /// Gives a peer a value, in place of one with this tag that has not left.
    ///
    /// # Errors
    /// It is older than the last, too long, or the peer is gone.
    fn put(&mut self, to: PeerIdx, tag: u64, number: u64, bytes: &[u8]) -> Result<(), PutError>;

    /// The newest value that a peer has given.
    fn take(&mut self, from: PeerIdx, tag: u64) -> Taken<'_>;

    /// Whether there is one that was not taken.
    fn has_value(&self, from: PeerIdx, tag: u64) -> bool;

    /// Moves what can be moved; how much that was.
    fn progress(&mut self) -> usize;

    /// The next operation that has ended. Receives end in any order, also those of one tag, which take messages in order.
    fn next_done(&mut self) -> Option<Done>;

    /// The next active message that has come.
    fn heard(&mut self) -> Option<(PeerIdx, Vec<u8>)>;

    /// Waits until there is something to move, or for so long.
    fn sleep(&mut self, most: Duration);

    /// The time, since it began.
    fn now(&self) -> Duration;

    /// Computing of so much was done, in the program's own measure: where time is simulated, it has passed.
    fn worked(&mut self, _amount: f64) {}

    /// Ends, when what was sent is on its way, or after so long.
    fn close(&mut self, linger: Duration);
}

/// An endpoint of this process.
pub struct Endpoint {
    mailbox: Mailbox,
    heard: Heard,
    begin: Instant,
}

impl Endpoint {
    pub(crate) fn new(mailbox: Mailbox, heard: Heard) -> Self {
        Self { mailbox, heard, begin: Instant::now() }
    }
}

impl Wire for Endpoint {
    const SPINS: u32 = 200;

    fn address(&self) -> [u8; ADDRESS] {
        self.mailbox.worker().address()
    }

    fn peer(&mut self, address: &[u8]) -> Result<PeerIdx, Error> {
        Ok(self.mailbox.peer(address)?)
    }

    fn why(&self, peer: PeerIdx) -> Option<&str> {
        self.mailbox.worker().why(peer)
    }

    fn active_max(&self, to: PeerIdx) -> usize {
        self.mailbox.worker().active_max(to)
    }

    fn newest_counts(&mut self, peer: PeerIdx) {
        self.mailbox.set_scheme(peer, Scheme::Asynchronous);
    }

    fn send(&mut self, to: PeerIdx, tag: u64, bytes: &Arc<[u8]>) -> Result<(), Refused> {
        self.mailbox.send(to, tag, bytes).map(|_| ())
    }

    fn send_active(&mut self, to: PeerIdx, id: u16, bytes: &[u8]) -> Result<(), Refused> {
        self.mailbox.send_active(to, id, bytes)
    }

    fn recv(&mut self, from: Option<PeerIdx>, tag: u64, buffer: Vec<u8>) {
        self.mailbox.recv(from, tag, buffer);
    }

    fn put(&mut self, to: PeerIdx, tag: u64, number: u64, bytes: &[u8]) -> Result<(), PutError> {
        self.mailbox.put(to, tag, number, bytes)
    }

    fn take(&mut self, from: PeerIdx, tag: u64) -> Taken<'_> {
        self.mailbox.take(from, tag)
    }

    fn has_value(&self, from: PeerIdx, tag: u64) -> bool {
        self.mailbox.worker().has_value(from, tag)
    }

    fn progress(&mut self) -> usize {
        self.mailbox.progress()
    }

    fn next_done(&mut self) -> Option<Done> {
        self.mailbox.next_done()
    }

    fn heard(&mut self) -> Option<(PeerIdx, Vec<u8>)> {
        self.heard.try_recv().ok()
    }

    fn sleep(&mut self, most: Duration) {
        self.mailbox.sleep(most);
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn close(&mut self, linger: Duration) {
        self.mailbox.close(linger);
    }
}
