//! The asynchronous scheme: the newest value of each tag comes, never one behind it; nobody waits; messages beside values are what they
//! were.

use crate::over;
use crate::pair::{Pair, TIME, any_tag, iov, pattern, user};
use polyrail_core::frame::Matching;
use polyrail_core::micro::Composition;
use polyrail_core::proto::{Delivery, PeerIdx};
use polyrail_rails::list::RailId;
use polyrail_rails::rail::control::Control;
use polyrail_rails::worker::{PutError, Scheme, Taken};
use polyrail_rails::{Config, Issued, Worker};
use std::time::{Duration, Instant};

const LENS: [usize; 7] = [0, 8, 100, 4096, 40_000, 200_000, 1_100_001];

fn value(tag: u64, iteration: u64, len: usize) -> Vec<u8> {
    pattern(len, (tag * 1009 + iteration) as usize)
}

/// Who takes one tag from a peer, and sees that it never goes back.
struct Reader {
    tag: u64,
    len: usize,
    has: u64,
    news: u64,
}

impl Reader {
    fn new(tag: u64, len: usize) -> Self {
        Self { tag, len, has: 0, news: 0 }
    }

    fn look(&mut self, worker: &mut Worker, from: PeerIdx) {
        match worker.take_value(from, self.tag) {
            Taken::New { iteration, bytes, .. } => {
                assert!(iteration > self.has, "it went back from {} to {iteration}", self.has);
                assert!(bytes == value(self.tag, iteration, self.len), "iteration {iteration}");
                (self.has, self.news) = (iteration, self.news + 1);
            }
            Taken::Unchanged { iteration, .. } => assert_eq!(iteration, self.has),
            Taken::Nothing => assert_eq!(self.has, 0),
        }
    }
}

fn put(worker: &mut Worker, to: PeerIdx, tag: u64, iteration: u64, len: usize) {
    worker.put_value(to, tag, iteration, &value(tag, iteration, len)).expect("nothing is in the way");
}

fn until(p: &mut Pair, mut what: impl FnMut(&mut Pair) -> bool) {
    let start = Instant::now();
    while !what(p) {
        p.a.progress();
        p.b.progress();
        assert!(start.elapsed() < TIME, "{:?} {:?}", p.a.why(p.to_b), p.b.why(p.to_a));
    }
}

#[test]
fn the_newest_value_comes_and_none_behind_it() {
    over::all(|config| {
        let mut p = Pair::new(config);
        p.a.set_scheme(p.to_b, Scheme::Asynchronous);
        let mut readers: Vec<Reader> =
            LENS.into_iter().enumerate().map(|(tag, len)| Reader::new(tag as u64, len)).collect();
        let (last, mut iteration) = (20, 0);
        until(&mut p, |p| {
            if iteration < last {
                iteration += 1;
                readers.iter().for_each(|one| put(&mut p.a, p.to_b, one.tag, iteration, one.len));
            }
            readers.iter_mut().for_each(|one| one.look(&mut p.b, p.to_a));
            readers.iter().all(|one| one.has == last)
        });
        assert!(readers.iter().all(|one| one.news > 0 && one.news <= last));
    });
}

#[test]
fn who_puts_never_waits_for_who_does_not_look() {
    over::each(|config| {
        let mut p = Pair::new(config);
        p.a.set_scheme(p.to_b, Scheme::Asynchronous);
        let mut readers = [Reader::new(1, 8), Reader::new(2, 100_000)];
        readers.iter().for_each(|one| put(&mut p.a, p.to_b, one.tag, 1, one.len));
        until(&mut p, |p| {
            readers.iter_mut().for_each(|one| one.look(&mut p.b, p.to_a));
            readers.iter().all(|one| one.has == 1)
        });
        let (last, mut longest) = (3000, Duration::ZERO);
        for iteration in 2..=last {
            for one in &readers {
                let bytes = value(one.tag, iteration, one.len);
                let start = Instant::now();
                p.a.put_value(p.to_b, one.tag, iteration, &bytes).expect("it is taken");
                longest = longest.max(start.elapsed());
            }
            p.a.progress();
        }
        assert!(longest < TIME, "{longest:?}");
        // few of those that were put have left, so that the newest is not behind them
        let before = readers.iter().map(|one| one.news).sum::<u64>();
        until(&mut p, |p| {
            readers.iter_mut().for_each(|one| one.look(&mut p.b, p.to_a));
            readers.iter().all(|one| one.has == last)
        });
        let news = readers.iter().map(|one| one.news).sum::<u64>() - before;
        assert!(news <= last / 5, "{news} values came");
    });
}

