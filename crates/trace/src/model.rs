//! What a recorded run is. All times are nanoseconds on one time line: the monotonic clock of the run's first host, to
//! which the other hosts' clocks were aligned ([`Host::clock_error`]).

use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};

pub use polyrail_core::trace::{Call, Class, MpiFields};

/// What a run was, without its events.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The command that was traced, word by word.
    pub command: Vec<String>,
    /// When it began, in nanoseconds since 1970.
    pub date: u64,
    /// How the command ended; `None`: that is not known.
    pub status: Option<i32>,
    /// The recording ended before it should have.
    pub broke_off: bool,
    /// First and last moment of anything recorded.
    pub span: (u64, u64),
    /// One per machine or network namespace.
    pub hosts: Vec<Host>,
    /// In the order in which they began. A process that becomes another program by `exec` stays the same one.
    pub processes: Vec<Process>,
    /// In the order in which they were seen.
    pub threads: Vec<Thread>,
    /// One per open socket, however many processes use it; and each end of a link through Polyrail's shared memory.
    pub sockets: Vec<Socket>,
    /// What happened to the peers and lanes of Polyrail's endpoints, in the order of time.
    pub rails: Vec<RailEvent>,
    /// What the reader of a report must know: losses, programs that could not be seen, a disk that was full.
    pub warnings: Vec<String>,
}

/// A machine, or a network namespace of one.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Its name; unique in the run.
    pub name: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Processors.
    pub processors: u32,
    /// Addresses with their interfaces' names.
    pub addresses: Vec<(String, IpAddr)>,
    /// What it says about TCP: name of a setting (`net.ipv4.tcp_slow_start_after_idle`) and its value.
    pub settings: Vec<(String, String)>,
    /// How far its times may be off those of the first host, in nanoseconds; 0: the same clock. `None`: nothing bounds it.
    pub clock_error: Option<u64>,
    /// Whether kernel events (tracepoints) were recorded there.
    pub kernel_events: bool,
    /// Why they were not, though that was not asked for: a sentence for the user.
    pub why_no_events: Option<String>,
}

/// A traced process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Where it ran: index into [`Run::hosts`].
    pub host: u32,
    /// Its id, as it sees it.
    pub pid: u32,
    /// Index of its parent, where that was traced.
    pub parent: Option<u32>,
    /// Command line (of the last program that it became).
    pub command: Vec<String>,
    /// Rank, size and library, in an MPI program.
    pub mpi: Option<MpiWorld>,
    /// First and last moment seen.
    pub span: (u64, u64),
    /// How it ended in order; `None`: killed, or still running.
    pub status: Option<i32>,
}

/// What an MPI process is one of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MpiWorld {
    /// In `MPI_COMM_WORLD`.
    pub rank: u32,
    /// Of `MPI_COMM_WORLD`.
    pub size: u32,
    /// First line of what `MPI_Get_library_version` says.
    pub library: String,
}

/// What Polyrail told of a peer or a lane: fields as in `docs/events.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RailEvent {
    /// When.
    #[serde(skip)]
    pub at: u64,
    /// Index of the process that tells.
    #[serde(skip)]
    pub process: u32,
    /// What happened.
    pub event: String,
    /// The endpoint that tells.
    pub endpoint: String,
    /// Its peer.
    pub peer: String,
    /// The rail.
    pub rail: Option<String>,
    /// Number of the lane.
    pub lane: Option<u16>,
    /// The lane's end on this side.
    pub near: Option<RailEnd>,
    /// Its other end.
    pub far: Option<RailEnd>,
    /// Whether it is encrypted.
    pub encrypted: Option<bool>,
    /// Why.
    pub why: String,
}

/// One end of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RailEnd {
    /// The network interface.
    pub interface: Option<String>,
    /// IP and port.
    pub address: String,
}

/// A thread of a traced process.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Index into [`Run::processes`].
    pub process: u32,
    /// Its id, as it sees it.
    pub tid: u32,
    /// Its name at its first call.
    pub name: String,
    /// Records kept of it.
    pub records: u64,
    /// Records lost, because its ring was full or the disk was.
    pub lost: u64,
}

/// What carries a socket's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Within the host.
    Unix,
    /// Polyrail's shared memory: no socket, but a link between two processes like those.
    Memory,
    /// Anything else: netlink, raw, ...
    #[default]
    Other,
}

/// An open socket.
#[derive(Clone, Debug, Default)]
pub struct Socket {
    /// The kernel's own number for it (`SO_COOKIE`); 0 where unknown.
    pub cookie: u64,
    /// Transport.
    pub kind: Kind,
    /// Index of the process that used it first.
    pub process: u32,
    /// Its name, when known.
    pub local: Option<SocketAddr>,
    /// What it is connected to, when it is.
    pub remote: Option<SocketAddr>,
    /// Whether it only accepts connections.
    pub listening: bool,
    /// Whether it came of one that does.
    pub accepted: bool,
    /// Whether its connection's beginning was recorded: it connected, was accepted, or made as one of a pair.
    pub begun: bool,
    /// Whether the first that it moved came in rather than went out; none if it moved nothing.
    pub heard_first: Option<bool>,
    /// Index of the socket at the other end, where that was traced too.
    pub peer: Option<u32>,
    /// First and last moment seen.
    pub span: (u64, u64),
}

