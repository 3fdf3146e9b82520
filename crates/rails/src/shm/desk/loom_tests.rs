//! Every interleaving, and every outcome that the memory model allows, of tasks of two units on one desk.

use super::*;
use loom::cell::UnsafeCell;
use loom::thread;

const UNITS: usize = 2;

/// Where the bytes of two tasks go, a number for each unit.
struct Places([[UnsafeCell<u32>; UNITS]; 2]);

// SAFETY: loom finds accesses of two threads at a time.
unsafe impl Sync for Places {}

impl Places {
    fn new() -> Arc<Self> {
        Arc::new(Self(std::array::from_fn(|_| std::array::from_fn(|_| UnsafeCell::new(0)))))
    }

    /// Copies units of a task, which nobody else does.
    fn copy(&self, task: usize, bytes: Range<usize>) {
        for unit in bytes.start / UNIT..bytes.end.div_ceil(UNIT) {
            // SAFETY: as above.
            self.0[task][unit].with_mut(|place| unsafe { *place += 1 });
        }
    }

    fn is_whole(&self, task: usize) -> bool {
        // SAFETY: as above.
        self.0[task].iter().all(|place| place.with(|place| unsafe { *place == 1 }))
    }
}

fn ends() -> (Reader, Helper) {
    let none = || Line(AtomicU64::new(0));
    let task = Line(std::array::from_fn(|_| AtomicU64::new(0)));
    let memory: Arc<DeskMemory> = Arc::new(DeskMemory { claims: none(), task, done: none() });
    let at = NonNull::from(&*memory);
    // SAFETY: it is empty, and lives as long as either end.
    unsafe { (reader(at, memory.clone()), helper(at, memory)) }
}

fn name(task: usize) -> OpId {
    OpId { slot: task as u32, generation: 1 }
}

fn check(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

#[test]
fn all_is_copied_once_and_the_reader_sees_it() {
    check(|| {
        let (mut reader, mut helper) = ends();
        let places = Places::new();
        let theirs = places.clone();
        let helps = thread::spawn(move || {
            for _ in 0..2 {
                helper.help(|part| {
                    let start = part.offset as usize;
                    theirs.copy(part.send.slot as usize, start..start + part.len);
                    true
                });
            }
        });
        for task in 0..2 {
            reader.lay(name(task), std::ptr::null_mut(), UNITS * UNIT);
            loop {
                match reader.next(false) {
                    Next::Read(bytes) => places.copy(task, bytes),
                    Next::Wait => thread::yield_now(),
                    Next::Gone => unreachable!("it was not withdrawn"),
                    Next::Over => break,
                }
            }
            assert!(places.is_whole(task));
        }
        helps.join().unwrap();
    });
}

#[test]
fn after_a_withdrawal_nobody_writes() {
    check(|| {
        let (mut reader, mut helper) = ends();
        let places = Places::new();
        let theirs = places.clone();
        let helps = thread::spawn(move || {
            helper.help(|part| {
                let start = part.offset as usize;
                theirs.copy(0, start..start + part.len);
                true
            });
        });
        reader.lay(name(0), std::ptr::null_mut(), UNITS * UNIT);
        while !reader.withdraw() {
            thread::yield_now();
        }
        // the memory is its owner's again: loom would find somebody else in it
        places.copy(0, 0..UNITS * UNIT);
        helps.join().unwrap();
    });
}
