//! What keeps a gateway from running, with advice.

use std::io;
use std::path::Path;

/// Why something of a gateway cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What somebody wrote or asked cannot be.
    #[error("{0}")]
    Rule(String),
    /// The system did not let it.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: String,
        /// What came of it.
        why: io::Error,
    },
    /// An endpoint did not open.
    #[error(transparent)]
    Rails(#[from] polyrail_rails::Error),
}

impl Error {
    pub(crate) fn file(what: &str, path: &Path, why: io::Error) -> Self {
        Self::System { what: format!("{what} {}", path.display()), why }
    }

    pub(crate) fn system(what: impl Into<String>, why: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), why: why.into() }
    }
}
