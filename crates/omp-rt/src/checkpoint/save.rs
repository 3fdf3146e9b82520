//! Writes a segment: all that may have changed since the last, or all.

use std::sync::Mutex;

use polyrail_omp::area::{Count, LOCALS, SLOT_DATA};
use polyrail_omp::checkpoint::{Head, What, Writer};
use polyrail_omp::diff::{Mask, is_zero};
use polyrail_omp::items::{numbers, pack};
use polyrail_omp::layout::PAGE;
use polyrail_omp::pages::Pages;

use super::threads::{self, GATHERED, Storage};
use super::when::{self, Last};
use super::{descriptors, own, process};
use crate::stats::{self, Clock};
use crate::{alloc, raw, run, track};

/// Pages that are in the segments that there are.
#[derive(Default)]
struct Saved {
    pages: Pages,
    /// Changed since, and not written: the last segment could not be.
    missed: Pages,
    /// There is a whole segment, and all that came after it.
    begun: bool,
}

static SAVED: Mutex<Option<Saved>> = Mutex::new(None);

/// A run that goes on from a checkpoint: these pages are in it.
pub fn begin_with(pages: Pages) {
    *SAVED.lock().unwrap_or_else(|broken| broken.into_inner()) =
        Some(Saved { pages, begun: true, ..Saved::default() });
}

/// Called on the first thread's stack, which ends at `sp` for the checkpoint.
pub extern "C" fn save(sp: usize) {
    match when::last() {
        // the disk is slower than the user wants
        Last::Underway => return when::soon(),
        Last::Safe => {}
        Last::Lost => {
            let mut saved = SAVED.lock().unwrap_or_else(|broken| broken.into_inner());
            saved.get_or_insert_default().begun = false;
        }
    }
    let error = alloc::exports::last_error();
    let mut clock = Clock::start();
    // a handler would change what is being written, and the system's answer to a file that is too long is a signal
    let blocked = process::block_all();
    match try_to_save(sp, error, blocked) {
        Ok(bytes) => {
            stats::add(Count::Checkpoints, 1);
            stats::add(Count::CheckpointBytes, bytes);
        }
        Err(why) => when::refused(&why),
    }
    clock.lap(Count::CheckpointTime);
    process::block(blocked);
    when::again();
    alloc::exports::error(error);
}

/// How many bytes it has written.
fn try_to_save(sp: usize, error: i32, blocked: u64) -> Result<u64, String> {
    let storage: Vec<Storage> = match run::size() {
        1 => threads::here(),
        _ => GATHERED
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .take()
            .ok_or("threads have not told of their storage")??,
    };
    process::forget_loader_error();
    let descriptors = descriptors::look()?;
    let process = process::look(blocked)?;
    if !track::is_on_stack(sp) {
        return Err("serial code runs on another stack than the program's".into());
    }
    let written = [process.directory(), &[0], &descriptors.written()].concat();
    if written.len() > SLOT_DATA {
        return Err("too many files are open for writing".into());
    }
    let state = pack([
        &numbers(&[sp as u64])[..],
        process::identity()?.as_bytes(),
        &descriptors.bytes(),
        &process.bytes(),
        &numbers(&process::specifics()),
    ]);
    let mut saved = SAVED.lock().unwrap_or_else(|broken| broken.into_inner());
    let saved = saved.get_or_insert_default();
    let place = when::place().clone().ok_or("the agent has named no directory")?;
    let mut changed = track::changes();
    changed.add(&core::mem::take(&mut saved.missed));
    saved.pages.add(&changed);
    let whole = !saved.begun;
    let pages = if whole { &saved.pages } else { &changed };
    let head = Head { whole, run: place.run, sequence: place.sequence + 1 };
    let path = format!("{}/{}.new\0", place.directory, head.name());
    // it is a part of what is kept
    alloc::exports::error(error);
    match write(&path, head, sp, pages, &storage, &state) {
        Ok(bytes) => {
            saved.begun = true;
            when::has_written(head.sequence);
            when::written(whole, head.sequence, bytes, &written);
            Ok(bytes)
        }
        Err(error) => {
            saved.missed = changed;
            // SAFETY: a path that ends with zero
            unsafe { raw::call(libc::SYS_unlink, [path.as_ptr() as usize, 0, 0, 0, 0, 0]) };
            let error = std::io::Error::from_raw_os_error(error);
            Err(format!("{}: {error}", path.trim_end_matches('\0')))
        }
    }
}

