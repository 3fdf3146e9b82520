//! The UDP rail: links over datagrams, each with a data channel of micro-protocols ([`polyrail_core::micro`]), so that how they are
//! reliable and fair is Polyrail's to choose.
//!
//! One socket for each address of this host serves all peers: connections have numbers. Every datagram is authenticated, by the key of the
//! endpoint that is called or by the connection's own (`keys`); none that is not has any effect.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the table of connections, and what a rail does |
//! | `link.rs` | one connection |
//! | `receive.rs` | datagrams to connections |
//! | `transmit.rs` | connections to datagrams |
//! | `adapt.rs` | when a link changes its composition |
//! | `connect.rs` | where it listens and connects |
//! | `pipe.rs` | a connection's stream before it is a link |
//! | `socket.rs` | trains of datagrams by one system call |
//! | `moves.rs` | another address of the other side |
//! | `lull.rs` | how often sockets are looked at |
//! | `known.rs` | what was learnt of paths |
//! | `keys.rs` | what authenticates and encrypts them |
//!
//! Invariants:
//! - Strangers cost nothing: what is not authenticated is dropped, connections that are not links yet are bounded, and what they are sent is
//!   no more than three times what they sent.
//! - Frames go to the sink in their order; they count as delivered once it has them. Values go past them, by datagrams of asynchronous
//!   compositions; what of them may not have come when a link ends, or goes on by another composition, is given back.

mod adapt;
mod connect;
mod keys;
mod known;
mod link;
mod lull;
mod moves;
mod pipe;
mod receive;
pub(crate) mod socket;
mod transmit;

use self::adapt::Choice;
use self::connect::Side;
use self::known::Known;
use self::link::Link;
use self::lull::Lull;
use self::socket::{Inbox, Socket};
use self::transmit::Batch;
use crate::list::RailId;
use crate::rail::control::{Cause, Change, Control};
use crate::rail::direct::Direct;
use crate::rail::journal::{Pool, RetransmitBuffer};
use crate::rail::{
    Caps, Down, Full, LaneRail, Lanes, LinkId, LinkStats, Memory, Rail, RawIov, Sink, Span, UnackedFrame,
};
use crate::sys::Epoll;
use polyrail_core::connection::Settings;
use polyrail_core::control::losses::Losses;
use polyrail_core::control::rules::Reason;
use polyrail_core::frame::{Acked, Frame, OpId};
use polyrail_core::micro::{Composition, NEVER, Time};
use polyrail_core::proto::PeerIdx;
use polyrail_core::values::{PutError, Scheme};
use polyrail_core::wire::datagram::Ending;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A payload up to this length is copied.
const SMALL: usize = 4 << 10;
/// Bytes of a stream that a side takes before they have their turn.
const HOLDS: u32 = 32 << 20;
/// Bits of a connection's number that are its place in the table.
const PLACE_BITS: u32 = 20;
/// Sockets that one look tells of.
const SOCKETS: usize = 64;
/// Milliseconds that a peer that is idle may be silent before it is asked whether it is there.
const IDLE: u64 = 1_000_000_000;

/// A place in the table.
enum Slot {
    Free,
    Up(Box<Link>),
    /// Ended; not closed yet.
    Down(Box<Remains>),
}

/// What is left of a link that ended.
struct Remains {
    journal: RetransmitBuffer,
    /// Whole frames that came by it.
    received: u64,
}

