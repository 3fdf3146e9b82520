//! Links for tests of what a session decides by itself.

use polyrail_core::frame::Acked;
use polyrail_core::session::{Links, Retired, Seen, UnackedFrame};
use std::collections::VecDeque;

/// Links that carry nothing, of which nothing is ever heard; by each, when it ends, so much has come.
#[derive(Default)]
pub struct Idle(pub Acked);

impl Links<u32> for Idle {
    fn look(&self, _: u32) -> Option<Seen> {
        None
    }
    fn queued(&self, _: u32) -> u64 {
        0
    }
    fn given(&self, _: u32) -> u64 {
        0
    }
    fn wants_more(&self, _: u32) -> bool {
        false
    }
    fn confirm(&mut self, _: u32, _: &Acked) -> bool {
        true
    }
    fn retire(&mut self, _: u32) -> Retired {
        Retired { received: self.0.clone(), said: Vec::new() }
    }
    fn reclaim(&mut self, _: u32, _: &Acked) -> Option<VecDeque<UnackedFrame>> {
        Some(VecDeque::new())
    }
    fn close(&mut self, _: u32) {}
}
