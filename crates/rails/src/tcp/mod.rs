//! The TCP rail: frames over connections that wireup has made and authenticated.
//!
//! One engine serves all links. A link that was active a moment ago is received from directly, without asking epoll first:
//! that is one system call per message less, and all there is to latency. The other links, however many, are in one epoll
//! set, which is looked at when no link is active and every few rounds otherwise. They are entered once, by edges, for
//! reading and writing: a link that is idle or blocked costs nothing until the kernel says otherwise.
//!
//! The first small frame of a round leaves at once; those after it in the same round share a system call at the next
//! [`Rail::flush`]. See `docs/decisions/0002-epoll-or-io-uring.md` for why there is no io_uring.
//!
//! Invariants: a link in `Slot::Up` with something to receive is in `ready`, or its edge is in epoll; a link with something
//! to send is in `dirty`, or blocked with its edge to come.

mod connect;
mod link;
mod rx;
mod seal;
mod sys;
mod tx;
mod warmth;

pub use self::link::most_kept;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use self::link::{Link, Remains, Shared, Slot};
use self::rx::{Next, Turn};
use self::seal::{Opener, Sealer};
use self::tx::Outgoing;
use crate::keys::LinkKeys;
use crate::list::RailId;
use crate::rail::control::Control;
use crate::rail::direct::Direct;
use crate::rail::journal::{MAX_IOV, Pool};
use crate::rail::{
    Ack, Caps, Full, LaneRail, Lanes, LinkId, LinkStats, Memory, Rail, RawIov, Sink, Span, UnackedFrame,
};
use crate::sys::Epoll;
use polyrail_core::frame::{Acked, Frame, OpId};

/// How the rail's sockets are set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Silence after which the kernel probes the peer (whole seconds).
    pub keepalive_idle: Duration,
    /// Time between probes (whole seconds).
    pub keepalive_interval: Duration,
    /// Unanswered probes after which the link is lost.
    pub keepalive_count: u32,
    /// How long the peer's kernel may owe an answer before the link is lost; zero: as long as the system's settings say. This
    /// is not `TCP_USER_TIMEOUT`, which also ends links to peers that are well but do not receive for so long.
    pub silence: Duration,
    /// Bytes of the kernel's send buffer; `None` leaves it to autotuning, which is nearly always better.
    pub send_buffer: Option<usize>,
    /// Bytes of the kernel's receive buffer; `None` leaves it to autotuning.
    pub recv_buffer: Option<usize>,
    /// Most bytes that the kernel takes beyond what the congestion window lets it send (`TCP_NOTSENT_LOWAT`); `None`: as many
    /// as its buffer holds. A short queue there ends a striped message on all rails together, and keeps what is copied in
    /// the caches until it is sent: about a quarter less processor time per byte. The application must then come by more often.
    pub unsent_limit: Option<usize>,
    /// Whether the application comes by all the time: then, of a connection that BBR controls, the kernel takes no more beforehand than is sent in a
    /// moment, and keeps as much as is under way on long ways, where this user may have that.
    pub attends: bool,
    /// Congestion control (`TCP_CONGESTION`); `None`: the system's.
    pub congestion: Option<String>,
}

impl Config {
    /// What a worker's settings make of it.
    fn of(settings: &crate::Config) -> Self {
        let quarter = (settings.peer_timeout / 4).max(Duration::from_secs(1));
        Self {
            keepalive_idle: quarter,
            keepalive_interval: quarter,
            keepalive_count: 3,
            silence: settings.peer_timeout,
            congestion: settings.congestion.clone(),
            attends: settings.attends,
            ..Self::default()
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            keepalive_idle: Duration::from_secs(10),
            keepalive_interval: Duration::from_secs(5),
            keepalive_count: 4,
            silence: Duration::from_secs(30),
            send_buffer: None,
            recv_buffer: None,
            unsent_limit: None,
            attends: false,
            congestion: None,
        }
    }
}

/// System calls that a rail has made, and what came of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Calls that receive.
    pub recvs: u64,
    /// Calls that send.
    pub sends: u64,
    /// Looks at epoll.
    pub looks: u64,
    /// Events that epoll reported.
    pub events: u64,
}

