//! What recording needs from below the safe interface, with the unsafe code of it: `polyrail-trace` has none of its own.
//!
//! | module | does |
//! |---|---|
//! | `ptrace` | requests to the kernel about threads that are followed, and what those stop for |
//! | `counter` | the processor's counter, which is the recorder's clock |
//!
//! Nothing here decides anything, and nothing here waits but [`ptrace::wait_on`] and kin, which say so.

pub mod counter;
pub mod ptrace;
