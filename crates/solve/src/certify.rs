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

use crate::problem::Problem;

/// Operations of a step whose rounding can add up, by size of the values in a point.
const ROUNDINGS: f64 = 8.0;

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
    6.0 / (h * h) * (3.0 * half * half / 6.0) + 1.0
}

/// What may be wrong with a distance that was computed.
fn rounding() -> f64 {
    ROUNDINGS * LARGEST * f64::EPSILON / 2.0
}

/// The certificate of a distance.
pub fn certificate(problem: &Problem, distance: f64) -> Certificate {
    // the last factor is for the roundings of this line
    Certificate { distance, bound: (distance + rounding()) * factor(problem) * (1.0 + 8.0 * f64::EPSILON) }
}

/// The distance at which the certificate's bound is no more than this; none where roundings alone are more.
pub fn tolerance(problem: &Problem, bound: f64) -> Option<f64> {
    let distance = bound / (factor(problem) * (1.0 + 16.0 * f64::EPSILON)) - rounding();
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
            let problem = Problem { instance, n };
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
            let problem = Problem { instance: Instance::A, n };
            for bound in [1e-2, 1e-4, usual(&problem)] {
                let distance = tolerance(&problem, bound).expect("it is large enough");
                let back = certificate(&problem, distance).bound;
                assert!(back <= bound && back > bound * 0.999, "{n} {bound} {back}");
            }
            assert_eq!(tolerance(&problem, 1e-17), None);
        }
    }
}
