//! The mapping that is shared with the program ([`polyrail_omp::area`]), from the agent's side. All access to it is here.
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use polyrail_omp::area::{
    Area, COUNTED, Count, DONE, Exchange, FREE, LOCALS, MAGIC, Places, REQUEST, SERVER, SLOT_DATA,
    SharedFile, Slot, VERSION, setting,
};
use polyrail_omp::layout::PAGE;

use crate::exchange::Buffers;
use crate::stats::Region;
use crate::sys;

/// Bytes of blobs that a rank's mapping may hold all together, as long as each keeps [`BLOB_LEAST`].
const BLOBS: usize = 2 << 30;
/// Bytes of a blob at most.
const BLOB_MOST: usize = 32 << 20;
/// And at least.
const BLOB_LEAST: usize = 1 << 20;

/// Bytes that a blob may have in a run of `size` ranks: large where there is room, so that an exchange needs few rounds.
pub fn blob_for(size: usize) -> usize {
    (BLOBS / (2 * (size + 1)) / PAGE * PAGE).clamp(BLOB_LEAST, BLOB_MOST)
}

/// What the agent decides about a run before the program starts.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// This rank.
    pub rank: usize,
    /// Ranks.
    pub size: usize,
    /// Threads of each.
    pub threads: usize,
    /// See [`polyrail_omp::area::setting`].
    pub settings: u32,
}

/// A thread's request, copied out of its slot.
#[derive(Debug)]
pub struct Asked {
    /// Its slot.
    pub slot: usize,
    /// A [`polyrail_omp::area::Kind`], as a number.
    pub kind: u32,
    /// Its arguments.
    pub args: [u64; 6],
    /// Its data.
    pub data: Vec<u8>,
}

/// The mapping. The program can write to all of it at any time, so nothing in it is trusted, and no reference to what is not atomic is made.
pub struct Mapping {
    base: *mut u8,
    places: Places,
    size: usize,
    blob: usize,
    file: File,
}

