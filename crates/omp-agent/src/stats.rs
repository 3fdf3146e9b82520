//! What a run cost: the agents' counters and the runtimes'.

/// What an agent counts.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Exchanges.
    pub exchanges: u64,
    /// Bytes of blobs that this rank had for the others.
    pub sent: u64,
    /// Bytes of the others' blobs.
    pub received: u64,
    /// Nanoseconds between a submission and its end, other ranks' being late included.
    pub waited: u64,
    /// Requests of threads.
    pub asked: u64,
}

/// Names of an agent's counters, in the order of [`Counters::words`].
pub const NAMES: [&str; 5] = ["exchanges", "sent_bytes", "received_bytes", "exchange_ns", "requests"];

impl Counters {
    /// These, then the runtime's.
    pub fn words(&self, runtime: &[u64]) -> Vec<u64> {
        let own = [self.exchanges, self.sent, self.received, self.waited, self.asked];
        own.into_iter().chain(runtime.iter().copied()).collect()
    }
}
