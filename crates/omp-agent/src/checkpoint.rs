//! Checkpoints of a run, on rank 0's host: which files there are, that they are on the disk before anything relies on them, and which are needed no more. What is in them the program's
//! runtime writes (`polyrail_omp::checkpoint` has the format).
//!
//! A segment is written under another name, brought to the disk with the files that the program has written, and renamed; then the manifest is, which names it. Whatever ends a run in
//! between, the manifest that is there names segments that are whole. One run at a time has a directory: it is locked.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use polyrail_omp::area::kept;
use polyrail_omp::checkpoint::{self, CHANGES, Head, MANIFEST, Manifest, Segment, WHOLE, Writer};

use crate::launch::Launch;
use crate::options::Keep;
use crate::sys;

/// Looks after a run's checkpoints.
pub struct Keeper {
    directory: PathBuf,
    /// Held as long as this is.
    _lock: File,
    /// What is on the disk.
    manifest: Arc<Mutex<Manifest>>,
    /// Segments that the run began with.
    from: Vec<String>,
    /// What people are to be told, or why the last one could not be written.
    worker: Option<JoinHandle<Result<Option<String>, String>>>,
    /// The run ends: nothing is merged any more.
    ends: Arc<AtomicBool>,
    /// The last one could not be written.
    lost: bool,
    /// What the user was told already.
    told: BTreeSet<String>,
}

/// What is said of a directory that cannot be used.
fn failed(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn lock(directory: &Path) -> Result<File, String> {
    let file = File::open(directory).map_err(|error| failed(directory, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            Err(format!("{}: another run has its checkpoints there", directory.display()))
        }
        Err(fs::TryLockError::Error(error)) => Err(failed(directory, &error)),
    }
}

/// What this host's processors can do.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    let flags = flags.map_or("", |(_, flags)| flags).split_whitespace();
    flags.filter(|flag| is_programs(flag)).collect::<Vec<_>>().join(" ")
}

/// Whether programs choose functions by what the kernel calls so; the rest is the kernel's own, and changes with its settings.
fn is_programs(flag: &str) -> bool {
    const BEGINS: [&str; 12] =
        ["sse", "ssse", "avx", "fma", "bmi", "xsave", "sha", "vaes", "amx", "rd", "movdir", "vpclmul"];
    const WHOLE: [&str; 14] = [
        "popcnt",
        "abm",
        "lzcnt",
        "movbe",
        "f16c",
        "aes",
        "pclmulqdq",
        "gfni",
        "adx",
        "erms",
        "fsrm",
        "cx16",
        "lahf_lm",
        "rtm",
    ];
    WHOLE.contains(&flag) || BEGINS.iter().any(|begin| flag.starts_with(begin))
}

/// What can be resumed in `directory`.
///
/// # Errors
/// Nothing can, and why.
pub fn read(directory: &Path) -> Result<Manifest, String> {
    let path = directory.join(MANIFEST);
    let bytes = fs::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{}: there is no checkpoint", directory.display()),
        _ => failed(&path, &error),
    })?;
    Manifest::read(&bytes).map_err(|trouble| format!("{} {trouble}", path.display()))
}

/// Whether this host's processor can do all that the program has found that it can.
fn check_processor(manifest: &Manifest) -> Result<(), String> {
    let here = processor();
    let here: BTreeSet<&str> = here.split(' ').collect();
    match manifest.processor.split_whitespace().find(|flag| !here.contains(flag)) {
        None => Ok(()),
        Some(flag) => Err(format!(
            "the checkpoint was taken on a processor that has {flag}, which this host's has not: resume it on a host like that"
        )),
    }
}

/// Whether all files of a checkpoint are as they were written.
fn check_segments(directory: &Path, manifest: &Manifest) -> Result<(), String> {
    for (head, bytes) in &manifest.segments {
        let path = directory.join(head.name());
        let file = File::open(&path).map_err(|error| failed(&path, &error))?;
        let length = file.metadata().map_err(|error| failed(&path, &error))?.len();
        let damaged = || format!("{} is damaged: it ends too early, or was changed since", path.display());
        if length != *bytes {
            return Err(damaged());
        }
        let contents = sys::contents(&file, length as usize).map_err(|error| failed(&path, &error))?;
        let segment = Segment::read(contents.bytes(), true)
            .map_err(|trouble| format!("{} {trouble}", path.display()))?;
        if segment.head != *head {
            return Err(damaged());
        }
    }
    Ok(())
}

