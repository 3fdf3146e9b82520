//! The MPI's functions behind ours, with arguments as words.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use polyrail_pmpi::{abi, in_file, real};
use polyrail_rails::shm::cma::CmaError;

/// What an MPI function says: 0, or the code of an error, which the communicator's error handler has seen already.
pub fn check(code: c_int) -> Result<(), Failed> {
    if code == 0 { Ok(()) } else { Err(Failed::Mpi(code)) }
}

/// Why an operation did not come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// The MPI's own call failed, and its error handler was called.
    Mpi(c_int),
    /// The same of a message of ours, of which no error handler has heard.
    Message(c_int),
    /// What came from another host is of another length: bytes.
    Length {
        /// What was expected.
        expected: usize,
        /// What came.
        came: usize,
    },
    /// A rank of this host is gone.
    Gone,
    /// The memory of another rank cannot be read any more: its rank in the communicator, and why.
    Memory {
        /// The rank.
        rank: usize,
        /// Why.
        why: CmaError,
    },
    /// A rank sends more than this one wants of it: bytes.
    Longer {
        /// The rank.
        rank: usize,
        /// What comes.
        came: usize,
        /// What was expected.
        expected: usize,
    },
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

impl Failed {
    /// Of a communicator or a window of ours, whose error handlers only return: nobody has heard of it.
    pub fn of_ours(self) -> Self {
        if let Self::Mpi(code) = self { Self::Message(code) } else { self }
    }
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
    comm_remote_size PMPI_Comm_remote_size(comm: usize, size: *mut c_int);
    comm_group PMPI_Comm_group(comm: usize, group: *mut usize);
    comm_split PMPI_Comm_split(comm: usize, color: c_int, key: c_int, new: *mut usize);
    comm_set_errhandler PMPI_Comm_set_errhandler(comm: usize, handler: usize);
    get_count PMPI_Get_count(status: usize, kind: usize, count: *mut c_int);
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
    isend PMPI_Isend(from: *const c_void, count: c_int, kind: usize, to: c_int, tag: c_int, comm: usize, request: *mut usize);
    irecv PMPI_Irecv(into: *mut c_void, count: c_int, kind: usize, from: c_int, tag: c_int, comm: usize, request: *mut usize);
    wait PMPI_Wait(request: *mut usize, status: usize);
    test PMPI_Test(request: *mut usize, flag: *mut c_int, status: usize);
    cancel PMPI_Cancel(request: *mut usize);
    info_create PMPI_Info_create(info: *mut usize);
    info_set PMPI_Info_set(info: usize, key: *const c_char, value: *const c_char);
    info_get PMPI_Info_get(info: usize, key: *const c_char, room: c_int, value: *mut c_char, flag: *mut c_int);
    info_free PMPI_Info_free(info: *mut usize);
    win_allocate PMPI_Win_allocate(bytes: isize, unit: c_int, info: usize, comm: usize, at: *mut *mut c_void, win: *mut usize);
    win_free PMPI_Win_free(win: *mut usize);
    win_set_errhandler PMPI_Win_set_errhandler(win: usize, handler: usize);
    win_call_errhandler PMPI_Win_call_errhandler(win: usize, code: c_int);
    win_lock PMPI_Win_lock(kind: c_int, rank: c_int, assert: c_int, win: usize);
    win_unlock PMPI_Win_unlock(rank: c_int, win: usize);
    win_lock_all PMPI_Win_lock_all(assert: c_int, win: usize);
    win_unlock_all PMPI_Win_unlock_all(win: usize);
    win_flush PMPI_Win_flush(rank: c_int, win: usize);
    win_flush_all PMPI_Win_flush_all(win: usize);
    win_flush_local_all PMPI_Win_flush_local_all(win: usize);
    fetch_and_op PMPI_Fetch_and_op(from: *const c_void, into: *mut c_void, kind: usize, rank: c_int, at: isize, op: usize, win: usize);
    accumulate PMPI_Accumulate(from: *const c_void, count: c_int, kind: usize, rank: c_int, at: isize, room: c_int, their_kind: usize, op: usize, win: usize);
    iprobe PMPI_Iprobe(source: c_int, tag: c_int, comm: usize, flag: *mut c_int, status: usize);
}

/// How many entries the arrays have that a call gets for the ranks of a communicator, at a rank that may need none.
pub fn entries(comm: usize, needs: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut inter, mut size, mut rank): (c_int, c_int, c_int) = (0, 0, 0);
    // SAFETY: the program's communicator, and places for the answers
    unsafe {
        comm_test_inter(comm, &mut inter).ok()?;
        comm_rank(comm, &mut rank).ok()?;
        if inter != 0 {
            // whether this is the root of the other side's ranks, nobody says here
            needs(usize::MAX).then_some(())?;
            comm_remote_size(comm, &mut size).ok()?;
            return Some(size as usize);
        }
        comm_size(comm, &mut size).ok()?;
    }
    Some(if needs(rank as usize) { size as usize } else { 0 })
}

/// A communicator of ours with the ranks of another, under this rank's number there: nothing meets the program's messages, and the other's
/// attributes are not copied. Errors come as codes.
///
/// # Errors
/// What the MPI says.
pub fn private(comm: usize, rank: usize) -> Result<usize, Failed> {
    let mut new = 0;
    // SAFETY: a communicator, and a place for the answer; one of MPI's own handlers
    unsafe {
        comm_split(comm, 0, rank as c_int, &mut new)?;
        comm_set_errhandler(new, abi().errors_return)?;
    }
    Ok(abi().handle(new))
}