/// Everything, by edges, for as long as a link is open: there is never a second call for one.
const EDGES: libc::c_int = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
/// Events taken by one look.
const EVENTS: usize = 128;
/// A look is due so many rounds after the last while links are active, of which an empty one counts `EMPTY_ROUND`-fold: it is
/// short, and nothing is lost by looking. Rarer looks would save little, and make the other links wait.
const LOOK_ROUNDS: u32 = 16;
const EMPTY_ROUND: u32 = 4;
/// Bytes received after which a look is due: links outside `ready` must not wait for bulk transfers.
const LOOK_BYTES: usize = 1 << 20;
/// Bytes received by one call of progress, give or take a link's turn.
const PROGRESS_BYTES: usize = 2 << 20;
/// Empty attempts after which an only active link counts as idle; a quarter of that for each other link in the list.
const COOL: u16 = 1024;

/// So much of a payload is worth sleeping for, and a sleeper is woken for so much of it at once: a few wakes a megabyte.
const SLEEP_MIN: usize = 32 << 10;
const WAKE_BYTES: usize = 512 << 10;

/// How often it is looked at which peers are silent, in the time that silence may last.
const WATCHES: u32 = 4;

/// TCP links (see the module's documentation).
pub struct TcpRail {
    config: Config,
    epoll: Epoll,
    events: Vec<libc::epoll_event>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Links that are up.
    up: usize,
    /// Links to receive from: those with something there, and those active a moment ago.
    ready: VecDeque<u32>,
    /// Links with something to send that are not blocked.
    dirty: Vec<u32>,
    /// Links whose peers wait to hear what came.
    ack_pending: Vec<u32>,
    /// Links of whose payload a sleeper is woken for so much at once (`SO_RCVLOWAT`), until the next progress.
    patient: Vec<u32>,
    /// Counts calls of progress and flush.
    round: u32,
    /// Rounds and bytes since the last look.
    rounds: u32,
    bytes: usize,
    /// When it was last looked at which peers are silent.
    watched: Instant,
    shared: Shared,
    /// Where peers connect.
    side: connect::Side,
}

impl TcpRail {
    /// A rail without links.
    ///
    /// # Errors
    /// When the system has no descriptor left for an epoll set.
    pub fn new(config: Config) -> io::Result<Self> {
        Ok(Self {
            config,
            epoll: Epoll::new()?,
            events: Vec::with_capacity(EVENTS),
            slots: Vec::new(),
            free: Vec::new(),
            up: 0,
            ready: VecDeque::new(),
            dirty: Vec::new(),
            ack_pending: Vec::new(),
            patient: Vec::new(),
            round: 1,
            rounds: 0,
            bytes: 0,
            watched: Instant::now(),
            shared: Shared {
                staging: vec![0; rx::STAGING].into_boxed_slice(),
                sealed: Vec::new(),
                iov: Vec::with_capacity(MAX_IOV),
                pool: Pool::default(),
                stats: Stats::default(),
            },
            side: connect::Side::default(),
        })
    }

    /// Takes over a connected socket. `leftover` are bytes that were read from it past the handshake (at most 32 KiB).
    ///
    /// # Errors
    /// When a socket option is refused (an unknown congestion control), when epoll refuses the descriptor, or when there is
    /// more leftover than a handshake can leave. The socket is closed then.
    pub fn adopt(&mut self, socket: OwnedFd, leftover: &[u8]) -> io::Result<LinkId> {
        self.adopt_sealed(socket, leftover, None)
    }

