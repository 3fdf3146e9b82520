//! Something between two workers that forwards bytes until it is told to cut the connection.

use polyrail_core::wire::{Address, Ip};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A proxy for one worker. It resets all connections once so many bytes went through, both ways counted.
pub struct Proxy {
    port: u16,
    /// Bytes still to be let through.
    left: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    cut: Arc<AtomicBool>,
    /// Whether the worker does not hear of it when the other side has gone.
    hushed: Arc<AtomicBool>,
    tap: Arc<Tap>,
    thread: Option<JoinHandle<()>>,
}

/// What somebody on the way can do.
#[derive(Default)]
struct Tap {
    /// All that went through, whichever way.
    seen: Mutex<Vec<u8>>,
    /// The next byte that the worker sends is to be changed.
    spoils: AtomicBool,
}

/// Where a worker listens on this host.
pub fn listener_of(address: &Address) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port())
}

/// An address with the same key that leads elsewhere, by TCP only.
pub fn by_way_of(address: &[u8], port: u16, ips: &[&str]) -> Vec<u8> {
    let address = Address::parse(address).expect("an address");
    let ips = ips.iter().map(|ip| Ip::new(ip.parse::<IpAddr>().expect("an IP"), 0).expect("a unicast IP"));
    Address::new(&address.key(), address.host(), false, port, ips).expect("an address").to_bytes().into()
}

/// Closes a connection as a host does that has crashed and come back: by a reset.
pub fn reset(stream: TcpStream) {
    let now = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = size_of_val(&now) as u32;
    // SAFETY: the option's value is a linger of the length given.
    let set = unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const now).cast(), len)
    };
    assert_eq!(set, 0);
}

impl Proxy {
    pub fn start(address: &[u8], bytes: u64) -> Self {
        Self::open(address, bytes, None)
    }

    /// It resets the first connection when who called has said something so often, and lets the one that follows through.
    pub fn cutting_the_first(address: &[u8], said: u32) -> Self {
        Self::open(address, u64::MAX, Some(said))
    }

    fn open(address: &[u8], bytes: u64, cut_at: Option<u32>) -> Self {
        let to = listener_of(&Address::parse(address).expect("an address"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let left = Arc::new(AtomicU64::new(bytes));
        let hushed = Arc::new(AtomicBool::new(false));
        let tap = Arc::new(Tap::default());
        let shared = (left.clone(), hushed.clone(), tap.clone());
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let cut = Arc::new(AtomicBool::new(false));
        let has_cut = cut.clone();
        let thread = Some(std::thread::spawn(move || {
            for first in [true, false] {
                let (client, _) = listener.accept().expect("a connection");
                let server = TcpStream::connect(to).expect("the worker listens");
                let said = cut_at.filter(|_| first).unwrap_or(u32::MAX);
                forward(&client, &server, (&shared.0, said), &shared.2);
                reset(client);
                while shared.1.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                reset(server);
                has_cut.store(true, Ordering::Relaxed);
                if cut_at.is_none() || ends.load(Ordering::Relaxed) {
                    break;
                }
            }
        }));
        Self { port, left, over, cut, hushed, tap, thread }
    }

    /// From now on the worker does not hear that the other side has gone; or, that over, it does.
    pub fn hush(&self, hushed: bool) {
        self.hushed.store(hushed, Ordering::Relaxed);
    }

    /// Whether a connection has been cut.
    pub fn has_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// All that went through until now.
    pub fn seen(&self) -> Vec<u8> {
        self.tap.seen.lock().expect("not poisoned").clone()
    }

    /// Changes the next byte that comes from the worker.
    pub fn spoil(&self) {
        self.tap.spoils.store(true, Ordering::Relaxed);
    }

    /// The worker's address by way of the proxy.
    pub fn address(&self, address: &[u8]) -> Vec<u8> {
        by_way_of(address, self.port, &["127.0.0.1"])
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
        self.hush(false);
        // it may still be waiting for its first connection
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn forward(client: &TcpStream, server: &TcpStream, (left, mut said): (&AtomicU64, u32), tap: &Tap) {
    let mut buffer = vec![0; 64 << 10];
    for stream in [client, server] {
        stream.set_nonblocking(true).expect("a socket");
    }
    'open: while left.load(Ordering::Relaxed) > 0 {
        let mut idle = true;
        for (mut from, mut to, of_worker) in [(client, server, false), (server, client, true)] {
            let most = buffer.len().min(left.load(Ordering::Relaxed) as usize);
            let n = match from.read(&mut buffer[..most]) {
                Ok(0) => break 'open,
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => break 'open,
            };
            idle = false;
            if of_worker && tap.spoils.swap(false, Ordering::Relaxed) {
                buffer[n - 1] ^= 1;
            }
            tap.seen.lock().expect("not poisoned").extend_from_slice(&buffer[..n]);
            left.fetch_sub(n as u64, Ordering::Relaxed);
            let mut rest = &buffer[..n];
            while !rest.is_empty() && left.load(Ordering::Relaxed) > 0 {
                match to.write(rest) {
                    Ok(n) => rest = &rest[n..],
                    Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                    Err(_) => break 'open,
                }
            }
            said -= u32::from(!of_worker);
            if said == 0 {
                break 'open;
            }
        }
        if idle {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
