//! Internal control variables: what `OMP_*` variables and `omp_set_*` say.
//!
//! Those that serial code sets stand in memory that all ranks share ([`root`]); each region's threads have copies, in their [`Frame`](crate::team::Frame).

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering::Relaxed};

use crate::{alloc, mapping, run};

/// `omp_sched_t`: static, dynamic, guided, auto; [`MONOTONIC`] may be added.
pub const STATIC: u32 = 1;
/// See [`STATIC`].
pub const DYNAMIC: u32 = 2;
/// See [`STATIC`].
pub const GUIDED: u32 = 3;
/// See [`STATIC`].
pub const AUTO: u32 = 4;
/// The modifier of a schedule.
pub const MONOTONIC: u32 = 1 << 31;

/// Nesting depths that `OMP_NUM_THREADS` can name.
pub const DEPTHS: usize = 4;

/// The variables of a data environment.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Icvs {
    /// Threads of the next team, and of those inside it; 0 where nothing was said.
    pub threads: [u32; DEPTHS],
    /// `omp_get_dynamic`.
    pub dynamic: bool,
    /// `omp_sched_t` of `schedule(runtime)`.
    pub schedule: u32,
    /// Its chunk; 0: none was given.
    pub chunk: i32,
    /// 0 or 1: inner teams have one thread.
    pub active_levels: i32,
    /// `omp_get_default_device`.
    pub device: i32,
    /// `omp_get_default_allocator`.
    pub allocator: usize,
    /// `omp_get_max_teams`.
    pub teams: i32,
    /// `omp_get_teams_thread_limit`.
    pub teams_limit: i32,
}

/// Before anything was read.
pub const NONE: Icvs = Icvs {
    threads: [0; DEPTHS],
    dynamic: false,
    schedule: STATIC,
    chunk: 0,
    active_levels: 1,
    device: 0,
    allocator: 1,
    teams: 0,
    teams_limit: 0,
};

#[repr(C)]
struct Page {
    ready: AtomicU32,
    icvs: UnsafeCell<Icvs>,
}

fn page() -> &'static Page {
    static PAGE: AtomicPtr<Page> = AtomicPtr::new(core::ptr::null_mut());
    if PAGE.load(Relaxed).is_null() {
        PAGE.store(alloc::shared_page().cast(), Relaxed);
    }
    // SAFETY: there is room for it, all bytes zero at first, which is a valid state.
    unsafe { &*PAGE.load(Relaxed) }
}

/// What serial code set.
pub fn root() -> *mut Icvs {
    let page = page();
    if page.ready.load(Relaxed) == 0 {
        environment(page.icvs.get());
        page.ready.store(1, Relaxed);
    }
    page.icvs.get()
}

static BIND: AtomicI32 = AtomicI32::new(0);
static LIMIT: AtomicU32 = AtomicU32::new(i32::MAX as u32);
static STACK: AtomicUsize = AtomicUsize::new(0);

/// `OMP_THREAD_LIMIT`.
pub fn limit() -> usize {
    own_environment();
    LIMIT.load(Relaxed) as usize
}

/// No team has more threads from now on.
pub fn lower_limit(threads: usize) {
    own_environment();
    LIMIT.fetch_min(threads as u32, Relaxed);
}

/// `OMP_PROC_BIND` as `omp_proc_bind_t`.
pub fn bind() -> i32 {
    own_environment();
    BIND.load(Relaxed)
}

/// Bytes that a stack of the team shall have: `OMP_STACKSIZE`, or as much as the main thread has, and 64 MiB at least.
pub fn stack_bytes() -> usize {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    if KNOWN.load(Relaxed) == 0 {
        KNOWN.store(stack_bytes_asked(), Relaxed);
    }
    KNOWN.load(Relaxed)
}

fn stack_bytes_asked() -> usize {
    own_environment();
    const MOST: usize = polyrail_omp::layout::STACK_STRIDE - (1 << 20);
    let asked = STACK.load(Relaxed);
    if asked > 0 {
        return asked.next_multiple_of(4096).clamp(64 << 10, MOST);
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills in the struct.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) };
    match limit.rlim_cur as usize {
        main if main < 1 << 30 => main.next_multiple_of(4096).max(64 << 20),
        _ => MOST,
    }
}

/// Processors that this process may use.
pub fn processors() -> usize {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let known = KNOWN.load(Relaxed);
    if known > 0 {
        return known;
    }
    // SAFETY: fills in the set, which has room for 1024 processors.
    let count = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        libc::CPU_COUNT(&set).max(1) as usize
    };
    KNOWN.store(count, Relaxed);
    count
}

/// Threads of each rank as the user asked (`-t`); with no agent, what the environment asks for: the first number of `OMP_NUM_THREADS`, or the processors.
pub fn threads() -> usize {
    if mapping::attached() {
        return mapping::area().threads as usize;
    }
    variable(c"OMP_NUM_THREADS")
        .and_then(|text| number(text).0)
        .map_or_else(processors, |n| n.max(1) as usize)
}

