//! Calls of an iteration, of runs that members are lost from, and between members.

use crate::begin::duration;
use crate::failure::Failure;
use crate::handle::{Handle, Inner, with_handle, with_peers};
use crate::layout::*;
use crate::memory::{Answer, bytes, room, values};
use polyrail_p2p::{Link, Peers, Received};
use std::ffi::{c_int, c_void};
use std::ptr;

fn link(given: P2Plink) -> Result<Link, Failure> {
    let P2Plink { from, to, tag } = given;
    // what the library says of a tag that is too high is clear enough, and so is this of one that it has no room for
    let tag = u16::try_from(tag)
        .map_err(|_| Failure::misuse(format!("a link's tag is {tag}: less than 4096 is possible")))?;
    Ok(Link { from, to, tag })
}

/// Gives the program one thing of a run.
///
/// # Safety
/// The handle is one, or null, and the place is there, or null.
unsafe fn give<T>(
    peers: *const Handle,
    place: *mut T,
    what: impl FnOnce(&mut Peers) -> Result<T, Failure>,
) -> c_int {
    // SAFETY: the caller promises it of both.
    unsafe {
        with_peers(peers, |peers| {
            let place = Answer::new(place, "the place for the answer")?;
            place.give(what(peers)?);
            Ok(())
        })
    }
}

