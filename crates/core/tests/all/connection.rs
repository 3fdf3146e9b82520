//! How connections open, live, end and break, whatever the network and the other side do.

use crate::connection_support::{
    End, MS, Net, Packet, S, ack, byte_at, chunk, content, established, settings, stream,
};
use polyrail_core::connection::{AMPLIFY, Connection, State};
use polyrail_core::micro::{Composition, NEVER, Scheme};
use polyrail_core::wire::datagram::{ACK_RANGES, Chunk, Chunks, Ending, Kind};
use proptest::prelude::*;
use std::collections::HashSet;

const ENDINGS: [Ending; 3] = [Ending::GivenUp, Ending::Orderly, Ending::Gone];

/// Both sides have one connection, which is up, and what the other said by it.
fn has_opened(net: &Net, client: u64, server: u64) -> bool {
    let all = |end: &End, len: u64| end.is_up() && end.has_all(len);
    let [a, b] = [0, 1].map(|of: usize| &net.endpoints[of].ends);
    assert!(a.iter().chain(b).all(|end| end.broken.is_none()), "it broke");
    a.len() == 1 && b.len() == 1 && all(&a[0], server) && all(&b[0], client)
}

#[test]
fn it_opens_whichever_of_the_first_datagrams_are_lost() {
    for lost in 0..1_u64 << 8 {
        let mut net = Net::new(1);
        net.loses = Box::new(move |place| place < 8 && lost >> place & 1 == 1);
        net.open(0, 3000);
        net.endpoints[1].welcome = 5000;
        net.until("it is open", 60 * S, |net| has_opened(net, 3000, 5000));
    }
}

#[test]
fn it_opens_over_a_network_that_loses_doubles_and_reorders() {
    for seed in 0..300 {
        let mut net = Net::new(seed);
        (net.loss, net.doubled, net.late) = (seed % 50, seed / 2 % 80, 100 - seed % 90);
        net.open(0, 20_000);
        net.endpoints[1].welcome = 20_000;
        net.until("it is open", 600 * S, |net| has_opened(net, 20_000, 20_000));
        // whatever of it comes again brings nothing
        let all: Vec<(usize, Packet)> = net.recorded.clone();
        for (from, packet) in &all {
            net.deliver(1 - from, packet);
        }
        assert!(has_opened(&net, 20_000, 20_000));
        net.loss = 0;
        net.until("silence", 60 * S, |net| {
            net.endpoints
                .iter()
                .flat_map(|one| &one.ends)
                .all(|end| end.connection.shared().flight.is_empty())
        });
        assert!(has_opened(&net, 20_000, 20_000));
    }
}

#[test]
fn it_opens_by_each_composition() {
    let used = |one: &&Composition| one.scheme() == Scheme::Synchronous && !one.needs_reliable_network();
    for composition in Composition::ALL.iter().filter(used) {
        for seed in 0..20 {
            let mut net = Net::new(seed);
            (net.composition, net.loss) = (*composition, 2 * seed);
            net.open(0, 20_000);
            net.endpoints[1].welcome = 20_000;
            net.until("it is open", 600 * S, |net| has_opened(net, 20_000, 20_000));
        }
    }
}

#[test]
fn one_that_nobody_answers_asks_seldom() {
    let mut net = Net::new(1);
    net.loss = 100;
    net.open(0, 80);
    net.run(100 * S);
    let sent = net.recorded.len();
    assert!((60..300).contains(&sent), "{sent} in 100 seconds");
    assert!(net.recorded.iter().all(|(_, packet)| packet.header().kind == Kind::Open));
    assert_eq!(net.end(0, 0).connection.state(), State::Opening);
}

#[test]
fn each_opening_datagram_says_hello_first_and_the_same() {
    let mut net = Net::new(3);
    net.loss = 40;
    net.open(0, 5000);
    net.endpoints[1].welcome = 5000;
    net.until("it is open", 60 * S, |net| has_opened(net, 5000, 5000));
    for (from, kind) in [(0, Kind::Open), (1, Kind::Answer)] {
        let mut first = net.recorded.iter().filter(|one| one.1.header().kind == kind).map(|(by, packet)| {
            assert_eq!(*by, from);
            let (generation, epoch) = (packet.header().generation, packet.header().epoch);
            assert_eq!((generation, epoch, packet.header().connection == 0), (0, 0, kind == Kind::Open));
            Chunks::new(packet.content()).next().expect("a chunk").expect("well-formed")
        });
        let hello = first.next().expect("one");
        assert!(matches!(hello, Chunk::Hello { connection, .. } if connection != 0), "{hello:?}");
        assert!(first.all(|other| other == hello));
    }
}

