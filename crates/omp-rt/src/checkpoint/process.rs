//! What else the kernel keeps of rank 0's process: signals, working directory, limits, timers, read-only mappings; and what of it cannot be had again.

use core::mem::MaybeUninit;
use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::sync::Mutex;

use polyrail_omp::items::{numbers, pack, read_numbers, unpack};

use crate::{alloc, library, modules, output, pthread, raw, run, signals, sys, team};

/// A call about this process, with places that are there.
pub fn call(number: libc::c_long, args: [usize; 6]) -> isize {
    // SAFETY: see there
    unsafe { raw::call(number, args) }
}

/// Where a symbolic link goes.
pub fn link(path: &str) -> Option<Vec<u8>> {
    let path = CString::new(path).ok()?;
    let mut text = vec![0_u8; libc::PATH_MAX as usize];
    let args = [path.as_ptr() as usize, text.as_mut_ptr() as usize, text.len(), 0, 0, 0];
    let length = usize::try_from(call(libc::SYS_readlink, args)).ok()?;
    text.truncate(length);
    Some(text)
}

/// A line of `/proc/self/maps`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapping {
    from: usize,
    to: usize,
    rights: String,
    offset: u64,
    path: String,
}

impl Mapping {
    fn of(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (from, to) = words.next()?.split_once('-')?;
        let (rights, offset) = (words.next()?.to_owned(), words.next()?);
        let path = words.nth(2).unwrap_or_default().trim_start().to_owned();
        Some(Self {
            from: usize::from_str_radix(from, 16).ok()?,
            to: usize::from_str_radix(to, 16).ok()?,
            rights,
            offset: u64::from_str_radix(offset, 16).ok()?,
            path,
        })
    }

    fn is_file(&self) -> bool {
        self.path.starts_with('/')
    }

    fn is_only_read(&self) -> bool {
        self.rights.starts_with("r--")
    }

    fn is_shared(&self) -> bool {
        self.rights.ends_with('s')
    }
}

fn mappings() -> Vec<Mapping> {
    let text = sys::read(c"/proc/self/maps").unwrap_or_default();
    text.lines().filter_map(Mapping::of).collect()
}

/// What was mapped, and loaded, when the process began.
struct Began {
    mappings: Vec<Mapping>,
    loaded: String,
    /// With what is in the files, as they were then.
    identity: Result<String, String>,
}
static BEGAN_WITH: Mutex<Option<Began>> = Mutex::new(None);

fn began_with() -> std::sync::MutexGuard<'static, Option<Began>> {
    BEGAN_WITH.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// Rank 0, before `main`.
pub fn begin() {
    *began_with() =
        Some(Began { mappings: mappings(), loaded: modules::text(), identity: look_into_files() });
}

/// What is loaded, where, and what is in the files; and where the program's words are, which the kernel decides.
fn look_into_files() -> Result<String, String> {
    let mut text = format!("words at {:#x}\n{}", run::words(), modules::text());
    let mut files: Vec<String> = modules::all().into_iter().map(|module| module.name).collect();
    files[0] = "/proc/self/exe".into();
    for file in files.iter().filter(|file| file.starts_with('/')) {
        let path = CString::new(file.as_str()).unwrap_or_default();
        let hash = sys::with_file(&path, twox_hash::XxHash3_128::oneshot);
        let hash = hash.ok_or_else(|| format!("{file} cannot be read, so that it cannot be known again"))?;
        text += &format!("{file}: {hash:x}\n");
    }
    Ok(text)
}

/// What a process must have in common with this one to go on from its checkpoints; or why it cannot be told.
pub fn identity() -> Result<String, String> {
    began_with()
        .as_ref()
        .map_or_else(|| Err("nobody knows what was loaded".into()), |began| began.identity.clone())
}

/// What of the process is neither memory nor descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    directory: Vec<u8>,
    creates: u64,
    /// What the kernel does for each signal from 1 on, as it says it: four words each.
    actions: Vec<u64>,
    blocked: u64,
    /// `stack_t`, three words.
    signal_stack: Vec<u64>,
    /// `struct itimerval` of each of the three timers, four words.
    timers: Vec<u64>,
    /// Soft and hard limits.
    limits: Vec<u64>,
    mapped: Vec<Mapping>,
    believed: Vec<u8>,
    locale: Vec<u64>,
    /// Streams and errors' numbers.
    failed: Vec<u64>,
}

const LIMITS: usize = 16;
const SIGNALS: usize = 64;

/// Blocks all signals; which were.
pub fn block_all() -> u64 {
    let (all, mut before) = (u64::MAX, 0_u64);
    let args = [libc::SIG_SETMASK as usize, &raw const all as usize, &raw mut before as usize, 8, 0, 0];
    call(libc::SYS_rt_sigprocmask, args);
    before
}

