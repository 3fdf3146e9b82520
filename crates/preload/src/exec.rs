//! Programs that begin: they are recorded too, and if preloading cannot see them, that is told.

use std::ffi::{CStr, c_char, c_int, c_void};

use polyrail_core::trace::note::{self, unseen};
use polyrail_core::trace::ring::session;

use crate::filter;
use crate::next::next;
use crate::recorder;
use crate::sockets;
use crate::start::environment;
use crate::sys::{self, File, Text, quietly};

/// An environment for a new program: the given one, with the recorder's variables in it. In pages of its own, because a child of
/// `vfork` must not allocate; given back if the program could not be started.
struct Variables {
    pages: *mut c_void,
    length: usize,
    list: *const *const c_char,
}

impl Variables {
    /// # Safety
    /// `given` is null or a list of C strings ended by null.
    unsafe fn with_ours(given: *const *const c_char) -> Variables {
        let unchanged = Variables { pages: std::ptr::null_mut(), length: 0, list: given };
        let mut count = 0;
        // SAFETY: the list goes on up to its null
        while !given.is_null() && unsafe { !(*given.add(count)).is_null() } {
            count += 1;
        }
        let ours = &environment().variables;
        let room = 4200;
        let length = (count + ours.len() + 1) * size_of::<*const c_char>() + room;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // what an earlier child of this thread's vfork has left in our memory, when it became its program
        let (left, size) = recorder::spare((std::ptr::null_mut(), 0));
        if !left.is_null() {
            // SAFETY: mapped by this function in that child, which is gone: its parent runs
            unsafe { libc::munmap(left, size) };
        }
        // SAFETY: a new anonymous mapping
        let pages = unsafe { libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0) };
        if pages == libc::MAP_FAILED {
            return unchanged;
        }
        if recorder::borrowed() {
            recorder::spare((pages, length));
        }
        // SAFETY: the mapping has room for all entries, ours, a null, and then `room` bytes of text
        let (list, text) = unsafe {
            let text = pages.cast::<u8>().add(length - room);
            (std::slice::from_raw_parts_mut(pages.cast::<*const c_char>(), count + ours.len() + 1), text)
        };
        let mut used = 0;
        let mut have = 0u8;
        for (at, place) in list[..count].iter_mut().enumerate() {
            // SAFETY: below the list's end
            let entry = unsafe { *given.add(at) };
            // SAFETY: a C string of the program
            let bytes = unsafe { CStr::from_ptr(entry) }.to_bytes();
            *place = entry;
            for (which, variable) in ours.iter().enumerate() {
                let variable = variable.bytes();
                let name =
                    variable.iter().position(|byte| *byte == b'=').map_or(variable, |end| &variable[..=end]);
                if !bytes.starts_with(name) {
                    continue;
                }
                have |= 1 << which;
                let library = &variable[name.len()..];
                // another preloading list keeps its entries, behind ours
                if which == 0
                    && !bytes.windows(library.len().max(1)).any(|part| part == library)
                    && bytes.len() < 2800
                {
                    let mut joined = Text::<4200>::new();
                    joined.push(variable).push(b":").push(&bytes[name.len()..]);
                    // SAFETY: both lengths together stay below `room`
                    unsafe {
                        let copy = text.add(used);
                        std::ptr::copy_nonoverlapping(
                            joined.c().as_ptr().cast(),
                            copy,
                            joined.bytes().len() + 1,
                        );
                        *place = copy.cast();
                    }
                    used += joined.bytes().len() + 1;
                }
            }
        }
        let missing = ours.iter().enumerate().filter(|(which, _)| have & 1 << which == 0);
        let mut end = count;
        for (_, variable) in missing {
            list[end] = variable.c().as_ptr();
            end += 1;
        }
        list[end] = std::ptr::null();
        Variables { pages, length, list: list.as_ptr() }
    }

    fn list(&self) -> *const *const c_char {
        self.list
    }

    fn release(&self) {
        if !self.pages.is_null() {
            // SAFETY: mapped by `with_ours`, and the program that was to use it did not start
            quietly(|| unsafe { libc::munmap(self.pages, self.length) });
            recorder::spare((std::ptr::null_mut(), 0));
        }
    }
}

