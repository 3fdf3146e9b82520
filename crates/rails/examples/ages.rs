//! How old the values are that a program holds in the asynchronous scheme: two processes, on hosts that share a monotonic clock.
//!
//! `ages read PAUSE LIMIT [computes]` prints its address, and looks for the newest value, again and again with a pause of PAUSE ms; with
//! `computes` it makes no progress in that pause, and what comes meanwhile waits in a socket. `ages put ADDRESS SIZE INTERVAL SECONDS` puts a
//! value of SIZE bytes each INTERVAL ms there, until the reader, SECONDS s after its first value, says that it is enough. `bench/run values`
//! starts both.
//!
//! The end of each is a line of names and numbers. Ages, in ms, are of what is held at a look, from two seconds after the first value on; `older`
//! are those beyond LIMIT. `grown` is memory of the process, `waited` the most that waited in sockets, in KiB.

use polyrail_rails::mailbox::{Done, Mailbox, Scheme, Taken};
use polyrail_rails::{Address, Config, PeerIdx};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of messages: the sender says what it will put, the reader that it has seen enough.
const HELLO: u64 = 1;
const ENOUGH: u64 = 2;
/// Of values.
const VALUE: u64 = 1;
/// What a link is like is found out in the first of these; ages count from then on.
const FINDS: Duration = Duration::from_secs(2);
/// Who hears nothing for so long gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time at which a value was made stands in its first bytes.
const HEAD: usize = 8;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        ["read", pause, limit] => read(millis(pause), millis(limit), false),
        ["read", pause, limit, "computes"] => read(millis(pause), millis(limit), true),
        ["put", to, size, interval, seconds] => {
            put(to, size.parse().expect("bytes"), millis(interval), seconds.parse().expect("seconds"))
        }
        _ => Err("ages read PAUSE LIMIT [computes] | ages put ADDRESS SIZE INTERVAL SECONDS".to_owned()),
    };
    if let Err(why) = outcome {
        eprintln!("{why}");
        std::process::exit(1);
    }
}

fn millis(text: &str) -> Duration {
    Duration::from_secs_f64(text.parse::<f64>().expect("milliseconds") / 1e3)
}

/// Nanoseconds of the clock that all hosts of the lab share.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills a structure of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Memory of this process that is there, in KiB.
fn resident() -> i64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Bytes that wait in the UDP sockets of this host, with what the kernel needs for them.
fn waiting() -> u64 {
    let text = std::fs::read_to_string("/proc/net/udp").expect("/proc");
    let queues = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(4)?.split(':').nth(1));
    queues.map(|bytes| u64::from_str_radix(bytes, 16).expect("a number")).sum()
}

