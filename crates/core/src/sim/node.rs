//! One simulated process: an engine and the memory that it acts on. It is to the engine what a worker is, without rails.

use super::memory::{Bytes, Memory};
use super::rail::Time;
use crate::frame::{AtomicKind, Frame, OpId, Status};
use crate::proto::{
    self, Access, After, Config, Directive, Envelope, Failure, Filter, Next, Operation, Out, PeerIdx, Place,
    Receiver, Region, Registered, Span,
};
use crate::session::Partial;
use crate::session::Told;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// What goes along with a simulated receive: its number, under which its buffer is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The receive's number.
    pub op: OpId,
    /// Bytes of its buffer.
    pub room: u64,
}

impl Receiver for Ticket {
    type User = OpId;

    fn user(&self) -> OpId {
        self.op
    }
    fn room(&self) -> u64 {
        self.room
    }
}

/// A simulated process's engine.
pub type Engine = proto::Engine<Ticket>;
pub(super) type Action = proto::Action<OpId>;
type Completion = proto::Completion<OpId>;

impl Engine {
    /// Where the bytes of a span are: a receive's under its own number.
    pub(super) fn at(&self, span: Span) -> Span {
        match span.place {
            Place::Recv(op) => {
                let place = self.receiver(op).map_or(Place::Discard, |ticket| Place::Recv(ticket.op));
                Span { place, ..span }
            }
            _ => span,
        }
    }
}

/// What the user of a process is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A send has ended.
    Sent {
        /// Which.
        op: OpId,
        /// How.
        result: Result<(), Failure>,
    },
    /// A receive has ended, or a multi-receive buffer has one message more.
    Received {
        /// Which.
        op: OpId,
        /// What the message carried; nothing when there was none.
        envelope: Option<Envelope>,
        /// The bytes placed.
        bytes: Bytes,
        /// Where in the buffer.
        offset: u64,
        /// Whether the buffer is the user's again.
        released: bool,
        /// How.
        result: Result<(), Failure>,
    },
    /// A put, get or atomic has ended.
    Rma {
        /// Which.
        op: OpId,
        /// Its local bytes: what came back, of a get; operands and then results, of an atomic.
        bytes: Bytes,
        /// How.
        result: Result<(), Failure>,
    },
    /// A peer wrote to a region, or read from it.
    Remote {
        /// Who.
        from: PeerIdx,
        /// Which region.
        key: u64,
        /// Immediate data.
        data: Option<u64>,
        /// Bytes.
        len: u64,
        /// Whether it wrote.
        write: bool,
    },
    /// An active message came.
    Active {
        /// From whom.
        from: PeerIdx,
        /// Its handler.
        id: u16,
        /// Its header.
        header: Vec<u8>,
        /// The rest.
        payload: Bytes,
    },
    /// The link to a peer ended.
    Down {
        /// Which peer.
        peer: PeerIdx,
    },
}

/// What the user was told, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When.
    pub at: Time,
    /// What.
    pub what: What,
}

/// What decides which receive takes which message, in the order in which it happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trace {
    /// A frame that has an order was handled in its turn.
    Handled(PeerIdx, Frame),
    /// A receive was posted.
    Posted(OpId, Filter),
    /// A multi-receive buffer was posted: from whom it receives, its bytes, and below how many it is full.
    PostedMulti(OpId, Option<PeerIdx>, u64, u64),
    /// A receive was taken back.
    Cancelled(OpId),
    /// A message was shown by a peek, and claimed.
    Claimed(Filter, OpId),
}

/// A payload on its way, and what becomes of it.
#[derive(Debug)]
enum Incoming {
    Direct(Span, After),
    Whole(Frame),
    Held(u32, Frame),
}

