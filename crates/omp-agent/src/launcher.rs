//! What started the agent, until the program starts: Open MPI's library waits for it without a bound, also when it is gone (`kill -9` of mpiexec at that moment).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::{NOT_STARTED, agent, sys};

/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// Ends this process if its parent ends, until it is dropped.
pub struct Watch(Arc<AtomicBool>);

impl Watch {
    /// From now on. Where no thread can be had nobody watches.
    pub fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (seen, launcher) = (over.clone(), sys::parent());
        let watch = move || {
            while !seen.load(Ordering::Relaxed) {
                if sys::parent() != launcher {
                    agent::tell("what started the ranks ended before the program had started");
                    sys::end(NOT_STARTED);
                }
                thread::sleep(LOOK);
            }
        };
        let _ = thread::Builder::new().name("launcher".into()).spawn(watch);
        Self(over)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
