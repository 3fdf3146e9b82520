//! Processes that take part in a run, and end with the one who started them: of this host, and of others by ssh.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::run::environment::quote;
use crate::{launch, settings};

use super::{Error, JOIN};

/// How long processes have for their end.
const END: Duration = Duration::from_secs(10);

/// A host, and how many processes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    name: String,
    /// At least 1.
    pub count: usize,
}

impl FromStr for Host {
    type Err = String;

    /// `a`, or `a:4`; an address of IPv6 has no number.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, count) = match text.split_once(':') {
            Some((name, count)) if !count.contains(':') => {
                let count = count.parse().map_err(|_| format!("{count:?} is no number of processes"))?;
                (name, count)
            }
            _ => (text, 1),
        };
        // a name that begins with a dash would be an option of ssh's
        if name.is_empty() || name.starts_with('-') || count == 0 || count > usize::from(u16::MAX) {
            return Err(format!(
                "{text:?} is no host: a name, or a name and a number of processes, as in a:4"
            ));
        }
        Ok(Self { name: name.into(), count })
    }
}

/// The hosts of a file: one a line, as `a`, `a:4` or `a slots=4`; what follows a # is not looked at.
pub fn hosts_of(file: &Path) -> Result<Vec<Host>, Error> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::system(format!("reading {}", file.display()), error))?;
    let hosts = parse(&text).map_err(|why| Error::Use(format!("{}: {why}", file.display())))?;
    if hosts.is_empty() { Err(Error::Use(format!("{} names no host", file.display()))) } else { Ok(hosts) }
}

fn parse(text: &str) -> Result<Vec<Host>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let host = |line: &str| {
        let mut words = line.split_whitespace();
        let mut host: Host = words.next()?.parse().map_err(|why| format!("in {line:?}: {why}")).ok()?;
        for word in words {
            // other words of such files say what is not asked for here
            if let Some(slots) = word.strip_prefix("slots=") {
                host = format!("{}:{slots}", host.name).parse().ok()?;
            }
        }
        Some(host)
    };
    lines
        .filter(|line| !line.trim().is_empty())
        .map(|line| host(line).ok_or_else(|| format!("{line:?} is no host and a number of processes")))
        .collect()
}

/// What was said here of its site, if anything was.
fn say_site(command: &mut Command, site: Option<u32>) {
    if let Some(site) = site {
        command.args(["--site", &site.to_string()]);
    }
}

/// Processes that end with this one.
#[derive(Default)]
pub struct Started(Vec<(String, Child)>);

impl Started {
    /// Starts so many on this host.
    pub fn here(&mut self, count: usize, site: Option<u32>, address: &str) -> Result<(), Error> {
        let own = own()?;
        for number in 0..count {
            let mut command = Command::new(&own);
            command.args(["solve", "obstacle"]).env(JOIN, address);
            say_site(&mut command, site);
            let child = launch::spawn_bound(&command)
                .map_err(|error| Error::system(format!("starting peer {number}"), error))?;
            self.0.push((format!("peer {number}"), child));
        }
        Ok(())
    }

    /// Has a host start as many as it is to, by ssh or what is given in its place, where this program is at the same place.
    pub fn on(&mut self, host: &Host, ssh: &OsStr, site: Option<u32>, address: &str) -> Result<(), Error> {
        let failed = |error| Error::system(format!("starting {} for {}", ssh.display(), host.name), error);
        let mut command = Command::new(ssh);
        command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", &host.name, "env"]);
        // what is set here holds there; the words can be read by all, and none of the settings is a secret
        // where a host is it says itself
        for (name, _) in settings::all().filter(|(name, _)| name != "POLYRAIL_SITE") {
            if let Some(value) = std::env::var_os(&name) {
                command.arg(format!("{name}={}", quote(&value)));
            }
        }
        command.arg(quote(own()?.as_os_str()));
        command.args([
            "solve",
            "obstacle",
            "--join",
            "-",
            "--until-input-ends",
            "-n",
            &host.count.to_string(),
        ]);
        say_site(&mut command, site);
        let mut bound = launch::bound(&command);
        let mut child = bound.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map_err(failed)?;
        // the address is the key to the run; the end of this input, however it comes, is the end of what is there
        let told = child.stdin.as_mut().map_or(Ok(()), |stdin| writeln!(stdin, "{address}"));
        self.0.push((format!("the processes on {}", host.name), child));
        match told {
            // what has ended says why, and its end is looked at
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// Who has ended that is needed, and how: before the run has begun each is, then one at least, unless others may join.
    pub fn look(&mut self, has_begun: bool, may_be_lost: bool, others: bool) -> Option<(&str, ExitStatus)> {
        let (mut ended, mut living) = (None, 0);
        for (name, child) in &mut self.0 {
            match child.try_wait() {
                Ok(Some(status)) if !has_begun || !status.success() => {
                    ended = ended.or(Some((name.as_str(), status)));
                }
                Ok(Some(_)) => {}
                _ => living += 1,
            }
        }
        ended.filter(|_| !(has_begun && may_be_lost && (others || living > 0)))
    }

    /// Waits for the ends of all.
    pub fn wait(&mut self) {
        let until = Instant::now() + END;
        while Instant::now() < until
            && self.0.iter_mut().any(|(_, child)| child.try_wait().is_ok_and(|ended| ended.is_none()))
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn own() -> Result<std::path::PathBuf, Error> {
    std::env::current_exe().map_err(|error| Error::system("finding this program", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_hosts_are_those_of_launchers() {
        let host = |name: &str, count| Host { name: name.into(), count };
        let text = "# two\na\nb:4  # of four\n\nc slots=2 max_slots=9\nfe80::1\n";
        assert_eq!(parse(text).unwrap(), [host("a", 1), host("b", 4), host("c", 2), host("fe80::1", 1)]);
        for bad in ["-oProxyCommand=x", "a:0", "a:x", "a slots=0", "a slots=x", ":3"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
