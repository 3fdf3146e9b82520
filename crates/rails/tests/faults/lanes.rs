//! Several rails to one host, and rails that fail while they are used.

use crate::support::alone::{alone_in_net, run};
use crate::support::net::{host_with_rails, rail, reset, there};
use crate::support::node::{End, GONE, Node};
use crate::support::puppet::{Puppet, settings};
use polyrail_core::proto::{Delivery, PeerIdx};
use polyrail_rails::events::{Kind, Record};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const LARGE: usize = 32 << 20;
const KEY: u64 = 7;
const WORDS: u64 = 8;
const CONSTANT: u64 = 9;

/// A node and a puppet on two hosts that so many rails join; and the peers' numbers on either side.
fn met(rails: usize, more: &str) -> (Node, Puppet, PeerIdx, u64) {
    let mut puppet = host_with_rails(rails);
    let (node, peer, back) = meet(&mut puppet, more);
    (node, puppet, peer, back)
}

/// A node and a worker of this puppet's, which are new.
fn meet(puppet: &mut Puppet, more: &str) -> (Node, PeerIdx, u64) {
    let line = format!("RAILS=tcp {more}");
    puppet.open(&line);
    let mut node = Node::open(settings(&line));
    let back = puppet.introduce(&mut node);
    let peer = node.peer(&puppet.address);
    node.meet(peer);
    (node, peer, back)
}

/// The same, with all rails in use and some regions there.
fn joined(rails: usize, more: &str) -> (Node, Puppet, PeerIdx, u64) {
    let (mut node, mut puppet, peer, back) = met(rails, more);
    let there = puppet.number_beside(&mut node, &format!("recv {back} 1 {LARGE}"));
    let here = node.send(peer, 1, LARGE);
    assert_eq!(puppet.ask_beside(&mut node, &format!("wait {there}")), "Right");
    assert_eq!(node.wait(here), End::Right);
    node.until("all rails in use", |node| node.worker.lanes(peer).len() == rails);
    for (key, len) in [(KEY, LARGE), (WORDS, 4096), (CONSTANT, LARGE / 8)] {
        puppet.ask_beside(&mut node, &format!("region {key} {len}"));
    }
    (node, puppet, peer, back)
}

#[test]
fn a_long_message_takes_all_rails() {
    alone_in_net(|| {
        let (mut node, mut puppet, peer, back) = joined(4, "");
        let before: Vec<u64> = node.worker.lanes(peer).iter().map(|lane| lane.delivered).collect();
        for tag in 10..20 {
            let there = puppet.number_beside(&mut node, &format!("recv {back} {tag} {LARGE}"));
            let here = node.send(peer, tag, LARGE);
            assert_eq!(puppet.ask_beside(&mut node, &format!("wait {there}")), "Right");
            assert_eq!(node.wait(here), End::Right);
        }
        for (lane, before) in node.worker.lanes(peer).iter().zip(before) {
            assert!(lane.delivered - before > 1 << 20, "{lane:?} carried next to nothing");
        }
        // the other way: what is put, what is got
        let ops = [node.put(peer, KEY, 99, LARGE), node.get_expecting(peer, KEY, 99, LARGE)];
        assert!(ops.into_iter().all(|id| node.wait(id) == End::Right), "{}", node.why(peer));
    });
}

/// Whoever of the two opens rails, and whoever sends.
#[test]
fn many_short_messages_take_all_rails() {
    alone_in_net(|| {
        let (mut node, mut puppet, peer, back) = met(3, "");
        assert_eq!(puppet.ask_beside(&mut node, &format!("inject {back} 2000 64")), "0");
        node.until("all rails in use", |node| node.worker.lanes(peer).len() == 3);
    });
}

/// Interfaces that are down when a program starts are used as soon as they come up.
#[test]
fn a_rail_that_was_down_at_first_is_used_later() {
    alone_in_net(|| {
        let mut puppet = host_with_rails(2);
        rail(1, false);
        puppet.open("RAILS=tcp");
        let mut node = Node::open(settings("RAILS=tcp"));
        let back = puppet.introduce(&mut node);
        let peer = node.peer(&puppet.address);
        node.meet(peer);
        assert_eq!(puppet.ask_beside(&mut node, &format!("inject {back} 2000 64")), "0");
        let later = Instant::now() + Duration::from_millis(300);
        node.until("an attempt in vain", |_| Instant::now() > later);
        assert_eq!(node.worker.lanes(peer).len(), 1);
        rail(1, true);
        node.until("both rails in use", |node| node.worker.lanes(peer).len() == 2);
    });
}

