//! Waits end when the program wants them to, and calls that were interrupted go on when they are made again; jobs that cannot be are refused at once.

use polyrail_p2p::{Error, Founding, Job, Link, Pause, Peers, Received, Scheme, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

fn settings(pause: Option<Pause>) -> Settings {
    Settings { pause, ..Settings::from_env().expect("settings") }
}

/// Interrupts each wait that it is asked about while this is so.
fn pause(interrupts: &Arc<AtomicBool>) -> Option<Pause> {
    let interrupts = interrupts.clone();
    Some(Pause::new(
        move || {
            if interrupts.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
        },
    ))
}

fn job() -> Job {
    Job { parts: 2, scheme: Scheme::Synchronous, tolerance: 1.0, every: 1, keep: 0, task: Vec::new() }
}

/// Iterations of which the first is judged by nobody, and the next comes close: in that after it who has a small norm waits for what is said of it.
fn come_close(peers: &mut Peers, to: Link, from: Link) {
    for iteration in 0..2 {
        let mut into = [0; 1];
        peers.send(to, &[1]).expect("it is sent");
        assert_eq!(peers.receive(from, &mut into).expect("it comes"), Received::New { iteration });
        assert_eq!(peers.converged(2.0).expect("the other is there"), None);
    }
}

#[test]
fn calls_that_were_interrupted_go_on() {
    let interrupts = Arc::new(AtomicBool::new(false));
    let founding = Founding::new(settings(pause(&interrupts))).expect("an endpoint");
    let address = founding.address();
    let (go_on, waits) = channel();
    let other = std::thread::spawn(move || {
        let mut peers = Peers::join(settings(None), &address).expect("it joins");
        let (to, from, mut into) = (Link::new(1, 0), Link::new(0, 1), [0; 1]);
        come_close(&mut peers, to, from);
        // what the founder waits for comes once that was interrupted: first a message, then a norm
        waits.recv().expect("the founder was interrupted");
        peers.send(to, &[7]).expect("it is sent");
        peers.receive(from, &mut into).expect("it comes");
        while waits.try_recv().is_err() {
            peers.wait(&[], Duration::from_millis(10)).expect("the founder is there");
        }
        let verdict = peers.converged(0.5).expect("the founder is there");
        peers.leave(Duration::from_secs(5));
        (into, verdict)
    });
    let mut peers = founding.gather(job(), 1, |_| Ok(())).expect("it begins");
    let (to, from, mut into) = (Link::new(0, 1), Link::new(1, 0), [0; 1]);
    come_close(&mut peers, to, from);
    interrupts.store(true, Ordering::Relaxed);
    peers.send(to, &[8]).expect("it is sent");
    assert!(matches!(peers.receive(from, &mut into), Err(Error::Interrupted)));
    assert!(matches!(peers.wait(&[from], Duration::from_secs(60)), Err(Error::Interrupted)));
    assert!(matches!(peers.posted(Duration::from_secs(60)), Err(Error::Interrupted)));
    interrupts.store(false, Ordering::Relaxed);
    go_on.send(()).expect("the other is there");
    assert_eq!(peers.receive(from, &mut into).expect("it comes"), Received::New { iteration: 2 });
    interrupts.store(true, Ordering::Relaxed);
    assert!(matches!(peers.converged(0.75), Err(Error::Interrupted)));
    interrupts.store(false, Ordering::Relaxed);
    go_on.send(()).expect("the other is there");
    // what it is called with when it goes on is not another iteration's norm
    let verdict = peers.converged(0.25).expect("the other is there").expect("both norms are small");
    assert_eq!((verdict.iteration, verdict.norm), (2, 0.75));
    // who has the verdict may leave before it was told
    peers.leave(Duration::from_secs(5));
    let (had, others) = other.join().expect("it ends");
    assert_eq!((had, into, others), ([8], [7], Some(verdict)));
}

#[test]
fn who_founds_and_who_joins_can_be_interrupted() {
    let asked = Arc::new(AtomicU32::new(0));
    let counts = asked.clone();
    let twice = Pause::new(move || match counts.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(Error::Interrupted),
    });
    let founding = Founding::new(settings(None)).expect("an endpoint");
    let joined = Peers::join(settings(Some(twice)), &founding.address());
    assert!(matches!(joined, Err(Error::Interrupted)));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let interrupts = Arc::new(AtomicBool::new(true));
    let founding = Founding::new(settings(pause(&interrupts))).expect("an endpoint");
    assert!(matches!(founding.gather(job(), 1, |_| Ok(())), Err(Error::Interrupted)));
}

#[test]
fn jobs_that_cannot_be_are_refused() {
    let bad = [
        (Job { every: 0, ..job() }, "every 0"),
        (Job { parts: 0, ..job() }, "0 parts"),
        (Job { parts: u32::MAX, ..job() }, "4294967295 parts"),
        (Job { tolerance: f64::NAN, ..job() }, "NaN"),
        (Job { tolerance: -1.0, ..job() }, "-1"),
        (Job { scheme: Scheme::Bounded(0), ..job() }, "bound"),
        (Job { task: vec![0; (1 << 16) + 1], ..job() }, "task"),
    ];
    for (job, names) in bad {
        let founding = Founding::new(settings(None)).expect("an endpoint");
        // before it waits for anybody
        let why = founding.gather(job, 1, |_| unreachable!("it waits")).err().expect("it is refused");
        assert!(matches!(why, Error::Use(_)) && why.to_string().contains(names), "{names}: {why}");
    }
}
