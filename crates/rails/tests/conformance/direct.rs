//! Direct access to a peer's memory, by the rail that two processes of one host would use: in slices, and given up in the middle.

use crate::pair::{Pair, TIME, any_tag, iov, pattern, user};
use polyrail_core::frame::Matching;
use polyrail_core::proto::Delivery;
use polyrail_rails::Config;
use polyrail_rails::config::Rendezvous;
use std::time::{Duration, Instant};

/// Bytes that a round of progress may move directly, and a slice more.
const ROUND_MOST: usize = 3 << 20;

#[test]
fn a_long_message_read_directly_holds_neither_progress_nor_the_short_ones_behind_it() {
    for rendezvous in [Rendezvous::Auto, Rendezvous::Put] {
        let mut p = Pair::new(Config { rendezvous, ..Config::default() });
        let (mut sent, mut got) = (pattern(64 << 20, 1), vec![0; 64 << 20]);
        let (mut short, mut there) = (pattern(100, 2), vec![0; 100]);
        // SAFETY: all buffers outlive the events.
        unsafe {
            p.b.recv(any_tag(), &[iov(&mut got)], user(1));
            p.b.recv(any_tag(), &[iov(&mut there)], user(2));
            p.a.send(p.to_b, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut sent)], user(3)).unwrap();
            p.a.send(p.to_b, Matching::Tag(2), None, Delivery::Sent, &[iov(&mut short)], user(4)).unwrap();
        }
        let (start, mut order, mut rounds) = (Instant::now(), Vec::new(), 0);
        while order.len() < 2 {
            p.a.progress();
            p.b.progress();
            rounds += 1;
            order.extend(std::iter::from_fn(|| p.b.next_event()).map(|event| event.user.context));
            assert!(start.elapsed() < TIME);
        }
        if p.a.direct_refused(p.to_b).or(p.b.direct_refused(p.to_a)).is_some() {
            return polyrail_testing::lacking("cross-memory attach");
        }
        assert_eq!(order, [2, 1], "the short message passes");
        assert!(rounds > sent.len() / ROUND_MOST, "{rounds} rounds for {} bytes", sent.len());
        assert!(got == sent && there == short);
    }
}

#[test]
fn a_direct_transfer_whose_peer_goes_in_the_middle_ends_once() {
    let mut p = Pair::new(Config::default());
    let (mut sent, mut got) = (pattern(64 << 20, 1), vec![0; 64 << 20]);
    // SAFETY: all buffers outlive the events and the workers.
    unsafe {
        p.b.recv(any_tag(), &[iov(&mut got)], user(1));
        p.a.send(p.to_b, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut sent)], user(3)).unwrap();
    }
    let start = Instant::now();
    while !p.b.is_connected(p.to_a) || p.b.is_quiet() {
        p.a.progress();
        p.b.progress();
        assert!(start.elapsed() < TIME);
    }
    // begun and not over; nobody lingers
    p.a.close(Duration::ZERO);
    let mut ends = Vec::new();
    for _ in 0..1000 {
        p.b.progress();
        ends.extend(std::iter::from_fn(|| p.b.next_event()).map(|event| event.error));
    }
    while ends.is_empty() {
        p.b.progress();
        ends.extend(std::iter::from_fn(|| p.b.next_event()).map(|event| event.error));
        assert!(start.elapsed() < TIME);
    }
    assert_eq!(ends.len(), 1, "{ends:?}");
}
