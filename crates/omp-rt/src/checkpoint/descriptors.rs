//! Open files: their paths and positions are kept, and how long they are. Whoever goes on from a checkpoint has files that are as long as they were then. What a file has that is open for
//! reading and writing is kept with it, since the program may have changed it in place.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::sync::Mutex;

use polyrail_omp::items::{numbers, pack, read_numbers, unpack};

use super::process::{call, link};
use crate::alloc;

/// Of a file that is open for reading and writing, so much is kept.
const CONTENT: u64 = 64 << 20;
/// Descriptors from here on may be the runtime's.
const OURS: i32 = 1000;
/// Standard input, output and errors.
const STANDARD: i32 = 3;

/// An open file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open {
    pub number: i32,
    /// It is the same as this one's, position and all.
    pub same_as: Option<i32>,
    /// That is a standard one, as the process was started with it.
    pub inherited: bool,
    pub path: Vec<u8>,
    /// As `open` takes them, with `O_CLOEXEC`.
    pub flags: i32,
    pub position: u64,
    pub length: u64,
    /// A file of bytes, which has a length.
    pub regular: bool,
    /// What it had, where that is kept.
    pub content: Option<Vec<u8>>,
}

/// What descriptors the process has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    pub open: Vec<Open>,
    /// Standard ones that are closed.
    pub closed: Vec<i32>,
}

/// A standard one when the process began.
#[derive(Clone, Copy)]
struct Standard {
    /// Device and file.
    file: (u64, u64),
    /// How it could be used.
    mode: i32,
}
type Began = [Option<Standard>; STANDARD as usize];
static BEGAN_AS: Mutex<Began> = Mutex::new([None; STANDARD as usize]);

/// Why there cannot be any checkpoint of this run.
static NEVER: Mutex<Option<String>> = Mutex::new(None);

/// Rank 0, before `main`. Constructors have run, which they do again in a run that goes on: what they open for writing they may cut.
pub fn begin() {
    let standard = |number: i32| {
        let status = status(number)?;
        Some(Standard {
            file: (status.st_dev, status.st_ino),
            mode: control(number, libc::F_GETFL) & libc::O_ACCMODE,
        })
    };
    *BEGAN_AS.lock().unwrap_or_else(|broken| broken.into_inner()) = [0, 1, 2].map(standard);
    let is_written = |open: &&Open| open.regular && open.flags & libc::O_ACCMODE != libc::O_RDONLY;
    let never = match look() {
        Ok(all) => all.open.iter().find(is_written).map(|open| {
            let path = OsString::from_vec(open.path.clone());
            format!("constructors have opened {} for writing, and would again", path.display())
        }),
        // it is looked at again when one is due
        Err(_) => None,
    };
    *NEVER.lock().unwrap_or_else(|broken| broken.into_inner()) = never;
}

fn status(descriptor: i32) -> Option<libc::stat> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    let result = call(libc::SYS_fstat, [descriptor as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0]);
    // SAFETY: the call has filled it
    (result == 0).then(|| unsafe { status.assume_init() })
}

fn control(descriptor: i32, what: i32) -> i32 {
    call(libc::SYS_fcntl, [descriptor as usize, what as usize, 0, 0, 0, 0]) as i32
}

/// Numbers of descriptors that there are.
fn numbers_in_use() -> Result<Vec<i32>, String> {
    alloc::privately(|| {
        let entries =
            std::fs::read_dir("/proc/self/fd").map_err(|error| format!("/proc/self/fd: {error}"))?;
        let mut all: Vec<i32> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // the one that the list was read by is closed by now
        all.retain(|number| control(*number, libc::F_GETFD) >= 0);
        all.sort_unstable();
        Ok(all)
    })
}

/// Whether two descriptors are of one opening; nothing if the kernel does not say.
fn is_same(one: i32, other: i32) -> Option<bool> {
    const FILE: usize = 0;
    let me = call(libc::SYS_getpid, [0; 6]) as usize;
    match call(libc::SYS_kcmp, [me, me, FILE, one as usize, other as usize, 0]) {
        0 => Some(true),
        1..=3 => Some(false),
        _ => None,
    }
}

/// The standard one that a descriptor is a copy of, as the process was started with it.
fn copy_of_standard(number: i32, status: &libc::stat, began_as: &Began) -> Option<i32> {
    let mode = |flags: i32| flags & libc::O_ACCMODE;
    (0..STANDARD).find(|standard| {
        let Some(began) = began_as[*standard as usize] else { return false };
        if began.file != (status.st_dev, status.st_ino) || began.mode != mode(control(number, libc::F_GETFL))
        {
            return false;
        }
        // that one may be something else by now
        let is_there = self::status(*standard).is_some_and(|now| (now.st_dev, now.st_ino) == began.file);
        !is_there || is_same(number, *standard) == Some(true)
    })
}

/// Whether it is the runtime's own.
fn is_ours(number: i32, path: &str) -> bool {
    number >= OURS && (path.contains("userfaultfd") || path.ends_with("/pagemap"))
}

