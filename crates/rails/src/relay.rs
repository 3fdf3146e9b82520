//! This site's gateway, as whoever calls it does: by SOCKS version 5 ([RFC 1928](https://www.rfc-editor.org/rfc/rfc1928)) to be connected
//! with another site, by HTTP to see where it leads. (What gateways are is `docs/gateway.md`.)

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use polyrail_core::wire::offer::Net;
use serde::Deserialize;

use crate::rail::channel::{Channel, Source};

/// The version of SOCKS that is spoken.
pub const SOCKS: u8 = 5;
/// Bytes of what answers [`ask`], up to where their number is known: a gateway's answers are all of an IPv4 address or all of an IPv6 one.
pub const ANSWER_HEAD: usize = 2 + 4;
/// Longest answer.
const ANSWER_MAX: usize = ANSWER_HEAD + 18;
/// Longest page of a gateway that is read, in bytes.
const PAGE_MAX: usize = 16 << 20;
/// How long a gateway may take to say where it leads while an endpoint is opened.
const SOON: Duration = Duration::from_secs(2);
/// No other site is farther than this, in microseconds.
const FARTHEST: u32 = 10_000_000;

/// What asks for a connection: the greeting and the request at once, for who knows that nothing has to be proved.
pub fn ask(to: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![SOCKS, 1, 0, SOCKS, 1, 0];
    put(&mut bytes, to);
    bytes
}

/// Writes an address as SOCKS has it: its kind, itself, the port.
pub fn put(bytes: &mut Vec<u8>, at: SocketAddr) {
    match at.ip() {
        IpAddr::V4(ip) => {
            bytes.push(1);
            bytes.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes.push(4);
            bytes.extend(ip.octets());
        }
    }
    bytes.extend(at.port().to_be_bytes());
}

/// How many bytes follow [`ANSWER_HEAD`], and the code of the outcome: 0, or why not. None: that is no answer.
pub fn answer(head: &[u8; ANSWER_HEAD]) -> Option<(usize, u8)> {
    match *head {
        [SOCKS, 0, SOCKS, code, 0, 1] => Some((6, code)),
        [SOCKS, 0, SOCKS, code, 0, 4] => Some((18, code)),
        _ => None,
    }
}

/// What a gateway shows under a path.
///
/// # Errors
/// Nobody answers there within that time, or it is no gateway.
pub fn page(at: SocketAddr, path: &str, within: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + within;
    let left = || match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(Some(left)),
    };
    let mut socket = TcpStream::connect_timeout(&at, within)?;
    socket.set_write_timeout(left()?)?;
    socket
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n").as_bytes())?;
    let (mut answer, mut room) = (Vec::new(), [0; 16 << 10]);
    while answer.len() < PAGE_MAX {
        socket.set_read_timeout(left()?)?;
        match Read::read(&mut socket, &mut room) {
            Ok(0) => break,
            Ok(got) => answer.extend(&room[..got]),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "what answers there is no gateway");
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(bad)?;
    match answer.starts_with(b"HTTP/1.1 200 ") {
        true => Ok(answer.split_off(end + 4)),
        false => Err(bad()),
    }
}

/// What is said of a network of another site.
#[derive(Deserialize)]
struct Said {
    network: String,
    #[serde(default)]
    when_down: String,
    #[serde(default)]
    round_trip_us: Option<u32>,
}

/// How a gateway leads to a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    network: Net,
    /// How long a round trip to the other site takes, in microseconds; 0: unknown.
    pub round_trip_us: u32,
    /// While the gateway does not lead there, its addresses may be reached directly.
    pub or_direct: bool,
}

/// Where a gateway led when it was asked.
pub(crate) struct Ways {
    gateway: SocketAddr,
    all: Vec<Way>,
}

impl Ways {
    /// Asks the gateway that is called there, host and port.
    ///
    /// # Errors
    /// Why that is not known, in a sentence.
    pub fn ask(gateway: &str) -> Result<Self, String> {
        let failed = |why: &dyn std::fmt::Display| {
            format!(
                "this site's gateway, by POLYRAIL_GATEWAY at {gateway}, does not say where it leads: {why}"
            )
        };
        let all = gateway.to_socket_addrs().map_err(|why| failed(&why))?;
        let mut why = "it has no address".to_owned();
        for at in all {
            let said =
                page(at, "/networks", SOON).and_then(|page| Ok(serde_json::from_slice::<Vec<Said>>(&page)?));
            match said {
                Ok(said) => return Ok(Self::of(at, &said)),
                Err(error) => why = error.to_string(),
            }
        }
        Err(failed(&why))
    }

    fn of(gateway: SocketAddr, said: &[Said]) -> Self {
        let network = |one: &Said| {
            let (ip, prefix) = one.network.split_once('/')?;
            let network = Net::new(ip.parse().ok()?, prefix.parse().ok()?)?;
            let round_trip_us = one.round_trip_us.unwrap_or(0).min(FARTHEST);
            Some(Way { network, round_trip_us, or_direct: one.when_down == "direct" })
        };
        Self { gateway, all: said.iter().filter_map(network).collect() }
    }

    /// The way to an address, if it is another site's.
    pub fn to(&self, ip: IpAddr) -> Option<&Way> {
        let ip = ip.to_canonical();
        self.all.iter().filter(|way| way.network.contains(ip)).max_by_key(|way| way.network.prefix())
    }

    /// Where the gateway is called.
    pub fn gateway(&self) -> SocketAddr {
        self.gateway
    }
}

/// A connection by a gateway, from when it is asked for. What is to be sent follows the request at once; the answer comes before what is received.
pub(crate) struct Relayed {
    socket: TcpStream,
    to: SocketAddr,
    /// What asks for it, until it is sent.
    request: Vec<u8>,
    /// What came of the answer so far.
    answer: Vec<u8>,
    stands: bool,
}

