//! How to wait for a socket: nonblocking calls alone, epoll before each, or io_uring. Ping-pong of 8 bytes, and a stream into
//! memory of the receiver's, over loopback and a veth pair. The contenders take turns, so that the machine's other load meets
//! all; figures are medians (for the stream's rate: the best) and ratios to the first.
//! `cargo bench -p polyrail-rails --bench tcp_poll`.

mod tcp_bed;

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use io_uring::types::BufRingEntry;
use io_uring::{IoUring, cqueue, opcode, types};
use tcp_bed::{Bed, connect, median, pin, timed};

/// One way to move bytes. Both wait until they have moved some.
trait Pipe {
    fn send(&mut self, bytes: &[u8]);
    fn recv(&mut self, buf: &mut [u8]) -> usize;
}

fn again() -> bool {
    matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}

fn send_all(fd: RawFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the kernel reads the bytes.
        let n = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
        assert!(n >= 0 || again(), "send: {}", io::Error::last_os_error());
        bytes = &bytes[n.max(0) as usize..];
    }
}

fn try_recv(fd: RawFd, buf: &mut [u8]) -> usize {
    // SAFETY: the kernel writes at most `buf.len()` bytes.
    let n = unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), libc::MSG_DONTWAIT) };
    assert!(n > 0 || (n < 0 && again()), "recv: {}", io::Error::last_os_error());
    n.max(0) as usize
}

struct Direct(TcpStream);

impl Pipe for Direct {
    fn send(&mut self, bytes: &[u8]) {
        send_all(self.0.as_raw_fd(), bytes);
    }
    fn recv(&mut self, buf: &mut [u8]) -> usize {
        loop {
            let n = try_recv(self.0.as_raw_fd(), buf);
            if n > 0 {
                return n;
            }
        }
    }
}

struct Epoll {
    socket: TcpStream,
    epoll: RawFd,
    timeout: i32,
    more: bool,
}

impl Epoll {
    fn new(socket: TcpStream, timeout: i32) -> Self {
        // SAFETY: no memory; then one event is read.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: as above.
        let done = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, socket.as_raw_fd(), &mut event) };
        assert!(epoll >= 0 && done == 0);
        Self { socket, epoll, timeout, more: false }
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        // SAFETY: ours, and closed once.
        unsafe { libc::close(self.epoll) };
    }
}

