//! The users' memory: which operation owns which bytes. The engine knows operations by name; this is where the name becomes
//! an address. What belongs to a receive the engine keeps with it ([`Posted`]).

use super::spare::Spare;
use crate::rail::{Memory, Payload, Place, RawIov, Span};
use crate::set::RailLink;
use crate::worker::EventKind;
use polyrail_core::frame::OpId;
use polyrail_core::proto::{self, Receiver};
use std::collections::HashMap;

/// What the user gave along with an operation; it comes back untouched in the event that ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct User {
    /// The caller's context.
    pub context: u64,
    /// The caller's flags.
    pub flags: u64,
}

/// Bytes in all pieces.
#[inline]
pub(super) fn total(iov: &[RawIov]) -> u64 {
    match iov {
        // by far the commonest, and a loop would be made for many
        [one] => one.len as u64,
        many => many.iter().map(|piece| piece.len as u64).sum(),
    }
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

    /// Bytes in all pieces.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Self::One(one) => one.len as u64,
            Self::Many(many) => total(many),
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

/// Bytes of the worker's own, at an address that may be read and written through as long as they live, wherever their owner
/// moves.
#[derive(Debug)]
pub(crate) struct Owned {
    memory: RawIov,
    /// How many there are behind that address.
    room: usize,
}

impl Owned {
    /// Where they are.
    pub fn memory(&self) -> RawIov {
        self.memory
    }

    /// So many zeros.
    pub fn zeros(len: usize) -> Self {
        vec![0; len].into()
    }

    /// The first of them only, or more than before where there is room.
    ///
    /// # Panics
    /// Where there is not.
    pub fn cut(mut self, len: usize) -> Self {
        assert!(len <= self.room, "{len} bytes of {}", self.room);
        self.memory.len = len;
        self
    }

    /// Most that it can be cut to.
    pub fn room(&self) -> usize {
        self.room
    }

    /// They all, as what has arrived.
    ///
    /// # Safety
    /// The payload is not used after `self` has ended.
    pub unsafe fn payload(&self) -> Payload {
        // SAFETY: the bytes live as long as `self`.
        unsafe { Payload::new(self.memory.base, self.memory.len) }
    }
}

impl Default for Owned {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl From<Vec<u8>> for Owned {
    fn from(bytes: Vec<u8>) -> Self {
        let room = bytes.len();
        Self { memory: RawIov { base: Box::into_raw(bytes.into_boxed_slice()).cast(), len: room }, room }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it came out of such a box, in `from`, and nothing else gives it back.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.memory.base, self.room)) });
    }
}

/// A receive's memory.
#[derive(Debug)]
pub(crate) struct Posted {
    pub iov: IoVec,
    pub user: User,
}

/// The protocol engine of a worker.
pub(crate) type Engine = proto::Engine<Posted>;

impl Receiver for Posted {
    type User = User;

    #[inline]
    fn user(&self) -> User {
        self.user
    }

    #[inline]
    fn room(&self) -> u64 {
        self.iov.len()
    }
}

// SAFETY: as for `Buffers`, below.
unsafe impl Send for Posted {}

impl Posted {
    /// All that there is to it, where it has room for so many bytes in one piece, and so owns nothing.
    #[inline(always)]
    pub fn plain(&self, len: usize) -> Option<(*mut u8, User)> {
        match &self.iov {
            IoVec::One(one) if len <= one.len => Some((one.base, self.user)),
            _ => None,
        }
    }

    /// Copies the first `len` bytes of a payload to the memory from `offset` on; nothing if that has not so much room.
    #[inline]
    pub fn fill(&self, offset: u64, len: usize, payload: Payload) {
        let offset = offset as usize;
        if let IoVec::One(one) = &self.iov {
            if offset <= one.len && len <= one.len - offset {
                // SAFETY: inside the user's buffer, which is valid until the receive ends; a payload never lies in it.
                unsafe { payload.copy_to(0, one.base.add(offset), len) };
            }
            return;
        }
        let mut pieces = Vec::new();
        if self.iov.slice(offset as u64, len, &mut pieces) {
            scatter(&pieces, payload);
        }
    }
}

/// Copies a payload to pieces of users' memory, as much as they take.
fn scatter(pieces: &[RawIov], payload: Payload) {
    let mut at = 0;
    for piece in pieces {
        // SAFETY: users' buffers, which are valid until their operations end; a payload never lies in one.
        at += unsafe { payload.copy_to(at, piece.base, piece.len) };
    }
}

/// One operation's memory.
#[derive(Debug)]
pub(crate) struct Buf {
    pub iov: IoVec,
    pub user: User,
    /// Bytes copied from the user at once; `iov` points into them.
    pub owned: Option<Owned>,
}

