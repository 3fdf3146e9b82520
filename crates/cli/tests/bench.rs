//! `polyrail bench` and `polyrail info` as a whole, between real processes.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use polyrail_rails::config::SecretFile;
use polyrail_rails::mailbox::Mailbox;
use polyrail_rails::{Address, Config};
use tempfile::TempDir;

/// A command that knows nothing of the user who runs the tests.
fn polyrail(words: &str, dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrail"));
    for (name, _) in std::env::vars_os() {
        if ["POLYRAIL_", "FI_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.args(words.split_whitespace()).current_dir(dir).env("POLYRAIL_SECRET_FILE", dir.join("secret"));
    command
}

fn run(words: &str, dir: &Path) -> (bool, String, String) {
    outcome(polyrail(words, dir).output().unwrap())
}

fn outcome(output: Output) -> (bool, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// A partner at a port of its own.
struct Partner(Child, u16);

impl Partner {
    fn start(dir: &Path, listen: &str) -> Self {
        Self::start_with(dir, listen, &[])
    }

    fn start_with(dir: &Path, listen: &str, settings: &[(&str, &str)]) -> Self {
        // free a moment ago; nobody else is given it while there are others
        let port = TcpListener::bind("[::]:0").unwrap().local_addr().unwrap().port();
        let has_secret = dir.join("secret").exists();
        let mut command = polyrail(&format!("{listen} {port}"), dir);
        command.envs(settings.iter().copied());
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut partner = Self(child, port);
        let mut lines = BufReader::new(partner.0.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.next().unwrap();
        assert!(line.contains(&port.to_string()), "{line}");
        if !has_secret {
            // a job of hosts of which one has a secret does not run
            let line = lines.next().unwrap();
            assert!(line.starts_with("made the user's secret, ") && line.contains("copy it"), "{line}");
        }
        partner
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn figures_between_two_processes_of_its_own() {
    let dir = TempDir::new().unwrap();
    for (rails, figure) in [("shm", "latency"), ("tcp", "bandwidth"), ("shm", "rate")] {
        let words =
            format!("bench {figure} --size 8,100K --repetitions 2 --csv {figure}.csv --svg {figure}.svg");
        let (ok, out, err) =
            outcome(polyrail(&words, dir.path()).env("POLYRAIL_RAILS", rails).output().unwrap());
        assert!(ok && out.contains(&format!("{figure} over {rails}")), "{out}{err}");
        let csv = std::fs::read_to_string(dir.path().join(format!("{figure}.csv"))).unwrap();
        let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((rows.len(), rows[1][2], rows[2][2]), (3, "8", "102400"), "{csv}");
        for row in &rows[1..] {
            let [median, least, most] = [3, 4, 5].map(|column: usize| row[column].parse::<f64>().unwrap());
            assert!(0.0 < least && least <= median && median <= most, "{csv}");
        }
        assert!(
            std::fs::read_to_string(dir.path().join(format!("{figure}.svg"))).unwrap().ends_with("</svg>\n")
        );
    }
}

#[test]
fn a_partner_serves_one_after_the_other() {
    let dir = TempDir::new().unwrap();
    let partner = Partner::start(dir.path(), "bench --serve");
    for _ in 0..2 {
        let words = format!("bench latency --size 8 --repetitions 1 --peer localhost:{}", partner.1);
        let (ok, out, err) = run(&words, dir.path());
        assert!(ok, "{out}{err}");
    }
}

#[test]
fn what_would_be_used_for_a_peer_is_told_with_reasons() {
    let dir = TempDir::new().unwrap();
    let partner = Partner::start(dir.path(), "info --listen");
    let words = format!("info --peer 127.0.0.1:{}", partner.1);
    let (ok, out, err) = run(&words, dir.path());
    assert!(ok && out.contains("shm: it runs on this host") && out.contains("there and back"), "{out}{err}");
    let tcp = polyrail(&format!("{words} --json"), dir.path()).env("POLYRAIL_RAILS", "tcp").output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&tcp.stdout).unwrap();
    assert_eq!(told["rail"], "tcp");
    assert!(told["why"].as_str().unwrap().contains("POLYRAIL_RAILS"));
    assert_eq!(told["eager_max_bytes"], 65536);
    assert!(told["round_trip_8_bytes"]["median_us"].as_f64().unwrap() > 0.0);
}

/// By UDP what a lane would begin with, or what the user wants, and what would change that; by TCP what the kernel has.
#[test]
fn how_lanes_to_a_peer_would_be_reliable_is_told() {
    let dir = TempDir::new().unwrap();
    let partner = Partner::start_with(dir.path(), "info --listen", &[("POLYRAIL_RAILS", "tcp,udp")]);
    let words = format!("info --peer 127.0.0.1:{}", partner.1);
    let told = |json: bool, settings: &[(&str, &str)]| {
        let words = format!("{words}{}", if json { " --json" } else { "" });
        let (ok, out, err) =
            outcome(polyrail(&words, dir.path()).envs(settings.iter().copied()).output().unwrap());
        assert!(ok, "{out}{err}");
        out
    };
    let udp = ("POLYRAIL_RAILS", "udp");
    let text = told(false, &[udp]);
    assert!(
        text.contains(
            "control    udp sync-cubic: links begin with it; sync-bbr from 20 lost of a million and 1 ms there and back, or 20000 lost, sync-illinois from 1 MB"
        ),
        "{text}"
    );
    let text = told(false, &[udp, ("POLYRAIL_COMPOSITION", "sync-bbr")]);
    assert!(text.contains("control    udp sync-bbr: the user wants it (POLYRAIL_COMPOSITION)\n"), "{text}");
    let text = told(true, &[("POLYRAIL_RAILS", "tcp,udp"), ("POLYRAIL_CONGESTION", "reno")]);
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let controls = serde_json::json!([
        { "rail": "tcp", "congestion_control": "reno" },
        { "rail": "udp", "composition": "sync-cubic", "why": "links begin with it" },
    ]);
    assert_eq!(told["controls"], controls);
}

#[test]
fn what_cannot_be_measured_says_why() {
    let dir = TempDir::new().unwrap();
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let partner = Partner::start(dir.path(), "bench --serve");
    let other = partner.1;
    let secret = format!("bench rate --size 8 --peer localhost:{other}");
    let stranger =
        polyrail(&secret, dir.path()).env("POLYRAIL_SECRET_FILE", dir.path().join("other")).output();
    let cases = [
        (run(&format!("bench --serve {port}"), dir.path()), "in use by another program"),
        (run(&format!("info --listen {port}"), dir.path()), "in use by another program"),
        (run("bench latency --peer localhost:1", dir.path()), "Is polyrail info --listen"),
        (run("bench latency --peer localhost", dir.path()), "HOST:PORT"),
        (run("bench latency --size 8,x", dir.path()), "no size"),
        (run("bench latency --size 9G", dir.path()), "longest message"),
        (run("bench latency --size 8 --csv none/x.csv", dir.path()), "none/x.csv"),
        (run("bench", dir.path()), "FIGURE"),
        (run("info --peer polyrail:aa", dir.path()), "base32"),
        (outcome(stranger.unwrap()), "same secret file"),
    ];
    for ((ok, out, err), words) in cases {
        assert!(!ok && err.contains(words), "expected {words:?}: {out}{err}");
    }
}

#[test]
fn this_machine_is_told() {
    let dir = TempDir::new().unwrap();
    let mut command = polyrail("info", dir.path());
    command.env("POLYRAIL_RALS", "tcp").env("POLYRAIL_INTERFACES", "lo");
    let (ok, out, err) = outcome(command.output().unwrap());
    assert!(ok, "{err}");
    for words in
        ["did you mean POLYRAIL_RAILS?", "127.0.0.1/8", "loopback", "cross-memory attach", "provider"]
    {
        assert!(out.contains(words), "expected {words:?}: {out}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&polyrail("info --json", dir.path()).output().unwrap().stdout).unwrap();
    let rails = json["rails"].as_array().unwrap();
    assert!(rails.iter().any(|rail| rail["device"] == "lo" && rail["usable"] == true), "{json:#}");
    assert_eq!(rails[0]["rail"], "shm");
    let (ok, out, err) = run("info --settings", dir.path());
    assert!(ok && out.contains("POLYRAIL_PEER_TIMEOUT "), "{out}{err}");
}

#[test]
fn an_endpoint_that_measures_nothing_is_told_of_and_not_disturbed() {
    let dir = TempDir::new().unwrap();
    let secret = SecretFile::At(dir.path().join("secret"));
    let mut mailbox = Mailbox::open(Config { secret, ..Config::default() }).unwrap();
    let address = Address::parse(&mailbox.worker().address()).unwrap().expose();
    mailbox.recv(None, 0x706f_6c79, vec![0; 8]);
    let mut command = polyrail(&format!("info --peer {address}"), dir.path());
    let mut asker = command.stdout(Stdio::piped()).spawn().unwrap();
    while asker.try_wait().unwrap().is_none() {
        mailbox.progress();
    }
    let (ok, out, err) = outcome(asker.wait_with_output().unwrap());
    assert!(ok && out.contains("rail       shm") && out.contains("not measured"), "{out}{err}");
    assert!(mailbox.next_done().is_none(), "it got a message");
}
