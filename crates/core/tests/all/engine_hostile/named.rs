//! Each lie that there is, and what is said of it.

use super::lies::names;
use crate::engine_support::fuzz::{KEY, WINDOW, drain};
use crate::engine_support::{any_tag, message, pattern};
use crate::frame_support::payload_near;
use polyrail_core::frame::{AtomicCode, AtomicKind, Frame, Matching, OpId, Order, RemoteAddr, Status};
use polyrail_core::proto::{
    Access, Bounds, Config, Directive, Message, PartSpec, PeerIdx, Place, RmaKind, Route, Scheme,
};
use polyrail_core::sim::{Bytes, Node};

/// A send, a put and a fetching atomic that have not left, a receive, and their names.
fn reluctant() -> (Node, [OpId; 4]) {
    let mut node = Node::new(Config { window: WINDOW, hash_seed: 1, bounds: Bounds::DEFAULT }, 2, false);
    let peer = PeerIdx(1);
    node.engine.connected(peer, Route { scheme: Scheme::Get, window: WINDOW, ..Route::default() });
    let send = node.engine.send(peer, Message { len: 10, ..message(1) });
    // one for a single message has no name before it is matched
    let ticket = node.ticket(10, 1);
    node.engine.post_multi(None, 1, ticket);
    // parts have names of their own; the first of each table is called the same
    node.engine.rma(peer, RmaKind::Put(None), &[PartSpec { at: AT, len: 10 }]);
    node.engine.rma(peer, RmaKind::Atomic { code: FETCH, operands: 8 }, &[PartSpec { at: AT, len: 8 }]);
    let first = OpId { slot: 0, generation: 0 };
    (node, [send, first, OpId { slot: 1, generation: 0 }, first])
}

const AT: RemoteAddr = RemoteAddr { key: KEY, addr: 0 };
const FETCH: AtomicCode = AtomicCode { datatype: 7, op: 2, kind: AtomicKind::Fetch, count: 1 };

/// Frames that nobody honest sends now, and what is said of each.
#[test]
fn answers_before_their_questions_are_named() {
    type Lie = fn([OpId; 4]) -> Frame;
    let early: [(Lie, &str); 12] = [
        (|[op, ..]| Frame::Ats { op, status: Status::Ok }, "it ended a message before it was sent"),
        (|[op, ..]| Frame::Ats { op, status: Status::Cancelled }, "it ended a message before it was sent"),
        (
            |[op, ..]| Frame::Rtr { op, to: op, len: 9, writable: false },
            "it was ready to receive what was not announced",
        ),
        (
            |[op, ..]| Frame::Rtr { op, to: op, len: 11, writable: false },
            "it asked for bytes of a message that it was not sent",
        ),
        (|[_, op, ..]| Frame::Ack { op, status: Status::Ok }, "it answered before it was asked"),
        (|[_, op, ..]| Frame::Ack { op, status: Status::Fault }, "it answered before it was asked"),
        (|[_, op, ..]| Frame::GetData { op, offset: 0 }, "it answered what was not asked"),
        (|[_, op, ..]| Frame::AtomicData { op }, "it answered what was not asked"),
        (|[.., op, _]| Frame::AtomicData { op }, "it answered what was not asked"),
        (|[.., to]| Frame::Frag { to, offset: 0 }, "a fragment belongs to no message of its own"),
        (|[.., to]| Frame::Atp { to, status: Status::Ok }, "it ended a message that it was not asked for"),
        (|_| Frame::Credit { credit: 1 }, "it returned credit that it never had"),
    ];
    for (lie, why) in early {
        let (mut node, names) = reluctant();
        let frame = lie(names);
        node.frame(PeerIdx(1), &frame, Bytes::Real(vec![1; payload_near(&frame, 1)]));
        assert_eq!(node.broken, [(PeerIdx(1), why)], "{frame:?}");
        // the same from a peer that has nothing to do with it
        let (mut node, names) = reluctant();
        node.engine.connected(PeerIdx(0), Route::default());
        node.frame(PeerIdx(0), &lie(names), Bytes::Real(vec![1; payload_near(&frame, 1)]));
        drain(&mut node, PeerIdx(1), 100);
        assert_eq!(node.events, [], "{frame:?} from a stranger ended something");
    }
}

