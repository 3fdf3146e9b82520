//! Polyrail on real machines: every system call of the data path, and its unsafe code. What to do is `polyrail-core`'s to decide.
//!
//! A program opens a [`Worker`], hands its address to others, and sends; or it takes a [`mailbox::Mailbox`], which owns its
//! buffers and needs no unsafe code. `examples/` has both.
//!
//! | module | is about |
//! |---|---|
//! | [`worker`] | one endpoint: users' operations, the engine, what was agreed with peers |
//! | [`mailbox`] | tagged messages without unsafe code, on top of a worker |
//! | [`config`], [`error`] | settings (`POLYRAIL_...`); failures, with advice |
//! | `wireup` | connections until they are links: listeners, handshakes, strangers, attempts to reach peers |
//! | [`rail`] | what a rail is to its worker, and to wire-up |
//! | [`shm`], [`tcp`], [`udp`], [`loopback`] | the rails |
//! | [`list`], [`set`] | which rails there are; one of each |
//! | [`multicast`] | sockets that send to a group of hosts, and that hear one |
//! | [`sockets`] | Unix and IP sockets, for the rails whose connections begin with one |
//! | [`atomic`] | atomic operations on this process's memory, as peers ask for them |
//! | [`discover`] | the devices that rails use, and what keeps others from being used |
//! | [`relay`] | this site's gateway, as whoever calls it does |
//! | [`host`], [`named`] | which host this is; endpoints reached by IP and port |
//! | [`keys`] | keys of encrypted connections |
//! | [`events`], [`top`] | what happened, for `POLYRAIL_LOG`; what is happening, for `polyrail top` |
//! | [`report`](mod@report) | telling `polyrail run` that this process uses Polyrail |
//! | `far` | which hosts are far |
//! | `watched` | what a recorder of the process is told |
//! | `sys` | epoll and poll, wrapped once |
//! | `primitive` | atomics, shared bytes and barriers, which loom can take the place of |
//!
//! Invariants:
//! - A rail decides nothing and keeps no pointer between two calls: it keeps a [`rail::Span`], "these bytes of that
//!   operation", and asks for the addresses each time. What has ended meanwhile has none.
//! - Nothing blocks but an orderly close, [`report()`], and asking a gateway while an endpoint is opened, which have deadlines, and the sleep that `POLYRAIL_SLEEP_AFTER`
//!   asks for.
//! - Each operation that is begun ends once, by an event; that of a lost peer too.
//! - What another process can change at any time is copied, and the copy is checked.
//! - However a process ends, nothing of it stays: memory and sockets have no names in a file system.

pub mod atomic;
mod bounded;
pub mod config;
pub mod discover;
pub mod error;
pub mod events;
pub mod far;
pub mod host;
pub mod keys;
pub mod list;
pub mod loopback;
pub mod mailbox;
pub mod multicast;
pub mod named;
mod primitive;
pub mod rail;
pub mod relay;
pub mod report;
pub mod set;
pub mod shm;
pub mod sockets;
mod sys;
pub mod tcp;
pub mod top;
#[cfg(test)]
mod trial;
pub mod udp;
mod watched;
mod wireup;
pub mod worker;

pub use config::Config;
pub use error::Error;
/// Words of `core` that this crate's users need.
pub use polyrail_core::{
    proto::{Failure, PeerIdx, Route, Scheme},
    wire::{Address, AddressError, Versions},
};
pub use report::{report, report_end};
pub use worker::{
    AT_ONCE_MAX, ATOMIC_MAX, Event, EventKind, INJECT_MAX, Idle, Issued, Linger, Listener, Nobody, Refused,
    Rest, User, Worker,
};
