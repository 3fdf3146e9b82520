//! What the collector knows of TCP connections, and where it asks the kernel about them.

use std::collections::HashMap;
use std::net::SocketAddr;

use polyrail_core::trace::note;
use polyrail_core::trace::{RECORD, Record};

use crate::file::Writer;
use crate::notes;

/// Connections of the processes that are recorded.
#[derive(Default)]
pub struct Tcp {
    connections: HashMap<u64, Connection>,
    warnings: Vec<String>,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The kernel's number for its socket.
    pub cookie: u64,
    /// This side.
    pub local: SocketAddr,
    /// The other side.
    pub remote: SocketAddr,
    /// Ring of the thread that told of it.
    stream: u32,
}

impl Tcp {
    /// Whether kernel events are recorded.
    pub fn kernel_events(&self) -> bool {
        false
    }

    /// What the user must know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A process appeared.
    pub fn process(&mut self, _pid: u32, _network: u64) {}

    /// Takes note of sockets in what a thread recorded.
    pub fn learn(&mut self, stream: u32, _pid: u32, records: &[u8]) {
        let mut at = 0;
        while let Some(bytes) = records.get(at..at + RECORD) {
            at += RECORD;
            let record = Record::from_bytes(bytes.try_into().expect("a slice of this length"));
            let Some(parts) = record.payload() else { continue };
            let payload = records.get(at..at + record.rest[2] as usize).unwrap_or_default();
            at += parts * RECORD;
            if record.flags == note::SOCKET
                && let Some(socket) = notes::socket(payload)
                && socket.is_tcp()
                && let (Some(local), Some(remote)) = (socket.local, socket.remote)
            {
                self.connections.insert(socket.cookie, Connection { cookie: socket.cookie, local, remote, stream });
            }
        }
    }

    /// A thread has ended.
    pub fn ended(&mut self, _stream: u32) {}

    /// Asks the kernel, if it is time to.
    pub fn sample(&mut self, _writer: &mut Writer) {}

    /// Writes what is left.
    pub fn finish(&mut self, _writer: &mut Writer) {}
}
