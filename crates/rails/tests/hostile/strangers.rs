//! Connections to the listener that do not prove the key.

use crate::support::alone::{alone, pause};
use crate::support::node::{GONE, Node};
use crate::support::puppet::{Puppet, settings};
use crate::support::stranger::{Noise, beside, connect, hello, is_ended, offer, shake, shake_for, unix_name};
use crate::support::{descriptors, limit_descriptors, resident};
use polyrail_core::frame::Frame;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::{
    Address, Features, HandshakeError, Ip, Key, Nonce, Offer, Reject, Transport, Versions,
};
use polyrail_core::wireup::{Respond, Responder};
use polyrail_rails::sockets::unix;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;

fn victim() -> (Node, Vec<u8>) {
    let node = Node::open(settings("RAILS=tcp"));
    let address = node.worker.address().to_vec();
    (node, address)
}

/// A real peer connects, from its side.
fn serves(node: &mut Node) {
    let mut puppet = Puppet::start("RAILS=tcp");
    let back = puppet.introduce(node);
    let arrives = node.recv(None, Some(3), 5000);
    let there = puppet.number_beside(node, &format!("send {back} 3 5000"));
    node.wait(arrives);
    assert_eq!(puppet.ask_beside(node, &format!("wait {there}")), "Right");
}

fn last_refusal(node: &Node) -> String {
    node.worker.strangers().last.clone().unwrap_or_default()
}

#[test]
fn garbage_is_turned_away_with_a_reason() {
    let (mut node, address) = victim();
    let mut noise = Noise(7);
    let tls_hello = [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), noise.bytes(508)].concat();
    let mut garbage = vec![
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        tls_hello,
        vec![0; 80],
        vec![0xff; 1 << 20],
        [b"PLYR\x01".to_vec(), noise.bytes(75)].concat(),
        [b"PLYR\x03".to_vec(), noise.bytes(200)].concat(),
        b"PLYR\xff".to_vec(),
    ];
    garbage.extend((0..40).map(|n| noise.bytes(1 << (n % 14))));
    let count = garbage.len() as u64;
    for bytes in garbage {
        let ended = beside(&mut node, || {
            let mut stream = connect(&address);
            // it may be turned away before all is written
            let _ = stream.write_all(&bytes);
            is_ended(&mut stream)
        });
        assert!(ended, "{:?} is still connected", &bytes[..bytes.len().min(16)]);
        assert!(last_refusal(&node).contains("127.0.0.1"), "{}", last_refusal(&node));
    }
    assert_eq!(node.worker.strangers().refused, count);
    serves(&mut node);
}

#[test]
fn who_says_nothing_is_not_waited_for() {
    let (mut node, address) = victim();
    assert!(beside(&mut node, || is_ended(&mut connect(&address))));
    assert!(last_refusal(&node).contains("no answer in time"), "{}", last_refusal(&node));
}

#[test]
fn a_crowd_that_says_nothing_keeps_nobody_out() {
    alone(|| {
        let (mut node, address) = victim();
        serves(&mut node);
        let (before, memory) = (descriptors(), resident());
        let crowd: Vec<TcpStream> = (0..600)
            .map(|_| {
                node.progress();
                connect(&address)
            })
            .collect();
        for _ in 0..100 {
            node.progress();
        }
        // this process has both ends of each
        let held = descriptors() - before - crowd.len();
        assert!((1..=520).contains(&held), "{held} strangers are held");
        for _ in 0..3 {
            serves(&mut node);
        }
        let grown = resident().saturating_sub(memory);
        assert!(grown < 16 << 20, "{grown} bytes for silence");
        drop(crowd);
        node.until("the crowd's end", |_| descriptors() <= before);
    });
}

