//! Data frames: their bytes are pinned, every frame survives the way there and back, and no bytes can do harm.
mod frame_support;

use frame_support::{any_bytes, frame, frame_and_payload, payload_near};
use polyrail_core::frame::{
    AtomicCode, AtomicKind, Frame, FrameError, MAX_HEADER, MAX_PAYLOAD, MAX_REGION, Matching, OpId, Order,
    PREFIX, RANGE, RemoteAddr, Status, peek_lengths,
};
use polyrail_core::proto::{Action, Directive, Next, Region};
use proptest::prelude::*;
use std::mem::size_of;

const ORDER: Order = Order { seq: 0x0403_0201, credit: 0x0807_0605 };
const OP: OpId = OpId { slot: 0xa1, generation: 0xa2 };
const TO: OpId = OpId { slot: 0xb1, generation: 0xb2 };
const AT: RemoteAddr = RemoteAddr { key: 0xc1, addr: 0x1000 };
const TAG: Matching = Matching::Tag(0xfedc_ba98_7654_3210);
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
            16,
            "0213300010000000 0102030405060708 1032547698badcfe 0000000002000000 a1000000a2000000 d100000000000000",
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
            32,
            "0310200020000000 a1000000a2000000 b1000000b2000000 0000000002000000",
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
            16,
            "0910300010000000 0102030405060708 a1000000a2000000 c100000000000000 0010000000000000 0000000002000000",
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
            128,
            "0a10300080000000 0102030405060708 a1000000a2000000 c100000000000000 0010000000000000 0000000002000000",
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
        ("SEEN", Frame::Seen { seq: 0x0403_0201 }, 0, "1300100000000000 0102030400000000"),
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

#[test]
fn a_region_is_a_list_of_addresses_and_lengths() {
    let mut region = Region::default();
    assert!(region.push(0x7f00_0000_1000, 10) && region.push(0x10, 0x2_0000_0000));
    let mut out = [0; Region::MAX_BYTES];
    let len = region.encode(&mut out);
    assert_eq!(hex(&out[..len]), "00100000007f0000 0a00000000000000 1000000000000000 0000000002000000");
    assert_eq!(Region::parse(&out[..len]), Some(region));
    assert_eq!(Region::parse(&[]), None);
    assert_eq!(Region::parse(&[0; RANGE + 1]), None);
    assert_eq!(Region::parse(&[0; MAX_REGION + RANGE]), None);
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
    assert_eq!(changed("BYE", 0, 20), FrameError::Kind(20));
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
        for len in [0, 1, RANGE - 1, RANGE, RANGE + 1, MAX_REGION, MAX_REGION + RANGE, 4096, MAX_PAYLOAD] {
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
    assert!(size_of::<Region>() <= 144, "Region: {}", size_of::<Region>());
    assert!(size_of::<Action>() <= 256, "Action: {}", size_of::<Action>());
}

proptest! {
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
