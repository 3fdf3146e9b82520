//! Shared places that this rank has a mere copy of: what rank 0 has there, as far as this rank knows.

use std::collections::BTreeMap;

use super::host::Value;

/// Bytes that a place has at most.
const MOST: usize = size_of::<Value>();

/// A place and its width in bytes.
type Place = (usize, usize);

/// When something was so at rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// What an entry of the log at `position` told; whether it is rank 0's.
    Told {
        /// Where in the log.
        position: u64,
        /// What rank 0 told, it had before operations that it had known of less.
        by_0: bool,
    },
    /// What an operation left.
    Done(Stamp),
}

/// What rank 0 knew when it did an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Up to where it knew the log: it had applied, or said, what was there.
    pub known: u64,
    /// Up to where it had applied what others said.
    pub applied: u64,
    /// Operations before.
    pub count: u64,
}

impl Stamp {
    /// As it travels.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let words = [self.known, self.applied, self.count];
        bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_ne_bytes());
        bytes
    }

    /// The reverse.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks() else { return None };
        let [known, applied, count] = words else { return None };
        let [known, applied, count] = [known, applied, count].map(|word| u64::from_ne_bytes(*word));
        Some(Self { known, applied, count })
    }
}

impl When {
    /// Upon which all agreed last.
    pub const AGREED: Self = Self::Told { position: 0, by_0: true };

    /// Whether it is not older than another.
    fn is_as_new_as(&self, other: &Self) -> bool {
        let is_told_behind = |position: u64, by_0: bool, stamp: &Stamp| {
            position > if by_0 { stamp.known } else { stamp.applied }
        };
        match (self, other) {
            (Self::Told { position, .. }, Self::Told { position: other, .. }) => position >= other,
            (Self::Done(own), Self::Done(other)) => own.count >= other.count,
            (Self::Told { position, by_0 }, Self::Done(stamp)) => is_told_behind(*position, *by_0, stamp),
            (Self::Done(stamp), Self::Told { position, by_0 }) => !is_told_behind(*position, *by_0, stamp),
        }
    }
}

/// What rank 0 had in a place, and when.
#[derive(Clone, Debug)]
struct Copied {
    value: Value,
    when: When,
    /// By the byte, where that is not all of one time: places overlap.
    each: Option<Box<[When; MOST]>>,
}

impl Copied {
    fn new(value: Value) -> Self {
        Self { value, when: When::AGREED, each: None }
    }

    fn when(&self, byte: usize) -> When {
        self.each.as_ref().map_or(self.when, |each| each[byte])
    }

    /// Takes bytes over, of a place of `bytes`.
    fn take(&mut self, bytes: usize, value: &Value, when: When, of: impl Fn(usize) -> bool) {
        if (0..bytes).all(&of) {
            *self = Self { value: *value, when, each: None };
            return;
        }
        for i in (0..bytes).filter(|i| of(*i)) {
            self.put(i, value[i], when);
        }
    }

    fn put(&mut self, byte: usize, value: u8, when: When) {
        self.value[byte] = value;
        if self.when(byte) != when {
            self.each.get_or_insert_with(|| Box::new([self.when; MOST]))[byte] = when;
        }
    }
}

/// Places may overlap: then they agree.
#[derive(Debug)]
pub struct Copies(BTreeMap<Place, Copied>);

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
        self.0.iter().map(|(place, copied)| (*place, copied.value))
    }

    /// Those that have bytes in `range`.
    pub fn within(&self, range: &core::ops::Range<usize>) -> impl Iterator<Item = (Place, Value)> {
        let from = range.start;
        let near = near(from, range.len());
        self.0
            .range(near)
            .filter(move |((place, bytes), _)| place + bytes > from)
            .map(|(place, copied)| (*place, copied.value))
    }

    /// What rank 0 has at a place, where all agreed upon `value` last.
    pub fn known(&self, place: usize, bytes: usize, mut value: Value) -> Value {
        for (&(other, width), left) in self.0.range(near(place, bytes)) {
            overlay(&mut value, (place, bytes), &left.value, (other, width));
        }
        value
    }

    /// There is a copy from now on, which is what all agreed upon last (`agreed`), but for what is copied already.
    pub fn begin(&mut self, place: usize, bytes: usize, agreed: Value) {
        if !self.0.contains_key(&(place, bytes)) {
            let mut copied = Copied::new(agreed);
            for (other, left) in self.0.range(near(place, bytes)) {
                hand_over(&mut copied, (place, bytes), left, *other);
            }
            self.0.insert((place, bytes), copied);
        }
    }

    /// What there is to be in the copy of a place, if rank 0 had those bytes of `value` for which `of` says so, then: bytes of which something newer is known stay.
    pub fn with(
        &self,
        place: usize,
        bytes: usize,
        value: &Value,
        when: When,
        of: impl Fn(usize) -> bool,
    ) -> Value {
        let Some(copied) = self.0.get(&(place, bytes)) else { return *value };
        let mut with = copied.value;
        for i in (0..bytes).filter(|i| of(*i) && when.is_as_new_as(&copied.when(*i))) {
            with[i] = value[i];
        }
        with
    }

    /// Rank 0 has had that there, then, as far as nothing newer is known of.
    pub fn learn(
        &mut self,
        place: usize,
        bytes: usize,
        value: &Value,
        when: When,
        of: impl Fn(usize) -> bool,
    ) {
        let Some(copied) = self.0.get_mut(&(place, bytes)) else { return };
        let newer: [bool; MOST] =
            core::array::from_fn(|i| i < bytes && of(i) && when.is_as_new_as(&copied.when(i)));
        copied.take(bytes, value, when, |i| newer[i]);
        self.spread((place, bytes));
    }

    /// There is no copy any more: `value`, upon which all agreed last, is there.
    pub fn forget(&mut self, place: usize, bytes: usize, value: Value) {
        self.0.insert((place, bytes), Copied::new(value));
        self.spread((place, bytes));
        self.0.remove(&(place, bytes));
    }

    /// Of places that begin in `range` nothing is copied any more, whatever is there.
    pub fn drop_within(&mut self, range: &core::ops::Range<usize>) {
        self.0.retain(|(place, _), _| !range.contains(place));
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
                self.count(stored.place, stored.bytes, stored.now);
                all.push(stored);
            }
        }
        all
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether anything was stored over copies in memory at `at` that has these `contents`.
    pub fn is_stored_over(&self, at: usize, contents: &[u8]) -> bool {
        self.within(&(at..at + contents.len()))
            .any(|(place, _)| self.store_over(place, at, contents).is_some())
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

    /// What was stored counts as what was copied, until it is known when rank 0 has it.
    fn count(&mut self, place: usize, bytes: usize, now: Value) {
        if let Some(copied) = self.0.get_mut(&(place, bytes)) {
            copied.value[..bytes].copy_from_slice(&now[..bytes]);
            self.spread((place, bytes));
        }
    }

    /// To the places that overlap.
    fn spread(&mut self, (place, bytes): Place) {
        let overlaps = |other: &Place| *other != (place, bytes) && other.0 + other.1 > place;
        let others: Vec<Place> =
            self.0.range(near(place, bytes)).map(|(other, _)| *other).filter(overlaps).collect();
        if others.is_empty() {
            return;
        }
        let Some(copied) = self.0.get(&(place, bytes)).cloned() else { return };
        for other in others {
            if let Some(left) = self.0.get_mut(&other) {
                hand_over(left, other, &copied, (place, bytes));
            }
        }
    }
}

