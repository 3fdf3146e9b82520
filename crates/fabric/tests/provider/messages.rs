//! Tagged and untagged messages, and what completions say of them.

use std::ptr;

use polyrail_fi::ffi::*;
use polyrail_rails::mailbox::Mailbox;
use polyrail_rails::{Config, PeerIdx};

use crate::host::host;
use crate::node::{Node, Pair, Want, context, ok, pair, pattern, piece};

const SIZES: [usize; 9] = [0, 1, 64, 4096, 16385, 32768, 32769, 300_000, 3_000_000];

#[test]
fn messages_arrive_whole_and_in_order() {
    let Some(host) = host() else { return };
    exchange(&pair(host, Want::default()));
}

#[test]
fn so_do_those_of_applications_that_serialise_their_calls() {
    let Some(host) = host() else { return };
    let hints = |hints: &mut fi_info| {
        // SAFETY: the host's hints have all attributes.
        unsafe { (*hints.domain_attr).threading = FI_THREAD_DOMAIN };
    };
    exchange(&pair(host, Want { hints, ..Want::default() }));
}

fn exchange(p: &Pair<'_>) {
    for (n, len) in SIZES.into_iter().enumerate() {
        let (sent, mut got) = (pattern(len, n), vec![0xee; len]);
        for early in [true, false] {
            got.fill(0xee);
            if early {
                p.b.trecv(&mut got, FI_ADDR_UNSPEC, 7, 0, 2);
            }
            p.a.tsend(&[&p.b], &sent, p.to_b, 7, 1);
            if !early {
                (0..100).for_each(|_| p.b.progress());
                p.b.trecv(&mut got, p.to_a, 7, 0, 2);
            }
            let r = p.b.complete(&[&p.a]);
            assert_eq!((r.op_context as usize, r.flags, r.len, r.tag), (2, FI_TAGGED | FI_RECV, len, 7));
            let s = p.a.complete(&[&p.b]);
            assert_eq!((s.op_context as usize, s.flags), (1, FI_TAGGED | FI_SEND));
            assert!(got == sent, "{len} bytes");
        }
    }
}

#[test]
fn each_format_is_a_prefix() {
    let Some(host) = host() else { return };
    for (format, words) in
        [(FI_CQ_FORMAT_CONTEXT, 1), (FI_CQ_FORMAT_MSG, 3), (FI_CQ_FORMAT_DATA, 5), (FI_CQ_FORMAT_TAGGED, 6)]
    {
        let p = pair(host, Want { format, ..Want::default() });
        let mut got = [0; 5];
        p.b.trecv(&mut got, FI_ADDR_UNSPEC, 1, u64::MAX, 9);
        p.a.retry(&[&p.b], |ep| {
            // SAFETY: the buffer is there during the call.
            unsafe {
                ((*(*ep).tagged).injectdata)(
                    ep,
                    b"hello".as_ptr().cast(),
                    5,
                    0xdead_beef_1234_5678,
                    p.to_b,
                    42,
                )
            }
        });
        let e = p.b.complete(&[&p.a]);
        let unset = u64::MAX;
        let flags = FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA;
        let expected = [9, flags, 5, 0, 0xdead_beef_1234_5678, 42];
        let entry = [e.op_context as u64, e.flags, e.len as u64, e.buf as u64, e.data, e.tag];
        for (at, (got, expected)) in entry.into_iter().zip(expected).enumerate() {
            // what is outside the format is not written (a null pointer is what the test put there)
            let expected = if at < words {
                expected
            } else if at == 3 {
                0
            } else {
                unset
            };
            assert_eq!(got, expected, "format {format}, word {at}");
        }
        assert_eq!(&got, b"hello");
    }
}

#[test]
fn only_wanted_completions_come_but_all_count() {
    let Some(host) = host() else { return };
    let p = pair(host, Want { bind: FI_SELECTIVE_COMPLETION, ..Want::default() });
    let mut got = [[0; 4]; 3];
    for (n, buf) in got.iter_mut().enumerate() {
        let iov = [piece(buf)];
        let flags = if n == 1 { FI_COMPLETION } else { 0 };
        ok(p.b.trecvmsg(&iov, FI_ADDR_UNSPEC, 5, n + 10, flags));
    }
    let sent = [[0; 4], [1; 4], [2; 4]];
    for buf in &sent {
        p.a.tsend(&[&p.b], buf, p.to_b, 5, 1);
    }
    let mut last = [0; 4];
    ok(p.b.trecvmsg(&[piece(&mut last)], FI_ADDR_UNSPEC, 6, 20, FI_COMPLETION));
    p.a.tinject(&[&p.b], &[9; 4], p.to_b, 6);
    assert_eq!(p.b.complete(&[&p.a]).op_context as usize, 11);
    assert_eq!(p.b.complete(&[&p.a]).op_context as usize, 20);
    assert_eq!((got, last), (sent, [9; 4]));
    assert_eq!(p.a.read().err(), Some(FI_EAGAIN));
}

