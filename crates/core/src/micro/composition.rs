//! Which compositions there are, and one of them at a time.

use super::asynchronous::Asynchronous;
use super::bbr::Bbr;
use super::control_ack::ControlAck;
use super::cubic::Cubic;
use super::dccp_ack::DCCPAck;
use super::dccp_window_congestion_control::DCCPWindowCongestionControl;
use super::delay_pace::DelayPace;
use super::duplicate_ack::DuplicateAck;
use super::htcp::Htcp;
use super::illinois::Illinois;
use super::loss_by_time::LossByTime;
use super::pacing::Pacing;
use super::path_mtu::PathMtu;
use super::positive_ack::PositiveAck;
use super::probing::Probing;
use super::reliable_fifo::ReliableFIFO;
use super::resize::Resize;
use super::retransmit::Retransmit;
use super::rtt_estimation::RTTEstimation;
use super::sequenced_segment::SequencedSegment;
use super::stack::{Limits, Received, Stack, Transmit};
use super::synchronous::Synchronous;
use super::tcp_congestion_avoidance::TCPCongestionAvoidance;
use super::tcp_new_reno::TCPNewRenoCongestionAvoidance;
use super::transport_driver::TransportDriver;
use super::windowed_congestion_control::WindowedCongestionControl;
use super::{Arrived, MicroProtocol, Names, PutError, Shared, Time, User};
use crate::values::{Register, Scheme};
use crate::wire::datagram::{Ack, Value};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// A list of micro-protocols, from the network up, as a type.
macro_rules! list {
    () => { () };
    ($first:ty $(, $rest:ty)*) => { ($first, list!($($rest),*)) };
}

/// Makes [`Composition`] and [`DataChannel`] from the compositions: a line each, its name in settings, its number on the wire, and its
/// micro-protocols; behind `=>` those that are for the stream of an asynchronous one, the control channel's share.
macro_rules! compositions {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $number:literal: $($micro:ty),+ $(=> $($share:ty),+)?;)+) => {
        /// Which composition.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        pub enum Composition {
            $($(#[$doc])* $name = $number,)+
        }

        impl Composition {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// What it is called.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Its micro-protocols, from the network up; without those that an asynchronous one has for its stream.
            pub fn micro_protocols(self) -> Vec<&'static str> {
                let mut names = Vec::new();
                match self { $(Self::$name => <list!($($micro),+)>::each(&mut |name| names.push(name)),)+ }
                names
            }

            /// Those that an asynchronous one has for its stream besides, the control channel's share.
            pub fn stream_micro_protocols(self) -> Vec<&'static str> {
                let mut names = Vec::new();
                match self { $(Self::$name => <list!($($($share),+)?)>::each(&mut |name| names.push(name)),)+ }
                names
            }

            /// What its users compute by.
            pub const fn scheme(self) -> Scheme {
                let has_values = match self { $(Self::$name => <list!($($micro),+)>::HAS_VALUES,)+ };
                if has_values { Scheme::Asynchronous } else { Scheme::Synchronous }
            }
        }

        /// The composition in force, with its state.
        #[derive(Debug)]
        pub enum DataChannel {
            $($(#[$doc])* $name(Box<Stack<list!($($micro),+ $(, $($share),+)?)>>),)+
        }

        impl DataChannel {
            /// A channel that begins now.
            pub fn new(composition: Composition, now: Time, limits: &Limits) -> Self {
                match composition { $(Composition::$name => Self::$name(Box::new(Stack::new(now, limits))),)+ }
            }

            /// Which it is.
            pub fn composition(&self) -> Composition {
                match self { $(Self::$name(_) => Composition::$name,)+ }
            }
        }

        /// Does the same with whichever it is.
        macro_rules! each {
            ($channel:expr, $stack:ident => $do:expr) => {
                match $channel { $(DataChannel::$name($stack) => $do,)+ }
            };
        }
    };
}

