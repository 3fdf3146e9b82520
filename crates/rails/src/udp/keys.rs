//! What authenticates datagrams, and encrypts them.

use crate::keys::Chain;
use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use polyrail_core::connection::Number;
use polyrail_core::wire::datagram::{HEADER, TAG};

/// Datagrams under one key: a quarter of what is allowed with AES-GCM for integrity (RFC 9001, 6.6, for datagrams of this size), and
/// seldom enough to cost nothing.
pub(super) const REKEY: u64 = 1 << 22;

/// The keys of one direction.
pub(super) struct Keys {
    chain: Chain,
    key: LessSafeKey,
    mask: [u8; 12],
    /// Those after these.
    next: Option<Box<Keys>>,
    pub(super) generation: u8,
    /// Datagrams under the present one.
    pub(super) count: u64,
}

impl Keys {
    /// The first ones of a chain.
    pub(super) fn new(chain: Chain, generation: u8) -> Option<Self> {
        let (key, mask) = chain.key()?;
        Some(Self { chain, key, mask, next: None, generation, count: 0 })
    }

    /// The keys after these take their place.
    pub(super) fn advance(&mut self) -> Option<()> {
        let next = match self.next.take() {
            Some(next) => *next,
            None => Self::new(self.chain.next()?, self.generation.wrapping_add(1))?,
        };
        *self = next;
        Some(())
    }

    /// Those after these, which are made when they are asked for first.
    pub(super) fn following(&mut self) -> Option<&Self> {
        if self.next.is_none() {
            self.next = Some(Box::new(Self::new(self.chain.next()?, self.generation.wrapping_add(1))?));
        }
        self.next.as_deref()
    }

    /// From which these follow.
    pub(super) fn chain(&self) -> Chain {
        self.chain.clone()
    }

    /// Numbers begin anew with each composition: which it is goes along.
    fn nonce(&self, number: Number) -> Nonce {
        let mut nonce = self.mask;
        let Number { number, changes } = number;
        for (byte, of) in nonce.iter_mut().zip(number.to_le_bytes().into_iter().chain(changes.to_le_bytes()))
        {
            *byte ^= of;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Authenticates a datagram, whose last bytes are room for the tag; encrypts all behind its header, if that is asked for.
    pub(super) fn seal(&mut self, number: Number, datagram: &mut [u8], encrypt: bool) {
        self.count += 1;
        let (bytes, tag) = datagram.split_at_mut(datagram.len() - TAG);
        let (header, content) = bytes.split_at_mut(HEADER);
        let nonce = self.nonce(number);
        let made = match encrypt {
            true => self.key.seal_in_place_separate_tag(nonce, Aad::from(header), content),
            false => self.key.seal_in_place_separate_tag(nonce, Aad::from(bytes), &mut []),
        };
        // a datagram is never too long for the cipher
        if let Ok(made) = made {
            tag.copy_from_slice(made.as_ref());
        }
    }

    /// Opens a datagram in place: its content, if it is what the other side sent under this number.
    pub(super) fn open<'a>(
        &self,
        number: Number,
        datagram: &'a mut [u8],
        encrypted: bool,
    ) -> Option<&'a [u8]> {
        let nonce = self.nonce(number);
        if encrypted {
            let (header, content) = datagram.split_at_mut(HEADER);
            return self.key.open_in_place(nonce, Aad::from(header), content).ok().map(|content| &*content);
        }
        let (bytes, tag) = datagram.split_at_mut(datagram.len().checked_sub(TAG)?);
        self.key.open_in_place(nonce, Aad::from(&*bytes), tag).ok()?;
        bytes.get(HEADER..)
    }
}
