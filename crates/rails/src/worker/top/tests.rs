use super::super::{look_in, look_in_no_more};
use super::*;
use crate::config::Config;
use crate::list::RailSet;
use crate::list::Reach;
use crate::top::{self, Answer, Said};
use polyrail_core::proto::PeerIdx;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

fn worker() -> Worker {
    Worker::open(Config {
        rails: RailSet::ALL.without(Reach::Host),
        linger: Duration::ZERO,
        ..Config::default()
    })
    .expect("a worker")
}

fn name(worker: &Worker) -> String {
    format!("{PREFIX}{}", worker.wireup.id)
}

/// Asks, while the workers make progress.
fn asked(workers: &mut [&mut Worker], names: &[String]) -> Vec<Answer> {
    meanwhile(workers, || top::ask(names, Duration::from_secs(5), false))
}

fn meanwhile<T: Send>(workers: &mut [&mut Worker], what: impl FnOnce() -> T + Send) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let result = what();
            over.store(true, Ordering::Release);
            result
        });
        while !over.load(Ordering::Acquire) && !thread.is_finished() {
            workers.iter_mut().for_each(|worker| {
                worker.progress();
            });
        }
        thread.join().expect("no panic")
    })
}

fn progress_until(workers: &mut [&mut Worker], what: &str, holds: impl Fn(&[&mut Worker]) -> bool) {
    let start = Instant::now();
    while !holds(workers) {
        workers.iter_mut().for_each(|worker| {
            worker.progress();
        });
        assert!(start.elapsed() < Duration::from_secs(20), "never happens: {what}");
    }
}

fn all(answer: &Answer) -> &Snapshot {
    match &answer.said {
        Said::All(snapshot) => snapshot,
        other => panic!("{other:?}"),
    }
}

/// Two workers, and each one's number for the other.
fn pair() -> (Worker, Worker, PeerIdx) {
    let (mut a, mut b) = (worker(), worker());
    let to = a.peer(&b.address()).expect("an address");
    let start = Instant::now();
    while !a.is_connected(to) {
        let _ = a.send_active(to, 1, &[], b"hello");
        a.progress();
        b.progress();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", a.why(to));
    }
    (a, b, to)
}

#[test]
fn a_running_pair_tells_what_it_carries() {
    let (mut a, mut b, to) = pair();
    for _ in 0..100 {
        let _ = a.send_active(to, 1, &[], &[7; 10_000]);
        a.progress();
        b.progress();
    }
    let names = [name(&a), name(&b)];
    assert!(names.iter().all(|name| top::endpoints(false).expect("a list").contains(name)));
    let answers = asked(&mut [&mut a, &mut b], &names);
    let (first, second) = (all(&answers[0]), all(&answers[1]));
    assert_eq!((first.v, first.pid), (VERSION, std::process::id()));
    assert_eq!(
        (first.endpoint.as_str(), first.peers[0].id.as_str()),
        (&*short(a.wireup.id), &*short(b.wireup.id))
    );
    let lane = &first.peers[0].lanes[0];
    assert!(lane.sent_bytes > 100_000 && lane.small && lane.rtt_us > Some(0), "{lane:?}");
    let named = lane.near.as_ref().zip(lane.far.as_ref());
    assert!(
        named.is_some_and(|(near, far)| near.interface.is_some() && near.interface == far.interface),
        "{lane:?}"
    );
    let other = &second.peers[0].lanes[0];
    assert!(other.received_bytes >= lane.sent_bytes, "{other:?}");
    assert_eq!(
        (&other.near, &other.far),
        (&lane.far, &lane.near),
        "the same connection, however IPv4 is dressed"
    );
    assert_eq!(first.peers[0].protocols.len(), 2);
    let kinds: Vec<&str> = first.events.iter().map(|event| event.event.name()).collect();
    // how fast it is may be known by then
    assert_eq!(kinds[..2], ["peer_up", "lane_up"]);
    let parsed = first.events.iter().all(|event| event.peer == first.peers[0].id && !event.why.is_empty());
    assert!(parsed, "{:?}", first.events);
}

