//! Which bytes of a page differ from its twin.

use crate::layout::PAGE;

/// A page's bytes.
pub type Page = [u8; PAGE];

/// Bytes of a page: byte `64 * w + b` is bit `b` of word `w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Mask(pub [u64; PAGE / 64]);

impl Mask {
    /// No byte.
    pub const NONE: Self = Self([0; PAGE / 64]);
    /// Every byte.
    pub const ALL: Self = Self([!0; PAGE / 64]);

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(0, |all, line| all | line) == 0
    }
    /// How many bytes.
    pub fn count(&self) -> usize {
        self.0.iter().map(|line| line.count_ones() as usize).sum()
    }
    /// Adds the bytes `from..to`.
    pub fn set(&mut self, from: usize, to: usize) {
        for line in from / 64..to.div_ceil(64) {
            let low = !0 << (from.max(64 * line) - 64 * line);
            let high = !0 >> (64 * (line + 1) - to.min(64 * (line + 1)));
            self.0[line] |= low & high;
        }
    }
    /// Leaves of it what is in `from..to`.
    pub fn keep(&mut self, from: usize, to: usize) {
        let mut kept = Self::NONE;
        kept.set(from, to);
        self.0.iter_mut().zip(kept.0).for_each(|(line, kept)| *line &= kept);
    }
    /// The lowest byte.
    pub fn first(&self) -> Option<usize> {
        let line = self.0.iter().position(|line| *line != 0)?;
        Some(64 * line + self.0[line].trailing_zeros() as usize)
    }
    /// Both.
    pub fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|line| self.0[line] & other.0[line]))
    }
    /// Either.
    pub fn or(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|line| self.0[line] | other.0[line]))
    }
    /// Copies these bytes of `from`, and touches no other byte of `to`.
    pub fn copy(&self, from: &Page, to: &mut Page) {
        for (line, &mask) in self.0.iter().enumerate() {
            let at = 64 * line;
            if mask == !0 {
                to[at..at + 64].copy_from_slice(&from[at..at + 64]);
                continue;
            }
            let mut left = mask;
            while left != 0 {
                let start = left.trailing_zeros() as usize;
                let length = (left >> start).trailing_ones() as usize;
                to[at + start..at + start + length].copy_from_slice(&from[at + start..at + start + length]);
                if start + length == 64 {
                    break;
                }
                left &= !0 << (start + length);
            }
        }
    }
}

/// The bytes of `page` that are not as in `twin`.
pub fn diff(page: &Page, twin: &Page) -> Mask {
    let mut mask = Mask::NONE;
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bw") {
        // SAFETY: the processor has it.
        unsafe { x86::avx512(page, twin, &mut mask) }
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        unsafe { x86::avx2(page, twin, &mut mask) }
    } else {
        x86::sse2(page, twin, &mut mask);
    }
    #[cfg(not(target_arch = "x86_64"))]
    plain(page, twin, &mut mask);
    mask
}

/// Whether every byte is zero.
pub fn is_zero(page: &Page) -> bool {
    page.chunks_exact(128).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn plain(page: &Page, twin: &Page, mask: &mut Mask) {
    for (i, (a, b)) in page.iter().zip(twin).enumerate() {
        mask.0[i / 64] |= u64::from(a != b) << (i % 64);
    }
}

/// Whoever compares may stand on a stack that is in the page: what is there of his own, below what the program has of it, says nothing, and is
/// loaded by instructions, not by copies to places that must not be in the page.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Mask, PAGE, Page};
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx512bw")]
    pub fn avx512(page: &Page, twin: &Page, mask: &mut Mask) {
        for (line, out) in mask.0.iter_mut().enumerate() {
            // SAFETY: both reads are of 64 bytes inside a page.
            *out = unsafe {
                let a = _mm512_maskz_loadu_epi8(!0, page.as_ptr().add(64 * line).cast());
                let b = _mm512_maskz_loadu_epi8(!0, twin.as_ptr().add(64 * line).cast());
                _mm512_cmpneq_epi8_mask(a, b)
            };
        }
    }

    #[target_feature(enable = "avx2")]
    pub fn avx2(page: &Page, twin: &Page, mask: &mut Mask) {
        let equal = |at: usize| {
            debug_assert!(at + 32 <= PAGE);
            // SAFETY: both reads are of 32 bytes inside a page.
            unsafe {
                let a = _mm256_lddqu_si256(page.as_ptr().add(at).cast());
                let b = _mm256_lddqu_si256(twin.as_ptr().add(at).cast());
                u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b)) as u32)
            }
        };
        for (line, out) in mask.0.iter_mut().enumerate() {
            *out = !(equal(64 * line) | equal(64 * line + 32) << 32);
        }
    }

    pub fn sse2(page: &Page, twin: &Page, mask: &mut Mask) {
        let equal = |at: usize| {
            let half =
                |of: &Page, at: usize| i64::from_ne_bytes(*of[at..].first_chunk().expect("inside a page"));
            // SAFETY: every x86-64 processor has SSE2.
            unsafe {
                let a = _mm_set_epi64x(half(page, at + 8), half(page, at));
                let b = _mm_set_epi64x(half(twin, at + 8), half(twin, at));
                u64::from(_mm_movemask_epi8(_mm_cmpeq_epi8(a, b)) as u32)
            }
        };
        for (line, out) in mask.0.iter_mut().enumerate() {
            let at = 64 * line;
            *out = !(equal(at) | equal(at + 16) << 16 | equal(at + 32) << 32 | equal(at + 48) << 48);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_way_of_comparing_finds_the_same(changes in prop::collection::vec((0..PAGE, any::<u8>()), 0..300)) {
            let twin: Page = std::array::from_fn(|i| (i * 7) as u8);
            let mut page = twin;
            changes.iter().for_each(|&(at, value)| page[at] = value);
            let mut expected = Mask::NONE;
            plain(&page, &twin, &mut expected);
            prop_assert_eq!(diff(&page, &twin), expected);
            #[cfg(target_arch = "x86_64")]
            {
                let mut mask = Mask::NONE;
                x86::sse2(&page, &twin, &mut mask);
                prop_assert_eq!(mask, expected);
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has it.
                    unsafe { x86::avx2(&page, &twin, &mut mask) };
                    prop_assert_eq!(mask, expected);
                }
            }
            let mut copy = twin;
            expected.copy(&page, &mut copy);
            prop_assert!(copy == page);
        }

        #[test]
        fn a_range_is_set_and_kept(from in 0..=PAGE, length in 0..=PAGE) {
            let to = (from + length).min(PAGE);
            let mut mask = Mask::NONE;
            mask.set(from, to);
            prop_assert_eq!(mask.count(), to - from);
            let mut kept = Mask::ALL;
            kept.keep(from, to);
            prop_assert_eq!(kept, mask);
            prop_assert_eq!(mask.first(), (from < to).then_some(from));
        }
    }

    #[test]
    fn only_zeros_are_zero() {
        let mut page = [0; PAGE];
        assert!(is_zero(&page));
        page[PAGE - 1] = 1;
        assert!(!is_zero(&page));
    }
}
