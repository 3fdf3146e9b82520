//! What is shared with the agent, and with other ranks of the same host: mappings of the agents' files. See `polyrail_omp::area` for how all sides use them.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use polyrail_omp::area::{Area, FD, MAGIC, Places, VERSION, setting};
use polyrail_omp::layout::{AREA, peer};

use crate::{raw, sys};

/// How long who waits for others looks whether they have come, giving way to whoever can run, before it sleeps.
pub const SPIN: Duration = Duration::from_micros(1000);

static MAPPED: AtomicPtr<Area> = AtomicPtr::new(null_mut());

/// Whether there is an agent.
pub fn attached() -> bool {
    !MAPPED.load(Ordering::Relaxed).is_null()
}

/// A child of the program's has no agent: it is alone, with threads of its own.
pub fn detach() {
    MAPPED.store(null_mut(), Ordering::Release);
    sys::tell_of_the_end(None);
}

/// Maps what the agent handed over, if it did; whether it did.
pub fn attach() -> bool {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a place for the answer; a descriptor that may not be one; an address that nobody else uses, by our layout
    unsafe {
        if raw::call(libc::SYS_fstat, [FD as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) != 0 {
            return false;
        }
        let length = stat.assume_init().st_size as usize;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at =
            raw::call(libc::SYS_mmap, [AREA, length, protection as usize, flags as usize, FD as usize, 0]);
        if at != AREA as isize || length < size_of::<Area>() {
            sys::fail(format_args!("the mapping of the agent cannot be had at {AREA:#x} ({at})"));
        }
        raw::call(libc::SYS_close, [FD as usize, 0, 0, 0, 0, 0]);
        let area = AREA as *mut Area;
        if (*area).magic != MAGIC || (*area).version != VERSION {
            sys::fail(format_args!("the runtime and the agent are not of one build"));
        }
        MAPPED.store(area, Ordering::Release);
    }
    true
}

/// Maps what other ranks of this host share, if all ranks are on it.
pub fn attach_peers() {
    if shares() {
        (0..area().size as usize).filter(|rank| *rank != area().rank as usize).for_each(attach_peer);
    }
}

/// Maps the file of another rank of this host, as both agents have found that it can be.
fn attach_peer(rank: usize) {
    let path = area().files[rank].path();
    let bytes = places().shared();
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: a path that ends with zero; an address that nobody else uses, by our layout; a descriptor of our own
    let it = unsafe {
        let file = raw::call(
            libc::SYS_open,
            [path.as_ptr() as usize, (libc::O_RDWR | libc::O_CLOEXEC) as usize, 0, 0, 0, 0],
        );
        let at = raw::call(
            libc::SYS_mmap,
            [peer(rank), bytes, protection as usize, flags as usize, file as usize, 0],
        );
        if file < 0 || at != peer(rank) as isize {
            sys::fail(format_args!(
                "what rank {rank} shares on this host cannot be had: error {} of {} (POLYRAIL_OMP_SHM=0 does without)",
                -file.min(at),
                path.trim_end_matches('\0')
            ));
        }
        raw::call(libc::SYS_close, [file as usize, 0, 0, 0, 0, 0]);
        area_of(rank)
    };
    if (it.magic, it.rank as usize, it.nonce) != (MAGIC, rank, area().nonces[rank]) {
        sys::fail(format_args!("{} is not what rank {rank} shares", path.trim_end_matches('\0')));
    }
}

/// Whether each thread of all ranks of this host has a processor; nothing without an agent.
pub fn may_spin() -> Option<bool> {
    attached().then(|| area().settings & setting::SPIN != 0)
}

/// Whether all ranks are on this host and see each other's mappings.
pub fn shares() -> bool {
    area().settings & setting::SHARED != 0
}

/// A rank's mapping, where files are shared.
pub fn area_of(rank: usize) -> &'static Area {
    if rank == area().rank as usize {
        return area();
    }
    // SAFETY: mapped for good by `attach_peer`; what is not atomic in it is read when it does not change
    unsafe { &*(peer(rank) as *const Area) }
}

/// What is shared with the agent; there must be one.
pub fn area() -> &'static Area {
    // SAFETY: mapped for good by `attach`; what is not atomic in it was written before the program began, or is in cells
    unsafe { &*MAPPED.load(Ordering::Relaxed) }
}

/// Where the layout has what.
pub fn places() -> Places {
    let area = area();
    Places::new(area.size as usize, area.blob as usize)
}

/// What the layout has at `offset`.
pub fn at(offset: usize) -> *mut u8 {
    (AREA + offset) as *mut u8
}

/// Whether threads are to offer the tasks that they meet.
pub fn wants_tasks() -> bool {
    let area = if shares() { area_of(0) } else { area() };
    area.wanted.load(Ordering::Relaxed) != 0
}
