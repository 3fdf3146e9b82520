//! What the records of a handshake speak of, and what can go wrong with one.

use core::fmt;

use super::{
    codec::Reader,
    handshake::{MAX_OFFER, Record},
    key::PeerId,
    offer::OfferError,
};

/// The wire versions that one side speaks: all from the oldest to the newest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Versions {
    oldest: u16,
    newest: u16,
}

impl Versions {
    /// What this crate speaks.
    pub const OURS: Self = Self { oldest: 2, newest: 2 };

    /// None for an empty range, and for version 0, which there is not.
    pub const fn new(oldest: u16, newest: u16) -> Option<Self> {
        if oldest == 0 || oldest > newest { None } else { Some(Self { oldest, newest }) }
    }

    /// The oldest.
    pub const fn oldest(self) -> u16 {
        self.oldest
    }

    /// The newest.
    pub const fn newest(self) -> u16 {
        self.newest
    }

    /// Whether `version` is among them.
    pub fn has(self, version: u16) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The newest version in both.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (self.has(newest) && other.has(newest)).then_some(newest)
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Self::new(reader.u16().ok()?, reader.u16().ok()?)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.oldest, self.newest)
    }
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a side can do beyond its version, a bit each. The agreed ones are those that both offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(pub u64);

impl Features {
    /// This side can encrypt the connection. In CHALLENGE: it is encrypted, or *sealed*, from VERDICT on.
    pub const CAN_SEAL: Self = Self(1);
    /// This side wants the connection encrypted. Never in CHALLENGE.
    pub const WANTS_SEAL: Self = Self(2);

    /// What a server with these agrees on with a client that has others: what both can do, and encryption if either wants it, too.
    #[must_use]
    pub const fn agreed(self, client: Self) -> Self {
        let both = self.0 & client.0 & !Self::WANTS_SEAL.0;
        let wanted = (self.0 | client.0) & Self::WANTS_SEAL.0 != 0;
        Self(if wanted { both } else { both & !Self::CAN_SEAL.0 })
    }

    /// These and others.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Random bytes that no other connection has. Never use one twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Nonce(pub [u8; 16]);

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// What both ends call a session; the same on both, and on no other session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub u64);

/// What a connection is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A new session: this connection becomes its control channel.
    Session,
    /// One more connection of a session that is there already.
    Lane {
        /// Which session.
        session: SessionId,
        /// Which of the session's lanes.
        lane: u16,
    },
}

/// Why a server that knows who connects does not want the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reject {
    /// Both connected at once, and this attempt lost: the server's own connection is the one to wait for.
    Simultaneous = 1,
    /// The server is closing its endpoint.
    Closing = 2,
    /// The server has no room for one more.
    NoResources = 3,
    /// The client's offer could not be read.
    Offer = 5,
    /// The session of this lane is not there.
    NoSession = 6,
    /// To the server, an earlier session with this client still lives. Only one of them can be right: try again soon.
    Exists = 7,
    /// The server has not the transport that the client named, or only in a form that does not go with the client's.
    NoTransport = 8,
    /// The server wants the connection encrypted, and the client cannot do that.
    Unsealed = 9,
}

impl Reject {
    pub(crate) const fn from_wire(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Simultaneous,
            2 => Self::Closing,
            3 => Self::NoResources,
            5 => Self::Offer,
            6 => Self::NoSession,
            7 => Self::Exists,
            8 => Self::NoTransport,
            9 => Self::Unsealed,
            _ => return None,
        })
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simultaneous => "both sides connected at once; the other's connection is the one to use",
            Self::Closing => "the peer is closing",
            Self::NoResources => "the peer has no resources left",
            Self::Offer => "the peer could not read this side's offer",
            Self::NoSession => "the peer does not know the session",
            Self::Exists => "to the peer, an earlier session still lives",
            Self::NoTransport => "the peer has no such transport, or only another version of it",
            Self::Unsealed => "the peer wants the connection encrypted, and this side cannot encrypt it",
        })
    }
}

/// Why a handshake ended without a session. For the log of this side: the other side is told less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeError {
    /// The first bytes are not a Polyrail record.
    NotPolyrail,
    /// A record of this number cannot come now.
    Record(u8),
    /// A field of this record has an impossible value.
    Malformed(Record),
    /// An offer longer than [`MAX_OFFER`] was announced.
    Oversized(u16),
    /// The client wanted another endpoint than this one: an old address, most likely.
    NotForUs(PeerId),
    /// The client says that it is this very endpoint.
    Ourselves,
    /// The other side does not know the key of the address that connects us.
    WrongKey,
    /// The server denied us: to it, we did not prove the key, or are at the wrong endpoint.
    Denied,
    /// No version of the wire is spoken by both.
    Version {
        /// What we speak.
        ours: Versions,
        /// What the other side speaks.
        theirs: Versions,
    },
    /// The other side proved the key, and then made an offer that cannot be read.
    Offer(OfferError),
    /// This side wants the connection encrypted, and the other cannot do that.
    Unsealed,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPolyrail => f.write_str("the other side does not speak polyrail"),
            Self::Record(number) => write!(f, "a record of kind {number} came out of turn"),
            Self::Malformed(record) => write!(f, "a malformed {record:?} came"),
            Self::Oversized(len) => {
                write!(f, "an offer of {len} bytes was announced; {MAX_OFFER} are allowed")
            }
            Self::NotForUs(id) => write!(f, "a peer looks for endpoint {id}, which is not this one"),
            Self::Ourselves => f.write_str("a peer claims to be this very endpoint"),
            Self::WrongKey => f.write_str("the other side does not know this address's key"),
            Self::Denied => f.write_str("denied: the endpoint there does not have the key of this address"),
            Self::Version { ours, theirs } => {
                write!(f, "no common version: this side speaks wire versions {ours}, the other {theirs}")
            }
            Self::Offer(error) => write!(f, "unreadable offer: {error}"),
            Self::Unsealed => {
                f.write_str("this side wants the connection encrypted, and the other side cannot encrypt it")
            }
        }
    }
}

impl core::error::Error for HandshakeError {}
