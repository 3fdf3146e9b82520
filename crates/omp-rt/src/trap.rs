//! `lock`-prefixed instructions: atomics and reductions that compilers put straight into the program. Rank 0's memory is their home: there they run as they
//! are. On ranks above 0 each is replaced by a breakpoint, and carried out by rank 0's server thread on rank 0's memory.
//!
//! What such an operation leaves in this rank's memory is a copy (`polyrail_omp::coherence::home`), which is not told to others. Those that a program may order other memory by (`order`: it
//! takes a lock, or learns that it is the last to arrive) come behind all that their thread wrote before, and what they have seen the rank sees behind them, too.
//!
//! Loops that wait for flags that others store plainly (`waits`) have breakpoints, too, where they go around and end.

mod code;
mod functions;
mod order;
mod waits;

use std::sync::atomic::{AtomicPtr, Ordering};

use polyrail_omp::coherence::operation::{Done, Effect, Operation};

use self::code::{Found, Operand, Site};
use self::waits::Wait;
use crate::{coherence, icv, instruction, modules, run, signals, sys, thread, track};

/// Where breakpoints stand, in order of addresses. Written once, before regions begin.
static SITES: AtomicPtr<Vec<Site>> = AtomicPtr::new(std::ptr::null_mut());

/// As well, where loops wait.
static WAITS: AtomicPtr<Vec<Wait>> = AtomicPtr::new(std::ptr::null_mut());

/// Puts the breakpoints: on rank 0 at fences only, which say that what was written is to be seen by others, and where loops wait.
pub fn start(fences_only: bool) {
    let alone = icv::threads() == 1;
    let Found { mut sites, loaded, waits } = code::find(alone);
    let fences =
        sites.iter().any(|site| site.fence) || modules::shared().any(|module| module.names("__kmpc_flush"));
    // large programs have loops that look so and that no region comes to: these are not to cost threads
    let waits = if fences && !alone { code::find(true).waits } else { waits };
    let flushes = fences || !waits.is_empty();
    order::what_is_observed(&mut sites, &loaded, flushes);
    coherence::flushes(flushes);
    if flushes {
        // One thread's flush would tell what others of its rank have stored, and they would see what it applies, in any order; but flags are stored behind what they stand for.
        icv::lower_limit(run::size());
        if run::rank() == 0 && icv::threads() > 1 {
            sys::say(
                "one thread on each rank, as the program orders memory by flush or fences, which is right between ranks only: for more threads, more ranks (-n)",
            );
        }
    }
    sites.retain(|site| site.fence || !fences_only);
    if sites.is_empty() && waits.is_empty() {
        return;
    }
    let sites: &'static Vec<Site> = Box::leak(Box::new(sites));
    SITES.store(std::ptr::from_ref(sites).cast_mut(), Ordering::Release);
    let waits: &'static Vec<Wait> = Box::leak(Box::new(waits));
    WAITS.store(std::ptr::from_ref(waits).cast_mut(), Ordering::Release);
    // SAFETY: a handler of the right kind; it runs where a signal may come: at our breakpoints, which are in program code only
    unsafe {
        signals::keep(libc::SIGTRAP, trapped, libc::SA_RESTART | run::signal_flags());
        for address in sites.iter().map(|site| site.address).chain(waits.iter().map(|wait| wait.address)) {
            code::put(address);
        }
    }
}

fn site(address: usize) -> Option<&'static Site> {
    // SAFETY: null or leaked
    let sites = unsafe { SITES.load(Ordering::Acquire).as_ref()? };
    sites.binary_search_by_key(&address, |site| site.address).ok().map(|at| &sites[at])
}

fn wait_at(address: usize) -> Option<&'static Wait> {
    // SAFETY: null or leaked
    let waits = unsafe { WAITS.load(Ordering::Acquire).as_ref()? };
    waits.binary_search_by_key(&address, |wait| wait.address).ok().map(|at| &waits[at])
}

/// Does what the program asks for: in rank 0's memory, if other ranks have threads in the same region (`spread`). What was there.
pub fn operate(operation: &Operation, place: usize, effect: Effect, spread: bool) -> (u64, u64) {
    if spread && run::rank() > 0 && track::is_shared(place) {
        return coherence::carry_out(operation, place, effect);
    }
    // SAFETY: where the program itself has such an operation
    unsafe { instruction::run(operation, place) }.before
}

unsafe extern "C" fn trapped(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's context of this signal
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let address = registers[libc::REG_RIP as usize] as usize - 1;
    if let Some(wait) = wait_at(address) {
        let (goes, goes_on) = wait.goes(registers[libc::REG_EFL as usize] as u64);
        registers[libc::REG_RIP as usize] = goes as i64;
        if thread::current().spread.get() {
            waits::look(goes_on);
        }
        return;
    }
    let Some(site) = site(address) else {
        sys::fail(format_args!("a breakpoint at {address:#x}, which is not ours"));
    };
    registers[libc::REG_RIP as usize] = (address + site.length) as i64;
    if site.fence {
        // threads of the program's own are none of a team's
        if thread::current().spread.get() {
            coherence::flush();
        }
        return;
    }
    let place = site.place(registers);
    let operand = match site.operand {
        Operand::None => 0,
        Operand::Value(value) => value,
        Operand::Register(register) => register.get(registers),
    };
    let expected = (registers[libc::REG_RAX as usize] as u64, registers[libc::REG_RDX as usize] as u64);
    let desired = (registers[libc::REG_RBX as usize] as u64, registers[libc::REG_RCX as usize] as u64);
    let flags = registers[libc::REG_EFL as usize] as u64;
    let operation =
        Operation { kind: site.kind, width: site.width, operand, expected, desired, carry: flags & 1 };
    // bit operations by a register reach beyond the operand
    let place = operation.reach(place, matches!(site.operand, Operand::Register(_)));
    let (low, high) = operate(&operation, place, site.effect, !run::runs_replicated());
    let done = Done { before: (low, high) };
    let (flags, mask) = operation.flags(&done);
    let all = &mut registers[libc::REG_EFL as usize];
    *all = ((*all as u64 & !mask) | flags) as i64;
    code::results(&operation, &done, site, registers);
}
