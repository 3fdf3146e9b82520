//! Who talks to whom: the traced processes, and behind them whatever else they talk to, by address.

use super::messages::Pattern;
use crate::model::{Kind, Run, Socket};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

/// What went from one node to another.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Bytes through sockets.
    pub bytes: u64,
    /// Messages through sockets ([`super::messages`]).
    pub messages: u64,
    /// Calls that sent them.
    pub sends: u64,
    /// ns that the sender spent in these calls, and waiting for room.
    pub sending: u64,
    /// ns that the *receiver* waited until bytes of this sender came.
    pub waited: u64,
    /// Of these, ns that it waited for questions ([`Socket::awaits_questions`]).
    pub unasked: u64,
    /// Messages by MPI's point-to-point calls.
    pub mpi_messages: u64,
    /// Their bytes.
    pub mpi_bytes: u64,
    /// ns that the *receiver* spent in MPI calls that wait for this sender.
    pub mpi_waited: u64,
    /// End of the last MPI send.
    mpi_last: Option<u64>,
}

impl Cell {
    pub(super) fn mpi_send(&mut self, pattern: &mut Pattern, start: u64, end: u64, bytes: u64) {
        self.mpi_messages += 1;
        self.mpi_bytes = self.mpi_bytes.saturating_add(bytes);
        pattern.message(bytes);
        if let Some(last) = self.mpi_last.replace(end) {
            pattern.gap(start.saturating_sub(last));
        }
    }
}

/// The cells that are not empty.
#[derive(Clone, Debug, Default)]
pub struct Links {
    index: HashMap<(u32, u32), u32>,
    /// Sender, receiver, and what went.
    pub cells: Vec<(u32, u32, Cell)>,
}

impl Links {
    pub(super) fn find(&mut self, from: u32, to: u32) -> usize {
        *self.index.entry((from, to)).or_insert_with(|| {
            self.cells.push((from, to, Cell::default()));
            (self.cells.len() - 1) as u32
        }) as usize
    }

    pub(super) fn cell(&mut self, from: u32, to: u32) -> &mut Cell {
        let index = self.find(from, to);
        &mut self.cells[index].2
    }

    /// Where in [`Links::cells`] a pair is, if anything went.
    pub fn position(&self, from: u32, to: u32) -> Option<usize> {
        self.index.get(&(from, to)).map(|&index| index as usize)
    }
}

/// Finds the node at the other end. Numbers below [`Run::processes`]`.len()` are processes, the others are outside.
#[derive(Debug)]
pub(super) struct Nodes {
    processes: u32,
    /// Names of what is not traced.
    pub outside: Vec<String>,
    by_name: HashMap<String, u32>,
    /// Sockets that datagrams may go to, by address; of addresses that mean another place on each host with the host's number.
    datagrams: HashMap<(Option<u32>, SocketAddr), Vec<u32>>,
    /// Which process used a socket last.
    user: Vec<u32>,
    /// Ports at which hosts accept connections: who is connected to one of these is a client, whose own port says nothing.
    served: HashSet<(u32, u16)>,
    /// By socket and process: the other end, as found the last time.
    cache: Vec<Option<u32>>,
}

fn host_of(run: &Run, socket: &Socket) -> u32 {
    run.processes.get(socket.process as usize).map_or(0, |process| process.host)
}

fn local_to_host(address: &SocketAddr) -> bool {
    address.ip().is_loopback()
}

impl Nodes {
    pub fn new(run: &Run) -> Nodes {
        let mut datagrams: HashMap<_, Vec<u32>> = HashMap::new();
        for (index, socket) in run.sockets.iter().enumerate().filter(|(_, socket)| socket.kind == Kind::Udp) {
            let Some(local) = socket.local else { continue };
            let host = host_of(run, socket);
            let mut name = |ip: IpAddr| {
                let address = SocketAddr::new(ip, local.port());
                let bound = datagrams.entry((local_to_host(&address).then_some(host), address)).or_default();
                bound.push(index as u32);
            };
            name(local.ip());
            if local.ip().is_unspecified() {
                name(IpAddr::from([127, 0, 0, 1]));
                let addresses = run.hosts.get(host as usize).map_or(&[][..], |host| &host.addresses);
                addresses.iter().for_each(|(_, ip)| name(*ip));
            }
        }
        let listening = run.sockets.iter().filter(|socket| socket.listening);
        let served =
            listening.filter_map(|socket| Some((host_of(run, socket), socket.local?.port()))).collect();
        Nodes {
            served,
            processes: run.processes.len() as u32,
            outside: Vec::new(),
            by_name: HashMap::new(),
            datagrams,
            user: run.sockets.iter().map(|socket| socket.process).collect(),
            cache: vec![None; run.sockets.len()],
        }
    }

    /// The process moves data on the socket.
    pub fn used(&mut self, socket: u32, process: u32) {
        self.user[socket as usize] = process;
    }

