//! Sockets, for the rails whose connections begin with one: `unix` within a host, with descriptors beside the bytes; `ip` between
//! hosts; `listen` where the latter are heard.

pub(crate) mod ip;
pub(crate) mod listen;
pub mod unix;
