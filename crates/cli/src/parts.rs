//! Where the parts of Polyrail are: one rule for all commands, built or installed.
//!
//! A build leaves all parts in one directory. An installation has the commands in `PREFIX/bin` and what they load or start
//! in `PREFIX/lib/polyrail` (`scripts/install`, which the Debian package and the wheel use, too). So a part is beside the program
//! that looks for it, or in `../lib/polyrail` as seen from there; a symbolic link to the program is followed first. Nothing else is searched,
//! so that a command never loads another version's part by chance: who wants another one names its directory.

use std::path::{Path, PathBuf};

/// Something that is installed with the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The libfabric provider.
    Provider,
    /// The recorder that programs are started with.
    Recorder,
    /// What MPI programs are started with.
    Companion,
    /// What `polyrail omp` starts on each host.
    Agent,
    /// What replaces the OpenMP runtime in a program.
    Runtime,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 5] = [Self::Provider, Self::Recorder, Self::Companion, Self::Agent, Self::Runtime];

    /// The name of its file. libfabric loads only what ends in `fi.so`.
    pub fn file(self) -> &'static str {
        match self {
            Self::Provider => "libpolyrail_fi.so",
            Self::Recorder => "libpolyrail_preload.so",
            Self::Companion => "libpolyrail_mpi.so",
            Self::Agent => "polyrail-omp-agent",
            Self::Runtime => polyrail_omp::RUNTIME,
        }
    }

    /// What it is, for people.
    pub fn what(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Recorder => "recorder",
            Self::Companion => "MPI companion",
            Self::Agent => "OpenMP agent",
            Self::Runtime => "OpenMP runtime",
        }
    }

    /// Its path: in the first of `chosen` that has it, if any is given, else where this program's parts are.
    ///
    /// # Errors
    /// It is in none of these directories, which the error names.
    pub fn find(self, chosen: &[PathBuf]) -> Result<PathBuf, Missing> {
        self.find_for(chosen, &std::env::current_exe().unwrap_or_default())
    }

    fn find_for(self, chosen: &[PathBuf], program: &Path) -> Result<PathBuf, Missing> {
        let places = if chosen.is_empty() { places(program) } else { chosen.to_vec() };
        let found = places.iter().map(|place| place.join(self.file())).find(|path| path.is_file());
        // ranks may start in another directory
        found.and_then(|path| std::path::absolute(path).ok()).ok_or(Missing { part: self, searched: places })
    }
}

/// The directories where a program's parts are.
fn places(program: &Path) -> Vec<PathBuf> {
    let Some(bin) = program.parent() else { return Vec::new() };
    let installed = bin.parent().map(|prefix| prefix.join("lib/polyrail"));
    std::iter::once(bin.to_owned()).chain(installed).collect()
}

/// A part is not there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {} ({}) is in none of these: {}; {REMEDY}", .part.what(), .part.file(), self.places())]
pub struct Missing {
    /// What was looked for.
    pub part: Part,
    /// The directories that were searched.
    pub searched: Vec<PathBuf>,
}

impl Missing {
    /// The directories that were searched, in words.
    pub fn places(&self) -> String {
        self.searched.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// What mends it.
pub const REMEDY: &str = "install Polyrail again, or build it with make build";

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    #[test]
    fn built_and_installed_parts_are_found_alike() {
        for part in Part::ALL {
            let dir = tempfile::tempdir().unwrap();
            let at = |path: &str| dir.path().join(path);
            let program = at("bin/polyrail");
            let missing = part.find_for(&[], &program).unwrap_err();
            assert_eq!(missing.searched, [at("bin"), at("lib/polyrail")]);
            assert!(missing.to_string().contains(part.file()), "{missing}");
            put(&at("lib/polyrail").join(part.file()));
            assert_eq!(part.find_for(&[], &program), Ok(at("lib/polyrail").join(part.file())));
            // what was built beside the program belongs to it more than what is installed
            put(&at("bin").join(part.file()));
            assert_eq!(part.find_for(&[], &program), Ok(at("bin").join(part.file())));
        }
    }

    #[test]
    fn named_directories_are_the_only_ones() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("polyrail");
        put(&dir.path().join(Part::Provider.file()));
        let chosen = [dir.path().join("a"), dir.path().join("b")];
        let missing = Part::Provider.find_for(&chosen, &program).unwrap_err();
        assert_eq!(missing.searched, chosen);
        put(&chosen[1].join(Part::Provider.file()));
        assert_eq!(Part::Provider.find_for(&chosen, &program), Ok(chosen[1].join(Part::Provider.file())));
    }

    #[test]
    fn a_program_without_a_path_finds_nothing() {
        assert_eq!(Part::Agent.find_for(&[], Path::new("")).unwrap_err().searched, Vec::<PathBuf>::new());
    }
}
