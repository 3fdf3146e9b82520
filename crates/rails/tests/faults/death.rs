//! Peers that are killed, or leave, at bad moments.

use crate::support::alone::{alone, alone_in_mounts, run};
use crate::support::descriptors;
use crate::support::node::{End, GONE, Node};
use crate::support::puppet::{Puppet, settings};
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::Address;

/// Every way that a large message takes.
const SCHEMES: [&str; 4] = ["RAILS=shm", "RAILS=shm RNDV=put", "RAILS=shm RNDV=frag", "RAILS=tcp"];
const RAILS: [&str; 2] = ["RAILS=shm", "RAILS=tcp"];

/// A survivor, somebody who will be killed, and somebody who stays.
struct Three {
    node: Node,
    victim: Puppet,
    to_victim: PeerIdx,
    _other: Puppet,
    to_other: PeerIdx,
}

impl Three {
    fn new(rails: &str) -> Self {
        let mut node = Node::open(settings(rails));
        let (mut victim, mut other) = (Puppet::start(rails), Puppet::start(rails));
        let (to_victim, to_other) = (node.peer(&victim.address), node.peer(&other.address));
        other.ask("echo");
        node.converse(to_other);
        assert_eq!(victim.introduce(&mut node), 1);
        node.meet(to_victim);
        Self { node, victim, to_victim, _other: other, to_other }
    }

    /// After the victim's end: the loss is known by name, and everybody else is reached as before.
    fn survives(&mut self, reason: &str) {
        let why = self.node.lost(self.to_victim, &self.victim.address);
        assert!(why.contains(reason), "{why}");
        self.node.converse(self.to_other);
        let late = self.node.send(self.to_victim, 1, 100);
        assert_eq!(self.node.wait(late), GONE);
        self.node.converse(self.to_other);
    }
}

#[test]
fn a_peer_is_killed_while_nothing_happens() {
    for rails in RAILS {
        let mut three = Three::new(rails);
        three.victim.kill();
        three.survives("lost");
    }
}

#[test]
fn a_peer_is_killed_while_another_floods_the_survivor() {
    for rails in RAILS {
        let mut three = Three::new(rails);
        let mut flood = Puppet::start(rails);
        flood.introduce(&mut three.node);
        flood.say("inject 1 2000000 8");
        let first = three.node.recv(None, Some(0), 8);
        assert_eq!(three.node.wait(first), End::Right);
        three.victim.kill();
        three.survives("lost");
    }
}

const LARGE: usize = 8 << 20;

#[test]
fn the_sender_of_large_messages_is_killed() {
    for scheme in SCHEMES {
        let mut three = Three::new(scheme);
        let count = 16;
        for tag in 0..count {
            three.victim.number_beside(&mut three.node, &format!("send 1 {tag} {LARGE}"));
        }
        let receives: Vec<_> =
            (0..count / 2).map(|tag| three.node.recv(Some(three.to_victim), Some(tag), LARGE)).collect();
        // some are through, perhaps one is in the middle, some will never be asked for in time
        assert_eq!(three.node.wait(receives[0]), End::Right);
        three.victim.kill();
        let late = (count / 2..count).map(|tag| three.node.recv(Some(three.to_victim), Some(tag), LARGE));
        let receives = Vec::from_iter(receives.into_iter().skip(1).chain(late.collect::<Vec<_>>()));
        let ends: Vec<_> = receives.iter().map(|id| three.node.wait(*id)).collect();
        assert!(ends.iter().all(|end| [End::Right, GONE].contains(end)), "{scheme}: {ends:?}");
        assert!(ends.contains(&GONE), "{scheme}: all came through before the kill");
        three.survives("lost");
    }
}

#[test]
fn the_receiver_of_large_messages_is_killed() {
    for scheme in SCHEMES {
        let mut three = Three::new(scheme);
        let count = 16;
        for tag in 0..count / 2 {
            three.victim.number_beside(&mut three.node, &format!("recv 1 {tag} {LARGE}"));
        }
        let sends: Vec<_> = (0..count).map(|tag| three.node.send(three.to_victim, tag, LARGE)).collect();
        // some are through, perhaps one is in the middle, some will never be received
        assert_eq!(three.node.wait(sends[0]), End::Right);
        three.victim.kill();
        let ends: Vec<_> = sends[1..].iter().map(|id| three.node.wait(*id)).collect();
        assert!(ends.iter().all(|end| [End::Right, GONE].contains(end)), "{scheme}: {ends:?}");
        assert!(ends.contains(&GONE), "{scheme}: all came through before the kill");
        three.survives("lost");
    }
}

/// Operations of every kind that wait for a victim that does not move any more.
fn pending(three: &mut Three) -> Vec<u64> {
    let (node, victim) = (&mut three.node, three.to_victim);
    let mut ids = Vec::new();
    for len in [8, 100_000, LARGE] {
        ids.push(node.send_until(victim, 5, len, polyrail_core::proto::Delivery::Matched));
        ids.push(node.recv(Some(victim), Some(6), len));
        ids.push(node.put(victim, 7, 1, len));
        ids.push(node.get(victim, 7, len));
    }
    ids.push(node.add(victim, 7));
    ids
}

