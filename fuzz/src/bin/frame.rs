//! Data frames, lists of memory, ranges of frames: what is read can be printed, and is written as the same bytes.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_core::frame::{Acked, Frame, PREFIX, Region, peek_lengths};

fuzz_target!(|data: &[u8]| {
    let lengths = data.first_chunk::<PREFIX>().map(peek_lengths);
    match Frame::parse(data) {
        Ok((frame, payload)) => {
            let header = frame.encode(payload);
            assert_eq!(header[..], data[..header.len()]);
            assert_eq!(lengths, Some(Ok((header.len(), payload))));
            assert_eq!(Frame::parse(&header), Ok((frame, payload)), "the payload need not be there");
            let _ = format!("{frame:?} {:?}", frame.order());
        }
        Err(error) => {
            let _ = format!("{error} {error:?}");
        }
    }
    if let Some(region) = Region::parse(data) {
        let mut bytes = [0; Region::MAX_BYTES];
        let n = region.encode(&mut bytes);
        assert_eq!(bytes[..n], *data);
        let _ = format!("{region:?} {:?}", region.len());
    }
    if let Some((upto, payload)) = data.split_first_chunk()
        && let Some(mut acked) = Acked::parse(u64::from_le_bytes(*upto), payload)
    {
        assert_eq!(acked.payload(), payload);
        let (before, end) = (acked.clone(), acked.end());
        assert!(acked.ranges().iter().all(|range| acked.has(range.start)));
        assert!(!acked.has(acked.upto()) && !acked.has(end));
        let _ = acked.add(acked.upto());
        assert!(acked.covers(&before) && !before.covers(&acked) || before == acked);
    }
});
