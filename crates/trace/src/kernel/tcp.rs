//! The tracepoints about TCP: what is read of each, by the names of its fields.

use std::net::SocketAddr;

use super::format::{Field, Format};
use super::tracefs::Instance;

/// `tcp:tcp_probe`, as tracefs names it. The only frequent one: it costs something for each segment that arrives.
pub const PROBE: &str = "tcp/tcp_probe";
const RETRANSMIT: &str = "tcp/tcp_retransmit_skb";
const STATE: &str = "sock/inet_sock_set_state";
const CONGESTION: &str = "tcp/tcp_cong_state_set";

/// Those that can be read, by their order of use.
pub const EVENTS: [&str; 4] = [PROBE, RETRANSMIT, STATE, CONGESTION];

/// A socket's two addresses, its own first, without mapped IPv4 addresses and scopes.
pub type Pair = (SocketAddr, SocketAddr);

/// An event before it is known whose it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Raw {
    /// Nanoseconds of the monotonic clock.
    pub at: u64,
    /// The kernel's address of the socket; 0: it is not told (`tcp_probe` of older kernels).
    pub sk: u64,
    /// The socket's cookie; 0: it is not told.
    pub cookie: u64,
    /// Its addresses, where they are told in full.
    pub pair: Option<Pair>,
    /// What happened. Sequence numbers are the kernel's.
    pub what: crate::model::KernelEventKind,
}

#[derive(Clone, Debug)]
struct Common {
    sk: Option<Field>,
    addresses: [Field; 2],
    ports: [Field; 2],
}

impl Common {
    fn new(format: &Format, addresses: [&str; 2]) -> Option<Common> {
        Some(Common {
            sk: format.field("skaddr"),
            addresses: [format.field(addresses[0])?, format.field(addresses[1])?],
            ports: [format.field("sport")?, format.field("dport")?],
        })
    }

    fn sk(&self, data: &[u8]) -> u64 {
        self.sk.and_then(|field| field.number(data)).unwrap_or(0)
    }

    fn pair(&self, data: &[u8]) -> Option<Pair> {
        let address = |which: usize| {
            let port = self.ports[which].number(data)? as u16;
            Some(SocketAddr::new(self.addresses[which].ip(data)?, port)).filter(|_| port != 0)
        };
        Some((address(0)?, address(1)?))
    }
}

#[derive(Clone, Debug)]
enum Kind {
    /// Data length, next, unacknowledged, window, threshold, peer's window, round trip, cookie.
    Probe([Field; 8]),
    Retransmit,
    State {
        old: Field,
        new: Field,
        protocol: Field,
    },
    Congestion(Field),
}

/// Where the fields of the events stand in this kernel.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    kinds: Vec<(u16, Common, Kind)>,
}

impl Decoder {
    /// Of the events that this kernel has; their names too.
    pub fn new(instance: &Instance) -> (Decoder, Vec<&'static str>) {
        let mut decoder = Decoder::default();
        let names = EVENTS
            .into_iter()
            .filter(|name| instance.format(name).is_some_and(|f| decoder.add(name, &f).is_some()));
        let names = names.collect();
        (decoder, names)
    }

    /// Learns the layout of one of [`EVENTS`]; `None`: a field is missing, or it is another event.
    pub fn add(&mut self, name: &str, format: &Format) -> Option<()> {
        let field = |name: &str| format.field(name);
        let addresses = if name == PROBE { ["saddr", "daddr"] } else { ["saddr_v6", "daddr_v6"] };
        let common = Common::new(format, addresses)?;
        let kind = match name {
            PROBE => Kind::Probe([
                field("data_len")?,
                field("snd_nxt")?,
                field("snd_una")?,
                field("snd_cwnd")?,
                field("ssthresh")?,
                field("snd_wnd")?,
                field("srtt")?,
                field("sock_cookie")?,
            ]),
            RETRANSMIT => Kind::Retransmit,
            STATE => {
                Kind::State { old: field("oldstate")?, new: field("newstate")?, protocol: field("protocol")? }
            }
            CONGESTION => Kind::Congestion(field("cong_state")?),
            _ => return None,
        };
        self.kinds.push((format.id, common, kind));
        Some(())
    }

