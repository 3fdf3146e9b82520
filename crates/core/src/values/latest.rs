//! The receiving side of a tag: its newest whole value, and what has come of newer ones.

use super::repair::restore;
use super::{Time, refill};
use crate::ranges::Ranges;
use crate::wire::datagram::{Part, Value};
use crate::wire::repair::Code;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// So many values of a tag may have come in part: the one that is being finished, and the next, which may overtake its end.
const PARTIAL: usize = 2;
/// What a repair takes besides its bytes.
const BESIDE: usize = 64;

#[derive(Debug)]
struct Partial {
    iteration: u64,
    bytes: Vec<u8>,
    had: Ranges,
    /// By which code repairs of it came, and these.
    code: Option<Code>,
    repairs: BTreeMap<u16, Vec<u8>>,
}

impl Partial {
    fn new(iteration: u64, len: usize) -> Self {
        let (had, repairs) = (Ranges::default(), BTreeMap::new());
        Self { iteration, bytes: vec![0; len], had, code: None, repairs }
    }

    /// Bytes of its buffers.
    fn held(&self) -> usize {
        let repair = self.code.map_or(0, |code| code.size() + BESIDE);
        self.bytes.capacity() + self.repairs.len() * repair
    }

    fn is_whole(&self) -> bool {
        self.had.first().is_some_and(|first| *first == (0..self.bytes.len() as u64))
    }

    /// Whether a part of the code has come.
    fn has(&self, code: &Code, number: usize) -> bool {
        let place = code.place(number);
        self.had.gaps(place.start as u64..place.end as u64).next().is_none()
    }

    /// Some of its bytes came. Whether that may make it whole; None: they lie outside.
    fn take_bytes(&mut self, from: usize, bytes: &[u8]) -> Option<bool> {
        let to = from + bytes.len();
        self.bytes.get_mut(from..to)?.copy_from_slice(bytes);
        let news = self.had.add(from as u64..to as u64);
        let has_all = |code: Code| {
            let (first, last) = (from / code.size(), (to - 1) / code.size());
            (first..=last).any(|number| self.has(&code, number))
        };
        Some(news && (self.is_whole() || self.code.is_some_and(has_all)))
    }

    /// A repair came, and so many bytes more may be kept. Whether that may make it whole.
    fn take_repair(&mut self, number: u16, bytes: &[u8], room: usize) -> bool {
        let code = Code::of(self.bytes.len(), bytes.len());
        if self.code != code {
            // it is sent anew, otherwise cut
            (self.code, self.repairs) = (code, BTreeMap::new());
        }
        // with one for each part nothing is lacking
        let has_room = code.is_some_and(|code| self.repairs.len() < code.parts());
        if !has_room || bytes.len() + BESIDE > room || self.repairs.contains_key(&number) {
            return false;
        }
        self.repairs.insert(number, bytes.to_vec());
        true
    }

    /// Makes it whole, if as much has come as that takes.
    fn restore(&mut self) -> bool {
        let Some(code) = self.code.filter(|_| !self.repairs.is_empty()) else { return false };
        // the bytes of parts that have not come whole make no part
        let lacks = self.bytes.len() as u64 - self.had.count();
        if lacks > (self.repairs.len() * code.size()) as u64 {
            return false;
        }
        let had: Vec<bool> = (0..code.parts()).map(|number| self.has(&code, number)).collect();
        let came = had.iter().filter(|had| **had).count();
        if came + self.repairs.len() < code.parts() {
            return false;
        }
        let repairs = self.repairs.iter().map(|(number, repair)| (usize::from(*number), &repair[..]));
        restore(&code, &mut self.bytes, |number| had[number], repairs)
    }
}

/// A tag's.
#[derive(Debug, Default)]
pub(super) struct Latest {
    /// The newest whole value, and when it came.
    whole: Option<(u64, Time)>,
    pub bytes: Vec<u8>,
    /// The user has had it.
    pub taken: bool,
    /// In the order of their iterations.
    partial: Vec<Partial>,
}

/// What a part of a value came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Took {
    /// A value is whole.
    Whole,
    /// Not yet.
    Part,
    /// It is of no use any more, or there is no room for it.
    Dropped,
    /// It contradicts what came before.
    Broken,
}

impl Latest {
    /// The newest whole value's iteration, and when it came.
    pub fn newest(&self) -> Option<(u64, Time)> {
        self.whole
    }

    /// Bytes of its buffers.
    pub fn held(&self) -> usize {
        self.bytes.capacity() + self.partial.iter().map(Partial::held).sum::<usize>()
    }

