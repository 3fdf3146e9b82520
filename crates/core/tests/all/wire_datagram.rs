//! Datagrams: golden bytes, refusals, and that reading never panics. What a connection makes of them is in `connection.rs`.

use crate::wire_support::{challenge, hello, hex, server};
use polyrail_core::control::Epoch;
use polyrail_core::control::word::{NackReason, SpecBytes, Word};
use polyrail_core::micro::Composition;
use polyrail_core::wire::codec::Writer;
use polyrail_core::wire::datagram::{
    ACK_HEAD, ACK_RANGE, ACK_RANGES, Ack, AckHead, Chunk, Chunks, DatagramError, Ending, HEADER, HELLO_AT,
    Header, Kind, STREAM_HEAD, TAG, first_chains, is_opening_tag, opening_tag, write, write_ack,
    write_stream,
};
use polyrail_core::wire::handshake::{Hello, Transcript};
use polyrail_core::wire::{Key, Transport};
use proptest::{collection::vec, prelude::*};

const CLIENT_SALT: [u8; 16] = [0x11; 16];
const SERVER_SALT: [u8; 16] = [0x22; 16];
const AT_SERVER: u32 = 0x0010_0002;
const AT_CLIENT: u32 = 0x0030_0007;
const NUMBER: u32 = 0x0403_0201;
const WINDOW: u32 = 32 << 20;

const OPEN: &str = "12000000000000000000000009070030001111111111111111111111111111111100000002020050000000000000000000504c59520100010003000000030000000b00000000000000000000000000000011111111111111111111111111111111943433102c8b3704129bee40afa5769b919901a11a7a9157990486135d2edc29863df32c3b0bca7cdc4ad927e32cd301";
const ANSWER: &str = "13000000070030000000000009020010002222222222222222222222222222222200000002010000000000000000000000020040000000000000000000504c595202000200090000000000000022222222222222222222222222222222c1e48c6a6a3fa21b3997994ae0e230f1070bdfe0a6ce8dd765a0277f5c2c9ddc33cf93231c30e1e8faec8db8ed3d4284";
const FROM_CLIENT: &str = "2bd2387883bbae9f8f3f598c390bd83ea9b125532c7cd85c6fb9e8f47b985269";
const FROM_SERVER: &str = "e682f70b454986abe419cdc08fcb7b6ec1adef56a60ea8b5241544e6efdbbbc1";

/// Headers as the page groups them.
const HEADERS: [(Kind, &str); 4] = [
    (Kind::Plain, "10030200 02001000 01020304"),
    (Kind::Sealed, "11030200 07003000 01020304"),
    (Kind::Open, "12000000 00000000 01020304"),
    (Kind::Answer, "13000000 07003000 01020304"),
];