#[test]
fn receives_match_by_source_and_masked_tag() {
    let Some(host) = host() else { return };
    let p = pair(host, Want::default());
    // `b` hears `a` and itself
    let me = p.b.insert(&p.b.name());
    let (mut masked, mut from_me, mut any) = ([0; 1], [0; 1], [0; 1]);
    p.b.trecv(&mut from_me, me, 0, u64::MAX, 1);
    p.b.trecv(&mut masked, FI_ADDR_UNSPEC, 0xab00, 0xff, 2);
    p.b.trecv(&mut any, FI_ADDR_UNSPEC, 0, u64::MAX, 3);
    p.a.tinject(&[&p.b], &[1], p.to_b, 0xac11);
    assert_eq!((p.b.complete(&[&p.a]).op_context as usize, any), (3, [1]));
    p.a.tinject(&[&p.b], &[2], p.to_b, 0xab55);
    let e = p.b.complete(&[&p.a]);
    assert_eq!((e.op_context as usize, e.tag, masked), (2, 0xab55, [2]));
    p.b.tinject(&[], &[3], me, 77);
    let e = p.b.complete(&[]);
    assert_eq!((e.op_context as usize, e.tag, from_me), (1, 77, [3]));
}

/// Without the capability the source means nothing (libfabric's own test programs pass any number).
#[test]
fn sources_are_ignored_where_they_were_not_asked_for() {
    let Some(host) = host() else { return };
    let p = pair(host, Want { hints: |h| h.caps = FI_TAGGED | FI_MSG, ..Want::default() });
    let mut got = [0; 1];
    p.b.trecv(&mut got, 999, 1, 0, 1);
    p.a.tinject(&[&p.b], &[5], p.to_b, 1);
    p.b.complete(&[&p.a]);
    assert_eq!(got, [5]);
}

#[test]
fn senders_are_known_by_their_address() {
    let Some(host) = host() else { return };
    let p = pair(host, Want { hints: |h| h.caps = FI_TAGGED | FI_SOURCE, ..Want::default() });
    let mut got = [0; 1];
    p.b.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 1);
    p.a.tinject(&[&p.b], &[5], p.to_b, 1);
    let start = std::time::Instant::now();
    let (_, from) = loop {
        match p.b.read_from() {
            Ok(found) => break found,
            Err(_) => p.a.progress(),
        }
        assert!(start.elapsed() < crate::node::TIME);
    };
    assert_eq!(from, p.to_a);
    let quiet = pair(host, Want { hints: |h| h.caps = FI_TAGGED, ..Want::default() });
    quiet.b.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 1);
    quiet.a.tinject(&[&quiet.b], &[5], quiet.to_b, 1);
    let start = std::time::Instant::now();
    let from = loop {
        match quiet.b.read_from() {
            Ok((_, from)) => break from,
            Err(_) => quiet.a.progress(),
        }
        assert!(start.elapsed() < crate::node::TIME);
    };
    assert_eq!(from, FI_ADDR_NOTAVAIL);
}

/// A client of another process would do the same: it connects, says something, and goes. Its address.
fn call_and_go(server: &Node<'_>, name: &[u8], say: impl FnOnce(&mut Mailbox, PeerIdx)) -> Vec<u8> {
    let mut client = Mailbox::open(Config::default()).expect("an endpoint");
    let to = client.peer(name).expect("an address");
    let start = std::time::Instant::now();
    while client.send_active(to, 77, b"").is_err() {
        client.progress();
        server.count(server.wrote);
        assert!(start.elapsed() < crate::node::TIME);
    }
    say(&mut client, to);
    while !client.worker().is_quiet() {
        client.progress();
        server.count(server.wrote);
    }
    client.worker().address().to_vec()
}

