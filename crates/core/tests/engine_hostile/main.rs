//! A peer that says anything at all: no panic, no overflow, nothing that is not its own is touched, and memory stays bounded.
#[path = "../engine_support/mod.rs"]
mod engine_support;
#[path = "../frame_support/mod.rs"]
mod frame_support;
mod lies;
mod named;
mod random;
