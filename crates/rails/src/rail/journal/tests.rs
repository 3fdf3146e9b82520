//! What the peer has not had is given back, and nothing else.

use super::{Pool, RetransmitBuffer};
use crate::rail::{Place, RawIov, Span};
use polyrail_core::frame::{Acked, Frame, OpId};
use proptest::prelude::*;

fn numbered(n: u64) -> Frame {
    Frame::Frag { to: OpId::default(), offset: n }
}

fn span(n: u64, len: usize) -> Span {
    Span { place: Place::Discard, offset: n, len }
}

/// A journal of frames of these lengths, those with a true under a span's name; so many of them are written.
fn given(frames: &[(usize, bool)], written: usize, pool: &mut Pool) -> RetransmitBuffer {
    let mut kept = RetransmitBuffer::default();
    for (n, (len, lasting)) in (0..).zip(frames) {
        let mut bytes = vec![n as u8; *len];
        let iov = RawIov { base: bytes.as_mut_ptr(), len: *len };
        // SAFETY: the bytes outlive the call.
        unsafe { kept.push(&numbered(n).encode(*len), &[iov], lasting.then(|| span(n, *len)), pool) };
    }
    let header = numbered(0).encode(1).len();
    kept.advance(frames[..written].iter().map(|(len, _)| header + len).sum());
    kept
}

fn acked(frames: impl IntoIterator<Item = u64>) -> Acked {
    let mut acked = Acked::default();
    for frame in frames {
        let _ = acked.add(frame);
    }
    acked
}

#[test]
fn a_peer_that_contradicts_itself_is_not_believed() {
    let mut pool = Pool::default();
    let mut kept = given(&[(10, false); 8], 8, &mut pool);
    assert!(kept.acked(&acked([0, 2, 4, 5]), &mut pool));
    assert!(kept.acked(&acked([0, 2]), &mut pool), "an earlier word");
    assert!(!kept.acked(&acked([0, 1, 2, 4]), &mut pool), "5 was there");
    assert!(!kept.acked(&acked([0, 2, 4, 5, 8]), &mut pool), "8 was not given");
    assert!(kept.acked(&acked([0, 1, 2, 4, 5]), &mut pool));
    assert!(!kept.acked(&acked([0, 1, 7]), &mut pool), "2 was there");
    assert!(kept.reclaim(&acked([0, 1, 2, 4]), &mut pool).is_none(), "5 was there");
}

#[test]
fn what_was_not_written_cannot_have_come() {
    let mut pool = Pool::default();
    assert!(given(&[(10, false); 8], 4, &mut pool).reclaim(&acked([0, 3]), &mut pool).is_some());
    assert!(given(&[(10, false); 8], 4, &mut pool).reclaim(&acked([0, 4]), &mut pool).is_none());
    assert!(!given(&[(10, false); 8], 4, &mut pool).acked(&acked(0..5), &mut pool));
}

proptest! {
    #[test]
    fn exactly_what_was_not_had_comes_back(
        frames in prop::collection::vec((1..600usize, any::<bool>()), 1..60),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..80),
        words in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut pool = Pool::default();
        let mut kept = given(&frames, frames.len(), &mut pool);
        // the frames that come, in this order; some words about them come late
        let mut told = vec![Acked::default()];
        for at in &order {
            let mut next = told[told.len() - 1].clone();
            let _ = next.add(at.index(frames.len()) as u64);
            told.push(next);
        }
        for at in words {
            prop_assert!(kept.acked(&told[at.index(told.len())], &mut pool));
        }
        let all = &told[told.len() - 1];
        let back = kept.reclaim(all, &mut pool).expect("all of it was sent");
        let missing: Vec<_> = (0..).zip(&frames).filter(|(n, _)| !all.has(*n)).collect();
        prop_assert_eq!(back.len(), missing.len());
        for (frame, (n, (len, lasting))) in back.iter().zip(missing) {
            prop_assert_eq!(Frame::parse(&frame.bytes[..frame.header]), Ok((numbered(n), *len)));
            prop_assert_eq!(frame.span, lasting.then(|| span(n, *len)));
            let copied = if *lasting { vec![] } else { vec![n as u8; *len] };
            prop_assert_eq!(&frame.bytes[frame.header..], &copied[..]);
        }
    }
}
