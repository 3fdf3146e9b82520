//! What a recording's file is made of: blocks, their kinds, and what those hold that are JSON. A host's is [`HostBlock`](crate::host::HostBlock).

use serde::{Deserialize, Serialize};

/// First bytes of a file.
pub const MAGIC: &[u8; 8] = b"PRTRACE1";
/// Of what follows them; a reader refuses any other.
pub const VERSION: u32 = 2;
/// Bytes before the first block.
pub const FILE_HEADER: usize = 16;
/// Bytes before a block's payload.
pub const BLOCK_HEADER: usize = 24;
/// Longest payload that a reader accepts, packed or not.
pub const LONGEST: usize = 16 << 20;
/// When a block was written that tells again what was told before the recording begins: that is in none's time.
pub const BEFORE: u64 = 0;
/// Added to a block's kind: its payload is packed. The checksum is that of the packed bytes.
pub const PACKED: u32 = 1 << 31;
/// Kinds of blocks. A reader skips kinds that it does not know.
pub mod kind {
    /// JSON: the host that the file is of.
    pub const HOST: u32 = 1;
    /// JSON: a thread; its records have the block's stream number.
    pub const THREAD: u32 = 2;
    /// Records of the thread with this stream number.
    pub const RECORDS: u32 = 3;
    /// Ticks, `CLOCK_MONOTONIC` and `CLOCK_REALTIME` (u64 each, nanoseconds) of one moment.
    pub const CLOCK: u32 = 4;
    /// u64: records of the stream that were lost since the last such block.
    pub const LOST: u32 = 5;
    /// Looks at TCP connections (samples).
    pub const TCP: u32 = 6;
    /// Kernel events.
    pub const KERNEL: u32 = 7;
    /// Nothing more is there at this moment: no process of the host is being recorded.
    pub const IDLE: u32 = 8;
    /// Text: what the user must know.
    pub const WARNING: u32 = 9;
    /// JSON: the command, and how it ended.
    pub const COMMAND: u32 = 10;
    /// As [`RECORDS`], with times in nanoseconds of `CLOCK_MONOTONIC`: system calls of a program that preloading cannot see.
    pub const SYSCALLS: u32 = 11;
    /// JSON: how much was recorded on the host so far; before each [`IDLE`].
    pub const TOTALS: u32 = 12;
}

/// Appends a block to a buffer.
pub(crate) fn encode(buffer: &mut Vec<u8>, kind: u32, stream: u32, at: u64, payload: &[u8]) {
    for word in [kind, payload.len() as u32, stream, crc32fast::hash(payload)] {
        buffer.extend(word.to_le_bytes());
    }
    buffer.extend(at.to_le_bytes());
    buffer.extend(payload);
    buffer.resize(buffer.len().next_multiple_of(8), 0);
}

/// What a file begins with.
pub(crate) fn write_header(buffer: &mut Vec<u8>) {
    buffer.extend(MAGIC);
    buffer.extend(VERSION.to_le_bytes());
    buffer.extend([0; 4]);
}

/// A thread, as in a [`THREAD`](kind::THREAD) block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadBlock {
    /// Number of its process in the session on this host.
    pub process: u64,
    /// Process id, as it sees it.
    pub pid: u32,
    /// Thread id, likewise.
    pub tid: u32,
    /// Process id of the parent.
    pub parent: u32,
    /// Inode of the namespace of these ids.
    pub pids: u64,
    /// Inode of its network namespace.
    pub network: u64,
    /// Its name.
    pub name: String,
}

/// The command, as in a [`COMMAND`](kind::COMMAND) block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandBlock {
    /// Word by word.
    pub words: Vec<String>,
    /// When it began, in nanoseconds since 1970.
    pub date: u64,
    /// How it ended, if it has.
    pub status: Option<i32>,
    /// Recording ended in order, though it is not known how the command did, or it goes on: it ran already (`--pid`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
}

/// How much was recorded, as in a [`TOTALS`](kind::TOTALS) block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TotalsBlock {
    /// Records, of calls and notes.
    pub records: u64,
    /// Processes that recorded.
    pub processes: u64,
    /// Records that were lost: for want of room, or because a thread had no ring.
    pub lost: u64,
}
