use super::*;

fn example() -> Record {
    let side = |interface: &str, address: &str| {
        Some(Side { interface: Some(interface.into()), address: address.into() })
    };
    Record {
        v: VERSION,
        time: "2026-11-21T18:00:00.000250Z".into(),
        pid: 4711,
        host: "node1".into(),
        endpoint: "0a1b2c3d".into(),
        peer: "4e5f6071".into(),
        peer_addresses: vec!["10.0.0.2:40000".into(), "[fd00::2]:40000".into()],
        lane: Some(3),
        near: side("eth1", "10.0.1.1:50000"),
        far: side("eth1", "10.0.1.2:40000"),
        why: "because".into(),
        ..Record::default()
    }
}

#[test]
fn lines_are_what_the_page_says() {
    const HEAD: &str = r#""pid":4711,"host":"node1","endpoint":"0a1b2c3d","peer":"4e5f6071","peer_addresses":["10.0.0.2:40000","[fd00::2]:40000"]"#;
    const ENDS: &str = r#""near":{"interface":"eth1","address":"10.0.1.1:50000"},"far":{"interface":"eth1","address":"10.0.1.2:40000"}"#;
    let of = |event: Kind| Record { event, level: event.level(), ..example() };
    let line = |level: &str, event: &str, rest: &str| {
        format!(
            "{{\"v\":1,\"time\":\"2026-11-21T18:00:00.000250Z\",\"level\":\"{level}\",\"event\":\"{event}\",{HEAD},{rest}\"why\":\"because\"}}\n"
        )
    };
    let lane = format!("\"lane\":3,{ENDS},");
    let again = Record { frames: Some(7), bytes: Some(1_000_000), ..of(Kind::LaneResend) };
    let choice = Record { from_lane: Some(1), ..of(Kind::ChoiceChanged) };
    let estimate =
        Record { from_bytes_per_s: Some(125_000_000), to_bytes_per_s: Some(9), ..of(Kind::EstimateChanged) };
    let compositions = |from: &str, to: &str| (Some(from.to_owned()), Some(to.to_owned()));
    let (from_composition, to_composition) = compositions("sync-cubic", "sync-bbr");
    let lossy = Figures {
        loss_per_million: Some(1000),
        loss_limit_per_million: Some(100),
        rtt_us: Some(20_133),
        ..Figures::default()
    };
    let changed = Record {
        from_composition,
        to_composition,
        by_peer: Some(false),
        figures: Some(lossy),
        ..of(Kind::CompositionChanged)
    };
    let fat = Figures {
        loss_per_million: Some(0),
        in_flight_bytes: Some(2_500_000),
        in_flight_limit_bytes: Some(1_000_000),
        ..Figures::default()
    };
    let refused = Record { event: Kind::CompositionRefused, figures: Some(fat), ..changed.clone() };
    let by_peer = Record { by_peer: Some(true), figures: None, ..changed.clone() };
    let to_bbr = "\"from_composition\":\"sync-cubic\",\"to_composition\":\"sync-bbr\",";
    let lossy = "\"figures\":{\"loss_per_million\":1000,\"loss_limit_per_million\":100,\"rtt_us\":20133},";
    let fat =
        "\"figures\":{\"loss_per_million\":0,\"in_flight_bytes\":2500000,\"in_flight_limit_bytes\":1000000},";
    for (record, level, event, rest) in [
        (changed, "info", "composition_changed", format!("{lane}{to_bbr}\"by_peer\":false,{lossy}")),
        (by_peer, "info", "composition_changed", format!("{lane}{to_bbr}\"by_peer\":true,")),
        (refused, "info", "composition_refused", format!("{lane}{to_bbr}\"by_peer\":false,{fat}")),
        (
            Record { encrypted: Some(true), ..of(Kind::LaneUp) },
            "info",
            "lane_up",
            format!("{lane}\"encrypted\":true,"),
        ),
        (of(Kind::LaneDown), "info", "lane_down", lane.clone()),
        (of(Kind::LaneRefused), "info", "lane_refused", lane.clone()),
        (again, "info", "lane_resend", format!("{lane}\"frames\":7,\"bytes\":1000000,")),
        (choice, "debug", "choice_changed", format!("{lane}\"from_lane\":1,")),
        (
            estimate,
            "debug",
            "estimate_changed",
            format!("{lane}\"from_bytes_per_s\":125000000,\"to_bytes_per_s\":9,"),
        ),
    ] {
        assert_eq!(record.line(), line(level, event, &rest));
        assert_eq!(record.event.name(), event);
        assert_eq!(serde_json::from_str::<Record>(&record.line()).unwrap(), record);
    }
    let plain = Record { lane: None, near: None, far: None, ..example() };
    let protocols = vec![
        Protocol { up_to_bytes: Some(65536), name: "eager".into(), fragment_bytes: None },
        Protocol { up_to_bytes: None, name: "fragments".into(), fragment_bytes: Some(1 << 20) },
    ];
    let up = Record { rail: Some("tcp".into()), protocols, ..plain.clone() };
    let rest = r#""rail":"tcp","protocols":[{"up_to_bytes":65536,"name":"eager"},{"name":"fragments","fragment_bytes":1048576}],"#;
    assert_eq!(up.line(), line("info", "peer_up", rest));
    assert_eq!(Record { event: Kind::PeerGone, ..plain }.line(), line("info", "peer_gone", ""));
}

