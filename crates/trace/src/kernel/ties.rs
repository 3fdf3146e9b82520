//! Which of the kernel's sockets is which of ours. A system call names a descriptor, an event the kernel's address of a socket; what
//! happens to a socket inside a call on a descriptor ties the two together. Addresses and cookie come from events at any time, also
//! when the process is long gone.
//!
//! A connection that is accepted says nothing inside `accept`. What is then said by it, or its close, ties it. One on which nothing is
//! ever said is taken for the one whose turn it was: a listening socket hands them out as they came.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use super::names::Names;
use super::socks::{SockEvent, SockWhat};
use super::state::{CLOSE, Change, ESTABLISHED, LISTEN, SYN_RECV, SYN_SENT};
use crate::model::Kind;

/// Sockets of the machine that are remembered.
const SOCKS: usize = 65_536;
/// Those of them that the kernel is done with.
const GONE: usize = 4096;
/// Ports at which somebody listens, and connections at one that nobody is known to have.
const PORTS: usize = 1024;
const WAITING: usize = 1024;

/// A socket of the kernel's: its address, and which of those that were there one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sk {
    address: u64,
    life: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sock {
    life: u64,
    kind: Option<Kind>,
    cookie: u64,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
    listening: bool,
    /// Our number for it; 0: none is known.
    number: u32,
    /// Our number of who is thought to have it; 0: nobody.
    guess: u32,
}

/// Connections at a port that are yet to be accepted.
#[derive(Debug, Default)]
struct Port {
    /// How many sockets listen there: of several it is not known whose a connection is.
    listeners: u32,
    waiting: VecDeque<Sk>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ties {
    socks: HashMap<u64, Sock>,
    lives: u64,
    gone: VecDeque<Sk>,
    ports: HashMap<u16, Port>,
    /// By our number.
    guesses: HashMap<u32, Sk>,
}

impl Ties {
    /// An event; which socket it is about.
    pub fn see(&mut self, event: &SockEvent, names: &mut Names) -> Sk {
        let address = event.sk;
        // the kernel uses its memory again
        let anew = matches!(
            event.what,
            SockWhat::State(Change { new: SYN_SENT | SYN_RECV, .. } | Change { new: LISTEN, old: CLOSE, .. })
        );
        match self.socks.get(&address) {
            None => self.make_room(),
            Some(sock) if anew && sock.guess != 0 => self.settle(sock.guess, names),
            Some(_) => {}
        }
        let lives = &mut self.lives;
        let mut new = || {
            *lives += 1;
            Sock { life: *lives, ..Sock::default() }
        };
        let sock = self.socks.entry(address).or_insert_with(&mut new);
        if anew && (sock.kind.is_some() || sock.cookie != 0) {
            *sock = new();
        }
        let sk = Sk { address, life: sock.life };
        match event.what {
            SockWhat::State(Change { old, new, local, remote, mptcp, .. }) => {
                sock.kind = Some(Kind::Tcp);
                match (old, new) {
                    (_, LISTEN) => {
                        (sock.listening, sock.local) = (true, local);
                        self.listens(local, mptcp);
                    }
                    (LISTEN, _) if new == CLOSE => self.listens_no_more(local, mptcp),
                    // whom it is to be connected to, and what it was made like
                    (_, SYN_SENT | SYN_RECV) | (SYN_SENT, CLOSE) => {}
                    _ => {
                        if let (Some(_), Some(_)) = (local, remote) {
                            (sock.local, sock.remote) = (local, remote);
                        }
                        if (old, new) == (SYN_RECV, ESTABLISHED) {
                            self.arrives(local, sk);
                        }
                    }
                }
            }
            SockWhat::Destroyed { cookie } => {
                (sock.kind, sock.cookie) = (Some(Kind::Tcp), cookie);
                self.gone.push_back(sk);
            }
            SockWhat::Moved { kind, .. } if sock.kind == Some(kind) => return sk,
            SockWhat::Moved { kind, .. } => sock.kind = Some(kind),
        }
        self.tell(sk, names);
        self.forget_gone(names);
        sk
    }

