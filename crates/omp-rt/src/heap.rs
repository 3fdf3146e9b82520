//! One heap in one region of addresses, with all of its state inside the region, so that whoever has the region's contents has the heap.
//!
//! ```text
//! base: 64 KiB for the owner's use | Heap | chunk chunk ... | wild (never in use, or not any more) | high: zero from here on | end
//! chunk: size of the chunk before, if that is free (8) | own size and flags (8) | payload ...; a payload takes the first word of what follows
//! ```
//!
//! Two-level segregated fit (Masmano et al., 2004): free chunks are coalesced at once, kept by size in classes of at most 1/32 above their lower bound, and found in
//! constant time, so what is lost to fragmentation is bounded. Small chunks rest on short lists by exact size before they are coalesced.

#[cfg(test)]
mod tests;

use polyrail_omp::layout::PAGE;

/// Bytes at the begin of a region that the heap leaves alone.
pub const RESERVED: usize = 64 << 10;

const PREVIOUS_USED: usize = 1;
const USED: usize = 2;
const FLAGS: usize = 15;
/// Chunks of less cannot hold the list of free ones.
const SMALLEST: usize = 32;
/// Chunks below are in classes of one size each.
const LINEAR: usize = 1024;
const ROWS: usize = 32;
const COLUMNS: usize = 32;
const HEADS: usize = 64 + (ROWS - 1) * COLUMNS;
/// Chunks up to [`LINEAR`] rest before they are coalesced, so many of each size.
const QUICK: usize = LINEAR / 16 + 1;
const QUICK_LENGTH: u8 = 32;
/// From here on a heap is of huge pages.
pub const HUGE_FROM: usize = 2 << 20;
/// Payloads from so many bytes on begin with a page: what different threads change lies in different pages then.
const LARGE: usize = 64 << 10;

/// The state of a heap; a region of zeros is one that has not begun.
#[repr(C)]
pub struct Heap {
    begun: usize,
    end: usize,
    wild: usize,
    high: usize,
    deferred: usize,
    rows: u32,
    columns: [u64; ROWS],
    quick: [usize; QUICK],
    rest: [u8; QUICK],
    heads: [usize; HEADS],
}

#[inline]
unsafe fn get(address: usize) -> usize {
    // SAFETY: the caller's: a word of a chunk.
    unsafe { *(address as *const usize) }
}
#[inline]
unsafe fn put(address: usize, value: usize) {
    // SAFETY: the caller's: a word of a chunk.
    unsafe { *(address as *mut usize) = value }
}
/// Size and flags of a chunk.
#[inline]
unsafe fn header(chunk: usize) -> usize {
    // SAFETY: the caller's.
    unsafe { get(chunk + 8) }
}
/// The class whose chunks are at least as large as its lower bound, which is at most `size`.
#[inline]
fn class(size: usize) -> (usize, usize) {
    if size < LINEAR {
        return (0, size / 16);
    }
    let top = size.ilog2() as usize;
    (top - 9, (size >> (top - 5)) & (COLUMNS - 1))
}
#[inline]
fn index((row, column): (usize, usize)) -> usize {
    if row == 0 { column } else { 64 + (row - 1) * COLUMNS + column }
}
/// The chunk that serves `bytes`.
#[inline]
fn chunk_size(bytes: usize) -> usize {
    ((bytes + 8 + FLAGS) & !FLAGS).max(SMALLEST)
}

/// How many bytes of a block can be used.
///
/// # Safety
/// A block that is in use.
#[inline]
pub unsafe fn usable(block: usize) -> usize {
    // SAFETY: a block's header stands before it.
    unsafe { (get(block - 8) & !FLAGS) - 8 }
}

impl Heap {
    /// Begins a heap in `bytes` of zeros at `base`, if it has not begun.
    ///
    /// # Safety
    /// The region is mapped, nobody else uses it, and it begins with a page.
    pub unsafe fn at<'a>(base: usize, bytes: usize) -> &'a mut Self {
        // SAFETY: the region is the caller's; zeros are a valid `Heap`.
        let heap = unsafe { &mut *((base + RESERVED) as *mut Self) };
        if heap.begun == 0 {
            let first = (base + RESERVED + size_of::<Self>()).next_multiple_of(PAGE);
            (heap.begun, heap.end, heap.wild, heap.high) = (1, base + bytes, first, first);
        }
        heap
    }
    /// As [`Heap::at`], of a heap that is only looked at: whether it has begun, and the end of what was ever used of it.
    ///
    /// # Safety
    /// The region is mapped.
    pub unsafe fn high(base: usize) -> Option<usize> {
        // SAFETY: the caller's.
        let heap = unsafe { &*((base + RESERVED) as *const Self) };
        // the last payload takes a word of what is not in use
        (heap.begun != 0).then_some(heap.high + 8)
    }
    /// The addresses of the lists' heads, for checks: nothing of the program is below.
    #[cfg(test)]
    fn first(&self) -> usize {
        (&raw const *self as usize + size_of::<Self>()).next_multiple_of(PAGE)
    }

