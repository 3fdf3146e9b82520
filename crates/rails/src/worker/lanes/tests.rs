//! A session whose second lane is agreed on by words, between two workers that take each other for other hosts'.

use super::*;
use crate::config;
use crate::list::RailSet;
use crate::rail::{LaneRail, LinkId, Rail, RawIov};
use crate::worker::{Event, EventKind, Issued, User, Worker};
use polyrail_core::frame::Matching;
use polyrail_core::proto::{Delivery, Filter};
use polyrail_core::wire::HostId;

/// How long anything may take before it counts as a hang.
const BOUND: Duration = Duration::from_secs(60);
const LEN: usize = 4 << 20;

/// Two workers with a session, begun by `a` over TCP.
struct Pair {
    a: Worker,
    b: Worker,
    to_b: PeerIdx,
    to_a: PeerIdx,
}

fn both(a: &mut Worker, b: &mut Worker, what: &str, mut holds: impl FnMut(&mut Worker, &mut Worker) -> bool) {
    let start = Instant::now();
    while !holds(a, b) {
        a.progress();
        b.progress();
        assert!(start.elapsed() < BOUND, "never happens: {what}");
    }
}

impl Pair {
    fn new() -> Self {
        Self::where_encrypts([false; 2])
    }

    fn where_encrypts(encrypt: [bool; 2]) -> Self {
        let rails = RailSet::NONE.with(RailId::Tcp).with(RailId::Trial);
        let config =
            |encrypt| config::Config { rails, encrypt, linger: Duration::ZERO, ..config::Config::default() };
        let [mut a, mut b] = encrypt.map(|encrypt| Worker::open(config(encrypt)).expect("a worker"));
        let to_b = a.peer(&b.address()).expect("an address");
        let to_a = b.peer(&a.address()).expect("an address");
        a.connect(to_b).expect("it calls");
        // from here on it takes the other for another host's: there may be lanes
        a.wireup.host = HostId(1);
        both(&mut a, &mut b, "a session", |a, b| a.is_connected(to_b) && b.is_connected(to_a));
        Self { a, b, to_b, to_a }
    }

    /// A pair of one host, with one lane.
    fn with_one_lane() -> Self {
        let rails = RailSet::NONE.with(RailId::Tcp);
        let config = config::Config { rails, linger: Duration::ZERO, ..config::Config::default() };
        let mut a = Worker::open(config.clone()).expect("a worker");
        let mut b = Worker::open(config).expect("a worker");
        let to_b = a.peer(&b.address()).expect("an address");
        let to_a = b.peer(&a.address()).expect("an address");
        Self { a, b, to_b, to_a }
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Worker, &Worker) -> bool) {
        both(&mut self.a, &mut self.b, what, |a, b| holds(a, b));
    }

    /// Sends a long message, which is to arrive as it was.
    fn send(&mut self, seed: u8) {
        let mut sent: Vec<u8> = (0..LEN).map(|at| (at / 1000) as u8 ^ seed).collect();
        let mut got = vec![0; LEN];
        let iov = |bytes: &mut [u8]| RawIov { base: bytes.as_mut_ptr(), len: bytes.len() };
        let any = Filter { source: None, matching: Matching::Tag(0), ignore: u64::MAX };
        // SAFETY: both buffers outlive the events, which are waited for.
        unsafe {
            self.b.recv(any, &[iov(&mut got)], User::default());
            let (tag, how) = (Matching::Tag(1), Delivery::Delivered);
            self.a.send(self.to_b, tag, None, how, &[iov(&mut sent)], User::default()).expect("a peer");
        }
        let mut left = 2;
        both(&mut self.a, &mut self.b, "a message", |a, b| {
            for event in [a.next_event(), b.next_event()].into_iter().flatten() {
                assert!(event.error.is_none(), "{event:?}");
                left -= usize::from(matches!(event.kind, EventKind::Send | EventKind::Recv));
            }
            left == 0
        });
        assert!(sent == got);
    }

    /// Both have so many lanes.
    fn have(&mut self, lanes: usize) {
        let (to_a, to_b) = (self.to_a, self.to_b);
        let what = format!("{lanes} lanes");
        self.until(&what, |a, b| a.lanes(to_b).len() == lanes && b.lanes(to_a).len() == lanes);
    }

    /// Sends until a lane has been asked for and the word has left; the other side has not looked since.
    fn ask(&mut self) {
        let to_b = self.to_b;
        let start = Instant::now();
        let lanes =
            |a: &Worker| a.core.peers[to_b.0 as usize].lanes.as_ref().map(|lanes| lanes.words.deadline());
        self.a.session(to_b, |session, traffic, outlet| session.tick(0, true, traffic, outlet));
        self.a.follow(to_b);
        while lanes(&self.a).flatten().is_none() {
            self.a.progress();
            assert!(start.elapsed() < BOUND, "no lane is asked for");
        }
        self.a.push();
        assert_eq!(self.a.rails.trial.rail.proposed.len(), 1);
    }
}

