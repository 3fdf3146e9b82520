//! A UDP socket of one address of this host: trains of datagrams out and in, by one system call each.

use crate::sockets::ip::{check, local_address, raw, to_address};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Bytes that the kernel is asked to keep of what comes: a program that computes for some milliseconds must not lose that.
const RECEIVE: libc::c_int = 8 << 20;
/// Bytes that it is to take of what leaves: few, so that a slow device holds the sender back rather than drop whole trains.
const SEND: libc::c_int = 208 << 10;
/// Bytes of one train, as many as a datagram may have.
pub(crate) const TRAIN: usize = 65_507;
/// Datagrams of one train (`UDP_MAX_SEGMENTS` of older kernels).
pub(crate) const TRAIN_MAX: usize = 64;
/// Trains that one call receives.
const TRAINS: usize = 4;
/// ECN-capable transport (RFC 3168): routers may mark datagrams rather than drop them.
const ECT: libc::c_int = 2;
/// Congestion experienced.
const CE: u8 = 3;

/// A number of the system's error.
pub(crate) type Errno = i32;

/// The socket.
pub(crate) struct Socket {
    fd: OwnedFd,
    at: SocketAddr,
}

fn set(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the option's value is one int.
    let result = unsafe {
        let len = size_of_val(&value) as libc::socklen_t;
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len)
    };
    check(result).map(|_| ())
}

