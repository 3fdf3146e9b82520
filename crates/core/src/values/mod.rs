//! Values: of each tag the latest counts, and what is older is of no use.
//!
//! Asynchronous iterations want usable data, the newest first, and bear that some is lost (Bertsekas and Tsitsiklis, 1989; P2PSAP). Here
//! is what both ends keep of it, whatever carries it between them: frames ([`crate::proto`]) or datagrams ([`crate::micro`]).
//!
//! | file | holds |
//! |---|---|
//! | `words.rs` | what is said of values to who gives and takes them |
//! | `register.rs` | the sending side of a tag: the value that is being sent, and the newest behind it |
//! | `latest.rs` | the receiving side of a tag: the newest whole value, and what has come of newer ones |
//! | `repair.rs` | what makes up for parts of a value that do not come |
//! | `inbox.rs` | that of all tags of a peer |
//!
//! Invariants: what is taken in never goes back; whatever comes, memory is bounded by [`TAGS`] and [`BYTES`].

mod inbox;
mod latest;
mod register;
pub mod repair;
mod words;

pub use inbox::Inbox;
pub use latest::Took;
pub use register::{Register, may_put};
pub use words::{PutError, Scheme, Taken};

use alloc::vec::Vec;

/// Nanoseconds of any clock that does not jump.
pub type Time = u64;

/// Most tags of each direction.
pub const TAGS: usize = 1 << 16;
/// Most bytes that the buffers of each direction have.
pub const BYTES: usize = 256 << 20;

/// Copies these bytes to a buffer, which is used again where it is neither too short nor much too long.
fn refill(buffer: &mut Vec<u8>, bytes: &[u8]) {
    if buffer.capacity() < bytes.len() || buffer.capacity() > 4 * bytes.len() + 4096 {
        *buffer = Vec::with_capacity(bytes.len());
    }
    buffer.clear();
    buffer.extend_from_slice(bytes);
}
