//! Carries words, in order and each once, over datagrams that may be lost, doubled and overtaken.
//!
//! Words have numbers, modulo 65536. At most [`WINDOW`] are under way; an acknowledgement says which number is wanted next, and
//! so confirms all before it. What is not confirmed in time is sent again, all of it, after pauses that double. When nothing was
//! confirmed for too many tries, or too long, the courier fails, for good: a control channel that fails means that nothing
//! changes any more, not that data stops.

use super::Time;
use super::word::MAX_WORD;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

/// So many words are under way at most, in each direction.
pub const WINDOW: usize = 16;
/// So many words wait at most, those under way among them.
pub const BACKLOG: usize = 4 * WINDOW;
/// Pauses double so often at most.
const MAX_DOUBLINGS: u32 = 6;

/// When a courier gives up.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// So often words are sent in vain, at most.
    pub tries: u32,
    /// So long after the first try of a word nothing was confirmed, in nanoseconds.
    pub time: Time,
}

impl Default for Patience {
    fn default() -> Self {
        Self { tries: 30, time: 30_000_000_000 }
    }
}

/// Why a word is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// [`BACKLOG`] words wait: the peer confirms nothing, and the courier fails.
    Full,
    /// It has more than [`MAX_WORD`] bytes.
    Long,
    /// The courier has failed.
    Failed,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "too many control words wait for the peer to confirm them",
            Self::Long => "a control word is too long",
            Self::Failed => "the control channel has failed: nothing changes any more, data goes on",
        })
    }
}

impl core::error::Error for Refused {}

/// Both directions of one side's control channel.
#[derive(Debug)]
pub struct Courier {
    patience: Patience,
    rto: Time,
    /// Words that are not confirmed; the first has number `first`.
    words: VecDeque<Vec<u8>>,
    first: u16,
    /// So many of them have been sent in this round, and so many ever.
    sent: usize,
    ever: usize,
    /// Rounds since something was confirmed.
    tries: u32,
    /// When the first of the words was first sent, or became the first.
    since: Option<Time>,
    timer: Option<Time>,
    failed: bool,
    /// The number that is to arrive next, and what came ahead of it: the word with that number is the first.
    wanted: u16,
    ahead: [Option<Vec<u8>>; WINDOW],
    arrived: VecDeque<Vec<u8>>,
    confirm: bool,
}

impl Courier {
    /// Nothing said and nothing heard. `rto`: how long a confirmation may take, in nanoseconds.
    pub fn new(patience: Patience, rto: Time) -> Self {
        Self {
            patience,
            rto: rto.max(1),
            words: VecDeque::new(),
            first: 0,
            sent: 0,
            ever: 0,
            tries: 0,
            since: None,
            timer: None,
            failed: false,
            wanted: 0,
            ahead: [const { None }; WINDOW],
            arrived: VecDeque::new(),
            confirm: false,
        }
    }

    /// It has given up.
    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Whether all words are confirmed.
    pub fn is_idle(&self) -> bool {
        self.words.is_empty()
    }

    /// A new measurement of how long a confirmation may take, in nanoseconds.
    pub fn handle_rto(&mut self, rto: Time) {
        self.rto = rto.max(1);
    }

    /// Takes a word for the peer. Where that is refused a change cannot go on: [`Courier::has_failed`].
    pub fn say(&mut self, word: Vec<u8>) -> Result<(), Refused> {
        if self.failed {
            return Err(Refused::Failed);
        }
        if word.len() > MAX_WORD {
            return Err(Refused::Long);
        }
        if self.words.len() >= BACKLOG {
            self.close();
            return Err(Refused::Full);
        }
        self.words.push_back(word);
        Ok(())
    }

