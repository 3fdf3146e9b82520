//! A gateway's process: one thread that waits for all of its sockets and sessions at once.
//!
//! | module | is about |
//! |---|---|
//! | `poll` | which descriptors are waited for |
//! | `lookup` | names of hosts, found out beside it |
//! | `stream` | one connection of a program |
//! | `trunk` | the session to one site, and its streams |
//! | `shown` | what is shown of it: status, networks, metrics |

mod lookup;
mod poll;
pub mod shown;
mod stream;
mod trunk;

pub use trunk::far_congestion;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use polyrail_rails::config::SharedPort;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::call::{self, Call, Step};
use crate::config::{self, Config, File, Way, WhenDown};
use crate::error::Error;
use crate::net::{Network, Target, plain};
use crate::site::{self, Identity};
use crate::wire::{Hello, Reason, Wish};
use lookup::Lookup;
use poll::{Poll, Ready, Token};
use trunk::{End, Trunk};

/// How long who calls may take to say what it wants.
const CALL: Duration = Duration::from_secs(10);
/// Most that have not said it yet; of more, the oldest go.
const CALLERS: usize = 512;
/// Descriptors that are left for other things than streams.
const DESCRIPTORS: u64 = 128;
/// How long nobody is let in after there was no room.
const NO_ROOM: Duration = Duration::from_millis(200);
/// How long the others may take to take what they were sent, when this one ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Sites that a gateway can trust.
const TRUNKS: usize = 1024;

/// Who asked for a name.
enum Asker {
    /// A session that is to be dialled.
    Trunk(usize),
    /// A stream of one, in which of its sessions.
    Stream(usize, u64, u64),
}

/// What a trunk needs of the gateway around it.
struct Around<'a> {
    poll: &'a Poll,
    lookup: &'a Lookup<Asker>,
    dialled: &'a Lookup<Asker>,
    file: &'a File,
    hello: &'a Hello,
    now: Instant,
    /// How many more streams there may be.
    room: Cell<usize>,
    doors: &'a [SocketAddr],
    say: &'a dyn Fn(&str),
}

impl Around<'_> {
    /// Whether that is where this gateway is called.
    fn is_door(&self, at: SocketAddr) -> bool {
        let ip = plain(at.ip());
        let is = |door: &SocketAddr| {
            let own = plain(door.ip());
            // to connect with an address of none in particular is to connect with this host
            let here = ip.is_unspecified() || ip.is_loopback() || own.is_unspecified() && is_local(ip);
            door.port() == at.port() && (own == ip || here)
        };
        self.doors.iter().any(is)
    }

    fn say(&self, what: &str) {
        (self.say)(what);
    }
}

/// A connection of which is not known yet what it wants.
struct Caller {
    socket: OwnedFd,
    from: SocketAddr,
    since: Instant,
    said: Vec<u8>,
    greeted: bool,
}

/// What is readable once somebody tells a gateway something.
pub struct Signals {
    /// It is to end.
    pub stop: OwnedFd,
    /// It is to read its file anew.
    pub reload: OwnedFd,
}

/// A gateway.
pub struct Gateway {
    file: File,
    hello: Hello,
    poll: Poll,
    lookup: Lookup<Asker>,
    /// Of places to dial: what others ask for does not keep this gateway from those.
    dialled: Lookup<Asker>,
    places: Vec<SocketAddr>,
    path: PathBuf,
    doors: Vec<TcpListener>,
    closed_until: Option<Instant>,
    callers: HashMap<u64, Caller>,
    next_caller: u64,
    trunks: Vec<Trunk>,
    most: usize,
    began: Instant,
    signals: Signals,
    say: Box<dyn Fn(&str)>,
}

