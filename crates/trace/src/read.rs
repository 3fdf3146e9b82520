//! Reads the files of a run, from one host or several, as one stream of events.
//!
//! Two passes: [`open`] looks at everything once, for what notes tell (sockets, processes, addresses), for what there is of each
//! thread, and for what sets hosts' clocks beside each other; [`Events::for_each`] then only decodes.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use polyrail_core::trace::{Call, Class, Record, flags, note};

use crate::blocks::{BEFORE, CommandBlock, ThreadBlock, kind};
use crate::file::{Block, Next, Reader};
use crate::host::HostBlock;
use crate::model::{Host, Kind, MpiWorld, Process, RailEvent, Run, Socket, Thread};
use crate::notes::{self, u32_at, u64_at};
use crate::records::Records;
use crate::units;

mod clocks;
mod events;
mod peers;
mod told;

use clocks::{Aligned, Ticks};
use told::unseen;

/// Events of Polyrail's that are kept of a run.
const RAIL_EVENTS: usize = 100_000;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing is there.
    #[error("{} holds no recording of polyrail trace (no .trace file)", .0.display())]
    Nothing(PathBuf),
    /// They are of several runs.
    #[error(
        "{} and {} are recordings of two runs: make a report of each, or compare them (polyrail report ONE --against OTHER)",
        .0.display(), .1.display()
    )]
    Several(PathBuf, PathBuf),
    /// A file cannot be read, or is none of ours.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A file, and what its numbers mean.
#[derive(Debug, Default)]
struct Source {
    path: PathBuf,
    host: HostBlock,
    /// Network namespaces of its threads, and the hosts that stand for them.
    hosts: HashMap<u64, u32>,
    ticks: Ticks,
    /// From the host's monotonic clock to that of the first.
    aligned: Aligned,
    /// Threads by the stream's number.
    streams: HashMap<u32, Stream>,
    programs: Vec<Program>,
    /// Index into `programs` by the number in the session.
    numbers: HashMap<u64, usize>,
    /// Addresses by their numbers in records.
    addresses: HashMap<u32, SocketAddr>,
    /// Sockets by the kernel's cookie.
    cookies: HashMap<u64, u32>,
    /// Sockets by the numbers that all processes share of which the kernel recorded system calls.
    by_kernel: HashMap<u32, u32>,
}

#[derive(Debug, Default)]
struct Stream {
    thread: u32,
    /// Index into [`Source::programs`].
    program: usize,
    /// System calls as the kernel saw them: times are nanoseconds of the monotonic clock.
    by_kernel: bool,
}

/// What the threads of a process share, from one `exec` or fork to the next.
#[derive(Debug, Default)]
struct Program {
    /// Index into [`Run::processes`].
    process: u32,
    /// Sockets by its own numbers.
    sockets: HashMap<u32, u32>,
}

/// A recording that was opened.
#[derive(Debug)]
pub struct Recorded {
    run: Run,
    sources: Vec<Source>,
}

/// Opens a run: directories of one run, or single files.
///
/// # Errors
/// There is none, or one cannot be read. A file that ends early is none of these: what is there is used, and the run's
/// warnings say what is not.
pub fn open(places: &[PathBuf]) -> Result<Recorded, Error> {
    let mut paths = Vec::new();
    for place in places {
        let before = paths.len();
        if place.is_file() {
            paths.push(place.clone());
        } else {
            let failed = |source| Error::File { path: place.clone(), source };
            for entry in fs::read_dir(place).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                if path.extension().is_some_and(|end| end == "trace") {
                    paths.push(path);
                }
            }
        }
        if paths.len() == before {
            return Err(Error::Nothing(place.clone()));
        }
    }
    paths.sort();
    let mut opening = Opening::default();
    for path in &paths {
        opening.read(path).map_err(|source| Error::File { path: path.clone(), source })?;
    }
    if let Some((one, other)) = opening.command.zip(opening.other_command) {
        let folder = |at: usize| paths[at].parent().map_or_else(|| paths[at].clone(), Path::to_owned);
        // in one folder, only files tell them apart
        let apart = folder(one) != folder(other);
        let place = |at: usize| if apart { folder(at) } else { paths[at].clone() };
        return Err(Error::Several(place(one), place(other)));
    }
    // the command's own host is the first, and its clock the one that counts
    opening.finish().map_err(|source| Error::File { path: paths[0].clone(), source })
}

