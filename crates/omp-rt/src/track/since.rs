//! Which pages may have changed since the last checkpoint: those that were found written, and those that others' changes came into.

use polyrail_omp::pages::Pages;

use super::PAGE;

/// So many runs are kept as they come before they are put in order.
const UNORDERED: usize = 4096;

/// Runs of pages, from and to.
#[derive(Default)]
pub struct Since {
    on: bool,
    runs: Vec<(usize, usize)>,
    ordered: usize,
}

impl Since {
    /// From now on pages are noted.
    pub fn begin(&mut self) {
        self.on = true;
    }

    /// Whether they are.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// A run of pages may have changed.
    pub fn note(&mut self, from: usize, to: usize) {
        if !self.on {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.0 <= from && from <= last.1 => last.1 = last.1.max(to),
            _ => self.runs.push((from, to)),
        }
        if self.runs.len() >= self.ordered + UNORDERED {
            self.order();
        }
    }

    /// So may these.
    pub fn note_all(&mut self, pages: &Pages) {
        if self.on {
            pages.runs().iter().for_each(|&(from, to)| self.note(from, to));
        }
    }

    fn order(&mut self) {
        self.runs.sort_unstable();
        let mut ordered: Vec<(usize, usize)> = Vec::with_capacity(self.runs.len());
        for &(from, to) in &self.runs {
            match ordered.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => ordered.push((from, to)),
            }
        }
        self.ordered = ordered.len();
        self.runs = ordered;
    }

    /// What was noted, in order; nothing is any more.
    pub fn take(&mut self) -> Pages {
        self.order();
        let mut pages = Pages::default();
        for (from, to) in core::mem::take(&mut self.runs) {
            pages.push(from & !(PAGE - 1), to.next_multiple_of(PAGE));
        }
        self.ordered = 0;
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_comes_back_in_order() {
        let mut since = Since::default();
        since.note(0x5000, 0x6000);
        assert!(since.take().runs().is_empty(), "nothing is noted before it begins");
        since.begin();
        for i in (0..10_000).rev() {
            since.note(i * 2 * PAGE, (i * 2 + 1) * PAGE);
        }
        since.note(PAGE, 2 * PAGE);
        let pages = since.take();
        assert_eq!(pages.runs().len(), 9_999);
        assert_eq!(pages.runs()[0], (0, 3 * PAGE));
        assert!(since.take().runs().is_empty());
    }
}
