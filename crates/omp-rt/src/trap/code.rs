//! Atomic instructions in the program's code: where they are, what they work on, and breakpoints in their place.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register as Name};
use polyrail_omp::code::bytes;
use polyrail_omp::coherence::operation::{Done, Effect, Operation, What, Width};

use super::functions::Functions;
use super::order;
use super::waits::{self, Wait};
use crate::modules;
use crate::{raw, sys};

/// A general-purpose register, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its place in `ucontext_t`.
    index: u8,
    width: Width,
    /// Bits 8 to 15 (`ah` and its like).
    high: bool,
}

/// Places in `ucontext_t` by the processor's numbers (rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8...).
const INDICES: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

impl Register {
    fn of(name: Name) -> Option<Register> {
        if !name.is_gpr() {
            return None;
        }
        let index = INDICES[name.full_register().number()] as u8;
        let high = matches!(name, Name::AH | Name::BH | Name::CH | Name::DH);
        Some(Register { index, width: Width::of(name.size())?, high })
    }

    /// The part of rax that an instruction of that width compares with.
    pub fn accumulator(width: Width) -> Register {
        Register { index: libc::REG_RAX as u8, width, high: false }
    }

    pub fn get(self, registers: &[i64; 23]) -> u64 {
        let whole = registers[usize::from(self.index)] as u64;
        match self.width {
            Width::Byte if self.high => whole >> 8 & 0xff,
            Width::Byte => whole & 0xff,
            Width::Word => whole & 0xffff,
            Width::Double => whole & 0xffff_ffff,
            _ => whole,
        }
    }

    pub fn set(self, registers: &mut [i64; 23], value: u64) {
        let whole = &mut registers[usize::from(self.index)];
        let old = *whole as u64;
        *whole = match self.width {
            Width::Byte if self.high => old & !0xff00 | (value & 0xff) << 8,
            Width::Byte => old & !0xff | value & 0xff,
            Width::Word => old & !0xffff | value & 0xffff,
            // writing the lower half clears the upper
            Width::Double => value & 0xffff_ffff,
            _ => value,
        } as i64;
    }
}

/// What an instruction has besides the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    None,
    Value(u64),
    Register(Register),
}

/// One atomic instruction of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub address: usize,
    pub length: usize,
    pub kind: What,
    pub width: Width,
    pub operand: Operand,
    /// It changes nothing, on the stack or at all: a fence, OpenMP's `flush` as GCC compiles it.
    pub fence: bool,
    /// Whether what else the thread writes and reads is ordered by it.
    pub effect: Effect,
    base: Option<Register>,
    index: Option<Register>,
    scale: u64,
    displacement: u64,
    /// Relative to the thread's own storage.
    local: bool,
}

impl Site {
    pub fn of(instruction: &Instruction) -> Option<Site> {
        if instruction.mnemonic() == Mnemonic::Mfence {
            return Some(Site::fence(instruction));
        }
        let memory = instruction.op0_kind() == OpKind::Memory;
        if !memory || !(instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg) {
            // an exchange may also name the register first
            return None;
        }
        let kind = match instruction.mnemonic() {
            Mnemonic::Add => What::Add,
            Mnemonic::Sub => What::Sub,
            Mnemonic::And => What::And,
            Mnemonic::Or => What::Or,
            Mnemonic::Xor => What::Xor,
            Mnemonic::Inc => What::Inc,
            Mnemonic::Dec => What::Dec,
            Mnemonic::Neg => What::Neg,
            Mnemonic::Not => What::Not,
            Mnemonic::Adc => What::AddCarry,
            Mnemonic::Sbb => What::SubBorrow,
            Mnemonic::Bts => What::SetBit,
            Mnemonic::Btr => What::ClearBit,
            Mnemonic::Btc => What::FlipBit,
            Mnemonic::Xadd => What::ExchangeAdd,
            Mnemonic::Xchg => What::Exchange,
            Mnemonic::Cmpxchg => What::CompareExchange,
            Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b => What::CompareExchangePair,
            _ => return None,
        };
        let operand = match instruction.op1_kind() {
            _ if instruction.op_count() < 2 => Operand::None,
            OpKind::Register => Operand::Register(Register::of(instruction.op1_register())?),
            _ => Operand::Value(instruction.immediate(1)),
        };
        let relative = matches!(instruction.memory_base(), Name::RIP | Name::EIP);
        let base = (!relative).then(|| Register::of(instruction.memory_base())).flatten();
        let changes_nothing = operand == Operand::Value(0) && matches!(kind, What::Or | What::Add);
        Some(Site {
            address: instruction.ip() as usize,
            length: instruction.len(),
            kind,
            width: Width::of(instruction.memory_size().size())?,
            operand,
            fence: changes_nothing && instruction.memory_base() == Name::RSP,
            effect: Effect::Full,
            base,
            index: Register::of(instruction.memory_index()),
            scale: instruction.memory_index_scale().into(),
            // iced has made it absolute where it was relative to the instruction
            displacement: instruction.memory_displacement64(),
            local: instruction.segment_prefix() == Name::FS,
        })
    }

