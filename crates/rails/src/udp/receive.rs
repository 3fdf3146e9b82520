//! From datagrams to connections, and from their streams to frames.

use super::link::Link;
use super::pipe::Pipe;
use super::socket::Train;
use super::{Slot, UdpRail};
use crate::rail::reader::{Manner, Reader};
use crate::rail::{Down, LinkId, Memory, Payload, RawIov, Sink, Span};
use crate::sys::{signal, wait_for};
use polyrail_core::connection::{Connection, State};
use polyrail_core::frame::Frame;
use polyrail_core::micro::{Time, User};
use polyrail_core::wire::datagram::{
    Chunk, Chunks, Ending, HEADER, Header, Kind, TAG, Value, is_opening_tag,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Calls that one round of progress receives by, for each socket; and, where these bring few bytes, ...
const CALLS: usize = 8;
/// ... as many as bring so many, up to this: who looks seldom is to have the newest of what waits, which comes last.
const BYTES: usize = 128 << 10;
const CALLS_OF_FEW: usize = 128;
/// Connections that are not links yet.
const OPENING: usize = 1000;
/// Connections that wireup has not taken yet.
const CALLS_MOST: usize = 256;
/// A payload longer than this that is not all there is begun in its place rather than collected.
const BEGIN_MIN: usize = 1 << 10;
/// Datagrams that are kept until there is somebody to give frames to.
const KEPT: usize = 4096;
/// After so many errors of the network without a word of the other side it is gone.
const REFUSED: u32 = 3;
/// ... and, where there was one, so long after the first of them, in nanoseconds.
const DOUBT: u64 = 100_000_000;

/// A datagram that waits for a round of progress.
pub(super) struct Kept {
    socket: usize,
    from: SocketAddr,
    marked: bool,
    bytes: Vec<u8>,
}

/// A datagram, and how it came.
struct Arrival<'a> {
    socket: usize,
    from: SocketAddr,
    marked: bool,
    bytes: &'a mut [u8],
    /// When it was received, or has its turn.
    now: Time,
}

/// What is known of a datagram that is authenticated.
struct Came<'a> {
    now: Time,
    header: &'a Header,
    /// The whole of its number.
    number: u64,
    size: usize,
    marked: bool,
}

