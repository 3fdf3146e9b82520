//! What is known of each socket of programs that preloading cannot see, and who is to be told.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::diag::Diag;
use crate::model::Kind;

/// What is known of a socket of a process that preloading cannot see. Where more is found out later, it is told again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Named {
    /// The number that [`SyscallEvent::socket`](super::SyscallEvent::socket) uses for it.
    pub number: u32,
    /// A process that uses it. Each that does is told of.
    pub pid: u32,
    /// When it was first heard of, on the monotonic clock in nanoseconds.
    pub at: u64,
    /// The number in `socket:[...]` of `/proc/PID/fd`; 0: not known.
    pub inode: u64,
    /// `SO_COOKIE`; 0: not known.
    pub cookie: u64,
    /// What it is.
    pub kind: Kind,
    /// Whether it listens.
    pub listening: bool,
    /// Its addresses, where it has any; the port is 0 where one is not known.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
}

/// Sockets that are remembered; the oldest are forgotten.
const MOST: usize = 65_536;
/// Processes of a socket.
const USERS: usize = 256;
/// Sockets that wait for a name, and how often each is looked for: it may be connected later.
const UNNAMED: usize = 1024;
const ATTEMPTS: u32 = 20;

/// How much is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    #[default]
    Nothing,
    Kind,
    Addresses,
    /// Nothing more is to be found out.
    All,
}

/// A socket.
#[derive(Clone, Debug, Default)]
pub struct Name {
    pub kind: Option<Kind>,
    pub inode: u64,
    pub cookie: u64,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    pub listening: bool,
    at: u64,
    /// Processes, and how much they were told.
    users: Vec<(u32, Level)>,
    /// Looked for in vain often enough: what is known is told.
    given_up: bool,
    /// How often it was asked itself.
    asked: u32,
}

impl Name {
    fn level(&self) -> Level {
        match self.kind {
            Some(Kind::Unix) if self.inode != 0 => Level::All,
            _ if self.listening && self.local.is_some() => Level::All,
            _ if self.remote.is_some() && (self.cookie != 0 || self.kind == Some(Kind::Udp)) => Level::All,
            _ if self.remote.is_some() || self.local.is_some() => Level::Addresses,
            Some(_) => Level::Kind,
            None => Level::Nothing,
        }
    }
}

/// The sockets, by number.
#[derive(Debug, Default)]
pub struct Names {
    names: BTreeMap<u32, Name>,
    last: u32,
    by_inode: HashMap<u64, u32>,
    /// Of which something is new.
    fresh: BTreeSet<u32>,
    unnamed: Vec<(u32, u32)>,
}

impl Names {
    /// A socket that was not there before; `kind`: if that is known.
    pub fn open(&mut self, at: u64, kind: Option<Kind>) -> u32 {
        if self.names.len() >= MOST
            && let Some((oldest, name)) = self.names.pop_first()
        {
            self.by_inode.remove(&name.inode);
            self.fresh.remove(&oldest);
        }
        self.last += 1;
        let given_up = self.unnamed.len() >= UNNAMED;
        self.names.insert(self.last, Name { kind, at, given_up, ..Name::default() });
        if !given_up {
            self.unnamed.push((self.last, 0));
        }
        self.last
    }

    /// The socket of this inode, or a new one.
    pub fn of_inode(&mut self, at: u64, inode: u64) -> u32 {
        if let Some(number) = self.by_inode.get(&inode).filter(|number| self.names.contains_key(number)) {
            return *number;
        }
        let number = self.open(at, None);
        self.learn(number, |name| name.inode = inode);
        self.by_inode.insert(inode, number);
        number
    }

    /// The inode of a socket is known.
    pub fn has_inode(&mut self, number: u32, inode: u64) {
        if self.names.contains_key(&number) {
            self.by_inode.entry(inode).or_insert(number);
            self.learn(number, |name| name.inode = inode);
        }
    }

    /// What is known.
    pub fn get(&self, number: u32) -> Option<&Name> {
        self.names.get(&number)
    }

    /// Something was found out.
    pub fn learn(&mut self, number: u32, learn: impl FnOnce(&mut Name)) {
        if let Some(name) = self.names.get_mut(&number) {
            learn(name);
            self.fresh.insert(number);
        }
    }

    /// A process uses it.
    pub fn used(&mut self, number: u32, pid: u32) {
        if let Some(name) = self.names.get_mut(&number)
            && name.users.len() < USERS
            && !name.users.iter().any(|(known, _)| *known == pid)
        {
            name.users.push((pid, Level::Nothing));
            self.fresh.insert(number);
        }
    }

    /// Whether its inode would help.
    pub fn wants_inode(&self, number: u32) -> bool {
        self.names
            .get(&number)
            .is_some_and(|name| name.inode == 0 && name.level() < Level::All && !name.given_up)
    }

