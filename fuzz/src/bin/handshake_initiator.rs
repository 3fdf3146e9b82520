//! A client that meets a server that sends anything: bytes without the key, or well-proven records around arbitrary fields and
//! an arbitrary offer.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_core::wire::handshake::{Challenge, MAX_OFFER, SEALED_LEN, Transcript};
use polyrail_core::wire::{Features, Kind, Nonce, Reject, Transport};
use polyrail_core::wireup::{Initiate, Initiator, InitiatorEvent};
use polyrail_fuzz::{FEATURES, Input, NONCE, feed, key, offer, versions};

fn sent(initiator: &mut Initiator) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = initiator.poll_transmit() {
        let piece = bytes[..bytes.len().min(9)].to_vec();
        initiator.transmitted(piece.len());
        all.extend(piece);
    }
    all
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (mode, size) = (input.byte(), input.byte());
    let args = Initiate {
        key: key(1),
        from: key(2).id(),
        versions: versions(),
        features: FEATURES,
        kind: Kind::Session,
        transport: Transport::TCP,
        nonce: NONCE,
    };
    let mut initiator = Initiator::new(args, offer());
    let hello = sent(&mut initiator).try_into().expect("HELLO");
    let knows_the_key = mode & 1 == 1;
    if knows_the_key {
        let (version, features) = (u16::from(input.byte()), Features(u64::from_le_bytes(input.array())));
        let challenge = Challenge { version, features, nonce: Nonce(input.array()) }.seal(&key(1), &hello);
        feed(&challenge, size, |bytes| initiator.handle_bytes(bytes));
        if mode & 8 == 8 {
            // more before it is answered
            feed(&challenge, size, |bytes| initiator.handle_bytes(bytes));
        }
        let mut event = initiator.poll_event();
        if event == Some(InitiatorEvent::NeedsKey) {
            initiator.seal((mode & 16 == 16).then_some([7; 32]));
            event = initiator.poll_event();
        }
        let proof = sent(&mut initiator);
        if let Some(proof) = proof.first_chunk::<SEALED_LEN>() {
            assert_eq!(event, Some(InitiatorEvent::Proving));
            let verdict = if mode & 2 == 2 { Ok(()) } else { Err(Reject::Closing) };
            let offer = if verdict.is_ok() || mode & 4 == 4 { input.bytes(MAX_OFFER) } else { b"" };
            let mut record = Transcript { hello, challenge }.verdict(&key(1), proof, verdict, offer).to_vec();
            record.extend(offer);
            feed(&record, size, |bytes| initiator.handle_bytes(bytes));
        }
    } else {
        feed(input.0, size, |bytes| initiator.handle_bytes(bytes));
    }
    let event = initiator.poll_event();
    let _ = format!("{event:?} {initiator:?}");
    assert!(event.is_none() || knows_the_key, "convinced without the key");
});
