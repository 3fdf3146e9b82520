//! One handshake: bytes between a channel and [`polyrail_core::wireup`]'s machines.

use crate::keys::{KeyPair, LinkKeys};
use crate::list::RailId;
use crate::rail::channel::{Channel, Destination, Source};
use crate::rail::connect::Connector;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::{Features, HandshakeError, Reject};
use polyrail_core::wireup::{Initiator, InitiatorEvent, Responder, ResponderEvent, ResponderPhase, Session};
use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// What to do where one side wants a connection encrypted, and the other cannot do that.
pub(super) const UNSEALED: &str =
    "use the same version of Polyrail on both hosts, or POLYRAIL_ENCRYPT=no where it is yes";

/// What this side is on a connection, and to whom it leads.
pub(super) enum Role {
    /// It opened the connection, to begin a session with this peer, which may be at this place.
    First(Box<Initiator>, PeerIdx, Destination),
    /// It opened the connection, as one more lane of a session, by one of the paths to the peer.
    Lane(Box<Initiator>, PeerIdx, usize),
    /// The other side opened it.
    Accepting(Box<Responder>, Option<(PeerIdx, Session)>),
}

/// One handshake.
pub(super) struct Handshake {
    /// Whose links come of such connections.
    pub rail: RailId,
    pub channel: Box<dyn Channel>,
    pub role: Role,
    /// Where it comes from, when the other side opened it.
    pub source: Source,
    pub deadline: Instant,
    /// Descriptors to go with the next bytes.
    pub outgoing: Vec<OwnedFd>,
    /// Descriptors that came.
    pub incoming: Vec<OwnedFd>,
    /// What this side's rail made for a peer that is accepted.
    pub kept: Option<Box<dyn Any + Send>>,
    /// This side's fresh keys, for a connection that is, or may come to be, encrypted.
    pub pair: Option<KeyPair>,
    pub writing: bool,
    /// The connection stands: what was written was taken, and, where that is no sign of it (`mute`), something came.
    pub reached: bool,
    pub mute: bool,
    wrote: bool,
    /// PROOF is on its way: the peer may count on this connection.
    pub proving: bool,
}

/// What became of a handshake's turn.
pub(super) enum Turn {
    Wait,
    Proven(Session),
    Done(Session, Vec<u8>),
    Rejected(Reject),
    /// It ended without a word, which may be for want of room or time, not of trust: worth another try.
    Cut(String),
    /// One side does not know what the other does.
    Denied(String),
    Failed(String),
}

impl Handshake {
    pub fn new(rail: RailId, channel: Box<dyn Channel>, role: Role, deadline: Instant) -> Self {
        let writing = !matches!(role, Role::Accepting(..));
        let source = if writing { Source::Unknown } else { channel.source() };
        let (outgoing, incoming, kept) = (Vec::new(), Vec::new(), None);
        Self {
            rail,
            channel,
            role,
            source,
            deadline,
            outgoing,
            incoming,
            kept,
            pair: None,
            writing,
            reached: false,
            mute: false,
            wrote: false,
            proving: false,
        }
    }

    /// Whose connection it is that this side opened.
    pub fn first(&self) -> Option<PeerIdx> {
        match self.role {
            Role::First(_, peer, _) => Some(peer),
            Role::Accepting(..) | Role::Lane(..) => None,
        }
    }

    /// The keys of the link that it becomes; none where the two agreed to do without.
    pub fn keys(&self, session: &Session) -> Result<Option<LinkKeys>, String> {
        if !session.features.has(Features::CAN_SEAL) {
            return Ok(None);
        }
        let (secret, opened) = match &self.role {
            Role::First(initiator, ..) | Role::Lane(initiator, ..) => (initiator.secret(), true),
            Role::Accepting(responder, _) => (responder.secret(), false),
        };
        let (pair, theirs) = (self.pair.as_ref(), session.offer.seal.as_ref());
        let parts = pair.zip(theirs).zip(secret);
        let keys = parts.and_then(|((pair, theirs), secret)| pair.keys(theirs, secret, opened));
        keys.map(Some).ok_or_else(|| "its part of the keys is not one".into())
    }

    /// What a stranger still owes, who has not proved the key.
    pub fn stranger(&self) -> Option<ResponderPhase> {
        match &self.role {
            Role::Accepting(responder, None) => Some(responder.phase()),
            _ => None,
        }
    }

