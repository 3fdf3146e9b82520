//! Which descriptors of a process are sockets, as far as system calls and `/proc` tell.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::diag::Diag;
use crate::model::Kind;

/// What is known of a socket of a process that preloading cannot see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Named {
    /// The number that [`SyscallEvent::socket`](super::SyscallEvent::socket) uses for it.
    pub number: u32,
    /// A process that has it open.
    pub pid: u32,
    /// The number in `socket:[...]` of `/proc/PID/fd`.
    pub inode: u64,
    /// `SO_COOKIE`; 0: not known (no TCP connection of the reader's network namespace).
    pub cookie: u64,
    /// What it is.
    pub kind: Kind,
    /// Its addresses, where it has any.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
}

/// A descriptor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Descriptor {
    Socket(u32),
    Other,
}

/// Descriptors that are remembered.
const MOST: usize = 65_536;
/// Sockets that wait for a name, and how often each is looked for: it may be connected later.
const UNNAMED: usize = 1024;
const ATTEMPTS: u32 = 20;

/// The descriptors of all processes that are looked at.
#[derive(Debug, Default)]
pub struct Descriptors {
    known: HashMap<(u32, i32), Descriptor>,
    by_inode: HashMap<u64, u32>,
    numbers: u32,
    unnamed: Vec<(Named, u32)>,
}

impl Descriptors {
    /// The number of the socket that this descriptor is; `None`: it is no socket. `inode` looks at `/proc`.
    pub fn socket(&mut self, pid: u32, fd: i32, inode: impl Fn(u32, i32) -> Option<u64>) -> Option<u32> {
        let known = match self.known.get(&(pid, fd)) {
            Some(known) => *known,
            None => {
                let descriptor = inode(pid, fd)
                    .map_or(Descriptor::Other, |inode| Descriptor::Socket(self.number(pid, inode)));
                self.set(pid, fd, descriptor);
                descriptor
            }
        };
        if let Descriptor::Socket(number) = known { Some(number) } else { None }
    }

    /// Its number where that is known; asks nobody: the descriptor may be another thing by now.
    pub fn known(&self, pid: u32, fd: i32) -> Option<u32> {
        match self.known.get(&(pid, fd)) {
            Some(Descriptor::Socket(number)) => Some(*number),
            _ => None,
        }
    }

    /// A call has made this descriptor a new socket.
    pub fn opened(&mut self, pid: u32, fd: i32, inode: impl Fn(u32, i32) -> Option<u64>) -> u32 {
        // Without an inode it is closed already: a socket all the same.
        let number = match inode(pid, fd) {
            Some(inode) => self.number(pid, inode),
            None => self.next(),
        };
        self.set(pid, fd, Descriptor::Socket(number));
        number
    }

    /// `to` is now what `from` is.
    pub fn copied(&mut self, pid: u32, from: i32, to: i32) {
        match self.known.get(&(pid, from)) {
            Some(known) => self.set(pid, to, *known),
            None => self.closed(pid, to),
        }
    }

    /// This descriptor may become something else.
    pub fn closed(&mut self, pid: u32, fd: i32) {
        self.known.remove(&(pid, fd));
    }

    /// Several descriptors of the process may have been closed, or it is gone.
    pub fn unsure(&mut self, pid: u32) {
        self.known.retain(|(of, _), _| *of != pid);
    }

    fn set(&mut self, pid: u32, fd: i32, descriptor: Descriptor) {
        if self.known.len() >= MOST {
            self.known.clear();
            self.by_inode.clear();
        }
        self.known.insert((pid, fd), descriptor);
    }

    fn next(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    fn number(&mut self, pid: u32, inode: u64) -> u32 {
        if let Some(number) = self.by_inode.get(&inode) {
            return *number;
        }
        let number = self.next();
        self.by_inode.insert(inode, number);
        if self.unnamed.len() < UNNAMED {
            let named = Named { number, pid, inode, cookie: 0, kind: Kind::Other, addresses: None };
            self.unnamed.push((named, 0));
        }
        number
    }

    /// Looks for the names of those that have none yet: TCP connections of the reader's namespace by inet_diag, the others by
    /// the lists of `/proc/PID/net`. To be called a few times a second, since it may walk the kernel's tables.
    pub fn name(&mut self, diag: &mut Option<Diag>, each: &mut dyn FnMut(Named)) {
        if self.unnamed.is_empty() {
            return;
        }
        let mut found = HashMap::new();
        if let Some(diag) = diag {
            // What inet_diag cannot say, the lists can.
            let _ = diag.dump(&mut |connection| {
                found.insert(u64::from(connection.inode), connection.wanted);
            });
        }
        let mut lists = HashMap::new();
        self.unnamed.retain_mut(|(named, attempts)| {
            if let Some(wanted) = found.get(&named.inode) {
                named.cookie = wanted.cookie;
                (named.kind, named.addresses) = (Kind::Tcp, Some((wanted.local, wanted.remote)));
            } else {
                let list = lists.entry(named.pid).or_insert_with_key(|pid| listed(*pid));
                if let Some((kind, addresses)) = list.get(&named.inode) {
                    (named.kind, named.addresses) = (*kind, *addresses);
                }
            }
            *attempts += 1;
            let connected = named.addresses.is_some_and(|(_, remote)| remote.port() != 0);
            let done = connected || named.kind == Kind::Unix || *attempts == ATTEMPTS;
            if done {
                each(*named);
            }
            !done
        });
    }
}

/// The inode of a descriptor that is a socket.
pub fn inode(pid: u32, fd: i32) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
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
    use std::cell::Cell;

    #[test]
    fn proc_is_asked_once_until_a_descriptor_is_closed() {
        let asked = Cell::new(0);
        let look = |_, fd| {
            asked.set(asked.get() + 1);
            (fd == 3).then_some(700)
        };
        let mut descriptors = Descriptors::default();
        assert_eq!(descriptors.socket(1, 3, look), Some(1));
        assert_eq!(descriptors.socket(1, 3, look), Some(1));
        assert_eq!(descriptors.socket(1, 4, look), None);
        assert_eq!(descriptors.socket(1, 4, look), None);
        assert_eq!(asked.get(), 2);
        assert_eq!(descriptors.socket(2, 3, look), Some(1), "a child's is the same socket");
        descriptors.copied(1, 3, 9);
        assert_eq!(descriptors.socket(1, 9, look), Some(1));
        assert_eq!(asked.get(), 3);
        descriptors.closed(1, 3);
        assert_eq!(descriptors.opened(1, 3, |_, _| None), 2, "gone before it could be looked at");
        descriptors.unsure(1);
        assert_eq!(descriptors.socket(1, 9, look), None);
        assert_eq!(descriptors.known.len(), 2);
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