impl UdpRail {
    /// Receives what there is; how many frames came, and payloads that moved on.
    pub(super) fn receive<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        let now = self.now();
        let mut events = self.take_early(sink);
        while let Some(Kept { socket, from, marked, mut bytes }) = self.backlog.pop_front() {
            let arrival = Arrival { socket, from, marked, bytes: &mut bytes, now };
            events += self.handle(arrival, Some(sink));
        }
        self.look();
        while let Some(socket) = self.ready.pop() {
            events += self.receive_from(socket, &mut Some(&mut *sink));
        }
        events
    }

    /// Receives what opens connections; what is of links waits.
    pub(super) fn receive_strangers<S: Sink>(&mut self) {
        self.look();
        while let Some(socket) = self.ready.pop() {
            self.receive_from::<S>(socket, &mut None);
        }
    }

    /// Which sockets may have something. Where there are several, one call tells; while they are hushed, nothing does.
    fn look(&mut self) {
        self.ready.clear();
        if self.sockets.len() > 1 && !self.lull.hushed() {
            self.epoll.take(&mut self.told);
            let told = self.told.iter().map(|event| event.u64 as usize);
            self.ready.extend(told.filter(|socket| *socket < self.sockets.len()));
        } else {
            self.ready.extend(0..self.sockets.len());
        }
    }

    fn receive_from<S: Sink + ?Sized>(&mut self, socket: usize, sink: &mut Option<&mut S>) -> usize {
        let (mut events, mut bytes) = (0, 0);
        for call in 0..CALLS_OF_FEW {
            if call >= CALLS && bytes >= BYTES {
                break;
            }
            let mut inbox = std::mem::take(&mut self.inbox);
            let more = inbox.receive(&self.sockets[socket]);
            let (trains, now) = (inbox.trains.len(), self.now());
            for at in 0..trains {
                let Train { from, len, each, marked } = inbox.trains[at];
                if len == 0 {
                    continue;
                }
                bytes += len;
                for bytes in inbox.bytes(at).chunks_mut(each) {
                    let arrival = Arrival { socket, from, marked, bytes, now };
                    events += self.handle(arrival, sink.as_deref_mut());
                }
            }
            self.inbox = inbox;
            match more {
                Ok(true) => {}
                Ok(false) => break,
                Err(libc::EAGAIN | libc::EINTR) => break,
                Err(_) => self.hear_errors(socket),
            }
        }
        events
    }

    /// What the network reported of what was sent.
    fn hear_errors(&mut self, socket: usize) {
        let now = self.now();
        while let Some((to, error)) = self.sockets[socket].take_error() {
            if error != libc::ECONNREFUSED {
                continue;
            }
            let its = |slot: &Slot| matches!(slot, Slot::Up(link) if link.to == to);
            let found: Vec<u32> =
                (0..self.slots.len() as u32).filter(|id| its(&self.slots[*id as usize])).collect();
            for id in found {
                let Some(link) = self.link(id) else { continue };
                // anybody could have said that: it is asked again
                link.connection.ask();
                link.refusals += 1;
                let since = *link.refused.get_or_insert(now);
                let opening = link.connection.state() == State::Opening;
                if link.refusals < REFUSED || !opening && now < since + DOUBT {
                    self.mark_dirty(id);
                    continue;
                }
                let why =
                    if opening { io::ErrorKind::ConnectionRefused } else { io::ErrorKind::UnexpectedEof };
                let why = io::Error::new(why, "its host says that nobody is there");
                self.finish(id, Down::Lost(why), Ending::GivenUp);
            }
        }
    }

    /// Datagrams that came before there was a link.
    fn take_early<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        let (mut events, now) = (0, self.now());
        while let Some(id) = self.side.adopted.pop() {
            let Some(link) = self.link(id) else { continue };
            let early = std::mem::take(&mut link.early);
            let (socket, from) = (link.socket, link.to);
            for mut bytes in early {
                let arrival = Arrival { socket, from, marked: false, bytes: &mut bytes, now };
                events += self.handle(arrival, Some(&mut *sink));
            }
        }
        events
    }

    fn came_to(&mut self, id: u32, fed: Result<usize, String>) -> usize {
        let orderly = self.link(id).is_some_and(|link| link.reader.bye);
        match fed {
            Ok(events) if !orderly => events,
            Ok(events) => {
                self.finish(id, Down::Orderly, Ending::Orderly);
                events + 1
            }
            Err(why) => {
                self.finish(id, Down::Protocol(why), Ending::GivenUp);
                1
            }
        }
    }

    /// One datagram. Without a sink what is of links waits.
    fn handle<S: Sink + ?Sized>(&mut self, arrival: Arrival<'_>, sink: Option<&mut S>) -> usize {
        if arrival.bytes.len() < HEADER + TAG {
            return 0;
        }
        let Ok(header) = Header::parse(arrival.bytes) else { return 0 };
        match header.kind {
            Kind::Open => self.handle_open(&header, arrival, sink),
            Kind::Answer => self.handle_answer(&header, arrival, sink),
            Kind::Plain | Kind::Sealed => self.handle_data(&header, arrival, sink),
        }
    }

    fn handle_open<S: Sink + ?Sized>(
        &mut self,
        header: &Header,
        arrival: Arrival<'_>,
        sink: Option<&mut S>,
    ) -> usize {
        let Some(key) = self.side.key else { return 0 };
        let (said, tag) = arrival.bytes.split_at(arrival.bytes.len() - TAG);
        let Some(Ok(Chunk::Hello { connection, salt, window })) = Chunks::new(&said[HEADER..]).next() else {
            return 0;
        };
        if header.connection != 0 || !is_opening_tag(&key, &[], said, tag) {
            return 0;
        }
        let id = match self.opening.get(&salt) {
            Some(id) => *id,
            None => {
                // who is not answered asks again
                if self.side.is_closed || self.side.calls.len() >= CALLS_MOST {
                    return 0;
                }
                if self.opening.len() >= OPENING {
                    self.dismiss_oldest();
                }
                let Some(id) = self.greet(key, (connection, salt, window), (arrival.socket, arrival.from))
                else {
                    return 0;
                };
                id
            }
        };
        let size = arrival.bytes.len();
        let at = (arrival.socket, arrival.from);
        let Some(link) = self.link(id).filter(|link| !link.connection.is_opened()) else { return 0 };
        if (link.socket, link.to) != at {
            if link.connection.state() != State::Answering {
                return 0;
            }
            // whoever heard it may have said it first: its sender says it again
            (link.socket, link.to) = at;
            link.connection.moved();
        }
        link.connection.heard(size);
        let Some(number) = link.connection.number(header.epoch, header.number) else { return 0 };
        let came = Came { now: arrival.now, header, number: number.number, size, marked: arrival.marked };
        self.deliver(id, &came, &said[HEADER..], sink)
    }

    /// The connection that has waited longest for its caller to show himself gives way.
    fn dismiss_oldest(&mut self) {
        let age = |id: &u32| match &self.slots[*id as usize] {
            Slot::Up(link) if link.connection.state() == State::Answering => {
                Some((link.connection.heard_at(), *id))
            }
            _ => None,
        };
        let oldest = self.opening.values().filter_map(age).min();
        if let Some((_, id)) = oldest {
            self.finish(id, Down::Lost(io::ErrorKind::TimedOut.into()), Ending::GivenUp);
        }
    }

    /// Somebody who knows the endpoint's key opens a connection.
    fn greet(
        &mut self,
        key: polyrail_core::wire::Key,
        (theirs, salt, window): (u32, [u8; 16], u32),
        at: (usize, SocketAddr),
    ) -> Option<u32> {
        let mut ours = [0; 16];
        getrandom::fill(&mut ours).ok()?;
        let (pipe, far) = Pipe::new(self.stirred.clone(), at.1).ok()?;
        let (place, number) = self.take_place()?;
        let connection =
            Connection::answer(self.now(), (number, ours), (theirs, salt, window), self.settings_of(at.0));
        let mut link = Link::new(connection, key, at, pipe, self.begins().1);
        link.derive_keys(false);
        self.opening.insert(salt, place);
        self.enter(place, link);
        self.side.calls.push_back(Box::new(far));
        signal(&self.side.called, true);
        Some(place)
    }

    fn handle_answer<S: Sink + ?Sized>(
        &mut self,
        header: &Header,
        arrival: Arrival<'_>,
        sink: Option<&mut S>,
    ) -> usize {
        let Some(id) = self.place_of(header.connection) else { return 0 };
        let Some(link) = self.link(id) else { return 0 };
        let (said, tag) = arrival.bytes.split_at(arrival.bytes.len() - TAG);
        let client = link.connection.salts().0;
        // once the handshake is over nothing counts of before
        if link.has_begun() || !is_opening_tag(&link.key, &client, said, tag) {
            return 0;
        }
        let Some(Ok(Chunk::Hello { connection, salt, window })) = Chunks::new(&said[HEADER..]).next() else {
            return 0;
        };
        let fresh = link.connection.state() == State::Opening;
        if !link.connection.answered(connection, salt, window) {
            return 0;
        }
        if fresh && !link.derive_keys(true) {
            return 0;
        }
        let Some(link) = self.link(id) else { return 0 };
        let Some(number) = link.connection.number(header.epoch, header.number) else { return 0 };
        let (now, size, marked) = (arrival.now, said.len() + TAG, arrival.marked);
        self.deliver(id, &Came { now, header, number: number.number, size, marked }, &said[HEADER..], sink)
    }

    fn handle_data<S: Sink + ?Sized>(
        &mut self,
        header: &Header,
        arrival: Arrival<'_>,
        sink: Option<&mut S>,
    ) -> usize {
        let Some(id) = self.place_of(header.connection) else { return 0 };
        let Some(Slot::Up(link)) = self.slots.get_mut(id as usize) else { return 0 };
        if sink.is_none() && link.pipe.is_none() {
            if self.backlog.len() < KEPT && arrival.bytes.len() <= link.connection.shared().most as usize {
                let Arrival { socket, from, marked, bytes, .. } = arrival;
                self.backlog.push_back(Kept { socket, from, marked, bytes: bytes.to_vec() });
            }
            return 0;
        }
        let Some(number) = link.connection.number(header.epoch, header.number) else { return 0 };
        let (size, sealed) = (arrival.bytes.len(), header.kind == Kind::Sealed);
        let Some(content) = link.open(header.generation, number, sealed, arrival.bytes) else { return 0 };
        if link.has_begun() {
            // who has the keys after it has had all of the handshake
            link.connection.assume_had(link.preface.len() as u64);
        }
        let at = (arrival.socket, arrival.from);
        let moved = (link.socket, link.to) != at && link.connection.is_newest(header.epoch, number.number);
        let came = Came { now: arrival.now, header, number: number.number, size, marked: arrival.marked };
        let events = self.deliver(id, &came, content, sink);
        if moved {
            self.came_from_elsewhere(id, at, size);
        }
        self.look_at_response(id, arrival.now);
        events
    }

    /// A datagram that is authenticated.
    fn deliver<S: Sink + ?Sized>(
        &mut self,
        id: u32,
        came: &Came<'_>,
        content: &[u8],
        sink: Option<&mut S>,
    ) -> usize {
        let Some(Slot::Up(link)) = self.slots.get_mut(id as usize) else { return 0 };
        (link.refusals, link.refused) = (0, None);
        let Came { now, header, number, size, marked } = *came;
        // the connection gives what has its turn while it is at work
        let (pipe, reader, iov) = (link.pipe.as_ref(), &mut link.reader, &mut self.iov);
        let mut user = Taker { id: LinkId(id), pipe, reader, iov, sink, fed: Ok(0) };
        let heard =
            link.connection.handle_datagram(now, (header, number), content, (size, marked), &mut user);
        let mut fed = user.fed;
        link.forget_delivered(&mut self.pool);
        let shared = link.connection.shared();
        self.lull.note(now, link.reader.rest(), shared.flight.bytes(), shared.shortest(), &mut link.long);
        if link.has_begun() {
            link.extend();
        }
        let state = link.connection.state();
        self.mark_dirty(id);
        if let Err(why) = heard {
            fed = Err(why.to_owned());
        }
        let mut events = self.came_to(id, fed);
        if let State::Ended(ending) = state {
            let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "the peer ended without a Bye");
            let why = match ending {
                Ending::GivenUp => Down::Lost(io::Error::from_raw_os_error(libc::ECONNRESET)),
                Ending::Orderly => Down::Orderly,
                Ending::Gone => Down::Lost(gone()),
            };
            self.finish(id, why, Ending::GivenUp);
            events += 1;
        }
        events
    }

    /// Whether something waits in a socket.
    pub(super) fn has_arrivals(&self) -> bool {
        wait_for(self.epoll.as_raw_fd(), libc::POLLIN, Duration::ZERO)
    }
}

