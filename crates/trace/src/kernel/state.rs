//! A socket's two ends and its state, as the tracepoints tell them.

use std::net::SocketAddr;

use super::format::{Field, Format};

/// The tracepoint of each change of state, as tracefs names it.
pub const STATE: &str = "sock/inet_sock_set_state";

// linux/tcp_states.h
pub const ESTABLISHED: u8 = 1;
pub const SYN_SENT: u8 = 2;
pub const SYN_RECV: u8 = 3;
pub const FIN_WAIT1: u8 = 4;
pub const CLOSE: u8 = 7;
pub const LAST_ACK: u8 = 9;
pub const LISTEN: u8 = 10;

const IPPROTO_MPTCP: u64 = 262;

/// Where an event tells a socket's addresses and ports, its own first.
#[derive(Clone, Debug)]
pub struct Ends {
    addresses: [Field; 2],
    ports: [Field; 2],
}

impl Ends {
    /// By the names of the addresses' fields.
    pub fn new(format: &Format, addresses: [&str; 2]) -> Option<Ends> {
        Some(Ends {
            addresses: [format.field(addresses[0])?, format.field(addresses[1])?],
            ports: [format.field("sport")?, format.field("dport")?],
        })
    }

    /// Without mapped IPv4 addresses; `None` without a port.
    pub fn of(&self, data: &[u8]) -> [Option<SocketAddr>; 2] {
        [0, 1].map(|which| {
            let port = self.ports[which].number(data).filter(|port| *port != 0)? as u16;
            Some(SocketAddr::new(self.addresses[which].ip(data)?, port))
        })
    }
}

/// Where the fields of [`STATE`] stand.
#[derive(Clone, Debug)]
pub struct StateLayout {
    sk: Field,
    old: Field,
    new: Field,
    protocol: Field,
    ends: Ends,
}

/// A change of state, by the numbers above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kernel's address of the socket.
    pub sk: u64,
    pub old: u8,
    pub new: u8,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    /// A connection of MPTCP, which has sockets of TCP under it.
    pub mptcp: bool,
}

impl StateLayout {
    /// `None`: a field is missing.
    pub fn new(format: &Format) -> Option<StateLayout> {
        Some(StateLayout {
            sk: format.field("skaddr")?,
            old: format.field("oldstate")?,
            new: format.field("newstate")?,
            protocol: format.field("protocol")?,
            ends: Ends::new(format, ["saddr_v6", "daddr_v6"])?,
        })
    }

    /// `None`: it is too short, or not about TCP.
    pub fn decode(&self, data: &[u8]) -> Option<Change> {
        let protocol = self.protocol.number(data)?;
        if protocol != libc::IPPROTO_TCP as u64 && protocol != IPPROTO_MPTCP {
            return None;
        }
        let [local, remote] = self.ends.of(data);
        Some(Change {
            sk: self.sk.number(data)?,
            old: self.old.number(data)? as u8,
            new: self.new.number(data)? as u8,
            local,
            remote,
            mptcp: protocol == IPPROTO_MPTCP,
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The text of a format with these fields: name, offset, size.
    pub fn format(id: u16, fields: &[(&str, usize, usize)]) -> Format {
        let line = |(name, offset, size): &(&str, usize, usize)| {
            format!("field:x {name}; offset:{offset}; size:{size};\n")
        };
        Format::parse(&format!("ID: {id}\n{}", fields.iter().map(line).collect::<String>()))
    }

    /// [`STATE`] in a kernel of 2026.
    pub fn state_format(id: u16) -> Format {
        let fields = [
            ("skaddr", 8, 8),
            ("oldstate", 16, 4),
            ("newstate", 20, 4),
            ("sport", 24, 2),
            ("dport", 26, 2),
            ("protocol", 30, 2),
            ("saddr_v6[16]", 40, 16),
            ("daddr_v6[16]", 56, 16),
        ];
        format(id, &fields)
    }

    /// Zeros with these bytes at their places.
    pub fn data<const N: usize>(parts: &[(usize, &[u8])]) -> [u8; N] {
        let mut data = [0; N];
        for (at, bytes) in parts {
            data[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        data
    }

    #[test]
    fn a_change_of_state_of_tcp_and_of_no_other() {
        let layout = StateLayout::new(&state_format(7)).unwrap();
        let mapped = |last| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, last];
        let (sk, ports) = (0xffff_8881_0000_0000u64, [5000u16, 80].map(u16::to_ne_bytes));
        let of = |protocol: u16, remote: [u8; 2]| {
            layout.decode(&data::<72>(&[
                (8, &sk.to_ne_bytes()),
                (16, &2u32.to_ne_bytes()),
                (20, &1u32.to_ne_bytes()),
                (24, &ports[0]),
                (26, &remote),
                (30, &protocol.to_ne_bytes()),
                (40, &mapped(1)),
                (56, &mapped(2)),
            ]))
        };
        let (local, remote) = ("10.0.0.1:5000".parse().ok(), "10.0.0.2:80".parse().ok());
        let change = Change { sk, old: 2, new: 1, local, remote, mptcp: false };
        assert_eq!(of(6, ports[1]), Some(change));
        assert_eq!(of(262, ports[1]), Some(Change { mptcp: true, ..change }));
        assert_eq!(
            of(6, [0; 2]),
            Some(Change { remote: None, ..change }),
            "an address without a port is none"
        );
        assert_eq!(of(132, ports[1]), None);
        assert_eq!(layout.decode(&[0; 70]), None);
    }
}
