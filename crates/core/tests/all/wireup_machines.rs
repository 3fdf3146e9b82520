//! The state machines of wireup, whole: tables and graphs are pinned, and no machine has a flaw that a table shows.

use crate::snapshot;
use polyrail_core::{
    state::Unexpected,
    wireup::machines::{INITIATOR, PEER, RESPONDER},
};

#[test]
fn initiator_is_as_pinned() {
    snapshot::machine(&INITIATOR);
}

#[test]
fn responder_is_as_pinned() {
    snapshot::machine(&RESPONDER);
}

#[test]
fn peer_is_as_pinned() {
    snapshot::machine(&PEER);
}

#[test]
fn an_unexpected_event_changes_nothing_and_says_so() {
    use polyrail_core::wireup::{PeerEvent, PeerState};
    let mut state = PeerState::Idle;
    let error = PEER.step(&mut state, PeerEvent::Bye).unwrap_err();
    assert_eq!(
        (state, error),
        (PeerState::Idle, Unexpected { state: PeerState::Idle, event: PeerEvent::Bye })
    );
    assert_eq!(error.to_string(), "Bye is not expected in state Idle");
}
