//! What a rail is to its worker: a dozen operations and a record of what it is like.
//!
//! A **rail** is one transport opened on one device; a **link** is its connection to one peer. A rail moves frames
//! ([`polyrail_core::frame`]); it decides nothing. Links are made by the rail of what wire-up (`crate::wireup`) agreed
//! with the peer.
//!
//! | | is about |
//! |---|---|
//! | [`Rail`] | the data path: generic, so that no frame costs a virtual call |
//! | [`LaneRail`] | links that fail alone: how they are, what they have not delivered; other rails leave all of it out |
//! | [`connect`], [`channel`] | a rail's cold path: where it listens and connects, and what a handshake needs of its connections |
//! | [`control`] | how links are reliable and fair, and what changes of that |
//! | [`direct`] | access to peers' memory, for rails that have it |
//! | [`fault`] | a rail that wraps any other, and pretends what goes wrong in networks |
//! | `reader` | a stream of bytes into frames, for rails whose links are streams |
//! | [`journal`] | what a link was given and the peer may not have, for rails that are to give it back |
//!
//! Memory: a rail never keeps a pointer to a user's memory between two calls. It keeps a [`Span`], which names an operation's
//! bytes, and asks [`Memory::resolve`] for the addresses each time it touches them. An operation that ended in the meantime
//! resolves to nothing, and the rail then sends zeros or discards, so that the stream stays in step.

pub mod channel;
pub mod connect;
pub mod control;
pub mod direct;
pub mod fault;
pub mod journal;
pub(crate) mod reader;

use crate::config::Config;
use crate::list::RailId;
use crate::primitive;
use control::{Change, Control};
use direct::Direct;
use polyrail_core::control::losses::Losses;
use polyrail_core::frame::{Acked, Frame, OpId, PlainEager};
use polyrail_core::proto::PeerIdx;
use polyrail_core::values::Scheme;
use polyrail_core::wire::PeerId;
use polyrail_core::wire::datagram::Value;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Instant;

/// A link of one rail: an index into the rail's table. Never reused before [`Rail::close`] has been called for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct LinkId(pub u32);

/// Memory of this process, as the user gave it: nothing but an address and a length.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawIov {
    /// First byte.
    pub base: *mut u8,
    /// Bytes.
    pub len: usize,
}

// SAFETY: a `RawIov` is only an address; who dereferences it must have the right to, on whichever thread that happens.
unsafe impl Send for RawIov {}
// SAFETY: as above; sharing the address shares no memory.
unsafe impl Sync for RawIov {}

pub use polyrail_core::proto::{Place, Span};
pub use polyrail_core::session::UnackedFrame;

/// Where spans are.
pub trait Memory {
    /// Appends the addresses of `span` to `out`, in order; their lengths add up to `span.len`.
    /// Returns false, with `out` as it was, when the operation is gone, the range is not all inside it, or the place is
    /// [`Place::Discard`]. The addresses are valid until the worker's next call.
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool;
}

/// Why a link ended.
#[derive(Debug)]
pub enum Down {
    /// The peer said that it closes, then closed.
    Orderly,
    /// The connection ended without a word: the peer died, or the network cut it.
    Lost(io::Error),
    /// The peer sent what is not a frame, or broke the protocol; the text says what.
    Protocol(String),
}

/// The bytes of a frame's payload, all there, valid during the call. They may lie in memory that the peer can still write:
/// they are copied, never looked at in place.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    base: *const u8,
    len: usize,
}

impl Payload {
    /// No bytes.
    pub const EMPTY: Self = Self { base: std::ptr::null(), len: 0 };

    /// # Safety
    /// `base..base + len` stays readable (though perhaps changing) as long as the value is used.
    pub unsafe fn new(base: *const u8, len: usize) -> Self {
        Self { base, len }
    }
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// First byte.
    pub fn base(&self) -> *const u8 {
        self.base
    }
    /// Copies `len` bytes from `offset` to `to`, as many as there are; returns how many.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes and overlaps no part of the payload.
    #[inline]
    pub unsafe fn copy_to(&self, offset: usize, to: *mut u8, len: usize) -> usize {
        let len = len.min(self.len.saturating_sub(offset));
        // SAFETY: offset + len <= self.len, readable by `new`'s contract; `to` by ours.
        unsafe { primitive::copy(self.base.add(offset), to, len) };
        len
    }
    /// Copies all bytes to `to`.
    ///
    /// # Safety
    /// `to` is writable for as many, and overlaps no part of the payload.
    #[inline(always)]
    pub unsafe fn copy_whole(&self, to: *mut u8) {
        // SAFETY: readable by `new`'s contract; `to` by ours.
        unsafe { primitive::copy(self.base, to, self.len) };
    }
    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len);
        // SAFETY: the capacity is `len`, and copy_to writes exactly that many bytes.
        unsafe {
            self.copy_to(0, out.as_mut_ptr(), self.len);
            out.set_len(self.len);
        }
        out
    }
}

