//! Loops that wait for other threads: they do nothing but load, compare and pause, the same each time, so they end only if somebody else changes what they load.
//!
//! Compilers make the same instructions of `atomic read`, of atomic loads and of plain ones, so a thread that stores a flag and one that loads it leave no other trace of what orders
//! them. Where such a loop goes around or ends, the thread tells what it has changed and takes over what others have: as they go around, or it would wait for ever; as they
//! end, or it would go on with what was there before what the flag stands for.

use std::cell::{Cell, OnceCell};

use iced_x86::{
    ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register as Name,
};

use super::order::{called, register_bit};
use crate::modules::Module;
use crate::{ask, coherence};

/// A jump by which a waiting loop goes around or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub address: usize,
    /// Where it goes, and where if its condition does not hold; whether the loop goes on there.
    target: (usize, bool),
    next: (usize, bool),
    condition: ConditionCode,
}

// bits of RFLAGS (Intel SDM, volume 1)
const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;

impl Wait {
    fn of(jump: &Instruction, goes_on: impl Fn(u64) -> bool) -> Self {
        let side = |at: u64| (at as usize, goes_on(at));
        Self {
            address: jump.ip() as usize,
            target: side(jump.near_branch_target()),
            next: side(jump.next_ip()),
            condition: jump.condition_code(),
        }
    }

    /// Where it goes with these flags, and whether the loop goes on there.
    pub fn goes(&self, flags: u64) -> (usize, bool) {
        let is = |bit: u64| flags & bit != 0;
        let less = is(SIGN) != is(OVERFLOW);
        let holds = match self.condition {
            ConditionCode::o => is(OVERFLOW),
            ConditionCode::no => !is(OVERFLOW),
            ConditionCode::b => is(CARRY),
            ConditionCode::ae => !is(CARRY),
            ConditionCode::e => is(ZERO),
            ConditionCode::ne => !is(ZERO),
            ConditionCode::be => is(CARRY) || is(ZERO),
            ConditionCode::a => !is(CARRY) && !is(ZERO),
            ConditionCode::s => is(SIGN),
            ConditionCode::ns => !is(SIGN),
            ConditionCode::p => is(PARITY),
            ConditionCode::np => !is(PARITY),
            ConditionCode::l => less,
            ConditionCode::ge => !less,
            ConditionCode::le => less || is(ZERO),
            ConditionCode::g => !less && !is(ZERO),
            ConditionCode::None => true,
        };
        if holds { self.target } else { self.next }
    }
}

/// Instructions of a loop at most.
const LOOP: usize = 48;
/// Where a loop's first turn may stand apart: so many instructions before it.
const BEFORE: usize = 12;
/// Functions that a waiting loop may call.
const PAUSES: [&str; 8] = [
    "sched_yield",
    "pthread_yield",
    "thrd_yield",
    "usleep",
    "sleep",
    "nanosleep",
    "clock_nanosleep",
    "__errno_location",
];

/// The jumps of all waiting loops of a function.
pub fn of(module: &Module, function: &[Instruction]) -> Vec<Wait> {
    let start = function.first().map_or(0, Instruction::ip);
    let goes_back = |one: &Instruction| {
        one.op0_kind() == OpKind::NearBranch64 && (start..=one.ip()).contains(&one.near_branch_target())
    };
    let mut code = None;
    let mut all = Vec::new();
    for last in (0..function.len()).filter(|at| goes_back(&function[*at])) {
        let code = code.get_or_insert_with(|| Code::of(module, function));
        let Some(first) = code.target(last) else { continue };
        let between = code.between(first, last).filter(|nodes| code.waits(nodes, first));
        let nodes = between.or_else(|| code.natural(first, last).filter(|nodes| code.waits(nodes, first)));
        if let Some(nodes) = nodes {
            all.extend(code.jumps(&nodes, first, last));
        }
    }
    all
}

/// What an instruction does with what a turn of a loop may leave for the next.
struct Effect {
    reads: Set,
    /// Sets as a whole, or changes in part.
    sets: Set,
    changes: Set,
    /// It loads what other threads may change.
    loads: bool,
}

/// General-purpose and vector registers, flags, and words of the stack.
type Set = u64;
const FLAGS: Set = 1 << 48;
const FIRST_WORD: u32 = 49;
/// What functions leave changed: rax, rcx, rdx, rsi, rdi, r8 to r11, vectors, flags (x86-64 psABI).
const CLOBBERED: Set = 0xfc7 | 0xffff_ffff << 16 | FLAGS;