#[test]
fn both_may_open_one_at_the_same_time() {
    for seed in 0..60 {
        let mut net = Net::new(seed);
        (net.loss, net.doubled, net.late) = (seed % 30, 30, 30);
        for endpoint in &mut net.endpoints {
            endpoint.welcome = 700;
        }
        assert_eq!((net.open(0, 900), net.open(1, 900)), (0, 0));
        net.until("both are open", 60 * S, |net| {
            net.endpoints.iter().all(|one| {
                let [opened, answered] = &one.ends[..] else { return false };
                assert!(one.ends.iter().all(|end| end.broken.is_none()));
                opened.is_up() && opened.has_all(700) && answered.is_up() && answered.has_all(900)
            })
        });
        // one is not wanted
        net.end(0, 1).connection.close(Ending::GivenUp);
        net.loss = 0;
        net.run(S);
        assert_eq!(net.end(1, 0).connection.state(), State::Ended(Ending::GivenUp));
        assert!(net.end(0, 0).is_up() && net.end(1, 1).is_up());
    }
}

#[test]
fn nobody_is_sent_much_before_he_is_seen() {
    for given in [1, 80, 1000, 100_000] {
        let mut net = Net::new(1);
        // what the server says is lost
        net.endpoints[1].welcome = 1 << 20;
        net.open(0, given);
        let mut heard = 0;
        let mut times = 0;
        while times < 60 {
            net.send_all();
            let opens: Vec<Packet> =
                net.recorded.drain(..).filter(|(from, _)| *from == 0).map(|one| one.1).collect();
            for packet in opens {
                assert_eq!(packet.header().kind, Kind::Open);
                heard += packet.len() as u64;
                net.deliver(1, &packet);
                let now = net.now;
                net.end(1, 0).poll(now);
                let sent = net.end(1, 0).sent;
                assert!(sent > 0, "it answers");
                assert!(sent <= AMPLIFY * heard, "{sent} bytes for {heard}");
                // it would say much more
                assert!(
                    times > 0 || heard > 1200 || sent + 100 > AMPLIFY * heard,
                    "{sent} bytes for {heard}"
                );
            }
            for of in 0..2 {
                let due = net.end(of, 0).connection.due();
                net.now = net.now.max(if due == NEVER { 0 } else { due });
                let now = net.now;
                net.end(of, 0).connection.handle_timeout(now);
                times += 1;
            }
            let now = net.now;
            net.end(1, 0).poll(now);
            assert!(net.end(1, 0).sent <= AMPLIFY * heard);
        }
        assert_eq!(net.end(1, 0).connection.state(), State::Answering);
    }
}

#[test]
fn who_has_been_seen_is_sent_what_there_is() {
    let mut net = Net::new(1);
    net.endpoints[1].welcome = 1 << 18;
    net.open(0, 80);
    net.until("it is all there", 10 * S, |net| has_opened(net, 80, 1 << 18));
    let server = net.end(1, 0);
    assert!(server.sent > 100 * server.heard);
}

#[test]
fn what_was_recorded_of_a_connection_opens_no_other_and_is_of_no_other() {
    let mut net = established();
    let (recorded, salts) = (net.recorded.clone(), *net.end(1, 0).connection.salts());
    // the server has forgotten it, as after a restart
    net.endpoints[1].ends.clear();
    net.recorded.clear();
    for (from, packet) in &recorded {
        net.deliver(1 - from, packet);
    }
    let server = net.end(1, 0);
    let again = &server.connection;
    assert_eq!((again.salts().0, again.salts().1 == salts.1), (salts.0, false), "other keys");
    assert_eq!(again.state(), State::Answering, "nothing came under them");
    let opens = recorded.iter().filter(|(_, packet)| packet.header().kind == Kind::Open);
    assert_eq!(server.heard, opens.map(|(_, packet)| packet.len() as u64).sum::<u64>());
    // the client has an answer already
    let now = net.now;
    let answers = net.end(1, 0).poll(now);
    assert!(!answers.is_empty());
    let before = (
        net.end(0, 0).came.len(),
        net.end(0, 0).connection.theirs(),
        net.end(0, 0).connection.shared().counters,
    );
    answers.iter().for_each(|packet| net.deliver(0, packet));
    let client = net.end(0, 0);
    assert_eq!((client.came.len(), client.connection.theirs(), client.connection.shared().counters), before);
    assert!(client.is_up() && client.broken.is_none());
}

