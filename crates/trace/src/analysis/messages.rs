//! What a message of a byte stream is.
//!
//! TCP has no messages; the programs on it do. Sends of one thread on one socket are one message when less than
//! [`Settings::message_gap`](super::Settings::message_gap) passes from the end of one to the start of the next and nothing
//! was received on that socket in between: a header and its payload, or one buffer in several pieces. A send that took fewer
//! bytes than it was given, or none because there was no room, is continued by the next one whatever comes between. Where that would make a
//! message of more than [`PIECES`] sends, it is a stream of them: each send is a message, as the program chose it. Of datagram sockets each
//! send is one anyway.

use super::histogram::Histogram;

/// Bytes that cost the network as much as the fixed cost of a message: what 1 Gb/s carries in 100 us (Hockney's n-half).
pub const HALF: u64 = 12_500;
/// Sizes in bytes that separate small, medium and large messages.
pub const SIZE_BOUNDS: [u64; 2] = [1_000, 200_000];
/// Gaps in ns that separate frequent, medium and rare messages.
pub const GAP_BOUNDS: [u64; 2] = [100_000_000, 1_000_000_000];

/// Sends that may be one message: a header, and what a program has in several places.
pub const PIECES: usize = 16;

/// How late the kernel acknowledges what it was not asked to acknowledge at once, in ns.
const DELAYED: std::ops::Range<u64> = 35_000_000..60_000_000;

/// Which of three classes a value is of.
pub fn third(value: u64, bounds: [u64; 2]) -> usize {
    usize::from(value >= bounds[0]) + usize::from(value > bounds[1])
}

/// How many, and how much altogether.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Messages or gaps.
    pub count: u64,
    /// Bytes or ns.
    pub total: u64,
}

impl Share {
    pub(crate) fn add(&mut self, value: u64) {
        self.count += 1;
        self.total = self.total.saturating_add(value);
    }

    pub(crate) fn merge(&mut self, other: Share) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
    }
}

/// Sizes and gaps of messages.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    /// Sizes in bytes.
    pub sizes: Histogram,
    /// Time from a message's end to the next one's start, in ns.
    pub gaps: Histogram,
    /// Messages by [`SIZE_BOUNDS`].
    pub by_size: [Share; 3],
    /// Gaps by [`GAP_BOUNDS`].
    pub by_gap: [Share; 3],
}

impl Pattern {
    /// Counts a message of some size.
    pub fn message(&mut self, bytes: u64) {
        self.sizes.add(bytes);
        self.by_size[third(bytes, SIZE_BOUNDS)].add(bytes);
    }

    /// Counts a gap between messages.
    pub fn gap(&mut self, ns: u64) {
        self.gaps.add(ns);
        self.by_gap[third(ns, GAP_BOUNDS)].add(ns);
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &Pattern) {
        self.sizes.merge(&other.sizes);
        self.gaps.merge(&other.gaps);
        for class in 0..3 {
            self.by_size[class].merge(other.by_size[class]);
            self.by_gap[class].merge(other.by_gap[class]);
        }
    }

    /// Messages by size class, each counting [`HALF`] bytes and its own.
    pub fn costs(&self) -> [f64; 3] {
        self.by_size.map(|share| share.count as f64 * HALF as f64 + share.total as f64)
    }
}

/// A send, or of an untraced sender, what a receive found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub thread: u32,
    pub start: u64,
    pub end: u64,
    pub bytes: u64,
    /// Less than was given: the next piece continues it.
    pub short: bool,
    /// A datagram.
    pub whole: bool,
    /// The program chose how much it is; a receiver takes what there is.
    pub chosen: bool,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    thread: u32,
    end: u64,
    bytes: u64,
    sends: u64,
    short: bool,
    /// What is in the message so far, piece by piece, each with what continued it.
    pieces: [u64; PIECES],
    /// How many of these are known; none of a stream.
    known: usize,
    /// One of many, each a message.
    stream: bool,
}

/// One direction of a socket.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Bytes moved.
    pub bytes: u64,
    /// Calls that moved them.
    pub sends: u64,
    /// Ended messages.
    pub messages: u64,
    /// First and last moment of them.
    pub span: Option<(u64, u64)>,
    /// Their sizes and gaps.
    pub pattern: Pattern,
    /// Messages of more than one send, each send under 1000 bytes.
    pub crumbled: u64,
    /// Those among them that were answered after as long as a delayed acknowledgement takes: the kernel held the second
    /// send back until the first one was acknowledged (Nagle), and the other side waited with that.
    pub stalls: u64,
    open: Option<Open>,
    last_end: Option<u64>,
}

impl Flow {
    /// Takes a piece. Returns how many messages begin with it: 0 within one, more than one where those before turn out to be messages of
    /// their own.
    pub(super) fn piece(&mut self, piece: Piece, message_gap: u64) -> u64 {
        let Piece { thread, start, end, bytes, short, whole, chosen } = piece;
        self.bytes = self.bytes.saturating_add(bytes);
        self.sends += 1;
        let span = self.span.get_or_insert((start, end));
        *span = (span.0.min(start), span.1.max(end));
        if let Some(open) = &mut self.open {
            let near = start.saturating_sub(open.end) < message_gap && open.thread == thread && !whole;
            if !open.short && near && chosen && (open.stream || open.known == PIECES) {
                return self.stream(piece);
            }
            if open.short || near {
                if !open.short && open.known < PIECES {
                    open.known += 1;
                    open.pieces[open.known - 1] = 0;
                }
                if let Some(last) = open.known.checked_sub(1) {
                    open.pieces[last] = open.pieces[last].saturating_add(bytes);
                }
                open.end = open.end.max(end);
                open.bytes = open.bytes.saturating_add(bytes);
                open.sends += 1;
                open.short = short;
                return 0;
            }
        }
        self.close();
        if let Some(last) = self.last_end {
            self.pattern.gap(start.saturating_sub(last));
        }
        self.begin(piece, false);
        if whole {
            self.close();
        }
        1
    }

