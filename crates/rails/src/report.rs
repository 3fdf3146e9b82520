//! A process tells its launcher that it uses Polyrail.
//!
//! MPI launchers, resource managers and MPI libraries all have ways to end up on another transport without a word. So
//! `polyrail run` listens, names itself in [`VARIABLE`], and the provider sends one line per process when its first
//! endpoint opens. A job whose ranks did not all report has run on something else. When an endpoint closes, another line says
//! what went by it: a rank may open one and talk by other means.
//!
//! The value of [`VARIABLE`] is `TOKEN,ADDRESS[,ADDRESS...]`; the line is `polyrail TOKEN HOST PID RANK SIZE TEXT`, where
//! rank and size are `-` if the launcher did not tell, and the text of an endpoint that closes is `carried PEERS SENT RECEIVED RAILS`,
//! peers that it was connected with and bytes. The token keeps strangers from speaking for a rank.

use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The environment variable that says where to report; unset when nobody listens.
pub const VARIABLE: &str = "POLYRAIL_REPORT";

/// The longest line, in bytes, newline included: what a listener needs to read.
pub const LINE_MAX: usize = 512;

/// How long a process may spend on all addresses of its launcher together.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where a launcher sets a rank's number and the size of its world: Hydra, Open MPI, Slurm.
const RANK_AND_SIZE: [(&str, &str); 3] = [
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

/// Tells the launcher named in the environment that this process uses Polyrail, and by what. Only the first call of a
/// process does anything; without a launcher that listens there is nothing to do. Blocks for at most a second.
///
/// # Errors
/// The launcher could not be reached, or [`VARIABLE`] is not one that a launcher makes. The job is none the worse for it,
/// except that its launcher will say that this process used something else.
pub fn report(what: &str) -> io::Result<()> {
    let mut outcome = Ok(());
    ONCE.call_once(|| {
        if let Ok(value) = std::env::var(VARIABLE) {
            outcome =
                Target::parse(&value).and_then(|target| target.send(&Report::of_this_process(what, None)));
            HEARD.store(outcome.is_ok(), Ordering::Relaxed);
        }
    });
    outcome
}

static ONCE: Once = Once::new();
/// Whether the launcher was reached the first time.
static HEARD: AtomicBool = AtomicBool::new(false);

/// Tells the same launcher what went by an endpoint that closes now, if it heard of its opening. Blocks for at most a second.
///
/// # Errors
/// The launcher could not be reached: it will count on what it knows.
pub fn report_end(carried: impl FnOnce() -> Carried) -> io::Result<()> {
    if !HEARD.load(Ordering::Relaxed) {
        return Ok(());
    }
    let Ok(value) = std::env::var(VARIABLE) else { return Ok(()) };
    Target::parse(&value)?.send(&Report::of_this_process("", Some(carried())))
}

/// What went by an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// How many peers it was connected with: that is done when the first message goes to one.
    pub peers: u64,
    /// Bytes sent and received by links that were still there, headers included, or copied directly.
    pub bytes: (u64, u64),
    /// Names of the rails of peers that were still there, joined by commas.
    pub rails: String,
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD} {} {} {} {}", self.peers, self.bytes.0, self.bytes.1, self.rails)
    }
}

/// What the text of an endpoint that closes begins with.
const WORD: &str = "carried";

impl Carried {
    /// What went by another endpoint of the same process is added.
    pub fn add(&mut self, other: &Self) {
        self.peers = self.peers.saturating_add(other.peers);
        self.bytes.0 = self.bytes.0.saturating_add(other.bytes.0);
        self.bytes.1 = self.bytes.1.saturating_add(other.bytes.1);
        // of several that carried something, those of the first that says
        if self.rails.is_empty() {
            self.rails.clone_from(&other.rails);
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        if words.next()? != WORD {
            return None;
        }
        let mut number = || words.next()?.parse().ok();
        let (peers, bytes) = (number()?, (number()?, number()?));
        Some(Self { peers, bytes, rails: words.next()?.into() })
    }
}

/// Where a launcher listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What proves that a line comes from this launcher's job: no white space, no comma.
    pub token: String,
    /// Where the launcher can be reached, best first.
    pub addresses: Vec<SocketAddr>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.token)?;
        self.addresses.iter().try_for_each(|address| write!(f, ",{address}"))
    }
}

