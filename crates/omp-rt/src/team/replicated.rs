//! Regions that serial code on every rank begins. Its thread on ranks above 0 runs none of them: its storage is an image of rank 0's.

use core::sync::atomic::{AtomicPtr, Ordering::*};

use super::locks;
use crate::region::Region;
use crate::sync::Word;
use crate::{output, remote, run, serial, sys};

/// A region of several threads, begun by serial code on every rank; see [`super::fork`].
pub fn fork(region: &Region<'_>, sp: usize) {
    serial::aside(|| {
        locks::begin();
        let args = serial::begin(region, sp);
        let [team, place, args @ ..] = &args[..] else { sys::fail(format_args!("a region without a team")) };
        let region = Region { team: *team, place: *place, args, ..*region };
        let spread = region.team >= run::size();
        match run::rank() {
            0 => super::run(&region),
            _ if spread => hand_over(&region),
            _ => {}
        }
        if !spread {
            // what rank 0's libraries have been given and not handed on, others' know nothing of
            output::flush_all();
            remote::end((region.function as u64) << 16 | 0xfffe, 0);
        }
        run::open(true);
    });
}

/// The region that this rank's threads are to run, and how many there were, begun and ended.
static REGION: AtomicPtr<Region<'static>> = AtomicPtr::new(core::ptr::null_mut());
static BEGUN: Word = Word::new(0);
static ENDED: Word = Word::new(0);

/// Ranks above 0: has the pool run a region, and waits for its end. The main thread runs none of it: its storage is an image of rank 0's.
fn hand_over(region: &Region<'_>) {
    let ended = ENDED.load();
    REGION.store(core::ptr::from_ref(region).cast_mut().cast(), Release);
    BEGUN.add(1);
    ENDED.until_not(ended);
}

/// Ranks above 0, number 0 of the pool: runs regions that the main thread hands over.
pub fn work() -> ! {
    for seen in 0.. {
        BEGUN.until_not(seen);
        // SAFETY: the main thread's, which waits
        super::run(unsafe { &*REGION.load(Acquire) });
        ENDED.add(1);
    }
    unreachable!("more regions than a number counts")
}
