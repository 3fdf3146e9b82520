//! One of each rail: [`Rails`]. Which there are is said by [`crate::list`].
//!
//! A worker names a link by rail and number, [`RailLink`], and calls [`Rails`] with it. Each operation is a match over the rails,
//! compiled for each of them: nothing on the way of a frame is called by an address.

use crate::config::Config;
use crate::error::Error;
use crate::list::{RailId, Reach, listed, rails};
use crate::rail::connect::{Connector, Discovered};
use crate::rail::control::{Change, Control};
use crate::rail::direct::{Direct, DirectError, Transfer};
use crate::rail::fault::Fault;
use crate::rail::{
    Ack, Caps, Full, LaneRail, Lanes, LinkId, LinkStats, Look, Memory, Rail, RawIov, Span, UnackedFrame,
};
use polyrail_core::control::losses::Losses;
use polyrail_core::frame::{Acked, OpId, PlainEager};
use polyrail_core::proto::PeerIdx;
use polyrail_core::values::Scheme;
use polyrail_core::wire::PeerId;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Instant;

/// A link of any rail.
pub type RailLink = (RailId, LinkId);

/// No link: none has this number.
pub const NO_LINK: RailLink = (RailId::ALL[0], LinkId(u32::MAX));

/// Something that is to be done with each rail in turn.
pub trait EachRail {
    /// Does it.
    fn with<R: Rail>(&mut self, id: RailId, rail: &mut R);
}

/// Makes [`Rails`] and its operations from the list of rails.
macro_rules! set {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $reach:ident, $wire:expr, $field:ident: $module:ident::$rail:ident;)+) => {
        impl RailId {
            /// What the rail is like.
            #[inline]
            pub const fn caps(self) -> &'static Caps {
                match self {
                    $(Self::$name => &<crate::$module::$rail as Rail>::CAPS,)+
                }
            }

            /// Whether nothing that leaves this host by it does so in the clear where connections are to be encrypted: lanes that are
            /// agreed by words have no keys.
            pub const fn seals_all(self) -> bool {
                let Caps { seals, lanes, .. } = self.caps();
                !matches!(self.reach(), Reach::Network) || (*seals && !matches!(lanes, Lanes::ByWord))
            }

            /// What the rail would use on this machine, and what keeps it from being used.
            ///
            /// # Errors
            /// When the system does not tell.
            pub fn discover(self, settings: &Config) -> Result<Discovered, Error> {
                match self {
                    $(Self::$name => <crate::$module::$rail as Connector>::discover(settings),)+
                }
            }
        }

        /// One of each rail.
        pub struct Rails {
            $($(#[$doc])* pub $field: Fault<crate::$module::$rail>,)+
        }

        impl Rails {
            /// Opens all of them, without links.
            ///
            /// # Errors
            /// When the system has no descriptor left, or a setting cannot be used.
            pub fn open(config: &Config) -> Result<Self, Error> {
                let failed = |id: RailId, why| Error::system(format!("opening the {} rail", id.name()), why);
                Ok(Self {
                    $($field: Fault::<crate::$module::$rail>::open(config).map_err(|why| failed(RailId::$name, why))?,)+
                })
            }

            /// A rail's part in wireup.
            pub fn connector(&mut self, rail: RailId) -> &mut dyn Connector {
                match rail { $(RailId::$name => &mut self.$field.rail,)+ }
            }

            /// [`Connector::begins_by`].
            pub fn begins_by(&self, rail: RailId) -> Option<Control> {
                match rail { $(RailId::$name => self.$field.rail.begins_by(),)+ }
            }

            /// Does something with each rail, in the order of [`RailId::ALL`].
            #[inline]
            pub fn each(&mut self, what: &mut impl EachRail) {
                $(what.with(RailId::$name, &mut self.$field);)+
            }
        }

        dispatch! { $($name, $field);+ }
    };
}

