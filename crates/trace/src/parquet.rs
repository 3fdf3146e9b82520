//! The events as Parquet files, for notebooks: written in row groups while they are read. Times are ns since the run's
//! start; numbers of processes, threads and sockets are rows of the files of those names.
//!
//! | file | a row is |
//! |---|---|
//! | `calls.parquet` | a socket call, or a run of calls that found nothing |
//! | `mpi.parquet` | an MPI call |
//! | `tcp.parquet` | a look at a TCP connection: the fields of `struct tcp_info` in its units |
//! | `kernel.parquet` | a kernel event |
//! | `sockets.parquet`, `processes.parquet`, `threads.parquet` | one of these |
//! | `links.parquet` | what went from one process (or address) to another |

mod table;

use crate::analysis::Analysis;
use crate::analysis::tcp::known;
use crate::model::{Call, CallEvent, Event, KernelEvent, KernelEventKind, Kind, MpiEvent, Run, TcpSample};
use parquet::data_type::ByteArray;
use std::io::Error;
use std::path::{Path, PathBuf};
use table::Table;

/// The files of a run.
pub struct Tables {
    out: PathBuf,
    start: u64,
    processes: Vec<u32>,
    /// By the functions' numbers.
    names: Vec<ByteArray>,
    calls: Table,
    mpi: Table,
    tcp: Table,
    kernel: Table,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Tables").field("out", &self.out).finish_non_exhaustive()
    }
}

const CALLS: &[(&str, &str)] = &[
    ("start", "long"),
    ("took", "long"),
    ("inside", "long"),
    ("process", "int"),
    ("thread", "int"),
    ("call", "text"),
    ("calls", "int"),
    ("socket", "int?"),
    ("result", "int"),
    ("bytes", "count"),
    ("asked", "count?"),
    ("address", "text?"),
    ("in_mpi", "flag"),
];
const MPI: &[(&str, &str)] = &[
    ("start", "long"),
    ("took", "long"),
    ("process", "int"),
    ("thread", "int"),
    ("call", "text"),
    ("calls", "int"),
    ("peer", "int"),
    ("tag", "int"),
    ("bytes", "count"),
    ("comm", "int"),
];
const TCP: &[(&str, &str)] = &[
    ("at", "long"),
    ("socket", "int"),
    ("state", "int"),
    ("ca_state", "int"),
    ("congestion", "text"),
    ("cwnd", "int"),
    ("ssthresh", "int?"),
    ("mss", "int"),
    ("rtt_us", "int"),
    ("rtt_var_us", "int"),
    ("min_rtt_us", "int?"),
    ("rto_us", "int"),
    ("unacked", "int"),
    ("lost", "int"),
    ("sacked", "int"),
    ("retrans", "int"),
    ("total_retrans", "int"),
    ("total_rto", "int"),
    ("dsack_dups", "int"),
    ("reord_seen", "int"),
    ("bytes_sent", "long"),
    ("bytes_retrans", "long"),
    ("bytes_acked", "long"),
    ("bytes_received", "long"),
    ("delivery_rate", "count?"),
    ("pacing_rate", "count?"),
    ("busy_time_us", "long"),
    ("rwnd_limited_us", "long"),
    ("sndbuf_limited_us", "long"),
    ("notsent", "count"),
    ("send_free", "count"),
    ("snd_wnd", "count"),
    ("last_sent_ms", "count"),
];
const KERNEL: &[(&str, &str)] = &[
    ("at", "long"),
    ("socket", "int"),
    ("what", "text"),
    ("length", "int?"),
    ("snd_nxt", "count"),
    ("snd_una", "count"),
    ("cwnd", "int?"),
    ("ssthresh", "int?"),
    ("snd_wnd", "count"),
    ("rtt_us", "int?"),
    ("timeout", "flag"),
    ("old", "int?"),
    ("new", "int?"),
];

impl Tables {
    /// Begins the files.
    ///
    /// # Errors
    /// One cannot be written.
    pub fn create(run: &Run, out: &Path) -> Result<Tables, Error> {
        Ok(Tables {
            out: out.to_owned(),
            start: run.span.0,
            processes: run.threads.iter().map(|thread| thread.process).collect(),
            names: (0..=u8::MAX)
                .map(|n| ByteArray::from(Call::from_number(n).map_or("", Call::name)))
                .collect(),
            calls: Table::create(out, "calls", run, CALLS)?,
            mpi: Table::create(out, "mpi", run, MPI)?,
            tcp: Table::create(out, "tcp", run, TCP)?,
            kernel: Table::create(out, "kernel", run, KERNEL)?,
        })
    }

