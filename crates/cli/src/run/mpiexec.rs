//! The launcher of an MPI.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::Error;
use super::srun::is_slurm;

/// MPI implementations that launch alike and take the same environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// MPICH and its relatives, launched by Hydra.
    Mpich,
    /// Open MPI.
    #[value(name = "openmpi")]
    OpenMpi,
}

impl Family {
    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
        }
    }

    /// What its launcher may be called. Where several MPIs are installed, plain `mpiexec` may be any one's.
    fn launchers(self) -> &'static [&'static str] {
        match self {
            Self::Mpich => &["mpiexec.hydra", "mpiexec.mpich", "mpiexec"],
            Self::OpenMpi => &["mpiexec.openmpi", "mpiexec", "mpirun"],
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What to do instead.
const NOT_SRUN: &str =
    "that is Slurm's launcher, which only polyrail run takes; others start their ranks by an MPI's own";

/// A launcher that was found.
#[derive(Debug)]
pub struct Mpiexec {
    /// Its file.
    pub path: PathBuf,
    /// Whose it is.
    pub family: Family,
    /// Its version in its own words.
    pub version: String,
}

impl Mpiexec {
    /// Asks `path` who it is; the error says why it is no use.
    fn ask(path: &Path) -> Result<Self, String> {
        let output = Command::new(path).arg("--version").output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        if let Some((family, version)) = identify(&text) {
            return Ok(Self { path: path.into(), family, version });
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(match complaint.lines().find(|line| !line.trim().is_empty()) {
            Some(line) if !output.status.success() => line.trim().to_owned(),
            _ if is_slurm(&text) => NOT_SRUN.into(),
            _ => "neither MPICH's launcher (Hydra) nor Open MPI's".into(),
        })
    }

    /// Whether the MPI beside this launcher loads libfabric by a component rather than by its library: Open MPI can.
    pub fn loads_libfabric(&self) -> bool {
        let info = self.path.with_file_name("ompi_info");
        self.family == Family::OpenMpi
            && Command::new(info).arg("--parsable").output().is_ok_and(|output| {
                String::from_utf8_lossy(&output.stdout).lines().any(|line| line.starts_with("mca:mtl:ofi:"))
            })
    }
}

impl Mpiexec {
    /// The MPI library that is installed with it.
    pub fn library(&self) -> Option<PathBuf> {
        let names: &[&str] = match self.family {
            Family::Mpich => &["libmpi.so.12", "libmpich.so.12"],
            Family::OpenMpi => &["libmpi.so.40"],
        };
        let program = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let above = |path: &Path| path.ancestors().skip(2).map(Path::to_owned).collect::<Vec<_>>();
        let dirs = above(&self.path).into_iter().chain(above(&program));
        let dirs = dirs.flat_map(|dir| ["lib", "lib64", "lib/x86_64-linux-gnu"].map(|lib| dir.join(lib)));
        dirs.flat_map(|dir| names.iter().map(move |name| dir.join(name))).find(|path| path.is_file())
    }
}

/// Whose launcher writes this for `--version`, and its version.
fn identify(text: &str) -> Option<(Family, String)> {
    if text.starts_with("HYDRA") {
        let version = text.lines().find_map(|line| line.trim().strip_prefix("Version:"))?;
        return Some((Family::Mpich, format!("Hydra {}", version.trim())));
    }
    // "mpiexec (Open MPI) 5.0.11", "mpirun (Open MPI) 4.1.4"
    let version = text.lines().find_map(|line| line.split_once("(Open MPI) "))?.1;
    Some((Family::OpenMpi, format!("Open MPI {}", version.trim())))
}

/// Finds the launcher that belongs to `library`, else one of `family` (any, if `None`): where the library is installed,
/// then on PATH, beside this command, and in the environments that set-up makes.
pub fn find(
    family: Option<Family>,
    library: Option<&Path>,
    explicit: Option<&Path>,
) -> Result<Mpiexec, Error> {
    let fits = |mpiexec: &Mpiexec| family.is_none_or(|family| family == mpiexec.family);
    if let Some(path) = explicit {
        let wrong = |why| Error::WrongMpiexec { path: path.into(), why };
        let mpiexec = Mpiexec::ask(path).map_err(wrong)?;
        return match (fits(&mpiexec), family) {
            (false, Some(family)) => {
                Err(wrong(format!("{} cannot launch a program of {family}", mpiexec.version)))
            }
            _ => Ok(mpiexec),
        };
    }
    first_of(family, candidates(family, library), fits)
}

/// The first that fits; or why those that are there could not be asked.
fn first_of(
    family: Option<Family>,
    searched: Vec<PathBuf>,
    fits: impl Fn(&Mpiexec) -> bool,
) -> Result<Mpiexec, Error> {
    let mut refused = Vec::new();
    for path in searched.iter().filter(|path| path.is_file()) {
        match Mpiexec::ask(path) {
            Ok(mpiexec) if fits(&mpiexec) => return Ok(mpiexec),
            Ok(_) => {}
            Err(why) => refused.push(format!("{}: {why}", path.display())),
        }
    }
    Err(Error::NoMpiexec { family, searched, refused })
}

/// The first launcher, of `family` if there is one, that `is_right`.
pub fn first(family: Option<Family>, is_right: impl Fn(&Mpiexec) -> bool) -> Result<Mpiexec, Error> {
    let fits = |mpiexec: &Mpiexec| family.is_none_or(|family| family == mpiexec.family) && is_right(mpiexec);
    first_of(family, candidates(family, None), fits)
}

fn candidates(family: Option<Family>, library: Option<&Path>) -> Vec<PathBuf> {
    let families: &[Family] = match &family {
        Some(family) => std::slice::from_ref(family),
        None => &[Family::Mpich, Family::OpenMpi],
    };
    let names: Vec<&str> = families.iter().flat_map(|family| family.launchers()).copied().collect();
    let mut paths: Vec<PathBuf> = Vec::new();
    for dir in prefixes(library).chain(on_path()).chain(beside()).chain(set_up()) {
        for path in names.iter().map(|name| dir.join(name)) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    paths
}

/// The `bin` of each directory above the library, nearest first: `P/bin` for `P/lib/x86_64-linux-gnu/libmpi.so`.
fn prefixes(library: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    let above: Vec<PathBuf> =
        library.into_iter().flat_map(|path| path.ancestors().skip(2)).map(|dir| dir.join("bin")).collect();
    above.into_iter().filter(|dir| dir.is_dir())
}

fn on_path() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect::<Vec<_>>().into_iter()
}

/// Where this command is: in a Python environment that has an MPI and is not activated.
fn beside() -> impl Iterator<Item = PathBuf> {
    std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned())).into_iter()
}

/// `.venv/*/bin` in a directory above this command.
fn set_up() -> impl Iterator<Item = PathBuf> {
    let exe = std::env::current_exe().unwrap_or_default();
    let above: Vec<PathBuf> = exe.ancestors().skip(1).map(|dir| dir.join(".venv")).collect();
    above
        .into_iter()
        .flat_map(|venv| ["mpich/bin", "openmpi/bin"].map(|dir| venv.join(dir)))
        .filter(|dir| dir.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYDRA: &str =
        "HYDRA build details:\n    Version:                                 5.0.2\n    CC: gcc\n";

    fn fake(dir: &Path, name: &str, says: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::create_dir_all(dir).unwrap();
        polyrail_testing::executable(&path, &format!("#!/bin/sh\ncat <<'END'\n{says}\nEND\n"));
        path
    }

    #[test]
    fn launchers_are_known_by_what_they_say() {
        assert_eq!(identify(HYDRA), Some((Family::Mpich, "Hydra 5.0.2".into())));
        assert_eq!(
            identify("mpirun (Open MPI) 4.1.4\n\nReport bugs to ..."),
            Some((Family::OpenMpi, "Open MPI 4.1.4".into()))
        );
        assert_eq!(identify("slurm 22.05.8"), None);
    }

    #[test]
    fn the_launcher_of_the_librarys_own_prefix_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("opt");
        let ours = fake(&prefix.join("bin"), "mpiexec", "mpiexec (Open MPI) 5.0.11");
        let library = prefix.join("lib/x86_64-linux-gnu/libmpi.so.40");
        let found = find(Some(Family::OpenMpi), Some(&library), None).unwrap();
        assert_eq!((found.path, found.family), (ours, Family::OpenMpi));
    }

    #[test]
    fn a_launcher_of_another_mpi_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        fake(&dir.path().join("bin"), "mpiexec", "mpiexec (Open MPI) 5.0.11");
        let ours = fake(&dir.path().join("bin"), "mpiexec.hydra", HYDRA);
        let library = dir.path().join("lib/libmpi.so.12");
        assert_eq!(find(Some(Family::Mpich), Some(&library), None).unwrap().path, ours);
        // the standard ABI takes whichever launcher is installed beside the library
        assert_eq!(find(None, Some(&library), None).unwrap().path, ours);
    }

    #[test]
    fn a_named_launcher_must_fit() {
        let dir = tempfile::tempdir().unwrap();
        let open = fake(dir.path(), "mpiexec", "mpiexec (Open MPI) 5.0.11");
        assert!(find(Some(Family::OpenMpi), None, Some(&open)).is_ok());
        let error = find(Some(Family::Mpich), None, Some(&open)).unwrap_err().to_string();
        assert!(error.contains("Open MPI 5.0.11 cannot launch a program of MPICH"), "{error}");
        assert!(find(None, None, Some(&dir.path().join("none"))).is_err());
        let other = fake(dir.path(), "srun", "slurm 22.05.8");
        assert!(find(None, None, Some(&other)).unwrap_err().to_string().contains("Slurm's launcher"));
        let broken = dir.path().join("broken");
        polyrail_testing::executable(&broken, "#!/bin/sh\necho 'libslurm.so.38: not found' >&2; exit 127\n");
        assert!(
            find(None, None, Some(&broken)).unwrap_err().to_string().ends_with("libslurm.so.38: not found")
        );
    }
}
