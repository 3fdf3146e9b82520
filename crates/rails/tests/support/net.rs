//! A second host, as far as the network is concerned: a puppet in a network namespace of its own, joined to the test's by a
//! veth pair. Nothing of it has a name outside the two, and all goes when they go.

use super::BOUND;
use super::alone::{pause, run, unshare};
use super::puppet::Puppet;
use std::process::{Command, Stdio};
use std::time::Instant;

pub const HERE: &str = "10.77.0.1";
pub const THERE: &str = "10.77.0.2";
const MAC_HERE: &str = "02:00:00:00:77:01";
const MAC_THERE: &str = "02:00:00:00:77:02";

/// Runs a command in the puppet's namespace.
pub fn there(puppet: &Puppet, line: &str) {
    run(&format!("nsenter -t {} -n {line}", puppet.pid()));
}

/// A puppet on another host, its worker not opened yet. This process is in a namespace of its own already.
pub fn other_host() -> Puppet {
    let puppet = Puppet::without_worker(|| unshare(libc::CLONE_NEWNET));
    run("ip link set lo up");
    run(&format!(
        "ip link add v0 address {MAC_HERE} type veth peer v1 address {MAC_THERE} netns {}",
        puppet.pid()
    ));
    there(&puppet, "ip link set lo up");
    there(&puppet, &format!("ip addr add {THERE}/24 dev v1"));
    there(&puppet, "ip link set v1 up");
    run(&format!("ip addr add {HERE}/24 dev v0"));
    run("ip link set v0 up");
    wait_for_carrier(&["ip", "-o", "link", "show", "v0"]);
    let pid = puppet.pid().to_string();
    wait_for_carrier(&["nsenter", "-t", &pid, "-n", "ip", "-o", "link", "show", "v1"]);
    puppet
}

/// The kernel says that an interface runs up to a second after it does; a worker opened before that would not use it.
fn wait_for_carrier(show: &[&str]) {
    let start = Instant::now();
    loop {
        let shown = Command::new(show[0]).args(&show[1..]).output().expect("a command");
        if String::from_utf8_lossy(&shown.stdout).contains("state UP") {
            return;
        }
        assert!(start.elapsed() < BOUND, "no carrier: {shown:?}");
        pause(10);
    }
}

/// The puppet's host is gone at once: nobody hears of it.
pub fn crash(puppet: &mut Puppet) {
    cut(puppet);
    puppet.kill();
    // with the namespace goes its end of the pair, and so this one; whichever comes first
    let _ = Command::new("ip").args(["link", "del", "v0"]).stderr(Stdio::null()).status();
}

/// Packets vanish from now on, both ways, without anybody being told.
pub fn cut(puppet: &Puppet) {
    let lost = "lladdr 02:00:00:00:00:99 nud permanent dev";
    run(&format!("ip neigh replace {THERE} {lost} v0"));
    there(puppet, &format!("ip neigh replace {HERE} {lost} v1"));
}

/// Packets arrive again.
pub fn mend(puppet: &Puppet) {
    run(&format!("ip neigh replace {THERE} lladdr {MAC_THERE} nud permanent dev v0"));
    there(puppet, &format!("ip neigh replace {HERE} lladdr {MAC_HERE} nud permanent dev v1"));
}

/// A puppet on another host, joined to this one by so many rails: r0, r1 ... on both, 10.78.N.1 here and 10.78.N.2 there.
pub fn host_with_rails(count: usize) -> Puppet {
    let puppet = Puppet::without_worker(|| unshare(libc::CLONE_NEWNET));
    run("ip link set lo up");
    there(&puppet, "ip link set lo up");
    for n in 0..count {
        run(&format!("ip link add r{n} type veth peer r{n} netns {}", puppet.pid()));
        run(&format!("ip addr add 10.78.{n}.1/24 dev r{n}"));
        there(&puppet, &format!("ip addr add 10.78.{n}.2/24 dev r{n}"));
        run(&format!("ip link set r{n} up"));
        there(&puppet, &format!("ip link set r{n} up"));
    }
    let pid = puppet.pid().to_string();
    for n in 0..count {
        let name = format!("r{n}");
        wait_for_carrier(&["ip", "-o", "link", "show", &name]);
        wait_for_carrier(&["nsenter", "-t", &pid, "-n", "ip", "-o", "link", "show", &name]);
    }
    puppet
}

/// Pulls a rail's cable, or puts it in again.
pub fn rail(n: usize, up: bool) {
    run(&format!("ip link set r{n} {}", if up { "up" } else { "down" }));
}

/// Resets all connections that run over a rail. False where the kernel or the system cannot.
pub fn reset(n: usize) -> bool {
    let done = Command::new("ss").args(["-K", "src", &format!("10.78.{n}.1")]).output();
    done.is_ok_and(|output| output.status.success())
}
