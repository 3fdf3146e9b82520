//! What a schedule does, and to whom.

use polyrail_core::control::{Proposable, SpecBytes};
use proptest::prelude::*;

/// Paths between the two sides; the first is the one that a link begins with.
pub const PATHS: u8 = 3;

/// A composition of the model: by which path, and in which scheme.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub path: u8,
    pub sync: bool,
    /// Which proposal it was, or which incarnation's first: no two compositions share it. Only the checks look at it.
    pub nonce: u32,
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        (self.path, self.sync) == (other.path, other.sync)
    }
}

impl Proposable for Spec {
    fn to_spec(&self) -> SpecBytes {
        let [a, b, c, d] = self.nonce.to_le_bytes();
        SpecBytes::new(&[self.path, self.sync.into(), a, b, c, d]).unwrap()
    }
    fn from_spec(spec: &SpecBytes) -> Option<Self> {
        let [path, sync, a, b, c, d] = *spec.as_bytes() else { return None };
        Some(Self { path, sync: sync == 1, nonce: u32::from_le_bytes([a, b, c, d]) })
    }
    fn delivers_all(&self) -> bool {
        self.sync
    }
}

/// Directions: 1 is from the opener, 2 from the accepter, 3 both.
pub type Ways = u8;

/// What happens at one time.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A side's program sends so many messages.
    Send { side: usize, count: u8 },
    /// A side wants another composition.
    Propose { side: usize, path: u8, sync: bool },
    /// Both do, so that their proposals cross.
    Cross { paths: [u8; 2], sync: bool },
    /// A path dies, or comes back.
    Path { path: u8, ways: Ways, alive: bool },
    /// The control channel is cut for so many milliseconds, or for ever.
    Cut { ways: Ways, ms: Option<u8> },
    /// A side dies when it is to carry out so many more actions, or at once, and comes back.
    Crash { side: usize, actions: u8 },
}

/// A schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Of a hundred datagrams so many are lost, doubled.
    pub loss: u8,
    pub doubled: u8,
    /// Datagrams take so much longer at most, in microseconds.
    pub jitter: u16,
    /// So often a word is sent before the control channel counts as failed.
    pub tries: u8,
    /// Of a hundred compositions so many cannot be built.
    pub cannot: u8,
    /// Paths but the first that are dead at the end stay so.
    pub stay_dead: bool,
    /// What happens, each so many microseconds after the one before.
    pub steps: Vec<(u16, Step)>,
}

fn step() -> impl Strategy<Value = Step> {
    let side = || 0..2_usize;
    let path = || 0..PATHS;
    let ways = || 1..=3_u8;
    prop_oneof![
        8 => (side(), 1..6_u8).prop_map(|(side, count)| Step::Send { side, count }),
        6 => (side(), path(), prop::bool::weighted(0.7))
            .prop_map(|(side, path, sync)| Step::Propose { side, path, sync }),
        2 => ([path(), path()], any::<bool>()).prop_map(|(paths, sync)| Step::Cross { paths, sync }),
        3 => (path(), ways(), prop::bool::weighted(0.4))
            .prop_map(|(path, ways, alive)| Step::Path { path, ways, alive }),
        1 => (ways(), prop::option::weighted(0.9, 1..100_u8)).prop_map(|(ways, ms)| Step::Cut { ways, ms }),
        1 => (side(), 0..12_u8).prop_map(|(side, actions)| Step::Crash { side, actions }),
    ]
}

pub fn plan() -> impl Strategy<Value = Plan> {
    let loss = prop_oneof![Just(0), 0..=20_u8, 0..=60_u8];
    let jitter = prop_oneof![Just(0), 0..3000_u16];
    let gap = prop_oneof![Just(0), 0..2000_u16, 0..20_000_u16];
    let steps = prop::collection::vec((gap, step()), 1..80);
    (any::<u64>(), loss, 0..=20_u8, jitter, 3..40_u8, prop_oneof![Just(0), Just(25)], any::<bool>(), steps)
        .prop_map(|(seed, loss, doubled, jitter, tries, cannot, stay_dead, steps)| Plan {
            seed,
            loss,
            doubled,
            jitter,
            tries,
            cannot,
            stay_dead,
            steps,
        })
}