/// A process.
pub struct Node {
    /// What decides.
    pub engine: Engine,
    /// What it decides about.
    pub memory: Memory,
    /// What the user was told.
    pub events: Vec<Event>,
    /// What decided about matching, and when.
    pub trace: Vec<(Time, Trace)>,
    /// Which peers broke the protocol, and how.
    pub broken: Vec<(PeerIdx, &'static str)>,
    /// How many of those have been cut off.
    pub(super) judged: usize,
    /// Frames that left with bytes of an operation that had ended. Only where a peer is gone, or lies.
    pub torn: u64,
    /// Most bytes that each peer has had in stashes here.
    pub most_stashed: BTreeMap<PeerIdx, u64>,
    pub(super) now: Time,
    /// Direct reads and writes that were asked for.
    pub(super) jobs: Vec<Action>,
    stashed: BTreeMap<OpId, (PeerIdx, u64)>,
    held: BTreeMap<(PeerIdx, u32), (Frame, Bytes)>,
    incoming: BTreeMap<(PeerIdx, usize), (Incoming, Frame, usize)>,
    /// Payloads of which only a part came, by whom.
    partial: BTreeMap<PeerIdx, Partial<Incoming>>,
    /// What peers told of their lanes: which lane, frames had from it, whether it has ended.
    pub(super) lane_news: Vec<(PeerIdx, Told)>,
    due: Vec<(PeerIdx, u32)>,
    counted: bool,
    tickets: u32,
}

impl Node {
    /// A process that knows `peers` peers, numbered from 0, itself among them. `counted`: buffers that it makes room for
    /// have a length only.
    pub fn new(config: Config, peers: usize, counted: bool) -> Self {
        let mut engine = Engine::new(config);
        (0..peers).for_each(|_| {
            engine.add_peer();
        });
        Self {
            engine,
            memory: Memory::default(),
            events: vec![],
            trace: vec![],
            broken: vec![],
            judged: 0,
            torn: 0,
            most_stashed: BTreeMap::new(),
            now: 0,
            jobs: vec![],
            stashed: BTreeMap::new(),
            held: BTreeMap::new(),
            incoming: BTreeMap::new(),
            partial: BTreeMap::new(),
            lane_news: vec![],
            due: vec![],
            counted,
            tickets: 0,
        }
    }

    /// A new receive's buffer of `room` bytes, in so many pieces of memory.
    pub fn ticket(&mut self, room: u64, pieces: u64) -> Ticket {
        let op = OpId { slot: self.tickets, generation: 0 };
        self.tickets += 1;
        let bytes = self.room(room);
        self.memory.put(Place::Recv(op), bytes, 0, pieces);
        Ticket { op, room }
    }

    /// Room for `len` bytes.
    pub fn room(&self, len: u64) -> Bytes {
        if self.counted { Bytes::Counted(len) } else { Bytes::Real(vec![0; len as usize]) }
    }

    /// Makes `bytes` reachable for peers under a key.
    pub fn register(&mut self, key: u64, base: u64, bytes: Bytes, access: Access) {
        let region = Registered { base, len: bytes.len(), access };
        if let Ok(generation) = self.engine.regions.insert(key, region) {
            self.memory.put(Place::Region(key, generation), bytes, base, 1);
        }
    }

    /// Ends that; the memory, if it was there.
    pub fn deregister(&mut self, key: u64) -> Option<Bytes> {
        let place = self.region(key)?;
        self.engine.regions.remove(key);
        self.memory.take(place)
    }

    /// Where the bytes of a region are.
    pub fn region(&self, key: u64) -> Option<Place> {
        self.engine.regions.generation(key).map(|generation| Place::Region(key, generation))
    }

    /// Frames kept because it is not their turn, payloads that have begun, and stashes: all 0 when all is over.
    pub fn unfinished(&self) -> [usize; 3] {
        let partial = self.partial.values().filter(|partial| !partial.is_empty()).count();
        [self.held.len(), self.incoming.len() + partial, self.stashed.len()]
    }

    pub(super) fn tell(&mut self, what: What) {
        self.events.push(Event { at: self.now, what });
    }

    pub(super) fn trace(&mut self, what: Trace) {
        self.trace.push((self.now, what));
    }

    pub(super) fn down(&mut self, peer: PeerIdx) {
        self.incoming.retain(|(of, _), _| *of != peer);
        self.partial.remove(&peer);
        self.lane_news.retain(|(of, ..)| *of != peer);
        self.engine.peer_down(peer);
        self.tell(What::Down { peer });
    }

    // ---- in ------------------------------------------------------------------------------------------------------------

