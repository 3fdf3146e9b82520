//! The address vector object.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use polyrail_core::wire::Address;
use polyrail_rails::Error;

use super::{Object, eq, head};
use crate::address::{Format, ip_after, write_socket};
use crate::domain::{Domain, Member};
use crate::ffi::*;
use crate::info::Query;
use crate::log::log;
use crate::object;
use crate::state::av::Av;

pub type AvObject = Object<fid_av, Member<Av>>;

/// `fi_av_open`.
///
/// # Safety
/// `attr` is C's or null; `av` is a place for the result.
pub unsafe fn open(
    domain: &Arc<Domain>,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    let Some(attr) = (unsafe { attr.as_mut() }) else { return -FI_EINVAL };
    if !attr.name.is_null() || attr.flags & FI_READ != 0 {
        log!(FI_LOG_INFO, FI_LOG_AV, "address vectors are not shared between processes");
        return -FI_ENOSYS;
    }
    if attr.flags & !(FI_EVENT | FI_SYMMETRIC) != 0 {
        return -FI_EBADFLAGS;
    }
    match attr.r#type {
        FI_AV_UNSPEC => attr.r#type = FI_AV_TABLE,
        FI_AV_MAP | FI_AV_TABLE => {}
        _ => return -FI_EINVAL,
    }
    if attr.rx_ctx_bits != 0 {
        log!(FI_LOG_INFO, FI_LOG_AV, "no scalable endpoints, so no rx_ctx_bits");
        return -FI_EINVAL;
    }
    let new = Av::new(attr.count, attr.flags & FI_EVENT != 0);
    let key = domain.lock().avs.insert(new);
    let fid = head(FI_CLASS_AV, context, &FID_OPS);
    // SAFETY: a place for the result.
    unsafe { av.write(AvObject::give(fid_av { fid, ops: &raw const OPS }, Member::new(domain, key))) };
    FI_SUCCESS
}

static FID_OPS: fi_ops = object::ops(close, bind, object::no_control);

static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert,
    insertsvc,
    insertsym,
    remove,
    lookup,
    straddr,
    av_set: None,
    insert_auth_key: None,
    lookup_auth_key: None,
    set_user_id: None,
};

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C closes what we gave it.
    let member = unsafe { AvObject::ours(fid) };
    {
        let mut state = member.lock();
        if !state.avs[member.key].users.is_empty() {
            return -FI_EBUSY;
        }
        state.avs.remove(member.key.number);
    }
    // SAFETY: as above; C uses it no more.
    drop(unsafe { AvObject::take(fid) });
    FI_SUCCESS
}

unsafe extern "C" fn bind(fid: *mut fid, bfid: *mut fid, _flags: u64) -> c_int {
    // SAFETY: open objects of C's.
    let (member, class) = unsafe { (AvObject::ours(fid), (*bfid).fclass) };
    if class != FI_CLASS_EQ {
        return -FI_EINVAL;
    }
    // SAFETY: an event queue.
    member.lock().avs[member.key].eq = Some(unsafe { eq::of(bfid) });
    FI_SUCCESS
}

/// The addresses of one call, and where C wants their fates.
struct Insertion {
    peers: Vec<Result<Address, Error>>,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
}

