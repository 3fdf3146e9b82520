//! Which interface of this side goes with which of the other's.
//!
//! Interfaces of one network reach each other, most likely; those of different networks may, through a router. Every interface is
//! to have a lane, on either side, and as few as possible more than one: so pairs of interfaces that have none come first, those
//! of one network before others, and those that are up before those that may come up. Whether a pair works is found out by trying.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::wire::offer::{InterfaceFlags, Net};

/// An interface of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End<'a> {
    /// Its number on its side.
    pub index: u32,
    /// What it claims, in Mb/s; 0: unknown.
    pub speed: u32,
    /// What else there is to know.
    pub flags: InterfaceFlags,
    /// Its addresses.
    pub nets: &'a [Net],
}

/// Where a lane may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// This side's interface, and its address.
    pub near: (u32, IpAddr),
    /// The other side's.
    pub far: (u32, IpAddr),
    /// Whether both are of one network.
    pub direct: bool,
    /// The lesser of both speeds, in Mb/s; 0: unknown.
    pub speed: u32,
    /// Whether one of the two was down when it was told of.
    pub down: bool,
}

/// How good a pair of addresses is; less is better. None: no connection.
fn distance(near: &Net, far: &Net) -> Option<u8> {
    let one_family = near.ip().is_ipv4() == far.ip().is_ipv4();
    let link_local = |ip: IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if !one_family || near.ip() == far.ip() || link_local(near.ip()) != link_local(far.ip()) {
        return None;
    }
    let direct = near.contains(far.ip()) && far.contains(near.ip());
    Some(match (direct, link_local(near.ip()), near.ip().is_ipv4()) {
        (true, false, true) => 0,
        (true, false, false) => 1,
        // every link has this network: it says nothing
        (_, true, _) => 4,
        (false, false, true) => 2,
        (false, false, false) => 3,
    })
}

fn speed(near: u32, far: u32) -> u32 {
    match (near, far) {
        (0, other) | (other, 0) => other,
        (a, b) => a.min(b),
    }
}

