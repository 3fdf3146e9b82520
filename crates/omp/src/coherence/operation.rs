//! What the `lock`-prefixed instructions of x86-64 do (Intel SDM, volume 2), as operations on a place in memory.

use super::host::Value;

/// Bytes of the operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// One.
    Byte = 1,
    /// Two.
    Word = 2,
    /// Four.
    Double = 4,
    /// Eight.
    Quad = 8,
    /// `cmpxchg16b` has so many.
    Sixteen = 16,
}

impl Width {
    /// So many bytes.
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

    /// How many.
    pub fn bytes(self) -> usize {
        self as usize
    }

    /// Its bits of a quad.
    pub fn mask(self) -> u64 {
        if self.bytes() >= 8 { u64::MAX } else { (1 << (self.bytes() * 8)) - 1 }
    }
}

/// What is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// `add`
    Add = 1,
    /// `sub`
    Sub,
    /// `and`
    And,
    /// `or`
    Or,
    /// `xor`
    Xor,
    /// `inc`
    Inc,
    /// `dec`
    Dec,
    /// `neg`
    Neg,
    /// `not`
    Not,
    /// `adc`
    AddCarry,
    /// `sbb`
    SubBorrow,
    /// `bts`
    SetBit,
    /// `btr`
    ClearBit,
    /// `btc`
    FlipBit,
    /// `xadd`
    ExchangeAdd,
    /// `xchg`
    Exchange,
    /// `cmpxchg`: rax against, the operand in.
    CompareExchange,
    /// `cmpxchg8b`, `cmpxchg16b`: rdx:rax against, rcx:rbx in.
    CompareExchangePair,
}

impl What {
    /// All of them.
    pub const ALL: [What; 18] = [
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

/// What comes before and behind an operation on all ranks if it does for the thread that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// What the thread wrote before comes before.
    Release,
    /// The thread sees behind it all that came before, too.
    Full,
}

/// What was in a place, for all that the asking rank knows, and what it stored there itself.
pub type Own = [Value; 2];

/// One instruction with its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub kind: What,
    /// To how many bytes.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Low and high eight bytes.
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
    pub fn equal(&self, before: (u64, u64)) -> bool {
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

    /// Changes nothing.
    pub fn none(width: Width) -> Self {
        // all zero in place of all zero is nothing, too
        let kind = if width == Width::Sixteen { What::CompareExchangePair } else { What::Or };
        Self { kind, width, operand: 0, expected: (0, 0), desired: (0, 0), carry: 0 }
    }

    /// Whether it is [`none`](Self::none).
    pub fn is_none(&self) -> bool {
        *self == Self { carry: self.carry, ..Self::none(self.width) }
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
    /// As it travels.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.before.0.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.before.1.to_ne_bytes());
        bytes
    }

    /// The reverse.
    pub fn from_bytes(bytes: &[u8]) -> Option<Done> {
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Done { before: (word(0)?, word(8)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
