//! Two workers in one process that know each other.

use polyrail_core::frame::Matching;
use polyrail_core::proto::{Filter, PeerIdx};
use polyrail_rails::rail::RawIov;
use polyrail_rails::{Config, Event, User, Worker};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

pub const TIME: Duration = Duration::from_secs(60);

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

/// Byte `i` is `31 i + seed + i / 256`. It comes from a table, as nobody makes progress while a test makes a megabyte by the byte.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    static PERIOD: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..1 << 16).map(|i: usize| (i.wrapping_mul(31) + (i >> 8)) as u8).collect());
    let mut of = Vec::with_capacity(len);
    let mut at = seed % 256 * 256;
    while of.len() < len {
        let here = &PERIOD[at..];
        of.extend_from_slice(&here[..here.len().min(len - of.len())]);
        at = 0;
    }
    of
}

#[test]
fn a_pattern_is_what_it_says() {
    for (len, seed) in [(0, 0), (1, 3), (70_000, 255), (200_000, 1000)] {
        let of = pattern(len, seed);
        assert_eq!(of.len(), len);
        assert!(
            of.iter().enumerate().all(|(i, byte)| *byte == (31 * i + seed + i / 256) as u8),
            "{len} {seed}"
        );
    }
}

pub fn any_tag() -> Filter {
    Filter { source: None, matching: Matching::Tag(0), ignore: u64::MAX }
}

pub const SIZES: [usize; 14] =
    [0, 1, 8, 31, 33, 100, 4096, 8192, 8193, 65536, 65537, 1 << 20, (1 << 20) + 1, 5_000_001];
