//! The files of a run: one per collector, blocks one after the other, only ever appended to (`docs/trace-format.md`).
//!
//! ```text
//! file   | "PRTRACE1" | version u32 | 0 u32 | block | block ...
//! block  | kind u32 | length u32 | stream u32 | crc32 u32 | at u64 | payload, filled with zeros to a multiple of 8
//! ```
//!
//! A recording that broke off ends with half a block, which the reader leaves out and tells.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// First bytes of a file.
pub const MAGIC: &[u8; 8] = b"PRTRACE1";
/// Of what follows them; a reader refuses a higher one.
pub const VERSION: u32 = 1;
/// Bytes before the first block.
pub const FILE_HEADER: usize = 16;
/// Bytes before a block's payload.
pub const BLOCK_HEADER: usize = 24;
/// Longest payload that a reader accepts.
pub const LONGEST: usize = 16 << 20;

/// Kinds of blocks. A reader skips kinds that it does not know.
pub mod kind {
    /// JSON: the host that the file is of.
    pub const HOST: u32 = 1;
    /// JSON: a thread; its records have the block's stream number.
    pub const THREAD: u32 = 2;
    /// Records of the thread with this stream number.
    pub const RECORDS: u32 = 3;
    /// Ticks, `CLOCK_MONOTONIC` and `CLOCK_REALTIME` (u64 each, nanoseconds) of one moment.
    pub const CLOCK: u32 = 4;
    /// u64: records of the stream that were lost since the last such block.
    pub const LOST: u32 = 5;
    /// Looks at TCP connections (samples).
    pub const TCP: u32 = 6;
    /// Kernel events.
    pub const KERNEL: u32 = 7;
    /// Nothing more is there at this moment: no process of the host is being recorded.
    pub const IDLE: u32 = 8;
    /// Text: what the user must know.
    pub const WARNING: u32 = 9;
    /// JSON: the command, and how it ended.
    pub const COMMAND: u32 = 10;
    /// As [`RECORDS`], with times in nanoseconds of `CLOCK_MONOTONIC`: system calls of a program that preloading cannot see.
    pub const SYSCALLS: u32 = 11;
}

/// Appends blocks to a file.
///
/// When the disk is full it goes on without writing, and counts what it could not write: the programs that are recorded must
/// not notice.
pub struct Writer {
    file: File,
    buffer: Vec<u8>,
    /// Bytes that could not be written.
    pub unwritten: u64,
    /// Why, the first time.
    pub failure: Option<io::Error>,
}

impl Writer {
    /// Begins a new file.
    ///
    /// # Errors
    /// It exists already, or cannot be made.
    pub fn create(path: &Path) -> io::Result<Writer> {
        let file = File::options().write(true).create_new(true).open(path)?;
        let mut buffer = MAGIC.to_vec();
        buffer.extend(VERSION.to_le_bytes());
        buffer.extend([0; 4]);
        let mut writer = Writer { file, buffer, unwritten: 0, failure: None };
        writer.flush();
        match writer.failure.take() {
            Some(why) => Err(why),
            None => Ok(writer),
        }
    }

    /// Appends a block; it is written when there is enough, or by [`flush`](Self::flush).
    pub fn block(&mut self, kind: u32, stream: u32, at: u64, payload: &[u8]) {
        let mut crc = crc32fast::Hasher::new();
        crc.update(payload);
        for word in [kind, payload.len() as u32, stream, crc.finalize()] {
            self.buffer.extend(word.to_le_bytes());
        }
        self.buffer.extend(at.to_le_bytes());
        self.buffer.extend(payload);
        self.buffer.resize(self.buffer.len().next_multiple_of(8), 0);
        if self.buffer.len() >= 1 << 20 {
            self.flush();
        }
    }

    /// A block whose payload is JSON.
    pub fn json(&mut self, kind: u32, stream: u32, at: u64, value: &impl serde::Serialize) {
        let text = serde_json::to_vec(value).expect("our own types have string keys only");
        self.block(kind, stream, at, &text);
    }

    /// Hands what was appended to the kernel.
    pub fn flush(&mut self) {
        if self.failure.is_none()
            && let Err(why) = self.file.write_all(&self.buffer)
        {
            self.failure = Some(why);
        }
        if self.failure.is_some() {
            self.unwritten += self.buffer.len() as u64;
        }
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

/// A block, as read.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// See [`kind`].
    pub kind: u32,
    /// Which thread, for records.
    pub stream: u32,
    /// When it was written, `CLOCK_MONOTONIC` of its host in nanoseconds.
    pub at: u64,
    /// Its contents.
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
        Reader { input, left }
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
        let mut expected = b"PRTRACE1\x01\0\0\0\0\0\0\0".to_vec();
        expected.extend([9, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0]);
        expected.extend(crc32fast::hash(b"full").to_le_bytes());
        expected.extend([2, 1, 0, 0, 0, 0, 0, 0]);
        expected.extend(b"full\0\0\0\0");
        assert_eq!(bytes, expected);
    }

    #[test]
    fn later_versions_and_other_files_are_refused_by_name() {
        let mut bytes = written(&[]);
        bytes[8] = 2;
        assert!(read(&bytes).unwrap_err().to_string().contains("version 2"));
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
        let mut writer = Writer {
            file: File::options().write(true).open("/dev/full").unwrap(),
            buffer: Vec::new(),
            unwritten: 0,
            failure: None,
        };
        writer.block(kind::WARNING, 0, 0, &[1; 100]);
        writer.flush();
        assert_eq!(writer.failure.as_ref().unwrap().kind(), ErrorKind::StorageFull);
        assert_eq!(writer.unwritten, 24 + 104);
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
