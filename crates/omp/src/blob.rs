//! Changed pages as they travel: records in ascending order of addresses, without gaps, each padded to eight bytes. Numbers are little endian.
//!
//! ```text
//! header: u64 = page address (bits 12..48) | kind (bits 0..4) | n (bits 48..64)
//! RUNS    n x (offset: u16, length: u16), the bytes of all runs           bytes that changed, few
//! WORDS   changed: 512 bits, partial: 512 bits, the changed words,        many
//!         a byte mask for each partial word
//! WHOLE   pages: u64, the pages                                          one or more; what changed is what differs from the twin
//! ZERO    pages: u64                                                     the same, of zeros
//! ```
//!
//! A *list* is a blob that only names pages, without gaps between the records: its records are all ZERO.

use crate::diff::{Mask, Page, is_zero};
use crate::layout::PAGE;

const RUNS: u64 = 1;
const WORDS: u64 = 2;
const WHOLE: u64 = 3;
const ZERO: u64 = 4;
/// Addresses are below this.
const LIMIT: u64 = 1 << 47;
const ADDRESS: u64 = (LIMIT - 1) & !(PAGE as u64 - 1);
/// From so many bytes on a page is not worth picking apart.
const DENSE: usize = 3584;
/// Up to so many bytes a page is not looked at for being zero.
const SPARSE: usize = 64;
/// Bytes of a page's record at most, which are those of WORDS with all words changed in part.
pub const RECORD: usize = 8 + 128 + PAGE + PAGE / 8;
const LOW: u64 = 0x0101_0101_0101_0101;

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Bytes that are not as documented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where, from the begin of the blob.
    pub at: usize,
}

/// A byte of ones for each bit of the index.
const SPREAD: [u64; 256] = {
    let (mut table, mut bits) = ([0; 256], 0);
    while bits < 256 {
        let mut byte = 0;
        while byte < 8 {
            table[bits] |= (0xff * (bits as u64 >> byte & 1)) << (8 * byte);
            byte += 1;
        }
        bits += 1;
    }
    table
};

/// For each of the eight words that a line's mask covers, whether a byte of it is in the mask.
fn any(line: u64) -> u8 {
    let mut bits = line | line >> 4;
    bits |= bits >> 2;
    bits |= bits >> 1;
    gather(bits)
}
/// As [`any`], whether all bytes are.
fn all(line: u64) -> u8 {
    let mut bits = line & line >> 4;
    bits &= bits >> 2;
    bits &= bits >> 1;
    gather(bits)
}
fn gather(bits: u64) -> u8 {
    ((bits & LOW).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}
/// The lowest bit's index, taken off.
fn pop(bits: &mut u8) -> Option<usize> {
    let bit = bits.trailing_zeros() as usize;
    *bits &= bits.wrapping_sub(1);
    (bit < 8).then_some(bit)
}

/// Writes records into a bounded buffer.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut [u8],
    at: usize,
    /// The last record if it may grow: its kind, where it is, the address of the page that would continue it.
    last: (u64, usize, u64),
}

