//! The state of TCP connections, asked of the kernel without root and without their descriptors: NETLINK_SOCK_DIAG.
//!
//! A connection is looked up by its two addresses and proved by its cookie (`SO_COOKIE`), so that a later connection between
//! the same addresses is never taken for it. The kernel answers a request while it is sent, and the socket never blocks.
//!
//! A look takes 3 to 5 us, most of it in the kernel: n connections every n x 0.5 ms are 1 % of a core (`tests/diag.rs`
//! measures it).
//!
//! Looked up is in the network namespace of the thread that called [`Diag::open`], whichever thread asks later. A socket bound
//! to a device (`SO_BINDTODEVICE`) is found only by [`Diag::dump`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket, sockopt,
};

mod info;
mod message;

pub use info::{SAMPLE_BYTES, Sample, tcp_info};
pub use message::replies;

/// A connection to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The kernel's number for the socket (`SO_COOKIE`).
    pub cookie: u64,
    /// Its own address.
    pub local: SocketAddr,
    /// What it is connected to.
    pub remote: SocketAddr,
}

/// A connection of the namespace, as [`Diag::dump`] finds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Its addresses and cookie.
    pub wanted: Wanted,
    /// The number in `socket:[...]` of `/proc/PID/fd`; 0: no process has it open any more.
    pub inode: u32,
    /// Its state.
    pub sample: Sample,
}

/// Requests sent at once; their answers fit the receive buffer of any system (208 KiB of memory as the kernel counts it).
const BATCH: usize = 32;

/// A way to ask the kernel.
#[derive(Debug)]
pub struct Diag {
    socket: OwnedFd,
    /// Number of the next request.
    next: u32,
    requests: Vec<u8>,
    buffer: Vec<u8>,
    gone: Vec<u64>,
}

impl Diag {
    /// Asks about the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no inet_diag, or the process may not open it.
    pub fn open() -> io::Result<Diag> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkSockDiag;
        let socket = socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)?;
        // More room only helps against a system whose default is small.
        let _ = setsockopt(&socket, sockopt::RcvBuf, &(1 << 20));
        Ok(Diag { socket, next: 1, requests: Vec::new(), buffer: vec![0; 32 << 10], gone: Vec::new() })
    }

    /// Looks at `wanted` in order, puts what is seen at the end of `samples`, and stops once `within` has passed (checked every
    /// 32 connections). Says how many of `wanted` it came to; the ones of these that are not connections any more are in
    /// [`gone`](Self::gone).
    ///
    /// # Errors
    /// The kernel did not take a request. What was found before is in `samples`.
    pub fn sample(
        &mut self,
        wanted: &[Wanted],
        within: Duration,
        samples: &mut Vec<Sample>,
    ) -> io::Result<usize> {
        let begin = Instant::now();
        self.gone.clear();
        let mut done = 0;
        for batch in wanted.chunks(BATCH) {
            self.batch(batch, samples)?;
            done += batch.len();
            if begin.elapsed() >= within {
                break;
            }
        }
        Ok(done)
    }

    /// Cookies of the connections that the last [`sample`](Self::sample) asked about and the kernel did not know.
    pub fn gone(&self) -> &[u64] {
        &self.gone
    }

    fn batch(&mut self, batch: &[Wanted], samples: &mut Vec<Sample>) -> io::Result<()> {
        let first = self.next;
        self.next = first.wrapping_add(batch.len() as u32);
        self.requests.clear();
        for (wanted, number) in batch.iter().zip(0..) {
            message::lookup(&mut self.requests, wanted, first.wrapping_add(number));
        }
        let at = monotonic()?;
        send(self.socket.as_raw_fd(), &self.requests, MsgFlags::MSG_DONTWAIT)?;
        let mut waiting = batch.len();
        while waiting > 0 {
            // Every answer is there when sending returns, unless memory was short; then it never comes.
            let Some(length) = self.receive()? else { break };
            for reply in replies(&self.buffer[..length]) {
                // Answers of an earlier batch that was given up.
                let Some(asked) = batch.get(reply.number.wrapping_sub(first) as usize) else { continue };
                waiting -= 1;
                match reply.found {
                    Some(mut found) if found.wanted.cookie == asked.cookie => {
                        found.sample.tcp.at = at;
                        samples.push(found.sample);
                    }
                    _ => self.gone.push(asked.cookie),
                }
            }
        }
        Ok(())
    }

    /// The next datagram's length, in the buffer; `None`: there is none. What the kernel lost is not waited for.
    fn receive(&mut self) -> io::Result<Option<usize>> {
        loop {
            match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => return Ok(Some(length)),
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR | Errno::ENOBUFS) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Every TCP connection of the namespace (not the ones that only listen, or only wait for their end). This walks the
    /// kernel's whole table: for a first look, not for every period.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn dump(&mut self, each: &mut dyn FnMut(Found)) -> io::Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let number = self.next;
            self.next = number.wrapping_add(1);
            self.requests.clear();
            message::dump(&mut self.requests, family as u8, number);
            let at = monotonic()?;
            send(self.socket.as_raw_fd(), &self.requests, MsgFlags::MSG_DONTWAIT)?;
            let mut ended = false;
            while !ended {
                let Some(length) = self.receive()? else { break };
                for reply in replies(&self.buffer[..length]).filter(|reply| reply.number == number) {
                    ended |= reply.found.is_none();
                    if let Some(mut found) = reply.found {
                        found.sample.tcp.at = at;
                        each(found);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The host's monotonic clock in nanoseconds, which the kernel's traces use too.
pub fn monotonic() -> io::Result<u64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// An address as a socket of this family shows it: programs and kernel may call one address by its IPv4 or its mapped form.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Sixteen bytes of the kernel's, by the address family they are of.
pub(crate) fn address(family: u16, bytes: [u8; 16]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
        libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()),
        _ => None,
    }
}
