//! What of an ELF file says where code is (ELF gABI; LSB, "Exception Frames"). Nothing in it is believed.

use std::collections::BTreeSet;
use std::ops::Range;

/// A file for x86-64.
pub struct Elf<'a> {
    file: &'a [u8],
    sections: Vec<Section<'a>>,
    segments: Vec<Segment<'a>>,
}

struct Section<'a> {
    kind: u32,
    flags: u64,
    address: u64,
    name: &'a [u8],
    bytes: &'a [u8],
}

struct Segment<'a> {
    kind: u32,
    flags: u32,
    address: u64,
    bytes: &'a [u8],
}

const EXECUTABLE: u64 = 4;
const LOAD: u32 = 1;
const EH_FRAME_HEADER: u32 = 0x6474_e550;
const SYMBOLS: [u32; 2] = [2, 11];
const NO_BITS: u32 = 8;

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
fn half(bytes: &[u8], at: usize) -> Option<u16> {
    word(bytes, at).map(u16::from_le_bytes)
}
fn single(bytes: &[u8], at: usize) -> Option<u32> {
    word(bytes, at).map(u32::from_le_bytes)
}
fn double(bytes: &[u8], at: usize) -> Option<u64> {
    word(bytes, at).map(u64::from_le_bytes)
}

impl<'a> Elf<'a> {
    pub fn new(file: &'a [u8]) -> Option<Self> {
        if !file.starts_with(b"\x7fELF\x02\x01") || half(file, 18) != Some(62) {
            return None;
        }
        let mut elf = Self { file, sections: Vec::new(), segments: Vec::new() };
        elf.segments = elf.table(32, 54).filter_map(|head| elf.segment(head)).collect();
        elf.sections = elf.table(40, 58).filter_map(|head| elf.section(head)).collect();
        // names are in a section of their own
        let names = half(file, 62).and_then(|index| elf.table(40, 58).nth(index.into()));
        let names = names.and_then(|head| elf.section(head)).map_or(&[][..], |section| section.bytes);
        for (section, head) in elf.table(40, 58).enumerate() {
            let name = single(head, 0).and_then(|at| names.get(at as usize..)).unwrap_or_default();
            if let Some(section) = elf.sections.get_mut(section) {
                section.name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            }
        }
        Some(elf)
    }

    /// Headers of a table whose place, size and count stand in the file's.
    fn table(&self, place: usize, size: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (from, size, count) = (
            double(self.file, place).unwrap_or(0) as usize,
            half(self.file, size).unwrap_or(0).max(1),
            half(self.file, size + 2).unwrap_or(0),
        );
        let table = self.file.get(from..).unwrap_or_default();
        table.chunks_exact(size.into()).take(count.into())
    }

