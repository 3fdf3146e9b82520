//! `mmap` and its family: private memory that a program maps is shared like what it allocates, so it is allocated. All else is the kernel's.
//!
//! Pages that are mapped so are a block whose byte 32 is at a page's begin; what is there before says that they are (see [`Mark`]).
#![cfg_attr(test, allow(dead_code, reason = "tests are served by the C library's"))]

use polyrail_omp::layout::{LIBRARY_HEAP, PAGE, SERIAL_HEAP, SERIAL_HEAP_BYTES};

use super::exports::error;
use super::{current, free, is_privately, library, of_slot, owner, resize, serial};
use crate::raw::Lock;
use crate::{raw, syscalls};

/// What the program has mapped that is not allocated and can be written or executed: from and to.
static MAPPED: Lock<Vec<(usize, usize)>> = Lock::new(Vec::new());

/// Whether there is any, for checkpoints.
pub fn has_mapped() -> bool {
    MAPPED.with(|mapped| !mapped.is_empty())
}

const FAILED: usize = usize::MAX;
/// Bytes of a block before its pages.
const LEAD: usize = 32;
/// So much is read at a time, or zeroed.
const PART: usize = 1 << 30;

/// Without rights, so much is a reservation of addresses rather than memory.
const RESERVATION: usize = 1 << 36;

/// What stands before pages that are mapped.
#[repr(C)]
struct Mark {
    /// The pages' address and [`Mark::SEAL`], so that a program's data are hardly taken for it.
    check: usize,
    /// The block.
    block: usize,
    /// Bytes of the pages.
    bytes: usize,
}

impl Mark {
    const SEAL: usize = 0x5e1a_9b3c_77d0_41f5;

    /// Of the pages at `address`, if they are mapped by [`map`].
    fn of<'a>(address: usize) -> Option<&'a mut Self> {
        if !address.is_multiple_of(PAGE) || owner(address) == 0 || owner(address - LEAD) == 0 {
            return None;
        }
        // SAFETY: heaps are readable from their begin on.
        let mark = unsafe { &mut *((address - LEAD) as *mut Self) };
        (mark.check == address ^ Self::SEAL).then_some(mark)
    }
    unsafe fn set(address: usize, block: usize, bytes: usize) {
        // SAFETY: the caller has these bytes.
        unsafe { *((address - LEAD) as *mut Self) = Self { check: address ^ Self::SEAL, block, bytes } };
    }
}

