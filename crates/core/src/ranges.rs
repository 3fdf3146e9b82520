//! Sets of numbers that mostly follow each other: which datagrams came, which bytes of the stream.

use alloc::vec::Vec;
use core::ops::Range;

/// Most ranges of datagrams' numbers that are remembered: what lies further back than so many gaps is neither acknowledged nor told from
/// what was had.
pub const MAX: usize = 64;

/// A set of numbers as ranges that neither touch nor overlap, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// In order.
    pub fn iter(&self) -> core::slice::Iter<'_, Range<u64>> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first.
    pub fn first(&self) -> Option<&Range<u64>> {
        self.0.first()
    }

    /// The last.
    pub fn last(&self) -> Option<&Range<u64>> {
        self.0.last()
    }

    /// How many numbers.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether a number is in it.
    pub fn has(&self, number: u64) -> bool {
        let at = self.0.partition_point(|range| range.end <= number);
        self.0.get(at).is_some_and(|range| range.start <= number)
    }

    /// The first range that does not end before this number, or at it.
    pub fn at_or_after(&self, number: u64) -> Option<&Range<u64>> {
        self.0.get(self.0.partition_point(|range| range.end <= number))
    }

    /// What of a range is not in it.
    pub fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let from = self.0.partition_point(|one| one.end <= range.start);
        let ends = self.0[from..].iter().map(|one| one.end);
        let starts = self.0[from..].iter().map(|one| one.start).chain([u64::MAX]);
        let gap = move |(end, start): (u64, u64)| end.max(range.start)..start.min(range.end);
        let within = move |gap: &Range<u64>| gap.start < range.end;
        core::iter::once(0).chain(ends).zip(starts).map(gap).take_while(within).filter(|gap| !gap.is_empty())
    }

    /// Adds a range; false if none of it is new.
    pub fn add(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        // mostly it follows the last
        match self.0.last_mut() {
            Some(last) if last.end == range.start => {
                last.end = range.end;
                return true;
            }
            Some(last) if last.end > range.start => {}
            _ => {
                self.0.push(range);
                return true;
            }
        }
        let from = self.0.partition_point(|one| one.end < range.start);
        let to = self.0.partition_point(|one| one.start <= range.end);
        if from == to {
            self.0.insert(from, range);
            return true;
        }
        let one = &self.0[from];
        if one.start <= range.start && range.end <= one.end {
            return false;
        }
        let whole = one.start.min(range.start)..self.0[to - 1].end.max(range.end);
        self.0[from] = whole;
        self.0.drain(from + 1..to);
        true
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<u64>) {
        let from = self.0.partition_point(|one| one.end <= range.start);
        let to = self.0.partition_point(|one| one.start < range.end);
        if from >= to || range.is_empty() {
            return;
        }
        let before = self.0[from].start..range.start;
        let after = range.end..self.0[to - 1].end;
        let rest = [before, after].into_iter().filter(|rest| !rest.is_empty());
        self.0.splice(from..to, rest);
    }

    /// Takes at most so many numbers off the front: a range, empty if there is none.
    pub fn take_first(&mut self, most: u64) -> Range<u64> {
        let Some(first) = self.0.first_mut() else { return 0..0 };
        let taken = first.start..first.end.min(first.start + most);
        first.start = taken.end;
        if first.is_empty() {
            self.0.remove(0);
        }
        taken
    }

    /// Forgets ranges, the lowest first, until there are no more than so many.
    pub fn keep_last(&mut self, most: usize) {
        let over = self.0.len().saturating_sub(most);
        self.0.drain(..over);
    }

    /// Forgets what is below a number.
    pub fn forget_below(&mut self, number: u64) {
        self.remove(0..number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in proptest::collection::vec((0_u64..64, 0_u64..9, 0_u8..4), 0..80)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (start, len, what) in steps {
                let range = start..start + len;
                match what {
                    0 => {
                        ranges.remove(range.clone());
                        range.for_each(|n| { set.remove(&n); });
                    }
                    1 => {
                        let taken = ranges.take_first(len);
                        for n in taken.clone() {
                            prop_assert_eq!(set.pop_first(), Some(n));
                        }
                        prop_assert!(taken.end - taken.start == len || len == 0 || !set.contains(&taken.end));
                    }
                    _ => {
                        let fresh = range.clone().any(|n| !set.contains(&n));
                        prop_assert_eq!(ranges.add(range.clone()), fresh);
                        set.extend(range);
                    }
                }
                prop_assert!(ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.end < b.start));
                prop_assert_eq!(ranges.count(), set.len() as u64);
                prop_assert!((0..80).all(|n| ranges.has(n) == set.contains(&n)));
                let gaps: Vec<u64> = ranges.gaps(start..start + len).flatten().collect();
                let missing: Vec<u64> = (start..start + len).filter(|n| !set.contains(n)).collect();
                prop_assert_eq!(gaps, missing);
                let next = set.range(start..).next().copied();
                prop_assert_eq!(ranges.at_or_after(start).map(|one| one.start.max(start)), next);
            }
        }
    }
}
