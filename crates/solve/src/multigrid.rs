//! Projected multigrid: the full approximation scheme of Brandt and Cryer (SIAM J. Sci. Stat. Comput. 4, 1983), of all parts together.
//!
//! A coarse grid has each second point of the finer one, so that n + 1 is halved: `coarse i` is `fine 2 i`, and a part has the coarse points whose fine
//! ones it has. The obstacle of a coarse grid is the finer one's in these points. A V cycle smooths by projected Gauss-Seidel in two colours, hands down the
//! values (in the same points) and the residual (full weighting), and takes back the change (trilinear).
//!
//! Two things make the solution of the fine grid a fixed point, and keep the contact set what the smoothing finds: where a point is at the obstacle and
//! pulled into it, its residual is that of the obstacle's force and is not handed down, and the coarse point in its place is held where it
//! is; and a point in contact takes nothing back.
//!
//! What parts exchange (layers between the colours, those of residuals and of changes) is as in one grid of all points, and no sum depends on who
//! computes it: so the values have the same bits for any number of parts. The grids of 15 points and less, and those of which some part would have no
//! point, are solved whole by every process: all have the same there.

use crate::block::{Block, Face};
use crate::divide::Division;
use crate::problem::Problem;
use crate::values::Values;
use polyrail_p2p::Link;
use std::ops::Range;

mod level;

use level::{
    Level, SWEEPS, coarsen, copy, cycle_whole, hand_down, prolong, relax, residual, restrict, rows,
    take_change,
};

/// Points in each direction from which on a grid is not divided.
const SMALL: usize = 15;
/// Points in each direction of the last grid, at most: each process solves it alone, by over-relaxation.
pub const COARSEST: usize = 63;
/// The tags of a cycle's exchanges begin after those by face: some twenty for each grid.
const TAGS: u16 = 6;
/// Those of nested iteration: what goes by one tag always has one length.
const NEST_TAGS: u16 = 1024;

/// Grids of n, and how far they halve: points in each direction.
fn halvings(n: usize) -> Vec<usize> {
    std::iter::successors(Some(n), |n| (*n > 1 && !n.is_multiple_of(2)).then(|| (*n - 1) / 2)).collect()
}

/// Whether so many points halve far enough; else the next number of points that does.
///
/// # Errors
/// That number.
pub fn halves(n: usize) -> Result<(), usize> {
    let does = |n: usize| halvings(n).last().is_some_and(|last| *last <= COARSEST);
    if does(n) { Ok(()) } else { Err((n..).find(|n| does(*n)).unwrap_or(n)) }
}

/// How the parts of this process reach the others. In step: a receive waits for what was sent in the same iteration.
pub trait Exchange {
    /// Why it can fail.
    type Error;

    /// Sends; once for each link and iteration.
    ///
    /// # Errors
    /// The other is gone.
    fn send(&mut self, link: Link, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Receives what was sent.
    ///
    /// # Errors
    /// The other is gone.
    fn receive(&mut self, link: Link, into: &mut [u8]) -> Result<(), Self::Error>;

    /// One part of each other process that has some.
    fn elsewhere(&self) -> Vec<u32>;

    /// Lets others hear that this process is there, in long computations.
    ///
    /// # Errors
    /// Another is gone.
    fn breathe(&mut self) -> Result<(), Self::Error>;
}

/// What a part has of all divided grids, the finest first.
struct Grids {
    number: u32,
    beyond: Vec<(Face, u32)>,
    levels: Vec<Level>,
}

/// The grids of a process's parts.
pub struct Multigrid {
    parts: Vec<Grids>,
    /// How many grids are divided. Where that is none, the finest is one of those below, too.
    divided: usize,
    /// The grids that each process has whole, the finest first.
    whole: Vec<Level>,
    /// Which part has which points of the first of those.
    shares: Vec<[Range<usize>; 3]>,
    tag: u16,
    bytes: Vec<u8>,
}

fn all(n: usize) -> [Range<usize>; 3] {
    [1..n + 1, 1..n + 1, 1..n + 1]
}

/// How many of the grids are divided, and what parts have of the first that is not.
fn divide(sizes: &[usize], division: &Division) -> (usize, Vec<[Range<usize>; 3]>) {
    let mut shares: Vec<_> = (0..division.parts()).map(|part| division.points(part)).collect();
    let mut divided = 0;
    while sizes[divided] > SMALL && divided + 1 < sizes.len() {
        divided += 1;
        shares.iter_mut().for_each(|points| *points = coarsen(points));
        if shares.iter().any(|points| points.iter().any(Range::is_empty)) {
            break;
        }
    }
    (divided, shares)
}

/// Points in each direction of the largest grid that each process has whole, of a number that [`halves`].
pub fn whole(n: usize, division: &Division) -> usize {
    let sizes = halvings(n);
    sizes[divide(&sizes, division).0]
}

impl Multigrid {
    /// The grids of these parts.
    ///
    /// The number of points has to be one that [`halves`].
    pub fn new(problem: &Problem, division: &Division, parts: &[u32]) -> Self {
        let sizes = halvings(problem.n);
        let (divided, shares) = divide(&sizes, division);
        let grids = |number: &u32| {
            let mut points = division.points(*number as usize);
            let mut levels = vec![Level::lent()];
            for n in &sizes[1..divided.max(1)] {
                points = coarsen(&points);
                levels.push(Level::new(problem, *n, points.clone()));
            }
            let beyond = |face: Face| Some((face, division.beyond(*number as usize, face)? as u32));
            Grids { number: *number, beyond: Face::ALL.into_iter().filter_map(beyond).collect(), levels }
        };
        Self {
            parts: parts.iter().map(grids).collect(),
            whole: sizes[divided..].iter().map(|n| Level::new(problem, *n, all(*n))).collect(),
            divided,
            shares,
            tag: TAGS,
            bytes: Vec::new(),
        }
    }

