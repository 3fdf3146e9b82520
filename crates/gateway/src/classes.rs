//! Which streams are sent first, and how fast: classes of a file, their limits and reservations, what is to be sent in turn. No I/O.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::net::Network;

/// What may be sent at once after a rest: what a limit lets through in this time, and at least so many bytes, as a read may have.
const BURST: (Duration, i64) = (Duration::from_millis(20), 64 << 10);
/// What has to wait does so for this long at least: it is not looked at for every few bytes.
const WAIT: Duration = Duration::from_millis(1);
/// Most classes of a file.
const CLASSES: usize = 64;

/// Bits per second, as `500M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(u64);

impl Rate {
    /// In bytes per second.
    pub fn bytes(self) -> u64 {
        self.0 / 8
    }
}

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bits = polyrail_rails::config::bits(&text);
        bits.map(Self)
            .ok_or(format!("{text:?} is no rate in bits per second of at least 8000, as 500M or 2G"))
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "K")];
        match units.into_iter().find(|(unit, _)| self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Streams that belong together, by whom they call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// What it is called.
    pub name: String,
    /// Ports that are called; none: all.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Who is called, in the words of the site that has them; none: everybody.
    #[serde(default)]
    pub networks: Vec<Network>,
    /// The other site, whoever of the two calls; none: all.
    #[serde(default)]
    pub sites: Vec<String>,
    /// How much of them is sent to each site, at most.
    pub limit: Option<Rate>,
    /// How much of them is sent to each site before all else.
    pub reserve: Option<Rate>,
}

/// Whom a stream calls: an address, where that is known here, and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The address.
    pub ip: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

impl Class {
    fn has(&self, site: &str, called: Called) -> bool {
        let at = |networks: &[Network]| called.ip.is_some_and(|ip| networks.iter().any(|one| one.has(ip)));
        (self.sites.is_empty() || self.sites.iter().any(|one| one == site))
            && (self.ports.is_empty() || self.ports.contains(&called.port))
            && (self.networks.is_empty() || at(&self.networks))
    }
}

/// Whether these may stand in a file.
///
/// # Errors
/// A sentence.
pub fn check(classes: &[Class]) -> Result<(), String> {
    if classes.len() > CLASSES {
        return Err(format!("{} classes; at most {CLASSES}", classes.len()));
    }
    for (number, class) in classes.iter().enumerate() {
        crate::site::check_name(&class.name).map_err(|why| format!("class: {why}"))?;
        if class.name == REST || classes.iter().take(number).any(|other| other.name == class.name) {
            return Err(format!("class {}: there is another of that name", class.name));
        }
        if let (Some(limit), Some(reserve)) = (class.limit, class.reserve)
            && reserve.0 > limit.0
        {
            return Err(format!("class {}: {reserve} are reserved, and {limit} are the limit", class.name));
        }
    }
    Ok(())
}

/// What is of no class of the file.
pub const REST: &str = "rest";

/// The class of a stream to or from a site: the first that has it.
pub fn class_of(classes: &[Class], site: &str, called: Called) -> usize {
    classes.iter().position(|class| class.has(site, called)).unwrap_or(classes.len())
}

/// So much at most, or so much first, in bytes per second.
#[derive(Debug)]
struct Bucket {
    rate: u64,
    /// What may be sent; below 0: what was sent beyond that.
    has: i64,
    at: Instant,
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        let mut bucket = Self { rate: rate.bytes().max(1), has: 0, at: now };
        bucket.has = bucket.most();
        bucket
    }

    fn most(&self) -> i64 {
        let burst = u128::from(self.rate) * BURST.0.as_nanos() / 1_000_000_000;
        i64::try_from(burst).unwrap_or(i64::MAX).max(BURST.1)
    }

    fn fill(&mut self, now: Instant) {
        let more = u128::from(self.rate) * now.saturating_duration_since(self.at).as_nanos() / 1_000_000_000;
        // what is less than a byte is not lost
        if more > 0 {
            self.has = self.has.saturating_add(i64::try_from(more).unwrap_or(i64::MAX)).min(self.most());
            self.at = now;
        }
    }

    fn is_full_enough(&self) -> bool {
        self.has > 0
    }

    /// When it is again.
    fn ready(&self) -> Instant {
        let lacks = u128::from(self.has.min(0).unsigned_abs()) + 1;
        let nanos = (lacks * 1_000_000_000).div_ceil(u128::from(self.rate));
        self.at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).min(3_600_000_000_000))
    }
}

