//! MPI's functions as programs call them: whether an operation is carried out here, else the MPI does.
//!
//! `PMPI_` names end here as well: Fortran bindings of Open MPI and of `mpi_f08` call those, and so do tools that stand before us.

#![allow(
    clippy::duplicate_underscore_argument,
    reason = "words that are only passed on have names for the reader"
)]

use std::cell::Cell;
use std::ffi::{CStr, c_int};

use polyrail_pmpi::{ERR_COUNT, Function, abi, real};

use crate::comm;
use crate::given::{
    Array, Carried, Given, Reduction, Several, Types, is_exchange_wrong, is_exchanged_wrong,
    is_gathered_wrong, is_rooted_several_wrong, is_rooted_wrong, root_of,
};
use crate::library::{Failed, end_progress, entries, progress};
use crate::room;
use crate::team::{Team, told};
use crate::ways;
use crate::what;
use crate::window;

fn carry(
    operation: u8,
    handle: usize,
    is_wrong: impl FnOnce(usize, usize) -> bool,
    run: impl FnOnce(&mut Team) -> Carried,
) -> Option<c_int> {
    if room::room().is_none() || comm::is_over() || abi().handle(handle) == abi().comm_null {
        return None;
    }
    let (mut moved, mut way, mut rank) = (0, None, 0);
    let carried = comm::with_team(handle, is_wrong, |team| {
        team.began();
        let carried = run(team);
        (way, moved, rank) = (Some(team.way()), team.moved(), team.rank);
        carried
    });
    let carried = carried.unwrap_or_else(|none| {
        way = none;
        None
    });
    if let Some(way) = way {
        ways::count(operation, way, moved);
    }
    // who never waits for long calls the MPI now and then all the same: others may wait for what it has to do
    let carried = match carried {
        Some(Ok(())) if is_time() => Some(progress()),
        carried => carried,
    };
    match carried? {
        Ok(()) => Some(0),
        Err(failed) => Some(comm::raise(handle, failed, || explain(failed, rank))),
    }
}

/// Once in so many operations of a thread.
fn is_time() -> bool {
    const OPERATIONS: u32 = 128;
    thread_local! {
        static DONE: Cell<u32> = const { Cell::new(0) };
    }
    let done = DONE.get().wrapping_add(1);
    DONE.set(done);
    done.is_multiple_of(OPERATIONS)
}

fn explain(failed: Failed, rank: usize) -> String {
    match failed {
        Failed::Mpi(code) => format!("an operation of rank {rank} failed with code {code}"),
        Failed::Message(code) => {
            format!("rank {rank} cannot send to other hosts, or receive: MPI's code {code}")
        }
        Failed::Length { expected, came } => {
            format!("an operation is of {expected} bytes at rank {rank}, and of {came} on another host")
        }
        Failed::Memory { rank: other, why } => {
            format!("rank {rank} does not reach the memory of rank {other}: {why}")
        }
        Failed::Longer { rank: other, came, expected } => {
            format!("rank {rank} wants {expected} bytes of rank {other}, which sends {came}")
        }
        Failed::Gone => format!("a rank on the host of rank {rank} has ended while others wait for it"),
        Failed::Unequal { sent, received } => {
            format!("rank {rank} sends {sent} bytes to itself and wants to receive {received} from itself")
        }
        Failed::Differs { rank: other, expected, found } => {
            let call = |tag| {
                let (operation, root, bytes) = told(tag);
                format!("{} (root {root}, {bytes} bytes or more)", what::name(operation))
            };
            // the same text whichever of the two finds it out first
            let mut calls = [(rank, call(expected)), (other, call(found))];
            calls.sort_unstable();
            let [one, two] = calls.map(|(rank, call)| format!("rank {rank} {call}"));
            format!("the ranks of a communicator call different operations: {one}, {two}")
        }
    }
}

