//! The side whose listener took the connection. Until the other side has proved the key it costs this machine's own bytes
//! and a few hashes, and nothing of variable length is looked at.

use alloc::vec::Vec;
use core::fmt;

use super::{
    Session,
    buffer::{Inbox, Outbox},
};
use crate::{
    state::{Machine, Unexpected},
    wire::{
        Features, Key, Nonce, Offer, PeerId, Reject, Versions,
        handshake::{self, Challenge, HandshakeError, Hello, Record, SEALED_LEN, Secret, Transcript},
    },
};

/// What a responder waits for, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponderPhase {
    /// The client's HELLO.
    AwaitHello,
    /// CHALLENGE is on its way; the client has to prove the key.
    AwaitProof,
    /// The driver has to accept or reject.
    Deciding,
    /// VERDICT is on its way out.
    Accepting,
    /// There is a session.
    Established,
    /// The driver did not want the connection.
    Rejected,
    /// The handshake failed.
    Failed,
}

/// What moves a responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponderStep {
    /// HELLO is right.
    Hello,
    /// PROOF is right.
    Proof,
    /// The driver accepts.
    Accept,
    /// The driver rejects.
    Reject,
    /// VERDICT is sent.
    Sent,
    /// Anything else.
    Fault,
}

/// The responder as data.
pub const RESPONDER: Machine<ResponderPhase, ResponderStep> = {
    use ResponderPhase::{Accepting, AwaitHello, AwaitProof, Deciding, Established, Failed, Rejected};
    use ResponderStep::{Accept, Fault, Hello, Proof, Reject, Sent};
    Machine {
        name: "responder",
        states: &[AwaitHello, AwaitProof, Deciding, Accepting, Established, Rejected, Failed],
        events: &[Hello, Proof, Accept, Reject, Sent, Fault],
        arcs: &[
            (&[AwaitHello], Hello, AwaitProof),
            (&[AwaitProof], Proof, Deciding),
            (&[Deciding], Accept, Accepting),
            (&[Accepting], Sent, Established),
            (&[Deciding], Reject, Rejected),
            (&[AwaitHello, AwaitProof], Fault, Failed),
        ],
    }
};

/// What a responder is told.
#[derive(Debug, Clone, Copy)]
pub struct Respond {
    /// The key in our own address.
    pub key: Key,
    /// Versions to speak.
    pub versions: Versions,
    /// Features to offer.
    pub features: Features,
    /// Fresh random bytes.
    pub nonce: Nonce,
}

/// What a responder has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponderEvent {
    /// The client proved the key: accept or reject it.
    Authenticated(Session),
    /// VERDICT is sent, and the session has begun.
    Established,
}

/// The server's half of a handshake.
pub struct Responder {
    args: Respond,
    id: PeerId,
    phase: ResponderPhase,
    said: Option<Said>,
    proof: [u8; SEALED_LEN],
    secret: Option<Secret>,
    inbox: Inbox,
    outbox: Outbox,
    event: Option<ResponderEvent>,
}

/// What is known once CHALLENGE is sent.
struct Said {
    transcript: Transcript,
    hello: Hello,
    challenge: Challenge,
}

impl Responder {
    /// Begins; the client speaks first.
    pub fn new(args: Respond) -> Self {
        Self {
            args,
            id: args.key.id(),
            phase: ResponderPhase::AwaitHello,
            said: None,
            proof: [0; SEALED_LEN],
            secret: None,
            inbox: Inbox::new(),
            outbox: Outbox::new(),
            event: None,
        }
    }

    /// What is waited for.
    pub const fn phase(&self) -> ResponderPhase {
        self.phase
    }

