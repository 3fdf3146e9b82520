//! Two ends of one connection, and two peers that may connect at once.
use polyrail_core::wire::{Features, HostId, Key, Kind, Nonce, Offer, Versions, offer};
use polyrail_core::wireup::{Initiate, Initiator, InitiatorEvent, Respond, Responder, ResponderEvent};

fn key(byte: u8) -> Key {
    Key::new([byte; 16]).unwrap()
}

fn offer(pid: u32) -> Offer {
    let process = offer::Process { pid, uid: 1000, host: HostId(7) };
    Offer::new(process, offer::Limits::new(65536, 1 << 20).unwrap())
}

#[test]
fn both_prove_the_key_and_agree() {
    let (server, client) = (key(1), key(2));
    let (versions, features, nonce) = (Versions::OURS, Features(5), Nonce([3; 16]));
    let mut initiator = Initiator::new(
        Initiate { key: server, from: client.id(), versions, features, kind: Kind::Session, nonce },
        offer(1),
    );
    let mut responder =
        Responder::new(Respond { key: server, versions, features: Features(6), nonce: Nonce([4; 16]) });
    let (mut theirs, mut ours) = (None, None);
    while theirs.is_none() || ours.is_none() {
        if let Some(bytes) = initiator.poll_transmit().map(<[u8]>::to_vec) {
            assert_eq!(responder.handle_bytes(&bytes), Ok(bytes.len()));
            initiator.transmitted(bytes.len());
        }
        if let Some(bytes) = responder.poll_transmit().map(<[u8]>::to_vec) {
            assert_eq!(initiator.handle_bytes(&bytes), Ok(bytes.len()));
            responder.transmitted(bytes.len());
        }
        while let Some(event) = responder.poll_event() {
            if let ResponderEvent::Authenticated(session) = event {
                responder.accept(&offer(2)).unwrap();
                theirs = Some(session);
            }
        }
        while let Some(event) = initiator.poll_event() {
            if let InitiatorEvent::Established(session) = event {
                ours = Some(session);
            }
        }
    }
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    assert_eq!((ours.peer, theirs.peer), (server.id(), client.id()));
    assert_eq!((ours.id, ours.features, ours.version), (theirs.id, Features(4), 1));
    assert_eq!((ours.offer, theirs.offer), (offer(2), offer(1)));
}
