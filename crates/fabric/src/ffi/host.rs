//! The libfabric that loaded us: found at run time, never linked.
//!
//! Linking would bind the symbol versions of the build machine's library, and could load a second libfabric
//! beside the application's. The host has been loaded already when it calls `fi_prov_ini`, but perhaps not
//! into the global scope (mpi4py loads MPI privately), so it is asked for by its soname without loading it.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt;
use core::ptr::{self, NonNull};
use std::ffi::CString;

use super::{
    FI_EINVAL, FI_ENODATA, FI_LOG_CNTR, FI_LOG_DEBUG, FI_MAJOR, FI_MINOR, FI_PARAM_BOOL, FI_PARAM_INT,
    FI_PARAM_SIZE_T, FI_PARAM_STRING, FI_SUCCESS, fi_info, fi_log_level, fi_log_subsys, fi_param_type,
    fi_provider,
};

const SONAME: &CStr = c"libfabric.so.1";

type Version = unsafe extern "C" fn() -> u32;
type DupInfo = unsafe extern "C" fn(info: *const fi_info) -> *mut fi_info;
type FreeInfo = unsafe extern "C" fn(info: *mut fi_info);
type ParamDefine = unsafe extern "C" fn(
    provider: *const fi_provider,
    name: *const c_char,
    r#type: fi_param_type,
    help_format: *const c_char,
    ...
) -> c_int;
type ParamGet =
    unsafe extern "C" fn(provider: *mut fi_provider, name: *const c_char, value: *mut c_void) -> c_int;
type Log = unsafe extern "C" fn(
    provider: *const fi_provider,
    level: fi_log_level,
    subsys: fi_log_subsys,
    function: *const c_char,
    line: c_int,
    format: *const c_char,
    ...
);
type LogEnabled =
    unsafe extern "C" fn(provider: *const fi_provider, level: fi_log_level, subsys: fi_log_subsys) -> c_int;
type StrError = unsafe extern "C" fn(errnum: c_int) -> *const c_char;

/// The hosting libfabric's functions. It stays loaded from [`Host::find`] to the end of the process.
#[derive(Clone, Copy)]
pub struct Host {
    version: Version,
    dupinfo: DupInfo,
    freeinfo: FreeInfo,
    param_define: ParamDefine,
    param_get: ParamGet,
    log: Log,
    log_enabled: LogEnabled,
    strerror: StrError,
}

/// Why there is no [`Host`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMissing {
    /// The first function that was not found.
    pub symbol: &'static CStr,
    /// Whether a libfabric was found in the process, which then lacks the function.
    pub loaded: bool,
}

impl fmt::Display for HostMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (soname, symbol) = (SONAME.to_string_lossy(), self.symbol.to_string_lossy());
        match self.loaded {
            true => write!(f, "{soname} of this process has no function {symbol}"),
            false => write!(f, "no libfabric in this process: {soname} is not loaded, {symbol} not in scope"),
        }
    }
}

impl std::error::Error for HostMissing {}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version();
        write!(f, "Host(libfabric {}.{})", FI_MAJOR(version), FI_MINOR(version))
    }
}

