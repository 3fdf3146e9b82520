//! The state machines of wireup, whole: tables and graphs are pinned, and no machine has a flaw that a table shows.
mod snapshot;

use std::fmt::Debug;

use polyrail_core::{
    state::{Machine, Unexpected},
    wireup::machines::{INITIATOR, PEER, RESPONDER},
};

fn pin<S: Copy + Eq + Debug, E: Copy + Eq + Debug>(machine: &Machine<S, E>) {
    snapshot::check(&format!("{}.md", machine.name), &machine.table().to_string());
    snapshot::check(&format!("{}.dot", machine.name), &machine.dot().to_string());
    // Two arcs for one pair would hide one of them.
    for &state in machine.states {
        for &event in machine.events {
            let arcs =
                machine.arcs.iter().filter(|(from, on, _)| *on == event && from.contains(&state)).count();
            assert!(arcs <= 1, "{}: {arcs} arcs for {event:?} in {state:?}", machine.name);
        }
    }
    let mut reached = vec![machine.states[0]];
    let mut at = 0;
    while let Some(&state) = reached.get(at) {
        let next = machine.events.iter().filter_map(|&event| machine.next(state, event));
        let new: Vec<S> = next.filter(|next| !reached.contains(next)).collect();
        new.into_iter().for_each(|next| {
            if !reached.contains(&next) {
                reached.push(next)
            }
        });
        at += 1;
    }
    assert_eq!(reached.len(), machine.states.len(), "{}: reached are {reached:?}", machine.name);
}

#[test]
fn initiator_is_as_pinned() {
    pin(&INITIATOR);
}

#[test]
fn responder_is_as_pinned() {
    pin(&RESPONDER);
}

#[test]
fn peer_is_as_pinned() {
    pin(&PEER);
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
