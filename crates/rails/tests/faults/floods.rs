//! More short messages than a receiver takes: they count as sent, and wait at their sender.

use crate::support::node::Node;
use crate::support::puppet::{Puppet, settings};
use polyrail_rails::Linger;
use std::time::{Duration, Instant};

/// More than there is credit for.
const COUNT: u64 = 30_000;
const RAILS: [&str; 2] = ["RAILS=tcp", "RAILS=shm"];
/// The time by which what does not count as sent is waited for, and longer than a receiver that makes progress is, which is 120 times that.
const TIME: Duration = Duration::from_millis(50);
const LONGER: Duration = Duration::from_secs(8);

/// A node that has injected so many messages for a puppet that takes none yet; the first is the one by which they met.
fn flooded(line: &str) -> (Node, Puppet) {
    let puppet = Puppet::start(line);
    let mut node = Node::open(settings(line));
    let peer = node.peer(&puppet.address);
    node.meet(peer);
    for tag in 1..COUNT {
        assert!(node.inject(peer, tag, 8), "{}", node.why(peer));
    }
    (node, puppet)
}

/// Whether all was sent before its time was over.
fn ends(mut node: Node, time: Duration) -> bool {
    let mut linger = Linger::new(time);
    while !node.worker.is_quiet() && linger.goes_on(&mut node.worker) {
        node.progress();
    }
    node.worker.is_quiet()
}

/// Its receiver does something else, for longer than others are waited for, and takes them then.
#[test]
fn what_counts_as_sent_is_kept_until_its_receiver_has_it() {
    for rails in RAILS {
        let (node, mut puppet) = flooded(rails);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                puppet.stop();
                std::thread::sleep(LONGER);
                puppet.signal(libc::SIGCONT);
                puppet.ask(&format!("drain {COUNT}"));
                let start = Instant::now();
                while puppet.ask("drained") != "all" {
                    assert!(start.elapsed() < Duration::from_secs(60), "{}", puppet.ask("drained"));
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            assert!(ends(node, TIME), "{rails}");
        });
    }
}

#[test]
fn a_receiver_that_takes_nothing_is_not_waited_for_for_ever() {
    for rails in RAILS {
        let (node, _puppet) = flooded(rails);
        assert!(!ends(node, TIME), "{rails}");
    }
}

/// Nobody takes anything any more, and each hears it of the other.
#[test]
fn who_waits_for_its_end_is_not_waited_for() {
    for rails in RAILS {
        let mut nodes = [(); 2].map(|()| Node::open(settings(rails)));
        let [a, b] = nodes.each_ref().map(|node| node.worker.address());
        let peers = [nodes[0].peer(&b), nodes[1].peer(&a)];
        for tag in 0..COUNT {
            for (at, peer) in peers.into_iter().enumerate() {
                let start = Instant::now();
                while !nodes[at].try_inject(peer, tag) {
                    nodes.iter_mut().for_each(Node::progress);
                    assert!(start.elapsed() < Duration::from_secs(60));
                }
            }
        }
        let mut lingers = [(); 2].map(|()| Linger::new(20 * TIME));
        let start = Instant::now();
        loop {
            let both = nodes.iter_mut().zip(&mut lingers);
            let go_on = both.map(|(node, linger)| linger.goes_on(&mut node.worker));
            if !go_on.fold(false, |any, goes_on| any | goes_on) {
                break;
            }
            nodes.iter_mut().for_each(Node::progress);
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "as others, which are waited for twice as long"
            );
        }
        assert!(nodes.iter().all(|node| !node.worker.is_quiet()));
    }
}

#[test]
fn a_receiver_that_dies_is_not_waited_for() {
    for rails in RAILS {
        let (node, mut puppet) = flooded(rails);
        puppet.stop();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_secs(1));
                puppet.kill();
            });
            assert!(ends(node, TIME), "{rails}: nothing is left to be sent");
        });
    }
}

#[test]
fn who_does_not_linger_leaves_at_once() {
    let (node, puppet) = flooded("RAILS=tcp LINGER=0");
    puppet.stop();
    assert!(!ends(node, Duration::ZERO));
}
