//! Two endpoints with connections, and a network between them that loses, doubles and delays by a seed. What a rail does (telling whose a
//! datagram is, and that it is authentic) is played by comparing what its tag would be made of.

use polyrail_core::connection::{Connection, Number, Settings, State};
use polyrail_core::micro::{Composition, NEVER, Time};
use polyrail_core::wire::codec::Writer;
use polyrail_core::wire::datagram::{
    AckHead, Chunk, Chunks, HEADER, Header, Kind, SALT, TAG, write, write_ack, write_stream,
};
use std::collections::BTreeMap;

pub const MS: Time = 1_000_000;
pub const S: Time = 1_000_000_000;
/// One way.
pub const DELAY: Time = 5 * MS;
const SIZE: u32 = 1452;

pub fn settings() -> Settings {
    settings_by(Composition::SyncCubic)
}

fn settings_by(composition: Composition) -> Settings {
    Settings { composition, size: SIZE, holds: 1 << 20, fixed: false }
}

/// The full number of a datagram that came; none of an epoch that is not alive.
pub fn number_of(connection: &mut Connection, header: &Header) -> Option<Number> {
    connection.number(header.epoch, header.number)
}

/// Random numbers from a seed (xorshift64*).
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// True so often in a hundred.
    pub fn falls(&mut self, percent: u64) -> bool {
        (self.next() >> 32) % 100 < percent
    }
}

/// A datagram on its way, or recorded.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Header and content.
    pub bytes: Vec<u8>,
    /// What its tag hangs on: its number, and the salts as its sender knows them.
    number: Number,
    salts: ([u8; SALT], [u8; SALT]),
}

impl Packet {
    /// What no other under the same keys may have: its nonce follows from that.
    pub fn nonce(&self) -> (u64, u32) {
        (self.number.number, self.number.changes)
    }

    pub fn header(&self) -> Header {
        Header::parse(&self.bytes).expect("a header")
    }

    pub fn content(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }

    pub fn len(&self) -> usize {
        self.bytes.len() + TAG
    }
}

/// Which byte stands at a position of a stream.
pub fn byte_at(connection: u32, pos: u64) -> u8 {
    ((pos ^ u64::from(connection) << 17).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// One end of a connection.
pub struct End {
    pub connection: Connection,
    /// How much of its stream was given to it.
    given: u64,
    /// What came of the other's.
    pub came: Vec<u8>,
    pub broken: Option<&'static str>,
    /// Bytes that left, and that came.
    pub sent: u64,
    pub heard: u64,
}

impl End {
    fn new(connection: Connection) -> Self {
        Self { connection, given: 0, came: Vec::new(), broken: None, sent: 0, heard: 0 }
    }

    pub fn give(&mut self, more: u64) {
        self.given += more;
        self.connection.extend(self.given);
    }

    /// Whether what came is so much, and right.
    pub fn has_all(&self, len: u64) -> bool {
        let other = self.connection.theirs();
        let right = (0..).zip(&self.came).all(|(pos, byte)| *byte == byte_at(other, pos));
        assert!(right, "other bytes came than were sent");
        self.came.len() as u64 == len
    }

    /// What leaves now.
    pub fn poll(&mut self, now: Time) -> Vec<Packet> {
        let mut all = Vec::new();
        let mut room = [0; SIZE as usize - HEADER];
        while let Some(made) = self.connection.poll_datagram(now, &mut room) {
            let end = made.chunks + made.segment.len as usize;
            for (pos, byte) in (made.segment.pos..).zip(&mut room[made.chunks..end]) {
                *byte = byte_at(self.connection.ours(), pos);
            }
            let bytes = [&made.header.to_bytes()[..], &room[..end]].concat();
            let packet = Packet { bytes, number: made.number, salts: *self.connection.salts() };
            self.sent += packet.len() as u64;
            all.push(packet);
            assert!(all.len() < 10_000, "it sends for ever");
        }
        all
    }

    /// An authentic datagram with this content comes, as if the other side had sent it under this number.
    pub fn hear(&mut self, now: Time, kind: Kind, number: u64, content: &[u8]) -> Result<(), &'static str> {
        self.hear_in(0, now, kind, number, content)
    }

    /// The same, in another epoch.
    pub fn hear_in(
        &mut self,
        epoch: u8,
        now: Time,
        kind: Kind,
        number: u64,
        content: &[u8],
    ) -> Result<(), &'static str> {
        let ours = self.connection.ours();
        let header = Header { kind, generation: 0, epoch, connection: ours, number: number as u32 };
        let found = number_of(&mut self.connection, &header).map(|found| found.number);
        assert_eq!(found, Some(number), "no receiver would find out that number");
        let came = &mut self.came;
        let mut user = |bytes: &[u8]| came.extend_from_slice(bytes);
        let size = HEADER + content.len() + TAG;
        self.connection.handle_datagram(now, (&header, number), content, (size, false), &mut user)
    }

    pub fn is_up(&self) -> bool {
        self.connection.state() == State::Up
    }
}