    /// The same for a connection on which everything is encrypted from here on, if there are keys.
    ///
    /// # Errors
    /// As [`TcpRail::adopt`].
    pub fn adopt_sealed(
        &mut self,
        socket: OwnedFd,
        leftover: &[u8],
        keys: Option<LinkKeys>,
    ) -> io::Result<LinkId> {
        let unusable = || io::Error::other("these keys cannot be used");
        let seal = keys.map(|LinkKeys { send, receive }| Sealer::new(send).zip(Opener::new(receive)));
        let seal = seal.map(|seal| seal.ok_or_else(unusable)).transpose()?;
        if leftover.len() > rx::MAX_LEFTOVER {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many bytes follow the handshake"));
        }
        let fd = socket.as_raw_fd();
        link::configure(fd, &self.config)?;
        let id = self.free.pop().unwrap_or(self.slots.len() as u32);
        if let Err(e) = self.epoll.add(fd, EDGES, u64::from(id)) {
            if (id as usize) < self.slots.len() {
                self.free.push(id);
            }
            return Err(e);
        }
        if seal.is_some() {
            self.shared.sealed.resize(rx::SEALED, 0);
        }
        let mut link = Link::new(socket, leftover, seal);
        if self.config.attends {
            link.attend();
        }
        let slot = Slot::Up(link);
        match self.slots.get_mut(id as usize) {
            Some(s) => *s = slot,
            None => self.slots.push(slot),
        }
        self.up += 1;
        if !leftover.is_empty() {
            self.list(id, false);
        }
        Ok(LinkId(id))
    }

    /// A link leads to a gateway, and the peer is beyond it.
    fn relayed(&mut self, link: LinkId, far: (IpAddr, u32)) {
        if let Some(link) = self.link(link.0) {
            link.way.get_or_insert_default().far = Some(far);
        }
    }

    /// System calls so far.
    pub fn stats(&self) -> Stats {
        self.shared.stats
    }

    fn link(&mut self, id: u32) -> Option<&mut Link> {
        self.slots.get_mut(id as usize)?.up()
    }

    fn up(&self, link: LinkId) -> Option<&Link> {
        match self.slots.get(link.0 as usize)? {
            Slot::Up(link) => Some(link),
            _ => None,
        }
    }

    fn remains(&self, link: LinkId) -> Option<&Remains> {
        match self.slots.get(link.0 as usize)? {
            Slot::Down(remains) => Some(remains),
            _ => None,
        }
    }

    /// Enters a link in `ready`.
    fn list(&mut self, id: u32, ending: bool) {
        let Some(link) = self.slots[id as usize].up() else { return };
        link.pending = true;
        link.ending |= ending;
        if !std::mem::replace(&mut link.listed, true) {
            link.empty = 0;
            self.ready.push_back(id);
        }
    }

    /// Links that a long payload is coming by.
    fn long_payloads(&self) -> impl Iterator<Item = (u32, &Link)> {
        let link = |id: &u32| self.up(LinkId(*id)).map(|link| (*id, link));
        self.ready.iter().filter_map(link).filter(|(_, link)| link.rx.to_come() >= SLEEP_MIN)
    }

    /// Has the kernel wake nobody for less than it pays, of payloads that come.
    fn be_patient(&mut self) {
        let mut patient = std::mem::take(&mut self.patient);
        patient.extend(self.long_payloads().filter_map(|(id, link)| {
            let bytes = link.rx.to_come().min(WAKE_BYTES) as libc::c_int;
            sys::set(link.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes).is_ok().then_some(id)
        }));
        self.patient = patient;
    }

    /// Takes [`TcpRail::be_patient`] back: the kernel tells of what has come meanwhile.
    #[cold]
    fn be_impatient(&mut self) {
        while let Some(id) = self.patient.pop() {
            if let Some(link) = self.up(LinkId(id)) {
                // on an open socket this cannot fail
                let _ = sys::set(link.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1);
            }
        }
    }

    fn look_is_due(&self) -> bool {
        self.ready.is_empty() || self.rounds >= LOOK_ROUNDS || self.bytes >= LOOK_BYTES
    }

