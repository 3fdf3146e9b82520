//! Several sweeps over a block as one pass through memory, by the processor's widest vectors.
//!
//! # In one pass
//!
//! A sweep alone waits for memory. So a pass takes several, each a *level*, one behind the other: level l is at row y - l of plane z - l while the first is
//! at row y of plane z. Whatever a level reads of the level below it has come then, and nothing it reads was written by a level above; what lies between the
//! first and the last stays in the cache. Rows are taken in strips, so that this is little enough. A strip leans: at level l it begins and ends
//! l rows lower, so that strips can be done one after the other.
//!
//! Over-relaxation has a level for each colour of each iteration, and reads what there is. Richardson wants what there was, in place all the same,
//! because a second array would be a third more of memory to go through: each level keeps a row of the old values for each row of the strip (what the next
//! plane has below it, and the next row beside it), and one for each plane at the strip's end (what the next strip has beside it).
//!
//! # By vectors
//!
//! Rows are computed as many points at a time as a vector of the processor has room for. [`pulp`] has all of this compiled for several instruction
//! sets, and takes that of the processor. The operations are the same, and in the same order, each rounded for itself: so are the bits.
//! A vector is stored when the next one is loaded: stored before, it would have to be waited for, because they overlap, and what is on the left
//! would not be old any more. Where a row is no multiple of vectors, its last points are a vector, too, and some are computed twice.

use crate::block::Block;
use pulp::{Arch, Scalar128b, Simd, WithSimd};

/// Bytes that a strip may take in the cache: most of a core's second.
const CACHE: usize = 384 << 10;
/// Sweeps of Richardson in a pass, at most; twice as many colours.
pub(crate) const DEEP: usize = 8;

/// As many sweeps of projected Richardson; the largest change of the first.
pub(crate) fn richardson(arch: Arch, block: &mut Block, sweeps: usize) -> f64 {
    if block.loads.is_empty() {
        richardson_of::<false>(arch, block, sweeps)
    } else {
        richardson_of::<true>(arch, block, sweeps)
    }
}

/// `EACH`: each point has its own load.
fn richardson_of<const EACH: bool>(arch: Arch, block: &mut Block, mut sweeps: usize) -> f64 {
    let [nx, ny, nz] = block.size();
    let (row, plane) = block.strides();
    let mut first = None;
    while sweeps > 0 {
        // `v` has room for a level's old values where there is one sweep, and in any block of some size for all levels'
        let arrays = 3 + usize::from(EACH);
        let room = |levels: usize| levels * (nz + strip(levels, arrays, row, ny)) <= (ny + 2) * (nz + 2);
        let levels = (1..=sweeps.min(DEEP)).rev().find(|levels| *levels == 1 || room(*levels)).expect("one");
        let strip = strip(levels, arrays, row, ny);
        let inverse = block.inverse();
        let (edges, slots) = block.v.split_at_mut(levels * nz * row);
        let geometry = Geometry { size: [nx, ny, nz], row, plane };
        let load = Load { load: block.load, loads: &block.loads, inverse };
        let richardson =
            Richardson::<EACH> { geometry, u: &mut block.u, phi: &block.phi, load, strip, slots, edges };
        let most = dispatch(arch, Pass { sweep: richardson, ny, nz, levels, strip });
        first.get_or_insert(most);
        sweeps -= levels;
    }
    first.unwrap_or(0.0)
}

/// As many times a colour of over-relaxation with this factor, from this one on and alternating; the largest change of the first two.
pub(crate) fn psor(arch: Arch, block: &mut Block, omega: f64, colour: usize, colours: usize) -> f64 {
    if block.loads.is_empty() {
        psor_of::<false>(arch, block, omega, colour, colours)
    } else {
        psor_of::<true>(arch, block, omega, colour, colours)
    }
}

