//! Cross-memory attach refused: from the start, or at any moment later. Data goes another way and is right.

use crate::support::alone::alone;
use crate::support::node::{End, Node};
use crate::support::puppet::{Puppet, settings};
use crate::support::seccomp::refuse_attach;
use polyrail_core::proto::{PeerIdx, Scheme};

const LARGE: usize = 3 << 20;

/// Large messages both ways, a put, a get and an atomic.
fn all_kinds(node: &mut Node, puppet: &mut Puppet, peer: PeerIdx, back: u64, round: u64) {
    let tag = 10 * round + 10;
    let there = puppet.number_beside(node, &format!("recv {back} {tag} {LARGE}"));
    let sent = node.send(peer, tag, LARGE);
    assert_eq!(node.wait(sent), End::Right);
    assert_eq!(puppet.ask_beside(node, &format!("wait {there}")), "Right");
    let received = node.recv(Some(peer), Some(tag + 1), LARGE);
    let there = puppet.number_beside(node, &format!("send {back} {} {LARGE}", tag + 1));
    assert_eq!(node.wait(received), End::Right);
    assert_eq!(puppet.ask_beside(node, &format!("wait {there}")), "Right");

    let key = 100 + round;
    puppet.number_beside(node, &format!("region {key} {LARGE}"));
    let got = node.get(peer, key, LARGE);
    assert_eq!(node.wait(got), End::Right);
    // what is put there is what a get brings back
    puppet.number_beside(node, &format!("region {} {LARGE}", key + 1000));
    let put = node.put(peer, key + 1000, 77, LARGE);
    assert_eq!(node.wait(put), End::Right);
    let back = node.get_expecting(peer, key + 1000, 77, LARGE);
    assert_eq!(node.wait(back), End::Right);
    let added = node.add(peer, key);
    assert_eq!(node.wait(added), End::Right);
}

fn pair(rails: &str, first: fn() -> std::io::Result<()>) -> (Node, Puppet, PeerIdx, u64) {
    let mut node = Node::open(settings(rails));
    let mut puppet = Puppet::after(first, rails);
    let peer = node.peer(&puppet.address);
    node.meet(peer);
    let back = puppet.introduce(&mut node);
    (node, puppet, peer, back)
}

fn scheme(node: &Node, peer: PeerIdx) -> Scheme {
    node.worker.route(peer).expect("connected").1.scheme
}

#[test]
fn attach_is_refused_from_the_start() {
    for rails in ["RAILS=shm", "RAILS=shm RNDV=put"] {
        let (mut node, mut puppet, peer, back) = pair(rails, refuse_attach);
        all_kinds(&mut node, &mut puppet, peer, back, 0);
        let route = puppet.ask("route 1");
        assert!(route.contains("shm") && route.contains("Fragments"), "{route}");
    }
}

#[test]
fn attach_is_refused_to_both_from_the_start() {
    alone(|| {
        // what this process starts from now on is filtered too
        refuse_attach().expect("a filter");
        for rails in ["RAILS=shm", "RAILS=shm RNDV=put"] {
            let (mut node, mut puppet, peer, back) = pair(rails, || Ok(()));
            assert_eq!(scheme(&node, peer), Scheme::Fragments);
            all_kinds(&mut node, &mut puppet, peer, back, 0);
        }
    });
}

#[test]
fn attach_is_refused_in_mid_run_to_this_side() {
    alone(|| {
        let mut pairs: Vec<_> =
            ["RAILS=shm", "RAILS=shm RNDV=put"].map(|rails| pair(rails, || Ok(()))).into_iter().collect();
        for (node, puppet, peer, back) in &mut pairs {
            assert_ne!(scheme(node, *peer), Scheme::Fragments);
            all_kinds(node, puppet, *peer, *back, 0);
        }
        refuse_attach().expect("a filter");
        for (node, puppet, peer, back) in &mut pairs {
            all_kinds(node, puppet, *peer, *back, 1);
            all_kinds(node, puppet, *peer, *back, 2);
        }
    });
}

#[test]
fn attach_is_refused_in_mid_run_to_the_other_side() {
    for rails in ["RAILS=shm", "RAILS=shm RNDV=put"] {
        let (mut node, mut puppet, peer, back) = pair(rails, || Ok(()));
        all_kinds(&mut node, &mut puppet, peer, back, 0);
        assert_eq!(puppet.ask_beside(&mut node, "refuse"), "0");
        all_kinds(&mut node, &mut puppet, peer, back, 1);
        all_kinds(&mut node, &mut puppet, peer, back, 2);
    }
}
