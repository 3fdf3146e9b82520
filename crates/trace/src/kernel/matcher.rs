//! Whose an event is. Events are the whole machine's; a few are told with the socket's cookie (`tcp_probe`), all with the
//! address of the socket in the kernel, most with both ends' addresses. What ties them together is remembered here.
//!
//! An event can come before anybody said that its socket is traced: it is held for [`HOLD`] nanoseconds, at most
//! [`HELD`] of them, and released in its place if the word comes.

use std::collections::{HashMap, HashSet, VecDeque};

use super::record::KernelRecord;
use super::state::{CLOSE, ESTABLISHED, SYN_RECV, SYN_SENT};
use super::tcp::{Pair, Raw};
use crate::diag::{Wanted, canonical};
use crate::model::KernelEventKind as What;

/// How long an event of an unknown socket is held, in nanoseconds.
pub const HOLD: u64 = 100_000_000;
/// How many are, at most.
pub const HELD: usize = 16_384;
/// Sockets of the machine that are remembered.
const SOCKETS: usize = 65_536;
/// The congestion state that a retransmission timeout brings about.
const LOSS: u8 = 4;

/// What sequence numbers are counted from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Base {
    /// The beginning was not seen: the kernel's own numbers.
    #[default]
    Unseen,
    /// The connection has just come to be. `tcp_probe` tells the state before the segment is looked at, so the first one's
    /// first unacknowledged byte is the first byte that is ever sent.
    First,
    At(u32),
}

#[derive(Clone, Copy, Debug, Default)]
struct Sock {
    /// Tells it from others that the kernel had at the same address before.
    life: u64,
    cookie: u64,
    base: Base,
    congestion: u8,
    closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    sk: u64,
    life: u64,
    pair: Option<Pair>,
    record: KernelRecord,
}

/// How many events became of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Handed out.
    pub kept: u64,
    /// Of sockets that nobody said are traced.
    pub others: u64,
    /// Of `others`, those that could not be held for the whole time, because there were too many.
    pub crowded_out: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Matcher {
    wanted: HashMap<u64, Pair>,
    /// Cookies of the wanted sockets with these addresses: several where network namespaces use the same ones.
    pairs: HashMap<Pair, HashSet<u64>>,
    socks: HashMap<u64, Sock>,
    lives: u64,
    held: VecDeque<Held>,
    /// How many of `held` were looked at before, to no avail.
    looked_at: usize,
    counts: Counts,
}

impl Matcher {
    /// From now on, and for as long as events are held backwards.
    pub fn want(&mut self, wanted: &Wanted) {
        let pair = (canonical(wanted.local), canonical(wanted.remote));
        if let Some(before) = self.wanted.insert(wanted.cookie, pair).filter(|before| *before != pair) {
            unpair(&mut self.pairs, wanted.cookie, &before);
        }
        if self.pairs.entry(pair).or_default().insert(wanted.cookie) {
            self.looked_at = 0;
        }
    }

    /// Its events are of no interest any more: those after the ones that were read.
    pub fn forget(&mut self, cookie: u64) {
        if let Some(pair) = self.wanted.remove(&cookie) {
            unpair(&mut self.pairs, cookie, &pair);
        }
    }

    /// Whether its events are handed out.
    pub fn wants(&self, cookie: u64) -> bool {
        self.wanted.contains_key(&cookie)
    }

    /// What became of events.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The kernel lost events: a connection whose first one was yet to come may have had it.
    pub fn missed(&mut self) {
        for sock in self.socks.values_mut().filter(|sock| sock.base == Base::First) {
            sock.base = Base::Unseen;
        }
    }

