//! Remote memory: reading, writing, atomics, counting.

use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use polyrail_fi::ffi::*;

use crate::host::host;
use crate::node::{Pair, TIME, Want, close, context, ok, pair, pattern, piece};

#[test]
fn memory_is_written_and_read() {
    let Some(host) = host() else { return };
    for len in [1, 4096, 1_000_000] {
        let mut memory = vec![0u8; len + 100];
        let mut p = pair(host, Want::default());
        let key = p.b.register(&mut memory, 1 << 63 | 5).unwrap();
        assert_eq!(key, 1 << 63 | 5, "the key that was asked for");
        let (sent, mut back) = (pattern(len, 3), vec![0; len]);
        let none = ptr::null_mut();
        // SAFETY: both buffers live until their completions.
        unsafe {
            p.a.retry(&[&p.b], |ep| {
                ((*(*ep).rma).writedata)(ep, sent.as_ptr().cast(), len, none, 88, p.to_b, 50, key, context(1))
            });
            let e = p.a.complete(&[&p.b]);
            assert_eq!((e.op_context as usize, e.flags), (1, FI_RMA | FI_WRITE));
            let e = p.b.complete(&[&p.a]);
            assert_eq!(e.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
            assert_eq!((e.op_context, e.data, e.len), (none, 88, len));
            p.a.retry(&[&p.b], |ep| {
                ((*(*ep).rma).read)(ep, back.as_mut_ptr().cast(), len, none, p.to_b, 50, key, context(2))
            });
        }
        let e = p.a.complete(&[&p.b]);
        assert_eq!((e.op_context as usize, e.flags), (2, FI_RMA | FI_READ));
        assert!(memory[50..50 + len] == sent && back == sent);
        assert_eq!((p.a.count(p.a.wrote), p.b.count(p.b.written)), (2, 1));
    }
}

#[test]
fn several_ranges_are_one_operation() {
    let Some(host) = host() else { return };
    let mut memory = vec![0u8; 100];
    let mut p = pair(host, Want::default());
    p.b.register(&mut memory, 1).unwrap();
    let mut parts = [pattern(3, 1), pattern(7, 2)];
    let iov = parts.each_mut().map(|part| piece(part));
    let at = [fi_rma_iov { addr: 10, len: 8, key: 1 }, fi_rma_iov { addr: 90, len: 2, key: 1 }];
    let msg = fi_msg_rma {
        msg_iov: iov.as_ptr(),
        desc: ptr::null_mut(),
        iov_count: 2,
        addr: p.to_b,
        rma_iov: at.as_ptr(),
        rma_iov_count: 2,
        context: context(4),
        data: 0,
    };
    // SAFETY: the message and its memory live until the completion.
    unsafe {
        p.a.retry(&[&p.b], |ep| ((*(*ep).rma).writemsg)(ep, &raw const msg, FI_DELIVERY_COMPLETE));
        assert_eq!(p.a.complete(&[&p.b]).op_context as usize, 4);
        let sent = parts.concat();
        assert_eq!((&memory[10..18], &memory[90..92]), (&sent[..8], &sent[8..]));
        let longer = fi_msg_rma { rma_iov_count: 1, ..msg };
        assert_eq!(((*(*p.a.ep).rma).writemsg)(p.a.ep, &raw const longer, 0), -(FI_EINVAL as isize));
    }
}

#[test]
fn injected_writes_are_counted_when_they_are_there() {
    let Some(host) = host() else { return };
    let mut memory = vec![0u8; 8 * 100];
    let mut p = pair(host, Want::default());
    p.b.register(&mut memory, 1).unwrap();
    for n in 0..100u64 {
        let value = n.to_ne_bytes();
        // SAFETY: the value is there during the call.
        p.a.retry(&[&p.b], |ep| unsafe {
            ((*(*ep).rma).inject)(ep, value.as_ptr().cast(), 8, p.to_b, 8 * n, 1)
        });
    }
    let start = Instant::now();
    while p.a.count(p.a.wrote) < 100 {
        p.b.progress();
        assert!(start.elapsed() < TIME);
    }
    assert_eq!(p.a.count(p.a.wrote), 100);
    assert_eq!(p.a.read().err(), Some(FI_EAGAIN), "no completions");
    let got: Vec<_> = memory.chunks(8).map(|v| u64::from_ne_bytes(v.try_into().unwrap())).collect();
    assert!(got.into_iter().eq(0..100));
}

#[test]
fn keys_are_unique_and_regions_end() {
    let Some(host) = host() else { return };
    let (mut one, mut two) = ([0u8; 16], [0u8; 16]);
    let mut p = pair(host, Want::default());
    p.b.register(&mut one, 9).unwrap();
    assert_eq!(p.b.register(&mut two, 9), Err(FI_ENOKEY));
    let write = |p: &Pair<'_>, key: u64, at: u64| {
        let value = [7u8; 8];
        // SAFETY: the value is there during the call.
        p.a.retry(&[&p.b], |ep| unsafe {
            ((*(*ep).rma).inject)(ep, value.as_ptr().cast(), 8, p.to_b, at, key)
        });
    };
    for (key, at, err) in [(10, 0, FI_EACCES), (9, 9, FI_EFAULT)] {
        write(&p, key, at);
        let e = p.a.fail(&[&p.b]);
        assert_eq!((e.err, e.flags & FI_WRITE), (err, FI_WRITE));
    }
    // SAFETY: an open counter.
    assert_eq!(unsafe { ((*(*p.a.wrote).ops).readerr)(p.a.wrote) }, 2);
    assert_eq!(one, [0; 16]);
    close(p.b.regions.pop().unwrap().cast());
    write(&p, 9, 0);
    assert_eq!(p.a.fail(&[&p.b]).err, FI_EACCES);
    p.b.register(&mut two, 9).unwrap();
    // SAFETY: an open domain; the size is refused before the memory is looked at.
    let all = unsafe {
        let (mut mr, none) = (ptr::null_mut(), ptr::null_mut());
        let mr = &raw mut mr;
        ((*(*p.b.domain).mr).reg)(
            p.b.domain.cast(),
            ptr::null(),
            usize::MAX,
            FI_REMOTE_READ,
            0,
            3,
            0,
            mr,
            none,
        )
    };
    assert_eq!(all, -FI_EINVAL, "nobody gets the whole process");
}