#[test]
fn what_comes_again_counts_once() {
    let mut net = established();
    let recorded = net.recorded.clone();
    let before = [0, 1].map(|of| net.end(of, 0).connection.shared().counters);
    let count = recorded.len() as u64;
    for (from, packet) in recorded.iter().chain(&recorded) {
        net.deliver(1 - from, packet);
    }
    let after = [0, 1].map(|of| net.end(of, 0).connection.shared().counters);
    let doubled =
        |counters: [polyrail_core::micro::shared::Counters; 2]| counters[0].doubled + counters[1].doubled;
    assert_eq!(doubled(after) - doubled(before), 2 * count);
    assert!(has_opened(&net, 100, 100));
    let now = net.now;
    assert!((0..2).all(|of| net.end(of, 0).poll(now).is_empty()), "nobody answers to that");
}

#[test]
fn each_side_may_end_it_in_each_way() {
    for ending in ENDINGS {
        for (closer, lost) in [(0, 0), (1, 0), (0, 1), (1, 2)] {
            let mut net = established();
            net.recorded.clear();
            net.loses = Box::new(move |place| place < lost);
            net.end(closer, 0).connection.close(ending);
            // what is said once holds
            net.end(closer, 0).connection.close(Ending::Orderly);
            net.run(10 * S);
            let said = net.recorded.iter().filter(|(from, _)| *from == closer).count();
            assert_eq!(said, 3, "goodbyes");
            assert!(net.end(closer, 0).connection.is_closed());
            let other = net.end(1 - closer, 0);
            assert_eq!(other.connection.state(), State::Ended(ending));
            assert_eq!((other.broken, other.connection.due()), (None, NEVER));
            assert!(other.has_all(100));
            other.give(1000);
            assert!(other.poll(100 * S).is_empty(), "it is over");
        }
    }
}

#[test]
fn it_may_end_before_it_is_open() {
    for ending in ENDINGS {
        // by who opens it, unheard and heard
        for loses in [false, true] {
            let mut net = Net::new(1);
            net.open(0, 50);
            net.loses = Box::new(move |_| loses);
            net.send_all();
            net.end(0, 0).connection.close(ending);
            net.loses = Box::new(|_| false);
            net.run(S);
            assert!(net.end(0, 0).connection.is_closed());
            assert_eq!(net.end(1, 0).connection.state(), State::Ended(ending), "{loses}");
        }
        // by who answers
        let mut net = Net::new(1);
        net.open(0, 50);
        net.until("it came", S, |net| !net.endpoints[1].ends.is_empty());
        net.end(1, 0).connection.close(ending);
        net.run(S);
        assert_eq!(net.end(0, 0).connection.state(), State::Ended(ending));
        assert!(net.end(1, 0).connection.is_closed());
    }
}

#[test]
fn a_goodbye_carries_nothing_of_the_stream() {
    let mut net = established();
    net.end(0, 0).give(100_000);
    net.end(0, 0).connection.close(Ending::GivenUp);
    let now = net.now;
    for packet in net.end(0, 0).poll(now) {
        let stream = |chunk: &Chunk<'_>| matches!(chunk, Chunk::Stream { .. });
        assert!(
            !Chunks::new(packet.content()).flatten().any(|chunk| stream(&chunk)),
            "{:?}",
            packet.header()
        );
    }
}

/// A server that the client has numbered up to here.
fn at_number(steps: &[u64]) -> End {
    let mut net = established();
    let mut end = net.endpoints[1].ends.remove(0);
    for number in steps {
        end.hear(net.now, Kind::Plain, *number, &chunk(&Chunk::Ping)).expect("well-formed");
    }
    end
}

