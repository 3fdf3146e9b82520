//! Names, the headline, and what must be known before anything is believed.

use crate::analysis::Analysis;
use crate::classify::{Classes, Frequency, Size, Suggestion};
use crate::model::{Process, Run};
use crate::units;
use std::collections::HashMap;

/// How the run is spoken of.
#[derive(Clone, Debug)]
pub(super) struct About {
    /// The command in one line.
    pub command: String,
    /// What this program is.
    pub sentence: String,
    /// The most important thing that was found.
    pub finding: String,
    /// What must be known, most important first.
    pub warnings: Vec<String>,
    /// By node: processes, then what is outside.
    pub names: Vec<String>,
}

/// The longest command or name that is shown.
const LONG: usize = 160;

/// Cut where it is too long to read, and without what would break a line.
pub(super) fn shown(text: &str, most: usize) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut cut: String = clean.clone().take(most).collect();
    if clean.count() > most {
        cut.push('…');
    }
    cut
}

/// The program's name without its directory.
fn program(process: &Process) -> String {
    let word = process.command.first().map_or("?", String::as_str);
    shown(word.rsplit('/').next().unwrap_or(word), 24)
}

fn names(run: &Run, analysis: &Analysis) -> Vec<String> {
    let mut worlds: HashMap<u32, u32> = HashMap::new();
    for mpi in run.processes.iter().filter_map(|process| process.mpi.as_ref()) {
        *worlds.entry(mpi.rank).or_default() += 1;
    }
    let name = |process: &Process| match &process.mpi {
        Some(mpi) if worlds[&mpi.rank] == 1 => format!("rank {}", mpi.rank),
        Some(mpi) => format!("rank {} ({})", mpi.rank, process.pid),
        None => format!("{} ({})", program(process), process.pid),
    };
    run.processes.iter().map(name).chain(analysis.outside.iter().map(|name| shown(name, 40))).collect()
}

impl About {
    pub fn new(run: &Run, analysis: &Analysis, whole: &Classes, suggestions: &[Suggestion]) -> About {
        let names = names(run, analysis);
        About {
            command: shown(&run.command.join(" "), LONG),
            sentence: sentence(run, analysis, whole),
            finding: finding(run, analysis, suggestions, &names),
            warnings: warnings(run, analysis),
            names,
        }
    }
}

fn sentence(run: &Run, analysis: &Analysis, whole: &Classes) -> String {
    let ranks = run.processes.iter().filter(|process| process.mpi.is_some()).count();
    let life = units::ns(run.span.1.saturating_sub(run.span.0) as f64);
    let hosts = units::many(run.hosts.len().max(1) as u64, "host");
    let who = match ranks {
        0 => units::many(run.processes.len() as u64, "process"),
        ranks => format!("An MPI program of {}", units::many(ranks as u64, "process")),
    };
    let start = format!("{who} on {hosts}, {life}");
    if whole.messages == 0 {
        return match analysis.seen.mpi {
            0 => format!("{start}: no message went through a socket."),
            calls => format!("{start}: {} and no message through a socket.", units::many(calls, "MPI call")),
        };
    }
    let frequency = match whole.frequency {
        Some(Frequency::Frequent) => "sends often (gaps under 0.1 s)",
        Some(Frequency::Medium) => "sends now and then (gaps of 0.1 to 1 s)",
        Some(Frequency::Rare) => "sends rarely (gaps over 1 s)",
        None => "sends",
    };
    let size = match whole.size {
        Some(Size::Small) => "small messages (under 1 kB)",
        Some(Size::Medium) => "medium messages (1 to 200 kB)",
        Some(Size::Large) => "large messages (over 200 kB)",
        None => "messages",
    };
    let synchrony = match whole.synchrony {
        Some(level) => format!(" with {level} synchrony"),
        None => String::new(),
    };
    let like = match whole.like() {
        Some((name, 3)) => format!(", like {name} of the NAS benchmarks"),
        _ => String::new(),
    };
    format!("{start}: it {frequency}, {size}{synchrony}{like}.")
}

fn finding(run: &Run, analysis: &Analysis, suggestions: &[Suggestion], names: &[String]) -> String {
    let life = run.span.1.saturating_sub(run.span.0).max(1) as f64;
    if let Some(first) =
        suggestions.first().filter(|first| first.lost.is_some_and(|lost| lost as f64 > 0.01 * life))
    {
        let lost = first.lost.unwrap_or(0) as f64;
        return format!(
            "{}: about {} of {} may be lost to it.",
            first.problem,
            units::ns(lost),
            units::ns(life)
        );
    }
    // of an MPI program, what its ranks wait for each other, not for the launcher
    let rank = |node: u32| run.processes.get(node as usize).is_some_and(|process| process.mpi.is_some());
    let counts = |from, to| analysis.seen.mpi == 0 || rank(from) && rank(to);
    let waits = analysis.links.cells.iter().filter(|(from, to, _)| counts(*from, *to));
    let longest = waits.max_by_key(|(_, _, cell)| cell.waited);
    match longest {
        Some((from, to, cell)) if cell.waited as f64 > 0.05 * life => format!(
            "{} waits {} for {}, {} of the run.",
            names[*to as usize],
            units::ns(cell.waited as f64),
            names[*from as usize],
            units::percent(cell.waited as f64 / life)
        ),
        _ => match suggestions.first() {
            Some(first) => format!("{}.", first.problem),
            None => "Nothing on the network holds it up noticeably.".into(),
        },
    }
}

fn warnings(run: &Run, analysis: &Analysis) -> Vec<String> {
    let mut warnings: Vec<String> = run.warnings.iter().map(|warning| shown(warning, 500)).collect();
    let lost: u64 = run.threads.iter().map(|thread| thread.lost).sum();
    if lost > 0 {
        let kept: u64 = run.threads.iter().map(|thread| thread.records).sum();
        let threads = run.threads.iter().filter(|thread| thread.lost > 0).count() as u64;
        warnings.insert(
            0,
            format!(
                "{} of {} were lost: {} wrote faster than they could be kept. Counts and times below are of what was kept.",
                units::many(lost, "record"),
                units::count(lost + kept),
                units::many(threads, "thread"),
            ),
        );
    }
    if run.status.is_none() {
        warnings.push("The recording broke off; this is what it had until then.".into());
    }
    for host in run.hosts.iter().skip(1) {
        match host.clock_error {
            None => warnings.push(format!(
                "Nothing bounds the error of the clock of {}: times there and elsewhere cannot be compared.",
                shown(&host.name, 40)
            )),
            Some(error) if error > 1_000_000 => warnings.push(format!(
                "Times of {} are within {} of the other hosts' only.",
                shown(&host.name, 40),
                units::ns(error as f64)
            )),
            Some(_) => {}
        }
    }
    if analysis.seen.records == 0 && analysis.seen.mpi == 0 {
        warnings.push(
            "No call was recorded: either the program uses no sockets, or it could not be seen.".into(),
        );
    }
    warnings
}
