//! The records by which two ends of a fresh byte stream prove to each other that they know the key of the server's address.
//!
//! ```text
//! client                                    server
//!   HELLO      versions, features, nonce  -->
//!                                         <--  CHALLENGE  version, features, nonce, MAC      (or VERSIONS, or DENIED)
//!   PROOF      MAC, offer                 -->
//!                                         <--  VERDICT    accept or reason, MAC, offer       (or DENIED)
//! ```
//!
//! Every record begins with `PLYR` and its kind. Each MAC is an HMAC-SHA256 with the server's key over a label of its own
//! and *everything* said before it, so that none can be replayed on another connection (fresh nonces), sent back to where
//! it came from (labels), or survive a change to what it answers (no downgrade). HELLO and VERSIONS never change, whatever
//! later versions do to the rest: that is how ends of different versions come to tell each other so.

pub use super::terms::{Features, HandshakeError, Kind, Nonce, Reject, SessionId, Versions};
use super::{
    codec::{Reader, Short, record},
    key::{Key, PeerId, Tag, front},
    transport::Transport,
};

/// What every record begins with.
pub const MAGIC: [u8; 4] = *b"PLYR";
/// The most bytes that an offer may have.
pub const MAX_OFFER: usize = 4096;
/// The most bytes that a record may have, its offer included.
pub const MAX_RECORD: usize = SEALED_LEN + MAX_OFFER;

/// Bytes of HELLO.
pub const HELLO_LEN: usize = 80;
/// Bytes of CHALLENGE.
pub const CHALLENGE_LEN: usize = 64;
/// Bytes of PROOF and of VERDICT, without the offer.
pub const SEALED_LEN: usize = SEALED_HEAD + Tag::LEN;
/// Bytes of DENIED.
pub const DENIED_LEN: usize = 8;
/// Bytes of VERSIONS.
pub const VERSIONS_LEN: usize = 12;
/// What of PROOF and VERDICT comes before the MAC: magic, kind, code, length of the offer.
pub(crate) const SEALED_HEAD: usize = 8;

/// Kinds of record, as numbered on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Record {
    /// The client's first.
    Hello = 1,
    /// The server proves the key.
    Challenge = 2,
    /// The client proves the key, with its offer.
    Proof = 3,
    /// The server accepts, with its offer, or rejects.
    Verdict = 4,
    /// The server says no, and nothing else.
    Denied = 5,
    /// The server speaks none of the client's versions.
    Versions = 6,
}

impl Record {
    /// The kind with this number.
    pub const fn from_wire(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Hello,
            2 => Self::Challenge,
            3 => Self::Proof,
            4 => Self::Verdict,
            5 => Self::Denied,
            6 => Self::Versions,
            _ => return None,
        })
    }

    /// Bytes of the record's fixed part.
    pub const fn fixed_len(self) -> usize {
        match self {
            Self::Hello => HELLO_LEN,
            Self::Challenge => CHALLENGE_LEN,
            Self::Proof | Self::Verdict => SEALED_LEN,
            Self::Denied => DENIED_LEN,
            Self::Versions => VERSIONS_LEN,
        }
    }
}

/// Whom the beginning of a connection asks for, where several endpoints are called at one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Too little has come to tell.
    Unsaid,
    /// The endpoint that HELLO names.
    Endpoint(PeerId),
    /// It is no HELLO, or none of a version that is spoken here: whoever answers that.
    Nobody,
}

/// Whom these bytes ask for, which came first.
pub fn wanted(bytes: &[u8]) -> Wanted {
    let head = [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], Record::Hello as u8];
    if bytes.iter().zip(head).any(|(came, must)| *came != must) {
        return Wanted::Nobody;
    }
    match bytes.first_chunk().map(Hello::parse) {
        None => Wanted::Unsaid,
        Some(Ok(hello)) => Wanted::Endpoint(hello.to),
        Some(Err(_)) => Wanted::Nobody,
    }
}

/// The client's first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Spoken by the client.
    pub versions: Versions,
    /// Offered by the client.
    pub features: Features,
    /// What the connection is for.
    pub kind: Kind,
    /// The transport that it is to become a link of.
    pub transport: Transport,
    /// The client's nonce.
    pub nonce: Nonce,
    /// Who connects. A claim: every holder of the server's address could make it (see `docs/wire.md`).
    pub from: PeerId,
    /// Who is wanted.
    pub to: PeerId,
}

impl Hello {
    /// The record.
    pub fn to_bytes(&self) -> [u8; HELLO_LEN] {
        let (kind, session, lane) = match self.kind {
            Kind::Session => (0, 0, 0),
            Kind::Lane { session, lane } => (1, session.0, lane),
        };
        record(|w| {
            w.bytes(&MAGIC).u8(Record::Hello as u8).u8(kind);
            w.u16(self.versions.oldest())
                .u16(self.versions.newest())
                .u16(lane)
                .u8(self.transport.number())
                .bytes(&[0; 3])
                .u64(self.features.0)
                .u64(session);
            w.bytes(&self.nonce.0).bytes(&self.from.0).bytes(&self.to.0);
        })
    }

