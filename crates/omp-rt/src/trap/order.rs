//! Which atomic operations may order other memory, as far as the program's code tells.
//!
//! Compilers make the same instructions of relaxed operations as of those that acquire and release. But whoever is to be ordered by one must learn what came of it. So an
//! operation whose outcome nobody looks at orders nothing behind it: `lock add` whose flags are not used, and a loop around `cmpxchg` that only replaces a value by what
//! was computed of it (how compilers add floating-point numbers). It may release what was written before to who observes the same variable by another operation.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register as Name,
};

use polyrail_omp::coherence::operation::{Effect, What};

use super::code::Site;
use crate::modules::Module;

/// An operation whose outcome nobody looks at.
pub struct Update {
    address: usize,
    /// Where its function begins, if somebody does unless that returns nothing.
    unless_void: Option<usize>,
}

/// Of the sites in one function.
pub fn updates(module: &Module, function: &[Instruction], sites: &[Site]) -> Vec<Update> {
    let mut code = Code { module, function, information: InstructionInfoFactory::new() };
    sites.iter().filter_map(|site| code.update(site)).collect()
}

/// Says of sites of a module that nobody looks at what comes of them.
pub fn only_updates(module: &Module, updates: &[Update], sites: &mut [Site]) {
    let asked: BTreeSet<usize> = updates.iter().filter_map(|update| update.unless_void).collect();
    let regions = regions(module, &asked);
    let is_one = |update: &&Update| update.unless_void.is_none_or(|function| regions.contains(&function));
    let only: BTreeSet<usize> = updates.iter().filter(is_one).map(|update| update.address).collect();
    for site in sites.iter_mut().filter(|site| only.contains(&site.address)) {
        site.effect = Effect::None;
    }
}

/// Says of those that nobody looks at whether others may observe what they leave: by plain loads, too, if they are
/// among those `loaded`, or the program `flushes`.
pub fn what_is_observed(sites: &mut [Site], loaded: &BTreeSet<usize>, flushes: bool) {
    let observed: Vec<Site> =
        sites.iter().filter(|site| !site.fence && site.effect == Effect::Full).copied().collect();
    for site in sites.iter_mut().filter(|site| site.effect == Effect::None) {
        let may_observe = |other: &Site| match (site.fixed(), other.fixed()) {
            (Some(one), Some(other)) => one == other,
            // floating-point numbers, and what else is computed in loops, are nobody's locks
            _ => site.kind != What::CompareExchange && site.width == other.width,
        };
        let is_loop = site.kind == What::CompareExchange;
        let is_loaded = flushes || site.fixed().is_some_and(|place| loaded.contains(&place));
        if observed.iter().any(may_observe) || is_loaded && !is_loop {
            site.effect = Effect::Release;
        }
    }
}

/// A set of registers: general-purpose ones, then vectors.
type Set = u64;
const VECTORS: u32 = 16;

/// The bit of a register in such a set.
pub fn register_bit(name: Name) -> u64 {
    bit(name)
}

fn bit(name: Name) -> Set {
    if name.is_gpr() {
        1 << name.full_register().number()
    } else if name.is_vector_register() {
        1 << (VECTORS + name.number() as u32)
    } else {
        0
    }
}

const RAX: Set = 1;
const RDX: Set = 1 << 2;
const XMM0: Set = 1 << VECTORS;
/// What functions get their arguments in: rdi, rsi, rdx, rcx, r8, r9, xmm0 to xmm7 (x86-64 psABI).
const ARGUMENTS: Set = 1 << 7 | 1 << 6 | RDX | 1 << 1 | 1 << 8 | 1 << 9 | 0xff << VECTORS;
/// What functions may change.
const CLOBBERED: Set = ARGUMENTS | RAX | 1 << 10 | 1 << 11 | 0xffff_ffff << VECTORS;

/// What a path through code reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    Nothing,
    /// Only if the function returns something.
    AtReturn,
    Something,
}

struct Code<'a> {
    module: &'a Module,
    function: &'a [Instruction],
    information: InstructionInfoFactory,
}

/// Instructions that are followed at most.
const STEPS: usize = 3000;
/// Instructions of a loop at most.
const LOOP: usize = 40;

