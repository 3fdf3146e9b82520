//! Strangers at the listener, and peers that know the key and mean ill: turned away or cut off, and the others never notice.

mod bounds;
mod datagrams;
mod frames;
mod lanes;
mod secrets;
mod segment;
mod strangers;
#[path = "../support/mod.rs"]
mod support;