    /// The next word to send now, with its number.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(u16, &[u8])> {
        if self.failed || self.sent >= self.words.len().min(WINDOW) {
            return None;
        }
        let at = self.sent;
        self.sent += 1;
        self.ever = self.ever.max(self.sent);
        self.since.get_or_insert(now);
        let pause = self.rto.saturating_mul(1 << self.tries.min(MAX_DOUBLINGS));
        self.timer.get_or_insert(now.saturating_add(pause));
        Some((self.first.wrapping_add(at as u16), &self.words[at]))
    }

    /// The peer wants this number next. What was never said, or was confirmed before, changes nothing.
    pub fn handle_ack(&mut self, now: Time, next: u16) {
        let count = usize::from(next.wrapping_sub(self.first));
        if count == 0 || count > self.ever || self.failed {
            return;
        }
        self.words.drain(..count);
        self.first = next;
        self.ever -= count;
        self.sent = self.sent.saturating_sub(count);
        self.tries = 0;
        let waits = self.ever > 0;
        self.since = waits.then_some(now);
        self.timer = waits.then_some(now.saturating_add(self.rto));
    }

    /// When [`Courier::handle_timeout`] wants to be called.
    pub const fn due(&self) -> Option<Time> {
        self.timer
    }

    /// Time has passed: what was not confirmed is sent again, or the courier gives up.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.timer.is_none_or(|timer| timer > now) {
            return;
        }
        self.timer = None;
        self.tries += 1;
        self.sent = 0;
        let late = self.since.is_some_and(|since| now.saturating_sub(since) >= self.patience.time);
        if late || self.tries >= self.patience.tries {
            self.close();
        }
    }

    /// Gives up, whatever the patience.
    pub fn close(&mut self) {
        self.failed = true;
        self.confirm = false;
        self.timer = None;
        self.words.clear();
    }

    /// A word of the peer's arrived. Words come out of [`Courier::poll_word`], in order. A courier that has failed is deaf, too: the
    /// peer must not take for said what will not be answered, and fails in its turn.
    pub fn handle_word(&mut self, number: u16, word: &[u8]) {
        if self.failed || word.len() > MAX_WORD {
            return;
        }
        let at = usize::from(number.wrapping_sub(self.wanted));
        // an old one is confirmed again: the confirmation before was lost
        self.confirm = true;
        if at >= WINDOW - self.arrived.len().min(WINDOW) {
            return;
        }
        self.ahead[at].get_or_insert_with(|| word.to_vec());
        while let Some(word) = self.ahead[0].take() {
            self.arrived.push_back(word);
            self.wanted = self.wanted.wrapping_add(1);
            self.ahead.rotate_left(1);
        }
    }

    /// The peer's next word.
    pub fn poll_word(&mut self) -> Option<Vec<u8>> {
        self.arrived.pop_front()
    }

    /// What to confirm to the peer now: the number that is wanted next.
    pub fn poll_ack(&mut self) -> Option<u16> {
        core::mem::take(&mut self.confirm).then_some(self.wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const MS: Time = 1_000_000;

    fn courier() -> Courier {
        Courier::new(Patience { tries: 4, time: 1000 * MS }, MS)
    }

    fn sent(courier: &mut Courier, now: Time) -> Vec<u16> {
        core::iter::from_fn(|| courier.poll_transmit(now).map(|(number, _)| number)).collect()
    }

    #[test]
    fn words_come_in_order_and_once() {
        let mut courier = courier();
        for number in [1, 0, 1, 0, 2, 40, u16::MAX] {
            courier.handle_word(number, &[number as u8]);
        }
        let words: Vec<_> = core::iter::from_fn(|| courier.poll_word()).collect();
        assert_eq!(words, [vec![0], vec![1], vec![2]]);
        assert_eq!((courier.poll_ack(), courier.poll_ack()), (Some(3), None));
    }

    #[test]
    fn what_is_not_confirmed_is_sent_again_after_pauses_that_double() {
        let mut courier = courier();
        (0..20).for_each(|n| courier.say(vec![n]).unwrap());
        assert_eq!(sent(&mut courier, 0), (0..16).collect::<Vec<_>>());
        courier.handle_ack(0, 30);
        courier.handle_ack(0, 2);
        assert_eq!(sent(&mut courier, 0), [16, 17]);
        courier.handle_timeout(MS);
        assert_eq!(sent(&mut courier, MS), (2..18).collect::<Vec<_>>());
        assert_eq!(courier.due(), Some(3 * MS));
        courier.handle_timeout(3 * MS);
        courier.handle_ack(3 * MS, 17);
        assert_eq!(sent(&mut courier, 3 * MS), [17, 18, 19]);
    }

    #[test]
    fn it_gives_up_after_so_many_tries_and_takes_no_more() {
        let mut courier = courier();
        courier.say(vec![0]).unwrap();
        let mut now = 0;
        let mut rounds = 0;
        while !courier.has_failed() {
            rounds += sent(&mut courier, now).len();
            now = courier.due().unwrap();
            courier.handle_timeout(now);
        }
        assert_eq!((rounds, courier.due(), courier.say(vec![1])), (4, None, Err(Refused::Failed)));
    }

    #[test]
    fn numbers_wrap_and_nothing_grows() {
        let (mut a, mut b) = (courier(), courier());
        for n in 0..70_000_u32 {
            a.say(n.to_le_bytes().to_vec()).unwrap();
            let (number, word) = a.poll_transmit(0).unwrap();
            b.handle_word(number, word);
            assert_eq!(b.poll_word().unwrap(), n.to_le_bytes());
            a.handle_ack(0, b.poll_ack().unwrap());
        }
        (0..BACKLOG).for_each(|_| a.say(vec![]).unwrap());
        let refused = [a.say(vec![0; 69]), a.say(vec![]), a.say(vec![])];
        assert_eq!(refused, [Err(Refused::Long), Err(Refused::Full), Err(Refused::Failed)]);
        (0..u16::MAX).for_each(|number| b.handle_word(number, &[]));
        assert!(b.arrived.len() <= WINDOW);
    }
}
