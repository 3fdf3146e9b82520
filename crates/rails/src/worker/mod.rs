//! A worker: one endpoint's protocol engine, its rails, its control channel, and the users' memory.
//!
//! Single-threaded: all methods take `&mut self`. None blocks but [`Worker::close`], which is bounded, and [`Worker::progress`]
//! where the settings let it sleep, or, for a second at most, where a read ends that a peer is helping with (decision 20). Who has several threads puts a lock around it. Nothing moves unless [`Worker::progress`] is
//! called, but that a message without credit looks whether memory has some; who wants to sleep asks [`Worker::arm`] and then waits for [`Worker::wait_fd`].
//!
//! Files: `ops` what users ask and `outcome` what they hear; `state` what frames act on; `outbound` engine to rails; `direct` memory to memory; `inbound` rails to engine; `buffers` names to addresses; `connect`
//! from what `crate::wireup` agreed with peers to links; `lanes` several of them to one peer; `events` what is told of all this, `top` to whom asks; `closing` the end of peers and of the endpoint, `linger` how long that waits, `forget` what is kept of those that went; `idle` what
//! polling in vain does, `between` what the caller does meanwhile, `clock` how long it had to wait for a processor; `turns` which rails are looked at; `pace` how fast who only sends may do so; `values` the asynchronous scheme.

mod between;
mod buffers;
mod clock;
mod closing;
mod connect;
mod direct;
mod events;
mod forget;
mod idle;
mod inbound;
mod lanes;
mod linger;
mod ops;
mod outbound;
mod outcome;
mod outlet;
mod pace;
mod spare;
mod state;
mod top;
mod turns;
mod values;

pub use crate::wireup::Strangers;
pub use buffers::User;
pub use idle::{
    Idle, Rest, asking, at_home, is_asleep_elsewhere, is_looked_in, look_in, look_in_no_more, sleep_between,
    sleep_no_more, wake_sleepers,
};
pub use lanes::{LaneReport, PathReport, Paths};
pub use linger::Linger;
pub use ops::{AT_ONCE_MAX, ATOMIC_MAX, INJECT_MAX};
pub use outcome::{Counts, Event, EventKind, Issued, Listener, Nobody, Refused};
pub use polyrail_core::values::{PutError, Scheme, Taken};

use crate::config::Config;
use crate::error::Error;
use crate::list::RailId;
use crate::rail::{Look, RawIov};
use crate::set::{RailLink, Rails};
use crate::wireup::{self, Wireup};
use buffers::{Buffers, Engine};
use events::Notes;
use polyrail_core::cost::Explanation;
use polyrail_core::frame::MAX_PAYLOAD;
use polyrail_core::proto::{self, PeerIdx};
use polyrail_core::wire::offer::Interface;
use polyrail_core::wire::{Address, PeerId};
use state::{Core, PeerInfo};
use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use top::{TOKEN_TOP, Top};
use turns::{BySystemCall, InMemory, Turns};

/// A function that active messages are given to: sender, header, payload. It runs during progress, or while a message is sent, and to
/// completion; it cannot call the worker.
pub type Handler = Box<dyn FnMut(PeerIdx, &[u8], &[u8]) + Send>;

/// Rounds of progress between two looks at the clock for the lanes' sake.
const LOOK_ROUNDS: u64 = 16;

/// For how long a user counts as waiting to send, who was told to come again, and how soon he may.
const REFUSED: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(1);

/// One endpoint. See the module's documentation.
pub struct Worker {
    config: Config,
    address: Address,
    core: Core,
    rails: Rails,
    turns: Turns,
    /// Bytes that may still be moved directly until a round of progress has more to do than to look at memory.
    direct_budget: usize,
    wireup: Wireup,
    top: Top,
    gone: forget::Gone,
    by_id: HashMap<PeerId, PeerIdx>,
    blocked: Vec<PeerIdx>,
    iov: Vec<RawIov>,
    zeros: Box<[u8]>,
    rounds: u64,
    /// The round that is to do more than look at memory.
    chores_at: u64,
    idle: Idle,
    notes: Notes,
    /// This side's network interfaces, as peers know them.
    near: Arc<[Interface]>,
    /// Peers that a network leads to, and when their lanes are looked at next.
    netted: Vec<PeerIdx>,
    /// Of those, how many are sent or send much just now.
    busy_peers: usize,
    /// Those of them that several lanes lead to, or have led to in this session.
    wide: Vec<PeerIdx>,
    next_look: Instant,
    /// The caller may have slept until then.
    slept: bool,
    /// When a user was told last to make progress first.
    refused: Option<Instant>,
}

