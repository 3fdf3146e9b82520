//! One TCP port for several endpoints of this process, whose keys differ: who calls says first which of them it wants (HELLO,
//! `docs/wire.md`). What it says stays in the connection, and is read there by whoever is wanted.
//!
//! Invariants:
//! - The port is open for as long as there is its [`SharedPort`], whichever endpoints come and go.
//! - Callers that have not said whom they want are bounded in number and time, and so is who waits for an endpoint; the source that has
//!   most of them gives way.

use super::listen::{self, Ports};
use crate::config::SharedPort;
use crate::error::Error;
use crate::rail::channel::{Source, gives_way};
use crate::rail::connect::Opening;
use crate::sys::{Epoll, Timer, descriptor_limit, event, signal};
use polyrail_core::wire::handshake::{HELLO_LEN, Wanted, wanted};
use polyrail_core::wire::{Ip, PeerId};
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Callers that have not said whom they want, at once: between so many, a sixteenth of the descriptors that there may be.
const SILENT: (usize, usize) = (16, 512);
/// How long they may take to.
const PATIENCE: Duration = Duration::from_secs(5);
/// Callers that have said so, and wait for an endpoint to look.
const WAITING: usize = 64;
/// Connections that the listeners give in one look.
const AT_ONCE: usize = 64;
/// Tokens from here on are callers; below are listeners, and the timer.
const CALLERS: u64 = 1 << 16;
const TIMER: u64 = CALLERS - 1;

/// What is behind such a port.
struct Switch {
    ports: Ports,
    /// The interfaces and addresses that there were when those were opened.
    places: Vec<(u32, Vec<Ip>)>,
    timer: Timer,
    /// The listeners, the timer, and callers that have not said whom they want.
    epoll: Epoll,
    events: Vec<libc::epoll_event>,
    silent: BTreeMap<u64, Caller>,
    next: u64,
    endpoints: Vec<Endpoint>,
    joined: u64,
}

struct Caller {
    connection: TcpStream,
    source: Source,
    since: Instant,
}

struct Endpoint {
    number: u64,
    id: PeerId,
    /// Readable while somebody waits for it.
    called: OwnedFd,
    waiting: VecDeque<(TcpStream, Source)>,
}

/// One endpoint's part of it.
pub(crate) struct Part {
    port: SharedPort,
    number: u64,
    descriptors: [RawFd; 2],
}

type Inner = Option<Box<dyn Any + Send>>;

fn lock(port: &SharedPort) -> MutexGuard<'_, Inner> {
    port.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is behind a port, if it is open.
fn switch(inner: &mut Inner) -> Option<&mut Switch> {
    inner.as_mut()?.downcast_mut()
}

/// One more endpoint that listens on a port; also which that is.
pub(super) fn join(port: &SharedPort, endpoint: &Opening<'_>) -> Result<(Part, u16), Error> {
    let failed = |why| Error::system("listening on a port with others", why);
    let mut inner = lock(port);
    if inner.is_none() {
        *inner = Some(Box::new(Switch::open(endpoint)?));
    }
    let switch = switch(&mut inner).ok_or_else(|| failed(io::ErrorKind::Unsupported.into()))?;
    if switch.endpoints.len() >= SharedPort::MOST {
        return Err(failed(io::Error::other(format!("{} share it already", SharedPort::MOST))));
    }
    if switch.endpoints.iter().any(|one| one.id == endpoint.id) {
        return Err(failed(io::ErrorKind::AddrInUse.into()));
    }
    switch.renew(endpoint)?;
    let called = event().map_err(failed)?;
    let descriptors = [switch.epoll.as_raw_fd(), called.as_raw_fd()];
    let number = switch.joined;
    switch.joined += 1;
    switch.endpoints.push(Endpoint { number, id: endpoint.id, called, waiting: VecDeque::new() });
    Ok((Part { port: port.clone(), number, descriptors }, switch.ports.port()))
}

fn places(endpoint: &Opening<'_>) -> Vec<(u32, Vec<Ip>)> {
    endpoint.interfaces.iter().map(|one| (one.index, one.ips().collect())).collect()
}

impl Part {
    /// What to watch.
    pub fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }

    /// The next connection that is for this endpoint; none that waits is `EAGAIN`.
    pub fn accept(&mut self) -> io::Result<TcpStream> {
        let mut inner = lock(&self.port);
        switch(&mut inner)
            .map_or_else(|| Err(io::ErrorKind::WouldBlock.into()), |switch| switch.next(self.number))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(switch) = switch(&mut lock(&self.port)) {
            switch.endpoints.retain(|one| one.number != self.number);
        }
    }
}

impl Switch {
    fn open(endpoint: &Opening<'_>) -> Result<Self, Error> {
        let failed = |why| Error::system("listening on a port with others", why);
        let (epoll, timer) = (Epoll::new().map_err(failed)?, Timer::new().map_err(failed)?);
        epoll.add(timer.fd(), libc::EPOLLIN, TIMER).map_err(failed)?;
        let new = Self {
            ports: listen::open(endpoint)?,
            places: places(endpoint),
            timer,
            epoll,
            events: Vec::with_capacity(64),
            silent: BTreeMap::new(),
            next: CALLERS,
            endpoints: Vec::new(),
            joined: 0,
        };
        new.watch_ports().map_err(failed)?;
        Ok(new)
    }

