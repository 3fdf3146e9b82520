//! How long an orderly end waits for what was sent.
//!
//! Whoever waits for the end of a send has himself to blame where he closes before: for that it waits the time that it is told. But an
//! injected message counts as sent at once, also one that is kept here until its receiver wants it, or that its rail has not got rid of
//! (of which it is not known to what it belongs: it may be a part of a send that has not ended).
//! For those it waits longer: as long as a peer lives that makes no progress, and [`OF_LATE`] times as long for one that does, and takes
//! none of them; unless that peer, too, waits for its end, and wants nothing more. It is asked: to read nothing of a region that
//! only who waits for his end has ([`ENDING`]), which engines answer by themselves.

use super::buffers::{Buf, IoVec, User};
use super::{EventKind, Worker};
use polyrail_core::frame::{OpId, RemoteAddr};
use polyrail_core::proto::{Access, PartSpec, PeerIdx, Registered, RmaKind};
use polyrail_core::wire::Address;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The key of that region (`docs/wire-frames.md`).
const ENDING: u64 = 0xe9d5_0ff1_b7c3_2a6d;
/// How often peers are looked at once the time is over.
const LOOK: Duration = Duration::from_millis(20);
/// Who has not answered for so long makes no progress.
const LATE: Duration = Duration::from_secs(1);
/// For how many times the time a peer is waited for that makes progress and takes nothing.
const OF_LATE: u32 = 120;

/// See the module.
#[derive(Debug)]
pub struct Linger {
    time: Duration,
    until: Instant,
    look: Instant,
    /// Peers can be told that the end is waited for.
    told: bool,
    /// There is reason to wait on, as of the last look.
    waits: bool,
    asked: HashMap<PeerIdx, Asked>,
    beside: Vec<[u8; Address::LEN]>,
}

#[derive(Debug)]
struct Asked {
    question: OpId,
    at: Instant,
    /// What was kept for it.
    copies: u32,
    /// It has made progress since then, and taken nothing.
    since: Instant,
}

impl Linger {
    /// So long, from now. Zero: not at all, whatever is kept.
    pub fn new(time: Duration) -> Self {
        let until = Instant::now() + time;
        let (asked, beside) = (HashMap::new(), Vec::new());
        Self { time, until, look: until, told: false, waits: false, asked, beside }
    }

    /// An endpoint that can receive nothing meanwhile, as its program has no other thread: for it no longer than the time is waited.
    pub fn beside(&mut self, address: [u8; Address::LEN]) {
        self.beside.push(address);
    }

    /// Whether to wait on.
    pub fn goes_on(&mut self, worker: &mut Worker) -> bool {
        if !std::mem::replace(&mut self.told, true) {
            let access = Access { read: true, write: false };
            // who has given that key to memory of its own is taken for one that ends
            let _ = worker.core.engine.regions.insert(ENDING, Registered { base: 0, len: 0, access });
        }
        let now = Instant::now();
        if !self.time.is_zero() && now >= self.look {
            self.look = now + LOOK;
            self.waits = self.looks(worker, now);
        }
        now < self.until || self.waits
    }

    /// How much is left of the time; a little for the end itself where all was sent.
    pub fn left(&self, worker: &Worker) -> Duration {
        let least = if worker.is_quiet() { self.time.min(Duration::from_secs(1)) } else { Duration::ZERO };
        self.until.saturating_duration_since(Instant::now()).max(least)
    }

    fn looks(&mut self, worker: &mut Worker, now: Instant) -> bool {
        let mut waits = false;
        for peer in (0..worker.core.peers.len() as u32).map(PeerIdx) {
            let beside = worker.address_of(peer).is_some_and(|address| self.beside.contains(&address));
            if beside || !worker.keeps_for(peer) {
                continue;
            }
            let copies = worker.core.peers[peer.0 as usize].pace.copies();
            let asked = self.asked.entry(peer).or_insert_with(|| Asked {
                question: worker.ask(peer),
                at: now,
                copies,
                since: now,
            });
            let open = worker.core.bufs.rmas.get(asked.question).is_some();
            if open && now.saturating_duration_since(asked.at) >= LATE || asked.copies != copies {
                (asked.copies, asked.since) = (copies, now);
            }
            if !open {
                if worker.core.peers[peer.0 as usize].ending {
                    continue;
                }
                (asked.question, asked.at) = (worker.ask(peer), now);
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
            info.lanes.as_ref().is_some_and(|lanes| {
                let session = &lanes.session;
                !session.is_quiet() || session.lanes().iter().any(|lane| !self.rails.idle(lane.link()))
            })
        };
        self.core.engine.is_connected(peer) && (info.pace.copies() > 0 || staged())
    }

    /// Asks a peer whether it waits for its end.
    fn ask(&mut self, peer: PeerIdx) -> OpId {
        let at = RemoteAddr { key: ENDING, addr: 0 };
        let op = self.core.engine.rma(peer, RmaKind::Get, &[PartSpec { at, len: 0 }]);
        let user = User { context: 0, flags: Self::SILENT };
        self.core.bufs.rmas.put(op, (Buf { iov: IoVec::new(&[]), user, owned: None }, EventKind::Get));
        self.settle();
        op
    }
}
