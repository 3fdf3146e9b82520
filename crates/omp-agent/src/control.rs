//! Control messages over the network, between rank 0 and each other rank. What is sent is kept until it is.
//!
//! Rank 0, which hears of all, receives what has come from whom it has come: with MPICH a receive from any rank now and then does not end. The others have a
//! receive from rank 0 posted whenever [`Control::poll`] has said that nothing has come, and none after the last message: rank 0 may then leave.
use crate::message::{HEAD, Message};
use crate::net::{Net, Tag};
use polyrail_omp::area::SLOT_DATA;

const LONGEST: usize = HEAD + SLOT_DATA;

/// Both directions.
pub struct Control<R> {
    inbox: Box<[u8]>,
    /// From whom, too.
    receive: Option<(usize, R)>,
    outbox: Vec<(R, Vec<u8>)>,
}

impl<R> Control<R> {
    /// Nothing is under way.
    pub fn new() -> Self {
        Self { inbox: vec![0; LONGEST].into_boxed_slice(), receive: None, outbox: Vec::new() }
    }

    /// Begins to send.
    pub fn send<N: Net<Request = R>>(
        &mut self,
        net: &mut N,
        to: usize,
        message: &Message,
    ) -> Result<(), N::Error> {
        let bytes = message.bytes();
        // SAFETY: the bytes are kept, where they are, until the request is done
        let request = unsafe { net.send(bytes.as_ptr(), bytes.len(), to, Tag::Control)? };
        self.outbox.push((request, bytes));
        Ok(())
    }

    /// What has come, if anything: a message, or `None` inside for one that is none.
    pub fn poll<N: Net<Request = R>>(&mut self, net: &mut N) -> Result<Option<Option<Message>>, N::Error> {
        let mut at = 0;
        while at < self.outbox.len() {
            if net.done(&mut self.outbox[at].0)? {
                drop(self.outbox.swap_remove(at));
            } else {
                at += 1;
            }
        }
        if self.receive.is_none() && net.size() > 1 {
            let Some(from) = (if net.rank() > 0 { Some(0) } else { net.come(Tag::Control)? }) else {
                return Ok(None);
            };
            // SAFETY: nobody looks at the inbox until the request is done
            let request = unsafe { net.receive(self.inbox.as_mut_ptr(), LONGEST, from, Tag::Control)? };
            self.receive = Some((from, request));
        }
        let Some((from, receive)) = &mut self.receive else { return Ok(None) };
        let from = *from;
        if !net.done(receive)? {
            return Ok(None);
        }
        self.receive = None;
        Ok(Some(Message::read(&self.inbox, net.size()).filter(|message| message.rank as usize == from)))
    }

    /// Whether something is still being sent.
    pub fn is_sending(&self) -> bool {
        !self.outbox.is_empty()
    }
}
