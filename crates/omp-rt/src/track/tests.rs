//! One rank's tracker, the other ranks being played: what it finds, encodes and applies is what each byte says.

use std::collections::BTreeMap;

use core::ops::ControlFlow;

use polyrail_omp::blob::{Encoder, Reader};
use polyrail_omp::coherence::bulk::{Bulk, Round};
use polyrail_omp::coherence::tracked::Encoded;
use polyrail_omp::merge::{Conflict, Refused, Twins, word};

use super::*;

type State = Tracked<Process>;

const BASE: usize = 0x6100_0000_0000;
const PAGES: usize = 200;
const STACK: usize = BASE + 0x1000_0000;
const STACK_PAGES: usize = 64;
/// Bytes of a small area that are shared, in the middle of pages that are not otherwise.
const SMALL: (usize, usize) = (BASE + 0x2000_0100, BASE + 0x2000_1080);

struct Random(u64);
impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below
    }
}

unsafe fn poke(address: usize, value: u8) {
    // SAFETY: the test's own mappings.
    unsafe { (address as *mut u8).write_volatile(value) };
}
unsafe fn peek(address: usize) -> u8 {
    // SAFETY: the test's own mappings.
    unsafe { (address as *const u8).read_volatile() }
}
fn unmap(address: usize, bytes: usize) {
    // SAFETY: the test's own mappings.
    unsafe { raw::call(libc::SYS_munmap, [address, bytes, 0, 0, 0, 0]) };
}

/// All pages that the test shares.
fn places() -> impl Iterator<Item = usize> {
    let small = SMALL.0 & !(PAGE - 1);
    (0..PAGES)
        .map(|i| BASE + i * PAGE)
        .chain((0..STACK_PAGES).map(|i| STACK + i * PAGE))
        .chain([small, small + PAGE])
        .chain((0..40).map(|i| SERIAL_HEAP + i * PAGE))
}

/// The played rank: its memory, which is as the twins where nothing is noted.
struct Other(BTreeMap<usize, Page>);
impl Other {
    fn page(&mut self, state: &State, at: usize) -> &mut Page {
        self.0.entry(at).or_insert_with(|| *state.twin(at as u64))
    }
    fn pages(&self) -> Pages {
        let mut pages = Pages::default();
        self.0.keys().for_each(|&at| pages.push(at, at + PAGE));
        pages
    }
    fn encode(&self, state: &State, pages: &Pages, range: Range<usize>, out: &mut [u8]) -> Encoded {
        let mut encoder = Encoder::new(out);
        let end = pages.each(range, |at| {
            let part = state.part(at);
            let mask = diff(&self.0[&at], state.twin(at as u64)).and(&part.unwrap_or(Mask::ALL));
            match encoder.page(at as u64, &self.0[&at], &mask, part.is_some()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(at as u64),
            }
        });
        Encoded { bytes: encoder.bytes(), frontier: end.break_value().unwrap_or(u64::MAX) }
    }
}

fn conflict(refused: Refused) -> Conflict {
    let Refused::Conflict(conflict) = refused else { panic!("{refused:?}") };
    conflict
}

