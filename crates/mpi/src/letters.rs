//! Messages between hosts whose lengths their senders alone know: one after the other from one rank, and kept until they are gone.

use std::collections::VecDeque;
use std::ffi::c_int;

use polyrail_pmpi::abi;

use crate::library::{Failed, cancel, get_count, irecv, isend, test, wait};

/// What one rank sends, of a kind.
pub struct Letters {
    comm: usize,
    tag: c_int,
    from: usize,
    request: Option<usize>,
    room: Vec<u8>,
}

impl Letters {
    /// From a rank, of at most so many bytes each.
    pub fn new(comm: usize, tag: c_int, from: usize, most: usize) -> Self {
        Self { comm, tag, from, request: None, room: vec![0; most] }
    }

    /// One more is going to come.
    ///
    /// # Errors
    /// What the MPI says, here and below.
    pub fn expect(&mut self) -> Result<(), Failed> {
        if self.request.is_some() {
            return Ok(());
        }
        let mut request = 0;
        let (room, most) = (self.room.as_mut_ptr().cast(), self.room.len() as c_int);
        // SAFETY: room of ours, which stays until the request has ended, and a place for the answer
        unsafe { irecv(room, most, abi().byte, self.from as c_int, self.tag, self.comm, &mut request) }
            .map_err(Failed::of_ours)?;
        self.request = Some(request);
        Ok(())
    }

    /// The one that was expected, if it has come.
    pub fn take(&mut self) -> Result<Option<&[u8]>, Failed> {
        // an error ends the request, too
        let Some(mut request) = self.request.take() else { return Ok(None) };
        // no ABI's is larger
        let (mut status, mut done, mut came) = ([0u64; 8], 0, 0);
        let told = status.as_mut_ptr() as usize;
        // SAFETY: a request of ours, and places for the answers
        unsafe { test(&mut request, &mut done, told) }.map_err(Failed::of_ours)?;
        if done == 0 {
            self.request = Some(request);
            return Ok(None);
        }
        // SAFETY: as the MPI filled it
        unsafe { get_count(told, abi().byte, &mut came) }.map_err(Failed::of_ours)?;
        Ok(Some(&self.room[..usize::try_from(came).unwrap_or(0).min(self.room.len())]))
    }
}

impl Drop for Letters {
    /// After an error nothing may come any more to memory that is given back.
    fn drop(&mut self) {
        if let Some(mut request) = self.request.take() {
            // SAFETY: a request of ours; that of a receive ends when it is cancelled, or has come
            let _ = unsafe { cancel(&mut request).and_then(|()| wait(&mut request, abi().status_ignore)) };
        }
    }
}

/// What is on its way to others, of a kind.
pub struct Outbox {
    comm: usize,
    tag: c_int,
    under_way: VecDeque<(usize, Vec<u8>)>,
}

impl Outbox {
    /// Nothing yet.
    pub fn new(comm: usize, tag: c_int) -> Self {
        Self { comm, tag, under_way: VecDeque::new() }
    }

    /// Begins to send.
    ///
    /// # Errors
    /// What the MPI says, here and below.
    pub fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<(), Failed> {
        let mut request = 0;
        let (at, len) = (bytes.as_ptr().cast(), bytes.len() as c_int);
        // SAFETY: bytes that stay until the request has ended, and a place for the answer
        unsafe { isend(at, len, abi().byte, to as c_int, self.tag, self.comm, &mut request) }
            .map_err(Failed::of_ours)?;
        self.under_way.push_back((request, bytes));
        Ok(())
    }

    /// Forgets what is gone; how many are left.
    pub fn left(&mut self) -> Result<usize, Failed> {
        while let Some((request, _)) = self.under_way.front_mut() {
            let mut done = 0;
            // SAFETY: a request of ours, and a place for the answer
            unsafe { test(request, &mut done, abi().status_ignore) }.map_err(Failed::of_ours)?;
            if done == 0 {
                break;
            }
            self.under_way.pop_front();
        }
        Ok(self.under_way.len())
    }
}

impl Drop for Outbox {
    /// After an error the MPI may still read what is under way.
    fn drop(&mut self) {
        self.under_way.drain(..).for_each(std::mem::forget);
    }
}