/// Result of a system call as the C library gives it.
fn answer(result: isize) -> usize {
    if (-4095..0).contains(&result) {
        error(-result as i32);
        return FAILED;
    }
    result as usize
}
unsafe fn zero(address: usize, bytes: usize) {
    // SAFETY: the caller's.
    unsafe { core::ptr::write_bytes(address as *mut u8, 0, bytes) };
}
/// Pages of zeros in the calling thread's heap, 0 if there is no room.
fn map(bytes: usize) -> usize {
    if bytes > SERIAL_HEAP_BYTES {
        return 0;
    }
    let bytes = bytes.next_multiple_of(PAGE);
    // SAFETY: each heap's exclusion is taken here.
    let from = |heap: &mut crate::heap::Heap| unsafe { heap.aligned_after(PAGE, bytes + LEAD, LEAD) };
    let (block, clean) = match current::get() {
        0 => serial(from),
        LIBRARY_HEAP => library(from),
        // SAFETY: the calling thread's own.
        slot => from(unsafe { of_slot(slot) }),
    };
    if block == 0 {
        return 0;
    }
    // SAFETY: the block has them.
    unsafe {
        if !clean {
            zero(block + LEAD, bytes);
        }
        Mark::set(block + LEAD, block, bytes);
    }
    block + LEAD
}
/// Fills pages from a file; what is beyond its end stays. Whether the file can be read so.
unsafe fn fill(pages: usize, bytes: usize, fd: i32, offset: i64) -> bool {
    let mut done = 0;
    while done < bytes {
        let args = [fd as usize, pages + done, (bytes - done).min(PART), offset as usize + done, 0, 0];
        // SAFETY: the kernel writes into pages that are the caller's.
        match unsafe { syscalls::call(libc::SYS_pread64, &args) } {
            0 => return true,
            got if got > 0 => done += got as usize,
            got if got == -libc::EINTR as isize => {}
            _ => return false,
        }
    }
    true
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap(
    address: usize,
    bytes: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: i64,
) -> usize {
    let args = [address, bytes, prot as usize, flags as usize, fd as usize, offset as usize];
    let system = || {
        // SAFETY: the caller's.
        let at = answer(unsafe { syscalls::call(libc::SYS_mmap, &args) });
        let only_read = prot & !libc::PROT_READ == 0 && flags & libc::MAP_ANONYMOUS == 0;
        if at != FAILED && !is_privately() && !only_read {
            MAPPED.with(|mapped| mapped.push((at, at + bytes)));
        }
        at
    };
    let ours = owner(address) != 0 && address != 0;
    let special = libc::MAP_GROWSDOWN | libc::MAP_HUGETLB;
    if bytes == 0
        || is_privately()
        || flags & libc::MAP_TYPE != libc::MAP_PRIVATE
        || flags & special != 0
        || prot & libc::PROT_EXEC != 0
        || (prot == libc::PROT_NONE && bytes >= RESERVATION)
        || (flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0 && !ours)
    {
        return system();
    }
    let anonymous = flags & libc::MAP_ANONYMOUS != 0;
    // SAFETY: pages that are the caller's, by our word or by its own.
    unsafe {
        if flags & libc::MAP_FIXED_NOREPLACE == libc::MAP_FIXED_NOREPLACE {
            error(libc::EEXIST);
            return FAILED;
        }
        let pages = if flags & libc::MAP_FIXED != 0 {
            zero(address, bytes.next_multiple_of(PAGE));
            address
        } else {
            map(bytes)
        };
        if pages == 0 {
            error(libc::ENOMEM);
            return FAILED;
        }
        if !anonymous && !fill(pages, bytes, fd, offset) {
            if flags & libc::MAP_FIXED == 0 {
                unmap(pages, bytes);
            }
            return system();
        }
        pages
    }
}
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap64(
    address: usize,
    bytes: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: i64,
) -> usize {
    // SAFETY: the caller's.
    unsafe { mmap(address, bytes, prot, flags, fd, offset) }
}

/// Gives pages of ours back. What is cut out of the middle stays allocated until the rest is given back, and what is cut off the front does so.
unsafe fn unmap(address: usize, bytes: usize) {
    let bytes = bytes.next_multiple_of(PAGE);
    let Some(mark) = Mark::of(address) else {
        return cut_end(address, bytes);
    };
    // SAFETY: the caller's pages, and what stands before them.
    unsafe {
        let (block, whole) = (mark.block, mark.bytes);
        mark.check = 0;
        if bytes < whole {
            Mark::set(address + bytes, block, whole - bytes);
        } else {
            free(block);
        }
    }
}
/// The end of pages is looked for from their begin, which is not far if it is a matter of alignment.
fn cut_end(address: usize, bytes: usize) {
    const FAR: usize = 1 << 14;
    let begins = (1..FAR).map(|i| address - i * PAGE).take_while(|begin| owner(*begin) == owner(address));
    for begin in begins {
        let Some(mark) = Mark::of(begin) else { continue };
        if begin + mark.bytes == address + bytes {
            mark.bytes = address - begin;
            // SAFETY: the block is the caller's, and it says that it does not need its end.
            unsafe { resize(mark.block, address - mark.block) };
        }
        return;
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn munmap(address: usize, bytes: usize) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        if owner(address) == 0 || !address.is_multiple_of(PAGE) {
            MAPPED.with(|mapped| mapped.retain(|(from, to)| *from < address || *to > address + bytes));
            return answer(raw::call(libc::SYS_munmap, [address, bytes, 0, 0, 0, 0])) as i32;
        }
        unmap(address, bytes);
    }
    0
}

/// As the C library declares it, without the last argument's being optional: it is used only if the flags say so.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mremap(address: usize, old: usize, new: usize, flags: i32, to: usize) -> usize {
    // SAFETY: the caller's.
    unsafe {
        if owner(address) == 0 {
            return answer(raw::call(libc::SYS_mremap, [address, old, new, flags as usize, to, 0]));
        }
        let Some(mark) =
            Mark::of(address).filter(|_| flags & libc::MREMAP_FIXED == 0 && old != 0 && new != 0)
        else {
            error(libc::EINVAL);
            return FAILED;
        };
        let (old, new) = (old.next_multiple_of(PAGE).min(mark.bytes), new.next_multiple_of(PAGE));
        let lead = address - mark.block;
        if resize(mark.block, lead + new) {
            mark.bytes = new;
            if new > old {
                zero(address + old, new - old);
            }
            return address;
        }
        let pages = if flags & libc::MREMAP_MAYMOVE == 0 { 0 } else { map(new) };
        if pages == 0 {
            error(libc::ENOMEM);
            return FAILED;
        }
        core::ptr::copy_nonoverlapping(address as *const u8, pages as *mut u8, old.min(new));
        unmap(address, old);
        pages
    }
}

/// Memory of ours stays readable and writable, because other ranks' changes come into it: taking a right away is agreed to and not done.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mprotect(address: usize, bytes: usize, prot: i32) -> i32 {
    let ours = owner(address) != 0;
    if ours && prot & libc::PROT_EXEC == 0 {
        return 0;
    }
    let prot = if ours { prot | libc::PROT_READ | libc::PROT_WRITE } else { prot };
    // SAFETY: the caller's.
    answer(unsafe { raw::call(libc::SYS_mprotect, [address, bytes, prot as usize, 0, 0, 0]) }) as i32
}

/// Pages of ours that the program does not need become zero by being written, which is seen, rather than by being dropped, which is not.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn madvise(address: usize, bytes: usize, advice: i32) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        match advice {
            libc::MADV_DONTNEED if owner(address) != 0 => zero(address, bytes.next_multiple_of(PAGE)),
            libc::MADV_FREE | libc::MADV_REMOVE | libc::MADV_DONTFORK | libc::MADV_MERGEABLE
                if owner(address) != 0 => {}
            _ => {
                return answer(raw::call(libc::SYS_madvise, [address, bytes, advice as usize, 0, 0, 0]))
                    as i32;
            }
        }
    }
    0
}

const _: () =
    assert!(LEAD.is_multiple_of(16) && size_of::<Mark>() <= LEAD && SERIAL_HEAP.is_multiple_of(PAGE));
