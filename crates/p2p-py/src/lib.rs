//! The calls of `polyrail-p2p` for Python: the compiled part of the package `polyrail_p2p`, whose Python part is in `python/`.
//!
//! | module | |
//! |---|---|
//! | `array` | the bytes of NumPy's arrays, where they are |
//! | `error` | errors as exceptions; waits that signals end |
//! | `founding` | meeting: `found`, `join`, `start`, `Founding` |
//! | `given` | what Python gives as links, schemes, seconds |
//! | `peers` | the calls |
//! | `told` | what calls return |
//!
//! Invariants:
//! - A call that may wait does so without Python's lock, and looks for signals ten times each second.
//! - What was made in another process is not used, and not closed either: a child of `fork` has its parent's connections.
#![forbid(unsafe_code)]

mod array;
mod error;
mod founding;
mod given;
mod held;
mod peers;
mod told;

/// The module, `polyrail_p2p._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::founding::{Founding, found, join, start};
    #[pymodule_export]
    use crate::peers::Peers;
    #[pymodule_export]
    use crate::told::{Change, Job, Received, Verdict};
}
