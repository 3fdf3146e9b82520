//! Settings, from the environment or from code. Nobody needs to set any.

mod faults;
mod file;
mod pins;

pub use faults::Faults;
pub use file::File;
pub use file::users_directory;
pub use pins::{Caps, Names, bits};

use crate::error::Error;
use crate::events::LogTo;
use crate::list::{RailId, RailSet};
use polyrail_core::micro::{Composition, Scheme};
use polyrail_core::wire::Key;
use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How large messages travel between processes that can reach each other's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rendezvous {
    /// The receiver reads (RGET), where the kernel allows it.
    Auto,
    /// The sender writes (RPUT).
    Put,
    /// Through the rail, in fragments.
    Fragments,
}

/// Where the user's secret is: a file that no other user can read. Where there is one, connections have to prove that they know
/// it, besides the endpoint's key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretFile {
    /// Where `POLYRAIL_SECRET_FILE` says, else in its usual place.
    Usual,
    /// There, if it is there.
    At(PathBuf),
    /// None is used.
    None,
}

/// A port that several endpoints of this process listen on together, by TCP: the first opens it, by its settings, and it stays open for
/// as long as there is this. What is behind it is known to the sockets alone, of which settings know nothing.
#[derive(Clone, Default)]
pub struct SharedPort(pub(crate) Arc<Mutex<Option<Box<dyn Any + Send>>>>);

impl SharedPort {
    /// As many endpoints share a port: the kernel wakes no more than a hundred by what is watched for all of them (`epoll_ctl(2)`, EINVAL).
    pub const MOST: usize = 64;
}

impl fmt::Debug for SharedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedPort")
    }
}

/// Settings of a worker.
#[derive(Clone, Debug)]
pub struct Config {
    /// Rails to use.
    pub rails: RailSet,
    /// Network interfaces to use.
    pub interfaces: Names,
    /// Network interfaces that short messages take, where they lead to the peer.
    pub short_over: Names,
    /// Network interfaces that the parts of long messages take, where they lead to the peer.
    pub long_over: Names,
    /// Most that may be sent by an interface.
    pub caps: Caps,
    /// When less than this of long messages waits for a peer, one lane takes it, in bytes.
    pub stripe_min: usize,
    /// Port of the listener; 0: a free one.
    pub port: u16,
    /// The port is listened on together with others of this process's endpoints; no setting of users'.
    pub shared_port: Option<SharedPort>,
    /// Where to listen, and under which name; set by [`Config::listen_on`].
    pub named: Option<SocketAddr>,
    /// The endpoint's key; none: a random one.
    pub key: Option<Key>,
    /// The user's secret.
    pub secret: SecretFile,
    /// Large messages within a host.
    pub rendezvous: Rendezvous,
    /// Longest eager message over a network, in bytes; none: as the path has it.
    pub tcp_eager: Option<usize>,
    /// Longest eager message by shared memory, in bytes.
    pub shm_eager: usize,
    /// Eager bytes that each peer may send without a matching receive.
    pub window: usize,
    /// Messages that each peer may have announced without a matching receive. Who announces more is cut off.
    pub announced: usize,
    /// How long it may take to reach a peer's host and port.
    pub connect_timeout: Duration,
    /// How long a peer that was reached may take to answer: it answers when its program makes progress.
    pub answer_timeout: Duration,
    /// How long an orderly close waits for what is still to be sent.
    pub linger: Duration,
    /// Connections over a network are to be encrypted. It suffices that one of the two sides wants that.
    pub encrypt: bool,
    /// Most connections to one peer over a network.
    pub lanes: usize,
    /// Most of them between the same two interfaces.
    pub connections: usize,
    /// How many of them are always there between the same two interfaces, whatever they bring; both sides say so. No setting of users': who carries the
    /// connections of many is given the share of many where others are on their way, too.
    pub connections_least: usize,
    /// Whether its program looks after connections without long breaks, as a gateway does: what waits to be sent waits here, where what is urgent
    /// overtakes it, and not in the kernel; which may hold as much as long ways take, where this user may say so. No setting of users'.
    pub attends: bool,
    /// How long a silent network is believed before the peer counts as gone.
    pub peer_timeout: Duration,
    /// Congestion control of TCP links; none: the system's.
    pub congestion: Option<String>,
    /// How links by UDP are reliable and fair; none: as their paths turn out to need.
    pub composition: Option<Composition>,
    /// Give the processor away while polling in vain.
    pub yielding: bool,
    /// Sleep after polling in vain for so long, until a message comes (for some milliseconds at most); none: never. Only for programs
    /// all of whose messages come this way.
    pub sleep_after: Option<Duration>,
    /// Providers take an endpoint at its word that wants all its operations complete only when the peer has them; else its messages to
    /// peers that are far are complete when they are on their way, unless they ask themselves. One-sided operations are complete as asked.
    pub delivery: bool,
    /// Providers go on with what is long, and with what peers do to this process's memory, while the application computes, by a thread.
    pub background: bool,
    /// What is long and for many hosts may go by multicast.
    pub multicast: bool,
    /// Where this site's gateway to others is called, host and port; none: there is none.
    pub gateway: Option<String>,
    /// What this host's site is called, if hosts say which of them are near each other; none: it is measured, or nobody asks.
    pub site: Option<String>,
    /// Where events are logged; none: nowhere.
    pub log: Option<LogTo>,
    /// Faults that rails pretend, for tests; none: none.
    pub faults: Option<Faults>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rails: RailSet::ALL,
            interfaces: Names::default(),
            short_over: Names::default(),
            long_over: Names::default(),
            caps: Caps::default(),
            stripe_min: 0,
            port: 0,
            shared_port: None,
            named: None,
            key: None,
            secret: SecretFile::Usual,
            rendezvous: Rendezvous::Auto,
            tcp_eager: None,
            shm_eager: 32 << 10,
            window: 2 << 20,
            announced: polyrail_core::proto::Bounds::DEFAULT.announced as usize,
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(600),
            linger: Duration::from_secs(5),
            encrypt: false,
            lanes: 16,
            connections: 16,
            connections_least: 1,
            attends: false,
            peer_timeout: Duration::from_secs(30),
            congestion: None,
            composition: None,
            yielding: true,
            sleep_after: None,
            delivery: true,
            background: true,
            multicast: true,
            gateway: None,
            site: None,
            log: None,
            faults: None,
        }
    }
}