impl Pipe for Epoll {
    fn send(&mut self, bytes: &[u8]) {
        send_all(self.socket.as_raw_fd(), bytes);
    }
    fn recv(&mut self, buf: &mut [u8]) -> usize {
        loop {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // By edges: another look only once a receive has brought less than asked for.
            // SAFETY: the kernel writes at most one event.
            if self.more || unsafe { libc::epoll_wait(self.epoll, &mut event, 1, self.timeout) } > 0 {
                let n = try_recv(self.socket.as_raw_fd(), buf);
                self.more = n == buf.len();
                if n > 0 {
                    return n;
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// The kernel interrupts us with its completions, which we see in memory.
    Plain,
    /// Completions are made in our own calls.
    Deferred,
    /// As `Deferred`, asleep in the call.
    DeferredAsleep,
    /// As `DeferredAsleep`, but received straight to its place, by a request each time.
    PlacedAsleep,
    /// A kernel thread makes the calls.
    Sqpoll,
}

const BUFFERS: u16 = 64;
const BUFFER: usize = 64 << 10;
/// A request of its own, which is waited for.
const ONE: u64 = 1;
const MULTI: u64 = 2;

/// Multishot receive into provided buffers; sends through the ring.
struct Ring {
    ring: IoUring,
    socket: TcpStream,
    mode: Mode,
    buffers: Vec<u8>,
    entries: *mut BufRingEntry,
    tail: u16,
    receiving: bool,
    /// The buffer that is being consumed: which, from where, to where.
    current: Option<(u16, usize, usize)>,
    arrived: std::collections::VecDeque<(u16, usize)>,
    one: Option<i32>,
}

impl Ring {
    fn new(socket: TcpStream, mode: Mode) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(256);
        match mode {
            Mode::Plain => &mut builder,
            Mode::Deferred | Mode::DeferredAsleep | Mode::PlacedAsleep => {
                builder.setup_single_issuer().setup_defer_taskrun()
            }
            Mode::Sqpoll => builder.setup_sqpoll(1000),
        };
        let ring = builder.build(16)?;
        let size = usize::from(BUFFERS) * size_of::<BufRingEntry>();
        // SAFETY: a new private mapping, zeroed.
        let entries = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(entries, libc::MAP_FAILED);
        // SAFETY: the mapping is never undone (a bench ends soon).
        unsafe { ring.submitter().register_buf_ring_with_flags(entries as u64, BUFFERS, 0, 0)? };
        let mut this = Self {
            ring,
            socket,
            mode,
            buffers: vec![0; usize::from(BUFFERS) * BUFFER],
            entries: entries.cast(),
            tail: 0,
            receiving: false,
            current: None,
            arrived: Default::default(),
            one: None,
        };
        (0..BUFFERS).for_each(|id| this.provide(id));
        Ok(this)
    }

    fn provide(&mut self, id: u16) {
        // SAFETY: the slot is inside the mapping, and the kernel reads it only once the tail says so.
        unsafe {
            let entry = &mut *self.entries.add(usize::from(self.tail % BUFFERS));
            entry.set_addr(self.buffers.as_ptr().add(usize::from(id) * BUFFER) as u64);
            entry.set_len(BUFFER as u32);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(self.entries).cast::<std::sync::atomic::AtomicU16>();
            (*tail).store(self.tail, std::sync::atomic::Ordering::Release);
        }
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) {
        // SAFETY: what the entry names outlives it: buffers are ours, sends are waited for.
        unsafe { self.ring.submission().push(entry).expect("room in the queue") };
    }

    /// Submits, and takes what has completed.
    fn turn(&mut self) {
        let pending = !self.ring.submission().is_empty();
        let submitter = self.ring.submitter();
        let result = match self.mode {
            Mode::Plain | Mode::Sqpoll if !pending => Ok(0),
            Mode::Plain | Mode::Sqpoll => submitter.submit(),
            Mode::DeferredAsleep | Mode::PlacedAsleep => submitter.submit_and_wait(1),
            // SAFETY: no argument is given to the call.
            Mode::Deferred => unsafe {
                submitter.enter::<libc::sigset_t>(
                    u32::from(pending),
                    0,
                    1, /* IORING_ENTER_GETEVENTS */
                    None,
                )
            },
        };
        assert!(result.is_ok() || again(), "io_uring_enter: {result:?}");
        if self.mode == Mode::Sqpoll {
            thread::yield_now();
        }
        for done in self.ring.completion() {
            match done.user_data() {
                ONE => self.one = Some(done.result()),
                _ => {
                    if done.result() > 0 {
                        let id = cqueue::buffer_select(done.flags()).expect("a provided buffer");
                        self.arrived.push_back((id, done.result() as usize));
                    } else {
                        assert!([0, -libc::ENOBUFS].contains(&done.result()), "receive: {}", done.result());
                    }
                    self.receiving = cqueue::more(done.flags());
                }
            }
        }
    }

    /// Makes one request and waits for it; how many bytes it moved.
    fn one(&mut self, entry: io_uring::squeue::Entry) -> usize {
        self.push(&entry.user_data(ONE));
        loop {
            self.turn();
            if let Some(n) = self.one.take() {
                assert!(n > 0, "result {n}");
                return n as usize;
            }
        }
    }
}

impl Pipe for Ring {
    fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let fd = types::Fd(self.socket.as_raw_fd());
            let entry = opcode::Send::new(fd, bytes.as_ptr(), bytes.len() as u32);
            bytes = &bytes[self.one(entry.flags(libc::MSG_NOSIGNAL).build())..];
        }
    }

    fn recv(&mut self, buf: &mut [u8]) -> usize {
        if self.mode == Mode::PlacedAsleep {
            let fd = types::Fd(self.socket.as_raw_fd());
            return self.one(opcode::Recv::new(fd, buf.as_mut_ptr(), buf.len() as u32).build());
        }
        loop {
            if self.current.is_none() {
                self.current = self.arrived.pop_front().map(|(id, len)| (id, 0, len));
            }
            if let Some((id, from, to)) = self.current.take() {
                let n = buf.len().min(to - from);
                let at = usize::from(id) * BUFFER + from;
                buf[..n].copy_from_slice(&self.buffers[at..at + n]);
                match from + n < to {
                    true => self.current = Some((id, from + n, to)),
                    false => self.provide(id),
                }
                return n;
            }
            if !std::mem::replace(&mut self.receiving, true) {
                let fd = types::Fd(self.socket.as_raw_fd());
                self.push(&opcode::RecvMulti::new(fd, 0).build().user_data(MULTI));
            }
            self.turn();
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Direct,
    Epoll,
    EpollAsleep,
    Ring(Mode),
}

const WAYS: [Way; 8] = [
    Way::Direct,
    Way::Epoll,
    Way::Ring(Mode::Plain),
    Way::Ring(Mode::Deferred),
    Way::Ring(Mode::Sqpoll),
    Way::EpollAsleep,
    Way::Ring(Mode::DeferredAsleep),
    Way::Ring(Mode::PlacedAsleep),
];

fn open(way: Way, socket: TcpStream) -> Box<dyn Pipe> {
    match way {
        Way::Direct => Box::new(Direct(socket)),
        Way::Epoll => Box::new(Epoll::new(socket, 0)),
        Way::EpollAsleep => Box::new(Epoll::new(socket, -1)),
        Way::Ring(mode) => Box::new(Ring::new(socket, mode).expect("probed before")),
    }
}

fn recv_exact(pipe: &mut dyn Pipe, buf: &mut [u8]) {
    let mut have = 0;
    while have < buf.len() {
        have += pipe.recv(&mut buf[have..]);
    }
}

/// Microseconds of half a round trip: the median of rounds, of which most are undisturbed even on a busy machine.
fn ping_pong(bed: Bed, way: Way, rounds: usize) -> Result<f64, String> {
    let (a, b) = connect(bed)?;
    let echo = thread::spawn(move || {
        pin(1);
        let mut pipe = open(way, b);
        let mut buf = [0; 8];
        while buf[0] != STOP {
            recv_exact(&mut *pipe, &mut buf);
            pipe.send(&buf);
        }
    });
    let mut pipe = open(way, a);
    let mut times = Vec::with_capacity(rounds);
    let mut buf = [0; 8];
    let begin = Instant::now();
    while buf[0] != STOP {
        let last = times.len() + 1 >= rounds || begin.elapsed() > PATIENCE;
        buf[0] = if last { STOP } else { 0 };
        let start = Instant::now();
        pipe.send(&buf);
        recv_exact(&mut *pipe, &mut buf);
        times.push(start.elapsed().as_secs_f64() / 2.0 * 1e6);
    }
    echo.join().map_err(|_| "the echo panicked")?;
    Ok(median(times))
}

const STOP: u8 = 1;
const PATIENCE: Duration = Duration::from_secs(1);

/// GB/s, and the receiver's processor seconds per GB.
fn stream(bed: Bed, way: Way, bytes: usize) -> Result<(f64, f64), String> {
    let (a, b) = connect(bed)?;
    let sender = thread::spawn(move || {
        pin(1);
        let block = vec![1; 256 << 10];
        let mut a = a;
        for _ in 0..bytes / block.len() {
            io::Write::write_all(&mut a, &block).expect("the receiver reads all");
        }
    });
    let mut pipe = open(way, b);
    let mut place = vec![0; 256 << 10];
    let (wall, cpu) = timed(|| (0..bytes / place.len()).for_each(|_| recv_exact(&mut *pipe, &mut place)));
    sender.join().map_err(|_| "the sender panicked")?;
    Ok((bytes as f64 / wall / 1e9, cpu / (bytes as f64 / 1e9)))
}

fn main() {
    let quick = std::env::args().any(|a| a == "--test");
    let (rounds, bytes, repeats) = if quick { (100, 4 << 20, 1) } else { (3000, 64 << 20, 9) };
    pin(0);
    let mut ways = WAYS.to_vec();
    let probe = connect(Bed::Loopback).expect("the loopback device").0;
    if let Err(e) = Ring::new(probe, Mode::Deferred) {
        println!("skipped: io_uring ({e})");
        ways.retain(|w| !matches!(w, Way::Ring(_)));
    }
    for bed in [Bed::Loopback, Bed::Veth] {
        if let Err(e) = connect(bed) {
            println!("skipped: {bed:?} ({e})");
            continue;
        }
        let mut figures = vec![(Vec::new(), Vec::new(), Vec::new()); ways.len()];
        for _ in 0..repeats {
            for (way, (us, gb, cpu)) in ways.iter().zip(&mut figures) {
                us.push(ping_pong(bed, *way, rounds).expect("measured"));
                let (rate, spent) = stream(bed, *way, bytes).expect("measured");
                gb.push(rate);
                cpu.push(spent);
            }
        }
        println!(
            "{bed:?}: 8 B half round trip, us (ratio) | stream, GB/s (ratio) | receiver, CPU s/GB (ratio)"
        );
        let medians: Vec<[f64; 3]> = figures
            .into_iter()
            .map(|(us, gb, cpu)| [median(us), gb.into_iter().fold(0.0, f64::max), median(cpu)])
            .collect();
        for (way, m) in ways.iter().zip(&medians) {
            let r: Vec<f64> = m.iter().zip(&medians[0]).map(|(x, first)| x / first).collect();
            println!(
                "  {:22} {:7.2} ({:5.2}) | {:6.2} ({:4.2}) | {:6.3} ({:4.2})",
                format!("{way:?}"),
                m[0],
                r[0],
                m[1],
                r[1],
                m[2],
                r[2]
            );
        }
    }
}
