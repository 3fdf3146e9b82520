//! A record: 32 bytes, little-endian, written by four stores.
//!
//! ```text
//!        0       8        12   13    14     16      20      24      28      32
//! call   | start | took  |call|flags| extra | socket| result| arg   | arg2  |
//! MPI    | start | took  |call|flags| comm  | peer  | tag   | bytes         |
//! note   | start | 0     | 0  |kind | 0     | 0     | 0     | length| 0     |  then the payload in whole records
//! ```

/// Bytes of a record.
pub const RECORD: usize = 32;

/// Bits of [`Record::flags`].
pub mod flags {
    /// A run of equal calls that found nothing: `arg2` says how many, `arg` how long was spent inside (a [`Span`](super::Span)), and `took` reaches from the
    /// first's start to the last's end.
    pub const RUN: u8 = 1;
    /// The call was made while an MPI function was running in this thread.
    pub const IN_MPI: u8 = 2;
}

/// A length of time in clock ticks, in 32 bits: exact below 2^27, above that with 27 significant bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span(pub u32);

impl Span {
    /// Rounded down; what is longer than 2^58 ticks becomes that.
    pub const fn from_ticks(ticks: u64) -> Span {
        let excess = 64u32.saturating_sub(ticks.leading_zeros()).saturating_sub(27);
        if excess > 31 { Span(u32::MAX) } else { Span((excess << 27) | (ticks >> excess) as u32) }
    }

    /// In ticks.
    pub const fn ticks(self) -> u64 {
        ((self.0 & 0x07ff_ffff) as u64) << (self.0 >> 27)
    }
}

/// One record, as it stands in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Record {
    /// When the call began, in ticks of the host's trace clock.
    pub start: u64,
    /// How long it took.
    pub took: Span,
    /// Number of the function ([`Call`](super::Call)); 0 for a note.
    pub call: u8,
    /// Bits of [`flags`]; a note's kind.
    pub flags: u8,
    /// See [`SocketFields`] and [`MpiFields`].
    pub extra: u16,
    /// The last sixteen bytes.
    pub rest: [u32; 4],
}

/// What a socket call's record says besides the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SocketFields {
    /// The process's number for the socket, announced by a note; 0: none, or many (`poll`).
    pub socket: u32,
    /// What the function returned, or minus its error number.
    pub result: i32,
    /// Sends and receives: bytes asked for. Waits: the timeout in milliseconds, `u32::MAX` for ever. `sendmmsg` and
    /// `recvmmsg`: bytes moved. `dup` and its kin: the old descriptor. `socket`: domain. Options: level << 16 | name.
    pub arg: u32,
    /// Datagrams and `connect`: number of the address (a note). Waits: how many descriptors. Accept: number of the new
    /// socket. Options: the value.
    pub arg2: u32,
    /// Flags of the call (`MSG_*`, low 16 bits), or the number of parts of a vector.
    pub extra: u16,
}

/// What an MPI call's record says besides the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MpiFields {
    /// A number for the communicator, by the process; 0: the world.
    pub comm: u16,
    /// Rank in the world of the other side, or of a collective's root; or one of the constants.
    pub peer: i32,
    /// The tag; for calls that complete requests, how many they completed.
    pub tag: i32,
    /// Bytes this process gives (or, where it only receives, gets).
    pub bytes: u64,
}

impl MpiFields {
    /// No single peer: a collective without a root, a wait.
    pub const NOBODY: i32 = -3;
    /// `MPI_PROC_NULL`.
    pub const NULL: i32 = -2;
    /// `MPI_ANY_SOURCE`, not known afterwards either.
    pub const ANY: i32 = -1;
}

impl Record {
    /// A socket call.
    pub const fn socket(
        start: u64,
        took: Span,
        call: super::Call,
        flags: u8,
        fields: SocketFields,
    ) -> Record {
        let SocketFields { socket, result, arg, arg2, extra } = fields;
        Record { start, took, call: call as u8, flags, extra, rest: [socket, result as u32, arg, arg2] }
    }

    /// An MPI call.
    pub const fn mpi(start: u64, took: Span, call: super::Call, flags: u8, fields: MpiFields) -> Record {
        let MpiFields { comm, peer, tag, bytes } = fields;
        let rest = [peer as u32, tag as u32, bytes as u32, (bytes >> 32) as u32];
        Record { start, took, call: call as u8, flags, extra: comm, rest }
    }

