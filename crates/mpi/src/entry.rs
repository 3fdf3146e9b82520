//! MPI's functions as programs call them: whether an operation is carried out here, else the MPI does.
//!
//! `PMPI_` names end here as well: Fortran bindings of Open MPI and of `mpi_f08` call those, and so do tools that stand before us.

#![allow(
    clippy::duplicate_underscore_argument,
    reason = "words that are only passed on have names for the reader"
)]

use std::ffi::{CStr, c_int};

use polyrail_pmpi::{ERR_COUNT, Function, abi, real};

use crate::combine::Combine;
use crate::comm;
use crate::data::{Data, Kind};
use crate::library::Failed;
use crate::room;
use crate::team::{Team, told};
use crate::within::{Terms, what};

/// Bytes of each rank up to which an operation is carried out here, where all ranks share a host, and where they do not. What is longer, the MPI's
/// own algorithms and the provider's single copy do.
mod most {
    /// `MPI_Bcast`, and what is reduced.
    pub const TOGETHER: usize = 64 << 10;
    /// The same between hosts.
    pub const BETWEEN: usize = 8 << 10;
    /// A part of what all exchange with all.
    pub const PART: usize = 8 << 10;
}

/// What becomes of a call: nothing if it is the MPI's.
type Carried = Option<Result<(), Failed>>;

fn carry(handle: usize, run: impl FnOnce(&mut Team) -> Carried) -> Option<c_int> {
    if room::room().is_none() || comm::is_over() || abi().handle(handle) == abi().comm_null {
        return None;
    }
    let done = comm::with_team(handle, |team| (run(team), team.rank));
    match done? {
        (None, _) => None,
        (Some(Ok(())), _) => Some(0),
        (Some(Err(failed)), rank) => Some(comm::raise(handle, failed, || explain(failed, rank))),
    }
}

fn explain(failed: Failed, rank: usize) -> String {
    match failed {
        Failed::Mpi(code) => format!("an operation of rank {rank} failed with code {code}"),
        Failed::Gone => format!("a rank on the host of rank {rank} has ended while others wait for it"),
        Failed::Unequal { sent, received } => {
            format!("rank {rank} sends {sent} bytes to itself and wants to receive {received} from itself")
        }
        Failed::Differs { rank: other, expected, found } => {
            let call = |tag| {
                let (operation, root, bytes) = told(tag);
                format!("{} (root {root}, {bytes} bytes or more)", what::name(operation))
            };
            format!(
                "the ranks of a communicator call different operations: rank {rank} {}, rank {other} {}",
                call(expected),
                call(found)
            )
        }
    }
}

impl Team {
    /// As many elements of a type at a place of the program's, if that can be.
    fn data(&self, at: usize, count: i64, datatype: usize) -> Option<Data> {
        let kind = self.kind(datatype)?;
        let count = usize::try_from(count).ok()?;
        // an address of 0 is where types with addresses of their own begin
        (at != 0 || !kind.named || count == 0).then_some(Data { at: at as *mut u8, count, kind })
    }

    fn kind(&self, datatype: usize) -> Option<Kind> {
        (abi().handle(datatype) != abi().datatype_null).then(|| Kind::of(datatype))?
    }

    fn root(&self, root: usize) -> Option<usize> {
        let root = usize::try_from(root as u32 as i32).ok()?;
        (root < self.layout.ranks()).then_some(root)
    }

    fn is_together(&self) -> bool {
        self.between.is_none()
    }

    /// What is reduced, if it is reduced here: all arguments are equal on all ranks.
    fn terms(&self, count: i64, datatype: usize, operation: usize, parts: usize) -> Option<Terms> {
        let kind = self.kind(datatype).filter(|kind| kind.named && kind.extent > 0)?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
        let most = if self.is_together() { most::TOGETHER } else { most::BETWEEN };
        (kind.extent.checked_mul(count)?.checked_mul(parts)? <= most).then_some(())?;
        if abi().handle(operation) == abi().op_null {
            return None;
        }
        let combine = Combine::new(operation, kind);
        (combine.is_commutative().ok()? || self.layout.in_order()).then_some(())?;
        Some(Terms { count, extent: kind.extent, combine })
    }

    fn try_bcast(&mut self, at: usize, count: i64, datatype: usize, root: usize) -> Carried {
        let (data, root) = (self.data(at, count, datatype)?, self.root(root)?);
        let most = if self.is_together() { most::TOGETHER } else { most::BETWEEN };
        fits(&data, most).then(|| self.bcast(data, root))
    }

    fn try_reduce(&mut self, from: usize, into: usize, terms: (i64, usize, usize), root: usize) -> Carried {
        let (terms, root) = (self.terms(terms.0, terms.1, terms.2, 1)?, self.root(root)?);
        let is_root = self.rank == root;
        let from = if from == abi().in_place && is_root { into } else { usable(from, into, is_root)? };
        Some(self.reduce(from as *const u8, into as *mut u8, &terms, root))
    }

