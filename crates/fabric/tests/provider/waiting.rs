//! Sleeping, waking, and progress by itself.

use std::process::Command;
use std::ptr;
use std::time::{Duration, Instant};

use polyrail_fi::ffi::*;

use crate::host::{host, look_in};
use crate::node::{Node, TIME, Want, context, ok, pair};

/// So long sleeps who is not woken: it cannot be mistaken for a busy machine.
const SLEEP: Duration = Duration::from_secs(20);

/// `fi_cq_sread` of one entry.
fn sread(node: &Node<'_>, timeout: i32) -> isize {
    // SAFETY: numbers and pointers may be zero.
    let mut entry: fi_cq_tagged_entry = unsafe { std::mem::zeroed() };
    // SAFETY: room for one entry.
    unsafe { ((*(*node.cq).ops).sread)(node.cq, (&raw mut entry).cast(), 1, ptr::null(), timeout) }
}

fn cpu_time() -> Duration {
    // SAFETY: a place for the answer.
    unsafe {
        let mut time = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

#[test]
fn a_blocking_read_ends_in_time_and_sleeps() {
    let Some(host) = host() else { return };
    let node = Node::new(host, Want::default());
    let (start, cpu) = (Instant::now(), cpu_time());
    assert_eq!(sread(&node, 300), -(FI_EAGAIN as isize));
    let (took, worked) = (start.elapsed(), cpu_time() - cpu);
    assert!(took >= Duration::from_millis(295) && took < TIME, "{took:?}");
    assert!(worked < Duration::from_millis(100), "it spins: {worked:?}");
    let none = Node::new(host, Want { wait: FI_WAIT_NONE, ..Want::default() });
    assert_eq!(sread(&none, 0), -(FI_EINVAL as isize));
}

#[test]
fn a_message_wakes_a_blocking_read() {
    let Some(host) = host() else { return };
    let p = pair(host, Want::default());
    let mut got = [0; 3];
    p.b.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 1);
    std::thread::scope(|threads| {
        let b = &p.b;
        let reader = threads.spawn(move || {
            let start = Instant::now();
            (sread(b, SLEEP.as_millis() as i32), start.elapsed())
        });
        std::thread::sleep(Duration::from_millis(200));
        p.a.tinject(&[], b"hey", p.to_b, 1);
        let start = Instant::now();
        while !reader.is_finished() {
            p.a.progress();
            assert!(start.elapsed() < TIME);
        }
        let (got, took) = reader.join().unwrap();
        assert_eq!(got, 1);
        assert!(took < SLEEP, "{took:?}");
    });
    assert_eq!(&got, b"hey");
}

#[test]
fn a_signal_wakes_a_blocking_read_once() {
    let Some(host) = host() else { return };
    let node = Node::new(host, Want::default());
    let signal = || {
        // SAFETY: an open queue.
        ok(unsafe { ((*(*node.cq).ops).signal)(node.cq) });
    };
    signal();
    let start = Instant::now();
    assert_eq!(sread(&node, SLEEP.as_millis() as i32), -(FI_EAGAIN as isize));
    assert!(start.elapsed() < SLEEP);
    assert_eq!(sread(&node, 50), -(FI_EAGAIN as isize));
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| sread(&node, SLEEP.as_millis() as i32));
        std::thread::sleep(Duration::from_millis(100));
        signal();
        assert_eq!(reader.join().unwrap(), -(FI_EAGAIN as isize));
    });
    assert!(start.elapsed() < SLEEP);
}

fn readable(fd: i32, timeout: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut poll, 1, timeout) == 1 }
}

#[test]
fn the_descriptor_tells_what_try_wait_promised() {
    let Some(host) = host() else { return };
    let p = pair(host, Want::default());
    let cq = p.b.cq.cast::<fid>();
    let mut fd = -1;
    // SAFETY: an open queue, and a place for the descriptor.
    ok(unsafe { ((*(*cq).ops).control)(cq, FI_GETWAIT, (&raw mut fd).cast()) });
    let try_wait = || {
        let mut fids = [cq];
        // SAFETY: one open object.
        unsafe { ((*(*p.b.fabric).ops).trywait)(p.b.fabric, fids.as_mut_ptr(), 1) }
    };
    // connected first: wireup moves by itself
    let mut got = [[0; 1]; 3];
    p.b.trecv(&mut got[0], FI_ADDR_UNSPEC, 1, 0, 1);
    p.a.tinject(&[&p.b], &[1], p.to_b, 1);
    p.b.complete(&[&p.a]);
    for (n, buf) in got[1..].iter_mut().enumerate() {
        p.b.trecv(buf, FI_ADDR_UNSPEC, 1, 0, 1);
        let start = Instant::now();
        while try_wait() == -FI_EAGAIN {
            assert!(p.b.read().is_err() && start.elapsed() < TIME);
        }
        assert!(!readable(fd, 50), "nothing has come");
        p.a.tinject(&[], &[n as u8 + 2], p.to_b, 1);
        p.a.progress();
        assert!(readable(fd, 10_000), "the message wakes");
        p.b.complete(&[&p.a]);
        p.a.tinject(&[], &[9], p.to_b, 77);
    }
    assert_eq!(got, [[1], [2], [3]]);
    let mut kind = 0;
    // SAFETY: a place for the answer.
    ok(unsafe { ((*(*cq).ops).control)(cq, FI_GETWAITOBJ, (&raw mut kind).cast::<u32>().cast()) });
    assert_eq!(kind, FI_WAIT_FD);
}

