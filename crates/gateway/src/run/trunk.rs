//! The session to one other site: dialling and waiting, greeting, what is sent by it in which order, its end. `streams` has what is on it.

mod streams;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::Key;
use polyrail_rails::config::SharedPort;
use polyrail_rails::list::{RailId, RailSet, Reach};
use polyrail_rails::mailbox::{Done, Mailbox};
use polyrail_rails::worker::LaneReport;
use polyrail_rails::{Issued, Refused, named};
use rustix::net::{AddressFamily, SocketType};

use super::Around;
use super::poll::Token;
use super::stream::{Phase, Received, Stream};
use crate::classes::{Kind, Shares};
use crate::config::{self, Way};
use crate::error::Error;
use crate::flow::{self, Broken};
use crate::net;
use crate::site;
use crate::wire::{Hello, MESSAGE_MAX, Message, Reason, TAG, VERSION};

/// Messages for which there is room before they come.
const RECEIVES: usize = 64;
/// Bytes that wait to leave, above which only streams that send little are read; and twice of which none.
const FULL: usize = 1 << 18;
/// A read of less makes a stream one that sends little.
const LITTLE: usize = 4096;
/// Reads of those in a row, while others wait.
const LITTLE_TURNS: u32 = 16;
/// Most bytes of a stream in one message: its frame fills four encrypted records, of which the kernel takes 64 KiB at once.
const READ: usize = 65_416;
/// Buffers kept for later.
const SPARE: usize = 128;
/// Bytes held for programs above which new streams get little room.
const HELD_MUCH: u64 = 256 << 20;
/// With how many bytes a new session finds out what its way carries, for how long at most, and how many at a time: congestion control knows nothing of a way
/// by which little was sent, and would send the first long message at the rate of that.
const WARM: (usize, Duration, usize) = (24 << 20, Duration::from_secs(2), 1 << 20);
/// How often it is looked whether that can go on.
const WARMING: Duration = Duration::from_millis(1);
/// How often the other gateway hears that this one is there, where it hears nothing else.
const HERE: Duration = Duration::from_secs(10);
/// How long nothing comes from a gateway that is there, at least: as long as a silent network is believed.
const SILENCE: Duration = Duration::from_secs(45);
/// How long a gateway whose session ends may take to take what it was sent last.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Messages that wait, above which programs are told that there is no way; and above which the other gateway is one that asks and does not read.
const WAITING: (usize, usize) = (10_000, 100_000);
/// Streams above which new ones get little room, and above which none gets more than at first.
const STREAMS: (usize, usize) = (512, 64);
/// How long a gateway that was dialled may take to say who it is.
const GREETING: Duration = Duration::from_secs(20);
/// Between attempts to dial: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// Eager bytes of the session that may be under way: what a second carries at 256 Mb/s, or 20 ms at 12 Gb/s.
const WINDOW: usize = 32 << 20;

/// Which of the two dials.
#[derive(Clone, Debug)]
pub enum End {
    /// This one, at these places.
    Dials(Vec<(String, u16)>),
    /// The other; this one waits.
    Waits {
        /// At this port.
        port: u16,
        /// Where it waits for several there.
        shared: Option<SharedPort>,
    },
}

/// What happened, in numbers.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// Connections wanted by programs here.
    pub asked: u64,
    /// Connections made here for the other site.
    pub joined: u64,
    /// Wanted, here or there, and not made.
    pub refused: u64,
    /// Ended by a reset.
    pub reset: u64,
    /// Bytes of streams sent to the other site.
    pub sent: u64,
    /// Bytes of streams that came from there and were given to programs.
    pub received: u64,
    /// Times that the session was lost.
    pub losses: u64,
}

