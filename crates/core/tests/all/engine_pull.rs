//! Short messages that were announced are there before a receive wants them, and are not received before.

use crate::engine_support::{
    ROUTE, any_tag, assert_clean, assert_idle, filter, join, mesh, message, pattern,
};
use polyrail_core::frame::Matching;
use polyrail_core::proto::{Delivery, Message, PeerIdx, Scheme};
use polyrail_core::sim::{Time, What, World};

/// Bytes and units of a message, and how many the window holds, and half of it.
const LEN: u64 = 200;
const UNITS: u64 = 5;
const EAGER: u64 = ROUTE.window as u64 / 3;
const PULLED: u64 = ROUTE.window as u64 / 2 / UNITS;

fn sent(world: &World) -> Vec<Time> {
    let sent = |event: &&polyrail_core::sim::Event| matches!(event.what, What::Sent { result: Ok(()), .. });
    world.node(0).events.iter().filter(sent).map(|event| event.at).collect()
}

/// Receives the next message, and how long that took.
fn receive(world: &mut World, tag: u64) -> Time {
    let begin = world.now();
    let op = world.recv(1, any_tag(), LEN);
    world.run();
    let events = &world.node(1).events;
    let got = events.iter().find_map(|event| match &event.what {
        What::Received { op: of, envelope: Some(envelope), bytes, result: Ok(()), .. } if *of == op => {
            assert_eq!(envelope.matching, Matching::Tag(tag));
            assert_eq!(*bytes, pattern(tag, envelope.len));
            Some(event.at)
        }
        _ => None,
    });
    got.expect("it is received") - begin
}

#[test]
fn who_receives_one_after_the_other_does_not_wait_for_each() {
    let mut world = mesh(1, 2, &join(Scheme::Fragments));
    for tag in 0..3 * PULLED {
        world.send(0, 1, message(tag), pattern(tag, LEN));
    }
    world.run();
    assert_eq!(sent(&world), [], "none is short enough to go eagerly");
    let held = world.node(1).most_stashed[&PeerIdx(0)];
    assert_eq!(held, PULLED * LEN, "half of the window is fetched, and no more");
    for tag in 0..3 * PULLED {
        assert_eq!(receive(&mut world, tag), 0, "{tag}");
    }
    assert_eq!(world.node(1).most_stashed[&PeerIdx(0)], held);
    assert_eq!(sent(&world).len() as u64, 3 * PULLED);
    assert_clean(&world, 2);
}

/// Whoever has spent its credit announces what is short enough to go eagerly, too.
#[test]
fn what_comes_behind_the_credit_is_fetched() {
    let mut world = mesh(1, 2, &join(Scheme::Fragments));
    let all = 2 * EAGER;
    for tag in 0..all {
        world.send(0, 1, message(tag), pattern(tag, 100));
    }
    world.run();
    let eager = sent(&world).len() as u64;
    assert!((1..all).contains(&eager), "{eager} went eagerly");
    let held = world.node(1).most_stashed[&PeerIdx(0)];
    assert!(held > eager * 100 && held <= (eager + EAGER / 2) * 100 + 100, "{held} bytes");
    for tag in 0..all {
        assert_eq!(receive(&mut world, tag), 0, "{tag}");
    }
    assert_clean(&world, 2);
}

/// Its sender waits for just that.
#[test]
fn a_synchronous_send_ends_with_its_receive() {
    for scheme in [Scheme::Fragments, Scheme::Put, Scheme::Get] {
        let mut world = mesh(1, 2, &join(scheme));
        let synchronous = Message { delivery: Delivery::Matched, ..message(1) };
        for tag in [1, 2] {
            world.send(0, 1, Message { matching: Matching::Tag(tag), ..synchronous }, pattern(tag, 20));
        }
        world.run();
        assert_eq!(sent(&world), [], "{scheme:?}");
        for (tag, done) in [(2, 1), (1, 2)] {
            world.recv(1, filter(None, tag), 20);
            world.run();
            assert_eq!(sent(&world).len(), done, "{scheme:?}");
        }
        assert_clean(&world, 2);
    }
}

/// A receive takes one of which only a part has come, with room for less than all of it; another peeks at one, and throws it away.
#[test]
fn one_that_is_still_coming_can_be_received() {
    for steps in 0..40 {
        let mut world = mesh(1, 2, &join(Scheme::Fragments));
        for tag in 0..2 {
            world.send(0, 1, message(tag), pattern(tag, LEN));
        }
        for _ in 0..steps {
            world.step();
        }
        let peeked = world.engine(1).peek(&filter(None, 1));
        if let Some((stash, envelope)) = peeked {
            assert_eq!(envelope.len, LEN);
            world.engine(1).claim(stash);
            world.engine(1).discard(stash);
        }
        let short = world.recv(1, filter(None, 0), LEN - 70);
        world.run();
        let got = world.node(1).events.iter().find_map(|event| match &event.what {
            What::Received { op, bytes, result: Ok(()), .. } if *op == short => Some(bytes.real().to_vec()),
            _ => None,
        });
        let all = pattern(0, LEN);
        assert_eq!(got.as_deref(), Some(&all.real()[..LEN as usize - 70]), "{steps}");
        if peeked.is_none() {
            world.recv(1, filter(None, 1), LEN);
            world.run();
        }
        assert_clean(&world, 2);
    }
}

/// One of which a receive has not had all is lost with its sender, to whom nobody has said that it arrived.
#[test]
fn a_peer_that_goes_meanwhile_leaves_nothing_behind() {
    let mut received = 0;
    for steps in 0..60 {
        let (mut posted, mut world) = (vec![], mesh(1, 2, &join(Scheme::Fragments)));
        for tag in 0..3 {
            world.send(0, 1, message(tag), pattern(tag, LEN));
        }
        for step in 0..steps {
            if step == steps / 2 {
                posted.push(world.recv(1, filter(None, 0), LEN));
            }
            world.step();
        }
        world.cut(0, 1);
        world.run();
        for tag in 0..3 {
            posted.push(world.recv(1, filter(Some(0), tag), LEN));
        }
        world.run();
        for op in posted {
            world.cancel(1, op);
        }
        let whole = world.node(1).events.iter().filter(|event| match &event.what {
            What::Received { envelope: Some(envelope), bytes, result: Ok(()), .. } => {
                assert_eq!(envelope.matching, Matching::Tag(0));
                *bytes == pattern(0, LEN)
            }
            _ => false,
        });
        received += whole.count();
        for at in 0..2 {
            assert_idle(&world, at);
            assert!(world.node(at).broken.is_empty());
        }
    }
    assert!((1..60).contains(&received), "{received} times it was in time");
}
