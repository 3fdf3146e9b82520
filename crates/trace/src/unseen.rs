//! Programs that preloading does not see: static ones, most of Go's, and those that run already. As root the kernel records their system
//! calls; one that runs already is followed by ptrace otherwise. What is heard so is written like what recorders write.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};
use polyrail_core::trace::{RECORD, Record, SocketFields, Span, note};

mod source;

use crate::attach::{Attached, refusal};
use crate::blocks::{ThreadBlock, kind};
use crate::diag::monotonic;
use crate::file::Writer;
use crate::host;
use crate::kernel::{Named, Program, SyscallEvent, Syscalls};
use crate::notes::{SocketNote, socket_payload};
use crate::tcp::Tcp;
use source::Source;

/// Processes of which something is remembered: of others it is looked up again.
const MOST: usize = 65_536;

/// Processes have numbers above those that recorders count.
const FIRST: u64 = 1 << 32;

/// The first namespace of process ids, by the number that it has in every kernel (`PROC_PID_INIT_INO`): tracepoints go by its ids.
const FIRST_PIDS: u64 = 0xeffffffc;

/// How a process is recorded that runs already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By the kernel's tracepoints, which do not stop it.
    Kernel,
    /// By ptrace, which stops it twice for each system call.
    Followed,
}

/// What the kernel records of them.
#[derive(Debug, Default)]
pub struct Unseen {
    source: Option<Source>,
    /// Asked for in vain: why.
    failed: Option<String>,
    streams: HashMap<(u32, u32), u32>,
    processes: HashMap<u32, Known>,
    /// Processes that preloading saw until they became another program.
    became: HashSet<u32>,
    /// The process that is recorded because it ran already.
    attached: Option<u32>,
    buffers: BTreeMap<u32, Vec<u8>>,
    /// Heard of since the last time: a recorder may be at work there, whose ring was not found yet.
    heard: Heard,
}

#[derive(Debug, Default)]
struct Heard {
    programs: Vec<Program>,
    calls: Vec<SyscallEvent>,
    names: Vec<Named>,
}

/// A process.
#[derive(Clone, Debug, Default)]
struct Known {
    parent: u32,
    /// Inodes of its namespaces, which its children share if they end before they are looked at.
    pids: u64,
    network: u64,
    /// What it executes, and the words of its command if somebody could look in time.
    path: String,
    words: Vec<u8>,
}

impl Unseen {
    /// The kernel is to record what this thread starts, and itself if it is what `becomes` such a program.
    pub fn begin(&mut self, tid: u32, becomes: bool) {
        if becomes {
            self.became.insert(tid);
        }
        self.meet(tid, 0);
        if self.source.is_none() && self.failed.is_none() {
            if ![0, FIRST_PIDS].contains(&host::namespace("pid")) {
                let why =
                    "the kernel's events go by other numbers of processes than those here (a container)";
                self.failed = Some(why.into());
                return;
            }
            match Syscalls::open() {
                Ok(syscalls) => self.source = Some(Source::Kernel(Box::new(syscalls))),
                Err(why) => self.failed = Some(why.to_string()),
            }
        }
        if let Some(Source::Kernel(syscalls)) = &mut self.source
            && let Err(why) = syscalls.add(tid)
        {
            self.failed = Some(format!("the kernel does not record process {tid}: {why}"));
        }
    }

    /// Records a process that runs already, with all its threads and all that it starts: by the kernel where that can be, else it is followed.
    ///
    /// # Errors
    /// There is no such process, or it cannot be recorded: one sentence for the user.
    pub fn attach(&mut self, pid: u32) -> Result<How, String> {
        if let Some(why) = refusal::of_any(pid) {
            return Err(why);
        }
        self.attached = Some(pid);
        let Err(no_kernel) = self.attach_kernel(pid) else { return Ok(How::Kernel) };
        (self.source, self.failed) = (None, None);
        self.follow(pid).map_err(|why| match nix::unistd::geteuid().is_root() {
            true => format!("{why} (nor does the kernel record it: {no_kernel})"),
            false => why,
        })?;
        Ok(How::Followed)
    }

    fn attach_kernel(&mut self, pid: u32) -> Result<(), String> {
        let mut known = HashSet::new();
        // threads that begin meanwhile are followed by the kernel if who begins them is, and else are found the next time
        for _ in 0..100 {
            let threads =
                fs::read_dir(format!("/proc/{pid}/task")).map_err(|why| format!("process {pid}: {why}"))?;
            let number = |name: std::ffi::OsString| name.to_str()?.parse::<u32>().ok();
            let threads = threads.flatten().filter_map(|entry| number(entry.file_name()));
            let new: Vec<u32> = threads.filter(|thread| known.insert(*thread)).collect();
            if new.is_empty() {
                break;
            }
            for thread in new {
                self.begin(thread, true);
                if let Some(why) = &self.failed {
                    return Err(why.clone());
                }
            }
        }
        Ok(())
    }

