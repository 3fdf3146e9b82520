//! What the blocks of a recording hold that are JSON; a host's is [`HostBlock`](crate::host::HostBlock).

use serde::{Deserialize, Serialize};

/// A thread, as in a [`THREAD`](crate::file::kind::THREAD) block.
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

/// The command, as in a [`COMMAND`](crate::file::kind::COMMAND) block.
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

/// How much was recorded, as in a [`TOTALS`](crate::file::kind::TOTALS) block.
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
