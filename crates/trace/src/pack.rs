//! Compression of what consists of rows of one width, such as records: times become differences, bytes are put beside those of the
//! same place in other rows, and LZ4 takes out what repeats. A call takes some 4 to 8 bytes then instead of 32, and packing costs less
//! than writing what it saves.
//!
//! ```text
//! packed | length of the original u32 | width of a row u32 | LZ4 block
//! ```
//!
//! The LZ4 block holds the columns of all whole rows, one after the other, then the bytes behind the last whole row. The first eight bytes of a row
//! are, as a little-endian number, less by those of the row before.

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

/// Bytes before the LZ4 block.
const HEADER: usize = 8;

/// Memory that is used again.
#[derive(Debug, Default)]
pub struct Packer {
    columns: Vec<u8>,
    packed: Vec<u8>,
}

impl Packer {
    /// `payload` as packed, `width` bytes a row: a multiple of 8. `None`: it would not be shorter.
    pub fn pack(&mut self, payload: &[u8], width: usize) -> Option<&[u8]> {
        debug_assert!(width > 0 && width.is_multiple_of(8));
        let columns = at_least(&mut self.columns, payload.len());
        to_columns(payload, width, columns);
        let packed = at_least(&mut self.packed, HEADER + get_maximum_output_size(payload.len()));
        packed[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        packed[4..HEADER].copy_from_slice(&(width as u32).to_le_bytes());
        let length = HEADER + compress_into(columns, &mut packed[HEADER..]).ok()?;
        (length < payload.len()).then(|| &packed[..length])
    }

    /// The original of what [`pack`](Self::pack) made, in `payload`, whose memory is used again. `false`: it is nothing that was packed, or longer than `most`
    /// bytes.
    pub fn unpack(&mut self, packed: &[u8], most: usize, payload: &mut Vec<u8>) -> bool {
        let word = |at: usize| {
            packed
                .get(at..at + 4)
                .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]) as usize)
        };
        let (Some(length), Some(width), Some(block)) = (word(0), word(4), packed.get(HEADER..)) else {
            return false;
        };
        // a block of LZ4 makes at most 255 bytes of one
        if length > most || length / 255 > block.len() || width == 0 || !width.is_multiple_of(8) {
            return false;
        }
        let columns = at_least(&mut self.columns, length);
        if decompress_into(block, columns).ok() != Some(length) {
            return false;
        }
        payload.resize(length, 0);
        from_columns(columns, width, payload);
        true
    }
}

