//! The files of a report: what stands in them, and that nothing in a run can break them.

#[path = "support/synthetic.rs"]
mod synthetic;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use polyrail_trace::analysis::timeline::SOCKET_CLASSES;
use polyrail_trace::analysis::{Analysis, Analyst, Settings};
use polyrail_trace::classify::{self, Frequency, Level, Size};
use polyrail_trace::model::*;
use polyrail_trace::report::{self, Options};
use proptest::prelude::*;

fn analyse(events: &dyn Events) -> Analysis {
    let mut analyst = Analyst::new(events.run(), Settings::default());
    events.for_each(&mut |event| analyst.event(event)).unwrap();
    analyst.finish()
}

/// Two processes joined by a TCP connection (sockets 0 and 1), one thread each.
fn two() -> InMemory {
    let process = |pid| Process { pid, span: (0, 10_000_000_000), ..Process::default() };
    let socket = |process, peer| Socket { kind: Kind::Tcp, process, peer: Some(peer), ..Socket::default() };
    let run = Run {
        span: (0, 10_000_000_000),
        processes: vec![process(10), process(11)],
        threads: vec![Thread::default(), Thread { process: 1, ..Thread::default() }],
        sockets: vec![socket(0, 1), socket(1, 0)],
        ..Run::default()
    };
    InMemory { run, events: Vec::new() }
}

fn call(thread: u32, call: Call, start: u64, took: u64, socket: Option<u32>, result: i32) -> Event {
    let bytes = if socket.is_some() { result.max(0) as u32 } else { 0 };
    Event::Call(CallEvent {
        thread,
        call,
        start,
        took,
        inside: took,
        calls: 1,
        socket,
        result,
        bytes,
        asked: bytes,
        to: None,
        in_mpi: false,
        peeked: false,
    })
}

#[test]
fn a_dialogue_by_hand() {
    let mut run = two();
    run.events = vec![
        // a question in two parts, an answer after 3 ms of waiting in epoll_wait and 1 ms in recv
        call(0, Call::Send, 1_000_000, 5_000, Some(0), 40),
        call(0, Call::Send, 1_010_000, 5_000, Some(0), 1_000),
        call(1, Call::Recv, 500_000, 700_000, Some(1), 1_040),
        call(0, Call::EpollWait, 1_100_000, 3_000_000, None, 1),
        call(1, Call::Send, 4_000_000, 5_000, Some(1), 64),
        call(0, Call::Recv, 4_200_000, 1_000_000, Some(0), 64),
        // 2 s later the next question; then waiting for nothing
        call(0, Call::Send, 2_000_000_000, 5_000, Some(0), 500),
        call(0, Call::Poll, 2_100_000_000, 70_000_000, None, 0),
    ];
    let found = analyse(&run);
    let cell = |from, to| &found.links.cells[found.links.position(from, to).unwrap()].2;
    assert_eq!((cell(0, 1).bytes, cell(0, 1).messages, cell(0, 1).sends), (1_540, 2, 3));
    assert_eq!((cell(1, 0).bytes, cell(1, 0).messages, cell(1, 0).sends), (64, 1, 1));
    assert_eq!((cell(1, 0).waited, cell(0, 1).waited), (4_000_000, 700_000));
    assert_eq!((found.processes[0].waited, found.processes[0].idle), (4_000_000, 70_000_000));
    // waiting that brought something, and waiting that did not
    let class = |call: Call| {
        let kept =
            found.timeline.lanes[0].longest.iter().find(|kept| kept.0.long.call == call as u8).unwrap();
        SOCKET_CLASSES[usize::from(kept.0.class)]
    };
    assert_eq!([Call::EpollWait, Call::Poll, Call::Recv].map(class), ["wait", "idle", "receive"]);
    assert_eq!(found.all.gaps.quantile(0.5), Some(2_000_000_000 - 1_015_000));
    assert_eq!(found.all.by_size.map(|share| share.count), [2, 1, 0]);
    let connections = found.connections(&run.run);
    assert_eq!((connections.len(), connections[0].bytes(), connections[0].nodes), (1, 1_604, (0, Some(1))));
    let classes = classify::whole(&found);
    assert_eq!((classes.frequency, classes.synchrony), (Some(Frequency::Rare), None));
    assert_eq!(found.calls[Call::Send as usize].calls, 4);
}

