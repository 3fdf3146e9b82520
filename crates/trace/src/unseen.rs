//! Programs that preloading does not see: static ones, most of Go's. As root the kernel records their system calls; what it says is
//! written like what recorders write.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};
use polyrail_core::trace::{RECORD, Record, SocketFields, Span, note};

use crate::collect::ThreadBlock;
use crate::diag::monotonic;
use crate::file::{Writer, kind};
use crate::kernel::{Named, SyscallEvent, Syscalls};
use crate::notes::{SocketNote, socket_payload};
use crate::records;
use crate::tcp::Tcp;

/// Processes have numbers above those that recorders count.
const FIRST: u64 = 1 << 32;

/// What the kernel records of them.
#[derive(Debug, Default)]
pub struct Unseen {
    syscalls: Option<Syscalls>,
    /// Asked for in vain: why.
    failed: Option<String>,
    lost: u64,
    streams: HashMap<(u32, u32), u32>,
    processes: HashSet<u32>,
    /// Processes that preloading saw until they became another program.
    became: HashSet<u32>,
    buffers: BTreeMap<u32, Vec<u8>>,
}

impl Unseen {
    /// The kernel is to record what this thread starts, and itself if it is what `becomes` such a program.
    pub fn begin(&mut self, tid: u32, becomes: bool) {
        if becomes {
            self.became.insert(tid);
        }
        if self.syscalls.is_none() && self.failed.is_none() {
            match Syscalls::open() {
                Ok(syscalls) => self.syscalls = Some(syscalls),
                Err(why) => self.failed = Some(why.to_string()),
            }
        }
        if let Some(syscalls) = &self.syscalls
            && let Err(why) = syscalls.add(tid)
        {
            self.failed = Some(format!("the kernel does not record process {tid}: {why}"));
        }
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.syscalls.is_some()
    }

    /// Processes that the kernel recorded.
    pub fn processes(&self) -> u64 {
        self.processes.len() as u64
    }

    /// What the user must know.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let lost = self.syscalls.as_ref().map_or(0, Syscalls::lost).max(self.lost);
        let lost = (lost > 0).then(|| {
            format!("the kernel lost {lost} system calls of programs that preloading does not see, because they were not read fast enough")
        });
        self.failed.clone().into_iter().chain(lost)
    }

    /// Writes what there is of processes that are not among `seen`; how many calls. `streams` numbers the file's streams.
    pub fn drain(
        &mut self,
        seen: &HashSet<u32>,
        streams: &mut u32,
        tcp: &mut Tcp,
        writer: &mut Writer,
    ) -> u64 {
        let Some(syscalls) = &mut self.syscalls else { return 0 };
        let mut events = Vec::new();
        let mut names = Vec::new();
        if let Err(why) = syscalls.drain(&mut |event| events.push(event)) {
            self.failed = Some(format!("system calls could not be read any more: {why}"));
        }
        syscalls.names(&mut |named| names.push(named));
        let mut count = 0;
        let seen: HashSet<u32> = seen.difference(&self.became).copied().collect();
        for event in events.iter().filter(|event| !seen.contains(&event.pid)) {
            let stream = self.stream(event.pid, event.tid, streams, writer);
            self.buffers.entry(stream).or_default().extend(record(event).to_bytes());
            count += 1;
        }
        for named in names.iter().filter(|named| !seen.contains(&named.pid)) {
            let stream = self.stream(named.pid, named.pid, streams, writer);
            let at = monotonic().unwrap_or(0);
            let told = told(named);
            let network = namespace(named.pid, "net");
            tcp.process(named.pid, network);
            tcp.connection(network, &told);
            put_note(self.buffers.entry(stream).or_default(), at, note::SOCKET, &socket_payload(&told));
        }
        let at = monotonic().unwrap_or(0);
        for (stream, buffer) in std::mem::take(&mut self.buffers) {
            records::append(writer, kind::SYSCALLS, stream, at, &buffer);
        }
        count
    }

    fn stream(&mut self, pid: u32, tid: u32, streams: &mut u32, writer: &mut Writer) -> u32 {
        if let Some(stream) = self.streams.get(&(pid, tid)) {
            return *stream;
        }
        *streams += 1;
        self.streams.insert((pid, tid), *streams);
        self.processes.insert(pid);
        let at = monotonic().unwrap_or(0);
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let block = ThreadBlock {
            process: FIRST + u64::from(pid),
            pid,
            tid,
            parent: 0,
            pids: namespace(pid, "pid"),
            network: namespace(pid, "net"),
            name: String::from_utf8_lossy(&read("comm")).trim().into(),
        };
        writer.json(kind::THREAD, *streams, at, &block);
        let mut payload = vec![0; 8];
        payload.extend(read("cmdline").iter().take(1500));
        put_note(self.buffers.entry(*streams).or_default(), at, note::PROCESS, &payload);
        *streams
    }
}

/// Inode of a process's namespace; 0 when the process is gone.
fn namespace(pid: u32, name: &str) -> u64 {
    fs::metadata(format!("/proc/{pid}/ns/{name}")).map_or(0, |file| file.ino())
}

fn record(event: &SyscallEvent) -> Record {
    let fields =
        SocketFields { socket: event.socket, result: event.result, arg: event.arg, arg2: 0, extra: 0 };
    Record::socket(event.start, Span::from_ticks(event.took), event.call, 0, fields)
}

fn told(named: &Named) -> SocketNote {
    let (local, remote) = named.addresses.map_or((None, None), |(local, remote)| (Some(local), Some(remote)));
    SocketNote {
        number: named.number,
        cookie: named.cookie,
        kind: named.kind,
        listening: false,
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
    fn this_test_has_a_loader_and_a_script_is_no_program() {
        assert_eq!(has_loader(&std::env::current_exe().unwrap()), Some(true));
        assert!(!is_static(OsStr::new("sh")));
        assert!(!is_static(OsStr::new("/proc/self/status")));
        assert!(!is_static(OsStr::new("/nowhere/at/all")));
    }
}
