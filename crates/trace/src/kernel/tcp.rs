//! The tracepoints about TCP: what is read of each, by the names of its fields.

use std::net::SocketAddr;

use super::format::{Field, Format};
use super::state::{Ends, STATE, StateLayout};
use super::tracefs::Instance;

/// `tcp:tcp_probe`, as tracefs names it. The only frequent one: it costs something for each segment that arrives.
pub const PROBE: &str = "tcp/tcp_probe";
const RETRANSMIT: &str = "tcp/tcp_retransmit_skb";
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

/// Where an event says whose it is.
#[derive(Clone, Debug)]
struct Whose {
    sk: Option<Field>,
    ends: Ends,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Data length, next, unacknowledged, window, threshold, peer's window, round trip, cookie.
    Probe([Field; 8]),
    Retransmit,
    State(StateLayout),
    Congestion(Field),
}

/// Where the fields of the events stand in this kernel.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    kinds: Vec<(u16, Whose, Kind)>,
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
        let whose = Whose { sk: field("skaddr"), ends: Ends::new(format, addresses)? };
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
            STATE => Kind::State(StateLayout::new(format)?),
            CONGESTION => Kind::Congestion(field("cong_state")?),
            _ => return None,
        };
        self.kinds.push((format.id, whose, kind));
        Some(())
    }

    /// What an event's data says; `None`: it is none of these, or not about TCP.
    pub fn decode(&self, at: u64, data: &[u8]) -> Option<Raw> {
        use crate::model::KernelEventKind as What;
        let id = u16::from_ne_bytes(data.get(..2)?.try_into().ok()?);
        let (_, whose, kind) = self.kinds.iter().find(|(known, ..)| *known == id)?;
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
            Kind::State(layout) => {
                // the sockets under one of MPTCP tell the same again
                let change = layout.decode(data).filter(|change| !change.mptcp)?;
                What::State { old: change.old, new: change.new }
            }
            Kind::Congestion(state) => What::Congestion { state: state.number(data)? as u8 },
        };
        let sk = whose.sk.and_then(|field| field.number(data)).unwrap_or(0);
        let [local, remote] = whose.ends.of(data);
        Some(Raw { at, sk, cookie, pair: local.zip(remote), what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::state::tests::{data, format, state_format};
    use crate::model::KernelEventKind as What;
    use proptest::prelude::*;

    /// `inet_sock_set_state` and `tcp_probe` of an older kernel, where their fields stand in a kernel of 2026.
    fn decoder() -> Decoder {
        let mut decoder = Decoder::default();
        decoder.add(STATE, &state_format(7)).expect("all fields");
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

    #[test]
    fn a_change_of_state() {
        let mapped = |last: u8| [255, 255, 10, 0, 0, last];
        let (sk, of) = (0xffff_8881_0000_0000u64, |remote: u16, protocol: u16| {
            let bytes = data::<72>(&[
                (0, &7u16.to_ne_bytes()),
                (8, &0xffff_8881_0000_0000u64.to_ne_bytes()),
                (16, &2u32.to_ne_bytes()),
                (20, &1u32.to_ne_bytes()),
                (24, &5000u16.to_ne_bytes()),
                (26, &remote.to_ne_bytes()),
                (30, &protocol.to_ne_bytes()),
                (50, &mapped(1)),
                (66, &mapped(2)),
            ]);
            decoder().decode(9, &bytes)
        });
        let mut raw = Raw { at: 9, sk, cookie: 0, pair: None, what: What::State { old: 2, new: 1 } };
        assert_eq!(of(0, 6), Some(raw), "without a port the addresses say nothing");
        raw.pair = Some(("10.0.0.1:5000".parse().unwrap(), "10.0.0.2:80".parse().unwrap()));
        assert_eq!(of(80, 6), Some(raw));
        assert_eq!(of(80, 132), None, "not TCP");
        assert_eq!(of(80, 262), None, "the sockets under it tell");
    }

    #[test]
    fn a_probe_without_the_address_of_the_socket() {
        let mut bytes: [u8; 136] =
            data(&[(0, &8u16.to_ne_bytes()), (76, &9u16.to_ne_bytes()), (112, &77u64.to_ne_bytes())]);
        for (four, value) in bytes[80..104].chunks_exact_mut(4).zip(1u32..) {
            four.copy_from_slice(&value.to_ne_bytes());
        }
        let what =
            What::Probe { length: 9, snd_nxt: 1, snd_una: 2, cwnd: 3, ssthresh: 4, snd_wnd: 5, rtt: 6 };
        assert_eq!(decoder().decode(5, &bytes), Some(Raw { at: 5, sk: 0, cookie: 77, pair: None, what }));
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
