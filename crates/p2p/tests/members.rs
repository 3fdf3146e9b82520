//! Members of a simulated run agree on who takes part, while they are killed, stopped, cut off and joined by others, and words are under way for as long as chance
//! wants, or lost.
//!
//! Of each number there is one view, whoever tells it; once nothing more happens, all who can reach a quorum have the same view, of themselves
//! alone; and a part is held by one who computes.

use polyrail_p2p::Scheme;
use polyrail_p2p::members::{Members, Time, Word};
use polyrail_p2p::view::{ADDRESS, Job, Member, NOBODY, View};
use std::collections::BTreeMap;

const MILLISECOND: Time = 1_000_000;

struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }
}

fn member(name: u8, weight: u16) -> Member {
    Member { address: [name; ADDRESS], site: 0, weight }
}

/// A process: its machine, once it has a view, and the view that it has.
struct Node {
    name: u8,
    machine: Option<Members>,
    view: Option<View>,
    epoch: u32,
    alive: bool,
    /// Not scheduled until then.
    stopped_until: Time,
    out: bool,
    /// What is said to it comes by this connection, which ends with it.
    known_gone: Vec<u8>,
}

impl Node {
    fn new(name: u8) -> Self {
        Self {
            name,
            machine: None,
            view: None,
            epoch: 0,
            alive: true,
            stopped_until: 0,
            out: false,
            known_gone: Vec::new(),
        }
    }
}

enum Carried {
    Word(u32, Word),
    View(u32, Box<View>),
}

struct World {
    now: Time,
    chance: Chance,
    nodes: Vec<Node>,
    under_way: Vec<(Time, u8, u8, Carried)>,
    /// All views that anybody had.
    views: BTreeMap<u32, View>,
    /// Who is on which side of a cut.
    sides: Option<u64>,
    loss: u64,
}

impl World {
    fn new(seed: u64, members: u8, parts: u32) -> Self {
        let list: Vec<Member> = (0..members).map(|name| member(name, u16::from(name > 0))).collect();
        let workers = u32::from(members) - 1;
        let owners = (0..parts).map(|part| (1 + part * workers / parts) as u16).collect();
        let job =
            Job { parts, scheme: Scheme::Synchronous, tolerance: 1.0, every: 1, keep: 1, task: Vec::new() };
        let holders = vec![(NOBODY, 0); parts as usize];
        let from = BTreeMap::from([(0, 0)]);
        let view = View { job, members: list, owners, stage: 0, holders, from };
        let mut world = Self {
            now: 1,
            chance: Chance(seed | 1),
            nodes: Vec::new(),
            under_way: Vec::new(),
            views: BTreeMap::new(),
            sides: None,
            loss: 0,
        };
        for name in 0..members {
            world.nodes.push(Node::new(name));
            world.install(usize::from(name), 1, view.clone());
        }
        world
    }

    fn install(&mut self, node: usize, epoch: u32, view: View) {
        let known = self.views.entry(epoch).or_insert_with(|| view.clone());
        assert_eq!(*known, view, "there are two views with the number {epoch}");
        for owner in &view.owners {
            assert!(view.members[usize::from(*owner)].weight > 0, "who looks on holds a part");
        }
        let (now, node) = (self.now, &mut self.nodes[node]);
        assert!(epoch > node.epoch, "a view comes twice, or an old one");
        let me = view.members.iter().position(|member| member.address[0] == node.name);
        node.out = me.is_none();
        node.machine = me.map(|me| Members::new(view.clone(), epoch, me, now));
        (node.epoch, node.view) = (epoch, Some(view));
        node.known_gone.clear();
    }

    fn cut(&self, a: u8, b: u8) -> bool {
        self.sides.is_some_and(|sides| (sides >> a ^ sides >> b) & 1 == 1)
    }

    fn send(&mut self, from: u8, to: u8, what: Carried) {
        if self.cut(from, to) || self.chance.below(100) < self.loss {
            return;
        }
        let after = (1 + self.chance.below(40)) * MILLISECOND;
        self.under_way.push((self.now + after, from, to, what));
    }

