//! What several ranks changed, encoded in rounds into small buffers and merged, against a byte by byte oracle.
use std::collections::BTreeMap;
use std::ops::Range;

use polyrail_omp::blob::{Encoder, RECORD, Reader};
use polyrail_omp::diff::{Page, diff};
use polyrail_omp::layout::PAGE;
use polyrail_omp::merge::{Refused, Step, Twins, check, combine, visit};
use proptest::prelude::*;

const BASE: u64 = 0x1000_0000_0000;
const PAGES: usize = 12;

type Memory = Vec<Page>;

/// One way in which programs change pages.
#[derive(Clone, Debug)]
enum Write {
    Byte(usize, u8),
    Doubles { from: usize, count: usize, stride: usize, seed: u8 },
    Page(usize, u8),
    Noise { page: usize, every: usize, seed: u8 },
}

fn write() -> impl Strategy<Value = Write> {
    let byte = 0..PAGES * PAGE;
    prop_oneof![
        4 => (byte.clone(), any::<u8>()).prop_map(|(at, value)| Write::Byte(at, value)),
        2 => (byte, 1..600usize, 1..5usize, any::<u8>())
            .prop_map(|(from, count, stride, seed)| Write::Doubles { from: from & !7, count, stride, seed }),
        1 => (0..PAGES, prop_oneof![Just(0), any::<u8>()]).prop_map(|(page, value)| Write::Page(page, value)),
        1 => (0..PAGES, 1..9usize, any::<u8>()).prop_map(|(page, every, seed)| Write::Noise { page, every, seed }),
    ]
}

fn carry_out(memory: &mut Memory, write: &Write) {
    let mut set = |at: usize, value: u8| {
        if let Some(page) = memory.get_mut(at / PAGE) {
            page[at % PAGE] = value;
        }
    };
    match *write {
        Write::Byte(at, value) => set(at, value),
        Write::Doubles { from, count, stride, seed } => {
            for i in 0..count {
                for (byte, value) in (f64::from(seed) * 1.1 + i as f64).to_le_bytes().into_iter().enumerate()
                {
                    set(from + 8 * i * stride + byte, value);
                }
            }
        }
        Write::Page(page, value) => (page * PAGE..(page + 1) * PAGE).for_each(|at| set(at, value)),
        Write::Noise { page, every, seed } => (page * PAGE..(page + 1) * PAGE)
            .step_by(every)
            .for_each(|at| set(at, (at as u8).wrapping_mul(31) ^ seed)),
    }
}

fn twins() -> Memory {
    // Every other page is zero, as fresh memory is.
    (0..PAGES).map(|p| std::array::from_fn(|i| if p % 2 == 0 { 0 } else { (i * 13 + p) as u8 })).collect()
}

struct Shared<'a>(&'a Memory);
impl Twins for Shared<'_> {
    fn known(&self, address: u64, pages: u64) -> bool {
        address >= BASE && (address - BASE) / PAGE as u64 + pages <= PAGES as u64
    }
    fn twin(&self, address: u64) -> &Page {
        &self.0[(address - BASE) as usize / PAGE]
    }
}

/// As a rank does it: some pages into a buffer that they surely fit into.
fn encode(memory: &Memory, twins: &Memory, pages: Range<usize>, exact: bool) -> Vec<u8> {
    let mut out = vec![0xaa; pages.len() * RECORD];
    let mut encoder = Encoder::new(&mut out);
    for i in pages {
        let address = BASE + (i * PAGE) as u64;
        encoder.page(address, &memory[i], &diff(&memory[i], &twins[i]), exact).expect("room");
    }
    let bytes = encoder.bytes();
    assert!(out[bytes..].iter().all(|byte| *byte == 0xaa), "written beyond what it says");
    out.truncate(bytes);
    out
}

/// All ranks' memories and the twins after a merge, or where the conflict is.
fn merge(ranks: &mut [Memory], twins: &mut Memory, exact: bool, window: usize) -> Result<(), Refused> {
    for from in (0..PAGES).step_by(window) {
        let pages = from..PAGES.min(from + window);
        let encoded: Vec<_> =
            ranks.iter().map(|memory| encode(memory, twins, pages.clone(), exact)).collect();
        let blobs: Vec<&[u8]> = encoded.iter().map(|blob| &blob[..]).collect();
        check(&blobs, &Shared(twins), |_| {})?;
        let before = twins.clone();
        for (own, memory) in ranks.iter_mut().enumerate() {
            let mut agreed = before.clone();
            visit(&blobs, |step| {
                match step {
                    Step::One(rank, record) => {
                        for i in 0..record.pages {
                            let page = (record.address - BASE) as usize / PAGE + i as usize;
                            record.change(i).apply(&mut agreed[page]);
                            if rank as usize != own {
                                record.change(i).apply(&mut memory[page]);
                            }
                        }
                    }
                    Step::Many(address, changes) => {
                        let page = (address - BASE) as usize / PAGE;
                        let combined =
                            combine(address, &before[page], changes, Some(own as u32)).expect("checked");
                        combined.others.copy(&combined.page, &mut memory[page]);
                        agreed[page] = combined.page;
                    }
                }
                Ok(())
            })?;
            *twins = agreed;
        }
    }
    Ok(())
}

