use super::*;
use crate::config::{Config, SecretFile};
use crate::list::{RailId, RailSet};
use crate::mailbox::{Done, Mailbox};
use crate::named::address_of_key;
use polyrail_core::wire::Key;
use polyrail_core::wire::Transport;
use polyrail_core::wire::handshake::{CHALLENGE_LEN, Features, Hello, Kind, Nonce, Versions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

const BOUND: Duration = Duration::from_secs(60);

fn key(n: u8) -> Key {
    Key::new([n; 16]).unwrap()
}

fn settings() -> Config {
    let rails = RailSet::NONE.with(RailId::Tcp);
    Config { rails, secret: SecretFile::None, ..Config::default() }
}

fn endpoint(shared: &SharedPort, n: u8) -> Mailbox {
    Mailbox::open(Config { key: Some(key(n)), shared_port: Some(shared.clone()), ..settings() }).unwrap()
}

fn port(shared: &SharedPort) -> u16 {
    switch(&mut lock(shared)).unwrap().ports.port()
}

fn place(shared: &SharedPort) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port(shared)).into()
}

fn silent(shared: &SharedPort) -> usize {
    switch(&mut lock(shared)).unwrap().silent.len()
}

/// A client that says so much to the endpoint of this key.
fn client(shared: &SharedPort, n: u8, says: u64) -> Mailbox {
    let mut client = Mailbox::open(settings()).unwrap();
    let at = address_of_key(&key(n), port(shared), &[place(shared)]).unwrap();
    let peer = client.peer(&at.to_bytes()).unwrap();
    client.send(peer, 1, &Arc::from(says.to_le_bytes())).unwrap();
    client
}

fn until<T>(all: &mut [&mut Mailbox], mut what: impl FnMut(&mut [&mut Mailbox]) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        all.iter_mut().for_each(|one| _ = one.progress());
        if let Some(found) = what(all) {
            return found;
        }
        assert!(start.elapsed() < BOUND);
    }
}

fn heard(endpoint: &mut Mailbox, client: &mut Mailbox) -> u64 {
    endpoint.recv(None, 1, vec![0; 8]);
    until(&mut [endpoint, client], |all| match all[0].next_done()? {
        Done::Received { buffer, outcome: Ok(_), .. } => Some(u64::from_le_bytes(buffer.try_into().unwrap())),
        other => panic!("{other:?}"),
    })
}

#[test]
fn each_caller_gets_whom_it_wants() {
    let shared = SharedPort::default();
    let (mut a, mut b) = (endpoint(&shared, 1), endpoint(&shared, 2));
    assert_ne!(a.worker().address(), b.worker().address());
    for (n, says) in [(1, 5), (2, 6), (2, 7), (1, 8)] {
        let mut client = client(&shared, n, says);
        let wanted = if n == 1 { &mut a } else { &mut b };
        assert_eq!(heard(wanted, &mut client), says);
    }
    // one that leaves, and comes again, while the other stays
    drop(a);
    assert_eq!(heard(&mut b, &mut client(&shared, 2, 9)), 9);
    let mut a = endpoint(&shared, 1);
    assert_eq!(heard(&mut a, &mut client(&shared, 1, 10)), 10);
    let before = port(&shared);
    drop((a, b));
    let mut b = endpoint(&shared, 2);
    assert_eq!(port(&shared), before);
    assert_eq!(heard(&mut b, &mut client(&shared, 2, 11)), 11);
}

fn hello(to: Key) -> [u8; HELLO_LEN] {
    let hello = Hello {
        versions: Versions::OURS,
        features: Features::default(),
        kind: Kind::Session,
        transport: Transport::TCP,
        nonce: Nonce([3; 16]),
        from: key(9).id(),
        to: to.id(),
    };
    hello.to_bytes()
}

/// What is answered, until so many bytes or the end.
fn answer(all: &mut [&mut Mailbox], caller: &mut TcpStream, most: usize) -> Vec<u8> {
    let mut got = Vec::new();
    until(all, |_| {
        let mut room = vec![0; most - got.len()];
        match caller.read(&mut room) {
            Ok(0) => return Some(()),
            Ok(n) => got.extend_from_slice(&room[..n]),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Some(()),
        }
        (got.len() == most).then_some(())
    });
    got
}

#[test]
fn whoever_says_it_in_pieces_or_never_is_bounded_and_keeps_nobody_waiting() {
    let shared = SharedPort::default();
    let (mut a, mut b) = (endpoint(&shared, 1), endpoint(&shared, 2));
    let call = || {
        let caller = TcpStream::connect(place(&shared)).unwrap();
        caller.set_nonblocking(true).unwrap();
        caller
    };
    let mut slow = call();
    for (n, byte) in hello(key(2)).into_iter().enumerate() {
        slow.write_all(&[byte]).unwrap();
        until(&mut [&mut a, &mut b], |_| (n + 1 == HELLO_LEN || silent(&shared) == 1).then_some(()));
    }
    let challenge = answer(&mut [&mut a, &mut b], &mut slow, CHALLENGE_LEN);
    assert_eq!(challenge[..5], *b"PLYR\x02");
    for (said, answered) in
        [(hello(key(7)).to_vec(), &b"PLYR\x05\0\0\0"[..]), (b"GET / HTTP/1.1".to_vec(), b"")]
    {
        let mut stranger = call();
        stranger.write_all(&said).unwrap();
        assert_eq!(answer(&mut [&mut a, &mut b], &mut stranger, 64), answered);
    }
    // more than there is room for; whoever calls behind them is heard, and in time none of them is left
    let most = (descriptor_limit() / 16).clamp(SILENT.0, SILENT.1);
    let mut crowd: Vec<TcpStream> = (0..most + 40).map(|_| call()).collect();
    let mut behind = client(&shared, 2, 12);
    assert_eq!(heard(&mut b, &mut behind), 12);
    assert!(silent(&shared) <= most);
    assert_eq!(answer(&mut [&mut a, &mut b], &mut crowd[0], 1), b"", "the oldest gave way");
    until(&mut [&mut a, &mut b], |_| (silent(&shared) == 0).then_some(()));
    drop(crowd);
    // who says rubbish is answered by the first endpoint when that looks; others wait no longer for it than for any
    let crowd: Vec<TcpStream> = (0..WAITING + 40)
        .map(|_| {
            let mut one = call();
            one.write_all(b"GET / HTTP/1.1").unwrap();
            one
        })
        .collect();
    assert_eq!(heard(&mut a, &mut client(&shared, 1, 13)), 13);
    drop(crowd);
}

/// The kernel limits how many descriptors are woken, in nested epolls, by one.
#[test]
fn as_many_share_a_port_as_can_be_woken_together() {
    let (shared, outer) = (SharedPort::default(), Epoll::new().unwrap());
    let mut all: Vec<Mailbox> = (1..=SharedPort::MOST as u8).map(|n| endpoint(&shared, n)).collect();
    for one in &all {
        outer.add(one.wait_fd().as_raw_fd(), libc::EPOLLIN, 0).unwrap();
    }
    let more = Config { key: Some(key(100)), shared_port: Some(shared.clone()), ..settings() };
    assert!(Mailbox::open(more).is_err());
    assert_eq!(heard(all.last_mut().unwrap(), &mut client(&shared, SharedPort::MOST as u8, 1)), 1);
    drop(all.remove(0));
    let twice = Config { key: Some(key(2)), shared_port: Some(shared.clone()), ..settings() };
    assert!(Mailbox::open(twice).is_err(), "a key has one endpoint");
    assert_eq!(heard(&mut all[0], &mut client(&shared, 2, 2)), 2);
}
