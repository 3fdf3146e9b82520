//! From what is left after an iteration to an enclosure of the solution.
//!
//! Let u* be the solution of the difference equations, A their matrix, and D the largest change that a step of projected Richardson would make to u (with
//! u at the obstacle or above it). Let e be a function with A e >= 1 and e >= 0 at the boundary. Then
//!
//! ```text
//! u - (6 D / h^2) e - D  <=  u*  <=  u + (6 D / h^2) e
//! ```
//!
//! The upper bound is a supersolution: it is above the obstacle, and A of it is at least f. The lower one is a subsolution: where u is no more than
//! D above the obstacle it is not above it, and elsewhere the step is not cut off by the obstacle, so that A u - f is at most 6 D / h^2 and A of the bound at
//! most f. A is an M-matrix, so that both lie on their sides of u* (the comparison principle of obstacle problems; for asynchronous iterations Miellou, El Baz,
//! Spiteri, Math. Comp. 67, 1998). Nothing is asked of how u came about.
//!
//! For e the sum of (L^2 - x^2) / 6 over the three directions is taken, L half an edge of the cube: differences of a square are exact, so A e = 1.

//! # From one time to the next
//!
//! With s = h^2/dt the matrix is A + 1/dt, its step of projected Richardson divides by 6 + s, and the same bounds hold with (6 + s) D / h^2 and an e of which (A + 1/dt) e >= 1. That is
//! dt (1 - cosh(m x)/cosh(m L)) of one direction, where 4 sinh^2(m h/2) = s: differences of a cosh are exact. It is dt R at most, R = 1 - 1/cosh(m L). And as the step
//! changes distances by 6/(6 + s) at most, u is within D (6 + s)/s of the solution. So with v as it was stored, u is within
//!
//! ```text
//! B = D min((1 + 6/s) R + 1, 1 + 6/s)
//! ```
//!
//! of the solution of the time step. That depends on v by R at most: v + |v - w| is above w, and e of the difference bounds what becomes of it. So what is within E of the discrete
//! trajectory at one time is within B + R E of it at the next, from 0 at first. What implicit Euler is wrong by is besides.

use crate::problem::Problem;

/// Operations of a step whose rounding can add up, by size of the values in a point.
const ROUNDINGS: f64 = 8.0;
/// The same where each point has its own load: that, and the factor, are rounded, too.
const ROUNDINGS_OF_TIME: f64 = 12.0;

/// The largest value that is expected of a point: those of the instances are less.
const LARGEST: f64 = 4.0;

/// An enclosure of the solution of the difference equations.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Certificate {
    /// The largest change that a step of projected Richardson would make.
    pub distance: f64,
    /// The solution lies within so much of what is given out, in every point.
    pub bound: f64,
}

/// How much the distance is multiplied by.
fn factor(problem: &Problem) -> f64 {
    let (half, h) = (problem.half(), problem.h());
    if problem.dt.is_some() {
        let contraction = 1.0 + 6.0 / problem.mass();
        return (contraction * decay(problem) + 1.0).min(contraction) * (1.0 + 1e-12);
    }
    6.0 / (h * h) * (3.0 * half * half / 6.0) + 1.0
}

/// How much of an error there is left after a time step, at most.
fn decay(problem: &Problem) -> f64 {
    // the area of the hyperbolic sine, without the standard library's, which needs a C library newer than others of Polyrail's programs
    let sinh = problem.mass().sqrt() / 2.0;
    let m = 2.0 * (sinh + sinh * sinh / (1.0 + (1.0 + sinh * sinh).sqrt())).ln_1p() / problem.h();
    let at = m * problem.half();
    // 1 - 1/cosh, without the difference of what is nearly the same, and without infinity by infinity
    let decay = if at > 30.0 { 1.0 } else { 2.0 * (at / 2.0).sinh().powi(2) / at.cosh() };
    (decay * (1.0 + 1e-12)).min(1.0)
}

/// What may be wrong with a distance that was computed.
fn rounding(problem: &Problem) -> f64 {
    let roundings = if problem.dt.is_some() { ROUNDINGS_OF_TIME } else { ROUNDINGS };
    roundings * LARGEST * f64::EPSILON / 2.0
}

/// The certificate of a distance: of one time step, if it is one, from what it began with.
pub fn certificate(problem: &Problem, distance: f64) -> Certificate {
    // the last factor is for the roundings of this line
    Certificate {
        distance,
        bound: (distance + rounding(problem)) * factor(problem) * (1.0 + 8.0 * f64::EPSILON),
    }
}

/// The certificates of time steps that follow each other, by their distances: each bound is of all steps until then, and of the solution of the difference equations from what the
/// first began with.
pub fn trajectory(problem: &Problem, distances: &[f64]) -> Vec<Certificate> {
    let (decay, mut bound) = (decay(problem), 0.0);
    let step = |distance: &f64| {
        let own = certificate(problem, *distance);
        bound = (own.bound + decay * bound) * (1.0 + 4.0 * f64::EPSILON);
        Certificate { bound, ..own }
    };
    distances.iter().map(step).collect()
}

/// The distance at which the certificate's bound is no more than this, after so many time steps if it is one (else 1); none where roundings alone are more.
pub fn tolerance(problem: &Problem, bound: f64, steps: u32) -> Option<f64> {
    // as much of it for each step
    let decay = if problem.dt.is_some() { decay(problem) } else { 0.0 };
    let all = (0..steps).fold(0.0, |all, _| (1.0 + decay * all) * (1.0 + 4.0 * f64::EPSILON));
    let distance = bound / all / (factor(problem) * (1.0 + 16.0 * f64::EPSILON)) - rounding(problem);
    (distance > 0.0).then_some(distance)
}

