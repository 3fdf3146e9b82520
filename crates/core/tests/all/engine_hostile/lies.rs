//! Lies: frames that nobody asked for, in turn and well-formed, about operations that may be there.

use crate::frame_support::{frame, payload_near};
use polyrail_core::frame::{Column, Frame, OpId, Order, RANGE, Region};
use polyrail_core::proto::PeerIdx;
use polyrail_core::sim::{Bytes, Node};
use polyrail_core::wire::Transport;
use proptest::collection::vec;
use proptest::prelude::*;

/// The peer that lies.
pub const LIAR: usize = 2;

#[derive(Clone, Debug)]
pub struct Lie {
    frame: Frame,
    wish: usize,
    addrs: Vec<u64>,
    /// Whether its payload comes later than its header, by this rail.
    split: Option<usize>,
    /// Whether it lies about its order too.
    order: u8,
    /// Which of the operations that the liar knows of it means; none: one that it makes up.
    aim: Option<prop::sample::Index>,
}

pub fn lies(most: usize) -> impl Strategy<Value = Vec<Lie>> {
    let addr = prop_oneof![0..5000u64, (1u64 << 44)..(1 << 44) + 20_000, any::<u64>(), Just(u64::MAX)];
    let wish = prop_oneof![0..200usize, 0..5000usize];
    let aim = prop::option::weighted(0.8, any::<prop::sample::Index>());
    vec((frame(), wish, vec(addr, 1..4), prop::option::of(0..3usize), any::<u8>(), aim), 0..most).prop_map(
        |lies| {
            let lie = |(frame, wish, addrs, split, order, aim)| Lie { frame, wish, addrs, split, order, aim };
            lies.into_iter().map(lie).collect()
        },
    )
}

/// The names of operations that a frame tells.
pub fn names(frame: &Frame) -> Vec<OpId> {
    match *frame {
        Frame::Eager { ack: Some(op), .. }
        | Frame::Rts { op, .. }
        | Frame::Put { op, .. }
        | Frame::PutRts { op, .. }
        | Frame::Get { op, .. }
        | Frame::Atomic { op, .. } => vec![op],
        Frame::Rtr { to, .. } => vec![to],
        _ => vec![],
    }
}

/// A list of memory that the liar claims to have.
fn region(len: usize, addrs: &[u64]) -> Bytes {
    let mut region = Region::default();
    let full = (0..len / RANGE).find(|i| !region.push(addrs[i % addrs.len()], addrs[(i + 1) % addrs.len()]));
    if region.is_empty() {
        return Bytes::Real(vec![]);
    }
    if full.is_some() {
        // as good as any
        let column = Column { transport: Transport::VERBS, device: 0 };
        assert!(region.push_column(column, &[addrs[0]; Region::MAX]));
    }
    let mut bytes = [0; Region::MAX_BYTES];
    let len = region.encode(&mut bytes);
    Bytes::from(&bytes[..len])
}

impl Lie {
    /// The frame and its payload. One that has an order is the next, unless it lies about that too.
    pub fn told(&self, next: &mut u32, known: &[OpId]) -> (Frame, Bytes) {
        let mut frame = self.frame;
        let jump = if self.order > 200 { u32::from(self.order % 5) } else { 0 };
        let in_turn = Order { seq: next.wrapping_add(jump), credit: 0 };
        match &mut frame {
            Frame::Eager { order, .. }
            | Frame::Rts { order, .. }
            | Frame::Put { order, .. }
            | Frame::PutRts { order, .. }
            | Frame::Get { order, .. }
            | Frame::Atomic { order, .. }
            | Frame::Am { order, .. } => {
                *order = if self.order == 0 { *order } else { in_turn };
                *next = next.wrapping_add(1);
            }
            _ => {}
        }
        if let (Some(aim), [_, ..]) = (&self.aim, known) {
            let name = *aim.get(known);
            match &mut frame {
                Frame::Rtr { op, .. }
                | Frame::Ats { op, .. }
                | Frame::Ack { op, .. }
                | Frame::GetData { op, .. }
                | Frame::AtomicData { op, .. } => *op = name,
                Frame::Frag { to, .. } | Frame::Atp { to, .. } => *to = name,
                _ => {}
            }
        }
        let len = payload_near(&frame, self.wish);
        let payload = match frame {
            Frame::Rts { .. } | Frame::Rtr { .. } | Frame::Get { .. } | Frame::PutRts { .. } => {
                region(len, &self.addrs)
            }
            _ => Bytes::Real(vec![0xee; len]),
        };
        assert!(Frame::parse(&frame.encode(len)).is_ok(), "a lie that would never arrive");
        (frame, payload)
    }

    /// Tells it to a node, as a rail of the liar's link would: no other frame of that rail before the payload is there.
    pub fn tell(&self, node: &mut Node, next: &mut u32, known: &[OpId], open: &mut [Option<Bytes>; 3]) {
        let from = PeerIdx(LIAR as u32);
        let (frame, payload) = self.told(next, known);
        match self.split {
            Some(rail) if !payload.is_empty() => {
                if let Some(before) = open[rail].take() {
                    node.end(from, rail, before);
                }
                node.begin(from, rail, frame, payload.len() as usize);
                open[rail] = Some(payload);
            }
            _ => node.frame(from, &frame, payload),
        }
    }
}
