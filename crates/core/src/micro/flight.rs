//! Datagrams that were sent and of which it is not known what became of them, or not for long.

use super::delivery::Mark;
use super::{Segment, Time};
use alloc::collections::VecDeque;

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is on its way, as far as is known.
    Flying,
    /// It counts as lost.
    Lost,
    /// It came, or nobody waits for it to be acknowledged.
    Settled,
}

/// A datagram that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Its number.
    pub number: u64,
    /// When.
    pub at: Time,
    /// Bytes of it, with the headers of this protocol and without those below.
    pub size: u32,
    /// The part of the stream that it carries.
    pub segment: Segment,
    /// It asked whether the path takes datagrams of its size: that it is lost says nothing of congestion.
    pub probes_path: bool,
    /// What became of it.
    pub fate: Fate,
    /// What had been delivered when it left.
    pub mark: Mark,
}

impl Sent {
    /// What it counts for among what is on its way: what asks for the path's size takes nothing from the window.
    fn weight(&self) -> u64 {
        if self.probes_path { 0 } else { u64::from(self.size) }
    }
}

/// All of them, by number.
#[derive(Debug, Default)]
pub struct Flight {
    /// In the order of their numbers, which follow each other.
    sent: VecDeque<Sent>,
    /// The number of the next.
    next: u64,
    /// The oldest that is flying; the next, if there is none.
    scan: u64,
    bytes: u64,
}

impl Flight {
    /// The number that the next one has.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Bytes that are on their way, without those that ask for the path's size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn first(&self) -> u64 {
        self.next - self.sent.len() as u64
    }

    /// Adds the next one.
    pub fn push(&mut self, sent: Sent) {
        debug_assert_eq!(sent.number, self.next);
        self.next += 1;
        if sent.fate == Fate::Flying {
            self.bytes += sent.weight();
        }
        // who only acknowledges is not answered: of that nothing is kept
        self.forget_settled();
        if sent.fate != Fate::Settled || !self.sent.is_empty() {
            self.sent.push_back(sent);
        }
        self.find_oldest();
    }

    /// Looks on for the oldest that is flying: each is looked at once.
    fn find_oldest(&mut self) {
        self.scan = self.scan.max(self.first());
        while self.get(self.scan).is_some_and(|sent| sent.fate != Fate::Flying) {
            self.scan += 1;
        }
    }

    fn forget_settled(&mut self) {
        while self.sent.front().is_some_and(|sent| sent.fate == Fate::Settled) {
            self.sent.pop_front();
        }
    }

    /// One of them, if it is remembered.
    pub fn get(&self, number: u64) -> Option<&Sent> {
        let at = number.checked_sub(self.first())?;
        self.sent.get(usize::try_from(at).ok()?)
    }

    /// The oldest that is on its way.
    pub fn oldest(&self) -> Option<&Sent> {
        self.get(self.scan)
    }

    /// The newest that is on its way.
    pub fn newest(&self) -> Option<&Sent> {
        self.sent.iter().rev().find(|sent| sent.fate == Fate::Flying)
    }

    /// Whether none is on its way but what asks for the path's size.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// One of these numbers, the lowest first, that has not been settled is now: what it was before.
    pub fn settle(&mut self, number: u64) -> Option<Sent> {
        let at = usize::try_from(number.checked_sub(self.first())?).ok()?;
        let sent = self.sent.get_mut(at)?;
        let before = *sent;
        if before.fate == Fate::Settled {
            return None;
        }
        sent.fate = Fate::Settled;
        if before.fate == Fate::Flying {
            self.bytes -= before.weight();
        }
        if number == self.scan {
            self.find_oldest();
        }
        Some(before)
    }

    /// The lowest number that may be remembered and unsettled.
    pub fn floor(&self) -> u64 {
        self.first()
    }

    /// Gives those on their way to `lost`, from the oldest on, until it says that one is not; they count as lost.
    pub fn lose_while(&mut self, mut is_lost: impl FnMut(&Sent) -> bool, mut lost: impl FnMut(Sent)) {
        let first = self.first();
        let mut at = self.scan.saturating_sub(first) as usize;
        while let Some(sent) = self.sent.get_mut(at) {
            if sent.fate == Fate::Flying {
                if !is_lost(sent) {
                    break;
                }
                sent.fate = Fate::Lost;
                self.bytes -= sent.weight();
                lost(*sent);
            }
            at += 1;
        }
        self.scan = first + at as u64;
    }

    /// Forgets what is settled, and what counts as lost and left before this time.
    pub fn forget_before(&mut self, at: Time) {
        while let Some(sent) = self.sent.front() {
            match sent.fate {
                Fate::Settled => {}
                Fate::Lost if sent.at < at => {}
                _ => break,
            }
            self.sent.pop_front();
        }
        self.find_oldest();
    }

    /// How many are remembered.
    pub fn remembered(&self) -> usize {
        self.sent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// The oldest is known without a search, whatever became of which.
        #[test]
        fn the_oldest_is_the_first_that_flies(steps in proptest::collection::vec((0_u8..5, 0_u64..40), 0..200)) {
            let mut flight = Flight::default();
            for (now, (what, which)) in steps.into_iter().enumerate() {
                let now = now as u64;
                match what {
                    0 | 1 => {
                        let fate = if what == 0 { Fate::Flying } else { Fate::Settled };
                        let number = flight.next();
                        let sent = Sent { number, at: now, size: 1, segment: Segment::default(), probes_path: false, fate, mark: Mark::default() };
                        flight.push(sent);
                    }
                    2 | 3 => {
                        flight.settle(flight.floor() + which);
                    }
                    _ => {
                        let until = flight.floor() + which;
                        flight.lose_while(|sent| sent.number < until, |_| {});
                        flight.forget_before(now.saturating_sub(20));
                    }
                }
                let flying: Vec<u64> =
                    flight.sent.iter().filter(|sent| sent.fate == Fate::Flying).map(|sent| sent.number).collect();
                prop_assert_eq!(flight.oldest().map(|sent| sent.number), flying.first().copied());
                prop_assert_eq!(flight.newest().map(|sent| sent.number), flying.last().copied());
                prop_assert_eq!(flight.bytes(), flying.len() as u64);
            }
        }
    }
}
