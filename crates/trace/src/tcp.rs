//! What the collector knows of the TCP connections of traced processes, and when it asks the kernel about them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, Instant};

use polyrail_core::trace::note;

use crate::blocks::kind;
use crate::diag::{Diag, SAMPLE_BYTES, Sample, Wanted, monotonic};
use crate::file::Writer;
use crate::host;
use crate::kernel::{KERNEL_BYTES, Kernel, Unavailable};
use crate::notes::{self, SocketNote};
use crate::records::Records;

/// How often connections are looked at, at most.
const PERIOD: Duration = Duration::from_millis(10);
/// A hundredth of a processor's time is what looking may take.
const SHARE: u32 = 100;
/// Longest look at once.
const LONGEST: Duration = Duration::from_millis(2);
/// How long a connection that is gone is kept, for kernel events that are yet to be read.
const LINGER: Duration = Duration::from_secs(1);

/// Connections of the processes that are recorded.
#[derive(Debug, Default)]
pub struct Tcp {
    connections: HashMap<u64, Connection>,
    /// A way to ask for each network namespace that traced processes are in, and whom to ask about; `None`: it could not be opened.
    networks: BTreeMap<u64, Option<Network>>,
    kernel: Option<Kernel>,
    why_no_events: Option<String>,
    warnings: Vec<String>,
    next: Option<Instant>,
    samples: Vec<Sample>,
    payload: Vec<u8>,
}

#[derive(Debug)]
struct Network {
    diag: Diag,
    wanted: Vec<Wanted>,
    /// Where each stands in `wanted`, by cookie: thousands of connections a second come and go.
    places: HashMap<u64, usize>,
    /// Where the next look begins: there may be more connections than can be looked at at once.
    at: usize,
}

#[derive(Clone, Debug)]
struct Connection {
    wanted: Wanted,
    latest: Option<Sample>,
    gone: Option<Instant>,
}

impl Tcp {
    /// `with_kernel`: kernel events too, where they can be had. Otherwise it is [said](Self::why_no_events) why not, or
    /// [warned](Self::warnings) where they ought to be there.
    pub fn new(with_kernel: bool) -> Tcp {
        let mut tcp = Tcp::default();
        if with_kernel {
            match Kernel::open() {
                Ok(kernel) => tcp.kernel = Some(kernel),
                // a user's recording is whole without; one of root's is not
                Err(why @ Unavailable::Root) => tcp.why_no_events = Some(why.to_string()),
                Err(why) => tcp.warnings.push(why.to_string()),
            }
        }
        tcp
    }

    /// Whether kernel events are recorded.
    pub fn kernel_events(&self) -> bool {
        self.kernel.is_some()
    }

    /// Why they are not, though they were asked for: this user may not.
    pub fn why_no_events(&self) -> Option<&str> {
        self.why_no_events.as_deref()
    }

    /// What the user must know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A process appeared, in a network namespace.
    pub fn process(&mut self, pid: u32, network: u64) {
        if self.networks.contains_key(&network) {
            return;
        }
        let opened =
            if network == host::namespace("net") || network == 0 { Diag::open() } else { open_in(pid) };
        if let Err(why) = &opened {
            self.warnings.push(format!(
                "TCP connections in the network namespace of process {pid} are not looked at while they are open: {why}"
            ));
        }
        self.networks.insert(network, opened.ok().map(Network::new));
    }

    /// Takes note of sockets in what a thread recorded.
    pub fn learn(&mut self, network: u64, records: &[u8]) {
        for (record, payload) in Records::new(records) {
            if record.call != 0 || record.flags != note::SOCKET {
                continue;
            }
            if let Some(socket) = notes::socket(payload) {
                self.connection(network, &socket);
            }
        }
    }

    /// Takes note of a socket, if it is a TCP connection.
    pub(crate) fn connection(&mut self, network: u64, socket: &SocketNote) {
        let (true, Some(local), Some(remote)) =
            (socket.is_tcp() && socket.cookie != 0, socket.local, socket.remote)
        else {
            return;
        };
        let wanted = Wanted { cookie: socket.cookie, local, remote };
        if self.connections.get(&socket.cookie).is_some_and(|known| known.wanted == wanted) {
            return;
        }
        self.connections.insert(socket.cookie, Connection { wanted, latest: None, gone: None });
        if let Some(Some(network)) = self.networks.get_mut(&network) {
            network.want(wanted);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.want(&wanted);
        }
    }

    /// Reads kernel events, and looks at connections if it is time to.
    pub fn sample(&mut self, writer: &mut Writer) {
        let now = Instant::now();
        self.drain_kernel(writer);
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        let begun = processor_time();
        self.samples.clear();
        for network in self.networks.values_mut().flatten() {
            network.look(&mut self.samples, |cookie| {
                if let Some(connection) = self.connections.get_mut(&cookie) {
                    connection.gone.get_or_insert(now);
                }
            });
        }
        self.write_samples(writer);
        self.forget(now);
        self.next = Some(now + (processor_time().saturating_sub(begun) * SHARE).max(PERIOD));
    }

