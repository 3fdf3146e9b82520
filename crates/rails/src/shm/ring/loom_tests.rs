//! Every interleaving, and every outcome that the memory model allows, of small rings: 4 slots, room for 2 long payloads.

use loom::{sync::Notify, thread};

use super::{
    memory::{Annex, Sleep, Slot},
    *,
};
use crate::primitive::{AtomicU32, AtomicU64, Line};
use crate::shm::board::Board;

// The ring is freed once both ends are dropped, as the mapping is.
struct Heap(NonNull<RingMemory>);

// SAFETY: an address.
unsafe impl Send for Heap {}
// SAFETY: the same.
unsafe impl Sync for Heap {}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: boxed by `ring`.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) })
    }
}

fn cells<const N: usize>() -> [ByteCell; N] {
    std::array::from_fn(|_| ByteCell::new())
}

fn ring() -> (Producer, Consumer) {
    let slot = |_| Slot { word: AtomicU64::new(0), body: cells() };
    let awake = || Line(Sleep { state: AtomicU32::new(0), place: AtomicU32::new(0) });
    let ring = Box::new(RingMemory {
        progress: Line(AtomicU64::new(0)),
        consumer: awake(),
        producer: awake(),
        slots: std::array::from_fn(slot),
        annexes: std::array::from_fn(|_| Annex(cells())),
        bulk: cells(),
    });
    let at = NonNull::from(Box::leak(ring));
    let heap = Arc::new(Heap(at));
    // SAFETY: the ring is empty and lives in the heap; each end is made once.
    unsafe { (producer(at, heap.clone()), consumer(at, heap)) }
}

fn check(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

fn take(c: &mut Consumer, i: u8, header: usize, payload: usize) -> bool {
    if c.peek().is_none() {
        return false;
    }
    let Some(frame) = c.peek_on() else { return false };
    let frame = frame.expect("an honest peer");
    let mut bytes = [0xff; MAX_PAYLOAD];
    assert_eq!((frame.header, frame.payload.copy_to(&mut bytes)), (&[i; MAX_HEADER][..header], payload));
    assert_eq!(bytes[..payload], [i; MAX_PAYLOAD][..payload]);
    c.release();
    true
}

fn streams(frames: u8, header: usize, payload: usize) {
    check(move || {
        let (mut p, mut c) = ring();
        let sender = thread::spawn(move || {
            for i in 0..frames {
                while p.try_send(&[i; MAX_HEADER][..header], &[&[i; MAX_PAYLOAD][..payload]]).is_err() {
                    thread::yield_now();
                }
            }
        });
        for i in 0..frames {
            while !take(&mut c, i, header, payload) {
                thread::yield_now();
            }
        }
        sender.join().unwrap();
        assert!(c.peek().is_none());
    });
}

/// More frames than slots: slots are reused only after they were copied out, and no old one is taken for new.
#[test]
fn loom_short_frames_wrap() {
    streams(SLOTS as u8 + 2, 1, INLINE - 1);
}

/// The same where the payload has no room behind its header.
#[test]
fn loom_annexes_wrap() {
    streams(SLOTS as u8 + 2, INLINE, ANNEX);
}

/// More bulk than the area holds: the same for bulk.
#[test]
fn loom_long_frames_wrap() {
    streams((BULK / MAX_PAYLOAD) as u8 + 2, 1, MAX_PAYLOAD);
}

/// A consumer that does not look at the ring is told by its board of what comes, and sleeps only when nothing is left: no frame finds
/// it asleep without ringing.
#[test]
fn loom_sleeping_consumer_is_woken() {
    check(|| {
        let (mut p, mut c) = ring();
        c.stand_at(1);
        let at = Arc::new((Notify::new(), Board::empty()));
        let owner = at.clone();
        let sender = thread::spawn(move || {
            for _ in 0..2 {
                p.try_send(&[0], &[]).unwrap();
                if p.peer_sleeps().is_some_and(|place| owner.1.mark(place)) {
                    owner.0.notify();
                }
            }
        });
        let (bell, board) = &*at;
        for _ in 0..2 {
            while !take(&mut c, 0, 1, 0) {
                c.arm();
                sleep_barrier();
                let mut told = c.has_frame();
                while !told {
                    board.sleeps(true);
                    if !board.is_marked() {
                        bell.wait();
                    }
                    board.sleeps(false);
                    board.take(|place| told |= place == 1);
                }
                c.disarm();
            }
        }
        sender.join().unwrap();
    });
}

/// The same for a producer that waits for room, and hears of it after each frame.
#[test]
fn loom_waiting_producer_is_woken() {
    waiting_producer(|c, told| {
        while !take(c, 0, 1, 0) {
            thread::yield_now();
        }
        c.flush();
        told(c);
    });
}

/// The same where it hears in the round that finds nothing.
#[test]
fn loom_waiting_producer_is_woken_once_all_is_taken() {
    waiting_producer(|c, told| {
        while !c.peek_on().is_some_and(|frame| frame.is_ok()) {
            assert!(c.peek().is_none_or(|frame| frame.is_ok()));
            told(c);
            thread::yield_now();
        }
        c.release();
    });
}

fn waiting_producer(next: fn(&mut Consumer, &dyn Fn(&mut Consumer))) {
    check(move || {
        let (mut p, mut c) = ring();
        let bell = Arc::new(Notify::new());
        let ringer = bell.clone();
        let receiver = thread::spawn(move || {
            let told = |c: &mut Consumer| {
                if c.peer_waits().is_some() {
                    ringer.notify();
                }
            };
            (0..SLOTS + 1).for_each(|_| next(&mut c, &told));
        });
        for _ in 0..SLOTS + 1 {
            while p.try_send(&[0], &[]).is_err() {
                p.arm();
                sleep_barrier();
                if p.room().unwrap() == 0 {
                    bell.wait();
                }
                p.disarm();
            }
        }
        receiver.join().unwrap();
    });
}
