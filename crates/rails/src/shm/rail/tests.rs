use super::*;
use crate::rail::direct::{Direct, DirectError, Transfer};
use crate::rail::{Memory, Place};
use crate::shm::segment::Segment;
use polyrail_core::frame::OpId;
use polyrail_core::proto::{Job, PeerIdx, Region};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const MANY: usize = 100;

/// Counts what comes.
#[derive(Default)]
struct Count {
    frames: Vec<LinkId>,
    downs: Vec<LinkId>,
}

impl Memory for Count {
    fn resolve(&self, _: Span, _: &mut Vec<RawIov>) -> bool {
        false
    }
}

impl Sink for Count {
    fn frame(&mut self, link: LinkId, _: Frame, _: Payload) {
        self.frames.push(link);
    }
    fn begin(&mut self, _: LinkId, _: Frame, _: usize) -> Span {
        unreachable!("frames come whole")
    }
    fn end(&mut self, _: LinkId) {}
    fn down(&mut self, link: LinkId, _: Down) {
        self.downs.push(link);
    }
}

fn bell(of: &ShmRail) -> Bell {
    Bell::new(of.doorbell().introduce().expect("descriptors")).expect("our own")
}

/// A link between two rails: the numbers at both.
fn link(a: &mut ShmRail, b: &mut ShmRail) -> (LinkId, LinkId) {
    let (segment, memory) = Segment::create().expect("memory");
    let theirs = Segment::open(memory.as_fd()).expect("our own");
    let (near, far) = UnixStream::pair().expect("descriptors");
    let to_b = a.adopt(segment.split(), bell(b), near.into()).expect("a descriptor");
    (to_b, b.adopt(theirs.split(), bell(a), far.into()).expect("a descriptor"))
}

/// One rail, and many others that know it only: what it calls each of them, they, and what they call it.
fn star() -> (ShmRail, Vec<(LinkId, ShmRail, LinkId)>) {
    let mut hub = ShmRail::new().expect("descriptors");
    let others = (0..MANY).map(|_| {
        let mut other = ShmRail::new().expect("descriptors");
        let (here, there) = link(&mut hub, &mut other);
        (here, other, there)
    });
    let others = others.collect();
    (hub, others)
}

fn send(rail: &mut ShmRail, link: LinkId) -> bool {
    let header = Frame::Seen { seq: 1 }.encode(0);
    // SAFETY: there is no payload.
    unsafe { rail.send(link, &header, &[], None) }.is_ok()
}

/// What comes in so many rounds.
fn rounds(rail: &mut ShmRail, count: usize) -> Count {
    let mut sink = Count::default();
    for _ in 0..count {
        rail.progress(&mut sink);
    }
    sink
}

fn is_woken(rail: &ShmRail) -> bool {
    crate::sys::wait_for(rail.wait_fd().expect("it has one"), libc::POLLIN, Duration::ZERO)
}

/// Rounds after which nothing is looked at in vain.
fn grow_calm(rail: &mut ShmRail) {
    assert!(rounds(rail, 3 * LOOKS / FEW).frames.is_empty());
}

#[test]
fn rings_by_which_nothing_comes_are_left_until_their_next_frame() {
    let (mut hub, mut others) = star();
    assert_eq!(hub.watched.len(), MANY);
    grow_calm(&mut hub);
    assert!(hub.watched.len() <= FEW && hub.links() == MANY, "{} are looked at", hub.watched.len());
    for (here, other, there) in &mut others {
        assert!(send(other, *there) && send(other, *there));
        assert_eq!(rounds(&mut hub, 1).frames, [*here; 2]);
    }
    assert_eq!(hub.watched.len(), MANY, "they are in use");
    for (_, other, there) in &mut others {
        assert!(send(other, *there));
    }
    assert_eq!(rounds(&mut hub, 1).frames.len(), MANY);
    // many are looked at for as long as few would be for a part of that
    assert!(rounds(&mut hub, 3 * LOOKS / MANY).frames.is_empty());
    assert!(hub.watched.len() <= FEW);
}

