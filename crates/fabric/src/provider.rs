//! What libfabric finds when it loads this library, and what the rest of the library needs of libfabric.

use std::cell::UnsafeCell;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use polyrail_rails::config::SETTINGS;
use polyrail_rails::{Config, Error};

use crate::ffi::host::{Host, HostOf};
use crate::ffi::{FI_VERSION, fi_context, fi_provider};
use crate::{fabric, info};

/// The provider's name, and that of its one fabric and one domain.
pub const NAME: &str = "polyrail";

/// The provider's own version; of two of one name libfabric keeps the newer.
pub const VERSION: u32 = FI_VERSION(0, 1);

/// Where libfabric keeps what it knows of us: it writes there.
struct Static(UnsafeCell<MaybeUninit<fi_provider>>);

// SAFETY: written by `fi_prov_ini`, which libfabric serialises, and by libfabric afterwards.
unsafe impl Sync for Static {}

static PROVIDER: Static = Static(UnsafeCell::new(MaybeUninit::uninit()));
static HOST: OnceLock<HostOf> = OnceLock::new();
static SETTINGS_SET: OnceLock<Vec<(&'static str, String)>> = OnceLock::new();

/// The hosting libfabric; none before it has called [`fi_prov_ini`].
pub fn host() -> Option<&'static HostOf> {
    HOST.get()
}

/// Writes to libfabric's log: level, subsystem, then as `format!`.
macro_rules! log {
    ($level:ident, $subsys:ident, $($message:tt)*) => {
        if let Some(host) = $crate::provider::host()
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

/// What libfabric calls first. Null where the process has no libfabric that we could serve.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    let place = PROVIDER.0.get().cast::<fi_provider>();
    let Ok(host) = Host::find() else { return ptr::null_mut() };
    let provider = fi_provider {
        version: VERSION,
        // What an application may ask for at most. The definitions in `ffi` have only grown at their ends.
        fi_version: host.version(),
        context: fi_context { internal: [ptr::null_mut(); 4] },
        name: c"polyrail".as_ptr(),
        getinfo: info::getinfo,
        fabric: fabric::open,
        cleanup: Some(cleanup),
    };
    // SAFETY: libfabric serialises this call, and uses the place only once it has been returned.
    unsafe { place.write(provider) };
    let Some(place) = NonNull::new(place) else { return ptr::null_mut() };
    // SAFETY: the provider is static and its name a literal; only `define_settings` reads parameters, all as text.
    let host = unsafe { host.of_provider(place) };
    let host = HOST.get_or_init(|| host);
    define_settings(host);
    place.as_ptr()
}

/// Declares `FI_POLYRAIL_...` to libfabric, and keeps what is set of them, also in libfabric's configuration file.
fn define_settings(host: &HostOf) {
    let defined = SETTINGS.iter().filter_map(|&(name, help)| {
        let parameter = CString::new(name.to_ascii_lowercase()).ok()?;
        let help = CString::new(format!("{help}; POLYRAIL_{name} is the same, and comes first")).ok()?;
        match host.param_string(&parameter, &help) {
            Ok(value) => Some((name, value?.into_string().ok()?)),
            Err(code) => {
                log!(FI_LOG_WARN, FI_LOG_CORE, "parameter {name}: {}", host.host().strerror(code));
                None
            }
        }
    });
    let _ = SETTINGS_SET.set(defined.collect());
}

/// The settings of a new endpoint.
pub fn settings() -> Result<Config, Error> {
    Config::from_lookup(|name| {
        let ours = std::env::var(format!("POLYRAIL_{name}")).ok();
        let theirs = || {
            let all = SETTINGS_SET.get()?;
            all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
        };
        ours.or_else(theirs).filter(|value| !value.is_empty())
    })
}

/// libfabric calls it when the process ends, then unloads us (in vain: the library is linked so that it stays). What
/// applications left open is closed, so that no thread of ours runs on.
unsafe extern "C" fn cleanup() {
    fabric::stop_all();
}