impl Keeper {
    /// For a run that is started so, as `keep` says; nothing if the user wants no checkpoints.
    ///
    /// # Errors
    /// There cannot be any, and why.
    pub fn new(keep: &Keep, launch: &Launch) -> Result<Option<Self>, String> {
        let Some(directory) = keep.resume.as_ref().or(keep.checkpoint.as_ref()) else { return Ok(None) };
        fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
        let directory = directory.canonicalize().map_err(|error| failed(directory, &error))?;
        if directory.to_str().is_none() {
            return Err(format!("{}: name a directory whose path is text (UTF-8)", directory.display()));
        }
        let lock = lock(&directory)?;
        let every = keep.every.map(|every| every.as_millis() as u64);
        let manifest = if keep.resume.is_some() {
            let mut manifest = read(&directory)?;
            check_processor(&manifest)?;
            check_segments(&directory, &manifest)?;
            manifest.every = every.unwrap_or(manifest.every);
            // what is kept from here on may have been chosen by this host's
            let both = format!("{} {}", manifest.processor, processor());
            let both: BTreeSet<&str> = both.split_whitespace().collect();
            manifest.processor = both.into_iter().collect::<Vec<_>>().join(" ");
            manifest
        } else {
            if directory.join(MANIFEST).exists() {
                return Err(format!(
                    "{} has a checkpoint of an earlier run: go on from it by --resume, name another directory, or remove it",
                    directory.display()
                ));
            }
            Manifest {
                launch: launch.bytes(),
                words: std::iter::once(launch.program.as_os_str())
                    .chain(launch.words.iter().skip(1).map(OsString::as_os_str))
                    .map(OsStr::to_owned)
                    .collect(),
                ranks: launch.hosts.len() as u64,
                threads: launch.threads as u64,
                every: every.unwrap_or(Keep::EVERY.as_millis() as u64),
                run: launch.chance[0],
                processor: processor(),
                segments: Vec::new(),
            }
        };
        let from = manifest.segments.iter().map(|(head, _)| head.name()).collect();
        let keeper = Self {
            directory,
            _lock: lock,
            manifest: Arc::new(Mutex::new(manifest)),
            from,
            worker: None,
            ends: Arc::default(),
            lost: false,
            told: BTreeSet::new(),
        };
        keeper.check_writable()?;
        Ok(Some(keeper))
    }

    /// A directory that cannot be written is told of before the program begins.
    fn check_writable(&self) -> Result<(), String> {
        let path = self.directory.join(format!("{MANIFEST}.new"));
        File::create(&path).map_err(|error| failed(&path, &error))?;
        fs::remove_file(&path).map_err(|error| failed(&path, &error))
    }

    fn manifest(&self) -> std::sync::MutexGuard<'_, Manifest> {
        self.manifest.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// The program asks: the answer, and what people are to be told.
    pub fn ask(&mut self, args: [u64; 6], data: &[u8]) -> ([u64; 4], Vec<u8>, Option<String>) {
        let [what, sequence, bytes, whole, ..] = args;
        match what {
            kept::WHERE => {
                let manifest = self.manifest();
                let last = manifest.segments.last().map_or(0, |(head, _)| head.sequence);
                let names = self.from.iter().flat_map(|name| [name.as_bytes(), &[0]].concat());
                let data = [self.directory.as_os_str().as_bytes(), &[0]].concat().into_iter().chain(names);
                ([manifest.every, manifest.run, last, 0], data.collect(), None)
            }
            kept::WRITTEN => {
                let told = self.wait();
                let head = Head { whole: whole == 1, run: self.manifest().run, sequence };
                let why = self.write(head, bytes, data);
                ([0; 4], Vec::new(), why.or(told))
            }
            kept::LAST => {
                let underway = self.worker.as_ref().is_some_and(|worker| !worker.is_finished());
                let told = if underway { None } else { self.wait() };
                let state = match (underway, std::mem::take(&mut self.lost)) {
                    (true, lost) => {
                        self.lost = lost;
                        kept::UNDERWAY
                    }
                    (false, false) => kept::SAFE,
                    (false, true) => kept::LOST,
                };
                ([state, 0, 0, 0], Vec::new(), told)
            }
            _ => {
                let why = String::from_utf8_lossy(data).into_owned();
                ([0; 4], Vec::new(), self.news(why))
            }
        }
    }

    /// What people are to be told, if they were not.
    fn news(&mut self, why: String) -> Option<String> {
        self.told.insert(why.clone()).then(|| format!("no checkpoint now: {why}"))
    }

