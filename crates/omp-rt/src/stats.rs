//! What is counted of regions: which took how long for what. See `polyrail_omp::area::Count`.

use core::ffi::CStr;
use core::sync::atomic::Ordering;
use std::time::Instant;

use polyrail_omp::area::{COUNTED, Count, Counted};

use crate::mapping;

fn current() -> &'static Counted {
    let area = mapping::area();
    &area.regions[area.region.load(Ordering::Relaxed) as usize % COUNTED]
}

/// From now on, what is counted is that region's. One thread calls it, no region being run.
pub fn region(function: usize, place: usize) {
    let area = mapping::area();
    let start = (function >> 4) % (COUNTED - 1);
    for step in 0..COUNTED - 1 {
        let index = (start + step) % (COUNTED - 1);
        let counted = &area.regions[index];
        let known = counted.function.load(Ordering::Relaxed);
        if known == 0 {
            if place != 0 {
                // SAFETY: what the compiler says is a string; nobody else writes here, and readers look at `function` first
                unsafe {
                    let text = CStr::from_ptr(place as *const libc::c_char).to_bytes();
                    let room = &mut *counted.place.get();
                    let length = text.len().min(room.len() - 1);
                    room[..length].copy_from_slice(&text[..length]);
                }
            }
            counted.function.store(function as u64, Ordering::Release);
        }
        if known == 0 || known == function as u64 {
            area.region.store(index as u32, Ordering::Relaxed);
            return;
        }
    }
    area.region.store(COUNTED as u32 - 1, Ordering::Relaxed);
}

/// Adds to a count of the current region.
pub fn add(count: Count, value: u64) {
    current().words[count as usize].fetch_add(value, Ordering::Relaxed);
}

/// Time that is being taken.
#[derive(Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Adds the time since the start, or the last lap, to a count.
    pub fn lap(&mut self, count: Count) {
        let now = Instant::now();
        add(count, now.duration_since(self.0).as_nanos() as u64);
        self.0 = now;
    }
}