    /// GCC's `flush` where it optimizes for size, or for processors that are quick at it.
    fn fence(instruction: &Instruction) -> Site {
        Site {
            address: instruction.ip() as usize,
            length: instruction.len(),
            kind: What::Or,
            width: Width::Quad,
            operand: Operand::Value(0),
            fence: true,
            effect: Effect::Full,
            base: None,
            index: None,
            scale: 1,
            displacement: 0,
            local: false,
        }
    }

    /// The place that it works on, if that is the same each time.
    pub fn fixed(&self) -> Option<usize> {
        (self.base.is_none() && self.index.is_none() && !self.local).then_some(self.displacement as usize)
    }

    /// The place that it works on.
    pub fn place(&self, registers: &[i64; 23]) -> usize {
        let of = |register: Option<Register>| register.map_or(0, |register| register.get(registers));
        let place = of(self.base)
            .wrapping_add(of(self.index).wrapping_mul(self.scale))
            .wrapping_add(self.displacement)
            .wrapping_add(if self.local { thread_pointer() } else { 0 });
        place as usize
    }
}

/// The base of the thread's own storage, which stands at its own begin (x86-64 psABI, TLS variant II).
pub fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: reads the first word of the thread's control block
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly)) };
    pointer
}

/// What there is in the program and in its own libraries, in order of addresses.
#[derive(Default)]
pub struct Found {
    /// All atomic instructions.
    pub sites: Vec<Site>,
    /// Which variables their functions load and store plainly.
    pub loaded: BTreeSet<usize>,
    /// Jumps of loops that wait.
    pub waits: Vec<Wait>,
}

/// Looks for them; for loops that wait only if that is wanted.
pub fn find(wants_waits: bool) -> Found {
    let mut found = Found::default();
    let mut loaded = Vec::new();
    let mut function = Vec::new();
    let mut functions = Functions::start(wants_waits);
    for module in modules::shared() {
        let (mut updates, of_module) = (Vec::new(), found.sites.len());
        let mut interesting = Vec::new();
        for Range { start, end } in functions.of(&module) {
            // SAFETY: inside an executable segment
            let code = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) };
            let (is_atomic, has_loops) =
                (bytes::may_be_atomic(code), wants_waits && bytes::may_jump_back(code));
            if !is_atomic && !has_loops {
                continue;
            }
            decode(code, start as u64, &mut function);
            let (first, waits) = (found.sites.len(), found.waits.len());
            if has_loops {
                found.waits.extend(waits::of(&module, &function));
            }
            if is_atomic {
                found.sites.extend(function.iter().filter_map(Site::of));
            }
            let sites = &found.sites[first..];
            if !sites.is_empty() || found.waits.len() > waits {
                interesting.push(start..end);
            }
            if !sites.is_empty() {
                updates.extend(order::updates(&module, &function, sites));
                let plain =
                    function.iter().filter(|one| one.is_ip_rel_memory_operand() && Site::of(one).is_none());
                loaded.extend(plain.map(|one| one.memory_displacement64() as usize));
            }
        }
        functions.keep(&module, interesting);
        order::only_updates(&module, &updates, &mut found.sites[of_module..]);
    }
    found.loaded = loaded.into_iter().collect();
    found.sites.sort_by_key(|site| site.address);
    found.sites.dedup_by_key(|site| site.address);
    found.waits.sort_by_key(|wait| wait.address);
    // a loop in a loop: the outer one's, which goes on wherever the inner one does
    found.waits.dedup_by_key(|wait| wait.address);
    found
}

/// Puts what the code of a function at `address` is made of in place of what was there.
fn decode(code: &[u8], address: u64, function: &mut Vec<Instruction>) {
    function.clear();
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    while decoder.can_decode() {
        // in its place at once: it is large
        let at = function.len();
        function.push(Instruction::default());
        decoder.decode_out(&mut function[at]);
        if function[at].code() == Code::INVALID {
            function.pop();
        }
    }
}

