//! Synchronous: nothing is lost, nothing overtakes; who sends waits for who receives.

use super::{MicroProtocol, Settled, Shared};

/// Lets the sender be ahead of what the other side has in order by no more than that keeps for its turn.
#[derive(Debug, Default)]
pub struct Synchronous;

impl MicroProtocol for Synchronous {
    const NAME: &'static str = "Synchronous";

    fn settled(&mut self, shared: &mut Shared, _settled: &Settled) {
        shared.let_ahead();
    }
}
