//! The mapping that a program's runtime and its agent share, at [`layout::AREA`](crate::layout::AREA) in the program.
//!
//! ```text
//! Area | Slots (one per local thread, then the server's) | data of each slot | out buffers (2) | headers (2 x size) | in buffers (2 x size)
//! ```
//!
//! The agent makes the file, writes everything but the atomics before the program starts, and hands the descriptor over as number [`FD`].
//! Who waits, waits on a futex: the program on the word that will change, the agent on [`Area::doorbell`].
//!
//! # Requests (a thread of the program asks, its agent answers)
//! A thread owns the slot of its local number. It writes `kind`, `args` and data, sets `state` to [`REQUEST`], the slot's bit in [`Area::asking`], and rings. The agent writes `result` and data,
//! sets `state` to [`DONE`] and wakes. The thread takes the answer and sets [`FREE`]. An error is told in `result[0]` as documented with the kind.
//!
//! # Served requests (rank 0's agent asks its program)
//! The last slot turns the other way around: the agent writes [`Kind::Serve`] requests there, the program's server thread answers.
//!
//! # Exchanges
//! The leader (one thread at a time) fills out buffer `b`, writes its header and sets `exchange[b].state` to [`REQUEST`]. The agent sends it to all ranks, collects all
//! ranks' headers and blobs (its own header too, its own blob not) and sets [`DONE`]. Both buffers may be under way; exchanges are submitted in the order of `Header::number`.
//!
//! Where a rank has more to tell than is worth one message, ranks first list their pages ([`flag::LISTED`]), then tell in rounds ([`flag::ROUND`]) until nobody has
//! [`flag::MORE`]; the round behind that is empty. A round's blob is two, of which `words[0]` is the first one's length: pages that several ranks have listed, then
//! this rank's own. If `words[1]` is not 0, both together are compressed (zstd), and were so many bytes.
//!
//! # Ranks of one host
//! Where all ranks share a host ([`setting::SHARED`]), programs map each other's files, too, at [`layout::peer`](crate::layout::peer), and exchange without their agents: the leader fills
//! its out buffer and header, and then sets `exchange[b].state` to the low half of the exchange's number; it waits until all others' are the same, and reads headers and out
//! buffers where they are. It says in [`Area::read`] how far it has done that: nobody writes a header or buffer again before all have read it. All threads ask rank 0's agent:
//! a request is announced by a bit of its own area's [`Area::asking`], as everywhere, but by rank 0's bell.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::layout::{PAGE, SHARING};

/// The descriptor that the program finds the area by.
pub const FD: i32 = 1000;
/// First word of an area: "polyromp", little endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"polyromp");
/// Changes with every change of what is written here: runtime and agent are of one build.
pub const VERSION: u32 = 8;

/// Nobody uses it.
pub const FREE: u32 = 0;
/// Asked, not answered.
pub const REQUEST: u32 = 1;
/// Answered.
pub const DONE: u32 = 2;

/// Local threads that can have a slot, the server's excluded.
pub const LOCALS: usize = 64;
/// Index of the slot that the agent asks by.
pub const SERVER: usize = LOCALS;
/// Bytes of data that a slot holds each way; more goes in parts.
pub const SLOT_DATA: usize = 256 << 10;
/// Bytes of a header.
pub const HEADER: usize = 512;
/// Bytes of data inside a header.
pub const INLINE: usize = HEADER - 64;
/// Ranks that a run may have.
pub const RANKS: usize = 1024;

