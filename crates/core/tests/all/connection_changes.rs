//! Connections whose composition changes while they carry much: nothing of the stream is lost, doubled or out of order, whatever the path
//! does, and the newest value of each tag comes, or is given back.

use crate::micro_support::values::value;
use crate::micro_support::{Dice, MS, S, US, bytes_at};
use polyrail_core::connection::{Connection, News, Settings, State};
use polyrail_core::micro::{Composition, NEVER, Scheme, Time, User};
use polyrail_core::values::{Inbox, PutError, Taken, Took};
use polyrail_core::wire::datagram::{Chunk, Chunks, HEADER, Header, Kind, TAG, Value};
use proptest::prelude::*;
use std::collections::BTreeMap;

struct Flying {
    header: Header,
    content: Vec<u8>,
}

struct Side {
    connection: Connection,
    given: u64,
    had: u64,
    wrong: bool,
    changed: usize,
    refused: usize,
    /// Values: the newest that was given of each tag, and its length; the newest that has to come otherwise; those that came.
    put: BTreeMap<u64, (u64, usize)>,
    otherwise: BTreeMap<u64, u64>,
    inbox: Inbox,
    takes_values: bool,
}

impl Side {
    fn new(connection: Connection) -> Self {
        Self {
            connection,
            given: 0,
            had: 0,
            wrong: false,
            changed: 0,
            refused: 0,
            put: BTreeMap::new(),
            otherwise: BTreeMap::new(),
            inbox: Inbox::default(),
            takes_values: true,
        }
    }
}

/// Who is given what comes.
struct Reader<'a> {
    had: &'a mut u64,
    wrong: &'a mut bool,
    inbox: &'a mut Inbox,
    takes_values: bool,
}

impl User for Reader<'_> {
    fn deliver(&mut self, bytes: &[u8]) {
        *self.wrong |= bytes_at(*self.had, bytes.len()) != bytes;
        *self.had += bytes.len() as u64;
    }
    fn takes_values(&self) -> bool {
        self.takes_values
    }
    fn value(&mut self, value: &Value<'_>) {
        assert_ne!(self.inbox.take_in(0, value), Took::Broken);
    }
}

/// More happens in no schedule.
const STEPS: u64 = 3_000_000;

/// Two ends, and a path between them.
struct World {
    now: Time,
    sides: [Side; 2],
    wire: BTreeMap<(Time, u64), (usize, Flying)>,
    dice: Dice,
    count: u64,
    loss: u64,
    doubled: u64,
    reordered: u64,
    /// How many of the next of either side are lost.
    cut: [u64; 2],
    delay: Time,
    /// What a path carries each way, in bytes per second, and bytes that wait for that at most; 0: it carries anything.
    rate: u64,
    queue: u64,
    /// When what waits for either path has left.
    free: [Time; 2],
    room: Vec<u8>,
}

fn settings(composition: Composition) -> Settings {
    Settings { composition, size: 1472, holds: 1 << 20, fixed: false }
}

impl World {
    fn new(seed: u64, composition: Composition) -> Self {
        let a = Connection::open(0, 1, [1; 16], settings(composition));
        let b = Connection::answer(0, (2, [2; 16]), (1, [1; 16], 1 << 20), settings(composition));
        Self {
            now: 0,
            sides: [Side::new(a), Side::new(b)],
            wire: BTreeMap::new(),
            dice: Dice::new(seed),
            count: 0,
            loss: 0,
            doubled: 0,
            reordered: 0,
            cut: [0; 2],
            delay: MS,
            rate: 0,
            queue: 0,
            free: [0; 2],
            room: vec![0; 4096],
        }
    }

    /// When a datagram leaves that comes to a path now; none: its queue is full.
    fn leaves(now: Time, free: &mut Time, rate: u64, queue: u64, size: usize) -> Option<Time> {
        if rate == 0 {
            return Some(now);
        }
        let waits = free.saturating_sub(now);
        if waits * rate / S > queue {
            return None;
        }
        *free = now + waits + size as u64 * S / rate;
        Some(*free)
    }

