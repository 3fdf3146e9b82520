//! A connection's stream before it is a link: what wire-up shakes hands on.

use crate::rail::channel::{Channel, Source};
use crate::sys::{event, signal};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes that wait in either direction: a handshake has fewer.
const MOST: usize = 16 << 10;

/// What the rail and the handshake share.
#[derive(Default)]
pub(super) struct Bytes {
    /// From the other side.
    pub(super) came: Vec<u8>,
    /// To it.
    pub(super) leave: Vec<u8>,
    /// Nothing more comes: why, if not in good order.
    pub(super) ended: Option<Option<io::ErrorKind>>,
    /// The handshake is over, and nobody has made a link of it.
    pub(super) dropped: bool,
    /// Readable while there is something for the handshake; until that is over.
    wakes: Option<OwnedFd>,
}

impl Bytes {
    fn wake(&self) {
        self.wakes.iter().for_each(|fd| signal(fd, true));
    }
}

/// The rail's end.
#[derive(Clone)]
pub(super) struct Pipe {
    bytes: Arc<Mutex<Bytes>>,
    /// By which its link is found, when the handshake gives it back.
    pub(super) fd: RawFd,
}

fn locked(bytes: &Mutex<Bytes>) -> MutexGuard<'_, Bytes> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pipe {
    /// Both ends of a new one, to or from this address.
    pub(super) fn new(stirred: Arc<AtomicBool>, other: SocketAddr) -> io::Result<(Self, Far)> {
        let wakes = event()?;
        let fd = wakes.as_raw_fd();
        let bytes = Arc::new(Mutex::new(Bytes { wakes: Some(wakes), ..Bytes::default() }));
        Ok((Self { bytes: bytes.clone(), fd }, Far { bytes, fd, stirred, other }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Bytes> {
        locked(&self.bytes)
    }

    /// Gives the handshake what came; false: it has not read what came before.
    pub(super) fn give(&self, came: &[u8]) -> bool {
        let mut bytes = self.lock();
        if bytes.came.len() + came.len() > MOST {
            return false;
        }
        bytes.came.extend_from_slice(came);
        bytes.wake();
        true
    }

    /// Nothing more comes.
    pub(super) fn end(&self, why: Option<io::ErrorKind>) {
        let mut bytes = self.lock();
        bytes.ended.get_or_insert(why);
        bytes.wake();
    }
}

/// The handshake's end.
pub(super) struct Far {
    bytes: Arc<Mutex<Bytes>>,
    /// That of `bytes`, whom it is left to until this is gone.
    fd: RawFd,
    stirred: Arc<AtomicBool>,
    other: SocketAddr,
}

impl Channel for Far {
    fn write(&mut self, bytes: &[u8], _descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let mut shared = locked(&self.bytes);
        if let Some(ended) = shared.ended {
            return Err(ended.unwrap_or(io::ErrorKind::BrokenPipe).into());
        }
        let room = MOST.saturating_sub(shared.leave.len()).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        shared.leave.extend_from_slice(&bytes[..room]);
        self.stirred.store(true, Ordering::Relaxed);
        Ok(room)
    }

    fn read(&mut self, bytes: &mut [u8], _descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let mut shared = locked(&self.bytes);
        let n = bytes.len().min(shared.came.len());
        if n > 0 {
            bytes[..n].copy_from_slice(&shared.came[..n]);
            shared.came.drain(..n);
            return Ok(n);
        }
        match shared.ended {
            Some(None) => Ok(0),
            Some(Some(why)) => Err(why.into()),
            None => {
                shared.wakes.iter().for_each(|fd| signal(fd, false));
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open while this is there: only `into_fd` and `drop` take it from where it is.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    fn source(&self) -> Source {
        Source::at(self.other.ip())
    }

    fn name(&self) -> String {
        self.other.to_string()
    }

    fn into_fd(self: Box<Self>) -> OwnedFd {
        // it is there until this
        locked(&self.bytes).wakes.take().expect("a channel has its descriptor")
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let mut bytes = locked(&self.bytes);
        if bytes.wakes.take().is_some() {
            bytes.dropped = true;
            self.stirred.store(true, Ordering::Relaxed);
        }
    }
}