/// What is copied from another process's memory was sent by that one, also where it did nothing else.
#[test]
fn memory_that_is_read_is_sent_by_whose_it_is() {
    let mut run = two();
    run.run.sockets.iter_mut().for_each(|socket| socket.kind = Kind::Memory);
    run.events = vec![
        call(1, Call::ProcessVmReadV, 1_000, 500, Some(1), 5_000),
        call(1, Call::ProcessVmReadV, 1_600, 500, Some(1), 3_000),
    ];
    let found = analyse(&run);
    let connections = found.connections(&run.run);
    assert_eq!((connections.len(), connections[0].nodes), (1, (0, Some(1))));
    let [there, back] =
        [connections[0].there, connections[0].back].map(|way| (way.flow.bytes, way.flow.messages));
    assert_eq!((there, back), ((8_000, 1), (0, 0)));
    let bytes = found.processes.iter().map(|process| process.bytes);
    assert_eq!(bytes.collect::<Vec<_>>(), [(8_000, 0), (0, 8_000)]);
    assert_eq!((found.main.sizes.count(), found.senders), (1, 1));
}

#[test]
fn calls_of_one_name_have_each_its_class() {
    let mut run = two();
    run.events = vec![
        call(0, Call::SpliceTo, 1_000, 5_000, Some(0), 40),
        call(1, Call::SpliceFrom, 9_000, 5_000, Some(1), 40),
    ];
    assert_eq!(Call::SpliceTo.name(), Call::SpliceFrom.name());
    let found = analyse(&run);
    let class =
        |lane: usize| SOCKET_CLASSES[usize::from(found.timeline.lanes[lane].longest.peek().unwrap().0.class)];
    assert_eq!([class(0), class(2)], ["send", "receive"]);
}

#[test]
fn bytes_of_programs_that_were_not_traced_are_those_that_arrived() {
    let mut run = two();
    run.run.hosts.push(Host { name: "here".into(), ..Host::default() });
    run.run.sockets[0].peer = None;
    run.run.sockets[0].remote = Some("192.0.2.7:80".parse().unwrap());
    run.run.sockets[1].peer = None;
    run.run.sockets[1].remote = Some("127.0.0.1:80".parse().unwrap());
    run.events = vec![
        call(0, Call::Send, 0, 10, Some(0), 100),
        call(0, Call::Recv, 50, 40, Some(0), 9_000),
        call(1, Call::Send, 100, 10, Some(1), 7),
    ];
    let found = analyse(&run);
    assert_eq!(found.outside, ["192.0.2.7, port 80", "another program on here, port 80"]);
    let cell = |from, to| &found.links.cells[found.links.position(from, to).unwrap()].2;
    assert_eq!(
        (cell(0, 2).bytes, cell(2, 0).bytes, cell(2, 0).waited, cell(1, 3).bytes),
        (100, 9_000, 40, 7)
    );
}

#[test]
fn datagrams_find_their_receiver_by_address() {
    let mut run = two();
    for (index, port) in [(0usize, 1000), (1, 2000)] {
        run.run.sockets[index] = Socket {
            kind: Kind::Udp,
            process: index as u32,
            local: Some(([0, 0, 0, 0], port).into()),
            ..Socket::default()
        };
    }
    let mut send = call(0, Call::SendTo, 0, 10, Some(0), 100);
    if let Event::Call(call) = &mut send {
        call.to = Some(([127, 0, 0, 1], 2000).into());
    }
    run.events = vec![send, send];
    let found = analyse(&run);
    let (from, to, cell) = &found.links.cells[0];
    assert_eq!((*from, *to, cell.bytes, cell.messages), (0, 1, 200, 2));
}

