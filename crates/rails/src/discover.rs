//! The devices of this machine that rails use, and what keeps the others from being used.
//!
//! Network interfaces are those of this network namespace. What the kernel tells of them in `/sys/class/net` counts only where
//! it is about the same interfaces: a process that entered a namespace may still see the files of another one.

use crate::config::Names;
use crate::error::Error;
use polyrail_core::wire::Ip;
use polyrail_core::wire::offer::{self, InterfaceFlags, InterfaceName, Net};
use std::fmt;
use std::net::IpAddr;

mod sysfs;

use sysfs::Sysfs;

/// What keeps something from being used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The reason, as the rest of a sentence that begins with the thing's name.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

impl Obstacle {
    pub(crate) fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.why, self.remedy)
    }
}

/// Whether a process may reach another one's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A process has read its parent's memory.
    Allowed,
    /// It could not.
    Refused(Obstacle),
    /// It was not tried: no process could be started.
    Untried(String),
}

/// Something of this machine that a rail uses, or would use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// What more there is to say of it, where it is a network interface.
    pub interface: Option<Interface>,
    /// Whether it leads to this host only.
    pub stays: bool,
    /// What keeps it from being used; none: nothing.
    pub obstacle: Option<Obstacle>,
}

/// What a network interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reaches this host only.
    Loopback,
    /// A network card, or a virtual machine's.
    Ethernet,
    /// Wireless.
    Wireless,
    /// IP over InfiniBand.
    Infiniband,
    /// One end of a pair, of which the other is elsewhere on this machine.
    Veth,
    /// A bridge.
    Bridge,
    /// Several interfaces as one.
    Bond,
    /// A part of another interface.
    Vlan,
    /// A tunnel through a program or another network.
    Tunnel,
    /// Some other interface without hardware of its own.
    Virtual,
    /// The kernel does not tell.
    Unknown,
}

impl Kind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Ethernet => "ethernet",
            Self::Wireless => "wireless",
            Self::Infiniband => "infiniband",
            Self::Veth => "veth",
            Self::Bridge => "bridge",
            Self::Bond => "bond",
            Self::Vlan => "vlan",
            Self::Tunnel => "tunnel",
            Self::Virtual => "virtual",
            Self::Unknown => "unknown",
        }
    }

    fn flags(self) -> InterfaceFlags {
        match self {
            Self::Loopback => InterfaceFlags::LOOPBACK,
            Self::Wireless => InterfaceFlags::WIRELESS,
            Self::Veth | Self::Bridge | Self::Tunnel | Self::Virtual => InterfaceFlags::VIRTUAL,
            Self::Ethernet | Self::Infiniband | Self::Bond | Self::Vlan | Self::Unknown => InterfaceFlags(0),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Whether an interface can move packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It can.
    Up,
    /// It is switched off.
    Down,
    /// It is switched on, but nothing is at its other end.
    NoCarrier,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::NoCarrier => "no carrier",
        })
    }
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index; 0 when unknown.
    pub index: u32,
    /// What it is.
    pub kind: Kind,
    /// Whether it can move packets.
    pub state: State,
    /// Speed that it claims, in Mb/s; 0 when unknown.
    pub speed: u32,
    /// Longest packet, in bytes; 0 when unknown.
    pub mtu: u32,
    /// Its addresses, each with the length of its network's prefix.
    pub nets: Vec<Net>,
    /// What keeps it from being used; none: nothing.
    pub obstacle: Option<Obstacle>,
    /// Whether that is only that it is down, or has no carrier: it is used as soon as it comes up.
    pub dormant: bool,
}

impl Interface {
    /// Its addresses that peers can connect to.
    pub fn ips(&self) -> impl Iterator<Item = Ip> + '_ {
        self.nets.iter().filter_map(|net| Ip::new(net.ip(), self.index))
    }

    /// As it is told to peers; none if its name cannot be.
    pub fn offer(&self) -> Option<offer::Interface> {
        Some(offer::Interface {
            name: InterfaceName::new(&self.name)?,
            index: self.index,
            speed: self.speed,
            flags: InterfaceFlags(
                self.kind.flags().0 | if self.dormant { InterfaceFlags::DOWN.0 } else { 0 },
            ),
            nets: self.nets.clone(),
        })
    }

    fn judge(&self, chosen: &Names) -> Option<Obstacle> {
        self.unfit(chosen).or_else(|| self.idle())
    }

    /// Why it cannot move packets now.
    fn idle(&self) -> Option<Obstacle> {
        let name = &self.name;
        match self.state {
            State::Up => None,
            State::Down => Some(Obstacle::new("it is down", format!("ip link set {name} up"))),
            State::NoCarrier => {
                let remedy = match self.kind {
                    Kind::Veth => "set its other end up",
                    _ => "look at the cable, or at what is at its other end",
                };
                Some(Obstacle::new("it has no carrier", remedy))
            }
        }
    }

    /// Why it would be of no use though it moved packets.
    fn unfit(&self, chosen: &Names) -> Option<Obstacle> {
        let name = &self.name;
        if !chosen.has(name) {
            return Some(Obstacle::new(
                format!("POLYRAIL_INTERFACES={chosen} leaves it out"),
                format!("let it have {name}"),
            ));
        }
        if self.nets.is_empty() {
            return Some(Obstacle::new(
                "it has no IP address",
                format!("ip addr add ADDRESS/PREFIX dev {name}"),
            ));
        }
        self.ips().next().is_none().then(|| {
            Obstacle::new(
                "nobody can connect to its addresses",
                format!("ip addr add ADDRESS/PREFIX dev {name}"),
            )
        })
    }
}

