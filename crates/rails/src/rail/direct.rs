//! Reading and writing a peer's memory directly, in slices: a gigabyte holds neither a round of progress, nor whoever waits for
//! the lock around it, nor the small transfer behind it.

use super::{LinkId, Memory, Span};
use polyrail_core::frame::OpId;
use polyrail_core::proto::{Job, PeerIdx, Region};

/// Bytes between this process's memory and a peer's.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// By which link.
    pub link: LinkId,
    /// To the peer's memory, or from there?
    pub write: bool,
    /// This process's side; its length is how much.
    pub ours: Span,
    /// The peer's side, at least as long.
    pub theirs: Region,
    /// Whose, and what the engine calls it.
    pub peer: PeerIdx,
    /// Likewise.
    pub job: Job,
    /// The peer's send that is read, if it is one: the peer may help.
    pub send: Option<OpId>,
}

/// Why a transfer came to nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirectError {
    /// Its operation has ended in the meantime, or its region was closed.
    Ended,
    /// The peer's memory is not to be reached; the text says why.
    Refused(String),
}

/// Direct transfers of a rail. One that has none implements nothing of this, and is never asked.
pub trait Direct {
    /// Takes a transfer in. It moves by [`Direct::poll`].
    ///
    /// # Errors
    /// The transfer, where the link reaches no memory.
    fn start(&mut self, transfer: Transfer) -> Result<(), Transfer> {
        Err(transfer)
    }

    /// Moves transfers on, a slice of each in turn, until one has ended or `budget` is used up, of which it takes what it moved.
    /// The addresses are asked for before each slice: an operation that has ended resolves to nothing.
    fn poll<M: Memory + ?Sized>(
        &mut self,
        _mem: &M,
        _budget: &mut usize,
    ) -> Option<(Transfer, Result<(), DirectError>)> {
        None
    }

    /// How many are under way. Closing a link drops its own.
    fn transfers(&self) -> usize {
        0
    }
}
