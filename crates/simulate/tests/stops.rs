//! Runs of a solver over networks of all kinds stop when they may: what all stop with is one vector, and it is as near to the solution as the verdict says. So it is of each time step, from
//! the one vector that all had before.
//! `POLYRAIL_SIMULATED_RUNS` has how many of them (200 if it is not set), `POLYRAIL_SIMULATED_FIRST` which is the first.

use polyrail_core::sim::Rng;
use polyrail_p2p::{Job, Scheme};
use polyrail_simulate::{Line, Model, run};
use polyrail_solve::block::Block;
use polyrail_solve::gather::{gather, take_part_in_each};
use polyrail_solve::problem::{Instance, Problem};
use polyrail_solve::run::{Share, Task};
use polyrail_solve::sweep::{Method, distance};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

fn one_of<T: Copy>(chance: &mut Rng, all: &[T]) -> T {
    all[chance.below(all.len() as u64) as usize]
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// What parts have come to, by time step and part: the verdict's norm and the values.
type Came = BTreeMap<(usize, u32), (f64, Vec<f64>)>;

/// Each time step's whole vector is as near to the solution as its verdict says, from the one vector that all had before.
fn holds(task: &Task, parts: u32, came: &Came, tolerance: f64, seed: u64) {
    let division = task.divide(parts).expect("it was divided");
    let problem = task.problem;
    let cube = 1..problem.n + 1;
    let mut whole = Block::new(&problem, [cube.clone(), cube.clone(), cube]);
    for step in 0..task.steps as usize {
        if step > 0 {
            let before = whole.u.clone();
            whole.begin_step(&before);
        }
        let norm = came[&(step, 0)].0;
        for part in 0..parts {
            let (other, values) = &came[&(step, part)];
            assert_eq!(*other, norm, "seed {seed}, step {step}: part {part} stopped by another verdict");
            let [x, y, z] = division.points(part as usize);
            let mut values = values.iter();
            for z in z {
                for y in y.clone() {
                    let row = whole.row(y - 1, z - 1);
                    x.clone()
                        .for_each(|x| whole.u[row + x - 1] = *values.next().expect("a value of each point"));
                }
            }
            assert!(values.next().is_none(), "seed {seed}: part {part} has more values than points");
        }
        let distance = distance(&whole);
        assert!(
            norm <= tolerance && distance <= norm,
            "seed {seed}, step {step}: {distance} {norm} {tolerance}"
        );
    }
}

#[test]
fn nobody_stops_falsely() {
    let first = number("POLYRAIL_SIMULATED_FIRST", 0);
    for seed in first..first + number("POLYRAIL_SIMULATED_RUNS", 200) {
        let chance = &mut Rng::new(seed);
        let members = 1 + chance.below(8) as usize;
        let parts = members as u32 + chance.below(5) as u32;
        let problem = Problem {
            instance: one_of(chance, &[Instance::A, Instance::B, Instance::C]),
            n: 4 + chance.below(6) as usize,
            dt: None,
        };
        // some go on from one time to the next
        let steps = one_of(chance, &[1, 1, 2, 5]);
        let dt = one_of(chance, &[1e-3, 1e-1, 10.0]);
        let problem = Problem { dt: (steps > 1).then_some(dt), ..problem };
        let scheme = one_of(
            chance,
            &[
                Scheme::Synchronous,
                Scheme::Asynchronous,
                Scheme::Hybrid,
                Scheme::Bounded(1),
                Scheme::Bounded(5),
            ],
        );
        let task = Task {
            problem,
            method: one_of(chance, &[Method::Richardson, Method::Psor]),
            slabs: false,
            inner: one_of(chance, &[1, 1, 3]),
            steps,
        };
        if task.divide(parts).is_err() {
            continue;
        }
        let line = Line {
            rate: one_of(chance, &[1e6, 1e8, 1e10]),
            latency: Duration::from_micros(one_of(chance, &[1, 50, 2000])),
            loss: one_of(chance, &[0.0, 0.01, 0.3]),
        };
        let mut model = Model::alike(members, line, one_of(chance, &[1e-6, 1e-5]));
        model.seed = seed;
        model.jitter = one_of(chance, &[0.0, 0.2, 2.0]);
        model.far = Line { latency: Duration::from_millis(chance.below(20)), ..line };
        model.sites.iter_mut().for_each(|site| *site = chance.below(3) as u32);
        // who is in step with each other has edges in common, or not
        if chance.below(2) == 0 {
            model.sites.sort_unstable();
        }
        model.speeds.iter_mut().for_each(|speed| *speed = one_of(chance, &[1.0, 1.0, 0.5, 0.05]));
        let tolerance = one_of(chance, &[1e-3, 1e-5, 1e-8]);
        let every = one_of(chance, &[1, 4, 16]);
        let job = Job { parts, scheme, tolerance, every, keep: 0, task: task.to_bytes() };
        let ended = run(&model, &job, |peers| {
            let mut peers = peers.expect("a member");
            let mut share = Share::new(&peers).expect("a task");
            let mut each = Vec::new();
            let outcome = share
                .compute_each(&mut peers, |step, outcome| {
                    each.push((step, outcome.verdict, outcome.parts.clone()))
                })
                .expect("nobody is lost")
                .expect("it holds a part");
            assert_eq!((peers.stage() + 1, outcome.norms.len()), (steps, steps as usize));
            peers.leave(Duration::from_secs(1));
            each
        })
        .unwrap_or_else(|why| panic!("seed {seed}: {why}: {job:?} {task:?} {model:?}"));

        let mut came = Came::new();
        for (_, each) in &ended {
            for (step, (number, verdict, of)) in each.iter().enumerate() {
                assert_eq!((*number, verdict.round), (step, ended[0].1[step].1.round), "seed {seed}");
                for (part, values) in of {
                    let had = came.insert((step, *part), (verdict.norm, values.clone()));
                    assert!(had.is_none(), "seed {seed}: each point is held once");
                }
            }
        }
        holds(&task, parts, &came, tolerance, seed);
    }
}

#[test]
fn who_goes_on_after_it_has_stopped_stops_anew() {
    let problem = Problem { instance: Instance::A, n: 5, dt: None };
    let task = Task { problem, method: Method::Richardson, slabs: false, inner: 1, steps: 1 };
    let scheme = Scheme::Synchronous;
    let job = Job { parts: 2, scheme, tolerance: 1e-3, every: 4, keep: 0, task: task.to_bytes() };
    let line = Line { rate: 1e8, latency: Duration::from_micros(50), loss: 0.0 };
    let ended = run(&Model::alike(2, line, 1e-6), &job, |peers| {
        let mut peers = peers.expect("a member");
        let mut share = Share::new(&peers).expect("a task");
        let first = share.compute(&mut peers).expect("nobody is lost").expect("it holds a part");
        // as where another was lost while the answer was handed in
        share.change(&mut peers).expect("nothing has changed");
        let again = share.compute(&mut peers).expect("nobody is lost").expect("it holds a part");
        assert_eq!((first.verdict, &first.norms), (again.verdict, &again.norms));
        peers.leave(Duration::from_secs(1));
    });
    assert_eq!(ended.expect("it ends").len(), 2);
}

/// `POLYRAIL_SIMULATED_KILLS` has how many runs (300 if it is not set).
#[test]
fn who_is_killed_costs_time_and_no_step() {
    let first = number("POLYRAIL_SIMULATED_FIRST", 0);
    // runs that went on after a loss, and that had a time step anew
    let (mut changed, mut anew, mut quick) = (0, 0, 0);
    for seed in first..first + number("POLYRAIL_SIMULATED_KILLS", 300) {
        let chance = &mut Rng::new(seed);
        let workers = 2 + chance.below(5) as usize;
        let parts = workers as u32 + chance.below(4) as u32;
        let steps = one_of(chance, &[1, 3, 8]);
        let dt = one_of(chance, &[1e-2, 1e-1, 10.0]);
        let problem = Problem {
            instance: one_of(chance, &[Instance::A, Instance::B, Instance::C]),
            n: 6 + chance.below(5) as usize,
            dt: (steps > 1).then_some(dt),
        };
        let scheme =
            one_of(chance, &[Scheme::Synchronous, Scheme::Asynchronous, Scheme::Hybrid, Scheme::Bounded(4)]);
        let method = one_of(chance, &[Method::Richardson, Method::Psor]);
        let task = Task { problem, method, slabs: false, inner: 1, steps };
        if task.divide(parts).is_err() {
            continue;
        }
        let line = Line {
            rate: one_of(chance, &[1e6, 1e8]),
            latency: Duration::from_micros(one_of(chance, &[10, 300])),
            loss: one_of(chance, &[0.0, 0.05]),
        };
        // points that take long: members are lost in the middle, and beats are few among the messages
        let mut model = Model::alike(workers + 1, line, one_of(chance, &[1e-5, 1e-4]));
        model.seed = seed;
        model.jitter = one_of(chance, &[0.0, 0.5]);
        model.looks_on = true;
        model.most = Duration::from_secs(1000);
        model.sites.iter_mut().for_each(|site| *site = chance.below(2) as u32);
        model.noticed = one_of(chance, &[None, Some(Duration::from_millis(1))]);
        let tolerance = one_of(chance, &[1e-3, 1e-6]);
        let keep = one_of(chance, &[1, 3, 10, 100]);
        let job =
            Job { parts, scheme, tolerance, every: one_of(chance, &[1, 4, 16]), keep, task: task.to_bytes() };
        // a second one is lost while others still find out about the first, or agree on what is left: what was kept may be lost with them
        let is_quick = chance.below(3) == 0;
        let solve = |model: &Model| {
            let came = Mutex::new((Came::new(), 0, 0));
            let record = &came;
            let ended = run(model, &job, |peers| {
                let mut peers = peers.expect("a member");
                if peers.me() == 0 {
                    let solution =
                        gather(&mut peers, |_, _| Ok(())).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                    assert_eq!(solution.steps.len(), steps as usize);
                    record.lock().expect("one runs at a time").1 =
                        solution.shares.iter().map(|did| did.progress.changes).max().unwrap_or(0);
                } else {
                    let each = |step: usize, outcome: &polyrail_solve::run::Outcome| {
                        let mut came = record.lock().expect("one runs at a time");
                        let farthest = came.0.keys().next_back().map_or(0, |(step, _)| *step);
                        // states of a later step were kept at two places: nobody begins anew
                        assert!(
                            is_quick || keep > 3 || step > 0 || farthest < 4,
                            "seed {seed}: back from step {farthest}"
                        );
                        for (part, values) in &outcome.parts {
                            let had = came.0.insert((step, *part), (outcome.verdict.norm, values.clone()));
                            came.2 += u32::from(had.is_some() && step + 1 < steps as usize);
                        }
                    };
                    take_part_in_each(&mut peers, each).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                }
                peers.leave(Duration::from_secs(1));
            });
            let ended = ended.unwrap_or_else(|why| panic!("seed {seed}: {why}: {job:?} {task:?} {model:?}"));
            let (came, changes, twice) = came.into_inner().expect("it is over");
            holds(&task, parts, &came, tolerance, seed);
            (ended.iter().map(|(at, ())| *at).max().expect("somebody ended"), changes, twice)
        };
        let (whole, changes, twice) = solve(&model);
        assert_eq!((changes, twice), (0, 0), "seed {seed}: nobody was lost");
        let whole = whole.as_secs_f64();
        // one after the other, mostly so that what the first had is kept by somebody else again
        let victims = 1 + chance.below((workers as u64 - 1).min(2));
        let mut at = 0.0;
        for _ in 0..victims {
            at += if is_quick && at > 0.0 { 0.001 } else { whole } * chance.below(1000) as f64 / 1000.0;
            let victim = 1 + chance.below(workers as u64) as usize;
            if model.killed.iter().all(|(other, _)| *other != victim) {
                model.killed.push((victim, Duration::from_secs_f64(at)));
                at += if is_quick { one_of(chance, &[0.01, 1.0, 5.0, 7.0]) } else { 30.0 };
            }
        }
        let (_, changes, twice) = solve(&model);
        changed += u32::from(changes > 0);
        anew += u32::from(twice > 0);
        quick += u32::from(is_quick && changes > 0 && model.killed.len() > 1);
    }
    println!(
        "{changed} went on after a loss, {quick} of them after two in quick succession, {anew} had a time step anew"
    );
    assert!(changed > 10 && anew > 0 && quick > 0, "{changed} {anew} {quick}");
}