/// Longest message that goes eagerly over a network where nobody said otherwise, in bytes, unless the path is long
/// ([`polyrail_core::cost::Explanation::far_eager`]).
const NET_EAGER: usize = 64 << 10;

/// A setting's name in the environment, and what it means; for those who list them (`fi_info -e`, `polyrail run --help`).
pub const SETTINGS: &[(&str, &str)] = &[
    ("RAILS", "rails to use: a comma list of their names, as `polyrail info` lists them (default: all)"),
    (
        "INTERFACES",
        "network interfaces to use and to listen on: a comma list of names, which may end in *; with ^ before each: all but these (default: all that are up)",
    ),
    (
        "SHORT_OVER",
        "network interfaces that short messages take, if they lead to the peer: as INTERFACES (default: the fastest)",
    ),
    (
        "LONG_OVER",
        "network interfaces that long messages take, if they lead to the peer: as INTERFACES (default: all)",
    ),
    (
        "CAPS",
        "most to be sent by an interface, in bits per second, to each interface of a peer: eth0=500M,wlan*=20M (default: none)",
    ),
    (
        "STRIPE_MIN",
        "bytes of long messages waiting for a peer below which one interface takes them (default 0: shared where it helps)",
    ),
    ("PORT", "port of the listener (default: a free one)"),
    (
        "RNDV",
        "large messages within a host: auto (the receiver reads), put (the sender writes), frag (through the rail)",
    ),
    (
        "TCP_EAGER",
        "longest message that goes eagerly by TCP or UDP, in bytes (default 65536; over paths of a millisecond and more what they carry in a round trip, or in four by the only connection, up to 1 MiB)",
    ),
    ("SHM_EAGER", "longest message that goes eagerly by shared memory, in bytes (default 32768)"),
    (
        "WINDOW",
        "eager bytes that each peer may send without a matching receive (default 2097152); half as much is fetched besides of short messages that it announces",
    ),
    (
        "ANNOUNCED",
        "messages too long to go eagerly, or without credit, that each peer may announce without a matching receive; one that announces more is cut off (default 1048576)",
    ),
    ("CONNECT_TIMEOUT", "seconds that it may take to reach a peer's host and port (default 10)"),
    ("ANSWER_TIMEOUT", "seconds that a peer that was reached may compute before it answers (default 600)"),
    (
        "LINGER",
        "seconds that an orderly close waits for what is still to be sent (default 5), and for short messages that count as sent as long as their receiver does something else (120 times as long where it makes progress and takes none); 0: it does not wait",
    ),
    ("LANES", "most network connections to one peer (default 16)"),
    (
        "CONNECTIONS",
        "most of them between the same two interfaces; as many are opened as get more through (default 16; 1: never another)",
    ),
    ("PEER_TIMEOUT", "seconds of network silence after which a peer counts as gone (default 30)"),
    ("CONGESTION", "TCP congestion control (default: the system's)"),
    (
        "COMPOSITION",
        "how links by UDP are reliable and fair, by the name of a composition of micro-protocols (default: as the path turns out to need)",
    ),
    ("YIELD", "give the processor away while polling in vain: 1 or 0 (default 1)"),
    (
        "SLEEP_AFTER",
        "microseconds of waiting in vain after which to sleep until a message comes, or soon while the rest of a long one comes by a network (default: never)",
    ),
    (
        "DELIVERY",
        "messages are complete when the peer has them, where an endpoint asks for that in all it does (op_flags): 1; or 0: when their bytes are on their way, where a round trip takes a millisecond or more (default 1)",
    ),
    (
        "BACKGROUND",
        "a thread goes on with messages above 64 KiB, and with what peers do to this process's memory, while the program computes: 1 or 0 (default 1)",
    ),
    (
        "MULTICAST",
        "long broadcasts of MPI to three hosts or more may be sent once, to a group of all of them on networks of IPv4: 1 or 0 (default 1)",
    ),
    (
        "GATEWAY",
        "where this site's gateway is called, through which peers and addresses of other sites are reached: host and port (default: none; polyrail wrap: what ~/.config/polyrail/site.toml says)",
    ),
    (
        "SITE",
        "what this host's site is called: hosts of one name are near each other, of different names far (default: measured; taken where all hosts of a job have one)",
    ),
    (
        "LOG",
        "append what happens to peers and lanes, one JSON object per line: a file (%p is the process, %h the host) or stderr, then :debug for choices and estimates too (default: nothing)",
    ),
    (
        "ENCRYPT",
        "yes: what travels over a network is encrypted, also to and from peers that say no; shared memory is not (default: no)",
    ),
    (
        "FAULTS",
        "for tests: what rails pretend to go wrong, by a seed: 7 or 7:full,delay,parts,lane,end,change,renew,lose,deaf,lapse; only end loses peers (default: nothing)",
    ),
];

