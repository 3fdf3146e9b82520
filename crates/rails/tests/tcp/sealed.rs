//! Encrypted links, and somebody between their ends who sees, changes, keeps back, repeats and moves what travels.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;

use polyrail_core::frame::{Acked, Frame};
use polyrail_rails::keys::{Chain, LinkKeys};
use polyrail_rails::rail::{Down, LaneRail, LinkId, Rail};
use polyrail_rails::tcp::Config;

use crate::mock::{Side, keys, numbered, side, sleep, sockets};

/// What somebody sees who is between this side and the other: the records of these frames.
fn seen(link_keys: Option<LinkKeys>, payloads: &[&[u8]]) -> Vec<Vec<u8>> {
    let (mut raw, socket) = sockets("127.0.0.1");
    let mut a = side(Config::default());
    let la = a.adopt_sealed(socket, link_keys);
    raw.set_nonblocking(true).expect("a socket");
    let mut records = Vec::new();
    for (n, payload) in payloads.iter().enumerate() {
        a.send(la, numbered(n as u64), payload).expect("room");
        let mut bytes = vec![0; 4 << 20];
        let mut len = 0;
        while !a.rail.idle(la) || len == 0 {
            a.progress();
            match raw.read(&mut bytes[len..]) {
                Ok(n) => len += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        len += raw.read(&mut bytes[len..]).unwrap_or(0);
        records.push(bytes[..len].to_vec());
    }
    records
}

/// The receiving end, and the socket of whoever is in between.
fn receiver() -> (TcpStream, Side, LinkId) {
    let (raw, socket) = sockets("127.0.0.1");
    raw.set_nodelay(true).expect("a TCP socket");
    let mut b = side(Config::default());
    let lb = b.adopt_sealed(socket, Some(keys().1));
    (raw, b, lb)
}

/// Progresses until `done`, asleep for as long as the rail says that nothing is to be done.
fn settle(b: &mut Side, what: &str, done: impl Fn(&Side) -> bool) {
    while !done(b) {
        b.progress();
        if b.rail.arm() && !done(b) {
            assert!(sleep(&b.rail, 10_000), "asleep for ever, before: {what}");
        }
    }
}

fn drain(b: &mut Side) {
    while b.progress() > 0 || !b.rail.arm() {}
}

/// Why the link ended, and what had come by then.
fn ends(stream: &[u8]) -> (String, Vec<Vec<u8>>) {
    let (mut raw, mut b, link) = receiver();
    raw.write_all(stream).expect("connected");
    raw.shutdown(Shutdown::Write).expect("connected");
    settle(&mut b, "down", |b| !b.mock.down.is_empty());
    let frames = b.mock.frames.iter().map(|(.., bytes)| bytes.clone()).collect();
    assert_eq!(b.rail.retire(link), Acked::before(b.mock.frames.len() as u64), "what came counts");
    match &b.mock.down[..] {
        // the session goes on by other lanes: who is in between can do no more than cut the connection
        [(_, Down::Lost(why))] => (why.to_string(), frames),
        other => panic!("{other:?}"),
    }
}

const CLOSED: &str = "the peer's socket closed without a Bye";

fn short() -> Vec<Vec<u8>> {
    seen(Some(keys().0), &[b"the first", b"the second", b"the third"])
}

#[test]
fn a_payload_cannot_be_seen() {
    let payload: Vec<u8> = (0..100_000_u32).flat_map(|i| (i * 7).to_le_bytes()).collect();
    let parts = [&payload[..], b"a short one that is known"];
    let finds = |records: &[Vec<u8>], part: &[u8]| {
        let piece = &part[..part.len().min(16)];
        records.concat().windows(piece.len()).any(|window| window == piece)
    };
    let (plain, sealed) = (seen(None, &parts), seen(Some(keys().0), &parts));
    for part in [parts[0], &parts[0][50_000..], parts[1]] {
        assert!(finds(&plain, part) && !finds(&sealed, part));
    }
    let len = |records: &[Vec<u8>]| records.iter().map(Vec::len).sum::<usize>();
    let records = payload.len().div_ceil(16 << 10) + 2;
    assert!(len(&sealed) <= len(&plain) + 18 * records, "{} and {}", len(&sealed), len(&plain));
}

#[test]
fn a_stream_may_be_cut_at_every_byte() {
    let records = short();
    let stream = records.concat();
    for cut in 0..=stream.len() {
        let (mut raw, mut b, link) = receiver();
        raw.write_all(&stream[..cut]).expect("connected");
        drain(&mut b);
        raw.write_all(&stream[cut..]).expect("connected");
        settle(&mut b, "three frames", |b| b.mock.frames.len() == 3);
        assert_eq!(
            b.mock.payloads(link),
            [b"the first" as &[u8], b"the second", b"the third"],
            "cut at {cut}"
        );
        // what came with the handshake
        let (mut raw, socket) = sockets("::1");
        let mut b = side(Config::default());
        b.rail.adopt_sealed(OwnedFd::from(socket), &stream[..cut], Some(keys().1)).expect("connected");
        raw.write_all(&stream[cut..]).expect("connected");
        settle(&mut b, "three frames", |b| b.mock.frames.len() == 3);
    }
}

#[test]
fn a_long_payload_may_be_cut_anywhere() {
    let payload: Vec<u8> = (0..200_000_u32).map(|i| (i * 7 / 8) as u8).collect();
    let stream = seen(Some(keys().0), &[&payload, b"next"]).concat();
    for piece in [1000, 4096, 16_383, 16_384, 16_385, 40_000, stream.len()] {
        for gone in [false, true] {
            let (mut raw, mut b, link) = receiver();
            b.mock.discard = gone;
            for bytes in stream.chunks(piece) {
                raw.write_all(bytes).expect("connected");
                drain(&mut b);
            }
            settle(&mut b, "two frames", |b| b.mock.frames.len() == 2);
            let got = b.mock.payloads(link);
            assert!((gone || got[0] == payload) && got[0].len() == payload.len() && got[1] == b"next");
        }
    }
}

/// Of a record that came in part, only the rest comes by the socket.
#[test]
fn who_sleeps_in_a_long_payload_hears_of_its_end_wherever_it_was_cut() {
    let payload = vec![7; 100_000];
    let stream = seen(Some(keys().0), &[&payload]).concat();
    for cut in (1..20).map(|part| stream.len() * part / 20) {
        let (mut raw, mut b, link) = receiver();
        raw.write_all(&stream[..cut]).expect("connected");
        let all_came = |b: &Side| b.rail.sample(link).is_some_and(|seen| seen.received == cut as u64);
        while !all_came(&b) {
            b.progress();
        }
        drain(&mut b);
        raw.write_all(&stream[cut..]).expect("connected");
        assert!(
            sleep(&b.rail, 10_000),
            "asleep, though the payload is there, cut at {cut} of {}",
            stream.len()
        );
        settle(&mut b, "the payload", |b| !b.mock.frames.is_empty());
    }
}

#[test]
fn what_was_changed_anywhere_is_not_taken() {
    let records = short();
    let whole = records.concat();
    for at in 0..whole.len() {
        let mut stream = whole.clone();
        stream[at] ^= 1 << (at % 8);
        let (why, frames) = ends(&stream);
        // that the length was changed may be seen only when what it announces does not come
        let (record, place) = match at.checked_sub(records[0].len()) {
            None => (0, at),
            Some(at) if at < records[1].len() => (1, at),
            Some(at) => (2, at - records[1].len()),
        };
        let seen = why.contains("changes what is sent");
        assert!(seen || place < 2 && why == CLOSED, "byte {at}: {why}");
        assert_eq!(frames.len(), record, "byte {at}: what came before it, and nothing after it");
    }
}

#[test]
fn what_was_left_out_repeated_moved_or_turned_back_is_not_taken() {
    let r = short();
    let other = seen(Some(LinkKeys { send: Chain([7; 32]), receive: Chain([8; 32]) }), &[b"the first"]);
    let back = seen(Some(keys().1), &[b"the first"]);
    for (what, stream, taken) in [
        ("left out", [&r[1][..], &r[2]].concat(), 0),
        ("left out later", [&r[0][..], &r[2]].concat(), 1),
        ("repeated", [&r[0][..], &r[0], &r[1]].concat(), 1),
        ("repeated later", [&r[0][..], &r[1], &r[0]].concat(), 2),
        ("moved", [&r[1][..], &r[0], &r[2]].concat(), 0),
        ("of another connection", other.concat(), 0),
        ("of the other direction", back.concat(), 0),
        ("not encrypted at all", seen(None, &[&[0; 40_000]]).concat(), 0),
        ("nothing in it", [&[16, 0][..], &[0; 16]].concat(), 0),
        ("longer than records are", vec![0xff; 70_000], 0),
    ] {
        let (why, frames) = ends(&stream);
        assert!(why.contains("changes what is sent"), "{what}: {why}");
        assert_eq!(frames.len(), taken, "{what}");
    }
}

#[test]
fn what_is_cut_off_is_an_end_without_a_word() {
    let r = short();
    let stream = r.concat();
    for cut in 0..stream.len() {
        let (why, frames) = ends(&stream[..cut]);
        let whole = usize::from(cut >= r[0].len()) + usize::from(cut >= r[0].len() + r[1].len());
        assert_eq!((&*why, frames.len()), (CLOSED, whole), "cut at {cut}");
    }
}

/// What breaks the protocol inside a record was said by the peer, and by nobody else.
#[test]
fn a_peer_that_breaks_the_protocol_is_still_told_apart() {
    let (raw, socket) = sockets("127.0.0.1");
    let (mut a, mut b) = (side(Config::default()), side(Config::default()));
    let (la, lb) = (a.adopt_sealed(raw, Some(keys().0)), b.adopt_sealed(socket, Some(keys().1)));
    a.send(la, Frame::Bye, &[]).expect("room");
    a.send(la, numbered(1), &[]).expect("room");
    a.progress();
    settle(&mut b, "down", |b| !b.mock.down.is_empty());
    assert!(matches!(&b.mock.down[..], [(link, Down::Protocol(_))] if *link == lb), "{:?}", b.mock.down);
}

/// Bytes are counted before they are sealed, and none counts as delivered that the other side's kernel does not have.
#[test]
fn what_is_delivered_is_counted_in_bytes_of_the_stream() {
    let config = Config { send_buffer: Some(20_000), recv_buffer: Some(20_000), ..Config::default() };
    let (mut a, la, mut b, _) = crate::mock::pair("127.0.0.1", &config, true);
    let mut sent = 0;
    while a.send(la, numbered(sent), &[sent as u8; 1000]).is_ok() {
        a.progress();
        sent += 1;
    }
    let mut before = 0;
    while b.mock.frames.len() < sent as usize {
        let stats = a.rail.sample(la).expect("it is up");
        assert_eq!(stats.delivered + stats.queued, a.rail.given(la));
        assert!(stats.delivered >= before && stats.queued > 0 || stats.delivered == a.rail.given(la));
        // it stays while nothing is received
        for _ in 0..100 {
            a.progress();
        }
        before = stats.delivered;
        b.progress();
        a.progress();
    }
    while !a.rail.idle(la) {
        a.progress();
    }
    let stats = a.rail.sample(la).expect("it is up");
    assert_eq!((stats.delivered, stats.queued), (a.rail.given(la), 0));
}
