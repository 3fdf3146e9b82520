//! Which rails have their turn in a round of progress: always those that cost nothing to look at; the others whenever they are all
//! there is, or something came by them lately.

use super::inbound::Inbound;
use super::{Core, Listener};
use crate::list::RailId;
use crate::rail::{Look, Rail};
use crate::set::EachRail;

/// Rounds with traffic in memory alone between two looks that cost a system call.
const SELDOM: u32 = 64;
/// Empty looks after which a rail counts as quiet.
const QUIET: u32 = 256;

/// How a rail was found lately.
#[derive(Clone, Copy, Default)]
struct Found {
    /// Empty looks in a row.
    empty: u32,
    /// Rounds since the last look.
    skipped: u32,
}

/// How all of them were.
#[derive(Default)]
pub(super) struct Turns([Found; RailId::ALL.len()]);

impl Turns {
    /// Whether a rail is to be looked at although that costs a system call; `in_memory` links are looked at anyway.
    #[inline]
    fn is_due(&mut self, rail: RailId, in_memory: usize) -> bool {
        let found = &mut self.0[rail as usize];
        found.skipped += 1;
        in_memory == 0 || found.empty < QUIET || found.skipped >= SELDOM
    }

    #[inline]
    fn looked(&mut self, rail: RailId, busy: bool) {
        let found = &mut self.0[rail as usize];
        *found = Found { empty: if busy { 0 } else { found.empty.saturating_add(1) }, skipped: 0 };
    }

    /// The program sleeps until something happens, which may be by any rail.
    pub(super) fn sleeps(&mut self) {
        self.0 = Default::default();
    }
}

/// A round of progress of the rails that cost no system call to look at.
pub(super) struct InMemory<'a, L> {
    pub(super) core: &'a mut Core,
    pub(super) listener: &'a mut L,
    /// Frames that came, and sends that ended.
    pub(super) moved: usize,
    /// Some of them by a rail whose peers wait to hear what came.
    pub(super) by_lanes: bool,
}

impl<L: Listener> EachRail for InMemory<'_, L> {
    #[inline]
    fn with<R: Rail>(&mut self, id: RailId, rail: &mut R) {
        if R::CAPS.look == Look::Memory {
            let moved = rail.progress(&mut Inbound { core: self.core, rail: id, listener: self.listener });
            self.by_lanes |= R::CAPS.has_lanes() && moved > 0;
            self.moved += moved;
        }
    }
}

/// A round of progress of the others, if they have their turn.
pub(super) struct BySystemCall<'a, L> {
    pub(super) core: &'a mut Core,
    pub(super) listener: &'a mut L,
    pub(super) turns: &'a mut Turns,
    /// Links that are looked at anyway.
    pub(super) in_memory: usize,
    pub(super) moved: usize,
    pub(super) by_lanes: bool,
}

impl<L: Listener> EachRail for BySystemCall<'_, L> {
    fn with<R: Rail>(&mut self, id: RailId, rail: &mut R) {
        if R::CAPS.look == Look::SystemCall && rail.links() > 0 && self.turns.is_due(id, self.in_memory) {
            let moved = rail.progress(&mut Inbound { core: self.core, rail: id, listener: self.listener });
            self.turns.looked(id, moved > 0);
            self.by_lanes |= R::CAPS.has_lanes() && moved > 0;
            self.moved += moved;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAIL: RailId = RailId::ALL[0];

    #[test]
    fn a_rail_that_is_all_there_is_is_always_due() {
        let mut turns = Turns::default();
        for _ in 0..10 * QUIET {
            assert!(turns.is_due(RAIL, 0));
            turns.looked(RAIL, false);
        }
    }

    #[test]
    fn a_quiet_rail_is_seldom_due_beside_others_until_something_comes() {
        let mut turns = Turns::default();
        let looks = |turns: &mut Turns, rounds: u32, busy: bool| {
            let mut looks = 0;
            for _ in 0..rounds {
                if turns.is_due(RAIL, 1) {
                    turns.looked(RAIL, busy);
                    looks += 1;
                }
            }
            looks
        };
        assert_eq!(looks(&mut turns, QUIET, false), QUIET);
        assert_eq!(looks(&mut turns, 10 * SELDOM, false), 10);
        assert_eq!(looks(&mut turns, SELDOM, true), 1);
        assert_eq!(looks(&mut turns, QUIET, false), QUIET);
        assert_eq!(looks(&mut turns, 10 * SELDOM, false), 10);
        turns.sleeps();
        assert_eq!(looks(&mut turns, 10, false), 10);
    }
}