/// UDP links (see the module's documentation).
pub struct UdpRail {
    settings: Settings,
    choice: Choice,
    /// How long a peer may be silent that owes an answer.
    silence: Duration,
    began: Instant,
    /// Watches the sockets, by their places.
    epoll: Epoll,
    told: Vec<libc::epoll_event>,
    /// Sockets that are to be looked at.
    ready: Vec<usize>,
    sockets: Vec<Socket>,
    side: Side,
    inbox: Inbox,
    lull: Lull,
    batch: Batch,
    slots: Vec<Slot>,
    /// How often each place has been taken: a connection's number tells of which time it is.
    times: Vec<u32>,
    free: Vec<u32>,
    up: usize,
    /// Connections that are not links yet, by the salt of who opened them.
    opening: HashMap<[u8; 16], u32>,
    dirty: Vec<u32>,
    /// Links of whose composition there is something to tell.
    changed: Vec<u32>,
    timers: BTreeSet<(Time, u32)>,
    pool: Pool,
    iov: Vec<RawIov>,
    /// Datagrams of links that came when there was nobody to give frames to.
    backlog: VecDeque<receive::Kept>,
    /// What links that ended had learnt.
    known: Known,
    /// Some handshake has something to say.
    stirred: Arc<AtomicBool>,
    /// Values that links took and do not bring: whose, and which.
    returned: VecDeque<(PeerIdx, u64, u64)>,
    /// Ends that nobody has been told of.
    ended: Vec<(u32, Down)>,
    round: u32,
}

impl UdpRail {
    fn now(&self) -> Time {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(NEVER)
    }

    /// What links begin with, and why.
    fn begins(&self) -> (Composition, Cause) {
        let cause = if self.choice == Choice::Pinned { Cause::Ours(Reason::Pinned) } else { Cause::First };
        (self.settings.composition, cause)
    }

    fn up(&self, link: LinkId) -> Option<&Link> {
        match self.slots.get(link.0 as usize) {
            Some(Slot::Up(link)) => Some(link),
            _ => None,
        }
    }

    fn link(&mut self, id: u32) -> Option<&mut Link> {
        match self.slots.get_mut(id as usize) {
            Some(Slot::Up(link)) => Some(link),
            _ => None,
        }
    }

    /// The place of the connection of this number.
    fn place_of(&self, number: u32) -> Option<u32> {
        let place = number & ((1 << PLACE_BITS) - 1);
        self.up(LinkId(place)).filter(|link| link.connection.ours() == number).map(|_| place)
    }

