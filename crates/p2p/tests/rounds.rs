//! Members of a simulated run, each with a machine of rounds, iterate in any order that chance gives; what they stop with has the norm that they were told.
//!
//! Each member has one number, and its neighbours to both sides: x = 1 + (left + right) / 4. Data and words are under way for as long as
//! chance wants, words and messages in order from one to another, values not. What stops the run has to be one vector: the numbers that members sent in the iterations that
//! their verdicts name. It is judged by computing each member's norm anew from those.

use polyrail_p2p::rounds::{Rounds, Setting, Verdict, Word};
use std::collections::VecDeque;

struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most
    }
}

/// From a neighbour.
#[derive(Default, Clone)]
struct Inbound {
    in_step: VecDeque<(u64, f64)>,
    under_way: Vec<(u64, f64)>,
    newest: Option<(u64, f64)>,
    marked: VecDeque<(u64, f64)>,
    fresh: bool,
}

struct Member {
    rounds: Rounds,
    x: f64,
    halo: [f64; 2],
    history: Vec<f64>,
    /// The iteration that it begins with.
    start: u64,
    has_sent: bool,
    inbound: [Inbound; 2],
    stop: Option<Verdict>,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    members: usize,
    /// Members of a site are in step.
    site: usize,
    /// Members of a site are not beside each other, so that they have nothing to wait for from each other.
    scattered: bool,
    every: u64,
    tolerance: f64,
    /// A member that is chosen seldom.
    slow: usize,
}

struct Run {
    case: Case,
    members: Vec<Member>,
    words: Vec<VecDeque<Word>>,
    chance: Chance,
}

impl Case {
    fn site_of(&self, member: usize) -> usize {
        if self.scattered { member % self.members.div_ceil(self.site) } else { member / self.site }
    }
}

fn next(left: f64, right: f64) -> f64 {
    1.0 + (left + right) / 4.0
}

impl Run {
    fn new(case: Case, seed: u64) -> Self {
        // those who are not in step are at any iterations when members change, those who are at the same
        let start = |me: usize| case.site_of(me) as u64 * 37 % 101;
        let member = |me: usize| Member {
            rounds: Rounds::new(
                Setting {
                    me,
                    members: case.members,
                    tolerance: case.tolerance,
                    in_step: (0..case.members)
                        .filter(|other| case.site_of(*other) == case.site_of(me))
                        .collect(),
                    every: case.every,
                    keep: 0,
                },
                start(me),
            ),
            x: 0.0,
            halo: [0.0; 2],
            history: Vec::new(),
            start: start(me),
            has_sent: false,
            inbound: Default::default(),
            stop: None,
        };
        Self {
            case,
            members: (0..case.members).map(member).collect(),
            words: vec![VecDeque::new(); case.members * case.members],
            chance: Chance(seed | 1),
        }
    }

    fn neighbour(&self, me: usize, side: usize) -> Option<usize> {
        if side == 0 { me.checked_sub(1) } else { Some(me + 1).filter(|one| *one < self.case.members) }
    }

    fn in_step(&self, a: usize, b: usize) -> bool {
        self.case.site_of(a) == self.case.site_of(b)
    }

    fn send(&mut self, me: usize) {
        let (x, iteration, marked) =
            (self.members[me].x, self.members[me].rounds.iteration(), self.members[me].rounds.marked());
        self.members[me].history.push(x);
        assert_eq!(self.members[me].history.len() as u64 + self.members[me].start, iteration + 1);
        for side in 0..2 {
            let Some(to) = self.neighbour(me, side) else { continue };
            let in_step = self.in_step(me, to);
            let inbound = &mut self.members[to].inbound[1 - side];
            if in_step {
                inbound.in_step.push_back((iteration, x));
            } else {
                // what is under way when something newer is put is forgotten, but for a few
                if inbound.under_way.len() > 4 {
                    inbound.under_way.remove(0);
                }
                inbound.under_way.push((iteration, x));
                inbound.marked.extend(marked.map(|round| (round, x)));
            }
        }
    }

