//! Every rank's block to every rank, by one of the patterns.
use super::Ranks;
use super::pattern::{Pattern, SEGMENT};
use super::trees::Trees;
use crate::net::{Net, Tag};

/// Segments that may be under way between two ranks, each way.
pub const WINDOW: usize = 8;

/// Where a rank's bytes are, or will be.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub at: *mut u8,
    pub bytes: usize,
}

/// Blocks on their way.
pub struct Spread<R> {
    tag: Tag,
    way: Way<R>,
}

enum Way<R> {
    Done,
    Direct(Vec<R>),
    Ring(Ring<R>),
    Doubling(Doubling<R>),
    Trees(Trees<R>),
}

struct Ring<R> {
    /// What goes to the successor, in order. All but the first `own` are what comes in, in the same order.
    outgoing: Vec<Block>,
    own: usize,
    incoming: Vec<Block>,
    successor: usize,
    predecessor: usize,
    receives: std::collections::VecDeque<R>,
    sends: std::collections::VecDeque<R>,
    received: usize,
    posted: usize,
    sent: usize,
}

struct Doubling<R> {
    /// Of ranks in order from this one on.
    blocks: Vec<Block>,
    distance: usize,
    out: Vec<u8>,
    inc: Vec<u8>,
    requests: Vec<R>,
}

impl<R> Spread<R> {
    /// Begins. `blocks` are all ranks', this one's is complete.
    ///
    /// # Safety
    /// Until [`poll`](Self::poll) says that all is done, this rank's block does not change, and nobody uses the others.
    pub unsafe fn start<N: Net<Request = R>>(
        net: &mut N,
        pattern: Pattern,
        blocks: &[Block],
        among: &Ranks,
        tag: Tag,
    ) -> Result<Self, N::Error> {
        let (me, ranks) = (net.rank(), blocks.len());
        let way = match pattern {
            Pattern::Nothing => Way::Done,
            Pattern::Direct => {
                let mut requests = Vec::with_capacity(2 * ranks);
                // the next rank first, so that not all begin with the same
                let others = || (1..ranks).map(|step| (me + step) % ranks);
                for peer in others().filter(|peer| blocks[*peer].bytes > 0) {
                    let block = blocks[peer];
                    // SAFETY: as promised to this function
                    requests.push(unsafe { net.receive(block.at, block.bytes, peer, tag)? });
                }
                for peer in others().filter(|_| blocks[me].bytes > 0) {
                    // SAFETY: as promised to this function
                    requests.push(unsafe { net.send(blocks[me].at, blocks[me].bytes, peer, tag)? });
                }
                Way::Direct(requests)
            }
            Pattern::Ring => Way::Ring(Ring::new(me, blocks, &among.order)),
            Pattern::Trees => Way::Trees(Trees::new(me, blocks, &among.hosts)),
            Pattern::Doubling => {
                let blocks = (0..ranks).map(|step| blocks[(me + step) % ranks]).collect();
                Way::Doubling(Doubling {
                    blocks,
                    distance: 0,
                    out: Vec::new(),
                    inc: Vec::new(),
                    requests: Vec::new(),
                })
            }
        };
        Ok(Self { tag, way })
    }

    /// The messages under way.
    pub fn requests(&mut self) -> Vec<&mut R> {
        match &mut self.way {
            Way::Done => Vec::new(),
            Way::Direct(requests) => requests.iter_mut().collect(),
            Way::Ring(ring) => ring.receives.iter_mut().chain(&mut ring.sends).collect(),
            Way::Doubling(doubling) => doubling.requests.iter_mut().collect(),
            Way::Trees(trees) => trees.requests().collect(),
        }
    }

    /// Makes progress; whether all blocks are everywhere that concerns this rank.
    pub fn poll<N: Net<Request = R>>(&mut self, net: &mut N) -> Result<bool, N::Error> {
        let done = match &mut self.way {
            Way::Done => true,
            Way::Direct(requests) => all_done(net, requests)?,
            Way::Ring(ring) => ring.poll(net, self.tag)?,
            Way::Doubling(doubling) => doubling.poll(net, self.tag)?,
            Way::Trees(trees) => trees.poll(net, self.tag)?,
        };
        if done {
            self.way = Way::Done;
        }
        Ok(done)
    }
}

fn all_done<N: Net>(net: &mut N, requests: &mut Vec<N::Request>) -> Result<bool, N::Error> {
    let mut at = 0;
    while at < requests.len() {
        if net.done(&mut requests[at])? {
            drop(requests.swap_remove(at));
        } else {
            at += 1;
        }
    }
    Ok(requests.is_empty())
}

