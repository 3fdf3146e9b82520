//! Answers a program's calls of `connect(2)` and `getpeername(2)`: of connections that were made through the gateway, and of such as came through it.
//!
//! What does not concern another site is carried out by the kernel as ever. What does is done here, on a duplicate of the program's descriptor, which
//! is the same socket: whatever the program does to its memory or descriptors meanwhile, what was looked at is what is connected. The call ends when the other site's half
//! is connected, or with the error that this gave, also of sockets that do not block: those wait for [`HELD`] at most.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::libc;
use polyrail_gateway::config::WhenDown;
use polyrail_native::seccomp::{Listener, Notice, Rule, Verdict};
use polyrail_rails::relay;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};

use super::process;
use super::ways::Ways;
use crate::gateway;
use crate::output::tell;

/// How long a socket that does not block is held while it is connected.
const HELD: Duration = Duration::from_secs(5);
/// How long others are: longer than the kernel tries to reach a host.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often it is looked whether the program still waits.
const LOOK: Duration = Duration::from_millis(500);
/// How long the gateway itself may take to be reached, which is near.
const NEAR: Duration = Duration::from_secs(3);
/// Connections that are made at once; more are told to try again.
const AT_ONCE: usize = 4096;
/// Sockets of which is known whom they were connected with.
const KNOWN: usize = 65_536;

/// `MSG_FASTOPEN`, by which data is sent with the connection: who is told that it is not supported connects first.
const FAST_OPEN: u32 = libc::MSG_FASTOPEN as u32;

/// Which calls are answered, and which fail.
pub fn rules(io_uring: bool) -> Vec<Rule> {
    let fast = |call, argument| Rule::Fail { call, argument, bits: FAST_OPEN, error: libc::EOPNOTSUPP };
    let mut rules = vec![
        Rule::Tell(libc::SYS_connect),
        Rule::Tell(libc::SYS_getpeername),
        fast(libc::SYS_sendto, 3),
        fast(libc::SYS_sendmsg, 2),
        fast(libc::SYS_sendmmsg, 3),
    ];
    if !io_uring {
        rules.push(Rule::Tell(libc::SYS_io_uring_setup));
    }
    rules
}

/// What was said once is not said again.
#[derive(Default)]
struct Said {
    unseen: AtomicBool,
    io_uring: AtomicBool,
    datagrams: AtomicBool,
    family: AtomicBool,
}

fn once(said: &AtomicBool, what: &str) {
    if !said.swap(true, Ordering::Relaxed) {
        tell!("polyrail wrap: {what}");
    }
}

/// Whom sockets are connected with through gateways, by the kernel's cookie of each, the oldest first; none: with whom the kernel says.
#[derive(Default)]
struct Known {
    with: HashMap<u64, Option<SocketAddr>>,
    order: VecDeque<u64>,
}

struct Supervisor {
    listener: Listener,
    ways: Ways,
    verbose: bool,
    said: Said,
    known: Mutex<Known>,
    running: AtomicUsize,
}

/// Answers, for as long as there is somebody who can ask, on threads of its own; the first of them.
///
/// # Errors
/// It cannot be started.
pub fn begin(listener: Listener, ways: Ways, verbose: bool) -> io::Result<JoinHandle<()>> {
    let supervisor = Arc::new(Supervisor {
        listener,
        ways,
        verbose,
        said: Said::default(),
        known: Mutex::default(),
        running: AtomicUsize::new(0),
    });
    thread::Builder::new().name("supervisor".into()).spawn(move || {
        loop {
            match supervisor.listener.next() {
                Ok(Some(notice)) => Supervisor::answer(&supervisor, notice),
                Ok(None) => return,
                Err(why) => {
                    tell!("polyrail wrap: the kernel does not say any more what the program calls: {why}");
                    return;
                }
            }
        }
    })
}

/// What becomes of a connection.
enum Plan {
    /// The kernel's to make.
    Plain,
    /// Ours, with this socket.
    Through { socket: OwnedFd, to: SocketAddr, site: String, when_down: WhenDown },
}

