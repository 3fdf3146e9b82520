//! The provider as applications meet it: a real libfabric loads the library, and everything goes through its objects' tables.
//!
//! Skipped, and says so, where no libfabric is installed (Debian: libfabric1). `POLYRAIL_FABRIC_LIBRARY` names another one.

mod delivery;
mod errors;
mod fork;
mod getinfo;
mod host;
mod memory;
mod messages;
mod node;
mod special;
mod told;
mod waiting;
