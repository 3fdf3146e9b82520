use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    collections::VecDeque,
};

use proptest::prelude::*;

use super::{memory::Slot, *};
use crate::primitive::membarrier_registered as registered;

/// A ring on the heap, and its bytes for whoever wants to damage them.
struct Heap(NonNull<RingMemory>);

// SAFETY: an address.
unsafe impl Send for Heap {}
// SAFETY: the same.
unsafe impl Sync for Heap {}

impl Heap {
    fn bytes(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated by `ring` with this layout.
        unsafe { dealloc(self.bytes(), Layout::new::<RingMemory>()) }
    }
}

fn ring() -> (Arc<Heap>, Producer, Consumer) {
    // SAFETY: the layout is not empty; zero is an empty ring; each end is made once.
    unsafe {
        let at = NonNull::new(alloc_zeroed(Layout::new::<RingMemory>()).cast()).unwrap();
        let heap = Arc::new(Heap(at));
        let (p, c) = (producer(at, heap.clone()), consumer(at, heap.clone()));
        (heap, p, c)
    }
}

fn take(c: &mut Consumer) -> Option<(Vec<u8>, Vec<u8>)> {
    let frame = c.peek()?.expect("an honest peer");
    let mut payload = vec![0; frame.payload.len()];
    frame.payload.copy_to(&mut payload);
    let header = frame.header.to_vec();
    c.release();
    Some((header, payload))
}

#[test]
fn frames_of_every_size_arrive() {
    let (_, mut p, mut c) = ring();
    let bytes: Vec<u8> = (0..MAX_PAYLOAD).map(|i| (i * 7) as u8).collect();
    let lens = (0..200).chain([1000, 4095, 4096, LONG, LONG + 1, LONG + 17, MAX_PAYLOAD - 1, MAX_PAYLOAD]);
    for (i, len) in lens.enumerate() {
        let (header, payload) = (&bytes[..i % (MAX_HEADER + 1)], &bytes[..len]);
        p.try_send(header, &[&payload[..len / 3], &payload[len / 3..]]).unwrap();
        assert_eq!(take(&mut c), Some((header.to_vec(), payload.to_vec())));
    }
    assert_eq!(take(&mut c), None);
}

#[test]
fn full_ring_refuses_and_recovers() {
    let (_, mut p, mut c) = ring();
    for _ in 0..SLOTS {
        p.try_send(b"h", &[b"x"]).unwrap();
    }
    assert_eq!(p.try_send(b"h", &[]), Err(SendError::Full));
    assert_eq!(p.room(), Ok(0));
    take(&mut c).unwrap();
    assert_eq!(p.room(), Ok(0), "progress is published lazily");
    c.flush();
    assert_eq!(p.room(), Ok(1));
    p.try_send(b"h", &[b"x"]).unwrap();
    for _ in 0..SLOTS {
        take(&mut c).unwrap();
    }
    assert!(c.peek().is_none());
    assert_eq!(p.room(), Ok(SLOTS));
}

#[test]
fn quarter_of_the_bulk_is_published_unasked() {
    let (_, mut p, mut c) = ring();
    let payload = vec![7; MAX_PAYLOAD];
    while p.try_send(b"", &[&payload]).is_ok() {}
    assert!(!p.has_room(0, MAX_PAYLOAD).unwrap() && p.has_room(48, 8).unwrap());
    take(&mut c).unwrap();
    assert!(p.has_room(0, MAX_PAYLOAD).unwrap());
}

#[test]
fn empty_ring_takes_the_longest_payload_wherever_it_stands() {
    for skip in (0..BULK).step_by(BULK_UNIT * 5) {
        let (_, mut p, mut c) = ring();
        let mut left = skip;
        while left > 0 {
            let len = left.min(MAX_PAYLOAD);
            p.try_send(&[0; MAX_HEADER], &[&vec![1; len]]).unwrap();
            take(&mut c).unwrap();
            left -= len;
        }
        assert!(c.peek().is_none());
        p.try_send(b"", &[&vec![9; MAX_PAYLOAD]]).unwrap();
        assert_eq!(take(&mut c).unwrap().1, vec![9; MAX_PAYLOAD]);
    }
}

#[test]
fn peeking_twice_shows_the_same_frame() {
    let (_, mut p, mut c) = ring();
    p.try_send(b"a", &[]).unwrap();
    p.try_send(b"b", &[]).unwrap();
    assert_eq!(c.peek().unwrap().unwrap().header, b"a");
    assert_eq!(c.peek().unwrap().unwrap().header, b"a");
    c.release();
    c.release();
    assert_eq!(c.peek().unwrap().unwrap().header, b"b", "a second release frees nothing");
}

#[test]
fn short_payload_is_a_copy_and_a_long_one_is_not() {
    let (_, mut p, mut c) = ring();
    p.try_send(&[0; 48], &[&[1; 8]]).unwrap();
    p.try_send(&[0; 48], &[&[1; 9]]).unwrap();
    assert_eq!(c.peek().unwrap().unwrap().payload.inline(), Some(&[1; 8][..]));
    c.release();
    assert_eq!(c.peek().unwrap().unwrap().payload.inline(), None);
}