/// Blocks these, and no others.
pub fn block(signals: u64) {
    call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, &raw const signals as usize, 0, 8, 0, 0]);
}

/// Looks, while all signals are blocked, of which the program has `blocked` these; or says why it cannot be kept.
pub fn look(blocked: u64) -> Result<Process, String> {
    let mapped = look_at_mappings()?;
    look_at_others()?;
    let mut process = Process {
        directory: link("/proc/self/cwd").ok_or("the working directory has no name")?,
        mapped,
        blocked,
        believed: signals::believed(),
        locale: library::remembered().into(),
        failed: output::failures(),
        ..Process::default()
    };
    if process.directory.ends_with(b" (deleted)") {
        return Err("the working directory has no name any more".into());
    }
    process.creates = call(libc::SYS_umask, [0; 6]) as u64;
    call(libc::SYS_umask, [process.creates as usize, 0, 0, 0, 0, 0]);
    for signal in 1..=SIGNALS {
        let mut action = [0_u64; 4];
        call(libc::SYS_rt_sigaction, [signal, 0, action.as_mut_ptr() as usize, 8, 0, 0]);
        process.actions.extend(action);
    }
    let mut stack = [0_u64; 3];
    call(libc::SYS_sigaltstack, [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0]);
    process.signal_stack = stack.into();
    for which in 0..3 {
        let mut timer = [0_u64; 4];
        call(libc::SYS_getitimer, [which, timer.as_mut_ptr() as usize, 0, 0, 0, 0]);
        process.timers.extend(timer);
    }
    for which in 0..LIMITS {
        let mut limit = [0_u64; 2];
        call(libc::SYS_prlimit64, [0, which, 0, limit.as_mut_ptr() as usize, 0, 0]);
        process.limits.extend(limit);
    }
    Ok(process)
}

/// What is mapped beyond what the process began with, its heaps and its stack; or what of it cannot be mapped again.
fn look_at_mappings() -> Result<Vec<Mapping>, String> {
    let began_with = began_with();
    let Some(Began { mappings: before, loaded: libraries, .. }) = &*began_with else {
        return Err("nobody knows what the process began with".into());
    };
    let now = modules::text();
    if now != *libraries {
        let known: BTreeSet<&str> = libraries.lines().collect();
        let late =
            now.lines().find(|line| !known.contains(line)).unwrap_or("a library is not loaded any more");
        return Err(format!("libraries were loaded while it ran: {late}"));
    }
    let known: BTreeSet<&Mapping> = before.iter().collect();
    let inside = |mapping: &Mapping| before.iter().any(|old| old.from < mapping.to && mapping.from < old.to);
    let mut kept = Vec::new();
    let now = mappings();
    if now.is_empty() {
        return Err("/proc/self/maps cannot be read".into());
    }
    for mapping in now {
        if known.contains(&mapping) {
            continue;
        }
        if mapping.path == "[heap]" {
            return Err("memory was taken by sbrk".into());
        }
        if inside(&mapping) {
            continue;
        }
        if mapping.is_shared() && !(mapping.is_file() && mapping.is_only_read()) {
            return Err(format!("the program has memory that it shares with others {}", mapping.path));
        }
        if !mapping.is_file() {
            continue;
        }
        if !mapping.is_only_read() || mapping.path.ends_with(" (deleted)") {
            return Err(format!("{} is mapped", mapping.path));
        }
        kept.push(mapping);
    }
    Ok(kept)
}

/// Whatever else cannot be had again.
fn look_at_others() -> Result<(), String> {
    let tasks: Vec<String> = alloc::privately(|| {
        let Ok(entries) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
        entries.flatten().filter_map(|entry| Some(entry.file_name().to_str()?.to_owned())).collect()
    });
    if tasks.is_empty() {
        return Err("/proc/self/task cannot be read".into());
    }
    if pthread::have_values() {
        return Err("a region has given threads values by pthread_setspecific".into());
    }
    if alloc::has_mapped() {
        return Err("the program has memory of its own making (executable, at a fixed address, or a large reservation)".into());
    }
    let own = team::count() + usize::from(run::size() > 1);
    if tasks.len() > own {
        return Err(format!("the program has {} threads of its own", tasks.len() - own));
    }
    for task in tasks {
        let Ok(path) = CString::new(format!("/proc/self/task/{task}/children")) else { continue };
        if sys::read(&path).is_some_and(|children| !children.trim().is_empty()) {
            return Err("the program has child processes".into());
        }
    }
    if sys::read(c"/proc/self/timers").is_some_and(|timers| !timers.is_empty()) {
        return Err("the program has timers (timer_create)".into());
    }
    if !team::is_outside() {
        return Err("the region that has ended is inside another one of one thread, or in a task".into());
    }
    if team::locks::are_held() {
        return Err("serial code holds a lock".into());
    }
    if pthread::are_unjoined() {
        return Err("the program has made threads that it has not joined".into());
    }
    if pthread::are_owned() {
        return Err("serial code holds a recursive or error-checking mutex".into());
    }
    if team::privates::are_any() {
        return Err(
            "the program has threadprivate data without thread-local storage (-fnoopenmp-use-tls)".into()
        );
    }
    if run::is_replicated() {
        return Err("serial code runs on every rank (--serial replicated)".into());
    }
    Ok(())
}

