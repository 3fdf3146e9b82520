//! Two ends of one connection: agreement, and every way to be refused.

use crate::wireup_support::{
    initiate, key, offer, respond, run, sent_by_initiator, sent_by_responder, versions,
};
use polyrail_core::wire::handshake::{
    self, Challenge, HELLO_LEN, HandshakeError, Hello, MAX_OFFER, Record, SEALED_LEN, Transcript,
};
use polyrail_core::wire::{Features, Kind, Nonce, OfferError, Reject, SessionId, Transport, Versions};
use polyrail_core::wireup::{
    Initiate, Initiator, InitiatorEvent, InitiatorPhase, Respond, Responder, ResponderEvent, ResponderPhase,
};
use proptest::prelude::*;

#[test]
fn both_prove_the_key_and_agree() {
    let outcome = run(initiate(), respond(), |_, _| {});
    let (ours, theirs) = (outcome.initiator.unwrap().unwrap(), outcome.responder.unwrap().unwrap());
    assert_eq!((ours.peer, theirs.peer), (key(1).id(), key(2).id()));
    assert_eq!((ours.id, ours.kind, ours.features, ours.version), (theirs.id, theirs.kind, Features(4), 2));
    assert_eq!((theirs.features, theirs.version), (Features(4), 2));
    assert_eq!((ours.offer, theirs.offer), (offer(2), offer(1)));
}

#[test]
fn a_lane_names_its_session() {
    let kind = Kind::Lane { session: SessionId(0x1234_5678_9abc_def0), lane: 3 };
    let transport = Transport::from_wire(250).unwrap();
    let outcome = run(Initiate { kind, transport, ..initiate() }, respond(), |_, _| {});
    for side in [outcome.initiator, outcome.responder] {
        let session = side.unwrap().unwrap();
        assert_eq!((session.kind, session.transport), (kind, transport), "what the driver decides by");
    }
}

