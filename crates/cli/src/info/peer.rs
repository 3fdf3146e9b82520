//! What would be used for a peer, and why.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use polyrail_core::control::rules::{FAR, HEAVY, LONG_FAT, LOSS, Reason};
use polyrail_core::micro::Composition;
use polyrail_rails::events::Side;
use polyrail_rails::host::host_id;
use polyrail_rails::list::{RailId, Reach};
use polyrail_rails::rail::control::{Cause, Control};
use polyrail_rails::top::{self, Said};
use polyrail_rails::worker::{PathReport, Paths};
use polyrail_rails::{Address, Config, Route, Scheme, discover};
use serde_json::{Value, json};

use crate::bench::{self, Error, Point};

/// What was found out about a peer.
pub struct Found {
    address: Address,
    rail: &'static str,
    why: String,
    /// What was tried before, or could have been better, and why it was not.
    passed_over: Vec<String>,
    route: Route,
    /// Why the peer's memory cannot be reached directly, if it was tried.
    direct_refused: Option<String>,
    /// Whether what travels by the network is encrypted; none where it goes by none.
    encrypted: Option<bool>,
    /// Where lanes would go, and why not elsewhere.
    ways: Paths,
    /// Of each pair, what a running program measures, in bytes per second.
    measured: Vec<Option<u64>>,
    /// How lanes are reliable and fair, or would be, by rail.
    controls: Vec<(RailId, Control)>,
    /// Half round trips of 8 bytes, or why they could not be measured.
    latency: Result<Point, String>,
}

const YES: &str = "yes: one of the two says POLYRAIL_ENCRYPT=yes";
const NO: &str = "no: neither of the two says POLYRAIL_ENCRYPT=yes";

/// Connects to a peer and asks which way its messages take. Bounded by POLYRAIL_CONNECT_TIMEOUT.
///
/// # Errors
/// The peer cannot be reached.
pub fn look(text: &str) -> Result<Found, Error> {
    let config = Config::from_env()?;
    let mut session = bench::connect(text)?;
    let address = *session.address();
    let peer = session.peer();
    let lost = || Error::Lost("the peer was lost before its rail could be told".into());
    let (rail, route) = session.worker().route(peer).ok_or_else(lost)?;
    let ours = host_id()?;
    let passed_over = session.worker().passed_over(peer).to_vec();
    let direct_refused = session.worker().direct_refused(peer).map(str::to_owned);
    let encrypted = session.worker().lanes(peer).first().map(|lane| lane.encrypted);
    let mut ways = session.worker().paths(peer);
    if !ways.pairs.is_empty() {
        let all = discover::interfaces(&config.interfaces)?;
        let left_out = all.into_iter().filter_map(|one| Some((one.name, one.obstacle?.to_string())));
        ways.near_unused.extend(left_out);
    }
    let controls = session.worker().controls(peer);
    let measured = measured(&ways.pairs);
    let why = match rail {
        "loopback" => "it is this process".to_owned(),
        "shm" => "it runs on this host, and shared memory is the fastest rail there".into(),
        _ if !config.rails.reaches(Reach::Host) => "POLYRAIL_RAILS leaves shm out".into(),
        _ if address.host() != ours => "it does not run on this host, as far as its address tells".into(),
        _ if !address.is_local() => "it runs on this host, but does without shared memory".into(),
        _ => "it runs on this host, but shared memory failed".into(),
    };
    let latency = bench::round_trip(&mut session).map_err(|error| error.to_string());
    let found = Found {
        address,
        rail,
        why,
        passed_over,
        route,
        direct_refused,
        encrypted,
        ways,
        measured,
        controls,
        latency,
    };
    Ok(found)
}

/// What programs that are running measure on lanes between these addresses.
fn measured(pairs: &[PathReport]) -> Vec<Option<u64>> {
    if pairs.is_empty() {
        return Vec::new();
    }
    let answers = top::ask(&top::endpoints(false).unwrap_or_default(), Duration::from_millis(300), false);
    let lanes: Vec<&top::Lane> = answers
        .iter()
        .filter_map(|answer| match &answer.said {
            Said::All(snapshot) => Some(snapshot),
            _ => None,
        })
        .flat_map(|snapshot| snapshot.peers.iter().flat_map(|peer| &peer.lanes))
        .filter(|lane| lane.measured)
        .collect();
    let is_of = |lane: &top::Lane, pair: &PathReport| {
        // a lane's address has a port, a pair's has none
        let ip = |side: &Option<Side>| {
            side.as_ref()?.address.parse::<SocketAddr>().ok().map(|at| at.ip().to_string())
        };
        ip(&lane.near).as_ref() == Some(&pair.near.address)
            && ip(&lane.far).as_ref() == Some(&pair.far.address)
    };
    let of = |pair: &PathReport| {
        lanes.iter().filter(|lane| is_of(lane, pair)).filter_map(|lane| lane.rate_bytes_per_s).max()
    };
    pairs.iter().map(of).collect()
}

/// How a lane is reliable and fair, and what would change that.
fn told(control: &Control) -> String {
    match control {
        Control::Kernel(name) => format!("{name}: the kernel's congestion control"),
        Control::Composition(one, why) if *why == Cause::Ours(Reason::Pinned) => {
            format!("{}: {why} (POLYRAIL_COMPOSITION)", one.name())
        }
        Control::Composition(one, why) => format!(
            "{}: {why}; {} from {} lost of a million and {} ms there and back, or {} lost, {} from {} MB under way at a time",
            one.name(),
            Composition::SyncBbr.name(),
            LOSS.enter,
            FAR.enter / 1_000_000,
            HEAVY.enter,
            Composition::SyncIllinois.name(),
            LONG_FAT.enter / 1_000_000,
        ),
    }
}

