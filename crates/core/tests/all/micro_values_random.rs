//! Values over paths that do what they like: none twice, none behind a newer one, each as it was given, in bounded memory; and the stream
//! beside them comes whole.

use crate::micro_support;
use crate::micro_support::values::{Reader, value};
use crate::micro_support::{Line, MS, Net, S, US};
use Composition::{
    AsyncInterEth, AsyncInterIb, AsyncIntraEth, AsyncIntraIb, AsyncPaced, SyncCubic, SyncIntraIb,
};
use polyrail_core::micro::{Composition, DataChannel, Time};
use polyrail_core::values::repair::encode;
use polyrail_core::values::{self, Inbox, PutError, Taken, Took};
use polyrail_core::wire::datagram::{Part, VALUE_MOST, Value};
use polyrail_core::wire::repair::Code;
use proptest::prelude::*;

/// Who asks until the newest of each has come, or for so long: whether all have.
fn settles(net: &mut Net, readers: &mut [Reader], end: usize, until: Time) -> bool {
    let old = |reader: &Reader| reader.has < reader.given.len() as u64;
    while readers.iter().any(old) && net.now < until {
        net.run(net.now + MS);
        net.now += MS;
        readers.iter_mut().for_each(|reader| reader.look(net, end));
    }
    !readers.iter().any(old)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_newest_comes_whatever_the_path_does(
        seed: u64, loss in 0_u64..500_000, doubled in 0_u64..200_000, reordered in 0_u64..500_000, rtt in 0_u64..30,
        mbit in 5_u64..200, which in 0_usize..3, mark_at in 0_u64..100_000, stream in 0_u64..100_000,
        sizes in proptest::collection::vec(prop_oneof![0_usize..2000, 0_usize..60_000], 1..6),
        puts in proptest::collection::vec((0_usize..6, 0_u64..20), 1..60),
    ) {
        let composition = [AsyncPaced, AsyncInterEth, AsyncIntraEth][which];
        // where nobody says what came, the last one may be lost for good; that it comes is asked of short ones on a good day
        let (loss, sizes) = match composition {
            AsyncIntraEth => (loss / 3, sizes.into_iter().map(|len| len.min(1000)).collect()),
            AsyncInterEth => (loss / 2, sizes),
            _ => (loss, sizes),
        };
        let line = Line { loss, doubled, reordered, late: 40 * MS, mark_at, ..Line::new(mbit, rtt * MS) };
        let mut net = Net::new(seed, line, line);
        let a = net.join(composition);
        net.give(a, stream);
        let mut readers: Vec<Reader> =
            sizes.iter().enumerate().map(|(at, len)| Reader { tag: at as u64, len: *len, ..Reader::default() }).collect();
        let all: usize = sizes.iter().sum();
        for (which, wait) in puts {
            let at = which % readers.len();
            readers[at].put(&mut net, a);
            net.run(net.now + wait * MS);
            readers.iter_mut().for_each(|reader| reader.look(&mut net, a + 1));
            prop_assert!(net.shared(a).values_held <= 2 * all && net.ends[a + 1].inbox.kept() <= 5 * all);
        }
        readers.retain(|reader| !reader.given.is_empty());
        let until = net.now + 200 * S;
        prop_assert!(settles(&mut net, &mut readers, a + 1, until), "{:?}", net.shared(a).counters);
        prop_assert!(net.run_until_had(a + 1, stream, net.now + 200 * S), "{:?}", net.shared(a).counters);
        net.run(net.now + 20 * S);
        prop_assert!(!net.ends[a + 1].wrong && net.ends[a + 1].had == stream);
        prop_assert!(net.shared(a).is_delivered() && net.shared(a).flight.is_empty());
    }
}

