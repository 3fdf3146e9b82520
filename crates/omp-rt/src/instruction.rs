//! What the `lock`-prefixed instructions of x86-64 do to memory.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use polyrail_omp::coherence::operation::{Done, Operation};

/// # Safety
/// `place` holds that many bytes.
pub unsafe fn load(place: usize, bytes: usize) -> (u64, u64) {
    // SAFETY: the caller's
    unsafe {
        match bytes {
            1 => ((*(place as *const u8)).into(), 0),
            2 => ((place as *const u16).read_unaligned().into(), 0),
            4 => ((place as *const u32).read_unaligned().into(), 0),
            8 => ((place as *const u64).read_unaligned(), 0),
            _ => ((place as *const u64).read_unaligned(), (place as *const u64).add(1).read_unaligned()),
        }
    }
}

/// Compares and exchanges; whether it was `before`.
///
/// # Safety
/// `place` is memory that atomic instructions of that width may work on.
pub unsafe fn replace(place: usize, bytes: usize, before: (u64, u64), after: (u64, u64)) -> bool {
    // SAFETY: the caller's; x86-64 lets atomic instructions work at any alignment
    unsafe {
        macro_rules! by {
            ($atomic:ty, $int:ty) => {
                <$atomic>::from_ptr(place as *mut $int)
                    .compare_exchange(before.0 as $int, after.0 as $int, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
            };
        }
        if bytes < 16 && !place.is_multiple_of(bytes) {
            return replace_unaligned(place, bytes, before.0, after.0);
        }
        match bytes {
            1 => by!(AtomicU8, u8),
            2 => by!(AtomicU16, u16),
            4 => by!(AtomicU32, u32),
            8 => by!(AtomicU64, u64),
            _ => replace_sixteen(place, before, after),
        }
    }
}

/// # Safety
/// As [`replace`].
unsafe fn replace_unaligned(place: usize, bytes: usize, before: u64, after: u64) -> bool {
    let equal: u8;
    // SAFETY: the caller's; Rust's atomics ask for alignment, the instruction does not
    unsafe {
        match bytes {
            2 => {
                core::arch::asm!("lock cmpxchg [{p}], {a:x}", "sete {e}", p = in(reg) place, a = in(reg) after,
                e = lateout(reg_byte) equal, inout("rax") before => _)
            }
            4 => {
                core::arch::asm!("lock cmpxchg [{p}], {a:e}", "sete {e}", p = in(reg) place, a = in(reg) after,
                e = lateout(reg_byte) equal, inout("rax") before => _)
            }
            _ => {
                core::arch::asm!("lock cmpxchg [{p}], {a:r}", "sete {e}", p = in(reg) place, a = in(reg) after,
                e = lateout(reg_byte) equal, inout("rax") before => _)
            }
        }
    }
    equal != 0
}

/// # Safety
/// As [`replace`]; the place is aligned to 16, as the instruction demands.
unsafe fn replace_sixteen(place: usize, before: (u64, u64), after: (u64, u64)) -> bool {
    let equal: u64;
    // SAFETY: the caller's; rbx is the compiler's, so it is put back, and neither operand may be in it
    unsafe {
        core::arch::asm!(
            "xchg rsi, rbx",
            "lock cmpxchg16b [rdi]",
            "mov rbx, rsi",
            "sete al",
            "movzx eax, al",
            in("rdi") place,
            inout("rsi") after.0 => _,
            in("rcx") after.1,
            inout("rax") before.0 => equal,
            inout("rdx") before.1 => _,
        );
    }
    equal != 0
}

/// Does it, as one step.
///
/// # Safety
/// The program's own instruction could.
pub unsafe fn run(operation: &Operation, place: usize) -> Done {
    loop {
        // SAFETY: the caller's
        unsafe {
            let before = load(place, operation.width.bytes());
            let done = Done { before };
            if replace(place, operation.width.bytes(), before, operation.after(&done)) {
                return done;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use polyrail_omp::coherence::operation::{What, Width};

    use super::*;

    /// Of the flags.
    const ZERO: u64 = 1 << 6;

    /// Each kind and width against the instruction itself, with its flags.
    #[test]
    fn as_the_processor_does_it() {
        macro_rules! against {
            ($kind:expr, $name:literal, $width:expr, $form:literal, $values:expr) => {
                for &before in &$values {
                    for &operand in &$values {
                        let mut memory: u64 = before;
                        let (mut register, flags): (u64, u64);
                        register = operand;
                        // SAFETY: a place of our own
                        unsafe {
                            core::arch::asm!("xor {z:e}, {z:e}", concat!("lock ", $name, " [{p}], {r", $form, "}"), "pushfq", "pop {f}",
                                p = in(reg) &mut memory, r = inout(reg) register, f = out(reg) flags, z = out(reg) _);
                        }
                        let mask = $width.mask();
                        let operation = Operation { kind: $kind, width: $width, operand, expected: (0, 0), desired: (0, 0), carry: 0 };
                        let mut ours: u64 = before;
                        // SAFETY: a place of our own
                        let done = unsafe { run(&operation, &raw mut ours as usize) };
                        assert_eq!(ours, memory, "{} {before:x} {operand:x}", $name);
                        let (ours, which) = operation.flags(&done);
                        assert_eq!(ours, flags & which, "flags of {} {before:x} {operand:x}", $name);
                        if $kind == What::ExchangeAdd {
                            assert_eq!(register & mask, done.before.0 & mask);
                        }
                    }
                }
            };
        }
        let values = [
            0u64,
            1,
            2,
            5,
            0x7f,
            0x80,
            0xff,
            0x7fff,
            0x8000,
            0xffff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            u64::MAX / 2,
            1 << 63,
            u64::MAX,
        ];
        macro_rules! widths {
            ($kind:expr, $name:literal) => {
                against!($kind, $name, Width::Word, ":x", values);
                against!($kind, $name, Width::Double, ":e", values);
                against!($kind, $name, Width::Quad, ":r", values);
            };
        }
        widths!(What::Add, "add");
        widths!(What::Sub, "sub");
        widths!(What::And, "and");
        widths!(What::Or, "or");
        widths!(What::Xor, "xor");
        widths!(What::AddCarry, "adc");
        widths!(What::SubBorrow, "sbb");
        widths!(What::ExchangeAdd, "xadd");
    }

    #[test]
    fn sixteen_bytes_at_once() {
        #[repr(align(16))]
        struct Pair([u64; 2]);
        let mut pair = Pair([1, 2]);
        let place = &raw mut pair as usize;
        let mut operation = Operation {
            kind: What::CompareExchangePair,
            width: Width::Sixteen,
            operand: 0,
            expected: (1, 2),
            desired: (3, 4),
            carry: 0,
        };
        // SAFETY: a place of our own
        unsafe {
            assert_eq!(operation.flags(&run(&operation, place)).0, ZERO);
            assert_eq!(pair.0, [3, 4]);
            operation.expected = (9, 9);
            assert_eq!(operation.flags(&run(&operation, place)).0, 0);
        }
        assert_eq!(pair.0, [3, 4]);
    }
}