/// Which of two sites dials: who can, and of two that can the one whose key is lower.
fn end_of(file: &File, ours: &site::Token, other: &site::Token) -> Result<End, Error> {
    let dials = !other.dial.is_empty() && (ours.dial.is_empty() || ours.key < other.key);
    if dials {
        let places = other.dial.iter().filter_map(|place| site::check_place(place).ok());
        return Ok(End::Dials(places.map(|(host, port)| (host.to_owned(), port)).collect()));
    }
    let port = file.other(&other.site).port.or(file.port).ok_or_else(|| {
        Error::Rule(format!(
            "neither this site nor {} can be dialled: one of them needs port and reached_at in its file, and the other its token anew",
            other.site
        ))
    })?;
    Ok(End::Waits { port, shared: None })
}

/// Those that wait at the same port share it.
fn share_ports(ends: &mut [(site::Token, End)]) -> Result<(), Error> {
    let mut all: BTreeMap<u16, Vec<&mut Option<SharedPort>>> = BTreeMap::new();
    for (_, end) in ends {
        if let End::Waits { port, shared } = end {
            all.entry(*port).or_default().push(shared);
        }
    }
    for (number, waiting) in all.into_iter().filter(|(_, waiting)| waiting.len() > 1) {
        if waiting.len() > SharedPort::MOST {
            return Err(Error::Rule(format!(
                "{} sites dial port {number}, and at most {} can: give some another port under [to.SITE]",
                waiting.len(),
                SharedPort::MOST
            )));
        }
        let port = SharedPort::default();
        waiting.into_iter().for_each(|shared| *shared = Some(port.clone()));
    }
    Ok(())
}

impl Gateway {
    /// Opens a gateway: its ports, its sessions' endpoints. `say` is told what operators want to know, a sentence each.
    ///
    /// # Errors
    /// What its files say cannot be, or a port is not to be had.
    pub fn open(config: &Config, signals: Signals, say: Box<dyn Fn(&str)>) -> Result<Self, Error> {
        let identity = Identity::read(&config::key_path(&config.path))?;
        let file = config.file.clone();
        let trusted = site::trusted(&config::trusted_path(&config.path))?;
        if trusted.is_empty() {
            say(
                "no site is trusted yet: polyrail gateway trust TOKEN, with the other site's token, and start this anew",
            );
        }
        if trusted.len() > TRUNKS {
            return Err(Error::Rule(format!("{} sites are trusted; at most {TRUNKS}", trusted.len())));
        }
        let poll = Poll::new().map_err(|why| Error::system("waiting for sockets", why))?;
        let waker = || poll.waker().map_err(|why| Error::system("waiting for sockets", why));
        for (fd, token) in [(&signals.stop, Token::Stop), (&signals.reload, Token::Reload)] {
            poll.set(fd.as_fd(), token, None, Some((true, false)))
                .map_err(|why| Error::system("waiting for signals", why))?;
        }
        let ours =
            site::Token { site: file.site.clone(), key: identity.public(), dial: file.reached_at.clone() };
        let mut ends = Vec::new();
        for other in trusted {
            if other.site == file.site {
                return Err(Error::Rule(format!(
                    "a site {} is trusted, but that is what this site is called",
                    other.site
                )));
            }
            let end = end_of(&file, &ours, &other)?;
            ends.push((other, end));
        }
        share_ports(&mut ends)?;
        let mut trunks = Vec::new();
        for (other, end) in ends {
            let listener = if let End::Waits { .. } = end { ours.key } else { other.key };
            let key = identity.key_with(&other, &listener)?;
            trunks.push(Trunk::new(trunks.len(), other, key, end, &file));
        }
        let mut gateway = Self {
            hello: Hello { site: file.site.clone(), networks: file.networks.clone() },
            lookup: Lookup::new(waker()?),
            dialled: Lookup::new(waker()?),
            places: Vec::new(),
            path: config.path.clone(),
            doors: Vec::new(),
            closed_until: None,
            callers: HashMap::new(),
            next_caller: 0,
            trunks,
            most: descriptors().saturating_sub(DESCRIPTORS).max(16) as usize,
            began: Instant::now(),
            signals,
            file,
            poll,
            say,
        };
        gateway.open_doors()?;
        let seen = config::seen(&config.path);
        for trunk in &mut gateway.trunks {
            if let Some(networks) = seen.get(&trunk.other.site) {
                // what of them is no way is said when the site is there
                let _ = trunk.lead_to(networks.clone(), &gateway.file);
            }
        }
        gateway.part_ways();
        gateway.each_trunk(|trunk, around| trunk.begin(around))?;
        Ok(gateway)
    }