const HALF: u64 = 1 << 31;
const WHOLE: u64 = 1 << 32;

#[test]
fn numbers_go_on_where_their_lowest_bits_begin_anew() {
    let mut end = at_number(&[HALF - 1, WHOLE - 200]);
    let (mut now, base) = (100 * S, WHOLE - 100);
    let mut pos = end.came.len() as u64;
    let other = end.connection.theirs();
    let mut counted = end.connection.shared().counters.received;
    // late by one, or three, or twice
    for at in 0..100 {
        for number in [base + 4 * at + 1, base + 4 * at, base + 4 * at + 3, base + 4 * at + 2, base + 4 * at]
        {
            let bytes = [byte_at(other, pos)];
            let fresh = !end.connection.shared().came.has(number);
            end.hear(now, Kind::Plain, number, &stream(pos, &bytes)).expect("well-formed");
            pos += u64::from(fresh);
            counted += 1;
            now += MS / 10;
        }
    }
    assert_eq!(end.came.len() as u64, pos);
    assert_eq!(end.connection.shared().counters.doubled, 100);
    assert_eq!(end.connection.shared().counters.received, counted);
    now += 100 * MS;
    end.connection.handle_timeout(now);
    let said = end.poll(now);
    let acks = said.iter().flat_map(|packet| Chunks::new(packet.content())).flatten();
    let acks: Vec<_> =
        acks.filter_map(|chunk| if let Chunk::Ack(ack) = chunk { Some(ack) } else { None }).collect();
    let [ack] = acks[..] else { panic!("{acks:?}") };
    assert_eq!((ack.largest, ack.below), ((base + 399) as u32, 399));
    assert_eq!(ack.ranges().collect::<Vec<_>>(), [(99, 1)], "and the one that was there before");
}

proptest! {
    #[test]
    fn a_number_is_the_closest_with_its_lowest_bits(newest in 0..HALF, jumps in 0..5_u64, off in 0..HALF) {
        let steps: Vec<u64> = (0..=jumps).map(|n| 1000 + newest + n * (HALF - 7)).collect();
        let mut end = at_number(&steps);
        let last = steps[steps.len() - 1];
        let mut expanded = |number: u64| end.connection.number(0, number as u32).expect("it is alive").number;
        prop_assert_eq!(expanded(last + off), last + off);
        if let Some(before) = last.checked_sub(off) {
            prop_assert_eq!(expanded(before), before);
        }
    }
}

#[test]
fn who_sends_beyond_the_window_is_cut_off() {
    let holds = u64::from(settings().holds);
    for (pos, len, breaks) in [
        (100 + holds - 9, 10, true),
        (100 + holds - 10, 10, false),
        (100 + holds, 1, true),
        (100 + holds, 0, false),
        (u64::MAX - 10, 10, true),
        (1 << 63, 1, true),
        // whatever of it is had, or has its turn, is none
        (0, 100, false),
        (50, 500, false),
    ] {
        let mut net = established();
        let now = net.now;
        let end = net.end(1, 0);
        let before = end.came.len();
        let heard = end.hear(now, Kind::Plain, 1000, &stream(pos, &vec![7; len]));
        assert_eq!(heard.is_err(), breaks, "{len} bytes at {pos}: {heard:?}");
        if breaks {
            assert_eq!(end.came.len(), before);
            assert!(heard.is_err_and(|why| why.contains("more than there is room")));
        }
        assert!(end.connection.shared().held as u64 <= holds);
    }
}

#[test]
fn all_of_the_window_may_come_backwards() {
    let mut net = established();
    let (now, holds) = (net.now, u64::from(settings().holds));
    let end = net.end(1, 0);
    let other = end.connection.theirs();
    let places: Vec<u64> = (100..100 + holds).step_by(1024).collect();
    for (number, at) in (1000..).zip(places.into_iter().rev()) {
        let bytes: Vec<u8> = (at..(at + 1024).min(100 + holds)).map(|pos| byte_at(other, pos)).collect();
        end.hear(now, Kind::Plain, number, &stream(at, &bytes)).expect("it fits");
        assert!(end.connection.shared().held as u64 <= holds);
    }
    assert!(end.has_all(100 + holds));
    assert_eq!(end.connection.shared().held, 0);
}

