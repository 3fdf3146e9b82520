//! Messages between hosts that are under way.

use std::collections::VecDeque;
use std::ffi::c_int;

use polyrail_pmpi::abi;

use crate::library::{Failed, cancel, get_count, irecv, isend, wait};

/// Messages of one operation, which are waited for in the order in which they were begun.
pub struct Messages {
    comm: usize,
    tag: c_int,
    under_way: VecDeque<Message>,
    /// Bytes of the whole operation, where the other side's are heard.
    all: u64,
}

struct Message {
    request: usize,
    /// Bytes that must come, if any do.
    expected: Option<usize>,
    /// What an operation is of: the place of this side's number, or of the other's, which must be the same.
    length: Option<Box<u64>>,
}

impl Messages {
    /// None yet, of a communicator of ours.
    pub fn new(comm: usize, tag: c_int) -> Self {
        Self { comm, tag, under_way: VecDeque::new(), all: 0 }
    }

    /// Begins to send what stays where it is until [`wait_to`](Self::wait_to) has seen the end of it. Nothing is no message.
    ///
    /// # Errors
    /// What the MPI says, here and below.
    pub fn send(&mut self, to: usize, from: *const u8, bytes: usize) -> Result<(), Failed> {
        if bytes == 0 {
            return Ok(());
        }
        let mut request = 0;
        // SAFETY: the caller's bytes, and a place for the answer
        unsafe {
            isend(from.cast(), length(bytes), abi().byte, to as c_int, self.tag, self.comm, &mut request)
        }
        .map_err(Failed::of_ours)?;
        self.under_way.push_back(Message { request, expected: None, length: None });
        Ok(())
    }

    /// Begins to tell of how many bytes an operation is here, before its pieces: one of another length would take some of them.
    pub fn tell_length(&mut self, to: usize, all: usize) -> Result<(), Failed> {
        let length = Box::new(all as u64);
        self.send(to, (&raw const *length).cast(), size_of::<u64>())?;
        self.keep(length);
        Ok(())
    }

    /// Begins to hear of how many it is there: the first to be waited for.
    pub fn hear_length(&mut self, from: usize, all: usize) -> Result<(), Failed> {
        let mut length = Box::new(0);
        self.receive(from, (&raw mut *length).cast(), size_of::<u64>())?;
        self.all = all as u64;
        self.keep(length);
        Ok(())
    }

    fn keep(&mut self, length: Box<u64>) {
        if let Some(last) = self.under_way.back_mut() {
            last.length = Some(length);
        }
    }

    /// Begins to receive as many bytes.
    pub fn receive(&mut self, from: usize, into: *mut u8, bytes: usize) -> Result<(), Failed> {
        if bytes == 0 {
            return Ok(());
        }
        let mut request = 0;
        // SAFETY: the caller's place, and one for the answer
        unsafe {
            irecv(into.cast(), length(bytes), abi().byte, from as c_int, self.tag, self.comm, &mut request)
        }
        .map_err(Failed::of_ours)?;
        self.under_way.push_back(Message { request, expected: Some(bytes), length: None });
        Ok(())
    }

    /// Waits for the first ones, until no more than so many are under way.
    pub fn wait_to(&mut self, left: usize) -> Result<(), Failed> {
        while self.under_way.len() > left
            && let Some(mut message) = self.under_way.pop_front()
        {
            // no ABI's is larger
            let mut status = [0u64; 8];
            let told = status.as_mut_ptr() as usize;
            // SAFETY: a request of ours, and room for a status
            unsafe { wait(&mut message.request, told) }.map_err(Failed::of_ours)?;
            let Some(expected) = message.expected else { continue };
            let mut came: c_int = 0;
            // SAFETY: as the MPI filled it
            unsafe { get_count(told, abi().byte, &mut came) }.map_err(Failed::of_ours)?;
            if came != length(expected) {
                return Err(Failed::Length { expected, came: came.max(0) as usize });
            }
            match message.length {
                Some(theirs) if *theirs != self.all => {
                    return Err(Failed::Length { expected: self.all as usize, came: *theirs as usize });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits for the first one.
    pub fn wait_for_one(&mut self) -> Result<(), Failed> {
        self.wait_to(self.under_way.len().saturating_sub(1))
    }

    /// Waits for all.
    pub fn wait_for_all(&mut self) -> Result<(), Failed> {
        self.wait_to(0)
    }
}

impl Drop for Messages {
    /// After an error nothing may come any more to places of the program's. What is sent may still be read: rooms are never given back then.
    fn drop(&mut self) {
        for message in &mut self.under_way {
            if message.expected.is_some() {
                // SAFETY: a request of ours; that of a receive ends when it is cancelled, or has come
                let _ = unsafe {
                    cancel(&mut message.request)
                        .and_then(|()| wait(&mut message.request, abi().status_ignore))
                };
            }
            std::mem::forget(message.length.take());
        }
    }
}

/// Operations send less than 2 GiB at once.
fn length(bytes: usize) -> c_int {
    debug_assert!(c_int::try_from(bytes).is_ok());
    bytes as c_int
}
