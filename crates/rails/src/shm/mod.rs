//! Shared memory between two processes of one host.
//!
//! `ring` one direction of a pair; `desk` a long read that both work at; `segment` the memory of a pair; `board` which rings are to be looked at; `doorbell` telling and waking
//! their owner; `sealed` the memory of both; `cma` one copy between two
//! processes' own memories, `attach` many of them in slices; `discover` what of this the machine allows; `connect` from a Unix socket to a link; `rail` all of it as a
//! [`Rail`](crate::rail::Rail).

mod attach;
pub mod board;
pub mod cma;
pub(crate) mod connect;
pub mod desk;
mod discover;
pub mod doorbell;
mod rail;
pub mod ring;
pub mod sealed;
pub mod segment;

pub(crate) use attach::{Attach, NoDesks};
pub use rail::ShmRail;