#[test]
fn counters_are_waited_for() {
    let Some(host) = host() else { return };
    let mut memory = [0u8; 8];
    let mut p = pair(host, Want::default());
    p.b.register(&mut memory, 1).unwrap();
    let wait = |node: &Node<'_>, cntr: *mut fid_cntr, threshold, timeout| {
        let _ = node;
        // SAFETY: an open counter.
        unsafe { ((*(*cntr).ops).wait)(cntr, threshold, timeout) }
    };
    assert_eq!(wait(&p.b, p.b.written, 1, 0), -FI_ETIMEDOUT);
    assert_eq!(wait(&p.b, p.b.written, 1, 100), -FI_ETIMEDOUT);
    std::thread::scope(|threads| {
        let (b, written) = (&p.b, p.b.written as usize);
        let waiter = threads.spawn(move || wait(b, written as *mut fid_cntr, 2, 20_000));
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(50));
            // SAFETY: the value is there during the call.
            p.a.retry(&[], |ep| unsafe { ((*(*ep).rma).inject)(ep, [1u8].as_ptr().cast(), 1, p.to_b, 0, 1) });
        }
        let start = Instant::now();
        while !waiter.is_finished() {
            p.a.progress();
            assert!(start.elapsed() < TIME);
        }
        assert_eq!(waiter.join().unwrap(), 0);
    });
    // SAFETY: an open counter.
    unsafe {
        let ops = &*(*p.b.written).ops;
        ok((ops.add)(p.b.written, 5));
        assert_eq!((ops.read)(p.b.written), 7);
        ok((ops.set)(p.b.written, 100));
        assert_eq!((ops.read)(p.b.written), 100);
        ok(ops.seterr.unwrap()(p.b.written, 3));
        ok(ops.adderr.unwrap()(p.b.written, 4));
        assert_eq!((ops.readerr)(p.b.written), 7);
    }
}

#[test]
fn automatic_progress_serves_peers() {
    serves_peers(|h| {
        // SAFETY: the host's hints.
        unsafe { (*h.domain_attr).data_progress = FI_PROGRESS_AUTO };
    });
}

/// Nobody asked for it.
#[test]
fn memory_that_peers_reach_is_served() {
    serves_peers(|_| ());
    serves_peers(serialised);
}

fn serialised(h: &mut fi_info) {
    // SAFETY: the host's hints.
    unsafe { (*h.domain_attr).threading = FI_THREAD_DOMAIN };
}

/// The target never calls into libfabric while it is written to.
fn serves_peers(hints: fn(&mut fi_info)) {
    let Some(host) = host() else { return };
    let mut memory = vec![0u8; 1 << 20];
    let mut b = Node::new(host, Want { hints, wait: FI_WAIT_NONE, ..Want::default() });
    b.register(&mut memory, 1).unwrap();
    let a = Node::new(host, Want::default());
    let to_b = a.insert(&b.name());
    let bytes = crate::node::pattern(1 << 20, 1);
    for _ in 0..3 {
        // SAFETY: the bytes live until the completion.
        a.retry(&[], |ep| unsafe {
            ((*(*ep).rma).write)(
                ep,
                bytes.as_ptr().cast(),
                bytes.len(),
                ptr::null_mut(),
                to_b,
                0,
                1,
                context(1),
            )
        });
        a.complete(&[]);
        std::thread::sleep(Duration::from_millis(20));
        // now the target polls for a while, and stops again
        (0..100).for_each(|_| b.progress());
    }
    assert!(memory == bytes);
    assert_eq!(b.count(b.written), 3);
}

