//! What joins hosts, and how fast they are.

use std::time::Duration;

/// What joins hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Bytes per second: of each host's card, each way, or of the line between two sites, each way.
    pub rate: f64,
    /// From one to the other.
    pub latency: Duration,
    /// Of messages, the share that is lost: it comes later by [`Model::recovery`], a value only if it is the newest still.
    pub loss: f64,
}

/// Hosts, a member on each, and what joins them.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Within a site.
    pub near: Line,
    /// Between sites; all members of a site share it.
    pub far: Line,
    /// By member, at which site.
    pub sites: Vec<u32>,
    /// By member, how fast it computes: 1, or less.
    pub speeds: Vec<f64>,
    /// Processor time of a message, at either side.
    pub overhead: Duration,
    /// Seconds of a unit of work, at a speed of 1.
    pub unit: f64,
    /// How much longer it takes than that now and then: the mean of an exponential distribution, as a share.
    pub jitter: f64,
    /// Parts' own bytes count as if they were so many times as many: what is computed stands for something larger.
    pub scale: f64,
    /// How much later a lost message comes.
    pub recovery: Duration,
    /// Members that are killed, and when.
    pub killed: Vec<(usize, Duration)>,
    /// How long after that the others see that their connections to it have ended; none: it just says no more.
    pub noticed: Option<Duration>,
    /// Who has not ended by then never will.
    pub most: Duration,
    /// Whether the first member looks on, and is given nothing to do.
    pub looks_on: bool,
    /// Of all chance.
    pub seed: u64,
}

impl Model {
    /// So many members at one site, all alike.
    #[must_use]
    pub fn alike(members: usize, near: Line, unit: f64) -> Self {
        Self {
            near,
            far: near,
            sites: vec![0; members],
            speeds: vec![1.0; members],
            overhead: Duration::from_micros(2),
            unit,
            jitter: 0.0,
            scale: 1.0,
            recovery: Duration::from_millis(1).max(near.latency * 3),
            killed: Vec::new(),
            noticed: None,
            most: Duration::MAX,
            looks_on: false,
            seed: 1,
        }
    }
}