    /// Waits for what is being written.
    fn wait(&mut self) -> Option<String> {
        match self.worker.take()?.join().unwrap_or_else(|_| Err("writing it failed".into())) {
            Ok(told) => told.filter(|told| self.told.insert(told.clone())),
            Err(why) => {
                self.lost = true;
                self.news(why)
            }
        }
    }

    /// The run ends: waits for what is being brought to the disk.
    pub fn end(mut self) -> Option<String> {
        self.ends.store(true, Ordering::Relaxed);
        self.wait()
    }

    /// What people are to be told, if it cannot be.
    fn write(&mut self, head: Head, bytes: u64, files: &[u8]) -> Option<String> {
        let directory = self.directory.clone();
        let (manifest, ends) = (Arc::clone(&self.manifest), Arc::clone(&self.ends));
        let files: Vec<PathBuf> = files
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
            .map(|path| OsStr::from_bytes(path).into())
            .collect();
        let work = move || {
            let mut next: Manifest = manifest.lock().unwrap_or_else(|broken| broken.into_inner()).clone();
            if head.whole {
                next.segments.clear();
            }
            next.segments.push((head, bytes));
            settle(&directory, head, &next, &files)?;
            *manifest.lock().unwrap_or_else(|broken| broken.into_inner()) = next.clone();
            if !is_long(&next) || ends.load(Ordering::Relaxed) {
                return Ok(None);
            }
            match merge(&directory, &next, &ends) {
                Ok(merged) => {
                    *manifest.lock().unwrap_or_else(|broken| broken.into_inner()) = merged;
                    Ok(None)
                }
                Err(_) if ends.load(Ordering::Relaxed) => Ok(None),
                // what there is, is there: it is tried again
                Err(why) => Ok(Some(format!("checkpoints take more room than they need: {why}"))),
            }
        };
        match std::thread::Builder::new().name("checkpoints".into()).spawn(work) {
            Ok(worker) => {
                self.worker = Some(worker);
                None
            }
            Err(error) => {
                self.lost = true;
                self.news(format!("no thread can be started: {error}"))
            }
        }
    }
}

fn to_disk(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Whether there are as many changes to read as there is memory.
fn is_long(manifest: &Manifest) -> bool {
    let bytes = |whole: bool| -> u64 {
        manifest.segments.iter().filter(|(head, _)| head.whole == whole).map(|(_, bytes)| bytes).sum()
    };
    bytes(false) > bytes(true).max(LITTLE) || manifest.segments.len() > MANY
}

/// So many segments are too many to be looked through.
const MANY: usize = 64;

/// So much is not worth merging.
const LITTLE: u64 = 16 << 20;

/// Makes one whole segment of all that there are, and a manifest that names it, while the program goes on.
fn merge(directory: &Path, manifest: &Manifest, ends: &AtomicBool) -> Result<Manifest, String> {
    let mut contents = Vec::new();
    for (head, bytes) in &manifest.segments {
        let path = directory.join(head.name());
        let mapped = File::open(&path).and_then(|file| sys::contents(&file, *bytes as usize));
        contents.push(mapped.map_err(|error| failed(&path, &error))?);
    }
    let mut segments = Vec::new();
    for contents in &contents {
        segments.push(
            Segment::read(contents.bytes(), false)
                .map_err(|trouble| format!("{}: a segment {trouble}", directory.display()))?,
        );
    }
    let Some((last, _)) = manifest.segments.last() else { return Ok(manifest.clone()) };
    let head = Head { whole: true, ..*last };
    let settled = directory.join(head.name());
    let new = directory.join(format!("{}.new", head.name()));
    let write = || -> io::Result<u64> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let mut writer = Writer::new(head, |bytes: &[u8]| match ends.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => file.write_all(bytes),
        })?;
        checkpoint::merge(&segments, &mut writer)?;
        let bytes = writer.end()?;
        file.sync_all()?;
        fs::rename(&new, &settled)?;
        Ok(bytes)
    };
    let bytes = write().map_err(|error| {
        // it is in the way of what comes next
        let _ = fs::remove_file(&new);
        failed(&settled, &error)
    })?;
    let merged = Manifest { segments: vec![(head, bytes)], ..manifest.clone() };
    put_in_place(directory, &merged)?;
    Ok(merged)
}

