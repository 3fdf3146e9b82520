//! How a run begins: ranks tell rank 0 where they are, rank 0 tells all what to start.
use std::fs;
use std::path::{Path, PathBuf};

use polyrail_omp::area::{LOCALS, RANKS, SharedFile, VERSION, setting};
use polyrail_omp::items::{numbers, pack, read_numbers, unpack};
use polyrail_omp::layout::SHARING;
use polyrail_omp::layout::SLOTS;

use crate::checkpoint::{self, Keeper};
use crate::launch::{self, Launch};
use crate::mapping::{Facts, Mapping};
use crate::net::{Net, Tag};
use crate::options::Options;
use crate::{stand_ins, sys};

/// Bytes of what a rank says of itself.
const HELLO: usize = 1024;

/// What a rank says of itself.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Hello {
    host: String,
    /// Tells hosts of one name apart.
    boot: String,
    processors: u64,
    /// The host's processors, whether this rank may use them or not.
    online: u64,
    /// See [`stand_ins::usable`].
    places: u64,
    /// Tells builds apart.
    build: String,
}

impl Hello {
    fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Self {
            host: read("/proc/sys/kernel/hostname"),
            boot: read("/proc/sys/kernel/random/boot_id"),
            processors: sys::processors() as u64,
            online: sys::online() as u64,
            places: stand_ins::usable(sys::user()),
            build: format!("{} {VERSION}", env!("CARGO_PKG_VERSION")),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let numbers = numbers(&[self.processors, self.online, self.places]);
        let items = pack([self.host.as_bytes(), self.boot.as_bytes(), self.build.as_bytes(), &numbers]);
        let mut bytes = [&(items.len() as u64).to_le_bytes()[..], &items].concat();
        bytes.resize(HELLO, 0);
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk()?;
        let items = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        let mut items = unpack(items)?.into_iter();
        let mut text = || Some(String::from_utf8_lossy(&items.next()?).into_owned());
        let (host, boot, build) = (text()?, text()?, text()?);
        let [processors, online, places] = read_numbers(&items.next()?).try_into().ok()?;
        Some(Self { host, boot, processors, online, places, build })
    }
}

/// Agrees on what to start. `Err(None)`: rank 0 says why not. On rank 0, who looks after checkpoints is put into `keeper`, if the user wants any.
pub fn agree<N: Net<Error = crate::mpi::Error>>(
    net: &mut N,
    options: &Options,
    keeper: &mut Option<Keeper>,
) -> Result<Launch, Option<String>> {
    let failed = |error: crate::mpi::Error| Some(error.to_string());
    let here = Hello::here();
    if net.rank() > 0 {
        send(net, &here.bytes(), 0).map_err(failed)?;
        let mut length = [0; 8];
        receive(net, &mut length, 0).map_err(failed)?;
        let mut bytes = vec![0; u64::from_le_bytes(length) as usize];
        if bytes.is_empty() {
            return Err(None);
        }
        receive(net, &mut bytes, 0).map_err(failed)?;
        return Launch::read(&bytes).ok_or_else(|| Some("rank 0 says nothing that makes sense".into()));
    }
    let mut all = vec![Some(here)];
    let mut bytes = vec![0; HELLO];
    for rank in 1..net.size() {
        receive(net, &mut bytes, rank).map_err(failed)?;
        all.push(Hello::read(&bytes));
    }
    let launch = alike(all).and_then(|all| decide(options, &all)).and_then(|launch| {
        *keeper = Keeper::new(&options.keep, &launch)?;
        Ok(launch)
    });
    tell(net, launch)
}