const STRAY: OpId = OpId { slot: 77, generation: 0 };
const ORDER: Order = Order { seq: 0, credit: 0 };
const ANNOUNCED: Frame =
    Frame::Rts { order: ORDER, matching: Matching::Tag(1), data: None, len: 10, op: STRAY, readable: false };

/// Operations that wait for their answers.
struct Names {
    /// An announced message of 100 bytes.
    rts: OpId,
    put: OpId,
    /// Of ten bytes.
    get: OpId,
    update: OpId,
    /// Of eight bytes.
    fetch: OpId,
    /// A receive of ten bytes that has said RTR.
    to: OpId,
}

impl Names {
    fn all(&self) -> [OpId; 6] {
        [self.rts, self.put, self.get, self.update, self.fetch, self.to]
    }
}

/// A node that has asked peer 1 for one of everything; peer 0 has nothing to do with it.
fn waiting(scheme: Scheme) -> (Node, Names) {
    let mut node = Node::new(Config { window: WINDOW, hash_seed: 1, bounds: Bounds::DEFAULT }, 2, false);
    let route = Route { scheme, window: WINDOW, ..Route::default() };
    let peer = PeerIdx(1);
    node.engine.connected(peer, route);
    node.engine.connected(PeerIdx(0), route);
    node.register(KEY, 0, pattern(1, 4096), Access { read: true, write: true });
    let rts = node.engine.send(peer, Message { len: 100, ..message(1) });
    node.memory.put(Place::Send(rts), pattern(1, 100), 0, 1);
    let ticket = node.ticket(10, 1);
    node.engine.post(any_tag(), ticket);
    let update = AtomicCode { kind: AtomicKind::Update, ..FETCH };
    let kinds = [
        (RmaKind::Put(None), 10),
        (RmaKind::Get, 10),
        (RmaKind::Atomic { code: update, operands: 8 }, 0),
        (RmaKind::Atomic { code: FETCH, operands: 8 }, 8),
    ];
    for (kind, len) in kinds {
        let op = node.engine.rma(peer, kind, &[PartSpec { at: AT, len }]);
        node.memory.put(Place::Rma(op), Bytes::Real(vec![5; 16]), 0, 1);
    }
    let mut frames = drain(&mut node, peer, 100);
    node.frame(peer, &ANNOUNCED, Bytes::Counted(0));
    frames.extend(drain(&mut node, peer, 100));
    let told: Vec<_> = frames.iter().flat_map(names).collect();
    let [rts, put, get, update, fetch, to] = told[..] else { panic!("{frames:?}") };
    assert_eq!(node.broken, []);
    (node, Names { rts, put, get, update, fetch, to })
}

/// A list of one range of so many bytes.
fn list(len: u64) -> Bytes {
    Bytes::Real([1, 1u64 << 44, len].iter().flat_map(|word| word.to_le_bytes()).collect())
}

fn bytes(len: usize) -> Bytes {
    Bytes::Real(vec![7; len])
}

