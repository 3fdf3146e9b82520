//! Names, the headline, and what must be known before anything is believed.

use super::key::{self, Key, keys};
use super::program::{Kind, Program};
use crate::analysis::Analysis;
use crate::analysis::nodes::Cell;
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
    /// What was not recorded by the nature of things, though nothing went wrong.
    pub notes: Vec<String>,
    /// The figures that matter for this kind of program.
    pub keys: Vec<Key>,
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
    pub fn new(
        run: &Run,
        analysis: &Analysis,
        program: &Program,
        whole: &Classes,
        own: Option<&Classes>,
        suggestions: &[Suggestion],
    ) -> About {
        let names = names(run, analysis);
        About {
            command: shown(&run.command.join(" "), LONG),
            sentence: sentence(run, analysis, program, own.unwrap_or(whole)),
            finding: finding(run, analysis, program, suggestions, &names),
            warnings: warnings(run, analysis),
            notes: notes(run),
            keys: keys(run, analysis, program, &names),
            names,
        }
    }
}

/// What a program of another kind than MPI's did, where its messages tell less than its connections.
fn on_connections(run: &Run, program: &Program, start: &str) -> Option<String> {
    let (got, gave) = key::in_and_out(run, program);
    let connections = || units::many(program.main(run).len() as u64, "connection");
    let bytes = |moved: key::Moved| units::bytes(moved.bytes as f64);
    match program.kind {
        Kind::Server => {
            let answers = &program.answers.given;
            let what = match (key::answers_a_second(run, program), answers.quantile(0.5)) {
                (Some(rate), Some(median)) => format!(
                    "it answers {} a second over {}, half of them within {}",
                    units::many(rate as u64, "time"),
                    connections(),
                    units::ns(median as f64)
                ),
                _ => format!("it got {} and gave {} over {}", bytes(got), bytes(gave), connections()),
            };
            Some(format!("{start}: {what}."))
        }
        Kind::Client => {
            let wait = program.answers.got.quantile(0.5).map_or_else(String::new, |median| {
                format!(", and was answered within {} half of the time", units::ns(median as f64))
            });
            Some(format!(
                "{start}: it gave {} and got {} over {}{wait}.",
                bytes(gave),
                bytes(got),
                connections()
            ))
        }
        Kind::Transfer => {
            let carrying = program.connections.iter().filter(|connection| connection.bytes() > 0);
            let number = units::many(carrying.clone().count() as u64, "connection");
            let moved = key::Moved::of(carrying.map(|one| super::program::heavy(one).0));
            let rate = moved.rate().map_or_else(String::new, |rate| format!(" at {}", units::rate(rate)));
            Some(format!("{start}: {} by {number}{rate}.", bytes(moved)))
        }
        Kind::Mpi | Kind::Other => None,
    }
}

fn sentence(run: &Run, analysis: &Analysis, program: &Program, whole: &Classes) -> String {
    let ranks = run.processes.iter().filter(|process| process.mpi.is_some()).count();
    let life = units::ns(run.span.1.saturating_sub(run.span.0) as f64);
    let hosts = units::many(run.hosts.len().max(1) as u64, "host");
    let processes = units::many(run.processes.len() as u64, "process");
    let who = match (ranks, program.kind) {
        (1.., _) => format!("An MPI program of {}", units::many(ranks as u64, "process")),
        (0, Kind::Server) => format!("A server, {processes}"),
        (0, Kind::Client) => format!("A client, {processes}"),
        (0, Kind::Transfer) => format!("A transfer, {processes}"),
        (0, Kind::Mpi | Kind::Other) => processes,
    };
    let start = format!("{who} on {hosts}, {life}");
    if whole.messages == 0 && analysis.seen.nameless.0 > 0 {
        let (calls, bytes) = analysis.seen.nameless;
        return format!(
            "{start}: {} moved {} by connections that are not known.",
            units::many(calls, "socket call"),
            units::bytes(bytes as f64)
        );
    }
    if whole.messages == 0 {
        return match analysis.seen.mpi {
            0 if analysis.seen.records == 0 => format!("{start}: no call of it was recorded."),
            0 => format!("{start}: no message went through a socket that was seen."),
            calls => {
                format!("{start}: {} and no message that was seen.", units::many(calls, "MPI call"))
            }
        };
    }
    if let Some(sentence) = on_connections(run, program, &start) {
        return sentence;
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
        Some((name, 3)) if ranks > 0 => format!(", like {name} of the NAS benchmarks"),
        _ => String::new(),
    };
    format!("{start}: it {frequency}, {size}{synchrony}{like}.")
}

