//! The same of several hosts, by ssh.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::run::environment::quote;

/// Asks each host, all at once; what they say, in their order, and whether all is well.
pub fn ask(ssh: &Path, hosts: &[String], as_json: bool) -> (String, bool) {
    let own = std::env::current_exe().unwrap_or_default();
    let answers: Vec<Answer> = thread::scope(|scope| {
        let asked: Vec<_> = hosts
            .iter()
            .map(|host| scope.spawn(|| Answer::of(host, run(ssh, host, &own, as_json))))
            .collect();
        asked
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|_| Answer::failed("", "it could not be asked")))
            .collect()
    });
    let mixed = mixed(&answers);
    let fine = answers.iter().all(|answer| answer.fine) && mixed.is_none();
    let text = if as_json {
        let hosts: Vec<Value> =
            answers.iter().map(|one| json!({ "host": one.host, "said": one.json() })).collect();
        format!("{:#}\n", json!({ "hosts": hosts, "mixed_versions": mixed }))
    } else {
        let said =
            answers.iter().map(|one| format!("{}: {}\n", one.host, one.said.trim_end())).collect::<String>();
        said + &mixed.map_or_else(String::new, |why| {
            format!("BROKEN: {why}\n> install the same version on all hosts\n")
        })
    };
    (text, fine)
}

/// What a host has said.
struct Said {
    out: Vec<u8>,
    err: Vec<u8>,
    /// Whether the command there succeeded.
    succeeded: bool,
}

/// How long a host may take to say it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most that is read of it, in bytes.
const MOST: u64 = 1 << 20;

fn run(ssh: &Path, host: &str, own: &Path, as_json: bool) -> io::Result<Said> {
    // a name that begins with a dash would be an option of ssh's
    if host.is_empty() || host.starts_with('-') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "that is no host's name"));
    }
    let mut command = Command::new(ssh);
    command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host]);
    command.arg(quote(own.as_os_str())).arg("doctor").args(as_json.then_some("--json"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < end => thread::sleep(Duration::from_millis(10)),
            None => {
                child.kill()?;
                child.wait()?;
                let why = format!("nothing came of it for {} seconds", PATIENCE.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
    };
    // who has ended may have left somebody who keeps its output open
    let read = |from: Receiver<Vec<u8>>| from.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
    Ok(Said { out: read(out), err: read(err), succeeded: status.success() })
}

/// Reads to the end, or as much as is taken; what is more has its writer end.
fn reader(from: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (told, read) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            let _ = from.take(MOST).read_to_end(&mut bytes);
        }
        let _ = told.send(bytes);
    });
    read
}

struct Answer {
    host: String,
    said: String,
    /// Its first line.
    version: Option<String>,
    fine: bool,
}

impl Answer {
    fn failed(host: &str, why: &str) -> Self {
        Self { host: host.into(), said: format!("BROKEN: {why}"), version: None, fine: false }
    }

    fn of(host: &str, outcome: io::Result<Said>) -> Self {
        let heard = match outcome {
            Ok(heard) => heard,
            Err(why) => return Self::failed(host, &why.to_string()),
        };
        // what comes from another host must not command the terminal
        let clean =
            |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(|c: char| c.is_control() && c != '\n', "?");
        let said = clean(&heard.out);
        let json = serde_json::from_str::<Value>(&said).ok();
        let version = match &json {
            Some(json) => json["version"].as_str().map(str::to_owned),
            None => said.lines().next().map(str::to_owned),
        };
        match version.filter(|version| version.starts_with("polyrail ")) {
            Some(version) => Self { host: host.into(), said, version: Some(version), fine: heard.succeeded },
            None => {
                let complaint = clean(&heard.err);
                let why = complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
                Self::failed(host, &format!("polyrail doctor did not run there: {why}"))
            }
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.said).unwrap_or_else(|_| Value::String(self.said.clone()))
    }
}

/// What is wrong if hosts have several versions.
fn mixed(answers: &[Answer]) -> Option<String> {
    let here = super::version();
    let others: Vec<String> = answers
        .iter()
        .filter_map(|answer| Some((answer, answer.version.as_ref().filter(|version| **version != here)?)))
        .map(|(answer, version)| format!("{} has {version}", answer.host))
        .collect();
    (!others.is_empty()).then(|| format!("this host has {here}, {}", others.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks hosts by a stand-in for ssh, which is told the host as its fifth word.
    fn asked(script: &str, hosts: &[&str], as_json: bool) -> (String, bool) {
        let place = tempfile::tempdir().unwrap();
        let ssh = place.path().join("ssh");
        polyrail_testing::executable(&ssh, &format!("#!/bin/sh\nhost=$5\n{script}\n"));
        ask(&ssh, &hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>(), as_json)
    }

    #[test]
    fn hosts_are_told_of_in_their_order_and_one_that_is_broken_breaks_all() {
        let version = super::super::version();
        let script = format!("echo '{version}'; echo \"  ok  rails  $host\"; [ $host != n2 ]");
        let (text, fine) = asked(&script, &["n1", "n3"], false);
        assert!(
            fine && text == format!("n1: {version}\n  ok  rails  n1\nn3: {version}\n  ok  rails  n3\n"),
            "{text}"
        );
        assert!(!asked(&script, &["n1", "n2"], false).1);
    }

    #[test]
    fn other_versions_and_hosts_that_say_nothing_are_named() {
        let (text, fine) = asked("echo 'polyrail 0.0.1, wire protocol 1'", &["n1"], false);
        assert!(!fine && text.contains("n1 has polyrail 0.0.1, wire protocol 1"), "{text}");
        let (text, fine) = asked("echo 'Permission denied (publickey).' >&2; exit 255", &["n1"], false);
        assert!(!fine && text.contains("n1: BROKEN") && text.contains("Permission denied"), "{text}");
        let (text, fine) = asked("printf '\\033[2J'", &["n1"], false);
        assert!(!fine && !text.contains('\x1b'), "{text}");
        // more than is read of it, which ends it
        let (text, fine) = asked("yes", &["n1"], false);
        assert!(!fine && text.contains("n1: BROKEN") && text.len() < 1000, "{text}");
        assert!(!asked("true", &["-oProxyCommand=x"], false).1);
        assert!(!ask(Path::new("/nowhere/ssh"), &["n1".into()], false).1);
    }

    #[test]
    fn programs_are_told_as_json() {
        let version = super::super::version();
        let script = format!("echo '{{\"version\": \"{version}\", \"findings\": []}}'");
        let (text, fine) = asked(&script, &["n1"], true);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(
            fine && value["hosts"][0]["said"]["version"] == version.as_str()
                && value["mixed_versions"].is_null(),
            "{text}"
        );
    }
}