/// Exchanges all: at once if there is room, or in rounds, each of which is applied when the next has been encoded; how many rounds it took.
fn exchange(state: &mut State, other: &mut Other, own: usize, room: usize) -> Result<usize, Conflict> {
    let (mut mine, mut theirs) = (vec![0; room], vec![0; room]);
    let others = other.pages();
    let encoded = state.encode(&state.pending, 0..usize::MAX, &mut mine);
    let told = other.encode(state, &others, 0..usize::MAX, &mut theirs);
    let merge = |state: &mut State, mine: &[u8], theirs: &[u8]| {
        state.merge(&if own == 0 { [mine, theirs] } else { [theirs, mine] }, own).map_err(conflict)
    };
    if encoded.frontier == u64::MAX && told.frontier == u64::MAX {
        state.done(u64::MAX);
        merge(state, &mine[..encoded.bytes], &theirs[..told.bytes])?;
        other.0.clear();
        return Ok(1);
    }
    let bytes = state.list(&mut mine, 3 + room % 7);
    if told.frontier < u64::MAX {
        let mut list = Encoder::new(&mut theirs);
        others
            .runs()
            .iter()
            .for_each(|run| list.list(run.0 as u64, ((run.1 - run.0) / PAGE) as u64).expect("room"));
        theirs.truncate(16 * others.runs().len());
    } else {
        theirs.truncate(told.bytes);
    }
    let lists: [&[u8]; 2] = if own == 0 { [&mine[..bytes], &theirs] } else { [&theirs, &mine[..bytes]] };
    let mut bulk = Bulk::new(&state.pending, &lists, room).expect("well formed");
    let mut played = Bulk::new(&others, &lists, room).expect("well formed");
    state.done(u64::MAX);
    let mut before: Option<[(Round, Vec<u8>); 2]> = None;
    for rounds in 1.. {
        let (mut mine, mut theirs) = (vec![0; room], vec![0; room]);
        let round = bulk.encode_by(&mut mine, |pages, range, out| state.encode(pages, range, out));
        let told = played.encode_by(&mut theirs, |pages, range, out| other.encode(state, pages, range, out));
        if let Some([(round, mine), (told, theirs)]) = before.replace([(round, mine), (told, theirs)]) {
            merge(state, &mine[..round.shared], &theirs[..told.shared])?;
            merge(state, &mine[round.shared..round.bytes], &theirs[told.shared..told.bytes])?;
            if !round.more && !told.more {
                let [(round, _), (told, _)] = before.expect("the last");
                assert_eq!((round.bytes, told.bytes), (0, 0));
                other.0.clear();
                return Ok(rounds);
            }
        }
    }
    unreachable!()
}

fn run(compare: bool) {
    for (address, bytes) in
        [(BASE, PAGES * PAGE), (STACK, STACK_PAGES * PAGE), (SMALL.0 & !(PAGE - 1), 2 * PAGE)]
    {
        raw::reserve(address, bytes);
    }
    let mut areas = Areas::new(vec![SMALL, (BASE, BASE + PAGES * PAGE)], None);
    let stack = (STACK, STACK + STACK_PAGES * PAGE);
    areas
        .list
        .insert(1, areas::Area { from: stack.0, to: stack.1, offset: 0, kind: Kind::Stack, watched: false });
    // Twins follow each other in the order of the list that `State` maps them by.
    let mut twins = OTHER_TWINS;
    for area in &mut areas.list {
        area.offset = twins.wrapping_sub(area.from);
        twins += area.to - area.from;
    }
    let mut random = Random(0x1234_5678_9abc_def1);
    // SAFETY: everything below is in the test's own mappings, and this thread is alone.
    unsafe {
        // What was there before it begins, as a program's data are.
        for _ in 0..3000 {
            poke(BASE + random.below(PAGES * PAGE), random.below(256) as u8);
        }
        let mut state = tracked(areas, compare);
        assert!(
            compare || state.memory.watch.is_some(),
            "this kernel cannot watch; the test of comparison says enough"
        );
        let block = alloc::allocate_in(SERIAL_HEAP, 16, 30 * PAGE).0;
        for step in 0..60 {
            if step % 3 == 0 {
                state.stack_floor(STACK + random.below(STACK_PAGES * PAGE));
            }
            let own = step % 2;
            let mut other = Other(BTreeMap::new());
            let shared: Vec<usize> = places().collect();
            let before: BTreeMap<usize, Page> = shared.iter().map(|&at| (at, *page(at))).collect();
            let (mut expected, mut changed) = (before.clone(), BTreeMap::new());
            for _ in 0..random.below(400) {
                // Mine are even bytes, theirs odd ones.
                let at = shared[random.below(shared.len())];
                let (byte, value) = (random.below(PAGE / 2) * 2, random.below(256) as u8);
                let in_heap_state = at >= SERIAL_HEAP && at < block;
                if at + byte > STACK + 1024
                    && !in_heap_state
                    && (at < BASE + 0x2000_0000 || at >= SERIAL_HEAP)
                {
                    poke(at + byte, value);
                    expected.get_mut(&at).expect("a place")[byte] = value;
                }
                if random.below(3) == 0 && state.is_shared(at + byte + 1) && !in_heap_state {
                    changed.insert((at, byte + 1), value);
                }
            }
            if step % 5 == 1 {
                // Whole pages in a row, by the other alone.
                for i in 100..150 {
                    for byte in 0..PAGE {
                        changed.insert((BASE + i * PAGE, byte), (byte * 7 + i + step) as u8);
                    }
                }
                for i in 100..150 {
                    core::ptr::copy_nonoverlapping(
                        before[&(BASE + i * PAGE)].as_ptr(),
                        (BASE + i * PAGE) as *mut u8,
                        PAGE,
                    );
                    expected.insert(BASE + i * PAGE, before[&(BASE + i * PAGE)]);
                }
            }
            state.collect();
            if step == 0 {
                // The first exchange gives the twins what was there.
                assert!(state.pending.count() >= PAGES);
            }
            // What the other changes is on top of what all agreed upon: so the first exchange is mine alone.
            if step > 0 {
                for (&(at, byte), &value) in &changed {
                    if state.is_shared(at + byte) {
                        other.page(&state, at)[byte] = value;
                        expected.get_mut(&at).expect("a place")[byte] = value;
                    }
                }
            }
            let room = [9000, 30_000, 4 << 20][random.below(3)];
            let rounds = exchange(&mut state, &mut other, own, room).expect("no byte is written by both");
            assert!(room < 1 << 20 || rounds == 1);
            for (&at, contents) in &expected {
                assert_eq!(diff(page(at), contents).first(), None, "{at:x} after step {step}");
                let shared = state.part(at).unwrap_or(Mask::ALL);
                let wrong = diff(state.twin(at as u64), contents).and(&shared);
                assert_eq!(wrong.first(), None, "the twin of {at:x} after step {step}");
            }
            if !compare {
                state.collect();
                let left = state.pending.count();
                assert!(left <= STACK_PAGES, "{left} pages are taken for written here");
            }
        }
        conflicts(&mut state);
        published(&mut state);
        state.stack_floor(STACK);
        state.memory.clear();
        state.pending = Pages::default();
        assert!((BASE..BASE + PAGES * PAGE).all(|at| peek(at) == 0));
        assert_eq!(peek(SMALL.0), 0);
        assert_eq!(alloc::high(SERIAL_HEAP), SERIAL_HEAP + crate::heap::RESERVED, "as if it had never begun");
    }
    for (address, bytes) in
        [(BASE, PAGES * PAGE), (STACK, STACK_PAGES * PAGE), (SMALL.0 & !(PAGE - 1), 2 * PAGE)]
    {
        unmap(address, bytes);
    }
    drop_twins((PAGES + STACK_PAGES + 2) * PAGE);
}

