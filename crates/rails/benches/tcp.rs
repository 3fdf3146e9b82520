//! The TCP rail against bare system calls on the same kind of socket. `cargo bench -p polyrail-rails --bench tcp`
//!
//! Most cases run both ends on one thread and count its processor time: on the loopback device that is all there is, kernel
//! included, and a busy machine does not change it. Slices of the contenders alternate; figures are medians of the slices'
//! ratios. The last case is a ping-pong between two threads, by the median of its rounds.

mod tcp_bed;

use std::hint::black_box;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use polyrail_core::frame::{Acked, Frame, MAX_HEADER, OpId};
use polyrail_rails::keys::{Chain, LinkKeys};
use polyrail_rails::rail::{Down, LaneRail, LinkId, Memory, Payload, Place, Rail, RawIov, Sink, Span};
use polyrail_rails::tcp::{Config, TcpRail};
use tcp_bed::{Bed, connect, median, pin, timed};

/// Memory whose position in its page is known: copies of processors with fast string moves take twice as long or more where
/// source and destination are 8 bytes apart in their pages, which would decide every comparison. 16 is what malloc gives.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(len: usize) -> Self {
        // Not zeros: those would all lie in the kernel's one page of zeros, and the sender's copy would cost nothing.
        let bytes = vec![1; len + 8192];
        let skip = bytes.as_ptr().align_offset(4096) + 16;
        Self(bytes, skip)
    }
}

impl std::ops::Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0[self.1..]
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0[self.1..]
    }
}

/// A worker that does the least that any worker does: payloads are copied to their place.
struct Worker {
    place: Aligned,
    frames: usize,
}

impl Memory for Worker {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        let at = &self.place[span.offset as usize..][..span.len];
        out.push(RawIov { base: at.as_ptr().cast_mut(), len: at.len() });
        true
    }
}

impl Sink for Worker {
    fn frame(&mut self, _: LinkId, frame: Frame, payload: Payload) {
        black_box(frame);
        // SAFETY: the place is a megabyte, as much as any payload; it is the worker's own.
        unsafe { payload.copy_to(0, self.place.as_mut_ptr(), self.place.len()) };
        self.frames += 1;
    }
    fn begin(&mut self, _: LinkId, _: Frame, len: usize) -> Span {
        Span { place: Place::Recv(OpId::default()), offset: 0, len }
    }
    fn end(&mut self, _: LinkId) {
        self.frames += 1;
    }
    fn down(&mut self, _: LinkId, why: Down) {
        // The other thread may be through, and gone, before this one looks.
        assert!(matches!(&why, Down::Lost(e) if e.kind() == io::ErrorKind::UnexpectedEof), "{why:?}");
    }
}

/// One end of a connection, with the rail.
struct End {
    sent: u64,
    rail: TcpRail,
    link: LinkId,
    worker: Worker,
}