/// The first of the ports that Linux gives to who asks for none (`ip_local_port_range`, ip(7)).
const EPHEMERAL: u16 = 32_768;

impl Socket {
    /// Whether this end serves who comes to it: its connection was accepted; of one that was recorded from its middle on, its port
    /// is a service's and the other's is not; and of datagrams, which nobody accepts, it was spoken to before it spoke.
    pub fn serves(&self) -> bool {
        let port = |address: Option<SocketAddr>| address.map(|address| address.port());
        if self.accepted || self.begun {
            return self.accepted;
        }
        match self.kind {
            Kind::Udp => self.heard_first == Some(true),
            _ => {
                port(self.local).is_some_and(|port| port < EPHEMERAL)
                    && port(self.remote).is_some_and(|port| port >= EPHEMERAL)
            }
        }
    }

    /// Whether who waits here waits for a question rather than for an answer. Of a connection that was accepted, who spoke first
    /// decides: a master whose workers connect to it asks them first.
    pub fn awaits_questions(&self) -> bool {
        self.serves() && (!self.begun || self.heard_first != Some(false))
    }

    /// Whether what it speaks to at this address may be a service, of which the port says something.
    pub fn is_at_service(&self, remote: SocketAddr) -> bool {
        !self.serves() && (self.begun || remote.port() < EPHEMERAL)
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A socket call.
    Call(CallEvent),
    /// An MPI call.
    Mpi(MpiEvent),
    /// A look at a TCP connection.
    Tcp(TcpSample),
    /// A kernel event.
    Kernel(KernelEvent),
}

/// A socket call, or a run of calls that found nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallEvent {
    /// Index into [`Run::threads`].
    pub thread: u32,
    /// Which function.
    pub call: Call,
    /// When it began.
    pub start: u64,
    /// From its start to its end; of a run, from the first's start to the last's end.
    pub took: u64,
    /// Time inside the function: `took`, and less for a run.
    pub inside: u64,
    /// 1, or the number of calls of a run (all returned `result`).
    pub calls: u32,
    /// Index into [`Run::sockets`]; `None`: several or none.
    pub socket: Option<u32>,
    /// Bytes moved, or what else it returned; negative: an error number.
    pub result: i32,
    /// Bytes moved over the socket, by sends and receives: what `result` says, but for `sendmmsg` and its kin.
    pub bytes: u32,
    /// Bytes asked for; of waits, the timeout in milliseconds (`u32::MAX`: for ever).
    pub asked: u32,
    /// The other side of a datagram, where the call named it; of a connect, whom it called.
    pub to: Option<SocketAddr>,
    /// Whether an MPI function was running in the thread.
    pub in_mpi: bool,
    /// It looked at what another call receives (`MSG_PEEK`): its bytes are 0.
    pub peeked: bool,
}

/// An MPI call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MpiEvent {
    /// Index into [`Run::threads`].
    pub thread: u32,
    /// Which function.
    pub call: Call,
    /// When it began.
    pub start: u64,
    /// How long it took.
    pub took: u64,
    /// 1, or the number of calls of a run that found nothing (`MPI_Test`, `MPI_Iprobe`).
    pub calls: u32,
    /// Rank in the world of the other side, or a constant of [`MpiFields`].
    pub peer: i32,
    /// The tag, or how many requests were completed.
    pub tag: i32,
    /// Bytes given (or received, where the call only receives).
    pub bytes: u64,
    /// The communicator, by a number of the process; 0: the world.
    pub comm: u16,
}

/// What the kernel said of a TCP connection at a moment: fields of `struct tcp_info` (linux/tcp.h), in its units.
/// 0 also where an older kernel says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpSample {
    /// Index into [`Run::sockets`].
    pub socket: u32,
    /// When.
    pub at: u64,
    /// Connection state (1 established).
    pub state: u8,
    /// Congestion-control state: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    /// Name of the congestion control, filled with zeros.
    pub congestion: [u8; 16],
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow-start threshold in segments; `0x7fffffff`: none yet.
    pub ssthresh: u32,
    /// Bytes of a segment.
    pub mss: u32,
    /// Smoothed round-trip time in microseconds.
    pub rtt: u32,
    /// Its variance.
    pub rtt_var: u32,
    /// Lowest round-trip time in microseconds.
    pub min_rtt: u32,
    /// Retransmission timeout in microseconds.
    pub rto: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments taken for lost.
    pub lost: u32,
    /// Segments acknowledged selectively.
    pub sacked: u32,
    /// Segments sent again and not acknowledged.
    pub retrans: u32,
    /// Segments sent again since the start.
    pub total_retrans: u32,
    /// Retransmission timeouts since the start (kernels since 6.7).
    pub total_rto: u32,
    /// Duplicate selective acknowledgements received: segments that were sent again for nothing.
    pub dsack_dups: u32,
    /// Times that segments were found out of order.
    pub reord_seen: u32,
    /// Bytes sent, with what was sent again.
    pub bytes_sent: u64,
    /// Bytes sent again.
    pub bytes_retrans: u64,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes a second, newest measurement of the kernel.
    pub delivery_rate: u64,
    /// Bytes a second; `u64::MAX`: not paced.
    pub pacing_rate: u64,
    /// Microseconds with something to send.
    pub busy_time: u64,
    /// Of these, limited by the receiver's window.
    pub rwnd_limited: u64,
    /// Of these, limited by the send buffer.
    pub sndbuf_limited: u64,
    /// Bytes in the send buffer that were not sent yet.
    pub notsent: u32,
    /// Bytes of room in the send buffer.
    pub send_free: u32,
    /// The peer's window in bytes.
    pub snd_wnd: u32,
    /// Milliseconds since data was last sent.
    pub last_sent: u32,
}

