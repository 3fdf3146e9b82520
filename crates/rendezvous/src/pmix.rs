//! PMIx: a library that belongs to the launcher, found where that says, by the six calls that are needed of it (the PMIx standard, version 4; the same in 2 to 5).

use crate::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut};

/// What the first's word is kept under.
const KEY: &CStr = c"polyrail";
const JOB_SIZE: &CStr = c"pmix.job.size";
const STRING: u16 = 3;
const UINT32: u16 = 14;
const GLOBAL: u8 = 3;
/// All of a job.
const WILDCARD: u32 = u32::MAX - 1;
/// The library's name.
const SONAME: &str = "libpmix.so.2";

/// A process (`pmix_proc_t`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    job: [c_char; 256],
    rank: u32,
}

/// A value (`pmix_value_t`): what stands in it, and as much as there can be.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

#[repr(C)]
union Data {
    string: *mut c_char,
    number: u32,
    room: [u64; 3],
}

type Begin = unsafe extern "C" fn(*mut Process, *const c_void, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Process, usize, *const c_void, usize) -> c_int;
type Get =
    unsafe extern "C" fn(*const Process, *const c_char, *const c_void, usize, *mut *mut Value) -> c_int;
type End = unsafe extern "C" fn(*const c_void, usize) -> c_int;

/// A launcher's library, begun with.
#[derive(Debug)]
pub struct Pmix {
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    end: End,
    job: [c_char; 256],
    ended: bool,
}

impl Drop for Pmix {
    fn drop(&mut self) {
        if !self.ended {
            // SAFETY: no further arguments. Who has begun and ends without it has failed, to the launcher.
            unsafe { (self.end)(null(), 0) };
        }
    }
}

/// Where the library may be: where the launcher says that its own is, then where the system's is.
fn places(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let of =
        |prefix: String| ["lib", "lib/openmpi", "lib64"].map(|below| format!("{prefix}/{below}/{SONAME}"));
    let prefixes = ["PMIX_PREFIX", "OPAL_PREFIX"].into_iter().filter_map(variable);
    let mut places: Vec<String> = prefixes.filter(|prefix| !prefix.is_empty()).flat_map(of).collect();
    places.push(SONAME.into());
    places
}

impl Pmix {
    /// Begins with it; it, and which of how many this process is.
    ///
    /// # Errors
    /// There is no library, or it refuses.
    pub fn begin() -> Result<(Self, u32, u32), Error> {
        let places = places(|name| std::env::var(name).ok());
        let open = |place: &String| {
            let name = CString::new(place.as_str()).ok()?;
            // SAFETY: a name that ends with zero; what the launcher's library does when it is loaded is as in every program of that launcher's.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            (!library.is_null()).then_some(library)
        };
        let library = places.iter().find_map(open).ok_or_else(|| {
            Error::pmix(format!(
                "its library {SONAME} is not found (Debian: libpmix2); looked at {}",
                places.join(", ")
            ))
        })?;
        let find = |name: &CStr| {
            // SAFETY: the library stays loaded; the name ends with zero.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            if found.is_null() { Err(Error::pmix(format!("its library has no {name:?}"))) } else { Ok(found) }
        };
        // SAFETY: the standard has these functions take these arguments, in all versions.
        let begin = unsafe { transmute::<*mut c_void, Begin>(find(c"PMIx_Init")?) };
        // SAFETY: as above.
        let put = unsafe { transmute::<*mut c_void, Put>(find(c"PMIx_Put")?) };
        // SAFETY: as above.
        let commit = unsafe { transmute::<*mut c_void, Commit>(find(c"PMIx_Commit")?) };
        // SAFETY: as above.
        let fence = unsafe { transmute::<*mut c_void, Fence>(find(c"PMIx_Fence")?) };
        // SAFETY: as above.
        let get = unsafe { transmute::<*mut c_void, Get>(find(c"PMIx_Get")?) };
        // SAFETY: as above.
        let end = unsafe { transmute::<*mut c_void, End>(find(c"PMIx_Finalize")?) };
        let mut process = Process { job: [0; 256], rank: 0 };
        // SAFETY: the memory is that of a process; there are no further arguments.
        done("PMIx_Init", unsafe { begin(&raw mut process, null(), 0) })?;
        let pmix = Self { put, commit, fence, get, end, job: process.job, ended: false };
        let size = pmix.value(WILDCARD, JOB_SIZE, UINT32, |data| {
            // SAFETY: the kind says that it is a number.
            unsafe { data.number }
        })?;
        Ok((pmix, process.rank, size))
    }

