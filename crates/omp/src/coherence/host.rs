//! What a rank's coherence needs of the process that it is in, and of other ranks.

use core::fmt;
use core::ops::{Deref, DerefMut, Range};

use crate::area::{Count, Header, Kind, SLOT_DATA};
use crate::blob::Record;
use crate::diff::{Mask, Page};
use crate::layout::PAGE;
use crate::merge::Conflict;
use crate::pages::Pages;

use super::Tracked;

/// Bytes of a place in memory, the first ones counting.
pub type Value = [u8; 16];

/// Memory that ranks share, as this rank has it, and the twins: what all agreed upon last.
pub trait Memory {
    /// Pages that may be changed faster together than one by one: a power of two, in bytes.
    const CHUNK: usize = PAGE;
    /// Another rank has told of a page: from now on it is known, if it may be. Whether that is of interest: what is not need not be known.
    fn ready(&mut self, at: usize) -> bool {
        let _ = at;
        true
    }
    /// Whether these pages are shared, so many from `address` on.
    fn is_known(&self, address: usize, pages: usize) -> bool;
    /// Which bytes of a page are shared, if not all are.
    fn part(&self, at: usize) -> Option<&Mask>;
    /// A known page, and its twin.
    fn page(&self, at: usize) -> (&Page, &Page);
    /// As [`page`](Self::page), to be changed: threads of this rank may use other bytes of the page meanwhile.
    fn page_mut(&mut self, at: usize) -> (&mut Page, &mut Page);
    /// One rank's pages: to the twins, and to memory if they are another's (`theirs`). They are known.
    fn take(&mut self, record: &Record<'_>, theirs: bool) {
        for i in 0..record.pages {
            let (page, twin) = self.page_mut(record.address as usize + i as usize * PAGE);
            let change = record.change(i);
            change.blend(twin);
            if theirs {
                change.blend(page);
            }
        }
    }
    /// Lists pages that may have changed since they were last listed. Of the area that `hidden` begins, nothing in it is wanted.
    fn collect(&mut self, hidden: &Range<usize>) -> Pages;
    /// Of a range, what has to be looked at besides: pages that [`collect`](Self::collect) finds by comparison with twins only.
    fn compared(&self) -> Vec<Range<usize>>;
    /// A page was looked at, and it had changed.
    fn changed(&self, at: usize);
    /// From now on, parts of the program hand over memory one by one.
    fn is_published(&mut self);
    /// These pages are about to be written, by what others told.
    fn release(&self, written: &Pages);
    /// They were: what else was written there meanwhile.
    fn forget(&mut self, written: &Pages) -> Pages;
}

/// Locks what is in it.
pub trait Mutex<T> {
    /// Has it.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;
    /// Of `value`, free.
    fn new(value: T) -> Self;
    /// Waits for it.
    fn lock(&self) -> Self::Guard<'_>;
}

/// Had by one alone, or by several together.
pub trait RwLock {
    /// Has it with others.
    type Shared<'a>
    where
        Self: 'a;
    /// Has it alone.
    type Alone<'a>
    where
        Self: 'a;
    /// Free.
    fn new() -> Self;
    /// Waits until nobody has it alone.
    fn shared(&self) -> Self::Shared<'_>;
    /// Waits until nobody has it.
    fn alone(&self) -> Self::Alone<'_>;
}

/// An answer of rank 0's agent, or of rank 0.
#[derive(Debug)]
pub struct Answer<D> {
    /// See [`Kind`].
    pub result: [u64; 4],
    /// See [`Kind`]. They may be gone when the thread asks again.
    pub data: D,
}

/// What all ranks said in one exchange.
pub trait Said {
    /// Of one rank.
    fn header(&self, rank: usize) -> &Header;
    /// Of one rank; of this rank what it said itself.
    fn blob(&self, rank: usize) -> &[u8];
}

/// Why a run cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Two ranks wrote different values to one byte, and nothing orders them; where that was found.
    Conflict(Conflict, &'static str),
    /// A rank changed a place by a plain store and by an atomic operation, and another rank did meanwhile.
    Mixed {
        /// The asking rank.
        rank: usize,
        /// The place.
        place: usize,
    },
    /// A thread updates what a `single` without a barrier comes before, to which rank 0 does not come as it waits for what others store behind.
    HeldUp,
    /// A thread that has a lock waits for rank 0 to fold what it gave to a reduction, and thread 0 waits for the lock.
    FoldsLocked,
    /// Ranks are at different points of the program: the first, its place and its exchange, and this one's.
    Apart([(usize, u64, u64); 2]),
    /// What another rank, or the agent, sent is not as documented.
    Broken(String),
    /// More of a thread's stack is to be shared at once than fits.
    TooMuch(usize),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(Conflict { address, ranks, values, before }, found) => write!(
                f,
                "ranks {} and {} wrote different values to {address:#x} without synchronisation in between: {:#x} and {:#x} (before: {before:#x}). \
                 A data race of the program, or an update that is not supported (found {found})",
                ranks[0], ranks[1], values[0], values[1]
            ),
            Self::Mixed { rank, place } => write!(
                f,
                "rank {rank} changed {place:#x} by a plain store and by an atomic operation, and so did another rank: which comes first is not defined",
            ),
            Self::HeldUp => f.write_str(
                "a single without a barrier (nowait) behind which a thread has an atomic operation, while thread 0 waits before the single for what others \
                 store: rank 0 does what is in it. With a barrier behind the single, or with -n 1, the program runs",
            ),
            Self::FoldsLocked => f.write_str(
                "a reduction of objects that have memory of their own is not supported by a thread that has a lock for which thread 0 waits: unset the lock before, or \
                 run with -n 1",
            ),
            Self::Apart([(rank, place, number), (own, own_place, own_number)]) => write!(
                f,
                "rank {rank} is at another point of the program than rank {own}: {place:#x} and {own_place:#x} (exchange {number} and \
                 {own_number}). A barrier, or a worksharing construct, that not all threads of the team come to?",
            ),
            Self::Broken(why) => f.write_str(why),
            Self::TooMuch(bytes) => {
                write!(
                    f,
                    "{bytes} bytes of a thread's stack are to be shared at once, more than buffers hold"
                )
            }
        }
    }
}