impl Config {
    /// The number of this host's site, by what it is called; never 0. None: it is called nothing.
    pub fn site_number(&self) -> Option<u64> {
        // FNV-1a (Fowler, Noll and Vo), 64 bits
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let name = self.site.as_ref()?.trim().bytes();
        Some(name.fold(0xcbf2_9ce4_8422_2325, hash).max(1))
    }

    /// Longest message that goes eagerly over a network, in bytes, however short the path.
    pub fn net_eager(&self) -> usize {
        self.tcp_eager.unwrap_or(NET_EAGER)
    }

    /// Settings from `POLYRAIL_...` variables (or `FI_POLYRAIL_...`, as libfabric would call them), and where they say nothing from
    /// the configuration file.
    ///
    /// # Errors
    /// [`Error::Setting`] naming the variable whose value cannot be used.
    pub fn from_env() -> Result<Self, Error> {
        let file = File::find()?;
        Self::from_lookup(|name| {
            std::env::var(format!("POLYRAIL_{name}"))
                .or_else(|_| std::env::var(format!("FI_POLYRAIL_{name}")))
                .ok()
                .filter(|value| !value.is_empty())
                .or_else(|| file.get(name))
        })
    }

    /// Settings from anywhere; `lookup` is asked for the names in [`SETTINGS`].
    ///
    /// # Errors
    /// As [`Config::from_env`].
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let mut c = Self::default();
        if let Some(rails) = lookup("RAILS") {
            c.rails = RailSet::NONE;
            for name in rails.split(',').map(str::trim) {
                let Some(rail) = RailId::chosen().find(|rail| rail.name() == name) else {
                    let there: Vec<_> = RailId::chosen().map(|rail| rail.name()).collect();
                    let why = format!("no rail is called {name:?}; there are {}", there.join(" and "));
                    return bad("POLYRAIL_RAILS", why);
                };
                c.rails = c.rails.with(rail);
            }
        }
        if let Some(list) = lookup("INTERFACES") {
            c.interfaces = Names::parse(&list).or_else(|why| bad("POLYRAIL_INTERFACES", why))?;
        }
        if let Some(list) = lookup("SHORT_OVER") {
            c.short_over = Names::parse(&list).or_else(|why| bad("POLYRAIL_SHORT_OVER", why))?;
        }
        if let Some(list) = lookup("LONG_OVER") {
            c.long_over = Names::parse(&list).or_else(|why| bad("POLYRAIL_LONG_OVER", why))?;
        }
        if let Some(list) = lookup("CAPS") {
            c.caps = Caps::parse(&list).or_else(|why| bad("POLYRAIL_CAPS", why))?;
        }
        number(&lookup, "STRIPE_MIN", "POLYRAIL_STRIPE_MIN", 0, usize::MAX, |n| c.stripe_min = n)?;
        if let Some(rndv) = lookup("RNDV") {
            c.rendezvous = match rndv.as_str() {
                "auto" => Rendezvous::Auto,
                "put" => Rendezvous::Put,
                "frag" => Rendezvous::Fragments,
                other => return bad("POLYRAIL_RNDV", format!("{other:?} is none of auto, put, frag")),
            };
        }
        let most = polyrail_core::frame::MAX_PAYLOAD;
        number(&lookup, "PORT", "POLYRAIL_PORT", 0, usize::from(u16::MAX), |n| c.port = n as u16)?;
        number(&lookup, "TCP_EAGER", "POLYRAIL_TCP_EAGER", 0, most, |n| c.tcp_eager = Some(n))?;
        number(&lookup, "SHM_EAGER", "POLYRAIL_SHM_EAGER", 0, 32 << 10, |n| c.shm_eager = n)?;
        number(&lookup, "WINDOW", "POLYRAIL_WINDOW", 4096, 1 << 30, |n| c.window = n)?;
        number(&lookup, "ANNOUNCED", "POLYRAIL_ANNOUNCED", 1024, 1 << 30, |n| c.announced = n)?;
        let day = 86_400;
        let seconds = |n| Duration::from_secs(n as u64);
        number(&lookup, "CONNECT_TIMEOUT", "POLYRAIL_CONNECT_TIMEOUT", 1, day, |n| {
            c.connect_timeout = seconds(n)
        })?;
        number(&lookup, "ANSWER_TIMEOUT", "POLYRAIL_ANSWER_TIMEOUT", 1, 365 * day, |n| {
            c.answer_timeout = seconds(n)
        })?;
        number(&lookup, "LINGER", "POLYRAIL_LINGER", 0, day, |n| c.linger = seconds(n))?;
        number(&lookup, "PEER_TIMEOUT", "POLYRAIL_PEER_TIMEOUT", 1, day, |n| c.peer_timeout = seconds(n))?;
        number(&lookup, "LANES", "POLYRAIL_LANES", 1, 16, |n| c.lanes = n)?;
        number(&lookup, "CONNECTIONS", "POLYRAIL_CONNECTIONS", 1, 16, |n| c.connections = n)?;
        number(&lookup, "YIELD", "POLYRAIL_YIELD", 0, 1, |n| c.yielding = n == 1)?;
        number(&lookup, "DELIVERY", "POLYRAIL_DELIVERY", 0, 1, |n| c.delivery = n == 1)?;
        number(&lookup, "BACKGROUND", "POLYRAIL_BACKGROUND", 0, 1, |n| c.background = n == 1)?;
        number(&lookup, "MULTICAST", "POLYRAIL_MULTICAST", 0, 1, |n| c.multicast = n == 1)?;
        if let Some(encrypt) = lookup("ENCRYPT") {
            c.encrypt = match encrypt.trim() {
                "yes" | "1" => true,
                "no" | "0" => false,
                other => return bad("POLYRAIL_ENCRYPT", format!("{other:?} is neither yes nor no")),
            };
        }
        let micros = |n| Some(Duration::from_micros(n as u64));
        number(&lookup, "SLEEP_AFTER", "POLYRAIL_SLEEP_AFTER", 1, 60_000_000, |n| c.sleep_after = micros(n))?;
        c.congestion = lookup("CONGESTION");
        c.gateway = lookup("GATEWAY");
        c.site = lookup("SITE").filter(|name| !name.trim().is_empty());
        if let Some(name) = lookup("COMPOSITION") {
            // those for a reliable network are nothing for UDP; those of values are not used yet
            let fits =
                |one: &Composition| !one.needs_reliable_network() && one.scheme() == Scheme::Synchronous;
            let found = Composition::of_name(name.trim()).filter(fits).map_or_else(
                || {
                    let all: Vec<_> =
                        Composition::ALL.iter().copied().filter(fits).map(Composition::name).collect();
                    bad(
                        "POLYRAIL_COMPOSITION",
                        format!("no composition for UDP is called {name:?}; there are {}", all.join(", ")),
                    )
                },
                Ok,
            )?;
            c.composition = Some(found);
        }
        if let Some(log) = lookup("LOG") {
            c.log = Some(LogTo::parse(&log).or_else(|why| bad("POLYRAIL_LOG", why))?);
        }
        if let Some(faults) = lookup("FAULTS") {
            c.faults = Some(Faults::parse(&faults).or_else(|why| bad("POLYRAIL_FAULTS", why))?);
        }
        Ok(c)
    }

    /// Listens at this address under a name: the key is derived from the user's secret, so that processes of the same user
    /// reach it by [`crate::named::named_address`].
    #[must_use]
    pub fn listen_on(mut self, at: SocketAddr) -> Self {
        self.named = Some(at);
        self
    }
}

