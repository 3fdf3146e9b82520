//! Two peers, each with a listener, that may connect at once: whatever the order in which things arrive, they end with one
//! session, and know it by the same name.

use crate::wireup_support::{initiate, key, offer, respond, sent_by_initiator, sent_by_responder};
use polyrail_core::wire::{Features, Key, Kind, Nonce, Reject, SessionId, Transport, Versions};
use polyrail_core::wireup::{
    Incoming, Initiate, Initiator, InitiatorEvent, Peer, PeerEvent, PeerState, Respond, Responder,
    ResponderEvent,
};
use proptest::prelude::*;

/// One end's view of a connection: dropped ends take no more bytes, and the other end reads the end of the stream.
struct Wire<M> {
    machine: Option<M>,
    /// Bytes on their way to this end.
    inbound: Vec<u8>,
    /// This end has read the end of the stream.
    ended: bool,
}

impl<M> Wire<M> {
    fn new(machine: M) -> Self {
        Self { machine: Some(machine), inbound: Vec::new(), ended: false }
    }
}

/// The connection that side `n` opened is `conns[n]`.
struct Conn {
    client: Wire<Initiator>,
    server: Wire<Responder>,
}

/// What can happen next.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    Connect(usize),
    ToServer(usize),
    ToClient(usize),
}

struct World {
    keys: [Key; 2],
    peers: [Peer; 2],
    conns: [Option<Conn>; 2],
    sessions: [Option<(usize, SessionId)>; 2],
    wants: [bool; 2],
    /// Nothing that is sent to side `n` on the connection that it opened arrives.
    hung: [bool; 2],
}

impl World {
    fn new(keys: [Key; 2], wants: [bool; 2]) -> Self {
        let [a, b] = keys.map(|key| key.id());
        Self {
            keys,
            peers: [Peer::new(a, b), Peer::new(b, a)],
            conns: [None, None],
            sessions: [None; 2],
            wants,
            hung: [false; 2],
        }
    }

    fn actions(&self) -> Vec<Action> {
        let mut all = Vec::new();
        for side in 0..2 {
            if self.wants[side] {
                all.push(Action::Connect(side));
            }
            let Some(conn) = &self.conns[side] else { continue };
            let (client, server) = (&conn.client, &conn.server);
            let due = |inbound: &[u8], gone: bool, ended: bool| !inbound.is_empty() || (gone && !ended);
            if due(&server.inbound, client.machine.is_none(), server.ended) {
                all.push(Action::ToServer(side));
            }
            if due(&client.inbound, server.machine.is_none(), client.ended) && !self.hung[side] {
                all.push(Action::ToClient(side));
            }
        }
        all
    }

    /// Does it, moving at most `n` bytes.
    fn act(&mut self, action: Action, n: usize) {
        match action {
            Action::Connect(side) => {
                self.wants[side] = false;
                if self.peers[side].connect() {
                    self.conns[side] = Some(self.open(side));
                    self.pump(side);
                }
            }
            Action::ToServer(side) => {
                let Some(Conn { server, .. }) = &mut self.conns[side] else { return };
                if server.inbound.is_empty() {
                    self.end(side, 1 - side);
                    return;
                }
                let n = n.min(server.inbound.len());
                let bytes: Vec<u8> = server.inbound.drain(..n).collect();
                if let Some(machine) = &mut server.machine {
                    assert_eq!(machine.handle_bytes(&bytes), Ok(bytes.len()));
                }
                self.responder_events(side);
            }
            Action::ToClient(side) => {
                let Some(Conn { client, .. }) = &mut self.conns[side] else { return };
                if client.inbound.is_empty() {
                    self.end(side, side);
                    return;
                }
                let n = n.min(client.inbound.len());
                let bytes: Vec<u8> = client.inbound.drain(..n).collect();
                if let Some(machine) = &mut client.machine {
                    assert_eq!(machine.handle_bytes(&bytes), Ok(bytes.len()));
                }
                self.initiator_events(side);
            }
        }
    }