/// A block, cut.
pub fn segments(block: Block) -> impl Iterator<Item = Block> {
    (0..block.bytes).step_by(SEGMENT).map(move |offset| Block {
        at: block.at.wrapping_add(offset),
        bytes: SEGMENT.min(block.bytes - offset),
    })
}

impl<R> Ring<R> {
    fn new(me: usize, blocks: &[Block], order: &[usize]) -> Self {
        let ranks = order.len();
        let place = order.iter().position(|rank| *rank == me).unwrap_or(0);
        let behind = |steps: usize| order[(place + ranks - steps) % ranks];
        let segments_of = |rank: usize| segments(blocks[rank]);
        // the successor has its own block already, this rank as well
        let outgoing: Vec<Block> = (0..ranks - 1).flat_map(|steps| segments_of(behind(steps))).collect();
        let incoming: Vec<Block> = (1..ranks).flat_map(|steps| segments_of(behind(steps))).collect();
        Self {
            own: segments_of(me).count(),
            outgoing,
            incoming,
            successor: order[(place + 1) % ranks],
            predecessor: behind(1),
            receives: std::collections::VecDeque::new(),
            sends: std::collections::VecDeque::new(),
            received: 0,
            posted: 0,
            sent: 0,
        }
    }

    fn poll<N: Net<Request = R>>(&mut self, net: &mut N, tag: Tag) -> Result<bool, N::Error> {
        loop {
            let before = (self.received, self.posted, self.sent, self.sends.len());
            while let Some(front) = self.receives.front_mut()
                && net.done(front)?
            {
                self.receives.pop_front();
                self.received += 1;
            }
            while self.posted < self.incoming.len() && self.receives.len() < WINDOW {
                let block = self.incoming[self.posted];
                // SAFETY: as promised to `start`
                self.receives
                    .push_back(unsafe { net.receive(block.at, block.bytes, self.predecessor, tag)? });
                self.posted += 1;
            }
            while let Some(front) = self.sends.front_mut()
                && net.done(front)?
            {
                self.sends.pop_front();
            }
            while self.sent < self.outgoing.len().min(self.own + self.received) && self.sends.len() < WINDOW {
                let block = self.outgoing[self.sent];
                // SAFETY: as promised to `start`; what came in does not change any more
                self.sends.push_back(unsafe { net.send(block.at, block.bytes, self.successor, tag)? });
                self.sent += 1;
            }
            if before == (self.received, self.posted, self.sent, self.sends.len()) {
                break;
            }
        }
        Ok(self.received == self.incoming.len() && self.sent == self.outgoing.len() && self.sends.is_empty())
    }
}

impl<R> Doubling<R> {
    fn poll<N: Net<Request = R>>(&mut self, net: &mut N, tag: Tag) -> Result<bool, N::Error> {
        let (me, ranks) = (net.rank(), self.blocks.len());
        loop {
            if !all_done(net, &mut self.requests)? {
                return Ok(false);
            }
            if self.distance > 0 {
                let mut rest = &self.inc[..];
                for block in self.coming(self.distance) {
                    let (bytes, behind) = rest.split_at(block.bytes);
                    // SAFETY: as promised to `start`; the block has that many bytes
                    unsafe { block.at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                    rest = behind;
                }
            }
            self.distance = if self.distance == 0 { 1 } else { 2 * self.distance };
            if self.distance >= ranks {
                return Ok(true);
            }
            self.out.clear();
            let known = self.distance.min(ranks - self.distance);
            for block in &self.blocks[..known] {
                // SAFETY: as promised to `start`; these blocks are complete
                self.out.extend_from_slice(unsafe { std::slice::from_raw_parts(block.at, block.bytes) });
            }
            self.inc.clear();
            self.inc.resize(self.coming(self.distance).map(|block| block.bytes).sum(), 0);
            // SAFETY: both buffers are left alone until the requests are done
            unsafe {
                if !self.inc.is_empty() {
                    let peer = (me + self.distance) % ranks;
                    self.requests.push(net.receive(self.inc.as_mut_ptr(), self.inc.len(), peer, tag)?);
                }
                if !self.out.is_empty() {
                    let peer = (me + ranks - self.distance) % ranks;
                    self.requests.push(net.send(self.out.as_ptr(), self.out.len(), peer, tag)?);
                }
            }
        }
    }

    /// The blocks that this round brings.
    fn coming(&self, distance: usize) -> impl Iterator<Item = Block> {
        let end = self.blocks.len().min(2 * distance);
        self.blocks[distance..end].iter().copied()
    }
}
