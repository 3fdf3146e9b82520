//! Random lies.

use super::lies::{LIAR, lies, names};
use crate::engine_support::fuzz::{KEY, WINDOW, any_stream, drain, victim};
use crate::engine_support::{
    any_tag, any_untagged, assert_idle, cases, filter, join, mesh, message, pattern,
};
use polyrail_core::frame::{Matching, OpId, RemoteAddr};
use polyrail_core::proto::{Access, Delivery, Message, PartSpec, PeerIdx, Scheme};
use polyrail_core::sim::{Direct, Join, What};
use proptest::collection::vec;
use proptest::prelude::*;

/// A region's key that the liar does not know.
const SECRET: u64 = 9;

fn schemes() -> impl Strategy<Value = Scheme> {
    prop::sample::select(vec![Scheme::Get, Scheme::Put, Scheme::Fragments])
}

proptest! {
    #![proptest_config(cases(300))]

    /// Random frames in turn, at an engine that has sends, receives and one-sided operations for them to hit.
    #[test]
    fn whatever_a_peer_says_does_no_harm(scheme in schemes(), lies in lies(80), leave in 0..4usize) {
        let liar = PeerIdx(LIAR as u32);
        let mut node = victim(liar, scheme);
        let route = node.engine.route(liar);
        let (mut next, mut open, mut known) = (0, [const { None }; 3], vec![]);
        for lie in &lies {
            drain(&mut node, liar, leave).iter().for_each(|frame| known.extend(names(frame)));
            lie.tell(&mut node, &mut next, &known, &mut open);
            node.settle();
        }
        drain(&mut node, liar, 1000);
        let most = node.most_stashed.values().copied().max().unwrap_or(0);
        prop_assert!(most <= u64::from(WINDOW) * 96, "{most} bytes stashed");
        // its end is an end
        node.engine.peer_down(liar);
        node.settle();
        let [sends, _, _, rmas, puts] = node.engine.in_flight();
        prop_assert_eq!([sends, rmas, puts], [0; 3]);
        node.engine.connected(liar, route);
        drain(&mut node, liar, 10);
    }

    /// The same as bytes of a stream, some of them changed.
    #[test]
    fn any_stream_does_no_harm(mode in any::<u8>(), lies in lies(40), changed in vec((0..1usize << 12, any::<u8>()), 0..3)) {
        let (mut stream, mut next) = (vec![mode], 0);
        for lie in &lies {
            let (frame, payload) = lie.told(&mut next, &[]);
            stream.extend_from_slice(&frame.encode(payload.len() as usize));
            stream.extend_from_slice(payload.real());
        }
        for (at, to) in changed {
            let at = at % stream.len();
            stream[at] = to;
        }
        any_stream(&stream);
    }

    /// Two honest nodes and a liar: what the honest ones say to each other is as if there were no liar.
    #[test]
    fn what_a_peer_says_touches_nobody_else(
        seed in any::<u64>(),
        scheme in schemes(),
        lies in lies(40),
        sizes in vec(prop_oneof![0..20u64, 90..110u64, 100..600u64], 1..15),
    ) {
        let direct = Direct::Sometimes(70);
        let mut world = mesh(seed, 3, &Join { direct, ..join(scheme) });
        for at in 0..2 {
            world.register(at, KEY, 0, pattern(at as u64, 4096), Access { read: true, write: true });
            world.register(at, SECRET, 0, pattern(at as u64, 8192), Access { read: true, write: true });
        }
        let (mut ops, mut known) = (vec![], [vec![], vec![]]);
        let (mut next, mut lies) = ([0; 2], lies.iter());
        world.deafen(LIAR);
        for (id, &len) in sizes.iter().enumerate() {
            let (from, to) = (id % 2, 1 - id % 2);
            let honest = filter(Some(from), 1000 + id as u64);
            let early = id % 3 == 0;
            if early {
                let op = world.recv(to, honest, len);
                known[to].push(op);
                ops.push((to, op, id));
            }
            let delivery = [Delivery::Sent, Delivery::Delivered, Delivery::Matched][id % 3];
            let matching = Matching::Tag(1000 + id as u64);
            let sent = Message { matching, delivery, ..message(0) };
            known[from].push(world.send(from, to, sent, pattern(id as u64, len)));
            let at = |addr| PartSpec { at: RemoteAddr { key: SECRET, addr }, len };
            world.put(to, from, &[at(600 * id as u64 % 4096)], pattern(id as u64, len), None);
            world.get(to, from, &[at(5000)]);
            // the names of one-sided operations are few, and begin at the first
            known[to].extend((0..3).map(|slot| OpId { slot, generation: id as u32 / 2 }));
            for lie in lies.by_ref().take(3) {
                if !world.is_up(LIAR, to) {
                    world.join(LIAR, to, &join(scheme));
                    next[to] = 0;
                }
                let (frame, payload) = lie.told(&mut next[to], &known[to]);
                world.inject(LIAR, to, &frame, payload);
            }
            world.run_until(world.now() + 700);
            if !early {
                ops.push((to, world.recv(to, honest, len), id));
            }
        }
        world.run();
        for (at, op, id) in ops {
            let got = world.node(at).events.iter().find_map(|event| match &event.what {
                What::Received { op: of, bytes, result: Ok(()), .. } if *of == op => Some(bytes.clone()),
                _ => None,
            });
            prop_assert_eq!(got, Some(pattern(id as u64, sizes[id])), "message {}", id);
        }
        for at in 0..2 {
            let blamed: Vec<_> = world.node(at).broken.iter().filter(|(peer, _)| peer.0 != LIAR as u32).collect();
            prop_assert!(blamed.is_empty(), "{:?}", blamed);
            let sent = |what: &What| matches!(what, What::Sent { result: Ok(()), .. });
            let done = world.node(at).events.iter().filter(|event| sent(&event.what)).count();
            let read = |what: &What| match what {
                What::Rma { bytes, result: Ok(()), .. } => Some(bytes.clone()),
                _ => None,
            };
            let rmas: Vec<_> = world.node(at).events.iter().filter_map(|event| read(&event.what)).collect();
            let own = sizes.iter().enumerate().filter(|(id, _)| id % 2 != at);
            prop_assert_eq!(rmas.len(), 2 * own.clone().count(), "one-sided operations");
            for (_, len) in own {
                let wanted = pattern(1 - at as u64, 8192).slice(5000, *len).unwrap();
                prop_assert!(rmas.contains(&wanted), "a get of {len} bytes");
            }
            prop_assert_eq!(done, sizes.iter().enumerate().filter(|(id, _)| id % 2 == at).count());
            world.cut(at, LIAR);
        }
        world.run();
        // what came whole from the liar may still be received, and is all that is left
        for at in 0..2 {
            while world.peek(at, &any_tag()).is_some() {
                world.recv(at, any_tag(), 10);
            }
            while world.peek(at, &any_untagged()).is_some() {
                world.recv(at, any_untagged(), 10);
            }
            assert_idle(&world, at);
        }
    }
}
