//! One connection: its socket, what is being received and what waits to be sent. Small while nothing happens.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::rx::Rx;
use super::seal::{Opener, Sealer};
use super::sys::{self, Errno};
use super::tx::Tx;
use super::warmth::{Act, Warmth};
use super::{Config, Stats};
use crate::rail::RawIov;
use crate::rail::journal::{Pool, RetransmitBuffer};

/// Bytes that the kernel may keep of what is not acknowledged, where the application comes by all the time (it doubles that): what is lost is kept until it is
/// repaired, and so is all that was sent since, three round trips' worth.
const KEEPS: usize = 64 << 20;
/// Such an application has something for the kernel at least so often; of which it takes so much, at least and at most, and of a connection of which it is not
/// known yet how fast it is.
const MOMENT: Duration = Duration::from_millis(2);
const BEFOREHAND: (u64, u64) = (128 << 10, 16 << 20);
const BEFOREHAND_FIRST: u64 = 256 << 10;

/// What is known of a link's way.
pub(super) struct Way {
    /// Where the peer is, and how far beyond the gateway to which the connection leads, in microseconds.
    pub(super) far: Option<(IpAddr, u32)>,
    /// What BBR is to keep to, if it controls the connection.
    warmth: Option<Warmth>,
    /// How many bytes a second it may be paced by, at most.
    pace: u64,
    /// How many bytes the kernel takes beforehand, where that is less than its buffer.
    unsent: Option<u64>,
    /// It took no more, since it was looked at last.
    pub(super) refused: bool,
}

impl Default for Way {
    fn default() -> Self {
        Self { far: None, warmth: None, pace: u64::MAX, unsent: None, refused: false }
    }
}

pub(super) struct Link {
    socket: OwnedFd,
    pub(super) rx: Rx,
    pub(super) tx: Tx,
    /// In the rail's list of links to receive from.
    pub(super) listed: bool,
    /// Something is there to be received, as far as is known.
    pub(super) pending: bool,
    /// The peer has sent its last byte or the connection broke: receive until that is seen.
    pub(super) ending: bool,
    /// In the rail's list of links to send from.
    pub(super) dirty: bool,
    /// In the rail's list of links whose peer waits to hear what came.
    pub(super) ack_pending: bool,
    /// How often in a row receiving gave nothing.
    pub(super) empty: u16,
    /// How often in a row it was seen that the peer's kernel does not answer.
    pub(super) silent: u8,
    /// Its keep-alive is hurried until the next look at silent links.
    pub(super) hurried: bool,
    /// What is known of its way, of those of which something is to be.
    pub(super) way: Option<Box<Way>>,
    /// What sending ran into. Told once all that has arrived is received.
    pub(super) error: Option<Errno>,
}

impl Link {
    pub(super) fn new(socket: OwnedFd, leftover: &[u8], seal: Option<(Sealer, Opener)>) -> Self {
        let (sealer, opener) = seal.unzip();
        let bbr = sys::congestion(socket.as_raw_fd()).as_deref() == Some("bbr");
        let way = bbr.then(|| Box::new(Way { warmth: Some(Warmth::new(Instant::now())), ..Way::default() }));
        Self {
            socket,
            rx: Rx::new(leftover, opener.map(Box::new)),
            tx: Tx::new(sealer.map(Box::new)),
            listed: false,
            pending: false,
            ending: false,
            dirty: false,
            ack_pending: false,
            empty: 0,
            silent: 0,
            hurried: false,
            way,
            error: None,
        }
    }

    /// Both ends' addresses.
    pub(super) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let socket = TcpStream::from(self.socket.try_clone().ok()?);
        // a socket for both families has IPv4 addresses in IPv6's clothes
        let plain = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let mut far = plain(socket.peer_addr().ok()?);
        self.far().iter().for_each(|beyond| far.set_ip(beyond.0));
        Some((plain(socket.local_addr().ok()?), far))
    }

    /// Where the peer is, and how far beyond the gateway to which the connection leads, in microseconds, if it leads to one.
    pub(super) fn far(&self) -> Option<(IpAddr, u32)> {
        self.way.as_ref()?.far
    }

    /// Keeps the connection as fast as it was, if that is due.
    pub(super) fn keep_warm(&mut self, now: Instant) {
        let (fd, waits) = (self.fd(), self.tx.waits());
        let Some(way) = &mut self.way else { return };
        let Some(warmth) = way.warmth.as_mut().filter(|warmth| warmth.is_due(now)) else { return };
        let Some(mut seen) = sys::bbr(fd) else { return self.let_cool() };
        seen.waits |= waits;
        seen.refused = std::mem::take(&mut way.refused);
        if let Some(bytes) = way.unsent.and_then(|unsent| other_moment(unsent, seen.rate)) {
            way.unsent = Some(bytes);
            sys::take_beforehand(fd, bytes);
        }
        match warmth.look(now, &seen) {
            Some(Act::BeginAnew(rate)) => {
                sys::pace(fd, rate.unwrap_or(u64::MAX).min(way.pace));
                if sys::begin_anew(fd).is_err() {
                    self.let_cool();
                }
            }
            Some(Act::Bind(rate)) => sys::pace(fd, rate.min(way.pace)),
            Some(Act::SetFree) => sys::pace(fd, way.pace),
            None => {}
        }
    }

    /// Has the kernel keep as much as is under way on a long way, and take no more beforehand than it sends in a moment, if BBR controls the
    /// connection: it tells how fast that is.
    pub(super) fn attend(&mut self) {
        let fd = self.fd();
        if let Some(way) = self.way.as_mut().filter(|way| way.warmth.is_some()) {
            way.unsent = Some(BEFOREHAND_FIRST);
            sys::take_beforehand(fd, BEFOREHAND_FIRST);
            let _ = sys::keep_more(fd, KEEPS);
        }
    }

    /// Something is to be sent: who sends much may hear little, and then is seldom among those that are looked at for that.
    pub(super) fn look_before_sending(&mut self) {
        if self.way.as_ref().is_some_and(|way| way.unsent.is_some()) {
            self.keep_warm(Instant::now());
        }
    }

    /// BBR is not, or no more, what this user may choose: the connection is as any other.
    fn let_cool(&mut self) {
        let Some(way) = &mut self.way else { return };
        way.warmth = None;
        let (pace, unsent) = (way.pace, way.unsent.take());
        sys::pace(self.fd(), pace);
        if unsent.is_some() {
            sys::take_beforehand(self.fd(), 0);
        }
    }

    /// Has the kernel pace it by so many bytes a second at most.
    pub(super) fn pace(&mut self, rate: u64) {
        self.way.iter_mut().for_each(|way| way.pace = rate);
        sys::pace(self.fd(), rate);
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Bytes of the stream that the peer's kernel has acknowledged, and bytes that were given to the link and are not.
    pub(super) fn delivered_and_queued(&self) -> (u64, u64) {
        let (there, tx) = (sys::unacknowledged(self.fd()), &self.tx);
        match &tx.sealer {
            None => {
                (tx.unacked.written().saturating_sub(there as u64), (there + tx.unacked.unwritten()) as u64)
            }
            Some(sealer) => {
                let delivered = sealer.delivered(there);
                (delivered, tx.unacked.given() - delivered)
            }
        }
    }
}