#[test]
fn where_one_side_wants_encryption_no_lane_goes_without() {
    for encrypt in [[true, false], [false, true]] {
        let mut pair = Pair::where_encrypts(encrypt);
        let refused = pair.b.strangers().clone();
        (1..8).for_each(|seed| pair.send(seed));
        pair.have(1);
        assert!(pair.a.lanes(pair.to_b)[0].encrypted && pair.b.lanes(pair.to_a)[0].encrypted);
        assert!(pair.a.rails.trial.rail.proposed.is_empty(), "{encrypt:?}: nothing is asked for");
        assert_eq!(*pair.b.strangers(), refused);
    }
}

#[test]
fn a_lane_agreed_on_by_words_carries_its_part_and_goes_on_alone() {
    let mut pair = Pair::new();
    pair.send(1);
    pair.have(2);
    assert!(pair.a.rails.trial.rail.proposed.is_empty(), "it has come about");
    let numbers: Vec<u16> = pair.a.lanes(pair.to_b).iter().map(|lane| lane.number).collect();
    assert_eq!((numbers[0], pair.b.lanes(pair.to_a)[1].number), (0, numbers[1]));
    let before = pair.a.lanes(pair.to_b)[1].delivered;
    // how fast a lane is found to be is a matter of whose turn the processors are
    let start = Instant::now();
    while pair.a.lanes(pair.to_b)[1].delivered <= before + (1 << 20) {
        pair.send(2);
        assert!(start.elapsed() < BOUND, "it carries next to nothing");
    }
    pair.a.rails.tcp.cut(LinkId(0));
    pair.have(1);
    (12..15).for_each(|seed| pair.send(seed));
    assert_eq!(pair.a.lanes(pair.to_b)[0].number, numbers[1]);
}

#[test]
fn an_answer_that_comes_too_late_is_taken_back_and_the_next_attempt_holds() {
    let mut pair = Pair::new();
    pair.ask();
    let (to_a, start) = (pair.to_a, Instant::now());
    while pair.b.lanes(to_a).len() < 2 {
        pair.b.progress();
        assert!(start.elapsed() < BOUND, "it lets the lane in");
    }
    // the one that asked has given up in the meantime
    pair.a.look_at_words(pair.to_b, u64::MAX);
    assert!(pair.a.rails.trial.rail.proposed.is_empty());
    let number = pair.b.lanes(to_a)[1].number;
    pair.until("the end of that lane", |_, b| b.lanes(to_a).iter().all(|lane| lane.number != number));
    assert!(pair.a.is_connected(pair.to_b) && pair.b.is_connected(to_a));
    pair.send(1);
    pair.have(2);
    pair.send(2);
}

#[test]
fn nothing_stays_of_what_was_asked_for_when_the_session_ends() {
    let mut pair = Pair::new();
    pair.ask();
    pair.a.gone(pair.to_b, "enough of it".into());
    assert!(pair.a.rails.trial.rail.proposed.is_empty());
    let to_a = pair.to_a;
    pair.until("the end on the other side", |_, b| !b.is_connected(to_a));
    assert!(pair.b.lanes(to_a).is_empty());
}