fn write(
    path: &str,
    head: Head,
    sp: usize,
    pages: &Pages,
    storage: &[Storage],
    state: &[u8],
) -> Result<u64, i32> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    // SAFETY: a path that ends with zero
    let file = unsafe { raw::call(libc::SYS_open, [path.as_ptr() as usize, flags as usize, 0o600, 0, 0, 0]) };
    let descriptor = usize::try_from(file).map_err(|_| -file as i32)?;
    let written = write_to(descriptor, head, sp, pages, storage, state);
    // SAFETY: this function's descriptor
    let closed = unsafe { raw::call(libc::SYS_close, [descriptor, 0, 0, 0, 0, 0]) };
    if closed < 0 { Err(-closed as i32) } else { written }
}

fn write_to(
    descriptor: usize,
    head: Head,
    sp: usize,
    pages: &Pages,
    storage: &[Storage],
    state: &[u8],
) -> Result<u64, i32> {
    let mut writer = Writer::new(head, |mut bytes: &[u8]| {
        while !bytes.is_empty() {
            // SAFETY: bytes that are there
            match unsafe {
                raw::call(libc::SYS_write, [descriptor, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0])
            } {
                put @ 1.. => bytes = &bytes[put as usize..],
                error if error == -libc::EINTR as isize => {}
                0 => return Err(libc::ENOSPC),
                error => return Err(-error as i32),
            }
        }
        Ok(())
    })?;
    // pages that follow each other, until one does not: from, to, and whether they are zero
    let mut run: Option<(usize, usize, bool)> = None;
    track::look_at(pages, |at, page, part| {
        if let Some(part) = part {
            end_run(&mut writer, run.take(), head.whole)?;
            return part_of(&mut writer, at, page, part);
        }
        let zero = is_zero(page);
        match &mut run {
            Some((_, to, is)) if *to == at && *is == zero => *to = at + PAGE,
            other => {
                end_run(&mut writer, other.take(), head.whole)?;
                *other = Some((at, at + PAGE, zero));
            }
        }
        Ok(())
    })?;
    end_run(&mut writer, run, head.whole)?;
    for range in own::ranges(sp) {
        // SAFETY: this process's memory, which no other thread changes now but the server's, which waits
        let bytes = unsafe { core::slice::from_raw_parts(range.start as *const u8, range.len()) };
        writer.record(What::Own, 0, range.start as u64, bytes)?;
    }
    for thread in storage {
        const { assert!(LOCALS < u32::MAX as usize, "a rank's number and a thread's") };
        writer.record(What::Thread, thread.rank as u32, thread.local as u64, &thread.bytes)?;
    }
    writer.record(What::State, 0, 0, state)?;
    writer.end()
}

fn end_run<S: FnMut(&[u8]) -> Result<(), i32>>(
    writer: &mut Writer<S>,
    run: Option<(usize, usize, bool)>,
    whole: bool,
) -> Result<(), i32> {
    match run {
        None => Ok(()),
        Some((_, _, true)) if whole => Ok(()),
        Some((from, to, true)) => writer.zero(from as u64, (to - from) as u64),
        Some((from, to, false)) => {
            // SAFETY: pages that are shared, and mapped; no thread of the program runs
            let bytes = unsafe { core::slice::from_raw_parts(from as *const u8, to - from) };
            writer.record(What::Memory, 0, from as u64, bytes)
        }
    }
}

/// The bytes of a page that are shared.
fn part_of<S: FnMut(&[u8]) -> Result<(), i32>>(
    writer: &mut Writer<S>,
    at: usize,
    page: &[u8; PAGE],
    part: &Mask,
) -> Result<(), i32> {
    let is_shared = |byte: usize| part.0[byte / 64] >> (byte % 64) & 1 == 1;
    let mut from = 0;
    while let Some(first) = (from..PAGE).find(|byte| is_shared(*byte)) {
        let end = (first..PAGE).find(|byte| !is_shared(*byte)).unwrap_or(PAGE);
        writer.record(What::Memory, 0, (at + first) as u64, &page[first..end])?;
        from = end;
    }
    Ok(())
}