#[test]
fn a_round_is_skipped_only_where_there_is_nothing_to_do() {
    let (mut hub, mut others) = star();
    assert!(!hub.skip(), "new rings are looked at");
    rounds(&mut hub, 1);
    assert!(hub.skip());
    for calm in [false, true] {
        if calm {
            grow_calm(&mut hub);
        }
        for (here, other, there) in others.iter_mut().take(2 * FEW) {
            assert!(send(other, *there) && !hub.skip(), "something came");
            assert_eq!(rounds(&mut hub, 1).frames, [*here]);
            assert!(!hub.skip(), "room is to be told of");
            rounds(&mut hub, 1);
            assert!(hub.skip());
        }
    }
    assert!((0..=LOOKS).any(|_| !hub.skip()), "it is looked whether peers live");
    rounds(&mut hub, 1);
    assert!(hub.arm() && !hub.skip(), "it says no more that it sleeps");
    rounds(&mut hub, 1);
    others.truncate(MANY - 1);
    let gone = (0..).take(100 * LOOKS).any(|_| !hub.skip() && !rounds(&mut hub, 1).downs.is_empty());
    assert!(gone, "the end of a peer is seen");
}

#[test]
fn few_rings_are_never_left() {
    let (mut a, mut b) = (ShmRail::new().expect("descriptors"), ShmRail::new().expect("descriptors"));
    let (to_b, to_a) = link(&mut a, &mut b);
    grow_calm(&mut b);
    assert!(send(&mut a, to_b));
    assert!(!b.doorbell.board().is_marked(), "it is looked at");
    assert_eq!(rounds(&mut b, 1).frames, [to_a]);
}

#[test]
fn who_sleeps_is_woken_by_any_ring() {
    let (mut hub, mut others) = star();
    for calm in [false, true] {
        if calm {
            grow_calm(&mut hub);
        }
        for (here, other, there) in &mut others {
            assert!(hub.arm(), "also right after a round in which something came");
            assert!(!is_woken(&hub) && hub.watched.is_empty());
            assert!(send(other, *there) && send(other, *there));
            assert!(is_woken(&hub), "asleep, and not looked at");
            assert!(!hub.arm(), "there is something");
            assert_eq!(rounds(&mut hub, 1).frames, [*here; 2]);
            assert!(!is_woken(&hub), "it is awake");
        }
    }
}

#[test]
fn who_waits_for_room_is_woken_when_there_is_some() {
    let (mut a, mut b) = (ShmRail::new().expect("descriptors"), ShmRail::new().expect("descriptors"));
    let (to_b, to_a) = link(&mut a, &mut b);
    for _ in 0..3 {
        while send(&mut a, to_b) {}
        assert_eq!(a.full, [to_b.0]);
        assert!(a.arm());
        assert!(!is_woken(&a));
        assert!(rounds(&mut b, 10).frames.iter().all(|link| *link == to_a));
        assert!(is_woken(&a));
        rounds(&mut a, 1);
        assert!(!a.arm() && a.full.is_empty(), "there is room");
        assert!(send(&mut a, to_b));
        rounds(&mut b, 10);
    }
}

#[test]
fn the_end_of_a_peer_is_seen_also_where_its_ring_is_not_looked_at() {
    let (mut hub, mut others) = star();
    grow_calm(&mut hub);
    let (here, mut other, there) = others.pop().expect("many");
    assert!(send(&mut other, there));
    drop(other);
    let ended = rounds(&mut hub, 3 * LOOKS / FEW);
    assert_eq!((ended.frames, ended.downs), (vec![here], vec![here]), "what it sent before comes first");
    assert_eq!(hub.links(), MANY - 1);
    hub.close(here);
    assert_eq!(hub.links(), MANY - 1);
    let (here, _other, _) = others.pop().expect("many");
    hub.close(here);
    assert_eq!(hub.links(), MANY - 2);
    assert!(!hub.watched.iter().any(|watch| watch.id == here.0));
}

/// A mark that somebody took off the board costs time, not a frame.
#[test]
fn frames_come_without_a_mark_in_the_end() {
    let (mut hub, mut others) = star();
    grow_calm(&mut hub);
    for (here, other, there) in &mut others {
        assert!(send(other, *there));
        hub.doorbell.board().take(|_| {});
        assert_eq!(rounds(&mut hub, (CHECKS as usize + 1) * LOOKS / FEW).frames, [*here]);
    }
}

/// Who waits makes few rounds between naps and looks around.
#[test]
fn frames_come_without_a_mark_also_to_who_naps() {
    let (mut hub, mut others) = star();
    grow_calm(&mut hub);
    for (at, (here, other, there)) in others.iter_mut().enumerate() {
        assert!(send(other, *there));
        hub.doorbell.board().take(|_| {});
        let mut frames = Vec::new();
        for _ in 0..=CHECKS {
            if at % 2 == 0 {
                hub.arm();
            } else {
                hub.look_around();
            }
            frames.append(&mut rounds(&mut hub, 1).frames);
        }
        assert_eq!(frames, [*here]);
    }
}

