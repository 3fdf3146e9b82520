//! Who sends at the same time. Time is cut into slots, at nine lengths from 16 us to 1 s; in each slot the processes that
//! begin a message are counted, and the pairs (sender, receiver). Averages over the messages: how many senders and how many pairs are
//! active in the slot of a message? Two lengths say something: half the gap in which connections spend their time, for the senders (who takes
//! part in a step shows up, and the next step does not), and that gap itself, for the pairs (an all-to-all takes a while).

use std::collections::VecDeque;

/// Lengths of slots as powers of two in ns: 16 us to 1.07 s.
const SHIFTS: [u32; 9] = [14, 16, 18, 20, 22, 24, 26, 28, 30];
/// How far behind the newest an event may be, in ns; later ones are not counted.
const SLACK: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
struct Slot {
    messages: u64,
    pairs: u32,
    senders: u32,
    /// Messages by pair.
    entries: Vec<(u32, u32)>,
}

/// Sums over messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Concurrency {
    /// Messages counted.
    pub messages: f64,
    /// Pairs that were active in the slots of these messages.
    pub pairs: f64,
    /// Senders likewise.
    pub senders: f64,
}

impl Concurrency {
    /// Adds what a slot says of some messages.
    fn add(&mut self, messages: u64, slot: &Slot) {
        self.messages += messages as f64;
        self.pairs += messages as f64 * f64::from(slot.pairs);
        self.senders += messages as f64 * f64::from(slot.senders);
    }

    /// Adds another one.
    pub fn merge(&mut self, other: Concurrency) {
        self.messages += other.messages;
        self.pairs += other.pairs;
        self.senders += other.senders;
    }
}

#[derive(Debug, Default)]
struct Scale {
    shift: u32,
    first: u64,
    open: VecDeque<Slot>,
    spare: Vec<Vec<(u32, u32)>>,
    /// By pair: the slot it was active in last (plus one), and its entry there.
    pair_seen: Vec<(u64, u32)>,
    sender_seen: Vec<u64>,
    all: Concurrency,
    by_pair: Vec<Concurrency>,
}

impl Scale {
    fn message(&mut self, pair: usize, sender: usize, at: u64) {
        let slot = at >> self.shift;
        let slack = (SLACK >> self.shift) + 1;
        if self.open.is_empty() {
            self.first = slot.saturating_sub(slack);
        }
        if slot < self.first {
            return;
        }
        while slot - self.first > 2 * slack && !self.open.is_empty() {
            self.flush();
        }
        if self.open.is_empty() {
            self.first = slot.saturating_sub(slack);
        }
        let index = (slot - self.first) as usize;
        if index >= self.open.len() {
            self.open.resize_with(index + 1, Slot::default);
        }
        if pair >= self.pair_seen.len() {
            self.pair_seen.resize(pair + 1, (0, 0));
            self.by_pair.resize(pair + 1, Concurrency::default());
        }
        if sender >= self.sender_seen.len() {
            self.sender_seen.resize(sender + 1, 0);
        }
        let open = &mut self.open[index];
        open.messages += 1;
        let seen = &mut self.pair_seen[pair];
        if seen.0 == slot + 1 {
            open.entries[seen.1 as usize].1 += 1;
        } else {
            if open.entries.capacity() == 0 {
                open.entries = self.spare.pop().unwrap_or_default();
            }
            *seen = (slot + 1, open.entries.len() as u32);
            open.entries.push((pair as u32, 1));
            open.pairs += 1;
        }
        if self.sender_seen[sender] != slot + 1 {
            self.sender_seen[sender] = slot + 1;
            open.senders += 1;
        }
    }

    /// Counts the oldest slot.
    fn flush(&mut self) {
        let Some(mut slot) = self.open.pop_front() else { return };
        self.first += 1;
        if slot.messages == 0 {
            return;
        }
        self.all.add(slot.messages, &slot);
        let mut entries = std::mem::take(&mut slot.entries);
        for &(pair, messages) in &entries {
            self.by_pair[pair as usize].add(u64::from(messages), &slot);
        }
        entries.clear();
        self.spare.push(entries);
    }
}

/// Watches all messages.
#[derive(Debug)]
pub(super) struct Synchrony {
    scales: Vec<Scale>,
}

impl Default for Synchrony {
    fn default() -> Self {
        Synchrony { scales: SHIFTS.map(|shift| Scale { shift, ..Scale::default() }).into() }
    }
}

impl Synchrony {
    /// A message of a pair begins.
    pub fn message(&mut self, pair: usize, sender: usize, at: u64) {
        // the first bits of a clock that counts since the start of the machine are never used; of hostile times they are dropped
        let at = at & (u64::MAX >> 1);
        self.scales.iter_mut().for_each(|scale| scale.message(pair, sender, at));
    }

    /// No more messages: what was seen with slots of about half of `gap` ns and of all of it: their lengths, the whole, and by pair. Senders are
    /// those of the shorter slots, pairs those of the longer ones.
    pub fn finish(mut self, gap: u64) -> ((u64, u64), Concurrency, Vec<Concurrency>) {
        let best = |gap: u64| SHIFTS.iter().rposition(|&shift| 1u64 << shift <= gap).unwrap_or(0);
        let (short, long) = (best(gap / 2), best(gap));
        for scale in [short, long] {
            while !self.scales[scale].open.is_empty() {
                self.scales[scale].flush();
            }
        }
        let join = |short: &Concurrency, long: &Concurrency| Concurrency {
            messages: long.messages,
            pairs: long.pairs,
            // late messages are left out of short slots sooner
            senders: short.senders * long.messages / short.messages.max(1.0),
        };
        let (a, b) = (&self.scales[short], &self.scales[long]);
        let none = Concurrency::default();
        let each = |pair: usize| join(a.by_pair.get(pair).unwrap_or(&none), &b.by_pair[pair]);
        let by_pair = (0..b.by_pair.len()).map(each).collect();
        ((1 << a.shift, 1 << b.shift), join(&a.all, &b.all), by_pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_at_once_and_one_after_the_other() {
        let mut together = Synchrony::default();
        let mut apart = Synchrony::default();
        for step in 0..10u64 {
            for pair in 0..12usize {
                together.message(pair, pair / 3, step * 100_000_000 + pair as u64);
                apart.message(pair, pair / 3, step * 100_000_000 + pair as u64 * 8_300_000);
            }
        }
        let (slot, all, pairs) = together.finish(10_000_000);
        assert_eq!(slot, (1 << 22, 1 << 22));
        assert_eq!(all, Concurrency { messages: 120.0, pairs: 1440.0, senders: 480.0 });
        assert_eq!(pairs[7], Concurrency { messages: 10.0, pairs: 120.0, senders: 40.0 });
        let (_, all, _) = apart.finish(5_000_000);
        assert_eq!((all.pairs / all.messages, all.senders / all.messages), (1.0, 1.0));
    }

    #[test]
    fn late_ones_are_left_out_and_jumps_cost_nothing() {
        let mut synchrony = Synchrony::default();
        synchrony.message(0, 0, 1 << 60);
        synchrony.message(1, 1, 0);
        synchrony.message(2, 2, u64::MAX);
        assert_eq!(synchrony.finish(0).1.messages, 2.0);
    }
}