    /// One iteration of the parts' blocks, whose layers are what neighbours have: a V cycle, or, `from_nothing`, nested iteration: from the coarsest grid up, a cycle
    /// of each.
    ///
    /// # Errors
    /// Of the exchange; the blocks are then somewhere between.
    pub fn iterate<'a, E: Exchange>(
        &mut self,
        blocks: impl Iterator<Item = &'a mut Block>,
        from_nothing: bool,
        exchange: &mut E,
    ) -> Result<(), E::Error> {
        let mut blocks: Vec<_> = blocks.collect();
        self.lend(&mut blocks);
        self.tag = if from_nothing { NEST_TAGS } else { TAGS };
        let done = if from_nothing { self.nest(exchange) } else { self.cycle(0, exchange) };
        self.lend(&mut blocks);
        done
    }

    fn lend(&mut self, blocks: &mut [&mut Block]) {
        for (part, block) in self.parts.iter_mut().zip(blocks) {
            std::mem::swap(&mut part.levels[0].block, block);
        }
    }

    /// Nested iteration.
    fn nest<E: Exchange>(&mut self, exchange: &mut E) -> Result<(), E::Error> {
        for at in (0..self.whole.len()).rev() {
            let (fine, coarse) = self.whole[at..].split_at_mut(1);
            let fine = &mut fine[0];
            fine.load.fill(fine.block.load);
            if let Some(coarse) = coarse.first() {
                prolong(&coarse.block, &coarse.block.u, &mut fine.block, true);
            }
            cycle_whole(&mut self.whole[at..]);
        }
        let divided = self.divided;
        if divided == 0 {
            self.take_whole();
        }
        for at in (0..divided).rev() {
            if at + 1 < divided {
                self.exchange_wide(at + 1, |level| &mut level.block.u, exchange)?;
            }
            for part in &mut self.parts {
                let (fine, coarse) = part.levels[at..].split_at_mut(1);
                let coarse = &coarse.first().unwrap_or(&self.whole[0]).block;
                let fine = &mut fine[0];
                fine.load.fill(fine.block.load);
                prolong(coarse, &coarse.u, &mut fine.block, true);
                exchange.breathe()?;
            }
            self.exchange_faces(at, exchange)?;
            self.cycle(at, exchange)?;
        }
        Ok(())
    }

    /// A V cycle from a grid on whose layers are those of neighbours; at the end they are not.
    fn cycle<E: Exchange>(&mut self, at: usize, exchange: &mut E) -> Result<(), E::Error> {
        let divided = self.divided;
        if at == divided {
            return self.cycle_gathered(exchange);
        }
        self.smooth(at, exchange)?;
        for part in &mut self.parts {
            residual(&mut part.levels[at]);
            exchange.breathe()?;
        }
        self.exchange_wide(at, |level| &mut level.block.v, exchange)?;
        let is_last = at + 1 == divided;
        for part in &mut self.parts {
            let (fine, coarse) = part.levels[at..].split_at_mut(1);
            let coarse = coarse.first_mut().unwrap_or(&mut self.whole[0]);
            restrict(&fine[0].block, coarse);
            exchange.breathe()?;
        }
        if is_last {
            self.gather(true, exchange)?;
            hand_down(&mut self.whole[0]);
            cycle_whole(&mut self.whole);
            take_change(&mut self.whole[0]);
        } else {
            self.exchange_faces(at + 1, exchange)?;
            self.parts.iter_mut().for_each(|part| hand_down(&mut part.levels[at + 1]));
            self.cycle(at + 1, exchange)?;
            self.parts.iter_mut().for_each(|part| take_change(&mut part.levels[at + 1]));
            self.exchange_wide(at + 1, |level| &mut level.change, exchange)?;
        }
        for part in &mut self.parts {
            let (fine, coarse) = part.levels[at..].split_at_mut(1);
            let coarse = coarse.first().unwrap_or(&self.whole[0]);
            prolong(&coarse.block, &coarse.change, &mut fine[0].block, false);
            exchange.breathe()?;
        }
        self.exchange_faces(at, exchange)?;
        self.smooth_after(at, exchange)
    }

