//! Whole runs, a thread and an endpoint for each member: by every scheme, the certificate holds, and in step the answer is that of one alone, bit by bit.

use polyrail_p2p::{Config, Founding, Job, Peers, Scheme, Settings};
use polyrail_solve::block::Block;
use polyrail_solve::certify::{certificate, tolerance};
use polyrail_solve::gather::{Solution, gather, take_part};
use polyrail_solve::problem::{Instance, Problem};
use polyrail_solve::run::Task;
use polyrail_solve::sweep::{Method, distance, psor};
use std::time::Duration;

#[derive(Clone, Copy)]
struct Case {
    task: Task,
    scheme: Scheme,
    members: usize,
    parts: u32,
    bound: f64,
}

fn settings(site: u32, weight: u16) -> Settings {
    Settings { rails: Config::default(), site, weight, patience: Some(Duration::from_secs(60)), pause: None }
}

fn solve(case: Case) -> Solution {
    let founding = Founding::new(settings(0, 0)).expect("an endpoint");
    let address = founding.address();
    let tolerance = tolerance(&case.task.problem, case.bound, case.task.steps).expect("it can be reached");
    let job = Job {
        parts: case.parts,
        scheme: case.scheme,
        tolerance,
        every: 8,
        keep: 0,
        task: case.task.to_bytes(),
    };
    std::thread::scope(|scope| {
        for member in 0..case.members {
            scope.spawn(move || {
                let mut peers = Peers::join(settings(member as u32 / 2, 1), &address).expect("it is let in");
                take_part(&mut peers).expect("a solution");
                peers.leave(Duration::from_secs(20));
            });
        }
        let mut peers = founding.gather(job, case.members, |_| Ok(())).expect("all come");
        gather(&mut peers, |_, _| Ok(())).expect("all hand in")
    })
}

fn case(scheme: Scheme, members: usize) -> Case {
    let problem = Problem { instance: Instance::A, n: 19, dt: None };
    let task = Task { problem, method: Method::Richardson, slabs: false, inner: 1, steps: 1 };
    Case { task, scheme, members, parts: members as u32, bound: 1e-4 }
}

/// The solution of the difference equations, as near as numbers allow.
fn reference(problem: &Problem) -> Block {
    let n = problem.n;
    let mut block = Block::new(problem, [1..n + 1, 1..n + 1, 1..n + 1]);
    for _ in 0..600 {
        psor(&mut block, problem.omega(), 0..2);
    }
    assert!(distance(&block) < 1e-14);
    block
}

fn holds(case: Case, solution: &Solution) {
    let reference = reference(&case.task.problem);
    let off = solution.whole.u.iter().zip(&reference.u).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let own = certificate(&case.task.problem, distance(&reference)).bound;
    assert!(off <= solution.certificate.bound + own, "{off} {:?}", solution.certificate);
    assert!(solution.certificate.bound <= case.bound, "{:?}", solution.certificate);
    // the vector that was judged is the one that came
    assert_eq!(solution.certificate, solution.again);
}

#[test]
fn by_every_scheme_the_certificate_holds() {
    for scheme in [Scheme::Synchronous, Scheme::Asynchronous, Scheme::Bounded(3), Scheme::Hybrid] {
        for (members, parts) in [(1, 1), (2, 2), (4, 8), (3, 7)] {
            for (method, inner) in [(Method::Richardson, 1), (Method::Psor, 1), (Method::Psor, 4)] {
                let mut case = Case { parts, ..case(scheme, members) };
                (case.task.method, case.task.inner) = (method, inner);
                case.task.slabs = parts == 7;
                holds(case, &solve(case));
            }
        }
    }
}

#[test]
fn in_step_it_is_the_answer_of_one_alone() {
    for method in [Method::Richardson, Method::Psor] {
        let mut case = case(Scheme::Synchronous, 1);
        case.task.method = method;
        let alone = solve(case);
        for (members, parts) in [(2, 2), (4, 4), (3, 12)] {
            let together = solve(Case { parts, members, ..case });
            assert!(together.whole.u == alone.whole.u, "{method:?}: {members} members, {parts} parts");
            assert_eq!(together.certificate, alone.certificate);
            assert!(together.shares.iter().all(|share| share.verdict == alone.shares[0].verdict));
        }
    }
}

#[test]
fn multigrid_is_the_answer_of_one_alone_and_takes_few_cycles() {
    // 19 halves to 9 and 4; 33 to 16, which is solved by over-relaxation; 12 does not halve; slabs of 39 are thin, and so are those of 19
    for (instance, n, slabs) in [
        (Instance::A, 19, false),
        (Instance::B, 31, false),
        (Instance::A, 33, true),
        (Instance::C, 12, false),
        (Instance::A, 39, true),
    ] {
        let mut case = case(Scheme::Synchronous, 1);
        case.task = Task {
            problem: Problem { instance, n, dt: None },
            method: Method::Multigrid,
            slabs,
            inner: 1,
            steps: 1,
        };
        case.bound = 1e-6;
        let alone = solve(case);
        holds(case, &alone);
        let iterations = alone.shares[0].progress.iterations;
        assert!(iterations < 40, "{instance:?} {n}: {iterations}");
        for (members, parts) in [(2, 2), (4, 4), (3, 12)] {
            let together = solve(Case { parts, members, ..case });
            assert!(together.whole.u == alone.whole.u, "{instance:?} {n}: {members} members, {parts} parts");
            assert_eq!(together.certificate, alone.certificate);
            assert!(together.shares.iter().all(|share| share.verdict == alone.shares[0].verdict));
        }
    }
}

