//! A connection, whichever side opened it, against a peer that has its keys and says anything in any order, while time passes and its
//! driver does what drivers do: it neither panics nor grows, gives on nothing twice or out of turn, and ends with who breaks the protocol.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_core::connection::{AMPLIFY, Connection, Settings, State};
use polyrail_core::micro::{Composition, NEVER, Time};
use polyrail_core::ranges;
use polyrail_core::wire::codec::Writer;
use polyrail_core::wire::datagram::{
    AckHead, Chunk, Chunks, Ending, HEADER, Header, Kind, Part, TAG, Value, write, write_ack, write_stream,
    write_value,
};
use polyrail_core::wire::repair::Code;
use polyrail_fuzz::Input;

const KINDS: [Kind; 4] = [Kind::Plain, Kind::Sealed, Kind::Open, Kind::Answer];
const ENDINGS: [Ending; 3] = [Ending::GivenUp, Ending::Orderly, Ending::Gone];
const SIZE: u32 = 1452;
/// All that is sent, so that what leaves at once is bounded, too.
const MOST: u64 = 1 << 20;
const HOUR: Time = 3_600_000_000_000;
const AT_ONCE: usize = 8192;

struct Driver {
    connection: Connection,
    holds: u64,
    now: Time,
    /// The highest number that came, as far as one was made up.
    newest: u64,
    given: u64,
    delivered: u64,
    heard: u64,
    said: u64,
    over: bool,
    orders: u8,
    /// The newest of the values that were put.
    iteration: u64,
}

impl Driver {
    fn new(mode: u8) -> Self {
        // by one that relies on the network none is begun: it sends as much at once as a peer's window lets it, byte by byte if need be
        let mut all = Composition::ALL.iter().filter(|one| !one.needs_reliable_network()).cycle();
        let composition = *all.nth(usize::from(mode / 2)).expect("there are some");
        let holds = 1 << (8 + 2 * (mode / 32));
        let settings = Settings { composition, size: SIZE, holds, fixed: mode & 2 != 0 };
        let now = 1_000_000_000;
        let connection = match mode & 1 {
            0 => Connection::open(now, 7, [1; 16], settings),
            _ => Connection::answer(now, (7, [2; 16]), (9, [1; 16], 1 << 20), settings),
        };
        let holds = u64::from(holds);
        Self {
            connection,
            holds,
            now,
            newest: 0,
            given: 0,
            delivered: 0,
            heard: 0,
            said: 0,
            over: false,
            orders: 0,
            iteration: 0,
        }
    }

    /// A datagram comes that is authentic.
    fn hear(&mut self, kind: Kind, step: u8, epoch: u8, content: &[u8], marked: bool) {
        let number = match step {
            0..128 => self.newest + u64::from(step),
            128..192 => self.newest.saturating_sub(u64::from(step) - 127),
            _ => self.newest + (u64::from(step) << 20),
        };
        let header = Header { kind, generation: 0, epoch, connection: 7, number: number as u32 };
        let Some(number) = self.connection.number(header.epoch, header.number) else { return };
        let number = number.number;
        let size = HEADER + content.len() + TAG;
        if kind == Kind::Open {
            self.connection.heard(size);
            self.heard += size as u64;
        }
        let delivered = &mut self.delivered;
        let mut user = |bytes: &[u8]| *delivered += bytes.len() as u64;
        let before = self.connection.shared().counters;
        let heard =
            self.connection.handle_datagram(self.now, (&header, number), content, (size, marked), &mut user);
        let malformed = Chunks::new(content).any(|chunk| chunk.is_err());
        if malformed {
            assert!(heard.is_err());
            assert_eq!(self.connection.shared().counters, before, "nothing of it counts");
        }
        self.newest = self.newest.max(number);
        self.over |= heard.is_err() || matches!(self.connection.state(), State::Ended(_));
    }

    fn poll(&mut self) {
        let mut room = [0; SIZE as usize - HEADER - TAG];
        for n in 0.. {
            let Some(made) = self.connection.poll_datagram(self.now, &mut room) else { break };
            let end = made.chunks + made.segment.len as usize;
            assert!(end <= room.len() && made.segment.end() <= self.given);
            room[made.chunks..end].fill(0x55);
            assert!(Chunks::new(&room[..end]).all(|chunk| chunk.is_ok()), "it is well-formed");
            self.said += (HEADER + end + TAG) as u64;
            assert!(n < AT_ONCE, "it sends for ever");
            if self.connection.state() == State::Answering {
                assert!(self.said <= AMPLIFY * self.heard);
            }
        }
    }

    fn check(&self) {
        let shared = self.connection.shared();
        assert_eq!(self.connection.received_upto(), self.delivered, "in order, each once");
        assert!(shared.held as u64 <= self.holds);
        assert!(shared.came.len() <= ranges::MAX);
        let counted = shared.counters;
        assert!(shared.flight.remembered() as u64 <= counted.sent && counted.spurious <= counted.lost);
        assert!(counted.lost <= counted.sent && shared.again.count() <= self.given);
        assert!(shared.fresh <= shared.end && shared.had.iter().all(|range| range.end <= shared.end.max(1)));
    }

