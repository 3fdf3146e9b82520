//! Programs that get more rights than who starts them (setuid, setgid, file capabilities): the kernel gives them none while somebody follows
//! whom these rights would allow more than he has. They are let go before they begin, so that they do what they would have done.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// The longest path that the kernel takes.
const PATH: usize = 4096;

/// The program that a thread is about to execute by this system call, if it would get such rights.
pub fn gains(tid: u32, number: u64, arguments: [u64; 6]) -> Option<PathBuf> {
    let program = match number as libc::c_long {
        libc::SYS_execve => resolve(tid, None, text(tid, arguments[0])?),
        libc::SYS_execveat => resolve(tid, Some(arguments[0] as i32), text(tid, arguments[1])?),
        _ => return None,
    };
    let about = fs::metadata(&program).ok()?;
    let by_mode = about.is_file() && about.mode() & 0o6000 != 0 && about.mode() & 0o111 != 0;
    (by_mode || has_capabilities(&program)).then_some(program)
}

fn has_capabilities(program: &std::path::Path) -> bool {
    rustix::fs::getxattr(program, c"security.capability", &mut [0u8; 64]).is_ok()
}

/// As the thread would find it.
fn resolve(tid: u32, directory: Option<i32>, path: OsString) -> PathBuf {
    let proc = PathBuf::from(format!("/proc/{tid}"));
    let bytes = path.as_encoded_bytes();
    match directory.filter(|fd| *fd != libc::AT_FDCWD) {
        _ if bytes.starts_with(b"/") => {
            let below: PathBuf = PathBuf::from(&path).strip_prefix("/").unwrap_or("".as_ref()).into();
            proc.join("root").join(below)
        }
        Some(fd) if bytes.is_empty() => proc.join("fd").join(fd.to_string()),
        Some(fd) => proc.join("fd").join(fd.to_string()).join(path),
        None => proc.join("cwd").join(path),
    }
}

/// A text in a thread's memory, which ends with a zero.
fn text(tid: u32, at: u64) -> Option<OsString> {
    let memory = File::open(format!("/proc/{tid}/mem")).ok()?;
    let mut bytes = Vec::new();
    while bytes.len() < PATH {
        // to the end of the page: what is behind it may not be there
        let from = at.checked_add(bytes.len() as u64)?;
        let mut part = vec![0; 4096 - (from % 4096) as usize];
        memory.read_exact_at(&mut part, from).ok()?;
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            bytes.extend(&part[..end]);
            return Some(OsString::from_vec(bytes));
        }
        bytes.extend(part);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_with_more_rights_are_known_by_their_files() {
        let place = tempfile::tempdir().unwrap();
        let (plain, more) = (place.path().join("plain"), place.path().join("more"));
        for (path, mode) in [(&plain, 0o755), (&more, 0o4755)] {
            fs::write(path, "").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        if fs::metadata(&more).unwrap().mode() & 0o4000 == 0 {
            return polyrail_testing::lacking("a file system with setuid programs");
        }
        let own = std::process::id();
        let of = |path: &std::path::Path| {
            let text = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
            let at = text.as_ptr() as u64;
            let direct = gains(own, libc::SYS_execve as u64, [at, 0, 0, 0, 0, 0]).is_some();
            let nowhere = libc::AT_FDCWD as u32;
            let by_directory =
                gains(own, libc::SYS_execveat as u64, [nowhere.into(), at, 0, 0, 0, 0]).is_some();
            assert_eq!(direct, by_directory);
            direct
        };
        assert!(of(&more) && !of(&plain) && !of(&place.path().join("none")) && !of(place.path()));
        assert_eq!(gains(own, libc::SYS_execve as u64, [8; 6]), None, "no text there");
        assert_eq!(gains(own, libc::SYS_read as u64, [0; 6]), None);
    }
}
