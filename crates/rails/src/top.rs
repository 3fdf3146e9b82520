//! What running endpoints tell of themselves: the documents that workers answer with, and how to ask for them (`polyrail top`).
//!
//! Each worker listens on a Unix socket in the abstract namespace, `polyrail-top-` and its identity, and answers a connection of
//! its own user or root with one JSON document, a [`Snapshot`], when it next makes progress. All that is said here about other
//! processes is what they say: documents have a bounded length, and names come without control characters.

use crate::bounded::{FEW, bounded};
use crate::events::{Protocol, Record, Side};
use crate::report::Carried;
use crate::sockets::unix;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What the names of the sockets begin with.
pub const PREFIX: &str = "polyrail-top-";
/// The version of [`Snapshot`].
pub const VERSION: u32 = 1;
/// The longest document that is read, and how long all of one asking may be together, in bytes.
pub const DOCUMENT_MAX: usize = 2 << 20;
const ALL_MAX: usize = 64 << 20;
/// Longest lists that are read.
const PEERS_MAX: usize = 256;
const LANES_MAX: usize = 64;
const EVENTS_MAX: usize = 64;
const COLLECTIVES_MAX: usize = 256;
/// Most endpoints that are asked.
const ENDPOINTS_MAX: usize = 1024;
/// How long a document that has begun to come may take.
const TRANSFER: Duration = Duration::from_secs(1);

/// A lane as it is at one moment. Counts are of its whole life; who wants rates takes two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lane {
    /// Its number in the session.
    pub number: u16,
    /// Its rail, which may be another than that of the first lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rail: Option<String>,
    /// This side's interface and address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near: Option<Side>,
    /// The other side's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<Side>,
    /// Bytes that were sent and, by TCP, acknowledged by the peer's kernel.
    pub sent_bytes: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// Bytes that were given to the lane and are not acknowledged.
    pub queued_bytes: u64,
    /// What it gets through, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<u64>,
    /// Whether that was measured, not only claimed by the interfaces.
    pub measured: bool,
    /// Round trip, smoothed, as the kernel measures it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// Packets with data that were sent.
    pub packets: u64,
    /// Packets that were sent again.
    pub retransmitted: u64,
    /// Packets that count as lost at this moment.
    pub lost: u64,
    /// Whether small messages go by it.
    pub small: bool,
    /// Whether what travels by it is encrypted.
    pub encrypted: bool,
    /// The composition of micro-protocols in force, by UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composition: Option<String>,
    /// Why that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composition_why: Option<String>,
    /// The kernel's congestion control, by TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
}

/// A pair of interfaces between which there is no lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Closed {
    /// This side's interface and address.
    pub near: Side,
    /// The other side's.
    pub far: Side,
    /// Why, in a sentence.
    pub why: String,
}

/// A peer that is connected, or that was and is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Peer {
    /// The first eight digits of its identity.
    pub id: String,
    /// Where it listens; empty while that is not known.
    #[serde(deserialize_with = "bounded::<_, _, FEW>")]
    pub addresses: Vec<String>,
    /// The rail: shm, tcp or udp; none while not connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rail: Option<String>,
    /// Protocol per size.
    #[serde(deserialize_with = "bounded::<_, _, FEW>")]
    pub protocols: Vec<Protocol>,
    /// Why it was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Bytes that this process has read from its memory directly (RGET).
    pub direct_read_bytes: u64,
    /// Bytes that this process has written to its memory directly (RPUT).
    pub direct_written_bytes: u64,
    /// What carries messages: one for shared memory.
    #[serde(deserialize_with = "bounded::<_, _, LANES_MAX>")]
    pub lanes: Vec<Lane>,
    /// Where there could be lanes, and are none.
    #[serde(deserialize_with = "bounded::<_, _, LANES_MAX>")]
    pub closed: Vec<Closed>,
}