struct Code<'a> {
    module: &'a Module,
    function: &'a [Instruction],
    /// Jumps, by where they go, once that was asked for.
    sources: OnceCell<Vec<(u64, usize)>>,
    information: InstructionInfoFactory,
    /// rbp points to the function's own frame.
    has_frame: bool,
}

impl<'a> Code<'a> {
    fn of(module: &'a Module, function: &'a [Instruction]) -> Self {
        let has_frame = function.iter().take(8).any(sets_frame);
        let sources = OnceCell::new();
        Self { module, function, sources, information: InstructionInfoFactory::new(), has_frame }
    }

    /// Jumps to an instruction.
    fn sources(&self, to: usize) -> impl Iterator<Item = usize> + '_ {
        let sources = self.sources.get_or_init(|| {
            let leads = |one: &Instruction| {
                one.op0_kind() == OpKind::NearBranch64 && one.flow_control() != FlowControl::Call
            };
            let jumps = self.function.iter().enumerate().filter(|(_, one)| leads(one));
            let mut sources: Vec<_> = jumps.map(|(at, one)| (one.near_branch_target(), at)).collect();
            sources.sort_unstable();
            sources
        });
        let here = self.function[to].ip();
        let from = sources.partition_point(|source| source.0 < here);
        sources[from..].iter().take_while(move |source| source.0 == here).map(|source| source.1)
    }

    fn index(&self, address: u64) -> Option<usize> {
        self.function.binary_search_by_key(&address, Instruction::ip).ok()
    }

    /// As [`Code::index`], of what is hardly far from instruction `at`: an instruction has a byte at least.
    fn near(&self, at: usize, address: u64) -> Option<usize> {
        let here = self.function[at].ip();
        let far = usize::try_from(address.abs_diff(here)).ok()?;
        let (from, to) = match address < here {
            true => (at.saturating_sub(far), at),
            false => (at, self.function.len().min(at.saturating_add(far).saturating_add(1))),
        };
        let place = self.function[from..to].binary_search_by_key(&address, Instruction::ip).ok()?;
        Some(from + place)
    }

    /// Where instruction `at` jumps to, within the function.
    fn target(&self, at: usize) -> Option<usize> {
        let one = &self.function[at];
        let jumps =
            matches!(one.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
        let near = jumps && one.op0_kind() == OpKind::NearBranch64;
        // `loop` and `jrcxz` have no condition that flags tell
        let plain = one.condition_code() != ConditionCode::None || one.mnemonic() == Mnemonic::Jmp;
        (near && plain).then(|| self.near(at, one.near_branch_target())).flatten()
    }

    /// Whether what follows instruction `at` may come behind it.
    fn falls(&self, at: usize) -> bool {
        use FlowControl::{Call, ConditionalBranch, IndirectCall, Next};
        matches!(self.function[at].flow_control(), Next | ConditionalBranch | Call | IndirectCall)
    }

    /// A loop as compilers write it down when they optimize: what stands between.
    fn between(&self, first: usize, last: usize) -> Option<Vec<usize>> {
        if last - first >= LOOP {
            return None;
        }
        self.round(first, last, |at| (first..=last).contains(&at))
    }

    /// Of instructions that are `inside`, those that `first` leads to without leaving them, in order. None if one of them gets on, or `last` is none of them: then what is a jump back is
    /// not one of a loop, or the loop goes around by what stands elsewhere.
    fn round(&self, first: usize, last: usize, inside: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let mut nodes = Vec::new();
        let mut to_do = vec![first];
        while let Some(at) = to_do.pop() {
            if !inside(at) || !insert(&mut nodes, at) {
                continue;
            }
            if self.gets_on(&self.function[at]) {
                return None;
            }
            to_do.extend(self.falls(at).then_some(at + 1));
            to_do.extend(self.target(at));
        }
        nodes.binary_search(&last).is_ok().then_some(nodes)
    }

    /// A loop wherever its parts stand: all from where `last` is come to without passing `first`.
    fn natural(&self, first: usize, last: usize) -> Option<Vec<usize>> {
        // most loops end by what stands right before
        let mut at = last;
        for _ in 0..=LOOP {
            if self.gets_on(&self.function[at]) {
                return None;
            }
            if at == first || at == 0 || !self.falls(at - 1) {
                break;
            }
            at -= 1;
        }
        let mut nodes = vec![first];
        let mut to_do = vec![last];
        while let Some(at) = to_do.pop() {
            if !insert(&mut nodes, at) {
                continue;
            }
            if self.gets_on(&self.function[at]) || nodes.len() > LOOP {
                return None;
            }
            to_do.extend(at.checked_sub(1).filter(|before| self.falls(*before)));
            to_do.extend(self.sources(at));
        }
        self.round(first, last, |at| nodes.binary_search(&at).is_ok())
    }

    /// Whether an instruction does what waiting loops do not, as far as that is seen at a glance: it ends the function, calls another, or stores to what is not the function's own.
    fn gets_on(&self, one: &Instruction) -> bool {
        match one.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => return false,
            FlowControl::Call | FlowControl::IndirectCall => {
                return called(self.module, one).is_none_or(|name| !PAUSES.contains(&name));
            }
            _ => return true,
        }
        let stores = one.op0_kind() == OpKind::Memory
            && matches!(
                one.mnemonic(),
                Mnemonic::Mov
                    | Mnemonic::Movss
                    | Mnemonic::Movsd
                    | Mnemonic::Movups
                    | Mnemonic::Movaps
                    | Mnemonic::Movdqu
                    | Mnemonic::Movdqa
                    | Mnemonic::Movq
                    | Mnemonic::Add
                    | Mnemonic::Sub
                    | Mnemonic::Inc
                    | Mnemonic::Dec
            );
        stores && !is_own(one.memory_base(), one.memory_index(), self.has_frame)
    }

    /// Jumps by which the loop goes around (`last`) or ends, and those of a first turn before it.
    fn jumps(&self, nodes: &[usize], first: usize, last: usize) -> Vec<Wait> {
        let is_inside = |address: u64| self.index(address).is_some_and(|at| nodes.binary_search(&at).is_ok());
        let is_jump = |at: &usize| self.target(*at).is_some();
        let wait = |at: usize| Wait::of(&self.function[at], is_inside);
        let ends = |wait: &Wait| {
            let falls = wait.condition != ConditionCode::None;
            !wait.target.1 || falls && !wait.next.1
        };
        let here: Vec<Wait> = nodes
            .iter()
            .copied()
            .filter(is_jump)
            .map(|at| (at, wait(at)))
            .filter(|(at, wait)| *at == last || ends(wait))
            .map(|(_, wait)| wait)
            .collect();
        let exits: Vec<usize> = here
            .iter()
            .flat_map(|wait| [wait.target, wait.next])
            .filter(|side| !side.1)
            .map(|side| side.0)
            .collect();
        let is_skip = |wait: &Wait| wait.condition != ConditionCode::None && exits.contains(&wait.target.0);
        let skips = (first.saturating_sub(BEFORE)..first).filter(is_jump).map(wait).filter(is_skip);
        skips.chain(here.iter().copied()).collect()
    }

    /// Whether a turn loads something and leaves nothing for the next.
    fn waits(&mut self, nodes: &[usize], first: usize) -> bool {
        let mut words = Vec::new();
        let effects: Option<Vec<Effect>> = nodes.iter().map(|at| self.effect(*at, &mut words)).collect();
        let Some(effects) = effects else { return false };
        if !effects.iter().any(|effect| effect.loads) {
            return false;
        }
        let changed = effects.iter().fold(0, |all, effect| all | effect.changes);
        let set =
            self.flow(nodes, first, (0, Set::MAX), |number, set| set | effects[number].sets, |a, b| a & b);
        // what a turn leaves for the next: changed anywhere, and read before it is set anew
        let read = |(effect, set): (&Effect, &Set)| effect.reads & changed & !set;
        let left = effects.iter().zip(&set).map(read).fold(0, |all, one| all | one);
        let before = |number: usize, old: Set| {
            let effect: &Effect = &effects[number];
            let changes = if effect.reads & old == 0 { 0 } else { effect.changes };
            old & !effect.sets | changes
        };
        let old = self.flow(nodes, first, (left, 0), before, |a, b| a | b);
        // it must not be computed of what the turn before has left
        effects.iter().zip(old).all(|(effect, old)| effect.changes & left == 0 || effect.reads & old == 0)
    }

    /// What holds before each instruction: `begin` before the first; behind an instruction by `behind`; of several ways by `both`. Elsewhere `all`, for the time being.
    fn flow(
        &self,
        nodes: &[usize],
        first: usize,
        (begin, all): (Set, Set),
        behind: impl Fn(usize, Set) -> Set,
        both: impl Fn(Set, Set) -> Set,
    ) -> Vec<Set> {
        let place = |at: usize| nodes.binary_search(&at).ok();
        let start = place(first);
        let mut before = vec![all; nodes.len()];
        if let Some(start) = start {
            before[start] = begin;
        }
        loop {
            let mut is_over = true;
            for (number, at) in nodes.iter().copied().enumerate() {
                let left = behind(number, before[number]);
                let next = self.falls(at).then_some(at + 1);
                let to = next.into_iter().chain(self.target(at)).filter_map(place);
                for to in to.filter(|to| Some(*to) != start) {
                    let met = both(before[to], left);
                    is_over &= met == before[to];
                    before[to] = met;
                }
            }
            if is_over {
                return before;
            }
        }
    }

    /// None if it does what waiting loops do not.
    fn effect(&mut self, at: usize, words: &mut Vec<(Name, u64)>) -> Option<Effect> {
        let one = self.function[at];
        match one.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {}
            FlowControl::Call | FlowControl::IndirectCall => {
                let name = called(self.module, &one)?;
                return PAUSES.contains(&name).then_some(Effect {
                    reads: 0,
                    sets: CLOBBERED,
                    changes: CLOBBERED,
                    loads: false,
                });
            }
            _ => return None,
        }
        let mut effect = Effect { reads: 0, sets: 0, changes: 0, loads: false };
        self.memory(&one, words, &mut effect)?;
        self.registers(&one, &mut effect);
        Some(effect)
    }

    fn registers(&mut self, one: &Instruction, effect: &mut Effect) {
        if one.rflags_read() != 0 {
            effect.reads |= FLAGS;
        }
        if one.rflags_modified() != 0 {
            effect.sets |= FLAGS;
            effect.changes |= FLAGS;
        }
        let same = one.op_count() == 2
            && one.op0_kind() == OpKind::Register
            && one.op1_kind() == OpKind::Register
            && one.op0_register() == one.op1_register();
        let clears = same
            && matches!(one.mnemonic(), Mnemonic::Xor | Mnemonic::Pxor | Mnemonic::Xorps | Mnemonic::Sub);
        for used in self.information.info(one).used_registers() {
            let register = register_bit(used.register());
            let (reads, writes) = match used.access() {
                OpAccess::NoMemAccess | OpAccess::None => continue,
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write => (false, true),
                _ => (true, true),
            };
            if reads && !clears {
                effect.reads |= register;
            }
            if writes {
                effect.changes |= register;
                if used.access() != OpAccess::CondWrite {
                    effect.sets |= register;
                }
            }
        }
    }

    /// None if it writes to what is not the function's own.
    fn memory(&mut self, one: &Instruction, words: &mut Vec<(Name, u64)>, effect: &mut Effect) -> Option<()> {
        let is_atomic = one.has_lock_prefix() || one.mnemonic() == Mnemonic::Xchg;
        for used in self.information.info(one).used_memory() {
            let is_own = is_own(used.base(), used.index(), self.has_frame);
            let (reads, writes) = match used.access() {
                OpAccess::NoMemAccess | OpAccess::None => continue,
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write => (false, true),
                _ => (true, true),
            };
            if is_atomic || writes && !is_own {
                return None;
            }
            if !is_own {
                effect.loads |= used.segment() != Name::FS;
                continue;
            }
            let word = word(words, (used.base(), used.displacement()))?;
            if reads {
                effect.reads |= word;
            }
            if writes {
                effect.sets |= word;
                effect.changes |= word;
            }
        }
        Some(())
    }
}

