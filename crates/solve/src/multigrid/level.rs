//! What is done to one grid, or a part's share of it, and between one and the next coarser: no exchange, and no part but this one.

use crate::block::Block;
use crate::problem::Problem;
use crate::sweep::psor;
use crate::values::Values;
use std::ops::Range;

/// Sweeps before the coarse grid, and after it.
pub(super) const SWEEPS: usize = 2;
/// How much less the changes of the last grid's sweeps have to become.
pub(super) const SOLVED: f64 = 1e-3;
/// Changes that are roundings.
pub(super) const ROUNDING: f64 = 1e-16;
/// The load that holds a point at the obstacle: none that is computed comes near it.
pub(super) const HELD: f64 = -1e300;

/// A grid, or a part's share of it.
pub(super) struct Level {
    /// `u`, `phi`; `v` has the residual where the coarser grid is computed.
    pub(super) block: Block,
    /// The load of each point, times the square of the points' distance; none: the block's, everywhere.
    pub(super) load: Values,
    /// What was handed down, then the change of it.
    pub(super) change: Values,
}

impl Level {
    pub(super) fn new(problem: &Problem, n: usize, points: [Range<usize>; 3]) -> Self {
        let block = Block::new(&Problem { n, ..*problem }, points);
        Self { load: vec![block.load; block.u.len()].into(), change: Values::zeros(block.u.len()), block }
    }

    /// Stands for the finest grid's, which is lent for each cycle.
    pub(super) fn lent() -> Self {
        let block = Block {
            points: [0..0, 0..0, 0..0],
            u: Values::default(),
            v: Values::default(),
            phi: Values::default(),
            load: 0.0,
            loads: Values::default(),
            mass: 0.0,
        };
        Self { block, load: Values::default(), change: Values::default() }
    }
}

/// The points of the coarse grid that are some of the fine one's.
pub(super) fn coarsen(points: &[Range<usize>; 3]) -> [Range<usize>; 3] {
    points.clone().map(|points| points.start.div_ceil(2)..points.end.div_ceil(2))
}

/// A V cycle of grids that are whole.
pub(super) fn cycle_whole(levels: &mut [Level]) {
    let [fine, coarser @ ..] = levels else { return };
    let [coarse, ..] = coarser else { return solve_coarsest(fine) };
    (0..SWEEPS).for_each(|_| relax(fine, 0..2));
    residual(fine);
    restrict(&fine.block, coarse);
    hand_down(coarse);
    cycle_whole(coarser);
    take_change(&mut coarser[0]);
    prolong(&coarser[0].block, &coarser[0].change, &mut fine.block, false);
    (0..SWEEPS).for_each(|_| relax(fine, 0..2));
}

/// The last grid, by over-relaxation.
pub(super) fn solve_coarsest(level: &mut Level) {
    let n = level.block.points[0].len();
    let omega = 2.0 / (1.0 + (std::f64::consts::PI / (n + 1) as f64).sin());
    let mut least = None;
    for _ in 0..8 * n + 16 {
        level.block.v.copy_from_slice(&level.block.u);
        relax_by(level, omega, 0..2);
        let Block { u, v, .. } = &level.block;
        let change = u.iter().zip(v).map(|(u, v)| (u - v).abs()).fold(0.0, f64::max);
        if change <= *least.get_or_insert(change * SOLVED + ROUNDING) {
            break;
        }
    }
}

/// Gauss-Seidel for the points of these colours.
pub(super) fn relax(level: &mut Level, colours: Range<usize>) {
    if level.load.is_empty() {
        psor(&mut level.block, 1.0, colours);
    } else {
        relax_by(level, 1.0, colours);
    }
}

/// As [`psor`], with a load of each point. A row is computed for both colours, and one of them taken: so the compiler makes vectors of it.
pub(super) fn relax_by(level: &mut Level, omega: f64, colours: Range<usize>) {
    let Level { block, load, .. } = level;
    let [nx, ny, nz] = block.size();
    let (row, plane) = block.strides();
    let mut new = vec![0.0; nx];
    let new = &mut new[..nx];
    for colour in colours {
        for z in 0..nz {
            for y in 0..ny {
                let at = block.row(y, z);
                let sum = block.points[0].start + block.points[1].start + y + block.points[2].start + z;
                let skip = (sum + colour) % 2;
                let line = |from: usize| &block.u[from..][..nx];
                let around = [at - 1, at + 1, at - row, at + row, at - plane, at + plane].map(line);
                let [a, b, c, d, e, f] = around;
                let rows = [a, b, c, d, e, f, line(at), &block.phi[at..][..nx], &load[at..][..nx]];
                fill(new, rows, |[a, b, c, d, e, f, middle, phi, load], _| {
                    let value = ((a + b) + (c + d) + (e + f) + load) * (1.0 / 6.0);
                    (middle + omega * (value - middle)).max(phi)
                });
                let u = &mut block.u[at..][..nx];
                for (to, from) in u[skip.min(nx)..].chunks_mut(2).zip(new[skip.min(nx)..].chunks(2)) {
                    to[0] = from[0];
                }
            }
        }
    }
}

