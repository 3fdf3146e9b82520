//! What gateways say to each other: `docs/wire-gateway.md`. Each is one message of the session between them, which delivers it once and
//! whole, but not in the order of those sent beside it.

use serde::{Deserialize, Serialize};

use crate::net::{Network, Target};

/// Version of this protocol.
pub const VERSION: u64 = 1;
/// Tag of all its messages.
pub const TAG: u64 = 0x706f_6c79_7365_6120;
/// Bytes of a message before its body.
pub const HEAD: usize = 24;
/// Longest message: what goes without being announced over any network.
pub const MESSAGE_MAX: usize = 64 << 10;
/// Most bytes of a stream in one message.
pub const DATA_MAX: usize = MESSAGE_MAX - HEAD;
/// Longest reason that is told, in bytes.
const REASON_MAX: usize = 512;

/// Why a connection is not made, or ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody listens there.
    Refused,
    /// There is no way to that host, as that site sees it.
    Unreachable,
    /// It did not answer in time.
    TimedOut,
    /// It is none of that site's, or that site does not let it be reached.
    NotAllowed,
    /// That gateway has no room for one more.
    Full,
    /// The program, or its host, ended it.
    Reset,
    /// No such name there.
    NoName,
    /// There is no way to that site at the moment.
    Down,
}

impl Reason {
    const ALL: [Self; 8] = [
        Self::Refused,
        Self::Unreachable,
        Self::TimedOut,
        Self::NotAllowed,
        Self::Full,
        Self::Reset,
        Self::NoName,
        Self::Down,
    ];

    fn code(self) -> u8 {
        Self::ALL.iter().position(|known| *known == self).unwrap_or(0) as u8 + 1
    }

    /// One that a later version has is as good as a reset.
    fn of(code: u8) -> Self {
        Self::ALL.get(usize::from(code).wrapping_sub(1)).copied().unwrap_or(Self::Reset)
    }
}

/// What each gateway tells of itself, first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What it calls its site.
    pub site: String,
    /// Addresses that are reached through it, as its own hosts know them.
    pub networks: Vec<Network>,
}

/// Who wants to be connected with whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// With whom: as the hosts of that site know it.
    pub to: Target,
    /// Who: as the hosts of its own site know it.
    pub from: Option<std::net::SocketAddr>,
}

/// A message. Streams are named by who opens them: the gateway that dialled takes even numbers, the other odd ones, none twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// First, once each way; nothing else means anything before.
    Hello {
        /// Of the sender.
        version: u64,
        /// What it tells of itself.
        hello: Hello,
    },
    /// A stream is to be connected.
    Open {
        /// Which.
        stream: u64,
        /// How many of its bytes may be sent to the opener.
        room: u64,
        /// With whom.
        wish: Wish,
    },
    /// It is.
    Opened {
        /// Which.
        stream: u64,
        /// How many of its bytes may be sent to who connected it.
        room: u64,
    },
    /// It is not, or is no more: nothing follows of it from either side.
    Closed {
        /// Which.
        stream: u64,
        /// Why.
        reason: Reason,
    },
    /// Bytes of it.
    Data {
        /// Which.
        stream: u64,
        /// How many of this direction were sent before.
        offset: u64,
        /// The bytes; not none.
        bytes: &'a [u8],
    },
    /// More of it may be sent.
    Room {
        /// Which.
        stream: u64,
        /// So many bytes altogether.
        upto: u64,
    },
    /// That was all of this direction.
    End {
        /// Which.
        stream: u64,
        /// So many bytes altogether.
        total: u64,
    },
    /// The sender is still there; or it finds out what the way carries, with so many bytes that mean nothing.
    Here {
        /// Bytes.
        filler: usize,
    },
    /// The sender ends, in good order.
    Bye {
        /// Why, a sentence.
        why: &'a str,
    },
}

/// What is no message of this protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// Too few bytes, or too many.
    #[error("a message of {0} bytes")]
    Length(usize),
    /// None of those that this version has.
    #[error("a message of an unknown kind, {0}")]
    Kind(u8),
    /// Its body cannot be read.
    #[error("a message whose body cannot be read: {0}")]
    Body(String),
    /// It says something that cannot be.
    #[error("{0}")]
    Rule(&'static str),
}

fn head(kind: u8, code: u8, stream: u64, value: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + 128);
    bytes.extend([kind, code, 0, 0, 0, 0, 0, 0]);
    bytes.extend(stream.to_le_bytes());
    bytes.extend(value.to_le_bytes());
    bytes
}

/// Writes the head of a message of data before its bytes, which are there already.
pub fn data_head(message: &mut [u8; HEAD], stream: u64, offset: u64) {
    message.copy_from_slice(&head(5, 0, stream, offset));
}

