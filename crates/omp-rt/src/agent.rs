//! Requests to the agent through the shared mapping, and exchanges: by the agent, or with other ranks of the same host directly. See `polyrail_omp::area` for how all
//! sides use it.

use core::cell::Cell;
use core::hint::spin_loop;
use core::slice;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use polyrail_omp::area::{
    Area, Count, DONE, Exchange, FREE, HEADER, Header, Kind, LOCALS, REQUEST, SERVER, SLOT_DATA, Slot, flag,
};
use polyrail_omp::coherence::Answer;
use polyrail_omp::layout::peer;

use crate::mapping::{self, SPIN, area, area_of, at, may_spin, places, shares};
use crate::{stats, sys};

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

fn ring() {
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

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The out buffer of the next exchange. One thread at a time may exchange.
#[allow(clippy::mut_from_ref, reason = "the buffer is in the mapping, and belongs to who exchanges")]
pub fn out() -> &'static mut [u8] {
    let next = NUMBER.load(Ordering::Relaxed) + 1;
    let b = (next & 1) as usize;
    wait_for_readers(next.saturating_sub(2));
    // SAFETY: the buffer is the exchanging thread's until it submits, and after the exchange again
    unsafe { slice::from_raw_parts_mut(at(places().out(b)), area().blob as usize) }
}

/// Bytes that a blob may have.
pub fn blob() -> usize {
    area().blob as usize
}

/// What all ranks said in one exchange. Its bytes stay where they are until it is dropped.
pub struct Said {
    b: usize,
    number: u32,
}

impl Drop for Said {
    fn drop(&mut self) {
        if shares() {
            let Area { read, read_sleepers, .. } = area();
            tell(read, read_sleepers, self.number);
        }
    }
}

/// Sets a number that other ranks may sleep on.
fn tell(word: &AtomicU32, sleepers: &AtomicU32, number: u32) {
    word.store(number, Ordering::SeqCst);
    if sleepers.load(Ordering::SeqCst) > 0 {
        sys::wake(word, u32::MAX);
    }
}

/// Where files are shared: waits until all others have read exchange `number`, so that its buffer and header can be used again.
fn wait_for_readers(number: u64) {
    if number == 0 || !shares() {
        return;
    }
    let begun = Instant::now();
    for rank in (0..area().size as usize).filter(|rank| *rank != area().rank as usize) {
        let Area { read, read_sleepers, .. } = area_of(rank);
        wait_for(read, read_sleepers, begun, |read| read.wrapping_sub(number as u32).cast_signed() >= 0);
    }
}

impl Said {
    /// Of one rank.
    pub fn header(&self, rank: usize) -> &'static Header {
        // SAFETY: the agent, or the rank, has written it, and does not before the next but one exchange
        unsafe {
            match shares() {
                true => &*area_of(rank).exchange[self.b].header.get(),
                false => &*at(places().header(self.b, rank)).cast::<Header>(),
            }
        }
    }

    /// Of one rank; of this rank what it submitted.
    pub fn blob(&self, rank: usize) -> &'static [u8] {
        let places = places();
        let bytes = (self.header(rank).bytes.min(area().blob)) as usize;
        let place = match rank == area().rank as usize {
            true => at(places.out(self.b)),
            false if shares() => (peer(rank) + places.out(self.b)) as *mut u8,
            false => at(places.blob(self.b, rank)),
        };
        // SAFETY: as above, and inside the mapping
        unsafe { slice::from_raw_parts(place, bytes) }
    }
}

/// An exchange that is under way.
pub struct Submitted {
    b: usize,
    number: u32,
    is_round: bool,
}

/// Submits what is in [`out`], and waits for all ranks.
pub fn exchange(header: Header) -> Said {
    submit(header).wait()
}

/// Submits what is in [`out`]. What was said in the last exchange but one has been dropped.
pub fn submit(mut header: Header) -> Submitted {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    let b = (number & 1) as usize;
    let area = area();
    header.number = number;
    header.rank = area.rank;
    let Exchange { state, sleepers, header: place } = &area.exchange[b];
    wait_for_readers(number.saturating_sub(2));
    // SAFETY: free: the last exchange by this buffer is over
    unsafe { *place.get() = header };
    if shares() {
        tell(state, sleepers, number as u32);
    } else {
        state.store(REQUEST, Ordering::SeqCst);
        ring();
    }
    Submitted { b, number: number as u32, is_round: header.flags & flag::ROUND != 0 }
}

impl Submitted {
    /// Waits for all ranks.
    pub fn wait(self) -> Said {
        let Self { b, number, is_round } = self;
        if shares() {
            let begun = Instant::now();
            for rank in (0..area().size as usize).filter(|rank| *rank != area().rank as usize) {
                let Exchange { state, sleepers, .. } = &area_of(rank).exchange[b];
                wait_for(state, sleepers, begun, |submitted| submitted == number);
            }
            if !is_round {
                stats::add(Count::Waiting, begun.elapsed().as_nanos() as u64);
            }
        } else {
            let state = &area().exchange[b].state;
            while state.load(Ordering::Acquire) != DONE {
                sys::wait(state, REQUEST);
            }
            state.store(FREE, Ordering::Relaxed);
        }
        Said { b, number }
    }
}

/// Waits for another rank to set a number that is `good`; `begun`: since when.
fn wait_for(word: &AtomicU32, sleepers: &AtomicU32, begun: Instant, good: impl Fn(u32) -> bool) {
    let spins = may_spin() == Some(true);
    let mut rounds = 0_u32;
    while !good(word.load(Ordering::Acquire)) {
        rounds += 1;
        if spins && !rounds.is_multiple_of(64) {
            spin_loop();
        } else if spins && begun.elapsed() < SPIN {
            // an agent may be what the other rank waits for
            sys::pause(0);
        } else {
            sleepers.fetch_add(1, Ordering::SeqCst);
            let now = word.load(Ordering::SeqCst);
            if !good(now) {
                sys::wait(word, now);
            }
            sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }
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

const _: () = assert!(HEADER == size_of::<Header>());
