//! Two rails joined by real sockets, and a worker that only remembers.

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use polyrail_core::frame::{Frame, Matching, OpId, Order};
use polyrail_rails::keys::{Chain, LinkKeys};
use polyrail_rails::rail::{Down, Full, LinkId, Memory, Payload, Place, Rail, RawIov, Sink, Span};
use polyrail_rails::tcp::{Config, TcpRail};

/// A connected pair of sockets on the loopback address `host`.
pub fn sockets(host: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((host, 0)).expect("a loopback address");
    let a = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
    (a, listener.accept().expect("connected").0)
}

/// As [`sockets`], with segments of at most 1000 bytes: tiny buffers make the loopback device's segments of 64 KB wait for
/// timers.
fn short_segments(host: &str) -> (TcpStream, TcpStream) {
    let segments = |fd: RawFd| {
        let (mss, len) = (1000 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the kernel reads one int.
        let result = unsafe {
            libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, (&raw const mss).cast(), len)
        };
        assert_eq!(result, 0);
    };
    let listener = TcpListener::bind((host, 0)).expect("a loopback address");
    segments(listener.as_raw_fd());
    let port = listener.local_addr().expect("bound").port().to_be();
    let v6 = host == "::1";
    // SAFETY: zeros are valid addresses of either family; their sizes are given to connect; the descriptor is new.
    let a = unsafe {
        let mut a4: libc::sockaddr_in = std::mem::zeroed();
        (a4.sin_family, a4.sin_port) = (libc::AF_INET as _, port);
        a4.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let mut a6: libc::sockaddr_in6 = std::mem::zeroed();
        (a6.sin6_family, a6.sin6_port, a6.sin6_addr.s6_addr[15]) = (libc::AF_INET6 as _, port, 1);
        let (family, at, len): (_, *const libc::sockaddr, _) = match v6 {
            true => (libc::AF_INET6, (&raw const a6).cast(), size_of_val(&a6)),
            false => (libc::AF_INET, (&raw const a4).cast(), size_of_val(&a4)),
        };
        let fd = libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        segments(fd);
        assert_eq!(libc::connect(fd, at, len as _), 0);
        TcpStream::from_raw_fd(fd)
    };
    (a, listener.accept().expect("connected").0)
}

/// A worker that keeps all it is told.
#[derive(Default)]
pub struct Mock {
    /// Memory by place; what is absent is gone.
    pub memory: HashMap<u32, Vec<u8>>,
    /// Memory by place that may be named but not touched.
    pub forbidden: HashMap<u32, RawIov>,
    /// Into pieces of how many bytes memory is divided; 0: one piece.
    pub piece: usize,
    /// Frames that have wholly arrived, in order.
    pub frames: Vec<(LinkId, Frame, Vec<u8>)>,
    /// What is begun: the frame and its place.
    pub begun: HashMap<LinkId, (Frame, u32)>,
    /// How many payloads were begun.
    pub begins: usize,
    /// Begun payloads go nowhere.
    pub discard: bool,
    pub down: Vec<(LinkId, Down)>,
    next: u32,
}

pub fn place(slot: u32) -> Place {
    Place::Send(OpId { slot, generation: 0 })
}

impl Mock {
    /// Memory for `bytes`.
    pub fn own(&mut self, bytes: Vec<u8>) -> u32 {
        self.next += 1;
        self.memory.insert(self.next, bytes);
        self.next
    }

    pub fn iov(&self, span: Span) -> Vec<RawIov> {
        let mut iov = Vec::new();
        assert!(self.resolve(span, &mut iov));
        iov
    }

    /// Payloads that arrived on `link`.
    pub fn payloads(&self, link: LinkId) -> Vec<&[u8]> {
        self.frames.iter().filter(|(l, ..)| *l == link).map(|(.., p)| p.as_slice()).collect()
    }
}

impl Memory for Mock {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        let Place::Send(OpId { slot, .. }) = span.place else { return false };
        if let Some(v) = self.forbidden.get(&slot) {
            out.push(RawIov { base: v.base.wrapping_add(span.offset as usize), len: span.len });
            return true;
        }
        let Some(bytes) = self.memory.get(&slot) else { return false };
        let from = span.offset as usize;
        let Some(bytes) = bytes.get(from..from + span.len) else { return false };
        let piece = if self.piece == 0 { span.len.max(1) } else { self.piece };
        out.extend(bytes.chunks(piece).map(|c| RawIov { base: c.as_ptr().cast_mut(), len: c.len() }));
        true
    }
}