    /// What an event's data says; `None`: it is none of these, or not about TCP.
    pub fn decode(&self, at: u64, data: &[u8]) -> Option<Raw> {
        use crate::model::KernelEventKind as What;
        let id = u16::from_ne_bytes(data.get(..2)?.try_into().ok()?);
        let (_, common, kind) = self.kinds.iter().find(|(known, ..)| *known == id)?;
        let mut cookie = 0;
        let what = match kind {
            Kind::Probe(fields) => {
                let mut values = [0; 8];
                for (value, field) in values.iter_mut().zip(fields) {
                    *value = field.number(data)?;
                }
                let [length, snd_nxt, snd_una, cwnd, ssthresh, snd_wnd, rtt, of] = values;
                let [snd_nxt, snd_una, cwnd, ssthresh, snd_wnd, rtt] =
                    [snd_nxt, snd_una, cwnd, ssthresh, snd_wnd, rtt].map(|value| value as u32);
                cookie = of;
                What::Probe { length: length as u16, snd_nxt, snd_una, cwnd, ssthresh, snd_wnd, rtt }
            }
            Kind::Retransmit => What::Retransmit { timeout: false },
            Kind::State { old, new, protocol } => {
                if protocol.number(data)? != libc::IPPROTO_TCP as u64 {
                    return None;
                }
                What::State { old: old.number(data)? as u8, new: new.number(data)? as u8 }
            }
            Kind::Congestion(state) => What::Congestion { state: state.number(data)? as u8 },
        };
        Some(Raw { at, sk: common.sk(data), cookie, pair: common.pair(data), what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KernelEventKind as What;
    use proptest::prelude::*;

    /// Fields of `inet_sock_set_state` and of a `tcp_probe` of an older kernel, where they stand in a kernel of 2026.
    fn decoder() -> Decoder {
        let field = |(name, offset, size): &(&str, usize, usize)| {
            format!("field:x {name}; offset:{offset}; size:{size};\n")
        };
        let format = |id: u16, fields: &[(&str, usize, usize)]| {
            Format::parse(&format!("ID: {id}\n{}", fields.iter().map(field).collect::<String>()))
        };
        let mut decoder = Decoder::default();
        let state = [
            ("skaddr", 8, 8),
            ("oldstate", 16, 4),
            ("newstate", 20, 4),
            ("sport", 24, 2),
            ("dport", 26, 2),
            ("protocol", 30, 2),
            ("saddr_v6[16]", 40, 16),
            ("daddr_v6[16]", 56, 16),
        ];
        decoder.add(STATE, &format(7, &state)).expect("all fields");
        let probe = [
            ("saddr[28]", 8, 28),
            ("daddr[28]", 36, 28),
            ("sport", 64, 2),
            ("dport", 66, 2),
            ("data_len", 76, 2),
            ("snd_nxt", 80, 4),
            ("snd_una", 84, 4),
            ("snd_cwnd", 88, 4),
            ("ssthresh", 92, 4),
            ("snd_wnd", 96, 4),
            ("srtt", 100, 4),
            ("sock_cookie", 112, 8),
        ];
        decoder.add(PROBE, &format(8, &probe)).expect("all fields");
        assert!(
            decoder.add(PROBE, &format(9, &probe[1..])).is_none(),
            "an event without a field is not read"
        );
        decoder
    }

    fn put(data: &mut [u8], at: usize, bytes: &[u8]) {
        data[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[test]
    fn a_change_of_state() {
        let mut data = [0; 72];
        put(&mut data, 0, &7u16.to_ne_bytes());
        put(&mut data, 8, &0xffff_8881_0000_0000u64.to_ne_bytes());
        put(&mut data, 16, &2u32.to_ne_bytes());
        put(&mut data, 20, &1u32.to_ne_bytes());
        put(&mut data, 24, &5000u16.to_ne_bytes());
        put(&mut data, 30, &6u16.to_ne_bytes());
        put(&mut data, 50, &[255, 255, 10, 0, 0, 1]);
        put(&mut data, 66, &[255, 255, 10, 0, 0, 2]);
        let mut raw = Raw {
            at: 9,
            sk: 0xffff_8881_0000_0000,
            cookie: 0,
            pair: None,
            what: What::State { old: 2, new: 1 },
        };
        assert_eq!(decoder().decode(9, &data), Some(raw), "without a port the addresses say nothing");
        put(&mut data, 26, &80u16.to_ne_bytes());
        raw.pair = Some(("10.0.0.1:5000".parse().unwrap(), "10.0.0.2:80".parse().unwrap()));
        assert_eq!(decoder().decode(9, &data), Some(raw));
        put(&mut data, 30, &132u16.to_ne_bytes());
        assert_eq!(decoder().decode(9, &data), None, "not TCP");
    }

    #[test]
    fn a_probe_without_the_address_of_the_socket() {
        let mut data = [0; 136];
        put(&mut data, 0, &8u16.to_ne_bytes());
        for (at, value) in (80..104).step_by(4).zip(1u32..) {
            put(&mut data, at, &value.to_ne_bytes());
        }
        put(&mut data, 76, &9u16.to_ne_bytes());
        put(&mut data, 112, &77u64.to_ne_bytes());
        let what =
            What::Probe { length: 9, snd_nxt: 1, snd_una: 2, cwnd: 3, ssthresh: 4, snd_wnd: 5, rtt: 6 };
        assert_eq!(decoder().decode(5, &data), Some(Raw { at: 5, sk: 0, cookie: 77, pair: None, what }));
    }

    proptest! {
        #[test]
        fn any_event_can_be_read(id in 6u16..10, mut data in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(first) = data.get_mut(..2) { first.copy_from_slice(&id.to_ne_bytes()) }
            let raw = decoder().decode(1, &data);
            prop_assert!(raw.is_none() || (7..9).contains(&id) && data.len() >= 28);
        }
    }
}
