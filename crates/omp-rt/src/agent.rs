//! Requests to the agent through the shared mapping. See `polyrail_omp::area` for how all sides use it.

use core::cell::Cell;
use core::hint::spin_loop;
use core::slice;
use core::sync::atomic::{AtomicU32, Ordering};

use polyrail_omp::area::{DONE, FREE, Kind, LOCALS, REQUEST, SERVER, SLOT_DATA, Slot};
use polyrail_omp::coherence::Answer;

use crate::mapping::{self, area, area_of, at, may_spin, places, shares};
use crate::sys;

/// How often who asks looks for the answer between giving way: some 200 microseconds in all. (What time it is may be what is asked.)
const LOOKS: usize = 100;

thread_local! {
    /// The slot that this thread asks by.
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

/// Finds the agent, if there is one.
pub fn attach() {
    if mapping::attach() {
        sys::tell_of_the_end(Some(fail));
        mapping::attach_peers();
    }
}

/// The calling thread asks by slot `index` from now on.
pub fn use_slot(index: usize) {
    assert!(index < LOCALS);
    SLOT.set(index);
}

/// Asks, and waits for the answer. At most [`SLOT_DATA`] bytes of data.
/// The data of the answer are there until the thread asks again.
pub fn ask(kind: Kind, args: [u64; 6], data: &[&[u8]]) -> Answer<&'static [u8]> {
    let index = SLOT.get();
    let slot = &area().slots[index];
    let place = at(places().data(index));
    // SAFETY: the slot is this thread's, and free between its requests: the agent looks at it only between REQUEST and DONE
    unsafe {
        let mut bytes = 0;
        for part in data {
            assert!(bytes + part.len() <= SLOT_DATA);
            place.add(bytes).copy_from_nonoverlapping(part.as_ptr(), part.len());
            bytes += part.len();
        }
        *slot.kind.get() = kind as u32;
        *slot.args.get() = args;
        *slot.bytes.get() = bytes as u64;
    }
    slot.state.store(REQUEST, Ordering::SeqCst);
    area().requests.fetch_add(1, Ordering::Relaxed);
    area().asking.fetch_or(1 << index, Ordering::SeqCst);
    ring();
    wait_for_answer(&slot.state);
    slot.state.store(FREE, Ordering::Relaxed);
    // SAFETY: as above; the agent wrote no more than fits
    unsafe {
        let bytes = (*slot.bytes.get() as usize).min(SLOT_DATA);
        Answer { result: *slot.result.get(), data: slice::from_raw_parts(place, bytes) }
    }
}

/// Waits for an answer. A processor that sleeps takes longer to wake than the agent to answer.
fn wait_for_answer(state: &AtomicU32) {
    for _ in 0..if may_spin() == Some(true) { LOOKS } else { 0 } {
        for _ in 0..64 {
            if state.load(Ordering::Acquire) == DONE {
                return;
            }
            spin_loop();
        }
        // the agent may be on this processor
        sys::pause(0);
    }
    while state.load(Ordering::Acquire) != DONE {
        sys::wait(state, REQUEST);
    }
}

/// Wakes the agent that serves: there is something for it.
pub fn ring() {
    let area = if shares() { area_of(0) } else { area() };
    area.doorbell.fetch_add(1, Ordering::SeqCst);
    if area.asleep.load(Ordering::SeqCst) != 0 {
        sys::wake(&area.doorbell, 1);
    }
}

/// Tells why the run cannot go on; the agent ends this process.
fn fail(text: &str) {
    let text = &text.as_bytes()[..text.len().min(SLOT_DATA)];
    ask(Kind::Fail, [0; 6], &[text]);
}

/// What must be the same on all ranks.
pub fn same(what: u64, text: &[u8]) -> Result<(), String> {
    let answer = ask(Kind::Same, [what, 0, 0, 0, 0, 0], &[&text[..text.len().min(SLOT_DATA)]]);
    if answer.result[0] == 1 { Ok(()) } else { Err(String::from_utf8_lossy(answer.data).into_owned()) }
}

/// Rank 0's server thread: waits for the agent's next request and answers it by `f`, which takes the question and writes the answer over it.
pub fn serve(mut f: impl FnMut(&mut [u8], usize) -> usize) -> ! {
    let slot: &Slot = &area().slots[SERVER];
    let place = at(places().data(SERVER));
    loop {
        let state = slot.state.load(Ordering::Acquire);
        if state != REQUEST {
            sys::wait(&slot.state, state);
            continue;
        }
        // SAFETY: between REQUEST and DONE it is ours
        unsafe {
            let bytes = (*slot.bytes.get() as usize).min(SLOT_DATA);
            let data = slice::from_raw_parts_mut(place, SLOT_DATA);
            *slot.bytes.get() = f(data, bytes) as u64;
        }
        slot.state.store(DONE, Ordering::SeqCst);
        ring();
    }
}
