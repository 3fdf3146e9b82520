//! A broadcast that is sent once, to a group of hosts which all hear it (IP multicast, RFC 1112).
//!
//! It travels as numbered chunks in datagrams, which the network may lose; all else is said by messages, which it does not
//! (`docs/wire-multicast.md`). The root sends no further than a window ahead of the host that has heard least. A host says how far it has
//! heard, and asks for what it lacks, once it sees that it lacks it: that comes to it alone, as messages. So losses cost time, never
//! correctness, and a network without multicast costs the time until a host has asked for all. (Acknowledgements of a window in place of
//! datagrams, and repair by an ordinary connection: Liu, Mamidala and Panda, "Fast and scalable MPI-level broadcast using InfiniBand's
//! hardware multicast support", IPDPS 2004.)

use alloc::vec::Vec;
use core::ops::Range;

use crate::ranges::Ranges;
use crate::wire::codec::{Reader, Writer};

/// Bytes of a datagram in front of its chunk.
pub const HEAD: usize = 16;
/// Bytes behind it, which authenticate it.
pub const TAG: usize = 16;
/// The version of these datagrams and messages.
pub const VERSION: u8 = 1;
/// Most ranges that a host asks for at once.
pub const RANGES: usize = 64;
/// Bytes of the longest word.
pub const WORD: usize = 16 + RANGES * 8;
/// Bytes of an answer in front of its chunks.
pub const ANSWER: usize = 16;
/// Bytes of an announcement: of no length that data are likely to have, for which a rank that calls wrongly might take it.
pub const ANNOUNCED: usize = 23;
/// Chunks that the root is ahead at least, however much is lost.
pub const AHEAD: u32 = 64;
/// Most chunks of one broadcast.
pub const CHUNKS: u32 = 1 << 22;

/// Which chunk a datagram has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The broadcast, by its number.
    pub operation: u32,
    /// The chunk's number.
    pub chunk: u32,
    /// The rank that sends it.
    pub rank: u32,
}

impl Head {
    /// As bytes.
    pub fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        let mut to = Writer::new(&mut bytes);
        to.u8(VERSION).bytes(&[0; 3]).u32(self.operation).u32(self.chunk).u32(self.rank);
        bytes
    }

    /// From bytes; none: it is of something else, or of another version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        (from.array().ok()? == [VERSION, 0, 0, 0]).then_some(())?;
        Some(Self { operation: from.u32().ok()?, chunk: from.u32().ok()?, rank: from.u32().ok()? })
    }
}

/// How a broadcast comes: the root says it to all before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// By multicast; else from host to host.
    pub cast: bool,
    /// Chunks after which a host says that it has heard them.
    pub each: u16,
    /// Its number.
    pub operation: u32,
    /// Its bytes.
    pub bytes: u64,
}

impl Announcement {
    /// As bytes.
    pub fn to_bytes(self) -> [u8; ANNOUNCED] {
        let mut bytes = [0; ANNOUNCED];
        Writer::new(&mut bytes)
            .u8(VERSION)
            .u8(self.cast.into())
            .u16(self.each)
            .u32(self.operation)
            .u64(self.bytes);
        bytes
    }

    /// From bytes; none: it is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let cast = match from.array().ok()? {
            [VERSION, cast @ 0..=1] => cast == 1,
            _ => return None,
        };
        let found =
            Self { cast, each: from.u16().ok()?, operation: from.u32().ok()?, bytes: from.u64().ok()? };
        (from.array().ok()? == [0; ANNOUNCED - 16] && from.is_empty()).then_some(found)
    }
}

/// What a host tells the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// It has heard so far: all chunks below are there, or will be asked for.
    Heard(u32),
    /// The same, and it lacks these, in order.
    Lacks(u32, Vec<Range<u32>>),
    /// All are there. Its last word.
    Has,
    /// It expects so many bytes, which are not those that were announced. Its last word.
    Refuses(u64),
}

