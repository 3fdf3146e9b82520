//! `fi_getinfo` through libfabric; its rules one by one are in the library's own tests.

use std::ffi::CStr;

use polyrail_fi::ffi::*;

use crate::host::host;
use crate::node::{Node, Want};

#[test]
fn there_is_exactly_one_offer() {
    let Some(host) = host() else { return };
    let info = host.getinfo(host.version(), None, None, 0, None).unwrap();
    // SAFETY: what libfabric returned, whole.
    unsafe {
        let i = &*info.list;
        assert!(i.next.is_null() && i.nic.is_null());
        assert_eq!((i.addr_format, i.mode, (*i.ep_attr).r#type), (FI_FORMAT_UNSPEC, 0, FI_EP_RDM));
        assert_eq!(CStr::from_ptr((*i.fabric_attr).prov_name), c"polyrail");
        assert_eq!(CStr::from_ptr((*i.fabric_attr).name), c"polyrail");
        assert_eq!(CStr::from_ptr((*i.domain_attr).name), c"polyrail");
        assert_eq!((*i.domain_attr).cq_data_size, 8);
        assert!((*i.tx_attr).inject_size >= 4096);
    }
}

#[test]
fn hints_come_back_and_too_much_is_refused() {
    let Some(host) = host() else { return };
    let hints = host.hints();
    // SAFETY: hints of the host's.
    unsafe {
        (*hints.list).caps = FI_TAGGED;
        (*(*hints.list).tx_attr).op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
        (*(*hints.list).domain_attr).threading = FI_THREAD_DOMAIN;
        let info = host.getinfo(host.version(), None, None, 0, Some(&hints)).unwrap();
        assert_eq!((*info.list).caps & (FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC), FI_TAGGED);
        assert_eq!((*(*info.list).tx_attr).op_flags, FI_COMPLETION | FI_DELIVERY_COMPLETE);
        assert_eq!((*(*info.list).domain_attr).threading, FI_THREAD_DOMAIN);
        (*hints.list).caps = FI_TAGGED | FI_MULTICAST;
    }
    assert_eq!(host.getinfo(host.version(), None, None, 0, Some(&hints)).err(), Some(FI_ENODATA));
}

#[test]
fn names_are_resolved() {
    let Some(host) = host() else { return };
    let v = host.version();
    let info = host.getinfo(v, Some("127.0.0.1"), Some("4711"), 0, None).unwrap();
    // SAFETY: what libfabric returned.
    unsafe { assert_eq!(((*info.list).src_addrlen, (*info.list).dest_addrlen), (64, 64)) };
    let info = host.getinfo(v, None, Some("4711"), FI_SOURCE, None).unwrap();
    // SAFETY: what libfabric returned.
    unsafe { assert_eq!(((*info.list).src_addrlen, (*info.list).dest_addrlen), (64, 0)) };
    let refused = host.getinfo(v, Some("no.such.host.invalid"), None, FI_NUMERICHOST, None);
    assert_eq!(refused.err(), Some(FI_ENODATA));

    let hints = host.hints();
    // SAFETY: hints of the host's.
    unsafe { (*hints.list).addr_format = FI_SOCKADDR_IN };
    let info = host.getinfo(v, Some("127.0.0.1"), Some("4711"), 0, Some(&hints)).unwrap();
    // SAFETY: what libfabric returned; the address is as long as it says.
    unsafe {
        assert_eq!((*info.list).addr_format, FI_SOCKADDR_IN);
        let dest = std::slice::from_raw_parts((*info.list).dest_addr.cast::<u8>(), (*info.list).dest_addrlen);
        assert_eq!(dest[2..8], [0x12, 0x67, 127, 0, 0, 1]);
    }
}

#[test]
fn an_open_domain_is_found_again() {
    let Some(host) = host() else { return };
    let node = Node::new(host, Want::default());
    let hints = host.hints();
    // SAFETY: hints of the host's.
    unsafe { (*(*hints.list).domain_attr).domain = node.domain };
    let info = host.getinfo(host.version(), None, None, 0, Some(&hints)).unwrap();
    // SAFETY: what libfabric returned, and hints again.
    unsafe {
        assert_eq!((*(*info.list).domain_attr).domain, node.domain);
        assert_eq!((*(*info.list).fabric_attr).fabric, node.fabric);
        (*(*hints.list).domain_attr).domain = node.domain.wrapping_add(1);
    }
    assert_eq!(host.getinfo(host.version(), None, None, 0, Some(&hints)).err(), Some(FI_ENODATA));
    // SAFETY: as above; a handle that is not ours must not be freed as one.
    unsafe { (*(*hints.list).domain_attr).domain = std::ptr::null_mut() };
}
