//! Endpoints whose user has a secret: an address alone, which a launcher may have told in clear text, lets nobody in.

use crate::support::alone::alone_in_net;
use crate::support::net::host_with_rails;
use crate::support::node::{End, GONE, Node};
use crate::support::puppet::{Puppet, settings};
use crate::support::stranger::{beside, connect, hello, is_ended, shake};
use polyrail_core::wire::handshake::{HandshakeError, Transcript};
use polyrail_core::wire::{Address, Versions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// A user's secret, in a file of its own.
struct Secret(PathBuf);

impl Secret {
    fn new(name: &str, bytes: &[u8; 16]) -> Self {
        let path = std::env::temp_dir().join(format!("polyrail-{name}-{}", std::process::id()));
        let mut file = std::fs::OpenOptions::new();
        let mut file = file.write(true).create(true).truncate(true).mode(0o600).open(&path).expect("a file");
        file.write_all(bytes).expect("room");
        Self(path)
    }

    fn with(&self, rails: &str) -> String {
        format!("{rails} SECRET={}", self.0.display())
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn who_has_the_secret_is_let_in_by_every_rail() {
    let secret = Secret::new("same", b"of both of them.");
    for rails in ["RAILS=tcp", "RAILS=shm", ""] {
        let mut puppet = Puppet::start(&secret.with(rails));
        puppet.ask("echo");
        let mut node = Node::open(settings(&secret.with(rails)));
        assert!(Address::parse(&node.worker.address()).expect("an address").needs_secret());
        let peer = node.peer(&puppet.address);
        node.converse(peer);
    }
}

#[test]
fn further_lanes_prove_it_too() {
    const LARGE: usize = 32 << 20;
    alone_in_net(|| {
        let secret = Secret::new("lanes", b"of both of them.");
        let line = secret.with("RAILS=tcp");
        let mut puppet = host_with_rails(2);
        puppet.open(&line);
        let mut node = Node::open(settings(&line));
        let back = puppet.introduce(&mut node);
        let peer = node.peer(&puppet.address);
        node.meet(peer);
        let there = puppet.number_beside(&mut node, &format!("recv {back} 1 {LARGE}"));
        let here = node.send(peer, 1, LARGE);
        assert_eq!(puppet.ask_beside(&mut node, &format!("wait {there}")), "Right");
        assert_eq!(node.wait(here), End::Right);
        node.until("two lanes", |node| node.worker.lanes(peer).len() == 2);
    });
}

#[test]
fn who_read_the_address_on_its_way_is_not_let_in() {
    let secret = Secret::new("sniffed", b"not in addresses");
    let mut node = Node::open(settings(&secret.with("RAILS=tcp")));
    let address = node.worker.address().to_vec();
    let shaken = beside(&mut node, || shake(&address, Versions::OURS));
    assert_eq!(shaken.outcome, Err(HandshakeError::WrongKey));
    // nor one that does not mind what the endpoint proves
    let ended = beside(&mut node, || {
        let (mut stream, hello) = (connect(&address), hello(&address));
        stream.write_all(&hello).expect("the worker reads");
        let mut challenge = [0; 64];
        stream.read_exact(&mut challenge).expect("CHALLENGE");
        let transcript = Transcript { hello: hello.try_into().expect("80 bytes"), challenge };
        let proof = transcript.proof(&Address::parse(&address).expect("an address").key(), &[]);
        stream.write_all(&proof).expect("the worker reads");
        is_ended(&mut stream)
    });
    assert!(ended);
    let refused = node.worker.strangers().clone();
    assert!(refused.last.clone().unwrap_or_default().contains("key"), "{refused:?}");
}

/// What a node with these settings says of this peer.
fn why_not(here: &str, address: &[u8]) -> String {
    let mut node = Node::open(settings(here));
    let peer = node.peer(address);
    let sent = node.send(peer, 1, 8);
    assert_eq!(node.wait(sent), GONE, "{here}");
    node.lost(peer, address)
}

#[test]
fn who_has_no_secret_or_another_is_told_so() {
    let (ours, theirs) =
        (Secret::new("ours", b"of this host ..."), Secret::new("theirs", b"of that host ..."));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("proc is mounted");
    for rails in ["RAILS=tcp", "RAILS=shm"] {
        let (with, without) = (Puppet::start(&theirs.with(rails)), Puppet::start(rails));
        let lacking = why_not(rails, &with.address);
        assert!(lacking.contains(&format!("host {} has none", host.trim_end())), "{lacking}");
        let differs = why_not(&ours.with(rails), &with.address);
        let path = ours.0.display().to_string();
        assert!(differs.contains("another secret of the user's") && differs.contains(&path), "{differs}");
        let mut elsewhere = without.address.clone();
        // its host
        elsewhere[8] ^= 1;
        let asked = why_not(&ours.with(rails), &elsewhere);
        assert!(asked.contains("does not use") && asked.contains(&path), "{asked}");
        for why in [lacking, asked, differs] {
            assert!(why.contains("copy") && why.contains("POLYRAIL_SECRET_FILE="), "{why}");
        }
    }
}

/// Processes of one host that start while the secret is made find each other.
#[test]
fn a_secret_that_is_made_meanwhile_parts_nobody() {
    for rails in ["RAILS=tcp", "RAILS=shm"] {
        for early_calls in [true, false] {
            let path = std::env::temp_dir().join(format!("polyrail-late-{}", std::process::id()));
            let line = format!("{rails} SECRET={}", path.display());
            let (mut node, mut puppet) = (None, None);
            if early_calls {
                node = Some(Node::open(settings(&line)));
            } else {
                puppet = Some(Puppet::start(&line));
            }
            let _late = Secret::new("late", b"it is made later");
            let mut puppet = puppet.unwrap_or_else(|| Puppet::start(&line));
            let mut node = node.unwrap_or_else(|| Node::open(settings(&line)));
            puppet.ask("echo");
            let peer = node.peer(&puppet.address);
            node.converse(peer);
        }
    }
}

#[test]
fn a_secret_that_was_named_and_cannot_be_used_is_an_error() {
    let missing = settings("SECRET=/nowhere/secret");
    let node = Node::open(missing);
    assert!(!Address::parse(&node.worker.address()).expect("an address").needs_secret());
    let short = Secret::new("short", b"of both of them.");
    std::fs::write(&short.0, b"short").expect("room");
    let error = polyrail_rails::Worker::open(settings(&short.with(""))).err().expect("an error").to_string();
    assert!(error.contains("16 bytes") && error.contains(&short.0.display().to_string()), "{error}");
}
