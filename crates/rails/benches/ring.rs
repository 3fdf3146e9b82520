//! The ring between two processes, each on a core of its own: what it costs, and what the cores themselves cost.
//!
//! `cargo bench -p polyrail-rails --bench ring`. Rounds are short and many; each figure is given for the best hundredth, the best
//! tenth and the median of them, because whatever else runs on the machine only ever adds.

use std::{
    hint::black_box,
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering::*},
    time::Instant,
};

use polyrail_rails::shm::{
    ring::{Consumer, Producer, sleep_barrier},
    segment::{Ends, Segment},
};

const ROUNDS: usize = 300;
const HEADER: [u8; 24] = [7; 24];

fn main() {
    println!("{:<40} {:>9} {:>9} {:>9}", "", "best 1%", "10%", "50%");
    bare_line();
    instructions(8);
    for size in [8, 32, 256, 1024, 4096, 16 << 10] {
        latency(size);
    }
    barrier();
    windows(8);
    rate(8, 5000);
    rate(1024, 1000);
    rate(16 << 10, 100);
}

/// Runs `child` in a forked process on core 1 and `parent` on core 0, and waits for the child.
fn two_processes(parent: impl FnOnce(), child: impl FnOnce()) {
    // SAFETY: this program has one thread; the child runs the closure and leaves.
    match unsafe { libc::fork() } {
        0 => {
            pin(1);
            // SAFETY: an option that is an integer: who waits for a parent that is gone would spin for ever.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            child();
            // SAFETY: leaves without running the parent's destructors.
            unsafe { libc::_exit(0) }
        }
        pid => {
            assert!(pid > 0);
            pin(0);
            parent();
            // SAFETY: our child.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        }
    }
}

fn pin(core: usize) {
    // SAFETY: a set of zeroes is an empty set, and the size is its own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

fn pair(parent: impl FnOnce(Producer, Consumer), child: impl FnOnce(Producer, Consumer)) {
    let (ours, fd) = Segment::create().expect("a segment");
    two_processes(
        move || {
            let Ends { producer: p, consumer: c, .. } = ours.split();
            parent(p, c);
        },
        move || {
            let Ends { producer: p, consumer: c, .. } =
                Segment::open(fd.as_fd()).expect("the segment").split();
            child(p, c);
        },
    );
}

fn send(p: &mut Producer, payload: &[u8]) {
    while p.try_send(&HEADER, &[payload]).is_err() {
        std::hint::spin_loop();
    }
    assert_eq!(p.peer_sleeps(), None);
}

fn receive(c: &mut Consumer, into: &mut [u8]) {
    loop {
        if let Some(frame) = c.peek() {
            let frame = frame.expect("an honest peer");
            assert_eq!(frame.header.len(), HEADER.len());
            frame.payload.copy_to(into);
            c.release();
            // Or the copy would be left out: nobody reads it.
            black_box(into);
            return;
        }
    }
}

fn report(what: &str, unit: &str, mut rounds: Vec<f64>) {
    rounds.sort_by(f64::total_cmp);
    if !unit.contains("ns") {
        rounds.reverse();
    }
    let best = |part: usize| rounds[rounds.len() / part];
    println!("{what:<40} {:>9.1} {:>9.1} {:>9.1} {unit}", best(100), best(10), best(2));
}

fn latency(size: usize) {
    const N: u32 = 100;
    let echo = move |mut p: Producer, mut c: Consumer| {
        let mut buffer = vec![0; size];
        for _ in 0..N * ROUNDS as u32 {
            receive(&mut c, &mut buffer);
            send(&mut p, &buffer);
        }
    };
    let measure = move |mut p: Producer, mut c: Consumer| {
        let mut buffer = vec![1; size];
        let mut round = |_| {
            let start = Instant::now();
            for _ in 0..N {
                send(&mut p, &buffer);
                receive(&mut c, &mut buffer);
            }
            start.elapsed().as_nanos() as f64 / f64::from(2 * N)
        };
        report(&format!("one way, {size} B"), "ns", (0..ROUNDS).map(&mut round).collect());
    };
    pair(measure, echo);
}

/// Both ends on one core: the cost without any cache-line transfer.
fn instructions(size: usize) {
    const N: u32 = 1000;
    let (ours, fd) = Segment::create().expect("a segment");
    let mut p = ours.split().producer;
    let mut c = Segment::open(fd.as_fd()).expect("the segment").split().consumer;
    let mut buffer = vec![1; size];
    let mut round = |_| {
        let start = Instant::now();
        for _ in 0..N {
            send(&mut p, &buffer);
            receive(&mut c, &mut buffer);
        }
        start.elapsed().as_nanos() as f64 / f64::from(N)
    };
    report(&format!("send and receive on one core, {size} B"), "ns", (0..ROUNDS).map(&mut round).collect());
}

/// What a worker pays before it sleeps, while a peer is running that takes part in the barrier.
fn barrier() {
    const N: u32 = 100;
    let measure = |mut p: Producer, _c: Consumer| {
        let round = |_| {
            let start = Instant::now();
            (0..N).for_each(|_| assert!(sleep_barrier()));
            start.elapsed().as_nanos() as f64 / f64::from(N)
        };
        report("barrier before a sleep", "ns", (0..ROUNDS).map(round).collect());
        send(&mut p, &[]);
    };
    pair(measure, |_p, mut c| receive(&mut c, &mut []));
}

fn rate(size: usize, n: usize) {
    let source = move |mut p: Producer, mut c: Consumer| {
        let buffer = vec![1; size];
        for _ in 0..ROUNDS {
            for _ in 0..n {
                send(&mut p, &buffer);
            }
            receive(&mut c, &mut []);
        }
    };
    let sink = move |mut p: Producer, mut c: Consumer| {
        let mut buffer = vec![0; size];
        let mut round = |_| {
            let start = Instant::now();
            for _ in 0..n {
                receive(&mut c, &mut buffer);
            }
            let seconds = start.elapsed().as_secs_f64();
            send(&mut p, &[]);
            if size < 64 { n as f64 / seconds / 1e6 } else { (n * size) as f64 / seconds / 1e6 }
        };
        let unit = if size < 64 { "M messages/s" } else { "MB/s" };
        report(&format!("stream, {size} B"), unit, (0..ROUNDS).map(&mut round).collect());
    };
    pair(sink, source);
}

/// Windows of 64 short messages, each answered by one, as message-rate benchmarks of MPI have it.
fn windows(size: usize) {
    const WINDOW: u32 = 64;
    const N: u32 = 20;
    let source = move |mut p: Producer, mut c: Consumer| {
        let buffer = vec![1; size];
        for _ in 0..N * ROUNDS as u32 {
            (0..WINDOW).for_each(|_| send(&mut p, &buffer));
            receive(&mut c, &mut []);
        }
    };
    let sink = move |mut p: Producer, mut c: Consumer| {
        let mut buffer = vec![0; size];
        let round = |_| {
            let start = Instant::now();
            for _ in 0..N {
                (0..WINDOW).for_each(|_| receive(&mut c, &mut buffer));
                send(&mut p, &[]);
            }
            f64::from(N * WINDOW) / start.elapsed().as_secs_f64() / 1e6
        };
        report(&format!("windows of {WINDOW}, {size} B"), "M messages/s", (0..ROUNDS).map(round).collect());
    };
    pair(sink, source);
}

/// The least that two cores can do: a word each, on a line of its own, answered as soon as it is seen.
fn bare_line() {
    const N: u64 = 500;
    #[repr(align(128))]
    struct Line(AtomicU64);
    // SAFETY: a fresh shared mapping, zero, larger than two lines.
    let lines: &'static [Line; 2] = unsafe {
        let (rw, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let at = libc::mmap(std::ptr::null_mut(), 4096, rw, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    };
    let turn = |i: u64, send: &AtomicU64, answer: &AtomicU64| {
        send.store(i, Release);
        while answer.load(Acquire) != i {}
    };
    two_processes(
        || {
            let mut i = 0;
            let mut round = |_| {
                let start = Instant::now();
                for _ in 0..N {
                    i += 1;
                    turn(i, &lines[0].0, &lines[1].0);
                }
                start.elapsed().as_nanos() as f64 / (2 * N) as f64
            };
            report("one way, a bare cache line", "ns", (0..ROUNDS).map(&mut round).collect());
        },
        || {
            for i in 1..=N * ROUNDS as u64 {
                while lines[0].0.load(Acquire) != i {}
                lines[1].0.store(i, Release);
            }
        },
    );
}
