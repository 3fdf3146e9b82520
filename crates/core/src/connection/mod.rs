//! A connection over datagrams: how it begins and ends, and the data channel that it has. No I/O: datagrams that were authenticated go in,
//! datagrams to be authenticated come out (`docs/wire-datagrams.md`).
//!
//! Each side chooses a number by which the other names the connection, so that it outlives a change of addresses and one socket serves
//! all peers. The side that opens it sends OPEN, authenticated by the key of the endpoint that it calls, with a random salt and already the
//! first bytes of its stream; the other answers with a salt of its own; from then on both salts and that key make the connection's
//! keys. What the stream carries first is the handshake of any other transport.
//!
//! Invariants:
//! - Until the other side has shown that it is where it is written to, by a datagram under the connection's keys, it is sent no more than
//!   [`AMPLIFY`] times as much as came from there.
//! - A datagram counts once. What contradicts the protocol ends the connection, and nothing else.

#[cfg(test)]
mod tests;

use crate::micro::{Arrived, Composition, DataChannel, Limits, Received, Segment, Shared, Time, User};
use crate::wire::codec::Writer;
use crate::wire::datagram::{Chunk, Chunks, Ending, HEADER, Header, Kind, SALT, TAG, write};
use alloc::vec::Vec;

/// What is sent to where nobody has been seen yet, as a multiple of what came from there.
pub const AMPLIFY: u64 = 3;
/// A word that the connection ends is said so often, where nothing shows that it was heard.
const GOODBYES: u8 = 3;

/// How a connection is to behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The composition that it begins with.
    pub composition: Composition,
    /// Most bytes of a datagram.
    pub size: u32,
    /// Bytes of the stream that this side takes before they have their turn.
    pub holds: u32,
}

/// Where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// This side has opened it; nobody has answered.
    Opening,
    /// This side has answered; whether the other is where it is written to has not been seen.
    Answering,
    /// Both sides have its keys.
    Up,
    /// The other side has ended it.
    Ended(Ending),
}

/// A datagram that is to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Its header, but for keys and cipher, which are the rail's.
    pub header: Header,
    /// Its number.
    pub number: u64,
    /// Bytes of chunks that were written behind the room for the header.
    pub chunks: usize,
    /// The part of the stream whose bytes follow them.
    pub segment: Segment,
}

/// The machine of one connection.
#[derive(Debug)]
pub struct Connection {
    ours: u32,
    theirs: u32,
    salts: ([u8; SALT], [u8; SALT]),
    opened: bool,
    state: State,
    settings: Settings,
    channel: DataChannel,
    epoch: u8,
    /// The highest number that came, by which others are told in full.
    newest: u64,
    heard: u64,
    said: u64,
    /// When something came last that counted.
    heard_at: Time,
    goodbyes: Option<(Ending, u8)>,
}

/// Bytes of content that a datagram has room for at least.
const LEAST: usize = 64;
/// Bytes that the other side takes before it has said how many.
const UNKNOWN_WINDOW: u32 = 64 << 10;

impl Connection {
    fn new(now: Time, ours: u32, opened: bool, window: u32, settings: Settings) -> Self {
        let limits = Limits {
            size: settings.size,
            start: 0,
            window: u64::from(window),
            holds: u64::from(settings.holds),
            receives_from: 0,
            rtt: 0,
            in_flight: 0,
        };
        Self {
            ours,
            theirs: 0,
            salts: ([0; SALT], [0; SALT]),
            opened,
            state: if opened { State::Opening } else { State::Answering },
            settings,
            channel: DataChannel::new(settings.composition, now, &limits),
            epoch: 0,
            newest: 0,
            heard: 0,
            said: 0,
            heard_at: now,
            goodbyes: None,
        }
    }

    /// One that this side opens, under a number and with a salt that nobody can guess.
    pub fn open(now: Time, ours: u32, salt: [u8; SALT], settings: Settings) -> Self {
        let mut new = Self::new(now, ours, true, UNKNOWN_WINDOW, settings);
        new.salts.0 = salt;
        new
    }

    /// One that the other side opened: its number for it, its salt, and the bytes that it takes before they have their turn.
    pub fn answer(
        now: Time,
        (ours, salt): (u32, [u8; SALT]),
        (theirs, their_salt, window): (u32, [u8; SALT], u32),
        settings: Settings,
    ) -> Self {
        let mut new = Self::new(now, ours, false, window, settings);
        (new.theirs, new.salts) = (theirs, (their_salt, salt));
        new
    }

    /// What this side calls it.
    pub fn ours(&self) -> u32 {
        self.ours
    }

    /// What the other side calls it; 0 before it has said so.
    pub fn theirs(&self) -> u32 {
        self.theirs
    }

