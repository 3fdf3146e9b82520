//! What lock-free code is made of: atomics, bytes that two processes share, the two halves of an asymmetric barrier, and a
//! hint to the caches.
//!
//! Normally these are core's atomics and raw bytes. Under `--cfg loom` they are loom's, so that the model checker sees
//! every access; code that imports them from here alone can be checked unchanged.

pub use imp::{
    AtomicU32, AtomicU64, ByteCell, Ordering, evict, evicting_pays, fence, heavy_barrier, light_barrier,
    membarrier_registered, prefetch,
};

/// Its own cache line, and the one that the processor fetches along with it.
#[repr(C, align(128))]
pub struct Line<T>(pub T);

/// Most bytes that [`copy_short`] copies.
pub const SHORT: usize = 64;

/// Copies at most [`SHORT`] bytes by a few moves, which overlap where they must: a copy of any length is a call, which costs more than
/// that.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, and they do not overlap.
#[inline(always)]
pub unsafe fn copy_short(src: *const u8, dst: *mut u8, len: usize) {
    /// The first and the last bytes, so many each.
    #[inline(always)]
    unsafe fn ends<T>(src: *const u8, dst: *mut u8, len: usize) {
        let last = len - size_of::<T>();
        // SAFETY: `len` is at least a T's size, and both are valid for `len` bytes, by the caller's promise.
        unsafe {
            let (head, tail) = (src.cast::<T>().read_unaligned(), src.add(last).cast::<T>().read_unaligned());
            dst.cast::<T>().write_unaligned(head);
            dst.add(last).cast::<T>().write_unaligned(tail);
        }
    }
    debug_assert!(len <= SHORT);
    // SAFETY: each case is of no fewer bytes than it moves.
    unsafe {
        // the commonest first: a number or two
        if (8..=16).contains(&len) {
            return ends::<u64>(src, dst, len);
        }
        match len {
            0 => {}
            1 => *dst = *src,
            2..=3 => ends::<u16>(src, dst, len),
            4..=7 => ends::<u32>(src, dst, len),
            8..=32 => ends::<u128>(src, dst, len),
            _ => ends::<[u128; 2]>(src, dst, len),
        }
    }
}

/// Copies any number of bytes, few of them as [`copy_short`] does.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: our caller's word.
    unsafe {
        if len <= SHORT {
            copy_short(src, dst, len);
        } else {
            src.copy_to_nonoverlapping(dst, len);
        }
    }
}

#[cfg(not(loom))]
mod imp {
    pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    use core::{cell::UnsafeCell, sync::atomic};
    use std::sync::OnceLock;

    /// One byte of memory that another process may write at any time. Arrays of it have the layout of plain bytes.
    #[repr(transparent)]
    pub struct ByteCell(UnsafeCell<u8>);

    // SAFETY: a byte is read and written only through the unsafe copies below, whose callers keep them apart in time.
    unsafe impl Sync for ByteCell {}

    impl ByteCell {
        /// Copies `len` bytes from private memory at `src` to shared memory at `dst`.
        ///
        /// # Safety
        /// Both ranges are valid for `len` bytes, do not overlap, and no honest party touches `dst` meanwhile.
        #[inline(always)]
        pub unsafe fn copy_in(dst: *const ByteCell, src: *const u8, len: usize) {
            // SAFETY: passed on to the caller; ByteCell is transparent over an UnsafeCell, so writing through it is allowed.
            unsafe { src.copy_to_nonoverlapping(dst.cast::<u8>().cast_mut(), len) }
        }

        /// The same past the caches: what is written is in none of them afterwards. For a copy of many bytes that another core will read.
        ///
        /// # Safety
        /// As there.
        pub unsafe fn copy_in_past_caches(dst: *const ByteCell, src: *const u8, len: usize) {
            const UNIT: usize = 16;
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            if dst.addr().is_multiple_of(UNIT) {
                use core::arch::x86_64::{_mm_loadu_si128, _mm_sfence, _mm_stream_si128};
                let whole = len - len % UNIT;
                // SAFETY: passed on to the caller; the fence orders these writes before all that follow, as others would be.
                unsafe {
                    for at in (0..whole).step_by(UNIT) {
                        let bytes = _mm_loadu_si128(src.add(at).cast());
                        _mm_stream_si128(dst.cast::<u8>().add(at).cast_mut().cast(), bytes);
                    }
                    Self::copy_in(dst.add(whole), src.add(whole), len - whole);
                    _mm_sfence();
                }
                return;
            }
            // SAFETY: passed on to the caller.
            unsafe { Self::copy_in(dst, src, len) }
        }

        /// [`ByteCell::copy_in`] of at most [`SHORT`](super::SHORT) bytes.
        ///
        /// # Safety
        /// As there.
        #[inline(always)]
        pub unsafe fn copy_in_short(dst: *const ByteCell, src: *const u8, len: usize) {
            // SAFETY: as above.
            unsafe { super::copy_short(src, dst.cast::<u8>().cast_mut(), len) }
        }