impl Worker {
    /// Marks operations of which the user wants to hear nothing.
    const SILENT: u64 = u64::MAX;

    /// Opens an endpoint: its listener, its rails, its address.
    ///
    /// # Errors
    /// When a setting cannot be used, or descriptors, ports or addresses are not to be had; each with advice.
    pub fn open(mut config: Config) -> Result<Self, Error> {
        if config.encrypt {
            config.rails = config.rails.that(RailId::seals_all);
        }
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|e| Error::system("random numbers", std::io::Error::other(e)))?;
        let window = (config.window as u64 / proto::CREDIT_UNIT) as u32;
        let hash_seed = u64::from_le_bytes(seed);
        let bounds = proto::Bounds { announced: config.announced as u32, ..proto::Bounds::DEFAULT };
        let engine = Engine::new(proto::Config { window, hash_seed, bounds });
        let mut rails = Rails::open(&config)?;
        let (mut wireup, address) = Wireup::open(&config, &mut rails)?;
        for fd in rails.wait_fds() {
            // to be woken is all: rails are looked at anyway
            wireup.watch(fd, wireup::TOKEN_OTHERS)?;
        }
        let top = Top::open(wireup.id);
        if let Some(fd) = top.fd() {
            wireup.watch_listener(fd, TOKEN_TOP)?;
        }
        let near = wireup.offer.interfaces().into();
        let mut worker = Self {
            address,
            core: Core {
                engine,
                bufs: Buffers::default(),
                links: RailId::ALL.each_ref().map(|_| Vec::new()),
                peers: Vec::new(),
                events: VecDeque::new(),
                held: HashMap::new(),
                due: Vec::new(),
                redelivered: false,
                asks: true,
                cut: Vec::new(),
                downs: Vec::new(),
                lane_news: Vec::new(),
                handlers: HashMap::new(),
                reads_told: true,
                starting: Vec::new(),
                transfers: 0,
                counts: Counts::default(),
                began: Instant::now(),
            },
            rails,
            turns: Turns::default(),
            direct_budget: direct::ROUND,
            wireup,
            top,
            gone: forget::Gone::default(),
            by_id: HashMap::new(),
            blocked: Vec::new(),
            iov: Vec::new(),
            zeros: vec![0; MAX_PAYLOAD].into(),
            rounds: 0,
            chores_at: 0,
            near,
            netted: Vec::new(),
            busy_peers: 0,
            wide: Vec::new(),
            next_look: Instant::now(),
            slept: false,
            refused: None,
            idle: Idle::new(config.yielding, config.sleep_after),
            notes: Notes::new(config.log.as_ref()),
            config,
        };
        worker.connect_self();
        Ok(worker)
    }

    /// What others need to reach this endpoint. It carries the endpoint's key: give it to those only who may connect.
    pub fn address(&self) -> [u8; Address::LEN] {
        self.address.to_bytes()
    }

    /// The peer at an address; the same address always gives the same peer. Nothing is connected yet.
    ///
    /// # Errors
    /// [`Error::Address`] when the bytes are no address.
    pub fn peer(&mut self, address: &[u8]) -> Result<PeerIdx, Error> {
        let address = Address::parse(address).map_err(|why| Error::Address(why.to_string()))?;
        let id = address.id();
        let peer = self.peer_of(id);
        let over = self.is_over(peer);
        let info = &mut self.core.peers[peer.0 as usize];
        match &info.address {
            Some(_) if over && info.released => (info.address, info.released) = (Some(address), false),
            Some(known) if known.to_bytes() != address.to_bytes() && id != self.address.id() => {
                let why = "two endpoints have the same key; give named endpoints of different hosts different ports";
                return Err(Error::Address(why.into()));
            }
            _ => (info.address, info.released) = (Some(address), false),
        }
        Ok(peer)
    }

    /// The peer's address, if it is known (a peer that connected by itself may not be in any address vector).
    pub fn address_of(&self, peer: PeerIdx) -> Option<[u8; Address::LEN]> {
        self.core.peers.get(peer.0 as usize)?.address.as_ref().map(Address::to_bytes)
    }

    /// The peer with this identity, if it is known.
    pub fn known(&self, id: PeerId) -> Option<PeerIdx> {
        self.by_id.get(&id).copied()
    }

    /// The public identity of a peer: that of its address, also when the address itself is not known.
    pub fn id_of(&self, peer: PeerIdx) -> Option<PeerId> {
        Some(self.core.peers.get(peer.0 as usize)?.id)
    }

    /// Why a peer cannot be reached, or was lost: a sentence that names it.
    pub fn why(&self, peer: PeerIdx) -> Option<&str> {
        self.core.peers.get(peer.0 as usize)?.why.as_deref()
    }

    /// Which rail carries messages to this peer, and how large ones travel; none while not connected.
    pub fn route(&self, peer: PeerIdx) -> Option<(&'static str, proto::Route)> {
        let (rail, _) = self.core.lane(peer)?;
        let route = self.core.engine.route(peer);
        Some((rail.name(), proto::Route { eager_max: self.core.engine.eager_max(peer) as usize, ..route }))
    }

    /// What was tried before the rail in use was found, and why it failed: a sentence each.
    pub fn passed_over(&self, peer: PeerIdx) -> &[String] {
        self.core.peers.get(peer.0 as usize).map_or(&[], |info| &info.passed_over)
    }

    /// Why this process cannot reach the peer's memory, if it tried and failed.
    pub fn direct_refused(&self, peer: PeerIdx) -> Option<&str> {
        self.core.peers.get(peer.0 as usize)?.direct_refused.as_deref()
    }

    /// Why messages to this peer travel as they do: the protocol for each size, and what it would cost otherwise.
    pub fn explanation(&self, peer: PeerIdx) -> Option<Explanation> {
        self.core.peers.get(peer.0 as usize)?.explanation
    }

    /// Whether wireup with a peer is done.
    pub fn is_connected(&self, peer: PeerIdx) -> bool {
        self.core.engine.is_connected(peer)
    }

    fn peer_of(&mut self, id: PeerId) -> PeerIdx {
        if let Some(peer) = self.by_id.get(&id) {
            return *peer;
        }
        let peer = self.core.engine.add_peer();
        match self.core.peers.get_mut(peer.0 as usize) {
            Some(info) => *info = PeerInfo::new(id),
            None => self.core.peers.push(PeerInfo::new(id)),
        }
        self.by_id.insert(id, peer);
        peer
    }

    /// Sets the function that active messages with this number are given to.
    pub fn on_active(&mut self, id: u16, handler: Handler) {
        self.core.handlers.insert(id, handler);
    }

    /// Whether [`EventKind::RemoteRead`] is asked for, as at first. Who hears that memory was read may write to it, so what leaves by
    /// a network is then copied, because it may have to be sent again.
    pub fn tell_reads(&mut self, told: bool) {
        self.core.reads_told = told;
    }

    /// Sends an active message: `header` (at most 64 KiB) and `payload` arrive together at the peer's handler `id`, in order
    /// with messages. Both are copied.
    ///
    /// # Errors
    /// [`Refused::Again`]: not connected yet, no room, or something waits before it. [`Refused::Gone`].
    ///
    /// # Panics
    /// When header and payload together are longer than [`Worker::active_max`].
    pub fn send_active(
        &mut self,
        to: PeerIdx,
        id: u16,
        header: &[u8],
        payload: &[u8],
    ) -> Result<(), Refused> {
        let len = header.len() + payload.len();
        if !self.core.engine.is_connected(to) {
            self.connect(to)?;
            return Err(Refused::Again);
        }
        assert!(len <= self.active_max(to), "active message of {len} bytes");
        let Some(frame) = self.core.engine.try_active(to, id, header.len() as u16, len) else {
            return Err(Refused::Again);
        };
        let Some(lane) = self.lane_for(to, len as u64) else { return Err(Refused::Again) };
        let piece = |bytes: &[u8]| RawIov { base: bytes.as_ptr().cast_mut(), len: bytes.len() };
        let iov = [piece(header), piece(payload)];
        // SAFETY: both slices live through the call.
        match unsafe { self.rails.send(lane, &frame.encode(len), &iov, None) } {
            Ok(_) => {
                self.core.engine.active_sent(to);
                Ok(())
            }
            Err(_) => Err(Refused::Again),
        }
    }

    /// The lane for a short message of so many bytes, thought over if it is time; none where it has to wait.
    fn lane_for(&mut self, to: PeerIdx, len: u64) -> Option<RailLink> {
        let lane = self.core.peers[to.0 as usize].short.lane_for(len);
        if lane.is_none() { self.chosen_lane(to) } else { lane }
    }

    #[cold]
    fn chosen_lane(&mut self, to: PeerIdx) -> Option<RailLink> {
        self.core.asks = true;
        self.core.peers[to.0 as usize].lanes.as_ref()?;
        self.choose_lane(to);
        let short = &self.core.peers[to.0 as usize].short;
        short.lane.filter(|_| short.takes)
    }

    /// Longest active message to this peer, header included, in bytes; 0 while not connected.
    pub fn active_max(&self, to: PeerIdx) -> usize {
        let route = self.core.engine.route(to);
        route.eager_max.min(route.fragment)
    }

    /// Moves what can be moved. Returns how many frames arrived and connections changed; 0 means that there was nothing to
    /// do.
    #[inline]
    pub fn progress(&mut self) -> usize {
        self.progress_telling(&mut Nobody)
    }

    /// The same, where somebody hears of messages as they come. What is still to be told by [`Worker::next_event`] comes first: while
    /// there is any, events tell.
    #[inline]
    pub fn progress_telling<L: Listener>(&mut self, listener: &mut L) -> usize {
        self.rounds += 1;
        self.idle.begins();
        let mut moved = self.look_in_memory(listener);
        if self.core.asks || self.rounds >= self.chores_at {
            moved += self.do_more(moved == 0, listener);
        }
        debug_assert!(
            self.core.asks || !self.has_more(),
            "something asks to be acted on, and nobody said so"
        );
        if moved > 0 {
            self.idle.busy();
        } else {
            self.rest();
        }
        moved
    }

    /// Counts a round of progress that would find nothing to do. False: there may be something, and [`Worker::progress`] is to be called.
    /// For who polls and rests by himself.
    #[inline(always)]
    pub fn skip(&mut self) -> bool {
        if self.core.asks || self.rounds + 1 >= self.chores_at || !self.rails.skip() {
            return false;
        }
        debug_assert!(!self.has_more(), "something asks to be acted on, and nobody said so");
        self.rounds += 1;
        true
    }

    /// Takes what came by the rails that it costs nothing to look at; how many frames.
    #[inline(always)]
    fn look_in_memory<L: Listener>(&mut self, listener: &mut L) -> usize {
        let mut round = InMemory { core: &mut self.core, listener, moved: 0, by_lanes: false };
        self.rails.each(&mut round);
        let (moved, by_lanes) = (round.moved, round.by_lanes);
        if by_lanes {
            self.acknowledge();
        }
        moved
    }

    /// What a round does besides taking messages out of memory that are given to their receives at once: most rounds nothing.
    #[inline(never)]
    fn do_more<L: Listener>(&mut self, idle: bool, listener: &mut L) -> usize {
        self.direct_budget = direct::ROUND;
        let chores = self.rounds >= self.chores_at;
        let mut moved = if chores { self.do_chores(idle, listener) } else { 0 };
        if self.is_asked() {
            moved += self.act_on_arrivals();
        }
        if self.core.engine.has_lent() {
            moved += self.copy_lent(false);
        }
        if chores {
            self.rails.flush(&self.core.bufs);
        }
        self.core.asks = self.has_more();
        moved
    }

    /// What a round does now and then: the other rails, lanes, the control channel. Where there is none of all that only the
    /// control channel is looked at, in every so many rounds.
    #[inline(never)]
    fn do_chores<L: Listener>(&mut self, idle: bool, listener: &mut L) -> usize {
        let mut moved = 0;
        let by_system_call = self.rails.links(Look::SystemCall) > 0;
        if by_system_call {
            moved += self.look_by_system_call(listener);
        }
        if !self.netted.is_empty() && (self.slept || self.rounds.is_multiple_of(LOOK_ROUNDS)) {
            self.slept = false;
            self.watch_lanes();
        }
        if self.wireup.due(self.rounds, idle && moved == 0) {
            moved += self.wire_up();
        }
        let calm = !by_system_call && self.netted.is_empty() && !self.wireup.busy();
        if calm && moved == 0 {
            self.chores_at = self.wireup.next_round(self.rounds);
        } else {
            self.stir();
        }
        moved
    }

    /// The next round has chores: something has begun that it is to look at.
    fn stir(&mut self) {
        (self.chores_at, self.core.asks) = (0, true);
    }

    /// A round of the rails that it costs a system call to look at.
    #[inline(never)]
    fn look_by_system_call<L: Listener>(&mut self, listener: &mut L) -> usize {
        let in_memory = self.rails.links(Look::Memory);
        let (core, turns) = (&mut self.core, &mut self.turns);
        let mut round = BySystemCall { core, listener, turns, in_memory, moved: 0, by_lanes: false };
        self.rails.each(&mut round);
        let (moved, by_lanes) = (round.moved, round.by_lanes);
        if by_lanes {
            self.acknowledge();
        }
        self.take_back_values();
        moved
    }

    /// A round was empty.
    #[inline]
    fn rest(&mut self) {
        if is_looked_in() {
            if self.wireup.looked_in() {
                self.stir();
            }
            return;
        }
        let in_bulk = self.idle.naps_in_bulk() && self.in_bulk();
        match if in_bulk { self.idle.nap_in_bulk() } else { self.idle.rest() } {
            Rest::Spin => std::hint::spin_loop(),
            Rest::Yield => {
                std::thread::yield_now();
                if self.idle.resumed() {
                    self.look_around();
                }
            }
            Rest::Sleep(most) => self.nap(most),
        }
    }

    /// Whether something long is under way, by networks only, whose rest takes its time: who waits had better sleep meanwhile.
    #[inline(never)]
    pub fn in_bulk(&self) -> bool {
        let takes_its_time = |peer: &PeerIdx| {
            let lanes = &self.core.peers[peer.0 as usize].lanes;
            lanes.as_ref().is_some_and(|lanes| !lanes.session.holds_little())
        };
        (self.rails.in_bulk() || !self.blocked.is_empty()) && self.blocked.iter().all(takes_its_time)
    }

    /// Looks at once whether peers of this host live, which [`Worker::progress`] does in every so many rounds: for who gives
    /// the processor away between rounds.
    pub fn look_around(&mut self) {
        self.rails.look_around();
    }

    #[cold]
    fn nap(&mut self, most: Duration) {
        if self.arm() {
            crate::sys::wait_for(self.wait_fd(), libc::POLLIN, most);
            self.idle.resumed();
        }
    }

    /// Whether anything asks to be acted on.
    fn is_asked(&self) -> bool {
        self.core.has_news() || self.core.transfers | self.blocked.len() > 0
    }

    /// Whether a round of progress has more to do than to look at memory: what [`Core::asks`] says, or less.
    fn has_more(&self) -> bool {
        self.is_asked() || !self.core.events.is_empty()
    }

    /// Acts on what came; how many times memory was moved.
    fn act_on_arrivals(&mut self) -> usize {
        self.stir();
        self.settle();
        let mut moved = 0;
        if self.core.transfers > 0 {
            moved = self.move_transfers();
            self.settle();
        }
        if !self.core.due.is_empty() {
            self.core.redeliver();
            self.settle();
        }
        if std::mem::take(&mut self.core.redelivered) {
            self.tell_seen();
            self.settle();
        }
        if !self.blocked.is_empty() {
            self.retry_blocked();
            self.settle();
        }
        if !self.core.lane_news.is_empty() {
            self.hear_of_lanes();
            self.settle();
        }
        if !self.core.cut.is_empty() || !self.core.downs.is_empty() {
            self.bury();
        }
        moved
    }

    /// Tells peers what came.
    fn acknowledge(&mut self) {
        self.core.asks = true;
        while let Some((rail, ack)) = self.rails.take_ack() {
            let link = (rail, ack.link);
            let Some(info) = self.core.link(link) else { continue };
            info.much |= ack.bulk;
            let peer = info.peer;
            self.tell_got(peer, link, &ack.received);
        }
        self.tell_seen();
    }

    /// Tells the peers that several lanes lead to, or have led to, what was seen of their order: what an ended lane did not
    /// deliver comes again by those that are left, if only one, and more of it than the peer may send without a word.
    fn tell_seen(&mut self) {
        let core = &mut self.core;
        self.wide.retain(|peer| {
            let lanes = &core.peers[peer.0 as usize].lanes;
            let wide = lanes.as_ref().is_some_and(|lanes| lanes.session.had_several());
            if wide {
                core.engine.tell_seen(*peer, false);
            }
            wide
        });
    }

    /// The next event, oldest first.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        self.core.events.pop_front()
    }

    /// The event that [`Worker::next_event`] takes next.
    #[inline]
    pub fn peek_event(&self) -> Option<&Event> {
        self.core.events.front()
    }

    /// A descriptor that becomes readable when there may be something to do, once [`Worker::arm`] has said yes.
    pub fn wait_fd(&self) -> RawFd {
        self.wireup.wait_fd()
    }

    /// Prepares to sleep on [`Worker::wait_fd`]. False: there is something to do already; call [`Worker::progress`].
    pub fn arm(&mut self) -> bool {
        if self.core.engine.has_lent() {
            self.copy_lent(true);
        }
        self.rails.flush(&self.core.bufs);
        let nothing = self.core.events.is_empty() && self.core.transfers == 0 && !self.core.has_news();
        let sleeps = nothing && self.rails.arm();
        if sleeps {
            self.stir();
            self.slept = true;
            self.turns.sleeps();
            let lanes = self.lanes_due();
            // whoever waits to send may go on after a while, of which nothing else tells
            let refused = self.refused.filter(|at| at.elapsed() < REFUSED).map(|_| Instant::now() + AGAIN);
            self.wireup.doze(self.rails.due().into_iter().chain(lanes).chain(refused).min());
        }
        sleeps
    }

    /// Whether small messages wait to share a system call: without progress for long, call [`Worker::push`].
    #[inline(always)]
    pub fn holds_back(&self) -> bool {
        self.rails.holds_back()
    }

    /// Whether there are peers that hear only by progress that this side is there: without any for as long as
    /// [`Config::peer_timeout`](crate::Config) it counts as gone.
    pub fn is_owed_answers(&self) -> bool {
        self.rails.by_program()
    }

    /// Sends what is held back.
    pub fn push(&mut self) {
        self.rails.flush(&self.core.bufs);
    }

    /// Connections that came to nothing because the other side did not prove the key, or speaks another version.
    pub fn strangers(&self) -> &Strangers {
        self.wireup.strangers()
    }

    /// Counts of what was done.
    pub fn counts(&self) -> Counts {
        Counts { peers: self.core.peers.len(), ..self.core.counts }
    }

    /// Whether nothing waits to leave and nobody owes anybody an answer: [`Worker::close`] would not wait.
    pub fn is_quiet(&self) -> bool {
        self.all_quiet()
    }

    /// Ends the endpoint in good order: what was sent leaves, waiting at most `linger` (who is to wait longer asks [`Linger`] before); peers are
    /// told; operations that are still open come to nothing. Dropping a worker closes it with the linger time of its settings.
    pub fn close(&mut self, linger: Duration) {
        let deadline = Instant::now() + linger;
        self.say_bye(deadline);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.close(self.config.linger);
    }
}
