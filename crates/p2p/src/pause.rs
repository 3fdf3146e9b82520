//! What is asked while a call waits: whether to go on.

use crate::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two times that it is asked.
const BETWEEN: Duration = Duration::from_millis(100);

/// What is called while a call waits, up to ten times each second, by the thread that waits; an error of it ends the wait, and is the call's. [`Error::Interrupted`] is
/// meant for that. Calls can be made again then, and go on with what they waited for; but a [`Founding::gather`](crate::Founding::gather) is over, a
/// [`Peers::join`](crate::Peers::join) joins as another, and [`Peers::post_to`](crate::Peers::post_to) posts what is longer than 1 MiB from its beginning.
#[derive(Clone)]
pub struct Pause(Arc<dyn Fn() -> Result<(), Error> + Send + Sync>);

impl Pause {
    /// Calls this.
    pub fn new(ask: impl Fn() -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// Asks, if it is that long since `last`, when the wait began or was asked about.
    pub(crate) fn ask(pause: &Option<Self>, last: &mut Instant) -> Result<(), Error> {
        match pause {
            Some(Self(ask)) if last.elapsed() >= BETWEEN => {
                *last = Instant::now();
                ask()
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pause")
    }
}