    fn open_doors(&mut self) -> Result<(), Error> {
        for at in &self.file.listen {
            let failed =
                |why| Error::system(format!("listening on {at}, which the file says under listen"), why);
            let door = TcpListener::bind(at).map_err(failed)?;
            door.set_nonblocking(true).map_err(failed)?;
            self.doors.push(door);
        }
        self.places = self.doors.iter().filter_map(|door| door.local_addr().ok()).collect();
        self.watch_doors(false, true);
        Ok(())
    }

    /// Sites do not take ways from each other: what several say that they have is that one's which was trusted first.
    fn part_ways(&mut self) {
        for later in 1..self.trunks.len() {
            let (before, rest) = self.trunks.split_at_mut(later);
            let Some(trunk) = rest.first_mut() else { return };
            let taken = |way: &Way| {
                before.iter().find(|other| other.ways.iter().any(|theirs| theirs.seen.meets(&way.seen)))
            };
            for way in &trunk.ways {
                if let Some(other) = taken(way) {
                    (self.say)(&format!(
                        "site {} says that it has {}, which meets what site {} has: it stays with that; under [to.{}] seen_as gives it another name",
                        trunk.other.site, way.seen, other.other.site, trunk.other.site
                    ));
                }
            }
            trunk.ways.retain(|way| taken(way).is_none());
        }
    }

    /// What sites that have just come say that they have.
    fn know_ways(&mut self) {
        let mut fresh = false;
        for trunk in &mut self.trunks {
            fresh |= std::mem::take(&mut trunk.fresh);
        }
        if !fresh {
            return;
        }
        // from anew: what met another's before may be free now
        for trunk in &mut self.trunks {
            let _ = trunk.lead_to(trunk.networks.clone(), &self.file);
        }
        self.part_ways();
        let all = |trunk: &Trunk| (trunk.other.site.clone(), trunk.networks.clone());
        let seen: BTreeMap<String, Vec<Network>> = self.trunks.iter().map(all).collect();
        if seen != config::seen(&self.path)
            && let Err(why) = config::keep_seen(&self.path, &seen)
        {
            (self.say)(&format!("what the sites have will have to be told anew after a restart: {why}"));
        }
    }

    fn watch_doors(&self, before: bool, now: bool) {
        let state = |on: bool| on.then_some((true, false));
        for (number, door) in self.doors.iter().enumerate() {
            // what is not waited for is looked at when a caller goes
            let _ = self.poll.set(door.as_fd(), Token::Door(number), state(before), state(now));
        }
    }

    /// Where programs call it.
    pub fn places(&self) -> &[SocketAddr] {
        &self.places
    }

