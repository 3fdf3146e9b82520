//! How the memory that ranks of a host share looks. Each rank of a communicator has an area, and writes nowhere else; the others read.
//!
//! An area has a line of its owner's numbers and slots, which are used one after the other: what the owner contributes to operation `n` is in
//! the `n`th slot, counted round, whose number becomes `n` when all of it is there. It stays until all who read it have said so, or until a
//! later operation shows that they have. Short contributions have small slots, and many: who broadcasts them is far ahead of who
//! gets them where ranks share a processor, and the fewer times it changes hands.
//!
//! An area may also be one of locks, which all write.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes that a slot takes.
pub const PAYLOAD: usize = 65536;
/// Slots of an area, and those for what is short.
const SLOTS: (u64, u64) = (4, 64);
/// Bytes between slots: a line with number and tag in front, on which a short contribution travels along.
const STRIDE: usize = PAYLOAD + 64;
const HEAD: usize = 16;
const LINE: usize = 128;
/// Bytes of a contribution that is short.
const SHORT: usize = LINE - HEAD;
const CONTROL: usize = 128;
const LINES: usize = SLOTS.1 as usize * LINE;
/// Bytes of an area, in whole pages.
pub const AREA: usize = (CONTROL + LINES + SLOTS.0 as usize * STRIDE).next_multiple_of(4096);

/// How many operations later a slot for so many bytes is used again.
pub fn round(bytes: usize) -> u64 {
    if bytes <= SHORT { SLOTS.1 } else { SLOTS.0 }
}

/// What the owner of an area says. Two lines, as neighbouring lines are fetched together.
#[repr(C, align(128))]
struct Control {
    /// The operation up to which the owner has read all that it reads.
    done: AtomicU64,
    /// How many sleep until the owner writes something.
    sleepers: AtomicU32,
}

const _: () = assert!(size_of::<Control>() == CONTROL);

#[repr(C, align(64))]
struct Head {
    number: AtomicU64,
    tag: AtomicU64,
}

/// A lock, for areas that are used for these alone. Zeros are one that nobody has.
#[repr(C, align(64))]
pub struct Lock {
    /// Its word: see [`polyrail_core::ticket`].
    word: AtomicU64,
    /// How often that has changed in a way that others may wait for.
    changes: AtomicU64,
    sleepers: AtomicU32,
}

/// Locks in an area.
pub const LOCKS: usize = (AREA - CONTROL) / size_of::<Lock>();

/// A rank's area.
#[derive(Clone, Copy)]
pub struct Area(NonNull<u8>);

// SAFETY: the memory belongs to no thread; what is given of it are atomics, and addresses
unsafe impl Send for Area {}
// SAFETY: the same
unsafe impl Sync for Area {}

/// One slot of it.
#[derive(Clone, Copy)]
pub struct Slot<'a> {
    head: &'a Head,
    area: &'a Area,
    payload: *mut u8,
}

/// A number that its owner alone writes, and who sleeps until it does.
#[derive(Clone, Copy)]
pub struct Word<'a> {
    /// The number.
    pub number: &'a AtomicU64,
    /// Of the same area.
    pub sleepers: &'a AtomicU32,
}

impl Area {
    /// An area at an address.
    ///
    /// # Safety
    /// There are [`AREA`] bytes of shared memory, aligned to 128, mapped for as long as the area is used; they were zero when the
    /// communicator began.
    pub unsafe fn at(address: NonNull<u8>) -> Self {
        Self(address)
    }

    fn control(&self) -> &Control {
        // SAFETY: `at`'s promise; atomics only
        unsafe { self.0.cast::<Control>().as_ref() }
    }

    /// One of [`LOCKS`] locks. Until all have been told that the area has some, it may be something else.
    pub fn lock(&self, n: usize) -> &Lock {
        assert!(n < LOCKS, "no such lock");
        // SAFETY: within the area, and aligned, as the control is; atomics only
        unsafe { self.0.add(CONTROL).cast::<Lock>().add(n).as_ref() }
    }