/// Chunks as the page groups them, but for acknowledgements and parts of the stream.
const CHUNKS: [(Chunk<'static>, &str); 10] = [
    (Chunk::Ping, "03"),
    (Chunk::Close(Ending::GivenUp), "0400"),
    (Chunk::Close(Ending::Orderly), "0401"),
    (Chunk::Close(Ending::Gone), "0402"),
    (Chunk::Word { order: 0x0102, bytes: b"word" }, "05040201 776f7264"),
    (Chunk::WordsHad { order: 0x0103 }, "060301"),
    (Chunk::Challenge([0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8]), "07a1a2a3a4a5a6a7a8"),
    (Chunk::Response([0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8]), "08a1a2a3a4a5a6a7a8"),
    (
        Chunk::Hello { connection: AT_CLIENT, salt: CLIENT_SALT, window: WINDOW },
        "09 07003000 11111111111111111111111111111111 00000002",
    ),
    (
        Chunk::Hello { connection: AT_SERVER, salt: SERVER_SALT, window: WINDOW },
        "09 02001000 22222222222222222222222222222222 00000002",
    ),
];

const ACK: &str = "0100fa00 01020304 00000500";
const ACK_AND_RANGES: &str = "0102fa00 01020304 00010500 01000200 01020100";
const STREAM: &str = "02000500 0001000040000000 68656c6c6f";
const RESCUED: &str = "0a000500 0001000040000000 68656c6c6f";
const POS: u64 = 0x40_0000_0100;

/// Words of the control channel as the page groups them.
fn words() -> [(Word, &'static str); 8] {
    let (old, epoch, last) = (Epoch(0), Epoch(2), POS);
    let spec = SpecBytes::new(&[Composition::SyncCubic as u8]).unwrap();
    let nack = |reason| Word::Nack { epoch, reason };
    [
        (Word::Prepare { epoch, spec }, "01020100 11"),
        (Word::Prepared { epoch }, "02020000"),
        (nack(NackReason::Busy), "03020100"),
        (nack(NackReason::Cannot), "03020200"),
        (nack(NackReason::HoldDown), "03020300"),
        (Word::Switch { epoch, old, last }, "04020000 0001000040000000"),
        (Word::Drained { old }, "05000000"),
        (Word::Abort { epoch }, "06020000"),
    ]
}

fn packed(shown: &str) -> String {
    shown.replace(' ', "")
}

/// What this writes.
fn written(with: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut room = [0xee; 2048];
    let mut to = Writer::new(&mut room);
    with(&mut to);
    let len = to.finish().expect("room");
    room[..len].into()
}

fn ack(below: u16, ranges: &[(u16, u16)]) -> Vec<u8> {
    let head = AckHead { delay: 250, largest: NUMBER, below, marked: 5 };
    written(|to| write_ack(to, &head, ranges.iter().copied()))
}

fn stream(rescued: bool, pos: u64, bytes: &[u8]) -> Vec<u8> {
    written(|to| {
        write_stream(to, rescued, pos, bytes.len() as u16);
        to.bytes(bytes);
    })
}

fn of(bytes: &[u8]) -> Result<Vec<Chunk<'_>>, DatagramError> {
    Chunks::new(bytes).collect()
}

#[test]
fn golden() {
    for (kind, bytes) in HEADERS {
        let opening = matches!(kind, Kind::Open | Kind::Answer);
        let connection = match kind {
            Kind::Open => 0,
            Kind::Plain => AT_SERVER,
            Kind::Sealed | Kind::Answer => AT_CLIENT,
        };
        let (generation, epoch) = if opening { (0, 0) } else { (3, 2) };
        let header = Header { kind, generation, epoch, connection, number: NUMBER };
        assert_eq!(hex(&header.to_bytes()), packed(bytes), "{kind:?}");
        assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
    }
    for (chunk, bytes) in CHUNKS {
        let made = written(|to| write(to, &chunk));
        assert_eq!((hex(&made), of(&made)), (packed(bytes), Ok(vec![chunk])));
    }
    assert_eq!(hex(&ack(0, &[])), packed(ACK));
    assert_eq!(hex(&ack(256, &[(1, 2), (513, 1)])), packed(ACK_AND_RANGES));
    for (rescued, bytes) in [(false, STREAM), (true, RESCUED)] {
        let made = stream(rescued, POS, b"hello");
        assert_eq!(hex(&made), packed(bytes));
        assert_eq!(of(&made), Ok(vec![Chunk::Stream { rescued, pos: POS, bytes: b"hello" }]));
    }
    assert_eq!(of(&[0; 9]), Ok(vec![]), "padding is nothing");
    for (word, bytes) in words() {
        assert_eq!(hex(&word.to_bytes()), packed(bytes), "{word:?}");
    }
}

#[test]
fn an_acknowledgement_is_read_as_it_was_written() {
    let bytes = ack(256, &[(1, 2), (513, 1)]);
    let [Chunk::Ack(read)] = of(&bytes).expect("one")[..] else { panic!("no acknowledgement") };
    let Ack { delay, largest, below, marked, .. } = read;
    assert_eq!((delay, largest, below, marked), (250, NUMBER, 256, 5));
    assert_eq!(read.ranges().collect::<Vec<_>>(), [(1, 2), (513, 1)]);
}

/// A datagram up to its tag: a header, HELLO, what comes between, and the stream's first bytes.
fn opening(
    kind: Kind,
    connection: u32,
    (ours, salt): (u32, [u8; 16]),
    between: &[u8],
    says: &[u8],
) -> Vec<u8> {
    let header = Header { kind, generation: 0, epoch: 0, connection, number: 0 };
    let hello = written(|to| write(to, &Chunk::Hello { connection: ours, salt, window: WINDOW }));
    [&header.to_bytes()[..], &hello, between, &stream(false, 0, says)].concat()
}

fn by_udp() -> Hello {
    Hello { transport: Transport::UDP, ..hello() }
}

fn open() -> Vec<u8> {
    opening(Kind::Open, 0, (AT_CLIENT, CLIENT_SALT), &[], &by_udp().to_bytes())
}

fn answer() -> Vec<u8> {
    let hello = by_udp().to_bytes();
    let transcript = Transcript { hello, challenge: challenge().seal(&server(), &hello) };
    let head = AckHead { delay: 0, largest: 0, below: 0, marked: 0 };
    let had = written(|to| write_ack(to, &head, [].into_iter()));
    opening(Kind::Answer, AT_CLIENT, (AT_SERVER, SERVER_SALT), &had, &transcript.challenge)
}

#[test]
fn a_connection_opens_by_these_bytes() {
    let (open, answer) = (open(), answer());
    let tagged = |client: &[u8], said: &[u8]| hex(&[said, &opening_tag(&server(), client, said)].concat());
    assert_eq!(tagged(&[], &open), OPEN);
    assert_eq!(tagged(&CLIENT_SALT, &answer), ANSWER);
    let (client, server) = first_chains(&server(), &CLIENT_SALT, &SERVER_SALT);
    assert_eq!((hex(&client).as_str(), hex(&server).as_str()), (FROM_CLIENT, FROM_SERVER));
    assert!(matches!(Chunks::new(&open[HELLO_AT..]).next(), Some(Ok(Chunk::Hello { .. }))));
}

#[test]
fn the_documentation_shows_these_bytes() {
    let page = include_str!("../../../../docs/wire-datagrams.md");
    let headers = HEADERS.iter().map(|(_, shown)| *shown);
    let chunks = CHUNKS.iter().map(|(_, shown)| *shown);
    let others = [ACK, ACK_AND_RANGES, STREAM, RESCUED, "00"];
    let words = words().map(|(_, shown)| shown);
    for shown in headers.chain(chunks).chain(others).chain(words) {
        assert!(page.contains(&format!("`{shown}`")), "docs/wire-datagrams.md lacks {shown}");
    }
    for shown in [OPEN, ANSWER, FROM_CLIENT, FROM_SERVER] {
        assert!(page.contains(shown), "docs/wire-datagrams.md lacks {shown}");
    }
}

#[test]
fn the_numbers_on_the_wire_are_these() {
    assert_eq!((HEADER, TAG, STREAM_HEAD, ACK_HEAD, ACK_RANGE, ACK_RANGES), (12, 16, 12, 12, 4, 32));
}

/// Whoever has another key, or the other purpose, another salt, or one bit less.
#[test]
fn a_tag_is_of_one_key_purpose_and_content() {
    let key = server();
    let said = open();
    let tag = opening_tag(&key, &[], &said);
    assert!(is_opening_tag(&key, &[], &said, &tag));
    assert!(!is_opening_tag(&Key::new([9; 16]).unwrap(), &[], &said, &tag));
    assert!(!is_opening_tag(&key.with_secret(b"secret of this user"), &[], &said, &tag));
    assert!(!is_opening_tag(&key, &CLIENT_SALT, &said, &tag), "that would be an ANSWER");
    let tag_of_answer = opening_tag(&key, &CLIENT_SALT, &said);
    assert!(!is_opening_tag(&key, &SERVER_SALT, &said, &tag_of_answer));
    assert!(!is_opening_tag(&key, &[], &[&CLIENT_SALT[..], &said].concat(), &tag_of_answer));
    for bit in 0..8 * said.len() {
        let mut changed = said.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_opening_tag(&key, &[], &changed, &tag), "bit {bit}");
    }
    for bit in 0..8 * TAG {
        let mut changed = tag;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_opening_tag(&key, &[], &said, &changed), "bit {bit} of the tag");
    }
    for len in 0..TAG {
        assert!(!is_opening_tag(&key, &[], &said, &tag[..len]), "{len} bytes of the tag");
    }
}

