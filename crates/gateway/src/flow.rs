//! The two directions of a stream, as each end of the trunk sees them: how much may be sent, what has come, in order. No I/O.

use std::collections::{BTreeMap, VecDeque};

/// Bytes that may be under way of a stream at first: what a round trip of 20 ms carries at 1.6 Gb/s. Room ends at odd places, where what programs
/// write seldom ends by itself.
pub const ROOM: u64 = (4 << 20) - 1;
/// Most that may be under way of one.
pub const ROOM_MAX: u64 = 64 << 20;
/// What all streams of a session may have beyond what each has at first, before none gets more: readers that stop leave the gateway with all of it.
const WIDE_MAX: u64 = 512 << 20;
/// Ends of room that are kept in mind.
const ENDS: usize = 16;
/// Of a stream that begins while the gateway holds much already.
pub const ROOM_SCARCE: u64 = (64 << 10) - 1;

/// What the other gateway said of a stream that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub &'static str);

/// What all streams of a session may have under way beyond [`ROOM`].
#[derive(Debug, Default)]
pub struct Wide(u64);

impl Wide {
    /// What one with such a window may have at most, which may have `most` by itself.
    pub fn most(&self, window: u64, most: u64) -> u64 {
        if self.0 < WIDE_MAX { most } else { most.min(window.max(ROOM)) }
    }

    /// A stream's window was so large, and is now.
    pub fn changed(&mut self, was: u64, is: u64) {
        self.0 = (self.0 + is.saturating_sub(ROOM)).saturating_sub(was.saturating_sub(ROOM));
    }
}

/// What is sent to the other gateway.
#[derive(Debug)]
pub struct Outgoing {
    sent: u64,
    upto: u64,
    ended: bool,
}

impl Outgoing {
    /// Nothing yet, and so much may be.
    pub fn new(room: u64) -> Self {
        Self { sent: 0, upto: room, ended: false }
    }

    /// How much more may be sent now, in bytes.
    pub fn room(&self) -> u64 {
        if self.ended { 0 } else { self.upto - self.sent }
    }

    /// So much is sent, of what there is room for; where it begins.
    pub fn send(&mut self, len: usize) -> u64 {
        let offset = self.sent;
        self.sent = (self.sent + len as u64).min(self.upto);
        offset
    }

    /// The other gateway takes more. Messages overtake each other: one that says less than what is known comes late.
    pub fn raise(&mut self, upto: u64) {
        self.upto = self.upto.max(upto);
    }

    /// That was all; how much.
    pub fn end(&mut self) -> u64 {
        self.ended = true;
        self.sent
    }

    /// Whether that was all.
    pub fn is_over(&self) -> bool {
        self.ended
    }

    /// Bytes sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }
}

/// Bytes that came.
pub trait Piece {
    /// How many.
    fn len(&self) -> usize;

    /// Takes in what follows, or gives it back: many small pieces cost more than their bytes.
    fn join(&mut self, next: Self) -> Option<Self>
    where
        Self: Sized,
    {
        Some(next)
    }

    /// Whether there are none: never of a stream's.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What comes from the other gateway.
#[derive(Debug)]
pub struct Incoming<P> {
    /// In order so far.
    arrived: u64,
    /// Given on to the program.
    taken: u64,
    upto: u64,
    window: u64,
    /// Where room ended, since there is so much, that was not filled yet.
    ends: VecDeque<u64>,
    /// A piece ended there: the other side had more, and no room for it.
    cut: bool,
    /// What came before what stands before it.
    early: BTreeMap<u64, P>,
    early_bytes: u64,
    ready: VecDeque<P>,
    total: Option<u64>,
}

impl<P: Piece> Incoming<P> {
    /// Nothing yet, and so much is taken.
    pub fn new(room: u64) -> Self {
        Self {
            arrived: 0,
            taken: 0,
            upto: room,
            window: room,
            ends: [room].into(),
            cut: false,
            early: BTreeMap::new(),
            early_bytes: 0,
            ready: VecDeque::new(),
            total: None,
        }
    }

    /// A piece came, that begins there.
    ///
    /// # Errors
    /// It has been there, is more than may be sent, or lies beyond the end.
    pub fn arrive(&mut self, offset: u64, piece: P) -> Result<(), Broken> {
        let end = offset.checked_add(piece.len() as u64).ok_or(Broken("bytes beyond all numbers"))?;
        if piece.is_empty() {
            return Err(Broken("a piece of no bytes"));
        }
        if end > self.upto {
            return Err(Broken("more bytes of a stream than there is room for"));
        }
        if self.total.is_some_and(|total| end > total) {
            return Err(Broken("bytes of a stream beyond its end"));
        }
        let before = self.early.range(..=offset).next_back();
        let overlaps = offset < self.arrived
            || before.is_some_and(|(at, piece)| at + piece.len() as u64 > offset)
            || self.early.range(offset..).next().is_some_and(|(at, _)| *at < end);
        if overlaps {
            return Err(Broken("bytes of a stream that have come already"));
        }
        self.cut |= self.ends.contains(&end);
        if offset > self.arrived {
            self.early_bytes += piece.len() as u64;
            self.early.insert(offset, piece);
            return Ok(());
        }
        self.arrived = end;
        self.put(piece);
        while let Some(piece) = self.early.remove(&self.arrived) {
            self.early_bytes -= piece.len() as u64;
            self.arrived += piece.len() as u64;
            self.put(piece);
        }
        Ok(())
    }

