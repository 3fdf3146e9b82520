//! The obstacle problem: of all membranes over an obstacle, fixed at the boundary of a cube and under a load, the one with the least energy. In each point
//! it is at the obstacle or above it, pulled down where it touches, and in balance where it does not.
//!
//! | module | |
//! |---|---|
//! | [`problem`] | the instances, their points and data |
//! | [`block`] | a box of points with a layer of its neighbours' around it |
//! | [`sweep`] | what is done to a block in an iteration, and how far it is from a solution |
//! | `pass` | several sweeps as one pass through memory, by the processor's widest vectors |
//! | [`values`] | room for values, in huge pages |
//! | [`divide`] | boxes for parts, and which share a face |
//! | [`certify`] | from what is left after an iteration to an enclosure of the solution |
//! | [`multigrid`] | the same on coarser and coarser grids, of all parts together |
//! | [`run`] | a process's share of a run: its blocks, iteration by iteration |
//! | [`gather`] | what the one who looks on makes of it: progress, the whole solution |
//! | [`output`] | files: for ParaView, pictures |
//!
//! Invariants:
//! - A certificate holds for the numbers that are given out, rounding included, by whatever method and scheme they came about.
#![forbid(unsafe_code)]

pub mod block;
pub mod certify;
pub mod divide;
pub mod gather;
pub mod multigrid;
pub mod output;
mod pass;
pub mod problem;
pub mod run;
pub mod sweep;
pub mod values;
