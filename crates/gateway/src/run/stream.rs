//! One stream: a socket of a program, and the two directions between it and the other gateway.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use super::poll::{Poll, Token};
use crate::classes::Called;
use crate::flow::{Incoming, Outgoing, Piece};
use crate::wire::{HEAD, Reason};

/// Pieces of no more bytes become one, up to so many.
const LITTLE: usize = 4096;
const FULL: usize = 32 << 10;
/// After how long without a word, and in what steps, it is found that a program's host has gone.
const SILENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_secs(15);
const STEPS: u32 = 4;

/// A message of data, or what is left of it.
pub struct Received {
    bytes: Vec<u8>,
    at: usize,
}

impl Piece for Received {
    fn len(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn join(&mut self, next: Self) -> Option<Self> {
        if next.len() > LITTLE || self.bytes.len() > FULL {
            return Some(next);
        }
        self.bytes.extend_from_slice(next.bytes.get(next.at..).unwrap_or_default());
        None
    }
}

impl Received {
    /// What a program is told by its own gateway.
    pub fn plain(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0 }
    }

    /// The data of the first bytes of a buffer, which is given back where they are copied, because they are few.
    pub fn of(mut buffer: Vec<u8>, len: usize) -> (Self, Option<Vec<u8>>) {
        if len * 4 < buffer.len() {
            let bytes = buffer.get(HEAD..len).unwrap_or_default().to_vec();
            return (Self { bytes, at: 0 }, Some(buffer));
        }
        buffer.truncate(len);
        (Self { bytes: buffer, at: HEAD }, None)
    }
}

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The other gateway is asked to connect it.
    Asked,
    /// It is being connected, here.
    Joining,
    /// Bytes go both ways.
    Open,
}

/// What came of looking at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// So many bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The program has ended its direction.
    End,
    /// It is lost.
    Lost,
}

/// One.
pub struct Stream {
    socket: OwnedFd,
    token: Token,
    waits_for: Option<(bool, bool)>,
    pub phase: Phase,
    pub out: Outgoing,
    pub incoming: Incoming<Received>,
    /// Told to the program before any bytes of the stream's.
    told: VecDeque<Received>,
    /// Whom it calls, and its class by that.
    pub called: Called,
    pub class: usize,
    /// It waits its turn to be read.
    pub queued: bool,
    /// It was read to its end.
    read_ended: bool,
    /// Its program has been told that nothing follows.
    write_ended: bool,
    /// The socket takes no more at the moment.
    stuck: bool,
    /// By which address of this host it was connected, and for whom at the other site.
    pub behind: Option<(SocketAddr, SocketAddr)>,
}

/// That a socket works is the kernel's to say: where an option cannot be set, it goes on without.
fn best_effort<T>(_: rustix::io::Result<T>) {}

impl Stream {
    /// One of this socket.
    pub fn new(
        socket: OwnedFd,
        token: Token,
        phase: Phase,
        (out, room): (u64, u64),
        (called, class): (Called, usize),
    ) -> Self {
        best_effort(sockopt::set_tcp_nodelay(&socket, true));
        best_effort(sockopt::set_socket_keepalive(&socket, true));
        best_effort(sockopt::set_tcp_keepidle(&socket, SILENCE));
        best_effort(sockopt::set_tcp_keepintvl(&socket, STEP));
        best_effort(sockopt::set_tcp_keepcnt(&socket, STEPS));
        // however this process ends, its program sees a reset: only what ended in good order is closed in good order
        best_effort(sockopt::set_socket_linger(&socket, Some(Duration::ZERO)));
        Self {
            socket,
            token,
            waits_for: None,
            phase,
            out: Outgoing::new(out),
            incoming: Incoming::new(room),
            told: VecDeque::new(),
            called,
            class,
            queued: false,
            read_ended: false,
            write_ended: false,
            stuck: false,
            behind: None,
        }
    }