    fn each_trunk<T>(&mut self, mut what: impl FnMut(&mut Trunk, &Around<'_>) -> T) -> T
    where
        T: Fold,
    {
        let streams: usize = self.trunks.iter().map(Trunk::streams).sum();
        let around = Around {
            poll: &self.poll,
            lookup: &self.lookup,
            dialled: &self.dialled,
            file: &self.file,
            hello: &self.hello,
            now: Instant::now(),
            room: Cell::new(self.most.saturating_sub(streams + self.callers.len())),
            doors: &self.places,
            say: &*self.say,
        };
        self.trunks.iter_mut().fold(T::none(), |before, trunk| before.and(what(trunk, &around)))
    }

    fn one_trunk<T>(&mut self, number: usize, what: impl FnOnce(&mut Trunk, &Around<'_>) -> T) -> Option<T> {
        let mut what = Some(what);
        let mut found = None;
        self.each_trunk(|trunk, around| {
            if trunk.number() == number
                && let Some(what) = what.take()
            {
                found = Some(what(trunk, around));
            }
        });
        found
    }

    /// Runs until told to stop, by the descriptor that was given; then ends in good order.
    ///
    /// # Errors
    /// The system does not let it wait.
    pub fn run(mut self) -> Result<(), Error> {
        let mut ready = Vec::new();
        loop {
            self.each_trunk(|trunk, around| {
                trunk.work(around);
                if trunk.is_due(around.now) {
                    trunk.tick(around);
                    trunk.work(around);
                }
            });
            self.know_ways();
            let due = self.due();
            let most = due.map(|due| due.saturating_duration_since(Instant::now()));
            self.poll.wait(most, &mut ready).map_err(|why| Error::system("waiting for sockets", why))?;
            for (token, what) in ready.drain(..) {
                match token {
                    Token::Door(door) => self.come_in(door),
                    Token::Caller(caller) => self.hear(caller, what),
                    Token::Stream(trunk, stream) => {
                        self.one_trunk(trunk, |trunk, around| trunk.ready(stream, what, around));
                    }
                    Token::Stop => {
                        (self.say)("it ends, as it was told");
                        let until = Instant::now() + LAST_WORDS;
                        self.trunks.iter_mut().for_each(|trunk| trunk.end("it was told to end", until));
                        return Ok(());
                    }
                    Token::Reload => self.renew(),
                    // the work is done above
                    Token::Trunk(_) | Token::Wake => {}
                }
            }
            while let Some(found) = self.lookup.next().or_else(|| self.dialled.next()) {
                match found.who {
                    Asker::Trunk(trunk) => {
                        self.one_trunk(trunk, |trunk, around| trunk.found_places(&found.at, around))
                    }
                    Asker::Stream(trunk, epoch, id) => {
                        self.one_trunk(trunk, |trunk, around| trunk.found(epoch, id, &found, around))
                    }
                };
            }
            self.throw_out();
        }
    }

    /// Reads the file anew. One that cannot be read changes nothing.
    fn renew(&mut self) {
        let mut sink = [0; 64];
        while matches!(
            rustix::net::recv(&self.signals.reload, &mut sink, RecvFlags::DONTWAIT),
            Ok((1.., _)) | Err(Errno::INTR)
        ) {}
        let new = match Config::read(&self.path) {
            Ok(config) => config.file,
            Err(why) => return (self.say)(&format!("the file is not taken, all stays as it was: {why}")),
        };
        let (file, kept) = self.file.renewed(new);
        self.file = file;
        self.each_trunk(|trunk, around| {
            trunk.renew(around);
            let none = trunk.lead_to(trunk.networks.clone(), around.file);
            none.iter().for_each(|why| around.say(why));
            trunk.fresh = true;
        });
        (self.say)("the file was read anew");
        if !kept.is_empty() {
            (self.say)(&format!(
                "what it says of {} is taken when the gateway is started anew",
                kept.join(", ")
            ));
        }
    }

    /// When something is due.
    fn due(&mut self) -> Option<Instant> {
        let trunks = self.trunks.iter_mut().filter_map(Trunk::arm).min();
        let oldest = self.callers.values().map(|caller| caller.since + CALL).min();
        [trunks, oldest, self.closed_until].into_iter().flatten().min()
    }

    /// Callers that took too long go, and the doors open again.
    fn throw_out(&mut self) {
        let now = Instant::now();
        if self.closed_until.is_some_and(|until| until <= now) {
            self.closed_until = None;
            self.watch_doors(false, true);
        }
        if self.callers.is_empty() {
            return;
        }
        self.callers.retain(|_, caller| now < caller.since + CALL);
        while self.callers.len() > CALLERS {
            let oldest = self.callers.iter().min_by_key(|(_, caller)| caller.since).map(|(id, _)| *id);
            oldest.and_then(|id| self.callers.remove(&id));
        }
    }

    fn come_in(&mut self, door: usize) {
        for _ in 0..64 {
            let Some(door) = self.doors.get(door) else { return };
            match door.accept() {
                Ok((socket, from)) => {
                    let streams: usize = self.trunks.iter().map(Trunk::streams).sum();
                    // who may not call is closed without a word, and who has no room as well: it will see a reset
                    if !(self.file.lets_call(from.ip()) || is_local(from.ip()))
                        || streams + self.callers.len() >= self.most
                    {
                        continue;
                    }
                    let id = self.next_caller;
                    self.next_caller += 1;
                    let socket = OwnedFd::from(socket);
                    if self.poll.set(socket.as_fd(), Token::Caller(id), None, Some((true, false))).is_ok() {
                        let caller =
                            Caller { socket, from, since: Instant::now(), said: Vec::new(), greeted: false };
                        self.callers.insert(id, caller);
                    }
                }
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(why)
                    if matches!(
                        Errno::from_io_error(&why),
                        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
                    ) =>
                {
                    self.watch_doors(true, false);
                    self.closed_until = Some(Instant::now() + NO_ROOM);
                    return;
                }
                // of one that has gone again
                Err(_) => {}
            }
        }
    }

    /// A caller said more.
    fn hear(&mut self, id: u64, ready: Ready) {
        let Some(mut caller) = self.callers.remove(&id) else { return };
        let mut room = [0; call::CALL_MAX];
        // no more than the call: what follows is read by the stream
        let left = call::CALL_MAX - caller.said.len();
        match rustix::net::recv(&caller.socket, &mut room[..left], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((0, _)) => {}
            Ok((got, _)) => {
                let before = caller.said.len();
                caller.said.extend_from_slice(&room[..got]);
                self.understand(id, caller, before);
            }
            Err(Errno::AGAIN | Errno::INTR) if !ready.over => _ = self.callers.insert(id, caller),
            Err(_) => {}
        }
    }

    /// What a caller said so far, of which the last bytes are still in its socket.
    fn understand(&mut self, id: u64, mut caller: Caller, taken: usize) {
        let mut at = 0;
        let take = |caller: &Caller, upto: usize| {
            // they are there: they have been looked at
            let mut left = upto.saturating_sub(taken);
            let mut sink = [0; call::CALL_MAX];
            while left > 0 {
                match rustix::net::recv(&caller.socket, &mut sink[..left], RecvFlags::DONTWAIT) {
                    Ok((got @ 1.., _)) => left -= got,
                    _ => break,
                }
            }
        };
        let tell = |caller: &Caller, bytes: &[u8]| {
            // a few bytes into a socket that was never written; a page may be cut short where the reader is slow
            let _ = rustix::net::send(&caller.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        };
        loop {
            match call::read(&caller.said[at..], caller.greeted) {
                Step::More => {
                    take(&caller, caller.said.len());
                    caller.said.drain(..at);
                    self.callers.insert(id, caller);
                    return;
                }
                Step::Answer(bytes, used) => {
                    tell(&caller, bytes);
                    caller.greeted = true;
                    at += used;
                }
                Step::Bad(bytes, _) => {
                    take(&caller, caller.said.len());
                    return tell(&caller, bytes);
                }
                Step::Wants(Call::Show(path), _) => {
                    take(&caller, caller.said.len());
                    // it is not to be heard any more
                    let _ =
                        self.poll.set(caller.socket.as_fd(), Token::Caller(id), Some((true, false)), None);
                    return show(caller, shown::page(self, &path));
                }
                Step::Wants(Call::Connect(to), used) => {
                    take(&caller, at + used);
                    return self.connect(caller, to);
                }
            }
        }
    }

    /// A caller is to be connected.
    fn connect(&mut self, caller: Caller, to: Target) {
        let unwatched = self.poll.set(caller.socket.as_fd(), Token::Caller(0), Some((true, false)), None);
        let refuse = |socket: &OwnedFd, reason| {
            let _ = rustix::net::send(
                socket,
                &call::reply(Err(reason)),
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            );
        };
        let Some((number, to)) = self.way(&to).filter(|_| unwatched.is_ok()) else {
            return refuse(&caller.socket, Reason::NotAllowed);
        };
        // an address that its host has for itself says nothing to others
        let from = SocketAddr::new(plain(caller.from.ip()), caller.from.port());
        let wish = Wish { to, from: (!from.ip().is_loopback() || self.is_ours(from)).then_some(from) };
        let Caller { socket, .. } = caller;
        if let Some(Err(socket)) = self.one_trunk(number, |trunk, around| trunk.call(socket, wish, around)) {
            refuse(&socket, Reason::Down);
        }
    }

    /// Whether an address is of this site.
    fn is_ours(&self, at: SocketAddr) -> bool {
        self.file.networks.iter().any(|network| network.has(at.ip()))
    }

    /// Who is behind a connection of this gateway's from that address, as programs here know it.
    fn behind(&self, near: SocketAddr) -> Option<SocketAddr> {
        let (trunk, from) = self.trunks.iter().find_map(|trunk| Some((trunk, trunk.behind(near)?)))?;
        let seen = trunk.ways.iter().find_map(|way| way.real.mapped(from.ip(), &way.seen));
        Some(SocketAddr::new(seen.unwrap_or(from.ip()), from.port()))
    }

    /// Which site a target is at, and what that calls it.
    fn way(&self, to: &Target) -> Option<(usize, Target)> {
        match to {
            Target::At(at) => {
                let ways =
                    self.trunks.iter().flat_map(|trunk| trunk.ways.iter().map(move |way| (trunk, way)));
                let found = ways.filter_map(|(trunk, way)| {
                    Some((trunk, way.seen.prefix(), way.seen.mapped(at.ip(), &way.real)?))
                });
                let (trunk, _, ip) = found.max_by_key(|(_, prefix, _)| *prefix)?;
                Some((trunk.number(), Target::At((ip, at.port()).into())))
            }
            Target::Named(name, port) => {
                // node5.west is what west calls node5
                let (name, site) = name.rsplit_once('.')?;
                let trunk = self.trunks.iter().find(|trunk| trunk.other.site == site)?;
                Some((trunk.number(), Target::named(name, *port).ok()?))
            }
        }
    }

    /// What becomes of connections to a site that is away.
    fn when_down(&self, site: &str) -> WhenDown {
        self.file.other(site).when_down
    }
}

/// Sends a page, which may be longer than a socket takes at once, by a thread of its own.
fn show(caller: Caller, page: Vec<u8>) {
    let mut socket = TcpStream::from(caller.socket);
    let send = move || {
        // who does not take it in time does without
        let ready = socket.set_nonblocking(false).and_then(|()| socket.set_write_timeout(Some(CALL)));
        let _ = ready.and_then(|()| socket.write_all(&page));
    };
    let _ = thread::Builder::new().name("page".into()).stack_size(256 << 10).spawn(send);
}

/// Whether an address is one of this host's: of others nobody can send here.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// How outcomes of all trunks become one.
trait Fold {
    fn none() -> Self;
    fn and(self, next: Self) -> Self;
}

impl Fold for () {
    fn none() -> Self {}
    fn and(self, (): Self) -> Self {}
}

impl Fold for Result<(), Error> {
    fn none() -> Self {
        Ok(())
    }

    fn and(self, next: Self) -> Self {
        Result::and(self, next)
    }
}

/// Descriptors that this process may have: as many as it may ask for.
fn descriptors() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: maximum, maximum };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => maximum,
        Err(_) => current,
    }
    .unwrap_or(1 << 20)
}
