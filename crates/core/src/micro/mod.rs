//! The data channel: micro-protocols, each one small function of reliability or congestion control in a file of its own, and the
//! stacks that are composed of them. No I/O and no clock: datagrams, acknowledgements and time go in; what to send, what to
//! deliver and when to be asked again come out.
//!
//! The model is that of Cactus and CTP (Wong, Hiltunen, Schlichting, INFOCOM 2001), which P2PSAP composes its data channel of:
//! micro-protocols share state ([`Shared`]) and handle events ([`MicroProtocol`]). There, events find their handlers at run time; here, a
//! composition is a type, and each event is compiled to the handlers that the composition has. A stack
//! is listed from the network up: what comes is handled in the list's order, what leaves in the opposite one.
//!
//! What a synchronous channel carries is one stream of bytes in each direction, by positions; a **segment** is a range of it, which
//! may be cut anew when it is sent again. What an asynchronous one carries are values, of which only the latest counts; parts of them are the
//! user's as they come ([`crate::values`] puts them together).
//! **Datagrams** are numbered anew, whatever they carry, so that an acknowledgement is always of one sending.
//!
//! | file | holds |
//! |---|---|
//! | `stack.rs` | the driver of one composition: the order of events |
//! | `composition.rs` | which compositions there are, by name, and one of them at a time: [`DataChannel`] |
//! | `shared.rs`, `flight.rs` | what micro-protocols share: figures, what is on its way |
//! | `delivery.rs` | how fast the other side gets what is sent |
//! | `acknowledging.rs` | what those have in common that say which datagrams came |
//! | `congestion.rs`, `hystart.rs`, `episode.rs` | what congestion controllers have in common |
//! | the others | a micro-protocol each, named as its type |
//!
//! Invariants:
//! - Whatever arrives, memory is bounded: what waits for its turn by the window that the other side was told of, values by
//!   [`values::BYTES`](crate::values::BYTES) and [`values::TAGS`](crate::values::TAGS), numbers by [`ranges::MAX`](crate::ranges::MAX), what is on its way by the congestion window or, where there is none, by that of the other side.
//! - A micro-protocol keeps to its own state and the part of [`Shared`] that is said to be its own; it never calls another.

mod composition;
pub mod delivery;
pub mod flight;
pub mod shared;
pub mod stack;

mod acknowledging;
mod asynchronous;
mod bbr;
mod congestion;
mod control_ack;
mod cubic;
mod dccp_ack;
mod dccp_window_congestion_control;
mod delay_pace;
mod duplicate_ack;
mod episode;
mod htcp;
mod hystart;
mod illinois;
mod loss_by_time;
mod pacing;
mod path_mtu;
mod positive_ack;
mod probing;
mod reliable_fifo;
mod resize;
mod retransmit;
mod rtt_estimation;
mod sequenced_segment;
mod synchronous;
mod tcp_congestion_avoidance;
mod tcp_new_reno;
mod transport_driver;
mod windowed_congestion_control;

pub use crate::values::{PutError, Scheme};
pub use composition::{Composition, DataChannel};
pub use delivery::RateSample;
pub use flight::{Fate, Sent};
pub use shared::{Known, Settled, Shared};
pub use stack::{Limits, Received, Transmit};

use crate::values::Register;
use crate::wire::datagram::{Ack, Value, Writer};
use alloc::vec::Vec;

/// Nanoseconds of any clock that does not jump.
pub type Time = u64;
/// No time: never.
pub const NEVER: Time = Time::MAX;

/// A range of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Where it begins.
    pub pos: u64,
    /// Bytes; 0: there is none.
    pub len: u32,
}

impl Segment {
    /// The position after its last byte.
    pub const fn end(&self) -> u64 {
        self.pos + self.len as u64
    }
}

/// A datagram that is being made.
pub struct Outgoing<'a> {
    /// Where its chunks are written.
    pub to: Writer<'a>,
    /// The part of the stream that it carries; its bytes follow the chunks.
    pub segment: Segment,
    /// It may carry data: no send bit is in the way, or it is a probe.
    pub takes_data: bool,
    /// It carries parts of values, whose bytes are written already, and nothing of the stream.
    pub values: bool,
    /// It is sent to be acknowledged.
    pub elicits: bool,
    /// It asks whether the path takes datagrams of its size, and has room for no more than it has to have.
    pub probes_path: bool,
}

/// A datagram that came.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Its number.
    pub number: u64,
    /// Bytes of it.
    pub size: u32,
    /// It wants to be acknowledged.
    pub elicits: bool,
    /// A router marked it, because its queue grows (RFC 3168).
    pub marked: bool,
}

