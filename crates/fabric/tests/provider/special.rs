//! Multi-receive buffers; looking, claiming and discarding; cancelling; aliases and options.

use std::ptr;

use polyrail_fi::ffi::*;

use crate::host::host;
use crate::node::{Node, Pair, Want, close, context, ok, pair, pattern, piece};

fn setopt(node: &Node<'_>, option: i32, value: usize) -> i32 {
    // SAFETY: a value of that size.
    unsafe {
        let ops = (*node.ep).ops;
        ((*ops).setopt)(
            node.ep.cast(),
            FI_OPT_ENDPOINT,
            option,
            (&raw const value).cast(),
            size_of::<usize>(),
        )
    }
}

fn getopt(node: &Node<'_>, option: i32) -> Result<usize, i32> {
    let (mut value, mut len) = (0usize, size_of::<usize>());
    // SAFETY: a place of that size.
    let code = unsafe {
        let ops = (*node.ep).ops;
        ((*ops).getopt)(node.ep.cast(), FI_OPT_ENDPOINT, option, (&raw mut value).cast(), &raw mut len)
    };
    if code == 0 { Ok(value) } else { Err(-code) }
}

#[test]
fn one_buffer_takes_many_messages() {
    let Some(host) = host() else { return };
    let p = pair(host, Want::default());
    ok(setopt(&p.b, FI_OPT_MIN_MULTI_RECV, 100));
    assert_eq!(getopt(&p.b, FI_OPT_MIN_MULTI_RECV), Ok(100));
    let mut buffers = [vec![0u8; 1000], vec![0u8; 1000]];
    let bases = buffers.each_ref().map(|buffer| buffer.as_ptr() as usize);
    for (n, buffer) in buffers.iter_mut().enumerate() {
        let iov = piece(buffer);
        let msg = fi_msg {
            msg_iov: &raw const iov,
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: FI_ADDR_UNSPEC,
            context: context(n + 1),
            data: 0,
        };
        // SAFETY: the buffers outlive the endpoint.
        ok(unsafe { ((*(*p.b.ep).msg).recvmsg)(p.b.ep, &raw const msg, FI_MULTI_RECV | FI_COMPLETION) }
            as i32);
    }
    let (mut at, mut released) = (bases[0], Vec::new());
    for n in 0..8 {
        let sent = pattern(240, n);
        // SAFETY: the buffer is there during the call.
        p.a.retry(&[&p.b], |ep| unsafe { ((*(*ep).msg).inject)(ep, sent.as_ptr().cast(), 240, p.to_b) });
        let e = p.b.complete(&[&p.a]);
        let context = e.op_context as usize;
        if context == 2 && at < bases[1] || n == 4 {
            at = bases[1];
        }
        assert_eq!((e.flags & (FI_RECV | FI_MSG), e.len), (FI_RECV | FI_MSG, 240), "message {n}");
        let (base, offset) = (bases[context - 1], e.buf as usize - bases[context - 1]);
        assert!(offset + 240 <= 1000, "message {n} at {offset}");
        // SAFETY: inside the buffer that it is about, which only the endpoint writes.
        let got = unsafe { std::slice::from_raw_parts((base + offset) as *const u8, 240) };
        assert!(got == sent, "message {n}");
        if e.flags & FI_MULTI_RECV != 0 {
            released.push((n, context));
        }
    }
    // four messages leave 40 bytes, which is less than the 100 that there must be
    assert_eq!(released, [(3, 1), (7, 2)]);
}

/// Sends a message with this tag and lets it arrive.
fn unexpected(p: &Pair<'_>, bytes: &[u8], tag: u64) {
    p.a.retry(&[&p.b], |ep| {
        // SAFETY: the buffer is there during the call.
        unsafe {
            ((*(*ep).tagged).injectdata)(ep, bytes.as_ptr().cast(), bytes.len(), tag + 1000, p.to_b, tag)
        }
    });
    let start = std::time::Instant::now();
    loop {
        ok(p.b.trecvmsg(&[], FI_ADDR_UNSPEC, tag, 99, FI_PEEK));
        match p.b.read() {
            Ok(_) => return,
            Err(FI_EAVAIL) => assert_eq!(p.b.read_error().unwrap().err, FI_ENOMSG),
            Err(error) => panic!("{error}"),
        }
        p.a.progress();
        assert!(start.elapsed() < crate::node::TIME);
    }
}

