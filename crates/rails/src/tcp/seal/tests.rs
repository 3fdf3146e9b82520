use super::*;
use crate::keys::KeyPair;
use polyrail_core::wire::handshake::Secret;
use proptest::prelude::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn iov(bytes: &[u8]) -> RawIov {
    RawIov { base: bytes.as_ptr().cast_mut(), len: bytes.len() }
}

fn halves(chain: u8) -> (Sealer, Opener) {
    let chain = Chain([chain; 32]);
    (Sealer::new(chain.clone()).unwrap(), Opener::new(chain).unwrap())
}

/// What these bytes are on the wire, batch by batch.
fn sealed(sealer: &mut Sealer, pieces: &[&[u8]]) -> Vec<u8> {
    let iov: Vec<RawIov> = pieces.iter().map(|piece| iov(piece)).collect();
    let (mut from, mut all, mut pool) = (Pieces { iov: &iov, taken: 0 }, Vec::new(), Pool::default());
    // SAFETY: the pieces are borrowed for longer than the call.
    while unsafe { sealer.seal(&mut from, &mut pool) }.unwrap() > 0 {
        all.append(&mut sealer.out);
    }
    sealer.out = Vec::new();
    all
}

fn opened(opener: &mut Opener, mut bytes: &[u8]) -> Result<Vec<u8>, Broken> {
    let (mut all, mut to) = (Vec::new(), vec![0; PLAIN]);
    while let Some((len, plain)) = opener.open_first(bytes, &mut to)? {
        all.extend_from_slice(&to[..plain]);
        bytes = &bytes[len..];
    }
    assert!(bytes.is_empty(), "a record is not whole");
    Ok(all)
}

/// The bytes of docs/wire.md, computed by `tests/seal_golden.py`.
#[test]
fn golden() {
    let page = include_str!("../../../../../docs/wire.md");
    let counting = |first| std::array::from_fn(|n| n as u8 + first);
    let [client, server] = [0, 32].map(|first| KeyPair::of(&counting(first)).unwrap());
    let keys = client.keys(&server.public(), Secret(counting(64)), true).unwrap();
    let mut sealer = Sealer::new(keys.send.clone()).unwrap();
    let first = [sealed(&mut sealer, &[b"hello"]), sealed(&mut sealer, &[b"aga", b"in"])];
    sealer.keys.count = REKEY;
    let second = sealed(&mut sealer, &[b"hello"]);
    let [first, again] = first;
    for (bytes, golden) in [
        (&client.public()[..], "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f"),
        (&server.public(), "358072d6365880d1aeea329adf9121383851ed21a28e3b75e965d0d2cd166254"),
        (&keys.send.0, "a5238602fe09d6e6e9e439e36e8631d2a43c8880d1eaa89bd5182ee36edad0e0"),
        (&keys.receive.0, "5e831d51b93a034626a9e339e6fc5d3733edbbba555d0292b0c1a5235871cb89"),
        (&first, "1500fcc9bc9a2fde0f2e165f35467362b72799fd9c5364"),
        (&again, "1500606e62481cd43f55142bc7e8d03694a21a0e4e2f45"),
        (&keys.send.next().unwrap().0, "20e6c5531a01ebb50cbb80e781be95dafd6556d8021ef7fa507090869a6a640e"),
        (&second, "15003c21f8841e10e868a30c3e73c0e12fad89412d7f3e"),
    ] {
        assert_eq!(hex(bytes), golden);
        assert!(page.contains(golden), "docs/wire.md lacks {golden}");
    }
}

#[test]
fn keys_are_changed_in_time_on_both_sides() {
    let (mut sealer, mut opener) = halves(1);
    let first = sealer.keys.chain.0;
    for n in 0..REKEY + 3 {
        let byte = [n as u8];
        assert_eq!(opened(&mut opener, &sealed(&mut sealer, &[&byte])), Ok(byte.into()));
        assert_eq!(sealer.keys.chain.0 == first, n < REKEY);
    }
    assert_eq!((sealer.keys.count, opener.keys.count), (3, 3));
}