/// What there is; or why it cannot be kept.
pub fn look() -> Result<Descriptors, String> {
    if let Some(why) = &*NEVER.lock().unwrap_or_else(|broken| broken.into_inner()) {
        return Err(why.clone());
    }
    let began_as = *BEGAN_AS.lock().unwrap_or_else(|broken| broken.into_inner());
    let mut all = Descriptors::default();
    for number in (0..STANDARD).filter(|number| control(*number, libc::F_GETFD) < 0) {
        all.closed.push(number);
    }
    for number in numbers_in_use()? {
        let Some(status) = status(number) else { continue };
        let began = began_as.get(number as usize).copied().flatten();
        if began.is_some_and(|began| began.file == (status.st_dev, status.st_ino)) {
            continue;
        }
        let path = link(&format!("/proc/self/fd/{number}")).unwrap_or_default();
        let text = String::from_utf8_lossy(&path).into_owned();
        if is_ours(number, &text) {
            continue;
        }
        if let Some(standard) = copy_of_standard(number, &status, &began_as) {
            all.open.push(Open { number, same_as: Some(standard), inherited: true, ..Open::default() });
            continue;
        }
        let what = match status.st_mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFDIR | libc::S_IFCHR | libc::S_IFBLK => None,
            libc::S_IFSOCK => Some("a socket"),
            libc::S_IFIFO => Some("a pipe"),
            _ => Some("neither a file nor a device"),
        };
        if let Some(what) = what {
            return Err(format!("descriptor {number} is {what}"));
        }
        if text.ends_with(" (deleted)") || !text.starts_with('/') || status.st_nlink == 0 {
            return Err(format!("descriptor {number} is of a file that has no name any more ({text})"));
        }
        if text.starts_with("/proc/") {
            return Err(format!("descriptor {number} is of {text}, which is about this process"));
        }
        let regular = status.st_mode & libc::S_IFMT == libc::S_IFREG;
        let position = call(libc::SYS_lseek, [number as usize, 0, libc::SEEK_CUR as usize, 0, 0, 0]);
        let cloexec =
            if control(number, libc::F_GETFD) & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        let mut open = Open {
            number,
            same_as: None,
            inherited: false,
            path,
            flags: control(number, libc::F_GETFL) | cloexec,
            position: u64::try_from(position).unwrap_or(0),
            length: status.st_size.cast_unsigned(),
            regular,
            content: None,
        };
        for other in all.open.iter().filter(|other| other.same_as.is_none() && other.path == open.path) {
            match is_same(other.number, number) {
                Some(true) => open.same_as = Some(other.number),
                Some(false) => {}
                None => {
                    return Err(format!(
                        "descriptors {} and {number} are both of {text}, and this kernel does not say whether they share their position",
                        other.number
                    ));
                }
            }
        }
        let in_place = regular && open.same_as.is_none() && open.flags & libc::O_ACCMODE == libc::O_RDWR;
        if in_place {
            if open.length > CONTENT {
                return Err(format!(
                    "{text} is open for reading and writing, so that it may be changed in place, and has more than {} MiB, which are not kept: open it for writing only \
                     (Fortran: action='write')",
                    CONTENT >> 20
                ));
            }
            open.content = Some(content(number, open.length)?);
        }
        all.open.push(open);
    }
    Ok(all)
}

fn content(descriptor: i32, length: u64) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; length as usize];
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        let args = [descriptor as usize, rest.as_mut_ptr() as usize, rest.len(), done, 0, 0];
        match call(libc::SYS_pread64, args) {
            got @ 1.. => done += got as usize,
            error => return Err(format!("descriptor {descriptor} cannot be read ({error})")),
        }
    }
    Ok(bytes)
}

