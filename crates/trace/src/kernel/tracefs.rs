//! An instance of the kernel's tracing of our own: rings apart from anybody else's, which are gone when it is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{SysconfVar, sysconf};

use super::format::Format;
use super::page::Layout;

/// Why there are no kernel events: one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The process may not.
    #[error("kernel events need root; TCP_INFO is sampled instead")]
    Root,
    /// There is no tracing file system, and it could not be mounted.
    #[error(
        "no kernel events: tracefs is not mounted at /sys/kernel/tracing and cannot be mounted here ({0}); TCP_INFO is sampled instead"
    )]
    NoTracefs(io::Error),
    /// The kernel has none of the events that were asked for.
    #[error("no kernel events: this kernel has none of {0}; TCP_INFO is sampled instead")]
    NoEvents(String),
    /// A file of tracefs did not do what it should.
    #[error("no kernel events: {path}: {error}; TCP_INFO is sampled instead")]
    File {
        /// Which.
        path: PathBuf,
        /// What it did.
        error: io::Error,
    },
}

impl Unavailable {
    fn file(path: &Path, error: io::Error) -> Unavailable {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Unavailable::Root,
            _ => Unavailable::File { path: path.to_owned(), error },
        }
    }
}

/// Where tracefs is. One that had to be mounted for this process is at no place of the file system: it is reached by the
/// descriptor, and unmounted when that is closed.
#[derive(Debug)]
struct Tracefs {
    path: PathBuf,
    _mounted: Option<File>,
}

impl Tracefs {
    fn find() -> Result<Tracefs, Unavailable> {
        for path in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            match fs::metadata(Path::new(path).join("instances")) {
                Ok(_) => return Ok(Tracefs { path: path.into(), _mounted: None }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(Unavailable::Root);
                }
                Err(_) => {}
            }
        }
        Tracefs::mount()
    }

    fn mount() -> Result<Tracefs, Unavailable> {
        let no = Unavailable::NoTracefs;
        let place = tempfile::Builder::new().prefix("polyrail-tracefs-").tempdir().map_err(no)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let mounted = mount(Some("polyrail"), place.path(), Some("tracefs"), flags, None::<&str>);
        let root = mounted.map_err(io::Error::from).and_then(|()| {
            let root = File::open(place.path());
            umount2(place.path(), MntFlags::MNT_DETACH)?;
            root
        });
        let root = root.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Unavailable::Root,
            _ => no(error),
        })?;
        use std::os::fd::AsRawFd;
        let path = format!("/proc/{}/fd/{}", std::process::id(), root.as_raw_fd()).into();
        Ok(Tracefs { path, _mounted: Some(root) })
    }
}

/// A processor's ring.
#[derive(Debug)]
struct Ring {
    pages: File,
    stats: PathBuf,
}

/// KiB of an instance's rings: each processor's at least, and all of them together unless that is less. A busy machine keeps who reads them
/// away for tens of milliseconds, and few processors have as many events as many have.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Of each processor's at least.
    pub least: u32,
    /// Of all together.
    pub all: u32,
}

/// Rings take no more than this part of the memory that is there: they cannot be given up again for who needs it more.
const PART: u32 = 32;

/// KiB of memory that is there for the asking; proc_meminfo(5).
fn available() -> u32 {
    let text = text(Path::new("/proc/meminfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(u32::MAX)
}

/// Processors that run, each of which has a ring: of those that may be plugged in one day there are hundreds in some virtual machines.
fn processors() -> u32 {
    let number = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(1).max(1)
}

/// An instance; removed when dropped.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    rings: Vec<Ring>,
    /// Pages that a processor's ring has.
    pages: usize,
    layout: Layout,
    page: Vec<u8>,
    _tracefs: Tracefs,
}

/// Instances that nobody has open are removed at the next start once they are this old; until then their makers may just be
/// about to open them.
const STALE: Duration = Duration::from_secs(10);
const PREFIX: &str = "polyrail-";

/// Makes a directory that is nobody else's. Processes of several namespaces of ids may have the same id and share the kernel.
fn make(instances: &Path) -> Result<PathBuf, Unavailable> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = instances.join(format!("{PREFIX}{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {}
            other => return other.map(|()| path.clone()).map_err(|error| Unavailable::file(&path, error)),
        }
    }
}

