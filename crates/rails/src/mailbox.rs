//! Tagged messages and values without unsafe code: a worker that owns the memory of what is under way.
//!
//! A [`Worker`] works on its callers' memory, which is what makes it fast for those who have large structures, and unsafe. Here
//! buffers are given away with an operation and come back with its end, so that nothing can be freed too early.

use crate::config::Config;
use crate::error::Error;
use crate::rail::RawIov;
use crate::worker::{Event, EventKind, Handler, Issued, Refused, User, Worker};
pub use crate::worker::{PutError, Scheme, Taken};
use polyrail_core::frame::{Matching, OpId};
use polyrail_core::proto::{Delivery, Failure, Filter, PeerIdx};
use polyrail_core::slab::Slab;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// The end of an operation.
#[derive(Debug)]
pub enum Done {
    /// A send that had not left at once.
    Sent {
        /// What was sent.
        bytes: Arc<[u8]>,
        /// Whether it did in the end.
        outcome: Result<(), Failure>,
    },
    /// A receive.
    Received {
        /// Who sent it; none when nothing came.
        from: Option<PeerIdx>,
        /// The buffer, with what was received at its beginning.
        buffer: Vec<u8>,
        /// How many bytes were received, and whether the message was cut because it was longer than the buffer.
        outcome: Result<(usize, bool), Failure>,
    },
}

enum Buffer {
    /// Of an operation that is about to begin.
    None,
    Sent(Arc<[u8]>),
    Received(Vec<u8>),
}

/// An endpoint for tagged messages.
pub struct Mailbox {
    // dropped before the buffers that it works on
    worker: Worker,
    buffers: Slab<Buffer>,
}

impl Mailbox {
    /// Opens an endpoint.
    ///
    /// # Errors
    /// As [`Worker::open`].
    pub fn open(config: Config) -> Result<Self, Error> {
        Ok(Self { worker: Worker::open(config)?, buffers: Slab::default() })
    }

    /// What can be asked of the worker without changing it: addresses, routes, reasons.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// As [`Worker::peer`].
    ///
    /// # Errors
    /// As [`Worker::peer`].
    pub fn peer(&mut self, address: &[u8]) -> Result<PeerIdx, Error> {
        self.worker.peer(address)
    }

    /// Sends a message. `Done`: it has left; else a [`Done::Sent`] follows.
    ///
    /// # Errors
    /// As [`Worker::send`].
    pub fn send(&mut self, to: PeerIdx, tag: u64, bytes: &Arc<[u8]>) -> Result<Issued, Refused> {
        self.send_part(to, tag, bytes, bytes.len())
    }

    /// Sends the first `len` bytes of these as a message; else as [`Mailbox::send`].
    ///
    /// # Errors
    /// As [`Worker::send`].
    ///
    /// # Panics
    /// When there are fewer.
    pub fn send_part(
        &mut self,
        to: PeerIdx,
        tag: u64,
        bytes: &Arc<[u8]>,
        len: usize,
    ) -> Result<Issued, Refused> {
        assert!(len <= bytes.len(), "{len} of {} bytes", bytes.len());
        let iov = RawIov { base: bytes.as_ptr().cast_mut(), len };
        let name = self.buffers.insert(Buffer::None);
        // SAFETY: the bytes are shared, so nobody changes them, and when the operation is pending a share of them is kept
        // until its event.
        let issued =
            unsafe { self.worker.send(to, Matching::Tag(tag), None, Delivery::Sent, &[iov], user(name)) };
        match issued {
            Ok(Issued::Pending(_)) => {
                self.buffers.get_mut(name).into_iter().for_each(|kept| *kept = Buffer::Sent(bytes.clone()));
            }
            Ok(Issued::Done) | Err(_) => _ = self.buffers.remove(name),
        }
        issued
    }

    /// Posts a receive for a message with this tag, from this peer or from any. A [`Done::Received`] follows. A longer message
    /// than the buffer is cut to its length.
    pub fn recv(&mut self, from: Option<PeerIdx>, tag: u64, mut buffer: Vec<u8>) {
        let iov = RawIov { base: buffer.as_mut_ptr(), len: buffer.len() };
        let filter = Filter { source: from, matching: Matching::Tag(tag), ignore: 0 };
        let name = self.buffers.insert(Buffer::Received(buffer));
        // SAFETY: the vector's memory stays where it is, and nobody else's, until the event gives it back.
        unsafe { self.worker.recv(filter, &[iov], user(name)) };
    }