/// A row anew, of rows that are as long and what it was. A function of its own, with the rows as arguments: so the compiler knows that what is written is
/// not read as another's, and makes vectors of it.
#[inline(never)]
pub(super) fn fill<const N: usize>(to: &mut [f64], from: [&[f64]; N], value: impl Fn([f64; N], f64) -> f64) {
    let len = to.len();
    let from = from.map(|line| &line[..len]);
    for i in 0..len {
        to[i] = value(from.map(|line| line[i]), to[i]);
    }
}

/// The residual, times the square of the points' distance, into `v`; none where the obstacle bears it, nor in the layer.
pub(super) fn residual(level: &mut Level) {
    let Level { block, load, .. } = level;
    let [nx, ny, nz] = block.size();
    let (row, plane) = block.strides();
    for z in 0..nz {
        for y in 0..ny {
            let at = block.row(y, z);
            let line = |from: usize| &block.u[from..][..nx];
            let around = [at - 1, at + 1, at - row, at + row, at - plane, at + plane].map(line);
            let [a, b, c, d, e, f] = around;
            let (middle, phi) = (line(at), &block.phi[at..][..nx]);
            let to = &mut block.v[at..][..nx];
            // a pull into the obstacle is the obstacle's to bear
            let left = |[a, b, c, d, e, f, middle, phi]: [f64; 8], load: f64| {
                let r = ((a + b) + (c + d) + (e + f) + load) - 6.0 * middle;
                if middle > phi { r } else { r.max(0.0) }
            };
            if load.is_empty() {
                let load = block.load;
                fill(to, [a, b, c, d, e, f, middle, phi], |values, _| left(values, load));
            } else {
                to.copy_from_slice(&load[at..][..nx]);
                fill(to, [a, b, c, d, e, f, middle, phi], left);
            }
        }
    }
    clear_layer(block.size(), &mut block.v);
}

pub(super) fn clear_layer([nx, ny, nz]: [usize; 3], of: &mut [f64]) {
    let (row, plane) = (nx + 2, (nx + 2) * (ny + 2));
    of[..plane].fill(0.0);
    of[(nz + 1) * plane..].fill(0.0);
    for plane in of[plane..(nz + 1) * plane].chunks_exact_mut(plane) {
        plane[..row].fill(0.0);
        plane[(ny + 1) * row..].fill(0.0);
        for row in plane.chunks_exact_mut(row) {
            (row[0], row[nx + 1]) = (0.0, 0.0);
        }
    }
}

/// Hands down values and residuals (into the loads) to the points of the coarse grid that the fine block has.
pub(super) fn restrict(fine: &Block, coarse: &mut Level) {
    let (row, plane) = fine.strides();
    let points = coarsen(&fine.points);
    let [xs, ys, zs] = points.clone();
    let width = fine.size()[0] + 2;
    let mut sums = vec![0.0; width];
    let sums = &mut sums[..width];
    for z in zs {
        for y in ys.clone() {
            let from = fine.row(2 * y - fine.points[1].start, 2 * z - fine.points[2].start) - 1;
            let line = |from: usize| &fine.v[from..][..width];
            let (middle, sides, corners) = (
                line(from),
                [from - row, from + row, from - plane, from + plane].map(line),
                [from - plane - row, from - plane + row, from + plane - row, from + plane + row].map(line),
            );
            let ([a, b, c, d], [e, f, g, h]) = (sides, corners);
            fill(sums, [middle, a, b, c, d, e, f, g, h], |[middle, a, b, c, d, e, f, g, h], _| {
                4.0 * middle + 2.0 * ((a + b) + (c + d)) + ((e + f) + (g + h))
            });
            // the first coarse point's place in the fine row
            let first = 2 * xs.start - (fine.points[0].start - 1);
            let to = coarse_place(&coarse.block, xs.start, y, z);
            let to = to..to + xs.len();
            let values =
                fine.u[from + first..].iter().step_by(2).zip(fine.phi[from + first..].iter().step_by(2));
            let residuals = sums[first - 1..].windows(3).step_by(2);
            let held = middle[first..].iter().step_by(2);
            let out = coarse.block.u[to.clone()].iter_mut().zip(&mut coarse.load[to]);
            for (((u, load), (value, phi)), (residual, held)) in out.zip(values).zip(residuals.zip(held)) {
                *u = *value;
                // the coarse residual is times the square of twice the distance
                let weighted = ((residual[0] + residual[2]) + 2.0 * residual[1]) * (4.0 / 64.0);
                *load = if value <= phi && *held == 0.0 { HELD } else { weighted };
            }
        }
    }
}

