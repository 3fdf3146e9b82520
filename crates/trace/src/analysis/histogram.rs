//! Counts of values by size, eight steps to each doubling: an unbounded range in a bounded space, and quantiles that are at
//! most 7 % off (and exact where all values are the same).

/// How often values of which size were seen.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    low: u64,
    high: u64,
}

/// Which step a value falls into.
fn step(value: u64) -> usize {
    if value < 8 {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros();
    (((exponent - 2) as usize) << 3) | ((value >> (exponent - 3)) & 7) as usize
}

/// The lowest value of a step.
fn floor(step: usize) -> u64 {
    if step < 8 {
        return step as u64;
    }
    (8 + (step as u64 & 7)) << ((step >> 3) - 1)
}

impl Histogram {
    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        let step = step(value);
        if step >= self.counts.len() {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.low = if self.count == 0 { value } else { self.low.min(value) };
        self.high = self.high.max(value);
        self.count += 1;
        self.sum += u128::from(value);
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.low = if self.count == 0 { other.low } else { self.low.min(other.low) };
        self.high = self.high.max(other.high);
        self.count += other.count;
        self.sum += other.sum;
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum; `u64::MAX` where that is too small.
    pub fn sum(&self) -> u64 {
        u64::try_from(self.sum).unwrap_or(u64::MAX)
    }

    /// Their mean; 0 of none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The highest value; 0 of none.
    pub fn max(&self) -> u64 {
        self.high
    }

    /// The value that a share `q` of all values does not exceed; `None` of none.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        self.find(q, |_, count| count as f64)
    }

    /// Likewise, each value counting as much as it is large: of lengths of time, half the time lies in values up to the 0.5-quantile.
    pub fn weighted_quantile(&self, q: f64) -> Option<u64> {
        self.find(q, |value, count| value as f64 * count as f64)
    }

    /// Likewise, a value counting as much as `weight` says.
    pub fn quantile_by(&self, q: f64, weight: impl Fn(u64) -> f64) -> Option<u64> {
        self.find(q, |value, count| weight(value) * count as f64)
    }

    fn find(&self, q: f64, weight: impl Fn(u64, u64) -> f64) -> Option<u64> {
        let weights =
            || self.counts.iter().enumerate().map(|(step, &count)| (step, weight(self.middle(step), count)));
        let wanted = weights().map(|(_, weight)| weight).sum::<f64>() * q;
        let mut passed = 0.0;
        let mut last = None;
        for (step, weight) in weights().filter(|&(_, weight)| weight > 0.0) {
            passed += weight;
            last = Some(self.middle(step));
            if passed >= wanted {
                break;
            }
        }
        last.or((self.count > 0).then_some(self.low))
    }

    /// A value to stand for a step.
    fn middle(&self, step: usize) -> u64 {
        let next = if step >= 495 { u64::MAX } else { floor(step + 1) - 1 };
        let floor = floor(step);
        (floor + (next - floor) / 2).clamp(self.low, self.high)
    }

    /// Counts by the number of binary digits: element `d` counts values from 2^(d-1) to 2^d - 1, element 0 counts zeros. As long as needed.
    pub fn doublings(&self) -> Vec<u64> {
        let mut doublings = Vec::new();
        for (step, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let digits = 64 - floor(step).leading_zeros() as usize;
            if digits >= doublings.len() {
                doublings.resize(digits + 1, 0);
            }
            doublings[digits] += count;
        }
        doublings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_are_contiguous() {
        assert_eq!((0..496).map(|s| step(floor(s))).collect::<Vec<_>>(), (0..496).collect::<Vec<_>>());
        assert_eq!((step(u64::MAX), step(15), step(16)), (495, 15, 16));
    }

    #[test]
    fn quantiles_of_equal_values_are_exact() {
        let mut histogram = Histogram::default();
        (0..10).for_each(|_| histogram.add(1_000_003));
        assert_eq!(histogram.quantile(0.5), Some(1_000_003));
        assert_eq!(histogram.weighted_quantile(0.9), Some(1_000_003));
        assert_eq!(histogram.doublings().iter().sum::<u64>(), 10);
        assert_eq!(histogram.doublings()[20], 10);
    }

    #[test]
    fn time_is_where_the_long_ones_are() {
        let mut histogram = Histogram::default();
        (0..99).for_each(|_| histogram.add(1));
        histogram.add(1000);
        assert_eq!(histogram.quantile(0.5), Some(1));
        assert_eq!(histogram.weighted_quantile(0.5), Some(1000).map(|_| histogram.middle(step(1000))));
        assert_eq!((histogram.sum(), histogram.max()), (1099, 1000));
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        let mut zeros = Histogram::default();
        zeros.add(0);
        assert_eq!((zeros.quantile(0.5), zeros.weighted_quantile(0.5)), (Some(0), Some(0)));
    }

    proptest! {
        #[test]
        fn quantiles_are_close(mut values in prop::collection::vec(any::<u64>(), 1..200), q in 0.0..1.0f64) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.add(value));
            values.sort_unstable();
            let exact = values[((values.len() as f64 * q).ceil() as usize).clamp(1, values.len()) - 1];
            let found = histogram.quantile(q).unwrap();
            prop_assert!(found.abs_diff(exact) <= exact / 14 + 1, "{found} for {exact}");
        }
    }
}
