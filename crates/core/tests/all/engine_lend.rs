//! Eager sends whose bytes are lent to a lane: when they are complete.

use polyrail_core::frame::{Frame, Matching, OpId, Status};
use polyrail_core::proto::{
    Action, Bounds, Completion, Config, Delivery, Failure, Message, Next, Out, PeerIdx, Place, Route, Scheme,
};
use polyrail_core::sim::Engine;

const LEN: u64 = 32 << 10;
/// So many bytes are copied in a round, and so many are lent at most.
const SLICE: u64 = 256 << 10;
const MOST: u64 = 8 << 20;

const ROUTE: Route = Route {
    eager_max: 64 << 10,
    fragment: 64 << 10,
    scheme: Scheme::Fragments,
    window: 1 << 20,
    immediate: false,
};

fn connected() -> (Engine, PeerIdx) {
    let mut engine = Engine::new(Config { window: 64, hash_seed: 1, bounds: Bounds::DEFAULT });
    let peer = engine.add_peer();
    engine.connected(peer, ROUTE);
    (engine, peer)
}

fn send(engine: &mut Engine, peer: PeerIdx, len: u64, delivery: Delivery) -> (OpId, Next) {
    let op = engine.send(peer, Message { matching: Matching::Tag(1), data: None, delivery, len });
    (op, engine.poll_transmit(peer, 0).expect("it may leave"))
}

/// Sends a message, which a lane takes and keeps the place of.
fn lend(engine: &mut Engine, peer: PeerIdx) -> OpId {
    let (op, next) = send(engine, peer, LEN, Delivery::Sent);
    let span = engine.may_lend(&next, 1).expect("there is little that is lent");
    assert_eq!((span.place, next.payload), (Place::Send(op), Out::Bytes(span)));
    assert_eq!(next.lasting(), None, "its operation need not stay");
    engine.lent(peer, &next);
    op
}

fn ended(engine: &mut Engine) -> Vec<(OpId, Result<(), Failure>)> {
    let mut all = Vec::new();
    while let Some(action) = engine.poll_action() {
        match action {
            Action::Complete(Completion::Send { op, result, .. }) => all.push((op, result)),
            other => panic!("{other:?}"),
        }
    }
    all
}

/// One round: what is copied in it.
fn round(engine: &mut Engine, sleeps: bool) -> Vec<OpId> {
    engine.wait(sleeps);
    let mut copied = Vec::new();
    while let Some((_, op)) = engine.poll_copy() {
        engine.returned(op);
        copied.push(op);
    }
    copied
}

#[test]
fn who_need_not_wait_long_for_the_peer_waits() {
    let (mut engine, peer) = connected();
    let (asked, next) = send(&mut engine, peer, LEN, Delivery::Soon);
    assert!(engine.may_lend(&next, 1).is_none(), "it stays until the peer has it");
    // what becomes of the path between a frame and its leaving changes nothing
    engine.set_far(peer, true);
    engine.transmitted(peer, &next);
    assert!(ended(&mut engine).is_empty());
    engine.on_frame(peer, &Frame::Ats { op: asked, status: Status::Ok }, 0, None);
    assert_eq!(ended(&mut engine), [(asked, Ok(()))]);
    let (far, next) = send(&mut engine, peer, LEN, Delivery::Soon);
    assert!(engine.may_lend(&next, 1).is_some());
    engine.transmitted(peer, &next);
    assert_eq!(ended(&mut engine), [(far, Ok(()))]);
    engine.set_far(peer, false);
    let (_, next) = send(&mut engine, peer, LEN, Delivery::Soon);
    assert!(engine.may_lend(&next, 1).is_none());
}

#[test]
fn what_the_peer_has_is_complete_once_and_is_not_copied() {
    let (mut engine, peer) = connected();
    let sends: Vec<_> = (0..4).map(|_| lend(&mut engine, peer)).collect();
    assert!(engine.has_lent() && ended(&mut engine).is_empty());
    // in whichever order lanes confirm
    for at in [2, 0, 3, 1] {
        engine.returned(sends[at]);
        assert_eq!(ended(&mut engine), [(sends[at], Ok(()))]);
        engine.returned(sends[at]);
        assert_eq!(ended(&mut engine), []);
    }
    assert!(!engine.has_lent() && engine.is_quiet(peer));
    assert_eq!(round(&mut engine, true), []);
}

#[test]
fn who_waits_gets_a_copy_after_about_as_long_as_that_takes() {
    let (mut engine, peer) = connected();
    let one = lend(&mut engine, peer);
    let rounds = (0..).find(|_| !round(&mut engine, false).is_empty()).unwrap();
    assert!((1..8).contains(&rounds), "{rounds} rounds");
    assert_eq!(ended(&mut engine), [(one, Ok(()))]);

    // many take longer, and a few are copied in each round; one that is sent meanwhile puts off none for long
    let many: Vec<_> = (0..64).map(|_| lend(&mut engine, peer)).collect();
    let mut copied = Vec::new();
    let (mut first, mut more) = (None, 0);
    for at in 0..2000 {
        let now = round(&mut engine, false);
        assert!(now.len() as u64 <= SLICE / LEN, "{} in one round", now.len());
        first = first.or((!now.is_empty()).then_some(at));
        copied.extend(now);
        if at % 16 == 0 && more < 32 {
            lend(&mut engine, peer);
            more += 1;
        }
    }
    assert!(first.is_some_and(|first| first > rounds), "{first:?}");
    assert_eq!(copied[..64], many, "oldest first");
    assert_eq!((copied.len(), ended(&mut engine).len()), (64 + more, 64 + more));
    assert!(!engine.has_lent());
}

#[test]
fn who_goes_to_sleep_gets_all_copied() {
    let (mut engine, peer) = connected();
    let sends: Vec<_> = (0..64).map(|_| lend(&mut engine, peer)).collect();
    assert_eq!(round(&mut engine, true), sends);
    assert_eq!(ended(&mut engine).len(), 64);
}

#[test]
fn what_is_lent_has_a_bound_and_other_frames_are_not() {
    let (mut engine, peer) = connected();
    for (len, delivery) in [(LEN, Delivery::Delivered), (0, Delivery::Sent), (100 << 10, Delivery::Sent)] {
        let (_, next) = send(&mut engine, peer, len, delivery);
        assert_eq!(engine.may_lend(&next, 1), None, "{next:?}");
        engine.transmitted(peer, &next);
    }
    let (_, next) = send(&mut engine, peer, LEN, Delivery::Sent);
    assert_eq!(engine.may_lend(&next, LEN as usize + 1), None, "too short");
    engine.transmitted(peer, &next);
    (0..MOST / LEN).for_each(|_| _ = lend(&mut engine, peer));
    let (_, next) = send(&mut engine, peer, LEN, Delivery::Sent);
    assert_eq!(engine.may_lend(&next, 1), None, "it is copied at once");
}

/// It was sent, which is all that was promised: as if it had been copied. What was only queued fails.
#[test]
fn a_peer_that_goes_ends_what_was_lent_as_sent() {
    let (mut engine, peer) = connected();
    let other = engine.add_peer();
    engine.connected(other, ROUTE);
    let (lent, stays) = (lend(&mut engine, peer), lend(&mut engine, other));
    let (queued, _) = send(&mut engine, peer, LEN, Delivery::Sent);
    engine.peer_down(peer);
    assert_eq!(ended(&mut engine), [(lent, Ok(())), (queued, Err(Failure::PeerGone))]);
    engine.returned(lent);
    assert_eq!(ended(&mut engine), []);
    assert_eq!(round(&mut engine, true), [stays], "another peer's waits as before");
}