impl Word {
    /// As bytes: the word, and of which broadcast.
    pub fn to_bytes(&self, operation: u32) -> Vec<u8> {
        let mut bytes = alloc::vec![0; WORD];
        let mut to = Writer::new(&mut bytes);
        let (kind, lacks): (u8, &[Range<u32>]) = match self {
            Self::Heard(_) => (1, &[]),
            Self::Lacks(_, lacks) => (2, lacks),
            Self::Has => (3, &[]),
            Self::Refuses(_) => (4, &[]),
        };
        to.u8(VERSION).u8(kind).u16(lacks.len() as u16).u32(operation);
        match self {
            Self::Heard(high) | Self::Lacks(high, _) => to.u32(*high).u32(0),
            Self::Has => to.u64(0),
            Self::Refuses(expected) => to.u64(*expected),
        };
        for range in lacks {
            to.u32(range.start).u32(range.end);
        }
        let len = 16 + lacks.len() * 8;
        bytes.truncate(len);
        bytes
    }

    /// From bytes: of which broadcast, and the word; none: it is none.
    pub fn parse(bytes: &[u8]) -> Option<(u32, Self)> {
        let mut from = Reader::new(bytes);
        let ([version, kind], ranges) = (from.array().ok()?, from.u16().ok()?);
        let operation = from.u32().ok()?;
        (version == VERSION && (kind == 2) == (ranges > 0) && usize::from(ranges) <= RANGES).then_some(())?;
        let number = from.u64().ok()?;
        let mut lacks = Vec::new();
        let mut last = 0;
        for _ in 0..ranges {
            let (start, end) = (from.u32().ok()?, from.u32().ok()?);
            (last <= start && start < end).then_some(())?;
            last = end;
            lacks.push(start..end);
        }
        from.is_empty().then_some(())?;
        let high = u32::try_from(number);
        let word = match kind {
            1 => Self::Heard(high.ok()?),
            2 => Self::Lacks(high.ok()?, lacks),
            3 if number == 0 => Self::Has,
            4 => Self::Refuses(number),
            _ => return None,
        };
        Some((operation, word))
    }
}

/// What comes in front of chunks that are sent again, to one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// These are behind it. True: nothing more is sent of what was asked for.
    Chunks(Range<u32>, bool),
    /// All chunks below have been sent: what of them has not come is lost.
    Sent(u32),
}

impl Answer {
    /// As bytes, of a broadcast.
    pub fn to_bytes(&self, operation: u32) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        let (kind, chunks) = match self {
            Self::Chunks(chunks, false) => (1, chunks.clone()),
            Self::Chunks(chunks, true) => (2, chunks.clone()),
            Self::Sent(sent) => (3, 0..*sent),
        };
        let mut to = Writer::new(&mut bytes);
        to.u8(VERSION).u8(kind).u16(0).u32(operation).u32(chunks.start).u32(chunks.end);
        bytes
    }

    /// From bytes: of which broadcast, the answer, and what is behind it; none: it is none.
    pub fn parse(bytes: &[u8]) -> Option<(u32, Self, &[u8])> {
        let mut from = Reader::new(bytes);
        let [version, kind, 0, 0] = from.array().ok()? else { return None };
        let operation = from.u32().ok()?;
        let chunks = from.u32().ok()?..from.u32().ok()?;
        (version == VERSION && chunks.start <= chunks.end).then_some(())?;
        let answer = match kind {
            1 | 2 => Self::Chunks(chunks, kind == 2),
            3 if chunks.start == 0 && from.is_empty() => Self::Sent(chunks.end),
            _ => return None,
        };
        Some((operation, answer, from.rest()))
    }
}

/// How far the root is ahead of who has heard least: less after losses, more without, as TCP's (RFC 5681).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    now: u32,
    most: u32,
}

impl Window {
    /// At most so many chunks; at first few.
    pub fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { now: most.min(2 * AHEAD), most }
    }

    /// So many now.
    pub fn chunks(&self) -> u32 {
        self.now
    }

    /// So many at most.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Chunks after which hosts say that they have heard them, of a broadcast that begins with this window: it may halve before that ends.
    pub fn each(&self) -> u16 {
        u16::try_from(self.now / 8).unwrap_or(u16::MAX).max(1)
    }
}