#[test]
fn a_value_with_repairs_comes_where_the_path_gets_narrower() {
    for seed in 0..40 {
        let line = Line::new(100, 20 * MS).losing(300_000);
        let mut net = Net::new(seed, line, line);
        let a = net.join(AsyncPaced);
        let mut readers = [0, 1].map(|tag| Reader { tag, len: 40_000, ..Reader::default() });
        for _ in 0..20 {
            readers.iter_mut().for_each(|reader| reader.put(&mut net, a));
            net.run(net.now + 30 * MS);
            readers.iter_mut().for_each(|reader| reader.look(&mut net, a + 1));
        }
        readers.iter_mut().for_each(|reader| reader.put(&mut net, a));
        // in the midst of the last one
        net.run(net.now + seed * MS / 2);
        (net.forth.mtu, net.back.mtu) = (1228, 1228);
        let until = net.now + 60 * S;
        assert!(settles(&mut net, &mut readers, a + 1, until), "seed {seed}: {:?}", net.shared(a).counters);
        let counters = net.shared(a).counters;
        let sent = counters.values_put - counters.values_replaced;
        assert!(counters.value_parts > 45 * sent, "there were repairs: {counters:?}");
    }
}

#[test]
fn values_both_ways_over_a_path_that_loses_are_young() {
    let line = Line::new(100, 20 * MS).losing(300_000);
    let mut net = Net::new(9, line, line);
    let a = net.join(AsyncPaced);
    let mut readers =
        [(a, a + 1), (a + 1, a)].map(|ends| (ends, Reader { len: 40_000, ..Reader::default() }));
    for round in 0..400 {
        for ((from, to), reader) in &mut readers {
            reader.put(&mut net, *from);
            reader.look(&mut net, *to);
            if round == 40 {
                reader.ages.clear();
            }
        }
        net.run(net.now + 50 * MS);
    }
    for (_, reader) in &mut readers {
        assert!(reader.age(990) <= 90 * MS, "{} ms", reader.age(990) / MS);
    }
}

#[test]
fn over_a_reliable_network_nothing_is_acknowledged_or_repeated() {
    for composition in [AsyncIntraIb, AsyncInterIb] {
        let line = Line { rate: 0, ..Line::new(0, 10 * US) };
        let mut net = Net::new(3, line, line);
        let a = net.join(composition);
        let mut reader = Reader { len: 100_000, ..Reader::default() };
        net.give(a, 200_000);
        reader.run(&mut net, a, MS, MS / 4, 100 * MS);
        assert_eq!(reader.news, 100, "{composition:?}");
        assert_eq!(net.ends[a + 1].had, 200_000);
        assert_eq!(net.shared(a + 1).counters.sent, 0);
        assert_eq!(net.shared(a).flight.remembered(), 0);
        let parts = 100_000_u64.div_ceil(1472 - 28 - 28);
        assert_eq!(net.shared(a).counters.value_parts, reader.given.len() as u64 * parts);
    }
    let line = Line { rate: 0, ..Line::new(0, 10 * US) };
    let mut net = Net::new(3, line, line);
    let a = net.join(SyncIntraIb);
    net.give(a, 300 << 20);
    assert!(net.run_until_had(a + 1, 300 << 20, S) && !net.ends[a + 1].wrong && net.shared(a).is_delivered());
}

#[test]
fn a_reader_ten_times_slower_makes_nothing_grow() {
    // ten times what the line takes
    for (len, interval) in [(100_000, 800 * US), (1000, 8 * US)] {
        let line = Line::new(100, 20 * MS);
        let mut net = Net::new(5, line, line);
        let a = net.join(AsyncPaced);
        let mut reader = Reader { len, ..Reader::default() };
        reader.run(&mut net, a, interval, 5 * MS, 2 * S);
        reader.ages.clear();
        let before = net.overflowed;
        reader.run(&mut net, a, interval, 5 * MS, 4 * S);
        let (shared, max) = (net.shared(a), reader.age(1000));
        println!("{len}: {} of {} had, oldest {} ms", reader.news, reader.given.len(), max / MS);
        assert!(shared.values_held <= 2 * len && net.ends[a + 1].inbox.kept() <= 5 * len);
        assert!(shared.flight.remembered() < 2000);
        assert!(shared.counters.values_replaced * 10 > shared.counters.values_put * 8);
        // half a round trip, two values' time on the line, and what a queue may be
        let least = 10 * MS + 2 * (len as u64 * S / 12_000_000);
        assert!(max < least + 30 * MS, "{max}");
        assert_eq!(net.overflowed, before, "no queue overflows once the rate is known");
    }
}