impl<'a> Encoder<'a> {
    /// An empty blob at the begin of `out`.
    pub fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0, last: (0, 0, 0) }
    }
    /// Bytes written.
    pub fn bytes(&self) -> usize {
        self.at
    }
    /// The next page begins a record: bytes so far, which are a blob.
    pub fn part(&mut self) -> usize {
        self.last.0 = 0;
        self.at
    }
    /// Takes back what came after a [`part`](Self::part).
    pub fn truncate(&mut self, part: usize) {
        (self.at, self.last.0) = (part, 0);
    }
    /// Adds the bytes in `mask` of the page at `address`, which is above all that were added. `exact`: no record that leaves the mask to the receiver.
    ///
    /// # Errors
    /// There is no room, and nothing was written.
    pub fn page(&mut self, address: u64, page: &Page, mask: &Mask, exact: bool) -> Result<(), Full> {
        let (mut bytes, mut runs, mut words, mut partial, mut carry) = (0, 0, 0, 0, 0);
        for &line in &mask.0 {
            bytes += line.count_ones() as usize;
            runs += (line & !(line << 1 | carry)).count_ones() as usize;
            carry = line >> 63;
            let any = any(line);
            words += any.count_ones() as usize;
            partial += (any & !all(line)).count_ones() as usize;
        }
        if bytes == 0 {
            return Ok(());
        }
        let few = (8 + 4 * runs + bytes).next_multiple_of(8);
        let many = (8 + 128 + 8 * words + partial).next_multiple_of(8);
        let open = !exact || bytes == PAGE;
        if open && few > SPARSE && is_zero(page) {
            self.extend(ZERO, address, &[])
        } else if open && few.min(many) > DENSE {
            self.extend(WHOLE, address, page)
        } else if few <= many {
            self.runs(address, page, mask, runs, few)
        } else {
            self.words(address, page, mask, words, many)
        }
    }

    /// Adds pages to a list.
    ///
    /// # Errors
    /// There is no room, and nothing was written.
    pub fn list(&mut self, address: u64, pages: u64) -> Result<(), Full> {
        let out = self.room(16)?;
        out[..8].copy_from_slice(&(address | ZERO).to_le_bytes());
        out[8..].copy_from_slice(&pages.to_le_bytes());
        Ok(())
    }

    fn room(&mut self, bytes: usize) -> Result<&mut [u8], Full> {
        let begin = self.at;
        let out = self.out.get_mut(begin..begin + bytes).ok_or(Full)?;
        self.at += bytes;
        Ok(out)
    }
    fn extend(&mut self, kind: u64, address: u64, page: &[u8]) -> Result<(), Full> {
        if self.last.0 == kind && self.last.2 == address {
            self.room(page.len())?.copy_from_slice(page);
            let count = &mut self.out[self.last.1 + 8..][..8];
            let pages = u64::from_le_bytes(count.try_into().expect("eight bytes")) + 1;
            count.copy_from_slice(&pages.to_le_bytes());
        } else {
            let begin = self.at;
            let out = self.room(16 + page.len())?;
            out[..8].copy_from_slice(&(address | kind).to_le_bytes());
            out[8..16].copy_from_slice(&1u64.to_le_bytes());
            out[16..].copy_from_slice(page);
            self.last = (kind, begin, address);
        }
        self.last.2 += PAGE as u64;
        Ok(())
    }
    fn runs(&mut self, address: u64, page: &Page, mask: &Mask, runs: usize, size: usize) -> Result<(), Full> {
        let out = self.room(size)?;
        let (head, rest) = out.split_at_mut(8);
        head.copy_from_slice(&(address | RUNS | (runs as u64) << 48).to_le_bytes());
        let (table, bytes) = rest.split_at_mut(4 * runs);
        let mut filled = 0;
        let mut entries = table.chunks_exact_mut(4);
        for_runs(mask, |from, to| {
            let entry = entries.next().expect("as many as were counted");
            entry.copy_from_slice(&((from | (to - from) << 16) as u32).to_le_bytes());
            bytes[filled..filled + to - from].copy_from_slice(&page[from..to]);
            filled += to - from;
        });
        bytes[filled..].fill(0);
        self.last.0 = 0;
        Ok(())
    }
    fn words(
        &mut self,
        address: u64,
        page: &Page,
        mask: &Mask,
        words: usize,
        size: usize,
    ) -> Result<(), Full> {
        let out = self.room(size)?;
        out[..8].copy_from_slice(&(address | WORDS).to_le_bytes());
        let (bitmaps, rest) = out[8..].split_at_mut(128);
        // Every word is written, and only what changed is kept: which that is cannot be predicted. So there is one word too many at the end.
        let (mut values, mut masks) = ([0u8; PAGE + 64], [0u8; PAGE / 8 + 8]);
        let (mut value, mut masked) = (0, 0);
        for (line, &bits) in mask.0.iter().enumerate() {
            let changed = any(bits);
            let partial = changed & !all(bits);
            (bitmaps[line], bitmaps[64 + line]) = (changed, partial);
            let from = &page[64 * line..][..64];
            if changed == 0xff {
                values[value..value + 64].copy_from_slice(from);
                value += 64;
            } else if changed != 0 {
                for word in 0..8 {
                    values[value..value + 8].copy_from_slice(&from[8 * word..8 * word + 8]);
                    value += 8 * usize::from(changed >> word & 1);
                }
            }
            if partial != 0 {
                for (word, bytes) in bits.to_le_bytes().into_iter().enumerate() {
                    masks[masked] = bytes;
                    masked += usize::from(partial >> word & 1);
                }
            }
        }
        let (to_values, to_masks) = rest.split_at_mut(8 * words);
        to_values.copy_from_slice(&values[..value]);
        to_masks[..masked].copy_from_slice(&masks[..masked]);
        to_masks[masked..].fill(0);
        self.last.0 = 0;
        Ok(())
    }
}

