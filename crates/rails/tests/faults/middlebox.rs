//! A box on the way between two hosts far apart, that lets no UDP through, or ends TCP connections: what one rail cannot bring any more
//! another does. On hosts of scripts/lab, over a path that loses, where UDP serves; needs root and its relay.

use crate::support::BOUND;
use crate::support::alone::pause;
use crate::support::node::{End, Node};
use crate::support::puppet::{Puppet, settings};
use crate::support::root;
use polyrail_core::proto::PeerIdx;
use polyrail_rails::events::Kind;
use polyrail_rails::top::Lane;
use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

const LEN: usize = 256 << 10;
const SETTINGS: &str = "RAILS=tcp,udp INTERFACES=r0";

fn script() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/lab"))
}

/// Runs a part of this file as the command of a lab.
#[track_caller]
fn in_lab(part: &str) {
    if !root("hosts of a lab") {
        return;
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return polyrail_testing::lacking("/dev/net/tun");
    }
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let relay = std::env::var_os("POLYRAIL_LAB_RELAY")
        .map_or_else(|| target.join("release/polyrail-lab-relay"), PathBuf::from);
    if !relay.exists() {
        let relay = relay.display();
        return polyrail_testing::lacking(format_args!("{relay} (cargo build --release -p polyrail-lab)"));
    }
    let mut lab = Command::new(script());
    lab.env("POLYRAIL_LAB_RELAY", relay);
    lab.args(["run", "--rails", "relay:200,delay=5ms,queue=500000,loss=0.5%", "--"]);
    lab.arg(std::env::current_exe().expect("a path"));
    let output = lab.args(["--ignored", "--exact", part, "--nocapture"]).output().expect("bash");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn lab(words: &str) {
    let status = Command::new(script()).args(words.split(' ')).status().expect("bash");
    assert!(status.success(), "{words}");
}

/// The network of a host of the lab, as a descriptor that stays open.
fn network(host: &str) -> i32 {
    let directory = std::env::var("POLYRAIL_LAB").expect("it runs in a lab");
    let pid = std::fs::read_to_string(format!("{directory}/{host}/pid")).expect("a host");
    File::open(format!("/proc/{}/ns/net", pid.trim())).expect("a network").into_raw_fd()
}

fn enter(network: i32) -> io::Result<()> {
    // SAFETY: a plain call.
    match unsafe { libc::setns(network, libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The network of host b.
static THERE: AtomicI32 = AtomicI32::new(-1);

struct Scene {
    node: Node,
    puppet: Puppet,
    peer: PeerIdx,
    back: u64,
    tag: u64,
}

impl Scene {
    fn new() -> Self {
        THERE.store(network("b"), Ordering::Relaxed);
        let mut puppet = Puppet::without_worker(|| enter(THERE.load(Ordering::Relaxed)));
        enter(network("a")).expect("root");
        puppet.open(SETTINGS);
        let mut node = Node::open(settings(SETTINGS));
        let back = puppet.introduce(&mut node);
        let peer = node.peer(&puppet.address);
        Self { node, puppet, peer, back, tag: 0 }
    }

    /// A message there and one back.
    fn talk(&mut self) {
        self.tag += 1;
        let Self { node, puppet, peer, back, tag } = self;
        let there = puppet.number_beside(node, &format!("recv {back} {tag} {LEN}"));
        let here = node.send(*peer, *tag, LEN);
        assert_eq!(puppet.ask_beside(node, &format!("wait {there}")), "Right", "{}", node.why(*peer));
        assert_eq!(node.wait(here), End::Right, "{}", node.why(*peer));
        let got = node.recv(Some(*peer), Some(*tag), LEN);
        let sent = puppet.number_beside(node, &format!("send {back} {tag} {LEN}"));
        assert_eq!(node.wait(got), End::Right, "{}", node.why(*peer));
        assert_eq!(puppet.ask_beside(node, &format!("wait {sent}")), "Right", "{}", node.why(*peer));
    }

    fn lanes(&self) -> Vec<Lane> {
        self.node.worker.snapshot().peers.first().map_or_else(Vec::new, |peer| peer.lanes.clone())
    }

    /// Bytes that lanes of a rail have carried from here.
    fn carried(&self, rail: &str) -> u64 {
        self.lanes()
            .iter()
            .filter(|lane| lane.rail.as_deref() == Some(rail))
            .map(|lane| lane.sent_bytes)
            .sum()
    }

    /// Talks until what is said goes by this rail.
    fn until_by(&mut self, rail: &str) {
        let start = Instant::now();
        loop {
            let before = self.carried(rail);
            self.talk();
            if self.carried(rail) >= before + LEN as u64 {
                return;
            }
            assert!(start.elapsed() < BOUND, "nothing goes by {rail}: {:?}", self.lanes());
        }
    }
}

#[test]
fn a_box_that_lets_no_udp_through_is_got_along_with() {
    in_lab("middlebox::no_udp");
}

#[test]
#[ignore = "runs inside a lab"]
fn no_udp() {
    lab("drop 0 udp");
    let mut scene = Scene::new();
    let refused = |node: &Node| {
        node.worker.snapshot().events.into_iter().find(|event| event.event == Kind::LaneRefused)
    };
    let start = Instant::now();
    while refused(&scene.node).is_none() {
        scene.talk();
        pause(10);
        assert!(start.elapsed() < BOUND, "it never says so: {:?}", scene.lanes());
    }
    let why = refused(&scene.node).map(|event| event.why).unwrap_or_default();
    assert!(why.contains("something on the way lets no udp through"), "{why}");
    assert!(scene.lanes().iter().all(|lane| lane.rail.as_deref() == Some("tcp")), "{:?}", scene.lanes());
}

#[test]
fn a_box_that_lets_no_udp_through_any_more_or_ends_tcp_is_survived() {
    in_lab("middlebox::changes_its_mind");
}

#[test]
#[ignore = "runs inside a lab"]
fn changes_its_mind() {
    let mut scene = Scene::new();
    scene.until_by("udp");
    lab("drop 0 udp");
    scene.until_by("tcp");
    lab("drop 0 none");
    scene.until_by("udp");
    // who speaks TCP is told that nobody is there, and gets nowhere anew
    lab("drop 0 tcp");
    lab("reset 0");
    (0..20).for_each(|_| scene.talk());
    scene.until_by("udp");
}
