//! What the OpenMP runtime (`crates/omp-rt`, inside the program) and its agent (`crates/omp-agent`, beside it) share. No system call; memory is
//! allocated by exchange (a list of pages or two when blobs are merged), never by page.
//!
//! | module | does |
//! |---|---|
//! | [`code`] | where a program's file has code, and where nobody can tell |
//! | [`area`] | the mapping that both share: requests, exchanges, buffers |
//! | [`diff`](mod@diff) | which bytes of a page differ from its twin |
//! | [`blob`] | changed pages as they travel |
//! | [`merge`] | merging what several ranks changed |
//! | [`pages`] | runs of pages |
//! | [`coherence`] | one rank: what it tells others of its memory, and takes over from them |
//! | [`services`] | what rank 0's agent does for all ranks: tokens, the log, loops |
//! | [`checkpoint`] | files of checkpoints |
//! | [`items`] | lists as bytes |
//! | [`options`] | what the command takes, and hands on to its agents |
//! | [`layout`] | the addresses that are the same in every process |
//!
//! Invariants:
//! - Bytes from another process are checked before use; nothing here panics on them.
pub mod area;
pub mod blob;
pub mod checkpoint;
pub mod code;
pub mod coherence;
pub mod diff;
pub mod items;
pub mod layout;
pub mod merge;
#[cfg(feature = "command-line")]
pub mod options;
pub mod pages;
pub mod services;

/// Entry points of the compilers' runtimes, a line each: name, `works` or `refused`, and the construct or the reason, between tabs.
pub const ENTRIES: &str = include_str!("entries.txt");

/// The runtime's file, which stands beside its agent, built or installed.
pub const RUNTIME: &str = "libpolyrail_omp_rt.so";

/// Begins of names of libraries whose own data are each process's (descriptors, locks, caches): the C, C++ and Fortran libraries, the loader, runtimes.
const SYSTEM: [&str; 31] = [
    "ld-linux",
    "ld64.so",
    "linux-vdso",
    "libc.so",
    "libm.so",
    "libmvec.so",
    "libpthread.so",
    "libdl.so",
    "librt.so",
    "libutil.so",
    "libanl.so",
    "libresolv.so",
    "libnss",
    "libgcc_s",
    "libstdc++",
    "libc++",
    "libunwind",
    "libgfortran",
    "libquadmath",
    "libflang",
    "libFortran",
    "libatomic",
    "libgomp",
    "libomp",
    "libiomp5",
    "libpolyrail",
    "libasan",
    "libtsan",
    "libubsan",
    "libclang_rt",
    "libSystem",
];

/// Whether a library, by the name of its file, is the system's: its data are each process's, and what it does by itself is not the program's doing.
pub fn is_systems(file: &str) -> bool {
    SYSTEM.iter().any(|name| file.starts_with(name))
}
