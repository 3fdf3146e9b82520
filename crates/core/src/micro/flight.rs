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
    /// None below this one is flying.
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
        self.scan = self.scan.max(self.first());
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
        let from = self.scan.saturating_sub(self.first()) as usize;
        self.sent.range(from.min(self.sent.len())..).find(|sent| sent.fate == Fate::Flying)
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
        self.scan = self.scan.max(self.first());
    }

    /// How many are remembered.
    pub fn remembered(&self) -> usize {
        self.sent.len()
    }
}
