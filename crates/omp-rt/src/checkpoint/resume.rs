//! Goes on from a checkpoint.

use std::ffi::CString;

use polyrail_omp::checkpoint::{Record, Segment, What};
use polyrail_omp::items::{read_numbers, unpack};
use polyrail_omp::layout::{LIBRARY_HEAP, PAGE, RESUMING};
use polyrail_omp::pages::Pages;

use super::descriptors::Descriptors;
use super::process::{self, Process};
use super::threads::{self, Storage};
use super::{jump, own, save, when};
use crate::{alloc, library, sys, track};

/// Bytes of the stack that is stood on meanwhile, which stays.
const STACK: usize = 1 << 20;

fn stop(why: &str) -> ! {
    sys::fail(format_args!("the checkpoint cannot be gone on from: {why}"))
}

/// A file of which all is mapped, at `place`, behind which the next one can be.
fn mapped(path: &str, place: &mut usize) -> &'static [u8] {
    let name = CString::new(path).unwrap_or_default();
    let bytes = sys::map_file(&name, *place).unwrap_or_else(|error| {
        stop(&format!("{path}: {}", std::io::Error::from_raw_os_error(-error as i32)))
    });
    *place += bytes.len().next_multiple_of(PAGE) + PAGE;
    bytes
}

/// All that is needed when the stack is another's.
struct Whole {
    segments: Vec<Segment<'static>>,
    sp: usize,
    process: Process,
    specifics: Vec<u64>,
    fresh: usize,
    files: Vec<&'static [u8]>,
}

/// Rank 0's first thread, before `main`, in a run that goes on from a checkpoint.
pub fn resume() -> ! {
    let place = when::place().clone().unwrap_or_default();
    let mut at = RESUMING + STACK;
    let files: Vec<&'static [u8]> =
        place.segments.iter().map(|name| mapped(&format!("{}/{name}", place.directory), &mut at)).collect();
    let segments: Vec<Segment<'static>> = files
        .iter()
        .zip(&place.segments)
        .map(|(file, name)| {
            Segment::read(file, false)
                .unwrap_or_else(|trouble| stop(&format!("{}/{name} {trouble}", place.directory)))
        })
        .collect();
    let Some(last) = segments.last() else { stop("it has no memory") };
    let of = |what: What| last.records().filter(move |record| record.what == what);
    let state = of(What::State).next().and_then(|record| read_state(record.bytes));
    let Some((sp, identity, descriptors, process, specifics)) = state else {
        stop("its state makes no sense")
    };
    check(&identity);
    let storage: Vec<Storage> = of(What::Thread)
        .map(|record| Storage {
            rank: record.number as usize,
            local: record.address as usize,
            bytes: record.bytes.to_vec(),
        })
        .collect();
    if !track::is_on_stack(sp) {
        stop("its stack is not this program's");
    }
    // threads that begin now have it from here, as they had it then
    process.block();
    if !threads::spread(&storage) {
        stop("it has other storage of threads than this program");
    }
    let restored = process.restore().and_then(|()| descriptors.restore());
    if let Err(why) = restored {
        stop(&why);
    }
    let fresh = alloc::library_high();
    let whole = Box::new(Whole { segments, sp, process, specifics, fresh, files });
    crate::raw::reserve(RESUMING, STACK);
    // SAFETY: a stack of its own, on which all that is left is done
    unsafe { sys::on_stack(RESUMING + STACK, go_on, Box::into_raw(whole) as usize) };
    stop("it came back")
}

type State = (usize, String, Descriptors, Process, Vec<u64>);

fn read_state(bytes: &[u8]) -> Option<State> {
    let [figures, identity, descriptors, process, specifics] = unpack(bytes)?.try_into().ok()?;
    let [sp] = read_numbers(&figures).try_into().ok()?;
    Some((
        sp as usize,
        String::from_utf8(identity).ok()?,
        Descriptors::read(&descriptors)?,
        Process::read(&process)?,
        read_numbers(&specifics),
    ))
}

/// The same must be loaded, at the same addresses, with the same in its files.
fn check(identity: &str) {
    let now = process::identity().unwrap_or_else(|why| stop(&why));
    if now == identity {
        return;
    }
    let differs = identity.lines().zip(now.lines()).find(|(then, now)| then != now);
    let text = differs.map_or_else(
        || "more or fewer libraries are loaded".to_owned(),
        |(then, now)| format!("\"{then}\" then, \"{now}\" now"),
    );
    stop(&format!("the program or its libraries are others than they were: {text}"));
}

/// What a record may be put back into.
fn is_own(record: &Record<'_>, ranges: &[core::ops::Range<usize>]) -> bool {
    let (from, to) = (record.address as usize, (record.address + record.length) as usize);
    from >= LIBRARY_HEAP && to <= LIBRARY_HEAP + polyrail_omp::layout::LIBRARY_HEAP_BYTES
        || ranges.iter().any(|range| range.start <= from && to <= range.end)
}

/// On a stack of its own: memory becomes what it was, and the first thread goes on.
extern "C" fn go_on(whole: usize) {
    // SAFETY: what `resume` made; it stays
    let whole: &'static Whole = unsafe { &*(whole as *const Whole) };
    let ranges = own::ranges(whole.sp);
    let mut runs = Vec::new();
    let (from, to) = own::auxiliary();
    // SAFETY: a part of the main stack
    let loaders = unsafe { core::slice::from_raw_parts(from as *const u8, to - from) }.to_vec();
    // SAFETY: the first thread is here, all others wait; nothing of the program's memory is in use
    unsafe {
        track::clear();
        for segment in &whole.segments {
            for record in segment.records() {
                let at = record.address as usize;
                let good = match record.what {
                    What::Memory => track::restore(at, record.bytes),
                    What::Zero => track::restore_zeros(at, record.length as usize),
                    _ => true,
                };
                if !good {
                    stop(&format!("{at:#x} is no memory of this program"));
                }
                if matches!(record.what, What::Memory | What::Zero) {
                    runs.push((at & !(PAGE - 1), (at + record.length as usize).next_multiple_of(PAGE)));
                }
            }
        }
        (from as *mut u8).copy_from_nonoverlapping(loaders.as_ptr(), loaders.len());
        alloc::clear_library(whole.fresh);
        let last = whole.segments.last().into_iter().flat_map(Segment::records);
        for record in last.filter(|record| record.what == What::Own) {
            if !is_own(&record, &ranges) {
                stop(&format!("{:#x} is no memory of this process", record.address));
            }
            (record.address as *mut u8).copy_from_nonoverlapping(record.bytes.as_ptr(), record.bytes.len());
        }
    }
    let error = alloc::exports::last_error();
    runs.sort_unstable();
    let mut pages = Pages::default();
    runs.into_iter().for_each(|(from, to)| pages.push(from, to));
    save::begin_with(pages);
    for file in &whole.files {
        // what is mapped is the program's when the next checkpoint looks; nobody looks at these any more
        sys::unmap(file.as_ptr().cast_mut(), file.len());
    }
    track::changes();
    // what changes from here on is not in the checkpoint
    alloc::privately(|| process::restore_specifics(&whole.specifics));
    library::resumed();
    when::again();
    whole.process.restore_signals();
    alloc::exports::error(error);
    // SAFETY: all of the stack is as it was
    unsafe { jump::back(whole.sp) }
}
