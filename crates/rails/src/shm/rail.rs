//! The shared-memory rail: one segment with two rings per peer, a doorbell for who sleeps, and a Unix socket whose end tells
//! that the peer has died.

use super::attach::Attach;
use super::board::PLACES;
use super::desk::{DESKS, Helper, Readers};
use super::doorbell::{Bell, Doorbell};
use super::ring::{self, ANNEX, Consumer, Corrupt, Head, MAX_PAYLOAD, Producer, SendError};
use super::segment::Ends;
use crate::config::Config;
use crate::list::RailId;
use crate::rail::{Caps, Down, Full, LaneRail, LinkId, Payload, Rail, RawIov, Sink, Span};
use crate::sys::Epoll;
use crate::watched::Watched;
use polyrail_core::frame::{Frame, Order, PlainEager};
use polyrail_core::wire::PeerId;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Frames taken from one link before the next has its turn.
const BURST: usize = 64;
/// So many rings are looked at whether or not anything comes by them.
const FEW: usize = 4;
/// Looks at rings, each round counted as a few at least, between two looks at whether peers live and which rings are looked at in
/// vain: about the same time for many as for few.
const LOOKS: usize = 4096 * FEW;
/// Each so many-th of these also looks at the rings that were left.
const CHECKS: u32 = 8;

struct Link {
    producer: Producer,
    consumer: Consumer,
    /// Long reads: this side's, with which the peer may help; the peer's.
    readers: Readers,
    helpers: [Helper; DESKS],
    bell: Bell,
    control: OwnedFd,
    state: State,
    bye: bool,
    /// It is up, and nobody watches it.
    plain: bool,
    /// There may be more to do than to take frames: something was taken lately, or the link ends.
    restless: bool,
    /// It is not looked at: its peer marks the board.
    away: bool,
    /// Something came since it was last asked whether it is looked at in vain.
    busy: bool,
    /// The ring was full when a frame was last tried.
    full: bool,
    /// Its process, where its memory can be reached.
    pid: Option<i32>,
    /// It is of this process's user. Of another it could have this process, if that has more rights, write to what takes its number.
    helps: bool,
    /// What the peer did to the ring that this side sends by.
    damage: Option<Corrupt>,
    watched: Watched,
}

/// A link that is looked at, and where something of it will be seen.
struct Watch {
    id: u32,
    head: Head,
}

#[derive(PartialEq, Eq)]
enum State {
    Up,
    /// The peer is gone; what it sent before is still in the ring.
    Ending,
    Down,
}

/// Shared memory.
pub struct ShmRail {
    links: Vec<Option<Link>>,
    up: usize,
    /// Those that are looked at. All of them are among the links.
    watched: Vec<Watch>,
    /// Those that were full when a frame was last tried.
    full: Vec<u32>,
    attach: Attach,
    /// For [`ShmRail::hear`]: links whose peers ask for help, and addresses.
    asked: Vec<u32>,
    iov: Vec<RawIov>,
    doorbell: Doorbell,
    epoll: Epoll,
    events: Vec<libc::epoll_event>,
    armed: bool,
    /// Rounds until it is looked whether peers live, this one included; 0: the next is to do more than to take frames.
    left: usize,
    /// Times that it was looked whether peers live.
    checks: u32,
    /// Where peers of this host connect.
    pub(super) listener: Option<OwnedFd>,
    /// The bytes that peers look for when they try to read this process's memory.
    pub(super) probe: Box<u64>,
}