/// First and last moment of a thread or socket: in ticks of the host's trace clock, and in nanoseconds of its monotonic clock, where the
/// kernel recorded.
#[derive(Clone, Copy, Debug)]
struct Seen([(u64, u64); 2]);

impl Default for Seen {
    fn default() -> Self {
        Seen([(u64::MAX, 0); 2])
    }
}

impl Seen {
    fn grow(&mut self, by_kernel: bool, first: u64, last: u64) {
        grow(&mut self.0[usize::from(by_kernel)], first, last);
    }

    fn join(&mut self, other: Seen) {
        for (all, (first, last)) in self.0.iter_mut().zip(other.0) {
            grow(all, first, last);
        }
    }
}

/// When a socket was used: at all; when something came in by it; when something went out.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    all: Seen,
    heard: Seen,
    spoke: Seen,
}

/// What is gathered while files are read for the first time.
#[derive(Debug, Default)]
struct Opening {
    run: Run,
    sources: Vec<Source>,
    command: Option<usize>,
    /// Another file that tells what command was traced.
    other_command: Option<usize>,
    /// By thread.
    threads_seen: Vec<Seen>,
    /// By source, program there, and the program's own number of the socket: its calls, which may be read before the socket is told of.
    sockets_used: HashMap<(usize, usize, u32), Used>,
    /// Sockets that began a connection, by the same.
    begun: Vec<(usize, usize, u32)>,
    /// Sockets that were accepted, by the same.
    accepted: Vec<(usize, usize, u32)>,
    /// Unix sockets by their host's boot and the kernel's number; and what each of them is connected to, by that number.
    unix: HashMap<(String, u64), u32>,
    unix_peers: Vec<(u32, String, notes::UnixNote)>,
    /// Processes by source, id and namespace of ids.
    pids: HashMap<(usize, u32, u64), u32>,
    /// Ends of links through Polyrail's shared memory, by their names: the links, and what the other end is called.
    links: HashMap<u64, (u32, u64)>,
    /// Events of Polyrail's by source, with their moments in its ticks: at most [`RAIL_EVENTS`].
    rails: Vec<(usize, u64, RailEvent)>,
    /// Programs that preloading did not see, by reason and path: how often, and who told of them.
    unseen: HashMap<(u32, String), (u32, HashSet<u32>)>,
    /// Processes whose command is known by a note, and those that were forked from others, by these.
    named: HashSet<u32>,
    unnamed: HashMap<u32, Vec<u32>>,
}

fn grow((first, last): &mut (u64, u64), start: u64, end: u64) {
    *first = (*first).min(start);
    *last = (*last).max(end);
}

