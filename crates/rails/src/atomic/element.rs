//! What the operations mean for each datatype (`fi_atomic(3)`).

use super::op;
use super::word::Word;

/// A datatype.
pub trait Element: Copy {
    /// Its bytes.
    type Word: Word;
    /// Stands for an operand that an operation does not have.
    const ZERO: Self;
    fn of(word: Self::Word) -> Self;
    fn word(self) -> Self::Word;
    /// Whether the operation means something.
    fn defines(op: u8) -> bool;
    /// What comes in the place of `old`; nothing where it stays. The operation is a defined one.
    fn next(op: u8, old: Self, operand: Self, comparand: Self) -> Option<Self>;
}

macro_rules! integer {
    ($($int:ty: $word:ty),*) => {$(
        impl Element for $int {
            type Word = $word;
            const ZERO: Self = 0;
            fn of(word: $word) -> Self {
                word as Self
            }
            fn word(self) -> $word {
                self as $word
            }
            fn defines(op: u8) -> bool {
                op <= op::DIFF
            }
            fn next(op: u8, old: Self, operand: Self, comparand: Self) -> Option<Self> {
                let truth = |value: bool| Some(Self::from(value));
                match op {
                    op::MIN => (operand < old).then_some(operand),
                    op::MAX => (operand > old).then_some(operand),
                    op::SUM => Some(old.wrapping_add(operand)),
                    op::DIFF => Some(old.wrapping_sub(operand)),
                    op::PROD => Some(old.wrapping_mul(operand)),
                    op::LOR => truth(old != 0 || operand != 0),
                    op::LAND => truth(old != 0 && operand != 0),
                    op::LXOR => truth((old != 0) != (operand != 0)),
                    op::BOR => Some(old | operand),
                    op::BAND => Some(old & operand),
                    op::BXOR => Some(old ^ operand),
                    op::MSWAP => Some((operand & comparand) | (old & !comparand)),
                    _ => exchange(op, &old, operand, &comparand),
                }
            }
        }
    )*};
}
integer!(i8: u8, u8: u8, i16: u16, u16: u16, i32: u32, u32: u32, i64: u64, u64: u64, i128: u128, u128: u128);

/// Write, and the swaps that compare: what they have in common for all types. A read changes nothing.
fn exchange<E: PartialOrd>(op: u8, old: &E, operand: E, comparand: &E) -> Option<E> {
    let swap = match op {
        op::WRITE => true,
        op::CSWAP => comparand == old,
        op::CSWAP_NE => comparand != old,
        op::CSWAP_LE => comparand <= old,
        op::CSWAP_LT => comparand < old,
        op::CSWAP_GE => comparand >= old,
        op::CSWAP_GT => comparand > old,
        _ => false,
    };
    swap.then_some(operand)
}

/// The arithmetic of a floating-point type, itself or inside a complex one.
pub trait Real: Element + PartialOrd {
    /// The bytes of a complex number of this type.
    type Pair: Word;
    const ONE: Self;
    fn pair(pair: Self::Pair) -> (Self, Self);
    fn join(re: Self, im: Self) -> Self::Pair;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
}

fn real_defines(op: u8) -> bool {
    op <= op::DIFF && !matches!(op, op::BOR | op::BAND | op::BXOR | op::MSWAP)
}

fn real_next<R: Real>(op: u8, old: R, operand: R, comparand: R) -> Option<R> {
    let truth = |value: bool| Some(if value { R::ONE } else { R::ZERO });
    let (a, b) = (old != R::ZERO, operand != R::ZERO);
    match op {
        op::MIN => (operand < old).then_some(operand),
        op::MAX => (operand > old).then_some(operand),
        op::SUM => Some(old.add(operand)),
        op::DIFF => Some(old.sub(operand)),
        op::PROD => Some(old.mul(operand)),
        op::LOR => truth(a || b),
        op::LAND => truth(a && b),
        op::LXOR => truth(a != b),
        _ => exchange(op, &old, operand, &comparand),
    }
}

macro_rules! float {
    ($($float:ty: $word:ty, $pair:ty),*) => {$(
        impl Element for $float {
            type Word = $word;
            const ZERO: Self = 0.0;
            fn of(word: $word) -> Self {
                Self::from_bits(word)
            }
            fn word(self) -> $word {
                self.to_bits()
            }
            fn defines(op: u8) -> bool {
                real_defines(op)
            }
            fn next(op: u8, old: Self, operand: Self, comparand: Self) -> Option<Self> {
                real_next(op, old, operand, comparand)
            }
        }

        impl Real for $float {
            type Pair = $pair;
            const ONE: Self = 1.0;
            fn pair(pair: $pair) -> (Self, Self) {
                (Self::from_bits(pair as $word), Self::from_bits((pair >> <$word>::BITS) as $word))
            }
            fn join(re: Self, im: Self) -> $pair {
                <$pair>::from(re.to_bits()) | <$pair>::from(im.to_bits()) << <$word>::BITS
            }
            fn add(self, other: Self) -> Self {
                self + other
            }
            fn sub(self, other: Self) -> Self {
                self - other
            }
            fn mul(self, other: Self) -> Self {
                self * other
            }
        }
    )*};
}
float!(f32: u32, u64, f64: u64, u128);