/// One endpoint: its connections, whoever opened them.
#[derive(Default)]
pub struct Endpoint {
    pub ends: Vec<End>,
    /// What it gives to a connection that is opened to it.
    pub welcome: u64,
}

/// The network.
pub struct Net {
    pub now: Time,
    /// Of each, those that it opened first.
    pub endpoints: [Endpoint; 2],
    flying: BTreeMap<(Time, u64), (usize, Packet)>,
    count: u64,
    /// All that was sent: by whom, and what.
    pub recorded: Vec<(usize, Packet)>,
    pub dice: Dice,
    /// In a hundred.
    pub loss: u64,
    pub doubled: u64,
    pub late: u64,
    /// Whether the datagram with this place among all that were sent is lost, besides.
    pub loses: Box<dyn Fn(u64) -> bool>,
    pub composition: Composition,
    next_salt: u8,
}

impl Net {
    pub fn new(seed: u64) -> Self {
        Self {
            now: S,
            endpoints: Default::default(),
            flying: BTreeMap::new(),
            count: 0,
            recorded: Vec::new(),
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            loss: 0,
            doubled: 0,
            late: 0,
            loses: Box::new(|_| false),
            composition: settings().composition,
            next_salt: 1,
        }
    }

    fn salt(&mut self) -> [u8; SALT] {
        self.next_salt += 1;
        [self.next_salt; SALT]
    }

    fn number(&self, of: usize) -> u32 {
        256 * (of as u32 + 1) + self.endpoints[of].ends.len() as u32 + 1
    }

    /// One endpoint opens a connection to the other, with so much to say; its place.
    pub fn open(&mut self, from: usize, given: u64) -> usize {
        let (salt, number) = (self.salt(), self.number(from));
        let mut end = End::new(Connection::open(self.now, number, salt, settings_by(self.composition)));
        end.give(given);
        self.endpoints[from].ends.push(end);
        self.endpoints[from].ends.len() - 1
    }

    pub fn end(&mut self, of: usize, place: usize) -> &mut End {
        &mut self.endpoints[of].ends[place]
    }

    /// What leaves everywhere, now.
    pub fn send_all(&mut self) {
        for from in 0..2 {
            let all: Vec<Packet> =
                self.endpoints[from].ends.iter_mut().flat_map(|end| end.poll(self.now)).collect();
            for packet in all {
                self.launch(from, packet);
            }
        }
    }

    fn launch(&mut self, from: usize, packet: Packet) {
        self.recorded.push((from, packet.clone()));
        let place = self.recorded.len() as u64 - 1;
        if (self.loses)(place) || self.dice.falls(self.loss) {
            return;
        }
        let copies = 1 + u32::from(self.dice.falls(self.doubled));
        for _ in 0..copies {
            let late = if self.dice.falls(self.late) { self.dice.next() % (30 * MS) } else { 0 };
            self.count += 1;
            self.flying.insert((self.now + DELAY + late, self.count), (1 - from, packet.clone()));
        }
    }

