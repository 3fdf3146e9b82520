//! What is under way, and when it is where.

use crate::model::{Line, Model};
use polyrail_core::sim::Rng;
use polyrail_p2p::wire::{Done, PeerIdx, segment_of_message, segment_of_value};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

/// Bytes of what stands before a message on a wire.
const FRAME: usize = 64;

/// Bytes that may wait before a card: who sends more there is held up. Without a bound, members that wait for nobody would fill it for ever, and what is behind would never come.
const ROOM: f64 = 65536.0;

/// Nanoseconds.
pub(crate) type Time = u64;
/// When nothing has come to anybody, and nobody has computed, for so long, nothing will.
const QUIET: Time = 600_000_000_000;

/// What is sent.
enum What {
    Message { tag: u64, bytes: Arc<[u8]> },
    Active { bytes: Vec<u8> },
    Value { tag: u64, number: u64, bytes: Vec<u8> },
}

struct Item {
    from: usize,
    to: usize,
    what: What,
}

enum Event {
    /// A member goes on, if it waits for this.
    Wake {
        member: usize,
        reason: u64,
    },
    /// A card has sent what it had.
    Free {
        member: usize,
    },
    /// Its first byte is before the line between two sites.
    Join(Crossing),
    /// A line may have carried what is to go first, if nothing has changed since this was found out.
    Carried {
        sites: (u32, u32),
        change: u64,
    },
    /// It is before the card of who is to have it, which comes to it so long later than it would have, as it was lost on the way.
    Reach(Item, Time),
    Arrive(Item),
    Die {
        member: usize,
    },
}

/// The newest value of a tag.
pub(crate) struct Value {
    pub(crate) number: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) came: Time,
    pub(crate) is_new: bool,
}

#[derive(Default)]
pub(crate) struct Node {
    /// By the site that they are for, with the order in which they were given.
    queues: BTreeMap<u32, VecDeque<(u64, Item)>>,
    given: u64,
    /// To other sites: what it has before each line or on it.
    ways: BTreeMap<u32, Way>,
    is_sending: bool,
    /// Until when the card receives what it is receiving.
    receives: Time,
    /// By tag: from whom, and for how much. Room is made when something comes: most of what is posted is for what never does.
    posted: HashMap<u64, VecDeque<(Option<PeerIdx>, usize)>>,
    unmatched: VecDeque<(usize, u64, Arc<[u8]>)>,
    pub(crate) done: VecDeque<Done>,
    pub(crate) heard: VecDeque<(PeerIdx, Vec<u8>)>,
    pub(crate) values: HashMap<(usize, u64), Value>,
    /// What has come since it was last looked at.
    pub(crate) moved: usize,
    /// Processor time that was used and has not passed.
    pub(crate) debt: Time,
    /// What it waits for, and whether something that comes wakes it.
    reason: u64,
    is_open: bool,
    /// When it was killed.
    died: Option<Time>,
}

/// On its way to another site.
struct Crossing {
    item: Item,
    /// It comes so long later than it would have.
    late: Time,
    /// When its last byte is before the line, at the earliest.
    whole: Time,
}

/// What a host has before a line between sites or on it: one message on it, and one before it, while other hosts' go at the same time.
#[derive(Default)]
struct Way {
    is_carried: bool,
    /// The next leaves when this goes on the line.
    is_full: bool,
    waits: Option<Crossing>,
}

/// What a line carries of each byte is counted in such parts.
const UNIT: f64 = 1024.0;

/// A line between two sites, which carries what hosts have on it at the same time, of each as much.
#[derive(Default)]
struct Shared {
    under_way: BinaryHeap<Reverse<Transfer>>,
    /// So much it has carried, by now, of each that was there all the time.
    carried: u64,
    since: Time,
    joined: u64,
    change: u64,
}

/// The order is that in which they end.
struct Transfer {
    /// When so much is carried of each.
    ends: u64,
    joined: u64,
    crossing: Crossing,
}

impl Transfer {
    fn key(&self) -> (u64, u64) {
        (self.ends, self.joined)
    }
}

