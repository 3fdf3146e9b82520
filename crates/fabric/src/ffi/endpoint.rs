//! Endpoints: their operations, connection management, messages, tagged messages, remote memory access.

use core::ffi::{c_int, c_void};

use libc::iovec;

use super::{fi_addr_t, fi_ops_atomic, fi_ops_collective, fi_rx_attr, fi_tx_attr, fid, fid_t};

/// Level of the options below.
pub const FI_OPT_ENDPOINT: c_int = 0;
// Options; the comment is the value's type.
pub const FI_OPT_MIN_MULTI_RECV: c_int = 0; // usize
pub const FI_OPT_CM_DATA_SIZE: c_int = 1; // usize
pub const FI_OPT_BUFFERED_MIN: c_int = 2; // usize
pub const FI_OPT_BUFFERED_LIMIT: c_int = 3; // usize
pub const FI_OPT_SEND_BUF_SIZE: c_int = 4; // usize
pub const FI_OPT_RECV_BUF_SIZE: c_int = 5; // usize
pub const FI_OPT_TX_SIZE: c_int = 6; // usize
pub const FI_OPT_RX_SIZE: c_int = 7; // usize
pub const FI_OPT_FI_HMEM_P2P: c_int = 8; // c_int
pub const FI_OPT_XPU_TRIGGER: c_int = 9; // none
pub const FI_OPT_CUDA_API_PERMITTED: c_int = 10; // bool
pub const FI_OPT_SHARED_MEMORY_PERMITTED: c_int = 11; // bool
pub const FI_OPT_MAX_MSG_SIZE: c_int = 12; // usize
pub const FI_OPT_MAX_TAGGED_SIZE: c_int = 13; // usize
pub const FI_OPT_MAX_RMA_SIZE: c_int = 14; // usize
pub const FI_OPT_MAX_ATOMIC_SIZE: c_int = 15; // usize
pub const FI_OPT_INJECT_MSG_SIZE: c_int = 16; // usize
pub const FI_OPT_INJECT_TAGGED_SIZE: c_int = 17; // usize
pub const FI_OPT_INJECT_RMA_SIZE: c_int = 18; // usize
pub const FI_OPT_INJECT_ATOMIC_SIZE: c_int = 19; // usize
pub const FI_OPT_FIREWALL_ADDR: c_int = 20; // bool

// Values of `FI_OPT_FI_HMEM_P2P`.
pub const FI_HMEM_P2P_ENABLED: c_int = 0;
pub const FI_HMEM_P2P_REQUIRED: c_int = 1;
pub const FI_HMEM_P2P_PREFERRED: c_int = 2;
pub const FI_HMEM_P2P_DISABLED: c_int = 3;

/// A table that the endpoint has not may be null if libfabric's callers check it: only `collective` is.
#[repr(C)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *const fi_ops_ep,
    pub cm: *const fi_ops_cm,
    pub msg: *const fi_ops_msg,
    pub rma: *const fi_ops_rma,
    pub tagged: *const fi_ops_tagged,
    pub atomic: *const fi_ops_atomic,
    pub collective: *const fi_ops_collective,
}

#[repr(C)]
pub struct fid_pep {
    pub fid: fid,
    pub ops: *const fi_ops_ep,
    pub cm: *const fi_ops_cm,
}

#[repr(C)]
pub struct fid_stx {
    pub fid: fid,
    pub ops: *const fi_ops_ep,
}

#[repr(C)]
pub struct fid_mc {
    pub fid: fid,
    pub fi_addr: fi_addr_t,
}