/// Opens this many connections by `open`, or as many as this process may have, with a word from `then` now and then.
fn flood<C>(count: usize, mut open: impl FnMut() -> Option<C>, mut then: impl FnMut(usize)) -> Vec<C> {
    let mut crowd = Vec::new();
    while crowd.len() < count {
        match open() {
            Some(one) => crowd.push(one),
            // its queue is full
            None => std::thread::yield_now(),
        }
        if crowd.len().is_multiple_of(1000) {
            then(crowd.len());
        }
    }
    crowd
}

/// A worker in a process that may have 1024 descriptors is called by 10,000 who know its identity and never prove its key.
fn is_served_beside_a_crowd<C>(rails: &str, open: impl Fn(&[u8], &[u8]) -> Option<C>) {
    let count = 10_000.min(limit_descriptors(20_000) - 200);
    let mut victim = Puppet::after(
        || {
            limit_descriptors(1024);
            Ok(())
        },
        rails,
    );
    victim.ask("echo");
    let before = victim.number("descriptors") as usize;
    let address = victim.address.clone();
    let crowd = flood(
        count,
        || open(&address, &hello(&address)),
        |_| {
            let mut honest = Node::open(settings(rails));
            let peer = honest.peer(&address);
            honest.converse(peer);
        },
    );
    // to count its descriptors it opens one more
    let held = victim.number("descriptors") as usize - before;
    assert!(held <= 256 + 16, "{held} descriptors for {} strangers", crowd.len());
    let mut honest = Node::open(settings(rails));
    let peer = honest.peer(&address);
    honest.converse(peer);
}

#[test]
fn a_crowd_that_proves_nothing_keeps_nobody_out() {
    alone(|| {
        is_served_beside_a_crowd("RAILS=tcp", |address, hello| {
            let mut stream = connect(address);
            stream.write_all(hello).ok().map(|()| stream)
        });
        is_served_beside_a_crowd("RAILS=shm", |address, hello| {
            let socket = unix::connect(&unix_name(address)).ok()?;
            unix::send(socket.as_fd(), hello, &[]).ok().map(|_| socket)
        });
    });
}

#[test]
fn a_wrong_key_does_not_open() {
    for rails in ["RAILS=tcp", "RAILS=shm", ""] {
        let mut other = Puppet::start(rails);
        other.ask("echo");
        for bit in [0, 77, 127] {
            let mut node = Node::open(settings(rails));
            let mut address = other.address.clone();
            address[16 + bit / 8] ^= 1 << (bit % 8);
            let peer = node.peer(&address);
            let sent = node.send(peer, 1, 8);
            assert_eq!(node.wait(sent), GONE);
            let why = node.lost(peer, &address);
            assert!(why.contains("key") || rails == "RAILS=shm", "{why}");
            let right = node.peer(&other.address);
            node.converse(right);
        }
    }
}