    /// Whether it has all that the iteration is computed with.
    fn receive(&mut self, me: usize) -> bool {
        let marked = self.members[me].rounds.marked();
        let mut halo = self.members[me].halo;
        let mut taken = Vec::new();
        for (side, halo) in halo.iter_mut().enumerate() {
            let Some(from) = self.neighbour(me, side) else { continue };
            let iteration = self.members[me].rounds.iteration();
            let in_step = self.in_step(me, from);
            let inbound = &mut self.members[me].inbound[side];
            if in_step {
                let Some(&(number, x)) = inbound.in_step.front() else { return false };
                assert_eq!(number, iteration, "a message is of another iteration");
                *halo = x;
                taken.push((side, 0));
            } else if let Some(round) = marked {
                while inbound.marked.front().is_some_and(|(of, _)| *of < round) {
                    inbound.marked.pop_front();
                }
                let Some(&(number, x)) = inbound.marked.front() else { return false };
                assert_eq!(number, round, "a message is of another round");
                *halo = x;
                taken.push((side, 1));
            } else if let Some((_, x)) = inbound.newest {
                *halo = x;
            }
        }
        for (side, what) in taken {
            let inbound = &mut self.members[me].inbound[side];
            if what == 0 {
                inbound.in_step.pop_front()
            } else {
                inbound.marked.pop_front()
            };
            inbound.fresh = true;
        }
        self.members[me].halo = halo;
        true
    }

    fn go_on(&mut self, me: usize) {
        if self.members[me].stop.is_some() || self.members[me].rounds.holds() {
            return;
        }
        if !self.members[me].has_sent {
            self.send(me);
            self.members[me].has_sent = true;
        }
        if !self.receive(me) {
            return;
        }
        let sides: Vec<usize> = (0..2).filter(|side| self.neighbour(me, *side).is_some()).collect();
        let member = &mut self.members[me];
        let new = next(member.halo[0], member.halo[1]);
        let norm = (new - member.x).abs();
        member.x = new;
        if norm > self.case.tolerance {
            member.inbound.iter_mut().for_each(|inbound| inbound.fresh = false);
        }
        member.rounds.end(norm, sides.iter().all(|side| member.inbound[*side].fresh));
        member.has_sent = false;
    }

    fn carry(&mut self) {
        for me in 0..self.case.members {
            while let Some((to, word)) = self.members[me].rounds.say() {
                self.words[me * self.case.members + to].push_back(word);
            }
            self.members[me].stop = self.members[me].rounds.stopped();
        }
    }

    fn step(&mut self) {
        match self.chance.below(3) {
            0 => {
                let pair = self.chance.below(self.words.len());
                if let Some(word) = self.words[pair].pop_front() {
                    let (from, to) = (pair / self.case.members, pair % self.case.members);
                    self.members[to].rounds.hear(from, word).expect("nobody breaks the rules");
                }
            }
            1 => {
                let (me, side) = (self.chance.below(self.case.members), self.chance.below(2));
                let under_way = self.members[me].inbound[side].under_way.len();
                if under_way > 0 {
                    let which = self.chance.below(under_way);
                    let inbound = &mut self.members[me].inbound[side];
                    let value = inbound.under_way.swap_remove(which);
                    // one in four is lost, and the newest is what counts
                    if self.chance.below(4) > 0 && inbound.newest.is_none_or(|(had, _)| had < value.0) {
                        inbound.newest = Some(value);
                        inbound.fresh = true;
                    }
                }
            }
            _ => {
                let me = self.chance.below(self.case.members);
                if me != self.case.slow || self.chance.below(20) == 0 {
                    self.go_on(me);
                }
            }
        }
        self.carry();
    }

