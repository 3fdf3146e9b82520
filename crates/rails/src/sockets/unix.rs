//! Unix sockets in the abstract namespace, and descriptors sent over them (`unix(7)`): nothing in a file system.

use crate::rail::channel::{Channel, Source};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Most descriptors that go, or are taken, with one message.
const MAX_FDS: usize = 4;

fn check(n: libc::c_int) -> io::Result<libc::c_int> {
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n) }
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: a plain call; the descriptor is ours.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        check(libc::socket(libc::AF_UNIX, kind, 0)).map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

fn abstract_name(name: &[u8]) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zero is a valid sockaddr_un.
    let mut at: libc::sockaddr_un = unsafe { mem::zeroed() };
    at.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if name.len() >= at.sun_path.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is too long for a Unix socket"));
    }
    for (to, byte) in at.sun_path[1..].iter_mut().zip(name) {
        *to = *byte as libc::c_char;
    }
    let len = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Ok((at, len as libc::socklen_t))
}

/// A nonblocking listener under an abstract name.
///
/// # Errors
/// EADDRINUSE when the name is taken; else what the kernel says.
pub fn listen(name: &[u8]) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let (at, len) = abstract_name(name)?;
    // SAFETY: the address is of the length given.
    unsafe {
        check(libc::bind(fd.as_raw_fd(), (&raw const at).cast(), len))?;
        check(libc::listen(fd.as_raw_fd(), 1024))?;
    }
    Ok(fd)
}

/// A nonblocking connection to an abstract name.
///
/// # Errors
/// ECONNREFUSED when nobody listens there; EAGAIN when the listener's queue is full.
pub fn connect(name: &[u8]) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let (at, len) = abstract_name(name)?;
    // SAFETY: the address is of the length given.
    unsafe { check(libc::connect(fd.as_raw_fd(), (&raw const at).cast(), len))? };
    Ok(fd)
}

/// The same, to a listener of this user's, root's, or whoever's when this is root: anybody can take a name.
///
/// # Errors
/// EACCES when it is another user's.
pub fn connect_to_own(name: &[u8]) -> io::Result<OwnedFd> {
    let socket = connect(name)?;
    // SAFETY: a plain call without arguments.
    let me = unsafe { libc::geteuid() };
    match peer_uid(socket.as_fd())? {
        owner if owner == me || owner == 0 || me == 0 => Ok(socket),
        owner => {
            let why = format!("user {owner} has its name");
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        }
    }
}

/// The next connection of a listener, nonblocking, if its process runs under this user (or root).
///
/// # Errors
/// EAGAIN when there is none; EPERM for another user's, which is closed.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: no address is asked for; the descriptor is ours.
    let fd = unsafe {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let fd = libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags);
        OwnedFd::from_raw_fd(check(fd)?)
    };
    let peer = credentials(fd.as_fd())?;
    // SAFETY: a plain call.
    let uid = unsafe { libc::geteuid() };
    if peer.uid == uid || peer.uid == 0 || uid == 0 {
        Ok(fd)
    } else {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}

fn credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the buffer is a ucred of the length given.
    unsafe { check(libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut peer).cast(), &mut len))? };
    Ok(peer)
}

/// The process at the other end, which connected or listened, by its number in this process's PID namespace: the kernel's
/// word, not the peer's.
///
/// # Errors
/// When the kernel does not say; ESRCH when the process is in none of our PID namespaces.
pub fn peer_pid(socket: BorrowedFd<'_>) -> io::Result<i32> {
    match credentials(socket)?.pid {
        0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        pid => Ok(pid),
    }
}

/// The user of the process at the other end, which connected or listened: the kernel's word, not the peer's.
///
/// # Errors
/// When the kernel does not say.
pub fn peer_uid(socket: BorrowedFd<'_>) -> io::Result<u32> {
    credentials(socket).map(|peer| peer.uid)
}

/// Room for the control message of [`MAX_FDS`] descriptors, aligned as the kernel wants it.
#[repr(align(8))]
struct Control([u8; Self::LEN]);

impl Control {
    // SAFETY: pure arithmetic.
    const LEN: usize = unsafe { libc::CMSG_SPACE((MAX_FDS * size_of::<RawFd>()) as u32) } as usize;
}

/// Sends bytes, with descriptors beside the first of them. Returns how many bytes went; if any did, the descriptors went.
///
/// # Errors
/// EAGAIN when there is no room; EINVAL for more than four descriptors.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if fds.len() > MAX_FDS || bytes.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; Control::LEN]);
    // SAFETY: all zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
    let data = size_of_val(fds) as u32;
    if !fds.is_empty() {
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the control buffer has room for MAX_FDS descriptors, so for these.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(data) as _;
            let head = libc::CMSG_FIRSTHDR(&message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(data) as _;
            let at = libc::CMSG_DATA(head).cast::<RawFd>();
            for (i, fd) in fds.iter().enumerate() {
                at.add(i).write_unaligned(fd.as_raw_fd());
            }
        }
    }
    // SAFETY: the message points to live memory only.
    let n = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Receives bytes, and appends descriptors that came with them to `fds`, up to four in all; more are closed.