/// Messages that are lent to the lane that takes them; their bytes, and how many events told that they were sent.
struct Lending {
    bytes: Vec<Vec<u8>>,
    sent: Vec<usize>,
}

const LENT: usize = 32 << 10;

fn message(n: usize) -> Vec<u8> {
    (0..LENT).map(|at| (at / 100) as u8 ^ n as u8).collect()
}

impl Lending {
    fn new(pair: &mut Pair, count: usize) -> Self {
        let mut this = Self { bytes: (0..count).map(message).collect(), sent: vec![0; count] };
        for (n, bytes) in this.bytes.iter_mut().enumerate() {
            let iov = RawIov { base: bytes.as_mut_ptr(), len: LENT };
            let (tag, user) = (Matching::Tag(n as u64), User { context: n as u64, flags: 0 });
            // SAFETY: the bytes stay, as they are until the event.
            let issued = unsafe { pair.a.send(pair.to_b, tag, None, Delivery::Sent, &[iov], user) };
            assert!(matches!(issued, Ok(Issued::Pending(_))), "{issued:?}");
        }
        this
    }

    /// The memory of what was sent is the user's again, who writes to it.
    fn hear(&mut self, a: &mut Worker) {
        for event in std::iter::from_fn(|| a.next_event()) {
            assert!(event.error.is_none(), "{event:?}");
            self.ends(&event);
        }
    }

    fn ends(&mut self, event: &Event) {
        assert!(event.kind == EventKind::Send, "{event:?}");
        let n = event.user.context as usize;
        self.bytes[n].fill(0xee);
        self.sent[n] += 1;
    }

    fn is_sent(&self) -> bool {
        self.sent.iter().all(|events| *events > 0)
    }

    /// All arrive as they were.
    fn receive(&mut self, pair: &mut Pair) {
        let mut got = vec![vec![0; LENT]; self.bytes.len()];
        for (n, bytes) in got.iter_mut().enumerate() {
            let filter = Filter { source: None, matching: Matching::Tag(n as u64), ignore: 0 };
            // SAFETY: the bytes stay until the event.
            unsafe {
                pair.b.recv(filter, &[RawIov { base: bytes.as_mut_ptr(), len: LENT }], User::default());
            }
        }
        let mut left = got.len();
        both(&mut pair.a, &mut pair.b, "all messages", |a, b| {
            self.hear(a);
            left -= std::iter::from_fn(|| b.next_event()).filter(|e| e.error.is_none()).count();
            left == 0 && self.is_sent()
        });
        for (n, got) in got.iter().enumerate() {
            assert!(*got == message(n), "message {n} is not as it was sent");
        }
        (0..1000).for_each(|_| _ = pair.a.progress());
        self.hear(&mut pair.a);
        assert!(self.sent.iter().all(|events| *events == 1), "{:?}", self.sent);
    }
}

#[test]
fn who_polls_gets_lent_memory_back_whatever_the_peer_does() {
    for encrypt in [false, true] {
        let mut pair = Pair::where_encrypts([encrypt; 2]);
        for count in [1, 8] {
            let mut lending = Lending::new(&mut pair, count);
            let (copied, start) = (pair.a.counts().copied, Instant::now());
            while !lending.is_sent() {
                pair.a.progress();
                lending.hear(&mut pair.a);
                assert!(start.elapsed() < BOUND, "it waits for the peer");
            }
            assert!(pair.a.counts().copied > copied, "nothing was lent");
            lending.receive(&mut pair);
        }
    }
}

