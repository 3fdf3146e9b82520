//! Waiting for another rank of this host. What that does, [`Idle`] decides, as it does for the rails: at first it looks, then it gives the
//! processor away, then it sleeps until the other writes; and between, the MPI is kept going.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use polyrail_rails::{Idle, Rest};

use crate::area::Word;
use crate::library::{Asleep, Failed, progress};
use crate::room;

/// For how long the processor is given away before it is left.
const SLEEP_AFTER: Duration = Duration::from_millis(1);
/// Times that the processor is given away between two calls of the MPI.
const YIELDS: u32 = 16;
/// Who waits calls the MPI so often at least, in one wait or in several: others may wait for what it has to do.
const CALL: Duration = Duration::from_millis(1);
/// Times that the MPI is called, after it had something to do while this rank slept, until that sleeps again.
const ATTENTIVE: u32 = 1000;
/// Longest sleep: then the MPI may have something to do, for which nobody wakes this rank.
const NAP: Duration = Duration::from_millis(2);
/// How often it is looked whether the others live.
const ALIVE: Duration = Duration::from_millis(500);

thread_local! {
    static IDLE: RefCell<Idle> = RefCell::new(Idle::new(true, Some(SLEEP_AFTER)));
    static CALLED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Waits until a word is as it should be; its number then.
///
/// # Errors
/// The MPI found something wrong, or a rank of this host is gone.
#[inline]
pub fn until(word: Word<'_>, mut is: impl FnMut(u64) -> bool) -> Result<u64, Failed> {
    let number = word.number.load(Ordering::Acquire);
    if is(number) { Ok(number) } else { long(word, is) }
}

/// Calls the MPI, if it is time to. Rounds do not say when: each may have taken as long as others had the processor.
fn call_in_time() -> Result<(), Failed> {
    if CALLED.get().is_some_and(|last| last.elapsed() < CALL) { Ok(()) } else { call() }
}

fn call() -> Result<(), Failed> {
    let called = progress();
    CALLED.set(Some(Instant::now()));
    called
}

fn long(word: Word<'_>, mut is: impl FnMut(u64) -> bool) -> Result<u64, Failed> {
    let look = || word.number.load(Ordering::Acquire);
    IDLE.with_borrow_mut(|idle| {
        idle.busy();
        let (mut yields, mut attentive, mut looked, mut asleep) = (0, 0, None, None);
        loop {
            let number = look();
            if is(number) {
                return Ok(number);
            }
            if attentive > 0 {
                attentive -= 1;
                std::thread::yield_now();
                call()?;
                continue;
            }
            match idle.rest() {
                // who is waited for may need this processor
                Rest::Spin if room::crowded() => {}
                Rest::Spin => std::hint::spin_loop(),
                Rest::Yield => {
                    std::thread::yield_now();
                    idle.resumed();
                    yields += 1;
                    if yields % YIELDS == 0 && !is(look()) {
                        call()?;
                    } else {
                        call_in_time()?;
                    }
                }
                Rest::Sleep(most) => {
                    asleep.get_or_insert_with(|| Asleep::begin(word.number, false));
                    let woken = word.sleep(number, most.min(NAP));
                    idle.resumed();
                    if is(look()) {
                        call_in_time()?;
                        continue;
                    }
                    call()?;
                    // others may have woken it in vain: the word is that of several who wait
                    if woken && look() == number && asleep.take().is_some_and(Asleep::end) {
                        // the MPI had something to do, and may have more: nobody does it better than who is awake
                        attentive = ATTENTIVE;
                    }
                    if looked.get_or_insert_with(Instant::now).elapsed() > ALIVE {
                        if !room::all_live() {
                            return Err(Failed::Gone);
                        }
                        looked = Some(Instant::now());
                    }
                }
            }
        }
    })
}