fn bad<T>(name: &'static str, why: String) -> Result<T, Error> {
    Err(Error::Setting { name, why })
}

fn number(
    lookup: &impl Fn(&str) -> Option<String>,
    key: &str,
    name: &'static str,
    least: usize,
    most: usize,
    set: impl FnOnce(usize),
) -> Result<(), Error> {
    let Some(text) = lookup(key) else { return Ok(()) };
    match text.trim().parse() {
        Ok(n) if (least..=most).contains(&n) => {
            set(n);
            Ok(())
        }
        _ => bad(name, format!("{text:?} is not a number from {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::Reach;

    #[test]
    fn settings_are_read_and_bad_ones_named() {
        let with = |key: &'static str, value: &'static str| {
            Config::from_lookup(move |name| (name == key).then(|| value.to_owned()))
        };
        assert!(!with("RAILS", "tcp").unwrap().rails.reaches(Reach::Host));
        assert_eq!(with("PORT", "80").unwrap().port, 80);
        let site = |name| with("SITE", name).unwrap().site_number();
        assert!(site("east").is_some() && site("east") == site(" east") && site("east") != site("west"));
        assert_eq!(site(" "), None);
        let encrypts = ["yes", "1", "no", "0"].map(|value| with("ENCRYPT", value).unwrap().encrypt);
        assert_eq!(encrypts, [true, true, false, false]);
        for (key, value) in [
            ("RAILS", "ib"),
            ("PORT", "70000"),
            ("RNDV", "x"),
            ("WINDOW", "1"),
            ("ANNOUNCED", "1023"),
            ("YIELD", "2"),
            ("DELIVERY", "late"),
            ("BACKGROUND", "yes"),
            ("MULTICAST", "2"),
            ("ENCRYPT", "maybe"),
            ("LOG", "x:loud"),
            ("FAULTS", "7:cold"),
            ("COMPOSITION", "best"),
        ] {
            let why = with(key, value).unwrap_err().to_string();
            assert!(why.contains(&format!("POLYRAIL_{key}")), "{why}");
        }
        for (key, _) in SETTINGS {
            let _ = Config::from_lookup(|name| (name == *key).then(String::new));
        }
    }
}