/// Two cards of each host are in one network; the kernel's routes know only the first of each.
#[test]
fn two_rails_in_one_network_are_both_used() {
    alone_in_net(|| {
        let mut puppet = host_with_rails(2);
        for n in 0..2 {
            run(&format!("ip addr flush dev r{n}"));
            run(&format!("ip addr add 10.79.0.{}/24 dev r{n}", 1 + 2 * n));
            there(&puppet, &format!("ip addr flush dev r{n}"));
            there(&puppet, &format!("ip addr add 10.79.0.{}/24 dev r{n}", 2 + 2 * n));
        }
        puppet.open("RAILS=tcp");
        let mut node = Node::open(settings("RAILS=tcp"));
        let back = puppet.introduce(&mut node);
        let peer = node.peer(&puppet.address);
        node.meet(peer);
        let both = |node: &mut Node| node.worker.lanes(peer).len() == 2;
        assert_eq!(puppet.ask_beside(&mut node, &format!("inject {back} 2000 64")), "0");
        node.until("both rails in use", both);
        let carried = |n: usize| {
            let text = std::fs::read_to_string("/proc/net/dev").expect("the interfaces' counters");
            let line = text.lines().find(|line| line.trim_start().starts_with(&format!("r{n}:")));
            let mut fields = line.expect("the interface").split_whitespace().map(str::to_owned);
            fields.nth(9).and_then(|bytes| bytes.parse::<u64>().ok()).expect("bytes sent")
        };
        let before = [carried(0), carried(1)];
        let there = puppet.number_beside(&mut node, &format!("recv {back} 1 {LARGE}"));
        let here = node.send(peer, 1, LARGE);
        assert_eq!(puppet.ask_beside(&mut node, &format!("wait {there}")), "Right");
        assert_eq!(node.wait(here), End::Right);
        for (n, before) in before.into_iter().enumerate() {
            assert!(carried(n) - before > 1 << 20, "r{n} carried next to nothing");
        }
        assert!(both(&mut node));
    });
}

/// Cuts, mends and resets one rail after the other, never all at once.
pub struct Vandal {
    rails: usize,
    /// How long it rests.
    pub every: Duration,
    down: Option<usize>,
    next: Instant,
    turn: usize,
}

impl Vandal {
    pub fn new(rails: usize) -> Self {
        let every = Duration::from_millis(170);
        Self { rails, every, down: None, next: Instant::now(), turn: 0 }
    }

    /// All rails are up again.
    pub fn rest(&mut self) {
        if let Some(n) = self.down.take() {
            rail(n, true);
        }
    }

    pub fn strike(&mut self) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + self.every;
        self.turn += 1;
        if let Some(n) = self.down.take() {
            return rail(n, true);
        }
        let n = self.turn % self.rails;
        if self.turn.is_multiple_of(3) {
            reset(n);
        } else {
            rail(n, false);
            self.down = Some(n);
        }
    }
}

#[test]
fn rails_that_fail_in_turn_lose_nothing_and_repeat_nothing() {
    alone_in_net(|| rails_fail_in_turn(""));
}