/// Nothing is applied if two ranks wrote one byte differently.
unsafe fn conflicts(state: &mut State) {
    let at = BASE + 7 * PAGE;
    // SAFETY: the test's own.
    unsafe {
        let before = *page(at);
        let mut other = Other(BTreeMap::new());
        other.page(state, at)[100] = before[100] ^ 1;
        other.page(state, at - PAGE)[3] ^= 1;
        poke(at + 100, before[100] ^ 2);
        state.collect();
        let conflict = exchange(state, &mut other, 1, 1 << 20).expect_err("a conflict");
        assert_eq!((conflict.address, conflict.ranks), ((at + 100) as u64, [0, 1]));
        assert_eq!(conflict.values[0] ^ conflict.values[1], 3 << (8 * (100 % 8)));
        assert_eq!(conflict.before, word(&before, 100));
        assert_eq!(peek(at - PAGE + 3), state.twin((at - PAGE) as u64)[3]);
        assert_eq!(state.twin(at as u64)[100], before[100]);
        poke(at + 100, before[100] ^ 1);
        state.collect();
        exchange(state, &mut other, 1, 1 << 20).expect("the same value is no conflict");
        assert_eq!(state.twin(at as u64)[100], before[100] ^ 1);
    }
}

/// What is published is in the twins at once, and what others published leaves alone what is not published here.
unsafe fn published(state: &mut State) {
    let at = BASE + 9 * PAGE;
    // SAFETY: the test's own.
    unsafe {
        poke(at + 8, !peek(at + 8));
        state.collect();
        let mut out = vec![0; 1 << 20];
        let encoded = state.publish(&mut out, &mut |_, _, _| {}, &[]);
        assert_eq!(encoded.frontier, u64::MAX);
        assert!(
            Reader::new(&out[..encoded.bytes])
                .any(|record| record.expect("well formed").address == at as u64)
        );
        assert_eq!(state.twin(at as u64)[8], peek(at + 8));
        assert_eq!(state.publish(&mut out, &mut |_, _, _| {}, &[]).bytes, 0, "once");

        let mut theirs = *state.twin(at as u64);
        theirs[16] ^= 5;
        theirs[18] ^= 5;
        let mut encoder = Encoder::new(&mut out);
        encoder.page(at as u64, &theirs, &diff(&theirs, state.twin(at as u64)), true).expect("room");
        let bytes = encoder.bytes();
        let old = peek(at + 17);
        poke(at + 17, old ^ 1);
        poke(at + 18, peek(at + 18) ^ 1);
        let conflict = self::conflict(state.apply(1, 0, &out[..bytes], &[]).expect_err("byte 18"));
        assert_eq!(conflict.address, (at + 18) as u64);
        assert_eq!(state.twin(at as u64)[16], theirs[16] ^ 5, "nothing was applied");
        poke(at + 18, theirs[18]);
        state.apply(1, 0, &out[..bytes], &[]).expect("no conflict");
        assert_eq!((peek(at + 16), peek(at + 17)), (theirs[16], old ^ 1));
        assert_eq!(state.twin(at as u64)[16..18], [theirs[16], old]);
        state.collect();
        assert!(
            state.publish(&mut out, &mut |_, _, _| {}, &[]).bytes > 0,
            "byte 17 is still to be published"
        );
    }
}

