//! What other ranks ask of rank 0's server thread; what it answers is in `calls`.

use polyrail_omp::area::Kind;

use crate::{agent, sys};

/// What rank 0's server thread is asked for: an atomic operation.
pub const ATOMIC: u32 = 1;
/// A system call.
pub const CALL: u32 = 2;
/// What came of serial code's system calls.
pub const RECORDS: u32 = 3;
/// Closing a stream.
pub const CLOSE: u32 = 4;
/// A piece of a stack, when it is folded.
pub const BACK: u32 = 5;
/// Having a function called when the program ends.
pub const EXIT: u32 = 6;
/// A random number.
pub const RANDOM: u32 = 7;
/// What was read of standard input, and what of it comes back.
pub const LEND: u32 = 8;
pub const RETURN: u32 = 9;
/// That what a stream has could not be written.
pub const FAILED: u32 = 10;
/// Whether a rank is about to tell of stores that belong to what it publishes.
pub const TELLS: u32 = 11;
/// Whether a mutex is the team's, and no thread's of the program's own.
pub const MUTEX: u32 = 12;
/// Its answer if that cannot be done now, as the thread waits for nobody: others may be what it would wait for. To be asked again.
pub const NOT_YET: &[u8] = &[0];

/// Before that, the more tries there were the longer; at most so many microseconds.
pub fn pause(tries: u32, most: u32) {
    sys::pause(tries.saturating_mul(10).min(most));
}

/// Has rank 0's server thread answer a question of that kind.
pub fn rank_0(kind: u32, question: &[u8]) -> &'static [u8] {
    agent::ask(Kind::Serve, [0; 6], &[&u64::from(kind).to_ne_bytes(), question]).data
}
