//! Values and shortcuts for the tests of wireup.

use polyrail_core::wire::handshake::HandshakeError;
use polyrail_core::wire::{Features, HostId, Key, Kind, Nonce, Offer, Reject, Transport, Versions, offer};
use polyrail_core::wireup::{
    Initiate, Initiator, InitiatorEvent, Respond, Responder, ResponderEvent, Session,
};

pub fn key(byte: u8) -> Key {
    Key::new([byte; 16]).unwrap()
}

pub fn offer(pid: u32) -> Offer {
    let process = offer::Process { pid, uid: 1000, host: HostId(7) };
    Offer::new(process, offer::Limits::new(65536, 1 << 20).unwrap())
}

pub fn versions(oldest: u16, newest: u16) -> Versions {
    Versions::new(oldest, newest).unwrap()
}

/// Client 2 wants server 1.
pub fn initiate() -> Initiate {
    let (versions, features, nonce) = (Versions::OURS, Features(0b1100), Nonce([3; 16]));
    let (kind, transport) = (Kind::Session, Transport::TCP);
    Initiate { key: key(1), from: key(2).id(), versions, features, kind, transport, nonce }
}

/// Server 1.
pub fn respond() -> Respond {
    Respond { key: key(1), versions: Versions::OURS, features: Features(0b10100), nonce: Nonce([4; 16]) }
}

/// What one side wrote, all of it; it counts as sent.
pub fn sent_by_initiator(initiator: &mut Initiator) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = initiator.poll_transmit().map(<[u8]>::to_vec) {
        initiator.transmitted(bytes.len());
        all.extend(bytes);
    }
    all
}

/// What one side wrote, all of it; it counts as sent.
pub fn sent_by_responder(responder: &mut Responder) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = responder.poll_transmit().map(<[u8]>::to_vec) {
        responder.transmitted(bytes.len());
        all.extend(bytes);
    }
    all
}

/// How a whole handshake went.
#[derive(Debug, Default)]
pub struct Outcome {
    pub initiator: Option<Result<Session, HandshakeError>>,
    pub responder: Option<Result<Session, HandshakeError>>,
    /// Why the server did not want the connection.
    pub rejected: Option<Reject>,
    /// What client and server have in common by it.
    pub secrets: [Option<[u8; 32]>; 2],
    /// Every record, in order, as sent.
    pub records: Vec<Vec<u8>>,
}

/// Runs a handshake that the server accepts; `tamper` may change what travels, by the record's place (0 HELLO to 3 VERDICT).
pub fn run(initiate: Initiate, respond: Respond, tamper: impl FnMut(usize, &mut Vec<u8>)) -> Outcome {
    run_with([offer(1), offer(2)], initiate, respond, tamper)
}

/// The same with these offers of client and server.
pub fn run_with(
    [client, server]: [Offer; 2],
    initiate: Initiate,
    respond: Respond,
    mut tamper: impl FnMut(usize, &mut Vec<u8>),
) -> Outcome {
    let key = client.seal;
    let (mut initiator, mut responder) = (Initiator::new(initiate, client), Responder::new(respond));
    let mut outcome = Outcome::default();
    for turn in 0..2 {
        let mut bytes = sent_by_initiator(&mut initiator);
        outcome.records.push(bytes.clone());
        tamper(2 * turn, &mut bytes);
        if let Err(error) = responder.handle_bytes(&bytes) {
            outcome.responder = Some(Err(error));
        }
        let mut authenticated = None;
        if let Some(ResponderEvent::Authenticated(session)) = responder.poll_event() {
            responder.accept(&server).unwrap();
            authenticated = Some(session);
        }
        let mut bytes = sent_by_responder(&mut responder);
        if responder.poll_event() == Some(ResponderEvent::Established) {
            outcome.responder = authenticated.map(Ok);
        }
        outcome.records.push(bytes.clone());
        tamper(2 * turn + 1, &mut bytes);
        if let Err(error) = initiator.handle_bytes(&bytes) {
            outcome.initiator = Some(Err(error));
        }
        while let Some(event) = initiator.poll_event() {
            match event {
                InitiatorEvent::Established(session) => outcome.initiator = Some(Ok(session)),
                InitiatorEvent::Rejected(reason) => outcome.rejected = Some(reason),
                InitiatorEvent::NeedsKey => initiator.seal(key),
                InitiatorEvent::Proving => {}
            }
        }
    }
    outcome.secrets = [initiator.secret(), responder.secret()].map(|secret| secret.map(|secret| secret.0));
    outcome
}
