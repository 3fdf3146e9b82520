//! Frames for tests: any valid one with a payload that fits it, and what must hold of any bytes at all.

use polyrail_core::frame::{
    ACKED_RANGE, Acked, AtomicCode, AtomicKind, Frame, MAX_ACKED, MAX_LANE_WORD, MAX_PAYLOAD, MAX_REGION,
    Matching, OpId, Order, PlainEager, RANGE, REGION_HEAD, Region, RemoteAddr, Status,
};
use polyrail_core::wire::datagram::VALUE_MOST;
use polyrail_core::wire::{Reject, Transport};
use proptest::prelude::*;

/// What must hold of any bytes. A fuzz target needs to be no more than a call of this.
pub fn any_bytes(bytes: &[u8]) {
    if let Some(region) = Region::parse(bytes) {
        let mut again = [0; Region::MAX_BYTES];
        let len = region.encode(&mut again);
        assert_eq!(&again[..len], bytes, "a region has one encoding");
    }
    if let Some((upto, payload)) = bytes.split_first_chunk()
        && let Some(acked) = Acked::parse(u64::from_le_bytes(*upto), payload)
    {
        assert_eq!(acked.payload(), payload, "ranges of frames have one encoding");
    }
    match Frame::parse(bytes) {
        Err(why) => assert!(!why.to_string().is_empty()),
        Ok((frame, payload)) => {
            let encoded = frame.encode(payload);
            assert_eq!(&bytes[..encoded.len()], &*encoded, "a frame has one encoding: {frame:?}");
            assert!(!format!("{frame:?}").is_empty());
            let plain = PlainEager::parse(&encoded);
            assert_eq!(plain, frame.plain().map(|eager| (eager, payload)));
            if let Some((eager, _)) = plain {
                assert_eq!(Frame::from(eager), frame);
                let (words, len) = eager.encode(payload);
                assert_eq!(
                    &words.map(u64::to_ne_bytes).concat()[..len],
                    &*encoded,
                    "the shortest way writes the same"
                );
            }
        }
    }
}

pub fn op() -> impl Strategy<Value = OpId> {
    prop_oneof![
        (0..4u32, 0..3u32).prop_map(|(slot, generation)| OpId { slot, generation }),
        any::<(u32, u32)>().prop_map(|(slot, generation)| OpId { slot, generation }),
    ]
}

pub fn order() -> impl Strategy<Value = Order> {
    any::<(u32, u32)>().prop_map(|(seq, credit)| Order { seq, credit })
}

pub fn matching() -> impl Strategy<Value = Matching> {
    prop_oneof![Just(Matching::Message), any::<u64>().prop_map(Matching::Tag)]
}

pub fn status() -> impl Strategy<Value = Status> {
    use Status::{Access, Cancelled, Fault, Ok, Range, Unsupported};
    prop::sample::select(vec![Ok, Access, Range, Unsupported, Fault, Cancelled])
}

/// Lengths and offsets: small ones, and those at the edges of arithmetic.
pub fn length() -> impl Strategy<Value = u64> {
    prop_oneof![0..300u64, Just(u64::MAX), Just(1 << 63), Just(u64::from(u32::MAX) + 1), any::<u64>()]
}

pub fn remote() -> impl Strategy<Value = RemoteAddr> {
    (0..4u64, length()).prop_map(|(key, addr)| RemoteAddr { key, addr })
}

pub fn code() -> impl Strategy<Value = AtomicCode> {
    let kind = prop::sample::select(vec![AtomicKind::Update, AtomicKind::Fetch, AtomicKind::Compare]);
    (any::<(u8, u8, u32)>(), kind).prop_map(|((datatype, op, count), kind)| AtomicCode {
        datatype,
        op,
        kind,
        count,
    })
}

pub fn transport() -> impl Strategy<Value = Transport> {
    (1..=u8::MAX).prop_map(|number| Transport::from_wire(number).unwrap())
}

fn verdict() -> impl Strategy<Value = Result<(), Reject>> {
    prop::sample::select(vec![
        Ok(()),
        Err(Reject::NoResources),
        Err(Reject::NoSession),
        Err(Reject::NoTransport),
    ])
}

fn data() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(any::<u64>())
}

/// A value's length, and where a part of it begins.
fn value_range() -> impl Strategy<Value = (u32, u32)> {
    let total = prop_oneof![0..300_u32, 0..=VALUE_MOST];
    (total, any::<u32>()).prop_map(|(total, offset)| (total, offset.checked_rem(total).unwrap_or(0)))
}