    /// The owner's count of operations that it has read.
    pub fn done(&self) -> Word<'_> {
        let control = self.control();
        Word { number: &control.done, sleepers: &control.sleepers }
    }

    /// The slot of an operation to which so many bytes are contributed.
    pub fn slot(&self, number: u64, bytes: usize) -> Slot<'_> {
        self.slot_at(number, bytes <= SHORT)
    }

    /// The other slot that the owner might have used, had it contributed more, or less.
    pub fn other_slot(&self, number: u64, bytes: usize) -> Slot<'_> {
        self.slot_at(number, bytes > SHORT)
    }

    fn slot_at(&self, number: u64, short: bool) -> Slot<'_> {
        let at = match short {
            true => CONTROL + (number % SLOTS.1) as usize * LINE,
            false => CONTROL + LINES + (number % SLOTS.0) as usize * STRIDE,
        };
        // SAFETY: within the area; atomics only
        unsafe {
            let head = self.0.add(at);
            Slot { head: head.cast::<Head>().as_ref(), area: self, payload: head.add(HEAD).as_ptr() }
        }
    }

    /// Makes it as new. Nobody else uses it.
    pub fn clear(&self) {
        self.done().number.store(0, Ordering::Relaxed);
        for (short, slots) in [(true, SLOTS.1), (false, SLOTS.0)] {
            (0..slots).for_each(|slot| self.slot_at(slot, short).head.number.store(0, Ordering::Relaxed));
        }
    }
}

impl<'a> Slot<'a> {
    /// Where its number is.
    pub fn word(&self) -> Word<'a> {
        Word { number: &self.head.number, sleepers: &self.area.control().sleepers }
    }

    /// What the call that wrote it was.
    pub fn tag(&self) -> u64 {
        self.head.tag.load(Ordering::Relaxed)
    }

    /// Its bytes, aligned to 16. The owner writes them before it fills the slot, others read them after.
    pub fn payload(&self) -> *mut u8 {
        self.payload
    }

    /// All of the payload is there.
    pub fn fill(&self, number: u64, tag: u64) {
        self.head.tag.store(tag, Ordering::Relaxed);
        self.word().write(number);
    }
}

impl Lock {
    /// One that nobody has.
    pub fn clear(&self) {
        self.word.store(0, Ordering::Relaxed);
        self.changes.store(0, Ordering::Relaxed);
        self.sleepers.store(0, Ordering::Relaxed);
    }

    /// Adds to its word; what was there before.
    pub fn add(&self, adds: u64) -> u64 {
        self.word.fetch_add(adds, Ordering::AcqRel)
    }

    /// [`add`](Self::add)s what others may wait for, and wakes them.
    pub fn tell(&self, adds: u64) {
        self.add(adds);
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.waited().wake_sleepers();
    }

    /// Its word.
    pub fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// What changes when the word does.
    pub fn waited(&self) -> Word<'_> {
        Word { number: &self.changes, sleepers: &self.sleepers }
    }
}

impl Word<'_> {
    /// Says something, and wakes who sleeps for it.
    pub fn write(&self, number: u64) {
        // with the look at sleepers behind it in one order for all: either a sleeper is seen here, or it sees the number
        self.number.store(number, Ordering::SeqCst);
        self.wake_sleepers();
    }

    fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // SAFETY: a word of ours; nothing is passed but its address
        unsafe { libc::syscall(libc::SYS_futex, self.number.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Sleeps until the number is no longer `seen`, or for so long; whether somebody woke it.
    pub fn sleep(&self, seen: u64, most: std::time::Duration) -> bool {
        let time = libc::timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos() as _ };
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let woken = self.number.load(Ordering::SeqCst) == seen && {
            let (at, op) = (self.number.as_ptr(), libc::FUTEX_WAIT);
            // SAFETY: a word of ours, of which the kernel compares the lower half (this is for little-endian machines), and a time
            unsafe { libc::syscall(libc::SYS_futex, at, op, seen as u32, &raw const time) == 0 }
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        woken
    }
}
