//! The records of the handshake: golden bytes, refusals, and that parsers never panic. What the machines make of them is in
//! `wireup_pair.rs`.

use crate::wire_support::{address, challenge, client, hello, hex, offer, server, transcript};
use polyrail_core::wire::handshake::{
    self, Challenge, HandshakeError, Hello, MAX_RECORD, Record, Wanted, wanted,
};
use polyrail_core::wire::{Features, Kind, Nonce, PeerId, Reject, SessionId, Transport, Versions};
use proptest::prelude::*;

const HELLO: &str = "504c59520100010003000000020000000b00000000000000000000000000000011111111111111111111111111111111943433102c8b\
                     3704129bee40afa5769b919901a11a7a9157990486135d2edc29";
const LANE: &str = "504c59520101010003000200020000000b00000000000000887766554433221111111111111111111111111111111111943433102c8b\
                    3704129bee40afa5769b919901a11a7a9157990486135d2edc29";
const CHALLENGE: &str = "504c5952020002000900000000000000222222222222222222222222222222229d33ca829db408cb75fd785895baf382b6cea4e2b613ad14ebed38183e6e6f87";
const PROOF: &str = "504c595203008f00dda47db019b5fd0d6f760d131a94eee6c9f975886e02c275c3696eaee2748057";
const ACCEPT: &str = "504c595204008f00f563d41e8a131557efef92f74c720e0cd7e40193e526cb0986ed3596ea9f1233";
const SIMULTANEOUS: &str = "504c595204010000f8084d7d1e66989562a17af666bf6ee4e13f59aae98d1fb719a18c15ac58906d";

/// What client and server have in common then.
const SECRET: &str = "d0aaaef64cfb6186cf05ac35605b5251aaec1a7a1068d969a8d2d9ff5ed0c3b1";

/// Where the user's secret must be known, too.
const SECRET_CHALLENGE: &str = "504c59520200020009000000000000002222222222222222222222222222222210d0518c34fb406894114b2c9440f6c213da85aa102c84ad59278a32fdea4808";

#[test]
fn golden() {
    let offer = offer().to_bytes();
    assert_eq!(hex(&hello().to_bytes()), HELLO);
    let kind = Kind::Lane { session: SessionId(0x1122_3344_5566_7788), lane: 2 };
    assert_eq!(hex(&Hello { kind, ..hello() }.to_bytes()), LANE);
    let transcript = transcript();
    assert_eq!(hex(&transcript.challenge), CHALLENGE);
    let proof = transcript.proof(&server(), &offer);
    assert_eq!(hex(&proof), PROOF);
    let accept = transcript.verdict(&server(), &proof, Ok(()), &offer);
    assert_eq!(hex(&accept), ACCEPT);
    assert_eq!(hex(&transcript.secret(&server(), &proof, &accept).0), SECRET);
    assert_eq!(hex(&transcript.verdict(&server(), &proof, Err(Reject::Simultaneous), b"")), SIMULTANEOUS);
    assert_eq!(transcript.session(&server()), SessionId(0x5b03_7fb6_fabe_9fc3));
    let both = server().with_secret(b"secret of this user");
    assert_eq!(hex(&challenge().seal(&both, &transcript.hello)), SECRET_CHALLENGE);
    assert_eq!(hex(&handshake::denied()), "504c595205000000");
    assert_eq!(hex(&handshake::versions(Versions::new(2, 5).unwrap())), "504c59520600020005000000");
}

#[test]
fn the_documentation_shows_these_bytes() {
    let page = include_str!("../../../../docs/wire.md");
    let (offer, address) = (hex(&offer().to_bytes()), address());
    let shown = [
        HELLO,
        LANE,
        CHALLENGE,
        PROOF,
        ACCEPT,
        SIMULTANEOUS,
        SECRET,
        &offer,
        &hex(&address.to_bytes()),
        &address.expose(),
        SECRET_CHALLENGE,
        &hex(&address.needing_secret().to_bytes()),
    ];
    for example in shown {
        assert!(page.contains(example), "docs/wire.md lacks {example}");
    }
}

