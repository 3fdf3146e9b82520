//! What can go wrong when something is opened, and what to do about it.

use std::fmt;
use std::io;

/// Why a worker or an address cannot be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    System {
        /// What was attempted.
        what: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// A setting has a value that it cannot have.
    Setting {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Bytes that are no address, or one that cannot be used here.
    Address(String),
}

impl Error {
    pub(crate) fn system(what: impl Into<String>, error: io::Error) -> Self {
        Self::System { what: what.into(), error }
    }

    /// The error's number (positive, of `errno.h`).
    pub fn errno(&self) -> i32 {
        match self {
            Self::System { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
            Self::Setting { .. } | Self::Address(_) => libc::EINVAL,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { what, error } => {
                write!(f, "{what}: {error}")?;
                match error.raw_os_error() {
                    Some(libc::EMFILE) => write!(f, "; raise the limit of open files (ulimit -n)"),
                    Some(libc::ENFILE) => {
                        write!(f, "; raise the host's limit of open files (sysctl fs.file-max)")
                    }
                    Some(libc::EADDRINUSE) => {
                        write!(f, "; choose another port, or none to get a free one (POLYRAIL_PORT)")
                    }
                    Some(libc::EADDRNOTAVAIL) => {
                        write!(f, "; `polyrail info` lists the addresses of this machine")
                    }
                    _ => Ok(()),
                }
            }
            Self::Setting { name, why } => write!(f, "{name}: {why}"),
            Self::Address(why) => write!(f, "not an address that can be used here: {why}"),
        }
    }
}

impl std::error::Error for Error {}
