//! Gateways' processes on this host, and pairs of sites that trust each other.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polyrail_rails::relay;
use serde_json::Value;
use tempfile::TempDir;

pub const POLYRAIL: &str = env!("CARGO_BIN_EXE_polyrail");
/// Longer than anything here takes, on a machine with much else to do.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway's process, its files, and where programs call it.
pub struct Gateway {
    pub directory: PathBuf,
    pub at: SocketAddr,
    pub process: Option<Child>,
    /// What it has said since it was started.
    said: Arc<Mutex<Vec<String>>>,
}

/// Two sites. Each test has networks of its own.
pub struct Sites {
    pub east: Gateway,
    pub west: Gateway,
    /// The third number of addresses of the west's network, which is 127.77.x.0/24; the east's is 127.66.x.0/24.
    pub net: u8,
    pub files: TempDir,
}

static NETS: AtomicU8 = AtomicU8::new(1);

/// A port that nobody has, and that nobody is given who asks for any: the kernel gives those from 32768 on.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 1000).unwrap() * 20;
    loop {
        let port = 10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

pub fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Gateway {
    pub fn new(directory: PathBuf, ip: [u8; 4]) -> Self {
        Self { directory, at: (ip, free_port()).into(), process: None, said: Arc::default() }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(POLYRAIL);
        command.args(["gateway", "--config"]).arg(self.directory.join("site.toml")).args(args);
        command
    }

    pub fn ask(&self, args: &[&str]) -> String {
        let got = output(&mut self.command(args));
        assert!(got.status.success(), "{args:?}: {}", text(&got.stderr));
        text(&got.stdout).trim().to_owned()
    }

    pub fn start(&mut self) {
        let mut child = self.command(&[]).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = Vec::new();
        while !lines.iter().any(|line: &String| line.contains("programs call it at")) {
            match said.next() {
                Some(line) => lines.push(line.unwrap()),
                None => panic!("the gateway does not start: {lines:?}"),
            }
        }
        // what it says further is shown where a test fails
        self.said = Arc::default();
        let heard = self.said.clone();
        thread::spawn(move || {
            for line in said.map_while(Result::ok) {
                println!("{line}");
                heard.lock().unwrap().push(line);
            }
        });
        self.process = Some(child);
    }

    pub fn has_said(&self, what: &str) -> bool {
        self.said.lock().unwrap().iter().any(|line| line.contains(what))
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Tells it to end.
    pub fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            let told = output(Command::new("kill").arg(process.id().to_string()));
            assert!(told.status.success() && process.wait().unwrap().success());
        }
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&self.ask(&["status", "--json"])).unwrap()
    }

    /// Whether the session to each site that it trusts stands.
    pub fn is_up(&self) -> bool {
        self.status()["sites"].as_array().unwrap().iter().all(|site| site["up"] == true)
    }

    /// Makes a site's file and key: what it is called, its network (127.x.y.0/24); and its token.
    pub fn init(&self, site: &str, (first, net): (u8, u8), more: &[&str]) -> String {
        let (network, at) = (format!("127.{first}.{net}.0/24"), self.at.to_string());
        let args = ["init", "--site", site, "--network", &network, "--listen", &at];
        self.ask(&[&args[..], more].concat())
    }

    /// Adds to its file.
    pub fn say(&self, more: &str) {
        let file = OpenOptions::new().append(true).open(self.directory.join("site.toml"));
        file.unwrap().write_all(more.as_bytes()).unwrap();
    }

    /// A connection by it to another site's address; or the code of SOCKS that says why not.
    pub fn dial(&self, to: SocketAddr) -> Result<TcpStream, u8> {
        let mut socket = TcpStream::connect(self.at).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(&relay::ask(to)).unwrap();
        let mut head = [0; relay::ANSWER_HEAD];
        socket.read_exact(&mut head).unwrap();
        let (rest, code) = relay::answer(&head).unwrap();
        socket.read_exact(&mut vec![0; rest]).unwrap();
        if code == 0 { Ok(socket) } else { Err(code) }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

impl Sites {
    /// Made and trusting each other, but not started.
    pub fn made() -> Self {
        let files = tempfile::tempdir().unwrap();
        let net = NETS.fetch_add(1, Ordering::Relaxed);
        let east = Gateway::new(files.path().join("east"), [127, 0, 0, 1]);
        let west = Gateway::new(files.path().join("west"), [127, 77, net, 9]);
        let trunk = format!("127.0.0.1:{}", free_port());
        let east_token = east.init("east", (66, net), &[]);
        let west_token = west.init("west", (77, net), &["--reached-at", &trunk]);
        // addresses that each host has for itself are nobody's, unless the file says so
        east.say(&format!("\n[to.west]\nnetworks = [\"127.77.{net}.0/24\"]\n"));
        east.ask(&["trust", &west_token]);
        west.ask(&["trust", &east_token]);
        Self { east, west, net, files }
    }

    pub fn started() -> Self {
        let mut sites = Self::made();
        // who dials is there first, in vain at first
        sites.east.start();
        sites.west.start();
        until("the session stands", || sites.east.is_up() && sites.west.is_up());
        sites
    }

    /// A listener at the west, where only its gateway (and this test) connects.
    pub fn listener(&self) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind(SocketAddr::from(([127, 77, self.net, 5], 0))).unwrap();
        let at = listener.local_addr().unwrap();
        (listener, at)
    }

    /// A connection from the east to an address of the west; or the code of SOCKS that says why not.
    pub fn dial(&self, to: SocketAddr) -> Result<TcpStream, u8> {
        self.east.dial(to)
    }

    pub fn wrap(&self, program: &[&str]) -> Output {
        let at = self.east.at.to_string();
        output(Command::new(POLYRAIL).args(["wrap", "--gateway", &at, "--"]).args(program))
    }
}

/// Bytes that look random, and are the same for the same seed.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