    fn open(&self, side: usize) -> Conn {
        let (versions, features, kind) = (Versions::OURS, Features(0), Kind::Session);
        let (from, key) = (self.keys[side].id(), self.keys[1 - side]);
        let (ours, theirs) = (Nonce([side as u8 + 1; 16]), Nonce([side as u8 + 11; 16]));
        let transport = Transport::TCP;
        let initiate = Initiate { key, from, versions, features, kind, transport, nonce: ours };
        Conn {
            client: Wire::new(Initiator::new(initiate, offer(side as u32))),
            server: Wire::new(Responder::new(Respond { key, versions, features, nonce: theirs })),
        }
    }

    /// The end of connection `conn` at `side` is told that the other end is gone.
    fn end(&mut self, conn: usize, side: usize) {
        let ours = self.sessions[side].is_some_and(|(of, _)| of == conn);
        assert!(!ours, "a session's connection ended");
        if let Some(Conn { client, server }) = &mut self.conns[conn] {
            if conn == side {
                client.ended = true;
                assert!(client.machine.take().is_none(), "an attempt ended without a word");
            } else {
                server.ended = true;
                server.machine = None;
            }
        }
    }

    fn initiator_events(&mut self, side: usize) {
        loop {
            let Some(Conn { client, .. }) = &mut self.conns[side] else { return };
            match client.machine.as_mut().and_then(Initiator::poll_event) {
                Some(InitiatorEvent::NeedsKey) => panic!("nobody can encrypt anything here"),
                Some(InitiatorEvent::Proving) => self.peers[side].on(PeerEvent::Proving).unwrap(),
                Some(InitiatorEvent::Established(session)) => {
                    self.sessions[side] = Some((side, session.id));
                    self.peers[side].on(PeerEvent::Established).unwrap()
                }
                Some(InitiatorEvent::Rejected(reason)) => {
                    client.machine = None;
                    assert_eq!(reason, Reject::Simultaneous);
                    self.peers[side].rejected(reason).unwrap()
                }
                None => break,
            };
        }
        self.pump(side);
    }

    fn responder_events(&mut self, conn: usize) {
        let side = 1 - conn;
        loop {
            self.pump(conn);
            let Some(Conn { server, .. }) = &mut self.conns[conn] else { return };
            let Some(machine) = &mut server.machine else { return };
            match machine.poll_event() {
                Some(ResponderEvent::Authenticated(session)) => match self.peers[side].incoming() {
                    Incoming::Accept => {
                        machine.accept(&offer(side as u32)).unwrap();
                        self.sessions[side] = Some((conn, session.id));
                        if let Some(ours) = self.conns[side].as_mut() {
                            ours.client.machine = None;
                        }
                    }
                    Incoming::Reject(reason) => {
                        machine.reject(reason).unwrap();
                        self.pump(conn);
                        if let Some(Conn { server, .. }) = &mut self.conns[conn] {
                            server.machine = None;
                        }
                    }
                },
                Some(ResponderEvent::Established) => {
                    self.peers[side].on(PeerEvent::Established).unwrap();
                }
                None => return,
            }
        }
    }

    /// Puts what the machines of a connection have to send onto its streams.
    fn pump(&mut self, conn: usize) {
        let Some(Conn { client, server }) = &mut self.conns[conn] else { return };
        while let Some(bytes) = client.machine.as_ref().and_then(|it| it.poll_transmit()).map(<[u8]>::to_vec)
        {
            client.machine.as_mut().unwrap().transmitted(bytes.len());
            server.inbound.extend(bytes);
        }
        while let Some(bytes) = server.machine.as_ref().and_then(|it| it.poll_transmit()).map(<[u8]>::to_vec)
        {
            server.machine.as_mut().unwrap().transmitted(bytes.len());
            client.inbound.extend(bytes);
        }
    }

    fn assert_one_session(&self, how: &dyn std::fmt::Debug) {
        assert_eq!(self.peers.map(|peer| peer.state()), [PeerState::Connected; 2], "{how:?}");
        assert!(
            self.sessions[0].is_some() && self.sessions[0] == self.sessions[1],
            "{how:?}: {:?}",
            self.sessions
        );
        let winner = self.sessions[0].unwrap().0;
        let alive = |conn: &Conn| (conn.client.machine.is_some(), conn.server.machine.is_some());
        assert_eq!(self.conns[winner].as_ref().map(alive), Some((true, true)), "{how:?}");
        assert!(self.conns[1 - winner].as_ref().is_none_or(|conn| alive(conn) == (false, false)), "{how:?}");
    }
}