/// All addresses of this host.
///
/// # Errors
/// When the kernel does not list them.
pub fn addresses() -> Result<Vec<IpAddr>, Error> {
    let all = if_addrs::get_if_addrs().map_err(|e| Error::system("listing network interfaces", e))?;
    Ok(all.iter().map(if_addrs::Interface::ip).collect())
}

/// The network interfaces, usable ones first, and among them those that lead elsewhere. `chosen` names those that may be used.
///
/// # Errors
/// When the kernel does not list them.
pub fn interfaces(chosen: &Names) -> Result<Vec<Interface>, Error> {
    interfaces_in(&Sysfs::of_this_machine()?, chosen)
}

/// The same; one that is asked for by name has to be there.
///
/// # Errors
/// [`Error::Setting`] for one that is not; when the kernel does not list them.
pub(crate) fn wanted(chosen: &Names) -> Result<Vec<Interface>, Error> {
    let all = interfaces(chosen)?;
    match chosen.wanted().find(|name| all.iter().all(|interface| interface.name != **name)) {
        Some(missing) => {
            let there: Vec<&str> = all.iter().map(|interface| interface.name.as_str()).collect();
            let why = format!("no interface is called {missing:?}; there are {}", there.join(", "));
            Err(Error::Setting { name: "POLYRAIL_INTERFACES", why })
        }
        None => Ok(all),
    }
}

fn interfaces_in(sysfs: &Sysfs, chosen: &Names) -> Result<Vec<Interface>, Error> {
    let addresses = if_addrs::get_if_addrs().map_err(|e| Error::system("listing network interfaces", e))?;
    let mut names: Vec<&str> = sysfs.names().collect();
    for address in &addresses {
        if !names.contains(&address.name.as_str()) {
            names.push(&address.name);
        }
    }
    let mut all: Vec<Interface> = names
        .into_iter()
        .map(|name| {
            let of_it: Vec<_> = addresses.iter().filter(|address| address.name == name).collect();
            let mut found = sysfs.interface(name, of_it.iter().find_map(|address| address.index));
            if found.kind == Kind::Unknown && of_it.iter().any(|address| address.is_loopback()) {
                found.kind = Kind::Loopback;
            }
            // getifaddrs(3) tells what sysfs could not: an address's interface is running or not
            if !of_it.is_empty()
                && of_it.iter().all(|address| !address.is_oper_up())
                && found.state == State::Up
            {
                found.state = State::Down;
            }
            found.nets = of_it.iter().filter_map(|address| net(&address.addr)).collect();
            found.obstacle = found.judge(chosen);
            found.dormant = found.state != State::Up && found.unfit(chosen).is_none();
            found
        })
        .collect();
    all.sort_by_key(|one| (one.obstacle.is_some(), one.kind == Kind::Loopback, one.index));
    Ok(all)
}

fn net(address: &if_addrs::IfAddr) -> Option<Net> {
    let prefix = match address {
        if_addrs::IfAddr::V4(v4) => v4.prefixlen,
        if_addrs::IfAddr::V6(v6) => v6.prefixlen,
    };
    Net::new(address.ip(), prefix)
}

/// The IPs that peers may try, best first: what leads elsewhere before loopback, what any host knows before link-local, IPv4
/// before IPv6.
pub(crate) fn ips(interfaces: &[Interface]) -> Vec<Ip> {
    let usable = interfaces.iter().filter(|one| one.obstacle.is_none());
    let mut all: Vec<(bool, Ip)> =
        usable.flat_map(|one| one.ips().map(|ip| (one.kind == Kind::Loopback, ip))).collect();
    all.sort_by_key(|(loopback, ip)| {
        let link_local = matches!(ip.addr(), IpAddr::V6(v6) if v6.is_unicast_link_local());
        (*loopback, link_local, ip.addr().is_ipv6())
    });
    all.into_iter().map(|(_, ip)| ip).collect()
}

#[cfg(all(test, not(loom)))]
mod tests;
