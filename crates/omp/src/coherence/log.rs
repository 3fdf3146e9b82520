//! What is told between exchanges: entries that all ranks apply in one order, which rank 0's agent keeps (`services`).

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::collections::{BTreeSet, VecDeque};

use crate::area::{Count, Kind};
use crate::blob::{Reader, Record};
use crate::layout::PAGE;

use super::apply::contradiction;
use super::copies::When;
use super::host::{Host, Mutex, Trouble};
use super::rank::Rank;
use super::tracked::Encoded;

/// What a rank knows of the log.
#[derive(Debug, Default)]
pub struct Log {
    /// Up to where this rank has applied it.
    pub(super) applied: u64,
    /// Positions and contents of this rank's own entries beyond: who published before them, and is applied behind them, knew as little of them as this rank of it.
    own: VecDeque<Own>,
    /// Up to where rank 0 has told what it changed for threads of this rank, when one of them last had it.
    pub(super) told: u64,
    /// Room to encode an entry.
    part: Vec<u8>,
    /// On rank 0: what operations for others have worked on since it last published, whose outcomes others have copies of: all of it is told, also what is as it was.
    pub(super) served: BTreeSet<(usize, usize)>,
}

/// Entries of its own beyond what it has applied that a rank may well have.
const FEW: usize = 8;

impl Log {
    /// Whether this rank has told much since it last took over what others told.
    pub(super) fn is_behind(&self) -> bool {
        self.own.len() > FEW
    }

    /// Up to where this rank knows it: it has applied, or said, what is there.
    pub(super) fn known(&self) -> u64 {
        self.own.back().map_or(self.applied, |own| own.position.max(self.applied))
    }
}

/// An entry of this rank's that others may not have known when they published.
#[derive(Debug)]
struct Own {
    position: u64,
    /// From the first page to the last.
    span: Range<usize>,
    bytes: Vec<u8>,
}

impl Own {
    fn new(position: u64, bytes: Vec<u8>) -> Self {
        Self { position, span: span(&pages(&bytes)), bytes }
    }
}

/// From the first page to the last, which are in order.
fn span(pages: &[Range<usize>]) -> Range<usize> {
    pages.first().map_or(0, |first| first.start)..pages.last().map_or(0, |last| last.end)
}

/// Rank and bytes of the first of some entries, and the rest.
fn first(entries: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let (head, rest) = entries.split_first_chunk::<8>()?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    let (entry, rest) = rest.split_at_checked(word(0))?;
    Some((word(4), entry, rest))
}

/// Where an entry changes memory.
fn pages(entry: &[u8]) -> Vec<Range<usize>> {
    let pages = |record: Record<'_>| {
        let from = record.address as usize;
        from..from + record.pages as usize * PAGE
    };
    // what is malformed is found when it is applied
    Reader::new(entry).map_while(Result::ok).map(pages).collect()
}

impl<H: Host> Rank<H> {
    /// Applies what others published.
    pub(super) fn catch_up(&self, log: &mut Log) {
        loop {
            let answer = self.host.ask(Kind::Log, [log.applied, 0, 0, 0, 0, 0], &[]);
            self.apply(log, answer.result, &answer.data);
            if answer.result[2] == 0 {
                break;
            }
        }
    }

