//! What can be set and asked of an endpoint (`fi_getopt`, `fi_setopt`), and cancelling.

use std::ffi::{c_int, c_void};

use super::message::number;
use super::{Endpoint, EpObject, Limits};
use crate::ffi::*;
use crate::info::offer::{MSG_MAX, QUEUE};
use polyrail_rails::INJECT_MAX;

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

impl Limits {
    /// The size that an option stands for, and how large it may be.
    fn of(&mut self, option: c_int) -> Option<(&mut usize, usize)> {
        Some(match option {
            FI_OPT_MAX_MSG_SIZE => (&mut self.msg, MSG_MAX),
            FI_OPT_MAX_TAGGED_SIZE => (&mut self.tagged, MSG_MAX),
            FI_OPT_MAX_RMA_SIZE => (&mut self.rma, MSG_MAX),
            FI_OPT_MAX_ATOMIC_SIZE => (&mut self.atomic, MSG_MAX),
            FI_OPT_INJECT_MSG_SIZE => (&mut self.inject_msg, INJECT_MAX),
            FI_OPT_INJECT_TAGGED_SIZE => (&mut self.inject_tagged, INJECT_MAX),
            FI_OPT_INJECT_RMA_SIZE => (&mut self.inject_rma, INJECT_MAX),
            FI_OPT_INJECT_ATOMIC_SIZE => (&mut self.inject_atomic, INJECT_MAX),
            _ => return None,
        })
    }
}

impl Endpoint {
    /// Shared memory is decided on when the worker is opened.
    fn permit_shared_memory(&mut self, permitted: bool) -> c_int {
        if self.worker.is_some() {
            return -FI_EOPBADSTATE;
        }
        self.shared_memory = permitted;
        FI_SUCCESS
    }

    fn option(&mut self, option: c_int) -> Result<usize, c_int> {
        match option {
            FI_OPT_MIN_MULTI_RECV => Ok(self.least_multi as usize),
            // connections of this kind of endpoint carry no data
            FI_OPT_CM_DATA_SIZE => Ok(0),
            FI_OPT_TX_SIZE | FI_OPT_RX_SIZE => Ok(QUEUE),
            _ => self.limits.of(option).map(|(limit, _)| *limit).ok_or(-FI_ENOPROTOOPT),
        }
    }

    fn set_option(&mut self, option: c_int, value: usize) -> Result<(), c_int> {
        if option == FI_OPT_MIN_MULTI_RECV {
            self.least_multi = value as u64;
            return Ok(());
        }
        let (limit, most) = self.limits.of(option).ok_or(-FI_ENOPROTOOPT)?;
        if value > most {
            return Err(-FI_EINVAL);
        }
        *limit = value;
        Ok(())
    }
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
    let value = match ours.member.lock().endpoints[ours.member.number].option(optname) {
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
    let endpoint = &mut state.endpoints[ours.member.number];
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
    if ours.member.lock().endpoints[ours.member.number].enabled {
        QUEUE as isize
    } else {
        -(FI_EOPBADSTATE as isize)
    }
}