/// Whether memory is a function's own, on the stack, if rbp points to its frame or not.
fn is_own(base: Name, index: Name, has_frame: bool) -> bool {
    index == Name::None && (base == Name::RSP || base == Name::RBP && has_frame)
}

/// Puts one of a loop's instructions among the others, in order; false if it is there.
fn insert(nodes: &mut Vec<usize>, at: usize) -> bool {
    let place = nodes.binary_search(&at).map_err(|place| nodes.insert(place, at));
    place.is_err()
}

/// Whether it makes rbp point to the function's own frame.
fn sets_frame(one: &Instruction) -> bool {
    one.mnemonic() == Mnemonic::Mov && one.op0_register() == Name::RBP && one.op1_register() == Name::RSP
}

/// The bit of a word of the stack, while there are some.
fn word(words: &mut Vec<(Name, u64)>, word: (Name, u64)) -> Option<Set> {
    let at = words.iter().position(|known| *known == word).unwrap_or_else(|| {
        words.push(word);
        words.len() - 1
    });
    let bit = FIRST_WORD + at as u32;
    (bit < Set::BITS).then(|| 1 << bit)
}

thread_local! {
    /// Turns that the calling thread has waited for.
    static TURNS: Cell<u32> = const { Cell::new(0) };
}
/// Longest pause between two turns, in microseconds.
const PAUSE: u32 = 500;

