//! Sockets are set up as configured, and the kernel finds out about peers that vanish.

use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use polyrail_rails::rail::{Down, Rail};
use polyrail_rails::tcp::{Config, TcpRail, most_kept};

use crate::mock::{numbered, pair, side, sleep, sockets};

fn option(fd: RawFd, level: i32, name: i32) -> i32 {
    let (mut value, mut len) = (0i32, 4);
    // SAFETY: the kernel writes at most `len` bytes to an int.
    let result = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &mut len) };
    assert_eq!(result, 0);
    value
}

#[test]
fn sockets_are_set_up_as_configured() {
    let config = Config {
        keepalive_idle: Duration::from_secs(7),
        keepalive_interval: Duration::from_secs(3),
        keepalive_count: 5,
        congestion: Some("reno".into()),
        unsent_limit: Some(100_000),
        ..Config::default()
    };
    let (_peer, socket) = sockets("127.0.0.1");
    let fd = socket.as_raw_fd();
    let mut side = side(config.clone());
    side.adopt(socket);
    let tcp = |name| option(fd, libc::IPPROTO_TCP, name);
    assert_eq!(tcp(libc::TCP_NODELAY), 1);
    assert_eq!(option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
    assert_eq!(tcp(libc::TCP_KEEPIDLE), 7);
    assert_eq!(tcp(libc::TCP_KEEPINTVL), 3);
    assert_eq!(tcp(libc::TCP_KEEPCNT), 5);
    assert_eq!(tcp(libc::TCP_NOTSENT_LOWAT), 100_000);
    assert_eq!(tcp(libc::TCP_CONGESTION).to_ne_bytes(), *b"reno");

    let (_peer, socket) = sockets("127.0.0.1");
    let mut rail =
        TcpRail::new(Config { congestion: Some("no such thing".into()), ..config }).expect("epoll");
    assert!(rail.adopt(OwnedFd::from(socket), &[]).is_err());
}

/// Of a connection that BBR controls, whose application comes by all the time, the kernel takes a moment's worth beforehand, and keeps as much as long
/// ways need, if this user may have that; of others all is as it was.
#[test]
fn who_comes_by_all_the_time_keeps_what_waits_to_itself() {
    let seen = |congestion: &str, attends: bool| {
        let (_peer, socket) = sockets("127.0.0.1");
        let fd = socket.as_raw_fd();
        let config = Config { congestion: Some(congestion.into()), attends, ..Config::default() };
        let mut rail = TcpRail::new(config).expect("epoll");
        rail.adopt(OwnedFd::from(socket), &[]).ok()?;
        let keeps = [libc::SO_SNDBUF, libc::SO_RCVBUF].map(|name| option(fd, libc::SOL_SOCKET, name));
        Some((option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT), keeps))
    };
    let others = seen("reno", false).expect("Reno is always there");
    assert_eq!(seen("reno", true).expect("Reno is always there"), others);
    let Some((beforehand, [kept, received])) = seen("bbr", true) else {
        return polyrail_testing::lacking("a kernel that lets this user choose BBR");
    };
    assert_eq!(seen("bbr", false).expect("as before"), others);
    assert_eq!((beforehand, received), (256 << 10, others.1[1]));
    // what the kernel chooses it chooses as it goes; else it has been told
    let most = most_kept().expect("a socket");
    let chosen = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").expect("a kernel with TCP");
    let chosen: usize =
        chosen.split_whitespace().last().and_then(|most| most.parse().ok()).expect("three numbers");
    let (socket, told) = (sockets("127.0.0.1").1, 64 << 20_i32);
    // SAFETY: the kernel reads an int.
    let may = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            (&raw const told).cast(),
            4,
        )
    } == 0;
    match may {
        true => assert_eq!(
            (most, kept),
            ((128 << 20).max(chosen), if chosen < 128 << 20 { 128 << 20 } else { others.1[0] })
        ),
        false => assert!(most >= chosen && (most == chosen || kept as usize == most), "{kept} of {most}"),
    }
}

/// Switches the loopback device of the calling thread's network namespace.
fn loopback(up: bool) {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // SAFETY: zeros are a valid ifreq; the kernel reads the name and the flags.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
        request.ifr_ifru.ifru_flags = if up { libc::IFF_UP as i16 } else { 0 };
        assert_eq!(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request), 0);
    }
}

/// A network that swallows everything: a namespace of this thread's own, whose loopback device goes down.
#[test]
fn the_kernel_finds_a_peer_that_has_vanished() {
    std::thread::spawn(|| {
        // SAFETY: this thread alone moves, and it ends with the test.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let error = std::io::Error::last_os_error();
            return polyrail_testing::lacking(format_args!("root, for a network namespace: {error}"));
        }
        loopback(true);
        let config = Config {
            silence: Duration::from_millis(400),
            keepalive_idle: Duration::from_secs(1),
            keepalive_interval: Duration::from_secs(1),
            ..Config::default()
        };
        // One with bytes on their way (silence), one that only waits (keepalive).
        let (mut sender, link, mut waiter, _) = pair("127.0.0.1", &config, false);
        loopback(false);
        sender.send(link, numbered(1), &[0; 1000]).expect("room");
        for side in [&mut sender, &mut waiter] {
            let start = Instant::now();
            while side.mock.down.is_empty() && start.elapsed() < Duration::from_secs(40) {
                if side.progress() == 0 && side.rail.arm() {
                    sleep(&side.rail, 200);
                }
            }
            match &side.mock.down[..] {
                [(_, Down::Lost(e))] => {
                    let expected = [libc::ETIMEDOUT, libc::EHOSTUNREACH, libc::ENETUNREACH];
                    assert!(expected.contains(&e.raw_os_error().unwrap_or(0)), "{e}");
                }
                other => panic!("{other:?} instead of one Lost"),
            }
        }
    })
    .join()
    .expect("the test's thread");
}

#[test]
fn a_rail_may_go_before_its_peers() {
    let (raw, socket) = sockets("::1");
    let mut side = side(Config::default());
    side.adopt(socket);
    drop(side);
    let mut byte = [0];
    assert_eq!(std::io::Read::read(&mut &raw, &mut byte).expect("an end of stream"), 0);
    drop::<TcpStream>(raw);
}
