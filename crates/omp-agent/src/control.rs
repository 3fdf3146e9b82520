//! Control messages over the network, between rank 0 and each other rank: one receive is always posted, and what is sent is kept until it is.
use crate::message::{HEAD, Message};
use crate::net::{Net, Tag};
use polyrail_omp::area::SLOT_DATA;

const LONGEST: usize = HEAD + SLOT_DATA;

/// Both directions.
pub struct Control<R> {
    inbox: Box<[u8]>,
    receive: Option<R>,
    outbox: Vec<(R, Vec<u8>)>,
}

impl<R> Control<R> {
    /// Posts the first receive, where there is anybody to receive from.
    pub fn new<N: Net<Request = R>>(net: &mut N) -> Result<Self, N::Error> {
        let mut control =
            Self { inbox: vec![0; LONGEST].into_boxed_slice(), receive: None, outbox: Vec::new() };
        if net.size() > 1 {
            control.post(net)?;
        }
        Ok(control)
    }

    fn post<N: Net<Request = R>>(&mut self, net: &mut N) -> Result<(), N::Error> {
        // Only rank 0 hears of all. With MPICH a receive from any rank now and then does not end if the message is there when it begins, as the end of a run is that
        // follows an answer at once.
        let from = (net.rank() > 0).then_some(0);
        // SAFETY: nobody looks at the inbox until the request is done
        self.receive = Some(unsafe { net.receive(self.inbox.as_mut_ptr(), LONGEST, from, Tag::Control)? });
        Ok(())
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
        let Some(receive) = &mut self.receive else { return Ok(None) };
        if !net.done(receive)? {
            return Ok(None);
        }
        let message = Message::read(&self.inbox, net.size());
        self.post(net)?;
        Ok(Some(message))
    }

    /// Whether something is still being sent.
    pub fn is_sending(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The messages under way, if nobody waits for them any more.
    pub fn abandon(self) -> Vec<R> {
        self.receive.into_iter().chain(self.outbox.into_iter().map(|(request, _)| request)).collect()
    }
}