/// Collective operations that went one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Collective {
    /// MPI's name of it.
    pub operation: String,
    /// How it was carried out.
    pub algorithm: String,
    /// Why that way.
    pub why: String,
    /// How often.
    pub calls: u64,
    /// Of how many bytes of this rank, all together.
    pub bytes: u64,
}

impl Collective {
    /// Reads what the companion of an MPI program says of all.
    pub fn parse(document: &[u8]) -> Vec<Self> {
        serde_json::from_slice(document).unwrap_or_default()
    }
}

/// Who knows of collective operations in this process.
static COLLECTIVES: OnceLock<Box<dyn Fn() -> Vec<u8> + Send + Sync>> = OnceLock::new();

/// From now on snapshots have what this says, which [`Collective::parse`] reads. It is asked once for each, on whichever thread.
pub fn tell_collectives(tell: impl Fn() -> Vec<u8> + Send + Sync + 'static) {
    // a process has one companion
    let _ = COLLECTIVES.set(Box::new(tell));
}

/// What is known of them.
pub(crate) fn collectives() -> Vec<Collective> {
    COLLECTIVES.get().map(|tell| Collective::parse(&tell())).unwrap_or_default()
}

/// An endpoint at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// [`VERSION`]; another one means that fields mean something else.
    pub v: u32,
    /// When: RFC 3339, UTC, microseconds.
    pub time: String,
    /// A clock that does not jump, for rates.
    pub clock_us: u64,
    /// The process.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// Its host's name.
    pub host: String,
    /// The endpoint: the first eight digits of its identity.
    pub endpoint: String,
    /// Its peers, but itself.
    #[serde(deserialize_with = "bounded::<_, _, PEERS_MAX>")]
    pub peers: Vec<Peer>,
    /// How many more there are, which are left out.
    pub peers_left_out: u64,
    /// Which way the process's collective operations went: the same at each of its endpoints.
    #[serde(deserialize_with = "bounded::<_, _, COLLECTIVES_MAX>", skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<Collective>,
    /// The last events, oldest first.
    #[serde(deserialize_with = "bounded::<_, _, EVENTS_MAX>")]
    pub events: Vec<Record>,
}

impl Snapshot {
    /// What went by the endpoint, as far as it is known: links that ended have taken their counts with them.
    pub fn carried(&self) -> Carried {
        let mut carried = Carried { peers: self.peers_left_out, ..Carried::default() };
        let mut rails: Vec<&str> = Vec::new();
        for peer in &self.peers {
            carried.peers += 1;
            let lanes = peer.lanes.iter();
            let (sent, received) =
                lanes.fold((peer.direct_written_bytes, peer.direct_read_bytes), |sum, lane| {
                    (sum.0.saturating_add(lane.sent_bytes), sum.1.saturating_add(lane.received_bytes))
                });
            carried.bytes.0 = carried.bytes.0.saturating_add(sent);
            carried.bytes.1 = carried.bytes.1.saturating_add(received);
            rails.extend(peer.rail.as_deref().filter(|rail| !rails.contains(rail)));
        }
        rails.sort_unstable();
        carried.rails = rails.join(", ");
        carried
    }

    /// Reads a document.
    ///
    /// # Errors
    /// It is none, or of another version.
    pub fn parse(document: &[u8]) -> Result<Self, String> {
        if document.len() > DOCUMENT_MAX {
            return Err("the document is too long".into());
        }
        let mut found: Self = serde_json::from_slice(document).map_err(|why| why.to_string())?;
        if found.v != VERSION {
            return Err(format!(
                "it speaks version {} of what this program reads in version {VERSION}",
                found.v
            ));
        }
        found.clean();
        Ok(found)
    }

