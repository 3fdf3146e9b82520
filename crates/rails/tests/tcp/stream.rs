//! What is sent arrives, identical and in order.

use polyrail_core::frame::Frame;
use polyrail_rails::rail::{Down, Rail, Sent};
use polyrail_rails::tcp::Config;

use crate::mock::{frag, pair, until};

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 5) as u8).collect()
}

#[test]
fn small_and_large_frames_arrive_in_order() {
    for host in ["127.0.0.1", "::1"] {
        let (mut a, la, mut b, lb) = pair(host, &Config::default());
        let sizes = [8, 0, 1 << 20, 100, 5000, 65536, 3, 9000, 1];
        for (i, &n) in sizes.iter().enumerate() {
            assert_eq!(a.send(la, frag(i as u64), &pattern(n, i as u64)), Ok(Sent::Done));
        }
        until(&mut a, &mut b, "nine frames", |_, b| b.mock.frames.len() == sizes.len());
        for (i, ((link, frame, bytes), &n)) in b.mock.frames.iter().zip(&sizes).enumerate() {
            assert_eq!((*link, *frame), (lb, frag(i as u64)));
            assert!(*bytes == pattern(n, i as u64), "frame {i} of {n} bytes differs");
        }
        assert!(b.mock.begins > 0, "a megabyte goes straight to its place");
    }
}

#[test]
fn a_bye_makes_the_end_orderly() {
    let (mut a, la, mut b, lb) = pair("127.0.0.1", &Config::default());
    a.send(la, frag(0), b"last words").expect("room");
    a.send(la, Frame::Bye, &[]).expect("room");
    until(&mut a, &mut b, "idle", |a, _| a.rail.idle(la));
    a.rail.close(la);
    until(&mut a, &mut b, "down", |_, b| !b.mock.down.is_empty());
    assert!(matches!(b.mock.down[..], [(l, Down::Orderly)] if l == lb));
    assert_eq!(b.mock.payloads(lb), [b"last words" as &[u8], b""]);
}