/// What two places have in common.
fn hand_over(to: &mut Copied, (place, bytes): Place, from: &Copied, (other, width): Place) {
    for at in place.max(other)..(place + bytes).min(other + width) {
        to.put(at - place, from.value[at - other], from.when(at - other));
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

    fn put(copies: &mut Copies, place: usize, bytes: usize, with: Value, count: u64) {
        copies.begin(place, bytes, with);
        let when = When::Done(Stamp { known: 0, applied: 0, count });
        copies.learn(place, bytes, &with, when, |_| true);
    }

    fn value(bytes: &[u8]) -> Value {
        let mut value = [0; MOST];
        value[..bytes.len()].copy_from_slice(bytes);
        value
    }

    #[test]
    fn places_that_overlap_agree() {
        let mut copies = Copies::new();
        put(&mut copies, 100, 4, value(&[1, 2, 3, 4]), 1);
        assert_eq!(copies.known(96, 8, value(&[9; 8])), value(&[9, 9, 9, 9, 1, 2, 3, 4]));
        assert_eq!(copies.known(104, 4, value(&[9; 4])), value(&[9; 4]));
        put(&mut copies, 102, 8, value(&[5; 8]), 2);
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
            places.iter().for_each(|(place, bytes)| copies.begin(*place, *bytes, value(&[])));
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
        copies.begin(4, 4, value(&[]));
        copies.begin(6, 4, value(&[]));
        let mut memory = [0; 16];
        memory[5..9].copy_from_slice(&[1, 2, 3, 4]);
        let stored = copies.stored_over(0, &memory);
        let told: Vec<_> = stored.iter().map(|one| (one.place, one.known, one.now)).collect();
        let first = (4, value(&[]), value(&[0, 1, 2, 3]));
        assert_eq!(told, [first, (6, value(&[2, 3]), value(&[2, 3, 4]))]);
        // of a place that reaches into the next page, what is in this one
        copies.begin(14, 4, value(&[]));
        memory[15] = 9;
        let stored = copies.stored_over(0, &memory);
        assert_eq!((stored[0].place, stored[0].now), (14, value(&[0, 9])));
    }

    #[test]
    fn what_is_older_than_what_is_known_is_not_learnt() {
        let mut copies = Copies::new();
        let told = |position, by_0| When::Told { position, by_0 };
        let done = |known, applied, count| When::Done(Stamp { known, applied, count });
        copies.begin(8, 2, value(&[1, 1]));
        let mut learn = |with: u8, when, of: fn(usize) -> bool| {
            copies.learn(8, 2, &value(&[with, with]), when, of);
            let known = copies.known(8, 2, value(&[]));
            [known[0], known[1]]
        };
        let all = |_| true;
        assert_eq!(learn(2, told(3, true), all), [2, 2]);
        // done when rank 0 had said what is at 5 itself, and applied what others said up to 4
        assert_eq!(learn(3, done(5, 4, 7), all), [3, 3]);
        assert_eq!(learn(4, told(5, true), all), [3, 3], "rank 0 had said it before");
        assert_eq!(
            learn(5, told(5, false), |byte| byte == 1),
            [3, 5],
            "another rank, which rank 0 had not heard"
        );
        assert_eq!(learn(6, done(5, 4, 6), all), [3, 5], "an operation before, whose answer was late");
        assert_eq!(learn(7, done(5, 5, 8), all), [7, 7]);
        assert_eq!(learn(8, told(6, true), all), [8, 8]);
    }
}
