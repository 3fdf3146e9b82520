//! Whom a launcher started together with this process, and how the first of them tells the others one word: where it can be joined.
//!
//! The launcher is the users': `mpiexec` of MPICH, Intel or Open MPI, `srun`, an indexed job of Kubernetes, a script. Each has its way of telling processes of
//! each other, and here is an adapter for each, no launcher.
//!
//! | module | |
//! |---|---|
//! | [`place`] | what the environment says: which of how many, and by which of the ways |
//! | [`pmi`] | PMI-1, a protocol of lines over a descriptor that was inherited: Hydra, and Slurm's `--mpi=pmi2` |
//! | [`pmix`] | PMIx, a library of the launcher's: Open MPI's PRRTE, and Slurm's `--mpi=pmix` |
//!
//! Invariants:
//! - The environment decides alone, so that all processes of a job decide the same.
//! - What a launcher says is bounded. PMI is waited for no longer than [`PATIENCE`]; PMIx's calls wait as long as its server does, so who may not wait for ever
//!   calls [`Board::share`](place::Board::share) in a thread.

pub mod place;
pub mod pmi;
pub mod pmix;

pub use place::{Place, Way, find};

use std::time::Duration;

/// How long others may take to be started.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// The longest word, in bytes: what all of PMI's servers take.
pub const LONGEST: usize = 255;

/// Why a process does not hear of the others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A variable has a value that it cannot have.
    #[error("{name}={value:?}: {why}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        why: &'static str,
    },
    /// The launcher said something else than it should, or nothing.
    #[error("the launcher ({by}): {why}")]
    Launcher {
        /// By which way.
        by: &'static str,
        /// What.
        why: String,
    },
    /// A word that cannot be told.
    #[error("a word of {0} bytes: 1 to {LONGEST} letters, digits, - and _ are possible")]
    Word(usize),
}

impl Error {
    pub(crate) fn pmi(why: impl Into<String>) -> Self {
        Self::Launcher { by: "PMI", why: why.into() }
    }

    pub(crate) fn pmix(why: impl Into<String>) -> Self {
        Self::Launcher { by: "PMIx", why: why.into() }
    }
}

/// Whether all launchers can hand on this word.
fn check(word: &str) -> Result<(), Error> {
    let fits = (1..=LONGEST).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if fits { Ok(()) } else { Err(Error::Word(word.len())) }
}
