//! What a provider's library gives libfabric, and the types of what libfabric gives providers.

use core::ffi::{c_char, c_int, c_void};

use super::{fi_context, fi_fabric_attr, fi_info, fid_fabric};

/// What `fi_prov_ini` returns. libfabric writes `context` and keeps the pointer until it calls `cleanup`, so
/// it must stay where it is, in writable memory.
#[repr(C)]
pub struct fi_provider {
    /// The provider's own version; of two with one name the newer is kept.
    pub version: u32,
    /// Newest API it knows: it is not asked when an application wants a newer one, so take the host's version.
    pub fi_version: u32,
    pub context: fi_context,
    /// Must not begin with `ofi_`.
    pub name: *const c_char,
    pub getinfo: unsafe extern "C" fn(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int,
    pub fabric: unsafe extern "C" fn(
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int,
    pub cleanup: Option<unsafe extern "C" fn()>,
}

/// Type of the one symbol that a provider's library exports: `fi_prov_ini`. Null means: not here.
pub type fi_prov_ini_t = unsafe extern "C" fn() -> *mut fi_provider;

pub type fi_log_subsys = u32;
pub const FI_LOG_CORE: fi_log_subsys = 0;
pub const FI_LOG_FABRIC: fi_log_subsys = 1;
pub const FI_LOG_DOMAIN: fi_log_subsys = 2;
pub const FI_LOG_EP_CTRL: fi_log_subsys = 3;
pub const FI_LOG_EP_DATA: fi_log_subsys = 4;
pub const FI_LOG_AV: fi_log_subsys = 5;
pub const FI_LOG_CQ: fi_log_subsys = 6;
pub const FI_LOG_EQ: fi_log_subsys = 7;
pub const FI_LOG_MR: fi_log_subsys = 8;
pub const FI_LOG_CNTR: fi_log_subsys = 9;

pub type fi_log_level = u32;
pub const FI_LOG_WARN: fi_log_level = 0;
pub const FI_LOG_TRACE: fi_log_level = 1;
pub const FI_LOG_INFO: fi_log_level = 2;
pub const FI_LOG_DEBUG: fi_log_level = 3;

pub type fi_param_type = u32;
pub const FI_PARAM_STRING: fi_param_type = 0;
pub const FI_PARAM_INT: fi_param_type = 1;
pub const FI_PARAM_BOOL: fi_param_type = 2;
pub const FI_PARAM_SIZE_T: fi_param_type = 3;

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<fi_provider>() == 72);
