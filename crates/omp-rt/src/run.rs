//! What the run is, and what it does now: how many ranks, which is this, who runs serial code, whether a region of several ranks is being run.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use polyrail_omp::area::setting;

use crate::mapping;

/// Serial code is run by every rank.
static REPLICATED: AtomicBool = AtomicBool::new(false);
/// It is being run, not the runtime for it.
static OPEN: AtomicBool = AtomicBool::new(false);
/// Rank 0: what serial code changed is being told, for a region.
static BEGINNING: AtomicBool = AtomicBool::new(false);
/// Threads of this process in the region of several that is being run; 0: none is.
static TEAM: AtomicUsize = AtomicUsize::new(0);
/// Tasks of the present region may be carried out by others than the thread that meets them.
static OFFERS: AtomicBool = AtomicBool::new(false);
/// A region of several ranks is being run.
static INSIDE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static MAIN: Cell<bool> = const { Cell::new(false) };
}

/// This rank.
pub fn rank() -> usize {
    if mapping::attached() { mapping::area().rank as usize } else { 0 }
}

/// Ranks.
pub fn size() -> usize {
    if mapping::attached() { mapping::area().size as usize } else { 1 }
}

/// Serial code runs on every rank from now on.
pub fn replicate() {
    REPLICATED.store(true, Relaxed);
}

/// Whether serial code runs on every rank.
pub fn is_replicated() -> bool {
    REPLICATED.load(Relaxed)
}

/// The calling thread is the one that runs serial code that other ranks run, too.
pub fn set_main() {
    MAIN.set(true);
}

/// Such code is being run, or not.
pub fn open(yes: bool) {
    OPEN.store(yes, Relaxed);
}

/// Whether the calling thread runs serial code that other ranks run, too.
pub fn runs_replicated() -> bool {
    OPEN.load(Relaxed) && MAIN.get()
}

/// For handlers of signals that serial code brings about.
pub fn signal_flags() -> i32 {
    if is_replicated() { libc::SA_ONSTACK } else { 0 }
}

/// Rank 0: a region of several ranks is about to begin.
pub fn begins() {
    BEGINNING.store(true, SeqCst);
}

/// A region of several ranks has begun.
pub fn enters() {
    INSIDE.store(true, SeqCst);
    BEGINNING.store(false, SeqCst);
}

/// It is over.
pub fn leaves() {
    INSIDE.store(false, SeqCst);
}

/// Rank 0: whether a region of several ranks begins, so that what other threads write may not be told with it.
pub fn is_beginning() -> bool {
    BEGINNING.load(SeqCst)
}

/// Whether a region of several ranks is being run.
pub fn is_inside() -> bool {
    INSIDE.load(SeqCst)
}

/// A region of several threads is run by so many of this process's from now on; 0: it is over.
pub fn set_team(threads: usize) {
    TEAM.store(threads, Relaxed);
}

/// Threads of this process in the region of several that is being run; 0: none is.
pub fn team() -> usize {
    TEAM.load(Relaxed)
}

/// Tasks of the present region may be carried out by others than the thread that meets them, or not.
pub fn offer_tasks(yes: bool) {
    OFFERS.store(yes, Relaxed);
}

/// Whether they may.
pub fn offers_tasks() -> bool {
    OFFERS.load(Relaxed)
}

/// Whether checkpoints are to be kept of it.
pub fn is_to_be_kept() -> bool {
    mapping::attached() && mapping::area().settings & setting::CHECKPOINTS != 0
}

/// Whether it goes on from one.
pub fn is_resumed() -> bool {
    mapping::attached() && mapping::area().settings & setting::RESUMED != 0
}

/// Where the program's words are on the main stack; 0 before `main`.
static WORDS: AtomicUsize = AtomicUsize::new(0);

/// Before `main`.
pub fn set_words(at: usize) {
    WORDS.store(at, Relaxed);
}

/// See there.
pub fn words() -> usize {
    WORDS.load(Relaxed)
}