/// Calls `f` with each run of bytes in the mask, from and to.
fn for_runs(mask: &Mask, mut f: impl FnMut(usize, usize)) {
    let mut open: Option<usize> = None;
    for (line, &bits) in mask.0.iter().enumerate() {
        let at = 64 * line;
        let mut left = bits;
        if let Some(from) = open {
            let ones = left.trailing_ones() as usize;
            if ones == 64 {
                continue;
            }
            f(from, at + ones);
            open = None;
            left &= !0 << ones;
        }
        while left != 0 {
            let start = left.trailing_zeros() as usize;
            let ones = (left >> start).trailing_ones() as usize;
            if start + ones == 64 {
                open = Some(at + start);
                break;
            }
            f(at + start, at + start + ones);
            left &= !0 << (start + ones);
        }
    }
    if let Some(from) = open {
        f(from, PAGE);
    }
}

/// What became of one page.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A table of runs and their bytes.
    Runs(&'a [u8], &'a [u8]),
    /// Bitmaps, the changed words, the masks of those that are partial.
    Words(&'a [u8; 128], &'a [u8], &'a [u8]),
    /// The page.
    Whole(&'a Page),
    /// Zeros.
    Zero,
}

fn run(entry: &[u8]) -> (usize, usize) {
    let offset = usize::from(u16::from_le_bytes([entry[0], entry[1]]));
    (offset, offset + usize::from(u16::from_le_bytes([entry[2], entry[3]])))
}

impl Change<'_> {
    /// Which bytes it changes in a page that is as `twin`.
    pub fn mask(&self, twin: &Page) -> Mask {
        let mut mask = Mask::NONE;
        match self {
            Self::Runs(table, _) => {
                for (from, to) in table.chunks_exact(4).map(run) {
                    mask.set(from, to);
                }
            }
            Self::Words(bitmaps, _, masks) => {
                let mut masks = masks.iter();
                for line in 0..64 {
                    let (mut changed, partial) = (bitmaps[line], bitmaps[64 + line]);
                    while let Some(word) = pop(&mut changed) {
                        let bytes = if partial >> word & 1 == 1 { *masks.next().unwrap_or(&0) } else { 0xff };
                        mask.0[line] |= u64::from(bytes) << (8 * word);
                    }
                }
            }
            Self::Whole(page) => mask = crate::diff::diff(page, twin),
            Self::Zero => mask = crate::diff::diff(&[0; PAGE], twin),
        }
        mask
    }
    /// Calls `f` with each changed word: its line, its number there, its value, which of its bytes changed.
    fn words(
        &self,
        bitmaps: &[u8; 128],
        values: &[u8],
        masks: &[u8],
        mut f: impl FnMut(usize, usize, u64, u8),
    ) {
        let (mut values, mut masks) = (values.as_chunks().0.iter(), masks.iter());
        for line in 0..64 {
            let (mut changed, partial) = (bitmaps[line], bitmaps[64 + line]);
            while let Some(word) = pop(&mut changed) {
                let Some(value) = values.next() else { return };
                let bytes = if partial >> word & 1 == 0 { 0xff } else { *masks.next().unwrap_or(&0) };
                f(line, word, u64::from_le_bytes(*value), bytes);
            }
        }
    }
    /// As [`Change::apply`], of a page that nobody else uses: other bytes may be written with their own value, which is faster.
    pub fn blend(&self, page: &mut Page) {
        let Self::Words(bitmaps, values, masks) = *self else { return self.apply(page) };
        self.words(bitmaps, values, masks, |line, word, value, bytes| {
            let to = &mut page[64 * line + 8 * word..][..8];
            let mask = SPREAD[usize::from(bytes)];
            let old = u64::from_le_bytes(to.try_into().expect("eight bytes"));
            to.copy_from_slice(&(old ^ (old ^ value) & mask).to_le_bytes());
        });
    }
    /// Makes `page` so; other bytes are not touched, not even with their own value.
    pub fn apply(&self, page: &mut Page) {
        match *self {
            Self::Runs(table, mut bytes) => {
                for (from, to) in table.chunks_exact(4).map(run) {
                    let (head, rest) = bytes.split_at(to - from);
                    // Most runs are a number or less; a call of memcpy would cost more than they do.
                    if let (8, Some(word)) = (to - from, page.get_mut(from..from + 8)) {
                        word.copy_from_slice(head);
                    } else {
                        page[from..to].copy_from_slice(head);
                    }
                    bytes = rest;
                }
            }
            Self::Words(bitmaps, values, masks) => {
                self.words(bitmaps, values, masks, |line, word, value, bytes| {
                    let to = &mut page[64 * line + 8 * word..][..8];
                    if bytes == 0xff {
                        to.copy_from_slice(&value.to_le_bytes());
                        return;
                    }
                    let mut bytes = bytes;
                    while let Some(byte) = pop(&mut bytes) {
                        to[byte] = value.to_le_bytes()[byte];
                    }
                });
            }
            Self::Whole(from) => page.copy_from_slice(from),
            Self::Zero => page.fill(0),
        }
    }
}

