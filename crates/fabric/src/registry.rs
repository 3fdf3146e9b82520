//! What is open in this process: its domains, and how many things are open in a fabric.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::domain::Domain;
use crate::ffi::{fid, fid_domain, fid_fabric};

/// The number of things that are open in something, which must not be closed before them.
#[derive(Debug, Default)]
pub struct Children(Arc<AtomicUsize>);

/// One of them, until dropped.
#[derive(Debug)]
pub struct Child(Arc<AtomicUsize>);

impl Children {
    /// Something is opened.
    pub fn enter(&self) -> Child {
        self.0.fetch_add(1, Ordering::Relaxed);
        Child(self.0.clone())
    }

    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The objects that `fi_getinfo` refers to.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
}

/// An open domain; the addresses are those that C knows it and its fabric by.
struct OpenDomain {
    fabric: usize,
    address: usize,
    domain: Weak<Domain>,
}

static OPEN: Mutex<Vec<OpenDomain>> = Mutex::new(Vec::new());
/// The process that was the last to open one: a child that it forks has its list, perhaps locked for ever.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

/// Remembers an open domain.
pub fn register(fabric: *mut fid_fabric, address: *mut fid_domain, domain: &Arc<Domain>) {
    let entry = OpenDomain {
        fabric: fabric.expose_provenance(),
        address: address.expose_provenance(),
        domain: Arc::downgrade(domain),
    };
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    OPENED_BY.store(std::process::id(), Ordering::Relaxed);
}

/// Forgets a domain.
pub fn unregister(address: *mut fid) {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|open| open.address != address.addr());
}

/// The open domain at this address, or, for 0, the first that is open, if any.
///
/// # Errors
/// If there is no domain at this address.
pub fn open_domain(address: usize) -> Result<Open, String> {
    let all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = all.iter().find(|open| address == 0 || open.address == address);
    match found {
        Some(open) => Ok(Open {
            fabric: ptr::with_exposed_provenance_mut(open.fabric),
            domain: ptr::with_exposed_provenance_mut(open.address),
        }),
        None if address == 0 => Ok(Open { fabric: ptr::null_mut(), domain: ptr::null_mut() }),
        None => Err("the domain is not one of ours".into()),
    }
}

/// The domains open in this process.
pub fn open_domains() -> Vec<Arc<Domain>> {
    let all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().filter_map(|open| open.domain.upgrade()).collect()
}

/// Ends what runs by itself in domains that were never closed. A process that opened none has nothing that runs.
pub fn stop_all() {
    if OPENED_BY.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    for domain in open_domains() {
        domain.stop();
    }
}

/// The application sleeps, and what comes does not wake it: threads that stay away look at once whether it is for them.
pub fn falls_asleep() {
    if OPENED_BY.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    for domain in open_domains() {
        if let Some(auto) = domain.auto() {
            auto.look();
        }
    }
}