fn psor_of<const EACH: bool>(
    arch: Arch,
    block: &mut Block,
    omega: f64,
    colour: usize,
    mut colours: usize,
) -> f64 {
    let [nx, ny, nz] = block.size();
    let (row, plane) = block.strides();
    let mut first = None;
    let mut colour = colour + block.points.iter().map(|points| points.start).sum::<usize>();
    while colours > 0 {
        let levels = colours.min(2 * DEEP);
        let strip = strip(levels, 2 + usize::from(EACH), row, ny);
        let geometry = Geometry { size: [nx, ny, nz], row, plane };
        let load = Load { load: block.load, loads: &block.loads, inverse: block.inverse() };
        let psor = Psor::<EACH> { geometry, u: &mut block.u, phi: &block.phi, load, omega, colour };
        let most = dispatch(arch, Pass { sweep: psor, ny, nz, levels, strip });
        first.get_or_insert(most);
        (colours, colour) = (colours - levels, colour + levels);
    }
    first.unwrap_or(0.0)
}

/// The largest change that a sweep of projected Richardson would make.
pub(crate) fn distance(arch: Arch, block: &Block) -> f64 {
    if block.loads.is_empty() {
        dispatch(arch, Distance::<false>(block))
    } else {
        dispatch(arch, Distance::<true>(block))
    }
}

/// By this instruction set. Where there is none of those that [`pulp`] knows, by vectors of two, which every x86-64 and most others have.
fn dispatch<P: WithSimd>(arch: Arch, pass: P) -> P::Output {
    match arch {
        Arch::Scalar => pass.with_simd(Scalar128b),
        arch => arch.dispatch(pass),
    }
}

/// Rows of a strip: what so many arrays have of it between the first level and the last has room in the cache.
fn strip(levels: usize, arrays: usize, row: usize, ny: usize) -> usize {
    (CACHE / ((levels * arrays + 1) * row * size_of::<f64>())).max(2).min(ny)
}

/// Where a level is: in which of the strip's rows, and in the block.
#[derive(Clone, Copy)]
struct At {
    level: usize,
    in_strip: usize,
    y: usize,
    z: usize,
}

/// What a level does to a row.
trait Sweep {
    fn row<V: Simd>(&mut self, simd: V, at: At, most: &mut V::f64s);
}

/// All levels over all rows.
struct Pass<S> {
    sweep: S,
    ny: usize,
    nz: usize,
    levels: usize,
    strip: usize,
}

impl<S: Sweep> WithSimd for Pass<S> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<V: Simd>(mut self, simd: V) -> f64 {
        let Self { ny, nz, levels, strip, .. } = self;
        let mut most = simd.splat_f64s(0.0);
        for begin in (0..ny + levels - 1).step_by(strip) {
            for plane in 0..nz + levels - 1 {
                for in_strip in 0..strip {
                    let row = begin + in_strip;
                    // levels that are not before the first row or plane, nor behind the last
                    let from = (row + 1).saturating_sub(ny).max((plane + 1).saturating_sub(nz));
                    let to = levels.min(row + 1).min(plane + 1);
                    for level in from..to {
                        let at = At { level, in_strip, y: row - level, z: plane - level };
                        self.sweep.row(simd, at, &mut most);
                    }
                }
            }
        }
        largest::<V>(most)
    }
}

struct Geometry {
    size: [usize; 3],
    row: usize,
    plane: usize,
}

/// What a point bears besides its neighbours.
#[derive(Clone, Copy)]
struct Load<'a> {
    /// The load everywhere,
    load: f64,
    /// or that of each place.
    loads: &'a [f64],
    /// See [`Block::inverse`].
    inverse: f64,
}

struct Richardson<'a, const EACH: bool> {
    geometry: Geometry,
    u: &'a mut [f64],
    phi: &'a [f64],
    load: Load<'a>,
    strip: usize,
    /// Old values, by level and row of the strip: of the plane before until this one's row is computed, then of this one.
    slots: &'a mut [f64],
    /// Old values of the last row of the strip before, by level and plane.
    edges: &'a mut [f64],
}