/// With these settings on both sides.
pub fn rails_fail_in_turn(more: &str) {
    let (mut node, mut puppet, peer, _) = joined(3, more);
    puppet.ask_beside(&mut node, "echo");
    let mut vandal = Vandal::new(3);
    let (mut adds, mut last, mut waiting) = (0u64, None, VecDeque::new());
    let (mut tag, mut put, mut echoed) = (100, 0, 0);
    let mut answers: VecDeque<u64> = (0..64).map(|_| node.recv(Some(peer), None, 4096)).collect();
    let end = Instant::now() + Duration::from_secs(12);
    while Instant::now() < end || !waiting.is_empty() {
        if Instant::now() < end {
            vandal.strike();
        }
        while Instant::now() < end && waiting.len() < 48 {
            // messages of all protocols, puts, gets, and additions that must each happen once and in order
            let len = [0, 8, 1000, 20_000, 60_000, 300_000, 1 << 20][tag as usize % 7];
            waiting.push_back((node.send(peer, tag, len), false));
            waiting.push_back((node.add(peer, WORDS), true));
            if tag.is_multiple_of(16) {
                let ids = [node.put(peer, KEY, tag, LARGE / 8), node.get(peer, CONSTANT, LARGE / 8)];
                waiting.extend(ids.map(|id| (id, false)));
                put = tag;
            }
            tag += 1;
        }
        node.progress();
        while let Some(&(id, is_add)) = waiting.front()
            && let Some(ended) = node.end(id)
        {
            assert_eq!(ended, End::Right, "{}", node.why(peer));
            if is_add {
                let word = node.word(id);
                assert!(last.is_none_or(|last: u64| word == last.wrapping_add(1)), "{last:?}, then {word}");
                last = Some(word);
                adds += 1;
            }
            node.wait(id);
            waiting.pop_front();
        }
        while let Some(&id) = answers.front()
            && let Some(ended) = node.end(id)
        {
            assert_eq!(ended, End::Right);
            node.wait(id);
            answers.pop_front();
            answers.push_back(node.recv(Some(peer), None, 4096));
            echoed += 1;
        }
    }
    vandal.rest();
    assert!(adds > 100 && vandal.turn > 20, "{adds} additions, {} strokes", vandal.turn);
    assert!(echoed > 0);
    let last = node.get_expecting(peer, KEY, put, LARGE / 8);
    assert_eq!(node.wait(last), End::Right, "puts took effect in order");
    node.until("all rails in use again", |node| node.worker.lanes(peer).len() == 3);
}

/// Short messages leave by one rail while others that were lost on another are still to be sent again: the receiver must not
/// have to hold back more than it can.
#[test]
fn a_flood_of_short_messages_keeps_its_order_while_rails_fail() {
    alone_in_net(|| flood_while_rails_fail(""));
}

/// With these settings on both sides.
pub fn flood_while_rails_fail(more: &str) {
    let (mut node, mut puppet, peer, _) = joined(3, more);
    let mut vandal = Vandal::new(3);
    // the first is the one by which they met
    puppet.ask_beside(&mut node, &format!("drain {}", u64::MAX));
    let mut sent = 1;
    while sent < 100_000 || vandal.turn < 8 {
        assert!(node.inject(peer, sent, 8), "{}", node.why(peer));
        sent += 1;
        if sent.is_multiple_of(64) {
            vandal.strike();
        }
    }
    let all = sent.to_string();
    node.until("all have come", |node| puppet.ask_beside(node, "drained") == all);
    vandal.rest();
}

#[test]
fn without_any_rail_what_waits_ends_with_an_error_that_names_the_peer() {
    alone_in_net(|| {
        let (mut node, mut puppet, peer, back) = joined(2, "PEER_TIMEOUT=2");
        let there = puppet.number_beside(&mut node, &format!("recv {back} 5 {LARGE}"));
        let ids = [node.recv(Some(peer), Some(1), 8), node.send(peer, 5, LARGE), node.get(peer, KEY, LARGE)];
        for n in 0..2 {
            rail(n, false);
        }
        for id in ids {
            assert_eq!(node.wait(id), GONE);
        }
        let why = node.lost(peer, &puppet.address);
        assert!(why.contains("rail") || why.contains("lost"), "{why}");
        assert_eq!(puppet.ask_beside(&mut node, &format!("wait {there}")), format!("{GONE:?}"));
    });
}

#[test]
fn a_killed_process_is_noticed_on_all_its_rails() {
    alone_in_net(|| {
        let (mut node, mut puppet, peer, _) = joined(4, "");
        let waits = node.recv(Some(peer), Some(1), 8);
        puppet.kill();
        assert_eq!(node.wait(waits), GONE);
        node.lost(peer, &puppet.address.clone());
    });
}

/// The only connection there is is reset, and a fresh one takes its place: all that was lost comes again by it, however much.
#[test]
fn a_flood_of_short_messages_goes_on_by_the_only_rail() {
    alone_in_net(|| {
        let (mut node, mut puppet, peer, _) = joined(1, "");
        let count = 40_000;
        puppet.ask_beside(&mut node, &format!("drain {count}"));
        rail(0, false);
        for tag in 1..count {
            assert!(node.inject(peer, tag, 8), "{}", node.why(peer));
            if tag == count / 2 {
                rail(0, true);
                if !reset(0) {
                    return polyrail_testing::lacking("a kernel that resets connections");
                }
            }
        }
        node.until("all have come", |node| puppet.ask_beside(node, "drained") == "all");
    });
}

