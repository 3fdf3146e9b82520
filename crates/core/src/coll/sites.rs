//! What hosts of several sites exchange: nothing but a long reduction waits for more than one message between sites, and no line between two is crossed twice by the same
//! (Kielmann and others, "MagPIe: MPI's collective communication operations for clustered wide area systems", PPoPP 1999).
//!
//! One host of each site speaks for it: hosts bring it what they have, sites exchange directly, and it hands on what comes. Which hosts are of one
//! site may have been measured, and so differ from run to run: contributions are combined in the same way as without sites
//! ([`between`]), and sites only say where. Those that stand beside each other in that order and are of one site travel as one, others singly.

use alloc::vec::Vec;

use super::between::{self, Link, Node, Order, Passage, Step, Then};
use super::layout::Layout;

/// The hosts of a communicator by sites, which are numbered in the order of their first hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites(Layout);

/// What one host receives and sends at once, and then combines: the first of two with the second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// From whom, and what.
    pub receive: Vec<(usize, Node)>,
    /// To whom, and what.
    pub send: Vec<(usize, Node)>,
    /// Those that become one, in this order.
    pub combine: Vec<[Node; 2]>,
}

impl Sites {
    /// From each host's site, which may be called by any name. None where all are of one.
    pub fn new<Name: PartialEq>(sites: &[Name]) -> Option<Self> {
        let sites = Layout::new(sites);
        (sites.hosts() > 1).then_some(Self(sites))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.hosts()
    }

