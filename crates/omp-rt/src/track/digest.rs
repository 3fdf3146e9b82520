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
pub fn hashes(from: usize, out: &mut [u8]) -> (usize, usize) {
    with(|state| state.hashes(from, out)).unwrap_or((0, usize::MAX))
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
        let _ = self.pending.each(0..usize::MAX, |at| {
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
        let _ = self.pending.each(0..usize::MAX, |at| {
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

    fn hashes(&self, from: usize, out: &mut [u8]) -> (usize, usize) {
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

#[cfg(test)]
mod tests {
    use super::super::areas::{Area, Areas, Kind};
    use super::super::hot::Hot;
    use super::*;
    use crate::raw;

    const PAGES: usize = 20;

    /// A rank's memory at `base`, its twins behind it; bytes below `from` and the last page's second half are not shared.
    fn rank(base: usize, changed: &[(usize, u8)]) -> State {
        raw::reserve(base, 2 * PAGES * PAGE);
        let end = base + PAGES * PAGE - PAGE / 2;
        let mut areas = Areas::new(vec![(base + 100, end)], None);
        areas.list[0].offset = PAGES * PAGE;
        let area = Area { ..areas.list[0] };
        assert!(area.kind == Kind::Data && area.from == base);
        for &(at, value) in changed {
            // SAFETY: the test's own mapping
            unsafe { *((base + at) as *mut u8) = value };
        }
        let mut pending = Pages::default();
        pending.push(base, base + PAGES * PAGE);
        State { areas, watch: None, hot: Hot::default(), pending, stack: 0..0, floor: usize::MAX }
    }

    #[test]
    fn equal_changes_have_equal_digests() {
        // of one rank after the other at the same addresses, as other processes have them
        let base = 0x6200_0000_0000;
        let digest = |changed: &[(usize, u8)]| {
            let mut state = rank(base, changed);
            let digest = state.digest();
            let pending = state.pending.count();
            // SAFETY: the test's own mapping
            unsafe { raw::call(libc::SYS_munmap, [base, 2 * PAGES * PAGE, 0, 0, 0, 0]) };
            (digest, pending)
        };
        let one = digest(&[(200, 1), (5 * PAGE, 2)]);
        assert_eq!(one.1, 2);
        assert_eq!(digest(&[(200, 1), (5 * PAGE, 2)]), one);
        // what is not shared does not count, nor what is as it was
        assert_eq!(digest(&[(200, 1), (5 * PAGE, 2), (99, 7), (PAGES * PAGE - 1, 7), (9000, 0)]), one);
        assert_ne!(digest(&[(200, 1), (5 * PAGE, 3)]).0, one.0);
        assert_ne!(digest(&[(200, 1), (6 * PAGE, 2)]).0, one.0);
        assert_ne!(digest(&[(200, 1)]).0, one.0);
    }

    #[test]
    fn what_differs_is_found_and_undone() {
        let base = 0x6300_0000_0000;
        let page_of = |page: usize| base + page * PAGE;
        // on rank 0: pages 1, 2, 3, 5 and what is not shared of page 0
        let mut zero = rank(base, &[(PAGE, 1), (2 * PAGE, 2), (3 * PAGE, 3), (5 * PAGE, 5), (10, 1)]);
        zero.digest();
        let mut lists = Vec::new();
        let mut from = 0;
        while from < usize::MAX {
            let mut room = [0; 3 * LISTED + 5];
            let (bytes, to) = zero.hashes(from, &mut room);
            lists.push((from..to, room[..bytes].to_vec()));
            from = to;
        }
        assert_eq!(lists.iter().map(|(_, list)| list.len() / LISTED).collect::<Vec<_>>(), [3, 1]);
        zero.settle(0..usize::MAX, |_, at| match at == page_of(3) {
            true => Verdict::Pending,
            false => Verdict::Agreed,
        });
        assert_eq!(zero.pending.runs(), [(page_of(3), page_of(4))]);
        // SAFETY: the test's own mapping
        unsafe { raw::call(libc::SYS_munmap, [base, 2 * PAGES * PAGE, 0, 0, 0, 0]) };

        // here 1 is the same, 2 is not, 3 and 5 are not changed, 4 and 7 are
        let mut other = rank(base, &[(PAGE, 1), (2 * PAGE, 9), (4 * PAGE, 4), (7 * PAGE, 7), (11, 3)]);
        other.digest();
        let wanted: Vec<usize> =
            lists.into_iter().flat_map(|(range, list)| other.compare(range, &list)).collect();
        assert_eq!(wanted, [page_of(2), page_of(3), page_of(5)]);
        assert_eq!(other.pending.count(), 0);
        // SAFETY: the test's own mapping
        let bytes = |at: usize| unsafe { (*(at as *const u8), *((at + PAGES * PAGE) as *const u8)) };
        assert_eq!((bytes(page_of(1)), bytes(page_of(2)), bytes(page_of(4))), ((1, 1), (0, 0), (0, 0)));
        assert_eq!((bytes(page_of(7)), bytes(base + 11)), ((0, 0), (3, 0)), "what is not shared stays");
    }
}
