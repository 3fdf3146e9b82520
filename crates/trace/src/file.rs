//! The files of a run: one per collector, blocks one after the other, only ever appended to (`docs/trace-format.md`).
//!
//! ```text
//! file   | "PRTRACE1" | version u32 | 0 u32 | block | block ...
//! block  | kind u32 | length u32 | stream u32 | crc32 u32 | at u64 | payload, filled with zeros to a multiple of 8
//! ```
//!
//! What comes in rows, such as records, is gathered for a tenth of a second and packed (`pack`).
//!
//! A recording that broke off ends with half a block, which the reader leaves out and tells.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use polyrail_core::trace::RECORD;

use crate::blocks::{BLOCK_HEADER, FILE_HEADER, LONGEST, MAGIC, PACKED, VERSION, encode, kind, write_header};
use crate::flight::Flight;
use crate::pack::Packer;
use crate::records::pieces;

/// Rows that are gathered for one block, in bytes, about: what is cut off by a disk that is full loses its last block.
pub const GATHERED: usize = 64 << 10;
/// Bytes of memory that the last seconds take at most where nothing else is said: some forty million calls.
pub const FLIGHT: u64 = 256 << 20;

/// Appends blocks to a file, or keeps the last ones (see [`limit`](Writer::limit)).
///
/// When the disk is full it goes on without writing, and counts what it could not write: the programs that are recorded must
/// not notice.
pub struct Writer {
    file: File,
    buffer: Vec<u8>,
    written: u64,
    most: u64,
    /// In its place.
    flight: Option<Flight>,
    /// Rows that are not in a block yet, by kind and stream.
    gathered: BTreeMap<(u32, u32), Gathered>,
    packer: Packer,
    /// Bytes that could not be written.
    pub unwritten: u64,
    /// Why, the first time.
    pub failure: Option<io::Error>,
}

/// See [`Writer::rows`].
#[derive(Debug, Default)]
struct Gathered {
    width: usize,
    at: u64,
    rows: Vec<u8>,
}

impl Writer {
    fn new(file: File) -> Writer {
        let (buffer, gathered, packer) = Default::default();
        let (written, most) = (0, u64::MAX);
        Writer { file, buffer, written, most, flight: None, gathered, packer, unwritten: 0, failure: None }
    }

