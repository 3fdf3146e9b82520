//! Workers in processes of their own, told what to do line by line over a socket, to be stopped and killed at any moment.

use super::BOUND;
use super::alone::die_with_parent;
use super::node::{End, Node};
use polyrail_core::proto::{Delivery, PeerIdx};
use polyrail_core::wire::Key;
use polyrail_rails::config::SecretFile;
use polyrail_rails::worker::{Scheme, Taken};
use polyrail_rails::{Config, Worker};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const VARIABLE: &str = "POLYRAIL_TEST_PUPPET";

/// A process with a worker. Killed when dropped.
pub struct Puppet {
    child: Child,
    socket: BufReader<UnixStream>,
    pub address: Vec<u8>,
}

impl Puppet {
    /// A process whose worker has these settings (`RAILS=tcp RNDV=put`).
    pub fn start(settings: &str) -> Self {
        Self::after(|| Ok(()), settings)
    }

    /// The same, after something was done to the process.
    pub fn after(first: fn() -> io::Result<()>, settings: &str) -> Self {
        let mut puppet = Self::without_worker(first);
        puppet.open(settings);
        puppet
    }

    /// Opens its worker.
    pub fn open(&mut self, settings: &str) {
        let answer = self.ask(&format!("open {settings}"));
        self.address = unhex(answer.strip_prefix("address ").unwrap_or_else(|| panic!("{answer}")));
    }

    /// A process that is still to [`open`](Self::open) a worker.
    pub fn without_worker(first: fn() -> io::Result<()>) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        // not by its path, which may be out of sight in another mount namespace
        let mut command = Command::new("/proc/self/exe");
        command.args(["support::puppet::puppet", "--exact", "--ignored", "--nocapture"]).env(VARIABLE, "1");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        // SAFETY: only system calls that are safe between fork and exec.
        unsafe { command.pre_exec(move || die_with_parent().and_then(|()| first())) };
        let child = command.spawn().expect("a test can start itself");
        ours.set_read_timeout(Some(BOUND)).expect("a bound");
        Self { child, socket: BufReader::new(ours), address: Vec::new() }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Tells it something; the answer is still to be heard.
    pub fn say(&mut self, line: &str) {
        self.socket.get_mut().write_all(format!("{line}\n").as_bytes()).expect("the puppet lives");
    }

    /// Its answer, once it is there.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        let n = self.socket.read_line(&mut line).expect("the puppet answers in time");
        assert!(n > 0, "the puppet has died");
        line.trim_end().to_owned()
    }

    /// Tells it something, and hears the answer.
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    /// The same, while a node of this process makes progress.
    pub fn ask_beside(&mut self, node: &mut Node, line: &str) -> String {
        self.say(line);
        node.until(&format!("an answer to {line:?}"), |_| self.answered());
        self.hear()
    }

    fn answered(&mut self) -> bool {
        if !self.socket.buffer().is_empty() {
            return true;
        }
        let socket = self.socket.get_ref();
        socket.set_nonblocking(true).expect("a socket");
        let there = self.socket.fill_buf().map(<[u8]>::len);
        self.socket.get_ref().set_nonblocking(false).expect("a socket");
        match there {
            Ok(0) => panic!("the puppet has died"),
            Ok(_) => true,
            Err(e) if e.kind() == ErrorKind::WouldBlock => false,
            Err(e) => panic!("{e}"),
        }
    }

    /// A number that it answers with.
    pub fn number(&mut self, line: &str) -> u64 {
        let answer = self.ask(line);
        answer.parse().unwrap_or_else(|_| panic!("{line}: {answer}"))
    }

    /// The same, while a node of this process makes progress.
    pub fn number_beside(&mut self, node: &mut Node, line: &str) -> u64 {
        let answer = self.ask_beside(node, line);
        answer.parse().unwrap_or_else(|_| panic!("{line}: {answer}"))
    }

    /// Tells it where a node of this process is; its number for that.
    pub fn introduce(&mut self, node: &mut Node) -> u64 {
        let line = format!("peer {}", hex(&node.worker.address()));
        self.number_beside(node, &line)
    }

    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: the child is not waited for before this value goes, so the number is its own.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// Stops it, and returns once it stands.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let start = Instant::now();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it is there");
        while !state().rsplit(')').next().is_some_and(|rest| rest.starts_with(" T")) {
            assert!(start.elapsed() < BOUND);
        }
    }

    /// kill -9; it is gone when this returns.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal"))
        .collect()
}

/// Settings as one line, as tests write them; `KEY=7` gives an endpoint a key that it has again after a
/// restart, `SECRET=FILE` the user's secret.
pub fn settings(line: &str) -> Config {
    let lookup = |name: &str| {
        line.split_whitespace().find_map(|pair| {
            pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        })
    };
    let key = lookup("KEY").and_then(|n| Key::new([n.parse().expect("a byte"); 16]));
    // whatever the user who tests has
    let secret = lookup("SECRET").map_or(SecretFile::None, |path| SecretFile::At(path.into()));
    Config { key, secret, ..Config::from_lookup(lookup).expect("settings") }
}

#[test]
#[ignore = "what the processes run that other tests start"]
fn puppet() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    // SAFETY: nobody else in this process uses its standard input, which is the socket.
    let socket = unsafe { UnixStream::from_raw_fd(0) };
    socket.set_nonblocking(true).expect("a socket");
    let mut lines = BufReader::new(socket);
    let mut strings = Strings::default();
    let mut line = String::new();
    loop {
        match lines.read_line(&mut line) {
            Ok(0) => return,
            Ok(_) => {
                let answer = strings.pull(line.trim_end());
                line.clear();
                if let Some(answer) = answer {
                    let _ = lines.get_mut().write_all(format!("{answer}\n").as_bytes());
                }
            }
            // what was read of the line stays in it
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => panic!("{e}"),
        }
        if let Some(answer) = strings.progress() {
            let _ = lines.get_mut().write_all(format!("{answer}\n").as_bytes());
        }
    }
}