    /// A free place, and the number of a connection there; none while there are too many.
    fn take_place(&mut self) -> Option<(u32, u32)> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                let place = u32::try_from(self.slots.len()).ok().filter(|place| *place < 1 << PLACE_BITS)?;
                self.slots.push(Slot::Free);
                self.times.push(0);
                place
            }
        };
        self.times[place as usize] = self.times[place as usize].wrapping_add(1);
        let number = place | self.times[place as usize] << PLACE_BITS;
        // 0 is nobody's
        Some((place, if number == 0 { 1 << PLACE_BITS } else { number }))
    }

    fn enter(&mut self, place: u32, mut link: Link) {
        link.watcher = self.known.recall(self.now(), link.to.ip());
        self.slots[place as usize] = Slot::Up(Box::new(link));
        self.up += 1;
        if self.up == 1 {
            self.heed_strangers();
        }
        self.mark_dirty(place);
    }

    fn mark_dirty(&mut self, id: u32) {
        if let Some(Slot::Up(link)) = self.slots.get_mut(id as usize)
            && !std::mem::replace(&mut link.dirty, true)
        {
            self.dirty.push(id);
        }
    }

    /// Sets a connection's timer anew.
    fn set_timer(&mut self, id: u32) {
        let Some(Slot::Up(link)) = self.slots.get_mut(id as usize) else { return };
        let idle = if link.pipe.is_none() { link.connection.heard_at().saturating_add(IDLE) } else { NEVER };
        let elsewhere = link.elsewhere.as_ref().map_or(NEVER, |there| there.due);
        let due = link.connection.due().min(idle.max(link.asked + IDLE)).min(elsewhere);
        if due != link.timer {
            self.timers.remove(&(link.timer, id));
            link.timer = due;
            if due != NEVER {
                self.timers.insert((due, id));
            }
        }
    }

    /// Timers that are due.
    fn look_at_timers(&mut self, now: Time) {
        while let Some(&(due, id)) = self.timers.first().filter(|(due, _)| *due <= now) {
            self.timers.remove(&(due, id));
            let silence = self.silence.as_nanos() as u64;
            let Some(link) = self.link(id) else { continue };
            link.timer = NEVER;
            link.connection.handle_timeout(now);
            let silent = now.saturating_sub(link.connection.heard_at());
            if silent >= IDLE && link.pipe.is_none() && now >= link.asked + IDLE {
                link.asked = now;
                link.connection.ask();
            }
            let owed = link.connection.is_owed();
            if silence > 0 && owed && silent > silence {
                let why = io::Error::from_raw_os_error(libc::ETIMEDOUT);
                self.finish(id, Down::Lost(why), Ending::GivenUp);
                continue;
            }
            self.ask_elsewhere(id);
            // it is set anew once what is due has left
            self.mark_dirty(id);
        }
    }

    /// A connection has ended: what is to be told of that is.
    fn finish(&mut self, id: u32, why: Down, ending: Ending) {
        let Some(link) = self.link(id) else { return };
        if let Some(pipe) = link.pipe.take() {
            let kind = match &why {
                Down::Orderly => None,
                Down::Lost(error) => Some(error.kind()),
                Down::Protocol(_) => Some(io::ErrorKind::InvalidData),
            };
            pipe.end(kind);
            self.end(id, ending);
            self.release(id);
            return;
        }
        self.end(id, ending);
        self.ended.push((id, why));
    }

    /// Takes a connection down: nothing of it is left but its place, and what the peer may not have. The other side is told, if it can be.
    fn end(&mut self, id: u32, how: Ending) {
        let now = self.now();
        if let Some(link) = self.link(id) {
            link.connection.close(how);
            self.say_goodbye(id, now);
        }
        let Some(slot @ Slot::Up(_)) = self.slots.get_mut(id as usize) else { return };
        if let Slot::Up(mut link) = std::mem::replace(slot, Slot::Free) {
            self.lull.forget(&mut link.long);
            if link.pipe.is_none() {
                self.known.keep(now, link.to.ip(), &link.watcher);
            }
            link.connection.return_values();
            while let Some(value) = link.connection.poll_returned() {
                self.returned.extend(link.owner.map(|owner| (owner, value.tag, value.newest)));
            }
            let received = link.reader.received;
            *slot = Slot::Down(Box::new(Remains { journal: std::mem::take(&mut link.journal), received }));
            self.timers.remove(&(link.timer, id));
            let opening = link.connection.salts().0;
            if self.opening.get(&opening) == Some(&id) {
                self.opening.remove(&opening);
            }
            self.up -= 1;
            if self.up == 0 {
                self.heed_strangers();
            }
            if link.dirty {
                self.dirty.retain(|&other| other != id);
            }
            self.changed.retain(|&other| other != id);
        }
    }

    /// A place is free again.
    fn release(&mut self, id: u32) {
        if let Some(slot @ Slot::Down(_)) = self.slots.get_mut(id as usize) {
            *slot = Slot::Free;
            self.free.push(id);
        }
    }

    fn remains(&self, link: LinkId) -> Option<&Remains> {
        match self.slots.get(link.0 as usize) {
            Some(Slot::Down(remains)) => Some(remains),
            _ => None,
        }
    }

    /// What handshakes want to say, and those that are over.
    fn look_at_pipes(&mut self) {
        if !self.stirred.swap(false, Ordering::Relaxed) {
            return;
        }
        let handshakes: Vec<u32> = self.opening.values().copied().collect();
        for id in handshakes {
            let Some(link) = self.link(id) else { continue };
            let Some(pipe) = link.pipe.clone() else { continue };
            let mut bytes = pipe.lock();
            let said = !bytes.leave.is_empty();
            link.preface.append(&mut bytes.leave);
            let dropped = bytes.dropped;
            drop(bytes);
            if said {
                link.extend();
                self.mark_dirty(id);
            }
            if dropped {
                // what it said last is on its way with this
                self.transmit_all::<transmit::NoMemory>(None);
                self.end(id, Ending::Orderly);
                self.release(id);
            }
        }
    }
}