impl ShmRail {
    /// A rail without links.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new() -> io::Result<Self> {
        let doorbell = Doorbell::new()?;
        let mut probe = [0; 8];
        getrandom::fill(&mut probe).map_err(io::Error::other)?;
        let rail = Self {
            links: Vec::new(),
            up: 0,
            watched: Vec::new(),
            full: Vec::new(),
            attach: Attach::default(),
            asked: Vec::new(),
            iov: Vec::new(),
            doorbell,
            epoll: Epoll::new()?,
            events: Vec::with_capacity(16),
            armed: false,
            left: LOOKS / FEW,
            checks: 0,
            listener: None,
            probe: Box::new(u64::from_le_bytes(probe)),
        };
        rail.epoll.add(rail.doorbell.as_raw_fd(), libc::EPOLLIN, u64::MAX)?;
        Ok(rail)
    }

    /// The descriptor by which peers ring.
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// Takes in a link whose wireup is done.
    ///
    /// # Errors
    /// When the control socket cannot be watched.
    pub fn adopt(&mut self, ends: Ends, bell: Bell, control: OwnedFd) -> io::Result<LinkId> {
        let id = self.links.iter().position(Option::is_none).unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        self.epoll.add(control.as_raw_fd(), libc::EPOLLIN | libc::EPOLLRDHUP, id as u64)?;
        let Ends { mut producer, mut consumer, readers, helpers } = ends;
        producer.stand_at(id as u32);
        consumer.stand_at(id as u32);
        let link = Link {
            producer,
            consumer,
            readers,
            helpers,
            bell,
            control,
            state: State::Up,
            bye: false,
            plain: true,
            restless: true,
            away: false,
            busy: true,
            full: false,
            pid: None,
            helps: false,
            damage: None,
            watched: Watched::default(),
        };
        self.watched.push(link.watch(id as u32));
        self.links[id] = Some(link);
        self.left = self.left.min(self.rounds());
        self.up += 1;
        Ok(LinkId(id as u32))
    }

    /// The memory of a link's peer can be reached, as that of this process; `helps` it to read this process's, where that is asked for.
    pub fn reach(&mut self, link: LinkId, pid: i32, helps: bool) {
        if let Some(Some(link)) = self.links.get_mut(link.0 as usize) {
            (link.pid, link.helps) = (Some(pid), helps);
        }
    }

    /// Looks whether peers have gone, and which links are looked at in vain.
    #[cold]
    fn look(&mut self) {
        self.checks = self.checks.wrapping_add(1);
        self.epoll.take(&mut self.events);
        for at in 0..self.events.len() {
            let token = self.events[at].u64;
            if token == u64::MAX {
                continue;
            }
            if let Some(Some(link)) = self.links.get_mut(token as usize) {
                // nothing is ever said on this socket after wireup: readable means ended
                if link.state == State::Up {
                    link.enter(State::Ending);
                }
                self.epoll.remove(link.control.as_raw_fd());
                self.attend(token as u32);
            }
        }
        if self.watched.len() > FEW {
            self.look_away();
        }
        if self.checks.is_multiple_of(CHECKS) {
            self.look_at_all();
        }
        self.left = if self.armed { 0 } else { self.rounds() };
    }

    /// Rounds between two looks at whether peers live.
    fn rounds(&self) -> usize {
        LOOKS / self.watched.len().clamp(FEW, LOOKS)
    }

    /// The next round is to see to a link, whatever its ring shows.
    #[cold]
    fn attend(&mut self, id: u32) {
        let Some(Some(link)) = self.links.get_mut(id as usize) else { return };
        link.restless = true;
        link.return_to(id, &mut self.watched);
        for watch in self.watched.iter_mut().filter(|watch| watch.id == id) {
            watch.head = link.head();
        }
        self.left = self.left.min(self.rounds());
    }

    /// Looks at all that is not looked at: a mark that a peer took off the board must not cost more than time.
    fn look_at_all(&mut self) {
        for (id, link) in (0..).zip(&mut self.links) {
            if let Some(link) = link.as_mut().filter(|link| link.away && link.consumer.has_frame()) {
                link.return_to(id, &mut self.watched);
            }
        }
    }

    /// Leaves the links alone by which nothing came since this was last called, but for a few.
    fn look_away(&mut self) {
        let mut most = self.watched.len() - FEW;
        let before = most;
        for watch in &self.watched {
            let Some(link) = &mut self.links[watch.id as usize] else { continue };
            if !std::mem::take(&mut link.busy) && most > 0 && link.is_calm() {
                link.leave();
                most -= 1;
            }
        }
        if most < before {
            self.watch_what_is_left();
        }
    }

    /// After links were left: has all see that. Those by which something came meanwhile are looked at again, and all where the kernel
    /// makes no such barrier.
    fn watch_what_is_left(&mut self) {
        let seen_by_all = ring::sleep_barrier();
        let links = &mut self.links;
        self.watched.retain_mut(|watch| {
            let Some(link) = &mut links[watch.id as usize] else { return false };
            if link.away && (!seen_by_all || link.consumer.has_frame()) {
                link.come_back();
            }
            watch.head = link.head();
            !link.away
        });
    }

    /// Whether all links that were full still are. Of a damaged one its next turn tells.
    fn none_has_room(&mut self) -> bool {
        let before = self.full.len();
        let mut damaged = Vec::new();
        let links = &mut self.links;
        self.full.retain(|id| {
            let Some(link) = &mut links[*id as usize] else { return false };
            let room = link.producer.has_room(0, MAX_PAYLOAD);
            link.full = room == Ok(false);
            if !link.full {
                link.producer.disarm();
            }
            if let Err(damage) = room {
                link.damage = Some(damage);
                damaged.push(*id);
            }
            link.full
        });
        damaged.into_iter().for_each(|id| self.attend(id));
        self.full.len() == before
    }

    /// Looks again at what is marked on the board, and helps to read where that was asked for: how many parts.
    #[cold]
    fn hear<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        let (links, watched, asked) = (&mut self.links, &mut self.watched, &mut self.asked);
        // what is read here comes first: its sender may help
        let idle = self.attach.len() == 0;
        self.doorbell.board().take(|place| {
            for id in (place..links.len()).step_by(PLACES) {
                if let Some(link) = &mut links[id] {
                    link.return_to(id as u32, watched);
                    if idle && link.helpers.iter().any(Helper::is_asked) {
                        asked.push(id as u32);
                    }
                }
            }
        });
        self.left = self.left.min(self.rounds());
        self.help(sink)
    }

    /// One turn of each link.
    #[inline]
    fn advance<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        if self.armed {
            self.disarm();
        }
        let mut total = 0;
        if self.doorbell.board().is_marked() {
            total += self.hear(sink);
        }
        let mut ended = false;
        for watch in &mut self.watched {
            // SAFETY: its link is there, and the consumer with it.
            if !unsafe { watch.head.shows() } {
                continue;
            }
            let id = LinkId(watch.id);
            let Some(link) = &mut self.links[id.0 as usize] else { continue };
            let (taken, down) = link.take(id, sink);
            watch.head = link.head();
            total += taken;
            let over = match (&link.state, down) {
                (_, Some(down)) => Some(down),
                // what it sent before it went has been taken
                (State::Ending, None) if taken == 0 && link.bye => Some(Down::Orderly),
                (State::Ending, None) if taken == 0 => {
                    let why = "its process ended, or closed without a word";
                    Some(Down::Lost(io::Error::new(io::ErrorKind::ConnectionReset, why)))
                }
                _ => None,
            };
            if let Some(down) = over {
                link.enter(State::Down);
                ended = true;
                total += 1;
                sink.down(id, down);
            }
        }
        if ended {
            self.forget_ended();
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.look();
        }
        total
    }

    #[cold]
    fn forget_ended(&mut self) {
        let (links, up) = (&self.links, &mut self.up);
        self.watched.retain(|watch| {
            let Some(link) = &links[watch.id as usize] else { return false };
            let ended = link.state == State::Down;
            *up -= usize::from(ended);
            !ended
        });
    }

    #[cold]
    fn disarm(&mut self) {
        self.armed = false;
        self.doorbell.board().sleeps(false);
        for id in &self.full {
            if let Some(link) = &mut self.links[*id as usize] {
                link.producer.disarm();
            }
        }
        self.look();
        self.doorbell.drain();
    }
}

