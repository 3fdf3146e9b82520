//! What tests of all crates share: `skip`, how one says that it is skipped ([`lacking`], [`by_chance`]); `built`, where what cargo builds of other crates is that it runs
//! ([`built`]). Tests alone depend on it.
#![forbid(unsafe_code)]

mod built;
mod skip;

pub use built::built;
pub use skip::{by_chance, lacking};