/// Any frame.
pub fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        (order(), matching(), data(), prop::option::of(op()))
            .prop_map(|(order, matching, data, ack)| Frame::Eager { order, matching, data, ack }),
        (order(), matching(), data(), length(), op(), any::<bool>()).prop_map(
            |(order, matching, data, len, op, readable)| Frame::Rts {
                order,
                matching,
                data,
                len,
                op,
                readable
            }
        ),
        (op(), op(), length(), any::<bool>()).prop_map(|(op, to, len, writable)| Frame::Rtr {
            op,
            to,
            len,
            writable
        }),
        (op(), length()).prop_map(|(to, offset)| Frame::Frag { to, offset }),
        (op(), status()).prop_map(|(op, status)| Frame::Ats { op, status }),
        (op(), status()).prop_map(|(to, status)| Frame::Atp { to, status }),
        (op(), status()).prop_map(|(op, status)| Frame::Ack { op, status }),
        (order(), op(), remote(), data(), any::<bool>()).prop_map(|(order, op, to, data, last)| Frame::Put {
            order,
            op,
            to,
            data,
            last
        }),
        (order(), op(), remote(), length()).prop_map(|(order, op, to, len)| Frame::PutRts {
            order,
            op,
            to,
            len
        }),
        (order(), op(), remote(), length(), any::<bool>())
            .prop_map(|(order, op, from, len, writable)| Frame::Get { order, op, from, len, writable }),
        (op(), length()).prop_map(|(op, offset)| Frame::GetData { op, offset }),
        (order(), op(), remote(), code()).prop_map(|(order, op, at, code)| Frame::Atomic {
            order,
            op,
            at,
            code
        }),
        op().prop_map(|op| Frame::AtomicData { op }),
        any::<u32>().prop_map(|credit| Frame::Credit { credit }),
        (order(), any::<u16>(), 0..100u16).prop_map(|(order, id, header_len)| Frame::Am {
            order,
            id,
            header_len
        }),
        Just(Frame::Bye),
        (any::<u16>(), any::<u64>()).prop_map(|(lane, received)| Frame::Got { lane, received }),
        (any::<u16>(), any::<u64>()).prop_map(|(lane, received)| Frame::Retire { lane, received }),
        any::<u32>().prop_map(|seq| Frame::Seen { seq }),
        (any::<u16>(), transport()).prop_map(|(lane, transport)| Frame::LaneOpen { lane, transport }),
        (any::<u16>(), transport(), verdict()).prop_map(|(lane, transport, verdict)| Frame::LaneAnswer {
            lane,
            transport,
            verdict
        }),
        (any::<(u64, u64)>(), value_range()).prop_map(|((tag, iteration), (total, offset))| Frame::Value {
            tag,
            iteration,
            total,
            offset
        }),
        any::<(u64, u64)>().prop_map(|(tag, iteration)| Frame::ValueHad { tag, iteration }),
    ]
}

/// A payload length that `frame` may have, near the one asked for.
pub fn payload_near(frame: &Frame, wish: usize) -> usize {
    match *frame {
        Frame::Rts { readable: true, .. }
        | Frame::Rtr { writable: true, .. }
        | Frame::Get { writable: true, .. }
        | Frame::PutRts { .. } => wish.next_multiple_of(8).clamp(REGION_HEAD + RANGE, MAX_REGION),
        Frame::Got { .. } | Frame::Retire { .. } => {
            wish.next_multiple_of(ACKED_RANGE).min(MAX_ACKED * ACKED_RANGE)
        }
        Frame::LaneOpen { .. } | Frame::LaneAnswer { verdict: Ok(()), .. } => wish.min(MAX_LANE_WORD),
        Frame::Eager { .. } | Frame::Put { .. } | Frame::Atomic { .. } | Frame::AtomicData { .. } => {
            wish.min(MAX_PAYLOAD)
        }
        Frame::Frag { .. } | Frame::GetData { .. } => wish.clamp(1, MAX_PAYLOAD),
        Frame::Value { total: 0, .. } => 0,
        Frame::Value { total, offset, .. } => wish.clamp(1, MAX_PAYLOAD.min((total - offset) as usize)),
        Frame::Am { header_len, .. } => wish.clamp(usize::from(header_len), MAX_PAYLOAD),
        _ => 0,
    }
}

/// Any frame and a payload length that it may have.
pub fn frame_and_payload() -> impl Strategy<Value = (Frame, usize)> {
    (frame(), prop_oneof![0..200usize, 0..=MAX_PAYLOAD])
        .prop_map(|(frame, wish)| (frame, payload_near(&frame, wish)))
}