/// The same for programs.
fn told_json((rail, control): &(RailId, Control)) -> Value {
    match control {
        Control::Kernel(name) => json!({ "rail": rail.name(), "congestion_control": name }),
        Control::Composition(one, why) => {
            json!({ "rail": rail.name(), "composition": one.name(), "why": why.to_string() })
        }
    }
}

fn shown(side: &Side) -> String {
    side.interface.as_ref().map_or(side.address.clone(), |name| format!("{name} {}", side.address))
}

fn unused<'a>(side: &'a str, all: &'a [(String, String)]) -> impl Iterator<Item = Value> + 'a {
    all.iter().map(move |(name, why)| json!({ "side": side, "interface": name, "why": why }))
}

impl Found {
    /// Message sizes, and how messages of these sizes travel.
    fn protocols(&self) -> Vec<(String, String)> {
        let Route { eager_max, fragment, scheme, .. } = self.route;
        let (eager, fragment) = (bench::written(eager_max as u64), bench::written(fragment as u64));
        let large = match scheme {
            Scheme::Get => "rendezvous, RGET: the receiver reads the sender's memory".into(),
            Scheme::Put => "rendezvous, RPUT: the sender writes the receiver's memory".into(),
            Scheme::Fragments => {
                let why = self.direct_refused.as_ref().map_or(String::new(), |why| format!("; {why}"));
                format!("rendezvous, fragments of {fragment} bytes{why}")
            }
        };
        vec![
            (format!("to {eager}"), "eager: at once, with the data".into()),
            (format!("above {eager}"), large),
        ]
    }

    /// For people.
    pub fn text(&self) -> String {
        let sockets: Vec<String> = self.address.sockets().map(|socket| socket.to_string()).collect();
        let mut text = format!("peer       {} ({})\n", sockets.join(", "), self.address.id());
        let _ = writeln!(text, "rail       {}: {}", self.rail, self.why);
        for failure in &self.passed_over {
            let _ = writeln!(text, "tried      {failure}");
        }
        if let Some(encrypted) = self.encrypted {
            let _ = writeln!(text, "encrypted  {}", if encrypted { YES } else { NO });
        }
        for (rail, control) in &self.controls {
            let _ = writeln!(text, "control    {} {}", rail.name(), told(control));
        }
        for (sizes, how) in self.protocols() {
            let _ = writeln!(text, "{sizes:<10} {how}");
        }
        for (at, (pair, measured)) in self.ways.pairs.iter().zip(&self.measured).enumerate() {
            let head = if at == 0 { "lanes" } else { "" };
            let routed = match (pair.down, pair.direct) {
                (true, _) => ", as soon as both are up",
                (false, true) => "",
                (false, false) => ", if a router joins them",
            };
            let claimed = if pair.speed == 0 { "?".to_owned() } else { pair.speed.to_string() };
            let measured = measured.map_or(String::new(), |rate| {
                format!("; a running program measures {:.0}", rate as f64 * 8.0 / 1e6)
            });
            let (near, far) = (shown(&pair.near), shown(&pair.far));
            let _ = writeln!(text, "{head:<10} {near} to {far}{routed}: {claimed} Mb/s claimed{measured}");
        }
        for (side, unused) in [("", &self.ways.near_unused), ("the peer's ", &self.ways.far_unused)] {
            for (name, why) in unused {
                let _ = writeln!(text, "no lane    {side}{name}: {why}");
            }
        }
        let there_and_back = match &self.latency {
            Ok(Point { median, least, most, .. }) => {
                let [median, least, most] = [median, least, most].map(|half| 2.0 * half);
                format!("{median:.2} us there and back (least {least:.2}, most {most:.2})")
            }
            Err(why) => format!("not measured: {why}"),
        };
        let _ = writeln!(text, "8 bytes    {there_and_back}");
        text
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let round_trip = match &self.latency {
            Ok(point) => json!({
                "median_us": 2.0 * point.median, "min_us": 2.0 * point.least, "max_us": 2.0 * point.most,
            }),
            Err(why) => json!({ "why_not": why }),
        };
        let scheme = match self.route.scheme {
            Scheme::Get => "rget",
            Scheme::Put => "rput",
            Scheme::Fragments => "fragments",
        };
        json!({
            "sockets": self.address.sockets().map(|socket| socket.to_string()).collect::<Vec<_>>(),
            "rail": self.rail,
            "why": self.why,
            "tried": self.passed_over,
            "eager_max_bytes": self.route.eager_max,
            "rendezvous": scheme,
            "fragment_bytes": self.route.fragment,
            "direct_refused": self.direct_refused,
            "encrypted": self.encrypted,
            "controls": self.controls.iter().map(told_json).collect::<Vec<_>>(),
            "lanes": self.ways.pairs.iter().zip(&self.measured).map(|(pair, measured)| json!({
                "near": pair.near, "far": pair.far, "direct": pair.direct, "down": pair.down,
                "speed_mbit_per_s": (pair.speed > 0).then_some(pair.speed),
                "measured_bytes_per_s": measured,
            })).collect::<Vec<_>>(),
            "without_lane": unused("near", &self.ways.near_unused)
                .chain(unused("far", &self.ways.far_unused)).collect::<Vec<_>>(),
            "round_trip_8_bytes": round_trip,
        })
    }
}