/// Why preloading does not see a program file; `None`: it does, or it cannot be read, which starting it will show.
fn unseen_reason(path: &CStr, depth: u32) -> Option<u32> {
    let file = File::open(path, libc::O_RDONLY, 0)?;
    let mut head = [0u8; 1024];
    let got = file.read_at(&mut head, 0);
    let head = &head[..got];
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
        let mut interpreter = Text::<300>::new();
        interpreter.push(line.split(|byte| byte.is_ascii_whitespace()).next()?);
        return if depth > 0 { unseen_reason(interpreter.c(), depth - 1) } else { None };
    }
    // of a script they count for nothing
    if file.gives_rights() {
        return Some(unseen::PRIVILEGED);
    }
    // the dynamic loader itself, started as a program, loads another one with what is to be preloaded
    let loader =
        path.to_bytes().rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b"ld-"));
    elf_reason(head, &file).filter(|reason| !(loader && *reason == unseen::STATIC))
}

/// The same of an ELF file: it must be of our kind and name a dynamic loader.
fn elf_reason(head: &[u8], file: &File) -> Option<u32> {
    const ELF64: u8 = 2;
    const PT_INTERP: u32 = 3;
    if !head.starts_with(b"\x7fELF") || head.len() < 64 {
        return None;
    }
    let machine = u16::from_le_bytes([head[18], head[19]]);
    let ours = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    if head[4] != ELF64 || machine != ours {
        return Some(unseen::FOREIGN);
    }
    let table = u64::from_le_bytes(head[32..40].try_into().ok()?);
    let (size, count) = (u16::from_le_bytes([head[54], head[55]]), u16::from_le_bytes([head[56], head[57]]));
    for at in 0..u64::from(count).min(256) {
        let mut entry = [0u8; 4];
        if file.read_at(&mut entry, table.checked_add(at * u64::from(size))?) != 4 {
            return None;
        }
        if u32::from_le_bytes(entry) == PT_INTERP {
            return None;
        }
    }
    Some(unseen::STATIC)
}

/// Finds a program as `execvp` does.
fn find(name: &CStr, found: &mut Text<1100>) -> bool {
    if name.to_bytes().contains(&b'/') {
        found.push(name.to_bytes());
        return true;
    }
    // SAFETY: the environment of the program; who changes it meanwhile must not start programs
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    // SAFETY: a string of the environment
    let path = if path.is_null() { c"/bin:/usr/bin" } else { unsafe { CStr::from_ptr(path) } };
    for directory in path.to_bytes().split(|byte| *byte == b':') {
        let mut candidate = Text::<1100>::new();
        candidate.push(if directory.is_empty() { b"." } else { directory }).push(b"/").push(name.to_bytes());
        // SAFETY: a C string
        if unsafe { libc::access(candidate.c().as_ptr(), libc::X_OK) } == 0 {
            found.push(candidate.bytes());
            return true;
        }
    }
    false
}

/// Tells that this process, or one that it is about to make, becomes another program.
fn announce(name: &CStr, becomes: bool) {
    let mut path = Text::<1100>::new();
    if recorder::is_over() || !find(name, &mut path) {
        return;
    }
    let mut payload = Text::<1100>::new();
    // SAFETY: takes nothing
    let pid = unsafe { libc::getpid() } as u32;
    let mut bytes = [0; 8];
    let named = filter::names_program(path.bytes());
    let reason = foreign_session(path.c()).or_else(|| unseen_reason(path.c(), 3));
    if let Some(reason) = reason.filter(|_| named) {
        bytes[..4].copy_from_slice(&(if becomes { pid } else { 0 }).to_le_bytes());
        bytes[4..].copy_from_slice(&reason.to_le_bytes());
        payload.push(&bytes).push(path.bytes());
        recorder::tell(note::UNSEEN, payload.bytes());
        recorder::count(session::AT_UNSEEN, 1);
        if environment().kernel() {
            await_kernel(becomes);
        }
    }
    if becomes && recorder::on() && !recorder::borrowed() {
        sockets::last_words();
        recorder::flush();
    }
}