/// The numbers of those that went are others' after a while, but not while a completion that nobody has read names one.
#[test]
fn a_sender_that_went_is_not_taken_for_another_that_came_later() {
    let Some(host) = host() else { return };
    let server = Node::new(host, Want { hints: |h| h.caps = FI_TAGGED | FI_SOURCE, ..Want::default() });
    let (name, mut got) = (server.name(), [0; 1]);
    server.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 1);
    let first = call_and_go(&server, &name, |client, to| {
        let bytes: std::sync::Arc<[u8]> = [9].into();
        client.send(to, 1, &bytes).expect("a connection");
    });
    for _ in 0..600 {
        call_and_go(&server, &name, |_, _| ());
    }
    let number = server.insert(&first);
    let (entry, from) = server.read_from().expect("it came long ago");
    assert_eq!((entry.tag, got[0], from), (1, 9, number));
}

#[test]
fn scattered_memory_is_one_message() {
    let Some(host) = host() else { return };
    let p = pair(host, Want::default());
    // as many ranges as travel in one list, and as many pieces as there may be
    for (pieces, scale) in [(8, 1), (8, 5000), (32, 1), (32, 2000)] {
        let mut sent: Vec<_> = (0..pieces).map(|n| pattern(n * scale, n)).collect();
        let iov: Vec<_> = sent.iter_mut().map(|part| piece(part)).collect();
        let total: usize = sent.iter().map(Vec::len).sum();
        let (mut first, mut rest) = (vec![0; total / 3], vec![0; total - total / 3]);
        ok(p.b.trecvmsg(&[piece(&mut first), piece(&mut rest)], FI_ADDR_UNSPEC, 3, 2, 0));
        let msg = fi_msg_tagged {
            msg_iov: iov.as_ptr(),
            desc: ptr::null_mut(),
            iov_count: pieces,
            addr: p.to_b,
            tag: 3,
            ignore: 0,
            context: context(1),
            data: 17,
        };
        let flags = FI_REMOTE_CQ_DATA | FI_MATCH_COMPLETE | FI_MORE;
        // SAFETY: the message and its memory live until the completion.
        p.a.retry(&[&p.b], |ep| unsafe { ((*(*ep).tagged).sendmsg)(ep, &raw const msg, flags) });
        let e = p.b.complete(&[&p.a]);
        assert_eq!((e.len, e.data), (total, 17));
        p.a.complete(&[&p.b]);
        assert!([first, rest].concat() == sent.concat());
        let many = fi_msg_tagged { iov_count: 33, ..msg };
        // SAFETY: refused before anything is read.
        let refused = unsafe { ((*(*p.a.ep).tagged).sendmsg)(p.a.ep, &raw const many, 0) };
        assert_eq!(refused, -(FI_EINVAL as isize));
    }
}

#[test]
fn an_injected_buffer_is_free_at_once() {
    let Some(host) = host() else { return };
    let p = pair(host, Want::default());
    let mut got = vec![0; 16384];
    let mut sent = pattern(16384, 1);
    let msg = |buf: &mut [u8]| (piece(buf), buf.len());
    for flags in [FI_INJECT, FI_INJECT | FI_DELIVERY_COMPLETE] {
        let (iov, _) = msg(&mut sent);
        let msg = fi_msg {
            msg_iov: &raw const iov,
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: p.to_b,
            context: context(1),
            data: 0,
        };
        // SAFETY: the memory is there during the call.
        p.a.retry(&[&p.b], |ep| unsafe { ((*(*ep).msg).sendmsg)(ep, &raw const msg, flags) });
        sent.fill(0);
        // SAFETY: the buffer lives until the completion.
        ok(unsafe {
            let (at, none) = (got.as_mut_ptr().cast(), ptr::null_mut());
            ((*(*p.b.ep).msg).recv)(p.b.ep, at, got.len(), none, FI_ADDR_UNSPEC, context(2))
        } as i32);
        let e = p.b.complete(&[&p.a]);
        assert_eq!((e.flags, e.len), (FI_MSG | FI_RECV, 16384));
        assert_eq!(p.a.complete(&[&p.b]).flags, FI_MSG | FI_SEND);
        assert!(got == pattern(16384, 1));
        sent.copy_from_slice(&got);
    }
    // SAFETY: refused before anything is read.
    let refused = unsafe { ((*(*p.a.ep).msg).inject)(p.a.ep, got.as_ptr().cast(), 16385, p.to_b) };
    assert_eq!(refused, -(FI_EMSGSIZE as isize));
}
