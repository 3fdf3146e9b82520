//! Polyrail's own rails: what shared memory carries, and which sockets are lanes. Two processes of the example `latency`, which sends from one
//! to the other and back.

use std::path::PathBuf;

use polyrail_testing::built;
use polyrail_trace::analysis::lanes::Lanes;
use polyrail_trace::analysis::{Analysis, Analyst, Settings};
use polyrail_trace::model::{Call, Event, Events, Kind};

use crate::support::{Traced, trace_with};

/// Messages one way and the other of so many bytes, and without any (of the other way), as the example sends them.
fn messages(bytes: u64) -> ((u64, u64), u64) {
    let rounds = 200_000 / (1 + bytes / 1000);
    let windows = rounds / 64 + 1;
    let there_and_back = rounds + rounds / 10;
    ((there_and_back + windows * 64, there_and_back), windows)
}

fn example() -> PathBuf {
    built("-p polyrail-rails --example latency").join("examples/latency")
}

fn run(options: &[&str], bytes: u64, rail: &str) -> Traced {
    let options = [&["--no-kernel"], options].concat();
    let example = example();
    let words = [example.to_str().unwrap(), &bytes.to_string()];
    let traced = trace_with(&options, &words, |command| {
        command.env("POLYRAIL_RAILS", rail).env("POLYRAIL_INTERFACES", "lo");
    });
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert!(traced.stdout.contains(rail), "{}", traced.stdout);
    traced
}

fn analysis(traced: &Traced) -> Analysis {
    let mut analyst = Analyst::new(traced.recorded.run(), Settings::default());
    traced.recorded.for_each(&mut |event| analyst.event(event)).unwrap();
    analyst.finish()
}

/// Eager messages and, where the kernel lets one process read another's memory, long ones: each byte once, each message its own.
#[test]
fn shared_memory_is_a_connection() {
    for bytes in [12_000, 100_000] {
        let traced = run(&[], bytes, "shm");
        let (run, analysis) = (traced.recorded.run(), analysis(&traced));
        let links: Vec<_> =
            analysis.connections(run).into_iter().filter(|one| one.kind == Kind::Memory).collect();
        assert_eq!(links.len(), 1, "both ends of it are one");
        let both = [links[0].there.flow, links[0].back.flow];
        let ((there, back), empty) = messages(bytes);
        let mut moved = both.map(|flow| flow.bytes);
        moved.sort_unstable();
        assert_eq!(moved, [back * bytes, there * bytes]);
        if bytes == 12_000 {
            let mut told = both.map(|flow| flow.messages);
            told.sort_unstable();
            let mut sent = [back + empty, there];
            sent.sort_unstable();
            assert_eq!(told, sent);
        }
        let processes: u64 = analysis.processes.iter().map(|process| process.bytes.0).sum();
        let received: u64 = analysis.processes.iter().map(|process| process.bytes.1).sum();
        assert!(processes == received && received > (there + back) * bytes, "{processes} and {received}");
        let up = run.rails.iter().filter(|event| event.event == "peer_up");
        let up: Vec<_> = up.filter(|event| event.rail.as_deref() == Some("shm")).collect();
        assert_eq!((up.len(), &up[0].endpoint, &up[0].peer), (2, &up[1].peer, &up[1].endpoint));
    }
}

#[test]
fn sockets_of_lanes_have_their_numbers() {
    let traced = run(&[], 20_000, "tcp");
    let (run, analysis) = (traced.recorded.run(), analysis(&traced));
    let lanes = Lanes::new(run);
    let carried: u64 = (0..run.sockets.len() as u32)
        .filter(|socket| lanes.of(*socket).is_some())
        .map(|socket| analysis.sockets[socket as usize].sent.bytes)
        .sum();
    let ((there, back), _) = messages(20_000);
    assert!(carried > (there + back) * 20_000, "{carried}: with headers");
    let place = tempfile::tempdir().unwrap();
    let text =
        polyrail_trace::report::write(&traced.recorded, place.path(), &Default::default(), None).unwrap();
    assert!(text.to_string().contains("  lane 0 by lo latency ("), "{text}");
}

/// Calls of shared memory are chosen like others, and connections that are chosen by port are of the network.
#[test]
fn what_of_it_is_recorded_is_chosen() {
    let calls = |options: &[&str]| {
        let traced = run(options, 100_000, "shm");
        let mut found = std::collections::BTreeSet::new();
        let each = &mut |event: &Event| {
            if let Event::Call(call) = event
                && Call::SHARED.contains(&call.call)
            {
                found.insert(call.call.name());
            }
        };
        traced.recorded.for_each(each).unwrap();
        found
    };
    assert_eq!(calls(&["--call", "shm_take"]).into_iter().collect::<Vec<_>>(), ["shm_take"]);
    assert!(calls(&["--port", "1"]).is_empty());
}
