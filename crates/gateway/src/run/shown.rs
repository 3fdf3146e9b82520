//! What a gateway shows of itself by HTTP, on the port that programs call: `/status`, `/networks` and `/addresses` (its host's) as JSON,
//! `/metrics` for Prometheus; and by `/peer/IP:PORT` who is behind a connection that it made.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::Instant;

use polyrail_rails::discover;
use serde::{Deserialize, Serialize};

use super::Gateway;
use super::trunk::{Counts, End, Trunk};
use crate::call;
use crate::classes;
use crate::config::WhenDown;
use crate::net::Network;

/// Of one other site.
#[derive(Clone, Debug, Serialize)]
pub struct Site {
    /// What it is called.
    pub site: String,
    /// Whether the session to it stands.
    pub up: bool,
    /// For how many seconds it has.
    pub up_s: Option<f64>,
    /// Why it does not.
    pub why: Option<String>,
    /// Who dials: `this`, or `the other`.
    pub dials: &'static str,
    /// The port where this gateway waits for it.
    pub port: Option<u16>,
    /// The rail of short messages.
    pub rail: Option<&'static str>,
    /// Connections of the session.
    pub lanes: usize,
    /// Streams that are open.
    pub streams: usize,
    /// Bytes that wait to leave.
    pub to_send: usize,
    /// Bytes that programs here are slow to take.
    pub to_give: u64,
    /// Bits per second that are sent to it, at most.
    pub limit: Option<u64>,
    /// What its classes of streams do.
    pub classes: Vec<classes::Shown>,
    /// What happened.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Of the gateway.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// What its site is called.
    pub site: String,
    /// Its process.
    pub pid: u32,
    /// How long it has run, in seconds.
    pub runs_s: f64,
    /// Connections of which is not known yet what they want.
    pub callers: usize,
    /// The others.
    pub sites: Vec<Site>,
}

/// Addresses that are reached through a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// Which, as programs here call them.
    pub network: Network,
    /// Of which site.
    pub site: String,
    /// Whether it is there.
    pub up: bool,
    /// What becomes of connections to it while it is not.
    pub when_down: WhenDown,
    /// How long a round trip to the other gateway takes, in microseconds, while it is there.
    #[serde(default)]
    pub round_trip_us: Option<u32>,
}

fn site(trunk: &Trunk, now: Instant) -> Site {
    let (to_send, to_give) = trunk.waiting();
    let (dials, port) = match trunk.end {
        End::Dials(_) => ("this", None),
        End::Waits { port, .. } => ("the other", Some(port)),
    };
    Site {
        site: trunk.other.site.clone(),
        up: trunk.is_up(),
        up_s: trunk.since.map(|since| (now - since).as_secs_f64()),
        why: (!trunk.is_up()).then(|| trunk.why.clone()),
        dials,
        port,
        rail: trunk.session().and_then(|(mailbox, peer)| Some(mailbox.worker().route(peer)?.0)),
        lanes: trunk.session().map_or(0, |(mailbox, peer)| mailbox.worker().lanes(peer).len()),
        streams: trunk.streams(),
        to_send,
        to_give,
        limit: trunk.shares().limit(),
        classes: trunk.shares().shown(),
        counts: trunk.counts,
    }
}

fn status(gateway: &Gateway) -> Status {
    let now = Instant::now();
    Status {
        site: gateway.file.site.clone(),
        pid: std::process::id(),
        runs_s: (now - gateway.began).as_secs_f64(),
        callers: gateway.callers.len(),
        sites: gateway.trunks.iter().map(|trunk| site(trunk, now)).collect(),
    }
}

fn networks(gateway: &Gateway) -> Vec<Reached> {
    let of = |trunk: &Trunk| -> Vec<Reached> {
        let when_down = gateway.when_down(&trunk.other.site);
        let (site, up, round_trip_us) = (&trunk.other.site, trunk.is_up(), trunk.round_trip_us());
        let reached = |network| Reached { network, site: site.clone(), up, when_down, round_trip_us };
        trunk.ways.iter().map(|way| reached(way.seen)).collect()
    };
    gateway.trunks.iter().flat_map(of).collect()
}

