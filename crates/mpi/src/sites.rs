//! Which hosts are of one site: found once, as MPI starts, and then the same for all ranks.
//!
//! Where all hosts say what their sites are called, that is it (`POLYRAIL_SITE`), and nothing is measured. Else the first host that is of none yet says something to all others
//! that are of none, asks its provider who of them is far, and tells them; those that are not are of its site, and the others go on.

use std::ffi::c_int;
use std::mem::ManuallyDrop;

use polyrail_core::coll::layout::Layout;

use crate::library::{Failed, is_far, starting};
use crate::messages::Messages;

/// The tag of what is said here.
const TAG: c_int = 1;

/// The number of this rank's site, if it speaks for its host; else 0. Called by all ranks of the world, whose hosts are these.
///
/// # Errors
/// What the MPI says.
pub fn measure(rank: usize, hosts: &[u64]) -> Result<u64, Failed> {
    let layout = Layout::new(hosts);
    let speaker = |host: usize| layout.speaker(host, None);
    let me = layout.host_of(rank);
    if speaker(me) != rank {
        return Ok(0);
    }
    let mut left: Vec<usize> = (0..layout.hosts()).collect();
    let mut site = 1;
    loop {
        let Some((first, others)) = left.split_first() else { return Ok(0) };
        let far = round(me, *first, others, |host| (speaker(host), hosts[speaker(host)]))?;
        let is_near = |other: usize| others.iter().zip(&far).any(|(one, far)| *one == other && *far == 0);
        if me == *first || is_near(me) {
            return Ok(site);
        }
        left = others.iter().copied().filter(|other| !is_near(*other)).collect();
        site += 1;
    }
}

/// Which others are far from the first, by their places. Of each host the rank that speaks for it and its number are given.
fn round(
    me: usize,
    first: usize,
    others: &[usize],
    of: impl Fn(usize) -> (usize, u64),
) -> Result<Vec<u8>, Failed> {
    // what messages are of; after an error the MPI may still read or write there
    let mut room = ManuallyDrop::new((vec![0_u8; others.len()], vec![0_u8; others.len().max(1)]));
    let (far, said) = &mut *room;
    let mut messages = Messages::new(starting(), TAG);
    let speaker = |host: usize| of(host).0;
    if me == first {
        for (other, answer) in others.iter().zip(far.iter_mut()) {
            messages.receive(speaker(*other), answer, 1)?;
            messages.send(speaker(*other), said.as_ptr(), 1)?;
        }
        messages.wait_for_all()?;
        for (other, far) in others.iter().zip(far.iter_mut()) {
            *far = is_far(of(*other).1).into();
        }
        for other in others {
            messages.send(speaker(*other), far.as_ptr(), far.len())?;
        }
    } else {
        messages.receive(speaker(first), said.as_mut_ptr(), 1)?;
        messages.wait_for_all()?;
        messages.send(speaker(first), said.as_ptr(), 1)?;
        messages.receive(speaker(first), far.as_mut_ptr(), far.len())?;
    }
    messages.wait_for_all()?;
    drop(messages);
    Ok(ManuallyDrop::into_inner(room).0)
}

/// Sites of all ranks, by what who speaks for each host has measured.
pub fn of_all(measured: &[u64], hosts: &[u64]) -> Vec<u64> {
    let layout = Layout::new(hosts);
    (0..hosts.len()).map(|rank| measured[layout.speaker(layout.host_of(rank), None)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_where_their_hosts_are() {
        assert_eq!(of_all(&[1, 0, 1, 2, 0], &[7, 7, 8, 9, 8]), [1, 1, 1, 2, 1]);
    }
}
