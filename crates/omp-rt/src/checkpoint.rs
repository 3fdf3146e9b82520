//! Checkpoints: what is to be kept of a run at the end of a region, and going on from there in a new one (docs/omp.md, "Checkpoints"; decision 28).
//!
//! Between regions the program is rank 0's first thread, the memory that ranks share, what rank 0's libraries have of their own, what rank 0's kernel keeps for it, and the storage of
//! all ranks' threads. All that is written by rank 0 (`save`). A new run starts as any, up to before `main`; then rank 0 puts all of it back and goes on where it was written (`resume`), and
//! other ranks hear of memory when the next region begins, as they always do. Of the runtime's own state nothing is kept: it is that of a run whose first region is to come.
//!
//! | module | does |
//! |---|---|
//! | `when` | whether it is time; what the agent has been told |
//! | `threads` | storage of threads of the team, of all ranks |
//! | `own` | memory of rank 0's process that ranks do not share |
//! | `descriptors` | open files |
//! | `process` | what else the kernel keeps: signals, the working directory, mappings, limits |
//! | `save`, `resume` | all of it, into a file and back |
//! | `jump` | from one stack to another |

mod descriptors;
mod jump;
mod own;
mod process;
mod resume;
mod save;
mod threads;
mod when;

use crate::{pthread, run};
pub use resume::resume;
pub use threads::{gather, receive};
pub use when::flags;

/// All ranks, in the first thread, before `main`.
pub fn begin() {
    if !run::is_to_be_kept() {
        return;
    }
    threads::begin();
    pthread::begin();
    if run::rank() == 0 {
        crate::track::note_changes();
        process::begin();
        descriptors::begin();
        when::begin();
    }
}

/// Rank 0's first thread, in serial code, when a region of several threads has ended: writes one, if it is time. A run that goes on from it goes on behind this call.
pub fn point() {
    if run::rank() == 0 && when::is_time() {
        // SAFETY: `save` comes back, here or in another process with the same stack
        unsafe { jump::here(save::save) };
    }
}