    fn pump(&mut self, at: usize) {
        let side = &mut self.sides[at];
        if side.connection.due() <= self.now {
            side.connection.handle_timeout(self.now);
        }
        while let Some(made) = side.connection.poll_datagram(self.now, &mut self.room) {
            // what the other side has is not kept
            let had = side.connection.had_upto();
            assert!(
                made.segment.len == 0 || made.segment.pos >= had,
                "{:?} is sent, {had} is had",
                made.segment
            );
            let mut content = self.room[..made.chunks].to_vec();
            content.extend(bytes_at(made.segment.pos, made.segment.len as usize));
            let size = HEADER + content.len() + TAG;
            let left = Self::leaves(self.now, &mut self.free[at], self.rate, self.queue, size);
            let cut = self.cut[at] > 0;
            self.cut[at] = self.cut[at].saturating_sub(1);
            let Some(left) = left.filter(|_| !cut && !self.dice.falls(self.loss)) else { continue };
            let again = self.dice.falls(self.doubled);
            for n in 0..=u64::from(again) {
                let late = if self.dice.falls(self.reordered) { self.dice.next() % (3 * MS) } else { 0 };
                self.count += 1;
                let flying = Flying { header: made.header, content: content.clone() };
                self.wire.insert((left + self.delay + late + n * 100 * US, self.count), (at ^ 1, flying));
            }
        }
        while let Some(back) = side.connection.poll_returned() {
            let newest = side.otherwise.entry(back.tag).or_default();
            *newest = back.newest.max(*newest);
        }
        while let Some(news) = side.connection.poll_news() {
            match news {
                News::Changed(_) => side.changed += 1,
                News::Refused(..) => side.refused += 1,
            }
        }
    }

    fn arrive(&mut self, at: usize, flying: &Flying) {
        let Side { connection, had, wrong, inbox, takes_values, .. } = &mut self.sides[at];
        if flying.header.kind == Kind::Answer
            && let Some(Ok(Chunk::Hello { connection: theirs, salt, window })) =
                Chunks::new(&flying.content).next()
        {
            assert!(connection.answered(theirs, salt, window));
        }
        let size = HEADER + flying.content.len() + 16;
        connection.heard(size);
        let Some(number) = connection.number(flying.header.epoch, flying.header.number) else { return };
        let mut user = Reader { had, wrong, inbox, takes_values: *takes_values };
        let heard = connection.handle_datagram(
            self.now,
            (&flying.header, number.number),
            &flying.content,
            (size, false),
            &mut user,
        );
        assert_eq!(heard, Ok(()));
    }

    fn step(&mut self, until: Time) -> bool {
        let due = |side: &Side| side.connection.due();
        self.count += 1;
        assert!(
            self.count < STEPS,
            "it goes on for ever: {:?}",
            self.sides.each_ref().map(|s| s.connection.due())
        );
        let timer = self.sides.iter().map(due).min().unwrap_or(NEVER).max(self.now);
        let arrival = self.wire.first_key_value().map_or(NEVER, |((at, _), _)| *at);
        let next = timer.min(arrival);
        if next > until || next == NEVER {
            self.now = self.now.max(until.min(next));
            return false;
        }
        self.now = next;
        if arrival <= timer {
            let (_, (to, flying)) = self.wire.pop_first().expect("it was there");
            self.arrive(to, &flying);
            self.pump(to);
        } else {
            self.pump(0);
            self.pump(1);
        }
        true
    }

    fn run(&mut self, until: Time) {
        while self.step(until) {}
    }

    fn give(&mut self, at: usize, bytes: u64) {
        self.sides[at].given += bytes;
        let given = self.sides[at].given;
        self.sides[at].connection.extend(given);
        self.pump(at);
    }

