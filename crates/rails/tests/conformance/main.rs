//! What every rail has to do, through a worker: each test runs over each rail that there is, and again with faults pretended by
//! [`polyrail_rails::rail::fault`], by several seeds. A rail that is registered is under test.

mod direct;
mod ends;
mod messages;
mod one_sided;
mod over;
mod pair;
mod session;
#[path = "../support/mod.rs"]
mod support;
mod values;
