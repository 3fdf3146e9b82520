//! Which MPI a program uses.
//!
//! A compiled program shows it by the libraries that the system's loader would load for it, and the loader itself is
//! asked: it alone knows all its search rules. A Python program shows it by what its interpreter's mpi4py loads. A
//! program that is neither may start one that is (`valgrind ./app`, `taskset -c 1 ./app`), so its arguments are looked at.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::Endianness;
use object::elf::FileHeader64;
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};

use super::error::Error;
use super::mpiexec::{Family, Mpiexec};

/// The binary interface that a program was built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// MPICH's, which its relatives share.
    Mpich,
    /// Open MPI's.
    OpenMpi,
    /// The one that MPI 5 defines, which several implementations offer.
    Standard,
}

impl Abi {
    /// Who implements it; `None` if several may.
    pub fn family(self) -> Option<Family> {
        match self {
            Self::Mpich => Some(Family::Mpich),
            Self::OpenMpi => Some(Family::OpenMpi),
            Self::Standard => None,
        }
    }

    fn of_library(file: &str) -> Option<Self> {
        const KNOWN: [(&str, Abi); 4] = [
            ("libmpi_abi.so", Abi::Standard),
            ("libmpich.so", Abi::Mpich),
            ("libmpi.so.12", Abi::Mpich),
            ("libmpi.so.40", Abi::OpenMpi),
        ];
        // the name, or the name and a version: not libmpi.so.120
        let names =
            |stem: &str| file.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        KNOWN.iter().find(|(stem, _)| names(stem)).map(|(_, abi)| *abi)
    }
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mpich => "MPICH ABI",
            Self::OpenMpi => "Open MPI",
            Self::Standard => "MPI standard ABI",
        })
    }
}

/// The MPI of a program.
#[derive(Debug)]
pub struct Found {
    /// What the program was built for.
    pub abi: Abi,
    /// The MPI library that it will load.
    pub library: PathBuf,
    /// How that is known, for people.
    pub how: String,
    libraries: Vec<PathBuf>,
}

impl Found {
    /// Whether the MPI library brings libfabric with it. Open MPI may still load it by a component.
    pub fn has_libfabric(&self) -> bool {
        self.libraries.iter().any(|path| is_libfabric(path))
    }

    /// A library of the program's that will have none before it: a sanitizer's.
    pub fn first_of_all(&self) -> Option<&Path> {
        let begins = ["libasan.", "libtsan.", "libhwasan.", "libclang_rt.asan", "libclang_rt.tsan"];
        let is_first = |path: &&PathBuf| begins.iter().any(|begin| file_name(path).starts_with(begin));
        self.libraries.iter().find(is_first).map(PathBuf::as_path)
    }

    fn among(libraries: Vec<PathBuf>, how: impl FnOnce(&Path) -> String) -> Option<Self> {
        let (abi, library) =
            libraries.iter().find_map(|path| Some((Abi::of_library(file_name(path))?, path.clone())))?;
        Some(Self { abi, how: how(&library), library, libraries })
    }
}

/// Finds the MPI of `program`, or of the first of its arguments that is an MPI program.
pub fn detect(program: &OsStr, arguments: &[OsString]) -> Result<Found, Error> {
    let path = resolve(program).ok_or_else(|| match Path::new(program).is_file() {
        true => Error::NotExecutable { program: program.into() },
        false => Error::NotFound { program: program.into() },
    })?;
    let error = match inspect(&path) {
        Err(error @ Error::NotMpi { .. }) => error,
        outcome => return outcome,
    };
    let started = arguments
        .iter()
        .filter(|word| !word.as_encoded_bytes().starts_with(b"-"))
        .filter_map(|word| resolve(word))
        .find_map(|path| inspect(&path).ok());
    started.ok_or(error)
}

fn inspect(program: &Path) -> Result<Found, Error> {
    let unreadable = |source| Error::Unreadable { program: program.into(), source };
    if is_python(program) {
        return ask_python(program);
    }
    let mut start = Vec::new();
    let file = std::fs::File::open(program).map_err(unreadable)?;
    (&file).take(256).read_to_end(&mut start).map_err(unreadable)?;
    if start.starts_with(b"#!") {
        return match interpreter(&start) {
            Some(python) if is_python(&python) => ask_python(&resolve(python.as_os_str()).unwrap_or(python)),
            Some(other) => Err(not_mpi(program, format!("it is a script of {}", other.display()))),
            None => Err(not_mpi(program, "its first line names no interpreter")),
        };
    }
    if !start.starts_with(b"\x7fELF") {
        return Err(not_mpi(program, "it is neither a compiled program nor a script"));
    }
    ask_loader(program, &loader_of(program, file)?)
}

fn not_mpi(program: &Path, why: impl Into<String>) -> Error {
    Error::NotMpi { program: program.into(), why: why.into() }
}

/// The dynamic loader that a compiled program names.
fn loader_of(program: &Path, file: std::fs::File) -> Result<PathBuf, Error> {
    let data = ReadCache::new(file);
    let foreign = |_| not_mpi(program, "it is not a 64-bit program");
    let header = FileHeader64::<Endianness>::parse(&data).map_err(foreign)?;
    let endian = header.endian().map_err(foreign)?;
    let segments = header.program_headers(endian, &data).map_err(foreign)?;
    let loader = segments.iter().find_map(|segment| segment.interpreter(endian, &data).ok().flatten());
    match loader.map(std::str::from_utf8) {
        Some(Ok(path)) => Ok(path.into()),
        Some(Err(_)) => Err(not_mpi(program, "the loader it names is no path")),
        None => Err(Error::Static { program: program.into() }),
    }
}

