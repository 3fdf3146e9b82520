//! What things cost, counted in system calls, and what is bounded.

use std::net::TcpStream;

use polyrail_rails::rail::{Full, LinkId, Rail};
use polyrail_rails::tcp::{Config, Stats};

use crate::mock::{Side, numbered, pair, side, sleep, sockets, until};

/// Lets this process open `wanted` descriptors; returns how many it may.
fn descriptors(wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes, then reads, one rlimit.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = wanted.clamp(limit.rlim_cur, limit.rlim_max.max(limit.rlim_cur));
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    limit.rlim_cur
}

fn ping_pong(a: &mut Side, la: LinkId, b: &mut Side, lb: LinkId, rounds: usize) -> Stats {
    let before = b.rail.stats();
    for _ in 0..rounds {
        a.send(la, numbered(1), b"8 bytes.").expect("room");
        until(a, b, "ping", |_, b| b.mock.frames.pop().is_some());
        b.send(lb, numbered(2), b"8 bytes.").expect("room");
        until(a, b, "pong", |a, _| a.mock.frames.pop().is_some());
    }
    let after = b.rail.stats();
    Stats {
        recvs: after.recvs - before.recvs,
        sends: after.sends - before.sends,
        looks: after.looks - before.looks,
        events: after.events - before.events,
    }
}

#[test]
fn idle_links_cost_nothing() {
    let (mut a, la, mut b, lb) = pair("127.0.0.1", &Config::default(), false);
    let alone = ping_pong(&mut a, la, &mut b, lb, 500);
    let idle = (descriptors(4300).saturating_sub(200) / 2).min(2000);
    assert!(idle >= 300, "too few descriptors to say anything");
    let before = b.rail.stats().events;
    let _others: Vec<TcpStream> = (0..idle)
        .map(|_| {
            let (raw, socket) = sockets("127.0.0.1");
            b.adopt(socket);
            raw
        })
        .collect();
    // New links are reported once, as writable.
    while b.progress() > 0 || b.rail.stats().events - before < idle {}
    let crowded = ping_pong(&mut a, la, &mut b, lb, 500);
    for (what, alone, crowded) in [
        ("recvs", alone.recvs, crowded.recvs),
        ("sends", alone.sends, crowded.sends),
        ("looks", alone.looks, crowded.looks),
        ("events", alone.events, crowded.events),
    ] {
        // A kernel that delivers late makes for some empty rounds; a cost per link would be a million.
        assert!(crowded <= 3 * alone + 500, "{what}: {alone} alone, {crowded} among {idle}");
    }
    assert!(alone.recvs <= 10 * 500 && alone.sends == 500, "{alone:?}");
}

#[test]
fn links_that_were_active_become_idle() {
    let mut b = side(Config::default());
    let mut peers: Vec<(Side, LinkId)> = Vec::new();
    for _ in 0..50 {
        let (raw, socket) = sockets("127.0.0.1");
        let mut a = side(Config::default());
        let la = a.adopt(raw);
        b.adopt(socket);
        a.send(la, numbered(0), b"once").expect("room");
        peers.push((a, la));
    }
    while b.mock.frames.len() < 50 {
        b.progress();
    }
    let mut rounds = |n| (0..n).fold(b.rail.stats(), |_, _| (b.progress(), b.rail.stats()).1);
    let before = rounds(3000);
    let after = rounds(1000);
    let calls = after.recvs - before.recvs + after.looks - before.looks;
    assert!(calls <= 2000, "{calls} calls in 1000 rounds for links of which none is active");
}

#[test]
fn an_idle_rail_sleeps_until_something_comes() {
    let (mut a, la, mut b, lb) = pair("127.0.0.1", &Config::default(), false);
    for n in 0..50 {
        ping_pong(&mut a, la, &mut b, lb, n % 5);
        let rounds = (0..100).take_while(|_| b.progress() > 0 || !b.rail.arm()).count();
        assert!(rounds < 20, "an idle rail takes {rounds} rounds to see that it is");
        assert!(!sleep(&b.rail, 0), "nothing is there, yet the descriptor is readable");
        a.send(la, numbered(3), b"wake up").expect("room");
        assert!(sleep(&b.rail, 10_000), "something came, and nobody woke");
        until(&mut a, &mut b, "a frame", |_, b| b.mock.frames.pop().is_some());
    }
}