    /// What is shown on a terminal must not command it.
    fn clean(&mut self) {
        let clean = |text: &mut String| {
            if text.contains(char::is_control) {
                *text = text.replace(char::is_control, "?");
            }
        };
        let side = |side: &mut Side| {
            clean(&mut side.address);
            side.interface.iter_mut().for_each(clean);
        };
        let protocols = |all: &mut Vec<Protocol>| all.iter_mut().for_each(|one| clean(&mut one.name));
        [&mut self.time, &mut self.program, &mut self.host, &mut self.endpoint].into_iter().for_each(clean);
        for peer in &mut self.peers {
            clean(&mut peer.id);
            peer.addresses.iter_mut().chain(&mut peer.rail).chain(&mut peer.why).for_each(clean);
            protocols(&mut peer.protocols);
            for lane in &mut peer.lanes {
                lane.near.iter_mut().chain(&mut lane.far).for_each(side);
                let Lane { rail, composition, composition_why, congestion_control, .. } = lane;
                [rail, composition, composition_why, congestion_control]
                    .into_iter()
                    .flatten()
                    .for_each(clean);
            }
            for closed in &mut peer.closed {
                [&mut closed.near, &mut closed.far].into_iter().for_each(side);
                clean(&mut closed.why);
            }
        }
        for one in &mut self.collectives {
            [&mut one.operation, &mut one.algorithm, &mut one.why].into_iter().for_each(clean);
        }
        for event in &mut self.events {
            let Record { time, host, endpoint, peer, why, peer_addresses, rail, .. } = event;
            [time, host, endpoint, peer, why].into_iter().for_each(clean);
            peer_addresses.iter_mut().chain(rail).for_each(clean);
            event.from_composition.iter_mut().chain(&mut event.to_composition).for_each(clean);
            event.near.iter_mut().chain(&mut event.far).for_each(side);
            protocols(&mut event.protocols);
        }
    }
}

/// What an endpoint said when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// All there is to say.
    All(Box<Snapshot>),
    /// Nothing in time: its program makes no progress, but computes, or waits for something else.
    Nothing,
    /// It does not answer this user.
    Refused,
    /// What cannot be read, and why.
    Nonsense(String),
}

/// An endpoint that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The first eight digits of its identity.
    pub endpoint: String,
    /// Its process, as the kernel says; 0 when it is in another PID namespace.
    pub pid: u32,
    /// The name of its program; empty when it cannot be told.
    pub program: String,
    /// What it said.
    pub said: Said,
}

/// The endpoints on this host and in this network namespace, of whichever user: the names of their sockets. Where there are more
/// than are told, this user's come first, unless `everybody` is asked for.
///
/// # Errors
/// The kernel's list of Unix sockets cannot be read.
pub fn endpoints(everybody: bool) -> io::Result<Vec<String>> {
    // SAFETY: a plain call.
    let me = unsafe { libc::geteuid() };
    let mut names = listed(BufReader::new(std::fs::File::open("/proc/self/net/unix")?))?;
    // whose they are is looked at first: what others list must not leave out one's own
    if !everybody && names.len() > ENDPOINTS_MAX {
        let mut owned: Vec<(bool, String)> =
            names.into_iter().map(|name| (owner(&name) != Some(me), name)).collect();
        owned.sort();
        names = owned.into_iter().map(|(_, name)| name).collect();
    }
    names.truncate(ENDPOINTS_MAX);
    Ok(names)
}

/// Whose socket this is; none when that cannot be told, as when its queue is full.
fn owner(name: &str) -> Option<u32> {
    unix::peer_uid(unix::connect(name.as_bytes()).ok()?.as_fd()).ok()
}

