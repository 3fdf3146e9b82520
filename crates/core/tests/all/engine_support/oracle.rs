//! Which receive takes which message, by MPI's rules and nothing but lists searched from the front.

use super::pattern;
use polyrail_core::frame::{Frame, Matching, OpId};
use polyrail_core::proto::{Delivery, Failure, Filter, PeerIdx};
use polyrail_core::sim::{Time, Trace, What, World};
use std::collections::BTreeMap;

/// A message as its sender knows it. Its place in the list of all is its identity, and travels as immediate data.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub from: usize,
    pub to: usize,
    pub matching: Matching,
    pub len: u64,
    /// What its completion promises. Where the link is said to deliver at once, nothing more than [`Delivery::Sent`].
    pub delivery: Delivery,
    /// None when it left without an operation to remember.
    pub op: Option<OpId>,
}

#[derive(Debug)]
struct Posted {
    op: OpId,
    filter: Filter,
    room: u64,
    /// Of a multi-receive buffer: below how many bytes it takes no more, and how many are used.
    multi: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Arrived {
    from: PeerIdx,
    matching: Matching,
    id: u64,
}

/// What a receive got, by the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Got {
    pub id: u64,
    pub offset: u64,
    pub bytes: u64,
    pub at: Time,
}

/// One node's matching, replayed from its trace.
pub struct Replay<'a> {
    sent: &'a [Sent],
    posted: Vec<Posted>,
    unexpected: Vec<Arrived>,
    pub got: BTreeMap<OpId, Vec<Got>>,
    /// Messages in the order in which they were handled, and when.
    pub handled: Vec<(u64, Time)>,
    /// Multi-receive buffers that were full.
    pub full: Vec<OpId>,
}

fn matches(filter: &Filter, message: &Arrived) -> bool {
    let sources = filter.source.is_none_or(|only| only == message.from);
    sources
        && match (filter.matching, message.matching) {
            (Matching::Message, Matching::Message) => true,
            (Matching::Tag(a), Matching::Tag(b)) => a & !filter.ignore == b & !filter.ignore,
            _ => false,
        }
}

impl<'a> Replay<'a> {
    /// `rooms`: how many bytes each receive takes; `claims`: which receive takes a claimed message.
    pub fn of(
        trace: &[(Time, Trace)],
        sent: &'a [Sent],
        rooms: &BTreeMap<OpId, u64>,
        claims: &BTreeMap<OpId, OpId>,
    ) -> Self {
        let (posted, unexpected, handled, full) = (vec![], vec![], vec![], vec![]);
        let mut replay = Self { sent, posted, unexpected, got: BTreeMap::new(), handled, full };
        for &(at, what) in trace {
            match what {
                Trace::Posted(op, filter) => {
                    replay.post(at, Posted { op, filter, room: rooms[&op], multi: None });
                }
                Trace::PostedMulti(op, source, room, least) => {
                    let filter = Filter { source, matching: Matching::Message, ignore: 0 };
                    replay.post(at, Posted { op, filter, room, multi: Some((least.max(1), 0)) });
                }
                Trace::Cancelled(op) => replay.posted.retain(|posted| posted.op != op),
                Trace::Claimed(filter, stash) => {
                    let first =
                        replay.unexpected.iter().position(|m| matches(&filter, m)).expect("nothing to claim");
                    let message = replay.unexpected.remove(first);
                    if let Some(op) = claims.get(&stash) {
                        let bytes = replay.sent[message.id as usize].len.min(rooms[op]);
                        replay.got.entry(*op).or_default().push(Got { id: message.id, offset: 0, bytes, at });
                    }
                }
                Trace::Handled(from, frame) => replay.arrive(at, from, &frame),
            }
        }
        replay
    }

    fn post(&mut self, at: Time, mut posted: Posted) {
        while let Some(first) = self.unexpected.iter().position(|m| matches(&posted.filter, m)) {
            let message = self.unexpected.remove(first);
            if self.take(at, &mut posted, &message) {
                return;
            }
        }
        self.posted.push(posted);
    }

    fn arrive(&mut self, at: Time, from: PeerIdx, frame: &Frame) {
        let (Frame::Eager { matching, data, .. } | Frame::Rts { matching, data, .. }) = *frame else {
            return;
        };
        let id = data.expect("the messages of a plan carry their number");
        self.handled.push((id, at));
        let message = Arrived { from, matching, id };
        match self.posted.iter().position(|posted| matches(&posted.filter, &message)) {
            None => self.unexpected.push(message),
            Some(first) => {
                let mut posted = self.posted.remove(first);
                if !self.take(at, &mut posted, &message) {
                    self.posted.insert(first, posted);
                }
            }
        }
    }

    /// Whether the receive is used up.
    fn take(&mut self, at: Time, posted: &mut Posted, message: &Arrived) -> bool {
        let offset = posted.multi.map_or(0, |(_, used)| used);
        let bytes = self.sent[message.id as usize].len.min(posted.room - offset);
        self.got.entry(posted.op).or_default().push(Got { id: message.id, offset, bytes, at });
        match &mut posted.multi {
            None => true,
            Some((least, used)) => {
                *used += bytes;
                let full = posted.room - *used < *least;
                if full {
                    self.full.push(posted.op);
                }
                full
            }
        }
    }
}

