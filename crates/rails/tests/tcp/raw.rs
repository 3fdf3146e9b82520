//! A peer that is only bytes: cut anywhere, not frames at all, or gone in the middle.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};

use polyrail_core::frame::{Frame, MAX_PAYLOAD, Matching, OpId, Order};
use polyrail_rails::rail::{Down, Full, LinkId, Rail};
use polyrail_rails::tcp::Config;

use crate::mock::{Side, numbered, side, sleep, sockets};

fn peer() -> (TcpStream, Side, LinkId) {
    let (raw, socket) = sockets("127.0.0.1");
    raw.set_nodelay(true).expect("a TCP socket");
    let mut side = side(Config::default());
    let link = side.adopt(socket);
    (raw, side, link)
}

fn bytes(frame: Frame, payload: &[u8]) -> Vec<u8> {
    [&*frame.encode(payload.len()), payload].concat()
}

/// The longest header there is but for PUT's.
fn eager() -> Frame {
    Frame::Eager {
        order: Order { seq: 1, credit: 2 },
        matching: Matching::Tag(3),
        data: Some(4),
        ack: Some(OpId { slot: 5, generation: 6 }),
    }
}

/// Progresses until `done`, asleep for as long as the rail says that nothing is to be done.
fn settle(side: &mut Side, what: &str, done: impl Fn(&Side) -> bool) {
    while !done(side) {
        side.progress();
        if side.rail.arm() && !done(side) {
            assert!(sleep(&side.rail, 10_000), "asleep for ever, before: {what}");
        }
    }
}

/// Progresses until nothing is there any more.
fn drain(side: &mut Side) {
    while side.progress() > 0 || !side.rail.arm() {}
}

#[test]
fn a_stream_may_be_cut_at_every_byte() {
    let stream =
        [bytes(eager(), b"payload"), bytes(numbered(7), b""), bytes(numbered(8), &[9; 100])].concat();
    let (mut raw, mut side, link) = peer();
    for cut in 1..stream.len() {
        side.mock.frames.clear();
        raw.write_all(&stream[..cut]).expect("connected");
        drain(&mut side);
        raw.write_all(&stream[cut..]).expect("connected");
        settle(&mut side, "three frames", |s| s.mock.frames.len() == 3);
        assert_eq!(side.mock.payloads(link), [b"payload" as &[u8], b"", &[9; 100]], "cut at {cut}");
        assert_eq!(side.mock.frames[0].1, eager());
    }
    side.mock.frames.clear();
    for byte in stream {
        raw.write_all(&[byte]).expect("connected");
        drain(&mut side);
    }
    settle(&mut side, "three frames", |s| s.mock.frames.len() == 3);
}

#[test]
fn a_long_payload_may_be_cut_anywhere() {
    let payload: Vec<u8> = (0..100_000u32).map(|i| (i * 7 / 8) as u8).collect();
    let stream = [bytes(numbered(1), &payload), bytes(numbered(2), b"next")].concat();
    for cut in [1, 7, 8, 23, 24, 25, 24 + 4096, 24 + 65_536, 100_000, 100_023, 100_024, 100_025, 100_051] {
        let (mut raw, mut side, link) = peer();
        raw.write_all(&stream[..cut]).expect("connected");
        drain(&mut side);
        raw.write_all(&stream[cut..]).expect("connected");
        settle(&mut side, "two frames", |s| s.mock.frames.len() == 2);
        assert!(side.mock.payloads(link) == [&payload[..], b"next"], "cut at {cut}");
    }
}

#[test]
fn bytes_past_the_handshake_are_the_first() {
    let stream =
        [bytes(numbered(1), b"one"), bytes(numbered(2), b"two"), bytes(numbered(3), &[3; 9000])].concat();
    for cut in [0, 1, 27, 28, 54, 60, 90, stream.len()] {
        let (mut raw, socket) = sockets("::1");
        let mut side = side(Config::default());
        let link = side.rail.adopt(OwnedFd::from(socket), &stream[..cut]).expect("connected");
        raw.write_all(&stream[cut..]).expect("connected");
        settle(&mut side, "three frames", |s| s.mock.frames.len() == 3);
        assert_eq!(side.mock.payloads(link), [b"one" as &[u8], b"two", &[3; 9000]], "cut at {cut}");
    }
    let (_raw, socket) = sockets("::1");
    assert!(side(Config::default()).rail.adopt(OwnedFd::from(socket), &[0; 40_000]).is_err());
}