    /// The next event, in the order of time.
    pub fn handle(&mut self, raw: Raw) {
        let Raw { at, sk, pair, mut what, mut cookie } = raw;
        let mut life = 0;
        if sk != 0 {
            self.make_room();
            let lives = &mut self.lives;
            let mut new = || {
                *lives += 1;
                Sock { life: *lives, ..Sock::default() }
            };
            let sock = self.socks.entry(sk).or_insert_with(&mut new);
            // The kernel uses its memory again.
            let another = cookie != 0 && sock.cookie != 0 && sock.cookie != cookie;
            if another || sock.closed || matches!(what, What::State { new: SYN_SENT | SYN_RECV, .. }) {
                *sock = new();
            }
            if cookie != 0 && sock.cookie == 0 {
                sock.cookie = cookie;
                if self.wanted.contains_key(&cookie) {
                    self.looked_at = 0;
                }
            }
            sock.see(&mut what);
            if sock.closed {
                if sock.cookie == 0 {
                    self.looked_at = 0;
                    sock.cookie = pair.and_then(|pair| only(&self.pairs, &pair)).unwrap_or(0);
                }
                // The next socket with these addresses is another one.
                if let (Some(pair), of) = (pair, sock.cookie) {
                    unpair(&mut self.pairs, of, &pair);
                }
            }
            (cookie, life) = (sock.cookie, sock.life);
        }
        if self.held.len() == HELD {
            self.drop_first();
            self.counts.crowded_out += 1;
        }
        self.held.push_back(Held { sk, life, pair, record: KernelRecord { at, cookie, what } });
    }

    fn make_room(&mut self) {
        if self.socks.len() >= SOCKETS {
            let wanted = &self.wanted;
            self.socks.retain(|_, sock| wanted.contains_key(&sock.cookie));
            if self.socks.len() >= SOCKETS {
                self.socks.clear();
            }
        }
    }

    fn drop_first(&mut self) {
        self.held.pop_front();
        self.looked_at = self.looked_at.saturating_sub(1);
        self.counts.others += 1;
    }

    /// Hands out the wanted sockets' events among those that were handled, and drops what was held for long enough; `now` is
    /// the time of the newest events that can have been handled.
    pub fn release(&mut self, now: u64, each: &mut dyn FnMut(KernelRecord)) {
        let mut at = self.looked_at;
        let mut kept = at;
        while let Some(&held) = self.held.get(at) {
            if let Some(cookie) = self.whose(&held) {
                // What has just been tied together may be what earlier events waited for.
                if self.tie(&held, cookie) && kept > 0 {
                    self.held.drain(kept..at);
                    (at, kept) = (0, 0);
                    continue;
                }
                self.counts.kept += 1;
                each(KernelRecord { cookie, ..held.record });
            } else {
                self.held[kept] = held;
                kept += 1;
            }
            at += 1;
        }
        self.held.truncate(kept);
        self.looked_at = kept;
        while self.held.front().is_some_and(|held| held.record.at.saturating_add(HOLD) < now) {
            self.drop_first();
        }
    }

    /// The cookie of the wanted socket that this is about.
    fn whose(&self, held: &Held) -> Option<u64> {
        let mut cookie = held.record.cookie;
        if cookie == 0 && held.sk != 0 {
            // What ended before somebody asked for its addresses may be another socket that had them.
            let sock = self.socks.get(&held.sk).filter(|sock| sock.life == held.life)?;
            cookie = sock.cookie;
            if cookie == 0 && sock.closed {
                return None;
            }
        }
        match cookie {
            0 => only(&self.pairs, &held.pair?),
            cookie => Some(cookie).filter(|cookie| self.wanted.contains_key(cookie)),
        }
    }

    /// Remembers whose socket it is, and says whether that is news.
    fn tie(&mut self, held: &Held, cookie: u64) -> bool {
        if held.record.cookie != 0 {
            return false;
        }
        match self.socks.get_mut(&held.sk) {
            Some(sock) if sock.life == held.life && sock.cookie == 0 => {
                sock.cookie = cookie;
                true
            }
            _ => false,
        }
    }
}

/// Of several sockets with the same addresses nobody knows which.
fn only(pairs: &HashMap<Pair, HashSet<u64>>, pair: &Pair) -> Option<u64> {
    let cookies = pairs.get(pair)?;
    cookies.iter().next().copied().filter(|_| cookies.len() == 1)
}

fn unpair(pairs: &mut HashMap<Pair, HashSet<u64>>, cookie: u64, pair: &Pair) {
    if let Some(cookies) = pairs.get_mut(pair) {
        cookies.remove(&cookie);
        if cookies.is_empty() {
            pairs.remove(pair);
        }
    }
}