impl Sink for Mock {
    fn frame(&mut self, link: LinkId, frame: Frame, payload: Payload) {
        assert!(!self.begun.contains_key(&link), "a frame inside a begun payload");
        self.frames.push((link, frame, payload.to_vec()));
    }
    fn begin(&mut self, link: LinkId, frame: Frame, len: usize) -> Span {
        self.begins += 1;
        let slot = self.own(vec![0xee; len]);
        let before = self.begun.insert(link, (frame, slot));
        assert!(before.is_none(), "a payload begun inside another");
        Span { place: if self.discard { Place::Discard } else { place(slot) }, offset: 0, len }
    }
    fn end(&mut self, link: LinkId) {
        let (frame, slot) = self.begun.remove(&link).expect("end follows begin");
        let bytes = self.memory.remove(&slot).unwrap_or_default();
        self.frames.push((link, frame, bytes));
    }
    fn down(&mut self, link: LinkId, why: Down) {
        self.down.push((link, why));
    }
}

/// A rail and its worker.
pub struct Side {
    pub rail: TcpRail,
    pub mock: Mock,
}

pub fn side(config: Config) -> Side {
    Side { rail: TcpRail::new(config).expect("an epoll set"), mock: Mock::default() }
}

/// The frame that the tests send: its tag says which one it is. An eager message may have any payload, and none.
pub fn numbered(n: u64) -> Frame {
    Frame::Eager { order: Order::default(), matching: Matching::Tag(n), data: None, ack: None }
}

impl Side {
    pub fn adopt(&mut self, socket: TcpStream) -> LinkId {
        self.adopt_sealed(socket, None)
    }
    pub fn adopt_sealed(&mut self, socket: TcpStream, keys: Option<LinkKeys>) -> LinkId {
        self.rail.adopt_sealed(OwnedFd::from(socket), &[], keys).expect("a connected socket")
    }
    /// Sends bytes that do not outlive the call.
    pub fn send(&mut self, link: LinkId, frame: Frame, payload: &[u8]) -> Result<(), Full> {
        let iov = [RawIov { base: payload.as_ptr().cast_mut(), len: payload.len() }];
        // SAFETY: the payload is borrowed during the call.
        unsafe { self.rail.send(link, &frame.encode(payload.len()), &iov, None) }
    }
    /// Sends memory of the mock's, which the rail may keep by its span.
    pub fn send_span(&mut self, link: LinkId, frame: Frame, slot: u32) -> Result<(), Full> {
        let span = Span { place: place(slot), offset: 0, len: self.mock.memory[&slot].len() };
        let iov = self.mock.iov(span);
        // SAFETY: the mock owns the memory and outlives the call.
        unsafe { self.rail.send(link, &frame.encode(span.len), &iov, Some(span)) }
    }
    pub fn progress(&mut self) -> usize {
        let n = self.rail.progress(&mut self.mock);
        self.rail.flush(&self.mock);
        n
    }
}

/// The keys of the two ends of an encrypted link.
pub fn keys() -> (LinkKeys, LinkKeys) {
    let chain = |n| Chain([n; 32]);
    (LinkKeys { send: chain(1), receive: chain(2) }, LinkKeys { send: chain(2), receive: chain(1) })
}

/// Two sides joined by one link.
pub fn pair(host: &str, config: &Config, sealed: bool) -> (Side, LinkId, Side, LinkId) {
    let (a, b) = if config.recv_buffer.is_some() { short_segments(host) } else { sockets(host) };
    let (mut left, mut right) = (side(config.clone()), side(config.clone()));
    let (ours, theirs) = if sealed { (Some(keys().0), Some(keys().1)) } else { (None, None) };
    let (la, lb) = (left.adopt_sealed(a, ours), right.adopt_sealed(b, theirs));
    (left, la, right, lb)
}

/// Sleeps on the rail's descriptor for at most `ms` milliseconds; whether it became readable.
pub fn sleep(rail: &TcpRail, ms: i32) -> bool {
    let mut fd = libc::pollfd { fd: rail.wait_fd().expect("a descriptor"), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut fd, 1, ms) == 1 }
}

/// Progresses both sides until `done`, sleeping where both say that nothing is to be done; panics when nothing moves for
/// ten seconds.
pub fn until(a: &mut Side, b: &mut Side, what: &str, mut done: impl FnMut(&mut Side, &mut Side) -> bool) {
    let mut quiet = 0;
    while !done(a, b) {
        let moved = a.progress() + b.progress();
        if moved > 0 || !a.rail.arm() || !b.rail.arm() {
            quiet = 0;
            continue;
        }
        quiet += 1;
        assert!(quiet < 2000, "nothing moves any more: {what}");
        if !sleep(&a.rail, 0) {
            sleep(&b.rail, 5);
        }
    }
}
