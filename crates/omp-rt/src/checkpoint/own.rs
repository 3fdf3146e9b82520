//! Memory of rank 0's process that ranks do not share: data of the system's libraries and what they have allocated for themselves, the first thread's storage of them, the main stack.
//!
//! The loader's are left alone, and this runtime's: they are about the process. So is what stands above the main stack for the loader (the auxiliary vector).

use core::ops::Range;

use polyrail_omp::layout::LIBRARY_HEAP;

use crate::{alloc, modules, track};

/// Of these bytes a checkpoint has all.
pub fn ranges(sp: usize) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = Vec::new();
    for module in modules::all().into_iter().filter(|module| !module.is_shared()) {
        let file = module.name.rsplit('/').next().unwrap_or_default();
        if ["ld-linux", "ld64.so", "linux-vdso"].iter().any(|name| file.starts_with(name)) || module.is_ours()
        {
            continue;
        }
        for segment in module.segments.iter().filter(|segment| segment.writable) {
            // what is fixed after the loader's work stands at the begin
            let fixed =
                module.relro.as_ref().filter(|fixed| (segment.start..segment.end).contains(&fixed.start));
            let from = fixed.map_or(segment.start, |fixed| segment.start.max(fixed.end));
            all.push(from..segment.end);
        }
        all.extend(module.local.filter(|local| !local.is_empty()));
    }
    all.push(LIBRARY_HEAP..alloc::library_high());
    let end = track::stack_end();
    let (from, to) = auxiliary();
    all.extend([sp..from, to..end]);
    all.retain(|range| !range.is_empty());
    all
}

/// Where the auxiliary vector is, as the kernel has put it (System V ABI, "Initial Process Stack"): behind the environment's pointers, whose first the C library was started with.
pub fn auxiliary() -> (usize, usize) {
    let end = track::stack_end();
    let words = crate::run::words();
    if words == 0 || words >= end {
        return (end, end);
    }
    let word = |at: usize| {
        // SAFETY: the main stack, up to where it ends
        if at + 8 <= end { unsafe { *(at as *const usize) } } else { 0 }
    };
    let behind = |from: usize| (from..end).step_by(8).find(|at| word(*at) == 0).map_or(end, |at| at + 8);
    let from = behind(behind(words));
    let to = (from..end).step_by(16).find(|at| word(*at) == 0).map_or(end, |at| at + 16);
    (from, to)
}