    fn try_allreduce(&mut self, from: usize, into: usize, terms: (i64, usize, usize)) -> Carried {
        let terms = self.terms(terms.0, terms.1, terms.2, 1)?;
        let from = if from == abi().in_place { into } else { usable(from, into, true)? };
        Some(self.allreduce(from as *const u8, into as *mut u8, &terms))
    }

    fn try_reduce_scatter(&mut self, from: usize, into: usize, terms: (i64, usize, usize)) -> Carried {
        let terms = self.terms(terms.0, terms.1, terms.2, self.layout.ranks())?;
        let from = if from == abi().in_place { into } else { usable(from, into, true)? };
        self.is_together().then(|| self.reduce_scatter(from as *const u8, into as *mut u8, &terms))
    }

    fn try_scan(&mut self, from: usize, into: usize, terms: (i64, usize, usize), inclusive: bool) -> Carried {
        let terms = self.terms(terms.0, terms.1, terms.2, 1)?;
        let from = if from == abi().in_place { into } else { usable(from, into, true)? };
        self.is_together().then(|| self.scan(from as *const u8, into as *mut u8, &terms, inclusive))
    }

    fn try_gather(&mut self, own: (usize, i64, usize), into: (usize, i64, usize), root: usize) -> Carried {
        let root = self.root(root)?;
        let ranks = self.layout.ranks();
        let all = if self.rank == root { Some(self.data(into.0, into.1, into.2)?) } else { None };
        let own = match all {
            Some(all) if own.0 == abi().in_place => all.part(root),
            _ => self.data(own.0, own.1, own.2)?,
        };
        (self.is_together() && fits(&own, most::PART)).then_some(())?;
        if let Some(unequal) = all.and_then(|all| unequal(&own, &all)) {
            return Some(Err(unequal));
        }
        Some(self.gather(own, all.map(|all| all.times(ranks)), root))
    }

    fn try_scatter(&mut self, all: (usize, i64, usize), own: (usize, i64, usize), root: usize) -> Carried {
        let root = self.root(root)?;
        let ranks = self.layout.ranks();
        let from = if self.rank == root { Some(self.data(all.0, all.1, all.2)?) } else { None };
        let in_place = from.is_some() && own.0 == abi().in_place;
        let own = if in_place { None } else { Some(self.data(own.0, own.1, own.2)?) };
        let one = from.or(own)?;
        (self.is_together() && fits(&one, most::PART)).then_some(())?;
        if let Some(unequal) = from.zip(own).and_then(|(from, own)| unequal(&from, &own)) {
            return Some(Err(unequal));
        }
        Some(self.scatter(from.map(|from| from.times(ranks)), own, one.bytes(), root))
    }

    fn try_allgather(&mut self, own: (usize, i64, usize), into: (usize, i64, usize)) -> Carried {
        let all = self.data(into.0, into.1, into.2)?;
        let own = if own.0 == abi().in_place { all.part(self.rank) } else { self.data(own.0, own.1, own.2)? };
        (self.is_together() && fits(&own, most::PART)).then_some(())?;
        if let Some(unequal) = unequal(&own, &all) {
            return Some(Err(unequal));
        }
        Some(self.allgather(own, all.times(self.layout.ranks())))
    }

    fn try_alltoall(&mut self, from: (usize, i64, usize), into: (usize, i64, usize)) -> Carried {
        let all = self.data(into.0, into.1, into.2)?;
        let from = if from.0 == abi().in_place { all } else { self.data(from.0, from.1, from.2)? };
        (self.is_together() && fits(&from, most::PART)).then_some(())?;
        if let Some(unequal) = unequal(&from, &all) {
            return Some(Err(unequal));
        }
        let ranks = self.layout.ranks();
        Some(self.alltoall(from.times(ranks), all.times(ranks)))
    }
}

fn fits(data: &Data, most: usize) -> bool {
    (1..=most).contains(&data.count.saturating_mul(data.kind.size))
}

/// What a rank sends to itself is as long as what it receives from itself.
fn unequal(sent: &Data, received: &Data) -> Option<Failed> {
    let (sent, received) = (sent.bytes(), received.bytes());
    (sent != received).then_some(Failed::Unequal { sent, received })
}

/// Where a contribution is, unless something is wrong with the places: the MPI says what.
fn usable(from: usize, into: usize, receives: bool) -> Option<usize> {
    (from != 0 && from != abi().in_place && !(receives && (into == 0 || into == from))).then_some(from)
}