#[test]
fn who_goes_to_sleep_gets_lent_memory_back() {
    let mut pair = Pair::new();
    pair.send(1);
    pair.a.settle();
    let mut lending = Lending::new(&mut pair, 8);
    assert!(!pair.a.arm(), "that they were sent is to be told first");
    assert!(!pair.a.core.engine.has_lent());
    lending.hear(&mut pair.a);
    // the kernel may have had room for some of them only
    let start = Instant::now();
    while !lending.is_sent() {
        pair.a.progress();
        pair.a.arm();
        assert!(!pair.a.core.engine.has_lent());
        lending.hear(&mut pair.a);
        assert!(start.elapsed() < BOUND, "it waits for the peer");
    }
    lending.receive(&mut pair);
}

#[test]
fn what_the_peer_confirms_in_time_is_not_copied() {
    let mut pair = Pair::with_one_lane();
    // the connection has room for much from then on
    pair.send(1);
    let mut lending = Lending::new(&mut pair, 32);
    assert!(pair.a.core.engine.has_lent());
    // the peer takes all of it, and says so of most, while this side only sends what waits
    let (start, mut idle) = (Instant::now(), 0);
    while pair.b.core.engine.in_flight()[2] < 32 {
        idle = if pair.b.progress() > 0 { 0 } else { idle + 1 };
        if idle > 10_000 {
            pair.a.progress();
            idle = 0;
        }
        assert!(start.elapsed() < BOUND, "the messages do not come");
    }
    pair.b.push();
    pair.a.progress();
    lending.hear(&mut pair.a);
    let (sent, copied) = (lending.sent.iter().sum::<usize>(), pair.a.counts().copied);
    assert!(sent >= 16 && copied == 0, "{sent} of 32 were sent, {copied} copied");
    lending.receive(&mut pair);
    assert!(pair.a.counts().copied <= 16);
}

/// The lane by which messages left ends before the peer has received them; their senders have been told that they were sent, or not yet.
#[test]
fn what_was_lent_to_a_lane_that_ends_arrives_as_it_was() {
    for (told, round) in [(true, 0), (false, 0), (true, 1), (false, 1)] {
        let mut pair = Pair::new();
        pair.send(1);
        pair.have(2);
        (0..round).for_each(|_| pair.send(2));
        let mut lending = Lending::new(&mut pair, 12);
        assert!(pair.a.core.engine.has_lent());
        let start = Instant::now();
        while told && !lending.is_sent() {
            pair.a.progress();
            lending.hear(&mut pair.a);
            assert!(start.elapsed() < BOUND, "it waits for the peer");
        }
        let (rail, link) = pair.a.core.lane(pair.to_b).expect("a lane");
        let number = pair.a.session(pair.to_b, |session, _, _| session.number((rail, link))).flatten();
        let lanes = pair.b.core.peers[pair.to_a.0 as usize].lanes.as_ref().expect("a session");
        let its =
            lanes.session.lanes().iter().find(|lane| Some(lane.number()) == number).expect("both have it");
        // what lies there unread is lost with it
        match its.link() {
            (RailId::Tcp, link) => pair.b.rails.tcp.reset(link),
            (_, link) => pair.b.rails.trial.reset(link),
        }
        lending.receive(&mut pair);
        let lanes = pair.a.lanes(pair.to_b);
        assert!(lanes.iter().all(|lane| Some(lane.number) != number), "it goes on");
    }
}

#[test]
fn what_was_lent_to_a_peer_that_goes_ends_once() {
    let mut pair = Pair::new();
    pair.send(1);
    let mut lending = Lending::new(&mut pair, 8);
    assert!(pair.a.core.engine.has_lent());
    pair.a.gone(pair.to_b, "enough of it".into());
    // what the connection had no room for fails, what it took does not
    let ends = std::iter::from_fn(|| pair.a.next_event()).inspect(|event| lending.ends(event));
    let failed = ends.filter(|event| event.error.is_some()).count();
    assert!(failed < 8, "none was lent");
    assert!(lending.is_sent() && !pair.a.core.engine.has_lent());
    (0..1000).for_each(|_| _ = pair.a.progress());
    lending.hear(&mut pair.a);
    assert_eq!(lending.sent, [1; 8]);
}
