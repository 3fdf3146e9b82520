//! What C is given to sleep on.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use crate::ffi::*;
use crate::wait::Wait;

/// `FI_GETWAIT`: gives the application its wait object, which joins the descriptors of these workers.
///
/// # Safety
/// `arg` is what libfabric asks for an object of this kind.
pub unsafe fn give(wait: &mut Wait, arg: *mut c_void, workers: impl IntoIterator<Item = RawFd>) -> c_int {
    let object = wait.object();
    if !matches!(object, FI_WAIT_FD | FI_WAIT_UNSPEC | FI_WAIT_POLLFD) {
        return -FI_ENOSYS;
    }
    let fd = match wait.fd(workers) {
        Ok(fd) => fd,
        Err(error) => return -error.raw_os_error().unwrap_or(FI_EIO),
    };
    if object != FI_WAIT_POLLFD {
        // SAFETY: a place for an int.
        unsafe { arg.cast::<c_int>().write(fd) };
        return FI_SUCCESS;
    }
    // SAFETY: a fi_wait_pollfd, with room for `nfds` descriptors.
    unsafe {
        let set = arg.cast::<fi_wait_pollfd>();
        let room = std::mem::replace(&mut (*set).nfds, 1);
        if room < 1 {
            return -FI_ETOOSMALL;
        }
        (*set).change_index = 1;
        (*set).fd.write(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    }
    FI_SUCCESS
}
