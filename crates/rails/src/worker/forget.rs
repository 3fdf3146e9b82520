//! What is kept of peers that nobody here has an address of, as they only ever called or the user has no more use for it, once they
//! went: of the last of them why they did, of the others nothing, so that a server can have as many clients, one after the other, as
//! it likes.
//!
//! A peer's number is freed when nothing names it any more: no operation and no message here, and nobody at the user's, who is asked.

use super::{PeerInfo, Worker};
use polyrail_core::proto::PeerIdx;
use std::collections::VecDeque;

/// Peers that went, and are still known by why they did.
const CALLERS_KEPT: usize = 256;
/// How many are looked at when one has gone: those that are in use wait without end, and there may be many.
const LOOKED_AT: usize = 4;

/// Those that went, the oldest first.
#[derive(Default)]
pub(super) struct Gone {
    /// By why they did.
    callers: VecDeque<PeerIdx>,
    /// Whose numbers are to be freed.
    to_free: VecDeque<PeerIdx>,
    /// Whether some have come since they were looked at.
    fresh: bool,
}

impl Worker {
    /// The user has no more use for a peer's address: when it is gone, or now if it is not there, it is forgotten as if it had called.
    /// [`Worker::peer`] takes that back.
    pub fn release(&mut self, peer: PeerIdx) {
        let info = &mut self.core.peers[peer.0 as usize];
        if info.is_named() && info.id != self.wireup.id {
            info.released = true;
            if self.is_over(peer) {
                self.forget(peer);
            }
        }
    }

    /// A peer that nobody here has an address of is gone.
    pub(super) fn forget(&mut self, peer: PeerIdx) {
        self.core.peers[peer.0 as usize].went += 1;
        self.gone.callers.push_back(peer);
        if self.gone.callers.len() <= CALLERS_KEPT {
            return;
        }
        let Some(oldest) = self.gone.callers.pop_front() else { return };
        self.core.peers[oldest.0 as usize].went -= 1;
        if !self.is_over(oldest) {
            return;
        }
        let info = &mut self.core.peers[oldest.0 as usize];
        let to_free = std::mem::replace(&mut info.to_free, true);
        *info = PeerInfo { to_free: true, ..PeerInfo::new(info.id) };
        self.wireup.forget(oldest);
        if !to_free {
            self.gone.to_free.push_back(oldest);
            self.gone.fresh = true;
        }
    }

    /// Whether a peer that went has neither come again meanwhile, nor been given an address.
    pub(super) fn is_over(&self, peer: PeerIdx) -> bool {
        let info = &self.core.peers[peer.0 as usize];
        info.went == 0
            && self.wireup.is_over(peer)
            && info.short.lane.is_none()
            && info.lanes.is_none()
            && !info.is_named()
            && info.held == 0
    }

    /// Whether peers have gone whose numbers can be freed: see [`Worker::free_numbers`].
    #[inline]
    pub fn has_numbers_to_free(&self) -> bool {
        self.gone.fresh
    }

    /// Frees numbers of peers that went long ago, so that they are others' from now on: of such as called, and whose address was never
    /// given to [`Worker::peer`], or was released, once 256 others went after them. `kept` is asked whether the user still has a number (events told
    /// it), which is then kept as well, and asked about again.
    pub fn free_numbers(&mut self, mut kept: impl FnMut(PeerIdx) -> bool) {
        self.gone.fresh = false;
        for _ in 0..LOOKED_AT.min(self.gone.to_free.len()) {
            let Some(peer) = self.gone.to_free.pop_front() else { return };
            if !self.is_over(peer) {
                // it will go again
                self.core.peers[peer.0 as usize].to_free = false;
            } else if self.core.events.iter().any(|event| event.peer == Some(peer))
                || self.notes.name_peer(peer)
                || kept(peer)
                || !self.core.engine.remove_peer(peer)
            {
                self.gone.to_free.push_back(peer);
            } else {
                self.core.peers[peer.0 as usize].to_free = false;
                self.by_id.remove(&self.core.peers[peer.0 as usize].id);
                self.wireup.forget(peer);
            }
        }
    }
}