    /// Tells the program something before all that comes.
    pub fn tell(&mut self, bytes: Vec<u8>) {
        self.told.push_back(Received::plain(bytes));
    }

    /// The address by which its program is reached.
    pub fn near(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.socket).ok()?.try_into().ok()
    }

    /// Why it could not be connected, if it could not.
    pub fn joined(&self) -> Result<(), Reason> {
        match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) | Err(why) => Err(reason(why)),
        }
    }

    /// Whether it is to be read.
    pub fn can_be_read(&self) -> bool {
        self.phase == Phase::Open && !self.read_ended && self.out.room() > 0
    }

    /// Reads into `room`.
    pub fn read(&mut self, room: &mut [u8]) -> Got {
        let most = room.len().min(self.out.room().try_into().unwrap_or(usize::MAX));
        match rustix::net::recv(&self.socket, &mut room[..most], RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                self.read_ended = true;
                Got::End
            }
            Ok((got, _)) => Got::Bytes(got),
            Err(Errno::AGAIN | Errno::INTR) => Got::Nothing,
            Err(_) => Got::Lost,
        }
    }

    /// Whether the program takes no more at the moment.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Writes what there is. How many bytes of the stream's.
    ///
    /// # Errors
    /// It is lost.
    pub fn write(&mut self, mut done_with: impl FnMut(Vec<u8>)) -> Result<usize, Errno> {
        let mut written = 0;
        self.stuck = false;
        loop {
            let of_stream = self.told.is_empty();
            let queue = if of_stream { self.incoming.ready() } else { &mut self.told };
            let Some(piece) = queue.front_mut() else { break };
            let bytes = piece.bytes.get(piece.at..).unwrap_or_default();
            match rustix::net::send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(some) => {
                    written += if of_stream { some } else { 0 };
                    piece.at += some;
                    if piece.is_empty() {
                        queue.pop_front().into_iter().for_each(|piece| done_with(piece.bytes));
                    }
                }
                Err(Errno::AGAIN) => {
                    self.stuck = true;
                    break;
                }
                Err(Errno::INTR) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(written)
    }

    /// Tells the program that nothing follows, if that is so.
    pub fn end_if_over(&mut self) {
        if self.incoming.is_over() && !self.write_ended && self.phase == Phase::Open {
            self.write_ended = true;
            best_effort(rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write));
        }
    }

    /// Whether both directions have ended.
    pub fn is_over(&self) -> bool {
        self.write_ended && self.read_ended && self.out.is_over()
    }

    /// Waits for what it needs.
    pub fn watch(&mut self, poll: &Poll) {
        let write = self.stuck || self.phase == Phase::Joining;
        let read = self.can_be_read() && !self.queued;
        // asked: whether the program gives up is heard of all the same
        let wanted = (write || read || self.phase == Phase::Asked).then_some((read, write));
        if wanted != self.waits_for
            && poll.set(self.socket.as_fd(), self.token, self.waits_for, wanted).is_ok()
        {
            self.waits_for = wanted;
        }
    }

    /// It is over for both directions whether or not they have ended: nobody is to wait for it any more.
    pub fn forget(&mut self, poll: &Poll) {
        if poll.set(self.socket.as_fd(), self.token, self.waits_for, None).is_ok() {
            self.waits_for = None;
        }
    }

    /// Its program is to see an end, not a reset, when this goes.
    pub fn close_well(&self) {
        best_effort(sockopt::set_socket_linger(&self.socket, None));
    }
}

/// Why a host was not reached, in the words of this protocol.
pub fn reason(why: Errno) -> Reason {
    match why {
        Errno::CONNREFUSED => Reason::Refused,
        Errno::TIMEDOUT => Reason::TimedOut,
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::HOSTDOWN => Reason::Unreachable,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL => Reason::Full,
        Errno::ACCESS | Errno::PERM => Reason::NotAllowed,
        _ => Reason::Reset,
    }
}
