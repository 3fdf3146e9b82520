//! What frames act on.

use super::buffers::{Buffers, Engine, Named, Owned, scratch_place};
use super::inbound::{Incoming, LinkInfo};
use super::lanes::{LaneNews, Lanes};
use super::pace::Pace;
use super::{Counts, Event, Handler};
use crate::list::RailId;
use crate::rail::direct::Transfer;
use crate::rail::{Down, Payload, Place, Span};
use crate::set::RailLink;
use polyrail_core::cost::Explanation;
use polyrail_core::frame::{Frame, OpId};
use polyrail_core::proto::{PeerIdx, REORDER_BYTES};
use polyrail_core::session::Partial;
use polyrail_core::wire::{Address, PeerId};
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// How short messages leave for a peer, as that was last thought over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ShortBy {
    /// The lane that they take.
    pub(super) lane: Option<RailLink>,
    /// Bytes that may still take it before that is thought over again, of so many; `u32::MAX`: any number, and nobody counts.
    pub(super) budget: u32,
    pub(super) granted: u32,
    /// The one for which it was thought over may take it.
    pub(super) takes: bool,
    /// There are several lanes, or other reasons to divide what is sent.
    pub(super) wide: bool,
}

impl ShortBy {
    /// By this link, whatever else there is.
    pub(super) fn plainly(lane: Option<RailLink>) -> Self {
        Self { lane, budget: u32::MAX, granted: u32::MAX, takes: true, wide: false }
    }

    /// The lane for a message of so many bytes; none where that is to be thought over.
    #[inline(always)]
    pub(super) fn lane_for(&mut self, len: u64) -> Option<RailLink> {
        if self.budget != u32::MAX {
            self.budget = self.budget.checked_sub(len as u32 + 64)?;
        }
        self.lane
    }
}

/// What is known of a peer besides what the engine knows.
pub(super) struct PeerInfo {
    pub(super) id: PeerId,
    pub(super) address: Option<Address>,
    /// The user has no more use for the address.
    pub(super) released: bool,
    /// How short messages leave.
    pub(super) short: ShortBy,
    /// All lanes, where a network leads to it.
    pub(super) lanes: Option<Box<Lanes>>,
    /// Payloads of which only a part came.
    pub(super) partial: Partial<(Incoming, Span)>,
    /// Why direct access failed, when it was tried and failed.
    pub(super) direct_refused: Option<String>,
    /// Why messages travel as they do.
    pub(super) explanation: Option<Explanation>,
    /// What was tried before the lane was found, and why it failed.
    pub(super) passed_over: Vec<String>,
    /// Why the last session or attempt failed.
    pub(super) why: Option<String>,
    /// Bytes of its frames that came before their turn.
    pub(super) held: usize,
    /// Bytes that were read from its memory directly, and that were written to it.
    pub(super) direct: (u64, u64),
    /// It said that it waits for its end, and takes nothing more.
    pub(super) ending: bool,
    /// How fast it may be sent messages.
    pub(super) pace: Pace,
    /// How often it is among the callers that went.
    pub(super) went: u32,
    /// It is among those whose numbers are to be freed.
    pub(super) to_free: bool,
}

impl PeerInfo {
    /// Whether the user can name it by its address.
    pub(super) fn is_named(&self) -> bool {
        self.address.is_some() && !self.released
    }

    /// Nothing but who it is.
    pub(super) fn new(id: PeerId) -> Self {
        Self {
            id,
            address: None,
            released: false,
            short: ShortBy::plainly(None),
            lanes: None,
            partial: Partial::default(),
            direct_refused: None,
            explanation: None,
            passed_over: Vec::new(),
            why: None,
            held: 0,
            direct: (0, 0),
            ending: false,
            pace: Pace::default(),
            went: 0,
            to_free: false,
        }
    }
}

/// Most bytes of one peer's frames that are kept because they came before their turn.
const HELD_MAX: usize = 2 * REORDER_BYTES as usize;

