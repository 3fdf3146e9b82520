//! Connections that are reset, networks that go silent, and peers that only seem to be gone.

use crate::support::BOUND;
use crate::support::alone::{alone_in_net, pause};
use crate::support::net::{crash, cut, mend, other_host};
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
            let back = puppet.introduce(&mut node);
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

/// Whoever is called has let the other in, and has something for it; it hears of the cut when it answers.
#[test]
fn a_connection_that_is_cut_off_while_it_is_made_is_made_anew() {
    // who calls has said who it is, or that it knows the key, too
    for said in [1, 2] {
        let mut node = Node::open(settings("RAILS=tcp"));
        let mut puppet = Puppet::start("RAILS=tcp");
        let proxy = Proxy::cutting_the_first(&node.worker.address(), said);
        let peer = node.peer(&puppet.address);
        let back = puppet.number(&format!("peer {}", hex(&proxy.address(&node.worker.address()))));
        let there = puppet.number(&format!("send {back} 5 100"));
        let other = puppet.number(&format!("recv {back} 6 100"));
        let here = node.recv(None, Some(5), 100);
        let begin = std::time::Instant::now();
        while !proxy.has_cut() {
            if said > 1 {
                node.progress();
            }
            // before it looks again, it is cut off
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(begin.elapsed() < BOUND, "{said}: it is not called");
        }
        let sent = node.send(peer, 6, 100);
        for id in [here, sent] {
            assert_eq!(node.wait(id), End::Right, "{said}: {}", node.why(peer));
        }
        for id in [there, other] {
            assert_eq!(puppet.ask_beside(&mut node, &format!("wait {id}")), "Right", "{said}");
        }
    }
}

/// Far more than sockets and rings hold.
fn stop_for(milliseconds: u64, rails: &str) {
    let mut node = Node::open(settings(rails));
    let mut puppet = Puppet::start(rails);
    let peer = node.peer(&puppet.address);
    node.meet(peer);
    let back = puppet.introduce(&mut node);
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
        let to = puppet.introduce(&mut node);
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

/// A puppet's message arrives at the node.
fn is_heard(node: &mut Node, puppet: &mut Puppet, to: u64, tag: u64) {
    let arrives = node.recv(None, Some(tag), 100);
    puppet.number_beside(node, &format!("send {to} {tag} 100"));
    assert_eq!(node.wait(arrives), End::Right, "{}", puppet.ask_beside(node, &format!("why {to}")));
}

/// The node has not looked since the old process died.
#[test]
fn a_restarted_process_is_taken_back() {
    for rails in ["RAILS=shm", "RAILS=tcp", ""] {
        let restarting = format!("{rails} KEY=7");
        let mut node = Node::open(settings(rails));
        for tag in 0..3 {
            let mut puppet = Puppet::start(&restarting);
            let to = puppet.introduce(&mut node);
            is_heard(&mut node, &mut puppet, to, tag);
            puppet.kill();
        }
    }
}

#[test]
fn a_restarted_peer_asks_until_its_old_session_is_seen_to_be_dead() {
    let restarting = "RAILS=tcp KEY=7 CONNECT_TIMEOUT=1";
    let mut node = Node::open(settings("RAILS=tcp"));
    let mut puppet = Puppet::start(restarting);
    let proxy = Proxy::start(&node.worker.address(), u64::MAX);
    let by_proxy = proxy.address(&node.worker.address());
    let to = puppet.number(&format!("peer {}", hex(&by_proxy)));
    is_heard(&mut node, &mut puppet, to, 1);
    let old = puppet.address.clone();
    proxy.hush(true);
    puppet.kill();

    let mut puppet = Puppet::start(restarting);
    assert_eq!(puppet.address[16..32], old[16..32], "not the same endpoint");
    let to = puppet.introduce(&mut node);
    let arrives = node.recv(None, Some(2), 100);
    puppet.number_beside(&mut node, &format!("send {to} 2 100"));
    // longer than it would try if nobody were there
    let start = std::time::Instant::now();
    while start.elapsed().as_millis() < 2500 {
        node.progress();
    }
    assert_eq!(
        (node.end(arrives), puppet.ask_beside(&mut node, &format!("why {to}"))),
        (None, String::new())
    );
    proxy.hush(false);
    assert_eq!(node.wait(arrives), End::Right, "{}", puppet.ask_beside(&mut node, &format!("why {to}")));
}

#[test]
fn a_restarted_host_is_taken_back_without_waiting_for_the_timeout() {
    alone_in_net(|| {
        let mut puppet = other_host();
        puppet.open("KEY=7");
        // by itself it would not look for hours
        let mut node = Node::open(settings("PEER_TIMEOUT=80000"));
        let to = puppet.introduce(&mut node);
        is_heard(&mut node, &mut puppet, to, 1);
        crash(&mut puppet);
        let mut puppet = other_host();
        puppet.open("KEY=7");
        let to = puppet.introduce(&mut node);
        is_heard(&mut node, &mut puppet, to, 2);
    });
}
