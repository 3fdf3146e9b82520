//! Numbers of peers, which are others' when nothing names them any more.

use polyrail_core::frame::{Frame, Matching, OpId, Order};
use polyrail_core::proto::{
    Action, Bounds, Completion, Config, Delivery, Directive, Filter, Message, PeerIdx, Route, Scheme,
};
use polyrail_core::sim::{Engine, Ticket};

fn engine() -> Engine {
    Engine::new(Config { window: 64, hash_seed: 1, bounds: Bounds::DEFAULT })
}

const ROUTE: Route =
    Route { eager_max: 100, fragment: 64, scheme: Scheme::Fragments, window: 64, immediate: false };

fn receive(engine: &mut Engine, source: Option<PeerIdx>) {
    engine.post(Filter { source, matching: Matching::Tag(0), ignore: 0 }, TICKET);
}

const TICKET: Ticket = Ticket { op: OpId { slot: 0, generation: 0 }, room: 100 };

fn drain(engine: &mut Engine) {
    while let Some(action) = engine.poll_action() {
        if let Action::Unstash { op, .. } = action {
            engine.unstashed(op);
        }
    }
    while engine.poll_ready().is_some() {}
}

/// A message of no bytes that nobody waits for comes from a peer.
fn message(engine: &mut Engine, peer: PeerIdx) {
    engine.connected(peer, ROUTE);
    let order = Order { seq: 0, credit: 0 };
    let frame = Frame::Eager { order, matching: Matching::Tag(0), data: None, ack: None };
    match engine.on_frame(peer, &frame, 0, None) {
        Directive::Place(_, after) => engine.placed(peer, after),
        directive => assert_eq!(directive, Directive::Done),
    }
    drain(engine);
}

/// The same from a peer that goes.
fn message_and_end(engine: &mut Engine, peer: PeerIdx) {
    message(engine, peer);
    assert!(!engine.remove_peer(peer), "it is connected");
    engine.peer_down(peer);
    drain(engine);
}

#[test]
fn a_number_is_anothers_when_nothing_names_it() {
    let mut engine = engine();
    let (first, second) = (engine.add_peer(), engine.add_peer());
    assert_ne!(first, second);
    assert!(engine.remove_peer(first));
    assert_eq!(engine.add_peer(), first);

    message_and_end(&mut engine, first);
    assert!(!engine.remove_peer(first), "its message can still be received");
    receive(&mut engine, Some(first));
    assert!(!engine.remove_peer(first), "the driver has not heard that it is received");
    drain(&mut engine);
    assert!(engine.remove_peer(first));
    assert_eq!(engine.add_peer(), first);
    // for whoever has it now, numbers begin anew
    message_and_end(&mut engine, first);
    receive(&mut engine, None);
    drain(&mut engine);
    assert!(engine.remove_peer(first));
}

/// A whole message that a receive has taken is received, though its sender is gone before the driver has copied it.
#[test]
fn what_is_being_copied_from_its_stash_arrives_whoever_dies() {
    let mut engine = engine();
    let peer = engine.add_peer();
    message(&mut engine, peer);
    receive(&mut engine, Some(peer));
    engine.peer_down(peer);
    assert!(!engine.remove_peer(peer));
    let mut results = Vec::new();
    while let Some(action) = engine.poll_action() {
        match action {
            Action::Unstash { op, .. } => engine.unstashed(op),
            Action::Complete(Completion::Recv { result, .. }) => results.push(result),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((results, engine.in_flight()), (vec![Ok(())], [0; 5]));
    assert!(engine.remove_peer(peer));
}

#[test]
fn a_number_that_an_operation_names_stays() {
    let mut engine = engine();
    let peer = engine.add_peer();
    engine.post(Filter { source: Some(peer), matching: Matching::Tag(7), ignore: 0 }, TICKET);
    assert!(!engine.remove_peer(peer));
    assert!(engine.cancel(|ticket| *ticket == TICKET));
    drain(&mut engine);

    let message = Message { matching: Matching::Tag(1), data: None, delivery: Delivery::Sent, len: 10 };
    engine.send(peer, message);
    assert!(!engine.remove_peer(peer));
    engine.peer_down(peer);
    assert!(!engine.remove_peer(peer), "the driver has not heard that the send failed");
    drain(&mut engine);
    assert!(engine.remove_peer(peer));
    assert_eq!((engine.add_peer(), engine.in_flight()), (peer, [0; 5]));
}