macro_rules! collectives {
    ($($mpi:ident $pmpi:ident $mpi_c:ident $pmpi_c:ident($($word:ident),*) [$($count:ident),*]
        $(each [$($array:ident),*] if |$at:ident| $significant:expr;)? of $comm:ident
        $given:ident = $what:expr; wrong |$rank:ident, $size:ident| $wrong:expr; |$team:ident| $run:expr;)*) => {$(
        collectives!(@export $mpi as $mpi $pmpi($($word),*) of $comm |$rank, $size| $given {
            $(let $count = i64::from($count as u32 as i32);)*
            $($(let $array = Array { at: $array, wide: false };)*)?
            $what
        }
            wrong $wrong; |$team| $run; else {});
        collectives!(@export $mpi as $mpi_c $pmpi_c($($word),*) of $comm |$rank, $size| $given {
            $(let $count = $count as i64;)*
            $($(let $array = Array { at: $array, wide: true };)*)?
            $what
        }
            wrong $wrong; |$team| $run; else {
            static LARGE: Function = Function::new(
                // SAFETY: the literal ends with a zero and has no other
                unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($pmpi_c), "\0").as_bytes()) }
            );
            // some programs (mpi4py) call these where they exist, and they exist because we are here
            if LARGE.address().is_null() {
                if ![$($count),*].into_iter().all(is_int) {
                    return ERR_COUNT;
                }
                $(
                    let Some(n) = entries($comm, |$at| $significant) else { return ERR_COUNT };
                    let narrow = |at| Array { at, wide: true }.narrow(n);
                    let Some(narrow) = [$($array),*].into_iter().map(narrow).collect::<Option<Vec<_>>>() else {
                        return ERR_COUNT;
                    };
                    let mut narrow_at = narrow.iter().map(|array| array.as_ptr() as usize);
                    $(let $array = narrow_at.next().unwrap_or($array);)*
                )?
                // SAFETY: the same call, whose counts are words that fit
                return unsafe { real!($pmpi: fn($(collectives!(@word $word)),*) -> c_int)($($word),*) };
            }
        });
    )*};
    (@export $name:ident as $mpi:ident $pmpi:ident($($word:ident),*) of $comm:ident |$rank:ident, $size:ident| $given:ident $what:block
        wrong $wrong:expr; |$team:ident| $run:expr; else $first:block) => {
        // a call of one by the other's name would be led to who stands before us
        const _: () = {
            #[allow(clippy::too_many_arguments, reason = "they are MPI's")]
            unsafe fn call($($word: usize),*) -> c_int {
                const OPERATION: u8 = what::of(stringify!($name));
                let $given = $what;
                match carry(OPERATION, $comm, |$rank, $size| $wrong, |$team| $run) {
                    Some(code) => code,
                    None => {
                        $first
                        // SAFETY: the program's own call
                        unsafe { real!($pmpi: fn($(collectives!(@word $word)),*) -> c_int)($($word),*) }
                    }
                }
            }

            /// See the MPI standard.
            ///
            /// # Safety
            /// As of the MPI function.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "MPI's name")]
            pub unsafe extern "C-unwind" fn $mpi($($word: usize),*) -> c_int {
                // SAFETY: the program's own call
                unsafe { call($($word),*) }
            }

            /// See the MPI standard.
            ///
            /// # Safety
            /// As of the MPI function.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "MPI's name")]
            pub unsafe extern "C-unwind" fn $pmpi($($word: usize),*) -> c_int {
                // SAFETY: the program's own call
                unsafe { call($($word),*) }
            }
        };
    };
    (@word $word:ident) => { usize };
}

