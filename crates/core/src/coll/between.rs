//! What one of `n` hosts exchanges with the others, as a table of steps that are taken one after the other.
//!
//! Allreduce: recursive doubling, after the hosts beyond a power of two have handed theirs to a neighbour (Rabenseifner and Träff, "More
//! efficient reduction algorithms for non-power-of-two number of processors", EuroPVM/MPI 2004). Broadcast: a binomial tree.
//! Reduce: a binary tree over the hosts in order, whose inner nodes are computed where the root is, if it is below them. Barrier: dissemination
//! (Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988). What is long goes along a line of hosts, piece by piece.
//! Scan: what each has goes twice as far in each step.
//! Allgather: each passes on all that it has (Bruck and others, "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems", IEEE TPDS 1997).

use alloc::vec::Vec;
use core::ops::Range;

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

/// Hosts that stand beside each other, and what they have, combined. None: nothing, of which nobody wants more than that it comes.
pub type Node = Range<usize>;

/// In which order what hosts have is combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// That of [`allreduce`].
    Doubled,
    /// That of [`reduce`].
    Tree,
}

impl Order {
    /// Where a node's second half begins; none of a single host.
    fn middle(self, n: usize, node: &Node) -> Option<usize> {
        let length = node.len();
        if length < 2 {
            return None;
        }
        let folded = 2 * (n - (1 << n.ilog2()));
        if self == Self::Tree || length == 2 && node.end <= folded {
            return Some(node.start + length.next_power_of_two() / 2);
        }
        let number = |host: usize| if host < folded { host / 2 } else { host - folded / 2 };
        let middle = usize::midpoint(number(node.start), number(node.end));
        Some(if middle < folded / 2 { 2 * middle } else { middle + folded / 2 })
    }

    pub(super) fn halves(self, n: usize, node: &Node) -> Option<[Node; 2]> {
        let middle = self.middle(n, node)?;
        Some([node.start..middle, middle..node.end])
    }

    /// What is combined of a node, one after the other, where those that are had already are not.
    pub(super) fn pairs(
        self,
        n: usize,
        node: &Node,
        is_had: &dyn Fn(&Node) -> bool,
        pairs: &mut Vec<[Node; 2]>,
    ) {
        if is_had(node) {
            return;
        }
        if let Some([first, second]) = self.halves(n, node) {
            self.pairs(n, &first, is_had, pairs);
            self.pairs(n, &second, is_had, pairs);
            pairs.push([first, second]);
        }
    }

    /// What is combined of what `n` hosts have, one after the other: the first of two with the second.
    pub fn of_all(self, n: usize) -> Vec<[Node; 2]> {
        let mut pairs = Vec::new();
        self.pairs(n, &(0..n), &|_| false, &mut pairs);
        pairs
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

/// Who each piece of what is long comes from, and whom it goes to then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// None where it begins.
    pub from: Option<usize>,
    /// In this order.
    pub to: Vec<usize>,
}

/// What one host does with each piece of what is long and is combined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// What is combined, in the order of hosts, from the last to the first: its own, by its own number, and what comes from others.
    pub of: Vec<usize>,
    /// Whom it goes to then.
    pub to: Option<usize>,
    /// Who the result comes from, at a root that does not compute it.
    pub result: Option<usize>,
}

/// All get what `root` has, one from the other.
pub fn broadcast_line(n: usize, me: usize, root: usize) -> Passage {
    let number = (me + n - root) % n;
    Passage {
        from: (number > 0).then_some((me + n - 1) % n),
        to: (number + 1 < n).then_some((me + 1) % n).into_iter().collect(),
    }
}

/// `root` gets what all have, combined in the order of hosts, from the last to the first, and the same way whoever is the root.
pub fn reduce_line(n: usize, me: usize, root: usize) -> Link {
    line_through((0..n).collect(), n, me, root)
}

