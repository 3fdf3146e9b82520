//! Two sites as one: a gateway of each carries connections between them, over one session of Polyrail's.
//!
//! A program's connection ends at its own site's gateway; its bytes are messages of the gateways' session, which has several lanes over
//! whatever joins the sites; the other gateway makes the connection's other half in its own site. What is lost between the sites is mended
//! there, by a session that is never cold.
//!
//! | module | is about |
//! |---|---|
//! | [`net`] | networks, and whom a connection is wanted with |
//! | [`wire`] | messages between gateways (docs/wire-gateway.md) |
//! | [`flow`] | the two directions of a stream: order, room |
//! | [`classes`] | which streams go first, and how fast |
//! | [`call`] | what programs say to their gateway: SOCKS 5, and requests to see how it is |
//! | [`site`] | who a site is, and whom it trusts |
//! | [`config`] | the file of a gateway |
//! | [`run`] | the process: sockets, sessions, timers |
//!
//! Invariants:
//! - All but `run` is without I/O (`site` and `config` read and write their files).
//! - Nobody is connected who has not proved a key that only the two sites know; all between gateways is encrypted.
//! - A gateway connects to addresses of its own site's networks alone, and lets be called by them and its own host alone.
//! - What a stream may hold here is bounded by the room that was given; what the other gateway says beyond that ends the session.
//! - A stream ends as a connection would: half, whole, or reset. A session that is lost resets all of its streams.
#![forbid(unsafe_code)]

pub mod call;
pub mod classes;
pub mod config;
pub mod error;
pub mod flow;
pub mod net;
pub mod run;
pub mod site;
pub mod wire;

pub use error::Error;
