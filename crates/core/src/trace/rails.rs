//! What Polyrail's own rails tell a recorder of the process that they run in: a table of functions, found by its name.
//!
//! The recorder sees calls, and shared memory takes none. A rail that moves bytes so tells it of each link, once, and of each frame; and the
//! events of `docs/events.md` go to it as they go to a log. Sockets of lanes are seen by the recorder itself.

use core::ffi::CStr;

/// The table's name, among the symbols of the recorder's library.
pub const SYMBOL: &CStr = c"polyrail_recorder";

/// The version of [`Recorder`]; who knows another one tells nothing.
pub const VERSION: u32 = 1;

/// The table. All functions may be called by any thread at any time, and cost little where nothing is recorded.
#[repr(C)]
pub struct Recorder {
    /// [`VERSION`].
    pub version: u32,
    /// Ticks of the trace clock.
    pub now: extern "C" fn() -> u64,
    /// There is a link: its name for this end, and its name for the peer's. Its number for [`Recorder::moved`]; 0: it is not recorded.
    pub link: extern "C" fn(near: u64, far: u64) -> u32,
    /// Bytes moved over a link of that number: by which of the calls of shared memory ([`Call::SHARED`](super::Call::SHARED)), since when, how many.
    pub moved: extern "C" fn(call: u8, link: u32, start: u64, bytes: u64),
    /// An event, a line of JSON.
    ///
    /// # Safety
    /// `line` is readable for `length` bytes.
    pub event: unsafe extern "C" fn(line: *const u8, length: usize),
}

/// What a link between two endpoints is called at the end of the first: the other end's name is that of the two swapped.
pub const fn link_name(near: [u8; 8], far: [u8; 8]) -> u64 {
    u64::from_le_bytes(near) ^ u64::from_le_bytes(far).rotate_left(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_ends_of_a_link_have_two_names() {
        let (a, b) = ([1, 2, 3, 4, 5, 6, 7, 8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_ne!(link_name(a, b), link_name(b, a));
    }
}