    /// Entries of others, beginning behind what is applied; this rank's own stand between them.
    pub(super) fn apply(&self, log: &mut Log, result: [u64; 4], entries: &[u8]) {
        let kept;
        let mut entries = entries;
        if self.is_to_tell_first(entries) {
            kept = entries.to_vec();
            self.publish(log);
            entries = &kept;
        }
        let mut before = 0;
        let mut position = log.applied;
        while !entries.is_empty() {
            let Some((from, entry, rest)) = first(entries) else {
                self.host.fail(&Trouble::Broken(format!("the log is broken: {} bytes", entries.len())))
            };
            position += 1;
            while log.own.get(before).is_some_and(|own| own.position == position) {
                (before, position) = (before + 1, position + 1);
            }
            let own = self.host.rank();
            let changed = pages(entry);
            let theirs = span(&changed);
            let meets = |mine: &&Own| mine.span.start < theirs.end && theirs.start < mine.span.end;
            for mine in log.own.iter().skip(before).filter(meets) {
                if let Some(conflict) = contradiction((own, &mine.bytes), (from, entry)) {
                    self.host.fail(&Trouble::Conflict(conflict, "under different locks, or at flushes"));
                }
            }
            let when = When::Told { position, by_0: from == 0 };
            let applied = self.with_copies_of(&changed, entry, when, |kept| {
                self.host.tracked(|tracked| tracked.apply(own, from, entry, kept)).unwrap_or(Ok(()))
            });
            applied.unwrap_or_else(|refused| self.refused(refused, "under a lock"));
            self.logged.store(true, Ordering::Relaxed);
            entries = rest;
        }
        log.applied = result[1];
        log.own.retain(|own| own.position > result[1]);
    }

    /// Whether this rank has stored over copies where others' entries change memory.
    fn is_to_tell_first(&self, mut entries: &[u8]) -> bool {
        while let Some((_, entry, rest)) = first(entries) {
            if self.is_to_tell_of(&pages(entry)) {
                return true;
            }
            entries = rest;
        }
        false
    }

    /// Tells others what this rank changed since it last did; then rank 0 what it has stored over copies.
    pub(super) fn publish(&self, log: &mut Log) {
        // an entry is delivered behind eight bytes of its own
        let mut part = core::mem::take(&mut log.part);
        part.resize(self.host.slot() - 8, 0);
        let mut held = self.hold();
        self.host.tracked(|tracked| tracked.collect_all(|range| held.pages(range)));
        let is_stored = self.host.tracked(|tracked| held.look(tracked)).unwrap_or(false);
        if is_stored {
            // whatever was stored before is to be told before
            self.host.tracked(super::Tracked::collect);
        }
        let served = core::mem::take(&mut log.served);
        let mut said: Vec<Range<usize>> = served.into_iter().map(|(from, to)| from..to).collect();
        if !said.is_empty() {
            self.host.tracked(|tracked| {
                // of a thread's stack that nobody uses any more
                said.retain(|said| tracked.is_shared(said.start));
                tracked.say(&said);
            });
        }
        let mut parts = Vec::new();
        loop {
            let encoded = self
                .host
                .tracked(|tracked| {
                    tracked.publish(&mut part, &mut |at, page, twin| held.mask(at, page, twin), &said)
                })
                .unwrap_or(Encoded { bytes: 0, frontier: u64::MAX });
            let last = encoded.frontier == u64::MAX;
            if encoded.bytes > 0 || last && !parts.is_empty() {
                if last && self.flushes() {
                    held.announce();
                }
                self.logged.store(true, Ordering::Relaxed);
                let bytes = &part[..encoded.bytes];
                self.told.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                self.host.add(Count::BytesOut, bytes.len() as u64);
                let end = self.host.ask(Kind::Publish, [u64::from(last), 0, 0, 0, 0, 0], &[bytes]).result[0];
                parts.extend(Some(bytes.to_vec()).filter(|bytes| !bytes.is_empty()));
                if last && end == log.applied + parts.len() as u64 {
                    // nobody else has published since this rank last looked
                    log.applied = end;
                } else if last {
                    let first = end + 1 - parts.len() as u64;
                    log.own.extend((first..).zip(parts.drain(..)).map(|(at, bytes)| Own::new(at, bytes)));
                }
            }
            if last {
                break;
            }
        }
        log.part = part;
        self.host.tracked(|tracked| held.look_again(tracked));
        held.looked().tell(log.known());
    }

    /// Tells others what this rank changed; up to where the log then has all that it knows.
    pub fn publish_all(&self) -> u64 {
        if !self.is_inside() {
            return 0;
        }
        let mut log = self.log.lock();
        self.publish(&mut log);
        log.known()
    }

    /// Takes over what others told, up to there at least.
    pub fn see(&self, position: u64) {
        if position > 0 {
            let mut log = self.log.lock();
            if log.applied < position {
                self.catch_up(&mut log);
            }
        }
    }
}
