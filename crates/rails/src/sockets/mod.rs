//! Sockets, for the rails whose connections begin with one: `unix` within a host, with descriptors beside the bytes; `ip` between
//! hosts; `listen` where the latter are heard, `shared` where several endpoints hear them at one port.

pub(crate) mod ip;
pub(crate) mod listen;
mod shared;
pub mod unix;