#[test]
fn what_is_agreed_upon_is_what_each_byte_says() {
    let _alone = alloc::tests::alone();
    run(true);
    run(false);
}

/// What becomes of memory that is written all over, and then is not any more.
#[test]
fn memory_that_is_written_all_over_is_compared() {
    let _alone = alloc::tests::alone();
    const HOT: usize = 0x6200_0000_0000;
    const BYTES: usize = 4 << 20;
    raw::reserve(HOT, BYTES);
    let mut state = tracked(Areas::new(vec![(HOT, HOT + BYTES)], None), false);
    let mut other = Other(BTreeMap::new());
    // SAFETY: the test's own mappings, and this thread is alone.
    unsafe {
        for step in 0..3 {
            for at in (HOT..HOT + BYTES).step_by(8) {
                *(at as *mut usize) = at * 31 + step;
            }
            state.collect();
            assert!(state.pending.count() >= BYTES / PAGE);
            exchange(&mut state, &mut other, 0, 1 << 20).expect("alone");
            assert_eq!(state.pending.count(), 0);
        }
        if state.memory.watch.is_some() {
            assert_eq!(state.memory.hot.count(), 2);
        }
        for step in 0..6 {
            let at = HOT + step * 300 * PAGE;
            poke(at + 4000, !peek(at + 4000));
            state.collect();
            other.page(&state, at)[7] = step as u8;
            other.page(&state, at + PAGE).fill(step as u8);
            exchange(&mut state, &mut other, 1, 1 << 20).expect("no byte is written by both");
            assert_eq!(*state.twin(at as u64), *page(at));
            assert_eq!(
                (peek(at + 7), peek(at + PAGE), peek(at + PAGE + 4095)),
                (step as u8, step as u8, step as u8)
            );
            assert_eq!(*state.twin((at + PAGE) as u64), *page(at + PAGE));
            if step >= 3 {
                break;
            }
        }
        for _ in 0..2 {
            state.collect();
            exchange(&mut state, &mut other, 0, 1 << 20).expect("alone");
        }
        assert_eq!(state.memory.hot.count(), 0, "watched again");
        if state.memory.watch.is_some() {
            state.collect();
            assert_eq!(state.pending.count(), 0);
            poke(HOT + BYTES - 1, 7);
            state.collect();
            assert_eq!(state.pending.count(), 1);
        }
    }
    drop_twins(BYTES);
    unmap(HOT, BYTES);
}

/// So that the next test's tracker finds their place free.
fn drop_twins(fixed: usize) {
    unmap(SERIAL_HEAP + TWIN_OFFSET, SERIAL_HEAP_BYTES);
    unmap(SLOT_HEAPS + TWIN_OFFSET, SLOTS * SLOT_HEAP_BYTES);
    unmap(OTHER_TWINS, fixed);
}