#[test]
fn the_stencil_is_what_it_was_made_to_be() {
    let events = synthetic::Synthetic::new(4, 400);
    let found = analyse(&events);
    let classes = classify::whole(&found);
    assert_eq!(
        (classes.frequency, classes.size, classes.synchrony),
        (Some(Frequency::Frequent), Some(Size::Medium), Some(Level::Medium))
    );
    // two neighbours each, and a sum with two others every ten steps, of which one or two are neighbours
    assert_eq!(found.mpi.sizes.count(), 400 * 8);
    assert_eq!(found.all.sizes.count(), 400 * 8 + 40 * 8);
    // MPI's calls tell of all but the sums: the program is what they say
    let own = classify::own(events.run(), &found, &classes).expect("most is told by MPI");
    assert_eq!((own.messages, own.synchrony), (400 * 8, classes.synchrony));
    let mut silent = analyse(&events);
    silent.links.cells.iter_mut().for_each(|(.., cell)| cell.mpi_bytes /= 4);
    assert_eq!(classify::own(events.run(), &silent, &classes), None, "collectives, say: sockets tell more");
    assert_eq!((found.paths.found, found.paths.unfound), (400 * 8, 0));
    let connections = found.connections(events.run());
    let suggestions = classify::suggest(events.run(), &found, &connections, &classes);
    assert!(suggestions.iter().any(|each| each.title.contains("slow-start")), "{suggestions:#?}");
}

#[test]
fn parquet_files_hold_every_event() {
    let dir = tempfile::tempdir().unwrap();
    let events = synthetic::Synthetic::new(4, 50);
    let options = Options { html: false, perfetto: false, ..Options::default() };
    report::write(&events, dir.path(), &options, None).unwrap();
    let mut counts = [0u64; 4];
    let mut bytes = 0;
    events
        .for_each(&mut |event| match event {
            Event::Call(call) => (counts[0], bytes) = (counts[0] + 1, bytes + i64::from(call.bytes)),
            Event::Mpi(_) => counts[1] += 1,
            Event::Tcp(_) => counts[2] += 1,
            Event::Kernel(_) => counts[3] += 1,
        })
        .unwrap();
    let open = |name: &str| {
        SerializedFileReader::new(std::fs::File::open(dir.path().join(format!("{name}.parquet"))).unwrap())
            .unwrap()
    };
    let rows = ["calls", "mpi", "tcp", "kernel", "sockets", "processes", "threads"]
        .map(|name| open(name).metadata().file_metadata().num_rows());
    assert_eq!(rows, [counts[0] as i64, counts[1] as i64, counts[2] as i64, counts[3] as i64, 12, 4, 4]);
    let calls = open("calls");
    let sum: i64 = calls.get_row_iter(None).unwrap().map(|row| row.unwrap().get_long(9).unwrap()).sum();
    assert_eq!(sum, bytes);
    let first = calls.get_row_iter(None).unwrap().next().unwrap().unwrap();
    assert_eq!(first.get_string(5).unwrap(), "sendmsg");
}

fn any_call() -> impl Strategy<Value = Event> {
    let calls: Vec<Call> = Call::ALL.iter().copied().filter(|call| (*call as u8) < 128).collect();
    let parts =
        (0u32..3, prop::sample::select(calls), time(), time(), any::<u32>(), prop::option::of(0u32..7));
    let rest = (any::<i32>(), any::<u32>(), any::<u32>(), prop::option::of(any::<u16>()), any::<bool>());
    (parts, rest).prop_map(
        |((thread, call, start, took, calls, socket), (result, bytes, asked, to, in_mpi))| {
            Event::Call(CallEvent {
                thread,
                call,
                start,
                took,
                inside: took / 2,
                calls,
                socket,
                result,
                bytes,
                asked,
                to: to.map(|port| ([127, 0, 0, 1], port % 4).into()),
                in_mpi,
                peeked: took % 5 == 0,
            })
        },
    )
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..5_000_000_000, Just(0), Just(u64::MAX), any::<u64>()]
}