impl<const EACH: bool> Sweep for Richardson<'_, EACH> {
    #[inline(always)]
    fn row<V: Simd>(&mut self, simd: V, At { level, in_strip, y, z }: At, most: &mut V::f64s) {
        let Geometry { size: [nx, _, nz], row, plane } = self.geometry;
        let start = (z + 1) * plane + (y + 1) * row;
        let (before, rest) = self.u.split_at_mut(start);
        let (middle, after) = rest.split_at_mut(row);
        let slot = level * self.strip + in_strip;
        let (slots, old) = self.slots.split_at_mut(slot * row);
        let old = &mut old[..nx];
        if z == 0 {
            old.copy_from_slice(&before[start - plane + 1..][..nx]);
        }
        let edge = &mut self.edges[(level * nz + z) * row..][..nx];
        let south = if y == 0 {
            &before[start - row + 1..][..nx]
        } else if in_strip == 0 {
            &*edge
        } else {
            &slots[(slot - 1) * row..][..nx]
        };
        let around = Around::<EACH> {
            south,
            north: &after[1..][..nx],
            above: &after[plane - row + 1..][..nx],
            phi: &self.phi[start + 1..][..nx],
            load: self.load.of_row::<EACH>(start + 1, nx),
        };
        if level == 0 {
            richardson_row::<V, true, EACH>(simd, middle, old, around, most);
        } else {
            richardson_row::<V, false, EACH>(simd, middle, old, around, most);
        }
        if in_strip + 1 == self.strip {
            edge.copy_from_slice(old);
        }
    }
}

impl Load<'_> {
    /// That of so many places from this one on.
    #[inline(always)]
    fn of_row<const EACH: bool>(&self, start: usize, len: usize) -> Load<'_> {
        Load { loads: if EACH { &self.loads[start..start + len] } else { &[] }, ..*self }
    }
}

/// What is around a row, as far as it is only read.
struct Around<'a, const EACH: bool> {
    south: &'a [f64],
    north: &'a [f64],
    above: &'a [f64],
    phi: &'a [f64],
    load: Load<'a>,
}

impl<const EACH: bool> Around<'_, EACH> {
    /// What would balance a point.
    #[inline(always)]
    fn balance(&self, i: usize, left: f64, right: f64, below: f64) -> f64 {
        let load = if EACH { self.load.loads[i] } else { self.load.load };
        ((left + right) + (self.south[i] + self.north[i]) + (below + self.above[i]) + load)
            * self.load.inverse
    }

    /// What would balance the points from this number on. The row has a point of the layer at each end.
    #[inline(always)]
    fn balance_of_many<V: Simd>(&self, simd: V, row: &[f64], below: &[f64], i: usize) -> V::f64s {
        let x = simd.add_f64s(load::<V>(row, i), load::<V>(row, i + 2));
        let y = simd.add_f64s(load::<V>(self.south, i), load::<V>(self.north, i));
        let z = simd.add_f64s(load::<V>(below, i), load::<V>(self.above, i));
        let load = if EACH { load::<V>(self.load.loads, i) } else { simd.splat_f64s(self.load.load) };
        let sum = simd.add_f64s(simd.add_f64s(simd.add_f64s(x, y), z), load);
        simd.mul_f64s(sum, simd.splat_f64s(self.load.inverse))
    }
}

/// A row anew. `old` has what is below it, and then what it was.
#[inline(always)]
fn richardson_row<V: Simd, const MEASURE: bool, const EACH: bool>(
    simd: V,
    row: &mut [f64],
    old: &mut [f64],
    around: Around<EACH>,
    most: &mut V::f64s,
) {
    let len = old.len();
    let Some(last) = len.checked_sub(V::F64_LANES) else {
        let mut left = row[0];
        for i in 0..len {
            let middle = row[i + 1];
            row[i + 1] = larger(around.balance(i, left, row[i + 2], old[i]), around.phi[i]);
            if MEASURE {
                note(simd, (row[i + 1] - middle).abs(), most);
            }
            (left, old[i]) = (middle, middle);
        }
        return;
    };
    let mut apart = *most;
    let (mut at, mut waiting, mut was) = (0, apart, apart);
    let mut next = 0;
    loop {
        let middle = load::<V>(row, next + 1);
        let balance = around.balance_of_many(simd, row, old, next);
        let new = larger_of_many(simd, balance, load::<V>(around.phi, next));
        if MEASURE {
            apart = simd.max_f64s(simd.abs_f64s(simd.sub_f64s(new, middle)), apart);
        }
        if next > 0 {
            store::<V>(row, at + 1, waiting);
            store::<V>(old, at, was);
        }
        (at, waiting, was) = (next, new, middle);
        if at == last {
            break;
        }
        next = (at + V::F64_LANES).min(last);
    }
    store::<V>(row, at + 1, waiting);
    store::<V>(old, at, was);
    *most = apart;
}

