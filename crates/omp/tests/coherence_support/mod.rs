//! Ranks of an OpenMP program in one process, in any order; see `coherence_schedules.rs`.
pub mod memory;
pub mod oracle;
pub mod plan;
pub mod program;
pub mod random;
pub mod slot;
pub mod world;
