//! Blocks between hosts with several ranks each: every block goes to one rank of each other host, which passes it on to the ranks beside it. So a host's link carries each block in once, and
//! of each of its own blocks as many as there are other hosts out.
use std::collections::VecDeque;

use super::spread::{Block, WINDOW, segments};
use crate::net::{Net, Tag};

/// A block's step from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    from: usize,
    to: usize,
    /// Whose it is.
    block: usize,
}

/// All steps of all blocks, those of one pair of ranks in the order in which they are taken: first what is the sender's own, for which nobody waits.
fn steps(hosts: &[u32]) -> Vec<Step> {
    let members = |host: u32| (0..hosts.len()).filter(move |rank| hosts[*rank] == host);
    let mut others: Vec<u32> = hosts.to_vec();
    others.sort_unstable();
    others.dedup();
    let mut steps = Vec::new();
    for (block, own) in hosts.iter().copied().enumerate() {
        let place = members(own).position(|rank| rank == block).unwrap_or(0);
        for host in others.iter().copied() {
            let entry = match host == own {
                true => block,
                false => {
                    let there = members(host).count();
                    let entry = members(host).nth(place % there).unwrap_or(block);
                    steps.push(Step { from: block, to: entry, block });
                    entry
                }
            };
            steps.extend(members(host).filter(|to| *to != entry).map(|to| Step { from: entry, to, block }));
        }
    }
    steps.sort_by_key(|step| (step.from, step.to, step.block != step.from, step.block));
    steps
}

/// A segment of a block.
#[derive(Clone, Copy)]
struct Segment {
    block: usize,
    number: usize,
    at: Block,
}

/// What goes to one rank or comes from it, in order.
struct Line<R> {
    peer: usize,
    segments: Vec<Segment>,
    begun: usize,
    under_way: VecDeque<R>,
}

impl<R> Line<R> {
    fn is_over(&self) -> bool {
        self.begun == self.segments.len() && self.under_way.is_empty()
    }
}

/// This rank's part.
pub struct Trees<R> {
    me: usize,
    outgoing: Vec<Line<R>>,
    incoming: Vec<Line<R>>,
    /// Segments of each block that have come.
    come: Vec<usize>,
}

impl<R> Trees<R> {
    /// Of these blocks; ranks with equal numbers in `hosts` share a host.
    pub fn new(me: usize, blocks: &[Block], hosts: &[u32]) -> Self {
        let steps = steps(hosts);
        let line = |peer: usize, all: &mut dyn Iterator<Item = &Step>| {
            let of = |block: usize| {
                segments(blocks[block]).enumerate().map(move |(number, at)| Segment { block, number, at })
            };
            let segments: Vec<Segment> = all.flat_map(|step| of(step.block)).collect();
            Line { peer, segments, begun: 0, under_way: VecDeque::new() }
        };
        let others = || (1..blocks.len()).map(|step| (me + step) % blocks.len());
        let is = |from: usize, to: usize| move |step: &&Step| (step.from, step.to) == (from, to);
        Self {
            me,
            outgoing: others().map(|peer| line(peer, &mut steps.iter().filter(is(me, peer)))).collect(),
            incoming: others().map(|peer| line(peer, &mut steps.iter().filter(is(peer, me)))).collect(),
            come: vec![0; blocks.len()],
        }
    }

    /// The messages under way.
    pub fn requests(&mut self) -> impl Iterator<Item = &mut R> {
        self.outgoing.iter_mut().chain(&mut self.incoming).flat_map(|line| &mut line.under_way)
    }

    /// Makes progress; whether all is done.
    pub fn poll<N: Net<Request = R>>(&mut self, net: &mut N, tag: Tag) -> Result<bool, N::Error> {
        let Self { me, outgoing, incoming, come } = self;
        loop {
            let mut busy = false;
            for line in incoming.iter_mut() {
                while let Some(front) = line.under_way.front_mut()
                    && net.done(front)?
                {
                    // they come in the order in which they were begun
                    come[line.segments[line.begun - line.under_way.len()].block] += 1;
                    line.under_way.pop_front();
                    busy = true;
                }
                while line.begun < line.segments.len() && line.under_way.len() < WINDOW {
                    let Block { at, bytes } = line.segments[line.begun].at;
                    // SAFETY: as promised to `Spread::start`
                    line.under_way.push_back(unsafe { net.receive(at, bytes, line.peer, tag)? });
                    line.begun += 1;
                    busy = true;
                }
            }
            for line in outgoing.iter_mut() {
                while let Some(front) = line.under_way.front_mut()
                    && net.done(front)?
                {
                    line.under_way.pop_front();
                    busy = true;
                }
                while let Some(segment) = line.segments.get(line.begun)
                    && line.under_way.len() < WINDOW
                    && (segment.block == *me || segment.number < come[segment.block])
                {
                    let Block { at, bytes } = segment.at;
                    // SAFETY: as promised to `Spread::start`; what came in does not change any more
                    line.under_way.push_back(unsafe { net.send(at, bytes, line.peer, tag)? });
                    line.begun += 1;
                    busy = true;
                }
            }
            if !busy {
                break;
            }
        }
        Ok(outgoing.iter().chain(incoming.iter()).all(Line::is_over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_enters_a_host_once_and_every_rank_has_all() {
        for hosts in [&[0, 0, 1, 1][..], &[0, 1, 0, 1, 1], &[0, 1, 2], &[3, 3, 3], &[0, 1, 1, 2, 2, 2]] {
            let steps = steps(hosts);
            for block in 0..hosts.len() {
                let of: Vec<&Step> = steps.iter().filter(|step| step.block == block).collect();
                assert_eq!(of.len(), hosts.len() - 1, "{hosts:?}");
                let mut got: Vec<usize> = of.iter().map(|step| step.to).collect();
                got.push(block);
                got.sort_unstable();
                assert_eq!(got, (0..hosts.len()).collect::<Vec<_>>(), "{hosts:?}: {of:?}");
                for host in hosts {
                    let entries =
                        of.iter().filter(|step| hosts[step.to] == *host && hosts[step.from] != *host);
                    assert_eq!(entries.count(), usize::from(*host != hosts[block]), "{hosts:?}: {of:?}");
                }
            }
        }
    }

    #[test]
    fn ranks_of_a_host_share_the_work() {
        let steps = steps(&[0, 0, 1, 1]);
        let between = |from, to| steps.iter().filter(|step| (step.from, step.to) == (from, to)).count();
        assert_eq!([between(0, 2), between(1, 3), between(2, 0), between(3, 1)], [1; 4]);
        assert_eq!([between(0, 3), between(1, 2)], [0; 2]);
    }
}
