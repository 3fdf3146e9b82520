//! The user's secret, and the endpoints reached by IP and port in place of an address from a launcher.
//!
//! The key of those is derived from the secret, a file that only the user can read: who has it (the same user, here or
//! on another host with the same file) can connect, nobody else. All other endpoints ask for it besides their key where there is
//! one, as what launchers tell may be read by others.

use crate::config::{SecretFile, users_directory};
use crate::error::Error;
use polyrail_core::wire::{Address, HostId, Ip, Key};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The key of the named endpoint at this port.
///
/// # Errors
/// When the secret cannot be read or made, or others could read it.
pub fn named_key(port: u16) -> Result<Key, Error> {
    let secret = secret()?;
    Ok(Key::derive(&secret, format!("named port {port}").as_bytes()))
}

/// The address of the named endpoint that listens at `at`.
///
/// # Errors
/// As [`named_key`]; and when nobody can connect to `at` (an unspecified IP, port 0).
pub fn named_address(at: SocketAddr) -> Result<Address, Error> {
    let scope = if let SocketAddr::V6(v6) = at { v6.scope_id() } else { 0 };
    let ip = Ip::new(at.ip(), scope)
        .ok_or_else(|| Error::Address(format!("nobody can connect to {}", at.ip())))?;
    let host = if is_ours(at) { crate::host::host_id()? } else { HostId(0) };
    Address::new(&named_key(at.port())?, host, host.0 != 0, at.port(), [ip])
        .map(Address::needing_secret)
        .map_err(|why| Error::Address(why.to_string()))
}

/// The address of an endpoint with this key that listens at one port of these, but on no Unix socket.
///
/// # Errors
/// Nobody can connect to any of them.
pub fn address_of_key(key: &Key, port: u16, at: &[SocketAddr]) -> Result<Address, Error> {
    let ips = at.iter().filter_map(|at| {
        let scope = if let SocketAddr::V6(v6) = at { v6.scope_id() } else { 0 };
        Ip::new(at.ip(), scope)
    });
    let host = if at.iter().any(|at| is_ours(*at)) { crate::host::host_id()? } else { HostId(0) };
    Address::new(key, host, false, port, ips).map_err(|why| Error::Address(why.to_string()))
}

fn is_ours(at: SocketAddr) -> bool {
    at.ip().is_loopback()
        || if_addrs::get_if_addrs().is_ok_and(|all| all.iter().any(|interface| interface.ip() == at.ip()))
}

/// The user's secret, or why there is none: a sentence.
pub(crate) type Secret = Result<Vec<u8>, String>;

/// The secret of the user's endpoints, if there is one; it is not made.
///
/// # Errors
/// A file that was named is there and cannot be used. (One in the usual place is then not used.)
pub(crate) fn users_secret(file: &SecretFile) -> Result<Secret, Error> {
    let (path, named) = match file {
        SecretFile::None => return Ok(Err("it is told to use none".into())),
        SecretFile::At(path) => (path.clone(), true),
        SecretFile::Usual => match secret_path() {
            Ok(found) => found,
            Err(why) => return Ok(Err(why.into())),
        },
    };
    let shown = path.display();
    match read_secret(&path) {
        Ok(secret) => Ok(Ok(secret)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Err(format!("there is no {shown}"))),
        Err(error) if named => Err(Error::system(format!("reading the user's secret {shown}"), error)),
        Err(error) => Ok(Err(format!("{shown} is not used: {error}"))),
    }
}

/// Whether connections of this user's endpoints prove a secret; if not, why, in a sentence.
///
/// # Errors
/// A file that `POLYRAIL_SECRET_FILE` names cannot be used, so that no endpoint opens.
pub fn proves_secret() -> Result<Result<(), String>, Error> {
    Ok(users_secret(&SecretFile::Usual)?.map(drop))
}

