//! What a descriptor of another process is: a copy of it is made here for a moment, and asked.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{getpeername, getsockname, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::diag::canonical;
use crate::kernel::calls::kind;
use crate::kernel::names::Name;

/// Processes whose descriptor is kept.
const MOST: usize = 256;

/// The ways to ask.
#[derive(Debug, Default)]
pub struct Sockets {
    processes: HashMap<u32, OwnedFd>,
    /// The kernel has none, or does not let us (some containers).
    pub refused: bool,
}

impl Sockets {
    /// What a socket says of itself. To be asked of what is known to be one: a copy of something else might change it when it is closed here.
    pub fn ask(&mut self, pid: u32, fd: i32, name: &mut Name) {
        let Some(copy) = self.copy(pid, fd) else { return };
        // another thread of the process may have put something else at its place
        if !rustix::fs::fstat(&copy).is_ok_and(|about| about.st_ino == name.inode) {
            return;
        }
        let number = |result: rustix::io::Result<u32>| result.map_or(0, u64::from);
        let domain = number(sockopt::socket_domain(&copy).map(|domain| domain.as_raw().into()));
        let kind_of = number(sockopt::socket_type(&copy).map(|kind| kind.as_raw()));
        let protocol = sockopt::socket_protocol(&copy).ok().flatten().map_or(0, |one| one.as_raw().get());
        name.kind = Some(kind([domain, kind_of, protocol.into(), 0, 0, 0]));
        name.cookie = sockopt::socket_cookie(&copy).unwrap_or(name.cookie);
        name.listening |= sockopt::socket_acceptconn(&copy).unwrap_or(false);
        let named = |address: SocketAddr| Some(canonical(address)).filter(|address| address.port() != 0);
        let known = |address: rustix::net::SocketAddrAny| SocketAddr::try_from(address).ok().and_then(named);
        name.local = getsockname(&copy).ok().and_then(known).or(name.local);
        name.remote = getpeername(&copy).ok().flatten().and_then(known).or(name.remote);
    }

    fn copy(&mut self, pid: u32, fd: i32) -> Option<OwnedFd> {
        if self.processes.len() >= MOST {
            self.processes.clear();
        }
        if !self.processes.contains_key(&pid) {
            let open = pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty());
            self.processes.insert(pid, open.inspect_err(|why| self.refused |= is_refusal(*why)).ok()?);
        }
        let process = self.processes.get(&pid)?;
        pidfd_getfd(process, fd, PidfdGetfdFlags::empty())
            .inspect_err(|why| self.refused |= is_refusal(*why))
            .ok()
    }

    /// A process has ended: another may get its number.
    pub fn gone(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}

fn is_refusal(why: rustix::io::Errno) -> bool {
    [rustix::io::Errno::NOSYS, rustix::io::Errno::PERM].contains(&why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::descriptors;
    use crate::kernel::names::Names;
    use crate::model::Kind;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;

    #[test]
    fn sockets_say_what_they_are() {
        let mut sockets = Sockets::default();
        let mut ask = |fd: &dyn AsRawFd| {
            let inode = descriptors::inode(std::process::id(), fd.as_raw_fd()).unwrap_or(1);
            let mut names = Names::default();
            let number = names.of_inode(0, inode);
            names.learn(number, |name| sockets.ask(std::process::id(), fd.as_raw_fd(), name));
            names.get(number).cloned().unwrap()
        };
        let listener = TcpListener::bind("[::1]:0").or_else(|_| TcpListener::bind("127.0.0.1:0")).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let name = ask(&listener);
        if name.kind.is_none() {
            return polyrail_testing::lacking("pidfd_getfd");
        }
        assert_eq!((name.kind, name.listening, name.remote), (Some(Kind::Tcp), true, None));
        assert_eq!(name.local, listener.local_addr().ok());
        let name = ask(&stream);
        assert_eq!((name.kind, name.listening), (Some(Kind::Tcp), false));
        assert_eq!((name.local, name.remote), (stream.local_addr().ok(), stream.peer_addr().ok()));
        assert_ne!(name.cookie, 0);
        let name = ask(&UdpSocket::bind("127.0.0.1:0").unwrap());
        assert_eq!((name.kind, name.remote), (Some(Kind::Udp), None));
        let name = ask(&std::os::unix::net::UnixStream::pair().unwrap().0);
        assert_eq!((name.kind, name.local), (Some(Kind::Unix), None));
        let name = ask(&std::fs::File::open("/dev/null").unwrap());
        assert_eq!(name.kind, None, "not what it was taken for");
    }
}
