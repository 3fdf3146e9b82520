//! What the provider's calls cost on top of the worker's: a message to oneself, posted, sent, completed, both ways.
//!
//! `cargo bench -p polyrail-fabric --bench calls`
//!
//! What they cost in instructions `bench/run instructions` counts.

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/provider/host.rs"]
mod host;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/provider/node.rs"]
mod node;

use std::hint::black_box;
use std::time::Instant;

use node::{Node, Want};
use polyrail_core::frame::Matching;
use polyrail_core::proto::Filter;
use polyrail_fi::ffi::*;
use polyrail_rails::rail::RawIov;
use polyrail_rails::{Config, User, Worker};

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

/// Which of them to run may be said.
fn main() {
    let Some(host) = host::host() else { return };
    let alone = |hints: &mut fi_info| {
        // SAFETY: the host's hints have all attributes.
        unsafe { (*hints.domain_attr).threading = FI_THREAD_DOMAIN };
    };
    let want = Want { wait: FI_WAIT_NONE, hints: alone, ..Want::default() };
    let only = std::env::args().nth(1).filter(|name| !name.starts_with('-'));
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
