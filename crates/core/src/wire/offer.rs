//! What the two ends of a session tell each other about themselves, once the key is proven: fields of type, length and
//! value. A reader passes over types that it does not know; it refuses a known one that is malformed, or there twice.
//!
//! | type | value |
//! |---|---|
//! | 1 process | pid u32, uid u32, host id u64 |
//! | 2 memory probe | address u64, nonce u64: who can read the nonce at the address can use cross-memory attach |
//! | 4 limits | largest frame payload u32, eager window u32, in bytes |
//! | 5 interface, at most 32 | index u32, speed in Mb/s u32 (0 unknown), flags u16, length of name u8, name, networks: family u8 (4, 6), prefix length u8, IP |
//! | 6 transport, at most 8, each once | transport u8, then up to 64 bytes that only that transport's rail reads |
//! | 7 seal | a fresh X25519 public key, 32 bytes; there if and only if the connection is encrypted |

use alloc::vec::Vec;
use core::fmt;

pub use super::interface::{Interface, InterfaceFlags, InterfaceName, InterfaceView, Net};
use super::{
    codec::{Reader, Short, Writer},
    handshake::MAX_OFFER,
    key::HostId,
    transport::Transport,
};

/// The most interfaces in an offer.
pub const MAX_INTERFACES: usize = 32;
/// The most transports in an offer.
pub const MAX_TRANSPORTS: usize = 8;
/// The most bytes by which a transport says how it is reached.
pub const MAX_REACHED_BY: usize = 64;
/// Bytes of a side's half of the keys by which a connection is encrypted.
pub const SEAL_LEN: usize = 32;
const HEAD: usize = 4;

/// Why bytes are no offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferError {
    /// A field, or the value in it, ends too early.
    Short,
    /// The field of this type has an impossible value.
    Malformed(u16),
    /// The field of this type is there twice, or more often than allowed.
    TooMany(u16),
    /// The field of this type must be there and is not.
    Missing(u16),
    /// The offer is longer than [`MAX_OFFER`].
    Long,
}

impl fmt::Display for OfferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("it ends in the middle of a field"),
            Self::Malformed(kind) => write!(f, "field {kind} has an impossible value"),
            Self::TooMany(kind) => write!(f, "field {kind} comes too often"),
            Self::Missing(kind) => write!(f, "field {kind} is missing"),
            Self::Long => write!(f, "it is longer than {MAX_OFFER} bytes"),
        }
    }
}

impl core::error::Error for OfferError {}

impl From<Short> for OfferError {
    fn from(Short: Short) -> Self {
        Self::Short
    }
}

/// The process at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Process id, in its own namespace.
    pub pid: u32,
    /// Effective user id, in its own namespace.
    pub uid: u32,
    /// Where it runs.
    pub host: HostId,
}

/// A place in the offering process: who can read `nonce` at `address` by cross-memory attach can read all the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryProbe {
    /// Virtual address.
    pub address: u64,
    /// The eight bytes there, little-endian.
    pub nonce: u64,
}

/// What a side takes at once, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    max_frame: u32,
    eager_window: u32,
}

impl Limits {
    /// No side may take less than this in a frame, so that a peer can rely on some room.
    pub const MIN_FRAME: u32 = 512;

    /// None when `max_frame` is less than [`Limits::MIN_FRAME`].
    pub fn new(max_frame: u32, eager_window: u32) -> Option<Self> {
        (max_frame >= Self::MIN_FRAME).then_some(Self { max_frame, eager_window })
    }

    /// Largest payload of a frame.
    pub const fn max_frame(self) -> u32 {
        self.max_frame
    }

    /// How much unexpected data may be on its way or wait.
    pub const fn eager_window(self) -> u32 {
        self.eager_window
    }
}

