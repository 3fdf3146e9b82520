//! What users are told on standard error where they asked for no log: a setting that cannot be used, and peers that are lost.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Output, Stdio};
use std::ptr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use polyrail_fi::ffi::*;

use crate::host::host;
use crate::node::{Node, TIME, Want, close, ok};

/// Which part a process of its own plays.
const PART: &str = "POLYRAIL_TEST_PART";

/// The part that this process plays.
pub fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// This test in a process of its own, which plays a part and hears nothing of a log.
fn process(test: &str, part: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test's path"));
    command.args(["--exact", test, "--nocapture"]).env(PART, part);
    command.env_remove("FI_LOG_LEVEL").env_remove("RUST_BACKTRACE").envs(settings.iter().copied());
    command
}

/// Waits for a process, at most for a time.
fn end(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().expect("a child").is_none() && start.elapsed() < 3 * TIME {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    child.wait_with_output().expect("its output")
}

/// The lines that the provider wrote in a process that played this part well.
pub fn told(test: &str, part: &str, settings: &[(&str, &str)]) -> Vec<String> {
    let child = process(test, part, settings).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let output = end(child.expect("a process"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}\n{errors}", output.status);
    errors.lines().filter(|line| line.starts_with("polyrail:")).map(Into::into).collect()
}

/// Opens a domain and an endpoint, twice: the code of each.
fn open_twice() -> [(i32, i32); 2] {
    let host = host().expect("it was there");
    let hints = host.hints();
    let info = host.getinfo(host.version(), None, None, 0, Some(&hints)).expect("an offer");
    let fabric = host.open_fabric(&info);
    let (mut domain, mut ep, none) = (ptr::null_mut(), ptr::null_mut::<fid_ep>(), ptr::null_mut());
    let codes = [(); 2].map(|()| {
        // SAFETY: open objects, and places for results.
        unsafe {
            let opened = ((*(*fabric).ops).domain)(fabric, info.list, &raw mut domain, none);
            if opened != 0 {
                return (opened, 0);
            }
            ok(((*(*domain).ops).endpoint)(domain, info.list, &raw mut ep, none));
            let (mut name, mut len) = ([0u8; 64], 64);
            let named = ((*(*ep).cm).getname)(ep.cast(), name.as_mut_ptr().cast(), &raw mut len);
            close(ep.cast());
            close(domain.cast());
            (opened, named)
        }
    });
    close(fabric.cast());
    codes
}

#[test]
fn a_setting_that_cannot_be_used_is_named_once() {
    let test = "told::a_setting_that_cannot_be_used_is_named_once";
    if host().is_none() {
        return;
    }
    match part().as_deref() {
        Some("domain") => return assert_eq!(open_twice(), [(-FI_EINVAL, 0); 2]),
        Some("endpoint") => return assert_eq!(open_twice(), [(0, -FI_EINVAL); 2]),
        Some(_) => return assert_eq!(open_twice(), [(0, 0); 2]),
        None => {}
    }
    for (part, setting, value, allowed) in [
        ("domain", "POLYRAIL_RAILS", "bogus", &["shm", "tcp"][..]),
        ("domain", "POLYRAIL_WINDOW", "much", &[]),
        ("domain", "FI_POLYRAIL_RAILS", "other", &["shm", "tcp"]),
        ("endpoint", "POLYRAIL_INTERFACES", "nosuch", &["lo"]),
    ] {
        let lines = told(test, part, &[(setting, value)]);
        let [line] = &lines[..] else { panic!("{setting}={value}: {lines:?}") };
        let name = setting.strip_prefix("FI_").unwrap_or(setting);
        for word in [name, value].iter().chain(allowed) {
            assert!(line.contains(word), "{line} says nothing of {word}");
        }
    }
    assert_eq!(told(test, "fine", &[("POLYRAIL_INTERFACES", "lo")]), [""; 0]);
    // what a file says, which counts less than the environment
    let file = std::env::temp_dir().join(format!("polyrail-told-{}.toml", std::process::id()));
    std::fs::write(&file, "window = 'much'").expect("a file");
    let path = file.to_str().expect("a path");
    let [by_file, by_both] = [("domain", ""), ("fine", "4096")]
        .map(|(part, window)| told(test, part, &[("POLYRAIL_CONFIG", path), ("POLYRAIL_WINDOW", window)]));
    std::fs::remove_file(&file).expect("the file");
    assert!(matches!(&by_file[..], [line] if line.contains("much")), "{by_file:?}");
    assert_eq!(by_both, [""; 0]);
}

/// A node that says its name, answers, and goes in order once nobody reads any more what it says.
fn peer() {
    let node = Node::new(host().expect("it was there"), Want::default());
    let name: String = node.name().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("\nname {name}");
    let (done, closed) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _ = (std::io::stdin().read_to_end(&mut Vec::new()), &done);
    });
    while closed.try_recv() == Err(mpsc::TryRecvError::Empty) {
        node.progress();
    }
}