/// How many bytes that are not acknowledged the kernel would keep of a connection whose application [comes by all the time](Config::attends).
///
/// # Errors
/// There is no socket to try it with.
pub fn most_kept() -> io::Result<usize> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(sys::keep_more(socket.as_raw_fd(), KEEPS))
}

/// How many bytes are to be taken beforehand of a connection with so many bytes a second, if that is much more or less than so many.
fn other_moment(bytes: u64, rate: u64) -> Option<u64> {
    // of a connection that has begun anew nothing is known
    let wanted = (rate > 0).then(|| rate.saturating_mul(MOMENT.as_millis() as u64) / 1000)?;
    let wanted = wanted.clamp(BEFOREHAND.0, BEFOREHAND.1);
    (wanted / 2 >= bytes || wanted <= bytes / 2).then_some(wanted)
}

/// What all links use in turn, never between two calls.
pub(super) struct Shared {
    /// Where bytes are received whose place is not known yet; also where a small frame is put together.
    pub(super) staging: Box<[u8]>,
    /// Where sealed records are received; empty before the first sealed link.
    pub(super) sealed: Vec<u8>,
    /// Addresses for one system call.
    pub(super) iov: Vec<RawIov>,
    pub(super) pool: Pool,
    pub(super) stats: Stats,
}

/// A slot of the table of links.
#[expect(clippy::large_enum_variant, reason = "nearly all are up, and looked at all the time")]
pub(super) enum Slot {
    Free,
    Up(Link),
    /// Ended; not closed yet.
    Down(Box<Remains>),
}

/// What is left of a link that ended.
pub(super) struct Remains {
    pub(super) unacked: RetransmitBuffer,
    /// Whole frames that came by it.
    pub(super) received: u64,
}

// There are thousands of links, most of them idle: what only active ones need is allocated when they need it.
const _: () = assert!(size_of::<Slot>() <= 320);

impl Slot {
    pub(super) fn up(&mut self) -> Option<&mut Link> {
        match self {
            Self::Up(link) => Some(link),
            _ => None,
        }
    }
}

/// Sets after how much silence the kernel probes the peer; that time counts from what came last.
pub(super) fn keepalive(fd: RawFd, idle: Duration) -> io::Result<()> {
    sys::set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds(idle))
}

fn seconds(time: Duration) -> libc::c_int {
    libc::c_int::try_from(time.as_secs().max(1)).unwrap_or(libc::c_int::MAX)
}

pub(super) fn configure(fd: RawFd, config: &Config) -> io::Result<()> {
    let int = |v: u128| libc::c_int::try_from(v).unwrap_or(libc::c_int::MAX);
    let tcp = |name, value| sys::set(fd, libc::IPPROTO_TCP, name, value);
    tcp(libc::TCP_NODELAY, 1)?;
    sys::set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    keepalive(fd, config.keepalive_idle)?;
    tcp(libc::TCP_KEEPINTVL, seconds(config.keepalive_interval))?;
    tcp(libc::TCP_KEEPCNT, int(config.keepalive_count.max(1).into()))?;
    if let Some(bytes) = config.send_buffer {
        sys::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, int(bytes as u128))?;
    }
    if let Some(bytes) = config.recv_buffer {
        sys::set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, int(bytes as u128))?;
    }
    if let Some(bytes) = config.unsent_limit {
        tcp(libc::TCP_NOTSENT_LOWAT, int(bytes as u128))?;
    }
    if let Some(name) = &config.congestion {
        sys::set_bytes(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_taken_beforehand_as_is_sent_in_a_moment() {
        for (bytes, rate, other) in [
            (256 << 10, 0, None),
            (256 << 10, 1_250_000_000, Some(2_500_000)),
            (2_500_000, 1_300_000_000, None),
            (2_500_000, 12_500_000, Some(128 << 10)),
            (2_500_000, u64::MAX, Some(16 << 20)),
        ] {
            assert_eq!(other_moment(bytes, rate), other, "{bytes} {rate}");
        }
    }
}