/// A kernel event about a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelEvent {
    /// Index into [`Run::sockets`].
    pub socket: u32,
    /// When.
    pub at: u64,
    /// What.
    pub what: KernelEventKind,
}

/// Which kernel event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KernelEventKind {
    /// `tcp:tcp_probe`: a segment arrived; state before it was looked at. Sequence numbers are counted from the connection's first
    /// byte where its beginning was seen.
    Probe {
        /// Bytes of data in the segment.
        length: u16,
        /// Next byte to be sent.
        snd_nxt: u32,
        /// First byte not acknowledged.
        snd_una: u32,
        /// Congestion window in segments.
        cwnd: u32,
        /// Slow-start threshold in segments.
        ssthresh: u32,
        /// The peer's window in bytes.
        snd_wnd: u32,
        /// Smoothed round-trip time in microseconds.
        rtt: u32,
    },
    /// `tcp:tcp_retransmit_skb`: something is sent again.
    Retransmit {
        /// Whether by the retransmission timer, as far as the congestion state tells.
        timeout: bool,
    },
    /// `sock:inet_sock_set_state`.
    State {
        /// Before.
        old: u8,
        /// After.
        new: u8,
    },
    /// `tcp:tcp_cong_state_set`: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    Congestion {
        /// The new state.
        state: u8,
    },
}

/// Where events come from, again and again: analysis passes over them more than once rather than hold them all.
pub trait Events {
    /// The run.
    fn run(&self) -> &Run;
    /// Calls `each` with every event. Events of one thread, and of one socket's samples and kernel events, come in the order of time; among
    /// several they are in order but for some hundred milliseconds.
    ///
    /// # Errors
    /// Reading failed; what came before was delivered.
    fn for_each(&self, each: &mut dyn FnMut(&Event)) -> Result<(), std::io::Error>;
}

/// A run in memory: for tests, and for what was made by hand.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    /// The run.
    pub run: Run,
    /// In order.
    pub events: Vec<Event>,
}

impl Events for InMemory {
    fn run(&self) -> &Run {
        &self.run
    }

    fn for_each(&self, each: &mut dyn FnMut(&Event)) -> Result<(), std::io::Error> {
        self.events.iter().for_each(each);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(local: u16, remote: u16) -> Socket {
        let at = |port| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        Socket { kind: Kind::Tcp, local: at(local), remote: at(remote), ..Socket::default() }
    }

    #[test]
    fn who_serves_whom_is_known_by_the_beginning_or_by_the_ports() {
        let (service, chance, other) = (80, 40_000, 50_000);
        // the beginning was recorded: ports say nothing
        for (local, remote) in [(service, chance), (chance, service), (chance, other)] {
            let connected = Socket { begun: true, ..between(local, remote) };
            assert!(!connected.serves() && connected.is_at_service(connected.remote.unwrap()));
            let accepted = Socket { begun: true, accepted: true, ..between(local, remote) };
            assert!(accepted.serves() && !accepted.is_at_service(accepted.remote.unwrap()));
        }
        // from the middle on
        assert!(between(service, chance).serves());
        assert!(
            !between(chance, service).serves()
                && between(chance, service).is_at_service(([1, 1, 1, 1], service).into())
        );
        // neither is known: a port that says nothing makes no node
        assert!(
            !between(chance, other).serves()
                && !between(chance, other).is_at_service(([1, 1, 1, 1], other).into())
        );
        for heard_first in [None, Some(false), Some(true)] {
            let datagrams = Socket { kind: Kind::Udp, heard_first, remote: None, ..between(service, chance) };
            assert_eq!(datagrams.serves(), heard_first == Some(true));
        }
    }

    #[test]
    fn who_spoke_first_waits_for_answers() {
        for (heard_first, awaits) in [(None, true), (Some(true), true), (Some(false), false)] {
            let accepted = Socket { begun: true, accepted: true, heard_first, ..between(80, 40_000) };
            assert_eq!(accepted.awaits_questions(), awaits);
            // who spoke first is not known, of what was recorded from its middle on
            assert!(Socket { heard_first, ..between(80, 40_000) }.awaits_questions());
            assert!(!Socket { begun: true, heard_first, ..between(40_000, 80) }.awaits_questions());
        }
    }
}