        /// Copies `len` bytes from shared memory at `src` to private memory at `dst`.
        ///
        /// # Safety
        /// Both ranges are valid for `len` bytes, do not overlap, and no honest party writes `src` meanwhile. A hostile
        /// one may: then the bytes copied are arbitrary, and nothing else happens.
        #[inline(always)]
        pub unsafe fn copy_out(src: *const ByteCell, dst: *mut u8, len: usize) {
            // SAFETY: passed on to the caller.
            unsafe { src.cast::<u8>().copy_to_nonoverlapping(dst, len) }
        }
    }

    /// Whether a consumer of much data does well to [`evict`] what it has read. On AMD's processors, writing to a line that
    /// another core has read is so much slower than writing to one that no core has, that streams of 4 KiB go 1.4 times as
    /// fast between cores that share a cache, and 4 times between those that do not (Zen 4). Not known of others: there, no.
    pub fn evicting_pays() -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{__cpuid, __cpuid_count};
            const CLFLUSHOPT: u32 = 1 << 23;
            // Older compilers call these unsafe.
            #[allow(unused_unsafe)]
            // SAFETY: every processor of this architecture has the instruction; leaf 7 is asked for only where it exists.
            unsafe {
                let vendor = __cpuid(0);
                let amd =
                    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == *b"AuthenticAMD";
                amd && vendor.eax >= 7 && __cpuid_count(7, 0).ebx & CLFLUSHOPT != 0
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Writes a cache line back to memory and drops it from all caches. Its contents stay, only the time of access changes.
    ///
    /// # Safety
    /// [`evicting_pays`] on this processor; `line` points into mapped memory.
    #[inline(always)]
    pub unsafe fn evict(line: *const ByteCell) {
        // SAFETY: the processor has the instruction, says the caller; it changes no memory and no register.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }

    /// Fetches a cache line for writing, on processors of which [`evicting_pays`] may be true.
    #[inline(always)]
    pub fn prefetch(line: *const ByteCell) {
        // SAFETY: a hint; it changes no memory and no register, whatever the address.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }

    /// Whether this process answers the barriers of others (registers on the first call).
    pub fn membarrier_registered() -> bool {
        static DONE: OnceLock<bool> = OnceLock::new();
        *DONE.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED))
    }

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call takes integers only.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// The rare side's half: a full barrier here and, where the kernel can, in every registered process of the host. False: the kernel
    /// could before, and did not now.
    pub fn heavy_barrier() -> bool {
        atomic::fence(Ordering::SeqCst);
        let made = !membarrier_registered() || membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED);
        // A return from the kernel is no barrier for the compiler by itself.
        atomic::fence(Ordering::SeqCst);
        made
    }

    /// The frequent side's half. `remote` says that the other side's heavy barrier reaches this process, so that only the
    /// compiler has to keep the order.
    #[inline(always)]
    pub fn light_barrier(remote: bool) {
        if remote {
            atomic::compiler_fence(Ordering::SeqCst);
        } else {
            atomic::fence(Ordering::SeqCst);
        }
    }
}

#[cfg(loom)]
#[allow(missing_docs, dead_code)]
mod imp {
    use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    pub struct ByteCell(UnsafeCell<u8>);

    impl ByteCell {
        pub fn new() -> Self {
            ByteCell(UnsafeCell::new(0))
        }

        pub unsafe fn copy_in(dst: *const ByteCell, src: *const u8, len: usize) {
            for i in 0..len {
                // SAFETY: passed on to the caller.
                unsafe { (*dst.add(i)).0.with_mut(|p| *p = *src.add(i)) }
            }
        }

        pub unsafe fn copy_in_short(dst: *const ByteCell, src: *const u8, len: usize) {
            // SAFETY: passed on to the caller.
            unsafe { Self::copy_in(dst, src, len) }
        }

        pub unsafe fn copy_in_past_caches(dst: *const ByteCell, src: *const u8, len: usize) {
            // SAFETY: passed on to the caller.
            unsafe { Self::copy_in(dst, src, len) }
        }

        pub unsafe fn copy_out(src: *const ByteCell, dst: *mut u8, len: usize) {
            for i in 0..len {
                // SAFETY: passed on to the caller.
                unsafe { *dst.add(i) = (*src.add(i)).0.with(|p| *p) }
            }
        }
    }

    pub fn evicting_pays() -> bool {
        false
    }

    pub unsafe fn evict(_line: *const ByteCell) {}

    pub fn prefetch(_line: *const ByteCell) {}

    pub fn membarrier_registered() -> bool {
        false
    }

    // Loom knows no membarrier; a full fence on both sides is what it stands for.
    pub fn heavy_barrier() -> bool {
        fence(Ordering::SeqCst);
        true
    }

    pub fn light_barrier(_remote: bool) {
        fence(Ordering::SeqCst);
    }
}
