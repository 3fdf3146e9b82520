//! Direct transfers by shared memory's links, and helping peers with theirs.

use super::{Link, ShmRail, State};
use crate::rail::direct::{Direct, DirectError, Transfer};
use crate::rail::{LinkId, Memory, Place, RawIov, Sink, Span};
use crate::shm::attach::Desks;
use crate::shm::cma::{self, RemoteIov};
use crate::shm::desk::{Helper, LEAST, Part, Readers};
use polyrail_core::trace::Call;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// So many bytes of peers' reads are helped with in a round, and a part more for each peer that asks.
const HELP: usize = 512 << 10;
/// So long it is waited for a peer that writes to this process's memory while its link ends here: longer only one takes that stands still.
const STANDSTILL: Duration = Duration::from_secs(1);

impl ShmRail {
    /// Helps peers that asked for it with what they read: how many parts.
    pub(super) fn help<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        let (mut parts, mut budget) = (0, HELP);
        while let Some(id) = self.asked.pop() {
            let Some(Some(link)) = self.links.get_mut(id as usize) else { continue };
            while let Some(len) = link.help(LinkId(id), sink, &mut self.iov) {
                parts += 1;
                // whatever a peer may ask for
                budget = budget.saturating_sub(len.max(LEAST));
                if budget == 0 {
                    // the rest in the next round
                    self.doorbell.board().mark(id);
                    break;
                }
            }
        }
        parts
    }
}

impl Link {
    /// Takes a part of what the peer reads, and writes it where that goes. How many bytes.
    fn help<S: Sink + ?Sized>(&mut self, id: LinkId, sink: &mut S, iov: &mut Vec<RawIov>) -> Option<usize> {
        let (pid, watched) = (self.pid, self.watched);
        let pid = pid.filter(|_| self.helps && self.state == State::Up)?;
        let whole = self.helpers.iter().position(Helper::is_whole);
        let at = whole.or_else(|| self.helpers.iter().position(Helper::is_asked))?;
        self.helpers[at].help(|Part { send, offset, to, len }| {
            iov.clear();
            if !sink.is_read(id, send) || !sink.resolve(Span { place: Place::Send(send), offset, len }, iov) {
                return false;
            }
            let moving = watched.begin();
            // SAFETY: the memory was just named as that of a live send; the kernel checks the remote addresses, and the peer, whose
            // process this is by the kernel's word, gave them for this.
            let copied = unsafe { cma::write(pid, iov, &[RemoteIov { base: to, len }]) };
            if let (Some(moving), Ok(())) = (moving, &copied) {
                moving.by(Call::ProcessVmWriteV, len);
            }
            copied.is_ok()
        })
    }

    /// The peer is to write to this process's memory no more, for these desks. Waits for what it is at, unless its end is known.
    pub(super) fn withdraw(&mut self, desks: Range<usize>) {
        let deadline = Instant::now() + STANDSTILL;
        while !self.readers.withdraw(desks.clone()) && !self.has_hung_up() && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }

    /// Whether the peer's process ended, or closed its endpoint.
    fn has_hung_up(&self) -> bool {
        self.state == State::Ending
            || crate::sys::wait_for(self.control.as_raw_fd(), libc::POLLIN, Duration::ZERO)
    }
}

/// The links' desks.
struct Tables<'a>(&'a mut [Option<Link>]);

impl Desks for Tables<'_> {
    fn of(&mut self, link: LinkId) -> Option<&mut Readers> {
        Some(&mut self.0.get_mut(link.0 as usize)?.as_mut()?.readers)
    }

    fn tell(&mut self, link: LinkId) {
        if let Some(Some(link)) = self.0.get(link.0 as usize) {
            link.bell.tell(link.producer.peer_place());
        }
    }

    fn withdraw(&mut self, link: LinkId, desk: usize) {
        if let Some(Some(link)) = self.0.get_mut(link.0 as usize) {
            link.withdraw(desk..desk + 1);
        }
    }
}

impl Direct for ShmRail {
    fn start(&mut self, transfer: Transfer) -> Result<(), Transfer> {
        let link = self.links.get(transfer.link.0 as usize).and_then(Option::as_ref);
        match link.and_then(|link| link.pid) {
            Some(pid) => self.attach.start(pid, link.map(|link| link.watched).unwrap_or_default(), transfer),
            None => return Err(transfer),
        }
        Ok(())
    }

    fn poll<M: Memory + ?Sized>(
        &mut self,
        mem: &M,
        budget: &mut usize,
    ) -> Option<(Transfer, Result<(), DirectError>)> {
        self.attach.poll(mem, &mut Tables(&mut self.links), budget)
    }

    fn transfers(&self) -> usize {
        self.attach.len()
    }
}
