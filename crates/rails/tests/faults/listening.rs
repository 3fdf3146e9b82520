//! Where an endpoint listens: by the rails and on the interfaces that its settings name, and nowhere else.

use crate::support::alone::{alone, alone_in_net};
use crate::support::net::host_with_rails;
use crate::support::node::{End, Node};
use crate::support::puppet::{Puppet, settings};
use polyrail_core::wire::{Address, Key};
use polyrail_rails::sockets::unix;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The TCP ports at which a process listens, as its kernel tells.
fn listening_ports(pid: &str) -> Vec<u16> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
    let open = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let open: Vec<String> = open.map(|to| to.to_string_lossy().into_owned()).collect();
    let all = ["tcp", "tcp6"].map(|table| {
        std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).expect("the kernel's sockets")
    });
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ours = words.len() > 9 && words[3] == "0A" && open.contains(&format!("socket:[{}]", words[9]));
        ours.then(|| u16::from_str_radix(words[1].rsplit(':').next()?, 16).ok())?
    };
    all.iter().flat_map(|table| table.lines().filter_map(port)).collect()
}

#[test]
fn without_tcp_no_port_is_open() {
    alone(|| {
        let tcp = Node::open(settings("RAILS=tcp"));
        assert!(!listening_ports("self").is_empty());
        drop(tcp);
        let mut node = Node::open(settings("RAILS=shm"));
        assert_eq!(listening_ports("self"), Vec::<u16>::new());
        let address = Address::parse(&node.worker.address()).expect("an address");
        assert_eq!((address.port(), address.ips().count()), (0, 0));
        let mut puppet = Puppet::start("RAILS=shm");
        puppet.ask("echo");
        let peer = node.peer(&puppet.address);
        node.converse(peer);
        // the two have no rail in common
        let mut other = Node::open(settings("RAILS=tcp"));
        let peer = other.peer(&puppet.address);
        other.send(peer, 1, 8);
        assert!(other.lost(peer, &puppet.address).contains("no way to it"));
    });
}

/// Whether somebody answers there.
fn is_open(ip: &str, port: u16) -> bool {
    let at = SocketAddr::new(ip.parse().expect("an IP"), port);
    match TcpStream::connect_timeout(&at, Duration::from_secs(20)) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{ip}: {error}");
            false
        }
    }
}

#[test]
fn interfaces_that_are_left_out_are_not_listened_on() {
    alone_in_net(|| {
        let mut puppet = host_with_rails(2);
        let mut open = |chosen: &str| {
            puppet.open(&format!("RAILS=tcp INTERFACES={chosen}"));
            let port = Address::parse(&puppet.address).expect("an address").port();
            [0, 1].map(|n| is_open(&format!("10.78.{n}.2"), port))
        };
        assert_eq!(open("r0,r1"), [true, true]);
        assert_eq!(open("r0"), [true, false]);
        assert_eq!(open("^r0"), [false, true]);
        assert_eq!(open("lo"), [false, false]);
        // who is on the same host comes by its loopback, whichever interface's address it calls
        let mut here = Puppet::start("RAILS=tcp INTERFACES=r1");
        here.ask("echo");
        let mut node = Node::open(settings("RAILS=tcp INTERFACES=r1"));
        let peer = node.peer(&here.address);
        node.converse(peer);
        // and from another host by the interface that is named
        puppet.open("RAILS=tcp INTERFACES=r1");
        puppet.ask("echo");
        let peer = node.peer(&puppet.address);
        node.converse(peer);
    });
}

#[test]
fn a_port_is_the_same_on_all_interfaces_and_said_to_be_in_use() {
    alone_in_net(|| {
        let _other = host_with_rails(2);
        let node = Node::open(settings("RAILS=tcp INTERFACES=r0,r1 PORT=7011"));
        assert_eq!(Address::parse(&node.worker.address()).expect("an address").port(), 7011);
        let why = polyrail_rails::Worker::open(settings("RAILS=tcp INTERFACES=r1 PORT=7011"));
        let why = why.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains("7011"), "{why}");
    });
}

/// A named endpoint's identity, and with it its socket's name, is known to who has seen it once.
#[test]
fn a_name_that_another_has_taken_leaves_tcp() {
    let id = Key::new([0x5a; 16]).expect("not zero").id();
    let _impostor = unix::listen(format!("polyrail-{id}").as_bytes()).expect("a free name");
    let mut node = Node::open(settings("KEY=90"));
    assert!(!Address::parse(&node.worker.address()).expect("an address").is_local());
    let mut puppet = Puppet::start("");
    let back = puppet.introduce(&mut node);
    let arrives = node.recv(None, Some(3), 5000);
    puppet.number_beside(&mut node, &format!("send {back} 3 5000"));
    assert_eq!(node.wait(arrives), End::Right);
    let snapshot = node.worker.snapshot();
    let up = snapshot.events.iter().find(|event| event.why.contains("another process has taken"));
    assert!(up.is_some(), "{:?}", snapshot.events);
    // without TCP nothing is left
    let error = polyrail_rails::Worker::open(settings("KEY=90 RAILS=shm")).err().expect("an error");
    assert!(error.to_string().contains("Unix socket"), "{error}");
}