collectives! {
    MPI_Bcast PMPI_Bcast MPI_Bcast_c PMPI_Bcast_c(buffer, count, datatype, root, comm) [count] of comm
        given = Given { at: buffer, count, datatype };
        wrong |_rank, size| given.is_wrong() || root_of(root, size).is_none();
        |team| team.try_bcast(given, root);
    MPI_Reduce PMPI_Reduce MPI_Reduce_c PMPI_Reduce_c(from, into, count, datatype, operation, root, comm) [count] of comm
        given = Reduction::new(from, into, count, datatype, operation);
        wrong |rank, size| root_of(root, size).is_none_or(|root| given.is_wrong(rank == root));
        |team| team.try_reduce(given, root);
    MPI_Allreduce PMPI_Allreduce MPI_Allreduce_c PMPI_Allreduce_c(from, into, count, datatype, operation, comm) [count] of comm
        given = Reduction::new(from, into, count, datatype, operation);
        wrong |_rank, _size| given.is_wrong(true);
        |team| team.try_allreduce(given);
    MPI_Reduce_scatter_block PMPI_Reduce_scatter_block MPI_Reduce_scatter_block_c PMPI_Reduce_scatter_block_c
        (from, into, count, datatype, operation, comm) [count] of comm
        given = Reduction::new(from, into, count, datatype, operation);
        wrong |_rank, _size| given.is_wrong(true);
        |team| team.try_reduce_scatter_block(given);
    MPI_Reduce_scatter PMPI_Reduce_scatter MPI_Reduce_scatter_c PMPI_Reduce_scatter_c(from, into, counts, datatype, operation, comm) []
        each [counts] if |_rank| true; of comm
        given = (Reduction::new(from, into, 1, datatype, operation), counts);
        wrong |rank, size| given.0.is_scattered_wrong(&given.1, rank, size);
        |team| team.try_reduce_scatter(given.0, given.1);
    MPI_Scan PMPI_Scan MPI_Scan_c PMPI_Scan_c(from, into, count, datatype, operation, comm) [count] of comm
        given = Reduction::new(from, into, count, datatype, operation);
        wrong |_rank, _size| given.is_wrong(true);
        |team| team.try_scan(given, true);
    MPI_Exscan PMPI_Exscan MPI_Exscan_c PMPI_Exscan_c(from, into, count, datatype, operation, comm) [count] of comm
        given = Reduction::new(from, into, count, datatype, operation);
        wrong |rank, _size| given.is_wrong(rank > 0 || given.from.is_in_place());
        |team| team.try_scan(given, false);
    MPI_Gather PMPI_Gather MPI_Gather_c PMPI_Gather_c(from, count, datatype, into, room, kind, root, comm) [count, room] of comm
        given = (Given { at: from, count, datatype }, Given { at: into, count: room, datatype: kind });
        wrong |rank, size| is_rooted_wrong(&given.0, &given.1, root, rank, size);
        |team| team.try_gather(given.0, given.1, root);
    MPI_Scatter PMPI_Scatter MPI_Scatter_c PMPI_Scatter_c(from, count, datatype, into, room, kind, root, comm) [count, room] of comm
        given = (Given { at: from, count, datatype }, Given { at: into, count: room, datatype: kind });
        wrong |rank, size| is_rooted_wrong(&given.1, &given.0, root, rank, size);
        |team| team.try_scatter(given.0, given.1, root);
    MPI_Allgather PMPI_Allgather MPI_Allgather_c PMPI_Allgather_c(from, count, datatype, into, room, kind, comm) [count, room] of comm
        given = (Given { at: from, count, datatype }, Given { at: into, count: room, datatype: kind });
        wrong |rank, _size| is_exchange_wrong(&given.0, &given.1, rank);
        |team| team.try_allgather(given.0, given.1);
    MPI_Alltoall PMPI_Alltoall MPI_Alltoall_c PMPI_Alltoall_c(from, count, datatype, into, room, kind, comm) [count, room] of comm
        given = (Given { at: from, count, datatype }, Given { at: into, count: room, datatype: kind });
        wrong |_rank, _size| is_exchange_wrong(&given.0, &given.1, 0);
        |team| team.try_alltoall(given.0, given.1);
    MPI_Gatherv PMPI_Gatherv MPI_Gatherv_c PMPI_Gatherv_c(from, count, datatype, into, counts, places, kind, root, comm) [count]
        each [counts, places] if |rank| root_of(root, usize::MAX) == Some(rank); of comm
        given = (Given { at: from, count, datatype }, Several { at: into, counts, places, types: Types::One(kind) });
        wrong |rank, size| is_rooted_several_wrong(&given.0, &given.1, root, rank, size);
        |team| team.try_gatherv(given.0, given.1, root);
    MPI_Scatterv PMPI_Scatterv MPI_Scatterv_c PMPI_Scatterv_c(from, counts, places, datatype, into, room, kind, root, comm) [room]
        each [counts, places] if |rank| root_of(root, usize::MAX) == Some(rank); of comm
        given = (Several { at: from, counts, places, types: Types::One(datatype) }, Given { at: into, count: room, datatype: kind });
        wrong |rank, size| is_rooted_several_wrong(&given.1, &given.0, root, rank, size);
        |team| team.try_scatterv(given.0, given.1, root);
    MPI_Allgatherv PMPI_Allgatherv MPI_Allgatherv_c PMPI_Allgatherv_c(from, count, datatype, into, counts, places, kind, comm) [count]
        each [counts, places] if |_rank| true; of comm
        given = (Given { at: from, count, datatype }, Several { at: into, counts, places, types: Types::One(kind) });
        wrong |rank, size| is_gathered_wrong(&given.0, &given.1, rank, size);
        |team| team.try_allgatherv(given.0, given.1);
    MPI_Alltoallv PMPI_Alltoallv MPI_Alltoallv_c PMPI_Alltoallv_c
        (from, counts, places, datatype, into, their_counts, their_places, kind, comm) []
        each [counts, places, their_counts, their_places] if |_rank| true; of comm
        given = (
            Several { at: from, counts, places, types: Types::One(datatype) },
            Several { at: into, counts: their_counts, places: their_places, types: Types::One(kind) },
        );
        wrong |_rank, size| is_exchanged_wrong(&given.0, &given.1, size);
        |team| team.try_alltoallv(what::ALLTOALLV, given.0, given.1);
    MPI_Alltoallw PMPI_Alltoallw MPI_Alltoallw_c PMPI_Alltoallw_c
        (from, counts, places, datatypes, into, their_counts, their_places, kinds, comm) []
        each [counts, places, their_counts, their_places] if |_rank| true; of comm
        given = (
            Several { at: from, counts, places, types: Types::Each(datatypes) },
            Several { at: into, counts: their_counts, places: their_places, types: Types::Each(kinds) },
        );
        wrong |_rank, size| is_exchanged_wrong(&given.0, &given.1, size);
        |team| team.try_alltoallv(what::ALLTOALLW, given.0, given.1);
}