impl Descriptors {
    /// As bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let one = |open: &Open| {
            let same_as = open.same_as.map_or(u64::MAX, |number| number as u64);
            let figures = [
                open.number as u64,
                same_as,
                open.flags as u64,
                open.position,
                open.length,
                open.regular.into(),
                open.inherited.into(),
                open.content.is_some().into(),
            ];
            let content = open.content.as_deref().unwrap_or_default();
            pack([&open.path[..], &numbers(&figures), content])
        };
        let open: Vec<Vec<u8>> = self.open.iter().map(one).collect();
        let closed: Vec<u64> = self.closed.iter().map(|number| *number as u64).collect();
        pack([&pack(open.iter().map(Vec::as_slice))[..], &numbers(&closed)])
    }

    /// What [`bytes`](Self::bytes) wrote.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [open, closed] = unpack(bytes)?.try_into().ok()?;
        let one = |bytes: Vec<u8>| {
            let [path, figures, content] = unpack(&bytes)?.try_into().ok()?;
            let [number, same_as, flags, position, length, regular, inherited, has] =
                read_numbers(&figures).try_into().ok()?;
            Some(Open {
                number: i32::try_from(number).ok()?,
                same_as: if same_as == u64::MAX { None } else { Some(i32::try_from(same_as).ok()?) },
                path,
                flags: flags as i32,
                position,
                length,
                regular: regular != 0,
                inherited: inherited != 0,
                content: (has != 0).then_some(content),
            })
        };
        Some(Self {
            open: unpack(&open)?.into_iter().map(one).collect::<Option<_>>()?,
            closed: read_numbers(&closed).into_iter().map(|number| number as i32).collect(),
        })
    }

    /// Paths of files that may have been written, each ended by zero.
    pub fn written(&self) -> Vec<u8> {
        let is_written = |open: &&Open| {
            open.regular && open.same_as.is_none() && open.flags & libc::O_ACCMODE != libc::O_RDONLY
        };
        self.open.iter().filter(is_written).flat_map(|open| [&open.path[..], &[0]].concat()).collect()
    }

    /// Opens all again, in a process that has just begun, and closes what its constructors have opened; or what cannot be.
    pub fn restore(&self) -> Result<(), String> {
        for number in numbers_in_use()?.into_iter().filter(|number| *number >= STANDARD) {
            let path = link(&format!("/proc/self/fd/{number}")).unwrap_or_default();
            if !is_ours(number, &String::from_utf8_lossy(&path)) {
                call(libc::SYS_close, [number as usize, 0, 0, 0, 0, 0]);
            }
        }
        // copies of standard ones before these become something else
        let (copies, others): (Vec<&Open>, Vec<&Open>) = self.open.iter().partition(|open| open.inherited);
        copies.into_iter().chain(others).try_for_each(Open::restore)?;
        for &number in &self.closed {
            call(libc::SYS_close, [number as usize, 0, 0, 0, 0, 0]);
        }
        Ok(())
    }
}

impl Open {
    fn restore(&self) -> Result<(), String> {
        let cloexec = self.flags & libc::O_CLOEXEC;
        let place = |from: i32| match from == self.number {
            true => 0,
            false => call(libc::SYS_dup3, [from as usize, self.number as usize, cloexec as usize, 0, 0, 0]),
        };
        if let Some(other) = self.same_as {
            return if place(other) < 0 { Err(format!("descriptor {}", self.number)) } else { Ok(()) };
        }
        let text = OsString::from_vec(self.path.clone()).display().to_string();
        let failed = |what: &str, error: isize| {
            let error = std::io::Error::from_raw_os_error(-error as i32);
            format!("{text}, which the program had open when the checkpoint was taken, {what}: {error}")
        };
        let path = CString::new(self.path.clone()).unwrap_or_default();
        // what is put back would be appended
        let mut flags =
            self.flags & !(libc::O_EXCL | libc::O_TRUNC | libc::O_CREAT | libc::O_APPEND) | libc::O_NOCTTY;
        if self.content.is_some() {
            flags |= libc::O_CREAT;
        }
        let opened = call(
            libc::SYS_openat,
            [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0o666, 0, 0],
        );
        if opened < 0 {
            return Err(failed("cannot be opened", opened));
        }
        let descriptor = opened as i32;
        self.restore_content(descriptor, &text, &failed)?;
        let seek = [descriptor as usize, self.position as usize, libc::SEEK_SET as usize, 0, 0, 0];
        let sought = call(libc::SYS_lseek, seek);
        if self.regular && sought < 0 {
            return Err(failed("has no place to go on at", sought));
        }
        if self.flags & libc::O_APPEND != 0 {
            let flags = control(descriptor, libc::F_GETFL) | libc::O_APPEND;
            call(libc::SYS_fcntl, [descriptor as usize, libc::F_SETFL as usize, flags as usize, 0, 0, 0]);
        }
        let placed = place(descriptor);
        if placed < 0 {
            return Err(failed("cannot have its number", placed));
        }
        if descriptor != self.number {
            call(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]);
        }
        Ok(())
    }

    fn restore_content(
        &self,
        descriptor: i32,
        text: &str,
        failed: &dyn Fn(&str, isize) -> String,
    ) -> Result<(), String> {
        if !self.regular {
            return Ok(());
        }
        let length = status(descriptor).map_or(0, |status| status.st_size.cast_unsigned());
        if let Some(content) = &self.content {
            let mut done = 0;
            while done < content.len() {
                let rest = &content[done..];
                let args = [descriptor as usize, rest.as_ptr() as usize, rest.len(), done, 0, 0];
                match call(libc::SYS_pwrite64, args) {
                    put @ 1.. => done += put as usize,
                    error => return Err(failed("cannot be written", error)),
                }
            }
        } else if length < self.length {
            return Err(format!(
                "{text} has {length} bytes, and had {} when the checkpoint was taken: it was changed since, and the run cannot go on from there",
                self.length
            ));
        }
        if self.flags & libc::O_ACCMODE != libc::O_RDONLY {
            let cut = call(libc::SYS_ftruncate, [descriptor as usize, self.length as usize, 0, 0, 0, 0]);
            if cut < 0 {
                return Err(failed("cannot be cut to what it had", cut));
            }
        }
        Ok(())
    }
}