#[test]
fn other_nonces_make_another_session() {
    let ids = [3, 5].map(|n| {
        let outcome = run(Initiate { nonce: Nonce([n; 16]), ..initiate() }, respond(), |_, _| {});
        outcome.initiator.unwrap().unwrap().id
    });
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn the_newest_common_version_is_chosen() {
    let (client, server) = (versions(1, 4), versions(2, 3));
    let outcome = run(
        Initiate { versions: client, ..initiate() },
        Respond { versions: server, ..respond() },
        |_, _| {},
    );
    assert_eq!(outcome.initiator.unwrap().unwrap().version, 3);
}

#[test]
fn without_a_common_version_both_sides_name_both() {
    for (old, new) in [(versions(1, 1), versions(2, 3)), (versions(4, 9), versions(2, 3))] {
        let outcome =
            run(Initiate { versions: old, ..initiate() }, Respond { versions: new, ..respond() }, |_, _| {});
        assert_eq!(outcome.initiator, Some(Err(HandshakeError::Version { ours: old, theirs: new })));
        assert_eq!(outcome.responder, Some(Err(HandshakeError::Version { ours: new, theirs: old })));
        assert_eq!(outcome.records[1], handshake::versions(new));
    }
    let error = HandshakeError::Version { ours: versions(1, 1), theirs: versions(2, 3) };
    assert_eq!(
        error.to_string(),
        "no common version: this side speaks wire versions 1 to 1, the other 2 to 3"
    );
}

#[test]
fn a_client_of_version_1_is_told_what_is_spoken() {
    let old = versions(1, 1);
    let mut bytes = Hello {
        versions: old,
        features: Features(0),
        kind: Kind::Session,
        transport: Transport::TCP,
        nonce: Nonce([0; 16]),
        from: key(2).id(),
        to: key(1).id(),
    }
    .to_bytes();
    bytes[12] = 0; // version 1 names no transport
    let mut responder = Responder::new(respond());
    let error = HandshakeError::Version { ours: Versions::OURS, theirs: old };
    assert_eq!(responder.handle_bytes(&bytes), Err(error));
    assert_eq!(sent_by_responder(&mut responder), handshake::versions(Versions::OURS));
    let theirs = HandshakeError::Version { ours: old, theirs: Versions::OURS };
    assert_eq!(
        theirs.to_string(),
        "no common version: this side speaks wire versions 1 to 1, the other 2 to 2"
    );
}

#[test]
fn a_later_version_may_use_what_is_zero_in_hello() {
    let later = Hello {
        versions: versions(7, 9),
        features: Features(0),
        kind: Kind::Session,
        transport: Transport::TCP,
        nonce: Nonce([0; 16]),
        from: key(2).id(),
        to: key(1).id(),
    };
    let mut bytes = later.to_bytes();
    (bytes[5], bytes[13]) = (9, 9);
    let mut responder = Responder::new(respond());
    let error = HandshakeError::Version { ours: Versions::OURS, theirs: versions(7, 9) };
    assert_eq!(responder.handle_bytes(&bytes), Err(error));
}

/// A client that knows the identity of the server, but not its key.
fn impostor() -> (Responder, Transcript) {
    let hello = Hello {
        versions: Versions::OURS,
        features: Features(0),
        kind: Kind::Session,
        transport: Transport::TCP,
        nonce: Nonce([9; 16]),
        from: key(2).id(),
        to: key(1).id(),
    };
    let mut responder = Responder::new(respond());
    let hello = hello.to_bytes();
    assert_eq!(responder.handle_bytes(&hello), Ok(HELLO_LEN));
    let challenge = sent_by_responder(&mut responder).try_into().unwrap();
    (responder, Transcript { hello, challenge })
}

fn proof_with(mac: &[u8], transcript: &Transcript, offer: &[u8]) -> Vec<u8> {
    let mut proof = transcript.proof(&key(8), offer).to_vec();
    proof[SEALED_LEN - 32..].copy_from_slice(mac);
    proof.extend(offer);
    proof
}

fn assert_denied(responder: &mut Responder) {
    assert_eq!((responder.poll_event(), responder.phase()), (None, ResponderPhase::Failed));
    assert_eq!(sent_by_responder(responder), handshake::denied());
    // What comes after is read to the end and means nothing.
    assert_eq!(responder.handle_bytes(&[0; 100]), Ok(100));
    assert!(responder.accept(&offer(2)).is_err() && responder.reject(Reject::NoResources).is_err());
    assert_eq!((responder.poll_event(), responder.poll_transmit()), (None, None));
}

#[test]
fn a_client_with_a_wrong_key_is_denied_and_told_nothing() {
    let (mut responder, transcript) = impostor();
    let mut proof = transcript.proof(&key(8), b"").to_vec();
    proof.extend(b"and more");
    assert_eq!(responder.handle_bytes(&proof), Err(HandshakeError::WrongKey));
    assert_denied(&mut responder);
}

#[test]
fn what_the_server_proved_is_no_proof_of_the_client() {
    let (mut responder, transcript) = impostor();
    let reflected = proof_with(&transcript.challenge[32..], &transcript, b"");
    assert_eq!(responder.handle_bytes(&reflected), Err(HandshakeError::WrongKey));
    assert_denied(&mut responder);
}

#[test]
fn what_the_client_proved_is_no_verdict_and_no_challenge() {
    let proven = |place: usize| {
        let mut kept = Vec::new();
        run(initiate(), respond(), |at, bytes| match at {
            2 => kept = bytes[8..40].to_vec(),
            _ if at == place && place == 3 => bytes[8..40].copy_from_slice(&kept),
            _ => {}
        })
    };
    assert_eq!(proven(3).initiator, Some(Err(HandshakeError::WrongKey)));
    // CHALLENGE is due before PROOF is known: the proof is from an earlier run with the same nonces.
    let earlier = proven(9).records[2][8..40].to_vec();
    let outcome = run(initiate(), respond(), |at, bytes| {
        if at == 1 {
            bytes[32..].copy_from_slice(&earlier);
        }
    });
    assert_eq!(outcome.initiator, Some(Err(HandshakeError::WrongKey)));
}

#[test]
fn a_replayed_proof_is_denied() {
    let records = run(initiate(), respond(), |_, _| {}).records;
    let mut responder = Responder::new(Respond { nonce: Nonce([5; 16]), ..respond() });
    responder.handle_bytes(&records[0]).unwrap();
    sent_by_responder(&mut responder);
    assert_eq!(responder.handle_bytes(&records[2]), Err(HandshakeError::WrongKey));
    assert_denied(&mut responder);
}

#[test]
fn a_replayed_challenge_does_not_convince() {
    let records = run(initiate(), respond(), |_, _| {}).records;
    let mut initiator = Initiator::new(Initiate { nonce: Nonce([6; 16]), ..initiate() }, offer(1));
    sent_by_initiator(&mut initiator);
    assert_eq!(initiator.handle_bytes(&records[1]), Err(HandshakeError::WrongKey));
    assert_eq!((initiator.poll_event(), initiator.poll_transmit()), (None, None), "no proof for an impostor");
}

#[test]
fn the_wrong_endpoint_denies_at_once() {
    let mut responder = Responder::new(Respond { key: key(7), ..respond() });
    let hello = sent_by_initiator(&mut Initiator::new(initiate(), offer(1)));
    assert_eq!(responder.handle_bytes(&hello), Err(HandshakeError::NotForUs(key(1).id())));
    let mut initiator = Initiator::new(initiate(), offer(1));
    sent_by_initiator(&mut initiator);
    let denied = sent_by_responder(&mut responder);
    assert_eq!(initiator.handle_bytes(&denied), Err(HandshakeError::Denied));
    assert_eq!(initiator.phase(), InitiatorPhase::Failed);
}

#[test]
fn nobody_is_the_endpoint_that_it_connects_to() {
    let mut initiator = Initiator::new(Initiate { from: key(1).id(), ..initiate() }, offer(1));
    let hello = sent_by_initiator(&mut initiator);
    let mut responder = Responder::new(respond());
    assert_eq!(responder.handle_bytes(&hello), Err(HandshakeError::Ourselves));
    assert_denied(&mut responder);
}

/// Whoever flips a bit of any record ends the handshake on the side that reads it; the one that wrote it learns no more than
/// that the connection ended.
#[test]
fn no_bit_can_be_flipped() {
    let records = run(initiate(), respond(), |_, _| {}).records;
    for (place, record) in records.iter().enumerate() {
        for bit in 0..8 * record.len() {
            let outcome = run(initiate(), respond(), |at, bytes| {
                if at == place {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            });
            let at = format!("bit {bit} of record {place}: {outcome:?}");
            assert!(!matches!(outcome.initiator, Some(Ok(_))), "{at}");
            // VERDICT is the last word: only the client can notice.
            assert_eq!(matches!(outcome.responder, Some(Ok(_))), place == 3, "{at}");
        }
    }
}

#[test]
fn a_version_that_was_not_offered_is_refused_even_from_who_knows_the_key() {
    let mut initiator = Initiator::new(initiate(), offer(1));
    let hello: [u8; HELLO_LEN] = sent_by_initiator(&mut initiator).try_into().unwrap();
    for (version, features) in [(3, 0), (1, 0), (2, 2)] {
        let mut initiator = Initiator::new(initiate(), offer(1));
        let challenge = Challenge { version, features: Features(features), nonce: Nonce([4; 16]) };
        let error = initiator.handle_bytes(&challenge.seal(&key(1), &hello));
        assert_eq!(error, Err(HandshakeError::Malformed(Record::Challenge)));
    }
}

#[test]
fn a_server_cannot_claim_to_speak_nothing_of_what_it_speaks() {
    let mut initiator = Initiator::new(initiate(), offer(1));
    let error = initiator.handle_bytes(&handshake::versions(versions(1, 3)));
    assert_eq!(error, Err(HandshakeError::Malformed(Record::Versions)));
}

#[test]
fn every_reason_to_reject_arrives() {
    use Reject::{Closing, Exists, NoResources, NoSession, Offer, Simultaneous};
    for reason in [Simultaneous, Closing, NoResources, Offer, NoSession, Exists] {
        let (mut initiator, mut responder) =
            (Initiator::new(initiate(), offer(1)), Responder::new(respond()));
        responder.handle_bytes(&sent_by_initiator(&mut initiator)).unwrap();
        initiator.handle_bytes(&sent_by_responder(&mut responder)).unwrap();
        assert_eq!(initiator.poll_event(), Some(InitiatorEvent::Proving));
        responder.handle_bytes(&sent_by_initiator(&mut initiator)).unwrap();
        assert!(matches!(responder.poll_event(), Some(ResponderEvent::Authenticated(_))));
        responder.reject(reason).unwrap();
        let verdict = sent_by_responder(&mut responder);
        assert_eq!((responder.phase(), responder.poll_event()), (ResponderPhase::Rejected, None));
        initiator.handle_bytes(&verdict).unwrap();
        assert_eq!(initiator.poll_event(), Some(InitiatorEvent::Rejected(reason)));
        assert_eq!((initiator.phase(), initiator.poll_event()), (InitiatorPhase::Rejected, None));
    }
}

#[test]
fn an_offer_that_is_too_long_is_refused_before_it_comes() {
    let (mut responder, transcript) = impostor();
    let mut proof = transcript.proof(&key(1), b"").to_vec();
    proof[6..8].copy_from_slice(&(MAX_OFFER as u16 + 1).to_le_bytes());
    assert_eq!(responder.handle_bytes(&proof[..8]), Err(HandshakeError::Oversized(4097)));
    assert_eq!(responder.poll_transmit(), None);
}

#[test]
fn the_longest_offer_is_taken_and_an_unreadable_one_named() {
    let (mut responder, transcript) = impostor();
    let mut proof = transcript.proof(&key(1), &[0; MAX_OFFER]).to_vec();
    proof.extend([0; MAX_OFFER]);
    let error = HandshakeError::Offer(OfferError::Missing(1));
    assert_eq!(responder.handle_bytes(&proof), Err(error));
    let verdict = sent_by_responder(&mut responder).try_into().unwrap();
    let proof = *proof.first_chunk().unwrap();
    assert_eq!(transcript.open_verdict(&key(1), &proof, &verdict, b""), Ok(Err(Reject::Offer)));
}

#[test]
fn garbage_is_refused_at_its_first_byte() {
    let wrong = HandshakeError::NotPolyrail;
    assert_eq!(Responder::new(respond()).handle_bytes(b"G"), Err(wrong));
    let mut responder = Responder::new(respond());
    assert_eq!(responder.handle_bytes(b"PLY"), Ok(3));
    assert_eq!(responder.handle_bytes(b"S"), Err(wrong));
    assert_eq!(responder.poll_transmit(), None, "strangers get no answer");
    assert_eq!(Responder::new(respond()).handle_bytes(b"PLYR\x02"), Err(HandshakeError::Record(2)));
    assert_eq!(Initiator::new(initiate(), offer(1)).handle_bytes(b"HTTP/1.1"), Err(wrong));
    assert_eq!(
        Initiator::new(initiate(), offer(1)).handle_bytes(b"PLYR\x04"),
        Err(HandshakeError::Record(4))
    );
}

#[test]
fn a_connection_on_which_nothing_comes_waits_and_costs_little() {
    let mut responder = Responder::new(respond());
    assert_eq!(responder.handle_bytes(b""), Ok(0));
    assert_eq!((responder.poll_event(), responder.poll_transmit()), (None, None));
    assert_eq!(responder.phase(), ResponderPhase::AwaitHello);
    // All that a stranger can make a server hold; docs/wire.md names the figure.
    assert!(size_of::<Responder>() <= 5000, "{}", size_of::<Responder>());
}

#[test]
fn what_is_cut_short_waits_for_the_rest() {
    let records = run(initiate(), respond(), |_, _| {}).records;
    for cut in 0..records[0].len() {
        let mut responder = Responder::new(respond());
        assert_eq!(responder.handle_bytes(&records[0][..cut]), Ok(cut));
        assert_eq!((responder.phase(), responder.poll_transmit()), (ResponderPhase::AwaitHello, None));
    }
    for cut in 0..records[2].len() {
        let mut responder = Responder::new(respond());
        responder.handle_bytes(&records[0]).unwrap();
        sent_by_responder(&mut responder);
        assert_eq!(responder.handle_bytes(&records[2][..cut]), Ok(cut));
        assert_eq!((responder.phase(), responder.poll_event()), (ResponderPhase::AwaitProof, None));
    }
}

#[test]
fn what_follows_belongs_to_the_session() {
    let records = run(initiate(), respond(), |_, _| {}).records;
    let mut initiator = Initiator::new(initiate(), offer(1));
    initiator.handle_bytes(&records[1]).unwrap();
    sent_by_initiator(&mut initiator);
    let verdict = [&records[3][..], b"frames"].concat();
    assert_eq!(initiator.handle_bytes(&verdict), Ok(records[3].len()));
    assert_eq!(initiator.handle_bytes(b"frames"), Ok(0));
    let mut responder = Responder::new(respond());
    responder.handle_bytes(&records[0]).unwrap();
    let proof = [&records[2][..], b"frames"].concat();
    assert_eq!(responder.handle_bytes(&proof), Ok(records[2].len()));
    responder.accept(&offer(2)).unwrap();
    assert_eq!(responder.handle_bytes(b"frames"), Ok(0));
    // Established means that the verdict has left.
    responder.transmitted(SEALED_LEN);
    responder.poll_event();
    assert_eq!((responder.phase(), responder.poll_event()), (ResponderPhase::Accepting, None));
    responder.transmitted(usize::MAX / 2);
    assert_eq!(responder.poll_event(), Some(ResponderEvent::Established));
}

proptest! {
    #[test]
    fn bytes_may_be_split_anywhere(sizes in proptest::collection::vec(1..50_usize, 1..100)) {
        let mut sizes = sizes.iter().copied().cycle();
        let (mut initiator, mut responder) = (Initiator::new(initiate(), offer(1)), Responder::new(respond()));
        let mut established = 0;
        for _ in 0..10_000 {
            let mut n = || sizes.next().unwrap_or(1);
            if let Some(bytes) = initiator.poll_transmit().map(|bytes| bytes[..n().min(bytes.len())].to_vec()) {
                initiator.transmitted(bytes.len());
                prop_assert_eq!(responder.handle_bytes(&bytes), Ok(bytes.len()));
            }
            if let Some(bytes) = responder.poll_transmit().map(|bytes| bytes[..n().min(bytes.len())].to_vec()) {
                responder.transmitted(bytes.len());
                prop_assert_eq!(initiator.handle_bytes(&bytes), Ok(bytes.len()));
            }
            match responder.poll_event() {
                Some(ResponderEvent::Authenticated(_)) => responder.accept(&offer(2)).unwrap(),
                Some(ResponderEvent::Established) => established += 1,
                None => {}
            }
            established += usize::from(matches!(initiator.poll_event(), Some(InitiatorEvent::Established(_))));
            if established == 2 {
                return Ok(());
            }
        }
        prop_assert!(false, "no session");
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0..4_usize) {
        // Arbitrary bytes in place of a record, after its true beginning.
        run(initiate(), respond(), |place, record| if place == at {
            record.truncate(bytes.len() % 9);
            record.extend(&bytes);
        });
    }
}