/// The process, and its way to others. Its functions may be called by all threads of the team at once, where nothing else is said.
pub trait Host {
    /// Memory of the process.
    type Memory: Memory;
    /// A lock.
    type Mutex<T>: Mutex<T>;
    /// Another.
    type RwLock: RwLock;
    /// Data of an answer.
    type Data: Deref<Target = [u8]>;
    /// An exchange that is under way.
    type Submitted;
    /// One that is over.
    type Said: Said;

    /// This rank.
    fn rank(&self) -> usize;
    /// Ranks.
    fn size(&self) -> usize;
    /// What is tracked of memory; nothing before that has begun.
    fn tracked<R>(&self, f: impl FnOnce(&mut Tracked<Self::Memory>) -> R) -> Option<R>;

    /// Asks rank 0's agent, and waits for the answer. At most [`slot`](Self::slot) bytes of data.
    fn ask(&self, kind: Kind, args: [u64; 6], data: &[&[u8]]) -> Answer<Self::Data>;
    /// Has rank 0 carry out an atomic operation ([`Rank::serve_operation`](super::Rank::serve_operation)); the answer, [`Early`](super::home::Early) if that is too early.
    fn ask_operation(&self, question: &[&[u8]]) -> Self::Data;
    /// Tells rank 0 that this rank is about to tell of stores over copies, or is through ([`Rank::serve_awaits`](super::Rank::serve_awaits)).
    fn ask_awaits(&self, about: bool);
    /// Asks rank 0 for a piece of a stack ([`Rank::serve_back`](super::Rank::serve_back)): 1 and the bytes, or 0, and another 0 if thread 0 waits elsewhere.
    fn ask_back(&self, question: &[u8]) -> Self::Data;
    /// Bytes of data that a request or an answer may have.
    fn slot(&self) -> usize {
        SLOT_DATA
    }
    /// Bytes that one exchange may have.
    fn room(&self) -> usize;
    /// Has `fill` write what this rank says, and submits it with the header that it gives. One thread at a time. `round`: one of a large exchange.
    fn submit(&self, round: bool, fill: &mut dyn FnMut(&mut [u8]) -> Header) -> Self::Submitted;
    /// Waits for all ranks.
    fn wait(&self, submitted: Self::Submitted) -> Self::Said;

    /// Bytes of memory at a shared place, so many of them (1, 2, 4, 8 or 16).
    fn load(&self, place: usize, bytes: usize) -> Value;
    /// Puts `after` there in one step if `before` is there; whether it was. The place is shared, and the program has such operations on it.
    fn replace(&self, place: usize, bytes: usize, before: &Value, after: &Value) -> bool;

    /// The calling thread, of those of this rank.
    fn local(&self) -> usize;
    /// How many `single` constructs of this region it has come to.
    fn singles(&self) -> u64;
    /// Tokens that it has.
    fn tokens(&self) -> usize;
    /// It has so many now.
    fn set_tokens(&self, tokens: usize);
    /// Whether it is thread 0 of the whole team.
    fn is_first(&self) -> bool;

    /// Gives way, longer the more `tries` there were; at most so many microseconds.
    fn pause(&self, tries: u32, most: u32);
    /// How long who is held up by rank 0 waits before that is known to be for ever, in nanoseconds.
    fn patience(&self) -> u64 {
        10_000_000_000
    }
    /// Nanoseconds, from anywhere.
    fn now(&self) -> u64;
    /// Adds to what is counted of the region.
    fn add(&self, count: Count, value: u64);
    /// Ends the run.
    fn fail(&self, trouble: &Trouble) -> !;
}

/// Time that is being taken, for what is counted.
#[derive(Clone, Copy, Debug)]
pub struct Clock(u64);

impl Clock {
    /// From now on.
    pub fn start(host: &impl Host) -> Self {
        Self(host.now())
    }

    /// Adds the time since the start, or the last lap, to a count.
    pub fn lap(&mut self, host: &impl Host, count: Count) {
        let now = host.now();
        host.add(count, now.saturating_sub(self.0));
        self.0 = now;
    }
}
