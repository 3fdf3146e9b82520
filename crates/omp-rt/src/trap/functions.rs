//! Where the functions of a module are, and which of them were found to have something to look for when another run looked through the same file.

use std::ffi::{CStr, CString, OsStr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use polyrail_omp::code;
use polyrail_omp::code::kept::{self, Kept, State};

use crate::modules::{self, Module, Segment};
use crate::{raw, sys};

/// Less code than this takes no time to speak of: nothing is kept of it.
const LARGE: usize = 1 << 16;

/// Functions of one module after another.
pub struct Functions {
    /// Jumps back are looked for, too.
    with_jumps: bool,
    /// Where entries are, and the state of this library, if any are kept.
    place: Option<(Vec<u8>, State)>,
    /// Of the module before: where what is found is to be kept, and as what.
    entry: Option<(Vec<u8>, State)>,
}

impl Functions {
    pub fn start(with_jumps: bool) -> Self {
        let directory = kept::directory(|name| std::env::var_os(name));
        let own = modules::all().into_iter().find(Module::is_ours);
        let state = own.and_then(|own| state(own.name.as_bytes()));
        let place = directory.zip(state).map(|(path, state)| (path.as_os_str().as_bytes().to_vec(), state));
        Self { with_jumps, place, entry: None }
    }

    /// The code of a module, in memory; if it was looked through before, only what has something to look for. Ends the run if that cannot be told.
    pub fn of(&mut self, module: &Module) -> Vec<Range<usize>> {
        self.entry = None;
        let code = module.segments.iter().filter(|one| one.executable).map(|one| one.end - one.start);
        if code.sum::<usize>() >= LARGE
            && let Some((place, own)) = &self.place
            && let Some(state) = state(file(module))
        {
            let path = [place.as_slice(), b"/", state.name().as_bytes()].concat();
            let kept = look(&path).and_then(|bytes| Kept::read(&bytes, &state, own));
            if let Some(kept) = kept.filter(|kept| kept.with_jumps || !self.with_jumps) {
                return in_memory(module, kept.functions);
            }
            self.entry = Some((path, state));
        }
        in_memory(module, known(module))
    }

    /// Keeps which functions of the module before have something to look for. Nothing is said if that is not possible: it only takes longer the next time.
    pub fn keep(&mut self, module: &Module, functions: Vec<Range<usize>>) {
        let (Some((path, state)), Some((place, own))) = (self.entry.take(), &self.place) else { return };
        let in_file = |at: usize| at.wrapping_sub(module.base) as u64;
        let functions = functions.into_iter().map(|one| in_file(one.start)..in_file(one.end)).collect();
        let kept = Kept { with_jumps: self.with_jumps, functions };
        if let Some(bytes) = kept.write(&state, own) {
            save(place, &path, &bytes);
        }
    }
}

/// The file of a module.
fn file(module: &Module) -> &[u8] {
    match module.name.as_bytes() {
        b"" => b"/proc/self/exe",
        name => name,
    }
}

/// Where a module has code, by its file.
fn known(module: &Module) -> Vec<Range<u64>> {
    let name = if module.name.is_empty() { "the program" } else { &module.name };
    let path = CString::new(file(module)).unwrap_or_default();
    let Some(found) = sys::with_file(&path, code::find).flatten() else {
        sys::fail(format_args!("{name}: the file cannot be read, or is of another kind than what is loaded"));
    };
    if let Some(why) = found.refusal() {
        sys::fail(format_args!("{name}: {why}"));
    }
    found.known
}

/// Where that is in memory.
fn in_memory(module: &Module, functions: Vec<Range<u64>>) -> Vec<Range<usize>> {
    let in_memory = |known: Range<u64>| {
        let at = |address: u64| module.base.wrapping_add(address as usize);
        at(known.start)..at(known.end)
    };
    let is_loaded = |code: &Range<usize>| {
        let holds = |one: &Segment| one.executable && one.start <= code.start && code.end <= one.end;
        code.start <= code.end && module.segments.iter().any(holds)
    };
    functions.into_iter().map(in_memory).filter(is_loaded).collect()
}

/// A file's state, if it is there.
fn state(path: &[u8]) -> Option<State> {
    let stat = stat(libc::SYS_stat, &CString::new(path).ok()?)?;
    let signed = [stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec];
    let [size, modified, modified_ns, changed, changed_ns] = signed.map(i64::cast_unsigned);
    Some(State([stat.st_dev, stat.st_ino, size, modified, modified_ns, changed, changed_ns]))
}

/// What the kernel knows of a file, by `stat` or `lstat`.
fn stat(number: libc::c_long, path: &CStr) -> Option<libc::stat> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    let args = [path.as_ptr() as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: a path that ends with zero, and room for the answer, which all bytes are good for
    unsafe { (raw::call(number, args) == 0).then(|| stat.assume_init()) }
}

/// What an entry has, if nobody but this user can have written it.
fn look(path: &[u8]) -> Option<Vec<u8>> {
    let path = CString::new(path).ok()?;
    let stat = stat(libc::SYS_lstat, &path)?;
    // SAFETY: the user's number is asked for
    let user = unsafe { raw::call(libc::SYS_geteuid, [0; 6]) };
    let is_own = stat.st_uid as isize == user && stat.st_mode & (libc::S_IFMT | 0o022) == libc::S_IFREG;
    is_own.then(|| sys::with_file(&path, <[u8]>::to_vec)).flatten()
}

/// Puts an entry in place of the one before.
fn save(place: &[u8], path: &[u8], bytes: &[u8]) {
    let call = |number, path: &CString, others: [usize; 2]| {
        // SAFETY: paths that end with zero, and numbers
        unsafe { raw::call(number, [path.as_ptr() as usize, others[0], others[1], 0, 0, 0]) }
    };
    let place = Path::new(OsStr::from_bytes(place));
    let parents: Vec<&Path> = place.ancestors().take(3).collect();
    for parent in parents.into_iter().rev() {
        if let Ok(parent) = CString::new(parent.as_os_str().as_bytes()) {
            call(libc::SYS_mkdir, &parent, [0o700, 0]);
        }
    }
    // each process has one of its own, on hosts that share the directory, too
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos());
    let own = format!(".{}.{now:x}", std::process::id());
    let (Ok(path), Ok(new)) = (CString::new(path), CString::new([path, own.as_bytes()].concat())) else {
        return;
    };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    let Ok(descriptor) = i32::try_from(call(libc::SYS_open, &new, [flags as usize, 0o600])) else { return };
    if descriptor < 0 {
        return;
    }
    sys::write(descriptor, bytes);
    // SAFETY: the descriptor is this function's
    let closed = unsafe { raw::call(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]) };
    // what was not written as a whole is not believed when it is read
    if closed != 0 || call(libc::SYS_rename, &new, [path.as_ptr() as usize, 0]) != 0 {
        call(libc::SYS_unlink, &new, [0, 0]);
    }
}