/// Whether the program will not reach the session, because the process has become another user. What it may do until then counts for nothing.
fn foreign_session(program: &CStr) -> Option<u32> {
    File::open(program, libc::O_RDONLY, 0)?;
    let mut path = Text::<400>::new();
    path.push(environment().directory()).push(b"/session");
    sys::of_another_user(path.c()).then_some(unseen::USER)
}

/// The kernel can record what preloading does not see, if the collector asks it to before the program begins: a file with this
/// thread's number asks the collector, and is gone when that is done, which takes the kernel
/// a while the first time. Three seconds at most.
fn await_kernel(becomes: bool) {
    let mut path = Text::<400>::new();
    // SAFETY: takes nothing
    let tid = unsafe { libc::gettid() } as u64;
    path.push(environment().directory()).push(b"/").number(tid);
    path.push(if becomes { b".exec" } else { b".spawn" });
    if File::open(path.c(), libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600).is_none() {
        return;
    }
    for _ in 0..1500 {
        if recorder::is_over() {
            break;
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        // SAFETY: a time, and nowhere to tell what remained of it
        unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
        if File::open(path.c(), libc::O_RDONLY, 0).is_none() {
            return;
        }
    }
    // SAFETY: a C string
    unsafe { libc::unlink(path.c().as_ptr()) };
}

macro_rules! executing {
    ($(fn $name:ident($($before:ident: $type:ty),*; $path:ident, $variables:expr $(, $after:ident: $after_type:ty)*);)*) => {$(
        /// See exec(3), execve(2): the new program is recorded as well.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($before: $type,)* $($after: $after_type),*) -> c_int {
            let next = next!($name: fn($($type,)* $($after_type),*) -> c_int);
            if !recorder::has_session() {
                // SAFETY: the program's own call
                return unsafe { next($($before,)* $($after),*) };
            }
            // SAFETY: the program's own path
            quietly(|| announce(unsafe { CStr::from_ptr($path) }, true));
            // SAFETY: the program's own list
            let ours = unsafe { Variables::with_ours($variables) };
            let result = {
                $(let $after: $after_type = { let _ = $after; ours.list() };)*
                // SAFETY: the program's own call, with an environment that has more in it
                unsafe { next($($before,)* $($after),*) }
            };
            ours.release();
            result
        }
    )*};
}

executing! {
    fn execve(path: *const c_char, arguments: *const *const c_char; path, variables, variables: *const *const c_char);
    fn execvpe(path: *const c_char, arguments: *const *const c_char; path, variables, variables: *const *const c_char);
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

macro_rules! executing_here {
    ($($name:ident by $with:ident;)*) => {$(
        /// See exec(3): the new program is recorded as well.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, arguments: *const *const c_char) -> c_int {
            // SAFETY: the program's own call, and what the C library does of it
            unsafe { $with(path, arguments, environ) }
        }
    )*};
}

executing_here! {
    execv by execve;
    execvp by execvpe;
}

/// What exec(3) functions with their arguments in a list do: `words` are those that travelled in registers, `more` the ones behind
/// them on the stack. The list ends with a null; behind it may be an environment.
unsafe extern "C" fn listed(
    path: *const c_char,
    words: *const *const c_char,
    more: *const *const c_char,
    in_registers: usize,
    how: usize,
) -> c_int {
    const MOST: usize = 256;
    let mut list = [std::ptr::null::<c_char>(); MOST];
    let word = |at: usize| {
        // SAFETY: not beyond what the caller has given, which ends with the null, or with the environment behind it
        unsafe { if at < in_registers { *words.add(at) } else { *more.add(at - in_registers) } }
    };
    let mut count = 0;
    loop {
        let next = word(count);
        if next.is_null() {
            break;
        }
        if count + 1 == MOST {
            crate::sys::set_errno(libc::E2BIG);
            return -1;
        }
        list[count] = next;
        count += 1;
    }
    // SAFETY: the program's own call, and what the C library does of it
    unsafe {
        match how {
            0 => execve(path, list.as_ptr(), environ),
            1 => execvpe(path, list.as_ptr(), environ),
            _ => execve(path, list.as_ptr(), word(count + 1).cast()),
        }
    }
}

