//! The words of the control channel as bytes: pinned, and read strictly.

use polyrail_core::control::word::{MAX_SPEC, MAX_WORD, NackReason, WordError, parse};
use polyrail_core::control::{Epoch, SpecBytes, Word};
use proptest::prelude::*;

fn spec(bytes: &[u8]) -> SpecBytes {
    SpecBytes::new(bytes).unwrap()
}

#[test]
fn words_are_these_bytes() {
    let words = [
        (Word::Prepare { epoch: Epoch(9), spec: spec(b"abc") }, &b"\x01\x09\x03\0abc"[..]),
        (Word::Prepare { epoch: Epoch(9), spec: spec(b"") }, b"\x01\x09\0\0"),
        (Word::Prepared { epoch: Epoch(255) }, b"\x02\xff\0\0"),
        (Word::Nack { epoch: Epoch(1), reason: NackReason::Busy }, b"\x03\x01\x01\0"),
        (Word::Nack { epoch: Epoch(1), reason: NackReason::Cannot }, b"\x03\x01\x02\0"),
        (Word::Nack { epoch: Epoch(1), reason: NackReason::HoldDown }, b"\x03\x01\x03\0"),
        (
            Word::Switch { epoch: Epoch(2), old: Epoch(1), last: 0x0807_0605_0403_0201 },
            b"\x04\x02\x01\0\x01\x02\x03\x04\x05\x06\x07\x08",
        ),
        (Word::Drained { old: Epoch(3) }, b"\x05\x03\0\0"),
        (Word::Abort { epoch: Epoch(4) }, b"\x06\x04\0\0"),
    ];
    for (word, bytes) in words {
        assert_eq!(word.to_bytes(), bytes);
        assert_eq!(parse(bytes), Ok(word));
    }
}

#[test]
fn what_is_no_word_is_refused() {
    let wrong: [(&[u8], WordError); 13] = [
        (b"", WordError::Short),
        (b"\x02\x01\0", WordError::Short),
        (b"\0\x01\0\0", WordError::Kind(0)),
        (b"\x07\x01\0\0", WordError::Kind(7)),
        (b"\x02\x01\x01\0", WordError::Reserved),
        (b"\x05\x01\0\x01", WordError::Reserved),
        (b"\x03\x01\0\0", WordError::Reason(0)),
        (b"\x03\x01\x04\0", WordError::Reason(4)),
        (b"\x06\x01\0\0\0", WordError::Trailing),
        (b"\x01\x01\x02\0a", WordError::Short),
        (b"\x01\x01\x02\0abc", WordError::Trailing),
        (b"\x01\x01\x41\0", WordError::Spec(65)),
        (b"\x04\x02\x01\0\x01\x02\x03\x04\x05\x06\x07", WordError::Short),
    ];
    for (bytes, error) in wrong {
        assert_eq!(parse(bytes), Err(error), "{bytes:?}");
    }
    assert_eq!(SpecBytes::new(&[0; MAX_SPEC + 1]), None);
}

fn any_word() -> impl Strategy<Value = Word> {
    let epoch = || any::<u8>().prop_map(Epoch);
    let reason = prop_oneof![Just(NackReason::Busy), Just(NackReason::Cannot), Just(NackReason::HoldDown)];
    prop_oneof![
        (epoch(), prop::collection::vec(any::<u8>(), 0..=MAX_SPEC))
            .prop_map(|(epoch, bytes)| Word::Prepare { epoch, spec: spec(&bytes) }),
        epoch().prop_map(|epoch| Word::Prepared { epoch }),
        (epoch(), reason).prop_map(|(epoch, reason)| Word::Nack { epoch, reason }),
        (epoch(), epoch(), any::<u64>()).prop_map(|(epoch, old, last)| Word::Switch { epoch, old, last }),
        epoch().prop_map(|old| Word::Drained { old }),
        epoch().prop_map(|epoch| Word::Abort { epoch }),
    ]
}

proptest! {
    #[test]
    fn what_is_said_is_understood(word in any_word()) {
        let bytes = word.to_bytes();
        prop_assert!(bytes.len() <= MAX_WORD);
        prop_assert_eq!(parse(&bytes), Ok(word));
    }

    #[test]
    fn any_bytes_are_a_word_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0_u8..8) {
        for bytes in [bytes.clone(), [vec![kind], bytes].concat()] {
            if let Ok(word) = parse(&bytes) {
                prop_assert_eq!(word.to_bytes(), bytes);
            }
        }
    }
}