impl Instance {
    /// Makes one whose rings have so much room, on the monotonic clock, without events; removes those
    /// that crashed processes left.
    ///
    /// # Errors
    /// See [`Unavailable`].
    pub fn new(room: Room) -> Result<Instance, Unavailable> {
        let tracefs = Tracefs::find()?;
        let instances = tracefs.path.join("instances");
        remove_stale(&instances);
        let path = make(&instances)?;
        let layout = text(&tracefs.path.join("events/header_page"))
            .and_then(|text| Layout::parse(&text))
            .ok_or_else(|| {
                let _ = fs::remove_dir(&path);
                Unavailable::file(&tracefs.path.join("events/header_page"), io::ErrorKind::InvalidData.into())
            })?;
        let page = vec![0; layout.size];
        let mut instance = Instance { path, rings: Vec::new(), pages: 0, layout, page, _tracefs: tracefs };
        instance.write("trace_clock", "mono")?;
        instance.make_room(room)?;
        instance.open_rings()?;
        Ok(instance)
    }

    /// Less than was asked for where there is no memory for it.
    fn make_room(&mut self, room: Room) -> Result<(), Unavailable> {
        let all = room.all.min(available() / PART);
        let mut each = (all / processors()).max(room.least);
        while let Err(why) = self.write("buffer_size_kb", &each.to_string()) {
            if each <= room.least {
                return Err(why);
            }
            each = (each / 2).max(room.least);
        }
        // each holds a little less than its size, and one more is the reader's
        self.pages = (each as usize * 1024).div_ceil(self.layout.data_size().max(1)) + 2;
        Ok(())
    }

    fn open_rings(&mut self) -> Result<(), Unavailable> {
        let processors = self.path.join("per_cpu");
        let failed = |error| Unavailable::file(&processors, error);
        for entry in fs::read_dir(&processors).map_err(failed)? {
            let directory = entry.map_err(failed)?.path();
            let (pages, stats) = (directory.join("trace_pipe_raw"), directory.join("stats"));
            let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pages);
            self.rings.push(Ring { pages: opened.map_err(|error| Unavailable::file(&pages, error))?, stats });
        }
        Ok(())
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file of the instance.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn write(&self, file: &str, text: &str) -> Result<(), Unavailable> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(|error| Unavailable::file(&path, error))
    }

    /// The layout of an event (`tcp/tcp_probe`), where the kernel has it.
    pub fn format(&self, event: &str) -> Option<Format> {
        let format = text(&self.path.join("events").join(event).join("format"))?;
        Some(Format::parse(&format)).filter(|format| format.id != 0)
    }

    /// Reads what there is, at most what a ring holds of each processor, and calls `each` with each event's time and data; of each processor in
    /// order. Says whether the kernel lost events before any of these.
    ///
    /// # Errors
    /// Reading failed.
    pub fn read(&mut self, each: &mut dyn FnMut(u64, &[u8])) -> io::Result<bool> {
        let mut missed = false;
        for ring in &mut self.rings {
            for _ in 0..self.pages {
                let length = match ring.pages.read(&mut self.page) {
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                };
                if length == 0 {
                    break;
                }
                let page = &self.page[..length];
                missed |= self.layout.missed(page);
                self.layout.events(page).for_each(|(at, data)| each(at, data));
            }
        }
        Ok(missed)
    }

    /// Events that the kernel lost since the start, because a ring was full.
    pub fn lost(&self) -> u64 {
        let lost = |text: String| -> u64 {
            let lines = text.lines().filter_map(|line| line.split_once(": "));
            lines
                .filter(|(key, _)| ["overrun", "commit overrun", "dropped events"].contains(key))
                .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
                .sum()
        };
        self.rings.iter().filter_map(|ring| text(&ring.stats)).map(lost).sum()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The kernel keeps an instance that is open. Removing it turns its events off.
        self.rings.clear();
        let _ = fs::remove_dir(&self.path);
    }
}

/// A file of tracefs. Some of them give only as much as the first read asks for, so it asks for much.
fn text(path: &Path) -> Option<String> {
    let mut bytes = vec![0; 64 << 10];
    let mut file = File::open(path).ok()?;
    let mut length = 0;
    loop {
        match file.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(length);
    String::from_utf8(bytes).ok()
}

/// The kernel refuses to remove an instance whose rings somebody has open, so the ones of living processes stay, also those
/// of other process namespaces.
fn remove_stale(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|made| made.elapsed().ok());
        if ours && age.is_some_and(|age| age >= STALE) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_processors_are_known() {
        assert!((1..u32::MAX).contains(&available()), "what is there where it cannot be read");
        let listed = text(Path::new("/proc/cpuinfo")).unwrap();
        let listed = listed.lines().filter(|line| line.starts_with("processor")).count();
        assert_eq!(processors() as usize, listed);
    }
}