    /// A whole frame has arrived.
    pub fn frame(&mut self, peer: PeerIdx, frame: &Frame, payload: Bytes) {
        let Ok(region) = region_of(frame, &payload) else {
            return self.broken.push((peer, "a list of memory is malformed"));
        };
        let len = payload.len() as usize;
        let op = frame.plain().and_then(|plain| {
            let fits = |ticket: &Ticket| (ticket.room >= len as u64).then_some(ticket.op);
            // the world asks for work anyway
            self.engine.try_deliver(peer, &plain, len, &mut false, fits)
        });
        if let (Some(op), &Frame::Eager { matching, data, .. }) = (op, frame) {
            self.trace(Trace::Handled(peer, *frame));
            self.memory.write(Span { place: Place::Recv(op), offset: 0, len }, &payload);
            let envelope = Some(Envelope { from: peer, matching, data, len: len as u64 });
            return self.complete(Completion::Recv {
                user: op,
                peer: Some(peer),
                envelope,
                got: len as u64,
                offset: 0,
                released: true,
                result: Ok(()),
            });
        }
        match self.on_frame(peer, frame, payload.len() as usize, region) {
            Directive::Done => {}
            Directive::Place(span, after) => self.place(peer, span, after, &payload),
            Directive::Hold(seq) => {
                self.held.insert((peer, seq), (*frame, payload));
            }
            Directive::Operate(operation) => self.operate(peer, &operation, &payload),
            Directive::Active { id, header_len } => {
                let split = u64::from(header_len).min(payload.len());
                let header = payload.slice(0, split).map_or(vec![], |bytes| bytes.real().to_vec());
                let payload = payload.slice(split, payload.len() - split).unwrap_or(Bytes::Counted(0));
                self.tell(What::Active { from: peer, id, header, payload });
            }
            Directive::Value => {
                if let Err(why) = self.engine.take_in_value(peer, self.now, frame, payload.real()) {
                    self.broken.push((peer, why));
                }
            }
            Directive::Lane => self.lane_word(peer, frame, &payload),
            Directive::Broken(why) => self.broken.push((peer, why)),
        }
    }

    /// What a peer says of a lane.
    fn lane_word(&mut self, peer: PeerIdx, frame: &Frame, payload: &Bytes) {
        match Told::read(frame, payload.real()) {
            Some(told) => self.lane_news.push((peer, told)),
            None => self.broken.push((peer, "no word about a lane that is understood here")),
        }
    }

    fn on_frame(&mut self, peer: PeerIdx, frame: &Frame, len: usize, region: Option<Region>) -> Directive {
        let directive = self.engine.on_frame(peer, frame, len, region);
        if frame.order().is_some() && !matches!(directive, Directive::Hold(_) | Directive::Broken(_)) {
            self.trace(Trace::Handled(peer, *frame));
        }
        directive
    }

    /// The header of a frame with a long payload has arrived by a rail; no other frame comes by that rail before [`Node::end`].
    pub fn begin(&mut self, peer: PeerIdx, rail: usize, frame: Frame, len: usize) {
        if let Some(incoming) = self.resumed(peer, &frame, len) {
            self.incoming.insert((peer, rail), (incoming, frame, len));
            return;
        }
        let nowhere = Incoming::Direct(Span { place: Place::Discard, offset: 0, len }, After::Nothing);
        let incoming = match frame {
            Frame::Eager { .. } | Frame::Frag { .. } | Frame::Put { .. } | Frame::GetData { .. } => {
                match self.on_frame(peer, &frame, len, None) {
                    Directive::Place(span, after) => {
                        let span = self.engine.at(span);
                        self.make_stash(peer, span);
                        Incoming::Direct(span, after)
                    }
                    Directive::Hold(seq) => Incoming::Held(seq, frame),
                    Directive::Broken(why) => {
                        self.broken.push((peer, why));
                        nowhere
                    }
                    _ => nowhere,
                }
            }
            other => Incoming::Whole(other),
        };
        self.incoming.insert((peer, rail), (incoming, frame, len));
    }

    /// The payload of the frame last begun is all there.
    pub fn end(&mut self, peer: PeerIdx, rail: usize, payload: Bytes) {
        if let Some((incoming, ..)) = self.incoming.remove(&(peer, rail)) {
            self.finish(peer, incoming, payload);
        }
    }

    /// A whole frame has arrived by a lane; it may be one of which a part had come before.
    pub(super) fn frame_by(&mut self, peer: PeerIdx, frame: &Frame, payload: Bytes) {
        match self.resumed(peer, frame, payload.len() as usize) {
            Some(incoming) => self.finish(peer, incoming, payload),
            None => self.frame(peer, frame, payload),
        }
    }

    fn resumed(&mut self, peer: PeerIdx, frame: &Frame, len: usize) -> Option<Incoming> {
        self.partial.get_mut(&peer)?.take(frame, len)
    }