/// Frames that contradict those before them, and what is said of the last.
#[test]
fn contradictions_are_named() {
    type Script = fn(&Names) -> Vec<(Frame, Bytes)>;
    let outside = "a fragment lies outside its message";
    let too_much = "it answered with more than was asked for";
    let unasked = "it answered what was not asked";
    let without = "it ended a request without what was wanted";
    let (fragments, put, get) = (Scheme::Fragments, Scheme::Put, Scheme::Get);
    let contradictions: [(Scheme, Script, &str); 22] = [
        (fragments, |n| vec![(Frame::Frag { to: n.to, offset: u64::MAX }, bytes(1))], outside),
        (fragments, |n| vec![(Frame::Frag { to: n.to, offset: 5 }, bytes(6))], outside),
        (fragments, |n| vec![(Frame::Frag { to: n.to, offset: 0 }, bytes(6)); 2], outside),
        (
            fragments,
            |n| vec![(Frame::Atp { to: n.to, status: Status::Ok }, bytes(0))],
            "it ended a message that it was not asked for",
        ),
        (
            put,
            |n| {
                let (to, status) = (n.to, Status::Ok);
                vec![(Frame::Frag { to, offset: 0 }, bytes(6)), (Frame::Atp { to, status }, bytes(0))]
            },
            "it ended a message that it was not asked for",
        ),
        (
            get,
            |_| {
                let (matching, data) = (Matching::Tag(1), None);
                let order = Order { seq: 1, credit: 0 };
                vec![(Frame::Rts { order, matching, data, len: 100, op: STRAY, readable: true }, list(99))]
            },
            "it announced more bytes than it showed",
        ),
        (
            get,
            |_| {
                vec![(
                    Frame::PutRts { order: Order { seq: 1, credit: 0 }, op: STRAY, to: AT, len: 100 },
                    list(99),
                )]
            },
            "it announced more bytes than it showed",
        ),
        (
            get,
            |_| {
                let order = Order { seq: 1, credit: 0 };
                vec![(Frame::Get { order, op: STRAY, from: AT, len: 100, writable: true }, list(99))]
            },
            "it asked for more bytes than it has room for",
        ),
        (fragments, |n| vec![(Frame::GetData { op: n.get, offset: u64::MAX }, bytes(1))], too_much),
        (fragments, |n| vec![(Frame::GetData { op: n.get, offset: 5 }, bytes(6))], too_much),
        (fragments, |n| vec![(Frame::GetData { op: n.get, offset: 0 }, bytes(6)); 2], too_much),
        (fragments, |n| vec![(Frame::GetData { op: n.put, offset: 0 }, bytes(1))], unasked),
        (fragments, |n| vec![(Frame::GetData { op: n.fetch, offset: 0 }, bytes(1))], unasked),
        (fragments, |n| vec![(Frame::AtomicData { op: n.get }, bytes(1))], unasked),
        (fragments, |n| vec![(Frame::AtomicData { op: n.update }, bytes(1))], unasked),
        (fragments, |n| vec![(Frame::AtomicData { op: n.fetch }, bytes(9))], too_much),
        (fragments, |n| vec![(Frame::Ack { op: n.get, status: Status::Ok }, bytes(0))], without),
        (fragments, |n| vec![(Frame::Ack { op: n.fetch, status: Status::Ok }, bytes(0))], without),
        (
            fragments,
            |n| vec![(Frame::Rtr { op: n.rts, to: STRAY, len: 0, writable: false }, bytes(0))],
            "it asked for bytes of a message that it was not sent",
        ),
        (
            fragments,
            |n| vec![(Frame::Rtr { op: n.rts, to: STRAY, len: 100, writable: false }, bytes(0)); 2],
            "it was ready to receive what was not announced",
        ),
        (
            fragments,
            |_| {
                let put = |seq, op, last| Frame::Put {
                    order: Order { seq, credit: 0 },
                    op,
                    to: AT,
                    data: None,
                    last,
                };
                let other = OpId { slot: 78, generation: 0 };
                vec![(put(1, STRAY, false), bytes(1)), (put(2, other, true), bytes(1))]
            },
            "it began a put before the one before it had ended",
        ),
        (
            fragments,
            |_| {
                vec![(
                    Frame::Am { order: Order { seq: 1 + 4096, credit: 0 }, id: 1, header_len: 0 },
                    bytes(0),
                )]
            },
            "a sequence number lies outside the window",
        ),
    ];
    for (scheme, script, why) in contradictions {
        let (mut node, names) = waiting(scheme);
        let script = script(&names);
        for (frame, payload) in &script {
            assert_eq!(node.broken, [], "{script:?}");
            node.frame(PeerIdx(1), frame, payload.clone());
        }
        assert_eq!(node.broken, [(PeerIdx(1), why)], "{script:?}");
    }
    // the values of an atomic, twice at once
    let (mut node, names) = waiting(fragments);
    let data = node.engine.on_frame(PeerIdx(1), &Frame::AtomicData { op: names.fetch }, 8, None);
    assert!(matches!(data, Directive::Place(..)));
    let data = node.engine.on_frame(PeerIdx(1), &Frame::AtomicData { op: names.fetch }, 8, None);
    assert_eq!(data, Directive::Broken(unasked));
}