    /// The versions in a HELLO. Look at them first: the rest may be beyond a version that we do not speak.
    pub fn versions(bytes: &[u8; HELLO_LEN]) -> Result<Versions, HandshakeError> {
        let mut reader = body(bytes, Record::Hello)?;
        let versions = reader.u8().ok().and_then(|_kind| Versions::read(&mut reader));
        versions.ok_or(HandshakeError::Malformed(Record::Hello))
    }

    /// Reads the record.
    pub fn parse(bytes: &[u8; HELLO_LEN]) -> Result<Self, HandshakeError> {
        let versions = Self::versions(bytes)?;
        let malformed = HandshakeError::Malformed(Record::Hello);
        let mut reader = body(bytes, Record::Hello)?;
        let about = |r: &mut Reader<'_>| -> Result<_, Short> {
            Ok((r.u8()?, r.u32()?, r.u16()?, r.u8()?, r.array()?, r.u64()?, r.u64()?))
        };
        let names = |r: &mut Reader<'_>| -> Result<_, Short> { Ok((r.array()?, r.array()?, r.array()?)) };
        let (kind, _, lane, transport, zeros, features, session) =
            about(&mut reader).map_err(|_| malformed)?;
        let (nonce, from, to) = names(&mut reader).map_err(|_| malformed)?;
        let kind = match (kind, session, lane) {
            (0, 0, 0) => Kind::Session,
            (1, ..) => Kind::Lane { session: SessionId(session), lane },
            _ => return Err(malformed),
        };
        let transport = Transport::from_wire(transport).filter(|_| zeros == [0; 3]).ok_or(malformed)?;
        let (features, nonce, from, to) = (Features(features), Nonce(nonce), PeerId(from), PeerId(to));
        Ok(Self { versions, features, kind, transport, nonce, from, to })
    }
}

/// The server's first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Challenge {
    /// What is spoken from here on.
    pub version: u16,
    /// What both sides offered.
    pub features: Features,
    /// The server's nonce.
    pub nonce: Nonce,
}

impl Challenge {
    const LABEL: &[u8] = b"polyrail server";
    const BODY: usize = CHALLENGE_LEN - Tag::LEN;

    /// The record, in answer to this HELLO.
    pub fn seal(&self, key: &Key, hello: &[u8; HELLO_LEN]) -> [u8; CHALLENGE_LEN] {
        let body: [u8; Self::BODY] = record(|w| {
            w.bytes(&MAGIC).u8(Record::Challenge as u8).u8(0).u16(self.version).u64(self.features.0);
            w.bytes(&self.nonce.0);
        });
        let mac = key.tag(Self::LABEL).and(hello).and(&body).bytes();
        record(|w| {
            w.bytes(&body).bytes(&mac);
        })
    }

    /// Reads the record: first that it was made with `key` for this HELLO, then what it says.
    pub fn open(
        bytes: &[u8; CHALLENGE_LEN],
        key: &Key,
        hello: &[u8; HELLO_LEN],
    ) -> Result<Self, HandshakeError> {
        let mut reader = body(bytes, Record::Challenge)?;
        let (said, mac) =
            split_mac::<{ Self::BODY }>(bytes).ok_or(HandshakeError::Malformed(Record::Challenge))?;
        if !key.tag(Self::LABEL).and(hello).and(said).is(mac) {
            return Err(HandshakeError::WrongKey);
        }
        let fields =
            |r: &mut Reader<'_>| -> Result<_, Short> { Ok((r.u8()?, r.u16()?, r.u64()?, r.array()?)) };
        match fields(&mut reader) {
            Ok((0, version, features, nonce)) => {
                Ok(Self { version, features: Features(features), nonce: Nonce(nonce) })
            }
            _ => Err(HandshakeError::Malformed(Record::Challenge)),
        }
    }
}

/// What was said up to CHALLENGE: that on which the rest of a handshake hangs.
#[derive(Debug, Clone, Copy)]
pub struct Transcript {
    /// HELLO as sent.
    pub hello: [u8; HELLO_LEN],
    /// CHALLENGE as sent.
    pub challenge: [u8; CHALLENGE_LEN],
}

impl Transcript {
    fn tag(&self, key: &Key, label: &'static [u8]) -> Tag {
        key.tag(label).and(&self.hello).and(&self.challenge)
    }

    fn proof_tag(&self, key: &Key, head: &[u8; SEALED_HEAD], offer: &[u8]) -> Tag {
        self.tag(key, b"polyrail client").and(head).and(offer)
    }

    fn verdict_tag(
        &self,
        key: &Key,
        proof: &[u8; SEALED_LEN],
        head: &[u8; SEALED_HEAD],
        offer: &[u8],
    ) -> Tag {
        self.tag(key, b"polyrail verdict").and(proof).and(head).and(offer)
    }

    /// PROOF without the offer that follows it. `offer` has at most [`MAX_OFFER`] bytes.
    pub fn proof(&self, key: &Key, offer: &[u8]) -> [u8; SEALED_LEN] {
        let head = sealed_head(Record::Proof, 0, offer);
        sealed(&head, self.proof_tag(key, &head, offer))
    }