/// Functions without counts, and what happens before or after the library's own.
macro_rules! others {
    ($($mpi:ident $pmpi:ident($($word:ident),*) |$next:ident| $run:expr;)*) => {$(
        const _: () = {
            unsafe fn call($($word: usize),*) -> c_int {
                let $next = || {
                    // SAFETY: the program's own call
                    unsafe { real!($pmpi: fn($(collectives!(@word $word)),*) -> c_int)($($word),*) }
                };
                $run
            }

            /// See the MPI standard.
            ///
            /// # Safety
            /// As of the MPI function.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "MPI's name")]
            pub unsafe extern "C-unwind" fn $mpi($($word: usize),*) -> c_int {
                // SAFETY: the program's own call
                unsafe { call($($word),*) }
            }

            /// See the MPI standard.
            ///
            /// # Safety
            /// As of the MPI function.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "MPI's name")]
            pub unsafe extern "C-unwind" fn $pmpi($($word: usize),*) -> c_int {
                // SAFETY: the program's own call
                unsafe { call($($word),*) }
            }
        };
    )*};
}

/// The function with large counts, or, where the MPI has none, the other one, for numbers that fit.
macro_rules! narrow {
    ($next:ident, $large:ident else $small:ident($($word:ident),*) if $fits:expr) => {{
        static LARGE: Function = Function::new(
            // SAFETY: the literal ends with a zero and has no other
            unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($large), "\0").as_bytes()) }
        );
        if !LARGE.address().is_null() {
            $next()
        } else if $fits {
            // SAFETY: the same call, of numbers that fit
            unsafe { real!($small: fn($(collectives!(@word $word)),*) -> c_int)($($word),*) }
        } else {
            ERR_COUNT
        }
    }};
}

