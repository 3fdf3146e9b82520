//! What frames leave by: the rails, and the memory that payloads are in; how a peer's session sees its links.

use super::buffers::{Buffers, Engine, Named, Posted};
use crate::rail::{LinkStats, Memory, Place, RawIov, Span};
use crate::set::{RailLink, Rails};
use polyrail_core::control::losses::Losses;
use polyrail_core::frame::{Acked, Frame};
use polyrail_core::proto::{Next, Out, Region};
use polyrail_core::session::{Carrier, Links, Packets, Retired, Seen, Sent, ToPeer, UnackedFrame, Width};
use std::collections::VecDeque;

/// So many copied bytes a peer may have without saying so: what both kernels may hold, and what it says nothing of yet, is less.
const UNTOLD: usize = 96 << 20;

/// From so many bytes on a copy costs more than to remember that there is none: shorter ones leave without an operation.
const LEND: usize = 8 << 10;

/// The parts of a worker that frames leave by.
pub(super) struct Outlet<'a> {
    pub rails: &'a mut Rails,
    pub bufs: &'a Buffers,
    /// Links whose peers broke the protocol, and how.
    pub cut: &'a mut Vec<(RailLink, &'static str)>,
    pub reads_told: bool,
    pub iov: &'a mut Vec<RawIov>,
    pub zeros: &'a [u8],
}

impl Links<RailLink> for Outlet<'_> {
    fn look(&self, link: RailLink) -> Option<Seen> {
        let stats = self.rails.sample(link)?;
        // what the peer's program does not take is not owed by its kernel; what cannot even be sent, for want of a route, is. No
        // packet is sent into less room than a whole one needs.
        let takes = stats.unacked > 0 || stats.peer_window > 0 && stats.peer_window >= stats.packet;
        let (rtt, min_rtt) = (u64::from(stats.rtt) * 1000, u64::from(stats.min_rtt) * 1000);
        let shut = stats.queued > 0 && !takes;
        let LinkStats { delivered, received, queued, .. } = stats;
        let packets = Packets {
            sent: stats.segments.into(),
            lost: stats.retransmitted.saturating_sub(stats.spurious).into(),
            came: stats.came.into(),
            early: stats.early.into(),
        };
        Some(Seen {
            delivered,
            received,
            queued,
            rtt,
            min_rtt,
            shut,
            packets,
            width: Width { busy: 1000 * stats.busy, narrow: 1000 * stats.narrow },
            by_program: link.0.caps().by_program,
        })
    }
    fn queued(&self, link: RailLink) -> u64 {
        self.rails.queued(link) as u64
    }
    fn given(&self, link: RailLink) -> u64 {
        self.rails.given(link)
    }
    fn wants_more(&self, link: RailLink) -> bool {
        self.rails.wants_more(link)
    }
    fn tell_losses(&mut self, link: RailLink, losses: &Losses) {
        self.rails.tell_losses(link, losses);
    }
    fn confirm(&mut self, link: RailLink, acked: &Acked) -> bool {
        self.rails.acked(link, acked)
    }
    fn retire(&mut self, link: RailLink) -> Retired {
        let received = self.rails.retire(link);
        // what it did not deliver may wait for long until it is sent again
        self.rails.copy_lent(link, None, self.bufs);
        Retired { received, said: self.rails.kept(link) }
    }
    fn reclaim(&mut self, link: RailLink, acked: &Acked) -> Option<VecDeque<UnackedFrame>> {
        self.rails.reclaim(link, acked)
    }
    fn close(&mut self, link: RailLink) {
        self.rails.close(link);
    }
}