impl Supervisor {
    fn answer(this: &Arc<Self>, notice: Notice) {
        let verdict = match notice.call {
            libc::SYS_connect => match this.plan(&notice) {
                Plan::Plain => Verdict::Continue,
                Plan::Through { socket, to, site, when_down } => {
                    let connect = move |this: &Self, notice: &Notice| {
                        this.connect(notice, &socket, to, &site, when_down)
                    };
                    return Self::aside(this, notice, connect);
                }
            },
            libc::SYS_getpeername => {
                return Self::aside(this, notice, |this, notice| this.peer_name(notice));
            }
            libc::SYS_io_uring_setup => {
                once(
                    &this.said.io_uring,
                    "a program asked for io_uring and was told that there is none, because it could connect unseen by it; --io-uring lets it",
                );
                Verdict::Error(libc::ENOSYS)
            }
            _ => Verdict::Continue,
        };
        this.listener.answer(&notice, verdict);
    }

    /// Answers by a thread, as it may take long.
    fn aside(
        this: &Arc<Self>,
        notice: Notice,
        what: impl FnOnce(&Self, &Notice) -> Verdict + Send + 'static,
    ) {
        let refused = || this.listener.answer(&notice, Verdict::Error(libc::EAGAIN));
        if this.running.fetch_add(1, Ordering::AcqRel) >= AT_ONCE {
            this.running.fetch_sub(1, Ordering::AcqRel);
            refused();
            return;
        }
        let ours = this.clone();
        let answer = move || {
            let verdict = what(&ours, &notice);
            ours.listener.answer(&notice, verdict);
            ours.running.fetch_sub(1, Ordering::AcqRel);
        };
        if thread::Builder::new().name("answer".into()).stack_size(256 << 10).spawn(answer).is_err() {
            this.running.fetch_sub(1, Ordering::AcqRel);
            refused();
        }
    }

    fn plan(&self, notice: &Notice) -> Plan {
        let [fd, at, len, ..] = notice.arguments;
        let to = match process::address(notice.thread, at, len & 0xffff_ffff) {
            Ok(Some(to)) => to,
            Ok(None) => return Plan::Plain,
            // an address that is not there is the kernel's to refuse; one that may not be looked at is worth telling
            Err(why) => {
                if why.kind() == io::ErrorKind::PermissionDenied {
                    once(
                        &self.said.unseen,
                        "a program may not be looked into (it runs as another user, or has ended its ties): its connections go as ever",
                    );
                }
                return Plan::Plain;
            }
        };
        let way = self.ways.of(to.ip()).filter(|_| !process::is_unspecified(to));
        let knows_some = self.known.lock().is_ok_and(|known| !known.with.is_empty());
        if way.is_none() && !knows_some {
            return Plan::Plain;
        }
        let socket = match process::descriptor(notice.thread, fd as u32 as i32) {
            Ok(socket) => socket,
            Err(why) => {
                // that it has no such descriptor is the kernel's to say
                if why.raw_os_error() != Some(libc::EBADF) {
                    once(
                        &self.said.unseen,
                        &format!(
                            "a program's descriptors may not be looked at, and its connections go as ever: {why}"
                        ),
                    );
                }
                return Plan::Plain;
            }
        };
        // whatever was found was its own only if it still waits now
        if !self.listener.waits(notice) {
            return Plan::Plain;
        }
        let Some((site, when_down)) = way else {
            self.forget(&socket);
            return Plan::Plain;
        };
        match (sockopt::socket_type(&socket), sockopt::socket_domain(&socket)) {
            (Ok(SocketType::STREAM), Ok(AddressFamily::INET | AddressFamily::INET6))
                if matches!(
                    sockopt::socket_protocol(&socket),
                    Ok(None | Some(ipproto::TCP | ipproto::MPTCP))
                ) =>
            {
                Plan::Through { socket, to, site, when_down }
            }
            (Ok(SocketType::DGRAM), _) => {
                once(
                    &self.said.datagrams,
                    &format!(
                        "a program sends datagrams to {to}, at site {site}: those do not go through gateways"
                    ),
                );
                Plan::Plain
            }
            _ => Plan::Plain,
        }
    }

    fn learn(&self, socket: &OwnedFd, with: Option<SocketAddr>) {
        let (Ok(cookie), Ok(mut known)) = (sockopt::socket_cookie(socket), self.known.lock()) else { return };
        if known.with.insert(cookie, with).is_none() {
            known.order.push_back(cookie);
        }
        if known.order.len() > KNOWN {
            known.order.pop_front().and_then(|oldest| known.with.remove(&oldest));
        }
    }

    /// A socket is not, or not any more, what was known of it.
    fn forget(&self, socket: &OwnedFd) {
        if let (Ok(cookie), Ok(mut known)) = (sockopt::socket_cookie(socket), self.known.lock()) {
            known.with.remove(&cookie);
        }
    }