/// Keys of which the first has the lower identity, or the higher.
fn keys(lower_first: bool) -> [Key; 2] {
    let (a, b) = (key(1), key(2));
    if (a.id() < b.id()) == lower_first { [a, b] } else { [b, a] }
}

/// Follows every order in which records and ends of streams can arrive.
fn explore(make: &dyn Fn() -> World, path: &mut Vec<Action>, winners: &mut [usize; 2]) {
    let mut world = make();
    path.iter().for_each(|&action| world.act(action, usize::MAX));
    let actions = world.actions();
    if actions.is_empty() {
        world.assert_one_session(path);
        winners[world.sessions[0].unwrap().0] += 1;
    }
    for action in actions {
        path.push(action);
        explore(make, path, winners);
        path.pop();
    }
}

#[test]
fn one_session_in_every_order() {
    for lower_first in [true, false] {
        let mut winners = [0, 0];
        explore(&|| World::new(keys(lower_first), [true, true]), &mut Vec::new(), &mut winners);
        println!("lower first {lower_first}: each side's connection won in {winners:?} orders");
        assert!(winners.iter().all(|&orders| orders > 0), "an order that matters was not tried: {winners:?}");
    }
}

#[test]
fn when_both_have_sent_proof_the_lower_identity_wins() {
    for lower_first in [true, false] {
        let mut world = World::new(keys(lower_first), [true, true]);
        for side in 0..2 {
            world.act(Action::Connect(side), usize::MAX);
            world.act(Action::ToServer(side), usize::MAX);
        }
        (0..2).for_each(|side| world.act(Action::ToClient(side), usize::MAX));
        assert_eq!(world.peers.map(|peer| peer.state()), [PeerState::Proving; 2]);
        // The lower one hears of the other first, and must not give in.
        let lower = usize::from(!lower_first);
        world.act(Action::ToServer(1 - lower), usize::MAX);
        assert_eq!(world.peers[lower].state(), PeerState::Proving);
        world.act(Action::ToClient(1 - lower), usize::MAX);
        assert_eq!(world.peers[1 - lower].state(), PeerState::Awaiting);
        while let Some(&action) = world.actions().first() {
            world.act(action, usize::MAX);
        }
        world.assert_one_session(&"both proved");
        assert_eq!(world.sessions[0].unwrap().0, lower);
    }
}

#[test]
fn one_side_alone_needs_no_tie_break() {
    for (lower_first, side) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let mut winners = [0, 0];
        let wants = [side == 0, side == 1];
        explore(&|| World::new(keys(lower_first), wants), &mut Vec::new(), &mut winners);
        assert_eq!((winners[side], winners[1 - side]), (1, 0));
    }
}