/// One field of an offer.
#[derive(Debug, Clone, Copy)]
pub enum Field<'a> {
    /// The process.
    Process(Process),
    /// Where to try cross-memory attach.
    Probe(MemoryProbe),
    /// What the side takes at once.
    Limits(Limits),
    /// One of its interfaces.
    Interface(InterfaceView<'a>),
    /// One of its transports, and how it is reached by that.
    Transport(Transport, &'a [u8]),
    /// Its half of the keys by which the connection is encrypted.
    Seal([u8; SEAL_LEN]),
    /// A field of a later version, by its type.
    Unknown(u16),
}

mod kind {
    pub(super) const PROCESS: u16 = 1;
    pub(super) const PROBE: u16 = 2;
    pub(super) const LIMITS: u16 = 4;
    pub(super) const INTERFACE: u16 = 5;
    pub(super) const TRANSPORT: u16 = 6;
    pub(super) const SEAL: u16 = 7;
}

impl<'a> Field<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<(u16, Self), OfferError> {
        let (kind, len) = (reader.u16()?, reader.u16()?);
        let mut r = Reader::new(reader.bytes(usize::from(len))?);
        let field = match kind {
            kind::PROCESS => {
                Some(Self::Process(Process { pid: r.u32()?, uid: r.u32()?, host: HostId(r.u64()?) }))
            }
            kind::PROBE => Some(Self::Probe(MemoryProbe { address: r.u64()?, nonce: r.u64()? })),
            kind::LIMITS => Limits::new(r.u32()?, r.u32()?).map(Self::Limits),
            kind::INTERFACE => InterfaceView::read(Reader::new(r.rest()))?.map(Self::Interface),
            kind::TRANSPORT => {
                let (transport, by) = (Transport::from_wire(r.u8()?), r.rest());
                transport
                    .filter(|_| by.len() <= MAX_REACHED_BY)
                    .map(|transport| Self::Transport(transport, by))
            }
            kind::SEAL => Some(Self::Seal(r.array()?)),
            _ => {
                r.rest();
                Some(Self::Unknown(kind))
            }
        };
        match field {
            Some(field) if r.is_empty() => Ok((kind, field)),
            _ => Err(OfferError::Malformed(kind)),
        }
    }
}

/// The bytes of an offer, checked.
#[derive(Clone, Copy)]
pub struct OfferView<'a>(&'a [u8]);

impl<'a> OfferView<'a> {
    /// Checks every field. Allocates nothing.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, OfferError> {
        if bytes.len() > MAX_OFFER {
            return Err(OfferError::Long);
        }
        let mut seen = [0_usize; 8];
        let mut named = [None; MAX_TRANSPORTS];
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let (kind, field) = Field::read(&mut reader)?;
            let most = match field {
                Field::Unknown(_) => continue,
                Field::Interface(_) => MAX_INTERFACES,
                Field::Transport(..) => MAX_TRANSPORTS,
                _ => 1,
            };
            let count = &mut seen[usize::from(kind)];
            *count += 1;
            if *count > most {
                return Err(OfferError::TooMany(kind));
            }
            if let Field::Transport(transport, _) = field {
                if named.contains(&Some(transport)) {
                    return Err(OfferError::TooMany(kind));
                }
                named[*count - 1] = Some(transport);
            }
        }
        let missing = [kind::PROCESS, kind::LIMITS].into_iter().find(|&kind| seen[usize::from(kind)] == 0);
        missing.map_or(Ok(Self(bytes)), |kind| Err(OfferError::Missing(kind)))
    }

    /// The fields, as they come.
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let mut reader = Reader::new(self.0);
        core::iter::from_fn(move || Field::read(&mut reader).ok().map(|(_, field)| field))
    }
}

impl fmt::Debug for OfferView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.fields()).finish()
    }
}

/// A transport that a side has, and how it is reached by that: bytes that only that transport's rails read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reached {
    transport: Transport,
    by: Vec<u8>,
}

/// One side's offer. It always fits into [`MAX_OFFER`] bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The process that offers.
    pub process: Process,
    /// What it takes at once.
    pub limits: Limits,
    /// Where to try cross-memory attach, if it may be tried.
    pub probe: Option<MemoryProbe>,
    /// Its half of the keys by which the connection is encrypted: a fresh X25519 public key.
    pub seal: Option<[u8; SEAL_LEN]>,
    interfaces: Vec<Interface>,
    transports: Vec<Reached>,
}

impl Offer {
    /// The least that must be said.
    pub const fn new(process: Process, limits: Limits) -> Self {
        Self { process, limits, probe: None, seal: None, interfaces: Vec::new(), transports: Vec::new() }
    }