/// Writes bytes that the kernel takes at once, or soon.
fn write(raw: &mut TcpStream, side: &mut Side, bytes: &[u8]) {
    for bytes in bytes.chunks(32 << 10) {
        raw.write_all(bytes).expect("connected");
        side.progress();
    }
}

#[test]
fn who_waits_for_a_long_payload_sleeps_until_much_of_it_is_there() {
    let payload: Vec<u8> = (0..1u32 << 20).map(|i| (i * 7 / 8) as u8).collect();
    let stream = bytes(numbered(1), &payload);
    let (mut raw, mut side, link) = peer();
    assert!(!side.rail.in_bulk(), "nothing comes");
    write(&mut raw, &mut side, &stream[..100 << 10]);
    drain(&mut side);
    assert!(side.rail.in_bulk());
    raw.write_all(&stream[100 << 10..110 << 10]).expect("connected");
    assert!(!sleep(&side.rail, 50), "woken for a few of the bytes that are to come");
    drain(&mut side);
    raw.write_all(&stream[110 << 10..700 << 10]).expect("connected");
    assert!(sleep(&side.rail, 10_000), "asleep, though much is there");
    write(&mut raw, &mut side, &stream[700 << 10..]);
    settle(&mut side, "the payload", |s| s.mock.frames.len() == 1);
    assert!(side.mock.payloads(link) == [&payload[..]] && !side.rail.in_bulk());
    for frame in 2..4 {
        drain(&mut side);
        raw.write_all(&bytes(numbered(frame), b"short")).expect("connected");
        settle(&mut side, "a short frame", |s| s.mock.frames.len() == frame as usize);
    }
}

#[test]
fn who_sleeps_in_a_long_payload_hears_of_its_end_and_of_other_links() {
    let (mut raw, mut side, _) = peer();
    let (mut other, socket) = sockets("127.0.0.1");
    let second = side.adopt(socket);
    raw.write_all(&bytes(numbered(1), &[1; 1 << 20])[..100 << 10]).expect("connected");
    while !side.rail.in_bulk() {
        side.progress();
    }
    drain(&mut side);
    other.write_all(&bytes(numbered(2), b"short")).expect("connected");
    settle(&mut side, "the other link's frame", |s| !s.mock.frames.is_empty());
    assert_eq!(side.mock.payloads(second), [b"short"]);
    drain(&mut side);
    drop(raw);
    settle(&mut side, "down", |s| !s.mock.down.is_empty());
    assert!(!side.rail.in_bulk());
}

fn protocol(stream: &[u8], text: &str) {
    let (mut raw, mut side, link) = peer();
    raw.write_all(stream).expect("connected");
    settle(&mut side, "down", |s| !s.mock.down.is_empty());
    drain(&mut side);
    match &side.mock.down[..] {
        [(l, Down::Protocol(said))] if *l == link => assert!(said.contains(text), "'{said}'"),
        other => panic!("{other:?} instead of '{text}'"),
    }
    assert_eq!(side.send(link, numbered(0), b""), Err(Full), "a link that is down is full for ever");
    assert!(!side.rail.wants_more(link) && side.rail.idle(link));
}

