//! What serial code changed on every rank, in a few bytes: ranks whose digests are equal need not tell each other what is in the pages.

use core::ops::{ControlFlow, Range};
use std::borrow::Cow;

use twox_hash::XxHash3_128;

use crate::diff::{Mask, Page, diff};
use crate::layout::PAGE;
use crate::pages::Pages;

use super::Memory;
use super::tracked::Tracked;

/// Bytes of a page in a list: its address, its hash.
pub const LISTED: usize = 24;

/// What becomes of a pending page.
enum Verdict {
    /// The twin takes it.
    Agreed,
    /// It becomes as the twin is.
    Undone,
    Pending,
}

impl<M: Memory> Tracked<M> {
    /// What is shared of a page, zeros elsewhere.
    fn shared(&self, at: usize) -> Cow<'_, Page> {
        let contents = self.memory.page(at).0;
        self.part(at).map_or(Cow::Borrowed(contents), |part| {
            let mut masked = [0; PAGE];
            part.copy(contents, &mut masked);
            Cow::Owned(masked)
        })
    }
    fn hash(&self, at: usize) -> u128 {
        XxHash3_128::oneshot(&self.shared(at)[..])
    }

    /// Of the addresses and the contents of all pages that differ from their twins. Afterwards these are what is pending.
    pub fn digest(&mut self) -> u128 {
        let (mut hasher, mut changed, hidden) = (XxHash3_128::new(), Pages::default(), self.hidden());
        let _ = self.pending.each(0..usize::MAX, |at| {
            if hidden.contains(&at) {
                changed.push(at, at + PAGE);
                return ControlFlow::<()>::Continue(());
            }
            let (contents, twin) = self.memory.page(at);
            let mut mask = diff(contents, twin);
            if let Some(part) = self.part(at) {
                mask = mask.and(&part);
            }
            if !mask.is_empty() {
                self.memory.changed(at);
                changed.push(at, at + PAGE);
                hasher.write(&at.to_ne_bytes());
                hasher.write(&self.shared(at)[..]);
            }
            ControlFlow::Continue(())
        });
        self.pending = changed;
        hasher.finish_128()
    }

    /// The twins take this rank's contents of all that is pending.
    pub fn agree(&mut self) {
        self.settle(0..usize::MAX, |_, _| Verdict::Agreed);
    }

    /// On rank 0: what is pending in `range` and not in `wanted`, which is in order, is agreed upon.
    pub fn agree_except(&mut self, range: Range<usize>, wanted: &[usize]) {
        self.settle(range, |_, at| match wanted.binary_search(&at) {
            Ok(_) => Verdict::Pending,
            Err(_) => Verdict::Agreed,
        });
    }

    /// Decides about what is pending in `range`, in order of addresses. The main thread alone runs, and uses no byte that is changed.
    fn settle(&mut self, range: Range<usize>, mut verdict: impl FnMut(&Self, usize) -> Verdict) {
        let (mut left, hidden) = (Pages::default(), self.hidden());
        let pending = core::mem::take(&mut self.pending);
        let _ = pending.each(0..usize::MAX, |at| {
            let verdict = match range.contains(&at) && !hidden.contains(&at) {
                true => verdict(self, at),
                false => Verdict::Pending,
            };
            let part = self.part(at).unwrap_or(Mask::ALL);
            let (contents, twin) = self.memory.page_mut(at);
            match verdict {
                Verdict::Agreed => part.copy(contents, twin),
                Verdict::Undone => part.copy(twin, contents),
                Verdict::Pending => left.push(at, at + PAGE),
            }
            ControlFlow::<()>::Continue(())
        });
        self.pending = left;
    }

    /// Lists pending pages from address `from` on, as far as there is room in `out`: bytes written, and up to which address all are listed.
    pub fn hashes(&self, from: usize, out: &mut [u8]) -> (usize, usize) {
        let (mut bytes, hidden) = (0, self.hidden());
        let end = self.pending.each(from..usize::MAX, |at| {
            if hidden.contains(&at) {
                return ControlFlow::Continue(());
            }
            let Some(room) = out.get_mut(bytes..bytes + LISTED) else { return ControlFlow::Break(at) };
            room[..8].copy_from_slice(&at.to_ne_bytes());
            room[8..].copy_from_slice(&self.hash(at).to_ne_bytes());
            bytes += LISTED;
            ControlFlow::Continue(())
        });
        (bytes, end.break_value().unwrap_or(usize::MAX))
    }

    /// Compares what is pending in `range` with rank 0's list of the same. Where both are equal the twins take it, all else becomes as the twins are.
    /// Gives the pages whose contents rank 0 has to tell. Nothing that is shared is in use.
    pub fn compare(&mut self, range: Range<usize>, list: &[u8]) -> Vec<usize> {
        let mut theirs = list.as_chunks::<LISTED>().0.iter().map(|listed| {
            let (at, hash) = listed.split_at(8);
            let at = usize::from_ne_bytes(at.try_into().unwrap_or_default());
            (at, u128::from_ne_bytes(hash.try_into().unwrap_or_default()))
        });
        let mut theirs = theirs.by_ref().peekable();
        let mut wanted = Vec::new();
        self.settle(range, |state, at| {
            while let Some((before, _)) = theirs.next_if(|(theirs, _)| *theirs < at) {
                wanted.push(before);
            }
            match theirs.next_if(|(theirs, _)| *theirs == at) {
                Some((_, hash)) if hash == state.hash(at) => Verdict::Agreed,
                other => {
                    wanted.extend(other.map(|(at, _)| at));
                    Verdict::Undone
                }
            }
        });
        wanted.extend(theirs.map(|(at, _)| at));
        wanted
    }
}