others! {
    MPI_Barrier PMPI_Barrier(comm) |next| carry(what::BARRIER, comm, |_, _| false, |team| Some(team.barrier())).unwrap_or_else(next);
    MPI_Win_create PMPI_Win_create(base, size, unit, info, comm, win) |next| {
        // SAFETY: the program's own call
        unsafe { window::made(next(), info, comm, win as *const usize) }
    };
    MPI_Win_allocate PMPI_Win_allocate(size, unit, info, comm, base, win) |next| {
        // SAFETY: the program's own call
        unsafe { window::made(next(), info, comm, win as *const usize) }
    };
    MPI_Win_create_c PMPI_Win_create_c(base, size, unit, info, comm, win) |next| {
        let code = narrow!(next, PMPI_Win_create_c else PMPI_Win_create(base, size, unit, info, comm, win) if is_int(unit));
        // SAFETY: where the MPI has put the handle
        unsafe { window::made(code, info, comm, win as *const usize) }
    };
    MPI_Win_allocate_c PMPI_Win_allocate_c(size, unit, info, comm, base, win) |next| {
        let code = narrow!(next, PMPI_Win_allocate_c else PMPI_Win_allocate(size, unit, info, comm, base, win) if is_int(unit));
        // SAFETY: where the MPI has put the handle
        unsafe { window::made(code, info, comm, win as *const usize) }
    };
    MPI_Win_create_dynamic PMPI_Win_create_dynamic(info, comm, win) |next| {
        // SAFETY: the program's own call
        unsafe { window::made(next(), info, comm, win as *const usize) }
    };
    MPI_Win_free PMPI_Win_free(win) |_next| {
        // SAFETY: the program's own call
        unsafe { window::free(win as *mut usize) }
    };
    MPI_Win_lock PMPI_Win_lock(kind, rank, assert, win) |_next| window::lock(int(kind), int(rank), int(assert), win);
    MPI_Win_unlock PMPI_Win_unlock(rank, win) |_next| window::unlock(int(rank), win);
    MPI_Win_flush PMPI_Win_flush(rank, win) |next| window::at_home(int(rank), win, next);
    MPI_Win_flush_local PMPI_Win_flush_local(rank, win) |next| window::at_home(int(rank), win, next);
    MPI_Win_lock_all PMPI_Win_lock_all(assert, win) |_next| window::lock_all(int(assert), win);
    MPI_Win_unlock_all PMPI_Win_unlock_all(win) |_next| window::unlock_all(win);
    MPI_Init PMPI_Init(count, arguments) |next| begun(next());
    MPI_Init_thread PMPI_Init_thread(count, arguments, required, provided) |next| begun(next());
    MPI_Finalize PMPI_Finalize() |next| {
        comm::finalizing();
        end_progress();
        room::leave();
        next()
    };
}

fn int(word: usize) -> c_int {
    word as u32 as c_int
}

fn is_int(word: usize) -> bool {
    i32::try_from(word as i64).is_ok()
}

/// By this the provider sees that the process has the companion.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a C name")]
pub static polyrail_companion: c_int = 1;

fn begun(code: c_int) -> c_int {
    if code == 0 {
        room::open();
    }
    code
}
