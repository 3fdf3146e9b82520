//! What happens to peers and lanes, for programs to read: one JSON object per line (`docs/events.md`).
//!
//! A worker keeps its last events for `polyrail top` and, where `POLYRAIL_LOG` asks for it, appends them to a log. Nothing is
//! put into words before somebody wants them. A log that fails is switched off, said so once, and disturbs nobody: a line is one
//! `write` that does not wait, so that processes can share a file, a pipe or a terminal.

use crate::bounded::{FEW, bounded};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Once;
use std::time::{Duration, SystemTime};

/// The version of what is written.
pub const VERSION: u32 = 1;

/// The longest line, newline included, in bytes: a pipe takes so many at once or none (`PIPE_BUF`).
pub const LINE_MAX: usize = 4096;

/// Most characters of a reason.
const WHY_MAX: usize = 1000;

/// What somebody wants to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Peers and lanes that come and go.
    #[default]
    Info,
    /// Also what changes by itself all the time: choices and estimates.
    Debug,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Wireup with a peer is done.
    #[default]
    PeerUp,
    /// A peer is lost, cannot be reached, or has closed its endpoint.
    PeerGone,
    /// A lane carries.
    LaneUp,
    /// A lane has ended.
    LaneDown,
    /// A lane could not be opened.
    LaneRefused,
    /// What a lane did not deliver travels again by others.
    LaneResend,
    /// Small messages go by another lane.
    ChoiceChanged,
    /// A lane is thought to be twice or half as fast as it was.
    EstimateChanged,
    /// A lane has another composition of micro-protocols.
    CompositionChanged,
    /// A lane was to have another composition, and has not.
    CompositionRefused,
    /// One that this version does not know.
    #[serde(other)]
    Unknown,
}

impl Kind {
    /// Who wants to hear of it.
    pub const fn level(self) -> Level {
        match self {
            Self::ChoiceChanged | Self::EstimateChanged | Self::Unknown => Level::Debug,
            _ => Level::Info,
        }
    }

    /// Its name in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PeerUp => "peer_up",
            Self::PeerGone => "peer_gone",
            Self::LaneUp => "lane_up",
            Self::LaneDown => "lane_down",
            Self::LaneRefused => "lane_refused",
            Self::LaneResend => "lane_resend",
            Self::ChoiceChanged => "choice_changed",
            Self::EstimateChanged => "estimate_changed",
            Self::CompositionChanged => "composition_changed",
            Self::CompositionRefused => "composition_refused",
            Self::Unknown => "unknown",
        }
    }
}

/// One end of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Side {
    /// The network interface, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// IP and port (of what could not be opened the IP alone).
    pub address: String,
}

/// How messages up to some length travel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Protocol {
    /// The longest, in bytes; none: all that are longer than those of the protocols before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_bytes: Option<u64>,
    /// `eager`, `rget`, `rput` or `fragments`.
    pub name: String,
    /// The longest fragment, in bytes, of `fragments`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment_bytes: Option<u64>,
}

/// What was measured of a path, and the limits that were passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Packets that are lost, of a million.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_per_million: Option<u64>,
    /// The limit of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_limit_per_million: Option<u64>,
    /// The round trip without queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// Bytes under way at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight_bytes: Option<u64>,
    /// The limit of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight_limit_bytes: Option<u64>,
}

/// One event, field by field as in `docs/events.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// [`VERSION`]; another one means that fields mean something else.
    pub v: u32,
    /// When: RFC 3339, UTC, microseconds.
    pub time: String,
    /// Who wants to hear of it.
    pub level: Level,
    /// What happened.
    pub event: Kind,
    /// The process that tells.
    pub pid: u32,
    /// The name of its host.
    pub host: String,
    /// Its endpoint: the first eight digits of its identity.
    pub endpoint: String,
    /// The peer: the first eight digits of its identity.
    pub peer: String,
    /// Where the peer listens, as its address says; empty while its address is not known.
    #[serde(deserialize_with = "bounded::<_, _, FEW>")]
    pub peer_addresses: Vec<String>,
    /// The peer's or the lane's rail: shm, tcp or udp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rail: Option<String>,
    /// Number of the lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<u16>,
    /// The lane's end on this side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near: Option<Side>,
    /// The lane's other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<Side>,
    /// Whether what travels by the lane is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Number of the lane that small messages took before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_lane: Option<u16>,
    /// Protocol per size.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::<_, _, FEW>")]
    pub protocols: Vec<Protocol>,
    /// Frames that travel again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// Their bytes, headers included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What a lane was thought to get through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_bytes_per_s: Option<u64>,
    /// What it is thought to get through now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_bytes_per_s: Option<u64>,
    /// The composition that was in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_composition: Option<String>,
    /// The one that takes its place, or was to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_composition: Option<String>,
    /// Whether the peer wanted that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_peer: Option<bool>,
    /// What had this side want it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
    /// Why, in a sentence.
    pub why: String,
}

impl Record {
    /// The line that is written, newline included; at most [`LINE_MAX`] bytes.
    pub fn line(&self) -> String {
        let json = |record: &Self| serde_json::to_string(record).map(|text| text + "\n").unwrap_or_default();
        let line = json(self);
        if line.len() <= LINE_MAX {
            return line;
        }
        // a reason of control characters would be six times as long when written; addresses are at most a handful
        let why = self.why.chars().filter(|c| !c.is_control()).take(WHY_MAX / 2).collect();
        json(&Self { why, peer_addresses: Vec::new(), ..self.clone() })
    }
}