impl Link {
    /// Its life goes on to another state than that of being up.
    fn enter(&mut self, state: State) {
        (self.state, self.plain) = (state, false);
    }

    /// [`Rail::try_eager`] of a frame whose payload goes to the bulk area. By value: by address, all frames would be written to memory first.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn try_long(&mut self, order: Order, tag: u64, data: Option<u64>, piece: RawIov) -> bool {
        if piece.len > MAX_PAYLOAD {
            return false;
        }
        let header = Frame::from(PlainEager { order, tag, data }).encode(piece.len);
        // SAFETY: readable, by our caller's word.
        let payload = unsafe { std::slice::from_raw_parts(piece.base, piece.len) };
        self.producer.try_send(&header, &[payload]).is_ok()
    }

    /// Whether there is nothing to do but to take frames.
    fn is_calm(&self) -> bool {
        !self.restless && self.state == State::Up
    }

    /// Tells the peer of all room that there is.
    fn publish(&mut self) {
        self.consumer.flush();
        if let Some(place) = self.consumer.peer_waits() {
            self.bell.ring(place);
        }
        self.restless = false;
    }

    /// Looks at it no more, once the barrier has been made and nothing was there.
    fn leave(&mut self) {
        self.consumer.arm();
        self.away = true;
    }

    fn come_back(&mut self) {
        self.consumer.disarm();
        (self.away, self.busy) = (false, true);
    }

    /// Where something to do will be seen.
    #[inline(always)]
    fn head(&self) -> Head {
        let head = self.consumer.head();
        if self.restless { head.restless() } else { head }
    }

    /// Its entry among those that are looked at.
    fn watch(&self, id: u32) -> Watch {
        Watch { id, head: self.head() }
    }

    /// Enters it again among those that are looked at, if it was left.
    fn return_to(&mut self, id: u32, watched: &mut Vec<Watch>) {
        if self.away && self.state != State::Down {
            self.come_back();
            watched.push(self.watch(id));
        }
    }

    /// Takes the commonest frames, so many at most, as long as there are such and it takes no more than a few words to see to them: how
    /// many.
    #[inline(never)]
    fn take_plain<S: Sink + ?Sized>(&mut self, id: LinkId, most: usize, sink: &mut S) -> usize {
        let mut taken = 0;
        while taken < most
            && let Some(frame) = self.consumer.glance()
        {
            let prefix = u64::from_le(frame.word(0));
            let Some(eager) = PlainEager::from_words(frame.header, prefix, |at| u64::from_le(frame.word(at)))
            else {
                break;
            };
            if (prefix >> 32) as usize != frame.len {
                break;
            }
            // SAFETY: the bytes stay mapped, and are not reused before they are released below.
            if !sink.eager(id, &eager, unsafe { Payload::new(frame.payload, frame.len) }) {
                break;
            }
            let end = frame.end();
            self.consumer.release_seen(end);
            taken += 1;
        }
        taken
    }

    /// Takes frames; returns how many, and why the link ended if it did.
    #[inline]
    fn take<S: Sink + ?Sized>(&mut self, id: LinkId, sink: &mut S) -> (usize, Option<Down>) {
        let mut taken = 0;
        while taken < BURST {
            if self.plain {
                taken += self.take_plain(id, BURST - taken, sink);
            }
            // that there is room again is told in the next round, which finds nothing: an answer may leave before that
            let found = if taken == 0 {
                self.producer.prepare();
                self.consumer.peek()
            } else {
                self.consumer.peek_on()
            };
            let frame = match found {
                None => break,
                Some(Err(why)) => return (taken, Some(Down::Protocol(why.to_string()))),
                Some(Ok(frame)) => frame,
            };
            // SAFETY: the bytes stay mapped, and are not reused before `release` below.
            let payload = unsafe { Payload::new(frame.payload.as_ptr(), frame.payload.len()) };
            match any(frame.header, payload.len()) {
                Ok(header) => {
                    self.bye |= matches!(header, Frame::Bye);
                    let moving = self.watched.begin();
                    sink.frame(id, header, payload);
                    if let Some(moving) = moving {
                        moving.took(&header, payload.len());
                    }
                }
                Err(why) => return (taken, Some(Down::Protocol(why))),
            }
            self.consumer.release();
            taken += 1;
        }
        if taken < BURST
            && let Some(place) = self.consumer.peer_waits()
        {
            self.bell.ring(place);
        }
        self.busy |= taken > 0;
        self.restless = taken > 0 || self.damage.is_some() || self.state != State::Up;
        (taken, self.damage.map(|why| Down::Protocol(why.to_string())))
    }
}

