//! Files of checkpoints, whatever is in them; and making one of several.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_omp::checkpoint::{Head, Manifest, Segment, Writer, merge};

fuzz_target!(|data: &[u8]| {
    if let Ok(manifest) = Manifest::read(data) {
        assert_eq!(Manifest::read(&manifest.bytes()), Ok(manifest));
    }
    let Ok(segment) = Segment::read(data, false) else { return };
    let mut all = Vec::new();
    let sink = |bytes: &[u8]| {
        all.extend_from_slice(bytes);
        Ok::<(), ()>(())
    };
    let Ok(mut writer) = Writer::new(Head { whole: true, ..segment.head }, sink) else { return };
    let _ = merge(&[segment, segment], &mut writer);
    let _ = writer.end();
    assert!(Segment::read(&all, true).is_ok());
});
