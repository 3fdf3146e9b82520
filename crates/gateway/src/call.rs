//! What programs of a site say to their gateway, on connections to its one port: SOCKS version 5
//! ([RFC 1928](https://www.rfc-editor.org/rfc/rfc1928)) to be connected with the other site, which `polyrail wrap` says in their stead and
//! many programs can say themselves; or one request of HTTP, which shows how the gateway is. No I/O.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use polyrail_rails::relay::{SOCKS, put};

use crate::net::Target;
use crate::wire::Reason;

/// Most bytes of a call: the longest request of either protocol that is read.
pub const CALL_MAX: usize = 4096;

/// What a caller wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// To be connected.
    Connect(Target),
    /// To see something, by its path.
    Show(String),
}

/// Where a call is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is not all there.
    More,
    /// The caller is to be told this before it says more. So many bytes of it are done with.
    Answer(&'static [u8], usize),
    /// That is what it wants. So many bytes of it are done with; what follows is for the other side.
    Wants(Call, usize),
    /// It cannot be helped. It is told this, and that is the end.
    Bad(&'static [u8], &'static str),
}

/// No way to prove oneself is asked for: the port is for who may use it.
const NO_METHOD: &[u8] = &[SOCKS, 0];
const NONE_ACCEPTABLE: &[u8] = &[SOCKS, 0xff];
const NOT_SUPPORTED: &[u8] = &[SOCKS, 7, 0, 1, 0, 0, 0, 0, 0, 0];
const NO_SUCH_KIND: &[u8] = &[SOCKS, 8, 0, 1, 0, 0, 0, 0, 0, 0];
const BAD_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Reads as much of a call as is there. `greeted`: the greeting of SOCKS has been answered.
pub fn read(bytes: &[u8], greeted: bool) -> Step {
    match bytes.first() {
        None => Step::More,
        Some(&SOCKS) if greeted => request(bytes),
        Some(&SOCKS) => greeting(bytes),
        Some(_) if greeted => Step::Bad(NOT_SUPPORTED, "what follows the greeting is no request of SOCKS 5"),
        Some(4) => Step::Bad(&[0, 91, 0, 0, 0, 0, 0, 0], "SOCKS version 4; this gateway speaks version 5"),
        Some(_) => http(bytes),
    }
}

fn greeting(bytes: &[u8]) -> Step {
    let Some(&methods) = bytes.get(1) else { return Step::More };
    let all = 2 + usize::from(methods);
    match bytes.get(2..all) {
        None => Step::More,
        Some(methods) if methods.contains(&0) => Step::Answer(NO_METHOD, all),
        Some(_) => Step::Bad(NONE_ACCEPTABLE, "it wants to prove who it is, which this gateway does not ask"),
    }
}

fn request(bytes: &[u8]) -> Step {
    let [_, command, _, kind, rest @ ..] = bytes else { return Step::More };
    if *command != 1 {
        return Step::Bad(NOT_SUPPORTED, "it wants something else than to connect");
    }
    let port = |at: usize| Some(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
    let (target, len) = match (kind, rest.first()) {
        (1, _) => match (rest.first_chunk::<4>(), port(4)) {
            (Some(ip), Some(port)) => (Target::At((Ipv4Addr::from(*ip), port).into()), 6),
            _ => return Step::More,
        },
        (4, _) => match (rest.first_chunk::<16>(), port(16)) {
            (Some(ip), Some(port)) => (Target::At((Ipv6Addr::from(*ip).to_canonical(), port).into()), 18),
            _ => return Step::More,
        },
        (3, None) => return Step::More,
        (3, Some(&name)) => {
            let end = 1 + usize::from(name);
            let (Some(name), Some(port)) = (rest.get(1..end), port(end)) else { return Step::More };
            match std::str::from_utf8(name).map(|name| Target::named(name, port)) {
                Ok(Ok(target)) => (target, end + 2),
                _ => return Step::Bad(NO_SUCH_KIND, "it wants a host with a name that none can have"),
            }
        }
        _ => return Step::Bad(NO_SUCH_KIND, "it wants an address of an unknown kind"),
    };
    Step::Wants(Call::Connect(target), 4 + len)
}

fn http(bytes: &[u8]) -> Step {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < CALL_MAX => Step::More,
        Ok(httparse::Status::Complete(len)) => match (request.method, request.path) {
            (Some("GET"), Some(path)) => Step::Wants(Call::Show(path.to_owned()), len),
            _ => Step::Bad(BAD_HTTP, "a request of HTTP other than GET"),
        },
        _ => Step::Bad(BAD_HTTP, "neither SOCKS 5 nor HTTP"),
    }
}

