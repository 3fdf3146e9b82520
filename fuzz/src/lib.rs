//! What the fuzz targets share.

use polyrail_core::wire::handshake::HandshakeError;
use polyrail_core::wire::{Features, HostId, Key, Nonce, Offer, Transport, Versions, offer};

/// Shares of the input, taken off its front: the rest of the input decides how much.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte; 0 at the end.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// The next bytes, `n` of them or what is left.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        head
    }

    /// The next `N` bytes, with zeros for what is not there.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.bytes(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }
}

/// The key of endpoint `n`.
pub fn key(n: u8) -> Key {
    Key::new([n; 16]).expect("not zero")
}

/// What the honest side speaks.
pub fn versions() -> Versions {
    Versions::new(1, 3).expect("a range")
}

/// What the honest side can do: it encrypts where the other wants that.
pub const FEATURES: Features = Features(0xfd);

/// The honest side's nonce.
pub const NONCE: Nonce = Nonce([7; 16]);

/// The honest side's offer.
pub fn offer() -> Offer {
    let process = offer::Process { pid: 1, uid: 2, host: HostId(3) };
    let mut offer = Offer::new(process, offer::Limits::new(65536, 1 << 20).expect("large enough"));
    assert!(offer.push_transport(Transport::TCP, &[]), "room for one");
    offer.seal = Some([9; 32]);
    offer
}

/// Feeds bytes in pieces of sizes that the input chooses; what was not consumed is left to the session, as a driver would.
pub fn feed(mut bytes: &[u8], size: u8, mut handle: impl FnMut(&[u8]) -> Result<usize, HandshakeError>) {
    while !bytes.is_empty() {
        let piece = &bytes[..bytes.len().min(usize::from(size) + 1)];
        match handle(piece) {
            Ok(consumed) => {
                assert!(consumed <= piece.len());
                if consumed < piece.len() {
                    return;
                }
                bytes = &bytes[consumed..];
            }
            Err(error) => {
                let _ = format!("{error} {error:?}");
                assert_eq!(
                    handle(bytes),
                    Ok(bytes.len()),
                    "after an error all bytes are taken and mean nothing"
                );
                return;
            }
        }
    }
}