/// What a thread asks of its agent. Keys, loops and gathers are named by numbers that all ranks compute alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Wait for token `args[0]`; `args[1]`: the log up to which this rank has applied; `args[2]`: 0 lock, 1 only try, 2 wait until the token's turn is `args[3]`.
    /// Answer: `result[0]` 1 granted, 0 not (only when tried); `result[1]`: log position after the entries in the data; `result[2]`: 1 if more follow (ask [`Kind::Log`]).
    Lock = 1,
    /// Give token `args[0]` back. `args[1]`: the turn that it has from now on, or `u64::MAX`.
    Unlock,
    /// Append the data to this rank's log entry; `args[0]`: 1 if it is the last part, which completes the entry. Answer: `result[0]`: log position of the entry.
    Publish,
    /// Entries of others after log position `args[0]`. Answer as [`Kind::Lock`]. Each entry is `len: u32, rank: u32, bytes`.
    Log,
    /// Take iterations of loop `args[0]`: of `args[1]` in all, by chunks of `args[2]`, `args[3]`: 0 dynamic, 1 guided for `args[4]` threads.
    /// Answer: `result[0]` how many (0: none left), `result[1]` the first.
    Take,
    /// Give the data to gather `args[0]`, which rank 0 collects.
    Give,
    /// Wait for what `args[1]` ranks gave to gather `args[0]` (rank 0 only). Answer: one rank's data after the other's, in order of ranks, for each ask one:
    /// `args[2]` says the how manieth.
    Collect,
    /// Offer a task, which the data say, to whoever waits: of family `args[0]`, in group `args[1]` (0: none), met in the offered task `args[2]` (0: none), `args[3]`: the log up to
    /// where it relies on it, `args[4]`: threads of the team. Answer: `result[0]` its number, 0: not taken; `result[1]`: nanoseconds that others have worked for this rank.
    Offer,
    /// Wait for tasks, and carry others out meanwhile. `args[0]`: 0 for family `args[1]`, 1 the same, and for any of it that is done, 2 for group `args[1]`, 3 at a barrier of `args[1]`
    /// threads. `args[2]`: a task that this thread has carried out (0: none), `args[3]`: the log up to where it has told what that changed, in `args[4]` nanoseconds.
    /// Answer: `result[0]` 0 it is over, 1 a task, `result[1]` its number, `result[3]` its group, what was offered in the data; 2 numbers of those that are done in the data;
    /// `result[2]`: the log up to which this thread has to have seen it.
    Work,
    /// Have rank 0's program do what the data say; `result` and data are its answer.
    Serve,
    /// The data must be the same on all ranks (`args[0]` names them); text, lines. Answer: `result[0]` 1 the same, 0 not: then the data tell how they differ.
    Same,
    /// Checkpoints (rank 0 only); `args[0]`: see [`kept`].
    Keep,
    /// The program ends everywhere with status `args[0]`.
    Exit,
    /// The run cannot go on; the data say why, for people.
    Fail,
}

/// Flags of a [`Header`].
pub mod flag {
    /// This rank has more to tell than this round's blob holds.
    pub const MORE: u32 = 1;
    /// This rank published or applied log entries since the last barrier.
    pub const LOG: u32 = 2;
    /// Rank 0: a region begins; its description is in the blob before all records.
    pub const REGION: u32 = 4;
    /// The blob does not hold what this rank changed, but names the pages: rounds follow.
    pub const LISTED: u32 = 16;
    /// A round of those that follow.
    pub const ROUND: u32 = 32;
    /// The end of a region in which a thread of this rank has met a task.
    pub const TASKS: u32 = 64;
    /// Rank 0, at the end of a region: a checkpoint is to be taken, for which all tell the storage of their threads next.
    pub const KEEP: u32 = 128;
}

/// What rank 0's program asks its agent of checkpoints ([`Kind::Keep`]).
pub mod kept {
    /// Where they are. Answer: milliseconds from one to the next; the run's number; the last segment's; the data: the directory, and names of segments to go on from, each ended by zero.
    pub const WHERE: u64 = 0;
    /// The segment of number `args[1]` is written, of `args[2]` bytes, which is whole if `args[3]` is 1; the data are paths of files that the program has written, each ended by zero.
    pub const WRITTEN: u64 = 1;
    /// What became of the last. Answer: [`UNDERWAY`], [`SAFE`] or [`LOST`].
    pub const LAST: u64 = 2;
    /// There is none now; the data say why, for people.
    pub const REFUSED: u64 = 3;

    /// It is on its way to the disk.
    pub const UNDERWAY: u64 = 0;
    /// It is there, or there is none.
    pub const SAFE: u64 = 1;
    /// It could not be written, which people were told.
    pub const LOST: u64 = 2;
}

