//! The tracepoints that say which of the kernel's sockets a system call is about, and which connection that is. `/proc` and inet_diag
//! say so only of programs that are still there when somebody looks.

use super::format::{Field, Format};
use super::state::{Change, STATE, StateLayout};
use crate::model::Kind;

/// The only one that tells the cookie and is rare. Of the whole machine, too.
pub const DESTROYED: &str = "tcp/tcp_destroy_sock";
/// Each call that moves bytes by a socket, inside that call (Linux 6.3 and later).
pub const MOVED: [&str; 2] = ["sock/sock_send_length", "sock/sock_recv_length"];

/// An event about a socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SockEvent {
    /// The kernel's address of the socket.
    pub sk: u64,
    /// The thread was interrupted by something that has nothing to do with it.
    pub aside: bool,
    /// What happened.
    pub what: SockWhat,
}

/// What happened to a socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SockWhat {
    /// Its state changed: heard of the whole machine, since segments arrive while anybody runs.
    State(Change),
    /// The kernel is done with it.
    Destroyed { cookie: u64 },
    /// A call moved bytes, or failed.
    Moved { kind: Kind, result: i32 },
}

/// Where the fields of one of these events stand.
#[derive(Clone, Debug)]
pub enum SockLayout {
    State(StateLayout),
    Destroyed([Field; 2]),
    Moved([Field; 4]),
}

/// What an interrupt sets in the flags of an event, hard or soft.
const INTERRUPT: u8 = 0x08 | 0x10;

impl SockLayout {
    /// `None`: it is another event, or a field is missing.
    pub fn new(event: &str, format: &Format) -> Option<SockLayout> {
        let field = |name: &str| format.field(name);
        Some(match event {
            STATE => SockLayout::State(StateLayout::new(format)?),
            DESTROYED => SockLayout::Destroyed([field("skaddr")?, field("sock_cookie")?]),
            _ if MOVED.contains(&event) => {
                SockLayout::Moved([field("sk")?, field("family")?, field("protocol")?, field("ret")?])
            }
            _ => return None,
        })
    }

    /// What an event's data says; `None`: it is too short, or not about TCP where only that matters.
    pub fn decode(&self, data: &[u8]) -> Option<SockEvent> {
        let number = |field: &Field| field.number(data);
        let (sk, what) = match self {
            SockLayout::State(layout) => {
                let change = layout.decode(data)?;
                (change.sk, SockWhat::State(change))
            }
            SockLayout::Destroyed([sk, cookie]) => {
                (number(sk)?, SockWhat::Destroyed { cookie: number(cookie)? })
            }
            SockLayout::Moved([sk, family, protocol, ret]) => {
                let kind = kind(number(family)?, number(protocol)?);
                (number(sk)?, SockWhat::Moved { kind, result: number(ret)? as u32 as i32 })
            }
        };
        Some(SockEvent { sk, aside: data.get(2)? & INTERRUPT != 0, what })
    }
}

fn kind(family: u64, protocol: u64) -> Kind {
    let inet = [libc::AF_INET, libc::AF_INET6].contains(&(family as i32));
    match (inet, protocol as i32) {
        (true, libc::IPPROTO_TCP | libc::IPPROTO_MPTCP) => Kind::Tcp,
        (true, libc::IPPROTO_UDP) => Kind::Udp,
        _ if family == libc::AF_UNIX as u64 => Kind::Unix,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::state::tests::{data, format, state_format};
    use proptest::prelude::*;

    /// As in a kernel of 2026.
    fn layouts() -> Vec<SockLayout> {
        let destroyed = format(8, &[("skaddr", 8, 8), ("sock_cookie", 64, 8)]);
        let moved = format(9, &[("sk", 8, 8), ("family", 16, 2), ("protocol", 18, 2), ("ret", 20, 4)]);
        assert!(SockLayout::new(STATE, &destroyed).is_none());
        [(STATE, state_format(7)), (DESTROYED, destroyed), (MOVED[0], moved)]
            .map(|(name, format)| SockLayout::new(name, &format).expect("all fields"))
            .into()
    }

    #[test]
    fn what_each_event_says() {
        let [state, destroyed, moved] = &layouts()[..] else { panic!() };
        let sk = 0xffff_8881_0000_0000u64.to_ne_bytes();
        let parts: [(usize, &[u8]); 3] = [(2, &[0x10]), (8, &sk), (30, &6u16.to_ne_bytes())];
        let event = state.decode(&data::<72>(&parts)).unwrap();
        let sk_number = u64::from_ne_bytes(sk);
        assert!(
            event.aside
                && event.sk == sk_number
                && matches!(event.what, SockWhat::State(change) if change.sk == sk_number)
        );
        let event = destroyed.decode(&data::<72>(&[(8, &sk), (64, &77u64.to_ne_bytes())])).unwrap();
        assert_eq!((event.aside, event.what), (false, SockWhat::Destroyed { cookie: 77 }));
        let moves = |family: u16, protocol: u16| {
            let (family, protocol) = (family.to_ne_bytes(), protocol.to_ne_bytes());
            let ret = (-11i32).to_ne_bytes();
            let parts: [(usize, &[u8]); 4] = [(8, &sk), (16, &family), (18, &protocol), (20, &ret)];
            moved.decode(&data::<72>(&parts)).unwrap().what
        };
        for (family, protocol, kind) in [
            (10, 6, Kind::Tcp),
            (2, 262, Kind::Tcp),
            (2, 17, Kind::Udp),
            (1, 0, Kind::Unix),
            (16, 0, Kind::Other),
        ] {
            assert_eq!(moves(family, protocol), SockWhat::Moved { kind, result: -11 });
        }
    }

    proptest! {
        #[test]
        fn any_event_can_be_read(data in proptest::collection::vec(any::<u8>(), 0..100)) {
            for layout in layouts() {
                layout.decode(&data);
            }
        }
    }
}
