//! Broadcasts over a network that loses, delays and reorders datagrams: all hosts get all, whatever it does; and the bytes that are spoken.

use std::collections::BTreeMap;

use polyrail_core::coll::cast::{
    ANSWER, Announcement, Answer, Head, RANGES, Receiver, Sender, WORD, Window, Word,
};
use proptest::prelude::*;

/// A network, by what it does to datagrams.
#[derive(Clone, Copy, Debug)]
struct Net {
    /// Of 1000 that a host should hear.
    lost: u64,
    /// The first host hears nothing.
    one_is_deaf: bool,
    /// Of 1000: more that come twice.
    twice: u64,
    /// Chunks by which they overtake each other.
    overtake: u32,
    /// Nanoseconds from the root to a host, the same back, and how much that varies for messages.
    delay: u64,
    varies: u64,
    /// Nanoseconds of a chunk at the root.
    each: u64,
}

/// For how long the root waits until it says what it has sent.
const PATIENCE: u64 = 5_000_000;

#[derive(Clone)]
enum Event {
    Chunk(u32),
    Answer(Answer),
    Word(Word),
}

struct Seen {
    /// What the root sent to single hosts.
    again: u64,
    /// The most that the root was ahead of a host.
    ahead: u32,
    lost: f64,
    time: u64,
    /// What the next one begins with.
    window: u32,
}

/// A broadcast from the first to the last word. Events are by time, then in the order in which they were made.
fn run(chunks: u32, window: u32, hosts: usize, net: Net, seed: u64) -> Seen {
    let mut random = seed;
    let mut below = move |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most.max(1)
    };
    let window = Window::new(window);
    let mut root = Sender::new(chunks, window, hosts);
    let mut receivers: Vec<_> =
        (0..hosts).map(|_| Receiver::new(chunks, window.each(), net.overtake)).collect();
    let mut has = vec![vec![0_u32; chunks as usize]; hosts];
    let mut events: BTreeMap<(u64, u64), (usize, Event)> = BTreeMap::new();
    let (mut made, mut now, mut free, mut told, mut spoken) = (0, 0, 0, 0, 0);
    let mut seen = Seen { again: 0, ahead: 0, lost: 0.0, time: 0, window: 0 };
    // messages of a pair do not overtake each other
    let mut last = vec![[0_u64; 2]; hosts];
    let mut heard = vec![0; hosts];
    while !(root.is_over() && receivers.iter().all(Receiver::is_over)) {
        assert!(now < 60_000_000_000, "{chunks} {window:?} {hosts} {net:?} {seed}: it does not end");
        let mut post = |host: usize, way: usize, at: u64, event: Event| {
            let at = if matches!(event, Event::Chunk(_)) { at } else { at.max(last[host][way] + 1) };
            if !matches!(event, Event::Chunk(_)) {
                last[host][way] = at;
            }
            made += 1;
            events.insert((at, made), (host, event));
        };
        if root.is_deaf() {
            root.give_up();
        }
        while now >= free && !root.may_send().is_empty() {
            let chunk = root.may_send().start;
            root.sent(1);
            free = now + net.each;
            let least = heard.iter().min().copied().unwrap_or(0);
            seen.ahead = seen.ahead.max((chunk + 1).saturating_sub(least));
            for host in 0..hosts {
                let mut copies = u64::from(below(1000) >= net.lost) + u64::from(below(1000) < net.twice);
                if net.one_is_deaf && host == 0 {
                    copies = 0;
                }
                for _ in 0..copies {
                    let late = below(u64::from(net.overtake) + 1) * net.each;
                    post(host, 0, now + net.delay + late, Event::Chunk(chunk));
                }
            }
        }
        let sent = root.may_send().start;
        // it says so when it has sent all, and when it may send no more for a while
        let waits = root.may_send().is_empty() && now >= free.max(spoken) + PATIENCE;
        if told < sent && (root.is_all_sent() || waits) {
            told = sent;
            (0..hosts).for_each(|host| post(host, 0, now + net.delay, Event::Answer(Answer::Sent(sent))));
        }
        let due: Vec<_> = events.range(..=(now, u64::MAX)).map(|(at, _)| *at).collect();
        for at in due {
            let Some((host, event)) = events.remove(&at) else { continue };
            let mut reply = Vec::new();
            match event {
                Event::Chunk(chunk) => {
                    let new = receivers[host].came(chunk..chunk + 1);
                    has[host][chunk as usize] += u32::from(new);
                }
                Event::Answer(Answer::Sent(sent)) => receivers[host].sent(sent),
                Event::Answer(Answer::Chunks(range, last)) => {
                    let missing: Vec<_> = range.clone().filter(|n| has[host][*n as usize] == 0).collect();
                    if !range.is_empty() {
                        receivers[host].came(range);
                    }
                    missing.iter().for_each(|n| has[host][*n as usize] = 1);
                    assert!(!last || receivers[host].answered());
                }
                Event::Word(word) => {
                    spoken = now;
                    if let Word::Heard(high) | Word::Lacks(high, _) = &word {
                        heard[host] = heard[host].max(*high);
                    }
                    if let Word::Lacks(_, lacks) = &word {
                        assert!(lacks.len() <= RANGES);
                        heard[host] = heard[host].max(lacks.last().map_or(0, |last| last.end));
                    }
                    if word == Word::Has {
                        heard[host] = u32::MAX;
                    }
                    if let Some(again) = root.heard(host, &word) {
                        seen.again +=
                            again.iter().map(|range| u64::from(range.end - range.start)).sum::<u64>();
                        reply.extend(again.into_iter().map(|range| Answer::Chunks(range, false)));
                        reply.push(Answer::Chunks(0..0, true));
                    }
                }
            }
            for answer in reply {
                let at = now + net.delay + below(net.varies);
                let at = at.max(last[host][0] + 1);
                last[host][0] = at;
                made += 1;
                events.insert((at, made), (host, Event::Answer(answer)));
            }
        }
        for host in 0..hosts {
            let drained = below(4) > 0;
            while let Some(word) = receivers[host].word(drained) {
                let at = (now + net.delay + below(net.varies)).max(last[host][1] + 1);
                last[host][1] = at;
                made += 1;
                events.insert((at, made), (host, Event::Word(word)));
            }
        }
        now += net.each.max(1000);
    }
    assert!(has.iter().flatten().all(|times| *times == 1), "{net:?} {seed}: some were new twice, or never");
    assert!(events.values().all(|(_, event)| matches!(event, Event::Chunk(_))), "a message is left over");
    (seen.lost, seen.window) = (root.lost(), root.window().chunks());
    seen.time = now;
    seen
}

