//! A box of points with one layer around it: of the cube's boundary, or of what neighbours have.

use crate::problem::Problem;
use crate::values::Values;
use std::ops::Range;

/// One of a box's six: by direction (x, y, z), and whether it is the one with the higher numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Face {
    /// 0 for x, 1 for y, 2 for z.
    pub axis: usize,
    /// Whether at the higher end.
    pub high: bool,
}

impl Face {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self { axis: 0, high: false },
        Self { axis: 0, high: true },
        Self { axis: 1, high: false },
        Self { axis: 1, high: true },
        Self { axis: 2, high: false },
        Self { axis: 2, high: true },
    ];

    /// The neighbour's that lies on this one.
    #[must_use]
    pub fn across(self) -> Self {
        Self { high: !self.high, ..self }
    }
}

/// A box of points.
#[derive(Debug, Clone)]
pub struct Block {
    /// Which points, by direction; the cube's are 1 to n.
    pub points: [Range<usize>; 3],
    /// Values of the points and of the layer, x fastest.
    pub u: Values,
    /// Room for as many, that sweeps use as they like; nothing in it lasts.
    pub v: Values,
    /// The obstacle.
    pub phi: Values,
    /// The load, times the square of the points' distance.
    pub load: f64,
    /// The same of each place, and what was there before the time step by the mass; none: there is no time step, and the load is everywhere the same.
    pub loads: Values,
    /// The square of the points' distance by the time step, or 0.
    pub mass: f64,
}

impl Block {
    /// The box with these points of a problem.
    pub fn new(problem: &Problem, points: [Range<usize>; 3]) -> Self {
        let layer = |axis: usize| points[axis].start - 1..=points[axis].end;
        let len = points.iter().map(|points| points.len() + 2).product();
        let (mut u, mut phi) = (Values::zeros(len), Values::zeros(len));
        let mut places = u.iter_mut().zip(phi.iter_mut());
        for z in layer(2) {
            for y in layer(1) {
                for x in layer(0) {
                    let at = [x, y, z].map(|i| problem.place(i));
                    let edge = [x, y, z].iter().any(|i| *i == 0 || *i == problem.n + 1);
                    let (u, phi) = places.next().expect("as many as there are points");
                    *u = if edge { problem.boundary(at) } else { problem.first(at) };
                    *phi = problem.obstacle(at);
                }
            }
        }
        let load = problem.load() * problem.h() * problem.h();
        let mass = problem.mass();
        let mut block = Self { points, u, v: Values::zeros(len), phi, load, loads: Values::default(), mass };
        if problem.dt.is_some() {
            block.loads = Values::zeros(len);
            block.load_from_u();
        }
        block
    }

    /// A time step begins with these values of all places.
    pub fn begin_step(&mut self, with: &Values) {
        self.u.clone_from(with);
        self.load_from_u();
    }

    fn load_from_u(&mut self) {
        let (load, mass) = (self.load, self.mass);
        self.loads.iter_mut().zip(self.u.iter()).for_each(|(to, u)| *to = load + mass * u);
    }

    /// By what the sum of a point's neighbours and its load is multiplied, to balance it.
    pub fn inverse(&self) -> f64 {
        1.0 / (6.0 + self.mass)
    }

