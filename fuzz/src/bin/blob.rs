//! Changed pages: what is read says which bytes it changes and changes no others, in order of addresses; reading and merging never panic.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_omp::blob::{Encoder, Reader};
use polyrail_omp::diff::{Page, diff};
use polyrail_omp::layout::PAGE;
use polyrail_omp::merge::{Twins, check};

/// A megabyte is shared, the same everywhere in it.
struct Same(Page);
const SHARED: std::ops::Range<u64> = 0x1000_0000_0000..0x1000_0010_0000;
impl Twins for Same {
    fn known(&self, address: u64, pages: u64) -> bool {
        SHARED.contains(&address) && pages <= (SHARED.end - address) / PAGE as u64
    }
    fn twin(&self, _: u64) -> &Page {
        &self.0
    }
}

fuzz_target!(|data: &[u8]| {
    let twin: Page = std::array::from_fn(|i| (i / 64) as u8);
    let mut floor = 0;
    let mut again = vec![0; 64 << 10];
    let mut encoder = Encoder::new(&mut again);
    let mut first = Vec::new();
    for record in Reader::new(data) {
        let Ok(record) = record else { break };
        assert!(record.address >= floor && record.address % PAGE as u64 == 0 && record.pages > 0);
        floor = record.address + record.pages * PAGE as u64;
        assert!(record.whole().is_none_or(|whole| whole.len() as u64 == record.pages * PAGE as u64));
        for i in 0..record.pages.min(3) {
            let change = record.change(i);
            let (mut now, mut blended) = (twin, twin);
            change.apply(&mut now);
            change.blend(&mut blended);
            assert!(now == blended);
            let (mask, changed) = (change.mask(&twin), diff(&now, &twin));
            assert_eq!(changed.and(&mask), changed, "changes more than it says");
            // What it did is encoded, too, if there is room.
            let address = record.address + i * PAGE as u64;
            if encoder.page(address, &now, &changed, false).is_ok() && !changed.is_empty() {
                first.push((address, now));
            }
        }
    }
    let bytes = encoder.bytes();
    let mut pages = first.into_iter();
    for record in Reader::new(&again[..bytes]) {
        let record = record.expect("what is encoded is well formed");
        for i in 0..record.pages {
            let (address, contents) = pages.next().expect("no more than was encoded");
            let mut now = twin;
            record.change(i).apply(&mut now);
            assert!(address == record.address + i * PAGE as u64 && now == contents);
        }
    }
    assert!(pages.next().is_none());
    let (one, other) = data.split_at(data.len() / 2);
    let _ = check(&[data, &again[..bytes], one, other], &Same(twin), |_| {});
});