/// A peer process, and its name.
struct Peer {
    child: Child,
    name: Vec<u8>,
}

impl Peer {
    fn start(test: &str) -> Self {
        let mut command = process(test, "peer", &[]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let name = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("name ").map(String::from));
        let name = name.expect("its name");
        let byte = |at: usize| u8::from_str_radix(&name[at..at + 2], 16).expect("hexadecimal");
        Self { name: (0..name.len()).step_by(2).map(byte).collect(), child }
    }

    fn end(mut self, kill: bool) {
        if kill {
            self.child.kill().expect("it runs");
        }
        drop(self.child.stdin.take());
        end(self.child);
    }
}

/// Messages to a peer, which ends before it has received them; then one more.
fn send_to(test: &str, kill: bool) {
    const LONG: usize = 4 << 20;
    let peer = Peer::start(test);
    let node = Node::new(host().expect("it was there"), Want::default());
    let to = node.insert(&peer.name);
    let (short, long) = ([1; 8], vec![2; LONG]);
    node.tsend(&[], &short, to, 1, 1);
    node.complete(&[]);
    node.tsend(&[], &long, to, 2, 2);
    node.tsend(&[], &long, to, 3, 3);
    peer.end(kill);
    let errors = [node.fail(&[]).err, node.fail(&[]).err];
    assert_eq!(errors, [FI_ENOTCONN; 2]);
    // SAFETY: the bytes are there during the call.
    let refused = unsafe { ((*(*node.ep).tagged).inject)(node.ep, short.as_ptr().cast(), 8, to, 4) };
    assert!(
        refused == 0 || refused == -(FI_ENOTCONN as isize) || refused == -(FI_EAGAIN as isize),
        "{refused}"
    );
}

#[test]
fn a_peer_that_was_killed_is_named_once() {
    let test = "told::a_peer_that_was_killed_is_named_once";
    if host().is_none() {
        return;
    }
    match part().as_deref() {
        Some("peer") => return peer(),
        Some(_) => return send_to(test, true),
        None => {}
    }
    for rail in ["shm", "tcp"] {
        let lines = told(test, "sender", &[("POLYRAIL_RAILS", rail)]);
        let [line] = &lines[..] else { panic!("{rail}: {lines:?}") };
        assert!(line.starts_with("polyrail: peer ") && line.contains(" at "), "{line}");
        eprintln!("{line}");
    }
}

#[test]
fn a_peer_that_closes_in_order_is_not_told_of() {
    let test = "told::a_peer_that_closes_in_order_is_not_told_of";
    if host().is_none() {
        return;
    }
    match part().as_deref() {
        Some("peer") => return peer(),
        Some(_) => return send_to(test, false),
        None => {}
    }
    for rail in ["shm", "tcp"] {
        assert_eq!(told(test, "sender", &[("POLYRAIL_RAILS", rail)]), [""; 0], "{rail}");
    }
}
