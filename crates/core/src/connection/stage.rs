//! One data channel of a connection, and the number that it has there.

use crate::control::Epoch;
use crate::micro::{Composition, DataChannel, Limits, Time};

/// A composition that is alive on this side.
#[derive(Debug)]
pub(super) struct Stage {
    /// As datagrams name it.
    pub(super) epoch: Epoch,
    /// How many there were before it: the keys of its datagrams' numbers.
    pub(super) count: u32,
    pub(super) channel: DataChannel,
    /// The highest number that came, by which others are told in full.
    newest: u64,
}

impl Stage {
    pub(super) fn new(
        now: Time,
        epoch: Epoch,
        count: u32,
        composition: Composition,
        limits: &Limits,
    ) -> Self {
        Self { epoch, count, channel: DataChannel::new(composition, now, limits), newest: 0 }
    }

    /// Which composition of the connection's it is, as its datagrams' nonces have it.
    pub(super) fn changes(&self) -> u32 {
        self.count << 8 | u32::from(self.epoch.0)
    }

    /// The full number of a datagram of which these are the lowest bits.
    pub(super) fn number(&self, low: u32) -> u64 {
        let newest = self.newest;
        let near = (newest & !0xffff_ffff) | u64::from(low);
        match near {
            above if above > newest + (1 << 31) => above.checked_sub(1 << 32).unwrap_or(near),
            below if below + (1 << 31) < newest => below + (1 << 32),
            _ => near,
        }
    }

    /// Whether none with as high a number has come.
    pub(super) fn is_newest(&self, number: u64) -> bool {
        number > self.newest
    }

    /// A datagram of this number came.
    pub(super) fn note(&mut self, number: u64) {
        self.newest = self.newest.max(number);
    }
}
