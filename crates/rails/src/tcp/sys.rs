//! The system calls of the TCP rail, none of which waits. Errors are bare `errno` values: most are not errors here.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::warmth::Seen;
use crate::rail::journal::MAX_IOV;
use crate::rail::{LinkStats, RawIov};

/// A system call's `errno`.
pub(super) type Errno = i32;

/// What an attempt to send came to. The kernel tells of a connection's end once: who drops what it said has others see a mere end of
/// the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// Bytes of the stream that are the kernel's, or sealed.
    pub(super) bytes: usize,
    /// Why it took no more, if it was offered more.
    pub(super) stopped: Option<Errno>,
}

impl From<Result<usize, Errno>> for Sent {
    fn from(result: Result<usize, Errno>) -> Self {
        match result {
            Ok(bytes) => Self { bytes, stopped: None },
            Err(e) => Self { bytes: 0, stopped: Some(e) },
        }
    }
}

fn errno() -> Errno {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

#[inline]
fn retry(mut call: impl FnMut() -> isize) -> Result<usize, Errno> {
    loop {
        let n = call();
        if n >= 0 {
            return Ok(n as usize);
        }
        match errno() {
            libc::EINTR => {}
            e => return Err(e),
        }
    }
}

/// Receives at most `buf.len()` bytes.
#[inline]
pub(super) fn recv(fd: RawFd, buf: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most `buf.len()` bytes to `buf`.
    retry(|| unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), libc::MSG_DONTWAIT) })
}

/// Reads at most `len` bytes and forgets them, without copying (tcp(7), `MSG_TRUNC`).
pub(super) fn discard(fd: RawFd, len: usize) -> Result<usize, Errno> {
    // SAFETY: with MSG_TRUNC a TCP socket writes nothing to the buffer, which therefore may be null.
    retry(|| unsafe { libc::recv(fd, std::ptr::null_mut(), len, libc::MSG_DONTWAIT | libc::MSG_TRUNC) })
}

fn message(iov: &[RawIov]) -> libc::msghdr {
    debug_assert!(iov.len() <= MAX_IOV);
    // SAFETY: all zeros is a valid msghdr: no name, no control data, no flags.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov.as_ptr().cast_mut().cast();
    msg.msg_iovlen = iov.len() as _;
    msg
}

/// Receives into `iov`, in order. Memory that cannot be written gives `EFAULT` or a short count, never a signal.
///
/// # Safety
/// The addresses may be overwritten.
#[inline]
pub(super) unsafe fn recv_iov(fd: RawFd, iov: &[RawIov]) -> Result<usize, Errno> {
    let mut msg = message(iov);
    // SAFETY: `msg` names `iov.len()` valid entries (RawIov has iovec's layout), writable by our contract.
    retry(|| unsafe { libc::recvmsg(fd, &mut msg, libc::MSG_DONTWAIT) })
}

/// Sends from `buf`.
#[inline]
pub(super) fn send(fd: RawFd, buf: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel reads at most `buf.len()` bytes of `buf`.
    retry(|| unsafe {
        libc::send(fd, buf.as_ptr().cast(), buf.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    })
}

/// Sends from `iov`, in order. Memory that cannot be read gives `EFAULT` or a short count, never a signal.
///
/// # Safety
/// The addresses belong to the caller to read from.
#[inline]
pub(super) unsafe fn send_iov(fd: RawFd, iov: &[RawIov]) -> Result<usize, Errno> {
    let msg = message(iov);
    // SAFETY: `msg` names `iov.len()` valid entries (RawIov has iovec's layout), readable by our contract.
    retry(|| unsafe { libc::sendmsg(fd, &msg, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// Bytes in the socket's send buffer that the peer's kernel has not acknowledged; 0 when that cannot be said.
pub(super) fn unacknowledged(fd: RawFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (SIOCOUTQ) writes one int.
    match unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &mut bytes) } {
        0 => bytes.max(0) as usize,
        _ => 0,
    }
}

/// `tcp_info` (tcp(7), linux/tcp.h) as the kernel writes it; None when it does not answer. What it does not know is 0.
fn raw_info(fd: RawFd) -> Option<[u8; 240]> {
    let mut bytes = [0u8; 240];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to the array. libc's tcp_info ends before the fields of interest.
    let result = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, bytes.as_mut_ptr().cast(), &mut len)
    };
    (result == 0).then_some(bytes)
}

/// What the kernel knows of a connection; None when it does not answer.
pub(super) fn info(fd: RawFd) -> Option<LinkStats> {
    let bytes = raw_info(fd)?;
    let word = |at: usize| bytes[at..at + 4].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
    let long = |at: usize| bytes[at..at + 8].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    Some(LinkStats {
        probes: u32::from(bytes[3]),
        packet: word(16),
        unacked: word(24),
        last_ack: word(56),
        rtt: word(68),
        retransmitted: word(100),
        segments: word(156),
        min_rtt: shortest(word(148)),
        peer_window: word(228),
        received: long(128),
        lost: word(32),
        spurious: word(216),
        came: word(152),
        early: word(224),
        busy: long(168),
        narrow: long(184),
        ..LinkStats::default()
    })
}

/// A shortest round trip as `tcp_info` has it, which is all ones as long as there was none.
const fn shortest(said: u32) -> u32 {
    if said == u32::MAX { 0 } else { said }
}

/// Whether the peer's kernel has something to acknowledge, data or a probe, and has been silent for so long. A peer that
/// merely does not receive has a kernel that answers probes.
pub(super) fn unanswered(fd: RawFd, since: Duration) -> bool {
    info(fd).is_some_and(|info| {
        (info.unacked > 0 || info.probes > 0) && u128::from(info.last_ack) >= since.as_millis()
    })
}

/// Ends the connection even if a forked child still holds the descriptor.
pub(super) fn shutdown(fd: RawFd) {
    // SAFETY: no memory is involved; a socket that is down already gives an error of no interest.
    unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
}

/// Resets the connection, even if a forked child still holds the descriptor: tcp(7), `connect` with `AF_UNSPEC`. What is on its way
/// is lost. The other side can tell that from the end of a process, which closes its connections.
pub(super) fn reset(fd: RawFd) {
    let none = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    // SAFETY: the address is as long as is said; a socket that is down already gives an error of no interest.
    unsafe { libc::connect(fd, &raw const none, size_of::<libc::sockaddr>() as libc::socklen_t) };
}

/// The name of a connection's congestion control.
pub(super) fn congestion(fd: RawFd) -> Option<String> {
    // TCP_CA_NAME_MAX
    let mut name = [0u8; 16];
    let mut len = name.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `name`.
    let told = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_mut_ptr().cast(), &raw mut len)
    };
    if told != 0 {
        return None;
    }
    let name = name.split(|byte| *byte == 0).next()?;
    std::str::from_utf8(name).ok().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// What the kernel says of a connection that BBR controls (`TCP_CC_INFO`, `tcp_bbr_info` of linux/inet_diag.h); None where it says nothing like that.
