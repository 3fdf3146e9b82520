//! What one of `n` hosts exchanges with the others, as a table of steps that are taken one after the other.
//!
//! Allreduce: recursive doubling, after the hosts beyond a power of two have handed theirs to a neighbour (Rabenseifner and Träff, "More
//! efficient reduction algorithms for non-power-of-two number of processors", EuroPVM/MPI 2004). Broadcast: a binomial tree.
//! Reduce: a binary tree over the hosts in order, whose inner nodes are computed where the root is, if it is below them. Barrier: dissemination
//! (Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988). What is long goes along a line of hosts, piece by piece.
//! Allgather: each passes on all that it has (Bruck and others, "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems", IEEE TPDS 1997).

use alloc::vec::Vec;

/// What becomes of what a step receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It takes the place of what is here.
    Replace,
    /// It is combined with what is here, and stands on the left.
    TheirsFirst,
    /// The same, on the right.
    OursFirst,
}

/// One exchange: what is here is sent, something is received, or both at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whom it is sent to.
    pub to: Option<usize>,
    /// Who something comes from, and what becomes of it.
    pub from: Option<(usize, Then)>,
}

impl Step {
    fn send(to: usize) -> Self {
        Self { to: Some(to), from: None }
    }

    fn receive(from: usize, then: Then) -> Self {
        Self { to: None, from: Some((from, then)) }
    }
}

/// All get what all have, combined in the order of hosts.
pub fn allreduce(n: usize, me: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    if n < 2 {
        return steps;
    }
    let power = 1 << n.ilog2();
    let folded = 2 * (n - power);
    let is_folded = me < folded;
    if is_folded && me.is_multiple_of(2) {
        return Vec::from([Step::send(me + 1), Step::receive(me + 1, Then::Replace)]);
    }
    if is_folded {
        steps.push(Step::receive(me - 1, Then::TheirsFirst));
    }
    let number = if is_folded { me / 2 } else { me - folded / 2 };
    let host = |number: usize| if number < folded / 2 { 2 * number + 1 } else { number + folded / 2 };
    let mut distance = 1;
    while distance < power {
        let other = number ^ distance;
        let then = if other < number { Then::TheirsFirst } else { Then::OursFirst };
        steps.push(Step { to: Some(host(other)), from: Some((host(other), then)) });
        distance *= 2;
    }
    if is_folded {
        steps.push(Step::send(me - 1));
    }
    steps
}

/// All get what `root` has.
pub fn broadcast(n: usize, me: usize, root: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let number = (me + n - root) % n;
    let host = |number: usize| (number + root) % n;
    let mut distance = n.next_power_of_two();
    if number > 0 {
        distance = 1 << number.trailing_zeros();
        steps.push(Step::receive(host(number - distance), Then::Replace));
    }
    while distance > 1 {
        distance /= 2;
        if number + distance < n {
            steps.push(Step::send(host(number + distance)));
        }
    }
    steps
}

/// `root` gets what all have, combined in the order of hosts, and the same way whoever is the root.
pub fn reduce(n: usize, me: usize, root: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut size = 1;
    while size < n {
        let left = me / (2 * size) * 2 * size;
        let right = left + size;
        if right < n {
            let at = |first: usize| if (first..first + size).contains(&root) { root } else { first };
            let to = if at(right) == root { root } else { at(left) };
            let (left, right) = (at(left), at(right));
            match (me == to, me == left || me == right) {
                (true, _) if me == left => steps.push(Step::receive(right, Then::OursFirst)),
                (true, _) => steps.push(Step::receive(left, Then::TheirsFirst)),
                (false, true) => {
                    steps.push(Step::send(to));
                    return steps;
                }
                (false, false) => return steps,
            }
        }
        size *= 2;
    }
    steps
}

/// What one host does with each piece of what is long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Who it comes from, or what is combined with the own, in this order.
    pub from: Vec<(usize, Then)>,
    /// Whom it goes to then.
    pub to: Option<usize>,
    /// Who the result comes from, at a root that does not compute it.
    pub result: Option<usize>,
}

/// All get what `root` has, one from the other.
pub fn broadcast_line(n: usize, me: usize, root: usize) -> Link {
    let number = (me + n - root) % n;
    let from = if number > 0 { Vec::from([((me + n - 1) % n, Then::Replace)]) } else { Vec::new() };
    Link { from, to: (number + 1 < n).then_some((me + 1) % n), result: None }
}

