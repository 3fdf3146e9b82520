//! How a thread computes with floating point: rounding, what traps, whether tiny numbers count as zero. What serial code has set holds for all threads of its regions.

use core::arch::asm;

/// The control registers of SSE and x87.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floating {
    sse: u32,
    x87: u16,
}

/// Bits of the SSE register that say what has happened, and are no setting.
const HAPPENED: u32 = 0x3f;

impl Floating {
    /// What a program begins with (x86-64 ABI, 3.4.1).
    pub const DEFAULT: Self = Self { sse: 0x1f80, x87: 0x37f };

    /// The calling thread's.
    pub fn now() -> Self {
        let mut now = Self { sse: 0, x87: 0 };
        // SAFETY: stores both registers
        unsafe {
            asm!("stmxcsr [{}]", in(reg) &raw mut now.sse, options(nostack, preserves_flags));
            asm!("fnstcw [{}]", in(reg) &raw mut now.x87, options(nostack, preserves_flags));
        }
        now.sse &= !HAPPENED;
        now
    }

    /// The calling thread computes so from now on.
    pub fn take(self) {
        let now = Self::now();
        if now == self {
            return;
        }
        // SAFETY: what a thread of the program had; what has happened is forgotten, so that what traps from now on is not taken for having happened
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const self.sse, options(nostack, preserves_flags));
            asm!("fldcw [{}]", in(reg) &raw const self.x87, options(nostack, preserves_flags));
        }
    }

    /// As it travels.
    pub fn to_word(self) -> usize {
        self.sse as usize | usize::from(self.x87) << 32
    }

    /// The reverse.
    pub fn from_word(word: usize) -> Self {
        Self { sse: word as u32, x87: (word >> 32) as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_computes_as_another_does() {
        let upward = Floating { sse: Floating::DEFAULT.sse | 2 << 13, x87: Floating::DEFAULT.x87 | 2 << 10 };
        assert_eq!(Floating::from_word(upward.to_word()), upward);
        let before = Floating::now();
        assert_eq!(before, Floating::DEFAULT);
        upward.take();
        let now = Floating::now();
        before.take();
        assert_eq!(now, upward);
        assert_eq!(Floating::now(), before);
    }
}
