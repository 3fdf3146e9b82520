//! The phases of a message on either side, as data. The tests print both machines; a change shows in their snapshots.
//!
//! Besides what the machines say, an operation in any phase fails when its peer is gone, and a posted receive can be taken
//! back.

use crate::state::Machine;

/// Where a send stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendPhase {
    /// Not yet given to a rail.
    Queued,
    /// Eager: a lane has taken it and keeps the place of its bytes, until the peer has them or they are copied.
    Lent,
    /// Eager with delivery completion: waits for ATS.
    AwaitAts,
    /// RTS sent: the receiver answers RTR, or reads and answers ATS.
    AwaitRtr,
    /// RTR received: this side writes the receiver's memory.
    Writing,
    /// RTR received: fragments are leaving, then ATS.
    Streaming,
    /// Complete.
    Done,
    /// The receiver refused it.
    Failed,
}

/// What happens to a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendEvent {
    /// A rail took the eager frame whole.
    EagerDone,
    /// A lane took the eager frame and keeps the place of its bytes.
    EagerLent,
    /// It does so no longer.
    Returned,
    /// A rail took the eager frame; delivery is to be acknowledged.
    EagerWait,
    /// A rail took the RTS.
    RtsSent,
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
    /// ATS that says that it did not go well.
    AtsFailed,
}

/// A send, frequent steps first.
pub const SEND: Machine<SendPhase, SendEvent> = {
    use SendEvent::{
        Ats, AtsFailed, EagerDone, EagerLent, EagerWait, Returned, Rtr, RtrWritable, RtsSent, WriteRefused,
        Written,
    };
    use SendPhase::{AwaitAts, AwaitRtr, Done, Failed, Lent, Queued, Streaming, Writing};
    Machine {
        name: "send",
        states: &[Queued, Lent, AwaitAts, AwaitRtr, Writing, Streaming, Done, Failed],
        events: &[
            EagerDone,
            EagerLent,
            Returned,
            EagerWait,
            RtsSent,
            RtrWritable,
            Rtr,
            Written,
            WriteRefused,
            Ats,
            AtsFailed,
        ],
        arcs: &[
            (&[Queued], EagerDone, Done),
            (&[Queued], EagerLent, Lent),
            (&[Lent], Returned, Done),
            (&[Queued], RtsSent, AwaitRtr),
            (&[AwaitAts, AwaitRtr, Streaming], Ats, Done),
            (&[AwaitRtr], Rtr, Streaming),
            (&[Queued], EagerWait, AwaitAts),
            (&[AwaitRtr], RtrWritable, Writing),
            (&[Writing], Written, Done),
            (&[Writing], WriteRefused, Streaming),
            (&[AwaitAts, AwaitRtr, Streaming], AtsFailed, Failed),
        ],
    }
};

/// Where a receive stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvPhase {
    /// Waits for a message.
    Posted,
    /// An eager message is being placed.
    Placing,
    /// RGET: this side reads the sender's memory.
    Reading,
    /// RTR sent: fragments arrive.
    Receiving,
    /// RTR sent with writable memory: the sender writes and says ATP, or fragments arrive.
    Offered,
    /// Complete.
    Done,
    /// The sender gave up.
    Failed,
}

/// What happens to a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvEvent {
    /// An eager message matched.
    MatchEager,
    /// All its bytes are placed.
    Placed,
    /// An RTS of no bytes (or no room for any) matched.
    MatchEmpty,
    /// An RTS matched; its memory will be read.
    MatchRead,
    /// An RTS matched; RTR is sent.
    MatchRtr,
    /// An RTS matched; RTR with writable memory is sent.
    MatchOffer,
    /// The read succeeded.
    ReadDone,
    /// The read was refused: RTR is sent instead.
    ReadRefused,
    /// The last fragment is placed.
    LastFragment,
    /// ATP.
    Atp,
    /// ATP that says that it did not go well.
    AtpFailed,
}

/// A receive, frequent steps first.
pub const RECV: Machine<RecvPhase, RecvEvent> = {
    use RecvEvent::{
        Atp, AtpFailed, LastFragment, MatchEager, MatchEmpty, MatchOffer, MatchRead, MatchRtr, Placed,
        ReadDone, ReadRefused,
    };
    use RecvPhase::{Done, Failed, Offered, Placing, Posted, Reading, Receiving};
    Machine {
        name: "recv",
        states: &[Posted, Placing, Reading, Receiving, Offered, Done, Failed],
        events: &[
            MatchEager,
            Placed,
            MatchEmpty,
            MatchRead,
            MatchRtr,
            MatchOffer,
            ReadDone,
            ReadRefused,
            LastFragment,
            Atp,
            AtpFailed,
        ],
        arcs: &[
            (&[Posted], MatchEager, Placing),
            (&[Placing], Placed, Done),
            (&[Posted], MatchRead, Reading),
            (&[Reading], ReadDone, Done),
            (&[Posted], MatchRtr, Receiving),
            (&[Receiving, Offered], LastFragment, Done),
            (&[Posted], MatchOffer, Offered),
            (&[Offered], Atp, Done),
            (&[Posted], MatchEmpty, Done),
            (&[Reading], ReadRefused, Receiving),
            (&[Offered], AtpFailed, Failed),
        ],
    }
};