    /// A datagram comes, however it got there.
    pub fn deliver(&mut self, to: usize, packet: &Packet) {
        let (header, now) = (packet.header(), self.now);
        let hello = match Chunks::new(packet.content()).next() {
            Some(Ok(Chunk::Hello { connection, salt, window })) => Some((connection, salt, window)),
            _ => None,
        };
        let place = match header.kind {
            Kind::Open => {
                let hello = hello.expect("OPEN has its HELLO first");
                let its = |end: &End| end.connection.salts().0 == hello.1;
                let place = self.endpoints[to].ends.iter().position(its);
                Some(place.unwrap_or_else(|| self.answer(to, hello)))
                    .filter(|place| !self.endpoints[to].ends[*place].connection.is_opened())
            }
            _ => {
                let its = |end: &End| end.connection.ours() == header.connection;
                self.endpoints[to].ends.iter().position(its)
            }
        };
        let Some(place) = place else { return };
        let end = &mut self.endpoints[to].ends[place];
        match header.kind {
            Kind::Open => {
                end.connection.heard(packet.len());
                end.heard += packet.len() as u64;
            }
            Kind::Answer => {
                let (connection, salt, window) = hello.expect("ANSWER has its HELLO first");
                if end.connection.salts().0 != packet.salts.0
                    || !end.connection.answered(connection, salt, window)
                {
                    return;
                }
            }
            Kind::Plain | Kind::Sealed => {
                if *end.connection.salts() != packet.salts
                    || number_of(&mut end.connection, &header) != Some(packet.number)
                {
                    return;
                }
            }
        }
        let Some(Number { number, .. }) = number_of(&mut end.connection, &header) else { return };
        let came = &mut end.came;
        let mut user = |bytes: &[u8]| came.extend_from_slice(bytes);
        let how = (packet.len(), false);
        let heard = end.connection.handle_datagram(now, (&header, number), packet.content(), how, &mut user);
        end.broken = end.broken.or(heard.err());
    }

    fn answer(&mut self, to: usize, theirs: (u32, [u8; SALT], u32)) -> usize {
        let ours = (self.number(to), self.salt());
        let mut end = End::new(Connection::answer(self.now, ours, theirs, settings_by(self.composition)));
        end.give(self.endpoints[to].welcome);
        self.endpoints[to].ends.push(end);
        self.endpoints[to].ends.len() - 1
    }

    /// The next thing that happens, if anything does.
    pub fn step(&mut self) -> bool {
        self.send_all();
        let ends = || self.endpoints.iter().flat_map(|endpoint| &endpoint.ends);
        let due = ends().map(|end| end.connection.due()).min().unwrap_or(NEVER);
        let arrives = self.flying.keys().next().map_or(NEVER, |(at, _)| *at);
        if due == NEVER && arrives == NEVER {
            return false;
        }
        self.now = due.min(arrives).max(self.now + 1);
        while let Some(first) = self.flying.first_entry().filter(|first| first.key().0 <= self.now) {
            let (to, packet) = first.remove();
            self.deliver(to, &packet);
        }
        let now = self.now;
        for end in self.endpoints.iter_mut().flat_map(|endpoint| &mut endpoint.ends) {
            end.connection.handle_timeout(now);
        }
        true
    }

    /// Goes on until something holds, within so much time.
    pub fn until(&mut self, what: &str, within: Time, mut holds: impl FnMut(&mut Self) -> bool) {
        let (end, mut steps) = (self.now + within, 0);
        while !holds(self) {
            assert!(self.step(), "nothing happens any more, and never: {what}");
            assert!(self.now < end, "not in time: {what}");
            steps += 1;
            assert!(steps < 1_000_000, "no end: {what}");
        }
    }

    /// Goes on for so long.
    pub fn run(&mut self, time: Time) {
        let end = self.now + time;
        while self.now < end && self.step() {}
    }
}

/// A connection that is up, both ends, with nothing under way.
pub fn established() -> Net {
    let mut net = Net::new(1);
    net.open(0, 100);
    net.endpoints[1].welcome = 100;
    net.until("both have it", S, |net| {
        net.endpoints
            .iter()
            .all(|endpoint| endpoint.ends.first().is_some_and(|end| end.is_up() && end.has_all(100)))
    });
    net.run(S);
    net
}

/// Chunks as bytes.
pub fn content(with: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut room = [0; SIZE as usize];
    let mut to = Writer::new(&mut room);
    with(&mut to);
    let len = to.finish().expect("room");
    room[..len].into()
}

pub fn chunk(chunk: &Chunk<'_>) -> Vec<u8> {
    content(|to| write(to, chunk))
}

pub fn stream(pos: u64, bytes: &[u8]) -> Vec<u8> {
    content(|to| {
        write_stream(to, false, pos, bytes.len() as u16);
        to.bytes(bytes);
    })
}

pub fn ack(largest: u32, below: u16, ranges: &[(u16, u16)]) -> Vec<u8> {
    content(|to| {
        write_ack(to, &AckHead { delay: 0, largest, below, marked: 0 }, ranges.iter().copied());
    })
}
