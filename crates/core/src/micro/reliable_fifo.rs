//! ReliableFIFO: the user has the stream's bytes in their order.

use super::{MicroProtocol, Shared, User};
use crate::ranges::Ranges;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What follows each other is kept in one piece up to about so many bytes.
const PIECE: usize = 16 << 10;
/// Pieces have so many bytes at least, on average over the whole window: who leaves more gaps does so on purpose.
const LEAST: u64 = 256;

/// Keeps what comes before its turn.
#[derive(Debug, Default)]
pub struct ReliableFIFO {
    /// By positions; none overlap.
    held: BTreeMap<u64, Vec<u8>>,
    there: Ranges,
}

impl ReliableFIFO {
    fn hold(&mut self, shared: &mut Shared, pos: u64, bytes: &[u8]) {
        let end = pos + bytes.len() as u64;
        let mut missing = core::mem::take(&mut self.there);
        for gap in missing.gaps(pos..end) {
            let piece = &bytes[(gap.start - pos) as usize..(gap.end - pos) as usize];
            shared.held += piece.len();
            match self.held.range_mut(..gap.start).next_back() {
                // it goes on where another ends
                Some((at, before)) if *at + before.len() as u64 == gap.start && before.len() < PIECE => {
                    before.extend_from_slice(piece);
                }
                _ => {
                    self.held.insert(gap.start, piece.to_vec());
                }
            }
        }
        missing.add(pos..end);
        self.there = missing;
    }

    /// Gives on what has its turn now.
    fn release<U: User>(&mut self, shared: &mut Shared, user: &mut U) {
        while let Some(entry) = self.held.first_entry().filter(|entry| *entry.key() <= shared.delivered) {
            let (pos, bytes) = entry.remove_entry();
            shared.held -= bytes.len();
            if let Some(fresh) =
                bytes.get((shared.delivered - pos) as usize..).filter(|fresh| !fresh.is_empty())
            {
                shared.delivered += fresh.len() as u64;
                user.deliver(fresh);
            }
        }
        self.there.forget_below(shared.delivered);
    }
}

impl MicroProtocol for ReliableFIFO {
    const NAME: &'static str = "ReliableFIFO";

    fn resume<U: User>(&mut self, shared: &mut Shared, user: &mut U) {
        self.release(shared, user);
    }

    fn to_user<U: User>(&mut self, shared: &mut Shared, pos: u64, bytes: &[u8], user: &mut U) -> bool {
        let end = pos + bytes.len() as u64;
        if end <= shared.delivered {
            return true;
        }
        if pos > shared.delivered || shared.waits {
            // the channel before may be as far behind as it was let
            let fits = match shared.waits {
                true => shared.held as u64 + bytes.len() as u64 <= 2 * shared.holds,
                false => end - shared.delivered <= shared.holds,
            };
            match fits && (self.held.len() as u64) < shared.holds / LEAST {
                true => self.hold(shared, pos, bytes),
                false => shared.broken = Some("it sent more than there is room for"),
            }
            return true;
        }
        user.deliver(&bytes[(shared.delivered - pos) as usize..]);
        shared.delivered = end;
        if !self.held.is_empty() {
            self.release(shared, user);
        }
        true
    }
}
