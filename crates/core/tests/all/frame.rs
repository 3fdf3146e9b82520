//! Data frames: their bytes are pinned, every frame survives the way there and back, and no bytes can do harm.

use crate::frame_support::{any_bytes, frame, frame_and_payload, payload_near};
use polyrail_core::frame::{
    ACKED_RANGE, Acked, AtomicCode, AtomicKind, Column, Frame, FrameError, MAX_ACKED, MAX_COLUMNS,
    MAX_HEADER, MAX_LANE_WORD, MAX_PAYLOAD, MAX_RANGES, MAX_REGION, Matching, OpId, Order, PREFIX, RANGE,
    REGION_HEAD, Region, RemoteAddr, Status, peek_lengths,
};
use polyrail_core::proto::{Action, Directive, Next};
use polyrail_core::wire::{Reject, Transport};
use proptest::prelude::*;
use std::mem::size_of;

const ORDER: Order = Order { seq: 0x0403_0201, credit: 0x0807_0605 };
const OP: OpId = OpId { slot: 0xa1, generation: 0xa2 };
const TO: OpId = OpId { slot: 0xb1, generation: 0xb2 };
const AT: RemoteAddr = RemoteAddr { key: 0xc1, addr: 0x1000 };
const VALUE_TAG: u64 = 0xfedc_ba98_7654_3210;
const TAG: Matching = Matching::Tag(VALUE_TAG);
const CODE: AtomicCode = AtomicCode { datatype: 7, op: 2, kind: AtomicKind::Fetch, count: 1 };