/// From where it connects with programs here; none where the kernel does not say.
fn addresses() -> Vec<IpAddr> {
    discover::addresses().unwrap_or_default()
}

/// [Prometheus's text format](https://prometheus.io/docs/instrumenting/exposition_formats/).
fn metrics(status: &Status) -> String {
    type Value = fn(&Site) -> f64;
    let all: [(&str, &str, &str, Value); 11] = [
        ("up", "gauge", "Whether the session to the site stands.", |site| f64::from(u8::from(site.up))),
        ("streams", "gauge", "Connections that are open.", |site| site.streams as f64),
        ("waiting_to_send_bytes", "gauge", "Bytes that wait to leave.", |site| site.to_send as f64),
        ("waiting_to_give_bytes", "gauge", "Bytes that programs are slow to take.", |site| {
            site.to_give as f64
        }),
        ("asked_total", "counter", "Connections wanted by programs here.", |site| site.counts.asked as f64),
        ("joined_total", "counter", "Connections made here for the other site.", |site| {
            site.counts.joined as f64
        }),
        ("refused_total", "counter", "Connections wanted and not made.", |site| site.counts.refused as f64),
        ("reset_total", "counter", "Connections ended by a reset.", |site| site.counts.reset as f64),
        ("sent_bytes_total", "counter", "Bytes sent to the other site.", |site| site.counts.sent as f64),
        ("received_bytes_total", "counter", "Bytes from the other site.", |site| site.counts.received as f64),
        ("losses_total", "counter", "Times that the session was lost.", |site| site.counts.losses as f64),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in all {
        // a string takes whatever is written
        let _ =
            writeln!(text, "# HELP polyrail_gateway_{name} {help}\n# TYPE polyrail_gateway_{name} {kind}");
        for site in &status.sites {
            let _ = writeln!(text, "polyrail_gateway_{name}{{site=\"{}\"}} {}", site.site, value(site));
        }
    }
    type OfClass = fn(&classes::Shown) -> u64;
    let of_classes: [(&str, &str, &str, OfClass); 2] = [
        ("class_sent_bytes_total", "counter", "Bytes of a class sent to the other site.", |class| class.sent),
        ("class_waiting", "gauge", "Connections of a class that have something to send.", |class| {
            class.waiting as u64
        }),
    ];
    for (name, kind, help, value) in of_classes {
        let _ =
            writeln!(text, "# HELP polyrail_gateway_{name} {help}\n# TYPE polyrail_gateway_{name} {kind}");
        for (site, class) in
            status.sites.iter().flat_map(|site| site.classes.iter().map(move |one| (site, one)))
        {
            let (site, of) = (&site.site, &class.class);
            let _ =
                writeln!(text, "polyrail_gateway_{name}{{site=\"{site}\",class=\"{of}\"}} {}", value(class));
        }
    }
    text
}

/// The answer to a request for this path.
pub(super) fn page(gateway: &Gateway, path: &str) -> Vec<u8> {
    const JSON: &str = "application/json";
    let json = |body: serde_json::Result<String>| match body {
        Ok(body) => call::page("200 OK", JSON, &format!("{body}\n")),
        Err(why) => call::page("500 Internal Server Error", "text/plain", &why.to_string()),
    };
    match path {
        "/status" => json(serde_json::to_string(&status(gateway))),
        "/networks" => json(serde_json::to_string(&networks(gateway))),
        "/addresses" => json(serde_json::to_string(&addresses())),
        "/metrics" => call::page("200 OK", "text/plain; version=0.0.4", &metrics(&status(gateway))),
        _ => match path.strip_prefix("/peer/").map(str::parse) {
            Some(Ok(near)) => json(serde_json::to_string(&gateway.behind(near))),
            _ => call::page(
                "404 Not Found",
                "text/plain",
                "there are /status, /networks, /addresses, /metrics and /peer/IP:PORT\n",
            ),
        },
    }
}