impl Code<'_> {
    fn index(&self, address: u64) -> Option<usize> {
        self.function.binary_search_by_key(&address, Instruction::ip).ok()
    }

    fn update(&mut self, site: &Site) -> Option<Update> {
        let at = self.index(site.address as u64)?;
        let read = match site.kind {
            _ if site.fence => return None,
            What::ExchangeAdd | What::Exchange | What::CompareExchangePair => return None,
            What::CompareExchange => {
                let (behind, old, floating) = self.replacing(at)?;
                self.reads(behind, old, if floating { XMM0 } else { RAX })
            }
            _ if self.uses_flags(at + 1) => return None,
            _ => Read::Nothing,
        };
        let start = self.function.first()?.ip() as usize;
        match read {
            Read::Nothing => Some(Update { address: site.address, unless_void: None }),
            Read::AtReturn => Some(Update { address: site.address, unless_void: Some(start) }),
            Read::Something => None,
        }
    }

    /// Whether what follows looks at flags before it changes them.
    fn uses_flags(&self, from: usize) -> bool {
        for one in self.function.iter().skip(from).take(LOOP) {
            if one.rflags_read() != 0 {
                return true;
            }
            if one.rflags_modified() != 0 || !matches!(one.flow_control(), FlowControl::Next) {
                // a jump may lead to who looks at them; compilers do not put one between
                return matches!(one.flow_control(), FlowControl::UnconditionalBranch);
            }
        }
        false
    }

    /// Registers that an instruction reads, and that it sets as a whole.
    fn registers(&mut self, one: &Instruction) -> (Set, Set) {
        let same = one.op_count() == 2
            && one.op0_kind() == OpKind::Register
            && one.op1_kind() == OpKind::Register
            && one.op0_register() == one.op1_register();
        let zero = same
            && matches!(one.mnemonic(), Mnemonic::Xor | Mnemonic::Pxor | Mnemonic::Xorps | Mnemonic::Xorpd);
        let (mut read, mut set) = (0, 0);
        for used in self.information.info(one).used_registers() {
            let register = bit(used.register());
            match used.access() {
                OpAccess::Write if used.register().size() >= 4 => set |= register,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::NoMemAccess | OpAccess::None => {}
                OpAccess::ReadWrite if zero => set |= register,
                _ => read |= register,
            }
        }
        (read, set)
    }

    /// Of a `cmpxchg` in a loop that replaces a value by what is computed of it: where it goes on when that was done; registers that then have the old value, or what was
    /// computed of it; whether as a floating-point number.
    fn replacing(&mut self, at: usize) -> Option<(usize, Set, bool)> {
        // once around, for what one turn leaves for the next
        let (_, _, before) = self.turn(at, RAX)?;
        let (done, behind, again) = self.turn(at, before | RAX)?;
        let new = bit(self.function[at].op1_register());
        (before & new != 0).then_some((done, behind | new, again >> VECTORS != 0))
    }

    /// A turn of such a loop, from behind the `cmpxchg`: where it goes on when it was done; registers with old values there, if these had them before; and in the end.
    fn turn(&mut self, at: usize, mut tainted: Set) -> Option<(usize, Set, Set)> {
        let (mut done, mut compared) = (None, false);
        let mut next = at + 1;
        for _ in 0..LOOP {
            if next == at {
                let (next, behind) = done?;
                return Some((next, behind, tainted));
            }
            let one = *self.function.get(next)?;
            match one.flow_control() {
                FlowControl::Next => {
                    if done.is_none() && one.rflags_modified() != 0 {
                        // what was found, with what was expected
                        let registers = bit(one.op0_register()) | bit(one.op1_register());
                        if compared || one.mnemonic() != Mnemonic::Cmp || registers & RAX == 0 {
                            return None;
                        }
                        compared = true;
                    }
                    tainted = self.taint(&one, tainted)?;
                }
                FlowControl::UnconditionalBranch => {
                    next = self.index(one.near_branch_target())?;
                    continue;
                }
                FlowControl::ConditionalBranch if done.is_none() => {
                    let target = self.index(one.near_branch_target())?;
                    let (success, failure) = match one.mnemonic() {
                        Mnemonic::Jne => (next + 1, target),
                        Mnemonic::Je => (target, next + 1),
                        _ => return None,
                    };
                    done = Some((success, tainted));
                    next = failure;
                    continue;
                }
                _ => return None,
            }
            next += 1;
        }
        None
    }

    /// Registers with the old value in them behind an instruction; none if it leaves them.
    fn taint(&mut self, one: &Instruction, tainted: Set) -> Option<Set> {
        let (read, set) = self.registers(one);
        let memory = self.information.info(one).used_memory().iter();
        let (mut writes, mut follows) = (false, false);
        for place in memory {
            writes |= !matches!(place.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
            follows |= tainted & (bit(place.base()) | bit(place.index())) != 0;
        }
        if writes || follows && one.mnemonic() != Mnemonic::Lea {
            return None;
        }
        let changed = self.changed(one);
        Some(if read & tainted != 0 { tainted | changed } else { tainted & !set })
    }

    /// Registers that an instruction changes, be it in part.
    fn changed(&mut self, one: &Instruction) -> Set {
        let used = self.information.info(one).used_registers().iter();
        let changes = |access| {
            !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None)
        };
        used.filter(|used| changes(used.access())).fold(0, |all, used| all | bit(used.register()))
    }

    /// What of `registers` is read from instruction `from` on, whichever way it goes. `returned`: registers that have what the function returns, if it does.
    fn reads(&mut self, from: usize, registers: Set, returned: Set) -> Read {
        let mut looked: Vec<Set> = vec![0; self.function.len()];
        let mut to_do = vec![(from, registers)];
        let (mut steps, mut result) = (0, Read::Nothing);
        while let Some((at, registers)) = to_do.pop() {
            steps += 1;
            let Some(one) = self.function.get(at).copied().filter(|_| steps < STEPS) else {
                return Read::Something;
            };
            if registers & !looked[at] == 0 {
                continue;
            }
            looked[at] |= registers;
            let (read, set) = self.registers(&one);
            let target = || self.index(one.near_branch_target());
            match one.flow_control() {
                FlowControl::Return => {
                    if registers & returned != 0 {
                        result = Read::AtReturn;
                    }
                    continue;
                }
                FlowControl::Exception => continue,
                FlowControl::Call | FlowControl::IndirectCall => {
                    if read & registers & !CLOBBERED != 0
                        || !self.is_runtime(&one) && registers & ARGUMENTS != 0
                    {
                        return Read::Something;
                    }
                    to_do.push((at + 1, registers & !CLOBBERED));
                }
                _ if read & registers != 0 => return Read::Something,
                FlowControl::Next => to_do.push((at + 1, registers & !set)),
                FlowControl::ConditionalBranch => {
                    let Some(target) = target() else { return Read::Something };
                    to_do.extend([(at + 1, registers), (target, registers)]);
                }
                FlowControl::UnconditionalBranch => match target() {
                    Some(target) => to_do.push((target, registers)),
                    // a call whose return is this function's
                    None if self.is_runtime(&one) => {}
                    None => return Read::Something,
                },
                FlowControl::IndirectBranch if self.is_runtime(&one) => {}
                _ => return Read::Something,
            }
        }
        result
    }

    /// Whether an instruction calls a function of an OpenMP runtime: none of them is given what an operation leaves by accident.
    fn is_runtime(&self, one: &Instruction) -> bool {
        let runtimes = ["GOMP_", "__kmpc_", "omp_"];
        called(self.module, one).is_some_and(|name| runtimes.iter().any(|runtime| name.starts_with(runtime)))
    }
}