#[test]
fn who_acknowledges_what_was_never_sent_is_cut_off() {
    let mut net = established();
    let now = net.now;
    let end = net.end(1, 0);
    let next = end.connection.shared().flight.next() as u32;
    end.hear(now, Kind::Plain, 1000, &ack(next - 1, 0, &[])).expect("that was sent");
    // what would be before the first is none
    end.hear(now, Kind::Plain, 1001, &ack(next - 1, u16::MAX, &[(1, u16::MAX); ACK_RANGES]))
        .expect("clipped");
    for (n, largest) in [next, next + 1, next + (1 << 31), u32::MAX].into_iter().enumerate() {
        let mut net = established();
        let now = net.now;
        let end = net.end(1, 0);
        let heard = end.hear(now, Kind::Plain, 2000 + n as u64, &ack(largest, 0, &[]));
        assert!(heard.is_err_and(|why| why.contains("never sent")), "{largest}");
    }
}

#[test]
fn a_malformed_chunk_spoils_its_datagram_and_ends_the_connection() {
    let good = |pos: u64| stream(pos, &[9; 40]);
    let torn: [&[u8]; 8] = [
        &[11 + 100],
        &[4, 3],
        &[2, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        &[2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[1, 33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        &[9, 1],
        &[7, 1, 2, 3],
    ];
    for torn in torn {
        for behind in [false, true] {
            let mut net = established();
            let now = net.now;
            let end = net.end(1, 0);
            let before = (end.came.len(), end.connection.shared().counters, end.connection.heard_at());
            let close = chunk(&Chunk::Close(Ending::Orderly));
            let parts = [good(100), good(140), close, torn.to_vec()];
            let all = if behind { [torn, &parts[0]].concat() } else { parts.concat() };
            let heard = end.hear(now + S, Kind::Plain, 1000, &all);
            assert!(heard.is_err_and(|why| why.contains("malformed")), "{torn:?}");
            assert_eq!((end.came.len(), end.connection.shared().counters, end.connection.heard_at()), before);
            assert!(end.is_up(), "nothing of it counts");
        }
    }
}

#[test]
fn what_means_nothing_here_does_nothing() {
    let mut net = established();
    let now = net.now;
    let end = net.end(1, 0);
    let (came, salts, theirs) = (end.came.len(), *end.connection.salts(), end.connection.theirs());
    let hello = chunk(&Chunk::Hello { connection: 77, salt: [7; 16], window: 0 });
    let challenge = chunk(&Chunk::Challenge([1; 8]));
    for (n, content) in
        [hello, challenge, chunk(&Chunk::Response([2; 8])), vec![0; 1400], Vec::new()].iter().enumerate()
    {
        end.hear(now, Kind::Plain, 1000 + n as u64, content).expect("well-formed");
    }
    assert_eq!((end.came.len(), *end.connection.salts(), end.connection.theirs()), (came, salts, theirs));
    assert!(end.is_up());
}

#[test]
fn a_datagram_of_an_epoch_that_is_not_alive_is_none() {
    let mut net = established();
    let now = net.now;
    let end = net.end(1, 0);
    let before = (end.came.len(), end.connection.shared().counters, end.connection.heard_at());
    let header = polyrail_core::wire::datagram::Header {
        kind: Kind::Plain,
        generation: 0,
        epoch: 77,
        connection: end.connection.ours(),
        number: 1000,
    };
    let mut user = |_: &[u8]| panic!("it delivers");
    let all = [stream(100, &[1; 8]), ack(u32::MAX, 0, &[]), vec![0xff]].concat();
    let heard = end.connection.handle_datagram(now + S, (&header, 1000), &all, (100, false), &mut user);
    assert_eq!(heard, Ok(()));
    assert_eq!((end.came.len(), end.connection.shared().counters, end.connection.heard_at()), before);
}

/// Whether any of these, of one side and one connection, has the nonce of another.
fn repeats<'a>(all: impl Iterator<Item = &'a Packet>) -> Option<(u64, u32)> {
    let mut had = HashSet::new();
    let keyed = |packet: &&Packet| matches!(packet.header().kind, Kind::Plain | Kind::Sealed);
    all.filter(keyed).map(Packet::nonce).find(|nonce| !had.insert(*nonce))
}

#[test]
fn no_nonce_is_used_twice_whatever_changes() {
    for seed in 0..40 {
        let mut net = Net::new(seed);
        (net.loss, net.doubled, net.late) = (seed % 20, 10, 20);
        net.open(0, 1000);
        net.endpoints[1].welcome = 1000;
        net.until("it is open", 60 * S, |net| has_opened(net, 1000, 1000));
        for _ in 0..12 {
            for of in 0..2 {
                let (now, dice) = (net.now, net.dice.next() as usize);
                net.end(of, 0).give(20_000);
                if dice % 3 > 0 {
                    let to = Composition::ALL[dice / 3 % Composition::ALL.len()];
                    let _ = net.end(of, 0).connection.propose(now, to);
                }
            }
            net.run(300 * MS);
        }
        net.loss = 0;
        let all = 1000 + 12 * 20_000;
        net.until("it is all there", 60 * S, |net| (0..2).all(|of| net.end(of, 0).has_all(all)));
        assert!((0..2).all(|of| net.end(of, 0).broken.is_none()));
        let changed = net.recorded.iter().any(|(_, packet)| packet.header().epoch > 0);
        assert!(changed, "nothing has changed");
        for side in 0..2 {
            assert_eq!(
                repeats(net.recorded.iter().filter(|(from, _)| *from == side).map(|one| &one.1)),
                None
            );
        }
    }
}

#[test]
fn no_nonce_is_used_twice_by_who_is_asked_for_changes_that_are_withdrawn() {
    let mut net = established();
    let mut now = net.now;
    let end = net.end(1, 0);
    let (mut said, mut number) = (Vec::new(), 1000);
    for (order, epoch) in [(0, 2), (2, 4), (4, 6)] {
        // PREPARE; something that wants to be acknowledged; ABORT
        let words = [vec![1, epoch, 1, 0, Composition::SyncReno as u8], vec![6, epoch, 0, 0]];
        for (n, word) in words.iter().enumerate() {
            let word = chunk(&Chunk::Word { order: order + n as u16, bytes: word });
            end.hear(now, Kind::Plain, number, &word).expect("a word");
            number += 1;
            said.extend(end.poll(now));
            if n == 0 {
                end.hear_in(epoch, now, Kind::Plain, 0, &chunk(&Chunk::Ping)).expect("well-formed");
                end.hear_in(epoch, now, Kind::Plain, 1, &chunk(&Chunk::Ping)).expect("well-formed");
            }
            now += 10 * MS;
            end.connection.handle_timeout(now);
            said.extend(end.poll(now));
        }
    }
    assert!(said.iter().any(|packet| packet.header().epoch > 0), "it acknowledges");
    assert_eq!(repeats(said.iter()), None);
}

#[test]
fn a_second_answer_that_says_otherwise_is_none() {
    let mut client = Connection::open(S, 5, [1; 16], settings());
    assert!(client.answered(6, [2; 16], 1000));
    assert!(client.answered(6, [2; 16], 1000), "it comes again");
    assert!(!client.answered(7, [2; 16], 1000) && !client.answered(6, [3; 16], 1000));
    assert_eq!((client.theirs(), client.salts().1), (6, [2; 16]));
    let mut server = Connection::answer(S, (6, [2; 16]), (5, [1; 16], 1000), settings());
    assert!(!server.answered(9, [9; 16], 1), "nobody asked");
    assert_eq!((server.theirs(), server.state()), (5, State::Answering));
}

/// What a side keeps of pieces that have not their turn is in proportion to its window, however small they are.
#[test]
fn small_pieces_take_no_more_than_large_ones() {
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("proc is mounted");
        pages.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a number") * 4096
    };
    let mut net = established();
    let (now, holds) = (net.now, u64::from(settings().holds));
    let end = net.end(1, 0);
    let before = resident();
    let (mut number, mut pos) = (1000, 102);
    while pos + 200 < 100 + holds {
        let pieces = content(|to| {
            while to.room() > 13 && pos + 200 < 100 + holds {
                to.bytes(&stream(pos, &[1]));
                pos += 2;
            }
        });
        if end.hear(now, Kind::Plain, number, &pieces).is_err() {
            break;
        }
        number += 1;
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 * holds as usize, "{} KiB for {} KiB", grown >> 10, holds >> 10);
}
