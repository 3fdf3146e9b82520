//! An engine against any bytes. The fuzz target `engine` is this file and a call of [`any_stream`].

use polyrail_core::frame::{Frame, Matching, RemoteAddr};
use polyrail_core::proto::{
    Access, Bounds, Config, Delivery, Filter, Message, PartSpec, PeerIdx, Place, RmaKind, Route, Scheme,
};
use polyrail_core::sim::{Bytes, Node};
use polyrail_core::values;

/// What may wait to leave besides the victim's own operations and what its peer is owed: of each of those that end by being
/// answered, ATP; and totals.
const MANY: usize = 16;
/// Eager credit of every peer of a [`victim`], in units.
pub const WINDOW: u32 = 64;
/// The key of the region of a [`victim`].
pub const KEY: u64 = 3;

/// Bytes that no other message has.
pub fn pattern(id: u64, len: u64) -> Bytes {
    let byte = |at: u64| (id.wrapping_mul(0x9e37_79b9).wrapping_add(at * 0x0101_0135) >> 13) as u8;
    Bytes::Real((0..len).map(byte).collect())
}

pub fn message(tag: u64) -> Message {
    Message { matching: Matching::Tag(tag), data: None, len: 0, delivery: Delivery::Sent }
}

/// A node with receives, a region, and operations of all kinds towards one peer.
pub fn victim(liar: PeerIdx, scheme: Scheme) -> Node {
    let mut node = Node::new(Config { window: WINDOW, hash_seed: 1, bounds: Bounds::DEFAULT }, 3, false);
    let route = Route { eager_max: 100, fragment: 64, scheme, window: WINDOW, immediate: false };
    node.engine.connected(liar, route);
    node.register(KEY, 0, pattern(1, 4096), Access { read: true, write: true });
    for room in [0, 10, 1000] {
        for matching in [Matching::Message, Matching::Tag(0)] {
            let ticket = node.ticket(room, 1);
            node.engine.post(Filter { source: None, matching, ignore: u64::MAX }, ticket);
        }
    }
    let ticket = node.ticket(3000, 1);
    node.engine.post_multi(None, 100, ticket);
    for (id, delivery) in [Delivery::Sent, Delivery::Delivered, Delivery::Matched].into_iter().enumerate() {
        for len in [0, 50, 500] {
            let op = node.engine.send(liar, Message { len, delivery, ..message(id as u64) });
            node.memory.put(Place::Send(op), pattern(9, len), 0, 1);
        }
    }
    let part = |len| PartSpec { at: RemoteAddr { key: 1, addr: 0 }, len };
    for kind in [RmaKind::Put(None), RmaKind::Put(Some(1)), RmaKind::Get] {
        let op = node.engine.rma(liar, kind, &[part(10), part(500)]);
        node.memory.put(Place::Rma(op), pattern(8, 510), 0, 1);
    }
    // values: of one tag more than may be on their way, and one that is long
    node.engine.set_scheme(liar, values::Scheme::Asynchronous);
    (1..=12).for_each(|iteration| _ = node.engine.put_value(liar, 1, iteration, &[5; 30]));
    (1..=2).for_each(|iteration| _ = node.engine.put_value(liar, 2, iteration, &[6; 300]));
    node
}

/// Lets frames leave, so many at most; which they were.
pub fn drain(node: &mut Node, to: PeerIdx, most: usize) -> Vec<Frame> {
    node.settle();
    let mut left = vec![];
    for _ in 0..most {
        let Some(next) = node.engine.poll_transmit(to, usize::MAX) else { break };
        let Some(payload) = node.load(to, &next) else { continue };
        let header = next.frame.encode(payload.len() as usize);
        assert!(Frame::parse(&header).is_ok(), "not a frame: {:?}", next.frame);
        node.engine.transmitted(to, &next);
        node.settle();
        left.push(next.frame);
    }
    left
}

/// So little that any stream comes near it.
const FEW: Bounds = Bounds { requests: 4, values: 1 << 20, announced: 3 };

/// Takes bytes as a stream that a peer sent: frames, until what follows is none. The first byte says what the victim does.
pub fn any_stream(bytes: &[u8]) {
    let liar = PeerIdx(2);
    let Some((&mode, mut rest)) = bytes.split_first() else { return };
    let scheme = [Scheme::Get, Scheme::Put, Scheme::Fragments][usize::from(mode % 3)];
    let mut node = victim(liar, scheme);
    let bounds = if mode & 32 == 0 { Bounds::DEFAULT } else { FEW };
    node.engine.bound(bounds);
    let own = node.engine.queued(liar);
    while let Ok((frame, len)) = Frame::parse(rest) {
        drain(&mut node, liar, usize::from(mode / 64));
        let header = frame.encode(len).len();
        let Some(payload) = rest.get(header..header + len) else { break };
        node.frame(liar, &frame, Bytes::from(payload));
        node.settle();
        let owed = node.engine.owed(liar);
        let within = owed.requests <= bounds.requests && owed.announced <= bounds.announced;
        assert!(within || !node.broken.is_empty(), "{owed:?}, and nobody is blamed");
        // and one word of each tag of which values came
        let values = node.engine.untold_values(liar);
        assert!(values <= values::TAGS);
        let most = own + owed.requests as usize + 2 * owed.announced as usize + values + MANY;
        assert!(
            node.engine.queued(liar) <= most,
            "{} wait for who is owed {owed:?}",
            node.engine.queued(liar)
        );
        rest = &rest[header + len..];
    }
    drain(&mut node, liar, 1000);
    let most = node.most_stashed.values().copied().max().unwrap_or(0);
    assert!(most <= u64::from(WINDOW) * 96, "{most} bytes stashed");
    node.engine.peer_down(liar);
    node.settle();
    let [sends, _, _, rmas, puts] = node.engine.in_flight();
    assert_eq!([sends, rmas, puts], [0; 3]);
}
