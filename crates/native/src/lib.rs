//! What recording and wrapping need from below the safe interface, with the unsafe code of it: `polyrail-trace` and `polyrail-cli` have none of
//! their own.
//!
//! | module | does |
//! |---|---|
//! | `ptrace` | requests to the kernel about threads that are followed, and what those stop for |
//! | `seccomp` | system calls of a program that its supervisor answers |
//! | `counter` | the processor's counter, which is the recorder's clock |
//!
//! Nothing here decides anything, and nothing here waits but [`ptrace::wait_on`] and kin, which say so.

pub mod counter;
pub mod ptrace;
pub mod seccomp;
