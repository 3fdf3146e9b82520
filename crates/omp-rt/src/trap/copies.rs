//! Shared places that this rank has a mere copy of: what rank 0 has there, as far as this rank knows.

use std::collections::BTreeMap;

/// Bytes of a place, the first ones counting.
pub type Value = [u8; MOST];
/// Bytes that a place has at most.
const MOST: usize = 16;

/// By place and width in bytes. Places may overlap: then they agree.
pub struct Copies(BTreeMap<(usize, usize), Value>);

impl Copies {
    /// None.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = ((usize, usize), Value)> {
        self.0.iter().map(|(place, value)| (*place, *value))
    }

    /// Those that have bytes in `range`.
    pub fn within(&self, range: &core::ops::Range<usize>) -> impl Iterator<Item = ((usize, usize), Value)> {
        let from = range.start;
        let near = near(from, range.len());
        self.0
            .range(near)
            .filter(move |((place, bytes), _)| place + bytes > from)
            .map(|(place, value)| (*place, *value))
    }

    /// What rank 0 has at a place, where all agreed upon `value` last.
    pub fn known(&self, place: usize, bytes: usize, mut value: Value) -> Value {
        for (&(other, width), left) in self.0.range(near(place, bytes)) {
            overlay(&mut value, (place, bytes), left, (other, width));
        }
        value
    }

    /// Rank 0 has `value` there, and there is a copy of it here.
    pub fn learn(&mut self, place: usize, bytes: usize, value: Value) {
        self.spread(place, bytes, &value);
        self.0.insert((place, bytes), value);
    }

    /// There is no copy any more: `value`, upon which all agreed last, is there.
    pub fn forget(&mut self, place: usize, bytes: usize, value: Value) {
        self.0.remove(&(place, bytes));
        self.spread(place, bytes, &value);
    }

    /// To the places that overlap.
    fn spread(&mut self, place: usize, bytes: usize, value: &Value) {
        for (&(other, width), left) in self.0.range_mut(near(place, bytes)) {
            overlay(left, (other, width), value, (place, bytes));
        }
    }
}

/// Where places begin that overlap with this one, and maybe some more.
fn near(place: usize, bytes: usize) -> core::ops::Range<(usize, usize)> {
    (place.saturating_sub(MOST - 1), 0)..(place + bytes, 0)
}

/// Takes over what two places have in common.
fn overlay(to: &mut Value, (place, bytes): (usize, usize), from: &Value, (other, width): (usize, usize)) {
    let (first, end) = (place.max(other), (place + bytes).min(other + width));
    if first < end {
        to[first - place..end - place].copy_from_slice(&from[first - other..end - other]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: &[u8]) -> Value {
        let mut value = [0; MOST];
        value[..bytes.len()].copy_from_slice(bytes);
        value
    }

    #[test]
    fn places_that_overlap_agree() {
        let mut copies = Copies::new();
        copies.learn(100, 4, value(&[1, 2, 3, 4]));
        assert_eq!(copies.known(96, 8, value(&[9; 8])), value(&[9, 9, 9, 9, 1, 2, 3, 4]));
        assert_eq!(copies.known(104, 4, value(&[9; 4])), value(&[9; 4]));
        copies.learn(102, 8, value(&[5; 8]));
        assert_eq!(copies.known(100, 4, value(&[])), value(&[1, 2, 5, 5]));
        let places = |from, to| copies.within(&(from..to)).map(|(place, _)| place).collect::<Vec<_>>();
        assert_eq!(places(0, 100), []);
        assert_eq!(places(103, 104), [(100, 4), (102, 8)]);
        assert_eq!(places(104, 200), [(102, 8)]);
        copies.forget(100, 4, value(&[7; 4]));
        assert_eq!(copies.iter().collect::<Vec<_>>(), [((102, 8), value(&[7, 7, 5, 5, 5, 5, 5, 5]))]);
    }
}
