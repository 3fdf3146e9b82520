//! The network interfaces that a side tells the other of.

use alloc::vec::Vec;
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::codec::{Reader, Short, Writer};

/// An interface's name: 1 to 15 visible ASCII characters, no `/`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InterfaceName {
    bytes: [u8; 15],
    len: u8,
}

impl InterfaceName {
    /// None when it is no such name.
    pub fn new(name: &str) -> Option<Self> {
        let good = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        let mut bytes = [0; 15];
        bytes.get_mut(..name.len()).filter(|_| good && !name.is_empty())?.copy_from_slice(name.as_bytes());
        Some(Self { bytes, len: name.len() as u8 })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        self.bytes.get(..usize::from(self.len)).and_then(|name| core::str::from_utf8(name).ok()).unwrap_or("")
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An IP of an interface, and how much of it is the network's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Net {
    ip: IpAddr,
    prefix: u8,
}

impl Net {
    /// None when the prefix is longer than the IP.
    pub fn new(ip: IpAddr, prefix: u8) -> Option<Self> {
        (prefix <= if ip.is_ipv4() { 32 } else { 128 }).then_some(Self { ip, prefix })
    }

    /// The IP.
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Bits of the IP that are the network's.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether `ip` is in the same network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let differ = match (self.ip, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
            (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
            _ => return false,
        };
        differ.leading_zeros() >= u32::from(self.prefix)
    }

    fn len(&self) -> usize {
        if self.ip.is_ipv4() { 6 } else { 18 }
    }

    fn write(&self, w: &mut Writer<'_>) {
        match self.ip {
            IpAddr::V4(ip) => w.u8(4).u8(self.prefix).bytes(&ip.octets()),
            IpAddr::V6(ip) => w.u8(6).u8(self.prefix).bytes(&ip.octets()),
        };
    }

    /// None at an impossible value.
    fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, Short> {
        let (family, prefix) = (reader.u8()?, reader.u8()?);
        let ip = match family {
            4 => IpAddr::V4(Ipv4Addr::from(reader.array::<4>()?)),
            6 => IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?)),
            _ => return Ok(None),
        };
        Ok(Self::new(ip, prefix))
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

/// What else there is to know of an interface, a bit each; unknown bits mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InterfaceFlags(pub u16);

impl InterfaceFlags {
    /// Reaches this host only.
    pub const LOOPBACK: Self = Self(1);
    /// No hardware of its own (bridge, tunnel, veth): its speed is a claim.
    pub const VIRTUAL: Self = Self(2);
    /// Wireless.
    pub const WIRELESS: Self = Self(4);
    /// Moves no packets when it is told of: switched off, or nothing is at its other end. It may come up.
    pub const DOWN: Self = Self(8);

    /// Whether all of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: InterfaceName,
    /// Its index: the scope of its link-local IPs.
    pub index: u32,
    /// Speed of the link in Mb/s; 0 when unknown.
    pub speed: u32,
    /// What else there is to know.
    pub flags: InterfaceFlags,
    /// Its IPs.
    pub nets: Vec<Net>,
}

impl Interface {
    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u32(self.index).u32(self.speed).u16(self.flags.0);
        w.u8(self.name.len).bytes(self.name.as_str().as_bytes());
        self.nets.iter().for_each(|net| net.write(w));
    }

    /// Bytes that [`Interface::write`] writes.
    pub(super) fn len(&self) -> usize {
        11 + usize::from(self.name.len) + self.nets.iter().map(Net::len).sum::<usize>()
    }
}

/// A checked interface in an offer's bytes.
#[derive(Clone, Copy)]
pub struct InterfaceView<'a> {
    /// Its name.
    pub name: InterfaceName,
    /// Its index: the scope of its link-local IPs.
    pub index: u32,
    /// Speed of the link in Mb/s; 0 when unknown.
    pub speed: u32,
    /// What else there is to know.
    pub flags: InterfaceFlags,
    nets: &'a [u8],
}

impl<'a> InterfaceView<'a> {
    pub(super) fn read(mut reader: Reader<'a>) -> Result<Option<Self>, Short> {
        let (index, speed, flags, len) = (reader.u32()?, reader.u32()?, reader.u16()?, reader.u8()?);
        let name = core::str::from_utf8(reader.bytes(usize::from(len))?).ok().and_then(InterfaceName::new);
        let nets = reader.rest();
        let mut rest = Reader::new(nets);
        while !rest.is_empty() {
            if Net::read(&mut rest)?.is_none() {
                return Ok(None);
            }
        }
        Ok(name.map(|name| Self { name, index, speed, flags: InterfaceFlags(flags), nets }))
    }

    /// Its IPs.
    pub fn nets(&self) -> impl Iterator<Item = Net> + 'a {
        let mut reader = Reader::new(self.nets);
        core::iter::from_fn(move || Net::read(&mut reader).ok().flatten())
    }
}

impl From<InterfaceView<'_>> for Interface {
    fn from(view: InterfaceView<'_>) -> Self {
        let InterfaceView { name, index, speed, flags, .. } = view;
        Self { name, index, speed, flags, nets: view.nets().collect() }
    }
}

impl fmt::Debug for InterfaceView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Interface::from(*self).fmt(f)
    }
}
