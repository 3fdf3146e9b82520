//! What rank 0 was told: by its command line, which is [`polyrail_omp::options::Agent`]'s, and by variables.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use polyrail_omp::area::setting;
use polyrail_omp::options::{Agent, Serial};

/// What rank 0 was told; rank 0's count.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Threads of each rank, if told.
    pub threads: Option<usize>,
    /// See [`setting`].
    pub settings: u32,
    /// Print counters in the end.
    pub stats: bool,
    /// Where counters go as JSON.
    pub json: Option<PathBuf>,
    /// The runtime library, if it is not beside the agent.
    pub runtime: Option<PathBuf>,
    /// Seconds; 0: never.
    pub watchdog: u64,
    /// Checkpoints.
    pub keep: Keep,
    /// The program as named, and what it gets.
    pub words: Vec<OsString>,
}

/// What the user wants of checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Where they are kept.
    pub checkpoint: Option<PathBuf>,
    /// From one to the next.
    pub every: Option<Duration>,
    /// Where the run goes on from.
    pub resume: Option<PathBuf>,
}

const WATCHDOG: u64 = 30;

/// Why there are no options.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// The help or the version was asked for.
    Told(String),
    /// What is wrong.
    Wrong(String),
}

impl Options {
    /// Reads words and variables.
    ///
    /// # Errors
    /// What is wrong with them, or what was asked for in their place.
    pub fn read(
        words: impl Iterator<Item = OsString>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Stop> {
        let Agent { options, program } = Agent::read(words).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Told(error.to_string()),
            // its first line is the reason; who calls an agent by hand finds the rest by --help
            _ => Stop::Wrong(
                error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").into(),
            ),
        })?;
        let keep = Keep { checkpoint: options.checkpoint, every: options.every, resume: options.resume };
        let keeps = keep.checkpoint.is_some() || keep.resume.is_some();
        if keep.every.is_some() && !keeps {
            return Err(Stop::Wrong("--every: without --checkpoint DIR there are no checkpoints".into()));
        }
        if keeps && options.serial == Serial::Replicated {
            let why = "--serial replicated: checkpoints are of runs whose serial code is rank 0's (--serial master)";
            return Err(Stop::Wrong(why.into()));
        }
        let counted = options.stats || options.json.is_some();
        let shared = match variable("POLYRAIL_OMP_SHM") {
            Some(text) => number("POLYRAIL_OMP_SHM", &text)? != 0,
            None => true,
        };
        let tasks = variable("POLYRAIL_OMP_TASKS").unwrap_or_default();
        if !["", "on", "off", "always"].iter().any(|known| tasks == *known) {
            let why = format!("POLYRAIL_OMP_TASKS: '{}' is none of on, off, always", tasks.display());
            return Err(Stop::Wrong(why));
        }
        let settings = [
            (tasks == "off", setting::NO_TASKS),
            (tasks == "always", setting::ALL_TASKS),
            (shared, setting::SHARED),
            (counted, setting::STATS),
            (options.compare, setting::COMPARE),
            (options.no_compression, setting::PLAIN),
            (options.serial == Serial::Replicated, setting::REPLICATED),
            (keeps, setting::CHECKPOINTS),
            (keep.resume.is_some(), setting::RESUMED),
        ];
        Ok(Self {
            threads: options.threads.map(|threads| threads as usize),
            settings: settings.into_iter().filter(|(wanted, _)| *wanted).map(|(_, setting)| setting).sum(),
            stats: options.stats,
            json: options.json,
            runtime: variable("POLYRAIL_OMP_RT").filter(|path| !path.is_empty()).map(PathBuf::from),
            watchdog: match variable("POLYRAIL_OMP_WATCHDOG") {
                None => WATCHDOG,
                Some(text) => number("POLYRAIL_OMP_WATCHDOG", &text)?,
            },
            keep,
            words: program,
        })
    }
}

fn number(name: &str, word: &OsString) -> Result<u64, Stop> {
    let number = word.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Stop::Wrong(format!("{name}: '{}' is no number", word.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, Stop> {
        Options::read(line.split_whitespace().map(OsString::from), |_| None)
    }

    #[test]
    fn options_become_settings() {
        let options = read("--threads 4 --stats --json f.json -- ./a --stats -- x").unwrap();
        assert_eq!(
            (options.threads, options.stats, options.settings),
            (Some(4), true, setting::STATS | setting::SHARED)
        );
        assert_eq!((options.json, options.watchdog), (Some("f.json".into()), WATCHDOG));
        assert_eq!(options.words, ["./a", "--stats", "--", "x"]);
        assert_eq!(read("--json f.json ./a").unwrap().settings, setting::STATS | setting::SHARED);
        assert_eq!(
            read("--compare --no-compression ./a").unwrap().settings,
            setting::COMPARE | setting::PLAIN | setting::SHARED
        );
        assert_eq!(read("--serial replicated ./a").unwrap().settings, setting::REPLICATED | setting::SHARED);
    }

    #[test]
    fn what_makes_no_sense_is_told_in_a_line() {
        let Err(Stop::Wrong(why)) = read("--fast ./a") else { panic!("there is no --fast") };
        assert!(why.contains("--fast") && !why.contains('\n'), "{why}");
        assert!(matches!(read("--help"), Err(Stop::Told(help)) if help.contains("--no-compression")));
        let without = |name: &str| (name == "POLYRAIL_OMP_SHM").then(|| "0".into());
        assert_eq!(Options::read(["a".into()].into_iter(), without).unwrap().settings, 0);
        for (word, setting) in
            [("off", Some(setting::NO_TASKS)), ("always", Some(setting::ALL_TASKS)), ("no", None)]
        {
            let asked = |name: &str| (name == "POLYRAIL_OMP_TASKS").then(|| word.into());
            let read = Options::read(["a".into()].into_iter(), asked);
            assert_eq!(read.ok().map(|options| options.settings & !setting::SHARED), setting, "{word}");
        }
        let told = |name: &str| (name == "POLYRAIL_OMP_WATCHDOG").then(|| "soon".into());
        let told = Options::read(["a".into()].into_iter(), told);
        assert!(matches!(told, Err(Stop::Wrong(why)) if why.contains("WATCHDOG")));
    }
}
