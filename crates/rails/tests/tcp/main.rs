//! The TCP rail over real sockets on the loopback device.

mod mock;
mod stream;
