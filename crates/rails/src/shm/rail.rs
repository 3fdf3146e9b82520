//! The shared-memory rail: one segment with two rings per peer, a doorbell for who sleeps, and a Unix socket whose end tells
//! that the peer has died.

use super::attach::Attach;
use super::doorbell::{Bell, Doorbell};
use super::ring::{self, Consumer, Corrupt, MAX_PAYLOAD, Producer, SendError};
use crate::config::Config;
use crate::list::RailId;
use crate::rail::direct::{Direct, DirectError, Transfer};
use crate::rail::{
    Caps, Down, Full, LaneRail, Lanes, LinkId, Look, Memory, Payload, Rail, RawIov, Sink, Span,
};
use crate::sys::Epoll;
use polyrail_core::frame::{Frame, PlainEager};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Frames taken from one link before the next has its turn.
const BURST: usize = 64;
/// Empty rounds between two looks at whether peers live.
const LOOK: u32 = 4096;

struct Link {
    producer: Producer,
    consumer: Consumer,
    bell: Bell,
    control: OwnedFd,
    state: State,
    bye: bool,
    /// There may be more to do than to take frames: something was taken lately, or the link ends.
    restless: bool,
    /// The ring was full when a frame was last tried.
    full: bool,
    /// Its process, where its memory can be reached.
    pid: Option<i32>,
    /// What the peer did to the ring that this side sends by.
    damage: Option<Corrupt>,
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
    live: Vec<u32>,
    attach: Attach,
    doorbell: Doorbell,
    epoll: Epoll,
    events: Vec<libc::epoll_event>,
    armed: bool,
    empty_rounds: u32,
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
            live: Vec::new(),
            attach: Attach::default(),
            doorbell,
            epoll: Epoll::new()?,
            events: Vec::with_capacity(16),
            armed: false,
            empty_rounds: 0,
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
    pub fn adopt(&mut self, ends: (Producer, Consumer), bell: Bell, control: OwnedFd) -> io::Result<LinkId> {
        let id = self.links.iter().position(Option::is_none).unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        self.epoll.add(control.as_raw_fd(), libc::EPOLLIN | libc::EPOLLRDHUP, id as u64)?;
        let (producer, consumer) = ends;
        let link = Link {
            producer,
            consumer,
            bell,
            control,
            state: State::Up,
            bye: false,
            restless: true,
            full: false,
            pid: None,
            damage: None,
        };
        self.links[id] = Some(link);
        self.live.push(id as u32);
        Ok(LinkId(id as u32))
    }

    /// The memory of a link's peer can be reached, as that of this process.
    pub fn reach(&mut self, link: LinkId, pid: i32) {
        if let Some(Some(link)) = self.links.get_mut(link.0 as usize) {
            link.pid = Some(pid);
        }
    }

    /// Looks whether peers have gone.
    fn look(&mut self) {
        self.empty_rounds = 0;
        self.epoll.take(&mut self.events);
        for event in &self.events {
            let token = event.u64;
            if token == u64::MAX {
                continue;
            }
            if let Some(Some(link)) = self.links.get_mut(token as usize) {
                // nothing is ever said on this socket after wireup: readable means ended
                if link.state == State::Up {
                    link.state = State::Ending;
                }
                link.restless = true;
                self.epoll.remove(link.control.as_raw_fd());
            }
        }
    }

    /// One turn of each link.
    #[inline]
    fn advance<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        if self.armed {
            self.disarm();
        }
        let mut total = 0;
        let mut ended = false;
        for i in 0..self.live.len() {
            let id = LinkId(self.live[i]);
            let Some(link) = &mut self.links[id.0 as usize] else { continue };
            if !link.restless && !link.consumer.has_frame() {
                continue;
            }
            let (taken, down) = link.take(id, sink);
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
                link.state = State::Down;
                ended = true;
                total += 1;
                sink.down(id, down);
            }
        }
        if ended {
            self.live
                .retain(|id| matches!(&self.links[*id as usize], Some(link) if link.state != State::Down));
        }
        if total == 0 {
            self.empty_rounds += 1;
            if self.empty_rounds >= LOOK {
                self.look();
            }
        }
        total
    }

    fn disarm(&mut self) {
        self.armed = false;
        for id in &self.live {
            if let Some(link) = &mut self.links[*id as usize] {
                link.consumer.disarm();
                link.producer.disarm();
            }
        }
        self.look();
        self.doorbell.drain();
    }
}