#[repr(C)]
pub struct fi_ops_ep {
    pub size: usize,
    pub cancel: unsafe extern "C" fn(fid: fid_t, context: *mut c_void) -> isize,
    pub getopt: unsafe extern "C" fn(
        fid: fid_t,
        level: c_int,
        optname: c_int,
        optval: *mut c_void,
        optlen: *mut usize,
    ) -> c_int,
    pub setopt: unsafe extern "C" fn(
        fid: fid_t,
        level: c_int,
        optname: c_int,
        optval: *const c_void,
        optlen: usize,
    ) -> c_int,
    pub tx_ctx: unsafe extern "C" fn(
        sep: *mut fid_ep,
        index: c_int,
        attr: *mut fi_tx_attr,
        tx_ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int,
    pub rx_ctx: unsafe extern "C" fn(
        sep: *mut fid_ep,
        index: c_int,
        attr: *mut fi_rx_attr,
        rx_ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int,
    pub rx_size_left: unsafe extern "C" fn(ep: *mut fid_ep) -> isize,
    pub tx_size_left: unsafe extern "C" fn(ep: *mut fid_ep) -> isize,
}

#[repr(C)]
pub struct fi_ops_cm {
    pub size: usize,
    pub setname: unsafe extern "C" fn(fid: fid_t, addr: *mut c_void, addrlen: usize) -> c_int,
    pub getname: unsafe extern "C" fn(fid: fid_t, addr: *mut c_void, addrlen: *mut usize) -> c_int,
    pub getpeer: unsafe extern "C" fn(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int,
    pub connect: unsafe extern "C" fn(
        ep: *mut fid_ep,
        addr: *const c_void,
        param: *const c_void,
        paramlen: usize,
    ) -> c_int,
    pub listen: unsafe extern "C" fn(pep: *mut fid_pep) -> c_int,
    pub accept: unsafe extern "C" fn(ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int,
    pub reject: unsafe extern "C" fn(
        pep: *mut fid_pep,
        handle: fid_t,
        param: *const c_void,
        paramlen: usize,
    ) -> c_int,
    pub shutdown: unsafe extern "C" fn(ep: *mut fid_ep, flags: u64) -> c_int,
    pub join: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            addr: *const c_void,
            flags: u64,
            mc: *mut *mut fid_mc,
            context: *mut c_void,
        ) -> c_int,
    >,
}

/// `desc` may be null; `iov_count` may be 0, then `msg_iov` may be anything.
#[repr(C)]
pub struct fi_msg {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct fi_ops_msg {
    pub size: usize,
    pub recv: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        src_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize,
    pub recvv: unsafe extern "C" fn(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize,
    pub recvmsg: unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize,
    pub send: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize,
    pub sendv: unsafe extern "C" fn(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize,
    pub sendmsg: unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize,
    pub inject:
        unsafe extern "C" fn(ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t) -> isize,
    pub senddata: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize,
    pub injectdata: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
    ) -> isize,
}

#[repr(C)]
pub struct fi_msg_tagged {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct fi_ops_tagged {
    pub size: usize,
    pub recv: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        src_addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize,
    pub recvv: unsafe extern "C" fn(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize,
    pub recvmsg: unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize,
    pub send: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize,
    pub sendv: unsafe extern "C" fn(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize,
    pub sendmsg: unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize,
    pub inject: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        dest_addr: fi_addr_t,
        tag: u64,
    ) -> isize,
    pub senddata: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize,
    pub injectdata: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
        tag: u64,
    ) -> isize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_rma_iov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

#[repr(C)]
pub struct fi_msg_rma {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_iov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct fi_ops_rma {
    pub size: usize,
    pub read: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        src_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize,
    pub readv: unsafe extern "C" fn(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize,
    pub readmsg: unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize,
    pub write: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize,
    pub writev: unsafe extern "C" fn(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize,
    pub writemsg: unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize,
    pub inject: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
    ) -> isize,
    pub writedata: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize,
    pub injectdata: unsafe extern "C" fn(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
    ) -> isize,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<fid_ep>() == 80);
    assert!(size_of::<fid_pep>() == 40);
    assert!(size_of::<fid_stx>() == 32);
    assert!(size_of::<fid_mc>() == 32);
    assert!(size_of::<fi_ops_ep>() == 64);
    assert!(size_of::<fi_ops_cm>() == 80);
    assert!(size_of::<fi_msg>() == 48);
    assert!(size_of::<fi_ops_msg>() == 80);
    assert!(size_of::<fi_msg_tagged>() == 64);
    assert!(size_of::<fi_ops_tagged>() == 80);
    assert!(size_of::<fi_rma_iov>() == 24);
    assert!(size_of::<fi_msg_rma>() == 64);
    assert!(size_of::<fi_ops_rma>() == 80);
};
