//! What a run cost, by region: the runtimes' counters ([`Count`]) of all ranks, for people and for programs.
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use polyrail_omp::area::Count;
use polyrail_omp::items::{pack, read_numbers, unpack};
use serde_json::{Value, json};

use crate::launch::Launch;
use crate::symbols::Symbols;

/// Names of the counters in JSON, in the order of [`Count`].
const NAMES: [&str; 25] = [
    "regions",
    "whole_ns",
    "exchanges",
    "finding_ns",
    "encoding_ns",
    "exchanging_ns",
    "waiting_ns",
    "applying_ns",
    "bytes_out",
    "bytes_in",
    "pages",
    "tokens",
    "token_ns",
    "atomics",
    "atomic_ns",
    "calls",
    "chunks",
    "chunk_ns",
    "beginning_ns",
    "bytes_saved",
    "tasks",
    "task_ns",
    "checkpoints",
    "checkpoint_ns",
    "checkpoint_bytes",
];
const _: () = assert!(NAMES.len() == Count::CheckpointBytes as usize + 1);

/// The counters of a region on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The compiler's function; 0: all regions beyond those that are counted apart.
    pub function: u64,
    /// What the compiler says of the place.
    pub place: String,
    /// By [`Count`].
    pub words: Vec<u64>,
}

/// As a message's data.
pub fn to_bytes(regions: &[Region]) -> Vec<u8> {
    let items = regions.iter().flat_map(|region| {
        let words: Vec<u8> = std::iter::once(&region.function)
            .chain(&region.words)
            .flat_map(|word| word.to_le_bytes())
            .collect();
        [words, region.place.clone().into_bytes()]
    });
    pack(items.collect::<Vec<_>>().iter().map(Vec::as_slice))
}

/// Out of a message's data; nothing out of what is none.
pub fn from_bytes(bytes: &[u8]) -> Vec<Region> {
    let items = unpack(bytes).unwrap_or_default();
    let region = |pair: &[Vec<u8>]| {
        let words = read_numbers(&pair[0]);
        let (function, words) = words.split_first()?;
        Some(Region {
            function: *function,
            place: String::from_utf8_lossy(&pair[1]).into(),
            words: words.to_vec(),
        })
    };
    items.chunks_exact(2).filter_map(region).collect()
}

/// A region on all ranks.
struct Line {
    name: String,
    place: String,
    /// By rank.
    ranks: Vec<Vec<u64>>,
}

impl Line {
    fn of(&self, rank: usize, count: Count) -> u64 {
        self.ranks[rank].get(count as usize).copied().unwrap_or(0)
    }
    fn sum(&self, count: Count) -> u64 {
        (0..self.ranks.len()).map(|rank| self.of(rank, count)).sum()
    }
    /// Seconds, of the mean rank.
    fn seconds(&self, count: Count) -> f64 {
        self.sum(count) as f64 / self.ranks.len().max(1) as f64 / 1e9
    }
}

/// All ranks' counters, by region; the longest first.
pub struct Report {
    lines: Vec<Line>,
    hosts: Vec<String>,
    threads: usize,
}

