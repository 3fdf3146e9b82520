//! What goes wrong, and how it is told.

use std::ffi::CStr;
use std::ptr;

use polyrail_fi::ffi::*;

use crate::host::host;
use crate::node::{Node, Want, close, context, ok, pair, pattern};

#[test]
fn a_message_longer_than_its_buffer_is_truncated() {
    let Some(host) = host() else { return };
    let p = pair(host, Want::default());
    for len in [100, 1_000_000] {
        let (sent, mut got) = (pattern(len, 5), vec![0xee; 64]);
        p.b.trecv(&mut got[..60], FI_ADDR_UNSPEC, 8, 0, 3);
        p.a.tsend(&[&p.b], &sent, p.to_b, 8, 1);
        let e = p.b.fail(&[&p.a]);
        assert_eq!((e.op_context as usize, e.err, e.len, e.olen), (3, FI_ETRUNC, 60, len - 60));
        assert_eq!((e.tag, e.flags, e.err_data_size), (8, FI_TAGGED | FI_RECV, 0));
        assert!(got[..60] == sent[..60] && got[60..] == [0xee; 4]);
        p.a.complete(&[&p.b]);
    }
}

#[test]
fn a_peer_that_is_gone_is_named() {
    let Some(host) = host() else { return };
    let a = Node::new(host, Want::default());
    let b = Node::new(host, Want::default());
    let gone = a.insert(&b.name());
    drop(b);
    let bytes = [1; 100];
    // SAFETY: the bytes live until the completion.
    a.retry(&[], |ep| unsafe {
        ((*(*ep).tagged).send)(ep, bytes.as_ptr().cast(), 100, ptr::null_mut(), gone, 1, context(6))
    });
    let start = std::time::Instant::now();
    while a.read().err() == Some(FI_EAGAIN) {
        assert!(start.elapsed() < crate::node::TIME);
    }
    let mut text = [0u8; 200];
    // SAFETY: numbers and pointers may be zero.
    let mut e: fi_cq_err_entry = unsafe { std::mem::zeroed() };
    (e.err_data, e.err_data_size) = (text.as_mut_ptr().cast(), text.len());
    // SAFETY: an entry with room for data.
    unsafe { assert_eq!(((*(*a.cq).ops).readerr)(a.cq, &raw mut e, 0), 1) };
    assert_eq!((e.op_context as usize, e.err, e.flags & FI_SEND), (6, FI_ENOTCONN, FI_SEND));
    assert!(e.err_data_size <= 200);
    // SAFETY: that entry's number and data.
    let sentence = unsafe {
        CStr::from_ptr(((*(*a.cq).ops).strerror)(a.cq, e.prov_errno, e.err_data, ptr::null_mut(), 0))
    };
    assert!(!sentence.is_empty());
    assert_eq!(a.read_error().map(|e| e.err), None, "one error for one operation");
}

#[test]
fn old_applications_get_the_entry_that_they_know() {
    let Some(host) = host() else { return };
    let p = pair(host, Want { version: FI_VERSION(1, 4), ..Want::default() });
    p.b.trecv(&mut [], FI_ADDR_UNSPEC, 1, 0, 3);
    p.a.tinject(&[&p.b], b"long", p.to_b, 1);
    let start = std::time::Instant::now();
    while p.b.read().err() != Some(FI_EAVAIL) {
        p.a.progress();
        assert!(start.elapsed() < crate::node::TIME);
    }
    // SAFETY: numbers and pointers may be zero.
    let mut e: fi_cq_err_entry = unsafe { std::mem::zeroed() };
    (e.err_data_size, e.src_addr) = (77, 78);
    // SAFETY: an entry longer than that version's.
    unsafe { assert_eq!(((*(*p.b.cq).ops).readerr)(p.b.cq, &raw mut e, 0), 1) };
    assert_eq!(
        (e.err, e.olen, e.err_data_size, e.src_addr),
        (FI_ETRUNC, 4, 77, 78),
        "nothing behind its end"
    );
}

#[test]
fn objects_in_use_stay_open() {
    let Some(host) = host() else { return };
    let node = Node::new(host, Want::default());
    for fid in
        [node.cq.cast::<fid>(), node.av.cast(), node.wrote.cast(), node.domain.cast(), node.fabric.cast()]
    {
        // SAFETY: an open object.
        assert_eq!(unsafe { ((*(*fid).ops).close)(fid) }, -FI_EBUSY);
    }
}