impl Outlet<'_> {
    /// Gives a value of which nothing has left to a link that has means of its own for values.
    fn give_value(&mut self, link: RailLink, next: &Next, engine: &Engine) -> Option<()> {
        let Frame::Value { tag, iteration, offset: 0, .. } = next.frame else { return None };
        let Out::Bytes(Span { place: Place::Value(peer, slot), .. }) = next.payload else { return None };
        let bytes = engine.value_bytes(peer, slot)?;
        self.rails.put_value(link, peer, (tag, iteration), bytes).then_some(())
    }

    /// Gives a frame of this engine to a link.
    pub fn give(&mut self, link: RailLink, next: &Next, engine: &Engine) -> Sent {
        if self.give_value(link, next, engine).is_some() {
            return Sent::Taken;
        }
        let mut iov = std::mem::take(self.iov);
        iov.clear();
        // written only where memory is listed
        let mut listed;
        match next.payload {
            Out::Nothing => {}
            Out::Bytes(bytes) => {
                if !(Named { engine, bufs: self.bufs }).resolve(bytes, &mut iov) {
                    // the region was closed, or the operation has ended, in the middle: the peer is told at the end
                    iov.push(RawIov { base: self.zeros.as_ptr().cast_mut(), len: bytes.len });
                    debug_assert!(bytes.len <= self.zeros.len());
                }
            }
            Out::Addresses(memory) => {
                listed = [0; Region::MAX_BYTES];
                let named = Named { engine, bufs: self.bufs };
                let Some(len) = list(&named, memory, &mut iov, &mut listed) else {
                    *self.iov = iov;
                    return Sent::Unlisted;
                };
                iov.clear();
                iov.push(RawIov { base: listed.as_mut_ptr(), len });
            }
        }
        let may_change = |span: &Span| self.reads_told && matches!(span.place, Place::Region(..));
        let lasting = next.lasting().filter(|span| !may_change(span));
        // by a link that has no room at once, what waits is copied: there is time for that
        let lends = link.0.caps().has_lanes() && lasting.is_none() && self.rails.wants_more(link);
        let lent = if lends { engine.may_lend(next, LEND) } else { None };
        let header = next.frame.encode(iov.iter().map(|piece| piece.len).sum());
        // SAFETY: the pieces are the memory of live operations, or of this function and its worker.
        let sent = unsafe { self.rails.send(link, &header, &iov, lasting.or(lent)) };
        *self.iov = iov;
        if self.rails.copied(link) > UNTOLD {
            self.cut.push((link, "it does not say what it has had"));
        }
        match sent {
            Ok(()) if lent.is_some() => Sent::Lent,
            Ok(()) => Sent::Away,
            Err(_) => Sent::Full,
        }
    }
}

impl Carrier<RailLink, ToPeer<'_, Posted>> for Outlet<'_> {
    fn send(&mut self, link: RailLink, next: &Next, traffic: &ToPeer<'_, Posted>) -> Sent {
        self.give(link, next, traffic.engine)
    }

    fn send_again(&mut self, link: RailLink, frame: &UnackedFrame) -> bool {
        let (header, copied) = frame.bytes.split_at(frame.header);
        let mut iov = std::mem::take(self.iov);
        iov.clear();
        match frame.span {
            // of an operation that has ended nobody reads this
            Some(span) if !self.bufs.resolve(span, &mut iov) => {
                iov.push(RawIov { base: self.zeros.as_ptr().cast_mut(), len: span.len });
            }
            Some(_) => {}
            None => iov.push(RawIov { base: copied.as_ptr().cast_mut(), len: copied.len() }),
        }
        // SAFETY: the frame's own bytes, memory of a live operation, or the worker's zeros.
        let sent = unsafe { self.rails.send(link, header, &iov, frame.span) };
        *self.iov = iov;
        sent.is_ok()
    }
}

/// Lists the addresses of a span as bytes for the peer; how many. None when they are too many, or gone.
fn list(
    memory: &Named<'_>,
    span: Span,
    iov: &mut Vec<RawIov>,
    out: &mut [u8; Region::MAX_BYTES],
) -> Option<usize> {
    let mut region = Region::default();
    let all = memory.resolve(span, iov) && iov.iter().all(|p| region.push(p.base as u64, p.len as u64));
    (all && !region.is_empty()).then(|| region.encode(out))
}
