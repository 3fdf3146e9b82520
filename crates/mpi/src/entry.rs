//! MPI's functions as programs call them: whether an operation is carried out here, else the MPI does.
//!
//! `PMPI_` names end here as well: Fortran bindings of Open MPI and of `mpi_f08` call those, and so do tools that stand before us.

#![allow(
    clippy::duplicate_underscore_argument,
    reason = "words that are only passed on have names for the reader"
)]

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

use polyrail_pmpi::{ERR_COUNT, Flavour, Function, abi, real};

use crate::area::PAYLOAD;
use crate::combine::Combine;
use crate::comm;
use crate::data::{Data, Kind};
use crate::library::{Failed, end_progress, progress};
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

fn carry(
    handle: usize,
    is_wrong: impl FnOnce(usize, usize) -> bool,
    run: impl FnOnce(&mut Team) -> Carried,
) -> Option<c_int> {
    if room::room().is_none() || comm::is_over() || abi().handle(handle) == abi().comm_null {
        return None;
    }
    let done = comm::with_team(handle, is_wrong, |team| (run(team), team.rank))?;
    // who never waits for long calls the MPI now and then all the same: others may wait for what it has to do
    let done = match (done, is_time()) {
        ((Some(Ok(())), rank), true) => (Some(progress()), rank),
        (done, _) => done,
    };
    match done {
        (None, _) => None,
        (Some(Ok(())), _) => Some(0),
        (Some(Err(failed)), rank) => Some(comm::raise(handle, failed, || explain(failed, rank))),
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

/// `count` elements of a type at a place of the program's.
#[derive(Clone, Copy)]
struct Given {
    at: usize,
    count: i64,
    datatype: usize,
}

impl Given {
    /// Nothing that could be: the MPI says what it is.
    fn is_wrong(&self) -> bool {
        // an address of 0 is where types with addresses of their own begin
        let nowhere = || self.at == 0 && self.count > 0 && self.kind().is_some_and(|kind| kind.named);
        self.count < 0 || abi().handle(self.datatype) == abi().datatype_null || nowhere()
    }

    fn is_in_place(&self) -> bool {
        self.at == abi().in_place
    }

    /// The same somewhere else.
    fn at(self, at: usize) -> Self {
        Self { at, ..self }
    }

    /// Whether it is the `n`th part of what is received, or sent, where it must not be, as MPICH sees it. Open MPI takes that for an operation
    /// in place.
    fn is_part(&self, n: usize, of: &Self) -> bool {
        let is_same = self.count == of.count && abi().handle(self.datatype) == abi().handle(of.datatype);
        is_same
            && of.count > 0
            && refuses_aliases()
            && of.data().is_some_and(|all| all.part(n).at as usize == self.at)
    }

    fn kind(&self) -> Option<Kind> {
        Kind::of(self.datatype)
    }

    fn data(&self) -> Option<Data> {
        Some(Data { at: self.at as *mut u8, count: usize::try_from(self.count).ok()?, kind: self.kind()? })
    }
}

fn refuses_aliases() -> bool {
    static REFUSES: OnceLock<bool> = OnceLock::new();
    *REFUSES.get_or_init(|| {
        let set = std::env::var("MPIR_CVAR_COLL_ALIAS_CHECK");
        abi().flavour != Flavour::OpenMpi
            && !set.is_ok_and(|set| ["0", "no", "false", "off"].contains(&set.trim()))
    })
}

/// The rank of a root, if it is one.
fn root_of(root: usize, size: usize) -> Option<usize> {
    usize::try_from(root as u32 as i32).ok().filter(|root| *root < size)
}

/// What is to be reduced, and how.
#[derive(Clone, Copy)]
struct Reduction {
    from: Given,
    into: usize,
    operation: usize,
}

impl Reduction {
    fn new(from: usize, into: usize, count: i64, datatype: usize, operation: usize) -> Self {
        Self { from: Given { at: from, count, datatype }, into, operation }
    }

    fn is_wrong(&self, receives: bool) -> bool {
        let from = if self.from.is_in_place() && receives { self.from.at(self.into) } else { self.from };
        let into = self.from.at(self.into);
        let same = receives && self.from.is_part(0, &into);
        let nothing = self.from.is_in_place() && !receives;
        abi().handle(self.operation) == abi().op_null
            || from.is_wrong()
            || receives && into.is_wrong()
            || same
            || nothing
    }

    /// Where this rank's contribution is, and where the result goes.
    fn places(&self) -> (*const u8, *mut u8) {
        let from = if self.from.is_in_place() { self.into } else { self.from.at };
        (from as *const u8, self.into as *mut u8)
    }
}

impl Team {
    fn is_together(&self) -> bool {
        self.between.is_none()
    }

    /// What is reduced, if it is reduced here: all that decides is equal on all ranks.
    fn terms(&self, reduction: &Reduction, parts: usize) -> Option<Terms> {
        let kind = reduction.from.kind().filter(Kind::is_plain)?;
        let count = usize::try_from(reduction.from.count).ok().filter(|count| *count > 0)?;
        let most = if self.is_together() { most::TOGETHER } else { most::BETWEEN };
        (kind.size.checked_mul(count)?.checked_mul(parts)? <= most).then_some(())?;
        let combine = Combine::new(reduction.operation, kind);
        (combine.is_commutative().ok()? || self.layout.in_order()).then_some(())?;
        Some(Terms { count, extent: kind.size, combine })
    }

    fn try_bcast(&mut self, data: Given, root: usize) -> Carried {
        let (data, root) = (data.data()?, root_of(root, self.layout.ranks())?);
        let most = if self.is_together() { most::TOGETHER } else { most::BETWEEN };
        fits(&data, most).then(|| self.bcast(data, root))
    }

    fn try_reduce(&mut self, reduction: Reduction, root: usize) -> Carried {
        let (terms, root) = (self.terms(&reduction, 1)?, root_of(root, self.layout.ranks())?);
        let (from, into) = reduction.places();
        Some(self.reduce(from, into, &terms, root))
    }

    fn try_allreduce(&mut self, reduction: Reduction) -> Carried {
        let terms = self.terms(&reduction, 1)?;
        let (from, into) = reduction.places();
        Some(self.allreduce(from, into, &terms))
    }

    fn try_reduce_scatter(&mut self, reduction: Reduction) -> Carried {
        let terms = self.terms(&reduction, self.layout.ranks())?;
        // one element for each rank in a slot at least
        (self.layout.ranks() * terms.extent <= PAYLOAD).then_some(())?;
        let (from, into) = reduction.places();
        self.is_together().then(|| self.reduce_scatter(from, into, &terms))
    }

    fn try_scan(&mut self, reduction: Reduction, inclusive: bool) -> Carried {
        let terms = self.terms(&reduction, 1)?;
        let (from, into) = reduction.places();
        self.is_together().then(|| self.scan(from, into, &terms, inclusive))
    }

    fn try_gather(&mut self, own: Given, into: Given, root: usize) -> Carried {
        let ranks = self.layout.ranks();
        let root = root_of(root, ranks)?;
        let all = if self.rank == root { Some(into.data()?) } else { None };
        let own = match all {
            Some(all) if own.is_in_place() => all.part(root),
            _ => own.data()?,
        };
        (self.is_together() && fits(&own, most::PART)).then_some(())?;
        if let Some(unequal) = all.and_then(|all| unequal(&own, &all)) {
            return Some(Err(unequal));
        }
        Some(self.gather(own, all.map(|all| all.times(ranks)), root))
    }

    fn try_scatter(&mut self, all: Given, own: Given, root: usize) -> Carried {
        let ranks = self.layout.ranks();
        let root = root_of(root, ranks)?;
        let from = if self.rank == root { Some(all.data()?) } else { None };
        let in_place = from.is_some() && own.is_in_place();
        let own = if in_place { None } else { Some(own.data()?) };
        let one = from.or(own)?;
        (self.is_together() && fits(&one, most::PART)).then_some(())?;
        if let Some(unequal) = from.zip(own).and_then(|(from, own)| unequal(&from, &own)) {
            return Some(Err(unequal));
        }
        Some(self.scatter(from.map(|from| from.times(ranks)), own, one.bytes(), root))
    }

    fn try_allgather(&mut self, own: Given, into: Given) -> Carried {
        let all = into.data()?;
        let own = if own.is_in_place() { all.part(self.rank) } else { own.data()? };
        (self.is_together() && fits(&own, most::PART)).then_some(())?;
        if let Some(unequal) = unequal(&own, &all) {
            return Some(Err(unequal));
        }
        Some(self.allgather(own, all.times(self.layout.ranks())))
    }

    fn try_alltoall(&mut self, from: Given, into: Given) -> Carried {
        let all = into.data()?;
        let from = if from.is_in_place() { all } else { from.data()? };
        (self.is_together() && fits(&from, most::PART)).then_some(())?;
        if let Some(unequal) = unequal(&from, &all) {
            return Some(Err(unequal));
        }
        let ranks = self.layout.ranks();
        Some(self.alltoall(from.times(ranks), all.times(ranks)))
    }
}

/// Whether something is wrong with what goes to one rank from all, or from one to all: `part` is each rank's, `whole` the root's.
fn is_rooted_wrong(part: &Given, whole: &Given, root: usize, rank: usize, size: usize) -> bool {
    let Some(root) = root_of(root, size) else { return true };
    if rank != root {
        return part.is_in_place() || part.is_wrong();
    }
    whole.is_wrong() || !part.is_in_place() && (part.is_wrong() || part.is_part(root, whole))
}

/// The same where all ranks have a whole.
fn is_exchange_wrong(own: &Given, whole: &Given, part: usize) -> bool {
    whole.is_wrong() || !own.is_in_place() && (own.is_wrong() || own.is_part(part, whole))
}

fn fits(data: &Data, most: usize) -> bool {
    (1..=most).contains(&data.count.saturating_mul(data.kind.size))
}

/// What a rank sends to itself is as long as what it receives from itself.
fn unequal(sent: &Data, received: &Data) -> Option<Failed> {
    let (sent, received) = (sent.bytes(), received.bytes());
    (sent != received).then_some(Failed::Unequal { sent, received })
}

macro_rules! collectives {
    ($($mpi:ident $pmpi:ident $mpi_c:ident $pmpi_c:ident($($word:ident),*) [$($count:ident),*] of $comm:ident
        $given:ident = $what:expr; wrong |$rank:ident, $size:ident| $wrong:expr; |$team:ident| $run:expr;)*) => {$(
        collectives!(@export $mpi $pmpi($($word),*) of $comm |$rank, $size| $given { $(let $count = i64::from($count as u32 as i32);)* $what }
            wrong $wrong; |$team| $run; else {});
        collectives!(@export $mpi_c $pmpi_c($($word),*) of $comm |$rank, $size| $given { $(let $count = $count as i64;)* $what }
            wrong $wrong; |$team| $run; else {
            static LARGE: Function = Function::new(
                // SAFETY: the literal ends with a zero and has no other
                unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($pmpi_c), "\0").as_bytes()) }
            );
            // some programs (mpi4py) call these where they exist, and they exist because we are here
            if LARGE.address().is_null() {
                if [$($count),*].into_iter().any(|count: usize| i32::try_from(count as i64).is_err()) {
                    return ERR_COUNT;
                }
                // SAFETY: the same call, whose counts are words that fit
                return unsafe { real!($pmpi: fn($(collectives!(@word $word)),*) -> c_int)($($word),*) };
            }
        });
    )*};
    (@export $mpi:ident $pmpi:ident($($word:ident),*) of $comm:ident |$rank:ident, $size:ident| $given:ident $what:block
        wrong $wrong:expr; |$team:ident| $run:expr; else $first:block) => {
        // a call of one by the other's name would be led to who stands before us
        const _: () = {
            #[allow(clippy::too_many_arguments, reason = "they are MPI's")]
            unsafe fn call($($word: usize),*) -> c_int {
                let $given = $what;
                match carry($comm, |$rank, $size| $wrong, |$team| $run) {
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
        |team| team.try_reduce_scatter(given);
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

others! {
    MPI_Barrier PMPI_Barrier(comm) |next| carry(comm, |_, _| false, |team| Some(team.barrier())).unwrap_or_else(next);
    MPI_Init PMPI_Init(count, arguments) |next| begun(next());
    MPI_Init_thread PMPI_Init_thread(count, arguments, required, provided) |next| begun(next());
    MPI_Finalize PMPI_Finalize() |next| {
        comm::finalizing();
        end_progress();
        room::leave();
        next()
    };
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