impl Host {
    /// Finds the libfabric of this process; loads none. A libfabric linked into the application itself is
    /// found through the global scope.
    ///
    /// # Errors
    /// If there is none, or one that lacks a function.
    pub fn find() -> Result<Self, HostMissing> {
        // SAFETY: the name is a C string; with RTLD_NOLOAD no code is run. The reference taken is kept for
        // ever, which keeps the functions below where they are.
        let library = unsafe { libc::dlopen(SONAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        let loaded = !library.is_null();
        let scope = if loaded { library } else { libc::RTLD_DEFAULT };
        let symbol = |symbol: &'static CStr| {
            // SAFETY: `scope` is a live handle or RTLD_DEFAULT, the name is a C string.
            NonNull::new(unsafe { libc::dlsym(scope, symbol.as_ptr()) })
                .map(NonNull::as_ptr)
                .ok_or(HostMissing { symbol, loaded })
        };
        // SAFETY: each address is that of libfabric's function of that name, whose C signature (fabric.h,
        // fi_errno.h, providers/fi_prov.h, providers/fi_log.h) the type repeats; it has not changed since 1.0.
        unsafe {
            Ok(Self {
                version: std::mem::transmute::<*mut c_void, Version>(symbol(c"fi_version")?),
                dupinfo: std::mem::transmute::<*mut c_void, DupInfo>(symbol(c"fi_dupinfo")?),
                freeinfo: std::mem::transmute::<*mut c_void, FreeInfo>(symbol(c"fi_freeinfo")?),
                param_define: std::mem::transmute::<*mut c_void, ParamDefine>(symbol(c"fi_param_define")?),
                param_get: std::mem::transmute::<*mut c_void, ParamGet>(symbol(c"fi_param_get")?),
                log: std::mem::transmute::<*mut c_void, Log>(symbol(c"fi_log")?),
                log_enabled: std::mem::transmute::<*mut c_void, LogEnabled>(symbol(c"fi_log_enabled")?),
                strerror: std::mem::transmute::<*mut c_void, StrError>(symbol(c"fi_strerror")?),
            })
        }
    }

    /// The host's version, as made by `FI_VERSION`.
    pub fn version(&self) -> u32 {
        // SAFETY: it takes nothing and returns a constant.
        unsafe { (self.version)() }
    }

    /// A new `fi_info` with all attributes (but `nic`) allocated and zero; `None` without memory. Its
    /// structs are as long as the host's version of them: see the table in [`super`].
    pub fn allocinfo(&self) -> Option<NonNull<fi_info>> {
        // SAFETY: null asks for an empty one.
        NonNull::new(unsafe { (self.dupinfo)(ptr::null()) })
    }

    /// A deep copy of one `fi_info`, without those that follow it; `None` without memory.
    ///
    /// # Safety
    /// `info` is valid and was made by this host (else its structs may be shorter than what is copied).
    pub unsafe fn dupinfo(&self, info: NonNull<fi_info>) -> Option<NonNull<fi_info>> {
        // SAFETY: by the caller's promise.
        NonNull::new(unsafe { (self.dupinfo)(info.as_ptr()) })
    }

    /// Frees a whole list of `fi_info` with all they point to, except open objects (`handle`, `domain`,
    /// `fabric`) and nothing for null. Strings and addresses within are freed with C's `free`.
    ///
    /// # Safety
    /// The list was made by this host, what was added to it by C's `malloc`, and nobody uses it any more.
    pub unsafe fn freeinfo(&self, info: *mut fi_info) {
        // SAFETY: by the caller's promise.
        unsafe { (self.freeinfo)(info) }
    }

    /// libfabric's text for an error number (positive, of either kind).
    pub fn strerror(&self, errnum: c_int) -> String {
        // SAFETY: it takes any number and returns a C string, which is copied at once.
        unsafe { CStr::from_ptr((self.strerror)(errnum)) }.to_string_lossy().into_owned()
    }

    /// Binds the host's parameters and log to one provider.
    ///
    /// # Safety
    /// `provider` and its `name` stay valid as long as the binding or a copy is used, and the provider's
    /// parameters are read through it only, each name with one type.
    pub unsafe fn of_provider(self, provider: NonNull<fi_provider>) -> HostOf {
        HostOf { host: self, provider }
    }
}

/// What the host does in one provider's name.
///
/// A `param_*` function declares the variable `FI_<PROVIDER>_<NAME>`, for `fi_info -e` to show with its
/// `help` (not empty), and reads it from the environment or libfabric's configuration: `None` if it is not
/// set. Call each once, from `fi_prov_ini`, which libfabric serialises; its list of parameters has no lock.
/// Their error is libfabric's number, positive: `FI_EINVAL` for a value that does not parse, `FI_ENOMEM`.
#[derive(Clone, Copy, Debug)]
pub struct HostOf {
    host: Host,
    provider: NonNull<fi_provider>,
}

// SAFETY: the provider is only handed to libfabric, which reads its name and, in `context`, log settings
// that do not change after registration.
unsafe impl Send for HostOf {}
// SAFETY: as above.
unsafe impl Sync for HostOf {}

impl HostOf {
    /// The host itself.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// A parameter that is text.
    ///
    /// # Errors
    /// See [`HostOf`].
    pub fn param_string(&self, name: &CStr, help: &CStr) -> Result<Option<CString>, c_int> {
        let text = self.param(name, FI_PARAM_STRING, help, ptr::null::<c_char>())?;
        // SAFETY: libfabric set it to the variable's value in the environment, which is copied at once.
        Ok(text.map(|text| unsafe { CStr::from_ptr(text) }.to_owned()))
    }

