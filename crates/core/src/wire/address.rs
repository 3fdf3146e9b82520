//! An endpoint's address: 64 bytes, because MPICH keeps no more of one (`FI_NAME_MAX`).
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `PR` |
//! | 2 | version, 1 |
//! | 3 | flags: 1 listens on a Unix socket too, 16 who connects has to know the user's secret, too; of unknown ones the low four bits are ignored, the high four refused |
//! | 4..6 | TCP port of the listener; 0 when there are no IPs |
//! | 6..8 | kinds of up to eight IPs, two bits each, the first lowest: 0 no more, 1 IPv4, 2 IPv6, 3 link-local IPv6 |
//! | 8..16 | host id |
//! | 16..32 | key: who knows it may connect |
//! | 32..64 | the IPs in order of preference, 4, 16 or 20 bytes each (16 and the scope), then zeros |

use alloc::string::String;
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6},
    str::FromStr,
};

use super::{
    codec::{Reader, Short, Writer, record},
    key::{HostId, Key, PeerId},
};

const MAGIC: [u8; 2] = *b"PR";
const VERSION: u8 = 1;
const LOCAL: u8 = 1;
const SECRET: u8 = 0x10;
/// Flags of these bits must be understood.
const CRITICAL: u8 = 0xf0;
const PREFIX: &str = "polyrail:";
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const HEX_LEN: usize = 2 * Address::LEN;
const BASE32_LEN: usize = (8 * Address::LEN).div_ceil(5);

/// Where an endpoint's control channel listens, and the key that opens it: an address is a capability. It holds checked
/// bytes only. Neither Debug nor Display shows the key; [`Address::expose`] and [`Address::to_bytes`] do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Address([u8; Address::LEN]);

/// Why bytes or text are no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressError {
    /// Not exactly 64 bytes.
    Length(usize),
    /// It does not begin as an address does.
    Magic,
    /// An address of a version that this Polyrail does not know.
    Version(u8),
    /// Flags that must be understood and are not.
    Flags(u8),
    /// The key is all zeros.
    NoKey,
    /// IPs without a port, or a port without IPs.
    Port,
    /// Neither an IP nor a local listener.
    Unreachable,
    /// The list of IPs has a gap, does not fit, or has an IP that nobody can connect to.
    Ips,
    /// Bytes after the last IP are not zero.
    Padding,
    /// The text is not `polyrail:` and 103 base32 or 128 hexadecimal digits.
    Text,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(n) => write!(f, "an address has 64 bytes, not {n}"),
            Self::Magic => f.write_str("not a polyrail address"),
            Self::Version(n) => write!(f, "address of version {n}; this polyrail knows version {VERSION}"),
            Self::Flags(bits) => write!(f, "address with unknown flags {bits:#04x} that must be understood"),
            Self::NoKey => f.write_str("address without a key"),
            Self::Port => f.write_str("address with IPs but no port, or a port but no IPs"),
            Self::Unreachable => f.write_str("address with no way to reach it"),
            Self::Ips => f.write_str("address with a malformed list of IPs"),
            Self::Padding => f.write_str("address with bytes other than zero after its end"),
            Self::Text => {
                f.write_str("an address is written polyrail: and 103 base32 or 128 hexadecimal digits")
            }
        }
    }
}

impl core::error::Error for AddressError {}

impl From<Short> for AddressError {
    fn from(Short: Short) -> Self {
        Self::Ips
    }
}

/// An IP that one can connect to: a link-local IPv6 with its scope, or any other unicast IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ip {
    addr: IpAddr,
    scope: u32,
}

impl Ip {
    /// `scope` is the interface's index, used for link-local IPv6 only. None for an IP that nobody can connect to:
    /// unspecified, multicast, broadcast, or link-local IPv6 without a scope.
    pub fn new(addr: IpAddr, scope: u32) -> Option<Self> {
        let broadcast = addr == IpAddr::V4(Ipv4Addr::BROADCAST);
        let link_local = matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let bad = addr.is_unspecified() || addr.is_multicast() || broadcast || (link_local && scope == 0);
        (!bad).then_some(Self { addr, scope: if link_local { scope } else { 0 } })
    }