#[test]
fn the_keys_are_of_both_salts_and_of_one_direction() {
    let (a, b) = (first_chains(&server(), &CLIENT_SALT, &SERVER_SALT), CLIENT_SALT);
    let all = [a, first_chains(&server(), &SERVER_SALT, &b), first_chains(&server(), &b, &b)];
    let mut chains: Vec<[u8; 32]> = all.iter().flat_map(|(client, server)| [*client, *server]).collect();
    chains.sort_unstable();
    chains.dedup();
    assert_eq!(chains.len(), 6);
}

#[test]
fn every_malformation_has_its_name() {
    let header = Header { kind: Kind::Plain, generation: 1, epoch: 2, connection: 3, number: 4 }.to_bytes();
    for len in 0..HEADER {
        assert_eq!(Header::parse(&header[..len]), Err(DatagramError::Short));
    }
    let with = |at: usize, byte: u8| {
        let mut bytes = header;
        bytes[at] = byte;
        Header::parse(&bytes)
    };
    for first in 0..=u8::MAX {
        let expected = match (first >> 4, first & 15) {
            (1, 0..=3) => None,
            (1, _) => Some(DatagramError::Kind),
            _ => Some(DatagramError::Version),
        };
        assert_eq!(with(0, first).err(), expected, "{first:#x}");
    }
    assert_eq!(with(3, 1), Err(DatagramError::Reserved));

    let fails = |bytes: &[u8]| of(bytes).err();
    assert_eq!(fails(&[200]), Some(DatagramError::Kind));
    assert_eq!(fails(&[255]), Some(DatagramError::Kind));
    assert_eq!(fails(&[4, 3]), Some(DatagramError::Range), "no such ending");
    for made in [ack(256, &[(1, 2), (513, 1)]), stream(false, 7, b"hello"), stream(true, 7, b"hello")] {
        for len in 1..made.len() {
            assert_eq!(fails(&made[..len]), Some(DatagramError::Short), "{len} of {made:?}");
        }
    }
    for (chunk, _) in CHUNKS {
        let made = written(|to| write(to, &chunk));
        for len in 1..made.len() {
            assert_eq!(fails(&made[..len]), Some(DatagramError::Short), "{len} of {chunk:?}");
        }
    }
    assert_eq!(fails(&ack(0, &[(0, 1)])), Some(DatagramError::Range), "a gap of none");
    assert_eq!(fails(&ack(0, &[(1, 0)])), Some(DatagramError::Range), "a range of none");
    let mut many = ack(0, &[(1, 1); 32]);
    assert!(fails(&many).is_none());
    many[1] = 33;
    many.extend([1, 0, 1, 0]);
    assert_eq!(fails(&many), Some(DatagramError::Range));
    let mut odd = stream(false, 7, b"hello");
    odd[1] = 1;
    assert_eq!(fails(&odd), Some(DatagramError::Reserved));
    assert_eq!(fails(&stream(false, u64::MAX - 4, b"hello")), Some(DatagramError::Range));
    assert!(fails(&stream(false, u64::MAX - 5, b"hello")).is_none());
    // what is in front of it is read; nothing behind it is
    let torn = [&[3, 4, 9][..], &[3, 3]].concat();
    let all: Vec<_> = Chunks::new(&torn).collect();
    assert_eq!(all, [Ok(Chunk::Ping), Err(DatagramError::Range)]);
    assert!(DatagramError::Range.to_string().contains("range"));
}