/// Every kind of frame, with and without what is optional, its payload's length, and its bytes: eight to a group.
fn golden() -> Vec<(&'static str, Frame, usize, &'static str)> {
    let (order, op, to, len) = (ORDER, OP, TO, 0x2_0000_0000);
    vec![
        (
            "EAGER",
            Frame::Eager { order, matching: TAG, data: None, ack: None },
            8,
            "0101180008000000 0102030405060708 1032547698badcfe",
        ),
        (
            "EAGER, untagged, with data and ack",
            Frame::Eager { order, matching: Matching::Message, data: Some(0xd1), ack: Some(OP) },
            0,
            "0106280000000000 0102030405060708 0000000000000000 d100000000000000 a1000000a2000000",
        ),
        (
            "RTS",
            Frame::Rts { order, matching: TAG, data: None, len, op, readable: false },
            0,
            "0201280000000000 0102030405060708 1032547698badcfe 0000000002000000 a1000000a2000000",
        ),
        (
            "RTS, readable, with data",
            Frame::Rts { order, matching: TAG, data: Some(0xd1), len, op, readable: true },
            24,
            "0213300018000000 0102030405060708 1032547698badcfe 0000000002000000 a1000000a2000000 d100000000000000",
        ),
        (
            "RTR",
            Frame::Rtr { op, to, len, writable: false },
            0,
            "0300200000000000 a1000000a2000000 b1000000b2000000 0000000002000000",
        ),
        (
            "RTR, writable",
            Frame::Rtr { op, to, len, writable: true },
            40,
            "0310200028000000 a1000000a2000000 b1000000b2000000 0000000002000000",
        ),
        (
            "FRAG",
            Frame::Frag { to, offset: 0x3000 },
            4096,
            "0400180000100000 b1000000b2000000 0030000000000000",
        ),
        (
            "ATS",
            Frame::Ats { op, status: Status::Ok },
            0,
            "0500180000000000 a1000000a2000000 0000000000000000",
        ),
        (
            "ATP",
            Frame::Atp { to, status: Status::Fault },
            0,
            "0600180000000000 b1000000b2000000 0400000000000000",
        ),
        (
            "ACK",
            Frame::Ack { op, status: Status::Range },
            0,
            "0700180000000000 a1000000a2000000 0200000000000000",
        ),
        (
            "PUT",
            Frame::Put { order, op, to: AT, data: None, last: false },
            65536,
            "0800280000000100 0102030405060708 a1000000a2000000 c100000000000000 0010000000000000",
        ),
        (
            "PUT, last, with data",
            Frame::Put { order, op, to: AT, data: Some(0xd1), last: true },
            1,
            "080a300001000000 0102030405060708 a1000000a2000000 c100000000000000 0010000000000000 d100000000000000",
        ),
        (
            "PUT_RTS",
            Frame::PutRts { order, op, to: AT, len },
            24,
            "0910300018000000 0102030405060708 a1000000a2000000 c100000000000000 0010000000000000 0000000002000000",
        ),
        (
            "GET",
            Frame::Get { order, op, from: AT, len, writable: false },
            0,
            "0a00300000000000 0102030405060708 a1000000a2000000 c100000000000000 0010000000000000 0000000002000000",
        ),
        (
            "GET, writable",
            Frame::Get { order, op, from: AT, len, writable: true },
            424,
            "0a103000a8010000 0102030405060708 a1000000a2000000 c100000000000000 0010000000000000 0000000002000000",
        ),
        (
            "GET_DATA",
            Frame::GetData { op, offset: 0x3000 },
            4096,
            "0b00180000100000 a1000000a2000000 0030000000000000",
        ),
        (
            "ATOMIC",
            Frame::Atomic { order, op, at: AT, code: CODE },
            8,
            "0c00300008000000 0102030405060708 a1000000a2000000 c100000000000000 0010000000000000 0702010001000000",
        ),
        ("ATOMIC_DATA", Frame::AtomicData { op }, 8, "0d00100008000000 a1000000a2000000"),
        ("CREDIT", Frame::Credit { credit: 0x0807_0605 }, 0, "0e00100000000000 0506070800000000"),
        (
            "AM",
            Frame::Am { order, id: 0x0e01, header_len: 4 },
            12,
            "0f0018000c000000 0102030405060708 010e040000000000",
        ),
        ("BYE", Frame::Bye, 0, "1000100000000000 0000000000000000"),
        (
            "GOT",
            Frame::Got { lane: 0x0f01, received: 0x3000 },
            0,
            "1100180000000000 010f000000000000 0030000000000000",
        ),
        (
            "RETIRE",
            Frame::Retire { lane: 0x0f01, received: 0x3000 },
            0,
            "1200180000000000 010f000000000000 0030000000000000",
        ),
        (
            "GOT, with ranges",
            Frame::Got { lane: 0x0f01, received: 0x3000 },
            32,
            "1100180020000000 010f000000000000 0030000000000000",
        ),
        ("SEEN", Frame::Seen { seq: 0x0403_0201 }, 0, "1300100000000000 0102030400000000"),
        (
            "LANE_OPEN",
            Frame::LaneOpen { lane: 0x0f01, transport: Transport::UDP },
            5,
            "1400100005000000 010f030000000000",
        ),
        (
            "LANE_ANSWER",
            Frame::LaneAnswer { lane: 0x0f01, transport: Transport::UDP, verdict: Ok(()) },
            6,
            "1500100006000000 010f030000000000",
        ),
        (
            "LANE_ANSWER, no such transport",
            Frame::LaneAnswer { lane: 0x0f01, transport: Transport::UDP, verdict: Err(Reject::NoTransport) },
            0,
            "1500100000000000 010f030800000000",
        ),
        (
            "VALUE",
            Frame::Value { tag: VALUE_TAG, iteration: 0xe1, total: 0x10_0000, offset: 0x3000 },
            4096,
            "1600200000100000 1032547698badcfe e100000000000000 0000100000300000",
        ),
        (
            "VALUE, without bytes",
            Frame::Value { tag: VALUE_TAG, iteration: 0xe1, total: 0, offset: 0 },
            0,
            "1600200000000000 1032547698badcfe e100000000000000 0000000000000000",
        ),
        (
            "VALUE_HAD",
            Frame::ValueHad { tag: VALUE_TAG, iteration: 0xe1 },
            0,
            "1700180000000000 1032547698badcfe e100000000000000",
        ),
    ]
}

