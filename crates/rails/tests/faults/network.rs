//! Connections that are reset, networks that go silent, and peers that only seem to be gone.

use crate::support::alone::{alone_in_net, pause};
use crate::support::net::{cut, mend, other_host};
use crate::support::node::{End, GONE, Node};
use crate::support::proxy::Proxy;
use crate::support::puppet::{Puppet, hex, settings};

const LARGE: usize = 8 << 20;

#[test]
fn a_connection_is_reset_in_the_middle_of_a_message() {
    for sends in [true, false] {
        for bytes in [1000, 300_000, 5_000_000] {
            let mut node = Node::open(settings("RAILS=tcp"));
            let (mut puppet, mut other) = (Puppet::start("RAILS=tcp"), Puppet::start("RAILS=tcp"));
            other.ask("echo");
            let to_other = node.peer(&other.address);
            let proxy = Proxy::start(&puppet.address, bytes);
            let address = proxy.address(&puppet.address);
            let peer = node.peer(&address);
            node.meet(peer);
            let back = puppet.number(&format!("peer {}", hex(&node.worker.address())));
            let (here, there) = if sends {
                let there = puppet.number_beside(&mut node, &format!("recv {back} 5 {LARGE}"));
                (node.send(peer, 5, LARGE), there)
            } else {
                let here = node.recv(Some(peer), Some(5), LARGE);
                (here, puppet.number_beside(&mut node, &format!("send {back} 5 {LARGE}")))
            };
            assert_eq!(node.wait(here), GONE);
            assert_eq!(puppet.ask_beside(&mut node, &format!("wait {there}")), format!("{GONE:?}"));
            assert!(node.lost(peer, &address).contains("lost"));
            let why = puppet.ask(&format!("why {back}"));
            assert!(why.contains("lost"), "{why}");
            node.converse(to_other);
        }
    }
}

/// Far more than sockets and rings hold.
fn stop_for(milliseconds: u64, rails: &str) {
    let mut node = Node::open(settings(rails));
    let mut puppet = Puppet::start(rails);
    let peer = node.peer(&puppet.address);
    node.meet(peer);
    let back = puppet.number(&format!("peer {}", hex(&node.worker.address())));
    let arrives = node.recv(Some(peer), Some(1), LARGE);
    puppet.number(&format!("send {back} 1 {LARGE}"));
    puppet.stop();
    let count = 200;
    let sent: Vec<_> = (0..count).map(|tag| node.send(peer, 100 + tag, 32 << 10)).collect();
    let (large, before) = (node.send(peer, 99, LARGE), std::time::Instant::now());
    while before.elapsed().as_millis() < u128::from(milliseconds) {
        node.progress();
    }
    puppet.signal(libc::SIGCONT);
    assert_eq!(node.wait(arrives), End::Right, "{rails}: {}", node.why(peer));
    for tag in 99..100 + count {
        let len = if tag == 99 { LARGE } else { 32 << 10 };
        let there = puppet.number_beside(&mut node, &format!("recv {back} {tag} {len}"));
        assert_eq!(puppet.ask_beside(&mut node, &format!("wait {there}")), "Right", "{rails}");
    }
    assert!(sent.into_iter().chain([large]).all(|id| node.wait(id) == End::Right), "{rails}");
}

#[test]
fn a_peer_that_is_stopped_and_goes_on_loses_nothing() {
    for rails in ["RAILS=shm", "RAILS=shm RNDV=put", "RAILS=shm RNDV=frag", "RAILS=tcp"] {
        stop_for(300, rails);
    }
}

/// Its kernel answers for it: silent it is not, however long it computes.
#[test]
fn a_peer_that_does_not_move_for_longer_than_the_timeout_loses_nothing() {
    stop_for(5000, "RAILS=tcp PEER_TIMEOUT=1");
}

#[test]
fn a_network_that_goes_silent_ends_what_waits() {
    alone_in_net(|| {
        let short = "PEER_TIMEOUT=1";
        let mut puppet = other_host();
        puppet.open(short);
        let mut node = Node::open(settings(short));
        let to = puppet.number(&format!("peer {}", hex(&node.worker.address())));
        let peer = node.peer(&puppet.address);
        // nothing is said; one side waits for an answer; one side is in the middle of sending; it does not take any more
        for what in ["nothing", "an answer", "a message", "room"] {
            node.meet(peer);
            let mut ids = vec![node.recv(Some(peer), Some(1), 8)];
            match what {
                "an answer" => ids.push(node.get(peer, 3, 8)),
                "a message" => {
                    puppet.number_beside(&mut node, &format!("recv {to} 9 {}", 32 * LARGE));
                    ids.push(node.send(peer, 9, 32 * LARGE));
                    for _ in 0..100 {
                        node.progress();
                    }
                }
                "room" => {
                    puppet.stop();
                    ids.extend((0..200).map(|tag| node.send(peer, 100 + tag, 32 << 10)));
                    for _ in 0..2000 {
                        node.progress();
                        pause(1);
                    }
                }
                _ => {}
            }
            if what == "an answer" {
                puppet.stop();
            }
            cut(&puppet);
            for id in ids {
                assert!([GONE, End::Right].contains(&node.wait(id)), "{what}");
            }
            let why = node.lost(peer, &puppet.address);
            assert!(why.contains("lost") && why.contains("time"), "{what}: {why}");
            mend(&puppet);
            puppet.signal(libc::SIGCONT);
            // the other side hears of it in its own time
            pause(1100);
            while puppet.ask_beside(&mut node, &format!("why {to}")).is_empty() {}
        }
    });
}
