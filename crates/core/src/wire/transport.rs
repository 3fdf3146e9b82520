//! Which transport a connection, an offer or a key is of.

use core::fmt;

/// A transport, by its number on the wire. A peer may name one that this side lacks, or has never heard of: it is kept as it came, and
/// who is asked for it says that it is not there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transport(u8);

impl Transport {
    /// Shared memory between processes of one host.
    pub const SHM: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(2);
    /// UDP.
    pub const UDP: Self = Self(3);
    /// Verbs: InfiniBand and its like.
    pub const VERBS: Self = Self(4);
    /// The first of those that are for trials, and never given to a transport for good.
    pub const TRIAL: Self = Self(240);

    /// The transport with this number; 0 is none.
    pub const fn from_wire(number: u8) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SHM => f.write_str("shm"),
            Self::TCP => f.write_str("tcp"),
            Self::UDP => f.write_str("udp"),
            Self::VERBS => f.write_str("verbs"),
            Self(number) => write!(f, "transport {number}"),
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
