//! Where a program's file has code, instruction by instruction: what the runtime looks through for atomic operations.
//!
//! Compilers write down where functions are, for exceptions (LSB, "Exception Frames"). Code that is not written down there (built without unwind tables, or assembler) is
//! decoded from where the code before it ends, and at symbols. It is taken for code if everything in it can be decoded and all jumps in it go to where instructions begin.
//! What is not is data, or has some between: where it looks like code around an atomic operation, nobody can tell.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{
    Code as Decoded, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register as Name,
};

pub mod bytes;
mod elf;
pub mod kept;

use elf::Elf;

/// A file's code, by addresses as in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// Instructions from begin to end.
    pub known: Vec<Range<u64>>,
    /// Maybe code, maybe data; as code, it would have an atomic operation here.
    pub unknown: Vec<u64>,
}

/// Looks at a file's bytes; none if it is no program or library for x86-64.
pub fn find(file: &[u8]) -> Option<Code> {
    let elf = Elf::new(file)?;
    let mut functions = elf.functions();
    functions.sort_unstable_by_key(|function| (function.start, function.end));
    let symbols = elf.symbols();
    let mut code = Code::default();
    for (section, bytes) in elf.code() {
        let mut at = section.start;
        for function in functions.iter().filter(|one| section.start <= one.start && one.end <= section.end) {
            if at < function.start {
                code.between(at..function.start, &section, bytes, &symbols);
            }
            at = at.max(function.end);
            code.known.push(function.clone());
        }
        if at < section.end {
            code.between(at..section.end, &section, bytes, &symbols);
        }
    }
    Some(code)
}

/// Whether an instruction is atomic in memory, or a fence.
pub fn is_atomic(one: &Instruction) -> bool {
    let in_memory = one.op0_kind() == OpKind::Memory || one.op1_kind() == OpKind::Memory;
    one.has_lock_prefix()
        || one.mnemonic() == Mnemonic::Mfence
        || one.mnemonic() == Mnemonic::Xchg && in_memory
}

impl Code {
    /// Why it cannot be run over several processes, if so.
    pub fn refusal(&self) -> Option<String> {
        let at = self.unknown.first()?;
        Some(format!(
            "at {at:#x} of it there may be an atomic instruction or data, as neither unwind tables nor symbols tell where functions are: build all code with \
             -fasynchronous-unwind-tables, and write .cfi_startproc and .cfi_endproc around assembler"
        ))
    }

    /// What no table speaks of.
    fn between(&mut self, gap: Range<u64>, section: &Range<u64>, bytes: &[u8], symbols: &BTreeSet<u64>) {
        let starts = symbols.range(gap.start + 1..gap.end).copied();
        let ends: Vec<u64> = starts.chain([gap.end]).collect();
        let mut from = gap.start;
        for to in ends {
            let Some(piece) = bytes.get((from - section.start) as usize..(to - section.start) as usize)
            else {
                return;
            };
            if !bytes::may_be_atomic(piece) && !bytes::may_jump_back(piece) {
                // whichever it is, nothing is to be found there
                from = to;
                continue;
            }
            match look(from, piece, section) {
                Look::Instructions => self.known.push(from..to),
                Look::Unclear(atomics) => self.unknown.extend(atomics),
            }
            from = to;
        }
    }
}

enum Look {
    Instructions,
    /// Where it would have atomic instructions.
    Unclear(Vec<u64>),
}

/// Instructions on both sides of an atomic one that look like code if it is code.
const AROUND: usize = 12;

fn look(from: u64, bytes: &[u8], section: &Range<u64>) -> Look {
    let all: Vec<Instruction> = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE).into_iter().collect();
    let begins: BTreeSet<u64> = all.iter().map(Instruction::ip).collect();
    let inside = from..from + bytes.len() as u64;
    let leads = |target: &u64| !inside.contains(target) || begins.contains(target);
    if all.iter().all(|one| !one.is_invalid() && target(one).is_none_or(|target| leads(&target))) {
        return Look::Instructions;
    }
    let is_credible = |one: &Instruction| {
        is_usual(one) && target(one).is_none_or(|target| leads(&target) && section.contains(&target))
    };
    let credible: Vec<bool> = all.iter().map(is_credible).collect();
    let around = |at: usize| &credible[at.saturating_sub(AROUND)..credible.len().min(at + AROUND + 1)];
    let atomics =
        all.iter().enumerate().filter(|(at, one)| is_atomic(one) && around(*at).iter().all(|it| *it));
    Look::Unclear(atomics.map(|(_, one)| one.ip()).collect())
}

/// Where an instruction goes.
fn target(one: &Instruction) -> Option<u64> {
    let flow = one.flow_control();
    let goes =
        matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call);
    (goes && one.op0_kind() == OpKind::NearBranch64).then(|| one.near_branch_target())
}

