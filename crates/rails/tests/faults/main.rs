//! What breaks ends in an event with an error, and a reason that names the peer; who survives goes on with the others.

mod composition;
mod death;
mod direct;
mod encrypted;
mod floods;
mod lanes;
mod limits;
mod listening;
mod middlebox;
mod network;
#[path = "../support/mod.rs"]
mod support;
mod values;