impl PartialEq for Transfer {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Transfer {}

impl PartialOrd for Transfer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Transfer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Shared {
    /// Carries as much of each as it can until now.
    fn pass(&mut self, now: Time, rate: f64) {
        let seconds = (now - self.since) as f64 * 1e-9;
        self.since = now;
        if !self.under_way.is_empty() {
            self.carried += (seconds * rate * UNIT / self.under_way.len() as f64).round() as u64;
        }
    }
}

pub(crate) struct World {
    pub(crate) model: Model,
    pub(crate) now: Time,
    pub(crate) nodes: Vec<Node>,
    events: BinaryHeap<Reverse<(Time, u64, Slot)>>,
    /// Events, by place.
    kept: Vec<Option<Event>>,
    free: Vec<usize>,
    caused: u64,
    /// When something came or was computed last.
    active: Time,
    /// Messages that have left and have not come.
    under_way: usize,
    /// From a site to another.
    lines: HashMap<(u32, u32), Shared>,
    /// When the last message from one to another comes: none overtakes another.
    order: HashMap<(usize, usize), Time>,
    chance: Rng,
}

type Slot = usize;

fn nanoseconds(seconds: f64) -> Time {
    (seconds * 1e9) as Time
}

impl World {
    pub(crate) fn new(model: Model) -> Self {
        let nodes = (0..model.sites.len()).map(|_| Node::default()).collect();
        let chance = Rng::new(model.seed);
        let killed = model.killed.clone();
        let mut one = Self {
            model,
            now: 0,
            nodes,
            events: BinaryHeap::new(),
            kept: Vec::new(),
            free: Vec::new(),
            caused: 0,
            active: 0,
            under_way: 0,
            lines: HashMap::new(),
            order: HashMap::new(),
            chance,
        };
        for (member, at) in killed {
            one.cause(at.as_nanos() as Time, Event::Die { member });
        }
        one
    }

    /// Whether a member was killed; as far as others see, where this asks for what they do.
    pub(crate) fn is_dead(&self, member: usize, for_others: bool) -> bool {
        let Some(died) = self.nodes[member].died else { return false };
        let seen = self.model.noticed.map(|after| died + after.as_nanos() as Time);
        !for_others || seen.is_some_and(|seen| seen <= self.now)
    }

    /// From 0 to 1.
    fn chance(&mut self) -> f64 {
        self.chance.draw() as f64 / u64::MAX as f64
    }

    /// How long this work takes a member.
    pub(crate) fn takes(&mut self, member: usize, amount: f64) -> Time {
        let mut seconds = amount * self.model.unit / self.model.speeds[member];
        if self.model.jitter > 0.0 {
            seconds *= 1.0 - self.model.jitter * (1.0 - self.chance()).max(1e-12).ln();
        }
        nanoseconds(seconds)
    }