    /// The node at the other end of a socket, or at the address that a datagram went to or came from at this time.
    pub fn other(&mut self, run: &Run, socket: u32, to: Option<SocketAddr>, at: u64) -> Option<u32> {
        let about = &run.sockets[socket as usize];
        if let Some(peer) = about.peer {
            return self.user.get(peer as usize).copied();
        }
        if about.kind == Kind::Other {
            return None;
        }
        if to.is_none()
            && let Some(known) = self.cache[socket as usize]
        {
            return Some(known);
        }
        let host = host_of(run, about);
        let at_service = |remote| {
            about.is_at_service(remote)
                && !about.local.is_some_and(|local| self.served.contains(&(host, local.port())))
        };
        let host_name = run.hosts.get(host as usize).map_or("?", |host| host.name.as_str());
        let remote = to.or(about.remote);
        let found = match remote {
            Some(remote) => match self.receiver(run, socket, to, at) {
                Some(peer) => self.user[peer as usize],
                None => {
                    let place = match local_to_host(&remote) {
                        true => format!("another program on {host_name}"),
                        false => remote.ip().to_string(),
                    };
                    match at_service(remote) {
                        true => self.outside(&format!("{place}, port {}", remote.port())),
                        false => self.outside(&place),
                    }
                }
            },
            None if matches!(about.kind, Kind::Unix | Kind::Memory) => {
                self.outside(&format!("another program on {host_name}"))
            }
            None => return None,
        };
        if to.is_none() {
            self.cache[socket as usize] = Some(found);
        }
        Some(found)
    }

    /// The traced socket that a datagram goes to, or comes from, at this time. As the kernel chooses: of those with its address that
    /// there are at the time the one that is connected to the sender, and none that is connected to somebody else.
    pub fn receiver(&self, run: &Run, socket: u32, to: Option<SocketAddr>, at: u64) -> Option<u32> {
        let about = &run.sockets[socket as usize];
        if about.kind != Kind::Udp {
            return None;
        }
        if about.peer.is_some() && to.is_none_or(|to| about.remote == Some(to)) {
            return about.peer;
        }
        let to = to.or(about.remote)?;
        let bound = self.datagrams.get(&(local_to_host(&to).then_some(host_of(run, about)), to))?;
        let fits = |other: &u32| {
            let other = &run.sockets[*other as usize];
            let is_mine = |remote: SocketAddr| {
                about.local.is_some_and(|local| {
                    local.port() == remote.port()
                        && (local.ip() == remote.ip() || local.ip().is_unspecified())
                })
            };
            let connected = other.remote.map_or(1, |remote| 2 * u32::from(is_mine(remote)));
            (other.span.0 <= at && at <= other.span.1, connected)
        };
        bound.iter().max_by_key(|other| fits(other)).copied()
    }

    fn outside(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.by_name.get(name) {
            return known;
        }
        let node = self.processes + self.outside.len() as u32;
        self.outside.push(name.to_owned());
        self.by_name.insert(name.to_owned(), node);
        node
    }
}

/// Which process is which rank. Of several worlds in one run, a rank is looked for among the processes that lived at the
/// same time in a world of the same size.
#[derive(Debug, Default)]
pub(super) struct Ranks(HashMap<(u32, u32), Vec<u32>>);

impl Ranks {
    pub fn new(run: &Run) -> Ranks {
        let mut ranks: HashMap<_, Vec<u32>> = HashMap::new();
        for (index, process) in run.processes.iter().enumerate() {
            if let Some(mpi) = &process.mpi {
                ranks.entry((mpi.rank, mpi.size)).or_default().push(index as u32);
            }
        }
        Ranks(ranks)
    }

    /// The process that is `peer` in the world of `process`.
    pub fn find(&self, run: &Run, process: u32, peer: i32) -> Option<u32> {
        let me = &run.processes[process as usize];
        let peer = u32::try_from(peer).ok()?;
        let found = self.0.get(&(peer, me.mpi.as_ref()?.size))?;
        let together = |other: &&u32| {
            let span = run.processes[**other as usize].span;
            span.1.min(me.span.1).saturating_sub(span.0.max(me.span.0))
        };
        if found.len() == 1 { found.first().copied() } else { found.iter().max_by_key(together).copied() }
    }
}

/// Whether a program is judged by what goes between two nodes: by all, but of an MPI program only by what its ranks send each other,
/// lest the launcher's connections count.
#[derive(Debug)]
pub(super) struct Judged {
    ranks: Vec<bool>,
    any: bool,
}

impl Judged {
    pub fn new(run: &Run) -> Judged {
        let ranks: Vec<bool> = run.processes.iter().map(|process| process.mpi.is_some()).collect();
        Judged { any: ranks.contains(&true), ranks }
    }

    pub fn by(&self, from: u32, to: u32) -> bool {
        let rank = |node: u32| self.ranks.get(node as usize).is_some_and(|rank| *rank);
        !self.any || rank(from) && rank(to)
    }
}