    /// Asks epoll which links have something to receive or room to send. False: it may know of more.
    fn look(&mut self) -> bool {
        self.epoll.take(&mut self.events);
        self.shared.stats.looks += 1;
        self.shared.stats.events += self.events.len() as u64;
        for i in 0..self.events.len() {
            let libc::epoll_event { events, u64: id } = self.events[i];
            let (flags, id) = (events as i32, id as u32);
            let Some(link) = self.link(id) else { continue };
            if flags & libc::EPOLLOUT != 0 && std::mem::take(&mut link.tx.blocked) {
                self.mark_dirty(id);
            }
            let ending = flags & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) != 0;
            if ending || flags & libc::EPOLLIN != 0 {
                self.list(id, ending);
            }
        }
        (self.rounds, self.bytes) = (0, 0);
        self.events.len() < EVENTS
    }

    /// Keeps active links warm; and looks, every now and then, which peers' kernels owe an answer and are silent.
    fn watch(&mut self) {
        let now = Instant::now();
        // others have nothing to be kept warm for
        for &id in &self.ready {
            if let Some(link) = self.slots[id as usize].up().filter(|link| link.way.is_some()) {
                link.keep_warm(now);
            }
        }
        if self.due().is_none_or(|due| now < due) {
            return;
        }
        let since = now - std::mem::replace(&mut self.watched, now);
        for id in 0..self.slots.len() as u32 {
            let idle = self.config.keepalive_idle;
            let Some(link) = self.link(id) else { continue };
            if std::mem::take(&mut link.hurried) {
                // on an open socket this cannot fail; a link that is probed too often is no worse for it
                let _ = link::keepalive(link.fd(), idle);
            }
            if link.rx.reader.received > link.rx.acked && !std::mem::replace(&mut link.ack_pending, true) {
                self.ack_pending.push(id);
            }
            let Some(link) = self.link(id) else { continue };
            link.silent = if sys::unanswered(link.fd(), since) { link.silent + 1 } else { 0 };
            // the first may have come just after something was sent
            if u32::from(link.silent) > WATCHES {
                link.error.get_or_insert(libc::ETIMEDOUT);
                self.list(id, true);
            }
        }
    }

    /// Enters a link in the list it belongs to after an attempt to send.
    fn mark_dirty(&mut self, id: u32) {
        let Some(link) = self.slots[id as usize].up() else { return };
        if link.error.is_some() {
            self.list(id, true);
        } else if !link.tx.is_empty() && !link.tx.blocked && !std::mem::replace(&mut link.dirty, true) {
            self.dirty.push(id);
        }
    }

    /// Writes what waits in links that are not blocked.
    fn write<M: Memory + ?Sized>(&mut self, mem: &M) {
        let listed = self.dirty.len();
        for i in 0..listed {
            let id = self.dirty[i];
            let Some(link) = self.slots[id as usize].up() else { continue };
            link.dirty = false;
            tx::write(link, &mut self.shared, Some(mem));
            self.mark_dirty(id);
        }
        self.dirty.drain(..listed);
    }

    /// Receives from the links in `ready`, each for one turn.
    fn receive<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        let (mut events, mut bytes) = (0, 0);
        for _ in 0..self.ready.len() {
            if bytes >= PROGRESS_BYTES {
                break;
            }
            let Some(id) = self.ready.pop_front() else { break };
            let Some(link) = self.slots[id as usize].up() else { continue };
            let mut turn = Turn::default();
            let stays = match rx::receive(LinkId(id), link, &mut self.shared, sink, &mut turn) {
                Next::More => {
                    link.empty = 0;
                    true
                }
                Next::Drained => {
                    link.pending = false;
                    link.empty = if turn.bytes > 0 { 0 } else { link.empty + 1 };
                    link.empty < COOL.checked_shr(2 * self.ready.len() as u32).unwrap_or(0)
                }
                Next::Ended(why) => {
                    self.end(id);
                    sink.down(LinkId(id), why);
                    turn.events += 1;
                    events += turn.events;
                    continue;
                }
            };
            if link.rx.ack_is_due(self.up) && !std::mem::replace(&mut link.ack_pending, true) {
                self.ack_pending.push(id);
            }
            link.listed = stays;
            if stays {
                self.ready.push_back(id);
            }
            events += turn.events;
            bytes += turn.bytes;
        }
        self.bytes += bytes;
        events
    }

    /// Takes a link down: its socket is closed and nothing of it is left but its number.
    fn end(&mut self, id: u32) {
        let Some(slot @ Slot::Up(_)) = self.slots.get_mut(id as usize) else { return };
        if let Slot::Up(mut link) = std::mem::replace(slot, Slot::Free) {
            let unacked = std::mem::take(&mut link.tx.unacked);
            *slot = Slot::Down(Box::new(Remains { unacked, received: link.rx.reader.received }));
            self.up -= 1;
            self.epoll.remove(link.fd());
            sys::shutdown(link.fd());
            if link.dirty {
                self.dirty.retain(|&other| other != id);
            }
            if link.listed {
                self.ready.retain(|&other| other != id);
            }
        }
    }
}