    /// Our number for a socket, if one is known.
    pub fn number(&self, sk: Sk) -> Option<u32> {
        self.sock(sk).map(|sock| sock.number).filter(|number| *number != 0)
    }

    /// A call on one of our sockets was about this one.
    pub fn tie(&mut self, number: u32, sk: Sk, names: &mut Names) {
        let Some(sock) = self.sock(sk).filter(|sock| sock.number != number) else { return };
        // whoever was thought to have it has what this one was thought to have
        let (others, own) = (sock.guess, self.guesses.remove(&number));
        let own = own.filter(|own| *own != sk);
        if others != 0 && others != number {
            self.guesses.remove(&others);
        }
        if let Some(own) = own {
            if others != 0 && others != number {
                self.guess(others, own);
            } else if let Some(sock) = self.socks.get_mut(&own.address).filter(|sock| sock.life == own.life) {
                sock.guess = 0;
                let port = sock.local.map(|local| local.port());
                if let Some(port) = port.and_then(|port| self.ports.get_mut(&port)) {
                    port.waiting.push_front(own);
                    port.waiting.truncate(WAITING);
                }
            }
        }
        if let Some(sock) = self.socks.get_mut(&sk.address) {
            (sock.number, sock.guess) = (number, 0);
        }
        self.tell(sk, names);
    }

    /// One of our sockets, which listens there, has handed out another of ours.
    pub fn accepted(&mut self, listener: SocketAddr, number: u32) {
        let Some(port) = self.ports.get_mut(&listener.port()).filter(|port| port.listeners == 1) else {
            return;
        };
        let socks = &self.socks;
        let free = |sk: &Sk| {
            socks.get(&sk.address).filter(|sock| sock.life == sk.life && sock.number == 0).is_some_and(
                |sock| {
                    let own = |ip| sock.local.is_some_and(|local| local.ip() == ip);
                    listener.ip().is_unspecified() || own(listener.ip())
                },
            )
        };
        port.waiting.retain(free);
        if let Some(sk) = port.waiting.pop_front() {
            self.guess(number, sk);
        }
    }

    /// What was thought of one of our sockets is all that will ever be known.
    pub fn settle(&mut self, number: u32, names: &mut Names) {
        if let Some(sk) = self.guesses.remove(&number) {
            self.tie(number, sk, names);
        }
    }

    /// Those of which something is thought.
    pub fn guessed(&self) -> Vec<u32> {
        self.guesses.keys().copied().collect()
    }

    /// The kernel lost events: whose turn it was is not known any more.
    pub fn missed(&mut self) {
        self.ports.values_mut().for_each(|port| port.waiting.clear());
        for (_, sk) in self.guesses.drain() {
            if let Some(sock) = self.socks.get_mut(&sk.address) {
                sock.guess = 0;
            }
        }
    }

    fn sock(&self, sk: Sk) -> Option<&Sock> {
        self.socks.get(&sk.address).filter(|sock| sock.life == sk.life)
    }

    fn guess(&mut self, number: u32, sk: Sk) {
        if self.guesses.len() < SOCKS
            && let Some(sock) = self.socks.get_mut(&sk.address).filter(|sock| sock.life == sk.life)
        {
            sock.guess = number;
            self.guesses.insert(number, sk);
        }
    }

    /// Hands on what is known of a socket that is one of ours.
    fn tell(&self, sk: Sk, names: &mut Names) {
        let Some(sock) = self.sock(sk).filter(|sock| sock.number != 0) else { return };
        names.learn(sock.number, |name| {
            name.kind = sock.kind.or(name.kind);
            name.listening |= sock.listening;
            name.local = sock.local.or(name.local);
            name.remote = sock.remote.or(name.remote);
            if sock.cookie != 0 {
                name.cookie = sock.cookie;
            }
        });
    }

    fn listens(&mut self, local: Option<SocketAddr>, mptcp: bool) {
        let Some(local) = local.filter(|_| !mptcp) else { return };
        if self.ports.len() < PORTS || self.ports.contains_key(&local.port()) {
            self.ports.entry(local.port()).or_default().listeners += 1;
        }
    }

