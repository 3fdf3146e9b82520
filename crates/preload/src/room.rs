//! Waiting for room in a ring that is full and cannot grow: the collector is given time before a record is lost.
//!
//! It may be slower than the program for a while, be stopped, or be gone. So a wait has an end ([`session::NAPS`]), and who has waited
//! in vain says so in the session's page: no thread waits again before the collector has begun another round. A collector that never
//! comes back costs the program that one wait; one that was killed costs none, since the kernel tells
//! by its lock.
//!
//! No signal handler runs in a thread that waits: it would find the recorder busy, and its calls would not be recorded.

use std::sync::atomic::Ordering;

use polyrail_core::trace::ring::session;

use crate::recorder;
use crate::ring::{word32, word64};
use crate::start::environment;
use crate::sys::{self, File, Text};

/// How many naps lie between two looks whether the collector's process is there.
const LOOK: u32 = 100;

/// Waits until there is room; false: there is none, and the record is lost. `page`: the session's.
#[cold]
#[inline(never)]
pub fn await_collector(page: *mut u8, has_room: impl Fn() -> bool) -> bool {
    if page.is_null() || recorder::sandboxed() || recorder::option(session::OPTION_DROP) {
        return false;
    }
    // SAFETY: the session's page stays mapped for good
    let (beat, stalled) = unsafe { (word64(page, session::AT_BEAT), word64(page, session::AT_STALLED)) };
    // SAFETY: as above
    let stop = unsafe { word32(page, session::AT_STOP) };
    let hopeless = |beat: u64| {
        [beat, session::GONE].contains(&stalled.load(Ordering::Relaxed)) || stop.load(Ordering::Relaxed) != 0
    };
    let first = beat.load(Ordering::Acquire);
    if hopeless(first) {
        return false;
    }
    let begun = sys::nanoseconds(libc::CLOCK_MONOTONIC);
    recorder::count(session::AT_WAITS, 1);
    let found = sys::quietly(|| {
        sys::undisturbed(|| {
            for nap in 0..session::NAPS {
                if nap % LOOK == 0 && collector_is_gone() {
                    stalled.store(session::GONE, Ordering::Relaxed);
                }
                if hopeless(beat.load(Ordering::Acquire)) {
                    return has_room();
                }
                sys::nap(session::NAP);
                if has_room() {
                    return true;
                }
            }
            if beat.load(Ordering::Acquire) == first {
                stalled.store(first, Ordering::Relaxed);
            }
            false
        })
    });
    recorder::count(session::AT_WAITED, sys::nanoseconds(libc::CLOCK_MONOTONIC) - begun);
    recorder::count(session::AT_VAIN, u64::from(!found));
    found
}

/// Whether nobody holds the lock on the session any more. Where the session cannot be opened, that is not known.
fn collector_is_gone() -> bool {
    let mut path = Text::<400>::new();
    path.push(environment().directory()).push(b"/session");
    File::open(path.c(), libc::O_RDONLY, 0).is_some_and(|file| file.can_be_locked())
}
