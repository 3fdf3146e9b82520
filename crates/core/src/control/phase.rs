//! How far a change has come, on one side.
//!
//! Before a side has said SWITCH it can go back, if it proposed, or is made to go back by ABORT. From SWITCH on there is no way
//! back: where the control channel fails then, or no path is left, the link has to be made anew.

use crate::state::Machine;

/// How far a change has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// One composition is in force, and nothing changes.
    Run,
    /// This side's own proposal is being built here; the peer does not know of it.
    Building,
    /// PREPARE is said.
    Proposed,
    /// The peer's proposal is being built here.
    Answering,
    /// PREPARED is said: SWITCH or ABORT follows.
    Ready,
    /// What is sent from now on goes by the new composition; where the old one ends is not known yet.
    Flipping,
    /// SWITCH is said.
    Switching,
    /// Also, all of the peer's old half is here, and DRAINED is said.
    Resumed,
    /// SWITCH is said and the peer has all of this side's old half, but not the other way round.
    Heard,
    /// As Run, but the control channel has failed: nothing changes any more.
    Alone,
    /// As Ready, but whether the peer has switched will not be heard.
    InDoubt,
    /// As Heard, but the peer will not hear of it.
    Finishing,
    /// The two sides cannot agree any more: the link is to be made anew.
    Ended,
}

/// What happens to a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// This side wants another composition.
    Propose,
    /// What is being built is built.
    Built,
    /// It cannot be.
    Unable,
    /// PREPARE comes from the side whose proposals win.
    LowerPrepares,
    /// PREPARE comes from the other one.
    HigherPrepares,
    /// PREPARED comes for this side's proposal.
    Prepared,
    /// NACK comes for it.
    Nack,
    /// ABORT comes for the peer's.
    Abort,
    /// SWITCH comes.
    Switch,
    /// New sends go by the new composition.
    Flipped,
    /// All of the peer's old half is here.
    Received,
    /// DRAINED comes: the peer has all of this side's.
    Drained,
    /// The peer does not answer in time.
    Timeout,
    /// The control channel has failed.
    ControlFails,
    /// Neither composition gets anything through, and the peer lacks something of the old one.
    PathsDie,
}

/// A change as data.
pub const CHANGEOVER: Machine<State, Event> = {
    use Event::{
        Abort, Built, ControlFails, Drained, Flipped, HigherPrepares, LowerPrepares, Nack, PathsDie,
        Prepared, Propose, Received, Switch, Timeout, Unable,
    };
    use State::{
        Alone, Answering, Building, Ended, Finishing, Flipping, Heard, InDoubt, Proposed, Ready, Resumed,
        Run, Switching,
    };
    Machine {
        name: "changeover",
        states: &[
            Run, Building, Proposed, Answering, Ready, Flipping, Switching, Resumed, Heard, Alone, InDoubt,
            Finishing, Ended,
        ],
        events: &[
            Propose,
            Built,
            Unable,
            LowerPrepares,
            HigherPrepares,
            Prepared,
            Nack,
            Abort,
            Switch,
            Flipped,
            Received,
            Drained,
            Timeout,
            ControlFails,
            PathsDie,
        ],
        arcs: &[
            (&[Run], Propose, Building),
            (&[Building], Built, Proposed),
            (&[Answering], Built, Ready),
            (&[Building, Answering], Unable, Run),
            (&[Run, Building, Proposed], LowerPrepares, Answering),
            (&[Run, Building], HigherPrepares, Answering),
            // it withdraws by itself when it hears of ours
            (&[Proposed], HigherPrepares, Proposed),
            (&[Proposed], Prepared, Flipping),
            (&[Proposed], Nack, Run),
            (&[Answering, Ready], Abort, Run),
            (&[Ready], Switch, Flipping),
            // the answer to ours
            (&[Switching], Switch, Switching),
            (&[Flipping], Flipped, Switching),
            (&[Switching], Received, Resumed),
            (&[Heard], Received, Run),
            (&[Finishing], Received, Alone),
            (&[Switching], Drained, Heard),
            (&[Resumed], Drained, Run),
            (&[Building, Proposed], Timeout, Run),
            (&[Run, Building, Proposed, Answering, Alone], ControlFails, Alone),
            (&[Ready, InDoubt], ControlFails, InDoubt),
            (&[Heard, Finishing], ControlFails, Finishing),
            // whether the peer heard SWITCH is not known, and never will be
            (&[Flipping, Switching, Resumed], ControlFails, Ended),
            (&[Switching, Resumed], PathsDie, Ended),
        ],
    }
};
