//! The keys of encrypted connections: from a fresh pair on each side and the secret of their handshake to one chain of keys for each
//! direction (`docs/wire.md`, *Sealed connections*).
//!
//! Who has only the handshake's secret, because it knows the endpoint's key, lacks what the two fresh pairs have in common; who has only
//! that, because it put itself in between, lacks the secret. The private halves are forgotten with the handshake, so that what was
//! recorded stays closed to who learns the endpoint's key later.

use crate::error::Error;
use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::hkdf;
use polyrail_core::wire::handshake::Secret;
use polyrail_core::wire::offer::SEAL_LEN;
use std::fmt;
use std::io;

/// One side's fresh pair.
pub struct KeyPair {
    private: PrivateKey,
    public: [u8; SEAL_LEN],
}

impl KeyPair {
    /// A pair for one connection, from the kernel's random numbers. (The library's own would gather some first, for 40 ms.)
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new() -> Result<Self, Error> {
        let mut bytes = [0; SEAL_LEN];
        getrandom::fill(&mut bytes).map_err(|why| Error::system("random numbers", io::Error::other(why)))?;
        Self::of(&bytes).ok_or_else(|| Error::system("making a key", io::ErrorKind::Other.into()))
    }

    /// The pair of these random bytes.
    pub fn of(bytes: &[u8; SEAL_LEN]) -> Option<Self> {
        let private = PrivateKey::from_private_key(&X25519, bytes).ok()?;
        let public = private.compute_public_key().ok()?.as_ref().try_into().ok()?;
        Some(Self { private, public })
    }

    /// What the other side is told.
    pub fn public(&self) -> [u8; SEAL_LEN] {
        self.public
    }

    /// What this pair and the other side's have in common, which nobody else can know: of pairs that are kept, and whose public halves each
    /// side learned in a way it trusts. `label` says what for. None if that is no key. Both sides get the same.
    pub fn in_common(&self, theirs: &[u8; SEAL_LEN], label: &[u8]) -> Option<[u8; 32]> {
        let (low, high) = if self.public < *theirs { (&self.public, theirs) } else { (theirs, &self.public) };
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, &[label, low, high].concat());
        let theirs = UnparsedPublicKey::new(&X25519, theirs);
        let root = agreement::agree(&self.private, theirs, (), |shared| Ok(salt.extract(shared)));
        expand(&root.ok()?, b"in common")
    }

    /// The connection's keys, from what the other side told; none if that is no key.
    pub fn keys(&self, theirs: &[u8; SEAL_LEN], secret: Secret, opened: bool) -> Option<LinkKeys> {
        let theirs = UnparsedPublicKey::new(&X25519, theirs);
        let root = agreement::agree(&self.private, theirs, (), |shared| {
            Ok(hkdf::Salt::new(hkdf::HKDF_SHA256, &secret.0).extract(shared))
        });
        let root = root.ok()?;
        let of = |label: &[u8]| expand(&root, label).map(Chain);
        let (client, server) = (of(b"polyrail from client")?, of(b"polyrail from server")?);
        Some(match opened {
            true => LinkKeys { send: client, receive: server },
            false => LinkKeys { send: server, receive: client },
        })
    }
}

/// The keys of one connection.
#[derive(Debug)]
pub struct LinkKeys {
    /// Of what this side sends.
    pub send: Chain,
    /// Of what it receives.
    pub receive: Chain,
}

/// From which the keys of one direction follow, one after the other; none leads back to the one before. It cannot be printed.
#[derive(Clone)]
pub struct Chain(pub [u8; 32]);

impl Chain {
    /// The key, and what the numbers of its records are mixed with.
    pub(crate) fn key(&self) -> Option<(LessSafeKey, [u8; 12])> {
        let chain = self.prk();
        let key = UnboundKey::new(&AES_256_GCM, &expand(&chain, b"key")?).ok()?;
        let mask = *expand(&chain, b"iv")?.first_chunk()?;
        Some((LessSafeKey::new(key), mask))
    }

    /// The next one.
    pub(crate) fn next(&self) -> Option<Self> {
        self.branch(b"next")
    }

    /// One for something of its own.
    pub(crate) fn branch(&self, label: &[u8]) -> Option<Self> {
        expand(&self.prk(), label).map(Self)
    }

    fn prk(&self) -> hkdf::Prk {
        hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &self.0)
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chain")
    }
}

/// HKDF-Expand, the first 32 bytes.
fn expand(from: &hkdf::Prk, label: &[u8]) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    from.expand(&[label], hkdf::HKDF_SHA256).ok()?.fill(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pair(n: u8) -> KeyPair {
        KeyPair::of(&[n; SEAL_LEN]).unwrap()
    }

    #[test]
    fn both_sides_come_to_the_same_keys_one_for_each_direction() {
        let (a, b, secret) = (pair(1), pair(2), Secret([3; 32]));
        let ours = a.keys(&b.public(), secret, true).unwrap();
        let theirs = b.keys(&a.public(), secret, false).unwrap();
        assert_eq!((ours.send.0, ours.receive.0), (theirs.receive.0, theirs.send.0));
        assert_ne!(ours.send.0, ours.receive.0);
        assert_eq!(format!("{ours:?}"), "LinkKeys { send: Chain, receive: Chain }");
    }

    #[test]
    fn they_need_both_the_secret_and_a_private_half() {
        let (a, b) = (pair(1), pair(2));
        let key = |a: &KeyPair, secret| a.keys(&b.public(), Secret([secret; 32]), true).unwrap().send.0;
        assert_ne!(key(&a, 3), key(&a, 4), "another secret");
        assert_ne!(key(&a, 3), key(&pair(5), 3), "another pair");
    }

    #[test]
    fn what_is_no_key_of_a_pair_makes_none() {
        assert!(pair(1).keys(&[0; SEAL_LEN], Secret([3; 32]), true).is_none());
        assert!(KeyPair::new().unwrap().public() != KeyPair::new().unwrap().public());
    }
}