impl Report {
    /// Puts together what ranks counted. `symbols`: of rank 0's program, which are all ranks'.
    pub fn new(ranks: &[(usize, Vec<Region>)], launch: &Launch, symbols: Option<&mut Symbols>) -> Self {
        let size = launch.hosts.len();
        let mut lines: BTreeMap<u64, Line> = BTreeMap::new();
        for (rank, regions) in ranks.iter().filter(|(rank, _)| *rank < size) {
            for region in regions {
                let line = lines.entry(region.function).or_insert_with(|| Line {
                    name: String::new(),
                    place: where_it_is(&region.place),
                    ranks: vec![Vec::new(); size],
                });
                line.ranks[*rank] = region.words.clone();
            }
        }
        let mut symbols = symbols;
        for (function, line) in &mut lines {
            let named = symbols.as_mut().and_then(|symbols| symbols.name(*function));
            line.name = match (function, named) {
                (0, _) => "all others".into(),
                // where debugging information says it
                (_, Some(name)) if name.contains(" at ") || line.place.is_empty() => name,
                (_, Some(name)) => format!("{name} at {}", line.place),
                (function, None) if line.place.is_empty() => format!("{function:#x}"),
                (_, None) => line.place.clone(),
            };
        }
        // what is counted before the first region begins is serial code's waiting
        let mut lines: Vec<Line> = lines.into_values().filter(|line| line.sum(Count::Regions) > 0).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.sum(Count::Whole) + line.sum(Count::Beginning)));
        Self { lines, hosts: launch.hosts.clone(), threads: launch.threads }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let rank = |words: &Vec<u64>| -> Value {
            NAMES.iter().zip(words).map(|(name, word)| ((*name).to_owned(), json!(word))).collect()
        };
        let line = |line: &Line| json!({ "region": line.name, "place": line.place, "ranks": line.ranks.iter().map(rank).collect::<Vec<_>>() });
        json!({
            "hosts": self.hosts,
            "threads_per_rank": self.threads,
            "regions": self.lines.iter().map(line).collect::<Vec<_>>(),
        })
    }

    /// Writes JSON to a file.
    ///
    /// # Errors
    /// In words.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        std::fs::write(path, format!("{:#}\n", self.json()))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// For people: seconds of the mean rank, counts and bytes of all ranks together.
    pub fn text(&self) -> String {
        let mut hosts = self.hosts.clone();
        hosts.sort();
        hosts.dedup();
        let mut text = format!(
            "polyrail omp: {} ranks of {} threads on {}\n",
            self.hosts.len(),
            self.threads,
            hosts.join(", ")
        );
        if self.lines.is_empty() {
            return text + "no parallel regions were shared with other ranks\n";
        }
        text += "    times  seconds  compute    begin     find   encode     wait transfer    apply    locks  sent MB  syncs  region\n";
        let spent: Vec<Spent> = self.lines.iter().map(|line| Spent::of(line, self.threads)).collect();
        for (line, spent) in self.lines.iter().zip(&spent) {
            let _ =
                write!(text, "{:>9} {:>8.3} {:>8.3}", line.of(0, Count::Regions), spent.whole, spent.compute);
            for seconds in spent.on {
                let _ = write!(text, " {seconds:>8.3}");
            }
            let (megabytes, syncs) = (line.sum(Count::BytesOut) as f64 / 1e6, line.of(0, Count::Exchanges));
            let _ = writeln!(text, " {megabytes:>8.1} {syncs:>6}  {}", line.name);
        }
        let saved = self.lines.iter().map(|line| line.sum(Count::BytesSaved)).sum::<u64>() as f64 / 1e6;
        if saved > 0.0 {
            let _ = writeln!(text, "  compression made it {saved:.1} MB less");
        }
        let all = |count| self.lines.iter().map(|line| line.sum(count)).sum::<u64>();
        if all(Count::Checkpoints) > 0 {
            let (seconds, megabytes) =
                (all(Count::CheckpointTime) as f64 / 1e9, all(Count::CheckpointBytes) as f64 / 1e6);
            let _ = writeln!(
                text,
                "  {} checkpoints of {megabytes:.1} MB together, for which the program waited {seconds:.3} s",
                all(Count::Checkpoints)
            );
        }
        for (line, spent) in self.lines.iter().zip(&spent) {
            text += &spent.hint(&line.name, self.hosts.len(), self.threads).unwrap_or_default();
        }
        text
    }
}

/// What a region's time may go to besides its own work, and what to try if most of it does.
const ON: [(&str, &str); 7] = [
    ("begin", "serial code wrote much that regions then need: write it in a parallel region, or less of it"),
    (
        "find",
        "much memory is looked through for changes at each synchronisation: fewer barriers (nowait), fewer and longer regions",
    ),
    (
        "encode",
        "it writes much for what it computes: temporaries as private variables, fewer barriers (nowait)",
    ),
    (
        "wait",
        "ranks come to barriers at different times: another schedule, fewer barriers (nowait), hosts that are alike",
    ),
    (
        "transfer",
        "the network carries each written byte to every rank: fewer ranks, temporaries as private variables, a faster network",
    ),
    ("apply", "every rank takes over what all others wrote: fewer ranks, temporaries as private variables"),
    (
        "locks",
        "threads ask rank 0 each time: reductions instead of critical sections and atomics, larger chunks",
    ),
];
/// Regions that cost less than so many seconds are not worth a word.
const WORTH: f64 = 0.01;

/// Seconds of the mean rank.
struct Spent {
    whole: f64,
    compute: f64,
    /// In the order of [`ON`].
    on: [f64; ON.len()],
}

impl Spent {
    fn of(line: &Line, threads: usize) -> Self {
        let time = |count| line.seconds(count);
        let locks = time(Count::TokenTime) + time(Count::AtomicTime) + time(Count::ChunkTime);
        let exchanges = [Count::Finding, Count::Encoding, Count::Exchanging, Count::Applying].map(time);
        let [find, encode, exchanging, apply] = exchanges;
        // threads wait for tasks at the same time
        let tasks = time(Count::TaskTime) / threads as f64;
        let wait = time(Count::Waiting);
        let begin = line.of(0, Count::Beginning) as f64 / 1e9;
        // a region's begin is counted with its finding, encoding and so on, too, but is not part of its time
        let compute =
            time(Count::Whole) - (exchanges.iter().sum::<f64>() - begin) - tasks - locks / threads as f64;
        Self {
            whole: time(Count::Whole) + begin,
            compute: compute.max(0.0),
            on: [begin, find, encode, wait + tasks, (exchanging - wait).max(0.0), apply, locks],
        }
    }
    /// What to try if one rank alone would have been faster.
    fn hint(&self, name: &str, ranks: usize, threads: usize) -> Option<String> {
        let alone = self.compute * ranks as f64;
        if self.whole <= alone.max(WORTH) || ranks < 2 {
            return None;
        }
        let mut on = self.on;
        // threads wait for locks at the same time
        on[ON.len() - 1] /= threads as f64;
        // the begin's own finding, encoding and so on are in the others, too
        let most = if on[0] > (self.whole - self.compute) / 2.0 {
            0
        } else {
            (1..ON.len()).max_by(|a, b| on[*a].total_cmp(&on[*b]))?
        };
        let ((what, hint), whole) = (ON[most], self.whole);
        Some(format!(
            "  {name}: {whole:.3} s, at most about {alone:.3} s on one rank alone. Most is {what}: {hint}\n"
        ))
    }
}