    /// The IP without its scope.
    pub const fn addr(&self) -> IpAddr {
        self.addr
    }

    /// The scope of a link-local IPv6: the interface's index *on the listener's host*. 0 for all others.
    pub const fn scope(&self) -> u32 {
        self.scope
    }

    const fn kind(&self) -> u16 {
        match (self.addr, self.scope) {
            (IpAddr::V4(_), _) => 1,
            (IpAddr::V6(_), 0) => 2,
            (IpAddr::V6(_), _) => 3,
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self.addr {
            IpAddr::V4(v4) => writer.bytes(&v4.octets()),
            IpAddr::V6(v6) if self.scope == 0 => writer.bytes(&v6.octets()),
            IpAddr::V6(v6) => writer.bytes(&v6.octets()).u32(self.scope),
        };
    }

    /// Only the one way to write an IP is read back.
    fn read(kind: u16, reader: &mut Reader<'_>) -> Result<Self, AddressError> {
        let addr = match kind {
            1 => IpAddr::from(reader.array::<4>()?),
            _ => IpAddr::from(reader.array::<16>()?),
        };
        let scope = if kind == 3 { reader.u32()? } else { 0 };
        Self::new(addr, scope).filter(|ip| ip.kind() == kind).ok_or(AddressError::Ips)
    }
}

impl Address {
    /// Bytes of an address.
    pub const LEN: usize = 64;

    /// An address with as many of `ips`, in order of preference, as fit into 32 bytes (an IPv4 takes 4, an IPv6 16, a
    /// link-local IPv6 20); those that do not fit are left out. `local`: it listens on a Unix socket too, named after its
    /// identity. Errors: [`AddressError::Port`], [`AddressError::Unreachable`].
    pub fn new(
        key: &Key,
        host: HostId,
        local: bool,
        port: u16,
        ips: impl IntoIterator<Item = Ip>,
    ) -> Result<Self, AddressError> {
        let (mut kinds, mut count, mut at, mut room) = (0, 0, 0, [0; 32]);
        for ip in ips {
            let mut one = [0; 20];
            let mut writer = Writer::new(&mut one);
            ip.write(&mut writer);
            let len = writer.finish().unwrap_or(one.len());
            if let Some(place) = room.get_mut(at..at + len) {
                place.copy_from_slice(&one[..len]);
                kinds |= ip.kind() << (2 * count);
                count += 1;
                at += len;
            }
        }
        let address = Self(record(|w| {
            w.bytes(&MAGIC).u8(VERSION).u8(if local { LOCAL } else { 0 });
            w.u16(port).u16(kinds).u64(host.0).bytes(key.expose()).bytes(&room);
        }));
        address.check().map(|()| address)
    }

    /// The same where who connects has to prove [`Key::with_secret`].
    #[must_use]
    pub const fn needing_secret(mut self) -> Self {
        self.0[3] |= SECRET;
        self
    }

    /// Checks the bytes of an address.
    pub fn parse(bytes: &[u8]) -> Result<Self, AddressError> {
        let address = Self(bytes.try_into().map_err(|_| AddressError::Length(bytes.len()))?);
        address.check().map(|()| address)
    }

    fn check(&self) -> Result<(), AddressError> {
        let bytes = &self.0;
        if bytes[..2] != MAGIC {
            return Err(AddressError::Magic);
        }
        if bytes[2] != VERSION {
            return Err(AddressError::Version(bytes[2]));
        }
        let unknown = bytes[3] & CRITICAL & !SECRET;
        if unknown != 0 {
            return Err(AddressError::Flags(unknown));
        }
        if Key::new(self.key_bytes()).is_none() {
            return Err(AddressError::NoKey);
        }
        let (mut kinds, mut reader) = (self.kinds(), Reader::new(&bytes[32..]));
        while kinds & 3 != 0 {
            Ip::read(kinds & 3, &mut reader)?;
            kinds >>= 2;
        }
        if kinds != 0 {
            return Err(AddressError::Ips);
        }
        if reader.rest().iter().any(|&byte| byte != 0) {
            return Err(AddressError::Padding);
        }
        match (self.kinds(), self.port()) {
            (0, 0) if !self.is_local() => Err(AddressError::Unreachable),
            (0, 1..) | (1.., 0) => Err(AddressError::Port),
            _ => Ok(()),
        }
    }