#[test]
fn multigrid_is_refused_where_it_cannot_be() {
    let task = |n, inner| Task {
        problem: Problem { instance: Instance::A, n, dt: None },
        method: Method::Multigrid,
        slabs: false,
        inner,
        steps: 1,
    };
    for (task, scheme, told) in [
        (task(63, 1), Scheme::Asynchronous, "in step"),
        (task(63, 1), Scheme::Bounded(2), "in step"),
        (task(63, 2), Scheme::Synchronous, "no inner sweeps"),
        (task(64, 1), Scheme::Synchronous, "the next that do are 65;"),
        (task(509, 1), Scheme::Synchronous, "the next that do are 511;"),
    ] {
        let division = task.divide(2).expect("it can be divided");
        let why = task.check(scheme, &division).expect_err("it cannot be").to_string();
        assert!(why.contains(told), "{why}");
    }
    let task = task(63, 1);
    assert!(task.check(Scheme::Synchronous, &task.divide(8).expect("it can be divided")).is_ok());
    let thin = Task { problem: Problem { n: 511, ..task.problem }, slabs: true, ..task };
    let why = thin.check(Scheme::Synchronous, &thin.divide(256).expect("it can be divided"));
    assert!(why.expect_err("slabs of two points").to_string().contains("255 points"));
}

#[test]
fn the_other_instances_are_solved_too() {
    for instance in [Instance::B, Instance::C] {
        for scheme in [Scheme::Synchronous, Scheme::Asynchronous] {
            let mut case = case(scheme, 3);
            case.task.problem = Problem { instance, n: 11, dt: None };
            holds(case, &solve(case));
        }
    }
}

/// Each time step's solution, as near as numbers allow; the last one.
fn after(problem: &Problem, steps: u32) -> Block {
    let cube = 1..problem.n + 1;
    let mut block = Block::new(problem, [cube.clone(), cube.clone(), cube]);
    for step in 0..steps {
        if step > 0 {
            let before = block.u.clone();
            block.begin_step(&before);
        }
        for _ in 0..2000 {
            if psor(&mut block, 1.0, 0..2) < 1e-16 {
                break;
            }
        }
    }
    block
}

#[test]
fn time_steps_follow_each_other_by_every_scheme() {
    for (instance, dt, steps) in [(Instance::A, 1e-2, 5), (Instance::B, 1e-3, 7), (Instance::D, 1e-2, 4)] {
        let problem = Problem { instance, n: 11, dt: Some(dt) };
        let reference = after(&problem, steps);
        for scheme in [Scheme::Synchronous, Scheme::Asynchronous, Scheme::Bounded(3), Scheme::Hybrid] {
            for (method, members, parts) in
                [(Method::Richardson, 1, 1), (Method::Psor, 2, 2), (Method::Richardson, 4, 8)]
            {
                let task = Task { problem, method, slabs: false, inner: 1, steps };
                let case = Case { task, scheme, members, parts, bound: 1e-6 };
                let solution = solve(case);
                let what = format!("{instance:?} {scheme:?} {method:?} {members}");
                let pairs = solution.whole.u.iter().zip(&reference.u);
                let off = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert_eq!(solution.steps.len(), steps as usize, "{what}");
                let bounds: Vec<f64> = solution.steps.iter().map(|step| step.bound).collect();
                assert!(bounds.iter().all(|bound| *bound <= case.bound), "{what}: {bounds:?}");
                assert!(off <= solution.certificate.bound + 1e-12, "{what}: {off} {bounds:?}");
                assert_eq!(solution.error.is_some(), instance == Instance::D, "{what}");
            }
        }
    }
}

#[test]
fn time_steps_in_step_have_the_bits_of_one_alone() {
    let problem = Problem { instance: Instance::B, n: 12, dt: Some(2e-3) };
    let task = Task { problem, method: Method::Richardson, slabs: false, inner: 1, steps: 6 };
    let case = Case { task, scheme: Scheme::Synchronous, members: 1, parts: 1, bound: 1e-5 };
    let alone = solve(case);
    for (members, parts) in [(2, 2), (3, 12)] {
        let together = solve(Case { members, parts, ..case });
        assert!(together.whole.u == alone.whole.u, "{members} {parts}");
        assert_eq!(together.steps, alone.steps);
    }
}

#[test]
fn time_steps_are_refused_where_they_cannot_be() {
    let problem = Problem { instance: Instance::D, n: 15, dt: None };
    let task = Task { problem, method: Method::Richardson, slabs: false, inner: 1, steps: 1 };
    let division = task.divide(2).expect("it can be divided");
    let why = task.check(Scheme::Synchronous, &division).expect_err("no time").to_string();
    assert!(why.contains("needs time steps"), "{why}");
    let timed = Task { problem: Problem { dt: Some(0.1), ..problem }, ..task };
    assert!(timed.check(Scheme::Asynchronous, &division).is_ok());
    let multigrid = Task { method: Method::Multigrid, ..timed };
    let why = multigrid.check(Scheme::Synchronous, &division).expect_err("multigrid").to_string();
    assert!(why.contains("no time steps yet"), "{why}");
    for (dt, steps) in
        [(None, 2), (Some(0.0), 1), (Some(-1.0), 1), (Some(1e-320), 1), (Some(0.1), 0), (Some(0.1), 5000)]
    {
        let task = Task { problem: Problem { dt, ..problem }, steps, ..task };
        assert!(Task::parse(&task.to_bytes()).is_err(), "{dt:?} {steps}");
    }
}
