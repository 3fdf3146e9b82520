//! What inet_diag says of real connections, beside what `ss` says. Loopback only; no root.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use polyrail_trace::diag::{Diag, Found, Sample, Wanted};

const LONG: Duration = Duration::from_secs(10);

fn connect(listen: &str, to: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(listen).expect("a free port");
    let mut target: SocketAddr = to.parse().expect("an address");
    target.set_port(listener.local_addr().unwrap().port());
    let client = TcpStream::connect(target).expect("somebody listens");
    (client, listener.accept().expect("a connection").0)
}

/// The connection of this socket, as a dump finds it. The kernel goes on by position between two datagrams, so that a dump may pass one by while others close.
fn found(diag: &mut Diag, stream: &TcpStream) -> Found {
    let (local, remote) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    let same =
        |a: SocketAddr, b: SocketAddr| a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical();
    let (begun, mut found) = (Instant::now(), None);
    while found.is_none() && begun.elapsed() < LONG {
        diag.dump(&mut |each| {
            if same(each.wanted.local, local) && same(each.wanted.remote, remote) {
                found = Some(each);
            }
        })
        .expect("a dump");
    }
    found.expect("the connection is open")
}

fn one(diag: &mut Diag, wanted: Wanted) -> Option<Sample> {
    let mut samples = Vec::new();
    assert_eq!(diag.sample(&[wanted], LONG, &mut samples).expect("an answer"), 1);
    samples.pop()
}

#[test]
fn connections_of_both_families_are_found_by_all_their_names() {
    let mut diag = Diag::open().expect("inet_diag");
    for (listen, to) in [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0"), ("[::]:0", "127.0.0.1:0")] {
        let ends = connect(listen, to);
        for stream in [&ends.0, &ends.1] {
            let Found { wanted, inode, .. } = found(&mut diag, stream);
            assert_ne!((wanted.cookie, inode), (0, 0));
            // as the program names it, mapped or not
            let (local, remote) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            let sample = one(&mut diag, Wanted { cookie: wanted.cookie, local, remote });
            assert_eq!(sample.map(|s| (s.cookie, s.tcp.state)), Some((wanted.cookie, 1)), "{listen}");
            // another socket between the same addresses is not this one
            assert_eq!(one(&mut diag, Wanted { cookie: wanted.cookie + 1, local, remote }), None);
            assert_eq!(diag.gone(), [wanted.cookie + 1]);
        }
    }
}

#[test]
fn a_closed_connection_is_gone_and_the_others_are_still_seen() {
    let mut diag = Diag::open().expect("inet_diag");
    let ends: Vec<_> = (0..100).map(|_| connect("127.0.0.1:0", "127.0.0.1:0")).collect();
    let wanted: Vec<Wanted> = ends.iter().map(|(client, _)| found(&mut diag, client).wanted).collect();
    let kept: Vec<_> = ends.into_iter().enumerate().filter(|(at, _)| at % 3 != 0).collect();
    // The server's end is closed first or last; either way nobody holds the client's end any more, and it lingers without
    // its cookie (TIME_WAIT) or not at all, once the last of its segments has arrived.
    let begin = Instant::now();
    loop {
        let mut samples = Vec::new();
        assert_eq!(diag.sample(&wanted, LONG, &mut samples).unwrap(), 100);
        if samples.len() == kept.len() {
            let cookies: Vec<u64> = samples.iter().map(|sample| sample.cookie).collect();
            assert_eq!(cookies, kept.iter().map(|(at, _)| wanted[*at].cookie).collect::<Vec<_>>());
            assert_eq!(diag.gone().len(), 34);
            break;
        }
        assert!(begin.elapsed() < LONG, "{} of {} seen", samples.len(), kept.len());
    }
    let mut samples = Vec::new();
    assert_eq!(diag.sample(&wanted, Duration::ZERO, &mut samples).unwrap(), 32, "one batch fits any time");
}

