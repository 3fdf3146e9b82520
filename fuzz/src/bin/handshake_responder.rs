//! A server that meets a client that sends anything: bytes without the key, or well-proven records around arbitrary fields and
//! an arbitrary offer.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_core::wire::Reject;
use polyrail_core::wire::handshake::{HELLO_LEN, MAX_OFFER, Transcript};
use polyrail_core::wireup::{Respond, Responder, ResponderEvent, ResponderPhase};
use polyrail_fuzz::{FEATURES, Input, NONCE, feed, key, offer, versions};

fn sent(responder: &mut Responder, n: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = responder.poll_transmit() {
        let piece = bytes[..bytes.len().min(n)].to_vec();
        responder.transmitted(piece.len());
        all.extend(piece);
    }
    all
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (mode, size) = (input.byte(), input.byte());
    let mut responder =
        Responder::new(Respond { key: key(1), versions: versions(), features: FEATURES, nonce: NONCE });
    let knows_the_key = mode & 1 == 1;
    if knows_the_key {
        let mut hello: [u8; HELLO_LEN] = input.array();
        // Nearly every HELLO is refused for its fixed parts; that is what the other mode is for.
        hello[..5].copy_from_slice(b"PLYR\x01");
        hello[64..].copy_from_slice(&key(1).id().0);
        feed(&hello, size, |bytes| responder.handle_bytes(bytes));
        if let Ok(challenge) = sent(&mut responder, 9).try_into() {
            let transcript = Transcript { hello, challenge };
            let offer = input.bytes(MAX_OFFER);
            let mut proof = transcript.proof(&key(1), offer).to_vec();
            proof.extend(offer);
            feed(&proof, size, |bytes| responder.handle_bytes(bytes));
        }
    } else {
        feed(input.0, size, |bytes| responder.handle_bytes(bytes));
        sent(&mut responder, 9);
        feed(input.0, size, |bytes| responder.handle_bytes(bytes));
    }
    let event = responder.poll_event();
    let _ = format!("{event:?} {responder:?}");
    assert_eq!(event.is_some(), responder.phase() == ResponderPhase::Deciding);
    assert!(event.is_none() || knows_the_key, "authenticated without the key");
    if event.is_some() && mode & 2 == 2 {
        responder.accept(&offer()).expect("it waits for this");
        sent(&mut responder, usize::from(size) + 1);
        assert_eq!(responder.poll_event(), Some(ResponderEvent::Established));
    } else if event.is_some() {
        responder.reject(Reject::NoResources).expect("it waits for this");
        assert!(!sent(&mut responder, 100).is_empty());
    }
});
