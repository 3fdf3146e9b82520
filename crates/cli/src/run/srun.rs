//! Slurm's own launcher, in place of an MPI's.
//!
//! It hands its environment on by itself ([`super::environment`] sees to that). What it must be told is by which protocol ranks learn of
//! each other: an MPI that is not told of the others takes itself for a job of one, each task for itself, and all of them succeed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Job;
use super::error::Error;
use super::mpiexec::Family;

/// A launcher of Slurm's that was found.
#[derive(Debug)]
pub struct Srun {
    /// Its file, or its name where it is on PATH.
    pub path: PathBuf,
    /// Its version in its own words.
    pub version: String,
    /// What goes before the user's own arguments.
    added: Option<OsString>,
    /// Where the user chose a protocol by which ranks of the program's MPI may not learn of each other: how he did.
    pub doubtful: Option<String>,
}

impl Srun {
    /// Asks `path` whether it is Slurm's launcher; its version, if it is.
    pub fn version_of(path: &Path) -> Option<String> {
        let output = Command::new(path).arg("--version").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|text| is_slurm(text))
    }

    /// What it has to be told to start a job of this MPI's.
    ///
    /// # Errors
    /// This Slurm has no protocol that the MPI speaks.
    pub fn prepare(path: &Path, version: String, family: Family, job: &Job) -> Result<Self, Error> {
        let set = std::env::var("SLURM_MPI_TYPE").ok();
        let (added, doubtful) = added(family, &job.launcher, set.as_deref(), || protocols(path))
            .map_err(|has| Error::NoProtocol { family, needs: protocol(family), has })?;
        Ok(Self { path: path.into(), version, added, doubtful })
    }

    /// Its whole command line.
    pub fn arguments(&self, job: &Job) -> Vec<OsString> {
        let own = self.added.iter().chain(&job.launcher);
        own.chain(std::iter::once(&job.program)).chain(&job.arguments).cloned().collect()
    }
}

/// Whether this is what a program of Slurm's says of its version.
pub fn is_slurm(version: &str) -> bool {
    version.starts_with("slurm")
}

/// The protocol by which the ranks of an MPI learn of each other, by Slurm's name.
pub fn protocol(family: Family) -> &'static str {
    match family {
        Family::Mpich => "pmi2",
        Family::OpenMpi => "pmix",
    }
}

/// The protocols by which this Slurm lets ranks learn of each other.
pub fn protocols(srun: &Path) -> Vec<String> {
    let Ok(output) = Command::new(srun).arg("--mpi=list").output() else { return Vec::new() };
    // which of the two it writes to differs between versions
    listed(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()))
}

fn listed(text: &str) -> Vec<String> {
    text.lines().filter(|line| line.starts_with([' ', '\t'])).map(|line| line.trim().to_owned()).collect()
}

/// Whether ranks of this family learn of each other by a protocol: that, or one version of it.
pub fn fits(family: Family, chosen: &str) -> bool {
    let needs = protocol(family);
    chosen.strip_prefix(needs).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// What to add to a command line where the environment has `set` a protocol, and what is doubtful about it; the error is what this Slurm has in
/// place of what it needs.
fn added(
    family: Family,
    words: &[OsString],
    set: Option<&str>,
    list: impl FnOnce() -> Vec<String>,
) -> Result<(Option<OsString>, Option<String>), String> {
    let fits = |chosen: &str| fits(family, chosen);
    if let Some(chosen) = value_of(words, "--mpi") {
        return Ok((None, (!fits(&chosen)).then(|| format!("--mpi={chosen}"))));
    }
    if set.is_some_and(fits) {
        return Ok((None, None));
    }
    let has = list();
    match has.iter().any(|one| fits(one)) {
        true => Ok((Some(format!("--mpi={}", protocol(family)).into()), None)),
        false => Err(has.join(", ")),
    }
}

/// The value of an option among the launcher's words, as `--name=value` or in a word of its own.
fn value_of(words: &[OsString], name: &str) -> Option<String> {
    words.iter().enumerate().find_map(|(i, word)| {
        let rest = word.to_str()?.strip_prefix(name)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value.to_owned()),
            None if rest.is_empty() => Some(words.get(i + 1)?.to_string_lossy().into_owned()),
            None => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n";

    fn adds(
        family: Family,
        line: &str,
        set: Option<&str>,
        list: &str,
    ) -> Result<(String, Option<String>), String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        added(family, &words, set, || listed(list))
            .map(|(word, doubtful)| (word.unwrap_or_default().into_string().unwrap(), doubtful))
    }

    #[test]
    fn ranks_are_let_know_of_each_other() {
        for (family, needs) in [(Family::Mpich, "--mpi=pmi2"), (Family::OpenMpi, "--mpi=pmix")] {
            assert_eq!(adds(family, "-N 2 -n 4", None, LIST), Ok((needs.into(), None)));
            assert_eq!(adds(family, &format!("-n 4 {needs}"), None, ""), Ok((String::new(), None)));
        }
        assert_eq!(adds(Family::OpenMpi, "--mpi=pmix_v4", None, ""), Ok((String::new(), None)));
        assert_eq!(adds(Family::OpenMpi, "", Some("pmix_v4"), ""), Ok((String::new(), None)));
        assert_eq!(adds(Family::Mpich, "", Some("pmix_v4"), LIST), Ok(("--mpi=pmi2".into(), None)));
    }

    #[test]
    fn what_the_user_chose_stays_and_is_doubted() {
        for line in ["--mpi=none -n 2", "-n 2 --mpi none"] {
            let doubtful = Some("--mpi=none".into());
            assert_eq!(adds(Family::Mpich, line, None, LIST), Ok((String::new(), doubtful)), "{line}");
        }
    }

    #[test]
    fn a_slurm_that_does_not_speak_it_is_refused_with_what_it_has() {
        let list = "srun: MPI types are...\nsrun: none\n\tnone\n\tpmi2\n";
        assert_eq!(adds(Family::OpenMpi, "", None, list), Err("none, pmi2".into()));
        assert_eq!(adds(Family::OpenMpi, "", None, ""), Err(String::new()));
    }
}