/// All that frames act on: apart from the rails, so that a rail can make progress into it.
pub(crate) struct Core {
    pub(super) engine: Engine,
    pub(super) bufs: Buffers,
    pub(super) links: [Vec<Option<LinkInfo>>; RailId::ALL.len()],
    pub(super) peers: Vec<PeerInfo>,
    pub(super) events: VecDeque<Event>,
    pub(super) held: HashMap<(PeerIdx, u32), (Frame, Owned)>,
    pub(super) due: Vec<(PeerIdx, u32)>,
    /// Frames that were held have taken effect.
    pub(super) redelivered: bool,
    /// A round of progress may have more to do than to look at memory. Whoever gives it something says so here.
    pub(super) asks: bool,
    pub(super) cut: Vec<(RailLink, &'static str)>,
    pub(super) downs: Vec<(RailLink, Down)>,
    /// What peers told of their lanes.
    pub(super) lane_news: Vec<(PeerIdx, LaneNews)>,
    pub(super) handlers: HashMap<u16, Handler>,
    /// The user is told what peers have read.
    pub(super) reads_told: bool,
    /// Transfers that are to begin, and how many have begun.
    pub(super) starting: Vec<(RailId, Transfer)>,
    pub(super) transfers: usize,
    pub(super) counts: Counts,
    /// The zero of the clock by which lanes and values are measured.
    pub(super) began: Instant,
}

impl Core {
    /// Whether something came that asks to be acted on.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        // one branch for all of them
        let waiting = self.due.len()
            | self.cut.len()
            | self.downs.len()
            | self.lane_news.len()
            | self.starting.len()
            | usize::from(self.redelivered);
        waiting > 0 || self.engine.has_work()
    }

    /// Nanoseconds of the clock by which lanes and values are measured.
    pub(super) fn clock(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The users' memory, by the engine's names.
    pub(super) fn memory(&self) -> Named<'_> {
        Named { engine: &self.engine, bufs: &self.bufs }
    }

    /// Memory for a message that no receive waits for, of which so many bytes come now; what comes in several parts has it from the first.
    pub(super) fn make_stash(&mut self, stash: OpId, len: usize) {
        if self.bufs.stashes.get(stash).is_none() {
            let whole = self.engine.stash_len(stash).map_or(len, |whole| whole as usize);
            // what a peer leaves out does not show what was there before
            let memory = if len < whole { Owned::zeros(whole) } else { self.bufs.spare.take(whole) };
            self.bufs.stashes.put(stash, memory);
        }
    }

    /// Copies the first `span.len` bytes of a payload to their place.
    #[inline]
    pub(super) fn fill(&mut self, span: Span, payload: Payload) {
        let op = match span.place {
            Place::Recv(op) => op,
            place => {
                if let Place::Stash(stash) = place {
                    self.make_stash(stash, span.len);
                }
                return self.bufs.fill(span, payload);
            }
        };
        if let Some(posted) = self.engine.receiver(op) {
            posted.fill(span.offset, span.len, payload);
        }
    }

    #[inline]
    pub(super) fn link(&mut self, (rail, link): RailLink) -> Option<&mut LinkInfo> {
        self.links[rail as usize].get_mut(link.0 as usize)?.as_mut()
    }

    /// Forgets a link, and what came in part by it.
    pub(super) fn forget_link(&mut self, at: RailLink) -> Option<LinkInfo> {
        self.bufs.scratch.remove(&scratch_place(at));
        let (rail, link) = at;
        self.links[rail as usize].get_mut(link.0 as usize).and_then(Option::take)
    }

    #[inline]
    pub(super) fn lane(&self, peer: PeerIdx) -> Option<RailLink> {
        self.peers[peer.0 as usize].short.lane
    }

    pub(super) fn active(&mut self, peer: PeerIdx, id: u16, header_len: u16, payload: Payload) {
        let bytes = payload.to_vec();
        if let Some(handler) = self.handlers.get_mut(&id) {
            let (header, body) = bytes.split_at(usize::from(header_len).min(bytes.len()));
            handler(peer, header, body);
        }
    }

    /// Keeps a frame that came before its turn; false when the peer has too many of them.
    pub(super) fn hold(&mut self, peer: PeerIdx, seq: u32, frame: Frame, bytes: Owned) -> bool {
        let held = &mut self.peers[peer.0 as usize].held;
        *held += bytes.memory().len;
        let room = *held <= HELD_MAX;
        self.held.insert((peer, seq), (frame, bytes));
        room
    }

    pub(super) fn release(&mut self, peer: PeerIdx, seq: u32) -> Option<(Frame, Owned)> {
        let (frame, bytes) = self.held.remove(&(peer, seq))?;
        self.peers[peer.0 as usize].held -= bytes.memory().len;
        Some((frame, bytes))
    }

    /// A frame that was held is complete: if its turn came before that, it is due now.
    pub(super) fn redeliver_if_due(&mut self, peer: PeerIdx, seq: u32) {
        if self.engine.is_due(peer, seq) {
            self.due.push((peer, seq));
        }
    }
}