    /// Points in each direction.
    pub fn size(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.points[axis].len())
    }

    /// Places from a row to the next, and from a plane to the next.
    pub fn strides(&self) -> (usize, usize) {
        let [x, y, _] = self.size();
        (x + 2, (x + 2) * (y + 2))
    }

    /// Where the first point of a row is.
    pub fn row(&self, y: usize, z: usize) -> usize {
        let (row, plane) = self.strides();
        (z + 1) * plane + (y + 1) * row + 1
    }

    /// Points of a face.
    pub fn face_len(&self, face: Face) -> usize {
        (0..3).filter(|axis| *axis != face.axis).map(|axis| self.points[axis].len()).product()
    }

    /// Points of a face with the layer's in the directions before its own.
    pub fn wide_len(&self, face: Face) -> usize {
        let wide = |axis: usize| self.points[axis].len() + if axis < face.axis { 2 } else { 0 };
        (0..3).filter(|axis| *axis != face.axis).map(wide).product()
    }

    /// Runs of places, of the points next to a face or of the layer beyond it: each run is in one row. `wide`: with those of the layer in the
    /// directions before the face's.
    fn runs(&self, face: Face, beyond: bool, wide: bool) -> impl Iterator<Item = Range<usize>> + use<> {
        let size = self.size();
        let (row, plane) = self.strides();
        let end = |axis: usize| match (face.axis == axis, face.high, beyond) {
            (false, ..) if wide && axis < face.axis => 0..size[axis] + 2,
            (false, ..) => 1..size[axis] + 1,
            (true, false, true) => 0..1,
            (true, false, false) => 1..2,
            (true, true, true) => size[axis] + 1..size[axis] + 2,
            (true, true, false) => size[axis]..size[axis] + 1,
        };
        let (x, y, z) = (end(0), end(1), end(2));
        z.flat_map(move |z| y.clone().map(move |y| (y, z)))
            .map(move |(y, z)| z * plane + y * row + x.start..z * plane + y * row + x.end)
    }

    /// The points next to a face, as bytes.
    pub fn pack(&self, face: Face, into: &mut Vec<u8>) {
        into.clear();
        into.reserve(self.face_len(face) * 8);
        for run in self.runs(face, false, false) {
            for value in &self.u[run] {
                into.extend(value.to_le_bytes());
            }
        }
    }

    /// The same of other values of the block's places, with those of the layer in the directions before the face's: where neighbours exchange one
    /// direction after the other, the layer's edges and corners travel with its faces.
    pub(crate) fn pack_wide(&self, of: &[f64], face: Face, into: &mut Vec<u8>) {
        into.clear();
        for run in self.runs(face, false, true) {
            into.extend(of[run].iter().flat_map(|value| value.to_le_bytes()));
        }
    }

    /// Takes what a neighbour packed so.
    pub(crate) fn unpack_wide(&self, into: &mut [f64], face: Face, bytes: &[u8]) {
        let mut values = bytes.chunks_exact(8);
        for run in self.runs(face, true, true) {
            for (to, from) in into[run].iter_mut().zip(&mut values) {
                *to = f64::from_le_bytes(*from.first_chunk().expect("eight bytes"));
            }
        }
    }

    /// Takes a neighbour's points, as bytes, into the layer beyond a face.
    pub fn unpack(&mut self, face: Face, bytes: &[u8]) {
        let mut values = bytes.chunks_exact(8);
        for run in self.runs(face, true, false) {
            for (to, from) in self.u[run].iter_mut().zip(&mut values) {
                *to = f64::from_le_bytes(*from.first_chunk().expect("eight bytes"));
            }
        }
    }

    /// All that an iteration begins with, as bytes: values of the points and of the layer, and with a time step what it is loaded with.
    pub fn state(&self) -> Vec<u8> {
        self.u.iter().chain(self.loads.iter()).flat_map(|value| value.to_le_bytes()).collect()
    }

    /// Goes on from a state.
    ///
    /// # Errors
    /// It is of another block.
    pub fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        let len = (self.u.len() + self.loads.len()) * 8;
        if state.len() != len {
            return Err(format!("a state of {} bytes, where it has {len}", state.len()));
        }
        for (to, from) in self.u.iter_mut().chain(self.loads.iter_mut()).zip(state.chunks_exact(8)) {
            *to = f64::from_le_bytes(*from.first_chunk().expect("eight bytes"));
        }
        Ok(())
    }

    /// The values of the points without the layer, x fastest.
    pub fn inner<'a>(&'a self, of: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        let [x, y, z] = self.size();
        (0..z).flat_map(move |z| (0..y).map(move |y| (y, z))).flat_map(move |(y, z)| {
            let row = self.row(y, z);
            of[row..row + x].iter().copied()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Instance;

    #[test]
    fn what_one_has_at_a_face_the_other_gets_beyond_it() {
        let problem = Problem { instance: Instance::A, n: 7, dt: None };
        for (axis, face) in [(0, Face::ALL[1]), (1, Face::ALL[3]), (2, Face::ALL[5])] {
            let mut low = [1..8, 1..8, 1..8];
            let mut high = low.clone();
            low[axis] = 1..4;
            high[axis] = 4..8;
            let (mut low, mut high) = (Block::new(&problem, low), Block::new(&problem, high));
            // both begin with the same layer: what is changed is seen again at the other
            let mut bytes = Vec::new();
            low.u.iter_mut().for_each(|value| *value += 1.0);
            low.pack(face, &mut bytes);
            assert_eq!(bytes.len(), low.face_len(face) * 8);
            let before = high.clone();
            high.unpack(face.across(), &bytes);
            let changed =
                high.u.iter().zip(&before.u).filter(|(a, b)| (**a - **b - 1.0).abs() < 1e-12).count();
            assert_eq!(changed, high.face_len(face.across()));
            assert_eq!(high.u.iter().zip(&before.u).filter(|(a, b)| a != b).count(), changed);
        }
    }
}
