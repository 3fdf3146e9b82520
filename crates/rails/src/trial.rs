//! A rail for tests of lanes that are agreed on by words: connections of TCP, about which nobody shakes hands. One side listens somewhere
//! and says where.

use crate::config::Config;
use crate::error::Error;
use crate::list::RailId;
use crate::rail::connect::{Agreed, Connector, Discovered, Joined, Ways};
use crate::rail::direct::Direct;
use crate::rail::{
    Ack, Caps, Full, LaneRail, Lanes, LinkId, LinkStats, Memory, Rail, RawIov, Sink, Span, UnackedFrame,
};
use crate::tcp::TcpRail;
use polyrail_core::frame::{Acked, OpId};
use polyrail_core::session::Over;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::RawFd;
use std::time::Instant;

/// The rail.
pub struct Trial {
    tcp: TcpRail,
    /// Where it listens for answers.
    pub proposed: HashMap<u32, TcpListener>,
    next: u32,
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

impl Connector for Trial {
    fn discover(_settings: &Config) -> Result<Discovered, Error> {
        Ok(Discovered { devices: Vec::new(), direct: None })
    }

    fn ways(&self, _theirs: &[u8]) -> Ways {
        Ways::Places(1, 1000)
    }

    fn adopt(&mut self, _agreed: Agreed<'_>) -> Result<Joined, String> {
        Err("it shakes no hands".into())
    }

    fn propose(&mut self, _over: &Over, _theirs: &[u8]) -> Result<(u32, Vec<u8>), String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
        let word = listener.local_addr().map_err(text)?.to_string().into_bytes();
        self.next += 1;
        self.proposed.insert(self.next, listener);
        Ok((self.next, word))
    }

    fn answer(&mut self, word: &[u8]) -> Result<(Vec<u8>, LinkId), String> {
        let stream = TcpStream::connect(std::str::from_utf8(word).map_err(text)?).map_err(text)?;
        stream.set_nonblocking(true).map_err(text)?;
        Ok((b"here".into(), self.tcp.adopt(stream.into(), &[]).map_err(text)?))
    }

    fn conclude(&mut self, proposal: u32, word: &[u8]) -> Result<LinkId, String> {
        let listener = self.proposed.remove(&proposal).ok_or("nothing was proposed")?;
        if word != b"here" {
            return Err("it says something else".into());
        }
        let (stream, _) = listener.accept().map_err(text)?;
        stream.set_nonblocking(true).map_err(text)?;
        self.tcp.adopt(stream.into(), &[]).map_err(text)
    }

    fn withdraw(&mut self, proposal: u32) {
        self.proposed.remove(&proposal);
    }
}

impl Direct for Trial {}

impl LaneRail for Trial {
    fn sample(&self, link: LinkId) -> Option<LinkStats> {
        self.tcp.sample(link)
    }
    fn given(&self, link: LinkId) -> u64 {
        self.tcp.given(link)
    }
    fn queued(&self, link: LinkId) -> usize {
        self.tcp.queued(link)
    }
    fn copied(&self, link: LinkId) -> usize {
        self.tcp.copied(link)
    }
    fn take_ack(&mut self) -> Option<Ack> {
        self.tcp.take_ack()
    }
    fn acked(&mut self, link: LinkId, frames: &Acked) -> bool {
        self.tcp.acked(link, frames)
    }
    fn take_returned(&mut self) -> Option<OpId> {
        self.tcp.take_returned()
    }
    fn copy_lent<M: Memory + ?Sized>(&mut self, link: LinkId, send: Option<OpId>, mem: &M) {
        self.tcp.copy_lent(link, send, mem);
    }
    fn retire(&mut self, link: LinkId) -> Acked {
        self.tcp.retire(link)
    }
    fn reset(&mut self, link: LinkId) {
        self.tcp.reset(link);
    }
    fn kept(&self, link: LinkId) -> Vec<UnackedFrame> {
        self.tcp.kept(link)
    }
    fn reclaim(&mut self, link: LinkId, frames: &Acked) -> Option<VecDeque<UnackedFrame>> {
        self.tcp.reclaim(link, frames)
    }
}

impl Rail for Trial {
    const CAPS: Caps = Caps::of_network(RailId::Trial, Lanes::ByWord);

    fn open(config: &Config) -> io::Result<Self> {
        Ok(Self { tcp: TcpRail::open(config)?, proposed: HashMap::new(), next: 0 })
    }
    unsafe fn send(
        &mut self,
        link: LinkId,
        header: &[u8],
        iov: &[RawIov],
        span: Option<Span>,
    ) -> Result<(), Full> {
        // SAFETY: our caller's word.
        unsafe { self.tcp.send(link, header, iov, span) }
    }
    fn wants_more(&self, link: LinkId) -> bool {
        self.tcp.wants_more(link)
    }
    fn holds_back(&self) -> bool {
        self.tcp.holds_back()
    }
    fn flush<M: Memory + ?Sized>(&mut self, mem: &M) {
        self.tcp.flush(mem);
    }
    fn links(&self) -> usize {
        self.tcp.links()
    }
    fn progress<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        self.tcp.progress(sink)
    }
    fn wait_fd(&self) -> Option<RawFd> {
        self.tcp.wait_fd()
    }
    fn arm(&mut self) -> bool {
        self.tcp.arm()
    }
    fn due(&self) -> Option<Instant> {
        self.tcp.due()
    }
    fn close(&mut self, link: LinkId) {
        self.tcp.close(link);
    }
    fn idle(&self, link: LinkId) -> bool {
        self.tcp.idle(link)
    }
}
