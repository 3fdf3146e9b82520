//! Options of `polyrail omp` that are the agents' to carry out: the command takes them and hands them on, an agent reads them again.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};

/// Threads of a rank at most: the last slot of the shared mapping is the thread's that leads.
const THREADS_MAX: i64 = crate::area::LOCALS as i64 - 1;

/// What both take.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Threads of each process: if not given, a host's processors divided by the processes on it, of the host that has least
    #[arg(short, long, value_name = "THREADS", value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX))]
    pub threads: Option<u32>,
    /// Tell in the end where time went, by parallel region
    #[arg(long)]
    pub stats: bool,
    /// Write the same to a file (on rank 0's host)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Find what changed by comparing memory, where the kernel's write tracking is not to be used
    #[arg(long)]
    pub compare: bool,
    /// Send everything as it is, where large exchanges would be compressed as the network is slow
    #[arg(long)]
    pub no_compression: bool,
    /// Keep checkpoints in this directory (on rank 0's host), to go on from after the run has been ended: --resume
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// Seconds from one checkpoint to the next, with --checkpoint or --resume: 600 if not given
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub every: Option<Duration>,
    /// Go on from the last checkpoint in this directory, and keep further ones there: with as many processes and threads; the program and its words are those of then
    #[arg(long, value_name = "DIR", conflicts_with = "checkpoint")]
    pub resume: Option<PathBuf>,
    /// Where serial code runs: on rank 0, and what it writes is sent; or on every rank, so that only what differs is
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    pub serial: Serial,
}

/// See [`Options::serial`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Serial {
    /// On rank 0.
    #[default]
    Master,
    /// On every rank.
    Replicated,
}

/// A number of seconds, which need not be whole.
fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| format!("'{text}' is no number of seconds"))?;
    if !(0.001..=1e9).contains(&number) {
        return Err("from 0.001 to 1000000000 seconds".into());
    }
    Ok(Duration::from_secs_f64(number))
}

impl Options {
    /// As words that [`Agent::read`] reads.
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(threads) = self.threads {
            words.extend(["--threads".into(), threads.to_string().into()]);
        }
        let switches =
            [(self.stats, "--stats"), (self.compare, "--compare"), (self.no_compression, "--no-compression")];
        words.extend(switches.into_iter().filter(|(wanted, _)| *wanted).map(|(_, word)| word.into()));
        if self.serial == Serial::Replicated {
            words.extend(["--serial".into(), "replicated".into()]);
        }
        for (word, directory) in [("--checkpoint", &self.checkpoint), ("--resume", &self.resume)] {
            if let Some(directory) = directory {
                words.extend([word.into(), directory.into()]);
            }
        }
        if let Some(every) = self.every {
            words.extend(["--every".into(), every.as_secs_f64().to_string().into()]);
        }
        if let Some(json) = &self.json {
            words.extend(["--json".into(), json.into()]);
        }
        words
    }
}

/// An agent's command line. mpiexec starts one for each rank; people use `polyrail omp`.
#[derive(Debug, Parser, PartialEq, Eq)]
#[command(name = "polyrail-omp-agent", version, args_override_self = true)]
pub struct Agent {
    /// What the user told the command.
    #[command(flatten)]
    pub options: Options,
    /// The program and what it gets
    #[arg(trailing_var_arg = true, required_unless_present = "resume", value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

impl Agent {
    /// Reads an agent's words, without its own name.
    ///
    /// # Errors
    /// What is wrong with them, in a line; or the help, where that was asked for.
    pub fn read(words: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(std::iter::once(OsString::from("polyrail-omp-agent")).chain(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Agent, String> {
        Agent::read(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn options_end_where_the_program_begins() {
        let agent = read("--threads 4 --stats --json f.json -- ./a --stats -- x").unwrap();
        let options =
            Options { threads: Some(4), stats: true, json: Some("f.json".into()), ..Options::default() };
        assert_eq!(
            (agent.options, agent.program),
            (options, ["./a", "--stats", "--", "x"].map(OsString::from).into())
        );
        assert_eq!(read("./a -x").unwrap().program, ["./a", "-x"]);
        assert_eq!(read("--serial replicated ./a").unwrap().options.serial, Serial::Replicated);
        // who starts agents by hand adds to what a script has
        assert_eq!(read("--serial replicated --serial master ./a").unwrap().options.serial, Serial::Master);
    }

    #[test]
    fn what_the_command_hands_on_is_what_the_agent_reads() {
        for line in [
            "./a",
            "--threads 63 ./a",
            "--stats --compare --no-compression --serial replicated --json x/y.json ./a -- -n",
        ] {
            let agent = read(line).unwrap();
            let words = agent.options.words().into_iter().chain(["--".into()]).chain(agent.program.clone());
            assert_eq!(Agent::read(words).unwrap(), agent, "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (line, why) in [
            ("", "<PROGRAM>"),
            ("--", "<PROGRAM>"),
            ("--threads x ./a", "invalid digit"),
            ("--threads 0 ./a", "1..=63"),
            ("--threads 64 ./a", "1..=63"),
            ("--serial ./a", "master, replicated"),
            ("--fast", "--fast"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
        assert!(read("--help").unwrap_err().contains("--no-compression"));
    }
}
