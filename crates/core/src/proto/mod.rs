//! The message protocol: what is sent, when, and what arriving frames mean.
//!
//! One [`Engine`] serves one worker and all its peers. It touches no memory but its own tables: commands come in
//! (`send`, `post`, `put` ...), frames come in ([`Engine::on_frame`]), and out go the next frame for a peer
//! ([`Engine::poll_transmit`]) and [`Action`]s: copy, read, write, complete. The driver holds the users' buffers under the
//! same [`OpId`]s.
//!
//! | message | how it goes |
//! |---|---|
//! | up to [`Route::eager_max`], while the peer has credit | EAGER: header and bytes at once; unexpected ones are stashed at the receiver |
//! | longer, or no credit | RTS; once a receive matches: RGET (the receiver reads, ATS), RPUT (RTR, the sender writes, ATP), or fragments (RTR, FRAG..., ATS) |
//! | put | PUT with bytes; or PUT_RTS and the target reads; ACK when the bytes are in the region |
//! | get | GET; the target writes and sends ACK, or sends GET_DATA |
//! | atomic | ATOMIC; ACK, or ATOMIC_DATA |
//! | value | VALUE...; VALUE_HAD |
//!
//! Credit bounds what a peer must keep of unexpected messages: a sender may have [`Route::window`] units unmatched at a
//! receiver; beyond that it sends RTS, which costs the receiver a table entry and no bytes but those that it asks for early (`pull`). So floods
//! slow down, and nothing blocks or is dropped.
//!
//! What a peer may ask for, and not take the answers to, has bounds, too: see `bounds`.
//!
//! Order: EAGER, RTS, PUT, PUT_RTS, GET, ATOMIC and AM carry a per-peer sequence number and take effect in that order,
//! by whichever rail and in whichever order they arrive; all other frames name their operation and need none.
//!
//! Files: `types` words; `peer` per-peer state; `bounds` what it may have outstanding; `send`, `recv`, `rendezvous`, `pull` messages; `rma`, `target` one-sided operations at
//! either end; `streams` what leaves in pieces, and whose turn it is; `lend` sends whose bytes lanes keep the place of; `values` the latest value of each tag; `region` keys and bounds. The phases of sends and receives are data, in `phase`.

mod bounds;
mod lend;
mod peer;
mod phase;
mod pull;
mod recv;
mod region;
mod rendezvous;
mod rma;
mod send;
mod streams;
mod target;
mod types;
mod values;

pub use bounds::{Bounds, Owed};
pub use peer::{CREDIT_UNIT, REORDER_BYTES, REORDER_WINDOW, Route, Scheme};
pub use region::{Access, KeyTaken, Reach, Regions, Registered};
pub use rma::{PartSpec, RmaKind};
pub use send::Going;
pub use types::*;

/// The phases of sends and receives as data, for tests and tools that print them.
pub mod machines {
    pub use super::phase::{RECV, RecvEvent, RecvPhase, SEND, SendEvent, SendPhase};
}

use crate::frame::{Frame, OpId};
use crate::matching::{PostedQueue, UnexpectedQueue};
use crate::slab::Slab;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bounds::Settles;
use peer::{Answer, Peer, Turn};

/// Settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Eager bytes that each peer may have unmatched here, in credit units; told to peers at wireup.
    pub window: u32,
    /// Seeds the hash of the matching tables, so that peers cannot choose tags that collide.
    pub hash_seed: u64,
    /// What a peer may have outstanding.
    pub bounds: Bounds,
}

/// One side's matching: receives posted, messages that came too early.
struct Match<R> {
    posted: PostedQueue<recv::Waiting<R>>,
    unexpected: UnexpectedQueue<OpId>,
}

/// The protocol of one worker, whose receives come with an `R` each.
pub struct Engine<R: Receiver> {
    config: Config,
    peers: Vec<Peer>,
    /// Numbers of peers that were removed.
    free: Vec<PeerIdx>,
    tagged: Match<R>,
    messages: Match<R>,
    sends: Slab<send::SendOp>,
    recvs: Slab<recv::RecvOp<R>>,
    stashes: Slab<recv::Stash>,
    rmas: Slab<rma::RmaOp>,
    parts: Slab<rma::Part>,
    puts: Slab<target::PutIn>,
    lent: lend::Lent,
    /// Memory that peers may reach.
    pub regions: Regions,
    actions: VecDeque<Action<R::User>>,
    ready: VecDeque<PeerIdx>,
}