    fn watch_ports(&self) -> io::Result<()> {
        (0..)
            .zip(self.ports.descriptors())
            .try_for_each(|(token, fd)| self.epoll.add(fd, libc::EPOLLIN, token))
    }

    /// Listens anew where interfaces or addresses are others than they were: listeners may be bound to those.
    fn renew(&mut self, endpoint: &Opening<'_>) -> Result<(), Error> {
        let now = places(endpoint);
        if now == self.places {
            return Ok(());
        }
        self.places.clear();
        self.ports.descriptors().for_each(|fd| self.epoll.remove(fd));
        let port = Some(self.ports.close());
        self.ports = listen::open(&Opening { port, ..*endpoint })?;
        self.watch_ports().map_err(|why| Error::system("listening on a port with others", why))?;
        self.places = now;
        Ok(())
    }

    /// The next connection for an endpoint.
    fn next(&mut self, number: u64) -> io::Result<TcpStream> {
        let nobody = || io::Error::from(io::ErrorKind::WouldBlock);
        let at = self.endpoints.iter().position(|one| one.number == number).ok_or_else(nobody)?;
        let looked = if self.endpoints[at].waiting.is_empty() { self.look() } else { Ok(()) };
        let ours = &mut self.endpoints[at];
        let next = ours.waiting.pop_front();
        if ours.waiting.is_empty() {
            signal(&ours.called, false);
        }
        match next {
            Some((connection, _)) => Ok(connection),
            None => Err(looked.err().unwrap_or_else(nobody)),
        }
    }

    /// Takes who calls, and hands on who has said whom it wants.
    fn look(&mut self) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.events);
        self.epoll.take(&mut events);
        let calls = events.iter().any(|event| event.u64 < TIMER);
        for event in &events {
            match event.u64 {
                ..TIMER => {}
                TIMER => self.dismiss(),
                caller => self.hear(caller),
            }
        }
        self.events = events;
        if calls { self.take() } else { Ok(()) }
    }

    fn take(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let most = (descriptor_limit() / 16).clamp(SILENT.0, SILENT.1);
        for _ in 0..AT_ONCE {
            let connection = match self.ports.accept() {
                Ok(connection) => connection,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) => {
                    let full = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
                    if why.raw_os_error().is_some_and(|e| full.contains(&e)) && self.give_way() {
                        continue;
                    }
                    return Err(why);
                }
            };
            if self.silent.len() >= most {
                self.give_way();
            }
            let source = connection.peer_addr().map_or(Source::Unknown, |at| Source::at(at.ip()));
            let token = self.next;
            // each piece of what it says is told of once: what is there stays there to be read by another
            if self.epoll.add(connection.as_raw_fd(), libc::EPOLLIN | libc::EPOLLET, token).is_ok() {
                self.next += 1;
                self.silent.insert(token, Caller { connection, source, since: now });
                self.hear(token);
                self.wake();
            }
        }
        Ok(())
    }

    /// Room for another: whether there was somebody to give way.
    fn give_way(&mut self) -> bool {
        match gives_way(self.silent.iter().map(|(token, caller)| (*token, caller.source))) {
            Some(token) => {
                self.let_go(token);
                true
            }
            None => false,
        }
    }

    /// Wakes an endpoint when the oldest caller has had its time.
    fn wake(&mut self) {
        if let Some(oldest) = self.silent.values().next() {
            self.timer.wake_at(oldest.since + PATIENCE);
        }
    }

    /// Those that have had their time go.
    fn dismiss(&mut self) {
        self.timer.rang();
        let now = Instant::now();
        while let Some((&token, _)) =
            self.silent.first_key_value().filter(|(_, oldest)| oldest.since + PATIENCE <= now)
        {
            self.let_go(token);
        }
        self.wake();
    }

    fn let_go(&mut self, token: u64) -> Option<(TcpStream, Source)> {
        let caller = self.silent.remove(&token)?;
        self.epoll.remove(caller.connection.as_raw_fd());
        Some((caller.connection, caller.source))
    }

    /// Looks at what a caller has said so far. Who wants none of the endpoints, or says what is no HELLO, is answered by the first.
    fn hear(&mut self, token: u64) {
        let Some(caller) = self.silent.get(&token) else { return };
        let mut said = [0; HELLO_LEN];
        let whom = match caller.connection.peek(&mut said) {
            Ok(0) => None,
            Ok(got) => match wanted(&said[..got]) {
                Wanted::Unsaid => return,
                Wanted::Endpoint(id) => Some(self.endpoints.iter().position(|one| one.id == id).unwrap_or(0)),
                Wanted::Nobody => Some(0),
            },
            Err(why) if matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return;
            }
            Err(_) => None,
        };
        let Some(caller) = self.let_go(token) else { return };
        let Some(endpoint) = whom.and_then(|at| self.endpoints.get_mut(at)) else { return };
        if endpoint.waiting.len() >= WAITING {
            let all = endpoint.waiting.iter().enumerate().map(|(at, (_, source))| (at, *source));
            gives_way(all).and_then(|at| endpoint.waiting.remove(at));
        }
        endpoint.waiting.push_back(caller);
        signal(&endpoint.called, true);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
