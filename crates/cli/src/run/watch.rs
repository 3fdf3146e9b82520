//! Counts the ranks that use Polyrail.
//!
//! The provider in each rank sends one line here when it opens its first endpoint (`polyrail_rails::report`). A rank
//! that did not is one whose messages went some other way, which the user must learn.

use std::collections::{HashSet, VecDeque};
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use polyrail_rails::report::{LINE_MAX, Report, Target};
use polyrail_trace::units::bytes;

use super::environment::Provider;
use super::mpiexec::Family;

/// How long one connection may take for its line: far longer than a rank tries to say it, since its host may be busy.
const LINE_TIME: Duration = Duration::from_secs(10);

/// How many addresses of this machine ranks are told at most.
const ADDRESSES_MAX: usize = 8;

/// How many ranks that used something else are named.
const NAMED: usize = 16;

/// Most connections whose line is awaited; beyond that the oldest is dropped, since ranks say theirs at once.
const CALLERS_MAX: usize = 256;

/// How long the end may take, whoever is still connected.
const END_TIME: Duration = Duration::from_secs(2);

/// Receives reports while a job runs.
pub struct Listener {
    target: Target,
    /// Closed to wake who listens: the job is over.
    over: UnixStream,
    thread: JoinHandle<Vec<Report>>,
}

impl Listener {
    /// Starts to listen on a free port of every address that other hosts may reach.
    ///
    /// # Errors
    /// No port is free, or the kernel gives no random token.
    pub fn open() -> io::Result<Self> {
        let reachable = reachable_addresses();
        let socket = match reachable.iter().any(IpAddr::is_ipv6) {
            // takes IPv4 as well
            true => TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))?,
            false if reachable.is_empty() => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
            false => TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        };
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        let hosts = if reachable.is_empty() { vec![Ipv4Addr::LOCALHOST.into()] } else { reachable };
        let target = Target {
            token: random_token()?,
            addresses: hosts.into_iter().map(|host| SocketAddr::new(host, port)).collect(),
        };
        let token = target.token.clone();
        let (over, wakes) = UnixStream::pair()?;
        let collector = Collector { socket, wakes, token, callers: VecDeque::new(), reports: Vec::new() };
        let thread = thread::Builder::new().name("reports".into()).spawn(move || collector.collect())?;
        Ok(Self { target, over, thread })
    }

    /// What ranks must know.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Ends listening; every report that was sent before is among them, unless strangers were too many for it.
    pub fn finish(self) -> Vec<Report> {
        drop(self.over);
        self.thread.join().unwrap_or_default()
    }
}

/// A connection whose line is not complete.
struct Caller {
    stream: TcpStream,
    line: Vec<u8>,
    deadline: Instant,
}

impl Caller {
    /// Reads what there is. True: nothing more is to be read.
    fn read(&mut self) -> bool {
        let mut buffer = [0; LINE_MAX];
        loop {
            let room = LINE_MAX - self.line.len();
            match self.stream.read(&mut buffer[..room]) {
                Ok(0) => return true,
                Ok(count) => self.line.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
            if self.line.last() == Some(&b'\n') || self.line.len() == LINE_MAX {
                return true;
            }
        }
    }
}

/// What listens: to all that call at the same time.
struct Collector {
    socket: TcpListener,
    wakes: UnixStream,
    token: String,
    /// The oldest first.
    callers: VecDeque<Caller>,
    reports: Vec<Report>,
}

impl Collector {
    /// Listens until the job is over, all who had called by then are heard, and at most `END_TIME` more.
    fn collect(mut self) -> Vec<Report> {
        let mut end = None;
        loop {
            if self.wait(end) && end.is_none() {
                end = Some(Instant::now() + END_TIME);
            }
            let now = Instant::now();
            let all = self.accept(now);
            self.hear(now);
            if end.is_some_and(|at| at <= now || all && self.callers.is_empty()) {
                return self.reports;
            }
        }
    }