/// What a program that asked by SOCKS is told: connected, as this address, or why not.
pub fn reply(outcome: Result<SocketAddr, Reason>) -> Vec<u8> {
    let (code, at) = match outcome {
        Ok(at) => (0, at),
        Err(reason) => {
            let code = match reason {
                Reason::NotAllowed => 2,
                Reason::Down => 3,
                Reason::Unreachable | Reason::NoName => 4,
                Reason::Refused => 5,
                Reason::TimedOut => 6,
                Reason::Full | Reason::Reset => 1,
            };
            (code, (Ipv4Addr::UNSPECIFIED, 0).into())
        }
    };
    let mut bytes = vec![SOCKS, code, 0];
    put(&mut bytes, at);
    bytes
}

/// A page, as HTTP has it, after which the connection ends.
pub fn page(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_rails::relay::{ANSWER_HEAD, answer, ask};
    use proptest::prelude::*;

    #[test]
    fn what_is_asked_is_read_in_whatever_pieces() {
        for to in ["10.1.0.5:80", "[2001:db8::1]:443"] {
            let bytes = ask(to.parse().unwrap());
            assert_eq!(read(&bytes, false), Step::Answer(NO_METHOD, 3));
            for end in 0..bytes.len() {
                let step = if end < 3 { read(&bytes[..end], false) } else { read(&bytes[3..end], true) };
                assert_eq!(step, Step::More, "{end} bytes");
            }
            let wanted = Call::Connect(to.parse().unwrap());
            assert_eq!(read(&bytes[3..], true), Step::Wants(wanted, bytes.len() - 3));
        }
        let named = [&[5, 1, 0, 3, 5][..], b"node5", &[0, 80, b'x']].concat();
        assert_eq!(
            read(&named, true),
            Step::Wants(Call::Connect("node5:80".parse().unwrap()), named.len() - 1)
        );
        let show = b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(read(show, false), Step::Wants(Call::Show("/status".into()), show.len()));
        assert_eq!(read(&show[..20], false), Step::More);
    }

    #[test]
    fn what_cannot_be_helped_is_told_why() {
        for (bytes, greeted) in [
            (&[4, 1, 0, 80, 10, 0, 0, 1, 0][..], false),
            (&[5, 1, 2], false),
            (&[5, 2, 0, 1, 10, 0, 0, 1, 0, 80], true),
            (&[5, 1, 0, 9, 0], true),
            (&[5, 1, 0, 3, 2, b'a', b'/', 0, 80], true),
            (&[22, 3, 1, 2, 0, 1], false),
            (b"POST / HTTP/1.1\r\n\r\n", false),
            (b"GET / HTTP/1.1\r\n\r\n", true),
        ] {
            assert!(matches!(read(bytes, greeted), Step::Bad(..)), "{bytes:?}: {:?}", read(bytes, greeted));
        }
    }

    #[test]
    fn answers_are_understood() {
        for at in ["10.1.0.5:80", "[2001:db8::1]:443"] {
            let all = [NO_METHOD, &reply(Ok(at.parse().unwrap()))].concat();
            let (head, rest) = all.split_first_chunk::<ANSWER_HEAD>().unwrap();
            assert_eq!(answer(head), Some((rest.len(), 0)));
        }
        let refused = [NO_METHOD, &reply(Err(Reason::Refused))].concat();
        assert_eq!(answer(refused.first_chunk().unwrap()), Some((6, 5)));
        assert_eq!(answer(b"HTTP/1"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), first in 0u8..8, greeted: bool) {
            for bytes in [bytes.clone(), [&[first][..], &bytes].concat()] {
                match read(&bytes, greeted) {
                    Step::Answer(_, used) | Step::Wants(_, used) => prop_assert!(used <= bytes.len() && used > 0),
                    Step::More => prop_assert!(bytes.len() < CALL_MAX),
                    Step::Bad(..) => {}
                }
            }
        }
    }
}