#[test]
fn who_computes_says_nothing_and_delays_nobody() {
    let (idle, mut busy) = (worker(), worker());
    let names = [name(&idle), name(&busy)];
    // as long as a busy machine may take to answer
    let answers = meanwhile(&mut [&mut busy], || top::ask(&names, Duration::from_secs(3), false));
    assert_eq!((&answers[0].said, answers[0].pid), (&Said::Nothing, std::process::id()));
    all(&answers[1]);
    let gone = name(&idle);
    drop(idle);
    assert_eq!(top::ask(&[gone], Duration::from_millis(300), false), []);
}

#[test]
fn who_looks_in_now_and_then_answers_by_the_clock() {
    let mut rarely = worker();
    let asking = unix::connect(name(&rarely).as_bytes()).expect("it listens");
    let mut asking = std::fs::File::from(asking);
    look_in();
    // of the first look by the clock comes the answer's first part
    let answered = (0..4).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        rarely.progress();
        asking.read(&mut [0; 100]).is_ok_and(|bytes| bytes > 0)
    });
    look_in_no_more();
    assert!(answered, "it is not looked who asks");
}

/// A worker whose answer is longer than a socket holds.
fn talkative() -> Worker {
    let mut worker = worker();
    let me = worker.core.peers[0].id;
    let peer = worker.peer_of(PeerId(me.0.map(|byte| !byte)));
    worker.core.peers[peer.0 as usize].why = Some("x".repeat(1 << 20));
    worker
}

#[test]
fn who_reads_slowly_gets_it_all_and_who_does_not_read_is_dropped() {
    let mut worker = talkative();
    let names = [name(&worker)];
    let answers = asked(&mut [&mut worker], &names);
    assert_eq!(all(&answers[0]).peers[0].why.as_ref().map(String::len), Some(1 << 20));

    let deaf: Vec<OwnedFd> = (0..10)
        .map(|_| {
            let socket = unix::connect(names[0].as_bytes()).expect("somebody listens");
            worker.tell_watchers();
            socket
        })
        .collect();
    assert_eq!(worker.top.watchers.len(), WATCHERS);
    assert!(worker.wireup.busy(), "its deadline is looked at");
    // others are served all the same
    all(&asked(&mut [&mut worker], &names)[0]);
    progress_until(&mut [&mut worker], "the end of patience", |all| all[0].top.watchers.is_empty());
    assert!(!worker.wireup.busy(), "nothing is left to look at");
    for socket in deaf {
        let mut bytes = Vec::new();
        let ended = std::fs::File::from(socket).read_to_end(&mut bytes);
        assert!(
            ended.is_ok() && bytes.len() < 1 << 20,
            "it was closed in the middle: {ended:?}, {}",
            bytes.len()
        );
    }
}

#[test]
fn who_asks_and_goes_leaves_nothing_behind() {
    let mut worker = talkative();
    drop(unix::connect(name(&worker).as_bytes()).expect("somebody listens"));
    worker.tell_watchers();
    let other = unix::connect(name(&worker).as_bytes()).expect("somebody listens");
    worker.tell_watchers();
    assert_eq!(worker.top.watchers.len(), 1);
    drop(other);
    progress_until(&mut [&mut worker], "its end", |all| all[0].top.watchers.is_empty());
}

#[test]
fn other_users_are_not_answered() {
    // SAFETY: a plain call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        return polyrail_testing::lacking("root, to be somebody else");
    }
    let mut worker = worker();
    let name = name(&worker);
    let asked = name.clone();
    let (said, answers) = meanwhile(&mut [&mut worker], move || {
        // SAFETY: the system call, unlike the C library's function, is about this thread alone, which ends here.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
        let socket = unix::connect(asked.as_bytes()).expect("somebody listens");
        let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 10_000) }, 1, "it is told that nothing comes");
        let mut said = Vec::new();
        let _ = std::fs::File::from(socket).read_to_end(&mut said);
        (said, top::ask(&[asked], Duration::from_millis(300), false))
    });
    assert_eq!(said, b"", "a stranger is told nothing");
    assert_eq!(answers, [], "and does not ask, either");
    all(&self::asked(&mut [&mut worker], &[name])[0]);
}