/// What belongs to operations that the engine has named: by slot, as its own tables.
#[derive(Debug)]
pub(crate) struct Table<T = Buf> {
    slots: Vec<(u32, Option<T>)>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<T> Table<T> {
    #[inline]
    pub fn put(&mut self, op: OpId, buf: T) {
        match self.slots.get_mut(op.slot as usize) {
            Some(slot) => {
                debug_assert!(
                    slot.1.is_none(),
                    "the end of an operation was not told before its place was given away"
                );
                *slot = (op.generation, Some(buf));
            }
            None => self.grow(op, buf),
        }
    }

    #[cold]
    fn grow(&mut self, op: OpId, buf: T) {
        self.slots.resize_with(op.slot as usize + 1, || (0, None));
        self.put(op, buf);
    }

    #[inline]
    pub fn get(&self, op: OpId) -> Option<&T> {
        match self.slots.get(op.slot as usize) {
            Some((generation, Some(buf))) if *generation == op.generation => Some(buf),
            _ => None,
        }
    }

    #[inline]
    pub fn take(&mut self, op: OpId) -> Option<T> {
        match self.slots.get_mut(op.slot as usize) {
            Some((generation, buf)) if *generation == op.generation => buf.take(),
            _ => None,
        }
    }
}

/// A registered region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionMemory {
    /// Which registration of its key this is.
    pub generation: u32,
    pub memory: RawIov,
    pub base: u64,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub sends: Table,
    /// With what ends them.
    pub rmas: Table<(Buf, EventKind)>,
    pub stashes: Table<Owned>,
    pub spare: Spare,
    pub regions: HashMap<u64, RegionMemory>,
    /// Frames that a rail delivers in pieces and that are looked at whole, by rail and link.
    pub scratch: HashMap<OpId, Owned>,
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
            Place::Rma(op) => self.rmas.get(op).map(|(buf, _)| buf),
            Place::Region(key, generation) => {
                let Some(region) = self.regions.get(&key) else { return false };
                if region.generation != generation {
                    return false;
                }
                let Some(offset) = span.offset.checked_sub(region.base) else { return false };
                return IoVec::One(region.memory).slice(offset, span.len, out);
            }
            Place::Stash(op) => {
                let Some(bytes) = self.stashes.get(op).or_else(|| self.scratch.get(&op)) else {
                    return false;
                };
                return IoVec::One(bytes.memory()).slice(span.offset, span.len, out);
            }
            // of receives and values the engine knows
            Place::Recv(_) | Place::Value(..) | Place::Discard => None,
        };
        table.is_some_and(|buf| buf.iov.slice(span.offset, span.len, out))
    }
}

impl Buffers {
    /// A copy of the caller's bytes.
    ///
    /// # Safety
    /// They are readable.
    pub unsafe fn copied(&mut self, bytes: &[RawIov], user: User) -> Buf {
        let copy = self.spare.take(total(bytes) as usize);
        let mut to = copy.memory().base;
        for piece in bytes.iter().filter(|piece| piece.len > 0) {
            // SAFETY: readable, by our caller's word; the copy has room for all.
            unsafe {
                to.copy_from_nonoverlapping(piece.base, piece.len);
                to = to.add(piece.len);
            }
        }
        Buf { iov: IoVec::One(copy.memory()), user, owned: Some(copy) }
    }

    /// Copies the first `span.len` bytes of a payload to their place, which is no receive's.
    pub fn fill(&mut self, span: Span, payload: Payload) {
        if let Place::Stash(op) = span.place {
            let Some(stash) = self.stashes.get(op).map(Owned::memory) else { return };
            let offset = span.offset as usize;
            if stash.len.checked_sub(offset).is_some_and(|room| span.len <= room) {
                // SAFETY: inside memory that is ours, and no payload's.
                unsafe { payload.copy_to(0, stash.base.add(offset), span.len) };
            }
            return;
        }
        let mut pieces = Vec::new();
        if self.resolve(span, &mut pieces) {
            scatter(&pieces, payload);
        }
    }
}

/// All memory that the engine has names for.
pub(crate) struct Named<'a> {
    pub engine: &'a Engine,
    pub bufs: &'a Buffers,
}

impl Memory for Named<'_> {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        match span.place {
            Place::Recv(op) => {
                self.engine.receiver(op).is_some_and(|posted| posted.iov.slice(span.offset, span.len, out))
            }
            Place::Value(peer, slot) => {
                let Some(bytes) = self.engine.value_bytes(peer, slot) else { return false };
                let memory = RawIov { base: bytes.as_ptr().cast_mut(), len: bytes.len() };
                IoVec::One(memory).slice(span.offset, span.len, out)
            }
            _ => self.bufs.resolve(span, out),
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
    #[test]
    fn bytes_of_its_own_are_written_through_their_address_wherever_they_move() {
        let mut bufs = Buffers::default();
        let op = OpId { slot: 2, generation: 7 };
        bufs.stashes.put(op, Owned::zeros(4));
        let mut at = Vec::new();
        let span = Span { place: Place::Stash(op), offset: 1, len: 2 };
        assert!(bufs.resolve(span, &mut at) && at.len() == 1 && at[0].len == 2);
        // SAFETY: inside the stash, which lives until it is taken below.
        unsafe { at[0].base.write(9) };
        bufs.stashes.put(OpId { slot: 100, generation: 0 }, Owned::default());
        let stash = bufs.stashes.take(op).expect("it is there");
        // SAFETY: the stash lives to the end of this test.
        assert_eq!(unsafe { stash.payload() }.to_vec(), [0, 9, 0, 0]);
        assert!(!bufs.resolve(span, &mut at));
    }

    #[test]
    fn a_span_of_a_region_reaches_the_registration_that_it_names_only() {
        let mut bufs = Buffers::default();
        let memory = RawIov { base: 100 as *mut u8, len: 10 };
        bufs.regions.insert(5, RegionMemory { generation: 3, memory, base: 0 });
        let mut at = Vec::new();
        for (generation, there) in [(2, false), (3, true), (4, false)] {
            let span = Span { place: Place::Region(5, generation), offset: 0, len: 10 };
            assert_eq!(bufs.resolve(span, &mut at), there, "{generation}");
        }
    }
}
