//! Tells who asks what the worker is doing: see [`crate::top`].

use super::events::{LaneName, protocols, short};
use super::{PeerInfo, Worker};
use crate::events::{host_name, rfc3339};
use crate::rail::control::Control;
use crate::sockets::unix;
use crate::top::{Lane, PREFIX, Peer, Snapshot, VERSION, collectives, program_of};
use crate::wireup::{Interest, TOKEN_OTHERS};
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::PeerId;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant, SystemTime};

/// Whoever asks, and those who are being answered, among what is watched along with wire-up.
pub(super) const TOKEN_TOP: u64 = TOKEN_OTHERS + 1;
const TOKEN_WATCHER: u64 = TOKEN_OTHERS + 2;
/// Most that are answered at the same time; the oldest gives way.
const WATCHERS: usize = 4;
/// How long one may take to read its answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most peers that are told of.
const PEERS: usize = 256;

/// One who asked, and what is still to be sent to it.
struct Watcher {
    socket: OwnedFd,
    document: Vec<u8>,
    sent: usize,
    deadline: Instant,
}

impl Watcher {
    /// Sends what can be sent. True: it is over.
    fn push(&mut self) -> bool {
        loop {
            let left = &self.document[self.sent..];
            if left.is_empty() {
                return true;
            }
            match unix::send(self.socket.as_fd(), left, &[]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }
}

/// Where it is asked, and those who are being answered.
pub(super) struct Top {
    listener: Option<OwnedFd>,
    watchers: Vec<Watcher>,
}

impl Top {
    /// Listens, if that can be: nobody else depends on it.
    pub fn open(id: PeerId) -> Self {
        Self { listener: unix::listen(format!("{PREFIX}{id}").as_bytes()).ok(), watchers: Vec::new() }
    }

    pub fn fd(&self) -> Option<RawFd> {
        self.listener.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// When the first of those who do not read is dropped.
    fn deadline(&self) -> Option<Instant> {
        self.watchers.first().map(|oldest| oldest.deadline)
    }

    /// Whether somebody is being answered.
    pub fn answers(&self) -> bool {
        !self.watchers.is_empty()
    }

    /// Goes on with the answers.
    fn push(&mut self) {
        self.watchers.retain_mut(|one| !one.push());
    }

    fn expire(&mut self, now: Instant) {
        self.watchers.retain(|one| one.deadline > now);
    }
}

impl Worker {
    /// Answers those who ask and may: processes of this user, and root's.
    #[cold]
    pub(super) fn tell_watchers(&mut self) {
        // SAFETY: a plain call.
        let me = unsafe { libc::geteuid() };
        for _ in 0..16 {
            let Some(listener) = &self.top.listener else { return };
            let socket = match unix::accept(listener.as_fd()) {
                Ok(socket) => socket,
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN) => return,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        return self.wireup.pause_accept();
                    }
                    _ => continue,
                },
            };
            // root's endpoints do not answer everybody, although they may be connected to
            if unix::peer_uid(socket.as_fd()).is_ok_and(|uid| uid == me || uid == 0) {
                self.tell(socket);
            }
        }
    }

    fn tell(&mut self, socket: OwnedFd) {
        let Ok(document) = serde_json::to_vec(&self.snapshot()) else { return };
        let deadline = Instant::now() + PATIENCE;
        let mut watcher = Watcher { socket, document, sent: 0, deadline };
        if watcher.push() {
            return;
        }
        let fd = watcher.socket.as_raw_fd();
        if self.wireup.watch_for(fd, TOKEN_WATCHER, Interest::Write).is_ok() {
            let watchers = &mut self.top.watchers;
            if watchers.len() >= WATCHERS {
                watchers.remove(0);
            }
            watchers.push(watcher);
        }
        self.wireup.look_for(self.top.deadline());
    }

    /// Goes on with the answers, and drops those who do not read theirs.
    pub(super) fn answer_watchers(&mut self) {
        self.top.push();
        self.top.expire(Instant::now());
        self.wireup.look_for(self.top.deadline());
    }

    /// What the worker is doing, and with whom; what `polyrail top` shows.
    pub fn snapshot(&self) -> Snapshot {
        let all = self.core.peers.iter().enumerate().filter(|(_, info)| info.id != self.wireup.id);
        // who has never been connected to has nothing to tell
        let mut told =
            all.filter(|(_, info)| info.short.lane.is_some() || info.lanes.is_some() || info.why.is_some());
        let peers = told.by_ref().take(PEERS).map(|(at, info)| self.told(PeerIdx(at as u32), info)).collect();
        Snapshot {
            v: VERSION,
            time: rfc3339(SystemTime::now()),
            clock_us: self.core.clock() / 1000,
            pid: std::process::id(),
            program: program_of("self"),
            host: host_name(),
            endpoint: short(self.wireup.id),
            peers,
            peers_left_out: told.count() as u64,
            collectives: collectives(),
            events: self.events(),
        }
    }

    fn told(&self, peer: PeerIdx, info: &PeerInfo) -> Peer {
        let addresses = info.address.iter().flat_map(|at| at.sockets().collect::<Vec<_>>());
        let route = self.route(peer);
        Peer {
            id: short(info.id),
            addresses: addresses.map(|at| at.to_string()).collect(),
            rail: route.map(|(rail, _)| rail.to_owned()),
            protocols: route.map(|(_, route)| protocols(&route)).unwrap_or_default(),
            why: info.why.clone(),
            direct_read_bytes: info.direct.0,
            direct_written_bytes: info.direct.1,
            lanes: self.lanes_told(peer, info),
            closed: info.lanes.as_ref().map(|lanes| lanes.closed(&self.near)).unwrap_or_default(),
        }
    }

    fn lanes_told(&self, peer: PeerIdx, info: &PeerInfo) -> Vec<Lane> {
        if let Some((sent_bytes, received_bytes)) = info.short.lane.and_then(|lane| self.rails.traffic(lane))
        {
            let rail = info.short.lane.map(|(rail, _)| rail.name().to_owned());
            return vec![Lane { rail, sent_bytes, received_bytes, small: true, ..Lane::default() }];
        }
        let Some(lanes) = &info.lanes else { return Vec::new() };
        let names = lanes.names(&self.near);
        let lane = |(name, report): (LaneName, super::LaneReport)| {
            let (composition, composition_why, congestion_control) = match report.control {
                Some(Control::Composition(one, why)) => {
                    (Some(one.name().to_owned()), Some(why.to_string()), None)
                }
                Some(Control::Kernel(name)) => (None, None, Some(name)),
                None => (None, None, None),
            };
            Lane {
                number: report.number,
                rail: Some(report.rail.name().to_owned()),
                near: name.near.map(|end| end.side()),
                far: name.far.map(|end| end.side()),
                sent_bytes: report.delivered,
                received_bytes: report.received,
                queued_bytes: report.queued,
                rate_bytes_per_s: Some(report.rate),
                measured: report.measured,
                rtt_us: Some(report.rtt / 1000),
                packets: report.packets.into(),
                retransmitted: report.retransmitted.into(),
                lost: report.lost.into(),
                small: report.current,
                encrypted: report.encrypted,
                composition,
                composition_why,
                congestion_control,
            }
        };
        names.into_iter().zip(self.lanes(peer)).map(lane).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
