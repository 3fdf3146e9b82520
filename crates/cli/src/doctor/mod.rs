//! `polyrail doctor`: what works on this machine and on the hosts of a job, what does not, and the one line that mends it.
//!
//! `checks` looks at this machine; `hosts` asks the same command on others, by ssh, and compares versions.

mod checks;
mod hosts;

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use crate::output;
use crate::table::aligned;

/// Says what works on this machine, or on hosts, what does not, and what mends it.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
                        polyrail doctor\n  \
                        polyrail doctor --hosts n1,n2\n\
                        Exit status: 0; 1 if something does not work that a program would need.")]
pub struct Args {
    /// Ask on these hosts, by ssh, where Polyrail is at the same place, and compare
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    hosts: Vec<String>,
    /// What to reach hosts with in place of ssh
    #[arg(long, value_name = "COMMAND", requires = "hosts", default_value = "ssh")]
    ssh: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It works.
    Works,
    /// It does without, or with less.
    Less,
    /// What a program needs does not work.
    Broken,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Works => "ok",
            Self::Less => "note",
            Self::Broken => "BROKEN",
        }
    }
}

/// What was found about one thing.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    about: &'static str,
    state: State,
    what: String,
    /// A command or a sentence; none where nothing is to be done.
    remedy: Option<String>,
}

impl Finding {
    fn works(about: &'static str, what: impl Into<String>) -> Self {
        Self { about, state: State::Works, what: what.into(), remedy: None }
    }

    fn less(about: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { about, state: State::Less, what: what.into(), remedy: Some(remedy.into()) }
    }

    fn broken(about: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Broken, ..Self::less(about, what, remedy) }
    }
}

/// What this version is, as hosts are compared by it.
fn version() -> String {
    format!("polyrail {}, wire protocol {}", env!("CARGO_PKG_VERSION"), crate::info::wire())
}

/// Runs the subcommand.
pub fn main(args: &Args) -> ExitCode {
    if !args.hosts.is_empty() {
        let (text, fine) = hosts::ask(&args.ssh, &args.hosts, args.json);
        output::print(&text);
        return if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let findings = checks::all();
    if args.json {
        let of = |one: &Finding| json!({ "about": one.about, "state": one.state.word(), "what": one.what, "remedy": one.remedy });
        let all: Vec<_> = findings.iter().map(of).collect();
        output::print_line(&format!("{:#}", json!({ "version": version(), "findings": all })));
    } else {
        output::print(&text(&findings));
    }
    let fine = findings.iter().all(|one| one.state != State::Broken);
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn text(findings: &[Finding]) -> String {
    let rows = findings.iter().flat_map(|one| {
        let first = vec![one.state.word().to_owned(), one.about.to_owned(), one.what.replace('\n', " ")];
        let remedy =
            one.remedy.iter().map(|remedy| vec![String::new(), String::new(), format!("> {remedy}")]);
        std::iter::once(first).chain(remedy).collect::<Vec<_>>()
    });
    format!("{}\n{}", version(), aligned(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_and_each_remedy_one_below() {
        let findings = [
            Finding::works("rails", "eth0"),
            Finding::less("MPI", "none", "pip install mpich"),
            Finding::broken("settings", "POLYRAIL_RAILS: no\nsuch", "unset it"),
        ];
        let text = text(&findings);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "  ok      rails     eth0",
                "  note    MPI       none",
                "                    > pip install mpich",
                "  BROKEN  settings  POLYRAIL_RAILS: no such",
                "                    > unset it",
            ]
        );
    }
}
