//! Names of hosts, found out by threads of their own, as the C library waits for an answer.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// Most that are looked for at once.
const MOST: usize = 64;

/// What was found.
pub struct Found<T> {
    /// Who asked.
    pub who: T,
    /// The addresses, none where there are none.
    pub at: Vec<SocketAddr>,
}

/// Finds out names.
pub struct Lookup<T> {
    sender: Sender<Found<T>>,
    found: Receiver<Found<T>>,
    waker: Arc<OwnedFd>,
    running: Arc<AtomicUsize>,
}

impl<T: Send + 'static> Lookup<T> {
    /// Writes to `waker` when something was found.
    pub fn new(waker: OwnedFd) -> Self {
        let (sender, found) = mpsc::channel();
        Self { sender, found, waker: Arc::new(waker), running: Arc::default() }
    }

    /// Begins to look for these. False: too many are looked for already.
    pub fn begin(&self, who: T, places: Vec<(String, u16)>) -> bool {
        if self.running.load(Ordering::Relaxed) >= MOST {
            return false;
        }
        self.running.fetch_add(1, Ordering::Relaxed);
        let (sender, waker, running) = (self.sender.clone(), self.waker.clone(), self.running.clone());
        let find = move || {
            let places =
                places.iter().filter_map(|(host, port)| (host.as_str(), *port).to_socket_addrs().ok());
            let at = places.flatten().collect();
            running.fetch_sub(1, Ordering::Relaxed);
            // who does not listen any more, or is awake already, need not be woken
            let _ = sender.send(Found { who, at });
            let _ = rustix::io::write(&*waker, &1_u64.to_ne_bytes());
        };
        let begun = thread::Builder::new().name("lookup".into()).spawn(find).is_ok();
        if !begun {
            self.running.fetch_sub(1, Ordering::Relaxed);
        }
        begun
    }

    /// The next that was found.
    pub fn next(&self) -> Option<Found<T>> {
        self.found.try_recv().ok()
    }
}
