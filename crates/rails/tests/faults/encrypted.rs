//! Encrypted lanes: who wants them gets them from whoever can, nobody on the way reads them, or does more than cut them.

use crate::lanes::{flood_while_rails_fail, rails_fail_in_turn};
use crate::support::alone::alone_in_net;
use crate::support::net::host_with_rails;
use crate::support::node::{End, GONE, Node, pattern};
use crate::support::proxy::Proxy;
use crate::support::puppet::{Puppet, settings};
use crate::support::stranger::{beside, identity, offer, shake_as};
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::{Address, Features, Ip, Key, Nonce, Reject, Versions};
use polyrail_core::wireup::{Respond, Responder, ResponderEvent};
use polyrail_rails::host::host_id;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

const YES: &str = "ENCRYPT=yes";
const NO: &str = "ENCRYPT=no";

fn encrypted(node: &Node, peer: PeerIdx) -> Vec<bool> {
    node.worker.lanes(peer).iter().map(|lane| lane.encrypted).collect()
}

#[test]
fn lanes_are_encrypted_if_either_side_wants_that() {
    for (ours, theirs, expected) in [(NO, NO, false), (YES, NO, true), (NO, YES, true), (YES, YES, true)] {
        let mut puppet = Puppet::start(&format!("RAILS=tcp {theirs}"));
        puppet.ask("echo");
        let mut node = Node::open(settings(&format!("RAILS=tcp {ours}")));
        let peer = node.peer(&puppet.address);
        node.converse(peer);
        assert_eq!(encrypted(&node, peer), [expected], "{ours} here, {theirs} there");
        // whoever looks is told so
        let told = node.worker.snapshot();
        let up = told.events.iter().find(|event| event.encrypted.is_some()).expect("a lane came up");
        assert_eq!((up.encrypted, up.why.contains("encrypted")), (Some(expected), expected), "{up:?}");
        assert_eq!(told.peers[0].lanes[0].encrypted, expected);
    }
}

/// The same where the other side calls.
#[test]
fn lanes_that_the_other_side_opens_are_encrypted_too() {
    for (ours, theirs, expected) in [(NO, NO, false), (YES, NO, true), (NO, YES, true)] {
        let mut puppet = Puppet::start(&format!("RAILS=tcp {theirs}"));
        let mut node = Node::open(settings(&format!("RAILS=tcp {ours}")));
        let back = puppet.introduce(&mut node);
        let got = node.recv(None, Some(9), 100_000);
        puppet.say(&format!("send {back} 9 100000"));
        assert_eq!(node.wait(got), End::Right);
        let peer = node.peer(&puppet.address);
        assert_eq!(encrypted(&node, peer), [expected], "{ours} here, {theirs} there");
    }
}

#[test]
fn shared_memory_goes_without() {
    let mut puppet = Puppet::start(YES);
    puppet.ask("echo");
    let mut node = Node::open(settings(YES));
    let peer = node.peer(&puppet.address);
    node.converse(peer);
    assert_eq!(node.worker.route(peer).map(|(rail, _)| rail), Some("shm"));
    assert!(encrypted(&node, peer).is_empty());
}

#[test]
fn who_cannot_encrypt_is_turned_away_by_who_wants_that() {
    let mut node = Node::open(settings(&format!("RAILS=tcp {YES}")));
    let address = node.worker.address().to_vec();
    let refused = beside(&mut node, || shake_as(&address, Versions::OURS, Features(0)).err());
    assert_eq!(refused, Some(Reject::Unsealed));
    let why = node.worker.strangers().last.clone().expect("it is noted");
    assert!(why.contains("cannot encrypt") && why.contains("POLYRAIL_ENCRYPT=no"), "{why}");
    // to who does not want it that is no matter
    let mut node = Node::open(settings("RAILS=tcp"));
    let address = node.worker.address().to_vec();
    let shaken = beside(&mut node, || shake_as(&address, Versions::OURS, Features(0)).expect("accepted"));
    assert!(shaken.outcome.is_ok_and(|session| session.features == Features(0)));
}

/// An endpoint that cannot encrypt, or says that it wants to and does not: takes one connection.
fn endpoint(features: Features) -> (Vec<u8>, std::thread::JoinHandle<bool>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let (key, port) = (identity(), listener.local_addr().expect("bound").port());
    let ip = Ip::new(Ipv4Addr::LOCALHOST.into(), 0);
    let host = host_id().expect("this host");
    let address = Address::new(&key, host, false, port, ip).expect("an address").to_bytes().to_vec();
    (address, std::thread::spawn(move || serve(&listener, key, features)))
}

