//! Texts that tests pin in `tests/snapshots`; `UPDATE_SNAPSHOTS=1` writes them anew, for review by `git diff`.
use polyrail_core::state::Machine;
use std::fmt::Debug;
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

/// A machine, whole: table and graph are pinned, and it has no flaw that a table shows.
pub fn machine<S: Copy + Eq + Debug, E: Copy + Eq + Debug>(machine: &Machine<S, E>) {
    check(&format!("{}.md", machine.name), &machine.table().to_string());
    check(&format!("{}.dot", machine.name), &machine.dot().to_string());
    // Two arcs for one pair would hide one of them.
    for &state in machine.states {
        for &event in machine.events {
            let arcs =
                machine.arcs.iter().filter(|(from, on, _)| *on == event && from.contains(&state)).count();
            assert!(arcs <= 1, "{}: {arcs} arcs for {event:?} in {state:?}", machine.name);
        }
    }
    let mut reached = vec![machine.states[0]];
    let mut at = 0;
    while let Some(&state) = reached.get(at) {
        let next = machine.events.iter().filter_map(|&event| machine.next(state, event));
        let new: Vec<S> = next.filter(|next| !reached.contains(next)).collect();
        new.into_iter().for_each(|next| {
            if !reached.contains(&next) {
                reached.push(next)
            }
        });
        at += 1;
    }
    assert_eq!(reached.len(), machine.states.len(), "{}: reached are {reached:?}", machine.name);
}