    fn cause(&mut self, at: Time, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.kept.push(None);
            self.kept.len() - 1
        });
        self.kept[slot] = Some(event);
        self.caused += 1;
        self.events.push(Reverse((at, self.caused, slot)));
    }

    /// A member goes on at this time; where it is open, with what comes before, too.
    pub(crate) fn wake(&mut self, member: usize, at: Time, is_open: bool) {
        let node = &mut self.nodes[member];
        node.reason += 1;
        node.is_open = is_open;
        let reason = node.reason;
        self.cause(at, Event::Wake { member, reason });
    }

    /// The next member that goes on; none: nothing will ever happen again but that somebody looks in vain.
    pub(crate) fn next(&mut self) -> Option<usize> {
        loop {
            let Reverse((at, _, slot)) = self.events.pop()?;
            self.now = at;
            self.free.push(slot);
            if at > self.active + QUIET && self.under_way == 0 {
                return None;
            }
            match self.kept[slot].take()? {
                Event::Wake { member, reason } if self.nodes[member].reason == reason => {
                    let waited = std::mem::take(&mut self.nodes[member].is_open);
                    if !waited {
                        self.active = at;
                    }
                    return Some(member);
                }
                Event::Wake { .. } => {}
                Event::Free { member } => {
                    self.nodes[member].is_sending = false;
                    self.send_next(member);
                }
                // it would have waited
                Event::Join(crossing) if self.nodes[crossing.item.from].died.is_some() => {
                    self.under_way -= 1;
                }
                Event::Join(crossing) => self.join(crossing),
                Event::Carried { sites, change } => self.carried(sites, change),
                Event::Reach(item, late) => self.reach(item, late),
                Event::Arrive(item) => self.arrive(item),
                Event::Die { member } => {
                    // what it has before a line ends with it
                    self.under_way -=
                        self.nodes[member].ways.values().filter(|way| way.waits.is_some()).count();
                    self.nodes[member] = Node { died: Some(at), ..Node::default() };
                }
            }
        }
    }

    /// Receives end in any order: where messages go in pieces by several ways, a later one may be whole before another.
    pub(crate) fn next_done(&mut self, member: usize) -> Option<Done> {
        let ended = self.nodes[member].done.len();
        let which = if ended > 1 { self.chance.below(ended as u64) as usize } else { 0 };
        self.nodes[member].done.remove(which)
    }

    pub(crate) fn send(&mut self, from: usize, to: usize, tag: u64, bytes: Arc<[u8]>) {
        self.give(Item { from, to, what: What::Message { tag, bytes } });
    }

    pub(crate) fn send_active(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        self.give(Item { from, to, what: What::Active { bytes } });
    }

    /// A value takes the place of one with its tag that has not left.
    pub(crate) fn put(&mut self, from: usize, to: usize, tag: u64, number: u64, bytes: &[u8]) {
        let waiting =
            self.nodes[from].queues.values_mut().flatten().find_map(|(_, item)| match &mut item.what {
                What::Value { tag: of, number, bytes } if item.to == to && *of == tag => {
                    Some((number, bytes))
                }
                _ => None,
            });
        if let Some((had, room)) = waiting {
            *had = number;
            room.clear();
            room.extend(bytes);
            return;
        }
        self.give(Item { from, to, what: What::Value { tag, number, bytes: bytes.to_vec() } });
    }

    fn give(&mut self, item: Item) {
        let from = item.from;
        self.nodes[from].debt += self.model.overhead.as_nanos() as Time;
        let node = &mut self.nodes[from];
        node.given += 1;
        node.queues.entry(self.model.sites[item.to]).or_default().push_back((node.given, item));
        self.send_next(from);
    }

    fn size(&self, what: &What) -> f64 {
        let (len, segment) = match what {
            What::Message { tag, bytes } => (bytes.len(), segment_of_message(*tag, bytes.len())),
            What::Active { bytes } => (bytes.len(), 0),
            What::Value { tag, bytes, .. } => (bytes.len(), segment_of_value(*tag, bytes.len())),
        };
        (FRAME + len - segment) as f64 + segment as f64 * self.model.scale
    }

    /// What was given first, of what may be sent.
    fn next_of(&mut self, member: usize) -> Option<Item> {
        let node = &mut self.nodes[member];
        if node.is_sending {
            return None;
        }
        let may = |site: &u32| node.ways.get(site).is_none_or(|way| !way.is_full);
        let first = |(site, queue): (&u32, &VecDeque<(u64, Item)>)| Some((queue.front()?.0, *site));
        let (_, site) = node.queues.iter().filter(|(site, _)| may(site)).filter_map(first).min()?;
        node.queues.get_mut(&site)?.pop_front().map(|(_, item)| item)
    }

    fn send_next(&mut self, member: usize) {
        let Some(item) = self.next_of(member) else { return };
        self.nodes[member].is_sending = true;
        let size = self.size(&item.what);
        let (here, there) = (self.model.sites[item.from], self.model.sites[item.to]);
        let card = nanoseconds(size / self.model.near.rate);
        let is_far = here != there;
        let line: Line = if is_far { self.model.far } else { self.model.near };
        let first = self.now + self.model.near.latency.as_nanos() as Time;
        let is_lost = line.loss > 0.0 && self.chance() < line.loss;
        let late = if is_lost { self.model.recovery.as_nanos() as Time } else { 0 };
        // what has reached the other card and waits there
        let until = self.nodes[item.to].receives.saturating_sub(nanoseconds(ROOM / self.model.near.rate));
        self.cause((self.now + card).max(until), Event::Free { member });
        self.under_way += 1;
        if is_far {
            self.nodes[member].ways.entry(there).or_default().is_full = true;
            self.cause(first, Event::Join(Crossing { item, late, whole: first + card }));
        } else {
            self.cause(first + card, Event::Reach(item, late));
        }
    }

    /// It goes on the line, unless its host's last is there still.
    fn join(&mut self, crossing: Crossing) {
        let Item { from, to, what } = &crossing.item;
        let (from, size) = (*from, self.size(what));
        let sites = (self.model.sites[from], self.model.sites[*to]);
        let way = self.nodes[from].ways.entry(sites.1).or_default();
        if way.is_carried {
            way.waits = Some(crossing);
            return;
        }
        (way.is_carried, way.is_full) = (true, false);
        let line = self.lines.entry(sites).or_default();
        line.pass(self.now, self.model.far.rate);
        line.joined += 1;
        let ends = line.carried + (size * UNIT) as u64;
        line.under_way.push(Reverse(Transfer { ends, joined: line.joined, crossing }));
        self.carry(sites);
        self.send_next(from);
    }

    /// The line's next event.
    fn carry(&mut self, sites: (u32, u32)) {
        let Some(line) = self.lines.get_mut(&sites) else { return };
        line.change += 1;
        let change = line.change;
        let Some(Reverse(first)) = line.under_way.peek() else { return };
        let left = first.ends.saturating_sub(line.carried) as f64 / UNIT * line.under_way.len() as f64;
        // not before it is whole
        let at = self.now + nanoseconds(left / self.model.far.rate) + 1;
        self.cause(at, Event::Carried { sites, change });
    }

    fn carried(&mut self, sites: (u32, u32), change: u64) {
        let Some(line) = self.lines.get_mut(&sites).filter(|line| line.change == change) else { return };
        line.pass(self.now, self.model.far.rate);
        let mut whole = Vec::new();
        while line.under_way.peek().is_some_and(|Reverse(first)| first.ends <= line.carried) {
            whole.extend(line.under_way.pop());
        }
        self.carry(sites);
        for Reverse(Transfer { crossing: Crossing { item, late, whole }, .. }) in whole {
            let way = self.nodes[item.from].ways.entry(sites.1).or_default();
            way.is_carried = false;
            let next = way.waits.take();
            let at = self.now.max(whole) + self.model.far.latency.as_nanos() as Time;
            self.cause(at, Event::Reach(item, late));
            if let Some(next) = next {
                self.join(next);
            }
        }
    }

    fn reach(&mut self, item: Item, late: Time) {
        let card = nanoseconds(self.size(&item.what) / self.model.near.rate);
        // what comes from several at once comes one after the other; the first of it has come while it was sent
        let receives = &mut self.nodes[item.to].receives;
        *receives = self.now.max(*receives + card);
        // a value that was lost comes again, too, and counts if none that is newer has come meanwhile
        let mut at = *receives + late;
        if !matches!(item.what, What::Value { .. }) {
            let last = self.order.entry((item.from, item.to)).or_default();
            at = at.max(*last);
            *last = at;
        }
        self.cause(at, Event::Arrive(item));
    }

    fn arrive(&mut self, Item { from, to, what }: Item) {
        self.under_way -= 1;
        self.active = self.now;
        if self.nodes[to].died.is_some() {
            return;
        }
        let (now, overhead) = (self.now, self.model.overhead.as_nanos() as Time);
        let node = &mut self.nodes[to];
        node.debt += overhead;
        node.moved += 1;
        match what {
            What::Active { bytes } => node.heard.push_back((PeerIdx(from as u32), bytes)),
            What::Message { tag, bytes } => match node.take_posted(from, tag) {
                Some(buffer) => node.receive(from, buffer, &bytes),
                None => node.unmatched.push_back((from, tag, bytes)),
            },
            What::Value { tag, number, bytes } => {
                let value = node.values.entry((from, tag)).or_insert(Value {
                    number: 0,
                    bytes: Vec::new(),
                    came: 0,
                    is_new: false,
                });
                // of two the newer counts
                if value.came == 0 || number > value.number {
                    *value = Value { number, bytes, came: now.max(1), is_new: true };
                }
            }
        }
        if node.is_open {
            self.wake(to, now, false);
        }
    }
}

impl Node {
    fn take_posted(&mut self, from: usize, tag: u64) -> Option<Vec<u8>> {
        let posted = self.posted.get_mut(&tag)?;
        let at = posted.iter().position(|(of, _)| of.is_none_or(|of| of.0 as usize == from))?;
        posted.remove(at).map(|(_, len)| vec![0; len])
    }

    fn receive(&mut self, from: usize, mut buffer: Vec<u8>, bytes: &[u8]) {
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        let outcome = Ok((len, bytes.len() > len));
        self.done.push_back(Done::Received { from: Some(PeerIdx(from as u32)), buffer, outcome });
    }

    pub(crate) fn recv(&mut self, from: Option<PeerIdx>, tag: u64, buffer: Vec<u8>) {
        let fits = |(of, had, _): &(usize, u64, Arc<[u8]>)| {
            *had == tag && from.is_none_or(|from| from.0 as usize == *of)
        };
        let Some(at) = self.unmatched.iter().position(fits) else {
            self.posted.entry(tag).or_default().push_back((from, buffer.len()));
            return;
        };
        if let Some((of, _, bytes)) = self.unmatched.remove(at) {
            self.receive(of, buffer, &bytes);
            self.moved += 1;
        }
    }
}
