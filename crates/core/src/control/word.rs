//! The words of the control channel, as bytes.
//!
//! Little endian; what is reserved is zero. Each word has one length, but for PREPARE, which says how long its composition is.
//!
//! | word | bytes |
//! |---|---|
//! | PREPARE | 1, epoch, length, 0, then so many bytes of composition |
//! | PREPARED | 2, epoch, 0, 0 |
//! | NACK | 3, epoch, reason, 0 |
//! | SWITCH | 4, new epoch, old epoch, 0, last: 8 bytes |
//! | DRAINED | 5, old epoch, 0, 0 |
//! | ABORT | 6, epoch, 0, 0 |

use super::epoch::Epoch;
use crate::wire::codec::{Reader, Short, Writer};
use alloc::vec::Vec;
use core::fmt;

/// The most bytes that say which composition is proposed.
pub const MAX_SPEC: usize = 64;
/// The most bytes of a word.
pub const MAX_WORD: usize = 4 + MAX_SPEC;

/// A composition as bytes, at most [`MAX_SPEC`] of them. What they mean is the data channel's affair.
#[derive(Default, Clone, PartialEq, Eq)]
pub struct SpecBytes(Vec<u8>);

impl SpecBytes {
    /// None for more than [`MAX_SPEC`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= MAX_SPEC).then(|| Self(bytes.to_vec()))
    }

    /// One byte.
    pub fn of_byte(byte: u8) -> Self {
        Self([byte].to_vec())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SpecBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why a side does not build what its peer proposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NackReason {
    /// A change is under way.
    Busy,
    /// It does not know the composition, or could not build it.
    Cannot,
    /// It could not a short time ago.
    HoldDown,
}

impl NackReason {
    const fn number(self) -> u8 {
        match self {
            Self::Busy => 1,
            Self::Cannot => 2,
            Self::HoldDown => 3,
        }
    }

    const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Busy),
            2 => Some(Self::Cannot),
            3 => Some(Self::HoldDown),
            _ => None,
        }
    }
}

/// What one side tells the other of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Build this, be able to receive by it, and say so.
    Prepare {
        /// Its number.
        epoch: Epoch,
        /// What it is.
        spec: SpecBytes,
    },
    /// It is built.
    Prepared {
        /// Its number.
        epoch: Epoch,
    },
    /// It is not, and will not be.
    Nack {
        /// Its number.
        epoch: Epoch,
        /// Why.
        reason: NackReason,
    },
    /// What this side sends from now on, it sends by the new one.
    Switch {
        /// The new one's number.
        epoch: Epoch,
        /// The old one's.
        old: Epoch,
        /// Where this side's stream of bytes ends in the old one: the position behind its last byte.
        last: u64,
    },
    /// All that the peer sent by the old one is here.
    Drained {
        /// The old one's number.
        old: Epoch,
    },
    /// A proposal is withdrawn.
    Abort {
        /// Its number.
        epoch: Epoch,
    },
}

/// What is wrong with bytes that should be a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordError {
    /// They end too early.
    Short,
    /// They go on behind the word.
    Trailing,
    /// There is no word of this kind.
    Kind(u8),
    /// What is reserved is not zero.
    Reserved,
    /// There is no such reason.
    Reason(u8),
    /// A composition of more than [`MAX_SPEC`] bytes.
    Spec(u8),
}

impl fmt::Display for WordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("a word of the control channel ends too early"),
            Self::Trailing => f.write_str("bytes follow a word of the control channel"),
            Self::Kind(kind) => write!(f, "the control channel has no word {kind}"),
            Self::Reserved => f.write_str("a reserved byte of a control word is not zero"),
            Self::Reason(reason) => write!(f, "a NACK has no reason {reason}"),
            Self::Spec(len) => write!(f, "a composition takes {MAX_SPEC} bytes at most, not {len}"),
        }
    }
}

impl core::error::Error for WordError {}

impl From<Short> for WordError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

impl Word {
    /// The word's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut room = [0; MAX_WORD];
        let mut w = Writer::new(&mut room);
        match self {
            Self::Prepare { epoch, spec } => {
                w.u8(1).u8(epoch.0).u8(spec.0.len() as u8).u8(0).bytes(&spec.0);
            }
            Self::Prepared { epoch } => _ = w.u8(2).u8(epoch.0).u16(0),
            Self::Nack { epoch, reason } => _ = w.u8(3).u8(epoch.0).u8(reason.number()).u8(0),
            Self::Switch { epoch, old, last } => _ = w.u8(4).u8(epoch.0).u8(old.0).u8(0).u64(*last),
            Self::Drained { old } => _ = w.u8(5).u8(old.0).u16(0),
            Self::Abort { epoch } => _ = w.u8(6).u8(epoch.0).u16(0),
        }
        let len = w.finish().unwrap_or(0);
        room[..len].to_vec()
    }
}

/// Reads one word, which must be all of `bytes`.
pub fn parse(bytes: &[u8]) -> Result<Word, WordError> {
    let mut r = Reader::new(bytes);
    let [kind, epoch, third, fourth] = r.array()?;
    let (epoch, zeros) = (Epoch(epoch), third == 0 && fourth == 0);
    let (word, reserved) = match kind {
        1 => (Word::Prepare { epoch, spec: read_spec(&mut r, third)? }, fourth == 0),
        2 => (Word::Prepared { epoch }, zeros),
        3 => {
            let reason = NackReason::of(third).ok_or(WordError::Reason(third))?;
            (Word::Nack { epoch, reason }, fourth == 0)
        }
        4 => (Word::Switch { epoch, old: Epoch(third), last: r.u64()? }, fourth == 0),
        5 => (Word::Drained { old: epoch }, zeros),
        6 => (Word::Abort { epoch }, zeros),
        _ => return Err(WordError::Kind(kind)),
    };
    match (reserved, r.is_empty()) {
        (false, _) => Err(WordError::Reserved),
        (true, false) => Err(WordError::Trailing),
        (true, true) => Ok(word),
    }
}

fn read_spec(r: &mut Reader<'_>, len: u8) -> Result<SpecBytes, WordError> {
    if usize::from(len) > MAX_SPEC {
        return Err(WordError::Spec(len));
    }
    Ok(SpecBytes(r.bytes(len.into())?.to_vec()))
}