    /// No more at once than a driver sleeps: within what an input says, time stays far from its end.
    fn pass(&mut self, time: Time) {
        self.now += time.min(HOUR);
        self.connection.handle_timeout(self.now);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let mut room = [0; 2048];
        let mut to = Writer::new(&mut room);
        let shared = self.connection.shared();
        let (delivered, next) = (shared.delivered, shared.flight.next() as u32);
        match input.byte() % 19 {
            // anything
            0 => {
                let (kind, step, epoch) =
                    (KINDS[usize::from(input.byte()) % 4], input.byte(), input.byte() % 5);
                let len = usize::from(u16::from_le_bytes(input.array()) % 1400);
                let content = input.bytes(len);
                return self.hear(kind, step, epoch, content, len % 7 == 0);
            }
            // parts of the stream about where they have their turn
            1 => {
                let step = input.byte();
                for _ in 0..input.byte() % 64 {
                    let at = u64::from(u16::from_le_bytes(input.array()));
                    let len = usize::from(input.byte());
                    let pos = (delivered + at).saturating_sub(64);
                    if to.room() > 300 {
                        write_stream(&mut to, at % 9 == 0, pos, len as u16);
                        to.bytes(&[0; 255][..len]);
                    }
                }
                let len = to.finish().unwrap_or(0);
                return self.hear(Kind::Plain, step, 0, &room[..len], false);
            }
            // acknowledgements of what may have been sent
            2 => {
                let (step, back) = (input.byte(), input.byte());
                let head = AckHead {
                    delay: u16::from_le_bytes(input.array()),
                    largest: next.wrapping_sub(u32::from(back)).wrapping_add(u32::from(back == 255)),
                    below: u16::from(input.byte()),
                    marked: u16::from(input.byte()),
                };
                let ranges: Vec<(u16, u16)> = input
                    .bytes(usize::from(step % 8))
                    .iter()
                    .map(|byte| (u16::from(byte / 16) + 1, u16::from(byte % 16) + 1))
                    .collect();
                write_ack(&mut to, &head, ranges.iter().copied());
                let len = to.finish().unwrap_or(0);
                return self.hear(Kind::Plain, step, 0, &room[..len], false);
            }
            3 => {
                let ending = ENDINGS[usize::from(input.byte()) % 3];
                write(&mut to, &Chunk::Close(ending));
                let len = to.finish().unwrap_or(0);
                return self.hear(Kind::Plain, 1, 0, &room[..len], false);
            }
            4 => self.pass(u64::from(input.byte()) * 100_000),
            5 => self.pass(u64::from(input.byte()) * 100_000_000),
            // as drivers do: up to when something is due
            6 | 7 => {
                let due = self.connection.due();
                if due != NEVER {
                    self.pass(due.saturating_sub(self.now));
                }
            }
            8 | 9 => self.poll(),
            10 => {
                self.given = (self.given + u64::from(u16::from_le_bytes(input.array()))).min(MOST);
                self.connection.extend(self.given);
            }
            11 => self.connection.ask(),
            // a change of this side's
            14 => {
                let to = Composition::ALL[usize::from(input.byte()) % Composition::ALL.len()];
                let _ = self.connection.propose(self.now, to);
            }
            // words of the control channel
            15 | 16 => {
                let (step, epoch) = (input.byte(), input.byte() % 8);
                let (order, len) = (u16::from(self.orders), usize::from(input.byte() % 24));
                self.orders = self.orders.wrapping_add(1);
                write(&mut to, &Chunk::Word { order, bytes: input.bytes(len) });
                let len = to.finish().unwrap_or(0);
                return self.hear(Kind::Plain, step, epoch, &room[..len], false);
            }
            // values of this side's, and parts of the other's
            17 => {
                let (tag, len) =
                    (u64::from(input.byte() % 4), usize::from(u16::from_le_bytes(input.array())));
                self.iteration += 1;
                let _ = self.connection.put_value(self.now, tag, self.iteration, &vec![7; len % 5000]);
                while self.connection.poll_returned().is_some() {}
            }
            18 => {
                let (step, epoch) = (input.byte(), input.byte() % 8);
                let (tag, iteration) = (u64::from(input.byte() % 4), u64::from(input.byte()));
                let len = 2 * usize::from(input.byte());
                let bytes = input.bytes(len);
                let (offset, more) = (u32::from(input.byte()), u32::from(input.byte()));
                let total = if bytes.is_empty() { 0 } else { offset + bytes.len() as u32 + more };
                let offset = if bytes.is_empty() { 0 } else { offset };
                // a repair where its code has one, often with bytes of no use
                let part = match (more, Code::of(4 * bytes.len(), bytes.len())) {
                    (0..64, Some(_)) => Part::Repair(offset as u16 % 32),
                    _ => Part::At(offset),
                };
                let total = if part == Part::At(offset) { total } else { 4 * bytes.len() as u32 };
                write_value(&mut to, &Value { tag, iteration, total, part, bytes });
                let len = to.finish().unwrap_or(0);
                return self.hear(Kind::Plain, step, epoch, &room[..len], false);
            }
            12 => {
                let (theirs, salt) = (u32::from(input.byte() % 3), [input.byte() % 3; 16]);
                let window = u32::from_le_bytes(input.array());
                if self.connection.is_opened() {
                    self.connection.answered(theirs, salt, window);
                }
            }
            _ => self.connection.close(ENDINGS[usize::from(input.byte()) % 3]),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut driver = Driver::new(input.byte());
    while !input.0.is_empty() && !driver.over {
        driver.step(&mut input);
        driver.check();
    }
    // who is left alone has nothing to send for ever
    for _ in 0..64 {
        driver.poll();
        let due = driver.connection.due();
        if due == NEVER || driver.over {
            break;
        }
        driver.pass(due.saturating_sub(driver.now).max(1));
        driver.check();
    }
    let _ = format!("{:?}", driver.connection.state());
});
