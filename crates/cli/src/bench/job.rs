//! What the measuring side asks of its partner, and both sides' part in it.
//!
//! The asking travels as active messages, which an endpoint that knows nothing of measuring throws away; an MPI rank whose
//! address somebody measures by mistake never sees a message that it did not expect.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use polyrail_rails::mailbox::{Done, Mailbox};
use polyrail_rails::{Issued, PeerIdx, Refused};

use super::error::Error;

/// Active messages to the partner, and back.
pub const ASK: u16 = 0x6265;
pub const ANSWER: u16 = 0x6266;
const VERSION: u64 = 1;
const TAG: u64 = 0x706f_6c79;

/// How long one side waits for the other while nothing moves.
const PATIENCE: Duration = Duration::from_secs(20);

/// What two processes do with messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A message goes to and fro.
    PingPong,
    /// Messages go one way, a window of them at a time, and each window is acknowledged.
    Stream {
        /// Messages in a window.
        window: usize,
    },
}

/// One timed stretch of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub pattern: Pattern,
    /// Bytes of a message.
    pub size: usize,
    /// Round trips, or windows.
    pub rounds: u64,
}

impl Job {
    /// Longest message, in bytes.
    pub const SIZE_MAX: usize = 1 << 30;
    /// Most messages in a window.
    pub const WINDOW_MAX: usize = 256;
    /// Most bytes in a window of several messages.
    const WINDOW_BYTES: usize = 256 << 20;
    const LEN: usize = 32;

    /// As it travels.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let window = match self.pattern {
            Pattern::PingPong => 0,
            Pattern::Stream { window } => window as u64,
        };
        let mut bytes = [0; Self::LEN];
        for (to, word) in bytes.chunks_exact_mut(8).zip([VERSION, window, self.size as u64, self.rounds]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads what a partner was asked; the error goes back to who asked.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let bytes: [u8; Self::LEN] =
            bytes.try_into().map_err(|_| "not a request of this version".to_owned())?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[8 * at + i]));
        if word(0) != VERSION {
            return Err(format!("a request of version {}; this polyrail knows version {VERSION}", word(0)));
        }
        let within = |value: u64, most: usize| usize::try_from(value).ok().filter(|value| *value <= most);
        let window = within(word(1), Self::WINDOW_MAX).ok_or("too many messages in a window")?;
        let size = within(word(2), Self::SIZE_MAX).ok_or("messages that are too long")?;
        if window > 1 && window * size > Self::WINDOW_BYTES {
            return Err("a window of too many bytes".into());
        }
        let pattern = if window == 0 { Pattern::PingPong } else { Pattern::Stream { window } };
        Ok(Self { pattern, size, rounds: word(3) })
    }

    /// A window for messages of this size: many short ones, two of the longest.
    pub fn window_for(size: usize) -> usize {
        ((16 << 20) / size.max(1)).clamp(2, 64).min((Self::WINDOW_BYTES / size.max(1)).max(1))
    }
}

/// Takes the active messages with this number out of a mailbox.
pub fn listen(mailbox: &mut Mailbox, id: u16) -> Receiver<(PeerIdx, Vec<u8>)> {
    let (send, receive) = mpsc::channel();
    let taken = move |from, _: &[u8], bytes: &[u8]| {
        // nobody listens any more: then nobody needs it
        let _ = send.send((from, bytes.to_vec()));
    };
    mailbox.on_active(id, Box::new(taken));
    receive
}

/// Sends a short active message, connecting first if need be.
pub fn tell(mailbox: &mut Mailbox, to: PeerIdx, id: u16, bytes: &[u8]) -> Result<(), Error> {
    let mut patience = Patience::new();
    loop {
        match mailbox.send_active(to, id, bytes) {
            Ok(()) => return Ok(()),
            Err(Refused::Gone) => return Err(Error::lost(mailbox, to)),
            Err(Refused::Again) if mailbox.progress() > 0 => patience = Patience::new(),
            Err(Refused::Again) if patience.over() => return Err(Error::Silent(PATIENCE)),
            Err(Refused::Again) => {}
        }
    }
}

/// Notices when nothing has happened for too long, without asking the clock each time.
struct Patience {
    tries: u32,
    end: Option<Instant>,
}

impl Patience {
    fn new() -> Self {
        Self { tries: 0, end: None }
    }

    fn over(&mut self) -> bool {
        self.tries = self.tries.wrapping_add(1);
        if !self.tries.is_multiple_of(1 << 14) {
            return false;
        }
        Instant::now() >= *self.end.get_or_insert_with(|| Instant::now() + PATIENCE)
    }
}

/// One side of a job: its buffers, and the ends that nobody has waited for yet.
pub struct Side<'a> {
    mailbox: &'a mut Mailbox,
    peer: PeerIdx,
    job: Job,
    message: Arc<[u8]>,
    /// Room for what comes in, while nothing does.
    pool: Vec<Vec<u8>>,
    sent: u64,
    received: u64,
}

impl<'a> Side<'a> {
    pub fn new(mailbox: &'a mut Mailbox, peer: PeerIdx, job: Job) -> Self {
        let message = vec![1; job.size].into();
        Self { mailbox, peer, job, message, pool: Vec::new(), sent: 0, received: 0 }
    }

