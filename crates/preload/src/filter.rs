//! What of a program is recorded: which programs, which functions, which connections. The session's page says so; most say nothing.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU64, Ordering};

use polyrail_core::trace::ring::session;

use crate::ring::{word32, word64};
use crate::sys::{self, Address, File};

/// Functions that are not recorded, by bit.
static LEFT_OUT: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
/// Ports of the connections that are recorded, if not all are; ended by 0.
static PORTS: [AtomicU16; session::PORTS] = [const { AtomicU16::new(0) }; session::PORTS];
static BY_PORT: AtomicBool = AtomicBool::new(false);

/// The session's page.
static PAGE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Whether a socket is recorded.
pub enum Wanted {
    /// It is.
    Yes,
    /// It is not, and never will be.
    No,
    /// It has no peer yet, by which that is decided.
    NotYet,
}

/// Learns what the session wants; whether this program is recorded at all.
///
/// # Safety
/// `page` is a mapped session page.
pub unsafe fn begin(page: *mut u8) -> bool {
    PAGE.store(page, Ordering::Relaxed);
    for (at, word) in LEFT_OUT.iter().enumerate() {
        // SAFETY: inside the page, as the caller says
        word.store(
            unsafe { word64(page, session::AT_LEFT_OUT + 8 * at) }.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
    }
    for (at, port) in PORTS.iter().enumerate() {
        // SAFETY: as above; two ports in each aligned word
        let word = unsafe { word32(page, session::AT_PORTS + at / 2 * 4) }.load(Ordering::Relaxed);
        port.store((word >> (16 * (at % 2))) as u16, Ordering::Relaxed);
    }
    BY_PORT.store(PORTS[0].load(Ordering::Relaxed) != 0, Ordering::Relaxed);
    this_program()
}

/// Whether this program is recorded.
fn this_program() -> bool {
    let mut path = [0; 4096];
    let length = sys::program(&mut path);
    let file = path[..length].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // a thread's name has 15 characters at most
    let mut comm = [0; 17];
    let length =
        File::open(c"/proc/self/comm", libc::O_RDONLY, 0).map_or(0, |file| file.read_at(&mut comm, 0));
    let comm = comm[..length].strip_suffix(b"\n").unwrap_or(&comm[..length]);
    names(|name| name == file || &name[..name.len().min(15)] == comm)
}

/// Whether a program of this path is recorded.
pub fn names_program(path: &[u8]) -> bool {
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    names(|name| name == file)
}

/// Whether this holds of one of the names of programs that are recorded; or all are.
fn names(fits: impl Fn(&[u8]) -> bool) -> bool {
    let page = PAGE.load(Ordering::Relaxed);
    let mut names = [0; session::PROGRAMS];
    for (at, four) in names.chunks_exact_mut(4).enumerate() {
        if !page.is_null() {
            // SAFETY: the page stays mapped for good, and this is inside
            let word = unsafe { word32(page, session::AT_PROGRAMS + 4 * at) }.load(Ordering::Relaxed);
            four.copy_from_slice(&word.to_le_bytes());
        }
    }
    let mut each = names.split(|byte| *byte == 0).take_while(|name| !name.is_empty()).peekable();
    each.peek().is_none() || each.any(fits)
}

/// Whether a function is not recorded.
#[inline(always)]
pub fn leaves_out(number: u8) -> bool {
    LEFT_OUT[usize::from(number >> 6)].load(Ordering::Relaxed) >> (number & 63) & 1 != 0
}

/// Whether only some connections are recorded.
#[inline]
pub fn by_port() -> bool {
    BY_PORT.load(Ordering::Relaxed)
}

/// Of a socket with these names. One of datagrams that has no peer may send to anybody.
pub fn wants(domain: u16, kind: u16, listens: bool, local: &Address, remote: &Address) -> Wanted {
    if !by_port() {
        return Wanted::Yes;
    }
    if ![libc::AF_INET, libc::AF_INET6].contains(&i32::from(domain)) {
        return Wanted::No;
    }
    let chosen = |address: &Address| {
        let port = u16::from_be_bytes([address.0[2], address.0[3]]);
        let mut ports = PORTS.iter().map(|port| port.load(Ordering::Relaxed)).take_while(|port| *port != 0);
        address.is_some() && ports.any(|one| one == port)
    };
    if chosen(local) || chosen(remote) {
        Wanted::Yes
    } else if listens || remote.is_some() {
        Wanted::No
    } else if i32::from(kind) == libc::SOCK_DGRAM {
        Wanted::Yes
    } else {
        Wanted::NotYet
    }
}