/// The listeners among the sockets in such a list: `address: count protocol flags type state inode path`.
fn listed(list: impl BufRead) -> io::Result<Vec<String>> {
    const LISTENS: &str = "00010000";
    let mut names = Vec::new();
    for line in list.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split_ascii_whitespace();
        let (Some(LISTENS), Some(name)) = (words.nth(3), words.nth(3)) else { continue };
        let name = name.strip_prefix('@').unwrap_or_default();
        let id = name.strip_prefix(PREFIX).unwrap_or_default();
        if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// Asks endpoints, all at the same time; those of other users too if `everybody`, to which only root gets an answer. Takes no
/// longer than `patience` for those that say nothing, and a second more for those whose answer is long.
pub fn ask(names: &[String], patience: Duration, everybody: bool) -> Vec<Answer> {
    // SAFETY: a plain call.
    let me = unsafe { libc::geteuid() };
    let mut asked: Vec<Asked> =
        names.iter().filter_map(|name| Asked::new(name, (!everybody).then_some(me))).collect();
    let begun = Instant::now();
    loop {
        let spent = begun.elapsed();
        let waits = |one: &Asked| match one.bytes.is_empty() {
            true => spent < patience,
            false => spent < patience + TRANSFER,
        };
        let mut open: Vec<&mut Asked> =
            asked.iter_mut().filter(|one| one.socket.is_some() && waits(one)).collect();
        if open.is_empty() {
            break;
        }
        let entry = |one: &&mut Asked| libc::pollfd {
            fd: one.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polled: Vec<libc::pollfd> = open.iter().map(entry).collect();
        // SAFETY: as many entries as are said. An error (EINTR) leaves them without events.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 10) };
        for (one, _) in open.iter_mut().zip(&polled).filter(|(_, poll)| poll.revents != 0) {
            one.read();
        }
        if asked.iter().map(|one| one.bytes.len()).sum::<usize>() > ALL_MAX {
            break;
        }
    }
    asked.into_iter().map(Asked::answer).collect()
}

/// An endpoint whose answer is awaited.
struct Asked {
    endpoint: String,
    pid: u32,
    socket: Option<OwnedFd>,
    bytes: Vec<u8>,
    /// It has closed the connection: that is all.
    over: bool,
}

impl Asked {
    /// None: nobody listens there, or another one than this user.
    fn new(name: &str, user: Option<u32>) -> Option<Self> {
        let endpoint = name.strip_prefix(PREFIX)?.get(..8)?.to_owned();
        let socket = match unix::connect(name.as_bytes()) {
            Ok(socket) => Some(socket),
            // so many wait already
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            Err(_) => return None,
        };
        if let Some(socket) = &socket {
            let owner = unix::peer_uid(socket.as_fd()).ok()?;
            if user.is_some_and(|user| user != owner) {
                return None;
            }
        }
        let pid = socket.as_ref().and_then(|socket| unix::peer_pid(socket.as_fd()).ok()).unwrap_or(0) as u32;
        Some(Self { endpoint, pid, socket, bytes: Vec::new(), over: false })
    }

    fn read(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        let mut file = std::fs::File::from(socket);
        let mut buffer = [0; 64 << 10];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => {
                    self.over = true;
                    return;
                }
                Ok(n) if self.bytes.len() + n > DOCUMENT_MAX => {
                    self.bytes.resize(DOCUMENT_MAX + 1, 0);
                    self.over = true;
                    return;
                }
                Ok(n) => self.bytes.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.over = true;
                    return;
                }
            }
        }
        self.socket = Some(file.into());
    }

    fn answer(self) -> Answer {
        let said = match (self.over, self.bytes.is_empty()) {
            (true, true) => Said::Refused,
            (true, false) => match Snapshot::parse(&self.bytes) {
                Ok(snapshot) => Said::All(Box::new(snapshot)),
                Err(why) => Said::Nonsense(why),
            },
            (false, true) => Said::Nothing,
            (false, false) => Said::Nonsense("its answer did not end in time".into()),
        };
        let program = match self.pid {
            0 => String::new(),
            pid => program_of(&pid.to_string()),
        };
        Answer { endpoint: self.endpoint, pid: self.pid, program, said }
    }
}

/// The name of a process (`self` for this one); empty when it cannot be told.
pub(crate) fn program_of(pid: &str) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().replace(char::is_control, "?")
}

#[cfg(all(test, not(loom)))]
mod tests;