const CLEAN: Net =
    Net { lost: 0, one_is_deaf: false, twice: 0, overtake: 0, delay: 50_000, varies: 20_000, each: 11_600 };

#[test]
fn what_nothing_is_lost_of_is_sent_once() {
    for (chunks, window, hosts) in [(1, 1, 1), (1, 100, 7), (724, 180, 7), (724, 16, 3), (5000, 700, 63)] {
        for overtake in [0, 3, 44] {
            let seen = run(chunks, window, hosts, Net { overtake, ..CLEAN }, u64::from(chunks + overtake));
            // the last ones may be overtaken by the word that all were sent
            let late = u64::from(overtake) * hosts as u64;
            assert!(seen.again <= late, "{}: {chunks} {window} {hosts} {overtake}", seen.again);
            assert!(seen.ahead <= window, "{} of {window}", seen.ahead);
            assert!(chunks < 5000 || overtake > 0 || seen.window == window, "it grows: {}", seen.window);
        }
    }
}

#[test]
fn what_is_lost_comes_alone_and_soon() {
    let ideal = 724 * CLEAN.each;
    for seed in 0..20 {
        let seen = run(724, 400, 7, Net { lost: 10, ..CLEAN }, seed);
        // 1 % of 7 times 724
        assert!((20..=100).contains(&seen.again), "{}", seen.again);
        assert!(seen.time < 2 * ideal, "{} of {ideal}", seen.time);
        assert!(seen.lost > 0.003 && seen.lost < 0.04);
        assert!(seen.window < 400, "it shrinks: {}", seen.window);
    }
}

#[test]
fn a_network_without_multicast_costs_time_only() {
    for hosts in [1, 7] {
        for chunks in [1, 3, 724] {
            let seen = run(chunks, 100, hosts, Net { lost: 1000, ..CLEAN }, 7);
            assert_eq!(seen.again, u64::from(chunks) * hosts as u64);
            assert!(seen.lost == 1.0 && seen.ahead <= 100);
        }
        // it is not sent to nobody, window by window
        let seen = run(100_000, 400, hosts, Net { lost: 1000, ..CLEAN }, 7);
        assert!(seen.time < 100_000_000, "{}", seen.time);
        let some = run(724, 100, hosts, Net { lost: 600, ..CLEAN }, 7).again;
        assert!(some < 724 * hosts as u64, "{some}");
    }
}

