//! Values beside rails that fail: the newest comes, none behind it, and each is whole.

use crate::lanes::Vandal;
use crate::support::alone::alone_in_net;
use crate::support::net::{host_with_rails, rail};
use crate::support::node::{End, Node, pattern};
use crate::support::puppet::settings;
use polyrail_rails::worker::{Scheme, Taken};
use std::time::{Duration, Instant};

const LENS: [usize; 4] = [8, 3000, 40_000, 300_000];
const LARGE: usize = 32 << 20;

/// What is put comes back from a peer that puts what it takes. A rail is cut or mended `every` so often.
fn values_come_back_while_rails_fail(rails: &str, every: Duration) {
    let line = format!("RAILS={rails}");
    let mut puppet = host_with_rails(3);
    puppet.open(&line);
    let mut node = Node::open(settings(&line));
    let back = puppet.introduce(&mut node);
    let peer = node.peer(&puppet.address);
    node.meet(peer);
    puppet.ask_beside(&mut node, &format!("values {back} {}", LENS.len()));
    node.worker.set_scheme(peer, Scheme::Asynchronous);
    let there = puppet.number_beside(&mut node, &format!("recv {back} 9 {LARGE}"));
    let here = node.send(peer, 9, LARGE);
    assert_eq!(puppet.ask_beside(&mut node, &format!("wait {there}")), "Right");
    assert_eq!(node.wait(here), End::Right);
    node.until("all rails in use", |node| node.worker.lanes(peer).len() >= 3);
    let (mut vandal, mut gone) = (Vandal::new(3), None);
    vandal.every = every;
    let (mut iteration, mut has, mut news) = (0, [0; LENS.len()], 0);
    let mut look = |node: &mut Node| {
        for (tag, len) in (1..).zip(LENS) {
            let Taken::New { iteration, bytes, .. } = node.worker.take_value(peer, tag) else { continue };
            let before = std::mem::replace(&mut has[tag as usize - 1], iteration);
            assert!(iteration > before, "tag {tag} went back from {before} to {iteration}");
            assert!(bytes == pattern(iteration, len), "tag {tag}, iteration {iteration}");
            news += 1;
        }
        (has, news)
    };
    let (start, mut next) = (Instant::now(), Instant::now());
    while start.elapsed() < Duration::from_secs(12) {
        if start.elapsed() < Duration::from_secs(8) {
            vandal.strike();
        } else if gone.is_none() {
            // one stays away for long, and nothing tells
            vandal.rest();
            rail(0, false);
            gone = Some(iteration);
        }
        if Instant::now() >= next {
            next = Instant::now() + Duration::from_millis(1);
            iteration += 1;
            for (tag, len) in (1..).zip(LENS) {
                let put = node.worker.put_value(peer, tag, iteration, &pattern(iteration, len));
                assert_eq!(put, Ok(()), "{}", node.why(peer));
            }
        }
        node.progress();
        assert!(node.worker.is_connected(peer), "{}", node.why(peer));
        look(&mut node);
    }
    let gone = gone.expect("it went");
    node.until("what was put since a rail is away is back", |node| {
        look(node).0.iter().all(|has| *has > gone)
    });
    rail(0, true);
    node.until("the newest of each is back", |node| look(node).0 == [iteration; LENS.len()]);
    println!("{} news of {iteration}", look(&mut node).1);
    assert!(look(&mut node).1 > 200, "{} of {iteration}", look(&mut node).1);
}

#[test]
fn values_by_tcp_come_while_rails_fail() {
    alone_in_net(|| values_come_back_while_rails_fail("tcp", Duration::from_millis(170)));
}

/// A lane of UDP whose rail is cut ends at once, and is opened again within about a second: the others are there so long.
#[test]
fn values_by_udp_come_while_rails_fail() {
    alone_in_net(|| values_come_back_while_rails_fail("udp", Duration::from_millis(700)));
}