#[test]
fn basic_registration_goes_by_address_and_our_key() {
    let Some(host) = host() else { return };
    let hints: fn(&mut fi_info) = |h| {
        h.caps = FI_RMA | FI_MSG;
        // SAFETY: the host's hints.
        unsafe { (*h.domain_attr).mr_mode = FI_MR_BASIC };
    };
    let mut memory = vec![0u8; 64];
    let at = memory.as_ptr() as u64;
    let mut p = pair(host, Want { hints, ..Want::default() });
    let key = p.b.register(&mut memory, 1).unwrap();
    assert_ne!(key, 1);
    let value = [3u8; 4];
    // SAFETY: the value is there during the call.
    p.a.retry(&[&p.b], |ep| unsafe {
        ((*(*ep).rma).inject)(ep, value.as_ptr().cast(), 4, p.to_b, at + 60, key)
    });
    let start = Instant::now();
    while p.a.count(p.a.wrote) == 0 {
        p.b.progress();
        assert!(start.elapsed() < TIME);
    }
    assert_eq!(memory[59..], [0, 3, 3, 3, 3]);
}

#[test]
fn atomics_of_all_three_kinds() {
    let Some(host) = host() else { return };
    let mut memory: Vec<u8> = [10u64, 20].iter().flat_map(|v| v.to_ne_bytes()).collect();
    let mut p = pair(host, Want::default());
    p.b.register(&mut memory, 1).unwrap();
    let none = ptr::null_mut();
    let (operands, compare, mut result) = ([5u64, 7], [15u64, 0], [0u64; 2]);
    let result = (&raw mut result).cast::<u64>();
    let operands = operands.as_ptr().cast::<c_void>();
    // SAFETY: operands live during the calls, results until the completions; nobody refers to the memory meanwhile.
    unsafe {
        let atomic = |ep: *mut fid_ep| &*(*ep).atomic;
        p.a.retry(&[&p.b], |ep| {
            (atomic(ep).write)(ep, operands, 2, none, p.to_b, 0, 1, FI_UINT64, FI_SUM, context(1))
        });
        assert_eq!(p.a.complete(&[&p.b]).flags, FI_ATOMIC | FI_WRITE);
        p.a.retry(&[&p.b], |ep| {
            let result = result.cast();
            (atomic(ep).readwrite)(
                ep,
                none,
                2,
                none,
                result,
                none,
                p.to_b,
                0,
                1,
                FI_UINT64,
                FI_ATOMIC_READ,
                context(2),
            )
        });
        assert_eq!(p.a.complete(&[&p.b]).flags, FI_ATOMIC | FI_READ);
        assert_eq!([*result, *result.add(1)], [15, 27]);
        p.a.retry(&[&p.b], |ep| {
            let (compare, result) = (compare.as_ptr().cast(), result.cast());
            (atomic(ep).compwrite)(
                ep,
                operands,
                2,
                none,
                compare,
                none,
                result,
                none,
                p.to_b,
                0,
                1,
                FI_UINT64,
                FI_CSWAP,
                context(3),
            )
        });
        assert_eq!(p.a.complete(&[&p.b]).op_context as usize, 3);
        assert_eq!([*result, *result.add(1)], [15, 27]);
        p.a.retry(&[&p.b], |ep| (atomic(ep).inject)(ep, operands, 1, p.to_b, 8, 1, FI_UINT64, FI_BXOR));
        let start = Instant::now();
        while p.a.count(p.a.wrote) < 4 {
            p.b.progress();
            assert!(start.elapsed() < TIME);
        }
    }
    let now: Vec<_> = memory.chunks(8).map(|v| u64::from_ne_bytes(v.try_into().unwrap())).collect();
    assert_eq!(now, [5, 27 ^ 5]);
    assert_eq!(p.b.count(p.b.written), 2, "those that return nothing are writes");
}

