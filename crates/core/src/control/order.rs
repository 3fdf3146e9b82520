//! What of arriving data is new, across compositions: where one direction's data stands. It outlives epochs, and the link itself:
//! what was delivered once is not delivered again by a new epoch, by a rescue or by a link that was made anew.

use alloc::collections::BTreeMap;

/// What to do with a piece of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// Deliver it without its first `skip` bytes, which were delivered before.
    New {
        /// So many bytes.
        skip: u64,
    },
    /// Something before it is missing: keep it.
    Early,
    /// All of it was delivered before.
    Doubled,
}

/// One direction of a synchronous channel: bytes in order, each exactly once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stream {
    next: u64,
}

impl Stream {
    /// The position behind the last byte that was delivered.
    pub const fn next(self) -> u64 {
        self.next
    }

    /// A piece of `len` bytes from position `at` on. What is [`Piece::New`] counts as delivered.
    pub fn offer(&mut self, at: u64, len: u64) -> Piece {
        let end = at.saturating_add(len);
        if end <= self.next {
            return Piece::Doubled;
        }
        if at > self.next {
            return Piece::Early;
        }
        let skip = self.next - at;
        self.next = end;
        Piece::New { skip }
    }
}

/// One direction of an asynchronous channel: of each tag the newest value, none twice, and none behind a newer one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latest {
    seen: BTreeMap<u32, u64>,
}

impl Latest {
    /// So many tags have a value at most; values of others are refused.
    pub const MAX_TAGS: usize = 1 << 16;

    /// Whether the value of `iteration` is newer than all that came for `tag`; then it counts as delivered.
    pub fn offer(&mut self, tag: u32, iteration: u64) -> bool {
        if let Some(seen) = self.seen.get_mut(&tag) {
            let newer = iteration > *seen;
            *seen = iteration.max(*seen);
            return newer;
        }
        let room = self.seen.len() < Self::MAX_TAGS;
        if room {
            self.seen.insert(tag, iteration);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_takes_each_byte_once() {
        let mut stream = Stream::default();
        assert_eq!(stream.offer(4, 4), Piece::Early);
        assert_eq!(stream.offer(0, 4), Piece::New { skip: 0 });
        assert_eq!(stream.offer(0, 4), Piece::Doubled);
        assert_eq!(stream.offer(2, 4), Piece::New { skip: 2 });
        assert_eq!(stream.offer(6, 0), Piece::Doubled);
        assert_eq!(stream.offer(u64::MAX, u64::MAX), Piece::Early);
        assert_eq!(stream.next(), 6);
    }

    #[test]
    fn a_latest_value_never_goes_back() {
        let mut latest = Latest::default();
        let taken = [(7, 3), (7, 3), (7, 2), (8, 0), (8, 0), (7, 9)].map(|(tag, it)| latest.offer(tag, it));
        assert_eq!(taken, [true, false, false, true, false, true]);
    }
}