/// The place of a point, by its numbers in the cube.
pub(super) fn coarse_place(block: &Block, x: usize, y: usize, z: usize) -> usize {
    let (row, plane) = block.strides();
    let from = |axis: usize| block.points[axis].start - 1;
    (z - from(2)) * plane + (y - from(1)) * row + x - from(0)
}

/// The rows of some points of the cube, as places.
pub(super) fn rows(
    block: &Block,
    [xs, ys, zs]: &[Range<usize>; 3],
) -> impl Iterator<Item = Range<usize>> + use<> {
    let first = coarse_place(block, xs.start, ys.start, zs.start);
    let ((row, plane), len, ys) = (block.strides(), xs.len(), 0..ys.len());
    (0..zs.len())
        .flat_map(move |z| ys.clone().map(move |y| first + z * plane + y * row))
        .map(move |at| at..at + len)
}

/// Copies the values of some points.
pub(super) fn copy(points: &[Range<usize>; 3], from: &Block, to: &mut Block) {
    for (from_row, to_row) in rows(from, points).zip(rows(to, points)) {
        to.u[to_row].copy_from_slice(&from.u[from_row]);
    }
}

/// Makes the coarse problem of what was handed down: its load is that of which the values would leave these residuals.
pub(super) fn hand_down(level: &mut Level) {
    let Level { block, load, change } = level;
    change.copy_from_slice(&block.u);
    let [nx, ny, nz] = block.size();
    let (row, plane) = block.strides();
    for z in 0..nz {
        for y in 0..ny {
            let at = block.row(y, z);
            let line = |from: usize| &block.u[from..][..nx];
            let around = [at - 1, at + 1, at - row, at + row, at - plane, at + plane].map(line);
            let ([a, b, c, d, e, f], middle) = (around, line(at));
            let load = &mut load[at..][..nx];
            fill(load, [middle, a, b, c, d, e, f], |[middle, a, b, c, d, e, f], residual| {
                residual + (6.0 * middle - ((a + b) + (c + d) + (e + f)))
            });
        }
    }
}

/// The change of what was handed down; none in the layer.
pub(super) fn take_change(level: &mut Level) {
    for (change, u) in level.change.iter_mut().zip(&level.block.u) {
        *change = u - *change;
    }
    clear_layer(level.block.size(), &mut level.change);
}

/// Adds a coarse grid's values, between its points too, to those of the fine one that are not in contact; or `anew`, takes them.
pub(super) fn prolong(coarse: &Block, values: &[f64], fine: &mut Block, anew: bool) {
    let [nx, ny, nz] = fine.size();
    let [xs, ys, zs] = fine.points.clone();
    // coarse points on both sides of all fine ones
    let (low, high) = ((xs.start - 1) / 2, xs.end / 2);
    let width = high - low + 1;
    let (mut sums, mut between) = (vec![0.0; width], vec![0.0; 2 * width]);
    let sums = &mut sums[..width];
    let skip = xs.start - 2 * low;
    for z in 0..nz {
        for y in 0..ny {
            let (gy, gz) = (ys.start + y, zs.start + z);
            let line = |y: usize, z: usize| {
                let (row, plane) = coarse.strides();
                let place = |at: usize, axis: usize| at - (coarse.points[axis].start - 1);
                let from = place(z, 2) * plane + place(y, 1) * row + place(low, 0);
                &values[from..][..width]
            };
            let (y0, y1, z0, z1) = (gy / 2, gy.div_ceil(2), gz / 2, gz.div_ceil(2));
            let (a, b, c, d) = (line(y0, z0), line(y1, z0), line(y0, z1), line(y1, z1));
            fill(sums, [a, b, c, d], |[a, b, c, d], _| ((a + b) + (c + d)) * 0.25);
            for (pair, ends) in between.chunks_exact_mut(2).zip(sums.windows(2)) {
                (pair[0], pair[1]) = (ends[0], (ends[0] + ends[1]) * 0.5);
            }
            between[2 * width - 2] = sums[width - 1];
            let at = fine.row(y, z);
            let (u, phi, new) = (&mut fine.u[at..][..nx], &fine.phi[at..][..nx], &between[skip..][..nx]);
            if anew {
                fill(u, [new, phi], |[new, phi], _| new.max(phi));
            } else {
                fill(u, [new, phi], |[new, phi], u| if u > phi { (u + new).max(phi) } else { u });
            }
        }
    }
}
