//! `fi_cm(3)`: an endpoint's name. There are no connections to manage: an endpoint connects by itself.

use std::ffi::{c_int, c_void};

use polyrail_core::wire::Address;

use super::{EpObject, open_worker};
use crate::address::Source;
use crate::ffi::*;
use crate::object::copy_out;

pub static OPS: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname,
    getname,
    getpeer,
    connect,
    listen,
    accept,
    reject,
    shutdown,
    join: None,
};

/// Says where to listen; possible until somebody may know the name.
unsafe extern "C" fn setname(fid: fid_t, addr: *mut c_void, addrlen: usize) -> c_int {
    // SAFETY: C's endpoint.
    let ours = unsafe { EpObject::ours(fid) };
    let mut state = ours.member.lock();
    let endpoint = &mut state.endpoints[ours.member.key];
    if endpoint.worker.is_some() {
        return -FI_EOPBADSTATE;
    }
    if addr.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: C's address.
    let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), addrlen) };
    let Some(source) = Source::read(endpoint.format, bytes) else { return -FI_EINVAL };
    endpoint.source = source;
    FI_SUCCESS
}

unsafe extern "C" fn getname(fid: fid_t, addr: *mut c_void, addrlen: *mut usize) -> c_int {
    // SAFETY: C's endpoint.
    let ours = unsafe { EpObject::ours(fid) };
    let mut state = ours.member.lock();
    let (endpoint, mut sinks) = state.split(ours.member.key);
    if let Err(code) = open_worker(endpoint, ours.member.key, &ours.member.domain, &mut sinks) {
        return code;
    }
    let address = endpoint.worker.as_ref().and_then(|worker| Address::parse(&worker.address()).ok());
    let Some(name) = address.and_then(|address| endpoint.format.write(&address)) else {
        return -FI_EADDRNOTAVAIL;
    };
    // SAFETY: C's buffer has `addrlen` bytes.
    let room = unsafe { std::mem::replace(&mut *addrlen, name.len()) };
    // SAFETY: as above.
    unsafe { copy_out(&name, addr.cast(), room) };
    if room < name.len() { -FI_ETOOSMALL } else { FI_SUCCESS }
}

unsafe extern "C" fn getpeer(_: *mut fid_ep, _: *mut c_void, _: *mut usize) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn connect(_: *mut fid_ep, _: *const c_void, _: *const c_void, _: usize) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn listen(_: *mut fid_pep) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn accept(_: *mut fid_ep, _: *const c_void, _: usize) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn reject(_: *mut fid_pep, _: fid_t, _: *const c_void, _: usize) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn shutdown(_: *mut fid_ep, _: u64) -> c_int {
    -FI_ENOSYS
}
