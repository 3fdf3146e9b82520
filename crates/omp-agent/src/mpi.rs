//! The MPI that launched us, loaded at run time: one executable for MPICH, Open MPI and the standard's ABI. The only foreign functions of this crate.
//!
//! Handles are passed as machine words: who takes a C `int` looks at the lower half of the register only.
//!
//! Errors are returned, as far as MPI does that: MPICH ends the whole job, whatever the error handler, where a message is lost whose other side has gone.
mod library;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::path::Path;
use std::ptr::null_mut;

use crate::net::{Net, Tag};
use library::Library;
pub use library::find;

/// What the three ABIs call things.
struct Abi {
    world: usize,
    byte: usize,
    errors_return: usize,
    any_source: c_int,
    any_tag: c_int,
    status_ignore: usize,
    /// Which of a status's `int`s is the source; the tag follows.
    source: usize,
}

/// Larger than any MPI's.
#[derive(Default)]
#[repr(C, align(8))]
struct Status([c_int; 16]);

const MPICH: Abi = Abi {
    world: 0x4400_0000,
    byte: 0x4c00_010d,
    errors_return: 0x5400_0001,
    any_source: -2,
    any_tag: -1,
    status_ignore: 1,
    source: 2,
};
const STANDARD: Abi = Abi {
    world: 0x101,
    byte: 0x247,
    errors_return: 0x143,
    any_source: -1,
    any_tag: -2,
    status_ignore: 0,
    source: 0,
};

/// An MPI call that failed, or a library that is no MPI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The function, or the file.
    pub what: String,
    /// MPI's or the loader's own words.
    pub why: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

type Init = unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int;
type Number = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type Handler = unsafe extern "C" fn(usize, usize) -> c_int;
type Start = unsafe extern "C" fn(*mut u8, c_int, usize, c_int, c_int, usize, *mut u64) -> c_int;
type Test = unsafe extern "C" fn(*mut u64, *mut c_int, usize) -> c_int;
type Probe = unsafe extern "C" fn(c_int, c_int, usize, *mut c_int, *mut Status) -> c_int;
type Count = unsafe extern "C" fn(*const Status, usize, *mut c_int) -> c_int;
type Cancel = unsafe extern "C" fn(*mut u64) -> c_int;
type Text = unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int;
type End = unsafe extern "C" fn() -> c_int;
type Abort = unsafe extern "C" fn(usize, c_int) -> c_int;

struct Functions {
    isend: Start,
    irecv: Start,
    test: Test,
    cancel: Cancel,
    probe: Probe,
    count: Count,
    error_string: Text,
    finalize: End,
    abort: Abort,
}

/// An initialized MPI. One thread uses it.
pub struct Mpi {
    abi: Abi,
    call: Functions,
    rank: usize,
    size: usize,
}

/// A message under way. Its memory belongs to MPI until [`Net::done`] says so.
#[derive(Debug)]
pub struct Request {
    handle: u64,
    done: bool,
    what: &'static str,
}

/// A message that is received only so that it is out of the way.
pub struct Stray {
    /// Its receive.
    pub request: Request,
    /// MPI writes to it.
    _rest: Vec<u8>,
}

impl Mpi {
    /// Loads the library at `path` and initializes it.
    ///
    /// # Errors
    /// It cannot be loaded, has no MPI functions, or cannot be initialized.
    pub fn start(path: &Path) -> Result<Self, Error> {
        let library = Library::open(path)?;
        let abi = if library.file_name().starts_with("libmpi_abi") {
            STANDARD
        } else if let Ok(world) = library.symbol(c"ompi_mpi_comm_world") {
            Abi {
                world: world as usize,
                byte: library.symbol(c"ompi_mpi_byte")? as usize,
                errors_return: library.symbol(c"ompi_mpi_errors_return")? as usize,
                any_source: -1,
                any_tag: -1,
                status_ignore: 0,
                source: 0,
            }
        } else {
            MPICH
        };
        macro_rules! function {
            ($name:literal as $kind:ty) => {
                // SAFETY: the library's function of this name has this type; it is never unloaded
                unsafe { std::mem::transmute::<*mut c_void, $kind>(library.symbol($name)?) }
            };
        }
        let call = Functions {
            isend: function!(c"MPI_Isend" as Start),
            irecv: function!(c"MPI_Irecv" as Start),
            test: function!(c"MPI_Test" as Test),
            cancel: function!(c"MPI_Cancel" as Cancel),
            probe: function!(c"MPI_Iprobe" as Probe),
            count: function!(c"MPI_Get_count" as Count),
            error_string: function!(c"MPI_Error_string" as Text),
            finalize: function!(c"MPI_Finalize" as End),
            abort: function!(c"MPI_Abort" as Abort),
        };
        let init = function!(c"MPI_Init" as Init);
        let (rank_of, size_of) =
            (function!(c"MPI_Comm_rank" as Number), function!(c"MPI_Comm_size" as Number));
        let set_handler = function!(c"MPI_Comm_set_errhandler" as Handler);
        let mut mpi = Self { abi, call, rank: 0, size: 0 };
        let (mut rank, mut size) = (0, 0);
        // SAFETY: arguments as MPI documents them; null for arguments of the command line is allowed
        unsafe {
            mpi.check("MPI_Init", init(null_mut(), null_mut()))?;
            mpi.check("MPI_Comm_set_errhandler", set_handler(mpi.abi.world, mpi.abi.errors_return))?;
            mpi.check("MPI_Comm_rank", rank_of(mpi.abi.world, &raw mut rank))?;
            mpi.check("MPI_Comm_size", size_of(mpi.abi.world, &raw mut size))?;
        }
        (mpi.rank, mpi.size) = (rank.cast_unsigned() as usize, size.cast_unsigned() as usize);
        Ok(mpi)
    }

