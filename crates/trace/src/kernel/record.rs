//! The record that keeps a kernel event in a file.

use crate::model::KernelEventKind;

/// Bytes of a [`KernelRecord`] in a file.
pub const KERNEL_BYTES: usize = 48;

/// A kernel event about a connection, as it is kept in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelRecord {
    /// When, on the host's monotonic clock in nanoseconds.
    pub at: u64,
    /// Which connection, by the kernel's number for its socket (`SO_COOKIE`).
    pub cookie: u64,
    /// What.
    pub what: KernelEventKind,
}

const PROBE: u8 = 1;
const RETRANSMIT: u8 = 2;
const STATE: u8 = 3;
const CONGESTION: u8 = 4;

impl KernelRecord {
    /// As in a file, little-endian: moment u64, cookie u64, kind u8, then by kind
    ///
    /// | kind | |
    /// |---|---|
    /// | 1 probe | 0 u8, length u16, next byte u32, first unacknowledged u32, window u32, threshold u32, peer's window u32, round trip u32 |
    /// | 2 retransmission | by the timer u8 |
    /// | 3 state | before u8, after u8 |
    /// | 4 congestion | state u8 |
    ///
    /// and zeros.
    pub fn to_bytes(&self) -> [u8; KERNEL_BYTES] {
        let mut words = [0; 6];
        let (kind, first, second) = match self.what {
            KernelEventKind::Probe { length, snd_nxt, snd_una, cwnd, ssthresh, snd_wnd, rtt } => {
                words = [snd_nxt, snd_una, cwnd, ssthresh, snd_wnd, rtt];
                (PROBE, 0, length)
            }
            KernelEventKind::Retransmit { timeout } => (RETRANSMIT, timeout.into(), 0),
            KernelEventKind::State { old, new } => (STATE, old, new.into()),
            KernelEventKind::Congestion { state } => (CONGESTION, state, 0),
        };
        let mut bytes = [0; KERNEL_BYTES];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_le_bytes());
        (bytes[16], bytes[17]) = (kind, first);
        bytes[18..20].copy_from_slice(&second.to_le_bytes());
        for (word, place) in words.iter().zip(bytes[20..44].chunks_exact_mut(4)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The reverse of [`to_bytes`](Self::to_bytes); `None`: bytes that it does not make.
    pub fn from_bytes(bytes: &[u8; KERNEL_BYTES]) -> Option<KernelRecord> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let what = match bytes[16] {
            PROBE => KernelEventKind::Probe {
                length: half(18),
                snd_nxt: word(20),
                snd_una: word(24),
                cwnd: word(28),
                ssthresh: word(32),
                snd_wnd: word(36),
                rtt: word(40),
            },
            RETRANSMIT => KernelEventKind::Retransmit { timeout: bytes[17] != 0 },
            STATE => KernelEventKind::State { old: bytes[17], new: bytes[18] },
            CONGESTION => KernelEventKind::Congestion { state: bytes[17] },
            _ => return None,
        };
        let record = KernelRecord { at: long(0), cookie: long(8), what };
        (record.to_bytes() == *bytes).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let what = KernelEventKind::Probe {
            length: 0x0102,
            snd_nxt: 3,
            snd_una: 4,
            cwnd: 5,
            ssthresh: 6,
            snd_wnd: 7,
            rtt: 0x0a0b_0c0d,
        };
        let bytes = KernelRecord { at: 0x0102_0304_0506_0708, cookie: 9, what }.to_bytes();
        let expected = [
            8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 1, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0,
            6, 0, 0, 0, 7, 0, 0, 0, 13, 12, 11, 10, 0, 0, 0, 0,
        ];
        assert_eq!(bytes, expected);
        let start = |what| KernelRecord { at: 0, cookie: 0, what }.to_bytes()[16..20].to_vec();
        assert_eq!(start(KernelEventKind::Retransmit { timeout: true }), [2, 1, 0, 0]);
        assert_eq!(start(KernelEventKind::State { old: 2, new: 1 }), [3, 2, 1, 0]);
        assert_eq!(start(KernelEventKind::Congestion { state: 4 }), [4, 4, 0, 0]);
    }

    proptest! {
        #[test]
        fn what_can_be_read_is_what_was_written(mut bytes in proptest::collection::vec(any::<u8>(), KERNEL_BYTES), kind in 0u8..6, zeros in 17usize..KERNEL_BYTES) {
            bytes[16] = kind;
            bytes[zeros..].fill(0);
            let bytes: [u8; KERNEL_BYTES] = bytes.try_into().unwrap();
            if let Some(record) = KernelRecord::from_bytes(&bytes) {
                prop_assert_eq!(record.to_bytes(), bytes);
            } else {
                prop_assert!(kind == 0 || kind == 5 || bytes[17..].iter().any(|byte| *byte != 0));
            }
        }

        #[test]
        fn every_probe_comes_back(at: u64, cookie: u64, length: u16, words: [u32; 6]) {
            let [snd_nxt, snd_una, cwnd, ssthresh, snd_wnd, rtt] = words;
            let what = KernelEventKind::Probe { length, snd_nxt, snd_una, cwnd, ssthresh, snd_wnd, rtt };
            let record = KernelRecord { at, cookie, what };
            prop_assert_eq!(KernelRecord::from_bytes(&record.to_bytes()), Some(record));
        }
    }
}
