//! One OpenMP program's memory on several ranks: what a rank knows of the others' and tells them, as a value ([`Rank`]) that asks its [`Host`] for
//! everything that is not a decision: memory, messages, time, locks, threads. The runtime inside the program is one host; the simulator of `tests/coherence_schedules.rs`, where
//! all ranks are in one process and every order is chosen, is the other. The reasons are in docs/decisions/0006-openmp-on-distributed-memory.md.
//!
//! | module | does |
//! |---|---|
//! | [`host`] | what a rank needs of the process that it is in |
//! | [`tracked`] | which pages changed, encoding what changed, applying what others changed; large exchanges' [`bulk`]; [`digest`]s of what serial code changed |
//! | [`rank`] | exchanges, tokens, flushes: when what is told and taken over; [`rounds`] of large exchanges |
//! | [`log`] | what is told between exchanges |
//! | [`home`] | atomic operations, which rank 0 carries out; `copies` of what it has; [`operation`]s, what they do |
//! | [`tasks`] | tasks that other threads carry out |
//! | [`fold`] | reductions of copies that threads have on their stacks |
//! | [`order`] | behind what rank 0 does what it is asked for |
//!
//! Locks are taken in this order: the log's, that of telling, that of copies, that of what is tracked. The first may be held while others are asked; telling and copies only
//! where the answer waits for nobody.

mod apply;
pub mod bulk;
mod copies;
pub mod digest;
pub mod fold;
pub mod home;
pub mod host;
pub mod log;
pub mod operation;
pub mod order;
pub mod rank;
pub mod rounds;
pub mod tasks;
pub mod tracked;

pub use host::{Answer, Host, Memory, Mutex, RwLock, Said, Trouble, Value};
pub use rank::Rank;
pub use tracked::Tracked;
