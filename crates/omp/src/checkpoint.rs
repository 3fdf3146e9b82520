//! Files of checkpoints (docs/omp.md, "Checkpoints").
//!
//! A directory has a *manifest*, [`MANIFEST`], which is renamed into its place when all that it names is on the disk, and *segments* of memory. The first segment that a manifest names is
//! whole: what is in none of its records is zero. Each further one has what changed since the one before. State and threads are the last one's.
//!
//! ```text
//! segment:  "polyckpt" | version: u32 | whole: u32 | run: u64 | sequence: u64 | records | end
//! record:   what: u32 | number: u32 | address: u64 | bytes: u64 | bytes, but of Zero
//! end:      a record whose bytes are XXH3-128 of all that stands before it
//! manifest: "polyckpm" | version: u64 | items (see `Manifest::bytes`) | XXH3-128 of all that stands before
//! ```
//! Numbers are little endian; nothing is aligned.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use twox_hash::XxHash3_128;

use crate::items::{numbers, pack, read_numbers, unpack};

/// The manifest's name in its directory.
pub const MANIFEST: &str = "checkpoint";
/// Changes with every change of what is written here, or of what the runtime writes into [`What::State`].
pub const VERSION: u32 = 1;

/// What names of segments begin with.
pub const WHOLE: &str = "whole.";
/// See [`WHOLE`].
pub const CHANGES: &str = "changes.";

const SEGMENT: [u8; 8] = *b"polyckpt";
const OF_MANIFEST: [u8; 8] = *b"polyckpm";
const HEADER: usize = 32;
const RECORD: usize = 24;
const HASH: usize = 16;

/// What a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum What {
    /// Memory that ranks share, from the address on.
    Memory = 1,
    /// So many bytes of it are zero.
    Zero = 2,
    /// Memory of rank 0's process alone.
    Own = 3,
    /// The storage of a thread: the number is its rank's, the address its number there.
    Thread = 4,
    /// All else, as the runtime writes it.
    State = 5,
    /// The end.
    End = 6,
}

impl What {
    fn of(number: u32) -> Option<Self> {
        let all = [Self::Memory, Self::Zero, Self::Own, Self::Thread, Self::State, Self::End];
        all.into_iter().find(|what| *what as u32 == number)
    }
}

/// Which segment it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What is in none of its records is zero.
    pub whole: bool,
    /// Tells runs apart.
    pub run: u64,
    /// Segments of a run are counted from 1.
    pub sequence: u64,
}

impl Head {
    fn bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&SEGMENT);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::from(self.whole).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.run.to_le_bytes());
        bytes[24..].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    /// The name of the segment's file.
    pub fn name(self) -> String {
        format!("{}{}", if self.whole { WHOLE } else { CHANGES }, self.sequence)
    }
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it is of.
    pub what: What,
    /// See [`What`].
    pub number: u32,
    /// Where.
    pub address: u64,
    /// How many bytes it is of.
    pub length: u64,
    /// These; none of [`What::Zero`].
    pub bytes: &'a [u8],
}

/// Writes a segment piece by piece.
pub struct Writer<S> {
    sink: S,
    small: Vec<u8>,
    hash: XxHash3_128,
    written: u64,
}

/// Pieces from so many bytes on are handed on as they are.
const LARGE: usize = 16 << 10;
const SMALL: usize = 64 << 10;

impl<E, S: FnMut(&[u8]) -> Result<(), E>> Writer<S> {
    /// Begins a segment, which `sink` takes.
    pub fn new(head: Head, sink: S) -> Result<Self, E> {
        let mut new =
            Self { sink, small: Vec::with_capacity(SMALL + LARGE), hash: XxHash3_128::new(), written: 0 };
        new.put(&head.bytes())?;
        Ok(new)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), E> {
        self.hash.write(bytes);
        self.written += bytes.len() as u64;
        if bytes.len() < LARGE {
            self.small.extend_from_slice(bytes);
            if self.small.len() < SMALL {
                return Ok(());
            }
        }
        if !self.small.is_empty() {
            (self.sink)(&self.small)?;
            self.small.clear();
        }
        if bytes.len() >= LARGE { (self.sink)(bytes) } else { Ok(()) }
    }