/// MPICH asks for every pair of a datatype and an operation.
#[test]
fn every_pair_has_an_answer() {
    let Some(host) = host() else { return };
    let p = pair(host, Want::default());
    // SAFETY: an open endpoint, and a place for the answer.
    unsafe {
        let ops = &*(*p.a.ep).atomic;
        let mut supported = 0;
        for datatype in (0..40).chain([255, 256, u32::MAX]) {
            for op in (0..40).chain([255, 256, u32::MAX]) {
                for valid in [ops.writevalid, ops.readwritevalid, ops.compwritevalid] {
                    let mut count = 0;
                    match valid(p.a.ep, datatype, op, &raw mut count) {
                        0 => assert!(count > 0 && datatype < 16 && op < 20),
                        code => assert_eq!(code, -FI_EOPNOTSUPP),
                    }
                    supported += usize::from(count > 0);
                }
            }
        }
        assert!(supported > 400, "{supported}");
        let mut attr = fi_atomic_attr { count: 0, size: 0 };
        let query = (*(*p.a.domain).ops).query_atomic.unwrap();
        ok(query(p.a.domain, FI_DOUBLE, FI_SUM, &raw mut attr, FI_FETCH_ATOMIC));
        assert_eq!((attr.size, attr.count), (8, 1024));
        assert_eq!(query(p.a.domain, FI_DOUBLE, FI_BOR, &raw mut attr, 0), -FI_EOPNOTSUPP);
    }
}

#[test]
fn a_regions_counter_counts_what_peers_do_to_it() {
    let Some(host) = host() else { return };
    let (mut one, mut two) = ([0u8; 8], [0u8; 8]);
    let mut p = pair(host, Want::default());
    p.b.register(&mut one, 1).unwrap();
    p.b.register(&mut two, 2).unwrap();
    let mut cntr = ptr::null_mut::<fid_cntr>();
    // SAFETY: open objects, a place for the result, memory that is there during the calls.
    unsafe {
        ok(((*(*p.b.domain).ops).cntr_open)(p.b.domain, ptr::null_mut(), &raw mut cntr, ptr::null_mut()));
        let mr = p.b.regions[1].cast::<fid>();
        ok(((*(*mr).ops).bind)(mr, cntr.cast(), FI_REMOTE_WRITE));
        for key in [1, 2, 2] {
            p.a.retry(&[&p.b], |ep| ((*(*ep).rma).inject)(ep, [1u8].as_ptr().cast(), 1, p.to_b, 0, key));
        }
        let start = Instant::now();
        while p.b.count(cntr) < 2 {
            p.a.progress();
            assert!(start.elapsed() < TIME);
        }
        assert_eq!(p.b.count(p.b.written), 3);
        assert_eq!(((*(*cntr.cast::<fid>()).ops).close)(cntr.cast()), -FI_EBUSY);
    }
    close(p.b.regions.pop().unwrap().cast());
    close(cntr.cast());
}

/// A counter of a region watches all endpoints already when one is bound to it, and outlives them.
#[test]
fn a_regions_counter_is_an_endpoints_too_and_outlives_it() {
    let Some(host) = host() else { return };
    let mut memory = [0u8; 8];
    let mut p = pair(host, Want::default());
    p.b.register(&mut memory, 1).unwrap();
    let (mut cntr, mut ep) = (ptr::null_mut::<fid_cntr>(), ptr::null_mut::<fid_ep>());
    // SAFETY: open objects, and places for results.
    unsafe {
        let none = ptr::null_mut();
        let mut attr: fi_cntr_attr = std::mem::zeroed();
        attr.wait_obj = FI_WAIT_FD;
        ok(((*(*p.b.domain).ops).cntr_open)(p.b.domain, &raw mut attr, &raw mut cntr, none));
        let mr = p.b.regions[0].cast::<fid>();
        ok(((*(*mr).ops).bind)(mr, cntr.cast(), FI_REMOTE_WRITE));
        ok(((*(*p.b.domain).ops).endpoint)(p.b.domain, p.b.info.list, &raw mut ep, none));
        let (mut name, mut len) = ([0u8; 64], 64);
        ok(((*(*ep).cm).getname)(ep.cast(), name.as_mut_ptr().cast(), &raw mut len));
        let (mut fd, fid) = (0, cntr.cast::<fid>());
        ok(((*(*fid).ops).control)(fid, FI_GETWAIT, (&raw mut fd).cast()));
        ok(((*(*ep.cast::<fid>()).ops).bind)(ep.cast(), fid, FI_WRITE));
        assert_eq!(((*(*fid).ops).close)(fid), -FI_EBUSY);
    }
    close(ep.cast());
    assert_eq!(p.b.count(cntr), 0);
    close(p.b.regions.pop().unwrap().cast());
    assert_eq!(p.b.count(cntr), 0, "nobody is bound to it");
    // SAFETY: an open counter.
    assert_eq!(unsafe { ((*(*cntr).ops).wait)(cntr, 1, 10) }, -FI_ETIMEDOUT);
    close(cntr.cast());
}
