//! The phases of a message on either side, as data. The tests print both tables; a change shows in their snapshot.

/// Where a send stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendPhase {
    /// Not yet given to a rail.
    Queued,
    /// Eager; a rail still holds its bytes.
    Leaving,
    /// Eager with delivery completion: waits for ATS.
    AwaitAts,
    /// RTS sent: the receiver answers RTR, or reads and answers ATS.
    AwaitRtr,
    /// RTR received: this side writes the receiver's memory.
    Writing,
    /// RTR received: fragments are leaving, then ATS.
    Streaming,
}

/// What happens to a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendEvent {
    /// A rail took the eager frame whole.
    EagerDone,
    /// A rail keeps the eager frame's bytes for a while.
    EagerKept,
    /// A rail took the eager frame; delivery is to be acknowledged.
    EagerWait,
    /// A rail took the RTS.
    RtsSent,
    /// The bytes that a rail kept have left.
    Left,
    /// RTR with writable memory.
    RtrWritable,
    /// RTR without.
    Rtr,
    /// The write succeeded.
    Written,
    /// The write was refused: fall back to fragments.
    WriteRefused,
    /// ATS.
    Ats,
}

/// What a table says: the next phase, the end, or an event that cannot happen there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<P> {
    /// Go on in this phase.
    To(P),
    /// The operation is complete.
    End,
    /// The peer has no business saying this now.
    Invalid,
}

impl SendPhase {
    /// All phases.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Leaving, Self::AwaitAts, Self::AwaitRtr, Self::Writing, Self::Streaming];

    /// The table.
    pub fn on(self, event: SendEvent) -> Step<Self> {
        use SendEvent as E;
        use Step::{End, Invalid, To};
        match (self, event) {
            (Self::Queued, E::EagerDone) => End,
            (Self::Queued, E::EagerKept) => To(Self::Leaving),
            (Self::Queued, E::EagerWait) => To(Self::AwaitAts),
            (Self::Queued, E::RtsSent) => To(Self::AwaitRtr),
            (Self::Leaving, E::Left) => End,
            (Self::AwaitAts, E::Left) => To(Self::AwaitAts),
            (Self::AwaitRtr, E::RtrWritable) => To(Self::Writing),
            (Self::AwaitRtr, E::Rtr) => To(Self::Streaming),
            (Self::Writing, E::Written) => End,
            (Self::Writing, E::WriteRefused) => To(Self::Streaming),
            (Self::Streaming, E::Left) => To(Self::Streaming),
            (Self::AwaitAts | Self::AwaitRtr | Self::Streaming, E::Ats) => End,
            _ => Invalid,
        }
    }
}

/// Where a receive stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvPhase {
    /// Waits for a message.
    Posted,
    /// An eager message is being placed.
    Placing,
    /// RGET: this side reads the sender's memory.
    Reading,
    /// RTR sent: fragments arrive, or the sender writes and says ATP.
    Receiving,
}

/// What happens to a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvEvent {
    /// An eager message matched.
    MatchEager,
    /// An RTS matched; its memory will be read.
    MatchRead,
    /// An RTS matched; RTR is sent.
    MatchRtr,
    /// An RTS of no bytes (or no room for any) matched.
    MatchEmpty,
    /// All bytes are placed.
    Placed,
    /// The read succeeded.
    ReadDone,
    /// The read was refused: RTR is sent instead.
    ReadRefused,
    /// The last fragment is placed.
    LastFragment,
    /// ATP.
    Atp,
}

impl RecvPhase {
    /// All phases.
    pub const ALL: [Self; 4] = [Self::Posted, Self::Placing, Self::Reading, Self::Receiving];

    /// The table.
    pub fn on(self, event: RecvEvent) -> Step<Self> {
        use RecvEvent as E;
        use Step::{End, Invalid, To};
        match (self, event) {
            (Self::Posted, E::MatchEager) => To(Self::Placing),
            (Self::Posted, E::MatchRead) => To(Self::Reading),
            (Self::Posted, E::MatchRtr) => To(Self::Receiving),
            (Self::Posted, E::MatchEmpty) => End,
            (Self::Placing, E::Placed) => End,
            (Self::Reading, E::ReadDone) => End,
            (Self::Reading, E::ReadRefused) => To(Self::Receiving),
            (Self::Receiving, E::LastFragment | E::Atp) => End,
            _ => Invalid,
        }
    }
}
