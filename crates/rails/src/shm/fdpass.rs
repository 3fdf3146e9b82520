//! Abstract Unix stream sockets that carry descriptors: how two processes of one host hand each other their memory and doorbells.
//!
//! Nothing blocks: what cannot be done now is `WouldBlock`. Names are bytes in the network namespace, not files; they go with
//! their socket. Anybody in the namespace may connect: ask [`FdStream::peer`] and have the peer prove itself.

use std::{
    io, mem,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    ptr,
};

/// Descriptors of one message at most.
pub const MAX_FDS: usize = 4;
/// Longest name, in bytes.
pub const MAX_NAME: usize = 107;

/// A process at the other end, as the kernel knows it: from when it connected (or began to listen).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number in our namespace; 0 if it has none here.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// A socket that others connect to by its name.
#[derive(Debug)]
pub struct FdListener(UnixListener);

impl FdListener {
    /// Listens as `name`, of [`MAX_NAME`] bytes at most. `AddrInUse` if another one does.
    pub fn bind(name: &[u8]) -> io::Result<FdListener> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        Ok(FdListener(listener))
    }

    /// The next one who connected.
    pub fn accept(&self) -> io::Result<FdStream> {
        let (stream, _) = self.0.accept()?;
        stream.set_nonblocking(true)?;
        Ok(FdStream(stream))
    }
}

impl AsFd for FdListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct FdStream(UnixStream);

/// What [`FdStream::recv`] brought.
#[derive(Debug, Default)]
pub struct Received {
    /// Bytes written to the buffer; 0 at the end of the stream.
    pub len: usize,
    fds: [Option<OwnedFd>; MAX_FDS],
}

impl Received {
    /// The descriptors that came, in order. Those not taken are closed.
    pub fn take_fds(&mut self) -> impl Iterator<Item = OwnedFd> + '_ {
        self.fds.iter_mut().filter_map(Option::take)
    }
}

/// Room for one control message with MAX_FDS descriptors, aligned as its header.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    bytes: [u8; CONTROL],
}

const FDS_BYTES: u32 = (MAX_FDS * size_of::<RawFd>()) as u32;
// SAFETY: plain arithmetic.
const CONTROL: usize = unsafe { libc::CMSG_SPACE(FDS_BYTES) } as usize;
// With room for more the kernel would hand over more than asked for; with less, it would tell us so in vain.
// SAFETY: plain arithmetic.
const _: () = assert!(CONTROL == unsafe { libc::CMSG_LEN(FDS_BYTES) } as usize);

