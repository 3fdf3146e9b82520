//! What tests of all crates share: `skip`, how one says that it is skipped ([`lacking`], [`by_chance`]); `built`, where what cargo builds of other crates is that it runs
//! ([`built`]); `script`, what is written to be executed ([`executable`]). Tests alone depend on it.
#![forbid(unsafe_code)]

mod built;
mod script;
mod skip;

pub use built::built;
pub use script::executable;
pub use skip::{by_chance, lacking};
