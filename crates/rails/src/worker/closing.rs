//! The end of a peer, and of the endpoint.

use super::buffers::scratch_place;
use super::events::What;
use super::handshake::Half;
use super::inbound::RailId;
use super::{PeerInfo, Worker};
use crate::rail::{Down, LinkId, Rail};
use polyrail_core::frame::Frame;
use polyrail_core::proto::PeerIdx;
use polyrail_core::session::Partial;
use polyrail_core::wireup::{PeerEvent, PeerState};
use std::time::{Duration, Instant};

/// Peers that called, went, and are still known by why they did.
const CALLERS_KEPT: usize = 256;

impl Worker {
    /// The peer is lost: every operation with it ends.
    pub(super) fn gone(&mut self, peer: PeerIdx, why: String) {
        let info = &mut self.core.peers[peer.0 as usize];
        let named = describe(info);
        let told = why.clone();
        info.why = Some(format!("{named}: {why}"));
        info.pid = None;
        let unnamed = info.address.is_none();
        info.partial.clear();
        if let Some(lanes) = info.lanes.take() {
            info.lane = None;
            for (rail, link) in lanes.session.links() {
                // whoever has its number next is another
                self.core.cut.retain(|(of, cut, _)| (*of, *cut) != (rail, link));
                self.core.downs.retain(|(of, down, _)| (*of, *down) != (rail, link));
                if let Some(slot) = self.core.links[rail as usize].get_mut(link.0 as usize) {
                    *slot = None;
                }
                self.core.bufs.scratch.remove(&scratch_place(rail as u32, link.0));
                self.rail(rail).close(link);
            }
            self.wireup.handshakes.retain(|_, h| !matches!(h.half, Half::Lane(_, of, _) if of == peer));
            if let Some(state) = self.wireup.peers.get_mut(&peer) {
                let _ = state.on(PeerEvent::Lost);
            }
        } else if let Some((rail, link)) = info.lane.take() {
            self.core.links[rail as usize][link.0 as usize] = None;
            self.core.bufs.scratch.remove(&scratch_place(rail as u32, link.0));
            match rail {
                RailId::Loopback => {}
                RailId::Shm => self.shm.close(link),
                RailId::Tcp => self.tcp.close(link),
            }
        }
        self.blocked.retain(|p| *p != peer);
        self.core.lane_news.retain(|(of, ..)| *of != peer);
        self.core.due.retain(|(of, _)| *of != peer);
        self.core.engine.peer_down(peer);
        self.event(peer, None, What::PeerGone(told));
        if unnamed {
            self.forget(peer);
        } else {
            self.wireup.failed(peer);
        }
        self.settle();
    }

    /// A peer that only ever called, and that nobody here has an address of, is gone: of the last of them it is known why, of the
    /// others their numbers alone, which users may still have.
    fn forget(&mut self, peer: PeerIdx) {
        self.wireup.callers_gone.push_back(peer);
        if self.wireup.callers_gone.len() <= CALLERS_KEPT {
            return;
        }
        let Some(oldest) = self.wireup.callers_gone.pop_front() else { return };
        let info = &mut self.core.peers[oldest.0 as usize];
        // it may have called again meanwhile, or been given an address
        let state = self.wireup.peers.get(&oldest).map(|peer| peer.state());
        let over = matches!(state, None | Some(PeerState::Closed | PeerState::Failed));
        if !over || info.lane.is_some() || info.lanes.is_some() || info.address.is_some() {
            return;
        }
        (info.why, info.direct_refused, info.explanation) = (None, None, None);
        info.passed_over = Vec::new();
        info.partial = Partial::default();
        self.wireup.peers.remove(&oldest);
    }

    /// Links that ended, or are cut because their peer broke the protocol.
    pub(super) fn bury(&mut self) {
        for (rail, link, why) in std::mem::take(&mut self.core.cut) {
            let why = Down::Protocol(format!("it broke the protocol: {why}"));
            self.core.downs.push((rail, link, why));
        }
        for (rail, link, why) in std::mem::take(&mut self.core.downs) {
            let Some(peer) = self.core.link(rail, link).map(|info| info.peer) else { continue };
            if self.core.peers[peer.0 as usize].lanes.is_some() {
                self.lane_lost(peer, (rail, link), &why);
                self.settle();
                continue;
            }
            if let Some(state) = self.wireup.peers.get_mut(&peer) {
                let orderly = matches!(why, Down::Orderly);
                let _ = state.on(if orderly { PeerEvent::Bye } else { PeerEvent::Lost });
            }
            let why = match why {
                Down::Orderly => "it has closed its endpoint".to_owned(),
                Down::Lost(error) => format!("the connection was lost: {error}"),
                Down::Protocol(what) => what,
            };
            self.gone(peer, why);
        }
    }

    /// Says goodbye to all peers once what was sent has left, or at the deadline.
    pub(super) fn say_bye(&mut self, deadline: Instant) {
        if self.wireup.closing {
            return;
        }
        self.config.yielding = true;
        while Instant::now() < deadline && !self.all_quiet() {
            if self.progress() == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        self.wireup.closing = true;
        let mut links = Vec::new();
        for info in &self.core.peers {
            match &info.lanes {
                Some(lanes) => links.extend(lanes.session.lanes().iter().map(|lane| lane.link())),
                None => links.extend(info.lane),
            }
        }
        let header = Frame::Bye.encode(0);
        for (rail, link) in &links {
            // SAFETY: no payload.
            unsafe {
                let _ = match rail {
                    RailId::Loopback => Ok(()),
                    RailId::Shm => self.shm.send(*link, &header, &[], None),
                    RailId::Tcp => self.tcp.send(*link, &header, &[], None),
                };
            }
        }
        self.tcp.flush(&self.core.bufs);
        self.part(&links, deadline);
    }

    /// Waits, at most until the deadline, until the peers' kernels have all that was sent, then closes: a TCP connection that
    /// is closed with bytes unread would take what is still on its way with it.
    fn part(&mut self, links: &[(RailId, LinkId)], deadline: Instant) {
        let on_the_way =
            |worker: &Self| links.iter().any(|(rail, link)| *rail == RailId::Tcp && !worker.tcp.idle(*link));
        while on_the_way(self) && Instant::now() < deadline {
            if self.progress() == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        for (rail, link) in links {
            match rail {
                RailId::Loopback => self.loopback.close(*link),
                RailId::Shm => self.shm.close(*link),
                RailId::Tcp => self.tcp.close(*link),
            }
        }
    }

    /// Whether nothing waits to leave, and nobody waits for an answer that this side owes.
    pub(super) fn all_quiet(&self) -> bool {
        (0..self.core.peers.len() as u32).map(PeerIdx).all(|peer| {
            let info = &self.core.peers[peer.0 as usize];
            let idle = info.lanes.as_ref().map(|lanes| &lanes.session).is_none_or(|session| {
                session.is_quiet() && session.lanes().iter().all(|lane| self.tcp.idle(lane.link().1))
            });
            let nowhere = info.lane.is_none() && info.lanes.is_none();
            idle && (self.core.engine.is_quiet(peer) || nowhere && !self.wireup.attempts.contains_key(&peer))
        })
    }
}

fn describe(info: &PeerInfo) -> String {
    let at: Vec<String> =
        info.address.iter().flat_map(|a| a.sockets().map(|s| s.to_string()).collect::<Vec<_>>()).collect();
    let short: String = info.id.0.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    if at.is_empty() { format!("peer {short}") } else { format!("peer {short} at {}", at.join(", ")) }
}
