//! A record of packets that tcpdump and Wireshark read.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::SystemTime;

/// Where packets are recorded. An error while writing ends the record, not the rail.
pub struct Pcap(Option<BufWriter<File>>);

impl Pcap {
    /// Starts a record in `path`.
    pub fn create(path: &str) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        // nanoseconds, version 2.4, whole packets, which begin with the IP header
        for word in [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, 65_535, 101] {
            file.write_all(&word.to_ne_bytes())?;
        }
        Ok(Pcap(Some(file)))
    }

    /// Records a packet, now.
    pub fn write(&mut self, packet: &[u8]) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let length = packet.len() as u32;
        // the format's seconds wrap around in 2106
        let header = [now.as_secs() as u32, now.subsec_nanos(), length, length].map(u32::to_ne_bytes);
        self.attempt(|file| file.write_all(header.as_flattened()).and_then(|()| file.write_all(packet)));
    }

    /// Makes what was recorded visible to others.
    pub fn flush(&mut self) {
        self.attempt(BufWriter::flush);
    }

    fn attempt(&mut self, action: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        if self.0.as_mut().is_some_and(|file| action(file).is_err()) {
            self.0 = None;
        }
    }
}
