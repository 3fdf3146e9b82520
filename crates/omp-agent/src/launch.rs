//! What rank 0 decides and tells all others: the program, and everything that must be the same in all processes.
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use polyrail_omp::items::{numbers, pack, read_numbers, unpack};

/// Beginnings of names of variables that launchers, MPIs and we ourselves add, and that differ between ranks.
const REMOVED: [&str; 22] = [
    "OMPI_",
    "OPAL_",
    "ORTE_",
    "PRTE_",
    "PRRTE_",
    "PMI_",
    "PMI2_",
    "PMIX",
    "HYDI_",
    "HYDRA_",
    "MPI_",
    "MPIR_",
    "MPICH_",
    "MPIEXEC_",
    "I_MPI_",
    "SLURM",
    "PBS_",
    "FI_",
    "UCX_",
    "POLYRAIL_",
    "FLUX_",
    "PALS_",
];
/// Whole names of such variables. Hydra sets Fortran's, Open MPI the others.
const REMOVED_NAMES: [&str; 4] =
    ["GFORTRAN_UNBUFFERED_PRECONNECTED", "IPATH_NO_BACKTRACE", "HFI_NO_BACKTRACE", "PSM3_DEVICES"];

/// Bytes of stack where the user's are unlimited: then the kernel would place libraries from low addresses upwards, among the heaps.
const STACK: u64 = 1 << 30;

/// How the program is started on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its file, absolute.
    pub program: PathBuf,
    /// Its words, the zeroth included.
    pub words: Vec<OsString>,
    /// Where.
    pub directory: PathBuf,
    /// Names and values.
    pub environment: Vec<(OsString, OsString)>,
    /// The runtime library.
    pub runtime: PathBuf,
    /// The directory of the stand-ins.
    pub stand_ins: PathBuf,
    /// Bytes of stack.
    pub stack: u64,
    /// Threads of each rank.
    pub threads: usize,
    /// See [`polyrail_omp::area::setting`].
    pub settings: u32,
    /// Seconds after which a rank that others wait for is looked at; 0: never.
    pub watchdog: u64,
    /// What the kernel gives each process by chance, which stack guards and pointers in the C library's tables are made of: the same on all ranks.
    pub chance: [u64; 2],
    /// The hosts' names, by rank.
    pub hosts: Vec<String>,
    /// Ranks with equal numbers share a host.
    pub host_of: Vec<u32>,
}

impl Launch {
    /// As bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let words = pack(self.words.iter().map(|word| word.as_bytes()));
        let environment =
            pack(self.environment.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
        let hosts = pack(self.hosts.iter().map(String::as_bytes));
        let host_of = numbers(&self.host_of.iter().copied().map(u64::from).collect::<Vec<_>>());
        let [one, other] = self.chance;
        let figures =
            numbers(&[self.stack, self.threads as u64, self.settings.into(), self.watchdog, one, other]);
        pack([
            self.program.as_os_str().as_bytes(),
            self.directory.as_os_str().as_bytes(),
            self.runtime.as_os_str().as_bytes(),
            self.stand_ins.as_os_str().as_bytes(),
            &words,
            &environment,
            &hosts,
            &host_of,
            &figures,
        ])
    }

    /// Reads what [`bytes`](Self::bytes) wrote.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [program, directory, runtime, stand_ins, words, environment, hosts, host_of, figures] =
            unpack(bytes)?.try_into().ok()?;
        let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        let strings =
            |bytes: &[u8]| Some(unpack(bytes)?.into_iter().map(OsString::from_vec).collect::<Vec<_>>());
        let [stack, threads, settings, watchdog, one, other] = read_numbers(&figures).try_into().ok()?;
        Some(Self {
            program: path(program),
            directory: path(directory),
            runtime: path(runtime),
            stand_ins: path(stand_ins),
            words: strings(&words)?,
            environment: strings(&environment)?
                .chunks_exact(2)
                .map(|pair| (pair[0].clone(), pair[1].clone()))
                .collect(),
            hosts: unpack(&hosts)?.into_iter().map(|host| String::from_utf8_lossy(&host).into()).collect(),
            host_of: read_numbers(&host_of).into_iter().map(|host| host as u32).collect(),
            stack,
            threads: usize::try_from(threads).ok()?,
            settings: settings as u32,
            watchdog,
            chance: [one, other],
        })
    }
}

