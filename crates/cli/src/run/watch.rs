//! Counts the ranks that use Polyrail.
//!
//! The provider in each rank sends one line here when it opens its first endpoint (`polyrail_rails::report`). A rank
//! that did not is one whose messages went some other way, which the user must learn.

use std::collections::HashSet;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyrail_rails::report::{LINE_MAX, Report, Target};

use super::environment::Provider;
use super::mpiexec::Family;

/// How long one connection may take for its line: longer than a rank tries to say it.
const LINE_TIME: Duration = Duration::from_secs(2);

/// How many addresses of this machine ranks are told at most.
const ADDRESSES_MAX: usize = 8;

/// How many ranks that used something else are named.
const NAMED: usize = 16;

/// Receives reports while a job runs.
pub struct Listener {
    target: Target,
    /// Closed to say that the next connection is the last.
    stop: Sender<SocketAddr>,
    thread: JoinHandle<Vec<Report>>,
}

impl Listener {
    /// Starts to listen on a free port of every address that other hosts may reach.
    ///
    /// # Errors
    /// No port is free, or the kernel gives no random token.
    pub fn open() -> io::Result<Self> {
        let reachable = reachable_addresses();
        let listener = match reachable.iter().any(IpAddr::is_ipv6) {
            // takes IPv4 as well
            true => TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))?,
            false if reachable.is_empty() => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
            false => TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        };
        let port = listener.local_addr()?.port();
        let hosts = if reachable.is_empty() { vec![Ipv4Addr::LOCALHOST.into()] } else { reachable };
        let target = Target {
            token: random_token()?,
            addresses: hosts.into_iter().map(|host| SocketAddr::new(host, port)).collect(),
        };
        let token = target.token.clone();
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("reports".into())
            .spawn(move || collect(&listener, &token, &stopped))?;
        Ok(Self { target, stop, thread })
    }

    /// What ranks must know.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Ends listening; every report that was sent before is among them.
    pub fn finish(self) -> Vec<Report> {
        // Connections are accepted in order: when our own is, all earlier ones have been.
        let last = self
            .target
            .addresses
            .iter()
            .find_map(|address| TcpStream::connect_timeout(address, LINE_TIME).ok());
        if let Some(address) = last.as_ref().and_then(|stream| stream.local_addr().ok()) {
            let _ = self.stop.send(address);
            drop(last);
            return self.thread.join().unwrap_or_default();
        }
        // Our own port is out of reach (the network is being taken down): nothing more can come.
        Vec::new()
    }
}

fn collect(listener: &TcpListener, token: &str, stopped: &Receiver<SocketAddr>) -> Vec<Report> {
    let mut reports = Vec::new();
    let mut last = None;
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // no descriptor free, or a connection gone again: neither is worth a busy loop
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let peer = stream.peer_addr().ok();
        if let Some(line) = read_line(stream) {
            reports.extend(Report::parse(&line, token));
        }
        last = last.or_else(|| stopped.try_recv().ok());
        if last.is_some() && peer.map(canonical) == last.map(canonical) {
            break;
        }
    }
    reports
}

/// IPv4 comes in as a mapped address on an IPv6 socket.
fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

fn read_line(mut stream: TcpStream) -> Option<Vec<u8>> {
    let end = Instant::now() + LINE_TIME;
    let mut line = Vec::new();
    let mut buffer = [0; LINE_MAX];
    while line.last() != Some(&b'\n') && line.len() < LINE_MAX {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        stream.set_read_timeout(Some(left)).ok()?;
        match stream.read(&mut buffer[line.len()..]).ok()? {
            0 => return None,
            count => line.extend_from_slice(&buffer[line.len()..line.len() + count]),
        }
    }
    Some(line)
}

fn reachable_addresses() -> Vec<IpAddr> {
    let addresses = if_addrs::get_if_addrs().unwrap_or_default().into_iter();
    let usable = addresses.filter(|interface| !interface.is_loopback() && !interface.is_link_local());
    usable.map(|interface| interface.ip()).take(ADDRESSES_MAX).collect()
}

fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What the reports of a job say.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every rank used Polyrail.
    All,
    /// Some ranks did not; the numbers of the first of them, where launchers told ranks theirs.
    Some { reported: usize, expected: usize, missing: Vec<u32> },
    /// No rank did.
    None,
}

impl Verdict {
    /// Judges by the size of the world that ranks were told, else by how many ranks were asked for.
    pub fn of(reports: &[Report], asked: Option<u32>) -> Self {
        let size = reports.iter().filter_map(|report| report.rank).map(|(_, size)| size).max();
        let expected = size.or(asked).map_or(1, |size| size as usize);
        match reports.len() {
            0 => Self::None,
            // Programs may start further ranks while they run.
            reported if reported >= expected => Self::All,
            reported => {
                let seen: HashSet<u32> = reports.iter().filter_map(|report| Some(report.rank?.0)).collect();
                // a rank may claim any size
                let missing =
                    (0..size.unwrap_or(0)).filter(|rank| !seen.contains(rank)).take(NAMED).collect();
                Self::Some { reported, expected, missing }
            }
        }
    }
}

