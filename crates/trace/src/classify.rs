//! What kind of program it is on the network: how often it sends, how much at a time, and how much at the same time.
//!
//! The bounds are those of the classification of the NAS benchmarks for message passing over the wide area (2009):
//!
//! | | | | |
//! |---|---|---|---|
//! | frequency | rare: gaps over 1 s (FT, IS) | medium: 0.1 to 1 s (BT, SP) | frequent: under 0.1 s (CG, MG, LU) |
//! | size | small: under 1 kB (LU) | medium: 1 to 200 kB (BT, SP, CG, MG) | large: over 200 kB (FT, IS) |
//! | synchrony | low (BT, SP, LU) | medium (CG, MG) | high (FT, IS) |
//!
//! - **Frequency** is the class of the gap that parts the time between messages in two halves, spent in shorter and in longer ones. (Counting gaps instead would judge by
//!   the headers and questions of a protocol that precede each large message.)
//! - **Size** is the class of the message that parts the cost in two halves, where a message costs 12.5 kB and its own bytes ([`HALF`]): many
//!   small ones outweigh a few large ones and the other way round.
//! - **Synchrony** looks at what is sent at the same time as a message: about as long as the gap in which connections spend their time, by most
//!   pairs of processes (high: all to all); or in half of it by most processes, each to few (medium: exchanges, reductions); or only by some (low:
//!   pipelines, everybody at his own pace)? *Most* is four fifths of the pairs, three quarters of the processes. Among four processes
//!   neighbours are nearly everybody, and with fewer processors than processes the scheduler groups what would be apart: BT and SP then look medium.

mod suggest;

pub use suggest::{Suggestion, suggest};

use crate::analysis::Analysis;
use crate::analysis::connections::Connection;
use crate::analysis::messages::{GAP_BOUNDS, HALF, Pattern, SIZE_BOUNDS};
use crate::analysis::synchrony::Concurrency;
use crate::model::Run;
use serde::Serialize;

/// What share of the processes is most.
const MOST: f64 = 0.75;
/// And of the pairs.
const MOST_PAIRS: f64 = 0.8;
/// Fewer messages than this say nothing about synchrony.
const FEW: f64 = 20.0;

/// How often messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Frequency {
    /// Under 0.1 s apart.
    Frequent,
    /// 0.1 to 1 s apart.
    Medium,
    /// Over 1 s apart.
    Rare,
}

/// How large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Under 1 kB.
    Small,
    /// 1 to 200 kB.
    Medium,
    /// Over 200 kB.
    Large,
}

/// How many processes send at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Some.
    Low,
    /// Most, each to few.
    Medium,
    /// Most, to most.
    High,
}

/// The classes, and the figures behind them. `None`: too little to say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Classes {
    /// How often.
    pub frequency: Option<Frequency>,
    /// How much.
    pub size: Option<Size>,
    /// How many at the same time.
    pub synchrony: Option<Level>,
    /// Messages counted.
    pub messages: u64,
    /// Half the time between messages is spent in gaps over so many ns: what decides the frequency.
    pub gap_by_time: Option<u64>,
    /// Half the cost is that of messages over so many bytes: what decides the size.
    pub size_by_cost: Option<u64>,
    /// Median and 90th percentile of the gaps in ns.
    pub gap: Option<(u64, u64)>,
    /// Median and 90th percentile of the sizes in bytes.
    pub bytes: Option<(u64, u64)>,
    /// Share of the time between messages in rare, medium and frequent gaps: under 0.1 s, 0.1 to 1 s, over 1 s.
    pub time_by_gap: [f64; 3],
    /// Share of the cost in small, medium and large messages.
    pub cost_by_size: [f64; 3],
    /// In the moment of a message: share of all processes that send, and of all pairs.
    pub together: Option<(f64, f64)>,
}

/// Of three shares the one that holds the middle, where there is anything.
fn middle(shares: [f64; 3]) -> Option<usize> {
    let sums = [shares[0], shares[0] + shares[1], 1.0];
    (shares.iter().sum::<f64>() > 0.0).then(|| (0..2).find(|&class| sums[class] >= 0.5).unwrap_or(2))
}

/// A figure that is as exact as a histogram, held to the class that it is known to be of.
fn held(figure: Option<u64>, class: Option<usize>, [first, last]: [u64; 2]) -> Option<u64> {
    let range = [(0, first - 1), (first, last), (last + 1, u64::MAX)];
    figure.zip(class).map(|(figure, class)| figure.clamp(range[class].0, range[class].1))
}