/// A bound that is a tenth of what the difference star is wrong by, or less.
pub fn usual(problem: &Problem) -> f64 {
    problem.h() * problem.h() / 25.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;
    use crate::problem::Instance;
    use crate::sweep::{distance, psor, richardson};

    #[test]
    fn the_solution_is_where_the_certificate_says() {
        for (instance, n) in [(Instance::A, 15), (Instance::B, 15), (Instance::C, 11), (Instance::A, 8)] {
            let problem = Problem { instance, n, dt: None };
            let mut solution = Block::new(&problem, [1..n + 1, 1..n + 1, 1..n + 1]);
            while psor(&mut solution, problem.omega(), 0..2) > 1e-16 && distance(&solution) > 1e-15 {}
            let mut block = Block::new(&problem, [1..n + 1, 1..n + 1, 1..n + 1]);
            let mut sharpest = f64::MAX;
            for _ in 0..600 {
                let certificate = certificate(&problem, distance(&block));
                let off = block.u.iter().zip(&solution.u).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                let own = super::certificate(&problem, distance(&solution)).bound;
                assert!(off <= certificate.bound + own, "{problem:?}: {off} {certificate:?}");
                sharpest = sharpest.min(certificate.bound / off);
                richardson(&mut block);
            }
            // and it is not much more than is needed
            assert!(sharpest < 10.0, "{problem:?}: {sharpest}");
        }
    }

    #[test]
    fn a_tolerance_gives_its_bound() {
        for n in [3, 31, 255, 511] {
            let problem = Problem { instance: Instance::A, n, dt: None };
            for bound in [1e-2, 1e-4, usual(&problem)] {
                let distance = tolerance(&problem, bound, 1).expect("it is large enough");
                let back = certificate(&problem, distance).bound;
                assert!(back <= bound && back > bound * 0.999, "{n} {bound} {back}");
            }
            assert_eq!(tolerance(&problem, 1e-17, 1), None);
        }
    }

    /// Each step solved as nearly as numbers allow, from the one before.
    fn solved(problem: &Problem, steps: usize) -> Vec<Block> {
        let cube = 1..problem.n + 1;
        let mut block = Block::new(problem, [cube.clone(), cube.clone(), cube]);
        let mut all = Vec::new();
        for step in 0..steps {
            if step > 0 {
                let before = block.u.clone();
                block.begin_step(&before);
            }
            for _ in 0..2000 {
                if psor(&mut block, 1.0, 0..2) < 1e-17 {
                    break;
                }
            }
            all.push(block.clone());
        }
        all
    }

    #[test]
    fn the_trajectory_is_where_the_certificates_say() {
        for (instance, n, dt) in [
            (Instance::A, 9, 1e-2),
            (Instance::B, 8, 1e-3),
            (Instance::C, 7, 1.0),
            (Instance::D, 9, 1e-4),
            (Instance::D, 8, 0.1),
            (Instance::B, 7, 1e3),
        ] {
            let problem = Problem { instance, n, dt: Some(dt) };
            let steps = solved(&problem, 4);
            let sharp = trajectory(&problem, &steps.iter().map(distance).collect::<Vec<_>>());
            for sweeps in [1, 2, 5, 20, 100] {
                let cube = 1..n + 1;
                let mut block = Block::new(&problem, [cube.clone(), cube.clone(), cube]);
                let mut distances = Vec::new();
                for (step, solution) in steps.iter().enumerate() {
                    if step > 0 {
                        let before = block.u.clone();
                        block.begin_step(&before);
                    }
                    (0..sweeps).for_each(|_| _ = richardson(&mut block));
                    distances.push(distance(&block));
                    let bound = trajectory(&problem, &distances)[step].bound;
                    let off = block.u.iter().zip(&solution.u).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    assert!(off <= bound + sharp[step].bound, "{problem:?} {step} {sweeps}: {off} {bound}");
                    assert!(
                        sweeps < 5 || off < 1e-12 || bound < 60.0 * off,
                        "{problem:?} {step} {sweeps}: {off} {bound}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_cools_down_does_as_is_known() {
        let (n, dt) = (11, 0.01);
        let problem = Problem { instance: Instance::D, n, dt: Some(dt) };
        let w = 12.0 / problem.h().powi(2) * (std::f64::consts::PI * problem.h() / 2.0).sin().powi(2);
        let cube = 1..n + 1;
        let first = Block::new(&problem, [cube.clone(), cube.clone(), cube]);
        for (step, block) in solved(&problem, 5).iter().enumerate() {
            let left = (1.0 + dt * w).powi(-(step as i32 + 1));
            let mut values = block.inner(&block.u).zip(first.inner(&first.u));
            assert!(values.all(|(now, before)| (now - before * left).abs() < 1e-13), "step {step}");
        }
    }

    #[test]
    fn a_tolerance_of_steps_gives_their_bound() {
        for (dt, steps) in [(1e-4, 100), (1e-2, 7), (1e3, 3)] {
            let problem = Problem { instance: Instance::B, n: 31, dt: Some(dt) };
            let distance = tolerance(&problem, 1e-5, steps).expect("it is large enough");
            let last = trajectory(&problem, &vec![distance; steps as usize]).pop().expect("a step").bound;
            assert!(last <= 1e-5 && last > 0.999e-5, "{dt} {steps}: {last}");
        }
    }
}