    fn connect(
        &self,
        notice: &Notice,
        socket: &OwnedFd,
        to: SocketAddr,
        site: &str,
        when_down: WhenDown,
    ) -> Verdict {
        let outcome = self.through(notice, socket, to);
        let direct = matches!(outcome, Err(Failed::Away)) && when_down == WhenDown::Direct;
        if self.verbose {
            let what = match &outcome {
                Ok(()) => "through the gateway".to_owned(),
                Err(_) if direct => "directly, as the gateway does not lead there now".to_owned(),
                Err(why) => format!("not connected: {}", io::Error::from_raw_os_error(why.errno())),
            };
            tell!("polyrail wrap: {to} at site {site}: {what}");
        }
        match outcome {
            Ok(()) => {
                self.learn(socket, Some(to));
                Verdict::Result(0)
            }
            Err(why) => {
                self.forget(socket);
                if !matches!(why, Failed::Before(_)) {
                    // as it was, so that it can be connected again; one for which that fails is closed by its program
                    let _ = rustix::net::connect_unspec(socket);
                }
                if direct { Verdict::Continue } else { Verdict::Error(why.errno()) }
            }
        }
    }

    /// Connects the program's socket with the gateway, and has that connect it further.
    fn through(&self, notice: &Notice, socket: &OwnedFd, to: SocketAddr) -> Result<(), Failed> {
        let blocks = rustix::fs::fcntl_getfl(socket)
            .map(|flags| !flags.contains(rustix::fs::OFlags::NONBLOCK))
            .map_err(Failed::Before)?;
        // what the program itself has set holds for all of it (connect(2))
        let own = sockopt::socket_timeout(socket, sockopt::Timeout::Send).ok().flatten().filter(|_| blocks);
        let patience = own.unwrap_or(if blocks { PATIENCE } else { HELD });
        let until = Instant::now() + patience;
        let done = self.within(notice, socket, to, until);
        if blocks {
            // it blocked; one for which that cannot be set any more is closed
            let _ = rustix::io::ioctl_fionbio(socket, false);
        }
        done
    }

    /// The same, until then; the socket does not block afterwards.
    fn within(
        &self,
        notice: &Notice,
        socket: &OwnedFd,
        to: SocketAddr,
        until: Instant,
    ) -> Result<(), Failed> {
        let family = sockopt::socket_domain(socket).map_err(Failed::Before)?;
        let gateway = match (family, process::as_v4(self.ways.gateway)) {
            (AddressFamily::INET6, at) => process::as_v6(at),
            (_, at) if at.is_ipv6() => {
                once(
                    &self.said.family,
                    &format!(
                        "a program wants to reach {to} by IPv4, but the gateway is called by IPv6 alone, at {at}; let it listen at an address of IPv4, too"
                    ),
                );
                return Err(Failed::Away);
            }
            (_, at) => at,
        };
        if family == AddressFamily::INET6 {
            // one for IPv6 alone could not be connected with a gateway of IPv4; where it is bound it can be neither
            let _ = sockopt::set_ipv6_v6only(socket, false);
        }
        // also one that blocks: a gateway whose host is gone is not waited for as long as another site's host
        rustix::io::ioctl_fionbio(socket, true).map_err(Failed::Before)?;
        // what fails before the gateway was tried is what the program did: the socket is connected, is listening, is bound elsewhere
        match rustix::net::connect(socket, &gateway) {
            Ok(()) => {}
            Err(Errno::INPROGRESS) => {
                let near = until.min(Instant::now() + NEAR);
                match self.wait(notice, socket, PollFlags::OUT, near) {
                    Err(Failed::Site(libc::ETIMEDOUT)) if Instant::now() < until => return Err(Failed::Away),
                    waited => waited?,
                }
                sockopt::socket_error(socket).map_err(Failed::Before)?.map_err(|_| Failed::Away)?;
                // the kernel calls it connected only when that was asked once more
                let _ = rustix::net::connect(socket, &gateway);
            }
            Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::TIMEDOUT) => {
                return Err(Failed::Away);
            }
            Err(why) => return Err(Failed::Before(why)),
        }
        let ask = relay::ask(to);
        let sent = rustix::net::send(socket, &ask, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        if sent != Ok(ask.len()) {
            return Err(Failed::Away);
        }
        let mut head = [0; relay::ANSWER_HEAD];
        self.receive(notice, socket, &mut head, until)?;
        let Some((rest, code)) = relay::answer(&head) else { return Err(Failed::Away) };
        let mut room = [0; 18];
        self.receive(notice, socket, &mut room[..rest], until)?;
        match code {
            0 => Ok(()),
            3 => Err(Failed::Away),
            2 => Err(Failed::Site(libc::EACCES)),
            4 => Err(Failed::Site(libc::EHOSTUNREACH)),
            5 => Err(Failed::Site(libc::ECONNREFUSED)),
            6 => Err(Failed::Site(libc::ETIMEDOUT)),
            _ => Err(Failed::Site(libc::ECONNABORTED)),
        }
    }

