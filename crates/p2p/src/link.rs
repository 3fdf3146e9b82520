//! Links between parts, and what stands before the bytes of a message (`docs/wire-peers.md`).

/// Bytes before those of a message between parts.
pub(crate) const HEAD: usize = 24;
/// The tag of a value that is of no link: what a member tells of itself.
pub(crate) const TOLD: u64 = u64::MAX;
/// Tags of links, at most.
pub(crate) const TAGS: u16 = 1 << 12;

/// What a tag of a message is about: its highest four bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    View = 1,
    InStep = 2,
    Marked = 3,
    Posted = 4,
    /// A piece of a state: of the part that the link is from, and of the iteration of the number.
    Kept = 5,
}

impl Class {
    pub(crate) fn tag(self, name: u64) -> u64 {
        (self as u64) << 60 | name
    }
}

/// From which part to which, and which of several between those.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// The part that sends.
    pub from: u32,
    /// The part that receives.
    pub to: u32,
    /// One of several: less than 4096.
    pub tag: u16,
}

impl Link {
    /// The one link from a part to another, or the first of several.
    pub fn new(from: u32, to: u32) -> Self {
        Self { from, to, tag: 0 }
    }

    /// Another of several.
    #[must_use]
    pub fn tagged(self, tag: u16) -> Self {
        Self { tag, ..self }
    }

    pub(crate) fn name(self) -> u64 {
        u64::from(self.tag) << 48 | u64::from(self.from) << 24 | u64::from(self.to)
    }
}

/// Puts a message together: what it is and of which link, the number of the view, that of the iteration or the round, and the bytes.
pub(crate) fn write_message(
    into: &mut Vec<u8>,
    class: Class,
    link: Link,
    epoch: u32,
    number: u64,
    bytes: &[&[u8]],
) {
    into.clear();
    into.extend(class.tag(link.name()).to_le_bytes());
    into.extend(u64::from(epoch).to_le_bytes());
    into.extend(number.to_le_bytes());
    bytes.iter().for_each(|bytes| into.extend(*bytes));
}

/// How many of so many bytes of a message with this tag are a part's own; the others are what stands before them, or words of members.
pub fn segment_of_message(tag: u64, len: usize) -> usize {
    if tag >> 60 == Class::View as u64 { 0 } else { len.saturating_sub(HEAD) }
}

/// The same of a value, before which nothing stands; members tell each other of themselves without a link.
pub fn segment_of_value(tag: u64, len: usize) -> usize {
    if tag == TOLD { 0 } else { len }
}

/// What a message is, and of which link; none: it has no head, or one that there is not.
pub(crate) fn read_head(message: &[u8]) -> Option<(Class, Link)> {
    let name = u64::from_le_bytes(*message.first_chunk()?);
    let class = match name >> 60 {
        2 => Class::InStep,
        3 => Class::Marked,
        4 => Class::Posted,
        5 => Class::Kept,
        _ => return None,
    };
    let part = |shift: u32| (name >> shift & 0xff_ffff) as u32;
    let link = Link { from: part(24), to: part(0), tag: (name >> 48) as u16 & (TAGS - 1) };
    (message.len() >= HEAD).then_some((class, link))
}

/// Whether this begins as a message does, and not as a word, of which the epoch's highest bits stand there.
pub(crate) fn has_class(message: &[u8]) -> bool {
    message.get(7).is_some_and(|byte| byte >> 4 != 0)
}

/// The number of the view that a message is of.
pub(crate) fn epoch_of(message: &[u8]) -> u64 {
    message.get(8..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The number of a message's iteration or round.
pub(crate) fn number_of(message: &[u8]) -> u64 {
    message
        .get(HEAD - 8..)
        .and_then(|rest| rest.first_chunk())
        .map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
