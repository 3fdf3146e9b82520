//! Kernel events of real connections. Need root; without it each test says so and passes.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polyrail_trace::diag::{Diag, Sample, Wanted};
use polyrail_trace::kernel::{Kernel, KernelRecord, Unavailable};
use polyrail_trace::model::KernelEventKind as What;

/// Events are the machine's: tests that fill rings would disturb the others.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[track_caller]
fn root() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0);
    if !root {
        polyrail_testing::lacking("root, for the kernel's events");
    }
    root
}

/// The kernel's events; `None` after saying why not.
#[track_caller]
fn open() -> Option<Kernel> {
    if !root() {
        return None;
    }
    match Kernel::open() {
        Ok(kernel) => Some(kernel),
        Err(why) => {
            polyrail_testing::lacking(format_args!("the kernel's events: {why}"));
            None
        }
    }
}

fn wanted(stream: &TcpStream) -> Wanted {
    let (local, remote) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    let mut cookie = 0;
    let mut each = |found: polyrail_trace::diag::Found| {
        if (found.wanted.local, found.wanted.remote) == (local, remote) {
            cookie = found.wanted.cookie;
        }
    };
    Diag::open().unwrap().dump(&mut each).unwrap();
    assert_ne!(cookie, 0);
    Wanted { cookie, local, remote }
}

/// Drains until so much time has passed, and once more then: on a busy machine this may not run meanwhile.
fn drain_for(kernel: &mut Kernel, time: Duration, records: &mut Vec<KernelRecord>) {
    let begin = Instant::now();
    drain_until(kernel, records, |_| begin.elapsed() >= time);
    kernel.drain(&mut |record| records.push(record)).unwrap();
}