/// LLVM's `;file;function;line;column;;` as `file:line`.
fn where_it_is(place: &str) -> String {
    match *place.split(';').collect::<Vec<_>>() {
        [_, file, _, line, ..] if file != "unknown" && !file.is_empty() => {
            format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(function: u64, whole: u64) -> Region {
        let mut words = vec![0; 24];
        (words[Count::Regions as usize], words[Count::Whole as usize]) = (3, whole);
        (words[Count::Exchanging as usize], words[Count::Waiting as usize]) = (whole / 2, whole / 4);
        words[Count::BytesOut as usize] = 5_000_000;
        Region { function, place: ";/a/b.c;main;12;1;;".into(), words }
    }

    fn launch() -> Launch {
        let bytes = Launch {
            program: "/a".into(),
            words: vec![],
            directory: "/".into(),
            environment: vec![],
            runtime: "/r".into(),
            stand_ins: "/s".into(),
            stack: 0,
            threads: 2,
            settings: 0,
            watchdog: 0,
            chance: [0; 2],
            hosts: vec!["a".into(), "b".into()],
            host_of: vec![0, 1],
        };
        Launch::read(&bytes.bytes()).unwrap()
    }

    #[test]
    fn counters_come_back() {
        let regions = [region(0x1234, 5), region(0, 6)];
        assert_eq!(from_bytes(&to_bytes(&regions)), regions);
        assert_eq!(from_bytes(b"xyz"), []);
        assert_eq!(from_bytes(&pack([&b""[..], b""])), []);
    }

    #[test]
    fn the_longest_region_comes_first_and_times_are_of_the_mean_rank() {
        let second = 1_000_000_000;
        let ranks = [
            (0, vec![region(0x10, second), region(0x20, 4 * second)]),
            (1, vec![region(0x20, 2 * second)]),
            (7, vec![region(0x30, second)]),
        ];
        let report = Report::new(&ranks, &launch(), None);
        let text = report.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "polyrail omp: 2 ranks of 2 threads on a, b");
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(words[..3], ["3", "3.000", "1.500"], "{text}");
        assert!(lines[2].ends_with("  b.c:12") && lines.len() == 4, "{text}");
        assert!(lines[2].contains(" 10.0 "), "bytes are all ranks': {text}");
        let json = report.json();
        assert_eq!(json["regions"][0]["ranks"][1]["whole_ns"], 2 * second);
        assert_eq!(json["threads_per_rank"], 2);
    }

    #[test]
    fn a_region_that_costs_more_than_it_gains_gets_a_hint() {
        let spent = |whole, compute, begin, transfer| Spent {
            whole,
            compute,
            on: [begin, 0.1, 0.0, 0.1, transfer, 0.2, 0.0],
        };
        assert_eq!(spent(3.0, 2.0, 0.0, 0.6).hint("f", 2, 1), None, "4 s on one rank");
        assert_eq!(spent(0.009, 0.0, 0.0, 0.0).hint("f", 2, 1), None, "not worth a word");
        let hint = spent(5.0, 2.0, 1.0, 2.6).hint("f at a.c:3", 2, 1).unwrap();
        assert!(
            hint.starts_with(
                "  f at a.c:3: 5.000 s, at most about 4.000 s on one rank alone. Most is transfer: "
            ),
            "{hint}"
        );
        let hint = spent(5.0, 2.0, 2.0, 2.6).hint("f", 2, 1).unwrap();
        assert!(hint.contains("Most is begin"), "{hint}");
        let locks = Spent { whole: 5.0, compute: 0.5, on: [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 6.0] };
        assert!(locks.hint("f", 4, 2).unwrap().contains("Most is locks"));
        assert!(locks.hint("f", 4, 8).unwrap().contains("Most is wait"));
    }

    #[test]
    fn where_a_region_is() {
        assert_eq!(where_it_is(";x.c;f;3;4;;"), "x.c:3");
        assert_eq!(where_it_is(";unknown;unknown;0;0;;"), "");
        assert_eq!(where_it_is(""), "");
    }
}
