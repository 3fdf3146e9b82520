//! What is done to a block in an iteration.
//!
//! The measure of how far a block is from a solution is everywhere the same: the largest change that one step of projected Richardson with the step
//! h^2 / 6 (projected Jacobi) would make. It is what [`certify`](crate::certify) makes an enclosure of.

use crate::block::Block;
use crate::pass;
use pulp::Arch;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How a block is brought closer to a solution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Projected Richardson: each point anew, from those of the iteration before.
    Richardson,
    /// Projected successive over-relaxation, points of one colour after those of the other. Where all are in step, blocks exchange between the
    /// colours, so that it is what one block alone would do. Over-relaxation does not make all errors less, which is what iterations out of step
    /// need: there, and where one of several blocks does several sweeps by itself, the factor is 1 (Gauss-Seidel), which does.
    Psor,
    /// Projected multigrid, V cycles of all parts together, after nested iteration: see [`multigrid`](crate::multigrid). In step only.
    Multigrid,
}

/// One step of projected Richardson; the largest change.
pub fn richardson(block: &mut Block) -> f64 {
    richardson_many(block, 1)
}

/// Steps of projected Richardson between which nothing comes into the layer; the largest change of the first (0 where there are none). It is what as many
/// times [`richardson`] does, bit by bit, in less time.
pub fn richardson_many(block: &mut Block, sweeps: usize) -> f64 {
    pass::richardson(Arch::new(), block, sweeps)
}

/// The largest change that a step of projected Richardson would make.
pub fn distance(block: &Block) -> f64 {
    pass::distance(Arch::new(), block)
}

/// The points of these colours by projected successive over-relaxation with this factor, even numbers one colour and odd ones the other; the largest
/// change of the first two, by the factor. `0..2` is an iteration, and `0..16` are eight, in less time than one by one.
pub fn psor(block: &mut Block, omega: f64, colours: Range<usize>) -> f64 {
    pass::psor(Arch::new(), block, omega, colours.start, colours.len()) / omega
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Instance, Problem};

    fn whole(instance: Instance, n: usize) -> (Problem, Block) {
        let problem = Problem { instance, n, dt: None };
        (problem, Block::new(&problem, [1..n + 1, 1..n + 1, 1..n + 1]))
    }

    fn error(problem: &Problem, block: &Block) -> f64 {
        let mut values = block.inner(&block.u);
        let mut most = 0.0_f64;
        for z in 1..=problem.n {
            for y in 1..=problem.n {
                for x in 1..=problem.n {
                    let at = [x, y, z].map(|i| problem.place(i));
                    let exact = problem.exact(at).expect("it is known");
                    most = most.max((values.next().expect("a value") - exact).abs());
                }
            }
        }
        most
    }

    #[test]
    fn both_methods_have_the_error_of_the_difference_star() {
        let (problem, mut one) = whole(Instance::A, 31);
        while richardson(&mut one) > 1e-12 {}
        let (_, mut other) = whole(Instance::A, 31);
        while psor(&mut other, problem.omega(), 0..2) > 1e-12 {}
        // 5.2288e-3 is what two other programs have: a multigrid solver and PETSc's SNESVI
        for block in [&one, &other] {
            assert!((error(&problem, block) - 5.2288e-3).abs() < 1e-6, "{}", error(&problem, block));
            assert!(distance(block) < 2e-12);
        }
    }

    #[test]
    fn the_distance_is_the_change_of_the_next_step() {
        for instance in [Instance::A, Instance::B, Instance::C] {
            let (_, mut block) = whole(instance, 13);
            for _ in 0..20 {
                let distance = distance(&block);
                let change = richardson(&mut block);
                assert_eq!(distance.to_bits(), change.to_bits());
            }
        }
    }
}
