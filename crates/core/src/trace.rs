//! What the recorder of `polyrail trace` (`crates/preload`) writes and its reader (`crates/trace`) understands: records of
//! 32 bytes in a ring of shared memory per thread. `docs/trace-format.md` has the same in words; golden bytes pin it.
//!
//! | module | holds |
//! |---|---|
//! | [`call`](Call) | the functions that are recorded, by number |
//! | [`record`](Record) | a call, a run of equal calls, an MPI call; and notes, which take several records' room |
//! | [`ring`] | where things stand in a ring's first page |
//! | [`note`] | what is told once: a socket, an address, a process |
//! | [`rails`] | what Polyrail's own rails tell a recorder |

mod call;
pub mod note;
pub mod rails;
mod record;
pub mod ring;

pub use call::{Call, Class};
pub use record::{MpiFields, RECORD, Record, SocketFields, Span, flags};
