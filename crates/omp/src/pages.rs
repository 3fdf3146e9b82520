//! Runs of pages: which were written, which are listed, which several ranks have.

use core::ops::{ControlFlow, Range};

use crate::layout::PAGE;

/// Runs of pages, in order of addresses, apart from each other.
#[derive(Clone, Debug, Default)]
pub struct Pages(Vec<(usize, usize)>);

impl Pages {
    /// Adds a run, which is above all that there are.
    pub fn push(&mut self, from: usize, to: usize) {
        match self.0.last_mut() {
            Some(last) if last.1 >= from => last.1 = last.1.max(to),
            _ => self.0.push((from, to)),
        }
    }
    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        if self.0.last().is_none_or(|last| other.0.first().is_none_or(|first| first.0 >= last.1)) {
            other.0.iter().for_each(|&(from, to)| self.push(from, to));
            return;
        }
        let old = core::mem::take(&mut self.0);
        let (mut a, mut b) = (old.into_iter().peekable(), other.0.iter().copied().peekable());
        while let Some((from, to)) = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if y.0 < x.0 => b.next(),
            (Some(_), _) => a.next(),
            (None, _) => b.next(),
        } {
            self.push(from, to);
        }
    }
    /// The parts of a run that are not in it, which comes after those asked for before (`at` remembers).
    pub fn missing(&self, at: &mut usize, from: usize, to: usize, mut f: impl FnMut(usize, usize)) {
        let mut from = from;
        while from < to {
            while self.0.get(*at).is_some_and(|run| run.1 <= from) {
                *at += 1;
            }
            let (start, end) = self.0.get(*at).copied().unwrap_or((usize::MAX, usize::MAX));
            if from < start {
                f(from, to.min(start));
            }
            from = end.max(from);
        }
    }
    /// Drops what is below `frontier`, but what `keep` names.
    pub fn done(&mut self, frontier: u64, keep: Range<usize>) {
        let frontier = usize::try_from(frontier).unwrap_or(usize::MAX);
        let mut left = Self::default();
        for &(from, to) in &self.0 {
            let (low, high) = (from.max(keep.start), to.min(keep.end).min(frontier));
            if low < high {
                left.push(low, high);
            }
            if to > frontier {
                left.push(from.max(frontier), to);
            }
        }
        *self = left;
    }
    /// Drops what is in a range.
    pub fn remove(&mut self, range: &Range<usize>) {
        let mut left = Self::default();
        for &(from, to) in &self.0 {
            for (from, to) in [(from, to.min(range.start)), (from.max(range.end), to)] {
                if from < to {
                    left.push(from, to);
                }
            }
        }
        *self = left;
    }
    /// Whether it has a page.
    pub fn has(&self, at: usize) -> bool {
        self.0.get(self.0.partition_point(|run| run.1 <= at)).is_some_and(|run| run.0 <= at)
    }
    /// How many.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(from, to)| (to - from) / PAGE).sum()
    }
    /// Calls `f` with each page of a range.
    pub fn each<B>(&self, range: Range<usize>, mut f: impl FnMut(usize) -> ControlFlow<B>) -> ControlFlow<B> {
        let runs = &self.0[self.0.partition_point(|run| run.1 <= range.start)..];
        runs.iter()
            .take_while(|run| run.0 < range.end)
            .flat_map(|&(from, to)| (from.max(range.start)..to.min(range.end)).step_by(PAGE))
            .try_for_each(&mut f)
    }
    /// What another has that this one has not.
    pub fn not_in(&self, other: &Self) -> Self {
        let (mut at, mut left) = (0, Self::default());
        for &(from, to) in &other.0 {
            self.missing(&mut at, from, to, |from, to| left.push(from, to));
        }
        left
    }
    /// What at least two of them have.
    pub fn of_several(of: &[Self]) -> Self {
        let mut edges: Vec<_> =
            of.iter().flat_map(|pages| &pages.0).flat_map(|run| [(run.0, 1), (run.1, -1)]).collect();
        edges.sort_unstable();
        let (mut several, mut since, mut holders) = (Self::default(), 0, 0);
        for (at, step) in edges {
            if holders > 1 && since < at {
                several.push(since, at);
            }
            (since, holders) = (at, holders + step);
        }
        several
    }
    /// In `most` runs at most, with as few more pages as that takes, roughly.
    pub fn roughly(&self, most: usize) -> Self {
        let mut grain = PAGE;
        loop {
            let mut rough = Self::default();
            self.0.iter().for_each(|&(from, to)| rough.push(from & !(grain - 1), to.next_multiple_of(grain)));
            if rough.0.len() <= most {
                return rough;
            }
            grain *= 2;
        }
    }
    /// The runs.
    pub fn runs(&self) -> &[(usize, usize)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(runs: &[(usize, usize)]) -> Pages {
        let mut pages = Pages::default();
        runs.iter().for_each(|&(from, to)| pages.push(from * PAGE, to * PAGE));
        pages
    }
    fn runs(pages: &Pages) -> Vec<(usize, usize)> {
        pages.0.iter().map(|(from, to)| (from / PAGE, to / PAGE)).collect()
    }

    #[test]
    fn runs_are_joined_and_taken_away() {
        let mut all = pages(&[(1, 3), (3, 4), (8, 9)]);
        assert_eq!(runs(&all), [(1, 4), (8, 9)]);
        all.add(&pages(&[(0, 2), (5, 6), (9, 12), (20, 30)]));
        assert_eq!(runs(&all), [(0, 4), (5, 6), (8, 12), (20, 30)]);
        all.add(&pages(&[(40, 41)]));
        assert_eq!(all.count(), 4 + 1 + 4 + 10 + 1);
        let (mut at, mut missing) = (0, Vec::new());
        for (from, to) in [(2, 5), (7, 9), (11, 25), (29, 50)] {
            all.missing(&mut at, from * PAGE, to * PAGE, |from, to| missing.push((from / PAGE, to / PAGE)));
        }
        assert_eq!(missing, [(4, 5), (7, 8), (12, 20), (30, 40), (41, 50)]);
        all.done(22 * PAGE as u64, 9 * PAGE..11 * PAGE);
        assert_eq!(runs(&all), [(9, 11), (22, 30), (40, 41)]);
        let mut seen = Vec::new();
        let _ = all.each(29 * PAGE..41 * PAGE, |page| {
            seen.push(page / PAGE);
            ControlFlow::<()>::Continue(())
        });
        assert_eq!(seen, [29, 40]);
        assert_eq!([8, 9, 10, 11, 40].map(|page| all.has(page * PAGE)), [false, true, true, false, true]);
        all.remove(&(10 * PAGE..24 * PAGE));
        assert_eq!(runs(&all), [(9, 10), (24, 30), (40, 41)]);
        all.done(u64::MAX, 0..0);
        assert_eq!(all.count(), 0);
    }
}