impl Direct for UdpRail {}

impl LaneRail for UdpRail {
    fn sample(&self, link: LinkId) -> Option<LinkStats> {
        let up = self.up(link)?;
        let (shared, now) = (up.connection.shared(), self.now());
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let (values, settled) = up.connection.values_on_their_way();
        let (delivered, given) = (up.delivered() + settled, up.journal.given() + values);
        let flying = narrow(shared.flight.bytes() / u64::from(shared.size.max(1)));
        Some(LinkStats {
            rtt: narrow(shared.rtt.smoothed / 1000),
            min_rtt: narrow(shared.shortest() / 1000),
            packet: shared.size,
            unacked: flying.max(u32::from(!shared.flight.is_empty())),
            probes: shared.timeouts,
            last_ack: narrow(now.saturating_sub(up.connection.heard_at()) / 1_000_000),
            retransmitted: narrow(shared.counters.lost),
            segments: narrow(shared.counters.asking),
            spurious: narrow(shared.counters.spurious),
            peer_window: narrow(shared.limit.saturating_sub(shared.fresh)),
            queued: given.saturating_sub(delivered),
            delivered,
            received: up.connection.received_upto(),
            lost: narrow(shared.again.count() / u64::from(shared.size.max(1))),
            encrypted: up.encrypted,
            ..LinkStats::default()
        })
    }

    fn ends(&self, link: LinkId) -> Option<(SocketAddr, SocketAddr)> {
        let up = self.up(link)?;
        let plain = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        Some((plain(self.sockets[up.socket].at()), plain(up.to)))
    }

    fn control(&self, link: LinkId) -> Option<Control> {
        let (composition, cause) = self.up(link)?.changes.in_force();
        Some(Control::Composition(composition, cause))
    }

    fn take_change(&mut self) -> Option<(LinkId, Change)> {
        while let Some(&id) = self.changed.last() {
            if let Some(change) = self.link(id).and_then(|link| link.changes.poll()) {
                return Some((LinkId(id), change));
            }
            self.changed.pop();
        }
        None
    }

    fn given(&self, link: LinkId) -> u64 {
        self.up(link).map_or(0, |link| link.journal.given() + link.connection.values_on_their_way().0)
    }

    fn queued(&self, link: LinkId) -> usize {
        let on_its_way = |link: &Link| {
            let (values, settled) = link.connection.values_on_their_way();
            (link.journal.given() + values).saturating_sub(link.delivered() + settled) as usize
        };
        self.up(link).map_or(0, on_its_way)
    }

    fn copied(&self, link: LinkId) -> usize {
        self.up(link).map_or(0, |link| link.journal.copied())
    }

    /// What a peer has is known here without a word of its program's: what was acknowledged was given to its sink. It may be told still.
    fn acked(&mut self, link: LinkId, frames: &Acked) -> bool {
        let Some(Slot::Up(up)) = self.slots.get_mut(link.0 as usize) else { return true };
        frames.is_in_order() && up.journal.acked(frames, &mut self.pool)
    }

    fn take_returned(&mut self) -> Option<OpId> {
        self.pool.returned.pop_front()
    }

    fn copy_lent<M: Memory + ?Sized>(&mut self, link: LinkId, send: Option<OpId>, mem: &M) {
        let journal = match self.slots.get_mut(link.0 as usize) {
            Some(Slot::Up(up)) => &mut up.journal,
            Some(Slot::Down(remains)) => &mut remains.journal,
            _ => return,
        };
        journal.copy_lent(send, mem, &mut self.pool);
    }