    /// A part of a value came, and so many bytes more may be kept.
    pub fn take_in(&mut self, now: Time, value: &Value<'_>, room: usize) -> Took {
        if self.whole.is_some_and(|(newest, _)| value.iteration <= newest) {
            return Took::Dropped;
        }
        if value.part == Part::At(0) && value.bytes.len() == value.total as usize {
            return self.complete(now, value, room);
        }
        let before = self.held();
        let Some(at) = self.place(value, room) else { return Took::Dropped };
        let room = (room + before).saturating_sub(self.held());
        let one = &mut self.partial[at];
        if one.bytes.len() != value.total as usize {
            return Took::Broken;
        }
        let complete = match value.part {
            Part::At(offset) => match one.take_bytes(offset as usize, value.bytes) {
                Some(complete) => complete,
                None => return Took::Broken,
            },
            Part::Repair(number) => one.take_repair(number, value.bytes, room),
        };
        if !complete || !one.is_whole() && !one.restore() {
            return Took::Part;
        }
        let one = self.partial.remove(at);
        self.bytes = one.bytes;
        self.renew(now, value.iteration);
        Took::Whole
    }

    /// A value that came in one part.
    fn complete(&mut self, now: Time, value: &Value<'_>, room: usize) -> Took {
        if value.bytes.len() > self.bytes.capacity() + room {
            return Took::Dropped;
        }
        refill(&mut self.bytes, value.bytes);
        self.renew(now, value.iteration);
        Took::Whole
    }

    fn renew(&mut self, now: Time, iteration: u64) {
        (self.whole, self.taken) = (Some((iteration, now)), false);
        self.partial.retain(|one| one.iteration > iteration);
    }

    /// Where the parts of this value are put together; None: it is older than those for which there is room.
    fn place(&mut self, value: &Value<'_>, room: usize) -> Option<usize> {
        let at = self.partial.partition_point(|one| one.iteration < value.iteration);
        if self.partial.get(at).is_some_and(|one| one.iteration == value.iteration) {
            return Some(at);
        }
        if self.partial.len() >= PARTIAL && at == 0 {
            return None;
        }
        let full = self.partial.len() >= PARTIAL;
        let spare = if full { self.partial[0].held() } else { 0 };
        if value.total as usize > room + spare {
            return None;
        }
        if full {
            self.partial.remove(0);
        }
        let at = at - usize::from(full);
        self.partial.insert(at, Partial::new(value.iteration, value.total as usize));
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(iteration: u64, total: u32, offset: u32, bytes: &[u8]) -> Value<'_> {
        Value { tag: 1, iteration, total, part: Part::At(offset), bytes }
    }

    const ROOM: usize = 100;

    #[test]
    fn the_newest_whole_value_counts() {
        let mut latest = Latest::default();
        let mut take = |value: &Value<'_>| (latest.take_in(7, value, ROOM), latest.bytes.clone());
        assert_eq!(take(&part(3, 4, 0, b"ab")).0, Took::Part);
        assert_eq!(take(&part(5, 4, 2, b"gh")).0, Took::Part);
        assert_eq!(take(&part(3, 4, 2, b"cd")), (Took::Whole, b"abcd".to_vec()));
        assert_eq!(take(&part(3, 4, 2, b"cd")).0, Took::Dropped);
        assert_eq!(take(&part(4, 2, 0, b"xy")), (Took::Whole, b"xy".to_vec()));
        assert_eq!(take(&part(5, 4, 0, b"ef")), (Took::Whole, b"efgh".to_vec()));
        assert_eq!(take(&part(6, 0, 0, b"")), (Took::Whole, Vec::new()));
        assert_eq!(latest.newest(), Some((6, 7)));
    }

    #[test]
    fn parts_are_bounded_and_the_oldest_gives_way() {
        let mut latest = Latest::default();
        for iteration in 1..50 {
            latest.take_in(0, &part(iteration, 10, 0, b"a"), ROOM - latest.held());
            assert!(latest.held() <= 20 && latest.partial.len() <= 2);
        }
        assert_eq!(latest.take_in(0, &part(3, 10, 0, b"a"), ROOM), Took::Dropped);
        assert_eq!(latest.take_in(0, &part(60, 200, 0, b"a"), ROOM), Took::Dropped);
        assert_eq!(latest.take_in(0, &part(49, 11, 0, b"a"), ROOM), Took::Broken);
    }
}