    /// A cycle where the finest grid is one that every process has whole.
    fn cycle_gathered<E: Exchange>(&mut self, exchange: &mut E) -> Result<(), E::Error> {
        for part in &self.parts {
            copy(&part.levels[0].block.points, &part.levels[0].block, &mut self.whole[0].block);
        }
        self.gather(false, exchange)?;
        let whole = &mut self.whole[0];
        whole.load.fill(whole.block.load);
        cycle_whole(&mut self.whole);
        self.take_whole();
        Ok(())
    }

    fn take_whole(&mut self) {
        for part in &mut self.parts {
            let block = &mut part.levels[0].block;
            copy(&block.points.clone(), &self.whole[0].block, block);
        }
    }

    /// Sweeps; layers are exchanged after each.
    fn smooth<E: Exchange>(&mut self, at: usize, exchange: &mut E) -> Result<(), E::Error> {
        for _ in 0..SWEEPS {
            self.sweep(at, exchange)?;
            self.exchange_faces(at, exchange)?;
        }
        Ok(())
    }

    /// Sweeps; layers are exchanged between them.
    fn smooth_after<E: Exchange>(&mut self, at: usize, exchange: &mut E) -> Result<(), E::Error> {
        self.sweep(at, exchange)?;
        for _ in 1..SWEEPS {
            self.exchange_faces(at, exchange)?;
            self.sweep(at, exchange)?;
        }
        Ok(())
    }

    fn sweep<E: Exchange>(&mut self, at: usize, exchange: &mut E) -> Result<(), E::Error> {
        if let [part] = &mut self.parts[..]
            && part.beyond.is_empty()
        {
            // where nobody is beyond, both colours can be one way through the memory
            relax(&mut part.levels[at], 0..2);
            return exchange.breathe();
        }
        for colour in 0..2 {
            if colour > 0 {
                self.exchange_faces(at, exchange)?;
            }
            for part in &mut self.parts {
                relax(&mut part.levels[at], colour..colour + 1);
                exchange.breathe()?;
            }
        }
        Ok(())
    }

    fn next_tag(&mut self) -> u16 {
        self.tag += 1;
        self.tag - 1
    }

    /// Exchanges the layers of values.
    fn exchange_faces<E: Exchange>(&mut self, at: usize, exchange: &mut E) -> Result<(), E::Error> {
        let tag = self.next_tag();
        for part in &self.parts {
            for (face, beyond) in &part.beyond {
                part.levels[at].block.pack(*face, &mut self.bytes);
                exchange.send(Link::new(part.number, *beyond).tagged(tag), &self.bytes)?;
            }
        }
        for part in &mut self.parts {
            for (face, beyond) in &part.beyond {
                let block = &mut part.levels[at].block;
                self.bytes.resize(block.face_len(*face) * 8, 0);
                exchange.receive(Link::new(*beyond, part.number).tagged(tag), &mut self.bytes)?;
                block.unpack(*face, &self.bytes);
            }
        }
        Ok(())
    }

    /// Exchanges layers with their edges and corners: direction after direction.
    fn exchange_wide<E: Exchange>(
        &mut self,
        at: usize,
        which: fn(&mut Level) -> &mut Values,
        exchange: &mut E,
    ) -> Result<(), E::Error> {
        for axis in 0..3 {
            let tag = self.next_tag();
            for part in &mut self.parts {
                let level = &mut part.levels[at];
                for (face, beyond) in part.beyond.iter().filter(|(face, _)| face.axis == axis) {
                    let values = std::mem::take(which(level));
                    level.block.pack_wide(&values, *face, &mut self.bytes);
                    *which(level) = values;
                    exchange.send(Link::new(part.number, *beyond).tagged(tag), &self.bytes)?;
                }
            }
            for part in &mut self.parts {
                let level = &mut part.levels[at];
                for (face, beyond) in part.beyond.iter().filter(|(face, _)| face.axis == axis) {
                    self.bytes.resize(level.block.wide_len(*face) * 8, 0);
                    exchange.receive(Link::new(*beyond, part.number).tagged(tag), &mut self.bytes)?;
                    let mut values = std::mem::take(which(level));
                    level.block.unpack_wide(&mut values, *face, &self.bytes);
                    *which(level) = values;
                }
            }
        }
        Ok(())
    }