/// Whether the other side proved the key.
fn serve(listener: &TcpListener, key: Key, features: Features) -> bool {
    let (mut stream, _) = listener.accept().expect("a connection");
    let args = Respond { key, versions: Versions::OURS, features, nonce: Nonce([8; 16]) };
    let (mut responder, mut buffer, mut proved) = (Responder::new(args), [0; 4096], false);
    loop {
        let n = stream.read(&mut buffer).unwrap_or(0);
        if n == 0 {
            return proved;
        }
        let _ = responder.handle_bytes(&buffer[..n]);
        if let Some(ResponderEvent::Authenticated(_)) = responder.poll_event() {
            proved = true;
            responder.accept(&offer()).expect("it waits for this");
        }
        while let Some(bytes) = responder.poll_transmit().map(<[u8]>::to_vec) {
            responder.transmitted(bytes.len());
            let _ = stream.write_all(&bytes);
        }
    }
}

#[test]
fn an_endpoint_that_cannot_encrypt_is_not_told_anything_by_who_wants_that() {
    let (address, server) = endpoint(Features(0));
    let mut node = Node::open(settings(&format!("RAILS=tcp {YES}")));
    let peer = node.peer(&address);
    let sent = node.send(peer, 1, 8);
    assert_eq!(node.wait(sent), GONE);
    let why = node.lost(peer, &address);
    assert!(why.contains("cannot encrypt") && why.contains("POLYRAIL_ENCRYPT=no"), "{why}");
    assert!(!server.join().expect("it served"), "nothing is proved to it");
}

/// An offer without a key: there would be nothing to encrypt with.
#[test]
fn an_endpoint_that_keeps_its_key_to_itself_is_not_talked_to() {
    let (address, server) = endpoint(Features::CAN_SEAL);
    let mut node = Node::open(settings(&format!("RAILS=tcp {YES}")));
    let peer = node.peer(&address);
    let sent = node.send(peer, 1, 8);
    assert_eq!(node.wait(sent), GONE);
    let why = node.lost(peer, &address);
    assert!(why.contains("unreadable offer: field 7 is missing"), "{why}");
    drop(node);
    assert!(server.join().expect("it served"));
}

/// What somebody on the way sees of a message that it knows.
fn sees(line: &str) -> bool {
    let mut puppet = Puppet::start(line);
    puppet.ask("echo");
    let proxy = Proxy::start(&puppet.address, u64::MAX);
    let mut node = Node::open(settings(line));
    let peer = node.peer(&proxy.address(&puppet.address));
    node.converse(peer);
    // what was sent there, and what came back: 20,000 bytes of one pattern, 4096 of another
    let seen = proxy.seen();
    assert!(seen.len() > 24_000, "{}", seen.len());
    let known = [&pattern(0xc0ffee, 20_000)[5000..5016], &pattern(0, 4096)[1000..1016]];
    let found = known.map(|known| seen.windows(known.len()).any(|window| window == known));
    assert_eq!(found[0], found[1], "one way is like the other");
    found[0]
}

#[test]
fn nobody_on_the_way_sees_what_is_sent() {
    assert!(sees("RAILS=tcp"), "without encryption everybody does");
    assert!(!sees(&format!("RAILS=tcp {YES}")));
}

#[test]
fn who_changes_what_is_sent_ends_no_more_than_the_connection() {
    let line = format!("RAILS=tcp {YES}");
    let mut puppet = Puppet::start(&line);
    puppet.ask("echo");
    let proxy = Proxy::start(&puppet.address, u64::MAX);
    let mut node = Node::open(settings(&line));
    let address = proxy.address(&puppet.address);
    let peer = node.peer(&address);
    node.converse(peer);
    proxy.spoil();
    let ends = [node.recv(Some(peer), None, 1 << 20), node.send(peer, 5, 100)].map(|id| node.wait(id));
    assert_eq!(ends[0], GONE, "there was only this way");
    let why = node.lost(peer, &address);
    assert!(why.contains("no rail to it is left") && why.contains("changes what is sent"), "{why}");
    assert!(!why.contains("protocol"), "{why}");
}

#[test]
fn further_lanes_are_encrypted_too() {
    const LARGE: usize = 32 << 20;
    alone_in_net(|| {
        let mut puppet = host_with_rails(3);
        puppet.open("RAILS=tcp");
        let mut node = Node::open(settings(&format!("RAILS=tcp {YES}")));
        let back = puppet.introduce(&mut node);
        let peer = node.peer(&puppet.address);
        node.meet(peer);
        let there = puppet.number_beside(&mut node, &format!("recv {back} 1 {LARGE}"));
        let here = node.send(peer, 1, LARGE);
        assert_eq!(puppet.ask_beside(&mut node, &format!("wait {there}")), "Right");
        assert_eq!(node.wait(here), End::Right);
        node.until("all rails in use", |node| node.worker.lanes(peer).len() == 3);
        assert_eq!(encrypted(&node, peer), [true; 3]);
    });
}

#[test]
fn encrypted_rails_that_fail_in_turn_lose_nothing_and_repeat_nothing() {
    alone_in_net(|| rails_fail_in_turn(YES));
}

#[test]
fn a_flood_of_encrypted_messages_keeps_its_order_while_rails_fail() {
    alone_in_net(|| flood_while_rails_fail(YES));
}
