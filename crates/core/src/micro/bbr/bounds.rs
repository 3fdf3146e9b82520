//! What losses say of the path: upper bounds that are kept until probes find more, and short ones that are kept until the next probe.

use super::super::Shared;

/// The part of the window in flight that may be lost (BBR.LossThresh: draft, 2.7).
const THRESHOLD: f64 = 0.02;
/// The short bounds fall to this part at most (BBR.Beta).
pub const BETA: f64 = 0.7;
/// The part of the upper bound that is left free for others (BBR.Headroom, which is 0.15: with that, one beside a Cubic has up to three
/// quarters of a line whose buffer holds as much as the line, and two of eight may have twice as much as others for long).
const HEADROOM: f64 = 0.25;
/// No less than so many datagrams are on their way (BBR.MinPipeCwnd).
pub const LEAST: u64 = 4;

/// Whether more of these bytes were lost than may be. Of few datagrams more than the threshold are lost by chance where random losses are
/// well below it, so it has to be exceeded by twice the deviation that chance has.
pub fn too_many(lost: u64, of: u64, size: u32) -> bool {
    let (lost, of) = (lost as f64 / f64::from(size), of as f64 / f64::from(size));
    let over = lost - THRESHOLD * of;
    over > 0.0 && over * over > 4.0 * THRESHOLD * of
}

/// How much may be on its way (draft, 2.8 and 2.9: inflight_longterm, inflight_shortterm, bw_shortterm).
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes; what probes found to be too much.
    pub high: u64,
    /// Bytes, and bytes per second; after losses, until the next probe.
    pub low: u64,
    pub low_rate: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { high: u64::MAX, low: u64::MAX, low_rate: u64::MAX }
    }
}

impl Bounds {
    /// The short ones go.
    pub fn lift(&mut self) {
        (self.low, self.low_rate) = (u64::MAX, u64::MAX);
    }

    /// There was loss in a round in which so much came at this rate, and none was probing (draft, 5.5.10.3).
    pub fn lower(&mut self, window: u64, rate: u64, came: u64, came_rate: u64) {
        if self.low_rate == u64::MAX {
            self.low_rate = rate;
        }
        if self.low == u64::MAX {
            self.low = window;
        }
        let part = |whole: u64| (whole as f64 * BETA) as u64;
        self.low_rate = came_rate.max(part(self.low_rate));
        self.low = came.max(part(self.low));
    }

    /// The upper one without what is left free for others (draft, BBRInflightWithHeadroom).
    pub fn with_headroom(&self, shared: &Shared) -> u64 {
        if self.high == u64::MAX {
            return u64::MAX;
        }
        let size = u64::from(shared.size);
        let free = ((self.high as f64 * HEADROOM) as u64).max(size);
        self.high.saturating_sub(free).max(LEAST * size)
    }
}

/// How much was on its way when losses became too many: of a datagram of this size, behind so much, after so much was lost
/// (draft, BBRInflightAtLoss).
pub fn in_flight_at(in_flight: u64, lost: u64, size: u32) -> u64 {
    let (before, lost_before) = (in_flight as f64 - f64::from(size), lost as f64 - f64::from(size));
    let prefix = (THRESHOLD * before - lost_before).max(0.0) / (1.0 - THRESHOLD);
    (before + prefix).max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_is_not_too_many_and_a_burst_is() {
        let most = |of: u64| (0..of).find(|lost| too_many(lost * 1000, of * 1000, 1000)).unwrap();
        assert_eq!((most(10), most(100), most(1000), most(10_000)), (2, 5, 29, 229));
    }
}