/// The function of another library that an instruction calls, by the loader's table of pointers.
pub fn called<'a>(module: &'a Module, one: &Instruction) -> Option<&'a str> {
    let slot = match one.op0_kind() {
        OpKind::Memory if one.is_ip_rel_memory_operand() => one.memory_displacement64() as usize,
        OpKind::NearBranch64 => slot(module, one.near_branch_target() as usize)?,
        _ => return None,
    };
    module.called_by(slot)
}

/// The pointer that a stub of the linker's jumps by.
fn slot(module: &Module, stub: usize) -> Option<usize> {
    /// Of a stub: where calls may go to, the jump.
    const BYTES: usize = 16;
    let is_inside = |one: &crate::modules::Segment| {
        one.executable && (one.start..one.end).contains(&stub) && stub + BYTES <= one.end
    };
    module.segments.iter().find(|one| is_inside(one))?;
    // SAFETY: inside an executable segment
    let code = unsafe { core::slice::from_raw_parts(stub as *const u8, BYTES) };
    // a jump by a pointer, maybe behind `endbr64` and a prefix that says nothing here: hardly a function begins so
    let jump = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    if !jump.strip_prefix(&[0xf2]).unwrap_or(jump).starts_with(&[0xff, 0x25]) {
        return None;
    }
    let mut decoder = Decoder::with_ip(64, code, stub as u64, DecoderOptions::NONE);
    let mut one = decoder.decode();
    if one.mnemonic() == Mnemonic::Endbr64 {
        one = decoder.decode();
    }
    (one.flow_control() == FlowControl::IndirectBranch && one.is_ip_rel_memory_operand())
        .then(|| one.memory_displacement64() as usize)
}