impl Direct for TcpRail {}

impl LaneRail for TcpRail {
    fn sample(&self, link: LinkId) -> Option<LinkStats> {
        let link = self.up(link)?;
        let mut stats = sys::info(link.fd())?;
        (stats.delivered, stats.queued) = link.delivered_and_queued();
        stats.encrypted = link.tx.sealer.is_some();
        let beyond = link.far().map_or(0, |far| far.1);
        // the kernel's word for unknown stays that
        let far = |near: u32| if near == 0 { 0 } else { near.saturating_add(beyond) };
        (stats.rtt, stats.min_rtt) = (far(stats.rtt), far(stats.min_rtt));
        Some(stats)
    }

    fn ends(&self, link: LinkId) -> Option<(SocketAddr, SocketAddr)> {
        self.up(link)?.ends()
    }

    fn control(&self, link: LinkId) -> Option<Control> {
        sys::congestion(self.up(link)?.fd()).map(Control::Kernel)
    }

    fn given(&self, link: LinkId) -> u64 {
        self.up(link).map_or(0, |link| link.tx.unacked.given())
    }

    fn queued(&self, link: LinkId) -> usize {
        self.up(link).map_or(0, |link| link.delivered_and_queued().1 as usize)
    }

    fn copied(&self, link: LinkId) -> usize {
        self.up(link).map_or(0, |link| link.tx.unacked.copied())
    }

    fn take_ack(&mut self) -> Option<Ack> {
        while let Some(id) = self.ack_pending.pop() {
            let links = self.up;
            if let Some(link) = self.link(id) {
                link.ack_pending = false;
                let bulk = link.rx.ack_is_due(links);
                let received = Acked::before(link.rx.take_ack());
                return Some(Ack { link: LinkId(id), received, bulk });
            }
        }
        None
    }

    fn acked(&mut self, link: LinkId, frames: &Acked) -> bool {
        let Some(up) = self.slots.get_mut(link.0 as usize).and_then(Slot::up) else { return true };
        frames.is_in_order() && up.tx.unacked.acked(frames, &mut self.shared.pool)
    }

    fn take_returned(&mut self) -> Option<OpId> {
        self.shared.pool.returned.pop_front()
    }

    fn copy_lent<M: Memory + ?Sized>(&mut self, link: LinkId, send: Option<OpId>, mem: &M) {
        let unacked = match self.slots.get_mut(link.0 as usize) {
            Some(Slot::Up(up)) => &mut up.tx.unacked,
            Some(Slot::Down(remains)) => &mut remains.unacked,
            _ => return,
        };
        unacked.copy_lent(send, mem, &mut self.shared.pool);
    }

    fn retire(&mut self, link: LinkId) -> Acked {
        if let Some(up) = self.link(link.0) {
            sys::reset(up.fd());
        }
        self.end(link.0);
        Acked::before(self.remains(link).map_or(0, |remains| remains.received))
    }

    fn kept(&self, link: LinkId) -> Vec<UnackedFrame> {
        let frames = self.remains(link).into_iter().flat_map(|remains| remains.unacked.frames());
        let word = |header: &[u8]| matches!(Frame::parse(header), Ok((Frame::Retire { .. }, _)));
        let unacked = |(header, payload): (&[u8], &[u8])| UnackedFrame {
            bytes: [header, payload].concat(),
            header: header.len(),
            span: None,
        };
        frames.filter(|(header, _)| word(header)).map(unacked).collect()
    }

    fn reset(&mut self, link: LinkId) {
        if let Some(up) = self.link(link.0) {
            sys::reset(up.fd());
            up.error.get_or_insert(libc::ECONNRESET);
            self.list(link.0, true);
        }
    }

    fn reclaim(&mut self, link: LinkId, frames: &Acked) -> Option<VecDeque<UnackedFrame>> {
        match self.slots.get_mut(link.0 as usize) {
            Some(Slot::Down(remains)) if frames.is_in_order() => {
                std::mem::take(&mut remains.unacked).reclaim(frames, &mut self.shared.pool)
            }
            _ => None,
        }
    }