/// The first lane ends by itself, whatever is on its way by it: what it had not delivered travels by the other.
#[test]
fn a_lane_that_ends_under_traffic_loses_nothing() {
    alone_in_net(|| {
        let mut puppet = host_with_rails(2);
        for seed in 1..4 {
            let (mut node, peer, back) = meet(&mut puppet, &format!("FAULTS={seed}:lane"));
            // it ends after so many frames; how many these messages are is up to the session
            let ended = (0..20).any(|_| {
                let (mut here, mut there) = (Vec::new(), Vec::new());
                for tag in 10..130 {
                    let len = [8, 5000, 100_000, 500_000][tag as usize % 4];
                    here.push(node.recv(Some(peer), Some(tag), len));
                    there.push(puppet.number_beside(&mut node, &format!("recv {back} {tag} {len}")));
                    here.push(node.send(peer, tag, len));
                    there.push(puppet.number_beside(&mut node, &format!("send {back} {tag} {len}")));
                }
                assert!(here.into_iter().all(|id| node.wait(id) == End::Right), "{}", node.why(peer));
                for id in there {
                    assert_eq!(puppet.ask_beside(&mut node, &format!("wait {id}")), "Right");
                }
                let lanes = node.worker.lanes(peer);
                !lanes.is_empty() && lanes.iter().all(|lane| lane.number > 0)
            });
            assert!(ended, "the first lane did not end");
        }
    });
}

/// A rail is cut under long puts: what comes before its turn meanwhile is no more than the other side keeps.
#[test]
fn long_puts_go_on_when_a_rail_is_cut() {
    alone_in_net(|| {
        let (mut node, _puppet, peer, _) = joined(4, "");
        for round in 0..6 {
            let mut puts: VecDeque<u64> = (0..24).map(|n| node.put(peer, KEY, n, LARGE)).collect();
            let cut = Instant::now() + Duration::from_millis(100);
            while Instant::now() < cut {
                node.progress();
            }
            rail(round % 4, false);
            while let Some(id) = puts.pop_front() {
                assert_eq!(node.wait(id), End::Right, "round {round}: {}", node.why(peer));
            }
            rail(round % 4, true);
            node.until("all rails in use again", |node| node.worker.lanes(peer).len() == 4);
        }
    });
}

/// Two of three rails are cut at once while both sides send: either side may tell of the one by the other.
#[test]
fn two_rails_that_are_cut_at_once_are_given_up_on_both_sides() {
    alone_in_net(|| {
        let (mut node, mut puppet, peer, _) = joined(3, "");
        puppet.ask_beside(&mut node, "echo");
        let mut answers: VecDeque<u64> = (0..64).map(|_| node.recv(Some(peer), None, 4096)).collect();
        let mut tag = 100;
        for round in 0..8 {
            let (cut, end) =
                (Instant::now() + Duration::from_millis(50), Instant::now() + Duration::from_millis(150));
            let mut whole = true;
            let mut waiting = VecDeque::new();
            while Instant::now() < end || !waiting.is_empty() {
                if whole && Instant::now() > cut {
                    (1..3).for_each(|n| rail((round + n) % 3, false));
                    whole = false;
                }
                while Instant::now() < end && waiting.len() < 32 {
                    waiting.push_back(node.send(peer, tag, [8, 20_000, 300_000, 1 << 20][tag as usize % 4]));
                    tag += 1;
                    waiting.push_back(node.get(peer, CONSTANT, LARGE / 8));
                }
                node.progress();
                while let Some(&id) = waiting.front()
                    && let Some(ended) = node.end(id)
                {
                    assert_eq!(ended, End::Right, "round {round}: {}", node.why(peer));
                    node.wait(id);
                    waiting.pop_front();
                }
                while let Some(&id) = answers.front()
                    && let Some(ended) = node.end(id)
                {
                    assert_eq!(ended, End::Right);
                    node.wait(id);
                    answers.pop_front();
                    answers.push_back(node.recv(Some(peer), None, 4096));
                }
                assert!(
                    end.elapsed() < Duration::from_secs(20),
                    "round {round}: {:?}",
                    node.worker.lanes(peer)
                );
            }
            (1..3).for_each(|n| rail((round + n) % 3, true));
            node.until("all rails in use again", |node| node.worker.lanes(peer).len() == 3);
        }
    });
}