/// What was asked for and is then not wanted is not sent any more.
#[test]
fn who_ends_a_message_gets_no_more_of_it() {
    let (mut node, names) = waiting(Scheme::Fragments);
    let (op, peer) = (names.rts, PeerIdx(1));
    node.frame(peer, &Frame::Rtr { op, to: STRAY, len: 100, writable: false }, bytes(0));
    node.frame(peer, &Frame::Ats { op, status: Status::Ok }, bytes(0));
    assert!(drain(&mut node, peer, 100).iter().all(|frame| !matches!(frame, Frame::Frag { .. })));
    assert!(node.broken.is_empty() && node.torn == 0 && node.events.len() == 1);
}

/// Whatever a stranger says of operations with somebody else, they end as if it had said nothing.
#[test]
fn strangers_are_not_listened_to() {
    for scheme in [Scheme::Get, Scheme::Put, Scheme::Fragments] {
        for status in [Status::Ok, Status::Fault, Status::Cancelled] {
            let (mut node, names) = waiting(scheme);
            for op in names.all() {
                let said = [
                    Frame::Rtr { op, to: op, len: 5, writable: false },
                    Frame::Frag { to: op, offset: 0 },
                    Frame::Ats { op, status },
                    Frame::Atp { to: op, status },
                    Frame::Ack { op, status },
                    Frame::GetData { op, offset: 0 },
                    Frame::AtomicData { op },
                ];
                for frame in said {
                    node.frame(PeerIdx(0), &frame, bytes(payload_near(&frame, 1)));
                    node.settle();
                }
            }
            assert_eq!(node.events, [], "{scheme:?}");
            assert!(node.broken.iter().all(|(peer, _)| *peer == PeerIdx(0)));
            node.broken.clear();
            answer(&mut node, &names, scheme);
            assert_eq!(node.broken, []);
            assert_eq!(node.events.len(), 6, "{scheme:?}: {:?}", node.events);
        }
    }
}

/// Peer 1 answers everything, well.
fn answer(node: &mut Node, names: &Names, scheme: Scheme) {
    let ok = Status::Ok;
    let Names { rts, put, get, update, fetch, to } = *names;
    let mut answers = vec![
        (Frame::Ack { op: put, status: ok }, bytes(0)),
        (Frame::Ack { op: update, status: ok }, bytes(0)),
        (Frame::AtomicData { op: fetch }, bytes(8)),
        (Frame::Frag { to, offset: 0 }, bytes(10)),
        (Frame::Rtr { op: rts, to: STRAY, len: 100, writable: false }, bytes(0)),
        (Frame::Ats { op: rts, status: ok }, bytes(0)),
    ];
    answers.push(match scheme {
        Scheme::Fragments => (Frame::GetData { op: get, offset: 0 }, bytes(10)),
        _ => (Frame::Ack { op: get, status: ok }, bytes(0)),
    });
    for (frame, payload) in answers {
        node.frame(PeerIdx(1), &frame, payload);
        drain(node, PeerIdx(1), 100);
    }
}
/// Answers to operations that have ended may be late; nobody is blamed for them.
#[test]
fn late_answers_are_no_lies() {
    let (mut node, _) = reluctant();
    let (op, to, status) = (STRAY, STRAY, Status::Ok);
    let late = [
        Frame::Ats { op, status },
        Frame::Atp { to, status },
        Frame::Ack { op, status },
        Frame::Rtr { op, to, len: 1, writable: false },
        Frame::Frag { to, offset: 0 },
        Frame::GetData { op, offset: 0 },
        Frame::AtomicData { op },
    ];
    for frame in late {
        node.frame(PeerIdx(1), &frame, Bytes::Real(vec![1; payload_near(&frame, 1)]));
    }
    assert_eq!((node.broken, node.events), (vec![], vec![]));
}
