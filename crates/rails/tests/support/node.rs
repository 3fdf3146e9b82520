//! A worker with the buffers of its operations, and checks of what arrives.

use super::BOUND;
use polyrail_core::frame::{AtomicCode, AtomicKind, Matching, RemoteAddr};
use polyrail_core::proto::{Access, Delivery, Failure, Filter, PartSpec, PeerIdx};
use polyrail_core::wire::Address;
use polyrail_rails::rail::RawIov;
use polyrail_rails::{Config, EventKind, Issued, Refused, User, Worker};
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Instant;

/// Bytes that tell which they are, so that none can be taken for another: blocks of noise, each stamped with seed and place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    const BLOCK: usize = 4096;
    static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let word = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        (0..BLOCK as u64 / 8).flat_map(word).collect()
    });
    let mut bytes = Vec::with_capacity(len.next_multiple_of(BLOCK));
    for block in 0..len.div_ceil(BLOCK) as u64 {
        bytes.extend_from_slice(&NOISE);
        let at = bytes.len() - BLOCK;
        bytes[at..at + 8]
            .copy_from_slice(&(seed << 32 | block).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn iov(bytes: &mut [u8]) -> RawIov {
    RawIov { base: bytes.as_mut_ptr(), len: bytes.len() }
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Well, and what arrived, if anything, is right.
    Right,
    /// Well, they say, but what arrived is wrong.
    Wrong,
    Failed(Failure),
}

pub const GONE: End = End::Failed(Failure::PeerGone);

/// An operation under way, or ended.
struct Op {
    bytes: Box<[u8]>,
    /// What a get must bring.
    seed: u64,
    end: Option<End>,
    peer: Option<PeerIdx>,
}

pub struct Node {
    // first, so that it is closed before the buffers go
    pub worker: Worker,
    ops: HashMap<u64, Op>,
    regions: Vec<Box<[u8]>>,
    next: u64,
    /// Whether to sleep when there is nothing to do.
    pub sleeps: bool,
}

impl Node {
    pub fn open(config: Config) -> Self {
        Self::over(Worker::open(config).expect("a worker"))
    }

    pub fn over(worker: Worker) -> Self {
        Self { worker, ops: HashMap::new(), regions: Vec::new(), next: 1, sleeps: false }
    }

    pub fn peer(&mut self, address: &[u8]) -> PeerIdx {
        self.worker.peer(address).expect("an address")
    }

    pub fn why(&self, peer: PeerIdx) -> String {
        self.worker.why(peer).unwrap_or_default().to_owned()
    }

    /// The same of all peers of which there is something to say.
    pub fn whys(&self) -> Vec<&str> {
        (0..self.worker.counts().peers as u32).filter_map(|peer| self.worker.why(PeerIdx(peer))).collect()
    }

    fn begin(&mut self, bytes: Vec<u8>, seed: u64) -> (User, [RawIov; 1]) {
        let id = self.next;
        self.next += 1;
        let mut op = Op { bytes: bytes.into(), seed, end: None, peer: None };
        let memory = [iov(&mut op.bytes)];
        self.ops.insert(id, op);
        (User { context: id, flags: 0 }, memory)
    }

    fn begun(&mut self, user: User, issued: Result<Issued, Refused>) -> u64 {
        let end = match issued {
            Ok(Issued::Pending(_)) => None,
            Ok(Issued::Done) => Some(End::Right),
            Err(_) => Some(GONE),
        };
        self.ops.get_mut(&user.context).expect("just begun").end = end;
        user.context
    }

    pub fn send(&mut self, to: PeerIdx, tag: u64, len: usize) -> u64 {
        self.send_until(to, tag, len, Delivery::Sent)
    }

    pub fn send_until(&mut self, to: PeerIdx, tag: u64, len: usize, delivery: Delivery) -> u64 {
        let (user, memory) = self.begin(pattern(tag, len), tag);
        // SAFETY: the buffer lives in `ops`, which outlives the worker.
        let issued = unsafe { self.worker.send(to, Matching::Tag(tag), None, delivery, &memory, user) };
        self.begun(user, issued)
    }

    /// Injects, making progress until there is room. False: the peer is gone.
    /// Eight bytes, if there is room.
    pub fn try_inject(&mut self, to: PeerIdx, tag: u64) -> bool {
        let mut bytes = pattern(tag, 8);
        // SAFETY: the bytes are copied.
        unsafe { self.worker.inject(to, Matching::Tag(tag), None, &[iov(&mut bytes)]) }.is_ok()
    }

    pub fn inject(&mut self, to: PeerIdx, tag: u64, len: usize) -> bool {
        let mut bytes = pattern(tag, len);
        let start = Instant::now();
        loop {
            // SAFETY: the bytes are copied.
            match unsafe { self.worker.inject(to, Matching::Tag(tag), None, &[iov(&mut bytes)]) } {
                Ok(()) => return true,
                Err(Refused::Gone) => return false,
                Err(Refused::Again) => self.progress(),
            }
            if start.elapsed() >= BOUND {
                panic!("no room for an injected message: {}, {:#?}", self.why(to), self.worker.lanes(to));
            }
        }
    }

    pub fn recv(&mut self, source: Option<PeerIdx>, tag: Option<u64>, len: usize) -> u64 {
        let (user, memory) = self.begin(vec![0; len], 0);
        let ignore = if tag.is_some() { 0 } else { u64::MAX };
        let filter = Filter { source, matching: Matching::Tag(tag.unwrap_or(0)), ignore };
        // SAFETY: as in `send_until`.
        unsafe { self.worker.recv(filter, &memory, user) };
        user.context
    }

    /// Lets peers reach so many bytes, whose pattern is the key's.
    pub fn region(&mut self, key: u64, len: usize) {
        let mut bytes = pattern(key, len).into_boxed_slice();
        let access = Access { read: true, write: true };
        // SAFETY: the region lives in `regions`, which outlives the worker.
        unsafe { self.worker.register(key, iov(&mut bytes), 0, access).expect("a free key") };
        self.regions.push(bytes);
    }

    /// Whether the n-th region holds the pattern of this seed.
    pub fn region_holds(&self, n: usize, seed: u64) -> bool {
        *self.regions[n] == *pattern(seed, self.regions[n].len())
    }

    /// Puts the pattern of `seed` at the beginning of a peer's region.
    pub fn put(&mut self, to: PeerIdx, key: u64, seed: u64, len: usize) -> u64 {
        let (user, memory) = self.begin(pattern(seed, len), seed);
        let at = [PartSpec { at: RemoteAddr { key, addr: 0 }, len: len as u64 }];
        // SAFETY: as in `send_until`.
        let issued = unsafe { self.worker.put(to, &memory, &at, None, false, user) };
        self.begun(user, issued)
    }

    /// Gets the beginning of a peer's region, which must be the key's pattern.
    pub fn get(&mut self, from: PeerIdx, key: u64, len: usize) -> u64 {
        self.get_expecting(from, key, key, len)
    }

    /// Gets the beginning of a peer's region, which must be the pattern of `seed`.
    pub fn get_expecting(&mut self, from: PeerIdx, key: u64, seed: u64, len: usize) -> u64 {
        let (user, memory) = self.begin(vec![0; len], seed);
        let at = [PartSpec { at: RemoteAddr { key, addr: 0 }, len: len as u64 }];
        // SAFETY: as in `send_until`.
        let issued = unsafe { self.worker.get(from, &memory, &at, user) };
        self.begun(user, issued)
    }

    /// Adds to the first word of a peer's region.
    pub fn add(&mut self, to: PeerIdx, key: u64) -> u64 {
        let (user, memory) = self.begin(vec![0; 8], 0);
        // FI_UINT64 = 7, FI_SUM = 2
        let code = AtomicCode { datatype: 7, op: 2, kind: AtomicKind::Fetch, count: 1 };
        let at = RemoteAddr { key, addr: 0 };
        let mut one = 1u64.to_le_bytes();
        // SAFETY: as in `send_until`; operands are copied.
        let issued = unsafe { self.worker.atomic(to, code, at, &[iov(&mut one)], &[], &memory, user) };
        self.begun(user, issued)
    }

    /// One round. Sleeps a little if there is nothing to do and that was asked for.
    pub fn progress(&mut self) {
        if self.worker.has_numbers_to_free() {
            self.worker.free_numbers(|_| false);
        }
        if self.worker.progress() == 0 && self.sleeps && self.worker.arm() {
            let mut poll = libc::pollfd { fd: self.worker.wait_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry.
            unsafe { libc::poll(&mut poll, 1, 100) };
        }
        while let Some(event) = self.worker.next_event() {
            if matches!(event.kind, EventKind::RemoteRead | EventKind::RemoteWrite) {
                continue;
            }
            let op = self.ops.get_mut(&event.user.context).expect("an operation that was begun");
            assert_eq!(op.end, None, "an operation ends once: {event:?}");
            let seed = match (event.kind, event.matching) {
                (EventKind::Recv, Matching::Tag(tag)) => Some(tag),
                (EventKind::Get, _) => Some(op.seed),
                _ => None,
            };
            let got = if event.kind == EventKind::Get { op.bytes.len() } else { event.got as usize };
            op.peer = event.peer;
            op.end = Some(match (event.error, seed) {
                (Some(failure), _) => End::Failed(failure),
                (None, Some(seed)) if op.bytes[..got] != pattern(seed, got) => End::Wrong,
                _ => End::Right,
            });
        }
    }

    /// Makes progress until something holds; a hang is a failure.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            self.progress();
            assert!(start.elapsed() < BOUND, "never happens: {what}");
        }
    }

    /// How an operation ended; none while it is under way.
    pub fn end(&self, id: u64) -> Option<End> {
        self.ops.get(&id).expect("an operation that was begun").end
    }

    /// The first word of an operation's bytes: what was there before an atomic.
    pub fn word(&self, id: u64) -> u64 {
        self.ops[&id].bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Who was at the other end of an operation that has ended.
    pub fn other(&self, id: u64) -> Option<PeerIdx> {
        self.ops[&id].peer
    }

    /// Makes progress until an operation ends.
    pub fn wait(&mut self, id: u64) -> End {
        self.until("an operation's end", |node| node.end(id).is_some());
        self.ops.remove(&id).and_then(|op| op.end).expect("ended")
    }

    /// Makes progress until a peer is connected.
    pub fn meet(&mut self, peer: PeerIdx) {
        assert!(self.inject(peer, u64::MAX, 0), "{}", self.why(peer));
    }

    /// Sends a message to a puppet that echoes, and gets one back.
    pub fn converse(&mut self, peer: PeerIdx) {
        let back = self.recv(Some(peer), None, 1 << 20);
        let there = self.send(peer, 0xc0ffee, 20_000);
        let ends = (self.wait(there), self.wait(back));
        assert_eq!(ends, (End::Right, End::Right), "{}", self.why(peer));
    }

    /// Waits until a peer is known to be lost, checks that the reason names it, and returns the reason.
    pub fn lost(&mut self, peer: PeerIdx, address: &[u8]) -> String {
        self.until("the loss of a peer", |node| {
            !node.worker.is_connected(peer) && node.worker.why(peer).is_some()
        });
        let why = self.why(peer);
        let name = Address::parse(address).expect("an address").id();
        let short: String = name.0.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        assert!(why.contains(&short), "{why:?} does not name peer {short}");
        why
    }
}