    fn members(&self, site: usize) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.0.members(site).iter().map(|host| *host as usize)
    }

    /// Who speaks for a site, whoever is the root: connections that are in use let more through at once.
    fn speaker(&self, site: usize) -> usize {
        self.0.members(site)[0] as usize
    }

    /// The other sites.
    fn others(&self, site: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.count()).filter(move |other| *other != site)
    }

    fn is_of(&self, site: usize, host: usize) -> bool {
        self.0.host_of(host) == site
    }

    /// The steps of a table for as many hosts as a site has, taken by its own, of which `first` is the first.
    fn within(
        &self,
        me: usize,
        first: usize,
        table: fn(usize, usize, usize) -> Vec<Step>,
    ) -> impl Iterator<Item = Step> {
        let members: Vec<usize> = self.members(self.0.host_of(me)).collect();
        let steps = table(members.len(), self.0.place_of(me), self.0.place_of(first));
        let by_host = move |step: Step| Step {
            to: step.to.map(|place| members[place]),
            from: step.from.map(|(place, then)| (members[place], then)),
        };
        steps.into_iter().map(by_host)
    }

    /// All get what `root` has.
    pub fn broadcast(&self, me: usize, root: usize) -> Vec<Step> {
        let [site, near] = [me, root].map(|host| self.0.host_of(host));
        let speaker = self.speaker(site);
        let first = if site == near { root } else { speaker };
        let mut steps: Vec<Step> = self.within(me, first, between::broadcast).collect();
        if me == speaker && site == near {
            // what goes far leaves first
            let comes = steps.iter().take_while(|step| step.from.is_some()).count();
            let far = self.others(site).map(|other| Step { to: Some(self.speaker(other)), from: None });
            steps.splice(comes..comes, far);
        } else if me == speaker {
            steps.insert(0, Step { to: None, from: Some((self.speaker(near), Then::Replace)) });
        }
        steps
    }

    /// The same of what is long, one from the other in each site. The last of the root's site pass it on to the others, each to one of them if there are
    /// enough: whoever is the root, hosts with the lowest numbers do, whose connections to other sites are in use.
    pub fn broadcast_line(&self, me: usize, root: usize) -> Passage {
        let [site, near] = [me, root].map(|host| self.0.host_of(host));
        let line = |site: usize| -> Vec<usize> {
            let first = if site == near { root } else { self.speaker(site) };
            let others = self.members(site).rev().filter(|host| *host != first);
            [first].into_iter().chain(others).collect()
        };
        let (ours, around) = (line(site), line(near));
        let feeds = |nth: usize| around[around.len() - 1 - nth % around.len()];
        let others = || self.others(near).enumerate();
        let place = ours.iter().position(|host| *host == me).unwrap_or(0);
        let from = match place.checked_sub(1) {
            Some(before) => Some(ours[before]),
            None => others().find(|(_, other)| *other == site).map(|(nth, _)| feeds(nth)),
        };
        let far = others().filter(|(nth, _)| feeds(*nth) == me);
        let far = far.map(|(_, other)| self.speaker(other));
        Passage { from, to: far.chain(ours.get(place + 1).copied()).collect() }
    }

    /// `root` gets what all have, as by [`between::reduce_line`]. The line does not go through one or two hosts of other sites that stand between
    /// hosts of the root's, or before them: it would cross twice.
    pub fn reduce_line(&self, me: usize, root: usize) -> Link {
        let (n, site) = (self.0.ranks(), self.0.host_of(root));
        let mut line = Vec::new();
        let mut next = 0;
        for host in self.members(site) {
            if host - next > 2 {
                line.extend(next..host);
            }
            line.push(host);
            next = host + 1;
        }
        line.extend(next..n);
        between::line_through(line, n, me, root)
    }

    /// Nobody goes on before all have come.
    pub fn barrier(&self, me: usize) -> Vec<Round> {
        let site = self.0.host_of(me);
        let speaker = self.speaker(site);
        let round = |step: Step| Round {
            receive: step.from.iter().map(|(from, _)| (*from, 0..0)).collect(),
            send: step.to.iter().map(|to| (*to, 0..0)).collect(),
            combine: Vec::new(),
        };
        let others = || self.others(site).map(|other| (self.speaker(other), 0..0)).collect();
        let between = Round { receive: others(), send: others(), combine: Vec::new() };
        let mut rounds: Vec<Round> = self.within(me, speaker, between::reduce).map(round).collect();
        rounds.extend((me == speaker).then_some(between));
        rounds.extend(self.within(me, speaker, between::broadcast).map(round));
        rounds
    }

    /// All get what all have, combined as by [`between::allreduce`].
    pub fn allreduce(&self, me: usize) -> Vec<Round> {
        self.combine(Order::Doubled, me, None)
    }

    /// `root` gets what all have, combined as by [`between::reduce`].
    pub fn reduce(&self, me: usize, root: usize) -> Vec<Round> {
        self.combine(Order::Tree, me, Some(root))
    }

    fn combine(&self, order: Order, me: usize, root: Option<usize>) -> Vec<Round> {
        let site = self.0.host_of(me);
        let speaker = self.speaker(site);
        let near = root.map(|root| self.0.host_of(root));
        let own = self.whole(order, site);
        let mut rounds = Vec::new();
        for node in &own {
            self.combine_here(order, node, me, &mut rounds);
        }
        if me == speaker {
            let place = |node: &Node| Self::place(node, speaker);
            let brought = own.iter().filter(|node| place(node) != me);
            let receive: Vec<_> = brought.map(|node| (place(node), node.clone())).collect();
            if !receive.is_empty() {
                rounds.push(Round { receive, ..Round::default() });
            }
            let mut between = Round::default();
            for other in self.others(site) {
                let theirs = self.speaker(other);
                if near.is_none_or(|near| other == near) {
                    between.send.extend(own.iter().map(|node| (theirs, node.clone())));
                }
                if near.is_none_or(|near| site == near) {
                    let whole = self.whole(order, other);
                    between.receive.extend(whole.into_iter().map(|node| (theirs, node)));
                }
            }
            if !between.receive.is_empty() {
                between.combine = self.pairs_between(order);
            }
            rounds.push(between);
        }
        match root {
            None => rounds.extend(self.hand_on(me, speaker)),
            Some(root) if near == Some(site) && root != speaker => {
                let all = || Vec::from([(if me == root { speaker } else { root }, 0..self.0.ranks())]);
                if me == root {
                    rounds.push(Round { receive: all(), ..Round::default() });
                } else if me == speaker {
                    rounds.push(Round { send: all(), ..Round::default() });
                }
            }
            Some(_) => {}
        }
        rounds
    }

    /// The result goes from who speaks for a site to its hosts.
    fn hand_on(&self, me: usize, speaker: usize) -> impl Iterator<Item = Round> {
        let all = 0..self.0.ranks();
        self.within(me, speaker, between::broadcast).map(move |step| Round {
            receive: step.from.iter().map(|(from, _)| (*from, all.clone())).collect(),
            send: step.to.iter().map(|to| (*to, all.clone())).collect(),
            combine: Vec::new(),
        })
    }

    /// Where what a node of a site has is combined.
    fn place(node: &Node, speaker: usize) -> usize {
        if node.contains(&speaker) { speaker } else { node.start }
    }

    /// A site's own: nodes of the tree of which all hosts are its, and which are not in another such.
    fn whole(&self, order: Order, site: usize) -> Vec<Node> {
        let mut found = Vec::new();
        let n = self.0.ranks();
        let mut left = Vec::new();
        left.push(0..n);
        while let Some(node) = left.pop() {
            if node.clone().all(|host| self.is_of(site, host)) {
                found.push(node);
            } else if let Some([first, second]) = order.halves(n, &node) {
                left.extend([second, first]);
            }
        }
        found
    }

    /// What is combined inside a site, and brought to who speaks for it.
    fn combine_here(&self, order: Order, node: &Node, me: usize, rounds: &mut Vec<Round>) {
        let speaker = self.speaker(self.0.host_of(me));
        if !node.contains(&me) {
            return;
        }
        let mut path = Vec::from([node.clone()]);
        let n = self.0.ranks();
        while let Some(halves) = path.last().and_then(|node| order.halves(n, node)) {
            path.extend(halves.into_iter().find(|half| half.contains(&me)));
        }
        for pair in path.windows(2).rev() {
            let Some([first, second]) = order.halves(n, &pair[0]) else { continue };
            let [whole, mine] = [Self::place(&pair[0], speaker), Self::place(&pair[1], speaker)];
            let other = if pair[1] == first { &second } else { &first };
            if mine != me {
                return;
            }
            if whole != me {
                rounds.push(Round { send: Vec::from([(whole, pair[1].clone())]), ..Round::default() });
                return;
            }
            let receive = Vec::from([(Self::place(other, speaker), other.clone())]);
            rounds.push(Round { receive, combine: Vec::from([[first, second]]), ..Round::default() });
        }
        if Self::place(node, speaker) == me && me != speaker {
            rounds.push(Round { send: Vec::from([(speaker, node.clone())]), ..Round::default() });
        }
    }

    fn is_of_one(&self, node: &Node) -> bool {
        let site = self.0.host_of(node.start);
        node.clone().all(|host| self.is_of(site, host))
    }

    /// What is left to combine where the nodes of all sites are.
    fn pairs_between(&self, order: Order) -> Vec<[Node; 2]> {
        let mut pairs = Vec::new();
        order.pairs(self.0.ranks(), &(0..self.0.ranks()), &|node| self.is_of_one(node), &mut pairs);
        pairs
    }

    /// Whether each host sends no more than there is to be reduced to other sites if it is combined at each site first ([`shares`](Self::shares)).
    pub fn are_worth_it(&self) -> bool {
        let sends = |site: usize| self.whole(Order::Doubled, site).len() * (self.count() - 1);
        (0..self.count()).all(|site| sends(site) <= self.members(site).count())
    }

    /// How something long is combined by [`between::allreduce`]'s order, in as many parts as there are hosts.
    pub fn shares(&self, me: usize) -> Shares {
        let (n, site) = (self.0.ranks(), self.0.host_of(me));
        let owner = |site: usize, part: usize| {
            let members = self.0.members(site);
            members[part % members.len()] as usize
        };
        let order = Order::Doubled;
        let own = self.whole(order, site);
        let mut here = Vec::new();
        for node in &own {
            order.pairs(n, node, &|_| false, &mut here);
        }
        let whole = |other| self.whole(order, other).into_iter().map(move |node| (other, node));
        let far: Vec<_> = self.others(site).flat_map(whole).collect();
        let of_part = |part: usize| Share {
            owner: owner(site, part),
            far: far.iter().map(|(other, node)| (owner(*other, part), node.clone())).collect(),
            peers: self.others(site).map(|other| owner(other, part)).collect(),
        };
        Shares {
            mates: self.members(site).filter(|host| *host != me).collect(),
            own,
            here,
            between: self.pairs_between(order),
            parts: (0..n).map(of_part).collect(),
        }
    }

    /// Who brings what to whom, for all to get what each has, which is short.
    pub fn gathering(&self, me: usize) -> Gathering {
        let site = self.0.host_of(me);
        let speaker = self.speaker(site);
        let speaks = me == speaker;
        let far = self.others(site).filter(|_| speaks);
        let steps: Vec<Step> = self.within(me, speaker, between::broadcast).collect();
        Gathering {
            to: (!speaks).then_some(speaker),
            from: self.members(site).filter(|host| speaks && *host != me).collect(),
            far: far.map(|other| (self.speaker(other), self.members(other).collect())).collect(),
            near: self.members(site).collect(),
            order: self
                .members(site)
                .chain(self.others(site).flat_map(|other| self.members(other)))
                .collect(),
            passage: Passage {
                from: steps.iter().find_map(|step| step.from.map(|(from, _)| from)),
                to: steps.iter().filter_map(|step| step.to).collect(),
            },
        }
    }

    /// The same of what is long: each host's crosses to one host of each other site, and goes round in each.
    pub fn ring(&self, me: usize) -> Ring {
        let (site, place) = (self.0.host_of(me), self.0.place_of(me));
        let members: Vec<usize> = self.members(site).collect();
        let around = members.len();
        // what comes to one of this site's hosts from others
        let lands =
            |at: usize| self.others(site).flat_map(move |other| self.members(other).skip(at).step_by(around));
        // what passes from one host to the next: what its site has, then what has come from others; all but what the next has first
        let passes = |place: usize| -> Vec<usize> {
            let behind = |step: usize| (place + around - step) % around;
            let near = (0..around - 1).map(|step| members[behind(step)]);
            near.chain((0..around - 1).flat_map(|step| lands(behind(step)))).collect()
        };
        Ring {
            next: (around > 1).then(|| members[(place + 1) % around]),
            before: (around > 1).then(|| members[(place + around - 1) % around]),
            far_to: self
                .others(site)
                .map(|other| {
                    let theirs = self.0.members(other);
                    theirs[place % theirs.len()] as usize
                })
                .collect(),
            far_from: lands(place).collect(),
            passes: passes(place),
            comes: passes((place + around - 1) % around),
        }
    }
}

