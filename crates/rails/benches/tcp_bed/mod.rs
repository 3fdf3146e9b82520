//! Connections to measure on: the loopback device, or a veth pair between two network namespaces. The namespaces have no
//! names: they end with the sockets in them, whatever ends the program.
#![allow(dead_code, reason = "each bench uses a part")]

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bed {
    Loopback,
    Veth,
}

/// Two connected sockets without Nagle's delay, under the congestion control that no default changes.
///
/// # Errors
/// Why this bed cannot be had here.
pub fn connect(bed: Bed) -> Result<(TcpStream, TcpStream), String> {
    let (a, b) = match bed {
        Bed::Loopback => {
            let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
            let a = TcpStream::connect(listener.local_addr().map_err(|e| e.to_string())?);
            (a.map_err(|e| e.to_string())?, listener.accept().map_err(|e| e.to_string())?.0)
        }
        Bed::Veth => veth()?,
    };
    for socket in [&a, &b] {
        socket.set_nodelay(true).map_err(|e| e.to_string())?;
        set(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"cubic");
    }
    Ok((a, b))
}

fn set(socket: &TcpStream, level: i32, name: i32, value: &[u8]) {
    use std::os::fd::AsRawFd;
    // SAFETY: the kernel reads `value.len()` bytes.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "setsockopt {name}");
}

fn ip(arguments: &str) -> Result<(), String> {
    let out = Command::new("ip").args(arguments.split(' ')).output().map_err(|e| format!("ip: {e}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    if out.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {said}")) }
}

/// Moves the calling thread to a network namespace of its own.
fn unshare() -> Result<(), String> {
    // SAFETY: only the calling thread is moved.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(format!("a network namespace takes root: {}", std::io::Error::last_os_error())),
    }
}

fn veth() -> Result<(TcpStream, TcpStream), String> {
    let (to_left, at_left) = channel();
    let (to_right, at_right) = channel();
    let right = thread::spawn(move || right_end(&to_left, &at_right));
    let left = thread::spawn(move || left_end(&to_right, &at_left));
    let left = left.join().map_err(|_| "the left end panicked")?;
    let right = right.join().map_err(|_| "the right end panicked")?;
    Ok((left?, right?))
}

fn right_end(to_left: &Sender<i32>, from_left: &Receiver<()>) -> Result<TcpStream, String> {
    unshare()?;
    // SAFETY: no arguments.
    to_left.send(unsafe { libc::gettid() }).map_err(|e| e.to_string())?;
    from_left.recv().map_err(|_| "the left end gave up")?;
    ip("addr add 10.213.7.2/30 dev right")?;
    ip("link set right up")?;
    let listener = TcpListener::bind("10.213.7.2:7777").map_err(|e| e.to_string())?;
    to_left.send(0).map_err(|e| e.to_string())?;
    Ok(listener.accept().map_err(|e| e.to_string())?.0)
}

fn left_end(to_right: &Sender<()>, from_right: &Receiver<i32>) -> Result<TcpStream, String> {
    unshare()?;
    let other = from_right.recv().map_err(|_| "the right end gave up")?;
    ip(&format!("link add left type veth peer name right netns {other}"))?;
    ip("addr add 10.213.7.1/30 dev left")?;
    ip("link set left up")?;
    to_right.send(()).map_err(|e| e.to_string())?;
    from_right.recv().map_err(|_| "the right end gave up")?;
    TcpStream::connect("10.213.7.2:7777").map_err(|e| e.to_string())
}

/// Keeps the calling thread on one processor, where there are enough.
pub fn pin(cpu: usize) {
    // SAFETY: zeros are a valid set; the kernel reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Processor time of the calling thread.
pub fn thread_time() -> Duration {
    // SAFETY: the kernel writes one timespec.
    let t = unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t);
        t
    };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Runs `body`; its wall time and the calling thread's processor time, in seconds.
pub fn timed(body: impl FnOnce()) -> (f64, f64) {
    let (wall, cpu) = (Instant::now(), thread_time());
    body();
    (wall.elapsed().as_secs_f64(), (thread_time() - cpu).as_secs_f64())
}

pub fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}