impl Socket {
    /// One that is bound to this address; port 0: one that is free.
    pub(crate) fn open(at: SocketAddr) -> io::Result<Self> {
        let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: a plain call; the descriptor is new and ours.
        let fd = unsafe {
            let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            OwnedFd::from_raw_fd(check(libc::socket(family, kind, 0))?)
        };
        if at.is_ipv6() {
            set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        let (address, len) = raw(at);
        // SAFETY: the address is of the length given.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
        // what a kernel does not have is done without: trains come as single datagrams, marks are not seen
        if set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE).is_err() {
            let _ = set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE);
        }
        let _ = set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND / 2);
        let _ = set(&fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        if at.is_ipv4() {
            let _ = set(&fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
            let _ = set(&fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
            let _ = set(&fd, libc::IPPROTO_IP, libc::IP_TOS, ECT);
            let _ = set(&fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
        } else {
            let _ = set(&fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
            let _ = set(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
            let _ = set(&fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, ECT);
            let _ = set(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1);
        }
        let at = local_address(&fd)?;
        Ok(Self { fd, at })
    }

    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Hears a group on an interface (ip(7)), and no other by what others of this host joined.
    pub(crate) fn join(&self, group: Ipv4Addr, index: u32) -> io::Result<()> {
        set(&self.fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
        self.set_interface(libc::IP_ADD_MEMBERSHIP, group, index)
    }

    /// Sends to groups by an interface, and to the other hosts there only.
    pub(crate) fn casts_on(&self, index: u32) -> io::Result<()> {
        set(&self.fd, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, 1)?;
        set(&self.fd, libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP, 0)?;
        self.set_interface(libc::IP_MULTICAST_IF, Ipv4Addr::UNSPECIFIED, index)
    }

    fn set_interface(&self, name: libc::c_int, group: Ipv4Addr, index: u32) -> io::Result<()> {
        let request = libc::ip_mreqn {
            imr_multiaddr: libc::in_addr { s_addr: u32::from(group).to_be() },
            imr_address: libc::in_addr { s_addr: 0 },
            imr_ifindex: index as libc::c_int,
        };
        let len = size_of_val(&request) as libc::socklen_t;
        // SAFETY: the option's value is this struct.
        let done =
            unsafe { libc::setsockopt(self.fd(), libc::IPPROTO_IP, name, (&raw const request).cast(), len) };
        check(done).map(|_| ())
    }

    /// Bytes that the kernel keeps of what comes, with what it takes to keep them.
    pub(crate) fn room(&self) -> usize {
        let mut room: libc::c_int = 0;
        let mut len = size_of_val(&room) as libc::socklen_t;
        // SAFETY: room for the answer, one int.
        let found = unsafe {
            let at = (&raw mut room).cast();
            libc::getsockopt(self.fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, at, &mut len)
        };
        if found == 0 { room.max(0) as usize } else { 0 }
    }

    /// Bytes that a device has not sent yet (udp(7)).
    pub(crate) fn unsent(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: room for the answer, one int.
        let found = unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if found == 0 { bytes.max(0) as usize } else { 0 }
    }

    /// Sends bytes as datagrams of `each` bytes, of which the last may be shorter.
    pub(crate) fn send(&self, to: SocketAddr, bytes: &[u8], each: usize) -> Result<(), Errno> {
        let (address, len) = raw(to);
        let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = Control::default();
        // SAFETY: all zeros is an empty message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw const address).cast_mut().cast();
        message.msg_namelen = len;
        (message.msg_iov, message.msg_iovlen) = (&mut iov, 1);
        if bytes.len() > each {
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = control.put_segment(each as u16);
        }
        // SAFETY: the message's parts live through the call, and the kernel only reads them.
        let sent = unsafe { libc::sendmsg(self.fd(), &message, libc::MSG_NOSIGNAL) };
        if sent < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) } else { Ok(()) }
    }

    /// Takes the next error that the network reported: whose it was.
    pub(crate) fn take_error(&self) -> Option<(SocketAddr, Errno)> {
        let mut control = Control::default();
        // SAFETY: all zeros is an address of no family.
        let mut from: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut byte = [0_u8; 1];
        let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        // SAFETY: as above, of a message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of_val(&from) as libc::socklen_t;
        (message.msg_iov, message.msg_iovlen) = (&mut iov, 1);
        (message.msg_control, message.msg_controllen) = (control.0.as_mut_ptr().cast(), CONTROL);
        // SAFETY: the message's parts are ours and writable.
        if unsafe { libc::recvmsg(self.fd(), &mut message, libc::MSG_ERRQUEUE) } < 0 {
            return None;
        }
        let to = to_address(&from)?;
        let code = messages(&message).find_map(|(level, kind, bytes)| {
            let its = (level, kind) == (libc::SOL_IP, libc::IP_RECVERR)
                || (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR);
            bytes.first_chunk().filter(|_| its).map(|first| u32::from_ne_bytes(*first))
        });
        Some((to, code.unwrap_or(0) as Errno))
    }
}

const CONTROL: usize = 256;

/// Room for control messages, aligned as they are.
#[repr(align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

impl Default for Control {
    fn default() -> Self {
        Self([0; CONTROL])
    }
}

impl Control {
    /// How long the datagrams of a train are; the length of the message.
    fn put_segment(&mut self, each: u16) -> usize {
        // SAFETY: plain arithmetic.
        let (len, space) = unsafe { (libc::CMSG_LEN(2), libc::CMSG_SPACE(2)) };
        let header =
            libc::cmsghdr { cmsg_len: len as usize, cmsg_level: libc::SOL_UDP, cmsg_type: libc::UDP_SEGMENT };
        // SAFETY: the room is aligned and long enough for a header and two bytes.
        unsafe {
            let to = self.0.as_mut_ptr().cast::<libc::cmsghdr>();
            to.write(header);
            libc::CMSG_DATA(to).cast::<u16>().write_unaligned(each);
        }
        space as usize
    }
}

/// The control messages of a message that was received: level, kind, bytes.
fn messages(message: &libc::msghdr) -> impl Iterator<Item = (i32, i32, &[u8])> {
    // SAFETY: the kernel wrote well-formed control messages, as long as it says.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
    std::iter::from_fn(move || {
        // SAFETY: null, or a control message within the buffer.
        let header = unsafe { at.as_ref()? };
        // SAFETY: as above; its length counts its header, too.
        let bytes = unsafe {
            let len = header.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            std::slice::from_raw_parts(libc::CMSG_DATA(at), len)
        };
        // SAFETY: as for the first.
        at = unsafe { libc::CMSG_NXTHDR(message, at) };
        Some((header.cmsg_level, header.cmsg_type, bytes))
    })
}

/// A train that came: datagrams of the same length, of which the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    pub(crate) from: SocketAddr,
    pub(crate) len: usize,
    pub(crate) each: usize,
    /// A router marked it.
    pub(crate) marked: bool,
}

/// Room for what one call receives.
#[derive(Default)]
pub(crate) struct Inbox {
    rooms: Vec<Box<[u8]>>,
    pub(crate) trains: Vec<Train>,
}

impl Inbox {
    /// The bytes of a train, writable: they are opened in place.
    pub(crate) fn bytes(&mut self, at: usize) -> &mut [u8] {
        let len = self.trains[at].len;
        &mut self.rooms[at][..len]
    }

    /// Receives what there is, at most as much as there is room for. True: all rooms are taken, there may be more.
    pub(crate) fn receive(&mut self, socket: &Socket) -> Result<bool, Errno> {
        self.trains.clear();
        if self.rooms.is_empty() {
            self.rooms = (0..TRAINS).map(|_| vec![0; 1 << 16].into()).collect();
        }
        // SAFETY: all zeros are addresses of no family, and empty messages.
        let (mut names, mut messages): ([libc::sockaddr_storage; TRAINS], [libc::mmsghdr; TRAINS]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mut controls = [Control::default(); TRAINS];
        let mut iovs = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; TRAINS];
        for (at, room) in self.rooms.iter_mut().enumerate() {
            iovs[at] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let message = &mut messages[at].msg_hdr;
            message.msg_name = (&raw mut names[at]).cast();
            message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            (message.msg_iov, message.msg_iovlen) = (&mut iovs[at], 1);
            (message.msg_control, message.msg_controllen) = (controls[at].0.as_mut_ptr().cast(), CONTROL);
        }
        // SAFETY: the messages' parts are ours, writable, and live through the call.
        let got = unsafe {
            libc::recvmmsg(
                socket.fd(),
                messages.as_mut_ptr(),
                TRAINS as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
        }
        for (message, name) in messages.iter().zip(&names).take(got as usize) {
            let len = message.msg_len as usize;
            let (mut each, mut marked) = (len, false);
            for (level, kind, bytes) in self::messages(&message.msg_hdr) {
                match (level, kind) {
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        each = bytes.first_chunk().map_or(len, |first| i32::from_ne_bytes(*first) as usize);
                    }
                    (libc::SOL_IP, libc::IP_TOS) | (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
                        marked = bytes.first().is_some_and(|tos| tos & CE == CE);
                    }
                    _ => {}
                }
            }
            // what is from no address of IP is nobody's
            let Some(from) = to_address(name) else {
                self.trains.push(Train { from: SocketAddr::from(([0; 4], 0)), len: 0, each: 1, marked });
                continue;
            };
            self.trains.push(Train { from, len, each: each.clamp(1, len.max(1)), marked });
        }
        Ok(got as usize == TRAINS)
    }
}