/// An ordered pair: the real part comes first in memory (this is a little-endian machine, see [`Real::pair`]).
#[derive(Clone, Copy)]
pub struct Complex<R> {
    re: R,
    im: R,
}

#[cfg(not(target_endian = "little"))]
compile_error!("the real part of a complex number is its word's low half");

impl<R: Real> Element for Complex<R> {
    type Word = R::Pair;
    const ZERO: Self = Self { re: R::ZERO, im: R::ZERO };
    fn of(word: R::Pair) -> Self {
        let (re, im) = R::pair(word);
        Self { re, im }
    }
    fn word(self) -> R::Pair {
        R::join(self.re, self.im)
    }
    fn defines(op: u8) -> bool {
        real_defines(op) && !matches!(op, op::MIN | op::MAX | op::CSWAP_LE..=op::CSWAP_GT)
    }
    fn next(op: u8, old: Self, operand: Self, comparand: Self) -> Option<Self> {
        let truth = |value: bool| Some(Self { re: if value { R::ONE } else { R::ZERO }, im: R::ZERO });
        let equal = |a: Self, b: Self| a.re == b.re && a.im == b.im;
        let (a, b) = (!equal(old, Self::ZERO), !equal(operand, Self::ZERO));
        match op {
            op::SUM => Some(Self { re: old.re.add(operand.re), im: old.im.add(operand.im) }),
            op::DIFF => Some(Self { re: old.re.sub(operand.re), im: old.im.sub(operand.im) }),
            op::PROD => Some(Self {
                re: old.re.mul(operand.re).sub(old.im.mul(operand.im)),
                im: old.re.mul(operand.im).add(old.im.mul(operand.re)),
            }),
            op::LOR => truth(a || b),
            op::LAND => truth(a && b),
            op::LXOR => truth(a != b),
            op::WRITE => Some(operand),
            op::CSWAP => equal(comparand, old).then_some(operand),
            op::CSWAP_NE => (!equal(comparand, old)).then_some(operand),
            _ => None,
        }
    }
}

/// `long double` of x86-64: 80 bits, and 48 that mean nothing but are kept.
#[derive(Clone, Copy)]
pub struct Extended(u128);

impl Extended {
    /// Whether this is what the compilers of this machine call `long double`.
    pub const EXISTS: bool = cfg!(target_arch = "x86_64");

    /// Numbers in their order, as integers; none for what is not a number. The two zeros are one.
    fn rank(self) -> Option<i128> {
        let magnitude = (self.0 & ((1 << 79) - 1)) as i128;
        let (exponent, fraction) = (magnitude >> 64, magnitude as u64);
        let is_number = exponent != 0x7fff || fraction << 1 == 0;
        is_number.then_some(if self.0 >> 79 & 1 == 1 { -magnitude } else { magnitude })
    }
}

impl PartialEq for Extended {
    fn eq(&self, other: &Self) -> bool {
        self.rank().is_some() && self.rank() == other.rank()
    }
}

impl PartialOrd for Extended {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.rank()?.partial_cmp(&other.rank()?)
    }
}

impl Element for Extended {
    type Word = u128;
    const ZERO: Self = Self(0);
    fn of(word: u128) -> Self {
        Self(word)
    }
    fn word(self) -> u128 {
        self.0
    }
    fn defines(op: u8) -> bool {
        real_defines(op)
    }
    fn next(op: u8, old: Self, operand: Self, comparand: Self) -> Option<Self> {
        real_next(op, old, operand, comparand)
    }
}

/// Only the x87 unit does this arithmetic exactly as the program's own `long double`.
macro_rules! x87 {
    ($instruction:literal, $a:expr, $b:expr) => {{
        let mut out = [0u8; 16];
        #[cfg(target_arch = "x86_64")]
        // SAFETY: 10 bytes are loaded from each operand and 10 stored to `out`, all 16 long; the x87 stack is as before.
        unsafe {
            std::arch::asm!(
                "fld tbyte ptr [{a}]",
                "fld tbyte ptr [{b}]",
                $instruction,
                "fstp tbyte ptr [{out}]",
                a = in(reg) &raw const $a.0,
                b = in(reg) &raw const $b.0,
                out = in(reg) &raw mut out,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        Extended(u128::from_ne_bytes(out))
    }};
}

impl Real for Extended {
    type Pair = [u128; 2];
    const ONE: Self = Self(0x3fff << 64 | 1 << 63);
    fn pair([re, im]: [u128; 2]) -> (Self, Self) {
        (Self(re), Self(im))
    }
    fn join(re: Self, im: Self) -> [u128; 2] {
        [re.0, im.0]
    }
    fn add(self, other: Self) -> Self {
        x87!("faddp", self, other)
    }
    fn sub(self, other: Self) -> Self {
        x87!("fsubp", self, other)
    }
    fn mul(self, other: Self) -> Self {
        x87!("fmulp", self, other)
    }
}