/// All hellos, if they are of one build: others understand each other now and then, and would not be told.
fn alike(all: Vec<Option<Hello>>) -> Result<Vec<Hello>, String> {
    let first = all.first().and_then(Option::as_ref).map(|hello| hello.build.clone());
    let other = all.iter().position(|hello| hello.as_ref().map(|hello| &hello.build) != first.as_ref());
    match other {
        None => Ok(all.into_iter().flatten().collect()),
        Some(rank) => {
            let host = all[rank].as_ref().map_or(String::new(), |hello| format!(" on {}", hello.host));
            Err(format!(
                "rank {rank}{host} runs polyrail-omp-agent of another version: install the same on all hosts"
            ))
        }
    }
}

/// Rank 0, which knows already that nothing can be started.
pub fn refuse<N: Net<Error = crate::mpi::Error>>(net: &mut N, why: &str) -> Result<Launch, Option<String>> {
    let mut bytes = vec![0; HELLO];
    for rank in 1..net.size() {
        receive(net, &mut bytes, rank).map_err(|error| Some(error.to_string()))?;
    }
    tell(net, Err(why.into()))
}

fn tell<N: Net<Error = crate::mpi::Error>>(
    net: &mut N,
    launch: Result<Launch, String>,
) -> Result<Launch, Option<String>> {
    let failed = |error: crate::mpi::Error| Some(error.to_string());
    let bytes = launch.as_ref().map(Launch::bytes).unwrap_or_default();
    for rank in 1..net.size() {
        send(net, &(bytes.len() as u64).to_le_bytes(), rank).map_err(failed)?;
        if !bytes.is_empty() {
            send(net, &bytes, rank).map_err(failed)?;
        }
    }
    launch.map_err(Some)
}

fn wait<N: Net>(net: &mut N, mut request: N::Request) -> Result<(), N::Error> {
    while !net.done(&mut request)? {
        sys::give_way();
    }
    Ok(())
}

fn send<N: Net>(net: &mut N, bytes: &[u8], to: usize) -> Result<(), N::Error> {
    // SAFETY: waited for
    let request = unsafe { net.send(bytes.as_ptr(), bytes.len(), to, Tag::Start)? };
    wait(net, request)
}

fn receive<N: Net>(net: &mut N, bytes: &mut [u8], from: usize) -> Result<(), N::Error> {
    // SAFETY: waited for
    let request = unsafe { net.receive(bytes.as_mut_ptr(), bytes.len(), from, Tag::Start)? };
    wait(net, request)
}

/// Where all ranks are on one host, has them share their mappings: gives the others', by rank; nothing if that cannot be.
///
/// # Errors
/// The network's.
pub fn share<N: Net>(net: &mut N, mapping: &Mapping, facts: Facts) -> Result<Vec<Option<Mapping>>, N::Error> {
    let (me, size) = (net.rank(), net.size());
    let file = mapping.shared_file();
    let nonce = sys::chance().map_or(0, |[nonce, _]| nonce);
    mapping.set_nonce(nonce);
    let mut told = vec![0; size * TOLD];
    told[me * TOLD..][..TOLD].copy_from_slice(&numbers(&[
        file.process.into(),
        file.descriptor.into(),
        nonce,
    ]));
    spread(net, &mut told, TOLD)?;
    let files: Vec<(SharedFile, u64)> = read_numbers(&told)
        .as_chunks()
        .0
        .iter()
        .map(|&[process, descriptor, nonce]| {
            (SharedFile { process: process as u32, descriptor: descriptor as u32 }, nonce)
        })
        .collect();
    let peers: Vec<Option<Mapping>> = files
        .iter()
        .enumerate()
        .map(|(rank, (file, nonce))| {
            (rank != me).then(|| Mapping::of_peer(*file, *nonce, Facts { rank, ..facts })).flatten()
        })
        .collect();
    let mut seen = vec![0; size];
    seen[me] = u8::from(peers.iter().filter(|peer| peer.is_some()).count() + 1 == size);
    spread(net, &mut seen, 1)?;
    if seen.contains(&0) {
        return Ok(Vec::new());
    }
    let (files, nonces): (Vec<SharedFile>, Vec<u64>) = files.into_iter().unzip();
    mapping.share(&files, &nonces);
    Ok(peers)
}