#[test]
fn small_frames_of_a_round_share_calls() {
    [false, true].into_iter().for_each(share_calls);
}

fn share_calls(sealed: bool) {
    let (mut a, la, mut b, _) = pair("127.0.0.1", &Config::default(), sealed);
    a.progress();
    let before = a.rail.stats().sends;
    for n in 0..64 {
        a.send(la, numbered(n), b"8 bytes.").expect("room");
    }
    assert!(a.rail.holds_back());
    a.rail.flush(&a.mock);
    assert!(!a.rail.holds_back());
    assert_eq!(a.rail.stats().sends - before, 2, "the first at once, the others together");
    let before = b.rail.stats().recvs;
    until(&mut a, &mut b, "64 frames", |_, b| b.mock.frames.len() == 64);
    assert!(b.rail.stats().recvs - before <= 16, "frames share receives too");
    assert!(b.mock.frames.iter().enumerate().all(|(i, f)| f.1 == numbered(i as u64)));
}

#[test]
fn a_blocked_link_is_bounded_costs_nothing_and_comes_back() {
    for (span, sealed) in [(false, false), (true, false), (false, true), (true, true)] {
        let config = Config { send_buffer: Some(20_000), recv_buffer: Some(20_000), ..Config::default() };
        let (mut a, la, mut b, lb) = pair("127.0.0.1", &config, sealed);
        let mut sent = 0;
        let full = loop {
            let result = if span {
                let slot = a.mock.own(vec![sent as u8; 100_000]);
                a.send_span(la, numbered(sent), slot)
            } else {
                a.send(la, numbered(sent), &vec![sent as u8; 100_000])
            };
            a.rail.flush(&a.mock);
            match result {
                Ok(()) => sent += 1,
                Err(full) => break full,
            }
            assert!(sent < 100, "never full");
        };
        assert_eq!(full, Full);
        assert!(!a.rail.wants_more(la) && !a.rail.idle(la));
        let before = a.rail.stats();
        for _ in 0..1000 {
            a.progress();
        }
        let after = a.rail.stats();
        assert!(after.sends - before.sends <= 50, "a blocked link is tried again and again");
        assert!(after.events - before.events <= 50);
        until(&mut a, &mut b, "all", |_, b| b.mock.frames.len() as u64 == sent);
        assert!(b.mock.payloads(lb).iter().enumerate().all(|(i, p)| *p == vec![i as u8; 100_000]));
        assert!(a.rail.wants_more(la));
        assert_eq!(a.send(la, numbered(0), b""), Ok(()));
    }
}

#[test]
fn no_link_is_starved() {
    let mut b = side(Config::default());
    let mut peers: Vec<(Side, LinkId)> = Vec::new();
    let mut links = Vec::new();
    for _ in 0..12 {
        let (raw, socket) = sockets("127.0.0.1");
        let mut a = side(Config::default());
        let la = a.adopt(raw);
        links.push(b.adopt(socket));
        peers.push((a, la));
    }
    let fill = |(a, la): &mut (Side, LinkId)| {
        while a.send(*la, numbered(0), &[0; 1000]).is_ok() {}
        a.progress();
    };
    peers.iter_mut().for_each(fill);
    for round in 0..5 {
        b.mock.frames.clear();
        // Each call is bounded, and within a few calls every link gets its turn, though all have more than that.
        for _ in 0..6 {
            let before = b.mock.frames.len();
            b.progress();
            assert!(b.mock.frames.len() - before < 4 << 10, "one call takes it all");
            peers.iter_mut().for_each(fill);
        }
        for link in &links {
            assert!(!b.mock.payloads(*link).is_empty(), "{link:?} was starved in round {round}");
        }
    }
}