    fn follow(&mut self, pid: u32) -> Result<(), String> {
        if let Some(why) = refusal::of_followed(pid) {
            return Err(why);
        }
        let attached = Attached::new(pid).map_err(|why| match why.kind() {
            std::io::ErrorKind::PermissionDenied => refusal::of_kernel(pid),
            _ if refusal::has_ended(pid) => format!("process {pid} has ended"),
            _ => format!("process {pid} cannot be followed: {why}"),
        })?;
        self.became.insert(pid);
        self.meet(pid, 0);
        self.source = Some(Source::Followed(attached));
        Ok(())
    }

    /// Whether a process that ran already has ended, or cannot be recorded any more.
    pub fn is_over(&self) -> bool {
        match &self.source {
            Some(Source::Followed(attached)) => attached.is_over(),
            _ => self.attached.is_none_or(refusal::has_ended),
        }
    }

    /// How a process ended that ran already, if it has and that is known.
    pub fn status(&self) -> Option<i32> {
        self.source.as_ref().and_then(Source::status)
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.source.is_some()
    }

    /// Nothing more is recorded.
    pub fn close(&mut self) {
        self.source = None;
    }

    /// Processes that the kernel recorded.
    pub fn processes(&self) -> HashSet<u32> {
        self.streams.keys().map(|(pid, _)| *pid).collect()
    }

    /// What the user must know.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let heard = self.source.as_ref().map(Source::warnings).unwrap_or_default();
        self.failed.clone().into_iter().chain(heard)
    }

    /// Writes what there was the last time of processes that are not among `seen`; how many calls. `streams` numbers the file's
    /// streams. `last`: what there is now, too.
    pub fn drain(
        &mut self,
        last: bool,
        seen: &HashSet<u32>,
        streams: &mut u32,
        tcp: &mut Tcp,
        writer: &mut Writer,
    ) -> u64 {
        let Some(source) = &mut self.source else { return 0 };
        if last {
            source.end();
        }
        let mut heard = if last { Heard::default() } else { std::mem::take(&mut self.heard) };
        self.read(last);
        if last {
            std::mem::swap(&mut heard, &mut self.heard);
        }
        let Heard { programs, calls, names } = heard;
        let seen: HashSet<u32> = seen.difference(&self.became).copied().collect();
        let executed = programs.iter().filter(|program| !program.path.is_empty());
        for program in executed.filter(|program| !seen.contains(&program.pid)) {
            self.stream(program.pid, program.pid, program.at, streams, writer);
        }
        let mut count = 0;
        for event in calls.iter().filter(|event| !seen.contains(&event.pid)) {
            let stream = self.stream(event.pid, event.tid, event.start, streams, writer);
            self.buffers.entry(stream).or_default().extend(record(event).to_bytes());
            count += 1;
        }
        for named in names.iter().filter(|named| !seen.contains(&named.pid)) {
            let stream = self.stream(named.pid, named.pid, named.at, streams, writer);
            let told = told(named);
            let network = self.processes.get(&named.pid).map_or(0, |known| known.network);
            tcp.process(named.pid, network);
            tcp.connection(network, &told);
            put_note(self.buffers.entry(stream).or_default(), named.at, note::SOCKET, &socket_payload(&told));
        }
        let at = monotonic().unwrap_or(0);
        for (stream, buffer) in std::mem::take(&mut self.buffers) {
            writer.records(kind::SYSCALLS, stream, at, &buffer);
        }
        count
    }

    /// Takes from the kernel what there is now. `last`: and nothing more will come.
    fn read(&mut self, last: bool) {
        let Some(source) = &mut self.source else { return };
        let Heard { programs, calls, names } = &mut self.heard;
        if let Err(why) = source.drain(&mut |event| calls.push(event)) {
            self.failed = Some(format!("system calls could not be read any more: {why}"));
        }
        source.names(last, &mut |named| names.push(named));
        let new = source.programs();
        programs.extend(new.iter().cloned());
        for Program { pid, parent, path, .. } in new {
            let known = self.meet(pid, parent);
            if !path.is_empty() {
                (known.path, known.words) = (path, words(pid));
            }
        }
    }

    /// A process was heard of: looks at it, in so far as it is still there.
    fn meet(&mut self, pid: u32, parent: u32) -> &mut Known {
        let own =
            || Known { pids: host::namespace("pid"), network: host::namespace("net"), ..Known::default() };
        if !self.processes.contains_key(&pid) {
            let like = self.processes.get(&parent).cloned().unwrap_or_else(own);
            let or = |found: u64, else_: u64| if found == 0 { else_ } else { found };
            let known = Known {
                parent,
                pids: or(namespace(pid, "pid"), like.pids),
                network: or(namespace(pid, "net"), like.network),
                path: like.path,
                words: like.words,
            };
            if self.processes.len() >= MOST {
                self.processes.clear();
            }
            self.processes.insert(pid, known);
        }
        self.processes.entry(pid).or_default()
    }

    fn stream(&mut self, pid: u32, tid: u32, at: u64, streams: &mut u32, writer: &mut Writer) -> u32 {
        if let Some(stream) = self.streams.get(&(pid, tid)) {
            return *stream;
        }
        *streams += 1;
        self.streams.insert((pid, tid), *streams);
        let known = self.meet(pid, 0).clone();
        let name = fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
        let mut name = name.trim().to_owned();
        let mut words = if known.words.is_empty() { words(pid) } else { known.words };
        // it is gone
        if words.is_empty() {
            words = known.path.clone().into_bytes();
        }
        if name.is_empty() {
            name = known.path.rsplit('/').next().unwrap_or_default().chars().take(15).collect();
        }
        let block = ThreadBlock {
            process: FIRST + u64::from(pid),
            pid,
            tid,
            parent: known.parent,
            pids: known.pids,
            network: known.network,
            name,
        };
        writer.json(kind::THREAD, *streams, monotonic().unwrap_or(0), &block);
        let mut payload = vec![0; 8];
        payload.extend(words);
        put_note(self.buffers.entry(*streams).or_default(), at, note::PROCESS, &payload);
        *streams
    }
}