fn hex(bytes: &[u8]) -> String {
    let group = |chunk: &[u8]| chunk.iter().map(|b| format!("{b:02x}")).collect::<String>();
    bytes.chunks(8).map(group).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_bytes_of_every_kind_are_pinned() {
    for (name, frame, payload, bytes) in golden() {
        let encoded = frame.encode(payload);
        assert_eq!(hex(&encoded), bytes, "{name}");
        assert_eq!(Frame::parse(&encoded), Ok((frame, payload)), "{name}");
    }
}

#[test]
fn the_documented_examples_are_the_pinned_ones() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire-frames.md")).unwrap();
    for (name, _, _, bytes) in golden() {
        let line = format!("| {name} | `{bytes}` |");
        assert!(page.contains(&line), "docs/wire-frames.md lacks this line:\n{line}");
    }
}

const UDP: Column = Column { transport: Transport::UDP, device: 0 };
const VERBS: Column = Column { transport: Transport::VERBS, device: 0x102 };
const LISTED: &str = "0200000000000000 00100000007f0000 0a00000000000000 1000000000000000 0000000002000000";
const KEYED: &str = "0202000000000000 0300000000000000 0400020100000000 00100000007f0000 0a00000000000000 d100000000000000 \
                     e100000000000000 1000000000000000 0000000002000000 d200000000000000 e200000000000000";
const GAPS: &str = "0230000000000000 0200000000000000 0040000000000000 0100000000000000";

fn listed(keyed: bool) -> Region {
    let mut region = Region::default();
    assert!(region.push(0x7f00_0000_1000, 10) && region.push(0x10, 0x2_0000_0000));
    if keyed {
        assert!(region.push_column(UDP, &[0xd1, 0xd2]) && region.push_column(VERBS, &[0xe1, 0xe2]));
    }
    region
}

fn gaps() -> Acked {
    let mut acked = Acked::before(0x3000);
    assert!([0x3002, 0x3003, 0x4000].into_iter().all(|frame| acked.add(frame)));
    acked
}

fn encoded(region: &Region) -> Vec<u8> {
    let mut out = [0; Region::MAX_BYTES];
    let len = region.encode(&mut out);
    out[..len].to_vec()
}

#[test]
fn the_bytes_of_payloads_are_pinned_and_documented() {
    let page = include_str!("../../../../docs/wire-frames.md");
    for (keyed, bytes) in [(false, LISTED), (true, KEYED)] {
        let region = listed(keyed);
        assert_eq!(hex(&encoded(&region)), bytes);
        assert_eq!(Region::parse(&encoded(&region)), Some(region));
    }
    assert_eq!(hex(&gaps().payload()), GAPS);
    assert_eq!(Acked::parse(0x3000, &gaps().payload()), Some(gaps()));
    for bytes in [LISTED, KEYED, GAPS] {
        assert!(page.contains(bytes), "docs/wire-frames.md lacks {bytes}");
    }
}

#[test]
fn a_list_of_memory_is_exactly_its_ranges_and_columns() {
    let good = encoded(&listed(true));
    for cut in 0..good.len() {
        assert_eq!(Region::parse(&good[..cut]), None, "cut to {cut}");
    }
    assert_eq!(Region::parse(&[&good[..], &[0; 8]].concat()), None, "more behind");
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Region::parse(&bytes)
    };
    for (at, byte) in [(0, 0), (0, 1), (0, 3), (0, 9), (1, 0), (1, 1), (1, 3), (1, 5)] {
        assert_eq!(with(at, byte), None, "byte {at} is {byte}: other counts than there are");
    }
    for at in (2..8).chain([9, 12, 13, 14, 15, 17, 20, 21, 22, 23]) {
        assert_eq!(with(at, 1), None, "byte {at} is zero");
    }
    assert_eq!(with(8, 0), None, "no transport");
    let mut twice = good.clone();
    twice.copy_within(8..16, 16);
    assert_eq!(Region::parse(&twice), None, "the same column twice");
    assert!(with(24, 1).is_some() && with(40, 1).is_some(), "addresses and keys are any");
}

