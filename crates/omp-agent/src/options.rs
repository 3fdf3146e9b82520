//! The agent's command line: `polyrail-omp-agent [OPTIONS] -- PROGRAM ARGUMENTS...`. People use `polyrail omp`; rank 0's options count.
use std::ffi::OsString;
use std::path::PathBuf;

use polyrail_omp::area::{LOCALS, setting};

/// What rank 0 was told.
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
    /// The program, as named.
    pub program: OsString,
    /// What it gets.
    pub arguments: Vec<OsString>,
}

const WATCHDOG: u64 = 30;

impl Options {
    /// Reads words and variables.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn read(
        words: impl Iterator<Item = OsString>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, String> {
        let mut options = Self {
            runtime: variable("POLYRAIL_OMP_RT").filter(|path| !path.is_empty()).map(PathBuf::from),
            watchdog: match variable("POLYRAIL_OMP_WATCHDOG") {
                None => WATCHDOG,
                Some(text) => number("POLYRAIL_OMP_WATCHDOG", Some(text))?,
            },
            settings: match variable("POLYRAIL_OMP_SHM") {
                Some(text) if number("POLYRAIL_OMP_SHM", Some(text.clone()))? == 0 => 0,
                _ => setting::SHARED,
            },
            ..Self::default()
        };
        let mut words = words;
        loop {
            let word = words.next().ok_or("no program given")?;
            match word.to_str() {
                Some("--") => {
                    options.program = words.next().ok_or("no program given")?;
                    break;
                }
                Some("--threads") => {
                    let threads = number("--threads", words.next())? as usize;
                    if !(1..LOCALS).contains(&threads) {
                        // the last slot is the thread that leads
                        return Err(format!("--threads {threads}: 1 to {}", LOCALS - 1));
                    }
                    options.threads = Some(threads);
                }
                Some("--stats") => {
                    (options.stats, options.settings) = (true, options.settings | setting::STATS)
                }
                Some("--json") => {
                    options.json = Some(words.next().ok_or("--json: no file given")?.into());
                    options.settings |= setting::STATS;
                }
                Some("--compare") => options.settings |= setting::COMPARE,
                Some("--no-compression") => options.settings |= setting::PLAIN,
                Some("--serial") => match words.next().unwrap_or_default().to_str() {
                    Some("master") => options.settings &= !setting::REPLICATED,
                    Some("replicated") => options.settings |= setting::REPLICATED,
                    _ => return Err("--serial: master or replicated".into()),
                },
                Some(unknown) if unknown.starts_with('-') => {
                    return Err(format!("{unknown}: no such option"));
                }
                _ => {
                    options.program = word;
                    break;
                }
            }
        }
        options.arguments = words.collect();
        Ok(options)
    }
}

fn number(name: &str, word: Option<OsString>) -> Result<u64, String> {
    let word = word.unwrap_or_default();
    word.to_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("{name}: '{}' is no number", word.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        Options::read(line.split_whitespace().map(OsString::from), |_| None)
    }

    #[test]
    fn options_end_where_the_program_begins() {
        let options = read("--threads 4 --stats --json f.json -- ./a --stats -- x").unwrap();
        assert_eq!(
            (options.threads, options.stats, options.settings),
            (Some(4), true, setting::STATS | setting::SHARED)
        );
        assert_eq!((options.json, options.watchdog), (Some("f.json".into()), WATCHDOG));
        assert_eq!((options.program, options.arguments.len()), ("./a".into(), 3));
        assert_eq!(read("./a -x").unwrap().arguments, ["-x"]);
        assert_eq!(
            read("--compare --no-compression ./a").unwrap().settings,
            setting::COMPARE | setting::PLAIN | setting::SHARED
        );
        assert_eq!(read("--serial replicated ./a").unwrap().settings, setting::REPLICATED | setting::SHARED);
        assert_eq!(read("--serial replicated --serial master ./a").unwrap().settings, setting::SHARED);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (line, why) in [
            ("", "no program"),
            ("--", "no program"),
            ("--threads x ./a", "'x' is no number"),
            ("--threads 0 ./a", "1 to 63"),
            ("--threads 64 ./a", "1 to 63"),
            ("--serial ./a", "master or replicated"),
            ("--fast ./a", "--fast: no such option"),
        ] {
            assert!(read(line).unwrap_err().contains(why), "{line}");
        }
        let without = |name: &str| (name == "POLYRAIL_OMP_SHM").then(|| "0".into());
        assert_eq!(Options::read(["a".into()].into_iter(), without).unwrap().settings, 0);
        let told = |name: &str| (name == "POLYRAIL_OMP_WATCHDOG").then(|| "soon".into());
        assert!(Options::read(["a".into()].into_iter(), told).unwrap_err().contains("WATCHDOG"));
    }
}
