//! What makes up for parts of a value that do not come.
//!
//! A value of several parts is of use once all have come, and where much is lost some never do at once: to send them again takes a round
//! trip, in which more is lost, and the value grows old. So **repairs** follow the parts. They come of all parts by an erasure code, a
//! systematic one: with as many parts and repairs as there are parts, whichever came, the value is whole.
//!
//! The code is Reed and Solomon's over GF(2^16), as Lin, Al-Naffouri, Han and Chung compute it (2016; `reed-solomon-simd` has that).

use alloc::borrow::Cow;
use alloc::vec::Vec;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// Values that have repairs have at most so many bytes ...
pub const MOST: usize = 1 << 20;
/// ... and so many parts.
pub const PARTS: usize = 900;
/// Repairs that there are of a value at least.
const LEAST: usize = 32;

/// How a value of some length is cut, and how many repairs there are of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    total: usize,
    size: usize,
}

impl Code {
    /// The code of a value of `total` bytes in parts of `size`, of which the last may be shorter. None: there is none.
    pub fn of(total: usize, size: usize) -> Option<Self> {
        let fits = total <= MOST && size > 0 && size.is_multiple_of(2) && size < total;
        let code = Self { total, size };
        (fits && code.parts() <= PARTS).then_some(code)
    }

    /// Bytes of a part, and of a repair.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.total.div_ceil(self.size)
    }

    /// How many repairs there are.
    pub fn repairs(&self) -> usize {
        LEAST.max(2 * self.parts().next_power_of_two())
    }

    /// A part as the code has it: zeros follow a last one that is shorter.
    fn part<'a>(&self, bytes: &'a [u8], number: usize) -> Cow<'a, [u8]> {
        let part = &bytes[number * self.size..self.total.min((number + 1) * self.size)];
        if part.len() == self.size {
            return Cow::Borrowed(part);
        }
        let mut long = part.to_vec();
        long.resize(self.size, 0);
        Cow::Owned(long)
    }

    /// The first repairs of these bytes, one behind the other. None: they are of another length, or there are fewer.
    pub fn encode(&self, bytes: &[u8], count: usize) -> Option<Vec<u8>> {
        if bytes.len() != self.total || count > self.repairs() {
            return None;
        }
        let mut encoder = ReedSolomonEncoder::new(self.parts(), self.repairs(), self.size).ok()?;
        for number in 0..self.parts() {
            encoder.add_original_shard(self.part(bytes, number)).ok()?;
        }
        let mut all = Vec::with_capacity(count * self.size);
        let coded = encoder.encode().ok()?;
        coded.recovery_iter().take(count).for_each(|repair| all.extend_from_slice(repair));
        Some(all)
    }

    /// Makes the bytes whole, of which those parts have come for which `had` says so, by repairs. False: there are too few of them, and nothing
    /// has changed.
    pub fn restore<'a>(
        &self,
        bytes: &mut [u8],
        had: impl Fn(usize) -> bool,
        repairs: impl Iterator<Item = (usize, &'a [u8])>,
    ) -> bool {
        if bytes.len() != self.total {
            return false;
        }
        let Ok(mut decoder) = ReedSolomonDecoder::new(self.parts(), self.repairs(), self.size) else {
            return false;
        };
        for number in (0..self.parts()).filter(|number| had(*number)) {
            if decoder.add_original_shard(number, self.part(bytes, number)).is_err() {
                return false;
            }
        }
        for (number, repair) in repairs {
            if decoder.add_recovery_shard(number, repair).is_err() {
                return false;
            }
        }
        let Ok(decoded) = decoder.decode() else { return false };
        for (number, part) in decoded.restored_original_iter() {
            let place = &mut bytes[number * self.size..self.total.min((number + 1) * self.size)];
            place.copy_from_slice(&part[..place.len()]);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    fn noise(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        *seed >> 33
    }

    #[test]
    fn as_many_as_there_are_parts_make_it_whole_whichever_they_are() {
        let mut seed = 3;
        for (total, size) in [(3, 2), (64, 32), (65, 32), (8192, 1300), (65_536, 1386), (200_001, 1000)] {
            let bytes: Vec<u8> = (0..total).map(|_| noise(&mut seed) as u8).collect();
            let code = Code::of(total, size).expect("a code");
            let all = code.encode(&bytes, code.repairs()).expect("repairs");
            assert_eq!(code.encode(&bytes, 3).as_deref(), Some(&all[..3 * size]), "fewer are the first");
            for _ in 0..5 {
                let mut came = BTreeSet::new();
                while came.len() < code.parts() {
                    came.insert(noise(&mut seed) as usize % (code.parts() + code.repairs()));
                }
                let had = |number: usize| came.contains(&number);
                let mut got = bytes.clone();
                for number in (0..code.parts()).filter(|number| !had(*number)) {
                    got[number * size..total.min((number + 1) * size)].fill(0xee);
                }
                let repairs = came.range(code.parts()..).map(|number| number - code.parts());
                let repairs: Vec<_> =
                    repairs.map(|number| (number, &all[number * size..(number + 1) * size])).collect();
                let mut fewer = got.clone();
                if let Some((_, some)) = repairs.split_last() {
                    assert!(!code.restore(&mut fewer, had, some.iter().copied()) && fewer == got);
                }
                assert!(code.restore(&mut got, had, repairs.iter().copied()) && got == bytes);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_none() {
        for (total, size) in [(0, 0), (10, 0), (10, 3), (10, 10), (1, 2), (MOST + 1, 4000), (1802, 2)] {
            assert_eq!(Code::of(total, size), None, "{total} {size}");
        }
        let code = Code::of(10, 4).expect("a code");
        assert_eq!((code.encode(&[0; 9], 1), code.encode(&[0; 10], 33)), (None, None));
        assert!(!code.restore(&mut [0; 9], |_| true, core::iter::empty()));
        assert!(!code.restore(&mut [0; 10], |_| false, [(99, &[0; 4][..])].into_iter()));
    }
}
