//! What the kernel does to TCP connections, as it happens: its tracepoints, by tracefs, as root.
//!
//! | module | does |
//! |---|---|
//! | `tracefs` | an instance of the kernel's tracing of our own |
//! | `format`, `page` | layouts that the kernel tells, and the pages of its ring |
//! | `state`, `tcp` | what the tracepoints say |
//! | `matcher` | whose an event is, and sequence numbers from the first byte on |
//! | `record` | how an event is kept in a file |
//! | `syscalls`, `calls` | socket calls of programs that preloading cannot see, by tracepoints too |
//! | `descriptors` | which of their descriptors are sockets |
//! | `socks`, `ties` | which sockets of the kernel's these are, by what happens to them |
//! | `names` | what is known of each, and who was told |
//!
//! Events are the whole machine's, all network namespaces included. The traced sockets' are picked out here; in the kernel only the
//! busiest connections that are *not* traced are kept out of the ring, by a filter on their cookies. A filter on the traced
//! ones would be shorter and would lose the beginning of every connection, since it is set after the connection is known.
//!
//! `tcp_probe` costs some 0.3 us for each segment of the machine that arrives, 0.2 us where a filter keeps it out, and reading
//! it 0.3 us more in this thread (`tests/kernel.rs` measures it). The other events are rare.
//!
//! Sequence numbers are counted from the first byte of a connection whose way into the established state was seen: the first
//! probe after that tells the state before any acknowledgement, so its first unacknowledged byte is the first one. They wrap at 4 GiB.
//! Of other connections they are the kernel's.
//!
//! `tcp_retransmit_skb` is one event for each packet that the sender queued, up to 64 KB: `TcpRetransSegs` and
//! `tcpi_total_retrans` count the segments in it, and so are never less. (Seen: 33 events, 36 segments.) A retransmission
//! counts as one by the timer while the congestion state is 4 (loss), which the timer alone brings about.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) mod calls;
pub(crate) mod descriptors;
mod format;
mod matcher;
pub(crate) mod names;
mod page;
mod record;
mod socks;
mod state;
mod syscalls;
mod tcp;
mod ties;
mod tracefs;

pub use calls::{Program, SyscallEvent};
pub use format::{Field, Format};
pub use matcher::Counts;
pub use names::Named;
pub use page::{Events, Layout};
pub use record::{KERNEL_BYTES, KernelRecord};
pub(crate) use syscalls::NAMES;
pub use syscalls::Syscalls;
pub use tracefs::{Instance, Room, Unavailable};

use crate::diag::{Wanted, monotonic};
use matcher::Matcher;
use tcp::{Decoder, Raw};

/// At least 3700 segments of a processor, 10 ms of 500 MB/s in segments of 1448 bytes.
const ROOM: Room = Room { least: 512, all: 16 << 10 };
/// How often the busiest connections of others are looked for.
const LOOK: Duration = Duration::from_secs(2);
/// Events a second from which a connection of others is worth a filter.
const BUSY: u32 = 2000;
/// Connections in a filter, at most: each costs every event a comparison.
const FILTERED: usize = 16;

/// The tracepoints, being read.
#[derive(Debug)]
pub struct Kernel {
    instance: Instance,
    decoder: Decoder,
    names: Vec<&'static str>,
    matcher: Matcher,
    /// Read, but newer than the moment up to which all processors were read.
    ahead: Vec<Raw>,
    /// Segments of connections that nobody said are traced, since `looked`.
    busy: HashMap<u64, u32>,
    looked: Instant,
    filtered: Vec<u64>,
}

