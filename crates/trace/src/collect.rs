//! Empties the rings of a host's recorders into a file, some hundred times a second.
//!
//! Recorders make a ring per thread in the session's directory; who collects finds the rings there, reads
//! them as files, and removes them when their thread or process has ended.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant, SystemTime};

use polyrail_core::trace::RECORD;
use polyrail_core::trace::ring::{self, session};
use polyrail_native::counter;

use crate::blocks::{CommandBlock, ThreadBlock, TotalsBlock, kind};
use crate::file::Writer;
use crate::host::{self, HostBlock};
use crate::options::Options;
use crate::pack::at_least;
use crate::session::{Session, make_directory};
use crate::tcp::Tcp;
use crate::unseen::{How, Unseen};
use crate::whole;

/// How often rings are looked at.
pub const PERIOD: Duration = Duration::from_millis(10);

/// What the recorder's file is called, whatever stands behind that.
const RECORDER: &[u8] = b"libpolyrail_preload";

/// How often rings are looked for at the end.
const END_ROUNDS: u32 = 64;

/// A thread's ring, seen from here.
struct Ring {
    path: PathBuf,
    file: File,
    stream: u32,
    tail: u64,
    lost: u64,
    pid: u32,
    /// Whether process ids mean the same to that process and to us.
    our_pids: bool,
    network: u64,
}

/// What changes in a ring's first page.
struct RingHeader {
    slots: u64,
    head: u64,
    lost: u64,
    closed: bool,
}

impl RingHeader {
    fn read(file: &File) -> io::Result<RingHeader> {
        let mut words = [0; ring::AT_CLOSED + 4];
        file.read_exact_at(&mut words, 0)?;
        let word64 = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| words[at + i]));
        Ok(RingHeader {
            slots: word64(ring::AT_SLOTS) & u64::from(u32::MAX),
            head: word64(ring::AT_HEAD),
            lost: word64(ring::AT_LOST),
            closed: words[ring::AT_CLOSED] != 0,
        })
    }
}

impl Ring {
    /// Reads the new records; empty if that cannot be. If the ring has grown meanwhile: its new header, by which they must be read again.
    fn take<'a>(&self, header: &RingHeader, memory: &'a mut Vec<u8>) -> Result<&'a [u8], RingHeader> {
        // records are read after the head that promises them, and what tells of growth after the records
        fence(Ordering::Acquire);
        let RingHeader { slots, head, .. } = *header;
        let new = head.wrapping_sub(self.tail);
        let mut records = &[][..];
        if new == 0 {
            return Ok(records);
        }
        if new <= slots && slots.is_power_of_two() && slots <= ring::MOST as u64 {
            let buffer = at_least(memory, new as usize * RECORD);
            let first = (slots - self.tail % slots).min(new) as usize * RECORD;
            let place = (ring::HEADER + (self.tail % slots) as usize * RECORD) as u64;
            let (one, two) = buffer.split_at_mut(first);
            let read = self
                .file
                .read_exact_at(one, place)
                .and_then(|()| self.file.read_exact_at(two, ring::HEADER as u64));
            if read.is_ok() {
                records = buffer;
            }
        }
        fence(Ordering::Acquire);
        match RingHeader::read(&self.file) {
            Ok(now) if now.slots > slots => Err(now),
            _ => Ok(records),
        }
    }
}

/// What the collector knows about time.
struct Clocks {
    uses_counter: bool,
}

impl Clocks {
    fn monotonic() -> u64 {
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
            .map_or(Duration::ZERO, Duration::from);
        time.as_nanos() as u64
    }

    /// One moment on all clocks: of some tries, the one in which reading them took the least time.
    fn now(&self) -> [u64; 3] {
        let look = || {
            let before = Self::monotonic();
            let ticks = counter::ticks();
            let after = Self::monotonic();
            let middle = before + (after - before) / 2;
            (after - before, [if self.uses_counter { ticks } else { middle }, middle, realtime()])
        };
        (0..5).map(|_| look()).min_by_key(|(took, _)| *took).map(|(_, now)| now).unwrap_or_default()
    }
}