/// The root's side of a broadcast.
#[derive(Debug)]
pub struct Sender {
    chunks: u32,
    window: Window,
    /// That is the least of this broadcast; and what was sent when it shrank last: what was lost before says nothing new.
    least: u32,
    shrank: u32,
    next: u32,
    hosts: Vec<Host>,
    /// Chunks that hosts have heard since the window grew last.
    newly: u32,
}

/// What is known of a host.
#[derive(Debug, Default)]
struct Host {
    high: u32,
    over: bool,
    /// It has asked for all that was sent: nobody waits for its words.
    deaf: bool,
    /// What was sent to it alone.
    again: Ranges,
}

impl Sender {
    /// Of so many chunks to so many hosts.
    pub fn new(chunks: u32, window: Window, hosts: usize) -> Self {
        let hosts = (0..hosts).map(|_| Host::default()).collect();
        let least = (window.now / 2).max(AHEAD).min(window.now);
        Self { chunks, window, least, shrank: 0, next: 0, hosts, newly: 0 }
    }

    /// The window as it is now, for the next broadcast.
    pub fn window(&self) -> Window {
        self.window
    }

    /// The chunks that may be sent now, to all.
    pub fn may_send(&self) -> Range<u32> {
        let least = self.hosts.iter().filter(|host| !host.over && !host.deaf).map(|host| host.high).min();
        let most = least.map_or(self.chunks, |least| least.saturating_add(self.window.now).min(self.chunks));
        self.next..most.max(self.next)
    }

    /// So many of them were.
    pub fn sent(&mut self, chunks: u32) {
        self.next = self.next.saturating_add(chunks).min(self.chunks);
    }

    /// Nobody hears it: all hosts have asked for all that was sent, which is more than a train.
    pub fn is_deaf(&self) -> bool {
        self.hosts.iter().all(|host| host.deaf)
    }

    /// No more is sent to all: what was not is to be asked for by each.
    pub fn give_up(&mut self) {
        self.next = self.chunks;
    }

    /// Whether all were.
    pub fn is_all_sent(&self) -> bool {
        self.next == self.chunks
    }

    /// Whether all hosts have all.
    pub fn is_over(&self) -> bool {
        self.is_all_sent() && self.hosts.iter().all(|host| host.over)
    }

    /// Whether one of them has.
    pub fn is_over_at(&self, host: usize) -> bool {
        self.hosts[host].over
    }

    /// A host has spoken. What it is to be sent alone then, if it has asked: nothing of that has been sent to it before.
    pub fn heard(&mut self, host: usize, word: &Word) -> Option<Vec<Range<u32>>> {
        let host = &mut self.hosts[host];
        let (high, lacks) = match word {
            Word::Heard(high) => (*high, None),
            Word::Lacks(high, lacks) => (*high, Some(lacks)),
            Word::Has | Word::Refuses(_) => {
                host.over = true;
                return None;
            }
        };
        let high = high.min(self.next);
        let newly = high.saturating_sub(host.high);
        host.high = host.high.max(high);
        let Some(lacks) = lacks else {
            // twice as much in the time of a window, if all hosts say so
            self.newly = self.newly.saturating_add(newly);
            let hosts = self.hosts.len() as u32;
            self.window.now = self.window.now.saturating_add(self.newly / hosts).min(self.window.most);
            self.newly %= hosts;
            return None;
        };
        let mut again = Vec::new();
        for range in lacks {
            // what was not sent yet is not lost
            let range = u64::from(range.start)..u64::from(range.end.min(self.next));
            if range.is_empty() {
                continue;
            }
            host.high = host.high.max(range.end as u32);
            again.extend(host.again.gaps(range.clone()).map(|gap| gap.start as u32..gap.end as u32));
            host.again.add(range);
        }
        if again.first().is_some_and(|first| first.start >= self.shrank) {
            self.window.now = (self.window.now / 2).max(self.least);
            self.shrank = self.next;
        }
        host.deaf = self.next >= AHEAD && host.again.count() >= u64::from(self.next);
        Some(again)
    }

