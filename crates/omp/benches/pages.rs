//! Nanoseconds per page for finding and encoding changes, and for applying them, by pattern.
//!
//! `cargo bench -p polyrail-omp --bench pages`. The working set is larger than the caches; each figure is the best of several passes, because the
//! machine may be shared: what others do can only add.
use polyrail_omp::blob::{Encoder, Reader};
use polyrail_omp::diff::{Page, diff};
use polyrail_omp::layout::PAGE;
use std::time::Instant;

/// 96 MB, and as much of twins.
const PAGES: usize = 24_576;
const PASSES: usize = 7;

type Change = fn(&mut Page, u64);

fn double(page: &mut Page, i: usize, seed: u64) {
    let value = 1.0 + (seed + i as u64) as f64 * 1e-3;
    page[8 * i..8 * i + 8].copy_from_slice(&value.to_le_bytes());
}
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

const PATTERNS: [(&str, Change); 9] = [
    ("identical", |_, _| {}),
    ("1 double", |page, seed| double(page, 77, seed)),
    ("8 doubles, apart", |page, seed| (0..8).for_each(|i| double(page, i * 64 + 3, seed))),
    ("every second double", |page, seed| (0..256).for_each(|i| double(page, 2 * i, seed))),
    ("half of the doubles, random", |page, seed| {
        let mut state = seed + 1;
        (0..512)
            .filter(|_| random(&mut state) >> 40 & 1 == 1)
            .collect::<Vec<_>>()
            .iter()
            .for_each(|&i| double(page, i, seed));
    }),
    ("all doubles", |page, seed| (0..512).for_each(|i| double(page, i, seed))),
    ("6 bytes of each word", |page, seed| {
        page.chunks_exact_mut(8).for_each(|word| word[..6].copy_from_slice(&(!seed).to_le_bytes()[..6]));
    }),
    ("1/4 of the bytes, random", |page, seed| {
        let mut state = seed + 1;
        for byte in page.iter_mut() {
            if random(&mut state) >> 40 & 3 == 0 {
                *byte = !*byte;
            }
        }
    }),
    ("zeroed", |page, _| page.fill(0)),
];

fn best(mut pass: impl FnMut()) -> f64 {
    let nanoseconds = |pass: &mut dyn FnMut()| {
        let begin = Instant::now();
        pass();
        begin.elapsed().as_nanos() as f64 / PAGES as f64
    };
    (0..PASSES).map(|_| nanoseconds(&mut pass)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let mut twins: Vec<Page> = vec![[0; PAGE]; PAGES];
    let mut state = 1;
    for page in &mut twins {
        page.chunks_exact_mut(8)
            .for_each(|word| word.copy_from_slice(&(random(&mut state) as f64).to_le_bytes()));
    }
    let mut out = vec![0u8; PAGES * PAGE + (1 << 20)];
    println!(
        "{:<30}{:>10}{:>10}{:>10}{:>12}{:>10}{:>10}",
        "ns/page", "diff", "encode", "apply", "bytes/page", "enc GB/s", "app GB/s"
    );
    for (name, change) in PATTERNS {
        let mut pages = twins.clone();
        pages.iter_mut().enumerate().for_each(|(i, page)| change(page, i as u64));
        let mut different = 0;
        let find = best(|| {
            different = pages.iter().zip(&twins).filter(|(page, twin)| !diff(page, twin).is_empty()).count();
        });
        assert!(different == PAGES || name == "identical");
        let mut bytes = 0;
        let encode = best(|| {
            let mut encoder = Encoder::new(&mut out);
            for (i, (page, twin)) in pages.iter().zip(&twins).enumerate() {
                encoder.page((i * PAGE) as u64, page, &diff(page, twin), false).expect("room");
            }
            bytes = encoder.bytes();
        });
        let mut target = twins.clone();
        let apply = best(|| {
            for record in Reader::new(&out[..bytes]) {
                let record = record.expect("well formed");
                for i in 0..record.pages {
                    record.change(i).blend(&mut target[record.address as usize / PAGE + i as usize]);
                }
            }
        });
        assert!(target == pages, "{name}");
        println!(
            "{name:<30}{find:>10.0}{encode:>10.0}{apply:>10.0}{:>12.0}{:>10.1}{:>10.1}",
            bytes as f64 / PAGES as f64,
            PAGE as f64 / encode,
            PAGE as f64 / apply
        );
    }
}