impl Mapping {
    /// Makes the file and fills in what does not change.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn new(facts: Facts) -> io::Result<Self> {
        let blob = blob_for(facts.size);
        let places = Places::new(facts.size, blob);
        let file = sys::memory_file(places.bytes())?;
        let base = sys::map(&file, places.bytes())?;
        let area: *mut Area = base.cast();
        // SAFETY: a new mapping of zeros that is larger than an area, and nobody else has it yet
        unsafe {
            (*area).magic = MAGIC;
            (*area).version = VERSION;
            (*area).rank = facts.rank as u32;
            (*area).size = facts.size as u32;
            (*area).threads = facts.threads as u32;
            (*area).blob = blob as u64;
            (*area).settings = facts.settings & !setting::SHARED;
            (*area).wanted.store(1, Ordering::Relaxed);
        }
        Ok(Self { base, places, size: facts.size, blob, file })
    }

    /// The mapping of another agent of this host, by its file; `None` if it is not to be had, or another's.
    pub fn of_peer(file: SharedFile, nonce: u64, facts: Facts) -> Option<Self> {
        let blob = blob_for(facts.size);
        let places = Places::new(facts.size, blob);
        let path = file.path();
        let file = File::options().read(true).write(true).open(path.trim_end_matches('\0')).ok()?;
        if file.metadata().ok()?.len() != places.bytes() as u64 {
            return None;
        }
        let base = sys::map(&file, places.shared()).ok()?;
        let mapping = Self { base, places, size: facts.size, blob, file };
        // SAFETY: in the mapping; written before the file was told
        let known = unsafe { ((*mapping.area()).magic, (*mapping.area()).rank, (*mapping.area()).nonce) };
        (known == (MAGIC, facts.rank as u32, nonce)).then_some(mapping)
    }

    /// The file as others of this host can open it.
    pub fn shared_file(&self) -> SharedFile {
        SharedFile { process: std::process::id(), descriptor: self.file.as_raw_fd().cast_unsigned() }
    }

    /// Before the program starts: what tells this file from others.
    pub fn set_nonce(&self, nonce: u64) {
        // SAFETY: in the mapping; nobody else writes it
        unsafe { (*self.area()).nonce = nonce };
    }

    /// Before the program starts: it is to map these files of all ranks, which have these nonces.
    pub fn share(&self, files: &[SharedFile], nonces: &[u64]) {
        // SAFETY: in the mapping; nobody else writes it, and there is room for as many ranks as may share
        unsafe {
            let area = &mut *self.area();
            area.files[..files.len()].copy_from_slice(files);
            area.nonces[..nonces.len()].copy_from_slice(nonces);
            // others read what is there: nothing would be sent faster if it were less
            area.settings |= setting::SHARED | setting::PLAIN;
        }
    }

    /// Low halves of the last exchange's number that the program has submitted, and of the last that it has read, where files are shared.
    pub fn exchanged(&self) -> (u32, u32) {
        let states = [0, 1].map(|b| self.exchange_state(b).load(Ordering::Acquire));
        // SAFETY: an atomic in a mapping that stays
        let read = unsafe { &(*self.area()).read }.load(Ordering::Acquire);
        let later = if states[1].wrapping_sub(states[0]).cast_signed() > 0 { states[1] } else { states[0] };
        (later, read)
    }

    /// Threads are to offer the tasks that they meet, or not.
    pub fn want(&self, yes: bool) {
        // SAFETY: an atomic in a mapping that stays
        unsafe { &(*self.area()).wanted }.store(yes.into(), Ordering::Relaxed);
    }

    /// Requests so far.
    pub fn requests(&self) -> u32 {
        // SAFETY: an atomic in a mapping that stays
        unsafe { &(*self.area()).requests }.load(Ordering::Relaxed)
    }

    /// Whether any thread waits for an answer.
    pub fn is_asking(&self) -> bool {
        (0..LOCALS).any(|index| self.state(index).load(Ordering::Acquire) == REQUEST)
    }

    /// The file, for the program.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn area(&self) -> *mut Area {
        self.base.cast()
    }

    /// What the program rings.
    pub fn doorbell(&self) -> &AtomicU32 {
        // SAFETY: an atomic in a mapping that stays
        unsafe { &(*self.area()).doorbell }
    }

    /// Whether the agent sleeps on the doorbell.
    pub fn asleep(&self) -> &AtomicU32 {
        // SAFETY: an atomic in a mapping that stays
        unsafe { &(*self.area()).asleep }
    }

    fn slot(&self, index: usize) -> *mut Slot {
        // SAFETY: in the mapping, as `index` is checked by the array
        unsafe { &raw mut (*self.area()).slots[index] }
    }

    fn state(&self, index: usize) -> &AtomicU32 {
        // SAFETY: an atomic in a mapping that stays
        unsafe { &(*self.slot(index)).state }
    }

    fn read(&self, index: usize) -> Asked {
        let slot = self.slot(index);
        // SAFETY: in the mapping; whoever set the state does not write meanwhile, and if it did, any values will do
        unsafe {
            let bytes = (*slot).bytes.get().read_volatile().min(SLOT_DATA as u64) as usize;
            let mut data = vec![0; bytes];
            data.as_mut_ptr().copy_from_nonoverlapping(self.base.add(self.places.data(index)), bytes);
            let (kind, args) = ((*slot).kind.get().read_volatile(), (*slot).args.get().read_volatile());
            Asked { slot: index, kind, args, data }
        }
    }

    fn write(&self, index: usize, data: &[u8]) {
        let bytes = data.len().min(SLOT_DATA);
        // SAFETY: in the mapping; the slot is ours at this time
        unsafe {
            self.base.add(self.places.data(index)).copy_from_nonoverlapping(data.as_ptr(), bytes);
            (*self.slot(index)).bytes.get().write_volatile(bytes as u64);
        }
    }

    /// Requests that are not in `taken` (a bit per slot) yet.
    pub fn asked(&self, taken: &mut u64) -> Vec<Asked> {
        // SAFETY: an atomic in a mapping that stays
        let asking = unsafe { &(*self.area()).asking };
        if asking.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let asking = asking.swap(0, Ordering::AcqRel) & !*taken;
        let is_request =
            |index: &usize| asking >> index & 1 == 1 && self.state(*index).load(Ordering::Acquire) == REQUEST;
        let asked: Vec<Asked> = (0..LOCALS).filter(is_request).map(|index| self.read(index)).collect();
        *taken |= asked.iter().fold(0, |bits, asked| bits | 1 << asked.slot);
        asked
    }

    /// Answers the request in slot `index`.
    pub fn answer(&self, index: usize, result: [u64; 4], data: &[u8]) {
        self.write(index, data);
        // SAFETY: in the mapping; the slot is ours until its state says otherwise
        unsafe { (*self.slot(index)).result.get().write_volatile(result) };
        self.state(index).store(DONE, Ordering::Release);
        sys::futex_wake(self.state(index));
    }

    /// Has the program's server do what a thread of `rank` asks for.
    pub fn serve(&self, rank: usize, slot: usize, kind: u32, args: [u64; 6], data: &[u8]) {
        self.write(SERVER, data);
        let server = self.slot(SERVER);
        // SAFETY: in the mapping; the slot is ours until its state says otherwise
        unsafe {
            (*server).kind.get().write_volatile(kind);
            (*server).args.get().write_volatile(args);
            (*server).result.get().write_volatile([rank as u64, slot as u64, 0, 0]);
        }
        self.state(SERVER).store(REQUEST, Ordering::Release);
        sys::futex_wake(self.state(SERVER));
    }

    /// The server's answer, if it is there.
    pub fn served(&self) -> Option<([u64; 4], Vec<u8>)> {
        if self.state(SERVER).load(Ordering::Acquire) != DONE {
            return None;
        }
        let data = self.read(SERVER).data;
        // SAFETY: in the mapping; any values will do
        let result = unsafe { (*self.slot(SERVER)).result.get().read_volatile() };
        self.state(SERVER).store(FREE, Ordering::Release);
        Some((result, data))
    }

    fn exchange(&self, b: usize) -> *mut Exchange {
        // SAFETY: in the mapping, as `b` is checked by the array
        unsafe { &raw mut (*self.area()).exchange[b] }
    }

    /// The state of exchange `b`.
    pub fn exchange_state(&self, b: usize) -> &AtomicU32 {
        // SAFETY: an atomic in a mapping that stays
        unsafe { &(*self.exchange(b)).state }
    }

    /// Where exchange `b` has its parts.
    pub fn buffers(&self, b: usize) -> Buffers {
        let at = |offset: usize| self.base.wrapping_add(offset);
        Buffers {
            // SAFETY: in the mapping
            header: unsafe { (*self.exchange(b)).header.get() },
            out: at(self.places.out(b)),
            headers: at(self.places.header(b, 0)),
            blobs: (0..self.size).map(|rank| at(self.places.blob(b, rank))).collect(),
            limit: self.blob,
        }
    }

    /// The function of the region that the program runs, or ran last; 0 if there was none.
    pub fn region(&self) -> u64 {
        // SAFETY: atomics in a mapping that stays
        let area = unsafe { &*self.area() };
        let region = area.regions.get(area.region.load(Ordering::Relaxed) as usize);
        region.map_or(0, |region| region.function.load(Ordering::Acquire))
    }

    /// What the runtime has counted.
    pub fn counted(&self) -> Vec<Region> {
        // SAFETY: atomics, and text that is written once before its function, in a mapping that stays
        let regions = unsafe { &(*self.area()).regions };
        let mut used = Vec::new();
        for region in regions {
            let words: Vec<u64> = region.words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
            if words.iter().all(|word| *word == 0) {
                continue;
            }
            let function = region.function.load(Ordering::Acquire);
            // SAFETY: as above
            let place = unsafe { region.place.get().read() };
            let place = place.split(|byte| *byte == 0).next().unwrap_or_default();
            used.push(Region { function, place: String::from_utf8_lossy(place).into(), words });
        }
        used
    }

    /// Counts that the program waited for other ranks, in the region that it runs.
    pub fn count_waiting(&self, time: Duration) {
        // SAFETY: atomics in a mapping that stays
        let area = unsafe { &*self.area() };
        let region = area.region.load(Ordering::Relaxed) as usize % COUNTED;
        area.regions[region].words[Count::Waiting as usize]
            .fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

const _: () = assert!(LOCALS <= 64, "a bit per slot");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_once_and_answered() {
        let mapping = Mapping::new(Facts { rank: 1, size: 2, threads: 3, settings: 0 }).unwrap();
        let mut taken = 0;
        // SAFETY: an atomic in a mapping that stays
        let asking = unsafe { &(*mapping.area()).asking };
        assert!(mapping.asked(&mut taken).is_empty());
        mapping.write(2, b"question");
        mapping.state(2).store(REQUEST, Ordering::Release);
        asking.store(u64::MAX, Ordering::Release);
        let asked = mapping.asked(&mut taken);
        assert_eq!((asked.len(), asked[0].slot, &asked[0].data[..]), (1, 2, &b"question"[..]));
        asking.store(u64::MAX, Ordering::Release);
        assert!(mapping.asked(&mut taken).is_empty());
        mapping.answer(2, [1, 2, 3, 4], b"answer");
        assert_eq!(mapping.state(2).load(Ordering::Acquire), DONE);
        assert_eq!(mapping.read(2).data, b"answer");
    }

    #[test]
    fn a_file_is_known_by_its_nonce_and_rank() {
        let facts = Facts { rank: 1, size: 2, threads: 3, settings: 0 };
        let mapping = Mapping::new(facts).unwrap();
        mapping.set_nonce(77);
        let file = mapping.shared_file();
        let peer = Mapping::of_peer(file, 77, facts).expect("it can be had");
        mapping.exchange_state(1).store(u32::MAX, Ordering::Release);
        assert_eq!(peer.exchanged(), (0, 0));
        mapping.exchange_state(0).store(1 << 31, Ordering::Release);
        assert_eq!(peer.exchanged(), (u32::MAX, 0));
        assert!(Mapping::of_peer(file, 78, facts).is_none());
        assert!(Mapping::of_peer(file, 77, Facts { rank: 0, ..facts }).is_none());
        assert!(Mapping::of_peer(SharedFile { descriptor: 0, ..file }, 77, facts).is_none());
    }

    #[test]
    fn a_length_that_is_no_length_is_cut() {
        let mapping = Mapping::new(Facts { rank: 0, size: 1, threads: 1, settings: 0 }).unwrap();
        // SAFETY: a new mapping that nobody else has
        unsafe { (*mapping.slot(0)).bytes.get().write(u64::MAX) };
        assert_eq!(mapping.read(0).data.len(), SLOT_DATA);
    }

    #[test]
    fn blobs_shrink_as_ranks_become_many() {
        assert_eq!((blob_for(1), blob_for(8), blob_for(1024)), (BLOB_MOST, BLOB_MOST, BLOB_LEAST));
        assert!(blob_for(100).is_multiple_of(PAGE) && blob_for(100) < BLOB_MOST);
    }
}