#[test]
fn another_version_is_told_to_both_sides() {
    let (mut node, address) = victim();
    let newer = Versions::new(3, 4).expect("a range");
    let text = beside(&mut node, || match shake(&address, newer).outcome {
        Err(error @ HandshakeError::Version { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    });
    node.until("the refusal", |node| node.worker.strangers().refused == 1);
    for text in [text, last_refusal(&node)] {
        assert!(text.contains("2 to 2") && text.contains("3 to 4"), "{text}");
    }
    serves(&mut node);

    // and a worker that connects to something newer
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let there = Address::parse(&address).expect("an address");
    let key = Key::new([0xee; 16]).expect("not zero");
    let ip = Ip::new(Ipv4Addr::LOCALHOST.into(), 0);
    let address = Address::new(&key, there.host(), false, port, ip).expect("an address").to_bytes();
    let peer = node.peer(&address);
    let sent = node.send(peer, 1, 8);
    beside(&mut node, || {
        let (mut stream, _) = listener.accept().expect("the worker connects");
        let args = Respond { key, versions: newer, features: Features(0), nonce: Nonce([9; 16]) };
        let mut responder = Responder::new(args);
        let mut buffer = [0; 200];
        let n = stream.read(&mut buffer).expect("HELLO");
        assert!(responder.handle_bytes(&buffer[..n]).is_err());
        stream.write_all(responder.poll_transmit().expect("VERSIONS")).expect("the worker reads");
    });
    assert_eq!(node.wait(sent), GONE);
    let why = node.lost(peer, &address);
    assert!(why.contains("2 to 2") && why.contains("3 to 4"), "{why}");
}

/// A connection becomes a link of the transport that its HELLO names, and of no other.
#[test]
fn who_wants_another_transport_than_there_is_is_told_so() {
    let (mut node, address) = victim();
    let mut with = |transport: Transport, offered: &[Transport]| {
        let bare = offer();
        let mut offer = Offer::new(bare.process, bare.limits);
        assert!(offered.iter().all(|one| offer.push_transport(*one, &[])));
        beside(&mut node, || shake_for(&address, Versions::OURS, transport, offer).map(|_| ()))
    };
    let unknown = Transport::from_wire(250).expect("not zero");
    for transport in [Transport::UDP, Transport::SHM, unknown] {
        let refused = with(transport, &[Transport::TCP, transport]);
        assert_eq!(refused, Err(Reject::NoTransport), "{transport} by a TCP connection");
    }
    assert_eq!(with(Transport::TCP, &[unknown]), Err(Reject::NoTransport), "it says that it has no TCP");
    assert_eq!(with(Transport::TCP, &[unknown, Transport::TCP]), Ok(()), "what it has besides means nothing");
    serves(&mut node);
}

#[test]
fn a_proof_opens_once() {
    let (mut node, address) = victim();
    let shaken = beside(&mut node, || shake(&address, Versions::OURS));
    assert!(shaken.outcome.is_ok());
    let [hello, proof] = &shaken.wrote[..] else { panic!("HELLO and PROOF") };
    assert!(beside(&mut node, || {
        let mut stream = connect(&address);
        stream.write_all(hello).expect("the worker reads");
        let mut challenge = [0; 64];
        stream.read_exact(&mut challenge).expect("CHALLENGE");
        stream.write_all(proof).expect("the worker reads");
        is_ended(&mut stream)
    }));
    assert!(last_refusal(&node).contains("key"), "{}", last_refusal(&node));
    serves(&mut node);
}

#[test]
fn a_handshake_may_end_anywhere() {
    alone(|| {
        let (mut node, address) = victim();
        let shaken = beside(&mut node, || shake(&address, Versions::OURS));
        let hello = &shaken.wrote[0];
        serves(&mut node);
        let before = descriptors();
        for cut in 0..=hello.len() {
            let mut stream = connect(&address);
            stream.write_all(&hello[..cut]).expect("it is connected");
            if cut % 2 == 0 {
                crate::support::proxy::reset(stream);
            }
            node.progress();
        }
        pause(10);
        node.until("that all is closed", |_| descriptors() <= before);
        serves(&mut node);
    });
}

/// A peer that takes the connection and computes: who waits for it goes on with what else there is.
#[test]
fn an_unanswered_call_is_looked_at_by_the_clock() {
    let (mut node, own) = victim();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let host = Address::parse(&own).expect("an address").host();
    let ip = Ip::new(Ipv4Addr::LOCALHOST.into(), 0);
    let key = Key::new([0xed; 16]).expect("not zero");
    let address = Address::new(&key, host, false, port, ip).expect("an address").to_bytes();
    let peer = node.peer(&address);
    node.send(peer, 1, 8);
    let (before, start) = (node.worker.counts().looks, std::time::Instant::now());
    let rounds = 200_000;
    for _ in 0..rounds {
        node.worker.progress();
    }
    let (looks, spent) = (node.worker.counts().looks - before, start.elapsed().as_micros() as u64);
    let most = spent / 50 + rounds / 256 + 100;
    assert!(looks <= most, "{looks} looks in {rounds} rounds and {spent} us");
    assert!(looks >= rounds / 256);
}

/// What is kept of callers that went is bounded: why the last of them did.
#[test]
fn callers_that_came_and_went_are_forgotten() {
    let (mut node, address) = victim();
    let all = |node: &Node| (0..node.worker.counts().peers as u32).map(PeerIdx);
    let gone = |node: &Node| all(node).filter(|peer| node.worker.why(*peer).is_some()).count();
    for n in 1..=300 {
        let shaken = beside(&mut node, || shake(&address, Versions::OURS));
        assert!(shaken.outcome.is_ok());
        drop(shaken);
        // a connection that just ends may come back for two seconds
        if n % 50 == 0 {
            node.until("the ends of some", |node| {
                gone(node) == n.min(256) && all(node).skip(1).all(|peer| !node.worker.is_connected(peer))
            });
        }
    }
    serves(&mut node);
}

/// The same of callers that have the key and are refused: nothing of theirs ever ends, so that they go at once.
#[test]
fn callers_that_were_refused_are_forgotten() {
    let (mut node, address) = victim();
    for _ in 0..600 {
        let refused = beside(&mut node, || {
            shake_for(&address, Versions::OURS, Transport::UDP, offer()).map(|_| ()).expect_err("refused")
        });
        assert_eq!(refused, Reject::NoTransport);
    }
    node.until("room is made", |node| node.worker.counts().peers <= 260);
    serves(&mut node);
}

/// A server that answers its clients by their addresses, and then has no more use for them.
#[test]
fn clients_whose_addresses_were_released_are_forgotten() {
    let (mut node, address) = victim();
    let mut last = Vec::new();
    for n in 0..600 {
        let mut shaken = beside(&mut node, || shake(&address, Versions::OURS));
        let peer = node.peer(&shaken.address);
        // before it goes, or after that
        if n % 3 == 0 {
            node.worker.release(peer);
        }
        shaken.stream.write_all(&Frame::Bye.encode(0)).expect("the worker reads");
        shaken.stream.shutdown(Shutdown::Write).expect("it is connected");
        node.until("its end", |node| !node.worker.is_connected(peer));
        node.worker.release(peer);
        last = shaken.address;
    }
    let peers = node.worker.counts().peers;
    assert!(peers <= 260, "room for {peers} peers, of 600 that came and went");
    let known = node.worker.known(Address::parse(&last).expect("an address").id());
    assert_eq!(
        known.and_then(|peer| node.worker.address_of(peer)),
        Some(last[..].try_into().expect("64 bytes"))
    );
    serves(&mut node);
}

/// A server's table of peers has room for those that are there and those that went lately, not for all that ever called.
#[test]
fn a_server_of_very_many_clients_keeps_no_room_for_those_that_went() {
    const CLIENTS: usize = 20_000;
    let come_and_go = |node: &mut Node, address: &[u8], clients: usize| {
        // a few at a time: each has its own bound
        for _ in 0..clients / 50 {
            beside(node, || {
                for _ in 0..50 {
                    let mut shaken = shake(address, Versions::OURS);
                    assert!(shaken.outcome.is_ok());
                    shaken.stream.write_all(&Frame::Bye.encode(0)).expect("the worker reads");
                    shaken.stream.shutdown(Shutdown::Write).expect("it is connected");
                    assert!(is_ended(&mut shaken.stream));
                }
            });
        }
    };
    alone(|| {
        let (mut node, address) = victim();
        come_and_go(&mut node, &address, 1000);
        let before = resident();
        come_and_go(&mut node, &address, CLIENTS);
        let (peers, grown) = (node.worker.counts().peers, resident().saturating_sub(before));
        println!("{CLIENTS} clients: a table of {peers}, {} bytes of memory each", grown / CLIENTS);
        assert!(peers <= 300, "room for {peers} peers, of {CLIENTS} that came and went");
        serves(&mut node);
    });
}
