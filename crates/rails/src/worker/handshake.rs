//! One handshake on a real socket: bytes between the socket and [`polyrail_core::wireup`]'s machines.

use super::crowd::Source;
use crate::keys::{KeyPair, LinkKeys};
use crate::rail::connect::Connector;
use crate::rail::set::RailId;
use crate::shm::fdpass;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::{Features, HandshakeError, Reject};
use polyrail_core::wireup::{Initiator, InitiatorEvent, Responder, ResponderEvent, ResponderPhase, Session};
use std::any::Any;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// What to do where one side wants a connection encrypted, and the other cannot do that.
pub(super) const UNSEALED: &str =
    "use the same version of Polyrail on both hosts, or POLYRAIL_ENCRYPT=no where it is yes";

/// A connection that is not a link yet.
pub(super) enum Stream {
    Tcp(TcpStream),
    /// By the listener of this rail.
    Unix(OwnedFd, RailId),
}

impl Stream {
    /// Whose links come of such connections.
    pub fn rail(&self) -> RailId {
        match self {
            Self::Tcp(_) => RailId::Tcp,
            Self::Unix(_, rail) => *rail,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(fd, _) => fd.as_fd(),
        }
    }

    fn write(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(fd, _) => fdpass::send(fd.as_fd(), bytes, fds),
        }
    }

    fn read(&mut self, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(fd, _) => fdpass::recv(fd.as_fd(), bytes, fds),
        }
    }

    /// This side's address.
    pub fn local_ip(&self) -> io::Result<IpAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().map(|at| at.ip().to_canonical()),
            Self::Unix(..) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub fn into_fd(self) -> OwnedFd {
        match self {
            Self::Tcp(stream) => stream.into(),
            Self::Unix(fd, _) => fd,
        }
    }
}

/// Where a peer's listener may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// On this host, where this rail listens.
    Unix(RailId),
    Tcp(SocketAddr),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(_) => f.write_str("Unix socket"),
            Self::Tcp(at) => at.fmt(f),
        }
    }
}

pub(super) enum Half {
    Ours(Box<Initiator>, PeerIdx, Place),
    /// One more lane of a session, by one of the ways to the peer.
    Lane(Box<Initiator>, PeerIdx, usize),
    Theirs(Box<Responder>, Option<(PeerIdx, Session)>),
}

/// One handshake.
pub(super) struct Handshake {
    pub stream: Stream,
    pub half: Half,
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
    /// The connection stands: what was written was taken.
    pub reached: bool,
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
    pub fn new(stream: Stream, half: Half, deadline: Instant) -> Self {
        let writing = !matches!(half, Half::Theirs(..));
        let source = if writing { Source::Unknown } else { Source::of(&stream) };
        let (outgoing, incoming, kept) = (Vec::new(), Vec::new(), None);
        Self {
            stream,
            half,
            source,
            deadline,
            outgoing,
            incoming,
            kept,
            pair: None,
            writing,
            reached: false,
            proving: false,
        }
    }

    /// Whose connection it is that this side opened.
    pub fn ours(&self) -> Option<PeerIdx> {
        match self.half {
            Half::Ours(_, peer, _) => Some(peer),
            Half::Theirs(..) | Half::Lane(..) => None,
        }
    }

    /// The keys of the link that it becomes; none where the two agreed to do without.
    pub fn keys(&self, session: &Session) -> Result<Option<LinkKeys>, String> {
        if !session.features.has(Features::CAN_SEAL) {
            return Ok(None);
        }
        let (secret, opened) = match &self.half {
            Half::Ours(initiator, ..) | Half::Lane(initiator, ..) => (initiator.secret(), true),
            Half::Theirs(responder, _) => (responder.secret(), false),
        };
        let (pair, theirs) = (self.pair.as_ref(), session.offer.seal.as_ref());
        let parts = pair.zip(theirs).zip(secret);
        let keys = parts.and_then(|((pair, theirs), secret)| pair.keys(theirs, secret, opened));
        keys.map(Some).ok_or_else(|| "its part of the keys is not one".into())
    }

    /// What a stranger still owes, who has not proved the key.
    pub fn stranger(&self) -> Option<ResponderPhase> {
        match &self.half {
            Half::Theirs(responder, None) => Some(responder.phase()),
            _ => None,
        }
    }

    /// Sends and receives what can be, and tells the machine. Returns how it stands.
    pub fn turn(&mut self, rail: &dyn Connector) -> Turn {
        let mut buffer = [0; 4096];
        loop {
            if let Some(wait) = self.flush() {
                return wait;
            }
            if let Half::Theirs(responder, decided) = &mut self.half {
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
            let n = match self.stream.read(&mut buffer, &mut self.incoming) {
                Ok(0) => return Turn::Cut("it closed the connection before it answered".into()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Turn::Wait,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return failed(&e),
            };
            let taken = match &mut self.half {
                Half::Ours(initiator, ..) | Half::Lane(initiator, ..) => initiator.handle_bytes(&buffer[..n]),
                Half::Theirs(responder, _) => responder.handle_bytes(&buffer[..n]),
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
            if let Half::Ours(initiator, ..) | Half::Lane(initiator, ..) = &mut self.half {
                while let Some(event) = initiator.poll_event() {
                    match event {
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
            let bytes = match &self.half {
                Half::Ours(initiator, ..) | Half::Lane(initiator, ..) => initiator.poll_transmit(),
                Half::Theirs(responder, _) => responder.poll_transmit(),
            };
            let bytes = bytes?;
            let fds: Vec<BorrowedFd<'_>> = self.outgoing.iter().map(AsFd::as_fd).collect();
            match self.stream.write(bytes, &fds) {
                Ok(n) => {
                    self.reached = true;
                    self.outgoing.clear();
                    match &mut self.half {
                        Half::Ours(initiator, ..) | Half::Lane(initiator, ..) => initiator.transmitted(n),
                        Half::Theirs(responder, _) => responder.transmitted(n),
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
        match &self.half {
            Half::Ours(initiator, ..) | Half::Lane(initiator, ..) => initiator.poll_transmit().is_some(),
            Half::Theirs(responder, _) => responder.poll_transmit().is_some(),
        }
    }
}

/// What an error of the socket means. A reset is that of a connection that stood: where nobody listens, it is refused.
fn failed(error: &io::Error) -> Turn {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Turn::Cut(error.to_string()),
        _ => Turn::Failed(error.to_string()),
    }
}