    fn kinds(&self) -> u16 {
        u16::from_le_bytes([self.0[6], self.0[7]])
    }

    fn key_bytes(&self) -> [u8; Key::LEN] {
        core::array::from_fn(|at| self.0[16 + at])
    }

    /// The address as it travels, **with the key**.
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        self.0
    }

    /// The key that opens a connection to this endpoint.
    pub fn key(&self) -> Key {
        Key::new(self.key_bytes()).expect("checked when the address was made")
    }

    /// The public identity of the endpoint. Computed each time (a keyed hash): keep it.
    pub fn id(&self) -> PeerId {
        self.key().id()
    }

    /// Where the endpoint runs.
    pub fn host(&self) -> HostId {
        HostId(u64::from_le_bytes(core::array::from_fn(|at| self.0[8 + at])))
    }

    /// Whether it listens on a Unix socket too.
    pub const fn is_local(&self) -> bool {
        self.0[3] & LOCAL != 0
    }

    /// Whether who connects has to know the user's secret, too.
    pub const fn needs_secret(&self) -> bool {
        self.0[3] & SECRET != 0
    }

    /// TCP port of the listener; 0 when there are no IPs.
    pub const fn port(&self) -> u16 {
        u16::from_le_bytes([self.0[4], self.0[5]])
    }

    /// The IPs, in order of preference.
    pub fn ips(&self) -> impl Iterator<Item = Ip> + '_ {
        let mut reader = Reader::new(&self.0[32..]);
        let kinds = (0..8).map(|n| (self.kinds() >> (2 * n)) & 3).take_while(|&kind| kind != 0);
        kinds.map_while(move |kind| Ip::read(kind, &mut reader).ok())
    }

    /// Where to connect to, in order of preference. The scope of a link-local address is the listener's: only peers with
    /// the same host id can use it as it is.
    pub fn sockets(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.ips().map(|ip| match ip.addr {
            IpAddr::V4(_) => SocketAddr::new(ip.addr, self.port()),
            IpAddr::V6(v6) => SocketAddrV6::new(v6, self.port(), 0, ip.scope).into(),
        })
    }

    /// The address as text, **with the key**: `polyrail:` and base32, for a command line that only members see.
    pub fn expose(&self) -> String {
        let bit = |at: usize| self.0.get(at / 8).map_or(0, |byte| (byte >> (7 - at % 8)) & 1);
        let digit = |n: usize| (0..5).fold(0, |value, at| (value << 1) | bit(5 * n + at));
        let digits = (0..BASE32_LEN).map(|n| char::from(BASE32[usize::from(digit(n))]));
        PREFIX.chars().chain(digits).collect()
    }
}

/// Reads `polyrail:` and the address in base32 (of either case, without padding) or in hexadecimal.
impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let digits = text.strip_prefix(PREFIX).ok_or(AddressError::Text)?;
        let width = match digits.len() {
            HEX_LEN => 4,
            BASE32_LEN => 5,
            _ => return Err(AddressError::Text),
        };
        let mut bytes = [0; Self::LEN];
        for (n, digit) in digits.bytes().enumerate() {
            let value = digit_value(digit, width).ok_or(AddressError::Text)?;
            for bit in (0..width).filter(|bit| value >> (width - 1 - bit) & 1 == 1) {
                let at = n * width + bit;
                // The last base32 digit has three bits too many; they must not say the same address in two ways.
                *bytes.get_mut(at / 8).ok_or(AddressError::Text)? |= 0x80 >> (at % 8);
            }
        }
        Self::parse(&bytes)
    }
}

fn digit_value(digit: u8, width: usize) -> Option<usize> {
    if width == 4 {
        return char::from(digit).to_digit(16).map(|value| value as usize);
    }
    BASE32.iter().position(|&known| known == digit.to_ascii_lowercase())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on host {}", self.id(), self.host())?;
        self.sockets().try_for_each(|socket| write!(f, ", {socket}"))?;
        if self.is_local() { f.write_str(", local") } else { Ok(()) }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}