    /// The measuring side's part. Call it when the partner is ready; how long it took.
    pub fn lead(mut self) -> Result<Duration, Error> {
        let begun = Instant::now();
        for _ in 0..self.job.rounds {
            match self.job.pattern {
                Pattern::PingPong => {
                    self.post(self.job.size);
                    let sent = self.send_message()?;
                    self.wait(sent, 1)?;
                }
                Pattern::Stream { window } => {
                    self.post(0);
                    let mut sent = 0;
                    for _ in 0..window {
                        sent += self.send_message()?;
                    }
                    self.wait(sent, 1)?;
                }
            }
        }
        Ok(begun.elapsed())
    }

    /// Posts the partner's first receives, so that nothing comes unexpected.
    pub fn prepare(&mut self) {
        if self.job.rounds > 0 {
            self.post_round();
        }
    }

    fn post_round(&mut self) {
        let messages = match self.job.pattern {
            Pattern::PingPong => 1,
            Pattern::Stream { window } => window,
        };
        (0..messages).for_each(|_| self.post(self.job.size));
    }

    /// The partner's part, after [`Side::prepare`] and after it has said that it is ready.
    pub fn follow(mut self) -> Result<(), Error> {
        let none: Arc<[u8]> = Arc::from([]);
        for round in 1..=self.job.rounds {
            let (messages, reply) = match self.job.pattern {
                Pattern::PingPong => (1, self.message.clone()),
                Pattern::Stream { window } => (window as u64, none.clone()),
            };
            self.wait(0, messages)?;
            if round < self.job.rounds {
                self.post_round();
            }
            let sent = self.send(&reply)?;
            self.wait(sent, 0)?;
        }
        Ok(())
    }

    /// Sends the peer an active message.
    pub fn say(&mut self, id: u16, bytes: &[u8]) -> Result<(), Error> {
        tell(self.mailbox, self.peer, id, bytes)
    }

    fn post(&mut self, len: usize) {
        let mut buffer = self.pool.pop().unwrap_or_default();
        buffer.resize(len, 0);
        self.mailbox.recv(Some(self.peer), TAG, buffer);
    }

    fn send_message(&mut self) -> Result<u64, Error> {
        let message = self.message.clone();
        self.send(&message)
    }

    /// Sends; how many ends will follow.
    fn send(&mut self, bytes: &Arc<[u8]>) -> Result<u64, Error> {
        loop {
            match self.mailbox.send(self.peer, TAG, bytes) {
                Ok(issued) => return Ok(u64::from(issued != Issued::Done)),
                Err(Refused::Again) => self.progress().map(drop)?,
                Err(Refused::Gone) => return Err(Error::lost(self.mailbox, self.peer)),
            }
        }
    }

    fn progress(&mut self) -> Result<usize, Error> {
        let moved = self.mailbox.progress();
        while let Some(done) = self.mailbox.next_done() {
            match done {
                Done::Sent { outcome: Ok(()), .. } => self.sent += 1,
                Done::Received { buffer, outcome: Ok(_), .. } => {
                    self.received += 1;
                    self.pool.push(buffer);
                }
                Done::Sent { outcome: Err(_), .. } | Done::Received { outcome: Err(_), .. } => {
                    return Err(Error::lost(self.mailbox, self.peer));
                }
            }
        }
        Ok(moved)
    }

    fn wait(&mut self, sent: u64, received: u64) -> Result<(), Error> {
        let mut patience = Patience::new();
        while self.sent < sent || self.received < received {
            if self.progress()? > 0 {
                patience = Patience::new();
            } else if patience.over() {
                return Err(Error::Silent(PATIENCE));
            }
        }
        self.sent -= sent;
        self.received -= received;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_travel_as_they_are() {
        for pattern in [Pattern::PingPong, Pattern::Stream { window: 64 }] {
            let job = Job { pattern, size: 8, rounds: 1000 };
            assert_eq!(Job::parse(&job.to_bytes()), Ok(job));
        }
    }

    #[test]
    fn jobs_that_ask_too_much_are_refused() {
        let good = Job { pattern: Pattern::Stream { window: 2 }, size: 64, rounds: 1 };
        let refused = |job: Job| Job::parse(&job.to_bytes()).unwrap_err();
        assert!(refused(Job { size: Job::SIZE_MAX + 1, ..good }).contains("too long"));
        assert!(refused(Job { pattern: Pattern::Stream { window: 257 }, ..good }).contains("window"));
        assert!(refused(Job { size: Job::SIZE_MAX, ..good }).contains("bytes"));
        assert!(Job::parse(b"GET / HTTP/1.0").is_err());
        let mut later = good.to_bytes();
        later[0] = 2;
        assert!(Job::parse(&later).unwrap_err().contains("version 2"));
    }

    #[test]
    fn windows_fit_what_a_partner_takes() {
        for size in (0..=30).map(|power| 1 << power).chain([0]) {
            let pattern = Pattern::Stream { window: Job::window_for(size) };
            assert!(Job::parse(&Job { pattern, size, rounds: 1 }.to_bytes()).is_ok(), "{size}");
        }
        assert_eq!((Job::window_for(8), Job::window_for(64 << 20)), (64, 2));
    }
}