    /// A block of `bytes`, 0 if there is no room, and whether all of it is zero already.
    ///
    /// # Safety
    /// This heap is the caller's alone meanwhile.
    #[inline]
    pub unsafe fn allocate(&mut self, bytes: usize) -> (usize, bool) {
        if bytes >= LARGE {
            // SAFETY: the caller's.
            return unsafe { self.aligned(PAGE, bytes) };
        }
        let size = chunk_size(bytes);
        if size <= LINEAR {
            let block = self.quick[size / 16];
            if block != 0 {
                // SAFETY: a block on this list is a free one, with the next in its first word.
                self.quick[size / 16] = unsafe { get(block) };
                self.rest[size / 16] -= 1;
                return (block, false);
            }
        }
        let high = self.high;
        // SAFETY: the caller's.
        match unsafe { self.take(size) } {
            0 => (0, false),
            chunk => (chunk + 16, chunk + 8 >= high),
        }
    }
    /// As [`Heap::allocate`], at a multiple of `align`, a power of two.
    ///
    /// # Safety
    /// As [`Heap::allocate`].
    pub unsafe fn aligned(&mut self, align: usize, bytes: usize) -> (usize, bool) {
        // SAFETY: the caller's.
        unsafe { self.aligned_after(align, bytes, 0) }
    }
    /// As [`Heap::aligned`], the block's byte `lead` being at a multiple of `align`. `lead` is a multiple of 16.
    ///
    /// # Safety
    /// As [`Heap::allocate`].
    pub unsafe fn aligned_after(&mut self, align: usize, bytes: usize, lead: usize) -> (usize, bool) {
        let align = align.max(16);
        let Some(most) = bytes.checked_add(align + SMALLEST + 16) else { return (0, false) };
        if most > self.end {
            return (0, false);
        }
        let (size, high) = (chunk_size(bytes), self.high);
        // SAFETY: the chunk is ours, and the parts of it are inside.
        unsafe {
            let chunk = self.take(chunk_size(most));
            if chunk == 0 {
                return (0, false);
            }
            let mut block = (chunk + 16 + lead).next_multiple_of(align) - lead;
            if block != chunk + 16 && block - (chunk + 16) < SMALLEST {
                block += align.max(SMALLEST);
            }
            let before = block - (chunk + 16);
            let whole = header(chunk) & !FLAGS;
            if before > 0 {
                put(block - 8, (whole - before) | USED | PREVIOUS_USED);
                put(chunk + 8, before | USED | (header(chunk) & PREVIOUS_USED));
                self.coalesce(chunk);
            }
            self.trim(block - 16, size);
            (block, block - 8 >= high)
        }
    }
    /// Gives a block back.
    ///
    /// # Safety
    /// As [`Heap::allocate`], and the block is of this heap and in use.
    #[inline]
    pub unsafe fn free(&mut self, block: usize) {
        // SAFETY: the block is the caller's.
        unsafe {
            let size = header(block - 16) & !FLAGS;
            if size <= LINEAR && self.rest[size / 16] < QUICK_LENGTH {
                put(block, self.quick[size / 16]);
                self.quick[size / 16] = block;
                self.rest[size / 16] += 1;
            } else {
                self.coalesce(block - 16);
            }
        }
    }
    /// Makes a block larger or smaller where it is, if that can be.
    ///
    /// # Safety
    /// As [`Heap::free`].
    pub unsafe fn resize(&mut self, block: usize, bytes: usize) -> bool {
        if bytes > self.end {
            return false;
        }
        let (chunk, size) = (block - 16, chunk_size(bytes));
        // SAFETY: the chunk is the caller's, and what follows it this heap's.
        unsafe {
            let now = header(chunk) & !FLAGS;
            let next = chunk + now;
            if size > now {
                if next == self.wild {
                    if chunk + size > self.end {
                        return false;
                    }
                    self.grow(chunk + size);
                } else {
                    let free = header(next);
                    if free & USED != 0 || now + (free & !FLAGS) < size {
                        return false;
                    }
                    self.unlink(next);
                    let after = next + (free & !FLAGS);
                    put(after + 8, header(after) | PREVIOUS_USED);
                    put(chunk + 8, (now + (free & !FLAGS)) | (header(chunk) & FLAGS));
                    self.trim(chunk, size);
                    return true;
                }
                put(chunk + 8, size | (header(chunk) & FLAGS));
            } else {
                self.trim(chunk, size);
            }
        }
        true
    }
    /// Remembers a block of another heap that is to be given back by and by.
    ///
    /// # Safety
    /// As [`Heap::allocate`], and the block is in use, the caller's, and of a heap.
    pub unsafe fn defer(&mut self, block: usize) {
        // SAFETY: the smallest block has a word.
        unsafe { put(block, self.deferred) };
        self.deferred = block;
    }
    /// One that was remembered.
    ///
    /// # Safety
    /// As [`Heap::allocate`].
    pub unsafe fn deferred(&mut self) -> Option<usize> {
        let block = self.deferred;
        if block == 0 {
            return None;
        }
        // SAFETY: it is still in use, with the next in its first word.
        self.deferred = unsafe { get(block) };
        Some(block)
    }