#[test]
fn what_is_not_a_frame_ends_the_link() {
    let mut long = numbered(0).encode(MAX_PAYLOAD).to_vec();
    long[4..8].copy_from_slice(&(MAX_PAYLOAD as u32 + 1).to_le_bytes());
    protocol(&long[..8], "1048577");
    protocol(&[0xff; 300], "header of 255 bytes");
    protocol(&[&bytes(numbered(1), b"good"), &[0; 8][..]].concat(), "header of 0 bytes");
    protocol(b"\x63\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "0x63");
    protocol(&[bytes(Frame::Bye, b""), bytes(numbered(1), b"")].concat(), "follows a Bye");
}

#[test]
fn frames_before_garbage_arrive() {
    let (mut raw, mut side, link) = peer();
    raw.write_all(&[&bytes(numbered(1), b"good"), &[0xff; 64][..]].concat()).expect("connected");
    settle(&mut side, "down", |s| !s.mock.down.is_empty());
    assert_eq!(side.mock.payloads(link), [b"good"]);
}

fn lost(side: &Side, link: LinkId) -> &std::io::Error {
    match &side.mock.down[..] {
        [(l, Down::Lost(e))] if *l == link => e,
        other => panic!("{other:?} instead of one Lost"),
    }
}

fn reset(raw: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let (at, len) = ((&raw const linger).cast(), size_of_val(&linger) as libc::socklen_t);
    // SAFETY: the kernel reads one linger.
    let result = unsafe { libc::setsockopt(raw.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, at, len) };
    assert_eq!(result, 0);
}

#[test]
fn a_reset_in_the_middle_of_a_payload_is_told_once() {
    let (mut raw, mut side, link) = peer();
    raw.write_all(&bytes(numbered(1), &[1; 50_000])[..30_000]).expect("connected");
    drain(&mut side);
    assert!(side.mock.begun.contains_key(&link));
    reset(raw);
    settle(&mut side, "down", |s| !s.mock.down.is_empty());
    assert_eq!(side.send(link, numbered(0), b"x"), Err(Full));
    drain(&mut side);
    assert_eq!(lost(&side, link).raw_os_error(), Some(libc::ECONNRESET));
}

#[test]
fn what_sending_runs_into_is_told_by_progress_after_what_had_arrived() {
    let (mut raw, mut side, link) = peer();
    raw.write_all(&bytes(numbered(1), b"still read")).expect("connected");
    reset(raw);
    // The first call that touches the socket is a send.
    assert_eq!(side.send(link, numbered(2), &[0; 100_000]), Ok(()), "kept for another way");
    assert!(side.mock.down.is_empty(), "only progress tells");
    assert_eq!(side.send(link, numbered(2), b""), Err(Full));
    assert!(!side.rail.arm(), "there is something to tell");
    drain(&mut side);
    assert_eq!(side.mock.payloads(link), [b"still read"]);
    assert_eq!(lost(&side, link).raw_os_error(), Some(libc::ECONNRESET));
}

#[test]
fn an_end_without_a_bye_is_a_loss() {
    for cut in [0, 5, 40, 20_000] {
        let (mut raw, mut side, link) = peer();
        raw.write_all(&bytes(numbered(1), &[1; 50_000])[..cut]).expect("connected");
        drop(raw);
        settle(&mut side, "down", |s| !s.mock.down.is_empty());
        assert_eq!(lost(&side, link).kind(), std::io::ErrorKind::UnexpectedEof, "after {cut} bytes");
    }
}

#[test]
fn a_reset_after_a_bye_is_orderly() {
    let (mut raw, mut side, link) = peer();
    raw.write_all(&bytes(Frame::Bye, b"")).expect("connected");
    reset(raw);
    settle(&mut side, "down", |s| !s.mock.down.is_empty());
    assert!(matches!(side.mock.down[..], [(l, Down::Orderly)] if l == link));
}

#[test]
fn a_link_number_is_used_again_after_close_only() {
    let (raw, mut side, link) = peer();
    drop(raw);
    settle(&mut side, "down", |s| !s.mock.down.is_empty());
    let (_raw, socket) = sockets("127.0.0.1");
    assert_ne!(side.adopt(socket), link);
    side.rail.close(link);
    side.rail.close(link);
    let (mut raw, socket) = sockets("127.0.0.1");
    assert_eq!(side.adopt(socket), link);
    raw.write_all(&bytes(numbered(1), b"new")).expect("connected");
    settle(&mut side, "a frame", |s| !s.mock.frames.is_empty());
    let (_raw, socket) = sockets("127.0.0.1");
    assert_ne!(side.adopt(socket), link, "closed twice, free once");
}

/// Memory that nobody may touch.
fn forbidden(len: usize) -> polyrail_rails::rail::RawIov {
    // SAFETY: a new private mapping; nothing is overwritten.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(base, libc::MAP_FAILED);
    polyrail_rails::rail::RawIov { base: base.cast(), len }
}

#[test]
fn memory_that_vanishes_keeps_the_stream_in_step() {
    for (fault, gone_at_begin) in [(false, false), (false, true), (true, false)] {
        let (mut raw, mut side, link) = peer();
        side.mock.discard = gone_at_begin;
        let stream = [bytes(numbered(1), &[1; 200_000]), bytes(numbered(2), b"in step")].concat();
        raw.write_all(&stream[..50_000]).expect("connected");
        drain(&mut side);
        let (_, slot) = side.mock.begun[&link];
        if fault {
            side.mock.forbidden.insert(slot, forbidden(200_000));
        }
        side.mock.memory.remove(&slot);
        raw.write_all(&stream[50_000..]).expect("connected");
        settle(&mut side, "both", |s| s.mock.frames.len() == 2);
        assert_eq!(side.mock.frames[0].1, numbered(1));
        assert_eq!(side.mock.payloads(link)[1], b"in step");
    }
}

/// A receive that stops at memory which cannot be written looks like one that took all there was.
#[test]
fn memory_that_ends_early_does_not_put_the_rail_to_sleep() {
    let (mut raw, socket) = sockets("127.0.0.1");
    let fd = socket.as_raw_fd();
    let mut side = side(Config { recv_buffer: Some(4 << 20), ..Config::default() });
    let link = side.adopt(socket);
    let torn = forbidden(1 << 20);
    // SAFETY: the first part of a mapping of our own.
    let result = unsafe { libc::mprotect(torn.base.cast(), 900 << 10, libc::PROT_READ | libc::PROT_WRITE) };
    assert_eq!(result, 0);
    // The first place that the mock gives.
    side.mock.forbidden.insert(1, torn);
    let stream = [bytes(numbered(1), &[1; 1 << 20]), bytes(numbered(2), b"in step")].concat();
    raw.write_all(&stream[..10_000]).expect("connected");
    drain(&mut side);
    // All the rest is there before the next receive: nothing will come that could wake the rail.
    raw.write_all(&stream[10_000..]).expect("room");
    let unread = |fd| {
        let mut n: libc::c_int = 0;
        // SAFETY: FIONREAD writes one int.
        assert_eq!(unsafe { libc::ioctl(fd, libc::FIONREAD, &mut n) }, 0);
        n as usize
    };
    let start = std::time::Instant::now();
    while unread(fd) < stream.len() - 10_000 {
        assert!(start.elapsed().as_secs() < 20, "{} bytes have arrived", unread(fd));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(!side.rail.arm(), "all is there, and the only edge is taken");
    settle(&mut side, "both", |s| s.mock.frames.len() == 2);
    assert_eq!(side.mock.payloads(link)[1], b"in step");
}

#[test]
fn a_span_that_vanishes_is_sent_as_zeros() {
    use crate::mock::{pair, until};
    for fault in [false, true] {
        let config = Config { send_buffer: Some(1), recv_buffer: Some(1), ..Config::default() };
        let (mut a, la, mut b, lb) = pair("127.0.0.1", &config, false);
        let slot = a.mock.own(vec![7; 1 << 20]);
        assert_eq!(a.send_span(la, numbered(1), slot), Ok(()));
        assert_eq!(a.send(la, numbered(2), b"in step"), Ok(()));
        a.mock.memory.remove(&slot);
        if fault {
            a.mock.forbidden.insert(slot, forbidden(1 << 20));
        }
        until(&mut a, &mut b, "both", |_, b| b.mock.frames.len() == 2);
        let [first, second] = b.mock.payloads(lb)[..] else { panic!("two frames") };
        let sevens = first.iter().take_while(|&&x| x == 7).count();
        assert!(sevens > 0 && sevens < first.len() && first[sevens..].iter().all(|&x| x == 0));
        assert_eq!((first.len(), second), (1 << 20, b"in step" as &[u8]));
    }
}
