//! Both ends of a shared-memory ring against a peer that writes anything, anywhere, at any time. The ring ends at a page that
//! cannot be touched, so that reading or writing beyond it is seen.
#![no_main]
use std::cell::LazyCell;
use std::ptr::NonNull;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use polyrail_fuzz::Input;
use polyrail_rails::shm::ring::{self, INLINE, MAX_HEADER, MAX_PAYLOAD, RingMemory, SLOTS};

const SIZE: usize = size_of::<RingMemory>();
const PAGE: usize = 4096;
/// Where the slots begin: behind three words, each with two cache lines of its own.
const AT_SLOTS: usize = 3 * 128;

/// Memory for a ring between two pages that fault.
fn guarded() -> NonNull<u8> {
    let pages = SIZE.next_multiple_of(PAGE);
    // SAFETY: a new mapping, of which only the middle is made accessible.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let base =
            libc::mmap(std::ptr::null_mut(), pages + 2 * PAGE, libc::PROT_NONE, flags, -1, 0).cast::<u8>();
        assert_eq!(libc::mprotect(base.add(PAGE).cast(), pages, libc::PROT_READ | libc::PROT_WRITE), 0);
        NonNull::new(base.add(PAGE + pages - SIZE)).expect("mapped")
    }
}

thread_local! {
    static MEMORY: LazyCell<NonNull<u8>> = const { LazyCell::new(guarded) };
}

fuzz_target!(|data: &[u8]| {
    let at = MEMORY.with(|memory| **memory);
    let write = |offset: usize, word: u64| {
        let place = (offset % SIZE) & !7;
        // SAFETY: an aligned word within the ring, of which nobody holds a reference to plain memory.
        unsafe { at.as_ptr().add(place).cast::<u64>().write_volatile(word) };
    };
    // SAFETY: the memory is as long as a ring and aligned like one, for ever; zero is an empty ring; the ends of the last
    // input are gone.
    let (mut producer, mut consumer) = unsafe {
        at.as_ptr().write_bytes(0, SIZE);
        let keep = Arc::new(());
        (ring::producer(at.cast::<RingMemory>(), keep.clone()), ring::consumer(at.cast(), keep))
    };
    let (mut head, mut copy) = (0usize, vec![0; MAX_PAYLOAD]);
    let mut input = Input(data);
    while !input.0.is_empty() {
        match input.byte() % 8 {
            0 => write(u32::from_le_bytes(input.array()) as usize, u64::from_le_bytes(input.array())),
            // one of the three words that both sides look at
            1 => write(usize::from(input.byte() % 3) * 128, u64::from_le_bytes(input.array())),
            // the word that the consumer waits for, with any lengths
            2 => {
                let lengths = u32::from_le_bytes(input.array());
                let lap = (head / SLOTS) as u64 + 1;
                write(AT_SLOTS + head % SLOTS * 64, lap << 32 | u64::from(lengths));
            }
            3 | 4 => {
                let (offset, word) =
                    (u32::from_le_bytes(input.array()) as usize, u64::from_le_bytes(input.array()));
                let Some(peeked) = consumer.peek() else { continue };
                let Ok(frame) = peeked else {
                    let _ = format!("{:?}", peeked.err());
                    continue;
                };
                let (header, len) = (frame.header.to_vec(), frame.payload.len());
                assert!(header.len() <= MAX_HEADER && len <= MAX_PAYLOAD);
                assert_eq!(frame.payload.inline().is_some(), header.len() + len <= INLINE);
                // it changes under our feet, but not what we know of it
                write(offset, word);
                assert_eq!((frame.header, frame.payload.len()), (&header[..], len));
                assert_eq!(frame.payload.copy_to(&mut copy), len);
                consumer.release();
                head += 1;
            }
            5 => {
                let (header, payload) = (usize::from(input.byte()), u16::from_le_bytes(input.array()));
                let (header, payload) = (header % (MAX_HEADER + 1), usize::from(payload) % (MAX_PAYLOAD + 1));
                let room = producer.has_room(header, payload);
                let sent =
                    producer.try_send(&copy[..header], &[&copy[..payload / 3], &copy[payload / 3..payload]]);
                // damage is found by who looks for room, and a frame may still have some
                assert!(room.is_err() || room == Ok(sent.is_ok()));
            }
            6 => match input.byte() % 4 {
                0 => consumer.arm(),
                1 => consumer.disarm(),
                2 => producer.arm(),
                _ => producer.disarm(),
            },
            _ => {
                consumer.flush();
                let _ = (producer.peer_sleeps(), consumer.peer_waits(), consumer.has_frame());
                assert!(producer.room().is_ok_and(|room| room <= SLOTS) || producer.room().is_err());
            }
        }
    }
});
