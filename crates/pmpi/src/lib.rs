//! The MPI library behind a library that is loaded before it: which it is, what differs between them, and where its functions are.
//! The recorder and the companion stand on it.
//!
//! MPICH's ABI, Open MPI's and the standard ABI of MPI 5 differ in what a handle is: arguments are passed on as the machine words that
//! they are, and what a handle means is asked of the library.
//!
//! Invariants:
//! - [`real!`] never leads back to the library that uses it, but to the next in the loader's order, which may be another tool's.
//! - Nothing is looked up before it is needed, and nothing twice.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where a function is, once found.
type Found = AtomicPtr<c_void>;

/// `MPI_ERR_COUNT`, which is 2 in all three.
pub const ERR_COUNT: c_int = 2;

/// The MPIs that one can meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// MPICH's own ABI.
    Mpich,
    /// Open MPI's.
    OpenMpi,
    /// The standard's.
    Standard,
}

/// What an MPI calls things.
pub struct Abi {
    /// Which it is.
    pub flavour: Flavour,
    /// Handles are C `int`s: the upper half of a machine word means nothing.
    ints: bool,
    /// `MPI_COMM_WORLD`.
    pub world: usize,
    /// `MPI_PROC_NULL`.
    pub null: i32,
    /// `MPI_ANY_SOURCE`.
    pub any: i32,
    /// `MPI_ANY_TAG`.
    pub any_tag: i32,
    /// `MPI_ERRORS_RETURN`.
    pub errors_return: usize,
    /// `MPI_STATUS_IGNORE`.
    pub status_ignore: usize,
    /// `MPI_IN_PLACE`.
    pub in_place: usize,
    /// `MPI_COMM_NULL`, `MPI_DATATYPE_NULL`, `MPI_OP_NULL`.
    pub comm_null: usize,
    /// See `comm_null`.
    pub datatype_null: usize,
    /// See `comm_null`.
    pub op_null: usize,
    /// `MPI_BYTE`.
    pub byte: usize,
    /// `MPI_COMBINER_NAMED`.
    pub named: c_int,
    /// `MPI_ERR_OTHER`.
    pub other_error: c_int,
    /// `MPI_INFO_NULL`.
    pub info_null: usize,
    /// `MPI_UINT64_T`.
    pub uint64: usize,
    /// `MPI_SUM`.
    pub sum: usize,
    /// `MPI_REPLACE`.
    pub replace: usize,
    /// `MPI_NO_OP`.
    pub no_op: usize,
    /// `MPI_LOCK_SHARED`.
    pub lock_shared: c_int,
    /// `MPI_LOCK_EXCLUSIVE`.
    pub lock_exclusive: c_int,
    /// `MPI_MODE_NOCHECK`.
    pub no_check: c_int,
    /// Where `MPI_SOURCE` is in a status.
    pub source_at: usize,
    /// Where `MPI_TAG` is.
    pub tag_at: usize,
}

impl Abi {
    /// A handle without what does not belong to it.
    pub fn handle(&self, word: usize) -> usize {
        if self.ints { word as u32 as usize } else { word }
    }

    /// The handle that a program has somewhere.
    ///
    /// # Safety
    /// It has one there.
    pub unsafe fn handle_at(&self, at: *const usize) -> usize {
        // SAFETY: as the caller says; it is as long as this MPI's are
        unsafe { if self.ints { at.cast::<u32>().read() as usize } else { at.read() } }
    }
}

/// The loaded MPI's. Asked for the first time from one of its functions.
pub fn abi() -> &'static Abi {
    static ABI: OnceLock<Abi> = OnceLock::new();
    ABI.get_or_init(find)
}

/// By the file that the real functions are in: what is linked decides, not what a version says.
fn find() -> Abi {
    static INIT: Function = Function::new(c"PMPI_Init");
    let init = INIT.address();
    let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address, and a place for the answer, of which zeros are a value
    let path = unsafe {
        libc::dladdr(init, about.as_mut_ptr());
        let about = about.assume_init();
        if about.dli_fname.is_null() { c"" } else { CStr::from_ptr(about.dli_fname) }
    };
    let file = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if file.starts_with(b"libmpi_abi") {
        return Abi {
            flavour: Flavour::Standard,
            ints: false,
            comm_null: 0x100,
            datatype_null: 0x200,
            op_null: 0x20,
            byte: 0x247,
            named: 101,
            other_error: 16,
            world: 0x101,
            null: -3,
            any: -1,
            any_tag: -2,
            errors_return: 0x143,
            status_ignore: 0,
            in_place: 1,
            info_null: 0x130,
            uint64: 0x259,
            sum: 0x21,
            replace: 0x3c,
            no_op: 0x3d,
            lock_shared: 302,
            lock_exclusive: 301,
            no_check: 1024,
            source_at: 0,
            tag_at: 4,
        };
    }
    let world = object(c"ompi_mpi_comm_world");
    if world != 0 {
        return Abi {
            flavour: Flavour::OpenMpi,
            ints: false,
            comm_null: object(c"ompi_mpi_comm_null"),
            datatype_null: object(c"ompi_mpi_datatype_null"),
            op_null: object(c"ompi_mpi_op_null"),
            byte: object(c"ompi_mpi_byte"),
            named: 0,
            other_error: 16,
            world,
            null: -2,
            any: -1,
            any_tag: -1,
            errors_return: object(c"ompi_mpi_errors_return"),
            status_ignore: 0,
            in_place: 1,
            info_null: object(c"ompi_mpi_info_null"),
            uint64: object(c"ompi_mpi_uint64_t"),
            sum: object(c"ompi_mpi_op_sum"),
            replace: object(c"ompi_mpi_op_replace"),
            no_op: object(c"ompi_mpi_op_no_op"),
            lock_shared: 2,
            lock_exclusive: 1,
            no_check: 1,
            source_at: 0,
            tag_at: 4,
        };
    }
    Abi {
        flavour: Flavour::Mpich,
        ints: true,
        comm_null: 0x0400_0000,
        datatype_null: 0x0c00_0000,
        op_null: 0x1800_0000,
        byte: 0x4c00_010d,
        named: 1,
        other_error: 15,
        world: 0x4400_0000,
        null: -1,
        any: -2,
        any_tag: -1,
        errors_return: 0x5400_0001,
        status_ignore: 1,
        in_place: usize::MAX,
        info_null: 0x1c00_0000,
        uint64: 0x4c00_083e,
        sum: 0x5800_0003,
        replace: 0x5800_000d,
        no_op: 0x5800_000e,
        lock_shared: 235,
        lock_exclusive: 234,
        no_check: 1024,
        source_at: 8,
        tag_at: 12,
    }
}

