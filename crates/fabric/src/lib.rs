//! The libfabric provider: what MPICH, Open MPI and all other users of libfabric meet.
//!
//! libfabric loads this library (`FI_PROVIDER_PATH`), calls [`fi_prov_ini`], and from then on calls the functions in our
//! objects' tables. All transport is `polyrail_rails::Worker`'s; this crate translates: C's calls into a worker's, a worker's
//! events into completions.
//!
//! A module uses only those that stand below it; `scripts/promises` refuses a circle.
//!
//! | module | is about |
//! |---|---|
//! | `provider` | being loaded, and the end of the process |
//! | `object` | what C holds: libfabric's structs and tables, and the calls in them |
//! | `info` | `fi_getinfo`: hints in, one offer or a reason out |
//! | `registry` | what is open in this process |
//! | `domain` | a domain: its state under its lock, and its threads |
//! | `threads` | progress without the application; sending what was held back |
//! | `progress` | worker's events to completions and counts |
//! | `state` | what is in a domain, as plain data: endpoints, queues, counters, address vectors, regions |
//! | `wait`, `lock`, `primitive` | sleeping; the lock of a domain; what it and the threads are made of |
//! | `error`, `address` | failures as libfabric's numbers and sentences; the formats of addresses |
//! | `settings`, `log`, `limits` | settings; libfabric's log; names and sizes |
//! | `companion` | whether this process has the companion that it was to have |
//! | `slurm` | whether a task of Slurm's is a rank of the job that its user meant |
//! | [`ffi`] | libfabric's ABI, written by hand; nothing else |
//!
//! Invariants:
//! - Everything in a domain is under that domain's lock (`state::State`); a call takes it once. What C holds is a box with the
//!   domain and a number. Event queues have their own lock, which is never held while another one is taken.
//! - A worker is disarmed by progress. As long as anybody sleeps, calls and progress end with arming again, or with a wake-up.
//! - Every operation completes once, in the queue if wanted or if it failed, and in the counter. No completion is lost:
//!   queues grow.
//! - No panic passes into C: the functions that C calls are `extern "C"`, so that one ends the process.

mod address;
mod companion;
mod domain;
mod error;
pub mod ffi;
mod info;
mod limits;
mod lock;
mod log;
mod object;
mod primitive;
mod progress;
mod provider;
mod registry;
mod settings;
mod slurm;
mod state;
mod threads;
mod wait;

pub use provider::fi_prov_ini;