impl Process {
    /// As bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mapped: Vec<Vec<u8>> = self
            .mapped
            .iter()
            .map(|one| {
                let figures = numbers(&[one.from as u64, one.to as u64, one.offset]);
                pack([&figures[..], one.rights.as_bytes(), one.path.as_bytes()])
            })
            .collect();
        pack([
            &self.directory[..],
            &numbers(&[self.creates, self.blocked]),
            &numbers(&self.actions),
            &numbers(&self.signal_stack),
            &numbers(&self.timers),
            &numbers(&self.limits),
            &pack(mapped.iter().map(Vec::as_slice)),
            &self.believed,
            &numbers(&self.locale),
            &numbers(&self.failed),
        ])
    }

    /// What [`bytes`](Self::bytes) wrote.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [directory, figures, actions, signal_stack, timers, limits, mapped, believed, locale, failed] =
            unpack(bytes)?.try_into().ok()?;
        let [creates, blocked] = read_numbers(&figures).try_into().ok()?;
        let mapping = |bytes: Vec<u8>| {
            let [figures, rights, path] = unpack(&bytes)?.try_into().ok()?;
            let [from, to, offset] = read_numbers(&figures).try_into().ok()?;
            let text = |bytes| String::from_utf8(bytes).ok();
            let [from, to] = [from, to].map(|at| at as usize);
            (from < to).then_some(Mapping { from, to, rights: text(rights)?, offset, path: text(path)? })
        };
        let process = Self {
            directory,
            creates,
            blocked,
            actions: read_numbers(&actions),
            signal_stack: read_numbers(&signal_stack),
            timers: read_numbers(&timers),
            limits: read_numbers(&limits),
            mapped: unpack(&mapped)?.into_iter().map(mapping).collect::<Option<_>>()?,
            believed,
            locale: read_numbers(&locale),
            failed: read_numbers(&failed),
        };
        let lengths =
            [&process.actions, &process.signal_stack, &process.timers, &process.limits].map(Vec::len);
        (lengths == [4 * SIGNALS, 3, 12, 2 * LIMITS]).then_some(process)
    }

    /// Where it works.
    pub fn directory(&self) -> &[u8] {
        &self.directory
    }

    /// Puts back what needs no memory to be there; or says what cannot be.
    pub fn restore(&self) -> Result<(), String> {
        let path = CString::new(self.directory.clone()).unwrap_or_default();
        let error = call(libc::SYS_chdir, [path.as_ptr() as usize, 0, 0, 0, 0, 0]);
        if error != 0 {
            let directory = OsString::from_vec(self.directory.clone());
            let error = std::io::Error::from_raw_os_error(-error as i32);
            return Err(format!("the working directory {}: {error}", directory.display()));
        }
        call(libc::SYS_umask, [self.creates as usize, 0, 0, 0, 0, 0]);
        for (which, then) in self.limits.chunks_exact(2).enumerate() {
            let mut limit = [0_u64; 2];
            call(libc::SYS_prlimit64, [0, which, 0, limit.as_mut_ptr() as usize, 0, 0]);
            // the hard one is this run's
            limit[0] = then[0].min(limit[1]);
            call(libc::SYS_prlimit64, [0, which, limit.as_ptr() as usize, 0, 0, 0]);
        }
        self.mapped.iter().try_for_each(map)
    }

    /// The calling thread blocks the signals that the program had blocked.
    pub fn block(&self) {
        block(self.blocked);
    }

    /// Puts back the rest, when memory is as it was.
    pub fn restore_signals(&self) {
        signals::believe(&self.believed);
        output::fail_again(&self.failed);
        if let Ok(remembered) = self.locale[..].try_into() {
            library::remember(remembered);
        }
        for (at, action) in self.actions.chunks_exact(4).enumerate() {
            let signal = at + 1;
            if !signals::is_ours(signal as i32) {
                call(libc::SYS_rt_sigaction, [signal, action.as_ptr() as usize, 0, 8, 0, 0]);
            }
        }
        call(libc::SYS_sigaltstack, [self.signal_stack.as_ptr() as usize, 0, 0, 0, 0, 0]);
        self.block();
        for (which, timer) in self.timers.chunks_exact(4).enumerate().filter(|(_, timer)| **timer != [0; 4]) {
            call(libc::SYS_setitimer, [which, timer.as_ptr() as usize, 0, 0, 0, 0]);
        }
    }
}