#[test]
fn the_numbers_on_the_wire_are_these() {
    assert_eq!(
        (server().id().to_string(), client().id().to_string()),
        ("919901a11a7a9157990486135d2edc29".into(), "943433102c8b3704129bee40afa5769b".into(),)
    );
    // The driver's buffers are sized by this.
    assert_eq!(MAX_RECORD, 4136);
    let sizes = (0..8).filter_map(Record::from_wire).map(Record::fixed_len).collect::<Vec<_>>();
    assert_eq!(sizes, [80, 64, 40, 40, 8, 12]);
}

#[test]
fn records_read_back() {
    assert_eq!(Hello::parse(&hello().to_bytes()), Ok(hello()));
    let (transcript, offer) = (transcript(), offer().to_bytes());
    assert_eq!(Challenge::open(&transcript.challenge, &server(), &transcript.hello), Ok(challenge()));
    let proof = transcript.proof(&server(), &offer);
    assert_eq!(transcript.check_proof(&server(), &proof, &offer), Ok(()));
    for verdict in [Ok(()), Err(Reject::Closing), Err(Reject::NoTransport)] {
        let offer = if verdict.is_ok() { &offer[..] } else { b"" };
        let bytes = transcript.verdict(&server(), &proof, verdict, offer);
        assert_eq!(transcript.open_verdict(&server(), &proof, &bytes, offer), Ok(verdict));
    }
}

#[test]
fn a_mac_is_good_for_its_key_its_label_and_its_transcript_only() {
    let (good, offer) = (transcript(), offer().to_bytes());
    let wrong = Err(HandshakeError::WrongKey);
    let proof = good.proof(&server(), &offer);
    assert_eq!(good.check_proof(&client(), &proof, &offer), wrong);
    assert_eq!(good.check_proof(&server(), &proof, &offer[1..]), wrong);
    let mut other = good;
    other.hello[40] ^= 1;
    assert_eq!(other.check_proof(&server(), &proof, &offer), wrong);
    assert_eq!(Challenge::open(&good.challenge, &server(), &other.hello), Err(HandshakeError::WrongKey));
    assert_eq!(Challenge::open(&good.challenge, &client(), &good.hello), Err(HandshakeError::WrongKey));
    let mut other = good;
    other.challenge[16] ^= 1;
    assert_eq!(other.check_proof(&server(), &proof, &offer), wrong);
    let verdict = good.verdict(&server(), &proof, Ok(()), &offer);
    let unoffered = good.proof(&server(), b"");
    let tries = [
        (server(), &proof, &offer[..], None),
        (client(), &proof, &offer, Some(HandshakeError::WrongKey)),
        (server(), &unoffered, &offer, Some(HandshakeError::WrongKey)),
        (server(), &proof, b"", Some(HandshakeError::WrongKey)),
    ];
    for (key, proof, offer, error) in tries {
        assert_eq!(good.open_verdict(&key, proof, &verdict, offer).err(), error);
    }
}

#[test]
fn hello_has_one_form_for_each_meaning() {
    let malformed = Err(HandshakeError::Malformed(Record::Hello));
    let with = |at: usize, byte: u8| {
        let mut bytes = hello().to_bytes();
        bytes[at] = byte;
        Hello::parse(&bytes)
    };
    assert_eq!(with(0, b'p'), Err(HandshakeError::NotPolyrail));
    assert_eq!(with(4, 3), Err(HandshakeError::Record(3)));
    assert_eq!(with(5, 2), malformed, "a kind of connection that there is not");
    assert_eq!(with(6, 0), malformed, "version 0");
    assert_eq!(with(6, 4), malformed, "an empty range");
    assert_eq!(with(10, 1), malformed, "a lane of no session");
    assert_eq!(with(12, 0), malformed, "no transport");
    for at in 13..16 {
        assert_eq!(with(at, 1), malformed, "what is zero");
    }
    let strange = with(12, 250).map(|hello| hello.transport.to_string());
    assert_eq!(strange, Ok("transport 250".into()), "one that nobody has is no error of the record's");
    assert_eq!(with(24, 1), malformed, "a session of no lane");
}