/// Those of `functions` that are given to others as what a region, or a task, is made of, and called by nobody: they return nothing.
fn regions(module: &Module, functions: &BTreeSet<usize>) -> BTreeSet<usize> {
    let (mut given, mut called) = (BTreeSet::new(), BTreeSet::new());
    if functions.is_empty() {
        return given;
    }
    for segment in module.segments.iter().filter(|segment| segment.executable) {
        // SAFETY: a segment of code, as long as that
        let code = unsafe { code_of(segment.start..segment.end) };
        for (at, bytes) in code.windows(7).enumerate() {
            let word =
                |at: usize| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let relative =
                |length: usize| (segment.start + at + length).wrapping_add_signed(word(length - 4) as isize);
            let (set, function) = match bytes {
                // lea rdi or rdx, [rip + ...]: GCC's first argument, LLVM's third
                [0x48, 0x8d, 0x3d | 0x15, ..] => (&mut given, relative(7)),
                // mov edi or edx, ...
                [0xbf | 0xba, ..] => (&mut given, word(1) as u32 as usize),
                [0xe8 | 0xe9, ..] => (&mut called, relative(5)),
                _ => continue,
            };
            if functions.contains(&function) {
                set.insert(function);
            }
        }
    }
    given.difference(&called).copied().collect()
}