const OP: OpId = OpId { slot: 3, generation: 1 };
const LONG: usize = 3 << 20;

/// A message's bytes on one side: a send that the peer at a link reads, or the receive.
struct Message {
    bytes: Vec<u8>,
    read_by: Option<LinkId>,
}

impl Message {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        let ours = matches!(span.place, Place::Send(op) | Place::Recv(op) if op == OP);
        let end = span.offset.saturating_add(span.len as u64);
        if !ours || end > self.bytes.len() as u64 {
            return false;
        }
        let base = self.bytes.as_ptr().wrapping_add(span.offset as usize).cast_mut();
        out.push(RawIov { base, len: span.len });
        true
    }
}

impl Memory for Message {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        Message::resolve(self, span, out)
    }
}

impl Sink for Message {
    fn frame(&mut self, _: LinkId, _: Frame, _: Payload) {
        unreachable!("none is sent")
    }
    fn is_read(&mut self, link: LinkId, send: OpId) -> bool {
        self.read_by == Some(link) && send == OP
    }
    fn begin(&mut self, _: LinkId, _: Frame, _: usize) -> Span {
        unreachable!("none is sent")
    }
    fn end(&mut self, _: LinkId) {}
    fn down(&mut self, _: LinkId, _: Down) {}
}

/// Two rails that reach each other's memory, a message at the first that the second reads, and what that calls the link.
struct Reading {
    a: ShmRail,
    b: ShmRail,
    to_a: LinkId,
    to_b: LinkId,
    from: Message,
    to: Message,
}

impl Reading {
    fn new() -> Self {
        let (mut a, mut b) = (ShmRail::new().expect("descriptors"), ShmRail::new().expect("descriptors"));
        let (to_b, to_a) = link(&mut a, &mut b);
        let me = std::process::id() as i32;
        a.reach(to_b, me, true);
        b.reach(to_a, me, true);
        let from = Message { bytes: (0..LONG).map(|i| (i % 251) as u8).collect(), read_by: Some(to_b) };
        let to = Message { bytes: vec![0; LONG], read_by: None };
        Self { a, b, to_a, to_b, from, to }
    }

    fn start(&mut self) {
        let mut theirs = Region::default();
        assert!(theirs.push(self.from.bytes.as_ptr() as u64, LONG as u64));
        let ours = Span { place: Place::Recv(OP), offset: 0, len: LONG };
        let (link, peer) = (self.to_a, PeerIdx(0));
        let read = Transfer { link, write: false, ours, theirs, peer, job: Job::Rget(OP), send: Some(OP) };
        assert!(self.b.start(read).is_ok());
    }

    /// The reader moves so many bytes at most: how it ended, if it did.
    fn read(&mut self, mut most: usize) -> Option<Result<(), DirectError>> {
        self.b.poll(&self.to, &mut most).map(|(_, result)| result)
    }

    fn read_to_its_end(&mut self) {
        assert!((0..100).any(|_| self.read(1) == Some(Ok(()))), "it ends");
        assert!(self.b.transfers() == 0 && self.to.bytes == self.from.bytes);
    }
}

#[test]
fn who_comes_by_helps_its_peer_to_read() {
    for helps in [true, false] {
        let mut reading = Reading::new();
        reading.start();
        assert_eq!(reading.read(1), None);
        let parts = if helps { reading.a.progress(&mut reading.from) } else { 0 };
        assert_eq!(parts > 0, helps);
        let copied = |message: &Message| message.bytes.last() == Some(&message_end());
        assert_eq!(copied(&reading.to), helps, "from the back");
        reading.read_to_its_end();
        assert!(!helps || reading.a.progress(&mut reading.from) == 0, "all is done");
    }
}

fn message_end() -> u8 {
    ((LONG - 1) % 251) as u8
}

/// A peer may be of another user, and this process of root's.
#[test]
fn nobody_is_helped_to_what_was_not_announced_to_him() {
    let mut reading = Reading::new();
    reading.from.read_by = None;
    reading.start();
    assert_eq!(reading.read(1), None);
    assert_eq!(reading.a.progress(&mut reading.from), 0);
    assert_eq!(reading.to.bytes[LONG - 1], 0);
    reading.read_to_its_end();
}

