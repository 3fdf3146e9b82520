//! What makes an MPI use the provider.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Job;
use super::mpiexec::Family;
use crate::parts::{Missing, Part};
use crate::wrap::NAMES;

/// Where the provider is, and the companion, if there is to be one.
#[derive(Debug)]
pub struct Provider {
    dir: PathBuf,
    companion: Option<PathBuf>,
}

impl Provider {
    /// Looks in `explicit` only, if given; else where this command's parts are.
    ///
    /// # Errors
    /// It is not there.
    pub fn find(explicit: Option<&Path>) -> Result<Self, Missing> {
        let chosen: Vec<PathBuf> = explicit.map(Path::to_owned).into_iter().collect();
        let file = Part::Provider.find(&chosen)?;
        Ok(Self { dir: file.parent().map(Path::to_owned).unwrap_or_default(), companion: None })
    }

    /// With the companion beside it, if it is there, and if the loader can be told of it: ranks load it before their MPI.
    pub fn with_companion(self) -> Self {
        let file = self.dir.join(Part::Companion.file());
        let can_be_named = !file.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte));
        Self { companion: (can_be_named && file.is_file()).then_some(file), ..self }
    }

    /// The companion's file.
    pub fn companion(&self) -> Option<&Path> {
        self.companion.as_deref()
    }

    /// The file itself.
    pub fn file(&self) -> PathBuf {
        self.dir.join(Part::Provider.file())
    }
}

/// One environment variable of a job.
struct Variable {
    name: &'static str,
    value: OsString,
    /// Whether a value that the user has set stays: it tunes, and does not choose what carries the messages.
    tunes: bool,
}

/// What the loader puts before all other libraries (`ld.so(8)`).
const PRELOAD: &str = "LD_PRELOAD";

/// What ranks are to have loaded: those that have not do not start, as others would wait for them.
const COMPANION: &str = "POLYRAIL_COMPANION";

/// Behind what is to be loaded first already: tools that stand before it see each call once, as the program made it.
fn preloaded(companion: &Path, already: Option<OsString>) -> OsString {
    let mut all = already.unwrap_or_default();
    let is_there = std::env::split_paths(&all).any(|path| path == companion);
    if !is_there {
        if !all.is_empty() {
            all.push(":");
        }
        all.push(companion);
    }
    all
}

/// What of its environment srun hands on.
const EXPORT: &str = "SLURM_EXPORT_ENV";

fn all(family: Family, provider: &Provider) -> Vec<Variable> {
    let choose = |name, value: &str| Variable { name, value: value.into(), tunes: false };
    let tune = |name, value: &str| Variable { name, value: value.into(), tunes: true };
    let mut variables = match family {
        Family::Mpich => vec![
            choose("MPIR_CVAR_CH4_NETMOD", "ofi"),
            // Else ranks of one host would talk by MPICH's own shared memory.
            tune("MPIR_CVAR_NOLOCAL", "1"),
            // It asks that all be complete only when the peer has it, for the sake of its one-sided operations; a send would wait a round trip.
            tune("POLYRAIL_DELIVERY", "0"),
        ],
        Family::OpenMpi => vec![
            choose("OMPI_MCA_pml", "cm"),
            choose("OMPI_MCA_mtl", "ofi"),
            // One-sided operations have a way of their own: keep them from UCX and from Open MPI's TCP.
            tune("OMPI_MCA_osc", "^ucx"),
            tune("OMPI_MCA_btl", "self,ofi"),
        ],
    };
    // All messages come by the provider, so a rank that waits for long may sleep; not if MPICH has a way of its own beside it.
    if std::env::var_os("MPIR_CVAR_NOLOCAL").is_none_or(|value| value == "1") {
        variables.push(tune("POLYRAIL_SLEEP_AFTER", "1000"));
    }
    // A batch script to which sbatch was to hand nothing on has set up what its program needs; now srun would hand nothing on, be it called
    // by the user or by an MPI's launcher for its servers.
    if std::env::var_os(EXPORT).is_some_and(|value| value != "ALL") {
        variables.push(choose(EXPORT, "ALL"));
    }
    if let Some(companion) = provider.companion() {
        let value = preloaded(companion, std::env::var_os(PRELOAD));
        variables.push(Variable { name: PRELOAD, value, tunes: false });
        variables.push(Variable { name: COMPANION, value: companion.into(), tunes: false });
    } else if std::env::var_os(COMPANION).is_some() {
        // it may be loaded all the same, and then does nothing
        variables.push(choose(COMPANION, ""));
    }
    variables.push(choose("FI_PROVIDER", "polyrail"));
    variables.push(Variable { name: "FI_PROVIDER_PATH", value: provider.dir.clone().into(), tunes: false });
    variables
}

/// What to set for a job of this family, given what is set already.
pub fn variables(family: Family, provider: &Provider) -> impl Iterator<Item = (&'static str, OsString)> {
    let keep = |variable: &Variable| variable.tunes && std::env::var_os(variable.name).is_some();
    all(family, provider).into_iter().filter(move |variable| !keep(variable)).map(|v| (v.name, v.value))
}

/// What the user has set by which ranks of one host talk by their MPI's own means, as `NAME=VALUE`.
pub fn other_way(family: Family) -> Option<String> {
    const NAME: &str = "MPIR_CVAR_NOLOCAL";
    let value = std::env::var(NAME).ok().filter(|value| family == Family::Mpich && value != "1")?;
    Some(format!("{NAME}={value}"))
}

