//! Which connections are encrypted: as many as either side wants and both can, and none that one side wants otherwise.

use crate::wireup_support::{
    Outcome, initiate, offer, respond, run_with, sent_by_initiator, sent_by_responder,
};
use polyrail_core::wire::handshake::Record;
use polyrail_core::wire::{Features, HandshakeError, Nonce, Offer, OfferError, Reject};
use polyrail_core::wireup::{Initiate, Initiator, InitiatorEvent, Respond, Responder};

const CAN: Features = Features::CAN_SEAL;
const WANTS: Features = Features::CAN_SEAL.with(Features::WANTS_SEAL);
const NONE: Features = Features(0);

fn with_key(pid: u32) -> Offer {
    let mut offer = offer(pid);
    offer.seal = Some([pid as u8; 32]);
    offer
}

fn shake(client: Features, server: Features, offers: [Offer; 2]) -> Outcome {
    let (initiate, respond) =
        (Initiate { features: client, ..initiate() }, Respond { features: server, ..respond() });
    run_with(offers, initiate, respond, |_, _| {})
}

#[test]
fn it_is_encrypted_if_either_wants_that() {
    for (client, server) in [(CAN, WANTS), (WANTS, CAN), (WANTS, WANTS)] {
        let outcome = shake(client, server, [with_key(1), with_key(2)]);
        let (ours, theirs) = (outcome.initiator.unwrap().unwrap(), outcome.responder.unwrap().unwrap());
        assert_eq!((ours.features, theirs.features), (CAN, CAN));
        assert_eq!((ours.offer, theirs.offer), (with_key(2), with_key(1)));
        assert!(outcome.secrets[0].is_some() && outcome.secrets[0] == outcome.secrets[1]);
    }
}

#[test]
fn it_is_not_if_nobody_wants_that_and_no_key_is_told() {
    for (client, server) in [(CAN, CAN), (CAN, NONE), (NONE, CAN), (NONE, NONE)] {
        let outcome = shake(client, server, [with_key(1), offer(2)]);
        let (ours, theirs) = (outcome.initiator.unwrap().unwrap(), outcome.responder.unwrap().unwrap());
        assert_eq!((ours.features, theirs.features), (NONE, NONE));
        assert_eq!((ours.offer, theirs.offer), (offer(2), offer(1)));
        assert_eq!(outcome.secrets, [None, None]);
    }
}

#[test]
fn a_client_that_wants_it_refuses_a_server_that_cannot() {
    let outcome = shake(WANTS, NONE, [with_key(1), offer(2)]);
    assert_eq!(outcome.initiator, Some(Err(HandshakeError::Unsealed)));
    assert_eq!((outcome.responder, outcome.records[2].len()), (None, 0), "it proves nothing");
}

#[test]
fn a_server_that_wants_it_rejects_a_client_that_cannot() {
    let outcome = shake(NONE, WANTS, [offer(1), with_key(2)]);
    assert_eq!(outcome.responder, Some(Err(HandshakeError::Unsealed)));
    assert_eq!((outcome.initiator, outcome.rejected), (None, Some(Reject::Unsealed)));
    assert_eq!(outcome.secrets, [None, None]);
}

#[test]
fn a_side_that_keeps_its_key_to_itself_is_refused() {
    let missing = HandshakeError::Offer(OfferError::Missing(7));
    let outcome = shake(CAN, WANTS, [offer(1), with_key(2)]);
    assert_eq!((outcome.responder, outcome.rejected), (Some(Err(missing)), Some(Reject::Offer)));
    let outcome = shake(CAN, WANTS, [with_key(1), offer(2)]);
    assert_eq!(outcome.initiator, Some(Err(missing)));
    assert_eq!(outcome.secrets[0], None);
}

#[test]
fn a_key_that_nobody_asked_for_is_refused() {
    let outcome = shake(CAN, CAN, [with_key(1), with_key(2)]);
    assert_eq!(outcome.initiator, Some(Err(HandshakeError::Offer(OfferError::Malformed(7)))));
}

#[test]
fn a_server_that_goes_on_before_it_is_answered_gets_no_proof() {
    let mut initiator = Initiator::new(Initiate { features: WANTS, ..initiate() }, offer(1));
    let mut responder = Responder::new(Respond { features: CAN, ..respond() });
    responder.handle_bytes(&sent_by_initiator(&mut initiator)).unwrap();
    let challenge = sent_by_responder(&mut responder);
    assert_eq!(initiator.handle_bytes(&challenge), Ok(challenge.len()));
    assert_eq!(initiator.poll_event(), Some(InitiatorEvent::NeedsKey));
    let again = HandshakeError::Malformed(Record::Challenge);
    assert_eq!(initiator.handle_bytes(&challenge), Err(again));
    initiator.seal(Some([1; 32]));
    assert_eq!((initiator.poll_event(), initiator.poll_transmit()), (None, None));
}

/// Neither a bit less in HELLO, nor one less in CHALLENGE, makes a connection that is not encrypted.
#[test]
fn nobody_on_the_way_can_talk_them_out_of_it() {
    for (record, at) in [(0, 16), (1, 8)] {
        let (initiate, respond) =
            (Initiate { features: WANTS, ..initiate() }, Respond { features: CAN, ..respond() });
        let outcome = run_with([with_key(1), with_key(2)], initiate, respond, |which, bytes| {
            if which == record {
                bytes[at] = 0;
            }
        });
        assert_eq!(outcome.initiator, Some(Err(HandshakeError::WrongKey)), "record {record}");
        assert!(outcome.responder.is_none() && outcome.secrets == [None, None]);
    }
}

#[test]
fn a_server_does_not_say_that_it_wants_it() {
    // one that does breaks the protocol: what it wants is settled
    let outcome = shake(WANTS, Features(7), [with_key(1), with_key(2)]);
    assert_eq!(outcome.initiator.unwrap().unwrap().features, CAN);
}

#[test]
fn each_connection_has_its_own_secret_and_all_that_was_said_goes_into_it() {
    let secret = |client: Initiate, offers: [Offer; 2]| {
        let respond = Respond { features: WANTS, ..respond() };
        run_with(offers, client, respond, |_, _| {}).secrets[0].expect("it is encrypted")
    };
    let client = Initiate { features: CAN, ..initiate() };
    let all = [
        secret(client, [with_key(1), with_key(2)]),
        secret(Initiate { nonce: Nonce([9; 16]), ..client }, [with_key(1), with_key(2)]),
        secret(client, [with_key(3), with_key(2)]),
        secret(client, [with_key(1), with_key(3)]),
        secret(Initiate { features: WANTS, ..client }, [with_key(1), with_key(2)]),
    ];
    for (n, one) in all.iter().enumerate() {
        assert!(!all[..n].contains(one), "secret {n} is another's");
    }
    assert_eq!(format!("{:?}", polyrail_core::wire::handshake::Secret(all[0])), "Secret");
}