macro_rules! collectives {
    ($($mpi:ident $pmpi:ident $mpi_c:ident $pmpi_c:ident($($word:ident),*) [$($count:ident),*] of $comm:ident |$team:ident| $run:expr;)*) => {$(
        collectives!(@export $mpi $pmpi($($word),*) of $comm |$team| { $(let $count = i64::from($count as u32 as i32);)* $run } else {});
        collectives!(@export $mpi_c $pmpi_c($($word),*) of $comm |$team| { $(let $count = $count as i64;)* $run } else {
            static LARGE: Function = Function::new(
                // SAFETY: the literal ends with a zero and has no other
                unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($pmpi_c), "\0").as_bytes()) }
            );
            // some programs (mpi4py) call these where they exist, and they exist because we are here
            if LARGE.address().is_null() {
                if [$($count),*].into_iter().any(|count: usize| i32::try_from(count as i64).is_err()) {
                    return ERR_COUNT;
                }
                // SAFETY: the same call
                return unsafe { $mpi($($word),*) };
            }
        });
    )*};
    (@export $mpi:ident $pmpi:ident($($word:ident),*) of $comm:ident |$team:ident| $run:block else $first:block) => {
        /// See the MPI standard.
        ///
        /// # Safety
        /// As of the MPI function.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "MPI's name")]
        pub unsafe extern "C-unwind" fn $mpi($($word: usize),*) -> c_int {
            $first
            match carry($comm, |$team| $run) {
                Some(code) => code,
                // SAFETY: the program's own call
                None => unsafe { real!($pmpi: fn($(collectives!(@word $word)),*) -> c_int)($($word),*) },
            }
        }

        /// See the MPI standard.
        ///
        /// # Safety
        /// As of the MPI function.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "MPI's name")]
        pub unsafe extern "C-unwind" fn $pmpi($($word: usize),*) -> c_int {
            // SAFETY: the same call
            unsafe { $mpi($($word),*) }
        }
    };
    (@word $word:ident) => { usize };
}

collectives! {
    MPI_Bcast PMPI_Bcast MPI_Bcast_c PMPI_Bcast_c(buffer, count, datatype, root, comm) [count] of comm
        |team| team.try_bcast(buffer, count, datatype, root);
    MPI_Reduce PMPI_Reduce MPI_Reduce_c PMPI_Reduce_c(from, into, count, datatype, operation, root, comm) [count] of comm
        |team| team.try_reduce(from, into, (count, datatype, operation), root);
    MPI_Allreduce PMPI_Allreduce MPI_Allreduce_c PMPI_Allreduce_c(from, into, count, datatype, operation, comm) [count] of comm
        |team| team.try_allreduce(from, into, (count, datatype, operation));
    MPI_Reduce_scatter_block PMPI_Reduce_scatter_block MPI_Reduce_scatter_block_c PMPI_Reduce_scatter_block_c
        (from, into, count, datatype, operation, comm) [count] of comm
        |team| team.try_reduce_scatter(from, into, (count, datatype, operation));
    MPI_Scan PMPI_Scan MPI_Scan_c PMPI_Scan_c(from, into, count, datatype, operation, comm) [count] of comm
        |team| team.try_scan(from, into, (count, datatype, operation), true);
    MPI_Exscan PMPI_Exscan MPI_Exscan_c PMPI_Exscan_c(from, into, count, datatype, operation, comm) [count] of comm
        |team| team.try_scan(from, into, (count, datatype, operation), false);
    MPI_Gather PMPI_Gather MPI_Gather_c PMPI_Gather_c(from, count, datatype, into, room, kind, root, comm) [count, room] of comm
        |team| team.try_gather((from, count, datatype), (into, room, kind), root);
    MPI_Scatter PMPI_Scatter MPI_Scatter_c PMPI_Scatter_c(from, count, datatype, into, room, kind, root, comm) [count, room] of comm
        |team| team.try_scatter((from, count, datatype), (into, room, kind), root);
    MPI_Allgather PMPI_Allgather MPI_Allgather_c PMPI_Allgather_c(from, count, datatype, into, room, kind, comm) [count, room] of comm
        |team| team.try_allgather((from, count, datatype), (into, room, kind));
    MPI_Alltoall PMPI_Alltoall MPI_Alltoall_c PMPI_Alltoall_c(from, count, datatype, into, room, kind, comm) [count, room] of comm
        |team| team.try_alltoall((from, count, datatype), (into, room, kind));
}

/// Functions without counts, and what happens before or after the library's own.
macro_rules! others {
    ($($mpi:ident $pmpi:ident($($word:ident),*) |$next:ident| $run:expr;)*) => {$(
        /// See the MPI standard.
        ///
        /// # Safety
        /// As of the MPI function.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "MPI's name")]
        pub unsafe extern "C-unwind" fn $mpi($($word: usize),*) -> c_int {
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
        pub unsafe extern "C-unwind" fn $pmpi($($word: usize),*) -> c_int {
            // SAFETY: the same call
            unsafe { $mpi($($word),*) }
        }
    )*};
}

others! {
    MPI_Barrier PMPI_Barrier(comm) |next| carry(comm, |team| Some(team.barrier())).unwrap_or_else(next);
    MPI_Init PMPI_Init(count, arguments) |next| begun(next());
    MPI_Init_thread PMPI_Init_thread(count, arguments, required, provided) |next| begun(next());
    MPI_Finalize PMPI_Finalize() |next| {
        comm::finalizing();
        room::leave();
        next()
    };
}

fn begun(code: c_int) -> c_int {
    if code == 0 {
        room::open();
    }
    code
}