/// The environment as commands for a shell.
pub fn as_shell(family: Family, provider: &Provider) -> String {
    let line = |(name, value): (&str, OsString)| format!("export {name}={}\n", quote(&value));
    variables(family, provider).map(line).collect()
}

/// A command as one would type it, with the environment that it adds.
pub fn quoted(command: &Command) -> String {
    let sets =
        command.get_envs().filter_map(|(name, value)| Some(format!("{}={}", name.display(), quote(value?))));
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quote);
    sets.chain(words).collect::<Vec<_>>().join(" ")
}

/// As one word for a shell.
pub fn quote(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./,:=@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// mpiexec's whole command line. Hydra hands the environment on to all hosts by itself; Open MPI hands on what is named,
/// and that for each program of a job (`./a : ./b`) anew.
pub fn launcher_arguments(family: Family, provider: &Provider, job: &Job) -> Vec<OsString> {
    let program = std::iter::once(&job.program).chain(&job.arguments);
    if family == Family::Mpich {
        return job.launcher.iter().chain(program).cloned().collect();
    }
    let named: Vec<OsString> =
        handed_on(family, provider).flat_map(|name| [OsString::from("-x"), name]).collect();
    let mut words = named.clone();
    for word in job.launcher.iter().chain(program) {
        words.push(word.clone());
        if word == ":" {
            words.extend(named.iter().cloned());
        }
    }
    words
}

/// Names of the variables that steer the provider: those set here, and those that the user has set. Open MPI hands its
/// own (`OMPI_`) on by itself.
fn handed_on(family: Family, provider: &Provider) -> impl Iterator<Item = OsString> {
    let set = variables(family, provider).map(|(name, _)| name).chain([polyrail_rails::report::VARIABLE]);
    let ours: Vec<OsString> = set.filter(|name| !name.starts_with("OMPI_")).map(OsString::from).collect();
    let steers =
        |name: &OsString| [&b"FI_"[..], b"POLYRAIL_"].iter().any(|p| name.as_encoded_bytes().starts_with(p));
    let users: Vec<OsString> = std::env::vars_os()
        .map(|(name, _)| name)
        // which gateway is called is each host's own to say
        .filter(|name| steers(name) && !ours.contains(name) && NAMES.iter().all(|own| name != own))
        .collect();
    ours.into_iter().chain(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider() -> Provider {
        Provider { dir: "/opt/poly rail/lib".into(), companion: None }
    }

    #[test]
    fn the_companion_comes_behind_what_is_there_and_once() {
        let companion = Path::new("/p/libpolyrail_mpi.so");
        let with =
            |already: Option<&str>| preloaded(companion, already.map(OsString::from)).into_string().unwrap();
        assert_eq!(with(None), "/p/libpolyrail_mpi.so");
        assert_eq!(with(Some("")), "/p/libpolyrail_mpi.so");
        assert_eq!(with(Some("/a.so")), "/a.so:/p/libpolyrail_mpi.so");
        assert_eq!(with(Some("/a.so:/p/libpolyrail_mpi.so")), "/a.so:/p/libpolyrail_mpi.so");
    }

    fn words(family: Family, launcher: &str, program: &str) -> String {
        let split = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let mut arguments = split(program);
        let job = Job { launcher: split(launcher), program: arguments.remove(0), arguments };
        launcher_arguments(family, &provider(), &job).join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn each_family_gets_its_environment() {
        let mpich = as_shell(Family::Mpich, &provider());
        assert!(mpich.contains("export MPIR_CVAR_CH4_NETMOD=ofi\n") && !mpich.contains("OMPI"), "{mpich}");
        let open = as_shell(Family::OpenMpi, &provider());
        assert!(open.contains("export OMPI_MCA_mtl=ofi\n") && !open.contains("MPIR"), "{open}");
        for text in [mpich, open] {
            assert!(text.contains("export FI_PROVIDER=polyrail\n"), "{text}");
            assert!(text.contains("export FI_PROVIDER_PATH='/opt/poly rail/lib'\n"), "{text}");
        }
    }

    #[test]
    fn open_mpi_is_told_what_to_hand_on_for_each_program() {
        let line = words(Family::OpenMpi, "-n 2", "./a x : -n 2 ./b");
        let (first, second) = line.split_once(" : ").unwrap();
        for name in ["FI_PROVIDER", "FI_PROVIDER_PATH", "POLYRAIL_REPORT", "POLYRAIL_SLEEP_AFTER"] {
            let word = format!("-x {name} ");
            assert!(first.contains(&word) && second.contains(&word), "{line}");
        }
        assert!(!line.contains("OMPI_"), "{line}");
        assert!(line.contains(" -n 2 ./a x : ") && line.ends_with(" -n 2 ./b"), "{line}");
        assert_eq!(words(Family::Mpich, "-n 2", "./a x : -n 2 ./b"), "-n 2 ./a x : -n 2 ./b");
    }

    #[test]
    fn words_for_a_shell_are_quoted_when_they_must_be() {
        for (word, quoted) in
            [("a/b-c.so", "a/b-c.so"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$x", "'$x'")]
        {
            assert_eq!(quote(OsStr::new(word)), quoted);
        }
    }
}
