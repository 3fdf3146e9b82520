//! The end of a peer, and of the endpoint.

use super::events::What;
use super::state::ShortBy;
use super::{PeerInfo, Worker};
use crate::rail::Down;
use crate::set::RailLink;
use polyrail_core::frame::Frame;
use polyrail_core::proto::PeerIdx;
use std::time::{Duration, Instant};

impl Worker {
    /// The peer is lost: every operation with it ends.
    pub(super) fn gone(&mut self, peer: PeerIdx, why: String) {
        let info = &mut self.core.peers[peer.0 as usize];
        let named = describe(info);
        let told = why.clone();
        info.why = Some(format!("{named}: {why}"));
        let unnamed = !info.is_named();
        info.partial.clear();
        if let Some(mut lanes) = info.lanes.take() {
            info.short = ShortBy::plainly(None);
            lanes.withdraw_all(&mut self.rails);
            for link in lanes.session.links() {
                // whoever has its number next is another
                self.core.cut.retain(|(cut, _)| *cut != link);
                self.core.downs.retain(|(down, _)| *down != link);
                self.core.forget_link(link);
                self.rails.close(link);
            }
            self.wireup.abandon_lanes(peer, None);
            self.wireup.ended(peer, false);
        } else if let Some(link) = info.short.lane.take() {
            self.core.forget_link(link);
            self.rails.close(link);
        }
        self.blocked.retain(|p| *p != peer);
        self.core.starting.retain(|(_, transfer)| transfer.peer != peer);
        self.core.transfers = self.rails.transfers();
        self.core.lane_news.retain(|(of, ..)| *of != peer);
        self.core.due.retain(|(of, _)| *of != peer);
        self.core.engine.peer_down(peer);
        self.event(peer, None, What::PeerGone(told));
        if unnamed {
            self.forget(peer);
        } else {
            self.wireup.has_failed(peer);
        }
        self.settle();
    }

    /// Links that ended, or are cut because their peer broke the protocol.
    pub(super) fn bury(&mut self) {
        for (link, why) in std::mem::take(&mut self.core.cut) {
            let why = Down::Protocol(format!("it broke the protocol: {why}"));
            self.core.downs.push((link, why));
        }
        for (link, why) in std::mem::take(&mut self.core.downs) {
            let Some(peer) = self.core.link(link).map(|info| info.peer) else { continue };
            if self.core.peers[peer.0 as usize].lanes.is_some() {
                self.lane_lost(peer, link, &why);
                self.settle();
                continue;
            }
            self.wireup.ended(peer, matches!(why, Down::Orderly));
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
                None => links.extend(info.short.lane),
            }
        }
        let header = Frame::Bye.encode(0);
        for link in &links {
            // SAFETY: no payload.
            while unsafe { self.rails.send(*link, &header, &[], None) }.is_err() {
                // one that has ended has no room for ever
                if self.core.link(*link).is_none() || Instant::now() >= deadline {
                    break;
                }
                self.progress();
            }
        }
        self.rails.flush(&self.core.bufs);
        self.part(&links, deadline);
    }

    /// Waits, at most until the deadline, until the peers' kernels have all that was sent, then closes: a TCP connection that
    /// is closed with bytes unread would take what is still on its way with it.
    fn part(&mut self, links: &[RailLink], deadline: Instant) {
        let on_the_way = |worker: &Self| links.iter().any(|link| !worker.rails.idle(*link));
        while on_the_way(self) && Instant::now() < deadline {
            if self.progress() == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        for link in links {
            self.rails.close(*link);
        }
    }

    /// Whether nothing waits to leave, and nobody waits for an answer that this side owes.
    pub(super) fn all_quiet(&self) -> bool {
        self.core.transfers == 0
            && (0..self.core.peers.len() as u32).map(PeerIdx).all(|peer| {
                let info = &self.core.peers[peer.0 as usize];
                let idle = info.lanes.as_ref().map(|lanes| &lanes.session).is_none_or(|session| {
                    session.is_quiet() && session.lanes().iter().all(|lane| self.rails.idle(lane.link()))
                });
                let nowhere = info.short.lane.is_none() && info.lanes.is_none();
                idle && (self.core.engine.is_quiet(peer) || nowhere && !self.wireup.seeks(peer))
            })
    }
}

fn describe(info: &PeerInfo) -> String {
    let at: Vec<String> =
        info.address.iter().flat_map(|a| a.sockets().map(|s| s.to_string()).collect::<Vec<_>>()).collect();
    let short: String = info.id.0.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    // who listens on no port is reached within this host only
    let at = if at.is_empty() { "this host".to_owned() } else { at.join(", ") };
    match info.address {
        Some(_) => format!("peer {short} at {at}"),
        None => format!("peer {short}"),
    }
}