    /// Adds an event. What cannot be written is told by [`Tables::finish`].
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Call(call) => self.call(call),
            Event::Mpi(call) => self.mpi(call),
            Event::Tcp(sample) => self.sample(sample),
            Event::Kernel(event) => self.kernel(event),
        }
    }

    fn call(&mut self, call: &CallEvent) {
        let process = self.processes[call.thread as usize];
        let row = &mut self.calls;
        row.long(call.start.saturating_sub(self.start)).long(call.took).long(call.inside);
        row.int(process.into())
            .int(call.thread.into())
            .shared(&self.names[call.call as u8 as usize])
            .int(call.calls.into());
        row.maybe(call.socket).int(call.result.into()).long(call.bytes.into());
        row.perhaps((call.asked != u32::MAX).then_some(call.asked.into()));
        row.address(call.to).flag(call.in_mpi).end();
    }

    fn mpi(&mut self, call: &MpiEvent) {
        let process = self.processes[call.thread as usize];
        let row = &mut self.mpi;
        row.long(call.start.saturating_sub(self.start)).long(call.took).int(process.into());
        row.int(call.thread.into())
            .shared(&self.names[call.call as u8 as usize])
            .int(call.calls.into())
            .int(call.peer.into());
        row.int(call.tag.into()).long(call.bytes).int(call.comm.into()).end();
    }

    fn sample(&mut self, s: &TcpSample) {
        let row = &mut self.tcp;
        let name = s.congestion.split(|&byte| byte == 0).next().unwrap_or_default();
        row.long(s.at.saturating_sub(self.start)).int(s.socket.into()).int(s.state.into());
        row.int(s.ca_state.into()).text(&String::from_utf8_lossy(name));
        row.int(s.cwnd.into()).maybe(known(s.ssthresh)).int(s.mss.into());
        row.int(s.rtt.into()).int(s.rtt_var.into()).maybe(known(s.min_rtt));
        let counts = [
            s.rto,
            s.unacked,
            s.lost,
            s.sacked,
            s.retrans,
            s.total_retrans,
            s.total_rto,
            s.dsack_dups,
            s.reord_seen,
        ];
        for count in counts {
            row.int(count.into());
        }
        row.long(s.bytes_sent).long(s.bytes_retrans).long(s.bytes_acked).long(s.bytes_received);
        let rate = |rate: u64| (rate != u64::MAX).then_some(rate);
        row.perhaps(rate(s.delivery_rate)).perhaps(rate(s.pacing_rate));
        row.long(s.busy_time).long(s.rwnd_limited).long(s.sndbuf_limited);
        row.long(s.notsent.into())
            .long(s.send_free.into())
            .long(s.snd_wnd.into())
            .long(s.last_sent.into())
            .end();
    }

    fn kernel(&mut self, event: &KernelEvent) {
        let row = &mut self.kernel;
        row.long(event.at.saturating_sub(self.start)).int(event.socket.into());
        let (mut probe, mut timeout, mut states) = (None, false, (None, None));
        row.text(match event.what {
            KernelEventKind::Probe { length, snd_nxt, snd_una, cwnd, ssthresh, snd_wnd, rtt } => {
                probe = Some((length, snd_nxt, snd_una, cwnd, ssthresh, snd_wnd, rtt));
                "segment"
            }
            KernelEventKind::Retransmit { timeout: by_timer } => {
                timeout = by_timer;
                "retransmit"
            }
            KernelEventKind::State { old, new } => {
                states = (Some(old.into()), Some(new.into()));
                "state"
            }
            KernelEventKind::Congestion { state } => {
                states = (None, Some(state.into()));
                "congestion"
            }
        });
        let (length, snd_nxt, snd_una, cwnd, ssthresh, snd_wnd, rtt) = probe.unwrap_or_default();
        let told = |value: u32| probe.map(|_| value);
        row.maybe(told(length.into())).long(snd_nxt.into()).long(snd_una.into());
        row.maybe(told(cwnd)).maybe(known(ssthresh)).long(snd_wnd.into()).maybe(told(rtt));
        row.flag(timeout).maybe(states.0).maybe(states.1).end();
    }

    /// Ends the files, and writes those about sockets, processes, threads and links.
    ///
    /// # Errors
    /// Something could not be written, now or before.
    pub fn finish(self, run: &Run, analysis: &Analysis) -> Result<Vec<PathBuf>, Error> {
        let mut files = Vec::new();
        for table in [self.calls, self.mpi, self.tcp, self.kernel] {
            files.push(table.finish()?);
        }
        files.push(sockets(run, analysis, &self.out)?);
        files.push(processes(run, analysis, &self.out)?);
        files.push(threads(run, &self.out)?);
        files.push(links(run, analysis, &self.out)?);
        Ok(files)
    }
}