/// Where users look for their secret, for what is said to them.
pub(crate) fn shown_path(file: &SecretFile) -> String {
    match file {
        SecretFile::At(path) => path.display().to_string(),
        _ => secret_path()
            .map_or_else(|_| "~/.config/polyrail/secret".into(), |(path, _)| path.display().to_string()),
    }
}

/// Where the secret is, and whether that was said; or why it is nowhere.
fn secret_path() -> Result<(PathBuf, bool), &'static str> {
    match std::env::var_os("POLYRAIL_SECRET_FILE") {
        Some(path) if path.is_empty() => return Err("POLYRAIL_SECRET_FILE is empty"),
        Some(path) => return Ok((path.into(), true)),
        None => {}
    }
    users_directory()
        .map(|base| (base.join("polyrail/secret"), false))
        .ok_or("neither POLYRAIL_SECRET_FILE nor HOME is set, so there is no place for it")
}

/// The secret, made if there is none.
pub(crate) fn secret() -> Result<Vec<u8>, Error> {
    make_secret_if_none()?;
    let (path, _) = secret_path().map_err(no_place)?;
    read_secret(&path).map_err(|error| failed("reading", &path, error))
}

/// Makes the user's secret if there is none, as named endpoints need one; where it is then. `None`: there was one.
///
/// Worth telling: endpoints of this user prove it from then on, and those of hosts that do not have it refuse them.
///
/// # Errors
/// There is no place for it, or none that can be written.
pub fn make_secret_if_none() -> Result<Option<PathBuf>, Error> {
    let (path, _) = secret_path().map_err(no_place)?;
    if path.try_exists().is_ok_and(|there| there) {
        return Ok(None);
    }
    match make_secret(&path) {
        // another process was faster: what it made is used
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(failed("making", &path, error)),
        Ok(()) => Ok(Some(path)),
    }
}

fn no_place(why: &str) -> Error {
    Error::Setting { name: "POLYRAIL_SECRET_FILE", why: format!("the user's secret is needed: {why}") }
}

fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    Error::system(format!("{what} the user's secret {}", path.display()), error)
}

/// The bytes of a file that nobody but this process's user can read or has made.
fn read_secret(path: &Path) -> io::Result<Vec<u8>> {
    // what is no file is not waited for
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let meta = file.metadata()?;
    let denied = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    // SAFETY: a plain call without arguments.
    let me = unsafe { libc::geteuid() };
    if meta.uid() != me {
        return denied(format!("it belongs to user {}, not to user {me} who wants to use it", meta.uid()));
    }
    if meta.mode() & 0o077 != 0 {
        return denied("others can read it; chmod 600 it".into());
    }
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(4096).read_to_end(&mut bytes)?;
    if bytes.len() < 16 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it has less than 16 bytes; remove it"));
    }
    Ok(bytes)
}

/// Writes aside and links into place, so that nobody ever reads half a secret.
fn make_secret(path: &Path) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let aside = dir.join(format!(
        ".secret-{}-{:08x}",
        std::process::id(),
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    ));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    let made = file.write_all(&bytes[4..]).and_then(|()| fs::hard_link(&aside, path));
    fs::remove_file(&aside)?;
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_made_once_and_kept_private() {
        let dir = std::env::temp_dir().join(format!("polyrail-secret-{}", std::process::id()));
        let path = dir.join("secret");
        make_secret(&path).unwrap();
        assert_eq!(make_secret(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let first = read_secret(&path).unwrap();
        assert_eq!(first, read_secret(&path).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_secret(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        match std::os::unix::fs::chown(&path, Some(4321), None) {
            Ok(()) => {
                let why = read_secret(&path).unwrap_err();
                assert_eq!(why.kind(), io::ErrorKind::PermissionDenied, "{why}");
                assert!(why.to_string().contains("4321"), "{why}");
            }
            Err(_) => polyrail_testing::lacking("root, for a secret of another user"),
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing is left aside");
        fs::remove_dir_all(&dir).unwrap();
    }
}
