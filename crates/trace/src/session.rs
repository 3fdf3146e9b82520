//! The page that a collector shares with all recorders of its host, and what is left of sessions whose collector was killed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use polyrail_core::trace::ring::session;

use crate::options::Options;

/// A session's page, locked as long as this process lives: by that recorders and [`remove_leftovers`] know that there is a collector.
#[derive(Debug)]
pub(crate) struct Session {
    file: File,
    beat: u64,
}

impl Session {
    /// Makes it. Recorders see the whole page or none. `counter`: whether the processor's is the clock.
    pub fn make(directory: &Path, counter: bool, options: &Options) -> io::Result<Session> {
        let mut page = [0; session::SIZE];
        page[session::AT_MAGIC..][..8].copy_from_slice(&session::MAGIC.to_le_bytes());
        page[session::AT_CLOCK..][..4].copy_from_slice(&if counter { 1u32 } else { 2 }.to_le_bytes());
        options.write(&mut page);
        let new = directory.join("session.new");
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all_at(&page, 0)?;
        file.try_lock()?;
        let mut session = Session { file, beat: 0 };
        session.beat();
        fs::rename(&new, directory.join("session"))?;
        Ok(session)
    }

    /// Shows threads that wait for room that somebody is at work.
    pub fn beat(&mut self) {
        self.beat += 1;
        let _ = self.file.write_all_at(&self.beat.to_le_bytes(), session::AT_BEAT as u64);
    }

    /// Nothing is to be recorded any more.
    pub fn stop(&self) {
        let _ = self.file.write_all_at(&1u32.to_le_bytes(), session::AT_STOP as u64);
    }

    /// What the page counts now, by offset; zeros if it cannot be read.
    pub fn numbers(&self) -> impl Fn(usize) -> u64 + use<> {
        let mut page = [0; session::SIZE];
        let _ = self.file.read_exact_at(&mut page, 0);
        move |at| u64::from_le_bytes(std::array::from_fn(|i| page[at + i]))
    }
}

/// Makes a session's directory, or takes one that is there: which must be this user's alone.
///
/// # Errors
/// It cannot be made, or somebody else may write there, who could put anything in the place of recorders' rings.
pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let about = fs::symlink_metadata(directory)?;
    let own = about.is_dir() && about.uid() == nix::unistd::geteuid().as_raw() && about.mode() & 0o022 == 0;
    let why =
        "it is not this user's, or others may write to it: remove it, or choose another by POLYRAIL_TRACE";
    if own { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, why)) }
}

/// Removes what sessions have left behind whose collector was killed: directories in shared memory that begin like `directory`, up to
/// its last two numbers. Recorders that still run there stop.
pub fn remove_leftovers(directory: &Path) {
    let (Some(place), Some(name)) =
        (directory.parent(), directory.file_name().and_then(|name| name.to_str()))
    else {
        return;
    };
    let prefix = name.rsplitn(3, '-').last().unwrap_or(name);
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix(prefix))
            .is_some_and(|rest| rest.starts_with('-'))
        {
            let _ = remove_leftover(&entry.path());
        }
    }
}

fn remove_leftover(directory: &Path) -> io::Result<()> {
    let about = fs::symlink_metadata(directory)?;
    if !about.is_dir() || about.uid() != nix::unistd::geteuid().as_raw() {
        return Ok(());
    }
    match File::options()
        .read(true)
        .write(true)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(directory.join("session"))
    {
        Ok(session) => {
            session.try_lock()?;
            session.write_all_at(&1u32.to_le_bytes(), session::AT_STOP as u64)?;
        }
        // one that is just being made has no page yet
        Err(_) if about.modified()?.elapsed().is_ok_and(|age| age > Duration::from_secs(60)) => {}
        Err(why) => return Err(why),
    }
    fs::remove_dir_all(directory)
}