/// What became of one page, or of several that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The first page's address.
    pub address: u64,
    /// Pages; more than one only if whole or zero.
    pub pages: u64,
    body: Change<'a>,
    /// All pages of [`Change::Whole`].
    whole: &'a [u8],
}

impl<'a> Record<'a> {
    /// Of page `index`, which it has.
    pub fn change(&self, index: u64) -> Change<'a> {
        match self.body {
            Change::Whole(_) => {
                let page = &self.whole[index as usize * PAGE..][..PAGE];
                Change::Whole(page.try_into().expect("a page"))
            }
            body => body,
        }
    }
    /// The bytes of all pages, if they are there as they are.
    pub fn whole(&self) -> Option<&'a [u8]> {
        matches!(self.body, Change::Whole(_)).then(|| &self.whole[..self.pages as usize * PAGE])
    }
    /// Whether all pages are zero.
    pub fn is_zero(&self) -> bool {
        matches!(self.body, Change::Zero)
    }
    /// The first `pages` of them, and the rest.
    pub fn split(&self, pages: u64) -> (Self, Option<Self>) {
        let first = Self { pages: pages.min(self.pages), ..*self };
        let rest = (pages < self.pages).then(|| Self {
            address: self.address + pages * PAGE as u64,
            pages: self.pages - pages,
            body: self.change(if self.is_zero() { 0 } else { pages }),
            whole: self.whole.get(pages as usize * PAGE..).unwrap_or_default(),
        });
        (first, rest)
    }
}

/// Reads a blob and checks it.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    blob: &'a [u8],
    at: usize,
    /// Addresses are at or above.
    floor: u64,
}

impl<'a> Reader<'a> {
    /// From the begin of `blob`.
    pub fn new(blob: &'a [u8]) -> Self {
        Self { blob, at: 0, floor: 0 }
    }
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, _) = self.blob.get(self.at..)?.split_at_checked(bytes)?;
        self.at += bytes;
        Some(head)
    }
    fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    fn pad(&mut self) -> Option<()> {
        self.take(self.at.next_multiple_of(8) - self.at).map(|_| ())
    }
    fn record(&mut self) -> Option<Record<'a>> {
        let header = self.word()?;
        let (address, kind, n) = (header & ADDRESS, header & (PAGE as u64 - 1), (header >> 48) as usize);
        if address < self.floor || header & LIMIT != 0 || (kind != RUNS && n != 0) {
            return None;
        }
        let (mut pages, mut whole) = (1, [].as_slice());
        let body = match kind {
            RUNS => self.runs(n)?,
            WORDS => self.words()?,
            WHOLE | ZERO => {
                pages = self.word()?;
                if pages == 0 || pages > (LIMIT - address) / PAGE as u64 {
                    return None;
                }
                if kind == ZERO {
                    Change::Zero
                } else {
                    whole = self.take(usize::try_from(pages).ok()?.checked_mul(PAGE)?)?;
                    Change::Whole(whole.first_chunk()?)
                }
            }
            _ => return None,
        };
        self.floor = address + pages * PAGE as u64;
        Some(Record { address, pages, body, whole })
    }
    fn runs(&mut self, n: usize) -> Option<Change<'a>> {
        let table = self.take(4 * n)?;
        let (mut bytes, mut end) = (0, 0);
        for (i, (from, to)) in table.chunks_exact(4).map(run).enumerate() {
            if to == from || to > PAGE || (i > 0 && from <= end) {
                return None;
            }
            bytes += to - from;
            end = to;
        }
        let bytes = self.take(bytes)?;
        self.pad()?;
        (n > 0).then_some(Change::Runs(table, bytes))
    }
    fn words(&mut self) -> Option<Change<'a>> {
        let bitmaps: &[u8; 128] = self.take(128)?.try_into().ok()?;
        let (mut words, mut partial) = (0, 0);
        for line in 0..64 {
            if bitmaps[64 + line] & !bitmaps[line] != 0 {
                return None;
            }
            words += bitmaps[line].count_ones() as usize;
            partial += bitmaps[64 + line].count_ones() as usize;
        }
        let values = self.take(8 * words)?;
        let masks = self.take(partial)?;
        self.pad()?;
        (words > 0).then_some(Change::Words(bitmaps, values, masks))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, Malformed>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.blob.len() {
            return None;
        }
        let at = self.at;
        let record = self.record();
        if record.is_none() {
            self.at = self.blob.len();
        }
        Some(record.ok_or(Malformed { at }))
    }
}
