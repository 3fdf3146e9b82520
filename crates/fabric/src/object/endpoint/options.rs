//! What can be set and asked of an endpoint (`fi_getopt`, `fi_setopt`), and cancelling.

use std::ffi::{c_int, c_void};

use super::EpObject;
use super::message::number;
use crate::ffi::*;
use crate::limits::QUEUE;

pub static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel,
    getopt,
    setopt,
    tx_ctx,
    rx_ctx,
    rx_size_left: size_left,
    tx_size_left: size_left,
};

/// -FI_ENOENT when nothing was posted under this context, or it is done.
unsafe extern "C" fn cancel(fid: fid_t, context: *mut c_void) -> isize {
    // SAFETY: C's endpoint.
    let ours = unsafe { EpObject::ours(fid) };
    ours.call(|endpoint, _| if endpoint.cancel(number(context)) { Ok(()) } else { Err(-FI_ENOENT) })
}

unsafe extern "C" fn getopt(
    fid: fid_t,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut usize,
) -> c_int {
    if level != FI_OPT_ENDPOINT {
        return -FI_ENOPROTOOPT;
    }
    // SAFETY: C's endpoint.
    let ours = unsafe { EpObject::ours(fid) };
    let value = match ours.member.lock().endpoints[ours.member.key].option(optname) {
        Ok(value) => value,
        Err(code) => return code,
    };
    // SAFETY: C's buffer has `optlen` bytes.
    unsafe {
        let room = std::mem::replace(&mut *optlen, size_of::<usize>());
        if room < size_of::<usize>() {
            return -FI_ETOOSMALL;
        }
        optval.cast::<usize>().write_unaligned(value);
    }
    FI_SUCCESS
}

unsafe extern "C" fn setopt(
    fid: fid_t,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: usize,
) -> c_int {
    if level != FI_OPT_ENDPOINT {
        return -FI_ENOPROTOOPT;
    }
    // SAFETY: C's endpoint.
    let ours = unsafe { EpObject::ours(fid) };
    let mut state = ours.member.lock();
    let endpoint = &mut state.endpoints[ours.member.key];
    if optname == FI_OPT_SHARED_MEMORY_PERMITTED {
        if optval.is_null() || optlen != size_of::<u8>() {
            return -FI_EINVAL;
        }
        // SAFETY: C's bool.
        let permitted = unsafe { optval.cast::<u8>().read() } != 0;
        return endpoint.permit_shared_memory(permitted);
    }
    if optval.is_null() || optlen != size_of::<usize>() {
        return if endpoint.option(optname).is_ok() { -FI_EINVAL } else { -FI_ENOPROTOOPT };
    }
    // SAFETY: C's value, of that length.
    let value = unsafe { optval.cast::<usize>().read_unaligned() };
    endpoint.set_option(optname, value).map_or_else(|code| code, |()| FI_SUCCESS)
}

unsafe extern "C" fn tx_ctx(
    _: *mut fid_ep,
    _: c_int,
    _: *mut fi_tx_attr,
    _: *mut *mut fid_ep,
    _: *mut c_void,
) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn rx_ctx(
    _: *mut fid_ep,
    _: c_int,
    _: *mut fi_rx_attr,
    _: *mut *mut fid_ep,
    _: *mut c_void,
) -> c_int {
    -FI_ENOSYS
}

/// So many operations may always be posted; how many more depends on the peers.
unsafe extern "C" fn size_left(ep: *mut fid_ep) -> isize {
    // SAFETY: C's endpoint.
    let ours = unsafe { EpObject::ours(ep) };
    if ours.member.lock().endpoints[ours.member.key].enabled {
        QUEUE as isize
    } else {
        -(FI_EOPBADSTATE as isize)
    }
}
