use super::*;

#[test]
fn listeners_are_found_in_the_kernels_list() {
    let id = "0123456789abcdef0123456789abcdef";
    let list = format!(
        "Num       RefCount Protocol Flags    Type St Inode Path\n\
         00000000: 00000002 00000000 00010000 0001 01 100 @polyrail-top-{id}\n\
         00000000: 00000003 00000000 00000000 0001 03 101 @polyrail-top-{id}\n\
         00000000: 00000002 00000000 00010000 0001 01 102 /run/polyrail-top-{id}\n\
         00000000: 00000002 00000000 00010000 0001 01 103 @polyrail-top-short\n\
         00000000: 00000002 00000000 00010000 0001 01 104 @polyrail-top-{id}00\n\
         00000000: 00000002 00000000 00010000 0001 01 105\n\
         \u{fffd} 1 2\n"
    );
    assert_eq!(listed(list.as_bytes()).unwrap(), [format!("polyrail-top-{id}")]);
}

#[test]
fn documents_are_read_and_others_refused() {
    let snapshot = Snapshot {
        v: VERSION,
        program: "osu_bw".into(),
        peers: vec![Peer { lanes: vec![Lane { number: 3, ..Lane::default() }], ..Peer::default() }],
        ..Snapshot::default()
    };
    let document = serde_json::to_vec(&snapshot).unwrap();
    assert_eq!(Snapshot::parse(&document), Ok(snapshot));
    for n in 0..document.len() {
        assert!(Snapshot::parse(&document[..n]).is_err(), "{n} bytes are no document");
    }
    for wrong in ["", "{}", "[]", r#"{"v":2}"#, r#"{"v":1,"pid":-1}"#, r#"{"v":1,"pid":1e99}"#] {
        assert!(Snapshot::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
    assert!(Snapshot::parse("[".repeat(1 << 20).as_bytes()).is_err());
    assert!(Snapshot::parse(&vec![b' '; DOCUMENT_MAX + 1]).is_err());
    for (list, most) in [("peers", PEERS_MAX), ("events", EVENTS_MAX)] {
        let of = |n: usize| format!(r#"{{"v":1,"{list}":[{}]}}"#, vec!["{}"; n].join(","));
        assert!(Snapshot::parse(of(most).as_bytes()).is_ok());
        assert!(Snapshot::parse(of(most + 1).as_bytes()).unwrap_err().contains(&most.to_string()));
    }
    for list in ["peer_addresses", "protocols"] {
        let of = |n: usize, one: &str| {
            format!(r#"{{"v":1,"events":[{{"{list}":[{}]}}]}}"#, vec![one; n].join(","))
        };
        let one = if list == "protocols" { "{}" } else { r#""""# };
        assert!(Snapshot::parse(of(FEW, one).as_bytes()).is_ok());
        assert!(Snapshot::parse(of(FEW + 1, one).as_bytes()).unwrap_err().contains(&FEW.to_string()));
    }
    let later = Snapshot::parse(br#"{"v":1,"pid":7,"new":{"a":[]}}"#).unwrap();
    assert_eq!(later.pid, 7);
}

#[test]
fn every_field_is_on_the_page() {
    fn names(value: &serde_json::Value, all: &mut Vec<String>) {
        if let Some(object) = value.as_object() {
            all.extend(object.keys().cloned());
            object.values().for_each(|value| names(value, all));
        }
        value.as_array().into_iter().flatten().for_each(|value| names(value, all));
    }
    let page = include_str!("../../../../docs/top.md");
    let lane = Lane { rate_bytes_per_s: Some(0), rtt_us: Some(0), ..Lane::default() };
    let lane = Lane { near: Some(Side::default()), far: Some(Side::default()), ..lane };
    let (composition, composition_why) = (Some(String::new()), Some(String::new()));
    let (rail, congestion_control) = (Some(String::new()), Some(String::new()));
    let lane = Lane { rail, composition, composition_why, congestion_control, ..lane };
    let (rail, why) = (Some(String::new()), Some(String::new()));
    let (lanes, closed) = (vec![lane], vec![Closed::default()]);
    let peers = vec![Peer { rail, why, lanes, closed, ..Peer::default() }];
    let mut all = Vec::new();
    names(&serde_json::to_value(Snapshot { peers, ..Snapshot::default() }).unwrap(), &mut all);
    for name in all {
        let written = [format!("`{name}`"), format!(".{name}`"), format!(".{name}[]"), format!("`{name}[]")];
        assert!(written.iter().any(|written| page.contains(written)), "{name}");
    }
}

#[test]
fn impostors_cost_no_more_than_a_moment() {
    let names = [1u8, 2, 3].map(|n| format!("{PREFIX}{:024x}{n:08x}", std::process::id()));
    let listeners = names.each_ref().map(|name| unix::listen(name.as_bytes()).unwrap());
    let begun = Instant::now();
    let answers = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&names, Duration::from_millis(200), false));
        let accept = |at: usize| loop {
            match unix::accept(listeners[at].as_fd()) {
                Ok(socket) => break socket,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let (endless, unending, nonsense) = (accept(0), accept(1), accept(2));
        for (socket, bytes) in [(&unending, "{"), (&nonsense, "hello")] {
            assert_eq!(unix::send(socket.as_fd(), bytes.as_bytes(), &[]).unwrap(), bytes.len());
        }
        drop(nonsense);
        // until it is turned away
        let mut sent = 0;
        loop {
            match unix::send(endless.as_fd(), &[b' '; 4096], &[]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(_) => break,
            }
        }
        assert!(sent < DOCUMENT_MAX + (1 << 20), "{sent}");
        let answers = asking.join().unwrap();
        drop(unending);
        answers
    });
    assert!(begun.elapsed() < 5 * TRANSFER, "{:?}", begun.elapsed());
    for (answer, why) in answers.iter().zip(["too long", "did not end", "expected"]) {
        assert!(matches!(&answer.said, Said::Nonsense(said) if said.contains(why)), "{answer:?}");
    }
}

#[test]
fn what_commands_terminals_is_taken_out() {
    let evil = "\u{1b}]0;x\u{7}\n";
    let side = || Some(Side { interface: Some(evil.into()), address: evil.into() });
    let text = || Some(evil.to_owned());
    let lane = Lane {
        near: side(),
        far: side(),
        rail: text(),
        composition: text(),
        composition_why: text(),
        congestion_control: text(),
        ..Lane::default()
    };
    let protocols = vec![Protocol { name: evil.into(), ..Protocol::default() }];
    let closed = Closed { why: evil.into(), ..Closed::default() };
    let peer = Peer {
        id: evil.into(),
        addresses: vec![evil.into()],
        rail: Some(evil.into()),
        why: Some(evil.into()),
        lanes: vec![lane],
        closed: vec![closed],
        protocols: protocols.clone(),
        ..Peer::default()
    };
    let event = Record {
        why: evil.into(),
        near: side(),
        protocols,
        from_composition: text(),
        to_composition: text(),
        ..Record::default()
    };
    let snapshot = Snapshot {
        v: VERSION,
        program: evil.into(),
        peers: vec![peer],
        events: vec![event],
        ..Snapshot::default()
    };
    let read = Snapshot::parse(&serde_json::to_vec(&snapshot).unwrap()).unwrap();
    let shown = format!("{read:?}");
    assert!(!shown.contains("\\u{1b}") && !shown.contains("\\n"), "{shown}");
    assert_eq!(read.program, "?]0;x??");
}

/// The names of others' sockets sort before one's own.
#[test]
fn sockets_of_another_user_hide_nobody() {
    // SAFETY: a plain call, and structures of our own.
    unsafe {
        if libc::geteuid() != 0 {
            return polyrail_testing::lacking("root, for sockets of another user");
        }
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    let listen = |name: &String| unix::listen(name.as_bytes()).unwrap();
    // other names than those of the test above, which may run at the same time
    let others: Vec<String> =
        (0x1000..0x1000 + 1100).map(|n| format!("{PREFIX}{:024x}{n:08x}", std::process::id())).collect();
    let ours = format!("{PREFIX}{}{:016x}", "f".repeat(16), std::process::id());
    let _ours = listen(&ours);
    let _others: Vec<OwnedFd> = std::thread::scope(|scope| {
        let other_user = scope.spawn(|| {
            // SAFETY: the call itself, not the C library's, changes this thread alone, which ends.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 4321, 4321, 4321) }, 0);
            others.iter().map(listen).collect()
        });
        other_user.join().unwrap()
    });
    assert!(endpoints(false).unwrap().contains(&ours));
}