    /// Hands out what is known in full, or as far as it will be. `last`: all that is known at all.
    pub fn tell(&mut self, last: bool, each: &mut dyn FnMut(Named)) {
        let fresh = match last {
            true => self.names.keys().copied().collect(),
            false => std::mem::take(&mut self.fresh),
        };
        for number in fresh {
            let Some(name) = self.names.get_mut(&number) else { continue };
            let level = name.level();
            if level == Level::Nothing || level < Level::All && !name.given_up && !last {
                continue;
            }
            let addresses = (name.local.or(name.remote)).map(|known| {
                let none = || match known {
                    SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
                    SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
                };
                (name.local.unwrap_or_else(none), name.remote.unwrap_or_else(none))
            });
            let named = Named {
                number,
                pid: 0,
                at: name.at,
                inode: name.inode,
                cookie: name.cookie,
                kind: name.kind.unwrap_or_default(),
                listening: name.listening,
                addresses,
            };
            for (pid, told) in name.users.iter_mut().filter(|(_, told)| *told < level) {
                *told = level;
                each(Named { pid: *pid, ..named });
            }
        }
    }

    /// Looks for the names of those that have none yet, as [`search`](Self::search) does. `give_up` is called for those that were looked for often
    /// enough.
    pub fn look(&mut self, diag: &mut Option<Diag>, give_up: &mut dyn FnMut(&mut Names, u32)) {
        self.search(diag);
        self.age(give_up);
    }

    /// TCP connections of the reader's namespace by inet_diag, the others by the lists of `/proc/PID/net`. To be called a few times a second,
    /// since it may walk the kernel's tables.
    pub fn search(&mut self, diag: &mut Option<Diag>) {
        let wanting =
            |number: &u32| self.get(*number).is_some_and(|name| name.level() < Level::All && name.inode != 0);
        let wanted: Vec<u32> = self.unnamed.iter().map(|(number, _)| *number).filter(wanting).collect();
        let mut found = HashMap::new();
        if let Some(diag) = diag.as_mut().filter(|_| !wanted.is_empty()) {
            // What inet_diag cannot say, the lists can.
            let _ = diag.dump(&mut |connection| {
                found.insert(u64::from(connection.inode), connection.wanted);
            });
        }
        let mut lists = HashMap::new();
        for number in wanted {
            let Some(name) = self.names.get(&number) else { continue };
            let inode = name.inode;
            if let Some(wanted) = found.get(&inode) {
                self.learn(number, |name| {
                    (name.kind, name.cookie) = (Some(Kind::Tcp), wanted.cookie);
                    (name.local, name.remote) = (Some(wanted.local), Some(wanted.remote));
                });
            } else if let Some((pid, _)) = name.users.first() {
                let list = lists.entry(*pid).or_insert_with_key(|pid| listed(*pid));
                if let Some((kind, addresses)) = list.get(&inode) {
                    let named = |address: SocketAddr| Some(address).filter(|address| address.port() != 0);
                    self.learn(number, |name| {
                        name.kind = Some(*kind);
                        if let Some((local, remote)) = addresses {
                            name.local = named(*local).or(name.local);
                            name.remote = named(*remote).or(name.remote);
                        }
                    });
                }
            }
        }
    }

    /// Some time has passed: of what is still not known in full nothing more may be found out. `give_up` is called for each of these.
    pub fn age(&mut self, give_up: &mut dyn FnMut(&mut Names, u32)) {
        let mut unnamed = std::mem::take(&mut self.unnamed);
        unnamed.retain(|(number, _)| self.names.get(number).is_some_and(|name| name.level() < Level::All));
        for (number, attempts) in &mut unnamed {
            *attempts += 1;
            if *attempts >= ATTEMPTS {
                give_up(self, *number);
                self.learn(*number, |name| name.given_up = true);
            }
        }
        unnamed.retain(|(_, attempts)| *attempts < ATTEMPTS);
        self.unnamed = unnamed;
    }

    /// Whether a socket is to be asked what it is, which may change: not without end.
    pub fn asks(&mut self, number: u32) -> bool {
        let wanting = |name: &&mut Name| name.level() < Level::All && name.asked < ATTEMPTS;
        self.names.get_mut(&number).filter(wanting).map(|name| name.asked += 1).is_some()
    }

    /// As [`asks`](Self::asks), for the last time.
    pub fn asks_last(&mut self, number: u32) -> bool {
        let wanting = |name: &&mut Name| name.level() < Level::All;
        self.names.get_mut(&number).filter(wanting).map(|name| name.given_up = true).is_some()
    }
}

type Entry = (Kind, Option<(SocketAddr, SocketAddr)>);

/// What the lists of a process's network namespace say, by inode.
fn listed(pid: u32) -> HashMap<u64, Entry> {
    let mut sockets = HashMap::new();
    for (list, kind) in [
        ("tcp", Kind::Tcp),
        ("tcp6", Kind::Tcp),
        ("udp", Kind::Udp),
        ("udp6", Kind::Udp),
        ("unix", Kind::Unix),
    ] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{list}")).unwrap_or_default();
        sockets.extend(text.lines().skip(1).filter_map(|line| entry(line, kind)));
    }
    sockets
}