/// What a rail tells its worker while it makes progress.
pub trait Sink: Memory {
    /// A whole frame. The payload is valid during the call only.
    fn frame(&mut self, link: LinkId, frame: Frame, payload: Payload);
    /// The commonest whole frame, for rails that see at once that it is one: as [`Sink::frame`], but only if that takes no more than a few
    /// words. False: nothing has happened, and the frame is to be given to that.
    #[inline(always)]
    fn eager(&mut self, _link: LinkId, _eager: &PlainEager, _payload: Payload) -> bool {
        false
    }
    /// Whether the peer at the end of a link was told of this send, and may be reading it.
    fn is_read(&mut self, _link: LinkId, _send: OpId) -> bool {
        false
    }
    /// A frame with a long payload has begun: says where its `len` bytes go. The span has exactly `len` bytes. The rail
    /// calls [`Sink::end`] for this link when they are all there; no other frame of the link comes in between.
    fn begin(&mut self, link: LinkId, frame: Frame, len: usize) -> Span;
    /// A part of a value came, by means of the rail's own.
    fn value(&mut self, _link: LinkId, _value: &Value<'_>) {}
    /// The payload of the frame last begun on this link is complete.
    fn end(&mut self, link: LinkId);
    /// The link has ended. Its number stays taken until [`Rail::close`].
    fn down(&mut self, link: LinkId, why: Down);
}

/// The rail has no room: try again after progress. Nothing of the frame was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// What it costs to see whether something has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// A look at memory: it is looked in every round.
    Memory,
    /// A system call: while rails that cost none have links, and nothing comes by this one, it is looked seldom.
    SystemCall,
}

/// What a rail is like; known when the program is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// Which it is, in the list.
    pub id: RailId,
    /// What a round of progress costs that finds nothing.
    pub look: Look,
    /// Whether a peer may have several links, each of which may end alone ([`LaneRail`]), and how they are opened.
    pub lanes: Lanes,
    /// Whether its links can be encrypted.
    pub seals: bool,
    /// Whether a link's frames come in the order in which they were given to it.
    pub in_order: bool,
    /// Whether it serves in place of another rail between two interfaces, where that loses; else beside it.
    pub stands_in: bool,
    /// Whether what a link's peer has is acknowledged by its program, not by its kernel.
    pub by_program: bool,
}

impl Caps {
    /// Of a rail by memory, whose links end with their peer.
    pub const fn of_memory(id: RailId) -> Self {
        let (look, lanes) = (Look::Memory, Lanes::None);
        Self { id, look, lanes, seals: false, in_order: true, stands_in: false, by_program: false }
    }

    /// Of a rail by a network, whose links are lanes that this host's kernel and the other's take care of.
    pub const fn of_network(id: RailId, lanes: Lanes) -> Self {
        Self { look: Look::SystemCall, lanes, ..Self::of_memory(id) }
    }
}

/// How a session gets one more link of a rail, as a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lanes {
    /// It does not: its links end with their peer.
    None,
    /// By a handshake on a stream of its own: [`connect::Connector::dial`].
    ByStream,
    /// By words on a lane that there is: [`connect::Connector::propose`].
    ByWord,
}

impl Caps {
    /// Whether a peer may have several links.
    pub const fn has_lanes(&self) -> bool {
        !matches!(self.lanes, Lanes::None)
    }
}

/// A transport opened on a device. No method blocks. No method calls back except `progress`.
pub trait Rail: LaneRail + Direct + Send {
    /// What it is like.
    const CAPS: Caps;

    /// Opens it, without links.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    fn open(config: &Config) -> io::Result<Self>
    where
        Self: Sized;

    /// Sends one frame. `header` is encoded for exactly the payload's length; the payload's bytes are at `iov`. With `span`,
    /// the rail may keep the span in place of a copy, for as long as the peer may not have the frame; without, it copies what it
    /// may still need. The span of an EAGER without acknowledgement is only lent: the rail says by [`LaneRail::take_returned`] when it
    /// has no use for it any more.
    ///
    /// # Errors
    /// [`Full`] when neither is possible; a link that is down is full for ever (its end has been or will be told).
    ///
    /// # Safety
    /// The memory at `iov` is readable during the call.
    unsafe fn send(
        &mut self,
        link: LinkId,
        header: &[u8],
        iov: &[RawIov],
        span: Option<Span>,
    ) -> Result<(), Full>;