#[test]
fn a_list_of_memory_is_bounded() {
    let mut region = Region::default();
    assert!((0..MAX_RANGES as u64).all(|n| region.push(n, n)) && !region.push(9, 9));
    let column = |device| Column { transport: Transport::VERBS, device };
    assert!(!region.push_column(column(9), &[1; MAX_RANGES - 1]), "a range without a key");
    assert!((0..MAX_COLUMNS as u16).all(|n| region.push_column(column(n), &[u64::from(n); MAX_RANGES])));
    assert!(!region.push_column(column(9), &[1; MAX_RANGES]) && !region.push(9, 9));
    assert_eq!(encoded(&region).len(), MAX_REGION);
    assert_eq!(Region::parse(&encoded(&region)), Some(region));
    let mut one = Region::default();
    assert!(one.push(1, 2) && one.push_column(UDP, &[3]));
    assert!(!one.push_column(UDP, &[4]), "the same device twice");
    assert!(!one.push(5, 6), "it would have no key");
    assert_eq!(one.columns().collect::<Vec<_>>(), [(UDP, &[3][..])]);
}

#[test]
fn ranges_of_frames_have_one_form() {
    let parse = |upto, ranges: &[[u64; 2]]| {
        let bytes: Vec<u8> = ranges.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        Acked::parse(upto, &bytes)
    };
    assert_eq!(parse(7, &[]), Some(Acked::before(7)));
    assert_eq!(parse(7, &[[7, 1]]), None, "no gap before it");
    assert_eq!(parse(7, &[[6, 1]]), None, "below");
    assert_eq!(parse(7, &[[8, 0]]), None, "empty");
    assert_eq!(parse(7, &[[8, u64::MAX - 7]]), None, "beyond all numbers");
    assert!(parse(7, &[[8, u64::MAX - 8]]).is_some());
    assert_eq!(parse(7, &[[8, 2], [10, 1]]), None, "adjacent");
    assert_eq!(parse(7, &[[8, 2], [9, 5]]), None, "over each other");
    assert_eq!(parse(7, &[[20, 2], [10, 5]]), None, "not ascending");
    assert!(parse(7, &[[8, 2], [11, 1]]).is_some());
    assert_eq!(Acked::parse(7, &[0; ACKED_RANGE - 1]), None);
    let many: Vec<_> = (0..=MAX_ACKED as u64).map(|n| [10 + 2 * n, 1]).collect();
    assert!(parse(7, &many[1..]).is_some());
    assert_eq!(parse(7, &many), None, "more than may be said");
}

#[test]
fn a_header_that_is_cut_off_is_no_frame() {
    for (name, frame, payload, _) in golden() {
        let encoded = frame.encode(payload);
        for cut in 0..encoded.len() {
            assert_eq!(Frame::parse(&encoded[..cut]), Err(FrameError::Short), "{name} cut to {cut}");
        }
        assert_eq!(
            Frame::parse(&[&*encoded, &[0xff; 9]].concat()),
            Ok((frame, payload)),
            "{name} and more behind"
        );
    }
}

