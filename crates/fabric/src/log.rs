//! Libfabric's log, in this provider's name.

use std::sync::OnceLock;

use crate::ffi::host::HostOf;

static HOST: OnceLock<HostOf> = OnceLock::new();

/// The hosting libfabric; none before it has called `fi_prov_ini`.
pub fn host() -> Option<&'static HostOf> {
    HOST.get()
}

/// Remembers the hosting libfabric. The first that is named stays.
pub fn set_host(host: HostOf) -> &'static HostOf {
    HOST.get_or_init(|| host)
}

/// Writes to libfabric's log: level, subsystem, then as `format!`.
macro_rules! log {
    ($level:ident, $subsys:ident, $($message:tt)*) => {
        if let Some(host) = $crate::log::host()
            && host.log_enabled($crate::ffi::$level, $crate::ffi::$subsys)
        {
            const WHERE: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(module_path!(), "\0").as_bytes()) {
                Ok(path) => path,
                Err(_) => c"polyrail",
            };
            host.log($crate::ffi::$level, $crate::ffi::$subsys, WHERE, line!(), format_args!($($message)*));
        }
    };
}
pub(crate) use log;
