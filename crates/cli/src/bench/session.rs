//! The measuring side: a connection to a partner, and what is measured over it.

use std::io::{BufRead, BufReader};
use std::net::ToSocketAddrs;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use polyrail_rails::mailbox::Mailbox;
use polyrail_rails::worker::Worker;
use polyrail_rails::{Address, Config, PeerIdx, named};

use super::error::Error;
use super::job::{self, ANSWER, ASK, Job, Pattern, Side};
use super::partner::READY;
use crate::output;

/// How long a partner may take to answer the first request. Later it may be busy with another asker.
const FIRST_ANSWER: Duration = Duration::from_secs(3);
const LATER_ANSWER: Duration = Duration::from_secs(60);
/// How long a repetition should take: long against what disturbs it, short enough for many sizes.
const REPETITION: Duration = Duration::from_millis(50);

/// Where a peer is, as people write it: the text of an address, or `HOST:PORT` of a named endpoint.
fn peer_address(text: &str) -> Result<Address, Error> {
    let wrong = |why: String| Error::Peer { text: text.into(), why };
    if text.starts_with("polyrail:") {
        return text.parse().map_err(|why: polyrail_rails::AddressError| wrong(why.to_string()));
    }
    let mut found = text.to_socket_addrs().map_err(|why| wrong(format!("{why} (expected HOST:PORT)")))?;
    let at = found.next().ok_or_else(|| wrong("no address belongs to this name".into()))?;
    if let Some(note) = make_secret()? {
        output::tell!("{note}");
    }
    Ok(named::named_address(at)?)
}

/// Makes the user's secret where named endpoints need one and there is none; what to tell then, since MPI jobs prove it from then on, too.
pub fn make_secret() -> Result<Option<String>, Error> {
    Ok(named::make_secret_if_none()?.map(|path| {
        format!(
            "made the user's secret, {}: copy it to all other hosts, whose ranks and this host's refuse each other until they have it, too",
            path.display()
        )
    }))
}

/// Connects to the peer that is written so.
///
/// # Errors
/// It cannot be reached; among the reasons are those that a user can do something about.
pub fn connect(text: &str) -> Result<Session, Error> {
    let is_named = !text.starts_with("polyrail:");
    Session::connect(&peer_address(text)?).map_err(|error| match error {
        Error::Lost(why) if is_named => Error::Unreachable(why),
        other => other,
    })
}

/// A partner, and the way to it.
pub struct Session {
    mailbox: Mailbox,
    peer: PeerIdx,
    answers: Receiver<(PeerIdx, Vec<u8>)>,
    answered: bool,
    /// The second process, when it is ours.
    second: Option<Second>,
    address: Address,
}

/// A process of ours, which ends when its standard input does.
struct Second(Child);

impl Drop for Second {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Session {
    /// Connects to an endpoint; whether it is a partner shows at the first job.
    fn connect(address: &Address) -> Result<Self, Error> {
        let mut mailbox = Mailbox::open(Config::from_env()?)?;
        let peer = mailbox.peer(&address.to_bytes())?;
        let answers = job::listen(&mut mailbox, ANSWER);
        // a job of no rounds: who understands it does nothing
        let nothing = Job { pattern: Pattern::PingPong, size: 0, rounds: 0 };
        job::tell(&mut mailbox, peer, ASK, &nothing.to_bytes())?;
        Ok(Self { mailbox, peer, answers, answered: false, second: None, address: *address })
    }

    /// Starts this program a second time on this host, and connects to it.
    pub fn second() -> Result<Self, Error> {
        let exe = std::env::current_exe().map_err(Error::Second)?;
        let child = Command::new(exe)
            .args(["bench", "--second"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::Second)?;
        let mut second = Second(child);
        let mut line = String::new();
        if let Some(stdout) = second.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(Error::Second)?;
        }
        let address = line.trim().parse().map_err(|_| Error::SecondEnded)?;
        let mut session = Self::connect(&address)?;
        session.second = Some(second);
        Ok(session)
    }

    /// Which rail is used, and why.
    pub fn worker(&self) -> &Worker {
        self.mailbox.worker()
    }

    /// The partner's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The partner.
    pub fn peer(&self) -> PeerIdx {
        self.peer
    }

    /// Waits for the answer to the request that comes with a connection.
    ///
    /// # Errors
    /// [`Error::NoPartner`] when none comes.
    pub fn greet(&mut self) -> Result<(), Error> {
        if self.answered {
            return Ok(());
        }
        self.await_answer(FIRST_ANSWER)?;
        self.answered = true;
        Ok(())
    }

    /// Does a job together with the partner; how long it took.
    pub fn run(&mut self, job: Job) -> Result<Duration, Error> {
        self.greet()?;
        job::tell(&mut self.mailbox, self.peer, ASK, &job.to_bytes())?;
        self.await_answer(LATER_ANSWER)?;
        Side::new(&mut self.mailbox, self.peer, job).lead()
    }

    fn await_answer(&mut self, patience: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + patience;
        loop {
            self.mailbox.progress();
            match self.answers.try_recv() {
                Ok((_, answer)) if answer == READY => return Ok(()),
                Ok((_, answer)) => return Err(Error::Refused(String::from_utf8_lossy(&answer).into_owned())),
                Err(_) if !self.worker().is_connected(self.peer) => {
                    return Err(Error::lost(&self.mailbox, self.peer));
                }
                Err(_) if Instant::now() > deadline && !self.answered => return Err(Error::NoPartner),
                Err(_) if Instant::now() > deadline => return Err(Error::Silent(patience)),
                Err(_) => {}
            }
        }
    }

    /// Repeats a job of this kind; seconds per round of each repetition, and how many rounds each had. What comes before, to
    /// find out how many rounds are a repetition, warms up.
    pub fn measure(
        &mut self,
        pattern: Pattern,
        size: usize,
        repetitions: usize,
    ) -> Result<(Vec<f64>, u64), Error> {
        let mut rounds = 1;
        loop {
            let took = self.run(Job { pattern, size, rounds })?;
            if took >= REPETITION / 5 {
                let one = took.as_secs_f64() / rounds as f64;
                rounds = ((REPETITION.as_secs_f64() / one) as u64).max(1);
                break;
            }
            rounds *= 4;
        }
        let seconds = |took: Duration| took.as_secs_f64() / rounds as f64;
        let all: Result<Vec<f64>, Error> =
            (0..repetitions).map(|_| self.run(Job { pattern, size, rounds }).map(seconds)).collect();
        Ok((all?, rounds))
    }
}
