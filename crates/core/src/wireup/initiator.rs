//! The side that opened the connection.

use alloc::vec::Vec;
use core::fmt;

use super::{
    Session,
    buffer::{Inbox, Outbox},
};
use crate::{
    state::Machine,
    wire::{
        Features, Key, Kind, Nonce, Offer, PeerId, Reject, Transport, Versions,
        handshake::{self, Challenge, HandshakeError, Hello, Record, SEALED_LEN, Secret, Transcript},
        offer::SEAL_LEN,
    },
};

/// What an initiator waits for, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitiatorPhase {
    /// HELLO is on its way; the server has to prove the key.
    AwaitChallenge,
    /// PROOF is on its way; the server decides.
    AwaitVerdict,
    /// There is a session.
    Established,
    /// The server proved the key and does not want the connection.
    Rejected,
    /// The handshake failed.
    Failed,
}

/// What moves an initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitiatorStep {
    /// CHALLENGE is right.
    Challenge,
    /// VERDICT is right and accepts.
    Accept,
    /// VERDICT is right and rejects.
    Reject,
    /// Anything else.
    Fault,
}

/// The initiator as data.
pub const INITIATOR: Machine<InitiatorPhase, InitiatorStep> = {
    use InitiatorPhase::{AwaitChallenge, AwaitVerdict, Established, Failed, Rejected};
    use InitiatorStep::{Accept, Challenge, Fault, Reject};
    Machine {
        name: "initiator",
        states: &[AwaitChallenge, AwaitVerdict, Established, Rejected, Failed],
        events: &[Challenge, Accept, Reject, Fault],
        arcs: &[
            (&[AwaitChallenge], Challenge, AwaitVerdict),
            (&[AwaitVerdict], Accept, Established),
            (&[AwaitVerdict], Reject, Rejected),
            (&[AwaitChallenge, AwaitVerdict], Fault, Failed),
        ],
    }
};

/// What an initiator is told.
#[derive(Debug, Clone, Copy)]
pub struct Initiate {
    /// The key in the server's address.
    pub key: Key,
    /// Our own identity.
    pub from: PeerId,
    /// Versions to speak.
    pub versions: Versions,
    /// Features to offer.
    pub features: Features,
    /// What the connection is for.
    pub kind: Kind,
    /// The transport that it is to become a link of.
    pub transport: Transport,
    /// Fresh random bytes.
    pub nonce: Nonce,
}

/// What an initiator has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitiatorEvent {
    /// The server proved the key, and the connection is to be encrypted: [`Initiator::seal`] goes on with a fresh key of this side's.
    NeedsKey,
    /// The server proved the key, and PROOF is on its way: from now on the server may count on this connection.
    Proving,
    /// Both proved the key, and the server accepted.
    Established(Session),
    /// The server proved the key and does not want the connection.
    Rejected(Reject),
}

/// The client's half of a handshake.
pub struct Initiator {
    key: Key,
    hello: Hello,
    phase: InitiatorPhase,
    offer: Offer,
    /// What the server proved the key by, while a fresh key of this side's is waited for.
    unanswered: Option<(Transcript, Challenge)>,
    said: Option<Said>,
    secret: Option<Secret>,
    inbox: Inbox,
    outbox: Outbox,
    needs_key: bool,
    proving: bool,
    outcome: Option<InitiatorEvent>,
}

/// What is known once PROOF is sent.
struct Said {
    transcript: Transcript,
    challenge: Challenge,
    proof: [u8; SEALED_LEN],
}

impl Initiator {
    /// Begins; HELLO is ready to be sent. `offer` is what the server is told once it has proved the key, together with a fresh key, which
    /// is asked for then, if the connection is to be encrypted.
    pub fn new(args: Initiate, offer: Offer) -> Self {
        let Initiate { key, from, versions, features, kind, transport, nonce } = args;
        let hello = Hello { versions, features, kind, transport, nonce, from, to: key.id() };
        let (mut outbox, inbox) = (Outbox::new(), Inbox::new());
        outbox.put(&hello.to_bytes(), Vec::new());
        let phase = InitiatorPhase::AwaitChallenge;
        let (unanswered, said, secret, needs_key, proving, outcome) = (None, None, None, false, false, None);
        Self {
            key,
            hello,
            phase,
            offer,
            unanswered,
            said,
            secret,
            inbox,
            outbox,
            needs_key,
            proving,
            outcome,
        }
    }

    /// What is waited for.
    pub const fn phase(&self) -> InitiatorPhase {
        self.phase
    }

    /// Who is connected to.
    pub const fn peer(&self) -> PeerId {
        self.hello.to
    }

