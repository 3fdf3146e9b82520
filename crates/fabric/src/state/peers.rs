//! From the application's addresses to the worker's peers, and back.

use std::collections::BTreeSet;
use std::ffi::c_int;

use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::PeerId;

use super::endpoint::Endpoint;
use crate::ffi::*;
use crate::log::{log, tell_before_the_end};
use crate::state::av::Av;
use crate::state::slab::Slab;

const UNKNOWN: u32 = u32::MAX;
/// How a worker's sentence ends about a peer that has said goodbye.
const ORDERLY: &str = "it has closed its endpoint";
/// Lost peers of an endpoint that are told of: where a network fails, a line for each says no more.
const MOST_TOLD: usize = 8;

/// Which losses of peers have been told.
#[derive(Debug, Default)]
pub struct Told {
    peers: BTreeSet<u32>,
    lines: usize,
}

impl Told {
    /// What is to be told of the loss of a peer, for this reason: once, and nothing of one that has closed in order, whatever is
    /// tried with it afterwards.
    pub fn loss(&mut self, peer: PeerIdx, why: &str) -> Option<String> {
        if !self.peers.insert(peer.0) || why.ends_with(ORDERLY) || self.lines > MOST_TOLD {
            return None;
        }
        self.lines += 1;
        Some(match self.lines <= MOST_TOLD {
            true => why.into(),
            false => "more peers are lost; POLYRAIL_LOG=stderr names all of them".into(),
        })
    }
}

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

    /// The same, if it has been asked for before.
    #[inline(always)]
    pub fn known_peer(&self, number: fi_addr_t) -> Option<PeerIdx> {
        self.peers.get(number as usize).filter(|peer| **peer != UNKNOWN).map(|peer| PeerIdx(*peer))
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

    /// Why an operation with a peer failed, as far as it is known: a sentence that names it. A user hears of it, too, where nobody
    /// reads the application's errors.
    #[cold]
    pub fn why_gone(&mut self, peer: PeerIdx) -> Option<&str> {
        let why = self.worker.as_ref()?.why(peer)?;
        if let Some(line) = self.told.loss(peer, why) {
            tell_before_the_end(format_args!("{line}"));
        }
        Some(why)
    }

    /// Has the worker free the numbers of peers that went long ago, but those that are `kept`.
    pub fn forget_gone(&mut self, mut kept: impl FnMut(PeerIdx) -> bool) {
        let Self { worker: Some(worker), numbers, told, .. } = self else { return };
        worker.free_numbers(|peer| {
            let kept = kept(peer);
            if !kept {
                numbers.get_mut(peer.0 as usize).into_iter().for_each(|number| *number = FI_ADDR_NOTAVAIL);
                told.peers.remove(&peer.0);
            }
            kept
        });
    }

    /// No number in the address vector is this peer's any more.
    pub fn release(&mut self, id: PeerId) {
        if let Some(worker) = &mut self.worker
            && let Some(peer) = worker.known(id)
        {
            worker.release(peer);
        }
    }

    /// Addresses were removed: what is known of them is asked for again.
    pub fn forget_peers(&mut self) {
        self.peers.clear();
        self.numbers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_is_told_once_and_not_too_many_of_them() {
        let mut told = Told::default();
        assert_eq!(told.loss(PeerIdx(3), "peer a: lost"), Some("peer a: lost".into()));
        assert_eq!(told.loss(PeerIdx(3), "peer a: cannot connect"), None);
        assert_eq!(told.loss(PeerIdx(4), "peer b: it has closed its endpoint"), None);
        assert_eq!(told.loss(PeerIdx(4), "peer b: cannot connect"), None);
        let lines: Vec<_> = (10..30).filter_map(|peer| told.loss(PeerIdx(peer), "lost")).collect();
        assert_eq!(lines.len(), MOST_TOLD);
        assert!(lines[..MOST_TOLD - 1].iter().all(|line| line == "lost"));
        assert!(lines[MOST_TOLD - 1].starts_with("more peers are lost"), "{lines:?}");
    }
}
