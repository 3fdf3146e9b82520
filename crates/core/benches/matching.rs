//! Nanoseconds per message that is posted and matched, or pushed unexpected and taken, with others queued.
//!
//! `cargo bench -p polyrail-core --bench matching`. Each figure is the best of several batches, because the machine
//! may be shared: what others do can only add.
use polyrail_core::matching::{PostedQueue, Receive, Source, UnexpectedQueue};
use std::hint::black_box;
use std::time::Instant;

const BATCH: u64 = 10_000;
const BATCHES: usize = 200;

/// As MPI libraries have it: protocol bits at the top, then the context, the source and the tag.
const PROTOCOL: u64 = 0x1f << 59;
const TAG: u64 = (1 << 19) - 1;
const PEERS: u64 = 64;

struct Kind {
    name: &'static str,
    directed: bool,
    ignore: u64,
}

const KINDS: [Kind; 5] = [
    Kind { name: "exact, directed", directed: true, ignore: 0 },
    Kind { name: "exact, any source", directed: false, ignore: 0 },
    Kind { name: "masked, directed", directed: true, ignore: PROTOCOL },
    Kind { name: "masked, any source", directed: false, ignore: PROTOCOL },
    Kind { name: "any tag, directed", directed: true, ignore: PROTOCOL | TAG },
];

fn tag(i: u64) -> u64 {
    3 << 42 | i & TAG
}

fn receive(kind: &Kind, i: u64, tag: u64) -> Receive {
    Receive { source: kind.directed.then_some(source(i)), tag, ignore: kind.ignore }
}

fn source(i: u64) -> Source {
    Source((i % PEERS) as u32)
}

/// Receives and messages that no timed one matches, whatever its mask: another context.
fn other(i: u64) -> u64 {
    4 << 42 | i & TAG
}

/// The least time per message over all batches, in nanoseconds, of steps that handle `window` messages each. Batches
/// are short, so that some pass undisturbed.
fn best(window: u64, mut step: impl FnMut(u64)) -> f64 {
    let steps = BATCH / window;
    let batch = |_| {
        let start = Instant::now();
        (0..steps).for_each(&mut step);
        start.elapsed().as_nanos() as f64 / (steps * window) as f64
    };
    (0..BATCHES).map(batch).fold(f64::INFINITY, f64::min)
}

fn posted(kind: &Kind, others: u64, window: u64, second_mask: bool) -> f64 {
    let mut queue = PostedQueue::new(0x5eed);
    for i in 0..others {
        queue.post(receive(kind, i, other(i)), i);
    }
    if second_mask {
        queue.post(Receive { source: None, tag: 0, ignore: TAG }, 0);
    }
    best(window, |i| {
        for j in 0..window {
            queue.post(black_box(receive(kind, i + j, tag(i + j))), i + j);
        }
        for j in 0..window {
            let (source, tag) = black_box((source(i + j), tag(i + j)));
            assert_eq!(queue.end_match(source, tag, |it| Some(*it)), Some(i + j));
        }
    })
}

fn unexpected(kind: &Kind, others: u64) -> f64 {
    let mut queue = UnexpectedQueue::new(0x5eed);
    for i in 0..others {
        queue.push(source(i), other(i), i);
    }
    best(1, |i| {
        let (source, at) = black_box((source(i), tag(i)));
        queue.push(source, at, i);
        let receive = black_box(receive(kind, i, tag(i)));
        assert_eq!(queue.take_match(&receive).map(|(_, value)| value), Some(i));
    })
}

/// Matches against a full queue in an order that caches do not foresee; each one matched is posted again.
fn scattered(kind: &Kind, posted: u64) -> f64 {
    let mut queue = PostedQueue::new(0x5eed);
    for i in 0..posted {
        queue.post(receive(kind, i, tag(i)), i);
    }
    let mut at = 0;
    best(1, |_| {
        at = (at + 7919) % posted;
        assert_eq!(queue.end_match(source(at), tag(at), |it| Some(*it)), Some(at));
        queue.post(receive(kind, at, tag(at)), at);
    })
}

/// What a receive pays when nothing is there, before it is posted.
fn miss(others: u64) -> f64 {
    let mut queue = UnexpectedQueue::new(0x5eed);
    for i in 0..others {
        queue.push(source(i), other(i), i);
    }
    best(1, |i| assert!(queue.take_match(&black_box(receive(&KINDS[2], i, tag(i)))).is_none()))
}

/// What the first search through a mask pays for its index.
fn first_search(others: u64) -> f64 {
    let once = |_| {
        let mut queue = UnexpectedQueue::new(0x5eed);
        for i in 0..others {
            queue.push(source(i), other(i), i);
        }
        let start = Instant::now();
        assert!(queue.take_match(&receive(&KINDS[2], 0, tag(0))).is_none());
        start.elapsed().as_nanos() as f64
    };
    (0..20).map(once).fold(f64::INFINITY, f64::min)
}

fn row(name: &str, figure: impl Fn(u64) -> f64) {
    let [none, some, many] = [0, 100, 10_000].map(figure);
    println!("{name:<44}{none:>8.1}{some:>8.1}{many:>8.1}");
}

fn main() {
    println!("{:<44}{:>8}{:>8}{:>8}", "ns, with others queued:", 0, 100, 10_000);
    for kind in &KINDS {
        row(&format!("post + match, {}", kind.name), |others| posted(kind, others, 1, false));
    }
    row("the same, two masks in use", |others| posted(&KINDS[2], others, 1, true));
    row("64 posts, then 64 matches, masked, directed", |others| posted(&KINDS[2], others, 64, false));
    row("match anywhere + post, masked, directed", |others| scattered(&KINDS[2], others.max(1)));
    for kind in &KINDS {
        row(&format!("push + take, {}", kind.name), |others| unexpected(kind, others));
    }
    row("take in vain, masked, directed", miss);
    row("the same, the first time", first_search);
}
