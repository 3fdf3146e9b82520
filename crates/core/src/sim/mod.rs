//! A network of peers in one thread, with a clock of its own: where protocols are tested.
//!
//! A [`World`] holds [`Node`]s, each an [`Engine`](crate::proto::Engine) with its own memory, and the links between them. A
//! link has one or more rails, each with latency, jitter, bandwidth and a bounded queue; frames travel by any of them and
//! overtake each other between rails, never on one. The clock jumps from event to event. All that is random comes from the
//! seed, so that what failed once fails again.
//!
//! ```
//! use polyrail_core::frame::Matching;
//! use polyrail_core::proto::{Delivery, Filter, Message, Route, Scheme};
//! use polyrail_core::sim::{Join, RailSpec, World};
//!
//! let mut world = World::new(1, 2, 1024);
//! let route = Route { eager_max: 100, fragment: 1000, scheme: Scheme::Get, window: 1024, immediate: false };
//! world.join(0, 1, &Join { route, rails: vec![RailSpec::ETHERNET; 2], ..Join::default() });
//! let message = Message { matching: Matching::Tag(7), data: None, len: 5, delivery: Delivery::Sent };
//! world.send(0, 1, message, b"hello"[..].into());
//! world.recv(1, Filter { source: None, matching: Matching::Tag(7), ignore: 0 }, 10);
//! world.run();
//! assert_eq!(world.received(1)[0].real(), b"hello");
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `world.rs` | the clock, what is on its way, faults |
//! | `user.rs` | what the users of the processes do |
//! | `node.rs` | one process |
//! | `memory.rs` | its buffers, and their addresses |
//! | `rail.rs` | how long frames take |
//! | `lanes.rs`, `lanes/` | links of several lanes that fail and come back, by the sessions of both ends |
//! | `rng.rs` | random numbers |
//!
//! Lengths beyond memory: in a world made by [`World::counting`] buffers have lengths only.

mod lanes;
mod memory;
mod node;
mod rail;
mod rng;
mod user;
mod world;

pub use lanes::{LaneFault, LaneSpec};
pub use memory::{Bytes, Memory};
pub use node::{Engine, Event, Node, Ticket, Trace, What};
pub use rail::{MS, Overtaking, RailSpec, S, Time, US, duration};
pub use rng::Rng;
pub use world::{Direct, Join, Spread, World};
