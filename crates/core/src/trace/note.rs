//! What is told once, in the room of several records: sockets, addresses, processes. Payloads are little-endian; strings
//! are what remains of the payload. Kinds are never given another meaning; a reader skips the ones it does not know.
//!
//! | kind | payload |
//! |---|---|
//! | [`SOCKET`] | number u32, descriptor i32, cookie u64, domain u16, type u16, protocol u16, 0 u16, local [`ADDRESS_BYTES`], remote likewise |
//! | [`ADDRESS`] | number u32, 0 u32, address |
//! | [`TCP_INFO`] | socket u32, free bytes in the send buffer u32, congestion control 16 bytes, `struct tcp_info` as the kernel gave it |
//! | [`PROCESS`] | parent u32, 0 u32, then the command line, words ended by zeros |
//! | [`UNSEEN`] | process u32, reason u32 ([`unseen`]), path of the program |
//! | [`MPI`] | rank u32, size u32, version of the library |
//! | [`EXIT`] | status i32, 0 u32 |
//! | [`UNIX`] | number of a socket u32, its type u32 (`SOCK_STREAM` ...), its inode u64, its peer's inode u64 (0: none, or not known) |
//! | [`LINK`] | number of the link among the process's sockets u32, 0 u32, its name u64, its name at the other end u64 ([`rails`](super::rails)) |
//! | [`EVENT`] | 0 u64, then a line of `docs/events.md` |
//!
//! 5 was another kind once, and stays unused.
//!
//! A socket is told again when more of it is known (connected, accepted); the last note counts.

/// Bytes of an address: `struct sockaddr`, cut or filled with zeros; family 0 where there is none.
pub const ADDRESS_BYTES: usize = 28;

/// A socket.
pub const SOCKET: u8 = 1;
/// An address that records name by its number.
pub const ADDRESS: u8 = 2;
/// What the kernel says of a TCP connection.
pub const TCP_INFO: u8 = 3;
/// A process begins (also after `exec`).
pub const PROCESS: u8 = 4;
/// A program starts that preloading cannot see.
pub const UNSEEN: u8 = 6;
/// The process is one of an MPI world.
pub const MPI: u8 = 7;
/// The process ends in order.
pub const EXIT: u8 = 8;
/// What a Unix socket is called by the kernel, and what it is connected to: these have no names that both ends know.
pub const UNIX: u8 = 9;

/// A link of Polyrail's through shared memory.
pub const LINK: u8 = 10;
/// What happened to a peer or a lane of Polyrail's.
pub const EVENT: u8 = 11;

/// Bytes of a [`LINK`] payload.
pub const LINK_BYTES: usize = 24;

/// Bytes of a [`UNIX`] payload.
pub const UNIX_BYTES: usize = 24;

/// Bytes of a [`SOCKET`] payload.
pub const SOCKET_BYTES: usize = 24 + 2 * ADDRESS_BYTES;

/// Why preloading does not see a program.
pub mod unseen {
    /// It is linked without the dynamic loader (static, and most Go programs).
    pub const STATIC: u32 = 1;
    /// It runs with another user's rights (setuid, file capabilities), where the loader ignores preloading.
    pub const PRIVILEGED: u32 = 2;
    /// It is of another architecture or word size than the recorder.
    pub const FOREIGN: u32 = 3;
    /// It uses io_uring for sockets, which are no calls.
    pub const IO_URING: u32 = 4;
    /// It has put itself behind a filter of system calls (seccomp): threads and sockets that begin after that are not recorded.
    pub const SANDBOX: u32 = 5;
    /// It runs as a user who may not use the session: the process has given up its rights.
    pub const USER: u32 = 6;
}