struct Psor<'a, const EACH: bool> {
    geometry: Geometry,
    u: &'a mut [f64],
    phi: &'a [f64],
    load: Load<'a>,
    omega: f64,
    /// That of the first level's first point.
    colour: usize,
}

impl<const EACH: bool> Sweep for Psor<'_, EACH> {
    #[inline(always)]
    fn row<V: Simd>(&mut self, simd: V, At { level, y, z, .. }: At, most: &mut V::f64s) {
        let Geometry { size: [nx, ..], row, plane } = self.geometry;
        let start = (z + 1) * plane + (y + 1) * row;
        let (before, rest) = self.u.split_at_mut(start);
        let (middle, after) = rest.split_at_mut(row);
        let around = Around::<EACH> {
            south: &before[start - row + 1..][..nx],
            north: &after[1..][..nx],
            above: &after[plane - row + 1..][..nx],
            phi: &self.phi[start + 1..][..nx],
            load: self.load.of_row::<EACH>(start + 1, nx),
        };
        let below = &before[start - plane + 1..][..nx];
        let skip = (self.colour + level + y + z) % 2;
        let factors = (self.omega, skip);
        if level < 2 {
            psor_row::<V, true, EACH>(simd, middle, below, around, factors, most);
        } else {
            psor_row::<V, false, EACH>(simd, middle, below, around, factors, most);
        }
    }
}

/// For each point of a colour 1, and of the other 0: from the first on, or the second, for a vector's length.
const COLOURS: [f64; 9] = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0];

/// Every second point of a row; the first, or where one is to `skip`, the second. All are computed, and of the other colour none is taken.
#[inline(always)]
fn psor_row<V: Simd, const MEASURE: bool, const EACH: bool>(
    simd: V,
    row: &mut [f64],
    below: &[f64],
    around: Around<EACH>,
    (omega, skip): (f64, usize),
    most: &mut V::f64s,
) {
    let len = below.len();
    let Some(last) = len.checked_sub(V::F64_LANES) else {
        for i in (skip..len).step_by(2) {
            let old = row[i + 1];
            let balance = around.balance(i, row[i], row[i + 2], below[i]);
            row[i + 1] = larger(old + omega * (balance - old), around.phi[i]);
            if MEASURE {
                note(simd, (row[i + 1] - old).abs(), most);
            }
        }
        return;
    };
    let half = simd.splat_f64s(0.5);
    let taken = [0, 1].map(|skip| simd.greater_than_f64s(load::<V>(&COLOURS, skip), half));
    let omega = simd.splat_f64s(omega);
    let mut apart = *most;
    let (mut at, mut waiting) = (0, apart);
    let mut next = 0;
    loop {
        let middle = load::<V>(row, next + 1);
        let balance = around.balance_of_many(simd, row, below, next);
        let relaxed = simd.add_f64s(middle, simd.mul_f64s(omega, simd.sub_f64s(balance, middle)));
        let relaxed = larger_of_many(simd, relaxed, load::<V>(around.phi, next));
        let new = simd.select_f64s(taken[(skip + next) % 2], relaxed, middle);
        if MEASURE {
            apart = simd.max_f64s(simd.abs_f64s(simd.sub_f64s(new, middle)), apart);
        }
        if next > 0 {
            store::<V>(row, at + 1, waiting);
        }
        (at, waiting) = (next, new);
        if at == last {
            break;
        }
        next = (at + V::F64_LANES).min(last);
    }
    store::<V>(row, at + 1, waiting);
    *most = apart;
}

struct Distance<'a, const EACH: bool>(&'a Block);

