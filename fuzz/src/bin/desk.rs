//! Both ends of the desks by which a long read is shared, against a peer that writes anything, anywhere, at any time; and, as long as
//! nobody does, whether each byte is copied once.
#![no_main]
use std::ptr::NonNull;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use polyrail_core::frame::OpId;
use polyrail_fuzz::Input;
use polyrail_rails::shm::desk::{self, DESKS, DeskMemory, Next, Readers};

/// Longest task: one byte of bookkeeping for each of its bytes.
const MOST: usize = 3 << 20;

/// A task that was laid: its name, and how often each byte was copied.
struct Task {
    name: OpId,
    copied: Vec<u8>,
}

fuzz_target!(|data: &[u8]| {
    let words = vec![[0u128; 8]; DESKS * size_of::<DeskMemory>().div_ceil(128) + 1];
    let keep: Arc<Vec<[u128; 8]>> = Arc::new(words);
    let start = keep.as_ptr().cast::<u8>();
    let start = start.wrapping_add(start.align_offset(128)).cast::<DeskMemory>().cast_mut();
    let desks: [NonNull<DeskMemory>; DESKS] =
        std::array::from_fn(|at| NonNull::new(start.wrapping_add(at)).expect("allocated"));
    let write = |offset: usize, word: u64| {
        let place = offset % (DESKS * size_of::<DeskMemory>()) & !7;
        // SAFETY: an aligned word within the desks, of which nobody holds a reference to plain memory.
        unsafe { start.cast::<u8>().add(place).cast::<u64>().write_volatile(word) };
    };
    // SAFETY: aligned, all zero, and kept; one end of each kind.
    let mut readers = Readers::new(desks.map(|at| unsafe { desk::reader(at, keep.clone()) }));
    // SAFETY: as above.
    let mut helpers = desks.map(|at| unsafe { desk::helper(at, keep.clone()) });
    let mut tasks: [Option<Task>; DESKS] = [const { None }; DESKS];
    let (mut honest, mut names) = (true, 0);
    let mut input = Input(data);
    while !input.0.is_empty() {
        let what = input.byte();
        let desk = usize::from(what >> 3) % DESKS;
        match what % 8 {
            0 => {
                honest = false;
                write(u16::from_le_bytes(input.array()) as usize, u64::from_le_bytes(input.array()));
            }
            // the three words that the sides look at
            1 => {
                honest = false;
                write(
                    desk * size_of::<DeskMemory>() + usize::from(input.byte() % 3) * 128,
                    u64::from_le_bytes(input.array()),
                );
            }
            2 => {
                let len = u32::from_le_bytes(input.array()) as usize % MOST;
                names += 1;
                let name = OpId { slot: names, generation: !names };
                if let Some(desk) = readers.lay(name, std::ptr::null_mut(), len) {
                    tasks[desk] = Some(Task { name, copied: vec![0; len] });
                }
            }
            3 | 4 => {
                let Some(task) = &mut tasks[desk] else { continue };
                match readers.next(desk, what & 0x80 != 0) {
                    Next::Read(bytes) => {
                        assert!(!bytes.is_empty(), "a part of nothing");
                        task.copied[bytes].iter_mut().for_each(|count| *count = count.saturating_add(1));
                    }
                    Next::Wait => assert!(!honest, "the helper is done with what it took"),
                    Next::Gone => assert!(!honest, "it was not withdrawn"),
                    Next::Over => {
                        let failed = task.copied.iter().any(|count| *count != 1);
                        assert!(!honest || !failed, "not once");
                        tasks[desk] = None;
                    }
                }
            }
            5 | 6 => {
                let can = what & 0x80 == 0;
                let mut taken = false;
                let _ = helpers[desk].help(|part| {
                    if honest {
                        let task = tasks[desk].as_mut().expect("it was laid");
                        assert_eq!((part.send, part.to), (task.name, part.offset));
                        let bytes = part.offset as usize..part.offset as usize + part.len;
                        task.copied[bytes].iter_mut().for_each(|count| *count += u8::from(can));
                    }
                    taken = true;
                    can
                });
                // what of its parts was copied before is read again
                honest &= can || !taken;
            }
            _ => {
                let over = readers.withdraw(desk..desk + 1);
                assert!(over || !honest);
                if over {
                    tasks[desk] = None;
                }
            }
        }
    }
});
