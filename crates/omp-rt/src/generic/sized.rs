//! libatomic's functions for objects of 1, 2, 4, 8 and 16 bytes, which compilers call where they do not put instructions into the program (`std::atomic` of 16 bytes). They
//! may be mixed with instructions on the same object, so they are done where those are: in rank 0's memory, and order what those order.

use core::ffi::{c_int, c_void};

use polyrail_omp::coherence::operation::{Effect, Operation, What, Width};

use crate::team::here;
use crate::trap;

/// Replaces what is at `place` by what `f` makes of it; what was there.
fn replace(place: usize, width: Width, f: impl Fn(u128) -> u128) -> u128 {
    let mut before = operate(&Operation::none(width), place, Effect::None);
    loop {
        let found = compare_exchange(place, width, before, f(before));
        if found == before {
            return before;
        }
        before = found;
    }
}

fn load(place: usize, width: Width) -> u128 {
    operate(&Operation::none(width), place, Effect::Full)
}

/// What was there.
fn compare_exchange(place: usize, width: Width, expected: u128, desired: u128) -> u128 {
    let pair = |value: u128| (value as u64, (value >> 64) as u64);
    let kind = if width == Width::Sixteen { What::CompareExchangePair } else { What::CompareExchange };
    let operation = Operation {
        kind,
        width,
        operand: desired as u64,
        expected: pair(expected),
        desired: pair(desired),
        carry: 0,
    };
    operate(&operation, place, Effect::Full)
}

fn operate(operation: &Operation, place: usize, effect: Effect) -> u128 {
    let (low, high) = trap::operate(operation, place, effect, here().spread());
    u128::from(low) | u128::from(high) << 64
}

/// The functions for objects of type `$t`.
macro_rules! atomics {
    ($t:ty, $width:expr; $load:ident $store:ident $exchange:ident $compare_exchange:ident $test_and_set:ident;
        $($fetch:ident $after:ident $f:expr;)*) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $load(at: *const $t, _: c_int) -> $t {
            load(at as usize, $width) as $t
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $store(at: *mut $t, value: $t, _: c_int) {
            replace(at as usize, $width, |_| value.into());
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $exchange(at: *mut $t, value: $t, _: c_int) -> $t {
            replace(at as usize, $width, |_| value.into()) as $t
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $compare_exchange(
            at: *mut $t, expected: *mut c_void, desired: $t, _: c_int, _: c_int
        ) -> bool {
            // SAFETY: the program's object of that type, at any alignment
            let wanted = unsafe { expected.cast::<$t>().read_unaligned() };
            let found = compare_exchange(at as usize, $width, wanted.into(), desired.into()) as $t;
            if found != wanted {
                // SAFETY: as above
                unsafe { expected.cast::<$t>().write_unaligned(found) };
            }
            found == wanted
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $test_and_set(at: *mut $t, _: c_int) -> bool {
            replace(at as usize, $width, |_| 1) as $t != 0
        }
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $fetch(at: *mut $t, value: $t, _: c_int) -> $t {
                let f: fn($t, $t) -> $t = $f;
                replace(at as usize, $width, |before| f(before as $t, value).into()) as $t
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $after(at: *mut $t, value: $t, _: c_int) -> $t {
                let f: fn($t, $t) -> $t = $f;
                f(replace(at as usize, $width, |before| f(before as $t, value).into()) as $t, value)
            }
        )*
    };
}
atomics! { u8, Width::Byte;
    __atomic_load_1 __atomic_store_1 __atomic_exchange_1 __atomic_compare_exchange_1 __atomic_test_and_set_1;
    __atomic_fetch_add_1 __atomic_add_fetch_1 u8::wrapping_add;
    __atomic_fetch_sub_1 __atomic_sub_fetch_1 u8::wrapping_sub;
    __atomic_fetch_and_1 __atomic_and_fetch_1 |a, b| a & b;
    __atomic_fetch_or_1 __atomic_or_fetch_1 |a, b| a | b;
    __atomic_fetch_xor_1 __atomic_xor_fetch_1 |a, b| a ^ b;
    __atomic_fetch_nand_1 __atomic_nand_fetch_1 |a, b| !(a & b);
}
atomics! { u16, Width::Word;
    __atomic_load_2 __atomic_store_2 __atomic_exchange_2 __atomic_compare_exchange_2 __atomic_test_and_set_2;
    __atomic_fetch_add_2 __atomic_add_fetch_2 u16::wrapping_add;
    __atomic_fetch_sub_2 __atomic_sub_fetch_2 u16::wrapping_sub;
    __atomic_fetch_and_2 __atomic_and_fetch_2 |a, b| a & b;
    __atomic_fetch_or_2 __atomic_or_fetch_2 |a, b| a | b;
    __atomic_fetch_xor_2 __atomic_xor_fetch_2 |a, b| a ^ b;
    __atomic_fetch_nand_2 __atomic_nand_fetch_2 |a, b| !(a & b);
}
atomics! { u32, Width::Double;
    __atomic_load_4 __atomic_store_4 __atomic_exchange_4 __atomic_compare_exchange_4 __atomic_test_and_set_4;
    __atomic_fetch_add_4 __atomic_add_fetch_4 u32::wrapping_add;
    __atomic_fetch_sub_4 __atomic_sub_fetch_4 u32::wrapping_sub;
    __atomic_fetch_and_4 __atomic_and_fetch_4 |a, b| a & b;
    __atomic_fetch_or_4 __atomic_or_fetch_4 |a, b| a | b;
    __atomic_fetch_xor_4 __atomic_xor_fetch_4 |a, b| a ^ b;
    __atomic_fetch_nand_4 __atomic_nand_fetch_4 |a, b| !(a & b);
}
atomics! { u64, Width::Quad;
    __atomic_load_8 __atomic_store_8 __atomic_exchange_8 __atomic_compare_exchange_8 __atomic_test_and_set_8;
    __atomic_fetch_add_8 __atomic_add_fetch_8 u64::wrapping_add;
    __atomic_fetch_sub_8 __atomic_sub_fetch_8 u64::wrapping_sub;
    __atomic_fetch_and_8 __atomic_and_fetch_8 |a, b| a & b;
    __atomic_fetch_or_8 __atomic_or_fetch_8 |a, b| a | b;
    __atomic_fetch_xor_8 __atomic_xor_fetch_8 |a, b| a ^ b;
    __atomic_fetch_nand_8 __atomic_nand_fetch_8 |a, b| !(a & b);
}
atomics! { u128, Width::Sixteen;
    __atomic_load_16 __atomic_store_16 __atomic_exchange_16 __atomic_compare_exchange_16 __atomic_test_and_set_16;
    __atomic_fetch_add_16 __atomic_add_fetch_16 u128::wrapping_add;
    __atomic_fetch_sub_16 __atomic_sub_fetch_16 u128::wrapping_sub;
    __atomic_fetch_and_16 __atomic_and_fetch_16 |a, b| a & b;
    __atomic_fetch_or_16 __atomic_or_fetch_16 |a, b| a | b;
    __atomic_fetch_xor_16 __atomic_xor_fetch_16 |a, b| a ^ b;
    __atomic_fetch_nand_16 __atomic_nand_fetch_16 |a, b| !(a & b);
}