    /// Until something comes, a caller's time is over, or the end comes. Whether the job is over.
    fn wait(&self, end: Option<Instant>) -> bool {
        // the word of the end would be said again and again
        let next = self.callers.front().map(|oldest| oldest.deadline).into_iter().chain(end).min();
        let timeout = next.map_or(PollTimeout::NONE, |at| {
            let left = at.saturating_duration_since(Instant::now()).as_millis() + 1;
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = vec![readable(self.socket.as_fd())];
        fds.extend(self.callers.iter().map(|caller| readable(caller.stream.as_fd())));
        if end.is_none() {
            fds.push(readable(self.wakes.as_fd()));
        }
        if poll(&mut fds, timeout).is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        end.is_some() || fds.last().is_some_and(|wakes| wakes.any().unwrap_or_default())
    }

    /// Takes all that wait to be heard; false if some are left.
    fn accept(&mut self, now: Instant) -> bool {
        loop {
            match self.socket.accept() {
                Ok((stream, _)) => self.greet(stream, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                // a connection gone again; or no descriptor free, which one caller fewer mends
                Err(_) if self.callers.pop_front().is_some() => {}
                Err(_) => {
                    thread::sleep(Duration::from_millis(10));
                    return false;
                }
            }
        }
    }

    fn greet(&mut self, stream: TcpStream, now: Instant) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let mut caller = Caller { stream, line: Vec::new(), deadline: now + LINE_TIME };
        if caller.read() {
            note(&mut self.reports, Report::parse(&caller.line, &self.token));
            return;
        }
        if self.callers.len() == CALLERS_MAX {
            // some may have said theirs since
            self.hear(now);
        }
        if self.callers.len() == CALLERS_MAX {
            self.callers.pop_front();
        }
        self.callers.push_back(caller);
    }

    /// Reads what callers have said since, and drops those that take too long.
    fn hear(&mut self, now: Instant) {
        let Self { callers, reports, token, .. } = self;
        callers.retain_mut(|caller| {
            let over = caller.read();
            if over {
                note(reports, Report::parse(&caller.line, token));
            }
            !over && caller.deadline > now
        });
    }
}

/// Keeps a report; of all endpoints that a process closes one, since it may close any number.
fn note(reports: &mut Vec<Report>, report: Option<Report>) {
    let Some(report) = report else { return };
    let same = |known: &&mut Report| known.pid == report.pid && known.host == report.host;
    let known = reports.iter_mut().filter(same).find_map(|known| known.carried.as_mut());
    match (known, &report.carried) {
        (Some(known), Some(more)) => known.add(more),
        _ => reports.push(report),
    }
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
        let reports: Vec<&Report> = reports.iter().filter(|report| report.carried.is_none()).collect();
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

/// Whether nothing went by Polyrail though all had it: each of several processes that opened an endpoint has told what it carried,
/// and that was nothing.
pub fn carried_nothing(reports: &[Report]) -> bool {
    let process = |report: &Report| (report.host.clone(), report.pid);
    let opened: HashSet<_> = reports.iter().filter(|one| one.carried.is_none()).map(process).collect();
    let told: HashSet<_> = reports.iter().filter(|one| one.carried.is_some()).map(process).collect();
    opened.len() > 1
        && opened == told
        && reports.iter().filter_map(|report| report.carried.as_ref()).all(|carried| carried.peers == 0)
}

/// What to tell the user then; `instead` is what he has set because of which messages go some other way, or there are none.
pub fn nothing_carried(instead: Option<&str>) -> String {
    match instead {
        Some(why) => format!("polyrail run: warning: no message went by Polyrail: {why}"),
        None => "polyrail run: note: no message went by Polyrail; if the program sends any, they went some other way".into(),
    }
}

/// What a process has told, for people.
pub fn told(report: &Report) -> String {
    let rank = report.rank.map_or("?".into(), |(rank, _)| rank.to_string());
    let what = match &report.carried {
        None => report.what.clone(),
        Some(carried) if carried.peers == 0 => "carried nothing".into(),
        Some(carried) => {
            let by = if carried.rails.is_empty() { String::new() } else { format!(" by {}", carried.rails) };
            let (sent, received) = (bytes(carried.bytes.0 as f64), bytes(carried.bytes.1 as f64));
            let peers = if carried.peers == 1 { "peer" } else { "peers" };
            format!("{} {peers}{by}, {sent} sent, {received} received", carried.peers)
        }
    };
    format!("rank {rank} on {}: {what}", report.host)
}

/// What to tell the user when the launcher or the program failed before any rank came so far: why, they have said themselves.
pub fn nothing_began(launcher: &Path, code: u8) -> String {
    let launcher = launcher.file_name().unwrap_or(launcher.as_os_str()).display();
    format!(
        "polyrail run: {launcher} ended with status {code} before any rank used Polyrail; the reason is what it, or the program, says above."
    )
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
    use polyrail_rails::report::Carried;
    use std::io::Write;
    use std::sync::mpsc;

    fn report(rank: Option<(u32, u32)>) -> Report {
        Report { host: "node1".into(), pid: 1, rank, what: "shm".into(), carried: None }
    }

    #[test]
    fn what_endpoints_carried_is_told_by_each_process_and_counts_no_rank() {
        let opened = |pid| Report { pid, ..report(Some((pid, 2))) };
        let ended =
            |pid, peers| Report { carried: Some(Carried { peers, ..Carried::default() }), ..opened(pid) };
        assert_eq!(
            Verdict::of(&[opened(0), ended(0, 1)], Some(2)),
            Verdict::Some { reported: 1, expected: 2, missing: vec![1] }
        );
        assert!(carried_nothing(&[opened(0), opened(1), ended(1, 0), ended(0, 0)]));
        for reports in [
            &[opened(0), ended(0, 0)][..],
            &[opened(0), opened(1), ended(1, 0)],
            &[opened(0), opened(1), ended(1, 0), ended(0, 1)],
            &[],
        ] {
            assert!(!carried_nothing(reports), "{reports:?}");
        }
        // several endpoints of a process
        let mut kept = Vec::new();
        for report in [opened(0), opened(1), ended(1, 0), ended(1, 2), ended(1, 0), ended(0, 0)] {
            note(&mut kept, Some(report));
        }
        note(&mut kept, None);
        assert_eq!(kept, [opened(0), opened(1), ended(1, 2), ended(0, 0)]);
        assert!(!carried_nothing(&kept));
        assert_eq!(told(&ended(1, 0)), "rank 1 on node1: carried nothing");
        let carried = Some(Carried { peers: 3, bytes: (2_000_000, 5), rails: "shm, tcp".into() });
        assert_eq!(
            told(&Report { carried, ..opened(1) }),
            "rank 1 on node1: 3 peers by shm, tcp, 2 MB sent, 5 B received"
        );
    }

    /// Ranks in the world that the lines speak of: no more than may call at once.
    const WORLD: u32 = 200;

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

    /// One by one, each would have its two seconds.
    #[test]
    fn a_crowd_that_says_nothing_keeps_nobody_waiting() {
        let listener = Listener::open().unwrap();
        let Target { token, addresses } = listener.target().clone();
        let crowd: Vec<TcpStream> = (0..600).map(|_| TcpStream::connect(addresses[0]).unwrap()).collect();
        send(addresses[0], line(&token, 3).as_bytes());
        let (done, over) = mpsc::channel();
        thread::spawn(move || done.send(listener.finish()));
        let reports = over.recv_timeout(Duration::from_secs(60)).expect("an end though the crowd stays");
        assert_eq!(reports, [Report { pid: 3, ..report(Some((3, WORLD))) }]);
        drop(crowd);
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