impl Target {
    fn parse(value: &str) -> io::Result<Self> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{VARIABLE}: {why}"));
        let mut parts = value.split(',');
        let token = parts.next().filter(|token| !token.is_empty()).ok_or_else(|| wrong("no token"))?;
        let addresses = parts
            .map(|part| part.parse().map_err(|_| wrong("not an address and port")))
            .collect::<io::Result<Vec<SocketAddr>>>()?;
        if addresses.is_empty() {
            return Err(wrong("no address"));
        }
        Ok(Self { token: token.into(), addresses })
    }

    fn send(&self, report: &Report) -> io::Result<()> {
        let line = report.line(&self.token);
        let end = Instant::now() + PATIENCE;
        let mut outcome = Err(io::ErrorKind::NotConnected.into());
        for (i, address) in self.addresses.iter().enumerate() {
            // A fair share of what is left: an address behind a filter that drops must not use up the others' time.
            let left = end.saturating_duration_since(Instant::now()) / (self.addresses.len() - i) as u32;
            if left.is_zero() {
                break;
            }
            outcome = TcpStream::connect_timeout(address, left).and_then(|mut stream| {
                stream.set_write_timeout(Some(left))?;
                stream.write_all(line.as_bytes())
            });
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

/// What one process says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The name of its host.
    pub host: String,
    /// Its process id, as its host counts.
    pub pid: u32,
    /// Its rank in the job's first world, and how many ranks that has; `None` if the launcher did not tell it.
    pub rank: Option<(u32, u32)>,
    /// What it uses, for people.
    pub what: String,
    /// What went by an endpoint of its that has closed; none: one has opened.
    pub carried: Option<Carried>,
}

impl Report {
    fn of_this_process(what: &str, carried: Option<Carried>) -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse().ok();
        Self {
            host: crate::events::host_name(),
            pid: std::process::id(),
            rank: RANK_AND_SIZE.iter().find_map(|(rank, size)| Some((number(rank)?, number(size)?))),
            what: what.into(),
            carried,
        }
    }

    /// The line to send, newline included, at most [`LINE_MAX`] bytes.
    fn line(&self, token: &str) -> String {
        let (rank, size) =
            self.rank.map_or(("-".into(), "-".into()), |(rank, size)| (rank.to_string(), size.to_string()));
        let text = self.carried.as_ref().map_or_else(|| self.what.clone(), Carried::to_string);
        let mut line = format!("polyrail {token} {} {} {rank} {size} {text}", self.host, self.pid);
        line = line.replace(char::is_control, " ");
        while line.len() >= LINE_MAX {
            line.pop();
        }
        line.push('\n');
        line
    }

    /// What a received line says; `None` if it is no report of the job with this token.
    pub fn parse(line: &[u8], token: &str) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        if line.len() >= LINE_MAX || line.contains(char::is_control) {
            return None;
        }
        let mut words = line.splitn(7, ' ');
        if words.next()? != "polyrail" || words.next()? != token {
            return None;
        }
        let (host, pid) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let rank = match (words.next()?, words.next()?) {
            ("-", "-") => None,
            (rank, size) => {
                let (rank, size): (u32, u32) = (rank.parse().ok()?, size.parse().ok()?);
                if rank >= size {
                    return None;
                }
                Some((rank, size))
            }
        };
        let text = words.next()?;
        let carried = Carried::parse(text);
        let what = if carried.is_some() { String::new() } else { text.into() };
        Some(Self { host, pid, rank, what, carried })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn sample() -> Report {
        let what = "shm, tcp on eth0".into();
        Report { host: "node7".into(), pid: 42, rank: Some((3, 4)), what, carried: None }
    }

    #[test]
    fn a_line_says_what_went_by_an_endpoint() {
        let carried = Some(Carried { peers: 3, bytes: (1 << 40, 7), rails: "shm, tcp".into() });
        let report = Report { what: String::new(), carried, ..sample() };
        assert_eq!(report.line("t0k"), "polyrail t0k node7 42 3 4 carried 3 1099511627776 7 shm, tcp\n");
        let nothing = Report { carried: Some(Carried::default()), ..report.clone() };
        for report in [report, nothing] {
            assert_eq!(Report::parse(report.line("t0k").as_bytes(), "t0k"), Some(report));
        }
        // not one of these, so it is for people
        for text in ["carried", "carried 1 2 x shm", "carried -1 2 3 shm", "carrieds 1 2 3 shm"] {
            let line = format!("polyrail t0k node7 42 3 4 {text}\n");
            let parsed = Report::parse(line.as_bytes(), "t0k").unwrap();
            assert_eq!((parsed.what.as_str(), parsed.carried), (text, None));
        }
    }

    #[test]
    fn a_line_says_what_was_reported() {
        assert_eq!(sample().line("t0k"), "polyrail t0k node7 42 3 4 shm, tcp on eth0\n");
        for report in [sample(), Report { rank: None, what: String::new(), ..sample() }] {
            assert_eq!(Report::parse(report.line("t0k").as_bytes(), "t0k"), Some(report));
        }
    }

    #[test]
    fn lines_are_bounded_and_printable() {
        let report = Report { what: "ü\x1b[31m\n".repeat(200), ..sample() };
        let line = report.line("t0k");
        assert!(line.len() <= LINE_MAX && Report::parse(line.as_bytes(), "t0k").is_some());
    }

    #[test]
    fn what_is_no_report_is_refused() {
        for line in [
            &b"polyrail other node7 42 3 4 x\n"[..],
            b"polyrail t0k node7 42 3 4 x",
            b"polyrail t0k node7 42 3 -\n",
            b"polyrail t0k node7 42 4 4 x\n",
            b"polyrail t0k node7 -1 3 4 x\n",
            b"polyrail t0k node7 42 3 4 \x1b[2J\n",
            b"polyrail t0k no\xffde 42 3 4 x\n",
            b"GET / HTTP/1.0\n",
            b"\n",
            b"",
        ] {
            assert_eq!(Report::parse(line, "t0k"), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn a_target_survives_the_environment() {
        let target = Target {
            token: "t0k".into(),
            addresses: ["10.0.0.1:4000", "[fd00::1]:4000"].map(|a| a.parse().unwrap()).into(),
        };
        assert_eq!(Target::parse(&target.to_string()).unwrap(), target);
        for wrong in ["", ",10.0.0.1:4000", "t0k", "t0k,", "t0k,host:1", "t0k,10.0.0.1:4000,", "t0k,10.0.0.1"]
        {
            assert!(Target::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn it_reaches_the_first_address_that_answers() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = vec![closed, listener.local_addr().unwrap()];
        Target { token: "t0k".into(), addresses }.send(&sample()).unwrap();
        let mut line = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut line).unwrap();
        assert_eq!(Report::parse(&line, "t0k"), Some(sample()));
    }

    #[test]
    fn nobody_listening_is_an_error_and_no_hang() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let start = Instant::now();
        assert!(Target { token: "t0k".into(), addresses: vec![closed; 3] }.send(&sample()).is_err());
        assert!(start.elapsed() < 20 * PATIENCE);
    }
}