compositions! {
    /// P2PSAP's for the synchronous scheme within a cluster with InfiniBand, which is reliable.
    SyncIntraIb = "sync-intra-ib", 0: TransportDriver, Resize, Synchronous;
    /// P2PSAP's for the synchronous scheme within a cluster: Ethernet loses, and is not congested.
    SyncIntraEth = "sync-intra-eth", 1: TransportDriver, Resize, Synchronous, SequencedSegment, PositiveAck, Retransmit,
        RTTEstimation, ReliableFIFO;
    /// P2PSAP's for the synchronous scheme between clusters that InfiniBand joins.
    SyncInterIb = "sync-inter-ib", 2: TransportDriver, Resize, Synchronous;
    /// P2PSAP's for the synchronous scheme between clusters.
    SyncInterEth = "sync-inter-eth", 3: TransportDriver, Resize, Synchronous, SequencedSegment, PositiveAck, DuplicateAck,
        Retransmit, RTTEstimation, ReliableFIFO, WindowedCongestionControl, TCPNewRenoCongestionAvoidance;
    /// P2PSAP's for the asynchronous scheme within a cluster with InfiniBand.
    AsyncIntraIb = "async-intra-ib", 4: TransportDriver, Resize, Asynchronous;
    /// P2PSAP's for the asynchronous scheme within a cluster: nobody says which values came.
    AsyncIntraEth = "async-intra-eth", 5: TransportDriver, Resize, Asynchronous
        => SequencedSegment, ControlAck, RTTEstimation, Retransmit, ReliableFIFO;
    /// P2PSAP's for the asynchronous scheme between clusters that InfiniBand joins.
    AsyncInterIb = "async-inter-ib", 6: TransportDriver, Resize, Asynchronous;
    /// P2PSAP's for the asynchronous scheme between clusters: what came is said, for the windows.
    AsyncInterEth = "async-inter-eth", 7: TransportDriver, Resize, Asynchronous, DCCPAck, DCCPWindowCongestionControl,
        TCPCongestionAvoidance => RTTEstimation, Retransmit, ReliableFIFO;
    /// The synchronous scheme with what was learnt since: losses known by time, and what is sent spread over it.
    SyncReno = "sync-reno", 16: TransportDriver, Resize, Synchronous, SequencedSegment, PositiveAck, RTTEstimation, DuplicateAck,
        LossByTime, Probing, ReliableFIFO, Pacing, WindowedCongestionControl, TCPNewRenoCongestionAvoidance;
    /// The same with the controller that most hosts have.
    SyncCubic = "sync-cubic", 17: TransportDriver, Resize, Synchronous, SequencedSegment, PositiveAck, RTTEstimation, DuplicateAck,
        LossByTime, Probing, ReliableFIFO, PathMtu, Pacing, WindowedCongestionControl, Cubic;
    /// The same by a model of the path: random losses do not matter.
    SyncBbr = "sync-bbr", 18: TransportDriver, Resize, Synchronous, SequencedSegment, PositiveAck, RTTEstimation, DuplicateAck,
        LossByTime, Probing, ReliableFIFO, PathMtu, Pacing, WindowedCongestionControl, Bbr;
    /// For long fat paths: growth by the delay in queues.
    SyncIllinois = "sync-illinois", 19: TransportDriver, Resize, Synchronous, SequencedSegment, PositiveAck, RTTEstimation, DuplicateAck,
        LossByTime, Probing, ReliableFIFO, PathMtu, Pacing, WindowedCongestionControl, Illinois;
    /// For long fat paths: growth by the time since the last loss.
    SyncHtcp = "sync-htcp", 20: TransportDriver, Resize, Synchronous, SequencedSegment, PositiveAck, RTTEstimation, DuplicateAck,
        LossByTime, Probing, ReliableFIFO, PathMtu, Pacing, WindowedCongestionControl, Htcp;
    /// The asynchronous scheme today: what came is known, copies are sent of what may be lost, at a pace that lets no queue grow, since what
    /// waits in one is stale.
    AsyncPaced = "async-paced", 32: TransportDriver, Resize, Asynchronous, SequencedSegment, PositiveAck, RTTEstimation, DuplicateAck,
        LossByTime, Probing, PathMtu, Pacing, WindowedCongestionControl, DelayPace => ReliableFIFO;
}

impl Composition {
    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.name() == name)
    }

    /// The one of this number on the wire.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| *one as u8 == number)
    }

    /// Whether what is below has to be reliable and to keep the order, as InfiniBand's connections do: over UDP it is refused.
    pub const fn needs_reliable_network(self) -> bool {
        matches!(self, Self::SyncIntraIb | Self::SyncInterIb | Self::AsyncIntraIb | Self::AsyncInterIb)
    }

    /// Whether it is only taken where the user pins it.
    pub const fn is_pinned_only(self) -> bool {
        !matches!(self, Self::SyncCubic | Self::SyncBbr | Self::SyncIllinois | Self::AsyncPaced)
    }
}

