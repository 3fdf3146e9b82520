//! Files that appear under their names whole or not at all.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A file that is written beside its name, and moved there when it is whole: nobody finds half of one, and a link by that name is replaced,
/// not followed. Nobody but its owner may read it, since it tells command lines and addresses.
#[derive(Debug)]
pub(crate) struct Whole {
    path: PathBuf,
    file: NamedTempFile,
}

impl Whole {
    /// Begins it.
    ///
    /// # Errors
    /// Nothing can be written to its directory.
    pub fn create(path: &Path) -> io::Result<Whole> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let file =
            tempfile::Builder::new().prefix(".polyrail-").tempfile_in(directory.unwrap_or(Path::new(".")))?;
        Ok(Whole { path: path.into(), file })
    }

    /// It is whole.
    ///
    /// # Errors
    /// It cannot be moved there: a directory has its name.
    pub fn finish(self) -> io::Result<()> {
        self.file.persist(&self.path).map(drop).map_err(|failed| failed.error)
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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
        drop(given_up);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
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
