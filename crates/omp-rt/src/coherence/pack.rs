//! Compression of what large exchanges send, where there is time for it: a rank that waits for the network compresses meanwhile, if that makes what it sends shorter.

use std::time::Instant;

use zstd::bulk::{Compressor, Decompressor};

use crate::{alloc, raw};

/// zstd's: three to four hundred megabytes a second.
const LEVEL: i32 = 1;
/// Bytes by which it is seen whether a round is worth it.
const SAMPLE: usize = 64 << 10;
/// So much has to remain at most, in a hundred.
const SHRUNK: usize = 95;

/// What packs and unpacks, and what it has learnt of the network.
#[derive(Default)]
pub struct Packer {
    tools: Option<(Compressor<'static>, Decompressor<'static>)>,
    /// Seconds for each byte to send in which this rank could have packed, as it lately was.
    idle: f64,
    /// Seconds that packing has taken since it was last asked how long was waited.
    spent: f64,
    /// Buffers of rounds that are over: to have zeros in new ones takes as long as to encode into them.
    spare: Vec<Vec<u8>>,
}

impl Packer {
    /// A buffer, whatever is in it.
    pub fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }

    /// Gives a buffer back.
    pub fn keep(&mut self, buffer: Vec<u8>) {
        const SPARE: usize = 4;
        if self.spare.len() < SPARE {
            self.spare.push(buffer);
        }
    }

    fn with<T>(
        &mut self,
        f: impl FnOnce(&mut Compressor<'static>, &mut Decompressor<'static>) -> Option<T>,
    ) -> Option<T> {
        // what the C library's allocator is asked for here is not the program's
        alloc::privately(|| {
            if self.tools.is_none() {
                self.tools = Compressor::new(LEVEL).ok().zip(Decompressor::new().ok());
            }
            let (compressor, decompressor) = self.tools.as_mut()?;
            f(compressor, decompressor)
        })
    }

    /// Whether a round may be worth it.
    pub fn is_willing(&self) -> bool {
        self.idle > 0.0
    }

    /// Packs a round: bytes of `out` that it takes, if it is worth it.
    pub fn pack(&mut self, round: &[u8], out: &mut [u8]) -> Option<usize> {
        let sample = round.get(..SAMPLE)?;
        let (begun, idle) = (Instant::now(), self.idle);
        let packed = self.with(|compressor, _| {
            let mut pack =
                |from: &[u8]| compressor.compress_to_buffer(from, &mut out[..from.len() * SHRUNK / 100]).ok();
            pack(sample)?;
            if begun.elapsed().as_secs_f64() > idle * SAMPLE as f64 {
                return None;
            }
            pack(round)
        });
        self.spent += begun.elapsed().as_secs_f64();
        packed
    }

    /// This rank has sent a round of so many bytes and waited so long for another.
    pub fn waited(&mut self, bytes: usize, seconds: f64) {
        let spent = core::mem::take(&mut self.spent);
        if bytes >= SAMPLE {
            self.idle = (self.idle + (seconds + spent) / bytes as f64) / 2.0;
        }
    }

    /// The `bytes` that `packed` was.
    pub fn unpack(&mut self, packed: &[u8], bytes: usize) -> Vec<u8> {
        let mut to = self.buffer(bytes);
        let unpacked =
            self.with(|_, decompressor| decompressor.decompress_to_buffer(packed, &mut to[..]).ok());
        if unpacked != Some(bytes) {
            raw::fail("what another rank packed cannot be unpacked");
        }
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shrinks_is_packed_where_there_is_time() {
        let words = |mix: u64| {
            (0..100_000_u64).flat_map(move |i| (i.wrapping_mul(mix) >> 8).to_le_bytes()).collect::<Vec<_>>()
        };
        let (numbers, noise) = (words(1 << 8), words(0x9e37_79b9_7f4a_7c15));
        let mut packer = Packer::default();
        let mut out = vec![0; 1 << 20];
        assert!(!packer.is_willing());
        packer.waited(numbers.len(), 0.0);
        assert_eq!(packer.pack(&numbers, &mut out), None, "the network is faster");
        packer.waited(numbers.len(), 100.0);
        assert!(packer.is_willing());
        let bytes = packer.pack(&numbers, &mut out).expect("it shrinks");
        assert!(bytes < numbers.len() / 2);
        assert_eq!(packer.unpack(&out[..bytes], numbers.len()), numbers);
        let mixed: Vec<u8> =
            noise.iter().zip(&numbers).map(|(a, b)| a.wrapping_mul(*b | 1) ^ a >> 3).collect();
        assert_eq!(packer.pack(&noise[..SAMPLE - 1], &mut out), None, "too little to tell");
        let _ = packer
            .pack(&mixed, &mut out)
            .map(|bytes| assert_eq!(packer.unpack(&out[..bytes], mixed.len()), mixed));
        (0..40).for_each(|_| packer.waited(numbers.len(), 0.0));
        assert_eq!(packer.pack(&numbers, &mut out), None, "the network has become faster");
    }
}
