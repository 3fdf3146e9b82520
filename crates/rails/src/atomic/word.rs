//! How an element's bytes are exchanged at once.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The bytes of one element.
pub trait Word: Copy {
    /// From the beginning of `bytes`, which hold at least one.
    fn get(bytes: &[u8]) -> Self;

    /// Appends the bytes.
    fn put(self, out: &mut Vec<u8>);

    /// Replaces the word at `at` by what `next` makes of it, or leaves it where that is nothing; returns the word before.
    /// `next` may be called several times.
    ///
    /// # Safety
    /// `at` is valid for reads, and for writes if `next` ever returns something; it may be unaligned.
    unsafe fn update(at: *mut u8, next: impl FnMut(Self) -> Option<Self>) -> Self;
}

/// For what the processor cannot exchange.
static LOCK: Mutex<()> = Mutex::new(());

/// [`Word::update`] under the lock.
///
/// # Safety
/// As for [`Word::update`].
unsafe fn locked<W: Word>(at: *mut u8, mut next: impl FnMut(W) -> Option<W>) -> W {
    let at = at.cast::<W>();
    // What the lock protects is whole whenever it is free, also after a panic.
    let _guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: readable, by the caller's promise; W is made of integers.
    let old = unsafe { at.read_unaligned() };
    if let Some(new) = next(old) {
        // SAFETY: writable, by the caller's promise.
        unsafe { at.write_unaligned(new) };
    }
    old
}

macro_rules! word {
    ($($int:ty: $atomic:ty),*) => {$(
        impl Word for $int {
            fn get(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(*bytes.first_chunk().expect("one word at least"))
            }

            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_ne_bytes());
            }

            unsafe fn update(at: *mut u8, mut next: impl FnMut(Self) -> Option<Self>) -> Self {
                let at = at.cast::<Self>();
                if !at.cast::<$atomic>().is_aligned() {
                    // SAFETY: by the caller's promise.
                    return unsafe { locked(at.cast(), next) };
                }
                // SAFETY: aligned, and valid by the caller's promise; a read-only word is only loaded.
                let cell = unsafe { <$atomic>::from_ptr(at) };
                let mut old = cell.load(Ordering::SeqCst);
                while let Some(new) = next(old) {
                    match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                        Ok(_) => break,
                        Err(now) => old = now,
                    }
                }
                old
            }
        }
    )*};
}
word!(u8: AtomicU8, u16: AtomicU16, u32: AtomicU32, u64: AtomicU64);

impl Word for u128 {
    fn get(bytes: &[u8]) -> Self {
        Self::from_ne_bytes(*bytes.first_chunk().expect("one word at least"))
    }

    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_ne_bytes());
    }

    unsafe fn update(at: *mut u8, next: impl FnMut(Self) -> Option<Self>) -> Self {
        #[cfg(target_arch = "x86_64")]
        if at.cast::<Self>().is_aligned() && wide::available() {
            // SAFETY: the instructions exist, the word is aligned, and valid by the caller's promise.
            return unsafe { wide::update(at.cast(), next) };
        }
        // SAFETY: by the caller's promise.
        unsafe { locked(at, next) }
    }
}

/// A word that no processor exchanges at once.
impl Word for [u128; 2] {
    fn get(bytes: &[u8]) -> Self {
        [u128::get(bytes), u128::get(&bytes[16..])]
    }

    fn put(self, out: &mut Vec<u8>) {
        self.iter().for_each(|half| half.put(out));
    }

    unsafe fn update(at: *mut u8, next: impl FnMut(Self) -> Option<Self>) -> Self {
        // SAFETY: by the caller's promise.
        unsafe { locked(at, next) }
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::asm;
    use std::arch::x86_64::{__m128i, _mm_load_si128};

    /// Both manufacturers promise that an aligned 16-byte load is atomic where there is AVX.
    pub fn available() -> bool {
        is_x86_feature_detected!("cmpxchg16b") && is_x86_feature_detected!("avx")
    }

    /// # Safety
    /// [`available`]; `at` is aligned, valid for reads, and for writes if `next` ever returns something.
    pub unsafe fn update(at: *mut u128, mut next: impl FnMut(u128) -> Option<u128>) -> u128 {
        // SAFETY: aligned and readable, by the caller's promise; both types are 16 plain bytes.
        let mut old = unsafe { std::mem::transmute::<__m128i, u128>(_mm_load_si128(at.cast())) };
        while let Some(new) = next(old) {
            // SAFETY: by the caller's promise.
            let now = unsafe { exchange(at, old, new) };
            if now == old {
                break;
            }
            old = now;
        }
        old
    }

    /// Stores `new` if `old` is there; returns what was there. Not core's `cmpxchg16b`, which in a build without optimisation
    /// calls a function of libatomic.
    ///
    /// # Safety
    /// The instruction exists; `at` is aligned and valid for writes.
    // The registers are named because one that the compiler may choose can be rbx itself.
    unsafe fn exchange(at: *mut u128, old: u128, new: u128) -> u128 {
        let (mut low, mut high) = (old as u64, (old >> 64) as u64);
        // SAFETY: by the caller's promise; rbx, which the compiler keeps for itself, is as before.
        unsafe {
            asm!(
                "xchg rsi, rbx",
                "lock cmpxchg16b [rdi]",
                "mov rbx, rsi",
                in("rdi") at,
                inout("rsi") new as u64 => _,
                in("rcx") (new >> 64) as u64,
                inout("rax") low,
                inout("rdx") high,
                options(nostack),
            );
        }
        u128::from(low) | u128::from(high) << 64
    }
}
