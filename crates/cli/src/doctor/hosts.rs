//! The same of several hosts, by ssh.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::{io, thread};

use serde_json::{Value, json};

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

fn run(ssh: &Path, host: &str, own: &Path, as_json: bool) -> io::Result<Output> {
    // a name that begins with a dash would be an option of ssh's
    if host.is_empty() || host.starts_with('-') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "that is no host's name"));
    }
    let mut words: Vec<OsString> =
        vec!["-o".into(), "BatchMode=yes".into(), "-o".into(), "ConnectTimeout=10".into(), host.into()];
    words.push(quoted(own));
    words.push("doctor".into());
    if as_json {
        words.push("--json".into());
    }
    Command::new(ssh).args(words).stdin(Stdio::null()).output()
}

/// As one word for the shell that ssh starts.
fn quoted(path: &Path) -> OsString {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''")).into()
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

    fn of(host: &str, outcome: io::Result<Output>) -> Self {
        let output = match outcome {
            Ok(output) => output,
            Err(why) => return Self::failed(host, &why.to_string()),
        };
        // what comes from another host must not command the terminal
        let clean =
            |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(|c: char| c.is_control() && c != '\n', "?");
        let said = clean(&output.stdout);
        let json = serde_json::from_str::<Value>(&said).ok();
        let version = match &json {
            Some(json) => json["version"].as_str().map(str::to_owned),
            None => said.lines().next().map(str::to_owned),
        };
        match version.filter(|version| version.starts_with("polyrail ")) {
            Some(version) => {
                Self { host: host.into(), said, version: Some(version), fine: output.status.success() }
            }
            None => {
                let complaint = clean(&output.stderr);
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
    use std::os::unix::fs::PermissionsExt;

    /// Asks hosts by a stand-in for ssh, which is told the host as its fifth word.
    fn asked(script: &str, hosts: &[&str], as_json: bool) -> (String, bool) {
        let place = tempfile::tempdir().unwrap();
        let ssh = place.path().join("ssh");
        std::fs::write(&ssh, format!("#!/bin/sh\nhost=$5\n{script}\n")).unwrap();
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
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
