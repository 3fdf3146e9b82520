//! The instances: -Lap u >= f, u >= phi, equal in one of the two everywhere, u = g on the boundary of a cube; by the 7-point difference star on n points
//! in each direction between the faces.
//!
//! With a time step the same from one time to the next, by implicit Euler: (u - v)/dt - Lap u >= f, where v is what there was before.

use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Beyond this distance the obstacle of [`Instance::A`] goes on as a line.
const STRAIGHT: f64 = 0.9;

/// Which data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Instance {
    /// A ball under a membrane on (-2, 2)^3; the solution is known: the ball's surface as far as 1/sqrt 2 from the middle, 1/(2 r) from there on.
    A,
    /// The unit cube, a load of -10, and a floor at -0.2.
    B,
    /// As B without a floor: no obstacle, the slowest to converge.
    C,
    /// From one time to the next only: what is warm in the middle of the unit cube cools down, without load and obstacle. The solution is known.
    D,
}

/// An instance on n points in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// Which data.
    pub instance: Instance,
    /// Points between two faces.
    pub n: usize,
    /// The time step, if it is of one time to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dt: Option<f64>,
}

impl Problem {
    /// Half the length of an edge of the cube.
    pub fn half(&self) -> f64 {
        match self.instance {
            Instance::A => 2.0,
            Instance::B | Instance::C | Instance::D => 0.5,
        }
    }

    /// The distance of two points.
    pub fn h(&self) -> f64 {
        2.0 * self.half() / (self.n + 1) as f64
    }

    /// Where the point with this number is, from the middle of the cube; 0 and n + 1 are on the boundary.
    pub fn place(&self, i: usize) -> f64 {
        // the same from both sides, so that what is symmetric stays so
        (2.0 * i as f64 - (self.n + 1) as f64) * self.half() / (self.n + 1) as f64
    }

    /// The load.
    pub fn load(&self) -> f64 {
        match self.instance {
            Instance::A | Instance::D => 0.0,
            Instance::B | Instance::C => -10.0,
        }
    }

    /// The obstacle.
    pub fn obstacle(&self, [x, y, z]: [f64; 3]) -> f64 {
        match self.instance {
            Instance::A => {
                let square = x * x + y * y + z * z;
                if square <= STRAIGHT * STRAIGHT {
                    return (1.0 - square).sqrt();
                }
                let edge = (1.0 - STRAIGHT * STRAIGHT).sqrt();
                edge - (square.sqrt() - STRAIGHT) * STRAIGHT / edge
            }
            Instance::B => -0.2,
            Instance::C | Instance::D => f64::MIN,
        }
    }

    /// What the membrane is fixed to at the boundary.
    pub fn boundary(&self, at: [f64; 3]) -> f64 {
        self.exact(at).unwrap_or(0.0)
    }

    /// The solution of the problem between the points, too, where it is known.
    pub fn exact(&self, [x, y, z]: [f64; 3]) -> Option<f64> {
        let square = x * x + y * y + z * z;
        match self.instance {
            Instance::A if square <= 0.5 => Some((1.0 - square).sqrt()),
            Instance::A => Some(0.5 / square.sqrt()),
            Instance::B | Instance::C | Instance::D => None,
        }
    }

    /// The solution between points and times, after so many time steps from what is there first, where it is known.
    pub fn exact_after(&self, steps: u32, at: [f64; 3]) -> Option<f64> {
        match (self.dt, self.instance) {
            (None, _) => self.exact(at),
            (Some(dt), Instance::D) => Some((-3.0 * PI * PI * dt * f64::from(steps)).exp() * self.first(at)),
            _ => None,
        }
    }

    /// What an iteration begins with, or the first time step: the larger of the obstacle and zero, which is below the solution of A and above that of B and C; of D what is to cool
    /// down.
    pub fn first(&self, at: [f64; 3]) -> f64 {
        match self.instance {
            Instance::D => at.iter().map(|x| (PI * x).cos()).product(),
            _ => self.obstacle(at).max(0.0),
        }
    }

    /// The square of the points' distance by the time step; 0 without one.
    pub fn mass(&self) -> f64 {
        self.dt.map_or(0.0, |dt| self.h() * self.h() / dt)
    }

    /// The factor of over-relaxation that is best without an obstacle.
    pub fn omega(&self) -> f64 {
        let angle = PI / (self.n + 1) as f64;
        if self.dt.is_none() {
            return 2.0 / (1.0 + angle.sin());
        }
        let jacobi = 6.0 * angle.cos() / (6.0 + self.mass());
        2.0 / (1.0 + (1.0 - jacobi * jacobi).sqrt())
    }
}