impl DataChannel {
    /// [`Stack::shared`].
    pub fn shared(&self) -> &Shared {
        each!(self, stack => stack.shared())
    }
    /// [`Stack::extend`].
    pub fn extend(&mut self, end: u64) {
        each!(self, stack => stack.extend(end));
    }
    /// [`Stack::poll_transmit`].
    pub fn poll_transmit(&mut self, now: Time, room: &mut [u8], said: usize, must: bool) -> Option<Transmit> {
        each!(self, stack => stack.poll_transmit(now, room, said, must))
    }
    /// [`Stack::handle_arrival`].
    pub fn handle_arrival(&mut self, now: Time, arrived: &Arrived) -> Received {
        each!(self, stack => stack.handle_arrival(now, arrived))
    }
    /// [`Stack::handle_stream`].
    pub fn handle_stream<U: User>(&mut self, pos: u64, bytes: &[u8], user: &mut U) {
        each!(self, stack => stack.handle_stream(pos, bytes, user));
    }
    /// [`Stack::put_value`].
    ///
    /// # Errors
    /// Why it is not taken; nothing has changed then.
    pub fn put_value(&mut self, now: Time, tag: u64, iteration: u64, bytes: &[u8]) -> Result<(), PutError> {
        each!(self, stack => stack.put_value(now, tag, iteration, bytes))
    }
    /// [`Stack::owes_values`].
    pub fn owes_values(&self) -> bool {
        each!(self, stack => stack.owes_values())
    }
    /// [`Stack::give_back`].
    pub fn give_back(&mut self) -> Vec<Register> {
        each!(self, stack => stack.give_back())
    }
    /// [`Stack::handle_value`].
    pub fn handle_value<U: User>(&mut self, value: &Value<'_>, user: &mut U) {
        each!(self, stack => stack.handle_value(value, user));
    }
    /// [`Stack::handle_ack`].
    pub fn handle_ack(&mut self, ack: &Ack<'_>) {
        each!(self, stack => stack.handle_ack(ack));
    }
    /// [`Stack::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        each!(self, stack => stack.handle_timeout(now));
    }
    /// [`Stack::due`].
    pub fn due(&self) -> Time {
        each!(self, stack => stack.due())
    }
    /// [`Stack::wants_transmit`].
    pub fn wants_transmit(&mut self, now: Time) -> bool {
        each!(self, stack => stack.wants_transmit(now))
    }
    /// [`Stack::set_size`].
    pub fn set_size(&mut self, size: u32) {
        each!(self, stack => stack.set_size(size));
    }
    /// [`Stack::ask`].
    pub fn ask(&mut self) {
        each!(self, stack => stack.ask());
    }
    /// [`Stack::hurry`].
    pub fn hurry(&mut self, hurried: bool) {
        each!(self, stack => stack.hurry(hurried));
    }
    /// [`Stack::set_window`].
    pub fn set_window(&mut self, window: u64) {
        each!(self, stack => stack.set_window(window));
    }
    /// [`Stack::cut`].
    pub fn cut(&mut self) -> u64 {
        each!(self, stack => stack.cut())
    }
    /// [`Stack::note_words`].
    pub fn note_words(&mut self, now: Time, size: u32) -> u64 {
        each!(self, stack => stack.note_words(now, size))
    }
    /// [`Stack::assume_had`].
    pub fn assume_had(&mut self, upto: u64) {
        each!(self, stack => stack.assume_had(upto));
    }
    /// [`Stack::tell_losses`].
    pub fn tell_losses(&mut self, sent: u64, lost: u64) {
        each!(self, stack => stack.tell_losses(sent, lost));
    }
    /// [`Stack::wait`].
    pub fn wait(&mut self) {
        each!(self, stack => stack.wait());
    }
    /// [`Stack::begin_at`].
    pub fn begin_at(&mut self, start: u64) {
        each!(self, stack => stack.begin_at(start));
    }
    /// [`Stack::resume`].
    pub fn resume<U: User>(&mut self, from: u64, user: &mut U) {
        each!(self, stack => stack.resume(from, user));
    }
    /// [`Stack::rescue`].
    pub fn rescue(&mut self, range: Range<u64>) {
        each!(self, stack => stack.rescue(range));
    }
    /// [`Stack::hand_over`].
    pub fn hand_over(&mut self) -> Vec<Range<u64>> {
        each!(self, stack => stack.hand_over())
    }
}