/// `cargo test --release -p polyrail-omp-rt -- --ignored --nocapture figures`
#[test]
#[ignore = "prints figures, needs 5 GB"]
fn figures() {
    let _alone = alloc::tests::alone();
    const GIB: usize = 1 << 30;
    // Processor time: the machine may be shared.
    fn seconds() -> f64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: fills what is given.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    }
    fn time<R>(name: &str, bytes: usize, f: impl FnOnce() -> R) -> R {
        let begin = seconds();
        let result = f();
        let seconds = seconds() - begin;
        println!("{name:<60}{:>10.3} ms{:>8.2} GB/s", seconds * 1e3, bytes as f64 / seconds / 1e9);
        result
    }
    fn done(state: &mut State, blobs: &[&[u8]]) -> Result<(), Conflict> {
        state.done(u64::MAX);
        state.merge(blobs, 0).map_err(conflict)
    }
    // SAFETY: the test's own memory, and this thread is alone.
    unsafe {
        let mut state = tracked(Areas::default(), false);
        let block = alloc::allocate_in(SERIAL_HEAP, 16, GIB).0;
        let touch = |step: usize, seed: usize| {
            if step == 0 {
                for at in (block..block + GIB).step_by(8) {
                    *(at as *mut f64) = at as f64 + seed as f64 * 1e-3;
                }
                return;
            }
            for at in (block..block + GIB).step_by(step) {
                ((at + 16 * (seed % 7)) as *mut u64)
                    .write_volatile((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) as u64);
            }
        };
        let mut out = vec![0u8; GIB + (64 << 20)];
        out.fill(1);
        time("touch all, for the first time", GIB, || touch(8, 0));
        time("collect all, for the first time", GIB, || state.collect());
        println!("  {} pages pending", state.pending.count());
        let mut round = |state: &mut State, what: &str| {
            let encoded = time(&format!("encode {what}"), GIB, || {
                state.encode(&state.pending, 0..usize::MAX, &mut out)
            });
            assert_eq!(encoded.frontier, u64::MAX);
            println!("  {} MB", encoded.bytes / 1_000_000);
            time(&format!("merge, of this rank: {what}"), GIB, || done(state, &[&out[..encoded.bytes]]))
                .expect("alone");
            encoded.bytes
        };
        round(&mut state, "all, twins untouched");
        (0..3).for_each(|_| time("collect, clean, huge pages", GIB, || state.collect()));
        assert_eq!(state.pending.count(), 0);
        time("touch a page in each 2 MiB", GIB, || touch(2 << 20, 1));
        time("collect", GIB, || state.collect());
        round(&mut state, "a word in each 2 MiB");
        (0..3).for_each(|_| time("collect, clean, small pages", GIB, || state.collect()));
        for (what, step) in [
            ("every word", 8),
            ("every word, a double that grows", 0),
            ("every second word", 16),
            ("a word in each page", 4096),
            ("a word in each 16th page", 65536),
        ] {
            for seed in 2..5 {
                time(&format!("touch {what}"), GIB, || touch(step, seed));
                time("collect", GIB, || state.collect());
                round(&mut state, what);
            }
        }
        let bytes = {
            touch(8, 9);
            state.collect();
            round(&mut state, "every word")
        };
        let blob = out[..bytes].to_vec();
        touch(8, 10);
        state.collect();
        let mut round = |state: &mut State, what: &str| {
            let encoded = state.encode(&state.pending, 0..usize::MAX, &mut out);
            done(state, &[&out[..encoded.bytes]]).expect("alone");
            time(&format!("merge, of another rank: {what}"), GIB, || done(state, &[&[], &blob]))
                .expect("alone");
            time("collect", GIB, || state.collect());
            println!("  {} pages pending", state.pending.count());
        };
        round(&mut state, "every word");
        round(&mut state, "every word, again");
        let other = SLOT_HEAPS + SLOT_HEAP_BYTES * 8;
        let mut moved = vec![0u8; GIB + PAGE];
        let mut encoder = Encoder::new(&mut moved);
        for at in (0..GIB).step_by(PAGE) {
            encoder.page((other + at) as u64, page(block + at), &Mask::ALL, false).expect("room");
        }
        let moved_bytes = encoder.bytes();
        alloc::seen(8);
        state.memory.refresh();
        time("merge, of another rank: every word, untouched so far", GIB, || {
            done(&mut state, &[&[], &moved[..moved_bytes]])
        })
        .expect("alone");
        drop_twins(0);
    }
}
