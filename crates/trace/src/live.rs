//! Connections of a run that is being recorded: reads along in its files, of all hosts that share them.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufReader, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use polyrail_core::trace::note;

use crate::blocks::{FILE_HEADER, ThreadBlock, kind};
use crate::diag::{SAMPLE_BYTES, Sample};
use crate::file::{Block, Next, Reader};
use crate::host::HostBlock;
use crate::model::TcpSample;
use crate::notes;
use crate::records::Records;

/// A connection, as it was a moment ago.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its host's name.
    pub host: String,
    /// The process that told of it first.
    pub pid: u32,
    /// That process's name.
    pub program: String,
    /// This side.
    pub local: SocketAddr,
    /// The other side.
    pub remote: SocketAddr,
    /// Bytes a second acknowledged by the other side since the last look.
    pub out: f64,
    /// Bytes a second received since the last look.
    pub into: f64,
    /// The newest sample.
    pub tcp: TcpSample,
}

/// Reads along.
#[derive(Debug)]
pub struct Live {
    run: PathBuf,
    files: BTreeMap<PathBuf, Followed>,
}

/// A file, and what was learnt from it so far.
#[derive(Debug, Default)]
struct Followed {
    offset: u64,
    host: String,
    threads: HashMap<u32, ThreadBlock>,
    connections: HashMap<u64, Seen>,
}

#[derive(Debug)]
struct Seen {
    pid: u32,
    program: String,
    local: SocketAddr,
    remote: SocketAddr,
    latest: Option<TcpSample>,
    /// What the last look ended with.
    before: Option<TcpSample>,
}

impl Live {
    /// Of this run's directory.
    pub fn new(run: &Path) -> Live {
        Live { run: run.into(), files: BTreeMap::new() }
    }

    /// Reads what has been written since, and says how all open connections are, the busiest first. `now`: monotonic clock in
    /// nanoseconds; `since`: when this was called the last time.
    pub fn look(&mut self, since: u64, now: u64) -> Vec<Row> {
        for entry in fs::read_dir(&self.run).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|end| end == "trace") {
                // a file that cannot be read is told by the report
                let _ = self.files.entry(path.clone()).or_default().read_on(&path);
            }
        }
        let seconds = now.saturating_sub(since).max(1) as f64 / 1e9;
        let mut rows: Vec<Row> = self.files.values_mut().flat_map(|file| file.rows(seconds)).collect();
        rows.sort_by(|a, b| (b.out + b.into).total_cmp(&(a.out + a.into)));
        rows
    }
}

impl Followed {
    fn read_on(&mut self, path: &Path) -> std::io::Result<()> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        self.offset = self.offset.max(FILE_HEADER as u64);
        if length <= self.offset {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut reader = Reader::from_block(BufReader::with_capacity(1 << 18, file), length - self.offset);
        let mut block = Block::default();
        while reader.next(&mut block)? == Next::Block {
            self.offset = length - reader.left();
            self.take(&block);
        }
        Ok(())
    }

    fn take(&mut self, block: &Block) {
        match block.kind {
            kind::HOST => {
                self.host = serde_json::from_slice::<HostBlock>(&block.payload).unwrap_or_default().name;
            }
            kind::THREAD => {
                if let Ok(thread) = serde_json::from_slice(&block.payload) {
                    self.threads.insert(block.stream, thread);
                }
            }
            kind::RECORDS => {
                for (record, payload) in Records::new(&block.payload) {
                    if record.call == 0 && record.flags == note::SOCKET {
                        self.learn(block.stream, payload);
                    }
                }
            }
            kind::TCP => {
                for bytes in block.payload.as_chunks::<SAMPLE_BYTES>().0 {
                    let sample = Sample::from_bytes(bytes);
                    if let Some(seen) = self.connections.get_mut(&sample.cookie) {
                        seen.before.get_or_insert(sample.tcp);
                        seen.latest = Some(sample.tcp);
                    }
                }
            }
            _ => {}
        }
    }