    fn check(&self, what: &str, code: c_int) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        // MPI_MAX_ERROR_STRING is 1024 at most
        let mut text = [0u8; 8 << 10];
        let mut bytes = 0;
        // SAFETY: longer than any error's text
        unsafe { (self.call.error_string)(code, text.as_mut_ptr().cast(), &raw mut bytes) };
        Err(Error { what: what.into(), why: in_a_line(&text) })
    }

    fn start_message(
        &self,
        (function, what): (Start, &'static str),
        at: *mut u8,
        bytes: usize,
        peer: c_int,
        tag: c_int,
    ) -> Result<Request, Error> {
        let count = c_int::try_from(bytes)
            .map_err(|_| Error { what: what.into(), why: format!("{bytes} bytes in one message") })?;
        let mut request = Request { handle: 0, done: false, what };
        // SAFETY: who calls says that the memory stays until the request is done
        let code =
            unsafe { function(at, count, self.abi.byte, peer, tag, self.abi.world, &raw mut request.handle) };
        self.check(what, code).map(|()| request)
    }

    /// What is known of a message that has come and that nobody receives yet.
    fn probe(&self, tag: c_int) -> Result<Option<Status>, Error> {
        let (mut found, mut status) = (0, Status::default());
        // SAFETY: places for the answers
        let code = unsafe {
            (self.call.probe)(self.abi.any_source, tag, self.abi.world, &raw mut found, &raw mut status)
        };
        self.check("MPI_Iprobe", code).map(|()| (found != 0).then_some(status))
    }

    /// Takes a receive back that nobody waits for any more; it is [`done`](Net::done) once that has happened. What is being sent can only be received.
    pub fn cancel(&mut self, request: &mut Request) {
        if request.what == "MPI_Irecv" && !self.done(request).unwrap_or(true) {
            // SAFETY: an active request of ours
            unsafe { (self.call.cancel)(&raw mut request.handle) };
        }
    }

    /// Receives a message that nobody wants any more, if one has come; of `tag`, or any.
    pub fn take_stray(&mut self, tag: Option<Tag>) -> Option<Stray> {
        let status = self.probe(tag.map_or(self.abi.any_tag, |tag| tag as c_int)).ok()??;
        let mut bytes = 0;
        // SAFETY: the status of a message
        unsafe { (self.call.count)(&raw const status, self.abi.byte, &raw mut bytes) };
        let mut rest = vec![0; usize::try_from(bytes).unwrap_or(0)];
        let (source, tag) = (status.0[self.abi.source], status.0[self.abi.source + 1]);
        let irecv = (self.call.irecv, "MPI_Irecv");
        let request = self.start_message(irecv, rest.as_mut_ptr(), rest.len(), source, tag).ok()?;
        Some(Stray { request, _rest: rest })
    }

    /// Ends MPI in all ranks, which must do the same.
    pub fn finalize(self) {
        // SAFETY: nothing of MPI is used afterwards
        unsafe { (self.call.finalize)() };
    }

    /// Ends all ranks at once, and this process.
    pub fn abort(&self, status: u8) -> ! {
        // SAFETY: does not return as a rule
        unsafe { (self.call.abort)(self.abi.world, status.into()) };
        std::process::exit(status.into())
    }
}

impl Net for Mpi {
    type Request = Request;
    type Error = Error;

    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.size
    }
    unsafe fn send(&mut self, from: *const u8, bytes: usize, to: usize, tag: Tag) -> Result<Request, Error> {
        self.start_message((self.call.isend, "MPI_Isend"), from.cast_mut(), bytes, to as c_int, tag as c_int)
    }
    fn come(&mut self, tag: Tag) -> Result<Option<usize>, Error> {
        Ok(self.probe(tag as c_int)?.map(|status| status.0[self.abi.source].cast_unsigned() as usize))
    }
    unsafe fn receive(&mut self, to: *mut u8, bytes: usize, from: usize, tag: Tag) -> Result<Request, Error> {
        self.start_message((self.call.irecv, "MPI_Irecv"), to, bytes, from as c_int, tag as c_int)
    }
    fn done(&mut self, request: &mut Request) -> Result<bool, Error> {
        if !request.done {
            let mut flag = 0;
            // SAFETY: an active request of ours
            let code =
                unsafe { (self.call.test)(&raw mut request.handle, &raw mut flag, self.abi.status_ignore) };
            self.check(request.what, code)?;
            request.done = flag != 0;
        }
        Ok(request.done)
    }
}

/// MPI's words in one line: MPICH's last line is the one that says why.
fn in_a_line(text: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(text).map(CStr::to_string_lossy).unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