/// Brings a segment that is written to the disk, then the manifest that names it; then what that names no more goes.
fn settle(directory: &Path, head: Head, manifest: &Manifest, files: &[PathBuf]) -> Result<(), String> {
    let name = head.name();
    let (new, settled) = (directory.join(format!("{name}.new")), directory.join(&name));
    let settle = || -> Result<(), String> {
        to_disk(&new).map_err(|error| failed(&new, &error))?;
        sys::sync_around(files).map_err(|(path, error)| failed(&path, &error))?;
        fs::rename(&new, &settled).map_err(|error| failed(&settled, &error))
    };
    settle().inspect_err(|_| {
        // it is in the way of what comes next
        let _ = fs::remove_file(&new);
    })?;
    put_in_place(directory, manifest)
}

/// Puts a manifest into its place, all of whose segments are on the disk; what it names no more goes.
fn put_in_place(directory: &Path, manifest: &Manifest) -> Result<(), String> {
    let (new, settled) = (directory.join(format!("{MANIFEST}.new")), directory.join(MANIFEST));
    let write = || -> io::Result<()> {
        // segments have their names before anything names them
        to_disk(directory)?;
        // it has the program's environment, which may be nobody else's business
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&manifest.bytes())?;
        file.sync_all()?;
        fs::rename(&new, &settled)?;
        to_disk(directory)
    };
    write().map_err(|error| failed(&settled, &error))?;
    let needed: BTreeSet<OsString> =
        manifest.segments.iter().map(|(head, _)| OsString::from(head.name())).collect();
    let entries = fs::read_dir(directory).map_err(|error| failed(directory, &error))?;
    for entry in entries.flatten().map(|entry| entry.file_name()) {
        let is_segment = [WHOLE, CHANGES].iter().any(|begin| entry.as_bytes().starts_with(begin.as_bytes()));
        if is_segment && !needed.contains(&entry) {
            // the next one tries again
            let _ = fs::remove_file(directory.join(entry));
        }
    }
    Ok(())
}

/// What is started in place of what the user says, where a run goes on: all that a process's addresses depend on is as it was.
///
/// # Errors
/// This is another run, and why.
pub fn resumed(manifest: &Manifest, mut now: Launch) -> Result<Launch, String> {
    let then = Launch::read(&manifest.launch)
        .ok_or("the checkpoint says nothing that makes sense of its program")?;
    let (ranks, threads) = (then.hosts.len(), then.threads);
    if (ranks, threads) != (now.hosts.len(), now.threads) {
        return Err(format!(
            "the checkpoint is of {ranks} ranks of {threads} threads, and these are {} of {}: resume it with -n {ranks} -t {threads}",
            now.hosts.len(),
            now.threads
        ));
    }
    for (then, now) in [(&then.runtime, &now.runtime), (&then.stand_ins, &now.stand_ins)] {
        if then != now {
            return Err(format!(
                "the checkpoint was taken with {}, and this is {}: the addresses of programs depend on it",
                then.display(),
                now.display()
            ));
        }
    }
    (now.program, now.words, now.directory) = (then.program, then.words, then.directory);
    (now.environment, now.stack, now.chance) = (then.environment, then.stack, then.chance);
    Ok(now)
}

impl Keep {
    /// From one checkpoint to the next, where the user does not say.
    pub const EVERY: Duration = Duration::from_secs(600);
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_omp::checkpoint::What;

    fn launch() -> Launch {
        Launch {
            program: "/bin/true".into(),
            words: vec!["true".into(), "x".into()],
            directory: "/".into(),
            environment: Vec::new(),
            runtime: "/rt.so".into(),
            stand_ins: "/tmp/x".into(),
            stack: 8 << 20,
            threads: 2,
            settings: 0,
            watchdog: 30,
            chance: [7, 8],
            hosts: vec!["a".into(), "b".into()],
            host_of: vec![0, 1],
        }
    }

    fn kept(directory: &Path) -> Keep {
        Keep { checkpoint: Some(directory.into()), every: Some(Duration::from_secs(5)), resume: None }
    }

    /// As the runtime does: memory of so many MiB at `address`, all of them `byte`.
    fn written(keeper: &mut Keeper, directory: &Path, head: Head, address: u64, byte: u8, mib: usize) {
        let mut file = File::create(directory.join(format!("{}.new", head.name()))).unwrap();
        let mut writer = Writer::new(head, |bytes: &[u8]| file.write_all(bytes)).unwrap();
        writer.record(What::Memory, 0, address, &vec![byte; mib << 20]).unwrap();
        writer.record(What::State, 0, 0, &[byte]).unwrap();
        let bytes = writer.end().unwrap();
        keeper.ask([kept::WRITTEN, head.sequence, bytes, head.whole.into(), 0, 0], b"/no/such/file\0");
        assert_eq!(keeper.wait(), None, "{head:?}");
    }