/// Maps a file again, read-only.
fn map(mapping: &Mapping) -> Result<(), String> {
    let failed = |error: isize| {
        let error = std::io::Error::from_raw_os_error(-error as i32);
        format!("{} cannot be mapped again at {:#x}: {error}", mapping.path, mapping.from)
    };
    let path = CString::new(mapping.path.as_str()).unwrap_or_default();
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let file = call(libc::SYS_open, [path.as_ptr() as usize, flags, 0, 0, 0, 0]);
    if file < 0 {
        return Err(failed(file));
    }
    let bytes = mapping.to - mapping.from;
    // the file must still have what was mapped, or touching it would end the program
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    call(libc::SYS_fstat, [file as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0]);
    // SAFETY: zeros, or what the call has filled in
    let length = unsafe { status.assume_init() }.st_size.cast_unsigned();
    let at = if mapping.offset + (bytes as u64) < length + 4096 {
        let sharing = if mapping.is_shared() { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let flags = (sharing | libc::MAP_FIXED_NOREPLACE) as usize;
        let rights = libc::PROT_READ as usize;
        call(libc::SYS_mmap, [mapping.from, bytes, rights, flags, file as usize, mapping.offset as usize])
    } else {
        -libc::ENXIO as isize
    };
    call(libc::SYS_close, [file as usize, 0, 0, 0, 0, 0]);
    if at == mapping.from as isize { Ok(()) } else { Err(failed(at.min(-1))) }
}

/// glibc's `PTHREAD_KEYS_MAX`.
const KEYS: u32 = 1024;

/// The first thread's values of the C library's keys, which stand in its descriptor.
pub fn specifics() -> Vec<u64> {
    (0..KEYS)
        .filter_map(|key| {
            // SAFETY: any number may be asked for
            let value = unsafe { libc::pthread_getspecific(key) } as usize;
            (value != 0 && !alloc::is_runtimes(value)).then_some([u64::from(key), value as u64])
        })
        .flatten()
        .collect()
}

/// Puts them back. The C library's list of keys is as it was.
pub fn restore_specifics(values: &[u64]) {
    for pair in values.chunks_exact(2) {
        // SAFETY: a key that there was; what it stood for is there again
        unsafe { libc::pthread_setspecific(pair[0] as u32, pair[1] as *const libc::c_void) };
    }
}

/// No message of the loader's stands for the program to fetch: it would be in the loader's memory.
pub fn forget_loader_error() {
    // SAFETY: gives the last message and forgets it
    alloc::privately(|| unsafe {
        libc::dlerror();
        libc::dlerror();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mappings_are_read() {
        let line = "7ffff7000000-7ffff7200000 r--p 00002000 fe:01 131 /usr/lib/locale/locale-archive";
        let one = Mapping::of(line).unwrap();
        assert_eq!(
            (one.to - one.from, one.offset, one.is_file(), one.is_shared()),
            (0x20_0000, 0x2000, true, false)
        );
        assert_eq!(one.path, "/usr/lib/locale/locale-archive");
        let none = Mapping::of("7ffff7000000-7ffff7200000 rw-s 00000000 00:00 0 ").unwrap();
        assert!(none.path.is_empty() && none.is_shared());
        assert_eq!(Mapping::of("x"), None);
    }

    #[test]
    fn a_process_comes_back_as_bytes() {
        let process = Process {
            directory: b"/tmp".to_vec(),
            creates: 0o22,
            actions: (0..4 * SIGNALS as u64).collect(),
            blocked: 5,
            signal_stack: vec![1, 2, 3],
            timers: (0..12).collect(),
            limits: (0..2 * LIMITS as u64).collect(),
            mapped: Mapping::of("1000-3000 r--s 00002000 fe:01 131 /a b").into_iter().collect(),
            believed: vec![7; 3],
            locale: vec![1, 0],
            failed: vec![3, 4],
        };
        assert_eq!(process.mapped[0].path, "/a b");
        assert_eq!(Process::read(&process.bytes()), Some(process));
        assert_eq!(Process::read(&[1, 2, 3]), None);
    }
}