/// What `ss` prints of a connection, as its words: `key:value`, or `key value` for rates.
fn ss(found: &Found) -> HashMap<String, String> {
    let Wanted { local, remote, .. } = found.wanted;
    let output =
        Command::new("ss").args(["-tmieHOn", "src", &local.to_string(), "dst", &remote.to_string()]).output();
    let text = String::from_utf8(output.expect("ss of iproute2").stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let words: Vec<&str> = text.split_whitespace().chain([""]).collect();
    let mut said: HashMap<String, String> = HashMap::from([("line".into(), text.clone())]);
    for pair in words.windows(2) {
        match pair[0].split_once(':') {
            Some((key, value)) => said.insert(key.into(), value.into()),
            None => said.insert(pair[0].into(), pair[1].into()),
        };
    }
    said
}

#[test]
fn every_field_is_what_ss_prints() {
    if Command::new("ss").arg("-V").output().is_err() {
        return polyrail_testing::lacking("ss (Debian: iproute2)");
    }
    let mut diag = Diag::open().expect("inet_diag");
    let (mut client, mut server) = connect("127.0.0.1:0", "127.0.0.1:0");
    // Something in every counter that loopback can move: data both ways, then a full pipe, so that there are unacknowledged
    // and unsent bytes and a limit to wait for.
    let mut bytes = vec![7; 1 << 20];
    for _ in 0..5 {
        client.write_all(&bytes[..10_000]).unwrap();
        server.read_exact(&mut bytes[..10_000]).unwrap();
        server.write_all(&bytes[..777]).unwrap();
        client.read_exact(&mut bytes[..777]).unwrap();
    }
    client.set_nonblocking(true).unwrap();
    while client.write(&bytes).is_ok() {}
    let found = found(&mut diag, &client);
    // Both looks must be of one state: window probes and timers move it now and then.
    for attempt in 0..50 {
        let before = one(&mut diag, found.wanted).unwrap().tcp;
        let said = ss(&found);
        let after = one(&mut diag, found.wanted).unwrap().tcp;
        let frozen = |t: &polyrail_trace::model::TcpSample| {
            let mut t = *t;
            (t.at, t.last_sent, t.busy_time, t.rwnd_limited, t.sndbuf_limited) = (0, 0, 0, 0, 0);
            t
        };
        if frozen(&before) != frozen(&after) {
            assert!(attempt < 49, "never quiet: {before:?} {after:?}");
            continue;
        }
        let line = said["line"].clone();
        let text = |key: &str| said.get(key).map(String::as_str).unwrap_or_default();
        let digits = |word: &str| {
            word.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
        };
        let number = |key: &str| -> u64 { digits(text(key)) };
        // ss prints no key for what is 0.
        let exact: [(&str, u64); 12] = [
            ("cwnd", after.cwnd.into()),
            ("mss", after.mss.into()),
            ("unacked", after.unacked.into()),
            ("sacked", after.sacked.into()),
            ("lost", after.lost.into()),
            ("bytes_sent", after.bytes_sent),
            ("bytes_retrans", after.bytes_retrans),
            ("bytes_acked", after.bytes_acked),
            ("bytes_received", after.bytes_received),
            ("dsack_dups", after.dsack_dups.into()),
            ("reord_seen", after.reord_seen.into()),
            ("notsent", after.notsent.into()),
        ];
        for (key, value) in exact {
            assert_eq!(number(key), value, "{key} in {line}");
        }
        assert!(
            line.split_whitespace()
                .any(|word| word.as_bytes() == after.congestion.split(|b| *b == 0).next().unwrap())
        );
        let ssthresh = if after.ssthresh == 0x7fff_ffff { 0 } else { after.ssthresh.into() };
        assert_eq!(number("ssthresh"), ssthresh);
        // in milliseconds with at most three places
        let micros = |word: &str| (word.parse::<f64>().unwrap_or(0.0) * 1000.0).round() as u32;
        assert!(micros(text("rto")).abs_diff(after.rto) < 1000, "rto {} in {line}", after.rto);
        let (rtt, variance) = text("rtt").split_once('/').expect("rtt:a/b");
        assert_eq!((micros(rtt), micros(variance)), (after.rtt, after.rtt_var), "rtt in {line}");
        assert_eq!(micros(text("minrtt")), after.min_rtt, "minrtt in {line}");
        let (retrans, total) = text("retrans").split_once('/').unwrap_or(("0", "0"));
        assert_eq!((digits(retrans), digits(total)), (after.retrans.into(), after.total_retrans.into()));
        // bits a second, printed in full
        let close = |a: u64, b: u64| a.abs_diff(b) <= 8;
        assert!(close(number("delivery_rate"), after.delivery_rate * 8), "{} in {line}", after.delivery_rate);
        assert!(close(number("pacing_rate"), after.pacing_rate * 8), "{} in {line}", after.pacing_rate);
        // in milliseconds, and they run
        for (key, low, high) in [
            ("busy", before.busy_time, after.busy_time),
            ("rwnd_limited", before.rwnd_limited, after.rwnd_limited),
            ("sndbuf_limited", before.sndbuf_limited, after.sndbuf_limited),
        ] {
            assert!((low / 1000..=high / 1000 + 1).contains(&number(key)), "{key} {low} {high} in {line}");
        }
        assert!((before.last_sent.into()..=u64::from(after.last_sent)).contains(&number("lastsnd")));
        // skmem:(r0,rb131072,t0,tb2626560,f0,w0,...)
        let memory = |name: &str| {
            let words = text("skmem").trim_matches(['(', ')']).split(',');
            words.filter_map(|w| w.strip_prefix(name)).find_map(|w| w.parse::<u32>().ok()).unwrap_or(0)
        };
        assert_eq!(memory("tb").saturating_sub(memory("w")), after.send_free, "{line}");
        if said.contains_key("snd_wnd") {
            assert_eq!(number("snd_wnd"), u64::from(after.snd_wnd));
        }
        let cookie = u64::from_str_radix(text("sk"), 16).expect("a hexadecimal cookie");
        assert_eq!((cookie, number("ino")), (found.wanted.cookie, found.inode.into()));
        assert!(
            after.notsent > 0 && after.bytes_acked > 50_000 && after.bytes_received == 5 * 777,
            "{after:?}"
        );
        return;
    }
}

/// `cargo test --release -p polyrail-trace --test diag -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn what_a_sample_costs() {
    let mut diag = Diag::open().expect("inet_diag");
    let ends: Vec<_> = (0..500).map(|_| connect("127.0.0.1:0", "127.0.0.1:0")).collect();
    let mut wanted = Vec::new();
    let begin = Instant::now();
    diag.dump(&mut |found| wanted.push(found.wanted)).unwrap();
    println!("dump of {} connections: {:?}", wanted.len(), begin.elapsed());
    for count in [1, 10, 100, 1000] {
        let some = &wanted[..count];
        let mut samples = Vec::with_capacity(2000);
        let rounds = 20_000 / count.max(10);
        let begin = Instant::now();
        for _ in 0..rounds {
            samples.clear();
            diag.sample(some, LONG, &mut samples).unwrap();
            assert_eq!(samples.len(), count);
        }
        let each = begin.elapsed() / (rounds * count) as u32;
        println!(
            "{count} connections: {each:?} a sample, under 1 % of a core every {:?}",
            each * count as u32 * 100
        );
    }
    drop(ends);
}
