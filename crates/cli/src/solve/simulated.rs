//! The same on a simulated network: how long it would take, and what of the processors it would use.

use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;

use polyrail_p2p::view::MEMBERS;
use polyrail_p2p::{Job, Peers, Scheme};
use polyrail_simulate::{Line, Model, Simulated, run};
use polyrail_solve::certify::{Certificate, certificate, trajectory};
use polyrail_solve::run::{self as solve, POINTS, Progress, Share, Task};
use polyrail_solve::sweep::Method;
use serde::Serialize;

use super::{Error, Obstacle, Plan, checked, every, planned, told};
use crate::output;

/// The slowest line, in bytes per second, the slowest host, and the longest way: what is slower takes more time than is counted.
const SLOWEST: (u64, f64, Duration) = (1000, 1e-3, Duration::from_secs(3600));

/// Networks that have a name, and how fast hosts on them compute: name, bytes per second, latency in microseconds, nanoseconds a point.
const NETWORKS: [(&str, f64, u64, f64); 4] = [
    // the cluster of P2PSAP's measurements (Tembo, Nguyen, El Baz, PDP 2013), whose hosts take some 14 ns a point
    ("infiniband-2013", 1.5e9, 2, 14.2),
    ("ethernet-2013", 1.18e8, 50, 14.2),
    ("10g", 1.18e9, 20, 1.5),
    ("100g", 1.2e10, 5, 1.5),
];

/// A simulated network, as it was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    text: String,
    line: Line,
    unit: f64,
    sites: usize,
    far: Line,
    slow: Option<(usize, f64)>,
    jitter: f64,
}

impl FromStr for Network {
    type Err = String;

    /// `ethernet-2013`, and what is different: `,sites=2,delay=20ms,rate=125M,loss=1%,slow=1:0.5,jitter=20%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default();
        let known = NETWORKS.iter().find(|(known, ..)| *known == name);
        let &(_, rate, latency, unit) = known.ok_or_else(|| {
            let names: Vec<&str> = NETWORKS.iter().map(|(name, ..)| *name).collect();
            format!("{name:?} is no network that is known: {}", names.join(", "))
        })?;
        let line = Line { rate, latency: Duration::from_micros(latency), loss: 0.0 };
        let far = Line { rate: 1.18e8, latency: Duration::from_millis(5), loss: 0.0 };
        let mut network =
            Self { text: text.into(), line, unit: unit * 1e-9, sites: 1, far, slow: None, jitter: 0.0 };
        let mut loss = 0.0;
        for word in words {
            let no = |why: &str| format!("{word:?}: {why}");
            let (key, value) =
                word.split_once('=').ok_or_else(|| no("sites=, delay=, rate=, loss=, slow= or jitter="))?;
            let share = |value: &str| {
                let percent = value.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
                percent.filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| percent / 100.0)
            };
            match key {
                "sites" => {
                    network.sites = value
                        .parse()
                        .ok()
                        .filter(|sites| (1..=64).contains(sites))
                        .ok_or_else(|| no("1 to 64 sites"))?;
                }
                "delay" => {
                    network.far.latency = humantime::parse_duration(value)
                        .ok()
                        .filter(|delay| *delay <= SLOWEST.2)
                        .ok_or_else(|| no("a time of an hour or less, as in 20ms"))?
                }
                "rate" => {
                    network.far.rate = crate::units::size(value)
                        .ok()
                        .filter(|rate| *rate >= SLOWEST.0)
                        .ok_or_else(|| no("bytes per second, as in 125M"))?
                        as f64
                }
                "loss" => {
                    loss = share(value)
                        .filter(|loss| *loss < 0.9)
                        .ok_or_else(|| no("a share less than 90%, as in 1%"))?
                }
                "jitter" => network.jitter = share(value).ok_or_else(|| no("a share, as in 20%"))?,
                "slow" => {
                    let of = value.split_once(':').and_then(|(count, speed)| {
                        Some((
                            count.parse().ok()?,
                            speed.parse::<f64>().ok().filter(|speed| *speed >= SLOWEST.1 && *speed <= 1.0)?,
                        ))
                    });
                    network.slow = Some(of.ok_or_else(|| no("how many and how fast, as in 1:0.5"))?);
                }
                _ => return Err(no("sites=, delay=, rate=, loss=, slow= or jitter=")),
            }
        }
        // it is where the way is longest
        if network.sites > 1 {
            network.far.loss = loss
        } else {
            network.line.loss = loss
        }
        Ok(network)
    }
}

