//! What MPI launchers start on other hosts, wrapped there: a program that they take for `ssh`.
//!
//! Launchers start a server of theirs on each host of a job, by `ssh` or what they are told to use instead, and that connects to the launcher, which
//! may be at another site. [`Agent`] is such an instead: it calls ssh itself, and has it run `polyrail wrap --if-known` around the server. So
//! what is known of gateways on that host serves there, and nothing of this one's.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::output::tell;

/// What this command is called when launchers take it for ssh.
const NAME: &str = "polyrail-ssh";
/// What it calls itself: ssh, unless that says otherwise.
const SSH: &str = "POLYRAIL_SSH";
/// Options of ssh that take a value (`ssh(1)`).
const TAKE_VALUES: &[u8] = b"BbcDEeFIiJLlmOoPpQRSWw";
/// It was not started: ssh's own status for that.
const NOT_REACHED: u8 = 255;

/// A program to be given to launchers in place of ssh, for as long as this lives.
pub struct Agent {
    directory: tempfile::TempDir,
    itself: PathBuf,
    /// What it calls.
    ssh: OsString,
}

impl Agent {
    /// One that calls `ssh`, or what is given in its place.
    ///
    /// # Errors
    /// It cannot be made in the directory for temporary files.
    pub fn new(ssh: Option<OsString>) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("polyrail-").tempdir()?;
        let itself = std::env::current_exe()?;
        symlink(&itself, directory.path().join(NAME))?;
        let is_another = |ssh: &OsString| Path::new(ssh).file_name() != Some(OsStr::new(NAME));
        // in a job's rank, what serves that job's launcher is known, and is gone before long
        let ssh = ssh.or_else(|| std::env::var_os(SSH)).filter(is_another).unwrap_or_else(|| "ssh".into());
        Ok(Self { directory, itself, ssh })
    }

    /// The program.
    pub fn program(&self) -> PathBuf {
        self.directory.path().join(NAME)
    }

    /// This command.
    pub fn itself(&self) -> &Path {
        &self.itself
    }

    /// Sets in a launcher's environment what the program needs.
    pub fn equip(&self, launcher: &mut Command) {
        launcher.env(SSH, &self.ssh);
    }
}

/// Calls ssh, if this process was started as a launcher's; none if it was not.
pub fn become_ssh() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let called = words.next()?;
    if Path::new(&called).file_name() != Some(OsStr::new(NAME)) {
        return None;
    }
    let words: Vec<OsString> = words.collect();
    let here = std::env::current_exe().unwrap_or_else(|_| "polyrail".into());
    let words = wrapped(&words, &here);
    let ssh = std::env::var_os(SSH).unwrap_or_else(|| "ssh".into());
    let mut why = io::Error::from(io::ErrorKind::NotFound);
    for (program, own) in choices(&ssh) {
        why = Command::new(program).args(own).args(&words).env_remove(SSH).exec();
    }
    tell!("polyrail run: cannot start {}: {why}", ssh.display());
    Some(ExitCode::from(NOT_REACHED))
}

/// What may stand for ssh, with arguments, the best first: Open MPI's setting of it is such as `ssh -x : rsh`, Hydra's is a file.
fn choices(ssh: &OsStr) -> Vec<(&OsStr, Vec<&OsStr>)> {
    if Path::new(ssh).is_file() {
        return vec![(ssh, Vec::new())];
    }
    fn choice(words: &[u8]) -> Option<(&OsStr, Vec<&OsStr>)> {
        let mut words =
            words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
        Some((words.next()?, words.collect()))
    }
    ssh.as_bytes().split(|byte| *byte == b':').filter_map(choice).collect()
}

/// The words for ssh, with what is to be run there wrapped; as they are where nothing is.
fn wrapped(words: &[OsString], here: &Path) -> Vec<OsString> {
    let mut host = 0;
    while let Some(word) = words.get(host).map(|word| word.as_bytes()).filter(|word| word.starts_with(b"-")) {
        // -p 22, but -p22
        host += 1 + usize::from(word.len() == 2 && TAKE_VALUES.contains(&word[1]));
    }
    let Some((own, command)) = words.split_at_checked(host + 1).filter(|(_, command)| !command.is_empty())
    else {
        return words.to_vec();
    };
    let command = command.join(OsStr::new(" "));
    let mut there = OsString::from("exec sh -c ");
    // where this command is not, what was to be started may do without
    there.push(quote(OsStr::new(
        "if [ -x \"$1\" ]; then exec \"$1\" wrap --if-known -- \"${SHELL:-/bin/sh}\" -c \"$0\"; else exec \"${SHELL:-/bin/sh}\" -c \"$0\"; fi",
    )));
    for word in [&command, here.as_os_str()] {
        there.push(" ");
        there.push(quote(word));
    }
    own.iter().cloned().chain([there]).collect()
}

/// One word for a shell.
fn quote(word: &OsStr) -> OsString {
    let mut quoted = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(br"'\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    OsStr::from_bytes(&quoted).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn what_ssh_is_to_run_is_wrapped_and_its_own_words_stay() {
        let here = Path::new("/opt/it's/polyrail");
        let all = wrapped(&words("-x -p 22 -oBatchMode=yes -o A=b user@n1 prted --daemonize \"$X\""), here);
        assert_eq!(all[..6], words("-x -p 22 -oBatchMode=yes -o A=b")[..]);
        assert_eq!(all[6], "user@n1");
        assert_eq!(all.len(), 8);
        // as ssh would, by a shell; this one prints in place of what it would start
        let shown = all[7].to_str().unwrap().replace("exec sh -c ", "set -- ");
        let run = Command::new("sh")
            .args(["-c", &format!("{shown}; printf '%s\n' \"$2\" \"$3\"")])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(run.stdout).unwrap(), "prted --daemonize \"$X\"\n/opt/it's/polyrail\n");
        assert_eq!(wrapped(&words("-p 22 n1"), here), words("-p 22 n1"), "a shell for a person");
    }

    #[test]
    fn what_stands_for_ssh_may_be_a_list() {
        let shown = |text| format!("{:?}", choices(OsStr::new(text)));
        assert_eq!(shown("ssh -x : rsh"), r#"[("ssh", ["-x"]), ("rsh", [])]"#);
        assert_eq!(shown("oarsh"), r#"[("oarsh", [])]"#);
    }

    #[test]
    fn where_the_command_is_not_it_is_done_without() {
        let all = wrapped(&words("n1 echo $((1+2))"), Path::new("/nowhere/polyrail"));
        let run = Command::new("sh").arg("-c").arg(&all[1]).output().unwrap();
        assert_eq!(String::from_utf8(run.stdout).unwrap(), "3\n");
    }
}