impl<R: Receiver> Engine<R> {
    /// An engine without peers.
    pub fn new(config: Config) -> Self {
        let pair = |seed| Match { posted: PostedQueue::new(seed), unexpected: UnexpectedQueue::new(seed) };
        Self {
            config,
            peers: Vec::new(),
            free: Vec::new(),
            tagged: pair(config.hash_seed),
            messages: pair(!config.hash_seed),
            sends: Slab::default(),
            recvs: Slab::default(),
            stashes: Slab::default(),
            rmas: Slab::default(),
            parts: Slab::default(),
            puts: Slab::default(),
            lent: lend::Lent::default(),
            regions: Regions::default(),
            actions: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }

    /// Keeps to other bounds from now on. All peers must keep to those of requests alike.
    pub fn bound(&mut self, bounds: Bounds) {
        self.config.bounds = bounds;
    }

    /// Makes room for a peer, not yet connected. What is sent to it waits. Its number may be one that [`Engine::remove_peer`] freed.
    pub fn add_peer(&mut self) -> PeerIdx {
        self.free.pop().unwrap_or_else(|| {
            self.peers.push(Peer::default());
            PeerIdx(self.peers.len() as u32 - 1)
        })
    }

    /// Frees the number of a peer that is down. False, and nothing is done, while it is not, or while an operation, a message that
    /// waits to be received, or an action names it.
    pub fn remove_peer(&mut self, peer: PeerIdx) -> bool {
        let p = &self.peers[peer.0 as usize];
        let unused = !p.connected && !p.named && self.is_quiet(peer) && self.actions.is_empty();
        let removed = unused && !self.is_named_by_receives(peer);
        if removed {
            debug_assert!(!self.free.contains(&peer), "{peer} was removed before");
            self.peers[peer.0 as usize].values = None;
            self.free.push(peer);
        }
        removed
    }

    /// Wireup with a peer is done; what waited may leave.
    pub fn connected(&mut self, peer: PeerIdx, route: Route) {
        let p = &mut self.peers[peer.0 as usize];
        p.connected = true;
        p.route = route;
        (p.far_eager, p.far) = (0, false);
        p.begin_values();
        if !p.idle() {
            self.name(peer);
        }
    }

    /// Has [`Engine::poll_ready`] name a peer.
    #[inline]
    fn name(&mut self, peer: PeerIdx) {
        self.peers[peer.0 as usize].name(peer, &mut self.ready);
    }

    /// Whether wireup is done.
    #[inline]
    pub fn is_connected(&self, peer: PeerIdx) -> bool {
        self.peers[peer.0 as usize].connected
    }

    /// How frames reach a peer.
    pub fn route(&self, peer: PeerIdx) -> Route {
        self.peers[peer.0 as usize].route
    }

    /// Messages up to this length go eagerly where the route alone would have them announced, in bytes: a round trip is long there
    /// ([`crate::cost::Explanation::far_eager`]). They leave credit for others.
    pub fn set_far_eager(&mut self, peer: PeerIdx, len: u64) {
        self.peers[peer.0 as usize].far_eager = len;
    }

    /// Whether a round trip to a peer takes so long that who sends [`Delivery::Soon`] does not wait for it.
    pub fn set_far(&mut self, peer: PeerIdx, far: bool) {
        self.peers[peer.0 as usize].far = far;
    }

    /// Longest message that goes eagerly to a peer, in bytes, while there is credit.
    pub fn eager_max(&self, peer: PeerIdx) -> u64 {
        let p = &self.peers[peer.0 as usize];
        p.far_eager.max(p.route.eager_max as u64)
    }

    /// Whether a frame that was held has its turn now.
    pub fn is_due(&self, peer: PeerIdx, seq: u32) -> bool {
        self.peers[peer.0 as usize].expect_seq == seq
    }

    /// The peer is gone, or could not be reached: every operation that involves it ends with [`Failure::PeerGone`]. Whole
    /// messages that had arrived stay receivable, as many as its credit allows. The peer may be connected again, with sequence numbers from zero.
    pub fn peer_down(&mut self, peer: PeerIdx) {
        let lost = self.peers[peer.0 as usize].reset();
        for seq in lost.held {
            self.actions.push_back(Action::DropHeld(peer, seq));
        }
        self.fail_puts(lost.puts);
        self.fail_sends(peer);
        self.fail_rmas(peer);
        self.fail_recvs(peer);
    }

    /// Whether nothing waits to leave for this peer and no operation with it is under way.
    pub fn is_quiet(&self, peer: PeerIdx) -> bool {
        let p = &self.peers[peer.0 as usize];
        p.idle() && p.under_way == 0 && p.values.as_ref().is_none_or(|values| !values.waits())
    }

    /// How many sequenced frames the peer was sent of which it has not said that it saw them and all before. It says so only
    /// where several lanes lead to it, see [`Engine::tell_seen`].
    pub fn unseen(&self, peer: PeerIdx) -> u32 {
        let p = &self.peers[peer.0 as usize];
        p.next_seq.wrapping_sub(p.seen)
    }

    /// Bytes of those of them that are parts of puts.
    pub fn unseen_bytes(&self, peer: PeerIdx) -> u64 {
        self.peers[peer.0 as usize].long_bytes
    }

    /// The sequenced frame that a peer waits for, as far as it has said.
    pub fn seen(&self, peer: PeerIdx) -> u32 {
        self.peers[peer.0 as usize].seen
    }

    /// The number of the next sequenced frame to a peer.
    pub fn next_seq(&self, peer: PeerIdx) -> u32 {
        self.peers[peer.0 as usize].next_seq
    }

    /// Tells a peer what was seen of its sequenced frames if `now`, or if a part of the reorder window has gathered. The
    /// driver calls this, after frames have come, where several lanes lead to the peer.
    pub fn tell_seen(&mut self, peer: PeerIdx, now: bool) {
        let p = &mut self.peers[peer.0 as usize];
        let fresh = p.expect_seq.wrapping_sub(p.told);
        if fresh >= REORDER_WINDOW / 4 || fresh > 0 && (now || p.came >= REORDER_BYTES / 8) {
            (p.told, p.came) = (p.expect_seq, 0);
            let seq = p.told;
            self.say(peer, Frame::Seen { seq });
        }
    }

    /// Queues a frame that no operation of this engine asks for. Of totals (GOT, SEEN, CREDIT) the latest is sent.
    pub fn say(&mut self, peer: PeerIdx, frame: Frame) {
        let (Frame::Got { .. } | Frame::Seen { .. } | Frame::Credit { .. }) = frame else {
            return self.control(peer, frame, Out::Nothing);
        };
        let p = &mut self.peers[peer.0 as usize];
        if p.connected {
            p.note(frame);
            self.name(peer);
        }
    }

    /// Bytes that large transfers still have to send to a peer.
    pub fn bulk_left(&self, peer: PeerIdx) -> u64 {
        self.peers[peer.0 as usize].streams.bulk()
    }

    /// How many frames or operations wait to leave for a peer.
    #[inline]
    pub fn queued(&self, peer: PeerIdx) -> usize {
        self.peers[peer.0 as usize].queued()
    }

    /// A peer that has something to send and may not have been asked since; each is named until it has nothing left.
    #[inline]
    pub fn poll_ready(&mut self) -> Option<PeerIdx> {
        let peer = self.ready.pop_front()?;
        self.peers[peer.0 as usize].named = false;
        Some(peer)
    }

    /// What the driver is to do next.
    #[inline]
    pub fn poll_action(&mut self) -> Option<Action<R::User>> {
        self.actions.pop_front()
    }

    /// Whether [`Engine::poll_action`] or [`Engine::poll_ready`] has something.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.actions.is_empty() || !self.ready.is_empty()
    }