    fn learn(&mut self, stream: u32, payload: &[u8]) {
        let Some(told) = notes::socket(payload).filter(notes::SocketNote::is_tcp) else { return };
        if let (Some(local), Some(remote)) = (told.local, told.remote) {
            let thread = self.threads.get(&stream).cloned().unwrap_or_default();
            let seen =
                Seen { pid: thread.pid, program: thread.name, local, remote, latest: None, before: None };
            self.connections.entry(told.cookie).or_insert(seen);
        }
    }

    fn rows(&mut self, seconds: f64) -> Vec<Row> {
        // established, or half closed: what has ended is left out
        let open = |sample: &TcpSample| matches!(sample.state, 1 | 4 | 5 | 8);
        let mut rows = Vec::new();
        for seen in self.connections.values_mut() {
            let Some(tcp) = seen.latest.filter(open) else { continue };
            let before = seen.before.replace(tcp).unwrap_or(tcp);
            let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / seconds;
            rows.push(Row {
                host: self.host.clone(),
                pid: seen.pid,
                program: seen.program.clone(),
                local: seen.local,
                remote: seen.remote,
                out: rate(tcp.bytes_acked, before.bytes_acked),
                into: rate(tcp.bytes_received, before.bytes_received),
                tcp,
            });
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Writer;
    use polyrail_core::trace::Record;

    fn socket_note(cookie: u64) -> Vec<u8> {
        let mut payload = vec![0; note::SOCKET_BYTES];
        payload[8..16].copy_from_slice(&cookie.to_le_bytes());
        payload[16..22].copy_from_slice(&[2, 0, 1, 0, 6, 0]);
        payload[24..32].copy_from_slice(&[2, 0, 0x10, 0, 127, 0, 0, 1]);
        payload[52..60].copy_from_slice(&[2, 0, 0x20, 0, 127, 0, 0, 2]);
        let mut bytes = Record::note(0, note::SOCKET, payload.len() as u32).to_bytes().to_vec();
        payload.resize(payload.len().next_multiple_of(32), 0);
        bytes.extend(payload);
        bytes
    }

    fn sample(cookie: u64, state: u8, acked: u64) -> [u8; SAMPLE_BYTES] {
        Sample { cookie, tcp: TcpSample { state, bytes_acked: acked, ..TcpSample::default() } }.to_bytes()
    }

    #[test]
    fn rates_are_of_what_was_written_since_the_last_look() {
        let run = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(&run.path().join("h-1.trace")).unwrap();
        let thread = ThreadBlock { pid: 42, name: "app".into(), ..ThreadBlock::default() };
        writer.json(kind::HOST, 0, 0, &HostBlock { name: "h".into(), ..HostBlock::default() });
        writer.json(kind::THREAD, 1, 0, &thread);
        writer.block(kind::RECORDS, 1, 0, &socket_note(7));
        writer.block(kind::TCP, 0, 0, &sample(7, 1, 1000));
        writer.flush();
        let mut live = Live::new(run.path());
        let rows = live.look(0, 1_000_000_000);
        assert_eq!((rows.len(), rows[0].pid, &rows[0].program[..], &rows[0].host[..]), (1, 42, "app", "h"));
        assert_eq!(
            (rows[0].local.to_string(), rows[0].remote.to_string()),
            ("127.0.0.1:4096".into(), "127.0.0.2:8192".into())
        );
        assert_eq!(rows[0].out, 0.0);
        writer.block(kind::TCP, 0, 0, &sample(7, 1, 6000));
        writer.flush();
        assert_eq!(live.look(0, 500_000_000)[0].out, 10_000.0);
        // nothing new: at rest
        assert_eq!(live.look(0, 500_000_000)[0].out, 0.0);
        writer.block(kind::TCP, 0, 0, &sample(7, 7, 6000));
        writer.flush();
        assert!(live.look(0, 500_000_000).is_empty(), "what has ended is not shown");
    }
}