/// Who sleeps after each message hears in time that its rail was cut.
#[test]
fn a_rail_that_is_cut_is_given_up_by_who_sleeps() {
    alone_in_net(|| {
        let (mut node, mut puppet, peer, _) = joined(2, "");
        puppet.ask_beside(&mut node, "echo");
        // the first is the answer to what they met by
        node.converse(peer);
        let mut back = node.recv(Some(peer), None, 1 << 20);
        node.wait(back);
        back = node.recv(Some(peer), None, 1 << 20);
        let mut tell = |node: &mut Node, tag| {
            let there = node.send(peer, tag, 64);
            let ends = (node.wait(there), sleep_until(node, back));
            back = node.recv(Some(peer), None, 1 << 20);
            ends
        };
        for n in 0..2 {
            let lanes = node.worker.lanes(peer);
            let used =
                lanes.iter().find(|lane| lane.current).and_then(|lane| lane.near).expect("one is in use");
            let IpAddr::V4(ip) = used.ip().to_canonical() else { panic!("{used}") };
            let used = usize::from(ip.octets()[2]);
            rail(used, false);
            let (end, took) = tell(&mut node, 51 + n);
            assert_eq!(end, End::Right);
            assert!(took < Duration::from_secs(2), "{took:?}");
            rail(used, true);
            node.until("all rails in use again", |node| node.worker.lanes(peer).len() == 2);
        }
    });
}

/// Sleeps until an operation has ended, as a program does that waits for the descriptor alone; how long it took.
fn sleep_until(node: &mut Node, id: u64) -> Duration {
    let start = Instant::now();
    while node.end(id).is_none() && start.elapsed() < Duration::from_secs(30) {
        node.progress();
        if node.end(id).is_none() && node.worker.arm() {
            let mut poll = libc::pollfd { fd: node.worker.wait_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry.
            unsafe { libc::poll(&mut poll, 1, 10_000) };
        }
    }
    assert_eq!(node.end(id), Some(End::Right));
    start.elapsed()
}

/// Who computes takes nothing for a while: that is no fault of the rails.
#[test]
fn rails_to_a_program_that_computes_are_not_given_up() {
    alone_in_net(|| {
        let (mut node, puppet, peer, _) = joined(2, "");
        for _ in 0..5 {
            puppet.stop();
            let puts: Vec<u64> = (0..8).map(|n| node.put(peer, KEY, n, LARGE)).collect();
            let end = Instant::now() + Duration::from_millis(1500);
            while Instant::now() < end {
                node.progress();
            }
            puppet.signal(libc::SIGCONT);
            for id in puts {
                assert_eq!(node.wait(id), End::Right, "{}", node.why(peer));
            }
        }
        // one may be taken for silent just when it is no longer taken from, or where this machine is too busy to answer itself; if
        // pauses were taken for silence, each would cost one at least. More connections that were tried and not kept are none
        let snapshot = node.worker.snapshot();
        let given_up =
            |event: &&Record| event.event == Kind::LaneDown && !event.why.starts_with("no more gets through");
        let count = snapshot.events.iter().filter(given_up).count();
        let events: Vec<String> = snapshot.events.iter().map(|event| event.line()).collect();
        assert!(count <= 3, "{count}: {}", events.join("\n"));
    });
}

/// A message that meets a goodbye on its way is not answered any more: nothing may follow a goodbye.
#[test]
fn a_peer_that_closes_says_nothing_after_its_goodbye() {
    alone_in_net(|| {
        let (mut node, mut puppet, peer, back) = joined(1, "");
        puppet.ask_beside(&mut node, &format!("recv {back} 5 8"));
        let wait = |node: &mut Node, milliseconds| {
            let end = Instant::now() + Duration::from_millis(milliseconds);
            while Instant::now() < end {
                node.progress();
            }
        };
        wait(&mut node, 50);
        // what the puppet sends is lost for a while, what it is sent is not
        there(&puppet, "ip neigh replace 10.78.0.1 lladdr 02:00:00:00:00:99 nud permanent dev r0");
        puppet.say("close");
        wait(&mut node, 50);
        node.send_until(peer, 5, 8, Delivery::Delivered);
        wait(&mut node, 50);
        there(&puppet, "ip neigh del 10.78.0.1 dev r0");
        let why = node.lost(peer, &puppet.address);
        assert!(why.contains("closed its endpoint"), "{why}");
    });
}