    fn listens_no_more(&mut self, local: Option<SocketAddr>, mptcp: bool) {
        let Some(local) = local.filter(|_| !mptcp) else { return };
        if let Some(port) = self.ports.get_mut(&local.port()) {
            port.listeners = port.listeners.saturating_sub(1);
            if port.listeners == 0 {
                self.ports.remove(&local.port());
            }
        }
    }

    fn arrives(&mut self, local: Option<SocketAddr>, sk: Sk) {
        if let Some(port) = local.and_then(|local| self.ports.get_mut(&local.port())) {
            if port.waiting.len() >= WAITING {
                port.waiting.pop_front();
            }
            port.waiting.push_back(sk);
        }
    }

    fn make_room(&mut self) {
        if self.socks.len() >= SOCKS {
            // others' come and go; ours are few
            self.socks.retain(|_, sock| sock.number != 0 || sock.guess != 0);
        }
        if self.socks.len() >= SOCKS {
            self.socks.clear();
            self.guesses.clear();
        }
    }

    /// A call that ends later may be about one that the kernel is done with, so that it stays for a while.
    fn forget_gone(&mut self, names: &mut Names) {
        while self.gone.len() > GONE {
            let Some(sk) = self.gone.pop_front() else { return };
            if let Some(sock) = self.sock(sk) {
                self.settle(sock.guess, names);
                self.socks.remove(&sk.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::state::FIN_WAIT1;
    use proptest::prelude::*;

    fn end(port: u16) -> Option<SocketAddr> {
        Some(([127, 0, 0, 1], port).into())
    }

    fn state(sk: u64, old: u8, new: u8, ports: (u16, u16)) -> SockEvent {
        let named = |port| end(port).filter(|_| port != 0);
        let (local, remote) = (named(ports.0), named(ports.1));
        let what = SockWhat::State(Change { sk, old, new, local, remote, mptcp: false });
        SockEvent { sk, aside: false, what }
    }

    fn destroyed(sk: u64, cookie: u64) -> SockEvent {
        SockEvent { sk, aside: true, what: SockWhat::Destroyed { cookie } }
    }

    fn known(names: &Names, number: u32) -> (u16, u16, u64) {
        let name = names.get(number).unwrap();
        let port = |end: Option<SocketAddr>| end.map_or(0, |end| end.port());
        (port(name.local), port(name.remote), name.cookie)
    }

    #[test]
    fn a_connect_that_is_not_waited_for_has_its_names_later_and_its_cookie_when_it_is_gone() {
        let (mut ties, mut names) = (Ties::default(), Names::default());
        let number = names.open(1, Some(Kind::Tcp));
        let sk = ties.see(&state(0xa, CLOSE, SYN_SENT, (0, 80)), &mut names);
        ties.tie(number, sk, &mut names);
        assert_eq!(known(&names, number), (0, 0, 0), "whom it called is no connection");
        ties.see(&state(0xa, SYN_SENT, ESTABLISHED, (5000, 80)), &mut names);
        assert_eq!(known(&names, number), (5000, 80, 0));
        ties.see(&state(0xa, ESTABLISHED, FIN_WAIT1, (5000, 80)), &mut names);
        ties.see(&destroyed(0xa, 77), &mut names);
        // the same memory, another socket
        ties.see(&state(0xa, CLOSE, SYN_SENT, (0, 81)), &mut names);
        ties.see(&state(0xa, SYN_SENT, ESTABLISHED, (5001, 81)), &mut names);
        assert_eq!(known(&names, number), (5000, 80, 77));
    }

    #[test]
    fn a_connect_that_is_refused_is_none() {
        let (mut ties, mut names) = (Ties::default(), Names::default());
        let number = names.open(1, Some(Kind::Tcp));
        let sk = ties.see(&state(0xa, CLOSE, SYN_SENT, (5000, 80)), &mut names);
        ties.tie(number, sk, &mut names);
        ties.see(&state(0xa, SYN_SENT, CLOSE, (5000, 80)), &mut names);
        assert_eq!(known(&names, number), (0, 0, 0));
    }

    /// Three connections, accepted in their order, unless what is said by them says otherwise.
    #[test]
    fn accepted_ones_are_those_by_which_something_is_said_and_the_others_by_their_turn() {
        let (mut ties, mut names) = (Ties::default(), Names::default());
        let listener = names.open(1, Some(Kind::Tcp));
        let sk = ties.see(&state(0xf, CLOSE, LISTEN, (80, 0)), &mut names);
        ties.tie(listener, sk, &mut names);
        let name = names.get(listener).unwrap();
        assert!(name.listening && name.local == end(80));
        let sks: Vec<Sk> = [1, 2, 3]
            .map(|sk| {
                ties.see(&state(sk, LISTEN, SYN_RECV, (80, 0)), &mut names);
                ties.see(&state(sk, SYN_RECV, ESTABLISHED, (80, 5000 + sk as u16)), &mut names)
            })
            .into();
        let ours: Vec<u32> = sks
            .iter()
            .map(|_| {
                let number = names.open(2, Some(Kind::Tcp));
                ties.accepted(end(80).unwrap(), number);
                number
            })
            .collect();
        assert_eq!(known(&names, ours[0]), (0, 0, 0), "nothing is sure yet");
        ties.tie(ours[0], sks[1], &mut names);
        for number in ties.guessed() {
            ties.settle(number, &mut names);
        }
        let remotes: Vec<u16> = ours.iter().map(|number| known(&names, *number).1).collect();
        assert_eq!(remotes, [5002, 5001, 5003]);
        assert_eq!(
            sks.iter().map(|sk| ties.number(*sk)).collect::<Vec<_>>(),
            [Some(ours[1]), Some(ours[0]), Some(ours[2])]
        );
    }

    #[test]
    fn of_several_listeners_nobody_knows_whose_a_connection_is() {
        let (mut ties, mut names) = (Ties::default(), Names::default());
        for sk in [8, 9] {
            ties.see(&state(sk, CLOSE, LISTEN, (80, 0)), &mut names);
        }
        ties.see(&state(1, SYN_RECV, ESTABLISHED, (80, 5000)), &mut names);
        let number = names.open(2, Some(Kind::Tcp));
        ties.accepted(end(80).unwrap(), number);
        assert!(ties.guessed().is_empty());
    }

    proptest! {
        /// Whatever is told, in whatever order, nothing panics or grows, and no socket of the kernel's is two of ours by guess.
        #[test]
        fn any_events_can_be_told(
            steps in proptest::collection::vec((0u8..8, 0u64..6, 0u8..13, 0u8..13, 0u16..3, 0u16..3, 1u32..6), 0..300),
        ) {
            let (mut ties, mut names) = (Ties::default(), Names::default());
            let mut last = Sk { address: 0, life: 0 };
            for (step, sk, old, new, sport, dport, number) in steps {
                match step {
                    0..=2 => last = ties.see(&state(sk, old, new, (sport, dport)), &mut names),
                    3 => last = ties.see(&destroyed(sk, sk + 1), &mut names),
                    4 => drop(names.open(1, None)),
                    5 => ties.tie(number, last, &mut names),
                    6 => ties.accepted(([127, 0, 0, 1], sport).into(), number),
                    _ => ties.settle(number, &mut names),
                }
                prop_assert!(ties.socks.len() <= 6 && ties.guesses.len() <= 6 && ties.ports.len() <= 3);
                let mut guessed: Vec<u64> = ties.guesses.values().map(|sk| sk.address).collect();
                guessed.sort_unstable();
                let all = guessed.len();
                guessed.dedup();
                prop_assert_eq!(guessed.len(), all);
            }
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut ties, mut names) = (Ties::default(), Names::default());
        for sk in 0..SOCKS as u64 * 2 {
            ties.see(&state(sk, SYN_RECV, ESTABLISHED, (80, 1)), &mut names);
            ties.see(&destroyed(sk, 1), &mut names);
            ties.see(&state(sk + (1 << 40), CLOSE, LISTEN, (sk as u16, 0)), &mut names);
        }
        assert!(ties.socks.len() <= SOCKS && ties.gone.len() <= GONE && ties.ports.len() <= PORTS);
    }
}
