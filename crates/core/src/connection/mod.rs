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

mod change;
mod stage;
#[cfg(test)]
mod tests;
mod values;

use self::change::NoUser;
use self::stage::Stage;
use crate::control::courier::Patience;
use crate::control::{self, Admit, Changeover, Courier, Epoch, Side};
use crate::micro::{
    Arrived, Composition, Known, Limits, NEVER, Received, Segment, Shared, Time, Transmit, User,
};
use crate::values::Register;
use crate::wire::codec::Writer;
use crate::wire::datagram::{Chunk, Chunks, Ending, HEADER, Header, Kind, SALT, TAG, write};
use alloc::collections::VecDeque;

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
    /// It stays as it begins: what the other side proposes is refused.
    pub fixed: bool,
}

/// A datagram's number, which it has alone under the keys of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    /// Among those of its composition.
    pub number: u64,
    /// Which composition that is: how many there were before it, times 256, and its epoch. One that comes to nothing, and by which something was
    /// said all the same, has another epoch than what is tried in its place.
    pub changes: u32,
}

/// What has become of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// This composition is in force.
    Changed(Composition),
    /// This side's proposal came to nothing.
    Refused(Composition, control::Refusal),
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
    pub number: Number,
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
    /// The composition in force; while it changes, the old one.
    current: Stage,
    /// The one that takes its place.
    next: Option<Stage>,
    /// That has this side's new bytes, and what of the old one's is not there.
    flipped: bool,
    rescued: bool,
    changeover: Changeover<Composition>,
    courier: Courier,
    news: VecDeque<News>,
    broken: Option<&'static str>,
    /// Values that were given and are not known to have come, by a channel that is none for values any more.
    returned: VecDeque<Register>,
    /// Bytes of the datagrams with values that left by channels that are over.
    values_before: u64,
    /// It is not known that the other side, which answered, has seen this one where it answered to.
    unseen: bool,
    /// What it asked by CHALLENGE and was not told yet; and what it was asked so and has told.
    response: Option<[u8; 8]>,
    responded: Option<[u8; 8]>,
    heard: u64,
    said: u64,
    /// When something came last that counted.
    heard_at: Time,
    goodbyes: Option<(Ending, u8)>,
}

