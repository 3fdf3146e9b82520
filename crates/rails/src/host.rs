//! Which host this process runs on, as peers tell hosts apart.

use crate::error::Error;
use polyrail_core::wire::{HostId, Key, PeerId};

/// Who shares this operating system and network namespace, and so this host's Unix sockets.
///
/// # Errors
/// When /proc is not there.
pub fn host_id() -> Result<HostId, Error> {
    use std::os::unix::fs::MetadataExt;
    let read = |path: &str, error| Error::system(format!("reading {path}"), error);
    let boot = "/proc/sys/kernel/random/boot_id";
    let boot_id = std::fs::read(boot).map_err(|e| read(boot, e))?;
    // a thread may be in a namespace of its own, and so are its sockets
    let net = "/proc/thread-self/ns/net";
    let inode = std::fs::metadata(net).map_err(|e| read(net, e))?.ino();
    let PeerId(id) = Key::derive(&boot_id, &inode.to_le_bytes()).id();
    let [a, b, c, d, e, f, g, h, ..] = id;
    Ok(HostId(u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)))
}