/// A function of the MPI library behind ours, looked up when it is first needed.
pub struct Function {
    name: &'static CStr,
    found: Found,
}

impl Function {
    /// Nothing is looked up yet.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: Found::new(null_mut()) }
    }

    /// Its address; null if no MPI library has it.
    #[inline(always)]
    pub fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { found }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: a C string
        let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            found = in_library(self.name);
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Looks in a loaded MPI library that is not in the loader's global scope: modules of scripting languages load theirs so.
fn in_library(name: &CStr) -> *mut c_void {
    in_file(&[b"libmpi", b"libpmpi"], name)
}

/// A symbol of a loaded library whose file's name begins in one of these ways, whatever scope it was loaded to; null if there is none.
pub fn in_file(begins: &[&[u8]], name: &CStr) -> *mut c_void {
    struct Search<'a> {
        begins: &'a [&'a [u8]],
        name: &'a CStr,
        found: *mut c_void,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: `dl_iterate_phdr` gives an object's description, and `search` as it was given below
        let (path, search) = unsafe { ((*info).dlpi_name, &mut *search.cast::<Search>()) };
        if path.is_null() {
            return 0;
        }
        // SAFETY: the name of a loaded object
        let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
        let file = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if !search.begins.iter().any(|begin| file.starts_with(begin)) {
            return 0;
        }
        // SAFETY: C strings; the object stays loaded, as NOLOAD only finds what is
        unsafe {
            let object = libc::dlopen(path.cast::<c_char>(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if !object.is_null() {
                search.found = libc::dlsym(object, search.name.as_ptr());
                libc::dlclose(object);
            }
        }
        // the handle's own search may lead back to us
        let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address, and a place for the answer
        let ours = unsafe {
            libc::dladdr(search.found, about.as_mut_ptr()) != 0
                && (*about.as_ptr()).dli_fbase == base_of_this_library()
        };
        if ours {
            search.found = null_mut();
        }
        c_int::from(!search.found.is_null())
    }
    let mut search = Search { begins, name, found: null_mut() };
    // SAFETY: the callback and what it is given fit each other
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

fn base_of_this_library() -> *mut c_void {
    let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address in this library, and a place for the answer, of which zeros are a value
    unsafe {
        libc::dladdr(base_of_this_library as *const c_void, about.as_mut_ptr());
        about.assume_init().dli_fbase
    }
}

/// A symbol of the MPI library, as a handle; 0 if it has none of this name. Open MPI's predefined handles are addresses of objects.
pub fn object(name: &CStr) -> usize {
    // SAFETY: a C string; a program may hold a copy of the object, which then is the one that counts
    let program = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if program.is_null() { in_library(name) as usize } else { program as usize }
}

/// `real!(PMPI_Send: fn(usize, ...) -> c_int)`: the library's function. Where there is no MPI library, one that reports an error: a
/// program that calls MPI without any was not linked.
#[macro_export]
macro_rules! real {
    ($name:ident: fn($($argument:ty),*) -> $result:ty) => {{
        static REAL: $crate::Function = $crate::Function::new(
            // SAFETY: the literal ends with a zero and has no other
            unsafe { std::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) }
        );
        let address = REAL.address();
        let missing: unsafe extern "C-unwind" fn($($argument),*) -> $result = {
            unsafe extern "C-unwind" fn missing($(_: $argument),*) -> $result { 16 }
            missing
        };
        if address.is_null() {
            missing
        } else {
            // SAFETY: the library's function of this name takes these arguments, as machine words
            #[allow(unused_unsafe, reason = "used inside unsafe blocks too")]
            unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C-unwind" fn($($argument),*) -> $result>(address) }
        }
    }};
}
