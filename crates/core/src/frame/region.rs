//! Lists of memory: what a process lets its peer read or write directly.

use super::{COLUMN, MAX_COLUMNS, MAX_RANGES, MAX_REGION, REGION_HEAD};
use crate::wire::Transport;
use crate::wire::codec::{Reader, Short, Writer};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Whose keys a column of a list has: one transport's, opened on one device of the process that made the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// The transport that reads or writes by these keys.
    pub transport: Transport,
    /// Which of that transport's devices, as the process that made the list numbers them.
    pub device: u16,
}

impl Column {
    fn read(r: &mut Reader<'_>) -> Result<Option<Self>, Short> {
        let (transport, zero, device, zeros) = (r.u8()?, r.u8()?, r.u16()?, r.u32()?);
        let transport = Transport::from_wire(transport).filter(|_| zero == 0 && zeros == 0);
        Ok(transport.map(|transport| Self { transport, device }))
    }
}

/// The keys of a list's ranges, by column.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Keyed(Vec<(Column, Vec<u64>)>);

/// Memory of another process that this one may read or write directly: at most [`MAX_RANGES`] ranges, and for transports that need them
/// the ranges' keys, a column for each device. On the heap, so that the actions that carry one stay small for those that do not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Region {
    ranges: Vec<(u64, u64)>,
    /// None: no column, as for those who read by address alone.
    keyed: Option<Box<Keyed>>,
}

impl Region {
    /// Most ranges; a buffer in more pieces travels as fragments.
    pub const MAX: usize = MAX_RANGES;
    /// Most bytes that an encoded region takes.
    pub const MAX_BYTES: usize = MAX_REGION;

    /// Adds a range; false when there is no room, or when there are columns already: their keys are those of all ranges.
    #[must_use]
    pub fn push(&mut self, addr: u64, len: u64) -> bool {
        let room = self.ranges.len() < MAX_RANGES && self.keyed.is_none();
        if room {
            self.ranges.push((addr, len));
        }
        room
    }

    /// Adds a column, with a key for each range. False when there is no room, when it is there already, and when the keys are more or
    /// fewer than the ranges.
    #[must_use]
    pub fn push_column(&mut self, column: Column, keys: &[u64]) -> bool {
        let fits = self.columns().count() < MAX_COLUMNS && keys.len() == self.ranges.len();
        let fits = fits && self.columns().all(|(its, _)| its != column);
        if fits {
            self.keyed.get_or_insert_default().0.push((column, keys.to_vec()));
        }
        fits
    }

    /// The ranges: address, bytes.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// The columns, and the keys of each, which are those of the ranges in their order.
    pub fn columns(&self) -> impl Iterator<Item = (Column, &[u64])> {
        self.keyed.iter().flat_map(|keyed| keyed.0.iter().map(|(column, keys)| (*column, &keys[..])))
    }

    /// Bytes in all ranges, or nothing when they are more than 2^64.
    pub fn len(&self) -> Option<u64> {
        self.ranges.iter().try_fold(0u64, |sum, (_, len)| sum.checked_add(*len))
    }

    /// Whether it has no range.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// As bytes (`docs/wire-frames.md`). Returns how many were written.
    pub fn encode(&self, out: &mut [u8; Self::MAX_BYTES]) -> usize {
        let mut w = Writer::new(out);
        w.u8(self.ranges.len() as u8).u8(self.columns().count() as u8).bytes(&[0; REGION_HEAD - 2]);
        for (column, _) in self.columns() {
            w.u8(column.transport.number()).u8(0).u16(column.device).u32(0);
        }
        for (at, (addr, len)) in self.ranges.iter().enumerate() {
            w.u64(*addr).u64(*len);
            for (_, keys) in self.columns() {
                w.u64(keys[at]);
            }
        }
        let written = w.finish();
        debug_assert!(written.is_ok(), "the bounds of ranges and columns fit");
        written.unwrap_or(0)
    }

    /// From bytes; none when they are not exactly one list.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let (ranges, columns, zeros) = (r.u8().ok()?, r.u8().ok()?, r.array::<{ REGION_HEAD - 2 }>().ok()?);
        let (ranges, columns) = (usize::from(ranges), usize::from(columns));
        let bounded = (1..=MAX_RANGES).contains(&ranges) && columns <= MAX_COLUMNS;
        if !bounded || zeros != [0; REGION_HEAD - 2] || r.len() != rest(ranges, columns) {
            return None;
        }
        let mut region = Self { ranges: Vec::with_capacity(ranges), keyed: None };
        if columns > 0 {
            region.keyed = Some(Box::new(Keyed::columns(&mut r, ranges, columns)?));
        }
        for _ in 0..ranges {
            region.ranges.push((r.u64().ok()?, r.u64().ok()?));
            for (_, keys) in region.keyed.iter_mut().flat_map(|keyed| &mut keyed.0) {
                keys.push(r.u64().ok()?);
            }
        }
        Some(region)
    }
}

impl Keyed {
    /// Columns without their keys yet.
    fn columns(r: &mut Reader<'_>, ranges: usize, columns: usize) -> Option<Self> {
        let mut keyed = Self(Vec::with_capacity(columns));
        for _ in 0..columns {
            let column = Column::read(r).ok()??;
            if keyed.0.iter().any(|(its, _)| *its == column) {
                return None;
            }
            keyed.0.push((column, Vec::with_capacity(ranges)));
        }
        Some(keyed)
    }
}

/// Bytes of columns and ranges.
const fn rest(ranges: usize, columns: usize) -> usize {
    columns * COLUMN + ranges * (super::RANGE + columns * super::KEY)
}

const _: () = assert!(REGION_HEAD + rest(MAX_RANGES, MAX_COLUMNS) == MAX_REGION);