/// The words of a process's command, as far as they are recorded.
fn words(pid: u32) -> Vec<u8> {
    let mut words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.truncate(1500);
    words
}

/// Inode of a process's namespace; 0 when the process is gone.
fn namespace(pid: u32, name: &str) -> u64 {
    fs::metadata(format!("/proc/{pid}/ns/{name}")).map_or(0, |file| file.ino())
}

fn record(event: &SyscallEvent) -> Record {
    let fields = SocketFields {
        socket: event.socket,
        result: event.result,
        arg: event.arg,
        arg2: event.accepted,
        extra: 0,
    };
    Record::socket(event.start, Span::from_ticks(event.took), event.call, 0, fields)
}

fn told(named: &Named) -> SocketNote {
    let known = |address: SocketAddr| Some(address).filter(|address| address.port() != 0);
    let (local, remote) =
        named.addresses.map_or((None, None), |(local, remote)| (known(local), known(remote)));
    SocketNote {
        number: named.number,
        cookie: named.cookie,
        kind: named.kind,
        listening: named.listening,
        local,
        remote,
    }
}

fn put_note(buffer: &mut Vec<u8>, at: u64, kind: u8, payload: &[u8]) {
    buffer.extend(Record::note(at, kind, payload.len() as u32).to_bytes());
    buffer.extend(payload);
    buffer.resize(buffer.len().next_multiple_of(RECORD), 0);
}

/// Whether a command is a program without dynamic loader.
pub fn is_static(command: &OsStr) -> bool {
    find(command).and_then(|path| has_loader(&path)) == Some(false)
}

/// As `execvp` finds it.
fn find(command: &OsStr) -> Option<PathBuf> {
    if command.as_encoded_bytes().contains(&b'/') {
        return Some(command.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(command)).find(|file| file.is_file())
}

/// `None`: it is no program of this machine, or cannot be read.
fn has_loader(path: &Path) -> Option<bool> {
    let mut start = Vec::new();
    fs::File::open(path).ok()?.take(1 << 16).read_to_end(&mut start).ok()?;
    let header = elf::FileHeader64::<Endianness>::parse(&start[..]).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &start[..]).ok()?;
    Some(segments.iter().any(|segment| segment.p_type(endian) == elf::PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_are_remembered_are_bounded() {
        let mut unseen = Unseen::default();
        // above what there may be, so that nobody is looked at
        for pid in 0..MOST as u32 + 10 {
            unseen.meet(pid + (1 << 30), 0);
        }
        assert!(unseen.processes.len() <= MOST);
    }

    #[test]
    fn this_test_has_a_loader_and_a_script_is_no_program() {
        assert_eq!(has_loader(&std::env::current_exe().unwrap()), Some(true));
        assert!(!is_static(OsStr::new("sh")));
        assert!(!is_static(OsStr::new("/proc/self/status")));
        assert!(!is_static(OsStr::new("/nowhere/at/all")));
    }
}