#[test]
fn endpoints_need_their_parts_in_time() {
    let Some(host) = host() else { return };
    let node = Node::new(host, Want::default());
    let mut ep = ptr::null_mut::<fid_ep>();
    // SAFETY: open objects, a place for the result.
    unsafe {
        let none = ptr::null_mut();
        ok(((*(*node.domain).ops).endpoint)(node.domain, node.info.list, &raw mut ep, none));
        let fid = ep.cast::<fid>();
        let ops = &*(*fid).ops;
        assert_eq!(((*(*ep).tagged).inject)(ep, ptr::null(), 0, 0, 0), -(FI_EOPBADSTATE as isize));
        assert_eq!((ops.control)(fid, FI_ENABLE, none), -FI_ENOAV);
        ok((ops.bind)(fid, node.av.cast(), 0));
        assert_eq!((ops.control)(fid, FI_ENABLE, none), -FI_ENOCQ);
        assert_eq!((ops.bind)(fid, node.cq.cast(), 0), -FI_EBADFLAGS);
        ok((ops.bind)(fid, node.cq.cast(), FI_TRANSMIT));
        assert_eq!((ops.bind)(fid, node.cq.cast(), FI_TRANSMIT), -FI_EINVAL);
        ok((ops.control)(fid, FI_ENABLE, none));
        assert_eq!((ops.bind)(fid, node.cq.cast(), FI_RECV), -FI_EOPBADSTATE);
        let mut buf = [0u8; 1];
        let at = buf.as_mut_ptr().cast();
        assert_eq!(((*(*ep).msg).recv)(ep, at, 1, none, FI_ADDR_UNSPEC, none), -(FI_ENOCQ as isize));
        assert_eq!(((*(*ep).msg).inject)(ep, at, 1, 12345), -(FI_EINVAL as isize), "no such address");
        let mut len = 0;
        assert_eq!(((*(*ep).cm).getname)(fid, none, &raw mut len), -FI_ETOOSMALL);
        assert_eq!(len, 64);
        assert_eq!(((*(*ep).cm).setname)(fid, at.cast(), 1), -FI_EOPBADSTATE);
        assert_eq!(((*(*ep).cm).connect)(ep, ptr::null(), ptr::null(), 0), -FI_ENOSYS);
    }
    close(ep.cast());
}

#[test]
fn addresses_get_the_lowest_free_numbers() {
    let Some(host) = host() else { return };
    let (a, b, c) = (
        Node::new(host, Want::default()),
        Node::new(host, Want::default()),
        Node::new(host, Want::default()),
    );
    let (bad, good) = ([0u8; 64], b.name());
    let all = [&a.name()[..], &bad, &good].concat();
    let (mut numbers, mut errors) = ([9; 3], [-1; 3]);
    // SAFETY: three addresses, three places each.
    unsafe {
        let av = &*(*a.av).ops;
        let inserted = (av.insert)(
            a.av,
            all.as_ptr().cast(),
            3,
            numbers.as_mut_ptr(),
            FI_SYNC_ERR,
            errors.as_mut_ptr().cast(),
        );
        assert_eq!((inserted, numbers), (2, [0, FI_ADDR_NOTAVAIL, 2]));
        assert_eq!((errors[0], errors[1] > 0, errors[2]), (0, true, 0));
        assert_eq!(a.insert(&c.name()), 1);
        let (mut name, mut len) = ([0u8; 70], 70);
        ok((av.lookup)(a.av, 2, name.as_mut_ptr().cast(), &raw mut len));
        assert_eq!(name[..len], good);
        let mut two = 2;
        ok((av.remove)(a.av, &raw mut two, 1, 0));
        assert_eq!((av.remove)(a.av, &raw mut two, 1, 0), -FI_EINVAL);
        assert_eq!((av.lookup)(a.av, 2, name.as_mut_ptr().cast(), &raw mut len), -FI_EINVAL);
        assert_eq!(a.insert(&good), 2);
        let (mut text, mut len) = ([0i8; 300], 300);
        let shown = CStr::from_ptr((av.straddr)(a.av, good.as_ptr().cast(), text.as_mut_ptr(), &raw mut len));
        assert_eq!(shown.to_bytes_with_nul().len(), len);
        let key: String = good[16..32].iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!shown.to_str().unwrap().contains(&key), "the key is not for show");
    }
}