    /// Sends the commonest frame, from memory in one piece, if that takes a copy in memory and no more. False, and nothing has happened, where
    /// there is no such way, or no room: [`Rail::send`] knows.
    ///
    /// # Safety
    /// The memory of `piece` is readable during the call.
    #[inline(always)]
    unsafe fn try_eager(&mut self, _link: LinkId, _eager: PlainEager, _piece: RawIov) -> bool {
        false
    }

    /// Whether a large frame would be taken now without queueing much behind what is already waiting: who stripes or
    /// fragments asks this before each fragment, so that fragments are pulled by the rail, not dealt to it.
    fn wants_more(&self, link: LinkId) -> bool;

    /// Whether [`Rail::flush`] has something to send.
    #[inline(always)]
    fn holds_back(&self) -> bool {
        false
    }

    /// Sends what `send` held back in order to share system calls. Called at the end of each round of progress.
    fn flush<M: Memory + ?Sized>(&mut self, _mem: &M) {}

    /// How many links to other processes are up.
    fn links(&self) -> usize;

    /// Moves what can be moved, both ways; returns how many frames arrived and sends ended (0: nothing to do).
    fn progress<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize;

    /// Counts a round of progress that would find nothing to do. False: there may be something. Asked of rails that it costs nothing to
    /// look at.
    #[inline(always)]
    fn skip(&mut self) -> bool {
        false
    }

    /// Looks at once for what a round of progress looks for only now and then: whether peers live.
    fn look_around(&mut self) {}

    /// Whether a long payload is under way whose rest takes its time: who waits had better sleep meanwhile.
    fn in_bulk(&self) -> bool {
        false
    }

    /// A descriptor that becomes readable when `progress` has something to do, provided that `arm` said so; none where only this
    /// process can give it something.
    fn wait_fd(&self) -> Option<RawFd>;

    /// Prepares to sleep on `wait_fd`. False: something is there already, progress first.
    fn arm(&mut self) -> bool;

    /// Until when a round of progress is due even if nothing happens.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Ends a link and forgets all about it; pending frames are dropped. What must arrive was flushed before.
    fn close(&mut self, link: LinkId);

    /// Whether closing the link would lose nothing that was sent (used to linger at an orderly close).
    fn idle(&self, link: LinkId) -> bool;

    /// Bytes that were sent and received by a link up to now, where that is known and nothing more is ([`LaneRail::sample`]).
    fn traffic(&self, _link: LinkId) -> Option<(u64, u64)> {
        None
    }

    /// Ends a link as a network would: both ends hear of it, by [`Sink::down`]. For [`fault`].
    fn cut(&mut self, _link: LinkId) {}

    /// Finds out whether a link still stands, of which there is doubt. Needless where an end is heard of at once.
    fn probe(&mut self, _link: LinkId) {}

    /// The link is one between these two endpoints, this side's first: what it moves is recorded, if there is a recorder and no call shows
    /// it.
    fn watch(&mut self, _link: LinkId, _ends: (PeerId, PeerId)) {}
}

/// What is known of a link that carries a lane: what the peer's side tells, and what follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// Smoothed round trip, in microseconds.
    pub rtt: u32,
    /// The shortest round trip that was seen, in microseconds.
    pub min_rtt: u32,
    /// Most bytes that a packet holds.
    pub packet: u32,
    /// Packets on their way.
    pub unacked: u32,
    /// Probes of a silent peer that were not answered.
    pub probes: u32,
    /// Milliseconds since the peer's side acknowledged something last.
    pub last_ack: u32,
    /// Packets sent again, altogether.
    pub retransmitted: u32,
    /// Packets sent, altogether.
    pub segments: u32,
    /// Bytes that the peer's side is ready to take; 0 also where that is not told.
    pub peer_window: u32,
    /// Bytes given to the link and not acknowledged by the peer's side.
    pub queued: u64,
    /// Bytes that the peer's side has acknowledged, altogether.
    pub delivered: u64,
    /// Bytes that came, altogether, those of wireup too.
    pub received: u64,
    /// Packets that count as lost at this moment.
    pub lost: u32,
    /// Packets sent again that had come, altogether.
    pub spurious: u32,
    /// Packets that came, altogether.
    pub came: u32,
    /// Packets that came before their turn, altogether; 0 also where that is not counted.
    pub early: u32,
    /// Microseconds in which it had something on its way or to send, altogether, ...
    pub busy: u64,
    /// ... and those of them in which its own buffer, and nothing else, kept it from sending more.
    pub narrow: u64,
    /// What travels by it is encrypted.
    pub encrypted: bool,
}

