//! What endpoints answer to `polyrail top`: bounded lists, nothing that commands a terminal, and the same when it is written and
//! read again.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_rails::top::{Snapshot, VERSION};
use serde_json::Value;

/// The longest list, and whether all texts can be printed.
fn look(value: &Value) -> usize {
    match value {
        Value::String(text) => {
            assert!(!text.contains(char::is_control), "{text:?}");
            0
        }
        Value::Array(list) => list.iter().map(look).max().unwrap_or(0).max(list.len()),
        Value::Object(fields) => fields.values().map(look).max().unwrap_or(0),
        _ => 0,
    }
}

fuzz_target!(|data: &[u8]| {
    let snapshot = match Snapshot::parse(data) {
        Ok(snapshot) => snapshot,
        Err(why) => return assert!(!why.is_empty()),
    };
    assert_eq!(snapshot.v, VERSION);
    let again = serde_json::to_value(&snapshot).expect("what was read can be written");
    assert!(look(&again) <= 256);
    assert_eq!(Snapshot::parse(again.to_string().as_bytes()), Ok(snapshot));
});
