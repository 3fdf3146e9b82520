//! What the relay is told, and asked, while it runs: one line, one answer.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use polyrail_lab::settings;

use crate::pcap::Pcap;
use crate::relay::Relay;

/// What an answer begins with that says why nothing was done.
pub const ERROR: &str = "error: ";

impl Relay {
    /// Reads one request from `stream`, does it, and answers.
    pub fn answer(&mut self, mut stream: UnixStream) -> io::Result<()> {
        // Packets wait meanwhile, so who connects must know what it wants.
        stream.set_read_timeout(Some(Duration::from_millis(50)))?;
        let mut request = String::new();
        BufReader::new(&stream).read_line(&mut request)?;
        let answer = self.obey(request.trim()).unwrap_or_else(|why| format!("{ERROR}{why}\n"));
        stream.write_all(answer.as_bytes())
    }

    fn obey(&mut self, request: &str) -> Result<String, String> {
        match request.split_once(' ').unwrap_or((request, "")) {
            ("stats", "") => return Ok(self.stats()),
            ("blackhole", "on") => self.shapers.iter_mut().for_each(|direction| direction.blackhole(true)),
            ("blackhole", "off") => self.shapers.iter_mut().for_each(|direction| direction.blackhole(false)),
            ("pcap", "off") => self.pcap = None,
            ("pcap", path) if !path.is_empty() => {
                self.pcap = Some(Pcap::create(path).map_err(|why| format!("{path}: {why}"))?);
            }
            _ => {
                let now = self.now();
                let [a, b] = &mut self.shapers;
                let changed = settings::apply(request, &[*a.settings(), *b.settings()])?;
                a.configure(now, changed[0]);
                b.configure(now, changed[1]);
            }
        }
        Ok(String::new())
    }

    fn stats(&self) -> String {
        let mut text = String::new();
        for (name, direction) in ["a>b", "b>a"].iter().zip(&self.shapers) {
            let c = direction.counters();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} {}", direction.settings());
            let _ = writeln!(
                text,
                "    packets {} bytes {} lost {} overflowed {} vanished {} overtook {} waiting {}",
                c.packets,
                c.bytes,
                c.lost,
                c.overflowed,
                c.vanished,
                c.overtook,
                direction.waiting()
            );
        }
        text
    }
}