impl Link {
    /// Takes frames; returns how many, and why the link ended if it did.
    #[inline]
    fn take<S: Sink + ?Sized>(&mut self, id: LinkId, sink: &mut S) -> (usize, Option<Down>) {
        let mut taken = 0;
        while taken < BURST {
            let frame = match self.consumer.peek() {
                None => break,
                Some(Err(why)) => return (taken, Some(Down::Protocol(why.to_string()))),
                Some(Ok(frame)) => frame,
            };
            // SAFETY: the bytes stay mapped, and are not reused before `release` below.
            let payload = unsafe { Payload::new(frame.payload.as_ptr(), frame.payload.len()) };
            match PlainEager::parse(frame.header) {
                Some((eager, announced)) if announced == payload.len() => sink.eager(id, eager, payload),
                _ => match any(frame.header, payload.len()) {
                    Ok(header) => {
                        self.bye |= matches!(header, Frame::Bye);
                        sink.frame(id, header, payload);
                    }
                    Err(why) => return (taken, Some(Down::Protocol(why))),
                },
            }
            self.consumer.release();
            taken += 1;
        }
        if taken < BURST && self.consumer.peer_waits() {
            self.bell.ring();
        }
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

impl Direct for ShmRail {
    fn start(&mut self, transfer: Transfer) -> Result<(), Transfer> {
        let link = self.links.get(transfer.link.0 as usize).and_then(Option::as_ref);
        match link.and_then(|link| link.pid) {
            Some(pid) => self.attach.start(pid, transfer),
            None => return Err(transfer),
        }
        Ok(())
    }

    fn poll<M: Memory + ?Sized>(
        &mut self,
        mem: &M,
        budget: &mut usize,
    ) -> Option<(Transfer, Result<(), DirectError>)> {
        self.attach.poll(mem, budget)
    }

    fn transfers(&self) -> usize {
        self.attach.len()
    }
}

impl LaneRail for ShmRail {}

impl Rail for ShmRail {
    const CAPS: Caps =
        Caps { id: RailId::Shm, look: Look::Memory, lanes: Lanes::None, seals: false, in_order: true };

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
        let Some(Some(link)) = self.links.get_mut(link.0 as usize) else { return Err(Full) };
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
                if link.producer.peer_sleeps() {
                    link.bell.ring();
                }
                Ok(())
            }
            Err(why) => {
                link.full = true;
                if let SendError::Corrupt(damage) = why {
                    (link.damage, link.restless) = (Some(damage), true);
                }
                Err(Full)
            }
        }
    }

    #[inline]
    unsafe fn send_eager(&mut self, link: LinkId, eager: PlainEager, piece: RawIov) -> Result<(), Full> {
        if let Some(Some(link)) = self.links.get_mut(link.0 as usize)
            && link.state == State::Up
        {
            let (words, len) = eager.encode(piece.len);
            // SAFETY: readable, by our caller's word.
            if unsafe { link.producer.try_send_short(words, len, piece.base, piece.len) } {
                if link.producer.peer_sleeps() {
                    link.bell.ring();
                }
                return Ok(());
            }
        }
        let header = Frame::from(eager).encode(piece.len);
        // SAFETY: our caller's word.
        unsafe { self.send(link, &header, &[piece], None) }
    }

    #[inline]
    fn wants_more(&self, link: LinkId) -> bool {
        matches!(self.links.get(link.0 as usize), Some(Some(link)) if link.state == State::Up)
    }

    #[inline]
    fn links(&self) -> usize {
        self.live.len()
    }

    #[inline]
    fn progress<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        self.advance(sink)
    }

    fn look_around(&mut self) {
        self.look();
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.epoll.as_raw_fd())
    }

    fn arm(&mut self) -> bool {
        self.armed = true;
        for id in &self.live {
            if let Some(link) = &mut self.links[*id as usize] {
                link.consumer.arm();
                if link.full {
                    link.producer.arm();
                }
            }
        }
        ring::sleep_barrier();
        let mut nothing = true;
        for id in &self.live {
            let Some(link) = &mut self.links[*id as usize] else { continue };
            nothing &= !link.consumer.has_frame() && link.state == State::Up;
            if link.full {
                let room = link.producer.has_room(0, MAX_PAYLOAD);
                link.full = room == Ok(false);
                link.damage = room.err();
                link.restless |= link.damage.is_some();
                nothing &= link.full;
            }
        }
        nothing
    }

    fn close(&mut self, link: LinkId) {
        if let Some(slot) = self.links.get_mut(link.0 as usize) {
            *slot = None;
        }
        self.live.retain(|id| *id != link.0);
        self.attach.close(link);
    }

    /// What is in the ring is the peer's.
    fn idle(&self, _link: LinkId) -> bool {
        true
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
