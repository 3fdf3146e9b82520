//! Where a run can be joined, told to whoever asks at a host and port that all know: an endpoint beside the run's, whose key is derived from the user's secret.
//!
//! It listens on all interfaces, whichever the run is to use: those who start processes name hosts as they know them, by a network for this purpose often.

use crate::error::Error;
use crate::pause::Pause;
use crate::view::ADDRESS;
use polyrail_rails::Config;
use polyrail_rails::mailbox::Mailbox;
use polyrail_rails::named::named_address;
use polyrail_rails::worker::Refused;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The active message that asks (for a run), and that answers (with an address, or without bytes: there is another run).
const ASK: u16 = 2;
/// Bytes of what a run is asked for by, at most.
const RUN: usize = 256;
/// Who asks and was not answered yet, at most.
const ASKED: usize = 1 << 12;
/// The longest sleep of who waits.
const SLEEP: Duration = Duration::from_millis(50);
/// Between two questions, and two looks whether somebody listens.
const AGAIN: Duration = Duration::from_millis(200);
/// How long one look may take.
const LOOK: Duration = Duration::from_secs(5);

/// It is asked for as long as this lives.
pub(crate) struct Board {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Board {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // it ends within a turn; a panic of it was told of
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The settings of a run's endpoint, without those that say where it is reached.
fn beside(rails: &Config) -> Config {
    Config { interfaces: Config::default().interfaces, key: None, named: None, port: 0, ..rails.clone() }
}

impl Board {
    /// Answers at this port with this address, to those who ask for this run.
    ///
    /// # Errors
    /// The port is another's; there is no secret.
    pub(crate) fn open(
        rails: &Config,
        port: u16,
        run: String,
        address: [u8; ADDRESS],
    ) -> Result<Self, Error> {
        let at = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        let mut mailbox = Mailbox::open(beside(rails).listen_on(at))?;
        let (asks, asked) = sync_channel(ASKED);
        mailbox.on_active(
            ASK,
            Box::new(move |from, _, run| {
                match asks.try_send((from, run.get(..RUN).unwrap_or(run).to_vec())) {
                    // who has it forgotten asks again
                    Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
                }
            }),
        );
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let answer = move || {
            while !ends.load(Ordering::Relaxed) {
                let moved = mailbox.progress();
                while let Ok((from, asked_for)) = asked.try_recv() {
                    let answer: &[u8] = if asked_for == run.as_bytes() { &address } else { &[] };
                    // who cannot be answered now asks again, and who is gone does not
                    let _ = mailbox.send_active(from, ASK, answer);
                }
                if moved == 0 {
                    mailbox.sleep(SLEEP);
                }
            }
            mailbox.close(Duration::from_secs(1));
        };
        let thread = std::thread::Builder::new().name("polyrail-board".into()).spawn(answer);
        let thread = thread.map_err(|error| Error::Use(format!("starting a thread: {error}")))?;
        Ok(Self { over, thread: Some(thread) })
    }
}

/// Asks at a host and port for a run, for so long.
///
/// # Errors
/// Nobody listens there, or does not prove the user's secret; there is another run, or this host has no secret.
pub(crate) fn ask(
    rails: &Config,
    pause: &Option<Pause>,
    (host, port): (&str, u16),
    run: &str,
    patience: Duration,
) -> Result<[u8; ADDRESS], Error> {
    let until = Instant::now() + patience;
    loop {
        let at = listens(host, port, until, pause)?;
        // the first has one by now: another that is made here would not be that
        if let Err(why) = polyrail_rails::named::proves_secret()? {
            return Err(Error::Meeting(format!(
                "processes that meet at {host}:{port} prove their user's secret, and {why}; each host needs the first one's, as docs/run.md has it"
            )));
        }
        match ask_at(at, rails, pause, run, until)? {
            Ok(address) => return Ok(address),
            Err(why) if Instant::now() > until => {
                return Err(Error::Meeting(format!(
                    "the first process does not answer at {host}:{port}: {why}"
                )));
            }
            // it may have been started again
            Err(_) => std::thread::sleep(AGAIN),
        }
    }
}

/// Asks once; within: why it is gone.
fn ask_at(
    at: SocketAddr,
    rails: &Config,
    pause: &Option<Pause>,
    run: &str,
    until: Instant,
) -> Result<Result<[u8; ADDRESS], String>, Error> {
    let mut mailbox = Mailbox::open(beside(rails))?;
    let (says, said) = sync_channel(1);
    let peer = mailbox.peer(&named_address(at)?.to_bytes())?;
    mailbox.on_active(
        ASK,
        Box::new(move |from, _, bytes| {
            if from == peer {
                // the first answer is as good as a second
                let _ = says.try_send(bytes.try_into().ok());
            }
        }),
    );
    let gone =
        |mailbox: &Mailbox| mailbox.worker().why(peer).unwrap_or("its connection has ended").to_owned();
    let mut asked: Option<Instant> = None;
    let mut paused = Instant::now();
    loop {
        Pause::ask(pause, &mut paused)?;
        let moved = mailbox.progress();
        if let Ok(answer) = said.try_recv() {
            mailbox.close(Duration::from_secs(1));
            return match answer {
                Some(address) => Ok(Ok(address)),
                None => Err(Error::Meeting(format!(
                    "another run is at {at} than {run:?}; POLYRAIL_MEET with another port has this one meet elsewhere"
                ))),
            };
        }
        if asked.is_none_or(|asked| asked.elapsed() > AGAIN) {
            match mailbox.send_active(peer, ASK, run.as_bytes()) {
                Ok(()) => asked = Some(Instant::now()),
                Err(Refused::Again) => {}
                Err(Refused::Gone) => return Ok(Err(gone(&mailbox))),
            }
        }
        if Instant::now() > until {
            return Ok(Err("nothing comes".into()));
        }
        if moved == 0 {
            mailbox.sleep(SLEEP);
        }
    }
}

/// Waits until somebody listens there. Names may become known late, as those of pods do.
fn listens(host: &str, port: u16, until: Instant, pause: &Option<Pause>) -> Result<SocketAddr, Error> {
    let mut paused = Instant::now();
    loop {
        Pause::ask(pause, &mut paused)?;
        let why = match (host, port).to_socket_addrs() {
            Err(error) => error.to_string(),
            Ok(all) => {
                let mut why = "the name has no address".to_owned();
                for at in all {
                    match TcpStream::connect_timeout(&at, LOOK) {
                        Ok(_) => return Ok(at),
                        Err(error) => why = format!("{at}: {error}"),
                    }
                }
                why
            }
        };
        if Instant::now() > until {
            return Err(Error::Meeting(format!("the first process does not listen at {host}:{port}: {why}")));
        }
        std::thread::sleep(AGAIN);
    }
}