/// What each rank tells all others with each exchange.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Header {
    /// Exchanges are counted from 1; all ranks' numbers are equal, or the runtime is wrong.
    pub number: u64,
    /// Bytes of the blob.
    pub bytes: u64,
    /// Which point of the program this is, the same on all ranks or the program is wrong: a region's function and a count of synchronisations.
    pub place: u64,
    /// See [`flag`].
    pub flags: u32,
    /// The rank.
    pub rank: u32,
    /// For the runtime's use: bytes of the blob that stand first; bytes that it has uncompressed, or 0.
    pub words: [u64; 4],
    /// A blob that fits. Agent and runtime both use blobs in buffers; this is the agent's own way of sending small ones.
    pub inline: [u8; INLINE],
}

/// One of the two exchanges that may be under way.
#[repr(C, align(64))]
pub struct Exchange {
    /// [`FREE`], [`REQUEST`], [`DONE`]; the program waits on it. Where files are shared: the low half of the last number submitted; other ranks wait on it.
    pub state: AtomicU32,
    /// Other ranks that sleep on `state`.
    pub sleepers: AtomicU32,
    /// What the program submits.
    pub header: core::cell::UnsafeCell<Header>,
}

/// A thread's requests.
#[repr(C, align(64))]
pub struct Slot {
    /// [`FREE`], [`REQUEST`], [`DONE`]; who asked waits on it.
    pub state: AtomicU32,
    /// A [`Kind`].
    pub kind: core::cell::UnsafeCell<u32>,
    /// Bytes of data, of the question, then of the answer.
    pub bytes: core::cell::UnsafeCell<u64>,
    /// See [`Kind`].
    pub args: core::cell::UnsafeCell<[u64; 6]>,
    /// See [`Kind`].
    pub result: core::cell::UnsafeCell<[u64; 4]>,
}

/// What stands first in the mapping.
#[repr(C, align(4096))]
pub struct Area {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// This rank.
    pub rank: u32,
    /// Ranks.
    pub size: u32,
    /// Threads of each rank, `-t`.
    pub threads: u32,
    /// Bytes of an out buffer, which is what a blob has at most.
    pub blob: u64,
    /// See [`setting`].
    pub settings: u32,
    /// Rung by the program with every request; the agent waits on it.
    pub doorbell: AtomicU32,
    /// 1 while the agent sleeps on the doorbell, so that a program need not wake one that is awake.
    pub asleep: AtomicU32,
    /// Where files are shared: the low half of the last exchange's number that this rank has read the whole of, and needs no more.
    pub read: AtomicU32,
    /// Other ranks that sleep on `read`.
    pub read_sleepers: AtomicU32,
    /// Requests so far.
    pub requests: AtomicU32,
    /// Slots with requests that the agent has not yet looked at, a bit each.
    pub asking: AtomicU64,
    /// Where files are shared: who has this one open, by which descriptor, for each rank.
    pub files: [SharedFile; SHARING],
    /// Their nonces.
    pub nonces: [u64; SHARING],
    /// Tells this file from others.
    pub nonce: u64,
    /// What threads ask; the last is the server's.
    pub slots: [Slot; LOCALS + 1],
    /// The two exchanges.
    pub exchange: [Exchange; 2],
    /// 1 while threads are to offer the tasks that they meet. Where files are shared, rank 0's.
    pub wanted: AtomicU32,
    /// Which of `regions` is being run, for who adds to it from beside the program.
    pub region: AtomicU32,
    /// What is counted of regions.
    pub regions: [Counted; COUNTED],
}

/// A file as `/proc` shows it: a process, and its descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SharedFile {
    /// The process.
    pub process: u32,
    /// The descriptor.
    pub descriptor: u32,
}

impl SharedFile {
    /// Its path, ended by a zero.
    pub fn path(self) -> String {
        format!("/proc/{}/fd/{}\0", self.process, self.descriptor)
    }
}

/// Bits of [`Area::settings`].
pub mod setting {
    /// Tell at the end what was counted.
    pub const STATS: u32 = 1;
    /// Find changes by comparison only.
    pub const COMPARE: u32 = 2;
    /// All ranks are on one host and map each other's files.
    pub const SHARED: u32 = 4;
    /// This host has a processor for each thread of all its ranks, so that who waits for another may look for a while before it sleeps.
    pub const SPIN: u32 = 8;
    /// Compress nothing.
    pub const PLAIN: u32 = 16;
    /// Serial code runs on every rank.
    pub const REPLICATED: u32 = 32;
    /// Tasks are carried out by the threads that meet them.
    pub const NO_TASKS: u32 = 64;
    /// All tasks are offered to other threads, whatever that costs.
    pub const ALL_TASKS: u32 = 128;
    /// Checkpoints are wanted.
    pub const CHECKPOINTS: u32 = 256;
    /// The run goes on from one.
    pub const RESUMED: u32 = 512;
}

