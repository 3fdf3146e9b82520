//! Exchanges with other ranks, compressed where there is time for it.

use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use polyrail_omp::area::{Count, Header, setting};
use polyrail_omp::coherence::{self, rounds::ROUND};

use super::pack::Packer;
use crate::{exchange, mapping, run, stats};

static PACKER: Mutex<Option<Packer>> = Mutex::new(None);

fn with_packer<T>(f: impl FnOnce(&mut Packer) -> T) -> T {
    let mut packer: MutexGuard<'_, _> = PACKER.lock().unwrap_or_else(|broken| broken.into_inner());
    f(packer.get_or_insert_default())
}

/// An exchange that is under way.
pub struct Submitted {
    submitted: exchange::Submitted,
    /// Of a round: bytes that this rank told, and these if they were packed.
    round: Option<(usize, Option<Vec<u8>>)>,
}

/// What all ranks said.
pub struct Said {
    said: exchange::Said,
    /// Of ranks that packed it.
    unpacked: Vec<Option<Vec<u8>>>,
}

/// Submits what `fill` writes, with the header that it gives.
pub fn submit(round: bool, fill: &mut dyn FnMut(&mut [u8]) -> Header) -> Submitted {
    let out = exchange::out();
    if !round {
        let header = fill(out);
        return Submitted { submitted: exchange::submit(header), round: None };
    }
    let room = ROUND.min(out.len());
    let plain = mapping::area().settings & setting::PLAIN != 0;
    let (header, bytes, unpacked) = with_packer(|packer| {
        if plain || !packer.is_willing() {
            let header = fill(&mut out[..room]);
            return (header, header.bytes as usize, None);
        }
        let mut whole = packer.buffer(room);
        let mut header = fill(&mut whole);
        let bytes = header.bytes as usize;
        match packer.pack(&whole[..bytes], out) {
            Some(packed) => {
                stats::add(Count::BytesSaved, (bytes - packed) as u64);
                (header.bytes, header.words[1]) = (packed as u64, bytes as u64);
                (header, bytes, Some(whole))
            }
            None => {
                out[..bytes].copy_from_slice(&whole[..bytes]);
                packer.keep(whole);
                (header, bytes, None)
            }
        }
    });
    Submitted { submitted: exchange::submit(header), round: Some((bytes, unpacked)) }
}

impl Submitted {
    /// Waits for all ranks.
    pub fn wait(self) -> Said {
        let begun = Instant::now();
        let said = self.submitted.wait();
        let Some((own_bytes, mut own)) = self.round else { return Said::plain(said) };
        let unpacked = with_packer(|packer| {
            packer.waited(own_bytes, begun.elapsed().as_secs_f64());
            let of = |other: usize| match said.header(other).words[1] as usize {
                0 => None,
                _ if other == run::rank() => own.take().map(|mut own| {
                    own.truncate(own_bytes);
                    own
                }),
                bytes => Some(packer.unpack(said.blob(other), bytes.min(ROUND))),
            };
            (0..run::size()).map(of).collect()
        });
        Said { said, unpacked }
    }
}

impl Said {
    /// Nobody packed anything.
    pub fn plain(said: exchange::Said) -> Self {
        Self { said, unpacked: Vec::new() }
    }
}

impl coherence::Said for Said {
    fn header(&self, rank: usize) -> &Header {
        self.said.header(rank)
    }

    fn blob(&self, rank: usize) -> &[u8] {
        match self.unpacked.get(rank) {
            Some(Some(blob)) => blob,
            _ => self.said.blob(rank),
        }
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        if !self.unpacked.is_empty() {
            let buffers = self.unpacked.drain(..).flatten();
            with_packer(|packer| buffers.for_each(|buffer| packer.keep(buffer)));
        }
    }
}
