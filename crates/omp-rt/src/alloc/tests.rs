//! Which heap serves whom, what is given back when, and pages that are mapped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::map::{madvise, mmap, mprotect, mremap, munmap};
use super::*;
use polyrail_omp::layout::PAGE;

/// The heaps are the process's: tests that use them take turns.
pub fn alone() -> MutexGuard<'static, ()> {
    static HEAPS: Mutex<()> = Mutex::new(());
    HEAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn allocate(bytes: usize) -> usize {
    allocate_in(choose(0), 16, bytes).0
}
unsafe fn bytes<'a>(address: usize, count: usize) -> &'a mut [u8] {
    // SAFETY: the test's own block.
    unsafe { core::slice::from_raw_parts_mut(address as *mut u8, count) }
}

#[test]
fn blocks_go_back_to_where_they_are_of() {
    let _alone = alone();
    started();
    let slot = |slot: usize| SLOT_HEAPS + slot * SLOT_HEAP_BYTES;
    // SAFETY: the test's own blocks.
    unsafe {
        let a = allocate(5000);
        assert_eq!(owner(a), SERIAL_HEAP);
        enter(7);
        let b = allocate(5000);
        assert_eq!(owner(b), slot(7));
        let c = privately(|| allocate(5000));
        assert_eq!(owner(c), LIBRARY_HEAP);
        // In a region: another heap's block waits, one's own does not, the private heap is this process's matter.
        free(a);
        free(c);
        let d = allocate(5000);
        free(d);
        assert_eq!(allocate(5000), d);
        std::thread::scope(|scope| {
            // A thread of the program's own, meanwhile.
            scope.spawn(|| free(d));
        });
        leave();
        assert_ne!(allocate(5000), a, "nothing is given back yet");
        settle();
        assert_eq!(allocate(5000), a);
        free(a);
        enter(7);
        assert_eq!(allocate(5000), d, "what serial code freed of a slot's heap is there again");
        leave();
        free(d);
        // A block that grows in another heap moves there.
        bytes(b, 5000).fill(9);
        let grown = reallocate(b, 16, 100_000, 0);
        assert_eq!(owner(grown), SERIAL_HEAP);
        assert!(bytes(grown, 5000).iter().all(|byte| *byte == 9));
        free(grown);
        free(0x7000_0000_0000);
        let mut seen_slots = Vec::new();
        for_seen(|slot| seen_slots.push(slot));
        assert!(seen_slots.contains(&7));
    }
}

#[test]
fn private_pages_are_allocated() {
    let _alone = alone();
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the test's own pages.
    unsafe {
        let pages = mmap(0, 10 * PAGE - 5, rw, anonymous, -1, 0);
        assert_eq!((owner(pages), pages % PAGE), (SERIAL_HEAP, 0));
        let all = bytes(pages, 10 * PAGE);
        assert!(all.iter().all(|byte| *byte == 0));
        all.fill(3);
        assert_eq!(madvise(pages + PAGE, PAGE, libc::MADV_DONTNEED), 0);
        assert_eq!((all[PAGE - 1], all[PAGE], all[2 * PAGE]), (3, 0, 3));
        assert_eq!(mprotect(pages, PAGE, libc::PROT_NONE), 0);
        all[0] = 1;
        // As who wants pages aligned to more: front and end are cut off, the rest is given back later.
        assert_eq!(munmap(pages, 2 * PAGE), 0);
        assert_eq!(munmap(pages + 8 * PAGE, 2 * PAGE), 0);
        assert_eq!(munmap(pages + 4 * PAGE, PAGE), 0, "a hole is not an error");
        assert_eq!(all[3 * PAGE], 3);
        assert_eq!(munmap(pages + 2 * PAGE, 6 * PAGE), 0);
        let again = mmap(0, 10 * PAGE, rw, anonymous, -1, 0);
        assert_eq!(again, pages, "all of it was given back");
        assert!(bytes(again, 10 * PAGE).iter().all(|byte| *byte == 0));

        bytes(again, 10 * PAGE).fill(5);
        let moved = mremap(again, 10 * PAGE, 400 * PAGE, libc::MREMAP_MAYMOVE, 0);
        let (old, new) = bytes(moved, 400 * PAGE).split_at(10 * PAGE);
        assert!(old.iter().all(|byte| *byte == 5) && new.iter().all(|byte| *byte == 0));
        assert_eq!(munmap(moved, 400 * PAGE), 0);

        let name = c"/proc/self/exe";
        let fd = libc::open(name.as_ptr(), libc::O_RDONLY);
        let file = mmap(0, 3 * PAGE, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0);
        assert_eq!(owner(file), SERIAL_HEAP);
        assert!(bytes(file, 3 * PAGE) == &std::fs::read("/proc/self/exe").expect("this program")[..3 * PAGE]);
        let shared = mmap(0, PAGE, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        assert_eq!((owner(shared), munmap(shared, PAGE), munmap(file, 3 * PAGE)), (0, 0, 0));
        libc::close(fd);
        assert_eq!(mmap(0, PAGE, rw, libc::MAP_PRIVATE, -1, 0), usize::MAX, "no such descriptor");
    }
}
