//! What code may have in it, by its bytes alone: most code has neither atomic instructions nor jumps back, and need not be decoded. What is said of bytes that are none is no harm.

/// Whether there may be atomic instructions in memory, or fences (Intel SDM, volume 2, "Instruction Format" and "Opcode Map").
pub fn may_be_atomic(code: &[u8]) -> bool {
    code.iter().enumerate().any(|(at, byte)| match byte {
        0xf0 => is_locked(&code[at + 1..]),
        0x86 | 0x87 => is_in_memory(code.get(at + 1)),
        // mfence: processors overlook the last three bits
        0x0f => matches!(code[at + 1..], [0xae, 0xf0..=0xf7, ..]),
        _ => false,
    })
}

/// Whether the byte says that what an instruction works on is in memory.
fn is_in_memory(byte: Option<&u8>) -> bool {
    byte.is_some_and(|byte| *byte < 0xc0)
}

/// Whether what is behind a `lock` may go on as instructions do that can have one.
fn is_locked(code: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let prefixes = code.iter().take_while(|byte| is_prefix(byte)).count();
    match code[prefixes..] {
        // bits, cmpxchg, xadd, cmpxchg8b and 16b
        [0x0f, 0xab | 0xb0 | 0xb1 | 0xb3 | 0xba | 0xbb | 0xc0 | 0xc1 | 0xc7, operand, ..] => {
            is_in_memory(Some(&operand))
        }
        // add, or, adc, sbb, and, sub, xor: of a register, and of a number
        [opcode @ ..0x34, operand, ..] => opcode & 6 == 0 && is_in_memory(Some(&operand)),
        [0x80..=0x83 | 0x86 | 0x87 | 0xf6 | 0xf7 | 0xfe | 0xff, operand, ..] => is_in_memory(Some(&operand)),
        _ => false,
    }
}

/// Whether there may be jumps back to where this code is, too.
pub fn may_jump_back(code: &[u8]) -> bool {
    let back =
        |at: usize, length: usize, by: i64| by < 0 && (at + length).checked_add_signed(by as isize).is_some();
    let far = |at: usize, length: usize| {
        let by = code.get(at + length - 4..).and_then(|rest| rest.first_chunk());
        by.is_some_and(|by| back(at, length, i32::from_le_bytes(*by).into()))
    };
    code.iter().enumerate().any(|(at, byte)| match byte {
        0x70..=0x7f | 0xeb => code.get(at + 1).is_some_and(|by| back(at, 2, by.cast_signed().into())),
        0x0f => matches!(code.get(at + 1), Some(0x80..=0x8f)) && far(at, 6),
        0xe9 => far(at, 5),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::is_atomic;
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, OpKind};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

        /// What is decoded is seen in the bytes.
        #[test]
        fn nothing_is_overlooked(
            prefixes in proptest::collection::vec(prop_oneof![Just(0xf0_u8), 0x40..0x50_u8, Just(0x66), Just(0x64), Just(0xf3), Just(0x67)], 0..4),
            begin in prop_oneof![any::<[u8; 2]>(), any::<u8>().prop_map(|byte| [0x0f, byte])],
            rest in any::<[u8; 12]>(),
            before in 0..40_usize,
        ) {
            let code = [&[0x90].repeat(before)[..], &prefixes, &begin, &rest].concat();
            let decoder = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE);
            for one in decoder {
                if one.is_invalid() {
                    continue;
                }
                prop_assert!(!is_atomic(&one) || may_be_atomic(&code), "{one:?}");
                let jumps = one.is_jcc_short_or_near() || one.is_jmp_short_or_near();
                let back = jumps && one.op0_kind() == OpKind::NearBranch64 && (0x1000..=one.ip()).contains(&one.near_branch_target());
                prop_assert!(!back || may_jump_back(&code), "{one:?}");
            }
        }
    }

    #[test]
    fn most_code_has_none() {
        // mov rax, rsi; ret; ja forward; lock add of a register is none
        let code = [0x48, 0x89, 0xf0, 0xc3, 0x77, 0x02, 0xf0, 0x01, 0xc0];
        assert!(!may_be_atomic(&code) && !may_jump_back(&code));
        // lock inc dword [rdi]; xchg [rdi], eax; mfence, and the other ways to write it
        let atomics: [&[u8]; 4] =
            [&[0xf0, 0xff, 0x07], &[0x87, 0x07], &[0x0f, 0xae, 0xf0], &[0x0f, 0xae, 0xf1]];
        assert!(atomics.into_iter().all(may_be_atomic));
        // to itself, and to before it
        assert_eq!([&[0xeb, 0xfe], &[0xeb, 0xfd]].map(|jump| may_jump_back(jump)), [true, false]);
    }
}