/// `golden` frames with one thing wrong, each refused for that.
#[test]
fn what_no_kind_of_frame_has_is_refused() {
    let changed = |name: &str, at: usize, to: u8| {
        let (_, frame, payload, _) = golden().into_iter().find(|(n, ..)| *n == name).unwrap();
        let mut bytes = frame.encode(payload).to_vec();
        bytes[at] = to;
        Frame::parse(&bytes).unwrap_err()
    };
    assert_eq!(changed("BYE", 0, 0), FrameError::Kind(0));
    assert_eq!(changed("BYE", 0, 24), FrameError::Kind(24));
    assert_eq!(changed("LANE_OPEN", 10, 0), FrameError::Field("transport"));
    assert_eq!(changed("LANE_OPEN", 11, 1), FrameError::Field("transport"));
    assert_eq!(changed("LANE_OPEN", 12, 1), FrameError::Field("transport"));
    assert_eq!(changed("LANE_ANSWER", 10, 0), FrameError::Field("transport"));
    assert_eq!(changed("LANE_ANSWER", 11, 4), FrameError::Field("code"));
    assert_eq!(changed("LANE_ANSWER", 11, 6), FrameError::Field("payload"));
    assert_eq!(changed("LANE_ANSWER", 15, 1), FrameError::Field("transport"));
    assert_eq!(changed("EAGER", 1, 0x81), FrameError::Field("flags"));
    assert_eq!(changed("FRAG", 1, 1), FrameError::Field("flags"));
    assert_eq!(changed("PUT_RTS", 1, 0), FrameError::Field("flags"));
    assert_eq!(changed("EAGER", 1, 0), FrameError::Field("tag"));
    assert_eq!(changed("EAGER", 2, 0x10), FrameError::Short);
    assert_eq!(changed("ATS", 2, 0x20), FrameError::Short);
    assert_eq!(changed("PUT", 2, 0x30), FrameError::Short);
    assert_eq!(changed("EAGER", 2, 0x17), FrameError::Length(0x17));
    assert_eq!(changed("EAGER", 2, 0x08), FrameError::Length(8));
    assert_eq!(changed("EAGER", 3, 1), FrameError::Length(0x18));
    assert_eq!(changed("EAGER", 6, 0x11), FrameError::Payload(0x11_0008));
    assert_eq!(changed("ATS", 16, 6), FrameError::Field("status"));
    assert_eq!(changed("ATS", 20, 1), FrameError::Field("status"));
    assert_eq!(changed("ATOMIC", 42, 3), FrameError::Field("atomic kind"));
    assert_eq!(changed("ATOMIC", 43, 1), FrameError::Field("atomic kind"));
    assert_eq!(changed("CREDIT", 12, 1), FrameError::Field("credit"));
    assert_eq!(changed("AM", 18, 13), FrameError::Field("active message header"));
    assert_eq!(changed("AM", 20, 1), FrameError::Field("active message header"));
    assert_eq!(changed("BYE", 8, 1), FrameError::Field("bye"));
    assert_eq!(changed("RETIRE", 10, 1), FrameError::Field("lane"));
    assert_eq!(changed("SEEN", 12, 1), FrameError::Field("seen"));
    // longer than a value may be; beyond its end; a part of none, and none of one
    assert_eq!(changed("VALUE", 27, 5), FrameError::Field("value"));
    assert_eq!(changed("VALUE", 30, 0x10), FrameError::Field("value"));
    assert_eq!(changed("VALUE", 5, 0), FrameError::Field("value"));
    assert_eq!(changed("VALUE, without bytes", 4, 1), FrameError::Field("value"));
    assert_eq!(changed("VALUE, without bytes", 24, 1), FrameError::Field("value"));
    // one optional field less than the flags say, and one more
    let eager = Frame::Eager { order: ORDER, matching: TAG, data: Some(1), ack: None };
    let mut bytes = eager.encode(0).to_vec();
    bytes[2] = 24;
    assert_eq!(Frame::parse(&bytes), Err(FrameError::Short));
    bytes[2] = 40;
    bytes.extend([0; 8]);
    assert_eq!(Frame::parse(&bytes), Err(FrameError::Length(40)));
}

/// A payload that a kind cannot have is refused before anybody makes room for it.
#[test]
fn a_payload_that_does_not_fit_its_kind_is_refused() {
    for (name, frame, payload, _) in golden() {
        let with = |len: usize| {
            let mut bytes = frame.encode(payload).to_vec();
            bytes[4..8].copy_from_slice(&(len as u32).to_le_bytes());
            Frame::parse(&bytes).is_ok()
        };
        let least = REGION_HEAD + RANGE;
        let acked = MAX_ACKED * ACKED_RANGE;
        for len in [0, 1, 8, 16, least - 1, least, least + 1, least + 8, MAX_REGION, MAX_REGION + 8]
            .into_iter()
            .chain([MAX_LANE_WORD, MAX_LANE_WORD + 1, 4096, acked, acked + ACKED_RANGE, MAX_PAYLOAD])
        {
            assert_eq!(with(len), payload_near(&frame, len) == len, "{name} with {len} bytes");
        }
        assert!(!with(MAX_PAYLOAD + 1), "{name}");
    }
}

#[test]
fn the_prefix_alone_tells_both_lengths() {
    let encoded = Frame::Frag { to: TO, offset: 0 }.encode(MAX_PAYLOAD);
    assert_eq!(peek_lengths(encoded.first_chunk::<PREFIX>().unwrap()), Ok((24, MAX_PAYLOAD)));
    assert_eq!(peek_lengths(&[0xff; PREFIX]), Err(FrameError::Length(0xff)));
}

