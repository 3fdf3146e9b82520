//! What `/sys/class/net` and `/proc/net/dev` tell of network interfaces.

use super::{Interface, Kind, State};
use crate::error::Error;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// ARPHRD_INFINIBAND, ARPHRD_LOOPBACK: hardware types of `if_arp.h`.
const TYPE_INFINIBAND: u32 = 32;
const TYPE_LOOPBACK: u32 = 772;
const IFF_UP: u32 = 1;

/// Where interfaces are described.
pub(super) struct Sysfs {
    root: PathBuf,
    /// The interfaces of this network namespace.
    names: Vec<String>,
}

impl Sysfs {
    pub fn of_this_machine() -> Result<Self, Error> {
        let list = "/proc/self/net/dev";
        let text = fs::read_to_string(list).map_err(|e| Error::system(format!("reading {list}"), e))?;
        Ok(Self::new("/sys/class/net".into(), &text))
    }

    /// `list` is the text of `/proc/net/dev`: two lines of headings, then lines that begin with a name and a colon.
    pub fn new(root: PathBuf, list: &str) -> Self {
        let name = |line: &str| Some(line.split_once(':')?.0.trim().to_owned());
        Self { root, names: list.lines().skip(2).filter_map(name).collect() }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// What is told of an interface; `index` is what another source says that its index is.
    pub fn interface(&self, name: &str, index: Option<u32>) -> Interface {
        let dir = Dir(self.root.join(name));
        let told: Option<u32> = dir.number("ifindex");
        let mut found = Interface {
            name: name.to_owned(),
            index: index.or(told).unwrap_or(0),
            kind: Kind::Unknown,
            state: State::Up,
            speed: 0,
            mtu: 0,
            nets: Vec::new(),
            obstacle: None,
            dormant: false,
        };
        // an index that differs: these files describe another namespace's interface of the same name
        if told.is_some() && (index.is_none() || index == told) {
            found.kind = dir.kind(name);
            found.state = dir.state();
            // unknown is -1, or an error
            found.speed = dir.number("speed").unwrap_or(0);
            found.mtu = dir.number("mtu").unwrap_or(0);
        }
        found
    }
}

/// One interface's directory.
struct Dir(PathBuf);

impl Dir {
    fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.0.join(file)).ok().map(|text| text.trim().to_owned())
    }

    fn number(&self, file: &str) -> Option<u32> {
        self.text(file)?.parse().ok()
    }

    fn has(&self, file: &str) -> bool {
        Path::exists(&self.0.join(file))
    }

    fn state(&self) -> State {
        let flags =
            self.text("flags").and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
        if flags.is_some_and(|flags| flags & IFF_UP == 0) {
            return State::Down;
        }
        // drivers without a carrier, loopback among them, say "unknown" and work
        match self.text("operstate").as_deref() {
            Some("down" | "lowerlayerdown" | "notpresent" | "dormant") => State::NoCarrier,
            _ => State::Up,
        }
    }

    fn kind(&self, name: &str) -> Kind {
        match self.number("type") {
            Some(TYPE_LOOPBACK) => return Kind::Loopback,
            Some(TYPE_INFINIBAND) => return Kind::Infiniband,
            _ => {}
        }
        let of = |kind: &str| self.text("uevent").is_some_and(|text| text.lines().any(|l| l == kind));
        if self.has("phy80211") || self.has("wireless") {
            Kind::Wireless
        } else if self.has("bridge") {
            Kind::Bridge
        } else if self.has("bonding") {
            Kind::Bond
        } else if of("DEVTYPE=vlan") || of("DEVTYPE=macvlan") {
            Kind::Vlan
        } else if self.has("tun_flags")
            || ["vxlan", "geneve", "wireguard"].iter().any(|t| of(&format!("DEVTYPE={t}")))
        {
            Kind::Tunnel
        } else if self.has("device") {
            Kind::Ethernet
        } else if driver(name).as_deref() == Some("veth") {
            Kind::Veth
        } else {
            Kind::Virtual
        }
    }
}

/// The name of an interface's driver: the one place where a veth pair says that it is one.
fn driver(name: &str) -> Option<String> {
    /// `struct ethtool_drvinfo`.
    #[repr(C)]
    struct Info {
        command: u32,
        driver: [u8; 32],
        rest: [u8; 160],
    }
    const _: () = assert!(size_of::<Info>() == 196, "as linux/ethtool.h has it");
    const GET_DRIVER: u32 = 3;

    if name.len() >= libc::IFNAMSIZ {
        return None;
    }
    let mut info = Info { command: GET_DRIVER, driver: [0; 32], rest: [0; 160] };
    // SAFETY: all zeros are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    // SAFETY: a plain call; the descriptor is ours.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return None;
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the name ends in zeros, and the kernel fills at most the `Info` that the request points to.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    let text = info.driver.split(|byte| *byte == 0).next()?;
    (done == 0).then(|| String::from_utf8_lossy(text).into_owned())
}