    /// Begins a new file.
    ///
    /// # Errors
    /// It exists already, or cannot be made.
    pub fn create(path: &Path) -> io::Result<Writer> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        let mut writer = Writer::new(file);
        write_header(&mut writer.buffer);
        writer.flush();
        match writer.failure.take() {
            Some(why) => Err(why),
            None => Ok(writer),
        }
    }

    /// Appends rows of `width` bytes, a multiple of 8; they become a block when there are enough, or by [`settle`](Self::settle). At most a quarter
    /// of [`LONGEST`] at once.
    pub fn rows(&mut self, kind: u32, stream: u32, at: u64, width: usize, rows: &[u8]) {
        let gathered = self.gathered.entry((kind, stream)).or_default();
        (gathered.width, gathered.at) = (width, at);
        gathered.rows.extend(rows);
        if gathered.rows.len() >= GATHERED {
            self.gathered_block(kind::TCP, 0);
            self.gathered_block(kind, stream);
        }
    }

    /// Makes blocks of all rows that were gathered.
    pub fn settle(&mut self) {
        // the kernel's last word on a connection is among the records, and comes after all samples of it
        self.gathered_block(kind::TCP, 0);
        let all: Vec<(u32, u32)> = self.gathered.keys().copied().collect();
        all.into_iter().for_each(|(kind, stream)| self.gathered_block(kind, stream));
        // streams that have ended have none again
        self.gathered.clear();
    }

    /// Appends a thread's records, as so many blocks as they need.
    pub fn records(&mut self, kind: u32, stream: u32, at: u64, records: &[u8]) {
        pieces(records, GATHERED).for_each(|piece| self.rows(kind, stream, at, RECORD, piece));
    }

    fn gathered_block(&mut self, kind: u32, stream: u32) {
        let Some(gathered) = self.gathered.get_mut(&(kind, stream)).filter(|one| !one.rows.is_empty()) else {
            return;
        };
        let Gathered { width, at, .. } = *gathered;
        let mut rows = std::mem::take(&mut gathered.rows);
        let mut packer = std::mem::take(&mut self.packer);
        match packer.pack(&rows, width) {
            Some(packed) => self.block(kind | PACKED, stream, at, packed),
            None => self.block(kind, stream, at, &rows),
        }
        self.packer = packer;
        rows.clear();
        if let Some(gathered) = self.gathered.get_mut(&(kind, stream)) {
            gathered.rows = rows;
        }
    }

    /// Appends a block; it is written when there is enough, or by [`flush`](Self::flush).
    pub fn block(&mut self, kind: u32, stream: u32, at: u64, payload: &[u8]) {
        if let Some(flight) = &mut self.flight {
            return flight.take(kind, stream, at, payload);
        }
        encode(&mut self.buffer, kind, stream, at, payload);
        if self.buffer.len() >= 1 << 20 {
            self.flush();
        }
    }

    /// A block whose payload is JSON.
    pub fn json(&mut self, kind: u32, stream: u32, at: u64, value: &impl serde::Serialize) {
        let text = serde_json::to_vec(value).expect("our own types have string keys only");
        self.block(kind, stream, at, &text);
    }

    /// Keeps so much at most: bytes of the file, after which it is [full](Self::is_full), or with `last` what was written in so many nanoseconds, in memory,
    /// until [`snapshot`](Self::snapshot).
    pub fn limit(&mut self, most: Option<u64>, last: Option<u64>) {
        self.most = most.unwrap_or(u64::MAX);
        self.flight = last.map(|last| Flight::new(last, most.unwrap_or(FLIGHT)));
    }

    /// Whether it has as much as it may.
    pub fn is_full(&self) -> bool {
        self.flight.is_none() && self.written + self.buffer.len() as u64 >= self.most
    }

    /// Nothing more comes of this stream.
    pub fn ended(&mut self, stream: u32) {
        // as in `settle`
        self.gathered_block(kind::TCP, 0);
        for kind in [kind::RECORDS, kind::SYSCALLS] {
            self.gathered_block(kind, stream);
        }
        if let Some(flight) = &mut self.flight {
            flight.ended(stream);
        }
    }

    /// Recording has ended: of the last seconds that are kept, nothing grows old any more.
    pub fn freeze(&mut self, at: u64) {
        self.settle();
        if let Some(flight) = &mut self.flight {
            flight.freeze(at);
        }
    }

    /// Writes what is kept to a file of its own, whole or not at all; where everything is written, that is not done. Whether it was. `idle`: nothing
    /// more is there at this moment.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub fn snapshot(&mut self, path: &Path, at: u64, idle: bool) -> io::Result<bool> {
        self.settle();
        self.flight.as_ref().map_or(Ok(false), |flight| flight.write(path, at, idle).map(|()| true))
    }

    /// Hands what was appended to the kernel, but for rows that are still being gathered.
    pub fn flush(&mut self) {
        if self.failure.is_none()
            && let Err(why) = self.file.write_all(&self.buffer)
        {
            self.failure = Some(why);
        }
        if self.failure.is_some() {
            self.unwritten += self.buffer.len() as u64;
        }
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
    }
}

/// Whether a file ends with an idle block: whoever writes it has nothing more at the moment.
pub fn is_idle(path: &Path) -> bool {
    let look = || -> io::Result<bool> {
        let file = File::open(path)?;
        let at = file.metadata()?.len().checked_sub(BLOCK_HEADER as u64).ok_or(ErrorKind::UnexpectedEof)?;
        let mut header = [0; 8];
        file.read_exact_at(&mut header, at)?;
        Ok(header == [kind::IDLE.to_le_bytes(), [0; 4]].as_flattened())
    };
    look().unwrap_or(false)
}

/// The payload of the last block of a kind, which is not packed; `None` where there is none, or the file cannot be read.
pub fn last(path: &Path, kind: u32) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut at = FILE_HEADER as u64;
    let mut found = None;
    let mut header = [0; 8];
    while at + BLOCK_HEADER as u64 <= length && file.read_exact_at(&mut header, at).is_ok() {
        let [one, two] = [0, 4].map(|at| u32::from_le_bytes(std::array::from_fn(|i| header[at + i])));
        let (payload, size) = (at + BLOCK_HEADER as u64, u64::from(two));
        at = payload + size.next_multiple_of(8);
        if one == kind && at <= length && size <= LONGEST as u64 {
            found = Some((payload, size));
        }
    }
    let (payload, size) = found?;
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, payload).ok()?;
    Some(bytes)
}