/// Whether programs have such instructions.
fn is_usual(one: &Instruction) -> bool {
    let odd = matches!(
        one.mnemonic(),
        Mnemonic::Loop
            | Mnemonic::Loope
            | Mnemonic::Loopne
            | Mnemonic::Jrcxz
            | Mnemonic::Jecxz
            | Mnemonic::Enter
            | Mnemonic::Xlatb
            | Mnemonic::Retf
            | Mnemonic::Iret
            | Mnemonic::Iretd
            | Mnemonic::Iretq
            | Mnemonic::Cmc
            | Mnemonic::Stc
            | Mnemonic::Clc
            | Mnemonic::Std
            | Mnemonic::Wait
            | Mnemonic::Lahf
            | Mnemonic::Sahf
    );
    let far =
        one.is_jmp_far() || one.is_jmp_far_indirect() || one.is_call_far() || one.is_call_far_indirect();
    let strange = !matches!(one.segment_prefix(), Name::None | Name::FS | Name::GS);
    // two bytes of zero
    let zero = one.code() == Decoded::Add_rm8_r8
        && one.len() == 2
        && one.memory_base() == Name::RAX
        && one.op1_register() == Name::AL;
    !(one.is_invalid()
        || zero
        || one.is_privileged()
        || odd
        || far
        || strange
        || one.flow_control() == FlowControl::Interrupt)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x1000;

    /// What a section with these bytes, and no tables, is taken for.
    fn section(bytes: &[u8], symbols: &[u64]) -> Code {
        let mut code = Code::default();
        let all = AT..AT + bytes.len() as u64;
        code.between(all.clone(), &all, bytes, &symbols.iter().copied().collect());
        code
    }

    /// `lock inc dword [rdi]` between moves.
    fn function() -> Vec<u8> {
        let moves = [0x48, 0x89, 0xf0].repeat(12);
        [moves.as_slice(), &[0xf0, 0xff, 0x07], &moves, &[0xc3]].concat()
    }

    /// All of it is code.
    fn all(bytes: &[u8]) -> Code {
        Code { known: std::iter::once(AT..AT + bytes.len() as u64).collect(), unknown: Vec::new() }
    }

    #[test]
    fn what_decodes_is_code() {
        let code = function();
        assert_eq!(section(&code, &[]), all(&code));
        // padding: nop, int3, zeros
        let padded = [&code[..], &[0x66, 0x90, 0xcc, 0xcc, 0, 0, 0, 0]].concat();
        assert_eq!(section(&padded, &[]), all(&padded));
    }

    #[test]
    fn what_is_between_data_is_unclear() {
        let data = [0x06, 0x07];
        let both = [&data[..], &function(), &data].concat();
        let found = section(&both, &[]);
        assert_eq!((found.known.as_slice(), found.unknown.as_slice()), (&[][..], &[AT + 2 + 36][..]));
        assert!(found.refusal().unwrap().starts_with("at 0x1026 of it"));
        // a symbol says where code begins again; what is before it has no atomic instruction
        let found = section(&both[..both.len() - 2], &[AT + 2]);
        assert_eq!(
            (found.known.as_slice(), found.refusal()),
            (core::slice::from_ref(&(AT + 2..AT + 78)), None)
        );
        // a jump into an instruction
        let jumps = [&[0xeb, 0x01][..], &function()].concat();
        assert_eq!(section(&jumps, &[]).unknown, [AT + 2 + 36]);
        // data that would be atomic instructions are not taken for code
        let table: Vec<u8> = (0..40).flat_map(|i| [0x87, 0, 0, 0, i, 6]).collect();
        assert_eq!(section(&table, &[]), Code::default());
    }

    #[test]
    fn this_program_is_understood() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let code = find(&file).unwrap();
        assert_eq!(code.unknown, []);
        let here = this_program_is_understood as *const () as u64 & 0xfff;
        assert!(code.known.len() > 1000 && code.known.iter().any(|one| one.start & 0xfff == here));
        assert_eq!((find(b""), find(&file[..64])), (None, Some(Code::default())));
    }

    /// Files below a directory, each once however many names it has.
    fn files(directory: &std::path::Path, found: &mut BTreeSet<std::path::PathBuf>) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                files(&path, found);
            } else if path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so")) {
                found.extend(path.canonicalize().ok().filter(|path| path.is_file()));
            }
        }
    }

    /// `cargo test --release -p polyrail-omp -- --ignored --nocapture libraries_of_this_system`
    #[test]
    #[ignore = "reads all libraries of this system"]
    fn libraries_of_this_system() {
        let mut paths = BTreeSet::new();
        for place in ["/lib", "/usr/lib", "/usr/local/lib"] {
            files(place.as_ref(), &mut paths);
        }
        let (mut libraries, mut refused) = (0, Vec::new());
        for path in paths {
            if let Some(code) = std::fs::read(&path).ok().and_then(|file| find(&file)) {
                libraries += 1;
                refused.extend(code.refusal().map(|why| format!("{}: {why}", path.display())));
            }
        }
        println!("{libraries} libraries, of which {} are refused", refused.len());
        refused.iter().for_each(|why| println!("{why}"));
        assert!(libraries > 0);
    }

    #[test]
    fn files_that_are_broken_do_no_harm() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let head = &file[..file.len().min(1 << 16)];
        for at in 0..head.len().min(4096) {
            let mut broken = head.to_vec();
            broken[at] ^= 0xff;
            find(&broken);
        }
        for end in (0..head.len()).step_by(97) {
            find(&head[..end]);
        }
    }
}