    /// The operations alive: sends, receives, stashed messages, one-sided operations, puts of peers.
    pub fn in_flight(&self) -> [usize; 5] {
        [self.sends.len(), self.receives(), self.stashes.len(), self.rmas.len(), self.puts.len()]
    }

    /// A frame that need not wait for its turn. To a peer that is gone there is none.
    fn control(&mut self, peer: PeerIdx, frame: Frame, payload: Out) {
        self.answer(peer, frame, payload, Settles::Nothing);
    }

    /// The same, where it is the answer to something that is counted.
    fn answer(&mut self, peer: PeerIdx, frame: Frame, payload: Out, settles: Settles) {
        let p = &mut self.peers[peer.0 as usize];
        if p.connected {
            p.control.push_back(Answer { frame, payload, settles });
            self.name(peer);
        }
    }

    /// What a peer has asked for, and no rail has taken the answer to.
    pub fn owed(&self, peer: PeerIdx) -> Owed {
        self.peers[peer.0 as usize].owed
    }

    /// An eager message that came in this session is matched.
    #[inline]
    fn consume(&mut self, peer: PeerIdx, session: u32, len: u64) {
        let p = &mut self.peers[peer.0 as usize];
        if p.session == session
            && let Some(credit) = p.consume(len, self.config.window)
        {
            p.return_credit(peer, credit, &mut self.ready);
        }
    }