pub(super) fn bbr(fd: RawFd) -> Option<Seen> {
    let mut words = [0u32; 5];
    let mut len = size_of_val(&words) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `words`.
    let told = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CC_INFO, words.as_mut_ptr().cast(), &raw mut len)
    };
    let told = told == 0 && len as usize == size_of_val(&words);
    let ([low, high, _, pace, window], bytes) = (words, told.then(|| raw_info(fd))??);
    let word = |at: usize| bytes[at..at + 4].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
    let long = |at: usize| bytes[at..at + 8].first_chunk().map_or(0, |long| u64::from_ne_bytes(*long));
    Some(Seen {
        rate: u64::from(high) << 32 | u64::from(low),
        gains: (pace, window),
        loses: bytes[1] != 0,
        waits: word(144) > 0,
        refused: false,
        acked: long(120),
        rtt: Duration::from_micros(word(68).into()),
        narrow: long(176),
    })
}

/// Has BBR begin anew on a connection that it controls: it knows nothing then but the window and the round trip.
pub(super) fn begin_anew(fd: RawFd) -> io::Result<()> {
    // to choose what is chosen changes nothing; Reno is always there
    set_bytes(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"reno")?;
    set_bytes(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"bbr")
}

/// Sets how many bytes a second the kernel paces a connection by, at most (`SO_MAX_PACING_RATE`, socket(7)).
pub(super) fn pace(fd: RawFd, rate: u64) {
    // a kernel that knows no wider rate takes the narrow one; one that knows none sends as fast as it can
    if set_bytes(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate.to_ne_bytes()).is_err() {
        let narrow = u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes();
        let _ = set_bytes(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &narrow);
    }
}

/// Has the kernel take no more beforehand than so many bytes (`TCP_NOTSENT_LOWAT`, tcp(7)): more than the congestion window lets it send. 0: as the system says.
pub(super) fn take_beforehand(fd: RawFd, bytes: u64) {
    // a kernel that does not know it takes as much as its buffer holds
    let _ = set(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes.min(i32::MAX as u64) as libc::c_int);
}

/// Has the kernel keep up to so many bytes that are not acknowledged, if that is more than it chooses by itself and this user may say so (socket(7),
/// `SO_SNDBUF` and `SO_SNDBUFFORCE`). How many it keeps then; it doubles what it is told, for what it keeps beside bytes.
///
/// What it may hold of what comes is its own choice: told of a connection that is up (tcp(7) has it told before), older kernels leave the window as small as it
/// was at first.
pub(super) fn keep_more(fd: RawFd, bytes: usize) -> usize {
    let last = |text: &str| text.split_whitespace().last().and_then(|last| last.parse().ok());
    let setting = |name| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/{name}")).ok();
        text.and_then(|text| last(&text)).unwrap_or(0)
    };
    let chosen: usize = setting("ipv4/tcp_wmem");
    let bytes = bytes.min(i32::MAX as usize / 2);
    let say =
        |name, bytes| 2 * bytes > chosen && set(fd, libc::SOL_SOCKET, name, bytes as libc::c_int).is_ok();
    if say(libc::SO_SNDBUFFORCE, bytes) {
        return 2 * bytes;
    }
    // whatever else it is told, the kernel takes no more
    let may = setting("core/wmem_max").min(bytes);
    if say(libc::SO_SNDBUF, may) { 2 * may } else { chosen }
}

/// Sets an integer option.
pub(super) fn set(fd: RawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_bytes(fd, level, name, &value.to_ne_bytes())
}

/// Sets an option of bytes.
pub(super) fn set_bytes(fd: RawFd, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `value.len()` bytes of `value`.
    match unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as _) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