#[test]
fn many_tags_share_datagrams_and_turns() {
    let line = Line::new(100, 20 * MS).losing(100_000);
    let mut net = Net::new(5, line, line);
    let a = net.join(AsyncPaced);
    let mut readers: Vec<Reader> = (0..2000).map(|tag| Reader { tag, len: 8, ..Reader::default() }).collect();
    let mut long = Reader { tag: 1 << 40, len: 4 << 20, ..Reader::default() };
    for _ in 0..20 {
        readers.iter_mut().for_each(|reader| reader.put(&mut net, a));
        long.put(&mut net, a);
        net.run(net.now + 50 * MS);
        readers.iter_mut().for_each(|reader| reader.look(&mut net, a + 1));
    }
    assert!(net.shared(a).counters.value_parts > 4 * net.shared(a).counters.sent, "they share datagrams");
    let late = readers.iter().filter(|reader| reader.has + 4 < 20).count();
    assert_eq!(late, 0, "a long value lets short ones have their turn");
    let until = net.now + 20 * S;
    assert!(settles(&mut net, &mut readers, a + 1, until));
    assert!(settles(&mut net, std::slice::from_mut(&mut long), a + 1, until));
}

#[test]
fn what_is_too_much_is_refused() {
    let mut net = Net::new(1, Line::new(0, MS), Line::new(0, MS));
    let a = net.join(AsyncIntraIb);
    assert_eq!(net.put(a, 1, 5, b"new"), Ok(()));
    assert_eq!(net.put(a, 1, 5, b"same"), Err(PutError::Old));
    assert_eq!(net.put(a, 1, 4, b"old"), Err(PutError::Old));
    assert_eq!(net.put(a, 2, 0, &vec![0; VALUE_MOST as usize + 1]), Err(PutError::TooLong));
    for tag in 2..=values::TAGS as u64 {
        assert_eq!(net.put(a, tag, 0, b"x"), Ok(()));
    }
    assert_eq!(net.put(a, 0, 0, b"x"), Err(PutError::TooManyTags));
    let b = net.join(SyncCubic);
    assert_eq!(net.put(b, 1, 1, b"x"), Err(PutError::Synchronous));
}