    fn grow(&mut self, wild: usize) {
        self.wild = wild;
        self.high = self.high.max(wild);
    }
    /// A chunk of at least `size`, in use; 0 if there is none.
    unsafe fn take(&mut self, size: usize) -> usize {
        // SAFETY: lists hold free chunks of this heap, which is the caller's.
        unsafe {
            let chunk = self.find(size);
            if chunk != 0 {
                self.unlink(chunk);
                let next = chunk + (header(chunk) & !FLAGS);
                put(next + 8, header(next) | PREVIOUS_USED);
                put(chunk + 8, header(chunk) | USED);
                self.trim(chunk, size);
                return chunk;
            }
            let chunk = self.wild;
            if size <= self.end - chunk {
                self.grow(chunk + size);
                put(chunk + 8, size | USED | PREVIOUS_USED);
                return chunk;
            }
            if self.rest.iter().all(|count| *count == 0) {
                return 0;
            }
            self.coalesce_quick();
            self.take(size)
        }
    }
    /// A free chunk of at least `size`, still on its list; 0 if there is none.
    unsafe fn find(&self, size: usize) -> usize {
        let (row, mut column) = class(size);
        if row > 0 {
            // Of its own class a chunk may be too small; only the first is tried.
            let chunk = self.heads[index((row, column))];
            // SAFETY: it is on a list.
            if chunk != 0 && unsafe { header(chunk) & !FLAGS } >= size {
                return chunk;
            }
            column += usize::from(size & ((1 << (size.ilog2() - 5)) - 1) != 0);
        }
        let columns = if column < 64 { self.columns[row] & (!0 << column) } else { 0 };
        if columns != 0 {
            return self.heads[index((row, columns.trailing_zeros() as usize))];
        }
        let rows = u64::from(self.rows) & (!0 << (row + 1));
        if rows == 0 {
            return 0;
        }
        let row = rows.trailing_zeros() as usize;
        self.heads[index((row, self.columns[row].trailing_zeros() as usize))]
    }
    /// Puts a free chunk, whose neighbours are in use, on its list.
    unsafe fn link(&mut self, chunk: usize, size: usize) {
        let (row, column) = class(size);
        let head = &mut self.heads[index((row, column))];
        // SAFETY: the chunk is free and has room for two words; the head is another free one.
        unsafe {
            put(chunk + 8, size | PREVIOUS_USED);
            put(chunk + size, size);
            put(chunk + size + 8, header(chunk + size) & !PREVIOUS_USED);
            put(chunk + 16, *head);
            put(chunk + 24, 0);
            if *head != 0 {
                put(*head + 24, chunk);
            }
        }
        *head = chunk;
        self.columns[row] |= 1 << column;
        self.rows |= 1 << row;
    }
    unsafe fn unlink(&mut self, chunk: usize) {
        // SAFETY: the chunk is on a list with its neighbours.
        let (size, next, previous) = unsafe { (header(chunk) & !FLAGS, get(chunk + 16), get(chunk + 24)) };
        if next != 0 {
            // SAFETY: as above.
            unsafe { put(next + 24, previous) };
        }
        if previous != 0 {
            // SAFETY: as above.
            unsafe { put(previous + 16, next) };
            return;
        }
        let (row, column) = class(size);
        self.heads[index((row, column))] = next;
        if next == 0 {
            self.columns[row] &= !(1 << column);
            if self.columns[row] == 0 {
                self.rows &= !(1 << row);
            }
        }
    }
    /// Makes a chunk that was in use, and free chunks around it, one.
    unsafe fn coalesce(&mut self, mut chunk: usize) {
        // SAFETY: the chunk was in use; its neighbours are this heap's.
        unsafe {
            let mut size = header(chunk) & !FLAGS;
            if header(chunk) & PREVIOUS_USED == 0 {
                let before = get(chunk);
                self.unlink(chunk - before);
                (chunk, size) = (chunk - before, size + before);
            }
            let next = chunk + size;
            if next == self.wild {
                self.wild = chunk;
                return;
            }
            if header(next) & USED == 0 {
                self.unlink(next);
                size += header(next) & !FLAGS;
                if chunk + size == self.wild {
                    self.wild = chunk;
                    return;
                }
            }
            self.link(chunk, size);
        }
    }
    fn coalesce_quick(&mut self) {
        for i in 0..QUICK {
            self.rest[i] = 0;
            let mut block = core::mem::take(&mut self.quick[i]);
            while block != 0 {
                // SAFETY: blocks on this list are free ones with the next in their first word.
                unsafe {
                    let next = get(block);
                    self.coalesce(block - 16);
                    block = next;
                }
            }
        }
    }
    /// Frees what a chunk in use has beyond `size`.
    unsafe fn trim(&mut self, chunk: usize, size: usize) {
        // SAFETY: both parts are inside the chunk.
        unsafe {
            let all = header(chunk) & !FLAGS;
            if all - size >= SMALLEST {
                put(chunk + 8, size | (header(chunk) & FLAGS));
                put(chunk + size + 8, (all - size) | USED | PREVIOUS_USED);
                self.coalesce(chunk + size);
            }
        }
    }
}