/// Tells others what this rank has changed, and takes over what they have; then pauses if the loop `goes_on`.
pub fn look(goes_on: bool) {
    coherence::look(goes_on);
    let turns = TURNS.replace(0);
    if goes_on {
        ask::pause(turns, PAUSE);
        TURNS.set(turns + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code as Decoded, Decoder, DecoderOptions};

    /// Jumps of waiting loops in a function, as places in it.
    fn waits(code: &[u8]) -> Vec<usize> {
        let decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
        let function: Vec<_> = decoder.into_iter().filter(|one| one.code() != Decoded::INVALID).collect();
        let module = crate::modules::all().swap_remove(0);
        of(&module, &function).iter().map(|wait| wait.address - 0x1000).collect()
    }

    #[test]
    fn loops_that_only_look_wait() {
        // again: mov eax, [rdi]; test eax, eax; je again; ret
        assert_eq!(waits(&[0x8b, 0x07, 0x85, 0xc0, 0x74, 0xfa, 0xc3]), [4]);
        // again: cmp dword [rdi], 5; je out; pause; jmp again; out: ret
        assert_eq!(waits(&[0x83, 0x3f, 0x05, 0x74, 0x04, 0xf3, 0x90, 0xeb, 0xf7, 0xc3]), [3, 7]);
        // cmp dword [rdi], 0; jne out; again: pause; cmp dword [rdi], 0; je again; out: ret: the first turn stands apart
        let apart = [0x83, 0x3f, 0x00, 0x75, 0x07, 0xf3, 0x90, 0x83, 0x3f, 0x00, 0x74, 0xf9, 0xc3];
        assert_eq!(waits(&apart), [3, 10]);
        // push rbp; mov rbp, rsp; again: mov rax, [rbp - 8]; mov eax, [rax]; mov [rbp - 12], eax; cmp dword [rbp - 12], 0; je again; ret: not optimized
        let stack = [
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x45, 0xf8, 0x8b, 0x00, 0x89, 0x45, 0xf4, 0x83, 0x7d, 0xf4,
            0x00, 0x74, 0xf1, 0xc3,
        ];
        assert_eq!(waits(&stack), [17]);
        // again: cmp dword [rdi], 0; je pauses; mov [rsi], eax; ret; pauses: pause; jmp again: parts that stand apart
        let parts = [0x83, 0x3f, 0x00, 0x74, 0x03, 0x89, 0x06, 0xc3, 0xf3, 0x90, 0xeb, 0xf4];
        assert_eq!(waits(&parts), [3, 10]);
        // again: cmp eax, ecx; je out; mov eax, [rdi]; jmp again; out: ret: what is compared was loaded in the turn before
        assert_eq!(waits(&[0x39, 0xc8, 0x74, 0x04, 0x8b, 0x07, 0xeb, 0xf8, 0xc3]), [2, 6]);
        // jmp look; again: pause; look: cmp dword [rdi], 0; je again; ret: come to in the middle
        assert_eq!(waits(&[0xeb, 0x02, 0xf3, 0x90, 0x83, 0x3f, 0x00, 0x74, 0xf9, 0xc3]), [7]);
    }

    #[test]
    fn loops_that_get_on_do_not() {
        // again: add rdi, 4; cmp dword [rdi], 0; je again; ret
        assert_eq!(waits(&[0x48, 0x83, 0xc7, 0x04, 0x83, 0x3f, 0x00, 0x74, 0xf7, 0xc3]), []);
        // again: mov rdi, [rdi]; test rdi, rdi; jne again; ret: follows a list
        assert_eq!(waits(&[0x48, 0x8b, 0x3f, 0x48, 0x85, 0xff, 0x75, 0xf8, 0xc3]), []);
        // again: cmp [rdi], eax; je out; dec ecx; jne again; out: ret: as often as that
        assert_eq!(waits(&[0x39, 0x07, 0x74, 0x04, 0xff, 0xc9, 0x75, 0xf8, 0xc3]), []);
        // again: cmp eax, ecx; je out; add eax, [rdi]; jmp again; out: ret: a sum
        assert_eq!(waits(&[0x39, 0xc8, 0x74, 0x04, 0x03, 0x07, 0xeb, 0xf8, 0xc3]), []);
        // again: test rdx, rdx; je out; mov rax, rdx; mov rdx, [rax]; jmp again; out: ret: follows a list by two
        assert_eq!(
            waits(&[0x48, 0x85, 0xd2, 0x74, 0x08, 0x48, 0x89, 0xd0, 0x48, 0x8b, 0x10, 0xeb, 0xf3, 0xc3]),
            []
        );
        // again: mov [rsi], eax; cmp dword [rdi], 0; je again; ret
        assert_eq!(waits(&[0x89, 0x06, 0x83, 0x3f, 0x00, 0x74, 0xf9, 0xc3]), []);
        // again: cmp dword [rsp + 4], 0; je again; ret: nobody else's; jmp to itself
        assert_eq!(waits(&[0x83, 0x7c, 0x24, 0x04, 0x00, 0x74, 0xf9, 0xc3]), []);
        assert_eq!(waits(&[0xeb, 0xfe]), []);
        // again: lock inc dword [rdi]; cmp dword [rsi], 0; je again; ret
        assert_eq!(waits(&[0xf0, 0xff, 0x07, 0x83, 0x3e, 0x00, 0x74, 0xf8, 0xc3]), []);
        // out: mov eax, [rdi]; ret; cmp dword [rdi], 0; je out; ret: a jump back that is no loop's
        assert_eq!(waits(&[0x8b, 0x07, 0xc3, 0x83, 0x3f, 0x00, 0x74, 0xf8, 0xc3]), []);
        // again: mov eax, [rdi]; test eax, eax; jne far; pause; jmp again; ret; far: inc edx; jmp again: of which a part counts is a wait
        let part = [0x8b, 0x07, 0x85, 0xc0, 0x75, 0x05, 0xf3, 0x90, 0xeb, 0xf6, 0xc3, 0xff, 0xc2, 0xeb, 0xf1];
        assert_eq!(waits(&part), [4, 8]);
        // again: mov eax, [rdi]; call rbx; je again; ret
        assert_eq!(waits(&[0x8b, 0x07, 0xff, 0xd3, 0x74, 0xfa, 0xc3]), []);
    }

    #[test]
    fn jumps_go_as_the_processor_has_them_go() {
        let wait = |opcode: u8| {
            let code = [opcode, 0x10];
            let one = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE).decode();
            Wait::of(&one, |at| at < 0x1010)
        };
        for flags in
            [0, CARRY, PARITY, ZERO, SIGN, OVERFLOW, SIGN | OVERFLOW, ZERO | SIGN | OVERFLOW, CARRY | ZERO]
        {
            for condition in 0..16_u8 {
                let mut is: u8;
                // SAFETY: sets flags and asks for the condition, each by the instruction with its number
                unsafe {
                    macro_rules! ask {
                        ($set:literal) => {{
                            core::arch::asm!("push {f}", "popfq", $set, f = in(reg) flags | 2, out("al") is);
                            is
                        }};
                    }
                    is = match condition {
                        0 => ask!("seto al"),
                        1 => ask!("setno al"),
                        2 => ask!("setb al"),
                        3 => ask!("setae al"),
                        4 => ask!("sete al"),
                        5 => ask!("setne al"),
                        6 => ask!("setbe al"),
                        7 => ask!("seta al"),
                        8 => ask!("sets al"),
                        9 => ask!("setns al"),
                        10 => ask!("setp al"),
                        11 => ask!("setnp al"),
                        12 => ask!("setl al"),
                        13 => ask!("setge al"),
                        14 => ask!("setle al"),
                        _ => ask!("setg al"),
                    };
                }
                let goes = wait(0x70 + condition).goes(flags);
                assert_eq!(
                    goes,
                    if is == 1 { (0x1012, false) } else { (0x1002, true) },
                    "{condition} {flags:#x}"
                );
            }
        }
        assert_eq!(wait(0xeb).goes(0), (0x1012, false));
    }
}
