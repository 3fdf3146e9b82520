//! libfabric, loaded at run time, told to find the provider that this build made.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

use polyrail_fi::ffi::*;

type GetInfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;
type OpenFabric = unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
type Version = unsafe extern "C" fn() -> u32;
type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
type FreeInfo = unsafe extern "C" fn(*mut fi_info);

/// libfabric's functions that are not in tables.
pub struct Host {
    getinfo: GetInfo,
    fabric: OpenFabric,
    version: Version,
    dupinfo: DupInfo,
    freeinfo: FreeInfo,
}

/// A list of `fi_info`, or hints.
pub struct Info<'a> {
    host: &'a Host,
    pub list: *mut fi_info,
}

impl Drop for Info<'_> {
    fn drop(&mut self) {
        // SAFETY: the host's, used no more.
        unsafe { (self.host.freeinfo)(self.list) };
    }
}

/// Where cargo puts the library that it builds along with its tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test's path");
    let build = test.parent().expect("target directory");
    assert!(build.join("libpolyrail_fi.so").exists(), "{build:?} has no provider");
    build.into()
}

/// libfabric; none where it is not installed.
#[track_caller]
pub fn host() -> Option<&'static Host> {
    static HOST: OnceLock<Option<Host>> = OnceLock::new();
    let host = HOST.get_or_init(open).as_ref();
    if host.is_none() {
        polyrail_testing::lacking("libfabric.so.1 (Debian: libfabric1)");
    }
    host
}

fn open() -> Option<Host> {
    let asked = std::env::var("POLYRAIL_FABRIC_LIBRARY").ok();
    let name = CString::new(asked.as_deref().unwrap_or("libfabric.so.1")).expect("a path");
    // SAFETY: the name is a C string. RTLD_LOCAL: out of the global scope, as under mpi4py.
    let library_handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library_handle.is_null() {
        assert!(asked.is_none(), "POLYRAIL_FABRIC_LIBRARY: {name:?} does not load");
        return None;
    }
    // SAFETY: other tests wait in `get_or_init`, and none reads the environment before.
    unsafe {
        std::env::set_var("FI_PROVIDER_PATH", library());
        std::env::set_var("FI_PROVIDER", "polyrail");
    }
    let symbol = |name: &str| {
        let name = CString::new(name).expect("a name");
        // SAFETY: a live handle and a C string.
        let symbol = unsafe { libc::dlsym(library_handle, name.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?}");
        symbol
    };
    // SAFETY: libfabric's functions of these names have these signatures.
    unsafe {
        Some(Host {
            getinfo: std::mem::transmute::<*mut c_void, GetInfo>(symbol("fi_getinfo")),
            fabric: std::mem::transmute::<*mut c_void, OpenFabric>(symbol("fi_fabric")),
            version: std::mem::transmute::<*mut c_void, Version>(symbol("fi_version")),
            dupinfo: std::mem::transmute::<*mut c_void, DupInfo>(symbol("fi_dupinfo")),
            freeinfo: std::mem::transmute::<*mut c_void, FreeInfo>(symbol("fi_freeinfo")),
        })
    }
}

/// `polyrail_look_in` of the provider that libfabric has loaded.
pub fn look_in(begins: bool) {
    let name = library().join("libpolyrail_fi.so").into_os_string().into_string().expect("a path in UTF-8");
    let name = CString::new(name).expect("a path");
    // SAFETY: C strings; what is loaded stays, and its function of this name has this signature.
    unsafe {
        let provider = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        assert!(!provider.is_null(), "the provider is not loaded");
        let function = libc::dlsym(provider, c"polyrail_look_in".as_ptr());
        assert!(!function.is_null());
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(function)(begins.into());
    }
}

impl Host {
    /// The newest API that both this libfabric and we know.
    pub fn version(&self) -> u32 {
        // SAFETY: returns a constant.
        unsafe { (self.version)() }.min(FI_VERSION(ABI_MAJOR, ABI_MINOR))
    }

    /// Empty hints.
    pub fn hints(&self) -> Info<'_> {
        // SAFETY: null asks for an empty one.
        Info { host: self, list: unsafe { (self.dupinfo)(ptr::null()) } }
    }

    /// `fi_getinfo`; errors are positive.
    pub fn getinfo(
        &self,
        version: u32,
        node: Option<&str>,
        service: Option<&str>,
        flags: u64,
        hints: Option<&Info<'_>>,
    ) -> Result<Info<'_>, c_int> {
        let text = |text: Option<&str>| text.map(|text| CString::new(text).expect("text"));
        let (node, service) = (text(node), text(service));
        let at = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let hints = hints.map_or(ptr::null(), |hints| hints.list.cast_const());
        let mut list = ptr::null_mut();
        // SAFETY: C strings or nulls, hints of the host's, a place for the list.
        let code = unsafe { (self.getinfo)(version, at(&node), at(&service), flags, hints, &raw mut list) };
        if code == 0 { Ok(Info { host: self, list }) } else { Err(-code) }
    }

    pub fn open_fabric(&self, info: &Info<'_>) -> *mut fid_fabric {
        let mut fabric = ptr::null_mut();
        // SAFETY: the host's information, a place for the result.
        let code = unsafe { (self.fabric)((*info.list).fabric_attr, &raw mut fabric, ptr::null_mut()) };
        assert_eq!(code, 0, "fi_fabric");
        fabric
    }
}