/// One.
pub struct Trunk {
    number: usize,
    /// The other site.
    pub other: site::Token,
    key: Key,
    /// Who dials.
    pub end: End,
    mailbox: Option<Mailbox>,
    watched: bool,
    /// The other gateway, once it has said who it is.
    peer: Option<PeerIdx>,
    /// It, while it is dialled.
    dialled: Option<PeerIdx>,
    deadline: Option<Instant>,
    retry: Duration,
    retry_at: Option<Instant>,
    turn: usize,
    /// Since when the session stands.
    pub since: Option<Instant>,
    /// Why it does not.
    pub why: String,
    /// Ways to its networks, also while it is away.
    pub ways: Vec<Way>,
    streams: HashMap<u64, Stream>,
    /// Whose target's name is being found out.
    looked_up: HashMap<u64, (u64, Option<SocketAddr>)>,
    next: u64,
    outbox: VecDeque<Arc<[u8]>>,
    under_way: usize,
    spare: Vec<Arc<[u8]>>,
    /// For what comes.
    spare_in: Vec<Vec<u8>>,
    /// Whose turn it is to be read.
    shares: Shares,
    turns: u32,
    touched: Vec<u64>,
    held: u64,
    wide: flow::Wide,
    said_here: Instant,
    /// How much is still to be sent so that the way is known, and until when.
    warm: (usize, Instant),
    filler: Arc<[u8]>,
    heard: Instant,
    silence: Duration,
    /// Sessions so far.
    epoch: u64,
    /// Its ways have just been told.
    pub fresh: bool,
    /// What the other site said that it has.
    pub networks: Vec<net::Network>,
    /// What happened.
    pub counts: Counts,
}

/// The session is to end, for this reason.
struct Over(String);

impl From<Broken> for Over {
    fn from(why: Broken) -> Self {
        Self(format!("it said what cannot be: {why}"))
    }
}