    /// Takes bytes from the stream and says how many. From PROOF on none are taken: they belong to the session, once there
    /// is one. An error comes once, and ends the handshake; after an end without a session all bytes are taken and mean
    /// nothing.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        let mut rest = bytes;
        let result = loop {
            let allowed: &[Record] = match self.phase {
                ResponderPhase::AwaitHello => &[Record::Hello],
                ResponderPhase::AwaitProof => &[Record::Proof],
                ResponderPhase::Deciding | ResponderPhase::Accepting | ResponderPhase::Established => {
                    break Ok(());
                }
                ResponderPhase::Rejected | ResponderPhase::Failed => return Ok(bytes.len()),
            };
            match self.inbox.take(&mut rest, allowed) {
                Ok(Some(Record::Hello)) => match self.handle_hello() {
                    Ok(()) => self.inbox.clear(),
                    Err(error) => break Err(error),
                },
                Ok(Some(_)) => break self.handle_proof(),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = result {
            self.fail(error);
        }
        result.map(|()| bytes.len() - rest.len())
    }

    fn handle_hello(&mut self) -> Result<(), HandshakeError> {
        let bytes = *self.inbox.fixed();
        let (ours, theirs) = (self.args.versions, Hello::versions(&bytes)?);
        let version = ours.common(theirs).ok_or(HandshakeError::Version { ours, theirs })?;
        let hello = Hello::parse(&bytes)?;
        if hello.to != self.id {
            return Err(HandshakeError::NotForUs(hello.to));
        }
        if hello.from == self.id {
            return Err(HandshakeError::Ourselves);
        }
        let features = self.args.features.agreed(hello.features);
        let challenge = Challenge { version, features, nonce: self.args.nonce };
        let sealed = challenge.seal(&self.args.key, &bytes);
        self.outbox.put(&sealed, Vec::new());
        self.said =
            Some(Said { transcript: Transcript { hello: bytes, challenge: sealed }, hello, challenge });
        self.step(ResponderStep::Hello);
        Ok(())
    }

    fn handle_proof(&mut self) -> Result<(), HandshakeError> {
        let Some(Said { transcript, hello, challenge }) = &self.said else {
            return Err(HandshakeError::Record(Record::Proof as u8));
        };
        self.proof = *self.inbox.fixed();
        transcript.check_proof(&self.args.key, &self.proof, self.inbox.offer())?;
        let sealed = challenge.features.has(Features::CAN_SEAL);
        if self.args.features.has(Features::WANTS_SEAL) && !sealed {
            return Err(HandshakeError::Unsealed);
        }
        let offer = Offer::parse(self.inbox.offer()).and_then(|offer| offer.fits(sealed));
        let offer = offer.map_err(HandshakeError::Offer)?;
        let session = Session {
            peer: hello.from,
            id: transcript.session(&self.args.key),
            kind: hello.kind,
            transport: hello.transport,
            version: challenge.version,
            features: challenge.features,
            offer,
        };
        self.event = Some(ResponderEvent::Authenticated(session));
        self.step(ResponderStep::Proof);
        Ok(())
    }

    /// Decides what the other side is told: as little as can be, and nothing at all if it does not even speak our language.
    fn fail(&mut self, error: HandshakeError) {
        match error {
            HandshakeError::Version { ours, .. } => self.outbox.put(&handshake::versions(ours), Vec::new()),
            HandshakeError::NotForUs(_) | HandshakeError::Ourselves | HandshakeError::WrongKey => {
                self.outbox.put(&handshake::denied(), Vec::new());
            }
            HandshakeError::Offer(_) => self.put_verdict(Err(Reject::Offer), Vec::new()),
            HandshakeError::Unsealed => self.put_verdict(Err(Reject::Unsealed), Vec::new()),
            _ => {}
        }
        self.step(ResponderStep::Fault);
    }

    fn put_verdict(&mut self, verdict: Result<(), Reject>, offer: Vec<u8>) {
        if let Some(Said { transcript, challenge, .. }) = &self.said {
            let record = transcript.verdict(&self.args.key, &self.proof, verdict, &offer);
            if verdict.is_ok() && challenge.features.has(Features::CAN_SEAL) {
                self.secret = Some(transcript.secret(&self.args.key, &self.proof, &record));
            }
            self.outbox.put(&record, offer);
        }
    }

    fn step(&mut self, step: ResponderStep) {
        let moved = RESPONDER.step(&mut self.phase, step);
        debug_assert!(moved.is_ok(), "{moved:?}");
    }

    /// Accepts the authenticated client, and tells it our offer, which has a fresh key if the connection is to be encrypted. Fails when
    /// there is nothing to decide.
    pub fn accept(&mut self, offer: &Offer) -> Result<(), Unexpected<ResponderPhase, ResponderStep>> {
        RESPONDER.step(&mut self.phase, ResponderStep::Accept)?;
        self.put_verdict(Ok(()), offer.to_bytes());
        Ok(())
    }

    /// What both ends have in common by this handshake; none before VERDICT is said, or where the connection is not encrypted.
    pub const fn secret(&self) -> Option<Secret> {
        self.secret
    }

    /// Rejects the authenticated client. Fails when there is nothing to decide.
    pub fn reject(&mut self, reason: Reject) -> Result<(), Unexpected<ResponderPhase, ResponderStep>> {
        RESPONDER.step(&mut self.phase, ResponderStep::Reject)?;
        self.put_verdict(Err(reason), Vec::new());
        Ok(())
    }

    /// Bytes to send, until [`Responder::transmitted`] says that they were. None: nothing to send now.
    pub fn poll_transmit(&self) -> Option<&[u8]> {
        self.outbox.pending()
    }

    /// The first `n` of the bytes to send were sent.
    pub fn transmitted(&mut self, n: usize) {
        if self.outbox.sent(n) && self.phase == ResponderPhase::Accepting {
            self.step(ResponderStep::Sent);
            self.event = Some(ResponderEvent::Established);
        }
    }

    /// What happened, once each.
    pub fn poll_event(&mut self) -> Option<ResponderEvent> {
        self.event.take()
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hello = self.said.as_ref().map(|said| &said.hello);
        f.debug_struct("Responder").field("phase", &self.phase).field("hello", &hello).finish_non_exhaustive()
    }
}