    /// A lane has ended: what it brought a part of comes again.
    pub(super) fn cut_short(&mut self, peer: PeerIdx, rail: usize) {
        if let Some((incoming, frame, len)) = self.incoming.remove(&(peer, rail)) {
            let kept = self.partial.entry(peer).or_default().keep(frame, len, incoming);
            debug_assert!(kept, "no simulated peer leaves so much unsaid");
        }
    }

    fn finish(&mut self, peer: PeerIdx, incoming: Incoming, payload: Bytes) {
        match incoming {
            Incoming::Direct(span, after) => {
                self.memory.write(span, &payload);
                self.engine.placed(peer, after);
            }
            Incoming::Whole(frame) => self.frame(peer, &frame, payload),
            Incoming::Held(seq, frame) => {
                self.held.insert((peer, seq), (frame, payload));
                if self.engine.is_due(peer, seq) {
                    self.due.push((peer, seq));
                }
            }
        }
    }

    fn place(&mut self, peer: PeerIdx, span: Span, after: After, payload: &Bytes) {
        let span = self.engine.at(span);
        self.make_stash(peer, span);
        self.memory.write(span, payload);
        self.engine.placed(peer, after);
    }

    fn make_stash(&mut self, peer: PeerIdx, span: Span) {
        if let Place::Stash(stash) = span.place {
            if self.stashed.contains_key(&stash) {
                return;
            }
            let len = self.engine.stash_len(stash).expect("it is to be filled");
            let room = self.room(len);
            self.memory.put(span.place, room, 0, 1);
            self.stashed.insert(stash, (peer, len));
            let there: u64 = self.stashed.values().filter(|(of, _)| *of == peer).map(|(_, len)| len).sum();
            let most = self.most_stashed.entry(peer).or_default();
            *most = there.max(*most);
        }
    }

    /// Atomic operations on 64-bit words: the operand is added; or stored, where the word equals the comparand.
    fn operate(&mut self, peer: PeerIdx, operation: &Operation, payload: &Bytes) {
        let wanted = Access { read: false, write: true };
        let Operation { key, addr, code, .. } = *operation;
        let len = 8 * u64::from(code.count);
        let operands = if code.kind == AtomicKind::Compare { 2 * len } else { len };
        let checked = self.engine.regions.check(key, addr, len, wanted);
        let result = match (checked, self.read_region(key, addr, len)) {
            (Err(status), _) => Err(status),
            (Ok(_), Some(before)) if payload.real().len() as u64 == operands => {
                let words = |bytes: &[u8]| -> Vec<u64> {
                    bytes.chunks_exact(8).filter_map(|w| w.try_into().ok().map(u64::from_le_bytes)).collect()
                };
                let (old, given) = (words(before.real()), words(payload.real()));
                let new = old.iter().zip(&given).enumerate().map(|(i, (old, operand))| match code.kind {
                    AtomicKind::Compare if given[old_index(i, code.count)] == *old => *operand,
                    AtomicKind::Compare => *old,
                    _ => old.wrapping_add(*operand),
                });
                let new: Vec<u8> = new.flat_map(u64::to_le_bytes).collect();
                if let Some(place) = self.region(key) {
                    self.memory.write(Span { place, offset: addr, len: new.len() }, &Bytes::Real(new));
                }
                Ok(before)
            }
            _ => Err(Status::Unsupported),
        };
        let len = result.as_ref().map(|bytes| bytes.len() as usize).map_err(|status| *status);
        if let (Some(stash), Ok(before)) = (self.engine.operated(peer, operation, len), result) {
            self.memory.put(Place::Stash(stash), before, 0, 1);
        }
    }

    /// Bytes of a region; None when they are not all inside.
    pub fn read_region(&self, key: u64, addr: u64, len: u64) -> Option<Bytes> {
        self.memory.read(Span { place: self.region(key)?, offset: addr, len: usize::try_from(len).ok()? })
    }

    /// The direct reads and writes that were asked for are over; whether well. Nothing is read or written by that.
    pub fn end_jobs(&mut self, ok: bool) {
        for action in core::mem::take(&mut self.jobs) {
            if let Action::Read { peer, job, .. } | Action::Write { peer, job, .. } = action {
                self.engine.job_done(peer, job, ok);
            }
        }
    }

    // ---- out -----------------------------------------------------------------------------------------------------------