impl Kernel {
    /// Turns those tracepoints on that this kernel has.
    ///
    /// # Errors
    /// One sentence for the user: no root, no tracefs, no such tracepoints.
    pub fn open() -> Result<Kernel, Unavailable> {
        let instance = Instance::new(ROOM)?;
        let (decoder, names) = Decoder::new(&instance);
        if names.is_empty() {
            return Err(Unavailable::NoEvents(tcp::EVENTS.join(", ")));
        }
        for name in &names {
            instance.write(&format!("events/{name}/enable"), "1")?;
        }
        let matcher = Matcher::default();
        let (ahead, busy, filtered) = Default::default();
        Ok(Kernel { instance, decoder, names, matcher, ahead, busy, looked: Instant::now(), filtered })
    }

    /// The tracepoints that are on.
    pub fn events(&self) -> &[&'static str] {
        &self.names
    }

    /// The instance's directory.
    pub fn path(&self) -> &Path {
        self.instance.path()
    }

    /// This socket is traced: its events are handed out from now on, and those of the last 100 ms too.
    pub fn want(&mut self, wanted: &Wanted) {
        self.matcher.want(wanted);
        self.busy.remove(&wanted.cookie);
        if self.filtered.contains(&wanted.cookie) {
            self.filtered.retain(|cookie| *cookie != wanted.cookie);
            self.filter();
        }
    }

    /// This socket is closed, and its last events were handed out.
    pub fn forget(&mut self, cookie: u64) {
        self.matcher.forget(cookie);
    }

    /// Reads what the kernel has recorded since the last time, and hands out the wanted sockets' events in the order of time
    /// (an event that was held for want of knowledge comes after later events of other sockets). Does not block; takes as
    /// long as it takes to read rings that are full.
    ///
    /// # Errors
    /// Reading failed; the next call goes on.
    pub fn drain(&mut self, each: &mut dyn FnMut(KernelRecord)) -> io::Result<()> {
        let now = monotonic()?;
        let Kernel { instance, decoder, ahead, matcher, busy, .. } = self;
        let missed = instance.read(&mut |at, data| ahead.extend(decoder.decode(at, data)))?;
        if missed {
            matcher.missed();
        }
        // Processors were read one after the other: what one told after `now` may belong behind what another has yet to tell.
        ahead.sort_by_key(|raw| raw.at);
        let complete = ahead.partition_point(|raw| raw.at < now);
        for raw in ahead.drain(..complete) {
            if raw.cookie != 0
                && !matcher.wants(raw.cookie)
                && (busy.len() < 4096 || busy.contains_key(&raw.cookie))
            {
                *busy.entry(raw.cookie).or_default() += 1;
            }
            matcher.handle(raw);
        }
        matcher.release(now, each);
        if self.looked.elapsed() >= LOOK {
            self.look();
        }
        Ok(())
    }

    /// Keeps the busiest connections of others out of the ring.
    fn look(&mut self) {
        let enough = BUSY * LOOK.as_secs() as u32;
        let mut busiest: Vec<(u32, u64)> = self
            .busy
            .drain()
            .filter(|(_, count)| *count >= enough)
            .map(|(cookie, count)| (count, cookie))
            .collect();
        self.looked = Instant::now();
        if busiest.is_empty() {
            return;
        }
        busiest.sort_unstable_by(|a, b| b.cmp(a));
        // The newest stay: what was filtered long ago may have ended, which the filter hides.
        self.filtered.splice(0..0, busiest.into_iter().map(|(_, cookie)| cookie));
        self.filtered.truncate(FILTERED);
        self.filter();
    }

    /// Failure leaves the filter as it was or off; both are right, and only slower.
    fn filter(&self) {
        let terms: Vec<String> =
            self.filtered.iter().map(|cookie| format!("sock_cookie != {cookie}")).collect();
        let text = if terms.is_empty() { "0".into() } else { terms.join(" && ") };
        let _ = self.instance.write(&format!("events/{}/filter", tcp::PROBE), &text);
    }

    /// What became of the events that were read.
    pub fn counts(&self) -> Counts {
        self.matcher.counts()
    }

    /// Events of the machine that the kernel lost, because they were not read fast enough. Reads a file for each processor.
    pub fn lost(&self) -> u64 {
        self.instance.lost()
    }
}