    /// Tells all the first one's word.
    ///
    /// # Errors
    /// The launcher refuses, or has not heard of it.
    pub fn share(mut self, word: Option<&str>) -> Result<String, Error> {
        if let Some(word) = word {
            let word = CString::new(word).map_err(|_| Error::Word(word.len()))?;
            let mut value = Value { kind: STRING, data: Data { room: [0; 3] } };
            value.data.string = word.as_ptr().cast_mut();
            // SAFETY: key and value live through the call, which copies them and does not write.
            done("PMIx_Put", unsafe { (self.put)(GLOBAL, KEY.as_ptr(), &raw mut value) })?;
            // SAFETY: a call without arguments.
            done("PMIx_Commit", unsafe { (self.commit)() })?;
        }
        // SAFETY: no process is named, which means all of the job.
        done("PMIx_Fence", unsafe { (self.fence)(null(), 0, null(), 0) })?;
        let told = self.value(0, KEY, STRING, |data| {
            // SAFETY: the kind says that it is a string: it is null, or ends with zero, and is the reader's from now on.
            unsafe {
                let string = data.string;
                let told = (!string.is_null()).then(|| CStr::from_ptr(string).to_string_lossy().into_owned());
                libc::free(string.cast());
                told
            }
        })?;
        // nobody leaves while another still asks
        // SAFETY: as above.
        done("PMIx_Fence", unsafe { (self.fence)(null(), 0, null(), 0) })?;
        self.ended = true;
        // SAFETY: no further arguments.
        done("PMIx_Finalize", unsafe { (self.end)(null(), 0) })?;
        told.ok_or_else(|| Error::pmix("the first process has told nothing"))
    }

    /// What is kept of a rank under a key.
    fn value<T>(&self, rank: u32, key: &CStr, kind: u16, read: impl FnOnce(&Data) -> T) -> Result<T, Error> {
        let process = Process { job: self.job, rank };
        let mut value: *mut Value = null_mut();
        // SAFETY: all memory lives through the call, which writes a pointer to memory that becomes the caller's.
        let status = unsafe { (self.get)(&raw const process, key.as_ptr(), null(), 0, &raw mut value) };
        done("PMIx_Get", status)?;
        if value.is_null() {
            return Err(Error::pmix(format!("it knows nothing of {key:?}")));
        }
        // SAFETY: it was just given, and is a value.
        let found = unsafe { &*value };
        let read = (found.kind == kind).then(|| read(&found.data));
        let other = found.kind;
        // SAFETY: it is the caller's, from malloc, and not used any more.
        unsafe { libc::free(value.cast()) };
        read.ok_or_else(|| Error::pmix(format!("{key:?} is of kind {other}, and not {kind}")))
    }
}

fn done(what: &str, status: c_int) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(Error::pmix(format!("{what} fails with {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};
    use std::process::Command;

    #[test]
    fn structures_and_numbers_are_those_of_its_header() {
        let directory = tempfile();
        let source = directory.join("check.c");
        let assert = |what: &str, is: usize| format!("_Static_assert({what} == {is}, \"{what}\");\n");
        let text = "#include <stddef.h>\n#include <pmix.h>\n".to_owned()
            + &assert("sizeof(pmix_proc_t)", size_of::<Process>())
            + &assert("offsetof(pmix_proc_t, rank)", offset_of!(Process, rank))
            + &assert("sizeof(pmix_value_t)", size_of::<Value>())
            + &assert("offsetof(pmix_value_t, data)", offset_of!(Value, data))
            + &assert("PMIX_STRING", STRING.into())
            + &assert("PMIX_UINT32", UINT32.into())
            + &assert("PMIX_GLOBAL", GLOBAL.into())
            + &assert("(PMIX_RANK_WILDCARD)", WILDCARD as usize)
            + &assert("sizeof(PMIX_JOB_SIZE)", JOB_SIZE.to_bytes_with_nul().len())
            + &assert("PMIX_SUCCESS", 0);
        std::fs::write(&source, text).unwrap();
        let flags = Command::new("pkg-config").args(["--cflags", "pmix"]).output().unwrap();
        if !flags.status.success() {
            polyrail_testing::lacking("libpmix-dev, for PMIx's header");
            return;
        }
        let flags = String::from_utf8(flags.stdout).unwrap();
        let compiled = Command::new("cc")
            .arg("-fsyntax-only")
            .args(flags.split_whitespace())
            .arg(&source)
            .output()
            .unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    }

    fn tempfile() -> std::path::PathBuf {
        let directory = std::env::temp_dir().join(format!("polyrail-pmix-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn the_launchers_own_library_comes_first() {
        let places = places(|name| (name == "OPAL_PREFIX").then(|| "/opt/ompi".into()));
        assert_eq!(places.first().unwrap(), "/opt/ompi/lib/libpmix.so.2");
        assert_eq!(places.last().unwrap(), SONAME);
    }
}