    fn head(&mut self, what: What, number: u32, address: u64, length: u64) -> Result<(), E> {
        let mut head = [0; RECORD];
        head[..4].copy_from_slice(&(what as u32).to_le_bytes());
        head[4..8].copy_from_slice(&number.to_le_bytes());
        head[8..16].copy_from_slice(&address.to_le_bytes());
        head[16..].copy_from_slice(&length.to_le_bytes());
        self.put(&head)
    }

    /// A record.
    ///
    /// # Errors
    /// The sink's.
    pub fn record(&mut self, what: What, number: u32, address: u64, bytes: &[u8]) -> Result<(), E> {
        self.head(what, number, address, bytes.len() as u64)?;
        self.put(bytes)
    }

    /// A record that says that so many bytes are zero.
    ///
    /// # Errors
    /// The sink's.
    pub fn zero(&mut self, address: u64, length: u64) -> Result<(), E> {
        self.head(What::Zero, 0, address, length)
    }

    /// The end; how many bytes the segment has.
    ///
    /// # Errors
    /// The sink's.
    pub fn end(mut self) -> Result<u64, E> {
        let hash = self.hash.finish_128().to_le_bytes();
        self.record(What::End, 0, 0, &hash)?;
        if !self.small.is_empty() {
            (self.sink)(&self.small)?;
        }
        Ok(self.written)
    }
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is nothing that is written here.
    Foreign,
    /// It is of another version.
    Version(u64),
    /// It ends too early, or was changed.
    Damaged,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("is no file of a checkpoint"),
            Self::Version(version) => {
                write!(
                    f,
                    "is of version {version}, and this is {VERSION}: resume it with the Polyrail that wrote it"
                )
            }
            Self::Damaged => f.write_str("is damaged: it ends too early, or was changed since"),
        }
    }
}

/// A segment that is complete, as its hash says.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Which.
    pub head: Head,
    records: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Reads it; `check`: also its hash, for which all of it is looked at.
    ///
    /// # Errors
    /// It is none.
    pub fn read(all: &'a [u8], check: bool) -> Result<Self, Trouble> {
        let (head, records) = all.split_first_chunk::<HEADER>().ok_or(Trouble::Foreign)?;
        if head[..8] != SEGMENT {
            return Err(Trouble::Foreign);
        }
        let (version, whole) = (word32(&head[8..]), word32(&head[12..]));
        if version != VERSION {
            return Err(Trouble::Version(version.into()));
        }
        let head = Head { whole: whole != 0, run: word(&head[16..]), sequence: word(&head[24..]) };
        let segment = Self { head, records };
        let mut rest = records;
        loop {
            let (record, behind) = take(rest).ok_or(Trouble::Damaged)?;
            if record.what == What::End {
                let before = all.len() - rest.len();
                let right = !check || record.bytes == XxHash3_128::oneshot(&all[..before]).to_le_bytes();
                let plain = (record.number, record.address, whole | 1) == (0, 0, 1);
                let ends = behind.is_empty() && record.bytes.len() == HASH && plain;
                return if right && ends { Ok(segment) } else { Err(Trouble::Damaged) };
            }
            rest = behind;
        }
    }

    /// Its records, but the end.
    pub fn records(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let mut rest = self.records;
        core::iter::from_fn(move || {
            let (record, behind) = take(rest).filter(|(record, _)| record.what != What::End)?;
            rest = behind;
            Some(record)
        })
    }
}

