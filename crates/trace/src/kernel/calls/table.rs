//! The system calls that are recorded, and what is to be known of each.

use polyrail_core::trace::Call;

use crate::model;

/// What is to be known of a system call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// On a descriptor, the first argument; `arg` is the argument of this number.
    On(usize),
    /// On a descriptor; `arg` is not in the arguments.
    Vector,
    /// Waits on many; `arg` is the timeout in milliseconds.
    Wait(usize),
    /// Waits on many; the timeout is not in the arguments.
    WaitUntil,
    /// Returns a new socket; `arg` is the first argument.
    Opens,
    /// Returns a new socket of one that listens.
    Accepts,
    Close,
    /// Returns or makes a descriptor that is the same as the first argument.
    Copies,
    /// `fcntl`, which may be a copy.
    Control,
    Splice,
    /// Closes descriptors; is no socket call itself.
    Range,
}

impl Shape {
    /// Whether the first argument is one.
    pub fn is_on_descriptor(self) -> bool {
        !matches!(self, Wait(_) | WaitUntil | Opens | Range)
    }
}

use Shape::{Accepts, Close, Control, Copies, On, Opens, Range, Splice, Vector, Wait, WaitUntil};

pub const TABLE: &[(&str, Call, Shape)] = &[
    ("socket", Call::Socket, Opens),
    ("bind", Call::Bind, Vector),
    ("listen", Call::Listen, On(1)),
    ("connect", Call::Connect, Vector),
    ("accept", Call::Accept, Accepts),
    ("accept4", Call::Accept4, Accepts),
    ("shutdown", Call::Shutdown, On(1)),
    ("close", Call::Close, Close),
    ("close_range", Call::Close, Range),
    ("dup", Call::Dup, Copies),
    ("dup2", Call::Dup2, Copies),
    ("dup3", Call::Dup3, Copies),
    ("fcntl", Call::FcntlDup, Control),
    ("sendto", Call::SendTo, On(2)),
    ("sendmsg", Call::SendMsg, Vector),
    ("sendmmsg", Call::SendMMsg, Vector),
    ("write", Call::Write, On(2)),
    ("writev", Call::WriteV, Vector),
    ("sendfile64", Call::SendFile, On(3)),
    ("splice", Call::SpliceTo, Splice),
    ("recvfrom", Call::RecvFrom, On(2)),
    ("recvmsg", Call::RecvMsg, Vector),
    ("recvmmsg", Call::RecvMMsg, Vector),
    ("read", Call::Read, On(2)),
    ("readv", Call::ReadV, Vector),
    ("poll", Call::Poll, Wait(2)),
    ("ppoll", Call::PPoll, WaitUntil),
    ("select", Call::Select, WaitUntil),
    ("pselect6", Call::PSelect, WaitUntil),
    ("epoll_wait", Call::EpollWait, Wait(3)),
    ("epoll_pwait", Call::EpollPWait, Wait(3)),
    ("epoll_pwait2", Call::EpollPWait2, WaitUntil),
];

/// Calls that files take, too.
pub const FILES: [Call; 4] = [Call::Read, Call::ReadV, Call::Write, Call::WriteV];

/// What `socket` makes.
pub fn kind(arguments: [u64; 6]) -> model::Kind {
    let inet = [libc::AF_INET, libc::AF_INET6].contains(&(arguments[0] as i32));
    let protocol = arguments[2] as i32;
    match arguments[1] as i32 & 0xf {
        _ if arguments[0] as i32 == libc::AF_UNIX => model::Kind::Unix,
        libc::SOCK_STREAM if inet && [0, libc::IPPROTO_TCP, libc::IPPROTO_MPTCP].contains(&protocol) => {
            model::Kind::Tcp
        }
        libc::SOCK_DGRAM if inet && [0, libc::IPPROTO_UDP].contains(&protocol) => model::Kind::Udp,
        _ => model::Kind::Other,
    }
}

/// Whether a descriptor that was made with these flags outlives an `exec`.
pub fn keeps(flags: u64) -> bool {
    flags & libc::SOCK_CLOEXEC as u64 == 0
}