fn member_of(peers: &Peers, member: u32) -> Result<usize, Failure> {
    let members = peers.view().members.len();
    let number = member as usize;
    if number < members {
        return Ok(number);
    }
    Err(Failure::misuse(format!("there is no member {member}: there are {members} of them")))
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pme(peers: *const Handle, member: *mut u32) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { give(peers, member, |peers| Ok(peers.me() as u32)) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pmembers(peers: *const Handle, count: *mut u32) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { give(peers, count, |peers| Ok(peers.view().members.len() as u32)) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pparts(peers: *const Handle, into: *mut u32, len: usize, count: *mut usize) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        give(peers, count, |peers| {
            let parts = peers.parts();
            if (1..parts.len()).contains(&len) {
                return Err(Failure::misuse(format!(
                    "this process holds {} parts, and there is room for {len}",
                    parts.len()
                )));
            }
            if len > 0 {
                room(into, parts.len(), "room for parts")?.copy_from_slice(parts);
            }
            Ok(parts.len())
        })
    }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pholder(peers: *const Handle, part: u32, member: *mut u32) -> c_int {
    let what = |peers: &mut Peers| {
        let owners = &peers.view().owners;
        owners.get(part as usize).map(|owner| u32::from(*owner)).ok_or_else(|| {
            Failure::misuse(format!("there is no part {part}: there are {} of them", owners.len()))
        })
    };
    // SAFETY: the caller promises it.
    unsafe { give(peers, member, what) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Piteration(peers: *const Handle, iteration: *mut u64) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { give(peers, iteration, |peers| Ok(peers.iteration())) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Psend(peers: *mut Handle, on: P2Plink, from: *const c_void, len: usize) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { with_peers(peers, |peers| Ok(peers.send(link(on)?, bytes(from, len)?)?)) }
}

fn status(received: Received) -> P2Pstatus {
    let (what, iteration, age) = match received {
        Received::New { iteration } => (P2P_NEW, iteration, 0.0),
        Received::Unchanged { iteration, age } => (P2P_UNCHANGED, iteration, age.as_secs_f64()),
        Received::Nothing => (P2P_NOTHING, 0, 0.0),
    };
    P2Pstatus { what, reserved: 0, iteration, age }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Preceive(
    peers: *mut Handle,
    on: P2Plink,
    into: *mut c_void,
    len: usize,
    found: *mut P2Pstatus,
) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        with_peers(peers, |peers| {
            let received = peers.receive(link(on)?, room(into.cast::<u8>(), len, "room for bytes")?)?;
            if let Some(place) = Answer::optional(found) {
                place.give(status(received));
            }
            Ok(())
        })
    }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pwait(
    peers: *mut Handle,
    links: *const P2Plink,
    count: usize,
    seconds: f64,
    there: *mut c_int,
) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        with_peers(peers, |peers| {
            let links = values(links, count, "links")?.iter().map(|given| link(*given));
            let is_there = peers.wait(&links.collect::<Result<Vec<_>, _>>()?, duration(seconds)?)?;
            if let Some(place) = Answer::optional(there) {
                place.give(c_int::from(is_there));
            }
            Ok(())
        })
    }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pjudged(peers: *const Handle, judged: *mut c_int) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { give(peers, judged, |peers| Ok(c_int::from(peers.judged()))) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pconverged(peers: *mut Handle, norm: f64, verdict: *mut P2Pverdict) -> c_int {
    let what = |peers: &mut Peers| {
        if norm.is_nan() || norm < 0.0 {
            return Err(Failure::misuse(format!(
                "a norm is {norm}, which says nothing of how far a vector is from a solution: 0 or more does; has the iteration diverged?"
            )));
        }
        Ok(match peers.converged(norm)? {
            Some(verdict) => P2Pverdict {
                stop: 1,
                reserved: 0,
                round: verdict.round,
                iteration: verdict.iteration,
                norm: verdict.norm,
            },
            None => P2Pverdict::default(),
        })
    };
    // SAFETY: the caller promises it.
    unsafe { give(peers, verdict, what) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pnext_stage(peers: *mut Handle, stage: *mut u32) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        with_peers(peers, |peers| {
            let is = peers.next_stage()?;
            if let Some(place) = Answer::optional(stage) {
                place.give(is);
            }
            Ok(())
        })
    }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pstage(peers: *const Handle, stage: *mut u32) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { give(peers, stage, |peers| Ok(peers.stage())) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pkeeps(peers: *const Handle, keeps: *mut c_int) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { give(peers, keeps, |peers| Ok(c_int::from(peers.keeps()))) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pkeep(peers: *mut Handle, part: u32, state: *const c_void, len: usize) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { with_peers(peers, |peers| Ok(peers.keep(part, bytes(state, len)?.to_vec())?)) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pchange(peers: *mut Handle, changes: *mut P2Pchanges) -> c_int {
    let call = |inner: &mut Inner| {
        // SAFETY: the caller promises it.
        let place = unsafe { Answer::new(changes, "the place for the answer")? };
        let change = inner.peers()?.change()?;
        let lent = &mut inner.lent;
        lent.set.clear();
        lent.lost = change.lost;
        let parts: Vec<u32> = change.set.iter().map(|(part, _)| *part).collect();
        lent.states = change.set.into_iter().map(|(_, state)| state).collect();
        let set = |(part, state): (u32, &Option<Vec<u8>>)| P2Pset {
            state: state.as_ref().map_or(ptr::null(), |state| state.as_ptr().cast()),
            len: state.as_ref().map_or(0, Vec::len),
            part,
            reserved: 0,
        };
        lent.set.extend(parts.into_iter().zip(&lent.states).map(set));
        place.give(P2Pchanges {
            iteration: change.iteration,
            lost: lent.lost.as_ptr(),
            lost_count: lent.lost.len(),
            set: lent.set.as_ptr(),
            set_count: lent.set.len(),
        });
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { with_handle(peers, call) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Ptell(peers: *mut Handle, member: u32, from: *const c_void, len: usize) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { with_peers(peers, |peers| Ok(peers.tell(member_of(peers, member)?, bytes(from, len)?)?)) }
}

/// Lends the program a piece that came, or says that none did.
///
/// # Safety
/// The handle is one, or null, and the place is there, or null.
unsafe fn lend(
    peers: *mut Handle,
    place: *mut P2Ppiece,
    what: impl FnOnce(&mut Peers) -> Result<Option<(usize, Vec<u8>)>, Failure>,
) -> c_int {
    let call = |inner: &mut Inner| {
        // SAFETY: the caller promises it.
        let place = unsafe { Answer::new(place, "the place for the piece")? };
        let Some((member, bytes)) = what(inner.peers()?)? else {
            place.give(P2Ppiece { bytes: ptr::null(), len: 0, member: 0, reserved: 0 });
            return Ok(());
        };
        inner.lent.piece = bytes;
        let piece = &inner.lent.piece;
        place.give(P2Ppiece {
            bytes: piece.as_ptr().cast(),
            len: piece.len(),
            member: member as u32,
            reserved: 0,
        });
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { with_handle(peers, call) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Ptold(peers: *mut Handle, member: u32, piece: *mut P2Ppiece) -> c_int {
    let what = |peers: &mut Peers| {
        let member = member_of(peers, member)?;
        Ok(peers.told(member).map(|bytes| (member, bytes)))
    };
    // SAFETY: the caller promises it.
    unsafe { lend(peers, piece, what) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Ppost(peers: *mut Handle, member: u32, from: *const c_void, len: usize) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { with_peers(peers, |peers| Ok(peers.post_to(member as usize, bytes(from, len)?)?)) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pposted(peers: *mut Handle, seconds: f64, piece: *mut P2Ppiece) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { lend(peers, piece, |peers| Ok(peers.posted(duration(seconds)?)?)) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pgone(peers: *const Handle, member: u32, gone: *mut c_int) -> c_int {
    let what = |peers: &mut Peers| Ok(c_int::from(peers.is_gone(member_of(peers, member)?).is_some()));
    // SAFETY: the caller promises it.
    unsafe { give(peers, gone, what) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Palone(peers: *const Handle, alone: *mut c_int) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { give(peers, alone, |peers| Ok(c_int::from(peers.is_alone()))) }
}