/// What goes round in a site, and what comes to it: of each host, all in one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Who comes next in the ring of this site's hosts; none if there is no other.
    pub next: Option<usize>,
    /// Who before.
    pub before: Option<usize>,
    /// To whom of other sites its own goes.
    pub far_to: Vec<usize>,
    /// Whose of other sites come to it.
    pub far_from: Vec<usize>,
    /// Whose it passes on to the next, in this order: each once it has it.
    pub passes: Vec<usize>,
    /// Whose come from who is before it, in this order.
    pub comes: Vec<usize>,
}

/// Who combines a part, and with whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Who does here.
    pub owner: usize,
    /// Who does at each other site.
    pub peers: Vec<usize>,
    /// What these have of it: from whom, and which nodes.
    pub far: Vec<(usize, Node)>,
}

/// What a host does with what is long: its mates get what it has of their parts; it combines what it gets of its own, exchanges that with those who
/// have the same part at other sites, combines all, and tells its mates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The other hosts of its site.
    pub mates: Vec<usize>,
    /// What a site has of a part when that is combined.
    pub own: Vec<Node>,
    /// How.
    pub here: Vec<[Node; 2]>,
    /// How all is, then.
    pub between: Vec<[Node; 2]>,
    /// As many as there are hosts.
    pub parts: Vec<Share>,
}

