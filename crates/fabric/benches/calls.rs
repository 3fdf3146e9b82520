//! What the provider's calls cost on top of the worker's: a message to oneself, posted, sent, completed, both ways.
//!
//! `cargo bench -p polyrail-fabric --bench calls`
//!
//! `calls pair N` and `calls workers N` are for counting instructions, which depend on no load: N messages there and as many
//! back over shared memory between two endpoints, and two workers, of this process. The difference of two counts is what
//! messages cost (`valgrind --tool=callgrind`).

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/provider/host.rs"]
mod host;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/provider/node.rs"]
mod node;

use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

use node::{Node, Pair, Want};
use polyrail_core::frame::Matching;
use polyrail_core::proto::{Delivery, Filter};
use polyrail_fi::ffi::*;
use polyrail_rails::rail::RawIov;
use polyrail_rails::{Config, Issued, User, Worker};

const ROUNDS: u32 = 200_000;

/// Nanoseconds for a round, the best of some runs: what disturbs makes it longer, never shorter.
fn best(mut round: impl FnMut()) -> f64 {
    let run = |round: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| round());
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    };
    (0..7).map(|_| run(&mut round)).fold(f64::MAX, f64::min)
}

fn worker() -> f64 {
    let mut w = Worker::open(Config::default()).expect("a worker");
    let me = w.peer(&w.address()).expect("its own peer");
    let (mut sent, mut got) = ([7u8; 8], [0u8; 8]);
    let out = [RawIov { base: sent.as_mut_ptr(), len: 8 }];
    let into = [RawIov { base: got.as_mut_ptr(), len: 8 }];
    let filter = Filter { source: None, matching: Matching::Tag(1), ignore: 0 };
    best(|| {
        // SAFETY: both buffers outlive the operations, each of which ends within its round.
        unsafe {
            w.recv(filter, &into, User { context: 1, flags: 0 });
            while w.inject(me, Matching::Tag(1), None, &out).is_err() {
                w.progress();
            }
        }
        while black_box(w.next_event()).is_none() {
            w.progress();
        }
    })
}

fn provider(node: &Node<'_>) -> f64 {
    let me = node.insert(&node.name());
    let (sent, mut got) = ([7u8; 8], [0u8; 8]);
    node.tinject(&[], &sent, me, 1);
    node.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 1);
    node.complete(&[]);
    best(|| {
        node.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 1);
        // SAFETY: the bytes are there during the call.
        let code = unsafe { ((*(*node.ep).tagged).inject)(node.ep, sent.as_ptr().cast(), 8, me, 1) };
        assert_eq!(code, 0);
        while black_box(node.read()).is_err() {}
    })
}

/// A read of an empty queue, and the worker's progress that is in it.
fn empty(node: &Node<'_>) -> (f64, f64) {
    let mut w = Worker::open(Config { yielding: false, ..Config::default() }).expect("a worker");
    (best(|| _ = black_box(node.read())), best(|| _ = black_box(w.progress())))
}

const TAG: u64 = 1;

/// A receive, then a send from the other side, both completions: as often as asked, in turn from either side.
fn pair(pair: &Pair<'_>, count: u64) {
    let (out, mut into) = ([7u8; 8], [0u8; 8]);
    let mut entries =
        [fi_cq_tagged_entry { op_context: null_mut(), flags: 0, len: 0, buf: null_mut(), data: 0, tag: 0 };
            8];
    // SAFETY: open objects; buffers outlive the operations.
    unsafe {
        let mut read =
            |node: &Node<'_>| ((*(*node.cq).ops).read)(node.cq, entries.as_mut_ptr().cast(), entries.len());
        let mut message = |from: &Node<'_>, to: &Node<'_>, address| {
            let (ops, none) = ((*from.ep).tagged, null_mut());
            ((*ops).recv)(to.ep, into.as_mut_ptr().cast(), 8, none, FI_ADDR_UNSPEC, TAG, 0, none);
            while ((*ops).send)(from.ep, out.as_ptr().cast(), 8, none, address, TAG, none) != 0 {
                read(from);
                read(to);
            }
            while read(from) != 1 {
                read(to);
            }
            while read(to) != 1 {
                read(from);
            }
        };
        for _ in 0..count {
            message(&pair.a, &pair.b, pair.to_b);
            message(&pair.b, &pair.a, pair.to_a);
        }
    }
}

/// The same with workers alone.
fn workers(count: u64) {
    let config = Config { yielding: false, ..Config::default() };
    let open = || Worker::open(config.clone()).expect("a worker");
    let (mut a, mut b) = (open(), open());
    let to_b = a.peer(&b.address()).expect("an address");
    let to_a = b.peer(&a.address()).expect("an address");
    let (mut out, mut into) = ([7u8; 8], [0u8; 8]);
    let iov = |bytes: &mut [u8; 8]| [RawIov { base: bytes.as_mut_ptr(), len: 8 }];
    let (out, into) = (iov(&mut out), iov(&mut into));
    let filter = Filter { source: None, matching: Matching::Tag(TAG), ignore: 0 };
    let user = User { context: 1, flags: 0 };
    let message = |from: &mut Worker, to: &mut Worker, peer| {
        // SAFETY: buffers outlive the operations.
        let issued = unsafe {
            to.recv(filter, &into, user);
            from.send(peer, Matching::Tag(TAG), None, Delivery::Sent, &out, user).expect("room")
        };
        while issued != Issued::Done && from.next_event().is_none() {
            from.progress();
            to.progress();
        }
        while to.next_event().is_none() {
            to.progress();
        }
    };
    for _ in 0..count {
        message(&mut a, &mut b, to_b);
        message(&mut b, &mut a, to_a);
    }
}

/// Which of them to run may be said.
fn main() {
    let Some(host) = host::host() else { return };
    let alone = |hints: &mut fi_info| {
        // SAFETY: the host's hints have all attributes.
        unsafe { (*hints.domain_attr).threading = FI_THREAD_DOMAIN };
    };
    let want = Want { wait: FI_WAIT_NONE, hints: alone, ..Want::default() };
    let only = std::env::args().nth(1).filter(|name| !name.starts_with('-'));
    let count = || std::env::args().nth(2).map_or(1000, |count| count.parse().expect("a number"));
    match only.as_deref() {
        Some("pair") => return pair(&node::pair(host, want), count()),
        Some("workers") => return workers(count()),
        _ => {}
    }
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    let node = Node::new(host, want);
    if wanted("worker") {
        println!("8 bytes to oneself, worker: {:.0} ns", worker());
    }
    if wanted("provider") {
        println!("8 bytes to oneself, provider: {:.0} ns", provider(&node));
    }
    if wanted("empty") {
        let (read, progress) = empty(&node);
        println!(
            "empty read: {read:.0} ns, of which progress {progress:.0} ns; the rest is giving the processor away"
        );
    }
}
