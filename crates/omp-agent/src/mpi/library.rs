//! Finding and loading the MPI library.
use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Error;

/// Names the variable that names the library.
pub const VARIABLE: &str = "POLYRAIL_OMP_MPI";

/// A loaded library, never unloaded.
pub struct Library {
    handle: *mut c_void,
    path: PathBuf,
}

impl Library {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |why| Error { what: path.display().to_string(), why };
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(error.to_string()))?;
        // Open MPI's components look for its symbols in the global scope.
        // SAFETY: a C string; what the library's constructors do is MPI's business
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            return Err(failed(loader_says()));
        }
        Ok(Self { handle, path: path.into() })
    }

    pub fn file_name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    pub fn symbol(&self, name: &CStr) -> Result<*mut c_void, Error> {
        // SAFETY: a C string and a loaded library
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if found.is_null() {
            return Err(Error { what: self.path.display().to_string(), why: loader_says() });
        }
        Ok(found)
    }
}

fn loader_says() -> String {
    // SAFETY: asked right after a call failed; the text is valid until the next
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "no reason given".into() } else { CStr::from_ptr(text).to_string_lossy().into() }
    }
}

/// The library of the MPI that launched this process: as the user names it, else in the installation of our parent, which is that MPI's launcher, else by
/// name alone, as the system's loader finds it.
pub fn find(open_mpi: bool) -> PathBuf {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return path.into();
    }
    // SAFETY: only asks
    let parent = std::fs::read_link(format!("/proc/{}/exe", unsafe { libc::getppid() })).unwrap_or_default();
    beside(&parent, open_mpi)
}

fn beside(launcher: &Path, open_mpi: bool) -> PathBuf {
    let names: &[&str] = if open_mpi { &["libmpi.so.40"] } else { &["libmpi.so.12", "libmpich.so.12"] };
    let mut dirs = launcher
        .ancestors()
        .skip(1)
        .flat_map(|dir| ["lib", "lib64", "lib/x86_64-linux-gnu"].map(|lib| dir.join(lib)));
    let found = dirs.find_map(|dir| names.iter().map(|name| dir.join(name)).find(|path| path.is_file()));
    found.unwrap_or_else(|| names[0].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_the_one_of_the_launchers_installation() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, lib) = (dir.path().join("bin"), dir.path().join("lib"));
        std::fs::create_dir(&lib).unwrap();
        let launcher = bin.join("hydra_pmi_proxy");
        std::fs::write(lib.join("libmpi.so.12"), "").unwrap();
        assert_eq!(beside(&launcher, false), lib.join("libmpi.so.12"));
        assert_ne!(beside(&launcher, true), lib.join("libmpi.so.12"), "another MPI's is no use");
        assert_eq!(beside(Path::new(""), true), Path::new("libmpi.so.40"));
    }

    #[test]
    fn what_cannot_be_loaded_is_named() {
        let error = Library::open(Path::new("/nowhere/libmpi.so.12")).err().unwrap();
        assert!(error.to_string().contains("/nowhere/libmpi.so.12"), "{error}");
        let libc = Library::open(Path::new("libc.so.6")).unwrap();
        assert!(libc.symbol(c"MPI_Init").is_err() && libc.symbol(c"malloc").is_ok());
    }
}