    fn receive(
        &self,
        notice: &Notice,
        socket: &OwnedFd,
        room: &mut [u8],
        until: Instant,
    ) -> Result<(), Failed> {
        let mut at = 0;
        while at < room.len() {
            match rustix::net::recv(socket, &mut room[at..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(Failed::Away),
                Ok((got, _)) => at += got,
                Err(Errno::AGAIN) => self.wait(notice, socket, PollFlags::IN, until)?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Failed::Away),
            }
        }
        Ok(())
    }

    /// Waits for a socket, for as long as its program waits for the call.
    fn wait(&self, notice: &Notice, socket: &OwnedFd, what: PollFlags, until: Instant) -> Result<(), Failed> {
        loop {
            let left = until.saturating_duration_since(Instant::now()).min(LOOK);
            if left.is_zero() {
                return Err(Failed::Site(libc::ETIMEDOUT));
            }
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(socket, what)], Some(&timeout)) {
                Ok(1..) => return Ok(()),
                Ok(0) if !self.listener.waits(notice) => return Err(Failed::Site(libc::EINTR)),
                Ok(0) | Err(Errno::INTR) => {}
                Err(why) => return Err(Failed::Before(why)),
            }
        }
    }

    /// Whom a socket is connected with, as its program knows it.
    fn peer_name(&self, notice: &Notice) -> Verdict {
        let [fd, at, length_at, ..] = notice.arguments;
        let found = || {
            let socket = process::descriptor(notice.thread, fd as u32 as i32).ok()?;
            let memory = process::memory(notice.thread).ok()?;
            // what was found and opened was its own only if it still waits now
            if !self.listener.waits(notice) {
                return None;
            }
            let family = sockopt::socket_domain(&socket).ok()?;
            if !matches!(family, AddressFamily::INET | AddressFamily::INET6) {
                return None;
            }
            let cookie = sockopt::socket_cookie(&socket).ok()?;
            let known = self.known.lock().ok()?.with.get(&cookie).copied();
            // one that is not connected any more has no peer
            let peer = rustix::net::getpeername(&socket).ok()??.try_into().ok()?;
            let with = known.unwrap_or_else(|| {
                let with = self.behind(&socket, peer);
                self.learn(&socket, with);
                with
            })?;
            Some((if family == AddressFamily::INET6 { process::as_v6(with) } else { with }, memory))
        };
        match found() {
            Some((with, memory)) => match process::write_address(&memory, at, length_at, with) {
                Ok(()) => Verdict::Result(0),
                Err(_) => Verdict::Error(libc::EFAULT),
            },
            None => Verdict::Continue,
        }
    }

    /// Who is behind a connection that the gateway made to this program.
    fn behind(&self, socket: &OwnedFd, peer: SocketAddr) -> Option<SocketAddr> {
        let near: SocketAddr = rustix::net::getsockname(socket).ok()?.try_into().ok()?;
        let (peer, near) = (process::as_v4(peer), process::as_v4(near));
        let gateway = self.ways.gateway.ip().to_canonical();
        // a gateway on this host calls from the address that it calls
        let is_here = gateway.is_loopback() && (peer.ip() == near.ip() || peer.ip().is_loopback());
        if !is_here && !self.ways.is_at(peer.ip()) {
            return None;
        }
        serde_json::from_slice(&gateway::page(self.ways.gateway, &format!("/peer/{peer}")).ok()?).ok()?
    }
}

/// Why a connection was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// The socket was none that can be connected: the program's own doing.
    Before(Errno),
    /// There is no gateway, or it does not lead there now.
    Away,
    /// The other site says so.
    Site(i32),
}

impl Failed {
    fn errno(self) -> i32 {
        match self {
            Self::Before(why) => why.raw_os_error(),
            Self::Away => libc::ENETUNREACH,
            Self::Site(number) => number,
        }
    }
}
