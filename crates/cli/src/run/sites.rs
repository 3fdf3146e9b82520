//! Hosts of several sites: where this host knows a gateway, the launcher runs as `polyrail wrap` has it, and so does what it starts on other hosts.
//!
//! Then launchers, their servers and ranks reach each other by their own addresses, whichever site they are of.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::process::Command;

use super::Job;
use super::mpiexec::Family;
use crate::wrap::{self, agent::Agent};

/// Words of mpiexec's that say what it is to use as ssh, with what follows them.
const NAMED: [&[&str]; 6] = [
    &["-launcher-exec"],
    &["-bootstrap-exec"],
    &["--prtemca", "plm_ssh_agent"],
    &["--mca", "plm_ssh_agent"],
    &["--mca", "plm_rsh_agent"],
    &["-mca", "plm_rsh_agent"],
];
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
    gateway: SocketAddr,
    agent: Agent,
}

impl Sites {
    /// That, where this host knows a gateway.
    ///
    /// # Errors
    /// What is said of it cannot be; nothing can be made in the directory for temporary files.
    pub fn find(family: Family, job: &Job) -> Result<Option<Self>, String> {
        if MANAGED.iter().any(|name| std::env::var_os(name).is_some()) {
            return Ok(None);
        }
        let Some(gateway) = wrap::gateway_address(None)? else { return Ok(None) };
        let how = (family == Family::Mpich).then(|| launcher(&job.launcher)).flatten();
        if how.as_ref().is_some_and(|how| how != "ssh" && how != "rsh") {
            return Ok(None);
        }
        let set = |(of, name): &(Family, &str)| std::env::var_os(name).filter(|_| *of == family);
        let ssh = named(&job.launcher).map(|at| job.launcher[at].clone());
        let ssh = ssh.or_else(|| VARIABLES.iter().find_map(set)).or(how);
        let agent = Agent::new(ssh).map_err(|why: io::Error| why.to_string())?;
        Ok(Some(Self { gateway, agent }))
    }

    /// The job, with the agent in place of what it names.
    pub fn adjust(&self, mut job: Job) -> Job {
        if let Some(at) = named(&job.launcher) {
            job.launcher[at] = self.agent.program().into();
        }
        job
    }

    /// A command that runs the launcher as all of its site's programs run that know of other sites.
    pub fn wrap(&self, launcher: &Command, family: Family) -> Command {
        let mut command = Command::new(self.agent.itself());
        command.args(["wrap", "--if-known", "--gateway"]).arg(self.gateway.to_string()).arg("--");
        command.arg(launcher.get_program()).args(launcher.get_args());
        for (name, value) in launcher.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
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

/// What Hydra is told to start its servers by.
fn launcher(words: &[OsString]) -> Option<OsString> {
    let said = words.iter().position(|word| ["-launcher", "-bootstrap"].iter().any(|name| word == name));
    said.and_then(|at| words.get(at + 1).cloned())
        .or_else(|| ["HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP"].iter().find_map(std::env::var_os))
}

/// Which of mpiexec's words is what it is to use as ssh.
fn named(words: &[OsString]) -> Option<usize> {
    let is = |at: usize, name: &[&str]| {
        words
            .get(at..at + name.len())
            .is_some_and(|words| words.iter().zip(name).all(|(word, name)| word == name))
    };
    let ends = |at: usize| NAMED.iter().find(|name| is(at, name)).map(|name| at + name.len());
    (0..words.len()).find_map(ends).filter(|at| *at < words.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_ssh_is_found() {
        let found = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            named(&words).map(|at| words[at].clone().into_string().unwrap())
        };
        assert_eq!(found("-n 4 -launcher ssh -launcher-exec /x/ssh").as_deref(), Some("/x/ssh"));
        assert_eq!(found("--prtemca plm_ssh_agent /y -n 2").as_deref(), Some("/y"));
        assert_eq!(found("--mca btl self -n 2"), None);
        assert_eq!(found("-launcher-exec"), None);
        let how = |line: &str| launcher(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(how("-n 2 -launcher rsh -launcher-exec x"), Some("rsh".into()));
    }
}