#[test]
fn one_host_that_hears_nothing_holds_up_nobody() {
    let ideal = 20_000 * CLEAN.each;
    let seen = run(20_000, 400, 7, Net { one_is_deaf: true, ..CLEAN }, 7);
    assert_eq!((seen.again, seen.lost), (20_000, 1.0));
    assert!(seen.time < 2 * ideal, "{} of {ideal}", seen.time);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn all_hosts_get_all(
        (chunks, window, hosts) in (1_u32..600, 1_u32..200, 1_usize..9),
        (lost, twice, overtake) in (0_u64..=1000, 0_u64..300, 0_u32..50),
        (delay, varies, each) in (0_u64..20_000_000, 0_u64..2_000_000, 0_u64..100_000),
        (seed, one_is_deaf) in any::<(u64, bool)>(),
    ) {
        let seen = run(chunks, window, hosts, Net { lost, one_is_deaf, twice, overtake, delay, varies, each }, seed);
        prop_assert!(seen.ahead <= window || one_is_deaf);
        prop_assert!(seen.again <= u64::from(chunks) * hosts as u64);
    }

    #[test]
    fn any_words_do_no_harm(
        words in prop::collection::vec(
            (0_usize..3, 0_u8..3, any::<u32>(), prop::collection::vec((0_u32..300, 1_u32..300), 1..5)),
            1..50,
        ),
        chunks in 1_u32..200,
    ) {
        let mut root = Sender::new(chunks, Window::new(20), 3);
        let mut alone = 0;
        for (host, kind, high, ranges) in words {
            let may = root.may_send();
            prop_assert!(may.start <= may.end && may.end <= chunks);
            root.sent(may.end - may.start);
            let lacks = ranges.iter().map(|(start, len)| *start..start + len).collect();
            let word = [Word::Heard(high), Word::Lacks(high, lacks), Word::Has][usize::from(kind)].clone();
            for range in root.heard(host, &word).into_iter().flatten() {
                prop_assert!(range.start < range.end && range.end <= chunks);
                alone += range.end - range.start;
            }
        }
        prop_assert!(alone <= 3 * chunks);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600), version: bool) {
        let mut bytes = bytes;
        if let (Some(first), true) = (bytes.first_mut(), version) {
            *first = 1;
        }
        if let Some((operation, word)) = Word::parse(&bytes) {
            prop_assert_eq!(word.to_bytes(operation), bytes.clone());
        }
        if let Some((operation, answer, rest)) = Answer::parse(&bytes) {
            prop_assert_eq!(&answer.to_bytes(operation)[..], &bytes[..ANSWER]);
            prop_assert_eq!(rest.len(), bytes.len() - ANSWER);
        }
        if let Some(head) = Head::parse(&bytes) {
            prop_assert_eq!(&head.to_bytes()[..], &bytes[..16]);
        }
        if let Some(announced) = Announcement::parse(&bytes) {
            prop_assert_eq!(&announced.to_bytes()[..], &bytes[..]);
        }
    }
}

#[test]
fn words_are_their_bytes() {
    let page = include_str!("../../../../docs/wire-multicast.md");
    let lacks = Word::Lacks(9, vec![2..3, 5..0x0102]);
    let announced = Announcement { cast: true, each: 16, operation: 7, bytes: 0x10_0000 };
    let golden: [(&str, Vec<u8>); 8] = [
        (
            "01000000070000000302000005000000",
            Head { operation: 7, chunk: 0x203, rank: 5 }.to_bytes().to_vec(),
        ),
        ("0101100007000000000010000000000000000000000000", announced.to_bytes().to_vec()),
        ("01010000070000000900000000000000", Word::Heard(9).to_bytes(7)),
        ("0102020007000000090000000000000002000000030000000500000002010000", lacks.to_bytes(7)),
        ("01030000070000000000000000000000", Word::Has.to_bytes(7)),
        ("01040000070000000500000000000000", Word::Refuses(5).to_bytes(7)),
        ("01020000070000000200000003000000", Answer::Chunks(2..3, true).to_bytes(7).to_vec()),
        ("01030000070000000000000009000000", Answer::Sent(9).to_bytes(7).to_vec()),
    ];
    for (text, bytes) in golden {
        assert_eq!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), text);
        assert!(page.contains(text), "docs/wire-multicast.md lacks {text}");
    }
    let longest = Word::Lacks(0, (0..RANGES as u32).map(|n| 2 * n..2 * n + 1).collect()).to_bytes(1);
    assert_eq!(longest.len(), WORD);
    assert!(Word::parse(&longest).is_some());
}