    fn write_samples(&mut self, writer: &mut Writer) {
        self.payload.clear();
        for sample in &self.samples {
            if let Some(connection) = self.connections.get_mut(&sample.cookie) {
                // a connection at rest says nothing new
                let told = connection.latest.is_some_and(|latest| at_rest(&latest, sample));
                connection.latest = Some(*sample);
                if !told {
                    self.payload.extend(sample.to_bytes());
                }
            }
        }
        // readers take no block of more than 16 MiB, and a hundred thousand connections have more
        for part in self.payload.chunks(SAMPLE_BYTES << 12) {
            writer.rows(kind::TCP, 0, monotonic().unwrap_or(0), SAMPLE_BYTES, part);
        }
    }

    fn drain_kernel(&mut self, writer: &mut Writer) {
        let Some(kernel) = &mut self.kernel else { return };
        self.payload.clear();
        if let Err(why) = kernel.drain(&mut |record| self.payload.extend(record.to_bytes())) {
            self.warnings.push(format!("kernel events could not be read any more: {why}"));
            self.kernel = None;
        }
        for part in self.payload.chunks(KERNEL_BYTES << 12) {
            writer.rows(kind::KERNEL, 0, monotonic().unwrap_or(0), KERNEL_BYTES, part);
        }
    }

    fn forget(&mut self, now: Instant) {
        let kernel = &mut self.kernel;
        self.connections.retain(|cookie, connection| {
            let keep = connection.gone.is_none_or(|gone| now.duration_since(gone) < LINGER);
            if let (false, Some(kernel)) = (keep, kernel.as_mut()) {
                kernel.forget(*cookie);
            }
            keep
        });
    }

    /// Nothing is looked at any more: the kernel need not tell.
    pub fn close(&mut self) {
        self.kernel = None;
        self.connections.clear();
        self.networks.clear();
    }

    /// A last look at everything. What was missed is among the warnings afterwards.
    pub fn finish(&mut self, writer: &mut Writer) {
        self.next = None;
        self.sample(writer);
        // events that were held back for want of knowledge
        std::thread::sleep(Duration::from_millis(20));
        self.drain_kernel(writer);
        if let Some(lost) = self.kernel.as_ref().map(Kernel::lost).filter(|lost| *lost > 0) {
            self.warnings.push(format!(
                "the kernel lost {lost} events (of all connections of the machine), because they were not read fast enough: \
                 times of retransmissions may be missing; their number is still right"
            ));
        }
    }
}

impl Network {
    fn new(diag: Diag) -> Network {
        Network { diag, wanted: Vec::new(), places: HashMap::new(), at: 0 }
    }

    fn want(&mut self, wanted: Wanted) {
        let next = self.wanted.len();
        match *self.places.entry(wanted.cookie).or_insert(next) {
            place if place == next => self.wanted.push(wanted),
            place => self.wanted[place] = wanted,
        }
    }

    fn forget(&mut self, cookie: u64) {
        let Some(place) = self.places.remove(&cookie) else { return };
        self.wanted.swap_remove(place);
        if let Some(moved) = self.wanted.get(place) {
            self.places.insert(moved.cookie, place);
        }
    }

    /// Looks at as many connections as there is time for, and says which are no more.
    fn look(&mut self, samples: &mut Vec<Sample>, mut gone: impl FnMut(u64)) {
        if self.at >= self.wanted.len() {
            self.at = 0;
        }
        let done = self.diag.sample(&self.wanted[self.at..], LONGEST, samples).unwrap_or(0);
        self.at += done;
        // what takes the place of one that is gone is looked at in the next turn
        for cookie in self.diag.gone().to_vec() {
            gone(cookie);
            self.forget(cookie);
        }
    }
}

/// What this thread has had of a processor: other programs that run meanwhile do not make looks rarer.
fn processor_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Duration::ZERO, Duration::from)
}

/// Whether nothing moved between two looks.
fn at_rest(a: &Sample, b: &Sample) -> bool {
    let (mut a, mut b) = (a.tcp, b.tcp);
    for sample in [&mut a, &mut b] {
        (sample.at, sample.last_sent) = (0, 0);
    }
    a == b
}

/// Opens a way to ask in the network namespace of a process: from a thread that enters it, and ends.
fn open_in(pid: u32) -> io::Result<Diag> {
    let file = std::fs::File::open(format!("/proc/{pid}/ns/net"))?;
    let enter = move || -> io::Result<Diag> {
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET)?;
        Diag::open()
    };
    std::thread::Builder::new()
        .spawn(enter)?
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("its thread ended early")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_is_wanted_once_until_it_is_forgotten() {
        let mut network = Network::new(Diag::open().expect("inet_diag"));
        let wanted = |cookie: u64, port: u16| Wanted {
            cookie,
            local: ([127, 0, 0, 1], port).into(),
            remote: ([127, 0, 0, 1], 80).into(),
        };
        // what is wanted, beside a plain list of it
        let mut plain: BTreeMap<u64, Wanted> = BTreeMap::new();
        let mut random = 1u64;
        for step in 0..10_000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let cookie = random >> 33 & 63;
            if step % 3 == 0 {
                network.forget(cookie);
                plain.remove(&cookie);
            } else {
                network.want(wanted(cookie, step as u16));
                plain.insert(cookie, wanted(cookie, step as u16));
            }
            assert_eq!(network.wanted.len(), plain.len());
        }
        let all: BTreeMap<u64, Wanted> =
            network.wanted.iter().map(|wanted| (wanted.cookie, *wanted)).collect();
        assert_eq!(all, plain);
        assert!(network.places.iter().all(|(cookie, place)| network.wanted[*place].cookie == *cookie));
    }
}
