//! The rail of a process to itself: a queue.

use crate::config::{Config, Rendezvous};
use crate::error::Error;
use crate::list::RailId;
use crate::rail::connect::{Agreed, Connector, Discovered, Joined};
use crate::rail::direct::{Direct, DirectError, Transfer};
use crate::rail::{Caps, Down, Full, LaneRail, LinkId, Memory, Payload, Rail, RawIov, Sink, Span};
use crate::shm::{Attach, NoDesks, cma};
use crate::watched::Watched;
use polyrail_core::frame::{Frame, MAX_HEADER};
use polyrail_core::proto::{CREDIT_UNIT, Route, Scheme};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

/// Most frames that wait; beyond that the rail is full.
const FRAMES: usize = 1024;
/// Longest fragment, in bytes.
const FRAGMENT: usize = 32 << 10;
/// Frames after which no further fragment is wanted.
const BULK_FRAMES: usize = 4;

/// A frame on its way: header, its length, payload.
type Waiting = ([u8; MAX_HEADER], usize, Vec<u8>);

/// A rail with one link, [`Loopback::LINK`].
#[derive(Default)]
pub struct Loopback {
    queue: VecDeque<Waiting>,
    spare: Vec<Vec<u8>>,
    attach: Attach,
}

impl Loopback {
    /// The link.
    pub const LINK: LinkId = LinkId(0);

    /// Delivers what waits now, not what comes of it.
    #[inline(never)]
    fn deliver<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        let waiting = self.queue.len();
        for _ in 0..waiting {
            let Some((head, len, mut bytes)) = self.queue.pop_front() else { break };
            match Frame::parse(&head[..len]) {
                Ok((frame, _)) => {
                    // SAFETY: `bytes` outlives the call.
                    let payload = unsafe { Payload::new(bytes.as_ptr(), bytes.len()) };
                    sink.frame(Self::LINK, frame, payload);
                }
                Err(why) => sink.down(Self::LINK, Down::Protocol(why.to_string())),
            }
            bytes.clear();
            if self.spare.len() < 64 {
                self.spare.push(bytes);
            }
        }
        waiting
    }
}

/// Nobody connects: its link is there from the beginning.
impl Connector for Loopback {
    fn discover(_settings: &Config) -> Result<Discovered, Error> {
        Ok(Discovered { devices: Vec::new(), direct: None })
    }

    fn own(&self, settings: &Config) -> Option<(LinkId, Route)> {
        // whether this process may read its own memory as if it were another's
        let word = Box::new(0x706f_6c79_7261_696c);
        let reached = cma::probe(std::process::id() as i32, &raw const *word as u64, *word).is_ok();
        let scheme = match (settings.rendezvous, reached) {
            (Rendezvous::Auto, true) => Scheme::Get,
            (Rendezvous::Put, true) => Scheme::Put,
            _ => Scheme::Fragments,
        };
        let window = (settings.window as u64 / CREDIT_UNIT) as u32;
        let (eager_max, fragment) = (settings.shm_eager, FRAGMENT);
        Some((Self::LINK, Route { eager_max, fragment, scheme, window, immediate: true }))
    }

    fn adopt(&mut self, _agreed: Agreed<'_>) -> Result<Joined, String> {
        Err("it leads to its own process only".into())
    }
}

impl Direct for Loopback {
    fn start(&mut self, transfer: Transfer) -> Result<(), Transfer> {
        self.attach.start(std::process::id() as i32, Watched::default(), transfer);
        Ok(())
    }

    fn poll<M: Memory + ?Sized>(
        &mut self,
        mem: &M,
        budget: &mut usize,
    ) -> Option<(Transfer, Result<(), DirectError>)> {
        self.attach.poll(mem, &mut NoDesks, budget)
    }

    fn transfers(&self) -> usize {
        self.attach.len()
    }
}

impl LaneRail for Loopback {}

impl Rail for Loopback {
    const CAPS: Caps = Caps::of_memory(RailId::Loopback);

    fn open(_config: &Config) -> io::Result<Self> {
        Ok(Self::default())
    }

    unsafe fn send(
        &mut self,
        _link: LinkId,
        header: &[u8],
        iov: &[RawIov],
        _span: Option<Span>,
    ) -> Result<(), Full> {
        if self.queue.len() >= FRAMES {
            return Err(Full);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        for piece in iov.iter().filter(|piece| piece.len > 0) {
            // SAFETY: readable, by our caller's word.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.base, piece.len) });
        }
        let mut head = [0; MAX_HEADER];
        head[..header.len()].copy_from_slice(header);
        self.queue.push_back((head, header.len(), bytes));
        Ok(())
    }

    fn wants_more(&self, _link: LinkId) -> bool {
        self.queue.len() < BULK_FRAMES
    }

    #[inline]
    fn links(&self) -> usize {
        0
    }

    #[inline]
    fn progress<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        if self.queue.is_empty() { 0 } else { self.deliver(sink) }
    }

    #[inline(always)]
    fn skip(&mut self) -> bool {
        self.queue.is_empty()
    }

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn arm(&mut self) -> bool {
        self.queue.is_empty()
    }

    fn close(&mut self, link: LinkId) {
        self.queue.clear();
        self.attach.close(link);
    }

    fn idle(&self, _link: LinkId) -> bool {
        self.queue.is_empty()
    }
}