impl Insertion {
    /// Inserts them; how many, or libfabric's number, negative.
    ///
    /// # Safety
    /// C's arrays are as long as there are addresses; `fid` is the address vector.
    unsafe fn run(self, fid: *mut fid) -> c_int {
        if self.flags & !(FI_MORE | FI_SYNC_ERR | FI_EVENT) != 0 {
            return -FI_EBADFLAGS;
        }
        // SAFETY: by the caller's promise.
        let member = unsafe { AvObject::ours(fid) };
        let mut state = member.lock();
        let av = &mut state.avs[member.key];
        if av.asynchronous && av.eq.is_none() {
            return -FI_ENOEQ;
        }
        let (mut next, mut inserted) = (0, 0);
        let mut failed = Vec::new();
        for (at, peer) in self.peers.iter().enumerate() {
            let number = av.free(next);
            next = number + 1;
            let err = match peer {
                Ok(address) => {
                    av.insert(number, *address);
                    inserted += 1;
                    FI_SUCCESS
                }
                Err(why) => {
                    log!(FI_LOG_WARN, FI_LOG_AV, "address {at} of {}: {why}", self.peers.len());
                    failed.push((at, why.errno()));
                    why.errno()
                }
            };
            if !self.numbers.is_null() {
                let number = if err == FI_SUCCESS { number as fi_addr_t } else { FI_ADDR_NOTAVAIL };
                // SAFETY: by the caller's promise.
                unsafe { self.numbers.add(at).write(number) };
            }
            if self.flags & FI_SYNC_ERR != 0 && !self.context.is_null() {
                // SAFETY: by the caller's promise.
                unsafe { self.context.cast::<c_int>().add(at).write(err) };
            }
        }
        let Some(eq) = av.eq.clone().filter(|_| av.asynchronous) else { return inserted };
        drop(state);
        for (at, err) in failed {
            eq.push_error(fid, self.context, at as u64, err);
        }
        eq.push_entry(FI_AV_COMPLETE, fid, self.context, inserted as u64);
        FI_SUCCESS
    }
}

unsafe extern "C" fn insert(
    av: *mut fid_av,
    addr: *const c_void,
    count: usize,
    fi_addr: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: C's address vector.
    let format = unsafe { AvObject::ours(av) }.domain.is.format;
    if addr.is_null() && count > 0 {
        return -FI_EINVAL;
    }
    let peers = (0..count).map(|at| {
        // SAFETY: `count` addresses of the domain's format.
        let bytes =
            unsafe { std::slice::from_raw_parts(addr.cast::<u8>().add(at * format.size()), format.size()) };
        format.peer(bytes)
    });
    let insertion = Insertion { peers: peers.collect(), numbers: fi_addr, flags, context };
    // SAFETY: C's arrays are `count` long.
    unsafe { insertion.run(av.cast()) }
}

/// The peers at socket addresses, in the domain's format.
fn named(format: Format, sockets: impl Iterator<Item = SocketAddr>) -> Vec<Result<Address, Error>> {
    let peer = |at| match format {
        Format::Own => polyrail_rails::named::named_address(at),
        _ => format.peer(&write_socket(at)),
    };
    sockets.map(peer).collect()
}

/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> Option<CString> {
    // SAFETY: by the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}

fn resolve(node: Option<CString>, service: Option<CString>, format: Format) -> Result<SocketAddr, c_int> {
    let query = Query { node, service, numeric: false, passive: false };
    let found = query.resolve().map_err(|why| {
        log!(FI_LOG_WARN, FI_LOG_AV, "{why}");
        -FI_ENODATA
    })?;
    let fits = |at: &&SocketAddr| format == Format::Own || at.is_ipv4() == (format == Format::V4);
    found.iter().find(fits).copied().ok_or(-FI_ENODATA)
}

unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    fi_addr: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: C's address vector, and strings or nulls.
    let (member, node, service) = unsafe { (AvObject::ours(av), text(node), text(service)) };
    let format = member.domain.is.format;
    let peers = match resolve(node, service, format) {
        Ok(at) => named(format, [at].into_iter()),
        Err(code) => return code,
    };
    // SAFETY: C's arrays have one element.
    unsafe { Insertion { peers, numbers: fi_addr, flags, context }.run(av.cast()) }
}

/// The `n`th node after the first: the next IP, or the next number at the end of a host's name.
fn node_after(first: &str, n: usize) -> Option<String> {
    if let Ok(ip) = first.parse::<IpAddr>() {
        return ip_after(ip, n).map(|ip| ip.to_string());
    }
    if n == 0 {
        return Some(first.into());
    }
    let stem = first.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &first[stem.len()..];
    let number = digits.parse::<usize>().ok()?.checked_add(n)?;
    Some(format!("{stem}{number:0width$}", width = digits.len()))
}

