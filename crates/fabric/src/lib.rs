//! The libfabric provider: what MPICH, Open MPI and all other users of libfabric meet.
//!
//! libfabric loads this library (`FI_PROVIDER_PATH`), calls [`fi_prov_ini`], and from then on calls the functions in our
//! objects' tables. All transport is `polyrail_rails::Worker`'s; this crate translates: C's calls into a worker's, a worker's
//! events into completions.
//!
//! | module | is about |
//! |---|---|
//! | [`ffi`] | libfabric's ABI, written by hand; nothing else |
//! | `provider` | being loaded; settings; the log |
//! | `info` | `fi_getinfo`: hints in, one offer or a reason out |
//! | `address` | the formats of addresses |
//! | `object` | what C's objects have in common: their memory, their numbers |
//! | `fabric`, `domain`, `av`, `mr`, `eq`, `cq`, `cntr` | the objects of those names |
//! | `endpoint` | endpoints and all data transfer calls |
//! | `lock` | the lock of a domain |
//! | `progress` | worker's events to completions and counts |
//! | `wait`, `auto`, `pusher` | sleeping; progress without the application; sending what was held back |
//! | `error` | failures as libfabric's numbers and sentences |
//!
//! Invariants:
//! - Everything in a domain is under that domain's lock (`domain::State`); a call takes it once. What C holds is a box with the
//!   domain and a number. Event queues have their own lock, which is never held while another one is taken.
//! - A worker is disarmed by progress. As long as anybody sleeps, calls and progress end with arming again, or with a wake-up.
//! - Every operation completes once, in the queue if wanted or if it failed, and in the counter. No completion is lost:
//!   queues grow.
//! - No panic passes into C: the functions that C calls are `extern "C"`, so that one ends the process.

mod address;
mod auto;
mod av;
mod cntr;
mod cq;
mod domain;
mod endpoint;
mod eq;
mod error;
mod fabric;
pub mod ffi;
mod info;
mod lock;
mod mr;
mod object;
mod progress;
mod provider;
mod pusher;
mod wait;

pub use provider::fi_prov_ini;
