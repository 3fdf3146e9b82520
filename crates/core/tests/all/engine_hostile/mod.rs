//! A peer that says anything at all: no panic, no overflow, nothing that is not its own is touched, and memory stays bounded.
mod lies;
mod named;
mod random;