fn parts(amounts: [f64; 3]) -> [f64; 3] {
    let whole: f64 = amounts.iter().sum();
    amounts.map(|amount| if whole > 0.0 { amount / whole } else { 0.0 })
}

fn classes(pattern: &Pattern, concurrency: Concurrency, processes: usize) -> Classes {
    let time_by_gap = parts(pattern.by_gap.map(|share| share.total as f64));
    let cost_by_size = parts(pattern.costs());
    let n = processes as f64;
    let together = (processes > 1 && concurrency.messages >= FEW).then(|| {
        let part = |sum: f64, of: f64| (sum / concurrency.messages / of).min(1.0);
        (part(concurrency.senders, n), part(concurrency.pairs, n * (n - 1.0)))
    });
    let both = |histogram: &crate::analysis::histogram::Histogram| {
        histogram.quantile(0.5).zip(histogram.quantile(0.9))
    };
    let (frequency, size) = (middle(time_by_gap), middle(cost_by_size));
    Classes {
        frequency: frequency.map(|class| [Frequency::Frequent, Frequency::Medium, Frequency::Rare][class]),
        size: size.map(|class| [Size::Small, Size::Medium, Size::Large][class]),
        synchrony: together.map(|(senders, pairs)| match () {
            () if pairs >= MOST_PAIRS => Level::High,
            () if senders >= MOST => Level::Medium,
            () => Level::Low,
        }),
        messages: pattern.sizes.count(),
        gap_by_time: held(pattern.gaps.weighted_quantile(0.5), frequency, GAP_BOUNDS),
        size_by_cost: held(
            pattern.sizes.quantile_by(0.5, |bytes| HALF as f64 + bytes as f64),
            size,
            SIZE_BOUNDS,
        ),
        gap: both(&pattern.gaps),
        bytes: both(&pattern.sizes),
        time_by_gap,
        cost_by_size,
        together,
    }
}

/// The program as a whole, by the connections that carry nearly all of its communication.
pub fn whole(analysis: &Analysis) -> Classes {
    classes(&analysis.main, analysis.synchrony.1, analysis.senders)
}

/// The point-to-point messages of an MPI program, as it sees them itself; of their synchrony nothing is said.
pub fn mpi(analysis: &Analysis) -> Option<Classes> {
    let any = analysis.mpi.sizes.count() > 0;
    any.then(|| classes(&analysis.mpi, Concurrency::default(), 0))
}

/// The program by its own messages, where MPI's calls tell most of what it sends: what they say is a message is one, while on a stream the
/// library's headers and pieces count as well. Who sends at the same time is known from the whole.
pub fn own(run: &Run, analysis: &Analysis, whole: &Classes) -> Option<Classes> {
    // what its ranks send each other: not what they read of a server, and not what they tell themselves, which takes no socket
    let rank = |node: u32| run.processes.get(node as usize).is_some_and(|process| process.mpi.is_some());
    let cells = analysis.links.cells.iter().filter(|(from, to, _)| from != to && rank(*from) && rank(*to));
    let (told, seen) = cells.fold((0u64, 0u64), |(told, seen), (.., cell)| {
        (told.saturating_add(cell.mpi_bytes), seen.saturating_add(cell.bytes))
    });
    let mut own = mpi(analysis).filter(|_| told >= seen / 2)?;
    (own.synchrony, own.together) = (whole.synchrony, whole.together);
    Some(own)
}

/// One connection, both directions.
pub fn connection(analysis: &Analysis, connection: &Connection) -> Classes {
    between(analysis, connection, &[connection])
}

/// All connections of a pair of nodes, as one; the first tells which pair it is.
pub fn between(analysis: &Analysis, connection: &Connection, all: &[&Connection]) -> Classes {
    let mut pattern = Pattern::default();
    for one in all {
        pattern.merge(&one.there.flow.pattern);
        pattern.merge(&one.back.flow.pattern);
    }
    let mut concurrency = Concurrency::default();
    if let (a, Some(b)) = connection.nodes {
        for (from, to) in [(a, b), (b, a)] {
            analysis.concurrency(from, to).inspect(|known| concurrency.merge(*known));
        }
    }
    classes(&pattern, concurrency, analysis.senders)
}

impl Analysis {
    /// What was sent at the same time as the messages from one node to another.
    pub fn concurrency(&self, from: u32, to: u32) -> Option<Concurrency> {
        self.by_link.get(self.links.position(from, to)?).copied()
    }
}

