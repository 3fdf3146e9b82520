//! `polyrail wrap --doctor`: what will be seen of a program, and why.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use object::{Object, ObjectSection};
use polyrail_native::seccomp;

use super::ways::Ways;
use crate::output;

/// Where a program is, as a shell would find it.
fn find(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return name.exists().then(|| name.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|place| place.is_file())
}

/// What kind of program a file is, and what that means here.
fn kind(path: &Path) -> String {
    let Ok(bytes) = std::fs::read(path) else { return "it cannot be read".into() };
    if bytes.starts_with(b"#!") {
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let with = String::from_utf8_lossy(line.get(2..).unwrap_or_default()).trim().to_owned();
        return format!("a script, run by {with}; that and whatever it starts is seen");
    }
    let Ok(file) = object::File::parse(&*bytes) else {
        return "neither a program for this machine nor a script; whatever it is, the kernel sees its calls"
            .into();
    };
    let native = if cfg!(target_arch = "aarch64") {
        object::Architecture::Aarch64
    } else {
        object::Architecture::X86_64
    };
    if file.architecture() != native {
        return format!(
            "a program for {:?}: calls of other architectures are NOT seen, and go as ever",
            file.architecture()
        );
    }
    let go = file.section_by_name(".go.buildinfo").is_some();
    let shared = file.section_by_name(".interp").is_some_and(|section| section.size() > 0);
    let what = match (go, shared) {
        (true, _) => "a Go program",
        (false, true) => "a program with shared libraries",
        (false, false) => "a static program",
    };
    format!("{what}: its connections are seen, as the kernel sees them")
}

/// Runs the subcommand.
pub fn main(program: &[OsString], gateway: SocketAddr) -> ExitCode {
    let mut text = String::new();
    let mut line = |what: &str, said: String| text.push_str(&format!("{what:<12}{said}\n"));
    let mut works = true;
    match find(Path::new(&program[0])) {
        Some(path) => {
            line("program", path.display().to_string());
            line("kind", kind(&path));
            if std::fs::metadata(&path).is_ok_and(|about| about.mode() & 0o6000 != 0) {
                let root = rustix::process::geteuid().is_root();
                let said = match root {
                    true => "it runs as another user, and is seen, as you are root",
                    false => "it would run as another user; wrapped it runs as you, with your rights",
                };
                line("rights", said.into());
            }
        }
        None => {
            works = false;
            line("program", format!("{} is not there", Path::new(&program[0]).display()));
        }
    }
    match seccomp::try_out() {
        Ok(()) => {
            line("way", "seccomp user notification: connections are stopped in the kernel; no library is loaded, no right needed".into());
        }
        Err(why) => {
            works = false;
            line("way", format!("none: the kernel does not show calls of other processes: {why}"));
        }
    }
    line(
        "io_uring",
        "programs are told that there is none, so that nothing connects unseen; --io-uring lets them".into(),
    );
    line("datagrams", "UDP goes as ever: it does not go through gateways".into());
    match Ways::find(gateway) {
        Ok(ways) if ways.is_empty() => line("gateway", format!("{gateway}; it leads nowhere yet")),
        Ok(ways) => {
            line("gateway", gateway.to_string());
            for way in ways.all() {
                let now = if way.up { "" } else { ", which is away now" };
                line("", format!("{} is at site {}{now}", way.network, way.site));
            }
        }
        Err(why) => {
            works = false;
            line("gateway", format!("none answers at {gateway}: {why}"));
        }
    }
    output::print(&text);
    if works { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