/// What a peer is to be told of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// By which link.
    pub link: LinkId,
    /// These whole frames have come by it.
    pub received: Acked,
    /// They were many, or long.
    pub bulk: bool,
}

/// The duties of links that fail alone: the frames of one that ended are given back, to leave by another. A rail whose links end
/// with their peer ([`Caps::lanes`] says no) implements none of these.
///
/// The frames of a link are counted from 0 as they were given to it. A rail that delivers in order ([`Caps::in_order`]) never says, and
/// refuses to hear, that some came beyond one that is missing. Another bounds how far it lets them be ahead, so that
/// [`MAX_ACKED`](polyrail_core::frame::MAX_ACKED) ranges say all of it.
pub trait LaneRail {
    /// How a link is; none once it has ended.
    fn sample(&self, _link: LinkId) -> Option<LinkStats> {
        None
    }

    /// Both ends' addresses.
    fn ends(&self, _link: LinkId) -> Option<(SocketAddr, SocketAddr)> {
        None
    }

    /// How a link is reliable and fair, where that can be told. It may take a system call.
    fn control(&self, _link: LinkId) -> Option<Control> {
        None
    }

    /// The next change of a link's composition that nobody has been told of; of a link that has ended there is none.
    fn take_change(&mut self) -> Option<(LinkId, Change)> {
        None
    }

    /// Bytes that were given to a link, altogether.
    fn given(&self, _link: LinkId) -> u64 {
        0
    }

    /// Bytes that were given to a link and have not been acknowledged by the peer's side.
    fn queued(&self, _link: LinkId) -> usize {
        0
    }

    /// Bytes that are kept in copy because the peer has not said that it has them.
    fn copied(&self, _link: LinkId) -> usize {
        0
    }

    /// The next link whose peer is to be told what came by it; it counts as told.
    fn take_ack(&mut self) -> Option<Ack> {
        None
    }

    /// The peer has had these frames by a link: what is kept of them may be forgotten. False: that cannot be. A word that an earlier
    /// one has overtaken means nothing.
    fn acked(&mut self, _link: LinkId, _frames: &Acked) -> bool {
        true
    }

    /// Ends a link as a network does where one of several fails: both ends hear of it by [`Sink::down`], and that no process closed it.
    /// For [`fault`].
    fn reset(&mut self, _link: LinkId) {}

    /// The next send whose bytes were lent to a link ([`Rail::send`]) and are needed no more: the peer has them, or they were copied.
    fn take_returned(&mut self) -> Option<OpId> {
        None
    }

    /// Copies what this send has lent to a link, or what all have. The link may have ended.
    fn copy_lent<M: Memory + ?Sized>(&mut self, _link: LinkId, _send: Option<OpId>, _mem: &M) {}

    /// Ends a link, if it has not ended: which whole frames came by it.
    fn retire(&mut self, _link: LinkId) -> Acked {
        Acked::default()
    }

    /// The words that other links have ended ([`Frame::Retire`]) which an ended link may not have delivered, oldest first.
    fn kept(&self, _link: LinkId) -> Vec<UnackedFrame> {
        Vec::new()
    }

    /// What a link that ended did not deliver, oldest first, if the peer had these frames; None when that cannot be.
    fn reclaim(&mut self, _link: LinkId, _frames: &Acked) -> Option<VecDeque<UnackedFrame>> {
        None
    }

    /// So much a link's path loses, as another found: it may begin as one that has found it out.
    fn tell_losses(&mut self, _link: LinkId, _losses: &Losses) {}

    /// By which scheme this side sends by a link from now on: where the rail has means of its own for values, it may have them used.
    fn set_scheme(&mut self, _link: LinkId, _scheme: Scheme) {}

    /// Takes a value for this peer, by tag and iteration, to bring it or what is put later by means of the rail's own. False: the link has
    /// none now, and the value goes as frames.
    fn put_value(&mut self, _link: LinkId, _peer: PeerIdx, _which: (u64, u64), _bytes: &[u8]) -> bool {
        false
    }

    /// The next value that was taken and that the rail does not bring: for whom, and which.
    fn take_returned_value(&mut self) -> Option<(PeerIdx, u64, u64)> {
        None
    }

    /// Sends no more by a link than so many bytes per second.
    fn pace(&mut self, _link: LinkId, _rate: u64) {}
}
