//! Words as bytes: pinned, the same again after the way there and back, and no bytes that break the reader.

use polyrail_p2p::Scheme;
use polyrail_p2p::members::Word as Of;
use polyrail_p2p::rounds::Word;
use polyrail_p2p::view::{ADDRESS, Job, Member, NOBODY, Stamp, View};
use polyrail_p2p::words::{Said, VERSION, decode, encode};
use proptest::prelude::*;

fn view() -> View {
    let member = |name: u8, weight| Member { address: [name; ADDRESS], site: u32::from(name), weight };
    View {
        job: Job {
            parts: 2,
            scheme: Scheme::Bounded(5),
            tolerance: 0.5,
            every: 16,
            keep: 100,
            task: b"task".to_vec(),
        },
        members: vec![member(0xa0, 0), member(0xa1, 3)],
        owners: vec![1, 1],
        stage: 7,
        holders: vec![(NOBODY, 0), (0, 200)],
        from: [(7, 300)].into(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn words_are_these_bytes() {
    let member = Member { address: [0x11; ADDRESS], site: 2, weight: 1 };
    let address = "11".repeat(ADDRESS);
    let view_bytes = [
        "02000000",
        "0200",
        "0500000000000000",
        "000000000000e03f",
        "1000000000000000",
        "6400000000000000",
        "04000000",
        "7461736b",
        "02000000",
        &"a0".repeat(ADDRESS),
        "a0000000",
        "0000",
        &"a1".repeat(ADDRESS),
        "a1000000",
        "0300",
        "0100",
        "0100",
        "07000000",
        "ffff",
        "0000000000000000",
        "0000",
        "c800000000000000",
        "01000000",
        "07000000",
        "2c01000000000000",
    ]
    .concat();
    for (said, bytes) in [
        (Said::Join(member.clone()), format!("0201000009000000{address}020000000100")),
        (Said::Refuse("no".into()), "02020000090000006e6f".into()),
        (Said::View(Box::new(view())), format!("0203000009000000{view_bytes}")),
        (
            Said::Round(Word::Status { after: 3, below: true }),
            "020400000900000003000000000000000100000000000000".into(),
        ),
        (Said::Round(Word::Ask { round: 4 }), "020500000900000004000000000000000000000000000000".into()),
        (
            Said::Round(Word::Mark { round: 4, at: 9 }),
            "020600000900000004000000000000000900000000000000".into(),
        ),
        (
            Said::Round(Word::Share { round: 4, norm: 1.0 }),
            "02070000090000000400000000000000000000000000f03f".into(),
        ),
        (
            Said::Round(Word::Verdict { round: 4, norm: f64::INFINITY, keep: true }),
            "02080000090000000400000000000000000000000000f07f0100000000000000".into(),
        ),
        (Said::Members(Of::Beat { busy: 258 }), "020900000900000002010000".into()),
        (
            Said::Members(Of::Want { suspects: vec![3], joining: vec![member] }),
            format!("020a000009000000010000000300{}{address}020000000100", "01000000"),
        ),
        (Said::Members(Of::Prepare { ballot: 65537 }), "020b0000090000000100010000000000".into()),
        (
            Said::Members(Of::Promise {
                ballot: 1,
                accepted: None,
                kept: vec![(2, Stamp { stage: 5, number: 100 })],
            }),
            "020c00000900000001000000000000000100000002000000050000006400000000000000".into(),
        ),
        (
            Said::Members(Of::Promise { ballot: 1, accepted: Some((1, Box::new(view()))), kept: Vec::new() }),
            format!("020c0000090000000100000000000000000000000100000000000000{view_bytes}"),
        ),
        (
            Said::Members(Of::Propose { ballot: 1, view: Box::new(view()) }),
            format!("020d0000090000000100000000000000{view_bytes}"),
        ),
        (Said::Members(Of::Accept { ballot: 1 }), "020e0000090000000100000000000000".into()),
        (
            Said::Round(Word::Pace { iteration: 32 }),
            "020f00000900000020000000000000000000000000000000".into(),
        ),
        (
            Said::Kept(2, Stamp { stage: 5, number: 100 }),
            "021000000900000002000000050000006400000000000000".into(),
        ),
    ] {
        assert_eq!(hex(&encode(9, &said)), bytes, "{said:?}");
        assert_eq!(decode(&encode(9, &said)), Ok((9, said)));
    }
}

#[test]
fn what_is_no_word_is_refused() {
    let good = encode(9, &Said::View(Box::new(view())));
    // cut anywhere, or with something behind
    for len in 0..good.len() {
        assert!(decode(&good[..len]).is_err(), "{len}");
    }
    assert!(decode(&[&good[..], &[0]].concat()).is_err());
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        decode(&bytes)
    };
    for (at, byte, why) in [
        (0, 1, "another version"),
        (1, 0, "a kind that there is not"),
        (1, 17, "a kind that there is not"),
        (2, 1, "another version"),
        (8, 0, "a part more or less"),
        (12, 4, "a scheme"),
        (29, 0xff, "a tolerance that is no number"),
    ] {
        assert!(changed(at, byte).is_err(), "{why}");
    }
    // a part that is held by who looks on
    let mut lost = view();
    lost.owners[0] = 0;
    assert!(decode(&encode(9, &Said::View(Box::new(lost)))).is_err());
    assert!(decode(&encode(9, &Said::Round(Word::Share { round: 1, norm: f64::NAN }))).is_err());
    assert!(decode(&encode(9, &Said::Round(Word::Share { round: 1, norm: -1.0 }))).is_err());
}

proptest! {
    #[test]
    fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 0_u8..18) {
        let _ = decode(&bytes);
        let mut word = vec![VERSION, kind, 0, 0];
        word.extend(&bytes);
        if let Ok((epoch, said)) = decode(&word) {
            // what is understood is the same again
            prop_assert_eq!(encode(epoch, &said), word);
        }
    }

    #[test]
    fn a_view_with_a_byte_changed_is_refused_or_another(at in 0_usize..400, byte in any::<u8>()) {
        let mut bytes = encode(9, &Said::View(Box::new(view())));
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok((epoch, said)) = decode(&bytes) {
            prop_assert_eq!(encode(epoch, &said), bytes);
        }
    }
}