impl FdStream {
    /// Connects to who listens as `name`. `ConnectionRefused` if nobody does, `WouldBlock` if too many are waiting there.
    pub fn connect(name: &[u8]) -> io::Result<FdStream> {
        let address = SocketAddr::from_abstract_name(name)?;
        // The standard library's connect blocks while the listener's queue is full.
        let (family, kind) = (libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        // SAFETY: the call takes integers only.
        let fd = cvt(unsafe { libc::socket(family, kind, 0) } as isize)? as RawFd;
        // SAFETY: a new descriptor, ours alone.
        let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let (raw, len) = sockaddr(&address);
        // SAFETY: an address of this length.
        cvt(unsafe { libc::connect(fd, (&raw const raw).cast(), len) } as isize)?;
        Ok(FdStream(stream))
    }

    /// Who is at the other end.
    pub fn peer(&self) -> io::Result<Peer> {
        let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let (fd, out) = (self.0.as_raw_fd(), (&raw mut cred).cast());
        // SAFETY: the buffer is a ucred and has its length.
        cvt(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, out, &mut len) } as isize)?;
        Ok(Peer { pid: cred.pid, uid: cred.uid, gid: cred.gid })
    }

    /// Sends bytes, and with the first of them duplicates of `fds`. Says how many bytes went; if any did, all descriptors
    /// did, and the rest must be sent without.
    ///
    /// # Panics
    /// On more than [`MAX_FDS`] descriptors, or descriptors without a byte.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        assert!(fds.len() <= MAX_FDS && (fds.is_empty() || !bytes.is_empty()), "{} descriptors", fds.len());
        let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = Control { bytes: [0; CONTROL] };
        let mut message = message(&mut iov, &mut control);
        if fds.is_empty() {
            message.msg_control = ptr::null_mut();
            message.msg_controllen = 0;
        } else {
            let len = (fds.len() * size_of::<RawFd>()) as u32;
            // SAFETY: the control buffer holds one header and MAX_FDS descriptors.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(len) as usize;
                let header = libc::CMSG_FIRSTHDR(&message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(len) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for (i, fd) in fds.iter().enumerate() {
                    data.add(i).write_unaligned(fd.as_raw_fd());
                }
            }
        }
        // SAFETY: everything in the message lives until the call returns.
        let sent =
            unsafe { libc::sendmsg(self.0.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        cvt(sent).map(|n| n as usize)
    }

    /// Receives bytes, and the descriptors that were sent with them.
    ///
    /// # Errors
    /// `InvalidData` if more than [`MAX_FDS`] came, or more than this process may have open: all are closed, and the stream
    /// is of no more use.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = Control { bytes: [0; CONTROL] };
        let mut message = message(&mut iov, &mut control);
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: everything in the message lives until the call returns.
        let len = cvt(unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut message, flags) })? as usize;
        let mut received = Received { len, ..Received::default() };
        // SAFETY: the kernel filled the control buffer; each descriptor in it is new and ours alone.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            if !header.is_null()
                && (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_RIGHTS
            {
                let bytes = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for (i, fd) in received.fds.iter_mut().take(bytes / size_of::<RawFd>()).enumerate() {
                    *fd = Some(OwnedFd::from_raw_fd(data.add(i).read_unaligned()));
                }
            }
        }
        if message.msg_flags & libc::MSG_CTRUNC != 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more descriptors than can be taken"));
        }
        Ok(received)
    }
}

impl AsFd for FdStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn message(iov: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: a msghdr of zeroes is an empty one.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = iov;
    message.msg_iovlen = 1;
    message.msg_control = (control as *mut Control).cast();
    message.msg_controllen = CONTROL;
    message
}