/// Puts a breakpoint in place of an instruction.
///
/// # Safety
/// An instruction of the program begins there, and no thread runs program code.
pub unsafe fn put(address: usize) {
    const PAGE: usize = polyrail_omp::layout::PAGE;
    let page = address & !(PAGE - 1);
    let all = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as usize;
    let as_before = (libc::PROT_READ | libc::PROT_EXEC) as usize;
    // SAFETY: the caller's
    unsafe {
        if raw::call(libc::SYS_mprotect, [page, PAGE, all, 0, 0, 0]) != 0 {
            sys::fail(format_args!(
                "the program's code at {page:#x} cannot be made writable, as its atomic instructions need"
            ));
        }
        (address as *mut u8).write_volatile(0xcc);
        raw::call(libc::SYS_mprotect, [page, PAGE, as_before, 0, 0, 0]);
    }
}

/// Puts what the instruction at `site` leaves in registers there.
pub fn results(operation: &Operation, done: &Done, site: &Site, registers: &mut [i64; 23]) {
    match operation.kind {
        What::ExchangeAdd | What::Exchange => {
            if let Operand::Register(register) = site.operand {
                register.set(registers, done.before.0);
            }
        }
        What::CompareExchange if !operation.equal(done.before) => {
            Register::accumulator(operation.width).set(registers, done.before.0);
        }
        What::CompareExchangePair if !operation.equal(done.before) => {
            let (low, high) = match operation.width {
                Width::Quad => (done.before.0 & 0xffff_ffff, done.before.0 >> 32),
                _ => done.before,
            };
            registers[libc::REG_RAX as usize] = low as i64;
            registers[libc::REG_RDX as usize] = high as i64;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(code: &[u8]) -> Option<Site> {
        Site::of(&Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode())
    }

    #[test]
    fn instructions_are_understood() {
        let mut registers = [0; 23];
        registers[libc::REG_RDI as usize] = 0x100;
        registers[libc::REG_RCX as usize] = 3;
        registers[libc::REG_RAX as usize] = 0x1234_5678_9abc_def0;
        // lock add dword [rdi + rcx * 4 + 8], 5
        let site = one(&[0xf0, 0x83, 0x44, 0x8f, 0x08, 0x05]).unwrap();
        assert_eq!((site.kind, site.width, site.operand), (What::Add, Width::Double, Operand::Value(5)));
        assert_eq!((site.place(&registers), site.length, site.fence), (0x114, 6, false));
        // lock cmpxchg [rip + 0x10], rdx
        let site = one(&[0xf0, 0x48, 0x0f, 0xb1, 0x15, 0x10, 0, 0, 0]).unwrap();
        assert_eq!((site.kind, site.place(&registers)), (What::CompareExchange, 0x1019));
        // lock or qword [rsp], 0: a fence
        assert!(one(&[0xf0, 0x48, 0x83, 0x0c, 0x24, 0x00]).unwrap().fence);
        // mfence, and the other two, which order nothing that others see
        assert!(one(&[0x0f, 0xae, 0xf0]).is_some_and(|site| site.fence && site.length == 3));
        assert_eq!((one(&[0x0f, 0xae, 0xe8]), one(&[0x0f, 0xae, 0xf8])), (None, None));
        // xchg [rdi], ah; mov [rdi], eax; lock-less add
        let site = one(&[0x86, 0x27]).unwrap();
        let Operand::Register(register) = site.operand else { panic!() };
        assert_eq!(register.get(&registers), 0xde);
        register.set(&mut registers, 0x11);
        assert_eq!(registers[libc::REG_RAX as usize], 0x1234_5678_9abc_11f0);
        assert_eq!(one(&[0x89, 0x07]), None);
        assert_eq!(one(&[0x01, 0x07]), None);
        // lock inc, neg, cmpxchg16b, and adding a negative immediate
        assert_eq!(one(&[0xf0, 0x48, 0xff, 0x07]).unwrap().kind, What::Inc);
        assert_eq!(one(&[0xf0, 0x48, 0x0f, 0xc7, 0x0f]).unwrap().width, Width::Sixteen);
        assert_eq!(one(&[0xf0, 0x48, 0x83, 0x07, 0xff]).unwrap().operand, Operand::Value(u64::MAX));
    }

    #[test]
    fn fs_is_the_thread_pointer() {
        assert_ne!(thread_pointer(), 0);
    }
}