fn any_other() -> impl Strategy<Value = Event> {
    let calls: Vec<Call> = Call::ALL.iter().copied().filter(|call| (*call as u8) >= 128).collect();
    let mpi = (0u32..3, prop::sample::select(calls), time(), time(), -3i32..6, any::<u64>()).prop_map(
        |(thread, call, start, took, peer, bytes)| {
            Event::Mpi(MpiEvent { thread, call, start, took, calls: 1, peer, tag: -1, bytes, comm: 3 })
        },
    );
    let sample = (0u32..5, time(), any::<[u32; 8]>(), any::<[u64; 4]>(), any::<[u8; 16]>()).prop_map(
        |(socket, at, small, large, congestion)| {
            Event::Tcp(TcpSample {
                socket,
                at,
                congestion,
                cwnd: small[0],
                ssthresh: small[1],
                mss: small[2],
                rtt: small[3],
                rto: small[4],
                unacked: small[5],
                total_retrans: small[6],
                min_rtt: small[7],
                bytes_sent: large[0],
                bytes_retrans: large[1],
                bytes_acked: large[2],
                busy_time: large[3],
                rwnd_limited: u64::MAX,
                ..TcpSample::default()
            })
        },
    );
    let kernel = (0u32..5, time(), any::<[u32; 6]>(), any::<bool>()).prop_map(|(socket, at, n, which)| {
        let what = match which {
            true => KernelEventKind::Probe {
                length: n[0] as u16,
                snd_nxt: n[0],
                snd_una: n[1],
                cwnd: n[2],
                ssthresh: n[3],
                snd_wnd: n[4],
                rtt: n[5],
            },
            false => KernelEventKind::Retransmit { timeout: n[0] % 2 == 0 },
        };
        Event::Kernel(KernelEvent { socket, at, what })
    });
    prop_oneof![mpi, sample, kernel]
}

/// A run in which anything may stand where it is not checked by the reader.
fn any_run() -> impl Strategy<Value = InMemory> {
    let events = prop::collection::vec(prop_oneof![any_call(), any_other()], 0..120);
    (events, time(), time(), ".*").prop_map(|(events, from, to, name)| {
        let mpi = |rank| Some(MpiWorld { rank, size: 3, library: name.clone() });
        let process = |rank| Process {
            host: rank % 2,
            mpi: mpi(rank),
            command: vec![name.clone()],
            ..Process::default()
        };
        let socket = |process, kind, peer| Socket {
            process,
            kind,
            peer,
            local: Some(([0, 0, 0, 0], process as u16).into()),
            span: (to, from),
            ..Socket::default()
        };
        let run = Run {
            command: vec![name.clone()],
            span: (from, to),
            hosts: vec![Host { name: name.clone(), ..Host::default() }; 2],
            processes: vec![process(0), process(1), process(1)],
            threads: (0..3)
                .map(|process| Thread { process, lost: u64::MAX / 4, ..Thread::default() })
                .collect(),
            sockets: vec![
                socket(0, Kind::Tcp, Some(1)),
                socket(1, Kind::Tcp, Some(0)),
                socket(2, Kind::Udp, None),
                socket(1, Kind::Unix, None),
                socket(0, Kind::Other, None),
                socket(0, Kind::Memory, Some(6)),
                socket(2, Kind::Memory, Some(5)),
            ],
            rails: vec![
                RailEvent {
                    at: from,
                    event: "lane_up".into(),
                    endpoint: name.clone(),
                    lane: Some(7),
                    near: Some(RailEnd { interface: Some(name.clone()), address: "0.0.0.0:0".into() }),
                    far: Some(RailEnd::default()),
                    ..RailEvent::default()
                },
                RailEvent {
                    at: to,
                    process: 2,
                    event: "lane_down".into(),
                    why: name.clone(),
                    ..RailEvent::default()
                },
            ],
            warnings: vec![name.clone()],
            ..Run::default()
        };
        InMemory { run, events }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]
    #[test]
    fn nothing_in_a_run_breaks_its_report(run in any_run()) {
        let dir = tempfile::tempdir().unwrap();
        let summary = report::write(&run, dir.path(), &Options::default(), None).unwrap().to_string();
        prop_assert!(!summary.is_empty());
        let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
        let start = page.find("id=\"data\">").unwrap() + 10;
        let data = &page[start..start + page[start..].find("</script").unwrap()];
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        prop_assert_eq!(data["processes"].as_array().unwrap().len(), 3);
    }
}