#[test]
fn whom_a_connection_asks_for_is_known_once_all_of_its_hello_came() {
    let bytes = hello().to_bytes();
    for len in 0..bytes.len() {
        assert_eq!(wanted(&bytes[..len]), Wanted::Unsaid, "{len} bytes");
    }
    assert_eq!(wanted(&bytes), Wanted::Endpoint(hello().to));
    assert_eq!(wanted(&[&bytes[..], b"more"].concat()), Wanted::Endpoint(hello().to));
    for at in 0..5 {
        let mut other = bytes;
        other[at] ^= 1;
        assert_eq!(wanted(&other[..=at]), Wanted::Nobody, "byte {at}");
    }
    let mut later = bytes;
    later[5] = 77;
    assert_eq!(wanted(&later), Wanted::Nobody, "what this version does not know");
}

#[test]
fn versions_in_common() {
    let versions = |oldest, newest| Versions::new(oldest, newest).unwrap();
    assert_eq!(versions(1, 3).common(versions(2, 9)), Some(3));
    assert_eq!(versions(2, 9).common(versions(1, 3)), Some(3));
    assert_eq!(versions(1, 1).common(versions(1, 1)), Some(1));
    assert_eq!(versions(1, 2).common(versions(3, 4)), None);
    assert_eq!(versions(3, 4).common(versions(1, 2)), None);
    assert_eq!((Versions::new(0, 1), Versions::new(2, 1)), (None, None));
}

#[test]
fn a_verdict_cannot_be_turned_and_a_rejection_carries_no_offer() {
    let (transcript, key) = (transcript(), server());
    let proof = transcript.proof(&key, b"");
    let mut verdict = transcript.verdict(&key, &proof, Ok(()), b"");
    verdict[5] = Reject::NoResources as u8;
    assert_eq!(transcript.open_verdict(&key, &proof, &verdict, b""), Err(HandshakeError::WrongKey));
    let reason = transcript.verdict(&key, &proof, Err(Reject::NoResources), b"offer");
    let malformed = Err(HandshakeError::Malformed(Record::Verdict));
    assert_eq!(
        transcript.open_verdict(&key, &proof, &reason, b"offer"),
        malformed,
        "a rejection carries no offer"
    );
}

proptest! {
    #[test]
    fn hello_roundtrip(
        oldest: u16, more: u16, features: u64, lane: Option<(u64, u16)>, transport in 1..=u8::MAX,
        nonce: [u8; 16], ids: [[u8; 16]; 2],
    ) {
        let Some(versions) = Versions::new(oldest, oldest.saturating_add(more)) else { return Ok(()) };
        let kind = lane.map_or(Kind::Session, |(id, lane)| Kind::Lane { session: SessionId(id), lane });
        let [from, to] = ids.map(PeerId);
        let transport = Transport::from_wire(transport).unwrap();
        let hello = Hello { versions, features: Features(features), kind, transport, nonce: Nonce(nonce), from, to };
        prop_assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
        prop_assert_eq!(Hello::versions(&hello.to_bytes()), Ok(versions));
    }

    #[test]
    fn challenge_roundtrip(version: u16, features: u64, nonce: [u8; 16]) {
        let challenge = Challenge { version, features: Features(features), nonce: Nonce(nonce) };
        let hello = hello().to_bytes();
        prop_assert_eq!(Challenge::open(&challenge.seal(&server(), &hello), &server(), &hello), Ok(challenge));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        mut bytes: [u8; 80], offer in proptest::collection::vec(any::<u8>(), 0..50),
        kind in 0..8_u8, begin: bool,
    ) {
        if begin {
            bytes[..5].copy_from_slice(&[b'P', b'L', b'Y', b'R', kind]);
        }
        let _ = wanted(&bytes);
        if let Ok(hello) = Hello::parse(bytes.first_chunk().unwrap()) {
            prop_assert_eq!(hello.to_bytes(), bytes);
        }
        let (transcript, key) = (transcript(), server());
        let proof = bytes.first_chunk().unwrap();
        prop_assert!(Challenge::open(bytes.first_chunk().unwrap(), &key, &transcript.hello).is_err());
        prop_assert!(transcript.check_proof(&key, proof, &offer).is_err());
        prop_assert!(transcript.open_verdict(&key, proof, proof, &offer).is_err());
        if let Ok(spoken) = handshake::parse_versions(bytes.first_chunk().unwrap()) {
            prop_assert_eq!(&handshake::versions(spoken)[..], &bytes[..12]);
        }
    }
}