/// `root` gets what all have, combined in the order of hosts, from the last to the first, and the same way whoever is the root.
pub fn reduce_line(n: usize, me: usize, root: usize) -> Link {
    let behind = (me + 1 < n).then_some((me + 1, Then::OursFirst));
    let mut link = Link { from: behind.into_iter().collect(), to: me.checked_sub(1), result: None };
    match (me, root) {
        // the second host can take what the first has as well as the other way round
        (0, 1) => link = Link { from: Vec::new(), to: Some(1), result: None },
        (1, 1) => {
            link.from.push((0, Then::TheirsFirst));
            link.to = None;
        }
        (0, 1..) => link.to = Some(root),
        _ if me == root && me > 0 => link.result = Some(0),
        _ => {}
    }
    link
}

/// A step in which blocks of hosts are passed on. Each has its own at first, and puts what it gets behind that: they stand in the order of
/// hosts, from itself on, counted round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// Whom the first blocks go to.
    pub to: usize,
    /// Who as many come from.
    pub from: usize,
    /// How many.
    pub count: usize,
}

/// All get the blocks of all.
pub fn allgather(n: usize, me: usize) -> Vec<Passing> {
    let mut steps = Vec::new();
    let mut have = 1;
    while have < n {
        let count = have.min(n - have);
        steps.push(Passing { to: (me + n - have) % n, from: (me + have) % n, count });
        have += count;
    }
    steps
}