/// Makes one whole segment of several that follow each other, the first of which is whole: `writer` has begun it, and is left for its end.
///
/// # Errors
/// The sink's.
pub fn merge<E, S: FnMut(&[u8]) -> Result<(), E>>(
    segments: &[Segment<'_>],
    writer: &mut Writer<S>,
) -> Result<(), E> {
    let mut written = Covered::default();
    let newest_first = segments.iter().rev().flat_map(|segment| {
        let records: Vec<Record<'_>> = segment.records().collect();
        records.into_iter().rev()
    });
    for record in newest_first {
        let end = record.address + record.length;
        match record.what {
            What::Memory => written.add(record.address, end, |from, to| {
                let part = &record.bytes[(from - record.address) as usize..(to - record.address) as usize];
                writer.record(What::Memory, 0, from, part)
            })?,
            What::Zero => written.add(record.address, end, |_, _| Ok(()))?,
            What::Own | What::Thread | What::State | What::End => {}
        }
    }
    let last = segments.iter().rev().take(1).flat_map(Segment::records);
    for record in last.filter(|record| matches!(record.what, What::Own | What::Thread | What::State)) {
        writer.record(record.what, record.number, record.address, record.bytes)?;
    }
    Ok(())
}

/// Addresses that later segments have said something of: ends by begins.
#[derive(Default)]
struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Calls `f` with what of a range is not covered yet, which all of it is then.
    fn add<E>(&mut self, from: u64, to: u64, mut f: impl FnMut(u64, u64) -> Result<(), E>) -> Result<(), E> {
        let (mut low, mut high, mut at) = (from, to, from);
        if let Some((&begin, &end)) = self.0.range(..=from).next_back().filter(|(_, end)| **end >= from) {
            (low, at) = (begin, end);
            high = high.max(end);
        }
        let inside: Vec<(u64, u64)> = self.0.range(from..=to).map(|(begin, end)| (*begin, *end)).collect();
        for (begin, end) in inside {
            if at < begin {
                f(at, begin.min(to))?;
            }
            at = at.max(end);
            high = high.max(end);
            self.0.remove(&begin);
        }
        if at < to {
            f(at, to)?;
        }
        if low < high {
            self.0.insert(low, high);
        }
        Ok(())
    }
}

fn word32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The first record, and what stands behind it.
fn take(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<RECORD>()?;
    let what = What::of(word32(head))?;
    let (address, length) = (word(&head[8..]), word(&head[16..]));
    address.checked_add(length)?;
    let stored = if what == What::Zero { 0 } else { usize::try_from(length).ok()? };
    let (bytes, rest) = rest.split_at_checked(stored)?;
    Some((Record { what, number: word32(&head[4..]), address, length, bytes }, rest))
}

/// What can be resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// How the program was started, as the agent writes it.
    pub launch: Vec<u8>,
    /// The program's file, and the words that it gets.
    pub words: Vec<OsString>,
    /// Ranks.
    pub ranks: u64,
    /// Threads of each.
    pub threads: u64,
    /// Milliseconds from one checkpoint to the next.
    pub every: u64,
    /// Tells runs apart.
    pub run: u64,
    /// What rank 0's processor can do, a word each (`flags` of `/proc/cpuinfo`).
    pub processor: String,
    /// The segments, in order: which, and bytes of the file.
    pub segments: Vec<(Head, u64)>,
}

