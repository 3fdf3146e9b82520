//! Shared places that this rank has a mere copy of: what rank 0 has there, as far as this rank knows.

use std::collections::BTreeMap;

use super::host::Value;

/// Bytes that a place has at most.
const MOST: usize = size_of::<Value>();

/// A place and its width in bytes.
type Place = (usize, usize);

/// Places may overlap: then they agree.
#[derive(Debug)]
pub struct Copies(BTreeMap<Place, Value>);

/// A store over a copy: what rank 0 has there, for all that is known, and what was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where.
    pub place: usize,
    /// Its width.
    pub bytes: usize,
    /// What was copied.
    pub known: Value,
    /// What was stored.
    pub now: Value,
}

impl Stored {
    /// Whether all that it changes is within that place.
    fn is_within(&self, (place, bytes): Place) -> bool {
        let is_outside = |at: usize| !(place..place + bytes).contains(&at);
        !(0..self.bytes).any(|i| self.known[i] != self.now[i] && is_outside(self.place + i))
    }
}

impl Copies {
    /// None.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Place, Value)> {
        self.0.iter().map(|(place, value)| (*place, *value))
    }

    /// Those that have bytes in `range`.
    pub fn within(&self, range: &core::ops::Range<usize>) -> impl Iterator<Item = (Place, Value)> {
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

    /// What was stored over copies in memory at `at` that has these `contents`; from here on that is what was copied. Each change is told once: of places inside each
    /// other that have it, by the smallest that has all of the store.
    pub fn stored_over(&mut self, at: usize, contents: &[u8]) -> Vec<Stored> {
        let places: Vec<_> = self.within(&(at..at + contents.len())).map(|(place, _)| place).collect();
        let mut all = Vec::new();
        for place in places {
            if let Some(stored) = self.store_over(place, at, contents)
                && !self.is_told_by_another(&stored, at, contents)
            {
                self.learn(stored.place, stored.bytes, stored.now);
                all.push(stored);
            }
        }
        all
    }

    /// What was stored over one copy.
    fn store_over(&self, (place, bytes): Place, at: usize, contents: &[u8]) -> Option<Stored> {
        let known = self.known(place, bytes, [0; MOST]);
        let mut now = known;
        overlay(&mut now, (place, bytes), contents, (at, contents.len()));
        (now != known).then_some(Stored { place, bytes, known, now })
    }

    /// Whether there is a place around a store that has more of it, or one inside that has all of it.
    fn is_told_by_another(&self, stored: &Stored, at: usize, contents: &[u8]) -> bool {
        let own = (stored.place, stored.bytes);
        let is_inside = |small: Place, large: Place| {
            small != large && large.0 <= small.0 && small.0 + small.1 <= large.0 + large.1
        };
        let has_more =
            |other| self.store_over(other, at, contents).is_some_and(|other| !other.is_within(own));
        self.0.range(near(own.0, own.1)).any(|(&other, _)| {
            is_inside(other, own) && stored.is_within(other) || is_inside(own, other) && has_more(other)
        })
    }

    /// To the places that overlap.
    fn spread(&mut self, place: usize, bytes: usize, value: &Value) {
        for (&(other, width), left) in self.0.range_mut(near(place, bytes)) {
            overlay(left, (other, width), value, (place, bytes));
        }
    }
}

/// Where places begin that overlap with this one, and maybe some more.
fn near(place: usize, bytes: usize) -> core::ops::Range<Place> {
    (place.saturating_sub(MOST - 1), 0)..(place + bytes, 0)
}

/// Takes over what two places have in common.
fn overlay(to: &mut Value, (place, bytes): Place, from: &[u8], (other, width): Place) {
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

    #[test]
    fn a_store_over_places_that_overlap_is_told_once() {
        // a word, all of it and both halves
        let places = [(8, 4), (8, 8), (12, 4)];
        let stored = |contents: [u8; 8]| {
            let mut copies = Copies::new();
            places.iter().for_each(|(place, bytes)| copies.learn(*place, *bytes, value(&[])));
            let mut memory = [0; 32];
            memory[8..16].copy_from_slice(&contents);
            let stored = copies.stored_over(0, &memory);
            assert_eq!(copies.stored_over(0, &memory), [], "known now");
            assert_eq!(copies.known(8, 8, value(&[])), value(&contents));
            stored.iter().map(|one| (one.place, one.bytes, one.known, one.now)).collect::<Vec<_>>()
        };
        let zero = value(&[]);
        assert_eq!(stored([0; 8]), []);
        assert_eq!(stored([5, 0, 0, 0, 0, 0, 0, 0]), [(8, 4, zero, value(&[5]))]);
        assert_eq!(stored([0, 0, 0, 0, 0, 6, 0, 0]), [(12, 4, zero, value(&[0, 6]))]);
        let whole = [5, 0, 0, 0, 0, 6, 0, 0];
        assert_eq!(stored(whole), [(8, 8, zero, value(&whole))]);
    }

    #[test]
    fn stores_over_places_that_only_touch_are_told_one_behind_the_other() {
        let mut copies = Copies::new();
        copies.learn(4, 4, value(&[]));
        copies.learn(6, 4, value(&[]));
        let mut memory = [0; 16];
        memory[5..9].copy_from_slice(&[1, 2, 3, 4]);
        let stored = copies.stored_over(0, &memory);
        let told: Vec<_> = stored.iter().map(|one| (one.place, one.known, one.now)).collect();
        let first = (4, value(&[]), value(&[0, 1, 2, 3]));
        assert_eq!(told, [first, (6, value(&[2, 3]), value(&[2, 3, 4]))]);
        // of a place that reaches into the next page, what is in this one
        copies.learn(14, 4, value(&[]));
        memory[15] = 9;
        let stored = copies.stored_over(0, &memory);
        assert_eq!((stored[0].place, stored[0].now), (14, value(&[0, 9])));
    }
}
