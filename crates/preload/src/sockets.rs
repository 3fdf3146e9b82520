//! Which descriptor is which socket. A socket's number is the process's own; the kernel's cookie, told with it, makes it the same socket
//! in parents, children and programs after `exec`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use polyrail_core::trace::note;

use crate::filter::{self, Wanted};
use crate::recorder::{self, generation};
use crate::sys::{self, Address, quietly};

/// Descriptors that are followed: as many as a process may usually have open. Untouched pages of the table take no memory.
const FOLLOWED: usize = 1 << 20;
/// Per descriptor the generation in which it was looked at (high 8 bits) and the socket's number, or [`NO_SOCKET`].
static TABLE: [AtomicU32; FOLLOWED] = [const { AtomicU32::new(0) }; FOLLOWED];
const NO_SOCKET: u32 = 0x00ff_ffff;
static NEXT: AtomicU32 = AtomicU32::new(1);
/// Highest descriptor that was a socket.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

fn slot(fd: c_int) -> Option<&'static AtomicU32> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// The number of the socket behind a descriptor; `None` if it is no socket, or nothing is recorded.
#[inline(always)]
pub fn number(fd: c_int) -> Option<u32> {
    if !recorder::on() {
        return None;
    }
    recorder::follow_fork();
    let entry = slot(fd)?.load(Ordering::Relaxed);
    if entry >> 24 == generation() {
        let number = entry & NO_SOCKET;
        return (number != NO_SOCKET).then_some(number);
    }
    quietly(|| look(fd, None))
}

/// Finds out what a descriptor is, and tells the reader if it is a socket that is to be recorded. `remote` as for [`changed`].
#[cold]
fn look(fd: c_int, remote: Option<Address>) -> Option<u32> {
    let slot = slot(fd).filter(|_| !recorder::sandboxed())?;
    let mut cookie = [0; 8];
    if sys::socket_option(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut cookie).is_none() {
        if sys::errno() == libc::ENOTSOCK {
            slot.store(generation() << 24 | NO_SOCKET, Ordering::Relaxed);
        }
        return None;
    }
    let number = new_number();
    let domain = announce(fd, number, remote)?;
    if c_int::from(domain) == libc::AF_UNIX {
        announce_unix(fd, number);
    }
    Some(number)
}

/// A number that no socket of this process has.
pub fn new_number() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed) % (NO_SOCKET - 1) + 1
}

/// Tells what the kernel calls a Unix socket, and its peer: of the two ends of a connection the one that accepted knows both.
fn announce_unix(fd: c_int, number: u32) {
    let connected = sys::socket_name(libc::SYS_getpeername, fd).is_some();
    let kind = sys::socket_number(fd, libc::SOL_SOCKET, libc::SO_TYPE).unwrap_or(0);
    let inode = sys::number_of(fd);
    let peer = if connected { sys::unix_peer(inode) } else { 0 };
    let mut payload = [0; note::UNIX_BYTES];
    payload[..4].copy_from_slice(&number.to_le_bytes());
    payload[4..8].copy_from_slice(&kind.to_le_bytes());
    payload[8..16].copy_from_slice(&inode.to_le_bytes());
    payload[16..].copy_from_slice(&peer.to_le_bytes());
    recorder::tell(note::UNIX, &payload);
}

/// Tells what is known of a socket now; its domain, if that could be told.
fn announce(fd: c_int, number: u32, remote: Option<Address>) -> Option<u16> {
    let option = |name| sys::socket_number(fd, libc::SOL_SOCKET, name).unwrap_or(0) as u16;
    let mut payload = [0; note::SOCKET_BYTES];
    payload[..4].copy_from_slice(&number.to_le_bytes());
    payload[4..8].copy_from_slice(&fd.to_le_bytes());
    sys::socket_option(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut payload[8..16]);
    for (at, name) in
        [(16, libc::SO_DOMAIN), (18, libc::SO_TYPE), (20, libc::SO_PROTOCOL), (22, libc::SO_ACCEPTCONN)]
    {
        payload[at..at + 2].copy_from_slice(&option(name).to_le_bytes());
    }
    let local = sys::socket_name(libc::SYS_getsockname, fd);
    let remote = remote.unwrap_or_else(|| sys::socket_name(libc::SYS_getpeername, fd));
    let word = |at: usize| u16::from_le_bytes([payload[at], payload[at + 1]]);
    match filter::wants(word(16), word(18), word(22) != 0, &local, &remote) {
        Wanted::Yes => {}
        Wanted::NotYet => return None,
        Wanted::No => {
            if let Some(slot) = slot(fd) {
                slot.store(generation() << 24 | NO_SOCKET, Ordering::Relaxed);
            }
            return None;
        }
    }
    let (names, bytes) = (&mut payload[24..], note::ADDRESS_BYTES);
    names[..bytes].copy_from_slice(&local.0);
    names[bytes..].copy_from_slice(&remote.0);
    // `tell` may find that this is a forked child, which begins a generation
    let told = recorder::tell(note::SOCKET, &payload);
    if let (true, Some(slot)) = (told, slot(fd)) {
        slot.store(generation() << 24 | number, Ordering::Relaxed);
        HIGHEST.fetch_max(fd as u32, Ordering::Relaxed);
    }
    told.then_some(u16::from_le_bytes([payload[16], payload[17]]))
}