    fn bytes(&self, from: u64, size: u64) -> &'a [u8] {
        let end = from.saturating_add(size) as usize;
        self.file.get(from as usize..end).unwrap_or_default()
    }

    fn segment(&self, head: &[u8]) -> Option<Segment<'a>> {
        Some(Segment {
            kind: single(head, 0)?,
            flags: single(head, 4)?,
            address: double(head, 16)?,
            bytes: self.bytes(double(head, 8)?, double(head, 32)?),
        })
    }

    fn section(&self, head: &[u8]) -> Option<Section<'a>> {
        let kind = single(head, 4)?;
        let size = if kind == NO_BITS { 0 } else { double(head, 32)? };
        Some(Section {
            kind,
            flags: double(head, 8)?,
            address: double(head, 16)?,
            name: &[],
            bytes: self.bytes(double(head, 24)?, size),
        })
    }

    /// Sections with code; segments, where there are none.
    pub fn code(&self) -> Vec<(Range<u64>, &'a [u8])> {
        let range =
            |address: u64, bytes: &'a [u8]| (address..address.saturating_add(bytes.len() as u64), bytes);
        let sections = self.sections.iter().filter(|one| one.flags & EXECUTABLE != 0);
        let all: Vec<_> = sections.map(|one| range(one.address, one.bytes)).collect();
        if !all.is_empty() {
            return all;
        }
        let segments = self.segments.iter().filter(|one| one.kind == LOAD && one.flags & 1 != 0);
        segments.map(|one| range(one.address, one.bytes)).collect()
    }

    /// Where symbols of code are.
    pub fn symbols(&self) -> BTreeSet<u64> {
        let code: Vec<_> = self.code().into_iter().map(|(range, _)| range).collect();
        let tables = self.sections.iter().filter(|one| SYMBOLS.contains(&one.kind));
        let symbols = tables.flat_map(|table| table.bytes.chunks_exact(24));
        // what has no type may be a label
        let functions = symbols.filter(|symbol| matches!(symbol[4] & 15, 2 | 10));
        functions
            .filter_map(|symbol| double(symbol, 8))
            .filter(|address| code.iter().any(|range| range.contains(address)))
            .collect()
    }

    /// What unwind tables say of.
    pub fn functions(&self) -> Vec<Range<u64>> {
        let by_name = self.sections.iter().find(|one| one.name == b".eh_frame");
        let (address, bytes) = match by_name {
            Some(section) => (section.address, section.bytes),
            None => self.frames().unwrap_or_default(),
        };
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(length) = single(bytes, at).filter(|length| *length > 0) {
            let (head, length) = match length {
                u32::MAX => (12, double(bytes, at + 4).unwrap_or(0) as usize),
                length => (4, length as usize),
            };
            let from = at + head;
            let Some(entry) = bytes.get(from..from.saturating_add(length)) else { break };
            // how far back what all have in common begins; zero if this is that
            if let Some(back) = single(entry, 0).filter(|back| *back > 0) {
                let common = from.checked_sub(back as usize);
                let encoding = common.and_then(|at| encoding(bytes, at)).unwrap_or(0);
                found.extend(function(entry, address.wrapping_add(from as u64), encoding));
            }
            at = from + length;
        }
        found
    }

    /// The unwind tables, by what the loader knows of them.
    fn frames(&self) -> Option<(u64, &'a [u8])> {
        let header = self.segments.iter().find(|one| one.kind == EH_FRAME_HEADER)?;
        if word(header.bytes, 0)? != [1, 0x1b] {
            return None;
        }
        let offset = i32::from_le_bytes(word(header.bytes, 4)?);
        let address = header.address.wrapping_add(4).wrapping_add_signed(offset.into());
        let inside = |one: &&Segment<'_>| one.kind == LOAD && address >= one.address;
        let segment = self.segments.iter().filter(inside).max_by_key(|one| one.address)?;
        Some((address, segment.bytes.get((address - segment.address) as usize..)?))
    }
}

/// How addresses are written where the common part at `at` is in force.
fn encoding(frames: &[u8], at: usize) -> Option<u8> {
    // length, zero, version, augmentation with its end
    let length = single(frames, at)? as usize;
    let entry = frames.get(at + 4..)?.get(..length)?;
    let text = entry.get(5..)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    let (letters, rest) = (&text[..end], &text[end + 1..]);
    let letters = letters.strip_prefix(b"z")?;
    // alignments, return register, length of what follows
    let mut at = 0;
    for _ in 0..4 {
        while rest.get(at)? & 0x80 != 0 {
            at += 1;
        }
        at += 1;
    }
    for letter in letters {
        match letter {
            b'R' => return rest.get(at).copied(),
            b'L' => at += 1,
            b'P' => at += 1 + width(*rest.get(at)?)?,
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    None
}

/// Bytes of an encoded address.
fn width(encoding: u8) -> Option<usize> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => Some(8),
        0x02 | 0x0a => Some(2),
        0x03 | 0x0b => Some(4),
        _ => None,
    }
}

/// What an entry, whose part behind the length is at `address`, says of.
fn function(entry: &[u8], address: u64, encoding: u8) -> Option<Range<u64>> {
    const RELATIVE: u8 = 0x10;
    let width = width(encoding)?;
    let read = |at: usize| match (width, encoding & 8) {
        (2, 0) => half(entry, at).map(u64::from),
        (2, _) => half(entry, at).map(|value| i64::from(value.cast_signed()) as u64),
        (4, 0) => single(entry, at).map(u64::from),
        (4, _) => single(entry, at).map(|value| i64::from(value.cast_signed()) as u64),
        _ => double(entry, at),
    };
    let start = match encoding & 0x70 {
        0 => read(4)?,
        RELATIVE => address.wrapping_add(4).wrapping_add(read(4)?),
        _ => return None,
    };
    let bytes = read(4 + width)?;
    (bytes > 0).then(|| start..start.saturating_add(bytes))
}
