//! From the application's addresses to the worker's peers, and back.

use std::ffi::c_int;

use polyrail_core::proto::PeerIdx;

use super::endpoint::Endpoint;
use crate::ffi::*;
use crate::log::log;
use crate::state::av::Av;
use crate::state::slab::Slab;

const UNKNOWN: u32 = u32::MAX;

impl Endpoint {
    /// The peer with this number in the address vector.
    ///
    /// # Errors
    /// -FI_EINVAL when there is none.
    #[inline]
    pub fn peer(&mut self, number: fi_addr_t, avs: &Slab<Av>) -> Result<PeerIdx, c_int> {
        match self.peers.get(number as usize) {
            Some(&peer) if peer != UNKNOWN => Ok(PeerIdx(peer)),
            _ => self.resolve(number, avs),
        }
    }

    #[cold]
    fn resolve(&mut self, number: fi_addr_t, avs: &Slab<Av>) -> Result<PeerIdx, c_int> {
        let address = self.av.and_then(|av| avs[av].get(number)).ok_or(-FI_EINVAL)?;
        let worker = self.worker.as_mut().ok_or(-FI_EOPBADSTATE)?;
        let peer = worker.peer(&address.to_bytes()).map_err(|why| {
            log!(FI_LOG_WARN, FI_LOG_AV, "{address}: {why}");
            -why.errno()
        })?;
        let (at, peer_at) = (number as usize, peer.0 as usize);
        if at >= self.peers.len() {
            self.peers.resize(at + 1, UNKNOWN);
        }
        self.peers[at] = peer.0;
        self.note(peer_at, number);
        Ok(peer)
    }

    fn note(&mut self, peer: usize, number: fi_addr_t) {
        if peer >= self.numbers.len() {
            self.numbers.resize(peer + 1, FI_ADDR_NOTAVAIL);
        }
        if self.numbers[peer] == FI_ADDR_NOTAVAIL {
            self.numbers[peer] = number;
        }
    }

    /// The number of a peer, or `FI_ADDR_NOTAVAIL` if its address was not inserted.
    pub fn address_of(&mut self, peer: PeerIdx, avs: &Slab<Av>) -> fi_addr_t {
        match self.numbers.get(peer.0 as usize) {
            Some(&number) if number != FI_ADDR_NOTAVAIL => number,
            _ => self.find(peer, avs).unwrap_or(FI_ADDR_NOTAVAIL),
        }
    }

    /// The number of a sender, for `fi_cq_readfrom`: of endpoints with `FI_SOURCE` only.
    pub fn source_of(&mut self, peer: PeerIdx, avs: &Slab<Av>) -> fi_addr_t {
        if self.sources { self.address_of(peer, avs) } else { FI_ADDR_NOTAVAIL }
    }

    #[cold]
    fn find(&mut self, peer: PeerIdx, avs: &Slab<Av>) -> Option<fi_addr_t> {
        let id = self.worker.as_ref()?.id_of(peer)?;
        let number = avs[self.av?].number_of(id)? as fi_addr_t;
        self.note(peer.0 as usize, number);
        Some(number)
    }

    /// Addresses were removed: what is known of them is asked for again.
    pub fn forget_peers(&mut self) {
        self.peers.clear();
        self.numbers.clear();
    }
}