#[test]
fn ranges_are_as_many_as_fit_and_no_more() {
    for room in 0..ACK_HEAD + 40 * ACK_RANGE {
        let mut bytes = [0; ACK_HEAD + 40 * ACK_RANGE];
        let mut to = Writer::new(&mut bytes[..room]);
        let head = AckHead { delay: 0, largest: 9, below: 1, marked: 0 };
        write_ack(&mut to, &head, std::iter::repeat_n((1, 1), 40));
        match to.finish() {
            Ok(len) => {
                assert_eq!(len, ACK_HEAD + ACK_RANGE * ((room - ACK_HEAD) / ACK_RANGE).min(ACK_RANGES));
                assert!(of(&bytes[..len]).is_ok());
            }
            Err(_) => assert!(room < ACK_HEAD),
        }
    }
}

fn any_ending() -> impl Strategy<Value = Ending> {
    prop_oneof![Just(Ending::GivenUp), Just(Ending::Orderly), Just(Ending::Gone)]
}

/// One chunk as bytes, and as many bytes of padding in front of it.
fn any_chunk() -> impl Strategy<Value = Vec<u8>> {
    let range = (1..=u16::MAX, 1..=u16::MAX);
    let head = any::<(u16, u32, u16, u16)>().prop_map(|(delay, largest, below, marked)| AckHead {
        delay,
        largest,
        below,
        marked,
    });
    let bytes = || vec(any::<u8>(), 0..200);
    prop_oneof![
        (head, vec(range, 0..=ACK_RANGES)).prop_map(|(head, ranges)| written(|to| write_ack(
            to,
            &head,
            ranges.into_iter()
        ))),
        (any::<bool>(), 0..=u64::MAX - 200, bytes())
            .prop_map(|(rescued, pos, bytes)| stream(rescued, pos, &bytes)),
        Just(vec![3]),
        any_ending().prop_map(|ending| written(|to| write(to, &Chunk::Close(ending)))),
        (any::<u16>(), bytes())
            .prop_map(|(order, bytes)| written(|to| write(to, &Chunk::Word { order, bytes: &bytes }))),
        any::<u16>().prop_map(|order| written(|to| write(to, &Chunk::WordsHad { order }))),
        any::<[u8; 8]>().prop_map(|bytes| written(|to| write(to, &Chunk::Challenge(bytes)))),
        any::<[u8; 8]>().prop_map(|bytes| written(|to| write(to, &Chunk::Response(bytes)))),
        any::<(u32, [u8; 16], u32)>().prop_map(|(connection, salt, window)| written(|to| write(
            to,
            &Chunk::Hello { connection, salt, window }
        ))),
    ]
}