/// Nobody goes on before all have come. Nothing but the messages themselves says anything: what they hold is for nobody.
pub fn barrier(n: usize, me: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut distance = 1;
    while distance < n {
        let (to, from) = ((me + distance) % n, (me + n - distance) % n);
        steps.push(Step { to: Some(to), from: Some((from, Then::Replace)) });
        distance *= 2;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec;

    const MOST: usize = 64;

    /// Runs the tables in an order that a seed chooses; a step sends before it waits. What is combined is the list of those who took part.
    fn run(tables: &[Vec<Step>], mut have: Vec<Vec<usize>>, seed: u64) -> Vec<Vec<usize>> {
        let n = tables.len();
        let mut lanes = vec![vec![VecDeque::new(); n]; n];
        let mut at = vec![(0, false); n];
        let mut random = seed | 1;
        while (0..n).any(|host| at[host].0 < tables[host].len()) {
            let mut moved = false;
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            for host in (0..n).map(|host| (host + (random >> 33) as usize) % n) {
                let (step, sent) = at[host];
                let Some(what) = tables[host].get(step) else { continue };
                if let (Some(to), false) = (what.to, sent) {
                    let mine = have[host].clone();
                    lanes[host][to].push_back(mine);
                    moved = true;
                }
                at[host].1 = true;
                if let Some((from, then)) = what.from {
                    let Some(mut theirs) = lanes[from][host].pop_front() else { continue };
                    match then {
                        Then::Replace => have[host] = theirs,
                        Then::OursFirst => have[host].append(&mut theirs),
                        Then::TheirsFirst => {
                            theirs.append(&mut have[host]);
                            have[host] = theirs;
                        }
                    }
                }
                (at[host], moved) = ((step + 1, false), true);
            }
            assert!(moved, "nobody goes on");
        }
        assert!(lanes.iter().flatten().all(VecDeque::is_empty), "something was sent that nobody received");
        have
    }

    fn own(n: usize) -> Vec<Vec<usize>> {
        (0..n).map(|host| vec![host]).collect()
    }

    #[test]
    fn an_allreduce_combines_all_in_order_everywhere() {
        for n in 1..=MOST {
            let tables: Vec<_> = (0..n).map(|me| allreduce(n, me)).collect();
            let all: Vec<_> = (0..n).collect();
            for seed in 0..4 {
                assert!(run(&tables, own(n), seed).iter().all(|has| *has == all), "{n} hosts");
            }
            let steps = tables.iter().map(Vec::len).max().unwrap();
            let most = if n.is_power_of_two() { n.ilog2() } else { n.ilog2() + 2 };
            assert!(steps <= most as usize, "{steps} steps of {n} hosts");
        }
    }

    #[test]
    fn a_broadcast_reaches_all() {
        for n in 1..=MOST {
            for root in 0..n {
                let tables: Vec<_> = (0..n).map(|me| broadcast(n, me, root)).collect();
                assert!(
                    run(&tables, own(n), root as u64).iter().all(|has| *has == [root]),
                    "{n} hosts from {root}"
                );
                assert!(tables.iter().all(|table| table.len() <= n.next_power_of_two().ilog2() as usize));
            }
        }
    }

    /// A combination as it was made: its text says what stood on which side.
    fn shape(n: usize, root: usize) -> alloc::string::String {
        use alloc::{format, string::ToString};
        let mut have: Vec<_> = (0..n).map(|host| host.to_string()).collect();
        let tables: Vec<_> = (0..n).map(|me| reduce(n, me, root)).collect();
        let mut at = vec![0; n];
        let mut sent: Vec<Option<alloc::string::String>> = vec![None; n];
        for _ in 0..n * n {
            for host in 0..n {
                match tables[host].get(at[host]) {
                    Some(Step { to: Some(_), .. }) => sent[host] = Some(have[host].clone()),
                    Some(Step { from: Some((from, then)), .. }) => {
                        let Some(theirs) = sent[*from].clone() else { continue };
                        let (left, right) = if *then == Then::OursFirst {
                            (&have[host], &theirs)
                        } else {
                            (&theirs, &have[host])
                        };
                        have[host] = format!("({left} {right})");
                    }
                    _ => continue,
                }
                at[host] += 1;
            }
        }
        assert!((0..n).all(|host| at[host] == tables[host].len()));
        have[root].clone()
    }

    #[test]
    fn a_reduction_combines_in_the_same_way_for_every_root() {
        for n in 1..=MOST {
            for root in 0..n {
                let tables: Vec<_> = (0..n).map(|me| reduce(n, me, root)).collect();
                assert_eq!(run(&tables, own(n), root as u64)[root], (0..n).collect::<Vec<_>>());
                assert!(n > 12 || shape(n, root) == shape(n, 0), "{n} hosts to {root}: {}", shape(n, root));
            }
        }
        assert_eq!(shape(5, 3), "(((0 1) (2 3)) 4)");
    }

    /// A link as steps for one piece: what comes is combined, then passed on; then the result comes.
    fn steps(link: Link) -> Vec<Step> {
        let mut steps: Vec<Step> = link.from.iter().map(|(from, then)| Step::receive(*from, *then)).collect();
        steps.extend(link.to.map(Step::send));
        steps.extend(link.result.map(|from| Step::receive(from, Then::Replace)));
        steps
    }

    #[test]
    fn lines_reach_all_and_combine_in_order() {
        for n in 1..=MOST {
            let all: Vec<_> = (0..n).collect();
            for root in 0..n {
                let links = |of: fn(usize, usize, usize) -> Link| {
                    (0..n).map(|me| steps(of(n, me, root))).collect::<Vec<_>>()
                };
                let has = run(&links(broadcast_line), own(n), root as u64);
                assert!(has.iter().all(|has| *has == [root]), "{n} hosts from {root}");
                assert_eq!(run(&links(reduce_line), own(n), root as u64)[root], all, "{n} hosts to {root}");
            }
        }
    }

    #[test]
    fn an_allgather_gives_all_blocks_to_all_in_order() {
        for n in 1..=MOST {
            let mut has: Vec<Vec<usize>> = own(n);
            let tables: Vec<_> = (0..n).map(|me| allgather(n, me)).collect();
            let rounds = tables[0].len();
            assert!(tables.iter().all(|table| table.len() == rounds));
            assert_eq!(rounds as u32, n.next_power_of_two().ilog2());
            (0..rounds).for_each(|round| {
                let before = has.clone();
                for (me, table) in tables.iter().enumerate() {
                    let Passing { from, count, .. } = table[round];
                    let theirs = tables[from][round];
                    assert_eq!((theirs.to, theirs.count), (me, count));
                    has[me].extend(&before[from][..count]);
                }
            });
            for (me, has) in has.iter().enumerate() {
                assert_eq!(*has, (0..n).map(|step| (me + step) % n).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn nobody_leaves_a_barrier_before_all_have_come() {
        for n in 2..=MOST {
            let tables: Vec<_> = (0..n).map(|me| barrier(n, me)).collect();
            // of whose coming each knows: a message tells what its sender knew before that step
            let mut heard: Vec<u64> = (0..n).map(|host| 1 << host).collect();
            let mut steps: Vec<_> = tables.iter().map(|table| table.iter()).collect();
            while let Some(now) = steps.iter_mut().map(Iterator::next).collect::<Option<Vec<_>>>() {
                let before = heard.clone();
                for (host, step) in now.iter().enumerate() {
                    let (from, _) = step.from.expect("each step receives");
                    assert_eq!(now[from].to, Some(host));
                    heard[host] |= before[from];
                }
            }
            assert!(heard.iter().all(|bits| bits.count_ones() as usize == n), "{n} hosts");
        }
    }
}