macro_rules! listing {
    ($($name:ident = $how:literal;)*) => {$(
        /// See exec(3): the new program is recorded as well. Rust cannot define functions with any number of arguments, so what is in
        /// registers is stored beside the stack here.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                "sub rsp, 40", "mov [rsp], rsi", "mov [rsp + 8], rdx", "mov [rsp + 16], rcx", "mov [rsp + 24], r8", "mov [rsp + 32], r9",
                "mov rsi, rsp", "lea rdx, [rsp + 48]", "mov ecx, 5", "mov r8d, {how}", "call {listed}", "add rsp, 40", "ret",
                how = const $how, listed = sym listed,
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!", "mov x29, sp", "stp x1, x2, [sp, #16]", "stp x3, x4, [sp, #32]", "stp x5, x6, [sp, #48]",
                "str x7, [sp, #64]", "add x1, sp, #16", "add x2, sp, #80", "mov x3, #7", "mov x4, #{how}", "bl {listed}",
                "ldp x29, x30, [sp], #80", "ret",
                how = const $how, listed = sym listed,
            );
        }
    )*};
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
listing! {
    execl = 0;
    execlp = 1;
    execle = 2;
}

/// See execveat(2): the environment gets the recorder's variables.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
    flags: c_int,
) -> c_int {
    let next =
        next!(execveat: fn(c_int, *const c_char, *const *const c_char, *const *const c_char, c_int) -> c_int);
    if !recorder::has_session() {
        // SAFETY: the program's own call
        return unsafe { next(directory, path, arguments, variables, flags) };
    }
    // SAFETY: the program's own path
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut whole = Text::<1100>::new();
    if !name.starts_with(b"/") && directory != libc::AT_FDCWD {
        whole.push(b"/proc/self/fd/").number(directory.max(0) as u64);
    }
    if !name.is_empty() {
        let between: &[u8] = if whole.bytes().is_empty() { b"" } else { b"/" };
        whole.push(between).push(name);
    }
    quietly(|| announce(whole.c(), true));
    // SAFETY: the program's own list
    let ours = unsafe { Variables::with_ours(variables) };
    // SAFETY: the program's own call, with an environment that has more in it
    let result = unsafe { next(directory, path, arguments, ours.list(), flags) };
    ours.release();
    result
}

/// See fexecve(3): the environment gets the recorder's variables.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fexecve(
    fd: c_int,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    let next = next!(fexecve: fn(c_int, *const *const c_char, *const *const c_char) -> c_int);
    if !recorder::has_session() {
        // SAFETY: the program's own call
        return unsafe { next(fd, arguments, variables) };
    }
    let mut path = Text::<40>::new();
    quietly(|| announce(path.push(b"/proc/self/fd/").number(fd.max(0) as u64).c(), true));
    // SAFETY: the program's own list
    let ours = unsafe { Variables::with_ours(variables) };
    // SAFETY: the program's own call, with an environment that has more in it
    let result = unsafe { next(fd, arguments, ours.list()) };
    ours.release();
    result
}

macro_rules! spawning {
    ($($name:ident;)*) => {$(
        /// See posix_spawn(3): the new program is recorded as well.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            pid: *mut libc::pid_t,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: *const *const c_char,
            variables: *const *const c_char,
        ) -> c_int {
            let next = next!($name: fn(
                *mut libc::pid_t, *const c_char, *const c_void, *const c_void, *const *const c_char, *const *const c_char
            ) -> c_int);
            if !recorder::has_session() {
                // SAFETY: the program's own call
                return unsafe { next(pid, path, actions, attributes, arguments, variables) };
            }
            // SAFETY: the program's own path
            quietly(|| announce(unsafe { CStr::from_ptr(path) }, false));
            // SAFETY: the program's own list
            let ours = unsafe { Variables::with_ours(variables) };
            // SAFETY: the program's own call, with an environment that has more in it
            let result = unsafe { next(pid, path, actions, attributes, arguments, ours.list()) };
            ours.release();
            result
        }
    )*};
}

spawning! {
    posix_spawn;
    posix_spawnp;
}
