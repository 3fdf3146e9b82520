//! Decisions only: wire formats, tag matching, protocols, wireup, and a simulator to test them. Who has sockets, clocks and the
//! users' memory (`polyrail-rails`) asks here what to do, does it, and tells what happened.
//!
//! | module | decides |
//! |---|---|
//! | [`wire`] | how addresses, handshakes and offers look as bytes (`docs/wire.md`) |
//! | [`frame`] | the same for data frames (`docs/wire-frames.md`) |
//! | [`wireup`] | who is let in, and which of several connections becomes the session |
//! | [`proto`] | what is sent, when, and what arriving frames mean: the [`Engine`](proto::Engine) |
//! | [`matching`] | which receive takes which message |
//! | [`cost`] | which protocol for which size, and why |
//! | [`lanes`] | figures of several connections to a peer: which to open, how fast they are, who carries what |
//! | [`micro`] | how a link over datagrams is reliable and fair: micro-protocols, and stacks that are composed of them |
//! | [`connection`] | such a link's beginning and end, and which stack is in force |
//! | [`session`] | one peer's lanes as a state machine: health, choice, retiring, sending again, opening again |
//! | [`control`] | how a link's data channel is changed while it is in use, by both sides |
//! | [`coll`] | collective operations: where ranks stand, and who exchanges what with whom |
//! | [`ticket`] | a lock in one word of another process's memory |
//! | [`values`] | the latest value of each tag: what is kept of it at either end |
//! | [`state`], [`slab`], [`ranges`] | state machines as data; operations by slot and generation; sets of numbers |
//! | [`trace`] | how recorded calls look as bytes (`docs/trace-format.md`) |
//! | [`sim`] | a network of engines in one thread, with a clock of its own, for tests |
//!
//! Invariants:
//! - No I/O: no socket, no clock, no thread, no randomness but what is given as an argument (`no_std`). No unsafe code.
//! - Nothing blocks. Room that is missing is a return value, and work to do is polled for.
//! - Bytes of a peer are copied to values that can only be valid before anything depends on them. No bytes and no order of
//!   frames panics, or makes memory grow beyond what the peer was granted; each parser is a fuzz target (`fuzz/`).
//! - What is sent is pinned: formats by golden bytes, state machines by tables in `tests/snapshots`.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod coll;
pub mod connection;
pub mod control;
pub mod cost;
pub mod frame;
pub mod lanes;
pub mod matching;
pub mod micro;
pub mod proto;
pub mod ranges;
pub mod session;
pub mod sim;
pub mod slab;
pub mod state;
pub mod ticket;
pub mod trace;
pub mod values;
pub mod wire;
pub mod wireup;
