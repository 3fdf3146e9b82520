//! A plan carried out, and its end: everything is received, nothing is left.

use super::oracle::{self, Sent};
use super::plan::{HANGS, Plan, Size, Step};
use super::{any_tag, any_untagged, assert_clean, pattern};
use polyrail_core::frame::{AtomicKind, Matching, OpId, RemoteAddr, Status};
use polyrail_core::proto::{
    Access, Bounds, Delivery, Failure, Filter, Message, PartSpec, PeerIdx, RmaKind, Route,
};
use polyrail_core::sim::{Bytes, Join, What, World};
use std::collections::{BTreeMap, BTreeSet};

const READ: u64 = 1;
const WRITE: u64 = 2;
const WORDS: u64 = 3;
/// Regions are addressed from here, so that offsets and addresses are not confused.
const BASE: u64 = 1 << 40;
const REGION: u64 = 1 << 16;
/// Bytes that may be read; longer than any one part.
const READABLE: u64 = 1 << 12;

/// A one-sided operation under way, and what is to come of it.
struct Rma {
    from: usize,
    to: usize,
    op: OpId,
    kind: RmaKind,
    parts: Vec<PartSpec>,
    bytes: Bytes,
    result: Result<(), Failure>,
    /// The region was renewed while it was under way: it may be refused.
    renewed: bool,
    ended: Option<Result<(), Failure>>,
}

impl Rma {
    /// Whether it was refused, or part of it: then nothing is said of its immediate data.
    fn is_refused(&self) -> bool {
        self.result.is_err() || matches!(self.ended, Some(Err(Failure::Refused(_))))
    }
}

/// A plan being carried out.
pub struct Run {
    pub world: World,
    pub sent: Vec<Sent>,
    nodes: usize,
    rooms: Vec<BTreeMap<OpId, u64>>,
    claims: Vec<BTreeMap<OpId, OpId>>,
    posted: Vec<(usize, OpId)>,
    claimed: Vec<(usize, OpId)>,
    rmas: Vec<Rma>,
    written: u64,
    adds: BTreeMap<usize, u64>,
    active: BTreeMap<(usize, usize), u64>,
    remote_data: Vec<(usize, usize, u64)>,
    seen: Vec<usize>,
    route: Route,
    immediate: BTreeSet<(usize, usize)>,
    joins: BTreeMap<(usize, usize), Join>,
    lossy: bool,
    bounds: Bounds,
}

impl Run {
    pub fn new(plan: &Plan) -> Self {
        let mut world = World::new(plan.seed, plan.nodes, plan.window);
        world.bound(plan.bounds);
        for at in 0..plan.nodes {
            let rights = |read, write| Access { read, write };
            world.register(at, READ, BASE, pattern(at as u64, READABLE), rights(true, false));
            world.register(at, WRITE, BASE, Bytes::Real(vec![0; REGION as usize]), rights(false, true));
            world.register(at, WORDS, 0, Bytes::Real(vec![0; 16]), rights(true, true));
        }
        Self {
            world,
            sent: vec![],
            nodes: plan.nodes,
            rooms: vec![BTreeMap::new(); plan.nodes],
            claims: vec![BTreeMap::new(); plan.nodes],
            posted: vec![],
            claimed: vec![],
            rmas: vec![],
            written: 0,
            adds: BTreeMap::new(),
            active: BTreeMap::new(),
            remote_data: vec![],
            seen: vec![0; plan.nodes],
            route: plan.joins[0].route,
            joins: pairs(plan).collect(),
            lossy: plan.lossy,
            bounds: plan.bounds,
            immediate: pairs(plan).filter(|(_, join)| join.route.immediate).map(|(pair, _)| pair).collect(),
        }
    }

    /// Brings those links up that are not.
    pub fn join(&mut self) {
        for (&(a, b), join) in &self.joins {
            if !self.world.is_up(a, b) {
                self.world.join(a, b, join);
            }
        }
        self.look();
    }

    fn len(&self, size: Size) -> u64 {
        let near = |len: usize, by: i8| (len as u64).saturating_add_signed(i64::from(by));
        match size {
            Size::Small(len) => len,
            Size::Eager(by) => near(self.route.eager_max, by),
            Size::Fragments(n, by) => near(self.route.fragment * usize::from(n), by),
        }
    }