/// A header, of a frame with a payload of so many bytes.
#[inline(never)]
fn any(header: &[u8], payload: usize) -> Result<Frame, String> {
    let (header, announced) = Frame::parse(header).map_err(|why| why.to_string())?;
    if announced != payload {
        return Err("a frame's length is not that of its slot".into());
    }
    Ok(header)
}

impl LaneRail for ShmRail {}

impl Rail for ShmRail {
    const CAPS: Caps = Caps::of_memory(RailId::Shm);

    fn open(_config: &Config) -> io::Result<Self> {
        Self::new()
    }

    #[inline]
    unsafe fn send(
        &mut self,
        link: LinkId,
        header: &[u8],
        iov: &[RawIov],
        _span: Option<Span>,
    ) -> Result<(), Full> {
        let id = link.0;
        let Some(Some(link)) = self.links.get_mut(id as usize) else { return Err(Full) };
        if link.state != State::Up {
            return Err(Full);
        }
        let slice = |piece: &RawIov| -> &[u8] {
            if piece.len == 0 {
                return &[];
            }
            // SAFETY: readable during this call, by our caller's word.
            unsafe { std::slice::from_raw_parts(piece.base, piece.len) }
        };
        let moving = link.watched.begin();
        let sent = match iov {
            [] => link.producer.try_send(header, &[]),
            [one] => link.producer.try_send(header, &[slice(one)]),
            many => {
                let pieces: Vec<&[u8]> = many.iter().map(slice).collect();
                link.producer.try_send(header, &pieces)
            }
        };
        match sent {
            Ok(()) => {
                if let Some(place) = link.producer.peer_sleeps() {
                    link.bell.ring(place);
                }
                if let Some(moving) = moving {
                    moving.put(header, iov.iter().map(|piece| piece.len).sum());
                }
                Ok(())
            }
            Err(why) => {
                if !std::mem::replace(&mut link.full, true) {
                    self.full.push(id);
                }
                if let SendError::Corrupt(damage) = why {
                    link.damage = Some(damage);
                    self.attend(id);
                }
                Err(Full)
            }
        }
    }

