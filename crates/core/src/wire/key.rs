//! An endpoint's key, the identity that follows from it, and every keyed hash that Polyrail computes.

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The secret of one endpoint: who knows it may connect. It travels inside addresses, which only the job's members are
/// given, and never on a connection. It cannot be printed. (Comparing keys is for local use; what a peer claims to know
/// is compared as a keyed hash, in constant time.)
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    random: [u8; Key::LEN],
    /// What connections prove to know: the same, or what follows from it and the user's secret.
    proved: [u8; Key::LEN],
}

impl Key {
    /// Bytes of a key.
    pub const LEN: usize = 16;

    /// A key from random bytes; None for all zeros, which is what memory that nobody filled looks like.
    pub fn new(random: [u8; Self::LEN]) -> Option<Self> {
        (random != [0; Self::LEN]).then_some(Self::plain(random))
    }

    const fn plain(random: [u8; Self::LEN]) -> Self {
        Self { random, proved: random }
    }

    /// The same key where connections have to prove that they know the user's secret, too: the identity stays, and who was shown
    /// the address alone is kept out.
    #[must_use]
    pub fn with_secret(&self, secret: &[u8]) -> Self {
        let tag = Tag::by(secret).and(b"polyrail user").and(&self.random);
        Self { proved: front(&tag.bytes()), ..*self }
    }

    /// The key of a *named* endpoint, for programs that find each other by name: every holder of `secret` (a file that
    /// only one user can read) derives the same key for the same `label` (such as `node:service`).
    pub fn derive(secret: &[u8], label: &[u8]) -> Self {
        Self::plain(front(&Tag::by(secret).and(b"polyrail key").and(label).bytes()))
    }

    /// The public identity of the endpoint that has this key.
    pub fn id(&self) -> PeerId {
        PeerId(front(&Tag::keyed(&self.random).and(b"polyrail id").bytes()))
    }

    /// The key itself, for the one place that may show it: an address on its way to a member.
    pub(super) const fn expose(&self) -> &[u8; Self::LEN] {
        &self.random
    }

    /// A keyed hash that begins with `label`. No label may be the beginning of another.
    pub(super) fn tag(&self, label: &'static [u8]) -> Tag {
        Tag::keyed(&self.proved).and(label)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(of {})", self.id())
    }
}

/// A keyed hash (HMAC-SHA256) in the making.
#[must_use]
pub(super) struct Tag(Hmac<Sha256>);

impl Tag {
    pub(super) const LEN: usize = 32;

    fn by(secret: &[u8]) -> Self {
        Self(Hmac::new_from_slice(secret).expect("HMAC takes a key of any length"))
    }

    /// HMAC pads a short key with zeros to a block; doing so here leaves no error to handle.
    fn keyed(key: &[u8; Key::LEN]) -> Self {
        let mut block = [0; 64];
        block[..Key::LEN].copy_from_slice(key);
        Self(Hmac::new(&block.into()))
    }

    pub(super) fn and(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    pub(super) fn bytes(self) -> [u8; Self::LEN] {
        self.0.finalize().into_bytes().into()
    }

    /// Compares in constant time.
    #[must_use]
    pub(super) fn is(self, claimed: &[u8; Self::LEN]) -> bool {
        self.0.verify_slice(claimed).is_ok()
    }
}

/// The first half of a hash, or less.
pub(super) fn front<const N: usize>(hash: &[u8; Tag::LEN]) -> [u8; N] {
    const { assert!(N <= Tag::LEN / 2) };
    core::array::from_fn(|at| hash[at])
}

/// Who an endpoint is, for everyone to see: it follows from the key, and the key does not follow from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub [u8; PeerId::LEN]);

impl PeerId {
    /// Bytes of an identity.
    pub const LEN: usize = 16;
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which running operating system and network namespace an endpoint is in. Two endpoints with the same one may try shared
/// memory, and reach each other on loopback and by a link-local address with the same scope.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u64);

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