    /// The iterations at which members stopped, after their common vector was judged.
    fn end(mut self) -> (Vec<u64>, f64) {
        for _ in 0..3_000_000 {
            if self.members.iter().all(|member| member.stop.is_some()) {
                let verdicts: Vec<Verdict> = self.members.iter().filter_map(|member| member.stop).collect();
                let x: Vec<f64> = (self.members.iter().zip(&verdicts))
                    .map(|(member, verdict)| member.history[(verdict.iteration - member.start) as usize])
                    .collect();
                let at = |i: usize| x.get(i).copied().unwrap_or(0.0);
                let norm = (0..x.len())
                    .map(|i| (next(at(i.wrapping_sub(1)), at(i + 1)) - x[i]).abs())
                    .fold(0.0, f64::max);
                for (member, verdict) in self.members.iter().zip(&verdicts) {
                    assert_eq!((verdict.round, verdict.norm), (verdicts[0].round, norm), "{:?}", self.case);
                    assert!(norm <= self.case.tolerance);
                    // no member has gone beyond what is judged: it has computed once with it, and not sent that
                    assert_eq!(
                        member.history.len() as u64 + member.start,
                        verdict.iteration + 1,
                        "{:?}",
                        self.case
                    );
                }
                return (verdicts.iter().map(|verdict| verdict.iteration).collect(), norm);
            }
            self.step();
        }
        for (number, member) in self.members.iter().enumerate() {
            eprintln!("{number}: x {} stop {:?} {:?}", member.x, member.stop, member.rounds);
        }
        panic!("{:?} does not end", self.case);
    }
}

fn draw(chance: &mut Chance) -> Case {
    let members = 1 + chance.below(9);
    Case {
        members,
        site: [1, 2, 3, members][chance.below(4)],
        scattered: chance.below(2) == 0,
        every: 1 + chance.below(7) as u64,
        tolerance: [1e-2, 1e-6, 1e-12][chance.below(3)],
        slow: chance.below(12),
    }
}

/// As many runs as `POLYRAIL_ROUNDS_RUNS` says, or 3000.
#[test]
fn nobody_stops_falsely() {
    let runs = std::env::var("POLYRAIL_ROUNDS_RUNS").map_or(3000, |runs| runs.parse().expect("a number"));
    let mut chance = Chance(0x9e37_79b9);
    for seed in 0..runs {
        let case = draw(&mut chance);
        Run::new(case, (seed + 1_u64).wrapping_mul(0x2545_f491_4f6c_dd1d)).end();
    }
}

#[test]
fn in_step_all_stop_at_the_same_iteration_whatever_the_network_does() {
    for (members, every) in [(1, 1), (2, 3), (5, 4), (9, 1), (9, 16)] {
        let case = Case { members, site: members, scattered: false, every, tolerance: 1e-9, slow: 3 };
        let (iterations, norm) = Run::new(case, 1).end();
        assert!(iterations.iter().all(|one| *one == iterations[0] && one.is_multiple_of(every)));
        for seed in 2..40 {
            assert_eq!(Run::new(case, seed * 0x1234_5677).end(), (iterations.clone(), norm));
        }
    }
}

#[test]
fn words_without_a_reason_are_told_of() {
    let setting =
        |me, in_step: Vec<usize>| Setting { me, members: 6, tolerance: 1.0, in_step, every: 1, keep: 0 };
    let alone = || Rounds::new(setting(1, vec![1]), 0);
    for (from, word) in [
        (0, Word::Status { after: 0, below: true }),
        (2, Word::Ask { round: 1 }),
        (0, Word::Mark { round: 1, at: 9 }),
        (5, Word::Share { round: 1, norm: 0.0 }),
        (0, Word::Verdict { round: 1, norm: 0.0, keep: false }),
    ] {
        assert!(alone().hear(from, word).is_err(), "{word:?}");
    }
    let mut twice = alone();
    twice.hear(0, Word::Ask { round: 1 }).expect("its parent may");
    assert!(twice.hear(0, Word::Ask { round: 1 }).is_err());
    // the last of a group is behind who hears of it, and nobody goes back
    let pace = |iteration| Word::Pace { iteration };
    let mut second = Rounds::new(setting(1, vec![0, 1]), 5);
    assert!(second.hear(0, pace(5)).is_err() && second.hear(0, pace(6)).is_err());
    assert!(second.hear(2, pace(1)).is_err());
    let mut first = Rounds::new(setting(0, vec![0, 1]), 5);
    first.hear(1, pace(9)).expect("it has gone on");
    assert!(first.hear(1, pace(9)).is_err() && first.hear(0, pace(10)).is_err());
    assert!(alone().hear(0, pace(9)).is_err());
    let mut together = Rounds::new(setting(1, (0..6).collect()), 0);
    assert!(together.hear(0, Word::Ask { round: 1 }).is_err(), "there all rounds are known");
}