/// The text of an environment variable, without blanks around it.
pub fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the environment's strings stay where they are unless the program changes them, which is after we have read them.
    let text = unsafe { libc::getenv(name.as_ptr()).as_ref().map(|text: &c_char| CStr::from_ptr(text)) };
    text.map(|text| text.to_bytes().trim_ascii()).filter(|text| !text.is_empty())
}

/// The number at the beginning of `text`, and what follows it.
fn number(text: &[u8]) -> (Option<u64>, &[u8]) {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let value =
        text[..digits].iter().try_fold(0u64, |n, b| n.checked_mul(10)?.checked_add(u64::from(b - b'0')));
    (value.filter(|_| digits > 0), text[digits..].trim_ascii_start())
}

/// Whether `text` says yes.
pub fn is_true(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(b"true")
        || text == b"1"
        || text.eq_ignore_ascii_case(b"yes")
        || text.eq_ignore_ascii_case(b"on")
}

fn environment(icvs: *mut Icvs) {
    // SAFETY: before anything else reads it, on the one thread that there is.
    let icvs = unsafe {
        icvs.write(NONE);
        &mut *icvs
    };
    icvs.threads[0] = (run::size() * threads()) as u32;
    if let Some(list) = variable(c"OMP_NUM_THREADS") {
        // the first is in [`threads`]
        for (depth, part) in list.split(|b| *b == b',').enumerate().take(DEPTHS).skip(1) {
            icvs.threads[depth] = number(part).0.unwrap_or(0).min(1 << 20) as u32;
        }
    }
    icvs.dynamic = variable(c"OMP_DYNAMIC").is_some_and(is_true);
    if let Some(levels) = variable(c"OMP_MAX_ACTIVE_LEVELS").and_then(|text| number(text).0) {
        icvs.active_levels = levels.min(1) as i32;
    }
    if let Some(device) = variable(c"OMP_DEFAULT_DEVICE").and_then(|text| number(text).0) {
        icvs.device = device.min(i32::MAX as u64) as i32;
    }
    if let Some(text) = variable(c"OMP_SCHEDULE") {
        schedule(text, icvs);
    }
    if let Some(teams) = variable(c"OMP_NUM_TEAMS").and_then(|text| number(text).0) {
        icvs.teams = teams.min(1 << 20) as i32;
    }
    if let Some(limit) = variable(c"OMP_TEAMS_THREAD_LIMIT").and_then(|text| number(text).0) {
        icvs.teams_limit = limit.min(1 << 20) as i32;
    }
}

/// What each process reads for itself, once.
fn own_environment() {
    static READ: AtomicU32 = AtomicU32::new(0);
    if READ.swap(1, Relaxed) == 1 {
        return;
    }
    if let Some(n) = variable(c"OMP_THREAD_LIMIT").and_then(|text| number(text).0) {
        LIMIT.store(n.clamp(1, i32::MAX as u64) as u32, Relaxed);
    }
    if let Some(text) = variable(c"OMP_STACKSIZE")
        .or_else(|| variable(c"GOMP_STACKSIZE"))
        .or_else(|| variable(c"KMP_STACKSIZE"))
    {
        let (value, unit) = number(text);
        let shift = match unit.first().map(u8::to_ascii_lowercase) {
            Some(b'b') => 0,
            Some(b'm') => 20,
            Some(b'g') => 30,
            _ => 10,
        };
        STACK.store((value.unwrap_or(0) << shift) as usize, Relaxed);
    }
    if let Some(text) = variable(c"OMP_PROC_BIND") {
        let kinds: [(&[u8], i32); 5] =
            [(b"true", 1), (b"primary", 2), (b"master", 2), (b"close", 3), (b"spread", 4)];
        let kind = kinds
            .iter()
            .find(|(name, _)| text.len() >= name.len() && text[..name.len()].eq_ignore_ascii_case(name));
        BIND.store(kind.map_or(0, |k| k.1), Relaxed);
    }
}

/// `[modifier:]kind[,chunk]`; what cannot be read changes nothing.
fn schedule(text: &[u8], icvs: &mut Icvs) {
    let mut kind = text;
    let mut modifier = 0;
    if let Some(colon) = text.iter().position(|b| *b == b':') {
        kind = text[colon + 1..].trim_ascii();
        modifier = if text[..colon].trim_ascii().eq_ignore_ascii_case(b"monotonic") { MONOTONIC } else { 0 };
    }
    let (kind, chunk) = match kind.iter().position(|b| *b == b',') {
        Some(comma) => (kind[..comma].trim_ascii(), number(&kind[comma + 1..]).0),
        None => (kind, None),
    };
    let kinds: [(&[u8], u32); 4] =
        [(b"static", STATIC), (b"dynamic", DYNAMIC), (b"guided", GUIDED), (b"auto", AUTO)];
    if let Some((_, code)) = kinds.iter().find(|(name, _)| kind.eq_ignore_ascii_case(name)) {
        icvs.schedule = code | modifier;
        let least = u64::from(matches!(*code, DYNAMIC | GUIDED));
        icvs.chunk = chunk.unwrap_or(least).min(i32::MAX as u64) as i32;
    }
}