impl Classes {
    /// The benchmarks of the original classification that agree in most of the three classes, and in how many.
    pub fn like(&self) -> Option<(&'static str, usize)> {
        use {Frequency as F, Level as L, Size as S};
        let known = [
            ("FT and IS", F::Rare, S::Large, L::High),
            ("BT and SP", F::Medium, S::Medium, L::Low),
            ("CG and MG", F::Frequent, S::Medium, L::Medium),
            ("LU", F::Frequent, S::Small, L::Low),
        ];
        let agree = |&(name, frequency, size, synchrony): &(&'static str, F, S, L)| {
            let agreeing = usize::from(self.frequency == Some(frequency))
                + usize::from(self.size == Some(size))
                + usize::from(self.synchrony == Some(synchrony));
            (name, agreeing)
        };
        known
            .iter()
            .map(agree)
            .rev()
            .max_by_key(|(_, agreeing)| *agreeing)
            .filter(|(_, agreeing)| *agreeing > 1)
    }
}

impl std::fmt::Display for Frequency {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.pad(match self {
            Frequency::Frequent => "frequent",
            Frequency::Medium => "medium",
            Frequency::Rare => "rare",
        })
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.pad(match self {
            Size::Small => "small",
            Size::Medium => "medium",
            Size::Large => "large",
        })
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.pad(match self {
            Level::Low => "low",
            Level::Medium => "medium",
            Level::High => "high",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(messages: &[(u64, u64)], gaps: &[(u64, u64)]) -> Pattern {
        let mut pattern = Pattern::default();
        messages.iter().for_each(|&(bytes, times)| (0..times).for_each(|_| pattern.message(bytes)));
        gaps.iter().for_each(|&(ns, times)| (0..times).for_each(|_| pattern.gap(ns)));
        pattern
    }

    fn at_once(messages: f64, senders: f64, pairs: f64) -> Concurrency {
        Concurrency { messages, senders: senders * messages, pairs: pairs * messages }
    }

    #[test]
    fn an_all_to_all_with_questions_before_each_block_is_rare_and_large() {
        let ft = pattern(&[(64, 40), (1 << 20, 20)], &[(200_000, 40), (2_000_000_000, 19)]);
        let classes = classes(&ft, at_once(60.0, 4.0, 12.0), 4);
        assert_eq!(
            (classes.frequency, classes.size, classes.synchrony),
            (Some(Frequency::Rare), Some(Size::Large), Some(Level::High))
        );
        assert_eq!(classes.like(), Some(("FT and IS", 3)));
        assert!(classes.bytes.unwrap().0 < 72, "the questions are most of the messages");
    }

    #[test]
    fn a_wavefront_with_some_large_faces_is_frequent_and_small() {
        let lu = pattern(&[(800, 6000), (150_000, 100)], &[(400_000, 6000), (150_000_000, 3)]);
        let classes = classes(&lu, at_once(6100.0, 2.0, 3.0), 4);
        assert_eq!(
            (classes.frequency, classes.size, classes.synchrony),
            (Some(Frequency::Frequent), Some(Size::Small), Some(Level::Low))
        );
        assert_eq!(classes.like(), Some(("LU", 3)));
    }

    #[test]
    fn exchanges_are_medium() {
        let cg = pattern(&[(56_000, 1000), (8, 500)], &[(3_000_000, 1499)]);
        let classes = classes(&cg, at_once(1500.0, 3.6, 5.0), 4);
        assert_eq!((classes.size, classes.synchrony), (Some(Size::Medium), Some(Level::Medium)));
        assert_eq!(classes.like(), Some(("CG and MG", 3)));
    }

    #[test]
    fn the_figure_that_is_shown_is_the_one_that_decides() {
        // few messages carry the bytes, and few gaps the time
        let bulk = pattern(&[(16, 50), (1000, 200), (8_910_000, 9)], &[(1_000, 250), (1_020_000_000, 3)]);
        let classes = classes(&bulk, Concurrency::default(), 2);
        assert_eq!((classes.size, classes.frequency), (Some(Size::Large), Some(Frequency::Rare)));
        assert!(classes.size_by_cost.unwrap() > 8_000_000 && classes.gap_by_time.unwrap() > 1_000_000_000);
        assert_eq!(classes.bytes.unwrap().0 / 100, 9, "most of them are others");
        // what a histogram does not tell apart, the class does
        let edge =
            super::classes(&pattern(&[(999, 10), (1000, 90), (1005, 1)], &[]), Concurrency::default(), 2);
        assert_eq!((edge.size, edge.size_by_cost), (Some(Size::Medium), Some(1000)));
    }

    #[test]
    fn nothing_is_said_about_nothing() {
        let classes = classes(&Pattern::default(), Concurrency::default(), 0);
        assert_eq!((classes.frequency, classes.size, classes.synchrony), (None, None, None));
        assert_eq!(classes.like(), None);
    }
}