/// The pairs to try, best first, at most `most` of them: so many that every interface that may reach the other side is in one.
/// `vain` are those that were tried in vain, by both interfaces' numbers.
pub fn pairs(near: &[End<'_>], far: &[End<'_>], vain: &[(u32, u32)], most: usize) -> Vec<Pair> {
    let here = |ip: IpAddr| near.iter().any(|end| end.nets.iter().any(|net| net.ip() == ip));
    let mut all = Vec::new();
    for (i, a) in near.iter().enumerate().filter(|(_, end)| !end.flags.has(InterfaceFlags::LOOPBACK)) {
        for (j, b) in far.iter().enumerate().filter(|(_, end)| !end.flags.has(InterfaceFlags::LOOPBACK)) {
            let ways = a.nets.iter().flat_map(|x| b.nets.iter().map(move |y| (x, y)));
            let best = ways
                .filter(|(_, y)| !here(y.ip()))
                .filter_map(|(x, y)| Some((distance(x, y)?, x, y)))
                .min_by_key(|(distance, ..)| *distance);
            if let Some((distance, x, y)) = best.filter(|_| !vain.contains(&(a.index, b.index))) {
                let speed = speed(a.speed, b.speed);
                let down = [a.flags, b.flags].iter().any(|flags| flags.has(InterfaceFlags::DOWN));
                let (near, far) = ((a.index, x.ip()), (b.index, y.ip()));
                let pair = Pair { near, far, direct: distance < 2, speed, down };
                all.push((distance, pair, i, j));
            }
        }
    }
    let mut uses = (alloc::vec![0usize; near.len()], alloc::vec![0usize; far.len()]);
    let mut chosen = Vec::new();
    while chosen.len() < most {
        // an interface that has no lane yet on at least one side, nearest first, the faster first
        let next = all
            .iter()
            .enumerate()
            .filter(|(_, (.., i, j))| uses.0[*i] == 0 || uses.1[*j] == 0)
            .min_by_key(|(at, (distance, pair, i, j))| {
                (uses.0[*i] + uses.1[*j], pair.down, *distance, u32::MAX - pair.speed, *at)
            })
            .map(|(at, _)| at);
        let Some(at) = next else { break };
        let (distance, pair, i, j) = all.remove(at);
        // who has a lane in its own network needs none through a router
        let routed = distance >= 2;
        let served = |uses: usize| uses > 0;
        if routed && (served(uses.0[i]) || served(uses.1[j])) {
            continue;
        }
        uses.0[i] += 1;
        uses.1[j] += 1;
        chosen.push(pair);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<Net> {
        let net = |text: &&str| {
            let (ip, prefix) = text.split_once('/').unwrap();
            Net::new(ip.parse().unwrap(), prefix.parse().unwrap()).unwrap()
        };
        texts.iter().map(net).collect()
    }

    fn shown(near: &[&[&str]], far: &[&[&str]]) -> Vec<alloc::string::String> {
        shown_after(near, far, &[])
    }

    fn shown_after(near: &[&[&str]], far: &[&[&str]], vain: &[(u32, u32)]) -> Vec<alloc::string::String> {
        let both = [near, far].map(|side| side.iter().map(|texts| nets(texts)).collect::<Vec<_>>());
        let [near, far] = both.each_ref().map(|side| {
            let end = |(i, nets)| End { index: i as u32 + 1, speed: 0, flags: InterfaceFlags(0), nets };
            side.iter()
                .enumerate()
                .map(|(i, nets): (usize, &Vec<Net>)| end((i, &nets[..])))
                .collect::<Vec<_>>()
        });
        pairs(&near, &far, vain, 16).iter().map(|p| alloc::format!("{} {}", p.near.1, p.far.1)).collect()
    }

    #[test]
    fn interfaces_of_one_network_go_together() {
        let near: &[&[&str]] = &[&["10.0.0.1/24"], &["10.0.1.1/24"], &["10.0.2.1/24"]];
        let far: &[&[&str]] = &[&["10.0.1.2/24"], &["10.0.0.2/24"], &["10.0.2.2/24"]];
        assert_eq!(shown(near, far), ["10.0.0.1 10.0.0.2", "10.0.1.1 10.0.1.2", "10.0.2.1 10.0.2.2"]);
    }

    #[test]
    fn every_interface_gets_a_lane_where_one_side_has_more() {
        let near: &[&[&str]] = &[&["10.0.0.1/24"], &["10.0.0.2/24"]];
        assert_eq!(shown(near, &[&["10.0.0.9/24"]]), ["10.0.0.1 10.0.0.9", "10.0.0.2 10.0.0.9"]);
        let far: &[&[&str]] = &[&["10.0.0.8/24"], &["10.0.0.9/24"]];
        assert_eq!(shown(near, far), ["10.0.0.1 10.0.0.8", "10.0.0.2 10.0.0.9"], "and no more than needed");
    }

    #[test]
    fn other_pairs_are_tried_where_some_were_tried_in_vain() {
        let near: &[&[&str]] = &[&["10.0.0.1/24"], &["10.0.0.2/24"]];
        let far: &[&[&str]] = &[&["10.0.0.8/24"], &["10.0.0.9/24"]];
        let crossed = ["10.0.0.1 10.0.0.9", "10.0.0.2 10.0.0.8"];
        assert_eq!(shown_after(near, far, &[(1, 1), (2, 2)]), crossed);
        assert_eq!(
            shown_after(near, far, &[(2, 2)]),
            ["10.0.0.1 10.0.0.8", "10.0.0.1 10.0.0.9", "10.0.0.2 10.0.0.8"]
        );
        assert!(shown_after(near, far, &[(1, 1), (2, 2), (1, 2), (2, 1)]).is_empty());
    }

    #[test]
    fn what_leads_nowhere_is_left_out() {
        // both hosts have the same bridge of their own
        let near: &[&[&str]] = &[&["172.17.0.1/16"], &["10.0.0.1/24", "fd00::1/64"]];
        let far: &[&[&str]] = &[&["172.17.0.1/16"], &["10.0.0.2/24", "fd00::2/64"]];
        let ways = shown(near, far);
        assert_eq!(ways, ["10.0.0.1 10.0.0.2"]);
        assert!(shown(&[&["10.0.0.1/24"]], &[&["fd00::2/64"]]).is_empty(), "no common family");
    }

    #[test]
    fn different_networks_are_tried_through_a_router_and_link_local_last() {
        let near: &[&[&str]] = &[&["10.0.0.1/24"], &["10.1.0.1/24", "fe80::1/64"]];
        let far: &[&[&str]] = &[&["10.8.0.2/24"], &["10.9.0.2/24", "fe80::2/64"]];
        assert_eq!(shown(near, far), ["10.0.0.1 10.8.0.2", "10.1.0.1 10.9.0.2"]);
        assert_eq!(shown(&[&["fe80::1/64"]], &[&["fe80::2/64"]]), ["fe80::1 fe80::2"]);
    }
}