/// How long a word of the control channel may take to be confirmed, at least, in nanoseconds.
const WORD_TIME: Time = 5_000_000;
/// Bytes that are left for a word, and what goes with it.
const WORD_ROOM: usize = 128;
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
            path: Known::default(),
            lost: (0, 0),
        };
        Self {
            ours,
            theirs: 0,
            salts: ([0; SALT], [0; SALT]),
            opened,
            state: if opened { State::Opening } else { State::Answering },
            settings,
            current: Stage::new(now, Epoch::FIRST, 0, settings.composition, &limits),
            next: None,
            flipped: false,
            rescued: false,
            changeover: Changeover::new(
                if opened { Side::Opener } else { Side::Accepter },
                control::Config::default(),
                settings.composition,
            ),
            courier: Courier::new(Patience::default(), WORD_TIME),
            news: VecDeque::new(),
            broken: None,
            returned: VecDeque::new(),
            values_before: 0,
            unseen: false,
            response: None,
            responded: None,
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
        self.sending().channel.ask();
    }

    /// While it is made, what is not answered is sent again sooner than later on, when the other side's program may compute: this side or
    /// the other would give it up meanwhile.
    pub fn hurry(&mut self, hurried: bool) {
        self.current.channel.hurry(hurried);
    }

    /// What the micro-protocols of its channel know.
    pub fn shared(&self) -> &Shared {
        match &self.next {
            Some(next) if self.flipped => next.channel.shared(),
            _ => self.current.channel.shared(),
        }
    }

    /// Which composition is in force; while it changes, the old one.
    pub fn composition(&self) -> Composition {
        self.current.channel.composition()
    }

    /// What has this side's new bytes.
    fn sending(&mut self) -> &mut Stage {
        match &mut self.next {
            Some(next) if self.flipped => next,
            _ => &mut self.current,
        }
    }

    /// The new channel, once it may say something: this side sends by it, or has heard by it. Before, the change may come to nothing, and
    /// its numbers be another's.
    fn speaking_next(&mut self) -> Option<&mut Stage> {
        let flipped = self.flipped;
        self.next.as_mut().filter(|next| flipped || next.channel.shared().counters.received > 0)
    }

    fn stage(&mut self, epoch: Epoch) -> Option<&mut Stage> {
        [Some(&mut self.current), self.next.as_mut()].into_iter().flatten().find(|stage| stage.epoch == epoch)
    }

    /// When something came last that counted.
    pub fn heard_at(&self) -> Time {
        self.heard_at
    }

    /// The stream has grown to this position.
    pub fn extend(&mut self, end: u64) {
        self.sending().channel.extend(end);
    }

    /// Whether the other side has all that was given.
    pub fn is_delivered(&self) -> bool {
        self.had_upto() >= self.shared().end
    }

    /// Whether something is on its way of which it is not known whether it came.
    pub fn is_owed(&self) -> bool {
        let owes = |stage: &Stage| !stage.channel.shared().flight.is_empty();
        owes(&self.current) || self.next.as_ref().is_some_and(owes)
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
                self.current.channel.set_window(u64::from(window));
                self.unseen = true;
                true
            }
            _ => self.theirs == theirs && self.salts.1 == salt,
        }
    }

    /// The full number of a datagram of this epoch of which these are the lowest bits; none of an epoch that is not alive.
    pub fn number(&mut self, epoch: u8, low: u32) -> Option<Number> {
        let stage = self.stage(Epoch(epoch))?;
        Some(Number { number: stage.number(low), changes: stage.changes() })
    }

    /// Something came from the other side's address, of so many bytes, that may be of this connection.
    pub fn heard(&mut self, bytes: usize) {
        self.heard += bytes as u64;
    }

    /// What opened the connection came again, from elsewhere: who is there now has been sent nothing yet. Until the other side has shown where it
    /// is, nobody knows which is right.
    pub fn moved(&mut self) {
        (self.heard, self.said) = (0, 0);
    }

    /// Whether a datagram of this epoch and number is newer than all that came by it: where it comes from, the other side is, or was last.
    pub fn is_newest(&mut self, epoch: u8, number: u64) -> bool {
        self.stage(Epoch(epoch)).is_some_and(|stage| stage.is_newest(number))
    }

    /// Makes a datagram that asks, by these bytes, whether the other side is where it is sent to. None: not now, or there is no room.
    pub fn challenge(&mut self, now: Time, token: [u8; 8], room: &mut [u8]) -> Option<Datagram> {
        if self.state != State::Up {
            return None;
        }
        let mut to = Writer::new(room);
        write(&mut to, &Chunk::Challenge(token));
        let said = to.finish().ok()?;
        Some(self.words_alone(now, Kind::Plain, said))
    }

    /// What the other side has answered to a challenge.
    pub fn poll_response(&mut self) -> Option<[u8; 8]> {
        self.responded.take()
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
        let epoch = Epoch(header.epoch);
        let admit = self.changeover.admit(epoch);
        let Some(stage) = self.stage(epoch) else { return Ok(()) };
        let (mut elicits, mut data, mut values) = (false, false, false);
        for chunk in Chunks::new(content) {
            let chunk = chunk.map_err(|_| MALFORMED)?;
            elicits |= !matches!(chunk, Chunk::Ack(_) | Chunk::Close(_) | Chunk::WordsHad { .. });
            data |= matches!(chunk, Chunk::Stream { .. });
            values |= matches!(chunk, Chunk::Value(_));
        }
        // what is not taken is not acknowledged
        if data && admit == Admit::Drop || values && !user.takes_values() {
            return Ok(());
        }
        let arrived = Arrived { number, size: size as u32, elicits, marked };
        if stage.channel.handle_arrival(now, &arrived) == Received::Dropped {
            return Ok(());
        }
        stage.note(number);
        self.heard_at = now;
        if matches!(header.kind, Kind::Plain | Kind::Sealed) {
            self.unseen = false;
            if self.state == State::Answering {
                self.state = State::Up;
            }
        }
        for chunk in Chunks::new(content).flatten() {
            self.handle_chunk(now, epoch, &chunk, user);
        }
        self.look_at_changes(now, user)?;
        if self.next.is_some() {
            self.look_for_the_dead(now, user);
        }
        let broken = |stage: &Stage| stage.channel.shared().broken;
        let contradicts = broken(&self.current).or_else(|| self.next.as_ref().and_then(broken));
        self.broken.or(contradicts).map_or(Ok(()), Err)
    }

    fn handle_chunk<U: User>(&mut self, now: Time, epoch: Epoch, chunk: &Chunk<'_>, user: &mut U) {
        match *chunk {
            Chunk::Ack(ack) => {
                if let Some(stage) = self.stage(epoch) {
                    stage.channel.handle_ack(&ack);
                }
            }
            // what the channel before lacked counts as its own
            Chunk::Stream { rescued: true, pos, bytes } => {
                if self.current.epoch != epoch && self.changeover.admit(self.current.epoch) == Admit::Deliver
                {
                    self.current.channel.handle_stream(pos, bytes, user);
                }
            }
            Chunk::Stream { rescued: false, pos, bytes } => {
                if let Some(stage) = self.stage(epoch) {
                    stage.channel.handle_stream(pos, bytes, user);
                }
            }
            Chunk::Word { order, bytes } => self.courier.handle_word(order, bytes),
            Chunk::WordsHad { order } => self.courier.handle_ack(now, order),
            Chunk::Close(ending) => self.state = State::Ended(ending),
            // values have no turn: the newest counts, by whichever channel
            Chunk::Value(value) => {
                if let Some(stage) = self.stage(epoch) {
                    stage.channel.handle_value(&value, user);
                }
            }
            Chunk::Challenge(token) => self.response = Some(token),
            Chunk::Response(token) => self.responded = Some(token),
            Chunk::Ping | Chunk::Hello { .. } => {}
        }
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
        if kind == Kind::Plain {
            self.be_seen();
        }
        let (said, must) = self.write_words(now, kind, room)?;
        if self.goodbyes.is_some() {
            // nothing of the stream goes along: whose memory it is in may be gone
            return must.then(|| self.words_alone(now, kind, said));
        }
        self.poll_stage(now, kind, room, said, must)
    }

    /// Before the other side has seen this one it may be able to say nothing, and not all channels ask again for what was lost.
    fn be_seen(&mut self) {
        if self.unseen && !self.is_owed() {
            self.sending().channel.ask();
        }
    }

    /// Writes what this side says besides its channels: how many bytes, and whether a datagram has to leave for that.
    fn write_words(&mut self, now: Time, kind: Kind, room: &mut [u8]) -> Option<(usize, bool)> {
        let mut must = false;
        let mut to = Writer::new(room);
        if kind != Kind::Plain {
            let salt = if self.opened { self.salts.0 } else { self.salts.1 };
            write(&mut to, &Chunk::Hello { connection: self.ours, salt, window: self.settings.holds });
        } else {
            while to.room() >= WORD_ROOM
                && let Some((order, bytes)) = self.courier.poll_transmit(now)
            {
                write(&mut to, &Chunk::Word { order, bytes });
                must = true;
            }
            if let Some(order) = self.courier.poll_ack() {
                write(&mut to, &Chunk::WordsHad { order });
                must = true;
            }
            if let Some(token) = self.response.take() {
                write(&mut to, &Chunk::Response(token));
                must = true;
            }
        }
        if let Some((ending, left)) = self.goodbyes.filter(|(_, left)| *left > 0) {
            write(&mut to, &Chunk::Close(ending));
            self.goodbyes = Some((ending, left - 1));
            must = true;
        }
        Some((to.finish().ok()?, must))
    }

    /// Has a channel make the datagram: the old one as long as it has something, then the new one.
    fn poll_stage(
        &mut self,
        now: Time,
        kind: Kind,
        room: &mut [u8],
        said: usize,
        must: bool,
    ) -> Option<Datagram> {
        let old = self.current.channel.wants_transmit(now);
        let new = self.speaking_next().is_some_and(|next| next.channel.wants_transmit(now));
        let stage = match &mut self.next {
            Some(next) if self.flipped && (must || !old) => next,
            Some(next) if new && !must && !old => next,
            _ => &mut self.current,
        };
        // where nothing is to leave this notes why, too
        let made = stage.channel.poll_transmit(now, room, said, must)?;
        let epoch = stage.epoch;
        Some(self.datagram(kind, epoch, &made))
    }

    fn words_alone(&mut self, now: Time, kind: Kind, chunks: usize) -> Datagram {
        let stage = self.sending();
        let number = stage.channel.note_words(now, (HEADER + chunks + TAG) as u32);
        let epoch = stage.epoch;
        self.datagram(
            kind,
            epoch,
            &Transmit { number, chunks, segment: Segment::default(), probes_path: false },
        )
    }

    /// The other side is known to have this side's stream up to here, though it has not said so: what it does shows it.
    pub fn assume_had(&mut self, upto: u64) {
        self.current.channel.assume_had(upto);
    }

    fn datagram(&mut self, kind: Kind, epoch: Epoch, made: &Transmit) -> Datagram {
        self.said += (HEADER + made.chunks + made.segment.len as usize + TAG) as u64;
        let changes = self.stage(epoch).map_or(0, |stage| stage.changes());
        let connection = if kind == Kind::Open { 0 } else { self.theirs };
        let header = Header { kind, generation: 0, epoch: epoch.0, connection, number: made.number as u32 };
        let number = Number { number: made.number, changes };
        Datagram { header, number, chunks: made.chunks, segment: made.segment }
    }

    /// Of so many datagrams the path lost so many, as another connection by it found.
    pub fn tell_losses(&mut self, sent: u64, lost: u64) {
        self.current.channel.tell_losses(sent, lost);
    }

    /// A timer may be due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.current.channel.handle_timeout(now);
        if let Some(next) = &mut self.next {
            next.channel.handle_timeout(now);
            self.look_for_the_dead(now, &mut NoUser);
        }
        self.be_seen();
        let rtt = self.shared().rtt;
        if rtt.smoothed > 0 {
            self.courier.handle_rto(WORD_TIME.max(rtt.smoothed + 4 * rtt.variation));
        }
        self.courier.handle_timeout(now);
        self.changeover.handle_timeout(now);
        if self.courier.has_failed() {
            self.changeover.handle_control_failed();
        }
        self.follow(now, &mut NoUser);
    }

    /// When the next timer is due.
    pub fn due(&self) -> Time {
        // who may say nothing waits for the other side; who has said goodbye for nobody
        if matches!(self.state, State::Ended(_))
            || self.goodbyes.is_some()
            || self.allowance() < (HEADER + LEAST + TAG) as u64
        {
            return NEVER;
        }
        let speaks = |next: &&Stage| self.flipped || next.channel.shared().counters.received > 0;
        let next = self.next.as_ref().filter(speaks).map_or(NEVER, |next| next.channel.due());
        let words = [self.courier.due(), self.changeover.due()].into_iter().flatten().min().unwrap_or(NEVER);
        self.current.channel.due().min(next).min(words)
    }
}