fn sockets(run: &Run, analysis: &Analysis, out: &Path) -> Result<PathBuf, Error> {
    let fields = [
        ("socket", "int"),
        ("cookie", "count"),
        ("kind", "text"),
        ("process", "int"),
        ("local", "text?"),
        ("remote", "text?"),
        ("listening", "flag"),
        ("peer", "int?"),
        ("start", "long"),
        ("end", "long"),
        ("bytes_sent", "long"),
        ("bytes_received", "long"),
        ("sends", "long"),
        ("messages", "long"),
        ("retransmissions", "long"),
        ("timeouts", "long"),
        ("collapses_after_idle", "long"),
        ("congestion", "text"),
        ("min_rtt_us", "int?"),
        ("mean_rtt_us", "real"),
    ];
    let mut table = Table::create(out, "sockets", run, &fields)?;
    for (index, (about, traffic)) in run.sockets.iter().zip(&analysis.sockets).enumerate() {
        let since = |at: u64| at.saturating_sub(run.span.0);
        let tcp = traffic.tcp.as_deref();
        table.int(index as i64).long(about.cookie).text(match about.kind {
            Kind::Tcp => "tcp",
            Kind::Udp => "udp",
            Kind::Unix => "unix",
            Kind::Memory => "memory",
            Kind::Other => "other",
        });
        table.int(about.process.into()).address(about.local).address(about.remote).flag(about.listening);
        table.maybe(about.peer).long(since(about.span.0)).long(since(about.span.1));
        let received = traffic.received.bytes.saturating_add(traffic.heard.0);
        table.long(traffic.sent.bytes).long(received).long(traffic.sent.sends);
        table.long(traffic.sent.messages).long(tcp.map_or(0, |tcp| tcp.retransmissions()));
        table.long(tcp.map_or(0, |tcp| tcp.timeouts())).long(tcp.map_or(0, |tcp| tcp.restarted.0));
        table.text(tcp.map_or("", |tcp| &tcp.congestion)).maybe(tcp.and_then(|tcp| tcp.min_rtt));
        table.real(tcp.and_then(|tcp| tcp.mean_rtt()).unwrap_or(f64::NAN)).end();
    }
    table.finish()
}

fn processes(run: &Run, analysis: &Analysis, out: &Path) -> Result<PathBuf, Error> {
    let fields = [
        ("process", "int"),
        ("host", "text"),
        ("pid", "int"),
        ("parent", "int?"),
        ("command", "text"),
        ("rank", "int?"),
        ("status", "int?"),
        ("start", "long"),
        ("end", "long"),
        ("calls", "long"),
        ("bytes_sent", "long"),
        ("bytes_received", "long"),
        ("waited", "long"),
    ];
    let mut table = Table::create(out, "processes", run, &fields)?;
    for (index, (process, totals)) in run.processes.iter().zip(&analysis.processes).enumerate() {
        let since = |at: u64| at.saturating_sub(run.span.0);
        let host = run.hosts.get(process.host as usize).map_or("", |host| &host.name);
        table.int(index as i64).text(host).int(process.pid.into()).maybe(process.parent);
        table.text(&process.command.join(" ")).maybe(process.mpi.as_ref().map(|mpi| mpi.rank));
        table.status(process.status).long(since(process.span.0)).long(since(process.span.1));
        table.long(totals.calls).long(totals.bytes.0).long(totals.bytes.1).long(totals.waited).end();
    }
    table.finish()
}

fn threads(run: &Run, out: &Path) -> Result<PathBuf, Error> {
    let fields = [
        ("thread", "int"),
        ("process", "int"),
        ("tid", "int"),
        ("name", "text"),
        ("records", "long"),
        ("lost", "long"),
    ];
    let mut table = Table::create(out, "threads", run, &fields)?;
    for (index, thread) in run.threads.iter().enumerate() {
        table.int(index as i64).int(thread.process.into()).int(thread.tid.into()).text(&thread.name);
        table.long(thread.records).long(thread.lost).end();
    }
    table.finish()
}

fn links(run: &Run, analysis: &Analysis, out: &Path) -> Result<PathBuf, Error> {
    let fields = [
        ("from_process", "int?"),
        ("to_process", "int?"),
        ("from_name", "text"),
        ("to_name", "text"),
        ("bytes", "long"),
        ("messages", "long"),
        ("sends", "long"),
        ("sending", "long"),
        ("waited", "long"),
        ("mpi_messages", "long"),
        ("mpi_bytes", "long"),
        ("mpi_waited", "long"),
    ];
    let mut table = Table::create(out, "links", run, &fields)?;
    let traced = |node: u32| Some(node).filter(|node| (*node as usize) < run.processes.len());
    let name = |node: u32| match run.processes.get(node as usize) {
        Some(process) => {
            process.mpi.as_ref().map_or_else(|| process.pid.to_string(), |mpi| format!("rank {}", mpi.rank))
        }
        None => analysis.outside[node as usize - run.processes.len()].clone(),
    };
    for (from, to, cell) in &analysis.links.cells {
        table.maybe(traced(*from)).maybe(traced(*to)).text(&name(*from)).text(&name(*to));
        table.long(cell.bytes).long(cell.messages).long(cell.sends).long(cell.sending).long(cell.waited);
        table.long(cell.mpi_messages).long(cell.mpi_bytes).long(cell.mpi_waited).end();
    }
    table.finish()
}