/// How much a stream had at its last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Little.
    Little,
    /// As much as was read.
    Bulk,
}

#[derive(Debug)]
struct Queue {
    name: String,
    little: VecDeque<u64>,
    bulk: VecDeque<u64>,
    limit: Option<Bucket>,
    reserve: Option<Bucket>,
    sent: u64,
}

impl Queue {
    fn of(&mut self, kind: Kind) -> &mut VecDeque<u64> {
        match kind {
            Kind::Little => &mut self.little,
            Kind::Bulk => &mut self.bulk,
        }
    }

    fn waits(&self) -> usize {
        self.little.len() + self.bulk.len()
    }

    fn may_send(&self) -> bool {
        self.limit.as_ref().is_none_or(Bucket::is_full_enough)
    }
}

/// What a class does, for who wants to see it.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// What it is called.
    pub class: String,
    /// Streams that have something to send.
    pub waiting: usize,
    /// Bytes that were sent, since the file was read.
    pub sent: u64,
    /// Bits per second, at most.
    pub limit: Option<u64>,
    /// Bits per second, before all else.
    pub reserve: Option<u64>,
}

/// The streams of a session that have something to send, and in what order they do.
#[derive(Debug)]
pub struct Shares {
    /// The file's classes, and the rest.
    queues: Vec<Queue>,
    /// Of all.
    limit: Option<Bucket>,
    /// Whose turn it is.
    turn: usize,
}

impl Shares {
    /// Nothing yet; `limit` is that of the site.
    pub fn new(classes: &[Class], limit: Option<Rate>, now: Instant) -> Self {
        let queue = |name: &str, limit: Option<Rate>, reserve: Option<Rate>| Queue {
            name: name.to_owned(),
            little: VecDeque::new(),
            bulk: VecDeque::new(),
            limit: limit.map(|rate| Bucket::new(rate, now)),
            reserve: reserve.map(|rate| Bucket::new(rate, now)),
            sent: 0,
        };
        let named = classes.iter().map(|class| queue(&class.name, class.limit, class.reserve));
        let queues = named.chain([queue(REST, None, None)]).collect();
        Self { queues, limit: limit.map(|rate| Bucket::new(rate, now)), turn: 0 }
    }

    /// A stream of this class has something to send.
    pub fn push(&mut self, class: usize, kind: Kind, stream: u64) {
        let last = self.queues.len().saturating_sub(1);
        if let Some(queue) = self.queues.get_mut(class.min(last)) {
            queue.of(kind).push_back(stream);
        }
    }

    fn buckets(&mut self) -> impl Iterator<Item = &mut Bucket> {
        let of = self.queues.iter_mut().flat_map(|queue| [queue.limit.as_mut(), queue.reserve.as_mut()]);
        of.flatten().chain(&mut self.limit)
    }

    /// The next stream, of those that had as much at their last look: the first of `kinds` before the others; of each, what is reserved before
    /// all else, then the classes in turn.
    pub fn next(&mut self, now: Instant, kinds: &[Kind]) -> Option<u64> {
        self.buckets().for_each(|bucket| bucket.fill(now));
        if !self.limit.as_ref().is_none_or(Bucket::is_full_enough) {
            return None;
        }
        let all = self.queues.len();
        for kind in kinds {
            let first = |queue: &&mut Queue| {
                queue.reserve.as_ref().is_some_and(Bucket::is_full_enough) && queue.may_send()
            };
            let reserved = self.queues.iter_mut().filter(first).find_map(|queue| queue.of(*kind).pop_front());
            if reserved.is_some() {
                return reserved;
            }
            for at in (0..all).map(|step| (self.turn + step) % all) {
                let queue = self.queues.get_mut(at).filter(|queue| queue.may_send());
                if let Some(stream) = queue.and_then(|queue| queue.of(*kind).pop_front()) {
                    self.turn = (at + 1) % all;
                    return Some(stream);
                }
            }
        }
        None
    }