impl End {
    fn new(socket: TcpStream) -> Self {
        Self::with(socket, Config::default())
    }
    fn with(socket: TcpStream, config: Config) -> Self {
        Self::by(socket, config, None)
    }
    fn by(socket: TcpStream, config: Config, keys: Option<LinkKeys>) -> Self {
        let mut rail = TcpRail::new(config).expect("an epoll set");
        let link = rail.adopt_sealed(OwnedFd::from(socket), &[], keys).expect("connected");
        Self { sent: 0, rail, link, worker: Worker { place: Aligned::new(1 << 20), frames: 0 } }
    }
    fn send(&mut self, len: usize, span: Option<Span>) -> Option<()> {
        let iov = [RawIov { base: self.worker.place.as_mut_ptr(), len }];
        // the other side would say what came; so many frames no link holds back
        if self.sent.is_multiple_of(1024) {
            assert!(self.rail.acked(self.link, &Acked::before(self.sent.saturating_sub(8192))));
        }
        // SAFETY: the worker's own memory.
        unsafe { self.rail.send(self.link, &FRAME.encode(len), &iov, span).ok()? }
        self.sent += 1;
        Some(())
    }
    fn progress(&mut self) {
        self.rail.progress(&mut self.worker);
        self.rail.flush(&self.worker);
    }
    fn progress_or_sleep(&mut self) {
        let moved = self.rail.progress(&mut self.worker);
        self.rail.flush(&self.worker);
        if moved == 0 && self.rail.arm() {
            let mut fd = libc::pollfd {
                fd: self.rail.wait_fd().expect("a descriptor"),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one valid pollfd. Not for ever: the sender's last bytes are acknowledged without an event.
            unsafe { libc::poll(&mut fd, 1, 1) };
        }
    }
    fn expect(&mut self, frames: usize) {
        while self.worker.frames < frames {
            self.progress();
        }
        self.worker.frames -= frames;
    }
}

fn again() -> bool {
    io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

fn send(fd: RawFd, buf: &[u8]) {
    // SAFETY: the kernel reads the bytes.
    let n =
        unsafe { libc::send(fd, buf.as_ptr().cast(), buf.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    assert_eq!(n, buf.len() as isize);
}

fn recv(fd: RawFd, buf: &mut [u8]) -> usize {
    loop {
        // SAFETY: the kernel writes at most `buf.len()` bytes.
        let n = unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), libc::MSG_DONTWAIT) };
        assert!(n > 0 || again());
        if n > 0 {
            return n as usize;
        }
    }
}

/// What the rail sends here.
const FRAME: Frame = Frame::Frag { to: OpId { slot: 0, generation: 0 }, offset: 0 };

/// Bytes of its header: the bare contender sends as many.
fn header() -> usize {
    FRAME.encode(0).len()
}

/// Compares two bodies, each of which does the same work: processor time of each, nanoseconds, and the median ratio.
fn compare(what: &str, units: f64, unit: &str, slices: usize, bare: impl FnMut(), rail: impl FnMut()) {
    compare_as(["bare", "rail"], what, units, unit, slices, bare, rail);
}

/// The same, of two that are called so.
fn compare_as(
    [one, other]: [&str; 2],
    what: &str,
    units: f64,
    unit: &str,
    slices: usize,
    mut bare: impl FnMut(),
    mut rail: impl FnMut(),
) {
    let (mut a, mut b, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..slices {
        let (_, x) = timed(&mut bare);
        let (_, y) = timed(&mut rail);
        a.push(x);
        b.push(y);
        ratio.push(y / x);
    }
    let per = |v: Vec<f64>| median(v) / units * 1e9;
    let (a, b, ratio) = (per(a), per(b), median(ratio));
    println!("  {what:44} {one} {a:9.0} {other} {b:9.0} ns/{unit}  ratio {ratio:5.2}");
}

fn ping_pong(slices: usize) {
    const ROUNDS: usize = 500;
    let (a, b) = connect(Bed::Loopback).expect("loopback");
    let (c, d) = connect(Bed::Loopback).expect("loopback");
    let (mut left, mut right) = (End::new(c), End::new(d));
    let mut buf = vec![0; header() + 8];
    compare(
        "ping-pong 8 B, same bytes",
        ROUNDS as f64,
        "round trip",
        slices,
        || {
            for _ in 0..ROUNDS {
                send(a.as_raw_fd(), &buf);
                recv(b.as_raw_fd(), &mut buf);
                send(b.as_raw_fd(), &buf);
                recv(a.as_raw_fd(), &mut buf);
            }
        },
        || {
            for _ in 0..ROUNDS {
                left.send(8, None);
                right.expect(1);
                right.send(8, None);
                left.expect(1);
            }
        },
    );
}

/// A window of small frames, one call each, against the rail's sharing of calls. The bare receiver shares calls too.
fn small(len: usize, slices: usize) {
    const WINDOW: usize = 64;
    let (a, b) = connect(Bed::Loopback).expect("loopback");
    let (c, d) = connect(Bed::Loopback).expect("loopback");
    let (mut left, mut right) = (End::new(c), End::new(d));
    let message = vec![0; header() + len];
    let mut staging = vec![0; 64 << 10];
    compare(
        &format!("window of {WINDOW} x {len} B, one call each"),
        WINDOW as f64 * 20.0,
        "message",
        slices,
        || {
            for _ in 0..20 {
                (0..WINDOW).for_each(|_| send(a.as_raw_fd(), &message));
                let mut have = 0;
                while have < WINDOW * message.len() {
                    have += recv(b.as_raw_fd(), &mut staging);
                }
            }
        },
        || {
            for _ in 0..20 {
                for _ in 0..WINDOW {
                    while left.send(len, None).is_none() {
                        left.progress();
                        right.progress();
                    }
                }
                while right.worker.frames < WINDOW {
                    left.progress();
                    right.progress();
                }
                right.worker.frames -= WINDOW;
            }
        },
    );
}

/// Frames of `len` bytes by the megabyte: written as far as the socket takes them, then read, the header by the same call as
/// the payload. Never more than a megabyte is between the ends, so that both contenders find the same in the caches.
fn bulk(len: usize, slices: usize) {
    let count = (1 << 20) / len;
    let (a, b) = connect(Bed::Loopback).expect("loopback");
    let (c, d) = connect(Bed::Loopback).expect("loopback");
    // Without a limit, as the bare contender: a megabyte fits.
    let config = Config { unsent_limit: None, ..Config::default() };
    let (mut left, mut right) = (End::with(c, config.clone()), End::with(d, config));
    let (message, place) = (Aligned::new(len), Aligned::new(len));
    let frame = header() + len;
    let total = count * frame;
    compare(
        &format!("frames of {} KiB", len >> 10),
        (16 * count * len) as f64 / 1e9,
        "GB",
        slices,
        || {
            for _ in 0..16 {
                let (mut out, mut got) = (0, 0);
                while got < total {
                    let mut room = true;
                    while out < total && room {
                        let n = bare_send(a.as_raw_fd(), &message[..len], out % frame);
                        out += n;
                        room = n > 0;
                    }
                    while got < out {
                        got += bare_recv(b.as_raw_fd(), &place[..len], got % frame);
                    }
                }
            }
        },
        || {
            let span = Span { place: Place::Send(OpId::default()), offset: 0, len };
            for _ in 0..16 {
                let mut out = 0;
                while out < count {
                    match left.send(len, Some(span)) {
                        Some(_) => out += 1,
                        None => {
                            left.progress();
                            right.progress();
                        }
                    }
                }
                left.progress();
                while right.worker.frames < count {
                    right.progress();
                    if !left.rail.wants_more(left.link) {
                        left.progress();
                    }
                }
                right.worker.frames -= count;
            }
        },
    );
}

/// The addresses of a header and a payload from byte `at` of both together.
fn rest(header: &[u8], payload: &[u8], at: usize) -> [libc::iovec; 2] {
    [&header[at.min(header.len())..], &payload[at.saturating_sub(header.len())..]]
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() })
}

