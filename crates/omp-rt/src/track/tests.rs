//! One rank's tracker, the other ranks being played: what it finds, encodes and applies is what each byte says.

use std::collections::BTreeMap;

use super::*;
use polyrail_omp::blob::Reader;

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
    fn encode(&self, state: &State, out: &mut [u8]) -> Encoded {
        let mut encoder = Encoder::new(out);
        for (&at, contents) in &self.0 {
            let part = state.part(at);
            let mask = diff(contents, state.twin(at as u64)).and(&part.unwrap_or(Mask::ALL));
            if encoder.page(at as u64, contents, &mask, part.is_some()).is_err() {
                return Encoded { bytes: encoder.bytes(), frontier: at as u64 };
            }
        }
        Encoded { bytes: encoder.bytes(), frontier: u64::MAX }
    }
}

/// Exchanges until all is agreed upon; how many rounds it took.
fn exchange(state: &mut State, other: &mut Other, own: usize, room: usize) -> Result<usize, Conflict> {
    for round in 1.. {
        let (mut mine, mut theirs) = (vec![0; room], vec![0; room]);
        let ours = state.encode(&mut mine);
        let others = other.encode(state, &mut theirs);
        let frontier = ours.frontier.min(others.frontier);
        let mut blobs = [&mine[..ours.bytes], &theirs[..others.bytes]];
        if own == 1 {
            blobs.swap(0, 1);
        }
        // SAFETY: this thread alone uses it.
        unsafe { state.merge(&blobs, own, frontier)? };
        other.0.retain(|&at, _| at as u64 >= frontier);
        if frontier == u64::MAX {
            return Ok(round);
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
        let mut state = State::new(areas, compare);
        assert!(
            compare || state.watch.is_some(),
            "this kernel cannot watch; the test of comparison says enough"
        );
        let block = alloc::allocate_in(SERIAL_HEAP, 16, 30 * PAGE).0;
        let mut floor = STACK + STACK_PAGES * PAGE;
        for step in 0..200 {
            if step % 3 == 0 {
                floor = STACK + random.below(STACK_PAGES * PAGE);
                state.stack_floor(floor);
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
        state.clear();
        assert_eq!(state.pending.count(), 0);
        assert!((BASE..BASE + PAGES * PAGE).all(|at| peek(at) == 0));
        assert_eq!(peek(SMALL.0), 0);
        assert_eq!(alloc::high(SERIAL_HEAP), SERIAL_HEAP + crate::heap::RESERVED, "as if it had never begun");
    }
    for (address, bytes) in [
        (BASE, PAGES * PAGE),
        (STACK, STACK_PAGES * PAGE),
        (SMALL.0 & !(PAGE - 1), 2 * PAGE),
        (SERIAL_HEAP + TWIN_OFFSET, SERIAL_HEAP_BYTES),
        (SLOT_HEAPS + TWIN_OFFSET, SLOTS * SLOT_HEAP_BYTES),
        (OTHER_TWINS, (PAGES + STACK_PAGES + 2) * PAGE),
    ] {
        unmap(address, bytes);
    }
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
        let encoded = state.publish(&mut out);
        assert_eq!(encoded.frontier, u64::MAX);
        assert!(
            Reader::new(&out[..encoded.bytes])
                .any(|record| record.expect("well formed").address == at as u64)
        );
        assert_eq!(state.twin(at as u64)[8], peek(at + 8));
        assert_eq!(state.publish(&mut out).bytes, 0, "once");

        let mut theirs = *state.twin(at as u64);
        theirs[16] ^= 5;
        theirs[18] ^= 5;
        let mut encoder = Encoder::new(&mut out);
        encoder.page(at as u64, &theirs, &diff(&theirs, state.twin(at as u64)), true).expect("room");
        let bytes = encoder.bytes();
        let old = peek(at + 17);
        poke(at + 17, old ^ 1);
        poke(at + 18, peek(at + 18) ^ 1);
        let conflict = state.apply(0, &out[..bytes]).expect_err("byte 18");
        assert_eq!(conflict.address, (at + 18) as u64);
        assert_eq!(state.twin(at as u64)[16], theirs[16] ^ 5, "nothing was applied");
        poke(at + 18, theirs[18]);
        state.apply(0, &out[..bytes]).expect("no conflict");
        assert_eq!((peek(at + 16), peek(at + 17)), (theirs[16], old ^ 1));
        assert_eq!(state.twin(at as u64)[16..18], [theirs[16], old]);
        state.collect();
        assert!(state.publish(&mut out).bytes > 0, "byte 17 is still to be published");
    }
}

#[test]
fn what_is_agreed_upon_is_what_each_byte_says() {
    run(true);
    run(false);
}