    fn begin(&mut self, piece: Piece, stream: bool) {
        let Piece { thread, end, bytes, short, .. } = piece;
        let mut pieces = [0; PIECES];
        pieces[0] = bytes;
        self.open = Some(Open { thread, end, bytes, sends: 1, short, pieces, known: 1, stream });
    }

    /// What was a message in the making is a stream of messages, and this piece one more.
    fn stream(&mut self, piece: Piece) -> u64 {
        let Some(open) = self.open.take() else { return 0 };
        let before = if open.stream { &[open.bytes] } else { &open.pieces[..open.known] };
        before.iter().for_each(|bytes| self.pattern.message(*bytes));
        self.messages += before.len() as u64;
        self.last_end = Some(open.end);
        self.pattern.gap(piece.start.saturating_sub(open.end));
        self.begin(piece, true);
        // that of the first was told when it began
        before.len() as u64
    }

    /// A send was refused for want of room: the next one continues the message.
    pub(super) fn refused(&mut self) {
        if let Some(open) = &mut self.open {
            open.short = true;
        }
    }

    /// Something came the other way at a moment.
    pub(super) fn turn(&mut self, at: u64) {
        let Some(open) = self.open.filter(|open| !open.short) else { return };
        let late = DELAYED.contains(&at.saturating_sub(open.end));
        self.stalls += u64::from(late && open.sends > 1 && open.bytes < 1000 * open.sends);
        self.close();
    }

    /// Ends the message in the making.
    pub(super) fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.last_end = Some(open.end);
        self.messages += 1;
        self.pattern.message(open.bytes);
        self.crumbled += u64::from(open.sends > 1 && open.bytes < 1000 * open.sends);
    }

    /// Whether the next send continues a message.
    pub(super) fn unfinished(&self) -> bool {
        self.open.is_some_and(|open| open.short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, end: u64, bytes: u64) -> Piece {
        Piece { thread: 0, start, end, bytes, short: false, whole: false, chosen: true }
    }

    #[test]
    fn header_and_payload_are_one_message() {
        let mut flow = Flow::default();
        assert_eq!(flow.piece(piece(0, 10, 16), 100), 1);
        assert_eq!(flow.piece(piece(60, 80, 984), 100), 0);
        assert_eq!(flow.piece(piece(1080, 1090, 5), 100), 1);
        assert_eq!(flow.pattern.gaps.sum(), 1000);
        flow.close();
        assert_eq!((flow.messages, flow.sends, flow.bytes), (2, 3, 1005));
        assert_eq!(
            flow.pattern.by_size,
            [Share { count: 1, total: 5 }, Share { count: 1, total: 1000 }, Share::default()]
        );
        assert_eq!(flow.crumbled, 1);
    }

    #[test]
    fn many_sends_are_many_messages() {
        for (chosen, short) in [(true, false), (true, true), (false, false)] {
            let mut flow = Flow::default();
            let mut begun = 0;
            for number in 0..1000 {
                let piece = Piece { chosen, ..piece(number * 20, number * 20 + 10, 8) };
                // what did not go whole goes on with the next
                begun += flow.piece(Piece { short: short && number % 2 == 0, ..piece }, 100);
            }
            flow.close();
            let (messages, bytes) = match (chosen, short) {
                (true, false) => (1000, 8),
                (true, true) => (500, 16),
                _ => (1, 8000),
            };
            assert_eq!((flow.messages, flow.sends, begun), (messages, 1000, messages));
            assert_eq!(flow.pattern.by_size[0].total + flow.pattern.by_size[1].total, 8000);
            assert_eq!(flow.pattern.sizes.quantile(0.5), Some(bytes));
        }
    }

    #[test]
    fn an_answer_ends_a_message() {
        let mut flow = Flow::default();
        flow.piece(piece(0, 10, 16), 100);
        flow.turn(15);
        assert_eq!(flow.piece(piece(20, 30, 16), 100), 1);
        assert_eq!(flow.pattern.gaps.sum(), 10);
    }

    #[test]
    fn two_writes_and_a_delayed_acknowledgement() {
        let mut flow = Flow::default();
        for (late, stalls) in [(40_000_000, 1), (1_000_000, 1), (200_000_000, 1), (44_000_000, 2)] {
            flow.piece(piece(0, 10, 16), 100);
            flow.piece(piece(20, 30, 16), 100);
            flow.turn(30 + late);
            assert_eq!(flow.stalls, stalls);
        }
    }

    #[test]
    fn what_had_no_room_continues_after_a_wait_and_an_answer() {
        let mut flow = Flow::default();
        flow.piece(Piece { short: true, ..piece(0, 10, 70_000) }, 100);
        flow.turn(20);
        flow.refused();
        assert_eq!(flow.piece(piece(1_000_000, 1_000_010, 30_000), 100), 0);
        flow.close();
        assert_eq!(flow.pattern.sizes.quantile(0.5), Some(100_000));
    }

    #[test]
    fn threads_and_datagrams_are_apart() {
        let mut flow = Flow::default();
        flow.piece(piece(0, 10, 1), 100);
        assert_eq!(flow.piece(Piece { thread: 1, ..piece(11, 12, 1) }, 100), 1);
        assert_eq!(flow.piece(Piece { thread: 1, whole: true, ..piece(13, 14, 1) }, 100), 1);
    }

    #[test]
    fn bounds_are_those_of_the_classification() {
        assert_eq!([999, 1000, 200_000, 200_001].map(|v| third(v, SIZE_BOUNDS)), [0, 1, 1, 2]);
    }
}