/// The kernel asks what this process may, not what its peer may.
#[test]
fn a_peer_of_another_user_is_not_helped() {
    let mut reading = Reading::new();
    let me = std::process::id() as i32;
    reading.a.reach(reading.to_b, me, false);
    reading.start();
    assert_eq!(reading.read(1), None);
    assert_eq!(reading.a.progress(&mut reading.from), 0);
    reading.read_to_its_end();
}

/// Its worker hears of that later, and moves what is under way before.
#[test]
fn what_is_read_when_a_link_ends_is_not_thought_to_be_there() {
    let mut reading = Reading::new();
    for _ in 0..3 {
        reading.start();
    }
    assert_eq!(reading.read(1), None);
    reading.b.cut(reading.to_a);
    assert!((0..100 * LOOKS).any(|_| reading.b.progress(&mut reading.to) > 0), "the end is seen");
    for _ in 0..3 {
        assert!((0..100).any(|_| reading.read(1) == Some(Ok(()))), "its memory is still to be read");
        assert!(reading.to.bytes == reading.from.bytes, "what is there is there");
    }
}

/// The reader's own part may fail: then nobody writes to its memory any more.
#[test]
fn a_read_that_fails_is_withdrawn() {
    let mut reading = Reading::new();
    reading.b.reach(reading.to_a, i32::MAX, true);
    reading.start();
    let ended = reading.read(1);
    assert!(matches!(&ended, Some(Err(DirectError::Refused(why))) if why.contains("gone")), "{ended:?}");
    assert_eq!((reading.b.transfers(), reading.a.progress(&mut reading.from)), (0, 0));
    assert!(reading.to.bytes.iter().all(|byte| *byte == 0));
}

/// The kernel may refuse it one side only; then it is the reader's to do.
#[test]
fn what_cannot_be_written_is_read() {
    let mut reading = Reading::new();
    reading.a.reach(reading.to_b, i32::MAX, true);
    reading.start();
    assert_eq!(reading.read(1), None);
    assert_eq!(reading.a.progress(&mut reading.from), 0);
    reading.read_to_its_end();
}

/// It may stand still; and a link has to end.
#[test]
fn who_writes_here_is_not_waited_for_for_ever() {
    let mut reading = Reading::new();
    reading.start();
    assert_eq!(reading.read(1), None);
    let Reading { a, b, to_b, to_a, from, .. } = &mut reading;
    let helpers = &mut a.links[to_b.0 as usize].as_mut().expect("it is up").helpers;
    helpers[0].help(|_| {
        b.close(*to_a);
        true
    });
    assert_eq!((b.transfers(), a.progress(from)), (0, 0), "nothing is left to take");
}

/// Whose process is gone writes no more.
#[test]
fn a_link_ends_at_once_when_its_peer_has_hung_up() {
    let mut reading = Reading::new();
    reading.start();
    assert_eq!(reading.read(1), None);
    let Reading { a, b, to_b, to_a, .. } = &mut reading;
    let Some(Link { helpers, control, .. }) = &mut a.links[to_b.0 as usize] else { panic!("it is up") };
    helpers[0].help(|_| {
        // SAFETY: no memory is involved.
        unsafe { libc::shutdown(control.as_raw_fd(), libc::SHUT_RDWR) };
        b.close(*to_a);
        true
    });
    assert!(b.transfers() == 0);
}

/// Tasks of several messages: either side takes those that the other has not begun.
#[test]
fn several_reads_are_shared() {
    let mut reading = Reading::new();
    for _ in 0..6 {
        reading.start();
    }
    assert_eq!(reading.read(1), None);
    let readers = &reading.b.links[reading.to_a.0 as usize].as_ref().expect("it is up").readers;
    assert!(!readers.take(), "all are taken");
    assert!(reading.a.progress(&mut reading.from) > 0);
    let mut ended = 0;
    for _ in 0..200 {
        ended += usize::from(reading.read(1).is_some());
        reading.a.progress(&mut reading.from);
    }
    assert_eq!((ended, reading.b.transfers()), (6, 0));
    let readers = &mut reading.b.links[reading.to_a.0 as usize].as_mut().expect("it is up").readers;
    assert!((0..DESKS).all(|desk| readers.at(desk).takes()));
    assert!(reading.to.bytes == reading.from.bytes);
}