/// Nanoseconds since 1970.
pub fn realtime() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// Collects what the recorders of one host write.
pub struct Collector {
    directory: PathBuf,
    /// Where it is written.
    pub path: PathBuf,
    session: Session,
    writer: Writer,
    clocks: Clocks,
    rings: BTreeMap<OsString, Ring>,
    streams: u32,
    listed: Option<(i64, i64, Instant)>,
    looked_for_dead: Instant,
    clocked: Instant,
    begun: Instant,
    idle: bool,
    /// Whether the last round found a ring that was half full.
    pressed: bool,
    records: u64,
    /// Records that found no room in a ring.
    lost: u64,
    memory: Vec<u8>,
    pids: u64,
    tcp: Tcp,
    unseen: Unseen,
    /// Whose rings were removed in this round and in the last: what the kernel says of them is read later.
    gone: [HashSet<u32>; 2],
    /// Processes that recorded, by id and the namespace of ids: what becomes another program stays one.
    processes: HashSet<(u32, u64)>,
    /// Why a ring could not be opened.
    unopened: Option<io::Error>,
    options: Options,
    /// Pictures of the last seconds that were written, by this collector or by another of the run.
    pictures: u32,
    /// Recording has ended; what the user must know of it.
    ended: Option<Vec<String>>,
}

/// How recording went on a host.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Records written.
    pub records: u64,
    /// Records lost: for want of room in a ring, or of a ring.
    pub lost: u64,
    /// Processes that recorded.
    pub processes: u64,
    /// Whether any process has loaded the recorder, or was recorded by the kernel.
    pub any: bool,
    /// Warnings that were written, for whoever waits at the terminal.
    pub warnings: Vec<String>,
}

impl Collector {
    /// Begins a session: `directory` is where recorders look for it, `run` where files are written; both are made if they are not there.
    ///
    /// # Errors
    /// One of them cannot be made or written to; the message names it.
    pub fn begin(directory: &Path, run: &Path, options: Options) -> io::Result<Collector> {
        // command lines are nobody else's business
        whole::make_directory(run).map_err(|why| named(run, why))?;
        make_directory(directory).map_err(|why| named(directory, why))?;
        let tcp = Tcp::new(!options.no_kernel);
        let mut host = HostBlock::here();
        host.kernel_events = tcp.kernel_events();
        host.why_no_events = tcp.why_no_events().map(Into::into);
        let path = run.join(format!("{}-{}.trace", file_name(&host.name), std::process::id()));
        let mut writer = Writer::create(&path).map_err(|why| named(&path, why))?;
        // a host's collectors, one after the other, share what there may be
        let begun = format!("{}-", file_name(&host.name));
        let ours = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&begun);
        let files = fs::read_dir(run).into_iter().flatten().flatten().filter(ours);
        let used: u64 = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
        let used = if options.last.is_some() { 0 } else { used };
        writer.limit(options.most.map(|most| most.saturating_sub(used)), options.last);
        let clocks = Clocks { uses_counter: host.counter };
        let at = Clocks::monotonic();
        writer.json(kind::HOST, 0, at, &host);