    /// So many bytes of a stream of this class are sent.
    pub fn sent(&mut self, class: usize, bytes: usize) {
        let last = self.queues.len().saturating_sub(1);
        let Some(queue) = self.queues.get_mut(class.min(last)) else { return };
        queue.sent += bytes as u64;
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        for bucket in [&mut queue.limit, &mut queue.reserve, &mut self.limit].into_iter().flatten() {
            bucket.has = bucket.has.saturating_sub(bytes);
        }
        // what was sent beyond what is reserved is not owed
        queue.reserve.iter_mut().for_each(|bucket| bucket.has = bucket.has.max(-BURST.1));
    }

    /// When a stream that waits for a limit may send.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let held = |bucket: &Option<Bucket>| {
            bucket.as_ref().filter(|bucket| !bucket.is_full_enough()).map(Bucket::ready)
        };
        let all = held(&self.limit);
        let of = |queue: &Queue| held(&queue.limit).max(all);
        let next = self.queues.iter().filter(|queue| queue.waits() > 0).filter_map(of).min();
        next.map(|next| next.max(now + WAIT))
    }

    /// Nothing waits any more.
    pub fn clear(&mut self) {
        for queue in &mut self.queues {
            queue.little.clear();
            queue.bulk.clear();
        }
    }

    /// All that wait, with how much they had: they leave.
    pub fn take_all(&mut self) -> Vec<(Kind, u64)> {
        let mut all = Vec::new();
        for queue in &mut self.queues {
            all.extend(queue.little.drain(..).map(|stream| (Kind::Little, stream)));
            all.extend(queue.bulk.drain(..).map(|stream| (Kind::Bulk, stream)));
        }
        all
    }

    /// Of all, in bits per second.
    pub fn limit(&self) -> Option<u64> {
        self.limit.as_ref().map(|bucket| bucket.rate * 8)
    }

    /// What the classes do.
    pub fn shown(&self) -> Vec<Shown> {
        let bits = |bucket: &Option<Bucket>| bucket.as_ref().map(|bucket| bucket.rate * 8);
        let of = |queue: &Queue| Shown {
            class: queue.name.clone(),
            waiting: queue.waits(),
            sent: queue.sent,
            limit: bits(&queue.limit),
            reserve: bits(&queue.reserve),
        };
        self.queues.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Kind; 2] = [Kind::Little, Kind::Bulk];

    fn class(name: &str, limit: Option<&str>, reserve: Option<&str>) -> Class {
        let rate = |text: Option<&str>| text.map(|text| Rate::try_from(text.to_owned()).unwrap());
        Class {
            name: name.into(),
            ports: Vec::new(),
            networks: Vec::new(),
            sites: Vec::new(),
            limit: rate(limit),
            reserve: rate(reserve),
        }
    }

    /// What each class's one stream, that always has more, gets in so many seconds by a line of so many bytes a second, in bytes.
    fn carried(shares: &mut Shares, classes: usize, line: u64, seconds: u64) -> Vec<u64> {
        const READ: usize = 65_416;
        let (began, mut sent) = (Instant::now(), vec![0; classes]);
        (0..classes).for_each(|one| shares.push(one, Kind::Bulk, one as u64));
        let mut now = began;
        let step = Duration::from_nanos(READ as u64 * 1_000_000_000 / line);
        while now < began + Duration::from_secs(seconds) {
            match shares.next(now, &BOTH) {
                Some(stream) => {
                    let class = stream as usize;
                    shares.sent(class, READ);
                    sent[class] += READ as u64;
                    shares.push(class, Kind::Bulk, stream);
                    now += step;
                }
                None => {
                    let due = shares.due(now).expect("something waits");
                    assert!(due > now, "it would be looked at for ever");
                    now = due;
                }
            }
        }
        sent
    }

    fn about(got: u64, wanted: u64) -> bool {
        got.abs_diff(wanted) <= wanted / 20
    }

    #[test]
    fn a_limit_is_kept_and_the_rest_goes_to_others() {
        let classes = [class("slow", Some("80M"), None)];
        let mut shares = Shares::new(&classes, None, Instant::now());
        let sent = carried(&mut shares, 2, 100_000_000, 4);
        assert!(about(sent[0], 40_000_000) && about(sent[1], 360_000_000), "{sent:?}");
        let mut shares = Shares::new(&classes, None, Instant::now());
        let alone = carried(&mut shares, 1, 100_000_000, 4);
        assert!(about(alone[0], 40_000_000), "{alone:?}");
    }

    #[test]
    fn what_is_reserved_goes_first_and_no_more_than_that() {
        // two others share what is left
        let classes = [class("a", None, None), class("first", None, Some("400M"))];
        let mut shares = Shares::new(&classes, None, Instant::now());
        let sent = carried(&mut shares, 3, 100_000_000, 4);
        // 50 MB/s reserved; a third of the other 50, too, as a class among others
        assert!(sent[1] >= 200_000_000, "{sent:?}");
        assert!(about(sent[0], sent[2]) && sent[0] >= 50_000_000, "{sent:?}");
    }

    #[test]
    fn a_site_has_a_limit_of_all() {
        let limit = Rate::try_from("8M".to_owned()).unwrap();
        let classes = [class("first", None, Some("6M"))];
        let mut shares = Shares::new(&classes, Some(limit), Instant::now());
        let sent = carried(&mut shares, 2, 100_000_000, 60);
        assert!(about(sent[0] + sent[1], 60_000_000), "{sent:?}");
        assert!(sent[0] >= 43_000_000 && sent[1] >= 6_000_000, "{sent:?}");
    }

    #[test]
    fn little_goes_before_much_whatever_its_class() {
        let mut shares = Shares::new(&[class("a", None, Some("1G"))], None, Instant::now());
        shares.push(0, Kind::Bulk, 1);
        shares.push(1, Kind::Little, 2);
        let now = Instant::now();
        assert_eq!(shares.next(now, &[Kind::Bulk, Kind::Little]), Some(1));
        shares.push(0, Kind::Bulk, 1);
        assert_eq!((shares.next(now, &BOTH), shares.next(now, &BOTH)), (Some(2), Some(1)));
        assert_eq!((shares.next(now, &BOTH), shares.due(now)), (None, None));
    }

    #[test]
    fn streams_have_the_first_class_that_fits() {
        let mut classes = [class("db", None, None), class("net", None, None), class("west", None, None)];
        classes[0].ports = vec![5432];
        classes[1].networks = vec!["10.2.5.0/24".parse().unwrap()];
        classes[2].sites = vec!["west".into()];
        let of = |site: &str, ip: Option<&str>, port| {
            class_of(&classes, site, Called { ip: ip.map(|ip| ip.parse().unwrap()), port })
        };
        assert_eq!(of("west", Some("10.2.5.1"), 5432), 0);
        assert_eq!(of("west", Some("10.2.5.1"), 22), 1);
        assert_eq!(of("west", None, 22), 2);
        assert_eq!(of("north", None, 22), 3);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let twice = [class("a", None, None), class("a", None, None)];
        assert!(check(&twice).unwrap_err().contains("another"));
        assert!(check(&[class("rest", None, None)]).is_err());
        assert!(check(&[class("a", Some("1M"), Some("2M"))]).unwrap_err().contains("limit"));
        assert!(check(&[class("a", Some("2M"), Some("1M"))]).is_ok());
        assert!(Rate::try_from("fast".to_owned()).is_err());
        assert_eq!(Rate::try_from("2500K".to_owned()).unwrap().to_string(), "2500K");
    }
}