impl<'a> Message<'a> {
    /// As it travels.
    pub fn to_bytes(&self) -> Vec<u8> {
        // structs of strings and addresses always can be written
        let json =
            |bytes: &mut Vec<u8>, what: serde_json::Result<Vec<u8>>| bytes.extend(what.unwrap_or_default());
        match self {
            Self::Hello { version, hello } => {
                let mut bytes = head(1, 0, 0, *version);
                json(&mut bytes, serde_json::to_vec(hello));
                bytes
            }
            Self::Open { stream, room, wish } => {
                let mut bytes = head(2, 0, *stream, *room);
                json(&mut bytes, serde_json::to_vec(wish));
                bytes
            }
            Self::Opened { stream, room } => head(3, 0, *stream, *room),
            Self::Closed { stream, reason } => head(4, reason.code(), *stream, 0),
            Self::Data { stream, offset, bytes } => {
                let mut message = head(5, 0, *stream, *offset);
                message.extend_from_slice(bytes);
                message
            }
            Self::Room { stream, upto } => head(6, 0, *stream, *upto),
            Self::End { stream, total } => head(7, 0, *stream, *total),
            Self::Here { filler } => {
                let mut bytes = head(8, 0, 0, 0);
                bytes.resize(HEAD + filler.min(&DATA_MAX), 0);
                bytes
            }
            Self::Bye { why } => {
                let mut bytes = head(9, 0, 0, 0);
                let end = (0..=REASON_MAX.min(why.len())).rev().find(|end| why.is_char_boundary(*end));
                bytes.extend_from_slice(&why.as_bytes()[..end.unwrap_or(0)]);
                bytes
            }
        }
    }

    /// Reads a message. Whether it makes sense where it comes is the reader's to say.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Bad> {
        let Some((head, body)) = bytes.split_first_chunk::<HEAD>().filter(|_| bytes.len() <= MESSAGE_MAX)
        else {
            return Err(Bad::Length(bytes.len()));
        };
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let (stream, value) = (word(8), word(16));
        if head[0] == 5 {
            return match (body.is_empty(), value.checked_add(body.len() as u64)) {
                (false, Some(_)) => Ok(Self::Data { stream, offset: value, bytes: body }),
                _ => Err(Bad::Rule("data of no bytes, or beyond all numbers")),
            };
        }
        let read = |why: serde_json::Error| Bad::Body(why.to_string());
        let message = match head[0] {
            1 => {
                return serde_json::from_slice(body)
                    .map(|hello| Self::Hello { version: value, hello })
                    .map_err(read);
            }
            2 => {
                return serde_json::from_slice(body)
                    .map(|wish| Self::Open { stream, room: value, wish })
                    .map_err(read);
            }
            9 if body.len() > REASON_MAX => return Err(Bad::Length(bytes.len())),
            9 => {
                let why = std::str::from_utf8(body).map_err(|why| Bad::Body(why.to_string()))?;
                return Ok(Self::Bye { why });
            }
            3 => Self::Opened { stream, room: value },
            4 => Self::Closed { stream, reason: Reason::of(head[1]) },
            6 => Self::Room { stream, upto: value },
            7 => Self::End { stream, total: value },
            8 => return Ok(Self::Here { filler: body.len() }),
            kind => return Err(Bad::Kind(kind)),
        };
        if body.is_empty() { Ok(message) } else { Err(Bad::Length(bytes.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The examples of `docs/wire-gateway.md`.
    #[test]
    fn golden_bytes() {
        let hello = Hello { site: "east".into(), networks: vec!["10.1.0.0/16".parse().unwrap()] };
        let wish = Wish { to: "10.2.0.5:80".parse().unwrap(), from: Some("10.1.0.3:4000".parse().unwrap()) };
        let (stream, total) = (6, 0x1122_3344);
        let page = include_str!("../../../docs/wire-gateway.md");
        for message in [
            Message::Hello { version: VERSION, hello },
            Message::Open { stream, room: 4 << 20, wish },
            Message::Opened { stream, room: 4 << 20 },
            Message::Closed { stream, reason: Reason::NotAllowed },
            Message::Data { stream, offset: 5, bytes: b"hello" },
            Message::Room { stream, upto: 1 << 33 },
            Message::End { stream, total },
            Message::Here { filler: 0 },
            Message::Here { filler: 3 },
            Message::Bye { why: "told to end" },
        ] {
            let bytes = message.to_bytes();
            assert!(page.contains(&hex(&bytes)), "not on the page: {message:?}: {}", hex(&bytes));
            assert_eq!(Message::parse(&bytes), Ok(message));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..12) {
            let _ = Message::parse(&bytes);
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(message) = Message::parse(&bytes) {
                let again = message.to_bytes();
                prop_assert_eq!(Message::parse(&again), Ok(message));
            }
        }
    }
}