    fn put(&mut self, piece: P) {
        let left = match self.ready.back_mut() {
            Some(last) => last.join(piece),
            None => Some(piece),
        };
        self.ready.extend(left);
    }

    /// So much is all of it.
    ///
    /// # Errors
    /// More has come, or another end was told.
    pub fn finish(&mut self, total: u64) -> Result<(), Broken> {
        let most = self.early.last_key_value().map_or(self.arrived, |(at, piece)| at + piece.len() as u64);
        if total < most || self.total.is_some_and(|known| known != total) {
            return Err(Broken("an end of a stream before what has come"));
        }
        self.total = Some(total);
        Ok(())
    }

    /// What is to be given to the program, in order.
    pub fn ready(&mut self) -> &mut VecDeque<P> {
        &mut self.ready
    }

    /// How many bytes may be sent of it, altogether, as the other gateway was told.
    pub fn upto(&self) -> u64 {
        self.upto
    }

    /// So many bytes of it were. What the other gateway is to be told of new room, if anything: as much as there may be altogether. `most` is how much
    /// may be under way from now on.
    pub fn take(&mut self, len: usize, most: u64) -> Option<u64> {
        self.taken += len as u64;
        let held = self.arrived - self.taken + self.early_bytes;
        self.window = self.window.min(most);
        let upto = self.taken + self.window;
        // of a window that has become less nothing is taken back
        if upto < self.upto + (self.window / 4).max(1) {
            return None;
        }
        // who takes all of it soon, while the other side had used up most, or stood still for want of it, has a longer way than this room is good for
        let scarce = std::mem::take(&mut self.cut) || self.upto - self.arrived < self.window / 2;
        if held < self.window / 4 && scarce && self.window < most {
            self.window = (self.window * 2).min(most);
            // whether the other side stands still with so much, its ends will tell
            self.ends.clear();
        }
        let upto = self.taken + self.window;
        self.upto = if self.window >= ROOM_SCARCE { (upto - 1) | 1 } else { upto };
        self.ends.retain(|end| *end > self.arrived);
        self.ends.truncate(ENDS - 1);
        self.ends.push_back(self.upto);
        Some(self.upto)
    }

    /// How many bytes may be under way.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Whether all has come and was given on.
    pub fn is_over(&self) -> bool {
        self.total == Some(self.taken)
    }

    /// Bytes that have come and were not given on, in order or not.
    pub fn held(&self) -> u64 {
        self.arrived - self.taken + self.early_bytes
    }

    /// Bytes given on so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Piece for Vec<u8> {
        fn len(&self) -> usize {
            Vec::len(self)
        }

        fn join(&mut self, next: Self) -> Option<Self> {
            if next.len() > 100 {
                return Some(next);
            }
            self.extend(next);
            None
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut incoming = Incoming::new(100);
        assert_eq!(
            incoming.arrive(50, vec![0; 51]),
            Err(Broken("more bytes of a stream than there is room for"))
        );
        incoming.arrive(10, vec![0; 10]).unwrap();
        for (offset, len) in [(10, 10), (15, 2), (5, 6), (19, 5), (0, 20)] {
            assert_eq!(
                incoming.arrive(offset, vec![0; len]),
                Err(Broken("bytes of a stream that have come already")),
                "{offset} {len}"
            );
        }
        assert!(incoming.arrive(30, vec![]).is_err() && incoming.arrive(u64::MAX, vec![0; 2]).is_err());
        assert!(incoming.finish(19).is_err());
        incoming.finish(20).unwrap();
        incoming.finish(20).unwrap();
        assert!(incoming.finish(21).is_err() && incoming.arrive(20, vec![0]).is_err());
        incoming.arrive(0, vec![0; 10]).unwrap();
        assert!(!incoming.is_over());
        incoming.take(20, ROOM_MAX);
        assert!(incoming.is_over());
    }

