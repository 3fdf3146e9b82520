//! `polyrail top` as a whole, and the log, on a running pair of endpoints.

use polyrail_core::micro::Composition;
use polyrail_rails::list::{RailId, RailSet, Reach};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use polyrail_rails::events::{LogTo, Record};
use polyrail_rails::mailbox::Mailbox;
use polyrail_rails::{Address, Config};
use serde_json::Value;
use tempfile::TempDir;

fn top(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrail"));
    command.arg("top").args(words.split_whitespace()).output().expect("it starts")
}

/// The first eight digits of a mailbox's identity.
fn short(mailbox: &Mailbox) -> String {
    let address = Address::parse(&mailbox.worker().address()).expect("an address");
    address.id().to_string()[..8].to_owned()
}

/// Runs `body` while two endpoints, joined by TCP, talk to each other; it is given their names.
fn beside_a_pair<T: Send>(log: Option<LogTo>, body: impl FnOnce(&str, &str) -> T + Send) -> T {
    let rails = RailSet::ALL.without(Reach::Host);
    beside_such_a_pair(Config { rails, log, ..Config::default() }, body)
}

/// The same, with these settings.
fn beside_such_a_pair<T: Send>(config: Config, body: impl FnOnce(&str, &str) -> T + Send) -> T {
    // what is shown of this process is of this pair
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let [mut a, mut b] = [0, 1].map(|_| Mailbox::open(config.clone()).expect("an endpoint"));
    let (here, there) = (short(&a), short(&b));
    let to = a.peer(&b.worker().address()).expect("an address");
    while !a.worker().is_connected(to) {
        let _ = a.send_active(to, 1, b"hello");
        a.progress();
        b.progress();
    }
    let over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        let body = scope.spawn(|| {
            let result = body(&here, &there);
            over.store(true, Ordering::Release);
            result
        });
        while !over.load(Ordering::Acquire) && !body.is_finished() {
            let _ = a.send_active(to, 1, &[1; 4000]);
            a.progress();
            b.progress();
        }
        body.join().expect("no panic")
    });
    drop(b);
    while a.worker().is_connected(to) {
        a.progress();
    }
    result
}

#[test]
fn objects_of_a_running_pair() {
    beside_a_pair(None, |here, there| {
        let output = top(&format!("--once --json --pid {}", std::process::id()));
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let find =
            |name: &str| all.iter().find(|one| one["endpoint"] == name).unwrap_or_else(|| panic!("{text}"));
        let (one, other) = (find(here), find(there));
        assert_eq!((&one["v"], &one["state"]), (&1.into(), &"answers".into()));
        assert_eq!(one["pid"], std::process::id());
        let (peer, back) = (&one["peers"][0], &other["peers"][0]);
        assert_eq!((&peer["id"], &back["id"]), (&there.into(), &here.into()));
        assert_eq!((&peer["rail"], &peer["protocols"][0]["name"]), (&"tcp".into(), &"eager".into()));
        let (lane, other_end) = (&peer["lanes"][0], &back["lanes"][0]);
        assert!(lane["sent_bytes"].as_u64().unwrap() > 4000, "{lane}");
        assert!(other_end["received_bytes"].as_u64().unwrap() > 4000, "{other_end}");
        assert!(lane["rtt_us"].as_u64().unwrap() > 0, "{lane}");
        assert_eq!((&lane["near"], &lane["far"]), (&other_end["far"], &other_end["near"]));
        assert_eq!(one["events"][0]["event"], "peer_up");
        assert_eq!(one["events"][1]["event"], "lane_up");
    });
}

#[test]
fn a_table_of_a_running_pair() {
    beside_a_pair(None, |here, there| {
        // other tests' endpoints have events, too, of which only the last are shown
        let output = top(&format!("--once -p 1,{}", std::process::id()));
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().next().unwrap().contains("OUT MB/s"), "{text}");
        for peer in [here, there] {
            let row = text.lines().find(|line| line.contains(peer)).unwrap_or_else(|| panic!("{text}"));
            assert!(row.contains("to 64K eager, above fragments"), "{row}");
        }
        let pids: Vec<u32> =
            text.lines().skip(1).map_while(|line| line.split_whitespace().next()?.parse().ok()).collect();
        assert!(pids.iter().all(|pid| *pid == std::process::id()), "{text}");
        assert!(text.contains("lane_up lane 0") && text.contains("it began the session"), "{text}");
    });
}

/// By UDP what the user wants is shown, and that he does; by TCP what the kernel has.
#[test]
fn what_a_lane_is_made_of_is_shown() {
    let composition = Composition::of_name("sync-illinois");
    let rails = RailSet::NONE.with(RailId::Udp);
    let config = Config { rails, composition, ..Config::default() };
    beside_such_a_pair(config, |here, there| {
        let output = top(&format!("--once --pid {}", std::process::id()));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().next().unwrap().contains("CONTROL"), "{text}");
        for peer in [here, there] {
            let row = text.lines().find(|line| line.contains(peer)).unwrap_or_else(|| panic!("{text}"));
            assert!(row.contains(" udp ") && row.ends_with("sync-illinois: the user wants it"), "{row}");
        }
    });
    beside_a_pair(None, |here, _| {
        let output = top(&format!("--once --json --pid {}", std::process::id()));
        let text = String::from_utf8(output.stdout).unwrap();
        let all = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
        let one = all.into_iter().find(|one| one["endpoint"] == here).unwrap_or_else(|| panic!("{text}"));
        let lane = &one["peers"][0]["lanes"][0];
        assert_eq!(lane["rail"], "tcp");
        assert!(lane["congestion_control"].is_string() && lane["composition"].is_null(), "{lane}");
    });
}

#[test]
fn what_is_no_terminal_is_told_of_the_table() {
    let output = top("");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("--once"), "{text}");
}

#[test]
fn a_log_that_two_endpoints_share() {
    let dir = TempDir::new().unwrap();
    let pattern = format!("{}/%p.log:debug", dir.path().display());
    let names = beside_a_pair(Some(LogTo::parse(&pattern).unwrap()), |here, there| {
        (here.to_owned(), there.to_owned())
    });
    let path = dir.path().join(format!("{}.log", std::process::id()));
    let text = std::fs::read_to_string(path).unwrap();
    let all: Vec<Record> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for (one, other) in [(&names.0, &names.1), (&names.1, &names.0)] {
        let told: Vec<&str> = all
            .iter()
            .filter(|record| (&record.endpoint, &record.peer) == (one, other))
            .map(|record| record.event.name())
            .collect();
        assert_eq!(told[..2], ["peer_up", "lane_up"], "{text}");
    }
    // the one that was closed last has heard of the other's end
    let gone =
        all.iter().find(|record| record.event.name() == "peer_gone").unwrap_or_else(|| panic!("{text}"));
    assert_eq!((&gone.endpoint, gone.why.as_str()), (&names.0, "it has closed its endpoint"));
    assert!(
        all.iter().all(|record| record.v == 1 && !record.why.is_empty() && record.time.ends_with('Z')),
        "{text}"
    );
}
