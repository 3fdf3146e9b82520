//! When messages of an endpoint are complete that asks in its flags for delivery, as MPICH's does: whatever `POLYRAIL_DELIVERY` says, of a peer that
//! is near when that has them.

use std::ptr;

use polyrail_fi::ffi::*;

use crate::host::host;
use crate::node::{Pair, Want, context, pair, pattern, piece};
use crate::told::{part, told};

/// Longer than what is injected, and still eager.
const LEN: usize = 20_000;
const TEST: &str = "delivery::messages_wait_for_a_peer_that_is_near";

/// Sends a message while the peer does nothing: whether that is complete before the peer has it. With a flag of its own, or none.
fn completes_alone(p: &Pair<'_>, own: Option<u64>) -> bool {
    let (mut sent, mut got) = (pattern(LEN, 1), vec![0; LEN]);
    p.b.trecv(&mut got, p.to_a, 3, 0, 2);
    match own {
        None => p.a.tsend(&[&p.b], &sent, p.to_b, 3, 1),
        Some(flags) => {
            let iov = [piece(&mut sent)];
            let msg = fi_msg_tagged {
                msg_iov: iov.as_ptr(),
                desc: ptr::null_mut(),
                iov_count: 1,
                addr: p.to_b,
                tag: 3,
                ignore: 0,
                context: context(1),
                data: 0,
            };
            // SAFETY: the message and its memory live until the completion.
            p.a.retry(&[&p.b], |ep| unsafe {
                ((*(*ep).tagged).sendmsg)(ep, &raw const msg, flags | FI_COMPLETION)
            });
        }
    }
    let alone = (0..2000).any(|_| p.a.read().is_ok());
    if !alone {
        assert_eq!(p.a.complete(&[&p.b]).op_context as usize, 1);
    }
    assert_eq!(p.b.complete(&[&p.a]).len, LEN);
    assert!(got == sent, "the message");
    alone
}

#[test]
fn messages_wait_for_a_peer_that_is_near() {
    let Some(host) = host() else { return };
    let Some(setting) = part() else {
        for setting in ["1", "0"] {
            let settings =
                [("POLYRAIL_RAILS", "tcp"), ("POLYRAIL_BACKGROUND", "0"), ("POLYRAIL_DELIVERY", setting)];
            assert_eq!(told(TEST, setting, &settings), [""; 0], "{setting}");
        }
        return;
    };
    let hints = |hints: &mut fi_info| {
        // SAFETY: the host's hints have all attributes.
        unsafe { (*hints.tx_attr).op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE };
    };
    let p = pair(host, Want { hints, ..Want::default() });
    // the first one has a connection made
    completes_alone(&p, Some(FI_DELIVERY_COMPLETE));
    assert!(!completes_alone(&p, None), "{setting}: a message of an endpoint that asks");
    assert!(!completes_alone(&p, Some(FI_DELIVERY_COMPLETE)), "a message that asks itself");
    assert!(completes_alone(&p, Some(0)), "a message that asks for nothing");
}