/// Whether less is known than is not: of nothing, or of bytes whose other end has no name, nothing follows.
fn is_mostly_unknown(analysis: &Analysis) -> bool {
    let cells = analysis.links.cells.iter();
    // MPI's messages may go by sockets, which count them as well
    let known = cells.fold(0u64, |sum, (.., cell)| sum.saturating_add(cell.bytes.max(cell.mpi_bytes)));
    analysis.seen.records == 0 && analysis.seen.mpi == 0 || analysis.seen.nameless.1 > known
}

fn finding(
    run: &Run,
    analysis: &Analysis,
    program: &Program,
    suggestions: &[Suggestion],
    names: &[String],
) -> String {
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
    // who waits for questions has nothing to do; a rank that accepted a connection has
    let asks = matches!(program.kind, Kind::Server | Kind::Client | Kind::Other);
    let waited = |cell: &Cell| cell.waited.saturating_sub(if asks { cell.unasked } else { 0 });
    let waits = analysis.links.cells.iter().filter(|(from, to, _)| counts(*from, *to));
    let longest = waits.map(|(from, to, cell)| (from, to, waited(cell))).max_by_key(|(.., waited)| *waited);
    match longest {
        Some((from, to, waited)) if waited as f64 > 0.05 * life => format!(
            "{} waits {} for {}{}.",
            names[*to as usize],
            units::ns(waited as f64),
            names[*from as usize],
            match waited as f64 / life {
                share if share <= 1.0 => format!(", {} of the run", units::percent(share)),
                // several threads at once
                _ => String::new(),
            }
        ),
        _ => match suggestions.first() {
            Some(first) => format!("{}.", first.problem),
            None if is_mostly_unknown(analysis) => "What holds it up cannot be told from this.".into(),
            None => "Nothing on the network holds it up noticeably.".into(),
        },
    }
}

/// One for each reason, with its hosts where there are several.
fn notes(run: &Run) -> Vec<String> {
    let mut notes: Vec<(&str, Vec<String>)> = Vec::new();
    for host in &run.hosts {
        let Some(why) = host.why_no_events.as_deref() else { continue };
        let at = notes.iter().position(|(known, _)| *known == why).unwrap_or_else(|| {
            notes.push((why, Vec::new()));
            notes.len() - 1
        });
        notes[at].1.push(shown(&host.name, 40));
    }
    let on = |hosts: &[String]| match run.hosts.len() {
        0 | 1 => String::new(),
        _ => format!(" ({})", hosts.join(", ")),
    };
    notes.iter().map(|(why, hosts)| format!("{}{}.", shown(why, 500), on(hosts))).collect()
}

fn warnings(run: &Run, analysis: &Analysis) -> Vec<String> {
    let mut warnings: Vec<String> = run.warnings.iter().map(|warning| shown(warning, 500)).collect();
    if run.broke_off {
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
    if let (calls @ 1.., bytes) = analysis.seen.nameless {
        warnings.push(format!(
            "{} moved {} by sockets whose other end is not known: the sums and classes below leave these bytes out.",
            units::many(calls, "call"),
            units::bytes(bytes as f64)
        ));
    }
    if analysis.seen.records == 0 && analysis.seen.mpi == 0 {
        warnings.push(
            "No call was recorded: either the program uses no sockets, or it could not be seen.".into(),
        );
    }
    warnings
}
