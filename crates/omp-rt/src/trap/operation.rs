//! What the `lock`-prefixed instructions of x86-64 do (Intel SDM, volume 2), as operations on a place in memory.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::code::Site;

/// Of the operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    Byte = 1,
    Word = 2,
    Double = 4,
    Quad = 8,
    Sixteen = 16,
}

impl Width {
    pub fn of(bytes: usize) -> Option<Width> {
        Some(match bytes {
            1 => Width::Byte,
            2 => Width::Word,
            4 => Width::Double,
            8 => Width::Quad,
            16 => Width::Sixteen,
            _ => return None,
        })
    }

    pub fn bytes(self) -> usize {
        self as usize
    }

    fn mask(self) -> u64 {
        if self.bytes() >= 8 { u64::MAX } else { (1 << (self.bytes() * 8)) - 1 }
    }

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
                        .compare_exchange(
                            before.0 as $int,
                            after.0 as $int,
                            Ordering::SeqCst,
                            Ordering::SeqCst,
                        )
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
}

/// # Safety
/// As [`Width::replace`].
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
/// As [`Width::replace`]; the place is aligned to 16, as the instruction demands.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    Add = 1,
    Sub,
    And,
    Or,
    Xor,
    Inc,
    Dec,
    Neg,
    Not,
    AddCarry,
    SubBorrow,
    SetBit,
    ClearBit,
    FlipBit,
    ExchangeAdd,
    Exchange,
    CompareExchange,
    /// `cmpxchg8b`, `cmpxchg16b`: rdx:rax against, rcx:rbx in.
    CompareExchangePair,
}

impl What {
    const ALL: [What; 18] = [
        What::Add,
        What::Sub,
        What::And,
        What::Or,
        What::Xor,
        What::Inc,
        What::Dec,
        What::Neg,
        What::Not,
        What::AddCarry,
        What::SubBorrow,
        What::SetBit,
        What::ClearBit,
        What::FlipBit,
        What::ExchangeAdd,
        What::Exchange,
        What::CompareExchange,
        What::CompareExchangePair,
    ];
}

/// What was in a place, for all that the asking rank knows, and what it stored there itself.
pub type Own = [[u8; 16]; 2];

/// One instruction with its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub kind: What,
    pub width: Width,
    /// The register's or the immediate value.
    pub operand: u64,
    /// rax, rdx.
    pub expected: (u64, u64),
    /// rbx, rcx.
    pub desired: (u64, u64),
    /// The carry flag before.
    pub carry: u64,
}

/// What was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub before: (u64, u64),
}

const CARRY: u64 = 1;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;

impl Operation {
    /// The place that a bit operation with a bit number in a register means: such numbers reach beyond the operand.
    pub fn reach(&self, place: usize, by_register: bool) -> usize {
        if by_register && matches!(self.kind, What::SetBit | What::ClearBit | What::FlipBit) {
            let bits = self.width.bytes() as i64 * 8;
            let number = match self.width {
                Width::Word => i64::from(self.operand as i16),
                Width::Double => i64::from(self.operand as i32),
                _ => self.operand as i64,
            };
            return place.wrapping_add_signed((number.div_euclid(bits) * self.width.bytes() as i64) as isize);
        }
        place
    }

    fn bit(&self) -> u64 {
        1 << (self.operand % (self.width.bytes() as u64 * 8))
    }

    /// Whether what is to be compared was there.
    fn equal(&self, before: (u64, u64)) -> bool {
        let mask = self.width.mask();
        match (self.kind, self.width) {
            (What::CompareExchangePair, Width::Quad) => {
                before.0 == (self.expected.0 & 0xffff_ffff | self.expected.1 << 32)
            }
            (What::CompareExchangePair, _) => before == self.expected,
            _ => before.0 == self.expected.0 & mask,
        }
    }

    /// What is there after it.
    pub fn after(&self, done: &Done) -> (u64, u64) {
        let (mask, before, operand) = (self.width.mask(), done.before.0, self.operand);
        let value = match self.kind {
            What::Add | What::ExchangeAdd => before.wrapping_add(operand),
            What::Sub => before.wrapping_sub(operand),
            What::And => before & operand,
            What::Or => before | operand,
            What::Xor => before ^ operand,
            What::Inc => before.wrapping_add(1),
            What::Dec => before.wrapping_sub(1),
            What::Neg => before.wrapping_neg(),
            What::Not => !before,
            What::AddCarry => before.wrapping_add(operand).wrapping_add(self.carry),
            What::SubBorrow => before.wrapping_sub(operand).wrapping_sub(self.carry),
            What::SetBit => before | self.bit(),
            What::ClearBit => before & !self.bit(),
            What::FlipBit => before ^ self.bit(),
            What::Exchange => operand,
            What::CompareExchange => {
                if self.equal(done.before) {
                    operand
                } else {
                    before
                }
            }
            What::CompareExchangePair if !self.equal(done.before) => return done.before,
            What::CompareExchangePair if self.width == Width::Quad => {
                self.desired.0 & 0xffff_ffff | self.desired.1 << 32
            }
            What::CompareExchangePair => return self.desired,
        };
        (value & mask, 0)
    }

    /// Does it, as one step.
    ///
    /// # Safety
    /// The program's own instruction could.
    pub unsafe fn run(&self, place: usize) -> Done {
        loop {
            // SAFETY: the caller's
            unsafe {
                let before = Width::load(place, self.width.bytes());
                let done = Done { before };
                if Width::replace(place, self.width.bytes(), before, self.after(&done)) {
                    return done;
                }
            }
        }
    }