fn entry(line: &str, kind: Kind) -> Option<(u64, Entry)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if kind == Kind::Unix {
        return Some((words.get(6)?.parse().ok()?, (kind, None)));
    }
    let addresses = (listed_address(words.get(1)?)?, listed_address(words.get(2)?)?);
    Some((words.get(9)?.parse().ok()?, (kind, Some(addresses))))
}

/// `0100007F:1F90`: words of four bytes in the machine's order, then the port.
fn listed_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word =
        |at: usize| Some(u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(names: &mut Names, last: bool) -> Vec<Named> {
        let mut told = Vec::new();
        names.tell(last, &mut |named| told.push(named));
        told
    }

    #[test]
    fn each_process_is_told_once_all_is_known_and_the_rest_at_the_end() {
        let mut names = Names::default();
        let (whole, half, silent) =
            (names.open(5, Some(Kind::Tcp)), names.open(6, Some(Kind::Tcp)), names.open(7, None));
        for number in [whole, half, silent] {
            names.used(number, 1);
        }
        names.learn(whole, |name| {
            (name.local, name.remote) = ("10.0.0.1:1".parse().ok(), "10.0.0.2:2".parse().ok());
        });
        assert_eq!(told(&mut names, false), [], "the cookie may come");
        names.learn(whole, |name| name.cookie = 77);
        let first = told(&mut names, false);
        assert_eq!(
            first.iter().map(|n| (n.number, n.pid, n.cookie, n.at)).collect::<Vec<_>>(),
            [(whole, 1, 77, 5)]
        );
        names.used(whole, 2);
        assert_eq!(told(&mut names, false).iter().map(|n| n.pid).collect::<Vec<_>>(), [2]);
        let last = told(&mut names, true);
        assert_eq!(last.iter().map(|n| (n.number, n.kind)).collect::<Vec<_>>(), [(half, Kind::Tcp)]);
        assert_eq!(told(&mut names, true), []);
    }

    #[test]
    fn what_is_looked_for_in_vain_is_told_as_far_as_it_is_known() {
        let mut names = Names::default();
        let number = names.open(1, Some(Kind::Udp));
        names.used(number, 1);
        let mut given_up = Vec::new();
        for _ in 0..ATTEMPTS {
            assert_eq!(told(&mut names, false), []);
            names.look(&mut None, &mut |_, number| given_up.push(number));
        }
        assert_eq!(given_up, [number]);
        assert_eq!(told(&mut names, false).len(), 1);
        assert!(names.unnamed.is_empty());
    }

    #[test]
    fn a_socket_is_asked_until_all_is_known_and_not_without_end() {
        let mut names = Names::default();
        let (whole, half) = (names.open(1, Some(Kind::Tcp)), names.open(1, Some(Kind::Udp)));
        assert!(names.asks(whole) && names.asks(whole));
        names.learn(whole, |name| {
            (name.remote, name.cookie) = ("10.0.0.2:2".parse().ok(), 7);
        });
        assert!(!names.asks(whole) && !names.asks_last(whole));
        assert_eq!((0..2 * ATTEMPTS).filter(|_| names.asks(half)).count(), ATTEMPTS as usize);
        names.used(half, 1);
        assert_eq!(told(&mut names, false), []);
        // at its end it is told as far as it is known
        names.used(half, 2);
        assert!(names.asks_last(half));
        names.learn(half, |name| name.inode = 5);
        assert_eq!(told(&mut names, false).len(), 2);
        assert!(!names.asks(99) && !names.asks_last(99));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut names = Names::default();
        for at in 0..MOST as u64 + 10 {
            let number = names.open(at, None);
            names.has_inode(number, at + 1);
            names.used(number, 1);
        }
        assert_eq!((names.names.len(), names.by_inode.len(), names.unnamed.len()), (MOST, MOST, UNNAMED));
        assert!(names.fresh.len() <= MOST);
    }

    #[test]
    fn addresses_of_the_lists() {
        let line = "   1: 0100007F:1F90 0200000A:D431 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 20 4 24 10 -1";
        let addresses = ("127.0.0.1:8080".parse().unwrap(), "10.0.0.2:54321".parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!(entry(line, Kind::Tcp), Some((4711, (Kind::Tcp, Some(addresses)))));
            let mapped = listed_address("0000000000000000FFFF00000100007F:0001");
            assert_eq!(mapped, Some("127.0.0.1:1".parse().unwrap()));
        }
        let unix = "0000000012345678: 00000002 00000000 00010000 0001 01 4712 /run/x";
        assert_eq!(entry(unix, Kind::Unix), Some((4712, (Kind::Unix, None))));
    }

    proptest! {
        #[test]
        fn any_line_can_be_read(line in ".*") {
            entry(&line, Kind::Tcp);
            entry(&line, Kind::Unix);
            listed_address(&line);
        }
    }
}
