//! A TCP link between two rails of this process, with everything that may go wrong.

use super::Fault;
use crate::config::Faults;
use crate::rail::{Down, LaneRail, LinkId, Memory, Payload, Place, Rail, RawIov, Sink, Span};
use crate::tcp::{Config, TcpRail};
use polyrail_core::frame::{Acked, Frame, OpId};
use polyrail_core::sim::Rng;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const OP: OpId = OpId { slot: 1, generation: 1 };

/// What came by a link.
#[derive(Default)]
struct Seen {
    frames: Vec<(u64, Vec<u8>)>,
    begun: Option<(u64, Vec<u8>, RawIov)>,
    down: bool,
    parts: usize,
}

impl Memory for Seen {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        let Some((.., whole)) = &self.begun else { return false };
        assert!(span.offset as usize + span.len <= whole.len);
        out.push(RawIov { base: whole.base.wrapping_add(span.offset as usize), len: span.len });
        true
    }
}

fn number(frame: Frame) -> u64 {
    match frame {
        Frame::Frag { offset, .. } => offset,
        other => panic!("{other:?} was not sent"),
    }
}

impl Sink for Seen {
    fn frame(&mut self, _link: LinkId, frame: Frame, payload: Payload) {
        assert!(self.begun.is_none(), "no other frame comes in between");
        self.frames.push((number(frame), payload.to_vec()));
    }
    fn begin(&mut self, _link: LinkId, frame: Frame, len: usize) -> Span {
        assert!(self.begun.is_none(), "no other frame comes in between");
        let mut bytes = vec![0; len];
        let whole = RawIov { base: bytes.as_mut_ptr(), len };
        self.begun = Some((number(frame), bytes, whole));
        self.parts += 1;
        Span { place: Place::Recv(OP), offset: 0, len }
    }
    fn end(&mut self, _link: LinkId) {
        let (number, bytes, _) = self.begun.take().expect("begun");
        self.frames.push((number, bytes));
    }
    fn down(&mut self, _link: LinkId, _why: Down) {
        assert!(!std::mem::replace(&mut self.down, true), "told once");
    }
}

/// Two rails and the link between them, by the numbers that they have for it.
fn pair(faults: Faults) -> [(Fault<TcpRail>, LinkId); 2] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
    let far = listener.accept().expect("a connection").0;
    let mut seed = faults.seed;
    [near, far].map(|socket| {
        socket.set_nonblocking(true).expect("a socket");
        let mut rail = TcpRail::new(Config::default()).expect("a descriptor");
        let link = rail.adopt(socket.into(), &[]).expect("a socket");
        seed += 1 << 32;
        (Fault::new(rail, Some(Faults { seed, ..faults })), link)
    })
}

/// Sends until a link ends, or so many frames were taken: what was taken, in order.
fn run(
    [(a, la), (b, lb)]: &mut [(Fault<TcpRail>, LinkId); 2],
    rng: &mut Rng,
    most: usize,
) -> (Vec<(u64, Vec<u8>)>, Seen, usize) {
    let (mut taken, mut full) = (Vec::new(), 0);
    let (mut sender, mut seen) = (Seen::default(), Seen::default());
    let start = Instant::now();
    while !sender.down && !seen.down && seen.frames.len() < most {
        let len = 1 + if rng.chance(80) { rng.below(200) } else { rng.below(40_000) };
        let mut bytes: Vec<u8> = (0..len).map(|i| (i ^ (i >> 8) ^ taken.len() as u64) as u8).collect();
        let header = Frame::Frag { to: OP, offset: taken.len() as u64 }.encode(bytes.len());
        let iov = RawIov { base: bytes.as_mut_ptr(), len: bytes.len() };
        // SAFETY: the bytes outlive the call, and without a span the rail copies what it keeps.
        if taken.len() < most && unsafe { a.send(*la, &header, &[iov], None) }.is_ok() {
            taken.push((taken.len() as u64, bytes));
        } else {
            full += 1;
        }
        a.flush(&sender);
        a.progress(&mut sender);
        b.progress(&mut seen);
        if let Some(ack) = b.take_ack() {
            assert!(ack.received.end() <= seen.frames.len() as u64, "what is held has not come");
            assert!(ack.link == *lb && a.acked(*la, &ack.received));
        }
        assert!(start.elapsed() < Duration::from_secs(40), "hangs");
    }
    (taken, seen, full)
}

#[test]
fn what_comes_late_in_parts_or_finds_no_room_comes_once_and_in_order() {
    let (mut parts, mut full) = (0, 0);
    for seed in 0..8 {
        let mut pair = pair(Faults::harmless(seed));
        let (taken, seen, refused) = run(&mut pair, &mut Rng::new(seed), 300);
        assert!(seen.frames == taken, "seed {seed}");
        parts += seen.parts;
        full += refused;
    }
    assert!(parts > 100 && full > 100, "{parts} payloads in parts, {full} times no room");
}

#[test]
fn whatever_the_moment_a_link_ends_at_each_frame_has_come_or_is_given_back() {
    let mut given_back = 0;
    for seed in 0..60 {
        let mut pair = pair(Faults { end: true, ..Faults::harmless(seed) });
        let (taken, seen, _) = run(&mut pair, &mut Rng::new(seed), 1000);
        let [(a, la), (b, lb)] = &mut pair;
        let (acked, received) = (b.retire(*lb), seen.frames.len());
        let all = Acked::before(received as u64);
        assert_eq!(acked, all, "seed {seed}: what counts as come has been told");
        assert!(seen.frames == taken[..received], "seed {seed}");
        a.retire(*la);
        let rest = a.reclaim(*la, &acked).expect("so many were sent");
        let rest: Vec<_> = rest
            .into_iter()
            .map(|frame| {
                let (header, payload) = frame.bytes.split_at(frame.header);
                (number(Frame::parse(header).expect("a frame").0), payload.to_vec())
            })
            .collect();
        assert!(rest == taken[received..], "seed {seed}");
        given_back += rest.len();
    }
    assert!(given_back > 0, "some end in the middle");
}

#[test]
fn faults_are_read_and_bad_ones_named() {
    assert_eq!(Faults::parse("7"), Ok(Faults::harmless(7)));
    let only_end = Faults { seed: 8, end: true, ..Faults::NONE };
    assert_eq!(Faults::parse("8:end"), Ok(only_end));
    for (text, why) in [("x", "no seed"), ("7:cold", "there are full"), ("", "no seed")] {
        assert!(Faults::parse(text).is_err_and(|said| said.contains(why)), "{text:?}");
    }
}
