//! Finds a real libfabric in the process and calls it. Skipped, and says so, where none is installed
//! (Debian: libfabric1). `POLYRAIL_FABRIC_LIBRARY` names another to load instead.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::ptr;

use polyrail_fi::ffi::host::{Host, HostMissing};
use polyrail_fi::ffi::*;

unsafe extern "C" fn no_info(
    _: u32,
    _: *const c_char,
    _: *const c_char,
    _: u64,
    _: *const fi_info,
    _: *mut *mut fi_info,
) -> c_int {
    -FI_ENODATA
}

unsafe extern "C" fn no_fabric(_: *mut fi_fabric_attr, _: *mut *mut fid_fabric, _: *mut c_void) -> c_int {
    -FI_ENOSYS
}

/// One test, as its steps change the process: first without a libfabric, then with.
#[test]
fn host_is_found_once_loaded() {
    let missing = Host::find().expect_err("nothing has loaded libfabric yet");
    assert_eq!(missing, HostMissing { symbol: c"fi_version", loaded: false });
    assert_eq!(
        missing.to_string(),
        "no libfabric in this process: libfabric.so.1 is not loaded, fi_version not in scope"
    );

    let asked = std::env::var("POLYRAIL_FABRIC_LIBRARY").ok();
    let library = CString::new(asked.as_deref().unwrap_or("libfabric.so.1")).expect("a path");
    // SAFETY: the name is a C string. RTLD_LOCAL: out of the global scope, as under mpi4py.
    if unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }.is_null() {
        assert!(asked.is_none(), "POLYRAIL_FABRIC_LIBRARY: {library:?} does not load");
        return polyrail_testing::lacking(format_args!("{library:?}"));
    }
    // SAFETY: the test is the process's only thread that reads or writes the environment now.
    unsafe {
        std::env::set_var("FI_HOSTTEST_RAILS", "eth0,eth1");
        std::env::set_var("FI_HOSTTEST_COUNT", "-3");
        std::env::set_var("FI_HOSTTEST_EAGER", "yes");
        std::env::set_var("FI_HOSTTEST_CHUNK", "65536");
        std::env::set_var("FI_HOSTTEST_BAD", "perhaps");
        std::env::set_var("FI_LOG_LEVEL", "warn");
        std::env::set_var("FI_PROVIDER", "none");
    }
    initialise();
    let host = Host::find().expect("libfabric is loaded");
    assert!(host.version() >= FI_VERSION(1, 17), "{host:?}");
    infos(&host);
    assert_eq!(host.strerror(FI_ETRUNC), "Truncation error");
    assert!(!host.strerror(FI_EINVAL).is_empty());
    provider(host);
}

/// Has libfabric set up its parameters and log, as it has when it calls a provider.
fn initialise() {
    type GetInfo = unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const fi_info,
        *mut *mut fi_info,
    ) -> c_int;
    let mut info = ptr::null_mut();
    // SAFETY: the function is libfabric's `fi_getinfo`, of that signature, which takes nulls for absent.
    let code = unsafe {
        let library = libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        let function = libc::dlsym(library, c"fi_getinfo".as_ptr());
        assert!(!function.is_null());
        let function = std::mem::transmute::<*mut c_void, GetInfo>(function);
        function(FI_VERSION(1, 17), ptr::null(), ptr::null(), 0, ptr::null(), &raw mut info)
    };
    assert_eq!(code, -FI_ENODATA, "there is no provider of the name none");
}

fn infos(host: &Host) {
    let info = host.allocinfo().expect("memory");
    // SAFETY: the info is new, valid and all its attributes are there; the address is malloc's, so that
    // freeinfo may free it; the list is freed once.
    unsafe {
        let raw = info.as_ptr();
        assert!(!(*raw).domain_attr.is_null() && !(*raw).ep_attr.is_null() && (*raw).next.is_null());
        (*raw).caps = FI_MSG | FI_TAGGED;
        (*raw).src_addr = libc::malloc(4);
        (*raw).src_addrlen = 4;
        (*raw).src_addr.cast::<u32>().write(0x0102_0304);
        (*(*raw).ep_attr).max_msg_size = 1 << 30;
        (*(*raw).domain_attr).tclass = FI_TC_BULK_DATA;
        let copy = host.dupinfo(info).expect("memory").as_ptr();
        assert_eq!((*copy).caps, FI_MSG | FI_TAGGED);
        assert_ne!((*copy).src_addr, (*raw).src_addr);
        assert_eq!((*copy).src_addr.cast::<u32>().read(), 0x0102_0304);
        assert_eq!((*(*copy).ep_attr).max_msg_size, 1 << 30);
        assert_eq!((*(*copy).domain_attr).tclass, FI_TC_BULK_DATA);
        (*raw).next = copy;
        host.freeinfo(raw);
        host.freeinfo(ptr::null_mut());
    }
}

fn provider(host: Host) {
    let provider = ptr::NonNull::from(Box::leak(Box::new(fi_provider {
        version: 1,
        fi_version: host.version(),
        context: fi_context { internal: [ptr::null_mut(); 4] },
        name: c"hosttest".as_ptr(),
        getinfo: no_info,
        fabric: no_fabric,
        cleanup: None,
    })));
    // SAFETY: the provider is leaked, its name static, and no one else reads its parameters.
    let host = unsafe { host.of_provider(provider) };
    assert_eq!(host.param_string(c"rails", c"which rails"), Ok(Some(c"eth0,eth1".into())));
    assert_eq!(host.param_string(c"unset", c"never set"), Ok(None));
    assert_eq!(host.param_int(c"count", c"a count of 100%d"), Ok(Some(-3)));
    assert_eq!(host.param_bool(c"eager", c"a switch"), Ok(Some(true)));
    assert_eq!(host.param_size(c"chunk", c"a size"), Ok(Some(65536)));
    assert_eq!(host.param_bool(c"bad", c"a switch"), Err(FI_EINVAL));
    assert_eq!(host.param_int(c"nohelp", c""), Err(FI_EINVAL));

    let written = errors_of(|| {
        host.log(FI_LOG_WARN, FI_LOG_CORE, c"a_function", 77, format_args!("100 %s, a \0 within"));
        host.log(FI_LOG_INFO, FI_LOG_CORE, c"a_function", 78, format_args!("not wanted"));
    });
    assert!(!host.log_enabled(FI_LOG_INFO, FI_LOG_CORE));
    assert!(written.contains("hosttest:core:a_function():77<warn> 100 %s, a  within\n"), "{written}");
    assert!(!written.contains("not wanted"), "{written}");
}

/// What `act` writes to the standard error.
fn errors_of(act: impl FnOnce()) -> String {
    let mut file = memory_file();
    // SAFETY: both descriptors are open, and the saved one is put back and closed.
    unsafe {
        let saved = libc::dup(2);
        assert!(saved >= 0 && libc::dup2(file.as_raw_fd(), 2) == 2);
        act();
        assert!(libc::dup2(saved, 2) == 2 && libc::close(saved) == 0);
    }
    let mut text = String::new();
    file.rewind().expect("a file can be rewound");
    file.read_to_string(&mut text).expect("the log is UTF-8");
    text
}

fn memory_file() -> File {
    // SAFETY: the name is a C string, and the new descriptor has no other owner.
    unsafe {
        let file = libc::memfd_create(c"log".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0);
        File::from_raw_fd(file)
    }
}