        let session = Session::make(directory, host.counter, &options)
            .map_err(|why| named(&directory.join("session"), why))?;
        let now = Instant::now();
        let mut collector = Collector {
            directory: directory.into(),
            path,
            session,
            writer,
            clocks,
            rings: BTreeMap::new(),
            streams: 0,
            listed: None,
            looked_for_dead: now,
            clocked: now,
            begun: now,
            idle: false,
            pressed: false,
            records: 0,
            lost: 0,
            memory: Vec::new(),
            pids: host::namespace("pid"),
            tcp,
            unseen: Unseen::default(),
            gone: Default::default(),
            processes: HashSet::new(),
            unopened: None,
            options,
            // what others have asked for before is theirs
            pictures: (1..)
                .take_while(|number: &u32| run.join(number.to_string()).is_dir())
                .last()
                .unwrap_or(0),
            ended: None,
        };
        collector.write_clock();
        collector.flush();
        // so that whoever looks sees a recording
        let Collector { writer, path, .. } = &mut collector;
        writer.snapshot(path, at, false).map_err(|why| named(path, why))?;
        Ok(collector)
    }

    /// Writes what the command is, and how it ended.
    pub fn command(&mut self, command: &CommandBlock) {
        self.writer.json(kind::COMMAND, 0, Clocks::monotonic(), command);
    }

    /// Records a process that runs already, with all that it starts; how.
    ///
    /// # Errors
    /// There is none, or it cannot be. The message is one sentence for the user.
    pub fn attach(&mut self, pid: u32) -> io::Result<How> {
        let how = self.unseen.attach(pid).map_err(io::Error::other)?;
        let how_said = match how {
            How::Kernel => "by the kernel",
            How::Followed => "by ptrace, which made each of its system calls slower",
        };
        let text = format!(
            "process {pid} was recorded from outside, {how_said}, since it ran already: times are longer, what vectors hold is not known, \
             and neither is what it did before"
        );
        self.writer.block(kind::WARNING, 0, Clocks::monotonic(), text.as_bytes());
        Ok(how)
    }

    /// Whether a process that ran already has ended, or cannot be recorded any more.
    pub fn attached_is_over(&self) -> bool {
        self.unseen.is_over()
    }

    /// How a process ended that ran already, if it has and that is known.
    pub fn attached_status(&self) -> Option<i32> {
        self.unseen.status()
    }

    /// Whether recording has ended before the end: by time or size.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether a recorder is at work here.
    pub fn is_idle(&self) -> bool {
        self.rings.is_empty()
    }

    /// Writes the last seconds, where these alone are kept, into a new directory of the run: where that is. Collectors of other hosts that
    /// share the run's directory see it and do the same.
    ///
    /// # Errors
    /// It cannot be written; the message names what.
    pub fn picture(&mut self) -> io::Result<PathBuf> {
        let run = self.path.parent().unwrap_or(Path::new("")).to_owned();
        let place = loop {
            self.pictures += 1;
            let place = run.join(self.pictures.to_string());
            match DirBuilder::new().mode(0o700).create(&place) {
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
                made => break made.map(|()| place.clone()).map_err(|why| named(&place, why))?,
            }
        };
        self.picture_in(&place)?;
        Ok(place)
    }

    fn picture_in(&mut self, place: &Path) -> io::Result<()> {
        self.write_clock();
        let path = place.join(self.path.file_name().unwrap_or_default());
        self.writer.snapshot(&path, Clocks::monotonic(), true).map(|_| ()).map_err(|why| named(&path, why))
    }

    /// Whether another collector of the run has begun a picture that this one has no part in yet.
    fn look_for_pictures(&mut self) {
        let run = self.path.parent().unwrap_or(Path::new("")).to_owned();
        while self.options.last.is_some() && run.join((self.pictures + 1).to_string()).is_dir() {
            self.pictures += 1;
            // who asked for it is told of its own part; the reader sees which hosts there are
            let _ = self.picture_in(&run.join(self.pictures.to_string()));
        }
    }

    /// Whether the kernel records what preloading does not see.
    pub fn has_kernel(&self) -> bool {
        self.tcp.kernel_events()
    }

    /// Hands what was written so far to the kernel, for whoever reads along.
    pub fn flush(&mut self) {
        self.writer.settle();
        self.writer.flush();
    }

    /// Looks at all rings once; how many records there were.
    pub fn round(&mut self) -> u64 {
        self.session.beat();
        self.pressed = false;
        if self.ended.is_some() {
            return 0;
        }
        let found = self.find_rings();
        let look_for_dead = self.looked_for_dead.elapsed() > Duration::from_millis(100);
        if look_for_dead {
            self.looked_for_dead = Instant::now();
            // so that little is missing if this process is killed
            self.flush();
            self.look_for_pictures();
        }
        let before = self.records;
        let mut names: Vec<(u32, OsString)> =
            self.rings.iter().map(|(name, ring)| (ring.stream, name.clone())).collect();
        names.sort_unstable();
        for (_, name) in names {
            let Some(ring) = self.rings.get(&name) else { continue };
            // asked before the last look: nothing comes after it
            let dead = look_for_dead && ring.our_pids && !alive(ring.pid);
            if self.empty(&name) || dead {
                self.remove(&name);
            }
        }
        if found {
            // what a child is called its parent may have told just now
            self.writer.settle();
        }
        self.tcp.sample(&mut self.writer);
        self.drain_unseen(false);
        if self.clocked.elapsed() > Duration::from_secs(1) {
            self.clocked = Instant::now();
            self.write_clock();
        }
        if self.rings.is_empty()
            && !self.idle
            && (self.streams > 0 || self.begun.elapsed() > Duration::from_secs(1))
        {
            self.idle = true;
            self.writer.settle();
            self.write_clock();
            self.write_idle();
        }
        if self.options.until.is_some_and(|until| realtime() >= until) {
            self.stop(Some(
                "as --for says, recording ended before the command did: what came after is not in it".into(),
            ));
        } else if self.writer.is_full() {
            self.stop(Some("there is as much as --max-size allows: what came after is not recorded".into()));
        }
        self.records - before
    }

    /// Waits until it is time for another round: not at all where a thread may soon wait for room in its ring.
    pub fn rest(&self) {
        if !self.pressed {
            std::thread::sleep(PERIOD);
        }
    }

    /// What the kernel recorded of programs that preloading does not see. `last`: nothing more will come.
    fn drain_unseen(&mut self, last: bool) {
        if self.unseen.is_on() {
            let ours = self.rings.values().filter(|ring| ring.our_pids);
            let mut seen: HashSet<u32> = ours.map(|ring| ring.pid).collect();
            seen.extend(self.gone.iter().flatten());
            self.records +=
                self.unseen.drain(last, &seen, &mut self.streams, &mut self.tcp, &mut self.writer);
        }
        self.gone.swap(0, 1);
        self.gone[0].clear();
    }

    /// What becomes a program that is not seen stays one process.
    fn count_processes(&self) -> u64 {
        let by_kernel = self.unseen.processes();
        let ours = self.processes.iter().filter(|(_, pids)| *pids == self.pids).map(|(pid, _)| *pid);
        let elsewhere = self.processes.iter().filter(|(_, pids)| *pids != self.pids).count();
        (by_kernel.into_iter().chain(ours).collect::<HashSet<u32>>().len() + elsewhere) as u64
    }

    fn lost(&self) -> u64 {
        self.lost.saturating_add(self.session.numbers()(session::AT_MISSED))
    }

    fn write_idle(&mut self) {
        let totals =
            TotalsBlock { records: self.records, processes: self.count_processes(), lost: self.lost() };
        let at = Clocks::monotonic();
        self.writer.json(kind::TOTALS, 0, at, &totals);
        self.writer.block(kind::IDLE, 0, at, &[]);
        self.writer.flush();
    }

    /// The last seconds, where these alone are kept, are written as if it were the end: there may be nothing more.
    pub fn keep(&mut self) {
        // who ends it tells whether that can be done
        let _ = self.writer.snapshot(&self.path, Clocks::monotonic(), true);
    }

    fn write_clock(&mut self) {
        let now = self.clocks.now();
        self.writer.block(kind::CLOCK, 0, now[1], now.map(u64::to_le_bytes).as_flattened());
        self.writer.flush();
    }

    /// Whether there are new ones.
    fn find_rings(&mut self) -> bool {
        let Ok(about) = fs::metadata(&self.directory) else { return false };
        let changed = (about.mtime(), about.mtime_nsec());
        // a change within the same tick of the file system's clock does not show
        if let Some((seconds, nanoseconds, when)) = self.listed
            && (seconds, nanoseconds) == changed
            // what the kernel records waits for the rings of those that are seen
            && !self.unseen.is_on()
            && when.elapsed() < Duration::from_millis(200)
        {
            return false;
        }
        self.listed = Some((changed.0, changed.1, Instant::now()));
        let Ok(entries) = fs::read_dir(&self.directory) else { return false };
        let (mut new, mut asked) = (Vec::new(), Vec::new());
        for entry in entries.flatten() {
            let name = entry.file_name();
            if let Some((tid, becomes)) = name.to_str().and_then(asks) {
                asked.push((tid, becomes, entry.path()));
            } else if name.as_encoded_bytes().ends_with(b".ring")
                && !self.rings.contains_key(&name)
                && let Some((ring, block)) = self.open_ring(&entry.path())
            {
                new.push((name, ring, block));
            }
        }
        // parents before their children, programs before what they became
        new.sort_by_key(|(_, _, block)| block.process);
        let any = !new.is_empty();
        if any {
            // a process that has ended had told so before another got its number
            self.writer.settle();
        }
        for (name, mut ring, block) in new {
            self.streams += 1;
            ring.stream = self.streams;
            self.processes.insert((block.pid, block.pids));
            self.tcp.process(block.pid, block.network);
            self.writer.json(kind::THREAD, ring.stream, Clocks::monotonic(), &block);
            self.rings.insert(name, ring);
        }
        for (tid, becomes, path) in asked {
            // who asks may be of another namespace of ids, and somebody else have that number here
            if has_recorder(tid) {
                self.unseen.begin(tid, becomes);
            }
            // who waits for that goes on
            let _ = fs::remove_file(path);
        }
        if any {
            // whoever waits for this host sees that it is not idle any more
            self.idle = false;
            self.writer.flush();
        }
        any
    }

    /// `None`: it is no ring, or is not finished yet.
    fn open_ring(&mut self, path: &Path) -> Option<(Ring, ThreadBlock)> {
        let opened = File::options().read(true).write(true).custom_flags(nix::libc::O_NOFOLLOW).open(path);
        let file = opened.map_err(|why| self.unopened = Some(why)).ok()?;
        let mut page = [0; ring::AT_TAIL + 8];
        file.read_exact_at(&mut page, 0).ok()?;
        let word32 = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
        let word64 = |at: usize| u64::from(word32(at)) | u64::from(word32(at + 4)) << 32;
        if word64(ring::AT_MAGIC) != ring::MAGIC {
            return None;
        }
        let name = &page[ring::AT_NAME..ring::AT_NAME + 16];
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let block = ThreadBlock {
            process: word64(ring::AT_PROCESS),
            pid: word32(ring::AT_PID),
            tid: word32(ring::AT_TID),
            parent: word32(ring::AT_PPID),
            pids: word64(ring::AT_PID_NAMESPACE),
            network: word64(ring::AT_NETWORK),
            name: String::from_utf8_lossy(name).into_owned(),
        };
        let ring = Ring {
            path: path.into(),
            file,
            stream: 0,
            tail: word64(ring::AT_TAIL),
            lost: 0,
            pid: block.pid,
            our_pids: block.pids == self.pids,
            network: block.network,
        };
        Some((ring, block))
    }

    /// Takes what is in a ring; whether its thread has ended.
    fn empty(&mut self, name: &OsString) -> bool {
        let Some(ring) = self.rings.get_mut(name) else { return false };
        let Ok(mut header) = RingHeader::read(&ring.file) else { return true };
        // a ring that has grown meanwhile has its records at other places
        let records = loop {
            match ring.take(&header, &mut self.memory) {
                Ok(records) => break records.len(),
                Err(grown) => header = grown,
            }
        };
        let records = &self.memory[..records];
        let at = Clocks::monotonic();
        let RingHeader { slots, head, mut lost, closed } = header;
        let new = head.wrapping_sub(ring.tail);
        self.pressed |= new >= slots / 2;
        if records.len() as u64 != new * RECORD as u64 {
            // nothing that a recorder does, or it cannot be read: what it held is lost
            lost = lost.max(ring.lost).saturating_add(new.min(slots));
        } else if new > 0 {
            self.tcp.learn(ring.network, records);
            self.writer.records(kind::RECORDS, ring.stream, at, records);
            self.records += new;
        }
        if new > 0 {
            ring.tail = head;
            // the thread may write there only after it was read
            fence(Ordering::SeqCst);
            let _ = ring.file.write_all_at(&head.to_le_bytes(), ring::AT_TAIL as u64);
        }
        if lost > ring.lost {
            self.writer.block(kind::LOST, ring.stream, at, &(lost - ring.lost).to_le_bytes());
            self.lost = self.lost.saturating_add(lost - ring.lost);
            ring.lost = lost;
        }
        closed
    }

    fn remove(&mut self, name: &OsString) {
        // once more: it may have written between the last look and its end
        self.empty(name);
        if let Some(ring) = self.rings.remove(name) {
            let _ = fs::remove_file(&ring.path);
            self.writer.ended(ring.stream);
            if ring.our_pids {
                self.gone[0].insert(ring.pid);
            }
        }
    }

    /// Recording ends: what is still in rings is written, and they are removed. The program may go on; `why`, then.
    fn stop(&mut self, why: Option<String>) {
        if self.ended.is_some() {
            return;
        }
        let mut warnings = Vec::new();
        self.listed = None;
        self.find_rings();
        let running: std::collections::BTreeSet<u32> = self
            .rings
            .values()
            .filter(|ring| ring.our_pids && alive(ring.pid))
            .map(|ring| ring.pid)
            .collect();
        if let Some(why) = why {
            warnings.push(why);
        } else if !running.is_empty() {
            let list: Vec<String> = running.iter().take(8).map(u32::to_string).collect();
            warnings.push(format!(
                "{} processes were still running when the command ended; their records end there (process {}{})",
                running.len(),
                list.join(", "),
                if running.len() > 8 { ", ..." } else { "" }
            ));
        }
        self.session.stop();
        // more than once: where descriptors are short, some rings can be opened only when others are done; not without end, since one that
        // cannot be removed would be found again each time
        for _ in 0..END_ROUNDS {
            if self.rings.is_empty() {
                break;
            }
            let names: Vec<OsString> = self.rings.keys().cloned().collect();
            names.iter().for_each(|name| self.remove(name));
            self.listed = None;
            self.find_rings();
        }
        self.drain_unseen(true);
        warnings.extend(self.unseen.warnings());
        self.tcp.finish(&mut self.writer);
        warnings.extend(self.tcp.warnings().iter().cloned());

        let number = self.session.numbers();
        let [failed, nested, missed] =
            [session::AT_FAILED, session::AT_NESTED, session::AT_MISSED].map(&number);
        if missed > 0 {
            warnings.push(format!(
                "{failed} threads could not record for some time, {missed} records are missing: no room in shared memory, no descriptor \
                 left, a limit of file sizes, or a process that has lost sight of shared memory (chroot, another user, seccomp)"
            ));
        }
        if let Some(why) = &self.unopened {
            warnings.push(format!("some threads' rings were read late or not at all: {why}"));
        }
        if nested > 0 {
            warnings.push(format!(
                "{nested} calls in signal handlers were not recorded, because they interrupted the recorder"
            ));
        }
        warnings.extend(waited(number(session::AT_WAITS), number(session::AT_WAITED)));
        self.writer.settle();
        self.write_clock();
        let at = Clocks::monotonic();
        warnings.iter().for_each(|text| self.writer.block(kind::WARNING, 0, at, text.as_bytes()));
        self.tcp.close();
        self.unseen.close();
        self.writer.freeze(at);
        self.pressed = false;
        self.ended = Some(warnings);
    }

    /// Ends the session, and removes its directory.
    pub fn end(self) -> Totals {
        self.end_and(false)
    }

    /// Ends the session. If recording had ended before, its page stays, by which programs that begin see that nothing is to be recorded; whoever
    /// traces the next time removes it.
    pub fn leave(self) -> Totals {
        let over = self.has_ended();
        self.end_and(over)
    }

    fn end_and(mut self, keep_page: bool) -> Totals {
        self.stop(None);
        let mut warnings = self.ended.take().unwrap_or_default();
        self.write_idle();
        let at = Clocks::monotonic();
        if let Err(why) = self.writer.snapshot(&self.path, at, true) {
            warnings.push(format!("{}: {why}", self.path.display()));
        }
        let number = self.session.numbers();
        let loaded = number(session::AT_PROCESSES);
        let (processes, lost) = (self.count_processes(), self.lost());
        let unseen = number(session::AT_UNSEEN);
        if unseen > 0 && self.unseen.processes().is_empty() {
            // whoever reads the recording is told their names
            warnings.push(format!(
                "{unseen} times a program was started that preloading cannot see: its calls were not recorded"
            ));
        }
        if let Some(why) = &self.writer.failure {
            warnings.push(format!(
                "{}: {why}; {} kB of what was recorded could not be written",
                self.path.display(),
                self.writer.unwritten.div_ceil(1024)
            ));
        }
        if !keep_page {
            let _ = fs::remove_dir_all(&self.directory);
        }
        Totals { records: self.records, lost, processes, any: loaded > 0 || processes > 0, warnings }
    }
}