    /// The flags that it leaves, and which it changes (auxiliary carry and parity are not told: no compiler asks for them here).
    pub fn flags(&self, done: &Done) -> (u64, u64) {
        let shift = 64 - self.width.bytes().min(8) as u32 * 8;
        let (before, operand) = (done.before.0 << shift, self.operand << shift);
        let after = self.after(done).0 << shift;
        let result = |after: u64| if after == 0 { ZERO } else { 0 } | if after >> 63 != 0 { SIGN } else { 0 };
        let sum = |a: u64, b: u64, carry: u64| {
            let (sum, one) = a.overflowing_add(b);
            let (sum, two) = sum.overflowing_add(carry << shift);
            let overflow = ((a ^ sum) & (b ^ sum)) >> 63 != 0;
            result(sum) | if one || two { CARRY } else { 0 } | if overflow { OVERFLOW } else { 0 }
        };
        let difference = |a: u64, b: u64, borrow: u64| {
            let (rest, one) = a.overflowing_sub(b);
            let (rest, two) = rest.overflowing_sub(borrow << shift);
            let overflow = ((a ^ b) & (a ^ rest)) >> 63 != 0;
            result(rest) | if one || two { CARRY } else { 0 } | if overflow { OVERFLOW } else { 0 }
        };
        let all = CARRY | ZERO | SIGN | OVERFLOW;
        let one = 1 << shift;
        match self.kind {
            What::Add | What::ExchangeAdd => (sum(before, operand, 0), all),
            What::Sub => (difference(before, operand, 0), all),
            What::AddCarry => (sum(before, operand, self.carry), all),
            What::SubBorrow => (difference(before, operand, self.carry), all),
            What::Neg => (difference(0, before, 0), all),
            What::And | What::Or | What::Xor => (result(after), all),
            What::Inc => (sum(before, one, 0), all & !CARRY),
            What::Dec => (difference(before, one, 0), all & !CARRY),
            What::SetBit | What::ClearBit | What::FlipBit => {
                (u64::from(done.before.0 & self.bit() != 0), CARRY)
            }
            What::CompareExchange => (difference(self.expected.0 << shift, before, 0), all),
            What::CompareExchangePair => (if self.equal(done.before) { ZERO } else { 0 }, ZERO),
            What::Not | What::Exchange => (0, 0),
        }
    }

    /// Puts what it leaves in registers there.
    pub fn results(&self, done: &Done, site: &Site, registers: &mut [i64; 23]) {
        match self.kind {
            What::ExchangeAdd | What::Exchange => {
                if let super::code::Operand::Register(register) = site.operand {
                    register.set(registers, done.before.0);
                }
            }
            What::CompareExchange if !self.equal(done.before) => {
                super::code::Register::accumulator(self.width).set(registers, done.before.0);
            }
            What::CompareExchangePair if !self.equal(done.before) => {
                let (low, high) = match self.width {
                    Width::Quad => (done.before.0 & 0xffff_ffff, done.before.0 >> 32),
                    _ => done.before,
                };
                registers[libc::REG_RAX as usize] = low as i64;
                registers[libc::REG_RDX as usize] = high as i64;
            }
            _ => {}
        }
    }

    /// Changes nothing.
    pub fn none(width: Width) -> Self {
        // all zero in place of all zero is nothing, too
        let kind = if width == Width::Sixteen { What::CompareExchangePair } else { What::Or };
        Self { kind, width, operand: 0, expected: (0, 0), desired: (0, 0), carry: 0 }
    }

    /// As it travels, with the place, and what the asking rank itself stored there before.
    pub fn to_bytes(self, place: usize, own: Option<Own>) -> Vec<u8> {
        let mut bytes =
            vec![self.kind as u8, self.width as u8, u8::from(own.is_some()), self.carry as u8, 0, 0, 0, 0];
        let words =
            [place as u64, self.operand, self.expected.0, self.expected.1, self.desired.0, self.desired.1];
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(own.unwrap_or_default().as_flattened());
        bytes
    }

    /// The reverse of [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(bytes: &[u8]) -> Option<(Operation, usize, Option<Own>)> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let (words, rest) = rest.split_first_chunk::<48>()?;
        let ([known, stored], []) = rest.as_chunks() else { return None };
        let word = |at: usize| u64::from_ne_bytes(words[at * 8..at * 8 + 8].try_into().unwrap_or_default());
        let kind = *What::ALL.get(usize::from(head[0]).checked_sub(1)?)?;
        let width = Width::of(head[1].into())?;
        let operation = Operation {
            kind,
            width,
            operand: word(1),
            expected: (word(2), word(3)),
            desired: (word(4), word(5)),
            carry: u64::from(head[3] & 1),
        };
        Some((operation, word(0) as usize, (head[2] != 0).then_some([*known, *stored])))
    }
}

impl Done {
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.before.0.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.before.1.to_ne_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Done> {
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Done { before: (word(0)?, word(8)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                        let done = unsafe { operation.run(&raw mut ours as usize) };
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
    fn as_it_travels() {
        for kind in What::ALL {
            let operation = Operation {
                kind,
                width: Width::Double,
                operand: 7,
                expected: (1, 2),
                desired: (3, 4),
                carry: 1,
            };
            let bytes = operation.to_bytes(0x1234, Some([[9; 16], [8; 16]]));
            assert_eq!(Operation::from_bytes(&bytes), Some((operation, 0x1234, Some([[9; 16], [8; 16]]))));
            assert_eq!(Operation::from_bytes(&bytes[1..]), None);
        }
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
            assert_eq!(operation.flags(&operation.run(place)).0, ZERO);
            assert_eq!(pair.0, [3, 4]);
            operation.expected = (9, 9);
            assert_eq!(operation.flags(&operation.run(place)).0, 0);
        }
        assert_eq!(pair.0, [3, 4]);
    }
}