/// Who takes what a connection brings.
struct Taker<'a, S: ?Sized> {
    id: LinkId,
    /// The handshake, before there is a link.
    pipe: Option<&'a Pipe>,
    reader: &'a mut Reader,
    iov: &'a mut Vec<RawIov>,
    sink: Option<&'a mut S>,
    /// Frames that came, and values; or what is wrong with them.
    fed: Result<usize, String>,
}

impl<S: Sink + ?Sized> User for Taker<'_, S> {
    fn deliver(&mut self, bytes: &[u8]) {
        match (self.pipe, self.sink.as_deref_mut()) {
            (Some(pipe), _) => {
                if !pipe.give(bytes) {
                    self.fed = Err("more came than a handshake has".to_owned());
                }
            }
            (None, Some(sink)) => {
                let mut manner = Manner { begin_min: BEGIN_MIN, heed: |_: &Frame, _| {} };
                match (&mut self.fed, self.reader.feed(self.id, bytes, &mut manner, self.iov, sink)) {
                    (Ok(events), Ok(more)) => *events += more,
                    (fed @ Ok(_), Err(why)) => *fed = Err(why),
                    (Err(_), _) => {}
                }
            }
            // of links nothing is heard without a sink
            (None, None) => {}
        }
    }

    fn takes_values(&self) -> bool {
        self.pipe.is_none() && self.sink.is_some()
    }

    fn value(&mut self, value: &Value<'_>) {
        if let Some(sink) = self.sink.as_deref_mut() {
            sink.value(self.id, value);
            self.fed.iter_mut().for_each(|events| *events += 1);
        }
    }
}

/// Nobody to give frames to: those of links wait.
pub(super) enum NoSink {}

impl Memory for NoSink {
    fn resolve(&self, _span: Span, _out: &mut Vec<RawIov>) -> bool {
        match *self {}
    }
}

impl Sink for NoSink {
    fn frame(&mut self, _link: LinkId, _frame: Frame, _payload: Payload) {
        match *self {}
    }
    fn begin(&mut self, _link: LinkId, _frame: Frame, _len: usize) -> Span {
        match *self {}
    }
    fn end(&mut self, _link: LinkId) {
        match *self {}
    }
    fn down(&mut self, _link: LinkId, _why: Down) {
        match *self {}
    }
}
