//! The messages of inet_diag (linux/inet_diag.h, linux/netlink.h): numbers in the machine's order, addresses and ports in the network's.

use std::net::{IpAddr, SocketAddr};

use super::{Found, Sample, Wanted, address, tcp_info};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const HEADER: usize = 16;
/// `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// `struct inet_diag_msg`.
const MESSAGE: usize = 72;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SKMEMINFO: u16 = 7;
const EXTENSIONS: u8 = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1) | 1 << (INET_DIAG_SKMEMINFO - 1);
/// All states but listening, those that only wait for their end, and requests that are no socket yet.
const STATES: u32 = !(1 << 10 | 1 << 6 | 1 << 12);

/// A request for one connection.
pub fn lookup(out: &mut Vec<u8>, wanted: &Wanted, number: u32) {
    let (local, remote) = (wanted.local.ip().to_canonical(), wanted.remote.ip().to_canonical());
    // Both are of one family, but for nonsense, which is not found.
    let family = if local.is_ipv4() && remote.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    header(out, 0, number, family as u8);
    out.extend(wanted.local.port().to_be_bytes());
    out.extend(wanted.remote.port().to_be_bytes());
    for ip in [local, remote] {
        let mut bytes = [0; 16];
        match ip {
            IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes = ip.octets(),
        }
        out.extend(bytes);
    }
    let scope = |address| if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 };
    out.extend(scope(wanted.remote).max(scope(wanted.local)).to_ne_bytes());
    out.extend((wanted.cookie as u32).to_ne_bytes());
    out.extend(((wanted.cookie >> 32) as u32).to_ne_bytes());
}

/// A request for all connections of a family.
pub fn dump(out: &mut Vec<u8>, family: u8, number: u32) {
    header(out, NLM_F_DUMP, number, family);
    out.extend([0; 40]);
    out.extend([0xff; 8]);
}

fn header(out: &mut Vec<u8>, flags: u16, number: u32, family: u8) {
    out.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
    out.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    out.extend(number.to_ne_bytes());
    out.extend(0u32.to_ne_bytes());
    out.extend([family, libc::IPPROTO_TCP as u8, EXTENSIONS, 0]);
    out.extend(STATES.to_ne_bytes());
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reply {
    /// Number of the request.
    pub number: u32,
    /// The connection; `None`: there is none (any more).
    pub found: Option<Found>,
}

/// The answers in a datagram. Bytes that are no answer end it.
pub fn replies(mut datagram: &[u8]) -> impl Iterator<Item = Reply> {
    std::iter::from_fn(move || {
        loop {
            let length = u32_at(datagram, 0)? as usize;
            let kind = u16_at(datagram, 4)?;
            let number = u32_at(datagram, 8)?;
            let payload = datagram.get(HEADER..length)?;
            datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
            match kind {
                NLMSG_ERROR | NLMSG_DONE => return Some(Reply { number, found: None }),
                SOCK_DIAG_BY_FAMILY => return Some(Reply { number, found: found(payload) }),
                _ => {}
            }
        }
    })
}

fn found(payload: &[u8]) -> Option<Found> {
    let head: &[u8; MESSAGE] = payload.get(..MESSAGE)?.try_into().ok()?;
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let ip = |at: usize| address(u16::from(head[0]), std::array::from_fn(|i| head[at + i]));
    let local = SocketAddr::new(ip(8)?, port(4));
    let remote = SocketAddr::new(ip(24)?, port(6));
    let cookie = u64::from(u32_at(head, 44)?) | u64::from(u32_at(head, 48)?) << 32;
    let mut congestion = [0; 16];
    let mut send_free = 0;
    let mut info = None;
    for (kind, value) in attributes(&payload[MESSAGE..]) {
        match kind {
            INET_DIAG_INFO => info = Some(tcp_info(value)),
            INET_DIAG_CONG => {
                let name = value.split(|&byte| byte == 0).next().unwrap_or_default();
                let name = &name[..name.len().min(congestion.len())];
                congestion[..name.len()].copy_from_slice(name);
            }
            // sndbuf and wmem_queued of linux/sock_diag.h: what tells poll whether there is room
            INET_DIAG_SKMEMINFO => {
                send_free = u32_at(value, 12).unwrap_or(0).saturating_sub(u32_at(value, 20).unwrap_or(0));
            }
            _ => {}
        }
    }
    let mut tcp = info?;
    (tcp.congestion, tcp.send_free) = (congestion, send_free);
    let wanted = Wanted { cookie, local, remote };
    Some(Found { wanted, inode: u32_at(head, 68)?, sample: Sample { cookie, tcp } })
}

fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)?;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_as_the_kernel_wants_it() {
        let mut bytes = Vec::new();
        let wanted = Wanted {
            cookie: 0x0000_0002_0000_0001,
            local: "[::ffff:10.0.0.1]:258".parse().unwrap(),
            remote: "10.0.0.2:772".parse().unwrap(),
        };
        lookup(&mut bytes, &wanted, 7);
        let mut expected = vec![72, 0, 0, 0, 20, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, 2, 6, 0b100_1010, 0];
        expected.extend(STATES.to_ne_bytes());
        expected.extend([1, 2, 3, 4, 10, 0, 0, 1]);
        expected.extend([0; 12]);
        expected.extend([10, 0, 0, 2]);
        expected.extend([0; 12]);
        expected.extend([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes, expected);
    }

    proptest! {
        #[test]
        fn any_datagram_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(replies(&bytes).count() <= bytes.len() / HEADER + 1);
        }

        #[test]
        fn an_answer_of_any_content_can_be_read(
            content in proptest::collection::vec(any::<u8>(), 0..400), family in 0u8..12,
        ) {
            let mut bytes = ((HEADER + content.len()) as u32).to_ne_bytes().to_vec();
            bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(&content);
            if let Some(first) = bytes.get_mut(HEADER) { *first = family }
            prop_assert_eq!(replies(&bytes).count(), 1);
        }
    }
}