/// Who is given what came.
pub trait User {
    /// The next bytes of the stream.
    fn deliver(&mut self, bytes: &[u8]);

    /// Whether there is a place for values now. What there is none for is not acknowledged, and comes again.
    fn takes_values(&self) -> bool;

    /// A part of a value.
    fn value(&mut self, value: &Value<'_>);
}

/// Who wants nothing but the stream.
impl<F: FnMut(&[u8])> User for F {
    fn deliver(&mut self, bytes: &[u8]) {
        self(bytes);
    }
    fn takes_values(&self) -> bool {
        true
    }
    fn value(&mut self, _value: &Value<'_>) {}
}

/// One small function of a data channel. Each event has a handler that does nothing by default. The names of CTP's events are given
/// where there is one.
#[expect(clippy::wrong_self_convention, reason = "events are named as CTP names them")]
pub trait MicroProtocol {
    /// Its name, as in P2PSAP's table of compositions where it stands there.
    const NAME: &'static str;
    /// Whether it sees to values.
    const HAS_VALUES: bool = false;

    /// *Open*: the channel begins; `shared` holds what is known of the path.
    fn open(&mut self, _shared: &mut Shared) {}

    /// Its send bit: whether a datagram of so many bytes that carries data may leave now. Probes and acknowledgements leave regardless.
    fn allows(&self, _shared: &Shared, _size: u32) -> bool {
        true
    }

    /// Whether a datagram is to leave even if it carries no data.
    fn urges(&self, _shared: &Shared) -> bool {
        false
    }

