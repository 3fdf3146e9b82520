//! How long an orderly end waits for what was sent.
//!
//! Whoever waits for the end of a send has himself to blame where he closes before: for that it waits the time that it is told. But an
//! injected message counts as sent at once, also one that is kept here until its receiver wants it, or that its rail has not got rid of.
//! For those it waits longer: as long as a peer lives that is busy with something else and makes no progress, and [`OF_LATE`] times
//! as long where it does, and yet takes none. Which of the two is the case is asked, by a request that every peer answers by
//! itself: to read nothing of a region that there is not.

use super::buffers::{IoVec, User};
use super::{EventKind, Worker};
use polyrail_core::frame::{OpId, RemoteAddr};
use polyrail_core::proto::{PartSpec, PeerIdx, RmaKind};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often peers are looked at once the time is over.
const LOOK: Duration = Duration::from_millis(20);
/// A peer that makes progress, and takes none of what is kept for it in so many times the time, does not want it.
pub const OF_LATE: u32 = 12;

/// See the module.
#[derive(Debug)]
pub struct Linger {
    time: Duration,
    until: Instant,
    look: Instant,
    /// There is reason to wait on, as of the last look.
    waits: bool,
    asked: HashMap<PeerIdx, Asked>,
}

#[derive(Debug)]
struct Asked {
    question: OpId,
    /// What was kept for it.
    copies: u32,
    /// It has made progress since then, and taken nothing.
    since: Instant,
}

impl Linger {
    /// So long, from now. Zero: not at all, whatever is kept.
    pub fn new(time: Duration) -> Self {
        let until = Instant::now() + time;
        Self { time, until, look: until, waits: false, asked: HashMap::new() }
    }

    /// Whether to wait on.
    pub fn goes_on(&mut self, worker: &mut Worker) -> bool {
        let now = Instant::now();
        if !self.time.is_zero() && now >= self.look {
            self.look = now + LOOK;
            self.waits = self.looks(worker, now);
        }
        now < self.until || self.waits
    }

    /// How long the end itself may take.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).max(self.time.min(Duration::from_secs(1)))
    }

    fn looks(&mut self, worker: &mut Worker, now: Instant) -> bool {
        let mut waits = false;
        for peer in (0..worker.core.peers.len() as u32).map(PeerIdx) {
            if !worker.keeps_for(peer) {
                self.asked.remove(&peer);
                continue;
            }
            let copies = worker.core.peers[peer.0 as usize].pace.copies();
            let asked = self.asked.entry(peer).or_insert_with(|| {
                let question = worker.ask(peer);
                Asked { question, copies, since: now }
            });
            let open = worker.core.bufs.rmas.get(asked.question).is_some();
            if open || asked.copies != copies {
                (asked.copies, asked.since) = (copies, now);
            }
            if !open {
                asked.question = worker.ask(peer);
            }
            waits |= now.saturating_duration_since(asked.since) < self.time * OF_LATE;
        }
        waits
    }
}

impl Worker {
    /// Whether something is kept for a peer that counts as sent.
    fn keeps_for(&self, peer: PeerIdx) -> bool {
        let info = &self.core.peers[peer.0 as usize];
        let staged = || {
            let lanes = info.lanes.as_ref();
            lanes.is_some_and(|lanes| lanes.session.lanes().iter().any(|lane| !self.rails.idle(lane.link())))
        };
        self.core.engine.is_connected(peer) && (info.pace.copies() > 0 || staged())
    }

    /// Asks a peer for nothing.
    fn ask(&mut self, peer: PeerIdx) -> OpId {
        let at = RemoteAddr { key: u64::MAX, addr: 0 };
        let op = self.core.engine.rma(peer, RmaKind::Get, &[PartSpec { at, len: 0 }]);
        let user = User { context: 0, flags: Self::SILENT };
        let nothing = super::buffers::Buf { iov: IoVec::new(&[]), user, owned: None };
        self.core.bufs.rmas.put(op, (nothing, EventKind::Get));
        self.settle();
        op
    }
}