    /// The record in front of a note's payload of `length` bytes.
    pub const fn note(start: u64, kind: u8, length: u32) -> Record {
        Record { start, took: Span(0), call: 0, flags: kind, extra: 0, rest: [0, 0, length, 0] }
    }

    /// Whether it is a note, and the number of records that its payload takes behind it.
    pub const fn payload(&self) -> Option<usize> {
        if self.call == 0 { Some((self.rest[2] as usize).div_ceil(RECORD)) } else { None }
    }

    /// What a socket call says.
    pub const fn socket_fields(&self) -> SocketFields {
        let [socket, result, arg, arg2] = self.rest;
        SocketFields { socket, result: result as i32, arg, arg2, extra: self.extra }
    }

    /// What an MPI call says.
    pub const fn mpi_fields(&self) -> MpiFields {
        let [peer, tag, low, high] = self.rest;
        MpiFields {
            comm: self.extra,
            peer: peer as i32,
            tag: tag as i32,
            bytes: low as u64 | (high as u64) << 32,
        }
    }

    /// As four words, in the order in which they stand in memory (each little-endian).
    pub const fn to_words(self) -> [u64; 4] {
        let second = self.took.0 as u64
            | (self.call as u64) << 32
            | (self.flags as u64) << 40
            | (self.extra as u64) << 48;
        let [a, b, c, d] = self.rest;
        [self.start, second, a as u64 | (b as u64) << 32, c as u64 | (d as u64) << 32]
    }

    /// The reverse of [`to_words`](Self::to_words).
    pub const fn from_words(words: [u64; 4]) -> Record {
        let [start, second, third, fourth] = words;
        Record {
            start,
            took: Span(second as u32),
            call: (second >> 32) as u8,
            flags: (second >> 40) as u8,
            extra: (second >> 48) as u16,
            rest: [third as u32, (third >> 32) as u32, fourth as u32, (fourth >> 32) as u32],
        }
    }

    /// From the bytes of a file.
    pub fn from_bytes(bytes: &[u8; RECORD]) -> Record {
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| bytes[at + i]));
        Record::from_words([word(0), word(8), word(16), word(24)])
    }

    /// As in a file.
    pub fn to_bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        for (at, word) in self.to_words().into_iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Call;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let fields = SocketFields { socket: 7, result: -11, arg: 0x1000, arg2: 9, extra: 0x4000 };
        let record =
            Record::socket(0x0102_0304_0506_0708, Span::from_ticks(1000), Call::Recv, flags::IN_MPI, fields);
        let expected = [
            8, 7, 6, 5, 4, 3, 2, 1, 0xe8, 3, 0, 0, 40, 2, 0, 0x40, 7, 0, 0, 0, 0xf5, 0xff, 0xff, 0xff, 0,
            0x10, 0, 0, 9, 0, 0, 0,
        ];
        assert_eq!(record.to_bytes(), expected);
        assert_eq!(Record::from_bytes(&expected).socket_fields(), fields);
        let fields = MpiFields { comm: 1, peer: 3, tag: -1, bytes: 5 << 32 };
        let record = Record::mpi(1, Span(2), Call::MpiSend, 0, fields);
        let expected = [
            1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 130, 0, 1, 0, 3, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 5,
            0, 0, 0,
        ];
        assert_eq!(record.to_bytes(), expected);
        assert_eq!(Record::from_bytes(&expected).mpi_fields(), fields);
        assert_eq!(Record::note(0, 1, 96).payload(), Some(3));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_and_come_back(bytes: [u8; RECORD]) {
            prop_assert_eq!(Record::from_bytes(&bytes).to_bytes(), bytes);
        }

        #[test]
        fn spans_are_exact_when_short_and_close_when_long(ticks in 0u64..1 << 58) {
            let back = Span::from_ticks(ticks).ticks();
            prop_assert!(back <= ticks && ticks - back <= ticks >> 26, "{ticks} became {back}");
            if ticks < 1 << 27 { prop_assert_eq!(back, ticks) }
        }
    }
}