/// A reason, made short enough for a line.
pub(crate) fn shortened(mut why: String) -> String {
    if let Some((at, _)) = why.char_indices().nth(WHY_MAX) {
        why.truncate(at);
        why.push('…');
    }
    why
}

/// A moment as RFC 3339 writes it, in UTC, with microseconds.
pub(crate) fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let micros = since.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// The Gregorian date so many days after 1 January 1970. Years begin in March here, so that the leap day is their last.
fn civil(days: u64) -> (u64, u64, u64) {
    // 0000-03-01 is 719468 days before 1970-01-01; the calendar repeats every 400 years
    let (era, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let (calendar, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (400 * era + year + next, calendar, day - first + 1)
}

/// This host's name.
pub(crate) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".into(), |name| name.trim().into())
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard error.
    Stderr,
    /// A file, as [`LogTo::path`] names it.
    File(String),
}

/// What `POLYRAIL_LOG` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTo {
    /// Where it goes.
    pub target: Target,
    /// How much.
    pub level: Level,
}

impl LogTo {
    /// Reads `PATH|stderr[:LEVEL]`.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (target, level) = match text.rsplit_once(':') {
            Some((target, "info")) => (target, Level::Info),
            Some((target, "debug")) => (target, Level::Debug),
            // a directory may have a colon in its name
            Some((_, level)) if !level.contains('/') => {
                return Err(format!("no level is called {level:?}; there are info and debug"));
            }
            _ => (text, Level::Info),
        };
        if target.is_empty() {
            return Err("it names no file, nor stderr".into());
        }
        let mut rest = target;
        while let Some((_, after)) = rest.split_once('%') {
            if !after.starts_with(['p', 'h', '%']) {
                return Err(format!("{target:?}: after % there must be p (process), h (host), or another %"));
            }
            rest = &after[1..];
        }
        let target = if target == "stderr" { Target::Stderr } else { Target::File(target.into()) };
        Ok(Self { target, level })
    }

    /// The file's name for one process on one host.
    pub fn path(pattern: &str, pid: u32, host: &str) -> String {
        let mut name = String::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            match (c, if c == '%' { chars.next() } else { None }) {
                (_, Some('p')) => name += &pid.to_string(),
                (_, Some('h')) => name += &host.replace('/', "_"),
                (c, _) => name.push(c),
            }
        }
        name
    }
}

/// An open log.
pub(crate) struct Log {
    pub level: Level,
    /// None: standard error.
    file: Option<File>,
}

impl Log {
    /// Opens it. One that cannot be opened is told on standard error, once in a process, and left out.
    pub fn open(to: &LogTo) -> Option<Self> {
        let file = match &to.target {
            Target::Stderr => None,
            Target::File(pattern) => {
                let path = LogTo::path(pattern, std::process::id(), &host_name());
                // a pipe that nobody reads is an error, not a wait
                let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
                let opened = OpenOptions::new().append(true).create(true).custom_flags(flags).open(&path);
                Some(opened.map_err(|why| complain(&format!("{path}: {why}"))).ok()?)
            }
        };
        Some(Self { level: to.level, file })
    }

    /// Appends a line. False: nothing more can be written.
    pub fn write(&self, line: &str) -> bool {
        let fd = self.file.as_ref().map_or(libc::STDERR_FILENO, AsRawFd::as_raw_fd);
        let ready = crate::sys::wait_for(fd, libc::POLLOUT, Duration::ZERO);
        let written = match ready {
            // a pipe that is full: the line is left out
            false => return true,
            true => without_signals(|| match &self.file {
                Some(file) => (&mut &*file).write(line.as_bytes()),
                None => io::stderr().write(line.as_bytes()),
            }),
        };
        match written {
            Ok(_) => true,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => true,
            Err(why) => {
                if fd != libc::STDERR_FILENO {
                    complain(&why.to_string());
                }
                false
            }
        }
    }
}

fn complain(why: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let line = format!("polyrail: POLYRAIL_LOG: {why}; events are not logged\n");
        let _ = without_signals(|| io::stderr().write(line.as_bytes()));
    });
}

/// Does what may raise SIGPIPE (a pipe without a reader) or SIGXFSZ (a file that may not grow) so that it does not: the program
/// would die of them.
fn without_signals<T>(write: impl FnOnce() -> T) -> T {
    // SAFETY: plain calls on sets of this frame. A signal that was pending before stays so: it is not taken away, nor are those
    // that the program has blocked itself.
    unsafe {
        let [mut ours, mut before, mut pending]: [libc::sigset_t; 3] = std::mem::zeroed();
        libc::sigemptyset(&raw mut ours);
        libc::sigpending(&raw mut pending);
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            if libc::sigismember(&raw const pending, signal) == 0 {
                libc::sigaddset(&raw mut ours, signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ours, &raw mut before);
        let result = write();
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        while libc::sigtimedwait(&raw const ours, std::ptr::null_mut(), &raw const now) > 0 {}
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