    fn retire(&mut self, link: LinkId) -> Acked {
        self.end(link.0, Ending::GivenUp);
        Acked::before(self.remains(link).map_or(0, |remains| remains.received))
    }

    fn kept(&self, link: LinkId) -> Vec<UnackedFrame> {
        let frames = self.remains(link).into_iter().flat_map(|remains| remains.journal.frames());
        let word = |header: &[u8]| matches!(Frame::parse(header), Ok((Frame::Retire { .. }, _)));
        let unacked = |(header, payload): (&[u8], &[u8])| UnackedFrame {
            bytes: [header, payload].concat(),
            header: header.len(),
            span: None,
        };
        frames.filter(|(header, _)| word(header)).map(unacked).collect()
    }

    fn tell_losses(&mut self, link: LinkId, losses: &Losses) {
        if let Some(link) = self.link(link.0) {
            let (sent, lost) = losses.counts();
            link.watcher.tell(losses);
            link.connection.tell_losses(sent, lost);
        }
        self.mark_dirty(link.0);
    }

    fn set_scheme(&mut self, link: LinkId, scheme: Scheme) {
        if let Some(up) = self.link(link.0) {
            up.scheme = scheme;
        }
        self.mark_dirty(link.0);
    }

    fn put_value(&mut self, link: LinkId, peer: PeerIdx, which: (u64, u64), bytes: &[u8]) -> bool {
        let (now, round) = (self.now(), self.round);
        let Some(up) = self.link(link.0) else { return false };
        if up.error.is_some() || up.connection.scheme() == Scheme::Synchronous {
            return false;
        }
        match up.connection.put_value(now, which.0, which.1, bytes) {
            // that it has, or a newer one, and brings it
            Ok(()) | Err(PutError::Old) => up.owner = Some(peer),
            Err(_) => return false,
        }
        let at_once = std::mem::replace(&mut up.round, round) != round && up.is_copied();
        self.mark_dirty(link.0);
        if at_once {
            self.transmit_all::<transmit::NoMemory>(None);
        }
        true
    }

    fn take_returned_value(&mut self) -> Option<(PeerIdx, u64, u64)> {
        self.returned.pop_front()
    }

    fn reset(&mut self, link: LinkId) {
        let why = io::Error::from_raw_os_error(libc::ECONNRESET);
        self.finish(link.0, Down::Lost(why), Ending::GivenUp);
    }

    fn reclaim(&mut self, link: LinkId, frames: &Acked) -> Option<VecDeque<UnackedFrame>> {
        match self.slots.get_mut(link.0 as usize) {
            Some(Slot::Down(remains)) if frames.is_in_order() => {
                std::mem::take(&mut remains.journal).reclaim(frames, &mut self.pool)
            }
            _ => None,
        }
    }
}

impl Rail for UdpRail {
    const CAPS: Caps = Caps {
        seals: true,
        stands_in: true,
        by_program: true,
        ..Caps::of_network(RailId::Udp, Lanes::ByStream)
    };

    fn open(config: &crate::Config) -> io::Result<Self> {
        Ok(Self {
            settings: Settings {
                composition: config.composition.unwrap_or(Composition::SyncCubic),
                size: 1452,
                holds: HOLDS,
                fixed: Choice::of(config) == Choice::Pinned,
            },
            choice: Choice::of(config),
            silence: config.peer_timeout,
            began: Instant::now(),
            epoll: Epoll::new()?,
            told: Vec::with_capacity(SOCKETS),
            ready: Vec::new(),
            sockets: Vec::new(),
            side: Side::new()?,
            inbox: Inbox::default(),
            lull: Lull::default(),
            batch: Batch::default(),
            slots: Vec::new(),
            times: Vec::new(),
            free: Vec::new(),
            up: 0,
            opening: HashMap::new(),
            dirty: Vec::new(),
            changed: Vec::new(),
            timers: BTreeSet::new(),
            pool: Pool::default(),
            iov: Vec::new(),
            backlog: VecDeque::new(),
            known: Known::default(),
            stirred: Arc::new(AtomicBool::new(false)),
            returned: VecDeque::new(),
            ended: Vec::new(),
            round: 0,
        })
    }