    /// *SegmentToNet*: adds what it has to say to a datagram.
    fn to_net(&mut self, _shared: &mut Shared, _out: &mut Outgoing<'_>) {}

    /// *SegmentSent*.
    fn sent(&mut self, _shared: &mut Shared, _sent: &Sent) {}

    /// *SegmentFromNet*: a datagram came, whose number was not had before. False: it is dropped.
    fn from_net(&mut self, _shared: &mut Shared, _arrived: &Arrived) -> bool {
        true
    }

    /// *SegmentToUser*: true if it has seen to these bytes of the stream, which else go to the user as they are.
    fn to_user<U: User>(&mut self, _shared: &mut Shared, _pos: u64, _bytes: &[u8], _user: &mut U) -> bool {
        false
    }

    /// What was kept because the channel before had its turn may be given to the user, from [`Shared::delivered`] on.
    fn resume<U: User>(&mut self, _shared: &mut Shared, _user: &mut U) {}

    /// *SegmentFromUser*, of a value: the newest of its tag.
    ///
    /// # Errors
    /// Why it is not taken; nothing has changed then.
    fn put_value(
        &mut self,
        _shared: &mut Shared,
        _tag: u64,
        _iteration: u64,
        _bytes: &[u8],
    ) -> Result<(), PutError> {
        Err(PutError::Synchronous)
    }

    /// Whether values are to leave, or may not have come.
    fn owes_values(&self) -> bool {
        false
    }

    /// The values that were given, are the newest of their tags, and are not known to have come; the channel forgets all values.
    fn give_back(&mut self, _shared: &mut Shared) -> Vec<Register> {
        Vec::new()
    }

    /// A part of a value came, which is the user's.
    fn value_from_net(&mut self, _shared: &mut Shared) {}

    /// *AckFromNet*: what the other side says it had; names what is acknowledged by [`Shared::acknowledge`].
    fn ack_from_net(&mut self, _shared: &mut Shared, _ack: &Ack<'_>) {}

    /// *SegmentAcked*: of what was acknowledged, one after the other.
    fn acked(&mut self, _shared: &mut Shared, _sent: &Sent) {}

    /// After all that an acknowledgement brought: names what counts as lost by [`Shared::lose`].
    fn detect(&mut self, _shared: &mut Shared) {}

    /// *SegmentLost*: of what counts as lost, one after the other.
    fn lost(&mut self, _shared: &mut Shared, _sent: &Sent) {}

    /// A datagram that counted as lost has come after all.
    fn spurious(&mut self, _shared: &mut Shared, _sent: &Sent) {}

    /// All that an acknowledgement, or a timer, brought has been told.
    fn settled(&mut self, _shared: &mut Shared, _settled: &Settled) {}

    /// *SegmentTimeout*: some timer is due, perhaps its own. What it finds lost it names by [`Shared::lose`].
    fn timeout(&mut self, _shared: &mut Shared) {}

    /// When its timer is due; [`NEVER`] without one.
    fn due(&self, _shared: &Shared) -> Time {
        NEVER
    }
}

/// The end of a list.
impl MicroProtocol for () {
    const NAME: &'static str = "";
}

/// A micro-protocol, and those above it.
impl<A: MicroProtocol, B: MicroProtocol> MicroProtocol for (A, B) {
    const NAME: &'static str = "";
    const HAS_VALUES: bool = A::HAS_VALUES || B::HAS_VALUES;

    #[inline(always)]
    fn open(&mut self, shared: &mut Shared) {
        self.0.open(shared);
        self.1.open(shared);
    }
    #[inline(always)]
    fn allows(&self, shared: &Shared, size: u32) -> bool {
        self.0.allows(shared, size) && self.1.allows(shared, size)
    }
    #[inline(always)]
    fn urges(&self, shared: &Shared) -> bool {
        self.0.urges(shared) || self.1.urges(shared)
    }
    #[inline(always)]
    fn to_net(&mut self, shared: &mut Shared, out: &mut Outgoing<'_>) {
        self.1.to_net(shared, out);
        self.0.to_net(shared, out);
    }
    #[inline(always)]
    fn sent(&mut self, shared: &mut Shared, sent: &Sent) {
        self.1.sent(shared, sent);
        self.0.sent(shared, sent);
    }
    #[inline(always)]
    fn from_net(&mut self, shared: &mut Shared, arrived: &Arrived) -> bool {
        self.0.from_net(shared, arrived) && self.1.from_net(shared, arrived)
    }
    #[inline(always)]
    fn to_user<U: User>(&mut self, shared: &mut Shared, pos: u64, bytes: &[u8], user: &mut U) -> bool {
        self.0.to_user(shared, pos, bytes, user) || self.1.to_user(shared, pos, bytes, user)
    }
    #[inline(always)]
    fn resume<U: User>(&mut self, shared: &mut Shared, user: &mut U) {
        self.0.resume(shared, user);
        self.1.resume(shared, user);
    }
    #[inline(always)]
    fn put_value(
        &mut self,
        shared: &mut Shared,
        tag: u64,
        iteration: u64,
        bytes: &[u8],
    ) -> Result<(), PutError> {
        match A::HAS_VALUES {
            true => self.0.put_value(shared, tag, iteration, bytes),
            false => self.1.put_value(shared, tag, iteration, bytes),
        }
    }
    #[inline(always)]
    fn owes_values(&self) -> bool {
        self.0.owes_values() || self.1.owes_values()
    }
    #[inline(always)]
    fn give_back(&mut self, shared: &mut Shared) -> Vec<Register> {
        match A::HAS_VALUES {
            true => self.0.give_back(shared),
            false => self.1.give_back(shared),
        }
    }
    #[inline(always)]
    fn value_from_net(&mut self, shared: &mut Shared) {
        self.0.value_from_net(shared);
        self.1.value_from_net(shared);
    }
    #[inline(always)]
    fn ack_from_net(&mut self, shared: &mut Shared, ack: &Ack<'_>) {
        self.0.ack_from_net(shared, ack);
        self.1.ack_from_net(shared, ack);
    }
    #[inline(always)]
    fn acked(&mut self, shared: &mut Shared, sent: &Sent) {
        self.0.acked(shared, sent);
        self.1.acked(shared, sent);
    }
    #[inline(always)]
    fn detect(&mut self, shared: &mut Shared) {
        self.0.detect(shared);
        self.1.detect(shared);
    }
    #[inline(always)]
    fn lost(&mut self, shared: &mut Shared, sent: &Sent) {
        self.0.lost(shared, sent);
        self.1.lost(shared, sent);
    }
    #[inline(always)]
    fn spurious(&mut self, shared: &mut Shared, sent: &Sent) {
        self.0.spurious(shared, sent);
        self.1.spurious(shared, sent);
    }
    #[inline(always)]
    fn settled(&mut self, shared: &mut Shared, settled: &Settled) {
        self.0.settled(shared, settled);
        self.1.settled(shared, settled);
    }
    #[inline(always)]
    fn timeout(&mut self, shared: &mut Shared) {
        self.0.timeout(shared);
        self.1.timeout(shared);
    }
    #[inline(always)]
    fn due(&self, shared: &Shared) -> Time {
        self.0.due(shared).min(self.1.due(shared))
    }
}

/// The names of a list's micro-protocols, from the network up.
pub trait Names {
    /// Calls this with each of them.
    fn each(with: &mut dyn FnMut(&'static str));
}

impl Names for () {
    fn each(_with: &mut dyn FnMut(&'static str)) {}
}

impl<A: MicroProtocol, B: Names> Names for (A, B) {
    fn each(with: &mut dyn FnMut(&'static str)) {
        with(A::NAME);
        B::each(with);
    }
}
