//! Boxes for parts: each direction is cut into a number of pieces, as equal as they can be.

use crate::block::Face;
use std::ops::Range;

/// A cube of points in boxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    n: usize,
    pieces: [usize; 3],
}

/// Why a cube cannot be divided so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{n} points in each direction cannot be divided into {parts} parts; {n} slabs are the most")]
pub struct Indivisible {
    n: usize,
    parts: usize,
}

impl Division {
    /// Slabs: one direction is divided, z.
    ///
    /// # Errors
    /// There are more than points.
    pub fn slabs(n: usize, parts: usize) -> Result<Self, Indivisible> {
        Self::new(n, [1, 1, parts]).ok_or(Indivisible { n, parts })
    }

    /// Boxes with as little surface as can be.
    ///
    /// # Errors
    /// They would have to be too thin.
    pub fn boxes(n: usize, parts: usize) -> Result<Self, Indivisible> {
        let mut best: Option<(usize, Self)> = None;
        for x in (1..=parts).filter(|x| parts.is_multiple_of(*x)) {
            for y in (1..=parts / x).filter(|y| (parts / x).is_multiple_of(*y)) {
                // rows are best long: what is divided is z before y before x
                let pieces = [x, y, parts / x / y];
                let surface = pieces.iter().sum();
                if let Some(one) = Self::new(n, pieces)
                    && best.as_ref().is_none_or(|(had, _)| surface < *had)
                {
                    best = Some((surface, one));
                }
            }
        }
        best.map(|(_, best)| best).ok_or(Indivisible { n, parts })
    }

    fn new(n: usize, pieces: [usize; 3]) -> Option<Self> {
        pieces.iter().all(|pieces| (1..=n).contains(pieces)).then_some(Self { n, pieces })
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.pieces.iter().product()
    }

    /// Into how many pieces each direction is cut.
    pub fn pieces(&self) -> [usize; 3] {
        self.pieces
    }

    fn place(&self, part: usize) -> [usize; 3] {
        let [x, y, _] = self.pieces;
        [part % x, part / x % y, part / (x * y)]
    }

    /// The points of a part, by direction.
    pub fn points(&self, part: usize) -> [Range<usize>; 3] {
        let place = self.place(part);
        [0, 1, 2].map(|axis| {
            let cut = |at: usize| 1 + self.n * at / self.pieces[axis];
            cut(place[axis])..cut(place[axis] + 1)
        })
    }

    /// The part beyond a face; none at the cube's boundary.
    pub fn beyond(&self, part: usize, face: Face) -> Option<usize> {
        let mut place = self.place(part);
        place[face.axis] = if face.high { place[face.axis] + 1 } else { place[face.axis].checked_sub(1)? };
        let [x, y, _] = self.pieces;
        (place[face.axis] < self.pieces[face.axis]).then(|| place[0] + x * (place[1] + y * place[2]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_points_are_in_one_part_and_neighbours_know_each_other() {
        for (n, parts) in [(7, 1), (7, 8), (10, 6), (13, 5), (9, 27), (255, 64)] {
            for division in [Division::boxes(n, parts), Division::slabs(n, parts.min(n))] {
                let division = division.expect("it can be divided");
                let points = |part| division.points(part).iter().map(Range::len).product::<usize>();
                assert_eq!((0..division.parts()).map(points).sum::<usize>(), n * n * n);
                for part in 0..division.parts() {
                    for face in Face::ALL {
                        let edge = division.points(part)[face.axis].clone();
                        let Some(other) = division.beyond(part, face) else {
                            assert!(if face.high { edge.end == n + 1 } else { edge.start == 1 });
                            continue;
                        };
                        assert_eq!(division.beyond(other, face.across()), Some(part));
                        let (here, there) = (division.points(part), division.points(other));
                        for axis in 0..3 {
                            match axis == face.axis {
                                true if face.high => assert_eq!(here[axis].end, there[axis].start),
                                true => assert_eq!(here[axis].start, there[axis].end),
                                false => assert_eq!(here[axis], there[axis]),
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(Division::boxes(255, 64).expect("it can").pieces(), [4, 4, 4]);
        assert!(Division::slabs(7, 8).is_err() && Division::boxes(2, 27).is_err());
    }
}
