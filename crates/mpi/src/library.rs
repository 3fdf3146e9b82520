//! The MPI's functions behind ours, with arguments as words.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use polyrail_pmpi::{abi, in_file, real};

/// What an MPI function says: 0, or the code of an error, which the communicator's error handler has seen already.
pub fn check(code: c_int) -> Result<(), Failed> {
    if code == 0 { Ok(()) } else { Err(Failed::Mpi(code)) }
}

/// Why an operation did not come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// The MPI's own call failed, and its error handler was called.
    Mpi(c_int),
    /// A rank of this host is gone.
    Gone,
    /// A rank sends something else to itself than it wants to receive: bytes.
    Unequal {
        /// What it sends.
        sent: usize,
        /// What it wants.
        received: usize,
    },
    /// Another rank called something else: its rank in the communicator, what was expected, and what it said.
    Differs {
        /// The rank.
        rank: usize,
        /// What this rank's call is.
        expected: u64,
        /// What that rank's is.
        found: u64,
    },
}

/// Functions of the library by names, arguments and results.
macro_rules! functions {
    ($($name:ident $real:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// The MPI's own.
        ///
        /// # Safety
        /// As of the MPI function.
        #[allow(clippy::too_many_arguments, reason = "they are MPI's")]
        pub unsafe fn $name($($argument: $type),*) -> Result<(), Failed> {
            // SAFETY: as the caller says
            check(unsafe { real!($real: fn($($type),*) -> c_int)($($argument),*) })
        }
    )*};
}

functions! {
    comm_size PMPI_Comm_size(comm: usize, size: *mut c_int);
    comm_rank PMPI_Comm_rank(comm: usize, rank: *mut c_int);
    comm_test_inter PMPI_Comm_test_inter(comm: usize, flag: *mut c_int);
    comm_group PMPI_Comm_group(comm: usize, group: *mut usize);
    comm_split PMPI_Comm_split(comm: usize, color: c_int, key: c_int, new: *mut usize);
    comm_free PMPI_Comm_free(comm: *mut usize);
    comm_create_keyval PMPI_Comm_create_keyval(copy: *const c_void, delete: *const c_void, keyval: *mut c_int, extra: *mut c_void);
    comm_set_attr PMPI_Comm_set_attr(comm: usize, keyval: c_int, value: *mut c_void);
    comm_call_errhandler PMPI_Comm_call_errhandler(comm: usize, code: c_int);
    group_free PMPI_Group_free(group: *mut usize);
    group_translate_ranks PMPI_Group_translate_ranks(group: usize, n: c_int, ranks: *const c_int, other: usize, theirs: *mut c_int);
    allgather PMPI_Allgather(from: *const c_void, count: c_int, kind: usize, into: *mut c_void, room: c_int, their_kind: usize, comm: usize);
    type_size PMPI_Type_size(kind: usize, size: *mut c_int);
    type_get_extent PMPI_Type_get_extent(kind: usize, lower: *mut isize, extent: *mut isize);
    type_get_envelope PMPI_Type_get_envelope(kind: usize, integers: *mut c_int, addresses: *mut c_int, types: *mut c_int, combiner: *mut c_int);
    pack PMPI_Pack(from: *const c_void, count: c_int, kind: usize, into: *mut c_void, size: c_int, position: *mut c_int, comm: usize);
    unpack PMPI_Unpack(from: *const c_void, size: c_int, position: *mut c_int, into: *mut c_void, count: c_int, kind: usize, comm: usize);
    op_commutative PMPI_Op_commutative(op: usize, flag: *mut c_int);
    reduce_local PMPI_Reduce_local(from: *const c_void, into: *mut c_void, count: c_int, kind: usize, op: usize);
    send PMPI_Send(from: *const c_void, count: c_int, kind: usize, to: c_int, tag: c_int, comm: usize);
    recv PMPI_Recv(into: *mut c_void, count: c_int, kind: usize, from: c_int, tag: c_int, comm: usize, status: usize);
    sendrecv PMPI_Sendrecv(from: *const c_void, count: c_int, kind: usize, to: c_int, tag: c_int, into: *mut c_void, room: c_int, their_kind: usize, source: c_int, their_tag: c_int, comm: usize, status: usize);
    iprobe PMPI_Iprobe(source: c_int, tag: c_int, comm: usize, flag: *mut c_int, status: usize);
}

/// Lets the MPI do what it has to do for others: whoever waits here is inside a call of MPI's, which promises as much.
///
/// # Errors
/// What the MPI found wrong.
pub fn progress() -> Result<(), Failed> {
    let abi = abi();
    let mut flag: c_int = 0;
    look_in(1);
    // SAFETY: between its start and its end, a probe of the world with places for the answers changes nothing for anybody
    let done = unsafe { iprobe(abi.any, -1, abi.world, &mut flag, abi.status_ignore) };
    look_in(0);
    done
}

/// Tells the provider that it is not to put to sleep who looks in only.
fn look_in(begins: c_int) {
    static FOUND: OnceLock<Option<extern "C" fn(c_int)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let found = in_file(&[b"libpolyrail_fi"], c"polyrail_look_in");
        // SAFETY: null, which is none, or the provider's function of this name
        unsafe { std::mem::transmute::<*mut c_void, Option<extern "C" fn(c_int)>>(found) }
    });
    if let Some(look_in) = found {
        look_in(begins);
    }
}