    fn join(&mut self, name: u8) {
        self.nodes.push(Node::new(name));
        // it asks somebody who takes part
        let ready: Vec<usize> = (0..self.nodes.len())
            .filter(|one| self.nodes[*one].alive && self.nodes[*one].machine.is_some())
            .collect();
        let Some(asked) = ready.get(self.chance.below(ready.len().max(1) as u64) as usize) else { return };
        let now = self.now;
        self.nodes[*asked].machine.as_mut().expect("it is ready").joins(member(name, 1), now);
    }

    fn step(&mut self) {
        self.now += 5 * MILLISECOND;
        let (now, mut due) = (self.now, Vec::new());
        let mut at = 0;
        while at < self.under_way.len() {
            if self.under_way[at].0 <= now { due.push(self.under_way.swap_remove(at)) } else { at += 1 }
        }
        for (_, from, to, what) in due {
            let node = usize::from(to);
            if !self.nodes[node].alive {
                continue;
            }
            if self.nodes[node].stopped_until > now {
                self.under_way.push((self.nodes[node].stopped_until, from, to, what));
                continue;
            }
            self.deliver(node, from, what);
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].alive && self.nodes[node].stopped_until <= now {
                self.run(node);
            }
        }
    }

    fn deliver(&mut self, node: usize, from: u8, what: Carried) {
        let now = self.now;
        match what {
            Carried::View(epoch, view) => {
                if epoch > self.nodes[node].epoch {
                    self.install(node, epoch, *view);
                }
            }
            Carried::Word(epoch, word) => {
                let Node { epoch: own, view: Some(view), .. } = &self.nodes[node] else { return };
                if epoch < *own {
                    let (own, view, to) = (*own, view.clone(), self.nodes[node].name);
                    self.send(to, from, Carried::View(own, Box::new(view)));
                    return;
                }
                let number = view.members.iter().position(|member| member.address[0] == from);
                if let (true, Some(number), Some(machine)) =
                    (epoch == *own, number, &mut self.nodes[node].machine)
                {
                    machine.hear(number, word, now);
                }
            }
        }
    }

    fn run(&mut self, node: usize) {
        let now = self.now;
        let (name, epoch) = (self.nodes[node].name, self.nodes[node].epoch);
        let Some(view) = self.nodes[node].view.clone() else { return };
        let gone: Vec<(usize, u8)> = view
            .members
            .iter()
            .enumerate()
            .map(|(number, member)| (number, member.address[0]))
            .filter(|(_, other)| {
                !self.nodes[usize::from(*other)].alive && !self.nodes[node].known_gone.contains(other)
            })
            .collect();
        let notice = self.chance.below(20) == 0;
        let Some(machine) = &mut self.nodes[node].machine else { return };
        machine.tick(now);
        if notice {
            gone.iter().for_each(|(number, _)| machine.lost(*number, now));
        }
        let mut said = Vec::new();
        while let Some((to, word)) = machine.say() {
            said.push((view.members[to].address[0], word));
        }
        let decided = machine.decided();
        if notice {
            self.nodes[node].known_gone.extend(gone.iter().map(|(_, other)| *other));
        }
        for (to, word) in said {
            self.send(name, to, Carried::Word(epoch, word));
        }
        if let Some(next) = decided {
            let all: Vec<u8> =
                view.members.iter().chain(&next.members).map(|member| member.address[0]).collect();
            for to in all {
                if to != name {
                    self.send(name, to, Carried::View(epoch + 1, Box::new(next.clone())));
                }
            }
            self.install(node, epoch + 1, next);
        }
    }

    fn run_for(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 5 {
            self.step();
        }
    }

    /// Those who take part, in the end, agree.
    fn settled(&self, who: &[u8]) {
        let views: Vec<_> = who
            .iter()
            .map(|name| (self.nodes[usize::from(*name)].epoch, &self.nodes[usize::from(*name)].view))
            .collect();
        let (epoch, view) = views[0];
        let mut have: Vec<u8> =
            view.as_ref().expect("a view").members.iter().map(|member| member.address[0]).collect();
        have.sort_unstable();
        assert_eq!(have, who, "view {epoch} is of others");
        assert!(views.iter().all(|other| *other == views[0]), "they have different views");
    }
}

fn alive(world: &World) -> Vec<u8> {
    world.nodes.iter().filter(|node| node.alive).map(|node| node.name).collect()
}

