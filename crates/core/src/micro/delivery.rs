//! How fast the other side gets what is sent: delivery rate samples, by draft-ietf-ccwg-bbr (section 4.1) and its predecessor
//! draft-cheng-iccrg-delivery-rate-estimation.
//!
//! By these, what is sent within a round trip after a rest gets no more through than its bytes in that round trip, however fast the path
//! is. So of such a **train** it counts, too, in what time it left, and in what time it came, from its first acknowledgement on.

use super::{Sent, Time};

/// What had been delivered when a datagram left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// Bytes that had been delivered.
    pub delivered: u64,
    /// When the last of them was known to be.
    pub delivered_at: Time,
    /// When the datagram left by whose acknowledgement that was known: the beginning of this one's sample.
    pub first_at: Time,
    /// Bytes on their way, with this one.
    pub in_flight: u64,
    /// Bytes that counted as lost.
    pub lost: u64,
    /// There was less to send than the network would take.
    pub limited: bool,
}

/// What the last acknowledgement says of the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RateSample {
    /// Bytes per second; 0: it says nothing.
    pub rate: u64,
    /// Bytes that were delivered in its time.
    pub delivered: u64,
    /// What had been delivered when the newest datagram left that was acknowledged: rounds are told apart by it.
    pub prior_delivered: u64,
    /// Bytes that were lost in its time.
    pub lost: u64,
    /// Bytes that were on their way when that datagram left.
    pub in_flight: u64,
    /// There was less to send than the network would take: the rate may be higher.
    pub limited: bool,
    /// How long it took, in nanoseconds.
    pub interval: Time,
    /// It is of a train that came more slowly than it left: so fast is the path, however little was sent.
    pub narrow: bool,
}

/// Of a train so many bytes are acknowledged, at least, before it tells anything: in so many datagrams.
const TRAIN: u64 = 32;
/// Its first acknowledgement came in no more than so many hundredths of the shortest round trip: whoever waits with it, waits with all,
/// and they seem to have come at once.
const AT_ONCE: u64 = 125;
/// It came more slowly than it left if that took so many hundredths of the time.
const NARROW: u64 = 125;

/// What left after a rest.
#[derive(Clone, Copy, Debug, Default)]
struct Train {
    /// When it began to.
    at: Time,
    /// When the first of it was known to be delivered, and what had been then; when the newest of that had left.
    first: Option<(Time, u64, Time)>,
}

/// The count of what was delivered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    /// Bytes that were delivered.
    pub delivered: u64,
    /// When the last of them was known to be.
    pub delivered_at: Time,
    /// Bytes that counted as lost.
    pub lost: u64,
    first_at: Time,
    /// What will have been delivered when the network is no longer taken to be idle for want of data; 0: it is not.
    limited_until: u64,
    newest: Option<Sent>,
    train: Option<Train>,
}

impl Delivery {
    /// The mark of a datagram of so many bytes that leaves now, behind so many on their way.
    pub fn mark(&mut self, now: Time, in_flight: u64, size: u32) -> Mark {
        if in_flight == 0 {
            (self.first_at, self.delivered_at) = (now, now);
            // a channel's first ones share the path with what the channel before it has on its way
            self.train = (self.delivered > 0).then_some(Train { at: now, first: None });
        }
        Mark {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_at: self.first_at,
            in_flight: in_flight + u64::from(size),
            lost: self.lost,
            limited: self.limited_until != 0,
        }
    }

    /// There is nothing more to send, though the network would take it.
    pub fn limit(&mut self, in_flight: u64) {
        self.limited_until = (self.delivered + in_flight).max(1);
    }

    /// A datagram was acknowledged.
    pub fn acked(&mut self, now: Time, sent: &Sent) {
        self.delivered += u64::from(sent.size);
        self.delivered_at = now;
        // what left before the newest of earlier acknowledgements was late, and tells nothing of the rate now
        let newer = self.newest.is_none_or(|newest| (sent.at, sent.number) > (newest.at, newest.number));
        if newer && sent.at >= self.first_at {
            self.newest = Some(*sent);
            self.first_at = sent.at;
        }
    }

    /// What all that was acknowledged since the last sample says; samples shorter than the shortest round trip say nothing.
    pub fn sample(&mut self, min_rtt: Time) -> RateSample {
        if self.limited_until != 0 && self.delivered > self.limited_until {
            self.limited_until = 0;
        }
        let Some(newest) = self.newest.take() else { return RateSample::default() };
        let mark = newest.mark;
        let sent_in = newest.at.saturating_sub(mark.first_at);
        let acked_in = self.delivered_at.saturating_sub(mark.delivered_at);
        let interval = sent_in.max(acked_in);
        let delivered = self.delivered - mark.delivered;
        let rate = match interval {
            0 => 0,
            short if short < min_rtt => 0,
            _ => (u128::from(delivered) * 1_000_000_000 / u128::from(interval)) as u64,
        };
        let train = self.train(&newest, min_rtt);
        RateSample {
            rate: rate.max(train.0),
            narrow: train.1 && train.0 >= rate,
            delivered,
            prior_delivered: mark.delivered,
            lost: self.lost - mark.lost,
            in_flight: mark.in_flight,
            limited: mark.limited,
            interval,
        }
    }

    /// The rate of the train that this datagram is of, 0 if it is of none or nothing can be said; and whether it came more slowly than it
    /// left.
    fn train(&mut self, newest: &Sent, min_rtt: Time) -> (u64, bool) {
        let Some(train) = self.train.filter(|train| newest.at >= train.at) else { return (0, false) };
        let Some((came_at, had, left_at)) = train.first else {
            let took = self.delivered_at.saturating_sub(newest.at);
            let first = (self.delivered_at, self.delivered, newest.at);
            // one that cannot tell anything is none
            self.train = (took <= min_rtt / 100 * AT_ONCE).then_some(Train { first: Some(first), ..train });
            return (0, false);
        };
        if newest.at >= came_at {
            self.train = None;
            return (0, false);
        }
        let bytes = self.delivered - had;
        let (left_in, came_in) = (newest.at.saturating_sub(left_at), self.delivered_at - came_at);
        let interval = left_in.max(came_in);
        if bytes < TRAIN * u64::from(newest.size) || interval == 0 {
            return (0, false);
        }
        let rate = (u128::from(bytes) * 1_000_000_000 / u128::from(interval)) as u64;
        (rate, came_in >= left_in / 100 * NARROW)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fate, Segment};
    use super::*;
    use alloc::vec::Vec;

    const MS: Time = 1_000_000;

    fn send(delivery: &mut Delivery, number: u64, at: Time) -> Sent {
        let mark = delivery.mark(at, number * 1000, 1000);
        let segment = Segment::default();
        Sent { number, at, size: 1000, segment, probes_path: false, fate: Fate::Flying, mark }
    }

    #[test]
    fn a_late_datagram_lowers_no_rate() {
        // one each millisecond, with a round trip of ten; the second comes late
        let mut delivery = Delivery::default();
        let sent: Vec<Sent> = (0..20).map(|n| send(&mut delivery, n, n * MS)).collect();
        let mut rates = Vec::new();
        for at in [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 11, 12] {
            let now = if at == 1 { 20 * MS + 500_000 } else { (at as u64 + 10) * MS };
            delivery.acked(now, &sent[at]);
            rates.push(delivery.sample(10 * MS).rate);
        }
        assert_eq!(rates[10], 0, "it says nothing: {rates:?}");
        assert!(rates[11] >= rates[9], "{rates:?}");
    }
}
