//! The page's code is checked by what `page/data.d.ts` says of the figures in it: these must be the names that are really written.

#[path = "support/synthetic.rs"]
mod synthetic;

use polyrail_trace::model::*;
use polyrail_trace::report::{self, Options};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Interfaces by name: their fields and these' types.
fn declared() -> BTreeMap<&'static str, Vec<(&'static str, &'static str)>> {
    let text = include_str!("../src/report/page/data.d.ts");
    let field = |line: &'static str| line.trim().strip_suffix(';')?.split_once(": ");
    let interface = |block: &'static str| {
        let (name, rest) = block.split_once(" {").unwrap();
        (name, rest.split('}').next().unwrap().lines().filter_map(field).collect())
    };
    text.split("interface ").skip(1).map(interface).collect()
}

/// Compares a value with an interface, and what is in it; what could be compared is remembered.
fn compare(value: &Value, kind: &'static str, seen: &mut BTreeSet<&'static str>) {
    let all = declared();
    let (kind, many) = match kind.trim_end_matches(" | null") {
        kind if kind.ends_with("[]") => (kind.trim_end_matches("[]"), true),
        kind => (kind, false),
    };
    let Some(fields) = all.get(kind) else { return };
    if many {
        return value.as_array().unwrap().iter().take(3).for_each(|one| compare(one, kind, seen));
    }
    let Some(object) = value.as_object() else { return assert!(value.is_null(), "{kind} is {value}") };
    seen.insert(kind);
    let names: BTreeSet<&str> = fields.iter().map(|field| field.0).collect();
    assert_eq!(object.keys().map(String::as_str).collect::<BTreeSet<_>>(), names, "fields of {kind}");
    fields.iter().for_each(|(name, kind)| compare(&object[*name], kind, seen));
}

fn written(events: &dyn Events) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { parquet: false, perfetto: false, ..Options::default() };
    let other = report::figures(events, options.settings).unwrap();
    report::write(events, dir.path(), &options, Some(&other)).unwrap();
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script").next().unwrap();
    serde_json::from_str(data).unwrap()
}

/// A connect that is refused, a datagram that does not arrive, and a lane that ends.
fn failing() -> InMemory {
    let udp = |port: u16| Socket {
        kind: Kind::Udp,
        local: Some(([127, 0, 0, 1], port).into()),
        span: (0, 1_000),
        ..Socket::default()
    };
    let run = Run {
        span: (0, 1_000),
        processes: vec![Process::default()],
        threads: vec![Thread::default()],
        sockets: vec![udp(1), udp(2), Socket { kind: Kind::Tcp, ..Socket::default() }],
        rails: vec![RailEvent { event: "lane_down".into(), lane: Some(1), ..RailEvent::default() }],
        ..Run::default()
    };
    let call = |call, start, socket, result: i32, to: u16| {
        Event::Call(CallEvent {
            thread: 0,
            call,
            start,
            took: 10,
            inside: 10,
            calls: 1,
            socket: Some(socket),
            result,
            bytes: result.max(0) as u32,
            asked: 10,
            to: Some(([127, 0, 0, 1], to).into()),
            in_mpi: false,
            peeked: false,
        })
    };
    let events = vec![
        call(Call::Connect, 0, 2, -111, 80),
        call(Call::SendTo, 100, 0, 10, 2),
        call(Call::SendTo, 200, 0, 10, 2),
        call(Call::RecvFrom, 300, 1, 10, 1),
    ];
    InMemory { run, events }
}

#[test]
fn the_page_is_told_the_names_that_are_written() {
    let mut seen = BTreeSet::new();
    compare(&written(&synthetic::Synthetic::new(4, 50)), "Data", &mut seen);
    compare(&written(&failing()), "Data", &mut seen);
    let all: BTreeSet<_> = declared().into_keys().collect();
    assert_eq!(seen, all, "each is in one of the runs");
}
