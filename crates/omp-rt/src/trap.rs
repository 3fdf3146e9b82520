//! `lock`-prefixed instructions: atomics and reductions that compilers put straight into the program. Rank 0's memory is their home: there they run as they
//! are. On ranks above 0 each is replaced by a breakpoint, and carried out by rank 0's server thread on rank 0's memory.
//!
//! Between two synchronisations, what such an operation leaves in this rank's memory is a mere copy: before this rank's changes are looked for, it is replaced
//! by what all agreed upon last ([`without_copies`]), so that rank 0 alone tells the outcome.

mod code;
mod operation;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use polyrail_omp::area::{Count, Kind};

use self::code::{Operand, Site};
use self::operation::{Done, Operation, Width};
use crate::calls::REMOTE_ATOMIC;
use crate::stats::{self, Clock};
use crate::{agent, modules, remote, serial, signals, sys, team, track};

/// Where breakpoints stand, in order of addresses. Written once, before regions begin.
static SITES: AtomicPtr<Vec<Site>> = AtomicPtr::new(std::ptr::null_mut());

/// Shared places that this rank has a mere copy of, and their widths in bytes.
static COPIES: Mutex<BTreeSet<(usize, usize)>> = Mutex::new(BTreeSet::new());

fn copies() -> std::sync::MutexGuard<'static, BTreeSet<(usize, usize)>> {
    COPIES.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// Puts the breakpoints: on rank 0 at fences only, which say that what was written is to be seen by others.
pub fn start(fences_only: bool) {
    let mut sites = code::find();
    let flushes =
        sites.iter().any(|site| site.fence) || modules::shared().any(|module| module.names("__kmpc_flush"));
    remote::flushes(flushes);
    sites.retain(|site| site.fence || !fences_only);
    if sites.is_empty() {
        return;
    }
    let sites: &'static Vec<Site> = Box::leak(Box::new(sites));
    SITES.store(std::ptr::from_ref(sites).cast_mut(), Ordering::Release);
    // SAFETY: a handler of the right kind; it runs where a signal may come: at our breakpoints, which are in program code only
    unsafe {
        signals::keep(libc::SIGTRAP, trapped, libc::SA_RESTART | serial::signal_flags());
        for site in sites {
            code::put(site.address);
        }
    }
}

fn site(address: usize) -> Option<&'static Site> {
    // SAFETY: null or leaked
    let sites = unsafe { SITES.load(Ordering::Acquire).as_ref()? };
    sites.binary_search_by_key(&address, |site| site.address).ok().map(|at| &sites[at])
}

unsafe extern "C" fn trapped(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's context of this signal
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let address = registers[libc::REG_RIP as usize] as usize - 1;
    let Some(site) = site(address) else {
        sys::fail(format_args!("a breakpoint at {address:#x}, which is not ours"));
    };
    registers[libc::REG_RIP as usize] = (address + site.length) as i64;
    if site.fence {
        remote::flush();
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
    let done = if track::is_shared(place) && !serial::here() {
        carry_out(&operation, place)
    } else {
        // SAFETY: where the program's own instruction would have gone
        unsafe { operation.run(place) }
    };
    let (flags, mask) = operation.flags(&done);
    let all = &mut registers[libc::REG_EFL as usize];
    *all = ((*all as u64 & !mask) | flags) as i64;
    operation.results(&done, site, registers);
}

/// Has rank 0 do it.
fn carry_out(operation: &Operation, place: usize) -> Done {
    let bytes = operation.width.bytes();
    let mut held = copies();
    let own = if held.insert((place, bytes)) { stored(place, bytes) } else { None };
    // what this rank stored before must be at rank 0 before anything else is done to it for this rank
    let held = own.is_some().then_some(held);
    let mut clock = Clock::start();
    let point = remote::point(team::here().constructs.get());
    let head = [u64::from(REMOTE_ATOMIC).to_ne_bytes(), point.to_ne_bytes()].concat();
    let answer = agent::ask(Kind::Serve, [0; 6], &[&head, &operation.to_bytes(place, own)]);
    stats::add(Count::Atomics, 1);
    clock.lap(Count::AtomicTime);
    let Some(done) = Done::from_bytes(answer.data) else {
        sys::fail(format_args!(
            "rank {} changed {place:#x} by a plain store and by an atomic operation, and so did another rank: which comes first is not defined",
            remote::rank()
        ))
    };
    remote::changed_rank_0();
    let now = operation.after(&done);
    let mut held = held.unwrap_or_else(copies);
    held.insert((place, bytes));
    // SAFETY: a shared place
    unsafe { Width::store(place, bytes, now) };
    done
}

/// What this rank has stored there since all agreed last, if it has.
fn stored(place: usize, bytes: usize) -> Option<[u8; 16]> {
    let mut own = [0; 16];
    // SAFETY: a shared place, and its twin
    let (now, agreed) = unsafe {
        (
            std::slice::from_raw_parts(place as *const u8, bytes),
            std::slice::from_raw_parts(track::twin(place)?, bytes),
        )
    };
    own[..bytes].copy_from_slice(now);
    (now != agreed).then_some(own)
}

/// Rank 0's server thread: carries out what another rank asks for. No answer if that rank's own store is in conflict.
pub fn serve(question: &[u8]) -> Option<[u8; 16]> {
    let (point, question) = question.split_first_chunk::<8>()?;
    remote::wait_for(u64::from_ne_bytes(*point));
    let (operation, place, own) = Operation::from_bytes(question)?;
    if !track::is_shared(place) {
        return None;
    }
    let bytes = operation.width.bytes();
    // SAFETY: a shared place of this process, where the program itself has such an operation
    unsafe {
        if let Some(own) = own {
            let twin = track::twin(place)?;
            let before = Width::load(twin as usize, bytes);
            if !Width::replace(place, bytes, before, Width::load(own.as_ptr() as usize, bytes)) {
                return None;
            }
        }
        Some(operation.run(place).to_bytes())
    }
}

/// Looks for changes, or applies others': what rank 0 carried out for this rank is not this rank's change, so that copies of it are put back before. No
/// other thread makes such a copy meanwhile.
pub fn without_copies<T>(look: impl FnOnce() -> T) -> T {
    let mut copies = copies();
    for (place, bytes) in &*copies {
        if let Some(twin) = track::twin(*place) {
            // SAFETY: a shared place and its twin
            unsafe { (*place as *mut u8).copy_from_nonoverlapping(twin, *bytes) };
        }
    }
    copies.clear();
    look()
}
