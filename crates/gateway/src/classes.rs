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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
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

/// Whether what is reserved for a site can be had within its limit.
///
/// # Errors
/// A sentence.
pub fn check_limit(classes: &[Class], site: &str, limit: Option<Rate>) -> Result<(), String> {
    let for_it = |class: &&Class| class.sites.is_empty() || class.sites.iter().any(|one| one == site);
    let reserved =
        classes.iter().filter(for_it).filter_map(|class| class.reserve).map(|rate| u128::from(rate.0));
    match limit {
        Some(limit) if reserved.sum::<u128>() > u128::from(limit.0) => {
            Err(format!("to.{site}: classes have more reserved than its limit of {limit}"))
        }
        _ => Ok(()),
    }
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
        self.has = self.has.saturating_add(i64::try_from(more).unwrap_or(i64::MAX)).min(self.most());
        // what is less than a byte is not lost
        let took = more * 1_000_000_000 / u128::from(self.rate);
        self.at += Duration::from_nanos(u64::try_from(took).unwrap_or(u64::MAX));
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
    /// Bytes that were sent.
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
    /// Whose turn it is, and whose of what is reserved.
    turn: usize,
    reserved_turn: usize,
    /// The last that was given its turn had it by what is reserved for its class.
    by_reserve: bool,
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
        let limit = limit.map(|rate| Bucket::new(rate, now));
        Self { queues, limit, turn: 0, reserved_turn: 0, by_reserve: false }
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

    /// The next stream, of those that had as much at their last look: what is reserved before all else, then the first of `kinds` before the
    /// others, and of each the classes in turn. What is sent of it is told next, by [`Shares::sent`].
    pub fn next(&mut self, now: Instant, kinds: &[Kind]) -> Option<u64> {
        self.buckets().for_each(|bucket| bucket.fill(now));
        if !self.limit.as_ref().is_none_or(Bucket::is_full_enough) {
            return None;
        }
        let is_due = |queue: &Queue| queue.reserve.as_ref().is_some_and(Bucket::is_full_enough);
        for kind in kinds {
            if let Some((at, stream)) = self.pop(*kind, self.reserved_turn, is_due) {
                (self.reserved_turn, self.by_reserve) = (at + 1, true);
                return Some(stream);
            }
        }
        for kind in kinds {
            if let Some((at, stream)) = self.pop(*kind, self.turn, |_| true) {
                (self.turn, self.by_reserve) = (at + 1, false);
                return Some(stream);
            }
        }
        None
    }

    /// The first stream of a class that may send, from this class on.
    fn pop(&mut self, kind: Kind, from: usize, of: impl Fn(&Queue) -> bool) -> Option<(usize, u64)> {
        let all = self.queues.len();
        (0..all).map(|step| (from + step) % all).find_map(|at| {
            let queue = self.queues.get_mut(at).filter(|queue| queue.may_send() && of(queue))?;
            Some((at, queue.of(kind).pop_front()?))
        })
    }

    /// So many bytes are sent of the stream of this class that was given its turn last.
    pub fn sent(&mut self, class: usize, bytes: usize) {
        let last = self.queues.len().saturating_sub(1);
        let Some(queue) = self.queues.get_mut(class.min(last)) else { return };
        queue.sent += bytes as u64;
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // beyond what is reserved a class is one among others
        let reserve = queue.reserve.as_mut().filter(|_| self.by_reserve);
        for bucket in [queue.limit.as_mut(), reserve, self.limit.as_mut()].into_iter().flatten() {
            bucket.has = bucket.has.saturating_sub(bytes);
        }
    }

    /// When a stream that waits for a limit may send.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        self.buckets().for_each(|bucket| bucket.fill(now));
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

    /// Goes on with what is known of classes that are as they were before.
    pub fn after(mut self, before: Self) -> Self {
        let same = |new: &Option<Bucket>, old: &Option<Bucket>| {
            new.as_ref().map(|bucket| bucket.rate) == old.as_ref().map(|bucket| bucket.rate)
        };
        for old in before.queues {
            let Some(new) = self.queues.iter_mut().find(|queue| queue.name == old.name) else { continue };
            new.sent = old.sent;
            if same(&new.limit, &old.limit) {
                new.limit = old.limit;
            }
            if same(&new.reserve, &old.reserve) {
                new.reserve = old.reserve;
            }
        }
        if same(&self.limit, &before.limit) {
            self.limit = before.limit;
        }
        self
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
        // half is reserved, and the other half has three takers
        let classes = [class("a", None, None), class("first", None, Some("400M"))];
        let mut shares = Shares::new(&classes, None, Instant::now());
        let sent = carried(&mut shares, 3, 100_000_000, 4);
        let third = 200_000_000 / 3;
        assert!(about(sent[1], 200_000_000 + third), "{sent:?}");
        assert!(about(sent[0], third) && about(sent[2], third), "{sent:?}");
        // more is reserved than there is: by turns
        let classes = [class("a", None, Some("1G")), class("b", None, Some("1G"))];
        let mut shares = Shares::new(&classes, None, Instant::now());
        let sent = carried(&mut shares, 2, 100_000_000, 4);
        assert!(about(sent[0], sent[1]), "{sent:?}");
    }

    #[test]
    fn what_was_sent_and_owed_is_known_after_the_file_was_read_anew() {
        let classes = |limit| [class("slow", Some(limit), None)];
        let now = Instant::now();
        let mut shares = Shares::new(&classes("8K"), None, now);
        shares.push(0, Kind::Bulk, 1);
        assert_eq!(shares.next(now, &BOTH), Some(1));
        shares.sent(0, 1 << 20);
        let mut same = Shares::new(&classes("8K"), None, now).after(shares);
        assert_eq!(same.shown()[0].sent, 1 << 20);
        same.push(0, Kind::Bulk, 1);
        assert_eq!(same.next(now, &BOTH), None, "it still owes");
        let mut other = Shares::new(&classes("16K"), None, now).after(same);
        other.push(0, Kind::Bulk, 1);
        assert_eq!(other.next(now, &BOTH), Some(1));
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
    fn little_goes_before_much_but_for_what_is_reserved() {
        let mut shares = Shares::new(&[class("a", None, Some("1G"))], None, Instant::now());
        shares.push(0, Kind::Bulk, 1);
        shares.push(1, Kind::Little, 2);
        assert_eq!(shares.next(Instant::now(), &BOTH), Some(1));
        let mut shares = Shares::new(&[class("a", None, None)], None, Instant::now());
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
        let (fits, limit) =
            ([class("a", Some("2M"), Some("1M"))], |text: &str| Rate::try_from(text.to_owned()).ok());
        assert!(check(&fits).is_ok() && check_limit(&fits, "west", limit("1M")).is_ok());
        assert!(check_limit(&fits, "west", limit("999K")).unwrap_err().contains("reserved"));
        assert!(Rate::try_from("fast".to_owned()).is_err());
        assert_eq!(Rate::try_from("2500K".to_owned()).unwrap().to_string(), "2500K");
    }
}
