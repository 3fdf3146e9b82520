//! `polyrail-lab-relay`: the rail between two TUN devices, one in each of two network namespaces. `scripts/lab` starts one
//! for each `relay:` rail and talks to it; docs/lab.md is the manual.
#![forbid(unsafe_code)]

mod control;
mod pcap;
mod relay;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use nix::sched::{CloneFlags, setns};
use tun_rs::{DeviceBuilder, SyncDevice};

const USAGE: &str =
    "usage: polyrail-lab-relay run DEVICE NETNS_A NETNS_B SOCKET [mtu=N] [seed=N] [KEY=VALUE ...]
       polyrail-lab-relay ask SOCKET WORD...   (KEY=VALUE ..., blackhole on|off, pcap FILE|off, stats)";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["run", device, a, b, socket, ref settings @ ..] => run(device, [a, b], socket, settings),
        ["ask", socket, ref request @ ..] => ask(socket, &request.join(" ")),
        _ => Err(USAGE.into()),
    };
    if let Err(why) = result {
        eprintln!("polyrail-lab-relay: {why}");
        std::process::exit(2);
    }
}

/// Opens `name` in both namespaces and relays until the end of the process. The socket is there once the devices are.
fn run(name: &str, namespaces: [&str; 2], socket: &str, words: &[&str]) -> Result<(), String> {
    let (mut mtu, mut seed, mut settings) = (1500u16, 1u64, String::new());
    for word in words {
        let wrong = |_| format!("{word}: not a number it can be");
        match word.split_once('=') {
            Some(("mtu", value)) => mtu = value.parse().map_err(wrong)?,
            Some(("seed", value)) => seed = value.parse().map_err(wrong)?,
            _ => settings = settings + " " + word,
        }
    }
    let settings = polyrail_lab::settings::apply(&settings, &Default::default())?;
    let open = |namespace| open(name, namespace, mtu).map_err(|why| format!("{name} in {namespace}: {why}"));
    let devices = [open(namespaces[0])?, open(namespaces[1])?];
    let listener = UnixListener::bind(socket).map_err(|why| format!("{socket}: {why}"))?;
    let relay = relay::Relay::new(devices, usize::from(mtu), settings, seed);
    relay.run(&listener).map_err(|why| format!("{name}: {why}"))
}

/// Opens the TUN device `name` in another network namespace. Big packets stay whole on their way to this process, as with
/// any network card; it cuts them up itself and treats what they are made of one by one.
fn open(name: &str, namespace: &str, mtu: u16) -> io::Result<SyncDevice> {
    setns(File::open(Path::new(namespace))?, CloneFlags::CLONE_NEWNET)?;
    let device = DeviceBuilder::new().name(name).mtu(mtu).offload(true).build_sync()?;
    device.set_nonblocking(true)?;
    Ok(device)
}

/// Asks the relay behind `socket`, and prints what it answers.
fn ask(socket: &str, request: &str) -> Result<(), String> {
    let exchange = || {
        let mut stream = UnixStream::connect(socket)?;
        writeln!(stream, "{request}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().map_err(|why: io::Error| format!("{socket}: {why}"))?;
    match answer.strip_prefix(control::ERROR) {
        Some(why) => Err(why.trim().into()),
        None => {
            print!("{answer}");
            Ok(())
        }
    }
}
