//! The TCP rail over real sockets on the loopback device.

mod ends;
mod limits;
mod mock;
mod raw;
mod sealed;
mod stream;