    fn put(&mut self, at: usize, tag: u64, len: usize) {
        let (now, side) = (self.now, &mut self.sides[at]);
        let iteration = side.put.get(&tag).map_or(1, |(newest, _)| newest + 1);
        side.put.insert(tag, (iteration, len));
        match side.connection.put_value(now, tag, iteration, &value(tag, iteration, len)) {
            Ok(()) => assert_eq!(side.connection.scheme(), Scheme::Asynchronous),
            Err(why) => {
                assert_eq!(why, PutError::Synchronous);
                side.otherwise.insert(tag, iteration);
            }
        }
        self.pump(at);
    }

    /// Whether the newest values of one side came, or are to come otherwise.
    fn values_came(&mut self, of: usize) -> bool {
        let [one, other] = &mut self.sides;
        let (from, to) = if of == 0 { (one, other) } else { (other, one) };
        from.put.iter().all(|(&tag, &(newest, len))| match to.inbox.newest(tag).flatten() {
            Some(came) if came == newest => match to.inbox.take(0, tag) {
                Taken::New { bytes, .. } => bytes == value(tag, newest, len),
                _ => true,
            },
            _ => from.otherwise.get(&tag) == Some(&newest),
        })
    }

    fn all_came(&self) -> bool {
        (0..2).all(|at| self.sides[at ^ 1].had == self.sides[at].given)
    }
}

/// So many, or as many as `PROPTEST_CASES` says.
fn cases(usual: u32) -> ProptestConfig {
    match std::env::var("PROPTEST_CASES") {
        Ok(_) => ProptestConfig::default(),
        Err(_) => ProptestConfig::with_cases(usual),
    }
}

fn compositions() -> Vec<Composition> {
    let reliable = |one: &Composition| {
        [one.micro_protocols(), one.stream_micro_protocols()].concat().contains(&"ReliableFIFO")
    };
    Composition::ALL.iter().copied().filter(reliable).collect()
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn changes_are_not_noticed(
        seed: u64, loss in 0_u64..300_000, doubled in 0_u64..100_000, reordered in 0_u64..400_000,
        steps in proptest::collection::vec((0_u8..7, 0_usize..2, 1_u64..150_000, 0_usize..16, 0_u64..30), 1..40),
    ) {
        let all = compositions();
        let mut world = World::new(seed, all[seed as usize % all.len()]);
        (world.loss, world.doubled, world.reordered) = (loss, doubled, reordered);
        world.give(0, 80);
        for (what, side, bytes, which, time) in steps {
            match what {
                0 => {
                    let now = world.now;
                    let _ = world.sides[side].connection.propose(now, all[which % all.len()]);
                    world.pump(side);
                }
                1..4 => world.give(side, bytes),
                4 => world.sides[side].takes_values ^= true,
                _ => world.put(side, which as u64 % 3, bytes as usize % 20_000),
            }
            world.run(world.now + time * MS);
        }
        world.sides.iter_mut().for_each(|side| side.takes_values = true);
        let until = world.now + 2000 * S;
        while !(world.all_came() && world.sides.iter().all(|side| !side.connection.is_changing())) {
            if !world.step(until) {
                break;
            }
        }
        for at in 0..2 {
            prop_assert!(!world.sides[at].wrong);
            prop_assert_eq!(world.sides[at ^ 1].had, world.sides[at].given, "at {} s", world.now / S);
            prop_assert!(!world.sides[at].connection.is_changing(), "{} s", world.now / S);
        }
        // where nobody says which values came, the last one may be lost for good
        let told = world.sides[0].connection.composition() != Composition::AsyncIntraEth;
        while told && !(0..2).all(|of| world.values_came(of)) {
            prop_assert!(world.step(until), "the newest values do not come");
        }
        world.run(world.now + 50 * S);
        for side in &world.sides {
            let (sent, settled) = side.connection.values_on_their_way();
            prop_assert_eq!(sent, settled);
        }
        prop_assert_eq!(world.sides[0].connection.composition(), world.sides[1].connection.composition());
    }
}

