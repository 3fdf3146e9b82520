//! Programs' files: where they have code, whatever they say of themselves. Nothing in them is believed.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_omp::code::{bytes, find, kept::{Kept, State}};

fuzz_target!(|data: &[u8]| {
    let state = State([0; 7]);
    assert_eq!(Kept::read(data, &state, &state), None);
    let Some(code) = find(data) else { return };
    assert!(code.known.iter().all(|range| range.start <= range.end));
    assert_eq!(code.refusal().is_some(), !code.unknown.is_empty());
    assert_eq!(find(data).as_ref(), Some(&code));
    let kept = Kept { with_jumps: bytes::may_jump_back(data), functions: code.known };
    if let Some(written) = kept.write(&state, &state) {
        Kept::read(&written, &state, &state);
    }
});
