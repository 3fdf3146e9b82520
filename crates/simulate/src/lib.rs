//! Members of a run on a simulated network: each runs its own code, all of it that a process on a real one runs above its endpoint, in a coroutine; time is counted
//! and not waited for. What is computed is really computed, so that out of step the iterations that it takes are those that it would take.
//!
//! | module | |
//! |---|---|
//! | [`model`] | what joins hosts, and how fast they are |
//! | `world` | what is under way, and when it is where: no coroutine, no member |
//! | [`member`] | a member's endpoint there, and all members together |
//!
//! Invariants:
//! - The same model and the same members give the same, to the bit: chance comes from the model's seed, and of two events at one time the one that was caused first comes
//!   first.
#![forbid(unsafe_code)]

pub mod member;
pub mod model;
mod world;

pub use member::{Simulated, Stuck, run};
pub use model::{Line, Model};
