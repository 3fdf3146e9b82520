//! The asynchronous scheme: values, of which the latest of each tag counts, beside messages.

use super::{PutError, Scheme, Taken, Worker};
use polyrail_core::proto::PeerIdx;

impl Worker {
    /// By which scheme this side sends to a peer, from now on; the synchronous one at first. Messages are sent and arrive as ever in both. It
    /// may be changed at any time; what was put before still leaves.
    pub fn set_scheme(&mut self, peer: PeerIdx, scheme: Scheme) {
        self.core.engine.set_scheme(peer, scheme);
        let lanes = &self.core.peers[peer.0 as usize].lanes;
        for link in lanes.iter().flat_map(|lanes| lanes.session.links()) {
            self.rails.set_scheme(link, scheme);
        }
    }

    /// By which scheme this side sends to a peer.
    pub fn scheme(&self, peer: PeerIdx) -> Scheme {
        self.core.engine.scheme(peer)
    }

    /// Gives a peer the newest value of a tag: a copy is taken, and nothing is waited for. It takes the place of what was put for the tag before
    /// and has not left. Values of higher iterations are newer. When the peer is gone, what has not come is forgotten; nobody is told.
    ///
    /// # Errors
    /// [`PutError`]; nothing has happened then. It is refused in the synchronous scheme.
    pub fn put_value(&mut self, to: PeerIdx, tag: u64, iteration: u64, bytes: &[u8]) -> Result<(), PutError> {
        let engine = &self.core.engine;
        if engine.scheme(to) == Scheme::Asynchronous && !engine.is_connected(to) {
            self.connect(to).map_err(|_| PutError::Gone)?;
        }
        self.core.engine.put_value(to, tag, iteration, bytes)?;
        self.settle();
        Ok(())
    }

    /// The newest value of a tag that has come from a peer, whole: new once, and never one that is older than one before. What came by the last round of
    /// progress is there; a peer's values outlive it until it is connected again.
    pub fn take_value(&mut self, from: PeerIdx, tag: u64) -> Taken<'_> {
        let now = self.core.clock();
        self.core.engine.take_value(from, now, tag)
    }

    /// Whether [`Worker::take_value`] would have one that is new.
    pub fn has_value(&self, from: PeerIdx, tag: u64) -> bool {
        self.core.engine.has_value(from, tag)
    }
}