    /// Whether PROOF was made with `key`, for this transcript and offer. Nothing of the offer is looked at.
    pub fn check_proof(
        &self,
        key: &Key,
        proof: &[u8; SEALED_LEN],
        offer: &[u8],
    ) -> Result<(), HandshakeError> {
        let (head, mac) = split_mac(proof).ok_or(HandshakeError::Malformed(Record::Proof))?;
        if !self.proof_tag(key, head, offer).is(mac) {
            return Err(HandshakeError::WrongKey);
        }
        body(proof, Record::Proof)?;
        // The rest of the head has no meaning in this version.
        if head[5] == 0 { Ok(()) } else { Err(HandshakeError::Malformed(Record::Proof)) }
    }

    /// VERDICT on this PROOF, without the offer that follows it; none follows a rejection.
    pub fn verdict(
        &self,
        key: &Key,
        proof: &[u8; SEALED_LEN],
        verdict: Result<(), Reject>,
        offer: &[u8],
    ) -> [u8; SEALED_LEN] {
        let head = sealed_head(Record::Verdict, verdict.err().map_or(0, |reason| reason as u8), offer);
        sealed(&head, self.verdict_tag(key, proof, &head, offer))
    }

    /// Reads VERDICT: first that it was made with `key` for this PROOF, then what it says.
    pub fn open_verdict(
        &self,
        key: &Key,
        proof: &[u8; SEALED_LEN],
        verdict: &[u8; SEALED_LEN],
        offer: &[u8],
    ) -> Result<Result<(), Reject>, HandshakeError> {
        let malformed = HandshakeError::Malformed(Record::Verdict);
        let (head, mac) = split_mac(verdict).ok_or(malformed)?;
        if !self.verdict_tag(key, proof, head, offer).is(mac) {
            return Err(HandshakeError::WrongKey);
        }
        body(verdict, Record::Verdict)?;
        match (head[5], offer) {
            (0, _) => Ok(Ok(())),
            (code, []) => Reject::from_wire(code).map(Err).ok_or(malformed),
            _ => Err(malformed),
        }
    }

    /// What only the two ends of this connection have in common, once VERDICT is said: with fresh keys of both it makes those by which
    /// the connection is encrypted. It hangs on all that was said, the offers by way of the MACs.
    pub fn secret(&self, key: &Key, proof: &[u8; SEALED_LEN], verdict: &[u8; SEALED_LEN]) -> Secret {
        Secret(self.tag(key, b"polyrail seal").and(proof).and(verdict).bytes())
    }

    /// The name of the session that this handshake begins.
    pub fn session(&self, key: &Key) -> SessionId {
        SessionId(u64::from_le_bytes(front(&self.tag(key, b"polyrail session").bytes())))
    }
}

/// What follows from a handshake for its two ends alone ([`Transcript::secret`]). It cannot be printed.
#[derive(Clone, Copy)]
pub struct Secret(pub [u8; Tag::LEN]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// DENIED.
pub fn denied() -> [u8; DENIED_LEN] {
    record(|w| {
        w.bytes(&MAGIC).u8(Record::Denied as u8);
    })
}

/// VERSIONS, with what the server speaks.
pub fn versions(spoken: Versions) -> [u8; VERSIONS_LEN] {
    record(|w| {
        w.bytes(&MAGIC).u8(Record::Versions as u8).u8(0).u16(spoken.oldest()).u16(spoken.newest());
    })
}

/// Reads VERSIONS.
pub fn parse_versions(bytes: &[u8; VERSIONS_LEN]) -> Result<Versions, HandshakeError> {
    let mut reader = body(bytes, Record::Versions)?;
    let spoken = reader.u8().ok().and_then(|_zero| Versions::read(&mut reader));
    spoken.filter(|&spoken| versions(spoken) == *bytes).ok_or(HandshakeError::Malformed(Record::Versions))
}

/// What follows magic and kind in a record that must be of this kind.
fn body(bytes: &[u8], kind: Record) -> Result<Reader<'_>, HandshakeError> {
    let mut reader = Reader::new(bytes);
    match (reader.array(), reader.u8()) {
        (Ok(MAGIC), Ok(number)) if number == kind as u8 => Ok(reader),
        (Ok(MAGIC), Ok(number)) => Err(HandshakeError::Record(number)),
        _ => Err(HandshakeError::NotPolyrail),
    }
}

/// A record that ends in a MAC, as what comes before it and the MAC.
fn split_mac<const HEAD: usize>(bytes: &[u8]) -> Option<(&[u8; HEAD], &[u8; Tag::LEN])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((head, rest.try_into().ok()?))
}

fn sealed_head(kind: Record, code: u8, offer: &[u8]) -> [u8; SEALED_HEAD] {
    debug_assert!(offer.len() <= MAX_OFFER, "an offer keeps its bound");
    record(|w| {
        w.bytes(&MAGIC).u8(kind as u8).u8(code).u16(offer.len() as u16);
    })
}

fn sealed(head: &[u8; SEALED_HEAD], tag: Tag) -> [u8; SEALED_LEN] {
    record(|w| {
        w.bytes(head).bytes(&tag.bytes());
    })
}