#[test]
fn every_field_is_on_the_page() {
    let page = include_str!("../../../../docs/events.md");
    let whole = Record {
        rail: Some(String::new()),
        encrypted: Some(false),
        from_lane: Some(0),
        protocols: vec![Protocol::default()],
        frames: Some(0),
        bytes: Some(0),
        from_bytes_per_s: Some(0),
        to_bytes_per_s: Some(0),
        from_composition: Some(String::new()),
        to_composition: Some(String::new()),
        by_peer: Some(false),
        figures: Some(Figures {
            loss_per_million: Some(0),
            loss_limit_per_million: Some(0),
            rtt_us: Some(0),
            in_flight_bytes: Some(0),
            in_flight_limit_bytes: Some(0),
        }),
        ..example()
    };
    let value = serde_json::to_value(whole).unwrap();
    for field in value.as_object().unwrap().keys() {
        assert!(page.contains(&format!("| `{field}` |")), "{field} is not described");
    }
    for field in value["figures"].as_object().unwrap().keys() {
        assert!(page.contains(&format!("| `figures.{field}` |")), "{field} is not described");
    }
    for kind in [Kind::PeerUp, Kind::PeerGone, Kind::LaneUp, Kind::LaneDown, Kind::LaneRefused]
        .into_iter()
        .chain([Kind::LaneResend, Kind::ChoiceChanged, Kind::EstimateChanged])
        .chain([Kind::CompositionChanged, Kind::CompositionRefused])
    {
        assert!(page.contains(&format!("| `{}` |", kind.name())), "{} is not described", kind.name());
    }
}

#[test]
fn long_reasons_are_cut_so_that_a_line_is_one_write() {
    let why = shortened("é".repeat(5000));
    assert_eq!(why.chars().count(), WHY_MAX + 1);
    for why in [why, "\u{1}".repeat(WHY_MAX), "\u{10ffff}".repeat(WHY_MAX)] {
        let line = Record { why, ..example() }.line();
        assert!(line.len() <= LINE_MAX, "{}", line.len());
        assert!(line.ends_with("\"}\n"));
    }
}

#[test]
fn later_versions_can_be_read() {
    let record: Record = serde_json::from_str(r#"{"v":1,"event":"moon_full","new":[1]}"#).unwrap();
    assert_eq!((record.event, record.pid), (Kind::Unknown, 0));
}

#[test]
fn moments_are_dates() {
    for (seconds, micros, text) in [
        (0, 0, "1970-01-01T00:00:00.000000Z"),
        (951_782_400, 1, "2000-02-29T00:00:00.000001Z"),
        (951_868_799, 999_999, "2000-02-29T23:59:59.999999Z"),
        (951_868_800, 0, "2000-03-01T00:00:00.000000Z"),
        (1_735_689_599, 0, "2024-12-31T23:59:59.000000Z"),
        (1_795_284_000, 250, "2026-11-21T18:00:00.000250Z"),
        (4_107_542_400, 0, "2100-03-01T00:00:00.000000Z"),
    ] {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros);
        assert_eq!(rfc3339(at), text);
    }
}

#[test]
fn settings_of_the_log() {
    let file = |name: &str, level| Ok(LogTo { target: Target::File(name.into()), level });
    assert_eq!(LogTo::parse("stderr"), Ok(LogTo { target: Target::Stderr, level: Level::Info }));
    assert_eq!(LogTo::parse("stderr:debug"), Ok(LogTo { target: Target::Stderr, level: Level::Debug }));
    assert_eq!(LogTo::parse("/tmp/a:b/%h-%p:info"), file("/tmp/a:b/%h-%p", Level::Info));
    assert_eq!(LogTo::parse("/tmp/a:b/x"), file("/tmp/a:b/x", Level::Info));
    for wrong in ["", ":debug", "stderr:loud", "/tmp/%x", "/tmp/%"] {
        assert!(LogTo::parse(wrong).is_err(), "{wrong}");
    }
    assert_eq!(LogTo::path("/x/%h.%p.100%%", 12, "a/b"), "/x/a_b.12.100%");
}

#[test]
fn a_log_is_appended_to_and_its_failures_disturb_nobody() {
    let path = std::env::temp_dir().join(format!("polyrail-log-{}", std::process::id()));
    let to = LogTo { target: Target::File(path.to_str().unwrap().into()), level: Level::Info };
    let logs = [Log::open(&to).unwrap(), Log::open(&to).unwrap()];
    for log in logs.iter().chain(&logs) {
        assert!(log.write("line\n"));
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "line\n".repeat(4));
    std::fs::remove_file(&path).unwrap();
    let nowhere = LogTo { target: Target::File("/nonexistent/polyrail".into()), level: Level::Info };
    assert!(Log::open(&nowhere).is_none());
    let full = LogTo { target: Target::File("/dev/full".into()), level: Level::Info };
    assert!(!Log::open(&full).unwrap().write("line\n"));
    // a pipe whose reader has gone
    let (reader, writer) = io::pipe().unwrap();
    let log = Log { level: Level::Info, file: Some(File::from(std::os::fd::OwnedFd::from(writer))) };
    drop(reader);
    // SAFETY: the default action, which ends the process, for this test alone: nothing else here writes to pipes.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    assert!(!log.write("line\n"));
    // SAFETY: what was before.
    unsafe { libc::signal(libc::SIGPIPE, before) };
}
