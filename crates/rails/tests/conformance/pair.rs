//! Two workers in one process that know each other.

use polyrail_core::frame::Matching;
use polyrail_core::proto::{Filter, PeerIdx};
use polyrail_rails::rail::RawIov;
use polyrail_rails::{Config, Event, User, Worker};
use std::time::{Duration, Instant};

pub const TIME: Duration = Duration::from_secs(20);

pub fn iov(bytes: &mut [u8]) -> RawIov {
    RawIov { base: bytes.as_mut_ptr(), len: bytes.len() }
}

pub fn user(context: u64) -> User {
    User { context, flags: 0 }
}

/// Two workers that know each other.
pub struct Pair {
    pub a: Worker,
    pub b: Worker,
    pub to_b: PeerIdx,
    pub to_a: PeerIdx,
}

impl Pair {
    pub fn new(config: Config) -> Self {
        let mut a = Worker::open(config.clone()).unwrap();
        let mut b = Worker::open(config).unwrap();
        let to_b = a.peer(&b.address()).unwrap();
        let to_a = b.peer(&a.address()).unwrap();
        Self { a, b, to_b, to_a }
    }

    /// Makes progress on both until each has given so many events.
    pub fn events(&mut self, of_a: usize, of_b: usize) -> (Vec<Event>, Vec<Event>) {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while a.len() < of_a || b.len() < of_b {
            self.a.progress();
            self.b.progress();
            a.extend(std::iter::from_fn(|| self.a.next_event()));
            b.extend(std::iter::from_fn(|| self.b.next_event()));
            assert!(start.elapsed() < TIME, "events missing: {a:?} of {of_a}, {b:?} of {of_b}");
        }
        (a, b)
    }
}

pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) + seed + (i >> 8)) as u8).collect()
}

pub fn any_tag() -> Filter {
    Filter { source: None, matching: Matching::Tag(0), ignore: u64::MAX }
}

pub const SIZES: [usize; 14] =
    [0, 1, 8, 31, 33, 100, 4096, 8192, 8193, 65536, 65537, 1 << 20, (1 << 20) + 1, 5_000_001];