    fn pace(&mut self, link: LinkId, rate: u64) {
        if let Some(link) = self.link(link.0) {
            link.pace(rate);
        }
    }
}

impl Rail for TcpRail {
    const CAPS: Caps = Caps { seals: true, ..Caps::of_network(RailId::Tcp, Lanes::ByStream) };

    fn open(config: &crate::Config) -> io::Result<Self> {
        Self::new(Config::of(config))
    }

    unsafe fn send(
        &mut self,
        link: LinkId,
        header: &[u8],
        iov: &[RawIov],
        span: Option<Span>,
    ) -> Result<(), Full> {
        let up = self.slots.get_mut(link.0 as usize).and_then(Slot::up).ok_or(Full)?;
        let len = iov.iter().map(|v| v.len).sum();
        // SAFETY: our contract.
        let sent = unsafe { tx::send(up, Outgoing { header, iov, len, span }, self.round, &mut self.shared) };
        if up.error.is_some() || (!up.dirty && !up.tx.is_empty()) {
            self.mark_dirty(link.0);
        }
        sent
    }

    fn wants_more(&self, link: LinkId) -> bool {
        self.up(link).is_some_and(|link| link.error.is_none() && link.tx.wants_more())
    }

    #[inline(always)]
    fn holds_back(&self) -> bool {
        !self.dirty.is_empty()
    }

    #[inline]
    fn flush<M: Memory + ?Sized>(&mut self, mem: &M) {
        self.round = self.round.wrapping_add(1);
        if !self.dirty.is_empty() {
            self.write(mem);
        }
    }

    #[inline]
    fn links(&self) -> usize {
        self.up
    }

    /// Counts a begun payload that moved on as an arrival too: 0 means that nothing was there.
    fn progress<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        self.round = self.round.wrapping_add(1);
        if !self.patient.is_empty() {
            self.be_impatient();
        }
        if self.up > 0 && self.look_is_due() {
            self.look();
            self.watch();
        }
        if !self.dirty.is_empty() {
            self.write(&*sink);
        }
        if self.ready.is_empty() {
            return 0;
        }
        let received = self.receive(sink);
        self.rounds += if received > 0 { 1 } else { EMPTY_ROUND };
        received
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.epoll.as_raw_fd())
    }

    fn in_bulk(&self) -> bool {
        self.long_payloads().next().is_some()
    }

    fn arm(&mut self) -> bool {
        self.be_impatient();
        self.be_patient();
        // Direct receives leave edges of what they took; these are cleared away here, or the sleep would end at once.
        while !self.look() {}
        self.dirty.is_empty()
            && !self.ready.iter().any(|&id| matches!(&self.slots[id as usize], Slot::Up(l) if l.pending))
    }

    fn due(&self) -> Option<Instant> {
        (self.up > 0 && !self.config.silence.is_zero()).then(|| self.watched + self.config.silence / WATCHES)
    }

    fn close(&mut self, link: LinkId) {
        self.end(link.0);
        if let Some(slot @ Slot::Down(_)) = self.slots.get_mut(link.0 as usize) {
            *slot = Slot::Free;
            self.free.push(link.0);
        }
    }

    /// A link is idle once the peer's kernel has all that was sent: closing it then loses nothing, not even where bytes that
    /// nobody will read have arrived (a close answers those by a reset, which drops what is not acknowledged).
    fn idle(&self, link: LinkId) -> bool {
        let up = self.up(link).filter(|link| link.error.is_none());
        up.is_none_or(|link| link.tx.is_empty() && sys::unacknowledged(link.fd()) == 0)
    }

    fn cut(&mut self, link: LinkId) {
        if let Some(link) = self.up(link) {
            sys::shutdown(link.fd());
        }
    }

    /// If the link has been silent for a second, the peer's kernel is asked now, and one that does not know the connection (its
    /// host was restarted) ends it.
    fn probe(&mut self, link: LinkId) {
        if let Some(link) = self.link(link.0) {
            link.hurried = link::keepalive(link.fd(), Duration::ZERO).is_ok();
        }
    }
}
