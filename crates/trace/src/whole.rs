//! Files that appear under their names whole or not at all.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use tempfile::NamedTempFile;

/// A file that is written beside its name, and moved there when it is whole: nobody finds half of one, and a link by that name is replaced,
/// not followed. Nobody but its owner may read it, since it tells command lines and addresses.
#[derive(Debug)]
pub(crate) struct Whole {
    path: PathBuf,
    file: Unfinished,
}

#[derive(Debug)]
enum Unfinished {
    /// It has no name: who ends before it is whole leaves nothing behind, however he ends. `O_TMPFILE`, open(2).
    Nameless(File),
    /// Where the file system knows no such files.
    Named(NamedTempFile),
}

const PREFIX: &str = ".polyrail-";

impl Whole {
    /// Begins it.
    ///
    /// # Errors
    /// Nothing can be written to its directory.
    pub fn create(path: &Path) -> io::Result<Whole> {
        let directory = directory_of(path);
        let how = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = match rustix::fs::open(directory, how, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Unfinished::Nameless(file.into()),
            Err(_) => Unfinished::Named(tempfile::Builder::new().prefix(PREFIX).tempfile_in(directory)?),
        };
        Ok(Whole { path: path.into(), file })
    }

    /// It is whole.
    ///
    /// # Errors
    /// It cannot be moved there: a directory has its name.
    pub fn finish(self) -> io::Result<()> {
        let named = match self.file {
            Unfinished::Named(file) => file.into_temp_path(),
            Unfinished::Nameless(file) => {
                // no call gives it the name of another that is there
                let own = format!("/proc/self/fd/{}", file.as_raw_fd());
                let link = |name: &Path| {
                    Ok(rustix::fs::linkat(CWD, own.as_str(), CWD, name, AtFlags::SYMLINK_FOLLOW)?)
                };
                tempfile::Builder::new()
                    .prefix(PREFIX)
                    .make_in(directory_of(&self.path), link)?
                    .into_temp_path()
            }
        };
        named.persist(&self.path).map_err(|failed| failed.error)
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Unfinished::Nameless(file) => file.write(bytes),
            Unfinished::Named(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.file {
            Unfinished::Nameless(file) => file.flush(),
            Unfinished::Named(file) => file.flush(),
        }
    }
}

/// Makes a directory for such files where there is none: its user's alone, unlike those above it that are made with it.
pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn links_are_replaced_and_nothing_is_left_of_what_was_not_finished() {
        let place = tempfile::tempdir().unwrap();
        let (victim, path) = (place.path().join("victim"), place.path().join("report.html"));
        fs::write(&victim, "untouched").unwrap();
        symlink(&victim, &path).unwrap();
        let mut given_up = Whole::create(&path).unwrap();
        given_up.write_all(b"half").unwrap();
        let names = || fs::read_dir(place.path()).unwrap().count();
        // who is killed now drops nothing
        if matches!(given_up.file, Unfinished::Nameless(_)) {
            assert_eq!(names(), 2);
        }
        drop(given_up);
        assert_eq!(names(), 2);
        let mut file = Whole::create(&path).unwrap();
        file.write_all(b"whole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "untouched", "not yet");
        file.finish().unwrap();
        let about = fs::symlink_metadata(&path).unwrap();
        assert!(about.is_file(), "no link any more");
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    }
}