#[test]
fn values_are_refused_where_the_scheme_is_synchronous() {
    let mut p = Pair::new(Config::default());
    assert_eq!(p.a.scheme(p.to_b), Scheme::Synchronous);
    assert_eq!(p.a.put_value(p.to_b, 1, 1, b"x"), Err(PutError::Synchronous));
    p.a.set_scheme(p.to_b, Scheme::Asynchronous);
    put(&mut p.a, p.to_b, 1, 5, 1);
    assert_eq!(p.a.put_value(p.to_b, 1, 5, b"x"), Err(PutError::Old));
    assert_eq!(p.b.take_value(p.to_a, 1), Taken::Nothing);
}

/// By UDP the link changes to an asynchronous composition, and back, while values and messages go by it.
#[test]
fn values_go_by_means_of_their_own_where_a_rail_has_any() {
    let plain = over::only(RailId::Udp).expect("it leads to others");
    for config in [plain.clone(), Config { encrypt: true, ..plain }] {
        let mut p = Pair::new(config);
        let mut messages = Messages::new();
        messages.post(&mut p.b);
        let mut readers = [Reader::new(7, 64), Reader::new(8, 50_000), Reader::new(9, 1_000_000)];
        let by_own = |p: &Pair| {
            let lanes = p.a.lanes(p.to_b);
            let control = lanes.first().and_then(|lane| lane.control.as_ref());
            matches!(control, Some(Control::Composition(Composition::AsyncPaced, _)))
        };
        let (mut n, mut iteration) = (0, 0);
        for round in 0..6 {
            let scheme = [Scheme::Asynchronous, Scheme::Synchronous][round % 2];
            p.a.set_scheme(p.to_b, scheme);
            // of two that want different ones the asynchronous one counts
            p.b.set_scheme(p.to_a, if round == 4 { Scheme::Asynchronous } else { Scheme::Synchronous });
            until(&mut p, |p| {
                if n < COUNT * (round + 1) / 6 {
                    messages.send(&mut p.a, p.to_b, n);
                    n += 1;
                }
                if scheme == Scheme::Asynchronous {
                    iteration += 1;
                    readers.iter().for_each(|one| put(&mut p.a, p.to_b, one.tag, iteration, one.len));
                }
                messages.look(p);
                readers.iter_mut().for_each(|one| one.look(&mut p.b, p.to_a));
                by_own(p) == (scheme == Scheme::Asynchronous)
            });
            until(&mut p, |p| {
                messages.look(p);
                readers.iter_mut().for_each(|one| one.look(&mut p.b, p.to_a));
                readers.iter().all(|one| one.has == iteration)
            });
        }
        until(&mut p, |p| {
            if n < COUNT {
                messages.send(&mut p.a, p.to_b, n);
                n += 1;
            }
            messages.look(p);
            messages.received == COUNT && messages.pending == 0
        });
        assert!(messages.sent == messages.got);
        p.b.set_scheme(p.to_a, Scheme::Asynchronous);
        until(&mut p, |p| by_own(p));
    }
}

/// Messages of several lengths, each of which says which it is.
struct Messages {
    sent: Vec<Vec<u8>>,
    got: Vec<Vec<u8>>,
    received: usize,
    pending: usize,
}

const COUNT: usize = 300;

impl Messages {
    fn new() -> Self {
        let len = |n: usize| [8, 500, 30_000, 150_000][n % 4];
        let sent: Vec<_> = (0..COUNT).map(|n| pattern(len(n), n)).collect();
        let got = sent.iter().map(|bytes| vec![0; bytes.len()]).collect();
        Self { sent, got, received: 0, pending: 0 }
    }