impl Network {
    fn model(&self, members: usize, scale: f64) -> Model {
        let mut model = Model::alike(members, self.line, self.unit * scale.powi(3));
        model.sites = (0..members).map(|member| (member * self.sites / members) as u32).collect();
        model.far = self.far;
        if self.sites > 1 {
            model.recovery = model.recovery.max(self.far.latency * 3);
        }
        model.jitter = self.jitter;
        model.scale = scale * scale;
        if let Some((count, speed)) = self.slow {
            // those in the middle: who waits for one there waits on both sides
            let begin = (members / 2).saturating_sub(count / 2);
            model.speeds.iter_mut().skip(begin).take(count).for_each(|one| *one = speed);
        }
        model
    }

    /// What its name means, for so many members.
    fn means(&self, members: usize, pieces: [usize; 3]) -> Means {
        let model = self.model(members, 1.0);
        let (count, speed) = self.slow.unwrap_or((0, 1.0));
        let first = model.speeds.iter().position(|one| *one < 1.0).unwrap_or(0);
        Means {
            rate: self.line.rate,
            latency: self.line.latency.as_secs_f64(),
            overhead: model.overhead.as_secs_f64(),
            unit: self.unit,
            sites: self.sites,
            far_rate: self.far.rate,
            far_latency: self.far.latency.as_secs_f64(),
            slow: (first, count, speed),
            pieces,
        }
    }
}

/// What came of it, also as JSON.
#[derive(Serialize)]
struct Told {
    version: u32,
    task: Task,
    scheme: String,
    network: String,
    /// Points in each direction of what is stood for.
    stands_for: usize,
    peers: usize,
    wanted: f64,
    certificate: Certificate,
    /// Simulated, of the last that ended.
    seconds: f64,
    /// Of one process with the same method.
    alone: f64,
    /// The one over the other, by process.
    efficiency: f64,
    iterations: [u64; 2],
    iterations_alone: u64,
    /// The share of the time that they waited, in the mean.
    waited: f64,
    model: Means,
}

/// What the network's name means: rates in bytes per second, times in seconds.
#[derive(Serialize)]
struct Means {
    rate: f64,
    latency: f64,
    /// Of a message, at either side.
    overhead: f64,
    /// Of a point.
    unit: f64,
    sites: usize,
    far_rate: f64,
    far_latency: f64,
    /// The first of those that are slow, how many they are, and how fast.
    slow: (usize, usize, f64),
    /// In each direction.
    pieces: [usize; 3],
}