    /// Bytes of the offer; optional fields and transports count as if all were there, so that they can be set at any time.
    fn room_taken(&self) -> usize {
        let fixed = (HEAD + 16) + (HEAD + 16) + (HEAD + 8) + (HEAD + SEAL_LEN);
        let interfaces: usize = self.interfaces.iter().map(|interface| HEAD + interface.len()).sum();
        fixed + interfaces + MAX_TRANSPORTS * (HEAD + 1 + MAX_REACHED_BY)
    }

    /// Adds an interface; gives it back when there is no room for it.
    pub fn push_interface(&mut self, interface: Interface) -> Result<(), Interface> {
        let fits = self.room_taken() + HEAD + interface.len() <= MAX_OFFER;
        if !fits || self.interfaces.len() == MAX_INTERFACES {
            return Err(interface);
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// Adds a transport, and how this side is reached by it. False when it is there already, when there are
    /// [`MAX_TRANSPORTS`], and when that is more than [`MAX_REACHED_BY`] bytes.
    #[must_use]
    pub fn push_transport(&mut self, transport: Transport, by: &[u8]) -> bool {
        let room = self.transports.len() < MAX_TRANSPORTS && by.len() <= MAX_REACHED_BY;
        let fits = room && self.reached_by(transport).is_none();
        if fits {
            self.transports.push(Reached { transport, by: by.to_vec() });
        }
        fits
    }

    /// The interfaces.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The transports, in order, and how the side is reached by each.
    pub fn transports(&self) -> impl Iterator<Item = (Transport, &[u8])> {
        self.transports.iter().map(|one| (one.transport, &one.by[..]))
    }

    /// How the side is reached by this transport, if it has it.
    pub fn reached_by(&self, transport: Transport) -> Option<&[u8]> {
        self.transports().find(|(its, _)| *its == transport).map(|(_, by)| by)
    }

    /// The bytes that travel.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = alloc::vec![0; self.room_taken()];
        let mut w = Writer::new(&mut bytes);
        let Process { pid, uid, host } = self.process;
        w.u16(kind::PROCESS).u16(16).u32(pid).u32(uid).u64(host.0);
        if let Some(MemoryProbe { address, nonce }) = self.probe {
            w.u16(kind::PROBE).u16(16).u64(address).u64(nonce);
        }
        w.u16(kind::LIMITS).u16(8).u32(self.limits.max_frame).u32(self.limits.eager_window);
        for interface in &self.interfaces {
            w.u16(kind::INTERFACE).u16(interface.len() as u16);
            interface.write(&mut w);
        }
        for (transport, by) in self.transports() {
            w.u16(kind::TRANSPORT).u16(1 + by.len() as u16).u8(transport.number()).bytes(by);
        }
        if let Some(public) = &self.seal {
            w.u16(kind::SEAL).u16(SEAL_LEN as u16).bytes(public);
        }
        let len = w.finish();
        debug_assert!(len.is_ok(), "room was counted");
        bytes.truncate(len.unwrap_or(0));
        bytes
    }

    /// Reads what another side offers.
    pub fn parse(bytes: &[u8]) -> Result<Self, OfferError> {
        let view = OfferView::parse(bytes)?;
        let (mut process, mut limits, mut probe, mut seal) = (None, None, None, None);
        let (mut interfaces, mut transports) = (Vec::new(), Vec::new());
        for field in view.fields() {
            match field {
                Field::Process(it) => process = Some(it),
                Field::Limits(it) => limits = Some(it),
                Field::Probe(it) => probe = Some(it),
                Field::Interface(it) => interfaces.push(it.into()),
                Field::Transport(transport, by) => transports.push(Reached { transport, by: by.to_vec() }),
                Field::Seal(it) => seal = Some(it),
                Field::Unknown(_) => {}
            }
        }
        let process = process.ok_or(OfferError::Missing(kind::PROCESS))?;
        let limits = limits.ok_or(OfferError::Missing(kind::LIMITS))?;
        let offer = Self { process, limits, probe, seal, interfaces, transports };
        if offer.room_taken() > MAX_OFFER { Err(OfferError::Long) } else { Ok(offer) }
    }

    /// The offer, if it has a key where the connection is to be encrypted, and none where not.
    pub(crate) fn fits(self, sealed: bool) -> Result<Self, OfferError> {
        match (sealed, self.seal) {
            (true, None) => Err(OfferError::Missing(kind::SEAL)),
            (false, Some(_)) => Err(OfferError::Malformed(kind::SEAL)),
            _ => Ok(self),
        }
    }
}
