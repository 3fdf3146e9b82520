//! What authenticates datagrams, and encrypts them.

use crate::keys::Chain;
use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use polyrail_core::connection::Number;
use polyrail_core::wire::datagram::{HEADER, TAG};

/// Datagrams under one key: a quarter of what is allowed with AES-GCM for integrity (RFC 9001, 6.6, for datagrams of this size), and
/// seldom enough to cost nothing.
const REKEY: u64 = 1 << 22;

/// The keys of one direction.
pub(super) struct Keys {
    chain: Chain,
    key: LessSafeKey,
    mask: [u8; 12],
    /// Those after these.
    next: Option<Box<Keys>>,
    pub(super) generation: u8,
    /// Datagrams under the present one.
    count: u64,
}

impl Keys {
    /// The first ones of a chain.
    pub(super) fn new(chain: Chain, generation: u8) -> Option<Self> {
        let (key, mask) = chain.key()?;
        Some(Self { chain, key, mask, next: None, generation, count: 0 })
    }

    /// The keys after these take their place.
    fn advance(&mut self) -> Option<()> {
        let next = match self.next.take() {
            Some(next) => *next,
            None => Self::new(self.chain.next()?, self.generation.wrapping_add(1))?,
        };
        *self = next;
        Some(())
    }

    /// The chain after this one.
    pub(super) fn next_chain(&self) -> Option<Chain> {
        self.chain.next()
    }

