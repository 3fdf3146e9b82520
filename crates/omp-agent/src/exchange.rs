//! Exchanges: all ranks' headers to all ranks, then the blobs that do not fit into headers.
//!
//! First the headers, which have one size, by a pattern that depends on the ranks alone; they bring small blobs along. Then everybody knows all sizes, and
//! chooses alike how the larger blobs travel ([`pattern`]). Blobs are sent from and received into the mapping itself.
pub mod pattern;
mod spread;
#[cfg(test)]
mod tests;
mod trees;

use polyrail_omp::area::{HEADER, Header, INLINE};
use std::mem::offset_of;

use crate::net::{Net, Tag};
use pattern::Pattern;
use spread::{Block, Spread};

/// Where an exchange's parts are in memory.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// What the program submits.
    pub header: *mut Header,
    /// This rank's blob.
    pub out: *mut u8,
    /// All ranks' headers, one behind the other.
    pub headers: *mut u8,
    /// All ranks' blobs.
    pub blobs: Vec<*mut u8>,
    /// Bytes that a blob has at most.
    pub limit: usize,
}

/// What all exchanges of a run have in common.
#[derive(Clone, Debug)]
pub struct Ranks {
    hosts: Vec<u32>,
    order: Vec<usize>,
    headers: Pattern,
}

impl Ranks {
    /// Ranks with equal numbers share a host.
    pub fn new(hosts: Vec<u32>) -> Self {
        let headers = pattern::choose(&vec![HEADER as u64; hosts.len()], &hosts);
        Self { order: pattern::ring(&hosts), headers, hosts }
    }
}

/// Why an exchange cannot go on.
#[derive(Debug, PartialEq, Eq)]
pub enum Error<E> {
    /// The network says so.
    Net(E),
    /// A header makes no sense, in words.
    Header(String),
}

impl<E> From<E> for Error<E> {
    fn from(error: E) -> Self {
        Self::Net(error)
    }
}

/// What is known of a finished exchange.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub struct Outcome {
    /// Its number.
    pub number: u64,
    /// All ranks' flags together.
    pub flags: u32,
}

enum Step<R> {
    Idle,
    Headers(Spread<R>),
    Blobs(Spread<R>, Outcome),
}

/// One of the two exchanges that may be under way.
pub struct Exchange<R> {
    buffers: Buffers,
    tags: (Tag, Tag),
    number: u64,
    step: Step<R>,
}

impl<R> Exchange<R> {
    /// The exchange with index `b`, 0 or 1.
    pub fn new(b: usize, buffers: Buffers) -> Self {
        let tags = if b == 0 { (Tag::Headers0, Tag::Blobs0) } else { (Tag::Headers1, Tag::Blobs1) };
        Self { buffers, tags, number: 0, step: Step::Idle }
    }

    /// Whether one is under way.
    pub fn is_busy(&self) -> bool {
        !matches!(self.step, Step::Idle)
    }

    /// Whether others' headers are still missing: some rank has not come here yet.
    pub fn waits_for_others(&self) -> bool {
        matches!(self.step, Step::Headers(_))
    }

    /// The messages under way, for who does not go on. What they use stays as long as this does.
    pub fn requests(&mut self) -> Vec<&mut R> {
        match &mut self.step {
            Step::Idle => Vec::new(),
            Step::Headers(spread) | Step::Blobs(spread, _) => spread.requests(),
        }
    }

    /// Begins the exchange that the program has submitted; gives its number and flags.
    ///
    /// # Safety
    /// The buffers are valid, and the program leaves them alone until [`poll`](Self::poll) has given an outcome.
    pub unsafe fn submit<N: Net<Request = R>>(
        &mut self,
        net: &mut N,
        ranks: &Ranks,
    ) -> Result<(u64, u32), Error<N::Error>> {
        let me = net.rank();
        // SAFETY: as promised to this function
        let (number, bytes, flags) = unsafe {
            let header = self.buffers.header;
            (*header).rank = me as u32;
            ((*header).number, (*header).bytes, (*header).flags)
        };
        if bytes > self.buffers.limit as u64 {
            return Err(Error::Header(format!("a blob of {bytes} bytes, {} at most", self.buffers.limit)));
        }
        self.number = number;
        let own = self.header_of(me);
        // SAFETY: both are headers; an inline blob fits
        unsafe {
            own.copy_from_nonoverlapping(self.buffers.header.cast(), HEADER);
            if bytes as usize <= INLINE {
                let inline = own.add(offset_of!(Header, inline));
                inline.copy_from_nonoverlapping(self.buffers.out, bytes as usize);
            }
        }
        let blocks: Vec<Block> =
            (0..net.size()).map(|rank| Block { at: self.header_of(rank), bytes: HEADER }).collect();
        // SAFETY: headers are written by this exchange alone
        let spread = unsafe { Spread::start(net, ranks.headers, &blocks, ranks, self.tags.0)? };
        self.step = Step::Headers(spread);
        Ok((number, flags))
    }

    fn header_of(&self, rank: usize) -> *mut u8 {
        self.buffers.headers.wrapping_add(rank * HEADER)
    }

    /// Makes progress. Once all is there, says so and is free for the next.
    pub fn poll<N: Net<Request = R>>(
        &mut self,
        net: &mut N,
        ranks: &Ranks,
    ) -> Result<Option<Outcome>, Error<N::Error>> {
        if let Step::Headers(spread) = &mut self.step {
            if !spread.poll(net)? {
                return Ok(None);
            }
            let (blocks, outcome) = self.read_headers(net.rank(), net.size()).map_err(Error::Header)?;
            let sizes: Vec<u64> = blocks.iter().map(|block| block.bytes as u64).collect();
            let pattern = pattern::choose(&sizes, &ranks.hosts);
            // SAFETY: the program leaves blobs alone, as promised to `submit`; sizes were checked
            let spread = unsafe { Spread::start(net, pattern, &blocks, ranks, self.tags.1)? };
            self.step = Step::Blobs(spread, outcome);
        }
        if let Step::Blobs(spread, outcome) = &mut self.step
            && spread.poll(net)?
        {
            let outcome = *outcome;
            self.step = Step::Idle;
            return Ok(Some(outcome));
        }
        Ok(None)
    }

    /// Checks all headers and takes the blobs out that they bring. The blocks that are left have a size.
    fn read_headers(&self, me: usize, size: usize) -> Result<(Vec<Block>, Outcome), String> {
        let mut outcome = Outcome { number: self.number, flags: 0 };
        let mut blocks = Vec::with_capacity(size);
        for rank in 0..size {
            // SAFETY: a header that is complete; any bytes are one
            let header = unsafe { self.header_of(rank).cast::<Header>().read_unaligned() };
            if header.number != self.number || header.rank as usize != rank {
                return Err(format!(
                    "rank {rank} is at exchange {} (as rank {}) where rank {me} is at {}",
                    header.number, header.rank, self.number
                ));
            }
            let bytes = header.bytes as usize;
            if header.bytes > self.buffers.limit as u64 {
                return Err(format!("rank {rank} announces a blob of {bytes} bytes"));
            }
            outcome.flags |= header.flags;
            let at = if rank == me { self.buffers.out } else { self.buffers.blobs[rank] };
            let follows = bytes > INLINE;
            if !follows && rank != me {
                // SAFETY: a blob's buffer is larger than what fits inline
                unsafe { at.copy_from_nonoverlapping(header.inline.as_ptr(), bytes) };
            }
            blocks.push(Block { at, bytes: if follows { bytes } else { 0 } });
        }
        Ok((blocks, outcome))
    }
}