impl Relayed {
    /// On a connection to a gateway that is being made.
    pub fn new(socket: TcpStream, to: SocketAddr) -> Self {
        Self { socket, to, request: ask(to), answer: Vec::with_capacity(ANSWER_MAX), stands: false }
    }

    /// Reads the answer, no more.
    fn hear(&mut self) -> io::Result<()> {
        loop {
            let wanted = match self.answer.first_chunk::<ANSWER_HEAD>() {
                None => ANSWER_HEAD,
                Some(head) => match answer(head) {
                    None => {
                        return Err(io::Error::new(io::ErrorKind::InvalidData, "what answers is no gateway"));
                    }
                    Some((rest, 0)) => ANSWER_HEAD + rest,
                    Some((_, code)) => return Err(refused(code)),
                },
            };
            if self.answer.len() == wanted {
                self.stands = true;
                return Ok(());
            }
            let mut room = [0; ANSWER_MAX];
            match Read::read(&mut self.socket, &mut room[..wanted - self.answer.len()])? {
                0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the gateway closed the connection",
                    ));
                }
                got => self.answer.extend(&room[..got]),
            }
        }
    }
}

/// What a gateway's code of refusal means (RFC 1928, section 6).
fn refused(code: u8) -> io::Error {
    let (kind, what) = match code {
        2 => (io::ErrorKind::PermissionDenied, "the gateway does not let this be connected"),
        3 => (io::ErrorKind::NetworkUnreachable, "the other site is away"),
        4 => (io::ErrorKind::HostUnreachable, "the other site does not reach that host"),
        5 => (io::ErrorKind::ConnectionRefused, "connection refused at the other site"),
        6 => (io::ErrorKind::TimedOut, "that host does not answer at the other site"),
        _ => (io::ErrorKind::ConnectionAborted, "the gateway could not make the connection"),
    };
    io::Error::new(kind, what)
}

impl Channel for Relayed {
    fn write(&mut self, bytes: &[u8], _descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        if !self.request.is_empty() {
            let sent = Write::write(&mut self.socket, &self.request)?;
            self.request.drain(..sent);
            if !self.request.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Write::write(&mut self.socket, bytes)
    }

    fn read(&mut self, bytes: &mut [u8], _descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        if !self.stands {
            self.hear()?;
        }
        Read::read(&mut self.socket, bytes)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn stands(&self) -> bool {
        self.stands
    }

    fn source(&self) -> Source {
        Source::at(self.to.ip())
    }

    fn name(&self) -> String {
        self.to.to_string()
    }

    fn into_fd(self: Box<Self>) -> OwnedFd {
        self.socket.into()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn the_narrowest_network_says_how_far_it_is() {
        let said: Vec<Said> = serde_json::from_str(
            r#"[{"network":"10.2.0.0/16","site":"west","up":true,"round_trip_us":20000},{"network":"10.2.7.0/24"},{"network":"x"},{"network":"10.3.0.0/99"}]"#,
        )
        .unwrap();
        let ways = Ways::of("127.0.0.1:1080".parse().unwrap(), &said);
        let of = |text: &str| ways.to(text.parse().unwrap()).map(|way| way.round_trip_us);
        assert_eq!((of("10.2.0.1"), of("10.2.7.1"), of("10.3.0.1")), (Some(20000), Some(0), None));
        assert_eq!(of("::ffff:10.2.0.1"), Some(20000));
    }

    /// What a program behind a gateway hears, whatever pieces it comes in.
    fn heard(pieces: &[&[u8]]) -> io::Result<Vec<u8>> {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let (mut gateway, _) = door.accept().unwrap();
        gateway.set_nodelay(true).unwrap();
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let answers = thread::spawn(move || {
            let mut asked = [0; 6 + 7 + 5];
            gateway.read_exact(&mut asked).unwrap();
            assert_eq!(&asked[13..], b"hello", "what follows is there at once");
            assert_eq!(asked[..13], ask("10.2.0.1:80".parse().unwrap()));
            for piece in pieces {
                gateway.write_all(&piece).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut relayed = Relayed::new(socket, "10.2.0.1:80".parse().unwrap());
        assert_eq!(Channel::write(&mut relayed, b"hello", &[]).unwrap(), 5);
        let (mut all, mut room) = (Vec::new(), [0; 64]);
        let outcome = loop {
            match Channel::read(&mut relayed, &mut room, &mut Vec::new()) {
                Ok(0) => break Ok(all),
                Ok(got) => {
                    assert!(relayed.stands());
                    all.extend(&room[..got]);
                }
                Err(why) => break Err(why),
            }
        };
        answers.join().unwrap();
        outcome
    }

    #[test]
    fn what_comes_behind_the_answer_is_the_peers() {
        let answer = [5, 0, 5, 0, 0, 1, 10, 0, 0, 1, 0, 80];
        let whole = [&answer[..], b"world"].concat();
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        for pieces in [vec![&whole[..]], vec![&answer[..7], &answer[7..], b"world"], bytes] {
            assert_eq!(heard(&pieces).unwrap(), b"world");
        }
    }

    #[test]
    fn what_the_gateway_refuses_has_its_reason() {
        let refused = |code| heard(&[&[5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0]]).unwrap_err().kind();
        assert_eq!(refused(5), io::ErrorKind::ConnectionRefused);
        assert_eq!(refused(3), io::ErrorKind::NetworkUnreachable);
        assert_eq!(heard(&[b"HTTP/1.1 400"]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(heard(&[&[5, 0]]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn where_no_gateway_is_that_is_said() {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = door.local_addr().unwrap().to_string();
        drop(door);
        assert!(Ways::ask(&at).err().unwrap().contains(&at));
    }
}