    /// Does one step.
    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Send { from, to, tag, size, delivery, short, pieces } => {
                self.send(from, to, tag, size, delivery, short, pieces);
            }
            Step::Recv { at, from, tag, ignore, room, pieces } => {
                let room = self.len(room);
                let op = self.world.recv_in_pieces(at, filter(from, tag, ignore), room, pieces);
                self.rooms[at].insert(op, room);
                self.posted.push((at, op));
            }
            Step::Multi { at, from, room, least } => {
                let op = self.world.recv_multi(at, from, room, least);
                self.rooms[at].insert(op, room);
                self.posted.push((at, op));
            }
            Step::Cancel(back) => {
                if let Some(nth) = self.posted.len().checked_sub(back + 1) {
                    let (at, op) = self.posted[nth];
                    self.world.cancel(at, op);
                }
            }
            Step::Claim { at, from, tag, ignore } => {
                if let Some((stash, _)) = self.world.claim(at, filter(from, tag, ignore)) {
                    self.claimed.push((at, stash));
                }
            }
            Step::Take(nth, room) => {
                let room = self.len(room);
                self.take(nth, room);
            }
            Step::Put { from, to, ref sizes, data, pieces, wrong } => {
                self.put(from, to, sizes, data, pieces, wrong)
            }
            Step::Get { from, to, ref sizes, pieces, wrong } => self.get(from, to, sizes, pieces, wrong),
            Step::Add { from, to, fetch } => {
                let kind = if fetch { AtomicKind::Fetch } else { AtomicKind::Update };
                self.atomic(from, to, 0, kind, &[1]);
                *self.adds.entry(to).or_default() += 1;
            }
            Step::Swap { from, to } => self.atomic(from, to, 8, AtomicKind::Compare, &[from as u64 + 1, 0]),
            Step::Active { from, to } => {
                let count = self.active.entry((from, to)).or_default();
                if self.world.send_active(from, to, 9, &count.to_le_bytes(), b"payload") {
                    *count += 1;
                }
            }
            Step::Cut(a, b, notice) => {
                self.world.alter_notice(a, b, notice);
                self.world.cut(a, b);
            }
            Step::Rejoin(a, b) => {
                let join = self.pair(a, b).clone();
                self.world.join(a, b, &join);
            }
            Step::Befall(a, b, path, fault) => self.world.befall(a, b, path, fault),
            Step::Renew(at) => {
                for rma in self.rmas.iter_mut().filter(|rma| rma.to == at && rma.ended.is_none()) {
                    rma.renewed = matches!(rma.kind, RmaKind::Put(_));
                }
                let memory = self.world.deregister(at, WRITE).expect("a region");
                self.world.register(at, WRITE, BASE, memory, Access { read: false, write: true });
            }
            Step::Wait(time) => {
                let until = self.world.now() + time;
                self.world.at(until, |_| {});
                while self.world.now() < until && self.world.step() {
                    self.look();
                }
            }
        }
        self.look();
    }

    fn pair(&mut self, a: usize, b: usize) -> &mut Join {
        self.joins.get_mut(&(a.min(b), a.max(b))).expect("all pairs are joined")
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a step")]
    fn send(
        &mut self,
        from: usize,
        to: usize,
        tag: Option<u64>,
        size: Size,
        delivery: Delivery,
        short: bool,
        pieces: u64,
    ) {
        let (id, len) = (self.sent.len() as u64, self.len(size));
        let matching = tag.map_or(Matching::Message, Matching::Tag);
        let (message, bytes) = (Message { matching, data: Some(id), len, delivery }, pattern(id, len));
        let op = if short && self.world.send_now(from, to, message, &bytes) {
            let at_once = self.immediate.contains(&(from.min(to), from.max(to)));
            assert!(delivery == Delivery::Sent || delivery < Delivery::Matched && at_once, "{delivery:?}");
            None
        } else {
            Some(self.world.send_in_pieces(from, to, message, bytes, pieces))
        };
        let delivery = match delivery {
            Delivery::Soon | Delivery::Delivered
                if self.immediate.contains(&(from.min(to), from.max(to))) =>
            {
                Delivery::Sent
            }
            other => other,
        };
        self.sent.push(Sent { from, to, matching, len, delivery, op });
    }

    /// A claimed message is received, or thrown away.
    fn take(&mut self, nth: usize, room: u64) {
        if self.claimed.is_empty() {
            return;
        }
        let (at, stash) = self.claimed.remove(nth % self.claimed.len());
        if nth == 4 {
            self.world.discard(at, stash);
        } else {
            let op = self.world.recv_claimed(at, stash, room);
            self.rooms[at].insert(op, room);
            self.claims[at].insert(stash, op);
        }
    }

    fn parts(&mut self, key: u64, sizes: &[Size], wrong: Option<Status>) -> Vec<PartSpec> {
        let mut parts = vec![];
        for &size in sizes {
            let len = self.len(size);
            let whole = if key == READ { READABLE } else { REGION };
            let mut at = RemoteAddr { key, addr: BASE + self.written % (whole - len) };
            // no two puts write to the same place
            self.written += len + 1;
            assert!(self.written + len < REGION, "more is put than there is room for");
            match wrong {
                // a region that there is not, or one with other rights
                Some(Status::Access) => at.key = [99, READ + WRITE - key][parts.len() % 2],
                Some(_) => at.addr = BASE + whole - len + 1,
                None => {}
            }
            parts.push(PartSpec { at, len });
        }
        parts
    }

    /// What comes of an operation on these parts. A put without bytes touches nothing, and so succeeds anywhere.
    fn outcome(parts: &[PartSpec], wrong: Option<Status>, write: bool) -> Result<(), Failure> {
        match wrong {
            Some(status) if parts.iter().any(|part| part.len > 0 || !write) => Err(Failure::Refused(status)),
            _ => Ok(()),
        }
    }

    fn put(
        &mut self,
        from: usize,
        to: usize,
        sizes: &[Size],
        data: bool,
        pieces: u64,
        wrong: Option<Status>,
    ) {
        let parts = self.parts(WRITE, sizes, wrong);
        let bytes = pattern(self.written, parts.iter().map(|part| part.len).sum());
        let data = data.then_some(self.written);
        let kind = RmaKind::Put(data);
        let op = self.world.rma(from, to, kind, &parts, bytes.clone(), pieces);
        let result = Self::outcome(&parts, wrong, true);
        if let (Some(data), Ok(()), [_, ..]) = (data, result, &parts[..]) {
            self.remote_data.push((from, to, data));
        }
        self.rmas.push(Rma { from, to, op, kind, parts, bytes, result, renewed: false, ended: None });
    }

    fn get(&mut self, from: usize, to: usize, sizes: &[Size], pieces: u64, wrong: Option<Status>) {
        let parts = self.parts(READ, sizes, wrong);
        let room = Bytes::Real(vec![0; parts.iter().map(|part| part.len).sum::<u64>() as usize]);
        let op = self.world.rma(from, to, RmaKind::Get, &parts, room, pieces);
        let theirs = pattern(to as u64, READABLE);
        let wanted = |part: &PartSpec| theirs.slice(part.at.addr - BASE, part.len);
        let bytes = parts.iter().filter_map(wanted).flat_map(|bytes| bytes.real().to_vec()).collect();
        let result = Self::outcome(&parts, wrong, false);
        let (kind, bytes) = (RmaKind::Get, Bytes::Real(bytes));
        self.rmas.push(Rma { from, to, op, kind, parts, bytes, result, renewed: false, ended: None });
    }

    fn atomic(&mut self, from: usize, to: usize, addr: u64, kind: AtomicKind, operands: &[u64]) {
        let at = RemoteAddr { key: WORDS, addr };
        let op = self.world.atomic(from, to, at, kind, operands);
        let kind = RmaKind::Atomic {
            code: polyrail_core::frame::AtomicCode { datatype: 7, op: 2, kind, count: 1 },
            operands: 8 * operands.len() as u32,
        };
        let (parts, bytes, result) = (vec![], Bytes::Counted(0), Ok(()));
        self.rmas.push(Rma { from, to, op, kind, parts, bytes, result, renewed: false, ended: None });
    }

    /// Looks at what users were told since: what they were promised must be so at that very time.
    fn look(&mut self) {
        for at in 0..self.nodes {
            for peer in 0..self.nodes {
                let owed = self.world.node(at).engine.owed(PeerIdx(peer as u32));
                let within = owed.requests <= self.bounds.requests && owed.values <= self.bounds.values;
                assert!(within, "{at} owes {peer} {owed:?}");
            }
            while let Some(event) = self.world.node(at).events.get(self.seen[at]) {
                self.seen[at] += 1;
                match event.what {
                    What::Rma { op, ref bytes, result } => {
                        let found = self.rmas.iter().position(|rma| rma.from == at && rma.op == op);
                        let nth = found.expect("an operation that nobody began");
                        self.ended(&self.rmas[nth], bytes, result);
                        self.rmas[nth].ended = Some(result);
                    }
                    What::Remote { data: Some(data), .. } => {
                        let told = |rma: &&Rma| {
                            rma.kind == RmaKind::Put(Some(data)) && rma.result.is_ok() && !rma.renewed
                        };
                        self.rmas.iter().filter(told).for_each(|rma| self.assert_written(rma));
                    }
                    _ => {}
                }
            }
        }
    }

    fn ended(&self, rma: &Rma, bytes: &Bytes, result: Result<(), Failure>) {
        let gone = self.lossy && result == Err(Failure::PeerGone);
        let refused = rma.renewed && result == Err(Failure::Refused(Status::Access));
        assert!(gone || refused || result == rma.result, "{result:?} of {:?} {:?}", rma.kind, rma.parts);
        if result.is_err() {
            return;
        }
        match rma.kind {
            RmaKind::Get => assert_eq!(*bytes, rma.bytes, "{:?}", rma.parts),
            RmaKind::Put(_) => self.assert_written(rma),
            RmaKind::Atomic { .. } => {}
        }
    }

    fn assert_written(&self, rma: &Rma) {
        let mut from = 0;
        for part in &rma.parts {
            let there = self.world.node(rma.to).read_region(WRITE, part.at.addr, part.len);
            assert!(part.len == 0 || there == rma.bytes.slice(from, part.len), "not there yet: {part:?}");
            from += part.len;
        }
    }

    fn run(&mut self) {
        while self.world.step() {
            self.look();
            assert!(self.world.now() < HANGS, "it does not end: {}", self.world.describe_lanes());
        }
        assert_eq!(self.world.gone, [], "a session ended though there was a way");
    }

    /// Receives all that is still to be received, takes back all that has not received, and looks at everything.
    pub fn finish(mut self, plan: &Plan) {
        self.run();
        self.join();
        self.run();
        for (at, op) in std::mem::take(&mut self.posted) {
            self.world.cancel(at, op);
        }
        while !self.claimed.is_empty() {
            self.take(0, 1000);
        }
        for at in 0..self.nodes {
            for filter in [any_tag(), any_untagged()] {
                while self.world.peek(at, &filter).is_some() {
                    let op = self.world.recv(at, filter, 500);
                    self.rooms[at].insert(op, 500);
                }
            }
        }
        self.run();
        assert_clean(&self.world, self.nodes);
        if self.lossy {
            oracle::check_lossy(&self.world, self.nodes, &self.sent);
        } else {
            oracle::check(&self.world, self.nodes, &self.sent, &self.rooms, &self.claims);
        }
        self.check_rma();
        self.check_active();
        for at in 0..self.nodes {
            for (peer, bytes) in &self.world.node(at).most_stashed {
                // its own window, half as much that was fetched, and what is left of earlier sessions
                let halves = if self.lossy { 5 } else { 3 };
                let credit = halves * u64::from(plan.window) * 32;
                assert!(*bytes <= credit, "{peer} overran its credit at {at}: {bytes}");
            }
        }
    }

    fn events(&self, at: usize) -> impl Iterator<Item = &What> {
        self.world.node(at).events.iter().map(|event| &event.what)
    }

    fn check_rma(&self) {
        let mut ended = 0;
        for at in 0..self.nodes {
            ended += self.events(at).filter(|what| matches!(what, What::Rma { .. })).count();
            let word = |addr| {
                let bytes = self.world.node(at).read_region(WORDS, addr, 8).expect("a word of the region");
                u64::from_le_bytes(bytes.real().try_into().expect("eight bytes"))
            };
            let adds = self.adds.get(&at).copied().unwrap_or(0);
            assert!(word(0) == adds || self.lossy && word(0) < adds, "sum at {at}");
            let mut fetched: Vec<u64> = self.results(at, AtomicKind::Fetch).collect();
            let there = fetched.len();
            fetched.sort_unstable();
            fetched.dedup();
            assert_eq!(fetched.len(), there, "two additions saw the same value at {at}");
            let mut swaps: Vec<u64> = self.results(at, AtomicKind::Compare).collect();
            if let Some(first) = swaps.iter().position(|before| *before == 0) {
                swaps.remove(first);
                assert!(swaps.iter().all(|before| *before == word(8) && *before > 0), "{swaps:?}");
            }
        }
        assert_eq!(ended, self.rmas.len(), "one-sided operations that ended");
        let mut told: Vec<(usize, usize, u64)> = vec![];
        for at in 0..self.nodes {
            for what in self.events(at) {
                if let What::Remote { from, data: Some(data), .. } = what {
                    told.push((from.0 as usize, at, *data));
                }
            }
        }
        // of a put in parts some of which were refused, the last may have been welcome
        let refused =
            |data: u64| self.rmas.iter().any(|r| r.kind == RmaKind::Put(Some(data)) && r.is_refused());
        told.retain(|(_, _, data)| !refused(*data));
        let mut expected = self.remote_data.clone();
        expected.retain(|(_, _, data)| !refused(*data));
        told.sort_unstable();
        expected.sort_unstable();
        if self.lossy {
            expected.retain(|data| told.contains(data));
        }
        assert_eq!(told, expected, "immediate data of puts");
    }

    /// What atomics of a kind, done at a node, returned.
    fn results(&self, target: usize, wanted: AtomicKind) -> impl Iterator<Item = u64> {
        self.rmas.iter().filter_map(move |rma| {
            let RmaKind::Atomic { code, .. } = rma.kind else { return None };
            let found = self.events(rma.from).find_map(|what| match what {
                What::Rma { op, bytes, result: Ok(()) } if *op == rma.op => Some(bytes),
                _ => None,
            });
            let last = found?.real().last_chunk::<8>()?;
            (rma.to == target && code.kind == wanted).then_some(u64::from_le_bytes(*last))
        })
    }

    fn check_active(&self) {
        let mut next: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for at in 0..self.nodes {
            for what in self.events(at) {
                if let What::Active { from, id: 9, header, payload } = what {
                    let count = next.entry((from.0 as usize, at)).or_default();
                    let number = u64::from_le_bytes(header[..].try_into().expect("eight bytes"));
                    assert!(number == *count || self.lossy && number > *count, "{number} instead of {count}");
                    assert_eq!(payload.real(), b"payload");
                    *count = number + 1;
                }
            }
        }
        if self.lossy {
            return;
        }
        next.retain(|_, count| *count > 0);
        let sent: BTreeMap<_, _> =
            self.active.iter().filter(|(_, n)| **n > 0).map(|(k, n)| (*k, *n)).collect();
        assert_eq!(next, sent, "active messages");
    }
}

fn filter(from: Option<usize>, tag: Option<u64>, ignore: u64) -> Filter {
    let matching = tag.map_or(Matching::Message, Matching::Tag);
    Filter { source: from.map(|peer| PeerIdx(peer as u32)), matching, ignore }
}

/// All pairs, each node with itself too, and how they are joined.
fn pairs(plan: &Plan) -> impl Iterator<Item = ((usize, usize), Join)> {
    let joins = plan.joins.iter().cycle().map(|join| {
        let route = Route { window: plan.window, ..join.route };
        Join { route, ..join.clone() }
    });
    (0..plan.nodes).flat_map(|a| (a..plan.nodes).map(move |b| (a, b))).zip(joins)
}

/// Carries a plan out.
pub fn carry_out(plan: &Plan) {
    let mut run = Run::new(plan);
    for (nth, step) in plan.steps.iter().enumerate() {
        if nth == plan.early {
            run.join();
        }
        run.step(step);
    }
    if plan.early >= plan.steps.len() {
        run.join();
    }
    run.finish(plan);
}
