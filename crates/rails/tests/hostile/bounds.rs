//! Peers that know the key, ask, and read no answer; and regions that end while a peer writes to them.

use super::frames::{Victim, bytes, read_frame};
use crate::support::alone::alone;
use crate::support::node::{Node, iov};
use crate::support::puppet::settings;
use crate::support::resident;
use crate::support::stranger::{Shaken, beside, shake};
use polyrail_core::frame::{
    AtomicCode, AtomicKind, Frame, MAX_PAYLOAD, Matching, OpId, Order, RemoteAddr, Status,
};
use polyrail_core::proto::Access;
use polyrail_core::wire::Versions;
use std::io::Write;
use std::time::Duration;

const KEY: u64 = 5;
const AT: RemoteAddr = RemoteAddr { key: KEY, addr: 0 };
const OP: OpId = OpId { slot: 3, generation: 1 };

fn order(seq: u32) -> Order {
    Order { seq, credit: 0 }
}

/// Asks `honest` times and reads nothing, then a good peer is served, then goes on asking until it is cut off; by how many
/// bytes the process grew, and why the connection was ended.
fn ask_deaf(victim: &mut Victim, honest: u32, ask: impl Fn(u32) -> Vec<u8> + Sync) -> (usize, String) {
    let Shaken { mut stream, address, .. } = victim.hostile();
    stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a bound");
    let peer = victim.node.peer(&address);
    let before = resident();
    let asked = (0..honest).all(|n| {
        victim.node.progress();
        stream.write_all(&ask(n)).is_ok()
    });
    assert!(asked, "{}", victim.node.why(peer));
    victim.node.converse(victim.to_good);
    assert!(victim.node.worker.is_connected(peer), "{}", victim.node.why(peer));
    let most = beside(&mut victim.node, || {
        let mut most = 0;
        for n in honest.. {
            most = if n % 500 == 0 { resident().max(most) } else { most };
            if n > 50 * honest {
                // whatever is on its way may come first
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(n < 60 * honest, "it takes all of it, and grows by {} MiB", (most - before) >> 20);
            if stream.write_all(&ask(n)).is_err() {
                break;
            }
        }
        resident().max(most)
    });
    let why = victim.node.lost(peer, &address);
    victim.node.converse(victim.to_good);
    (most.saturating_sub(before), why)
}

/// 16 KiB of FI_UINT64 = 7 by FI_ATOMIC_READ = 10.
const FETCH: AtomicCode = AtomicCode { datatype: 7, op: 10, kind: AtomicKind::Fetch, count: 2048 };

#[test]
fn values_that_nobody_reads_are_not_kept_without_bound() {
    alone(|| {
        let mut victim = Victim::new();
        let (grown, why) = ask_deaf(&mut victim, 1000, |n| {
            bytes(Frame::Atomic { order: order(n), op: OP, at: AT, code: FETCH }, &[])
        });
        assert!(why.contains("did not take the answers"), "{why}");
        // 16 MiB of values, and as much on their way
        assert!(grown < 64 << 20, "{} MiB", grown >> 20);
    });
}

#[test]
fn answers_that_nobody_reads_are_not_kept_without_bound() {
    type Ask = fn(u32) -> Vec<u8>;
    let asks: [Ask; 3] = [
        |n| bytes(Frame::Get { order: order(n), op: OP, from: AT, len: 300_000, writable: false }, &[]),
        |n| bytes(Frame::Put { order: order(n), op: OP, to: AT, data: None, last: true }, &[7; 8]),
        |n| {
            let code = AtomicCode { datatype: 7, op: 2, kind: AtomicKind::Update, count: 1 };
            bytes(Frame::Atomic { order: order(n), op: OP, at: AT, code }, &[1; 8])
        },
    ];
    alone(move || {
        let mut victim = Victim::new();
        for ask in asks {
            let (grown, why) = ask_deaf(&mut victim, 30_000, ask);
            assert!(why.contains("did not take the answers"), "{why}");
            assert!(grown < 64 << 20, "{} MiB", grown >> 20);
        }
    });
}

/// A message that is announced costs little, but something: a peer has only so many.
#[test]
fn messages_are_not_announced_without_bound() {
    let mut victim = Victim::with("RAILS=tcp ANNOUNCED=2000");
    let (_, why) = ask_deaf(&mut victim, 2000, |n| {
        let matching = Matching::Tag(77);
        let rts = Frame::Rts { order: order(n), matching, data: None, len: 1 << 20, op: OP, readable: false };
        bytes(rts, &[])
    });
    assert!(why.contains("POLYRAIL_ANNOUNCED"), "{why}");
}

/// Memory under a key, with these rights.
fn register(node: &mut Node, memory: &mut [u8], access: Access) {
    // SAFETY: the tests keep the memory until the registration has ended, or the worker.
    unsafe { node.worker.register(KEY, iov(memory), 0, access).expect("a free key") };
}

/// A region is closed while a put is on its way into it, and the key given to other memory: nothing reaches that, and the put
/// is not said to be done.
#[test]
fn a_put_reaches_the_region_that_it_began_with_or_none() {
    const HALF: usize = MAX_PAYLOAD / 2;
    for (again, write) in [(true, false), (true, true), (false, false)] {
        let mut node = Node::open(settings("RAILS=tcp"));
        let (mut first, mut second) = (vec![0u8; MAX_PAYLOAD], vec![0u8; MAX_PAYLOAD]);
        register(&mut node, &mut first, Access { read: true, write: true });
        let address = node.worker.address().to_vec();
        let mut hostile = beside(&mut node, || shake(&address, Versions::OURS));
        let put = Frame::Put { order: order(0), op: OP, to: AT, data: None, last: true };
        let all = bytes(put, &[7; MAX_PAYLOAD]);
        let (begun, rest) = all.split_at(HALF);
        beside(&mut node, || hostile.stream.write_all(begun).expect("the worker reads"));
        let begins = first.as_ptr();
        // SAFETY: the memory is there; the worker, which writes to it, belongs to this thread.
        node.until("its first bytes", |_| unsafe { begins.read_volatile() } == 7);
        node.worker.deregister(KEY);
        if again {
            register(&mut node, &mut second, Access { read: true, write });
        }
        let answer = beside(&mut node, || {
            hostile.stream.write_all(rest).expect("the worker reads");
            let mut said = std::iter::from_fn(|| Some(read_frame(&mut hostile.stream).0));
            said.find(|frame| !matches!(frame, Frame::Got { .. }))
        });
        assert_eq!(answer, Some(Frame::Ack { op: OP, status: Status::Access }), "{again} {write}");
        node.worker.deregister(KEY);
        assert!(second.iter().all(|byte| *byte == 0), "another region was written");
    }
}

/// The same of a get: what it had asked for is not looked up in other memory, however late the peer takes it.
#[test]
fn a_get_reads_the_region_that_it_began_with_or_none() {
    const LEN: usize = 64 << 20;
    let mut node = Node::open(settings("RAILS=tcp"));
    let (mut first, mut second) = (vec![1u8; LEN], vec![2u8; LEN]);
    let access = Access { read: true, write: true };
    register(&mut node, &mut first, access);
    let address = node.worker.address().to_vec();
    let mut hostile = beside(&mut node, || shake(&address, Versions::OURS));
    let get = Frame::Get { order: order(0), op: OP, from: AT, len: LEN as u64, writable: false };
    hostile.stream.write_all(&bytes(get, &[])).expect("room");
    let begun = beside(&mut node, || read_frame(&mut hostile.stream));
    assert!(begun.1.iter().all(|byte| *byte == 1));
    node.worker.deregister(KEY);
    register(&mut node, &mut second, access);
    let last = beside(&mut node, || {
        loop {
            let (frame, payload) = read_frame(&mut hostile.stream);
            assert!(payload.iter().all(|byte| *byte != 2), "{frame:?} brings bytes of another region");
            if !matches!(frame, Frame::GetData { .. } | Frame::Got { .. }) {
                return frame;
            }
        }
    });
    assert_eq!(last, Frame::Ack { op: OP, status: Status::Access });
    node.worker.deregister(KEY);
}