/// What all memories must be, or the bytes that two ranks contradict each other at.
fn oracle(ranks: &[Memory], twins: &Memory) -> (Memory, Vec<u64>) {
    let mut result = twins.clone();
    let mut conflicts = Vec::new();
    for page in 0..PAGES {
        for i in 0..PAGE {
            let before = twins[page][i];
            let mut values: Vec<u8> =
                ranks.iter().map(|memory| memory[page][i]).filter(|v| *v != before).collect();
            values.dedup();
            match values[..] {
                [] => {}
                [value] => result[page][i] = value,
                _ => conflicts.push(BASE + (page * PAGE + i) as u64),
            }
        }
    }
    (result, conflicts)
}

proptest! {
    #[test]
    fn merging_is_what_each_byte_says(
        writes in prop::collection::vec(prop::collection::vec(write(), 0..6), 1..5),
        exact: bool,
        window in 1..=PAGES,
        disjoint: bool,
    ) {
        let (mut twins, count) = (twins(), writes.len());
        let mut ranks: Vec<Memory> = vec![twins.clone(); writes.len()];
        for (rank, (memory, writes)) in ranks.iter_mut().zip(&writes).enumerate() {
            writes.iter().for_each(|write| carry_out(memory, write));
            if disjoint {
                // Of each three bytes in a row one rank only has its changes left: no conflict, all pages shared.
                for (page, (now, twin)) in memory.iter_mut().zip(&twins).enumerate() {
                    for i in (0..PAGE).filter(|i| (page * PAGE + i) / 3 % count != rank) {
                        now[i] = twin[i];
                    }
                }
            }
        }
        let (expected, conflicts) = oracle(&ranks, &twins);
        let before = (ranks.clone(), twins.clone());
        match merge(&mut ranks, &mut twins, exact, window) {
            Ok(()) => {
                prop_assert!(conflicts.is_empty());
                prop_assert!(twins == expected);
                prop_assert!(ranks.iter().all(|memory| *memory == expected));
            }
            Err(Refused::Conflict(conflict)) => {
                prop_assert!(conflicts.contains(&conflict.address));
                prop_assert_eq!(conflict.address / PAGE as u64, conflicts[0] / PAGE as u64);
                let at = (conflict.address - BASE) as usize;
                let word = |memory: &Memory| polyrail_omp::merge::word(&memory[at / PAGE], at % PAGE);
                prop_assert!(conflict.ranks[0] < conflict.ranks[1]);
                // Rounds before this one may have given a rank others' bytes of the page's neighbours, never of this word's page.
                for side in 0..2 {
                    prop_assert_eq!(conflict.values[side], word(&before.0[conflict.ranks[side] as usize]));
                }
                prop_assert_eq!(conflict.before, word(&before.1));
            }
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(
        mut blob in prop::collection::vec(any::<u8>(), 0..300), kind in 0..5u8, n in 0..9u8, big: bool,
    ) {
        if blob.len() >= 8 {
            // So that more than the header is looked at.
            blob[0] = kind;
            blob[1] &= 0xf0;
            blob[5] &= 0x7f;
            if !big { (blob[6], blob[7]) = (n, 0); }
        }
        let twin = [7; PAGE];
        for record in Reader::new(&blob) {
            let Ok(record) = record else { continue };
            prop_assert!(record.whole().is_none_or(|whole| whole.len() as u64 == record.pages * PAGE as u64));
            for page in 0..record.pages.min(3) {
                let change = record.change(page);
                let mut now = twin;
                change.apply(&mut now);
                let mut blended = twin;
                change.blend(&mut blended);
                prop_assert!(blended == now);
                let mut beyond = diff(&now, &twin);
                beyond.0.iter_mut().zip(change.mask(&twin).0).for_each(|(line, mask)| *line &= !mask);
                prop_assert!(beyond.is_empty(), "changes more than it says");
            }
        }
        let _ = check(&[&blob, &blob], &Shared(&twins()), |_| {});
    }
}

#[test]
fn pages_that_follow_each_other_are_one_record() {
    let mut memory = twins();
    for page in 0..8 {
        carry_out(&mut memory, &Write::Noise { page, every: 1, seed: 99 });
    }
    for page in 8..PAGES {
        carry_out(&mut memory, &Write::Page(page, 0));
    }
    let blob = encode(&memory, &twins(), 0..PAGES, false);
    let records: Vec<_> = Reader::new(&blob).map(|record| record.expect("well formed")).collect();
    let shapes: BTreeMap<_, _> =
        records.iter().map(|r| ((r.address - BASE) / PAGE as u64, (r.pages, r.is_zero()))).collect();
    assert_eq!(shapes, BTreeMap::from([(0, (8, false)), (9, (1, true)), (11, (1, true))]));
    assert_eq!(records[0].whole().map(<[u8]>::len), Some(8 * PAGE));
}

#[test]
fn what_is_not_shared_is_refused() {
    let memory = vec![[1; PAGE]; PAGES];
    let mut out = vec![0; 1 << 16];
    let mut encoder = Encoder::new(&mut out);
    let zero = [0; PAGE];
    let outside = BASE + (PAGES * PAGE) as u64;
    for address in [outside - PAGE as u64, outside] {
        encoder.page(address, &memory[0], &diff(&memory[0], &zero), false).expect("room");
    }
    let bytes = encoder.bytes();
    let blob = &out[..bytes];
    let refused = Err(Refused::Foreign { rank: 1, address: outside - PAGE as u64 });
    assert_eq!(check(&[&[], blob], &Shared(&memory), |_| {}), refused);
    assert_eq!(
        check(&[blob, &blob[..bytes - 1]], &Shared(&memory), |_| {}),
        Err(Refused::Malformed { rank: 1, at: 0 })
    );
}