#[test]
fn an_attempt_that_hangs_does_not_keep_the_other_away() {
    for lower_first in [true, false] {
        for hung in 0..2 {
            let mut world = World::new(keys(lower_first), [true, true]);
            world.hung[hung] = true;
            while let Some(&action) = world.actions().first() {
                world.act(action, usize::MAX);
            }
            world.assert_one_session(&(lower_first, hung));
            assert_eq!(world.sessions[0].unwrap().0, 1 - hung);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn one_session_however_bytes_are_split(
        lower_first: bool,
        choices in proptest::collection::vec((any::<u8>(), 1..120_usize), 1..60),
    ) {
        let mut world = World::new(keys(lower_first), [true, true]);
        for &(choice, n) in choices.iter().cycle() {
            let actions = world.actions();
            if actions.is_empty() {
                break;
            }
            world.act(actions[usize::from(choice) % actions.len()], n);
        }
        world.assert_one_session(&choices);
    }
}

fn peer(lower_first: bool) -> Peer {
    let [ours, theirs] = keys(lower_first).map(|key| key.id());
    Peer::new(ours, theirs)
}

#[test]
fn an_orderly_end_differs_from_an_abrupt_one() {
    let connected = || {
        let mut peer = peer(true);
        assert!(peer.connect() && !peer.connect());
        peer.on(PeerEvent::Proving).unwrap();
        peer.on(PeerEvent::Established).unwrap();
        peer
    };
    let end = |events: &[PeerEvent]| {
        let mut peer = connected();
        events.iter().for_each(|&event| assert!(peer.on(event).is_ok(), "{event:?}"));
        peer.state()
    };
    assert_eq!(end(&[PeerEvent::Bye]), PeerState::Closed);
    assert_eq!(end(&[PeerEvent::Lost]), PeerState::Failed);
}

#[test]
fn a_peer_that_lost_a_session_is_told_that_it_still_lives_here() {
    let mut here = peer(true);
    assert_eq!(here.incoming(), Incoming::Accept);
    assert_eq!(here.incoming(), Incoming::Reject(Reject::Exists));
    here.on(PeerEvent::Established).unwrap();
    assert_eq!(here.incoming(), Incoming::Reject(Reject::Exists));
    here.on(PeerEvent::Lost).unwrap();
    assert_eq!(here.incoming(), Incoming::Accept);
    let mut there = peer(false);
    there.connect();
    there.on(PeerEvent::Proving).unwrap();
    assert_eq!(there.rejected(Reject::Exists), Ok(PeerState::Failed));
    assert!(there.connect(), "and may try again");
}

/// A connection from `there` on which both prove the key; the session, or why there is none.
fn connects(there: &mut Peer, here: &mut Peer, nonce: u8) -> Result<SessionId, Reject> {
    assert!(there.connect());
    let mut initiator = Initiator::new(Initiate { nonce: Nonce([nonce; 16]), ..initiate() }, offer(1));
    let mut responder = Responder::new(respond());
    responder.handle_bytes(&sent_by_initiator(&mut initiator)).unwrap();
    initiator.handle_bytes(&sent_by_responder(&mut responder)).unwrap();
    assert_eq!(initiator.poll_event(), Some(InitiatorEvent::Proving));
    there.on(PeerEvent::Proving).unwrap();
    responder.handle_bytes(&sent_by_initiator(&mut initiator)).unwrap();
    assert!(matches!(responder.poll_event(), Some(ResponderEvent::Authenticated(_))));
    match here.incoming() {
        Incoming::Accept => {
            responder.accept(&offer(2)).unwrap();
        }
        Incoming::Reject(reason) => responder.reject(reason).unwrap(),
    }
    initiator.handle_bytes(&sent_by_responder(&mut responder)).unwrap();
    match initiator.poll_event() {
        Some(InitiatorEvent::Established(session)) => {
            here.on(PeerEvent::Established).unwrap();
            there.on(PeerEvent::Established).unwrap();
            Ok(session.id)
        }
        Some(InitiatorEvent::Rejected(reason)) => {
            there.rejected(reason).unwrap();
            Err(reason)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_restarted_peer_gets_a_new_session_once_the_old_one_is_found_dead() {
    for lower_first in [true, false] {
        let (mut here, mut there) = (peer(lower_first), peer(!lower_first));
        let old = connects(&mut there, &mut here, 1).unwrap();
        // it knows nothing of a session any more, and asks as often as it takes
        let mut there = peer(!lower_first);
        for nonce in 2..5 {
            assert_eq!(connects(&mut there, &mut here, nonce), Err(Reject::Exists));
            assert_eq!((here.state(), there.state()), (PeerState::Connected, PeerState::Failed));
        }
        here.on(PeerEvent::Lost).unwrap();
        let new = connects(&mut there, &mut here, 5).unwrap();
        assert_ne!(old, new);
        assert_eq!((here.state(), there.state()), (PeerState::Connected, PeerState::Connected));
    }
}

#[test]
fn waiting_for_the_other_ends_at_the_deadline() {
    let mut peer = peer(false);
    peer.connect();
    peer.on(PeerEvent::Proving).unwrap();
    assert_eq!(peer.rejected(Reject::Simultaneous), Ok(PeerState::Awaiting));
    assert!(!peer.connect());
    assert_eq!(peer.on(PeerEvent::Deadline), Ok(PeerState::Failed));
    assert_eq!(peer.incoming(), Incoming::Accept, "better late than never");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic = "a peer that is Idle cannot have Bye"]
fn what_cannot_happen_is_no_secret() {
    peer(false).must(PeerEvent::Bye);
}
