//! What makes up for parts of a value that do not come.
//!
//! A value of several parts is of use once all have come, and where much is lost some never do at once: to send them again takes a round
//! trip, in which more is lost, and the value grows old. So **repairs** follow the parts. They come of all parts by an erasure code, a
//! systematic one: with as many parts and repairs as there are parts, whichever came, the value is whole.
//!
//! The code is Reed and Solomon's over GF(2^16), as Lin, Al-Naffouri, Han and Chung compute it (2016; `reed-solomon-simd` has that).

use crate::wire::repair::Code;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// A part as the code has it: zeros follow a last one that is shorter.
fn part<'a>(code: &Code, bytes: &'a [u8], number: usize) -> Cow<'a, [u8]> {
    let part = &bytes[code.place(number)];
    if part.len() == code.size() {
        return Cow::Borrowed(part);
    }
    let mut long = part.to_vec();
    long.resize(code.size(), 0);
    Cow::Owned(long)
}

/// The first repairs of these bytes, one behind the other. None: they are of another length, or there are fewer.
pub fn encode(code: &Code, bytes: &[u8], count: usize) -> Option<Vec<u8>> {
    if bytes.len() != code.total() || count > code.repairs() {
        return None;
    }
    let mut encoder = ReedSolomonEncoder::new(code.parts(), code.repairs(), code.size()).ok()?;
    for number in 0..code.parts() {
        encoder.add_original_shard(part(code, bytes, number)).ok()?;
    }
    let mut all = Vec::with_capacity(count * code.size());
    let coded = encoder.encode().ok()?;
    coded.recovery_iter().take(count).for_each(|repair| all.extend_from_slice(repair));
    Some(all)
}

/// Makes the bytes whole, of which those parts have come for which `had` says so, by repairs. False: there are too few of them, and nothing
/// has changed.
pub fn restore<'a>(
    code: &Code,
    bytes: &mut [u8],
    had: impl Fn(usize) -> bool,
    repairs: impl Iterator<Item = (usize, &'a [u8])>,
) -> bool {
    if bytes.len() != code.total() {
        return false;
    }
    let Ok(mut decoder) = ReedSolomonDecoder::new(code.parts(), code.repairs(), code.size()) else {
        return false;
    };
    for number in (0..code.parts()).filter(|number| had(*number)) {
        if decoder.add_original_shard(number, part(code, bytes, number)).is_err() {
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
        let place = &mut bytes[code.place(number)];
        place.copy_from_slice(&part[..place.len()]);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::repair::MOST;
    use alloc::collections::BTreeSet;

    fn noise(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        *seed >> 33
    }

    #[test]
    fn as_many_as_there_are_parts_make_it_whole_whichever_they_are() {
        let mut seed = 3;
        for (total, size) in
            [(257, 256), (512, 256), (513, 256), (8192, 1300), (65_536, 1386), (200_001, 1000)]
        {
            let bytes: Vec<u8> = (0..total).map(|_| noise(&mut seed) as u8).collect();
            let code = Code::of(total, size).expect("a code");
            let all = encode(&code, &bytes, code.repairs()).expect("repairs");
            assert_eq!(encode(&code, &bytes, 3).as_deref(), Some(&all[..3 * size]), "fewer are the first");
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
                    assert!(!restore(&code, &mut fewer, had, some.iter().copied()) && fewer == got);
                }
                assert!(restore(&code, &mut got, had, repairs.iter().copied()) && got == bytes);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_none() {
        let none =
            [(0, 0), (1000, 0), (1000, 301), (1000, 1000), (1000, 254), (MOST + 1, 4000), (901 * 256, 256)];
        for (total, size) in none {
            assert_eq!(Code::of(total, size), None, "{total} {size}");
        }
        assert!(Code::of(900 * 256, 256).is_some());
        let code = Code::of(1000, 400).expect("a code");
        assert_eq!((encode(&code, &[0; 999], 1), encode(&code, &[0; 1000], 33)), (None, None));
        assert!(!restore(&code, &mut [0; 999], |_| true, core::iter::empty()));
        assert!(!restore(&code, &mut [0; 1000], |_| false, [(99, &[0; 400][..])].into_iter()));
    }
}
