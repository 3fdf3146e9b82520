//! Words of peers that compute together, as they come from others: none breaks the reader, and what is understood is the same bytes again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use polyrail_p2p::words::{decode, encode};

fuzz_target!(|bytes: &[u8]| {
    let Ok((epoch, said)) = decode(bytes) else { return };
    assert_eq!(encode(epoch, &said), bytes);
});