    /// Those after these, which are made when they are asked for first.
    fn following(&mut self) -> Option<&Self> {
        if self.next.is_none() {
            self.next = Some(Box::new(Self::new(self.chain.next()?, self.generation.wrapping_add(1))?));
        }
        self.next.as_deref()
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

    /// Has the next keys take the place of those that were used often enough. None: there are no more.
    pub(super) fn renew(&mut self) -> Option<()> {
        if self.count >= REKEY { self.advance() } else { Some(()) }
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
    fn open<'a>(&self, number: Number, datagram: &'a mut [u8], encrypted: bool) -> Option<&'a [u8]> {
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

/// The keys of what comes: those in use, and the ones before them.
pub(super) struct Receiving {
    keys: Keys,
    before: Option<Keys>,
}

impl Receiving {
    /// Those of a chain's first keys.
    pub(super) fn new(chain: Chain, generation: u8) -> Option<Self> {
        Some(Self { keys: Keys::new(chain, generation)?, before: None })
    }

    /// The chain after this one.
    pub(super) fn next_chain(&self) -> Option<Chain> {
        self.keys.next_chain()
    }

    /// Opens a datagram of a generation in place: its content. By the next one it is tried, too; what can be opened so was sent by it.
    pub(super) fn open<'a>(
        &mut self,
        generation: u8,
        number: Number,
        datagram: &'a mut [u8],
        encrypted: bool,
    ) -> Option<&'a [u8]> {
        let keys = &mut self.keys;
        if generation == keys.generation {
            return keys.open(number, datagram, encrypted);
        }
        if let Some(before) = self.before.as_ref().filter(|before| before.generation == generation) {
            return before.open(number, datagram, encrypted);
        }
        if generation != keys.generation.wrapping_add(1) {
            return None;
        }
        let content = keys.following()?.open(number, datagram, encrypted)?;
        let old = Keys::new(keys.chain.clone(), keys.generation);
        keys.advance()?;
        self.before = old;
        Some(content)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use polyrail_core::wire::Key;
    use polyrail_core::wire::codec::Writer;
    use polyrail_core::wire::datagram::{Chunk, Header, Kind, first_chains, write, write_stream};

    fn chains() -> [Chain; 2] {
        let key = Key::new(std::array::from_fn(|n| n as u8)).expect("a key");
        let (client, server) = first_chains(&key, &[0x11; 16], &[0x22; 16]);
        [Chain(client), Chain(server)]
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn datagram(keys: &mut Keys, kind: Kind, number: Number, chunk: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let epoch = number.changes as u8;
        let connection = if kind == Kind::Sealed { 0x0030_0007 } else { 0x0010_0002 };
        let header =
            Header { kind, generation: keys.generation, epoch, connection, number: number.number as u32 };
        let mut bytes = vec![0; 256];
        let mut to = Writer::new(&mut bytes);
        to.bytes(&header.to_bytes());
        chunk(&mut to);
        let len = to.finish().expect("room") + TAG;
        bytes.truncate(len);
        keys.seal(number, &mut bytes, kind == Kind::Sealed);
        bytes
    }

    fn ping(to: &mut Writer<'_>) {
        write(to, &Chunk::Ping);
    }

    /// The bytes of docs/wire-datagrams.md, computed by `tests/seal_golden.py`.
    #[test]
    fn golden() {
        let page = include_str!("../../../../docs/wire-datagrams.md");
        let [client, server] = chains();
        let mut keys = Keys::new(client.clone(), 0).expect("keys");
        let plain = datagram(&mut keys, Kind::Plain, Number { number: 1, changes: 0 }, ping);
        keys.count = REKEY;
        keys.renew().expect("keys");
        let after = datagram(&mut keys, Kind::Plain, Number { number: 2, changes: 0 }, ping);
        let mut keys = Keys::new(server.clone(), 1).expect("keys");
        let number = Number { number: 0x0403_0201, changes: 0x0102 };
        let sealed = datagram(&mut keys, Kind::Sealed, number, |to| {
            write_stream(to, false, 0x40_0000_0000, 5);
            to.bytes(b"hello");
        });
        for (bytes, golden) in [
            (&client.0[..], "2bd2387883bbae9f8f3f598c390bd83ea9b125532c7cd85c6fb9e8f47b985269"),
            (&server.0, "e682f70b454986abe419cdc08fcb7b6ec1adef56a60ea8b5241544e6efdbbbc1"),
            (&plain, "10000000020010000100000003ff2d9678fe50545f5154d4d6f8ee5bf5"),
            (&after, "100100000200100002000000033f094b8b0a629e9a5cd376e24dc1ccc8"),
            (
                &sealed,
                "1101020007003000010203049380a48d0df5a1a77fac50d0163b9efa5c70ca97650a6cb9fac5cbf3c2e1784cd5",
            ),
        ] {
            assert_eq!(hex(bytes), golden);
            assert!(page.contains(golden), "docs/wire-datagrams.md lacks {golden}");
        }
    }

    #[test]
    fn keys_change_without_a_word_and_only_for_who_has_them() {
        for kind in [Kind::Plain, Kind::Sealed] {
            let [chain, other] = chains();
            let mut send = Keys::new(chain.clone(), 250).expect("keys");
            let mut receive = Receiving::new(chain, 250).expect("keys");
            let encrypted = kind == Kind::Sealed;
            let mut opens = |generation: u8, number: u64, bytes: &[u8]| {
                receive
                    .open(generation, Number { number, changes: 0 }, &mut bytes.to_vec(), encrypted)
                    .map(<[u8]>::to_vec)
            };
            let mut last = None;
            // beyond the last number that a generation has
            for number in 0..20 {
                let generation = send.generation;
                let bytes = datagram(&mut send, kind, Number { number, changes: 0 }, ping);
                let mut forged = bytes.clone();
                forged[HEADER] ^= 1;
                assert_eq!(opens(generation, number, &forged), None);
                assert_eq!(
                    opens(generation.wrapping_add(1), number, &bytes),
                    None,
                    "no step by what is not of it"
                );
                assert_eq!(opens(generation, number, &bytes).as_deref(), Some(&[3][..]), "{number}");
                assert_eq!(opens(generation, number + 1, &bytes), None, "of another number");
                if let Some((generation, number, bytes)) = last.replace((generation, number, bytes)) {
                    assert_eq!(
                        opens(generation, number, &bytes).as_deref(),
                        Some(&[3][..]),
                        "one that is late"
                    );
                    assert_eq!(opens(generation.wrapping_sub(1), number, &bytes), None);
                }
                send.count = REKEY;
                send.renew().expect("keys");
            }
            let mut stranger = Keys::new(other, send.generation).expect("keys");
            let bytes = datagram(&mut stranger, kind, Number { number: 30, changes: 0 }, ping);
            assert_eq!(opens(stranger.generation, 30, &bytes), None);
        }
    }

    #[test]
    fn a_key_serves_its_number_of_datagrams() {
        let [chain, _] = chains();
        let mut send = Keys::new(chain, 7).expect("keys");
        for (count, generation) in [(REKEY - 1, 7), (REKEY, 8), (0, 8)] {
            send.count = count;
            send.renew().expect("keys");
            assert_eq!(send.generation, generation);
        }
        assert_eq!(send.count, 0);
    }
}
