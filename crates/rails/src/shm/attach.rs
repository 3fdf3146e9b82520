//! Direct transfers by cross-memory attach, a slice of each in turn.

use super::cma::{self, RemoteIov};
use crate::rail::direct::{DirectError, Transfer};
use crate::rail::{LinkId, Memory, RawIov, Span};
use crate::watched::Watched;
use polyrail_core::trace::Call;
use std::collections::VecDeque;

/// So much of one transfer is moved before the next has its turn: some hundred microseconds, beside which the call itself is
/// nothing.
const SLICE: usize = 1 << 20;

struct UnderWay {
    pid: i32,
    watched: Watched,
    transfer: Transfer,
    done: usize,
}

/// Transfers that are under way.
#[derive(Default)]
pub(crate) struct Attach {
    queue: VecDeque<UnderWay>,
    local: Vec<RawIov>,
    remote: Vec<RemoteIov>,
}

impl Attach {
    /// Takes in a transfer with this process.
    pub fn start(&mut self, pid: i32, watched: Watched, transfer: Transfer) {
        self.queue.push_back(UnderWay { pid, watched, transfer, done: 0 });
    }

    /// Forgets the transfers of a link.
    pub fn close(&mut self, link: LinkId) {
        self.queue.retain(|one| one.transfer.link != link);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// As [`crate::rail::direct::Direct::poll`].
    pub fn poll<M: Memory + ?Sized>(
        &mut self,
        mem: &M,
        budget: &mut usize,
    ) -> Option<(Transfer, Result<(), DirectError>)> {
        while *budget > 0 {
            let mut one = self.queue.pop_front()?;
            let len = (one.transfer.ours.len - one.done).min(SLICE);
            if let Err(why) = self.slice(&one, len, mem) {
                return Some((one.transfer, Err(why)));
            }
            *budget = budget.saturating_sub(len);
            one.done += len;
            if one.done == one.transfer.ours.len {
                return Some((one.transfer, Ok(())));
            }
            self.queue.push_back(one);
        }
        None
    }

    fn slice<M: Memory + ?Sized>(&mut self, one: &UnderWay, len: usize, mem: &M) -> Result<(), DirectError> {
        let ours = one.transfer.ours;
        let part = Span { place: ours.place, offset: ours.offset + one.done as u64, len };
        self.local.clear();
        if !mem.resolve(part, &mut self.local) {
            return Err(DirectError::Ended);
        }
        ranges(one.transfer.theirs.ranges(), one.done as u64, len as u64, &mut self.remote);
        let copy = if one.transfer.write { cma::write } else { cma::read };
        let moving = one.watched.begin();
        // SAFETY: the local memory was just named as that of a live operation; the kernel checks the remote addresses.
        let copied = unsafe { copy(one.pid, &self.local, &self.remote) };
        if let (Some(moving), Ok(())) = (moving, &copied) {
            moving.by(if one.transfer.write { Call::ProcessVmWriteV } else { Call::ProcessVmReadV }, len);
        }
        copied.map_err(|why| DirectError::Refused(why.to_string()))
    }
}

/// The part of these ranges that begins after `skip` bytes and has `len`.
fn ranges(all: &[(u64, u64)], mut skip: u64, mut len: u64, out: &mut Vec<RemoteIov>) {
    out.clear();
    for &(base, have) in all {
        let skipped = skip.min(have);
        skip -= skipped;
        let take = (have - skipped).min(len);
        len -= take;
        if take > 0 {
            out.push(RemoteIov { base: base.wrapping_add(skipped), len: take as usize });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use polyrail_core::frame::OpId;
    use polyrail_core::proto::{Job, PeerIdx, Place, Region};

    /// Operations by slot; one that has ended is empty.
    struct Memories(Vec<Vec<u8>>);

    impl Memory for Memories {
        fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
            let Place::Recv(op) = span.place else { return false };
            let bytes = &self.0[op.slot as usize];
            let whole = span.offset as usize + span.len <= bytes.len();
            if whole {
                let base = bytes.as_ptr().wrapping_add(span.offset as usize).cast_mut();
                out.push(RawIov { base, len: span.len });
            }
            whole
        }
    }

    fn op(slot: usize) -> OpId {
        OpId { slot: slot as u32, generation: 1 }
    }

    fn reads(slot: usize, from: &[&[u8]]) -> Transfer {
        let mut theirs = Region::default();
        assert!(from.iter().all(|part| theirs.push(part.as_ptr() as u64, part.len() as u64)));
        let len = from.iter().map(|part| part.len()).sum();
        let ours = Span { place: Place::Recv(op(slot)), offset: 0, len };
        let job = Job::Rget(op(slot));
        Transfer { link: LinkId(slot as u32), write: false, ours, theirs, peer: PeerIdx(0), job }
    }

    fn noise(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
    }

    fn me() -> i32 {
        std::process::id() as i32
    }

    /// Rounds with so much budget until all have ended: which, in which round, and how.
    fn run(attach: &mut Attach, mem: &Memories, budget: usize) -> Vec<(usize, u32, Result<(), DirectError>)> {
        let mut ended = Vec::new();
        for round in 1..1000 {
            let mut left = budget;
            while let Some((transfer, result)) = attach.poll(mem, &mut left) {
                ended.push((round, transfer.link.0, result));
            }
            if attach.len() == 0 {
                return ended;
            }
        }
        panic!("never ends: {ended:?}");
    }

    #[test]
    fn a_round_moves_no_more_than_its_budget_and_short_ones_pass_long_ones() {
        let (long, short) = (noise(10 * SLICE + 1), noise(1000));
        let mem = Memories(vec![vec![0; long.len()], vec![0; short.len()]]);
        let mut attach = Attach::default();
        attach.start(me(), Watched::default(), reads(0, &[&long[..SLICE / 2], &long[SLICE / 2..]]));
        attach.start(me(), Watched::default(), reads(1, &[&short]));
        // two slices a round: in the first one of each
        assert_eq!(run(&mut attach, &mem, 2 * SLICE), [(1, 1, Ok(())), (6, 0, Ok(()))]);
        assert!(mem.0[0] == long && mem.0[1] == short);
    }

    #[test]
    fn what_ends_or_fails_in_the_middle_is_told_once_and_the_others_go_on() {
        let from = noise(4 * SLICE);
        let mut mem = Memories(vec![vec![0; from.len()], vec![0; from.len()], vec![0; from.len()]]);
        let mut attach = Attach::default();
        (0..3).for_each(|slot| attach.start(me(), Watched::default(), reads(slot, &[&from])));
        let mut budget = 3 * SLICE;
        assert!(attach.poll(&mem, &mut budget).is_none() && budget == 0);
        mem.0[1].clear();
        attach.close(LinkId(2));
        assert_eq!(run(&mut attach, &mem, SLICE), [(2, 1, Err(DirectError::Ended)), (3, 0, Ok(()))]);
        assert!(mem.0[0] == from);

        attach.start(i32::MAX, Watched::default(), reads(0, &[&from]));
        let ended = run(&mut attach, &mem, SLICE);
        assert!(
            matches!(&ended[..], [(1, 0, Err(DirectError::Refused(why)))] if why.contains("gone")),
            "{ended:?}"
        );
    }
}