/// The operations of [`Rail`] and [`LaneRail`] on one link of the set.
macro_rules! dispatch {
    ($($name:ident, $field:ident);+) => {
        impl Rails {
            /// [`Rail::send`].
            ///
            /// # Errors
            /// [`Full`].
            ///
            /// # Safety
            /// The memory at `iov` is readable during the call.
            #[inline]
            pub unsafe fn send(
                &mut self,
                (rail, link): RailLink,
                header: &[u8],
                iov: &[RawIov],
                span: Option<Span>,
            ) -> Result<(), Full> {
                match rail {
                    // SAFETY: our caller's word.
                    $(RailId::$name => unsafe { self.$field.send(link, header, iov, span) },)+
                }
            }

            /// [`Rail::try_eager`].
            ///
            /// # Safety
            /// The memory of `piece` is readable during the call.
            #[inline(always)]
            pub unsafe fn try_eager(&mut self, (rail, link): RailLink, eager: PlainEager, piece: RawIov) -> bool {
                // in their order: the commonest is the first
                $(if rail == RailId::$name {
                    // SAFETY: our caller's word.
                    return unsafe { self.$field.try_eager(link, eager, piece) };
                })+
                false
            }

            /// [`Rail::wants_more`].
            #[inline]
            pub fn wants_more(&self, (rail, link): RailLink) -> bool {
                match rail { $(RailId::$name => self.$field.wants_more(link),)+ }
            }

            /// [`Rail::close`].
            pub fn close(&mut self, (rail, link): RailLink) {
                match rail { $(RailId::$name => self.$field.close(link),)+ }
            }

            /// [`Rail::idle`].
            pub fn idle(&self, (rail, link): RailLink) -> bool {
                match rail { $(RailId::$name => self.$field.idle(link),)+ }
            }

            /// [`Rail::traffic`].
            pub fn traffic(&self, (rail, link): RailLink) -> Option<(u64, u64)> {
                match rail { $(RailId::$name => self.$field.traffic(link),)+ }
            }

            /// [`Rail::watch`].
            pub fn watch(&mut self, (rail, link): RailLink, ends: (PeerId, PeerId)) {
                match rail { $(RailId::$name => self.$field.watch(link, ends),)+ }
            }

            /// [`Rail::probe`].
            pub fn probe(&mut self, (rail, link): RailLink) {
                match rail { $(RailId::$name => self.$field.probe(link),)+ }
            }

            /// [`Rail::flush`] of all.
            #[inline]
            pub fn flush<M: Memory + ?Sized>(&mut self, mem: &M) {
                $(self.$field.flush(mem);)+
            }

            /// [`Rail::holds_back`] of any.
            #[inline(always)]
            pub fn holds_back(&self) -> bool {
                $(self.$field.holds_back())||+
            }

            /// Whether any has links whose peers hear only by progress that this side is there.
            pub fn by_program(&self) -> bool {
                $((RailId::$name.caps().by_program && self.$field.links() > 0))||+
            }

            /// [`Rail::skip`] of all that it costs nothing to look at.
            #[inline(always)]
            pub fn skip(&mut self) -> bool {
                $((RailId::$name.caps().look != Look::Memory || self.$field.skip()))&&+
            }

            /// [`Rail::look_around`] of all.
            pub fn look_around(&mut self) {
                $(self.$field.look_around();)+
            }

            /// [`Rail::in_bulk`] of any.
            pub fn in_bulk(&self) -> bool {
                $(self.$field.in_bulk())||+
            }

            /// [`Rail::arm`] of all, up to the first that has something.
            pub fn arm(&mut self) -> bool {
                $(self.$field.arm())&&+
            }

            /// The earliest [`Rail::due`].
            pub fn due(&self) -> Option<Instant> {
                [$(self.$field.due()),+].into_iter().flatten().min()
            }

            /// [`Rail::wait_fd`] of those that have one.
            pub fn wait_fds(&self) -> impl Iterator<Item = RawFd> {
                [$(self.$field.wait_fd()),+].into_iter().flatten()
            }

            /// Links to other processes that are up, of the rails that cost so much to look at.
            #[inline]
            pub fn links(&self, look: Look) -> usize {
                0 $(+ if RailId::$name.caps().look == look { self.$field.links() } else { 0 })+
            }

            /// [`Direct::start`].
            ///
            /// # Errors
            /// The transfer.
            pub fn start(&mut self, rail: RailId, transfer: Transfer) -> Result<(), Transfer> {
                match rail { $(RailId::$name => self.$field.start(transfer),)+ }
            }

            /// [`Direct::poll`] of all, up to the first transfer that has ended.
            pub fn poll_direct<M: Memory + ?Sized>(
                &mut self,
                mem: &M,
                budget: &mut usize,
            ) -> Option<(Transfer, Result<(), DirectError>)> {
                $(if let Some(ended) = self.$field.poll(mem, budget) {
                    return Some(ended);
                })+
                None
            }

            /// [`Direct::transfers`] of all.
            pub fn transfers(&self) -> usize {
                0 $(+ self.$field.transfers())+
            }

            /// [`LaneRail::take_ack`] of any.
            pub fn take_ack(&mut self) -> Option<(RailId, Ack)> {
                $(if let Some(ack) = self.$field.take_ack() {
                    return Some((RailId::$name, ack));
                })+
                None
            }

            /// [`LaneRail::sample`].
            pub fn sample(&self, (rail, link): RailLink) -> Option<LinkStats> {
                match rail { $(RailId::$name => self.$field.sample(link),)+ }
            }

            /// [`LaneRail::ends`].
            pub fn ends(&self, (rail, link): RailLink) -> Option<(SocketAddr, SocketAddr)> {
                match rail { $(RailId::$name => self.$field.ends(link),)+ }
            }

            /// [`LaneRail::control`].
            pub fn control(&self, (rail, link): RailLink) -> Option<Control> {
                match rail { $(RailId::$name => self.$field.control(link),)+ }
            }

            /// [`LaneRail::take_change`] of any.
            pub fn take_change(&mut self) -> Option<(RailLink, Change)> {
                $(if let Some((link, change)) = self.$field.take_change() {
                    return Some(((RailId::$name, link), change));
                })+
                None
            }

            /// [`LaneRail::given`].
            pub fn given(&self, (rail, link): RailLink) -> u64 {
                match rail { $(RailId::$name => self.$field.given(link),)+ }
            }

            /// [`LaneRail::queued`].
            pub fn queued(&self, (rail, link): RailLink) -> usize {
                match rail { $(RailId::$name => self.$field.queued(link),)+ }
            }

            /// [`LaneRail::copied`].
            pub fn copied(&self, (rail, link): RailLink) -> usize {
                match rail { $(RailId::$name => self.$field.copied(link),)+ }
            }

            /// [`LaneRail::acked`].
            pub fn acked(&mut self, (rail, link): RailLink, frames: &Acked) -> bool {
                match rail { $(RailId::$name => self.$field.acked(link, frames),)+ }
            }

            /// [`LaneRail::take_returned`] of any.
            pub fn take_returned(&mut self) -> Option<OpId> {
                $(if let Some(send) = self.$field.take_returned() {
                    return Some(send);
                })+
                None
            }

            /// [`LaneRail::copy_lent`].
            pub fn copy_lent<M: Memory + ?Sized>(&mut self, (rail, link): RailLink, send: Option<OpId>, mem: &M) {
                match rail { $(RailId::$name => self.$field.copy_lent(link, send, mem),)+ }
            }

            /// [`LaneRail::retire`].
            pub fn retire(&mut self, (rail, link): RailLink) -> Acked {
                match rail { $(RailId::$name => self.$field.retire(link),)+ }
            }

            /// [`LaneRail::kept`].
            pub fn kept(&self, (rail, link): RailLink) -> Vec<UnackedFrame> {
                match rail { $(RailId::$name => self.$field.kept(link),)+ }
            }

            /// [`LaneRail::reclaim`].
            pub fn reclaim(&mut self, (rail, link): RailLink, frames: &Acked) -> Option<VecDeque<UnackedFrame>> {
                match rail { $(RailId::$name => self.$field.reclaim(link, frames),)+ }
            }

            /// [`LaneRail::tell_losses`].
            pub fn tell_losses(&mut self, (rail, link): RailLink, losses: &Losses) {
                match rail { $(RailId::$name => self.$field.tell_losses(link, losses),)+ }
            }

            /// [`LaneRail::set_scheme`].
            pub fn set_scheme(&mut self, (rail, link): RailLink, scheme: Scheme) {
                match rail { $(RailId::$name => self.$field.set_scheme(link, scheme),)+ }
            }

            /// [`LaneRail::put_value`].
            pub fn put_value(&mut self, (rail, link): RailLink, peer: PeerIdx, which: (u64, u64), bytes: &[u8]) -> bool {
                match rail { $(RailId::$name => self.$field.put_value(link, peer, which, bytes),)+ }
            }

            /// [`LaneRail::take_returned_value`] of any.
            pub fn take_returned_value(&mut self) -> Option<(PeerIdx, u64, u64)> {
                $(if let Some(value) = self.$field.take_returned_value() {
                    return Some(value);
                })+
                None
            }

            /// [`LaneRail::pace`].
            pub fn pace(&mut self, (rail, link): RailLink, rate: u64) {
                match rail { $(RailId::$name => self.$field.pace(link, rate),)+ }
            }
        }
    };
}

rails! { set }
