//! Texts that tests pin in `tests/snapshots`; `UPDATE_SNAPSHOTS=1` writes them anew, for review by `git diff`.
use std::{env, fs, path::Path};

/// Fails when `text` is not what the snapshot says.
pub fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let pinned = fs::read_to_string(&path).unwrap_or_default();
    assert!(pinned == text, "{name} differs from its snapshot (UPDATE_SNAPSHOTS=1 accepts this):\n{text}");
}