#[test]
fn messages_can_be_looked_at_claimed_and_thrown_away() {
    let Some(host) = host() else { return };
    let p = pair(host, Want::default());
    unexpected(&p, b"four", 4);
    unexpected(&p, b"five!", 5);
    unexpected(&p, b"sixsix", 6);
    let mut got = [0; 8];

    ok(p.b.trecvmsg(&[], p.to_a, 4, 1, FI_PEEK));
    let e = p.b.read().unwrap();
    assert_eq!((e.op_context as usize, e.len, e.tag, e.data), (1, 4, 4, 1004));
    assert_eq!(e.flags, FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA);

    // claimed: nobody else gets it, and it is received under its context, whatever the tag says
    ok(p.b.trecvmsg(&[], FI_ADDR_UNSPEC, 4, 2, FI_PEEK | FI_CLAIM));
    assert_eq!(p.b.read().unwrap().len, 4);
    ok(p.b.trecvmsg(&[], FI_ADDR_UNSPEC, 4, 3, FI_PEEK));
    assert_eq!(p.b.fail(&[]).err, FI_ENOMSG);
    ok(p.b.trecvmsg(&[piece(&mut got)], 0, 0, 2, FI_CLAIM | FI_COMPLETION));
    let e = p.b.complete(&[&p.a]);
    assert_eq!((e.op_context as usize, e.len, e.tag, e.data), (2, 4, 4, 1004));
    assert_eq!(&got[..4], b"four");
    assert_eq!(p.b.trecvmsg(&[piece(&mut got)], 0, 0, 2, FI_CLAIM), -FI_EINVAL, "claimed once");

    ok(p.b.trecvmsg(&[], FI_ADDR_UNSPEC, 5, 4, FI_PEEK | FI_DISCARD));
    assert_eq!(p.b.read().unwrap().len, 5);
    ok(p.b.trecvmsg(&[], FI_ADDR_UNSPEC, 5, 4, FI_PEEK));
    assert_eq!(p.b.fail(&[]).err, FI_ENOMSG);

    ok(p.b.trecvmsg(&[], FI_ADDR_UNSPEC, 6, 5, FI_PEEK | FI_CLAIM));
    p.b.read().unwrap();
    ok(p.b.trecvmsg(&[], FI_ADDR_UNSPEC, 6, 5, FI_CLAIM | FI_DISCARD));
    assert_eq!(p.b.read().unwrap().tag, 6);
    assert_eq!(p.b.trecvmsg(&[], FI_ADDR_UNSPEC, 6, 5, FI_DISCARD), -FI_EBADFLAGS);
}

#[test]
fn a_receive_can_be_taken_back() {
    let Some(host) = host() else { return };
    let p = pair(host, Want::default());
    let (mut first, mut second) = ([0; 2], [0; 2]);
    p.b.trecv(&mut first, FI_ADDR_UNSPEC, 1, 0, 11);
    p.b.trecv(&mut second, FI_ADDR_UNSPEC, 1, 0, 12);
    let cancel = |context: usize| {
        // SAFETY: an open endpoint.
        unsafe { ((*(*p.b.ep).ops).cancel)(p.b.ep.cast(), crate::node::context(context)) }
    };
    assert_eq!(cancel(11), 0);
    let e = p.b.fail(&[&p.a]);
    assert_eq!((e.op_context as usize, e.err, e.flags), (11, FI_ECANCELED, FI_RECV | FI_TAGGED));
    assert!(p.b.read_error().is_none());
    assert_eq!(cancel(11), -(FI_ENOENT as isize));
    p.a.tinject(&[&p.b], b"ok", p.to_b, 1);
    assert_eq!(p.b.complete(&[&p.a]).op_context as usize, 12);
    assert_eq!(cancel(12), -(FI_ENOENT as isize));
    assert_eq!((first, second), ([0; 2], *b"ok"));
}

#[test]
fn an_alias_has_flags_of_its_own() {
    let Some(host) = host() else { return };
    let p = pair(host, Want { bind: FI_SELECTIVE_COMPLETION, ..Want::default() });
    let mut place = ptr::null_mut::<fid>();
    let mut alias = fi_alias { fid: &raw mut place, flags: FI_TRANSMIT | FI_COMPLETION };
    // SAFETY: an open endpoint, and a place for the result.
    unsafe {
        let fid = p.a.ep.cast::<fid>();
        ok(((*(*fid).ops).control)(fid, FI_ALIAS, (&raw mut alias).cast()));
        assert_eq!(((*(*fid).ops).close)(fid), -FI_EBUSY);
        let alias = place.cast::<fid_ep>();
        let mut got = [0; 1];
        p.b.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 0);
        p.b.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 0);
        let sent = [1u8, 2];
        p.a.tsend(&[&p.b], &sent[..1], p.to_b, 1, 1);
        p.a.retry(&[&p.b], |_| {
            ((*(*alias).tagged).send)(
                alias,
                sent[1..].as_ptr().cast(),
                1,
                ptr::null_mut(),
                p.to_b,
                1,
                context(2),
            )
        });
        assert_eq!(p.a.complete(&[&p.b]).op_context as usize, 2);
        let mut flags = FI_TRANSMIT;
        ok(((*(*place).ops).control)(place, FI_GETOPSFLAG, (&raw mut flags).cast()));
        assert_eq!(flags, FI_COMPLETION);
    }
    close(place);
}

#[test]
fn options_are_known_or_refused() {
    let Some(host) = host() else { return };
    let p = pair(host, Want::default());
    ok(setopt(&p.a, FI_OPT_INJECT_TAGGED_SIZE, 8));
    // SAFETY: refused before anything is read.
    let refused = unsafe { ((*(*p.a.ep).tagged).inject)(p.a.ep, ptr::null(), 9, p.to_b, 1) };
    assert_eq!(refused, -(FI_EMSGSIZE as isize));
    assert_eq!(setopt(&p.a, FI_OPT_INJECT_TAGGED_SIZE, 1 << 30), -FI_EINVAL);
    assert_eq!(setopt(&p.a, FI_OPT_BUFFERED_MIN, 1), -FI_ENOPROTOOPT);
    assert_eq!(getopt(&p.a, FI_OPT_BUFFERED_LIMIT), Err(FI_ENOPROTOOPT));
    assert_eq!(getopt(&p.a, FI_OPT_CM_DATA_SIZE), Ok(0));
    assert!(getopt(&p.a, FI_OPT_MAX_MSG_SIZE).unwrap() > 1 << 40);
    // SAFETY: an open endpoint.
    assert!(unsafe { ((*(*p.a.ep).ops).tx_size_left)(p.a.ep) } > 0);
}