/// Bytes that ranks tell of their files.
const TOLD: usize = 24;

/// All ranks' `bytes` to all, in place.
fn spread<N: Net>(net: &mut N, all: &mut [u8], bytes: usize) -> Result<(), N::Error> {
    let (me, size) = (net.rank(), net.size());
    if me > 0 {
        send(net, &all[me * bytes..][..bytes], 0)?;
        return receive(net, all, 0);
    }
    (1..size).try_for_each(|rank| receive(net, &mut all[rank * bytes..][..bytes], rank))?;
    (1..size).try_for_each(|rank| send(net, all, rank))
}

/// Numbers for hosts, in order of their first ranks.
fn hosts(all: &[Hello]) -> Vec<u32> {
    let is = |one: &Hello, other: &Hello| (&one.host, &one.boot) == (&other.host, &other.boot);
    let mut numbers: Vec<u32> = Vec::new();
    for (rank, hello) in all.iter().enumerate() {
        let known = all[..rank].iter().position(|other| is(other, hello)).map(|first| numbers[first]);
        numbers.push(known.unwrap_or_else(|| numbers.iter().max().map_or(0, |last| last + 1)));
    }
    numbers
}

/// Threads that each of `size` ranks may have: the last local number is the thread that leads.
fn most_threads(size: usize) -> usize {
    (SLOTS / size).min(LOCALS - 1)
}

/// Threads of each rank where the user does not say: processors per rank, of the host that has least.
fn threads(all: &[Hello], host_of: &[u32]) -> usize {
    let per_rank = all.iter().zip(host_of).map(|(hello, host)| {
        let sharing = host_of.iter().filter(|other| *other == host).count();
        hello.processors as usize / sharing
    });
    per_rank.min().unwrap_or(1).clamp(1, most_threads(all.len()))
}

/// What is not wanted where ranks are on several hosts, or too many on one.
fn shared(host_of: &[u32]) -> u32 {
    let one = (2..=SHARING).contains(&host_of.len()) && host_of.iter().all(|host| *host == host_of[0]);
    if one { 0 } else { setting::SHARED }
}

/// Whether every host has a processor for each thread.
fn spin(all: &[Hello], host_of: &[u32], threads: usize) -> u32 {
    let has_room = |(hello, host): (&Hello, &u32)| {
        hello.online as usize >= threads * host_of.iter().filter(|other| *other == host).count()
    };
    if all.iter().zip(host_of).all(has_room) { setting::SPIN } else { 0 }
}

fn decide(options: &Options, all: &[Hello]) -> Result<Launch, String> {
    if all.len() > RANKS {
        return Err(format!("{} ranks, {RANKS} at most", all.len()));
    }
    let here = |error: std::io::Error| format!("the current directory: {error}");
    let manifest = options.keep.resume.as_deref().map(checkpoint::read).transpose()?;
    let program = match (&manifest, options.words.first()) {
        (Some(_), Some(name)) => {
            return Err(format!(
                "{}: --resume goes on with the program of then, and takes no other",
                name.display()
            ));
        }
        (Some(_), None) => PathBuf::new(),
        (None, None) => return Err("no program given".into()),
        (None, Some(name)) => launch::resolve(name, &std::env::var_os("PATH").unwrap_or_default())
            .ok_or_else(|| format!("{}: no such program, neither here nor on PATH", name.display()))?,
    };
    let runtime = runtime(options)?;
    let common = all.iter().fold(u64::MAX, |common, hello| common & hello.places);
    let place = (0..stand_ins::PLACES.len())
        .find(|index| common & (1 << index) != 0)
        .ok_or_else(|| format!("none of {} can be written on all hosts", stand_ins::PLACES.join(", ")))?;
    let stand_ins = stand_ins::directory(Path::new(stand_ins::PLACES[place]), sys::user());
    let host_of = hosts(all);
    let then = manifest.as_ref().map(|manifest| manifest.threads as usize);
    let threads = options.threads.or(then).unwrap_or_else(|| threads(all, &host_of));
    let most = most_threads(all.len());
    if threads > most {
        return Err(format!(
            "{threads} threads of each of {} ranks, {most} at most: {SLOTS} of all",
            all.len()
        ));
    }
    let launch = Launch {
        program,
        words: options.words.clone(),
        directory: std::env::current_dir().map_err(here)?,
        environment: launch::environment(std::env::vars_os(), &runtime, &stand_ins),
        runtime,
        stand_ins,
        stack: launch::stack(sys::limit(libc::RLIMIT_STACK).0),
        settings: options.settings & !shared(&host_of) | spin(all, &host_of, threads),
        threads,
        watchdog: options.watchdog,
        chance: sys::chance().map_err(|error| format!("random numbers: {error}"))?,
        hosts: all.iter().map(|hello| hello.host.clone()).collect(),
        host_of,
    };
    match manifest {
        Some(manifest) => checkpoint::resumed(&manifest, launch),
        None => Ok(launch),
    }
}

