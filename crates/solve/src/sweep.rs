//! What is done to a block in an iteration.
//!
//! The measure of how far a block is from a solution is everywhere the same: the largest change that one step of projected Richardson with the step
//! h^2 / 6 (projected Jacobi) would make. It is what [`certify`](crate::certify) makes an enclosure of.

use crate::block::Block;
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
    /// need: there, and where a block does several sweeps by itself, the factor is 1 (Gauss-Seidel), which does.
    Psor,
    /// Projected multigrid, V cycles of all parts together, after nested iteration: see [`multigrid`](crate::multigrid). In step only.
    Multigrid,
}

/// One step of projected Richardson; the largest change.
pub fn richardson(block: &mut Block) -> f64 {
    let [nx, ny, nz] = block.size();
    let (row, plane) = block.strides();
    let mut most = 0.0_f64;
    for z in 0..nz {
        for y in 0..ny {
            let at = block.row(y, z);
            let line = |from: usize| &block.u[from..from + nx];
            let stencil = Stencil {
                middle: line(at),
                around: [
                    line(at - 1),
                    line(at + 1),
                    line(at - row),
                    line(at + row),
                    line(at - plane),
                    line(at + plane),
                ],
                phi: &block.phi[at..at + nx],
                load: block.load,
            };
            most = most.max(stencil.step(&mut block.v[at..at + nx]));
        }
    }
    std::mem::swap(&mut block.u, &mut block.v);
    copy_layer(block);
    most
}

/// The largest change that a step of projected Richardson would make.
pub fn distance(block: &Block) -> f64 {
    let [nx, ny, nz] = block.size();
    let (row, plane) = block.strides();
    let mut most = 0.0_f64;
    for z in 0..nz {
        for y in 0..ny {
            let at = block.row(y, z);
            for i in at..at + nx {
                let new = value(&block.u, i, row, plane, block.load).max(block.phi[i]);
                most = most.max((new - block.u[i]).abs());
            }
        }
    }
    most
}

/// The points of these colours by projected successive over-relaxation with this factor; the largest change, by the factor.
pub fn psor(block: &mut Block, omega: f64, colours: Range<usize>) -> f64 {
    let [nx, ny, nz] = block.size();
    let (row, plane) = block.strides();
    let mut most = 0.0_f64;
    for colour in colours {
        for z in 0..nz {
            for y in 0..ny {
                let at = block.row(y, z);
                let sum = block.points[0].start + block.points[1].start + y + block.points[2].start + z;
                for i in (at + (sum + colour) % 2..at + nx).step_by(2) {
                    let old = block.u[i];
                    let new = old + omega * (value(&block.u, i, row, plane, block.load) - old);
                    block.u[i] = new.max(block.phi[i]);
                    most = most.max((block.u[i] - old).abs());
                }
            }
        }
    }
    most / omega
}

/// What would balance a point.
fn value(u: &[f64], i: usize, row: usize, plane: usize, load: f64) -> f64 {
    ((u[i - 1] + u[i + 1]) + (u[i - row] + u[i + row]) + (u[i - plane] + u[i + plane]) + load) * (1.0 / 6.0)
}

/// A row and those around it.
struct Stencil<'a> {
    middle: &'a [f64],
    around: [&'a [f64]; 6],
    phi: &'a [f64],
    load: f64,
}

impl Stencil<'_> {
    /// The row anew; the largest change. All slices are as long as `new`, so that the compiler makes vectors of it.
    fn step(&self, new: &mut [f64]) -> f64 {
        /// Largest changes are kept apart, as many as a vector has room for: a maximum in one chain would have each point wait for the one before.
        const APART: usize = 8;
        let len = new.len();
        let [a, b, c, d, e, f] = self.around.map(|line| &line[..len]);
        let (middle, phi) = (&self.middle[..len], &self.phi[..len]);
        let at = |i: usize| {
            (((a[i] + b[i]) + (c[i] + d[i]) + (e[i] + f[i]) + self.load) * (1.0 / 6.0)).max(phi[i])
        };
        let mut most = [0.0_f64; APART];
        let whole = len / APART * APART;
        for start in (0..whole).step_by(APART) {
            for (lane, most) in most.iter_mut().enumerate() {
                let i = start + lane;
                let value = at(i);
                let change = (value - middle[i]).abs();
                *most = if change > *most { change } else { *most };
                new[i] = value;
            }
        }
        for i in whole..len {
            new[i] = at(i);
            most[0] = most[0].max((new[i] - middle[i]).abs());
        }
        most.into_iter().fold(0.0, f64::max)
    }
}

/// The layer belongs to both: what was swapped away goes on with what neighbours said last.
fn copy_layer(block: &mut Block) {
    let [nx, ny, nz] = block.size();
    let (row, plane) = block.strides();
    let (u, v) = (&mut block.u, &block.v);
    u[..plane].copy_from_slice(&v[..plane]);
    u[(nz + 1) * plane..].copy_from_slice(&v[(nz + 1) * plane..]);
    for z in 1..=nz {
        let at = z * plane;
        u[at..at + row].copy_from_slice(&v[at..at + row]);
        let at = z * plane + (ny + 1) * row;
        u[at..at + row].copy_from_slice(&v[at..at + row]);
        for y in 1..=ny {
            let at = z * plane + y * row;
            u[at] = v[at];
            u[at + nx + 1] = v[at + nx + 1];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Instance, Problem};

    fn whole(instance: Instance, n: usize) -> (Problem, Block) {
        let problem = Problem { instance, n };
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
                assert!((distance - change).abs() <= 1e-15, "{distance} {change}");
            }
        }
    }
}