    /// As [`Worker::set_scheme`].
    pub fn set_scheme(&mut self, peer: PeerIdx, scheme: Scheme) {
        self.worker.set_scheme(peer, scheme);
    }

    /// As [`Worker::scheme`].
    pub fn scheme(&self, peer: PeerIdx) -> Scheme {
        self.worker.scheme(peer)
    }

    /// As [`Worker::put_value`].
    ///
    /// # Errors
    /// As [`Worker::put_value`].
    pub fn put(&mut self, to: PeerIdx, tag: u64, iteration: u64, bytes: &[u8]) -> Result<(), PutError> {
        self.worker.put_value(to, tag, iteration, bytes)
    }

    /// As [`Worker::take_value`].
    pub fn take(&mut self, from: PeerIdx, tag: u64) -> Taken<'_> {
        self.worker.take_value(from, tag)
    }

    /// As [`Worker::on_active`].
    pub fn on_active(&mut self, id: u16, handler: Handler) {
        self.worker.on_active(id, handler);
    }

    /// As [`Worker::send_active`].
    ///
    /// # Errors
    /// As [`Worker::send_active`].
    pub fn send_active(&mut self, to: PeerIdx, id: u16, bytes: &[u8]) -> Result<(), Refused> {
        self.worker.send_active(to, id, &[], bytes)
    }

    /// Moves what can be moved; how much that was. The number of a peer that went is another's once 256 others went after it, if
    /// its address was never given to [`Mailbox::peer`].
    #[inline]
    pub fn progress(&mut self) -> usize {
        if self.worker.has_numbers_to_free() {
            self.worker.free_numbers(|_| false);
        }
        self.worker.progress()
    }

    /// The next operation's end, oldest first.
    #[inline]
    pub fn next_done(&mut self) -> Option<Done> {
        loop {
            let event = self.worker.next_event()?;
            if let Some(done) = self.end(&event) {
                return Some(done);
            }
        }
    }

    fn end(&mut self, event: &Event) -> Option<Done> {
        let (slot, generation) = (event.user.context as u32, (event.user.context >> 32) as u32);
        let buffer = self.buffers.remove(OpId { slot, generation })?;
        Some(match (event.kind, buffer) {
            (EventKind::Recv, Buffer::Received(buffer)) => {
                let outcome = match event.error {
                    None => Ok((event.got as usize, event.got < event.len)),
                    Some(failure) => Err(failure),
                };
                Done::Received { from: event.peer, buffer, outcome }
            }
            (_, Buffer::Sent(bytes)) => Done::Sent { bytes, outcome: event.error.map_or(Ok(()), Err) },
            // a send that has left at once has no event
            _ => return None,
        })
    }

    /// As [`Worker::wait_fd`].
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the worker has it open as long as it lives, and it lives as long as what is borrowed here
        unsafe { BorrowedFd::borrow_raw(self.worker.wait_fd()) }
    }

    /// As [`Worker::arm`], for who sleeps on more than a mailbox: on [`Mailbox::wait_fd`], too.
    pub fn arm(&mut self) -> bool {
        self.worker.arm()
    }

    /// As [`Worker::release`].
    pub fn release(&mut self, peer: PeerIdx) {
        self.worker.release(peer);
    }

    /// As [`Worker::close`].
    pub fn close(&mut self, linger: Duration) {
        self.worker.close(linger);
    }

    /// Sleeps until there may be something to do, at most so long. Progress and ends come by [`Mailbox::progress`] and
    /// [`Mailbox::next_done`] as ever.
    pub fn sleep(&mut self, most: Duration) {
        if !self.worker.arm() {
            return;
        }
        // that the wait is cut short by a signal is as good as its end
        crate::sys::wait_for(self.worker.wait_fd(), libc::POLLIN, most);
    }
}

