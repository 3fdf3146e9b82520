//! Words of the control channel: what is read is written as the same bytes; and a side that hears them, in any order, does not panic.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_core::control::word::parse;
use polyrail_core::control::{Action, Changeover, Config, Proposable, Side, SpecBytes};

/// A composition is what its bytes are.
#[derive(Clone, PartialEq, Debug)]
struct Any(SpecBytes);

impl Proposable for Any {
    fn to_spec(&self) -> SpecBytes {
        self.0.clone()
    }
    fn from_spec(spec: &SpecBytes) -> Option<Self> {
        Some(Self(spec.clone()))
    }
    fn delivers_all(&self) -> bool {
        self.0.as_bytes().len() % 2 == 0
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(word) = parse(data) {
        assert_eq!(word.to_bytes(), data);
    }
    let first = Any(SpecBytes::new(&[]).expect("it is short"));
    let mut machine = Changeover::new(Side::Accepter, Config::default(), first);
    // words one after the other, each behind its length
    let mut rest = data;
    while let Some((len, more)) = rest.split_first() {
        let Some((word, more)) = more.split_at_checked((*len).into()) else { break };
        rest = more;
        let Ok(word) = parse(word) else { continue };
        let _ = machine.handle_word(0, word);
        while let Some(action) = machine.poll_action() {
            match action {
                Action::Build { epoch, .. } => machine.handle_built(0, epoch),
                Action::Flip { .. } => machine.handle_flipped(0),
                Action::Resume { .. } => machine.handle_received(u64::MAX / 2),
                _ => {}
            }
        }
    }
});