/// A frame fits a cache line; what the engine says of one fits two. An action may carry a list of memory.
#[test]
fn what_is_copied_for_each_message_stays_small() {
    assert_eq!(MAX_HEADER, 48);
    assert!(size_of::<Frame>() <= 64, "Frame: {}", size_of::<Frame>());
    assert!(size_of::<Next>() <= 128, "Next: {}", size_of::<Next>());
    assert!(size_of::<Directive>() <= 128, "Directive: {}", size_of::<Directive>());
    assert!(size_of::<Region>() <= 32, "Region: {}", size_of::<Region>());
    assert!(size_of::<Action<u128>>() <= 256, "Action: {}", size_of::<Action<u128>>());
}

proptest! {
    /// Against a set of numbers: what comes in any order is there once, and the rest is missing.
    #[test]
    fn frames_that_come_in_any_order_are_counted(
        upto in 0..5u64, frames in prop::collection::vec(0..60u64, 0..80), other in prop::collection::vec(0..60u64, 0..20),
    ) {
        let mut acked = Acked::before(upto);
        let mut there: std::collections::BTreeSet<u64> = (0..upto).collect();
        let mut some = Acked::default();
        for frame in &other {
            let _ = some.add(*frame);
        }
        for frame in frames {
            prop_assert_eq!(acked.add(frame), there.insert(frame));
            prop_assert_eq!(acked.upto(), (0..).find(|n| !there.contains(n)).unwrap());
            prop_assert_eq!(acked.end(), there.last().map_or(0, |last| last + 1).max(acked.upto()));
            prop_assert_eq!(acked.is_in_order(), there.iter().all(|n| *n < acked.upto()));
            prop_assert_eq!(Acked::parse(acked.upto(), &acked.payload()), Some(acked.clone()));
        }
        for frame in 0..70 {
            prop_assert_eq!(acked.has(frame), there.contains(&frame), "frame {}", frame);
        }
        prop_assert_eq!(acked.covers(&some), other.iter().all(|frame| there.contains(frame)));
    }

    #[test]
    fn any_list_of_memory_comes_back(
        ranges in prop::collection::vec(any::<(u64, u64)>(), 1..=MAX_RANGES),
        columns in prop::collection::vec((1..=u8::MAX, any::<u16>(), any::<[u64; MAX_RANGES]>()), 0..=MAX_COLUMNS),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..3),
    ) {
        let mut region = Region::default();
        prop_assert!(ranges.iter().all(|(addr, len)| region.push(*addr, *len)));
        for (transport, device, keys) in columns {
            let _ = region.push_column(
                Column { transport: Transport::from_wire(transport).unwrap(), device },
                &keys[..ranges.len()],
            );
        }
        let mut bytes = encoded(&region);
        prop_assert_eq!(Region::parse(&bytes), Some(region));
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        any_bytes(&bytes);
    }

    #[test]
    fn every_frame_comes_back((frame, payload) in frame_and_payload()) {
        let encoded = frame.encode(payload);
        prop_assert!(encoded.len() <= MAX_HEADER && encoded.len() % 8 == 0);
        prop_assert_eq!(Frame::parse(&encoded), Ok((frame, payload)));
        prop_assert_eq!(peek_lengths(encoded.first_chunk().unwrap()), Ok((encoded.len(), payload)));
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        any_bytes(&bytes);
    }

    /// Bytes that begin as a frame does get further.
    #[test]
    fn almost_frames_do_no_harm(
        (frame, payload) in frame_and_payload(),
        changes in prop::collection::vec((0..48usize, any::<u8>()), 0..4),
    ) {
        let mut bytes = frame.encode(payload).to_vec();
        for (at, to) in changes {
            let at = at % bytes.len();
            bytes[at] = to;
        }
        any_bytes(&bytes);
    }

    #[test]
    fn order_is_what_went_in(frame in frame()) {
        let sequenced = matches!(
            frame,
            Frame::Eager { .. } | Frame::Rts { .. } | Frame::Put { .. } | Frame::PutRts { .. } | Frame::Get { .. }
                | Frame::Atomic { .. } | Frame::Am { .. }
        );
        prop_assert_eq!(frame.order().is_some(), sequenced);
    }
}
