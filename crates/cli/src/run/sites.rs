//! Hosts of several sites: where this host knows a gateway and hosts are named, the launcher runs as `polyrail wrap` has it, and so does what it starts on other hosts.
//!
//! Then launchers, their servers and ranks reach each other by their own addresses, whichever site they are of.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Command;

use polyrail_rails::Config;

use super::Job;
use super::mpiexec::Family;
use crate::launch::hand_on_environment;
use crate::wrap::agent::Agent;

/// What of mpiexec's own words names hosts: where none does, none is of another site.
const HOSTS: [&str; 12] = [
    "hosts",
    "host",
    "f",
    "hostfile",
    "machinefile",
    "machine",
    "machines",
    "H",
    "default-hostfile",
    "configfile",
    "app",
    "hostlist",
];
/// Variables that do.
const HOSTS_SET: [&str; 5] = [
    "HYDRA_HOST_FILE",
    "PRTE_MCA_prte_default_hostfile",
    "PRTE_MCA_prte_set_default_host",
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_set_default_host",
];
/// Names of mpiexec's that say what it is to use as ssh: options of Hydra's, and parameters of Open MPI's.
const EXECS: [&str; 2] = ["launcher-exec", "bootstrap-exec"];
const PARAMETERS: [&str; 2] = ["plm_ssh_agent", "plm_rsh_agent"];
/// Variables that say so.
const VARIABLES: [(Family, &str); 4] = [
    (Family::Mpich, "HYDRA_LAUNCHER_EXEC"),
    (Family::OpenMpi, "PRTE_MCA_plm_ssh_agent"),
    (Family::OpenMpi, "OMPI_MCA_plm_ssh_agent"),
    (Family::OpenMpi, "OMPI_MCA_plm_rsh_agent"),
];
/// Where a resource manager starts the servers, there is no ssh: they are of its site.
const MANAGED: [&str; 5] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "FLUX_JOB_ID"];

/// What a job with hosts of several sites needs.
pub struct Sites {
    agent: Agent,
}

impl Sites {
    /// That, where this host knows a gateway and hosts are named.
    ///
    /// # Errors
    /// Nothing can be made in the directory for temporary files.
    pub fn find(family: Family, job: &Job) -> io::Result<Option<Self>> {
        let is_set = |name: &&str| std::env::var_os(name).is_some();
        let names_hosts =
            job.launcher.iter().any(|word| option(word).is_some_and(|(name, _)| HOSTS.contains(&name)));
        let knows_gateway = Config::from_env().is_ok_and(|settings| settings.gateway.is_some());
        if !knows_gateway || !(names_hosts || HOSTS_SET.iter().any(is_set)) || MANAGED.iter().any(is_set) {
            return Ok(None);
        }
        let how = (family == Family::Mpich).then(|| launcher(&job.launcher)).flatten();
        if how.as_ref().is_some_and(|how| how != "ssh" && how != "rsh") {
            return Ok(None);
        }
        let set = |(of, name): &(Family, &str)| std::env::var_os(name).filter(|_| *of == family);
        let ssh = named(&job.launcher).map(|(_, ssh)| ssh);
        let ssh = ssh.or_else(|| VARIABLES.iter().find_map(set)).or(how);
        Ok(Some(Self { agent: Agent::new(ssh)? }))
    }

    /// The job, with the agent in place of what it names.
    pub fn adjust(&self, mut job: Job) -> Job {
        if let Some((at, _)) = named(&job.launcher) {
            let program = self.agent.program().into_os_string();
            job.launcher[at] = match job.launcher[at].to_str().and_then(|word| word.split_once('=')) {
                Some((name, _)) => [OsString::from(name), program].join(OsStr::new("=")),
                None => program,
            };
        }
        job
    }

    /// A command that runs the launcher as all of its site's programs run that know of other sites.
    pub fn wrap(&self, launcher: &Command, family: Family) -> Command {
        let mut command = Command::new(self.agent.itself());
        command.args(["wrap", "--if-known", "--"]);
        command.arg(launcher.get_program()).args(launcher.get_args());
        hand_on_environment(launcher, &mut command);
        for (_, name) in VARIABLES.iter().filter(|(of, _)| *of == family) {
            command.env(name, self.agent.program());
        }
        if family == Family::OpenMpi {
            // on other hosts nobody knows the agent
            command.env("PRTE_MCA_plm_ssh_no_tree_spawn", "1").env("OMPI_MCA_plm_rsh_no_tree_spawn", "1");
        }
        self.agent.equip(&mut command);
        command
    }
}

/// An option's name without what is before it, and its value if that is part of the word.
fn option(word: &OsStr) -> Option<(&str, Option<&str>)> {
    let word = word.to_str()?.strip_prefix('-')?;
    let word = word.strip_prefix('-').unwrap_or(word);
    Some(word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value))))
}

/// What Hydra is told to start its servers by.
fn launcher(words: &[OsString]) -> Option<OsString> {
    let is = |name: &str| name == "launcher" || name == "bootstrap";
    let said = words.iter().enumerate().find_map(|(at, word)| match option(word)? {
        (name, Some(value)) if is(name) => Some(value.into()),
        (name, None) if is(name) => words.get(at + 1).cloned(),
        _ => None,
    });
    said.or_else(|| ["HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP"].iter().find_map(std::env::var_os))
}

/// Which of mpiexec's words is what it is to use as ssh, or has it behind an `=`; and what that is.
fn named(words: &[OsString]) -> Option<(usize, OsString)> {
    words.iter().enumerate().find_map(|(at, word)| match option(word) {
        Some((name, Some(value))) if EXECS.contains(&name) => Some((at, value.into())),
        Some((name, None)) if EXECS.contains(&name) => Some((at + 1, words.get(at + 1)?.clone())),
        // --prtemca NAME VALUE
        _ if PARAMETERS.iter().any(|name| word == name) => Some((at + 1, words.get(at + 1)?.clone())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_ssh_is_found() {
        let found = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            named(&words).map(|(_, ssh)| ssh.into_string().unwrap())
        };
        assert_eq!(found("-n 4 -launcher ssh -launcher-exec /x/ssh").as_deref(), Some("/x/ssh"));
        assert_eq!(found("--prtemca plm_ssh_agent /y -n 2").as_deref(), Some("/y"));
        assert_eq!(found("--launcher-exec=/z -n 2").as_deref(), Some("/z"));
        assert_eq!(found("--mca btl self -n 2"), None);
        assert_eq!(found("-launcher-exec"), None);
        let how = |line: &str| launcher(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(how("-n 2 -launcher rsh -launcher-exec x"), Some("rsh".into()));
    }
}