fn ends_all_that_was_pending(scheme: &str, end: impl FnOnce(&mut Three), reason: &str) {
    let mut three = Three::new(scheme);
    three.victim.number(&format!("region 7 {LARGE}"));
    three.victim.stop();
    let ids = pending(&mut three);
    let (anybodys, anybodys_large) =
        (three.node.recv(None, Some(9), 64), three.node.recv(None, Some(9), LARGE));
    for _ in 0..1000 {
        three.node.progress();
    }
    assert!(ids.iter().all(|id| three.node.end(*id).is_none()), "{scheme}");
    end(&mut three);
    for id in ids {
        assert_eq!(three.node.wait(id), GONE, "{scheme}");
    }
    three.survives(reason);
    // receives from anybody wait on, and take what others send
    assert_eq!((three.node.end(anybodys), three.node.end(anybodys_large)), (None, None));
    let mut third = Puppet::start(scheme);
    third.introduce(&mut three.node);
    third.number_beside(&mut three.node, "send 1 9 64");
    third.number_beside(&mut three.node, &format!("send 1 9 {LARGE}"));
    assert_eq!((three.node.wait(anybodys), three.node.wait(anybodys_large)), (End::Right, End::Right));
}

#[test]
fn a_peer_is_killed_while_everything_waits_for_it() {
    for scheme in SCHEMES {
        ends_all_that_was_pending(scheme, |three| three.victim.kill(), "lost");
    }
}

#[test]
fn a_peer_leaves_in_good_order_while_everything_waits_for_it() {
    for scheme in SCHEMES {
        let leave = |three: &mut Three| {
            // it takes what waits in its queues before it goes: nothing of that matches
            three.victim.say("close");
            three.victim.signal(libc::SIGCONT);
        };
        ends_leaving(scheme, leave);
    }
}

/// As for a peer that is killed, but requests that reached it are answered first.
fn ends_leaving(scheme: &str, leave: impl FnOnce(&mut Three)) {
    let mut three = Three::new(scheme);
    three.victim.stop();
    let node = &mut three.node;
    let ids: Vec<_> = [8, 100_000, LARGE]
        .into_iter()
        .flat_map(|len| {
            let matched = polyrail_core::proto::Delivery::Matched;
            [node.send_until(three.to_victim, 5, len, matched), node.recv(Some(three.to_victim), None, len)]
        })
        .collect();
    leave(&mut three);
    for id in ids {
        assert_eq!(three.node.wait(id), GONE, "{scheme}");
    }
    three.survives("closed");
}

/// The sockets with names that a dead process left.
fn sockets_of(address: &[u8]) -> Vec<String> {
    let id = Address::parse(address).expect("an address").id();
    let name: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("proc is mounted");
    sockets.lines().filter(|line| line.contains(&name)).map(str::to_owned).collect()
}

/// Connects to a peer and kills it, again and again, at various moments.
fn kill_many(rails: &str) {
    let mut node = Node::open(settings(rails));
    let mut before = 0;
    for cycle in 0..16 {
        let mut victim = Puppet::start(rails);
        let peer = node.peer(&victim.address);
        if cycle % 2 == 0 {
            node.meet(peer);
        }
        let (sent, received) = (node.send(peer, 1, LARGE / 8), node.recv(Some(peer), Some(1), 8));
        for _ in 0..cycle {
            node.progress();
        }
        assert!(
            !sockets_of(&victim.address).is_empty() || rails == "RAILS=tcp",
            "the way to look for them is wrong"
        );
        victim.kill();
        assert_eq!(node.wait(sent), GONE);
        if cycle % 2 == 0 {
            assert_eq!(node.wait(received), GONE);
        }
        assert_eq!(sockets_of(&victim.address), [""; 0]);
        drop(victim);
        if cycle == 1 {
            before = descriptors();
        }
    }
    assert_eq!(descriptors(), before, "{rails}");
}

#[test]
fn no_descriptor_and_no_socket_stays_behind() {
    alone(|| RAILS.into_iter().for_each(kill_many));
}

#[test]
fn no_file_stays_behind() {
    alone_in_mounts(|| {
        let places = ["/dev/shm", "/tmp", "/var/tmp", "/run"];
        places.iter().for_each(|place| run(&format!("mount -t tmpfs none {place}")));
        let mut node = Node::open(settings(""));
        let mut victim = Puppet::start("");
        let peer = node.peer(&victim.address);
        node.meet(peer);
        victim.kill();
        node.lost(peer, &victim.address);
        drop(node);
        for place in places {
            assert_eq!(std::fs::read_dir(place).expect("mounted").count(), 0, "{place}");
        }
    });
}
