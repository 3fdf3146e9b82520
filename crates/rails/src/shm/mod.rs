//! Shared memory between two processes of one host.
//!
//! `ring` one direction of a pair; `segment` the memory of a pair; `doorbell` waking who sleeps; `cma` one copy between two
//! processes' own memories, `attach` many of them in slices; `discover` what of this the machine allows; `connect` from a Unix socket to a link; `rail` all of it as a
//! [`Rail`](crate::rail::Rail).

mod attach;
pub mod cma;
pub(crate) mod connect;
mod discover;
pub mod doorbell;
mod rail;
pub mod ring;
pub mod segment;

pub(crate) use attach::Attach;
pub use rail::ShmRail;
