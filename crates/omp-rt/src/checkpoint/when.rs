//! Whether it is time, and what the agent says of the last one.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use polyrail_omp::area::{Kind, flag, kept};

use crate::{agent, run};

/// Milliseconds from one to the next.
static EVERY: AtomicU64 = AtomicU64::new(0);
/// Milliseconds since the process began, when it is time next.
static NEXT: AtomicU64 = AtomicU64::new(u64::MAX);
/// It was time when the last region ended.
static TIME: AtomicBool = AtomicBool::new(false);
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What the agent knows of files.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The directory.
    pub directory: String,
    /// Names of segments that this run goes on from, in order.
    pub segments: Vec<String>,
    /// Tells runs apart.
    pub run: u64,
    /// The last segment's number.
    pub sequence: u64,
}

static PLACE: Mutex<Option<Place>> = Mutex::new(None);

/// Asks the agent.
pub fn begin() {
    let answer = agent::ask(Kind::Keep, [kept::WHERE, 0, 0, 0, 0, 0], &[]);
    let [every, run, sequence, _] = answer.result;
    let mut words =
        answer.data.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let directory = words.next().unwrap_or_default();
    let segments = words.filter(|word| !word.is_empty()).collect();
    *place() = Some(Place { directory, segments, run, sequence });
    EVERY.store(every, Relaxed);
    again();
}

/// See [`Place`].
pub fn place() -> std::sync::MutexGuard<'static, Option<Place>> {
    PLACE.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// The last segment is this one now.
pub fn has_written(sequence: u64) {
    if let Some(place) = &mut *place() {
        place.sequence = sequence;
    }
}

fn now() -> u64 {
    BEGAN.elapsed().as_millis() as u64
}

/// The next one is due after the usual time.
pub fn again() {
    NEXT.store(now() + EVERY.load(Relaxed), Relaxed);
}

/// It is due soon: not with each of many short regions, as ranks must tell each other of threads then.
pub fn soon() {
    const SOON: u64 = 20;
    NEXT.store(now() + EVERY.load(Relaxed).min(SOON), Relaxed);
}

/// At the end of a region of several ranks, on each: what this rank says.
pub fn flags() -> u32 {
    if !run::is_to_be_kept() || run::rank() > 0 || !is_due() {
        return 0;
    }
    TIME.store(true, Relaxed);
    flag::KEEP
}

fn is_due() -> bool {
    now() >= NEXT.load(Relaxed)
}

/// Rank 0, behind the end of a region: whether all ranks know that it is time.
pub fn is_time() -> bool {
    run::is_to_be_kept() && if run::size() == 1 { is_due() } else { TIME.swap(false, Relaxed) }
}

/// The agent's word on the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// It is being written to the disk.
    Underway,
    /// It is there, or there is none.
    Safe,
    /// It could not be written, which the user was told.
    Lost,
}

/// Asks for it.
pub fn last() -> Last {
    match agent::ask(Kind::Keep, [kept::LAST, 0, 0, 0, 0, 0], &[]).result[0] {
        kept::UNDERWAY => Last::Underway,
        kept::SAFE => Last::Safe,
        _ => Last::Lost,
    }
}

/// Tells that a segment is written, of so many bytes; `files`: the working directory, and paths of what the program has open for writing, each ended by zero.
pub fn written(whole: bool, sequence: u64, bytes: u64, files: &[u8]) {
    agent::ask(Kind::Keep, [kept::WRITTEN, sequence, bytes, whole.into(), 0, 0], &[files]);
}

/// Tells why there is none.
pub fn refused(why: &str) {
    agent::ask(Kind::Keep, [kept::REFUSED, 0, 0, 0, 0, 0], &[why.as_bytes()]);
}
