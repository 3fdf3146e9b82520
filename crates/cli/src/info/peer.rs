//! What would be used for a peer, and why.

use std::fmt::Write;

use polyrail_rails::worker::host_id;
use polyrail_rails::{Address, Config, Route, Scheme};
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
    /// Half round trips of 8 bytes, or why they could not be measured.
    latency: Result<Point, String>,
}

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
    let why = match rail {
        "loopback" => "it is this process".to_owned(),
        "shm" => "it runs on this host, and shared memory is the fastest rail there".into(),
        _ if !config.shm => "POLYRAIL_RAILS leaves shm out".into(),
        _ if address.host() != ours => "it does not run on this host, as far as its address tells".into(),
        _ if !address.is_local() => "it runs on this host, but does without shared memory".into(),
        _ => "it runs on this host, but shared memory failed".into(),
    };
    let latency = bench::round_trip(&mut session).map_err(|error| error.to_string());
    Ok(Found { address, rail, why, passed_over, route, direct_refused, latency })
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
        for (sizes, how) in self.protocols() {
            let _ = writeln!(text, "{sizes:<10} {how}");
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
            "round_trip_8_bytes": round_trip,
        })
    }
}