    /// All processes get what the others' parts have of the first whole grid: values, and loads if these were handed down.
    fn gather<E: Exchange>(&mut self, with_loads: bool, exchange: &mut E) -> Result<(), E::Error> {
        let elsewhere = exchange.elsewhere();
        let Some(first) = self.parts.first().map(|part| part.number) else { return Ok(()) };
        let tag = self.next_tag();
        let Level { block, load, .. } = &mut self.whole[0];
        let rows = |block: &Block, part: u32| rows(block, &self.shares[part as usize]);
        if !elsewhere.is_empty() {
            for part in &self.parts {
                self.bytes.clear();
                for row in rows(block, part.number) {
                    self.bytes.extend(block.u[row.clone()].iter().flat_map(|value| value.to_le_bytes()));
                    if with_loads {
                        self.bytes.extend(load[row].iter().flat_map(|value| value.to_le_bytes()));
                    }
                }
                for to in &elsewhere {
                    exchange.send(Link::new(part.number, *to).tagged(tag), &self.bytes)?;
                }
            }
        }
        for other in 0..self.shares.len() as u32 {
            if self.parts.iter().any(|part| part.number == other) {
                continue;
            }
            let values: usize = rows(block, other).map(|row| row.len()).sum();
            self.bytes.resize(values * if with_loads { 16 } else { 8 }, 0);
            exchange.receive(Link::new(other, first).tagged(tag), &mut self.bytes)?;
            let mut values = self
                .bytes
                .chunks_exact(8)
                .map(|bytes| f64::from_le_bytes(*bytes.first_chunk().expect("eight")));
            for row in rows(block, other) {
                block.u[row.clone()].iter_mut().zip(&mut values).for_each(|(to, from)| *to = from);
                if with_loads {
                    load[row].iter_mut().zip(&mut values).for_each(|(to, from)| *to = from);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Instance;
    use crate::sweep::{distance, psor};
    use std::collections::HashMap;

    /// There are no others.
    struct Alone;

    impl Exchange for Alone {
        type Error = std::convert::Infallible;

        fn send(&mut self, _: Link, _: &[u8]) -> Result<(), Self::Error> {
            unreachable!("there is nobody beyond")
        }

        fn receive(&mut self, _: Link, _: &mut [u8]) -> Result<(), Self::Error> {
            unreachable!("there is nobody beyond")
        }

        fn elsewhere(&self) -> Vec<u32> {
            Vec::new()
        }

        fn breathe(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    /// All parts are here.
    #[derive(Default)]
    struct Inside {
        sent: HashMap<Link, Vec<u8>>,
        /// Receives are posted ahead: what goes by a link has one length in all iterations.
        lengths: HashMap<Link, usize>,
    }

    impl Exchange for Inside {
        type Error = std::convert::Infallible;

        fn send(&mut self, link: Link, bytes: &[u8]) -> Result<(), Self::Error> {
            assert_eq!(*self.lengths.entry(link).or_insert(bytes.len()), bytes.len(), "{link:?}");
            assert!(self.sent.insert(link, bytes.to_vec()).is_none(), "{link:?} twice");
            Ok(())
        }

        fn receive(&mut self, link: Link, into: &mut [u8]) -> Result<(), Self::Error> {
            into.copy_from_slice(&self.sent.remove(&link).expect("it was sent"));
            Ok(())
        }

        fn elsewhere(&self) -> Vec<u32> {
            Vec::new()
        }

        fn breathe(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    #[test]
    fn parts_have_the_bits_of_one_alone() {
        for (n, parts) in [(33, 2), (31, 8), (47, 12), (39, 5), (31, 31)] {
            let (problem, mut multigrid, mut block) = alone(Instance::B, n);
            let division = if parts == 31 { Division::slabs(n, parts) } else { Division::boxes(n, parts) };
            let division = division.expect("it can be divided");
            let numbers: Vec<_> = (0..parts as u32).collect();
            let mut together = Multigrid::new(&problem, &division, &numbers);
            let mut blocks: Vec<_> =
                (0..parts).map(|part| Block::new(&problem, division.points(part))).collect();
            let mut inside = Inside::default();
            for iteration in 0..3 {
                // each begins with what neighbours have
                let whole = block.clone();
                for part in &mut blocks {
                    let wide = part.points.clone().map(|points| points.start - 1..points.end + 1);
                    copy(&wide, &whole, part);
                }
                cycle(&mut multigrid, &mut block, iteration == 0);
                let Ok(()) = together.iterate(blocks.iter_mut(), iteration == 0, &mut inside);
                assert!(inside.sent.is_empty(), "something was sent and not received");
                for part in &blocks {
                    let mut of_whole = part.clone();
                    copy(&part.points, &block, &mut of_whole);
                    assert!(of_whole.u == part.u, "{n} points in {parts} parts, iteration {iteration}");
                }
            }
        }
    }

    fn alone(instance: Instance, n: usize) -> (Problem, Multigrid, Block) {
        let problem = Problem { instance, n, dt: None };
        let division = Division::boxes(n, 1).expect("one");
        (problem, Multigrid::new(&problem, &division, &[0]), Block::new(&problem, all(n)))
    }

    fn cycle(multigrid: &mut Multigrid, block: &mut Block, from_nothing: bool) {
        let Ok(()) = multigrid.iterate(std::iter::once(block), from_nothing, &mut Alone);
    }

    #[test]
    fn each_cycle_leaves_less_than_half() {
        for instance in [Instance::A, Instance::B, Instance::C] {
            for n in [31, 63] {
                let (_, mut multigrid, mut block) = alone(instance, n);
                cycle(&mut multigrid, &mut block, true);
                let mut before = distance(&block);
                for _ in 0..5 {
                    cycle(&mut multigrid, &mut block, false);
                    let after = distance(&block);
                    assert!(after < 0.5 * before, "{instance:?} {n}: {before} {after}");
                    before = after;
                }
            }
        }
    }

    #[test]
    fn from_nothing_a_cycle_of_each_grid_is_as_good_as_the_difference_star() {
        // what the difference star is wrong by: two other programs have the same
        for (n, star) in [(31, 5.2288e-3), (63, 1.0283e-3)] {
            let (problem, mut multigrid, mut block) = alone(Instance::A, n);
            let error = |block: &Block| {
                let mut values = block.inner(&block.u);
                let mut most = 0.0_f64;
                for at in (1..=n).flat_map(|z| (1..=n).flat_map(move |y| (1..=n).map(move |x| [x, y, z]))) {
                    let exact = problem.exact(at.map(|i| problem.place(i))).expect("it is known");
                    most = most.max((values.next().expect("a value") - exact).abs());
                }
                most
            };
            cycle(&mut multigrid, &mut block, true);
            assert!(error(&block) < 1.1 * star, "{n}: {}", error(&block));
            while distance(&block) > 1e-8 {
                cycle(&mut multigrid, &mut block, false);
            }
            assert!((error(&block) - star).abs() < 1e-3 * star, "{n}: {}", error(&block));
        }
    }

    #[test]
    fn any_number_of_points_that_is_not_large_is_solved() {
        for n in [1, 2, 3, 5, 6, 12, 16, 33] {
            for instance in [Instance::A, Instance::B, Instance::C] {
                let (_, mut multigrid, mut block) = alone(instance, n);
                cycle(&mut multigrid, &mut block, true);
                let mut cycles = 1;
                while distance(&block) > 1e-11 {
                    cycle(&mut multigrid, &mut block, false);
                    cycles += 1;
                    assert!(cycles < 30, "{instance:?} {n}: {}", distance(&block));
                }
            }
        }
    }

    #[test]
    fn the_solution_is_where_it_stays() {
        let (problem, mut multigrid, mut block) = alone(Instance::A, 31);
        while psor(&mut block, problem.omega(), 0..2) > 1e-16 && distance(&block) > 1e-15 {}
        let before = block.u.clone();
        cycle(&mut multigrid, &mut block, false);
        let off = before.iter().zip(&block.u).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 1e-13, "{off}");
    }

    #[test]
    fn how_far_points_halve() {
        assert!([1, 2, 12, 63, 65, 127, 255, 511, 1023, 2047].iter().all(|n| halves(*n).is_ok()));
        for (n, next) in [(64, 65), (100, 101), (128, 131), (250, 251), (512, 527), (2046, 2047)] {
            assert_eq!(halves(n), Err(next));
        }
    }
}