/// What a host does so that all get what each has, by messages of one host's each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// Whom it brings its own, if it does not speak for its site.
    pub to: Option<usize>,
    /// Who bring theirs, if it does.
    pub from: Vec<usize>,
    /// Who speaks for other sites, and which hosts' it gets from there, for all of its own.
    pub far: Vec<(usize, Vec<usize>)>,
    /// The hosts of its site.
    pub near: Vec<usize>,
    /// All, in the order in which they are handed on in a site: its own, then as `far` has them.
    pub order: Vec<usize>,
    /// From whom it gets all then, and whom it passes that on to.
    pub passage: Passage,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll::between::tests::{folded, linked, passing, told};
    use crate::sim::Rng;
    use alloc::collections::{BTreeMap, VecDeque};
    use alloc::string::{String, ToString};
    use alloc::{format, vec};

    /// A node, or a line from one site to another.
    type Pair = (usize, usize);
    /// Something, and how often it has crossed a line between sites.
    type Crossed = (String, usize);
    /// What a host has of which nodes.
    type Has = BTreeMap<Pair, Crossed>;

    /// Runs the tables in an order that a seed chooses: what each host has of a node in the end, and how many messages crossed each line.
    fn run(sites: &Sites, tables: &[Vec<Round>], seed: u64) -> (Vec<Has>, BTreeMap<Pair, usize>) {
        let n = tables.len();
        let key = |node: &Node| (node.start, node.end);
        let mut have: Vec<Has> = (0..n)
            .map(|host| {
                BTreeMap::from([((host, host + 1), (host.to_string(), 0)), ((0, 0), (String::new(), 0))])
            })
            .collect();
        let mut lanes: Vec<Vec<VecDeque<(Node, Crossed)>>> = vec![vec![VecDeque::new(); n]; n];
        let mut lines = BTreeMap::new();
        let mut at = vec![(0, false); n];
        let mut random = Rng::new(seed);
        while (0..n).any(|host| at[host].0 < tables[host].len()) {
            let mut moved = false;
            let first = random.below(n as u64) as usize;
            for host in (0..n).map(|host| (host + first) % n) {
                let Some(round) = tables[host].get(at[host].0) else { continue };
                for (to, node) in round.send.iter().filter(|_| !at[host].1) {
                    let (what, mut crossed) = have[host][&key(node)].clone();
                    let line = [host, *to].map(|host| sites.0.host_of(host));
                    if line[0] != line[1] {
                        crossed += 1;
                        *lines.entry((line[0], line[1])).or_insert(0) += 1;
                    }
                    lanes[host][*to].push_back((node.clone(), (what, crossed)));
                }
                moved |= !at[host].1;
                at[host].1 = true;
                // all at once: as many of each as the round has
                let wants = |from: usize| round.receive.iter().filter(|(whom, _)| *whom == from).count();
                if (0..n).any(|from| lanes[from][host].len() < wants(from)) {
                    continue;
                }
                for (from, node) in &round.receive {
                    let (came, what) = lanes[*from][host].pop_front().unwrap();
                    assert_eq!(came, *node);
                    let before = have[host].get(&key(node)).map_or(0, |(_, crossed)| *crossed);
                    have[host].insert(key(node), (what.0, what.1.max(before)));
                }
                for [first, second] in &round.combine {
                    assert_eq!(first.end, second.start);
                    let [one, other] = [first, second].map(|node| have[host].remove(&key(node)).unwrap());
                    let whole = (format!("({} {})", one.0, other.0), one.1.max(other.1));
                    have[host].insert((first.start, second.end), whole);
                }
                (at[host], moved) = ((at[host].0 + 1, false), true);
            }
            assert!(moved, "nobody goes on");
        }
        assert!(lanes.iter().flatten().all(VecDeque::is_empty), "something was sent that nobody received");
        (have, lines)
    }

    /// Hosts of sites: one after the other, in turn, and as it comes.
    fn placements() -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        let mut random = Rng::new(7);
        for n in 2..=20 {
            for sites in 2..=4.min(n) {
                all.push((0..n).map(|host| host * sites / n).collect());
                all.push((0..n).map(|host| host % sites).collect());
                for _ in 0..4 {
                    all.push((0..n).map(|_| random.below(sites as u64) as usize).collect());
                }
            }
        }
        all.push((0..64).map(|host| host / 16).collect());
        all.push((0..64).map(|host| host % 3).collect());
        all
    }

    fn all_of(n: usize, table: impl Fn(usize) -> Vec<Round>) -> Vec<Vec<Round>> {
        (0..n).map(table).collect()
    }

    #[test]
    fn what_is_combined_does_not_depend_on_sites_and_crosses_once() {
        let mut tried = 0;
        for placed in placements() {
            let n = placed.len();
            let Some(sites) = Sites::new(&placed) else { continue };
            let plain: Vec<_> = (0..n).map(|me| between::allreduce(n, me)).collect();
            let expected = told(&plain, 1).swap_remove(0);
            let (have, lines) = run(&sites, &all_of(n, |me| sites.allreduce(me)), tried);
            for has in &have {
                assert_eq!(has[&(0, n)], (expected.clone(), 1), "{placed:?}");
            }
            for ((from, _), messages) in lines {
                assert_eq!(messages, sites.whole(Order::Doubled, from).len(), "{placed:?}");
            }
            for root in [0, n / 2, n - 1] {
                let plain: Vec<_> = (0..n).map(|me| between::reduce(n, me, root)).collect();
                let expected = told(&plain, 1).swap_remove(root);
                let (have, lines) = run(&sites, &all_of(n, |me| sites.reduce(me, root)), tried);
                assert_eq!(have[root][&(0, n)], (expected, 1), "{placed:?} to {root}");
                assert!(lines.keys().all(|(_, to)| *to == placed_as(&sites, root)));
            }
            tried += 1;
        }
        assert!(tried > 200);
    }

    fn placed_as(sites: &Sites, host: usize) -> usize {
        sites.0.host_of(host)
    }

    #[test]
    fn sites_in_order_send_each_other_one_contribution() {
        let sites = Sites::new(&[0, 0, 0, 0, 1, 1, 1, 1]).unwrap();
        let whole = |order, site| sites.whole(order, site).into_iter().map(|node| (node.start, node.end));
        assert!(whole(Order::Doubled, 0).eq([(0, 4)]) && whole(Order::Tree, 1).eq([(4, 8)]));
        let mixed = Sites::new(&[0, 1, 0, 1]).unwrap();
        assert_eq!(mixed.whole(Order::Tree, 1), [1..2, 3..4]);
        // of six hosts the first two pairs are combined first, of an allreduce
        let six = Sites::new(&[0, 0, 1, 1, 1, 1]).unwrap();
        assert_eq!(six.whole(Order::Doubled, 1), [2..4, 4..6]);
        assert_eq!(six.whole(Order::Tree, 1), [2..4, 4..6]);
        assert_eq!(Sites::new(&[3, 3, 3]), None);
        let is_worth_it = |sites: &[usize]| Sites::new(sites).unwrap().are_worth_it();
        assert!(is_worth_it(&[0, 0, 1, 1]) && is_worth_it(&[0, 1, 0, 1]) && is_worth_it(&[0, 0, 0, 1]));
        assert!(!is_worth_it(&[0, 1, 2]) && !is_worth_it(&[0, 0, 0, 0, 1, 2, 3]));
    }

    #[test]
    fn a_broadcast_crosses_each_line_once_at_most() {
        for placed in placements() {
            let n = placed.len();
            let Some(sites) = Sites::new(&placed) else { continue };
            for root in 0..n {
                let site = |host: usize| sites.0.host_of(host);
                let tables: Vec<_> = (0..n).map(|me| sites.broadcast(me, root)).collect();
                let lines: Vec<_> = (0..n).map(|me| passing(sites.broadcast_line(me, root))).collect();
                for tables in [&tables, &lines] {
                    let has = told(tables, root as u64);
                    assert!(has.iter().all(|has| *has == root.to_string()), "{placed:?} from {root}");
                    let crossing = |host: usize| {
                        let far = |step: &&Step| step.to.is_some_and(|to| site(to) != site(host));
                        tables[host].iter().filter(far).count()
                    };
                    let all: usize = (0..n).map(crossing).sum();
                    assert_eq!(all, sites.count() - 1, "{placed:?}");
                    let near: usize = (0..n).filter(|host| site(*host) == site(root)).map(crossing).sum();
                    assert_eq!(near, all, "from the root's site only");
                }
                // nobody of a line passes it on more than twice, where the root's site has a host for each other
                let around = sites.members(site(root)).count();
                let most = 1 + (sites.count() - 1).div_ceil(around);
                assert!((0..n).all(|me| sites.broadcast_line(me, root).to.len() <= most));
            }
        }
    }

    #[test]
    fn a_line_combines_the_same_and_crosses_as_seldom_as_it_can() {
        for placed in placements() {
            let n = placed.len();
            let Some(sites) = Sites::new(&placed) else { continue };
            for root in 0..n {
                let links: Vec<_> = (0..n).map(|me| sites.reduce_line(me, root)).collect();
                assert_eq!(linked(&links)[root], folded(n), "{placed:?} to {root}");
            }
        }
        // how often what the root gets has crossed
        let crossed = |placed: &[usize], root: usize| {
            let sites = Sites::new(placed).unwrap();
            let links: Vec<_> = (0..placed.len()).map(|me| sites.reduce_line(me, root)).collect();
            let mut most = vec![0; placed.len()];
            let far = |one: usize, other: usize| usize::from(placed[one] != placed[other]);
            for me in (0..placed.len()).rev() {
                let from = links[me].of.iter().filter(|of| **of > me);
                most[me] = from.map(|of| most[*of] + far(*of, me)).max().unwrap_or(0);
            }
            links[root].result.map_or(most[root], |from| most[from] + far(from, root))
        };
        let turn: Vec<usize> = (0..8).map(|host| host % 2).collect();
        assert!((0..8).all(|root| crossed(&turn, root) <= 1));
        assert_eq!(crossed(&[0, 0, 0, 0, 1, 1, 1, 1], 0), 1);
        assert_eq!(crossed(&[0, 0, 0, 0, 1, 1, 1, 1], 5), 1 + 1);
    }

    #[test]
    fn nobody_leaves_a_barrier_of_sites_before_all_have_come() {
        for placed in placements() {
            let n = placed.len();
            let Some(sites) = Sites::new(&placed) else { continue };
            let tables = all_of(n, |me| sites.barrier(me));
            let (have, lines) = run(&sites, &tables, 3);
            assert!(have.iter().all(|has| has[&(0, 0)].1 <= 1));
            let count = sites.count();
            assert!(lines.len() == count * (count - 1) && lines.values().all(|messages| *messages == 1));
            // of whose coming each knows, with rounds taken one after the other as what they need has come
            let mut heard: Vec<u64> = (0..n).map(|host| 1 << host).collect();
            let mut lanes = vec![vec![VecDeque::new(); n]; n];
            let mut at = vec![(0, false); n];
            while (0..n).any(|host| at[host].0 < tables[host].len()) {
                for host in 0..n {
                    let Some(round) = tables[host].get(at[host].0) else { continue };
                    for (to, _) in round.send.iter().filter(|_| !at[host].1) {
                        let mine = heard[host];
                        lanes[host][*to].push_back(mine);
                    }
                    at[host].1 = true;
                    if round.receive.iter().all(|(from, _)| !lanes[*from][host].is_empty()) {
                        for (from, _) in &round.receive {
                            heard[host] |= lanes[*from][host].pop_front().unwrap();
                        }
                        at[host] = (at[host].0 + 1, false);
                    }
                }
            }
            assert!(heard.iter().all(|bits| bits.count_ones() as usize == n), "{placed:?}");
        }
    }

    #[test]
    fn what_is_long_is_combined_in_the_same_way_and_crosses_in_parts() {
        for placed in placements() {
            let n = placed.len();
            let Some(sites) = Sites::new(&placed) else { continue };
            let plain: Vec<_> = (0..n).map(|me| between::allreduce(n, me)).collect();
            let expected = told(&plain, 1).swap_remove(0);
            let shares: Vec<_> = (0..n).map(|me| sites.shares(me)).collect();
            for part in 0..n {
                let combine = |has: &mut BTreeMap<Pair, String>, pairs: &[[Node; 2]]| {
                    for [first, second] in pairs {
                        let [one, other] =
                            [first, second].map(|node| has.remove(&(node.start, node.end)).unwrap());
                        has.insert((first.start, second.end), format!("({one} {other})"));
                    }
                };
                // what the owners have once their sites' hosts have told them
                let mut has = BTreeMap::new();
                for site in 0..sites.count() {
                    let members: Vec<_> = sites.members(site).collect();
                    let owner = shares[members[0]].parts[part].owner;
                    let mut own = BTreeMap::new();
                    for host in members {
                        assert_eq!(shares[host].parts[part].owner, owner);
                        assert!(host == owner || shares[owner].mates.contains(&host));
                        own.insert((host, host + 1), host.to_string());
                    }
                    combine(&mut own, &shares[owner].here);
                    let whole: Vec<_> = shares[owner].own.iter().map(|node| (node.start, node.end)).collect();
                    assert_eq!(own.keys().copied().collect::<Vec<_>>(), whole);
                    has.insert(owner, own);
                }
                for (owner, own) in &has {
                    let mut all = own.clone();
                    let share = &shares[*owner].parts[part];
                    for (from, node) in &share.far {
                        assert!(share.peers.contains(from));
                        let theirs = has[from][&(node.start, node.end)].clone();
                        assert!(shares[*from].own.contains(node));
                        all.insert((node.start, node.end), theirs);
                    }
                    combine(&mut all, &shares[*owner].between);
                    assert_eq!(all, BTreeMap::from([((0, n), expected.clone())]), "{placed:?}");
                }
            }
        }
    }

    #[test]
    fn all_get_what_each_has() {
        for placed in placements() {
            let n = placed.len();
            let Some(sites) = Sites::new(&placed) else { continue };
            let all: Vec<_> = (0..n).map(|me| sites.gathering(me)).collect();
            let mut has: Vec<Vec<usize>> = (0..n).map(|me| vec![me]).collect();
            for me in 0..n {
                assert_eq!(all[me].to.is_none(), all[me].near[0] == me);
                if let Some(to) = all[me].to {
                    assert!(all[to].from.contains(&me));
                    has[to].push(me);
                }
            }
            let before = has.clone();
            for me in 0..n {
                let own = &all[me].near;
                let mut far = all[me].far.iter().flat_map(|(_, theirs)| theirs);
                assert!(all[me].order.starts_with(own) && all[me].order.len() == n);
                let comes = &all[me].order[own.len()..];
                assert!(all[me].to.is_some() || comes.iter().all(|host| far.next() == Some(host)));
                for (from, hosts) in &all[me].far {
                    let back = all[*from].far.iter().find(|(other, _)| *other == me).unwrap();
                    assert_eq!(back.1, all[me].near);
                    let mut theirs = before[*from].clone();
                    theirs.sort_unstable();
                    assert_eq!(theirs, *hosts);
                    has[me].extend(hosts);
                }
            }
            // from who speaks, one to the other
            let mut got: Vec<usize> = (0..n).filter(|me| all[*me].to.is_none()).collect();
            let mut next = 0;
            while let Some(me) = got.get(next).copied() {
                next += 1;
                for to in &all[me].passage.to {
                    assert!(all[*to].passage.from == Some(me) && all[*to].order == all[me].order);
                    has[*to] = has[me].clone();
                    got.push(*to);
                }
            }
            for has in &mut has {
                has.sort_unstable();
                assert!(has.iter().copied().eq(0..n), "{placed:?}");
            }
        }
    }

    #[test]
    fn what_is_long_goes_round_in_each_site() {
        for placed in placements() {
            let n = placed.len();
            let Some(sites) = Sites::new(&placed) else { continue };
            let rings: Vec<_> = (0..n).map(|me| sites.ring(me)).collect();
            let mut has: Vec<Vec<usize>> = (0..n).map(|me| vec![me]).collect();
            for (me, ring) in rings.iter().enumerate() {
                assert_eq!(ring.far_to.len(), sites.count() - 1, "its own crosses each line once");
                assert!(ring.far_to.iter().all(|to| rings[*to].far_from.contains(&me)));
                assert!(ring.far_from.iter().all(|from| rings[*from].far_to.contains(&me)));
                has[me].extend(&ring.far_from);
                if let (Some(next), Some(before)) = (ring.next, ring.before) {
                    assert!(rings[next].before == Some(me) && rings[next].comes == ring.passes);
                    assert!(rings[before].next == Some(me));
                } else {
                    assert!(ring.passes.is_empty() && ring.comes.is_empty());
                }
            }
            let mut passed = vec![0; n];
            while (0..n).any(|me| passed[me] < rings[me].passes.len()) {
                let before = passed.clone();
                for me in 0..n {
                    let (Some(next), Some(what)) = (rings[me].next, rings[me].passes.get(passed[me])) else {
                        continue;
                    };
                    if has[me].contains(what) {
                        has[next].push(*what);
                        passed[me] += 1;
                    }
                }
                assert_ne!(passed, before, "nobody goes on");
            }
            for has in &mut has {
                has.sort_unstable();
                assert!(has.iter().copied().eq(0..n), "each once: {placed:?}");
            }
        }
    }
}
