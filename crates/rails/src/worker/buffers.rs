//! The users' memory: which operation owns which bytes. The engine knows operations by name; this is where the name becomes
//! an address.

use crate::rail::set::RailLink;
use crate::rail::{Memory, Payload, Place, RawIov, Span};
use polyrail_core::frame::OpId;
use std::collections::HashMap;

/// What the user gave along with an operation; it comes back untouched in the event that ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct User {
    /// The caller's context.
    pub context: u64,
    /// The caller's flags.
    pub flags: u64,
}

/// Memory in pieces.
#[derive(Debug)]
pub(crate) enum IoVec {
    One(RawIov),
    Many(Box<[RawIov]>),
}

impl IoVec {
    pub const EMPTY: Self = Self::One(RawIov { base: std::ptr::null_mut(), len: 0 });

    #[inline]
    pub fn new(iov: &[RawIov]) -> Self {
        match iov {
            [] => Self::EMPTY,
            [one] => Self::One(*one),
            many => Self::Many(many.into()),
        }
    }

    #[inline]
    pub fn pieces(&self) -> &[RawIov] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    /// The pieces of `offset .. offset + len`; false when that is not all inside.
    #[inline]
    fn slice(&self, offset: u64, len: usize, out: &mut Vec<RawIov>) -> bool {
        let before = out.len();
        let (Ok(mut skip), mut left) = (usize::try_from(offset), len) else { return false };
        for piece in self.pieces() {
            if left == 0 {
                break;
            }
            if skip >= piece.len {
                skip -= piece.len;
                continue;
            }
            let take = (piece.len - skip).min(left);
            out.push(RawIov { base: piece.base.wrapping_add(skip), len: take });
            (skip, left) = (0, left - take);
        }
        if left > 0 {
            out.truncate(before);
        }
        left == 0
    }
}

/// One operation's memory.
#[derive(Debug)]
pub(crate) struct Buf {
    pub iov: IoVec,
    pub user: User,
    /// Bytes copied from the user at once; `iov` points into them.
    pub owned: Option<Box<[u8]>>,
}

/// Memory by operation.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<(u32, Option<Buf>)>,
}

impl Table {
    #[inline]
    pub fn put(&mut self, op: OpId, buf: Buf) {
        match self.slots.get_mut(op.slot as usize) {
            Some(slot) => *slot = (op.generation, Some(buf)),
            None => self.grow(op, buf),
        }
    }

    #[cold]
    fn grow(&mut self, op: OpId, buf: Buf) {
        self.slots.resize_with(op.slot as usize + 1, || (0, None));
        self.put(op, buf);
    }

    #[inline]
    pub fn get(&self, op: OpId) -> Option<&Buf> {
        match self.slots.get(op.slot as usize) {
            Some((generation, Some(buf))) if *generation == op.generation => Some(buf),
            _ => None,
        }
    }

    /// Copies the first `len` bytes of a payload, which a receive ends with, to its memory; what the user gave along. None when
    /// its memory is in pieces.
    #[inline]
    pub fn finish(&mut self, op: OpId, payload: Payload, len: usize) -> Option<User> {
        let (generation, slot) = self.slots.get_mut(op.slot as usize)?;
        let Some(Buf { iov: IoVec::One(one), user, owned: None }) = slot else { return None };
        if *generation != op.generation || len > one.len {
            return None;
        }
        // SAFETY: inside the user's buffer, which is valid until the receive ends; a payload never lies in it.
        unsafe { payload.copy_to(0, one.base, len) };
        let user = *user;
        *slot = None;
        Some(user)
    }

    #[inline]
    pub fn take(&mut self, op: OpId) -> Option<Buf> {
        match self.slots.get_mut(op.slot as usize) {
            Some((generation, buf)) if *generation == op.generation => buf.take(),
            _ => None,
        }
    }
}

/// A registered region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionMemory {
    pub memory: RawIov,
    pub base: u64,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub sends: Table,
    pub recvs: Table,
    pub rmas: Table,
    pub stashes: HashMap<OpId, Vec<u8>>,
    pub regions: HashMap<u64, RegionMemory>,
    /// Frames that a rail delivers in pieces and that are looked at whole, by rail and link.
    pub scratch: HashMap<OpId, Vec<u8>>,
}

// SAFETY: the raw addresses are the users', who promised (in the unsafe calls that brought them here) that they stay valid
// until the operation ends, on whichever thread it makes progress.
unsafe impl Send for Buffers {}

/// The name of a link's scratch space. Slots of real stashes never come near (2^31 of them).
pub(crate) fn scratch_place((rail, link): RailLink) -> OpId {
    OpId { slot: u32::MAX - link.0, generation: rail as u32 }
}

impl Memory for Buffers {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        let table = match span.place {
            Place::Send(op) => self.sends.get(op),
            Place::Recv(op) => self.recvs.get(op),
            Place::Rma(op) => self.rmas.get(op),
            Place::Region(key) => {
                let Some(region) = self.regions.get(&key) else { return false };
                let Some(offset) = span.offset.checked_sub(region.base) else { return false };
                return IoVec::One(region.memory).slice(offset, span.len, out);
            }
            Place::Stash(op) => {
                let Some(bytes) = self.stashes.get(&op).or_else(|| self.scratch.get(&op)) else {
                    return false;
                };
                // the bytes are only written through this address while the worker is borrowed mutably by the rail's caller
                let memory = RawIov { base: bytes.as_ptr().cast_mut(), len: bytes.len() };
                return IoVec::One(memory).slice(span.offset, span.len, out);
            }
            Place::Discard => None,
        };
        table.is_some_and(|buf| buf.iov.slice(span.offset, span.len, out))
    }
}

impl Buffers {
    /// Copies the first `span.len` bytes of a payload to their place.
    #[inline]
    pub fn fill(&mut self, span: Span, payload: Payload) {
        if let Place::Stash(op) = span.place {
            // a new stash: it gets exactly what came
            self.stashes.insert(op, payload.to_vec());
            return;
        }
        if let Place::Recv(op) = span.place
            && let Some(Buf { iov: IoVec::One(one), .. }) = self.recvs.get(op)
            && span.offset as usize + span.len <= one.len
        {
            // SAFETY: inside the user's buffer, which is valid until the receive ends; a payload never lies in it.
            unsafe { payload.copy_to(0, one.base.add(span.offset as usize), span.len) };
            return;
        }
        let mut pieces = Vec::new();
        if !self.resolve(span, &mut pieces) {
            return;
        }
        let mut at = 0;
        for piece in pieces {
            // SAFETY: as above.
            at += unsafe { payload.copy_to(at, piece.base, piece.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lens(iov: &IoVec, offset: u64, len: usize) -> Option<Vec<(usize, usize)>> {
        let mut out = Vec::new();
        iov.slice(offset, len, &mut out).then(|| out.iter().map(|p| (p.base as usize, p.len)).collect())
    }

    #[test]
    fn slices_cross_pieces_and_stay_inside() {
        let piece = |at: usize, len| RawIov { base: at as *mut u8, len };
        let iov = IoVec::new(&[piece(100, 10), piece(200, 0), piece(300, 5)]);
        assert_eq!(lens(&iov, 0, 15), Some(vec![(100, 10), (300, 5)]));
        assert_eq!(lens(&iov, 9, 2), Some(vec![(109, 1), (300, 1)]));
        assert_eq!(lens(&iov, 10, 5), Some(vec![(300, 5)]));
        assert_eq!(lens(&iov, 15, 0), Some(vec![]));
        assert_eq!(lens(&iov, 10, 6), None);
        assert_eq!(lens(&iov, u64::MAX, 1), None);
    }
}
