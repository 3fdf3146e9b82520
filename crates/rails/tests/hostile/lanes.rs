//! Peers that lie about lanes, and lanes that end at the worst moment.

use crate::frames::{Victim, bytes, offer_bytes, read_frame};
use crate::support::stranger::{Shaken, beside, identity, is_ended, shake_lane, shake_lane_for_all};
use polyrail_core::frame::{Acked, Frame};
use polyrail_core::proto::REORDER_WINDOW;
use polyrail_core::wire::{Reject, SessionId, Transport};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

fn acked(frames: impl IntoIterator<Item = u64>) -> Acked {
    let mut acked = Acked::default();
    assert!(frames.into_iter().all(|frame| acked.add(frame)));
    acked
}

#[test]
fn lies_about_lanes_end_the_session() {
    let mut victim = Victim::new();
    let lies = [
        Frame::Got { lane: 0, received: 1000 },
        Frame::Got { lane: 1, received: 0 },
        Frame::Retire { lane: 0, received: 1000 },
        Frame::Retire { lane: 7, received: 0 },
        Frame::Seen { seq: 77 },
    ];
    let answer = Frame::LaneAnswer { lane: 1, transport: Transport::TCP, verdict: Ok(()) };
    let gaps = acked([3, 5]).payload();
    let words = [
        (answer, vec![], "it spoke of a lane, or of frames, that never were"),
        (Frame::Got { lane: 0, received: 0 }, gaps.clone(), "of frames, that never were"),
        (Frame::Retire { lane: 0, received: 0 }, gaps.clone(), "of frames, that never were"),
        (Frame::Got { lane: 0, received: 5 }, gaps, "malformed"),
    ];
    for (lie, payload, text) in words {
        let mut hostile = victim.hostile();
        let peer = victim.node.peer(&hostile.address);
        assert!(offer_bytes(&mut hostile.stream, &bytes(lie, &payload)));
        let why = victim.node.lost(peer, &hostile.address);
        assert!(why.contains(text), "{lie:?}: {why}");
    }
    for lie in lies {
        let mut hostile = victim.hostile();
        let peer = victim.node.peer(&hostile.address);
        assert!(offer_bytes(&mut hostile.stream, &bytes(lie, &[])));
        let why = victim.node.lost(peer, &hostile.address);
        assert!(why.contains("broke the protocol"), "{lie:?}: {why}");
    }
    victim.node.converse(victim.to_good);
}

/// A lane may be asked for in words of rails that go without streams, and by who opened the session; all else is refused, and the
/// session goes on. Who asks without end, and takes no answers, is cut off.
#[test]
fn lanes_that_cannot_be_are_refused_and_floods_of_words_end_the_session() {
    let mut victim = Victim::new();
    let mut hostile = victim.hostile();
    let peer = victim.node.peer(&hostile.address);
    let asked = [
        (1, Transport::UDP, Reject::NoTransport),
        (1, Transport::TCP, Reject::NoTransport),
        (1, Transport::SHM, Reject::NoTransport),
        (1, Transport::TRIAL, Reject::NoTransport),
        (0, Transport::UDP, Reject::NoSession),
    ];
    for (lane, transport, reason) in asked {
        let open = bytes(Frame::LaneOpen { lane, transport }, &[7; 512]);
        beside(&mut victim.node, || {
            assert!(offer_unread(&mut hostile.stream, &open));
            let answer = loop {
                match read_frame(&mut hostile.stream) {
                    (Frame::Got { .. }, _) => {}
                    other => break other,
                }
            };
            let refused = Frame::LaneAnswer { lane, transport, verdict: Err(reason) };
            assert_eq!(answer, (refused, Vec::new()));
        });
        assert!(victim.node.worker.is_connected(peer), "{}", victim.node.why(peer));
    }
    let flood = bytes(Frame::LaneOpen { lane: 1, transport: Transport::UDP }, &[7; 512]).repeat(1 << 16);
    beside(&mut victim.node, || {
        // nobody reads the answers: it ends
        while offer_unread(&mut hostile.stream, &flood) {}
    });
    let why = victim.node.lost(peer, &hostile.address);
    assert!(why.contains("took no answers"), "{why}");
    victim.node.converse(victim.to_good);
}

/// Whoever opens a lane must name the session, and may not open them without end.
#[test]
fn lanes_are_opened_by_who_knows_the_session_and_not_without_end() {
    let mut victim = Victim::new();
    let mut hostile = victim.hostile();
    let session = hostile.outcome.as_ref().expect("a session").id;
    let address = victim.address.clone();
    let mut lane =
        |own, session, number| beside(&mut victim.node, || shake_lane(&address, own, session, number));
    let other = lane(identity(), session, 1).expect_err("somebody else's session");
    assert_eq!(other, Reject::NoSession);
    let guess = SessionId(session.0 ^ 1);
    assert_eq!(lane(hostile.own, guess, 1).expect_err("a guess"), Reject::NoSession);
    let mut open: Vec<_> = (1..15).map(|n| lane(hostile.own, session, n).expect("a lane")).collect();
    assert_eq!(lane(hostile.own, session, 5).expect_err("used"), Reject::NoSession);
    open.push(lane(hostile.own, session, 15).expect("a lane"));
    // the session stands: it may be that others have ended, and this side has not heard
    assert_eq!(lane(hostile.own, session, 16).expect_err("too many"), Reject::NoResources);
    // they all carry frames, and all end together
    let peer = victim.node.peer(&hostile.address);
    victim.node.until("all lanes", |node| node.worker.lanes(peer).len() == 16);
    assert!(offer_bytes(&mut hostile.stream, &bytes(Frame::Seen { seq: 9 }, &[])));
    victim.node.lost(peer, &hostile.address);
    for mut stream in open {
        beside(&mut victim.node, || assert!(is_ended(&mut stream)));
    }
    victim.node.converse(victim.to_good);
}