fn user(name: OpId) -> User {
    User { context: u64::from(name.generation) << 32 | u64::from(name.slot), flags: 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Instant;

    fn pair() -> (Mailbox, Mailbox, PeerIdx) {
        let mut a = Mailbox::open(Config::default()).unwrap();
        let b = Mailbox::open(Config::default()).unwrap();
        let to_b = a.peer(&b.worker().address()).unwrap();
        (a, b, to_b)
    }

    fn until<T>(boxes: &mut [&mut Mailbox], mut what: impl FnMut(&mut [&mut Mailbox]) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            for one in boxes.iter_mut() {
                one.progress();
            }
            if let Some(found) = what(boxes) {
                return found;
            }
            assert!(start.elapsed() < Duration::from_secs(20));
        }
    }

    #[test]
    fn buffers_go_in_and_come_back() {
        let (mut a, mut b, to_b) = pair();
        for len in [0, 8, 100_000, 3 << 20] {
            let bytes: Arc<[u8]> = (0..len).map(|i| i as u8).collect();
            b.recv(None, 5, vec![0; len]);
            let issued = a.send(to_b, 5, &bytes).unwrap();
            let done = until(&mut [&mut a, &mut b], |boxes| boxes[1].next_done());
            let Done::Received { from: Some(_), buffer, outcome: Ok(got) } = done else { panic!("{done:?}") };
            assert!(buffer == *bytes && got == (len, false));
            if issued != Issued::Done {
                let done = until(&mut [&mut a, &mut b], |boxes| boxes[0].next_done());
                assert!(matches!(done, Done::Sent { outcome: Ok(()), .. }));
            }
            assert_eq!(Arc::strong_count(&bytes), 1, "nothing is kept of a message that has left");
        }
        assert!(a.buffers.is_empty() && b.buffers.is_empty(), "no place is kept");
    }

    #[test]
    fn a_buffer_that_is_too_short_says_so() {
        let (mut a, mut b, to_b) = pair();
        b.recv(None, 5, vec![0; 3]);
        a.send(to_b, 5, &Arc::from(*b"message")).unwrap();
        let done = until(&mut [&mut a, &mut b], |boxes| boxes[1].next_done());
        assert!(
            matches!(done, Done::Received { outcome: Ok((3, true)), ref buffer, .. } if buffer == b"mes")
        );
    }

    #[test]
    fn what_a_lost_peer_owed_ends() {
        let (mut a, mut b, to_b) = pair();
        a.send(to_b, 1, &Arc::from(*b"x")).unwrap();
        b.recv(None, 1, vec![0; 1]);
        let from = until(&mut [&mut a, &mut b], |boxes| match boxes[1].next_done()? {
            Done::Received { from, .. } => from,
            Done::Sent { .. } => None,
        });
        b.recv(Some(from), 2, vec![0; 1]);
        drop(a);
        let done = until(&mut [&mut b], |boxes| boxes[0].next_done());
        assert!(matches!(done, Done::Received { outcome: Err(Failure::PeerGone), .. }), "{done:?}");
    }

    #[test]
    fn values_are_put_in_the_asynchronous_scheme_and_the_newest_is_taken() {
        let (mut a, mut b, to_b) = pair();
        let to_a = b.peer(&a.worker().address()).unwrap();
        assert_eq!(a.put(to_b, 1, 1, b"early"), Err(PutError::Synchronous));
        a.set_scheme(to_b, Scheme::Asynchronous);
        for iteration in 1..=100_u64 {
            a.put(to_b, 1, iteration, &iteration.to_le_bytes()).unwrap();
        }
        let mut last = 0;
        until(&mut [&mut a, &mut b], |boxes| {
            if let Taken::New { iteration, bytes, .. } = boxes[1].take(to_a, 1) {
                assert!(iteration > last && bytes == iteration.to_le_bytes());
                last = iteration;
            }
            (last == 100).then_some(())
        });
    }

    #[test]
    fn a_sleeper_is_woken() {
        let (mut a, mut b, to_b) = pair();
        let (said, heard) = mpsc::channel();
        b.on_active(7, Box::new(move |_, _, bytes| said.send(bytes.to_vec()).unwrap()));
        let sender = std::thread::spawn(move || {
            until(&mut [&mut a], |boxes| boxes[0].send_active(to_b, 7, b"wake").ok());
            a
        });
        let start = Instant::now();
        while heard.try_recv().is_err() {
            if b.progress() == 0 {
                b.sleep(Duration::from_secs(10));
            }
            assert!(start.elapsed() < Duration::from_secs(8), "it slept through");
        }
        drop(sender.join().unwrap());
    }
}
