//! One peer: connection on first use, simultaneous connects, the end.
//!
//! Two endpoints that have something to say to each other may both connect at once, and must end up with one session. The
//! point of no return is the initiator's PROOF: until then the other side cannot accept, so whoever is offered a connection
//! before it has sent its own PROOF takes it and drops its own. When both have sent PROOF, the connection of the lower
//! [`PeerId`] wins: the lower one rejects the other's with [`Reject::Simultaneous`], the higher one accepts. An attempt
//! that hangs (a firewall on one side) thus never keeps away the one that works.
//!
//! The driver tells a [`Peer`] what happens on the connection in question only: once it was told to drop its own attempt, or
//! has rejected the other's, what becomes of those is no news.

use crate::{
    state::{Machine, Unexpected},
    wire::{PeerId, Reject},
};

/// How this side stands with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// Nothing was ever said.
    Idle,
    /// Our connection is being opened; the peer has not proved the key.
    Connecting,
    /// Our PROOF is sent.
    Proving,
    /// Our attempt lost against the peer's own, which must come before the caller's deadline.
    Awaiting,
    /// We accept the peer's connection; VERDICT is on its way.
    Accepting,
    /// There is a session.
    Connected,
    /// The peer said BYE.
    Closed,
    /// The session, or the attempt at one, ended without BYE.
    Failed,
}

/// What happens to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerEvent {
    /// There is something to send.
    Connect,
    /// Our initiator says [`super::InitiatorEvent::Proving`].
    Proving,
    /// A peer with a lower identity than ours proved the key on a connection of its own.
    LowerConnects,
    /// A peer with a higher identity than ours did.
    HigherConnects,
    /// The initiator, or the responder that we accepted, says Established.
    Established,
    /// Our attempt was rejected with [`Reject::Simultaneous`].
    Simultaneous,
    /// Our attempt was refused in any other way.
    Refused,
    /// The peer said BYE.
    Bye,
    /// The connection ended.
    Lost,
    /// The caller's deadline passed.
    Deadline,
}

/// A peer as data.
pub const PEER: Machine<PeerState, PeerEvent> = {
    use PeerEvent::{
        Bye, Connect, Deadline, Established, HigherConnects, Lost, LowerConnects, Proving as Proves, Refused,
        Simultaneous,
    };
    use PeerState::{Accepting, Awaiting, Closed, Connected, Connecting, Failed, Idle, Proving};
    Machine {
        name: "peer",
        states: &[Idle, Connecting, Proving, Awaiting, Accepting, Connected, Closed, Failed],
        events: &[
            Connect,
            Proves,
            LowerConnects,
            HigherConnects,
            Established,
            Simultaneous,
            Refused,
            Bye,
            Lost,
            Deadline,
        ],
        arcs: &[
            (&[Idle, Closed, Failed], Connect, Connecting),
            (&[Connecting], Proves, Proving),
            (&[Idle, Connecting, Proving, Awaiting, Closed, Failed], LowerConnects, Accepting),
            (&[Idle, Connecting, Awaiting, Closed, Failed], HigherConnects, Accepting),
            (&[Proving, Accepting], Established, Connected),
            (&[Proving], Simultaneous, Awaiting),
            (&[Connecting, Proving], Refused, Failed),
            (&[Connected], Bye, Closed),
            (&[Connecting, Proving, Accepting, Connected], Lost, Failed),
            (&[Connecting, Proving, Awaiting, Accepting], Deadline, Failed),
        ],
    }
};

/// What to do with a connection on which the peer has proved the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// Accept it. If our own attempt is under way, it must be dropped now, before it is given another byte.
    Accept,
    /// Reject it.
    Reject(Reject),
}

/// How this side stands with one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    event_if_connects: PeerEvent,
    state: PeerState,
}

impl Peer {
    /// Idle. `local` and `remote` differ: nobody connects to itself.
    pub fn new(local: PeerId, remote: PeerId) -> Self {
        let lower = remote < local;
        let event_if_connects = if lower { PeerEvent::LowerConnects } else { PeerEvent::HigherConnects };
        Self { event_if_connects, state: PeerState::Idle }
    }

    /// How this side stands.
    pub const fn state(&self) -> PeerState {
        self.state
    }

    /// There is something to send. True: open a connection now. False: there is one, or one is coming.
    pub fn connect(&mut self) -> bool {
        PEER.step(&mut self.state, PeerEvent::Connect).is_ok()
    }

    /// The peer proved the key on a connection of its own: what to do with it. [`Reject::Exists`] means that the peer may
    /// have lost a session that lives here: a driver does well to find out, and end it with [`PeerEvent::Lost`]. (It may as
    /// well be an attempt that the peer gave up when it accepted ours; so the session cannot simply be replaced.)
    pub fn incoming(&mut self) -> Incoming {
        let before = self.state;
        match PEER.step(&mut self.state, self.event_if_connects) {
            Ok(_) => Incoming::Accept,
            Err(_) if before == PeerState::Proving => Incoming::Reject(Reject::Simultaneous),
            Err(_) => Incoming::Reject(Reject::Exists),
        }
    }

    /// Our attempt was rejected.
    pub fn rejected(&mut self, reason: Reject) -> Result<PeerState, Unexpected<PeerState, PeerEvent>> {
        self.on(if reason == Reject::Simultaneous { PeerEvent::Simultaneous } else { PeerEvent::Refused })
    }

    /// What can only happen in a state that expects it happened. Anything else is a mistake of the driver's, which debug builds
    /// end at; in others it changes nothing.
    pub fn must(&mut self, event: PeerEvent) {
        let outcome = self.on(event);
        debug_assert!(outcome.is_ok(), "a peer that is {:?} cannot have {event:?}", self.state);
    }

    /// Anything else happened. An event that is not expected changes nothing.
    pub fn on(&mut self, event: PeerEvent) -> Result<PeerState, Unexpected<PeerState, PeerEvent>> {
        PEER.step(&mut self.state, event)
    }
}
