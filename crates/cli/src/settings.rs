//! Settings: all there are, those in force, and names that were meant to be settings.

use std::ffi::OsString;

use polyrail_rails::config::SETTINGS;
use serde_json::{Value, json};

use crate::table::aligned;

/// Variables that other parts of Polyrail read, besides the settings of a worker.
const OTHERS: [(&str, &str); 12] = [
    ("POLYRAIL_CONFIG", "a file of these settings (default: ~/.config/polyrail/polyrail.toml); empty: none"),
    (
        "POLYRAIL_SECRET_FILE",
        "the user's secret, from which the keys of named endpoints come and which connections prove where there is one; empty: none (default: ~/.config/polyrail/secret)",
    ),
    (
        "POLYRAIL_MEET",
        "host:port of the first of several processes that start together, where no launcher tells them of each other; empty: no launcher is looked at (default: what launchers say)",
    ),
    (
        "POLYRAIL_RANK",
        "with POLYRAIL_MEET, which of the processes this is, from 0 on (default: as Kubernetes, Slurm or MPI launchers number them)",
    ),
    (
        "POLYRAIL_SIZE",
        "with POLYRAIL_MEET, how many processes there are (default: as Slurm or MPI launchers say)",
    ),
    (
        "POLYRAIL_OMP_WATCHDOG",
        "polyrail omp: seconds after which a rank that others wait for is looked at (default 30; 0: never)",
    ),
    ("POLYRAIL_OMP_MPI", "polyrail omp: the MPI library that agents load (default: the launching mpiexec's)"),
    (
        "POLYRAIL_OMP_TASKS",
        "polyrail omp: off: tasks are carried out by the threads that meet them; always: all are offered to others",
    ),
    ("POLYRAIL_OMP_SHM", "polyrail omp: 0: ranks of one host exchange by MPI, too, not by shared memory"),
    ("POLYRAIL_OMP_RT", "polyrail omp: the runtime library (default: the one beside the agent)"),
    (
        "POLYRAIL_COMPANION",
        "the library that ranks are to have loaded before MPI; set by polyrail run, empty: none",
    ),
    ("POLYRAIL_REPORT", "where polyrail run waits for the reports of its ranks"),
];
/// What scripts/lab tells the commands inside it, `polyrail trace` its recorders, `polyrail run` what stands for ssh.
const OWN: [&str; 4] = ["POLYRAIL_LAB", "POLYRAIL_TRACE", "POLYRAIL_RECORDER_DIR", "POLYRAIL_SSH"];

/// A setting that is made.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// The variable.
    pub name: String,
    pub value: String,
    /// What it means; none: nobody reads it.
    pub meaning: Option<&'static str>,
    /// The known name that it is nearest to, if nobody reads it and there is one.
    pub nearest: Option<String>,
}

/// What people can set.
pub fn all() -> impl Iterator<Item = (String, &'static str)> {
    let settings = SETTINGS.iter().map(|(name, meaning)| (format!("POLYRAIL_{name}"), *meaning));
    let (_, others) = OTHERS.split_last().unwrap_or((&OTHERS[0], &[]));
    settings.chain(others.iter().map(|(name, meaning)| ((*name).to_owned(), *meaning)))
}

/// All settings, for people.
pub fn list() -> String {
    aligned(all().map(|(name, meaning)| vec![name, meaning.to_owned()]))
}

/// All settings, for programs.
pub fn list_json() -> Value {
    all().map(|(name, meaning)| json!({ "name": name, "meaning": meaning })).collect()
}

/// The settings in an environment.
pub fn made(environment: impl Iterator<Item = (String, String)>) -> Vec<Setting> {
    let mut all: Vec<Setting> = environment
        .filter(|(name, _)| {
            ["POLYRAIL_", "FI_POLYRAIL_"].iter().any(|prefix| name.starts_with(prefix))
                && !OWN.iter().any(|own| name.starts_with(own))
        })
        .map(|(name, value)| {
            let meaning = known().find(|(known, _)| *known == name).map(|(_, meaning)| meaning);
            let nearest = if meaning.is_none() { nearest(&name) } else { None };
            // whoever can read this may report in a job's name
            let value = if name == "POLYRAIL_REPORT" { "(set)".into() } else { value };
            Setting { name, value, meaning, nearest }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The settings in this process's environment.
pub fn here() -> Vec<Setting> {
    let shown = |text: OsString| text.to_string_lossy().into_owned();
    made(std::env::vars_os().map(|(name, value)| (shown(name), shown(value))))
}

/// Those that nobody reads and that are like one that somebody reads, in words.
pub fn misspelt(settings: &[Setting]) -> impl Iterator<Item = String> {
    settings.iter().filter_map(|setting| {
        let nearest = setting.nearest.as_ref()?;
        Some(format!("nobody reads {}; did you mean {nearest}?", setting.name))
    })
}

fn known() -> impl Iterator<Item = (String, &'static str)> {
    let settings = SETTINGS.iter().flat_map(|(name, meaning)| {
        ["POLYRAIL_", "FI_POLYRAIL_"].map(|prefix| (format!("{prefix}{name}"), *meaning))
    });
    settings.chain(OTHERS.map(|(name, meaning)| (name.to_owned(), meaning)))
}

fn nearest(name: &str) -> Option<String> {
    let (distance, best) =
        known().map(|(known, _)| (strsim::damerau_levenshtein(name, &known), known)).min()?;
    // further than that it is no misspelling
    (distance <= 4).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> Setting {
        made([(name.to_owned(), "x".to_owned())].into_iter()).remove(0)
    }

    #[test]
    fn known_settings_have_a_meaning() {
        for name in ["POLYRAIL_RAILS", "FI_POLYRAIL_WINDOW", "POLYRAIL_SECRET_FILE"] {
            assert!(one(name).meaning.is_some(), "{name}");
        }
    }

    #[test]
    fn the_page_has_them_all() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `POLYRAIL_")).collect();
        let expected: Vec<String> =
            all().map(|(name, meaning)| format!("| `{name}` | {meaning} |")).collect();
        assert_eq!(rows, expected);
        assert!(
            expected
                .iter()
                .all(|row| list().contains(row.trim_matches(['|', ' ']).split_once("| ").unwrap().1))
        );
    }

    #[test]
    fn misspelt_settings_are_pointed_out() {
        for (wrong, right) in [
            ("POLYRAIL_RAIL", "POLYRAIL_RAILS"),
            ("POLYRAIL_INTERFACE", "POLYRAIL_INTERFACES"),
            ("POLYRAIL_TCP_EAGRE", "POLYRAIL_TCP_EAGER"),
            ("FI_POLYRAIL_PROT", "FI_POLYRAIL_PORT"),
        ] {
            let setting = one(wrong);
            assert_eq!((setting.meaning, setting.nearest.as_deref()), (None, Some(right)));
        }
        assert_eq!(one("POLYRAIL_SOMETHING_ELSE").nearest, None);
    }

    #[test]
    fn what_is_not_ours_is_left_alone_and_secrets_stay_so() {
        let others = ["PATH", "FI_PROVIDER", "POLYRAIL", "POLYRAIL_LAB_HOSTS", "POLYRAIL_TRACE_TO"];
        assert_eq!(made(others.map(|name| (name.to_owned(), String::new())).into_iter()), []);
        assert_eq!(one("POLYRAIL_REPORT").value, "(set)");
    }
}
