//! The side that is measured against: it does what it is asked, for one asker after the other.

use std::io::Read;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use polyrail_rails::mailbox::Mailbox;
use polyrail_rails::{Address, Config, PeerIdx};

use crate::output;

use super::error::Error;
use super::job::{self, ANSWER, ASK, Job, Side};
use super::session::make_secret;

/// What the partner answers when it is ready; anything else says why it is not.
pub const READY: &[u8] = b"ready";

/// Serves at a port until it is ended from outside, for processes of the same user on any host.
pub fn serve(port: u16) -> Result<(), Error> {
    let made = make_secret()?;
    let config = Config::from_env()?.listen_on(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    let mut mailbox = Mailbox::open(config).map_err(|error| match error {
        polyrail_rails::Error::System { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => {
            Error::PortInUse { port }
        }
        other => other.into(),
    })?;
    let sockets: Vec<String> = own_address(&mailbox)?.sockets().map(|socket| socket.to_string()).collect();
    output::tell!("listening at {}; end with Ctrl-C", sockets.join(", "));
    if let Some(note) = made {
        output::tell!("{note}");
    }
    run(&mut mailbox)
}

/// Serves the process that started this one, and ends with it: the pipe to standard input closes.
pub fn second() -> Result<(), Error> {
    let mut mailbox = Mailbox::open(Config::from_env()?)?;
    output::print_line(&own_address(&mailbox)?.expose());
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    run(&mut mailbox)
}

fn own_address(mailbox: &Mailbox) -> Result<Address, Error> {
    Address::parse(&mailbox.worker().address())
        .map_err(|why| polyrail_rails::Error::Address(why.to_string()).into())
}

fn run(mailbox: &mut Mailbox) -> Result<(), Error> {
    let asked = job::listen(mailbox, ASK);
    loop {
        if mailbox.progress() > 0 {
            continue;
        }
        match asked.try_recv() {
            Ok((from, request)) => {
                if let Err(error) = answer(mailbox, from, &request) {
                    output::tell!("{error}");
                }
            }
            Err(_) => mailbox.sleep(Duration::from_secs(1)),
        }
    }
}

fn answer(mailbox: &mut Mailbox, from: PeerIdx, request: &[u8]) -> Result<(), Error> {
    let job = match Job::parse(request) {
        Ok(job) => job,
        Err(why) => return job::tell(mailbox, from, ANSWER, why.as_bytes()),
    };
    // what a lost asker left behind
    while mailbox.next_done().is_some() {}
    let mut side = Side::new(mailbox, from, job);
    side.prepare();
    side.say(ANSWER, READY)?;
    side.follow()
}