/// The socket has got a name or a peer: it is told again. `remote`: of a connection that may still be on its way.
pub fn changed(fd: c_int, remote: Option<Address>) {
    if recorder::sandboxed() {
        return;
    }
    if let Some(number) = number(fd) {
        quietly(|| announce(fd, number, remote));
    } else if filter::by_port() && recorder::on() {
        // it is decided by its names whether it is recorded
        forget(fd);
        quietly(|| look(fd, remote));
    }
}

/// The descriptor is a new socket, whatever it was before.
pub fn opened(fd: c_int) -> u32 {
    forget(fd);
    number(fd).unwrap_or(0)
}

/// The descriptor ends, or becomes something unknown.
pub fn forget(fd: c_int) {
    if let Some(slot) = slot(fd) {
        slot.store(0, Ordering::Relaxed);
    }
}

/// All descriptors from `first` to `last` end.
pub fn forget_range(first: u32, last: u32) {
    let highest = HIGHEST.load(Ordering::Relaxed).min(last);
    for fd in first..=highest.max(first) {
        forget(fd as c_int);
    }
}

/// `new` is now the same as `old`.
pub fn alias(old: c_int, new: c_int) {
    if let (Some(from), Some(to)) = (slot(old), slot(new)) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        HIGHEST.fetch_max(new as u32, Ordering::Relaxed);
    }
}

/// Tells the kernel's last word on a TCP connection that is about to be closed, and the name of a datagram socket; nothing on others.
pub fn last_word(fd: c_int, number: u32) {
    if recorder::sandboxed() {
        return;
    }
    // four bytes more than the largest struct tcp_info so far, so that a larger one would show
    let mut payload = [0; 24 + 512];
    let Some(length) = sys::socket_option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut payload[24..]) else {
        return last_name(fd, number);
    };
    payload[..4].copy_from_slice(&number.to_le_bytes());
    let mut queued: c_int = 0;
    // SAFETY: SIOCOUTQ (TIOCOUTQ) fills an int
    unsafe { libc::syscall(libc::SYS_ioctl, fd as libc::c_long, libc::TIOCOUTQ, &mut queued as *mut c_int) };
    let size = sys::socket_number(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(0);
    payload[4..8].copy_from_slice(&size.saturating_sub(queued.max(0) as u32).to_le_bytes());
    sys::socket_option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut payload[8..24]);
    recorder::tell(note::TCP_INFO, &payload[..24 + length]);
}

/// The name that the kernel has given to a datagram socket when it sent first, and that nobody asked for.
fn last_name(fd: c_int, number: u32) {
    let internet = |domain| [libc::AF_INET as u32, libc::AF_INET6 as u32].contains(&domain);
    if sys::socket_number(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Some(libc::SOCK_DGRAM as u32)
        && sys::socket_number(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).is_some_and(internet)
    {
        announce(fd, number, None);
    }
}

/// The same for all that are open: the process ends.
pub fn last_words() {
    for fd in 0..=HIGHEST.load(Ordering::Relaxed) as c_int {
        let entry = slot(fd).map_or(0, |slot| slot.load(Ordering::Relaxed));
        if entry >> 24 == generation() && entry & NO_SOCKET != NO_SOCKET {
            last_word(fd, entry & NO_SOCKET);
        }
    }
}
