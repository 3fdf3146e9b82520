//! A played rank's memory.

use core::ops::Range;

use polyrail_omp::coherence::Memory;
use polyrail_omp::diff::{Mask, Page, diff};
use polyrail_omp::layout::PAGE;
use polyrail_omp::pages::Pages;

/// Where it begins, on all ranks.
pub const BASE: usize = 0x7000_0000;

/// Pages that follow each other, zero as the twins are.
#[derive(Debug)]
pub struct Played {
    now: Vec<Page>,
    twins: Vec<Page>,
    /// Pages that were written since they were last listed, if that is watched; else they are compared.
    written: Option<Vec<bool>>,
    /// Bytes of the first page that are shared.
    part: Mask,
}

/// Bytes by page: where they are, and which they are.
fn parts(at: usize, bytes: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut next = 0;
    core::iter::from_fn(move || {
        let from = next;
        next = bytes.min(from + PAGE - (at + from) % PAGE);
        (from < bytes).then_some((at + from, from..next))
    })
}

impl Played {
    /// So many pages, of the first all from byte `from` on.
    pub fn new(pages: usize, watched: bool, from: usize) -> Self {
        let mut part = Mask::NONE;
        part.set(from, PAGE);
        let written = watched.then(|| vec![true; pages]);
        Self { now: vec![[0; PAGE]; pages], twins: vec![[0; PAGE]; pages], written, part }
    }

    fn index(at: usize) -> usize {
        (at - BASE) / PAGE
    }

    /// What the program finds.
    pub fn load(&self, at: usize, to: &mut [u8]) {
        for (at, part) in parts(at, to.len()) {
            to[part.clone()].copy_from_slice(&self.now[Self::index(at)][at % PAGE..][..part.len()]);
        }
    }

    /// The program stores.
    pub fn store(&mut self, at: usize, bytes: &[u8]) {
        for (at, part) in parts(at, bytes.len()) {
            self.now[Self::index(at)][at % PAGE..][..part.len()].copy_from_slice(&bytes[part]);
            if let Some(written) = &mut self.written {
                written[Self::index(at)] = true;
            }
        }
    }

    /// A byte that is not as another rank has it, or as this rank's own twin, of what is shared.
    pub fn differs(&self, other: &Self) -> Option<usize> {
        (0..self.now.len()).find_map(|page| {
            let at = BASE + page * PAGE;
            let wrong = diff(&self.now[page], &other.now[page]).or(&diff(&self.now[page], &self.twins[page]));
            let wrong = self.part(at).map_or(wrong, |part| wrong.and(part));
            wrong.first().map(|byte| at + byte)
        })
    }
}

impl Memory for Played {
    const CHUNK: usize = 2 * PAGE;

    fn is_known(&self, address: usize, pages: usize) -> bool {
        address >= BASE && address + pages * PAGE <= BASE + self.now.len() * PAGE
    }

    fn part(&self, at: usize) -> Option<&Mask> {
        (at == BASE && self.part != Mask::ALL).then_some(&self.part)
    }

    fn page(&self, at: usize) -> (&Page, &Page) {
        (&self.now[Self::index(at)], &self.twins[Self::index(at)])
    }

    fn page_mut(&mut self, at: usize) -> (&mut Page, &mut Page) {
        if let Some(written) = &mut self.written {
            written[Self::index(at)] = true;
        }
        (&mut self.now[Self::index(at)], &mut self.twins[Self::index(at)])
    }

    fn collect(&mut self, _: &Range<usize>) -> Pages {
        let mut found = Pages::default();
        for page in 0..self.now.len() {
            let is_changed = match &mut self.written {
                Some(written) => core::mem::take(&mut written[page]),
                None => self.now[page] != self.twins[page],
            };
            if is_changed {
                found.push(BASE + page * PAGE, BASE + (page + 1) * PAGE);
            }
        }
        found
    }

    fn compared(&self) -> Vec<Range<usize>> {
        match self.written {
            Some(_) => Vec::new(),
            None => std::iter::once(BASE..BASE + self.now.len() * PAGE).collect(),
        }
    }

    fn changed(&self, _: usize) {}

    fn is_published(&mut self) {}

    fn release(&self, _: &Pages) {}

    fn forget(&mut self, pages: &Pages) -> Pages {
        if let Some(written) = &mut self.written {
            for &(from, to) in pages.runs() {
                (from..to).step_by(PAGE).for_each(|at| written[Self::index(at)] = false);
            }
        }
        Pages::default()
    }
}
