//! What serial code changed on every rank, in a few bytes: ranks whose digests are equal need not tell each other what is in the pages.

use core::ops::{ControlFlow, Range};
use std::borrow::Cow;

use polyrail_omp::diff::{Mask, Page, diff};
use polyrail_omp::layout::PAGE;
use twox_hash::XxHash3_128;

use super::watch::Pages;
use super::{State, page, page_mut, with};

/// Bytes of a page in a list: its address, its hash.
const LISTED: usize = 24;

/// Of the addresses and the contents of all pages that differ from their twins. Afterwards these are what is pending.
pub fn digest() -> u128 {
    with(State::digest).unwrap_or(0)
}

/// The twins take this rank's contents of all that is pending.
pub fn agree() {
    with(|state| state.settle(0..usize::MAX, |_, _| Verdict::Agreed));
}

/// Lists pending pages from address `from` on, as far as there is room in `out`: bytes written, and up to which address all are listed.
pub fn list(from: usize, out: &mut [u8]) -> (usize, usize) {
    with(|state| state.list(from, out)).unwrap_or((0, usize::MAX))
}

/// Compares what is pending in `range` with rank 0's list of the same. Where both are equal the twins take it, all else becomes as the twins are.
/// Gives the pages whose contents rank 0 has to tell.
///
/// # Safety
/// Nothing that is shared is in use.
pub unsafe fn compare(range: Range<usize>, list: &[u8]) -> Vec<usize> {
    with(|state| state.compare(range, list)).unwrap_or_default()
}

/// On rank 0: what is pending in `range` and not in `wanted`, which is in order, is agreed upon.
pub fn agree_except(range: Range<usize>, wanted: &[usize]) {
    with(|state| {
        state.settle(range, |_, at| match wanted.binary_search(&at) {
            Ok(_) => Verdict::Pending,
            Err(_) => Verdict::Agreed,
        });
    });
}

/// What becomes of a pending page.
enum Verdict {
    /// The twin takes it.
    Agreed,
    /// It becomes as the twin is.
    Undone,
    Pending,
}

impl State {
    /// Pages of the stack that are not shared now, which stay pending.
    fn hidden(&self) -> Range<usize> {
        self.stack.start..self.floor.clamp(self.stack.start, self.stack.end) & !(PAGE - 1)
    }
    /// What is shared of a page, zeros elsewhere.
    fn shared(&self, at: usize) -> Cow<'_, Page> {
        // SAFETY: what is pending is of an area, which is mapped
        let contents = unsafe { page(at) };
        self.part(at).map_or(Cow::Borrowed(contents), |part| {
            let mut masked = [0; PAGE];
            part.copy(contents, &mut masked);
            Cow::Owned(masked)
        })
    }
    fn hash(&self, at: usize) -> u128 {
        XxHash3_128::oneshot(&self.shared(at)[..])
    }

    fn digest(&mut self) -> u128 {
        let (mut hasher, mut changed, hidden) = (XxHash3_128::new(), Pages::default(), self.hidden());
        let _ = self.pending.each(0, |at| {
            if hidden.contains(&at) {
                changed.push(at, at + PAGE);
                return ControlFlow::<()>::Continue(());
            }
            // SAFETY: what is pending is of an area, which is mapped, and so are twins
            let mut mask = unsafe { diff(page(at), page(self.twin_at(at))) };
            if let Some(part) = self.part(at) {
                mask = mask.and(&part);
            }
            if !mask.is_empty() {
                self.hot.changed(at);
                changed.push(at, at + PAGE);
                hasher.write(&at.to_ne_bytes());
                hasher.write(&self.shared(at)[..]);
            }
            ControlFlow::Continue(())
        });
        self.pending = changed;
        hasher.finish_128()
    }

    /// Decides about what is pending in `range`, in order of addresses.
    fn settle(&mut self, range: Range<usize>, mut verdict: impl FnMut(&Self, usize) -> Verdict) {
        let (mut left, hidden) = (Pages::default(), self.hidden());
        let _ = self.pending.each(0, |at| {
            let verdict = match range.contains(&at) && !hidden.contains(&at) {
                true => verdict(self, at),
                false => Verdict::Pending,
            };
            let part = self.part(at).unwrap_or(Mask::ALL);
            // SAFETY: as in `digest`; the main thread alone runs, and uses no byte that is changed
            unsafe {
                let twin = self.twin_at(at);
                match verdict {
                    Verdict::Agreed if part == Mask::ALL => *page_mut(twin) = *page(at),
                    Verdict::Agreed => part.copy(page(at), page_mut(twin)),
                    Verdict::Undone => part.copy(page(twin), page_mut(at)),
                    Verdict::Pending => left.push(at, at + PAGE),
                }
            }
            ControlFlow::<()>::Continue(())
        });
        self.pending = left;
    }

    fn list(&self, from: usize, out: &mut [u8]) -> (usize, usize) {
        let (mut bytes, hidden) = (0, self.hidden());
        let end = self.pending.each(from, |at| {
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

    fn compare(&mut self, range: Range<usize>, list: &[u8]) -> Vec<usize> {
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