/// # Safety
/// A segment of code.
unsafe fn code_of(range: Range<usize>) -> &'static [u8] {
    // SAFETY: the caller's
    unsafe { core::slice::from_raw_parts(range.start as *const u8, range.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::Code as Decoded;

    /// Orders of the sites in a function, if it returns nothing and is nobody's, and if it is known to be a region's.
    fn orders(code: &[u8]) -> Vec<(bool, bool)> {
        let decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
        let function: Vec<_> = decoder.into_iter().filter(|one| one.code() != Decoded::INVALID).collect();
        let sites: Vec<_> = function.iter().filter_map(Site::of).collect();
        let module = crate::modules::all().swap_remove(0);
        let found = updates(&module, &function, &sites);
        let update = |site: &Site| found.iter().find(|update| update.address == site.address);
        let is_update = |site| {
            let update: Option<&Update> = update(site);
            (update.is_some_and(|update| update.unless_void.is_none()), update.is_some())
        };
        sites.iter().map(is_update).collect()
    }

    /// `mov rax, [rdi]; again: movq xmm1, rax; addsd xmm1, xmm0; movq rcx, xmm1; lock cmpxchg [rdi], rcx; jne again`
    const ADD: [u8; 25] = [
        0x48, 0x8b, 0x07, 0x66, 0x48, 0x0f, 0x6e, 0xc8, 0xf2, 0x0f, 0x58, 0xc8, 0x66, 0x48, 0x0f, 0x7e, 0xc9,
        0xf0, 0x48, 0x0f, 0xb1, 0x0f, 0x75, 0xeb, 0x90,
    ];

    #[test]
    fn an_update_in_a_loop_orders_nothing_if_nobody_looks() {
        // ret
        assert_eq!(orders(&[&ADD[..], &[0xc3]].concat()), [(true, true)]);
        // movapd xmm0, xmm1; ret: what is returned is what was stored
        assert_eq!(orders(&[&ADD[..], &[0x66, 0x0f, 0x28, 0xc1, 0xc3]].concat()), [(false, false)]);
        // cmp rax, 5; ret
        assert_eq!(orders(&[&ADD[..], &[0x48, 0x83, 0xf8, 0x05, 0xc3]].concat()), [(false, false)]);
        // xor eax, eax; xor ecx, ecx; xorps xmm1, xmm1; call rbx; ret: nothing of it is left for the function called
        let cleared = [0x31, 0xc0, 0x31, 0xc9, 0x0f, 0x57, 0xc9, 0xff, 0xd3, 0xc3];
        assert_eq!(orders(&[&ADD[..], &cleared].concat()), [(true, true)]);
        // call rbx; ret: rcx may be an argument
        assert_eq!(orders(&[&ADD[..], &[0xff, 0xd3, 0xc3]].concat()), [(false, false)]);
    }

    #[test]
    fn a_loop_that_takes_a_lock_orders() {
        // mov edx, 1; again: xor eax, eax; lock cmpxchg [rdi], edx; jne again; ret
        let lock = [0xba, 1, 0, 0, 0, 0x31, 0xc0, 0xf0, 0x0f, 0xb1, 0x17, 0x75, 0xf8, 0xc3];
        assert_eq!(orders(&lock), [(false, false)]);
        // mov eax, [rdi]; again: mov ecx, eax; or ecx, 4; lock cmpxchg [rdi], ecx; jne again; ret: the old value, if anything is returned
        let or = [0x8b, 0x07, 0x89, 0xc1, 0x83, 0xc9, 0x04, 0xf0, 0x0f, 0xb1, 0x0f, 0x75, 0xf5, 0xc3];
        assert_eq!(orders(&or), [(false, true)]);
        // mov rax, [rdi]; again: mov rcx, [rax]; lock cmpxchg [rdi], rcx; jne again; ret: takes from a list
        let take = [0x48, 0x8b, 0x07, 0x48, 0x8b, 0x08, 0xf0, 0x48, 0x0f, 0xb1, 0x0f, 0x75, 0xf6, 0xc3];
        assert_eq!(orders(&take), [(false, false)]);
    }

    #[test]
    fn flags_are_an_outcome() {
        // lock dec dword [rdi]; je +0; ret, and without the jump; lock xadd [rdi], eax; ret
        assert_eq!(orders(&[0xf0, 0xff, 0x0f, 0x74, 0x00, 0xc3]), [(false, false)]);
        assert_eq!(orders(&[0xf0, 0xff, 0x0f, 0xc3]), [(true, true)]);
        assert_eq!(orders(&[0xf0, 0x0f, 0xc1, 0x07, 0xc3]), [(false, false)]);
    }

    #[test]
    fn an_update_of_what_is_observed_releases() {
        let decode = |code: &[u8]| {
            let one = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
            Site::of(&one).unwrap()
        };
        // lock inc dword [rip], lock xadd [rip + 0xffff], eax, at one place and at another; lock inc qword [rdi]
        let mut update = decode(&[0xf0, 0xff, 0x05, 9, 0, 0, 0]);
        update.effect = Effect::None;
        let same = decode(&[0xf0, 0x0f, 0xc1, 0x05, 8, 0, 0, 0]);
        let other = decode(&[0xf0, 0x0f, 0xc1, 0x05, 0xff, 0, 0, 0]);
        let mut wide = decode(&[0xf0, 0x48, 0xff, 0x07]);
        wide.effect = Effect::None;
        let pointed = decode(&[0xf0, 0x0f, 0xc1, 0x07]);
        let order = |mut sites: [Site; 3]| {
            what_is_observed(&mut sites, &BTreeSet::new(), false);
            sites.map(|site| site.effect)
        };
        assert_eq!(update.fixed(), same.fixed());
        assert_eq!(order([update, same, wide]), [Effect::Release, Effect::Full, Effect::None]);
        assert_eq!(order([update, other, wide]), [Effect::None, Effect::Full, Effect::None]);
        assert_eq!(order([update, pointed, wide]), [Effect::Release, Effect::Full, Effect::None]);
        let mut sites = [update, wide];
        what_is_observed(&mut sites, &BTreeSet::from([update.fixed().unwrap()]), false);
        assert_eq!(sites.map(|site| site.effect), [Effect::Release, Effect::None]);
        what_is_observed(&mut sites, &BTreeSet::new(), true);
        assert_eq!(sites.map(|site| site.effect), [Effect::Release; 2]);
    }
}