#[test]
fn copies_of_a_part() {
    let (_, mut p, mut c) = ring();
    let bytes: Vec<u8> = (0..100).collect();
    p.try_send(b"h", &[&bytes]).unwrap();
    let payload = c.peek().unwrap().unwrap().payload;
    let mut part = [0; 10];
    assert_eq!(payload.copy_to(&mut part), 10);
    assert_eq!(part[..], bytes[..10]);
    // SAFETY: the destination is ten bytes long.
    unsafe { payload.copy_to_raw(part.as_mut_ptr(), 90, 10) };
    assert_eq!(part[..], bytes[90..]);
}

#[test]
#[should_panic = "beyond the payload"]
fn copying_past_the_payload_is_refused() {
    let (_, mut p, mut c) = ring();
    p.try_send(b"h", &[&[0; 100]]).unwrap();
    let payload = c.peek().unwrap().unwrap().payload;
    // SAFETY: refused before anything is copied.
    unsafe { payload.copy_to_raw([0; 8].as_mut_ptr(), usize::MAX, 8) };
}

#[test]
#[should_panic = "frame of"]
fn too_long_a_payload_is_the_callers_mistake() {
    let (_, mut p, _c) = ring();
    let _ = p.try_send(b"", &[&vec![0; MAX_PAYLOAD + 1]]);
}

#[test]
fn one_sleep_is_rung_for_once() {
    let (_, mut p, mut c) = ring();
    p.try_send(b"1", &[]).unwrap();
    assert_eq!(p.peer_sleeps(), None);
    c.stand_at(7);
    for _ in 0..3 {
        c.arm();
        p.try_send(b"2", &[]).unwrap();
        assert_eq!(p.peer_sleeps(), Some(7));
        assert_eq!(p.peer_sleeps(), None);
        c.disarm();
        assert_eq!(p.peer_sleeps(), None);
    }
}

#[test]
fn producer_waiting_for_room_is_woken_when_there_is_some() {
    let (_, mut p, mut c) = ring();
    while p.try_send(b"x", &[]).is_ok() {}
    p.stand_at(9);
    p.arm();
    assert_eq!(c.peer_waits(), None, "nothing was freed yet");
    take(&mut c).unwrap();
    assert_eq!(c.peer_waits(), None);
    c.flush();
    assert_eq!((c.peer_waits(), c.peer_waits()), (Some(9), None));
    assert_eq!(p.room(), Ok(1));
}

#[test]
fn barriers_of_the_sleeper_make_the_senders_light() {
    let (_, mut p, _c) = ring();
    assert_eq!(p.peer_sleeps(), None);
    assert_eq!(p.consumer.remote, registered());
}

#[test]
fn damage_is_named() {
    let write = |offset: usize, value: u64| {
        let (heap, p, c) = ring();
        // SAFETY: offsets are of aligned words within the ring.
        unsafe { heap.bytes().add(offset).cast::<u64>().write(value) };
        (p, c)
    };
    let slot = std::mem::offset_of!(RingMemory, slots);
    let read = |value| write(slot, value).1.peek().map(|r| r.err());
    assert_eq!(read(7 << 32), Some(Some(Corrupt::Lap { expected: 0, found: 7 })));
    assert_eq!(read(word(1, 49, 0)), Some(Some(Corrupt::HeaderLength(49))));
    assert_eq!(read(word(1, 0, MAX_PAYLOAD + 1)), Some(Some(Corrupt::PayloadLength(MAX_PAYLOAD + 1))));
    assert_eq!(write(0, 5).0.room(), Err(Corrupt::SlotProgress(5)));
    assert_eq!(write(0, 5 << 32).0.room(), Err(Corrupt::BulkProgress(5)));
}

#[test]
fn progress_backwards_is_damage() {
    let (heap, mut p, mut c) = ring();
    for _ in 0..10 {
        p.try_send(b"", &[]).unwrap();
        take(&mut c).unwrap();
    }
    c.flush();
    assert_eq!(p.room(), Ok(SLOTS));
    // SAFETY: the progress word is the first.
    unsafe { heap.bytes().cast::<u64>().write(9) };
    assert_eq!(p.room(), Err(Corrupt::SlotProgress(9)));
}

