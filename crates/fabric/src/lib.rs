//! The libfabric provider.

pub mod ffi;