impl Manifest {
    /// As a file.
    pub fn bytes(&self) -> Vec<u8> {
        let words = pack(self.words.iter().map(|word| word.as_bytes()));
        let segments: Vec<u64> = self
            .segments
            .iter()
            .flat_map(|(head, bytes)| [head.whole.into(), head.sequence, *bytes])
            .collect();
        let mut all = [&OF_MANIFEST[..], &u64::from(VERSION).to_le_bytes()].concat();
        all.extend(pack([
            &self.launch[..],
            &words,
            &numbers(&[self.ranks, self.threads, self.every, self.run]),
            self.processor.as_bytes(),
            &numbers(&segments),
        ]));
        let hash = XxHash3_128::oneshot(&all);
        all.extend(hash.to_le_bytes());
        all
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn read(all: &[u8]) -> Result<Self, Trouble> {
        let (begin, rest) = all.split_first_chunk::<8>().ok_or(Trouble::Foreign)?;
        if *begin != OF_MANIFEST {
            return Err(Trouble::Foreign);
        }
        let (version, rest) = rest.split_first_chunk().ok_or(Trouble::Damaged)?;
        let version = u64::from_le_bytes(*version);
        if version != u64::from(VERSION) {
            return Err(Trouble::Version(version));
        }
        let (items, hash) = rest.split_last_chunk::<HASH>().ok_or(Trouble::Damaged)?;
        if XxHash3_128::oneshot(&all[..all.len() - HASH]).to_le_bytes() != *hash {
            return Err(Trouble::Damaged);
        }
        Self::of_items(items).ok_or(Trouble::Damaged)
    }

    fn of_items(items: &[u8]) -> Option<Self> {
        let [launch, words, figures, processor, segments] = unpack(items)?.try_into().ok()?;
        let [ranks, threads, every, run] = read_numbers(&figures).try_into().ok()?;
        let (segments, rest) = segments.as_chunks::<24>();
        let segments: Vec<(Head, u64)> = segments
            .iter()
            .map(|one| (Head { whole: word(one) != 0, run, sequence: word(&one[8..]) }, word(&one[16..])))
            .collect();
        let follow = segments.windows(2).all(|two| !two[1].0.whole && two[0].0.sequence < two[1].0.sequence);
        (rest.is_empty() && follow && segments.first()?.0.whole).then_some(Self {
            launch,
            words: unpack(&words)?.into_iter().map(OsString::from_vec).collect(),
            ranks,
            threads,
            every,
            run,
            processor: String::from_utf8(processor).ok()?,
            segments,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: Head = Head { whole: true, run: 7, sequence: 3 };

    fn written(head: Head, records: &[(What, u32, u64, Vec<u8>)]) -> Vec<u8> {
        let mut all = Vec::new();
        let mut writer = Writer::new(head, |bytes: &[u8]| {
            all.extend_from_slice(bytes);
            Ok::<(), ()>(())
        })
        .unwrap();
        for (what, number, address, bytes) in records {
            match what {
                What::Zero => writer.zero(*address, bytes.len() as u64),
                _ => writer.record(*what, *number, *address, bytes),
            }
            .unwrap();
        }
        let length = writer.end().unwrap();
        assert_eq!(all.len() as u64, length);
        all
    }

    fn manifest() -> Manifest {
        Manifest {
            launch: vec![1, 2, 3],
            words: vec!["./a".into(), "".into()],
            ranks: 2,
            threads: 4,
            every: 60_000,
            run: 9,
            processor: "fpu sse2".into(),
            segments: vec![
                (Head { whole: true, run: 9, sequence: 4 }, 100),
                (Head { whole: false, run: 9, sequence: 5 }, 10),
            ],
        }
    }

    #[test]
    fn a_segment_is_these_bytes() {
        let all =
            written(HEAD, &[(What::Memory, 0, 0x1000, vec![5, 6]), (What::Zero, 0, 0x2000, vec![0; 3])]);
        let begin = [
            &b"polyckpt"[..],
            &[1, 0, 0, 0, 1, 0, 0, 0],
            &7_u64.to_le_bytes(),
            &3_u64.to_le_bytes(),
            &[1, 0, 0, 0, 0, 0, 0, 0],
            &0x1000_u64.to_le_bytes(),
            &2_u64.to_le_bytes(),
            &[5, 6],
            &[2, 0, 0, 0, 0, 0, 0, 0],
            &0x2000_u64.to_le_bytes(),
            &3_u64.to_le_bytes(),
            &[6, 0, 0, 0, 0, 0, 0, 0],
            &0_u64.to_le_bytes(),
            &16_u64.to_le_bytes(),
        ]
        .concat();
        assert_eq!(all[..begin.len()], begin);
        let hash = XxHash3_128::oneshot(&all[..begin.len() - RECORD]);
        assert_eq!(all[begin.len()..], hash.to_le_bytes());
    }

    #[test]
    fn a_manifest_comes_back_and_no_other_does() {
        let manifest = manifest();
        let bytes = manifest.bytes();
        assert_eq!(&bytes[..16], b"polyckpm\x01\0\0\0\0\0\0\0");
        assert_eq!(Manifest::read(&bytes), Ok(manifest.clone()));
        assert_eq!(Manifest::read(b""), Err(Trouble::Foreign));
        assert_eq!(Manifest::read(&[0; 100]), Err(Trouble::Foreign));
        let mut other = bytes.clone();
        other[8] = 2;
        assert_eq!(Manifest::read(&other), Err(Trouble::Version(2)));
        for at in 16..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(Manifest::read(&other), Err(Trouble::Damaged), "{at}");
            assert_eq!(Manifest::read(&bytes[..at]), Err(Trouble::Damaged), "{at}");
        }
        let chains = [&[][..], &[false], &[true, true], &[false, true]];
        for chain in chains {
            let segments = chain.iter().map(|&whole| (Head { whole, ..HEAD }, 1)).collect();
            let wrong = Manifest { segments, ..manifest.clone() };
            assert_eq!(Manifest::read(&wrong.bytes()), Err(Trouble::Damaged));
        }
    }

    /// Memory, of so many bytes, as segments say that it is.
    fn memory(segments: &[Segment<'_>]) -> Vec<u8> {
        let mut all = vec![0; 300];
        for record in segments.iter().flat_map(Segment::records) {
            let place = record.address as usize..(record.address + record.length) as usize;
            match record.what {
                What::Memory => all[place].copy_from_slice(record.bytes),
                What::Zero => all[place].fill(0),
                _ => {}
            }
        }
        all
    }

    fn small() -> impl Strategy<Value = (What, u32, u64, Vec<u8>)> {
        let what = prop::sample::select(vec![What::Memory, What::Zero, What::Own, What::State]);
        (what, any::<u32>(), 0..200_u64, prop::collection::vec(1..=255_u8, 0..100))
    }

    fn record() -> impl Strategy<Value = (What, u32, u64, Vec<u8>)> {
        let what = prop::sample::select(vec![What::Memory, What::Zero, What::Own, What::Thread, What::State]);
        let bytes = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..50),
            (0_usize..200_000).prop_map(|length| vec![3; length]),
        ];
        (what, any::<u32>(), 0..u64::MAX / 2, bytes)
    }

    proptest! {
        #[test]
        fn records_come_back(records in prop::collection::vec(record(), 0..20), whole: bool) {
            let head = Head { whole, ..HEAD };
            let all = written(head, &records);
            let segment = Segment::read(&all, true).unwrap();
            prop_assert_eq!(segment.head, head);
            let read: Vec<Record<'_>> = segment.records().collect();
            prop_assert_eq!(read.len(), records.len());
            for (read, (what, number, address, bytes)) in read.iter().zip(&records) {
                prop_assert_eq!((read.what, read.address, read.length), (*what, *address, bytes.len() as u64));
                if *what != What::Zero {
                    prop_assert_eq!((read.number, read.bytes), (*number, &bytes[..]));
                }
            }
        }

        #[test]
        fn what_is_merged_says_the_same(chain in prop::collection::vec(prop::collection::vec(small(), 0..10), 1..6)) {
            let files: Vec<Vec<u8>> = chain
                .iter()
                .enumerate()
                .map(|(at, records)| written(Head { whole: at == 0, sequence: at as u64, ..HEAD }, records))
                .collect();
            let segments: Vec<Segment<'_>> =
                files.iter().map(|file| Segment::read(file, true).unwrap()).collect();
            let mut merged = Vec::new();
            let sink = |bytes: &[u8]| {
                merged.extend_from_slice(bytes);
                Ok::<(), ()>(())
            };
            let mut writer = Writer::new(HEAD, sink).unwrap();
            merge(&segments, &mut writer).unwrap();
            writer.end().unwrap();
            let merged = Segment::read(&merged, true).unwrap();
            prop_assert_eq!(memory(&[merged]), memory(&segments));
            let others = |segment: &Segment<'_>| -> Vec<(What, u32, u64, Vec<u8>)> {
                let all = segment.records().filter(|record| !matches!(record.what, What::Memory | What::Zero));
                all.map(|record| (record.what, record.number, record.address, record.bytes.to_vec())).collect()
            };
            prop_assert_eq!(others(&merged), others(&segments[segments.len() - 1]));
        }

        #[test]
        fn what_is_cut_or_changed_is_refused(records in prop::collection::vec(record(), 0..5), at: prop::sample::Index, bit in 0..8_u32) {
            let mut all = written(HEAD, &records);
            let at = at.index(all.len());
            prop_assert!(Segment::read(&all[..at], true).is_err());
            all[at] ^= 1 << bit;
            prop_assert!(Segment::read(&all, true).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let begun = [&HEAD.bytes()[..], &bytes].concat();
            for bytes in [&bytes, &begun] {
                if let Ok(segment) = Segment::read(bytes, false) {
                    segment.records().for_each(drop);
                }
                let _ = Manifest::read(bytes);
                let _ = Manifest::of_items(bytes);
            }
        }
    }
}