impl Trunk {
    /// The one to a site, whose key with it this is.
    pub fn new(number: usize, other: site::Token, key: Key, end: End, file: &config::File) -> Self {
        let shares = streams::shares(file, &other.site, Instant::now());
        let next = u64::from(matches!(end, End::Waits { .. }));
        Self {
            number,
            other,
            key,
            end,
            mailbox: None,
            watched: false,
            peer: None,
            dialled: None,
            deadline: None,
            retry: RETRY.0,
            retry_at: None,
            turn: 0,
            since: None,
            why: "it has not come yet".into(),
            ways: Vec::new(),
            streams: HashMap::new(),
            looked_up: HashMap::new(),
            next,
            outbox: VecDeque::new(),
            under_way: 0,
            spare: Vec::new(),
            spare_in: Vec::new(),
            shares,
            turns: 0,
            touched: Vec::new(),
            held: 0,
            wide: flow::Wide::default(),
            said_here: Instant::now(),
            warm: (0, Instant::now()),
            filler: Message::Here { filler: READ }.to_bytes().into(),
            heard: Instant::now(),
            silence: SILENCE,
            epoch: 0,
            fresh: false,
            networks: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Waits for the other gateway, or begins to dial it.
    ///
    /// # Errors
    /// The endpoint does not open.
    pub fn begin(&mut self, around: &Around) -> Result<(), Error> {
        match self.end {
            End::Waits { .. } => self.wait(around),
            End::Dials(_) => {
                self.retry_at = Some(around.now);
                Ok(())
            }
        }
    }

    /// Listens for the other gateway.
    fn wait(&mut self, around: &Around) -> Result<(), Error> {
        let mut settings = self.settings(around)?;
        if let End::Waits { port, shared } = &self.end {
            (settings.key, settings.port) = (Some(self.key), *port);
            settings.shared_port.clone_from(shared);
            if shared.is_some() && !settings.rails.has(RailId::Tcp) {
                return Err(Error::Rule(format!(
                    "several sites dial port {port}, which takes TCP, and POLYRAIL_RAILS leaves that out: give each a port of its own under [to.SITE]"
                )));
            }
        }
        self.open(settings, around)
    }

    fn settings(&self, around: &Around) -> Result<polyrail_rails::Config, Error> {
        session(around.file.other(&self.other.site).connections.unwrap_or(1).into())
    }

    fn open(&mut self, settings: polyrail_rails::Config, around: &Around) -> Result<(), Error> {
        self.silence = SILENCE.max(settings.peer_timeout);
        let mut mailbox = Mailbox::open(settings)?;
        for _ in 0..RECEIVES {
            mailbox.recv(None, TAG, vec![0; MESSAGE_MAX]);
        }
        self.mailbox = Some(mailbox);
        self.watch(around, true)
    }

    /// Has the loop hear of the endpoint, or hear of it no more.
    fn watch(&mut self, around: &Around, wanted: bool) -> Result<(), Error> {
        let Some(mailbox) = &self.mailbox else { return Ok(()) };
        if wanted == self.watched {
            return Ok(());
        }
        let state = |on: bool| on.then_some((true, false));
        around
            .poll
            .set(mailbox.wait_fd(), Token::Trunk(self.number), state(self.watched), state(wanted))
            .map_err(|why| Error::system("watching an endpoint", why))?;
        self.watched = wanted;
        Ok(())
    }

    /// Which of the gateway's it is.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Streams that there are.
    pub fn streams(&self) -> usize {
        self.streams.len() + self.looked_up.len()
    }

    /// Bytes that wait here, for the other gateway and for programs.
    pub fn waiting(&self) -> (usize, u64) {
        (self.under_way + self.outbox.iter().map(|bytes| bytes.len()).sum::<usize>(), self.held)
    }

    /// Whether the session stands.
    pub fn is_up(&self) -> bool {
        self.peer.is_some()
    }

    /// Who is behind the connection from that address of this host, in its site's words.
    pub fn behind(&self, near: SocketAddr) -> Option<SocketAddr> {
        self.streams
            .values()
            .find_map(|stream| stream.behind.filter(|(ours, _)| *ours == near))
            .map(|(_, from)| from)
    }

    /// What the classes of its streams do.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The endpoint and the peer, for who wants to show them.
    pub fn session(&self) -> Option<(&Mailbox, PeerIdx)> {
        Some((self.mailbox.as_ref()?, self.peer?))
    }

    /// How long a round trip to the other gateway takes, in microseconds.
    pub fn round_trip_us(&self) -> Option<u32> {
        let (mailbox, peer) = self.session()?;
        let lanes = mailbox.worker().lanes(peer);
        // not what waits on the way at the moment: endpoints ask once
        let of = |lane: &LaneReport| if lane.min_rtt > 0 { lane.min_rtt } else { lane.rtt };
        let nanos = lanes.iter().map(of).filter(|rtt| *rtt > 0).min()?;
        u32::try_from(nanos / 1000).ok()
    }

    /// The names of places to dial have been found out.
    pub fn found_places(&mut self, at: &[SocketAddr], around: &Around) {
        if self.mailbox.is_some() {
            return;
        }
        self.retry_at = None;
        let dialled = self.dial(at, around);
        if let Err(why) = dialled {
            self.lose(&why.to_string(), around);
        }
    }

    fn dial(&mut self, at: &[SocketAddr], around: &Around) -> Result<(), Error> {
        let ports: Vec<u16> = at.iter().map(SocketAddr::port).collect();
        // an address has one port: those that have others are tried in turn
        let Some(&port) = ports.get(self.turn % ports.len().max(1)) else {
            return Err(Error::Rule("none of its names has an address".into()));
        };
        self.turn += 1;
        let at: Vec<SocketAddr> = at.iter().filter(|at| at.port() == port).copied().collect();
        let address = named::address_of_key(&self.key, port, &at)?;
        self.open(self.settings(around)?, around)?;
        let Some(mailbox) = &mut self.mailbox else { return Ok(()) };
        let peer = mailbox.peer(&address.to_bytes())?;
        // nothing comes by it but the end
        mailbox.recv(Some(peer), TAG + 1, Vec::new());
        self.dialled = Some(peer);
        self.deadline = Some(around.now + GREETING);
        self.send_message(&Message::Hello { version: VERSION, hello: around.hello.clone() });
        Ok(())
    }

    /// Whom messages go to.
    fn peer(&self) -> Option<PeerIdx> {
        self.peer.or(self.dialled)
    }

    /// Moves what can be moved.
    pub fn work(&mut self, around: &Around) {
        let Some(mailbox) = &mut self.mailbox else { return };
        mailbox.progress();
        let mut over = None;
        while over.is_none()
            && let Some(done) = self.mailbox.as_mut().and_then(Mailbox::next_done)
        {
            over = self.done(done, around).err();
        }
        let over = over.or_else(|| self.pump(around).err());
        if let Some(Over(why)) = over {
            self.lose(&why, around);
        }
        self.settle(around);
    }

    fn done(&mut self, done: Done, around: &Around) -> Result<(), Over> {
        match done {
            Done::Sent { bytes, outcome } => {
                self.under_way = self.under_way.saturating_sub(bytes.len());
                self.keep(bytes);
                if outcome.is_err() && !self.is_reached() {
                    return Err(self.gone());
                }
            }
            Done::Received { buffer, .. } if buffer.is_empty() => {
                // what was waited for in vain, of one whose session has ended
                if !self.is_reached() {
                    return Err(self.gone());
                }
            }
            Done::Received { from: Some(from), buffer, outcome: Ok((len, cut)) } => {
                if cut {
                    return Err(Over("it sent a longer message than there are".into()));
                }
                return self.received(from, buffer, len, around);
            }
            Done::Received { buffer, .. } => self.again(buffer),
        }
        Ok(())
    }

    /// Whether the other gateway is still there, as far as is known.
    fn is_reached(&self) -> bool {
        match (&self.mailbox, self.peer) {
            (Some(mailbox), Some(peer)) => mailbox.worker().is_connected(peer),
            (Some(mailbox), None) => {
                self.dialled.is_some_and(|peer| mailbox.worker().why(peer).is_none())
                    || self.dialled.is_none()
            }
            (None, _) => false,
        }
    }

    fn gone(&self) -> Over {
        let why = self.peer().and_then(|peer| self.mailbox.as_ref()?.worker().why(peer));
        Over(why.unwrap_or("its session has ended").to_owned())
    }

    fn again(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() < MESSAGE_MAX {
            buffer = self.spare_in.pop().unwrap_or_else(|| Vec::with_capacity(MESSAGE_MAX));
        }
        buffer.resize(MESSAGE_MAX, 0);
        if let Some(mailbox) = &mut self.mailbox {
            mailbox.recv(None, TAG, buffer);
        }
    }

    fn received(&mut self, from: PeerIdx, buffer: Vec<u8>, len: usize, around: &Around) -> Result<(), Over> {
        let message = Message::parse(buffer.get(..len).unwrap_or_default());
        let is_ours = self.peer == Some(from);
        if is_ours {
            self.heard = around.now;
        }
        if self.outbox.len() > WAITING.1 {
            return Err(Over("it asks, and does not take what it is told".into()));
        }
        let end = match message {
            Ok(Message::Data { stream, offset, .. }) if is_ours => {
                let (piece, rest) = Received::of(buffer, len);
                // a fresh one where this one is kept
                self.again(rest.unwrap_or_default());
                return self.data(stream, offset, piece, around);
            }
            Ok(Message::Hello { version, hello }) => self.greeted(from, version, &hello, around),
            Ok(Message::Bye { why }) if self.dialled == Some(from) => Err(Over(format!("it says: {why}"))),
            // of one that is not (any more) the one that this session is with: late, or early
            _ if !is_ours => Ok(()),
            Ok(message) => self.told(&message, around),
            Err(why) => Err(Over(format!("it sent {why}"))),
        };
        self.again(buffer);
        end
    }

    /// The other gateway says who it is: the session stands.
    fn greeted(&mut self, from: PeerIdx, version: u64, hello: &Hello, around: &Around) -> Result<(), Over> {
        let waits = matches!(self.end, End::Waits { .. });
        if !waits && self.dialled != Some(from) {
            return Ok(());
        }
        let refused = if version != VERSION {
            Some(format!("it speaks version {version} of the gateways' protocol, this one version {VERSION}"))
        } else if hello.site != self.other.site {
            Some(format!("it calls itself {}, and is trusted as {}", hello.site, self.other.site))
        } else {
            None
        };
        if waits {
            if self.peer.is_some_and(|old| old != from) {
                // the old session's endpoint goes, and the new one with it: it will dial again
                return Err(Over("it began anew".into()));
            }
            self.peer = Some(from);
            let ours = around.hello.clone();
            self.send_message(&Message::Hello { version: VERSION, hello: ours });
        }
        if let Some(why) = refused {
            return Err(Over(why));
        }
        if self.since.is_some() && self.peer == Some(from) {
            return Err(Over("it greeted twice".into()));
        }
        (self.peer, self.deadline) = (Some(from), None);
        (self.since, self.retry) = (Some(around.now), RETRY.0);
        self.heard = around.now;
        // who may not send more than so much is not to find out how much more there is
        let warm = if self.shares.limit().is_none() { WARM.0 } else { 0 };
        self.warm = (warm, around.now + WARM.1);
        if let Some(mailbox) = self.mailbox.as_mut().filter(|_| waits) {
            // nothing comes by it but the end
            mailbox.recv(Some(from), TAG + 1, Vec::new());
        }
        let none = self.lead_to(hello.networks.clone(), around.file);
        let names: Vec<String> = self.ways.iter().map(|way| way.seen.to_string()).collect();
        around.say(&format!(
            "site {} is there, with {}",
            self.other.site,
            match names.is_empty() {
                true => "no networks".to_owned(),
                false => names.join(", "),
            }
        ));
        none.iter().for_each(|why| around.say(why));
        self.fresh = true;
        Ok(())
    }

    /// The other site has these networks. What of them is no way, a sentence each.
    pub fn lead_to(&mut self, networks: Vec<net::Network>, file: &config::File) -> Vec<String> {
        let (ways, none) = config::ways(file, &self.other.site, &networks);
        (self.ways, self.networks) = (ways, networks);
        none
    }

    /// Sends what waits, and what streams have to send, as long as there is room.
    fn pump(&mut self, around: &Around) -> Result<(), Over> {
        loop {
            while let Some(bytes) = self.outbox.pop_front() {
                let len = bytes.len();
                if let Some(bytes) = self.give(bytes, len)? {
                    // the session says when there is room again
                    self.outbox.push_front(bytes);
                    return Ok(());
                }
            }
            let bulk_first = self.turns >= LITTLE_TURNS && self.under_way < FULL;
            let kinds: &[Kind] = match (bulk_first, self.under_way) {
                _ if !self.is_up() => &[],
                (true, _) => &[Kind::Bulk, Kind::Little],
                (false, ..FULL) => &[Kind::Little, Kind::Bulk],
                (false, waits) if waits < 2 * FULL => &[Kind::Little],
                _ => &[],
            };
            let Some(id) = self.shares.next(around.now, kinds) else { return self.warm_up() };
            self.turns = if bulk_first { 0 } else { self.turns + 1 };
            // what it has to say besides is sent before the next one's turn
            self.read(id, around)?;
        }
    }

    /// Sends what means nothing, where nothing waits that means something, until the way is known.
    fn warm_up(&mut self) -> Result<(), Over> {
        if self.warm.0 == 0 || !self.is_up() {
            return Ok(());
        }
        let mut now = WARM.2.min(self.warm.0);
        while now > 0 && self.under_way == 0 {
            let (bytes, len) = (self.filler.clone(), self.filler.len());
            if self.give(bytes, len)?.is_some() {
                break;
            }
            now = now.saturating_sub(len);
            self.warm.0 = self.warm.0.saturating_sub(len);
        }
        Ok(())
    }

    fn keep(&mut self, mut bytes: Arc<[u8]>) {
        if bytes.len() == MESSAGE_MAX && self.spare.len() < SPARE && Arc::get_mut(&mut bytes).is_some() {
            self.spare.push(bytes);
        }
    }

    /// Gives a message to the session; it comes back if that has no room.
    fn give(&mut self, bytes: Arc<[u8]>, len: usize) -> Result<Option<Arc<[u8]>>, Over> {
        let (Some(peer), Some(mailbox)) = (self.peer(), &mut self.mailbox) else { return Ok(None) };
        match mailbox.send_part(peer, TAG, &bytes, len) {
            Ok(Issued::Done) => self.keep(bytes),
            Ok(Issued::Pending(_)) => self.under_way += bytes.len(),
            Err(Refused::Again) => return Ok(Some(bytes)),
            Err(Refused::Gone) => return Err(self.gone()),
        }
        Ok(None)
    }

    /// Sends a short message, in its turn. (That the session has ended is seen where all sends are.)
    fn send_message(&mut self, message: &Message<'_>) {
        self.outbox.push_back(message.to_bytes().into());
    }

    /// When something is due by the clock.
    fn due(&self) -> Option<Instant> {
        let here = self.is_up().then(|| (self.said_here + HERE).min(self.heard + self.silence));
        let warm = (self.warm.0 > 0).then_some(self.warm.1);
        [here, warm, self.deadline, self.retry_at].into_iter().flatten().min()
    }

    /// Whether something is.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// When it wants to be looked at again; at once: there is something to do.
    pub fn arm(&mut self) -> Option<Instant> {
        let warming = (self.is_up() && self.warm.0 > 0).then(|| Instant::now() + WARMING);
        // what a limit holds back
        let held = self.shares.due(Instant::now()).filter(|_| self.is_up() && self.under_way < FULL);
        let due = self.due().into_iter().chain(warming).chain(held).min();
        let sleeps = self.mailbox.as_mut().is_none_or(Mailbox::arm);
        if sleeps { due } else { Some(Instant::now()) }
    }

    /// Does what is due, of what has been read already.
    pub fn tick(&mut self, around: &Around) {
        if around.now >= self.warm.1 {
            self.warm.0 = 0;
        }
        if self.deadline.is_some_and(|deadline| deadline <= around.now) {
            let waited = GREETING.as_secs();
            self.lose(&format!("it did not answer within {waited} seconds"), around);
        }
        if self.is_up() && self.heard + self.silence <= around.now {
            self.lose("nothing comes from it any more", around);
        }
        if self.is_up() && self.said_here + HERE <= around.now {
            self.said_here = around.now;
            self.send_message(&Message::Here { filler: 0 });
        }
        if self.retry_at.is_some_and(|at| at <= around.now) {
            match &self.end {
                End::Dials(places) => {
                    let begun = around.dialled.begin(super::Asker::Trunk(self.number), places.clone());
                    self.retry_at = if begun { None } else { Some(around.now + RETRY.0) };
                }
                End::Waits { .. } => self.wait_again(around),
            }
        }
    }

    /// The session is over: so are its streams. If this side dials, it will again.
    fn lose(&mut self, why: &str, around: &Around) {
        let was_up = self.since.take().is_some();
        if was_up || self.why != why {
            let what = if was_up { "is lost" } else { "is not reached" };
            around.say(&format!("site {} {what}: {why}", self.other.site));
        }
        self.why = why.to_owned();
        self.counts.losses += u64::from(was_up);
        let ids: Vec<u64> = self.streams.keys().copied().collect();
        for id in ids {
            match self.streams.get(&id).map(|stream| stream.phase) {
                Some(Phase::Asked) => self.refuse(id, Reason::Down, around),
                _ => self.drop_stream(id, true, around),
            }
        }
        self.looked_up.clear();
        self.shares.clear();
        self.outbox.clear();
        self.epoch += 1;
        // it is not to go on with what is over here, and may know why; of one that is not there nothing is waited for
        let is_there = self.peer().is_some_and(|peer| {
            self.mailbox.as_ref().is_some_and(|mailbox| mailbox.worker().is_connected(peer))
        });
        if is_there {
            let bytes: Arc<[u8]> = Message::Bye { why }.to_bytes().into();
            let len = bytes.len();
            let _ = self.give(bytes, len);
        }
        (self.peer, self.dialled, self.deadline) = (None, None, None);
        // its descriptor is of no use any more, whether or not that could be said
        let _ = self.watch(around, false);
        self.watched = false;
        if let Some(mut mailbox) = self.mailbox.take() {
            mailbox.close(if is_there { LAST_WORDS } else { Duration::ZERO });
        }
        (self.under_way, self.warm.0) = (0, 0);
        self.retry_at = Some(around.now + self.retry);
        if let End::Dials(_) = self.end {
            self.retry = (self.retry * 2).min(RETRY.1);
        } else {
            self.wait_again(around);
        }
    }

    /// Waits for the other gateway, which is to dial; if that cannot be, later.
    fn wait_again(&mut self, around: &Around) {
        self.retry_at = None;
        if let Err(why) = self.wait(around) {
            around.say(&format!("site {} cannot be waited for: {why}", self.other.site));
            self.mailbox = None;
            self.watched = false;
            self.retry_at = Some(around.now + RETRY.1);
        }
    }

    /// Ends in good order: the other gateway is told, and may take what it was sent until then.
    pub fn end(&mut self, why: &str, until: Instant) {
        // their sockets are closed as what did not end: by a reset
        self.streams.clear();
        if self.is_up() {
            self.send_message(&Message::Bye { why });
            while let Some(bytes) = self.outbox.pop_front() {
                let len = bytes.len();
                if !matches!(self.give(bytes, len), Ok(None)) {
                    break;
                }
            }
        }
        if let Some(mut mailbox) = self.mailbox.take() {
            mailbox.close(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// Settings of the session's endpoint: those of the environment, but always encrypted, over networks alone.
fn session(connections: usize) -> Result<polyrail_rails::Config, Error> {
    let mut config = polyrail_rails::Config::from_env()?;
    config.rails = config.rails.without(Reach::Host);
    config.encrypt = true;
    config.secret = polyrail_rails::config::SecretFile::None;
    (config.key, config.port, config.named) = (None, 0, None);
    config.connections_least = connections;
    config.attends = true;
    (config.connections, config.lanes) = (config.connections.max(connections), config.lanes.max(connections));
    config.window = config.window.max(WINDOW);
    config.sleep_after = None;
    // the other gateway is called directly
    config.gateway = None;
    let far = far_congestion();
    if far.is_some() && config.congestion.is_none() && config.rails == RailSet::ALL.without(Reach::Host) {
        // beside BBR UDP carries no more, and after rests and on short connections less (docs/decisions/0041)
        config.rails = RailSet::NONE.with(RailId::Tcp);
    }
    config.congestion = config.congestion.or(far);
    Ok(config)
}

/// The congestion control that suits long ways best, if this user may choose it: one that losses do not stop, nor rest.
pub fn far_congestion() -> Option<String> {
    const BEST: &str = "bbr";
    let family = |family| rustix::net::socket(family, SocketType::STREAM, None).ok();
    let socket = family(AddressFamily::INET).or_else(|| family(AddressFamily::INET6))?;
    rustix::net::sockopt::set_tcp_congestion(&socket, BEST).is_ok().then(|| BEST.to_owned())
}