#[test]
fn who_is_killed_is_left_out_and_who_joins_is_in() {
    for seed in 1..150_u64 {
        let mut world = World::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 2 + (seed % 7) as u8, 32);
        world.loss = seed % 3 * 10;
        let mut killed = false;
        for event in 0..6 {
            world.run_for(200 + world.chance.0 % 3000);
            world.run_for(if killed { 30_000 } else { 0 });
            killed = false;
            let mut living = alive(&world);
            living.retain(|name| world.nodes[usize::from(*name)].machine.is_some());
            let next = world.nodes.len() as u8;
            // never so many at once that there is no quorum, nor the last who computes
            if world.chance.below(2) == 0 || living.len() < 4 {
                world.join(next);
            } else {
                killed = true;
                let which = living[world.chance.below(living.len() as u64) as usize];
                world.nodes[usize::from(which)].alive = false;
            }
            if event % 2 == 1 {
                world.run_for(30_000);
            }
        }
        world.loss = 0;
        world.run_for(40_000);
        // who asked one that was killed then is forgotten: it asks again
        let living: Vec<u8> =
            alive(&world).into_iter().filter(|name| !world.nodes[usize::from(*name)].out).collect();
        let waiting: Vec<u8> =
            living.iter().copied().filter(|name| world.nodes[usize::from(*name)].view.is_none()).collect();
        let members: Vec<u8> = living.into_iter().filter(|name| !waiting.contains(name)).collect();
        world.settled(&members);
    }
}

#[test]
fn two_sides_of_a_cut_never_go_on_both() {
    for seed in 1..150_u64 {
        let count = 3 + (seed % 8) as u8;
        let mut world = World::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d), count, 16);
        world.run_for(1000);
        let sides = world.chance.below(1 << count);
        world.sides = Some(sides);
        world.run_for(40_000);
        let side = |which: u64| (0..count).filter(|name| (sides >> name) & 1 == which).collect::<Vec<u8>>();
        for which in [0, 1] {
            let own = side(which);
            let quorum =
                2 * own.len() > usize::from(count) || 2 * own.len() == usize::from(count) && own.contains(&0);
            // one who only looks on, alone, has nothing to go on with
            let works = own.iter().any(|name| *name > 0);
            if quorum && works {
                world.settled(&own);
            } else {
                assert!(
                    own.iter().all(|name| world.nodes[usize::from(*name)].epoch == 1),
                    "a minority went on"
                );
            }
        }
        // and where they meet again, the others are told that they are out
        world.sides = None;
        world.run_for(20_000);
        let went_on = world.nodes.iter().filter(|node| node.machine.is_some()).count();
        let told = world.nodes.iter().filter(|node| node.out).count();
        assert_eq!(went_on + told, usize::from(count), "somebody does not know");
    }
}

#[test]
fn who_is_stopped_for_long_is_left_out_and_told_so() {
    for seed in 1..60_u64 {
        let mut world = World::new(seed.wrapping_mul(0x1234_5678_9abc_def1), 6, 12);
        world.run_for(1000);
        let which = world.chance.below(6) as usize;
        // a short pause is nothing
        world.nodes[which].stopped_until = world.now + 3_000 * MILLISECOND;
        world.run_for(9_000);
        assert!(world.nodes.iter().all(|node| node.epoch == 1), "a short pause costs a member its place");
        world.nodes[which].stopped_until = world.now + 30_000 * MILLISECOND;
        world.run_for(20_000);
        let others: Vec<u8> = (0..6).filter(|name| usize::from(*name) != which).collect();
        world.settled(&others);
        world.run_for(30_000);
        assert!(world.nodes[which].out, "nobody told it");
        world.settled(&others);
    }
}

#[test]
fn parts_are_spread_by_weight_and_kept_in_rows() {
    let mut world = World::new(77, 3, 16);
    world.run_for(500);
    for name in 3..9 {
        world.join(name);
        world.run_for(5000);
    }
    let view = world.views.last_key_value().expect("a view").1;
    let held = |member: usize| view.owners.iter().filter(|owner| usize::from(**owner) == member).count();
    assert_eq!(held(0), 0);
    assert!((1..9).all(|member| held(member) == 2), "{:?}", view.owners);
}