fn message(iov: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: zeros are a valid msghdr.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    (msg.msg_iov, msg.msg_iovlen) = (iov.as_mut_ptr(), iov.len() as _);
    msg
}

fn bare_send(fd: RawFd, payload: &[u8], at: usize) -> usize {
    let mut iov = rest(&[1; MAX_HEADER][..header()], payload, at);
    // SAFETY: the addresses are borrowed.
    let n = unsafe { libc::sendmsg(fd, &message(&mut iov), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    assert!(n > 0 || again());
    n.max(0) as usize
}

fn bare_recv(fd: RawFd, place: &[u8], at: usize) -> usize {
    let begin = [0; MAX_HEADER];
    let mut iov = rest(&begin[..header()], place, at);
    // SAFETY: nobody looks at the header and the place.
    let n = unsafe { libc::recvmsg(fd, &mut message(&mut iov), libc::MSG_DONTWAIT) };
    assert!(n > 0 || again());
    n.max(0) as usize
}

const PATIENCE: Duration = Duration::from_secs(2);

/// Half a round trip of 8 B between two threads, microseconds: bare, or by the rail.
fn threads(bed: Bed, by_rail: bool, rounds: usize) -> Result<f64, String> {
    let (a, b) = connect(bed)?;
    let echo = thread::spawn(move || {
        pin(1);
        if by_rail {
            let mut end = End::new(b);
            loop {
                end.expect(1);
                let last = end.worker.place[0] == STOP;
                end.send(8, None);
                if last {
                    while !end.rail.idle(end.link) {}
                    return;
                }
            }
        }
        let mut buf = vec![0; header() + 8];
        while buf[0] != STOP {
            recv(b.as_raw_fd(), &mut buf);
            send(b.as_raw_fd(), &buf);
        }
    });
    let mut times = Vec::with_capacity(rounds);
    let mut end = End::new(a.try_clone().map_err(|e| e.to_string())?);
    let mut buf = vec![0; header() + 8];
    let begin = Instant::now();
    loop {
        let last = times.len() + 1 >= rounds || begin.elapsed() > PATIENCE;
        let start = Instant::now();
        if by_rail {
            end.worker.place[0] = if last { STOP } else { 0 };
            end.send(8, None);
            end.expect(1);
        } else {
            buf[0] = if last { STOP } else { 0 };
            send(a.as_raw_fd(), &buf);
            recv(a.as_raw_fd(), &mut buf);
        }
        times.push(start.elapsed().as_secs_f64() / 2.0 * 1e6);
        if last {
            break;
        }
    }
    echo.join().map_err(|_| "the echo panicked")?;
    Ok(median(times))
}

const STOP: u8 = 7;

/// A stream between two threads that sleep whenever they can, frames of 256 KiB: GB/s, and processor seconds per GB of the
/// whole process. Bare: calls that wait.
fn stream(bed: Bed, rail: Option<Config>, count: usize) -> Result<(f64, f64), String> {
    const LEN: usize = 256 << 10;
    let (a, b) = connect(bed)?;
    let begin = (Instant::now(), process_time());
    match rail {
        None => {
            let sender = thread::spawn(move || {
                let place = Aligned::new(LEN);
                (0..count).for_each(|_| {
                    waiting(&place[..LEN], |m| {
                        // SAFETY: the addresses are borrowed.
                        unsafe { libc::sendmsg(a.as_raw_fd(), m, libc::MSG_NOSIGNAL) }
                    })
                });
            });
            let place = Aligned::new(LEN);
            (0..count).for_each(|_| {
                waiting(&place[..LEN], |m| {
                    // SAFETY: nobody looks at the place.
                    unsafe { libc::recvmsg(b.as_raw_fd(), m, libc::MSG_WAITALL) }
                })
            });
            sender.join().map_err(|_| "the sender panicked")?;
        }
        Some(config) => {
            let (mut a, mut b) = (End::with(a, config.clone()), End::with(b, config));
            let sender = thread::spawn(move || {
                let span = Span { place: Place::Send(OpId::default()), offset: 0, len: LEN };
                let mut out = 0;
                while out < count || !a.rail.idle(a.link) {
                    while out < count && a.rail.wants_more(a.link) && a.send(LEN, Some(span)).is_some() {
                        out += 1;
                    }
                    a.progress_or_sleep();
                }
                a
            });
            while b.worker.frames < count {
                b.progress_or_sleep();
            }
            drop(sender.join().map_err(|_| "the sender panicked")?);
        }
    }
    let gb = (count * LEN) as f64 / 1e9;
    Ok((gb / begin.0.elapsed().as_secs_f64(), (process_time() - begin.1) / gb))
}

/// Moves a header and all of `payload` by calls that wait.
fn waiting(payload: &[u8], mut call: impl FnMut(&mut libc::msghdr) -> isize) {
    let begin = [0; MAX_HEADER];
    let mut at = 0;
    while at < header() + payload.len() {
        let mut iov = rest(&begin[..header()], payload, at);
        let n = call(&mut message(&mut iov));
        assert!(n > 0, "{}", io::Error::last_os_error());
        at += n as usize;
    }
}

fn process_time() -> f64 {
    // SAFETY: the kernel writes one timespec.
    let t = unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t);
        t
    };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn streams(bed: Bed, slices: usize) {
    let limits = [None, Some(128 << 10), Some(256 << 10), Some(512 << 10)];
    let ways: Vec<Option<Config>> = std::iter::once(None)
        .chain(limits.map(|unsent_limit| Some(Config { unsent_limit, ..Config::default() })))
        .collect();
    let mut figures = vec![(Vec::new(), Vec::new()); ways.len()];
    for _ in 0..slices {
        for (way, (rate, cpu)) in ways.iter().zip(&mut figures) {
            let (r, c) = stream(bed, way.clone(), 1000).expect("measured");
            rate.push(r);
            cpu.push(c);
        }
    }
    for (way, (rate, cpu)) in ways.iter().zip(figures) {
        let name = match way {
            None => "bare".into(),
            Some(Config { unsent_limit, .. }) => format!("rail, unsent limit {unsent_limit:?}"),
        };
        let best = rate.into_iter().fold(0.0, f64::max);
        println!("two threads, {bed:?}, stream, {name:32} best {best:5.2} GB/s, CPU {:.3} s/GB", median(cpu));
    }
}

/// The two ends of a link, encrypted or not.
fn ends(encrypted: bool) -> (End, End) {
    let (a, b) = connect(Bed::Loopback).expect("loopback");
    let chain = |n| Chain([n; 32]);
    let keys = |send, receive| encrypted.then(|| LinkKeys { send: chain(send), receive: chain(receive) });
    (End::by(a, Config::default(), keys(1, 2)), End::by(b, Config::default(), keys(2, 1)))
}

fn encrypted(slices: usize) {
    const ROUNDS: usize = 500;
    const BYTES: usize = 32 << 20;
    let [mut plain, mut sealed] = [false, true].map(ends);
    let round = |(a, b): &mut (End, End)| {
        for _ in 0..ROUNDS {
            a.send(8, None).expect("room");
            b.expect(1);
            b.send(8, None).expect("room");
            a.expect(1);
        }
    };
    let names = ["plain", "encrypted"];
    compare_as(
        names,
        "ping-pong 8 B",
        ROUNDS as f64,
        "round trip",
        slices,
        || round(&mut plain),
        || round(&mut sealed),
    );
    for len in [1 << 10, 64 << 10, 1 << 20] {
        let [mut plain, mut sealed] = [false, true].map(ends);
        let span = Span { place: Place::Send(OpId::default()), offset: 0, len };
        let stream = |(a, b): &mut (End, End)| {
            let mut left = BYTES / len;
            while left > 0 || b.worker.frames < BYTES / len {
                while left > 0 && a.rail.wants_more(a.link) && a.send(len, Some(span)).is_some() {
                    left -= 1;
                }
                a.progress();
                b.progress();
            }
            b.worker.frames = 0;
        };
        compare_as(
            names,
            &format!("stream of {len} B"),
            BYTES as f64 / 1e9,
            "GB",
            slices.min(21),
            || stream(&mut plain),
            || stream(&mut sealed),
        );
    }
}

fn main() {
    // `cargo test --benches` only sees whether it runs.
    let slices = if std::env::args().any(|a| a == "--bench") { 101 } else { 1 };
    pin(0);
    println!("one thread, processor time of both ends and the kernel between them:");
    ping_pong(slices);
    small(8, slices);
    small(256, slices);
    small(2048, slices);
    for len in [8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20] {
        bulk(len, slices.min(41));
    }
    encrypted(slices);
    for bed in [Bed::Loopback, Bed::Veth] {
        if let Err(e) = connect(bed) {
            println!("skipped: {bed:?} ({e})");
            continue;
        }
        let (mut bare, mut rail) = (Vec::new(), Vec::new());
        for _ in 0..slices.min(7) {
            bare.push(threads(bed, false, 3000).expect("measured"));
            rail.push(threads(bed, true, 3000).expect("measured"));
        }
        let (bare, rail) = (median(bare), median(rail));
        println!("two threads, {bed:?}, 8 B: bare {bare:.2} rail {rail:.2} us  ratio {:.2}", rail / bare);
        streams(bed, slices.min(9));
    }
}