/// The same chunks as bytes again.
fn rewritten(chunks: &[Chunk<'_>]) -> Vec<u8> {
    let one = |chunk: &Chunk<'_>| match *chunk {
        Chunk::Ack(ack) => {
            let head =
                AckHead { delay: ack.delay, largest: ack.largest, below: ack.below, marked: ack.marked };
            let ranges: Vec<_> = ack.ranges().collect();
            written(|to| write_ack(to, &head, ranges.iter().copied()))
        }
        Chunk::Stream { rescued, pos, bytes } => stream(rescued, pos, bytes),
        ref other => written(|to| write(to, other)),
    };
    chunks.iter().flat_map(one).collect()
}

proptest! {
    #[test]
    fn headers_round_trip(kind in 0..4_usize, (generation, epoch, connection, number) in any::<(u8, u8, u32, u32)>(), more in vec(any::<u8>(), 0..9)) {
        let header = Header { kind: HEADERS[kind].0, generation, epoch, connection, number };
        prop_assert_eq!(Header::parse(&[&header.to_bytes()[..], &more].concat()), Ok(header));
    }

    #[test]
    fn headers_have_one_form(bytes in any::<[u8; HEADER]>()) {
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert_eq!(header.to_bytes(), bytes);
        }
    }

    #[test]
    fn chunks_round_trip(list in vec((any_chunk(), 0..4_usize), 0..9)) {
        let padded: Vec<u8> = list.iter().flat_map(|(chunk, pad)| [&[0; 4][..*pad], chunk].concat()).collect();
        let plain: Vec<u8> = list.into_iter().flat_map(|(chunk, _)| chunk).collect();
        let chunks = of(&padded);
        prop_assert!(chunks.is_ok(), "{:?}", chunks);
        prop_assert_eq!(rewritten(&chunks.unwrap()), plain);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = Header::parse(&bytes).map(|header| format!("{header:?}"));
        stops_after_an_error(&bytes)?;
    }

    #[test]
    fn changed_bytes_never_panic(list in vec(any_chunk(), 1..5), changes in vec((any::<u16>(), any::<u8>()), 1..4), cut: u8) {
        let mut bytes = list.concat();
        for (at, byte) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - usize::from(cut) % bytes.len());
        stops_after_an_error(&bytes)?;
    }
}

fn stops_after_an_error(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut chunks = Chunks::new(bytes);
    let mut failed = false;
    for _ in 0..=bytes.len() {
        match chunks.next() {
            Some(Ok(chunk)) => {
                prop_assert!(!failed, "{:?} after an error", chunk);
                let _ = format!("{chunk:?}");
                if let Chunk::Ack(ack) = chunk {
                    prop_assert!(ack.ranges().count() <= ACK_RANGES);
                    prop_assert!(ack.ranges().all(|(gap, len)| gap > 0 && len > 0));
                }
            }
            Some(Err(error)) => {
                prop_assert!(!failed, "two errors");
                failed = true;
                let _ = format!("{error} {error:?}");
            }
            None => return Ok(()),
        }
    }
    Err(TestCaseError::fail("more chunks than bytes"))
}
