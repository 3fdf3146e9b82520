//! The memory of a pair: a header with a few desks per direction, and a ring for each.
//!
//! A pair takes [`SEGMENT_SIZE`] bytes (300 KiB) of address space in each process, and one descriptor while it is being set
//! up. Pages come on first touch, one for both processes: an idle pair has 3 (12 KiB), a pair that exchanged messages of a few words
//! only has 7, one in full use has all 75.

use std::{
    mem,
    os::fd::{BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering},
};

use super::desk::{self, DESKS, DeskMemory, Helper, Readers};
use super::ring::{self, BULK, Consumer, Producer, RingMemory, SLOTS};
use super::sealed::{MemoryError, Sealed, same};

const MAGIC: u64 = u64::from_le_bytes(*b"polyrail");
/// To be raised with each change of what the two processes share.
pub const LAYOUT: u16 = 4;
const PAGE: usize = 4096;
const RING: usize = mem::size_of::<RingMemory>().next_multiple_of(PAGE);
/// Bytes of a pair's segment.
pub const SEGMENT_SIZE: usize = PAGE + 2 * RING;

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header {
    magic: u64,
    layout: u32,
    slots: u32,
    bulk: u32,
}

const HEADER: Header = Header { magic: MAGIC, layout: LAYOUT as u32, slots: SLOTS as u32, bulk: BULK as u32 };

#[repr(C)]
struct First {
    header: Header,
    /// Set by the one process that opens the segment.
    opened: AtomicU32,
    /// As the rings: the first is read at by who made the segment.
    desks: [[DeskMemory; DESKS]; 2],
}

const _: () = assert!(mem::size_of::<First>() <= PAGE);

/// What a process has of a pair's memory, which stays mapped until all of it is dropped.
pub struct Ends {
    /// Sends.
    pub producer: Producer,
    /// Receives.
    pub consumer: Consumer,
    /// Reads what the peer announced.
    pub readers: Readers,
    /// Helps the peer to read.
    pub helpers: [Helper; DESKS],
}

/// The process's view of a pair's memory, from which its two ends are made.
pub struct Segment {
    mapping: Sealed,
    /// The ring that this side sends by.
    ours: usize,
}

impl Segment {
    /// Makes the memory of a new pair. The descriptor is for the peer's [`open`](Self::open) and may be closed then.
    pub fn create() -> Result<(Segment, OwnedFd), MemoryError> {
        let (mapping, fd) = Sealed::create(SEGMENT_SIZE)?;
        // SAFETY: the mapping is larger than a header, and nobody else knows it yet.
        unsafe { mapping.at().cast::<Header>().write(HEADER) };
        Ok((Segment { mapping, ours: 0 }, fd))
    }

    /// Maps the memory that the peer made. Nothing in it is believed before it was checked, its size and seals first. The
    /// descriptor may be closed then.
    pub fn open(fd: BorrowedFd<'_>) -> Result<Segment, MemoryError> {
        let mapping = Sealed::open(fd, SEGMENT_SIZE)?;
        // SAFETY: within the mapping; a volatile read takes one copy of what the peer may be changing.
        let header = unsafe { mapping.at().cast::<Header>().as_ptr().read_volatile() };
        same("magic", HEADER.magic, header.magic)?;
        same("layout", HEADER.layout.into(), header.layout.into())?;
        same("slots", HEADER.slots.into(), header.slots.into())?;
        same("bulk area", HEADER.bulk.into(), header.bulk.into())?;
        // SAFETY: within the mapping, aligned, and accessed atomically by everybody.
        let opened = unsafe { &(*mapping.at().cast::<First>().as_ptr()).opened };
        if opened.swap(1, Ordering::AcqRel) != 0 {
            return Err(MemoryError::Taken);
        }
        Ok(Segment { mapping, ours: 1 })
    }

    /// The ends on this side.
    pub fn split(self) -> Ends {
        let ring = |i: usize| {
            // SAFETY: both rings are within the mapping.
            unsafe { self.mapping.at().byte_add(PAGE + i * RING).cast::<RingMemory>() }
        };
        let (out, back) = (ring(self.ours), ring(1 - self.ours));
        // SAFETY: both desks are within the mapping, as `First` is.
        let desks = |i: usize| unsafe {
            (*self.mapping.at().cast::<First>().as_ptr()).desks[i].each_ref().map(NonNull::from)
        };
        let (read, help) = (desks(self.ours), desks(1 - self.ours));
        let keep = Arc::new(self.mapping);
        // SAFETY: a fresh memfd is zero; the mapping lives in `keep`; sides are made once each: by `create`, and by the
        // `open` that found `opened` unset.
        unsafe {
            Ends {
                producer: ring::producer(out, keep.clone()),
                consumer: ring::consumer(back, keep.clone()),
                readers: Readers::new(read.map(|at| desk::reader(at, keep.clone()))),
                helpers: help.map(|at| desk::helper(at, keep.clone())),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn both_directions_carry_frames() {
        let (ours, fd) = Segment::create().unwrap();
        let theirs = Segment::open(fd.as_fd()).unwrap();
        drop(fd);
        let Ends { producer: mut p0, consumer: mut c0, .. } = ours.split();
        let Ends { producer: mut p1, consumer: mut c1, .. } = theirs.split();
        p0.try_send(b"there", &[b"1"]).unwrap();
        p1.try_send(b"back", &[b"2"]).unwrap();
        assert_eq!(c1.peek().unwrap().unwrap().header, b"there");
        drop((p0, c1, p1));
        assert_eq!(c0.peek().unwrap().unwrap().header, b"back", "each end keeps the memory");
    }

    #[test]
    fn second_opening_is_refused() {
        let (_ours, fd) = Segment::create().unwrap();
        let _theirs = Segment::open(fd.as_fd()).unwrap();
        assert!(matches!(Segment::open(fd.as_fd()), Err(MemoryError::Taken)));
    }

    #[test]
    fn memory_is_taken_by_use() {
        let (ours, fd) = Segment::create().unwrap();
        let pages = || {
            let mut stat = mem::MaybeUninit::<libc::stat>::uninit();
            // SAFETY: the buffer is a stat, filled by the call.
            unsafe {
                assert_eq!(libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()), 0);
                stat.assume_init().st_blocks as usize * 512 / PAGE
            }
        };
        let Ends { producer: mut p0, consumer: mut c0, .. } = ours.split();
        let Ends { producer: mut p1, consumer: mut c1, .. } = Segment::open(fd.as_fd()).unwrap().split();
        assert_eq!(pages(), 3, "idle");
        let mut exchange = |payload: &[u8]| {
            for _ in 0..SLOTS {
                p0.try_send(b"there", &[payload]).unwrap();
                p1.try_send(b"back", &[payload]).unwrap();
                for c in [&mut c0, &mut c1] {
                    let mut sink = vec![0; payload.len()];
                    c.peek().unwrap().unwrap().payload.copy_to(&mut sink);
                    c.release();
                }
            }
        };
        exchange(&[1; 8]);
        assert_eq!(pages(), 7, "messages of a few words");
        exchange(&[1; ring::ANNEX]);
        assert_eq!(pages(), 11, "of a line");
        exchange(&[1; ring::MAX_PAYLOAD]);
        assert_eq!((pages(), SEGMENT_SIZE), (75, 75 * PAGE), "full use");
    }

    #[test]
    fn what_is_no_segment_is_refused() {
        let (_memory, fd) = Sealed::create(SEGMENT_SIZE).unwrap();
        assert!(Segment::open(fd.as_fd()).err().expect("refused").to_string().contains("magic"));
    }
}