    #[inline(always)]
    unsafe fn try_eager(&mut self, link: LinkId, eager: PlainEager, piece: RawIov) -> bool {
        let Some(Some(link)) = self.links.get_mut(link.0 as usize) else { return false };
        let (words, len) = eager.encode(piece.len);
        // SAFETY: readable, by our caller's word.
        let sent = link.plain
            && unsafe {
                match piece.len {
                    ..=ANNEX => link.producer.try_send_short(words, len, piece.base, piece.len),
                    _ => link.try_long(eager.order, eager.tag, eager.data, piece),
                }
            };
        if sent && let Some(place) = link.producer.peer_sleeps() {
            link.bell.ring(place);
        }
        sent
    }

    #[inline]
    fn wants_more(&self, link: LinkId) -> bool {
        matches!(self.links.get(link.0 as usize), Some(Some(link)) if link.state == State::Up)
    }

    #[inline]
    fn links(&self) -> usize {
        self.up
    }

    #[inline]
    fn progress<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        self.advance(sink)
    }

    #[inline(always)]
    fn skip(&mut self) -> bool {
        if self.left <= 1 || self.doorbell.board().is_marked() {
            return false;
        }
        // SAFETY: their links are there, and the consumers with them.
        if self.watched.iter().any(|watch| unsafe { watch.head.shows() }) {
            return false;
        }
        self.left -= 1;
        true
    }

    fn look_around(&mut self) {
        self.look();
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.epoll.as_raw_fd())
    }

    fn arm(&mut self) -> bool {
        (self.armed, self.left) = (true, 0);
        let mut nothing = true;
        for watch in &self.watched {
            let Some(link) = &mut self.links[watch.id as usize] else { continue };
            if link.state == State::Up && link.damage.is_none() {
                link.publish();
                link.leave();
            } else {
                nothing = false;
            }
        }
        for id in &self.full {
            if let Some(link) = &mut self.links[*id as usize] {
                link.producer.arm();
            }
        }
        let fresh = !self.watched.is_empty() || !self.full.is_empty();
        self.doorbell.board().sleeps(true);
        if fresh {
            self.watch_what_is_left();
            nothing &= self.watched.is_empty() && self.none_has_room();
        }
        nothing && !self.doorbell.board().is_marked()
    }

    fn close(&mut self, link: LinkId) {
        let Some(slot) = self.links.get_mut(link.0 as usize) else { return };
        if let Some(mut closed) = slot.take() {
            closed.withdraw(0..DESKS);
            self.up -= usize::from(closed.state != State::Down);
            self.watched.retain(|watch| watch.id != link.0);
            self.full.retain(|id| *id != link.0);
            self.attach.close(link);
        }
    }

    /// What is in the ring is the peer's.
    fn idle(&self, _link: LinkId) -> bool {
        true
    }

    fn watch(&mut self, link: LinkId, (near, far): (PeerId, PeerId)) {
        if let Some(Some(link)) = self.links.get_mut(link.0 as usize) {
            link.watched = Watched::link(near, far);
            link.plain &= !link.watched.is_watched();
        }
    }

    fn cut(&mut self, link: LinkId) {
        if let Some(Some(link)) = self.links.get(link.0 as usize) {
            // SAFETY: no memory is involved; a socket that is down already gives an error of no interest.
            unsafe { libc::shutdown(link.control.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }

    /// Bytes of the rings that frames took.
    fn traffic(&self, link: LinkId) -> Option<(u64, u64)> {
        let link = self.links.get(link.0 as usize)?.as_ref()?;
        Some((link.producer.sent(), link.consumer.received()))
    }
}

mod help;
#[cfg(all(test, not(loom)))]
mod tests;