    /// Sends and receives what can be, and tells the machine. Returns how it stands.
    pub fn turn(&mut self, rail: &dyn Connector) -> Turn {
        let turn = self.exchange(rail);
        self.reached |= self.wrote && !self.mute && self.channel.stands();
        turn
    }

    fn exchange(&mut self, rail: &dyn Connector) -> Turn {
        let mut buffer = [0; 4096];
        loop {
            if let Some(wait) = self.flush() {
                return wait;
            }
            if let Role::Accepting(responder, decided) = &mut self.role {
                match responder.poll_event() {
                    Some(ResponderEvent::Authenticated(session)) => return Turn::Proven(session),
                    Some(ResponderEvent::Established) => {
                        return match decided.take() {
                            Some((_, session)) => Turn::Done(session, Vec::new()),
                            None => Turn::Failed("it was accepted twice".into()),
                        };
                    }
                    None => {}
                }
            }
            let n = match self.channel.read(&mut buffer, &mut self.incoming) {
                Ok(0) => return Turn::Cut("it closed the connection before it answered".into()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Turn::Wait,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return failed(&e),
            };
            self.reached |= self.mute;
            let taken = match &mut self.role {
                Role::First(initiator, ..) | Role::Lane(initiator, ..) => {
                    initiator.handle_bytes(&buffer[..n])
                }
                Role::Accepting(responder, _) => responder.handle_bytes(&buffer[..n]),
            };
            let taken = match taken {
                Ok(taken) => taken,
                Err(why) => {
                    self.flush();
                    return match why {
                        HandshakeError::WrongKey | HandshakeError::Denied => Turn::Denied(why.to_string()),
                        HandshakeError::Unsealed => Turn::Failed(format!("{why}: {UNSEALED}")),
                        _ => Turn::Failed(why.to_string()),
                    };
                }
            };
            if let Role::First(initiator, ..) | Role::Lane(initiator, ..) = &mut self.role {
                while let Some(event) = initiator.poll_event() {
                    match event {
                        InitiatorEvent::NeedsKey => match KeyPair::new() {
                            Ok(pair) => {
                                initiator.seal(Some(pair.public()));
                                self.pair = Some(pair);
                            }
                            Err(why) => return Turn::Failed(why.to_string()),
                        },
                        InitiatorEvent::Proving => {
                            self.proving = true;
                            match rail.introduce() {
                                Ok(mut descriptors) => self.outgoing.append(&mut descriptors),
                                Err(e) => return Turn::Failed(e.to_string()),
                            }
                        }
                        InitiatorEvent::Established(session) => {
                            return Turn::Done(session, buffer[taken..n].to_vec());
                        }
                        InitiatorEvent::Rejected(reason) => return Turn::Rejected(reason),
                    }
                }
            } else if taken < n {
                return Turn::Failed("it spoke out of turn".into());
            }
        }
    }

    /// Writes what the machine has to say. Something is returned when it cannot all be written.
    pub fn flush(&mut self) -> Option<Turn> {
        loop {
            let bytes = match &self.role {
                Role::First(initiator, ..) | Role::Lane(initiator, ..) => initiator.poll_transmit(),
                Role::Accepting(responder, _) => responder.poll_transmit(),
            };
            let bytes = bytes?;
            let fds: Vec<BorrowedFd<'_>> = self.outgoing.iter().map(AsFd::as_fd).collect();
            match self.channel.write(bytes, &fds) {
                Ok(n) => {
                    self.wrote = true;
                    self.outgoing.clear();
                    match &mut self.role {
                        Role::First(initiator, ..) | Role::Lane(initiator, ..) => initiator.transmitted(n),
                        Role::Accepting(responder, _) => responder.transmitted(n),
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) => {
                    return Some(Turn::Wait);
                }
                Err(e) => return Some(failed(&e)),
            }
        }
    }

    pub fn wants_write(&self) -> bool {
        match &self.role {
            Role::First(initiator, ..) | Role::Lane(initiator, ..) => initiator.poll_transmit().is_some(),
            Role::Accepting(responder, _) => responder.poll_transmit().is_some(),
        }
    }
}

/// What an error of the socket means. A reset is that of a connection that stood: where nobody listens, it is refused.
fn failed(error: &io::Error) -> Turn {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        // by who rules this host's network
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::TimedOut => Turn::Cut(error.to_string()),
        _ => Turn::Failed(error.to_string()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