impl Sock {
    /// Learns from an event, and completes it.
    fn see(&mut self, what: &mut What) {
        match what {
            What::State { new: ESTABLISHED, old: SYN_SENT | SYN_RECV } => self.base = Base::First,
            What::State { new, .. } => self.closed = *new == CLOSE,
            What::Congestion { state } => self.congestion = *state,
            What::Retransmit { timeout } => *timeout = self.congestion == LOSS,
            What::Probe { snd_nxt, snd_una, .. } => {
                if self.base == Base::First {
                    self.base = Base::At(*snd_una);
                }
                if let Base::At(base) = self.base {
                    (*snd_nxt, *snd_una) = (snd_nxt.wrapping_sub(base), snd_una.wrapping_sub(base));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(n: u16) -> Pair {
        let end = |port| std::net::SocketAddr::new([10, 0, 0, 1].into(), port);
        (end(n), end(5000))
    }

    fn wanted(cookie: u64, n: u16) -> Wanted {
        Wanted { cookie, local: pair(n).0, remote: pair(n).1 }
    }

    fn probe(snd_una: u32) -> What {
        What::Probe {
            length: 0,
            snd_nxt: snd_una.wrapping_add(10),
            snd_una,
            cwnd: 10,
            ssthresh: 1,
            snd_wnd: 1,
            rtt: 1,
        }
    }

    fn raw(at: u64, sk: u64, cookie: u64, pair: Option<Pair>, what: What) -> Raw {
        Raw { at, sk, cookie, pair, what }
    }

    fn released(matcher: &mut Matcher, now: u64) -> Vec<(u64, u64, What)> {
        let mut out = Vec::new();
        matcher.release(now, &mut |record| out.push((record.at, record.cookie, record.what)));
        out
    }

    const STARTED: What = What::State { old: SYN_SENT, new: ESTABLISHED };
    const CLOSED: What = What::State { old: 4, new: CLOSE };

    #[test]
    fn a_connection_from_its_first_event_to_its_last_is_told_in_order_once_it_is_wanted() {
        let mut matcher = Matcher::default();
        matcher.handle(raw(1, 0xa, 0, None, What::State { old: CLOSE, new: SYN_SENT }));
        matcher.handle(raw(2, 0xa, 0, Some(pair(1)), STARTED));
        matcher.handle(raw(3, 0xa, 77, Some(pair(1)), probe(u32::MAX)));
        matcher.handle(raw(4, 0xb, 78, Some(pair(2)), probe(5)));
        assert_eq!(released(&mut matcher, 10), []);
        matcher.want(&wanted(77, 1));
        let out = released(&mut matcher, 20);
        assert_eq!(out.iter().map(|o| (o.0, o.1)).collect::<Vec<_>>(), [(1, 77), (2, 77), (3, 77)]);
        assert_eq!(out[2].2, probe(0), "counted from the first byte");
        matcher.handle(raw(21, 0xa, 77, None, probe(99)));
        matcher.handle(raw(22, 0xa, 0, None, CLOSED));
        // the same memory, another socket
        matcher.handle(raw(23, 0xa, 0, None, What::State { old: CLOSE, new: SYN_SENT }));
        let out = released(&mut matcher, 30);
        assert_eq!(out, [(21, 77, probe(100)), (22, 77, CLOSED)]);
        assert_eq!(released(&mut matcher, HOLD * 2), []);
        assert_eq!(matcher.counts(), Counts { kept: 5, others: 2, crowded_out: 0 });
    }

    #[test]
    fn without_a_cookie_the_addresses_decide_unless_two_sockets_have_them() {
        let mut matcher = Matcher::default();
        matcher.want(&wanted(1, 1));
        matcher.handle(raw(1, 0xa, 0, None, What::State { old: CLOSE, new: SYN_SENT }));
        matcher.handle(raw(2, 0xa, 0, Some(pair(1)), STARTED));
        matcher.handle(raw(3, 0xa, 0, None, What::Congestion { state: 1 }));
        let times: Vec<u64> = released(&mut matcher, 4).iter().map(|o| o.0).collect();
        assert_eq!(times, [1, 2, 3], "also those before the addresses were known");
        matcher.want(&wanted(2, 1));
        matcher.handle(raw(5, 0xb, 0, Some(pair(1)), STARTED));
        assert_eq!(released(&mut matcher, 6), []);
        matcher.forget(1);
        assert_eq!(released(&mut matcher, 7).len(), 0, "looked at already");
        matcher.handle(raw(8, 0xb, 0, Some(pair(1)), What::Congestion { state: 0 }));
        assert_eq!(
            released(&mut matcher, 9).iter().map(|o| (o.0, o.1)).collect::<Vec<_>>(),
            [(5, 2), (8, 2)]
        );
    }

    #[test]
    fn what_is_sent_again_in_the_loss_state_is_so_by_the_timer() {
        let mut matcher = Matcher::default();
        matcher.want(&wanted(1, 1));
        let again = What::Retransmit { timeout: false };
        for (at, what) in
            [again, What::Congestion { state: LOSS }, again, What::Congestion { state: 0 }, again]
                .into_iter()
                .enumerate()
        {
            matcher.handle(raw(at as u64, 0xa, 0, Some(pair(1)), what));
        }
        let timeouts: Vec<bool> = released(&mut matcher, 9)
            .into_iter()
            .filter_map(|o| if let What::Retransmit { timeout } = o.2 { Some(timeout) } else { None })
            .collect();
        assert_eq!(timeouts, [false, true, false]);
    }

    #[test]
    fn numbers_are_the_kernels_where_the_first_probe_may_have_been_lost() {
        let mut matcher = Matcher::default();
        matcher.want(&wanted(1, 1));
        matcher.handle(raw(1, 0xa, 0, Some(pair(1)), STARTED));
        matcher.missed();
        matcher.handle(raw(2, 0xa, 1, Some(pair(1)), probe(1000)));
        assert_eq!(released(&mut matcher, 3)[1].2, probe(1000));
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut matcher = Matcher::default();
        for at in 0..HELD as u64 + 10 {
            matcher.handle(raw(at, at + 1, at + 1, None, probe(0)));
        }
        assert_eq!(matcher.counts(), Counts { kept: 0, others: 10, crowded_out: 10 });
        matcher.want(&wanted(HELD as u64, 1));
        assert_eq!(released(&mut matcher, 0).len(), 1);
        for at in 0..2 * SOCKETS as u64 {
            matcher.handle(raw(at, at + 1, 0, None, probe(0)));
        }
        assert!(matcher.socks.len() <= SOCKETS);
    }

    proptest! {
        /// Four places in the kernel's memory, with one connection after the other between the same addresses: each event that
        /// is handed out is given to the right one, of a wanted one, once, and in the order of time.
        #[test]
        fn no_event_is_given_to_another_socket_or_out_of_order(
            steps in proptest::collection::vec((0u64..4, any::<bool>(), 0usize..10), 0..300),
        ) {
            let mut matcher = Matcher::default();
            let (mut lives, mut truth, mut last) = ([1; 4], HashMap::new(), HashMap::new());
            for (at, (sk, told, step)) in (1u64..).zip(steps) {
                let (place, cookie) = (sk as usize, sk * 1000 + lives[sk as usize]);
                let known = told.then(|| pair(sk as u16));
                let (what, known, cookie_told) = match step {
                    0 | 1 => (probe(1), known, cookie),
                    2 => (STARTED, known, 0),
                    3 => (What::Retransmit { timeout: false }, known, 0),
                    4 => (CLOSED, Some(pair(sk as u16)), 0),
                    5 => (What::State { old: CLOSE, new: SYN_SENT }, None, 0),
                    6 | 7 => {
                        matcher.want(&wanted(cookie, sk as u16));
                        continue;
                    }
                    8 => {
                        matcher.forget(cookie);
                        continue;
                    }
                    _ => {
                        let mut handed = Vec::new();
                        matcher.release(at, &mut |record| handed.push(record));
                        for record in handed {
                            prop_assert_eq!(truth.remove(&record.at), Some(record.cookie), "at {}", record.at);
                            prop_assert!(matcher.wants(record.cookie));
                            prop_assert!(last.insert(record.cookie, record.at) < Some(record.at));
                        }
                        continue;
                    }
                };
                matcher.handle(raw(at, sk + 1, cookie_told, known, what));
                truth.insert(at, cookie);
                if step == 4 { lives[place] += 1 }
            }
        }
    }
}