    /// A way on which something is lost now and then, and all behind it waits: what comes comes in bursts, each of up to all that there was
    /// room for. Bytes that get through in so many turns, and the window that there is then.
    fn carried(turns: usize, burst: usize, program: usize) -> (u64, u64) {
        const EACH: usize = 65_416;
        let (mut out, mut incoming) = (Outgoing::new(ROOM), Incoming::new(ROOM));
        let (mut on_its_way, mut rooms) = (VecDeque::new(), VecDeque::new());
        for turn in 0..turns {
            // a burst's worth a turn, if there is room
            let mut left = burst;
            while out.room() > 0 && left > 0 {
                let len = EACH.min(out.room() as usize).min(left);
                on_its_way.push_back((out.send(len), vec![0; len]));
                left -= len;
            }
            // every third turn brings what came since
            if turn % 3 == 2 {
                while let Some((offset, piece)) = on_its_way.pop_front() {
                    incoming.arrive(offset, piece).unwrap();
                    let mut takes = program;
                    while incoming.ready().front().is_some_and(|piece| piece.len() <= takes) {
                        let len = incoming.ready().pop_front().map_or(0, |piece| piece.len());
                        takes -= len;
                        rooms.extend(incoming.take(len, ROOM_MAX));
                    }
                }
            }
            rooms.drain(..).for_each(|upto| out.raise(upto));
        }
        (incoming.taken(), incoming.window)
    }

    #[test]
    fn room_grows_where_what_was_lost_is_waited_for_and_not_for_who_is_slow() {
        let (got, window) = carried(300, 2 << 20, usize::MAX);
        assert!(got > 290 * (2 << 20), "{got}");
        assert!((6 << 20..=16 << 20).contains(&window), "{window}");
        let (got, window) = carried(300, 1 << 20, usize::MAX);
        assert!(got > 290 * (1 << 20) && window == ROOM, "there is room enough: {got}, {window}");
        assert_eq!(carried(300, 2 << 20, 1000).1, ROOM, "a program that takes little");
    }

    #[test]
    fn all_streams_together_get_so_much_and_who_has_it_keeps_it() {
        let mut wide = Wide::default();
        for streams in 0..8 {
            assert_eq!(wide.most(ROOM, ROOM_MAX), ROOM_MAX, "{streams}");
            wide.changed(ROOM, ROOM_MAX);
            wide.changed(0, ROOM_SCARCE);
        }
        wide.changed(ROOM, 2 * ROOM + ROOM_MAX);
        assert_eq!(
            [ROOM_SCARCE, ROOM, ROOM_MAX].map(|window| wide.most(window, ROOM_MAX)),
            [ROOM, ROOM, ROOM_MAX]
        );
        assert_eq!(wide.most(ROOM_MAX, ROOM_SCARCE), ROOM_SCARCE, "other bounds stay");
        wide.changed(ROOM_MAX, 0);
        assert_eq!(wide.most(ROOM, ROOM_MAX), ROOM_MAX, "one has ended");
    }

    proptest! {
        /// Two ends, messages of which overtake each other: all bytes come in order, never more than there is room for.
        #[test]
        fn streams_are_whole_whatever_overtakes(seed in any::<u64>(), room in 1u64..5000, total in 0usize..60_000) {
            let mut x = seed | 1;
            let mut random = move |below: usize| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                (x % below.max(1) as u64) as usize
            };
            let (mut out, mut incoming) = (Outgoing::new(room), Incoming::new(room));
            let (mut data, mut rooms, mut got, mut end) = (Vec::new(), Vec::new(), 0_usize, None);
            let mut steps = 0;
            while !incoming.is_over() {
                steps += 1;
                prop_assert!(steps < 2_000_000, "it does not end");
                match random(4) {
                    0 if !out.is_over() && out.sent() as usize == total => end = Some(out.end()),
                    0 if out.room() > 0 && !out.is_over() => {
                        let len = (1 + random(700)).min(out.room() as usize).min(total - out.sent() as usize);
                        let offset = out.send(len);
                        data.push((offset, (offset..offset + len as u64).map(|at| at as u8).collect::<Vec<_>>()));
                    }
                    1 if !data.is_empty() => {
                        let (offset, piece) = data.swap_remove(random(data.len()));
                        incoming.arrive(offset, piece).unwrap();
                    }
                    1 => if let Some(total) = end { incoming.finish(total).unwrap() },
                    2 => if let Some(piece) = incoming.ready().pop_front() {
                        for byte in &piece {
                            prop_assert_eq!(*byte, got as u8);
                            got += 1;
                        }
                        let most = [room, 1 + room / 7, ROOM_MAX][random(3)];
                        rooms.extend(incoming.take(piece.len(), most));
                    },
                    _ if !rooms.is_empty() => out.raise(rooms.swap_remove(random(rooms.len()))),
                    _ => {}
                }
                prop_assert!(incoming.held() <= incoming.upto() - incoming.taken());
                prop_assert!(incoming.upto() - incoming.taken() <= ROOM_MAX.max(room));
            }
            prop_assert_eq!(got, total);
        }
    }
}