/// Where the runtime is: as the user says, or beside this agent.
fn runtime(options: &Options) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let path = options.runtime.clone().unwrap_or_else(|| own.with_file_name(polyrail_omp::RUNTIME));
    let found = path.canonicalize().map_err(|error| format!("the runtime {}: {error}", path.display()))?;
    if found.as_os_str().as_encoded_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        return Err(format!("{}: the loader takes no paths with spaces or colons", found.display()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(host: &str, processors: u64) -> Hello {
        Hello {
            host: host.into(),
            boot: "x".into(),
            processors,
            online: 2 * processors,
            places: 7,
            build: String::new(),
        }
    }

    #[test]
    fn a_hello_comes_back() {
        let here = Hello::here();
        assert_eq!(Hello::read(&here.bytes()), Some(here.clone()));
        assert!(!here.host.is_empty() && here.processors > 0 && here.places != 0);
        assert_eq!(Hello::read(&[0; HELLO]), None);
        assert_eq!(Hello::read(&[255; HELLO]), None);
    }

    #[test]
    fn another_build_is_named() {
        let other = Hello { build: "0.0".into(), ..hello("b", 1) };
        assert_eq!(alike(vec![Some(hello("a", 1)), Some(hello("b", 1))]).map(|all| all.len()), Ok(2));
        assert!(alike(vec![Some(hello("a", 1)), Some(other)]).unwrap_err().contains("rank 1 on b runs"));
        assert!(alike(vec![Some(hello("a", 1)), None]).unwrap_err().contains("rank 1 runs"));
    }

    #[test]
    fn threads_are_what_every_host_has_for_a_rank() {
        let all = [hello("a", 8), hello("b", 4), hello("a", 8)];
        let numbers = hosts(&all);
        assert_eq!(numbers, [0, 1, 0]);
        assert_eq!(threads(&all, &numbers), 4);
        assert_eq!(
            [&[0, 0][..], &[0], &[0, 1], &[0; 65]].map(shared).map(|not| not == 0),
            [true, false, false, false]
        );
        assert_eq!([1, 8, 9].map(|threads| spin(&all, &numbers, threads)), [setting::SPIN, setting::SPIN, 0]);
        assert_eq!(threads(&[hello("a", 1), hello("a", 1)], &[0, 0]), 1, "at least one");
        assert_eq!(threads(&[hello("a", 1000)], &[0]), LOCALS - 1);
        assert_eq!([1, 16, 64, 1024].map(most_threads), [63, 63, 16, 1]);
        let same_name = [hello("a", 2), Hello { boot: "y".into(), ..hello("a", 2) }];
        assert_eq!(hosts(&same_name), [0, 1]);
    }
}