    /// The salts, first that of the side that opened it.
    pub fn salts(&self) -> &([u8; SALT], [u8; SALT]) {
        &self.salts
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether this side opened it.
    pub fn is_opened(&self) -> bool {
        self.opened
    }

    /// The other side is to show that it is there.
    pub fn ask(&mut self) {
        self.channel.ask();
    }

    /// What the micro-protocols of its channel know.
    pub fn shared(&self) -> &Shared {
        self.channel.shared()
    }

    /// Which composition is in force.
    pub fn composition(&self) -> Composition {
        self.channel.composition()
    }

    /// When something came last that counted.
    pub fn heard_at(&self) -> Time {
        self.heard_at
    }

    /// The stream has grown to this position.
    pub fn extend(&mut self, end: u64) {
        self.channel.extend(end);
    }

    /// What the stream that came has been given on of.
    pub fn delivered(&self) -> u64 {
        self.channel.shared().delivered
    }

    /// This side ends it: the other is told.
    pub fn close(&mut self, ending: Ending) {
        self.goodbyes.get_or_insert((ending, GOODBYES));
    }

    /// Whether all has been said of its end.
    pub fn is_closed(&self) -> bool {
        self.goodbyes.is_some_and(|(_, left)| left == 0)
    }

    /// The other side has answered: its number, its salt and its window. False: it has answered otherwise before.
    pub fn answered(&mut self, theirs: u32, salt: [u8; SALT], window: u32) -> bool {
        match self.state {
            State::Opening => {
                (self.theirs, self.salts.1, self.state) = (theirs, salt, State::Up);
                self.channel.set_window(u64::from(window));
                true
            }
            _ => self.theirs == theirs && self.salts.1 == salt,
        }
    }

    /// The full number of a datagram of which these are the lowest bits.
    pub fn number(&self, low: u32) -> u64 {
        let newest = self.newest;
        let near = (newest & !0xffff_ffff) | u64::from(low);
        match near {
            above if above > newest + (1 << 31) => above.checked_sub(1 << 32).unwrap_or(near),
            below if below + (1 << 31) < newest => below + (1 << 32),
            _ => near,
        }
    }

    /// Something came from the other side's address, of so many bytes, that may be of this connection.
    pub fn heard(&mut self, bytes: usize) {
        self.heard += bytes as u64;
    }

    /// A datagram that was authenticated: its header, full number and content, its length and whether a router marked it. Bytes of the
    /// stream that have their turn go to the user.
    ///
    /// # Errors
    /// What of it contradicts the protocol: the connection is over.
    pub fn handle_datagram<U: User>(
        &mut self,
        now: Time,
        (header, number): (&Header, u64),
        content: &[u8],
        (size, marked): (usize, bool),
        user: &mut U,
    ) -> Result<(), &'static str> {
        const MALFORMED: &str = "it sent a malformed datagram";
        if header.epoch != self.epoch {
            return Ok(());
        }
        let mut elicits = false;
        for chunk in Chunks::new(content) {
            elicits |= !matches!(chunk.map_err(|_| MALFORMED)?, Chunk::Ack(_) | Chunk::Close(_));
        }
        let arrived = Arrived { number, size: size as u32, elicits, marked };
        if self.channel.handle_arrival(now, &arrived) == Received::Dropped {
            return Ok(());
        }
        self.newest = self.newest.max(number);
        self.heard_at = now;
        if self.state == State::Answering && matches!(header.kind, Kind::Plain | Kind::Sealed) {
            self.state = State::Up;
        }
        for chunk in Chunks::new(content).flatten() {
            match chunk {
                Chunk::Ack(ack) => self.channel.handle_ack(&ack),
                Chunk::Stream { pos, bytes, .. } => self.channel.handle_stream(pos, bytes, user),
                Chunk::Close(ending) => self.state = State::Ended(ending),
                _ => {}
            }
        }
        self.channel.shared().broken.map_or(Ok(()), Err)
    }

    /// Bytes that may be sent before the other side has been seen.
    fn allowance(&self) -> u64 {
        match self.state {
            State::Answering => (AMPLIFY * self.heard).saturating_sub(self.said),
            _ => u64::MAX,
        }
    }

    /// Makes the next datagram, if one is to leave, in `room`, which is for its chunks and the stream's bytes.
    pub fn poll_datagram(&mut self, now: Time, room: &mut [u8]) -> Option<Datagram> {
        if let State::Ended(_) = self.state {
            self.goodbyes = self.goodbyes.map(|(ending, _)| (ending, 0));
            return None;
        }
        let allowed = usize::try_from(self.allowance()).unwrap_or(usize::MAX);
        let most = room.len().min(allowed.saturating_sub(HEADER + TAG));
        let room = room.get_mut(..most).filter(|room| room.len() >= LEAST)?;
        let kind = match self.state {
            State::Opening => Kind::Open,
            State::Answering => Kind::Answer,
            _ => Kind::Plain,
        };
        let mut said = 0;
        if kind != Kind::Plain {
            let salt = if self.opened { self.salts.0 } else { self.salts.1 };
            let hello = Chunk::Hello { connection: self.ours, salt, window: self.settings.holds };
            let mut to = Writer::new(room);
            write(&mut to, &hello);
            said = to.finish().ok()?;
        }
        let goodbye = self.goodbyes.filter(|(_, left)| *left > 0);
        if let Some((ending, left)) = goodbye {
            let mut to = Writer::new(room.get_mut(said..)?);
            write(&mut to, &Chunk::Close(ending));
            said += to.finish().ok()?;
            self.goodbyes = Some((ending, left - 1));
        }
        // who opens says its hello with what it has to say, and not by itself
        let wants = goodbye.is_some() || self.channel.wants_transmit(now);
        if !wants {
            // what is paced, or limited, is noted
            let nothing = self.channel.poll_transmit(now, room, 0);
            debug_assert!(nothing.is_none(), "it wanted nothing");
            return None;
        }
        let made = self.channel.poll_transmit(now, room, said)?;
        self.said += (HEADER + made.chunks + made.segment.len as usize + TAG) as u64;
        let connection = if kind == Kind::Open { 0 } else { self.theirs };
        let header =
            Header { kind, generation: 0, epoch: self.epoch, connection, number: made.number as u32 };
        Some(Datagram { header, number: made.number, chunks: made.chunks, segment: made.segment })
    }

    /// A timer may be due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.channel.handle_timeout(now);
    }

    /// When the next timer is due.
    pub fn due(&self) -> Time {
        match self.state {
            State::Ended(_) => Time::MAX,
            _ => self.channel.due(),
        }
    }

    /// What the other side does not have of what was given.
    pub fn undelivered(&self) -> Vec<core::ops::Range<u64>> {
        self.channel.undelivered()
    }
}