/// A lane ends of whose many messages nobody has said yet that they were seen; the word comes only after the peer's own that it
/// gives the lane up too, as when it was lost with the lane. What is to come again waits for it; answers do not.
#[test]
fn a_lane_is_given_up_before_it_is_known_what_was_seen() {
    const COUNT: u64 = REORDER_WINDOW as u64 + 1000;
    let mut victim = Victim::new();
    let mut odd = victim.hostile();
    let peer = victim.node.peer(&odd.address);
    for tag in 0..COUNT {
        assert!(victim.node.inject(peer, tag, 8), "{}", victim.node.why(peer));
    }
    let session = odd.outcome.as_ref().expect("a session").id;
    let mut other = beside(&mut victim.node, || {
        let mut first = odd.leftover.chain(&mut odd.stream);
        (0..COUNT).for_each(|_| drop(read_frame(&mut first)));
        shake_lane(&victim.address, odd.own, session, 1).expect("a lane")
    });
    victim.node.until("both lanes", |node| node.worker.lanes(peer).len() == 2);
    let (seen, lane) = (COUNT as u32 - 1, 0);
    beside(&mut victim.node, || {
        assert!(offer_unread(&mut other, &bytes(Frame::Retire { lane, received: COUNT - 1 }, &[])));
        assert_eq!(read_frame(&mut other).0, Frame::Retire { lane, received: 0 });
        assert!(offer_unread(&mut other, &bytes(Frame::Seen { seq: seen }, &[])));
        let (again, _) = read_frame(&mut other);
        assert!(again.order().is_some_and(|order| order.seq == seen), "{again:?}");
    });
    victim.node.converse(victim.to_good);
}

/// What a frame's header says takes effect before its payload is whole: a lane may end between the two. The frame comes again
/// though it was seen.
#[test]
fn a_frame_that_was_seen_and_is_not_whole_comes_again() {
    let mut victim = Victim::new();
    let mut odd = victim.hostile();
    let peer = victim.node.peer(&odd.address);
    for tag in 0..3 {
        assert!(victim.node.inject(peer, tag, 10_000), "{}", victim.node.why(peer));
    }
    let session = odd.outcome.as_ref().expect("a session").id;
    let mut other = beside(&mut victim.node, || {
        let mut first = odd.leftover.chain(&mut odd.stream);
        (0..3).for_each(|_| drop(read_frame(&mut first)));
        shake_lane(&victim.address, odd.own, session, 1).expect("a lane")
    });
    victim.node.until("both lanes", |node| node.worker.lanes(peer).len() == 2);
    beside(&mut victim.node, || {
        // of the second message only a part has come
        let words = [bytes(Frame::Seen { seq: 2 }, &[]), bytes(Frame::Retire { lane: 0, received: 1 }, &[])];
        assert!(offer_unread(&mut other, &words.concat()));
        let mut again = std::iter::from_fn(|| Some(read_frame(&mut other)))
            .filter_map(|(frame, payload)| Some((frame.order()?.seq, payload.len())));
        assert_eq!((again.next(), again.next()), (Some((1, 10_000)), Some((2, 10_000))));
    });
    victim.node.converse(victim.to_good);
}

/// Two lanes fail at once, and either side loses its word of the one with the other. The word is given again: else both would
/// wait for each other.
#[test]
fn the_end_of_a_lane_is_told_again_when_the_word_was_lost_with_another() {
    let mut victim = Victim::new();
    for in_order in [false, true] {
        let Shaken { mut stream, outcome, leftover, own, address, .. } = victim.hostile();
        let peer = victim.node.peer(&address);
        let session = outcome.expect("a session").id;
        let node = &mut victim.node;
        let open = |number| shake_lane(&victim.address, own, session, number).expect("a lane");
        let second = beside(node, || open(1));
        node.until("both lanes", |node| node.worker.lanes(peer).len() == 2);
        reset_connection(second);
        let word = beside(node, || read_frame(&mut leftover.chain(&mut stream)).0);
        assert_eq!(word, Frame::Retire { lane: 1, received: 0 });
        // it came, but this side had given lane 0 up before
        if in_order {
            drop(stream)
        } else {
            reset_connection(stream)
        }
        node.until("the loss of both", |node| node.worker.lanes(peer).is_empty());
        let told = beside(node, || {
            let all = shake_lane_for_all(&victim.address, own, session, 2);
            let Shaken { stream: mut third, leftover, .. } = all.expect("a lane");
            // and the word of that went by lane 1: it waits until lane 1 is known to have ended on both sides
            assert!(offer_unread(&mut third, &bytes(Frame::Retire { lane: 1, received: 0 }, &[])));
            let mut third = leftover.chain(&mut third);
            let mut words = [read_frame(&mut third).0, read_frame(&mut third).0];
            words.sort_by_key(|word| if let Frame::Retire { lane, .. } = word { *lane } else { u16::MAX });
            words
        });
        assert_eq!(told, [0, 1].map(|lane| Frame::Retire { lane, received: 0 }));
    }
    victim.node.converse(victim.to_good);
}

/// Ends a connection by a reset.
fn reset_connection(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option is read, and is of the length that is named.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
}

/// Writes all of it, and reads nothing.
fn offer_unread(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.set_nonblocking(false).expect("a socket");
    stream.write_all(bytes).is_ok()
}
