//! `lock`-prefixed instructions: atomics and reductions that compilers put straight into the program. Rank 0's memory is their home: there they run as they
//! are. On ranks above 0 each is replaced by a breakpoint, and carried out by rank 0's server thread on rank 0's memory.
//!
//! Between two synchronisations, what such an operation leaves in this rank's memory is a mere copy: before this rank's changes are looked for, it is replaced
//! by what all agreed upon last ([`without_copies`]), so that rank 0 alone tells the outcome. What this rank has stored over it meanwhile (`atomic write` is a plain
//! store) rank 0 gets, too, if it still has what was copied ([`tell`]).

mod code;
mod copies;
mod operation;

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard};

use polyrail_omp::area::{Count, Kind};

use self::code::{Operand, Site};
use self::copies::{Copies, Value};
use self::operation::{Done, Operation, Own, Width};
use crate::calls::{self, NOT_YET, REMOTE_ATOMIC};
use crate::stats::{self, Clock};
use crate::{agent, icv, modules, remote, serial, signals, sys, team, track};

/// Where breakpoints stand, in order of addresses. Written once, before regions begin.
static SITES: AtomicPtr<Vec<Site>> = AtomicPtr::new(std::ptr::null_mut());

/// Held across a question only if it is answered at once.
static COPIES: Mutex<Copies> = Mutex::new(Copies::new());

fn copies() -> MutexGuard<'static, Copies> {
    COPIES.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// Puts the breakpoints: on rank 0 at fences only, which say that what was written is to be seen by others.
pub fn start(fences_only: bool) {
    let mut sites = code::find();
    let flushes =
        sites.iter().any(|site| site.fence) || modules::shared().any(|module| module.names("__kmpc_flush"));
    remote::flushes(flushes);
    if flushes {
        // One thread's flush would tell what others of its rank have stored, and they would see what it applies, in any order; but flags are stored behind what they stand for.
        icv::lower_limit(remote::size());
        if remote::rank() == 0 && remote::threads() > 1 {
            sys::say(
                "one thread on each rank, as the program orders memory by flush or fences, which is right between ranks only: for more threads, more ranks (-n)",
            );
        }
    }
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
        // threads of the program's own are none of a team's
        if team::innermost().spread() {
            remote::flush();
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

/// Longest pause between two questions, in microseconds.
const PAUSE: u32 = 1000;

/// Has rank 0 do it.
fn carry_out(operation: &Operation, place: usize) -> Done {
    let bytes = operation.width.bytes();
    let mut clock = Clock::start();
    let when = remote::Point::here();
    let mut tries = 0;
    let (done, now, held) = loop {
        let held = copies();
        let (known, now) = (known(&held, place, bytes), load(place, bytes));
        let own = (known != now).then_some([known, now]);
        // what this rank stored before must be at rank 0 before anything else is done to it for this rank
        let held = own.is_some().then_some(held);
        if let Some(done) = ask(&when, operation, place, own) {
            break (done, now, held);
        }
        drop(held);
        calls::pause(tries, PAUSE);
        tries += 1;
    };
    stats::add(Count::Atomics, 1);
    clock.lap(Count::AtomicTime);
    let mut held = held.unwrap_or_else(copies);
    let after = operation.after(&done);
    // what other threads' operations left meanwhile is a copy, too; what they stored stays, to be told
    let copy = if load(place, bytes) == now { now } else { known(&held, place, bytes) };
    held.learn(place, bytes, value(after));
    // SAFETY: a shared place, where the program has such an operation
    unsafe { Width::replace(place, bytes, pair(&copy), after) };
    done
}

/// Asks rank 0; none if that is too early.
fn ask(when: &remote::Point, operation: &Operation, place: usize, own: Option<Own>) -> Option<Done> {
    let head = [u64::from(REMOTE_ATOMIC).to_ne_bytes().as_slice(), &when.to_bytes()].concat();
    let answer = agent::ask(Kind::Serve, [0; 6], &[&head, &operation.to_bytes(place, own)]);
    if answer.data == NOT_YET {
        return None;
    }
    remote::changed_rank_0();
    Some(Done::from_bytes(answer.data).unwrap_or_else(|| {
        sys::fail(format_args!(
            "rank {} changed {place:#x} by a plain store and by an atomic operation, and so did another rank: which comes first is not defined",
            remote::rank()
        ))
    }))
}

fn load(place: usize, bytes: usize) -> Value {
    // SAFETY: a shared place
    value(unsafe { Width::load(place, bytes) })
}

fn value(pair: (u64, u64)) -> Value {
    Done { before: pair }.to_bytes()
}

fn pair(value: &Value) -> (u64, u64) {
    // SAFETY: as long as that
    unsafe { Width::load(value.as_ptr() as usize, value.len()) }
}

/// What rank 0 has there, for all that this rank knows.
fn known(copies: &Copies, place: usize, bytes: usize) -> Value {
    copies.known(place, bytes, track::twin(place).map_or([0; 16], |twin| load(twin as usize, bytes)))
}

/// Copies that this rank has stored over.
fn stored(copies: &Copies) -> Vec<(usize, usize)> {
    let is_stored = |((place, bytes), left): ((usize, usize), Value)| {
        (load(place, bytes) != left).then_some((place, bytes))
    };
    copies.iter().filter_map(is_stored).collect()
}

/// Whether there is anything to [`tell`].
pub fn is_to_tell() -> bool {
    !stored(&copies()).is_empty()
}

/// Has rank 0 know what this rank has stored over copies. No answer of the agent's may be in use.
pub fn tell() {
    let mut copies = copies();
    for (place, bytes) in stored(&copies) {
        let (known, now) = (known(&copies, place, bytes), load(place, bytes));
        if let (true, Some(width)) = (known != now, Width::of(bytes)) {
            let mut tries = 0;
            while ask(&remote::Point::any(), &Operation::none(width), place, Some([known, now])).is_none() {
                calls::pause(tries, PAUSE);
                tries += 1;
            }
            copies.learn(place, bytes, now);
        }
    }
}

/// Rank 0's server thread: carries out what another rank asks for. No answer if that rank's own store is in conflict.
pub fn serve(question: &[u8]) -> Option<Vec<u8>> {
    let (when, question) = remote::Point::from_bytes(question)?;
    let (operation, place, own) = Operation::from_bytes(question)?;
    if !when.is_come() {
        return Some(NOT_YET.to_vec());
    }
    if !track::is_shared(place) {
        return None;
    }
    // SAFETY: a shared place of this process, where the program itself has such an operation
    unsafe {
        if let Some([known, stored]) = own
            && !Width::replace(place, operation.width.bytes(), pair(&known), pair(&stored))
        {
            return None;
        }
        Some(operation.run(place).to_bytes().to_vec())
    }
}

/// Looks for changes, or applies others': what rank 0 carried out for this rank is not this rank's change, so that copies of it are put back before. No
/// other thread makes such a copy meanwhile. What is no longer as it was copied stays, as this rank's change.
pub fn without_copies<T>(look: impl FnOnce() -> T) -> T {
    let mut copies = copies();
    let all: Vec<_> = copies.iter().map(|(place, _)| place).collect();
    for (place, bytes) in all {
        let Some(agreed) = track::twin(place).map(|twin| load(twin as usize, bytes)) else { continue };
        let left = copies.known(place, bytes, agreed);
        // SAFETY: a shared place, where the program has such an operation
        if unsafe { Width::replace(place, bytes, pair(&left), pair(&agreed)) } {
            copies.forget(place, bytes, agreed);
        }
    }
    look()
}
