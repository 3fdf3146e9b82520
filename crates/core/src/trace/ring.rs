//! A thread's ring: a file in the session's directory in shared memory. One page of header, then [`AT_SLOTS`] records.
//! The thread writes records and then `head`; the collector reads up to `head` and then writes `tail`. Both only grow, and
//! count records since the ring was made. A ring without room becomes twice as large, up to [`MOST`]. The thread of one that cannot
//! waits for the collector, within the bounds that [`session`] gives; what finds no room all the same is counted in `lost`.
//!
//! To grow, the thread copies all `slots` records behind themselves, so that each is at its place by the old number of slots and
//! by the new one, and only then stores the new number. A collector that finds the number changed after it has read
//! records must read them again: the thread may have overwritten them.
//!
//! The `session` file in the same directory is one page; [`session`] says what stands where.

/// `head` starts a ring's name and says what it is and which version (little-endian).
pub const MAGIC: u64 = u64::from_le_bytes(*b"PRRING1\0");
/// Bytes before the records.
pub const HEADER: usize = 4096;
/// Records that a ring holds at first: with the header, 20 KiB, so that a thousand processes fit where memory is scarce.
pub const START: usize = 1 << 9;
/// Records that a ring holds at most: 4 MiB of them, what a thread that does nothing but calls writes while a busy machine keeps
/// the collector waiting for 40 ms.
pub const MOST: usize = 1 << 17;
/// Records that a ring holds where it cannot grow.
pub const FIXED: usize = 1 << 15;

/// u64: [`MAGIC`].
pub const AT_MAGIC: usize = 0;
/// u32: records that it holds, a power of two. It may double.
pub const AT_SLOTS: usize = 8;
/// u32: process id, as the process itself sees it.
pub const AT_PID: usize = 12;
/// u32: thread id, likewise.
pub const AT_TID: usize = 16;
/// u32: id of the parent process.
pub const AT_PPID: usize = 20;
/// u64: inode of the namespace of process ids.
pub const AT_PID_NAMESPACE: usize = 24;
/// u64: when the ring was made, in ticks.
pub const AT_TICKS: usize = 32;
/// 16 bytes: the thread's name, ended by a zero.
pub const AT_NAME: usize = 40;
/// u64: number of the process in the session, counted from 1; unlike its id it is never given again.
pub const AT_PROCESS: usize = 56;
/// u64: inode of the network namespace.
pub const AT_NETWORK: usize = 64;
/// u64: records written. A cache line of the thread's own.
pub const AT_HEAD: usize = 128;
/// u64: records lost for want of room.
pub const AT_LOST: usize = 136;
/// u32: 1 when the thread has ended.
pub const AT_CLOSED: usize = 144;
/// u64: records read. A cache line of the collector's own.
pub const AT_TAIL: usize = 192;

/// Where things stand in the page that all processes of a session on a host share.
pub mod session {
    /// `b"PRSESS1\0"` as a number: what a session page begins with.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"PRSESS1\0");
    /// u64: [`MAGIC`], written last.
    pub const AT_MAGIC: usize = 0;
    /// u32: 1 when nothing is to be recorded any more.
    pub const AT_STOP: usize = 8;
    /// u32: the clock: 1 the processor's counter, 2 `CLOCK_MONOTONIC` in nanoseconds.
    pub const AT_CLOCK: usize = 12;
    /// u64: processes that have begun.
    pub const AT_PROCESSES: usize = 16;
    /// u64: threads that could not make a ring at some time.
    pub const AT_FAILED: usize = 24;
    /// u64: calls not recorded because they were made in a signal handler that interrupted the recorder.
    pub const AT_NESTED: usize = 32;
    /// u32: [option bits](OPTION_EVERY_CALL).
    pub const AT_OPTIONS: usize = 40;
    /// u64: records lost by threads that had no ring.
    pub const AT_MISSED: usize = 48;
    /// u64: programs that were started and that preloading cannot see.
    pub const AT_UNSEEN: usize = 56;
    /// u64: rounds that the collector has begun, which is its sign of life.
    pub const AT_BEAT: usize = 64;
    /// u64: the [`AT_BEAT`] at which a thread has waited in vain, or [`GONE`]. No thread waits while both are the same, or it is gone.
    pub const AT_STALLED: usize = 72;
    /// u64: times that a thread waited for room in its ring.
    pub const AT_WAITS: usize = 80;
    /// u64: how long all those took, in nanoseconds.
    pub const AT_WAITED: usize = 88;
    /// u64: how many of them found no room.
    pub const AT_VAIN: usize = 96;
    /// 4 x u64: functions that are not recorded, by bit: the lowest of the first is number 0.
    pub const AT_LEFT_OUT: usize = 128;
    /// [`PORTS`] x u16: a connection is recorded if one of its ports is among these, which end with 0; all are if there are none.
    pub const AT_PORTS: usize = 160;
    /// How many there may be.
    pub const PORTS: usize = 64;
    /// [`PROGRAMS`] bytes: names of the programs that are recorded, each ended by a zero; all are if there are none.
    pub const AT_PROGRAMS: usize = 512;
    /// Bytes for them.
    pub const PROGRAMS: usize = 512;
    /// In [`AT_STALLED`]: the collector has ended without having ended the session.
    pub const GONE: u64 = u64::MAX;
    /// A thread that waits for room looks again after so many nanoseconds ...
    pub const NAP: u64 = 1_000_000;
    /// ... so many times: at least five seconds in all. Not a time: while the machine sleeps, or both are stopped, nothing is waited for.
    pub const NAPS: u32 = 5000;
    /// Option: write each call, also the ones that found nothing.
    pub const OPTION_EVERY_CALL: u32 = 1;
    /// Option: do not record MPI calls.
    pub const OPTION_NO_MPI: u32 = 2;
    /// Option: lose what finds no room, rather than wait for the collector.
    pub const OPTION_DROP: u32 = 4;
    /// Bytes of the page.
    pub const SIZE: usize = 4096;
}