/// What the user must know of waits for room: how many, and how many nanoseconds they took together.
fn waited(times: u64, took: u64) -> Option<String> {
    (times > 0).then(|| {
        format!(
            "threads waited {times} times, {:.3} s in all, for their records to be collected: the program made calls faster than they could \
             be written, and was slower by that (polyrail trace --drop loses records instead)",
            took as f64 / 1e9
        )
    })
}

/// What the name of a file asks for: that the kernel records this thread, which becomes a program that preloading does not see, or
/// starts one.
fn asks(name: &str) -> Option<(u32, bool)> {
    let (tid, how) = name.split_once('.')?;
    let becomes = match how {
        "exec" => true,
        "spawn" => false,
        _ => return None,
    };
    Some((tid.parse().ok()?, becomes))
}

/// Whether a thread's process has loaded the recorder.
fn has_recorder(tid: u32) -> bool {
    let maps = fs::read(format!("/proc/{tid}/maps")).unwrap_or_default();
    maps.windows(RECORDER.len()).any(|window| window == RECORDER)
}

/// An error that says where it was.
fn named(path: &Path, why: io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{}: {why}", path.display()))
}

fn alive(pid: u32) -> bool {
    // a process of another user is there as well
    !matches!(
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), None),
        Err(nix::errno::Errno::ESRCH)
    )
}

/// A host's name as part of a file's.
fn file_name(name: &str) -> String {
    let safe: String = name
        .chars()
        .take(64)
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .collect();
    if safe.is_empty() || safe.starts_with('.') { format!("host{safe}") } else { safe }
}