/// Whether the MPI beside a launcher has libfabric, which loads the provider.
pub fn has_libfabric(mpiexec: &Mpiexec) -> bool {
    let libraries = mpiexec.library().map(|library| libraries_of(&library)).unwrap_or_default();
    libraries.iter().any(|path| is_libfabric(path)) || mpiexec.loads_libfabric()
}

fn is_libfabric(path: &Path) -> bool {
    file_name(path).starts_with("libfabric.so")
}

/// The files that the system's loader would load with a library, by the loader that this command has.
pub fn libraries_of(library: &Path) -> Vec<PathBuf> {
    let own = Path::new("/proc/self/exe");
    let loader = std::fs::File::open(own).ok().and_then(|file| loader_of(own, file).ok());
    let output = loader.and_then(|loader| Command::new(loader).arg("--list").arg(library).output().ok());
    output.map_or_else(Vec::new, |output| resolved(&String::from_utf8_lossy(&output.stdout)))
}

/// The libraries that a compiled program loads: by name, and where they are if they are anywhere.
pub fn libraries_of_program(program: &Path) -> Result<Vec<(String, Option<PathBuf>)>, Error> {
    let unreadable = |source| Error::Unreadable { program: program.into(), source };
    let loader = loader_of(program, std::fs::File::open(program).map_err(unreadable)?)?;
    let absolute = std::path::absolute(program).unwrap_or_else(|_| program.into());
    // unlike --list this goes on where a library is missing
    let mut command = Command::new(&loader);
    command.arg(absolute).env("LD_TRACE_LOADED_OBJECTS", "1");
    let output = command.output().map_err(|source| Error::Unreadable { program: loader, source })?;
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    let library = |line: &str| {
        let (name, rest) = line.trim().split_once(" => ")?;
        let path = rest.rsplit_once(" (0x").map(|(path, _)| PathBuf::from(path));
        Some((name.to_owned(), path))
    };
    Ok(listing.lines().filter_map(library).collect())
}

fn ask_loader(program: &Path, loader: &Path) -> Result<Found, Error> {
    // Works on the file without running any of it. A bare name would be looked up on the library path.
    let absolute = std::path::absolute(program).unwrap_or_else(|_| program.into());
    let output = Command::new(loader)
        .arg("--list")
        .arg(absolute)
        .output()
        .map_err(|source| Error::Unreadable { program: loader.into(), source })?;
    let (listing, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(match missing_library(&complaint) {
            Some(library) => Error::LibraryMissing { program: program.into(), library },
            None => not_mpi(program, complaint.trim()),
        });
    }
    Found::among(resolved(&listing), |library| format!("it loads {}", library.display()))
        .ok_or_else(|| not_mpi(program, "it loads no MPI library"))
}

/// The files in a loader's listing, which has lines `name => file (address)`.
fn resolved(listing: &str) -> Vec<PathBuf> {
    let file = |line: &str| Some(PathBuf::from(line.split_once(" => ")?.1.rsplit_once(" (0x")?.0));
    listing.lines().filter_map(file).collect()
}

/// The library that a loader complains it cannot load; loaders differ in the words around its name.
fn missing_library(complaint: &str) -> Option<String> {
    let mut words = complaint.split(|c: char| c.is_whitespace() || c == ':');
    words.find(|word| word.starts_with("lib") && word.contains(".so")).map(str::to_owned)
}

/// `python`, `python3`, `python3.12`, `pypy3` ...
fn is_python(path: &Path) -> bool {
    let version = file_name(path).strip_prefix("python").or_else(|| file_name(path).strip_prefix("pypy"));
    version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

/// What a script's first line names, behind `env` if there is one.
fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = std::str::from_utf8(start.split(|byte| *byte == b'\n').next()?.strip_prefix(b"#!")?).ok()?;
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let named = if first.ends_with("/env") {
        words.find(|word| !word.starts_with('-') && !word.contains('='))?
    } else {
        first
    };
    Some(named.into())
}

/// Loads mpi4py as a program would, short of starting MPI, and lists the libraries that came with it.
const ASK_MPI4PY: &str = r#"
import sys
try:
    import mpi4py
except ImportError:
    sys.exit(86)
mpi4py.rc.initialize = mpi4py.rc.finalize = False
from mpi4py import MPI
with open("/proc/self/maps") as maps:
    for path in sorted({line.split(None, 5)[-1].strip() for line in maps if ".so" in line}):
        print("polyrail:" + path)
"#;

fn ask_python(python: &Path) -> Result<Found, Error> {
    let output = Command::new(python)
        .args(["-c", ASK_MPI4PY])
        .output()
        .map_err(|source| Error::Unreadable { program: python.into(), source })?;
    if output.status.code() == Some(86) {
        return Err(not_mpi(python, "this Python has no mpi4py"));
    }
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Mpi4py { python: python.into(), why });
    }
    let listing = String::from_utf8_lossy(&output.stdout);
    let libraries =
        listing.lines().filter_map(|line| line.strip_prefix("polyrail:")).map(PathBuf::from).collect();
    Found::among(libraries, |library| format!("mpi4py of {} loads {}", python.display(), library.display()))
        .ok_or_else(|| not_mpi(python, "its mpi4py loads an MPI library of no known name"))
}

/// The file that a word names as a program: a path, a program on PATH, or one in this directory.
pub fn resolve(word: &OsStr) -> Option<PathBuf> {
    let here = Path::new(word);
    let on_path = || {
        std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(word)).find(|p| is_program(p))
    };
    let found = if word.as_encoded_bytes().contains(&b'/') { None } else { on_path() };
    found.or_else(|| is_program(here).then(|| here.into()))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