    /// Does what the engine asks for, until it asks for nothing more; returns the peers that have something to send.
    pub fn settle(&mut self) -> Vec<PeerIdx> {
        let mut ready = vec![];
        loop {
            if let Some(action) = self.engine.poll_action() {
                self.act(action);
            } else if let Some((peer, seq)) = self.due.pop() {
                if let Some((frame, payload)) = self.held.remove(&(peer, seq)) {
                    self.frame(peer, &frame, payload);
                }
            } else if let Some(peer) = self.engine.poll_ready() {
                if !ready.contains(&peer) {
                    ready.push(peer);
                }
            } else {
                return ready;
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Complete(completion) => self.complete(completion),
            Action::Unstash { stash, to, op } => {
                self.stashed.remove(&stash);
                let bytes = self.memory.take(Place::Stash(stash)).unwrap_or(Bytes::Real(vec![]));
                self.memory.write(self.engine.at(to), &bytes);
                self.engine.unstashed(op);
            }
            Action::DropStash(stash) => {
                self.stashed.remove(&stash);
                self.memory.take(Place::Stash(stash));
            }
            Action::Redeliver(peer, seq) => self.due.push((peer, seq)),
            Action::DropHeld(peer, seq) => {
                self.held.remove(&(peer, seq));
            }
            Action::Read { peer, from, to, job } => {
                let to = self.engine.at(to);
                self.jobs.push(Action::Read { peer, from, to, job });
            }
            job @ Action::Write { .. } => self.jobs.push(job),
        }
    }

    fn complete(&mut self, completion: Completion) {
        let what = match completion {
            Completion::Send { op, result, .. } => {
                self.memory.take(Place::Send(op));
                What::Sent { op, result }
            }
            Completion::Rma { op, result, .. } => {
                let bytes = self.memory.take(Place::Rma(op)).unwrap_or(Bytes::Counted(0));
                What::Rma { op, bytes, result }
            }
            Completion::Remote { from, key, data, len, write } => {
                What::Remote { from, key, data, len, write }
            }
            Completion::Recv { user: op, envelope, got, offset, released, result, .. } => {
                let place = Place::Recv(op);
                let whole = self.memory.is_written(place, offset, offset + got);
                let bytes = self.memory.read(Span { place, offset, len: got as usize });
                let Some(bytes) = bytes else { return };
                self.torn += u64::from(result.is_ok() && !whole);
                if released {
                    self.memory.take(place);
                }
                What::Received { op, envelope, bytes, offset, released, result }
            }
        };
        self.tell(what);
    }

    /// Fills in what leaves with a frame; None when its addresses cannot be listed, and the engine has been told.
    pub fn load(&mut self, peer: PeerIdx, next: &Next) -> Option<Bytes> {
        match next.payload {
            Out::Nothing => Some(Bytes::Real(vec![])),
            Out::Bytes(Span { place: Place::Value(to, slot), offset, len }) => {
                let part = |bytes: &[u8]| bytes.get(offset as usize..offset as usize + len).map(Bytes::from);
                self.engine.value_bytes(to, slot).and_then(part)
            }
            Out::Bytes(span) => Some(self.read_or_tear(span)),
            Out::Addresses(span) => match self.memory.list(self.engine.at(span)) {
                Some(region) => {
                    let mut bytes = [0; Region::MAX_BYTES];
                    let len = region.encode(&mut bytes);
                    Some(Bytes::from(&bytes[..len]))
                }
                None => {
                    self.engine.unlisted(peer, next);
                    None
                }
            },
        }
    }

    /// The bytes of a span; other bytes, and a mark, when the operation has ended.
    pub fn read_or_tear(&mut self, span: Span) -> Bytes {
        self.memory.read(span).unwrap_or_else(|| {
            self.torn += 1;
            Bytes::Real(vec![0xdd; span.len])
        })
    }
}

/// Where the comparand of element `i` stands.
fn old_index(i: usize, count: u32) -> usize {
    i + count as usize
}

/// The memory that a payload lists, if it lists any.
fn region_of(frame: &Frame, payload: &Bytes) -> Result<Option<Region>, ()> {
    match frame {
        Frame::Rts { readable: true, .. }
        | Frame::Rtr { writable: true, .. }
        | Frame::Get { writable: true, .. }
        | Frame::PutRts { .. } => Region::parse(payload.real()).map(Some).ok_or(()),
        _ => Ok(None),
    }
}
