//! Parts of values in datagrams: as bytes, and which bytes are none.

use polyrail_core::values::repair::encode;
use polyrail_core::wire::codec::Writer;
use polyrail_core::wire::datagram::{
    Chunk, Chunks, DatagramError, Part, VALUE_HEAD, VALUE_MOST, Value, write_value,
};
use polyrail_core::wire::repair::Code;
use proptest::prelude::*;

fn written(value: &Value<'_>) -> Vec<u8> {
    let mut room = vec![0; VALUE_HEAD + value.bytes.len()];
    let mut to = Writer::new(&mut room);
    write_value(&mut to, value);
    assert_eq!(to.finish(), Ok(VALUE_HEAD + value.bytes.len()), "it is as long as its head says");
    room
}

fn first(bytes: &[u8]) -> Result<Chunk<'_>, DatagramError> {
    Chunks::new(bytes).next().expect("a chunk")
}

const VALUE: Value<'_> =
    Value { tag: 0x1122, iteration: 0x3344, total: 0x10_0000, part: Part::At(0x5566), bytes: b"abc" };

#[test]
fn a_value_is_as_pinned() {
    let golden = [
        &[
            11, 0, 3, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x44, 0x33, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0x66,
            0x55, 0, 0,
        ][..],
        b"abc",
    ];
    assert_eq!(written(&VALUE), golden.concat());
}

#[test]
fn values_out_of_their_range_are_none() {
    let broken = [
        Value { total: 0x5568, ..VALUE },
        Value { total: VALUE_MOST + 1, ..VALUE },
        Value { part: Part::At(u32::MAX), ..VALUE },
        Value { bytes: b"", ..VALUE },
    ];
    for value in broken {
        assert_eq!(first(&written(&value)), Err(DatagramError::Range), "{value:?}");
    }
    let mut bytes = written(&VALUE);
    bytes[1] = 1;
    assert_eq!(first(&bytes), Err(DatagramError::Reserved));
    assert_eq!(first(&bytes[..20]), Err(DatagramError::Short));
    assert_eq!(first(&written(&VALUE)[..VALUE_HEAD + 2]), Err(DatagramError::Short));
}

const REPAIR: Value<'_> = Value { total: 0x800, part: Part::Repair(0x1f), bytes: &[7; 0x100], ..VALUE };

#[test]
fn a_repair_is_as_pinned() {
    let golden = [
        &[12, 0, 0, 1, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x44, 0x33, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0x1f, 0, 0, 0]
            [..],
        &[7; 0x100],
    ];
    assert_eq!(written(&REPAIR), golden.concat());
    assert_eq!(first(&written(&REPAIR)), Ok(Chunk::Value(REPAIR)));
}

#[test]
fn repairs_are_as_pinned() {
    // another release of the code's crate may not make others of the same bytes
    let bytes: Vec<u8> = (0..1000_u32).map(|at| (at * at / 7) as u8).collect();
    let code = Code::of(bytes.len(), 256).expect("a code");
    assert_eq!((code.parts(), code.repairs()), (4, 32));
    let all = encode(&code, &bytes, 32).expect("repairs");
    let pinned = |number: usize| all[number * 256..][..8].to_vec();
    assert_eq!(
        (pinned(0), pinned(31)),
        (vec![168, 67, 40, 119, 3, 223, 68, 53], vec![174, 36, 20, 227, 63, 184, 16, 244])
    );
}

#[test]
fn repairs_that_no_code_has_are_none() {
    let broken = [
        Value { part: Part::Repair(0x20), ..REPAIR },
        Value { bytes: &[7; 0x101], ..REPAIR },
        Value { bytes: &[7; 0xfe], ..REPAIR },
        Value { bytes: b"", ..REPAIR },
        Value { total: 0x100, ..REPAIR },
        Value { total: 901 * 0x100, ..REPAIR },
        Value { total: VALUE_MOST, ..REPAIR },
    ];
    for value in broken {
        assert_eq!(first(&written(&value)), Err(DatagramError::Range), "{value:?}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(tag: u64, iteration: u64, bytes in prop::collection::vec(any::<u8>(), 0..100), offset in 0..1_u32 << 20, more in 0..1_u32 << 20) {
        let len = bytes.len() as u32;
        let (offset, total) = if len == 0 { (0, 0) } else { (offset, offset + len + more) };
        let value = Value { tag, iteration, total, part: Part::At(offset), bytes: &bytes };
        let written = written(&value);
        prop_assert_eq!(first(&written), Ok(Chunk::Value(value)));
    }

    #[test]
    fn no_bytes_panic(kind in 11..13_u8, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut all = vec![kind, 0];
        all.extend(bytes);
        Chunks::new(&all).for_each(|chunk| assert!(chunk.is_ok() || chunk.is_err()));
    }
}