impl<const EACH: bool> WithSimd for Distance<'_, EACH> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<V: Simd>(self, simd: V) -> f64 {
        let block = self.0;
        let (u, all_phi): (&[f64], &[f64]) = (&block.u, &block.phi);
        let borne = Load { load: block.load, loads: &block.loads, inverse: block.inverse() };
        let [nx, ny, nz] = block.size();
        let (row, plane) = block.strides();
        let mut most = simd.splat_f64s(0.0);
        for z in 0..nz {
            for y in 0..ny {
                let start = block.row(y, z);
                let line = |from: usize| &u[from..from + nx];
                let middle = &u[start - 1..=start + nx];
                let below = line(start - plane);
                let around = Around::<EACH> {
                    south: line(start - row),
                    north: line(start + row),
                    above: line(start + plane),
                    phi: &all_phi[start..start + nx],
                    load: borne.of_row::<EACH>(start, nx),
                };
                let Some(last) = nx.checked_sub(V::F64_LANES) else {
                    for i in 0..nx {
                        let balance = around.balance(i, middle[i], middle[i + 2], below[i]);
                        note(simd, (larger(balance, around.phi[i]) - middle[i + 1]).abs(), &mut most);
                    }
                    continue;
                };
                let mut i = 0;
                loop {
                    let balance = around.balance_of_many(simd, middle, below, i);
                    let new = larger_of_many(simd, balance, load::<V>(around.phi, i));
                    let change = simd.abs_f64s(simd.sub_f64s(new, load::<V>(middle, i + 1)));
                    most = simd.max_f64s(change, most);
                    if i == last {
                        break;
                    }
                    i = (i + V::F64_LANES).min(last);
                }
            }
        }
        largest::<V>(most)
    }
}

/// The first if it is larger, else the second.
#[inline(always)]
fn larger(first: f64, second: f64) -> f64 {
    if first > second { first } else { second }
}

/// The same of many: not the processor's own maximum, because that may take another of two zeros.
#[inline(always)]
fn larger_of_many<V: Simd>(simd: V, first: V::f64s, second: V::f64s) -> V::f64s {
    simd.select_f64s(simd.greater_than_f64s(first, second), first, second)
}

/// Notes a change of one point.
#[inline(always)]
fn note<V: Simd>(simd: V, change: f64, most: &mut V::f64s) {
    *most = simd.max_f64s(simd.splat_f64s(change), *most);
}

/// Largest changes are kept apart, as many as a vector has: one by one each point would wait for the one before.
#[inline(always)]
fn largest<V: Simd>(most: V::f64s) -> f64 {
    bytemuck::cast_slice(&[most]).iter().copied().fold(0.0, f64::max)
}

#[inline(always)]
fn load<V: Simd>(from: &[f64], i: usize) -> V::f64s {
    bytemuck::pod_read_unaligned(bytemuck::cast_slice(&from[i..i + V::F64_LANES]))
}

