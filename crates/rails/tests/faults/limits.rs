//! A host that has no descriptors, no shared memory, or no port left.

use crate::support::alone::{alone, alone_in_mounts, run};
use crate::support::node::{End, GONE, Node};
use crate::support::puppet::{Puppet, settings};
use crate::support::seccomp::refuse_memfd;
use crate::support::{descriptors, limit_descriptors};
use polyrail_rails::{Config, Worker};
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

const RAILS: [&str; 2] = ["RAILS=shm", "RAILS=tcp"];

/// All descriptors that this process can have, but for so many.
struct Hog {
    _files: Vec<File>,
}

impl Hog {
    fn leaving(free: usize) -> Self {
        limit_descriptors(descriptors() + 32);
        let mut all: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        assert!(all.len() >= free);
        all.truncate(all.len() - free);
        Self { _files: all }
    }
}

#[test]
fn opening_without_descriptors_says_so_and_leaves_none() {
    alone(|| {
        // whatever is initialized once is initialized now
        drop(Worker::open(settings("")).expect("a worker"));
        let before = descriptors();
        let mut refused = 0;
        for free in 0.. {
            limit_descriptors(before + free);
            let opened = Worker::open(settings(""));
            limit_descriptors(1000);
            match opened {
                Ok(worker) => {
                    drop(worker);
                    break;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("ulimit -n"), "{free} left: {text}");
                    refused += 1;
                }
            }
            assert_eq!(descriptors(), before, "{free} left");
        }
        assert!(refused > 3);
        assert_eq!(descriptors(), before);
    });
}

#[test]
fn connecting_without_descriptors_ends_with_the_reason() {
    alone(|| {
        for rails in ["RAILS=shm", "RAILS=tcp", ""] {
            let mut node = Node::open(settings(rails));
            let (mut known, mut stranger) = (Puppet::start(rails), Puppet::start(rails));
            for puppet in [&mut known, &mut stranger] {
                puppet.ask("echo");
            }
            let (to_known, to_stranger) = (node.peer(&known.address), node.peer(&stranger.address));
            node.converse(to_known);
            let hog = Hog::leaving(0);
            let sent = node.send(to_stranger, 1, 8);
            assert_eq!(node.wait(sent), GONE, "{rails}");
            let why = node.lost(to_stranger, &stranger.address);
            assert!(why.contains("ulimit -n"), "{why}");
            node.converse(to_known);
            drop(hog);
            std::thread::sleep(Duration::from_millis(1100));
            node.converse(to_stranger);
        }
    });
}

/// How often the worker's descriptor wakes a sleeper in half a second.
fn wakes(node: &mut Node) -> usize {
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(500) {
        if node.worker.progress() == 0 && node.worker.arm() {
            let mut poll = libc::pollfd { fd: node.worker.wait_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry.
            unsafe { libc::poll(&mut poll, 1, 500) };
            count += 1;
        }
    }
    count
}

#[test]
fn accepting_without_descriptors_waits_for_some_and_does_not_spin() {
    alone(|| {
        for rails in RAILS {
            let mut node = Node::open(settings(rails));
            let (mut known, mut stranger) = (Puppet::start(rails), Puppet::start(rails));
            known.ask("echo");
            let to_known = node.peer(&known.address);
            node.converse(to_known);
            let hog = Hog::leaving(0);
            let back = stranger.introduce(&mut node);
            let there = stranger.number_beside(&mut node, &format!("send {back} 7 1000"));
            let wakes = wakes(&mut node);
            assert!(wakes < 50, "{rails}: woken {wakes} times for nothing");
            node.converse(to_known);
            drop(hog);
            let arrives = node.recv(None, Some(7), 1000);
            assert_eq!(node.wait(arrives), End::Right, "{rails}");
            assert_eq!(stranger.ask(&format!("wait {there}")), "Right");
        }
    });
}

/// However few are left, and wherever that is found out: a connection comes about, or its failure is told.
#[test]
fn a_few_descriptors_are_enough_or_their_want_is_told() {
    alone(|| {
        for rails in ["RAILS=shm", "RAILS=tcp", ""] {
            for free in 0..8 {
                for connects in [true, false] {
                    let mut node = Node::open(settings(rails));
                    let mut puppet = Puppet::start(&format!("{rails} CONNECT_TIMEOUT=1"));
                    puppet.ask("echo");
                    let peer = node.peer(&puppet.address);
                    let back = puppet.introduce(&mut node);
                    let hog = Hog::leaving(free);
                    let what = format!("{rails}, {free} left, connects: {connects}");
                    let connected = if connects {
                        let sent = node.send(peer, 1, 100);
                        let end = node.wait(sent);
                        drop(hog);
                        assert!(end == End::Right || !node.why(peer).is_empty(), "{what}");
                        end == End::Right
                    } else {
                        let there = puppet.number(&format!("send {back} 1 100"));
                        for _ in 0..1000 {
                            node.progress();
                        }
                        drop(hog);
                        puppet.ask_beside(&mut node, &format!("wait {there}")) == "Right"
                    };
                    assert!(connected || free < 6, "{what}");
                    if !connected {
                        std::thread::sleep(Duration::from_millis(1100));
                    }
                    node.converse(peer);
                }
            }
        }
    });
}

#[test]
fn without_shared_memory_tcp_is_taken() {
    let mut node = Node::open(settings(""));
    let mut puppet = Puppet::after(refuse_memfd, "");
    puppet.ask("echo");
    let peer = node.peer(&puppet.address);
    node.converse(peer);
    assert_eq!(node.worker.route(peer).expect("connected").0, "tcp");

    let mut node = Node::open(settings("RAILS=shm"));
    let peer = node.peer(&puppet.address);
    let sent = node.send(peer, 1, 8);
    assert_eq!(node.wait(sent), GONE);
    assert!(node.lost(peer, &puppet.address).contains("resources"));
}

#[test]
fn a_full_dev_shm_does_not_matter() {
    alone_in_mounts(|| {
        run("mount -t tmpfs -o size=4k none /dev/shm");
        let full = std::fs::write("/dev/shm/full", vec![0; 1 << 20]);
        assert!(full.is_err());
        let mut node = Node::open(settings("RAILS=shm"));
        let mut puppet = Puppet::start("RAILS=shm");
        puppet.ask("echo");
        let peer = node.peer(&puppet.address);
        node.converse(peer);
        let region = puppet.number(&format!("region 5 {}", 16 << 20));
        assert_eq!(region, 0);
        let got = node.get(peer, 5, 16 << 20);
        assert_eq!(node.wait(got), End::Right);
    });
}

#[test]
fn a_port_in_use_is_named_with_what_to_do() {
    for taken in ["[::]:0", "0.0.0.0:0", "127.0.0.1:0", "[::1]:0"] {
        let other = TcpListener::bind(taken).expect("a port");
        let port = other.local_addr().expect("it is bound").port();
        let error = Worker::open(settings(&format!("PORT={port}"))).err();
        let text = error.unwrap_or_else(|| panic!("{taken}: it is taken")).to_string();
        assert!(text.contains(&port.to_string()) && text.contains("POLYRAIL_PORT"), "{text}");
    }
    let at: SocketAddr = "192.0.2.77:4711".parse().expect("an address");
    let elsewhere = Config { key: polyrail_core::wire::Key::new([1; 16]), ..settings("") }.listen_on(at);
    let text = Worker::open(elsewhere).err().expect("not an address of this host").to_string();
    assert!(text.contains("192.0.2.77") && text.contains("4711"), "{text}");
}