/// What is counted of each region; the index into [`Counted::words`]. Times are in nanoseconds, of this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Regions begun.
    Regions,
    /// From begin to end.
    Whole,
    /// Exchanges, which are region begins, barriers, region ends, and further rounds of these.
    Exchanges,
    /// Finding which pages changed.
    Finding,
    /// Comparing and encoding.
    Encoding,
    /// From when this rank had encoded until it had all that others sent: waiting for them, and the transfer.
    Exchanging,
    /// Of [`Count::Exchanging`]: until the last rank's header came (the agent counts this).
    Waiting,
    /// Merging and applying.
    Applying,
    /// Bytes that this rank told.
    BytesOut,
    /// Bytes that others told.
    BytesIn,
    /// Changed pages of this rank.
    Pages,
    /// Tokens taken: `critical`, locks, `ordered`.
    Tokens,
    /// Waiting for tokens and their data; telling what was changed before they are given back.
    TokenTime,
    /// Atomic operations that rank 0 carried out for this rank.
    Atomics,
    /// Their time.
    AtomicTime,
    /// System calls that rank 0 carried out for this rank.
    Calls,
    /// Chunks of loops taken from rank 0's agent.
    Chunks,
    /// Their time.
    ChunkTime,
    /// Before the region, on rank 0: the exchange that begins it (finding, encoding, exchanging, applying all together).
    Beginning,
    /// Bytes that this rank did not send, of those that it told, as they were compressed.
    BytesSaved,
    /// Tasks that this rank carried out of those that were offered.
    Tasks,
    /// Waiting for tasks.
    TaskTime,
    /// Checkpoints behind the region.
    Checkpoints,
    /// How long rank 0 was at it.
    CheckpointTime,
    /// What it wrote.
    CheckpointBytes,
}

/// Regions that are counted apart; others are counted as the last one.
pub const COUNTED: usize = 256;

/// The counters of one region.
#[repr(C, align(64))]
pub struct Counted {
    /// The compiler's function; 0: unused.
    pub function: core::sync::atomic::AtomicU64,
    /// What the compiler says of the place (LLVM: `;file;function;line;column;;`), ended by zero. Written once, before `function`.
    pub place: core::cell::UnsafeCell<[u8; 120]>,
    /// By [`Count`].
    pub words: [core::sync::atomic::AtomicU64; 32],
}

/// Where the parts of a mapping stand, in bytes from its begin.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    size: usize,
    blob: usize,
}

impl Places {
    /// For `size` ranks and blobs of at most `blob` bytes (a multiple of a page).
    pub const fn new(size: usize, blob: usize) -> Self {
        Self { size, blob: blob.next_multiple_of(PAGE) }
    }
    /// Data of slot `index`.
    pub const fn data(&self, index: usize) -> usize {
        size_of::<Area>() + index * SLOT_DATA
    }
    /// Out buffer of exchange `b`.
    pub const fn out(&self, b: usize) -> usize {
        self.data(LOCALS + 1) + b * self.blob
    }
    /// The header that `rank` sent for exchange `b`.
    pub const fn header(&self, b: usize, rank: usize) -> usize {
        self.out(2) + (b * self.size + rank) * HEADER
    }
    /// The blob that `rank` sent for exchange `b`.
    pub const fn blob(&self, b: usize, rank: usize) -> usize {
        self.out(2) + (2 * self.size * HEADER).next_multiple_of(PAGE) + (b * self.size + rank) * self.blob
    }
    /// Bytes of what other ranks of the host look at: everything before what came from others.
    pub const fn shared(&self) -> usize {
        self.header(0, 0)
    }
    /// Bytes of the whole.
    pub const fn bytes(&self) -> usize {
        self.blob(2, 0)
    }
}

const _: () = assert!(size_of::<Header>() == HEADER, "a header is what is sent");
