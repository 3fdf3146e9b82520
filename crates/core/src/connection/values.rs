//! Values of a connection: by the channel that has this side's new bytes, if that is an asynchronous one.

use super::Connection;
use super::stage::Stage;
use crate::micro::{PutError, Scheme, Time};
use crate::values::Register;

impl Connection {
    /// By which scheme this side sends now.
    pub fn scheme(&self) -> Scheme {
        match &self.next {
            Some(next) if self.flipped => next.channel.composition().scheme(),
            _ => self.composition().scheme(),
        }
    }

    /// Gives the newest value of a tag to be sent; never waits.
    ///
    /// # Errors
    /// Why it is not taken; nothing has changed then.
    pub fn put_value(&mut self, now: Time, tag: u64, iteration: u64, bytes: &[u8]) -> Result<(), PutError> {
        self.sending().channel.put_value(now, tag, iteration, bytes)
    }

    /// Whether values are to leave, or may not have come.
    pub fn owes_values(&self) -> bool {
        self.current.channel.owes_values()
            || self.next.as_ref().is_some_and(|next| next.channel.owes_values())
    }

    /// Bytes of the datagrams with values that left, and of those of them of which it is known whether they came, or by now does not matter:
    /// altogether.
    pub fn values_on_their_way(&self) -> (u64, u64) {
        let of = |stage: &Stage| {
            let shared = stage.channel.shared();
            (shared.values_sent, shared.values_settled)
        };
        let (old, new) = (of(&self.current), self.next.as_ref().map_or((0, 0), of));
        (self.values_before + old.0 + new.0, self.values_before + old.1 + new.1)
    }

    /// The next value that was given and is not known to have come, and that the connection does not bring any more: the composition has changed to
    /// a synchronous one.
    pub fn poll_returned(&mut self) -> Option<Register> {
        self.returned.pop_front()
    }

    /// The connection is over: all values that are not known to have come are to be had by [`Connection::poll_returned`].
    pub fn return_values(&mut self) {
        let stages = [Some(&mut self.current), self.next.as_mut()];
        for stage in stages.into_iter().flatten() {
            self.returned.extend(stage.channel.give_back());
        }
    }

    /// The new channel has what the old one was to send of values; if it has none, they are returned.
    pub(super) fn move_values(&mut self, now: Time) {
        let Some(next) = &mut self.next else { return };
        for mut value in self.current.channel.give_back() {
            value.advance();
            let Register { tag, iteration, bytes, .. } = &value;
            if next.channel.put_value(now, *tag, *iteration, bytes).is_err() {
                self.returned.push_back(value);
            }
        }
    }
}
