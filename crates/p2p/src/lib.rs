//! Peers that compute together: a program is divided into parts, its processes hold some each, and say what they have of their edges to each
//! other. The program chooses the [`Scheme`] and nothing else: by which rails, lanes and micro-protocols is Polyrail's to find out.
//!
//! Four calls, P2PSAP's three (Tembo, Nguyen, El Baz, PDP 2013) and one more, in the order of an iteration:
//!
//! | call | |
//! |---|---|
//! | [`Peers::send`] (`P2Psend`) | what a part has for another in this iteration |
//! | [`Peers::receive`] (`P2Preceive`) | what another has: of the same iteration in step, else the newest |
//! | [`Peers::wait`] (`P2Pwait`) | until there is something new to receive, or for so long |
//! | [`Peers::converged`] | ends the iteration; whether all may stop, which is never said falsely |
//!
//! With a verdict all stop, or go on with another problem ([`Peers::next_stage`]).
//!
//! | module | |
//! |---|---|
//! | [`meet`] | one founds a run, and others join it |
//! | [`start`], `board` | the same for processes that a launcher started together; where one asks for a run's address |
//! | [`members`] | who takes part, and who holds which part: a machine without input or output |
//! | [`peers`] | the calls, over a [`Mailbox`](polyrail_rails::mailbox::Mailbox) |
//! | `exchange` | what moves between this process and the others; one view after another |
//! | `pause` | what is asked while a call waits |
//! | `seat`, `kept` | what a place in a view means; states that are kept here |
//! | [`rounds`] | when all may stop: a machine without input or output |
//! | [`view`] | who takes part, in what, and who holds which part |
//! | [`wire`] | what members reach each other by: an endpoint, or a simulated one |
//! | [`words`], `link` | what members say to each other, and what stands before data, as bytes |
//!
//! Invariants:
//! - Nothing is decided by a clock but how long to wait for somebody.
//! - All members stop at the same verdict, and what they hold then, at the iterations that it names, is one vector whose norm it is.
//! - No member is special once all have the view, but that one is the root of the tree.
#![forbid(unsafe_code)]

mod board;
mod error;
mod exchange;
mod kept;
mod link;
pub mod meet;
pub mod members;
mod pause;
pub mod peers;
pub mod rounds;
mod seat;
pub mod start;
pub mod view;
pub mod wire;
pub mod words;

pub use error::Error;
pub use link::Link;
pub use meet::Founding;
pub use pause::Pause;
pub use peers::{Change, Peers, Received, Settings};
pub use polyrail_rails::Config;
pub use rounds::Verdict;
pub use start::Launched;
pub use view::{Job, Member, View};

/// Who waits for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Each iteration is computed with what neighbours sent in the same one.
    Synchronous,
    /// Each is computed with the newest that is there; nobody waits.
    Asynchronous,
    /// The newest that is there, but none that is more than so many iterations behind: at least 1.
    Bounded(u64),
    /// Synchronous among members of a site, asynchronous between sites.
    Hybrid,
}

impl Scheme {
    /// The group of members at this site that are in step with each other; none: nobody is.
    pub(crate) fn in_step_at(self, site: u32) -> Option<u32> {
        match self {
            Self::Synchronous => Some(0),
            Self::Hybrid => Some(site),
            Self::Asynchronous | Self::Bounded(_) => None,
        }
    }
}
