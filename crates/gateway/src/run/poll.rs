//! Which descriptors are waited for: epoll(7), level-triggered.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

/// Who a descriptor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// A place where programs call.
    Door(usize),
    /// A connection of which is not known yet what it wants.
    Caller(u64),
    /// The endpoint of the session to a site.
    Trunk(usize),
    /// A stream of it.
    Stream(usize, u64),
    /// What ends the gateway.
    Stop,
    /// What has it read its file anew.
    Reload,
    /// Something was found out by a thread.
    Wake,
}

/// Numbers of streams and callers in what epoll remembers.
const NUMBER: u64 = (1 << 48) - 1;

impl Token {
    fn data(self) -> u64 {
        match self {
            Self::Door(door) => door as u64,
            Self::Caller(caller) => 1 << 60 | caller & NUMBER,
            Self::Trunk(trunk) => 2 << 60 | trunk as u64,
            Self::Stream(trunk, stream) => 3 << 60 | (trunk as u64) << 48 | stream & NUMBER,
            Self::Stop => 4 << 60,
            Self::Reload => 5 << 60,
            Self::Wake => 6 << 60,
        }
    }

    fn of(data: u64) -> Self {
        let number = data & NUMBER;
        match data >> 60 {
            0 => Self::Door(number as usize),
            1 => Self::Caller(number),
            2 => Self::Trunk(number as usize),
            3 => Self::Stream((data >> 48 & 0xfff) as usize, number),
            4 => Self::Stop,
            5 => Self::Reload,
            _ => Self::Wake,
        }
    }
}

/// What happened to a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// There is something to read, or the end of it.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// It is over: an error, or both directions ended.
    pub over: bool,
}

/// The set of descriptors.
pub struct Poll {
    epoll: OwnedFd,
    wake: OwnedFd,
    room: Vec<epoll::Event>,
}

impl Poll {
    /// An empty one.
    pub fn new() -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let poll = Self { epoll, wake, room: Vec::with_capacity(256) };
        poll.set(poll.wake.as_fd(), Token::Wake, None, Some((true, false)))?;
        Ok(poll)
    }

    /// What wakes who waits.
    pub fn waker(&self) -> rustix::io::Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(&self.wake, 0)
    }

    /// Waits for other things than before (to read, to write; none: for nothing) of a descriptor.
    pub fn set(
        &self,
        fd: BorrowedFd<'_>,
        token: Token,
        before: Option<(bool, bool)>,
        now: Option<(bool, bool)>,
    ) -> rustix::io::Result<()> {
        let flags = |(read, write): (bool, bool)| {
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, read);
            flags.set(EventFlags::OUT, write);
            flags
        };
        let data = EventData::new_u64(token.data());
        match (before, now) {
            (None, Some(wanted)) => epoll::add(&self.epoll, fd, data, flags(wanted)),
            (Some(old), Some(wanted)) if old != wanted => epoll::modify(&self.epoll, fd, data, flags(wanted)),
            (Some(_), None) => epoll::delete(&self.epoll, fd),
            _ => Ok(()),
        }
    }

    /// Waits for the first of them, at most so long (none: for ever), and says which.
    pub fn wait(
        &mut self,
        most: Option<Duration>,
        found: &mut Vec<(Token, Ready)>,
    ) -> rustix::io::Result<()> {
        // rounded up, so that what is due is not waited for in vain many times
        let most =
            most.map(|most| Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() });
        self.room.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.room), most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
        found.clear();
        for event in &self.room {
            let (flags, token) = (event.flags, Token::of(event.data.u64()));
            if token == Token::Wake {
                let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
            }
            let over = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            found.push((
                token,
                Ready {
                    readable: flags.contains(EventFlags::IN),
                    writable: flags.contains(EventFlags::OUT),
                    over,
                },
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        let all = [
            Token::Door(3),
            Token::Caller(7 << 40),
            Token::Trunk(4),
            Token::Stream(11, 1 << 47 | 5),
            Token::Stop,
            Token::Reload,
            Token::Wake,
        ];
        for token in all {
            assert_eq!(Token::of(token.data()), token);
        }
    }
}
