//! What agents need of a network: messages between ranks that keep their order per sender and tag. MPI is one; tests have another.

/// What a message is about; messages of one tag from one rank arrive in the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Tag {
    /// How a run begins.
    Start = 1,
    /// Requests, answers, the end.
    Control,
    /// Headers of exchanges with an even and an odd number.
    Headers0,
    /// See [`Tag::Headers0`].
    Headers1,
    /// Blobs of exchanges with an even and an odd number.
    Blobs0,
    /// See [`Tag::Blobs0`].
    Blobs1,
}

/// Messages between ranks. Nothing here blocks.
pub trait Net {
    /// A message under way.
    type Request;
    /// Why one failed.
    type Error;

    /// This rank.
    fn rank(&self) -> usize;
    /// Ranks.
    fn size(&self) -> usize;
    /// Begins to send.
    ///
    /// # Safety
    /// The bytes stay and do not change until the request is [`done`](Self::done).
    unsafe fn send(
        &mut self,
        from: *const u8,
        bytes: usize,
        to: usize,
        tag: Tag,
    ) -> Result<Self::Request, Self::Error>;
    /// The rank from which a message has come that nobody receives yet, if one has.
    fn come(&mut self, tag: Tag) -> Result<Option<usize>, Self::Error>;
    /// Begins to receive at most `bytes`.
    ///
    /// # Safety
    /// Nobody uses the memory until the request is [`done`](Self::done).
    unsafe fn receive(
        &mut self,
        to: *mut u8,
        bytes: usize,
        from: usize,
        tag: Tag,
    ) -> Result<Self::Request, Self::Error>;
    /// Makes progress, and says whether the message has been sent or received.
    fn done(&mut self, request: &mut Self::Request) -> Result<bool, Self::Error>;
}
