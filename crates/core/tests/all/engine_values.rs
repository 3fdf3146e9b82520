//! Values between two engines: of each tag the newest comes, none twice and none behind a newer one, whole; little that is old is on its
//! way; nobody waits; what a peer makes up does no harm.

use polyrail_core::frame::{Frame, Matching};
use polyrail_core::proto::{Bounds, Config, Delivery, Filter, Message, PeerIdx, Place, Route, Scheme};
use polyrail_core::sim::{Bytes, Node, What};
use polyrail_core::values::{PutError, Scheme as Values, TAGS, Taken};
use polyrail_core::wire::datagram::{Part, VALUE_MOST, Value};
use proptest::prelude::*;
use std::collections::BTreeMap;

const PEER: PeerIdx = PeerIdx(0);
const ROUTE: Route =
    Route { eager_max: 100, fragment: 64, scheme: Scheme::Fragments, window: 1 << 20, immediate: false };

/// The bytes of a value follow from its tag and iteration.
fn value(tag: u64, iteration: u64, len: usize) -> Vec<u8> {
    let seed = tag.wrapping_mul(7919).wrapping_add(iteration.wrapping_mul(104_729));
    (0..len as u64).map(|at| (seed.wrapping_add(at).wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

/// Two processes, and the frames on their way between them, in the order in which they left.
struct Pair {
    ends: [Node; 2],
    ways: [Vec<(Frame, Bytes)>; 2],
    /// Frames with a part of a value that have left.
    parts: u64,
}

impl Pair {
    fn new() -> Self {
        let node = || {
            let mut node =
                Node::new(Config { window: 1 << 20, hash_seed: 1, bounds: Bounds::DEFAULT }, 1, false);
            node.engine.connected(PEER, ROUTE);
            node.engine.set_scheme(PEER, Values::Asynchronous);
            node
        };
        Self { ends: [node(), node()], ways: [vec![], vec![]], parts: 0 }
    }

    fn put(&mut self, end: usize, tag: u64, iteration: u64, len: usize) -> Result<(), PutError> {
        self.ends[end].engine.put_value(PEER, tag, iteration, &value(tag, iteration, len))
    }

    /// What may leave does; long parts, if `bulk`.
    fn leave(&mut self, end: usize, bulk: usize) {
        let node = &mut self.ends[end];
        node.settle();
        while let Some(next) = node.engine.poll_transmit(PEER, bulk) {
            let payload = node.load(PEER, &next).expect("its bytes are there");
            let header = next.frame.encode(payload.len() as usize);
            assert_eq!(Frame::parse(&header), Ok((next.frame, payload.len() as usize)));
            self.parts += u64::from(matches!(next.frame, Frame::Value { .. }));
            node.engine.transmitted(PEER, &next);
            node.settle();
            self.ways[1 - end].push((next.frame, payload));
        }
    }

    /// The frame at this place among those on their way arrives.
    fn arrive(&mut self, end: usize, at: usize) {
        let (frame, payload) = self.ways[end].remove(at);
        self.ends[end].frame(PEER, &frame, payload);
        self.ends[end].settle();
        assert_eq!(self.ends[end].broken, [], "{frame:?}");
    }

    /// All that is on its way arrives, in order, and what that brings about.
    fn calm(&mut self) {
        while {
            (0..2).for_each(|end| self.leave(end, usize::MAX));
            self.ways.iter().any(|way| !way.is_empty())
        } {
            for end in 0..2 {
                (0..self.ways[end].len()).for_each(|_| self.arrive(end, 0));
            }
        }
    }

    /// The newest value of a tag; its bytes are right.
    fn take(&mut self, end: usize, tag: u64, len: usize) -> (Option<u64>, bool) {
        match self.ends[end].engine.take_value(PEER, 0, tag) {
            Taken::New { iteration, bytes, .. } => {
                assert_eq!(bytes, value(tag, iteration, len));
                (Some(iteration), true)
            }
            Taken::Unchanged { iteration, .. } => (Some(iteration), false),
            Taken::Nothing => (None, false),
        }
    }
}

#[test]
fn who_puts_while_nobody_looks_sends_little_and_then_the_newest() {
    for (len, first) in [(0, 8), (8, 8), (60, 8), (65, 2), (5000, 79)] {
        let mut pair = Pair::new();
        for iteration in 1..=1000 {
            pair.put(0, 5, iteration, len).expect("nothing is in the way");
            pair.leave(0, usize::MAX);
        }
        assert_eq!(pair.parts, first, "{len} bytes: no more than may be on their way");
        pair.calm();
        assert_eq!(pair.take(1, 5, len), (Some(1000), true), "{len} bytes");
        assert_eq!(pair.take(1, 5, len), (Some(1000), false), "it is new once");
        assert!(pair.parts <= 2 * first, "{len} bytes");
        assert!(pair.ends.iter().all(|node| node.engine.is_quiet(PEER)));
    }
}

#[test]
fn what_is_replaced_before_a_lane_takes_it_never_leaves() {
    let mut pair = Pair::new();
    (1..=1000).for_each(|iteration| pair.put(0, 5, iteration, 8).expect("nothing is in the way"));
    assert_eq!(pair.ends[0].engine.queued(PEER), 1);
    pair.calm();
    assert_eq!((pair.take(1, 5, 8), pair.parts), ((Some(1000), true), 1));
}

#[test]
fn what_cannot_be_put_says_why() {
    let mut pair = Pair::new();
    pair.ends[0].engine.set_scheme(PEER, Values::Synchronous);
    assert_eq!(pair.put(0, 5, 1, 8), Err(PutError::Synchronous));
    pair.ends[0].engine.set_scheme(PEER, Values::Asynchronous);
    pair.put(0, 5, 3, 8).expect("it may");
    assert_eq!(pair.put(0, 5, 3, 8), Err(PutError::Old));
    assert_eq!(pair.put(0, 5, 2, 8), Err(PutError::Old));
    assert_eq!(pair.put(0, 5, 4, VALUE_MOST as usize + 1), Err(PutError::TooLong));
    // what was put leaves, whatever the scheme is then
    pair.ends[0].engine.set_scheme(PEER, Values::Synchronous);
    pair.calm();
    assert_eq!(pair.take(1, 5, 8), (Some(3), true));
    pair.ends[0].engine.set_scheme(PEER, Values::Asynchronous);
    for tag in 6..5 + TAGS as u64 {
        pair.put(0, tag, 1, 0).expect("there is room");
    }
    assert_eq!(pair.put(0, 1 << 40, 1, 0), Err(PutError::TooManyTags));
}

#[test]
fn messages_beside_values_keep_their_order_and_neither_waits_for_the_other_for_ever() {
    let mut pair = Pair::new();
    for tag in 0..50 {
        let message = Message { matching: Matching::Tag(tag), data: None, len: 8, delivery: Delivery::Sent };
        let op = pair.ends[0].engine.send(PEER, message);
        pair.ends[0].memory.put(Place::Send(op), Bytes::from(&tag.to_le_bytes()[..]), 0, 1);
        pair.put(0, tag, 1, 8).expect("it may");
        let ticket = pair.ends[1].ticket(8, 1);
        let filter = Filter { source: None, matching: Matching::Tag(0), ignore: u64::MAX };
        pair.ends[1].engine.post(filter, ticket);
    }
    pair.leave(0, 0);
    let values: Vec<bool> =
        pair.ways[1].iter().map(|(frame, _)| matches!(frame, Frame::Value { .. })).collect();
    assert!(values.chunks(2).all(|two| two[0] != two[1]), "by turns: {values:?}");
    pair.calm();
    let received = pair.ends[1].events.iter().filter_map(|event| match &event.what {
        What::Received { bytes, .. } => bytes.real().try_into().ok().map(u64::from_le_bytes),
        _ => None,
    });
    assert!(received.eq(0..50));
}

#[test]
fn a_lost_session_keeps_what_came_and_the_next_begins_anew() {
    let mut pair = Pair::new();
    pair.put(0, 5, 9, 8).expect("it may");
    pair.calm();
    pair.put(0, 5, 10, 8).expect("it may");
    pair.ends.iter_mut().for_each(|node| node.engine.peer_down(PEER));
    assert_eq!(pair.take(1, 5, 8), (Some(9), true));
    assert_eq!(pair.ends[0].engine.scheme(PEER), Values::Asynchronous, "it is this side's");
    assert!(pair.ends[0].engine.is_quiet(PEER), "what had not left is forgotten");
    // the peer's program began anew
    pair.put(0, 5, 1, 8).expect("a new session");
    pair.ends.iter_mut().for_each(|node| node.engine.connected(PEER, ROUTE));
    assert_eq!(pair.take(1, 5, 8), (None, false));
    pair.calm();
    assert_eq!(pair.take(1, 5, 8), (Some(1), true));
}

/// A rail with means of its own takes values whole, and gives back what it does not bring.
#[test]
fn what_a_rail_takes_and_gives_back_leaves_again_unless_there_is_a_newer_one() {
    let mut pair = Pair::new();
    let taken = |pair: &mut Pair| {
        let engine = &mut pair.ends[0].engine;
        let next = engine.poll_transmit(PEER, usize::MAX)?;
        let Frame::Value { iteration, offset: 0, .. } = next.frame else { panic!("{:?}", next.frame) };
        engine.value_taken(PEER);
        Some(iteration)
    };
    for iteration in 1..=20 {
        pair.put(0, 5, iteration, 300).expect("it may");
        assert_eq!(taken(&mut pair), Some(iteration), "no word of the peer's is waited for");
    }
    assert!(pair.ends[0].engine.is_quiet(PEER));
    let mut back = |iteration| {
        pair.ends[0].engine.value_returned(PEER, 5, iteration);
        pair.calm();
        pair.take(1, 5, 300)
    };
    assert_eq!(back(19), (None, false), "there is a newer one");
    assert_eq!(back(20), (Some(20), true));
    assert_eq!(back(20), (Some(20), false), "it comes again, and is not new");
    // what came by such means is not confirmed by words
    let bytes = &value(6, 3, 50)[..];
    let part = Value { tag: 6, iteration: 3, total: 50, part: Part::At(0), bytes };
    assert_eq!(pair.ends[1].engine.hear_value(PEER, 0, &part), Ok(()));
    assert_eq!((pair.ends[1].engine.untold_values(PEER), pair.take(1, 6, 50)), (0, (Some(3), true)));
    let other = Value { iteration: 4, total: 60, bytes: b"x", ..part };
    assert_eq!(pair.ends[1].engine.hear_value(PEER, 0, &other), Ok(()));
    assert!(pair.ends[1].engine.hear_value(PEER, 0, &Value { total: 61, ..other }).is_err());
}

#[test]
fn what_contradicts_itself_is_named() {
    let had = |tag, iteration| Frame::ValueHad { tag, iteration };
    let part = |iteration, total, offset| Frame::Value { tag: 5, iteration, total, offset };
    let hear = |frames: &[(Frame, usize)]| {
        let mut pair = Pair::new();
        (1..=9).for_each(|iteration| {
            pair.put(0, 5, iteration, 8).expect("it may");
            pair.leave(0, usize::MAX);
        });
        for (frame, len) in frames {
            pair.ends[0].frame(PEER, frame, Bytes::Real(vec![0; *len]));
        }
        pair.ends[0].broken.clone()
    };
    assert_eq!(hear(&[(had(5, 8), 0), (had(5, 3), 0), (had(5, 8), 0)]), []);
    const UNSENT: &str = "it had a value that it was not sent";
    assert_eq!(hear(&[(had(5, 9), 0)]), [(PEER, UNSENT)], "it waits here");
    assert_eq!(hear(&[(had(6, 1), 0)]), [(PEER, UNSENT)]);
    const LENGTHS: &str = "it sent a value of two lengths";
    assert_eq!(hear(&[(part(1, 10, 0), 4), (part(1, 11, 4), 4)]), [(PEER, LENGTHS)]);
}

#[test]
fn what_a_peer_sends_takes_no_more_memory_than_it_may() {
    let mut pair = Pair::new();
    let begin =
        |tag, iteration, total| (Frame::Value { tag, iteration, total, offset: 0 }, Bytes::Real(vec![1]));
    for tag in 0..10 {
        for iteration in 0..10 {
            let (frame, bytes) = begin(tag, iteration, VALUE_MOST);
            pair.ends[1].frame(PEER, &frame, bytes);
        }
    }
    for tag in 0..2 * TAGS as u64 {
        let (frame, bytes) = begin(tag, 100, 1);
        pair.ends[1].frame(PEER, &frame, bytes);
    }
    assert_eq!(pair.ends[1].broken, []);
    assert_eq!(pair.ends[1].engine.untold_values(PEER), TAGS, "one word of each tag that is known");
    assert_eq!(pair.take(1, TAGS as u64, 1), (None, false), "beyond, nothing is kept");
}

/// What becomes of a frame on its way is drawn by chance.
#[derive(Clone, Debug)]
enum Step {
    Put { end: usize, tag: u64, len: usize },
    Leave { end: usize, bulk: usize },
    Arrive { end: usize, at: prop::sample::Index },
    Take { end: usize, tag: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let end = 0..2_usize;
    prop_oneof![
        3 => (end.clone(), 0..4_u64, prop_oneof![0..70_usize, 0..2000_usize])
            .prop_map(|(end, tag, len)| Step::Put { end, tag, len }),
        2 => (end.clone(), prop_oneof![Just(0), 40..100_usize]).prop_map(|(end, bulk)| Step::Leave { end, bulk }),
        6 => (end.clone(), any::<prop::sample::Index>()).prop_map(|(end, at)| Step::Arrive { end, at }),
        2 => (end, 0..4_u64).prop_map(|(end, tag)| Step::Take { end, tag }),
    ]
}

proptest! {
    /// Frames arrive in any order, as by several lanes.
    #[test]
    fn the_newest_comes_whatever_order_frames_come_in(steps in prop::collection::vec(step(), 1..300)) {
        let mut pair = Pair::new();
        // of each end and tag: the values that were put, and the newest that was taken
        let mut put: BTreeMap<(usize, u64), Vec<usize>> = BTreeMap::new();
        let mut taken: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let mut look = |pair: &mut Pair, put: &BTreeMap<(usize, u64), Vec<usize>>, end: usize, tag| {
            let lens = put.get(&(1 - end, tag)).cloned().unwrap_or_default();
            let before = taken.get(&(end, tag)).copied();
            let (iteration, new) = match pair.ends[end].engine.take_value(PEER, 0, tag) {
                Taken::Nothing => (None, false),
                Taken::Unchanged { iteration, .. } => (Some(iteration), false),
                Taken::New { iteration, bytes, .. } => {
                    let len = lens[iteration as usize - 1];
                    assert_eq!(bytes, value(tag, iteration, len));
                    (Some(iteration), true)
                }
            };
            assert_eq!(new, iteration > before, "{iteration:?} after {before:?}");
            if let Some(iteration) = iteration {
                taken.insert((end, tag), iteration);
            }
            iteration
        };
        for step in steps {
            match step {
                Step::Put { end, tag, len } => {
                    let lens = put.entry((end, tag)).or_default();
                    lens.push(len);
                    let iteration = lens.len() as u64;
                    prop_assert_eq!(pair.put(end, tag, iteration, len), Ok(()));
                }
                Step::Leave { end, bulk } => pair.leave(end, bulk),
                Step::Arrive { end, at } => {
                    if !pair.ways[end].is_empty() {
                        let at = at.index(pair.ways[end].len());
                        pair.arrive(end, at);
                    }
                }
                Step::Take { end, tag } => _ = look(&mut pair, &put, end, tag),
            }
            prop_assert!(pair.ways.iter().all(|way| way.len() < 4 * (8 + 2000 / 40 + 2)), "much is on its way");
        }
        pair.calm();
        for (&(end, tag), lens) in &put {
            prop_assert_eq!(look(&mut pair, &put, 1 - end, tag), Some(lens.len() as u64));
        }
        prop_assert!(pair.ends.iter().all(|node| node.engine.is_quiet(PEER)));
    }
}