/// Drains until what was recorded is enough, or is not going to be.
fn drain_until(
    kernel: &mut Kernel,
    records: &mut Vec<KernelRecord>,
    enough: impl Fn(&[KernelRecord]) -> bool,
) {
    let begin = Instant::now();
    while !enough(records) && begin.elapsed() < Duration::from_secs(20) {
        kernel.drain(&mut |record| records.push(record)).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_connection_is_seen_from_beginning_to_end_and_others_are_not() {
    let _alone = alone();
    let Some(mut kernel) = open() else { return };
    let path = kernel.path().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut server = listener.accept().unwrap().0;
    let mut other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut other_end = listener.accept().unwrap().0;
    let mut buffer = [0; 5000];
    for (from, to) in [(&mut client, &mut server), (&mut other, &mut other_end)] {
        for _ in 0..10 {
            from.write_all(&[1; 1000]).unwrap();
            to.read_exact(&mut buffer[..1000]).unwrap();
            to.write_all(&[2; 500]).unwrap();
            from.read_exact(&mut buffer[..500]).unwrap();
        }
    }
    // Asked for after it has happened, as a note that was late.
    let ends = [wanted(&client), wanted(&server)];
    ends.iter().for_each(|end| kernel.want(end));
    drop(client);
    drop(server);
    let mut records = Vec::new();
    // what carries the last segments may have to wait for a processor
    let closed = |records: &[KernelRecord], cookie| {
        let ends = |r: &KernelRecord| r.cookie == cookie && matches!(r.what, What::State { new: 7, .. });
        records.iter().any(ends)
    };
    drain_until(&mut kernel, &mut records, |records| ends.iter().all(|end| closed(records, end.cookie)));
    drain_for(&mut kernel, Duration::from_millis(150), &mut records);
    for (end, sent) in ends.iter().zip([10_000, 5_000]) {
        let of: Vec<&KernelRecord> = records.iter().filter(|record| record.cookie == end.cookie).collect();
        assert!(of.is_sorted_by_key(|record| record.at), "{of:?}");
        let states: Vec<(u8, u8)> = of
            .iter()
            .filter_map(|r| if let What::State { old, new } = r.what { Some((old, new)) } else { None })
            .collect();
        let begins = if end.cookie == ends[0].cookie { (2, 1) } else { (3, 1) };
        assert!(states.contains(&begins), "{states:?}");
        // The side that closes first may linger in FIN_WAIT2 as another thing than a socket.
        assert_eq!(states.last().map(|last| last.1), Some(7), "{states:?}");
        let numbers: Vec<(u32, u32)> = of
            .iter()
            .filter_map(|r| {
                if let What::Probe { snd_nxt, snd_una, .. } = r.what {
                    Some((snd_nxt, snd_una))
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(numbers.first().map(|n| n.1), Some(0), "counted from the first byte: {numbers:?}");
        assert!(numbers.iter().any(|n| n.0 == sent), "all bytes were sent: {numbers:?}");
        assert!(numbers.iter().all(|n| n.0 >= n.1 && n.0 <= sent + 1), "{numbers:?}");
    }
    let cookies: HashSet<u64> = records.iter().map(|record| record.cookie).collect();
    assert_eq!(cookies, ends.iter().map(|end| end.cookie).collect());
    assert!(kernel.counts().others >= 20, "{:?}", kernel.counts());
    assert_eq!(kernel.lost(), 0);
    assert!(path.exists());
    drop(kernel);
    assert!(!path.exists());
}

/// Both ends of a connection talk: `count` times eight bytes there and back.
fn ping(ends: &mut (TcpStream, TcpStream), count: usize) {
    let mut eight = [0; 8];
    for _ in 0..count {
        ends.0.write_all(&eight).unwrap();
        ends.1.read_exact(&mut eight).unwrap();
        ends.1.write_all(&eight).unwrap();
        ends.0.read_exact(&mut eight).unwrap();
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn what_is_not_read_in_time_is_counted() {
    let _alone = alone();
    let Some(mut kernel) = open() else { return };
    let mut ends = pair();
    let wanted = wanted(&ends.0);
    kernel.want(&wanted);
    assert_eq!(kernel.lost(), 0);
    // Two segments each, 136 bytes of event for each: until that is more than the rings hold.
    let mut made = 0;
    while kernel.lost() <= 1000 {
        assert!(made < 2_000_000, "nothing is lost");
        ping(&mut ends, 20_000);
        made += 20_000;
    }
    let mut records = Vec::new();
    drain_for(&mut kernel, Duration::from_millis(30), &mut records);
    let probe = |record: &&KernelRecord| matches!(record.what, What::Probe { .. });
    let kept = records.iter().filter(probe).count() as u64;
    assert!(kept > 0 && kept < 2 * made, "{kept} of {made}");
    // What is left is the newest, and what comes now is not lost: none of ours. Those of others, which are counted
    // too, are the machine's, and its programs' connections may be as busy at any time.
    records.clear();
    ping(&mut ends, 100);
    drain_for(&mut kernel, Duration::from_millis(30), &mut records);
    assert!(records.iter().filter(probe).count() >= 100);
}

// Other programs of the machine, such as other tests, may be as busy, and take the filter's places at any time.
#[test]
fn the_busiest_connection_of_others_is_kept_out_until_it_is_wanted() {
    let _alone = alone();
    let Some(mut kernel) = open() else { return };
    let filter = kernel.path().join("events/tcp/tcp_probe/filter");
    // A file of tracefs gives no more than the first read asks for.
    let filtered = || {
        let mut bytes = [0; 4096];
        let length = std::fs::File::open(&filter).unwrap().read(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let (mut busy, mut ours) = (pair(), pair());
    let ours_end = wanted(&ours.0);
    kernel.want(&ours_end);
    // both its ends send as much
    let ends = [&busy.0, &busy.1].map(wanted);
    let kept_out = |text: &str, end: &Wanted| text.contains(&format!("sock_cookie != {}", end.cookie));
    let both = |text: &str| ends.iter().all(|end| kept_out(text, end));
    let begin = Instant::now();
    let mut records = Vec::new();
    loop {
        if begin.elapsed() > Duration::from_secs(30) {
            return polyrail_testing::by_chance("the machine is too busy for a connection that is");
        }
        while !both(&filtered()) && begin.elapsed() < Duration::from_secs(20) {
            ping(&mut busy, 200);
            ping(&mut ours, 1);
            kernel.drain(&mut |_| ()).unwrap();
        }
        // what came before the filter is held for a tenth of a second
        drain_for(&mut kernel, Duration::from_millis(200), &mut Vec::new());
        records.clear();
        let (lost, text) = (kernel.lost(), filtered());
        ping(&mut busy, 500);
        ping(&mut ours, 10);
        if !both(&text) || filtered() != text {
            continue;
        }
        // what is held of it would be handed out now
        kernel.want(&ends[0]);
        drain_for(&mut kernel, Duration::from_millis(50), &mut records);
        assert!(!kept_out(&text, &ours_end), "{text}");
        if kernel.lost() == lost {
            break;
        }
        kernel.forget(ends[0].cookie);
    }
    assert!(records.len() >= 10, "{records:?}");
    assert!(records.iter().all(|record| record.cookie == ours_end.cookie), "{records:?}");
    assert!(!kept_out(&filtered(), &ends[0]));
    let lost = kernel.lost();
    ping(&mut busy, 10);
    drain_for(&mut kernel, Duration::from_millis(100), &mut records);
    let seen = records.iter().any(|record| record.cookie == ends[0].cookie);
    assert!(seen || kernel.lost() > lost);
}

/// This program again, for one test in another setting.
fn again(test: &str, setting: &[&str], role: &str) -> std::process::Output {
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new(setting[0]);
    command.args(&setting[1..]).arg(me).args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("POLYRAIL_TEST_ROLE", role).output().expect(setting[0])
}

fn role() -> String {
    std::env::var("POLYRAIL_TEST_ROLE").unwrap_or_default()
}

#[test]
fn tracefs_is_mounted_where_it_is_not_and_nothing_stays_of_it() {
    let _alone = alone();
    if role() == "unmounted" {
        assert!(!PathBuf::from("/sys/kernel/tracing/instances").exists());
        let kernel = Kernel::open().expect("mounted for us alone");
        assert!(kernel.path().starts_with("/proc"), "{:?}", kernel.path());
        assert!(kernel.events().contains(&"tcp/tcp_probe"));
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains("polyrail"), "{mounts}");
        let path = kernel.path().to_owned();
        assert!(path.exists());
        println!("INSIDE");
        return;
    }
    if open().is_none() {
        return;
    }
    let unmounted = [
        "unshare",
        "-m",
        "sh",
        "-c",
        "umount -l /sys/kernel/debug/tracing /sys/kernel/tracing 2>/dev/null; exec \"$@\"",
        "sh",
    ];
    let output = again("tracefs_is_mounted_where_it_is_not_and_nothing_stays_of_it", &unmounted, "unmounted");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("INSIDE"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn without_root_one_sentence_says_why_not() {
    let _alone = alone();
    if role() == "nobody" {
        let why = Kernel::open().expect_err("not root");
        assert!(matches!(why, Unavailable::Root), "{why:?}");
        assert_eq!(why.to_string(), "kernel events need root; TCP_INFO is sampled instead");
        println!("INSIDE");
        return;
    }
    if !root() {
        return;
    }
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let output = again("without_root_one_sentence_says_why_not", &nobody, "nobody");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("INSIDE"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn an_instance_that_a_crash_left_is_removed_but_not_one_in_use() {
    let _alone = alone();
    let Some(kernel) = open() else { return };
    let instances = kernel.path().parent().unwrap();
    let stale = instances.join("polyrail-999999999-0");
    std::fs::create_dir(&stale).unwrap();
    // younger than any crash: its maker may be about to open it
    drop(Kernel::open().unwrap());
    assert!(stale.exists());
    let a_minute_ago = std::time::SystemTime::now() - Duration::from_secs(60);
    std::fs::File::open(&stale).unwrap().set_modified(a_minute_ago).unwrap();
    drop(Kernel::open().unwrap());
    assert!(!stale.exists());
    assert!(kernel.path().exists(), "its rings are open");
}

/// What a program that counts prints: `TcpRetransSegs 12 0.0`.
fn counter(name: &str) -> u64 {
    let output = Command::new("nstat").args(["-asz", name]).output().expect("nstat of iproute2");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).expect("a counter");
    line.split_whitespace().nth(1).and_then(|value| value.parse().ok()).expect("a number")
}

const BYTES: usize = 4 << 20;

#[test]
fn retransmissions_are_as_many_as_the_kernel_counts() {
    let _alone = alone();
    let server: SocketAddr = "10.77.0.2:7777".parse().unwrap();
    match role().as_str() {
        "b" => {
            let mut stream = TcpListener::bind(server).unwrap().accept().unwrap().0;
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
            return;
        }
        "a" => return lossy_client(server),
        _ => {}
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scripts = root.join("scripts/lab");
    let relay = std::env::var_os("POLYRAIL_LAB_RELAY").map_or_else(
        || {
            let target =
                std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
            target.join("release/polyrail-lab-relay")
        },
        PathBuf::from,
    );
    if open().is_none() {
        return;
    }
    if !relay.exists() {
        let relay = relay.display();
        return polyrail_testing::lacking(format_args!("{relay} (cargo build --release -p polyrail-lab)"));
    }
    let host = |name| format!("POLYRAIL_TEST_ROLE={name} nsenter -t $(<$POLYRAIL_LAB/{name}/pid) -n \"$@\"");
    // Ordinary loss, and a while in which nothing arrives, for the timer.
    let lab = scripts.display();
    let hole = format!("(sleep 2; {lab} blackhole 0 on; sleep 0.7; {lab} blackhole 0 off) &");
    let both = format!("{hole} {} & {}; status=$?; wait; exit $status", host("b"), host("a"));
    let lab = [
        scripts.to_str().unwrap(),
        "run",
        "--rails",
        "relay:0,delay=10ms,loss=1%",
        "--",
        "bash",
        "-c",
        &both,
        "bash",
    ];
    let output = again("retransmissions_are_as_many_as_the_kernel_counts", &lab, "");
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(
        output.status.success() && text.contains("INSIDE"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// To a server that is just being started.
fn connect_soon(server: SocketAddr) -> TcpStream {
    let begin = Instant::now();
    loop {
        match TcpStream::connect(server) {
            Ok(stream) => return stream,
            Err(why) => assert!(begin.elapsed() < Duration::from_secs(20), "{why}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn lossy_client(server: SocketAddr) {
    let mut kernel = Kernel::open().expect("root");
    let mut diag = Diag::open().expect("inet_diag");
    let before = counter("TcpRetransSegs");
    let mut stream = connect_soon(server);
    let wanted = wanted(&stream);
    kernel.want(&wanted);
    let (mut records, mut samples) = (Vec::new(), Vec::<Sample>::new());
    stream.set_nonblocking(true).unwrap();
    let (bytes, mut sent) = (vec![1; 64 << 10], 0);
    loop {
        if sent < BYTES {
            sent += stream.write(&bytes).unwrap_or(0);
        }
        std::thread::sleep(Duration::from_millis(5));
        kernel.drain(&mut |record| records.push(record)).unwrap();
        diag.sample(&[wanted], Duration::from_secs(1), &mut samples).unwrap();
        if sent >= BYTES && samples.last().is_some_and(|last| last.tcp.unacked + last.tcp.notsent == 0) {
            break;
        }
    }
    drain_for(&mut kernel, Duration::from_millis(30), &mut records);
    let last = samples.last().unwrap().tcp;
    let counted = counter("TcpRetransSegs") - before;
    let events = records.iter().filter(|record| matches!(record.what, What::Retransmit { .. })).count();
    let ss = Command::new("ss").args(["-tinHO", "dst", &server.to_string()]).output().unwrap();
    let ss = String::from_utf8(ss.stdout).unwrap();
    let retrans =
        ss.split_once(" retrans:").and_then(|(_, rest)| rest.split([' ', '/']).nth(1)).expect("retrans:a/b");
    println!(
        "INSIDE: {} samples, {} events; total_retrans {}, ss {retrans}, TcpRetransSegs {counted}, {events} events of retransmission",
        samples.len(),
        records.len(),
        last.total_retrans
    );
    assert!(last.total_retrans > 5, "1 % of {} segments", BYTES / 1448);
    assert_eq!((u64::from(last.total_retrans), last.total_retrans.to_string().as_str()), (counted, retrans));
    // a busy machine's others crowd out what is theirs; what the kernel loses for their sake may have been this socket's
    let all = kernel.lost() == 0;
    assert!((1..=last.total_retrans as usize).contains(&events), "{events}");
    assert_eq!(last.bytes_acked, sent as u64 + 1, "all bytes and the SYN");
    let recoveries = records.iter().filter(|r| matches!(r.what, What::Congestion { state: 3 })).count();
    assert!(recoveries > 0 || !all);
    let timeouts = records.iter().filter(|r| matches!(r.what, What::Retransmit { timeout: true })).count();
    println!("{timeouts} of them in the loss state; total_rto {}", last.total_rto);
    assert!(
        timeouts < events && (timeouts >= last.total_rto as usize || !all),
        "{timeouts} {}",
        last.total_rto
    );
    assert!(last.total_rto > 0);
}

/// `cargo test --release -p polyrail-trace --test kernel -- --ignored --nocapture`: what `tcp_probe` costs a stream of 16 KB
/// writes and a ping-pong of 8 bytes over veth between two namespaces; alternating runs of 0.4 s, medians of fifteen.
#[test]
#[ignore = "a measurement"]
fn what_tcp_probe_costs() {
    let _alone = alone();
    let server: SocketAddr = "10.77.0.2:7778".parse().unwrap();
    match role().as_str() {
        "b" => {
            let listener = TcpListener::bind(server).unwrap();
            while let Ok((mut stream, _)) = listener.accept() {
                stream.set_nodelay(true).unwrap();
                let mut buffer = [0; 64 << 10];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if length == 8 && stream.write_all(&buffer[..8]).is_err() {
                        break;
                    }
                }
            }
        }
        "a" => measure(server),
        _ if root() => {
            let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/lab");
            let host = |name| {
                format!(
                    "POLYRAIL_TEST_ROLE={name} nsenter -t $(<$POLYRAIL_LAB/{name}/pid) -n \"$@\" --ignored"
                )
            };
            let both = format!("{} & sleep 0.3; {}; kill $!", host("b"), host("a"));
            let lab = [scripts.to_str().unwrap(), "run", "--rails", "0", "--", "bash", "-c", &both, "bash"];
            print!("{}", String::from_utf8_lossy(&again("what_tcp_probe_costs", &lab, "").stdout));
        }
        _ => {}
    }
}

fn measure(server: SocketAddr) {
    let modes = ["nothing", "unfiltered", "matching filter", "other filter", "twelve other cookies"];
    let mut streams = vec![Vec::new(); modes.len()];
    let mut pings = vec![Vec::new(); modes.len()];
    let mut read = vec![Vec::new(); modes.len()];
    for mode in (0..15).flat_map(|_| 0..modes.len()) {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.set_nodelay(true).unwrap();
        let wanted = wanted(&stream);
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let reader = (mode > 0).then(|| {
            let mut kernel = Kernel::open().expect("root");
            kernel.want(&wanted);
            let others: Vec<String> = (1..13).map(|n| format!("sock_cookie != {n}")).collect();
            let filter = [
                "0".into(),
                "0".into(),
                format!("sock_cookie == {}", wanted.cookie),
                format!("sock_cookie == {}", wanted.cookie + (1 << 40)),
                others.join(" && "),
            ];
            std::fs::write(kernel.path().join("events/tcp/tcp_probe/filter"), &filter[mode])
                .expect("a filter");
            std::thread::spawn(move || {
                let mut time = Duration::ZERO;
                while stopped.recv_timeout(Duration::from_millis(10))
                    == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
                {
                    let begin = Instant::now();
                    kernel.drain(&mut |_| {}).unwrap();
                    time += begin.elapsed();
                }
                let counts = kernel.counts();
                (counts.kept + counts.others, time, kernel.lost())
            })
        });
        std::thread::sleep(Duration::from_millis(50));
        let (begin, mut count) = (Instant::now(), 0u32);
        let mut eight = [0; 8];
        while begin.elapsed() < Duration::from_millis(400) {
            stream.write_all(&eight).unwrap();
            stream.read_exact(&mut eight).unwrap();
            count += 1;
        }
        pings[mode].push(begin.elapsed().as_nanos() as f64 / f64::from(count) / 1000.0);
        let (begin, mut count) = (Instant::now(), 0u32);
        let bytes = [0; 16 << 10];
        while begin.elapsed() < Duration::from_millis(400) {
            stream.write_all(&bytes).unwrap();
            count += 1;
        }
        streams[mode].push(f64::from(count) * bytes.len() as f64 / begin.elapsed().as_secs_f64() / 1e6);
        drop(stop);
        if let Some(reader) = reader {
            let (events, time, lost) = reader.join().unwrap();
            assert_eq!(lost, 0);
            read[mode].push((events, time));
        }
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!(
        "| tcp_probe | 16 KB writes, MB/s | 8 B there and back, us | events in 0.8 s | reading, ns an event |"
    );
    println!("|---|---|---|---|---|");
    for (mode, name) in modes.iter().enumerate() {
        let (events, time) =
            read[mode].iter().fold((0, Duration::ZERO), |sum, run| (sum.0 + run.0, sum.1 + run.1));
        let each = time.as_nanos() as u64 / events.max(1);
        let runs = read[mode].len().max(1) as u64;
        println!(
            "| {name} | {:.0} | {:.2} | {} | {each} |",
            median(streams[mode].clone()),
            median(pings[mode].clone()),
            events / runs
        );
    }
}

/// Likewise for one segment: both ends in one thread over loopback, the fastest of fifty runs, which no other load makes faster.
#[test]
#[ignore = "a measurement"]
fn what_tcp_probe_costs_a_segment() {
    let _alone = alone();
    let mut ends = pair();
    let cookie = wanted(&ends.0).cookie;
    let count = 2000;
    let mut fastest = [f64::MAX; 4];
    for _ in 0..50 {
        for (mode, fastest) in fastest.iter_mut().enumerate() {
            let kernel = (mode > 0).then(|| Kernel::open().expect("root"));
            if let Some(kernel) = &kernel {
                let others: Vec<String> =
                    (1..17).map(|n| format!("sock_cookie != {}", cookie + (n << 40))).collect();
                let other = format!("sock_cookie == {}", cookie + (1 << 40));
                let filter = ["0".into(), "0".into(), other, others.join(" && ")];
                std::fs::write(kernel.path().join("events/tcp/tcp_probe/filter"), &filter[mode])
                    .expect("a filter");
            }
            let begin = Instant::now();
            ping(&mut ends, count);
            *fastest = fastest.min(begin.elapsed().as_nanos() as f64 / (2 * count) as f64);
        }
    }
    let [nothing, unfiltered, other, sixteen] = fastest;
    println!(
        "a segment: {nothing:.0} ns; with tcp_probe {:.0} more, filtered out {:.0}, with a filter of 16 terms that lets it pass {:.0}",
        unfiltered - nothing,
        other - nothing,
        sixteen - nothing
    );
}