/// The world under a name of ours, by which the MPI is kept going; 0 before and after.
static QUIET: AtomicUsize = AtomicUsize::new(0);

/// From now on [`progress`] looks for messages in a communicator in which there are none. All ranks of the world at once.
///
/// # Errors
/// What the MPI says.
pub fn begin_progress(rank: usize) -> Result<(), Failed> {
    QUIET.store(private(abi().world, rank)?, Ordering::Relaxed);
    Ok(())
}

/// A communicator of all ranks of the world for what they say to each other while MPI starts, between [`begin_progress`] and the first
/// [`progress`].
pub fn starting() -> usize {
    QUIET.load(Ordering::Relaxed)
}

/// The end of [`begin_progress`], by all ranks, while MPI still works.
pub fn end_progress() {
    let mut comm = QUIET.swap(0, Ordering::Relaxed);
    if comm != 0 {
        // SAFETY: ours, and used no more; that it cannot be given back changes nothing
        let _ = unsafe { comm_free(&mut comm) };
    }
}

/// Lets the MPI do what it has to do for others: whoever waits here is inside a call of MPI's, which promises as much. A probe that finds a
/// message does not (MPICH), so it is for one that nobody sends.
///
/// # Errors
/// What the MPI found wrong.
pub fn progress() -> Result<(), Failed> {
    let abi = abi();
    let mut flag: c_int = 0;
    let quiet = QUIET.load(Ordering::Relaxed);
    if quiet == 0 {
        return Ok(());
    }
    let _looking = LookIn::begin();
    // SAFETY: a communicator of ours, and a place for the answer
    unsafe { iprobe(abi.any, abi.any_tag, quiet, &mut flag, abi.status_ignore) }.map_err(Failed::of_ours)
}

/// Until this is dropped, the provider does not put to sleep who looks in only.
pub struct LookIn(());

impl LookIn {
    /// From now on.
    pub fn begin() -> Self {
        look_in(1);
        Self(())
    }
}

impl Drop for LookIn {
    fn drop(&mut self) {
        look_in(0);
    }
}

fn look_in(begins: c_int) {
    static FOUND: OfProvider = OfProvider::new(c"polyrail_look_in");
    if let Some(found) = FOUND.address() {
        // SAFETY: the provider's function of this name takes a number
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(found)(begins) };
    }
}

/// From now on this thread asks whether something has come, or no more: the provider's sleeps are few and short meanwhile.
#[inline]
pub fn asking(asks: bool) {
    static FOUND: OfProvider = OfProvider::new(c"polyrail_asking");
    if let Some(found) = FOUND.address() {
        // SAFETY: the provider's function of this name takes a number
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(found)(asks.into()) };
    }
}

/// Until this is dropped, this thread completes what it has done to itself: the provider has it wait only after many rounds in vain.
pub struct AtHome(());

impl AtHome {
    /// From now on.
    pub fn begin() -> Self {
        at_home(1);
        Self(())
    }
}

impl Drop for AtHome {
    fn drop(&mut self) {
        at_home(0);
    }
}

fn at_home(begins: c_int) {
    static FOUND: OfProvider = OfProvider::new(c"polyrail_at_home");
    if let Some(found) = FOUND.address() {
        // SAFETY: the provider's function of this name takes a number
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(found)(begins) };
    }
}

/// Whether the provider finds a host far to which it has sent something.
pub fn is_far(host: u64) -> bool {
    static FOUND: OfProvider = OfProvider::new(c"polyrail_is_far");
    FOUND.address().is_some_and(|found| {
        // SAFETY: the provider's function of this name takes a number, and says yes or no
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(u64) -> c_int>(found)(host) != 0 }
    })
}

/// This thread sleeps between its looks, until this is dropped: the provider's goes on with what comes, and wakes it.
pub struct Asleep(c_int);

impl Asleep {
    /// It begins, on a word. `any`: it is woken whenever something came, else when the MPI has something to do.
    pub fn begin(word: &AtomicU64, any: bool) -> Self {
        static FOUND: OfProvider = OfProvider::new(c"polyrail_sleep_between");
        let place = FOUND.address().map_or(-1, |found| {
            // SAFETY: the provider's function of this name takes an address and a number
            let begin =
                unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*mut u64, c_int) -> c_int>(found) };
            begin(word.as_ptr(), any.into())
        });
        Self(place)
    }
}

impl Asleep {
    /// It ends; whether the provider woke it.
    pub fn end(self) -> bool {
        let woken = self.over();
        std::mem::forget(self);
        woken
    }

    fn over(&self) -> bool {
        static FOUND: OfProvider = OfProvider::new(c"polyrail_sleep_no_more");
        FOUND.address().is_some_and(|found| {
            // SAFETY: the provider's function of this name takes a number, and says yes or no
            unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(found)(self.0) != 0 }
        })
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        self.over();
    }
}

/// A function of the provider's, if that is loaded; looked up when it is first needed.
struct OfProvider {
    name: &'static CStr,
    found: OnceLock<usize>,
}

impl OfProvider {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: OnceLock::new() }
    }

    fn address(&self) -> Option<*mut c_void> {
        let found = *self.found.get_or_init(|| in_file(&[b"libpolyrail_fi"], self.name) as usize);
        (found != 0).then_some(found as *mut c_void)
    }
}