/// What happened to the messages of a world in which all links lived to the end, against the rules.
pub fn check(
    world: &World,
    nodes: usize,
    sent: &[Sent],
    rooms: &[BTreeMap<OpId, u64>],
    claims: &[BTreeMap<OpId, OpId>],
) {
    let mut matched = vec![None; sent.len()];
    let mut handled = vec![None; sent.len()];
    for at in 0..nodes {
        let node = world.node(at);
        let mut replay = Replay::of(&node.trace, sent, &rooms[at], &claims[at]);
        for from in 0..nodes {
            let ours = |id: &u64| sent[*id as usize].from == from && sent[*id as usize].to == at;
            let expected: Vec<u64> = (0..sent.len() as u64).filter(ours).collect();
            let in_order: Vec<u64> = replay.handled.iter().map(|(id, _)| *id).filter(ours).collect();
            assert_eq!(in_order, expected, "from {from} to {at}: each once, and in order");
        }
        replay.handled.iter().for_each(|(id, when)| handled[*id as usize] = Some(*when));
        for event in &node.events {
            let What::Received { op, envelope: Some(envelope), ref bytes, offset, result, .. } = event.what
            else {
                continue;
            };
            let id = envelope.data.expect("the number came along");
            let message = &sent[id as usize];
            let expected = replay.got.get_mut(&op).expect("this receive gets nothing");
            let found = expected.iter().position(|got| got.id == id);
            let got = expected
                .remove(found.unwrap_or_else(|| panic!("{op:?} at {at} gets {expected:?}, not {id}")));
            assert_eq!(result, Ok(()), "{message:?}");
            assert_eq!((bytes.len(), offset), (got.bytes, got.offset), "{message:?}");
            assert_eq!(envelope.from.0 as usize, message.from, "{message:?}");
            assert_eq!((envelope.len, envelope.matching), (message.len, message.matching));
            assert_eq!(Some(bytes.clone()), pattern(id, message.len).slice(0, got.bytes), "{message:?}");
            assert!(matched[id as usize].replace(got.at).is_none(), "received twice: {message:?}");
            assert!(event.at >= got.at);
        }
        let left: Vec<_> =
            replay.got.values().flatten().filter(|got| matched[got.id as usize].is_none()).collect();
        let discarded = |id: u64| !claims[at].is_empty() && sent[id as usize].to == at;
        assert!(left.iter().all(|got| discarded(got.id)), "never received at {at}: {left:?}");
    }
    check_sends(world, nodes, sent, &matched, &handled);
}

/// Each send ended once, well, and not before what it promised.
fn check_sends(
    world: &World,
    nodes: usize,
    sent: &[Sent],
    matched: &[Option<Time>],
    handled: &[Option<Time>],
) {
    let mut ended = BTreeMap::new();
    for at in 0..nodes {
        for event in &world.node(at).events {
            if let What::Sent { op, result } = event.what {
                assert_eq!(result, Ok(()));
                assert_eq!(ended.insert((at, op), event.at), None, "{op:?} of {at} ended twice");
            }
        }
    }
    for (id, message) in sent.iter().enumerate() {
        let Some(op) = message.op else { continue };
        let end = ended.remove(&(message.from, op)).unwrap_or_else(|| panic!("never ended: {message:?}"));
        match message.delivery {
            Delivery::Sent => {}
            // nobody is far here
            Delivery::Soon | Delivery::Delivered => {
                assert!(handled[id].is_some_and(|at| at <= end), "{message:?}")
            }
            Delivery::Matched => assert!(matched[id].is_none_or(|at| at <= end), "{message:?}"),
        }
    }
    assert!(ended.is_empty(), "sends that nobody made: {ended:?}");
}

/// What must hold although links ended: nothing twice, nothing wrong, nothing promised and not done.
pub fn check_lossy(world: &World, nodes: usize, sent: &[Sent]) {
    let mut handled = vec![None; sent.len()];
    let mut received = vec![0; sent.len()];
    for at in 0..nodes {
        let mut last = BTreeMap::new();
        for &(when, what) in &world.node(at).trace {
            let Trace::Handled(from, Frame::Eager { data, .. } | Frame::Rts { data, .. }) = what else {
                continue;
            };
            let id = data.expect("the messages of a plan carry their number");
            assert!(last.insert(from, id).is_none_or(|before| before < id), "{id} from {from} out of order");
            handled[id as usize] = Some(when);
        }
        for event in &world.node(at).events {
            let What::Received { envelope: Some(envelope), ref bytes, result, .. } = event.what else {
                continue;
            };
            let id = envelope.data.expect("the number came along");
            assert!(matches!(result, Ok(()) | Err(Failure::PeerGone)));
            received[id as usize] += 1;
            if result.is_ok() {
                assert_eq!(Some(bytes.clone()), pattern(id, envelope.len).slice(0, bytes.len()));
            }
        }
    }
    assert!(received.iter().all(|times| *times <= 1), "received twice");
    let mut ended = BTreeMap::new();
    for at in 0..nodes {
        for event in &world.node(at).events {
            if let What::Sent { op, result } = event.what {
                assert!(matches!(result, Ok(()) | Err(Failure::PeerGone)));
                assert!(
                    ended.insert((at, op), (event.at, result.is_ok())).is_none(),
                    "{op:?} of {at} ended twice"
                );
            }
        }
    }
    for (id, message) in sent.iter().enumerate() {
        let Some(op) = message.op else { continue };
        let (end, well) = ended[&(message.from, op)];
        let arrived = handled[id].is_some_and(|at| at <= end);
        assert!(!well || arrived || message.delivery == Delivery::Sent, "promised and not done: {message:?}");
    }
}