    unsafe fn send(
        &mut self,
        link: LinkId,
        header: &[u8],
        iov: &[RawIov],
        span: Option<Span>,
    ) -> Result<(), Full> {
        let Some(Slot::Up(up)) = self.slots.get_mut(link.0 as usize) else { return Err(Full) };
        if up.error.is_some() || up.is_full() {
            return Err(Full);
        }
        let len: usize = iov.iter().map(|v| v.len).sum();
        let span = span.filter(|_| len > SMALL);
        // SAFETY: our contract.
        unsafe { up.journal.push(header, iov, span, &mut self.pool) };
        up.extend();
        let at_once = up.round != self.round && up.is_copied();
        up.round = self.round;
        self.mark_dirty(link.0);
        if at_once {
            self.transmit_all::<transmit::NoMemory>(None);
        }
        Ok(())
    }

    fn wants_more(&self, link: LinkId) -> bool {
        self.up(link).is_some_and(|link| link.error.is_none() && link.wants_more())
    }

    #[inline(always)]
    fn holds_back(&self) -> bool {
        !self.dirty.is_empty()
    }

    #[inline]
    fn flush<M: Memory + ?Sized>(&mut self, mem: &M) {
        self.round = self.round.wrapping_add(1);
        self.look_at_pipes();
        if !self.dirty.is_empty() {
            self.transmit_all(Some(mem));
        }
    }

    #[inline]
    fn links(&self) -> usize {
        self.up + self.ended.len()
    }

    fn progress<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        self.round = self.round.wrapping_add(1);
        let mut events = if self.lull.holds(self.now()) { 0 } else { self.receive(sink) };
        let now = self.now();
        self.look_at_timers(now);
        self.look_at_pipes();
        if !self.dirty.is_empty() {
            self.transmit_all(Some(&*sink));
        }
        for (id, why) in std::mem::take(&mut self.ended) {
            events += 1;
            sink.down(LinkId(id), why);
        }
        events
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.epoll.as_raw_fd())
    }

    fn in_bulk(&self) -> bool {
        self.lull.any()
    }

    fn arm(&mut self) -> bool {
        let nothing = self.dirty.is_empty() && self.ended.is_empty() && self.returned.is_empty();
        self.lull.arm(self.now(), &self.epoll, self.sockets.iter().map(Socket::fd));
        nothing && self.backlog.is_empty() && !self.has_arrivals()
    }

    fn due(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(due, _)| *due);
        let due = timer.into_iter().chain(self.lull.due()).min();
        due.map(|due| self.began + Duration::from_nanos(due))
    }

    fn close(&mut self, link: LinkId) {
        self.end(link.0, Ending::Orderly);
        self.ended.retain(|(id, _)| *id != link.0);
        self.release(link.0);
    }

    /// A link is idle once the peer has acknowledged all that was sent, or has been sent all of it often enough.
    fn idle(&self, link: LinkId) -> bool {
        self.up(link)
            .is_none_or(|link| link.error.is_some() || link.is_delivered() || link.has_said_all_often())
    }

    fn cut(&mut self, link: LinkId) {
        self.finish(link.0, Down::Lost(io::ErrorKind::UnexpectedEof.into()), Ending::Gone);
    }

    fn probe(&mut self, link: LinkId) {
        if let Some(link) = self.link(link.0) {
            link.connection.ask();
        }
        self.mark_dirty(link.0);
    }
}

impl Drop for UdpRail {
    fn drop(&mut self) {
        for id in 0..self.slots.len() as u32 {
            self.end(id, Ending::Gone);
        }
    }
}