    /// Takes bytes from the stream and says how many. The rest belongs to the session. An error comes once, and ends the
    /// handshake; after an end without a session all bytes are taken and mean nothing.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        let mut rest = bytes;
        let result = loop {
            let allowed: &[Record] = match self.phase {
                InitiatorPhase::AwaitChallenge => &[Record::Challenge, Record::Versions, Record::Denied],
                InitiatorPhase::AwaitVerdict => &[Record::Verdict, Record::Denied],
                InitiatorPhase::Established => break Ok(()),
                InitiatorPhase::Rejected | InitiatorPhase::Failed => return Ok(bytes.len()),
            };
            match self.inbox.take(&mut rest, allowed) {
                Ok(Some(record)) => match self.handle_record(record) {
                    Ok(()) => self.inbox.clear(),
                    Err(error) => break Err(error),
                },
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if result.is_err() {
            (self.unanswered, self.needs_key) = (None, false);
            self.step(InitiatorStep::Fault);
        }
        result.map(|()| bytes.len() - rest.len())
    }

    fn handle_record(&mut self, record: Record) -> Result<(), HandshakeError> {
        match record {
            Record::Challenge => self.handle_challenge(),
            Record::Verdict => self.handle_verdict(),
            Record::Versions => Err(self.handle_versions()?),
            _ => Err(HandshakeError::Denied),
        }
    }

    fn handle_challenge(&mut self) -> Result<(), HandshakeError> {
        let transcript = Transcript { hello: self.hello.to_bytes(), challenge: *self.inbox.fixed() };
        let challenge = Challenge::open(&transcript.challenge, &self.key, &transcript.hello)?;
        let (ours, agreed) = (self.hello.features, challenge.features);
        if !self.hello.versions.has(challenge.version)
            || !ours.has(agreed)
            || agreed.has(Features::WANTS_SEAL)
            || self.unanswered.is_some()
        {
            return Err(HandshakeError::Malformed(Record::Challenge));
        }
        if agreed.has(Features::CAN_SEAL) {
            (self.unanswered, self.needs_key) = (Some((transcript, challenge)), true);
            return Ok(());
        }
        if ours.has(Features::WANTS_SEAL) {
            return Err(HandshakeError::Unsealed);
        }
        self.prove(transcript, challenge, None);
        Ok(())
    }

    /// Answers [`InitiatorEvent::NeedsKey`]: PROOF is ready to be sent. Without a key the server will refuse it.
    pub fn seal(&mut self, public: Option<[u8; SEAL_LEN]>) {
        if let Some((transcript, challenge)) = self.unanswered.take() {
            self.prove(transcript, challenge, public);
        }
    }

    fn prove(&mut self, transcript: Transcript, challenge: Challenge, public: Option<[u8; SEAL_LEN]>) {
        self.offer.seal = public;
        let offer = self.offer.to_bytes();
        let proof = transcript.proof(&self.key, &offer);
        self.outbox.put(&proof, offer);
        self.said = Some(Said { transcript, challenge, proof });
        self.proving = true;
        self.step(InitiatorStep::Challenge);
    }

    fn handle_verdict(&mut self) -> Result<(), HandshakeError> {
        let Some(Said { transcript, challenge, proof }) = &self.said else {
            return Err(HandshakeError::Record(Record::Verdict as u8));
        };
        let (verdict, offer) = (self.inbox.fixed(), self.inbox.offer());
        let (step, event) = match transcript.open_verdict(&self.key, proof, verdict, offer)? {
            Ok(()) => {
                let sealed = challenge.features.has(Features::CAN_SEAL);
                let offer = Offer::parse(offer).and_then(|offer| offer.fits(sealed));
                let offer = offer.map_err(HandshakeError::Offer)?;
                self.secret = sealed.then(|| transcript.secret(&self.key, proof, verdict));
                let session = Session {
                    peer: self.hello.to,
                    id: transcript.session(&self.key),
                    kind: self.hello.kind,
                    transport: self.hello.transport,
                    version: challenge.version,
                    features: challenge.features,
                    offer,
                };
                (InitiatorStep::Accept, InitiatorEvent::Established(session))
            }
            Err(reason) => (InitiatorStep::Reject, InitiatorEvent::Rejected(reason)),
        };
        self.outcome = Some(event);
        self.step(step);
        Ok(())
    }

    /// VERSIONS is not authenticated: it ends the attempt with a clear message, and changes nothing else.
    fn handle_versions(&self) -> Result<HandshakeError, HandshakeError> {
        let (ours, theirs) = (self.hello.versions, handshake::parse_versions(self.inbox.fixed())?);
        match ours.common(theirs) {
            None => Ok(HandshakeError::Version { ours, theirs }),
            Some(_) => Err(HandshakeError::Malformed(Record::Versions)),
        }
    }

    /// What both ends have in common by this handshake; none before VERDICT is read, or where the connection is not encrypted.
    pub const fn secret(&self) -> Option<Secret> {
        self.secret
    }

    fn step(&mut self, step: InitiatorStep) {
        let moved = INITIATOR.step(&mut self.phase, step);
        debug_assert!(moved.is_ok(), "{moved:?}");
    }

    /// Bytes to send, until [`Initiator::transmitted`] says that they were. None: nothing to send now.
    pub fn poll_transmit(&self) -> Option<&[u8]> {
        self.outbox.pending()
    }

    /// The first `n` of the bytes to send were sent.
    pub fn transmitted(&mut self, n: usize) {
        self.outbox.sent(n);
    }

    /// What happened, once each.
    pub fn poll_event(&mut self) -> Option<InitiatorEvent> {
        if core::mem::take(&mut self.needs_key) {
            return Some(InitiatorEvent::NeedsKey);
        }
        if core::mem::take(&mut self.proving) { Some(InitiatorEvent::Proving) } else { self.outcome.take() }
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator")
            .field("phase", &self.phase)
            .field("hello", &self.hello)
            .finish_non_exhaustive()
    }
}
