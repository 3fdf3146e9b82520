//! Numbers of peers, which are others' when nothing names them any more.

use polyrail_core::frame::{Frame, Matching, Order};
use polyrail_core::proto::{
    Bounds, Config, Delivery, Directive, Engine, Filter, Message, PeerIdx, Route, Scheme,
};

fn engine() -> Engine {
    Engine::new(Config { window: 64, hash_seed: 1, bounds: Bounds::DEFAULT })
}

const ROUTE: Route =
    Route { eager_max: 100, fragment: 64, scheme: Scheme::Fragments, window: 64, immediate: false };

fn receive(engine: &mut Engine, source: Option<PeerIdx>) {
    engine.post(100, Filter { source, matching: Matching::Tag(0), ignore: 0 });
}

fn drain(engine: &mut Engine) {
    while engine.poll_action().is_some() {}
    while engine.poll_ready().is_some() {}
}

/// A message of no bytes that nobody waits for comes from a peer, which goes.
fn message_and_end(engine: &mut Engine, peer: PeerIdx, seq: u32) {
    engine.connected(peer, ROUTE);
    let frame =
        Frame::Eager { order: Order { seq, credit: 0 }, matching: Matching::Tag(0), data: None, ack: None };
    match engine.on_frame(peer, &frame, 0, None) {
        Directive::Place(_, after) => engine.placed(peer, after),
        directive => assert_eq!(directive, Directive::Done),
    }
    drain(engine);
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

    message_and_end(&mut engine, first, 0);
    assert!(!engine.remove_peer(first), "its message can still be received");
    receive(&mut engine, Some(first));
    assert!(!engine.remove_peer(first), "the driver has not heard that it is received");
    drain(&mut engine);
    assert!(engine.remove_peer(first));
    assert_eq!(engine.add_peer(), first);
    // for whoever has it now, numbers begin anew
    message_and_end(&mut engine, first, 0);
    receive(&mut engine, None);
    drain(&mut engine);
    assert!(engine.remove_peer(first));
}

#[test]
fn a_number_that_an_operation_names_stays() {
    let mut engine = engine();
    let peer = engine.add_peer();
    let posted = engine.post(100, Filter { source: Some(peer), matching: Matching::Tag(7), ignore: 0 });
    assert!(!engine.remove_peer(peer));
    engine.cancel(posted);
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
