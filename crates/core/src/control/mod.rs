//! The control channel: two sides of a link agree on changes of its data channel, which go on under running traffic.
//!
//! Between two peers a link has a *data channel*, a stack of micro-protocols, and a *control channel* (as P2PSAP has, El Baz and
//! Nguyen, PDP 2010, reconstructed). The control channel is never changed itself: a few words, carried by its own small
//! acknowledgement and retransmission, whatever the data channel is made of. If it fails, the data channel goes on as it is.
//!
//! Data of a synchronous channel are positions in one endless stream of bytes for each direction, which goes on across
//! compositions; data of an asynchronous one are latest values, by tag and iteration. Each datagram bears the number of its
//! composition, its **epoch**.
//!
//! | file | holds |
//! |---|---|
//! | `changeover.rs` | one side of a change: what the driver tells it |
//! | `heard.rs` | what the peer's words do to it |
//! | `action.rs` | what it asks of its driver |
//! | `phase.rs` | its states as data |
//! | `epoch.rs` | numbers of compositions, and who may propose which |
//! | `refusal.rs` | why a proposal comes to nothing, and for how long it is not made again |
//! | `word.rs` | the words as bytes |
//! | `courier.rs` | how words get over a network that loses, doubles and reorders |
//! | `order.rs` | what of arriving data is new, across epochs and links |
//! | `context.rs` | what a link's figures say of the path |
//! | `losses.rs` | how much a path loses by itself |
//! | `spec.rs` | compositions as bytes |
//! | `rules.rs` | which composition suits which network |
//!
//! Invariants (`tests/changeover_schedules.rs` checks them):
//! - Synchronous data is delivered in order and exactly once, asynchronous at most once and never behind a newer value.
//! - Data of a composition is delivered by that composition only, and not any more once a later one is delivered.
//! - At most two compositions are alive on a side, and no words of the peer make anything grow without bound.
//! - No data waits for a change, but what comes by the new composition before all of the old one is here; of that a bounded part is kept.

mod action;
mod changeover;
pub mod context;
pub mod courier;
mod epoch;
mod heard;
pub mod losses;
mod order;
pub mod phase;
mod refusal;
pub mod rules;
mod spec;
pub mod word;

pub use action::{Action, Admit, Breach, Config, Lost, Proposable};
pub use changeover::Changeover;
pub use courier::Courier;
pub use epoch::{Epoch, Side};
pub use order::{Latest, Piece, Stream};
pub use refusal::Refusal;
pub use word::{SpecBytes, Word};

/// Nanoseconds of any clock that does not jump.
pub type Time = u64;
