//! What the peer has not had is given back, and nothing else.

use super::{Pool, RetransmitBuffer};
use crate::rail::{Memory, Place, RawIov, Span};
use polyrail_core::frame::{Acked, Frame, Matching, OpId, Order};
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

/// Memory of sends by their slots; of others there is none.
struct Sends(Vec<Vec<u8>>);

impl Memory for Sends {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        let Place::Send(op) = span.place else { return false };
        let Some(bytes) = self.0.get(op.slot as usize) else { return false };
        let from = span.offset as usize;
        out.push(RawIov { base: bytes[from..].as_ptr().cast_mut(), len: span.len });
        true
    }
}

fn send(n: usize) -> OpId {
    OpId { slot: n as u32, generation: 0 }
}

/// An eager message whose bytes are lent, if its sender waits for no answer.
fn eager(n: usize, answered: bool) -> Frame {
    let ack = answered.then(|| send(n));
    Frame::Eager { order: Order::default(), matching: Matching::Tag(n as u64), data: None, ack }
}

/// Gives a journal such messages of 100 bytes.
fn lent(kept: &mut RetransmitBuffer, answered: &[bool], pool: &mut Pool) -> Sends {
    let sends = Sends((0..answered.len()).map(|n| vec![n as u8; 100]).collect());
    for (n, answered) in answered.iter().enumerate() {
        let span = Span { place: Place::Send(send(n)), offset: 0, len: 100 };
        let mut iov = Vec::new();
        assert!(sends.resolve(span, &mut iov));
        // SAFETY: the bytes outlive the call.
        unsafe { kept.push(&eager(n, *answered).encode(100), &iov, Some(span), pool) };
    }
    sends
}

/// What there is to write, of memory as it is now.
fn stream(kept: &RetransmitBuffer, mem: &Sends) -> Vec<u8> {
    let mut iov = Vec::new();
    kept.gather(&mut iov, Some(mem));
    // SAFETY: the journal's bytes and those of the memory, which are both borrowed.
    iov.iter().flat_map(|v| unsafe { std::slice::from_raw_parts(v.base, v.len) }).copied().collect()
}

#[test]
fn what_was_lent_is_told_once_whether_it_was_copied_or_came() {
    let mut pool = Pool::default();
    let mut kept = RetransmitBuffer::default();
    let mut sends = lent(&mut kept, &[false, true, false, false], &mut pool);
    let (before, all) = (stream(&kept, &sends), kept.unwritten());
    kept.copy_lent(Some(send(1)), &sends, &mut pool);
    assert_eq!((pool.returned.pop_front(), kept.copied()), (None, all - 400), "it waits for its answer");
    kept.copy_lent(Some(send(2)), &sends, &mut pool);
    assert_eq!((pool.returned.pop_front(), pool.returned.pop_front()), (Some(send(2)), None));
    kept.copy_lent(Some(send(2)), &sends, &mut pool);
    assert_eq!(pool.returned.pop_front(), None, "it is copied once");
    // whoever had it may write to it
    sends.0[2].fill(0xee);
    assert_eq!(stream(&kept, &sends), before);
    // also after a part of it
    kept.advance(all - 250);
    assert_eq!(stream(&kept, &sends), before[all - 250..]);
    kept.advance(250);
    assert!(kept.acked(&acked(0..3), &mut pool));
    assert_eq!(pool.returned.drain(..).collect::<Vec<_>>(), [send(0)]);
    assert!(kept.acked(&acked(0..4), &mut pool));
    assert_eq!(pool.returned.drain(..).collect::<Vec<_>>(), [send(3)]);
    assert_eq!(kept.copied(), 0);
}

#[test]
fn what_was_lent_comes_back_as_a_copy() {
    let mut pool = Pool::default();
    let mut kept = RetransmitBuffer::default();
    let mut sends = lent(&mut kept, &[false, false, true], &mut pool);
    kept.advance(kept.unwritten());
    kept.copy_lent(None, &sends, &mut pool);
    assert_eq!(pool.returned.drain(..).collect::<Vec<_>>(), [send(0), send(1)]);
    sends.0.iter_mut().for_each(|bytes| bytes.fill(0xee));
    let back = kept.reclaim(&acked([0]), &mut pool).expect("it was sent");
    assert_eq!((back.len(), pool.returned.len()), (2, 0));
    assert_eq!((&back[0].bytes[back[0].header..], back[0].span), (&[1; 100][..], None));
    assert_eq!(back[1].span.map(|span| span.place), Some(Place::Send(send(2))));
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