#[inline(always)]
fn store<V: Simd>(to: &mut [f64], i: usize, values: V::f64s) {
    to[i..i + V::F64_LANES].copy_from_slice(bytemuck::cast_slice(&[values]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Instance, Problem};
    use proptest::prelude::*;

    /// All instruction sets that this processor has.
    fn sets() -> Vec<Arch> {
        #[allow(unused_mut, reason = "other processors have no more")]
        let mut sets = vec![Arch::Scalar, Arch::new()];
        #[cfg(target_arch = "x86_64")]
        sets.extend(pulp::x86::V3::try_new().map(Arch::V3));
        sets
    }

    /// A sweep as it is said: the change of each point of a colour, and all of them at once where the values are to be old.
    fn plain(block: &mut Block, old: bool, omega: f64, colour: Option<usize>) -> f64 {
        let [nx, ny, nz] = block.size();
        let (row, plane) = block.strides();
        let mut from = block.u.clone();
        let mut most = 0.0_f64;
        for (z, y, x) in (0..nz).flat_map(|z| (0..ny).flat_map(move |y| (0..nx).map(move |x| (z, y, x)))) {
            let first = block.points.iter().map(|points| points.start).sum::<usize>();
            if colour.is_some_and(|colour| (first + x + y + z + colour) % 2 == 1) {
                continue;
            }
            let i = block.row(y, z) + x;
            let sum = (from[i - 1] + from[i + 1]) + (from[i - row] + from[i + row]);
            let load = if block.loads.is_empty() { block.load } else { block.loads[i] };
            let balance = (sum + (from[i - plane] + from[i + plane]) + load) * block.inverse();
            let new = if old { balance } else { from[i] + omega * (balance - from[i]) };
            let new = if new > block.phi[i] { new } else { block.phi[i] };
            most = most.max((new - from[i]).abs());
            block.u[i] = new;
            if !old {
                from[i] = new;
            }
        }
        most
    }

    fn bits(block: &Block) -> Vec<u64> {
        block.u.iter().map(|value| value.to_bits()).collect()
    }

    /// A block somewhere in a problem, with values from a generator of numbers.
    fn random(instance: Instance, first: usize, size: [usize; 3], seed: u64) -> Block {
        let problem = Problem { instance, n: 60, dt: None };
        let mut block = Block::new(&problem, size.map(|len| first..first + len));
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f64 / (1 << 23) as f64 - 1.0) * if state >> 61 == 0 { 0.0 } else { 1.0 }
        };
        block.u.iter_mut().for_each(|value| *value = next());
        block.v.iter_mut().for_each(|value| *value = f64::NAN);
        if seed.is_multiple_of(2) {
            block.mass = 0.3;
            block.loads = block.u.iter().map(|_| next()).collect::<Vec<_>>().into();
        }
        if instance != Instance::C {
            block.phi.iter_mut().for_each(|value| *value = next());
        }
        block
    }

    fn check(block: &Block, sweeps: usize, colour: usize) {
        let (mut once, mut relaxed) = (block.clone(), block.clone());
        let distance_before = plain(&mut block.clone(), true, 1.0, None);
        let mut first = None;
        for _ in 0..sweeps {
            let change = plain(&mut once, true, 1.0, None);
            first.get_or_insert(change);
        }
        let mut two = 0.0_f64;
        for level in 0..sweeps {
            let change = plain(&mut relaxed, false, 1.7, Some(colour + level));
            two = if level < 2 { two.max(change) } else { two };
        }
        for arch in sets() {
            let what = format!("{arch:?}, {:?}, {sweeps} sweeps", block.points);
            assert_eq!(distance(arch, block).to_bits(), distance_before.to_bits(), "{what}");
            let mut other = block.clone();
            assert_eq!(richardson(arch, &mut other, sweeps), first.unwrap_or(0.0), "{what}");
            assert!(bits(&other) == bits(&once), "richardson: {what}");
            let mut other = block.clone();
            assert_eq!(psor(arch, &mut other, 1.7, colour, sweeps), two, "{what}");
            assert!(bits(&other) == bits(&relaxed), "psor: {what}");
        }
    }

    #[test]
    fn thin_blocks_are_right() {
        for size in
            [[1, 1, 1], [1, 1, 9], [1, 9, 1], [9, 1, 1], [17, 2, 1], [17, 1, 2], [8, 40, 40], [3, 2, 30]]
        {
            for sweeps in [0, 1, 2, 7, 8, 9, 17, 33] {
                check(&random(Instance::A, 2, size, 7), sweeps, 0);
            }
        }
    }

    #[test]
    fn strips_that_are_shorter_than_a_plane_are_right() {
        // rows of this length leave some strips in a pass, and several passes
        for size in [[700, 40, 9], [1500, 21, 4]] {
            assert!(strip(DEEP, 3, size[0] + 2, size[1]) < size[1] / 2);
            for sweeps in [1, 2, 8, 11, 16] {
                check(&random(Instance::B, 1, size, 3), sweeps, 1);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]
        #[test]
        fn every_instruction_set_has_the_bits_of_the_plain_sweep(
            which in 0_usize..3,
            first in 1_usize..20,
            size in prop::array::uniform3(1_usize..=40),
            seed in any::<u64>(),
            sweeps in 0_usize..20,
            colour in 0_usize..2,
        ) {
            let instance = [Instance::A, Instance::B, Instance::C][which];
            check(&random(instance, first, size, seed), sweeps, colour);
        }
    }
}