impl Opening {
    fn read(&mut self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut reader = Reader::new(BufReader::with_capacity(1 << 18, file), length)?;
        self.sources.push(Source { path: path.into(), ..Source::default() });
        let mut block = Block::default();
        loop {
            match reader.next(&mut block)? {
                Next::Block => self.block(&block),
                Next::End => break,
                Next::Broken(bytes) => {
                    let text = format!(
                        "{}: the recording broke off; the last {bytes} bytes of the file are no whole block and are left out",
                        path.display()
                    );
                    self.run.warnings.push(text);
                    break;
                }
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &Block) {
        let at = self.sources.len() - 1;
        let payload = &block.payload[..];
        match block.kind {
            kind::HOST => {
                if let Ok(host) = serde_json::from_slice(payload) {
                    self.sources[at].host = host;
                }
            }
            kind::COMMAND => {
                if self.command.is_some_and(|known| known != at) {
                    self.other_command = Some(at);
                } else if let Ok(command) = serde_json::from_slice::<CommandBlock>(payload) {
                    (self.run.command, self.run.date, self.run.status) =
                        (command.words, command.date, command.status);
                    self.run.broke_off = command.status.is_none() && !command.left;
                    self.command = Some(at);
                }
            }
            kind::WARNING => {
                let text = String::from_utf8_lossy(&payload[..payload.len().min(2000)]).into_owned();
                if !self.run.warnings.contains(&text) {
                    self.run.warnings.push(text);
                }
            }
            kind::CLOCK => {
                let [ticks, monotonic] = [0, 8].map(|place| u64_at(payload, place));
                self.sources[at].ticks.pair(ticks, monotonic);
            }
            kind::LOST => {
                if let Some(stream) = self.sources[at].streams.get(&block.stream) {
                    let lost = &mut self.run.threads[stream.thread as usize].lost;
                    *lost = lost.saturating_add(u64_at(payload, 0));
                }
            }
            kind::THREAD => {
                if let Ok(thread) = serde_json::from_slice(payload) {
                    self.thread(block.stream, &thread);
                }
            }
            kind::RECORDS | kind::SYSCALLS => self.records(block, payload),
            _ => {}
        }
    }

    fn host(&mut self, network: u64) -> u32 {
        let at = self.sources.len() - 1;
        let source = &mut self.sources[at];
        let network = if network == 0 { source.host.network } else { network };
        if let Some(host) = source.hosts.get(&network) {
            return *host;
        }
        let own = network == source.host.network;
        let mut name = source.host.name.clone();
        if !own {
            name = format!("{name}, network {network}");
        }
        // the same machine may have had several collectors, one after the other
        let mut earlier = self.sources[..at].iter().map(|other| (&other.host, &other.hosts));
        let source = &self.sources[at];
        let known = earlier.find_map(|(other, hosts)| {
            (other.boot == source.host.boot && other.name == source.host.name && !other.boot.is_empty())
                .then(|| hosts.get(&network).copied())
                .flatten()
        });
        let host = known.unwrap_or_else(|| {
            if self.run.hosts.iter().any(|host| host.name == name) {
                name = format!("{name} ({})", self.run.hosts.len() + 1);
            }
            self.run.hosts.push(Host {
                name,
                kernel: source.host.kernel.clone(),
                processors: source.host.processors,
                addresses: if own { source.host.addresses.clone() } else { Vec::new() },
                settings: if own { source.host.settings.clone() } else { Vec::new() },
                clock_error: None,
                kernel_events: source.host.kernel_events,
                why_no_events: source.host.why_no_events.clone(),
            });
            self.run.hosts.len() as u32 - 1
        });
        self.sources[at].hosts.insert(network, host);
        host
    }

    fn thread(&mut self, stream: u32, block: &ThreadBlock) {
        let host = self.host(block.network);
        let at = self.sources.len() - 1;
        let program = match self.sources[at].numbers.get(&block.process) {
            Some(program) => *program,
            None => {
                // by exec, a process becomes another program and stays the same process; one that had ended is another
                let same = self.pids.get(&(at, block.pid, block.pids)).copied();
                let same = same.filter(|process| self.run.processes[*process as usize].status.is_none());
                let process = same.unwrap_or_else(|| {
                    let is_parent = |process: &Process| process.host == host && process.pid == block.parent;
                    let parent = self.run.processes.iter().rposition(is_parent).map(|index| index as u32);
                    let command = vec![block.name.clone()];
                    self.run.processes.push(Process {
                        host,
                        pid: block.pid,
                        parent,
                        command,
                        ..Process::default()
                    });
                    self.run.processes.len() as u32 - 1
                });
                self.pids.insert((at, block.pid, block.pids), process);
                let source = &mut self.sources[at];
                source.programs.push(Program { process, sockets: HashMap::new() });
                source.numbers.insert(block.process, source.programs.len() - 1);
                source.programs.len() - 1
            }
        };
        let thread = self.run.threads.len() as u32;
        let process = self.sources[at].programs[program].process;
        self.run.threads.push(Thread {
            process,
            tid: block.tid,
            name: block.name.clone(),
            records: 0,
            lost: 0,
        });
        self.threads_seen.push(Seen::default());
        self.sources[at].streams.insert(stream, Stream { thread, program, by_kernel: false });
    }

    fn records(&mut self, block: &Block, payload: &[u8]) {
        let at = self.sources.len() - 1;
        let Some((thread, program)) =
            self.sources[at].streams.get(&block.stream).map(|known| (known.thread, known.program))
        else {
            return;
        };
        let by_kernel = block.kind == kind::SYSCALLS;
        if let Some(stream) = self.sources[at].streams.get_mut(&block.stream) {
            stream.by_kernel = by_kernel;
        }
        let mut count = 0;
        let mut seen = self.threads_seen[thread as usize];
        // of the socket that the last call used: most use the same again
        let mut socket = (0, Used::default());
        let mut notes = Vec::new();
        for (record, payload) in Records::new(payload) {
            let end = record.start.saturating_add(record.took.ticks());
            if block.at != BEFORE {
                seen.grow(by_kernel, record.start, end);
            }
            if record.call == 0 {
                notes.push((record, payload));
                continue;
            }
            count += 1;
            let fields = record.socket_fields();
            let number = fields.socket;
            let accepts = [Call::Accept, Call::Accept4].map(|call| call as u8).contains(&record.call);
            if accepts && fields.result >= 0 && fields.arg2 != 0 {
                self.accepted.push((at, program, fields.arg2));
            }
            let begins = match Call::from_number(record.call) {
                Some(Call::Connect) => fields.result >= 0 || fields.result == -libc::EINPROGRESS,
                Some(Call::SocketPair) => fields.result >= 0,
                _ => false,
            };
            if begins && record.flags & flags::RUN == 0 {
                self.begun.push((at, program, number));
            }
            if record.call >= Call::MpiInit as u8 || number == 0 {
                continue;
            }
            if number != socket.0 {
                self.socket_used(program, socket);
                socket = (number, Used::default());
            }
            socket.1.all.grow(by_kernel, record.start, end);
            if fields.result > 0 {
                match Call::from_number(record.call).map(Call::class) {
                    Some(Class::Receive) => socket.1.heard.grow(by_kernel, end, end),
                    Some(Class::Send) => socket.1.spoke.grow(by_kernel, record.start, record.start),
                    _ => {}
                }
            }
        }
        self.socket_used(program, socket);
        self.threads_seen[thread as usize] = seen;
        self.run.threads[thread as usize].records += count;
        for (record, payload) in notes {
            self.note(&record, payload, thread, program, by_kernel, block.at == BEFORE);
        }
    }

    fn socket_used(&mut self, program: usize, (number, used): (u32, Used)) {
        if number == 0 {
            return;
        }
        let known = self.sockets_used.entry((self.sources.len() - 1, program, number)).or_default();
        known.all.join(used.all);
        known.heard.join(used.heard);
        known.spoke.join(used.spoke);
    }

    /// A process says what it is, and so what those are that it has forked so far.
    fn named(&mut self, index: u32, command: Vec<String>) {
        let mut all = vec![index];
        while let Some(one) = all.pop() {
            self.run.processes[one as usize].command.clone_from(&command);
            self.named.insert(one);
            all.extend(self.unnamed.remove(&one).unwrap_or_default());
        }
    }

    fn note(
        &mut self,
        record: &Record,
        payload: &[u8],
        thread: u32,
        program: usize,
        by_kernel: bool,
        before: bool,
    ) {
        let at = self.sources.len() - 1;
        let index = self.run.threads[thread as usize].process;
        let about = &mut self.run.processes[index as usize];
        match record.flags {
            note::SOCKET => {
                if let Some(socket) = notes::socket(payload) {
                    self.socket(&socket, index, program, by_kernel);
                    let mut used = Used::default();
                    if !before {
                        used.all.grow(by_kernel, record.start, record.start);
                    }
                    self.socket_used(program, (socket.number, used));
                }
            }
            note::ADDRESS => {
                if let Some(address) = payload.get(8..).and_then(notes::address) {
                    self.sources[at].addresses.insert(u32_at(payload, 0), address);
                }
            }
            note::PROCESS => {
                let words = notes::words(payload.get(8..).unwrap_or_default());
                if !words.is_empty() {
                    self.named(index, words);
                } else if let Some(parent) = about.parent {
                    // forked: the same program as its parent, whose own note may still be in another buffer
                    let command = self.run.processes[parent as usize].command.clone();
                    if self.named.contains(&parent) {
                        self.named(index, command);
                    } else {
                        self.run.processes[index as usize].command = command;
                        self.unnamed.entry(parent).or_default().push(index);
                    }
                }
            }
            note::UNSEEN => {
                let path = String::from_utf8_lossy(payload.get(8..).unwrap_or_default()).into_owned();
                let (times, tellers) = self.unseen.entry((u32_at(payload, 4), path)).or_default();
                *times += 1;
                tellers.insert(index);
            }
            note::MPI => {
                let library = String::from_utf8_lossy(payload.get(8..).unwrap_or_default());
                let library = library.lines().next().unwrap_or_default().trim().to_string();
                about.mpi = Some(MpiWorld { rank: u32_at(payload, 0), size: u32_at(payload, 4), library });
            }
            note::UNIX => {
                if let Some(told) = notes::unix(payload) {
                    self.unix(told, program);
                }
            }
            note::LINK => {
                if let Some(told) = notes::link(payload) {
                    self.link(told, index, program);
                    let mut used = Used::default();
                    if !before {
                        used.all.grow(by_kernel, record.start, record.start);
                    }
                    self.socket_used(program, (told.number, used));
                }
            }
            note::EVENT => {
                let line = payload.get(8..).unwrap_or_default();
                if self.rails.len() < RAIL_EVENTS
                    && let Ok(event) = serde_json::from_slice::<RailEvent>(line)
                {
                    let event = RailEvent { process: index, ..event };
                    self.rails.push((at, record.start, event));
                }
            }
            note::EXIT => about.status = Some(u32_at(payload, 0) as i32),
            _ => {}
        }
    }

    fn socket(&mut self, told: &notes::SocketNote, index: u32, program: usize, by_kernel: bool) {
        let at = self.sources.len() - 1;
        let known = (told.cookie != 0).then(|| self.sources[at].cookies.get(&told.cookie).copied()).flatten();
        // what is told again, with more, or of another process that has it
        let again = || self.sources[at].by_kernel.get(&told.number).copied().filter(|_| by_kernel);
        let known = known.or_else(again);
        let socket = known.unwrap_or_else(|| {
            self.run.sockets.push(Socket {
                cookie: told.cookie,
                kind: told.kind,
                process: index,
                ..Socket::default()
            });
            self.run.sockets.len() as u32 - 1
        });
        if told.cookie != 0 {
            self.sources[at].cookies.insert(told.cookie, socket);
        }
        if by_kernel {
            self.sources[at].by_kernel.insert(told.number, socket);
        }
        let about = &mut self.run.sockets[socket as usize];
        if about.cookie == 0 {
            (about.cookie, about.kind) = (told.cookie, told.kind);
        }
        about.listening |= told.listening;
        about.local = told.local.or(about.local);
        about.remote = told.remote.or(about.remote);
        self.sources[at].programs[program].sockets.insert(told.number, socket);
    }

    fn unix(&mut self, told: notes::UnixNote, program: usize) {
        let source = &self.sources[self.sources.len() - 1];
        let Some(&socket) = source.programs[program].sockets.get(&told.number) else { return };
        let boot = &source.host.boot;
        self.unix.insert((boot.clone(), told.inode), socket);
        if told.peer != 0 {
            self.unix_peers.push((socket, boot.clone(), told));
        }
    }

    fn link(&mut self, told: notes::LinkNote, process: u32, program: usize) {
        let at = self.sources.len() - 1;
        let sockets = &mut self.run.sockets;
        let (link, _) = *self.links.entry(told.near).or_insert_with(|| {
            sockets.push(Socket { kind: Kind::Memory, process, begun: true, ..Socket::default() });
            (sockets.len() as u32 - 1, told.far)
        });
        self.sources[at].programs[program].sockets.insert(told.number, link);
    }

    fn finish(mut self) -> io::Result<Recorded> {
        let first = self.command.unwrap_or(0);
        for (source, program, number) in std::mem::take(&mut self.accepted) {
            if let Some(&socket) = self.sources[source].programs[program].sockets.get(&number) {
                self.run.sockets[socket as usize].accepted = true;
                self.run.sockets[socket as usize].begun = true;
            }
        }
        for (source, program, number) in std::mem::take(&mut self.begun) {
            if let Some(&socket) = self.sources[source].programs[program].sockets.get(&number) {
                self.run.sockets[socket as usize].begun = true;
            }
        }
        self.find_peers();
        self.find_unix_peers();
        self.find_link_peers();
        for ((reason, path), (times, tellers)) in std::mem::take(&mut self.unseen) {
            let kernel = self.of_kernel(&path, &tellers);
            self.run.warnings.push(unseen(reason, &path, times, kernel));
        }
        let lost: u64 = self.run.threads.iter().map(|thread| thread.lost).sum();
        if lost > 0 {
            let kept: u64 = self.run.threads.iter().map(|thread| thread.records).sum();
            let threads = self.run.threads.iter().filter(|thread| thread.lost > 0).count() as u64;
            let text = format!(
                "{} of {} were lost: {} wrote faster than they could be kept. Counts and times are of what was kept.",
                units::many(lost, "record"),
                units::count(lost.saturating_add(kept)),
                units::many(threads, "thread"),
            );
            self.run.warnings.insert(0, text);
        }
        if self.command.is_none() {
            self.run.broke_off = true;
            self.run.warnings.push("the file that says what command was traced is not here".into());
        } else if self.run.broke_off {
            self.run.warnings.push("the recording broke off before the command ended".into());
        }
        if self.run.processes.is_empty() {
            self.run.warnings.push(
                "nothing was recorded: no process of the command loaded the recorder (static programs and most Go programs cannot be \
                 seen that way)"
                    .into(),
            );
        }
        let mut recorded = Recorded { run: self.run, sources: self.sources };
        clocks::align(&mut recorded, first)?;
        recorded.set_rail_events(self.rails);
        recorded.set_spans(&self.threads_seen, &self.sockets_used);
        Ok(recorded)
    }

    /// Whether the kernel recorded calls of a program of this name, or of one that became it.
    fn of_kernel(&self, path: &str, tellers: &HashSet<u32>) -> told::Kernel {
        let name = |path: &str| Path::new(path).file_name().map(|name| name.to_owned());
        let streams = self.sources.iter().flat_map(|source| source.streams.values());
        let recorded = streams.filter(|stream| stream.by_kernel).any(|stream| {
            let thread = &self.run.threads[stream.thread as usize];
            let words = &self.run.processes[thread.process as usize].command;
            let called = words.first().and_then(|word| name(word));
            tellers.contains(&thread.process) || called.is_some() && called == name(path)
        });
        // the hosts on which it was run
        let told = |source: &&Source| {
            source
                .streams
                .values()
                .any(|stream| tellers.contains(&self.run.threads[stream.thread as usize].process))
        };
        let hosts = || self.sources.iter().filter(told).map(|source| &source.host);
        match recorded {
            true => told::Kernel::Recorded,
            false if hosts().any(|host| host.why_no_events.is_some()) => told::Kernel::NeedsRights,
            false if hosts().any(|host| host.kernel_events) => told::Kernel::Missed,
            false => told::Kernel::LeftOut,
        }
    }
}

impl Source {
    /// When a moment in ticks (or nanoseconds) was, on the run's time line.
    fn time(&self, ticks: u64, nanoseconds: bool) -> u64 {
        self.aligned.time(if nanoseconds { ticks } else { self.ticks.monotonic(ticks) })
    }

    /// When something was seen first and last, if it was.
    fn span(&self, seen: &Seen) -> Option<(u64, u64)> {
        let known = seen.0.iter().zip([false, true]).filter(|((first, last), _)| first <= last);
        let spans = known
            .map(|((first, last), by_kernel)| (self.time(*first, by_kernel), self.time(*last, by_kernel)));
        spans.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
    }
}

impl Recorded {
    /// Now that moments are known.
    fn set_rail_events(&mut self, told: Vec<(usize, u64, RailEvent)>) {
        let sources = &self.sources;
        let events = told
            .into_iter()
            .map(|(source, at, event)| RailEvent { at: sources[source].time(at, false), ..event });
        self.run.rails = events.collect();
        self.run.rails.sort_by_key(|event| event.at);
    }

    fn set_spans(&mut self, threads: &[Seen], sockets: &HashMap<(usize, usize, u32), Used>) {
        const NEVER: (u64, u64) = (u64::MAX, 0);
        let run = &mut self.run;
        run.span = NEVER;
        run.processes.iter_mut().for_each(|process| process.span = NEVER);
        run.sockets.iter_mut().for_each(|socket| socket.span = NEVER);
        for source in &self.sources {
            for stream in source.streams.values() {
                if let Some((first, last)) = source.span(&threads[stream.thread as usize]) {
                    let process = run.threads[stream.thread as usize].process;
                    grow(&mut run.processes[process as usize].span, first, last);
                    grow(&mut run.span, first, last);
                }
            }
        }
        // by several processes, one socket may be known by several numbers
        let mut first_moved = vec![(u64::MAX, u64::MAX); run.sockets.len()];
        for ((source, program, number), used) in sockets {
            let source = &self.sources[*source];
            let Some(&socket) = source.programs[*program].sockets.get(number) else { continue };
            let Some((first, last)) = source.span(&used.all) else { continue };
            grow(&mut run.sockets[socket as usize].span, first, last);
            let (heard, spoke) = &mut first_moved[socket as usize];
            let first = |seen| source.span(seen).map_or(u64::MAX, |(first, _)| first);
            *heard = first(&used.heard).min(*heard);
            *spoke = first(&used.spoke).min(*spoke);
        }
        for (socket, (heard, spoke)) in run.sockets.iter_mut().zip(first_moved) {
            socket.heard_first = (heard != spoke).then_some(heard < spoke);
        }
        let spans = run.processes.iter_mut().map(|process| &mut process.span);
        let spans = spans.chain(run.sockets.iter_mut().map(|socket| &mut socket.span));
        spans.chain([&mut run.span]).filter(|span| span.0 > span.1).for_each(|span| *span = (0, 0));
    }
}
