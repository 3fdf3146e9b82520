//! Direct transfers by cross-memory attach, a slice of each in turn. Long reads of what a peer announced it may help with
//! ([`desk`](super::desk)).

use super::cma::{self, RemoteIov};
use super::desk::{DESKS, Next, Reader, Readers};
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
    /// It lies on this desk of its link's; it was thought over whether it should.
    desk: Option<usize>,
    thought: bool,
}

impl UnderWay {
    /// What is to be done next, if it lies on a desk.
    fn next(&self, desks: &mut impl Desks, all: bool) -> Option<Next> {
        Some(desks.of(self.transfer.link)?.next(self.desk?, all))
    }

    fn desk<'a>(&self, desks: &'a mut impl Desks) -> Option<&'a mut Reader> {
        Some(desks.of(self.transfer.link)?.at(self.desk?))
    }
}

/// Where the peer of a link may help to read.
pub(crate) trait Desks {
    /// The link's desks.
    fn of(&mut self, link: LinkId) -> Option<&mut Readers>;
    /// Tells the peer that there is something to take.
    fn tell(&mut self, link: LinkId);
    /// Has the peer write to this process's memory no more.
    fn withdraw(&mut self, link: LinkId, desk: usize);
}

/// There are none.
pub(crate) struct NoDesks;

impl Desks for NoDesks {
    fn of(&mut self, _link: LinkId) -> Option<&mut Readers> {
        None
    }

    fn tell(&mut self, _link: LinkId) {}

    fn withdraw(&mut self, _link: LinkId, _desk: usize) {}
}

/// Transfers that are under way.
#[derive(Default)]
pub(crate) struct Attach {
    queue: VecDeque<UnderWay>,
    /// Those that lie on desks.
    laid: VecDeque<UnderWay>,
    /// This turn is of one of these, if one can go on.
    odd: bool,
    local: Vec<RawIov>,
    remote: Vec<RemoteIov>,
}

impl Attach {
    /// Takes in a transfer with this process.
    pub fn start(&mut self, pid: i32, watched: Watched, transfer: Transfer) {
        self.queue.push_back(UnderWay { pid, watched, transfer, done: 0, desk: None, thought: false });
    }

    /// Forgets the transfers of a link.
    pub fn close(&mut self, link: LinkId) {
        self.queue.retain(|one| one.transfer.link != link);
        self.laid.retain(|one| one.transfer.link != link);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.queue.len() + self.laid.len()
    }

    /// As [`crate::rail::direct::Direct::poll`].
    pub fn poll<M: Memory + ?Sized>(
        &mut self,
        mem: &M,
        desks: &mut impl Desks,
        budget: &mut usize,
    ) -> Option<(Transfer, Result<(), DirectError>)> {
        while *budget > 0 {
            self.lay(mem, desks);
            let mut one = self.pick(desks)?;
            match self.turn(&mut one, mem, desks, budget) {
                Some(result) => return Some((one.transfer, result)),
                None if one.desk.is_some() => self.laid.push_back(one),
                None => self.queue.push_back(one),
            }
        }
        None
    }

    /// The transfer whose turn it is; none if all that is left is what peers are at. Every other turn is of one that lies on a desk, for
    /// which others may wait.
    fn pick(&mut self, desks: &mut impl Desks) -> Option<UnderWay> {
        self.odd = !self.odd;
        let goes_on = |one: &UnderWay| !one.desk(desks).is_some_and(|desk| desk.waits());
        let laid = if self.odd || self.queue.is_empty() { self.laid.iter().position(goes_on) } else { None };
        match laid {
            Some(at) => self.laid.remove(at),
            None => self.queue.pop_front(),
        }
    }

    /// Moves a transfer on by a slice: how it ended, if it did.
    fn turn<M: Memory + ?Sized>(
        &mut self,
        one: &mut UnderWay,
        mem: &M,
        desks: &mut impl Desks,
        budget: &mut usize,
    ) -> Option<Result<(), DirectError>> {
        // the peer has others to help with
        let all = self.laid.iter().any(|one| one.desk(desks).is_some_and(|desk| desk.is_whole()));
        let end = one.done + SLICE;
        while one.done < end {
            let (from, len) = match one.next(desks, all) {
                Some(Next::Read(part)) => (part.start, part.len()),
                Some(Next::Wait) => return None,
                Some(Next::Over) => return Some(Ok(())),
                Some(Next::Gone) => return Some(Err(DirectError::Ended)),
                None if one.done == one.transfer.ours.len => return Some(Ok(())),
                None => (one.done, (one.transfer.ours.len - one.done).min(end - one.done)),
            };
            if let Err(why) = self.slice(one, from, len, mem) {
                if let Some(desk) = one.desk {
                    desks.withdraw(one.transfer.link, desk);
                }
                return Some(Err(why));
            }
            one.done += len;
            *budget = budget.saturating_sub(len);
        }
        (one.desk.is_none() && one.done == one.transfer.ours.len).then_some(Ok(()))
    }

    /// Lays on desks what can be laid of the next few.
    fn lay<M: Memory + ?Sized>(&mut self, mem: &M, desks: &mut impl Desks) {
        let mut at = 0;
        while at < self.queue.len().min(DESKS) {
            let one = &mut self.queue[at];
            at += 1;
            let Transfer { link, write: false, ours, send: Some(send), .. } = one.transfer else { continue };
            let Some(readers) = desks.of(link).filter(|readers| readers.take()) else { continue };
            if std::mem::replace(&mut one.thought, true) || one.done > 0 {
                continue;
            }
            self.local.clear();
            if mem.resolve(ours, &mut self.local)
                && let [whole] = self.local[..]
                && let Some(desk) = readers.lay(send, whole.base, ours.len)
            {
                one.desk = Some(desk);
                at -= 1;
                self.laid.extend(self.queue.remove(at));
                desks.tell(link);
            }
        }
    }

    fn slice<M: Memory + ?Sized>(
        &mut self,
        one: &UnderWay,
        from: usize,
        len: usize,
        mem: &M,
    ) -> Result<(), DirectError> {
        let ours = one.transfer.ours;
        let part = Span { place: ours.place, offset: ours.offset + from as u64, len };
        self.local.clear();
        if !mem.resolve(part, &mut self.local) {
            return Err(DirectError::Ended);
        }
        ranges(one.transfer.theirs.ranges(), from as u64, len as u64, &mut self.remote);
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
        Transfer { link: LinkId(slot as u32), write: false, ours, theirs, peer: PeerIdx(0), job, send: None }
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
            while let Some((transfer, result)) = attach.poll(mem, &mut NoDesks, &mut left) {
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
        assert!(attach.poll(&mem, &mut NoDesks, &mut budget).is_none() && budget == 0);
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