/// A block, as read.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// See [`kind`]; without [`PACKED`].
    pub kind: u32,
    /// Which thread, for records.
    pub stream: u32,
    /// When it was written, `CLOCK_MONOTONIC` of its host in nanoseconds.
    pub at: u64,
    /// Its contents, unpacked.
    pub payload: Vec<u8>,
}

/// How reading ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A block was read.
    Block,
    /// The file ends here, in order.
    End,
    /// What follows is no whole block: so many bytes are left out.
    Broken(u64),
}

/// Reads blocks one after the other.
pub struct Reader<R> {
    input: R,
    left: u64,
    packer: Packer,
    packed: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// `length`: bytes of the file.
    ///
    /// # Errors
    /// It cannot be read, is no trace, or of a later version (then the message says so).
    pub fn new(mut input: R, length: u64) -> io::Result<Reader<R>> {
        let mut header = [0; FILE_HEADER];
        input.read_exact(&mut header).map_err(|why| match why.kind() {
            ErrorKind::UnexpectedEof => io::Error::new(ErrorKind::InvalidData, "it is no trace: too short"),
            _ => why,
        })?;
        if &header[..8] != MAGIC {
            return Err(io::Error::new(ErrorKind::InvalidData, "it is no trace of polyrail"));
        }
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if version != VERSION {
            let text = format!("its format is version {version}, this polyrail reads version {VERSION}");
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        Ok(Reader::from_block(input, length.saturating_sub(FILE_HEADER as u64)))
    }

    /// Goes on where a block begins; `left`: bytes from there to the end.
    pub fn from_block(input: R, left: u64) -> Reader<R> {
        Reader { input, left, packer: Packer::default(), packed: Vec::new() }
    }

    /// Bytes behind the blocks that were read.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Reads the next block into `block`, whose memory is used again.
    ///
    /// # Errors
    /// Reading failed. A file that ends early is no error, but [`Next::Broken`].
    pub fn next(&mut self, block: &mut Block) -> io::Result<Next> {
        if self.left == 0 {
            return Ok(Next::End);
        }
        if self.left < BLOCK_HEADER as u64 {
            return Ok(Next::Broken(self.left));
        }
        let broken = Ok(Next::Broken(self.left));
        let mut header = [0; BLOCK_HEADER];
        match self.input.read_exact(&mut header) {
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return broken,
            other => other?,
        }
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (length, crc) = (word(4) as usize, word(12));
        let padded = length.next_multiple_of(8);
        if length > LONGEST || (padded + BLOCK_HEADER) as u64 > self.left {
            return broken;
        }
        (block.kind, block.stream) = (word(0), word(8));
        block.at = u64::from(word(16)) | u64::from(word(20)) << 32;
        block.payload.resize(padded, 0);
        match self.input.read_exact(&mut block.payload) {
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return broken,
            other => other?,
        }
        block.payload.truncate(length);
        if crc32fast::hash(&block.payload) != crc {
            return broken;
        }
        if block.kind & PACKED != 0 {
            block.kind &= !PACKED;
            std::mem::swap(&mut block.payload, &mut self.packed);
            if !self.packer.unpack(&self.packed, LONGEST, &mut block.payload) {
                return broken;
            }
        }
        self.left -= (padded + BLOCK_HEADER) as u64;
        Ok(Next::Block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(blocks: &[(u32, u32, u64, Vec<u8>)]) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.trace");
        let mut writer = Writer::create(&path).unwrap();
        blocks.iter().for_each(|(kind, stream, at, payload)| writer.block(*kind, *stream, *at, payload));
        writer.flush();
        assert!(writer.failure.is_none());
        std::fs::read(path).unwrap()
    }

    fn read(bytes: &[u8]) -> io::Result<(Vec<Block>, Next)> {
        let mut reader = Reader::new(bytes, bytes.len() as u64)?;
        let mut blocks = Vec::new();
        let mut block = Block::default();
        loop {
            match reader.next(&mut block)? {
                Next::Block => blocks.push(block.clone()),
                end => return Ok((blocks, end)),
            }
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = written(&[(kind::WARNING, 7, 0x0102, b"full".to_vec())]);
        let mut expected = b"PRTRACE1\x02\0\0\0\0\0\0\0".to_vec();
        expected.extend([9, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0]);
        expected.extend(crc32fast::hash(b"full").to_le_bytes());
        expected.extend([2, 1, 0, 0, 0, 0, 0, 0]);
        expected.extend(b"full\0\0\0\0");
        assert_eq!(bytes, expected);
    }

    #[test]
    fn later_versions_and_other_files_are_refused_by_name() {
        let mut bytes = written(&[]);
        bytes[8] = 3;
        assert!(read(&bytes).unwrap_err().to_string().contains("version 3"));
        assert!(
            read(b"#!/bin/sh\n echo something else")
                .unwrap_err()
                .to_string()
                .contains("no trace of polyrail")
        );
        assert!(read(b"").unwrap_err().to_string().contains("too short"));
    }

    #[test]
    fn a_full_disk_is_counted() {
        let mut writer = Writer::new(File::options().write(true).open("/dev/full").unwrap());
        writer.block(kind::WARNING, 0, 0, &[1; 100]);
        writer.flush();
        assert_eq!(writer.failure.as_ref().unwrap().kind(), ErrorKind::StorageFull);
        assert_eq!(writer.unwritten, 24 + 104);
    }

    #[test]
    fn rows_are_gathered_and_packed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.trace");
        let mut writer = Writer::create(&path).unwrap();
        let row = |number: u64| [number, 5, 6, 7].map(u64::to_le_bytes).concat();
        let (one, other): (Vec<u8>, Vec<u8>) =
            ((0..10_000).flat_map(row).collect(), (7..9).flat_map(row).collect());
        for part in one.chunks(32 * 10) {
            writer.rows(kind::RECORDS, 1, 100, 32, part);
            writer.rows(kind::RECORDS, 2, 101, 32, &[]);
        }
        writer.rows(kind::RECORDS, 2, 102, 32, &other);
        writer.rows(kind::TCP, 0, 103, 184, &[9; 184]);
        writer.settle();
        writer.block(kind::IDLE, 0, 104, &[]);
        writer.flush();
        assert!(is_idle(&path));
        let bytes = std::fs::read(path).unwrap();
        assert!(bytes.len() < 10_000 * 4, "{}", bytes.len());
        let (blocks, end) = read(&bytes).unwrap();
        assert_eq!(end, Next::End);
        let of = |stream| {
            let blocks = blocks.iter().filter(|block| (block.kind, block.stream) == (kind::RECORDS, stream));
            blocks.flat_map(|block| block.payload.clone()).collect::<Vec<u8>>()
        };
        assert!(of(1) == one && of(2) == other);
        let kinds: Vec<u32> = blocks.iter().rev().map(|block| block.kind).take(4).collect();
        assert_eq!(kinds, [kind::IDLE, kind::RECORDS, kind::RECORDS, kind::TCP]);
        assert_eq!(last(&directory.path().join("a.trace"), kind::IDLE), Some(vec![]));
        assert_eq!(last(&directory.path().join("a.trace"), kind::TOTALS), None);
        // a packed block that is none
        let mut writer = Writer::create(&directory.path().join("b.trace")).unwrap();
        writer.block(kind::RECORDS | PACKED, 1, 0, &[255; 40]);
        writer.flush();
        let bytes = std::fs::read(directory.path().join("b.trace")).unwrap();
        assert_eq!(read(&bytes).unwrap().1, Next::Broken(64));
    }

    proptest! {
        #[test]
        fn what_was_cut_off_leaves_the_blocks_before_it(
            blocks in prop::collection::vec((1u32..12, any::<u32>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let whole = written(&blocks);
            let (all, end) = read(&whole).unwrap();
            prop_assert_eq!(end, Next::End);
            prop_assert_eq!(all.len(), blocks.len());
            for (read, (kind, stream, at, payload)) in all.iter().zip(&blocks) {
                prop_assert_eq!((read.kind, read.stream, read.at, &read.payload), (*kind, *stream, *at, payload));
            }
            let keep = FILE_HEADER + cut.index(whole.len() - FILE_HEADER);
            let (some, end) = read(&whole[..keep]).unwrap();
            let used: usize = some.iter().map(|block| BLOCK_HEADER + block.payload.len().next_multiple_of(8)).sum();
            prop_assert!(some.len() < all.len());
            prop_assert_eq!(end, if keep == FILE_HEADER + used { Next::End } else { Next::Broken((keep - FILE_HEADER - used) as u64) });
        }

        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            for (at, byte) in MAGIC.iter().chain(&VERSION.to_le_bytes()).enumerate() {
                if at < bytes.len() { bytes[at] = *byte; }
            }
            let _ = read(&bytes);
        }
    }
}
