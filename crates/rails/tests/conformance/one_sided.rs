//! Puts, gets and atomics on a peer's memory.

use crate::over;
use crate::pair::{Pair, iov, pattern, user};
use polyrail_core::frame::{AtomicCode, AtomicKind, RemoteAddr};
use polyrail_core::proto::{Access, Failure, PartSpec};
use polyrail_rails::{Config, EventKind};

fn one_sided(config: Config) {
    let mut p = Pair::new(config);
    for len in [1usize, 8, 100, 10_000, 300_000, 3_000_000] {
        let mut region = vec![0u8; len + 16];
        let mut local = pattern(len, 9);
        let mut back = vec![0u8; len];
        let access = Access { read: true, write: true };
        let at = PartSpec { at: RemoteAddr { key: 42, addr: 16 }, len: len as u64 };
        // SAFETY: all buffers outlive the events; the region is deregistered before it is dropped.
        unsafe {
            p.b.register(42, iov(&mut region), 0, access).unwrap();
            p.a.put(p.to_b, &[iov(&mut local)], &[at], Some(3), false, user(1)).unwrap();
            let (a, b) = p.events(1, 1);
            assert_eq!((a[0].kind, a[0].error), (EventKind::Put, None));
            assert!(b.iter().any(|e| e.kind == EventKind::RemoteWrite && (e.data == Some(3) || len > 8192)));
            p.a.get(p.to_b, &[iov(&mut back)], &[at], user(2)).unwrap();
            let (a, _) = p.events(1, 1);
            assert_eq!((a[0].kind, a[0].error), (EventKind::Get, None));
        }
        assert!(back == local && region[16..] == local[..], "{len} bytes");
        p.b.deregister(42);
        // SAFETY: the buffer outlives the event.
        unsafe { p.a.get(p.to_b, &[iov(&mut back)], &[at], user(2)).unwrap() };
        let (a, _) = p.events(1, 0);
        assert!(matches!(a[0].error, Some(Failure::Refused(_))), "{a:?}");
    }
}

#[test]
fn puts_and_gets_of_all_sizes() {
    over::all_ways(one_sided);
}

#[test]
fn atomics() {
    over::all(|config| {
        let mut p = Pair::new(config);
        let mut region = vec![0u8; 64];
        let access = Access { read: true, write: true };
        // FI_UINT64 = 7, FI_SUM = 2
        let code = AtomicCode { datatype: 7, op: 2, kind: AtomicKind::Fetch, count: 1 };
        // SAFETY: all buffers outlive the events.
        unsafe {
            p.b.register(1, iov(&mut region), 0, access).unwrap();
            for i in 0..10u64 {
                let (mut five, mut before) = (5u64.to_le_bytes(), [0; 8]);
                let at = RemoteAddr { key: 1, addr: 8 };
                let (operand, result) = ([iov(&mut five)], [iov(&mut before)]);
                p.a.atomic(p.to_b, code, at, &operand, &[], &result, user(i)).unwrap();
                let (a, _) = p.events(1, 0);
                assert_eq!(
                    (a[0].kind, a[0].error),
                    (EventKind::Atomic, None),
                    "{:?} {:?}",
                    p.a.why(p.to_b),
                    p.b.why(p.to_a)
                );
                assert_eq!(u64::from_le_bytes(before), 5 * i);
            }
        }
    });
}