/// Runs it, and tells of it.
pub fn main(args: &Obstacle, network: &Network) -> Result<(), Error> {
    checked(args)?;
    let peers = args.peers.unwrap_or(8);
    if !(1..=MEMBERS).contains(&peers) {
        return Err(Error::Use(format!("-n {peers} is not possible: 1 to {MEMBERS} processes")));
    }
    let stands_for = args.stands_for.unwrap_or(args.points);
    if !(1..=POINTS).contains(&stands_for) {
        return Err(Error::Use(format!("--as {stands_for} is not possible: 1 to {POINTS} points")));
    }
    let Plan { task, bound, tolerance, parts } = planned(args, peers)?;
    let problem = task.problem;
    if task.method == Method::Multigrid {
        return Err(Error::Use(
            "what multigrid computes on its coarser grids is not counted: richardson and psor are simulated"
                .into(),
        ));
    }
    let scale = (stands_for + 1) as f64 / (args.points + 1) as f64;
    let one = |network: &Network, peers: usize, parts: u32, scheme: Scheme| {
        let job = Job { parts, scheme, tolerance, every: every(&task), keep: 0, task: task.to_bytes() };
        let ended = run(&network.model(peers, scale), &job, |peers| share(peers?))
            .map_err(|why| Error::Use(why.to_string()))?;
        ended.into_iter().map(|(when, ended)| Ok((when, ended?))).collect::<Result<Vec<_>, Error>>()
    };
    let ended = one(network, peers, parts, args.scheme)?;
    // what is compared with has nothing in its way
    let free = Network { slow: None, jitter: 0.0, ..network.clone() };
    let alone = one(&free, 1, 1, Scheme::Synchronous)?;
    let last =
        |ended: &[(Duration, Ended)]| ended.iter().map(|(when, _)| when.as_secs_f64()).fold(0.0, f64::max);
    let iterations = || ended.iter().map(|(_, ended)| ended.progress.iterations);
    let seconds = last(&ended);
    let told = Told {
        version: 1,
        task,
        scheme: told::scheme_name(args.scheme),
        network: network.text.clone(),
        stands_for,
        peers,
        wanted: bound,
        certificate: match problem.dt {
            Some(_) => *trajectory(&problem, &ended[0].1.norms).last().expect("a step at least"),
            None => certificate(&problem, ended[0].1.norms[0]),
        },
        seconds,
        alone: last(&alone),
        efficiency: last(&alone) / seconds / peers as f64,
        iterations: [iterations().min().unwrap_or(0), iterations().max().unwrap_or(0)],
        iterations_alone: alone[0].1.progress.iterations,
        waited: ended.iter().map(|(_, ended)| ended.progress.waited).sum::<f64>() / seconds / peers as f64,
        model: network.means(peers, task.divide(parts)?.pieces()),
    };
    if args.json {
        output::print_line(&serde_json::to_string(&told).expect("numbers and names"));
    } else {
        output::print(&summary(&told));
    }
    Ok(())
}

struct Ended {
    progress: Progress,
    /// Of all time steps: the same of all.
    norms: Vec<f64>,
}

fn share(mut peers: Peers<Simulated>) -> Result<Ended, solve::Error> {
    let mut share = Share::new(&peers)?;
    let outcome = share.compute(&mut peers)?;
    peers.leave(Duration::from_secs(1));
    // each holds a part, and so each has an outcome
    outcome
        .map(|outcome| Ended { progress: outcome.progress, norms: outcome.norms })
        .ok_or(solve::Error::Alone)
}

fn summary(told: &Told) -> String {
    let Told { stands_for, seconds, alone, iterations: [least, most], .. } = told;
    let mut text = told::heading(&told.task, &told.scheme) + "\n";
    let _ = writeln!(
        text,
        "simulated: {} processes on {}, as if it were {stands_for} x {stands_for} x {stands_for} points",
        told.peers, told.network
    );
    let _ = writeln!(
        text,
        "{seconds:.3} s, and {alone:.3} s of one alone: {:.1} times as fast, {:.0} % of what so many could be",
        alone / seconds,
        told.efficiency * 100.0
    );
    let _ = writeln!(
        text,
        "{least} to {most} iterations ({} of one alone), {:.0} % of the time waiting",
        told.iterations_alone,
        told.waited * 100.0
    );
    text + &told::proven(&told.task, told.certificate.bound, told.wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_bad_ones_told_of() {
        let plain: Network = "ethernet-2013".parse().unwrap();
        assert_eq!((plain.sites, plain.line.loss, plain.slow), (1, 0.0, None));
        let far: Network = "10g,sites=2,delay=20ms,rate=125M,loss=10%,slow=1:0.5,jitter=20%".parse().unwrap();
        assert_eq!((far.sites, far.far.loss, far.line.loss, far.slow), (2, 0.1, 0.0, Some((1, 0.5))));
        let model = far.model(8, 2.0);
        assert_eq!(model.sites, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(model.speeds.iter().filter(|speed| **speed < 1.0).count(), 1);
        for (bad, told) in [
            ("token-ring", "ethernet-2013"),
            ("10g,sites=0", "1 to 64"),
            ("10g,loss=95%", "less than 90%"),
            ("10g,slow=2", "1:0.5"),
            ("10g,slow=1:0", "1:0.5"),
            ("10g,delay=x", "delay=x"),
            ("10g,rate=0", "125M"),
            ("10g,delay=2years", "an hour"),
            ("10g,speed", "sites="),
            ("10g,speed=1", "sites="),
        ] {
            let why = bad.parse::<Network>().unwrap_err();
            assert!(why.contains(told), "{bad}: {why}");
        }
    }
}