/// Neither side calls into libfabric while a long message goes from one to the other; between, short ones do as ever.
#[test]
fn what_is_long_goes_on_while_applications_compute() {
    let Some(host) = host() else { return };
    for hints in [serialised, |_: &mut fi_info| ()] {
        let p = pair(host, Want { hints, wait: FI_WAIT_NONE, ..Want::default() });
        for round in 0..4 {
            for tag in 0..200 {
                let mut got = [0; 3];
                p.b.trecv(&mut got, FI_ADDR_UNSPEC, tag, 0, 1);
                p.a.tinject(&[&p.b], b"hey", p.to_b, tag);
                p.b.complete(&[&p.a]);
                assert_eq!(&got, b"hey");
            }
            let bytes = crate::node::pattern(4 << 20, round);
            let mut got = vec![0; bytes.len()];
            p.b.trecv(&mut got, FI_ADDR_UNSPEC, 1000, 0, 1);
            p.a.tsend(&[], &bytes, p.to_b, 1000, 2);
            let start = Instant::now();
            // SAFETY: within the buffer, which is written meanwhile.
            while bytes != unsafe { crate::node::as_it_is(&got) } {
                assert!(start.elapsed() < TIME, "it waits for the applications");
                std::thread::sleep(Duration::from_millis(1));
            }
            p.a.complete(&[&p.b]);
            p.b.complete(&[&p.a]);
            // long enough for the threads to rest
            std::thread::sleep(Duration::from_millis(30 * (round as u64 % 2)));
        }
    }
}

/// Whether this is a process whose environment says that readers sleep; if not, the test of this name is carried out in one.
fn is_sleeping(test: &str) -> bool {
    const SETTING: &str = "POLYRAIL_SLEEP_AFTER";
    if std::env::var_os(SETTING).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(SETTING, "1")
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if start.elapsed() > 5 * TIME => break None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let _ = (child.kill(), child.wait());
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    false
}

/// How often this thread has left its processor of its own accord.
fn sleeps() -> i64 {
    // SAFETY: a place for the answer.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// Who waits for something else and only looks in is not put to sleep, as he would be else.
#[test]
fn who_looks_in_does_not_sleep() {
    const ROUNDS: u32 = 2000;
    let Some(host) = host() else { return };
    if !is_sleeping("waiting::who_looks_in_does_not_sleep") {
        return;
    }
    let node = Node::new(host, Want::default());
    let slept = || {
        let before = sleeps();
        (0..ROUNDS).for_each(|_| assert_eq!(node.read().err(), Some(FI_EAGAIN)));
        sleeps() - before
    };
    let asleep = slept();
    look_in(true);
    let looking_in = slept();
    look_in(false);
    assert!(looking_in * 10 < asleep, "{looking_in} and {asleep}");
}

/// Who works between his reads is not put to sleep, and who only reads is; several reads after one another make no difference.
#[test]
fn who_works_between_reads_does_not_sleep() {
    const READS: u32 = 3;
    let Some(host) = host() else { return };
    if !is_sleeping("waiting::who_works_between_reads_does_not_sleep") {
        return;
    }
    let node = Node::new(host, Want::default());
    let slept = |rounds: u32, work: Duration| {
        let before = sleeps();
        for _ in 0..rounds {
            (0..READS).for_each(|_| assert_eq!(node.read().err(), Some(FI_EAGAIN)));
            let start = Instant::now();
            while start.elapsed() < work {}
        }
        sleeps() - before
    };
    for _ in 0..2 {
        let asleep = slept(500, Duration::ZERO);
        assert!(asleep > 20, "{asleep}");
        // before it is known what he does now, he may sleep some times, and find himself without a processor meanwhile
        let working = slept(5000, Duration::from_micros(20));
        assert!(working < 20, "{working}");
    }
}

/// Messages that come just when a reader is about to sleep: in a process of its own, as only its environment says so.
#[test]
fn readers_that_sleep_miss_nothing() {
    const MESSAGES: u64 = 2000;
    let Some(host) = host() else { return };
    if !is_sleeping("waiting::readers_that_sleep_miss_nothing") {
        return;
    }
    let p = pair(host, Want::default());
    let mut seed = 1u32;
    std::thread::scope(|threads| {
        let b = &p.b;
        let reader = threads.spawn(move || {
            for tag in 0..MESSAGES {
                let mut got = [0; 8];
                b.trecv(&mut got, FI_ADDR_UNSPEC, tag, 0, 1);
                b.complete(&[]);
                assert_eq!(u64::from_le_bytes(got), tag);
            }
        });
        for tag in 0..MESSAGES {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // about as long as it takes to fall asleep
            let pause = Duration::from_nanos(u64::from(seed >> 15));
            let start = Instant::now();
            while start.elapsed() < pause {
                std::hint::spin_loop();
            }
            p.a.tinject(&[], &tag.to_le_bytes(), p.to_b, tag);
        }
        while !reader.is_finished() {
            p.a.progress();
        }
        reader.join().unwrap();
    });
}
