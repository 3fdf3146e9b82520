//! The receiver's side of a rendezvous: it reads, or says where to write, or takes fragments.

use super::bounds::Settles;
use super::phase::{RECV, RecvEvent};
use super::pull::is_short;
use super::recv::StashKind;
use super::types::{
    Action, After, Directive, Envelope, Failure, Job, Out, PeerIdx, Place, Receiver, Region, Span,
};
use super::{Engine, Scheme};
use crate::frame::{Frame, OpId, Status};

impl<R: Receiver> Engine<R> {
    pub(super) fn on_rts(&mut self, envelope: Envelope, sender: OpId, region: Option<Region>) -> Directive {
        if region.as_ref().is_some_and(|r| r.len().is_none_or(|have| have < envelope.len)) {
            return Directive::Broken("it announced more bytes than it showed");
        }
        match self.take_posted(envelope) {
            Some(op) => self.begin_rendezvous(op, sender, region),
            None => {
                let pullable = region.is_none() && is_short(envelope.len, self.config.window);
                let stash =
                    self.unexpected(envelope, StashKind::Rts { envelope, handle: None, sender, region });
                if pullable {
                    self.may_pull(envelope.from, stash);
                }
            }
        }
        Directive::Done
    }

    pub(super) fn begin_rendezvous(&mut self, op: OpId, sender: OpId, region: Option<Region>) {
        let Some(r) = self.recvs.get_mut(op) else { return };
        let Some(envelope) = r.envelope else { return };
        r.sender = Some(sender);
        let (peer, want) = (envelope.from, r.want);
        if want == 0 {
            self.take_announced(peer, sender);
            self.step_recv(op, RecvEvent::MatchEmpty);
            return;
        }
        match region {
            Some(from) if self.peers[peer.0 as usize].route.scheme != Scheme::Fragments => {
                self.step_recv(op, RecvEvent::MatchRead);
                let to = self.span(op, 0, want);
                self.actions.push_back(Action::Read { peer, from, to, job: Job::Rget(op) });
            }
            _ => {
                let writable = self.peers[peer.0 as usize].route.scheme == Scheme::Put;
                self.step_recv(op, if writable { RecvEvent::MatchOffer } else { RecvEvent::MatchRtr });
                self.ready_to_receive(peer, op, sender, want, writable);
            }
        }
    }

    /// All that is wanted of an announced message is here: its first answer and its last.
    fn take_announced(&mut self, peer: PeerIdx, sender: OpId) {
        let ats = Frame::Ats { op: sender, status: Status::Ok };
        self.answer(peer, ats, Out::Nothing, Settles::Announced);
    }

    pub(super) fn ready_to_receive(
        &mut self,
        peer: PeerIdx,
        op: OpId,
        sender: OpId,
        len: u64,
        writable: bool,
    ) {
        let frame = Frame::Rtr { op: sender, to: op, len, writable };
        let payload = if writable { Out::Addresses(self.span(op, 0, len)) } else { Out::Nothing };
        self.answer(peer, frame, payload, Settles::Announced);
    }

    pub(super) fn rget_done(&mut self, peer: PeerIdx, op: OpId, ok: bool) {
        let Some(r) = self.recvs.get_mut(op) else { return };
        let (Some(sender), want) = (r.sender, r.want) else { return };
        if ok {
            r.got = want;
            self.take_announced(peer, sender);
            self.step_recv(op, RecvEvent::ReadDone);
        } else if self.step_recv(op, RecvEvent::ReadRefused) {
            self.ready_to_receive(peer, op, sender, want, false);
        }
    }

    pub(super) fn on_fragment(&mut self, peer: PeerIdx, to: OpId, offset: u64, len: usize) -> Directive {
        let discard = Span { place: Place::Discard, offset: 0, len };
        let Some(r) = self.recvs.get_mut(to) else { return Directive::Place(discard, After::Nothing) };
        if r.envelope.is_none_or(|e| e.from != peer) || RECV.next(r.phase, RecvEvent::LastFragment).is_none()
        {
            return Directive::Broken("a fragment belongs to no message of its own");
        }
        let fits = |from: u64| from.checked_add(len as u64).is_some_and(|end| end <= r.want);
        if !fits(offset) || !fits(r.coming) {
            return Directive::Broken("a fragment lies outside its message");
        }
        r.coming += len as u64;
        Directive::Place(self.span(to, offset, len as u64), After::Fragment(to, len))
    }

    pub(super) fn fragment_placed(&mut self, peer: PeerIdx, op: OpId, len: usize) {
        let Some(r) = self.recvs.get_mut(op) else { return };
        r.got += len as u64;
        if r.got == r.want
            && let Some(sender) = r.sender
        {
            // of one that was asked for early the sender hears when a receive has it
            if r.pulls.is_none() {
                self.control(peer, Frame::Ats { op: sender, status: Status::Ok }, Out::Nothing);
            }
            self.step_recv(op, RecvEvent::LastFragment);
        }
    }

    pub(super) fn on_atp(&mut self, peer: PeerIdx, to: OpId, status: Status) -> Directive {
        let Some(r) = self.recvs.get_mut(to) else { return Directive::Done };
        let (event, result) = match status {
            Status::Ok => (RecvEvent::Atp, Ok(())),
            why => (RecvEvent::AtpFailed, Err(Failure::Refused(why))),
        };
        // once fragments have come, the sender has said that it does not write
        if r.envelope.is_none_or(|e| e.from != peer) || r.coming > 0 || RECV.next(r.phase, event).is_none() {
            return Directive::Broken("it ended a message that it was not asked for");
        }
        if result.is_ok() {
            r.got = r.want;
        }
        self.end_recv(to, result);
        Directive::Done
    }
}