unsafe extern "C" fn insertsym(
    av: *mut fid_av,
    node: *const c_char,
    nodecnt: usize,
    service: *const c_char,
    svccnt: usize,
    fi_addr: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: C's address vector, and strings or nulls.
    let (member, node, service) = unsafe { (AvObject::ours(av), text(node), text(service)) };
    let format = member.domain.is.format;
    let Some(first) = node.as_ref().and_then(|node| node.to_str().ok()) else { return -FI_EINVAL };
    let mut sockets = Vec::new();
    for n in 0..nodecnt {
        let Some(node) = node_after(first, n).and_then(|node| CString::new(node).ok()) else {
            return -FI_EINVAL;
        };
        let at = match resolve(Some(node), service.clone(), format) {
            Ok(at) => at,
            Err(code) => return code,
        };
        for s in 0..svccnt {
            let Some(port) = u16::try_from(s).ok().and_then(|s| at.port().checked_add(s)) else {
                return -FI_EINVAL;
            };
            sockets.push(SocketAddr::new(at.ip(), port));
        }
    }
    let peers = named(format, sockets.into_iter());
    // SAFETY: C's arrays are as long as the product of the counts.
    unsafe { Insertion { peers, numbers: fi_addr, flags, context }.run(av.cast()) }
}

unsafe extern "C" fn remove(av: *mut fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64) -> c_int {
    if flags != 0 {
        return -FI_EBADFLAGS;
    }
    if count == 0 {
        return FI_SUCCESS;
    }
    if fi_addr.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: C's address vector, and `count` numbers.
    let (member, numbers) = unsafe { (AvObject::ours(av), std::slice::from_raw_parts(fi_addr, count)) };
    let mut state = member.lock();
    let state = &mut *state;
    let av = &mut state.avs[member.key];
    let ids: Vec<_> =
        numbers.iter().filter_map(|&number| av.get(number)).map(|address| address.id()).collect();
    let all = numbers.iter().all(|&number| usize::try_from(number).is_ok_and(|number| av.remove(number)));
    for &user in &av.users {
        state.endpoints[user].forget_peers();
        ids.iter()
            .filter(|id| av.number_of(**id).is_none())
            .for_each(|id| state.endpoints[user].release(*id));
    }
    if all { FI_SUCCESS } else { -FI_EINVAL }
}

unsafe extern "C" fn lookup(
    av: *mut fid_av,
    fi_addr: fi_addr_t,
    addr: *mut c_void,
    addrlen: *mut usize,
) -> c_int {
    // SAFETY: C's address vector.
    let member = unsafe { AvObject::ours(av) };
    let state = member.lock();
    let address = state.avs[member.key].get(fi_addr);
    let Some(bytes) = address.and_then(|address| member.domain.is.format.write(address)) else {
        return -FI_EINVAL;
    };
    // SAFETY: C's buffer has `addrlen` bytes.
    unsafe {
        let room = std::mem::replace(&mut *addrlen, bytes.len());
        object::copy_out(&bytes, addr.cast(), room);
    }
    FI_SUCCESS
}

/// Names the peer without the key that opens a connection to it.
unsafe extern "C" fn straddr(
    av: *mut fid_av,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: C's address vector, and an address of its format.
    let text = unsafe {
        let format = AvObject::ours(av).domain.is.format;
        let bytes = std::slice::from_raw_parts(addr.cast::<u8>(), format.size());
        match (format, crate::address::read_socket(bytes)) {
            (Format::Own, _) => {
                Address::parse(bytes).map_or_else(|why| why.to_string(), |address| address.to_string())
            }
            (_, Some(at)) => {
                format!("{}://{at}", if at.is_ipv4() { "fi_sockaddr_in" } else { "fi_sockaddr_in6" })
            }
            (_, None) => "not a socket address".into(),
        }
    };
    let mut bytes = text.into_bytes();
    bytes.push(0);
    // SAFETY: C's buffer has `len` bytes.
    unsafe {
        let room = std::mem::replace(&mut *len, bytes.len());
        object::copy_out(&bytes, buf.cast(), room);
        if room > 0 && !buf.is_null() {
            buf.add(room.min(bytes.len()) - 1).write(0);
        }
    }
    buf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_count_on() {
        assert_eq!(node_after("10.0.0.9", 1).as_deref(), Some("10.0.0.10"));
        assert_eq!(node_after("host009", 2).as_deref(), Some("host011"));
        assert_eq!(node_after("host", 0).as_deref(), Some("host"));
        assert_eq!(node_after("host", 1), None);
    }
}