/// Who answers may send three times what came, until the other side has shown that it is there: that goes on doing so while nobody says
/// that it was seen, whatever the channel does of what is lost.
#[test]
fn who_answers_may_say_all_once_the_other_side_gets_through() {
    for composition in compositions() {
        for cut in 0..30 {
            let mut world = World::new(cut, composition);
            world.give(1, 1000);
            world.give(0, 80);
            while world.sides[0].connection.state() != State::Up {
                assert!(world.step(10 * S), "{composition:?}: nobody answers");
                world.cut[0] = cut;
            }
            while !world.all_came() {
                assert!(
                    world.step(1000 * S),
                    "{composition:?}: {} came when {cut} were lost",
                    world.sides[0].had
                );
            }
        }
    }
}

/// Under one loss in a hundred, a change every few round trips: they are made, and cost little.
#[test]
fn changes_are_made_under_load() {
    let all = compositions();
    let mut world = World::new(7, Composition::SyncCubic);
    (world.loss, world.delay) = (10_000, 2 * MS);
    world.pump(0);
    world.give(0, 64 << 20);
    for n in 0..200 {
        let now = world.now;
        let _ = world.sides[n % 2].connection.propose(now, all[n % all.len()]);
        world.pump(n % 2);
        world.run(world.now + 20 * MS);
    }
    world.run(world.now + 100 * S);
    assert!(world.all_came() && !world.sides[0].wrong);
    assert!(
        world.sides[0].changed > 50,
        "{} changes, {} refused",
        world.sides[0].changed,
        world.sides[0].refused
    );
    assert_eq!(world.sides[0].changed, world.sides[1].changed);
    assert_eq!(world.sides[0].connection.state(), State::Up);
}

#[test]
fn a_side_that_stays_as_it_is_refuses() {
    let mut world = World::new(3, Composition::SyncCubic);
    let fixed = Settings { fixed: true, ..settings(Composition::SyncCubic) };
    world.sides[1].connection = Connection::answer(0, (2, [2; 16]), (1, [1; 16], 1 << 20), fixed);
    world.pump(0);
    world.give(0, 1 << 20);
    world.run(S);
    world.sides[0].connection.propose(world.now, Composition::SyncBbr).expect("it may propose");
    world.pump(0);
    world.run(world.now + 10 * S);
    assert!(world.all_came() && !world.sides[1].wrong);
    assert_eq!((world.sides[0].changed, world.sides[0].refused), (0, 1));
    assert_eq!(world.sides[1].connection.composition(), Composition::SyncCubic);
}

/// Bytes that come in ten seconds over 10 MB/s, 20 ms and one loss in a hundred, by a composition that begins anew so often.
fn comes_where_it_is_renewed(seed: u64, each: Time) -> u64 {
    const RATE: u64 = 10_000_000;
    let mut world = World::new(seed, Composition::SyncBbr);
    (world.loss, world.delay, world.rate, world.queue) = (10_000, 10 * MS, RATE, RATE / 50);
    world.pump(0);
    world.give(0, 200_000_000);
    let until = 10 * S;
    while world.now < until {
        world.run(world.now + each);
        if world.now < until && world.sides[0].connection.renew(world.now).is_ok() {
            world.pump(0);
        }
    }
    assert!(!world.sides[1].wrong);
    println!(
        "seed {seed}, each {} ms: {} bytes, {} changes",
        each / MS,
        world.sides[1].had,
        world.sides[0].changed
    );
    world.sides[1].had
}

#[test]
fn changes_cost_little_of_what_a_path_carries() {
    let sum = |each| (1..4).map(|seed| comes_where_it_is_renewed(seed, each)).sum::<u64>();
    let (alone, renewed) = (sum(10 * S), sum(100 * MS));
    assert!(renewed * 20 >= alone * 19, "{renewed} instead of {alone}");
}