///
/// # Errors
/// EAGAIN when nothing is there; `InvalidData` when more descriptors came than fit, or than this process may still open.
pub fn recv(socket: BorrowedFd<'_>, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([0; Control::LEN]);
    // SAFETY: all zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the message points to live memory only.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel wrote the control messages; each descriptor in them is new and ours.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(&message);
        while let Some(found) = head.as_ref() {
            if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_RIGHTS {
                // the length's type is the C library's choice
                #[allow(clippy::unnecessary_cast)]
                let count = (found.cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let at = libc::CMSG_DATA(head).cast::<RawFd>();
                for i in 0..count {
                    let fd = OwnedFd::from_raw_fd(at.add(i).read_unaligned());
                    if fds.len() < MAX_FDS {
                        fds.push(fd);
                    }
                }
            }
            head = libc::CMSG_NXTHDR(&message, head);
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the descriptors that came are too many (ulimit -n)",
        ));
    }
    Ok(n)
}

/// A connection within this host.
pub(crate) struct UnixChannel(pub OwnedFd);

impl Channel for UnixChannel {
    fn write(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        send(self.0.as_fd(), bytes, descriptors)
    }

    fn read(&mut self, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        recv(self.0.as_fd(), bytes, descriptors)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn source(&self) -> Source {
        peer_uid(self.0.as_fd()).map_or(Source::Unknown, Source::User)
    }

    fn name(&self) -> String {
        "a Unix socket".into()
    }

    fn into_fd(self: Box<Self>) -> OwnedFd {
        self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pair(tag: &str) -> (OwnedFd, OwnedFd) {
        let name = format!("polyrail-test-{}-{tag}", std::process::id());
        let listener = listen(name.as_bytes()).unwrap();
        let client = connect(name.as_bytes()).unwrap();
        (client, accept(listener.as_fd()).unwrap())
    }

    fn open_fds() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn bytes_and_descriptors_arrive_together() {
        let (a, b) = pair("together");
        let (r, w) = io::pipe().unwrap();
        send(a.as_fd(), b"hello", &[w.as_fd()]).unwrap();
        drop(w);
        let (mut bytes, mut fds) = ([0; 16], Vec::new());
        assert_eq!(recv(b.as_fd(), &mut bytes, &mut fds).unwrap(), 5);
        assert_eq!((&bytes[..5], fds.len()), (&b"hello"[..], 1));
        io::Write::write_all(&mut std::fs::File::from(fds.pop().unwrap()), b"!").unwrap();
        let mut said = [0];
        io::Read::read_exact(&mut { r }, &mut said).unwrap();
        assert_eq!(said, *b"!");
        assert_eq!(recv(b.as_fd(), &mut bytes, &mut fds).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_flood_of_descriptors_does_not_stay_open() {
        let (a, b) = pair("flood");
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut fds = Vec::new();
        for _ in 0..8 {
            send(a.as_fd(), b"x", &[null.as_fd(); MAX_FDS]).unwrap();
        }
        let before = open_fds();
        for _ in 0..8 {
            recv(b.as_fd(), &mut [0; 1], &mut fds).unwrap();
        }
        assert_eq!(fds.len(), MAX_FDS);
        assert!(open_fds() <= before + MAX_FDS + 16, "other tests may open some, but not these");
    }

    #[test]
    fn a_message_with_too_many_is_refused_and_they_are_closed() {
        let (a, b) = pair("too-many");
        let (mut reader, writer) = io::pipe().unwrap();
        let mut iov = libc::iovec { iov_base: b"x".as_ptr().cast_mut().cast(), iov_len: 1 };
        // SAFETY: the control buffer has room for a header and five descriptors; all lives until the call returns.
        unsafe {
            const DATA: u32 = 5 * size_of::<RawFd>() as u32;
            let mut control = [0u64; 8];
            let mut message: libc::msghdr = mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(DATA) as _;
            let head = libc::CMSG_FIRSTHDR(&message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(DATA) as _;
            for i in 0..5 {
                libc::CMSG_DATA(head).cast::<RawFd>().add(i).write_unaligned(writer.as_raw_fd());
            }
            assert_eq!(libc::sendmsg(a.as_raw_fd(), &message, 0), 1);
        }
        drop(writer);
        let mut fds = Vec::new();
        let error = recv(b.as_fd(), &mut [0; 8], &mut fds).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        drop(fds);
        // With a limit: a writer left open fails the test and does not hang it.
        let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 5000) }, 1);
        assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0, "no writer is left");
    }

    #[test]
    fn nothing_blocks() {
        let (a, _b) = pair("full");
        let error = loop {
            if let Err(e) = send(a.as_fd(), &[7; 4096], &[]) {
                break e;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let name = format!("polyrail-test-{}-queue", std::process::id());
        let listener = listen(name.as_bytes()).unwrap();
        // SAFETY: a plain call on our descriptor: a queue of one.
        unsafe { libc::listen(listener.as_raw_fd(), 1) };
        let waiting: Vec<_> = (0..8).map(|_| connect(name.as_bytes())).collect();
        assert_eq!(waiting[7].as_ref().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn names_are_exclusive_and_absent_ones_refuse() {
        let name = format!("polyrail-test-{}-name", std::process::id());
        assert_eq!(connect(name.as_bytes()).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let _held = listen(name.as_bytes()).unwrap();
        assert_eq!(listen(name.as_bytes()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(listen(&[b'x'; 200]).is_err());
    }
}