    /// A parameter that is a number; what follows the number is ignored, no number is 0.
    ///
    /// # Errors
    /// See [`HostOf`].
    pub fn param_int(&self, name: &CStr, help: &CStr) -> Result<Option<c_int>, c_int> {
        self.param(name, FI_PARAM_INT, help, 0)
    }

    /// A parameter that is 1, true, yes, on, or 0, false, no, off.
    ///
    /// # Errors
    /// See [`HostOf`].
    pub fn param_bool(&self, name: &CStr, help: &CStr) -> Result<Option<bool>, c_int> {
        Ok(self.param(name, FI_PARAM_BOOL, help, 0 as c_int)?.map(|value| value != 0))
    }

    /// A parameter that is a size; as for [`HostOf::param_int`], and a negative one wraps.
    ///
    /// # Errors
    /// See [`HostOf`].
    pub fn param_size(&self, name: &CStr, help: &CStr) -> Result<Option<usize>, c_int> {
        self.param(name, FI_PARAM_SIZE_T, help, 0)
    }

    /// Whether [`HostOf::log`] would write.
    pub fn log_enabled(&self, level: fi_log_level, subsys: fi_log_subsys) -> bool {
        debug_assert!(level <= FI_LOG_DEBUG && subsys <= FI_LOG_CNTR);
        // SAFETY: the provider is valid (`of_provider`); libfabric shifts by the two numbers.
        unsafe { (self.host.log_enabled)(self.provider.as_ptr(), level, subsys) != 0 }
    }

    /// Writes a line to libfabric's log if `level` and `subsys` are on (`FI_LOG_LEVEL`, `FI_LOG_SUBSYS`);
    /// formats nothing otherwise. `function` and `line` say where it comes from.
    pub fn log(
        &self,
        level: fi_log_level,
        subsys: fi_log_subsys,
        function: &CStr,
        line: u32,
        message: fmt::Arguments<'_>,
    ) {
        if !self.log_enabled(level, subsys) {
            return;
        }
        let mut text = message.to_string().into_bytes();
        text.retain(|&byte| byte != 0);
        let text = CString::new(text).unwrap_or_default();
        let line = c_int::try_from(line).unwrap_or(c_int::MAX);
        // SAFETY: all are C strings, the format takes the one argument; libfabric keeps none of them.
        unsafe {
            (self.host.log)(
                self.provider.as_ptr(),
                level,
                subsys,
                function.as_ptr(),
                line,
                c"%s\n".as_ptr(),
                text.as_ptr(),
            );
        }
    }

    /// `value` must be of the C type that libfabric writes for `kind`.
    fn param<T>(&self, name: &CStr, kind: fi_param_type, help: &CStr, value: T) -> Result<Option<T>, c_int> {
        // libfabric refuses an empty help, but sees only "%s".
        if help.is_empty() {
            return Err(FI_EINVAL);
        }
        let provider = self.provider.as_ptr();
        // SAFETY: all are C strings, which libfabric copies; the format takes the one argument.
        let code =
            unsafe { (self.host.param_define)(provider, name.as_ptr(), kind, c"%s".as_ptr(), help.as_ptr()) };
        if code != FI_SUCCESS {
            return Err(-code);
        }
        let mut value = value;
        // SAFETY: the name is a C string, and `value` of the type that is written: the parameter has been
        // declared with `kind`, now and (`of_provider`) each time before.
        match unsafe { (self.host.param_get)(provider, name.as_ptr(), (&raw mut value).cast()) } {
            FI_SUCCESS => Ok(Some(value)),
            code if code == -FI_ENODATA => Ok(None),
            code => Err(-code),
        }
    }
}
