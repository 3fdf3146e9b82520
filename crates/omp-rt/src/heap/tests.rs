//! The heap against an oracle.

use super::*;

const BASE: usize = 0x6000_0000_0000;
const BYTES: usize = 1 << 30;

/// Everything that must hold between the calls, whatever was called.
unsafe fn check(heap: &Heap) -> usize {
    let (mut chunk, mut used, mut previous_used, mut free) = (heap.first(), 0, true, 0);
    while chunk < heap.wild {
        // SAFETY: chunks follow each other up to the wild part.
        let header = unsafe { header(chunk) };
        let size = header & !FLAGS;
        assert!(size >= SMALLEST && chunk + size <= heap.wild, "a chunk of {size}");
        assert_eq!(header & PREVIOUS_USED != 0, previous_used);
        if header & USED == 0 {
            assert!(previous_used, "two free chunks side by side");
            assert!(chunk + size < heap.wild, "a free chunk before the wild part");
            // SAFETY: the word after it is its own.
            assert_eq!(unsafe { get(chunk + size) }, size);
            free += 1;
        } else {
            used += size;
        }
        previous_used = header & USED != 0;
        chunk += size;
    }
    assert!(previous_used && chunk == heap.wild && heap.wild <= heap.high);
    let mut listed = 0;
    for row in 0..ROWS {
        assert_eq!(heap.rows >> row & 1 == 1, heap.columns[row] != 0);
        for column in 0..if row == 0 { 64 } else { COLUMNS } {
            let mut chunk = heap.heads[index((row, column))];
            assert_eq!(heap.columns[row] >> column & 1 == 1, chunk != 0);
            while chunk != 0 {
                // SAFETY: a free chunk of the list.
                unsafe {
                    assert_eq!(class(header(chunk) & !FLAGS), (row, column));
                    chunk = get(chunk + 16);
                }
                listed += 1;
            }
        }
    }
    assert_eq!(listed, free, "every free chunk is on its list");
    used
}

#[test]
fn a_heap_gives_what_an_oracle_says() {
    crate::raw::reserve(BASE, BYTES);
    // SAFETY: the region is this test's.
    let heap = unsafe { Heap::at(BASE, BYTES) };
    let mut state = 88_172_645_463_325_252u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let mut blocks: Vec<(usize, usize, u8)> = Vec::new();
    let (mut most, mut live) = (0, 0);
    // SAFETY: blocks are used within their sizes.
    unsafe {
        let fill =
            |block: usize, bytes: usize, mark: u8| core::ptr::write_bytes(block as *mut u8, mark, bytes);
        let bytes_of = |block: usize, bytes: usize| core::slice::from_raw_parts(block as *const u8, bytes);
        for step in 0..200_000u64 {
            let bytes = match random(20) {
                0..12 => random(200),
                12..17 => random(5000),
                17..19 => random(70_000),
                _ => random(400_000),
            } as usize;
            let mark = step as u8 | 1;
            match random(8) {
                0..3 if blocks.len() < 3000 => {
                    let (block, zero) = heap.allocate(bytes);
                    assert!(block != 0 && block % 16 == 0 && usable(block) >= bytes);
                    assert!(bytes < LARGE || block % PAGE == 0);
                    assert!(!zero || bytes_of(block, bytes).iter().all(|byte| *byte == 0));
                    fill(block, bytes, mark);
                    blocks.push((block, bytes, mark));
                    live += bytes;
                }
                3 if blocks.len() < 3000 => {
                    let (align, lead) = (16 << random(10), 16 * random(4) as usize);
                    let (block, zero) = heap.aligned_after(align, bytes.max(lead), lead);
                    assert!((block + lead).is_multiple_of(align));
                    assert!(!zero || bytes_of(block, bytes).iter().all(|byte| *byte == 0));
                    fill(block, bytes, mark);
                    blocks.push((block, bytes, mark));
                    live += bytes;
                }
                4 if !blocks.is_empty() => {
                    let i = random(blocks.len() as u64) as usize;
                    let (block, old, mark) = blocks[i];
                    if heap.resize(block, bytes) {
                        assert!(bytes_of(block, old.min(bytes)).iter().all(|byte| *byte == mark));
                        assert!(usable(block) >= bytes);
                        fill(block, bytes, mark);
                        blocks[i].1 = bytes;
                        live = live + bytes - old;
                    }
                }
                5..8 if !blocks.is_empty() => {
                    let (block, bytes, mark) = blocks.swap_remove(random(blocks.len() as u64) as usize);
                    assert!(bytes_of(block, bytes).iter().all(|byte| *byte == mark), "somebody wrote here");
                    heap.free(block);
                    live -= bytes;
                }
                _ => {}
            }
            most = most.max(live);
            if step % 5000 == 0 {
                check(heap);
            }
        }
        let used = heap.high - BASE;
        assert!(used < most + most / 2 + (4 << 20), "{used} bytes for at most {most} at a time");
        for (block, _, _) in blocks.drain(..) {
            heap.free(block);
        }
        heap.coalesce_quick();
        assert_eq!(check(heap), 0);
        assert_eq!(heap.wild, heap.first(), "all is one again");
        assert_eq!(heap.allocate(BYTES), (0, false));
        assert_eq!(heap.aligned(PAGE, usize::MAX - 100), (0, false));
        let a = heap.allocate(100).0;
        let b = heap.allocate(100).0;
        heap.defer(a);
        heap.defer(b);
        assert_eq!((heap.deferred(), heap.deferred(), heap.deferred()), (Some(b), Some(a), None));
    }
}

/// What is tracked must hold the whole of every block, the word of the last one beyond its chunk included.
#[test]
fn the_end_of_what_was_used_is_behind_every_block() {
    const BASE: usize = 0x6080_0000_0000;
    crate::raw::reserve(BASE, BYTES);
    for bytes in (1..5000).step_by(7) {
        // SAFETY: the region is this test's.
        unsafe {
            let (block, _) = Heap::at(BASE, BYTES).allocate(bytes);
            let end = Heap::high(BASE).unwrap();
            assert!(block + usable(block) <= end, "{bytes} bytes");
        }
    }
}
