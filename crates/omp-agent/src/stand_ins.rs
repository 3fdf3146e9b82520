//! Stand-ins for the compilers' OpenMP runtimes (`build.rs` says what they are): written to a directory that has the same name on all hosts.
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const FILES: [(&str, &[u8]); 4] = [
    ("libgomp.so.1", include_bytes!(concat!(env!("OUT_DIR"), "/libgomp.so.1"))),
    ("libomp.so.5", include_bytes!(concat!(env!("OUT_DIR"), "/libomp.so.5"))),
    ("libomp.so", include_bytes!(concat!(env!("OUT_DIR"), "/libomp.so"))),
    ("libiomp5.so", include_bytes!(concat!(env!("OUT_DIR"), "/libiomp5.so"))),
];

/// Where the directory may be. A directory of the user's own, such as `TMPDIR`, may be another on another host.
pub const PLACES: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

/// The directory in place `place`.
pub fn directory(place: &Path, user: u32) -> PathBuf {
    // another build's files have another name
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in FILES.iter().flat_map(|(_, bytes)| bytes.iter()) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    place.join(format!("polyrail-omp-{user}-{hash:016x}"))
}

/// The files' paths, in the order in which they are to be loaded.
pub fn paths(directory: &Path) -> Vec<PathBuf> {
    FILES.iter().map(|(name, _)| directory.join(name)).collect()
}

/// Sees to it that `directory` is there, is `user`'s alone, and holds the files.
///
/// # Errors
/// It cannot be made, or somebody else could write there.
pub fn provide(directory: &Path, user: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !is_own(directory, user)? {
        return Err(io::Error::other(format!(
            "{} is not a directory of this user alone",
            directory.display()
        )));
    }
    for (name, bytes) in FILES {
        let path = directory.join(name);
        if fs::read(&path).is_ok_and(|there| there == bytes) {
            continue;
        }
        // ranks of several hosts may do this at once in a shared directory: each file appears whole
        let new = directory.join(format!("{name}.{}.{}", std::process::id(), rank_hint()));
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?.write_all(bytes)?;
        fs::set_permissions(&new, Permissions::from_mode(0o500))?;
        fs::rename(&new, &path)?;
    }
    Ok(())
}

fn is_own(directory: &Path, user: u32) -> io::Result<bool> {
    let meta = fs::symlink_metadata(directory)?;
    Ok(meta.is_dir() && meta.uid() == user && meta.mode() & 0o077 == 0)
}

/// Process ids of several hosts may be equal.
fn rank_hint() -> String {
    fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default().trim().to_owned()
}

/// Which of [`PLACES`] can hold the directory here, as a bit each. Nothing is written: one of them will be chosen.
pub fn usable(user: u32) -> u64 {
    let good = |place: &Path| {
        is_own(&directory(place, user), user).unwrap_or_else(|_| crate::sys::is_writable(place))
    };
    PLACES.iter().enumerate().filter(|(_, place)| good(Path::new(place))).map(|(index, _)| 1 << index).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> u32 {
        fs::metadata("/proc/self").unwrap().uid()
    }

    #[test]
    fn files_are_written_and_mended() {
        let dir = tempfile::tempdir().unwrap();
        let ours = directory(dir.path(), user());
        provide(&ours, user()).unwrap();
        let first = &paths(&ours)[0];
        assert_eq!(fs::read(first).unwrap(), FILES[0].1);
        fs::remove_file(first).unwrap();
        fs::write(first, "other").unwrap();
        provide(&ours, user()).unwrap();
        assert_eq!(fs::read(first).unwrap(), FILES[0].1);
        assert_eq!(fs::read_dir(&ours).unwrap().count(), FILES.len(), "nothing is left over");
    }

    #[test]
    fn places_are_found_without_writing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(crate::sys::is_writable(dir.path()) && !crate::sys::is_writable(&dir.path().join("x")));
        assert_ne!(usable(user()), 0);
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let ours = directory(dir.path(), user());
        fs::create_dir(&ours).unwrap();
        fs::set_permissions(&ours, Permissions::from_mode(0o777)).unwrap();
        assert!(provide(&ours, user()).is_err());
        fs::remove_dir(&ours).unwrap();
        std::os::unix::fs::symlink(dir.path(), &ours).unwrap();
        assert!(provide(&ours, user()).is_err(), "a link leads elsewhere");
        assert!(provide(&dir.path().join("x"), user() + 1).is_err(), "another user's");
    }

    #[test]
    fn stand_ins_bear_names_and_versions() {
        for (name, bytes) in FILES {
            for text in [name, "GOMP_1.0", "GOMP_5.1", "OMP_5.0.2", "GOACC_2.0", "VERSION"] {
                let text = [&[0], text.as_bytes(), &[0]].concat();
                assert!(bytes.windows(text.len()).any(|window| window == text), "{name}: {text:?}");
            }
        }
    }
}