#[test]
fn a_peer_fills_no_more_than_there_is_room_for() {
    let part = |tag, iteration, total| Value { tag, iteration, total, part: Part::At(0), bytes: b"x" };
    let (mut inbox, mut dropped) = (Inbox::default(), 0);
    let mut take_in = |inbox: &mut Inbox, value: &Value<'_>| {
        let took = inbox.take_in(0, value);
        assert_ne!(took, Took::Broken);
        dropped += usize::from(took == Took::Dropped);
        assert!(inbox.kept() <= values::BYTES);
        dropped
    };
    for tag in 0..1000 {
        (1..4).for_each(|iteration| _ = take_in(&mut inbox, &part(tag, iteration, VALUE_MOST)));
    }
    let before = take_in(&mut inbox, &part(0, 0, VALUE_MOST));
    assert!(before > 900);
    let mut inbox = Inbox::default();
    (0..2 * values::TAGS as u64).for_each(|tag| _ = take_in(&mut inbox, &part(tag, 1, 1)));
    assert_eq!(dropped - before, values::TAGS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Pieces of a value as two channels cut it, one after the other, each in any order.
    #[test]
    fn parts_and_repairs_however_cut_make_the_value(
        total in 300..9000_usize,
        cuts in prop::collection::vec(0..3000_usize, 2),
        seed: u64,
        pieces in prop::collection::vec((0..2_usize, 0..1100_usize), 0..300),
    ) {
        let bytes: Vec<u8> = (0..total as u64).map(|at| (at.wrapping_mul(seed | 1) >> 7) as u8).collect();
        let codes: Vec<_> = cuts.iter().map(|cut| Code::of(total, (256 + cut % total) & !1)).collect();
        let repairs: Vec<_> = codes.iter().map(|code| code.and_then(|code| encode(&code, &bytes, code.repairs()))).collect();
        let mut inbox = Inbox::default();
        let mut order: Vec<_> = pieces.iter().enumerate().collect();
        order.sort_by_key(|(at, (which, _))| (*which, *at));
        for (_, (which, number)) in order {
            let (Some(code), Some(repairs)) = (&codes[*which], &repairs[*which]) else { continue };
            let (size, parts) = (code.size(), code.parts());
            let (part, some) = match number % (parts + code.repairs()) {
                number if number < parts => (Part::At((number * size) as u32), &bytes[number * size..total.min((number + 1) * size)]),
                number => (Part::Repair((number - parts) as u16), &repairs[(number - parts) * size..][..size]),
            };
            let took = inbox.take_in(0, &Value { tag: 1, iteration: 1, total: total as u32, part, bytes: some });
            prop_assert!(inbox.kept() <= 3 * total + size);
            match took {
                Took::Whole => {
 let Taken::New { bytes: got, .. } = inbox.take(0, 1) else { panic!("it is new") };
 prop_assert_eq!(got, &bytes);
 }
                Took::Dropped => prop_assert_eq!(inbox.newest(1), Some(Some(1))),
                Took::Part => {}
                Took::Broken => prop_assert!(false, "nothing contradicts"),
            }
        }
    }

    /// Repairs that are none of the value's: other bytes come, and nothing else.
    #[test]
    fn repairs_of_nothing_do_no_harm(
        pieces in prop::collection::vec((0..4_u64, 0..3000_u32, any::<u16>(), prop::collection::vec(any::<u8>(), 0..200)), 0..200),
    ) {
        let mut inbox = Inbox::default();
        for (iteration, total, number, bytes) in &pieces {
            inbox.take_in(0, &Value { tag: 1, iteration: *iteration, total: *total, part: Part::Repair(*number), bytes });
            prop_assert!(inbox.kept() <= 20_000);
        }
    }
}

#[test]
fn a_peer_that_contradicts_itself_is_found_out() {
    let part = |total| Value { tag: 1, iteration: 1, total, part: Part::At(0), bytes: b"x" };
    let mut inbox = Inbox::default();
    assert_eq!(inbox.take_in(0, &part(10)), Took::Part);
    assert_eq!(inbox.take_in(0, &part(11)), Took::Broken);
    let mut one = DataChannel::new(SyncCubic, 0, &micro_support::limits());
    one.handle_value(&part(10), &mut micro_support::Keeper { now: 0, inbox: &mut inbox });
    assert!(one.shared().broken.is_some());
}

#[test]
fn who_takes_is_told_what_is_new_and_how_old_it_is() {
    let mut net = Net::new(1, Line::new(0, 2 * MS), Line::new(0, 2 * MS));
    let a = net.join(AsyncPaced);
    net.put(a, 9, 7, &value(9, 7, 0)).expect("it is taken");
    net.run(5 * MS);
    let mut take = |now| match net.ends[a + 1].inbox.take(now, 9) {
        Taken::New { iteration, age, bytes } => (true, iteration, age, bytes.len()),
        Taken::Unchanged { iteration, age } => (false, iteration, age, 0),
        Taken::Nothing => panic!("it came"),
    };
    assert_eq!(take(5 * MS), (true, 7, 4 * MS, 0));
    assert_eq!(take(6 * MS), (false, 7, 5 * MS, 0));
}