    /// Takes in a frame with `payload` bytes after it; `region` is the payload's content where it lists memory.
    pub fn on_frame(
        &mut self,
        peer: PeerIdx,
        frame: &Frame,
        payload: usize,
        region: Option<Region>,
    ) -> Directive {
        if let Some(order) = frame.order() {
            let p = &mut self.peers[peer.0 as usize];
            if !p.take_credit(order.credit) {
                return Directive::Broken("it returned credit that it never had");
            }
            let turn = p.turn(order.seq);
            if let (Turn::Now(true) | Turn::Later, Frame::Eager { .. }) = (&turn, frame)
                && !p.take(payload as u64, self.config.window)
            {
                return Directive::Broken("it sent more than it had credit for");
            }
            match turn {
                Turn::Now(_) => {
                    p.came += payload as u64;
                    if let Err(why) = p.owed.take(frame, &self.config.bounds) {
                        return Directive::Broken(why);
                    }
                    if !p.held.is_empty() && p.held.contains(&p.expect_seq) {
                        self.actions.push_back(Action::Redeliver(peer, p.expect_seq));
                    }
                }
                Turn::Later => return Directive::Hold(order.seq),
                Turn::Again => return Directive::Done,
                Turn::Outside => return Directive::Broken("a sequence number lies outside the window"),
            }
        }
        match *frame {
            Frame::Eager { matching, data, ack, .. } => self.on_eager(peer, matching, data, ack, payload),
            Frame::Rts { matching, data, len, op, readable, .. } => {
                let envelope = Envelope { from: peer, matching, data, len };
                self.on_rts(envelope, op, if readable { region } else { None })
            }
            Frame::Rtr { op, to, len, writable } => {
                self.on_rtr(peer, op, to, len, if writable { region } else { None })
            }
            Frame::Frag { to, offset } => self.on_fragment(peer, to, offset, payload),
            Frame::Ats { op, status } => self.on_ats(peer, op, status),
            Frame::Atp { to, status } => self.on_atp(peer, to, status),
            Frame::Ack { op, status } => self.on_ack(peer, op, status),
            Frame::Put { op, to, data, last, .. } => self.on_put(peer, op, to, data, last, payload),
            Frame::PutRts { op, to, len, .. } => self.on_put_rts(peer, op, to, len, region),
            Frame::Get { op, from, len, writable, .. } => {
                self.on_get(peer, op, from, len, if writable { region } else { None })
            }
            Frame::GetData { op, offset } => self.on_get_data(peer, op, offset, payload),
            Frame::AtomicData { op } => self.on_atomic_data(peer, op, payload),
            Frame::Atomic { op, at, code, .. } => {
                Directive::Operate(Operation { key: at.key, addr: at.addr, code, op })
            }
            Frame::Credit { credit } => {
                if self.peers[peer.0 as usize].take_credit(credit) {
                    Directive::Done
                } else {
                    Directive::Broken("it returned credit that it never had")
                }
            }
            Frame::Am { id, header_len, .. } => Directive::Active { id, header_len },
            Frame::Got { .. } | Frame::Retire { .. } | Frame::LaneOpen { .. } | Frame::LaneAnswer { .. } => {
                Directive::Lane
            }
            Frame::Seen { seq } => {
                if self.peers[peer.0 as usize].take_seen(seq) {
                    self.name(peer);
                    Directive::Done
                } else {
                    Directive::Broken("it saw what was not sent")
                }
            }
            Frame::Value { .. } => Directive::Value,
            Frame::ValueHad { tag, iteration } => self.on_value_had(peer, tag, iteration),
            Frame::Bye => Directive::Done,
        }
    }

    /// A payload is where [`Directive::Place`] said.
    #[inline]
    pub fn placed(&mut self, peer: PeerIdx, after: After) {
        match after {
            After::Nothing => {}
            After::Received(op) => self.received(op),
            After::Stashed(stash) => self.stashed(stash),
            After::Fragment(op, len) => self.fragment_placed(peer, op, len),
            After::Put(put) => self.put_placed(put),
            After::Fetched(part, len) => self.fetched(part, len),
        }
    }

    /// A direct read or write that an [`Action`] asked for has ended; on failure the bytes go another way.
    pub fn job_done(&mut self, peer: PeerIdx, job: Job, ok: bool) {
        match job {
            Job::Rget(op) => self.rget_done(peer, op, ok),
            Job::Rput(op) => self.rput_done(peer, op, ok),
            Job::PutRts(put) => self.put_rts_done(put, ok),
            Job::Get { op, key, len } => self.get_done(peer, op, key, len, ok),
        }
    }
}