    /// How much of all was sent to one host alone, of all hosts to that which lacked most: from 0 to 1.
    pub fn lost(&self) -> f64 {
        let most = self.hosts.iter().map(|host| host.again.count()).max().unwrap_or(0);
        most as f64 / f64::from(self.chunks.max(1))
    }
}

/// A host's side.
#[derive(Debug)]
pub struct Receiver {
    chunks: u32,
    /// Chunks after which it says that it has heard them.
    each: u32,
    /// By how many chunks datagrams may overtake each other.
    slack: u32,
    have: Ranges,
    high: u32,
    told: u32,
    asked: bool,
    /// Chunks that the root says that it has sent, and whether it waits for an answer to that.
    sent: u32,
    poked: bool,
    over: bool,
}

impl Receiver {
    /// Of so many chunks; each time that it has heard so many more, it says so. Datagrams may overtake each other by so many.
    pub fn new(chunks: u32, each: u16, slack: u32) -> Self {
        Self {
            chunks,
            each: u32::from(each).max(1),
            slack,
            have: Ranges::default(),
            high: 0,
            told: 0,
            asked: false,
            sent: 0,
            poked: false,
            over: false,
        }
    }

    /// Chunks have come, by a datagram or alone. False: there are none such, or they were there.
    pub fn came(&mut self, chunks: Range<u32>) -> bool {
        let fits = chunks.start < chunks.end && chunks.end <= self.chunks;
        if !fits || !self.have.add(u64::from(chunks.start)..u64::from(chunks.end)) {
            return false;
        }
        self.high = self.high.max(chunks.end);
        true
    }

    /// An answer has ended. False: nothing was asked.
    pub fn answered(&mut self) -> bool {
        core::mem::take(&mut self.asked)
    }

    /// The root has sent so many.
    pub fn sent(&mut self, chunks: u32) {
        self.sent = self.sent.max(chunks.min(self.chunks));
        self.poked = true;
    }

    /// Chunks that are there without a gap, from the first on.
    pub fn prefix(&self) -> u32 {
        self.have.first().filter(|first| first.start == 0).map_or(0, |first| first.end as u32)
    }

    /// What is to be told to the root now. `drained`: since the root said what it has sent, all datagrams that the kernel has were taken.
    pub fn word(&mut self, drained: bool) -> Option<Word> {
        if self.over {
            return None;
        }
        if self.prefix() == self.chunks {
            self.over = true;
            return Some(Word::Has);
        }
        if !self.asked {
            let heard = self.high.saturating_sub(self.slack);
            let most = if drained { heard.max(self.sent) } else { heard };
            let from = self.prefix().min(most);
            let gaps = self.have.gaps(u64::from(from)..u64::from(most));
            let lacks: Vec<_> = gaps.take(RANGES).map(|gap| gap.start as u32..gap.end as u32).collect();
            if !lacks.is_empty() {
                (self.asked, self.told, self.poked) = (true, self.high, false);
                return Some(Word::Lacks(self.high, lacks));
            }
        }
        if self.high - self.told >= self.each || drained && self.poked && self.high > self.told {
            (self.told, self.poked) = (self.high, false);
            return Some(Word::Heard(self.high));
        }
        None
    }

    /// Whether datagrams are what it waits for, more than what the root says.
    pub fn waits_for_datagrams(&self) -> bool {
        !self.over && !self.asked && self.sent < self.chunks
    }

    /// Whether the root is going to say something more.
    pub fn expects(&self) -> bool {
        self.sent < self.chunks || self.asked
    }

    /// Whether all is there, and nothing more comes.
    pub fn is_over(&self) -> bool {
        self.over && !self.expects()
    }
}
