//! How sessions begin and end.

use crate::over;
use crate::pair::{Pair, TIME, any_tag, iov, user};
use polyrail_core::frame::Matching;
use polyrail_core::proto::{Delivery, Failure, Filter};
use polyrail_rails::Worker;
use polyrail_rails::list::RailId;
use std::time::Instant;

#[test]
fn both_ends_connect_at_once() {
    over::all(|config| {
        for _ in 0..20 {
            let mut p = Pair::new(config.clone());
            let (mut x, mut y, mut gx, mut gy) = ([1; 8], [2; 8], [0; 8], [0; 8]);
            // SAFETY: all buffers outlive the events.
            unsafe {
                p.a.recv(any_tag(), &[iov(&mut gx)], user(1));
                p.b.recv(any_tag(), &[iov(&mut gy)], user(1));
                p.a.send(p.to_b, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut x)], user(2)).unwrap();
                p.b.send(p.to_a, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut y)], user(2)).unwrap();
            }
            p.events(2, 2);
            assert_eq!((gx, gy), (y, x));
        }
    });
}

#[test]
fn a_peer_that_is_not_there_ends_the_operation_with_a_reason() {
    over::all(|config| {
        let gone = Worker::open(config.clone()).unwrap().address();
        let mut a = Worker::open(config.clone()).unwrap();
        let peer = a.peer(&gone).unwrap();
        let mut bytes = [0; 8];
        // SAFETY: the buffer outlives the event.
        unsafe { a.send(peer, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut bytes)], user(4)).unwrap() };
        let start = Instant::now();
        let event = loop {
            a.progress();
            if let Some(event) = a.next_event() {
                break event;
            }
            assert!(start.elapsed() < TIME);
        };
        assert_eq!((event.user.context, event.error), (4, Some(Failure::PeerGone)));
        assert!(a.why(peer).unwrap().contains("cannot connect"), "{:?}", a.why(peer));
    });
}

#[test]
fn an_orderly_close_loses_nothing_and_is_told() {
    over::all(|config| {
        let mut p = Pair::new(config.clone());
        for i in 0..100u64 {
            let mut bytes = i.to_le_bytes();
            // SAFETY: inject copies.
            while unsafe { p.a.inject(p.to_b, Matching::Tag(i), None, &[iov(&mut bytes)]) }.is_err() {
                p.a.progress();
                p.b.progress();
            }
        }
        let Pair { a, mut b, to_a, .. } = p;
        drop(a);
        let mut got = [0; 8];
        for i in 0..100 {
            let filter = Filter { source: Some(to_a), matching: Matching::Tag(i), ignore: 0 };
            // SAFETY: the buffer outlives the event.
            unsafe { b.recv(filter, &[iov(&mut got)], user(i)) };
            let start = Instant::now();
            loop {
                b.progress();
                if let Some(event) = b.next_event() {
                    assert_eq!((event.user.context, event.error), (i, None));
                    break;
                }
                assert!(start.elapsed() < TIME);
            }
        }
    });
}

#[test]
fn a_rail_that_is_chosen_carries_what_is_sent() {
    for rail in RailId::ALL {
        let Some(config) = over::only(rail) else { continue };
        let mut p = Pair::new(config);
        let start = Instant::now();
        // SAFETY: inject copies.
        while unsafe { p.a.inject(p.to_b, Matching::Tag(1), None, &[iov(&mut [1; 8])]) }.is_err() {
            p.a.progress();
            p.b.progress();
            assert!(start.elapsed() < TIME);
        }
        assert_eq!(p.a.route(p.to_b).map(|(name, _)| name), Some(rail.name()));
    }
}