/// Positions far on: the published halves and the lap numbers wrap.
#[test]
fn counters_wrap() {
    let (heap, mut p, mut c) = ring();
    let (frames, bytes) = (u64::from(u32::MAX) * SLOTS as u64 - 3, (3 << 32) - BULK as u64);
    (p.tail, p.tail_limit) = (frames, frames + SLOTS as u64);
    (p.bulk_tail, p.bulk_limit) = (bytes, bytes + BULK as u64);
    (c.head, c.head_published, c.bulk_head, c.bulk_published) = (frames, frames, bytes, bytes);
    // SAFETY: the ring holds SLOTS words at these places; nobody else is looking.
    unsafe {
        heap.bytes().cast::<u64>().write(u64::from(frames as u32) | bytes << 32);
        let slots = heap.bytes().add(std::mem::offset_of!(RingMemory, slots));
        for i in 0..SLOTS as u64 {
            let last = frames - SLOTS as u64 + (i + SLOTS as u64 - frames % SLOTS as u64) % SLOTS as u64;
            slots.add(i as usize * size_of::<Slot>()).cast::<u64>().write(word(lap(last), 0, 0));
        }
    }
    for i in 0..3 * SLOTS {
        p.try_send(&[i as u8], &[&[i as u8; 700]]).unwrap();
        assert_eq!(take(&mut c), Some((vec![i as u8], vec![i as u8; 700])));
        if i % 3 == 0 {
            assert_eq!(take(&mut c), None);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send { header: usize, payload: usize, pieces: usize },
    Take(usize),
    Flush,
    Prepare,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let payload = prop_oneof![4 => 0..64usize, 2 => 0..2000usize, 1 => 0..=MAX_PAYLOAD];
    let send = (0..=MAX_HEADER, payload, 1..4usize).prop_map(|(header, payload, pieces)| Step::Send {
        header,
        payload,
        pieces,
    });
    let step = prop_oneof![8 => send, 3 => (1..6usize).prop_map(Step::Take), 1 => Just(Step::Flush), 1 => Just(Step::Prepare)];
    prop::collection::vec(step, 1..1500)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_a_queue(steps in steps()) {
        let (_, mut p, mut c) = ring();
        let mut oracle: VecDeque<(Vec<u8>, Vec<u8>)> = VecDeque::new();
        for (i, step) in steps.into_iter().enumerate() {
            match step {
                Step::Send { header, payload, pieces } => {
                    let bytes: Vec<u8> = (0..payload).map(|k| (k * 31 + i) as u8).collect();
                    let head = vec![i as u8; header];
                    let parts: Vec<&[u8]> = bytes.chunks(payload.div_ceil(pieces).max(1)).collect();
                    let had_room = p.has_room(header, payload).unwrap();
                    let sent = p.try_send(&head, &parts);
                    prop_assert_eq!(sent.is_ok(), had_room);
                    prop_assert!(sent.is_ok() || !oracle.is_empty(), "an empty ring takes every frame");
                    if sent.is_ok() {
                        oracle.push_back((head, bytes));
                    }
                }
                Step::Take(n) => for _ in 0..n {
                    prop_assert_eq!(c.has_frame(), !oracle.is_empty());
                    prop_assert_eq!(take(&mut c), oracle.pop_front());
                },
                Step::Flush => c.flush(),
                Step::Prepare => p.prepare(),
            }
            prop_assert!(oracle.len() <= SLOTS);
        }
    }

    /// Whatever the peer writes, both ends stay within the ring and do not panic.
    #[test]
    fn garbage_is_harmless(writes in prop::collection::vec((0..SLOTS, 0..9usize, word_like()), 1..400)) {
        let (heap, mut p, mut c) = ring();
        let slots = std::mem::offset_of!(RingMemory, slots);
        let bulk = heap.bytes().wrapping_add(std::mem::offset_of!(RingMemory, bulk));
        let mut sink = vec![0; MAX_PAYLOAD];
        for (i, (at, kind, value)) in writes.into_iter().enumerate() {
            let at = match kind {
                0 => [0, 128, 256][at % 3],
                1..=3 => slots + at * 64,
                4 => slots + c.head as usize % SLOTS * 64,
                // The word that the consumer waits for, with any lengths: the most an attacker gets through.
                _ => {
                    let value = (value & 0x3fff_ffff) | u64::from(lap(c.head)) << 32;
                    // SAFETY: a slot's word.
                    unsafe { heap.bytes().add(slots + c.head as usize % SLOTS * 64).cast::<u64>().write(value) };
                    0
                }
            };
            // SAFETY: an aligned word within the ring.
            unsafe { heap.bytes().add(at).cast::<u64>().write(value) };
            if let Some(Ok(frame)) = c.peek() {
                prop_assert!(frame.header.len() <= MAX_HEADER && frame.payload.len() <= MAX_PAYLOAD);
                if let Place::Shared(from, len, _) = frame.payload.place {
                    let within = |area: usize, size| {
                        let offset = (from as usize).wrapping_sub(area);
                        offset < size && offset + len <= size
                    };
                    let annexes = bulk as usize - SLOTS * ANNEX;
                    prop_assert!(within(bulk as usize, BULK) || within(annexes, SLOTS * ANNEX));
                }
                frame.payload.copy_to(&mut sink);
                c.release();
            }
            let _ = p.try_send(&sink[..i % 49], &[&sink[..i * 83 % MAX_PAYLOAD]]);
            let _ = (p.peer_sleeps(), c.peer_waits(), c.has_frame(), p.room());
        }
    }
}

fn word_like() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0..4u64, 0..64u64, 0..40000u64)
            .prop_map(|(lap, header, payload)| lap << 32 | header << 24 | payload),
    ]
}