#[test]
fn no_record_is_longer_than_is_allowed_and_none_is_empty() {
    let (mut sealer, _) = halves(1);
    let bytes = sealed(&mut sealer, &[&vec![7; 3 * PLAIN + 1]]);
    assert_eq!(bytes.len(), 3 * RECORD + HEAD + 1 + TAG);
    assert!(sealed(&mut sealer, &[b"", b""]).is_empty());
    for (head, expected) in [
        (0, Err(Broken::Length(0))),
        (TAG, Err(Broken::Length(TAG))),
        (TAG + 1, Ok(None)),
        (TAG + PLAIN, Ok(None)),
        (TAG + PLAIN + 1, Err(Broken::Length(TAG + PLAIN + 1))),
        (0xffff, Err(Broken::Length(0xffff))),
    ] {
        assert_eq!(Opener::peek(&(head as u16).to_le_bytes()), expected);
    }
    assert_eq!(Opener::peek(&[9]), Ok(None));
}

#[test]
fn what_is_acknowledged_is_known_in_bytes_of_the_stream() {
    let mut progress = Progress::default();
    let (mut plain, mut sealed) = (0, 0);
    assert_eq!(progress.plain(0), 0);
    for n in 0..2000 {
        let len = 1 + n * n % 5000;
        (plain, sealed) = (plain + len, sealed + len + 18);
        progress.sealed(len, len + 18);
        progress.written = sealed;
        if n % 100 == 0 {
            progress.prune(|| 300_000);
            assert!(progress.marks.len() <= STRETCHES + 300_000 / STRETCH as usize + 2);
        }
        let acked = sealed.saturating_sub(300_000);
        let known = progress.plain(acked);
        assert!(known <= acked && known + 18 * (n + 1) >= acked, "{known} of {acked}");
        assert_eq!(progress.plain(sealed), plain);
    }
    let all: Vec<u64> = (sealed - 300_000..=sealed).map(|acked| progress.plain(acked)).collect();
    assert!(all.is_sorted() && all.last() == Some(&plain));
}

proptest! {
    #[test]
    fn what_is_sealed_opens(
        batches in prop::collection::vec(prop::collection::vec(prop_oneof![0..100_usize, 16_000..17_000_usize, 0..100_000_usize], 0..6), 1..4),
    ) {
        let (mut sealer, mut opener) = halves(1);
        for (seed, lens) in batches.iter().enumerate() {
            let pieces: Vec<Vec<u8>> =
                lens.iter().map(|&len| (0..len).map(|n| (n * 31 + seed) as u8).collect()).collect();
            let borrowed: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let bytes = sealed(&mut sealer, &borrowed);
            prop_assert_eq!(opened(&mut opener, &bytes), Ok(pieces.concat()));
        }
    }

    #[test]
    fn what_was_changed_does_not(len in 1..40_000_usize, at: prop::sample::Index, by in 1..=255_u8) {
        let (mut sealer, mut opener) = halves(1);
        let mut bytes = sealed(&mut sealer, &[&vec![5; len]]);
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        let mut to = vec![0; PLAIN];
        let mut rest = &bytes[..];
        let mut taken = 0;
        while let Ok(Some((record, plain))) = opener.open_first(rest, &mut to) {
            prop_assert!(to[..plain].iter().all(|&byte| byte == 5));
            (rest, taken) = (&rest[record..], taken + record);
        }
        prop_assert!(taken <= at && !rest.is_empty());
    }

    #[test]
    fn arbitrary_bytes_never_open(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let (_, mut opener) = halves(1);
        prop_assert!(!matches!(opener.open_first(&bytes, &mut vec![0; PLAIN]), Ok(Some(_))));
    }
}

/// The kernel says once that a connection was reset: whoever writes then is told, and tells.
#[test]
fn a_reset_that_is_met_while_records_are_written_is_told() {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    sys::reset(far.as_raw_fd());
    let mut waits = libc::pollfd { fd: near.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    assert_eq!(unsafe { libc::poll(&mut waits, 1, 60_000) }, 1);
    let (mut sealer, _) = halves(5);
    let (bytes, mut stats) = ([7; 100], Stats::default());
    // SAFETY: the bytes live through the call.
    let sent = unsafe { sealer.write(near.as_raw_fd(), &[iov(&bytes)], &mut Pool::default(), &mut stats) };
    assert_eq!(sent, Sent { bytes: 100, stopped: Some(libc::ECONNRESET) });
    assert_eq!(sys::recv(near.as_raw_fd(), &mut [0]), Ok(0), "who asks later sees a mere end");
}