/// What a puppet does.
#[derive(Default)]
struct Strings {
    node: Option<Node>,
    frozen: bool,
    /// What it is to answer for once it ends.
    awaited: Option<u64>,
    /// Messages sent back so far, and the receive for the next.
    echo: Option<(u64, u64)>,
    echoing: Vec<u64>,
    /// Whose values are put back, of which tags.
    values: Option<(PeerIdx, u64)>,
    /// The tag that the next message must have, how many are to come, and receives for them.
    drain: Option<(u64, u64, VecDeque<u64>)>,
}

impl Strings {
    fn pull(&mut self, line: &str) -> Option<String> {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap_or_default();
        if command == "open" {
            return Some(match Worker::open(settings(line)) {
                Ok(worker) => {
                    let address = hex(&worker.address());
                    self.node = Some(Node::over(worker));
                    format!("address {address}")
                }
                Err(why) => format!("error {why}"),
            });
        }
        let words: Vec<&str> = words.collect();
        let node = self.node.as_mut().expect("open comes first");
        let number = |n: usize| words[n].parse::<u64>().expect("a number");
        let peer = |n: usize| PeerIdx(number(n) as u32);
        let optional = |n: usize| words[n].parse::<u64>().ok();
        Some(match command {
            "peer" => node.peer(&unhex(words[0])).0.to_string(),
            "send" => node.send(peer(0), number(1), number(2) as usize).to_string(),
            "match" => node.send_until(peer(0), number(1), number(2) as usize, Delivery::Matched).to_string(),
            "inject" => {
                let all = (0..number(1)).all(|tag| node.inject(peer(0), tag, number(2) as usize));
                if all { "0".to_owned() } else { node.why(peer(0)) }
            }
            "recv" => {
                let source = optional(0).map(|n| PeerIdx(n as u32));
                node.recv(source, optional(1), number(2) as usize).to_string()
            }
            "region" => {
                node.region(number(0), number(1) as usize);
                "0".to_owned()
            }
            "put" => node.put(peer(0), number(1), number(2), number(3) as usize).to_string(),
            "get" => node.get(peer(0), number(1), number(2) as usize).to_string(),
            "why" => node.why(peer(0)),
            "route" => format!("{:?}", node.worker.route(peer(0))),
            "strangers" => format!("{:?}", node.worker.strangers()),
            "refuse" => {
                super::seccomp::refuse_attach().expect("a filter");
                "0".to_owned()
            }
            "descriptors" => super::descriptors().to_string(),
            "wait" => {
                self.awaited = Some(number(0));
                return None;
            }
            "sleeps" => {
                node.sleeps = true;
                "0".to_owned()
            }
            "echo" => {
                self.echo = Some((0, node.recv(None, None, 1 << 20)));
                "0".to_owned()
            }
            "values" => {
                node.worker.set_scheme(peer(0), Scheme::Asynchronous);
                self.values = Some((peer(0), number(1)));
                "0".to_owned()
            }
            "drain" => {
                let posted = (0..64).map(|_| node.recv(None, None, 64)).collect();
                self.drain = Some((0, number(0), posted));
                "0".to_owned()
            }
            "drained" => match &self.drain {
                Some((next, ..)) => next.to_string(),
                None => "all".to_owned(),
            },
            "freeze" => {
                self.frozen = true;
                "0".to_owned()
            }
            "close" => {
                self.node = None;
                self.frozen = true;
                "0".to_owned()
            }
            other => panic!("a puppet is told {other:?}"),
        })
    }

    fn progress(&mut self) -> Option<String> {
        if self.frozen {
            std::thread::sleep(std::time::Duration::from_millis(1));
            return None;
        }
        let node = self.node.as_mut()?;
        node.progress();
        if let Some((count, id)) = self.echo
            && let Some(end) = node.end(id)
        {
            if let (End::Right, Some(from)) = (end, node.other(id)) {
                self.echoing.push(node.send(from, count, 4096));
            }
            self.echo = Some((count + 1, node.recv(None, None, 1 << 20)));
        }
        if let Some((peer, tags)) = self.values {
            for tag in 1..=tags {
                let Taken::New { iteration, bytes, .. } = node.worker.take_value(peer, tag) else { continue };
                let bytes = bytes.to_vec();
                assert!(bytes == super::node::pattern(iteration, bytes.len()), "tag {tag}");
                assert_eq!(node.worker.put_value(peer, tag, iteration, &bytes), Ok(()));
            }
        }
        while let Some((next, count, posted)) = &mut self.drain
            && let Some(id) = posted.front().copied()
            && let Some(end) = node.end(id)
        {
            let expected = super::node::pattern(*next, 8);
            let had = (end, node.word(id).to_le_bytes().to_vec());
            assert_eq!(had, (End::Right, expected), "message {next}: {:?}", node.whys());
            node.wait(id);
            posted.pop_front();
            posted.push_back(node.recv(None, None, 64));
            *next += 1;
            if next == count {
                self.drain = None;
            }
        }
        let id = self.awaited?;
        node.end(id)?;
        self.awaited = None;
        Some(format!("{:?}", node.wait(id)))
    }
}