    fn post(&mut self, b: &mut Worker) {
        for (n, got) in self.got.iter_mut().enumerate() {
            // SAFETY: the buffers outlive the events.
            unsafe { b.recv(any_tag(), &[iov(got)], user(n as u64)) };
        }
    }

    fn send(&mut self, a: &mut Worker, to: PeerIdx, n: usize) {
        let bytes = &mut self.sent[n];
        // SAFETY: as above.
        let issued =
            unsafe { a.send(to, Matching::Tag(n as u64), None, Delivery::Sent, &[iov(bytes)], user(0)) };
        self.pending += usize::from(issued.expect("there is room") != Issued::Done);
    }

    /// What ended; receives have taken messages in order.
    fn look(&mut self, p: &mut Pair) {
        while let Some(event) = p.a.next_event() {
            assert_eq!(event.error, None);
            self.pending -= 1;
        }
        while let Some(event) = p.b.next_event() {
            assert_eq!((event.error, event.matching), (None, Matching::Tag(event.user.context)));
            self.received += 1;
        }
    }
}

/// The scheme changes again and again, in both directions, while messages and values are on their way.
#[test]
fn the_scheme_changes_under_traffic_and_messages_come_once_and_in_order() {
    over::all(|config| {
        let mut p = Pair::new(config);
        let mut messages = Messages::new();
        messages.post(&mut p.b);
        let mut readers = [Reader::new(7, 64), Reader::new(8, 50_000)];
        let (mut n, mut iteration, mut rounds) = (0, 0, 0);
        until(&mut p, |p| {
            rounds += 1;
            if n < COUNT {
                let scheme = [Scheme::Asynchronous, Scheme::Synchronous][n / 30 % 2];
                p.a.set_scheme(p.to_b, scheme);
                p.b.set_scheme(p.to_a, [Scheme::Synchronous, Scheme::Asynchronous][n / 50 % 2]);
                messages.send(&mut p.a, p.to_b, n);
                n += 1;
                if scheme == Scheme::Asynchronous {
                    iteration += 1;
                    readers.iter().for_each(|one| put(&mut p.a, p.to_b, one.tag, iteration, one.len));
                }
                if p.b.scheme(p.to_a) == Scheme::Asynchronous {
                    put(&mut p.b, p.to_a, 1, rounds, 100);
                }
            }
            messages.look(p);
            readers.iter_mut().for_each(|one| one.look(&mut p.b, p.to_a));
            messages.received == COUNT
                && messages.pending == 0
                && readers.iter().all(|one| one.has == iteration)
        });
        assert!(messages.sent == messages.got);
    });
}

#[test]
fn a_peer_that_is_gone_leaves_its_last_values_and_takes_no_others() {
    over::each(|config| {
        let Pair { mut a, mut b, to_b, to_a } = Pair::new(config);
        a.set_scheme(to_b, Scheme::Asynchronous);
        b.set_scheme(to_a, Scheme::Asynchronous);
        put(&mut a, to_b, 1, 5, 100);
        let (start, mut reader) = (Instant::now(), Reader::new(1, 100));
        // what was put leaves before the end
        a.progress();
        while !a.is_connected(to_b) || !a.is_quiet() {
            a.progress();
            b.progress();
            assert!(start.elapsed() < TIME);
        }
        drop(a);
        while reader.has < 5 || b.is_connected(to_a) {
            b.progress();
            reader.look(&mut b, to_a);
            assert!(start.elapsed() < TIME);
        }
        assert!(matches!(b.take_value(to_a, 1), Taken::Unchanged { iteration: 5, .. }));
        let mut refused = false;
        while !refused {
            let now = start.elapsed().as_nanos() as u64;
            refused = b.put_value(to_a, 1, now, b"nobody is there") == Err(PutError::Gone);
            b.progress();
            assert!(start.elapsed() < TIME);
        }
    });
}