/// What to tell the user when not every rank used Polyrail.
pub fn warning(verdict: &Verdict, family: Family, provider: &Provider, port: u16) -> String {
    let who = match verdict {
        Verdict::All => return String::new(),
        Verdict::None => "no rank used Polyrail: the messages, if there were any, went some other way".into(),
        Verdict::Some { reported, expected, missing } => {
            let names = missing.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let names = if names.is_empty() { names } else { format!(" (not: {names})") };
            format!("only {reported} of {expected} ranks used Polyrail{names}")
        }
    };
    let look = match family {
        Family::Mpich => "MPIR_CVAR_DEBUG_SUMMARY=1 shows what it chose",
        Family::OpenMpi => "OMPI_MCA_opal_common_ofi_verbose=1 shows what it chose",
    };
    format!(
        "polyrail run: warning: {who}.\nLikely causes:\n\
        - the program ended before MPI_Init, or its MPI was already told otherwise on the command line;\n\
        - the launcher did not hand the environment on (see polyrail run --print-env {});\n\
        - {} is not there on every host, or does not load there (FI_LOG_LEVEL=warn says why);\n\
        - {family} chose something else ({look});\n\
        - hosts cannot reach port {port} of this machine, where their ranks report.",
        clap::ValueEnum::to_possible_value(&family)
            .map_or_else(String::new, |value| value.get_name().to_owned()),
        provider.file().display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn report(rank: Option<(u32, u32)>) -> Report {
        Report { host: "node1".into(), pid: 1, rank, what: "shm".into() }
    }

    /// Ranks in the world that the lines speak of.
    const WORLD: u32 = 300;

    fn line(token: &str, rank: u32) -> String {
        format!("polyrail {token} node1 {rank} {rank} {WORLD} shm\n")
    }

    fn send(address: SocketAddr, bytes: &[u8]) {
        TcpStream::connect(address).unwrap().write_all(bytes).unwrap();
    }

    #[test]
    fn reports_of_the_job_are_collected_on_every_address() {
        let listener = Listener::open().unwrap();
        let Target { token, addresses } = listener.target().clone();
        for (rank, address) in addresses.iter().enumerate() {
            send(*address, line(&token, rank as u32).as_bytes());
        }
        let reports = listener.finish();
        assert_eq!(reports.len(), addresses.len());
        assert_eq!(reports[0].rank, Some((0, WORLD)));
    }

    #[test]
    fn strangers_neither_count_nor_block() {
        let listener = Listener::open().unwrap();
        let Target { token, addresses } = listener.target().clone();
        let silent = TcpStream::connect(addresses[0]).unwrap();
        send(addresses[0], line("guess", 0).as_bytes());
        send(addresses[0], &[b'x'; 4096]);
        send(addresses[0], b"");
        send(addresses[0], line(&token, 3).as_bytes());
        assert_eq!(listener.finish(), [Report { pid: 3, ..report(Some((3, WORLD))) }]);
        drop(silent);
    }

    #[test]
    fn a_line_may_come_in_pieces() {
        let listener = Listener::open().unwrap();
        let Target { token, addresses } = listener.target().clone();
        let line = line(&token, 1);
        let mut stream = TcpStream::connect(addresses[0]).unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in line.as_bytes().chunks(20) {
            stream.write_all(piece).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(listener.finish().len(), 1);
    }

    #[test]
    fn many_ranks_at_once() {
        let listener = Listener::open().unwrap();
        let Target { token, addresses } = listener.target().clone();
        let address = addresses[0];
        thread::scope(|scope| {
            for rank in 0..WORLD {
                let line = line(&token, rank);
                scope.spawn(move || send(address, line.as_bytes()));
            }
        });
        assert_eq!(listener.finish().len(), WORLD as usize);
    }

    #[test]
    fn the_verdict_counts_ranks() {
        let world = |ranks: &[u32]| ranks.iter().map(|rank| report(Some((*rank, 4)))).collect::<Vec<_>>();
        assert_eq!(Verdict::of(&world(&[0, 1, 2, 3]), Some(4)), Verdict::All);
        assert_eq!(Verdict::of(&world(&[0, 1, 2, 3]), None), Verdict::All);
        assert_eq!(
            Verdict::of(&world(&[0, 3]), Some(2)),
            Verdict::Some { reported: 2, expected: 4, missing: vec![1, 2] }
        );
        let claims = [report(Some((1, u32::MAX)))];
        let Verdict::Some { missing, .. } = Verdict::of(&claims, None) else { panic!("one of many") };
        assert_eq!(missing, [vec![0], (2..17).collect()].concat(), "whatever size a rank claims");
        assert_eq!(Verdict::of(&[], Some(4)), Verdict::None);
        let untold = [report(None)];
        assert_eq!(Verdict::of(&untold, Some(1)), Verdict::All);
        assert_eq!(Verdict::of(&untold, None), Verdict::All);
        assert_eq!(
            Verdict::of(&untold, Some(2)),
            Verdict::Some { reported: 1, expected: 2, missing: vec![] }
        );
    }
}