/// The same where the line goes through some of the hosts only, the root among them: others give what they have to the one before them, or to the first.
pub(super) fn line_through(mut line: Vec<usize>, n: usize, me: usize, root: usize) -> Link {
    // the second can take what the first has as well as the other way round
    if line.get(1) == Some(&root) {
        line.remove(0);
    }
    let first = line[0];
    let Some(place) = line.iter().position(|host| *host == me) else {
        let before = line.iter().rev().find(|host| **host < me);
        return Link { of: Vec::from([me]), to: before.or(Some(&first)).copied(), result: None };
    };
    let begin = if place == 0 { 0 } else { me };
    // what those behind have is in what comes from the next
    let end = line.get(place + 1).map_or(n, |next| next + 1);
    let to = match place.checked_sub(1) {
        Some(before) => Some(line[before]),
        None => (first != root).then_some(root),
    };
    Link { of: (begin..end).collect(), to, result: (me == root && me != first).then_some(first) }
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

/// Each gets what those before it have, combined in the order of hosts: what comes stands before what it has, and before what it has got (Hillis and Steele,
/// "Data parallel algorithms", CACM 29(12), 1986).
pub fn scan(n: usize, me: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut distance = 1;
    while distance < n {
        let from = me.checked_sub(distance).map(|from| (from, Then::TheirsFirst));
        steps.push(Step { to: Some(me + distance).filter(|to| *to < n), from });
        distance *= 2;
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
pub(super) mod tests {
    use super::*;
    use crate::sim::Rng;
    use alloc::collections::VecDeque;
    use alloc::string::{String, ToString};
    use alloc::{format, vec};

    const MOST: usize = 64;

    /// Runs the tables in an order that a seed chooses; a step sends before it waits.
    fn run<T: Clone>(
        tables: &[Vec<Step>],
        mut have: Vec<T>,
        seed: u64,
        combine: impl Fn(T, T) -> T,
    ) -> Vec<T> {
        let n = tables.len();
        let mut lanes = vec![vec![VecDeque::new(); n]; n];
        let mut at = vec![(0, false); n];
        let mut random = Rng::new(seed);
        while (0..n).any(|host| at[host].0 < tables[host].len()) {
            let mut moved = false;
            let first = random.below(n as u64) as usize;
            for host in (0..n).map(|host| (host + first) % n) {
                let (step, sent) = at[host];
                let Some(what) = tables[host].get(step) else { continue };
                if let (Some(to), false) = (what.to, sent) {
                    let mine = have[host].clone();
                    lanes[host][to].push_back(mine);
                    moved = true;
                }
                at[host].1 = true;
                if let Some((from, then)) = what.from {
                    let Some(theirs) = lanes[from][host].pop_front() else { continue };
                    let ours = have[host].clone();
                    have[host] = match then {
                        Then::Replace => theirs,
                        Then::OursFirst => combine(ours, theirs),
                        Then::TheirsFirst => combine(theirs, ours),
                    };
                }
                (at[host], moved) = ((step + 1, false), true);
            }
            assert!(moved, "nobody goes on");
        }
        assert!(lanes.iter().flatten().all(VecDeque::is_empty), "something was sent that nobody received");
        have
    }

    /// The same with the list of those who took part.
    fn listed(tables: &[Vec<Step>], seed: u64) -> Vec<Vec<usize>> {
        run(tables, own(tables.len()), seed, |first, second| [first, second].concat())
    }

    fn own(n: usize) -> Vec<Vec<usize>> {
        (0..n).map(|host| vec![host]).collect()
    }

    /// The same with the text of how it was combined: it says what stood on which side.
    pub fn told(tables: &[Vec<Step>], seed: u64) -> Vec<String> {
        let own = (0..tables.len()).map(|host| host.to_string()).collect();
        run(tables, own, seed, |first, second| format!("({first} {second})"))
    }

    #[test]
    fn an_allreduce_combines_all_in_order_everywhere() {
        for n in 1..=MOST {
            let tables: Vec<_> = (0..n).map(|me| allreduce(n, me)).collect();
            let all: Vec<_> = (0..n).collect();
            for seed in 0..4 {
                assert!(listed(&tables, seed).iter().all(|has| *has == all), "{n} hosts");
            }
            let steps = tables.iter().map(Vec::len).max().unwrap();
            let most = if n.is_power_of_two() { n.ilog2() } else { n.ilog2() + 2 };
            assert!(steps <= most as usize, "{steps} steps of {n} hosts");
        }
    }

    #[test]
    fn an_order_is_that_of_its_table() {
        for n in 1..=MOST {
            let tables = |of: fn(usize, usize) -> Vec<Step>| (0..n).map(|me| of(n, me)).collect::<Vec<_>>();
            for (order, table) in
                [(Order::Doubled, tables(allreduce)), (Order::Tree, tables(|n, me| reduce(n, me, 0)))]
            {
                let mut has: Vec<(Node, String)> =
                    (0..n).map(|host| (host..host + 1, host.to_string())).collect();
                for [first, second] in order.of_all(n) {
                    let mut take = |node: Node| {
                        let at = has.iter().position(|(one, _)| *one == node).unwrap();
                        has.swap_remove(at).1
                    };
                    let whole = format!("({} {})", take(first.clone()), take(second.clone()));
                    has.push((first.start..second.end, whole));
                }
                assert_eq!(has, [(0..n, told(&table, 1).swap_remove(0))]);
            }
        }
        assert_eq!(Order::Doubled.of_all(3), [[0..1, 1..2], [0..2, 2..3]]);
    }

    #[test]
    fn a_broadcast_reaches_all() {
        for n in 1..=MOST {
            for root in 0..n {
                let tables: Vec<_> = (0..n).map(|me| broadcast(n, me, root)).collect();
                assert!(
                    listed(&tables, root as u64).iter().all(|has| *has == [root]),
                    "{n} hosts from {root}"
                );
                assert!(tables.iter().all(|table| table.len() <= n.next_power_of_two().ilog2() as usize));
            }
        }
    }

    fn shape(n: usize, root: usize) -> String {
        let tables: Vec<_> = (0..n).map(|me| reduce(n, me, root)).collect();
        told(&tables, root as u64).swap_remove(root)
    }

    #[test]
    fn a_reduction_combines_in_the_same_way_for_every_root() {
        for n in 1..=MOST {
            for root in 0..n {
                let tables: Vec<_> = (0..n).map(|me| reduce(n, me, root)).collect();
                assert_eq!(listed(&tables, root as u64)[root], (0..n).collect::<Vec<_>>());
                assert_eq!(shape(n, root), shape(n, 0), "{n} hosts to {root}");
            }
        }
        assert_eq!(shape(5, 3), "(((0 1) (2 3)) 4)");
    }

    /// A passage as steps for one piece.
    pub fn passing(passage: Passage) -> Vec<Step> {
        let from = passage.from.map(|from| Step::receive(from, Then::Replace));
        from.into_iter().chain(passage.to.into_iter().map(Step::send)).collect()
    }

    /// Carries out links of one piece: what each has in the end, as the text of how it was combined.
    pub fn linked(links: &[Link]) -> Vec<String> {
        let n = links.len();
        let mut sent: Vec<Vec<VecDeque<String>>> = vec![vec![VecDeque::new(); n]; n];
        let mut has: Vec<Option<String>> = vec![None; n];
        let mut over = vec![false; n];
        while over.contains(&false) {
            let before = (has.clone(), over.clone());
            for (me, link) in links.iter().enumerate().filter(|(me, _)| !before.1[*me]) {
                assert!(link.of.is_sorted() && link.of.contains(&me));
                let mut others = link.of.iter().filter(|of| **of != me);
                if has[me].is_none() && others.all(|from| !sent[*from][me].is_empty()) {
                    let came = |of: &usize| match *of == me {
                        true => me.to_string(),
                        false => sent[*of][me].pop_front().unwrap(),
                    };
                    let all: Vec<String> = link.of.iter().map(came).collect();
                    let whole = all.into_iter().rev().reduce(|last, one| format!("({one} {last})")).unwrap();
                    if let Some(to) = link.to {
                        sent[me][to].push_back(whole.clone());
                    }
                    has[me] = Some(whole);
                }
                let result = link.result.map(|from| sent[from][me].pop_front());
                over[me] = has[me].is_some() && result != Some(None);
                if let Some(Some(result)) = result {
                    has[me] = Some(result);
                }
            }
            assert!(before != (has.clone(), over.clone()), "nobody goes on");
        }
        assert!(sent.iter().flatten().all(VecDeque::is_empty), "something was sent that nobody received");
        has.into_iter().flatten().collect()
    }

    /// What a line combines.
    pub fn folded(n: usize) -> String {
        (0..n).rev().map(|host| host.to_string()).reduce(|last, one| format!("({one} {last})")).unwrap()
    }

    #[test]
    fn lines_reach_all_and_combine_in_order() {
        for n in 1..=MOST {
            for root in 0..n {
                let passages: Vec<_> = (0..n).map(|me| passing(broadcast_line(n, me, root))).collect();
                let has = listed(&passages, root as u64);
                assert!(has.iter().all(|has| *has == [root]), "{n} hosts from {root}");
                let links: Vec<_> = (0..n).map(|me| reduce_line(n, me, root)).collect();
                assert_eq!(linked(&links)[root], folded(n), "{n} hosts to {root}");
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
    fn a_scan_gives_each_what_those_before_it_have() {
        for n in 1..=MOST {
            let tables: Vec<_> = (0..n).map(|me| scan(n, me)).collect();
            for seed in 0..4 {
                let has = listed(&tables, seed);
                assert!(has.iter().enumerate().all(|(me, has)| has.iter().copied().eq(0..=me)), "{n} hosts");
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