/// A byte of a value behind its head: no two iterations have the same ones.
fn pattern(iteration: u64, at: usize) -> u8 {
    let word = (iteration + ((at as u64) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> 56) as u8
}

/// Makes progress until then.
fn progress_until(mailbox: &mut Mailbox, then: Instant) {
    loop {
        let moved = mailbox.progress();
        let left = then.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match moved {
            // it sleeps whole milliseconds
            0 if left < Duration::from_millis(1) => std::thread::sleep(left),
            0 => mailbox.sleep(left),
            _ => {}
        }
    }
}

fn open() -> Result<Mailbox, String> {
    let config = Config::from_env().map_err(|why| why.to_string())?;
    Mailbox::open(config).map_err(|why| why.to_string())
}

fn put(to: &str, size: usize, interval: Duration, seconds: u64) -> Result<(), String> {
    let mut mailbox = open()?;
    let address = to.parse::<Address>().map_err(|why| why.to_string())?;
    let peer = mailbox.peer(&address.to_bytes()).map_err(|why| why.to_string())?;
    mailbox.set_scheme(peer, Scheme::Asynchronous);
    mailbox.recv(Some(peer), ENOUGH, Vec::new());
    let hello: Arc<[u8]> = [size as u64, seconds].map(u64::to_le_bytes).concat().into();
    mailbox.send(peer, HELLO, &hello).map_err(|why| format!("{why:?}"))?;
    let mut bytes = vec![0; size.max(HEAD)];
    let (start, mut iteration, mut memory) = (Instant::now(), 0_u64, None);
    let end = start + Duration::from_secs(seconds) + PATIENCE;
    let mut next = start;
    loop {
        while let Some(done) = mailbox.next_done() {
            match done {
                Done::Received { outcome: Ok(_), .. } => {
                    let grown = resident() - memory.unwrap_or_else(resident);
                    println!("put values {iteration} grown {grown}");
                    return Ok(());
                }
                Done::Sent { outcome: Ok(()), .. } => {}
                failed => return Err(format!("{failed:?}: {:?}", mailbox.worker().why(peer))),
            }
        }
        if Instant::now() >= next {
            if Instant::now() > end {
                return Err("the reader has not said that it is enough".to_owned());
            }
            iteration += 1;
            bytes.iter_mut().enumerate().skip(HEAD).for_each(|(at, byte)| *byte = pattern(iteration, at));
            bytes[..HEAD].copy_from_slice(&now().to_le_bytes());
            mailbox.put(peer, VALUE, iteration, &bytes).map_err(|why| format!("{why:?}"))?;
            next += interval;
            if start.elapsed() > FINDS {
                memory.get_or_insert_with(resident);
            }
        }
        // the answer is looked for as often as values are put
        progress_until(&mut mailbox, next);
    }
}

/// What a reader holds, and what it has seen.
#[derive(Default)]
struct Held {
    size: usize,
    iteration: u64,
    /// When it was made.
    made: u64,
    values: usize,
    ages: Vec<u64>,
    /// The most bytes that waited in sockets before a look.
    waited: u64,
}

impl Held {
    /// Takes what is new, and checks it.
    fn look(&mut self, mailbox: &mut Mailbox, from: PeerIdx) -> Result<(), String> {
        let Taken::New { iteration, bytes, .. } = mailbox.take(from, VALUE) else { return Ok(()) };
        let before = self.iteration;
        if iteration <= before || bytes.len() != self.size {
            return Err(format!("{} bytes of iteration {iteration} after {before}", bytes.len()));
        }
        let made = u64::from_le_bytes(*bytes.first_chunk().expect("a head"));
        if made <= self.made || made > now() {
            return Err(format!("iteration {iteration} was made at {made}, {before} at {}", self.made));
        }
        let wrong = |(at, byte): &(usize, &u8)| **byte != pattern(iteration, *at);
        if let Some((at, _)) = bytes.iter().enumerate().skip(HEAD).find(wrong) {
            return Err(format!("byte {at} of iteration {iteration} is wrong"));
        }
        (self.iteration, self.made) = (iteration, made);
        self.values += 1;
        Ok(())
    }

    /// The age that so many thousandths are no older than, in ms.
    fn age(&self, thousandths: usize) -> f64 {
        let at = (self.ages.len() * thousandths).div_ceil(1000).max(1) - 1;
        self.ages[at] as f64 / 1e6
    }
}

fn read(pause: Duration, limit: Duration, computes: bool) -> Result<(), String> {
    let mut mailbox = open()?;
    println!("{}", Address::parse(&mailbox.worker().address()).expect("our own").expose());
    mailbox.recv(None, HELLO, vec![0; 16]);
    let start = Instant::now();
    let (from, hello) = loop {
        progress_until(&mut mailbox, Instant::now() + Duration::from_millis(1));
        match mailbox.next_done() {
            Some(Done::Received { from: Some(from), buffer, outcome: Ok(_) }) => break (from, buffer),
            Some(failed) => return Err(format!("{failed:?}")),
            None if start.elapsed() > PATIENCE => return Err("nobody said hello".to_owned()),
            None => {}
        }
    };
    let number = |at: usize| u64::from_le_bytes(*hello[at..].first_chunk().expect("two numbers"));
    let mut held = Held { size: (number(0) as usize).max(HEAD), ..Held::default() };
    let lasts = Duration::from_secs(number(8));
    let (mut first, mut before, mut newest) = (None, None, Instant::now());
    loop {
        if computes {
            std::thread::sleep(pause);
            held.waited = held.waited.max(waiting());
            // one round of it for each of the program's, as in the asynchronous example
            mailbox.progress();
        } else {
            progress_until(&mut mailbox, Instant::now() + pause);
        }
        let known = held.iteration;
        held.look(&mut mailbox, from)?;
        let at = Instant::now();
        if held.iteration != known {
            newest = at;
        } else if at - newest > PATIENCE {
            return Err(format!("no value after iteration {known}: {:?}", mailbox.worker().why(from)));
        }
        if held.iteration == 0 {
            continue;
        }
        let since = at - *first.get_or_insert(at);
        if since >= lasts {
            break;
        }
        if since >= FINDS {
            before.get_or_insert_with(|| (held.values, resident()));
            held.ages.push(now() - held.made);
        }
    }
    let (values, memory) = before.ok_or("no look after the first seconds")?;
    let grown = resident() - memory;
    let older = held.ages.iter().filter(|age| u128::from(**age) > limit.as_nanos()).count();
    held.ages.sort_unstable();
    println!(
        "read looks {} values {} p50 {:.2} p99 {:.2} max {:.2} older {older} grown {grown} waited {}",
        held.ages.len(),
        held.values - values,
        held.age(500),
        held.age(990),
        held.age(1000),
        held.waited / 1024
    );
    // it leaves at the end of the mailbox, at the latest
    mailbox.send(from, ENOUGH, &Arc::from([])).map_err(|why| format!("{why:?}"))?;
    Ok(())
}