/// The environment that the program gets: the user's without what launching added, and with what loads the runtime.
pub fn environment(
    all: impl Iterator<Item = (OsString, OsString)>,
    runtime: &Path,
    stand_ins: &Path,
) -> Vec<(OsString, OsString)> {
    let launchers = |name: &OsStr| {
        let name = name.as_bytes();
        REMOVED.iter().any(|removed| name.starts_with(removed.as_bytes()))
            || REMOVED_NAMES.iter().any(|removed| name == removed.as_bytes())
    };
    let mut kept: Vec<(OsString, OsString)> = all.filter(|(name, _)| !launchers(name)).collect();
    let mut preload = runtime.as_os_str().to_owned();
    for path in crate::stand_ins::paths(stand_ins) {
        preload.push(":");
        preload.push(path);
    }
    if let Some((_, users)) = kept.iter().find(|(name, value)| name == "LD_PRELOAD" && !value.is_empty()) {
        preload.push(":");
        preload.push(users);
    }
    kept.retain(|(name, _)| name != "LD_PRELOAD" && name != "LD_BIND_NOW");
    // no function is looked up later, when tables would be written that are the same on all ranks
    kept.extend([("LD_PRELOAD".into(), preload), ("LD_BIND_NOW".into(), "1".into())]);
    kept.sort();
    kept
}

/// Bytes of stack for a user's soft limit.
pub fn stack(limit: u64) -> u64 {
    if limit == libc::RLIM_INFINITY { STACK } else { limit }
}

/// The file that a word names as a program, absolute: a path, or a program on `path`.
pub fn resolve(word: &OsStr, path: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let here = || Some(PathBuf::from(word));
    let on_path = || std::env::split_paths(path).map(|dir| dir.join(word)).find(|path| is_program(path));
    let found = if word.as_bytes().contains(&b'/') { here() } else { on_path().or_else(here) };
    found.filter(|path| is_program(path)).and_then(|path| path.canonicalize().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_launch_comes_back() {
        let launch = Launch {
            program: "/bin/true".into(),
            words: vec!["true".into(), "".into(), OsString::from_vec(vec![0xff, b'x'])],
            directory: "/".into(),
            environment: vec![("A".into(), "".into()), ("B".into(), "b=c".into())],
            runtime: "/rt.so".into(),
            stand_ins: "/tmp/x".into(),
            stack: 8 << 20,
            threads: 2,
            settings: 3,
            watchdog: 30,
            chance: [1, u64::MAX],
            hosts: vec!["a".into(), "b".into()],
            host_of: vec![0, 1],
        };
        assert_eq!(Launch::read(&launch.bytes()), Some(launch));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Launch::read(&bytes);
        }
    }

    #[test]
    fn the_environment_is_the_users() {
        let given = [
            ("PMI_RANK", "1"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("FI_PROVIDER", "polyrail"),
            ("HOME", "/root"),
            ("HYDRO_INPUT", "x"),
            ("LD_PRELOAD", "mine.so"),
            ("GFORTRAN_UNBUFFERED_PRECONNECTED", "y"),
            ("OMP_NUM_THREADS", "4"),
        ];
        let given = given.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let got = environment(given, Path::new("/rt.so"), Path::new("/s"));
        let names: Vec<&OsStr> = got.iter().map(|(name, _)| name.as_os_str()).collect();
        assert_eq!(names, ["HOME", "HYDRO_INPUT", "LD_BIND_NOW", "LD_PRELOAD", "OMP_NUM_THREADS"]);
        assert_eq!(got[3].1, "/rt.so:/s/libgomp.so.1:/s/libomp.so.5:/s/libomp.so:/s/libiomp5.so:mine.so");
    }

    #[test]
    fn programs_are_found_as_a_shell_does() {
        let path = OsStr::new("/nowhere:/bin:/usr/bin");
        assert!(resolve(OsStr::new("true"), path).is_some_and(|found| found.is_absolute()));
        assert!(resolve(OsStr::new("/bin/true"), OsStr::new("")).is_some());
        assert_eq!(resolve(OsStr::new("/etc/passwd"), path), None);
        assert_eq!(resolve(OsStr::new("/etc"), path), None);
    }

    #[test]
    fn an_unlimited_stack_gets_a_limit() {
        assert_eq!((stack(8 << 20), stack(libc::RLIM_INFINITY)), (8 << 20, STACK));
    }
}