/// The byte at place `i` of word `j` becomes that at place `j` of word `i`. Is its own inverse.
fn transpose(mut words: [u64; 8]) -> [u64; 8] {
    // Hacker's Delight, 7-3, for bytes: blocks of four, two, one change places across the diagonal
    for (step, low) in [(4, 0x0000_0000_ffff_ffffu64), (2, 0x0000_ffff_0000_ffff), (1, 0x00ff_00ff_00ff_00ff)]
    {
        for i in (0..8).filter(|i| i & step == 0) {
            let other = ((words[i] >> (8 * step)) ^ words[i + step]) & low;
            words[i] ^= other << (8 * step);
            words[i + step] ^= other;
        }
    }
    words
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..at + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

/// The first bytes of memory that is kept, whatever they hold.
pub(crate) fn at_least(memory: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if memory.len() < length {
        memory.resize(length, 0);
    }
    &mut memory[..length]
}

/// Rows that are taken at once.
const SOME: usize = 8;
/// Rows of which one part after the other is taken: their part of a column is a cache line.
const STRIP: usize = 64;

fn to_columns(payload: &[u8], width: usize, columns: &mut [u8]) {
    let rows = payload.len() / width;
    let (whole, end) = payload.split_at(rows * width);
    columns[rows * width..].copy_from_slice(end);
    let mut before = 0;
    let mut less = |word: &mut u64| before = std::mem::replace(word, word.wrapping_sub(before));
    let last = whole.chunks_exact(SOME * width).remainder();
    // eight columns at once: columns are apart by what is a multiple of the cache's size, so that more would push each other out
    for (first, strip) in whole[..whole.len() - last.len()].chunks(STRIP * width).enumerate() {
        for at in (0..width).step_by(8) {
            for (number, block) in strip.chunks_exact(SOME * width).enumerate() {
                let mut words: [u64; SOME] = std::array::from_fn(|row| word(block, row * width + at));
                if at == 0 {
                    words.iter_mut().for_each(&mut less);
                }
                for (column, word) in transpose(words).into_iter().enumerate() {
                    let place = (at + column) * rows + first * STRIP + number * SOME;
                    columns[place..place + SOME].copy_from_slice(&word.to_le_bytes());
                }
            }
        }
    }
    for (row, bytes) in last.chunks_exact(width).enumerate() {
        let place = rows / SOME * SOME + row;
        let mut first = word(bytes, 0);
        less(&mut first);
        let bytes = first.to_le_bytes().into_iter().chain(bytes[8..].iter().copied());
        bytes.enumerate().for_each(|(column, byte)| columns[column * rows + place] = byte);
    }
}

fn from_columns(columns: &[u8], width: usize, payload: &mut [u8]) {
    let rows = columns.len() / width;
    let (whole, end) = payload.split_at_mut(rows * width);
    end.copy_from_slice(&columns[rows * width..]);
    let mut before = 0u64;
    let mut more = |word: &mut u64| {
        *word = word.wrapping_add(before);
        before = *word;
    };
    let (blocks, last) = whole.split_at_mut(rows / SOME * SOME * width);
    for (first, strip) in blocks.chunks_mut(STRIP * width).enumerate() {
        for at in (0..width).step_by(8) {
            for (number, block) in strip.chunks_exact_mut(SOME * width).enumerate() {
                let place = first * STRIP + number * SOME;
                let words = std::array::from_fn(|column| word(columns, (at + column) * rows + place));
                let mut words = transpose(words);
                if at == 0 {
                    words.iter_mut().for_each(&mut more);
                }
                for (row, word) in words.into_iter().enumerate() {
                    block[row * width + at..][..8].copy_from_slice(&word.to_le_bytes());
                }
            }
        }
    }
    for (row, bytes) in last.chunks_exact_mut(width).enumerate() {
        let place = rows / SOME * SOME + row;
        bytes.iter_mut().enumerate().for_each(|(column, byte)| *byte = columns[column * rows + place]);
        let mut first = word(bytes, 0);
        more(&mut first);
        bytes[..8].copy_from_slice(&first.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        // three rows, and a byte that is none
        let payload: Vec<u8> =
            [[5, 0, 0, 0, 0, 0, 0, 0], [7, 0, 0, 0, 0, 0, 0, 0], [6, 1, 0, 0, 0, 0, 0, 0]].concat();
        let payload = [payload.repeat(4), vec![9]].concat();
        let mut packer = Packer::default();
        let packed = packer.pack(&payload, 8).unwrap().to_vec();
        assert_eq!(packed[..8], [97, 0, 0, 0, 8, 0, 0, 0]);
        let mut columns = vec![0; 97];
        assert_eq!(decompress_into(&packed[8..], &mut columns).ok(), Some(97));
        // differences: 5, 2, 255, then from 262 back to 5: -257 modulo 2^64
        assert_eq!(columns[..12], [5, 2, 255, 255, 2, 255, 255, 2, 255, 255, 2, 255]);
        assert_eq!(columns[12..24], [0, 0, 0, 254, 0, 0, 254, 0, 0, 254, 0, 0]);
        assert_eq!(columns[24..36], [0, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0]);
        assert_eq!(columns[96], 9);
        let mut back = Vec::new();
        assert!(packer.unpack(&packed, 97, &mut back));
        assert_eq!(back, payload);
        assert!(!packer.unpack(&packed, 96, &mut back), "longer than what is taken");
    }

    #[test]
    fn a_header_that_claims_much_asks_for_no_memory() {
        let claims = [&(1u32 << 30).to_le_bytes()[..], &32u32.to_le_bytes(), &[0; 40]].concat();
        let mut back = Vec::new();
        assert!(!Packer::default().unpack(&claims, usize::MAX, &mut back));
        assert_eq!(back.capacity(), 0);
    }

    proptest! {
        #[test]
        fn rows_come_back(
            rows in prop::collection::vec(any::<[u8; 48]>(), 0..40), repeat in 1usize..4, end in 0usize..40, width in 1usize..24,
        ) {
            let mut payload = rows.concat().repeat(repeat);
            payload.truncate(payload.len().saturating_sub(end));
            let (mut packer, mut back) = (Packer::default(), vec![1, 2, 3]);
            if let Some(packed) = packer.pack(&payload, width * 8).map(<[u8]>::to_vec) {
                prop_assert!(packer.unpack(&packed, payload.len(), &mut back));
                prop_assert_eq!(back, payload);
            } else {
                let mut columns = vec![0; payload.len()];
                back = columns.clone();
                to_columns(&payload, width * 8, &mut columns);
                from_columns(&columns, width * 8, &mut back);
                prop_assert_eq!(back, payload);
            }
        }

        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..200), length in 0u32..5000, width in 0u32..100) {
            let (mut packer, mut back) = (Packer::default(), Vec::new());
            packer.unpack(&bytes, 1 << 20, &mut back);
            if bytes.len() >= 8 {
                bytes[..4].copy_from_slice(&length.to_le_bytes());
                bytes[4..8].copy_from_slice(&width.to_le_bytes());
                packer.unpack(&bytes, 1 << 20, &mut back);
            }
        }
    }
}
