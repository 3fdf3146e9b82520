//! Calls that ask MPI whether something has come, and return. Who asks may have something else to do, and has it wait if he is put to sleep for long: the provider is told that
//! he asks.

use std::cell::Cell;
use std::ffi::c_int;

use polyrail_pmpi::real;

use crate::library::asking;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// As long as this thread asks.
struct Asks;

impl Asks {
    #[inline]
    fn begin() -> Self {
        if DEPTH.replace(DEPTH.get() + 1) == 0 {
            asking(true);
        }
        Self
    }
}

impl Drop for Asks {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            asking(false);
        }
    }
}

macro_rules! asks {
    ($($mpi:ident $pmpi:ident($($word:ident),*))*) => {$(
        asks!(@export $mpi calls $pmpi($($word),*));
        asks!(@export $pmpi calls $pmpi($($word),*));
    )*};
    (@export $name:ident calls $pmpi:ident($($word:ident),*)) => {
        /// See the MPI standard.
        ///
        /// # Safety
        /// As of the MPI function.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "MPI's name")]
        pub unsafe extern "C-unwind" fn $name($($word: usize),*) -> c_int {
            let _asks = Asks::begin();
            // SAFETY: the program's own call
            unsafe { real!($pmpi: fn($(asks!(@word $word)),*) -> c_int)($($word),*) }
        }
    };
    (@word $word:ident) => { usize };
}

asks! {
    MPI_Test PMPI_Test(request, flag, status)
    MPI_Testall PMPI_Testall(count, requests, flag, statuses)
    MPI_Testany PMPI_Testany(count, requests, index, flag, status)
    MPI_Testsome PMPI_Testsome(count, requests, done, indices, statuses)
    MPI_Request_get_status PMPI_Request_get_status(request, flag, status)
    MPI_Iprobe PMPI_Iprobe(source, tag, comm, flag, status)
    MPI_Improbe PMPI_Improbe(source, tag, comm, flag, message, status)
}