    fn names(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn segments_are_named_merged_and_gone_on_from() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path();
        let mut keeper = Keeper::new(&kept(directory), &launch()).unwrap().unwrap();
        let head = |sequence: u64, whole: bool| Head { whole, run: 7, sequence };
        let (asked, data, _) = keeper.ask([kept::WHERE, 0, 0, 0, 0, 0], &[]);
        assert_eq!(
            (asked, &data[..]),
            ([5000, 7, 0, 0], &[directory.as_os_str().as_bytes(), &[0]].concat()[..])
        );
        // what a run left that was ended while it wrote
        fs::write(directory.join("changes.9.new"), "x").unwrap();
        written(&mut keeper, directory, head(1, true), 0, 1, 20);
        assert_eq!(names(directory), ["checkpoint", "whole.1"].map(String::from).into());
        written(&mut keeper, directory, head(2, false), 0, 2, 12);
        assert_eq!(names(directory), ["changes.2", "checkpoint", "whole.1"].map(String::from).into());
        written(&mut keeper, directory, head(3, false), 8 << 20, 3, 12);
        assert_eq!(names(directory), ["checkpoint", "whole.3"].map(String::from).into());
        let (last, _, told) = keeper.ask([kept::LAST, 0, 0, 0, 0, 0], &[]);
        assert_eq!((last[0], told), (1, None));
        let manifest = read(directory).unwrap();
        check_segments(directory, &manifest).unwrap();
        assert_eq!(manifest.words, ["/bin/true", "x"]);
        let bytes = fs::read(directory.join("whole.3")).unwrap();
        let merged = Segment::read(&bytes, true).unwrap();
        let mut memory = vec![0; 20 << 20];
        for record in merged.records().filter(|record| record.what == What::Memory) {
            memory[record.address as usize..][..record.bytes.len()].copy_from_slice(record.bytes);
        }
        let expected = [vec![2; 8 << 20], vec![3; 12 << 20]].concat();
        assert!(memory == expected);
        // one run at a time, and no other in the same place
        assert!(Keeper::new(&kept(directory), &launch()).is_err_and(|why| why.contains("another run")));
        drop(keeper);
        assert!(Keeper::new(&kept(directory), &launch()).is_err_and(|why| why.contains("earlier run")));
        let again = Keep { resume: Some(directory.into()), ..Keep::default() };
        let mut keeper = Keeper::new(&again, &launch()).unwrap().unwrap();
        let (asked, data, _) = keeper.ask([kept::WHERE, 0, 0, 0, 0, 0], &[]);
        assert_eq!((asked, data.ends_with(b"\0whole.3\0")), ([5000, 7, 3, 0], true));
    }

    #[test]
    fn what_is_resumed_is_what_was_run() {
        let now = Launch { chance: [0, 1], words: Vec::new(), settings: 5, ..launch() };
        let manifest = |launch: &Launch| Manifest {
            launch: launch.bytes(),
            words: Vec::new(),
            ranks: 2,
            threads: 2,
            every: 1,
            run: 7,
            processor: String::new(),
            segments: Vec::new(),
        };
        let then = Launch { directory: "/tmp".into(), ..launch() };
        let resumed = super::resumed(&manifest(&then), now.clone()).unwrap();
        assert_eq!(resumed, Launch { settings: 5, ..then.clone() });
        let fewer = Launch { threads: 1, ..now.clone() };
        assert!(super::resumed(&manifest(&then), fewer).is_err_and(|why| why.contains("-n 2 -t 2")));
        let other = Launch { runtime: "/other.so".into(), ..now };
        assert!(super::resumed(&manifest(&then), other).is_err_and(|why| why.contains("/other.so")));
    }

    #[test]
    fn a_processor_that_lacks_something_is_refused() {
        let of = |processor: String| Manifest {
            launch: Vec::new(),
            words: Vec::new(),
            ranks: 1,
            threads: 1,
            every: 1,
            run: 1,
            processor,
            segments: Vec::new(),
        };
        assert_eq!(check_processor(&of(processor())), Ok(()));
        assert!(check_processor(&of("no_such_flag".into())).is_err_and(|why| why.contains("no_such_flag")));
    }
}