fn sockaddr(address: &SocketAddr) -> (libc::sockaddr_un, libc::socklen_t) {
    let name = address.as_abstract_name().expect("made from a name");
    // SAFETY: an address of zeroes is an empty one; the first byte of its path stays zero, which makes it abstract.
    let mut raw: libc::sockaddr_un = unsafe { mem::zeroed() };
    raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in raw.sun_path[1..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    (raw, (mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len()) as libc::socklen_t)
}

fn cvt(result: isize) -> io::Result<isize> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, Read, pipe};

    fn name(test: &str) -> Vec<u8> {
        format!("polyrail-{test}-{}", std::process::id()).into_bytes()
    }

    fn pair(test: &str) -> (FdStream, FdStream) {
        let name = name(test);
        let listener = FdListener::bind(&name).unwrap();
        let stream = FdStream::connect(&name).unwrap();
        (stream, listener.accept().unwrap())
    }

    /// Writing ends of one pipe; the reader sees its end when the last is closed.
    fn writers(n: usize) -> (PipeReader, Vec<PipeWriter>) {
        let (reader, writer) = pipe().unwrap();
        (reader, (0..n).map(|_| writer.try_clone().unwrap()).collect())
    }

    fn ended(mut reader: PipeReader) -> bool {
        // Not at once: a test that starts a process lends it all descriptors for a moment.
        let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut poll, 1, 5000) };
        poll.revents != 0 && matches!(reader.read(&mut [0]), Ok(0))
    }

    #[test]
    fn bytes_and_descriptors_arrive_together() {
        let (a, b) = pair("together");
        assert_eq!(b.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let (mut reader, writer) = pipe().unwrap();
        assert_eq!(a.send(b"hello", &[reader.as_fd(), writer.as_fd()]).unwrap(), 5);
        drop(writer);
        let mut buffer = [0; 8];
        let mut received = b.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..received.len], b"hello");
        let mut fds = received.take_fds().collect::<Vec<_>>();
        assert_eq!(fds.len(), 2);
        // SAFETY: a plain call on our descriptor.
        assert_eq!(unsafe { libc::fcntl(fds[1].as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
        io::Write::write_all(&mut PipeWriter::from(fds.pop().unwrap()), b"x").unwrap();
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        assert_eq!(b.send(b"no descriptors", &[]).unwrap(), 14);
        assert_eq!(a.recv(&mut [0; 20]).unwrap().take_fds().count(), 0);
        drop(b);
        assert_eq!(a.recv(&mut buffer).unwrap().len, 0, "end of the stream");
        assert_eq!(a.send(b"x", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn descriptors_not_taken_are_closed() {
        let (a, b) = pair("not-taken");
        let (reader, writers) = writers(MAX_FDS);
        a.send(b"x", &writers.iter().map(AsFd::as_fd).collect::<Vec<_>>()).unwrap();
        drop(writers);
        drop(b.recv(&mut [0; 8]).unwrap());
        assert!(ended(reader));
    }

    #[test]
    fn too_many_descriptors_are_an_error_and_closed() {
        let (a, b) = pair("too-many");
        let (reader, writers) = writers(MAX_FDS + 1);
        let bytes = b"x";
        let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: 1 };
        // A peer that does not keep to the limit.
        // SAFETY: the control buffer has room for a header and all descriptors, and everything lives until the call returns.
        unsafe {
            let len = (writers.len() * size_of::<RawFd>()) as u32;
            let mut control = [0u64; 8];
            let mut message = message(&mut iov, &mut Control { bytes: [0; CONTROL] });
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(len) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(len) as usize;
            for (i, fd) in writers.iter().enumerate() {
                libc::CMSG_DATA(header).cast::<RawFd>().add(i).write_unaligned(fd.as_raw_fd());
            }
            assert_eq!(libc::sendmsg(a.0.as_raw_fd(), &message, 0), 1);
        }
        drop(writers);
        assert_eq!(b.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(ended(reader));
    }

    #[test]
    fn full_socket_would_block_and_sends_nothing() {
        let (a, b) = pair("full");
        let chunk = [7; 4096];
        let mut sent = 0;
        let error = loop {
            match a.send(&chunk, &[]) {
                Ok(n) => sent += n,
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let (reader, writers) = writers(1);
        assert!(a.send(b"x", &[writers[0].as_fd()]).is_err());
        drop(writers);
        assert!(ended(reader), "nothing is left on its way");
        let mut buffer = vec![0; 1 << 16];
        while sent > 0 {
            sent -= b.recv(&mut buffer).unwrap().len;
        }
    }

    #[test]
    fn peer_is_who_connected() {
        let (a, b) = pair("peer");
        // SAFETY: take nothing.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let me = Peer { pid: std::process::id() as i32, uid, gid };
        assert_eq!((a.peer().unwrap(), b.peer().unwrap()), (me, me));
    }

    #[test]
    fn names_are_exclusive_and_go_with_their_socket() {
        let name = name("exclusive");
        assert_eq!(FdStream::connect(&name).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let listener = FdListener::bind(&name).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(FdListener::bind(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        FdListener::bind(&name).unwrap();
        let long = [b'x'; MAX_NAME + 1];
        assert!(FdStream::connect(&long).is_err() && FdListener::bind(&long).is_err());
        assert!(FdListener::bind(&long[..MAX_NAME]).is_ok());
    }

    #[test]
    fn full_queue_does_not_block_who_connects() {
        let name = name("queue");
        let listener = FdListener::bind(&name).unwrap();
        // SAFETY: a plain call on our descriptor: a queue of one.
        unsafe { libc::listen(listener.0.as_raw_fd(), 1) };
        let waiting = (0..8).map(|_| FdStream::connect(&name)).collect::<Vec<_>>();
        assert_eq!(waiting[7].as_ref().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
