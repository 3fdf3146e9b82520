//! Runs of a solver over networks of all kinds stop when they may: what all stop with is one vector, and it is as near to the solution as the verdict says.
//! `POLYRAIL_SIMULATED_RUNS` has how many of them (200 if it is not set), `POLYRAIL_SIMULATED_FIRST` which is the first.

use polyrail_p2p::{Job, Scheme};
use polyrail_simulate::{Line, Model, run};
use polyrail_solve::block::Block;
use polyrail_solve::problem::{Instance, Problem};
use polyrail_solve::run::{Share, Task};
use polyrail_solve::sweep::{Method, distance};
use std::time::Duration;

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % most
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[test]
fn nobody_stops_falsely() {
    let first = number("POLYRAIL_SIMULATED_FIRST", 0);
    for seed in first..first + number("POLYRAIL_SIMULATED_RUNS", 200) {
        let chance = &mut Chance(seed);
        let members = 1 + chance.below(8) as usize;
        let parts = members as u32 + chance.below(5) as u32;
        let problem = Problem {
            instance: chance.of(&[Instance::A, Instance::B, Instance::C]),
            n: 4 + chance.below(6) as usize,
        };
        let scheme = chance.of(&[
            Scheme::Synchronous,
            Scheme::Asynchronous,
            Scheme::Hybrid,
            Scheme::Bounded(1),
            Scheme::Bounded(5),
        ]);
        let task = Task {
            problem,
            method: chance.of(&[Method::Richardson, Method::Psor]),
            slabs: false,
            inner: chance.of(&[1, 1, 3]),
        };
        let Ok(division) = task.divide(parts) else { continue };
        let line = Line {
            rate: chance.of(&[1e6, 1e8, 1e10]),
            latency: Duration::from_micros(chance.of(&[1, 50, 2000])),
            loss: chance.of(&[0.0, 0.01, 0.3]),
        };
        let mut model = Model::alike(members, line, chance.of(&[1e-6, 1e-5]));
        model.seed = seed;
        model.jitter = chance.of(&[0.0, 0.2, 2.0]);
        model.far = Line { latency: Duration::from_millis(chance.below(20)), ..line };
        model.sites.iter_mut().for_each(|site| *site = chance.below(3) as u32);
        // who is in step with each other has edges in common
        model.sites.sort_unstable();
        model.speeds.iter_mut().for_each(|speed| *speed = chance.of(&[1.0, 1.0, 0.5, 0.05]));
        let tolerance = chance.of(&[1e-3, 1e-5, 1e-8]);
        let every = chance.of(&[1, 4, 16]);
        let job = Job { parts, scheme, tolerance, every, keep: 0, task: task.to_bytes() };
        let ended = run(&model, &job, |peers| {
            let mut peers = peers.expect("a member");
            let mut share = Share::new(&peers).expect("a task");
            let outcome = share.compute(&mut peers).expect("nobody is lost").expect("it holds a part");
            peers.leave(Duration::from_secs(1));
            outcome
        })
        .unwrap_or_else(|why| panic!("seed {seed}: {why}: {job:?} {task:?} {model:?}"));

        let cube = 1..problem.n + 1;
        let mut whole = Block::new(&problem, [cube.clone(), cube.clone(), cube]);
        let mut held = 0;
        let (round, norm) = (ended[0].1.verdict.round, ended[0].1.verdict.norm);
        for (_, outcome) in &ended {
            assert_eq!((outcome.verdict.round, outcome.verdict.norm), (round, norm), "seed {seed}");
            for (part, values) in &outcome.parts {
                let [x, y, z] = division.points(*part as usize);
                let mut values = values.iter();
                for z in z {
                    for y in y.clone() {
                        for x in x.clone() {
                            let at = whole.row(y - 1, z - 1) + x - 1;
                            whole.u[at] = *values.next().expect("a value for each point");
                            held += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(held, problem.n.pow(3), "seed {seed}: each point is held once");
        let distance = distance(&whole);
        assert!(norm <= tolerance, "seed {seed}: {norm} {tolerance}");
        assert!(distance <= norm, "seed {seed}: {scheme:?} {task:?}: {distance} and not {norm}");
    }
}
