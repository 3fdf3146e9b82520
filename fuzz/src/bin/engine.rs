//! The protocol engine against a peer that sends any stream of bytes.
#![no_main]
use libfuzzer_sys::fuzz_target;

#[path = "../../../crates/core/tests/all/engine_support/fuzz.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod engine;

fuzz_target!(|data: &[u8]| engine::any_stream(data));
